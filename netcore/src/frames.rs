//! The head of a packet of frames: what the host has sealed, tick by tick, for peers that simulate from inputs and orders alone. Each
//! frame is a difference from the one before it.
//!
//! ```text
//! bits  field
//!    3  kind: 3, then 1
//!   16  the first tick in the packet, low bits
//!   EG  how many frames follow the first, Exp-Golomb 2
//! ```

use crate::bits::{BitError, BitReader, BitWriter};
use crate::limits;
use crate::packet::PacketKind;
use crate::tick::Tick;

/// Which frames a packet holds: `count` in a row from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramesHead {
    /// The tick of the first.
    pub first: Tick,
    /// 1 to [`limits::FRAMES_IN_PACKET`].
    pub count: u64,
}

/// Bits of the largest head.
pub const HEAD_BITS: usize = 3 + 16 + 17;
/// Order of the code for the count.
const COUNT_ORDER: u32 = 2;

impl FramesHead {
    /// Writes it, the kind first.
    pub fn write(self, w: &mut BitWriter) {
        debug_assert!(self.count >= 1 && self.count <= limits::FRAMES_IN_PACKET && self.first > Tick::ZERO);
        PacketKind::Frames.write(w);
        w.put(u64::from(self.first.narrow()), 16);
        w.golomb(self.count - 1, COUNT_ORDER);
    }

    /// Reads it, after the kind. `near`: the session's tick now.
    ///
    /// # Errors
    /// [`BitError`] if it ends early, holds more than it may, or begins before the first tick.
    pub fn read(r: &mut BitReader<'_>, near: Tick) -> Result<Self, BitError> {
        let first = near.widen(r.get(16)? as u16);
        let more = r.golomb(COUNT_ORDER)?;
        if more >= limits::FRAMES_IN_PACKET || first == Tick::ZERO {
            return Err(BitError::OutOfRange);
        }
        Ok(Self { first, count: more + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes() {
        let mut w = BitWriter::new();
        FramesHead { first: Tick(0x1_2345), count: 6 }.write(&mut w);
        assert_eq!(w.to_bytes(), [0x2f, 0x1a, 0x49]);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            first in 1u64..1 << 40, near in -30_000i64..30_000, count in 1..=limits::FRAMES_IN_PACKET,
        ) {
            let mut w = BitWriter::new();
            let head = FramesHead { first: Tick(first + 40_000), count };
            head.write(&mut w);
            prop_assert!(w.len() <= HEAD_BITS);
            let bytes = w.to_bytes();
            let near = Tick((first + 40_000).checked_add_signed(near).unwrap());
            for cut in 0..bytes.len() {
                let mut r = BitReader::new(&bytes[..cut]);
                prop_assert!(PacketKind::read(&mut r).and_then(|_| FramesHead::read(&mut r, near)).is_err());
            }
            let mut r = BitReader::new(&bytes);
            prop_assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::Frames));
            prop_assert_eq!(FramesHead::read(&mut r, near), Ok(head));
            prop_assert!(r.finish().is_ok());
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..12), near in 0u64..1 << 20) {
            if let Ok(head) = FramesHead::read(&mut BitReader::new(&bytes), Tick(near)) {
                prop_assert!(head.first > Tick::ZERO && (1..=limits::FRAMES_IN_PACKET).contains(&head.count));
            }
        }
    }
}
