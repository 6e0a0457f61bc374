//! What a host does with what its guests publish: may they say that, is it plausible, and then into history and world. Received
//! is not accepted: a refused value has moved the guest's baseline and nothing else, and the guest is sent what holds instead.

use crate::authority::subscribe_row;
use crate::block::bits;
use crate::column::Write;
use crate::entities::{NO_ROW, Record};
use crate::incoming::Touched;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::{Facts, OWNER_SLOTS, Refusal, Share};
use crate::presence::{Life, Ownership, Presence};
use hecs::World;
use std::time::Duration;
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Refusals of one guest that are told one by one in one frame; the rest is counted.
const TOLD: usize = 4;

impl Peer {
    /// Takes in what all guests' packets brought since the last call.
    pub(crate) fn accept_rows(&mut self, world: &mut World) {
        let mut index = 0;
        while index < self.links.len() {
            let peer = self.links[index].peer;
            let mut touched = std::mem::take(&mut self.apply.touched);
            self.links[index].incoming.take_touched(&mut touched);
            let mut told = 0;
            for row in touched.rows() {
                if let Err(error) = self.accept_row(world, index, row, &mut told) {
                    self.misbehaved(world, index, error);
                    break;
                }
                if self.has_too_many_refusals(index) {
                    self.remove_guest(world, index, DisconnectReason::TooManyRefusals, true);
                    break;
                }
            }
            touched.clear();
            self.apply.touched = touched;
            // removal has shifted the rest
            index += usize::from(self.links.get(index).is_some_and(|l| l.peer == peer));
        }
        self.retry_withheld(world);
    }

    pub(crate) fn has_too_many_refusals(&mut self, index: usize) -> bool {
        let since = self.time.now.saturating_sub(self.config.refusal_window);
        let refusals = &mut self.links[index].refusals;
        while refusals.front().is_some_and(|at| *at < since) {
            refusals.pop_front();
        }
        refusals.len() > self.config.refusals as usize
    }

    fn accept_row(&mut self, world: &mut World, index: usize, touched: Touched, told: &mut usize) -> Result<(), PeerError> {
        let Touched { row, mut components } = touched;
        let incoming = &mut self.links[index].incoming;
        if incoming.have(row) & 1 == 0 {
            return Ok(()); // values before their binding: they count when it is here
        }
        let presence = incoming.presence(row);
        if presence.life == Life::Alive && !incoming.bind(row, presence.net) {
            return Err(PeerError::OutOfOrder("another entity in a row whose own has not ended"));
        }
        if components & 1 != 0 {
            components |= incoming.have(row);
        }
        match presence.life {
            Life::Free => self.unbind_row(index, row, presence.net),
            Life::Dead => self.accept_despawn(world, index, row, &presence, told),
            Life::Alive => match self.entities.slot_of(presence.net) {
                Some(slot) => self.accept_values(world, index, row, slot, &presence, components, told),
                None => self.accept_spawn(world, index, row, &presence, told),
            },
        }
        Ok(())
    }

    fn unbind_row(&mut self, index: usize, row: usize, net: NetId) {
        let link = &mut self.links[index];
        link.incoming.unbind(row);
        let peer = link.peer;
        let slot = self.entities.slot_of(net);
        if let Some(record) = slot.and_then(|slot| self.entities.get_mut(slot)) {
            // its publisher may have given it another row, whose packet came first
            record.in_rows.retain(|r| *r != (peer, row as u32));
        }
    }

