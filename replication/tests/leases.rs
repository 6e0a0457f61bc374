//! What a guest may spawn: names from leases that are renewed in time, rows up to a limit that is told at the call.

mod common;

use common::{Crate, Health, Player, Position, assert_settles, table, weather};
use hecs::Entity;
use tidelock::{PeerId, UsageError};

fn at(x: f32, y: f32) -> Position {
    Position { x, y }
}

/// One guest spawns and despawns 70 000 entities one after the other: more than a lease has names, and every row many times over.
#[test]
fn a_guest_uses_up_its_lease() {
    let (mut table, _network) = table(1, 1, weather(30, 0.05));
    let mut spawned = 0u32;
    let mut alive: Vec<Entity> = Vec::new();
    let mut waits = 0;
    while spawned < 70_000 {
        table.run(|seat, world, step| {
            if seat != 1 {
                return;
            }
            for entity in alive.drain(..alive.len().min(100)) {
                step.despawn(world, entity).unwrap();
            }
            for _ in 0..100 {
                match step.spawn(world, Player, (at(1.0, (spawned % 300) as f32),)) {
                    Ok(entity) => {
                        alive.push(entity);
                        spawned += 1;
                    }
                    Err(UsageError::NoNames) => waits += 1,
                    Err(error) => panic!("SEED=1: {error} after {spawned}"),
                }
            }
        });
        assert!(table.seat(1).peer.is_in_session(), "SEED=1 after {spawned}: {:?}", table.seat(1).peer.ended());
    }
    assert_settles(&mut table, 20);
    assert_eq!(waits, 0, "SEED=1: the lease was not renewed in time");
    assert_eq!(table.seat(0).peer.entity_count(), alive.len(), "SEED=1");
    let stats = table.seat(0).peer.stats(PeerId(1)).unwrap();
    assert_eq!(stats.link.refused, 0, "SEED=1");
}

/// The same with entities that live for less than a send: their names are never seen by the host.
#[test]
fn names_that_nobody_saw_are_used_up_as_well() {
    let (mut table, _network) = table(2, 1, weather(30, 0.05));
    let mut spawned = 0u32;
    while spawned < 300_000 {
        table.run(|seat, world, step| {
            for _ in 0..if seat == 1 { 200 } else { 0 } {
                match step.spawn(world, Player, (at(1.0, 1.0),)) {
                    Ok(entity) => step.despawn(world, entity).unwrap(),
                    Err(error) => panic!("SEED=2: {error} after {spawned}"),
                }
                spawned += 1;
            }
        });
        let seat = table.seat(1);
        assert!(seat.peer.is_in_session(), "SEED=2 after {spawned}: {:?}", seat.peer.ended());
    }
    assert_settles(&mut table, 10);
}

/// What others publish does not count against what a guest may spawn.
#[test]
fn a_guest_may_spawn_in_a_crowd() {
    let (mut table, _network) = table(3, 1, weather(10, 0.0));
    for i in 0..14_000 {
        let host = table.seat(0);
        host.peer.spawn(&mut host.world, Crate, (at((i % 400) as f32, 0.0), Health(1))).unwrap();
    }
    assert_settles(&mut table, 20);
    let guest = table.seat(1);
    guest.peer.spawn(&mut guest.world, Player, (at(1.0, 1.0),)).unwrap();
    assert_settles(&mut table, 20);
}

/// A guest that spawns more than it may has an error at the call, and stays.
#[test]
fn a_guest_that_spawns_too_much_is_told_at_the_call() {
    let (mut table, _network) = table(4, 1, weather(10, 0.0));
    let mut refused = 0;
    for _ in 0..200 {
        table.run(|seat, world, step| {
            for i in 0..if seat == 1 { 200 } else { 0 } {
                match step.spawn(world, Player, (at(1.0, i as f32),)) {
                    Ok(_) => {}
                    Err(UsageError::TooManyEntities) => refused += 1,
                    Err(error) => panic!("SEED=4: {error}"),
                }
            }
        });
        let seat = table.seat(1);
        assert!(seat.peer.is_in_session(), "SEED=4: {:?}", seat.peer.ended());
    }
    assert!(refused > 0, "SEED=4");
    assert_settles(&mut table, 60);
    // at the limit, the rows of those that went are not free at once
    for _ in 0..100 {
        table.run(|seat, world, step| {
            let mine: Vec<Entity> = step.query::<(Entity, &Player)>(world).iter().map(|(e, _)| e).take(300).collect();
            for entity in mine.into_iter().filter(|_| seat == 1) {
                step.despawn(world, entity).unwrap();
                while step.spawn(world, Player, (at(1.0, 2.0),)).is_ok() {}
            }
        });
        let seat = table.seat(1);
        assert!(seat.peer.is_in_session(), "SEED=4: {:?}", seat.peer.ended());
    }
    assert_settles(&mut table, 60);
}
