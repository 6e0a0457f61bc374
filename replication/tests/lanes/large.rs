//! Large messages: in pieces, both ways, up to the limit; what comes no further is let go.

use crate::table;
use std::time::Duration;
use tidelock::netcore::limits;
use tidelock::netcore::transport::Lane;
use tidelock::policy::Host;
use tidelock::{Config, LargeMessage, News, PeerId, Replicate, Schema, To, UsageError};
use tidelock_loopback::{Conditions, Direction};

#[derive(Clone, Debug, PartialEq)]
struct Level(Vec<u8>);
#[derive(Clone, Debug, PartialEq)]
struct Picky(Vec<u8>);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Small(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct At(i32);
#[derive(Clone, Copy, Default)]
struct Pawn;

impl LargeMessage for Level {
    fn to_bytes(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.to_vec()))
    }
}

impl LargeMessage for Picky {
    fn to_bytes(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.starts_with(b"good").then(|| Self(bytes.to_vec()))
    }
}

fn schema() -> Schema {
    let schema = Schema::builder("large").kind::<Pawn>("pawn", Host::default()).component::<At>("at", |c| c);
    let schema = schema.message::<Small>("small").large_message::<Level>("level").large_message::<Picky>("picky");
    schema.build().unwrap()
}

fn level(length: usize, seed: u32) -> Level {
    Level((0..length as u32).map(|i| (i ^ seed).wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect())
}

fn fast() -> Config {
    Config { bandwidth: 16_000_000, ..Config::default() }
}

fn lossy() -> Conditions {
    Conditions { latency: Duration::from_millis(20), jitter: Duration::from_millis(5), loss: 0.05, ..Conditions::default() }
}

#[test]
fn every_size_comes_whole_both_ways_and_what_is_small_behind_it_too() {
    let (mut table, _network) = table(1, &schema(), &fast(), 1, lossy());
    let sizes = [limits::LARGE_BYTES, 0, 1, 30_000, 16_384, limits::LARGE_BYTES - 1];
    let mut sent = Vec::new();
    let mut ids = Vec::new();
    for (at, to) in [(0, To::All), (1, To::Host)] {
        let seat = table.seat(at);
        let too_large = seat.peer.send_large(&seat.world, to, &level(limits::LARGE_BYTES + 1, 0));
        let refused = UsageError::TooLarge { size: limits::LARGE_BYTES + 1, limit: limits::LARGE_BYTES };
        assert_eq!(too_large, Err(refused.clone()));
        assert!(refused.to_string().contains("1048577") && refused.to_string().contains("1048576"), "{refused}");
        for (number, size) in sizes.into_iter().enumerate() {
            ids.push((at, seat.peer.send_large(&seat.world, to, &level(size, number as u32)).unwrap()));
            sent.extend((at == 0).then(|| level(size, number as u32)));
        }
        for number in 0..100 {
            seat.peer.send_large(&seat.world, to, &level(10, number)).unwrap();
            sent.extend((at == 0).then(|| level(10, number)));
            seat.peer.send_message(&seat.world, to, &Small(number)).unwrap();
        }
    }
    let (mut came, mut small, mut last) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()], [0; 2]);
    for frame in 0.. {
        assert!(frame < 60 * 60, "{} and {} came", came[0].len(), came[1].len());
        table.rest(1);
        for at in 0..2 {
            let other = table.seat(1 - at).peer.local();
            let peer = &mut table.seat(at).peer;
            came[at].extend(peer.large_messages::<Level>().unwrap().into_iter().map(|(_, level)| level));
            small[at].extend(peer.messages::<Small>().unwrap().into_iter().map(|(_, small)| small.0));
            let first = ids.iter().find(|(of, _)| *of == at).unwrap().1;
            if let Some(progress) = peer.large_progress(other, first) {
                assert!(progress.bytes >= last[at] && progress.total == limits::LARGE_BYTES + 1);
                last[at] = progress.bytes;
            }
        }
        if frame == 90 {
            assert!((0..2).all(|at| small[at].len() == 100), "small ones do not wait for large ones");
        }
        if came.iter().all(|came| came.len() == sent.len()) {
            break;
        }
    }
    assert!(last.iter().all(|last| *last > 500_000), "progress was told: {last:?}");
    for at in 0..2 {
        assert!(came[at] == sent, "seat {at}: whole and in order");
        assert_eq!(small[at], (0..100).collect::<Vec<_>>());
    }
    table.rest(60);
    for (at, id) in ids {
        let other = table.seat(1 - at).peer.local();
        assert_eq!(table.seat(at).peer.large_progress(other, id), None, "it is through");
    }
}

