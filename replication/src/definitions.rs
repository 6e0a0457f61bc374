//! Definitions: large values that rarely change, and are named by their key and revision from what changes all the time.
//!
//! An outfit of 30 kB does not fit a component, and need not: the component holds a [`DefinitionRef`], which is 12 bytes, and the
//! outfit goes to each guest once, on the lane of large things, when nothing else needs the room. The host defines it with
//! [`Peer::define`]; who joins later gets what is defined then. If only those who see an entity are to have it, it is defined with
//! [`Peer::define_for`], and the entity's end is its own.
//!
//! State is faster than what it names, and a newer revision may be on its way while the state names the one before. So a guest
//! keeps two revisions of each, and [`Peer::definition`] says what it has: the very one, another one, which is *stale*, or none yet.
//! It never shows a part: a revision is there when all of it has come and could be read. Nothing waits inside the framework, so
//! there is no bound on states that wait, and news tell when it is time to look again ([`News::Defined`]).
//!
//! ```
//! use tidelock::{Config, Defined, DefinitionRef, Peer, Replicate, Schema};
//!
//! #[derive(bitcode::Encode, bitcode::Decode)]
//! struct Outfit { layers: Vec<String> }
//!
//! #[derive(Replicate)]
//! struct Wears { outfit: DefinitionRef<Outfit> }
//!
//! let schema = Schema::builder("game").component::<Wears>("wears", |c| c).definition::<Outfit>("outfit").build()?;
//! let mut peer = Peer::alone(schema, Config::default())?;
//! let outfit = peer.define(7, Outfit { layers: vec!["hat".into()] })?;
//! // a component `Wears { outfit }` travels as any other; whoever has it asks:
//! if let Defined::Exact(outfit) = peer.definition(outfit)? {
//!     assert_eq!(outfit.layers, ["hat"]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::blob::DEFINITIONS as TOPIC;
use crate::checkpoint::{Checkpoint, CheckpointError, CheckpointReader, CheckpointWriter, Differ};
use crate::error::UsageError;
use crate::layout::LayoutBuilder;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::replicate::{FieldError, Quantiser, Replicate, RestoreError, Restorer};
use hecs::{Entity, World};
use rustc_hash::FxHashMap;
use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use tidelock_netcore::error::DisconnectReason;
use tidelock_netcore::limits;

mod batch;

use batch::{Change, What};

/// The name of one revision of a definition of type `T`: a field of a component, see [`definitions`](self).
pub struct DefinitionRef<T> {
    /// Which definition, as [`Peer::define`] was told.
    pub key: u64,
    /// Which revision of it. Of two of one key the later one is the greater.
    pub revision: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> DefinitionRef<T> {
    /// A name, from its parts.
    #[must_use]
    pub fn new(key: u64, revision: u32) -> Self {
        Self { key, revision, of: PhantomData }
    }
}

impl<T> Clone for DefinitionRef<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DefinitionRef<T> {}

impl<T> PartialEq for DefinitionRef<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.key, self.revision) == (other.key, other.revision)
    }
}

impl<T> Eq for DefinitionRef<T> {}

impl<T> fmt::Debug for DefinitionRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key, self.revision)
    }
}

impl<T: 'static> Replicate for DefinitionRef<T> {
    type Raw = [u32; 3];
    const WORDS: usize = 3;

    fn layout(l: &mut LayoutBuilder) {
        l.wide("key");
        l.integer("revision", 0, u32::MAX.into(), crate::field::INTEGER_ORDER);
    }

    fn raw(&self) -> [u32; 3] {
        [self.key as u32, (self.key >> 32) as u32, self.revision]
    }

    fn quantise(&self, out: &mut Quantiser<'_>) -> Result<(), FieldError> {
        out.wide(self.key);
        out.integer("revision", self.revision.into(), 0, u32::MAX.into())
    }

    fn restore(from: &mut Restorer<'_>) -> Result<Self, RestoreError> {
        Ok(Self::new(from.wide("key")?, from.integer("revision", 0, u32::MAX.into())? as u32))
    }
}

