use super::*;
use crate::policy::{Owner, Refusal};
use crate::relevance::Relevance;
use crate::testing::{Seat, Table};
use crate::{Config, Replicate, Schema};
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Count(u16);
#[derive(Clone, Copy, Default)]
struct Pawn;
/// Only on the host.
struct Secret;

fn table(guests: usize, requests: Requests) -> Table {
    let schema = Schema::builder("requests")
        .component::<Count>("count", |c| c)
        .kind_with::<Pawn>("pawn", Owner::default(), |k| k.requests(requests))
        .build()
        .unwrap();
    let network = Network::new(7);
    let mut table = Table::new(7, &schema, Config::default(), network.host()).unwrap();
    let relevance = Relevance::everything().rule(|sight| sight.get::<Secret>().is_none());
    table.seat(0).peer.set_relevance(relevance).unwrap();
    for _ in 0..guests {
        table.join(Config::default(), network.join(Conditions::default(), Conditions::default())).unwrap();
    }
    table.rest(60);
    table
}

fn spawn(table: &mut Table, seat: usize) -> (Entity, NetId) {
    let Seat { peer, world, .. } = table.seat(seat);
    let entity = peer.spawn(world, Pawn, (Count(1),)).unwrap();
    (entity, peer.name_of(world, entity).unwrap())
}

fn post(table: &mut Table, number: u32, net: NetId, slot: u8) {
    let message = Control::OwnershipRequest(OwnershipRequest { number, net: net.0, slot });
    assert!(table.seat(1).peer.links[0].post_control(&message));
}

/// Notes a request as open, so that its answer is told.
fn expect(table: &mut Table, number: u32, net: NetId, entity: Entity) {
    let claim = Claim { number, net, entity, slot: 0, granted: None, told: false };
    table.seat(1).peer.claims.mine.push(claim);
}

/// Whoever asks for a name that is hidden from it learns as much as of one that does not exist: in the same frame, in the same words.
#[test]
fn hidden_names_cannot_be_probed() {
    for requests in [Requests::Refuse, Requests::WhenFree, Requests::Always, Requests::Ask] {
        let mut table = table(1, requests);
        let (hidden, secret) = spawn(&mut table, 0);
        table.seat(0).world.insert_one(hidden, Secret).unwrap();
        let (_, open) = spawn(&mut table, 0);
        table.rest(60);
        assert!(table.seat(1).find(open).is_some() && table.seat(1).find(secret).is_none());
        table.seat(1).take_news();
        let mut frames = Vec::new();
        for (number, net) in [(900, secret), (901, NetId(77_777)), (902, NetId(0)), (903, NetId(u64::MAX))] {
            expect(&mut table, number, net, hidden);
            post(&mut table, number, net, 0);
            let told = (0..60).find_map(|frame| {
                table.rest(1);
                let mut news = table.seat(1).take_news().into_iter();
                news.find_map(|n| if let News::OwnershipRefused { why, .. } = n { Some((frame, why)) } else { None })
            });
            frames.push(told.expect("it is answered"));
        }
        assert!(frames.iter().all(|f| *f == frames[0] && f.1 == Denial::Unknown), "{requests:?}: {frames:?}");
        let asked = table.seat(0).take_news().into_iter().any(|n| matches!(n, News::OwnershipRequested { .. }));
        assert!(!asked, "{requests:?}: the game is not asked for it");
        let Seat { peer, world, .. } = table.seat(0);
        assert_eq!(peer.owner(world, hidden, 0), Some(PeerId::HOST));
    }
}

/// A flood costs its sender, and nobody else.
#[test]
fn a_flood_of_requests_ends_its_sender() {
    let mut table = table(2, Requests::Ask);
    let (_, net) = spawn(&mut table, 0);
    table.rest(30);
    for number in 0..1000 {
        post(&mut table, number, net, 0);
    }
    table.rest(120);
    let host = table.seat(0);
    let asked = host.take_news().into_iter().filter(|n| matches!(n, News::OwnershipRequested { .. })).count();
    assert_eq!(asked, 1, "the same thing is told once");
    assert!(host.peer.claims.asked.len() <= 1);
    assert!(host.peer.link_to(PeerId(1)).is_none(), "it is out");
    assert_eq!(table.seat(1).peer.ended(), Some(&DisconnectReason::TooManyRefusals));
    assert!(table.seat(2).peer.ended().is_none());
}

