//! A slice of a computed state as bytes: what its digest is of, and what is looked into when that differs.

use crate::block::bits;
use crate::checkpoint::CheckpointWriter;
use crate::column::NameOf;
use crate::netid::NetId;
use crate::policy::Timeline;
use crate::rewind::digest::{class, key};
use crate::rewind::saves::{Save, Watched};
use crate::rewind::structure::Row;
use crate::schema::Inner;
use hecs::{Entity, World};
use std::borrow::Cow;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// The kind of who carries the resources.
pub(super) const RESOURCES: u8 = u8::MAX;
const _: () = assert!(limits::KINDS < RESOURCES as usize && limits::COMPONENTS < u64::BITS as usize);

/// Who is in a slice.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) net: NetId,
    pub(super) kind: u8,
    /// The kept components that it has, as bits.
    mask: u64,
}

impl Found {
    pub(super) fn entity(net: NetId, kind: usize) -> Self {
        Self { net, kind: kind as u8, mask: 0 }
    }

    pub(super) fn resources(net: NetId) -> Self {
        Self { net, kind: RESOURCES, mask: 0 }
    }

    /// As it is hashed, and sent.
    fn to_bytes(self) -> [u8; PRESENCE] {
        let mut bytes = [self.kind; PRESENCE];
        bytes[1..].copy_from_slice(&self.mask.to_le_bytes());
        bytes
    }

    /// The inverse.
    pub(super) fn presence(bytes: &[u8]) -> Option<(u8, u64)> {
        let (kind, mask) = bytes.split_first()?;
        Some((*kind, u64::from_le_bytes(mask.try_into().ok()?)))
    }
}

const PRESENCE: usize = 9;

/// The values of one component.
#[derive(Default)]
struct Part {
    /// Where each row's bytes end; rows without the component have none.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

/// The entities of a slice, by name, with all that is kept of them. Flat: taking one anew into the same memory allocates nothing.
#[derive(Default)]
pub(super) struct State {
    /// After this tick.
    pub(super) tick: Tick,
    pub(super) digest: u64,
    session: u64,
    rows: Vec<Found>,
    parts: Vec<Part>,
}

impl State {
    /// Bytes that it takes in memory, about.
    pub(super) fn cost(&self) -> usize {
        let parts = self.parts.iter().map(|part| part.bytes.len() + part.ends.len() * size_of::<u32>());
        size_of::<Self>() + self.rows.len() * size_of::<Found>() + parts.sum::<usize>()
    }

    fn begin(&mut self, schema: &Inner) {
        self.rows.clear();
        self.parts.resize_with(schema.kept.len(), Part::default);
    }

    /// Takes the values of entities as they are in the world.
    pub(super) fn take_live(
        &mut self,
        schema: &Inner,
        line: Timeline,
        world: &World,
        rows: &[Found],
        entities: &[Entity],
        names: NameOf<'_>,
    ) {
        self.begin(schema);
        self.rows.extend_from_slice(rows);
        let Self { rows, parts, .. } = self;
        for (i, (part, entry)) in parts.iter_mut().zip(&schema.kept).enumerate() {
            part.ends.clear();
            let mut writer = CheckpointWriter::for_digest_into(std::mem::take(&mut part.bytes), names);
            // a component of the world is on entities, a resource on one of them, the last
            let all = 0..entities.len() - usize::from(rows.last().is_some_and(|row| row.kind == RESOURCES));
            let mine = match entry.first {
                None => all,
                Some(_) if entry.line == line => all.end..entities.len(),
                Some(_) => 0..0,
            };
            part.ends.resize(mine.start, 0);
            let first = mine.start;
            entry.kept.write_live(world, &entities[mine], &mut writer, &mut |row, there, end| {
                rows[first + row].mask |= u64::from(there) << i;
                part.ends.push(end as u32);
            });
            part.bytes = writer.into_bytes();
            part.ends.resize(rows.len(), part.bytes.len() as u32);
        }
    }

