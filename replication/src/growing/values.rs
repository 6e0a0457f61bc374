//! What a list or map holds, as the game sees it.

use super::wire::{Bytes, Op};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};

/// What travels as an item of a list, or of a map: whatever `bitcode` (version 0.6) can encode and decode. Implemented for all of it.
pub trait Item: bitcode::Encode + bitcode::DecodeOwned + Send + Sync + 'static {}

impl<T: bitcode::Encode + bitcode::DecodeOwned + Send + Sync + 'static> Item for T {}

pub(super) trait Values: Any + Send + Sync {
    /// Reads what the operations bring; `false` if some of it is no value of the type. Nothing is changed.
    fn stage(&mut self, ops: &[Op]) -> bool;

    /// Does the operations that were staged last, to what is there or, if they are all there is, to nothing.
    fn commit(&mut self, afresh: bool);
}

pub(super) struct ListValues<T> {
    pub(super) now: VecDeque<T>,
    staged: Vec<ListStep<T>>,
}

enum ListStep<T> {
    Push(T),
    Insert(usize, T),
    Set(usize, T),
    Remove(usize),
    PopFront,
    Truncate(usize),
    Clear,
}

impl<T> Default for ListValues<T> {
    fn default() -> Self {
        Self { now: VecDeque::new(), staged: Vec::new() }
    }
}

impl<T: Item> Values for ListValues<T> {
    fn stage(&mut self, ops: &[Op]) -> bool {
        let value = |bytes: &Bytes| bitcode::decode::<T>(bytes).ok();
        let step = |op: &Op| {
            Some(match op {
                Op::Push(item) => ListStep::Push(value(item)?),
                Op::Insert(at, item) => ListStep::Insert(*at, value(item)?),
                Op::Set(at, item) => ListStep::Set(*at, value(item)?),
                Op::Remove(at) => ListStep::Remove(*at),
                Op::PopFront => ListStep::PopFront,
                Op::Truncate(length) => ListStep::Truncate(*length),
                Op::Clear => ListStep::Clear,
                Op::Put(..) | Op::Delete(_) => return None,
            })
        };
        let staged = ops.iter().map(step).collect::<Option<_>>();
        let read = staged.is_some();
        self.staged = staged.unwrap_or_default();
        read
    }

    fn commit(&mut self, afresh: bool) {
        if afresh {
            self.now.clear();
        }
        for step in std::mem::take(&mut self.staged) {
            match step {
                ListStep::Push(value) => self.now.push_back(value),
                ListStep::Insert(at, value) => self.now.insert(at, value),
                ListStep::Set(at, value) => self.now[at] = value,
                ListStep::Remove(at) => drop(self.now.remove(at)),
                ListStep::PopFront => drop(self.now.pop_front()),
                ListStep::Truncate(length) => self.now.truncate(length),
                ListStep::Clear => self.now.clear(),
            }
        }
    }
}

pub(super) struct MapValues<K, V> {
    pub(super) now: BTreeMap<K, V>,
    staged: Vec<MapStep<K, V>>,
}

enum MapStep<K, V> {
    Put(K, V),
    Delete(K),
    Clear,
}

impl<K, V> Default for MapValues<K, V> {
    fn default() -> Self {
        Self { now: BTreeMap::new(), staged: Vec::new() }
    }
}

impl<K: Item + Ord, V: Item> Values for MapValues<K, V> {
    fn stage(&mut self, ops: &[Op]) -> bool {
        // what was not encoded as we would could be one key under two names
        let key = |bytes: &Bytes| bitcode::decode::<K>(bytes).ok().filter(|key| *bitcode::encode(key) == **bytes);
        let step = |op: &Op| {
            Some(match op {
                Op::Put(at, item) => MapStep::Put(key(at)?, bitcode::decode::<V>(item).ok()?),
                Op::Delete(at) => MapStep::Delete(key(at)?),
                Op::Clear => MapStep::Clear,
                _ => return None,
            })
        };
        let staged = ops.iter().map(step).collect::<Option<_>>();
        let read = staged.is_some();
        self.staged = staged.unwrap_or_default();
        read
    }

    fn commit(&mut self, afresh: bool) {
        if afresh {
            self.now.clear();
        }
        for step in std::mem::take(&mut self.staged) {
            match step {
                MapStep::Put(key, value) => drop(self.now.insert(key, value)),
                MapStep::Delete(key) => drop(self.now.remove(&key)),
                MapStep::Clear => self.now.clear(),
            }
        }
    }
}
