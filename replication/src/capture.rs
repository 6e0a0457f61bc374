//! Capture: reading what this peer has authority over out of the world and into its published columns.
//!
//! Each archetype keeps a shadow of its raw values in its own order; a value whose raw words are as they were is not looked at
//! again, the others are quantised and compared. Births, deaths and changes of shape show in the archetypes' columns of
//! [`Networked`] marks.

mod routes;

use crate::block::bits;
use crate::column::{QuantisedRows, Shadow};
use crate::entities::{Entities, NO_ROW, Networked, name_in};
use crate::history::BLOCK;
use crate::netid::NetId;
use crate::presence::{Life, Presence};
use crate::publisher::Publisher;
use crate::replicate::FieldError;
use crate::room::make_room;
use crate::schema::Inner;
use hecs::{Archetype, World};
use routes::Routes;
use rustc_hash::{FxHashMap, FxHashSet};
use tidelock_netcore::tick::Tick;

/// What a capture found beside the values it put into the history.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Entities that were given a row: (slot, row).
    pub(crate) bound: Vec<(u32, usize)>,
    /// Slots of entities that the game took out of the world.
    pub(crate) gone: Vec<u32>,
    /// Values that cannot travel, each told once until it is mended.
    pub(crate) unsendable: Vec<(u32, usize, FieldError)>,
    /// Values that changed, if asked for: (slot, component).
    pub(crate) changed: Vec<(u32, usize)>,
    /// Entities whose set of components under this peer's authority changed: (slot, before, after).
    pub(crate) reshaped: Vec<(u32, u64, u64)>,
}

impl Findings {
    pub(crate) fn clear(&mut self) {
        self.bound.clear();
        self.gone.clear();
        self.unsendable.clear();
        self.changed.clear();
        self.reshaped.clear();
    }
}

struct Watched {
    /// Bit c: the archetype has component c.
    components: u64,
    /// Columns and shadows by component.
    shadows: Vec<(usize, Box<dyn Shadow>)>,
    /// The entities as they stood at the last capture, and their marks. The ids are looked at every time, the marks only if those
    /// differ or somebody was marked: what must be read again and again is a third as much.
    ids: Vec<u32>,
    marks: Vec<Networked>,
    routes: Routes,
    /// By entity: bits of indices whose mark changed.
    moved: Vec<u64>,
    differs: Vec<u64>,
}

/// What an entity was like at the last capture.
#[derive(Clone, Copy, Default)]
struct Shape {
    /// Whose: slots are used again.
    net: NetId,
    components: u64,
    /// Those among them that it did not have at the capture before.
    added: u64,
    /// In which it was last seen.
    round: u32,
}

/// The shadows of a world.
#[derive(Default)]
pub(crate) struct Capture {
    /// By archetype; `None` for those without networked entities.
    archetypes: Vec<Option<Watched>>,
    /// Slots whose values must be taken one by one.
    fresh: Vec<u32>,
    /// Those among them whose values are published anew even if they are the same: they stand under another ownership.
    renewed: FxHashSet<u32>,
    /// By slot.
    shapes: Vec<Shape>,
    round: u32,
    /// By slot and component: the entity whose value there was told to be unsendable. Slots are used again, names are not.
    unsendable: FxHashMap<(u32, usize), NetId>,
    indices: Vec<u32>,
    /// The rows of those at the same places.
    rows: Vec<u32>,
    pairs: Vec<(u32, u32)>,
    words: Vec<u32>,
    quantised: QuantisedRows,
    networked: usize,
    /// [`Entities::marked`] at the last capture.
    marked: u64,
    /// Of the last capture; kept for its room.
    pub(crate) findings: Findings,
}

/// What a capture works on.
pub(crate) struct Scene<'a> {
    pub(crate) schema: &'a Inner,
    pub(crate) world: &'a World,
    pub(crate) entities: &'a mut Entities,
    pub(crate) publisher: &'a mut Publisher,
    /// The host publishes every entity; a guest those that it has authority over in part.
    pub(crate) everything: bool,
    pub(crate) tick: Tick,
}

impl Capture {
    /// This peer's authority over an entity has changed, or it is new: all that it publishes of it is published anew.
    pub(crate) fn renew(&mut self, slot: u32) {
        self.refresh(slot);
        self.renewed.insert(slot);
    }

    /// Something of an entity has changed that its values do not show.
    pub(crate) fn refresh(&mut self, slot: u32) {
        self.fresh.push(slot);
        // while nobody listens nothing is captured, and the list is not worked off
        if self.fresh.len() >= 1024 && self.fresh.len().is_power_of_two() {
            self.fresh.sort_unstable();
            self.fresh.dedup();
        }
    }

    /// Has an entity a value that cannot travel?
    pub(crate) fn is_unsendable(&self, slot: u32) -> bool {
        self.unsendable.keys().any(|key| key.0 == slot)
    }

