//! Lists and maps, as the game reads and changes them.

use super::values::{Item, ListValues, MapValues};
use super::wire::{Bytes, Op};
use super::{Editor, Instance, check_item};
use crate::error::UsageError;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::ops::Deref;
#[cfg(doc)]
use tidelock_netcore::limits;

struct Empty<K, V>(PhantomData<(K, V)>);

impl<K: 'static, V: 'static> Empty<K, V> {
    const LIST: &'static VecDeque<V> = &VecDeque::new();
    const MAP: &'static BTreeMap<K, V> = &BTreeMap::new();
}

fn list_of<T: Item>(instance: &Instance) -> Option<&VecDeque<T>> {
    let values: &dyn Any = &*instance.values;
    values.downcast_ref::<ListValues<T>>().map(|values| &values.now)
}

fn map_of<K: Item + Ord, V: Item>(instance: &Instance) -> Option<&BTreeMap<K, V>> {
    let values: &dyn Any = &*instance.values;
    values.downcast_ref::<MapValues<K, V>>().map(|values| &values.now)
}

/// A list as a peer has it: reads like the [`VecDeque`] that it is.
#[derive(Debug)]
pub struct List<'a, T> {
    items: &'a VecDeque<T>,
    revision: u64,
}

impl<'a, T: Item> List<'a, T> {
    pub(super) fn of(instance: Option<&'a Instance>) -> Self {
        let items = instance.and_then(list_of).unwrap_or(Empty::<(), T>::LIST);
        Self { items, revision: instance.map_or(0, |instance| instance.revision) }
    }
}

impl<'a, T> List<'a, T> {
    /// Which of the states that the host had at the end of a send; 0 before the first, or that of an earlier one of the same name. At the host, that of the last send, whatever
    /// was changed since.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The items, for as long as the peer is borrowed.
    #[must_use]
    pub fn items(&self) -> &'a VecDeque<T> {
        self.items
    }
}

impl<T> Deref for List<'_, T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &VecDeque<T> {
        self.items
    }
}

impl<'a, T> IntoIterator for List<'a, T> {
    type Item = &'a T;
    type IntoIter = std::collections::vec_deque::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

/// A map as a peer has it: reads like the [`BTreeMap`] that it is.
#[derive(Debug)]
pub struct Map<'a, K, V> {
    items: &'a BTreeMap<K, V>,
    revision: u64,
}

impl<'a, K: Item + Ord, V: Item> Map<'a, K, V> {
    pub(super) fn of(instance: Option<&'a Instance>) -> Self {
        let items = instance.and_then(map_of).unwrap_or(Empty::<K, V>::MAP);
        Self { items, revision: instance.map_or(0, |instance| instance.revision) }
    }
}

impl<'a, K, V> Map<'a, K, V> {
    /// Which of the states that the host had at the end of a send: see [`List::revision`].
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The items, for as long as the peer is borrowed.
    #[must_use]
    pub fn items(&self) -> &'a BTreeMap<K, V> {
        self.items
    }
}

impl<K, V> Deref for Map<'_, K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        self.items
    }
}

impl<'a, K, V> IntoIterator for Map<'a, K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = std::collections::btree_map::Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

fn encoded<T: bitcode::Encode>(value: &T) -> Bytes {
    bitcode::encode(value).into()
}

/// Puts back what was there unless it is disarmed.
struct Undo<'a, T> {
    value: &'a mut T,
    old: Option<T>,
}

impl<T> Drop for Undo<'_, T> {
    fn drop(&mut self) {
        if let Some(old) = self.old.take() {
            *self.value = old;
        }
    }
}

/// Changes a value that was encoded as `before`: what the closure gives, the new bytes, and the old value.
fn changed<T: Item, R>(value: &mut T, before: &Bytes, change: impl FnOnce(&mut T) -> R) -> Result<(R, Bytes, T), UsageError> {
    const UNREADABLE: UsageError = UsageError::Config("an item of a list or map cannot be read from its own bytes");
    let old = bitcode::decode::<T>(before).map_err(|_| UNREADABLE)?;
    let mut undo = Undo { value, old: Some(old) };
    let result = change(undo.value);
    let after = encoded(undo.value);
    let old = undo.old.take().ok_or(UNREADABLE)?;
    Ok((result, after, old))
}

