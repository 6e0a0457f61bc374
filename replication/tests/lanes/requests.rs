//! Requests: one typed reply each, or one failure.

use crate::{foul, table};
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::netcore::error::DisconnectReason;
use tidelock::netcore::limits;
use tidelock::policy::Host;
use tidelock::{Config, News, PeerId, Replicate, Request, RequestFailure, RequestId, Schema, UsageError};
use tidelock_loopback::{Conditions, Direction};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Add(u16, u16);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Sum(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Look {
    at: hecs::Entity,
}
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Seen {
    at: hecs::Entity,
}
#[derive(Clone, Copy, Default)]
struct Pawn;

impl Request for Add {
    type Reply = Sum;
}
impl Request for Look {
    type Reply = Seen;
}

fn schema() -> Schema {
    Schema::builder("asks").kind::<Pawn>("pawn", Host::default()).request::<Add>("add").request::<Look>("look").build().unwrap()
}

fn failures(news: Vec<News>) -> Vec<(PeerId, String, u32, RequestFailure)> {
    let failed = |news| match news {
        News::RequestFailed { to, request, number, why } => Some((to, request, number, why)),
        _ => None,
    };
    news.into_iter().filter_map(failed).collect()
}

#[test]
fn each_has_one_outcome_however_bad_the_network() {
    for seed in 1..=10 {
        let (mut table, _network) = table(seed, &schema(), &Config::default(), 2, foul());
        // by who asks whom, in seats
        let mut open: BTreeMap<(usize, usize, u32), u32> = BTreeMap::new();
        let mut served = 0;
        for i in 0..500u16 {
            for (from, to) in [(0, 1), (0, 2), (1, 0), (2, 0)] {
                let peer = table.seat(to).peer.local();
                let seat = table.seat(from);
                if i < 300 && (i + to as u16).is_multiple_of(3) {
                    let id = seat.peer.request(&seat.world, peer, &Add(i, 7)).unwrap();
                    assert_eq!(id.peer(), peer);
                    open.insert((from, to, id.number()), u32::from(i) + 7);
                }
                let requests: Vec<(PeerId, RequestId<Add>, Add)> = seat.peer.requests().unwrap();
                for (asker, id, add) in requests {
                    served += 1;
                    assert_eq!(asker, id.peer());
                    seat.peer.reply(&seat.world, id, &Sum(u32::from(add.0) + u32::from(add.1))).unwrap();
                    let again = seat.peer.reply(&seat.world, id, &Sum(0));
                    assert_eq!(again, Err(UsageError::NoSuchRequest), "SEED={seed}: answered twice");
                }
            }
            table.rest(1);
            for seat in 0..3 {
                for (id, sum) in table.seat(seat).peer.replies::<Add>().unwrap() {
                    let to = (0..3).find(|at| table.seat(*at).peer.local() == id.peer()).unwrap();
                    assert_eq!(open.remove(&(seat, to, id.number())), Some(sum.0), "SEED={seed}: {id:?}");
                }
                assert_eq!(failures(table.seat(seat).take_news()), [], "SEED={seed}");
            }
        }
        assert!(open.is_empty() && served == 400, "SEED={seed}: {served} served, {} without outcome", open.len());
    }
}

#[test]
fn failures_say_why() {
    let (mut table, _network) = table(1, &schema(), &Config::default(), 2, Conditions::default());
    let (one, two) = (table.seat(1).peer.local(), table.seat(2).peer.local());
    // refused
    let host = table.seat(0);
    let refused = host.peer.request(&host.world, one, &Add(1, 2)).unwrap();
    table.rest(2);
    let guest = table.seat(1);
    let (from, id, _) = guest.peer.requests::<Add>().unwrap()[0];
    assert_eq!(from, PeerId::HOST);
    guest.peer.refuse_request(id).unwrap();
    assert_eq!(guest.peer.refuse_request(id), Err(UsageError::NoSuchRequest));
    table.rest(3);
    let failed = failures(table.seat(0).take_news());
    assert_eq!(failed, [(one, "add".to_owned(), refused.number(), RequestFailure::Refused)]);
    // too late, and the reply that comes after that is not told
    let host = table.seat(0);
    let late = host.peer.request_within(&host.world, one, &Add(3, 4), Duration::from_millis(200)).unwrap();
    table.rest(20);
    assert_eq!(failures(table.seat(0).take_news()), [(one, "add".to_owned(), late.number(), RequestFailure::Deadline)]);
    let guest = table.seat(1);
    let (_, id, add) = guest.peer.requests::<Add>().unwrap()[0];
    guest.peer.reply(&guest.world, id, &Sum(u32::from(add.0 + add.1))).unwrap();
    table.rest(3);
    assert_eq!(table.seat(0).peer.replies::<Add>(), Ok(vec![]));
    // who is asked leaves; who asks leaves
    let host = table.seat(0);
    let left = host.peer.request(&host.world, two, &Add(5, 6)).unwrap();
    let guest = table.seat(2);
    guest.peer.request(&guest.world, PeerId::HOST, &Add(7, 8)).unwrap();
    table.rest(3);
    let host = table.seat(0);
    let (_, id, _) = host.peer.requests::<Add>().unwrap()[0];
    table.leave(2);
    table.rest(3);
    assert_eq!(failures(table.seat(0).take_news()), [(two, "add".to_owned(), left.number(), RequestFailure::Left)]);
    let host = table.seat(0);
    assert_eq!(host.peer.reply(&host.world, id, &Sum(15)), Err(UsageError::NoSuchRequest));
    // the session ends
    let guest = table.seat(1);
    let last = guest.peer.request(&guest.world, PeerId::HOST, &Add(9, 9)).unwrap();
    let host = table.seat(0);
    host.peer.disconnect(&mut host.world, DisconnectReason::HostLeft);
    table.rest(3);
    assert_eq!(failures(table.seat(1).take_news()), [(PeerId::HOST, "add".to_owned(), last.number(), RequestFailure::Left)]);
}

#[test]
fn a_request_about_what_never_comes_is_refused_and_a_reply_about_it_fails() {
    let (mut table, network) = table(2, &schema(), &Config::default(), 1, Conditions::default());
    // the guest never learns of the entity: no state reaches it
    let link = network.links()[0];
    network.edit(link, Direction::Down, |net| net.set_filter(Some(Box::new(|_, _| tidelock_loopback::Fate::Drop))));
    let host = table.seat(0);
    let at = host.peer.spawn(&mut host.world, Pawn, ()).unwrap();
    let id = host.peer.request_within(&host.world, PeerId(1), &Look { at }, Duration::from_secs(60)).unwrap();
    table.rest(60 * 4);
    assert_eq!(table.seat(1).peer.requests::<Look>(), Ok(vec![]), "it waits for the entity");
    let mut failed = Vec::new();
    network.edit(link, Direction::Down, |net| net.set_filter(None));
    // it is gone before the guest has seen it
    let host = table.seat(0);
    host.peer.despawn(&mut host.world, at).unwrap();
    for _ in 0..60 * 12 {
        table.rest(1);
        failed.extend(failures(table.seat(0).take_news()));
        assert_eq!(table.seat(1).peer.requests::<Look>(), Ok(vec![]));
    }
    assert_eq!(failed, [(PeerId(1), "look".to_owned(), id.number(), RequestFailure::Refused)]);
}

#[test]
fn outstanding_ones_are_bounded_on_both_sides() {
    let (mut table, _network) = table(3, &schema(), &Config::default(), 1, Conditions::default());
    let guest = table.seat(1);
    for i in 0..limits::REQUESTS as u16 {
        guest.peer.request_within(&guest.world, PeerId::HOST, &Add(i, 0), Duration::from_secs(1)).unwrap();
    }
    assert_eq!(guest.peer.request(&guest.world, PeerId::HOST, &Add(0, 0)), Err(UsageError::TooManyRequests));
    table.rest(90);
    let guest = table.seat(1);
    assert_eq!(failures(guest.take_news()).len(), limits::REQUESTS);
    for i in 0..10 {
        guest.peer.request(&guest.world, PeerId::HOST, &Add(1000 + i, 0)).unwrap();
    }
    table.rest(3);
    let host = table.seat(0);
    let requests = host.peer.requests::<Add>().unwrap();
    assert_eq!(requests.len(), limits::REQUESTS + 10);
    let answered = requests.iter().filter(|(_, id, _)| host.peer.reply(&host.world, *id, &Sum(1)).is_ok()).count();
    assert_eq!(answered, limits::REQUESTS, "the ten oldest were given up");
    table.rest(3);
    assert_eq!(table.seat(1).peer.replies::<Add>().unwrap().len(), 10, "and of the others ten are still waited for");
    let guest = table.seat(1);
    let as_message = guest.peer.send_message(&guest.world, tidelock::To::Host, &Add(1, 1));
    assert!(matches!(as_message, Err(UsageError::NotAllowed(_))));
    assert!(matches!(guest.peer.messages::<Add>(), Err(UsageError::NotAllowed(_))));
    assert_eq!(guest.peer.request(&guest.world, PeerId(5), &Add(1, 1)), Err(UsageError::NoSuchPeer));
}
