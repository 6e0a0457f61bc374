//! Rollback and lockstep: every peer computes the same, tick by tick, from the same sealed inputs and orders.

mod common;

use common::{config, weather};
use hecs::{Entity, World};
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::policy::{Lockstep, Rollback, Timeline};
use tidelock::testing::Table;
use tidelock::{Checkpoint, NetId, Networked, PeerId, Press, Replicate, Schema, Step};
use tidelock_loopback::{Conditions, Direction, Network};

#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
struct Place {
    x: f32,
    y: f32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
struct Speed {
    x: f32,
    y: f32,
}

/// Whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Checkpoint)]
struct Of(u16);

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    x: f32,
    #[net(step = 0.01, range = -1.0..=1.0)]
    y: f32,
    hit: Press,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Muster {
    #[net(exact)]
    x: f32,
    #[net(exact)]
    y: f32,
    number: u32,
}

#[derive(Clone, Default, Checkpoint)]
struct Goals {
    by: Vec<(u16, u32)>,
}

#[derive(Clone, Copy, Default)]
struct Player;
#[derive(Clone, Copy, Default)]
struct Ball;
#[derive(Clone, Copy, Default)]
struct Unit;

fn schema() -> Schema {
    Schema::builder("computed")
        .checkpoint::<Place>("place")
        .checkpoint::<Speed>("speed")
        .checkpoint::<Of>("of")
        .kind::<Player>("player", Rollback)
        .kind::<Ball>("ball", Rollback)
        .kind::<Unit>("unit", Lockstep::sealed())
        .resource_of::<Goals>("goals", Timeline::Rollback)
        .input::<Stick>("stick")
        .order::<Muster>("muster")
        .build()
        .unwrap()
}

/// What a peer's worlds were after each tick.
#[derive(Default)]
struct Seen {
    rollback: BTreeMap<u64, u64>,
    lockstep: BTreeMap<u64, u64>,
    /// Orders as they took effect: tick, sender, number.
    orders: Vec<(u64, u16, u32)>,
    reruns: u64,
}

fn hash(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0xcbf2_9ce4_8422_2325, |h, part| (h ^ part).wrapping_mul(0x0100_0000_01b3).rotate_left(17))
}

fn state(world: &World, line: Timeline, step: &mut Step<'_>) -> u64 {
    let mut all: Vec<(NetId, u64)> = Vec::new();
    for (networked, place, speed, of) in step.query::<(&Networked, &Place, Option<&Speed>, &Of)>(world).iter() {
        let speed = speed.copied().unwrap_or_default();
        let words = [place.x, place.y, speed.x, speed.y].map(|v| u64::from(v.to_bits()));
        all.push((networked.id(), hash(words.into_iter().chain([u64::from(of.0)]))));
    }
    all.sort_unstable();
    let _ = line;
    hash(all.into_iter().flat_map(|(net, h)| [net.0, h]))
}

fn simulate(world: &mut World, step: &mut Step<'_>, seen: &mut Seen) {
    match step.timeline() {
        Timeline::Session => {}
        Timeline::Rollback => {
            play(world, step);
            seen.reruns += u64::from(step.rerun());
            let state = state(world, Timeline::Rollback, step);
            let goals = hash(step.resource::<Goals>(world).unwrap().by.iter().map(|g| u64::from(g.0) << 32 | u64::from(g.1)));
            seen.rollback.insert(step.tick().0, state ^ goals);
        }
        Timeline::Lockstep => {
            command(world, step, seen);
            let state = state(world, Timeline::Lockstep, step);
            seen.lockstep.insert(step.tick().0, state);
        }
    }
}

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
            let push = if *seat == tidelock::Seat::Cpu { (0.0, 0.3) } else { (input.value.x, input.value.y) };
            speed.x = (speed.x + push.0 * dt * 20.0) * 0.97;
            speed.y = (speed.y + push.1 * dt * 20.0) * 0.97;
            (place.x, place.y) = (place.x + speed.x * dt, place.y + speed.y * dt);
            *place
        };
        for i in 0..input.pressed(|i| i.hit) {
            let mut rng = step.rng(NetId(u64::from(peer.0)), u64::from(i));
            let speed = Speed { x: (rng.next_u64() >> 40) as f32 / 2_097_152.0, y: 1.0 };
            step.spawn(world, Ball, (at, speed, Of(peer.0))).unwrap();
            let goals = step.resource::<Goals>(world).unwrap();
            match goals.by.iter_mut().find(|g| g.0 == peer.0) {
                Some(goal) => goal.1 += 1,
                None => goals.by.push((peer.0, 1)),
            }
        }
    }
    // balls push each other: the order matters
    let mut sum = 0.0f32;
    let mut gone = Vec::new();
    let mut balls = step.ordered::<(Entity, &mut Place, &mut Speed, &Of)>(world);
    while let Some((net, (entity, place, speed, _))) = balls.next() {
        if net.0 >> 63 == 0 {
            continue;
        }
        sum = (sum + place.x * 0.1).sin();
        speed.y += sum * dt;
        (place.x, place.y) = (place.x + speed.x * dt, place.y + speed.y * dt);
        if place.x > 40.0 {
            gone.push(entity);
        }
    }
    for entity in gone {
        if world.satisfies::<&Ball>(entity) {
            step.despawn(world, entity).unwrap();
        }
    }
}