    /// The same of rows of a save.
    pub(super) fn take_saved(&mut self, schema: &Inner, watched: &[Watched], save: &Save, rows: &[Row], names: NameOf<'_>) {
        self.begin(schema);
        self.rows.extend(rows.iter().map(|row| {
            let Watched { kind, mask, .. } = watched[row.table as usize];
            let found = kind.map_or(Found::resources(row.net), |kind| Found::entity(row.net, kind));
            Found { mask, ..found }
        }));
        let Self { rows: found, parts, .. } = self;
        for (i, part) in parts.iter_mut().enumerate() {
            part.ends.clear();
            let mut writer = CheckpointWriter::for_digest_into(std::mem::take(&mut part.bytes), names);
            for (row, found) in rows.iter().zip(&mut *found) {
                if found.mask >> i & 1 != 0
                    && let Some(column) = save.column(row.table as usize, i)
                {
                    column.write(row.row as usize, &mut writer);
                }
                part.ends.push(writer.as_bytes().len() as u32);
            }
            part.bytes = writer.into_bytes();
        }
    }

    /// Everything is in: the digest.
    pub(super) fn seal(&mut self, session: u64) {
        self.session = session;
        let mut hasher = Xxh3::with_seed(session);
        for row in &self.rows {
            hasher.update(&row.net.0.to_le_bytes());
            hasher.update(&row.to_bytes());
        }
        // the bytes of a value say where they end, and the masks whose they are
        for part in &self.parts {
            hasher.update(&(part.bytes.len() as u64).to_le_bytes());
            hasher.update(&part.bytes);
        }
        self.digest = hasher.digest();
    }

    /// How many parts there are: presence, and each component and resource that is kept.
    pub(super) fn part_count(&self) -> usize {
        self.parts.len() + 1
    }

    /// The bytes of a row's part; `None` if it does not have it.
    fn bytes(&self, row: usize, part: usize) -> Option<Cow<'_, [u8]>> {
        let Some(component) = part.checked_sub(1) else { return Some(Cow::Owned(self.rows[row].to_bytes().to_vec())) };
        let of = self.parts.get(component).filter(|_| self.rows[row].mask >> component & 1 != 0)?;
        let start = row.checked_sub(1).map_or(0, |before| of.ends[before]);
        of.bytes.get(start as usize..of.ends[row] as usize).map(Cow::Borrowed)
    }

    /// Every row that has the part, with its hash, by name.
    fn each(&self, part: usize) -> impl Iterator<Item = (NetId, u64)> + '_ {
        let key = key(self.session, part);
        (0..self.rows.len()).filter_map(move |row| {
            let net = self.rows[row].net;
            Some((net, xxh3_64_with_seed(&self.bytes(row, part)?, key(net))))
        })
    }

    pub(super) fn sums(&self) -> Vec<u64> {
        (0..self.part_count()).map(|part| self.each(part).fold(0, |sum, (_, hash)| u64::wrapping_add(sum, hash))).collect()
    }

    pub(super) fn classes(&self, part: usize) -> Vec<u64> {
        let mut sums = vec![0u64; limits::FORK_CLASSES];
        for (net, hash) in self.each(part) {
            let sum = &mut sums[class(net)];
            *sum = sum.wrapping_add(hash);
        }
        sums
    }

    /// The first rows of a class, as many as an answer has.
    pub(super) fn class_rows(&self, part: usize, of: usize) -> Vec<(u64, u64)> {
        let rows = self.each(part).filter(|(net, _)| class(*net) == of).map(|(net, hash)| (net.0, hash));
        rows.take(limits::FORK_ROWS).collect()
    }

    /// The bytes of one value.
    pub(super) fn value(&self, part: usize, net: NetId) -> Option<Cow<'_, [u8]>> {
        let row = self.rows.binary_search_by_key(&net, |row| row.net).ok()?;
        self.bytes(row, part)
    }
}

/// What an entity's presence comes to, in words.
pub(super) fn show_presence(schema: &Inner, bytes: Option<&[u8]>) -> String {
    let Some((kind, mask)) = bytes.and_then(Found::presence) else { return "not there".into() };
    let kind = schema.kinds.get(usize::from(kind)).map_or("resources", |kind| &kind.name);
    let names = bits(mask).filter_map(|i| schema.kept.get(i as usize)).map(|entry| entry.name.as_str());
    format!("{kind} with {}", names.collect::<Vec<_>>().join(", "))
}
