//! Guests that no honest build can be, made of honest ones by writing into what they publish.

use crate::block::bits;
use crate::netid::NetId;
use crate::news::News;
use crate::policy::{Owner, Refusal};
use crate::presence::{Ownership, Presence};
use crate::testing::Table;
use crate::{Config, Peer, PeerId, Replicate, Schema};
use hecs::Entity;
use std::time::Duration;
use tidelock_loopback::{Conditions, Network};
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::tick::Tick;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Count(u16);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Target(Entity);

#[derive(Clone, Copy, Default)]
struct Pawn;

fn table(guests: usize, refusals: u32) -> Table {
    table_in(guests, refusals, Conditions { latency: Duration::from_millis(20), ..Conditions::default() })
}

fn table_in(guests: usize, refusals: u32, weather: Conditions) -> Table {
    let schema = Schema::builder("hostile")
        .component::<Count>("count", |c| c)
        .component::<Target>("target", |c| c)
        .kind::<Pawn>("pawn", Owner::default())
        .build()
        .unwrap();
    let network = Network::new(7);
    let config = Config { refusals, ..Config::default() };
    let mut table = Table::new(7, &schema, config.clone(), network.host()).unwrap();
    for _ in 0..guests {
        table.join(config.clone(), network.join(weather, weather)).unwrap();
    }
    table.rest(60);
    table
}

fn spawn(table: &mut Table, seat: usize) -> (Entity, NetId) {
    let seat = table.seat(seat);
    let entity = seat.peer.spawn(&mut seat.world, Pawn, (Count(1),)).unwrap();
    (entity, seat.peer.name_of(&seat.world, entity).unwrap())
}

fn out_row(peer: &Peer, net: NetId) -> usize {
    peer.entities.get(peer.entities.slot_of(net).unwrap()).unwrap().out_row as usize
}

#[test]
fn a_row_does_not_change_its_entity() {
    let mut table = table(2, 100);
    let (_, net) = spawn(&mut table, 1);
    table.rest(30);
    assert_eq!(table.seat(0).peer.entity_count(), 1);
    let liar = &mut table.seat(1).peer;
    let row = out_row(liar, net);
    let other = Presence { net: NetId(net.0 + 1), ..liar.publisher.presence(row) };
    let tick = liar.time.tick;
    liar.publisher.set_presence(row, &other, tick);
    liar.dirty = true;
    table.rest(30);
    let news = table.seat(0).take_news();
    let caught = |n: &News| matches!(n, News::Misbehaved { error: PeerError::OutOfOrder(_), .. });
    assert!(news.iter().any(caught), "{news:?}");
    assert_eq!(table.seat(1).peer.ended(), Some(&DisconnectReason::Malformed));
    assert_eq!(table.seat(0).peer.entity_count(), 0);
    assert!(table.seat(2).peer.is_in_session(), "somebody else paid for it");
}

/// Rows that name what another owns, under an ownership that was the host's once: no race explains them.
#[test]
fn who_never_owned_an_entity_is_not_late() {
    let mut table = table(2, 20);
    let host = table.seat(0);
    let entity = host.peer.spawn(&mut host.world, Pawn, (Count(1),)).unwrap();
    let net = host.peer.name_of(&host.world, entity).unwrap();
    host.peer.grant(&mut host.world, entity, 0, PeerId(2)).unwrap();
    table.rest(30);
    let (_, own) = spawn(&mut table, 1);
    table.rest(5);
    let liar = &mut table.seat(1).peer;
    let slot = liar.entities.slot_of(own).unwrap();
    let row = liar.publisher.bind(0, liar.local, slot).unwrap();
    liar.links[0].subscriber.follow(&liar.publisher);
    let owners = [Ownership { peer: PeerId::HOST, epoch: 0 }; crate::policy::OWNER_SLOTS];
    let lie = Presence { net, owners, ..liar.publisher.presence(out_row(liar, own)) };
    for c in bits(0b11) {
        liar.links[0].subscriber.want(c as usize, row, true);
    }
    liar.publisher.set_presence(row, &lie, Tick::ZERO);
    for n in 0..60u32 {
        if table.seat(1).peer.ended().is_some() {
            break;
        }
        let liar = &mut table.seat(1).peer;
        let tick = liar.time.tick;
        liar.publisher.set(1, row, &[n + 100], tick, false);
        liar.dirty = true;
        table.rest(1);
    }
    table.rest(30);
    let news = table.seat(0).take_news();
    assert!(news.iter().any(|n| matches!(n, News::Refused { refusal: Refusal::NotOwner, .. })), "{news:?}");
    assert_eq!(table.seat(1).peer.ended(), Some(&DisconnectReason::TooManyRefusals));
    assert_eq!(*table.seat(0).world.get::<&Count>(entity).unwrap(), Count(1));
}

/// Forces of two components of many rows, over and over between two packets, are remembered once.
#[test]
fn forces_do_not_pile_up() {
    let mut table = table(1, 100);
    let entities: Vec<NetId> = (0..300).map(|_| spawn(&mut table, 0).1).collect();
    table.rest(3);
    let host = &mut table.seat(0).peer;
    let rows: Vec<usize> = entities.iter().map(|net| out_row(host, *net)).collect();
    let tick = host.time.tick;
    assert_ne!(host.links[0].subscriber.floor(), host.links[0].subscriber.next_number(), "nothing is on its way");
    let before = host.links[0].subscriber.open_forces();
    for _ in 0..10 {
        rows.iter().for_each(|row| host.links[0].subscriber.force(*row, 0b11, tick));
    }
    // two components in five blocks of 64 rows
    assert_eq!(host.links[0].subscriber.open_forces() - before, 10);
}

/// What was shared with others and had to be changed for one goes back where it came from.
#[test]
fn lists_of_what_was_lost_do_not_pile_up() {
    let mut table = table_in(3, 100, Conditions { latency: Duration::from_millis(20), loss: 0.1, ..Conditions::default() });
    let all: Vec<Entity> = (0..400).map(|_| spawn(&mut table, 0).0).collect();
    table.rest(60);
    let mut most = [0; 2];
    for (n, most) in most.iter_mut().enumerate() {
        for tick in 0..400 {
            let host = table.seat(0);
            for entity in &all {
                *host.world.get::<&mut Count>(*entity).unwrap() = Count((tick + n * 7) as u16 + 2);
            }
            table.rest(1);
            *most = (*most).max(table.seat(0).peer.lists.len());
        }
    }
    let lost: u64 = table.seat(0).peer.links.iter().map(|link| link.subscriber.stats.lost).sum();
    assert!(lost > 100, "{lost} packets were lost");
    assert!(most[1] <= most[0] + 4, "lists pile up: {most:?}");
}

/// Who aims at one after the other is remembered for the one that it aims at now.
#[test]
fn who_names_another_names_the_one_before_no_more() {
    let mut table = table(1, 100);
    let all: Vec<Entity> = (0..20).map(|_| spawn(&mut table, 0).0).collect();
    for n in 0..40 {
        let host = table.seat(0);
        for (i, entity) in all.iter().enumerate() {
            host.world.insert_one(*entity, Target(all[(i + n) % all.len()])).unwrap();
        }
        table.rest(2);
    }
    table.rest(30);
    assert_eq!(table.seat(1).peer.apply.namings(), all.len());
    let host = table.seat(0);
    all.iter().for_each(|e| host.peer.despawn(&mut host.world, *e).unwrap());
    table.rest(60);
    assert_eq!(table.seat(1).peer.apply.namings(), 0);
}
