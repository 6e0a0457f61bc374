//! Rewinding: the world as each of the last ticks began, exactly, and the way back to it. What is kept are the components and
//! resources that the schema checkpoints, of entities of the kinds that it rewinds; nothing else is ever touched.
//!
//! Saves are kept by timeline. Between peers the policies see to that: a guest keeps what it predicts and what it computes on the
//! rollback timeline. A peer that is alone asks for it itself ([`Peer::keep_saves`]).

use crate::entities::{NO_ROW, name_in};
use crate::error::UsageError;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::policy::{Apply, Facts, Share, Timeline};
use crate::rewind::digest::Reading;
use crate::rewind::limbo::is_free;
use crate::rewind::saves::{Grave, Save, Saves};
use hecs::{Component, Entity, EntityBuilder, World};
use std::cell::OnceCell;
use std::ops::{Index, IndexMut};
use thiserror::Error;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

pub(crate) mod births;
pub(crate) mod digest;
pub(crate) mod kept;
mod limbo;
mod load;
mod restore;
pub(crate) mod saves;
mod snapshot;
pub(crate) mod structure;

pub use restore::Restored;
pub use snapshot::SnapshotError;
pub use structure::Rewound;

/// The last name that there is but for 256: the entity that carries the resources of the session's timeline; those of the others
/// have the names below it.
const RESOURCES: u64 = u64::MAX - 256;

/// The name of the entity that carries a timeline's resources.
pub(crate) fn resources_name(line: Timeline) -> NetId {
    NetId(RESOURCES - line as u64)
}

/// Whose resources an entity carries, by its name.
pub(crate) fn resources_of(net: NetId) -> Option<Timeline> {
    Timeline::ALL.into_iter().find(|line| resources_name(*line) == net)
}

/// By timeline: what a peer can go back to on it, if it keeps anything.
#[derive(Default)]
pub(crate) struct Shelf([Option<Box<Saves>>; 3]);

impl Index<Timeline> for Shelf {
    type Output = Option<Box<Saves>>;

    fn index(&self, line: Timeline) -> &Self::Output {
        &self.0[line as usize]
    }
}

