//! The game that all peers share: what there is, who decides over it, and the host's rules.
//!
//! Crates are the host's. A drone's pose is its owner's, and its health is the host's, whoever the owner is. Players are the host's as
//! well, and predicted by the guest whose stick steers them. The relic has three authorities: who carries it owns its pose, its
//! bearer's herald the banner, and the host the health. The ball game (paddles and a ball) goes by rollback, the crowd of units by
//! lockstep: those every peer computes for itself.

use hecs::{Entity, Satisfies, Without, World};
use tidelock::policy::{Absent, Host, Lockstep, Owner, Rollback, Timeline};
use tidelock::{Checkpoint, Interpolate, Peer, Press, Replicate, Schema, SchemaError, UsageError, Write};

/// Half the side of the arena.
pub(crate) const HALF: f32 = 500.0;
/// Nobody drives faster, in units per second.
pub(crate) const SPEED: f32 = 20.0;
/// The host refuses what is faster. Far above [`SPEED`], so that only those are refused who try to cheat.
const TOP_SPEED: f32 = 60.0;
/// The push that a shot gives to a player, in units per second.
const RECOIL: f32 = 15.0;
/// What a shot takes.
const DAMAGE: u8 = 40;
/// A whole one's health.
const WHOLE: u8 = 100;

/// Where something is, and where it looks.
#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate, Checkpoint)]
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

/// What a player drives, in units per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
pub(crate) struct Speed {
    /// To the right.
    #[net(step = 0.01, range = -50.0..=50.0)]
    pub(crate) x: f32,
    /// Up.
    #[net(step = 0.01, range = -50.0..=50.0)]
    pub(crate) y: f32,
}

/// The banner on the relic.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub(crate) struct Banner {
    /// Its colour.
    pub(crate) colour: u16,
}

/// Where something of the ball game or of the crowd is, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
pub(crate) struct Spot {
    /// To the right.
    pub(crate) x: f32,
    /// Up.
    pub(crate) y: f32,
}

/// How fast the ball and the paddles are, in units per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
pub(crate) struct Drift {
    /// To the right.
    pub(crate) x: f32,
    /// Up.
    pub(crate) y: f32,
}

/// Whose paddle it is, or which guest's orders a unit follows: one of [`BANDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Checkpoint)]
pub(crate) struct Of(pub(crate) u16);

/// Where a unit walks to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
pub(crate) struct Aim(pub(crate) Spot);

/// Goals in the ball game.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Checkpoint)]
pub(crate) struct Score {
    /// Over the line to the left.
    pub(crate) left: u32,
    /// Over the line to the right.
    pub(crate) right: u32,
}

/// What a person does, or a bot in its place: it steers the player and the paddle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Stick {
    /// To the right.
    #[net(step = 0.01, range = -1.0..=1.0)]
    pub(crate) x: f32,
    /// Up.
    #[net(step = 0.01, range = -1.0..=1.0)]
    pub(crate) y: f32,
    /// The ball is kicked, if it is in reach.
    pub(crate) kick: Press,
}

/// An order: all units that follow this guest go there.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub(crate) struct Rally {
    /// To the right.
    #[net(step = 0.01, range = -100.0..=100.0)]
    pub(crate) x: f32,
    /// Up.
    #[net(step = 0.01, range = -100.0..=100.0)]
    pub(crate) y: f32,
    /// Counts the orders of that guest from zero, to see whether each came once and in turn.
    pub(crate) number: u32,
}

/// Units are told apart into so many bands.
pub(crate) const BANDS: u16 = 4;

/// The kind of what the host moves.
#[derive(Clone, Copy, Default)]
pub(crate) struct Crate;

/// The kind of what guests move.
#[derive(Clone, Copy, Default)]
pub(crate) struct Drone;

/// The kind of what a guest steers and the host decides.
#[derive(Clone, Copy, Default)]
pub(crate) struct Player;

/// The kind of the one thing with three authorities.
#[derive(Clone, Copy, Default)]
pub(crate) struct Relic;

/// The kind of what kicks the ball.
#[derive(Clone, Copy, Default)]
pub(crate) struct Paddle;

/// The kind of the ball.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ball;

/// The kind of the crowd's members.
#[derive(Clone, Copy, Default)]
pub(crate) struct Unit;

/// Hashes in one [`TrailPart`].
pub(crate) const PART: usize = 56;

/// The host to all, after [`Finish`]: what it computed in some ticks of one timeline, for each guest to compare with what it computed.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub(crate) struct TrailPart {
    /// Of the lockstep timeline; if not, of the rollback timeline.
    pub(crate) lockstep: bool,
    /// The last part of that timeline.
    pub(crate) last: bool,
    /// The first tick.
    pub(crate) first: u64,
    /// How many of the hashes count.
    pub(crate) count: u8,
    /// A hash of the state after each tick from the first on.
    pub(crate) hashes: [u32; PART],
}

/// A guest to the host: what came of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Agreed {
    /// Rollback ticks that were compared.
    pub(crate) rollback: u32,
    /// Lockstep ticks that were compared.
    pub(crate) lockstep: u32,
    /// Those that differ.
    pub(crate) differing: u32,
    /// Orders that the guest gave; all of them are sealed, as far as it knows.
    pub(crate) orders: u32,
}

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
        .component::<Pose>("pose", |c| c.interpolate().checkpoint().validate(drives_fairly))
        .component::<Health>("health", |c| c.authority(Host::default()))
        .component::<Speed>("speed", |c| c.checkpoint())
        .component::<Banner>("banner", |c| c.authority(Owner::co(1)))
        .checkpoint::<Spot>("spot")
        .checkpoint::<Drift>("drift")
        .checkpoint::<Of>("of")
        .checkpoint::<Aim>("aim")
        .resource_of::<Score>("score", Timeline::Rollback)
        .kind::<Crate>("crate", Host::default())
        .kind::<Drone>("drone", Owner::default())
        .kind::<Player>("player", Host::predicted())
        .kind_with::<Relic>("relic", Owner::default(), |k| k.when_owner_leaves(Absent::HostTakesOver))
        .kind::<Paddle>("paddle", Rollback)
        .kind::<Ball>("ball", Rollback)
        .kind::<Unit>("unit", Lockstep::sealed())
        .input::<Stick>("stick")
        .order::<Rally>("rally")
        .message::<Shot>("shot")
        .message::<Finish>("finish")
        .message::<TrailPart>("trail")
        .message::<Agreed>("agreed")
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
        if let Ok(mut speed) = world.get::<&mut Speed>(shot.target) {
            speed.x = (speed.x + RECOIL).min(50.0);
        }
        let left = world.get::<&mut Health>(shot.target).map(|mut health| {
            health.0 = health.0.saturating_sub(DAMAGE);
            health.0
        });
        if left == Ok(0) && !world.satisfies::<&Relic>(shot.target) {
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
