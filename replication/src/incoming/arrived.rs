//! What has arrived of each row: kept by block and component, so that rows which come together are noted together.

use crate::block::bits;
use crate::history::BLOCK;
use crate::netid::NetId;
use crate::room::make_room;
use tidelock_netcore::tick::Tick;

/// A row of the mirror with components that arrived since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) row: usize,
    /// Bit c: component c.
    pub(crate) components: u64,
}

/// The rows of some blocks whose components arrived since the last look.
#[derive(Default)]
pub(crate) struct TouchedBlocks {
    /// Ascending.
    pub(crate) blocks: Vec<u32>,
    /// For each of them, by component: the rows.
    masks: Vec<u64>,
    columns: usize,
}

impl TouchedBlocks {
    /// The rows of the `i`th block, by component.
    #[inline]
    pub(crate) fn masks(&self, i: usize) -> &[u64] {
        &self.masks[i * self.columns..(i + 1) * self.columns]
    }

    /// The rows of the `i`th block of which anything has arrived.
    #[inline]
    pub(crate) fn all(&self, i: usize) -> u64 {
        self.masks(i).iter().fold(0, |all, rows| all | rows)
    }

    /// A row of the `i`th block with what has arrived of it.
    pub(crate) fn row(&self, i: usize, bit: u32) -> Touched {
        let masks = self.masks(i).iter().enumerate();
        let components = masks.fold(0, |all, (c, rows)| all | (rows >> bit & 1) << c);
        Touched { row: self.blocks[i] as usize * BLOCK + bit as usize, components }
    }

    /// Row by row, ascending.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Touched> {
        (0..self.blocks.len()).flat_map(move |i| bits(self.all(i)).map(move |bit| self.row(i, bit)))
    }

    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.masks.clear();
    }
}

#[derive(Default)]
pub(super) struct Arrived {
    columns: usize,
    /// By block, then component: rows of which a value has arrived under their binding.
    have: Vec<u64>,
    /// By block, then component: rows of which one has arrived since the last look.
    touched: Vec<u64>,
    /// Blocks with some, as bits.
    touched_blocks: Vec<u64>,
    /// By row: the send tick of the last binding's end. What was sent up to then counts for nothing.
    ended: Vec<Tick>,
    /// By block: the newest of them.
    last_ended: Vec<Tick>,
    /// By row: the name that its binding is of; 0: none yet.
    bound: Vec<NetId>,
}

impl Arrived {
    pub(super) fn new(columns: usize) -> Self {
        Self { columns, ..Self::default() }
    }

    /// For how many blocks there is room.
    #[inline]
    pub(super) fn blocks(&self) -> usize {
        self.last_ended.len()
    }

    pub(super) fn grow(&mut self, blocks: usize) {
        let (rows, masks) = (blocks * BLOCK, blocks * self.columns);
        make_room(&mut self.have, masks);
        make_room(&mut self.touched, masks);
        make_room(&mut self.ended, rows);
        make_room(&mut self.bound, rows);
        self.have.resize(masks, 0);
        self.touched.resize(masks, 0);
        self.touched_blocks.resize(blocks.div_ceil(64), 0);
        self.ended.resize(rows, Tick::ZERO);
        self.last_ended.resize(blocks, Tick::ZERO);
        self.bound.resize(rows, NetId(0));
    }

    /// Has a value of that component arrived under the row's binding?
    #[inline]
    pub(super) fn has(&self, c: usize, row: usize) -> bool {
        self.have[row / BLOCK * self.columns + c] >> (row % BLOCK) & 1 != 0
    }

    /// Bit c: so it is with component c.
    pub(super) fn have(&self, row: usize) -> u64 {
        let masks = &self.have[row / BLOCK * self.columns..][..self.columns];
        masks.iter().enumerate().fold(0, |all, (c, rows)| all | (rows >> (row % BLOCK) & 1) << c)
    }

    /// The rows of a block of which a value has arrived, and whose binding a send of `tick` belongs to.
    #[inline]
    pub(super) fn known(&self, c: usize, block: usize, tick: Tick) -> u64 {
        let have = self.have[block * self.columns + c];
        if tick > self.last_ended[block] {
            return have;
        }
        bits(have).filter(|bit| tick > self.ended[block * BLOCK + *bit as usize]).fold(0, |rows, bit| rows | 1 << bit)
    }

