//! Components of two worlds that are one: what has changed on one side goes to the other, once.

use crate::links::{Linked, Links};
use crate::spawn::Spawn;
use bevy_ecs::component::Mutable;
use bevy_ecs::hierarchy::ChildOf;
use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemState;
use bevy_transform::components::Transform;
use hecs::EntityBuilder;
use std::marker::PhantomData;
use std::time::Duration;
use tidelock::policy::Policy;
use tidelock::{ComponentOptions, KindOptions, Peer, Replicate, Schema, SchemaBuilder, SchemaError, UsageError};

/// A component of the core that names the parent: what [`ChildOf`] travels as. A plain Rust peer registers the same under the same
/// name, with `.parent()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Replicate)]
pub struct Parent(pub hecs::Entity);

/// One component, and what is known of it on both sides.
pub(crate) trait Column {
    /// Takes over what the core has changed.
    fn to_bevy(&mut self, pass: u64, core: &hecs::World, links: &Links, bevy: &mut World);
    /// Takes over what Bevy's world has changed.
    fn to_core(&mut self, bevy: &mut World, links: &Links, core: &mut hecs::World, born: &[hecs::Entity]);
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
            if fresh {
                twin.insert(value);
            } else {
                (self.over)(&mut twin, value);
            }
            self.note(entity, raw, pass);
        }
        for known in &mut self.known {
            let Some(gone) = known.take_if(|known| known.seen != pass) else { continue };
            if let Some(mut twin) = links.bevy(gone.core).and_then(|twin| bevy.get_entity_mut(twin).ok()) {
                twin.remove::<B>();
            }
        }
    }

    fn to_core(&mut self, bevy: &mut World, links: &Links, core: &mut hecs::World, born: &[hecs::Entity]) {
        let mut state = self.state.take().unwrap_or_else(|| SystemState::new(bevy));
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut refused = Vec::new();
        if let Ok((changed, mut removed)) = state.get_mut(bevy) {
            for (twin, linked, value) in &changed {
                let Some(value) = (self.to)(&value, links) else {
                    waiting.push(twin);
                    continue;
                };
                if !self.put(core, linked.core, value, born) {
                    refused.push(twin);
                }
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
                Some(value) => {
                    self.put(core, linked.core, value, &[]);
                }
                None => self.waiting.push(twin),
            }
        }
        for twin in refused {
            bevy.entity_mut(twin).remove::<B>();
        }
    }

    fn add(&self, entity: EntityRef<'_>, links: &Links, to: &mut EntityBuilder) {
        if let Some(value) = entity.get::<B>().and_then(|value| (self.to)(value, links)) {
            to.add(value);
        }
    }
}

impl<B: Component, H: Replicate> Typed<B, H> {
    /// Writes a value; `false` if the core has taken it away from who was just spawned, because another peer decides it.
    fn put(&mut self, core: &mut hecs::World, entity: hecs::Entity, value: H, born: &[hecs::Entity]) -> bool {
        let raw = value.raw();
        if self.knows(entity) == Some(&raw) {
            return true; // it came from there
        }
        let seen = self.known.get(entity.id() as usize).and_then(Option::as_ref).map_or(0, |known| known.seen);
        if let Ok(mut old) = core.get::<&mut H>(entity) {
            *old = value;
        } else if born.contains(&entity) {
            return false;
        } else if core.insert_one(entity, value).is_err() {
            return true; // it is gone
        }
        self.note(entity, raw, seen);
        true
    }
}

