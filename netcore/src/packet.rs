//! The header of a state packet.
//!
//! ```text
//! bits  field
//!    2  kind: 0 state in blocks, 1 message (then the header ends here), 2 state as a list; 3 neither, and a bit follows:
//!         0 inputs and confirmations (see `crate::input`), 1 frames (see `crate::frames`)
//!   16  packet number, low bits
//!   16  send tick, low bits: counts this sender's sends; baselines count in it
//!   16  session tick, low bits: what the values were sampled at
//!    6  63 if events ride along after the state; then the next field follows
//!    6  base age: the packet's baseline is send tick − age (0: there is none)
//!  1 +  complete through: 1 = the session tick; else 0 and the distance below it, Exp-Golomb 3
//!   EG  packet number − oldest undecided packet number, Exp-Golomb 2
//!  1 +  acknowledgement: 1 and the ranges, or 0
//!  1 +  time: 1, 16 bits of the sender's clock in units of 250 µs,
//!         then 1, 16 bits of echo and the time it was held (Exp-Golomb 6, same unit), or 0; or 0
//! ```
//!
//! Then comes the state: in blocks, entries, each after a 1 bit, and a 0 bit; or a list.

use crate::ack::{AckRanges, Received};
use crate::bits::{BitError, BitReader, BitWriter};
use crate::limits;
use crate::tick::{Tick, widen};
use std::time::Duration;

/// In the place of an age of a baseline, which is never that old: events ride along.
const EVENTS: u64 = 63;

/// What a datagram is, from its first two or three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A state packet: [`Header`] and entries of blocks.
    State,
    /// One unreliable message of the game.
    Message,
    /// A state packet: [`Header`] and a list of rows.
    List,
    /// Inputs from a guest, or what the host has to say about them: see [`input`](crate::input).
    Input,
    /// Frames that the host has sealed: see [`frames`](crate::frames).
    Frames,
}

impl PacketKind {
    /// Writes its bits.
    pub fn write(self, w: &mut BitWriter) {
        match self {
            Self::State | Self::Message | Self::List => w.put(self as u64, 2),
            Self::Input => w.put(0b011, 3),
            Self::Frames => w.put(0b111, 3),
        }
    }

    /// Reads its bits.
    ///
    /// # Errors
    /// [`BitError::Truncated`] for nothing, or two of three bits.
    pub fn read(r: &mut BitReader<'_>) -> Result<Self, BitError> {
        match r.get(2)? {
            0 => Ok(Self::State),
            1 => Ok(Self::Message),
            2 => Ok(Self::List),
            _ if r.flag()? => Ok(Self::Frames),
            _ => Ok(Self::Input),
        }
    }
}

/// A time on the wire: 16 bits of a clock in units of 250 µs (it wraps after 16.4 s).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireTime(pub u16);

impl WireTime {
    const UNIT_MICROS: u64 = 250;

    /// Narrows a time, rounding down to the unit.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        Self((time.as_micros() as u64 / Self::UNIT_MICROS) as u16)
    }

    /// Widens it to the time nearest to `reference`.
    #[must_use]
    pub fn widen(self, reference: Duration) -> Duration {
        Duration::from_micros(widen(reference.as_micros() as u64 / Self::UNIT_MICROS, self.0) * Self::UNIT_MICROS)
    }
}

/// An echo of a time that the other side sent, and how long it was held here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The other side's clock, as it came.
    pub time: WireTime,
    /// From its arrival to this packet.
    pub held: Duration,
}

/// The clocks that ride on a packet now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The sender's clock when it sent this.
    pub sent: WireTime,
    /// The last stamp that the sender received, if any.
    pub echo: Option<Echo>,
}

/// The header of a state packet, numbers widened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Packet number, counted by the sender of this direction; never used twice.
    pub number: u64,
    /// The send in which it went out; several packets may share one.
    pub send_tick: Tick,
    /// The tick of the session that its values belong to.
    pub tick: Tick,
    /// The baseline of all entries that name no other; `None`: such entries are absolute.
    pub base: Option<Tick>,
    /// Events ride along, after the state.
    pub events: bool,
    /// No change up to this session tick is still unsent (what was sent and lost shows as a missing packet number).
    pub complete: Tick,
    /// The sender knows the fate of every packet below this number.
    pub floor: u64,
    /// What the sender received in the other direction.
    pub ack: Option<AckRanges>,
    /// Clocks.
    pub stamp: Option<Stamp>,
}

/// Recent numbers against which the narrow ones of a header are widened.
#[derive(Clone, Copy, Debug)]
pub struct References {
    /// The newest packet number received on this direction.
    pub number: u64,
    /// The newest send tick received on this direction.
    pub send_tick: Tick,
    /// The session tick now, as this peer sees it.
    pub tick: Tick,
    /// The newest packet number sent in the other direction.
    pub sent: u64,
}

