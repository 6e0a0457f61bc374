//! From received rows to the world: entities come and go, components are written, and what names an entity waits for it.

mod targets;

pub(crate) use targets::Targets;

use crate::block::bits;
use crate::column::{WriteOver, Written};
use crate::entities::{NO_ROW, name_in};
use crate::history::BLOCK;
use crate::incoming::{Touched, TouchedBlocks};
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::presence::{Life, Presence};
use crate::replicate::RestoreError;
use hecs::World;
use smallvec::SmallVec;
use targets::Target;
use tidelock_netcore::tick::Tick;

impl Peer {
    /// Components that name an entity which is not here (yet), and are withheld until it is: how many.
    #[must_use]
    pub fn waiting_references(&self) -> usize {
        self.apply.withheld.len()
    }

    /// Guest: takes in what the host's packets brought since the last call.
    pub(crate) fn apply_rows(&mut self, world: &mut World) {
        if self.links.is_empty() {
            return;
        }
        let mut touched = std::mem::take(&mut self.apply.touched);
        self.apply.writes.resize_with(self.schema.columns(), Default::default);
        self.apply.targets.set_columns(self.schema.columns());
        self.links[0].incoming.take_touched(&mut touched);
        self.apply.forget_old(self.links[0].incoming.mirror.now());
        self.apply_lives(world, &touched);
        self.retry_births(world);
        while let Some(row) = self.apply.takeovers.pop() {
            let components = self.links[0].incoming.have(row);
            self.apply_values(world, Touched { row, components });
        }
        for (i, &block) in touched.blocks.iter().enumerate() {
            let (masks, version) = (touched.masks(i), self.entities.version());
            let ready = self.apply.targets.ready(block as usize, masks, version);
            for (c, rows) in masks.iter().map(|rows| rows & ready).enumerate().filter(|(_, rows)| *rows != 0) {
                self.apply.note_write(c, WriteOver { block, rows });
            }
            bits(touched.all(i) & !ready).for_each(|bit| self.apply_values(world, touched.row(i, bit)));
        }
        self.write_over(world);
        self.retry_withheld(world);
        touched.clear();
        self.apply.touched = touched;
    }

    /// Takes in who has come and who has gone.
    fn apply_lives(&mut self, world: &mut World, touched: &TouchedBlocks) {
        for (i, &block) in touched.blocks.iter().enumerate() {
            bits(touched.masks(i)[0]).for_each(|bit| self.apply_end(world, block as usize * BLOCK + bit as usize));
        }
        for (i, &block) in touched.blocks.iter().enumerate() {
            let ready = self.apply.targets.ready(block as usize, touched.masks(i), self.entities.version());
            for row in bits(touched.all(i) & !ready).map(|bit| touched.row(i, bit)) {
                // an entity that is here is born no more, unless the row has become another's
                if row.components & 1 != 0 || !self.is_target(row) && self.slot_seen(row.row).is_none() {
                    self.apply_birth(world, row.row);
                }
            }
        }
    }

    /// The slot of the entity that a row names, if it was found there before and is still here.
    fn slot_seen(&self, row: usize) -> Option<u32> {
        let slot = self.apply.targets.get(row)?.slot;
        let net = self.links[0].incoming.net(row)?;
        self.entities.get(slot).is_some_and(|r| r.net == net).then_some(slot)
    }

    /// The slot of the entity that a row names, if it is here.
    fn slot_in(&mut self, row: usize) -> Option<u32> {
        if let Some(slot) = self.slot_seen(row) {
            return Some(slot);
        }
        let slot = self.entities.slot_of(self.links[0].incoming.net(row)?)?;
        self.apply.targets.set_slot(row, slot);
        Some(slot)
    }