fn command(world: &mut World, step: &mut Step<'_>, seen: &mut Seen) {
    let dt = step.seconds();
    let orders: Vec<(PeerId, Muster)> = step.orders::<Muster>(world).unwrap().collect();
    for (peer, order) in orders {
        seen.orders.push((step.tick().0, peer.0, order.number));
        let parts = (Place { x: order.x, y: order.y }, Speed { x: 1.0, y: 0.5 }, Of(peer.0));
        step.spawn(world, Unit, parts).unwrap();
    }
    let mut crowd = 0.0f32;
    let mut units = step.ordered::<(&mut Place, &mut Speed)>(world);
    while let Some((_, (place, speed))) = units.next() {
        crowd = (crowd + place.x).cos();
        speed.x += crowd * dt;
        (place.x, place.y) = (place.x + speed.x * dt, place.y + speed.y * dt);
    }
    if step.tick().0.is_multiple_of(50) {
        let eldest = step.query::<(&Networked, Entity)>(world).iter().map(|(n, e)| (n.id(), e)).min();
        if let Some((_, eldest)) = eldest {
            step.despawn(world, eldest).unwrap();
        }
    }
}

struct Scene {
    table: Table,
    network: Network,
    sticks: Vec<Stick>,
    seen: Vec<Seen>,
    chance: common::Rng,
    given: Vec<u32>,
}

impl Scene {
    fn new(seed: u64, weathers: &[Conditions]) -> Self {
        let network = Network::new(seed);
        let table = Table::new(seed, &schema(), config(), network.host()).unwrap();
        let chance = common::Rng::new(seed);
        let mut scene =
            Self { table, network, sticks: vec![Stick::default()], seen: vec![Seen::default()], chance, given: vec![0] };
        // a level, before anybody joins
        let host = scene.table.seat(0);
        for i in 0..5 {
            let parts = (Place { x: i as f32, y: 0.5 }, Speed::default(), Of(999));
            host.peer.spawn(&mut host.world, Unit, parts).unwrap();
        }
        scene.run(30);
        for weather in weathers {
            scene.join(*weather);
        }
        scene
    }

    fn join(&mut self, weather: Conditions) -> usize {
        let seat = self.table.join(config(), self.network.join(weather, weather)).unwrap();
        self.sticks.push(Stick::default());
        self.seen.push(Seen::default());
        self.given.push(0);
        seat
    }

    fn frame(&mut self) {
        for seat in self.table.taken() {
            if !self.table.seat(seat).peer.is_in_session() {
                continue;
            }
            let stick = &mut self.sticks[seat];
            if self.chance.chance(6) {
                stick.x = self.chance.below(201) as f32 / 100.0 - 1.0;
                stick.y = self.chance.below(201) as f32 / 100.0 - 1.0;
            }
            if self.chance.chance(3) {
                stick.hit.press();
            }
            let stick = *stick;
            let order = self.chance.chance(4);
            let number = self.given[seat];
            let at = self.table.seat(seat);
            at.peer.set_input(&stick).unwrap();
            if order && at.peer.confirmed(Timeline::Lockstep).is_some() {
                let order = Muster { x: number as f32, y: seat as f32, number };
                at.peer.order(&at.world, &order).unwrap();
                self.given[seat] += 1;
            }
        }
        self.step();
    }

    fn step(&mut self) {
        let seen = &mut self.seen;
        self.table.run(|seat, world, step| simulate(world, step, &mut seen[seat]));
    }

    fn run(&mut self, frames: u32) {
        (0..frames).for_each(|_| self.frame());
    }

