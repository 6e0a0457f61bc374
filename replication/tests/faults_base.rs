//! Differences are taken against what the receiver holds: whatever is lost, late or overtaken, what it shows was once held.

mod common;

use common::{Rng, assert_clean, assert_settles, config, seeds, table_of, weather};
use hecs::Entity;
use std::time::Duration;
use tidelock::netcore::emulator::Fate;
use tidelock::policy::Host;
use tidelock::testing::Table;
use tidelock::{NetId, Replicate, Schema};
use tidelock_loopback::{Direction, Network};

/// Two numbers that always belong together: `b` is a hundred times `a`.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Pair {
    #[net(range = 0..=60_000)]
    a: i32,
    #[net(range = 0..=6_000_000)]
    b: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Count(u32);

#[derive(Clone, Copy, Default)]
struct Thing;

fn schema() -> Schema {
    let schema = Schema::builder("bases").component::<Pair>("pair", |c| c).component::<Count>("count", |c| c);
    schema.kind::<Thing>("thing", Host::default()).build().unwrap()
}

fn pair(v: i32) -> Pair {
    Pair { a: v, b: 100 * v }
}

struct Scene {
    table: Table,
    network: Network,
    entity: Entity,
    net: NetId,
    seed: u64,
}

impl Scene {
    /// V1 is acknowledged.
    fn new(seed: u64) -> Self {
        let (mut table, network) = table_of(seed, &schema(), 1, weather(50, 0.0), &config());
        let mut entity = Entity::DANGLING;
        table.run(|seat, world, step| {
            if seat == 0 {
                entity = step.spawn(world, Thing, (pair(1), Count(1))).unwrap();
            }
        });
        table.rest(60);
        let host = table.seat(0);
        let net = host.peer.name_of(&host.world, entity).unwrap();
        Self { table, network, entity, net, seed }
    }

    fn down<R>(&self, f: impl FnOnce(&mut tidelock::netcore::emulator::Emulator<tidelock_loopback::Signal>) -> R) -> R {
        self.network.edit(self.network.links()[0], Direction::Down, f).unwrap()
    }

    fn hold_acks(&self, hold: bool) {
        let now = self.table.now;
        self.network.edit(self.network.links()[0], Direction::Up, |net| {
            if hold {
                net.set_filter(Some(Box::new(|_, _| Fate::Hold)));
            } else {
                net.set_filter(None);
                net.release_held(now);
            }
        });
    }

    fn write(&mut self, v: Option<i32>, count: Option<u32>) {
        let entity = self.entity;
        self.table.run(|seat, world, _| {
            if seat == 0 {
                if let Some(v) = v {
                    *world.get::<&mut Pair>(entity).unwrap() = pair(v);
                }
                if let Some(n) = count {
                    world.get::<&mut Count>(entity).unwrap().0 = n;
                }
            }
        });
    }

    fn release(&self) {
        let now = self.table.now;
        self.down(|net| net.release_held(now));
    }

    fn shown(&mut self) -> (Pair, u32) {
        let guest = self.table.seat(1);
        let copy = guest.find(self.net).unwrap();
        (*guest.world.get::<&Pair>(copy).unwrap(), guest.world.get::<&Count>(copy).unwrap().0)
    }

