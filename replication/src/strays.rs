//! Writes to what this peer does not simulate, found while a game is being made ([`Config::check_writes`](crate::Config::check_writes)).
//!
//! What every peer computes is written in steps of its timeline alone: a sample of it is copied when such a step is over, and
//! compared when the next one begins. What another peer has authority over is written by the framework alone: a guest copies a
//! sample of it when it has taken in what came, and compares before it does so again. Samples go round, [`SAMPLE`] entities at a
//! time, so that the cost does not grow with the world; a write that is repeated is found when its turn comes.

use crate::block::bits;
use crate::checkpoint::{CheckpointReader, CheckpointWriter, Differ};
use crate::column::NameOf;
use crate::entities::{Entities, name_in};
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::policy::Timeline;
use crate::presence::Owners;
use crate::rewind::kept::KeptEntry;
use crate::rewind::resources_name;
use hecs::{Entity, World};
use rustc_hash::FxHashSet;
use tidelock_netcore::tick::Tick;

/// Entities that are looked at between two steps of a timeline, and between two calls of `receive`.
const SAMPLE: usize = 256;
/// Slots of the register that are gone through for them.
const LOOK: u32 = 4 * SAMPLE as u32;
/// Strays that are told: a game that has so many knows.
const TOLD: usize = 1024;

/// What is watched, and what was told of it.
#[derive(Default)]
pub(crate) struct Strays {
    /// Rollback, lockstep.
    lines: [Watch; 2],
    foreign: Foreign,
    told: FxHashSet<(NetId, String)>,
}

impl Strays {
    /// The framework itself has written to a timeline's entities.
    pub(crate) fn disarm(&mut self, line: Timeline, all: bool) {
        for (watch, of) in self.lines.iter_mut().zip(COMPUTED) {
            if all || of == line {
                (watch.armed, watch.pending) = (false, false);
            }
        }
    }
}

const COMPUTED: [Timeline; 2] = [Timeline::Rollback, Timeline::Lockstep];

/// A sample of what one timeline computes, as its last step has left it.
#[derive(Default)]
struct Watch {
    /// A step is over, and no sample is taken yet.
    pending: bool,
    armed: bool,
    /// The step that is over.
    tick: Tick,
    cursor: u32,
    rows: Vec<NetId>,
    entities: Vec<Entity>,
    parts: Vec<Part>,
    now: Part,
}

/// The values of one component.
#[derive(Default)]
struct Part {
    /// Whether each row has one, and where its bytes end.
    rows: Vec<(bool, usize)>,
    bytes: Vec<u8>,
}

impl Part {
    fn take(&mut self, entry: &KeptEntry, world: &World, entities: &[Entity]) {
        // handles stand for names: what is named may come and go without a write
        let names: NameOf<'_> = &|entity: Entity| Some(NetId(entity.to_bits().get()));
        let mut writer = CheckpointWriter::for_digest_into(std::mem::take(&mut self.bytes), names);
        let rows = &mut self.rows;
        rows.clear();
        entry.kept.write_live(world, entities, &mut writer, &mut |_, has, end| rows.push((has, end)));
        self.bytes = writer.into_bytes();
    }

    fn value(&self, row: usize) -> Option<&[u8]> {
        let start = row.checked_sub(1).map_or(0, |before| self.rows[before].1);
        let (has, end) = self.rows[row];
        has.then(|| &self.bytes[start..end])
    }
}

/// A sample of what other peers have authority over, as it was when all that had come was taken in.
#[derive(Default)]
struct Foreign {
    cursor: u32,
    rows: Vec<Shown>,
    words: Vec<u32>,
    now: Vec<u32>,
}

struct Shown {
    net: NetId,
    entity: Entity,
    owners: Owners,
    mine: u64,
    /// The components that it had and that another peer writes, as bits, and those that it did not have.
    has: u64,
    lacks: u64,
    /// Where the words of the former begin.
    at: usize,
}

/// A write that was found.
struct Stray {
    net: NetId,
    component: String,
    field: String,
    before: String,
    after: String,
}

impl Peer {
    /// A step of a timeline is over.
    pub(crate) fn note_step_over(&mut self, line: Timeline, tick: Tick) {
        if self.config.check_writes
            && let Some(at) = COMPUTED.iter().position(|of| *of == line)
        {
            let watch = &mut self.strays.lines[at];
            (watch.pending, watch.armed, watch.tick) = (true, false, tick);
        }
    }

