//! Components of two worlds that are one: what has changed on one side goes to the other, once.

use crate::links::{Linked, Links};
use bevy_ecs::component::Mutable;
use bevy_ecs::hierarchy::ChildOf;
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemState;
use hecs::EntityBuilder;
use tidelock::policy::Policy;
use tidelock::{ComponentOptions, KindOptions, Replicate, Schema, SchemaBuilder, SchemaError};

/// A component of the core that names the parent: what [`ChildOf`] travels as. A plain Rust peer registers the same under the same
/// name, with `.parent()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Replicate)]
pub struct Parent(pub hecs::Entity);

/// One component, and what is known of it on both sides.
pub(crate) trait Column {
    /// Takes over what the core has changed.
    fn to_bevy(&mut self, pass: u64, core: &hecs::World, links: &Links, bevy: &mut World);
    /// Takes over what Bevy's world has changed.
    fn to_core(&mut self, bevy: &mut World, links: &Links, core: &mut hecs::World);
    /// Adds an entity's value to what is to be spawned in the core.
    fn add(&self, entity: EntityRef<'_>, links: &Links, to: &mut EntityBuilder);
}

/// A value that both sides have.
struct Known<R> {
    core: hecs::Entity,
    raw: R,
    seen: u64,
}

type Changes<'w, 's, B> = (Query<'w, 's, (Entity, &'static Linked, Ref<'static, B>), Changed<B>>, RemovedComponents<'w, 's, B>);

struct Typed<B: Component, H: Replicate> {
    to: fn(&B, &Links) -> Option<H>,
    from: fn(&H, &Links) -> Option<B>,
    /// Writes over a value that is there.
    over: fn(&mut EntityWorldMut<'_>, B),
    /// By `hecs::Entity::id`.
    known: Vec<Option<Known<H::Raw>>>,
    state: Option<SystemState<Changes<'static, 'static, B>>>,
    /// Changed, and names an entity that has no twin yet.
    waiting: Vec<Entity>,
}

impl<B: Component, H: Replicate> Typed<B, H> {
    fn knows(&self, core: hecs::Entity) -> Option<&H::Raw> {
        self.known.get(core.id() as usize)?.as_ref().filter(|known| known.core == core).map(|known| &known.raw)
    }

    fn note(&mut self, core: hecs::Entity, raw: H::Raw, seen: u64) {
        let at = core.id() as usize;
        if at >= self.known.len() {
            self.known.resize_with(at + 1, || None);
        }
        self.known[at] = Some(Known { core, raw, seen });
    }
}

impl<B: Component, H: Replicate> Column for Typed<B, H> {
    fn to_bevy(&mut self, pass: u64, core: &hecs::World, links: &Links, bevy: &mut World) {
        for (entity, value) in core.query::<(hecs::Entity, &H)>().iter() {
            let raw = value.raw();
            let known = self.known.get_mut(entity.id() as usize).and_then(Option::as_mut).filter(|k| k.core == entity);
            let fresh = known.is_none();
            if let Some(known) = known {
                known.seen = pass;
                if known.raw == raw {
                    continue;
                }
            }
            // who is not networked, or names somebody who has no twin yet, is looked at again
            let Some(twin) = links.bevy(entity) else { continue };
            let Some(value) = (self.from)(value, links) else { continue };
            let Ok(mut twin) = bevy.get_entity_mut(twin) else { continue };
            if fresh { drop(twin.insert(value)) } else { (self.over)(&mut twin, value) }
            self.note(entity, raw, pass);
        }
        for known in &mut self.known {
            let Some(gone) = known.take_if(|known| known.seen != pass) else { continue };
            if let Some(mut twin) = links.bevy(gone.core).and_then(|twin| bevy.get_entity_mut(twin).ok()) {
                twin.remove::<B>();
            }
        }
    }

    fn to_core(&mut self, bevy: &mut World, links: &Links, core: &mut hecs::World) {
        let mut state = self.state.take().unwrap_or_else(|| SystemState::new(bevy));
        let mut waiting = std::mem::take(&mut self.waiting);
        if let Ok((changed, mut removed)) = state.get_mut(bevy) {
            for (twin, linked, value) in &changed {
                let Some(value) = (self.to)(&value, links) else {
                    waiting.push(twin);
                    continue;
                };
                self.put(core, linked.core, value);
            }
            for twin in removed.read() {
                let Some(entity) = links.core(twin) else { continue };
                // inserted again since: that is a change
                if !changed.contains(twin) && core.remove_one::<H>(entity).is_ok() {
                    self.known[entity.id() as usize] = None;
                }
            }
        }
        self.state = Some(state);
        for twin in waiting {
            let Ok(entity) = bevy.get_entity(twin) else { continue };
            let (Some(value), Some(linked)) = (entity.get::<B>(), entity.get::<Linked>()) else { continue };
            match (self.to)(value, links) {
                Some(value) => self.put(core, linked.core, value),
                None => self.waiting.push(twin),
            }
        }
    }

    fn add(&self, entity: EntityRef<'_>, links: &Links, to: &mut EntityBuilder) {
        if let Some(value) = entity.get::<B>().and_then(|value| (self.to)(value, links)) {
            to.add(value);
        }
    }
}

impl<B: Component, H: Replicate> Typed<B, H> {
    fn put(&mut self, core: &mut hecs::World, entity: hecs::Entity, value: H) {
        let raw = value.raw();
        if self.knows(entity) == Some(&raw) {
            return; // it came from there
        }
        let seen = self.known.get(entity.id() as usize).and_then(Option::as_ref).map_or(0, |known| known.seen);
        let there = core.get::<&mut H>(entity).map(|mut old| *old = value);
        if there.is_ok() {
            self.note(entity, raw, seen);
        }
    }
}