    /// Every tick that two peers have run with what is sealed came out the same.
    fn check(&mut self) -> (u64, u64) {
        let seed = self.table.seed;
        let (mut rollback, mut lockstep) = (0, 0);
        for seat in self.table.taken().into_iter().skip(1) {
            let peer = &self.table.seat(seat).peer;
            assert_eq!(peer.ended(), None, "SEED={seed} seat {seat}");
            let (Some(certain), Some(run)) = (peer.confirmed(Timeline::Rollback), peer.confirmed(Timeline::Lockstep)) else {
                continue;
            };
            let (host, guest) = (&self.seen[0], &self.seen[seat]);
            // from its first tick on a guest has run all that the host has; ticks that the host left out, it had only guessed
            let first = guest.rollback.keys().next().copied().unwrap_or(u64::MAX);
            for (tick, state) in host.rollback.range(first.min(certain.0)..=certain.0) {
                assert_eq!(
                    guest.rollback.get(tick),
                    Some(state),
                    "SEED={seed} seat {seat}: rollback tick {tick}, certain {}",
                    certain.0
                );
                rollback += 1;
            }
            let first = guest.lockstep.keys().next().copied().unwrap_or(u64::MAX);
            for (tick, state) in host.lockstep.range(first.min(run.0)..=run.0) {
                assert_eq!(guest.lockstep.get(tick), Some(state), "SEED={seed} seat {seat}: lockstep tick {tick}");
                lockstep += 1;
            }
            let from = guest.lockstep.keys().next().copied().unwrap_or(0);
            let same = |o: &&(u64, u16, u32)| o.0 >= from && o.0 <= run.0;
            let (a, b): (Vec<_>, Vec<_>) =
                (host.orders.iter().filter(same).collect(), guest.orders.iter().filter(same).collect());
            assert_eq!(a, b, "SEED={seed} seat {seat}: orders");
        }
        (rollback, lockstep)
    }

    /// Every order that was given has taken effect once, in order.
    fn check_orders(&mut self) {
        let seed = self.table.seed;
        for seat in self.table.taken() {
            let local = self.table.seat(seat).peer.local().0;
            let numbers: Vec<u32> = self.seen[0].orders.iter().filter(|o| o.1 == local).map(|o| o.2).collect();
            assert_eq!(numbers, (0..self.given[seat]).collect::<Vec<_>>(), "SEED={seed}: orders of seat {seat}");
        }
    }
}

fn storm(latency: u64, loss: f64) -> Conditions {
    Conditions {
        latency: Duration::from_millis(latency),
        jitter: Duration::from_millis(latency / 5),
        loss,
        burst: 3.0,
        duplicate: 0.02,
        reorder: 0.02,
        ..Conditions::default()
    }
}

#[test]
fn all_peers_compute_the_same() {
    for seed in 1..=6 {
        let mut scene = Scene::new(seed, &[storm(10, 0.05), storm(50, 0.1), storm(150, 0.15)]);
        scene.run(900);
        (0..240).for_each(|_| scene.step());
        let (rollback, lockstep) = scene.check();
        assert!(rollback > 2000 && lockstep > 2000, "SEED={seed}: {rollback} and {lockstep} ticks were compared");
        scene.check_orders();
        let reruns: u64 = scene.seen[1..].iter().map(|s| s.reruns).sum();
        assert!(reruns > 100, "SEED={seed}: {reruns} ticks were run again: guesses are wrong now and then");
        assert_eq!(scene.seen[0].reruns, 0, "the host never goes back");
    }
}

#[test]
fn who_joins_and_leaves_disturbs_nobody() {
    for seed in 11..=16 {
        let mut scene = Scene::new(seed, &[storm(30, 0.05), storm(80, 0.05)]);
        scene.run(400);
        let third = scene.join(storm(60, 0.1));
        scene.run(300);
        scene.table.leave(1);
        scene.run(200);
        scene.join(storm(20, 0.0));
        scene.run(300);
        (0..240).for_each(|_| scene.step());
        let (rollback, lockstep) = scene.check();
        assert!(rollback > 1000 && lockstep > 1000, "SEED={seed}: {rollback} {lockstep}");
        assert!(scene.seen[third].rollback.len() > 300, "SEED={seed}: who joined late plays along");
    }
}

#[test]
fn stalls_and_partitions_are_caught_up_with() {
    for seed in 21..=25 {
        let mut scene = Scene::new(seed, &[storm(40, 0.03), storm(60, 0.03)]);
        scene.run(300);
        scene.table.stall(1, Duration::from_secs(2));
        scene.run(300);
        let link = scene.network.links()[1];
        for direction in [Direction::Up, Direction::Down] {
            scene.network.set_conditions(link, direction, Conditions { loss: 1.0, ..weather(60, 1.0) });
        }
        scene.run(180);
        for direction in [Direction::Up, Direction::Down] {
            scene.network.set_conditions(link, direction, weather(60, 0.0));
        }
        scene.run(300);
        scene.table.stall(0, Duration::from_millis(1500));
        scene.run(400);
        (0..240).for_each(|_| scene.step());
        let (rollback, _) = scene.check();
        assert!(rollback > 1000, "SEED={seed}: {rollback}");
        for seat in scene.table.taken() {
            let peer = &scene.table.seat(seat).peer;
            let (step, certain) = (peer.tick(), peer.confirmed(Timeline::Rollback).unwrap());
            assert!(step.since(certain) < 60, "SEED={seed} seat {seat}: certain of {} at {}", certain.0, step.0);
        }
    }
}

