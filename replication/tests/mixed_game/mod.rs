//! A game with every policy in one world, and its rules, which all peers run alike.
#![allow(dead_code, reason = "every test uses another part")]

use hecs::{Entity, World};
use std::collections::BTreeMap;
use tidelock::policy::{Absent, Host, Lockstep, Owner, Rollback, Timeline};
use tidelock::{Checkpoint, Interpolate, NetId, Networked, PeerId, Press, Replicate, Schema, Seat, Step};

use crate::common::Rng;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Interpolate, Checkpoint)]
pub(crate) struct Place {
    #[net(step = 0.01, range = -500.0..=500.0)]
    pub(crate) x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    pub(crate) y: f32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
pub(crate) struct Speed {
    #[net(step = 0.01, range = -50.0..=50.0)]
    pub(crate) x: f32,
    #[net(step = 0.01, range = -50.0..=50.0)]
    pub(crate) y: f32,
}

/// Ticks that a shot still lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
pub(crate) struct Fuse(u16);

impl Goals {
    /// Writes to it, whoever may.
    pub(crate) fn cheat(&mut self) {
        self.by.push((7, 7));
    }
}

/// Whose a computed entity is. Never published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Checkpoint)]
pub(crate) struct Of(pub(crate) u16);

/// The host's word, also on what others own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Health(u16);

/// A co-owner's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Banner {
    #[net(range = 0..=1000)]
    colour: i32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    pub(crate) x: f32,
    #[net(step = 0.01, range = -1.0..=1.0)]
    pub(crate) y: f32,
    pub(crate) fire: Press,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub(crate) struct Muster {
    #[net(exact)]
    pub(crate) x: f32,
    /// The seat that gave it, and its how manieth order it was.
    pub(crate) seat: u16,
    pub(crate) number: u32,
}

#[derive(Clone, Default, Checkpoint)]
pub(crate) struct Goals {
    by: Vec<(u16, u32)>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Crate;
#[derive(Clone, Copy, Default)]
pub(crate) struct Walker;
#[derive(Clone, Copy, Default)]
pub(crate) struct Relic;
#[derive(Clone, Copy, Default)]
pub(crate) struct Runner;
#[derive(Clone, Copy, Default)]
pub(crate) struct Shot;
#[derive(Clone, Copy, Default)]
pub(crate) struct Player;
#[derive(Clone, Copy, Default)]
pub(crate) struct Ball;
#[derive(Clone, Copy, Default)]
pub(crate) struct Unit;

/// The policies that a session has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Has {
    pub(crate) host: bool,
    pub(crate) owner: bool,
    pub(crate) predicted: bool,
    pub(crate) rollback: bool,
    pub(crate) lockstep: bool,
}

impl Has {
    pub(crate) fn all() -> Self {
        Self { host: true, owner: true, predicted: true, rollback: true, lockstep: true }
    }

    pub(crate) fn schema(self) -> Schema {
        let mut schema = Schema::builder("mixed")
            .component::<Place>("place", |c| c.interpolate().checkpoint())
            .component::<Speed>("speed", |c| c.checkpoint())
            .component::<Fuse>("fuse", |c| c.checkpoint())
            .component::<Health>("health", |c| c.authority(Host::default()).notify_changes())
            .component::<Banner>("banner", |c| c)
            .checkpoint::<Of>("of");
        if self.host {
            schema = schema.kind::<Crate>("crate", Host::default());
        }
        if self.owner {
            schema = schema.kind::<Walker>("walker", Owner::default()).kind_with::<Relic>("relic", Owner::default(), |k| {
                k.authority::<Banner>(Owner::co(1)).when_owner_leaves(Absent::HostTakesOver)
            });
        }
        if self.predicted {
            schema = schema
                .kind_with::<Runner>("runner", Host::predicted(), |k| k.when_owner_leaves(Absent::HostTakesOver))
                .kind::<Shot>("shot", Host::predicted());
        }
        if self.rollback {
            schema = schema.kind::<Player>("player", Rollback).kind::<Ball>("ball", Rollback);
            schema = schema.resource_of::<Goals>("goals", Timeline::Rollback);
        }
        if self.lockstep {
            schema = schema.kind::<Unit>("unit", Lockstep::sealed()).order::<Muster>("muster");
        }
        if self.has_input() {
            schema = schema.input::<Stick>("stick");
        }
        schema.build().unwrap()
    }