    /// Is it known where the values go that have come for a row, and does none of them ask for more than being written: no presence,
    /// nothing of this peer's own, nothing that waits for another entity?
    fn is_target(&self, touched: Touched) -> bool {
        let Touched { row, components } = touched;
        if !self.apply.targets.is_plain(row, components) {
            return false;
        }
        let Some(target) = self.apply.targets.get(row) else { return false };
        let Some(record) = self.entities.get(target.slot) else { return false };
        let same = record.net == target.net && record.mine == target.mine && record.owners[0].peer == target.owner;
        let here = record.entity == self.apply.targets.entities()[row];
        same && here && record.in_row(PeerId::HOST).is_none_or(|in_row| in_row == row)
    }

    /// Takes in that a row says, if it does, that its entity is here no more.
    fn apply_end(&mut self, world: &mut World, row: usize) {
        let incoming = &mut self.links[0].incoming;
        if incoming.have(row) & 1 == 0 {
            return;
        }
        let presence = incoming.presence(row);
        if presence.life == Life::Alive {
            return;
        }
        let now = incoming.mirror.now();
        incoming.unbind(row);
        self.apply.targets.forget(row);
        self.apply.wait_no_more(row as u32);
        let for_good = presence.life == Life::Dead;
        let slot = self.entities.slot_of(presence.net);
        let began = slot.and_then(|slot| self.entities.get(slot)).map_or(Tick::ZERO, |record| record.began);
        self.apply.note_gone(presence.net, began, now);
        let Some(slot) = slot else {
            if for_good {
                self.let_go(world, presence.net);
                self.links[0].counters.unknown_despawns += 1;
            } else {
                self.apply.forget(presence.net);
            }
            return;
        };
        let other = self.entities.get(slot).and_then(|r| r.in_row(PeerId::HOST)).is_some_and(|other| other != row);
        if other && !for_good {
            return; // it was hidden and is shown again: it goes on in another row
        }
        self.bury(world, presence.net);
        let Some(record) = self.entities.remove(slot) else { return };
        self.dirty = true;
        if record.out_row != NO_ROW {
            self.end_row(record.out_row as usize, Life::Free);
        }
        // the game may have despawned it itself
        let _ = world.despawn(record.entity);
        let (entity, net) = (record.entity, presence.net);
        if for_good {
            self.let_go(world, net);
            self.news.push(News::Despawned { entity, net });
        } else {
            self.apply.forget(net);
            self.withhold_all(world, net, false);
            self.news.push(News::Hidden { entity, net });
        }
    }

    /// An entity is gone from register and world: nothing waits for it or names it any more.
    pub(crate) fn let_go(&mut self, world: &mut World, net: NetId) {
        self.apply.forget(net);
        self.mailbox.note_dead(net);
        self.withhold_all(world, net, true);
    }

    /// A guest's own entity is gone by its own doing. The host may refuse that and give it back, so what names it waits until the
    /// host agrees.
    pub(crate) fn set_aside(&mut self, world: &mut World, net: NetId) {
        if self.is_host() {
            self.let_go(world, net);
        } else {
            self.withhold_all(world, net, false);
        }
    }

    /// The components that name an entity that is gone are absent until their owner names another, or, unless it is gone for
    /// good, until it is back.
    fn withhold_all(&mut self, world: &mut World, gone: NetId, for_good: bool) {
        let mut words = Vec::new();
        for (net, c) in self.apply.naming(gone) {
            if for_good {
                // names never come back: what still waits for this one waits for nothing
                self.apply.forget_waiting((net, c), gone, self.schema.layout(c));
            }
            let Some(record) = self.entities.slot_of(net).and_then(|slot| self.entities.get(slot)) else { continue };
            if record.mine >> c & 1 != 0 {
                continue; // the game's own to mend
            }
            let (slot, entity) = (self.entities.slot_of(net), record.entity);
            let entry = self.schema.component(c);
            words.clear();
            words.resize(entry.column.layout().words(), 0);
            // what is shown may be this peer's own last word still, so the world is asked: there, the gone have no name
            let shown = entry.column.quantise_one(world, entity, &name_in(world), &mut words);
            if !matches!(shown, Some(Ok(()))) {
                continue;
            }
            if entry.column.is_complete(&words) {
                // an option: none from now on
                let entities = &self.entities;
                let _ = entry.column.write(world, entity, &words, &|n| entities.entity_of(n));
                continue;
            }
            if entry.column.remove(world, entity) {
                self.news.push(News::Removed { entity, component: entry.name.clone() });
            }
            let published = slot.and_then(|slot| Some((slot, self.words_of(slot, c)?)));
            let Some((slot, published)) = published else { continue };
            if !entry.column.layout().entities(&published).any(|n| n == gone) {
                self.write_component(world, slot, c, &published);
            } else if !for_good {
                self.apply.withheld.insert((net, c), published);
            }
        }
        if for_good {
            self.apply.nobody_names(gone);
        }
    }