    fn accept_despawn(&mut self, world: &mut World, index: usize, row: usize, presence: &Presence, told: &mut usize) {
        let peer = self.links[index].peer;
        self.unbind_row(index, row, presence.net);
        let slot = self.entities.slot_of(presence.net);
        let Some((slot, record)) = slot.and_then(|slot| self.entities.get(slot).map(|r| (slot, r))) else {
            self.links[index].counters.unknown_despawns += 1;
            return;
        };
        let policy = &self.schema.kinds[record.kind].policy;
        let owner = record.owners[policy.slot()];
        let refusal = if owner.epoch != presence.owners[policy.slot()].epoch {
            let late = record.former.contains(&peer) || policy.lifetime(self.facts(owner.peer), peer);
            Some(if late { Refusal::StaleEpoch } else { Refusal::NotOwner })
        } else if policy.lifetime(self.facts(owner.peer), peer) {
            None
        } else {
            Some(Refusal::Lifetime)
        };
        let (entity, out_row) = (record.entity, record.out_row);
        if let Some(refusal) = refusal {
            self.refuse(index, presence.net, None, refusal, told);
            if out_row != NO_ROW {
                // it despawned what it may not: it gets it back
                let ever = self.publisher.ever(out_row as usize);
                self.links[index].subscriber.force(out_row as usize, ever, self.time.tick);
            }
            return;
        }
        self.end_entity(slot);
        // the game may have despawned it itself
        let _ = world.despawn(entity);
        self.let_go(world, presence.net);
        self.news.push(News::Despawned { entity, net: presence.net });
    }

    fn accept_spawn(&mut self, world: &mut World, index: usize, row: usize, presence: &Presence, told: &mut usize) {
        let (peer, net) = (self.links[index].peer, presence.net);
        let incoming = &self.links[index].incoming;
        if presence.components & !(incoming.have(row) >> 1) != 0 {
            return; // not all of it is here yet
        }
        if self.names.was_claimed(peer, net) {
            return; // gone already, or refused: the guest is being told
        }
        let Some(kind) = self.schema.kinds.get(presence.kind) else { return };
        let policy = &kind.policy;
        let owner_says_so = presence.owners[policy.slot()] == Ownership { peer, epoch: 0 };
        let refusal = if !self.names.claim(peer, net) {
            // what crossed the end of an entity is nobody's fault
            Some(if self.mailbox.is_dead(net) { Refusal::Unknown } else { Refusal::NotLeased })
        } else if !owner_says_so || !policy.lifetime(self.facts(peer), peer) {
            Some(Refusal::Lifetime)
        } else if self.entities.spawned_by(peer) >= limits::GUEST_ROWS {
            Some(Refusal::TooMany)
        } else {
            self.check_spawn(index, row, presence).err()
        };
        if let Some(refusal) = refusal {
            self.refuse(index, net, None, refusal, told);
            return self.refuse_spawn(index, presence);
        }
        self.take_spawn(world, index, row, presence);
    }

    /// Every value of a spawn must be the guest's to write, and valid.
    fn check_spawn(&self, index: usize, row: usize, presence: &Presence) -> Result<(), Refusal> {
        let peer = self.links[index].peer;
        for c in bits(presence.components << 1) {
            let c = c as usize;
            let policy = self.schema.policy(presence.kind, c);
            if policy.share(Facts { local: peer, owner: peer, host: PeerId::HOST }) != Share::State {
                return Err(Refusal::NotShared);
            }
            policy.accept(self.facts(peer), peer)?;
            let words = self.links[index].incoming.mirror.value(c, row);
            self.check_value(c, None, words, peer, None, Tick::ZERO).map_err(Refusal::Invalid)?;
        }
        Ok(())
    }