    pub(crate) fn has_input(self) -> bool {
        self.predicted || self.rollback || self.lockstep
    }
}

/// What a peer's worlds were after each tick.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) rollback: BTreeMap<u64, u64>,
    pub(crate) lockstep: BTreeMap<u64, u64>,
    /// Orders as they took effect: tick, seat, number.
    pub(crate) orders: Vec<(u64, u16, u32)>,
    pub(crate) reruns: u64,
}

fn hash(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0xcbf2_9ce4_8422_2325, |h, part| (h ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(17))
}

fn state(world: &World, step: &Step<'_>) -> u64 {
    let mut all: Vec<(NetId, u64)> = Vec::new();
    for (networked, place, speed, of) in step.query::<(&Networked, &Place, &Speed, &Of)>(world).iter() {
        let words = [place.x, place.y, speed.x, speed.y].map(|v| u64::from(v.to_bits()));
        all.push((networked.id(), hash(words.into_iter().chain([u64::from(of.0)]))));
    }
    all.sort_unstable();
    hash(all.into_iter().flat_map(|(net, h)| [net.0, h]))
}

/// A step of any timeline. `chance`: what host and owners do of their own accord; `None` in times of rest.
pub(crate) fn simulate(has: Has, seat: usize, world: &mut World, step: &mut Step<'_>, seen: &mut Seen, chance: Option<&mut Rng>) {
    match step.timeline() {
        Timeline::Session => {
            if has.predicted {
                run_and_shoot(world, step);
            }
            if let Some(chance) = chance.filter(|_| !step.rerun()) {
                wander(has, seat, world, step, chance);
                wave(world, step, chance);
                if has.predicted && seat == 0 && chance.chance(3) {
                    push(world, step, chance);
                }
            }
        }
        Timeline::Rollback => {
            play(world, step);
            seen.reruns += u64::from(step.rerun());
            let state = state(world, step);
            let goals = hash(step.resource::<Goals>(world).unwrap().by.iter().map(|g| u64::from(g.0) << 32 | u64::from(g.1)));
            seen.rollback.insert(step.tick().0, state ^ goals);
        }
        Timeline::Lockstep => {
            command(world, step, seen);
            let state = state(world, step);
            assert_eq!(seen.lockstep.insert(step.tick().0, state), None, "lockstep tick {} was run twice", step.tick().0);
        }
    }
}

/// Crates and walkers come, move and go, by whoever simulates them.
fn wander(has: Has, seat: usize, world: &mut World, step: &mut Step<'_>, chance: &mut Rng) {
    let mut mine: Vec<Entity> = step.query::<Entity>(world).with::<&Crate>().iter().collect();
    mine.extend(step.query::<Entity>(world).with::<&Walker>().iter());
    for entity in &mine {
        if chance.chance(30) {
            let way = chance.below(200) as f32 * 0.01;
            let mut place = world.get::<&mut Place>(*entity).unwrap();
            *place = Place { x: (place.x + way).min(499.0), y: chance.below(40_000) as f32 * 0.01 };
        }
    }
    if mine.len() < 12 {
        let at = Place { x: 0.0, y: chance.below(100) as f32 };
        let _ = match seat {
            0 if has.host => step.spawn(world, Crate, (at, Health(chance.below(100) as u16))),
            _ if has.owner => step.spawn(world, Walker, (at, Speed::default())),
            _ => return,
        };
    } else if chance.chance(40) {
        let _ = step.despawn(world, mine[chance.below(mine.len() as u64) as usize]);
    }
}