    /// The words of a component as its publisher last had them.
    fn words_of(&self, slot: u32, c: usize) -> Option<Vec<u32>> {
        let record = self.entities.get(slot)?;
        if self.is_host() {
            return (record.out_row != NO_ROW).then(|| self.publisher.history.value(c, record.out_row as usize).to_vec());
        }
        let row = record.in_row(PeerId::HOST)?;
        Some(self.links.first()?.incoming.mirror.value(c, row).to_vec())
    }

    /// Lets an entity appear, if everything that it needs is here.
    fn apply_birth(&mut self, world: &mut World, row: usize) {
        let incoming = &self.links[0].incoming;
        if incoming.have(row) & 1 == 0 {
            return;
        }
        let presence = incoming.presence(row);
        if presence.life != Life::Alive {
            return;
        }
        if let Some(record) = self.entities.slot_of(presence.net).and_then(|slot| self.entities.get_mut(slot)) {
            // what is hidden and shown again has two rows for a moment: the younger one counts, in whatever order they come
            let began = |row| incoming.mirror.newest_change(0, row);
            let other = record.in_row(PeerId::HOST).filter(|other| *other != row);
            if other.is_none_or(|other| began(row) > began(other)) {
                record.set_in_row(PeerId::HOST, row);
                record.began = began(row).unwrap_or(record.began);
                self.apply.takeovers.extend(other.map(|_| row));
            }
            return;
        }
        // what went out of sight in one row may still be there in an older one, whose end has not come yet
        let began = incoming.mirror.newest_change(0, row).unwrap_or_default();
        if self.apply.gone_from(presence.net).is_some_and(|last| began < last) {
            return;
        }
        if presence.net == NetId(0) || presence.kind >= self.schema.kinds.len() || self.apply.forsaken.contains(&presence.net) {
            return;
        }
        if self.apply.is_ended(&presence, self.schema.kinds[presence.kind].policy.slot()) {
            return;
        }
        let expected = self.forms(presence.components << 1, presence.kind, presence.owners[0].peer);
        let all_here = expected & !incoming.have(row) == 0;
        if !all_here {
            return; // whatever is still to come brings it here again
        }
        if let Some(parent) = self.missing_parent(row, &presence)
            && !self.apply.is_circle(presence.net, parent)
        {
            return self.apply.wait_for(row as u32, presence.net, parent);
        }
        self.apply.wait_no_more(row as u32);
        self.give_birth(world, row, &presence);
    }

    fn missing_parent(&self, row: usize, presence: &Presence) -> Option<NetId> {
        let mirror = &self.links[0].incoming.mirror;
        // an owner is shown what it owns whatever becomes of the parent, and is not told of that component again
        let owns = presence.owners.iter().any(|owner| owner.peer == self.local);
        let is_missing = |net: &NetId| {
            *net != NetId(0) && self.entities.slot_of(*net).is_none() && !(owns && self.apply.gone_from(*net).is_some())
        };
        bits(self.forms(presence.components << 1, presence.kind, presence.owners[0].peer)).find_map(|c| {
            let entry = self.schema.component(c as usize);
            let parent = entry.parent.then(|| entry.column.layout().entities(mirror.value(c as usize, row)).next()).flatten();
            parent.filter(is_missing)
        })
    }