impl<T: 'static> Checkpoint for DefinitionRef<T> {
    const PLAIN: bool = true;

    fn save_into(&self, into: &mut Self) {
        *into = *self;
    }

    fn write(&self, w: &mut CheckpointWriter<'_>) {
        self.key.write(w);
        self.revision.write(w);
    }

    fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
        Ok(Self::new(u64::read(r)?, u32::read(r)?))
    }

    fn differ(&self, other: &Self, at: &mut Differ<'_>) -> bool {
        at.field("key", |at| self.key.differ(&other.key, at))
            || at.field("revision", |at| self.revision.differ(&other.revision, at))
    }
}

/// What a peer has of a definition.
#[derive(Debug, PartialEq, Eq)]
pub enum Defined<T> {
    /// The revision that was asked for.
    Exact(Arc<T>),
    /// Another one: what was asked for is on its way, or is given up for a later one that is here.
    Stale {
        /// It.
        value: Arc<T>,
        /// Its revision.
        revision: u32,
    },
    /// None yet, or none any more.
    Missing,
}

impl<T> Defined<T> {
    /// What there is to show.
    #[must_use]
    pub fn value(&self) -> Option<&Arc<T>> {
        match self {
            Self::Exact(value) | Self::Stale { value, .. } => Some(value),
            Self::Missing => None,
        }
    }
}

type AnyValue = Arc<dyn Any + Send + Sync>;
/// Which type by the order of their names, and which of it.
type Key = (u8, u64);

/// A type of definitions in the schema.
pub(crate) struct DefinitionEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
    decode: fn(&[u8]) -> Option<AnyValue>,
}

impl DefinitionEntry {
    pub(crate) fn new<T: bitcode::Encode + bitcode::DecodeOwned + Send + Sync + 'static>(name: &str) -> Self {
        let decode: fn(&[u8]) -> Option<AnyValue> = |bytes| Some(Arc::new(bitcode::decode::<T>(bytes).ok()?));
        Self { name: name.to_owned(), type_id: TypeId::of::<T>(), decode }
    }
}

/// The definitions that a peer has.
#[derive(Default)]
pub(crate) struct Definitions {
    held: FxHashMap<Key, Held>,
    /// Bytes of the newest revisions.
    size: usize,
    /// Host: what was defined, in order: what is defined again moves to the end.
    order: BTreeMap<u64, Key>,
    placed: u64,
    /// Host: revisions are given out over all keys, so that none comes again after its end.
    revisions: u32,
    /// Host: those that end with an entity.
    bound: Vec<Key>,
}

struct Held {
    revision: u32,
    value: AnyValue,
    size: usize,
    /// Guest: the revision before.
    before: Option<(u32, AnyValue)>,
    /// Host: as it travels, where in the order, and whose it is.
    bytes: Arc<[u8]>,
    place: u64,
    of: Option<NetId>,
}

/// Host: what one guest was sent.
#[derive(Default)]
pub(crate) struct Told {
    /// Everything in the order below that was looked at.
    read: u64,
    /// What was not the guest's to see when it was looked at.
    hidden: BTreeSet<Key>,
    sent: FxHashMap<Key, u32>,
    ended: Vec<Key>,
}

impl Definitions {
    /// What is kept may grow by that much, in place of `old` bytes of the same key.
    fn has_room(&self, is_new: bool, size: usize, old: usize) -> bool {
        (!is_new || self.held.len() < limits::DEFINITIONS) && self.size - old + size <= limits::DEFINITIONS_BYTES
    }

    fn remove(&mut self, key: Key) -> bool {
        let Some(held) = self.held.remove(&key) else { return false };
        self.size -= held.size;
        self.order.remove(&held.place);
        self.bound.retain(|bound| *bound != key);
        true
    }
}

