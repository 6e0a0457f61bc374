//! Types for what has none: a component or a kind of C is one of a fixed number of types, which differ in their number alone.

use crate::shape::{Bytes, Shape};
use crate::status::Failure;
use hecs::{Component, Entity, EntityBuilder, World};
use std::sync::Arc;
use std::time::Duration;
use tidelock::checkpoint::{CheckpointError, CheckpointReader, CheckpointWriter};
use tidelock::policy::{Host, Owner, Policy};
use tidelock::{Checkpoint, ComponentOptions, KindOptions, Peer, SchemaBuilder, UsageError};

/// The component of number `I`: the struct of C, of at most `B` bytes, with zeros between its fields and behind them.
#[derive(Clone, Copy)]
pub(crate) struct Slot<const I: usize, const B: usize>(pub(crate) [u8; B]);

/// A peer of C saves and restores in its own memory alone, for predictions: the policies that compare these bytes between peers
/// are not offered to it.
impl<const I: usize, const B: usize> Checkpoint for Slot<I, B> {
    const PLAIN: bool = true;

    fn save_into(&self, into: &mut Self) {
        *into = *self;
    }

    fn write(&self, w: &mut CheckpointWriter<'_>) {
        w.bytes(&self.0);
    }

    fn read(r: &mut CheckpointReader<'_>) -> Result<Self, CheckpointError> {
        r.array().map(Self)
    }
}

/// Whose word counts, as C can choose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    Host,
    Predicted,
    Owner(usize),
}

/// How a component travels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) policy: Option<Choice>,
    pub(crate) interpolate: bool,
    pub(crate) extrapolate: bool,
    pub(crate) checkpoint: bool,
    pub(crate) parent: bool,
    pub(crate) notify: bool,
    pub(crate) tolerance: u32,
}

impl Options {
    fn choose<C: Component + Checkpoint>(self, mut c: ComponentOptions<C>) -> ComponentOptions<C> {
        c = match self.policy {
            None => c,
            Some(Choice::Host) => c.authority(Host::default()),
            Some(Choice::Predicted) => c.authority(Host::predicted()),
            Some(Choice::Owner(0)) => c.authority(Owner::default()),
            Some(Choice::Owner(slot)) => c.authority(Owner::co(slot)),
        };
        if self.checkpoint {
            c = c.checkpoint();
        }
        if self.parent {
            c = c.parent();
        }
        if self.notify {
            c = c.notify_changes();
        }
        c.tolerance(self.tolerance)
    }
}

/// What can be done with a component of some number.
pub(crate) trait Column: Sync {
    /// Bytes that it can hold.
    fn room(&self) -> usize;
    fn register(&self, builder: SchemaBuilder, name: &str, shape: Arc<Shape>, options: Options) -> SchemaBuilder;
    /// Adds a value to what is to be spawned.
    fn add(&self, shape: &Shape, from: &[u8], to: &mut EntityBuilder) -> Result<(), Failure>;
    /// `false` if the entity is not in the world.
    fn set(&self, world: &mut World, entity: Entity, shape: &Shape, from: &[u8]) -> Result<bool, Failure>;
    /// `false` if it has none.
    fn get(&self, world: &World, entity: Entity, to: &mut [u8]) -> bool;
    fn remove(&self, world: &mut World, entity: Entity) -> bool;
    fn each(&self, world: &World, tell: &mut dyn FnMut(Entity));
    fn simulated(&self, peer: &mut Peer, world: &World, tell: &mut dyn FnMut(Entity)) -> Result<(), UsageError>;
    fn present(&self, peer: &Peer, world: &World, now: Duration, tell: &mut dyn FnMut(Entity, &[u8])) -> Result<(), UsageError>;
    fn authority(&self, kind: KindOptions, policy: Choice) -> KindOptions;
    fn has_authority(&self, peer: &Peer, world: &World, entity: Entity) -> bool;
}

struct Of<const I: usize, const B: usize>;

fn bytes<const B: usize>(shape: &Shape, from: &[u8]) -> Result<[u8; B], Failure> {
    let mut bytes = [0; B];
    shape.clean(from, &mut bytes)?;
    Ok(bytes)
}

impl<const I: usize, const B: usize> Column for Of<I, B> {
    fn room(&self) -> usize {
        B
    }

    fn register(&self, builder: SchemaBuilder, name: &str, shape: Arc<Shape>, options: Options) -> SchemaBuilder {
        builder.component_in::<Slot<I, B>, Bytes>(name, Bytes(shape.clone()), |c| {
            let blend = move |a: &Slot<I, B>, b: &Slot<I, B>, t: f32| {
                let mut bytes = [0; B];
                shape.blend(&a.0, &b.0, t, &mut bytes);
                Slot(bytes)
            };
            let c = options.choose(c);
            match (options.interpolate, options.extrapolate) {
                (_, true) => c.extrapolate_with(blend),
                (true, false) => c.interpolate_with(blend),
                (false, false) => c,
            }
        })
    }

    fn add(&self, shape: &Shape, from: &[u8], to: &mut EntityBuilder) -> Result<(), Failure> {
        to.add(Slot::<I, B>(bytes(shape, from)?));
        Ok(())
    }