#[test]
fn some_get_it_and_who_is_full_is_told() {
    let (mut table, _network) = table(2, &schema(), &fast(), 3, lossy());
    let host = table.seat(0);
    let some = [PeerId(1), PeerId(3)];
    host.peer.send_large(&host.world, To::Some(&some), &level(50_000, 7)).unwrap();
    for number in 0..3 {
        host.peer.send_large(&host.world, To::Peer(PeerId(1)), &level(limits::LARGE_BYTES, number)).unwrap();
    }
    let mut queued = 3 * limits::LARGE_BYTES + 50_000 + 4 * 65;
    while queued + 100_065 <= limits::LARGE_QUEUE_BYTES {
        host.peer.send_large(&host.world, To::Peer(PeerId(1)), &level(100_000, 0)).unwrap();
        queued += 100_065;
    }
    assert_eq!(host.peer.send_large(&host.world, To::All, &level(100_000, 0)), Err(UsageError::Backlog));
    table.rest(120);
    for (seat, gets) in [(1, true), (2, false), (3, true)] {
        let came = table.seat(seat).peer.large_messages::<Level>().unwrap();
        assert_eq!(came.first().map(|(_, l)| l == &level(50_000, 7)), gets.then_some(true), "seat {seat}");
    }
}

#[test]
fn what_comes_no_further_is_let_go_and_told_and_the_next_one_comes() {
    let (mut table, network) = table(3, &schema(), &fast(), 1, lossy());
    let link = network.links()[0];
    let guest = table.seat(1);
    let id = guest.peer.send_large(&guest.world, To::Host, &level(limits::LARGE_BYTES, 1)).unwrap();
    while table.seat(0).peer.large_incoming(PeerId(1)).is_none_or(|progress| progress.bytes < 100_000) {
        table.rest(1);
    }
    let now = table.now;
    network.edit(link, Direction::Up, |net| net.hold_lane(now, Lane::BULK, true));
    table.rest(60 * 11);
    assert_eq!(table.seat(0).peer.large_incoming(PeerId(1)), None, "let go");
    let failed = table.seat(1).take_news();
    assert!(failed.contains(&News::LargeFailed { to: PeerId::HOST, id }), "{failed:?}");
    let guest = table.seat(1);
    assert_eq!(guest.peer.large_progress(PeerId::HOST, id), None);
    guest.peer.send_large(&guest.world, To::Host, &level(2000, 2)).unwrap();
    let now = table.now;
    network.edit(link, Direction::Up, |net| net.hold_lane(now, Lane::BULK, false));
    table.rest(120);
    assert_eq!(table.seat(0).peer.large_messages(), Ok(vec![(PeerId(1), level(2000, 2))]));
    assert!(table.seat(1).peer.is_in_session());
}

#[test]
fn on_a_link_full_of_state_it_goes_on_slowly_and_is_not_let_go() {
    let narrow = Config { bandwidth: 32_000, ..Config::default() };
    let (mut table, _network) =
        table(4, &schema(), &narrow, 1, Conditions { latency: Duration::from_millis(20), ..Conditions::default() });
    let host = table.seat(0);
    for _ in 0..400 {
        host.peer.spawn(&mut host.world, Pawn, (At(0),)).unwrap();
    }
    host.peer.send_large(&host.world, To::All, &level(1500, 3)).unwrap();
    let mut came = 0;
    for frame in 0..60 * 240 {
        table.run(|seat, world, _| {
            if seat == 0 {
                world.query::<&mut At>().iter().for_each(|at| at.0 += 1000);
            }
        });
        assert!(!table.seat(0).take_news().iter().any(|news| matches!(news, News::LargeFailed { .. })), "frame {frame}");
        came += table.seat(1).peer.large_messages::<Level>().unwrap().len();
        if came > 0 {
            break;
        }
    }
    assert_eq!(came, 1);
}

#[test]
fn what_is_not_fetched_is_bounded_and_what_is_none_is_dropped() {
    let (mut table, _network) = table(5, &schema(), &fast(), 1, Conditions::default());
    for number in 0..5 {
        let guest = table.seat(1);
        guest.peer.send_large(&guest.world, To::Host, &level(limits::LARGE_BYTES - 100, number)).unwrap();
        table.rest(60);
    }
    let dropped = |news: Vec<News>| news.into_iter().filter(|n| matches!(n, News::MessageDropped { .. })).count();
    assert_eq!(dropped(table.seat(0).take_news()), 1, "the oldest");
    let kept = table.seat(0).peer.large_messages::<Level>().unwrap();
    assert!(kept.iter().map(|(_, l)| l).eq((1..5).map(|n| level(limits::LARGE_BYTES - 100, n)).collect::<Vec<_>>().iter()));
    let guest = table.seat(1);
    for bytes in [&b"good one"[..], b"bad one", b""] {
        guest.peer.send_large(&guest.world, To::Host, &Picky(bytes.to_vec())).unwrap();
    }
    table.rest(20);
    assert_eq!(table.seat(0).peer.large_messages(), Ok(vec![(PeerId(1), Picky(b"good one".to_vec()))]));
    assert_eq!(dropped(table.seat(0).take_news()), 0, "told as news in the next frame");
    table.rest(1);
    assert_eq!(dropped(table.seat(0).take_news()), 2);
}
