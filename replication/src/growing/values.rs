//! What a list or map holds, as the game sees it.

use super::wire::{Bytes, Op};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};

/// What travels as an item of a list, or of a map: whatever `bitcode` (version 0.6) can encode and decode. Implemented for all of it.
///
/// Its bytes are bounded by [`COLLECTION_ITEM_BYTES`](tidelock_netcore::limits::COLLECTION_ITEM_BYTES), and its own size counts for what
/// a list may take in memory. What it points to does not: `bitcode` can make far more memory of few bytes where there are vectors in
/// vectors, and does so at a guest of a hostile host.
pub trait Item: bitcode::Encode + bitcode::DecodeOwned + Send + Sync + 'static {}

impl<T: bitcode::Encode + bitcode::DecodeOwned + Send + Sync + 'static> Item for T {}

pub(super) trait Values: Any + Send + Sync {
    /// Reads what the operations bring; `false` if some of it is no value of the type. Nothing is changed.
    fn stage(&mut self, ops: &[Op]) -> bool;

    /// Does the operations that were staged last, to what is there or, if they are all there is, to nothing.
    fn commit(&mut self, ops: &[Op], afresh: bool);
}

pub(super) struct ListValues<T> {
    pub(super) now: VecDeque<T>,
    /// What the operations bring, in their order.
    staged: Vec<T>,
}

impl<T> Default for ListValues<T> {
    fn default() -> Self {
        Self { now: VecDeque::new(), staged: Vec::new() }
    }
}

impl<T: Item> Values for ListValues<T> {
    fn stage(&mut self, ops: &[Op]) -> bool {
        // what was staged before goes before there is more of it
        self.staged = Vec::new();
        let mut read = Vec::new();
        for op in ops {
            match op {
                Op::Push(item) | Op::Insert(_, item) | Op::Set(_, item) => match bitcode::decode(item) {
                    Ok(value) => read.push(value),
                    Err(_) => return false,
                },
                Op::Remove(_) | Op::PopFront | Op::Truncate(_) | Op::Clear => {}
                Op::Put(..) | Op::Delete(_) => return false,
            }
        }
        self.staged = read;
        true
    }

    fn commit(&mut self, ops: &[Op], afresh: bool) {
        if afresh {
            self.now.clear();
        }
        let mut staged = std::mem::take(&mut self.staged).into_iter();
        for op in ops {
            match op {
                Op::Push(_) => self.now.extend(staged.next()),
                Op::Insert(at, _) => staged.next().into_iter().for_each(|value| self.now.insert(*at, value)),
                Op::Set(at, _) => staged.next().into_iter().for_each(|value| self.now[*at] = value),
                Op::Remove(at) => drop(self.now.remove(*at)),
                Op::PopFront => drop(self.now.pop_front()),
                Op::Truncate(length) => self.now.truncate(*length),
                Op::Clear => self.now.clear(),
                Op::Put(..) | Op::Delete(_) => {}
            }
        }
    }
}

pub(super) struct MapValues<K, V> {
    pub(super) now: BTreeMap<K, V>,
    /// What the operations bring, in their order: a key, and a value where one is put.
    staged: Vec<(K, Option<V>)>,
}

impl<K, V> Default for MapValues<K, V> {
    fn default() -> Self {
        Self { now: BTreeMap::new(), staged: Vec::new() }
    }
}

impl<K: Item + Ord, V: Item> Values for MapValues<K, V> {
    fn stage(&mut self, ops: &[Op]) -> bool {
        self.staged = Vec::new();
        // what was not encoded as we would could be one key under two names
        let key = |bytes: &Bytes| bitcode::decode::<K>(bytes).ok().filter(|key| *bitcode::encode(key) == **bytes);
        let one = |op: &Op| match op {
            Op::Put(at, item) => Some((key(at)?, Some(bitcode::decode::<V>(item).ok()?))),
            Op::Delete(at) => Some((key(at)?, None)),
            _ => None,
        };
        let staged = ops.iter().filter(|op| **op != Op::Clear).map(one).collect::<Option<_>>();
        let read = staged.is_some();
        self.staged = staged.unwrap_or_default();
        read
    }

    fn commit(&mut self, ops: &[Op], afresh: bool) {
        if afresh {
            self.now.clear();
        }
        let mut staged = std::mem::take(&mut self.staged).into_iter();
        for op in ops {
            match op {
                Op::Clear => self.now.clear(),
                _ => match staged.next() {
                    Some((key, Some(value))) => drop(self.now.insert(key, value)),
                    Some((key, None)) => drop(self.now.remove(&key)),
                    None => {}
                },
            }
        }
    }
}