    /// Is there something to tell that values do not show: births, owners, teleports?
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Brings the publisher's open tick up to date with the world.
    pub(crate) fn run(&mut self, scene: &mut Scene<'_>, changed: u64, findings: &mut Findings) {
        self.run_fresh(scene, changed, findings);
        if scene.publisher.row_count() == 0 {
            // a guest that publishes nothing: what it is given or spawns is fresh then
            return;
        }
        for index in 0..self.archetypes.len() {
            self.take_values(scene, index, changed, findings);
        }
    }

    /// The same for what was born, died, changed its components or its owners, without looking at the values of the rest.
    pub(crate) fn run_fresh(&mut self, scene: &mut Scene<'_>, changed: u64, findings: &mut Findings) {
        // what was spawned and taken away again since the last capture has left the marks as they were
        if self.find_structure(scene) || scene.entities.len() != self.networked {
            self.take_structure(scene, findings);
        }
        self.take_fresh(scene, changed, findings);
    }

    /// Compares the marks of all archetypes with those of the last capture; says whether anything was born, died or moved.
    fn find_structure(&mut self, scene: &Scene<'_>) -> bool {
        let mut structural = false;
        let remarked = std::mem::replace(&mut self.marked, scene.entities.marked()) != scene.entities.marked();
        for (index, archetype) in scene.world.archetypes().enumerate() {
            if self.archetypes.len() == index {
                self.archetypes.push(watch(scene.schema, archetype));
            }
            let Some(watched) = &mut self.archetypes[index] else { continue };
            if !remarked && watched.ids[..] == *archetype.ids() {
                continue;
            }
            watched.ids.clear();
            watched.ids.extend_from_slice(archetype.ids());
            let marks = archetype.get::<&Networked>().expect("only archetypes with marks are watched");
            if watched.marks[..] == marks[..] {
                continue;
            }
            structural = true;
            watched.routes.forget();
            let (old, new) = (&mut watched.marks, &marks[..]);
            watched.moved.resize(new.len().div_ceil(64), 0);
            watched.differs.resize(new.len().div_ceil(64), 0);
            for (i, mark) in new.iter().enumerate() {
                if old.get(i) != Some(mark) {
                    watched.moved[i / 64] |= 1 << (i % 64);
                }
            }
            old.clear();
            old.extend_from_slice(new);
        }
        structural
    }

    /// Finds the born, the reshaped and the dead.
    fn take_structure(&mut self, scene: &mut Scene<'_>, findings: &mut Findings) {
        self.round = self.round.wrapping_add(1);
        self.fit_shapes(scene);
        let mut seen = 0;
        for watched in self.archetypes.iter().flatten() {
            for mark in &watched.marks {
                // a mark of an ended session, or a copy of an entity with its mark, is not ours
                let Some(record) = scene.entities.get(mark.slot()).filter(|r| r.net == mark.id()) else { continue };
                let shape = &mut self.shapes[mark.slot() as usize];
                seen += 1;
                let before = if shape.net == mark.id() { shape.components } else { 0 };
                let after = watched.components;
                if before != after {
                    if record.out_row != NO_ROW {
                        // others' doings were told when they arrived
                        let told = record.mine & !scene.schema.fine;
                        findings.reshaped.push((mark.slot(), before & told, after & told));
                    }
                    self.fresh.push(mark.slot());
                }
                *shape = Shape { net: mark.id(), components: after, added: after & !before, round: self.round };
            }
        }
        if seen != scene.entities.len() || self.networked != seen {
            for (slot, record) in scene.entities.iter() {
                // who is parked is not gone yet
                if self.shapes[slot as usize].round != self.round && !record.parked {
                    findings.gone.push(slot);
                }
            }
        }
        self.networked = seen;
    }

    fn fit_shapes(&mut self, scene: &Scene<'_>) {
        let slots = scene.entities.slots() as usize;
        make_room(&mut self.shapes, slots);
        self.shapes.resize(slots, Shape::default());
    }

    /// Takes first values, and presence, of entities that are new or have changed in shape or authority.
    fn take_fresh(&mut self, scene: &mut Scene<'_>, notify: u64, findings: &mut Findings) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_unstable();
        fresh.dedup();
        self.fit_shapes(scene);
        for slot in fresh.drain(..) {
            self.take_entity(scene, slot, notify, findings);
        }
        // what found no row waits for the next time
        fresh.append(&mut self.fresh);
        self.fresh = fresh;
        self.renewed.clear();
    }

