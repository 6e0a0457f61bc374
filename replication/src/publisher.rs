//! What one peer publishes: rows bound to entities, and their history. Shared by all who subscribe to it.

use crate::block::bits;
use crate::history::{BLOCK, History, Mark};
use crate::peer_id::PeerId;
use crate::presence::{Life, Presence};
use crate::schema::Inner;
use rustc_hash::FxHashMap;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// A free row, or one whose entity has ended.
const NO_SLOT: u32 = u32::MAX;
/// A row that is bound for a tombstone alone: no entity ever lived in it. No record has this slot.
const ORPHAN: u32 = u32::MAX - 1;

#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// The entity's record; `NO_SLOT` once it is dead, or while the row is free.
    slot: u32,
    /// Bit c: component c has had a value under this binding.
    ever: u64,
    /// Bit c: a value of component c came from another peer, with a sample tick of its own.
    remote: u64,
    /// The newest send in which a component had its first value under this binding: from before it no value is of the binding.
    fresh: Tick,
}

const FREE: Row = Row { slot: NO_SLOT, ever: 0, remote: 0, fresh: Tick::ZERO };

/// A row's components that have their first value in the open tick: no subscriber holds any baseline of them.
#[derive(Clone, Copy)]
pub(crate) struct Init {
    pub(crate) row: u32,
    pub(crate) components: u64,
}

pub(crate) struct Publisher {
    pub(crate) history: History,
    rows: Vec<Row>,
    /// By block: whose rows live there, and how many.
    homes: Vec<(Home, u8)>,
    /// By block: rows that nobody has. Of an empty block all.
    free: Vec<u64>,
    estates: FxHashMap<Home, Estate>,
    empty: Vec<u32>,
    pub(crate) inits: Vec<Init>,
    /// Tombstones and released rows, with the send tick of their end.
    pub(crate) dying: Vec<(u32, Tick)>,
    /// By component, then row: sample ticks of values that came from other peers. Empty where none ever did.
    samples: Vec<Vec<Tick>>,
    /// By block: rows with a value that came from another peer.
    remote_rows: Vec<u64>,
    /// By block: the newest of its rows' [`Row::fresh`].
    newest: Vec<Tick>,
    /// By block, then component: rows that have had a value of it under their binding.
    ever_rows: Vec<u64>,
    /// See [`shape`](Self::shape).
    shape: u64,
    /// By send tick modulo the ring's length: the session's tick of the newest capture.
    captured: Vec<Tick>,
    components: usize,
    slots: usize,
    /// Rows that this peer may publish.
    limit: usize,
    /// Rows go by kind alone: nobody is told of them in blocks, and owners of a row or two would leave the blocks empty.
    pub(crate) packed: bool,
    scratch: Vec<u32>,
}

/// Rows are given out by kind, then owner, so that a peer's own rows are a stretch.
type Home = (u16, PeerId);

/// The blocks of one home that are not empty.
#[derive(Clone, Copy, Default)]
struct Estate {
    /// The one that rows are given out of, until none of it is free.
    open: Option<u32>,
    /// Rows of all of them, and those that are free.
    rows: usize,
    free: usize,
}

/// So many rows of a block should be free for it to be filled up. What is born together is told together, and a block costs more
/// than a row: births that are spread over the gaps of all blocks cost each subscriber several times as much.
const WORTH_FILLING: u32 = 16;
/// A new block is opened instead as long as no more than one in so many rows is free.
const SPARE: usize = 5;

impl Publisher {
    pub(crate) fn new(schema: &Inner, first: Tick, host: bool) -> Self {
        Self {
            history: History::new(schema.strides(), first),
            rows: Vec::new(),
            homes: Vec::new(),
            free: Vec::new(),
            estates: FxHashMap::default(),
            empty: Vec::new(),
            inits: Vec::new(),
            dying: Vec::new(),
            samples: vec![Vec::new(); schema.columns()],
            remote_rows: Vec::new(),
            newest: Vec::new(),
            ever_rows: Vec::new(),
            shape: 0,
            captured: vec![Tick::ZERO; limits::RING],
            components: schema.components.len(),
            slots: schema.slots,
            packed: false,
            limit: if host { limits::ROWS } else { limits::GUEST_ROWS },
            scratch: vec![0; schema.presence.words()],
        }
    }

    /// Rows given out so far, free ones in between included.
    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Blocks given out so far.
    pub(crate) fn block_count(&self) -> usize {
        self.homes.len()
    }

    /// The record of a live row.
    pub(crate) fn slot(&self, row: usize) -> Option<u32> {
        let slot = self.rows.get(row)?.slot;
        (slot != NO_SLOT).then_some(slot)
    }