/// A host that stands still leaves out more ticks than it keeps frames of, and goes on with all timelines like its guests.
#[test]
fn a_host_that_stood_still_goes_on() {
    let mut scene = Scene::new(51, &[storm(40, 0.02), storm(60, 0.02)]);
    scene.run(200);
    scene.table.stall(0, Duration::from_millis(3500));
    scene.run(210);
    let at = |scene: &mut Scene, line| scene.table.seat(0).peer.confirmed(line).unwrap();
    let before = [Timeline::Rollback, Timeline::Lockstep].map(|line| at(&mut scene, line));
    scene.run(200);
    for (line, before) in [Timeline::Rollback, Timeline::Lockstep].into_iter().zip(before) {
        let ran = at(&mut scene, line).since(before);
        assert!(ran > 150, "SEED=51: the host has run {ran} steps of {line:?} in the 200 ticks since");
    }
    (0..240).for_each(|_| scene.step());
    scene.check();
    scene.check_orders();
}

/// A pause, single steps and other speeds hold for everybody at the same tick, and no order is lost over them.
#[test]
fn pause_steps_and_speed_are_the_same_everywhere() {
    let mut scene = Scene::new(31, &[storm(40, 0.05), storm(90, 0.05)]);
    scene.run(300);
    scene.table.seat(0).peer.pause_lockstep().unwrap();
    scene.run(60);
    let paused = scene.table.seat(1).peer.confirmed(Timeline::Lockstep).unwrap();
    scene.run(60);
    assert_eq!(scene.table.seat(1).peer.confirmed(Timeline::Lockstep), Some(paused), "it stands still");
    scene.table.seat(0).peer.step_lockstep(3).unwrap();
    scene.run(60);
    assert_eq!(scene.table.seat(1).peer.confirmed(Timeline::Lockstep), Some(paused.plus(3)));
    scene.table.seat(0).peer.resume_lockstep().unwrap();
    scene.table.seat(0).peer.set_lockstep_speed(2, 1).unwrap();
    let before = scene.table.seat(1).peer.confirmed(Timeline::Lockstep).unwrap();
    scene.run(60);
    let ran = scene.table.seat(1).peer.confirmed(Timeline::Lockstep).unwrap().since(before);
    assert!((90..=125).contains(&ran), "{ran} steps in 60 ticks at double speed");
    scene.table.seat(0).peer.set_lockstep_speed(1, 4).unwrap();
    scene.run(200);
    (0..240).for_each(|_| scene.step());
    scene.check();
    scene.check_orders();
}

/// A seat whose peer falls silent is played by the CPU from one tick on, the same everywhere, and by its person when that is back.
#[test]
fn a_silent_seat_goes_to_the_cpu_and_back() {
    let mut scene = Scene::new(41, &[storm(40, 0.0), storm(40, 0.0)]);
    scene.run(300);
    scene.table.stall(1, Duration::from_millis(2500));
    scene.run(120);
    let cpu = |scene: &mut Scene| {
        let local = scene.table.seat(1).peer.local();
        let mut found = Vec::new();
        let seen = &mut scene.seen;
        scene.table.run(|seat, world, step| {
            if step.timeline() == Timeline::Rollback && !step.rerun() {
                found.push((seat, step.seat(local)));
            }
            simulate(world, step, &mut seen[seat]);
        });
        found
    };
    let found = cpu(&mut scene);
    assert!(found.contains(&(0, Some(tidelock::Seat::Cpu))), "{found:?}");
    assert!(found.contains(&(2, Some(tidelock::Seat::Cpu))), "{found:?}");
    scene.run(240);
    let found = cpu(&mut scene);
    assert!(found.iter().all(|f| f.1 == Some(tidelock::Seat::Person)), "{found:?}");
    (0..200).for_each(|_| scene.step());
    scene.check();
}

/// With an input delay a guest runs less ahead of the session, and goes back less far.
#[test]
fn an_input_delay_saves_going_back() {
    let depth = |delay: usize| {
        let mut scene = Scene::new(51, &[weather(80, 0.0), weather(80, 0.0)]);
        for seat in 0..3 {
            scene.table.seat(seat).peer.set_input_delay(delay).unwrap();
        }
        scene.run(1500);
        let last: Vec<u64> = scene.table.seat(1).peer.corrections().map(|c| c.depth).collect();
        let deepest = last[last.len() - 20..].iter().max().copied().unwrap();
        (0..120).for_each(|_| scene.step());
        scene.check();
        (deepest, scene.table.seat(1).peer.lead().unwrap())
    };
    let (without, with) = (depth(0), depth(6));
    assert!(
        without.0 > with.0 + 2 && without.1 > with.1 + Duration::from_millis(60),
        "{without:?} without a delay, {with:?} with one"
    );
}
