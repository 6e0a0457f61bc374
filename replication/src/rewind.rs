//! Rewinding: the world as each of the last ticks began, exactly, and the way back to it. What is kept are the components and
//! resources that the schema checkpoints, of entities of the kinds that it rewinds; nothing else is ever touched.
//!
//! So far only a peer alone can keep saves, and asks for it itself ([`Peer::keep_saves`]); policies that go back by themselves
//! stand on this.

use crate::entities::{NO_ROW, name_in};
use crate::error::UsageError;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::policy::{Facts, Share};
use crate::rewind::digest::Reading;
use crate::rewind::limbo::is_free;
use crate::rewind::saves::{Grave, Save, Saves};
use hecs::{Component, DynamicBundle, Entity, EntityBuilder, World};
use std::cell::OnceCell;
use thiserror::Error;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

pub(crate) mod digest;
pub(crate) mod kept;
mod limbo;
mod load;
mod restore;
pub(crate) mod saves;
mod snapshot;
mod structure;

pub use restore::Restored;
pub use snapshot::SnapshotError;
pub use structure::Rewound;

/// The name of the entity that carries the resources: the last one that there is.
pub(crate) const RESOURCES: NetId = NetId(u64::MAX - 256);

/// Spawns of one peer in one step.
const SPAWNS: u64 = 1 << 12;

/// A tick that cannot be gone back to.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RewindError {
    /// The peer keeps no saves.
    #[error("this peer keeps no saves; ask for them with `keep_saves`")]
    NoSaves,
    /// It is further back than saves are kept.
    #[error("tick {} is too old: the oldest save is of tick {}", .tick.0, .oldest.0)]
    TooOld {
        /// The tick that was asked for.
        tick: Tick,
        /// The oldest one that there is.
        oldest: Tick,
    },
    /// It was confirmed: what died by then is gone.
    #[error("tick {} was confirmed, and cannot be taken back", .0.0)]
    Confirmed(Tick),
    /// It has not been run, or was left out because the program stalled, or the saves were let go since.
    #[error("tick {} was not saved", .0.0)]
    NotSaved(Tick),
}

impl Peer {
    /// Keeps the last `ticks` ticks, at most [`limits::SAVES`], so that [`rewind`](Self::rewind) can go back to them; zero: no
    /// more. What is kept are entities of the kinds that are [`rewound`](crate::KindOptions::rewound), with their components that
    /// are registered with `.checkpoint()`, and all resources. A save takes about as long as copying those values.
    ///
    /// In a step, entities of such kinds are spawned and despawned through the [`Step`](crate::Step), which can be taken back.
    /// What is spawned, published or despawned through the peer instead cannot: all saves are let go then.
    ///
    /// # Errors
    /// [`UsageError::NotAllowed`] on a peer that is not alone, [`UsageError::Config`] for too many ticks.
    pub fn keep_saves(&mut self, world: &mut World, ticks: usize) -> Result<(), UsageError> {
        if self.transport.is_some() {
            return Err(UsageError::NotAllowed("keep saves: only a peer that is alone can, so far"));
        }
        if ticks > limits::SAVES {
            return Err(UsageError::Config("more ticks are to be kept than limits::SAVES"));
        }
        self.start_saves(world, ticks, false);
        Ok(())
    }

    pub(crate) fn start_saves(&mut self, world: &mut World, ticks: usize, all: bool) {
        self.forget_saves(world);
        self.saves = (ticks > 0).then(|| Box::new(Saves::new(self.schema.clone(), ticks, all)));
        self.ensure_resources(world);
        if let Some(entity) = self.entities.resources {
            let _ = match self.saves {
                Some(_) => world.insert_one(entity, Rewound { net: RESOURCES }).is_ok(),
                None => world.remove_one::<Rewound>(entity).is_ok(),
            };
        }
        for slot in 0..self.entities.slots() {
            self.mark_rewound(world, slot);
        }
    }

