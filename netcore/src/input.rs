//! Heads of input packets: a guest's inputs and its confirmation of frames on their way up, and what its host says about inputs on
//! the way down.
//!
//! ```text
//! up    bits  field
//!          3  kind: 3, then 0
//!     1 (+16)  1 and the newest frame up to which it has them all, low bits; 0: it has none, or nothing new
//!     1 (+22)  1 and inputs: the newest tick, low 16 bits; 6 bits: how many ticks before it are in the packet; 0: no inputs
//!             then their inputs, the oldest first, each but the first after a bit: 1 = the same as the one before
//!          1  1 = what was drawn in these ticks follows: for the first tick, by how much it is behind the tick, Exp-Golomb 7, in
//!             sixteenths of a tick; for each after it, the difference from the one before, zigzag, Exp-Golomb 1
//!
//! down  bits  field
//!          3  kind: 3, then 0
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
    fn write(self, w: &mut BitWriter) {
        debug_assert!(self.before < limits::INPUT_WINDOW as u64 && self.before < self.newest.0);
        w.put(u64::from(self.newest.narrow()), 16);
        w.put(self.before, COUNT_BITS);
    }

    fn read(r: &mut BitReader<'_>, near: Tick) -> Result<Self, BitError> {
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

/// What a guest's packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpHead {
    /// The newest frame up to which the guest has all that it is to get.
    pub frames: Option<Tick>,
    /// Which inputs follow, if any.
    pub inputs: Option<InputHead>,
}

impl UpHead {
    /// Writes it, the kind first.
    pub fn write(self, w: &mut BitWriter) {
        PacketKind::Input.write(w);
        w.flag(self.frames.is_some());
        if let Some(tick) = self.frames {
            w.put(u64::from(tick.narrow()), 16);
        }
        w.flag(self.inputs.is_some());
        if let Some(inputs) = self.inputs {
            inputs.write(w);
        }
    }

    /// Reads it, after the kind. `near`: the session's tick now.
    ///
    /// # Errors
    /// [`BitError`] if it ends early, says nothing at all, or speaks of ticks before the first.
    pub fn read(r: &mut BitReader<'_>, near: Tick) -> Result<Self, BitError> {
        let frames = if r.flag()? { Some(near.widen(r.get(16)? as u16)) } else { None };
        let inputs = if r.flag()? { Some(InputHead::read(r, near)?) } else { None };
        if frames.is_none() && inputs.is_none() {
            return Err(BitError::OutOfRange);
        }
        Ok(Self { frames, inputs })
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
        let inputs = Some(InputHead { newest: Tick(0x1_2345), before: 5 });
        UpHead { frames: None, inputs }.write(&mut w);
        assert_eq!(w.to_bytes(), [0xb3, 0x68, 0xa4, 0x00]);
        w.clear();
        UpHead { frames: Some(Tick(0x1_2344)), inputs }.write(&mut w);
        assert_eq!(w.to_bytes(), [0x4b, 0x34, 0xb2, 0x68, 0xa4, 0x00]);
        w.clear();
        UpHead { frames: Some(Tick(0x1_2344)), inputs: None }.write(&mut w);
        assert_eq!(w.to_bytes(), [0x4b, 0x34, 0x02]);
        w.clear();
        Feedback { newest: Tick(0x1_2345), earliness: Some(-3), missed: 7 }.write(&mut w);
        assert_eq!(w.to_bytes(), [0x2b, 0x1a, 0xa9, 0x1c, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            tick in 64u64..1 << 40, near in -30_000i64..30_000, before in 0u64..64, earliness in prop::option::of(any::<i16>()), missed: u16,
            frames in prop::option::of(0u64..40_000), with in any::<bool>(),
        ) {
            let mut w = BitWriter::new();
            let inputs = InputHead { newest: Tick(tick + 40_000), before };
            let near = Tick((tick + 40_000).checked_add_signed(near).unwrap());
            let head = UpHead { frames: frames.map(|f| near.minus(f % 30_000)), inputs: (with || frames.is_none()).then_some(inputs) };
            head.write(&mut w);
            let bytes = w.to_bytes();
            for cut in 0..bytes.len() {
                let mut r = BitReader::new(&bytes[..cut]);
                prop_assert!(PacketKind::read(&mut r).and_then(|_| UpHead::read(&mut r, near)).is_err());
            }
            let mut r = BitReader::new(&bytes);
            prop_assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::Input));
            prop_assert_eq!(UpHead::read(&mut r, near), Ok(head));
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
            if let Ok(head) = UpHead::read(&mut r, Tick(near)) {
                prop_assert!(head.inputs.is_none_or(|inputs| inputs.oldest() > Tick::ZERO && inputs.oldest() <= inputs.newest));
                prop_assert!(head.inputs.is_some() || head.frames.is_some());
            }
            let _ = Feedback::read(&mut BitReader::new(&bytes), Tick(near));
        }
    }
}