    /// Gives a row to an entity. `None` when all that this peer may publish are taken.
    pub(crate) fn bind(&mut self, kind: usize, owner: PeerId, slot: u32) -> Option<usize> {
        let home = (kind as u16, if self.packed { PeerId::HOST } else { owner });
        let block = self.block_for(home)?;
        let row = block * BLOCK + self.free[block].trailing_zeros() as usize;
        self.free[block] &= self.free[block] - 1;
        let (home, used) = &mut self.homes[block];
        *used += 1;
        self.estates.entry(*home).or_default().free -= 1;
        self.rows[row] = Row { slot, ..FREE };
        Some(row)
    }

    /// A block with a free row.
    fn block_for(&mut self, home: Home) -> Option<usize> {
        let estate = self.estates.get(&home).copied().unwrap_or_default();
        if let Some(open) = estate.open.map(|block| block as usize).filter(|block| self.free[*block] != 0) {
            return Some(open);
        }
        let emptiest = match estate.free {
            0 => None,
            _ => (0..self.homes.len())
                .filter(|block| self.homes[*block].0 == home && self.homes[*block].1 > 0)
                .max_by_key(|block| (self.free[*block].count_ones(), std::cmp::Reverse(*block))),
        };
        let is_worth = |block: &usize| self.free[*block].count_ones() >= WORTH_FILLING || estate.free * SPARE > estate.rows;
        let Some(block) = emptiest.filter(is_worth).or_else(|| self.open_block(home)).or(emptiest) else {
            // no block is left to open: a row of somebody else's
            return self.free.iter().position(|free| *free != 0);
        };
        self.estates.entry(home).or_default().open = Some(block as u32);
        Some(block)
    }

    /// A row for a tombstone alone: of an entity that this peer has never published, and ends all the same.
    pub(crate) fn bind_tombstone(&mut self, kind: usize, owner: PeerId) -> Option<usize> {
        self.bind(kind, owner, ORPHAN)
    }

    fn open_block(&mut self, home: Home) -> Option<usize> {
        let block = match self.empty.pop() {
            Some(block) => block as usize,
            None if self.rows.len() + BLOCK > self.limit => return None,
            None => {
                self.homes.push((home, 0));
                self.free.push(u64::MAX);
                self.remote_rows.push(0);
                self.newest.push(Tick::ZERO);
                self.ever_rows.resize(self.homes.len() * self.history.components(), 0);
                self.rows.resize(self.homes.len() * BLOCK, FREE);
                self.history.grow(self.homes.len());
                self.homes.len() - 1
            }
        };
        self.homes[block] = (home, 0);
        let estate = self.estates.entry(home).or_default();
        estate.rows += BLOCK;
        estate.free += BLOCK;
        Some(block)
    }

    /// Takes a row back: nobody knows of it any more.
    pub(crate) fn release(&mut self, row: usize) {
        self.rows[row] = FREE;
        let block = row / BLOCK;
        let bit = 1u64 << (row % BLOCK);
        self.remote_rows[block] &= !bit;
        let columns = self.history.components();
        self.ever_rows[block * columns..][..columns].iter_mut().for_each(|rows| *rows &= !bit);
        self.free[block] |= bit;
        let (home, used) = &mut self.homes[block];
        *used -= 1;
        let estate = self.estates.entry(*home).or_default();
        estate.free += 1;
        if *used == 0 {
            estate.rows -= BLOCK;
            estate.free -= BLOCK;
            estate.open = estate.open.filter(|open| *open as usize != block);
            self.empty.push(block as u32);
        }
    }

    /// The present value of a row's presence.
    pub(crate) fn presence(&self, row: usize) -> Presence {
        Presence::read(self.history.value(0, row), self.components, self.slots)
    }

    /// Sets presence; a row that ends loses its entity.
    pub(crate) fn set_presence(&mut self, row: usize, presence: &Presence, sample: Tick) {
        let mut words = std::mem::take(&mut self.scratch);
        presence.write(self.components, self.slots, &mut words);
        self.set(0, row, &words, sample, false);
        self.scratch = words;
        if presence.life != Life::Alive && self.rows[row].slot != NO_SLOT {
            self.rows[row].slot = NO_SLOT;
            self.dying.push((row as u32, self.history.now()));
        }
    }