    /// Goes back to the world as `tick` began. Its steps since are asked for again by [`next_step`](Self::next_step), with
    /// [`Step::rerun`](crate::Step::rerun), before a new one is. To be called between steps.
    ///
    /// Entities keep their handles and what is not registered of them; those that were not born yet wait, and have both again
    /// when the steps that are run again spawn them under the same name, kind and key.
    ///
    /// # Errors
    /// [`RewindError`].
    pub fn rewind(&mut self, world: &mut World, tick: Tick) -> Result<Restored, RewindError> {
        let saves = self.saves.as_mut().ok_or(RewindError::NoSaves)?;
        let mut readopted = Vec::new();
        let restored = saves.restore(world, &mut self.entities, tick, &mut readopted)?;
        for slot in readopted {
            let local = self.local;
            if let Some(record) = self.entities.get_mut(slot) {
                // a record that had to be made anew has lost its owner
                record.rewound = true;
                record.owners.iter_mut().filter(|o| **o == crate::presence::UNOWNED).for_each(|o| o.peer = local);
            }
            self.refresh_authority(world, slot);
        }
        self.dirty = true;
        Ok(restored)
    }

    /// Everything up to `tick` is certain: who died by then is gone for good, and no [`rewind`](Self::rewind) goes back to it. What
    /// is older than the oldest save is certain anyway.
    pub fn confirm(&mut self, world: &mut World, tick: Tick) {
        if let Some(saves) = &mut self.saves {
            saves.confirm(tick);
            self.end_parked(world, tick);
        }
    }

    /// The digest of a tick that is still kept, over names, kinds, components and resources. It is the same on all peers of a session
    /// whose saves are equal, wherever they keep them.
    #[must_use]
    pub fn saved_digest(&self, world: &World, tick: Tick) -> Option<u64> {
        let save = self.saves.as_ref()?.get(tick)?;
        self.read_save(world, save, |reading| reading.digest())
    }