    fn take_entity(&mut self, scene: &mut Scene<'_>, slot: u32, notify: u64, findings: &mut Findings) {
        let Some(record) = scene.entities.get(slot) else { return };
        if scene.schema.kinds[record.kind].is_computed() {
            return; // nothing of it travels
        }
        let shape = &mut self.shapes[slot as usize];
        if shape.net != record.net {
            return; // it is in the register and not in the world
        }
        let components = shape.components;
        let notify = notify & !std::mem::take(&mut shape.added);
        let (net, entity, mine, new) = (record.net, record.entity, record.mine & components, record.out_row == NO_ROW);
        // authority over what is not there is told as well: it may just have been taken off
        let has_mine = record.mine != 0;
        let Some(row) = publish_row(scene, slot, has_mine) else {
            if scene.everything || has_mine {
                self.fresh.push(slot); // no row is free: the next time, maybe
            }
            return;
        };
        if new {
            findings.bound.push((slot, row));
        }
        // what was taken off and is put on again, maybe under another ownership in between, is published anew as well: its
        // receiver may have only what was sent under an earlier one
        let before = if new { 0 } else { scene.publisher.presence(row).components << 1 };
        let anew = if self.renewed.contains(&slot) { u64::MAX } else { !before };
        // the first values of what another peer will write are the host's
        let mine = if new && scene.everything { components } else { mine };
        let names = name_in(scene.world);
        for c in bits(mine) {
            let c = c as usize;
            let column = &scene.schema.component(c).column;
            self.words.clear();
            self.words.resize(column.layout().words(), 0);
            match column.quantise_one(scene.world, entity, &names, &mut self.words) {
                Some(Ok(())) if !scene.everything && anew >> c & 1 != 0 => {
                    scene.publisher.renew(c, row, &self.words, scene.tick);
                }
                Some(Ok(())) => {
                    let changed = scene.publisher.set(c, row, &self.words, scene.tick, false);
                    if changed && !new && notify >> c & 1 != 0 {
                        findings.changed.push((slot, c));
                    }
                }
                // the form on the simulation grid is the same value
                Some(Err(error)) if scene.schema.fine >> c & 1 == 0 => self.report(slot, net, c, error, findings),
                Some(Err(_)) | None => {}
            }
        }
        take_presence(scene, slot, row, components);
    }

    /// Quantises what differs from the shadow.
    fn take_values(&mut self, scene: &mut Scene<'_>, index: usize, notify: u64, findings: &mut Findings) {
        let mut watched = self.archetypes[index].take();
        if let Some(watched) = &mut watched {
            let archetype = scene.world.archetypes().nth(index).expect("archetypes are never removed");
            let Watched { shadows, marks, routes, moved, differs, .. } = watched;
            routes.follow(marks, scene.entities);
            for (c, shadow) in shadows.iter_mut() {
                let entry = scene.schema.component(*c);
                differs.copy_from_slice(moved);
                shadow.compare(archetype, differs);
                if entry.column.layout().has_entities() {
                    // the same handle may have got or lost its name
                    differs.fill(u64::MAX);
                }
                self.indices.clear();
                self.rows.clear();
                routes.gather(*c, (differs, marks), scene.entities, (&mut self.indices, &mut self.rows));
                self.take_column(scene, *c, archetype, marks, notify, findings);
            }
            moved.fill(0);
        }
        self.archetypes[index] = watched;
    }

    /// Takes the values of a component that differ.
    fn take_column(
        &mut self,
        scene: &mut Scene<'_>,
        c: usize,
        archetype: &Archetype,
        marks: &[Networked],
        notify: u64,
        findings: &mut Findings,
    ) {
        if self.indices.is_empty() {
            return;
        }
        self.sort_by_row();
        let names = name_in(scene.world);
        let (indices, rows) = (std::mem::take(&mut self.indices), std::mem::take(&mut self.rows));
        let mut quantised = std::mem::take(&mut self.quantised);
        let column = &scene.schema.component(c).column;
        let (stride, notify) = (column.layout().words(), notify >> c & 1 != 0);
        column.quantise(archetype, &indices, &names, &mut quantised);
        let mut failed = quantised.failed.drain(..).peekable();
        let mut n = 0;
        while n < rows.len() {
            let mark = marks[indices[n] as usize];
            if let Some((_, error)) = failed.next_if(|f| f.0 == n) {
                // the form on the simulation grid is the same value
                if scene.schema.fine >> c & 1 == 0 {
                    self.report(mark.slot(), mark.id(), c, error, findings);
                }
                n += 1;
                continue;
            }
            let end = failed.peek().map_or(rows.len(), |f| f.0);
            let (count, mask) = stretch(&rows[n..end]);
            let words = &quantised.words[n * stride..(n + count) * stride];
            self.take_rows(scene, c, &rows[n..n + count], mask, words, notify, findings);
            n += count;
        }
        drop(failed);
        (self.indices, self.rows, self.quantised) = (indices, rows, quantised);
    }

