//! Bytes as a snapshot, in a temporary: what it consists of first, so that there are handles for its entities before the first
//! value names one.

use super::{LAYOUT, SnapshotError, names_digest};
use crate::block::bits;
use crate::checkpoint::{CheckpointError, CheckpointReader, CheckpointWriter};
use crate::column::NameOf;
use crate::entities::Tag;
use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::policy::{OWNER_SLOTS, Timeline};
use crate::presence::{CUT_BITS, UNOWNED};
use crate::rewind::digest::{key, presence, sum_up};
use crate::rewind::kept::{KeptEntry, Values};
use crate::rewind::structure::Rewound;
use crate::rewind::{resources_name, resources_of};
use crate::schema::Inner;
use hecs::Entity;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// What a snapshot consists of.
pub(super) struct Head {
    session: u64,
    pub(super) tick: Tick,
    /// By name.
    pub(super) rows: Vec<Arriving>,
}

/// An entity of a snapshot, or what carries the resources.
#[derive(Clone, Copy)]
pub(super) struct Arriving {
    pub(super) net: NetId,
    pub(super) kind: Option<usize>,
    /// Which kept components it has.
    pub(super) mask: u64,
    pub(super) tag: Tag,
}

/// The values of one component, and whose they are.
pub(super) struct Filled {
    pub(super) component: usize,
    pub(super) values: Box<dyn Values>,
}

/// Reads what a snapshot consists of. `kinds`: the ones that it may bring, as bits; `lines`: the timelines whose resources; `last`: the
/// last tick that it may be of. Gives the rest of the bytes back.
pub(super) fn read_head<'a>(
    schema: &Inner,
    bytes: &'a [u8],
    kinds: u64,
    lines: &[Timeline],
    last: Tick,
) -> Result<(Head, &'a [u8]), SnapshotError> {
    let mut r = CheckpointReader::new(bytes, &|_| None);
    let [layout] = r.array()?;
    if layout != LAYOUT {
        return Err(SnapshotError::Layout(layout));
    }
    if u64::from_le_bytes(r.array()?) != names_digest(schema) {
        return Err(SnapshotError::OtherSchema);
    }
    let session = u64::from_le_bytes(r.array()?);
    let tick = Tick(r.varint()?);
    if tick == Tick::ZERO || tick > last {
        return Err(CheckpointError::OutOfRange("tick").into());
    }
    let shapes = read_shapes(schema, kinds, &mut r)?;
    let rows = read_rows(schema, &shapes, lines, &mut r)?;
    let rest = r.left();
    Ok((Head { session, tick, rows }, &bytes[bytes.len() - rest..]))
}

type Shape = (Option<usize>, u64);

fn read_shapes(schema: &Inner, kinds: u64, r: &mut CheckpointReader<'_>) -> Result<Vec<Shape>, SnapshotError> {
    let resources = schema.kept.iter().enumerate().fold(0, |mask, (c, kept)| mask | u64::from(kept.first.is_some()) << c);
    let components = ((1u64 << schema.kept.len()) - 1) & !resources;
    let count = r.length()?;
    r.allocate(count, size_of::<Shape>())?;
    let mut shapes = Vec::with_capacity(count);
    for _ in 0..count {
        let (kind, mask) = (r.varint()?, r.varint()?);
        let kind = kind.checked_sub(1).map(|kind| kind as usize);
        if kind.is_some_and(|kind| kind >= schema.kinds.len()) {
            return Err(CheckpointError::OutOfRange("kind").into());
        }
        if mask & !kind.map_or(resources, |_| components) != 0 {
            return Err(CheckpointError::OutOfRange("set of components").into());
        }
        if kind.is_some_and(|kind| kinds >> kind & 1 == 0) {
            return Err(SnapshotError::Kind);
        }
        shapes.push((kind, mask));
    }
    Ok(shapes)
}

