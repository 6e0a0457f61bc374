//! A save as bytes, and bytes as a world again: how one who joins late gets what is rewound, and how a game is saved.
//!
//! ```text
//! u8      1, the layout of the rest
//! u64     digest of the names of kinds, components and resources
//! u64     the session whose digest this is
//! varint  tick, 1 or later: the world is as it begins
//! varint  shapes; each: kind + 1 (0: resources), varint; set of kept components, varint (bit c: the c-th by name, resources last)
//! varint  entities, by name; then column by column:
//!         names      varint each: the distance from the one before, less 1 (the first: from 0)
//!         shapes     varint each
//!         per owner slot of the schema: owners (1024: nobody), then epochs, varint each
//!         cuts       u8 each
//!         keys       varint each
//! for each kept component that a shape has: varint, its bytes; the values of all entities that have it
//! u64     the digest of the entities and resources
//! ```
//!
//! Values are as in [`checkpoint`](crate::checkpoint), columns because bytes that mean the same lie together. `varint` and what is
//! refused are as there.

use crate::block::bits;
use crate::checkpoint::{CheckpointError, CheckpointWriter};
use crate::entities::Tag;
use crate::netid::NetId;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::{OWNER_SLOTS, Timeline};
use crate::presence::UNOWNED;
use crate::rewind::digest::Reading;
use crate::rewind::saves::Save;
use crate::rewind::structure::Row;
use crate::rewind::{RewindError, resources_of};
use crate::schema::Inner;
use hecs::World;
use thiserror::Error;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;
use xxhash_rust::xxh3::Xxh3;

mod place;
mod read;

/// A snapshot that cannot be loaded. Nothing of it was.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Only a peer that is alone may load a game by itself.
    #[error("only a peer that is alone can load a game by itself")]
    NotAlone,
    /// It is of a layout that this build does not know.
    #[error("the snapshot has layout {0}; this build knows layout {LAYOUT}")]
    Layout(u8),
    /// It is of another game, or of another version of it: kinds, components or resources have other names.
    #[error("the snapshot is of a schema with other kinds, components or resources")]
    OtherSchema,
    /// The bytes are no snapshot.
    #[error("the bytes are no snapshot: {0}")]
    Malformed(CheckpointError),
    /// The values of one component are none.
    #[error("the values of `{component}` cannot be read: {error}")]
    Values {
        /// The component or resource.
        component: String,
        /// What is wrong with them.
        error: CheckpointError,
    },
    /// It brings an entity of a kind that is none of those that it may bring.
    #[error("the snapshot brings entities of a kind that it must not touch")]
    Kind,
    /// It brings an entity under a name that is another one's here.
    #[error("name {0} is that of another entity here")]
    Taken(NetId),
    /// What was read is not what was written.
    #[error("the digest of the snapshot is that of other values")]
    Digest,
}

impl From<CheckpointError> for SnapshotError {
    fn from(error: CheckpointError) -> Self {
        Self::Malformed(error)
    }
}

impl Peer {
    /// A tick that is kept, as bytes: entities of the kinds that are [`rewound`](crate::KindOptions::rewound) with their
    /// components that are registered with `.checkpoint()`, and the resources, exactly. What this is for: a saved game.
    ///
    /// # Errors
    /// [`RewindError`] for a tick that is not kept; see [`keep_saves`](Self::keep_saves).
    pub fn save_bytes(&self, world: &World, tick: Tick) -> Result<Vec<u8>, RewindError> {
        let saves = self.saves[Timeline::Session].as_ref().ok_or(RewindError::NoSaves)?;
        if let Some(oldest) = saves.oldest().filter(|oldest| tick < *oldest) {
            return Err(RewindError::TooOld { tick, oldest });
        }
        self.snapshot(world, Timeline::Session, tick, u64::MAX).ok_or(RewindError::NotSaved(tick))
    }

    /// Makes entities and resources what they are in a saved game, and goes on from its tick; the bytes may come from anywhere, and
    /// from another run of the program. Entities that are there under a name of the saved game keep their handles and what is
    /// not registered of them; others of the kinds that it covers are despawned. Entities whose owner is not here become this
    /// peer's. To be called between steps. All saves are let go.
    ///
    /// # Errors
    /// [`SnapshotError`]; the world is as it was then.
    pub fn load_bytes(&mut self, world: &mut World, bytes: &[u8]) -> Result<Tick, SnapshotError> {
        if self.transport.is_some() || !self.is_host() {
            return Err(SnapshotError::NotAlone);
        }
        let saves = self.saves[Timeline::Session].as_ref();
        let kinds = saves.map_or_else(|| self.schema.kinds_rewound(), |saves| saves.kinds);
        let last = limits::SESSION_MICROS / 1_000_000 * u64::from(self.config.tick_rate);
        let tick = self.load(world, Timeline::Session, bytes, kinds, Tick(last))?;
        self.adopt_loaded(world);
        self.growing.forget_entities();
        let before = tick.minus(1);
        (self.time.step, self.time.tick, self.time.due, self.time.ran) = (before, before, before, before);
        (self.time.last_send, self.time.captured) = (before, before);
        self.time.with.clear();
        // the session's clock goes on from there
        self.config.counters_from = tick.0;
        self.time.began = Some(self.time.now);
        self.time.session = self.session_at(self.time.now);
        Ok(tick)
    }