/// A list of the host, to be changed. It reads like the [`VecDeque`] that it is.
///
/// A call that fails has changed nothing. Of an item as it travels, its bytes are bounded by [`limits::COLLECTION_ITEM_BYTES`], of a
/// list by [`limits::COLLECTION_BYTES`]. What a list takes in memory, each item charged with the size of its type and
/// [`limits::COLLECTION_ITEM_MEMORY`], is bounded by [`limits::COLLECTION_MEMORY`], and that of all lists and maps of a host by
/// [`limits::COLLECTIONS_BYTES`]. Beyond,
/// [`UsageError::TooLarge`] is returned, and [`UsageError::CollectionFull`] for more items than the schema allows.
pub struct ListMut<'a, T> {
    editor: Editor<'a>,
    of: PhantomData<T>,
}

impl<'a, T: Item> ListMut<'a, T> {
    pub(super) fn new(editor: Editor<'a>) -> Self {
        Self { editor, of: PhantomData }
    }

    fn values(&mut self) -> &mut VecDeque<T> {
        let values: &mut dyn Any = &mut *self.editor.instance.values;
        // an entry is found by the type of its items
        &mut values.downcast_mut::<ListValues<T>>().expect("the values are of the entry's type").now
    }

    fn drop_front(&mut self) -> Result<(), UsageError> {
        self.editor.edit(Op::PopFront)?;
        self.values().pop_front();
        Ok(())
    }

    /// Adds an item at the end. In a list that [keeps the last](crate::growing::ListOptions::keep_last) those at the front go for it.
    /// They go for what that list itself may have: where all lists and maps together have too much, the call fails.
    ///
    /// # Errors
    /// [`UsageError::TooLarge`], [`UsageError::CollectionFull`].
    pub fn push(&mut self, item: T) -> Result<(), UsageError> {
        let op = Op::Push(encoded(&item));
        check_item(&op)?;
        if self.editor.entry.rolls {
            for _ in 0..self.editor.to_drop(op.size() - 1)? {
                self.drop_front()?;
            }
        }
        self.editor.edit(op)?;
        self.values().push_back(item);
        Ok(())
    }

    /// Adds an item before the one at `index`, or at the end if that is the length.
    ///
    /// # Errors
    /// [`UsageError::NoSuchItem`] beyond the length, [`UsageError::TooLarge`], [`UsageError::CollectionFull`].
    pub fn insert(&mut self, index: usize, item: T) -> Result<(), UsageError> {
        self.editor.edit(Op::Insert(index, encoded(&item)))?;
        self.values().insert(index, item);
        Ok(())
    }

    /// Puts an item in the place of another. If it is encoded as that one was, nothing has changed.
    ///
    /// # Errors
    /// [`UsageError::NoSuchItem`], [`UsageError::TooLarge`].
    pub fn set(&mut self, index: usize, item: T) -> Result<(), UsageError> {
        self.put(index, &item)?;
        self.values()[index] = item;
        Ok(())
    }

    /// Notes that an item is another one now.
    fn put(&mut self, index: usize, item: &T) -> Result<(), UsageError> {
        let bytes = encoded(item);
        if self.editor.instance.content.in_list(index) == Some(&bytes) {
            return Ok(());
        }
        self.editor.edit(Op::Set(index, bytes))
    }

    /// Changes an item in its place, and gives what the closure gives. If that panics the item is what it was.
    ///
    /// # Errors
    /// [`UsageError::NoSuchItem`], [`UsageError::TooLarge`], and [`UsageError::Config`] for an item that cannot be read from its own
    /// bytes. Then the item is what it was.
    pub fn update<R>(&mut self, index: usize, change: impl FnOnce(&mut T) -> R) -> Result<R, UsageError> {
        let len = self.len();
        let Some(before) = self.editor.instance.content.in_list(index).cloned() else {
            return Err(UsageError::NoSuchItem { index, len });
        };
        let Some(item) = self.values().get_mut(index) else { return Err(UsageError::NoSuchItem { index, len }) };
        let (result, after, old) = changed(item, &before, change)?;
        if after == before {
            return Ok(result);
        }
        if let Err(error) = self.editor.edit(Op::Set(index, after)) {
            self.values()[index] = old;
            return Err(error);
        }
        Ok(result)
    }

    /// Takes an item out; `None` if there is none.
    pub fn remove(&mut self, index: usize) -> Option<T> {
        self.editor.edit(Op::Remove(index)).ok()?;
        self.values().remove(index)
    }

