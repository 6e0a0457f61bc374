//! The operations that a host remembers of one list or map, for all its guests together.

use super::content::Content;
use super::wire::{self, Bytes, Key, Op};
use std::collections::VecDeque;
use tidelock_netcore::limits;

/// Bytes of operations that are kept in any case. Beyond, whatever is longer than a snapshot of all is of no use.
const LEAST: usize = 1024;
/// Messages made of one revision that are kept for the next guest who needs the same: most are where most are.
const MADE: usize = 4;

#[derive(Default)]
pub(super) struct Log {
    ops: VecDeque<Entry>,
    /// All operations there ever were.
    end: Cost,
    /// From this revision on there are all operations.
    from: u64,
    made: Vec<(Option<u64>, Bytes)>,
}

/// What operations come to.
#[derive(Clone, Copy, Default)]
struct Cost {
    bytes: u64,
    /// Items that they move.
    shifts: u64,
    /// Values that have to be kept until all of them have been read.
    values: u64,
}

impl Cost {
    fn since(self, start: Self) -> Self {
        Self { bytes: self.bytes - start.bytes, shifts: self.shifts - start.shifts, values: self.values - start.values }
    }
}

struct Entry {
    /// The revision that it is a part of.
    revision: u64,
    /// All operations before it.
    start: Cost,
    op: Op,
}

/// What a guest is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// What the batch starts from; `None` for a snapshot.
    pub(super) base: Option<u64>,
    /// Bytes, but for the head of the message.
    pub(super) size: usize,
}

impl Log {
    /// An operation was done, which has led to `content`.
    pub(super) fn note(&mut self, op: Op, revision: u64, content: &Content) {
        let start = self.end;
        let before = match &op {
            Op::Insert(..) => content.len() - 1,
            Op::Remove(_) => content.len() + 1,
            _ => 0,
        };
        self.end.bytes += op.size() as u64;
        self.end.shifts += op.shift(before) as u64;
        self.end.values += u64::from(op.brings());
        self.ops.push_back(Entry { revision, start, op });
        let most = (content.size() + LEAST) as u64;
        while let Some(first) = self.ops.front() {
            if self.end.bytes - first.start.bytes <= most && self.ops.len() <= limits::COLLECTION_ITEMS {
                break;
            }
            self.from = first.revision;
            self.ops.pop_front();
        }
    }

    /// Everybody has been told: what was made is of no more use.
    pub(super) fn settle(&mut self) {
        self.made.clear();
    }

    /// Messages that are kept.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        self.made.len()
    }

    /// Bytes of the operations that are kept.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.ops.front().map_or(0, |first| self.end.bytes - first.start.bytes) as usize
    }

    fn first_after(&self, base: u64) -> usize {
        self.ops.partition_point(|entry| entry.revision <= base)
    }

    /// What is shorter for a guest that has revision `base`, or that of which nothing is known. What is too much work goes as a snapshot.
    pub(super) fn plan(&self, base: Option<u64>, content: &Content) -> Plan {
        let each = content.each() as u64;
        let batch = base.filter(|base| *base >= self.from).and_then(|base| {
            let start = self.ops.get(self.first_after(base)).map_or(self.end, |entry| entry.start);
            let cost = self.end.since(start);
            let bears = cost.shifts <= limits::COLLECTION_SHIFTS as u64 && cost.values * each <= limits::COLLECTION_MEMORY as u64;
            bears.then_some(Plan { base: Some(base), size: cost.bytes as usize })
        });
        batch.filter(|batch| batch.size <= content.size() + 1).unwrap_or(Plan { base: None, size: content.size() })
    }

    /// The message of a plan, which leads to `revision`.
    pub(super) fn message(&mut self, plan: Plan, at: Key, revision: u64, content: &Content) -> Bytes {
        if let Some((_, bytes)) = self.made.iter().find(|made| made.0 == plan.base) {
            return bytes.clone();
        }
        let mut out = Vec::with_capacity(plan.size + wire::HEAD);
        match plan.base {
            Some(base) => {
                let first = self.first_after(base);
                wire::batch_head(at, base, revision, content.digest(), self.ops.len() - first, &mut out);
                self.ops.range(first..).for_each(|entry| entry.op.write(&mut out));
            }
            None => {
                wire::snapshot_head(at, revision, content.digest(), content.len(), &mut out);
                content.write(&mut out);
            }
        }
        let bytes: Bytes = out.into();
        if self.made.len() == MADE {
            self.made.remove(0);
        }
        self.made.push((plan.base, bytes.clone()));
        bytes
    }
}
