//! Since when what is pending of each ghost waits. As a rule all of it is of the open send and goes in it: that is a bit for each, and
//! only what is left behind gets a time of its own.

use super::NEVER;
use crate::block::bits;
use crate::history::BLOCK;
use tidelock_netcore::tick::Tick;

#[derive(Default)]
pub(super) struct Waits {
    /// By block: ghosts with something pending, of which the oldest is of `now`.
    fresh: Vec<u64>,
    now: Tick,
    /// And those with a time of their own.
    late: Vec<u64>,
    /// By ghost; of those that are late.
    since: Vec<Tick>,
}

impl Waits {
    pub(super) fn grow(&mut self, blocks: usize) {
        self.fresh.resize(blocks, 0);
        self.late.resize(blocks, 0);
        self.since.resize(blocks * BLOCK, NEVER);
    }

    /// What is [added](Self::add) from now on is of the session tick `now`.
    pub(super) fn begin(&mut self, now: Tick) {
        if self.now == now {
            return;
        }
        for (block, (fresh, late)) in self.fresh.iter_mut().zip(&mut self.late).enumerate().filter(|(_, (fresh, _))| **fresh != 0)
        {
            bits(*fresh).for_each(|bit| self.since[block * BLOCK + bit as usize] = self.now);
            *late |= std::mem::take(fresh);
        }
        self.now = now;
    }

    #[inline]
    pub(super) fn add(&mut self, block: usize, ghosts: u64) {
        self.fresh[block] |= ghosts & !self.late[block];
    }

    /// The same with another time.
    pub(super) fn mark(&mut self, block: usize, ghosts: u64, since: Tick) {
        for bit in bits(ghosts) {
            let (of, mask) = (&mut self.since[block * BLOCK + bit as usize], 1 << bit);
            if self.late[block] & mask != 0 {
                *of = since.min(*of);
            } else if self.fresh[block] & mask == 0 || since < self.now {
                *of = since;
                self.late[block] |= mask;
                self.fresh[block] &= !mask;
            }
        }
    }

    /// Nothing else of a block is pending.
    pub(super) fn keep(&mut self, block: usize, ghosts: u64) {
        self.fresh[block] &= ghosts;
        self.late[block] &= ghosts;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.iter().chain(&self.late).all(|ghosts| *ghosts == 0)
    }

    /// Since when a ghost waits, or [`NEVER`].
    #[inline]
    pub(super) fn of(&self, ghost: usize) -> Tick {
        let (block, bit) = (ghost / BLOCK, ghost % BLOCK);
        match (self.fresh[block] >> bit & 1, self.late[block] >> bit & 1) {
            (1, _) => self.now,
            (_, 1) => self.since[ghost],
            _ => NEVER,
        }
    }

    /// Since when the one that waits longest of some ghosts of a block does.
    #[inline]
    pub(super) fn oldest_of(&self, block: usize, ghosts: u64) -> Tick {
        let late = bits(ghosts & self.late[block]).map(|bit| self.since[block * BLOCK + bit as usize]).min().unwrap_or(NEVER);
        if ghosts & self.fresh[block] != 0 { late.min(self.now) } else { late }
    }

    /// All that wait, the last one first.
    fn backwards(table: &[u64]) -> impl Iterator<Item = usize> + '_ {
        let ghosts = |(block, mask): (usize, &u64)| {
            let mut left = *mask;
            std::iter::from_fn(move || {
                let bit = left.checked_ilog2()?;
                left &= !(1 << bit);
                Some(block * BLOCK + bit as usize)
            })
        };
        table.iter().enumerate().rev().filter(|(_, mask)| **mask != 0).flat_map(ghosts)
    }

    /// The one that waits longest among those that are due; of several the last.
    pub(super) fn oldest(&self, due: impl Fn(usize) -> bool) -> Option<usize> {
        let late = Self::backwards(&self.late).filter(|ghost| due(*ghost)).min_by_key(|ghost| self.since[*ghost]);
        let older = late.filter(|ghost| self.since[*ghost] < self.now);
        older.or_else(|| Self::backwards(&self.fresh).find(|ghost| due(*ghost))).or(late)
    }

    /// Is that so of any?
    pub(super) fn any(&self, is_so: impl Fn(usize) -> bool) -> bool {
        Self::backwards(&self.fresh).chain(Self::backwards(&self.late)).any(is_so)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng as _, SeedableRng};
    use std::collections::BTreeMap;

    const BLOCKS: usize = 3;

    /// Beside a list of who waits since when.
    #[test]
    fn who_waits_since_when_is_what_a_list_says() {
        for seed in 0..200 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let (mut waits, mut list, mut now) = (Waits::default(), BTreeMap::<usize, Tick>::new(), Tick(100));
            waits.grow(BLOCKS);
            waits.begin(now);
            for _ in 0..60 {
                let (block, ghosts) = ((rng.next_u64() % BLOCKS as u64) as usize, rng.next_u64() & rng.next_u64());
                let all = |ghosts| bits(ghosts).map(|bit| block * BLOCK + bit as usize);
                let mut note = |ghosts, since: Tick| {
                    all(ghosts).for_each(|i| {
                        let of = list.entry(i).or_insert(since);
                        *of = since.min(*of);
                    })
                };
                match rng.next_u64() % 5 {
                    0 => {
                        now = now.plus(rng.next_u64() % 3);
                        waits.begin(now);
                    }
                    1 | 2 => {
                        waits.add(block, ghosts);
                        note(ghosts, now);
                    }
                    3 => {
                        let since = now.minus(rng.next_u64() % 4);
                        waits.mark(block, ghosts, since);
                        note(ghosts, since);
                    }
                    _ => {
                        waits.keep(block, !ghosts);
                        all(ghosts).for_each(|i| _ = list.remove(&i));
                    }
                }
                let says: Vec<Tick> = (0..BLOCKS * BLOCK).map(|i| list.get(&i).copied().unwrap_or(NEVER)).collect();
                assert_eq!((0..BLOCKS * BLOCK).map(|i| waits.of(i)).collect::<Vec<_>>(), says, "SEED={seed}");
                assert_eq!(waits.is_empty(), list.is_empty(), "SEED={seed}");
                let oldest = list.iter().rev().filter(|(i, _)| **i % 3 != 0).min_by_key(|(_, since)| **since);
                assert_eq!(waits.oldest(|i| i % 3 != 0).map(|i| says[i]), oldest.map(|o| *o.1), "SEED={seed}");
                let these = all(ghosts).map(|i| says[i]).min().unwrap_or(NEVER);
                assert_eq!(waits.oldest_of(block, ghosts), these, "SEED={seed}");
            }
        }
    }
}
