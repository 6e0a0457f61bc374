//! One history: the current quantised columns by row, and per send tick a log of the old values of the rows that changed.
//!
//! The value of a row *in force at tick B* is the oldest logged value among the ticks after B, or the current one if the row did
//! not change since. So a baseline is one tick for all rows, a row at rest costs nothing, and the past is found in as many steps
//! as it is ticks old.

mod mark;

pub(crate) use mark::Mark;

use crate::room::{Room, make_room};
use mark::Packed;
use tidelock_netcore::limits::RING;
use tidelock_netcore::tick::Tick;

/// Rows per block: one bit each in a `u64`.
pub(crate) const BLOCK: usize = 64;

const NONE: u32 = u32::MAX;

/// Copies a value. Most have a few words, and a call for each costs more than they do.
#[inline]
pub(crate) fn copy_words(into: &mut [u32], from: &[u32]) {
    match (into, from) {
        ([a], [x]) => *a = *x,
        ([a, b], [x, y]) => (*a, *b) = (*x, *y),
        ([a, b, c], [x, y, z]) => (*a, *b, *c) = (*x, *y, *z),
        ([a, b, c, d], [x, y, z, v]) => (*a, *b, *c, *d) = (*x, *y, *z, *v),
        (into, from) => into.copy_from_slice(from),
    }
}

#[inline]
fn push_words(into: &mut Vec<u32>, from: &[u32]) {
    match *from {
        [x] => into.push(x),
        [x, y, z] => into.extend([x, y, z]),
        [x, y, z, v] => into.extend([x, y, z, v]),
        _ => into.extend_from_slice(from),
    }
}

/// Old values of some rows of one block and component, in ascending row order.
#[derive(Clone, Copy)]
struct Segment {
    mask: u64,
    /// Where in the slot's log, in words.
    offset: u32,
    /// The next segment of the same block and component.
    next: u32,
    mark: Packed,
}

#[derive(Default)]
struct Slot {
    tick: Tick,
    /// Bit c: component c changed somewhere.
    any: u64,
    /// By component, then block.
    changed: Vec<u64>,
    /// First segment, by component, then block; meaningful where `changed` is not zero.
    head: Vec<u32>,
    segments: Vec<Segment>,
    /// Old values, one after the other.
    log: Vec<u32>,
}

/// A sample of a row, as [`History::bracket`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample<'a> {
    /// When it was sampled; `None`: before anything the ring remembers.
    pub(crate) tick: Option<Tick>,
    /// See [`Mark::rested`].
    pub(crate) rested: bool,
    pub(crate) words: &'a [u32],
}

/// A sample of a row, as [`History::samples`] gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a> {
    /// The send tick in which it came.
    pub(crate) send: Tick,
    /// What is known of it; `None`: it came before anything the ring remembers.
    pub(crate) mark: Option<Mark>,
    pub(crate) words: &'a [u32],
}

/// The columns of everything that one stream carries. See the module's words.
pub(crate) struct History {
    strides: Vec<usize>,
    now: Tick,
    blocks: usize,
    columns: Vec<Vec<u32>>,
    slots: Vec<Slot>,
    /// What logs and segments of a tick take, and what those of the last one took.
    room: [Room; 2],
    closed: [usize; 2],
}

impl History {
    /// Empty columns of `strides[c]` words a row, with `now` as the open tick.
    pub(crate) fn new(strides: Vec<usize>, now: Tick) -> Self {
        let slots = (0..RING).map(|_| Slot::default()).collect();
        let columns = vec![Vec::new(); strides.len()];
        let mut history = Self { strides, now, blocks: 0, columns, slots, room: Default::default(), closed: [0; 2] };
        history.slot_mut(now).tick = now;
        history
    }

