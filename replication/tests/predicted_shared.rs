//! Prediction beside everything else: hand-over, relevance, sends that skip ticks, components that come and go, ends.

mod common;

use common::{config, weather};
use hecs::{Entity, World};
use std::time::Duration;
use tidelock::policy::{Host, Owner};
use tidelock::testing::Table;
use tidelock::{Checkpoint, Config, Interpolate, NetId, PeerId, Relevance, Replicate, Schema, Step};
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Interpolate, Checkpoint)]
struct Pose {
    #[net(step = 0.05, range = -800.0..=800.0)]
    x: f32,
    #[net(angle, bits = 8)]
    turn: f32,
}

/// There only while it lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
struct Boost(u16);

/// The host's alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Score(u32);

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    push: f32,
}

#[derive(Clone, Copy, Default)]
struct Cart;
#[derive(Clone, Copy, Default)]
struct Rock;

fn schema() -> Schema {
    Schema::builder("shared")
        .component::<Pose>("pose", |c| c.interpolate().checkpoint())
        .component::<Boost>("boost", |c| c.checkpoint())
        .component::<Score>("score", |c| c.authority(Host::default()))
        .kind::<Cart>("cart", Host::predicted())
        .kind::<Rock>("rock", Owner::default())
        .input::<Stick>("stick")
        .build()
        .unwrap()
}

fn simulate(world: &mut World, step: &mut Step<'_>) {
    let dt = step.seconds();
    let carts: Vec<Entity> = step.query::<Entity>(world).with::<&Cart>().iter().collect();
    for cart in carts {
        let owner = step.owner(world, cart).unwrap_or(PeerId::HOST);
        let push = step.input::<Stick>(owner).map(|i| i.value.push).unwrap_or(0.0);
        let boost = world.get::<&Boost>(cart).map(|b| b.0).ok();
        let pose = world.query_one_mut::<&mut Pose>(cart).unwrap();
        let speed = if boost.is_some() { 30.0 } else { 10.0 };
        pose.x = (pose.x + push * speed * dt).clamp(-790.0, 790.0);
        pose.turn = (pose.turn + push * 0.7 * dt).rem_euclid(std::f32::consts::TAU);
        match boost {
            Some(0) => drop(world.remove_one::<Boost>(cart).unwrap()),
            Some(left) => world.insert_one(cart, Boost(left - 1)).unwrap(),
            None if pose.x.rem_euclid(40.0) < 0.2 && push != 0.0 => world.insert_one(cart, Boost(20)).unwrap(),
            None => {}
        }
    }
}

struct Scene {
    table: Table,
    sticks: Vec<Stick>,
    carts: Vec<NetId>,
    chance: common::Rng,
}

impl Scene {
    fn new(seed: u64, guests: usize, weather: Conditions, config: &Config, partial: bool) -> Self {
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(), config.clone(), network.host()).unwrap();
        if partial {
            let relevance = Relevance::nearest(3).place::<Pose>(|p| [p.x, 0.0, 0.0]).cell(20.0);
            table.seat(0).peer.set_relevance(relevance).unwrap();
        }
        for _ in 0..guests {
            table.join(config.clone(), network.join(weather, weather)).unwrap();
        }
        let chance = common::Rng::new(seed);
        let mut scene = Self { table, sticks: vec![Stick::default(); guests + 1], carts: Vec::new(), chance };
        scene.run(120);
        for seat in 1..=guests {
            let local = scene.table.seat(seat).peer.local();
            let host = scene.table.seat(0);
            let parts = (Pose { x: 15.0 * seat as f32, turn: 0.0 }, Score(0));
            let cart = host.peer.spawn(&mut host.world, Cart, parts).unwrap();
            host.peer.grant(&mut host.world, cart, 0, local).unwrap();
            let net = host.peer.name_of(&host.world, cart).unwrap();
            scene.carts.push(net);
            if partial {
                host.peer.look_from(local, tidelock::Viewpoint::Entity(cart)).unwrap();
            }
        }
        scene.run(120);
        scene
    }

    fn run(&mut self, frames: u32) {
        for _ in 0..frames {
            for seat in self.table.taken().into_iter().skip(1) {
                if self.chance.chance(5) {
                    self.sticks[seat].push = self.chance.below(3) as f32 - 1.0;
                }
                let stick = self.sticks[seat];
                self.table.seat(seat).peer.set_input(&stick).unwrap();
            }
            self.step();
        }
    }

    fn step(&mut self) {
        self.table.run(|_, world, step| simulate(world, step));
    }

    fn calm(&mut self) {
        self.sticks.iter_mut().for_each(|s| s.push = 0.0);
        for seat in self.table.taken().into_iter().skip(1) {
            self.table.seat(seat).peer.set_input(&Stick::default()).unwrap();
        }
        (0..300).for_each(|_| self.step());
        let seed = self.table.seed;
        assert!(self.table.all_equal().is_ok(), "SEED={seed}: {:?} {:?}", self.table.differences(1), self.table.all_equal());
    }

    fn corrections(&mut self, seat: usize) -> Vec<String> {
        self.table.seat(seat).peer.corrections().map(ToString::to_string).collect()
    }

    fn pose(&mut self, seat: usize, net: NetId) -> Option<Pose> {
        let seat = self.table.seat(seat);
        seat.find(net).map(|e| *seat.world.get::<&Pose>(e).unwrap())
    }
}

