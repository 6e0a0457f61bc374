//! References to entities that are not here yet, or never will be.

mod common;

use common::{Crate, Link, Position, Rng, assert_clean, assert_settles, config, schema, seeds, table, table_of, weather};
use hecs::{Entity, World};
use tidelock::testing::{Seat, Table};
use tidelock::{Config, NetId, News};
use tidelock_loopback::Direction;

const AT: Position = Position { x: 1.0, y: 1.0 };

fn name(table: &mut Table, entity: Entity) -> NetId {
    let host = table.seat(0);
    host.peer.name_of(&host.world, entity).unwrap()
}

/// Does the link name what it should, or is it absent? Says whether it is there.
fn link_is_right(seat: &Seat, whose: NetId, target: NetId, seed: u64) -> bool {
    let Some(entity) = seat.find(whose) else { return false };
    let Ok(link) = seat.world.get::<&Link>(entity) else { return false };
    assert_eq!(Some(link.target), seat.find(target), "SEED={seed}: {whose} names something else than {target}");
    true
}

fn told(seat: &Seat, entity: Option<Entity>, component: &str) -> (usize, usize, usize) {
    let (mut added, mut changed, mut removed) = (0, 0, 0);
    for n in &seat.news {
        match n {
            News::Added { entity: e, component: c } if Some(*e) == entity && c == component => added += 1,
            News::Changed { entity: e, component: c } if Some(*e) == entity && c == component => changed += 1,
            News::Removed { entity: e, component: c } if Some(*e) == entity && c == component => removed += 1,
            _ => {}
        }
    }
    (added, changed, removed)
}

fn spawn_crate(world: &mut World, step: &mut tidelock::Step<'_>) -> Entity {
    step.spawn(world, Crate, (AT,)).unwrap()
}

#[test]
fn a_reference_waits_for_its_target() {
    for seed in seeds(10) {
        let (mut table, network) = table(seed, 1, weather(100, 0.0));
        let link = network.links()[0];
        let (mut a, mut b) = (Entity::DANGLING, Entity::DANGLING);
        table.rest(30);
        network.edit(link, Direction::Down, |net| net.hold_next(1));
        table.run(|seat, world, step| {
            if seat == 0 {
                a = spawn_crate(world, step)
            }
        });
        network.edit(link, Direction::Down, |net| net.hold_next(0));
        table.run(|seat, world, step| {
            if seat == 0 {
                b = step.spawn(world, Crate, (AT, Link { target: a })).unwrap();
            }
        });
        let (a, b) = (name(&mut table, a), name(&mut table, b));
        let mut came_without = false;
        for _ in 0..9 {
            table.rest(1);
            assert!(table.seat(1).find(a).is_none(), "SEED={seed}: its packet is held");
            assert!(!link_is_right(table.seat(1), b, a, seed), "SEED={seed}: it names what is not here");
            came_without |= table.seat(1).find(b).is_some();
        }
        assert!(came_without, "SEED={seed}: B does not wait for A, its link does");
        assert_eq!(table.seat(1).peer.waiting_references(), 1, "SEED={seed}");
        let now = table.now;
        assert_eq!(network.edit(link, Direction::Down, |net| net.release_held(now)), Some(1), "SEED={seed}");
        table.rest(1);
        assert!(table.seat(1).find(a).is_some(), "SEED={seed}");
        assert!(link_is_right(table.seat(1), b, a, seed), "SEED={seed}: not resolved in the tick in which A came");
        table.rest(60);
        let entity = table.seat(1).find(b);
        assert_eq!(told(table.seat(1), entity, "link"), (1, 0, 0), "SEED={seed}: told once, when it is resolved");
        assert_eq!(table.seat(1).peer.waiting_references(), 0, "SEED={seed}");
        assert_settles(&mut table, 2);
        assert_clean(&mut table);
    }
}