/// A kind, by its marker.
pub(crate) trait Kind {
    /// Puts the marker on the twin of what the core has.
    fn mark(&self, core: &hecs::World, entity: hecs::Entity, twin: &mut EntityWorldMut<'_>);
    fn is_of(&self, twin: EntityRef<'_>) -> bool;
    /// In the step that is run, or outside of one.
    fn spawn(
        &self,
        peer: &mut Peer,
        core: &mut hecs::World,
        spawn: &Spawn,
        what: &mut EntityBuilder,
    ) -> Result<hecs::Entity, UsageError>;
}

struct Marker<K>(PhantomData<fn() -> K>);

impl<K: Component + Default> Kind for Marker<K> {
    fn mark(&self, core: &hecs::World, entity: hecs::Entity, twin: &mut EntityWorldMut<'_>) {
        if core.satisfies::<&K>(entity) {
            twin.insert(K::default());
        }
    }

    fn is_of(&self, twin: EntityRef<'_>) -> bool {
        twin.contains::<K>()
    }

    fn spawn(
        &self,
        peer: &mut Peer,
        core: &mut hecs::World,
        spawn: &Spawn,
        what: &mut EntityBuilder,
    ) -> Result<hecs::Entity, UsageError> {
        match (peer.step(), spawn.owner) {
            (Some(mut step), Some(owner)) => step.spawn_for(core, owner, spawn.key, K::default(), what.build()),
            (Some(mut step), None) => step.spawn_as(core, spawn.key, K::default(), what.build()),
            (None, _) => peer.spawn(core, K::default(), what.build()),
        }
    }
}

/// What is drawn from a component.
pub(crate) trait Draw {
    fn draw(&self, peer: &Peer, core: &hecs::World, links: &Links, now: Duration, bevy: &mut World);
}

struct Drawn<C> {
    draw: fn(&C, &mut Transform),
    of: PhantomData<fn() -> C>,
}

impl<C: Component + Clone> Draw for Drawn<C> {
    fn draw(&self, peer: &Peer, core: &hecs::World, links: &Links, now: Duration, bevy: &mut World) {
        let Ok(values) = peer.present::<C>(core, now) else { return };
        for (entity, value) in values {
            let twin = links.bevy(entity).and_then(|twin| bevy.get_mut::<Transform>(twin));
            if let Some(mut transform) = twin {
                (self.draw)(&value, &mut transform);
            }
        }
    }
}

/// A schema, and what of it stands in Bevy's world.
pub struct Mirror {
    schema: Schema,
    pub(crate) columns: Vec<Box<dyn Column>>,
    pub(crate) kinds: Vec<Box<dyn Kind>>,
    pub(crate) draws: Vec<Box<dyn Draw>>,
}

impl Mirror {
    /// The schema, to make the peer from.
    #[must_use]
    pub fn schema(&self) -> Schema {
        self.schema.clone()
    }
}

/// Builds a [`Mirror`]: a [`SchemaBuilder`] whose components and kinds are Bevy's.
pub struct MirrorBuilder {
    schema: SchemaBuilder,
    columns: Vec<Box<dyn Column>>,
    kinds: Vec<Box<dyn Kind>>,
    draws: Vec<Box<dyn Draw>>,
}

impl MirrorBuilder {
    /// Starts one; `name` is the game's.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { schema: Schema::builder(name), columns: Vec::new(), kinds: Vec::new(), draws: Vec::new() }
    }

    /// Registers a component that both worlds have, under a stable name.
    #[must_use]
    pub fn component<C: Component<Mutability = Mutable> + Replicate + Clone>(
        self,
        name: &str,
        options: impl FnOnce(ComponentOptions<C>) -> ComponentOptions<C>,
    ) -> Self {
        self.component_as::<C, C>(name, |c, _| Some(c.clone()), |c, _| Some(c.clone()), options)
    }

    /// Registers a component of Bevy that is another type in the core: because it is foreign, or names entities, which `to` and `from`
    /// then map with the [`Links`]. `None` stands for an entity that has no twin yet: it is tried again.
    #[must_use]
    pub fn component_as<B: Component<Mutability = Mutable>, H: Replicate>(
        mut self,
        name: &str,
        to: fn(&B, &Links) -> Option<H>,
        from: fn(&H, &Links) -> Option<B>,
        options: impl FnOnce(ComponentOptions<H>) -> ComponentOptions<H>,
    ) -> Self {
        self.schema = self.schema.component::<H>(name, options);
        let over = |twin: &mut EntityWorldMut<'_>, value: B| {
            if let Some(mut there) = twin.get_mut::<B>() {
                *there = value;
            } else {
                twin.insert(value);
            }
        };
        self.columns.push(Box::new(Typed { to, from, over, known: Vec::new(), state: None, waiting: Vec::new() }));
        self
    }

    /// [`ChildOf`] travels, as [`Parent`], under this name.
    #[must_use]
    pub fn parents(mut self, name: &str) -> Self {
        self.schema = self.schema.component::<Parent>(name, |c| c.parent());
        self.columns.push(Box::new(Typed::<ChildOf, Parent> {
            to: |child, links| links.core(child.0).map(Parent),
            from: |parent, links| links.bevy(parent.0).map(ChildOf),
            over: |twin, value| {
                twin.insert(value);
            },
            known: Vec::new(),
            state: None,
            waiting: Vec::new(),
        }));
        self
    }

    /// What [`Peer::present`] says of a component is drawn: `draw` sets the [`Transform`] of entities that have one.
    #[must_use]
    pub fn drawn<C: Component + Clone>(mut self, draw: fn(&C, &mut Transform)) -> Self {
        self.draws.push(Box::new(Drawn { draw, of: PhantomData }));
        self
    }

    /// Registers a kind by its marker type.
    #[must_use]
    pub fn kind<K: Component + Default>(self, name: &str, policy: impl Policy) -> Self {
        self.kind_with::<K>(name, policy, |k| k)
    }

    /// The same with options.
    #[must_use]
    pub fn kind_with<K: Component + Default>(
        mut self,
        name: &str,
        policy: impl Policy,
        options: impl FnOnce(KindOptions) -> KindOptions,
    ) -> Self {
        self.schema = self.schema.kind_with::<K>(name, policy, options);
        self.kinds.push(Box::new(Marker::<K>(PhantomData)));
        self
    }

    /// Everything else of a schema: input, messages, orders, resources.
    #[must_use]
    pub fn schema(mut self, more: impl FnOnce(SchemaBuilder) -> SchemaBuilder) -> Self {
        self.schema = more(self.schema);
        self
    }

    /// The mirror.
    ///
    /// # Errors
    /// [`SchemaError`] with every mistake there is.
    pub fn build(self) -> Result<Mirror, SchemaError> {
        let Self { schema, columns, kinds, draws } = self;
        Ok(Mirror { schema: schema.build()?, columns, kinds, draws })
    }
}