impl IndexMut<Timeline> for Shelf {
    fn index_mut(&mut self, line: Timeline) -> &mut Self::Output {
        &mut self.0[line as usize]
    }
}

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
            return Err(UsageError::NotAllowed("keep saves: only a peer that is alone can; between peers the policies do"));
        }
        if ticks > limits::SAVES {
            return Err(UsageError::Config("more ticks are to be kept than limits::SAVES"));
        }
        let kinds = self.schema.kinds_rewound();
        self.start_saves(world, Timeline::Session, ticks, kinds);
        Ok(())
    }

    /// Keeps saves of a timeline from now on, of those kinds; of none with zero ticks.
    pub(crate) fn start_saves(&mut self, world: &mut World, line: Timeline, ticks: usize, kinds: u64) {
        self.forget_saves(world, line);
        self.saves[line] = (ticks > 0).then(|| Box::new(Saves::new(self.schema.clone(), line, ticks, kinds)));
        for line in Timeline::ALL {
            self.ensure_resources(world, line);
            if let Some(entity) = self.entities.resources[line as usize] {
                let net = resources_name(line);
                let _ = match self.keeper_of(line) {
                    Some(_) => world.insert_one(entity, Rewound { net }).is_ok(),
                    None => world.remove_one::<Rewound>(entity).is_ok(),
                };
            }
        }
        for slot in 0..self.entities.slots() {
            self.mark_rewound(world, slot);
        }
    }

    /// The timeline whose saves keep what lives by `line`: its own, or that which keeps everything.
    pub(crate) fn keeper_of(&self, line: Timeline) -> Option<Timeline> {
        let keeps = |l: &Timeline| self.saves[*l].as_ref().is_some_and(|s| *l == line || s.is_of_all());
        [line, Timeline::Session].into_iter().find(keeps)
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
        self.rewind_line(world, Timeline::Session, tick)
    }

    /// The same on any timeline.
    pub(crate) fn rewind_line(&mut self, world: &mut World, line: Timeline, tick: Tick) -> Result<Restored, RewindError> {
        let saves = self.saves[line].as_mut().ok_or(RewindError::NoSaves)?;
        let mut readopted = Vec::new();
        let all = saves.is_of_all();
        let restored = saves.restore(world, &mut self.entities, tick, &mut readopted)?;
        self.strays.disarm(line, all);
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
        self.confirm_line(world, Timeline::Session, tick);
    }

    pub(crate) fn confirm_line(&mut self, world: &mut World, line: Timeline, tick: Tick) {
        if let Some(saves) = &mut self.saves[line] {
            saves.confirm(tick);
            self.end_parked(world, line, tick);
        }
    }

    /// The digest of a tick of the session's own timeline that is still kept, over names, kinds, components and resources. It is the
    /// same on all peers of a session whose saves are equal, wherever they keep them; a guest keeps what it predicts, a host
    /// with guests nothing. What every peer computes is compared by itself: see
    /// [`Config::digest_every`](crate::Config::digest_every) and [`News::Forked`](crate::News::Forked).
    #[must_use]
    pub fn saved_digest(&self, world: &World, tick: Tick) -> Option<u64> {
        self.saved_digest_of(world, Timeline::Session, tick)
    }

    pub(crate) fn saved_digest_of(&self, world: &World, line: Timeline, tick: Tick) -> Option<u64> {
        let save = self.saves[line].as_ref()?.get(tick)?;
        self.read_save(world, line, save, |reading| reading.digest())
    }

    /// Hands a save out with all that is needed to read it.
    pub(crate) fn read_save<R>(
        &self,
        world: &World,
        line: Timeline,
        save: &Save,
        read: impl FnOnce(Reading<'_>) -> R,
    ) -> Option<R> {
        let saves = self.saves[line].as_ref()?;
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
    pub(crate) fn begin_step(&mut self, world: &mut World) {
        let mut order = std::mem::take(&mut self.entities.order);
        order.begin_step(self.entities.iter().filter(|(_, r)| !r.parked).map(|(_, r)| (r.net, r.entity)));
        self.entities.order = order;
        self.births.clear();
        let (line, tick) = (self.time.line, self.time.ran);
        if self.saves[line].is_none() {
            return;
        }
        for kept in Timeline::ALL {
            if self.keeper_of(kept) == Some(line) {
                self.ensure_resources(world, kept);
            }
        }
        let Some(saves) = &mut self.saves[line] else { return };
        if saves.on_request {
            return;
        }
        saves.save(world, tick);
        if let Some(oldest) = saves.oldest() {
            self.end_parked(world, line, oldest.minus(1));
        }
    }

    fn end_parked(&mut self, world: &mut World, line: Timeline, tick: Tick) {
        let Some(mut saves) = self.saves[line].take() else { return };
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
        self.saves[line] = Some(saves);
    }

    /// Lets all saves of a timeline go, and who is parked with them.
    pub(crate) fn forget_saves(&mut self, world: &mut World, line: Timeline) {
        if let Some(saves) = &mut self.saves[line] {
            saves.forget();
            self.end_parked(world, line, Tick(u64::MAX));
        }
    }

    /// The same for all timelines, which are not kept from now on.
    pub(crate) fn end_saves(&mut self, world: &mut World) {
        for line in Timeline::ALL {
            self.forget_saves(world, line);
            self.saves[line] = None;
        }
    }

    /// Which saves keep entities of that kind here?
    pub(crate) fn keeper(&self, kind: usize) -> Option<Timeline> {
        let line = self.keeper_of(self.schema.kinds[kind].policy.timeline())?;
        self.saves[line].as_ref().is_some_and(|s| s.kinds >> kind & 1 != 0).then_some(line)
    }

    /// Puts the [`Rewound`] mark on or takes it off. Saves without an entity that lived then would make it unborn, so they go.
    pub(crate) fn mark_rewound(&mut self, world: &mut World, slot: u32) {
        let Some(record) = self.entities.get(slot).filter(|r| !r.parked) else { return };
        let policy = &self.schema.kinds[record.kind].policy;
        let facts: Facts = self.facts(record.owners[policy.slot()].peer);
        let keeper = self.keeper(record.kind);
        let is_all = self.saves[Timeline::Session].as_ref().is_some_and(|s| s.is_of_all());
        let here = || match policy.share(facts) {
            Share::State | Share::Inputs => true,
            Share::Nothing => policy.apply(facts) == Apply::Reconcile,
        };
        let rewound = keeper.is_some() && (is_all || here());
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
        if let Some(line) = keeper {
            self.forget_saves(world, line);
        }
    }

    /// Makes sure that there is the entity that carries a timeline's resources, if there are any.
    pub(crate) fn ensure_resources(&mut self, world: &mut World, line: Timeline) {
        let known = self.entities.resources[line as usize];
        if known.is_some_and(|e| world.contains(e)) {
            return;
        }
        let mut builder = EntityBuilder::new();
        let firsts = self.schema.kept.iter().filter(|k| k.line == line).filter_map(|k| k.first);
        if firsts.map(|first| first(&mut builder)).count() == 0 {
            return;
        }
        if self.keeper_of(line).is_some() {
            builder.add(Rewound { net: resources_name(line) });
        }
        // it has its handle again if it can: the game may have cleared its world
        let entity = match known.filter(|e| is_free(world, *e)) {
            Some(entity) => {
                world.spawn_at(entity, builder.build());
                entity
            }
            None => world.spawn(builder.build()),
        };
        self.entities.resources[line as usize] = Some(entity);
    }

    /// See [`Step::resource`](crate::Step::resource).
    pub(crate) fn step_resource<'w, T: Component>(&mut self, world: &'w mut World) -> Result<&'w mut T, UsageError> {
        let name = std::any::type_name::<T>();
        let entry = self.schema.resource_of::<T>().ok_or(UsageError::NotInSchema(name))?;
        let (line, first) = (entry.line, entry.first.ok_or(UsageError::NotInSchema(name))?);
        self.ensure_resources(world, line);
        let entity = self.entities.resources[line as usize].ok_or(UsageError::NotNetworked)?;
        if !world.satisfies::<&T>(entity) {
            // the game has taken it off
            let mut builder = EntityBuilder::new();
            first(&mut builder);
            world.insert(entity, builder.build()).map_err(|_| UsageError::NotNetworked)?;
        }
        world.query_one_mut::<&mut T>(entity).map_err(|_| UsageError::NotNetworked)
    }
}

/// Names by the ids that their entities had.
pub(crate) fn names_by_id(save: &Save) -> Vec<(u32, NetId)> {
    let tables = save.structure.tables.iter();
    let mut names: Vec<_> = tables.flat_map(|t| t.ids.iter().copied().zip(t.marks.iter().map(|m| m.net))).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
