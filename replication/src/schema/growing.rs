//! Lists and maps that grow, in the schema.

use super::{SchemaBuilder, SchemaMistake};
use crate::growing::{CollectionEntry, Item};
use tidelock_netcore::limits;

/// How many items there may be if nothing is said.
const USUAL: usize = 1024;

/// Options of a [list](crate::growing).
pub struct ListOptions {
    max: usize,
    rolls: bool,
}

impl ListOptions {
    /// It has at most so many items, up to [`limits::COLLECTION_ITEMS`]. One more is refused at the call. Without this, 1024.
    #[must_use]
    pub fn max(self, items: usize) -> Self {
        Self { max: items, rolls: false }
    }

    /// The same, but what is pushed beyond that makes the item at the front go, as in a feed. That is so for bytes beyond
    /// [`limits::COLLECTION_BYTES`] and [`limits::COLLECTION_MEMORY`] too, but not for what all lists together have. What is inserted
    /// elsewhere is refused.
    #[must_use]
    pub fn keep_last(self, items: usize) -> Self {
        Self { max: items, rolls: true }
    }
}

/// Options of a [map](crate::growing).
pub struct MapOptions {
    max: usize,
}

impl MapOptions {
    /// It has at most so many keys, up to [`limits::COLLECTION_ITEMS`]. One more is refused at the call. Without this, 1024.
    #[must_use]
    pub fn max(self, keys: usize) -> Self {
        Self { max: keys }
    }
}

impl SchemaBuilder {
    /// Registers a [list that grows](crate::growing). Items travel as `bitcode` (version 0.6) makes them, of which the schema's digest
    /// knows nothing but the name of the list: when the type changes, give it another one.
    #[must_use]
    pub fn list<T: Item>(self, name: &str, options: impl FnOnce(ListOptions) -> ListOptions) -> Self {
        let ListOptions { max, rolls } = options(ListOptions { max: USUAL, rolls: false });
        self.collection(CollectionEntry::list::<T>(name, max, rolls))
    }

    /// Registers a [map that grows](crate::growing). What is said of [lists](Self::list) holds for its keys and values.
    #[must_use]
    pub fn map<K: Item + Ord, V: Item>(self, name: &str, options: impl FnOnce(MapOptions) -> MapOptions) -> Self {
        let MapOptions { max } = options(MapOptions { max: USUAL });
        self.collection(CollectionEntry::map::<K, V>(name, max))
    }

    fn collection(mut self, entry: CollectionEntry) -> Self {
        if entry.max == 0 || entry.max > limits::COLLECTION_ITEMS {
            self.mistakes.push(SchemaMistake::Items { name: entry.name.clone(), max: entry.max });
        }
        self.collections.push(entry);
        self
    }
}
