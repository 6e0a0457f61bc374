//! Digests of a save, and the way down from two digests that differ to the entity, component and field.
//!
//! The digest of a component is the wrapping sum of a keyed hash per row, so that neither archetypes nor rows matter. A sum
//! rather than an exclusive or, in which equal pairs would cancel out. Against accidents, not against malice.

use crate::checkpoint::{CheckpointWriter, Differ};
use crate::column::NameOf;
use crate::netid::NetId;
use crate::rewind::saves::{Save, Watched};
use crate::rewind::structure::Row;
use crate::rng::mix;
use crate::schema::Inner;
use tidelock_netcore::limits;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Classes that names are put into on the way down. By hash, not by rank: one entity more would shift all ranks.
const CLASSES: usize = limits::FORK_CLASSES;

/// A save with what is needed to read it.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) schema: &'a Inner,
    pub(crate) watched: &'a [Watched],
    pub(crate) save: &'a Save,
    pub(crate) names: NameOf<'a>,
    pub(crate) session: u64,
    /// Bit k: entities of kind k are looked at. Resources always are.
    pub(crate) kinds: u64,
}

/// Where two saves differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) net: NetId,
    /// The component or resource; none: the entity itself.
    pub(crate) component: Option<String>,
    pub(crate) field: String,
    pub(crate) values: (String, String),
}

impl Reading<'_> {
    /// A sum for presence, which says who is there and of which kind, and then one for each component that is kept.
    pub(crate) fn sums(&self) -> Vec<u64> {
        (0..=self.schema.kept.len()).map(|part| self.classes(part).iter().fold(0, |sum, c| u64::wrapping_add(sum, *c))).collect()
    }

    /// All of them in one number.
    pub(crate) fn digest(&self) -> u64 {
        let tables = self.watched.iter().enumerate().filter(|(_, watched)| self.looks_at(watched));
        let count = tables.map(|(index, _)| self.save.structure.table(index).marks.len()).sum();
        sum_up(self.schema, self.session, count, &self.sums())
    }

    fn looks_at(&self, watched: &Watched) -> bool {
        watched.kind.is_none_or(|kind| self.kinds >> kind & 1 != 0)
    }

    fn classes(&self, part: usize) -> [u64; CLASSES] {
        let mut sums = [0u64; CLASSES];
        self.each(part, &mut |row, hash| {
            let sum = &mut sums[class(row.net)];
            *sum = sum.wrapping_add(hash);
        });
        sums
    }

    /// Every row that has the part, with its hash.
    fn each(&self, part: usize, take: &mut dyn FnMut(Row, u64)) {
        let key = key(self.session, part);
        let mut writer = CheckpointWriter::for_digest(self.names);
        for (index, watched) in self.watched.iter().enumerate().filter(|(_, watched)| self.looks_at(watched)) {
            let marks = &self.save.structure.table(index).marks;
            if part == 0 {
                let rows = marks.iter().enumerate();
                rows.for_each(|(row, m)| take(Row::new(*m, index, row), presence(watched.kind, key(m.net))));
            } else if !marks.is_empty()
                && watched.mask >> (part - 1) & 1 != 0
                && let Some(column) = self.save.column(index, part - 1)
            {
                column.digest(marks, &key, &mut writer, &mut |row, hash| take(Row::new(marks[row], index, row), hash));
            }
        }
    }

    /// The first entity in which two saves of one tick differ, with its first component and field. Each level is looked at only
    /// where the one above differs.
    pub(crate) fn difference(&self, other: &Self) -> Option<Difference> {
        let (mine, others) = (self.sums(), other.sums());
        let differing = (0..mine.len()).filter(|part| mine[*part] != others[*part]);
        differing.filter_map(|part| self.difference_in(other, part)).min_by_key(|(net, part, _)| (*net, *part)).map(|d| d.2)
    }

    fn difference_in(&self, other: &Self, part: usize) -> Option<(NetId, usize, Difference)> {
        let (a, b) = (self.classes(part), other.classes(part));
        let rows = |of: &Self| {
            let mut rows = Vec::new();
            of.each(part, &mut |row, hash| {
                if a[class(row.net)] != b[class(row.net)] {
                    rows.push((row, hash));
                }
            });
            rows.sort_unstable();
            rows
        };
        let (mine, others) = (rows(self), rows(other));
        let (mut mine, mut others) = (mine.iter().peekable(), others.iter().peekable());
        loop {
            let (values, field, net) = match (mine.peek(), others.peek()) {
                (Some((x, _)), y) if y.is_none_or(|y| x.net < y.0.net) => (self.presence(*x, false, part), String::new(), x.net),
                (x, Some((y, _))) if x.is_none_or(|x| y.net < x.0.net) => (other.presence(*y, true, part), String::new(), y.net),
                (Some((x, hash)), Some((y, others_hash))) => {
                    let (x, y, same) = (*x, *y, hash == others_hash);
                    mine.next();
                    others.next();
                    if same {
                        continue;
                    }
                    let (field, values) = self.field(x, other, y, part);
                    (values, field, x.net)
                }
                _ => return None,
            };
            let component = part.checked_sub(1).map(|i| self.schema.kept[i].name.clone());
            return Some((net, part, Difference { net, component, field, values }));
        }
    }

    /// Only one side has it.
    fn presence(&self, row: Row, only_there: bool, part: usize) -> (String, String) {
        let there = if part == 0 { self.kind(row) } else { "there".to_owned() };
        let gone = "not there".to_owned();
        if only_there { (gone, there) } else { (there, gone) }
    }

    fn kind(&self, row: Row) -> String {
        let kind = self.watched[row.table as usize].kind;
        kind.map_or("resources".to_owned(), |kind| format!("a {}", self.schema.kinds[kind].name))
    }

    fn field(&self, row: Row, other: &Self, other_row: Row, part: usize) -> (String, (String, String)) {
        if part == 0 {
            return (String::new(), (self.kind(row), other.kind(other_row)));
        }
        let (mine, others) =
            (self.save.column(row.table as usize, part - 1), other.save.column(other_row.table as usize, part - 1));
        let mut at = Differ::new(self.names, other.names);
        if let (Some(mine), Some(others)) = (mine, others) {
            mine.differ(row.row as usize, others, other_row.row as usize, &mut at);
        }
        let (field, mine, others) = at.into_parts();
        (field, (mine, others))
    }
}

/// Under which key a row's part is hashed.
pub(crate) fn key(session: u64, part: usize) -> impl Fn(NetId) -> u64 {
    let salt = mix(session, part as u64);
    move |net| mix(net.0, salt)
}

/// The hash of an entity's being there. Without a kind: the resources.
pub(super) fn presence(kind: Option<usize>, key: u64) -> u64 {
    xxh3_64_with_seed(&kind.map_or(u64::MAX, |kind| kind as u64).to_le_bytes(), key)
}

/// The sums of presence and of each component in one number.
pub(super) fn sum_up(schema: &Inner, session: u64, count: usize, sums: &[u64]) -> u64 {
    let mut hasher = Xxh3::with_seed(session);
    hasher.update(&(count as u64).to_le_bytes());
    let names = std::iter::once("").chain(schema.kept.iter().map(|k| k.name.as_str()));
    for (name, sum) in names.zip(sums) {
        hasher.update(name.as_bytes());
        hasher.update(&sum.to_le_bytes());
    }
    hasher.digest()
}

/// The class that a name is in.
pub(crate) fn class(net: NetId) -> usize {
    (mix(net.0, 0) >> 58) as usize
}
