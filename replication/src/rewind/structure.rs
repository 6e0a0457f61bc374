//! Who was there, and in which archetype and row: kept apart from the values, because it rarely changes. Saves with the same
//! structure share it.

use crate::netid::NetId;
use std::ops::Range;

/// Marks the entities whose components are saved and restored on this peer, and is their name there, so that one archetype is
/// either rewound or not. Put on and taken off by the framework alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewound {
    pub(crate) net: NetId,
}

/// The rows of one archetype.
#[derive(Default)]
pub(crate) struct Table {
    /// As [`hecs::Archetype::ids`] has them. They have no generations; the names make up for it.
    pub(crate) ids: Vec<u32>,
    pub(crate) marks: Vec<Rewound>,
}

/// A table for each archetype that is watched, in their order; the last ones may be missing.
#[derive(Default)]
pub(crate) struct Structure {
    pub(crate) tables: Vec<Table>,
}

impl Structure {
    pub(crate) fn table(&self, index: usize) -> &Table {
        const NONE: &Table = &Table { ids: Vec::new(), marks: Vec::new() };
        self.tables.get(index).unwrap_or(NONE)
    }

    /// The rows that are not where the other structure has them: first of this one, then of the other, each by name. The
    /// work beyond one sweep is proportional to what moved.
    pub(crate) fn compare(&self, other: &Self, only_self: &mut Vec<Row>, only_other: &mut Vec<Row>) {
        only_self.clear();
        only_other.clear();
        for index in 0..self.tables.len().max(other.tables.len()) {
            let (a, b) = (self.table(index), other.table(index));
            let common = a.marks.len().min(b.marks.len());
            let mut start = 0;
            for same in a.parts(b).chain(std::iter::once(common..common)) {
                for row in start..same.start {
                    only_self.push(Row::new(a.marks[row], index, row));
                    only_other.push(Row::new(b.marks[row], index, row));
                }
                start = same.end;
            }
            only_self.extend((common..a.marks.len()).map(|row| Row::new(a.marks[row], index, row)));
            only_other.extend((common..b.marks.len()).map(|row| Row::new(b.marks[row], index, row)));
        }
        only_self.sort_unstable();
        only_other.sort_unstable();
    }
}

/// A row, ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) net: NetId,
    pub(crate) table: u32,
    pub(crate) row: u32,
}

impl Row {
    pub(crate) fn new(mark: Rewound, table: usize, row: usize) -> Self {
        Self { net: mark.net, table: table as u32, row: row as u32 }
    }
}

/// Rows that are compared at once, without a branch for each.
const BLOCK: usize = 64;

impl Table {
    pub(crate) fn is(&self, ids: &[u32], marks: &[Rewound]) -> bool {
        self.ids == ids
            && self.marks.len() == marks.len()
            && self.marks.chunks(BLOCK).zip(marks.chunks(BLOCK)).all(|(a, b)| are_same(a, b))
    }

    /// The stretches of rows in which both tables have the same entities, in order.
    pub(crate) fn parts<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Range<usize>> + 'a {
        let common = self.marks.len().min(other.marks.len());
        let is_same = move |row: usize| self.marks[row] == other.marks[row] && self.ids[row] == other.ids[row];
        let is_block_same = move |start: usize| {
            let block = start..start + BLOCK;
            block.end <= common
                && are_same(&self.marks[block.clone()], &other.marks[block.clone()])
                && self.ids[block.clone()] == other.ids[block]
        };
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < common && !is_same(at) {
                at += 1;
            }
            let start = at;
            while at < common {
                if is_block_same(at) {
                    at += BLOCK;
                } else if is_same(at) {
                    at += 1;
                } else {
                    break;
                }
            }
            (start < at).then_some(start..at)
        })
    }
}

fn are_same(a: &[Rewound], b: &[Rewound]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a.net.0 ^ b.net.0)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::mix;

    fn table(nets: &[u64]) -> Table {
        let marks = nets.iter().map(|n| Rewound { net: NetId(*n) }).collect();
        Table { ids: nets.iter().map(|n| *n as u32).collect(), marks }
    }

    #[test]
    fn what_is_compared_in_blocks_equals_what_is_compared_row_by_row() {
        for seed in 0..200 {
            let length = mix(seed, 1) as usize % 300;
            let a: Vec<u64> = (0..length as u64).collect();
            let mut b = a.clone();
            for change in 0..mix(seed, 2) % 4 {
                if !b.is_empty() {
                    let at = mix(seed, 3 + change) as usize % b.len();
                    b[at] += 1000;
                }
            }
            b.truncate(length - (mix(seed, 9) as usize % 70).min(length));
            let (x, y) = (table(&a), table(&b));
            assert_eq!(x.is(&y.ids, &y.marks), a == b, "SEED={seed}");
            let found: Vec<usize> = x.parts(&y).flatten().collect();
            let expected: Vec<usize> = (0..a.len().min(b.len())).filter(|i| a[*i] == b[*i]).collect();
            assert_eq!(found, expected, "SEED={seed}");
            let (x, y) = (Structure { tables: vec![x] }, Structure { tables: vec![Table::default(), y] });
            let (mut here, mut there) = (Vec::new(), Vec::new());
            x.compare(&y, &mut here, &mut there);
            assert_eq!((here.len(), there.len()), (a.len(), b.len()), "SEED={seed}: other archetypes");
            let z = Structure { tables: vec![table(&b)] };
            x.compare(&z, &mut here, &mut there);
            assert_eq!(here.len(), a.len() - expected.len(), "SEED={seed}");
            assert_eq!(there.len(), b.len() - expected.len(), "SEED={seed}");
        }
    }
}
