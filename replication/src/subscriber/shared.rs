//! What of the ring's past a peer shares with the publisher: beyond the values at the baseline, guesses are made from what changed in
//! the baseline's send, and from values of before it.

use tidelock_netcore::limits::RING;
use tidelock_netcore::tick::Tick;

/// See the [module](self).
pub(super) struct Shared {
    /// Who is told in lists is never asked: nothing is kept of it.
    kept: bool,
    columns: usize,
    /// The send tick of each turn of the ring. Empty until there is something to note.
    ring: Vec<Tick>,
    /// By turn, bits of blocks: the peer got something else in this send than what changed in it; and then by component: once the base
    /// had come here, the peer did not hold all that was in force.
    bits: Vec<u64>,
    /// So many words have a bit for every block.
    words: usize,
    /// By turn, up to [`FEW`] of the blocks that were not settled in a component that is guessed from its motion: which of its rows.
    few: Vec<Unsettled>,
    /// By turn, how many there are.
    count: Vec<u8>,
    /// Nothing is shared from before.
    first: Tick,
    /// By block: nor of it from before, since the peer was told something anew.
    begun: Vec<Tick>,
    /// The newest of them.
    last_begun: Tick,
    /// Blocks of which it will be, from the next send on.
    beginning: Vec<u32>,
}

/// So many are told apart row by row.
const FEW: usize = 32;

#[derive(Clone, Copy, Default)]
struct Unsettled {
    component: u8,
    block: u32,
    rows: u64,
}

impl Shared {
    pub(super) fn new(now: Tick, kept: bool, columns: usize) -> Self {
        let (ring, bits, few, count) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (begun, last_begun, beginning) = (Vec::new(), Tick::ZERO, Vec::new());
        Self { kept, columns, ring, bits, words: 0, few, count, first: now, begun, last_begun, beginning }
    }

    pub(super) fn grow(&mut self, blocks: usize) {
        if !self.kept {
            return;
        }
        self.begun.resize(blocks, Tick::ZERO);
        let (from, to) = (self.words, blocks.div_ceil(64));
        if from != to && !self.bits.is_empty() {
            let mut bits = vec![0; RING * self.tables() * to];
            bits.chunks_mut(to).zip(self.bits.chunks(from)).for_each(|(new, old)| new[..from].copy_from_slice(old));
            self.bits = bits;
        }
        self.words = to;
    }

    fn tables(&self) -> usize {
        1 + self.columns
    }

    /// Something is sent in the send `now`.
    pub(super) fn note_send(&mut self, now: Tick) {
        for block in self.beginning.drain(..) {
            self.begun[block as usize] = now;
            self.last_begun = now;
        }
    }

    /// From the next send on the peer is told something of a block that it was not told before.
    pub(super) fn begin(&mut self, block: usize) {
        if self.kept && self.beginning.last() != Some(&(block as u32)) {
            self.beginning.push(block as u32);
        }
    }

    /// In this send the peer got, or may get, other changes of a block than there were.
    pub(super) fn mark_inexact(&mut self, block: usize, tick: Tick) {
        self.mark(0, block, tick);
    }

    /// The peer does not hold the values of these rows of a block's component that were in force in a send that the base has reached.
    /// `motions`: components of which it will hardly be asked more than whether there are any, are not among these.
    pub(super) fn mark_unsettled(&mut self, c: usize, block: usize, rows: u64, tick: Tick, motions: u64) {
        let turn = tick.0 as usize % RING;
        if self.mark(1 + c, block, tick)
            && motions >> c & 1 != 0
            && let Some(count) = self.count.get_mut(turn).filter(|count| usize::from(**count) < FEW)
        {
            self.few[turn * FEW + usize::from(*count)] = Unsettled { component: c as u8, block: block as u32, rows };
            *count += 1;
        }
    }

    /// `false`: nobody will ask.
    fn mark(&mut self, table: usize, block: usize, tick: Tick) -> bool {
        if !self.kept {
            return false;
        }
        if self.ring.is_empty() {
            // all at once: what is noted late must not cost an allocation then
            self.ring = vec![Tick::ZERO; RING];
            self.bits = vec![0; RING * self.tables() * self.words];
            self.few = vec![Unsettled::default(); RING * FEW];
            self.count = vec![0; RING];
        }
        let turn = tick.0 as usize % RING;
        if self.ring[turn] > tick {
            return false;
        }
        if self.ring[turn] < tick {
            self.ring[turn] = tick;
            let all = self.tables() * self.words;
            self.bits[turn * all..][..all].fill(0);
            self.count[turn] = 0;
        }
        let at = (turn * self.tables() + table) * self.words + block / 64;
        self.bits[at] |= 1 << (block % 64);
        true
    }

    #[inline]
    pub(super) fn is_exact(&self, block: usize, tick: Tick) -> bool {
        self.first <= tick && !self.is_marked(0, block, tick)
    }

    /// The rows of a block's component of which the peer may not hold the value that was in force at `tick`.
    #[inline]
    pub(super) fn unsettled(&self, c: usize, block: usize, tick: Tick) -> u64 {
        if self.first.max(self.begun[block]) > tick {
            return u64::MAX;
        }
        if !self.is_marked(1 + c, block, tick) {
            return 0;
        }
        let turn = tick.0 as usize % RING;
        let few = &self.few[turn * FEW..][..self.count[turn].into()];
        few.iter().find(|few| usize::from(few.component) == c && few.block as usize == block).map_or(u64::MAX, |few| few.rows)
    }

    /// Is anything shared of that send?
    pub(super) fn begins_by(&self, tick: Tick) -> bool {
        self.first <= tick
    }

    /// Bits of blocks that are not exact at `base`; as many words as there is anything to say in.
    pub(super) fn inexact(&self, base: Tick) -> &[u64] {
        self.marks(0, base)
    }

    /// Is every block exact at `base`?
    pub(super) fn is_exact_everywhere(&self, base: Tick) -> bool {
        self.first <= base && self.marks(0, base).iter().all(|word| *word == 0)
    }

    /// Are these components settled in every block at `older`?
    pub(super) fn is_settled_in(&self, components: u64, older: Tick) -> bool {
        let settled = |c: u32| self.marks(1 + c as usize, older).iter().all(|word| *word == 0);
        self.first.max(self.last_begun) <= older && crate::block::bits(components).all(settled)
    }

    #[inline]
    fn is_marked(&self, table: usize, block: usize, tick: Tick) -> bool {
        self.marks(table, tick).get(block / 64).is_some_and(|word| word >> (block % 64) & 1 != 0)
    }

    #[inline]
    fn marks(&self, table: usize, tick: Tick) -> &[u64] {
        let turn = tick.0 as usize % RING;
        if self.ring.get(turn) != Some(&tick) {
            return &[];
        }
        &self.bits[(turn * self.tables() + table) * self.words..][..self.words]
    }
}