impl Peer {
    fn definition_index<T: 'static>(&self) -> Result<u8, UsageError> {
        let found = self.schema.definitions.iter().position(|d| d.type_id == TypeId::of::<T>());
        found.map(|index| index as u8).ok_or(UsageError::NotInSchema(type_name::<T>()))
    }

    /// Defines something, or a new revision of it, for all guests there are and will be (host only), until it is
    /// [forgotten](Self::forget_definition). `key` is the game's own. What is just what it was keeps its revision.
    ///
    /// # Errors
    /// [`UsageError::TooLarge`] if it takes more than [`limits::DEFINITION_BYTES`] (1 MiB) as it travels, or all together more than
    /// [`limits::DEFINITIONS_BYTES`] (32 MiB), or if there would be more than [`limits::DEFINITIONS`] of them. Then all is as it was.
    /// [`UsageError::NotInSchema`], [`UsageError::NotAllowed`] at a guest, and [`UsageError::Config`] for a key that
    /// [`define_for`](Self::define_for) has taken.
    pub fn define<T>(&mut self, key: u64, value: T) -> Result<DefinitionRef<T>, UsageError>
    where
        T: bitcode::Encode + Send + Sync + 'static,
    {
        self.define_as(key, value, None)
    }

    /// The same for those who see an entity: a guest gets it when it has been shown the entity, and of later revisions those that
    /// are defined or current while it sees it. The key is the number of the entity's [`NetId`], so that there is one of each type,
    /// which is forgotten when the entity ends. A component that is hidden on its own does not hide it.
    ///
    /// # Errors
    /// Those of [`define`](Self::define), and [`UsageError::NotNetworked`].
    pub fn define_for<T>(&mut self, world: &World, entity: Entity, value: T) -> Result<DefinitionRef<T>, UsageError>
    where
        T: bitcode::Encode + Send + Sync + 'static,
    {
        let record = self.entities.slot_at(world, entity).and_then(|slot| self.entities.get(slot));
        let net = record.ok_or(UsageError::NotNetworked)?.net;
        self.define_as(net.0, value, Some(net))
    }

    fn define_as<T>(&mut self, key: u64, value: T, of: Option<NetId>) -> Result<DefinitionRef<T>, UsageError>
    where
        T: bitcode::Encode + Send + Sync + 'static,
    {
        let at = (self.definition_index::<T>()?, key);
        if !self.is_host() {
            return Err(UsageError::NotAllowed("define anything"));
        }
        let bytes: Arc<[u8]> = bitcode::encode(&value).into();
        let (size, limit) = (bytes.len(), limits::DEFINITION_BYTES);
        if size > limit {
            return Err(UsageError::TooLarge { what: "a definition", size, limit });
        }
        let all = &mut self.definitions;
        let old = all.held.get(&at);
        if let Some(same) = old.filter(|old| old.bytes == bytes && old.of == of) {
            return Ok(DefinitionRef::new(key, same.revision));
        }
        if old.is_some_and(|old| old.of != of) {
            return Err(UsageError::Config(
                "the key of a definition is in use: `define_for` takes the numbers of entities as keys",
            ));
        }
        let old_size = old.map_or(0, |old| old.size);
        if !all.has_room(old.is_none(), size, old_size) {
            let (size, limit) = (all.size - old_size + size, limits::DEFINITIONS_BYTES);
            return Err(UsageError::TooLarge { what: "all definitions together, or their number,", size, limit });
        }
        all.remove(at);
        all.revisions += 1;
        all.placed += 1;
        let (revision, place) = (all.revisions, all.placed);
        all.size += size;
        all.order.insert(place, at);
        all.bound.extend(of.map(|_| at));
        all.held.insert(at, Held { revision, value: Arc::new(value), size, before: None, bytes, place, of });
        Ok(DefinitionRef::new(key, revision))
    }

    /// Forgets a definition, here and at all guests (host only). `false` if there is none.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], and [`UsageError::NotAllowed`] at a guest.
    pub fn forget_definition<T: 'static>(&mut self, key: u64) -> Result<bool, UsageError> {
        let at = (self.definition_index::<T>()?, key);
        if !self.is_host() {
            return Err(UsageError::NotAllowed("forget a definition"));
        }
        Ok(self.forget_defined(at))
    }

    fn forget_defined(&mut self, at: Key) -> bool {
        for link in &mut self.links {
            if link.told.sent.remove(&at).is_some() {
                link.told.ended.push(at);
            }
        }
        self.definitions.remove(at)
    }

    /// What this peer has of a definition.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn definition<T: Send + Sync + 'static>(&self, of: DefinitionRef<T>) -> Result<Defined<T>, UsageError> {
        let Some(held) = self.definitions.held.get(&(self.definition_index::<T>()?, of.key)) else {
            return Ok(Defined::Missing);
        };
        let typed = |value: &AnyValue| value.clone().downcast::<T>().ok();
        let before = held.before.as_ref().filter(|before| before.0 == of.revision);
        let found = match before {
            _ if held.revision == of.revision => typed(&held.value).map(Defined::Exact),
            Some((_, value)) => typed(value).map(Defined::Exact),
            None => typed(&held.value).map(|value| Defined::Stale { value, revision: held.revision }),
        };
        Ok(found.unwrap_or(Defined::Missing))
    }

    /// The newest revision that this peer has of a definition, if any.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn newest_definition<T: 'static>(&self, key: u64) -> Result<Option<DefinitionRef<T>>, UsageError> {
        let held = self.definitions.held.get(&(self.definition_index::<T>()?, key));
        Ok(held.map(|held| DefinitionRef::new(key, held.revision)))
    }

    /// Host: hands each guest what it lacks, as much at a time as is worth a blob, the next when that has come.
    pub(crate) fn send_definitions(&mut self, world: &World) {
        if self.schema.definitions.is_empty() || !self.is_host() {
            return;
        }
        let gone = |at: &Key| self.definitions.held[at].of.is_some_and(|net| self.entities.slot_of(net).is_none());
        let gone: Vec<Key> = self.definitions.bound.iter().copied().filter(gone).collect();
        for at in gone {
            self.forget_defined(at);
        }
        for index in 0..self.links.len() {
            if self.links[index].blobs.outgoing.progress(TOPIC).is_some() {
                continue;
            }
            let mut told = std::mem::take(&mut self.links[index].told);
            let bytes = self.batch_for(world, index, &mut told);
            self.links[index].told = told;
            if !bytes.is_empty() {
                let peer = self.links[index].peer;
                // a batch is far below what a blob may be, and its topic is one
                let _ = self.send_blob(peer, TOPIC, bytes);
            }
        }
    }

    /// The next changes for a guest, which count as told.
    fn batch_for(&self, world: &World, index: usize, told: &mut Told) -> Vec<u8> {
        let (mut bytes, mut count) = (Vec::new(), told.ended.len().min(limits::DEFINITION_CHANGES));
        for (index, key) in told.ended.drain(..count) {
            Change { index, key, what: What::End }.write(&mut bytes);
        }
        let may_see = |held: &Held| match held.of {
            None => true,
            Some(net) => self.entities.slot_of(net).is_some_and(|slot| self.may_know(world, index, slot)),
        };
        let lacks = |told: &Told, at: &Key| {
            let held = self.definitions.held.get(at)?;
            (told.sent.get(at) != Some(&held.revision)).then_some(held)
        };
        let fits = |bytes: &[u8], count: usize, held: &Held| {
            bytes.is_empty() || bytes.len() + held.size <= batch::ENOUGH && count < limits::DEFINITION_CHANGES
        };
        let put = |bytes: &mut Vec<u8>, count: &mut usize, told: &mut Told, at: Key, held: &Held| {
            *count += 1;
            let what = What::Value { revision: held.revision, bytes: &held.bytes };
            Change { index: at.0, key: at.1, what }.write(bytes);
            told.sent.insert(at, held.revision);
        };
        // what was hidden comes first: it is older
        let mut is_full = false;
        for at in std::mem::take(&mut told.hidden) {
            let Some(held) = lacks(told, &at) else { continue };
            let is_shown = may_see(held);
            is_full |= is_shown && !fits(&bytes, count, held);
            if is_shown && !is_full {
                put(&mut bytes, &mut count, told, at, held);
            } else {
                told.hidden.insert(at);
            }
        }
        let read = told.read;
        for (place, at) in self.definitions.order.range(read + 1..).take_while(|_| !is_full) {
            let held = lacks(told, at);
            if let Some(held) = held.filter(|held| may_see(held)) {
                if !fits(&bytes, count, held) {
                    break;
                }
                put(&mut bytes, &mut count, told, *at, held);
            } else {
                told.hidden.extend(held.map(|_| *at));
            }
            told.read = *place;
        }
        bytes
    }

    /// Guest: takes in the definitions that have come.
    pub(crate) fn take_definitions(&mut self, world: &mut World) {
        if self.schema.definitions.is_empty() {
            return;
        }
        while let Some((_, bytes)) = self.take_blob(TOPIC) {
            if self.read_definitions(&bytes).is_none() {
                return self.end_session(world, DisconnectReason::Malformed, true);
            }
        }
    }

    /// Reads a batch, whole or not at all.
    fn read_definitions(&mut self, bytes: &[u8]) -> Option<()> {
        let changes = batch::read(bytes, self.schema.definitions.len())?;
        let mut arriving = Arriving::new(&self.definitions);
        let mut values = Vec::new();
        for Change { index, key, what } in changes {
            let at = (index, key);
            values.push(match what {
                What::End => {
                    arriving.end(at);
                    (at, None)
                }
                What::Value { revision, bytes } => {
                    arriving.take(at, revision, bytes.len())?;
                    let value = (self.schema.definitions[usize::from(index)].decode)(bytes)?;
                    (at, Some((revision, value, bytes.len())))
                }
            });
        }
        for (at, value) in values {
            let all = &mut self.definitions;
            let before = all.held.get(&at).map(|held| (held.revision, held.value.clone()));
            all.remove(at);
            let Some((revision, value, size)) = value else { continue };
            all.size += size;
            all.held.insert(at, Held { revision, value, size, before, bytes: Arc::default(), place: 0, of: None });
            let definition = self.schema.definitions[usize::from(at.0)].name.clone();
            self.news.push(News::Defined { definition, key: at.1, revision });
        }
        Some(())
    }
}