/// What waits for the game is bounded per guest, and within its rate a guest is told so.
#[test]
fn what_waits_for_the_game_is_bounded() {
    let mut table = table(1, Requests::Ask);
    let nets: Vec<NetId> = (0..100).map(|_| spawn(&mut table, 0).1).collect();
    table.rest(60);
    for (number, net) in nets.iter().enumerate() {
        post(&mut table, number as u32, *net, 0);
        table.rest(2);
    }
    table.rest(30);
    let host = table.seat(0);
    assert_eq!(host.peer.claims.asked.len(), limits::OWNERSHIP_REQUESTS);
    assert_eq!(host.peer.stats(PeerId(1)).unwrap().link.denied, 100 - limits::OWNERSHIP_REQUESTS as u64);
    table.leave(1);
    table.rest(30);
    assert!(table.seat(0).peer.claims.asked.is_empty(), "nothing is left of who has gone");
}

#[test]
fn an_honest_guest_is_held_back_at_home() {
    let mut table = table(1, Requests::Refuse);
    for _ in 0..100 {
        spawn(&mut table, 0);
    }
    table.rest(60);
    let Seat { peer, world, .. } = table.seat(1);
    let all: Vec<Entity> = world.query::<Entity>().with::<&Pawn>().iter().collect();
    let results: Vec<_> = all.iter().map(|e| peer.request_ownership(world, *e, 0)).collect();
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), limits::OWNERSHIP_REQUESTS / 2);
    assert!(results.iter().all(|r| matches!(r, Ok(()) | Err(UsageError::TooManyRequests))));
    table.rest(60);
    let denied = table.seat(0).peer.stats(PeerId(1)).unwrap().link;
    assert_eq!((denied.denied, denied.refused), (limits::OWNERSHIP_REQUESTS as u64 / 2, 0));
}

#[test]
fn a_slot_that_no_schema_has_is_out_of_order() {
    let mut table = table(1, Requests::Always);
    let (_, net) = spawn(&mut table, 0);
    table.rest(30);
    post(&mut table, 0, net, 200);
    table.rest(30);
    assert_eq!(table.seat(1).peer.ended(), Some(&DisconnectReason::Malformed));
}

/// A release under an ownership that has passed says nothing.
#[test]
fn an_old_release_changes_nothing() {
    let mut table = table(2, Requests::Always);
    let (_, net) = spawn(&mut table, 1);
    table.rest(60);
    for (epoch, to) in [(1, None), (u16::MAX, Some(2))] {
        let release = OwnershipRelease { net: net.0, slot: 0, epoch, to };
        assert!(table.seat(1).peer.links[0].post_control(&Control::OwnershipRelease(release)));
    }
    let stolen = OwnershipRelease { net: net.0, slot: 0, epoch: 0, to: None };
    assert!(table.seat(2).peer.links[0].post_control(&Control::OwnershipRelease(stolen)));
    table.rest(30);
    let Seat { peer, world, .. } = table.seat(0);
    assert_eq!(peer.owner(world, peer.entity_of(net).unwrap(), 0), Some(PeerId(1)));
}

/// Somebody who has a part of an entity says that it has ended.
#[test]
fn a_co_owner_that_ends_an_entity_is_refused() {
    let co = |k: crate::KindOptions| k.authority::<Count>(Owner::co(1));
    let schema = Schema::builder("co").component::<Count>("count", |c| c).kind_with::<Pawn>("pawn", Owner::default(), co);
    let schema = schema.build().unwrap();
    let network = Network::new(7);
    let mut table = Table::new(7, &schema, Config::default(), network.host()).unwrap();
    table.join(Config::default(), network.join(Conditions::default(), Conditions::default())).unwrap();
    table.rest(60);
    let (entity, net) = spawn(&mut table, 0);
    let Seat { peer, world, .. } = table.seat(0);
    peer.grant(world, entity, 1, PeerId(1)).unwrap();
    table.rest(30);
    let liar = table.seat(1);
    let copy = liar.find(net).unwrap();
    liar.world.get::<&mut Count>(copy).unwrap().0 = 5;
    table.rest(30);
    let liar = &mut table.seat(1).peer;
    let row = liar.entities.get(liar.entities.slot_of(net).unwrap()).unwrap().out_row as usize;
    liar.end_row(row, crate::presence::Life::Dead);
    liar.dirty = true;
    table.rest(60);
    let host = table.seat(0);
    assert!(host.find(net).is_some(), "it lives");
    let refused = host.take_news().into_iter().any(|n| matches!(n, News::Refused { refusal: Refusal::Lifetime, .. }));
    assert!(refused, "and the liar is told of");
}