    /// A tick that is kept of a timeline, as bytes, with the entities of those kinds (bit k: kind k) and the timeline's resources.
    pub(crate) fn snapshot(&self, world: &World, line: Timeline, tick: Tick, kinds: u64) -> Option<Vec<u8>> {
        self.snapshot_of(world, line, self.saves[line].as_ref()?.get(tick)?, kinds)
    }

    /// The same of a save that is not kept.
    pub(crate) fn snapshot_of(&self, world: &World, line: Timeline, save: &Save, kinds: u64) -> Option<Vec<u8>> {
        let saves = self.saves[line].as_ref()?;
        let tag = |net: NetId| {
            let record = self.entities.slot_of(net).and_then(|slot| self.entities.get(slot));
            let grave = || saves.graves.iter().rfind(|g| g.net == net).map(|g| g.tag);
            // one that the game took away itself has left nothing
            record.map(|r| r.tag()).or_else(grave).unwrap_or(Tag { owners: [UNOWNED; OWNER_SLOTS], cut: 0, key: 0 })
        };
        self.read_save(world, line, save, |reading| write(&Reading { kinds, ..reading }, &tag))
    }
}

fn write(of: &Reading<'_>, tag: &dyn Fn(NetId) -> Tag) -> Vec<u8> {
    let mut w = CheckpointWriter::new(of.names);
    w.bytes(&[LAYOUT]);
    w.bytes(&names_digest(of.schema).to_le_bytes());
    w.bytes(&of.session.to_le_bytes());
    w.varint(of.save.tick.0);
    let rows = rows(of);
    write_structure(of, &rows, tag, &mut w);
    write_values(of, &rows, &mut w);
    w.bytes(&of.digest().to_le_bytes());
    w.as_bytes().to_vec()
}

/// The rows that a snapshot has, by name. Whatever has lost its kind behind the framework's back is not told.
fn rows(of: &Reading<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, watched) in of.watched.iter().enumerate() {
        let told = |net| watched.kind.map_or(resources_of(net).is_some(), |kind| of.kinds >> kind & 1 != 0);
        let marks = of.save.structure.table(index).marks.iter().enumerate();
        rows.extend(marks.filter(|(_, mark)| told(mark.net)).map(|(row, mark)| Row::new(*mark, index, row)));
    }
    rows.sort_unstable();
    rows
}

fn write_structure(of: &Reading<'_>, rows: &[Row], tag: &dyn Fn(NetId) -> Tag, w: &mut CheckpointWriter<'_>) {
    // archetypes that differ in local components only are of one shape
    let shape = |row: &Row| (of.watched[row.table as usize].kind, of.watched[row.table as usize].mask);
    let mut shapes: Vec<_> = rows.iter().map(shape).collect();
    shapes.sort_unstable();
    shapes.dedup();
    w.length(shapes.len());
    for (kind, mask) in &shapes {
        w.varint(kind.map_or(0, |kind| kind as u64 + 1));
        w.varint(*mask);
    }
    w.length(rows.len());
    let mut next = NetId(1);
    for row in rows {
        w.varint(row.net.0 - next.0);
        next = NetId(row.net.0 + 1);
    }
    rows.iter().for_each(|row| w.varint(shapes.partition_point(|s| *s < shape(row)) as u64));
    let tags: Vec<Tag> = rows.iter().map(|row| tag(row.net)).collect();
    for slot in 0..of.schema.slots {
        tags.iter().for_each(|tag| w.varint(owner_number(tag.owners[slot].peer)));
        tags.iter().for_each(|tag| w.varint(tag.owners[slot].epoch.into()));
    }
    tags.iter().for_each(|tag| w.bytes(&[tag.cut]));
    tags.iter().for_each(|tag| w.varint(tag.key));
}

fn write_values(of: &Reading<'_>, rows: &[Row], w: &mut CheckpointWriter<'_>) {
    let has = rows.iter().fold(0, |mask, row| mask | of.watched[row.table as usize].mask);
    let mut column = CheckpointWriter::new(of.names);
    for c in bits(has).map(|c| c as usize) {
        column.clear();
        for row in rows.iter().filter(|row| of.watched[row.table as usize].mask >> c & 1 != 0) {
            if let Some(values) = of.save.column(row.table as usize, c) {
                values.write(row.row as usize, &mut column);
            }
        }
        w.length(column.as_bytes().len());
        w.bytes(column.as_bytes());
    }
}

fn owner_number(peer: PeerId) -> u64 {
    if peer == PeerId::NOBODY { limits::PEERS as u64 } else { peer.0.into() }
}

/// What both sides must agree on for numbers of kinds and components to mean the same.
fn names_digest(schema: &Inner) -> u64 {
    let mut hasher = Xxh3::new();
    let kinds = schema.kinds.iter().map(|kind| ("kind ", &kind.name));
    let kept = schema.kept.iter().map(|kept| (if kept.first.is_some() { "resource " } else { "component " }, &kept.name));
    let lines: Vec<u8> = schema.kept.iter().map(|kept| kept.line as u8).collect();
    hasher.update(&lines);
    for (sort, name) in kinds.chain(kept) {
        hasher.update(sort.as_bytes());
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
    }
    hasher.update(&[schema.slots as u8]);
    hasher.digest()
}

const LAYOUT: u8 = 1;