    /// Puts what was found in the order of rows: an archetype's goes apart from it as entities come and go.
    fn sort_by_row(&mut self) {
        if self.rows.is_sorted() {
            return;
        }
        self.pairs.clear();
        self.pairs.extend(self.rows.iter().copied().zip(self.indices.iter().copied()));
        self.pairs.sort_unstable();
        for (i, (row, index)) in self.pairs.iter().enumerate() {
            (self.rows[i], self.indices[i]) = (*row, *index);
        }
    }

    /// Takes the values of some rows of one block.
    #[expect(clippy::too_many_arguments, reason = "the values, whose they are, and what is found")]
    fn take_rows(
        &mut self,
        scene: &mut Scene<'_>,
        c: usize,
        rows: &[u32],
        mask: u64,
        words: &[u32],
        notify: bool,
        findings: &mut Findings,
    ) {
        let (publisher, block) = (&mut *scene.publisher, rows[0] as usize / BLOCK);
        if !self.unsendable.is_empty() {
            let slots = rows.iter().filter_map(|row| publisher.slot(*row as usize));
            slots.for_each(|slot| _ = self.unsendable.remove(&(slot, c)));
        }
        let (simple, changed) = publisher.set_rows(c, block, mask, words, scene.tick);
        if notify {
            let slots = bits(changed).filter_map(|bit| publisher.slot(block * BLOCK + bit as usize));
            findings.changed.extend(slots.map(|slot| (slot, c)));
        }
        if simple == mask {
            return;
        }
        let stride = words.len() / rows.len();
        let rows = rows.iter().map(|row| *row as usize).enumerate();
        for (n, row) in rows.filter(|(_, row)| simple >> (row % BLOCK) & 1 == 0) {
            let words = &words[n * stride..][..stride];
            let first = publisher.ever(row) >> c & 1 == 0;
            let changed = publisher.set(c, row, words, scene.tick, false);
            let Some(slot) = publisher.slot(row) else { continue };
            if changed && !first && notify {
                findings.changed.push((slot, c));
            }
            if first {
                // a value that could not travel before: presence does not name it yet
                self.fresh.push(slot);
            }
        }
    }

    fn report(&mut self, slot: u32, net: NetId, c: usize, error: FieldError, findings: &mut Findings) {
        if self.unsendable.insert((slot, c), net) != Some(net) {
            findings.unsendable.push((slot, c, error));
        }
    }
}

/// How many rows from the first on are of its block, in ascending order, and which.
fn stretch(rows: &[u32]) -> (usize, u64) {
    let block = rows[0] as usize / BLOCK;
    let (mut count, mut mask) = (0, 0u64);
    for &row in rows {
        let bit = 1u64 << (row as usize % BLOCK);
        if row as usize / BLOCK != block || mask >= bit {
            break;
        }
        mask |= bit;
        count += 1;
    }
    (count, mask)
}

fn watch(schema: &Inner, archetype: &Archetype) -> Option<Watched> {
    if !archetype.has::<Networked>() {
        return None;
    }
    let kind = schema.kinds.iter().position(|k| (k.is_in)(archetype));
    let twins = kind.map_or(0, |kind| schema.in_all_forms(schema.predicted[kind]) & schema.fine);
    let here = |c: &usize| (twins | !schema.fine) >> c & 1 != 0 && schema.component(*c).column.is_in(archetype);
    let present = (1..schema.columns()).filter(here);
    let shadows: Vec<_> = present.map(|c| (c, schema.component(c).column.shadow())).collect();
    let components = shadows.iter().fold(0, |set, s| set | 1 << s.0);
    let (ids, marks, routes) = (Vec::new(), Vec::new(), Routes::new());
    Some(Watched { components, shadows, ids, marks, routes, moved: Vec::new(), differs: Vec::new() })
}

/// The row that carries an entity; one is given to it if it should have one.
fn publish_row(scene: &mut Scene<'_>, slot: u32, has_mine: bool) -> Option<usize> {
    let record = scene.entities.get(slot)?;
    if record.out_row == NO_ROW && (scene.everything || has_mine) {
        let row = scene.publisher.bind(record.kind, record.owners[0].peer, slot)?;
        scene.entities.set_row(slot, row as u32);
        return Some(row);
    }
    (record.out_row != NO_ROW).then_some(record.out_row as usize)
}

/// Publishes an entity's presence as the register and the world have it.
pub(crate) fn take_presence(scene: &mut Scene<'_>, slot: u32, row: usize, components: u64) {
    let Some(record) = scene.entities.get(slot) else { return };
    let mine = if scene.everything { u64::MAX } else { record.mine };
    let named = components & mine & scene.publisher.ever(row) & !scene.schema.fine;
    let presence = Presence {
        life: Life::Alive,
        net: record.net,
        kind: record.kind,
        cut: record.cut,
        components: named >> 1,
        owners: record.owners,
    };
    scene.publisher.set_presence(row, &presence, scene.tick);
}