    fn give_birth(&mut self, world: &mut World, row: usize, presence: &Presence) {
        let entity = world.spawn(());
        (self.schema.kinds[presence.kind].mark)(world, entity);
        let slot = self.entities.insert(world, presence.net, entity, presence.kind);
        if let Some(record) = self.entities.get_mut(slot) {
            record.owners = presence.owners;
            record.cut = presence.cut;
            record.set_in_row(PeerId::HOST, row);
            record.began = self.links[0].incoming.mirror.newest_change(0, row).unwrap_or_default();
        }
        for c in bits(self.forms(presence.components << 1, presence.kind, presence.owners[0].peer)) {
            let c = c as usize;
            let words = SmallVec::<[u32; 16]>::from_slice(self.links[0].incoming.mirror.value(c, row));
            self.write_component(world, slot, c, &words);
        }
        self.apply.arrived(presence.net);
        self.refresh_authority(world, slot);
        if let Some(record) = self.entities.get_mut(slot) {
            record.shown = true;
        }
        let kind = self.schema.kinds[presence.kind].name.clone();
        self.news.push(News::Spawned { entity, net: presence.net, kind });
    }

    /// Births that waited for others, until none is left that can be: each looked at when the parent that it waits for has come.
    fn retry_births(&mut self, world: &mut World) {
        while let Some(parent) = self.apply.woken.pop() {
            for row in self.apply.waiting_for.remove(&parent).unwrap_or_default() {
                self.apply.wait_no_more(row);
                self.apply_birth(world, row as usize);
            }
        }
    }

    fn apply_values(&mut self, world: &mut World, touched: Touched) {
        let Touched { row, mut components } = touched;
        let write = WriteOver { block: (row / BLOCK) as u32, rows: 1 << (row % BLOCK) };
        if self.is_target(touched) {
            bits(components).for_each(|c| self.apply.note_write(c as usize, write));
            self.apply.targets.confirm(row, self.entities.version());
            return;
        }
        self.apply.targets.ask(row);
        let Some(slot) = self.slot_in(row) else { return };
        if self.entities.get(slot).and_then(|r| r.in_row(PeerId::HOST)).is_some_and(|other| other != row) {
            return; // of an earlier showing
        }
        if components & 1 != 0 {
            let presence = self.links[0].incoming.presence(row);
            self.apply_presence(world, slot, &presence);
            components |= self.put_back(world, slot, row, &presence);
        }
        let Some(record) = self.entities.get(slot) else { return };
        let (mine, entity) = (record.mine, record.entity);
        // they name nobody, so that nothing waits, nobody is told of them, and none is this peer's own: all of a component are
        // written at once
        let plain = self.schema.plain & !mine;
        let predicted = if self.predicts(record) { self.schema.predicted[record.kind] } else { 0 };
        let (net, owner) = (record.net, record.owners[0].peer);
        let named = self.forms(self.links[0].incoming.components(row) << 1, record.kind, owner);
        let compared = bits(named).fold(0, |set, c| set | (predicted >> self.schema.off_grid(c as usize) & 1) << c);
        let (version, simple) = (self.entities.version(), self.schema.plain & !mine & named & !compared);
        self.apply.targets.set(row, Target { net, mine, slot, owner }, entity, simple, version);
        for c in bits(components & named) {
            let c = c as usize;
            let incoming = &self.links[0].incoming;
            // what is predicted is compared, in its tick, with what was predicted: see `reconcile`
            if compared >> c & 1 != 0 {
                continue;
            }
            // what arrives of my own is a correction, unless it was sent before I owned it
            if mine >> c & 1 != 0 && !incoming.is_of_epoch(c, row) {
                continue;
            }
            if plain >> c & 1 != 0 {
                self.apply.note_write(c, write);
                continue;
            }
            let words = SmallVec::<[u32; 16]>::from_slice(incoming.mirror.value(c, row));
            self.write_component(world, slot, c, &words);
            if mine >> c & 1 != 0 {
                // what is written from here on is news to the host, even if it was said and refused before
                self.capture.renew(slot);
                self.dirty = true;
            }
        }
    }

