//! What one peer sees of what another publishes, where that is not everything.
//!
//! Such a peer knows rows under numbers of its own, *ghosts*, given out densely: what is kept for it, what is told to it and how
//! long the masks are follow what it sees, not the size of the world. A ghost is given to another row only when the peer has
//! acknowledged its end and the ring has passed it, like a row to another entity.

use crate::block::bits;
use crate::history::BLOCK;
use crate::netid::NetId;
use crate::policy::OWNER_SLOTS;
use crate::presence::{Life, Presence, UNOWNED};
use crate::publisher::Publisher;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidelock_netcore::limits::RING;
use tidelock_netcore::tick::Tick;

/// A ghost without a row: it has ended for this peer, or is free.
const NO_ROW: u32 = u32::MAX;

/// How a peer sees one entity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sighting {
    /// Bit c: component c is hidden from it.
    pub(crate) hidden: u64,
    /// At most every how-manieth send carries changes of it.
    pub(crate) period: u8,
    /// How much it matters, above 0.
    pub(crate) weight: f32,
    /// What must appear together has the same number.
    pub(crate) group: u32,
}

impl Default for Sighting {
    fn default() -> Self {
        Self { hidden: 0, period: 1, weight: 1.0, group: NO_ROW }
    }
}

/// What is kept of one ghost beside its row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ghost {
    pub(crate) net: NetId,
    pub(crate) sighting: Sighting,
    /// The peer has authority over a part of it.
    pub(crate) own: bool,
    /// While it has a row.
    pub(crate) kind: u8,
    /// [`Life::Alive`] while it has a row; what the peer is told of its end otherwise.
    life: Life,
    /// The send that it was bound in.
    pub(crate) bound: Tick,
}

/// What changed in one send.
#[derive(Default)]
struct Turn {
    tick: Tick,
    /// Bit c: component c changed somewhere.
    any: u64,
    /// By component of `any`, then block of ghosts.
    changed: Vec<u64>,
}

impl Turn {
    /// Where a component's blocks begin, or would.
    fn start(&self, c: usize, blocks: usize) -> usize {
        (self.any & ((1 << c) - 1)).count_ones() as usize * blocks
    }

    /// A component's blocks.
    fn table(&mut self, c: usize, blocks: usize) -> &mut [u64] {
        let start = self.start(c, blocks);
        if self.any >> c & 1 == 0 {
            self.any |= 1 << c;
            let end = self.changed.len();
            self.changed.resize(end + blocks, 0);
            self.changed.copy_within(start..end, start + blocks);
            self.changed[start..start + blocks].fill(0);
        }
        &mut self.changed[start..start + blocks]
    }
}

/// See the [module](self).
pub(crate) struct View {
    blocks: usize,
    /// By ghost: the publisher's row.
    rows: Vec<u32>,
    ghosts: Vec<Ghost>,
    /// By ghost: the last send that carried something of it. Apart from the rest, for it changes at every send.
    sent: Vec<Tick>,
    by_row: FxHashMap<u32, u32>,
    by_net: FxHashMap<NetId, u32>,
    /// The lowest first, so that numbers stay small.
    free: BinaryHeap<Reverse<u32>>,
    /// Ghosts that have ended, with the send of their end.
    dying: Vec<(u32, Tick)>,
    ring: Vec<Turn>,
    scratch: Vec<u64>,
    /// By block: the newest send in which a ghost of it was bound.
    bound: Vec<Tick>,
    /// Something is, or was, told less often than at every send.
    pub(crate) paced: bool,
    /// The last send that carried anything.
    pub(crate) last_sent: Tick,
}

const FREE: Ghost = Ghost {
    net: NetId(0),
    sighting: Sighting { hidden: 0, period: 1, weight: 1.0, group: NO_ROW },
    own: false,
    kind: 0,
    life: Life::Free,
    bound: Tick::ZERO,
};

impl View {
    pub(crate) fn new() -> Self {
        Self {
            blocks: 0,
            rows: Vec::new(),
            ghosts: Vec::new(),
            sent: Vec::new(),
            by_row: FxHashMap::default(),
            by_net: FxHashMap::default(),
            free: BinaryHeap::new(),
            dying: Vec::new(),
            ring: (0..RING).map(|_| Turn::default()).collect(),
            scratch: Vec::new(),
            bound: Vec::new(),
            paced: false,
            last_sent: Tick::ZERO,
        }
    }

