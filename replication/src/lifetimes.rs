//! Entities that come and go outside of steps: loading a level, or what belongs to no tick.

use crate::entities::NO_ROW;
use crate::error::UsageError;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use hecs::{Component, DynamicBundle, Entity, World};

impl Peer {
    /// Spawns a networked entity outside of a step: loading a level. It has the kind's marker and `components`.
    ///
    /// Components that another peer decides do not travel from here, and are removed again: for a guest's entity whose health is
    /// the host's, the host inserts the health when [`News::Spawned`] tells it of the entity.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotAllowed`], [`UsageError::NotInSession`], [`UsageError::NothingOfIts`] at a guest
    /// that would decide none of its components, [`UsageError::TooManyEntities`], [`UsageError::NoNames`].
    pub fn spawn<K: Component>(
        &mut self,
        world: &mut World,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        let kind_index = self.schema.kind_of::<K>().ok_or(UsageError::NotInSchema(std::any::type_name::<K>()))?;
        self.may_spawn(kind_index)?;
        let net = self.names.next().ok_or(UsageError::NoNames)?;
        self.forget_if_rewound(world, kind_index);
        let entity = world.spawn(components);
        // it was spawned on the line above
        let _ = world.insert_one(entity, kind);
        self.register_own(world, entity, kind_index, net, self.local);
        Ok(entity)
    }

    /// Makes an entity networked that is in the world already and carries a kind's marker.
    ///
    /// # Errors
    /// Those of [`spawn`](Self::spawn), [`UsageError::NoKind`], [`UsageError::AlreadyNetworked`].
    pub fn publish(&mut self, world: &mut World, entity: Entity) -> Result<NetId, UsageError> {
        if self.entities.slot_at(world, entity).is_some() {
            return Err(UsageError::AlreadyNetworked);
        }
        let kind = self.schema.kinds.iter().position(|k| (k.has)(world, entity)).ok_or(UsageError::NoKind)?;
        self.may_spawn(kind)?;
        let net = self.names.next().ok_or(UsageError::NoNames)?;
        self.forget_if_rewound(world, kind);
        self.register_own(world, entity, kind, net, self.local);
        Ok(net)
    }

    /// Despawns a networked entity, everywhere.
    ///
    /// # Errors
    /// [`UsageError::NotNetworked`], [`UsageError::NotAllowed`].
    pub fn despawn(&mut self, world: &mut World, entity: Entity) -> Result<(), UsageError> {
        let slot = self.may_despawn(world, entity)?;
        if let Some(record) = self.entities.get(slot) {
            self.forget_if_rewound(world, record.kind);
        }
        self.despawn_now(world, entity, slot)
    }

    /// The same without asking.
    pub(crate) fn despawn_now(&mut self, world: &mut World, entity: Entity, slot: u32) -> Result<(), UsageError> {
        let record = self.entities.get(slot).ok_or(UsageError::NotNetworked)?;
        let (net, was_told) = (record.net, record.out_row != NO_ROW);
        self.end_entity(slot);
        world.despawn(entity).map_err(|_| UsageError::NotNetworked)?;
        self.set_aside(world, net);
        if was_told && self.is_host() && self.config.local_news {
            self.news.push(News::Despawned { entity, net });
        }
        Ok(())
    }

    /// The record of an entity that this peer may despawn.
    pub(crate) fn may_despawn(&self, world: &World, entity: Entity) -> Result<u32, UsageError> {
        let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        let record = self.entities.get(slot).ok_or(UsageError::NotNetworked)?;
        let entry = &self.schema.kinds[record.kind];
        if entry.is_computed() {
            return self.may_change_computed().map(|()| slot);
        }
        let policy = &entry.policy;
        let facts = self.facts(record.owners[policy.slot()].peer);
        if policy.lifetime(facts, self.local) { Ok(slot) } else { Err(UsageError::NotAllowed("despawn it")) }
    }

    /// Who comes and goes outside of a step cannot be taken back.
    fn forget_if_rewound(&mut self, world: &mut World, kind: usize) {
        if let Some(line) = self.keeper(kind) {
            self.forget_saves(world, line);
        }
    }
}
