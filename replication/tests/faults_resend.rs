//! What is sent again, and what is not: a change goes out once, a lost one again after its loss is known, a written sameness never.

mod common;

use common::{Crate, Health, Position, assert_clean, assert_settles, seeds, table, weather};
use hecs::Entity;
use tidelock::testing::Table;
use tidelock::{NetId, PeerStats};
use tidelock_loopback::{Direction, Network};

/// The round trip of 300 ms, in frames.
const RTT: u32 = 18;

fn quiet_table(seed: u64) -> (Table, Network, Entity, NetId) {
    let (mut table, network) = table(seed, 1, weather(150, 0.0));
    let mut entity = Entity::DANGLING;
    table.run(|seat, world, step| {
        if seat == 0 {
            entity = step.spawn(world, Crate, (Position { x: 0.0, y: 0.0 }, Health(1))).unwrap();
        }
    });
    table.rest(900); // until the round trip is well known
    let host = table.seat(0);
    let net = host.peer.name_of(&host.world, entity).unwrap();
    (table, network, entity, net)
}

fn stats(table: &mut Table) -> PeerStats {
    let guest = table.seat(1).peer.local();
    table.seat(0).peer.stats(guest).unwrap()
}

fn change(table: &mut Table, entity: Entity, value: u16) {
    table.run(|seat, world, _| {
        if seat == 0 {
            world.get::<&mut Health>(entity).unwrap().0 = value;
        }
    });
}

fn shown(table: &mut Table, net: NetId) -> u16 {
    let guest = table.seat(1);
    let copy = guest.find(net).unwrap();
    guest.world.get::<&Health>(copy).unwrap().0
}

#[test]
fn a_change_is_sent_once() {
    for seed in seeds(10) {
        let (mut table, _network, entity, net) = quiet_table(seed);
        let before = stats(&mut table).sent;
        change(&mut table, entity, 2);
        let first = stats(&mut table).sent;
        assert_eq!(first.rows - before.rows, 1, "SEED={seed}: one value, in the packet of its own tick");
        assert!(first.state_bytes > before.state_bytes, "SEED={seed}");
        table.rest(120);
        let after = stats(&mut table).sent;
        assert_eq!(shown(&mut table, net), 2, "SEED={seed}");
        assert_eq!((after.rows, after.state_bytes), (first.rows, first.state_bytes), "SEED={seed}: one packet carries it");
        assert_eq!(after.lost, before.lost, "SEED={seed}");
        assert_clean(&mut table);
    }
}

#[test]
fn a_lost_change_is_sent_again_once() {
    for seed in seeds(10) {
        let (mut table, network, entity, net) = quiet_table(seed);
        let before = stats(&mut table).sent;
        network.edit(network.links()[0], Direction::Down, |net| net.drop_next(1));
        change(&mut table, entity, 3);
        let mut waited = 0;
        while shown(&mut table, net) != 3 {
            table.rest(1);
            waited += 1;
            assert!(waited <= 2 * RTT + 1, "SEED={seed}: not there after {waited} frames, two round trips and a send");
        }
        table.rest(120);
        let after = stats(&mut table).sent;
        assert_eq!((after.rows - before.rows, after.lost - before.lost), (2, 1), "SEED={seed}: sent, lost, sent again");
        assert_settles(&mut table, 1);
        assert_clean(&mut table);
    }
}

#[test]
fn the_same_value_written_again_costs_nothing() {
    for seed in seeds(10) {
        let (mut table, _network, entity, net) = quiet_table(seed);
        change(&mut table, entity, 4);
        table.rest(60);
        let before = stats(&mut table).sent;
        for _ in 0..300 {
            table.run(|seat, world, _| {
                if seat == 0 {
                    let mut health = world.get::<&mut Health>(entity).unwrap();
                    health.0 = 5;
                    health.0 = 4;
                    let mut position = world.get::<&mut Position>(entity).unwrap();
                    position.x = 0.004; // below half a step of 0.01: the quantised value is the same
                }
            });
        }
        let after = stats(&mut table).sent;
        assert_eq!(after.rows, before.rows, "SEED={seed}");
        assert_eq!(after.state_bytes, before.state_bytes, "SEED={seed}: sameness was sent");
        assert_eq!(shown(&mut table, net), 4, "SEED={seed}");
        assert_settles(&mut table, 1);
        assert_clean(&mut table);
    }
}

/// The same with writes that begin while the change they repeat is not acknowledged yet, or is lost.
#[test]
fn sameness_before_the_acknowledgement_costs_nothing_either() {
    for seed in seeds(10) {
        for lost in [0, 1] {
            let (mut table, network, entity, net) = quiet_table(seed);
            let before = stats(&mut table).sent;
            network.edit(network.links()[0], Direction::Down, |net| net.drop_next(lost));
            for _ in 0..120 {
                change(&mut table, entity, 6);
            }
            let after = stats(&mut table).sent;
            assert_eq!(after.rows - before.rows, 1 + lost, "SEED={seed}");
            assert_eq!(shown(&mut table, net), 6, "SEED={seed}");
            assert_clean(&mut table);
        }
    }
}
