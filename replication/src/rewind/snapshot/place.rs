//! A snapshot that was read whole becomes the world.

use super::SnapshotError;
use super::read::{Arriving, Filled, Head, read_head};
use crate::block::bits;
use crate::entities::{NO_ROW, Networked, name_in};
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::presence::Life;
use crate::rewind::limbo::mask_of;
use crate::rewind::{Rewound, resources_name};
use hecs::{Entity, EntityBuilder, World};
use rustc_hash::FxHashMap;
use tidelock_netcore::tick::Tick;

/// Where an entity of a snapshot goes.
#[derive(Clone, Copy)]
struct Place {
    entity: Entity,
    /// It was made for it.
    new: bool,
}

impl Peer {
    /// Makes the entities of those kinds (bit k: kind k), and a timeline's resources, what they are in a snapshot of that timeline.
    /// Time is the caller's. Saves of those kinds are let go: they are of another history.
    #[cfg_attr(not(test), allow(dead_code, reason = "what a policy loads when a guest joins"))]
    pub(crate) fn load_snapshot(
        &mut self,
        world: &mut World,
        line: Timeline,
        bytes: &[u8],
        kinds: u64,
    ) -> Result<Tick, SnapshotError> {
        self.load(world, line, bytes, kinds, Tick(u64::MAX >> 8))
    }

    pub(super) fn load(
        &mut self,
        world: &mut World,
        line: Timeline,
        bytes: &[u8],
        kinds: u64,
        last: Tick,
    ) -> Result<Tick, SnapshotError> {
        let schema = self.schema.clone();
        let all = self.saves[line].as_ref().is_some_and(|s| s.is_of_all());
        let lines = if all { &Timeline::ALL[..] } else { &[line] };
        self.strays.disarm(line, all);
        let (head, values) = read_head(&schema, bytes, kinds, lines, last)?;
        let places = self.find_places(world, &head, kinds)?;
        let columns = {
            let by_handle: FxHashMap<Entity, NetId> =
                head.rows.iter().zip(&places).map(|(row, place)| (place.entity, row.net)).collect();
            let entities = |net: NetId| match head.rows.binary_search_by_key(&net, |row| row.net) {
                Ok(at) => Some(places[at].entity),
                Err(_) => {
                    // who is not in the snapshot and could be is gone
                    let record = self.entities.slot_of(net).and_then(|slot| self.entities.get(slot));
                    record.filter(|r| !r.parked && kinds >> r.kind & 1 == 0).map(|r| r.entity)
                }
            };
            let elsewhere = name_in(world);
            let names = |entity: Entity| by_handle.get(&entity).copied().or_else(|| elsewhere(entity));
            head.read_values(&schema, values, &entities, &names)
        };
        match columns {
            Ok(columns) => {
                self.place(world, &head, &places, &columns, kinds, lines);
                Ok(head.tick)
            }
            Err(error) => {
                for place in places.iter().filter(|place| place.new) {
                    let _ = world.despawn(place.entity); // it was spawned above
                }
                Err(error)
            }
        }
    }

    /// Those who are here under their names, and new ones for the others.
    fn find_places(&self, world: &mut World, head: &Head, kinds: u64) -> Result<Vec<Place>, SnapshotError> {
        let here = |world: &World, row: &Arriving| {
            let Some(kind) = row.kind else { return Ok(self.entities.handle(row.net).filter(|e| world.contains(*e))) };
            let Some(record) = self.entities.slot_of(row.net).and_then(|slot| self.entities.get(slot)) else { return Ok(None) };
            if record.kind != kind && kinds >> record.kind & 1 == 0 {
                return Err(SnapshotError::Taken(row.net));
            }
            let is_it = |e: &Entity| world.get::<&Networked>(*e).is_ok_and(|mark| mark.id() == row.net);
            Ok(Some(record.entity).filter(|e| record.kind == kind && !record.parked && is_it(e)))
        };
        let mut places = Vec::with_capacity(head.rows.len());
        for row in &head.rows {
            let entity = here(world, row)?;
            places.push(Place { entity: entity.unwrap_or(Entity::DANGLING), new: entity.is_none() });
        }
        for place in places.iter_mut().filter(|place| place.new) {
            place.entity = world.spawn(());
        }
        Ok(places)
    }

