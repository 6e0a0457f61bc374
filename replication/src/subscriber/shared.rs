//! What of the ring's past a peer shares with the publisher: beyond the values at the baseline, guesses are made from what changed in
//! the baseline's send, and from values of before it.

use tidelock_netcore::limits::RING;
use tidelock_netcore::tick::Tick;

/// By block, for one send tick.
#[derive(Clone, Default)]
struct Turn {
    tick: Tick,
    /// Bits of blocks: the peer got something else in this send than what changed in it.
    inexact: Vec<u64>,
    /// By component, bits of blocks: once the base had come here, the peer did not hold all that was in force.
    unsettled: Vec<Vec<u64>>,
}

/// See the [module](self).
pub(super) struct Shared {
    /// Who is told in lists is never asked: nothing is kept of it.
    kept: bool,
    ring: Vec<Turn>,
    /// Nothing is shared from before.
    first: Tick,
    /// By block: nor of it from before, since the peer was told something anew.
    begun: Vec<Tick>,
    /// The newest of them.
    last_begun: Tick,
    /// Blocks of which it will be, from the next send on.
    beginning: Vec<u32>,
}

impl Shared {
    pub(super) fn new(now: Tick, kept: bool) -> Self {
        Self { kept, ring: Vec::new(), first: now, begun: Vec::new(), last_begun: Tick::ZERO, beginning: Vec::new() }
    }

    pub(super) fn grow(&mut self, blocks: usize) {
        if self.kept {
            self.begun.resize(blocks, Tick::ZERO);
        }
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
        if self.kept {
            set(&mut self.turn(tick).inexact, block);
        }
    }

    /// The peer does not hold all values of a block's component that were in force in a send that the base has reached.
    pub(super) fn mark_unsettled(&mut self, c: usize, block: usize, tick: Tick) {
        if !self.kept {
            return;
        }
        let unsettled = &mut self.turn(tick).unsettled;
        if unsettled.len() <= c {
            unsettled.resize_with(c + 1, Vec::new);
        }
        set(&mut unsettled[c], block);
    }

    fn turn(&mut self, tick: Tick) -> &mut Turn {
        if self.ring.is_empty() {
            self.ring.resize_with(RING, Turn::default);
        }
        let turn = &mut self.ring[tick.0 as usize % RING];
        if turn.tick < tick {
            turn.tick = tick;
            turn.inexact.clear();
            turn.unsettled.iter_mut().for_each(Vec::clear);
        }
        turn
    }

    #[inline]
    pub(super) fn is_exact(&self, block: usize, tick: Tick) -> bool {
        self.first <= tick && !self.turn_of(tick).is_some_and(|turn| get(&turn.inexact, block))
    }

    #[inline]
    pub(super) fn is_settled(&self, c: usize, block: usize, tick: Tick) -> bool {
        let unsettled = |turn: &Turn| turn.unsettled.get(c).is_some_and(|blocks| get(blocks, block));
        self.first.max(self.begun[block]) <= tick && !self.turn_of(tick).is_some_and(unsettled)
    }

    /// Is every block exact at `base`?
    pub(super) fn is_exact_everywhere(&self, base: Tick) -> bool {
        self.first <= base && self.turn_of(base).is_none_or(|turn| turn.inexact.iter().all(|word| *word == 0))
    }

    /// Are these components settled in every block at `older`?
    pub(super) fn is_settled_in(&self, components: u64, older: Tick) -> bool {
        let none = |blocks: &Vec<u64>| blocks.iter().all(|word| *word == 0);
        let settled = |turn: &Turn| turn.unsettled.iter().enumerate().all(|(c, blocks)| components >> c & 1 == 0 || none(blocks));
        self.first.max(self.last_begun) <= older && self.turn_of(older).is_none_or(settled)
    }

    fn turn_of(&self, tick: Tick) -> Option<&Turn> {
        self.ring.get(tick.0 as usize % RING).filter(|turn| turn.tick == tick)
    }
}

fn set(bits: &mut Vec<u64>, block: usize) {
    if bits.len() <= block / 64 {
        bits.resize(block / 64 + 1, 0);
    }
    bits[block / 64] |= 1 << (block % 64);
}

#[inline]
fn get(bits: &[u64], block: usize) -> bool {
    bits.get(block / 64).is_some_and(|word| word >> (block % 64) & 1 != 0)
}
