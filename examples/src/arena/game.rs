//! The game that all peers share: what there is, who decides over it, and the host's rules.
//!
//! Crates are the host's. A drone's pose is its owner's, and its health is the host's, whoever the owner is.

use hecs::{Entity, Satisfies, Without, World};
use tidelock::policy::{Host, Owner};
use tidelock::{Interpolate, Peer, Replicate, Schema, SchemaError, UsageError, Write};

/// Half the side of the arena.
pub(crate) const HALF: f32 = 500.0;
/// Nobody drives faster, in units per second.
pub(crate) const SPEED: f32 = 20.0;
/// The host refuses what is faster. Far above [`SPEED`], so that only those are refused who try to cheat.
const TOP_SPEED: f32 = 60.0;
/// What a shot takes.
const DAMAGE: u8 = 40;
/// A whole one's health.
const WHOLE: u8 = 100;

/// Where something is, and where it looks.
#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
pub(crate) struct Pose {
    /// To the right.
    #[net(step = 0.01, range = -500.0..=500.0)]
    pub(crate) x: f32,
    /// Up.
    #[net(step = 0.01, range = -500.0..=500.0)]
    pub(crate) y: f32,
    /// Radians, from the right to the left.
    #[net(angle, bits = 10)]
    pub(crate) turn: f32,
}

/// How much of it is whole, of 100.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub(crate) struct Health(#[net(range = 0..=100)] pub(crate) u8);

impl Health {
    /// Nothing is broken.
    pub(crate) const WHOLE: Health = Health(WHOLE);
}

/// The kind of what the host moves.
#[derive(Clone, Copy, Default)]
pub(crate) struct Crate;

/// The kind of what guests move.
#[derive(Clone, Copy, Default)]
pub(crate) struct Drone;

/// A guest to the host: I have hit that.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub(crate) struct Shot {
    /// What was hit.
    pub(crate) target: Entity,
}

/// The host to all: the game is over, change nothing any more; what follows is the comparison.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub(crate) struct Finish {
    /// The seconds that were played.
    pub(crate) seconds: u32,
}

/// Everything that travels.
///
/// # Errors
/// None, unless somebody adds a mistake.
pub(crate) fn schema() -> Result<Schema, SchemaError> {
    Schema::builder("arena")
        .component::<Pose>("pose", |c| c.interpolate().validate(drives_fairly))
        .component::<Health>("health", |c| c.authority(Host::default()))
        .kind::<Crate>("crate", Host::default())
        .kind::<Drone>("drone", Owner::default())
        .message::<Shot>("shot")
        .message::<Finish>("finish")
        .build()
}

/// What the host asks of every pose that a guest sends.
fn drives_fairly(before: Option<&Pose>, after: &Pose, write: &Write) -> Result<(), &'static str> {
    let Some(before) = before else { return Ok(()) };
    let way = (after.x - before.x).hypot(after.y - before.y);
    // one unit more: clocks differ a little
    if way <= TOP_SPEED * write.elapsed.as_secs_f32() + 1.0 { Ok(()) } else { Err("faster than anything drives") }
}

/// What the host decides in every tick: new drones get their health, shots hit, what is broken goes, the rest heals.
///
/// # Errors
/// None in a correct program.
pub(crate) fn referee(peer: &mut Peer, world: &mut World, tick: u64) -> Result<(), UsageError> {
    let new: Vec<Entity> =
        world.query::<Without<(Entity, Satisfies<&Drone>), &Health>>().iter().filter(|e| e.1).map(|e| e.0).collect();
    for drone in new {
        // it was in the world on the line above
        let _ = world.insert_one(drone, Health::WHOLE);
    }
    for (_, shot) in peer.messages::<Shot>()? {
        let left = world.get::<&mut Health>(shot.target).map(|mut health| {
            health.0 = health.0.saturating_sub(DAMAGE);
            health.0
        });
        if left == Ok(0) {
            peer.despawn(world, shot.target)?;
        }
    }
    for (entity, health) in world.query::<(Entity, &mut Health)>().iter() {
        if (u64::from(entity.id()) + tick).is_multiple_of(60) {
            health.0 = (health.0 + 1).min(WHOLE);
        }
    }
    Ok(())
}
