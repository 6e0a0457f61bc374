//! Lists and maps that grow: a kill feed, a chat log, a scoreboard, the inventory of an entity. The host writes them, all guests have
//! them, and of a change goes what has changed.
//!
//! A list in a component ([`collections`](crate::collections)) is bounded by a packet and goes as one value; a
//! [definition](crate::definitions) goes whole whenever it changes. These here are for what is long and changes in little: up to
//! [`limits::COLLECTION_ITEMS`] items and [`limits::COLLECTION_BYTES`] each.
//!
//! ```
//! use tidelock::{Config, Peer, PeerId, Schema};
//!
//! #[derive(bitcode::Encode, bitcode::Decode)]
//! struct Kill { by: PeerId, of: PeerId }
//!
//! let schema = Schema::builder("game")
//!     .list::<Kill>("kills", |l| l.keep_last(100))
//!     .map::<PeerId, u32>("scores", |m| m.max(64))
//!     .build()?;
//! let mut peer = Peer::alone(schema, Config::default())?;
//! let (red, blue) = (PeerId(1), PeerId(2));
//! // at the host:
//! peer.list_mut::<Kill>()?.push(Kill { by: red, of: blue })?;
//! peer.map_mut::<PeerId, u32>()?.insert(red, 1)?;
//! peer.map_mut::<PeerId, u32>()?.update(&red, |score| *score += 1)?;
//! // everywhere:
//! assert_eq!(peer.list::<Kill>()?.iter().filter(|kill| kill.by == red).count(), 1);
//! assert_eq!(peer.map::<PeerId, u32>()?.get(&red), Some(&2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a guest has
//!
//! What the host had at the end of one of its calls of [`Peer::send`], whole: a guest never has a part of what was changed before
//! one send, and never something of an earlier one after it. Each such state has a [revision](List::revision), and
//! [`News::CollectionChanged`] tells of a step from one to another. Who joins, who was shown nothing meanwhile, and whose lane was
//! full gets the operations that it lacks or all that there is, whichever is shorter. There is one log for all guests, no longer than
//! the list itself; of a guest that takes nothing the host keeps which it lacks, and at most one copy of a list that is on its way.
//!
//! # Of an entity
//!
//! [`Peer::list_mut_for`] and [`Peer::map_mut_for`] are of one entity: they go to those who are shown it, and end with it. What
//! changes while a guest is not shown it, it gets when it is again.
//!
//! Lists and maps are no part of the world: they are not saved, rewound or predicted, and a session's end is theirs.

mod content;
mod guest;
mod host;
mod log;
mod values;
mod view;
mod wire;

pub use crate::schema::{ListOptions, MapOptions};
pub(crate) use host::Sent;
pub use values::Item;
pub use view::{List, ListMut, Map, MapMut};
pub(crate) use wire::Sort;

use crate::error::UsageError;
#[cfg(doc)]
use crate::news::News;
use crate::peer::Peer;
use content::{Content, Misfit};
use guest::Early;
use hecs::{Entity, World};
use log::Log;
use rustc_hash::FxHashMap;
use std::any::{TypeId, type_name};
use std::marker::PhantomData;
use tidelock_netcore::limits;
use values::{ListValues, MapValues, Values};
use wire::{Key, Op};

/// Stands where a message's number stands, on the lane of reliable messages. No schema has so many messages.
pub(crate) const MARK: u8 = 254;
const _: () = assert!(limits::MESSAGES <= MARK as usize);

/// The topic of those that are too large for a message.
const TOPIC: u8 = crate::blob::COLLECTIONS;

/// A list or map in the schema.
pub(crate) struct CollectionEntry {
    pub(crate) name: String,
    /// Of [`ListOf`] or [`MapOf`].
    pub(crate) type_id: TypeId,
    pub(crate) sort: Sort,
    pub(crate) max: usize,
    /// What is oldest goes when there are more.
    pub(crate) rolls: bool,
    /// Bytes that are charged for an item beside those that travel.
    pub(crate) each: usize,
    make: fn() -> Box<dyn Values>,
}