    fn check_value(
        &self,
        c: usize,
        old: Option<(&[u32], Tick)>,
        new: &[u32],
        sender: PeerId,
        entity: Option<hecs::Entity>,
        sample: Tick,
    ) -> Result<(), &'static str> {
        let column = &self.schema.component(c).column;
        if !column.is_value(new) {
            return Err("no value has these words");
        }
        if !column.is_validated() {
            return Ok(());
        }
        let ticks = old.map_or(1, |o| sample.since(o.1).max(1));
        let elapsed = Duration::from_secs_f64(ticks as f64 / f64::from(self.config.tick_rate));
        let write = Write { sender, entity, elapsed };
        column.validate(old.map(|o| o.0), new, &write, &|net| self.entities.entity_of(net))
    }

    fn take_spawn(&mut self, world: &mut World, index: usize, row: usize, presence: &Presence) {
        let peer = self.links[index].peer;
        let entity = world.spawn(());
        (self.schema.kinds[presence.kind].mark)(world, entity);
        let slot = self.entities.insert(world, presence.net, entity, presence.kind);
        let Some(out_row) = self.publisher.bind(presence.kind, peer, slot) else {
            // no row is left for anybody: nothing of it can be shown
            self.entities.remove(slot);
            self.note_ended(slot);
            let _ = world.despawn(entity);
            return self.refuse_spawn(index, presence);
        };
        self.entities.set_spawner(slot, peer);
        self.entities.set_row(slot, out_row as u32);
        if let Some(record) = self.entities.get_mut(slot) {
            record.owners = [Ownership { peer, epoch: 0 }; OWNER_SLOTS];
            record.cut = presence.cut;
            record.set_in_row(peer, row);
        }
        let sample = self.links[index].incoming.newest_tick().min(self.time.tick);
        // at once, not at the next capture: if the entity ends before that, its tombstone must name it
        let owners = [Ownership { peer, epoch: 0 }; OWNER_SLOTS];
        self.publisher.set_presence(out_row, &Presence { owners, ..*presence }, self.time.tick);
        for c in bits(presence.components << 1) {
            let c = c as usize;
            let words = self.links[index].incoming.mirror.value(c, row).to_vec();
            self.publisher.set(c, out_row, &words, sample, true);
            self.write_component(world, slot, c, &words);
        }
        self.forwards = true;
        self.capture.refresh(slot);
        self.refresh_authority(world, slot);
        if let Some(record) = self.entities.get(slot) {
            for link in &mut self.links {
                let known = link.peer == peer;
                subscribe_row(&self.schema, &self.publisher, link, out_row, record, known, false, self.time.tick);
            }
        }
        if let Some(record) = self.entities.get_mut(slot) {
            record.shown = true;
        }
        self.apply.arrived(presence.net);
        let kind = self.schema.kinds[presence.kind].name.clone();
        self.news.push(News::Spawned { entity, net: presence.net, kind });
    }

    /// A tombstone for a name that never was, shown to its inventor alone.
    fn refuse_spawn(&mut self, index: usize, presence: &Presence) {
        let peer = self.links[index].peer;
        let Some(row) = self.publisher.bind_tombstone(presence.kind, peer) else { return };
        let tombstone = Presence { life: Life::Dead, ..*presence };
        self.publisher.set_presence(row, &tombstone, self.time.tick);
        self.links[index].subscriber.tell_end(row, presence.net, &self.publisher, self.time.tick);
        self.dirty = true;
        self.forwards = true;
    }

    #[expect(clippy::too_many_arguments, reason = "one row's facts, each from another place")]
    fn accept_values(
        &mut self,
        world: &mut World,
        index: usize,
        row: usize,
        slot: u32,
        presence: &Presence,
        components: u64,
        told: &mut usize,
    ) {
        let peer = self.links[index].peer;
        let Some(record) = self.entities.get_mut(slot) else { return };
        record.set_in_row(peer, row);
        let (out_row, entity) = (record.out_row, record.entity);
        if out_row == NO_ROW {
            return;
        }
        let out_row = out_row as usize;
        let is_owner = record.owners[0] == presence.owners[0] && record.owners[0].peer == peer;
        if is_owner && record.cut != presence.cut {
            record.cut = presence.cut;
            self.capture.refresh(slot);
            self.dirty = true;
        }
        if components & 1 != 0 {
            self.accept_removals(world, index, slot, presence);
        }
        for c in bits(components & !1) {
            let c = c as usize;
            if !presence.has(c) {
                continue;
            }
            let incoming = &self.links[index].incoming;
            let words = incoming.mirror.value(c, row);
            let same = self.publisher.ever(out_row) >> c & 1 != 0 && words == self.publisher.history.value(c, out_row);
            if same && (self.schema.component(c).column.has(world, entity) || self.apply.is_waiting(presence.net, c)) {
                continue;
            }
            let Some(record) = self.entities.get(slot) else { return };
            let fresh = incoming.is_of_epoch(c, row);
            if let Err(refusal) = self.judge(record, c, peer, presence, fresh) {
                self.refuse_value(index, slot, out_row, c, refusal, told);
                continue;
            }
            let sample = incoming.sample(c, row).min(self.time.tick);
            let old = self.last_held(c, out_row);
            // a writer's ticks buy it no time: every write uses up at least one, and none goes back
            let sample = old.map_or(sample, |o| sample.max(o.1.plus(1))).min(self.time.tick);
            let checked = self.check_value(c, old, words, peer, Some(entity), sample);
            if let Err(reason) = checked {
                self.refuse_value(index, slot, out_row, c, Refusal::Invalid(reason), told);
                continue;
            }
            let words: smallvec::SmallVec<[u32; 16]> = words.into();
            self.publisher.set(c, out_row, &words, sample, true);
            self.forwards = true;
            self.dirty = true;
            self.write_component(world, slot, c, &words);
        }
    }

    /// The value that holds now, and when it was sampled, or the oldest tick that is remembered.
    fn last_held(&self, c: usize, out_row: usize) -> Option<(&[u32], Tick)> {
        if self.publisher.ever(out_row) >> c & 1 == 0 {
            return None;
        }
        let (held, _) = self.publisher.history.bracket(c, out_row, Tick(u64::MAX));
        held.map(|s| (s.words, s.tick.unwrap_or(self.time.tick.minus(limits::RING as u64))))
    }

    /// May `peer` write component `c` of the entity, under the ownership that its binding names?
    fn judge(&self, record: &Record, c: usize, peer: PeerId, presence: &Presence, fresh: bool) -> Result<(), Refusal> {
        let policy = self.schema.policy(record.kind, c);
        let owner = record.owners[policy.slot()];
        let facts = Facts { local: peer, owner: owner.peer, host: PeerId::HOST };
        let named = presence.owners[policy.slot()];
        if named.epoch != owner.epoch || !fresh {
            // who names an epoch that never was, or was an owner under none, is not late but lying
            let future = owner.epoch.wrapping_sub(named.epoch) > u16::MAX / 2;
            let late = record.former.contains(&peer) || policy.share(facts) == Share::State;
            return Err(if late && !future { Refusal::StaleEpoch } else { Refusal::NotOwner });
        }
        if policy.share(facts) != Share::State {
            return Err(if owner.peer == peer { Refusal::NotShared } else { Refusal::NotOwner });
        }
        policy.accept(self.facts(owner.peer), peer)
    }

    /// The owner has taken components off.
    fn accept_removals(&mut self, world: &mut World, index: usize, slot: u32, presence: &Presence) {
        let peer = self.links[index].peer;
        let Some(record) = self.entities.get(slot) else { return };
        let (entity, net) = (record.entity, record.net);
        for c in 1..self.schema.columns() {
            let Some(record) = self.entities.get(slot) else { return };
            let own_form = self.schema.fine >> c & 1 == 0;
            if own_form && !presence.has(c) && self.judge(record, c, peer, presence, true).is_ok() {
                let entry = self.schema.component(c);
                self.apply.stop_waiting(net, c);
                if entry.column.remove(world, entity) {
                    self.dirty = true;
                    self.forwards = true;
                    self.news.push(News::Removed { entity, component: entry.name.clone() });
                }
            }
        }
    }

    fn refuse_value(&mut self, index: usize, slot: u32, out_row: usize, c: usize, refusal: Refusal, told: &mut usize) {
        let Some(net) = self.entities.get(slot).map(|r| r.net) else { return };
        self.refuse(index, net, Some(c), refusal, told);
        if self.publisher.ever(out_row) >> c & 1 != 0 {
            // what holds, as an absolute value
            self.links[index].subscriber.force(out_row, 1 << c, self.time.tick);
            self.forwards = true;
            self.dirty = true;
        }
    }

    fn refuse(&mut self, index: usize, net: NetId, c: Option<usize>, refusal: Refusal, told: &mut usize) {
        let link = &mut self.links[index];
        link.counters.refused += 1;
        self.refused.1.add(refusal);
        if refusal.is_race() {
            return;
        }
        link.refusals.push_back(self.time.now);
        self.refused.note(self.time.now, net, refusal);
        *told += 1;
        if *told <= TOLD {
            let component = c.map_or(String::new(), |c| self.schema.component(c).name.clone());
            self.news.push(News::Refused { peer: link.peer, net, component, refusal });
        }
    }
}
