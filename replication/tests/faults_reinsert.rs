//! Remove and insert: what it means, at home and elsewhere. News are about states that were captured, not about calls.

mod common;

use common::{Rng, assert_clean, assert_settles, config, seeds, table_of, weather};
use hecs::{Entity, World};
use tidelock::policy::{Host, Owner};
use tidelock::testing::{Seat, Table};
use tidelock::{Config, NetId, News, Replicate, Schema, Step};
use tidelock_loopback::{Conditions, Direction, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct State(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Badge;
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Bond {
    target: Entity,
}
#[derive(Clone, Copy, Default)]
struct Thing;
#[derive(Clone, Copy, Default)]
struct Pawn;

fn schema() -> Schema {
    Schema::builder("reinsertion")
        .component::<State>("state", |c| c.notify_changes())
        .component::<Badge>("badge", |c| c.notify_changes())
        .component::<Bond>("bond", |c| c.notify_changes())
        .kind::<Thing>("thing", Host::default())
        .kind::<Pawn>("pawn", Owner::default())
        .build()
        .unwrap()
}

/// A listen server: the host's own view is told like a guest's.
fn table(seed: u64, weather: Conditions) -> (Table, Network) {
    table_of(seed, &schema(), 1, weather, &Config { local_news: true, ..config() })
}

/// (removed, added, changed) of all components of an entity since the last call.
fn counts(seat: &mut Seat, net: NetId) -> (u32, u32, u32) {
    let mine = seat.find(net);
    let mut n = (0, 0, 0);
    for news in seat.take_news() {
        match news {
            News::Removed { entity, .. } if Some(entity) == mine => n.0 += 1,
            News::Added { entity, .. } if Some(entity) == mine => n.1 += 1,
            News::Changed { entity, .. } if Some(entity) == mine => n.2 += 1,
            _ => {}
        }
    }
    n
}

fn value(seat: &Seat, net: NetId) -> Option<u32> {
    let entity = seat.find(net).unwrap();
    seat.world.get::<&State>(entity).ok().map(|s| s.0)
}

struct Scene {
    table: Table,
    network: Network,
    entity: Entity,
    net: NetId,
}

impl Scene {
    fn new(seed: u64, first: Option<State>) -> Self {
        let (mut table, network) = table(seed, weather(50, 0.0));
        let mut entity = Entity::DANGLING;
        table.run(|seat, world, step| {
            if seat == 0 {
                entity = step.spawn(world, Thing, ()).unwrap();
                if let Some(state) = first {
                    world.insert_one(entity, state).unwrap();
                }
            }
        });
        table.rest(60);
        let host = table.seat(0);
        let net = host.peer.name_of(&host.world, entity).unwrap();
        for seat in [0, 1] {
            assert_eq!(counts(table.seat(seat), net), (0, 0, 0), "SEED={seed} seat {seat}: all came with the spawn");
        }
        Self { table, network, entity, net }
    }

    /// Does something to the entity in one tick of the host.
    fn act(&mut self, f: impl Fn(&mut World, Entity)) {
        let entity = self.entity;
        self.table.run(|seat, world, _| {
            if seat == 0 {
                f(world, entity)
            }
        });
    }

    /// After settling: the same value and the same numbers at home and at the guest.
    fn expect(&mut self, state: Option<u32>, numbers: (u32, u32, u32)) {
        self.expect_apart(state, [numbers; 2]);
    }

    /// The same value, and these numbers at home and at the guest.
    fn expect_apart(&mut self, state: Option<u32>, numbers: [(u32, u32, u32); 2]) {
        let seed = self.table.seed;
        self.table.rest(60);
        for seat in [0, 1] {
            let place = self.table.seat(seat);
            assert_eq!(value(place, self.net), state, "SEED={seed} seat {seat}");
            assert_eq!(counts(place, self.net), numbers[seat], "SEED={seed} seat {seat}: removed, added, changed");
        }
        assert_settles(&mut self.table, 1);
        assert_clean(&mut self.table);
    }
}

#[test]
fn remove_and_insert_in_one_tick_is_one_change() {
    for seed in seeds(10) {
        let mut scene = Scene::new(seed, Some(State(1)));
        scene.act(|world, e| {
            world.remove_one::<State>(e).unwrap();
            world.insert_one(e, State(2)).unwrap();
        });
        scene.expect(Some(2), (0, 0, 1));
        // the same value: no change at all
        scene.act(|world, e| {
            world.remove_one::<State>(e).unwrap();
            world.insert_one(e, State(2)).unwrap();
        });
        scene.expect(Some(2), (0, 0, 0));
        // with another component that comes in the same tick: the entity is of another shape
        scene.act(|world, e| {
            world.remove_one::<State>(e).unwrap();
            world.insert(e, (State(3), Badge)).unwrap();
        });
        scene.expect(Some(3), (0, 1, 1));
        scene.act(|world, e| {
            world.remove::<(State, Badge)>(e).unwrap();
            world.insert_one(e, State(4)).unwrap();
        });
        scene.expect(Some(4), (1, 0, 1));
    }
}

#[test]
fn insert_and_remove_in_one_tick_is_nothing() {
    for seed in seeds(10) {
        let mut scene = Scene::new(seed, None);
        scene.act(|world, e| {
            world.insert_one(e, State(1)).unwrap();
            world.remove_one::<State>(e).unwrap();
        });
        scene.expect(None, (0, 0, 0));
        // the same with an entity
        let before = scene.table.seat(0).peer.entity_count();
        scene.table.run(|seat, world, step| {
            if seat == 0 {
                let by_step = step.spawn(world, Thing, (State(1),)).unwrap();
                let by_hand = step.spawn(world, Thing, (State(1),)).unwrap();
                step.despawn(world, by_step).unwrap();
                world.despawn(by_hand).unwrap();
            }
        });
        scene.table.rest(60);
        for seat in [0, 1] {
            let place = scene.table.seat(seat);
            let news = place.take_news();
            assert!(news.is_empty(), "SEED={seed} seat {seat}: {news:?}");
            assert_eq!(place.peer.entity_count(), before, "SEED={seed} seat {seat}");
        }
    }
}

/// Two captures, two states. `lose`: the packet with the removal is lost.
#[test]
fn remove_and_insert_in_two_ticks_is_both() {
    for seed in seeds(10) {
        for lose in [false, true] {
            for again in [2, 1] {
                let mut scene = Scene::new(seed, Some(State(1)));
                let link = scene.network.links()[0];
                scene.network.edit(link, Direction::Down, |net| net.drop_next(u64::from(lose)));
                scene.act(|world, e| {
                    world.remove_one::<State>(e).unwrap();
                });
                scene.act(|world, e| world.insert_one(e, State(again)).unwrap());
                // what was lost was never a state here: what is told is what the newest state differs in
                let away = if lose { (0, 0, u32::from(again != 1)) } else { (1, 1, 0) };
                scene.expect_apart(Some(again), [(1, 1, 0), away]);
            }
        }
    }
}

/// Components and entities come and go at random, one call a tick and none lost: home and guest are told the same.
#[test]
fn home_and_guest_are_told_the_same() {
    for seed in seeds(20) {
        let mut rng = Rng::new(seed);
        let (mut table, _network) = table(seed, weather(50, 0.0));
        table.rest(30);
        for seat in [0, 1] {
            table.seat(seat).take_news();
        }
        for _ in 0..300 {
            table.run(|seat, world, step| meddle(seat, world, step, &mut rng));
        }
        assert_settles(&mut table, 2);
        table.rest(30);
        let home = stories(table.seat(0));
        let away = stories(table.seat(1));
        for (net, told) in &home {
            assert_eq!(away.get(net), Some(told), "SEED={seed} {net}");
        }
        assert_eq!(home.len(), away.len(), "SEED={seed}");
        assert_clean(&mut table);
    }
}

/// What one peer was told, by entity, in order: what it is called at home and here differs, so names are put in.
fn stories(seat: &mut Seat) -> std::collections::BTreeMap<NetId, Vec<String>> {
    let mut names = std::collections::HashMap::new();
    let mut out: std::collections::BTreeMap<NetId, Vec<String>> = std::collections::BTreeMap::new();
    for news in seat.take_news() {
        let (entity, told) = match news {
            News::Spawned { entity, net, kind } => {
                names.insert(entity, net);
                (entity, format!("spawned {kind}"))
            }
            News::Despawned { entity, .. } => (entity, "despawned".into()),
            News::Added { entity, component } => (entity, format!("added {component}")),
            News::Removed { entity, component } => (entity, format!("removed {component}")),
            News::Changed { entity, component } => (entity, format!("changed {component}")),
            _ => continue,
        };
        out.entry(names[&entity]).or_default().push(told);
    }
    out
}

/// The host meddles with its things in each tick, some of them doing several things at once.
fn meddle(seat: usize, world: &mut World, step: &mut Step<'_>, rng: &mut Rng) {
    if seat != 0 {
        return;
    }
    let mine: Vec<Entity> = step.query::<(Entity, &Thing)>(world).iter().map(|(e, _)| e).collect();
    if mine.len() < 8 {
        step.spawn(world, Thing, (State(rng.below(5) as u32),)).unwrap();
    }
    let Some(&entity) = mine.get(rng.below(mine.len().max(1) as u64) as usize) else { return };
    for _ in 0..1 + rng.below(3) {
        match rng.below(8) {
            0 => drop(world.insert_one(entity, Badge)),
            1 => drop(world.remove_one::<Badge>(entity)),
            2 | 3 => drop(world.insert_one(entity, State(rng.below(5) as u32))),
            4 => drop(world.remove_one::<State>(entity)),
            5 => {
                let _ = world.remove_one::<State>(entity);
                drop(world.insert_one(entity, State(rng.below(5) as u32)));
            }
            6 if rng.chance(30) => {
                if rng.chance(50) {
                    step.despawn(world, entity).unwrap();
                } else {
                    world.despawn(entity).unwrap();
                }
                return;
            }
            _ => {}
        }
    }
}

/// A listen server is told once of what its guest does.
#[test]
fn the_host_is_told_once_of_a_guests_entity() {
    for seed in seeds(10) {
        let (mut table, _network) = table(seed, weather(50, 0.0));
        table.rest(30);
        for seat in [0, 1] {
            table.seat(seat).take_news();
        }
        let mut pawn = Entity::DANGLING;
        for tick in 0..100 {
            table.run(|seat, world, step| match (seat, tick) {
                (1, 0) => pawn = step.spawn(world, Pawn, (State(1),)).unwrap(),
                (1, 20) => world.insert_one(pawn, Badge).unwrap(),
                (1, 40) => drop(world.remove_one::<Badge>(pawn).unwrap()),
                (1, 60) => world.get::<&mut State>(pawn).unwrap().0 = 2,
                (1, 80) => step.despawn(world, pawn).unwrap(),
                _ => {}
            });
        }
        table.rest(30);
        let told = stories(table.seat(0));
        let told = told.values().next().unwrap_or_else(|| panic!("SEED={seed}: told nothing"));
        assert_eq!(told, &["spawned pawn", "added badge", "removed badge", "changed state", "despawned"], "SEED={seed}");
    }
}