/// Components come and go in predicted steps, and the host sends in every third tick only: still nothing to correct.
#[test]
fn sends_that_skip_ticks_need_no_corrections() {
    for send_every in [1, 3] {
        let config = Config { send_every, ..config() };
        let mut scene = Scene::new(3, 2, weather(60, 0.0), &config, false);
        scene.run(120);
        let before = scene.table.seat(1).peer.correction_count();
        scene.run(900);
        let all = scene.corrections(1);
        assert_eq!(scene.table.seat(1).peer.correction_count(), before, "every {send_every}: {all:#?}");
        scene.calm();
    }
}

/// With lists of rows for who sees a part, the owner gets the grid and the others the steps of the wire.
#[test]
fn who_sees_a_part_predicts_its_own() {
    for seed in 1..=4 {
        let mut scene = Scene::new(seed, 4, weather(50, 0.0), &config(), true);
        scene.run(200);
        let before = scene.table.seat(2).peer.correction_count();
        scene.run(1200);
        let all = scene.corrections(2);
        assert_eq!(scene.table.seat(2).peer.correction_count(), before, "SEED={seed}: {all:#?}");
        scene.calm();
        let net = scene.carts[1];
        assert_eq!(scene.pose(2, net), scene.pose(0, net), "SEED={seed}: to the grid");
    }
}

/// The cart changes hands, while it moves, and under loss: it is predicted by whoever owns it, shown to who does not, and nobody
/// ends up with half of it.
#[test]
fn a_predicted_entity_changes_hands() {
    for seed in 1..=8 {
        let storm = Conditions { jitter: Duration::from_millis(10), ..weather(60, 0.08) };
        let mut scene = Scene::new(seed, 3, storm, &config(), seed % 2 == 0);
        for round in 0..12 {
            scene.run(40 + scene.table.seed as u32 * 3);
            let to = PeerId(scene.chance.below(4) as u16);
            let net = scene.carts[round % 3];
            let host = scene.table.seat(0);
            if let Some(cart) = host.find(net) {
                host.peer.grant(&mut host.world, cart, 0, to).unwrap();
            }
        }
        scene.run(100);
        scene.calm();
        for net in scene.carts.clone() {
            let truth = scene.pose(0, net).unwrap();
            for seat in 1..=3 {
                let Some(here) = scene.pose(seat, net) else { continue };
                assert!((here.x - truth.x).abs() <= 0.026, "SEED={seed} seat {seat}: {here:?}, {truth:?}");
            }
        }
    }
}

/// The host ends what a guest predicts, and takes a component off that the guest has put on.
#[test]
fn ends_of_what_is_predicted_hold() {
    for seed in 1..=6 {
        let mut scene = Scene::new(seed, 2, weather(80, 0.05), &config(), false);
        scene.run(200);
        let net = scene.carts[0];
        let host = scene.table.seat(0);
        let cart = host.find(net).unwrap();
        host.peer.despawn(&mut host.world, cart).unwrap();
        scene.run(200);
        assert_eq!(scene.pose(1, net), None, "SEED={seed}: it is gone");
        let other = scene.carts[1];
        for _ in 0..5 {
            let host = scene.table.seat(0);
            let cart = host.find(other).unwrap();
            let _ = host.world.remove_one::<Boost>(cart);
            host.world.get::<&mut Pose>(cart).unwrap().x = 3.0;
            scene.run(60);
        }
        scene.calm();
        let local = scene.table.seat(2).peer.local();
        let host = scene.table.seat(0);
        let fresh = host.peer.spawn(&mut host.world, Cart, (Pose::default(), Score(1))).unwrap();
        host.peer.grant(&mut host.world, fresh, 0, local).unwrap();
        scene.run(100);
        scene.table.leave(1);
        scene.run(100);
        scene.calm();
    }
}
