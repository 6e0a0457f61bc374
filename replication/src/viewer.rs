//! A guest as one who sees: from where, what, and what it is told of it.

use crate::history::BLOCK;
use crate::peer_id::PeerId;
use crate::relevance::{Detail, Room, Unseen, Viewpoint};
use crate::scope::{Rooms, join, leave};

/// A guest, as one who sees.
pub(crate) struct Viewer {
    pub(crate) who: Who,
    pub(crate) viewpoint: Viewpoint,
    pub(crate) tier: Option<usize>,
    /// Sorted by slot.
    pub(crate) seen: Vec<Seen>,
    /// By 64 slots: bits of those.
    pub(crate) seen_bits: Vec<u64>,
    /// Number of the first change that it has not looked at.
    pub(crate) read: u64,
    /// Of the scope, when everything was looked at.
    pub(crate) version: u64,
    /// From where everything was looked at.
    pub(crate) eye: Option<[f32; 3]>,
    /// Square of the distance below which what appears is seen at once. Negative: nothing is.
    pub(crate) horizon: f64,
    /// How many came since everything was looked at.
    pub(crate) extra: usize,
    /// Everything must be looked at.
    pub(crate) stale: bool,
}

/// Who sees, apart from what it sees.
pub(crate) struct Who {
    pub(crate) peer: PeerId,
    pub(crate) rooms: Rooms,
}

/// What a viewer knows of what it sees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) slot: u32,
    pub(crate) born: u32,
    pub(crate) hidden: u64,
    pub(crate) period: u8,
    /// Importance, in half octaves.
    pub(crate) step: i8,
}

/// What a look has changed. Parents come before their children.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) shown: Vec<Shown>,
    pub(crate) hidden: Vec<(u32, Unseen)>,
    pub(crate) changed: Vec<Shown>,
}

impl Changes {
    pub(crate) fn clear(&mut self) {
        self.shown.clear();
        self.hidden.clear();
        self.changed.clear();
    }
}

/// How a guest sees an entity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) slot: u32,
    /// Bit c: component c is not for this guest.
    pub(crate) hidden: u64,
    /// Every how many sends it counts.
    pub(crate) period: u8,
    /// Importance; nearer is larger. Positive.
    pub(crate) weight: f32,
}

impl Seen {
    pub(crate) fn shown(self) -> Shown {
        let Self { slot, hidden, period, step, .. } = self;
        Shown { slot, hidden, period, weight: (f32::from(step) / 2.0).exp2() }
    }
}

impl Viewer {
    pub(crate) fn new(peer: PeerId) -> Self {
        Self {
            who: Who { peer, rooms: Rooms::new() },
            viewpoint: Viewpoint::Own,
            tier: None,
            seen: Vec::new(),
            seen_bits: Vec::new(),
            read: 0,
            version: 0,
            eye: None,
            horizon: -1.0,
            extra: 0,
            stale: true,
        }
    }

    /// Does it see the slot, after its last look? Of an entity that ended since, it still says so, even when another one is in
    /// the slot by now: what is sent must be decided after the look that follows the refresh.
    #[cfg(test)]
    pub(crate) fn sees(&self, slot: u32) -> bool {
        self.find(slot).is_some()
    }

    pub(crate) fn find(&self, slot: u32) -> Option<&Seen> {
        self.seen.binary_search_by_key(&slot, |s| s.slot).ok().map(|at| &self.seen[at])
    }

    /// What it sees, by slot.
    #[cfg(test)]
    pub(crate) fn seen(&self) -> impl ExactSizeIterator<Item = Shown> + '_ {
        self.seen.iter().map(|s| s.shown())
    }

    /// Notes as bits what it sees.
    pub(crate) fn chart(&mut self) {
        let words = self.seen.last().map_or(0, |last| last.slot as usize / BLOCK + 1);
        self.seen_bits.clear();
        self.seen_bits.resize(words, 0);
        for seen in &self.seen {
            self.seen_bits[seen.slot as usize / BLOCK] |= 1 << (seen.slot as usize % BLOCK);
        }
    }

    pub(crate) fn set_viewpoint(&mut self, viewpoint: Viewpoint) {
        self.viewpoint = viewpoint;
    }

    /// How many of the nearest it sees, instead of what the settings say.
    pub(crate) fn set_tier(&mut self, count: Option<usize>) {
        self.stale |= self.tier != count;
        self.tier = count;
    }

    pub(crate) fn join_room(&mut self, room: Room) {
        self.stale |= join(&mut self.who.rooms, room);
    }

    /// A number that is close for viewers that are close: the bits of the cell that it looks from, one axis beside the other
    /// (Morton order). Cells beyond 2^21 of them away count as the last ones.
    pub(crate) fn neighbourhood(&self, cell: f32) -> u64 {
        const BITS: u32 = 21;
        let Some(eye) = self.eye else { return 0 };
        let axes = eye.map(|x| ((x / cell) as i64 + (1 << (BITS - 1))).clamp(0, (1 << BITS) - 1) as u64);
        (0..BITS)
            .fold(0, |code, bit| code | axes.iter().enumerate().fold(0, |c, (i, x)| c | (x >> bit & 1) << (bit * 3 + i as u32)))
    }

    pub(crate) fn is_in(&self, room: Room) -> bool {
        self.who.rooms.iter().any(|r| r.0 == room)
    }

    /// Leaves a room, if this was the last time that it had entered. Returns whether it was in.
    pub(crate) fn leave_room(&mut self, room: Room) -> bool {
        let left = leave(&mut self.who.rooms, room);
        self.stale |= left == Some(true);
        left.is_some()
    }
}

/// Every how many sends something at that distance counts.
pub(crate) fn period(detail: Option<Detail>, distance: f32) -> u8 {
    let Some(Detail { full, slowest }) = detail else { return 1 };
    if full.is_nan() || full <= 0.0 {
        return 1;
    }
    let (mut period, mut limit) = (1u8, full);
    while distance > limit && period < slowest {
        period = period.saturating_mul(2).min(slowest);
        limit *= 2.0;
    }
    period
}

/// Importance in half octaves: it halves at a distance of one `unit`. The distance may be infinite.
pub(crate) fn step(weight: f32, distance: f32, unit: f32) -> i8 {
    ((weight / (1.0 + (distance / unit).min(4096.0))).log2() * 2.0).round().clamp(-48.0, 48.0) as i8
}

/// Sorts by slot what is sorted up to `old`.
pub(crate) fn merge(seen: &mut [Seen], old: usize, new: &mut Vec<Seen>) {
    new.clear();
    new.extend_from_slice(&seen[old..]);
    new.sort_unstable_by_key(|s| s.slot);
    let (mut from, mut to) = (old, seen.len());
    while let Some(&last) = new.last() {
        to -= 1;
        if from > 0 && seen[from - 1].slot > last.slot {
            from -= 1;
            seen[to] = seen[from];
        } else {
            seen[to] = last;
            new.pop();
        }
    }
}