    /// Writes what [`apply_values`](Self::apply_values) has put off.
    fn write_over(&mut self, world: &mut World) {
        let mut odd = Vec::new();
        for c in bits(self.schema.plain).map(|c| c as usize) {
            let (mut writes, mut room) = std::mem::take(&mut self.apply.writes[c]);
            if !writes.is_empty() {
                let (mirror, entities) = (&self.links[0].incoming.mirror, self.apply.targets.entities());
                self.schema.component(c).column.write_over(world, mirror, c, &writes, entities, &mut odd);
                room.clear(&mut writes);
            }
            self.apply.writes[c] = (writes, room);
            for row in odd.drain(..) {
                let Some(slot) = self.apply.targets.get(row).map(|target| target.slot) else { continue };
                let words = SmallVec::<[u32; 16]>::from_slice(self.links[0].incoming.mirror.value(c, row));
                self.write_component(world, slot, c, &words);
            }
        }
    }

    /// Owners, teleports, and components that were taken off.
    fn apply_presence(&mut self, world: &mut World, slot: u32, presence: &Presence) {
        let Some(record) = self.entities.get_mut(slot) else { return };
        let (entity, before, local) = (record.entity, record.owners, self.local);
        if before[0].peer != local || presence.owners[0].peer != local {
            record.cut = presence.cut;
        }
        record.owners = presence.owners;
        if before != presence.owners {
            let mine = record.mine;
            self.refresh_authority(world, slot);
            self.disown_references(world, slot, mine);
            for (i, (old, new)) in before.iter().zip(&presence.owners).enumerate().take(self.schema.slots) {
                if old.peer != new.peer {
                    self.news.push(News::Owned { entity, slot: i, owner: new.peer });
                    self.claims.note_owned(presence.net, i, new.peer == local);
                }
            }
            self.release_if_powerless(slot);
        }
        let Some(record) = self.entities.get(slot) else { return };
        // what is predicted may be there in this peer's tick and not have been in the host's: see `reconcile`
        let mine = record.mine | if self.predicts(record) { self.schema.predicted[record.kind] } else { 0 };
        for c in 1..self.schema.columns() {
            if presence.has(c) || (mine | self.schema.fine) >> c & 1 != 0 {
                continue;
            }
            self.apply.stop_waiting(presence.net, c);
            let entry = self.schema.component(c);
            if entry.column.remove(world, entity) {
                self.news.push(News::Removed { entity, component: entry.name.clone() });
            }
        }
    }

    /// References that were this peer's own to mend are from now on kept like those of others: one to nothing is not shown.
    fn disown_references(&mut self, world: &mut World, slot: u32, before: u64) {
        let Some(record) = self.entities.get(slot) else { return };
        let (net, entity) = (record.net, record.entity);
        for c in bits(before & !record.mine) {
            let c = c as usize;
            let entry = self.schema.component(c);
            if !entry.column.layout().has_entities() {
                continue;
            }
            let mut words = vec![0; entry.column.layout().words()];
            let quantised = entry.column.quantise_one(world, entity, &name_in(world), &mut words);
            if !matches!(quantised, Some(Ok(()))) {
                continue;
            }
            if entry.column.is_complete(&words) {
                self.apply.note_naming((net, c), entry.column.layout().entities(&words));
            } else if entry.column.remove(world, entity) {
                self.news.push(News::Removed { entity, component: entry.name.clone() });
            }
        }
    }