    /// The game goes on, with a step of `next` or without one: it must write to no other timeline from here on.
    pub(crate) fn watch_lines(&mut self, world: &World, next: Option<Timeline>) {
        if !self.config.check_writes {
            return;
        }
        for (at, line) in COMPUTED.into_iter().enumerate() {
            let watch = &mut self.strays.lines[at];
            match (watch.pending, Some(line) == next) {
                (true, true) => watch.pending = false, // nobody has had a chance
                (true, false) => self.arm(world, at, line),
                (false, true) => {
                    self.check_line(world, at, line);
                    self.strays.lines[at].armed = false;
                }
                (false, false) => {}
            }
        }
    }

    fn arm(&mut self, world: &World, at: usize, line: Timeline) {
        let watch = &mut self.strays.lines[at];
        (watch.pending, watch.armed) = (false, true);
        watch.rows.clear();
        watch.entities.clear();
        let kinds = self.schema.kinds_of(line);
        go_round(&self.entities, &mut watch.cursor, |entities, slot| {
            let Some(record) = entities.get(slot).filter(|r| kinds >> r.kind & 1 != 0 && !r.parked) else { return false };
            watch.rows.push(record.net);
            watch.entities.push(record.entity);
            true
        });
        if let Some(entity) = self.entities.resources[line as usize] {
            watch.rows.push(resources_name(line));
            watch.entities.push(entity);
        }
        watch.parts.resize_with(self.schema.kept.len(), Part::default);
        for (part, entry) in watch.parts.iter_mut().zip(&self.schema.kept) {
            part.take(entry, world, &watch.entities);
        }
    }

    fn check_line(&mut self, world: &World, at: usize, line: Timeline) {
        let mut watch = std::mem::take(&mut self.strays.lines[at]);
        if watch.armed {
            let here = |row: usize| {
                let (net, entity) = (watch.rows[row], watch.entities[row]);
                let parked = self.entities.slot_of(net).and_then(|slot| self.entities.get(slot)).is_some_and(|r| r.parked);
                !parked && self.entities.handle(net) == Some(entity)
            };
            let mut found = Vec::new();
            for row in (0..watch.rows.len()).filter(|row| here(*row) && !world.contains(watch.entities[*row])) {
                let (before, after) = ("there".into(), "despawned without its step".into());
                found.push(Stray { net: watch.rows[row], component: String::new(), field: String::new(), before, after });
            }
            for (part, entry) in watch.parts.iter().zip(&self.schema.kept) {
                watch.now.take(entry, world, &watch.entities);
                if part.rows == watch.now.rows && part.bytes == watch.now.bytes {
                    continue;
                }
                let rows = (0..watch.rows.len()).filter(|row| part.value(*row) != watch.now.value(*row));
                for row in rows.filter(|row| here(*row) && world.contains(watch.entities[*row])) {
                    let (field, before, after) = differ(entry, part.value(row), watch.now.value(row));
                    found.push(Stray { net: watch.rows[row], component: entry.name.clone(), field, before, after });
                }
            }
            self.tell_strays(line, watch.tick, found);
        }
        self.strays.lines[at] = watch;
    }

    /// Guest: what others have authority over is as they have told it.
    pub(crate) fn watch_foreign(&mut self, world: &World) {
        if !self.config.check_writes || self.is_host() {
            return;
        }
        let mut foreign = std::mem::take(&mut self.strays.foreign);
        let Foreign { cursor, rows, words, .. } = &mut foreign;
        rows.clear();
        words.clear();
        let schema = &self.schema;
        // who is named can come and go without a write
        let whole = |c: &u32| !schema.layout(*c as usize).has_entities();
        let known = (1..schema.columns() as u32).filter(whole).fold(0u64, |mask, c| mask | 1 << c) & !schema.fine;
        go_round(&self.entities, cursor, |entities, slot| {
            let Some(record) = entities.get(slot).filter(|r| !r.parked && !schema.kinds[r.kind].is_computed()) else {
                return false;
            };
            let predicted = if self.predicts(record) { schema.predicted[record.kind] } else { 0 };
            let others = known & !record.mine & !predicted;
            let at = words.len();
            let has = bits(others).fold(0, |mask, c| mask | u64::from(self.add_words(world, record.entity, c, words)) << c);
            let (net, entity, owners, mine) = (record.net, record.entity, record.owners, record.mine);
            rows.push(Shown { net, entity, owners, mine, has, lacks: others & !has, at });
            true
        });
        self.strays.foreign = foreign;
    }