struct ListOf<T>(PhantomData<T>);
struct MapOf<K, V>(PhantomData<(K, V)>);

/// What is charged for an item whose value has so many bytes here. On 64 bits a value has at most twice those of 32, and both sides
/// of a session are to charge alike.
const fn charge(size: usize) -> usize {
    limits::COLLECTION_ITEM_MEMORY + size * (8 / size_of::<usize>())
}

impl CollectionEntry {
    pub(crate) fn list<T: Item>(name: &str, max: usize, rolls: bool) -> Self {
        let make: fn() -> Box<dyn Values> = || Box::new(ListValues::<T>::default());
        Self {
            name: name.to_owned(),
            type_id: TypeId::of::<ListOf<T>>(),
            sort: Sort::List,
            max,
            rolls,
            each: charge(size_of::<T>()),
            make,
        }
    }

    pub(crate) fn map<K: Item + Ord, V: Item>(name: &str, max: usize) -> Self {
        let make: fn() -> Box<dyn Values> = || Box::new(MapValues::<K, V>::default());
        let each = charge(size_of::<K>() + size_of::<V>());
        Self { name: name.to_owned(), type_id: TypeId::of::<MapOf<K, V>>(), sort: Sort::Map, max, rolls: false, each, make }
    }

    /// Of nothing yet.
    fn content(&self) -> Content {
        Content::new(self.sort).charging(self.each)
    }
}

/// The lists and maps that a peer has.
#[derive(Default)]
pub(crate) struct Growing {
    held: FxHashMap<Key, Instance>,
    /// What is charged for all of them.
    size: usize,
    /// Host: the highest revision of what has ended. What is new begins there, so that no two states of one name have one revision.
    floor: u64,
    /// Host: those of which messages were made in this send.
    made: Vec<Key>,
    /// Host: those that have changed since the last send.
    changed: Vec<Key>,
    /// Host: those that end with an entity.
    bound: Vec<Key>,
    /// Guest: those whose snapshot is to be asked for.
    lost: Vec<Key>,
    /// Guest: how often one was.
    asked: u32,
    /// Guest: what has come too early.
    early: Early,
}

impl Growing {
    /// Lets one go.
    fn forget(&mut self, at: Key) {
        if let Some(instance) = self.held.remove(&at) {
            self.size -= instance.content.weight();
            self.floor = self.floor.max(instance.revision);
        }
    }

    /// Lets go what is of entities: others come in their place, under the same names.
    pub(crate) fn forget_entities(&mut self) {
        for at in std::mem::take(&mut self.bound) {
            self.forget(at);
        }
    }
}

struct Instance {
    /// What is there, as bytes. At a guest that waits for a snapshot, nothing.
    content: Content,
    values: Box<dyn Values>,
    /// Of the values; at the host, as of the last send.
    revision: u64,
    /// The revision that it began with: there was nothing in it.
    born: u64,
    /// Host: what has led here.
    log: Log,
    /// Host: it is among the changed.
    is_changed: bool,
    /// Guest: the bytes are not those of the host; it waits for a snapshot.
    is_lost: bool,
}

impl Instance {
    fn new(entry: &CollectionEntry, born: u64) -> Self {
        Self {
            content: entry.content(),
            values: (entry.make)(),
            revision: born,
            born,
            log: Log::default(),
            is_changed: false,
            is_lost: false,
        }
    }
}

/// A list or map that is being changed.
struct Editor<'a> {
    instance: &'a mut Instance,
    entry: &'a CollectionEntry,
    at: Key,
    size: &'a mut usize,
    changed: &'a mut Vec<Key>,
}