    /// Blocks of ghosts.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// The ghost of a row.
    pub(crate) fn ghost_of(&self, row: usize) -> Option<usize> {
        self.by_row.get(&(row as u32)).map(|g| *g as usize)
    }

    /// The publisher's row behind a ghost, while there is one.
    #[inline]
    pub(crate) fn row(&self, ghost: usize) -> Option<usize> {
        let row = self.rows[ghost];
        (row != NO_ROW).then_some(row as usize)
    }

    pub(crate) fn ghost(&self, ghost: usize) -> &Ghost {
        &self.ghosts[ghost]
    }

    pub(crate) fn ghost_mut(&mut self, ghost: usize) -> &mut Ghost {
        &mut self.ghosts[ghost]
    }

    /// The newest send in which a ghost of a block was bound.
    pub(crate) fn last_bound(&self, block: usize) -> Tick {
        self.bound[block]
    }

    /// The last send that carried something of a ghost.
    pub(crate) fn sent(&self, ghost: usize) -> Tick {
        self.sent[ghost]
    }

    /// A packet carries something of these ghosts of a block.
    pub(crate) fn note_sent(&mut self, block: usize, ghosts: u64, now: Tick) {
        let sent = &mut self.sent[block * BLOCK..][..BLOCK];
        match ghosts {
            u64::MAX => sent.fill(now),
            _ => bits(ghosts).for_each(|bit| sent[bit as usize] = now),
        }
    }

    /// Lets an entity be seen in another way; how it was.
    pub(crate) fn see(&mut self, ghost: usize, sighting: Sighting) -> Sighting {
        self.paced |= sighting.period > 1;
        std::mem::replace(&mut self.ghosts[ghost].sighting, sighting)
    }

    /// The ghosts that stand for rows, with these.
    pub(crate) fn alive(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.rows.iter().enumerate().filter(|(_, row)| **row != NO_ROW).map(|(ghost, row)| (ghost, *row as usize))
    }

    /// Does the peer see an entity of that name?
    pub(crate) fn sees(&self, net: NetId) -> bool {
        self.by_net.contains_key(&net)
    }

    /// The ghost of a name that is seen.
    pub(crate) fn ghost_named(&self, net: NetId) -> Option<usize> {
        self.by_net.get(&net).map(|g| *g as usize)
    }

    /// Shows a row that has no ghost: gives it one. `now`: the open send.
    pub(crate) fn bind(&mut self, row: usize, net: NetId, kind: usize, now: Tick) -> usize {
        let ghost = match self.free.pop() {
            Some(Reverse(ghost)) => ghost as usize,
            None => {
                let ghost = self.rows.len();
                self.grow();
                self.free.extend((ghost as u32 + 1..self.rows.len() as u32).map(Reverse));
                ghost
            }
        };
        self.rows[ghost] = row as u32;
        self.ghosts[ghost] = Ghost { net, kind: kind as u8, life: Life::Alive, bound: now, ..FREE };
        self.sent[ghost] = now.minus(1);
        self.bound[ghost / BLOCK] = now;
        self.by_row.insert(row as u32, ghost as u32);
        self.by_net.insert(net, ghost as u32);
        ghost
    }

    fn grow(&mut self) {
        let (from, to) = (self.blocks, self.blocks + (self.blocks / 4).max(1));
        let most = self.ring.iter().map(|turn| turn.changed.capacity() / from.max(1)).max().unwrap_or(0);
        for turn in &mut self.ring {
            let mut tables = Vec::with_capacity(most * to);
            for table in turn.changed.chunks(from.max(1)) {
                tables.extend_from_slice(table);
                tables.resize(tables.len() + to - from, 0);
            }
            turn.changed = tables;
        }
        self.blocks = to;
        self.bound.resize(to, Tick::ZERO);
        self.rows.resize(to * BLOCK, NO_ROW);
        self.ghosts.resize(to * BLOCK, FREE);
        self.sent.resize(to * BLOCK, Tick::ZERO);
    }

    /// A row's entity has ended (`Dead`), or is not seen any more (`Free`): takes its ghost's row from it. `told`: the peer knows of
    /// it, so it must hear of the end.
    pub(crate) fn end(&mut self, ghost: usize, life: Life, told: bool, now: Tick) {
        let net = self.ghosts[ghost].net;
        self.by_row.remove(&self.rows[ghost]);
        if self.by_net.get(&net) == Some(&(ghost as u32)) {
            self.by_net.remove(&net);
        }
        self.rows[ghost] = NO_ROW;
        if told {
            self.ghosts[ghost].life = life;
            self.dying.push((ghost as u32, now));
            self.note(0, ghost, now);
        } else {
            self.let_go(ghost);
        }
    }

