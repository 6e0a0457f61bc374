//! A stale world after a reconnect. What the framework promises today, and the game has to do: when a guest's session ends, the
//! copies of others' entities leave its world, and its own stay as local ones without marks. In the next session the game
//! publishes its own again, with `Peer::publish`, under a new name.

mod common;

use common::{Banner, Crate, Health, Player, Position, Tag, assert_settles, config, schema, table, weather};
use hecs::{Entity, World};
use tidelock::netcore::error::DisconnectReason;
use tidelock::testing::{Seat, Table};
use tidelock::{Networked, News, Simulated};
use tidelock_loopback::Network;

/// What both variants begin with, and what became of it.
struct Before {
    table: Table,
    network: Network,
    guest: usize,
    a: Entity,
    b: Entity,
    own: Entity,
}

fn at(x: f32) -> Position {
    Position { x, y: 0.0 }
}

fn xs<K: hecs::Component>(world: &World) -> Vec<f32> {
    let mut xs: Vec<f32> = world.query::<(&K, &Position)>().iter().map(|(_, p)| p.x).collect();
    xs.sort_by(f32::total_cmp);
    xs
}

/// The host holds A, B (with a tag) and C, guest 1 owns O, and all of them know it.
fn before(seed: u64) -> Before {
    let (mut table, network) = table(seed, 1, weather(40, 0.1));
    let guest = 1;
    let host = table.seat(0);
    let a = host.peer.spawn(&mut host.world, Crate, (at(1.0), Health(1))).unwrap();
    let b = host.peer.spawn(&mut host.world, Crate, (at(2.0), Health(2), Tag)).unwrap();
    host.peer.spawn(&mut host.world, Crate, (at(3.0), Health(3))).unwrap();
    let seat = table.seat(guest);
    let own = seat.peer.spawn(&mut seat.world, Player, (at(10.0), Banner { colour: 1 })).unwrap();
    table.rest(60);
    assert_settles(&mut table, 5);
    assert_eq!(xs::<Crate>(&table.seat(guest).world), [1.0, 2.0, 3.0], "SEED={seed}");
    assert_eq!(xs::<Player>(&table.seat(0).world), [10.0], "SEED={seed}");
    Before { table, network, guest, a, b, own }
}

/// Cuts the guest's link and lets the world of both sides go on without the other, until both have noticed.
fn separate(before: &mut Before, seed: u64) {
    let Before { table, network, guest, a, b, own } = before;
    let link = *network.links().last().unwrap();
    network.cut(link);
    let host = table.seat(0);
    host.peer.despawn(&mut host.world, *a).unwrap();
    host.world.remove_one::<Tag>(*b).unwrap();
    host.peer.spawn(&mut host.world, Crate, (at(4.0), Health(4))).unwrap();
    table.seat(*guest).world.get::<&mut Position>(*own).unwrap().x = 11.0;
    table.seat(*guest).take_news();
    for _ in 0..60 * 12 {
        table.rest(1);
    }
    let seat = table.seat(*guest);
    let news = seat.take_news();
    let timed_out = News::Disconnected { reason: DisconnectReason::TimedOut };
    assert!(news.contains(&timed_out), "SEED={seed}: {news:?}");
    assert_eq!(seat.peer.ended(), Some(&DisconnectReason::TimedOut), "SEED={seed}");
    assert_its_own_world(seat, *own, seed);
}

/// Others' entities are gone, its own is local.
fn assert_its_own_world(seat: &Seat, own: Entity, seed: u64) {
    assert_eq!(xs::<Crate>(&seat.world), [] as [f32; 0], "SEED={seed}: copies outlived their session");
    assert_eq!(seat.world.get::<&Position>(own).unwrap().x, 11.0, "SEED={seed}: its own value was lost");
    assert_eq!(seat.world.query::<&Networked>().iter().count(), 0, "SEED={seed}: a mark outlived its session");
    assert_eq!(seat.world.query::<&Simulated>().iter().count(), 0, "SEED={seed}: a mark outlived its session");
    assert_eq!(seat.peer.entity_count(), 0, "SEED={seed}");
    assert!(seat.peer.name_of(&seat.world, own).is_none(), "SEED={seed}");
}

/// Seats the old world at a new peer, admits it, and publishes what it owns.
fn reconnect(table: &mut Table, network: &Network, old: Seat, own: Entity, seed: u64) -> usize {
    let seat = table.join(config(), network.join(weather(40, 0.1), weather(40, 0.1))).unwrap();
    table.seat(seat).world = old.world;
    for _ in 0..600 {
        table.rest(1);
        if table.seat(seat).peer.is_in_session() {
            break;
        }
    }
    let s = table.seat(seat);
    assert!(s.peer.is_in_session(), "SEED={seed}: not admitted again");
    s.peer.publish(&mut s.world, own).unwrap();
    assert!(s.peer.publish(&mut s.world, own).is_err(), "SEED={seed}: published twice");
    table.rest(60);
    assert_settles(table, 10);
    seat
}