impl Header {
    /// Writes it, the kind first. The acknowledgement comes from `received`, not from [`Header::ack`].
    pub fn write(&self, kind: PacketKind, received: Option<&Received>, w: &mut BitWriter) {
        kind.write(w);
        w.put(self.number & 0xffff, 16);
        w.put(u64::from(self.send_tick.narrow()), 16);
        w.put(u64::from(self.tick.narrow()), 16);
        if self.events {
            w.put(EVENTS, 6);
        }
        w.put(self.base.map_or(0, |b| self.send_tick.since(b)), 6);
        w.flag(self.complete >= self.tick);
        if self.complete < self.tick {
            w.golomb(self.tick.since(self.complete), 3);
        }
        w.golomb(self.number - self.floor, 2);
        match received.filter(|r| !r.is_empty()) {
            Some(received) => {
                w.flag(true);
                received.write(w);
            }
            None => w.flag(false),
        }
        w.flag(self.stamp.is_some());
        if let Some(stamp) = &self.stamp {
            w.put(u64::from(stamp.sent.0), 16);
            w.flag(stamp.echo.is_some());
            if let Some(echo) = &stamp.echo {
                w.put(u64::from(echo.time.0), 16);
                w.golomb(echo.held.as_micros() as u64 / WireTime::UNIT_MICROS, 6);
            }
        }
    }

    /// Reads what follows the kind.
    ///
    /// # Errors
    /// [`BitError`] if it is cut short or says something impossible.
    pub fn read(r: &mut BitReader<'_>, near: References) -> Result<Self, BitError> {
        let number = widen(near.number, r.get(16)? as u16);
        let send_tick = near.send_tick.widen(r.get(16)? as u16);
        let tick = near.tick.widen(r.get(16)? as u16);
        let mut age = r.get(6)?;
        let events = age == EVENTS;
        if events {
            age = r.get(6)?;
        }
        let base = match age {
            0 => None,
            age if age > limits::BASE_AGE => return Err(BitError::OutOfRange),
            age => Some(Tick(send_tick.0.checked_sub(age).ok_or(BitError::OutOfRange)?)),
        };
        let complete = if r.flag()? { tick } else { Tick(tick.0.checked_sub(r.golomb(3)?).ok_or(BitError::OutOfRange)?) };
        let floor = number.checked_sub(r.golomb(2)?).ok_or(BitError::OutOfRange)?;
        let ack = if r.flag()? { Some(AckRanges::read(r, near.sent)?) } else { None };
        let stamp = if r.flag()? { Some(Self::read_stamp(r)?) } else { None };
        Ok(Self { number, send_tick, tick, base, events, complete, floor, ack, stamp })
    }

    fn read_stamp(r: &mut BitReader<'_>) -> Result<Stamp, BitError> {
        let sent = WireTime(r.get(16)? as u16);
        let echo = if r.flag()? {
            let time = WireTime(r.get(16)? as u16);
            let units = r.golomb(6)?;
            // longer than the clock's range says nothing
            if units > 0xffff {
                return Err(BitError::OutOfRange);
            }
            Some(Echo { time, held: Duration::from_micros(units * WireTime::UNIT_MICROS) })
        } else {
            None
        };
        Ok(Stamp { sent, echo })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near() -> References {
        References { number: 70_000, send_tick: Tick(65_530), tick: Tick(1 << 32), sent: 65_600 }
    }

    proptest! {
        #[test]
        fn a_header_is_read_as_written(
            number in 60_000u64..80_000, sends in 60_000u64..70_000, tick in (1u64 << 32) - 20_000..(1 << 32) + 20_000, age in 0u64..=62,
            behind in prop::option::of(1u64..5000), floor in 0u64..500, arrived in prop::collection::vec(65_500u64..65_600, 0..40),
            stamp in prop::option::of((any::<u16>(), prop::option::of((any::<u16>(), 0u64..0xffff)))), events in any::<bool>(),
        ) {
            let mut received = Received::new(65_500);
            for n in arrived { received.insert(n); }
            let header = Header {
                number, send_tick: Tick(sends), tick: Tick(tick), base: (age > 0).then(|| Tick(sends - age)), events,
                complete: Tick(tick - behind.unwrap_or(0)), floor: number - floor, ack: None,
                stamp: stamp.map(|(sent, echo)| Stamp { sent: WireTime(sent), echo: echo.map(|(t, held)| Echo { time: WireTime(t), held: Duration::from_micros(held * 250) }) }),
            };
            let mut w = BitWriter::new();
            header.write(PacketKind::State, Some(&received), &mut w);
            let bytes = w.to_bytes();
            let mut r = BitReader::new(&bytes);
            prop_assert_eq!(PacketKind::read(&mut r), Ok(PacketKind::State));
            let mut read = Header::read(&mut r, near()).unwrap();
            prop_assert_eq!(read.ack.is_some(), !received.is_empty());
            read.ack = None;
            prop_assert_eq!(&read, &header);
            prop_assert!(r.finish().is_ok());
            for cut in 0..w.len().div_ceil(8) - 1 {
                let mut r = BitReader::new(&bytes[..cut]);
                prop_assert!(PacketKind::read(&mut r).and_then(|_| Header::read(&mut r, near())).is_err());
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut r = BitReader::new(&bytes);
            if PacketKind::read(&mut r).is_ok() { let _ = Header::read(&mut r, near()); }
        }
    }
}