    pub(crate) fn components(&self) -> usize {
        self.strides.len()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Words of old values that are remembered.
    #[cfg(test)]
    pub(crate) fn logged_words(&self) -> usize {
        self.slots.iter().map(|slot| slot.log.len()).sum()
    }

    /// The open tick: what is set now is a change of this tick.
    pub(crate) fn now(&self) -> Tick {
        self.now
    }

    /// Makes room for `blocks` blocks of rows.
    pub(crate) fn grow(&mut self, blocks: usize) {
        if blocks <= self.blocks {
            return;
        }
        // by an eighth at least: every growth moves all that there is
        let to = blocks.max(self.blocks + self.blocks / 8);
        for (column, stride) in self.columns.iter_mut().zip(&self.strides) {
            let words = to * BLOCK * stride;
            make_room(column, words);
            column.resize(words, 0);
        }
        // a tick in which nothing has changed yet has no tables
        for slot in self.slots.iter_mut().filter(|s| !s.changed.is_empty()) {
            slot.changed = relaid(&slot.changed, self.blocks, to, self.strides.len());
            slot.head = relaid(&slot.head, self.blocks, to, self.strides.len());
        }
        self.blocks = to;
    }

    /// Closes the open tick and opens `tick`. Ticks in between had no change.
    pub(crate) fn advance_to(&mut self, tick: Tick) {
        if tick <= self.now {
            return;
        }
        let closed = &self.slots[self.now.0 as usize % RING];
        let before = std::mem::replace(&mut self.closed, [closed.log.len(), closed.segments.len()]);
        let usual = [before[0].min(self.closed[0]), before[1].min(self.closed[1])];
        self.room.iter_mut().zip(self.closed).for_each(|(room, used)| room.note(used));
        let first = Tick(self.now.0 + 1).max(tick.minus(RING as u64 - 1));
        for t in first.0..=tick.0 {
            let slot = &mut self.slots[t as usize % RING];
            slot.tick = Tick(t);
            if slot.any != 0 {
                slot.any = 0;
                slot.changed.fill(0);
                slot.segments.clear();
                slot.log.clear();
            }
            refit(&mut slot.log, &self.room[0], usual[0]);
            refit(&mut slot.segments, &self.room[1], usual[1]);
        }
        self.now = tick;
    }

    /// The current value.
    #[inline]
    pub(crate) fn value(&self, c: usize, row: usize) -> &[u32] {
        let stride = self.strides[c];
        &self.columns[c][row * stride..(row + 1) * stride]
    }

    /// Is the ring long enough to tell what was in force at `tick`?
    pub(crate) fn remembers(&self, tick: Tick) -> bool {
        tick <= self.now && self.now.since(tick) < RING as u64
    }

    /// The value in force at the end of `tick`, which the ring must remember.
    #[inline]
    pub(crate) fn value_at(&self, c: usize, row: usize, tick: Tick) -> &[u32] {
        debug_assert!(self.remembers(tick));
        for t in tick.0 + 1..=self.now.0 {
            if self.has(c, row, Tick(t)) {
                let (_, at) = self.logged(c, row, Tick(t));
                return &self.slot(Tick(t)).log[at..at + self.strides[c]];
            }
        }
        self.value(c, row)
    }

    /// The values in force at the end of `tick` of some rows of a block, each put where the row has its place among 64.
    pub(crate) fn gather(&self, c: usize, block: usize, rows: u64, tick: Tick, into: &mut Vec<u32>) {
        let stride = self.strides[c];
        if into.len() < BLOCK * stride {
            into.resize(BLOCK * stride, 0);
        }
        let into = &mut into[..BLOCK * stride];
        match stride {
            1 => self.gather_words(c, block, rows, tick, into.as_chunks_mut::<1>().0),
            3 => self.gather_words(c, block, rows, tick, into.as_chunks_mut::<3>().0),
            4 => self.gather_words(c, block, rows, tick, into.as_chunks_mut::<4>().0),
            _ => self.gather_slices(c, block, rows, tick, into),
        }
    }

    /// The present values of a block, if they are those in force at the end of `tick` for some of its rows.
    #[inline]
    pub(crate) fn still(&self, c: usize, block: usize, rows: u64, tick: Tick) -> Option<&[u32]> {
        let moved = (tick.0 + 1..=self.now.0).any(|t| self.changed_in(c, block, Tick(t)) & rows != 0);
        (!moved).then(|| self.block_values(c, block))
    }

    /// The segments of the ticks after `tick` that hold older values of some rows of a block, the oldest first, each with those of
    /// its rows for which it is the first; says which rows have none.
    #[inline]
    fn older(&self, c: usize, block: usize, rows: u64, tick: Tick, mut take: impl FnMut(&Segment, &[u32], u64)) -> u64 {
        let (mut left, at) = (rows, c * self.blocks + block);
        for slot in (tick.0 + 1..=self.now.0).map(|t| self.slot(Tick(t))) {
            if slot.any >> c & 1 == 0 || slot.changed[at] & left == 0 {
                continue;
            }
            let hit = slot.changed[at] & left;
            left &= !hit;
            let mut next = slot.head[at];
            while next != NONE {
                let segment = &slot.segments[next as usize];
                take(segment, &slot.log[segment.offset as usize..], hit & segment.mask);
                next = segment.next;
            }
        }
        left
    }

    /// As [`gather`](Self::gather), for values of a few words.
    fn gather_words<const N: usize>(&self, c: usize, block: usize, rows: u64, tick: Tick, into: &mut [[u32; N]]) {
        let left = self.older(c, block, rows, tick, |segment, log, hit| {
            let (log, _) = log.as_chunks::<N>();
            if hit == u64::MAX {
                return into.copy_from_slice(&log[..BLOCK]);
            }
            if hit == segment.mask {
                crate::block::bits(hit).zip(log).for_each(|(bit, words)| into[bit as usize] = *words);
                return;
            }
            let all = crate::block::bits(segment.mask).zip(log);
            all.filter(|(bit, _)| hit >> bit & 1 != 0).for_each(|(bit, words)| into[bit as usize] = *words);
        });
        let (now, _) = self.block_values(c, block).as_chunks::<N>();
        if left == u64::MAX {
            return into.copy_from_slice(now);
        }
        crate::block::bits(left).for_each(|bit| into[bit as usize] = now[bit as usize]);
    }

    fn gather_slices(&self, c: usize, block: usize, rows: u64, tick: Tick, into: &mut [u32]) {
        let stride = self.strides[c];
        let left = self.older(c, block, rows, tick, |segment, log, hit| {
            for (rank, bit) in crate::block::bits(segment.mask).enumerate().filter(|(_, bit)| hit >> bit & 1 != 0) {
                into[bit as usize * stride..][..stride].copy_from_slice(&log[rank * stride..][..stride]);
            }
        });
        let now = self.block_values(c, block);
        for at in crate::block::bits(left).map(|bit| bit as usize * stride) {
            into[at..at + stride].copy_from_slice(&now[at..at + stride]);
        }
    }

    /// The present values of the rows of a block.
    #[inline]
    pub(crate) fn block_values(&self, c: usize, block: usize) -> &[u32] {
        let words = BLOCK * self.strides[c];
        &self.columns[c][block * words..][..words]
    }

    /// Sets a value in the open tick if it differs; says whether it did.
    pub(crate) fn set(&mut self, c: usize, row: usize, words: &[u32], mark: Mark) -> bool {
        if self.value(c, row).iter().zip(words).all(|(old, new)| old == new) {
            return false;
        }
        self.record(c, row, words, mark);
        true
    }

    /// Sets a value in the open tick and counts it as changed even if it is the same.
    pub(crate) fn record(&mut self, c: usize, row: usize, words: &[u32], mark: Mark) {
        let stride = self.strides[c];
        let (block, bit) = (row / BLOCK, 1u64 << (row % BLOCK));
        let at = c * self.blocks + block;
        let (columns, blocks) = (self.strides.len(), self.blocks);
        let current = &mut self.columns[c][row * stride..(row + 1) * stride];
        let slot = &mut self.slots[self.now.0 as usize % RING];
        slot.fit(columns, blocks);
        if slot.changed[at] & bit != 0 {
            copy_words(current, words);
            return;
        }
        slot.push(at, bit, c, current, mark);
        copy_words(current, words);
    }

    /// Sets values of some `rows` of a block in the open tick, in which none of them has changed yet; says which it changed. `words`:
    /// the values of the rows of `all`, which they are among, in order. `renew`: what is the same counts as changed too.
    pub(crate) fn put_rows(
        &mut self,
        c: usize,
        block: usize,
        (rows, all): (u64, u64),
        words: &[u32],
        mark: Mark,
        renew: bool,
    ) -> u64 {
        let (stride, at) = (self.strides[c], c * self.blocks + block);
        let (columns, blocks) = (self.strides.len(), self.blocks);
        let slot = &mut self.slots[self.now.0 as usize % RING];
        slot.fit(columns, blocks);
        debug_assert_eq!(slot.changed[at] & rows, 0);
        let offset = slot.log.len() as u32;
        let values = &mut self.columns[c][block * BLOCK * stride..][..BLOCK * stride];
        let masks = (rows, all);
        let changed = match stride {
            1 => put_words::<1>(values, words, masks, renew, &mut slot.log),
            3 => put_words::<3>(values, words, masks, renew, &mut slot.log),
            4 => put_words::<4>(values, words, masks, renew, &mut slot.log),
            _ => put_slices(stride, values, words, masks, renew, &mut slot.log),
        };
        if changed != 0 {
            let next = if slot.changed[at] == 0 { NONE } else { slot.head[at] };
            slot.changed[at] |= changed;
            slot.any |= 1 << c;
            slot.head[at] = slot.segments.len() as u32;
            slot.segments.push(Segment { mask: changed, offset, next, mark: mark.into() });
        }
        changed
    }

    /// The rows of a block whose component changed in `tick`.
    #[inline]
    pub(crate) fn changed_in(&self, c: usize, block: usize, tick: Tick) -> u64 {
        self.changed(c, tick).get(block).copied().unwrap_or(0)
    }

    /// Puts a value that belongs to `tick` where it belongs, though later ones may be there already. Says whether it is now the
    /// newest value of the row.
    pub(crate) fn insert(&mut self, c: usize, row: usize, words: &[u32], tick: Tick, mark: Mark) -> bool {
        debug_assert!(self.remembers(tick));
        if tick == self.now {
            self.record(c, row, words, mark);
            return true;
        }
        if self.has(c, row, tick) {
            return false;
        }
        let (block, bit) = (row / BLOCK, 1u64 << (row % BLOCK));
        let at = c * self.blocks + block;
        let stride = self.strides[c];
        let later = (tick.0 + 1..=self.now.0).map(Tick).find(|t| self.has(c, row, *t));
        let Some(later) = later else {
            let slot = &mut self.slots[tick.0 as usize % RING];
            slot.fit(self.strides.len(), self.blocks);
            let current = &mut self.columns[c][row * stride..(row + 1) * stride];
            slot.push(at, bit, c, current, mark);
            current.copy_from_slice(words);
            return true;
        };
        // what the later change replaced is this value; what this one replaces is what the later change had logged
        let (_, offset) = self.logged(c, row, later);
        let mut old = smallvec::SmallVec::<[u32; 16]>::new();
        let entry = &mut self.slots[later.0 as usize % RING].log[offset..offset + stride];
        old.extend_from_slice(entry);
        entry.copy_from_slice(words);
        let slot = &mut self.slots[tick.0 as usize % RING];
        slot.fit(self.strides.len(), self.blocks);
        slot.push(at, bit, c, &old, mark);
        false
    }

    /// Did the row change in `tick`?
    #[inline]
    pub(crate) fn has(&self, c: usize, row: usize, tick: Tick) -> bool {
        let slot = self.slot(tick);
        slot.any >> c & 1 != 0 && slot.tick == tick && slot.changed[c * self.blocks + row / BLOCK] >> (row % BLOCK) & 1 != 0
    }

    /// The rows of component `c` that changed in `tick`, by block; empty if none did or the ring has forgotten.
    #[inline]
    pub(crate) fn changed(&self, c: usize, tick: Tick) -> &[u64] {
        let slot = self.slot(tick);
        if slot.tick != tick || slot.any >> c & 1 == 0 {
            return &[];
        }
        &slot.changed[c * self.blocks..(c + 1) * self.blocks]
    }

    /// Which components changed in `tick`, as bits.
    #[inline]
    pub(crate) fn changed_components(&self, tick: Tick) -> u64 {
        let slot = self.slot(tick);
        if slot.tick == tick { slot.any } else { 0 }
    }

    /// The newest sample taken at or before `at`, and the oldest one after it.
    pub(crate) fn bracket(&self, c: usize, row: usize, at: Tick) -> (Option<Sample<'_>>, Option<Sample<'_>>) {
        self.bracket_since(c, row, at, Tick::ZERO)
    }

    /// The same, for who knows that nothing sampled after `at` came before the send tick `from`, and does not ask when a sample from
    /// before it was taken.
    pub(crate) fn bracket_since(&self, c: usize, row: usize, at: Tick, from: Tick) -> (Option<Sample<'_>>, Option<Sample<'_>>) {
        let mut words = self.value(c, row);
        let mut after = None;
        for t in (self.now.0.saturating_sub(RING as u64 - 1).max(from.0)..=self.now.0).rev().map(Tick) {
            if !self.has(c, row, t) {
                continue;
            }
            let (segment, offset) = self.logged(c, row, t);
            let Mark { sample, first, rested } = segment.mark.into();
            if sample <= at {
                return (Some(Sample { tick: Some(sample), rested, words }), after);
            }
            after = Some(Sample { tick: Some(sample), rested, words });
            if first {
                return (None, after);
            }
            words = &self.slot(t).log[offset..offset + self.strides[c]];
        }
        (Some(Sample { tick: None, rested: true, words }), after)
    }

    /// The samples of a row that came in send ticks up to `until`, the newest first; last, what was in force before the ring begins.
    pub(crate) fn samples(&self, c: usize, row: usize, until: Tick) -> impl Iterator<Item = Kept<'_>> {
        let oldest = self.now.0.saturating_sub(RING as u64 - 1);
        let mut words = Some(self.value(c, row));
        let changes = (oldest..=self.now.0).rev().map(Tick).filter(move |t| self.has(c, row, *t)).map(Some);
        changes.chain(std::iter::once(None)).filter_map(move |change| {
            let after = words?;
            let Some(send) = change else { return Some(Kept { send: Tick(oldest), mark: None, words: after }) };
            let (segment, offset) = self.logged(c, row, send);
            let mark = Mark::from(segment.mark);
            words = (!mark.first).then(|| &self.slot(send).log[offset..offset + self.strides[c]]);
            (send <= until).then_some(Kept { send, mark: Some(mark), words: after })
        })
    }