    /// Did the row's last binding end in `tick` or later?
    pub(super) fn has_ended(&self, row: usize, tick: Tick) -> bool {
        tick <= self.ended[row]
    }

    pub(super) fn note(&mut self, c: usize, row: usize) {
        self.have[row / BLOCK * self.columns + c] |= 1 << (row % BLOCK);
    }

    #[inline]
    pub(super) fn touch(&mut self, c: usize, block: usize, rows: u64) {
        self.touched[block * self.columns + c] |= rows;
        self.touched_blocks[block / 64] |= 1 << (block % 64);
    }

    /// The blocks with rows that were touched since the last call.
    pub(super) fn take_blocks(&mut self, into: &mut TouchedBlocks) {
        into.columns = self.columns;
        for (i, blocks) in self.touched_blocks.iter_mut().enumerate() {
            for block in bits(std::mem::take(blocks)).map(|bit| i * 64 + bit as usize) {
                let masks = &mut self.touched[block * self.columns..][..self.columns];
                into.blocks.push(block as u32);
                into.masks.extend_from_slice(masks);
                masks.fill(0);
            }
        }
    }

    /// The name that a row's binding was of; it is of `net` now.
    pub(super) fn bind(&mut self, row: usize, net: NetId) -> NetId {
        std::mem::replace(&mut self.bound[row], net)
    }

    /// A row's binding has ended in `tick`: what was received for it counts no more.
    pub(super) fn unbind(&mut self, row: usize, tick: Tick) {
        let masks = &mut self.have[row / BLOCK * self.columns..][..self.columns];
        masks.iter_mut().for_each(|rows| *rows &= !(1 << (row % BLOCK)));
        self.bound[row] = NetId(0);
        self.ended[row] = tick;
        let last = &mut self.last_ended[row / BLOCK];
        *last = (*last).max(tick);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::rand_core::{Rng as _, SeedableRng};

    /// Against plain lists by row.
    #[test]
    fn what_is_kept_by_block_is_what_rows_say() {
        const COLUMNS: usize = 3;
        for seed in 0..50u64 {
            let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
            let mut below = |n: usize| (rng.next_u64() % n as u64) as usize;
            let (mut arrived, mut rows) = (Arrived::new(COLUMNS), 0);
            let (mut have, mut touched, mut ended) = (Vec::new(), Vec::new(), Vec::new());
            for tick in (1..60).map(Tick) {
                if below(8) == 0 || rows == 0 {
                    rows += BLOCK * (1 + below(70));
                    arrived.grow(rows / BLOCK);
                    have.resize(rows, 0u64);
                    touched.resize(rows, 0u64);
                    ended.resize(rows, Tick::ZERO);
                }
                for _ in 0..below(40) {
                    let (c, row) = (below(COLUMNS), below(rows));
                    arrived.note(c, row);
                    arrived.touch(c, row / BLOCK, 1 << (row % BLOCK));
                    have[row] |= 1 << c;
                    touched[row] |= 1 << c;
                }
                for row in (0..below(4)).map(|_| below(rows)) {
                    arrived.unbind(row, tick);
                    (have[row], ended[row]) = (0, tick);
                }
                for _ in 0..40 {
                    let (c, row, at) = (below(COLUMNS), below(rows), tick.minus(below(9) as u64));
                    let known = have[row] >> c & 1 != 0;
                    assert_eq!((arrived.has(c, row), arrived.have(row)), (known, have[row]), "SEED={seed}");
                    let belongs = arrived.known(c, row / BLOCK, at) >> (row % BLOCK) & 1 != 0;
                    assert_eq!(
                        (belongs, arrived.has_ended(row, at)),
                        (known && at > ended[row], at <= ended[row]),
                        "SEED={seed}"
                    );
                }
                if below(3) == 0 {
                    let mut taken = TouchedBlocks::default();
                    arrived.take_blocks(&mut taken);
                    let found: Vec<_> = taken.rows().collect();
                    let all = touched.iter().enumerate().filter(|(_, c)| **c != 0);
                    let all: Vec<_> = all.map(|(row, c)| Touched { row, components: *c }).collect();
                    assert_eq!(found, all, "SEED={seed}");
                    touched.fill(0);
                }
            }
        }
    }
}
