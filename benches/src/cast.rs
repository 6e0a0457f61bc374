//! Which components of the crowd travel, and how. Another schema is one more [`Cast`].

use crate::crowd::Crowd;
use crate::floor::{Column, Flat, Plain, bytes, floats};
use hecs::{Entity, World};
use tidelock::policy::Host;
use tidelock::{Peer, Replicate, Schema};

/// A set of components that show the crowd in a world.
pub trait Cast {
    /// What `--schema` calls it.
    const NAME: &'static str;

    /// The schema that its sessions run with.
    fn schema() -> Schema;

    /// Spawns the crowd's member `i` as a networked entity.
    fn spawn(peer: &mut Peer, world: &mut World, crowd: &Crowd, i: usize) -> Entity;

    /// Writes what the crowd's last step changed.
    fn show(world: &mut World, entities: &[Entity], crowd: &Crowd);

    /// Its columns, for the floor.
    fn columns() -> Vec<Box<dyn Column>>;
}

/// Metres, in steps of 1/512.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Position {
    #[net(step = 0.001953125, range = -512.0..=511.998046875)]
    x: f32,
    #[net(step = 0.001953125, range = -512.0..=511.998046875)]
    y: f32,
    #[net(step = 0.001953125, range = -512.0..=511.998046875)]
    z: f32,
}

/// A unit quaternion, smallest three with 10 bits.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Rotation(#[net(quat, bits = 10)] [f32; 4]);

/// Metres per second, in steps of 1/256.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Velocity {
    #[net(step = 0.00390625, range = -128.0..=127.99609375)]
    x: f32,
    #[net(step = 0.00390625, range = -128.0..=127.99609375)]
    y: f32,
    #[net(step = 0.00390625, range = -128.0..=127.99609375)]
    z: f32,
}

/// Points.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Health(u16);

/// The one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Body;

impl Flat for Position {
    fn put(&self, into: &mut Vec<u8>) {
        [self.x, self.y, self.z].iter().for_each(|v| into.extend_from_slice(&v.to_le_bytes()));
    }

    fn take(from: &mut &[u8]) -> Self {
        position(floats(from))
    }
}

impl Flat for Rotation {
    fn put(&self, into: &mut Vec<u8>) {
        self.0.iter().for_each(|v| into.extend_from_slice(&v.to_le_bytes()));
    }

    fn take(from: &mut &[u8]) -> Self {
        Self(floats(from))
    }
}

impl Flat for Velocity {
    fn put(&self, into: &mut Vec<u8>) {
        [self.x, self.y, self.z].iter().for_each(|v| into.extend_from_slice(&v.to_le_bytes()));
    }

    fn take(from: &mut &[u8]) -> Self {
        velocity(floats(from))
    }
}

impl Flat for Health {
    fn put(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.0.to_le_bytes());
    }

    fn take(from: &mut &[u8]) -> Self {
        Self(u16::from_le_bytes(bytes(from)))
    }
}

fn position([x, y, z]: [f32; 3]) -> Position {
    Position { x, y, z }
}

fn velocity([x, y, z]: [f32; 3]) -> Velocity {
    Velocity { x, y, z }
}

fn set<C: hecs::Component>(world: &World, entity: Entity, value: C) {
    *world.get::<&mut C>(entity).expect("the host's own entities stay") = value;
}

/// All four components.
pub struct Full;

impl Cast for Full {
    const NAME: &'static str = "full";

    fn schema() -> Schema {
        Schema::builder("crowd")
            .component::<Position>("position", |c| c.velocity::<Velocity>())
            .component::<Rotation>("rotation", |c| c)
            .component::<Velocity>("velocity", |c| c)
            .component::<Health>("health", |c| c)
            .kind::<Body>("body", Host::default())
            .build()
            .expect("the schema is sound")
    }

    fn spawn(peer: &mut Peer, world: &mut World, crowd: &Crowd, i: usize) -> Entity {
        let pose = (position(crowd.position[i]), Rotation(crowd.rotation[i]));
        let rest = (velocity(crowd.velocity[i]), Health(crowd.health[i]));
        peer.spawn(world, Body, (pose.0, pose.1, rest.0, rest.1)).expect("a host may spawn")
    }

    fn show(world: &mut World, entities: &[Entity], crowd: &Crowd) {
        for i in crowd.moved.iter().map(|i| *i as usize) {
            set(world, entities[i], position(crowd.position[i]));
            set(world, entities[i], Rotation(crowd.rotation[i]));
            if crowd.turned {
                set(world, entities[i], velocity(crowd.velocity[i]));
            }
        }
        for i in crowd.hurt.iter().map(|i| *i as usize) {
            set(world, entities[i], Health(crowd.health[i]));
        }
    }

    fn columns() -> Vec<Box<dyn Column>> {
        let first: [Box<dyn Column>; 2] = [Plain::<Position>::boxed(), Plain::<Rotation>::boxed()];
        let second: [Box<dyn Column>; 2] = [Plain::<Velocity>::boxed(), Plain::<Health>::boxed()];
        first.into_iter().chain(second).collect()
    }
}

/// Positions alone.
pub struct Points;

impl Cast for Points {
    const NAME: &'static str = "points";

    fn schema() -> Schema {
        Schema::builder("points")
            .component::<Position>("position", |c| c)
            .kind::<Body>("body", Host::default())
            .build()
            .expect("the schema is sound")
    }

    fn spawn(peer: &mut Peer, world: &mut World, crowd: &Crowd, i: usize) -> Entity {
        peer.spawn(world, Body, (position(crowd.position[i]),)).expect("a host may spawn")
    }

    fn show(world: &mut World, entities: &[Entity], crowd: &Crowd) {
        for i in crowd.moved.iter().map(|i| *i as usize) {
            set(world, entities[i], position(crowd.position[i]));
        }
    }

    fn columns() -> Vec<Box<dyn Column>> {
        vec![Plain::<Position>::boxed()]
    }
}