    /// Sets a value in the open tick; says whether it is a change. `remote`: it came from another peer, sampled at `sample`.
    pub(crate) fn set(&mut self, c: usize, row: usize, words: &[u32], sample: Tick, remote: bool) -> bool {
        let state = &mut self.rows[row];
        let first = state.ever >> c & 1 == 0;
        if remote {
            state.remote |= 1 << c;
            let samples = &mut self.samples[c];
            if samples.len() <= row {
                samples.resize(self.homes.len() * BLOCK, Tick::ZERO);
            }
            samples[row] = sample;
        }
        let bit = 1u64 << (row % BLOCK);
        if state.remote != 0 {
            if !remote {
                state.remote &= !(1 << c);
            }
            let rows = &mut self.remote_rows[row / BLOCK];
            *rows = if state.remote != 0 { *rows | bit } else { *rows & !bit };
        }
        if !first {
            return self.history.set(c, row, words, Mark::at(sample));
        }
        state.ever |= 1 << c;
        state.fresh = self.history.now();
        self.newest[row / BLOCK] = self.history.now();
        self.ever_rows[row / BLOCK * self.history.components() + c] |= bit;
        self.shape += 1;
        self.history.record(c, row, words, Mark { sample, first: true, rested: false });
        match self.inits.last_mut() {
            Some(init) if init.row as usize == row => init.components |= 1 << c,
            _ => self.inits.push(Init { row: row as u32, components: 1 << c }),
        }
        true
    }

    /// Sets values of those among some rows of a block of which that is all: they have had one under their binding, none from
    /// another peer, and none in the open tick. Says which these are, and for which it is a change. `words`: the values of all the
    /// rows, in their order.
    pub(crate) fn set_rows(&mut self, c: usize, block: usize, rows: u64, words: &[u32], sample: Tick) -> (u64, u64) {
        let changed = self.history.changed_in(c, block, self.history.now());
        let simple = rows & self.ever_rows(c, block) & !self.remote_rows[block] & !changed;
        (simple, self.history.put_rows(c, block, (simple, rows), words, Mark::at(sample), false))
    }

    /// Sets a value in the open tick and counts it as changed even if it is the same.
    pub(crate) fn renew(&mut self, c: usize, row: usize, words: &[u32], sample: Tick) {
        if !self.set(c, row, words, sample, false) {
            self.history.record(c, row, words, Mark::at(sample));
        }
    }

    /// When the present value was sampled, if another peer did it.
    pub(crate) fn sample(&self, c: usize, row: usize) -> Option<Tick> {
        (self.rows[row].remote >> c & 1 != 0).then(|| self.samples[c][row])
    }

    /// Has any row a value that came from another peer?
    pub(crate) fn has_remote(&self) -> bool {
        self.remote_rows.iter().any(|rows| *rows != 0)
    }

    /// The rows of a block with a value that came from another peer.
    pub(crate) fn remote_rows(&self, block: usize) -> u64 {
        self.remote_rows[block]
    }

    /// The kind of a row's entity.
    pub(crate) fn kind(&self, row: usize) -> usize {
        crate::presence::kind_in(self.history.value(0, row))
    }

    /// The kind that a block was opened for: that of its rows, as long as there are blocks enough.
    pub(crate) fn kind_of(&self, block: usize) -> usize {
        self.homes[block].0.0.into()
    }

    /// Bit c: component c has had a value under the row's binding.
    pub(crate) fn ever(&self, row: usize) -> u64 {
        self.rows[row].ever
    }

    /// The rows of a block that have had a value of a component under their binding.
    #[inline]
    pub(crate) fn ever_rows(&self, c: usize, block: usize) -> u64 {
        self.ever_rows[block * self.history.components() + c]
    }

    /// The same of all blocks, one after the other.
    pub(crate) fn ever_of(&self, c: usize) -> impl Iterator<Item = u64> {
        self.ever_rows.chunks_exact(self.history.components()).map(move |rows| rows[c])
    }

    /// As long as this stays the same, no row has had a value of a component for the first time.
    pub(crate) fn shape(&self) -> u64 {
        self.shape
    }

    /// The newest send in which a component of the row had its first value.
    pub(crate) fn fresh(&self, row: usize) -> Tick {
        self.rows[row].fresh
    }

    /// The rows among `rows` of a block of which a component had its first value after `tick`.
    #[inline]
    pub(crate) fn fresher(&self, block: usize, rows: u64, tick: Tick) -> u64 {
        if self.newest[block] <= tick {
            return 0;
        }
        bits(rows).filter(|bit| self.rows[block * BLOCK + *bit as usize].fresh > tick).fold(0, |mask, bit| mask | 1 << bit)
    }

    /// Has anything been set in the open tick?
    pub(crate) fn is_used(&self) -> bool {
        self.history.changed_components(self.history.now()) != 0
    }

    /// The world was captured in the open tick, as of this tick of the session.
    pub(crate) fn note_capture(&mut self, tick: Tick) {
        self.captured[self.history.now().0 as usize % limits::RING] = tick;
    }

