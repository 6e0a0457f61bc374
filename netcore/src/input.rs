//! Heads of input packets: a guest's inputs on their way up, and what its host says about them on the way down.
//!
//! ```text
//! up    bits  field
//!          2  kind: 3
//!         16  newest tick, low bits
//!          6  how many ticks before it are in the packet
//!             then their inputs, the oldest first, each but the first after a bit: 1 = the same as the one before
//!          1  1 = what was drawn in these ticks follows: for the first tick, by how much it is behind the tick, Exp-Golomb 7, in
//!             sixteenths of a tick; for each after it, the difference from the one before, zigzag, Exp-Golomb 1
//!
//! down  bits  field
//!          2  kind: 3
//!         16  newest tick that has arrived, low bits
//!    1 (+EG)  1 and the least earliness since the last feedback, zigzag, Exp-Golomb 5, in units of 250 µs; 0: nothing has come
//!         16  ticks that were run without their input, low bits of a count
//! ```

use crate::bits::{BitError, BitReader, BitWriter, unzigzag, zigzag};
use crate::limits;
use crate::packet::PacketKind;
use crate::tick::Tick;

/// Which ticks' inputs a packet holds: all from [`oldest`](Self::oldest) to `newest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputHead {
    /// The newest tick.
    pub newest: Tick,
    /// How many before it, below [`limits::INPUT_WINDOW`].
    pub before: u64,
}

impl InputHead {
    /// Writes it, the kind first.
    pub fn write(self, w: &mut BitWriter) {
        debug_assert!(self.before < limits::INPUT_WINDOW as u64 && self.before < self.newest.0);
        PacketKind::Input.write(w);
        w.put(u64::from(self.newest.narrow()), 16);
        w.put(self.before, COUNT_BITS);
    }

    /// Reads it, after the kind. `near`: the session's tick now.
    ///
    /// # Errors
    /// [`BitError`] if it ends early, or speaks of ticks before the first.
    pub fn read(r: &mut BitReader<'_>, near: Tick) -> Result<Self, BitError> {
        let newest = near.widen(r.get(16)? as u16);
        let before = r.get(COUNT_BITS)?;
        if before >= newest.0 {
            return Err(BitError::OutOfRange);
        }
        Ok(Self { newest, before })
    }

    /// The oldest tick.
    #[must_use]
    pub fn oldest(self) -> Tick {
        self.newest.minus(self.before)
    }
}

/// What a host says about a guest's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The newest tick whose input has arrived: up to here nothing needs to be sent again.
    pub newest: Tick,
    /// By how much the latest of the inputs that came since the last feedback was early, in units of [`EARLINESS_MICROS`]; below
    /// zero: its tick had been run. `None`: none came.
    pub earliness: Option<i16>,
    /// Ticks that were run without their input: a count that wraps.
    pub missed: u16,
}

/// Microseconds in one unit of [`Feedback::earliness`].
pub const EARLINESS_MICROS: i64 = 250;

impl Feedback {
    /// Writes it, the kind first.
    pub fn write(self, w: &mut BitWriter) {
        PacketKind::Input.write(w);
        w.put(u64::from(self.newest.narrow()), 16);
        w.flag(self.earliness.is_some());
        if let Some(units) = self.earliness {
            w.golomb(zigzag(units.into()), EARLINESS_ORDER);
        }
        w.put(self.missed.into(), 16);
    }

    /// Reads it, after the kind. `near`: the newest tick whose input was sent; the host cannot have a newer one.
    ///
    /// # Errors
    /// [`BitError`] if it ends early, speaks of a tick after `near`, or of an earliness that does not fit.
    pub fn read(r: &mut BitReader<'_>, near: Tick) -> Result<Self, BitError> {
        let newest = near.widen(r.get(16)? as u16);
        if newest > near {
            return Err(BitError::OutOfRange);
        }
        let units = if r.flag()? { Some(unzigzag(r.golomb(EARLINESS_ORDER)?)) } else { None };
        let earliness = units.map(i16::try_from).transpose().map_err(|_| BitError::OutOfRange)?;
        Ok(Self { newest, earliness, missed: r.get(16)? as u16 })
    }
}

const COUNT_BITS: u32 = limits::INPUT_WINDOW.ilog2();
const EARLINESS_ORDER: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes() {
        let mut w = BitWriter::new();
        InputHead { newest: Tick(0x1_2345), before: 5 }.write(&mut w);
        assert_eq!(w.to_bytes(), [0x17, 0x8d, 0x14]);
        w.clear();
        Feedback { newest: Tick(0x1_2345), earliness: Some(-3), missed: 7 }.write(&mut w);
        assert_eq!(w.to_bytes(), [0x17, 0x8d, 0x54, 0x0e, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            tick in 64u64..1 << 40, near in -30_000i64..30_000, before in 0u64..64, earliness in prop::option::of(any::<i16>()), missed: u16,
        ) {
            let mut w = BitWriter::new();
            let head = InputHead { newest: Tick(tick + 40_000), before };
            head.write(&mut w);
            let bytes = w.to_bytes();
            let near = Tick((tick + 40_000).checked_add_signed(near).unwrap());
            for cut in 0..bytes.len() {
                let mut r = BitReader::new(&bytes[..cut]);
                prop_assert!(PacketKind::read(&mut r).and_then(|_| InputHead::read(&mut r, near)).is_err());
            }
            let mut r = BitReader::new(&bytes);
            prop_assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::Input));
            prop_assert_eq!(InputHead::read(&mut r, near), Ok(head));
            prop_assert!(r.finish().is_ok());

            w.clear();
            let feedback = Feedback { newest: Tick(tick), earliness, missed };
            feedback.write(&mut w);
            let bytes = w.to_bytes();
            let mut r = BitReader::new(&bytes);
            prop_assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::Input));
            prop_assert_eq!(Feedback::read(&mut r, Tick(tick + 9)), Ok(feedback));
            prop_assert!(r.finish().is_ok());
            let mut r = BitReader::new(&bytes);
            let _ = PacketKind::read(&mut r);
            prop_assert!(Feedback::read(&mut r, Tick(tick - 1)).is_err(), "a tick that was never sent");
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..20), near in 0u64..1 << 20) {
            let mut r = BitReader::new(&bytes);
            if let Ok(head) = InputHead::read(&mut r, Tick(near)) {
                prop_assert!(head.oldest() > Tick::ZERO && head.oldest() <= head.newest);
            }
            let _ = Feedback::read(&mut BitReader::new(&bytes), Tick(near));
        }
    }
}