    /// Hands a save out with all that is needed to read it.
    pub(crate) fn read_save<R>(&self, world: &World, save: &Save, read: impl FnOnce(Reading<'_>) -> R) -> Option<R> {
        let saves = self.saves.as_ref()?;
        let by_id = OnceCell::new();
        let elsewhere = name_in(world);
        // an id alone could be somebody else's by now
        let names = |entity: Entity| {
            let by_id: &Vec<(u32, NetId)> = by_id.get_or_init(|| names_by_id(save));
            let net = by_id.binary_search_by_key(&entity.id(), |x| x.0).ok().map(|i| by_id[i].1);
            let is_it = |net: &NetId| {
                let dead = || saves.graves.iter().any(|g| g.net == *net && g.entity == entity);
                self.entities.handle(*net) == Some(entity) || dead()
            };
            net.filter(is_it).or_else(|| elsewhere(entity))
        };
        let (schema, session) = (&*self.schema, self.session());
        Some(read(Reading { schema, watched: saves.watched(), save, names: &names, session, kinds: u64::MAX }))
    }

    /// A step begins: whoever was spawned or despawned is in the shared order from now on, and the world is saved.
    pub(crate) fn begin_step(&mut self, world: &mut World, rerun: bool) {
        let mut order = std::mem::take(&mut self.entities.order);
        order.begin_step(self.entities.iter().filter(|(_, r)| !r.parked).map(|(_, r)| (r.net, r.entity)));
        self.entities.order = order;
        if self.saves.is_none() {
            return;
        }
        if self.rerunning != rerun {
            self.rerunning = rerun;
            // on a re-run, only what went back is simulated
            for slot in 0..self.entities.slots() {
                if self.entities.get(slot).is_some_and(|r| !r.rewound) {
                    self.mark_simulated(world, slot);
                }
            }
        }
        self.ensure_resources(world);
        let tick = self.time.ran;
        let Some(saves) = &mut self.saves else { return };
        saves.ordinal = 0;
        saves.save(world, tick);
        if let Some(oldest) = saves.oldest() {
            self.end_parked(world, oldest.minus(1));
        }
    }

    fn end_parked(&mut self, world: &mut World, tick: Tick) {
        let Some(mut saves) = self.saves.take() else { return };
        let Saves { limbo, graves, .. } = &mut *saves;
        limbo.confirm(world, tick, |net| {
            let Some(slot) = self.entities.slot_of(net) else { return };
            let Some(record) = self.entities.get(slot) else { return };
            let (entity, was_told) = (record.entity, record.out_row != NO_ROW);
            graves.push(Grave { net, entity, tick, tag: record.tag() });
            self.end_entity(slot);
            if was_told && self.config.local_news {
                self.news.push(News::Despawned { entity, net });
            }
        });
        self.saves = Some(saves);
    }

    /// Lets all saves go, and who is parked with them.
    pub(crate) fn forget_saves(&mut self, world: &mut World) {
        if let Some(saves) = &mut self.saves {
            saves.forget();
            self.end_parked(world, Tick(u64::MAX));
        }
    }

    /// Are entities of that kind saved here?
    pub(crate) fn rewinds(&self, kind: usize) -> bool {
        self.saves.as_ref().is_some_and(|s| s.all || self.schema.kinds[kind].rewound)
    }

    /// Puts the [`Rewound`] mark on or takes it off. Saves without an entity that lived then would make it unborn, so they go.
    pub(crate) fn mark_rewound(&mut self, world: &mut World, slot: u32) {
        let Some(record) = self.entities.get(slot).filter(|r| !r.parked) else { return };
        let policy = &self.schema.kinds[record.kind].policy;
        let facts: Facts = self.facts(record.owners[policy.slot()].peer);
        let is_all = self.saves.as_ref().is_some_and(|s| s.all);
        let rewound = self.rewinds(record.kind) && (is_all || policy.share(facts) == Share::State);
        if rewound == record.rewound {
            return;
        }
        let (net, entity) = (record.net, record.entity);
        if let Some(record) = self.entities.get_mut(slot) {
            record.rewound = rewound;
        }
        // the game may have despawned it
        let _ =
            if rewound { world.insert_one(entity, Rewound { net }).is_ok() } else { world.remove_one::<Rewound>(entity).is_ok() };
        self.forget_saves(world);
    }

    /// Spawns in a step, under a name that a re-run gives again: who is parked under it comes back, if it is of the same kind and
    /// key.
    pub(crate) fn spawn_in_step<K: Component>(
        &mut self,
        world: &mut World,
        key: u64,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        let kind_index = self.schema.kind_of::<K>().ok_or(UsageError::NotInSchema(std::any::type_name::<K>()))?;
        if !self.rewinds(kind_index) {
            if self.rerunning {
                return Err(UsageError::NotAllowed("spawn it in a re-run: its kind is not rewound, so it is here already"));
            }
            return self.spawn(world, kind, components);
        }
        self.may_spawn(kind_index)?;
        let (local, tick) = (self.local, self.time.ran);
        let Some(saves) = &mut self.saves else { return Err(UsageError::NoNames) };
        if saves.ordinal >= SPAWNS {
            return Err(UsageError::NoNames);
        }
        // bit 62 keeps these names apart from leased ones, of which there are never that many
        let net = NetId(1 << 62 | u64::from(local.0) << 52 | (tick.0 & ((1 << 40) - 1)) << 12 | saves.ordinal);
        saves.ordinal += 1;
        let parked = self.entities.slot_of(net).and_then(|slot| Some((slot, self.entities.get(slot)?)));
        if let Some((slot, record)) = parked {
            if record.parked && record.kind == kind_index && record.key == key {
                return self.respawn(world, net, slot, kind, components);
            }
            if !record.parked && world.get::<&Rewound>(record.entity).is_ok_and(|mark| mark.net == net) {
                return Err(UsageError::NoNames); // somebody lives under it already
            }
            // another one of a wrong branch, or one that the game despawned without the step
            saves.limbo.bury(world, net);
            self.end_entity(slot);
        }
        let entity = world.spawn(components);
        // it was spawned on the line above
        let _ = world.insert(entity, (kind, Rewound { net }));
        self.register_own(world, entity, kind_index, net);
        if let Some(record) = self.entities.slot_of(net).and_then(|slot| self.entities.get_mut(slot)) {
            record.key = key;
        }
        Ok(entity)
    }

    fn respawn<K: Component>(
        &mut self,
        world: &mut World,
        net: NetId,
        slot: u32,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        let Some(saves) = &mut self.saves else { return Err(UsageError::NoNames) };
        let entity = saves.limbo.revive(world, net).ok_or(UsageError::NoNames)?;
        saves.limbo.dress(world, entity, &self.schema.kept, components);
        // it was revived a moment ago
        let _ = world.insert_one(entity, kind);
        self.entities.set_entity(net, entity);
        self.entities.set_parked(net, false);
        if let Some(record) = self.entities.get_mut(slot) {
            record.born = self.time.ran;
        }
        self.mark_simulated(world, slot);
        self.dirty = true;
        Ok(entity)
    }

    /// Despawns in a step: for good once that is certain.
    pub(crate) fn despawn_in_step(&mut self, world: &mut World, entity: Entity) -> Result<(), UsageError> {
        let slot = self.may_despawn(world, entity)?;
        let Some(record) = self.entities.get(slot).filter(|r| r.rewound) else { return self.despawn(world, entity) };
        let net = record.net;
        let tick = self.time.ran;
        let parked = self.saves.as_mut().is_some_and(|s| s.limbo.park(world, entity, net, tick));
        if parked {
            self.entities.set_parked(net, true);
            self.dirty = true;
        }
        parked.then_some(()).ok_or(UsageError::NotNetworked)
    }

    /// Makes sure that there is the entity that carries the resources, if there are any.
    pub(crate) fn ensure_resources(&mut self, world: &mut World) {
        if self.entities.resources.is_some_and(|e| world.contains(e)) {
            return;
        }
        let mut builder = EntityBuilder::new();
        let firsts = self.schema.kept.iter().filter_map(|k| k.first);
        if firsts.map(|first| first(&mut builder)).count() == 0 {
            return;
        }
        if self.saves.is_some() {
            builder.add(Rewound { net: RESOURCES });
        }
        // it has its handle again if it can: the game may have cleared its world
        let entity = match self.entities.resources.filter(|e| is_free(world, *e)) {
            Some(entity) => {
                world.spawn_at(entity, builder.build());
                entity
            }
            None => world.spawn(builder.build()),
        };
        self.entities.resources = Some(entity);
    }

    /// See [`Step::resource`](crate::Step::resource).
    pub(crate) fn resource<'w, T: Component>(&mut self, world: &'w mut World) -> Result<&'w mut T, UsageError> {
        let entry = self.schema.resource_of::<T>().and_then(|entry| entry.first);
        let first = entry.ok_or(UsageError::NotInSchema(std::any::type_name::<T>()))?;
        self.ensure_resources(world);
        let entity = self.entities.resources.ok_or(UsageError::NotNetworked)?;
        if !world.satisfies::<&T>(entity) {
            // the game has taken it off
            let mut builder = EntityBuilder::new();
            first(&mut builder);
            world.insert(entity, builder.build()).map_err(|_| UsageError::NotNetworked)?;
        }
        world.query_one_mut::<&mut T>(entity).map_err(|_| UsageError::NotNetworked)
    }
}

fn names_by_id(save: &Save) -> Vec<(u32, NetId)> {
    let tables = save.structure.tables.iter();
    let mut names: Vec<_> = tables.flat_map(|t| t.ids.iter().copied().zip(t.marks.iter().map(|m| m.net))).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