/// What a guest would hold after the changes of a batch so far.
struct Arriving<'a> {
    held: &'a FxHashMap<Key, Held>,
    /// Revision and bytes of what is another than that.
    changed: FxHashMap<Key, Option<(u32, usize)>>,
    count: usize,
    size: usize,
}

impl<'a> Arriving<'a> {
    fn new(all: &'a Definitions) -> Self {
        Self { held: &all.held, changed: FxHashMap::default(), count: all.held.len(), size: all.size }
    }

    fn end(&mut self, at: Key) {
        let held = || self.held.get(&at).map(|held| (held.revision, held.size));
        if let Some((_, size)) = self.changed.get(&at).copied().unwrap_or_else(held) {
            self.count -= 1;
            self.size -= size;
        }
        self.changed.insert(at, None);
    }

    /// `None` if it is no newer, or beyond what is kept.
    fn take(&mut self, at: Key, revision: u32, size: usize) -> Option<()> {
        let held = || self.held.get(&at).map(|held| (held.revision, held.size));
        let old = self.changed.get(&at).copied().unwrap_or_else(held);
        if old.is_some_and(|old| old.0 >= revision) {
            return None;
        }
        self.end(at);
        self.count += 1;
        self.size += size;
        self.changed.insert(at, Some((revision, size)));
        (self.count <= limits::DEFINITIONS && self.size <= limits::DEFINITIONS_BYTES).then_some(())
    }
}

#[cfg(test)]
mod tests;