    /// Session ticks between the capture that was in force in a send tick, which the ring must remember, and the newest.
    pub(crate) fn elapsed(&self, base: Tick) -> u64 {
        let at = |tick: Tick| self.captured[tick.0 as usize % limits::RING];
        at(self.history.now()).since(at(base))
    }

    /// Opens the next send tick.
    pub(crate) fn open(&mut self) {
        let captured = self.captured[self.history.now().0 as usize % limits::RING];
        self.captured[self.history.now().plus(1).0 as usize % limits::RING] = captured;
        self.history.advance_to(self.history.now().plus(1));
        self.inits.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Host;
    use crate::schema::Schema;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng as _, SeedableRng};

    #[derive(Clone, Copy, Default)]
    struct Thing;

    fn publisher(rows: usize) -> Publisher {
        let schema = Schema::builder("rows").kind::<Thing>("thing", Host::default()).build().unwrap();
        Publisher { limit: rows, ..Publisher::new(&schema.0, Tick(1), true) }
    }

    /// Whoever comes and goes: no row is given twice, homes share no block before the limit, all up to the limit can be had, and
    /// what is kept of blocks says what is so.
    #[test]
    fn rows_are_given_and_taken_back() {
        for seed in 0..40u64 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut below = |n: usize| (rng.next_u64() % n as u64) as usize;
            let (limit, homes) = (BLOCK * (2 + below(12)), 1 + below(4));
            let mut publisher = publisher(limit);
            let mut taken: Vec<(usize, PeerId)> = Vec::new();
            let mut crowded = false;
            for _ in 0..200 {
                let (come, go) = (below(limit / 2), below(limit / 2));
                for _ in 0..come {
                    let owner = PeerId(below(homes) as u16);
                    let Some(row) = publisher.bind(0, owner, 7) else {
                        assert_eq!(taken.len(), limit, "SEED={seed}: a row is free");
                        continue;
                    };
                    assert!(row < limit && taken.iter().all(|t| t.0 != row), "SEED={seed}: row {row} was given twice");
                    crowded |= publisher.block_count() * BLOCK == limit;
                    let alone = taken.iter().filter(|t| t.0 / BLOCK == row / BLOCK).all(|t| t.1 == owner);
                    assert!(crowded || alone, "SEED={seed}: row {row} lies in another's block");
                    taken.push((row, owner));
                }
                for _ in 0..go.min(taken.len()) {
                    publisher.release(taken.swap_remove(below(taken.len())).0);
                }
                let used = |block: usize| taken.iter().filter(|t| t.0 / BLOCK == block).fold(0, |m, t| m | 1u64 << (t.0 % BLOCK));
                for block in 0..publisher.block_count() {
                    let used = used(block);
                    assert_eq!(
                        (!used, used.count_ones()),
                        (publisher.free[block], publisher.homes[block].1.into()),
                        "SEED={seed}"
                    );
                    assert_eq!(publisher.empty.contains(&(block as u32)), used == 0, "SEED={seed}");
                }
                for (home, estate) in &publisher.estates {
                    let blocks =
                        (0..publisher.block_count()).filter(|block| publisher.homes[*block].0 == *home && used(*block) != 0);
                    let (rows, free) = blocks.fold((0, 0), |sum, b| (sum.0 + BLOCK, sum.1 + used(b).count_zeros() as usize));
                    assert_eq!((estate.rows, estate.free), (rows, free), "SEED={seed}");
                }
            }
        }
    }

    /// However long one after another is replaced at random, births go to a few blocks, and few rows lie idle.
    #[test]
    fn births_stay_together() {
        for seed in 0..10u64 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut publisher = publisher(limits::ROWS);
            let bind = |publisher: &mut Publisher| publisher.bind(0, PeerId::HOST, 7).unwrap();
            let mut all: Vec<usize> = (0..4000).map(|_| bind(&mut publisher)).collect();
            let mut dead = std::collections::VecDeque::new();
            for tick in 0..2000 {
                let mut blocks = std::collections::BTreeSet::new();
                for _ in 0..40 {
                    let i = (rng.next_u64() % all.len() as u64) as usize;
                    dead.push_back((tick, std::mem::replace(&mut all[i], bind(&mut publisher))));
                    blocks.insert(all[i] / BLOCK);
                }
                while let Some(&(_, row)) = dead.front().filter(|d| d.0 + limits::RING < tick) {
                    publisher.release(row);
                    dead.pop_front();
                }
                assert!(blocks.len() <= 4, "SEED={seed} tick {tick}: 40 births are in {} blocks", blocks.len());
                let (used, rows) = (all.len() + dead.len(), publisher.row_count());
                assert!(rows * 3 < used * 4, "SEED={seed} tick {tick}: {rows} rows for {used}");
            }
        }
    }
}
