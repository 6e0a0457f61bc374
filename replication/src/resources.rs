//! Resources that travel, as a peer reaches them: see [`SchemaBuilder::shared_resource`](crate::SchemaBuilder::shared_resource).

use crate::error::UsageError;
use crate::peer::Peer;
use crate::schema::SharedResources;
use hecs::{Component, Entity, EntityBuilder, Ref, World};
use std::any::{TypeId, type_name};

impl Peer {
    /// A resource: one that travels, as the host last had it, or one of the peer's own timelines.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`]; [`UsageError::NotNetworked`] as long as it is not here: at a guest until the host's state has
    /// come, at a host until the first `receive`, `send` or [`resource_mut`](Self::resource_mut).
    pub fn resource<'w, T: Component>(&self, world: &'w World) -> Result<Ref<'w, T>, UsageError> {
        let entity = if self.is_shared::<T>() {
            self.shared_entity(world)
        } else {
            let entry = self.schema.resource_of::<T>().ok_or(UsageError::NotInSchema(type_name::<T>()))?;
            self.entities.resources[entry.line as usize]
        };
        world.get::<&T>(entity.ok_or(UsageError::NotNetworked)?).map_err(|_| UsageError::NotNetworked)
    }

    /// A resource that travels, to be changed (host only).
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`] if it is none that travels, [`UsageError::NotAllowed`] at a guest, and those of
    /// [`spawn`](Self::spawn) for the entity that carries it.
    pub fn resource_mut<'w, T: Component>(&mut self, world: &'w mut World) -> Result<&'w mut T, UsageError> {
        let entry = self.schema.shared.iter().find(|entry| entry.type_id == TypeId::of::<T>());
        let first = entry.ok_or(UsageError::NotInSchema(type_name::<T>()))?.first;
        if !self.is_host() {
            return Err(UsageError::NotAllowed("change a resource"));
        }
        let entity = self.ensure_shared(world)?.ok_or(UsageError::NotNetworked)?;
        if !world.satisfies::<&T>(entity) {
            // the game has taken it off
            let mut builder = EntityBuilder::new();
            first(&mut builder);
            world.insert(entity, builder.build()).map_err(|_| UsageError::NotNetworked)?;
        }
        world.query_one_mut::<&mut T>(entity).map_err(|_| UsageError::NotNetworked)
    }

    pub(crate) fn is_shared<T: 'static>(&self) -> bool {
        self.schema.shared.iter().any(|entry| entry.type_id == TypeId::of::<T>())
    }

    /// The entity that carries the resources that travel, if it is here.
    fn shared_entity(&self, world: &World) -> Option<Entity> {
        // the world may have one of another session
        let is_ours = |entity: &Entity| self.entities.slot_at(world, *entity).is_some();
        world.query::<Entity>().with::<&SharedResources>().iter().find(is_ours)
    }

    /// The same as long as nobody has to be told that it cannot be.
    pub(crate) fn keep_shared(&mut self, world: &mut World) {
        // without a name for it now, there is one at the next call
        let _ = self.ensure_shared(world);
    }

    /// Host: makes sure that there is that entity, if the schema has such resources.
    pub(crate) fn ensure_shared(&mut self, world: &mut World) -> Result<Option<Entity>, UsageError> {
        if self.schema.shared.is_empty() || !self.is_host() {
            return Ok(None);
        }
        let known = self.entities.shared.filter(|entity| self.entities.slot_at(world, *entity).is_some());
        if known.is_some() {
            return Ok(known);
        }
        // a state that was loaded has brought its own
        let mut found = self.shared_entity(world);
        if found.is_none() {
            let mut builder = EntityBuilder::new();
            self.schema.shared.iter().for_each(|entry| (entry.first)(&mut builder));
            found = Some(self.spawn(world, SharedResources, builder.build())?);
        }
        self.entities.shared = found;
        Ok(found)
    }
}