impl Editor<'_> {
    /// Notes an operation, which is then to be done to the values.
    fn edit(&mut self, op: Op) -> Result<(), UsageError> {
        let content = &self.instance.content;
        check_item(&op)?;
        let after = content.check(&op, self.entry.max).map_err(|misfit| self.refusal(misfit, &op))?;
        let (before, limit) = (content.weight(), limits::COLLECTIONS_BYTES);
        if after > before && *self.size - before + after > limit {
            return Err(UsageError::TooLarge { what: TOGETHER, size: *self.size - before + after, limit });
        }
        let done = self.instance.content.apply(&op, self.entry.max);
        debug_assert!(done.is_ok(), "it was found possible");
        *self.size = *self.size - before + self.instance.content.weight();
        self.instance.log.note(op, self.instance.revision + 1, &self.instance.content);
        if !self.instance.is_changed {
            self.instance.is_changed = true;
            self.changed.push(self.at);
        }
        Ok(())
    }

    /// How many items at the front have to go for one of so many bytes at the end, by what the list itself may have. What others
    /// have is no reason to drop any.
    fn to_drop(&self, size: usize) -> Result<usize, UsageError> {
        let (content, each) = (&self.instance.content, self.entry.each);
        let (mut drop, mut after) = (0, content.size() + size);
        let fits = |drop: usize, after: usize| {
            let count = content.len() - drop + 1;
            count <= self.entry.max && after <= limits::COLLECTION_BYTES && after + count * each <= limits::COLLECTION_MEMORY
        };
        while !fits(drop, after) {
            let Some(first) = content.in_list(drop) else { break };
            after -= wire::size(first);
            drop += 1;
        }
        let all = *self.size - content.weight() + after + (content.len() - drop + 1) * each;
        let limit = limits::COLLECTIONS_BYTES;
        if all > limit { Err(UsageError::TooLarge { what: TOGETHER, size: all, limit }) } else { Ok(drop) }
    }

    fn refusal(&self, misfit: Misfit, op: &Op) -> UsageError {
        let len = self.instance.content.len();
        let index = match op {
            Op::Insert(at, _) | Op::Set(at, _) | Op::Remove(at) => *at,
            _ => 0,
        };
        match misfit {
            Misfit::NoSuch => UsageError::NoSuchItem { index, len },
            Misfit::Count => UsageError::CollectionFull { max: self.entry.max },
            Misfit::Bytes => {
                let (size, limit) = (self.instance.content.size() + op.size(), limits::COLLECTION_BYTES);
                UsageError::TooLarge { what: "a list or map", size, limit }
            }
            Misfit::Memory => {
                let size = self.instance.content.weight() + self.entry.each + op.size();
                UsageError::TooLarge { what: "a list or map in memory", size, limit: limits::COLLECTION_MEMORY }
            }
        }
    }
}

const TOGETHER: &str = "all lists and maps together";

/// Is what it brings small enough?
fn check_item(op: &Op) -> Result<(), UsageError> {
    let size = match op {
        Op::Push(item) | Op::Insert(_, item) | Op::Set(_, item) => item.len(),
        Op::Put(key, item) => key.len() + item.len(),
        Op::Remove(_) | Op::PopFront | Op::Truncate(_) | Op::Clear | Op::Delete(_) => 0,
    };
    let limit = limits::COLLECTION_ITEM_BYTES;
    if size > limit { Err(UsageError::TooLarge { what: "an item with its key", size, limit }) } else { Ok(()) }
}

