//! People who walk about on a square: what moves in the stadium, and what of it travels.

use crate::crowd::Generator;
use hecs::{Entity, World};
use std::f32::consts::{PI, TAU};
use tidelock::policy::{Host, Owner};
use tidelock::{Interpolate, Replicate, Schema};

/// Square metres for each.
pub const ROOM: f32 = 4.0;
/// Ticks and sends per second.
pub const RATE: u32 = 20;
/// Positions are on this grid, in the world too: so a guest's value is exactly a value that the host had.
const GRID: f32 = 64.0;
/// Somebody takes another direction once in so many ticks, on average.
const TURN: usize = 60;
/// Somebody's mood changes once in so many ticks, on average.
const MOODY: usize = 1200;
/// Radians that somebody turns in a tick, at most.
const SWING: f32 = PI / RATE as f32;

/// Metres, in steps of 1/64.
#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
pub struct Place {
    /// To the right.
    #[net(step = 0.015625, range = -512.0..=511.984375)]
    pub x: f32,
    /// Up.
    #[net(step = 0.015625, range = -512.0..=511.984375)]
    pub y: f32,
}

/// Where somebody looks, radians.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Facing(#[net(angle, bits = 8)] pub f32);

/// How somebody feels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Replicate)]
pub enum Mood {
    /// As always.
    Calm,
    /// Waves.
    Glad,
    /// Stamps.
    Cross,
    /// Looks elsewhere.
    Bored,
}

/// The kind of those that the host moves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walker;

/// The kind of those that guests move.
#[derive(Clone, Copy, Debug, Default)]
pub struct Avatar;

/// Everything that travels.
///
/// # Panics
/// Never: the schema is sound.
#[must_use]
pub fn schema() -> Schema {
    Schema::builder("stadium")
        .component::<Place>("place", |c| c.interpolate())
        .component::<Facing>("facing", |c| c)
        .component::<Mood>("mood", |c| c)
        .kind::<Walker>("walker", Host::default())
        .kind::<Avatar>("avatar", Owner::default())
        .build()
        .expect("the schema is sound")
}

struct Walk {
    at: [f32; 2],
    facing: f32,
    goal: f32,
    /// Metres per second.
    speed: f32,
    mood: Mood,
}

/// All of them.
pub struct Walkers {
    half: f32,
    all: Vec<Walk>,
    chance: Generator,
}

impl Walkers {
    /// `n` of them, on a square with room for them.
    #[must_use]
    pub fn new(n: usize, seed: u64) -> Self {
        let half = ((n as f32 * ROOM).sqrt() / 2.0).min(510.0);
        let mut chance = Generator::new(seed);
        let all = (0..n).map(|_| {
            let (at, facing) = ([chance.signed() * half, chance.signed() * half], chance.signed() * PI);
            Walk { at, facing, goal: facing, speed: 0.6 + chance.unit(), mood: Mood::Calm }
        });
        let all = all.collect();
        Self { half, all, chance }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Nobody there?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// One tick: everybody moves.
    pub fn step(&mut self) {
        let Self { half, all, chance } = self;
        for walk in all {
            if chance.below(TURN) == 0 {
                walk.goal = chance.signed() * PI;
            }
            if walk.at.iter().any(|x| x.abs() > *half) {
                walk.goal = (-walk.at[1]).atan2(-walk.at[0]); // at the edge, back to the middle
            }
            let off = (walk.goal - walk.facing + PI).rem_euclid(TAU) - PI;
            walk.facing += off.clamp(-SWING, SWING);
            let (sin, cos) = walk.facing.sin_cos();
            walk.at[0] += cos * walk.speed / RATE as f32;
            walk.at[1] += sin * walk.speed / RATE as f32;
            if chance.below(MOODY) == 0 {
                walk.mood = [Mood::Calm, Mood::Glad, Mood::Cross, Mood::Bored][chance.below(4)];
            }
        }
    }

    /// What travels of one of them.
    #[must_use]
    pub fn show(&self, i: usize) -> (Place, Facing, Mood) {
        let walk = &self.all[i];
        let [x, y] = walk.at.map(|x| (x * GRID).round() / GRID);
        (Place { x, y }, Facing(walk.facing), walk.mood)
    }

    /// Writes what travels of one of them into a world.
    ///
    /// # Panics
    /// If the entity is not there: those who move an entity have it.
    pub fn write(&self, i: usize, world: &World, entity: Entity) {
        let (place, facing, mood) = self.show(i);
        let mut query = world.query_one::<(&mut Place, &mut Facing, &mut Mood)>(entity);
        let (p, f, m) = query.get().expect("who moves an entity has it");
        (*p, *f, *m) = (place, facing, mood);
    }
}