/// Case 16 (ii): after the session has expired on both sides.
#[test]
fn a_guest_comes_back_after_its_session_expired() {
    for seed in 1..=10 {
        let mut before = before(seed);
        separate(&mut before, seed);
        let Before { mut table, network, guest, b, own, .. } = before;
        assert_eq!(xs::<Player>(&table.seat(0).world), [] as [f32; 0], "SEED={seed}: an absent owner's player stays");
        let old = table.vanish(guest).unwrap();
        let seat = reconnect(&mut table, &network, old, own, seed);
        let s = table.seat(seat);
        assert_eq!(xs::<Crate>(&s.world), [2.0, 3.0, 4.0], "SEED={seed}: B, C and D once each");
        assert_eq!(s.world.query::<&Tag>().iter().count(), 0, "SEED={seed}: B's component was removed meanwhile");
        assert_eq!(xs::<Player>(&s.world), [11.0], "SEED={seed}");
        assert_eq!(xs::<Player>(&table.seat(0).world), [11.0], "SEED={seed}: one O, with the guest's value");

        let host = table.seat(0);
        host.world.get::<&mut Position>(b).unwrap().x = 2.5;
        host.world.get::<&mut Health>(b).unwrap().0 = 22;
        table.seat(seat).world.get::<&mut Position>(own).unwrap().x = 12.0;
        table.rest(60);
        assert_settles(&mut table, 10);
        assert_eq!(xs::<Crate>(&table.seat(seat).world), [2.5, 3.0, 4.0], "SEED={seed}: B's changes arrive");
        assert_eq!(xs::<Player>(&table.seat(0).world), [12.0], "SEED={seed}: O's changes arrive");
    }
}

/// Case 16 (iii): to another host.
#[test]
fn a_guest_goes_to_another_host() {
    for seed in 1..=10 {
        let mut before = before(seed);
        separate(&mut before, seed);
        let Before { mut table, guest, own, .. } = before;
        let old = table.vanish(guest).unwrap();
        let network = Network::new(seed + 1000);
        let mut other = Table::new(seed + 1000, &schema(), config(), network.host()).unwrap();
        other.now = table.now;
        let host = other.seat(0);
        host.peer.receive(table.now, &mut host.world).unwrap();
        host.peer.spawn(&mut host.world, Crate, (at(100.0), Health(9))).unwrap();
        let seat = reconnect(&mut other, &network, old, own, seed);
        let s = other.seat(seat);
        assert_eq!(xs::<Crate>(&s.world), [100.0], "SEED={seed}: something of the old host is left");
        assert_eq!(s.peer.entity_count(), 2, "SEED={seed}");
        assert_ne!(s.peer.session(), table.seat(0).peer.session(), "SEED={seed}: two sessions have one id");
        assert_eq!(xs::<Player>(&other.seat(0).world), [11.0], "SEED={seed}: O is published again");
        assert_eq!(xs::<Player>(&table.seat(0).world), [] as [f32; 0], "SEED={seed}: the old host still has O");
    }
}

/// The same when the host goes while its entities are on their way, some of them half here: nothing of them is left.
#[test]
fn a_host_that_ends_the_session_leaves_nothing_behind() {
    for seed in 1..=10 {
        let (mut table, _network) = table(seed, 1, weather(60, 0.3));
        let mut rng = common::Rng::new(seed);
        for _ in 0..40 {
            table.run(|seat, world, step| common::churn(seat, world, step, &mut rng));
        }
        let host = table.seat(0);
        host.peer.disconnect(&mut host.world, DisconnectReason::HostLeft);
        for _ in 0..60 {
            table.rest(1);
        }
        let seat = table.seat(1);
        assert_eq!(seat.peer.ended(), Some(&DisconnectReason::HostLeft), "SEED={seed}");
        assert_eq!(xs::<Crate>(&seat.world), [] as [f32; 0], "SEED={seed}: copies outlived their session");
        assert_eq!(seat.world.query::<&Networked>().iter().count(), 0, "SEED={seed}");
        assert_eq!(table.seat(0).world.query::<&Networked>().iter().count(), 0, "SEED={seed}");
        assert_eq!(table.seat(0).world.query::<&Player>().iter().count(), 0, "SEED={seed}: the host keeps others' entities");
    }
}