    /// The components that are there again with a value that is known already.
    fn put_back(&self, world: &World, slot: u32, row: usize, presence: &Presence) -> u64 {
        let Some(record) = self.entities.get(slot) else { return 0 };
        let forms = self.forms(presence.components << 1, presence.kind, presence.owners[0].peer);
        let here = forms & self.links[0].incoming.have(row) & !record.mine;
        let lacks = |c: &u32| !self.schema.component(*c as usize).column.has(world, record.entity);
        bits(here).filter(lacks).fold(0, |m, c| m | 1 << c)
    }

    /// A guest that has no authority over an entity any more stops publishing it.
    fn release_if_powerless(&mut self, slot: u32) {
        let Some(record) = self.entities.get(slot) else { return };
        if record.mine == 0 && record.out_row != NO_ROW {
            let row = record.out_row as usize;
            self.entities.set_row(slot, NO_ROW);
            self.end_row(row, Life::Free);
        }
    }

    /// Writes a component into the world, or withholds it until the entities that it names are here.
    pub(crate) fn write_component(&mut self, world: &mut World, slot: u32, c: usize, words: &[u32]) {
        let Some(record) = self.entities.get(slot) else { return };
        let (net, entity) = (record.net, record.entity);
        let entry = self.schema.component(c);
        let entities = &self.entities;
        match entry.column.write(world, entity, words, &|n| entities.entity_of(n)) {
            Ok(Written::NoEntity) => self.miss(world, slot),
            Ok(written) => {
                if !self.apply.withheld.is_empty() {
                    self.apply.withheld.remove(&(net, c));
                }
                if entry.column.layout().has_entities() {
                    self.apply.note_naming((net, c), entry.column.layout().entities(words));
                }
                let component = || entry.name.clone();
                if written == Written::Added && self.entities.get(slot).is_some_and(|r| r.shown) {
                    self.news.push(News::Added { entity, component: component() });
                } else if written == Written::Changed && entry.notify {
                    self.news.push(News::Changed { entity, component: component() });
                }
            }
            Err(RestoreError::Unresolved(missing)) if world.contains(entity) && entry.column.layout().has_entities() => {
                self.apply.note_naming((net, c), entry.column.layout().entities(words));
                if missing == NetId(0) || self.mailbox.is_dead(missing) {
                    // it names none, or a dead one, where it needs one: only another value can mend that
                    self.apply.withheld.remove(&(net, c));
                } else {
                    self.apply.withheld.insert((net, c), words.to_vec());
                }
                if entry.column.remove(world, entity) {
                    self.news.push(News::Removed { entity, component: entry.name.clone() });
                }
            }
            // a layout that reads what its type refuses: the component stays as it is
            Err(_) => {}
        }
    }

    /// The game took an entity out of the world behind our back. If it is not this peer's to end, it lives on elsewhere, and
    /// its copy stays away.
    pub(crate) fn miss(&mut self, world: &mut World, slot: u32) {
        let Some(record) = self.entities.get(slot) else { return };
        let net = record.net;
        let policy = &self.schema.kinds[record.kind].policy;
        let may_end = policy.lifetime(self.facts(record.owners[policy.slot()].peer), self.local);
        self.end_entity(slot);
        if may_end {
            self.set_aside(world, net);
        } else {
            self.let_go(world, net);
            self.apply.forsaken.insert(net);
        }
    }

    /// Writes what was withheld and can be resolved now.
    pub(crate) fn retry_withheld(&mut self, world: &mut World) {
        if !std::mem::take(&mut self.apply.arrived) || self.apply.withheld.is_empty() {
            return;
        }
        let mut waiting: Vec<_> = self.apply.withheld.keys().copied().collect();
        waiting.sort_unstable();
        for (net, c) in waiting {
            let Some(words) = self.apply.withheld.get(&(net, c)).cloned() else { continue };
            match self.entities.slot_of(net) {
                Some(slot) => self.write_component(world, slot, c, &words),
                None => {
                    self.apply.withheld.remove(&(net, c));
                }
            }
        }
    }
}