/// One entity under three authorities: pose, health and banner are written by whoever has them.
fn wave(world: &mut World, step: &mut Step<'_>, chance: &mut Rng) {
    let poses: Vec<Entity> = step.query::<Entity>(world).with::<&Relic>().iter().collect();
    for entity in poses {
        *world.get::<&mut Place>(entity).unwrap() = Place { x: chance.below(400) as f32, y: chance.below(300) as f32 };
    }
    for entity in step.with_authority::<Health>().collect::<Vec<_>>() {
        if let Ok(mut health) = world.get::<&mut Health>(entity) {
            health.0 = health.0.wrapping_add(1);
        }
    }
    for entity in step.with_authority::<Banner>().collect::<Vec<_>>() {
        if let Ok(mut banner) = world.get::<&mut Banner>(entity) {
            banner.colour = chance.below(1001) as i32;
        }
    }
}

/// The host pushes a runner, which no owner can foresee.
fn push(world: &mut World, step: &mut Step<'_>, chance: &mut Rng) {
    let all: Vec<Entity> = step.query::<Entity>(world).with::<&Runner>().iter().collect();
    if let Some(entity) = all.get(chance.below(all.len().max(1) as u64) as usize) {
        world.get::<&mut Speed>(*entity).unwrap().y += 4.0;
    }
}

/// The same for host and owner. Without a stick that is held, all comes to rest.
fn run_and_shoot(world: &mut World, step: &mut Step<'_>) {
    let dt = step.seconds();
    let mut bodies: Vec<(NetId, Entity)> = Vec::new();
    for (entity, networked) in step.query::<(Entity, &Networked)>(world).with::<&Runner>().iter() {
        bodies.push((networked.id(), entity));
    }
    bodies.sort_unstable();
    for (_, entity) in bodies {
        let owner = step.owner(world, entity).unwrap_or(PeerId::NOBODY);
        let input = step.input::<Stick>(owner).ok();
        let stick = input.as_ref().map(|i| i.value).unwrap_or_default();
        let place = {
            let (place, speed) = world.query_one_mut::<(&mut Place, &mut Speed)>(entity).unwrap();
            let turn = (place.x * 0.1).sin() * stick.y;
            speed.x = ((speed.x + (stick.x + turn) * dt * 30.0) * 0.95).clamp(-45.0, 45.0);
            speed.y = ((speed.y + stick.y * dt * 30.0) * 0.95).clamp(-45.0, 45.0);
            place.x = (place.x + speed.x * dt).clamp(-490.0, 490.0);
            place.y = (place.y + speed.y * dt).clamp(-490.0, 490.0);
            *place
        };
        for i in 0..input.map_or(0, |i| i.pressed(|s| s.fire)) {
            // the host refuses every seventh
            if step.peer().is_host() && step.tick().0.is_multiple_of(7) {
                continue;
            }
            let fuse = Fuse(5 + 40 * (i as u16 % 3));
            step.spawn_for(world, owner, 0, Shot, (place, Speed { x: 20.0, y: 0.0 }, fuse)).unwrap();
        }
    }
    let flying: Vec<Entity> = step.query::<Entity>(world).with::<&Shot>().iter().collect();
    for entity in flying {
        let (place, speed, fuse) = world.query_one_mut::<(&mut Place, &Speed, &mut Fuse)>(entity).unwrap();
        place.x = (place.x + speed.x * dt).min(490.0);
        fuse.0 = fuse.0.saturating_sub(1);
        if fuse.0 == 0 {
            step.despawn(world, entity).unwrap();
        }
    }
}

