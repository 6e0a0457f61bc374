//! Acknowledgement by ranges: which packets arrived, all that are in flight covered.

use crate::bits::{BitError, BitReader, BitWriter};
use crate::limits;
use crate::tick::widen;
use smallvec::SmallVec;

type Ranges = SmallVec<[(u64, u64); limits::ACK_RANGES]>;

/// What [`Received::insert`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Not seen before.
    New,
    /// Seen before, or so old that it no longer matters.
    Known,
}

/// The packet numbers that arrived, as ranges; kept by the receiver of a stream.
///
/// The sender tells in every packet which is the oldest one it has not yet decided about; all older ones are forgotten, so the
/// ranges stay few and cover everything that is in flight.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Ascending, inclusive, never touching.
    ranges: Ranges,
    floor: u64,
}

impl Received {
    /// Nothing has arrived; numbers start at `first`.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self { ranges: Ranges::new(), floor: first }
    }

    /// The newest number that arrived.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.ranges.last().map(|r| r.1)
    }

    /// A recent number to widen narrow ones against.
    #[must_use]
    pub fn reference(&self) -> u64 {
        self.newest().unwrap_or(self.floor)
    }

    /// Would [`insert`](Self::insert) find it new?
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        let full = self.ranges.len() == limits::ACK_RANGES;
        let no_room = full && number + 1 < self.ranges[0].0;
        number >= self.floor && !no_room && !self.ranges.iter().any(|r| r.0 <= number && number <= r.1)
    }

    /// Notes that `number` arrived. When more gaps are open than [`limits::ACK_RANGES`], the oldest range is forgotten: its
    /// packets then count as lost and are sent again, which is harmless.
    pub fn insert(&mut self, number: u64) -> Receipt {
        if !self.is_new(number) {
            return Receipt::Known;
        }
        let at = self.ranges.iter().position(|r| r.0 > number).unwrap_or(self.ranges.len());
        let joins_left = at > 0 && self.ranges[at - 1].1 + 1 == number;
        let joins_right = at < self.ranges.len() && self.ranges[at].0 == number + 1;
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = number,
            (false, true) => self.ranges[at].0 = number,
            (false, false) => self.insert_range(at, number),
        }
        Receipt::New
    }

    fn insert_range(&mut self, at: usize, number: u64) {
        if self.ranges.len() < limits::ACK_RANGES {
            self.ranges.insert(at, (number, number));
        } else {
            self.floor = self.floor.max(self.ranges[0].1 + 1);
            self.ranges.remove(0);
            self.ranges.insert(at - 1, (number, number));
        }
    }

    /// The sender has decided about everything below `number`: nothing older needs an acknowledgement.
    pub fn forget_below(&mut self, number: u64) {
        self.floor = self.floor.max(number);
        self.ranges.retain(|r| r.1 >= number);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(number);
        }
    }

    /// The first number from the sender's oldest undecided one on that has not arrived.
    #[must_use]
    pub fn first_missing(&self) -> u64 {
        match self.ranges.first() {
            Some(r) if r.0 <= self.floor => r.1 + 1,
            _ => self.floor,
        }
    }

    /// Writes the ranges, newest first: the newest number (16 bits), its range's length − 1 (Exp-Golomb 3), then for each older
    /// range a 1 bit, the gap − 1 (Exp-Golomb 2) and the length − 1 (Exp-Golomb 3); a 0 bit ends. Must not be empty.
    pub fn write(&self, w: &mut BitWriter) {
        let mut below = None;
        for &(from, to) in self.ranges.iter().rev() {
            match below {
                None => w.put(to & 0xffff, 16),
                Some(edge) => {
                    w.flag(true);
                    let gap: u64 = edge - to - 1;
                    w.golomb(gap - 1, 2);
                }
            }
            w.golomb(to - from, 3);
            below = Some(from);
        }
        w.flag(false);
    }

    /// Nothing to acknowledge?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// The acknowledged ranges that came in a packet, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckRanges {
    ranges: Ranges,
}

impl AckRanges {
    /// Reads what [`Received::write`] wrote. `reference` is a packet number that was sent recently.
    ///
    /// # Errors
    /// [`BitError::Truncated`]; [`BitError::OutOfRange`] for more than [`limits::ACK_RANGES`] ranges or numbers below zero.
    pub fn read(r: &mut BitReader<'_>, reference: u64) -> Result<Self, BitError> {
        let mut ranges = Ranges::new();
        let mut to = widen(reference, r.get(16)? as u16);
        loop {
            if ranges.len() == limits::ACK_RANGES {
                return Err(BitError::OutOfRange);
            }
            let from = to.checked_sub(r.golomb(3)?).ok_or(BitError::OutOfRange)?;
            ranges.push((from, to));
            if !r.flag()? {
                return Ok(Self { ranges });
            }
            let gap = r.golomb(2)?.checked_add(2).ok_or(BitError::OutOfRange)?;
            to = from.checked_sub(gap).ok_or(BitError::OutOfRange)?;
        }
    }

    /// The newest acknowledged number.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        self.ranges.first().map(|r| r.1)
    }

    /// Is `number` among them?
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        self.ranges.iter().any(|r| r.0 <= number && number <= r.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_say_what_arrived(numbers in prop::collection::vec(65_400u64..65_700, 1..200), floor in 65_400u64..65_500) {
            let (mut got, mut truth, mut counted) = (Received::new(65_400), BTreeSet::new(), BTreeSet::new());
            for n in &numbers {
                // one that found no room counts as lost, and may come again
                if got.insert(*n) == Receipt::New {
                    prop_assert!(counted.insert(*n), "{n} counted twice");
                }
                truth.insert(*n);
            }
            got.forget_below(floor);
            if got.is_empty() { return Ok(()); }
            let mut w = BitWriter::new();
            got.write(&mut w);
            let bytes = w.to_bytes();
            let read = AckRanges::read(&mut BitReader::new(&bytes), 65_600).unwrap();
            for n in 65_300..65_800 {
                if read.contains(n) { prop_assert!(truth.contains(&n) && n >= floor); }
            }
            prop_assert_eq!(read.newest(), truth.last().copied());
            for cut in 0..bytes.len().saturating_sub(1) {
                prop_assert!(AckRanges::read(&mut BitReader::new(&bytes[..cut]), 65_600).is_err());
            }
        }

        #[test]
        fn few_gaps_lose_nothing(lost in prop::collection::btree_set(0u64..300, 0..20)) {
            let mut got = Received::new(0);
            for n in (0..300).filter(|n| !lost.contains(n)) { got.insert(n); }
            let mut w = BitWriter::new();
            got.write(&mut w);
            let read = AckRanges::read(&mut BitReader::new(&w.to_bytes()), 299).unwrap();
            for n in 0..300 { prop_assert_eq!(read.contains(n), !lost.contains(&n)); }
            prop_assert_eq!(got.first_missing(), lost.first().copied().unwrap_or(300));
        }
    }
}