    fn let_go(&mut self, ghost: usize) {
        self.ghosts[ghost] = FREE;
        self.sent[ghost] = Tick::ZERO;
        self.free.push(Reverse(ghost as u32));
    }

    /// Gives back the ghosts that `is_done` says nobody speaks of any more. `now`: the open send.
    pub(crate) fn release(&mut self, now: Tick, mut is_done: impl FnMut(usize, Tick) -> bool) {
        let mut i = 0;
        while i < self.dying.len() {
            let (ghost, ended) = self.dying[i];
            if now.since(ended) >= RING as u64 && is_done(ghost as usize, ended) {
                self.dying.swap_remove(i);
                self.let_go(ghost as usize);
            } else {
                i += 1;
            }
        }
    }

    /// Notes a change that only this peer has to hear of.
    pub(crate) fn note(&mut self, c: usize, ghost: usize, now: Tick) {
        self.table(c, now)[ghost / BLOCK] |= 1 << (ghost % BLOCK);
    }

    /// Takes up what changed in the publisher's open send.
    pub(crate) fn take_up(&mut self, publisher: &Publisher) {
        let history = &publisher.history;
        let now = history.now();
        let components = history.changed_components(now);
        if components == 0 {
            return;
        }
        let mut masks = std::mem::take(&mut self.scratch);
        for c in bits(components) {
            let c = c as usize;
            let changed = history.changed(c, now);
            masks.clear();
            masks.extend(self.rows.chunks(BLOCK).map(|rows| {
                // a free ghost's row is beyond every block
                let word = |row: u32| changed.get(row as usize / BLOCK).copied().unwrap_or(0);
                rows.iter().enumerate().fold(0, |mask, (i, row)| mask | (word(*row) >> (row % BLOCK as u32) & 1) << i)
            }));
            if masks.iter().any(|mask| *mask != 0) {
                let table = self.table(c, now);
                table.iter_mut().zip(&masks).for_each(|(into, mask)| *into |= mask);
            }
        }
        self.scratch = masks;
    }

    /// A component's blocks in a turn.
    fn table(&mut self, c: usize, tick: Tick) -> &mut [u64] {
        let (blocks, turn) = (self.blocks, self.turn_mut(tick));
        let (len, room) = (turn.changed.len() + blocks, turn.changed.capacity());
        if turn.any >> c & 1 == 0 && len > room {
            // what one turn needs others will need too: all at once, so that none has to be made later
            self.ring.iter_mut().for_each(|turn| turn.changed.reserve_exact(len - turn.changed.len().min(len)));
        }
        self.turn_mut(tick).table(c, blocks)
    }

    fn turn_mut(&mut self, tick: Tick) -> &mut Turn {
        let turn = &mut self.ring[tick.0 as usize % RING];
        if turn.tick != tick {
            turn.tick = tick;
            turn.any = 0;
            turn.changed.clear();
        }
        turn
    }

    /// The ghosts whose component `c` changed in `tick`, by block; empty if none did or the ring has forgotten.
    #[inline]
    pub(crate) fn changed(&self, c: usize, tick: Tick) -> &[u64] {
        let turn = &self.ring[tick.0 as usize % RING];
        if turn.tick != tick || turn.any >> c & 1 == 0 {
            return &[];
        }
        let start = turn.start(c, self.blocks);
        &turn.changed[start..start + self.blocks]
    }

    /// Which components changed in `tick`, as bits.
    #[inline]
    pub(crate) fn changed_components(&self, tick: Tick) -> u64 {
        let turn = &self.ring[tick.0 as usize % RING];
        if turn.tick == tick { turn.any } else { 0 }
    }

    /// Presence as this peer is to know it: what is hidden is not there, and of what has ended only the name is left.
    pub(crate) fn presence(&self, ghost: usize, publisher: &Publisher) -> Presence {
        let Ghost { net, life, sighting, .. } = self.ghosts[ghost];
        match self.row(ghost) {
            Some(row) => {
                let presence = publisher.presence(row);
                Presence { components: presence.components & !(sighting.hidden >> 1), ..presence }
            }
            None => Presence { life, net, kind: 0, cut: 0, components: 0, owners: [UNOWNED; OWNER_SLOTS] },
        }
    }
}
