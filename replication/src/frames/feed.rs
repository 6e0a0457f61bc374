//! The frames on their way to one guest.

use super::frame::Frame;
use super::sealer::Sealer;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::bits::{BitError, BitWriter};
use tidelock_netcore::frames::{FramesHead, HEAD_BITS};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// The guest has not confirmed frames that are no longer kept: it needs the state of a later tick, or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind;

/// All that is not confirmed is repeated every time if it takes no more than this: less than what a datagram costs beside.
const CHEAP_BITS: usize = 8 * 64;

/// How often frames are repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) now: Duration,
    /// A round trip: what is not confirmed after it counts as lost.
    pub(crate) trip: Duration,
    /// So often at most within it, one after the other; none at all: nothing is lost.
    pub(crate) repeats: u32,
}

/// A frame that was sent and is not confirmed.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Since `since`, and for the last time.
    sent: u32,
    since: Duration,
    last: Duration,
}

/// What one guest has been sent of the frames, and has confirmed.
pub(crate) struct FrameFeed {
    /// The first frame that it is to get: it knows none before, and gets it whole, in a reliable message.
    first: Tick,
    /// The message was sent.
    begun: bool,
    /// The first frame that is not confirmed, of those that go as differences.
    next: Tick,
    /// Frames from the first that is not confirmed on, as far as they were sent.
    flights: VecDeque<Flight>,
    /// When all that was not confirmed was repeated last.
    swept: Duration,
    /// Bits that the next packet needs at least, and found no room.
    need: usize,
}

impl FrameFeed {
    /// For a guest that has the state after the tick before `first`.
    pub(crate) fn from(first: Tick) -> Self {
        Self { first, begun: false, next: first.plus(1), flights: VecDeque::new(), swept: Duration::ZERO, need: 0 }
    }

    /// The first frame, as soon as there is one, and once: it is to be sent whole.
    ///
    /// # Errors
    /// [`Behind`] if it is not kept any more.
    pub(crate) fn begin<'a>(&mut self, sealer: &'a Sealer) -> Result<Option<&'a Frame>, Behind> {
        if self.begun || sealer.newest().is_none_or(|newest| newest < self.first) {
            return Ok(None);
        }
        self.begun = true;
        sealer.sealed(self.first).map(Some).ok_or(Behind)
    }

    /// The first frame that the guest may still need as a difference.
    pub(crate) fn next(&self) -> Tick {
        self.next
    }

    /// Bytes that were wanting for the next packet.
    pub(crate) fn need(&self) -> usize {
        self.need.div_ceil(8)
    }

    /// The guest says that it has all up to `tick`. `newest`: the newest sealed.
    ///
    /// # Errors
    /// [`BitError::OutOfRange`] if it cannot have that.
    pub(crate) fn confirm(&mut self, tick: Tick, newest: Option<Tick>) -> Result<(), BitError> {
        if newest.is_none_or(|newest| tick > newest) {
            return Err(BitError::OutOfRange);
        }
        let more = tick.plus(1).since(self.next) as usize;
        if more == 0 {
            return Ok(()); // an older word that was overtaken
        }
        if more > self.flights.len() {
            return Err(BitError::OutOfRange);
        }
        self.flights.drain(..more);
        self.next = tick.plus(1);
        Ok(())
    }

    /// Writes the next packet of at most `limit` bits, if one is due; `false` if none is.
    ///
    /// # Errors
    /// [`Behind`].
    pub(crate) fn write(&mut self, sealer: &Sealer, pace: Pace, limit: usize, w: &mut BitWriter) -> Result<bool, Behind> {
        w.clear();
        self.need = 0;
        let Some(newest) = sealer.newest().filter(|newest| self.begun && *newest >= self.next) else { return Ok(false) };
        if sealer.oldest().is_none_or(|oldest| oldest > self.next) {
            return Err(Behind);
        }
        let Some(mut start) = self.start(newest, pace) else { return Ok(false) };
        // losses come in runs: now and then everything is repeated, and every time if that is cheap
        let sweeps = pace.now >= self.swept + pace.trip / limits::FRAME_SWEEPS;
        let unconfirmed = newest.since(self.next) + 1;
        if pace.repeats > 0 && start > self.next {
            let cheap = self.count(sealer, self.next, newest, limit.min(CHEAP_BITS)) == unconfirmed;
            start = if sweeps || cheap { self.next } else { start };
        }
        let count = self.count(sealer, start, newest, limit);
        if count == 0 {
            return Ok(false);
        }
        FramesHead { first: start, count }.write(w);
        Self::write_frames(sealer, start, count, w);
        if start == self.next {
            self.swept = pace.now;
        }
        self.note_sent(start, count, pace);
        Ok(true)
    }

    /// The first frame that is worth a packet now: none if nothing is new and nothing counts as lost.
    fn start(&self, newest: Tick, pace: Pace) -> Option<Tick> {
        let unsent = self.next.plus(self.flights.len() as u64) <= newest;
        let lost = |f: &Flight| pace.now >= f.since + pace.trip;
        if !unsent && !self.flights.front().is_some_and(lost) {
            return None;
        }
        // one that is worth being repeated takes all that follow along: differences make sense in a row only
        let worth = |f: &Flight| (f.sent <= pace.repeats || lost(f)) && f.last < pace.now;
        let skipped = self.flights.iter().position(worth).unwrap_or(self.flights.len());
        Some(self.next.plus(skipped as u64))
    }

    /// How many frames from `start` on fit into `limit` bits.
    fn count(&mut self, sealer: &Sealer, start: Tick, newest: Tick, limit: usize) -> u64 {
        let (mut bits, mut same) = (HEAD_BITS, 0);
        let most = (newest.since(start) + 1).min(limits::FRAMES_IN_PACKET);
        for count in 0..most {
            let tick = start.plus(count);
            let size = sealer.coded(tick).map_or(0, BitWriter::len);
            if size == 0 {
                same += 1;
            } else {
                bits += golomb_bits(same) + size;
                same = 0;
            }
            let all = bits + if same > 0 { golomb_bits(same) } else { 0 };
            if all > limit {
                if count == 0 {
                    self.need = all;
                }
                return count;
            }
        }
        most
    }

    fn write_frames(sealer: &Sealer, start: Tick, count: u64, w: &mut BitWriter) {
        let mut same = 0;
        for tick in (0..count).map(|i| start.plus(i)) {
            match sealer.coded(tick).filter(|bits| !bits.is_empty()) {
                Some(bits) => {
                    w.golomb(same, 0);
                    w.append(bits, 0, bits.len());
                    same = 0;
                }
                None => same += 1,
            }
        }
        if same > 0 {
            w.golomb(same, 0);
        }
    }

    fn note_sent(&mut self, start: Tick, count: u64, pace: Pace) {
        let skipped = start.since(self.next) as usize;
        let fresh = Flight { sent: 1, since: pace.now, last: pace.now };
        for i in skipped..skipped + count as usize {
            match self.flights.get_mut(i) {
                Some(flight) if pace.now < flight.since + pace.trip => {
                    flight.sent += 1;
                    flight.last = pace.now;
                }
                Some(flight) => *flight = fresh,
                None => self.flights.push_back(fresh),
            }
        }
    }
}

/// Bits of an Exp-Golomb code of order 0.
fn golomb_bits(value: u64) -> usize {
    1 + 2 * (value + 1).ilog2() as usize
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
