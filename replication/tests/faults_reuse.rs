//! Names and handles that outlive what they stood for: nothing late ever reaches what took its place.

mod common;

use common::{Crate, Health, Order, Position, assert_clean, assert_settles, config, schema, seeds, table, table_of, weather};
use hecs::Entity;
use std::collections::VecDeque;
use tidelock::{Config, NetId, News, PeerId, To};
use tidelock_loopback::Direction;

const AT: Position = Position { x: 1.0, y: 1.0 };
/// The tick at which the new entity takes the old one's place.
const SWAP: u32 = 100;

/// A guest orders something of X in every tick, and X goes away meanwhile.
#[test]
fn orders_for_the_dead_never_reach_who_took_their_slot() {
    for seed in seeds(10) {
        let (mut table, _network) = table(seed, 1, weather(200, 0.0));
        let (mut x, mut y) = (Entity::DANGLING, Entity::DANGLING);
        table.run(|seat, world, step| {
            if seat == 0 {
                x = step.spawn(world, Crate, (AT, Health(1))).unwrap();
            }
        });
        table.rest(40);
        let host = table.seat(0);
        let net = host.peer.name_of(&host.world, x).unwrap();
        let (mut sent, mut got, mut arrived_late) = (0u32, 0u32, false);
        let mut blind = 0;
        for tick in 1..=200 {
            if let Some(copy) = table.seat(1).find(net) {
                let seat = table.seat(1);
                sent += 1;
                seat.peer.send_message(&seat.world, To::Host, &Order { target: copy, number: sent }).unwrap();
            } else {
                blind += 1;
            }
            table.run(|seat, world, step| {
                if seat == 0 && tick == SWAP {
                    step.despawn(world, x).unwrap();
                    y = step.spawn(world, Crate, (AT, Health(7))).unwrap();
                }
            });
            for (from, order) in table.seat(0).peer.messages::<Order>().unwrap() {
                assert_ne!(from, PeerId::HOST);
                got += 1;
                assert_eq!(order.number, got, "SEED={seed}: in order and without a gap");
                assert_eq!(order.target, x, "SEED={seed} tick {tick}: an order reached another entity");
                arrived_late |= tick > SWAP;
            }
        }
        assert_eq!(x.id(), y.id(), "SEED={seed}: the slot was not used again, so that nothing was tested");
        assert!(blind > 50, "SEED={seed}: the guest never saw the despawn");
        table.rest(40);
        assert!(!arrived_late, "SEED={seed}: an order for the dead was handed out");
        let dropped = table.seat(0).take_news().iter().filter(|n| matches!(n, News::MessageDropped { .. })).count() as u32;
        let from = table.seat(1).peer.local();
        let counted = table.seat(0).peer.stats(from).unwrap().link.dropped_messages as u32;
        assert_eq!((got + dropped, dropped), (sent, counted), "SEED={seed}: every order is carried out or counted");
        assert!((20..=26).contains(&dropped), "SEED={seed}: {dropped} dropped, a round trip is 24 ticks");
        assert_eq!(table.seat(0).world.get::<&Health>(y).unwrap().0, 7, "SEED={seed}");
        assert_settles(&mut table, 2);
        assert_clean(&mut table);
    }
}

/// An order that names a dead entity holds up nobody's next one, even if its entity died before the order came.
#[test]
fn an_order_for_the_dead_holds_nobody_up() {
    for seed in seeds(5) {
        let (mut table, _network) = table(seed, 1, weather(100, 0.0));
        let (mut x, mut z) = (Entity::DANGLING, Entity::DANGLING);
        table.run(|seat, world, step| {
            if seat == 0 {
                x = step.spawn(world, Crate, (AT,)).unwrap();
                z = step.spawn(world, Crate, (AT,)).unwrap();
            }
        });
        table.rest(30);
        let host = table.seat(0);
        let names = [x, z].map(|e| host.peer.name_of(&host.world, e).unwrap());
        // straight out of the world, behind the framework's back
        host.world.despawn(x).unwrap();
        let guest = table.seat(1);
        for (i, net) in names.into_iter().enumerate() {
            let target = guest.find(net).unwrap();
            guest.peer.send_message(&guest.world, To::Host, &Order { target, number: i as u32 }).unwrap();
        }
        table.rest(8);
        let got: Vec<u32> = table.seat(0).peer.messages::<Order>().unwrap().iter().map(|o| o.1.number).collect();
        assert_eq!(got, [1], "SEED={seed}");
    }
}