    /// The most session ticks between two samples, one after the other, of the last `count` that did not end a rest; 0 if there are
    /// no two.
    pub(crate) fn widest_gap(&self, c: usize, row: usize, count: usize) -> u64 {
        let (mut widest, mut later) = (0, None);
        let oldest = self.now.0.saturating_sub(RING as u64 - 1);
        let samples = (oldest..=self.now.0).rev().map(Tick).filter(|t| self.has(c, row, *t));
        for Mark { sample, first, rested } in samples.map(|t| Mark::from(self.logged(c, row, t).0.mark)).take(count) {
            if let Some(later) = later {
                widest = widest.max(Tick::since(later, sample));
            }
            if first || rested {
                break;
            }
            later = Some(sample);
        }
        widest
    }

    /// The newest send tick that the ring remembers in which the row changed.
    pub(crate) fn newest_change(&self, c: usize, row: usize) -> Option<Tick> {
        let oldest = self.now.0.saturating_sub(RING as u64 - 1);
        (oldest..=self.now.0).rev().map(Tick).find(|t| self.has(c, row, *t))
    }

    fn logged(&self, c: usize, row: usize, tick: Tick) -> (Segment, usize) {
        let slot = self.slot(tick);
        let bit = 1u64 << (row % BLOCK);
        let mut i = slot.head[c * self.blocks + row / BLOCK];
        loop {
            let segment = slot.segments[i as usize];
            if segment.mask & bit != 0 {
                let rank = (segment.mask & (bit - 1)).count_ones() as usize;
                return (segment, segment.offset as usize + rank * self.strides[c]);
            }
            i = segment.next;
        }
    }