impl Peer {
    fn collection<M: 'static>(&self, name: &'static str) -> Result<u8, UsageError> {
        let found = self.schema.collections.iter().position(|entry| entry.type_id == TypeId::of::<M>());
        found.map(|index| index as u8).ok_or(UsageError::NotInSchema(name))
    }

    /// The number of an entity's name.
    fn number_of(&self, world: &World, entity: Entity) -> Result<u64, UsageError> {
        self.name_of(world, entity).map(|net| net.0).ok_or(UsageError::NotNetworked)
    }

    fn list_index<T: Item>(&self) -> Result<u8, UsageError> {
        self.collection::<ListOf<T>>(type_name::<T>())
    }

    fn map_index<K: Item + Ord, V: Item>(&self) -> Result<u8, UsageError> {
        self.collection::<MapOf<K, V>>(type_name::<(K, V)>())
    }

    /// A list, as this peer has it: at a guest, empty until the host's has come.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn list<T: Item>(&self) -> Result<List<'_, T>, UsageError> {
        Ok(List::of(self.growing.held.get(&(self.list_index::<T>()?, 0))))
    }

    /// The list of an entity, as this peer has it.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotNetworked`].
    pub fn list_for<T: Item>(&self, world: &World, entity: Entity) -> Result<List<'_, T>, UsageError> {
        Ok(List::of(self.growing.held.get(&(self.list_index::<T>()?, self.number_of(world, entity)?))))
    }

    /// A map, as this peer has it: at a guest, empty until the host's has come.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn map<K: Item + Ord, V: Item>(&self) -> Result<Map<'_, K, V>, UsageError> {
        Ok(Map::of(self.growing.held.get(&(self.map_index::<K, V>()?, 0))))
    }

    /// The map of an entity, as this peer has it.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotNetworked`].
    pub fn map_for<K: Item + Ord, V: Item>(&self, world: &World, entity: Entity) -> Result<Map<'_, K, V>, UsageError> {
        Ok(Map::of(self.growing.held.get(&(self.map_index::<K, V>()?, self.number_of(world, entity)?))))
    }

    /// A list, to be changed (host only).
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotAllowed`] at a guest.
    pub fn list_mut<T: Item>(&mut self) -> Result<ListMut<'_, T>, UsageError> {
        Ok(ListMut::new(self.editor((self.list_index::<T>()?, 0))?))
    }

    /// The list of an entity, to be changed (host only): it goes to those who are shown the entity, and ends with it. What a guest
    /// had of it before the entity was hidden from it stays with the guest, as of a definition, unless there is no room for what it is
    /// shown now.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotAllowed`] at a guest, [`UsageError::NotNetworked`], and
    /// [`UsageError::TooManyCollections`] beyond [`limits::COLLECTIONS_HELD`] of all entities together.
    pub fn list_mut_for<T: Item>(&mut self, world: &World, entity: Entity) -> Result<ListMut<'_, T>, UsageError> {
        let at = (self.list_index::<T>()?, self.number_of(world, entity)?);
        Ok(ListMut::new(self.editor(at)?))
    }

    /// A map, to be changed (host only).
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotAllowed`] at a guest.
    pub fn map_mut<K: Item + Ord, V: Item>(&mut self) -> Result<MapMut<'_, K, V>, UsageError> {
        Ok(MapMut::new(self.editor((self.map_index::<K, V>()?, 0))?))
    }

    /// The map of an entity, to be changed (host only): see [`list_mut_for`](Self::list_mut_for).
    ///
    /// # Errors
    /// Those of [`list_mut_for`](Self::list_mut_for).
    pub fn map_mut_for<K: Item + Ord, V: Item>(&mut self, world: &World, entity: Entity) -> Result<MapMut<'_, K, V>, UsageError> {
        let at = (self.map_index::<K, V>()?, self.number_of(world, entity)?);
        Ok(MapMut::new(self.editor(at)?))
    }

    fn editor(&mut self, at: Key) -> Result<Editor<'_>, UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("change a list or map"));
        }
        let entry = &self.schema.collections[usize::from(at.0)];
        let Growing { held, size, changed, bound, floor, .. } = &mut self.growing;
        if at.1 != 0 && !held.contains_key(&at) {
            if bound.len() >= limits::COLLECTIONS_HELD {
                return Err(UsageError::TooManyCollections);
            }
            bound.push(at);
        }
        let instance = held.entry(at).or_insert_with(|| Instance::new(entry, *floor));
        Ok(Editor { instance, entry, at, size, changed })
    }
}

#[cfg(test)]
mod tests;
