//! Rows that were forced while packets were on their way: those packets do not make up for it, only later ones do.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Of one block's component: which rows were forced, and from which packet on they are made up for; ascending.
type Marks = SmallVec<[(u64, u64); 2]>;

/// All that packets on their way may still be asked about.
#[derive(Default)]
pub(super) struct Forces {
    /// By block and component.
    marks: FxHashMap<(u32, u8), Marks>,
    /// In the order in which they are let go: the number of the packet, and whose.
    queue: VecDeque<(u64, (u32, u8))>,
}

impl Forces {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Rows are forced: only packets from `number` on make up for it. Numbers never fall.
    pub(super) fn note(&mut self, number: u64, of: (u32, u8), rows: u64) {
        let marks = self.marks.entry(of).or_default();
        match marks.last_mut().filter(|mark| mark.0 == number) {
            Some(mark) => mark.1 |= rows,
            None => {
                marks.push((number, rows));
                self.queue.push_back((number, of));
            }
        }
    }

    /// What is left of some rows that packet `number` carried.
    pub(super) fn settled(&self, number: u64, of: (u32, u8), rows: u64) -> u64 {
        if self.queue.is_empty() {
            return rows;
        }
        let later = self.marks.get(&of).into_iter().flatten().filter(|mark| mark.0 > number);
        later.fold(rows, |rows, mark| rows & !mark.1)
    }

    /// Lets go of what every packet from `floor` on makes up for.
    pub(super) fn forget(&mut self, floor: u64) {
        while self.queue.front().is_some_and(|next| next.0 <= floor) {
            let Some((_, of)) = self.queue.pop_front() else { return };
            // an empty list stays: where there was one there will be more, and there are no more of them than blocks and components
            self.marks.get_mut(&of).expect("what is queued is marked").remove(0);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}