    #[inline]
    fn slot(&self, tick: Tick) -> &Slot {
        &self.slots[tick.0 as usize % RING]
    }

    fn slot_mut(&mut self, tick: Tick) -> &mut Slot {
        &mut self.slots[tick.0 as usize % RING]
    }
}

impl Slot {
    /// Makes room for the tables of the first change.
    fn fit(&mut self, columns: usize, blocks: usize) {
        if self.changed.is_empty() {
            self.changed.resize(columns * blocks, 0);
            self.head.resize(columns * blocks, NONE);
        }
    }

    fn push(&mut self, at: usize, bit: u64, c: usize, old: &[u32], mark: Mark) {
        let offset = self.log.len() as u32;
        push_words(&mut self.log, old);
        let fresh = self.changed[at] == 0;
        self.changed[at] |= bit;
        self.any |= 1 << c;
        if !fresh {
            let head = &mut self.segments[self.head[at] as usize];
            // rows mostly come in order: the segment grows
            let follows = head.offset as usize + head.mask.count_ones() as usize * old.len() == offset as usize;
            if follows && head.mask < bit && head.mark == mark.into() {
                head.mask |= bit;
                return;
            }
        }
        let next = if fresh { NONE } else { self.head[at] };
        self.head[at] = self.segments.len() as u32;
        self.segments.push(Segment { mask: bit, offset, next, mark: mark.into() });
    }
}