    /// Appends the words of a component; `false` if the entity does not have it. One that cannot travel has words that none has.
    fn add_words(&self, world: &World, entity: Entity, c: u32, words: &mut Vec<u32>) -> bool {
        let column = &self.schema.component(c as usize).column;
        let at = words.len();
        words.resize(at + column.layout().words(), 0);
        match column.quantise_one(world, entity, &name_in(world), &mut words[at..]) {
            Some(Ok(())) => {}
            Some(Err(_)) => words[at..].fill(u32::MAX),
            None => {
                words.truncate(at);
                return false;
            }
        }
        true
    }

    /// Before anything that came is taken in, or anything is taken back: what has the game written that it was not to?
    pub(crate) fn check_strays(&mut self, world: &World) {
        if !self.config.check_writes {
            return;
        }
        for (at, line) in COMPUTED.into_iter().enumerate() {
            self.check_line(world, at, line);
        }
        let mut foreign = std::mem::take(&mut self.strays.foreign);
        let mut found = Vec::new();
        for shown in foreign.rows.drain(..) {
            let record = self.entities.slot_of(shown.net).and_then(|slot| self.entities.get(slot));
            let same = |r: &&crate::entities::Record| {
                r.entity == shown.entity && r.owners == shown.owners && r.mine == shown.mine && !r.parked
            };
            // a guest may despawn its copy
            if record.filter(same).is_none() || !world.contains(shown.entity) {
                continue;
            }
            let mut at = shown.at;
            for c in bits(shown.has | shown.lacks) {
                foreign.now.clear();
                let (had, has) = (shown.has >> c & 1 != 0, self.add_words(world, shown.entity, c, &mut foreign.now));
                let entry = self.schema.component(c as usize);
                let length = if had { entry.column.layout().words() } else { 0 };
                let before = &foreign.words[at..at + length];
                at += length;
                if had == has && before == &foreign.now[..] {
                    continue;
                }
                let show = |has: bool, words: &[u32]| if has { format!("{words:?}") } else { "not there".to_owned() };
                let mut word = 0;
                let field = entry.column.layout().fields().iter().filter(|_| had && has).find(|field| {
                    let here = word..word + field.code.words();
                    word = here.end;
                    before.get(here.clone()) != foreign.now.get(here)
                });
                found.push(Stray {
                    net: shown.net,
                    component: entry.name.clone(),
                    field: field.map(|f| f.name.clone()).unwrap_or_default(),
                    before: show(had, before),
                    after: show(has, &foreign.now),
                });
            }
        }
        self.strays.foreign = foreign;
        self.tell_strays(Timeline::Session, self.time.ran, found);
    }

    fn tell_strays(&mut self, line: Timeline, tick: Tick, found: Vec<Stray>) {
        for Stray { net, component, field, before, after } in found {
            if self.strays.told.len() < TOLD && self.strays.told.insert((net, component.clone())) {
                self.news.push(News::Stray { line, tick, net, component, field, before, after });
            }
        }
    }
}

/// Shows the next slots to `take` until it has taken a sample, each once and a bounded number of them.
fn go_round(entities: &Entities, cursor: &mut u32, mut take: impl FnMut(&Entities, u32) -> bool) {
    let slots = entities.slots();
    let mut taken = 0;
    for _ in 0..slots.min(LOOK) {
        *cursor = if *cursor >= slots { 0 } else { *cursor };
        taken += usize::from(take(entities, *cursor));
        *cursor += 1;
        if taken == SAMPLE {
            return;
        }
    }
}

/// The field in which two values differ, and both as text.
fn differ(entry: &KeptEntry, before: Option<&[u8]>, after: Option<&[u8]>) -> (String, String, String) {
    let show = |value: Option<&[u8]>| value.map_or("not there".to_owned(), |bytes| format!("there, {} bytes", bytes.len()));
    let whole = || (String::new(), show(before), show(after));
    let read = |bytes: &[u8]| {
        let mut column = entry.kept.column();
        let mut reader = CheckpointReader::new(bytes, &|net: NetId| Entity::from_bits(net.0));
        column.read(1, &mut reader).ok().map(|()| column)
    };
    let (Some(a), Some(b)) = (before.and_then(read), after.and_then(read)) else { return whole() };
    let name = |entity: Entity| Some(NetId(entity.to_bits().get()));
    let mut at = Differ::new(&name, &name);
    if a.differ(0, &*b, 0, &mut at) { at.into_parts() } else { whole() }
}