    /// Frames in which what is shown must be one of these, and belong together.
    fn watch(&mut self, frames: u32, held: &[i32]) -> Vec<i32> {
        let mut seen = Vec::new();
        for _ in 0..frames {
            self.table.rest(1);
            let (shown, _) = self.shown();
            assert_eq!(shown, pair(shown.a), "SEED={}: a mixture", self.seed);
            assert!(held.contains(&shown.a), "SEED={}: shows {shown:?}, held were {held:?}", self.seed);
            if seen.last() != Some(&shown.a) {
                seen.push(shown.a);
            }
        }
        seen
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrival {
    Straight,
    Reversed,
    SecondOnly,
    AtOnce,
}

#[test]
fn two_versions_on_one_base_arrive_in_any_order() {
    for seed in seeds(10) {
        for order in [Arrival::Straight, Arrival::Reversed, Arrival::SecondOnly, Arrival::AtOnce] {
            let mut scene = Scene::new(seed);
            scene.hold_acks(true);
            match order {
                Arrival::Straight => {}
                Arrival::Reversed => scene.down(|net| net.hold_next(1)),
                Arrival::SecondOnly => scene.down(|net| net.drop_next(1)),
                Arrival::AtOnce => scene.down(|net| net.hold_next(2)),
            }
            scene.write(Some(3), Some(3));
            scene.write(Some(5), Some(5));
            let mut seen = scene.watch(5, &[1, 3, 5]);
            scene.release();
            seen.extend(scene.watch(3, &[1, 3, 5]));
            seen.dedup();
            let expected: &[i32] = if order == Arrival::Straight { &[1, 3, 5] } else { &[1, 5] };
            assert_eq!(seen, expected, "SEED={seed} {order:?}");
            scene.hold_acks(false);
            scene.write(Some(7), Some(7));
            assert_eq!(scene.watch(30, &[5, 7]).last(), Some(&7), "SEED={seed} {order:?}");
            assert_eq!(scene.shown(), (pair(7), 7), "SEED={seed} {order:?}");
            assert_settles(&mut scene.table, 1);
            assert_clean(&mut scene.table);
        }
    }
}

/// Two components of one entity; the packets with the one and with the other are lost in turn, acknowledgements at random.
#[test]
fn two_components_lose_their_packets_in_turn() {
    for seed in seeds(20) {
        let mut rng = Rng::new(seed);
        let mut scene = Scene::new(seed);
        let mut held = vec![1];
        for round in 0..200i32 {
            let v = 1 + (round * 7919 + rng.below(1000) as i32) % 50_000;
            let first = round % 2 == 0;
            // the packet with the pair is lost in every fourth round, the one with the count two rounds later
            let lost = round % 4 == 0 || round % 4 == 3;
            if rng.chance(20) {
                scene.hold_acks(rng.chance(50));
            }
            scene.down(|net| net.drop_next(u64::from(lost)));
            if first {
                held.push(v);
            }
            scene.write(first.then_some(v), (!first).then_some(v as u32));
            scene.down(|net| net.drop_next(0));
            for _ in 0..rng.below(3) {
                scene.watch(1, &held);
            }
        }
        scene.hold_acks(false);
        scene.write(Some(7), Some(7));
        held.push(7);
        scene.watch(60, &held);
        assert_eq!(scene.shown(), (pair(7), 7), "SEED={seed}");
        assert_settles(&mut scene.table, 1);
        assert_clean(&mut scene.table);
    }
}

/// No acknowledgement for longer than the history remembers: values go out whole, and are understood at once.
#[test]
fn a_base_that_is_too_old_is_not_used() {
    for seed in seeds(10) {
        for deaf in [false, true] {
            let mut scene = Scene::new(seed);
            scene.hold_acks(true);
            let mut held = vec![1];
            if deaf {
                // nothing arrives either, so that both histories have passed the base
                scene.down(|net| net.set_filter(Some(Box::new(|_, _| Fate::Drop))));
            }
            for v in 2..150 {
                scene.write(Some(v), Some(v as u32));
                held.push(v);
                let (shown, _) = scene.shown();
                assert!(held.contains(&shown.a) && shown == pair(shown.a), "SEED={seed}: {shown:?}");
            }
            scene.down(|net| net.set_filter(None));
            scene.write(Some(777), Some(777));
            // half a round trip and a frame later it is there: nobody had to complain first
            let frames = Duration::from_millis(50).as_nanos().div_ceil(scene.table.frame.as_nanos()) as u32;
            scene.table.rest(frames);
            assert_eq!(scene.shown(), (pair(777), 777), "SEED={seed} deaf {deaf}: not understood at once");
            let useless = scene.table.seat(1).peer.stats(tidelock::PeerId::HOST).unwrap().link.useless;
            assert_eq!(useless, 0, "SEED={seed} deaf {deaf}");
            scene.hold_acks(false);
            scene.write(Some(7), Some(7));
            scene.table.rest(30);
            assert_eq!(scene.shown(), (pair(7), 7), "SEED={seed} deaf {deaf}");
            assert_settles(&mut scene.table, 1);
            assert_clean(&mut scene.table);
        }
    }
}
