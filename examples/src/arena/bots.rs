//! Bots: they play for the host and for the guests. The same seed makes the same choices.

use crate::game::{Crate, Drone, HALF, Health, Player, Pose, Rally, SPEED, Shot, Stick};
use hecs::{Entity, World};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::f32::consts::TAU;
use tidelock::policy::Timeline;
use tidelock::{Peer, Step, To, UsageError};

/// Ticks that an entity lives, on average.
const LIFE: u32 = 600;
/// One in so many writes of a guest's pose is a jump that the host refuses.
const CHEAT: u32 = 2000;
/// How far such a jump goes.
const JUMP: f32 = 150.0;
/// A guest shoots once in so many ticks, on average.
const SHOOT: u32 = 30;
/// One in so many shots goes at a player.
const DUEL: u32 = 8;
/// A pilot moves its stick, kicks and gives an order once in so many frames, on average.
const STEER: u32 = 30;
const KICK: u32 = 20;
const ORDER: u32 = 60;
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
        let targets: Vec<Entity> = if self.one_in(DUEL) {
            world.query::<Entity>().with::<&Player>().iter().collect()
        } else {
            world.query::<Entity>().with::<&Health>().iter().collect()
        };
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
        below(&mut self.rng, most)
    }
}

fn below(rng: &mut Pcg64Mcg, most: f32) -> f32 {
    rng.next_u32() as f32 / u32::MAX as f32 * most
}

/// Plays as a person would: moves a stick, kicks, gives orders.
pub(crate) struct Pilot {
    stick: Stick,
    rng: Pcg64Mcg,
    /// Orders that it gave.
    pub(crate) orders: u32,
}

impl Pilot {
    /// A pilot.
    pub(crate) fn new(seed: u64) -> Self {
        Self { stick: Stick::default(), rng: Pcg64Mcg::seed_from_u64(!seed), orders: 0 }
    }

    /// Plays for a frame, or lets everything go.
    ///
    /// # Errors
    /// None in a correct program.
    pub(crate) fn frame(&mut self, peer: &mut Peer, world: &World, plays: bool) -> Result<(), UsageError> {
        if !plays {
            (self.stick.x, self.stick.y) = (0.0, 0.0);
            return peer.set_input(&self.stick);
        }
        if self.one_in(STEER) {
            (self.stick.x, self.stick.y) = (below(&mut self.rng, 2.0) - 1.0, below(&mut self.rng, 2.0) - 1.0);
        }
        if self.one_in(KICK) {
            self.stick.kick.press();
        }
        if self.one_in(ORDER) && peer.confirmed(Timeline::Lockstep).is_some() {
            let (x, y) = (below(&mut self.rng, 100.0) - 50.0, below(&mut self.rng, 100.0) - 50.0);
            match peer.order(world, &Rally { x, y, number: self.orders }) {
                Ok(_) => self.orders += 1,
                // too many wait for the host: not given
                Err(UsageError::Backlog) => {}
                Err(error) => return Err(error),
            }
        }
        peer.set_input(&self.stick)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.next_u32().is_multiple_of(n)
    }
}