    fn place(&mut self, world: &mut World, head: &Head, places: &[Place], columns: &[Filled], kinds: u64, lines: &[Timeline]) {
        for line in Timeline::ALL {
            let is_touched = |kept: u64| lines.contains(&line) || kept & kinds != 0;
            if self.saves[line].as_ref().is_some_and(|s| is_touched(s.kinds)) {
                self.forget_saves(world, line);
                self.saves[line].as_mut().into_iter().for_each(|s| s.start_over());
            }
        }
        self.end_others(world, head, places, kinds);
        put_values(&self.schema.kept, world, head, places, columns);
        for (row, place) in head.rows.iter().zip(places) {
            match row.kind {
                Some(kind) => self.register(world, row, *place, kind),
                None => self.entities.set_entity(row.net, place.entity),
            }
        }
        for line in lines.iter().filter(|line| self.keeper_of(**line).is_some()) {
            let net = resources_name(*line);
            if let Some(entity) = self.entities.handle(net) {
                // the game may have despawned it
                let _ = world.insert_one(entity, Rewound { net });
            }
        }
        self.dirty = true;
    }

    /// Whoever of those kinds is not in the snapshot goes.
    fn end_others(&mut self, world: &mut World, head: &Head, places: &[Place], kinds: u64) {
        for slot in 0..self.entities.slots() {
            let Some(record) = self.entities.get(slot).filter(|r| kinds >> r.kind & 1 != 0) else { continue };
            let at = head.rows.binary_search_by_key(&record.net, |row| row.net);
            if at.is_ok_and(|at| !places[at].new) {
                continue;
            }
            let (net, entity, is_host) = (record.net, record.entity, self.is_host());
            let row = record.out_row;
            let is_told = if is_host { row != NO_ROW && self.config.local_news } else { record.shown };
            if is_host {
                self.end_entity(slot);
            } else {
                // not this guest's doing: it only stops to speak of it
                self.entities.remove(slot);
                self.note_ended(slot);
                if row != NO_ROW {
                    self.end_row(row as usize, Life::Free);
                }
            }
            // the game may have despawned it
            let _ = world.despawn(entity);
            if at.is_err() {
                self.let_go(world, net);
            }
            if is_told {
                self.news.push(News::Despawned { entity, net });
            }
        }
    }

    fn register(&mut self, world: &mut World, row: &Arriving, place: Place, kind: usize) {
        if place.new || !(self.schema.kinds[kind].has)(world, place.entity) {
            (self.schema.kinds[kind].mark)(world, place.entity);
        }
        let slot = if place.new {
            self.entities.insert(world, row.net, place.entity, kind)
        } else {
            let Some(slot) = self.entities.slot_of(row.net) else { return };
            slot
        };
        if let Some(record) = self.entities.get_mut(slot) {
            record.set_tag(row.tag);
            record.shown = true;
        }
        if place.new {
            self.apply.arrived(row.net);
            if !self.is_host() {
                let kind = self.schema.kinds[kind].name.clone();
                self.news.push(News::Spawned { entity: place.entity, net: row.net, kind });
            }
        }
        self.refresh_authority(world, slot);
    }

    /// In a game that was loaded there may be owners who are not here, and names that are to be given next.
    pub(super) fn adopt_loaded(&mut self, world: &mut World) {
        for slot in 0..self.entities.slots() {
            let Some(record) = self.entities.get_mut(slot) else { continue };
            // names from bit 62 on are made of a tick and a number in it
            if record.net.0 >> 62 == 0 {
                self.names.avoid(record.net);
            }
            let roster = &self.roster;
            let gone = |peer: PeerId| peer != PeerId::NOBODY && !roster.contains_key(&peer);
            let orphans = record.owners.iter_mut().filter(|owner| gone(owner.peer));
            if orphans.map(|owner| owner.peer = PeerId::HOST).count() > 0 {
                self.refresh_authority(world, slot);
            }
        }
    }
}

/// Exactly the kept components of the snapshot, with its values.
fn put_values(kept: &[crate::rewind::kept::KeptEntry], world: &mut World, head: &Head, places: &[Place], columns: &[Filled]) {
    // values lie in columns, and each row takes the next one of each that it has
    let mut next = vec![0; columns.len()];
    let mut scattered: Vec<Vec<(Entity, u32)>> = vec![Vec::new(); columns.len()];
    for (row, place) in head.rows.iter().zip(places) {
        let have = if place.new { 0 } else { world.entity(place.entity).map_or(0, |e| mask_of(kept, &e)) };
        for c in bits(have & !row.mask) {
            kept[c as usize].kept.remove(world, place.entity);
        }
        let mut builder = EntityBuilder::new();
        for (i, column) in columns.iter().enumerate().filter(|(_, column)| row.mask >> column.component & 1 != 0) {
            let at = next[i];
            next[i] += 1;
            if have >> column.component & 1 != 0 {
                scattered[i].push((place.entity, at as u32));
            } else {
                column.values.add_to(at, &mut builder);
            }
        }
        if row.mask & !have != 0 {
            // it was found or spawned before
            let _ = world.insert(place.entity, builder.build());
        }
    }
    for (column, to) in columns.iter().zip(&scattered) {
        kept[column.component].kept.scatter(world, &*column.values, to);
    }
}