/// The rollback game: a body for every seat, which kicks balls; balls push each other in the order of their names.
fn play(world: &mut World, step: &mut Step<'_>) {
    let dt = step.seconds();
    let seats: Vec<_> = step.seats().collect();
    let mut players: BTreeMap<u16, Entity> =
        step.query::<(Entity, &Of)>(world).with::<&Player>().iter().map(|(e, of)| (of.0, e)).collect();
    for (peer, seat) in &seats {
        let entity = *players.entry(peer.0).or_insert_with(|| {
            let at = Place { x: f32::from(peer.0) * 3.0, y: 0.0 };
            step.spawn(world, Player, (at, Speed::default(), Of(peer.0))).unwrap()
        });
        let Ok(input) = step.input::<Stick>(*peer) else { continue };
        let at = {
            let (place, speed) = world.query_one_mut::<(&mut Place, &mut Speed)>(entity).unwrap();
            let push = if *seat == Seat::Cpu { (0.0, 0.3) } else { (input.value.x, input.value.y) };
            speed.x = (speed.x + push.0 * dt * 20.0) * 0.97;
            speed.y = (speed.y + push.1 * dt * 20.0) * 0.97;
            (place.x, place.y) = (place.x + speed.x * dt, place.y + speed.y * dt);
            *place
        };
        for i in 0..input.pressed(|i| i.fire) {
            let mut rng = step.rng(NetId(u64::from(peer.0)), u64::from(i));
            let speed = Speed { x: 4.0 + (rng.next_u64() >> 40) as f32 / 2_097_152.0, y: 1.0 };
            step.spawn(world, Ball, (at, speed, Of(peer.0))).unwrap();
            let goals = step.resource::<Goals>(world).unwrap();
            match goals.by.iter_mut().find(|g| g.0 == peer.0) {
                Some(goal) => goal.1 += 1,
                None => goals.by.push((peer.0, 1)),
            }
        }
    }
    // who has left goes with its body
    players.retain(|of, _| !seats.iter().any(|(peer, _)| peer.0 == *of));
    for entity in players.into_values() {
        step.despawn(world, entity).unwrap();
    }
    let mut sum = 0.0f32;
    let mut gone = Vec::new();
    let mut balls = step.ordered::<(Entity, Option<&Ball>, &mut Place, &mut Speed)>(world);
    while let Some((_, (entity, ball, place, speed))) = balls.next() {
        if ball.is_none() {
            continue;
        }
        sum = (sum + place.x * 0.1).sin();
        speed.y += sum * dt;
        (place.x, place.y) = (place.x + speed.x * dt, place.y + speed.y * dt);
        if place.x > 30.0 {
            gone.push(entity);
        }
    }
    for entity in gone {
        step.despawn(world, entity).unwrap();
    }
}

/// The lockstep crowd: orders muster units, which crowd each other; the eldest goes now and then.
fn command(world: &mut World, step: &mut Step<'_>, seen: &mut Seen) {
    let dt = step.seconds();
    let orders: Vec<(PeerId, Muster)> = step.orders::<Muster>(world).unwrap().collect();
    for (peer, order) in orders {
        seen.orders.push((step.tick().0, order.seat, order.number));
        let parts = (Place { x: order.x, y: f32::from(order.seat) }, Speed { x: 1.0, y: 0.5 }, Of(peer.0));
        step.spawn(world, Unit, parts).unwrap();
    }
    let mut crowd = 0.0f32;
    let mut units = step.ordered::<(&mut Place, &mut Speed)>(world);
    while let Some((_, (place, speed))) = units.next() {
        crowd = (crowd + place.x).cos();
        speed.x += crowd * dt;
        (place.x, place.y) = (place.x + speed.x * dt, place.y + speed.y * dt);
    }
    if step.tick().0.is_multiple_of(20) {
        let eldest = step.query::<(&Networked, Entity)>(world).iter().map(|(n, e)| (n.id(), e)).min();
        if let Some((_, eldest)) = eldest {
            step.despawn(world, eldest).unwrap();
        }
    }
}
