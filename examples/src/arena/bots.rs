//! Bots: they play for the host and for the guests. The same seed makes the same choices.

use crate::game::{Crate, Drone, HALF, Health, Pose, SPEED, Shot};
use hecs::{Entity, World};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::f32::consts::TAU;
use tidelock::{Step, To, UsageError};

/// Ticks that an entity lives, on average.
const LIFE: u32 = 600;
/// One in so many writes of a guest's pose is a jump that the host refuses.
const CHEAT: u32 = 2000;
/// How far such a jump goes.
const JUMP: f32 = 150.0;
/// A guest shoots once in so many ticks, on average.
const SHOOT: u32 = 30;
/// An entity turns once in so many ticks, on average.
const TURN: u32 = 40;

/// Whose entities a bot has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Crates.
    Host,
    /// Drones, and it tries to cheat now and then.
    Guest,
}

/// How an entity drives. Known to its bot alone.
struct Drive {
    speed: f32,
    heading: f32,
}

/// Moves a number of entities, and lets them come and go.
pub(crate) struct Bot {
    side: Side,
    share: usize,
    own: Vec<Entity>,
    rng: Pcg64Mcg,
}

impl Bot {
    /// A bot that keeps about `share` entities.
    pub(crate) fn new(side: Side, share: usize, seed: u64) -> Self {
        Self { side, share, own: Vec::new(), rng: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Plays one tick.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn step(&mut self, world: &mut World, step: &mut Step<'_>) -> Result<(), UsageError> {
        self.own.retain(|entity| world.contains(*entity)); // others shoot
        self.drive(world, step);
        self.despawn_one(world, step)?;
        self.fill_up(world, step)?;
        if self.side == Side::Guest && self.one_in(SHOOT) {
            self.shoot(world, step)?;
        }
        Ok(())
    }

    fn drive(&mut self, world: &World, step: &Step<'_>) {
        let seconds = step.seconds();
        for (pose, drive) in step.query::<(&mut Pose, &mut Drive)>(world).iter() {
            if self.one_in(TURN) {
                drive.heading = self.below(TAU);
            }
            let (sin, cos) = drive.heading.sin_cos();
            pose.x += drive.speed * cos * seconds;
            pose.y += drive.speed * sin * seconds;
            if pose.x.abs() > HALF || pose.y.abs() > HALF {
                drive.heading = (-pose.y).atan2(-pose.x); // at the wall, back to the middle
            }
            if self.side == Side::Guest && self.one_in(CHEAT) {
                pose.x -= JUMP.copysign(pose.x);
            }
            *pose = Pose { x: pose.x.clamp(-HALF, HALF), y: pose.y.clamp(-HALF, HALF), turn: drive.heading };
        }
    }

    fn despawn_one(&mut self, world: &mut World, step: &mut Step<'_>) -> Result<(), UsageError> {
        // with so many entities, one dies in every `LIFE / count` ticks
        if self.own.is_empty() || self.rng.next_u32() % LIFE >= self.own.len() as u32 {
            return Ok(());
        }
        let at = self.rng.next_u32() as usize % self.own.len();
        let entity = self.own.swap_remove(at);
        step.despawn(world, entity)
    }

    /// Spawns what is missing, a few in each tick.
    fn fill_up(&mut self, world: &mut World, step: &mut Step<'_>) -> Result<(), UsageError> {
        for _ in 0..self.share.saturating_sub(self.own.len()).min(1 + self.share / 60) {
            let (x, y, heading) = (self.below(2.0 * HALF) - HALF, self.below(2.0 * HALF) - HALF, self.below(TAU));
            let pose = Pose { x, y, turn: heading };
            let drive = Drive { speed: SPEED / 2.0 + self.below(SPEED / 2.0), heading };
            let spawned = match self.side {
                Side::Host => step.spawn(world, Crate, (pose, Health::WHOLE, drive)),
                Side::Guest => step.spawn(world, Drone, (pose, drive)),
            };
            match spawned {
                Ok(entity) => self.own.push(entity),
                // the host has not granted names yet: in a later tick
                Err(UsageError::NoNames) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn shoot(&mut self, world: &World, step: &mut Step<'_>) -> Result<(), UsageError> {
        let mut query = world.query::<(Entity, &Health)>();
        let targets: Vec<Entity> = query.iter().map(|t| t.0).collect();
        if targets.is_empty() {
            return Ok(());
        }
        let target = targets[self.rng.next_u32() as usize % targets.len()];
        match step.peer().send_message(world, To::Host, &Shot { target }) {
            // the shot goes nowhere: the line is full
            Err(UsageError::Backlog) => Ok(()),
            result => result,
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.next_u32().is_multiple_of(n)
    }

    /// From 0 to `most`, evenly.
    fn below(&mut self, most: f32) -> f32 {
        self.rng.next_u32() as f32 / u32::MAX as f32 * most
    }
}