/// A change of X that arrives after X's place was taken leaves Y alone.
#[test]
fn a_late_update_of_the_dead_leaves_the_new_alone() {
    for seed in seeds(10) {
        let (mut table, network) = table(seed, 1, weather(200, 0.0));
        let link = network.links()[0];
        let (mut x, mut y) = (Entity::DANGLING, Entity::DANGLING);
        table.run(|seat, world, step| {
            if seat == 0 {
                x = step.spawn(world, Crate, (AT, Health(1))).unwrap();
            }
        });
        table.rest(60);
        network.edit(link, Direction::Down, |net| net.hold_next(1));
        table.run(|seat, world, _| {
            if seat == 0 {
                world.get::<&mut Health>(x).unwrap().0 = 99;
            }
        });
        table.run(|seat, world, step| {
            if seat == 0 {
                step.despawn(world, x).unwrap();
                y = step.spawn(world, Crate, (AT, Health(7))).unwrap();
            }
        });
        let host = table.seat(0);
        let net = host.peer.name_of(&host.world, y).unwrap();
        let mut waits = 0;
        while table.seat(1).find(net).is_none() {
            table.rest(1);
            waits += 1;
            assert!(waits < 60, "SEED={seed}: Y never came");
        }
        let now = table.now;
        assert_eq!(network.edit(link, Direction::Down, |net| net.release_held(now)), Some(1), "SEED={seed}");
        for _ in 0..120 {
            table.rest(1);
            let guest = table.seat(1);
            let copy = guest.find(net).unwrap();
            assert_eq!(guest.world.get::<&Health>(copy).unwrap().0, 7, "SEED={seed}: Y took X's change");
            assert_eq!(guest.peer.entity_count(), 1, "SEED={seed}: X came back");
        }
        assert_settles(&mut table, 2);
        assert_clean(&mut table);
    }
}

/// One place taken 70 000 times: no old handle and no old name ever stands for what lives there now.
#[test]
fn seventy_thousand_lives_in_one_slot() {
    let seed = 1;
    let thrifty = Config { bandwidth: 600_000, ..config() };
    let (mut table, _network) = table_of(seed, &schema(), 1, weather(50, 0.0), &thrifty);
    let mut alive = Entity::DANGLING;
    table.run(|seat, world, step| {
        if seat == 0 {
            alive = step.spawn(world, Crate, (AT, Health(0))).unwrap();
        }
    });
    let slot = alive.id();
    let mut old: VecDeque<(Entity, NetId)> = VecDeque::new();
    let mut copies: VecDeque<Entity> = VecDeque::new();
    let (mut lives, mut newest, mut ticks) = (0u32, NetId::default(), 0u32);
    while lives < 70_000 {
        ticks += 1;
        let per_tick = if ticks % 3 == 0 { 1 } else { 150 };
        table.run(|seat, world, step| {
            for _ in 0..if seat == 0 { per_tick } else { 0 } {
                let net = step.peer().name_of(world, alive).unwrap();
                assert!(net > newest, "SEED={seed}: names are given once, in order");
                newest = net;
                old.push_back((alive, net));
                step.despawn(world, alive).unwrap();
                alive = step.spawn(world, Crate, (AT, Health(lives as u16))).unwrap();
                lives += 1;
            }
        });
        assert_eq!(alive.id(), slot, "SEED={seed}: the slot was not used again");
        while old.len() > 400 {
            old.pop_front();
        }
        let host = table.seat(0);
        for (entity, net) in &old {
            assert!(!host.world.contains(*entity), "SEED={seed} life {lives}: an old handle stands for something");
            assert_eq!(host.peer.entity_of(*net), None, "SEED={seed} life {lives}: an old name stands for something");
            assert_eq!(host.peer.name_of(&host.world, *entity), None, "SEED={seed} life {lives}");
        }
        let guest = table.seat(1);
        for copy in guest.world.query::<(Entity, &Position)>().iter().map(|(e, _)| e) {
            if copies.back() != Some(&copy) && !copies.contains(&copy) {
                copies.push_back(copy);
            }
        }
        let living = copies.iter().filter(|c| guest.world.contains(**c)).count();
        assert_eq!(living, guest.peer.entity_count(), "SEED={seed} life {lives}");
    }
    assert!(newest.0 > 65_536, "SEED={seed}");
    assert_settles(&mut table, 3);
    assert_eq!(table.seat(1).peer.entity_count(), 1, "SEED={seed}");
    assert_clean(&mut table);
}