    fn set(&self, world: &mut World, entity: Entity, shape: &Shape, from: &[u8]) -> Result<bool, Failure> {
        let value = Slot::<I, B>(bytes(shape, from)?);
        if let Ok(mut old) = world.get::<&mut Slot<I, B>>(entity) {
            *old = value;
            return Ok(true);
        }
        Ok(world.insert_one(entity, value).is_ok())
    }

    fn get(&self, world: &World, entity: Entity, to: &mut [u8]) -> bool {
        let Ok(value) = world.get::<&Slot<I, B>>(entity) else { return false };
        to.copy_from_slice(&value.0[..to.len()]);
        true
    }

    fn remove(&self, world: &mut World, entity: Entity) -> bool {
        world.remove_one::<Slot<I, B>>(entity).is_ok()
    }

    fn each(&self, world: &World, tell: &mut dyn FnMut(Entity)) {
        let mut query = world.query::<(Entity, &Slot<I, B>)>();
        query.iter().for_each(|(entity, _)| tell(entity));
    }

    fn simulated(&self, peer: &mut Peer, world: &World, tell: &mut dyn FnMut(Entity)) -> Result<(), UsageError> {
        let step = peer.step().ok_or(UsageError::NotAllowed("ask for what is simulated outside of a step"))?;
        step.query::<(Entity, &Slot<I, B>)>(world).iter().for_each(|(entity, _)| tell(entity));
        Ok(())
    }

    fn present(&self, peer: &Peer, world: &World, now: Duration, tell: &mut dyn FnMut(Entity, &[u8])) -> Result<(), UsageError> {
        peer.present::<Slot<I, B>>(world, now)?.for_each(|(entity, value)| tell(entity, &value.0));
        Ok(())
    }

    fn authority(&self, kind: KindOptions, policy: Choice) -> KindOptions {
        match policy {
            Choice::Host => kind.authority::<Slot<I, B>>(Host::default()),
            Choice::Predicted => kind.authority::<Slot<I, B>>(Host::predicted()),
            Choice::Owner(0) => kind.authority::<Slot<I, B>>(Owner::default()),
            Choice::Owner(slot) => kind.authority::<Slot<I, B>>(Owner::co(slot)),
        }
    }

    fn has_authority(&self, peer: &Peer, world: &World, entity: Entity) -> bool {
        peer.has_authority::<Slot<I, B>>(world, entity)
    }
}

/// The kind of number `I`.
#[derive(Clone, Copy, Default)]
struct Mark<const I: usize>;

/// What can be done with a kind of some number.
pub(crate) trait Kind: Sync {
    fn register(&self, builder: SchemaBuilder, name: &str, policy: Choice, options: Vec<(usize, Choice)>) -> SchemaBuilder;
    /// Within the step that is run, or outside of one.
    fn spawn(&self, peer: &mut Peer, world: &mut World, components: &mut EntityBuilder) -> Result<Entity, UsageError>;
}

impl<const I: usize> Mark<I> {
    fn enter(self, builder: SchemaBuilder, name: &str, policy: impl Policy, overrides: Vec<(usize, Choice)>) -> SchemaBuilder {
        builder.kind_with::<Self>(name, policy, |kind| {
            overrides.into_iter().fold(kind, |kind, (component, policy)| COLUMNS[component].authority(kind, policy))
        })
    }
}

impl<const I: usize> Kind for Mark<I> {
    fn register(&self, builder: SchemaBuilder, name: &str, policy: Choice, overrides: Vec<(usize, Choice)>) -> SchemaBuilder {
        match policy {
            Choice::Host => self.enter(builder, name, Host::default(), overrides),
            Choice::Predicted => self.enter(builder, name, Host::predicted(), overrides),
            Choice::Owner(0) => self.enter(builder, name, Owner::default(), overrides),
            Choice::Owner(slot) => self.enter(builder, name, Owner::co(slot), overrides),
        }
    }

    fn spawn(&self, peer: &mut Peer, world: &mut World, components: &mut EntityBuilder) -> Result<Entity, UsageError> {
        match peer.step() {
            Some(mut step) => step.spawn(world, *self, components.build()),
            None => peer.spawn(world, *self, components.build()),
        }
    }
}

macro_rules! tables {
    (small: $($s:literal)*; large: $($l:literal)*; kinds: $($k:literal)*) => {
        /// By number: first those for small structs, then those for large ones.
        pub(crate) static COLUMNS: &[&dyn Column] = &[$(&Of::<$s, SMALL>,)* $(&Of::<$l, LARGE>,)*];
        /// By number.
        pub(crate) static KINDS: &[&dyn Kind] = &[$(&Mark::<$k>),*];
    };
}

/// Bytes of a struct that is small: what is compared each tick, so it should be no larger than most are.
const SMALL: usize = 32;
/// Bytes of the largest struct that there can be: room for the longest text, and an entity or two.
pub(crate) const LARGE: usize = 544;

tables! {
    small: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31;
    large: 32 33 34 35 36 37 38 39;
    kinds: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
}