    /// Takes the first item out; `None` if there is none.
    pub fn pop_front(&mut self) -> Option<T> {
        self.editor.edit(Op::PopFront).ok()?;
        self.values().pop_front()
    }

    /// Takes the last item out; `None` if there is none.
    pub fn pop_back(&mut self) -> Option<T> {
        let last = self.len().checked_sub(1)?;
        self.editor.edit(Op::Truncate(last)).ok()?;
        self.values().pop_back()
    }

    /// Drops what is beyond a length.
    pub fn truncate(&mut self, length: usize) {
        if length < self.len() && self.editor.edit(Op::Truncate(length)).is_ok() {
            self.values().truncate(length);
        }
    }

    /// Drops all items.
    pub fn clear(&mut self) {
        if !self.is_empty() && self.editor.edit(Op::Clear).is_ok() {
            self.values().clear();
        }
    }
}

impl<T: Item> Deref for ListMut<'_, T> {
    type Target = VecDeque<T>;

    fn deref(&self) -> &VecDeque<T> {
        list_of(self.editor.instance).unwrap_or(Empty::<(), T>::LIST)
    }
}

/// A map of the host, to be changed. It reads like the [`BTreeMap`] that it is.
///
/// Two keys that are equal must be encoded as the same bytes, and two that are not must not: for what derives both it is so. What is
/// said of limits at [`ListMut`] holds for a key and its value together.
pub struct MapMut<'a, K, V> {
    editor: Editor<'a>,
    of: PhantomData<(K, V)>,
}

impl<'a, K: Item + Ord, V: Item> MapMut<'a, K, V> {
    pub(super) fn new(editor: Editor<'a>) -> Self {
        Self { editor, of: PhantomData }
    }

    fn values(&mut self) -> &mut BTreeMap<K, V> {
        let values: &mut dyn Any = &mut *self.editor.instance.values;
        // an entry is found by the types of its keys and values
        &mut values.downcast_mut::<MapValues<K, V>>().expect("the values are of the entry's type").now
    }

    /// What a key that is there travels as, which one that is equal to it may not.
    fn name_of(&self, key: &K) -> Option<Bytes> {
        self.get_key_value(key).map(|(stored, _)| encoded(stored))
    }

    /// Puts a value under a key, and gives the one that was there. If it is encoded as that one was, nothing has changed.
    ///
    /// # Errors
    /// [`UsageError::TooLarge`], [`UsageError::CollectionFull`]; [`UsageError::Config`] for a key that is equal to another, but not
    /// encoded as that, or the other way round.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, UsageError> {
        let (name, bytes) = (encoded(&key), encoded(&value));
        let old = self.editor.instance.content.in_map(&name);
        if old.is_some() != self.contains_key(&key) {
            return Err(UsageError::Config("two keys of a map are equal, but not encoded as the same bytes"));
        }
        if old != Some(&bytes) {
            self.editor.edit(Op::Put(name, bytes))?;
        }
        Ok(self.values().insert(key, value))
    }

    /// Changes the value under a key, and gives what the closure gives; `None` if there is none. If that panics the value is what it was.
    ///
    /// # Errors
    /// [`UsageError::TooLarge`], and [`UsageError::Config`] for a value that cannot be read from its own bytes. Then the value is what
    /// it was.
    pub fn update<R>(&mut self, key: &K, change: impl FnOnce(&mut V) -> R) -> Result<Option<R>, UsageError> {
        let Some(name) = self.name_of(key) else { return Ok(None) };
        let Some(before) = self.editor.instance.content.in_map(&name).cloned() else { return Ok(None) };
        let Some(value) = self.values().get_mut(key) else { return Ok(None) };
        let (result, after, old) = changed(value, &before, change)?;
        if after == before {
            return Ok(Some(result));
        }
        if let Err(error) = self.editor.edit(Op::Put(name, after)) {
            if let Some(value) = self.values().get_mut(key) {
                *value = old;
            }
            return Err(error);
        }
        Ok(Some(result))
    }

    /// Takes a value out; `None` if there is none.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let name = self.name_of(key)?;
        self.editor.edit(Op::Delete(name)).ok()?;
        self.values().remove(key)
    }

    /// Drops all.
    pub fn clear(&mut self) {
        if !self.is_empty() && self.editor.edit(Op::Clear).is_ok() {
            self.values().clear();
        }
    }
}

impl<K: Item + Ord, V: Item> Deref for MapMut<'_, K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        map_of(self.editor.instance).unwrap_or(Empty::<K, V>::MAP)
    }
}