fn read_rows(
    schema: &Inner,
    shapes: &[Shape],
    lines: &[Timeline],
    r: &mut CheckpointReader<'_>,
) -> Result<Vec<Arriving>, SnapshotError> {
    let count = r.length()?;
    if count > limits::ROWS {
        return Err(CheckpointError::TooLarge.into());
    }
    r.allocate(count, size_of::<Arriving>())?;
    let tag = Tag { owners: [UNOWNED; OWNER_SLOTS], cut: 0, key: 0 };
    let mut rows = vec![Arriving { net: NetId(0), kind: None, mask: 0, tag }; count];
    let mut last = 0u64;
    for row in &mut rows {
        let net = last.checked_add(1).and_then(|next| next.checked_add(r.varint().ok()?));
        last = net.ok_or(CheckpointError::OutOfRange("name"))?;
        row.net = NetId(last);
    }
    for row in &mut rows {
        let shape = usize::try_from(r.varint()?).ok().and_then(|shape| shapes.get(shape));
        (row.kind, row.mask) = *shape.ok_or(CheckpointError::OutOfRange("shape"))?;
        check_name(schema, row, lines)?;
    }
    for slot in 0..schema.slots {
        for row in &mut rows {
            row.tag.owners[slot].peer = owner(r.varint()?)?;
        }
        for row in &mut rows {
            row.tag.owners[slot].epoch = u16::try_from(r.varint()?).map_err(|_| CheckpointError::OutOfRange("epoch"))?;
        }
    }
    for row in &mut rows {
        [row.tag.cut] = r.array()?;
        if row.tag.cut >> CUT_BITS != 0 {
            return Err(CheckpointError::OutOfRange("cut").into());
        }
    }
    for row in &mut rows {
        row.tag.key = r.varint()?;
    }
    Ok(rows)
}

/// Do name and shape fit: an entity's, or that of a timeline's resources?
fn check_name(schema: &Inner, row: &Arriving, lines: &[Timeline]) -> Result<(), SnapshotError> {
    let line = resources_of(row.net);
    if line.is_some() != row.kind.is_none() || row.net > resources_name(Timeline::Session) {
        return Err(CheckpointError::OutOfRange("name").into());
    }
    let Some(line) = line else { return Ok(()) };
    let of_others = |(c, kept): (usize, &KeptEntry)| row.mask >> c & 1 != 0 && kept.line != line;
    if schema.kept.iter().enumerate().any(of_others) {
        return Err(CheckpointError::OutOfRange("set of components").into());
    }
    if lines.contains(&line) { Ok(()) } else { Err(SnapshotError::Kind) }
}

fn owner(number: u64) -> Result<PeerId, CheckpointError> {
    match number {
        nobody if nobody == limits::PEERS as u64 => Ok(PeerId::NOBODY),
        peer if peer < limits::PEERS as u64 => Ok(PeerId(peer as u16)),
        _ => Err(CheckpointError::OutOfRange("owner")),
    }
}

impl Head {
    /// Reads the values and compares the digest. `entities` knows who is behind a name, `names` the other way round.
    pub(super) fn read_values(
        &self,
        schema: &Inner,
        bytes: &[u8],
        entities: &dyn Fn(NetId) -> Option<Entity>,
        names: NameOf<'_>,
    ) -> Result<Vec<Filled>, SnapshotError> {
        let mut r = CheckpointReader::new(bytes, entities);
        let mut columns = Vec::new();
        let mut sums = vec![0u64; schema.kept.len() + 1];
        let at = key(self.session, 0);
        sums[0] = self.rows.iter().fold(0, |sum, row| sum.wrapping_add(presence(row.kind, at(row.net))));
        let mut writer = CheckpointWriter::for_digest(names);
        for c in bits(self.rows.iter().fold(0, |mask, row| mask | row.mask)).map(|c| c as usize) {
            let length = r.length()?;
            let mut part = r.part(length)?;
            let mut values = schema.kept[c].kept.column();
            let marks: Vec<Rewound> = self.rows_with(c).map(|row| Rewound { net: row.net }).collect();
            let result = values.read(marks.len(), &mut part).and_then(|()| r.rejoin(&part));
            result.map_err(|error| SnapshotError::Values { component: schema.kept[c].name.clone(), error })?;
            let sum = &mut sums[c + 1];
            values.digest(&marks, &key(self.session, c + 1), &mut writer, &mut |_, hash| *sum = sum.wrapping_add(hash));
            columns.push(Filled { component: c, values });
        }
        let digest = u64::from_le_bytes(r.array()?);
        r.finish()?;
        if digest != sum_up(schema, self.session, self.rows.len(), &sums) {
            return Err(SnapshotError::Digest);
        }
        Ok(columns)
    }

    /// The rows that have a component, in the order of its values.
    pub(super) fn rows_with(&self, component: usize) -> impl Iterator<Item = &Arriving> {
        self.rows.iter().filter(move |row| row.mask >> component & 1 != 0)
    }
}
