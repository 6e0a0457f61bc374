//! What a guest may spawn: names from leases that are renewed in time, rows up to a limit that is told at the call.

mod common;

use common::{Crate, Health, Player, Position, Tag, assert_settles, table, weather};
use hecs::Entity;
use tidelock::policy::{Host, Owner};
use tidelock::testing::Table;
use tidelock::{News, PeerId, Schema, UsageError};
use tidelock_loopback::Network;

fn at(x: f32, y: f32) -> Position {
    Position { x, y }
}

/// The welcome brings names: a guest spawns in the very frame in which it is admitted, before its first step and in it.
#[test]
fn a_guest_spawns_in_its_first_frame() {
    for seed in 1..=10 {
        let network = Network::new(seed);
        let mut table = Table::new(seed, &common::schema(), common::config(), network.host()).unwrap();
        let conditions = weather(40, 0.2);
        table.join(common::config(), network.join(conditions, conditions)).unwrap();
        table.seat(1).stalled_until = std::time::Duration::MAX;
        let mut spawned = None;
        for _ in 0..600 {
            table.rest(1);
            let now = table.now;
            let guest = table.seat(1);
            guest.peer.receive(now, &mut guest.world).unwrap();
            let early = guest.peer.spawn(&mut guest.world, Player, (at(1.0, 2.0),));
            if guest.peer.is_in_session() {
                let told = std::iter::from_fn(|| guest.peer.poll_news()).any(|news| matches!(news, News::Admitted { .. }));
                assert!(told, "SEED={seed}: the first frame of all");
                let mut in_step = None;
                while let Some(mut step) = guest.peer.next_step(&mut guest.world) {
                    in_step.get_or_insert_with(|| step.spawn(&mut guest.world, Player, (at(3.0, 4.0),)));
                }
                spawned = Some((early, in_step));
            } else {
                assert!(matches!(early, Err(UsageError::NotInSession(_))), "SEED={seed}: {early:?}");
            }
            guest.peer.send(now, &mut guest.world).unwrap();
            if spawned.is_some() {
                break;
            }
        }
        let (early, in_step) = spawned.expect("it comes in");
        assert!(early.is_ok() && in_step.is_none_or(|spawned| spawned.is_ok()), "SEED={seed}: {early:?}");
        table.seat(1).stalled_until = std::time::Duration::ZERO;
        assert_settles(&mut table, 20);
        assert!(table.seat(0).peer.entity_count() >= 1, "SEED={seed}");
    }
}

/// Nothing of such an entity would travel from the guest, so that nobody would ever hear of it.
#[test]
fn an_entity_of_which_its_owner_decides_nothing_is_refused_at_a_guest() {
    let schema = Schema::builder("nothing")
        .component::<Health>("health", |c| c.authority(Host::default()))
        .kind::<Player>("player", Owner::default())
        .build()
        .unwrap();
    let (mut table, _network) = common::table_of(6, &schema, 1, weather(10, 0.0), &common::config());
    let guest = table.seat(1);
    let refused = guest.peer.spawn(&mut guest.world, Player, (Health(5),));
    assert_eq!(refused, Err(UsageError::NothingOfIts("player".into())));
    let local = guest.world.spawn((Player, Health(5)));
    assert_eq!(guest.peer.publish(&mut guest.world, local), Err(UsageError::NothingOfIts("player".into())));
    let mut in_step = 0;
    table.run(|seat, world, step| {
        if seat == 1 {
            assert_eq!(step.spawn(world, Player, (Health(5),)), Err(UsageError::NothingOfIts("player".into())));
            in_step += 1;
        }
    });
    assert!(in_step > 0);
    assert_eq!(table.seat(1).peer.entity_count(), 0, "nothing is left of what was refused");
    // as the error says: the host spawns it and grants it
    let (host, guest) = (table.seat(0), PeerId(1));
    let entity = host.peer.spawn(&mut host.world, Player, (Health(5),)).unwrap();
    host.peer.grant(&mut host.world, entity, 0, guest).unwrap();
    let net = host.peer.name_of(&host.world, entity).unwrap();
    assert_settles(&mut table, 5);
    let guest = table.seat(1);
    let copy = guest.find(net).unwrap();
    assert!(guest.peer.is_owner(&guest.world, copy));
    // and one component without fields that its owner decides is enough for others to hear of it
    let schema = Schema::builder("something")
        .component::<Health>("health", |c| c.authority(Host::default()))
        .component::<Tag>("tag", |c| c)
        .kind::<Player>("player", Owner::default())
        .build()
        .unwrap();
    let (mut table, _network) = common::table_of(7, &schema, 2, weather(10, 0.0), &common::config());
    let guest = table.seat(1);
    let entity = guest.peer.spawn(&mut guest.world, Player, ()).unwrap();
    let net = guest.peer.name_of(&guest.world, entity).unwrap();
    assert_settles(&mut table, 5);
    assert!([0, 2].iter().all(|seat| table.seat(*seat).find(net).is_some()), "others hear of it, without a component too");
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