/// 200 entities, each naming another one, in shuffled order, to a guest that joins late and is told of them a kilobyte at a time.
#[test]
fn a_late_guest_resolves_two_hundred_references() {
    for seed in seeds(10) {
        let mut rng = Rng::new(seed);
        let thrifty = Config { bandwidth: 600_000, ..config() };
        let (mut table, network) = table_of(seed, &schema(), 1, weather(50, 0.05), &thrifty);
        let mut crates = Vec::new();
        table.run(|seat, world, step| {
            if seat == 0 {
                crates = (0..200).map(|_| spawn_crate(world, step)).collect();
            }
        });
        let mut targets = crates.clone();
        for i in (1..targets.len()).rev() {
            targets.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for (whose, target) in crates.iter().zip(&targets) {
            table.seat(0).world.insert_one(*whose, Link { target: *target }).unwrap();
        }
        let pairs: Vec<_> = crates.iter().zip(&targets).map(|(w, t)| (name(&mut table, *w), name(&mut table, *t))).collect();
        table.rest(30);
        let late = table.join(thrifty, network.join(weather(50, 0.05), weather(50, 0.05))).unwrap();
        let mut partial = false;
        for _ in 0..300 {
            table.rest(1);
            let right = pairs.iter().filter(|(w, t)| link_is_right(table.seats[late].as_ref().unwrap(), *w, *t, seed)).count();
            partial |= 0 < right && right < 200;
        }
        assert!(partial, "SEED={seed}: all came at once, so that nothing was tested");
        assert_settles(&mut table, 2);
        let seat = table.seat(late);
        assert!(pairs.iter().all(|(w, t)| link_is_right(seat, *w, *t, seed)), "SEED={seed}");
        assert_eq!(seat.peer.waiting_references(), 0, "SEED={seed}");
        for (whose, _) in &pairs {
            let (added, changed, removed) = told(seat, seat.find(*whose), "link");
            assert!(added <= 1 && changed == 0 && removed == 0, "SEED={seed}: {whose} {added} {changed} {removed}");
        }
        assert_clean(&mut table);
    }
}

/// A target that nobody was ever told of is none: a component that needs one is absent, and nothing waits.
#[test]
fn a_target_that_was_never_sent_is_none() {
    for seed in seeds(10) {
        let (mut table, _network) = table(seed, 1, weather(100, 0.0));
        let mut b = Entity::DANGLING;
        table.run(|seat, world, step| {
            if seat == 0 {
                let a = spawn_crate(world, step);
                b = step.spawn(world, Crate, (AT, Link { target: a })).unwrap();
                step.despawn(world, a).unwrap();
            }
        });
        let b = name(&mut table, b);
        table.rest(60);
        let seat = table.seat(1);
        let copy = seat.find(b).unwrap_or_else(|| panic!("SEED={seed}: B did not come"));
        assert!(seat.world.get::<&Link>(copy).is_err(), "SEED={seed}: it names nothing, so it is absent");
        assert_eq!(seat.peer.waiting_references(), 0, "SEED={seed}: nothing can come of waiting");
        assert_eq!(table.seat(0).peer.waiting_references(), 0, "SEED={seed}");
        assert_settles(&mut table, 2);
        assert_clean(&mut table);
    }
}

/// The same with a target whose spawn and despawn are both on their way, in either order of packets.
#[test]
fn a_target_that_dies_on_the_way_is_none() {
    for seed in seeds(10) {
        let (mut table, network) = table(seed, 1, weather(100, 0.0));
        let link = network.links()[0];
        let (mut a, mut b) = (Entity::DANGLING, Entity::DANGLING);
        network.edit(link, Direction::Down, |net| net.hold_next(1));
        table.run(|seat, world, step| {
            if seat == 0 {
                a = spawn_crate(world, step)
            }
        });
        table.run(|seat, world, step| {
            if seat == 0 {
                b = step.spawn(world, Crate, (AT, Link { target: a })).unwrap();
            }
        });
        table.run(|seat, world, step| {
            if seat == 0 {
                step.despawn(world, a).unwrap()
            }
        });
        let b = name(&mut table, b);
        table.rest(20);
        let now = table.now;
        network.edit(link, Direction::Down, |net| net.release_held(now));
        table.rest(60);
        let seat = table.seat(1);
        let copy = seat.find(b).unwrap_or_else(|| panic!("SEED={seed}: B did not come"));
        assert!(seat.world.get::<&Link>(copy).is_err(), "SEED={seed}");
        assert_eq!(seat.peer.entity_count(), 1, "SEED={seed}: A came back from the dead");
        assert_eq!(seat.peer.waiting_references(), 0, "SEED={seed}");
        assert_settles(&mut table, 2);
        assert_clean(&mut table);
    }
}

#[test]
fn a_cycle_resolves() {
    for seed in seeds(10) {
        for apart in [false, true] {
            let (mut table, network) = table(seed, 1, weather(100, 0.0));
            let link = network.links()[0];
            let (mut a, mut b) = (Entity::DANGLING, Entity::DANGLING);
            table.run(|seat, world, step| {
                if seat == 0 {
                    a = spawn_crate(world, step)
                }
            });
            if apart {
                // A is sent again with its link, while its own spawn is held
                network.edit(link, Direction::Down, |net| net.hold_next(1));
                table.rest(1);
            }
            table.run(|seat, world, step| {
                if seat == 0 {
                    b = step.spawn(world, Crate, (AT, Link { target: a })).unwrap();
                    world.insert_one(a, Link { target: b }).unwrap();
                }
            });
            let (a, b) = (name(&mut table, a), name(&mut table, b));
            for _ in 0..30 {
                table.rest(1);
                link_is_right(table.seat(1), a, b, seed);
                link_is_right(table.seat(1), b, a, seed);
            }
            let now = table.now;
            network.edit(link, Direction::Down, |net| net.release_held(now));
            table.rest(60);
            assert!(link_is_right(table.seat(1), a, b, seed), "SEED={seed} apart {apart}");
            assert!(link_is_right(table.seat(1), b, a, seed), "SEED={seed} apart {apart}");
            assert_eq!(table.seat(1).peer.waiting_references(), 0, "SEED={seed}");
            assert_settles(&mut table, 2);
            assert_clean(&mut table);
        }
    }
}