/// Puts values of some `rows` of a block over the present ones, which go to the log; `words`: the values of the rows of `all`. Says
/// which it changed. `renew`: what is the same counts too.
fn put_words<const N: usize>(values: &mut [u32], words: &[u32], (rows, all): (u64, u64), renew: bool, log: &mut Vec<u32>) -> u64 {
    let Some(values) = values.as_chunks_mut::<N>().0.first_chunk_mut::<BLOCK>() else { return 0 };
    let (mut changed, mut left) = (0, all);
    for new in words.as_chunks::<N>().0 {
        let bit = left & left.wrapping_neg();
        let current = &mut values[left.trailing_zeros() as usize % BLOCK];
        left ^= bit;
        // all words are looked at: most differ somewhere, and where is not foreseen
        let differs = current.iter().zip(new).fold(0, |any, (old, new)| any | old ^ new) != 0;
        if rows & bit != 0 && (differs || renew) {
            log.extend_from_slice(current);
            *current = *new;
            changed |= bit;
        }
    }
    changed
}

/// The same for values of any length.
fn put_slices(stride: usize, values: &mut [u32], words: &[u32], (rows, all): (u64, u64), renew: bool, log: &mut Vec<u32>) -> u64 {
    let mut changed = 0;
    for (i, bit) in crate::block::bits(all).enumerate().filter(|(_, bit)| rows >> bit & 1 != 0) {
        let (new, current) = (&words[i * stride..][..stride], &mut values[bit as usize * stride..][..stride]);
        if renew || current != new {
            log.extend_from_slice(current);
            current.copy_from_slice(new);
            changed |= 1 << bit;
        }
    }
    changed
}

/// Gives an empty list of a tick the room that the ticks before have taken, and no more than those of lately.
fn refit<T>(list: &mut Vec<T>, room: &Room, usual: usize) {
    if let Some(worth) = room.excess(list.capacity()) {
        list.shrink_to(worth);
    } else if list.capacity() < usual {
        list.reserve_exact(usual + usual / 8);
    }
}

/// Moves a table of `rows` × `from` to `rows` × `to`.
fn relaid<T: Copy + Default>(old: &[T], from: usize, to: usize, rows: usize) -> Vec<T> {
    let mut new = vec![T::default(); rows * to];
    for (into, row) in new.chunks_mut(to).zip(old.chunks(from.max(1))) {
        into[..from].copy_from_slice(row);
    }
    new
}

#[cfg(test)]
mod tests;
