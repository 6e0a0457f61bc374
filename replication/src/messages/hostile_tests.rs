//! What a peer that keeps to no rule can do with events, messages and large things, and what it costs others: nothing. It is made
//! of an honest one, by writing into what it sends.

use super::events::{Event, EventsOut};
use super::mailbox::Waiting;
use super::{LargeMessage, To};
use crate::netid::NetId;
use crate::news::News;
use crate::policy::Owner;
use crate::testing::Table;
use crate::{Config, PeerId, Replicate, Schema};
use hecs::Entity;
use std::time::Duration;
use tidelock_loopback::{Conditions, Direction, Fate, Network};
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::bulk::{Announce, Bulk, QUEUE};
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Count(u16);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Bang(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Cheer(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Aim(Entity);
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Letter {
    #[net(max = 512)]
    text: String,
    #[net(max = 340)]
    more: String,
}
#[derive(Clone, Copy, Default)]
struct Pawn;
#[derive(Clone, Debug, PartialEq)]
struct Level(Vec<u8>);

impl LargeMessage for Level {
    fn to_bytes(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes != b"bad").then(|| Self(bytes.to_vec()))
    }
}

fn schema() -> Schema {
    let schema = Schema::builder("hostile").component::<Count>("count", |c| c).kind::<Pawn>("pawn", Owner::default());
    let schema = schema.message::<Aim>("aim").event::<Bang>("bang").shared_event::<Cheer>("cheer").event::<Letter>("letter");
    schema.large_message::<Level>("level").build().unwrap()
}

fn game(guests: usize, config: &Config) -> (Table, Network) {
    let network = Network::new(7);
    let mut table = Table::new(7, &schema(), config.clone(), network.host()).unwrap();
    let weather = Conditions { latency: Duration::from_millis(20), ..Conditions::default() };
    for _ in 0..guests {
        table.join(config.clone(), network.join(weather, weather)).unwrap();
        table.rest(15);
    }
    (table, network)
}

fn index(table: &mut Table, name: &str) -> usize {
    table.seat(0).peer.schema.messages.iter().position(|m| m.name == name).unwrap()
}

/// A guest sends an event as no call makes it.
fn forge(table: &mut Table, seat: usize, event: Event) {
    let (now, peer) = (table.now, &mut table.seat(seat).peer);
    let schema = peer.schema.clone();
    assert!(peer.links[0].events.push(&schema, false, event, now).is_ok());
}

fn cheer(table: &mut Table, number: u32, at: Option<Tick>) -> Event {
    Event { message: index(table, "cheer"), relay: Some(PeerId::HOST), at, words: vec![number] }
}

/// Everybody else is in, and has got no packet that it could not read.
fn assert_only_went(table: &mut Table, gone: &[usize]) {
    for seat in 1..table.seats.len() {
        let peer = &table.seat(seat).peer;
        if gone.contains(&seat) {
            assert!(!peer.is_in_session(), "seat {seat} is still in");
        } else {
            assert!(peer.is_in_session(), "seat {seat} paid for it: {:?}", peer.ended());
            assert_eq!(peer.links[0].counters.malformed, 0, "seat {seat} got packets that it could not read");
        }
    }
}

fn cheers(table: &mut Table, seat: usize) -> Vec<(u32, Option<Tick>, u64)> {
    table.seat(seat).peer.events::<Cheer>().unwrap().into_iter().map(|e| (e.value.0, e.at, e.late)).collect()
}

/// The sender runs by hand, so that its idea of the session's tick can be forged just before it sends.
fn send_at(table: &mut Table, seat: usize, ahead: u64) {
    let now = table.now;
    let seat = table.seat(seat);
    seat.peer.receive(now, &mut seat.world).unwrap();
    while seat.peer.next_step(&mut seat.world).is_some() {}
    let true_tick = seat.peer.time.tick;
    seat.peer.time.tick = true_tick.plus(ahead);
    seat.peer.send(now, &mut seat.world).unwrap();
    seat.peer.time.tick = true_tick;
}

#[test]
fn an_event_of_a_tick_too_far_ahead_ends_its_sender_alone() {
    // of the packet's own tick
    let (mut table, _network) = game(3, &Config::default());
    let at = table.seat(1).peer.event_tick().plus(3 * limits::EVENT_AHEAD);
    let event = cheer(&mut table, 1, Some(at));
    forge(&mut table, 1, event);
    table.rest(600);
    assert_only_went(&mut table, &[1]);
    // and of one that is forged as well: the host reads it, and the others could not
    let (mut table, _network) = game(3, &Config::default());
    let ahead = limits::EVENT_AHEAD + 9000;
    let at = table.seat(1).peer.event_tick().plus(ahead + 2 * limits::EVENT_AHEAD - 100);
    let event = cheer(&mut table, 2, Some(at));
    table.seat(1).stalled_until = Duration::MAX;
    forge(&mut table, 1, event);
    send_at(&mut table, 1, ahead);
    assert!(!table.seat(1).peer.links[0].events.is_waiting(), "it did not go out");
    table.rest(5);
    table.seat(1).stalled_until = Duration::ZERO;
    table.rest(120);
    let news = table.seat(0).take_news();
    let caught = |n: &News| {
        matches!(n, News::Misbehaved { peer: PeerId(1), error: PeerError::OverLimit { what: "the tick of an event" } })
    };
    assert!(news.iter().any(caught), "{news:?}");
    assert_only_went(&mut table, &[1]);
    assert_eq!((cheers(&mut table, 2), cheers(&mut table, 3)), (vec![], vec![]));
}

#[test]
fn an_event_of_long_ago_is_late_and_costs_nobody_a_packet() {
    for counters_from in [1, (1 << 32) - 10, 1 << 37] {
        let (mut table, _network) = game(3, &Config { counters_from, ..Config::default() });
        let before_it_joined = Tick(counters_from + 2);
        for (number, at) in [(1, Tick(0)), (2, before_it_joined), (3, Tick(1 << 20))] {
            if at <= table.seat(0).peer.event_tick() {
                let event = cheer(&mut table, number, Some(at));
                forge(&mut table, 1, event);
            }
        }
        let mut told = vec![Vec::new(); 4];
        for _ in 0..120 {
            table.rest(1);
            for seat in [0, 2, 3] {
                let now = table.seat(seat).peer.event_tick();
                for (number, at, late) in cheers(&mut table, seat) {
                    assert_eq!(late, now.since(at.unwrap()), "from {counters_from}, seat {seat}");
                    told[seat].push((number, at.unwrap()));
                }
            }
        }
        let expected = if counters_from == 1 << 37 || counters_from == (1 << 32) - 10 { 3 } else { 2 };
        assert!([0, 2, 3].iter().all(|seat| told[*seat].len() == expected), "from {counters_from}: {told:?}");
        assert_only_went(&mut table, &[]);
    }
}

#[test]
fn what_is_handed_on_and_what_is_ones_own_take_no_room_from_each_other() {
    let (mut table, network) = game(4, &Config::default());
    let slow = network.links()[3];
    let partition = |on: bool, now| network.edit(slow, Direction::Down, |net| net.partition(now, on));
    partition(true, table.now);
    // the host's own fill what it may have on its way
    let host = table.seat(0);
    let own = (0..).take_while(|n| host.peer.send_message(&host.world, To::Peer(PeerId(4)), &Bang(*n)).is_ok()).count();
    assert_eq!(own, limits::EVENTS_IN_FLIGHT);
    // a guest's go on all the same
    for number in 0..400 {
        let guest = table.seat(1);
        guest.peer.send_message(&guest.world, To::All, &Cheer(number)).unwrap();
        if number % 4 == 3 {
            table.rest(1);
        }
    }
    table.rest(10);
    let now = table.now;
    partition(false, now);
    table.rest(120);
    assert_only_went(&mut table, &[]);
    assert!(cheers(&mut table, 4).into_iter().map(|c| c.0).eq(0..400));
    assert_eq!(table.seat(4).peer.events::<Bang>().unwrap().len(), own);
    // and the other way round: two guests fill as much as each may, and the host still has its own
    let now = table.now;
    partition(true, now);
    for number in 0..510 {
        for seat in [1, 2] {
            let guest = table.seat(seat);
            guest.peer.send_message(&guest.world, To::All, &Cheer(number)).unwrap();
        }
        if number % 4 == 3 {
            table.rest(1);
        }
    }
    table.rest(10);
    let host = table.seat(0);
    let own = (0..2000).take_while(|n| host.peer.send_message(&host.world, To::Peer(PeerId(4)), &Bang(*n)).is_ok()).count();
    assert_eq!(own, limits::EVENTS_IN_FLIGHT, "guests have taken the host's room");
    let now = table.now;
    partition(false, now);
    table.rest(120);
    assert_only_went(&mut table, &[]);
    assert_eq!((cheers(&mut table, 4).len(), table.seat(4).peer.events::<Bang>().unwrap().len()), (1020, own));
}

/// Letters take a packet each and go before state when they have waited; there is one for every packet.
#[test]
fn urgent_events_starve_no_state() {
    let (mut table, _network) = game(1, &Config { bandwidth: 64_000, ..Config::default() });
    let host = table.seat(0);
    let entity = host.peer.spawn(&mut host.world, Pawn, (Count(0),)).unwrap();
    let net = host.peer.name_of(&host.world, entity).unwrap();
    table.rest(60);
    let letter = Letter { text: "x".repeat(512), more: "y".repeat(300) };
    let (mut letters, mut oldest) = (0, 0);
    for number in 1..1200u16 {
        let host = table.seat(0);
        while host.peer.links[0].events.waiting_bits() < 100_000 {
            host.peer.send_message(&host.world, To::All, &letter).unwrap();
        }
        host.world.get::<&mut Count>(entity).unwrap().0 = number;
        table.rest(1);
        let guest = table.seat(1);
        letters += guest.peer.events::<Letter>().unwrap().len();
        let copy = guest.find(net).unwrap();
        let shown = guest.world.get::<&Count>(copy).unwrap().0;
        oldest = oldest.max(number - shown);
    }
    assert!(letters > 40, "{letters} came");
    assert!(oldest < 60, "what the guest showed was up to {oldest} frames old");
}

/// It acknowledges everything but the packets with a certain event: they never come, and all else does.
#[test]
fn who_takes_everything_but_one_event_is_too_slow() {
    let (mut table, network) = game(2, &Config::default());
    let host = table.seat(0);
    let entity = host.peer.spawn(&mut host.world, Pawn, (Count(0),)).unwrap();
    table.rest(30);
    let link = network.links()[0];
    let large = Box::new(|_, bytes: &[u8]| if bytes.len() > 700 { Fate::Drop } else { Fate::Pass });
    network.edit(link, Direction::Down, |net| net.set_filter(Some(large)));
    let host = table.seat(0);
    let letter = Letter { text: "x".repeat(512), more: "y".repeat(300) };
    host.peer.send_message(&host.world, To::All, &letter).unwrap();
    let mut frames = 0;
    while table.seat(1).peer.is_in_session() && frames < 6000 {
        table.seat(0).world.get::<&mut Count>(entity).unwrap().0 = frames;
        table.rest(1);
        frames += 1;
    }
    assert!((200..6000).contains(&frames), "it went after {frames} frames");
    table.rest(30);
    assert_only_went(&mut table, &[1]);
    assert_eq!(table.seat(2).peer.events::<Letter>().unwrap().len(), 1);
    // to the packet
    let schema = schema().0;
    let message = schema.messages.iter().position(|m| m.name == "bang").unwrap();
    let (mut out, mut w) = (EventsOut::new(1), BitWriter::new());
    assert!(out.push(&schema, true, Event { message, relay: None, at: None, words: vec![1] }, Duration::ZERO).is_ok());
    for loss in 0..200 {
        assert!(!out.is_stuck(), "after {loss} losses");
        let riders = out.draft(&schema, true, Tick(5), 8000, &mut w);
        out.sent(loss, Duration::from_millis(loss), riders);
        out.time_out(Duration::from_millis(loss + 1), Duration::from_millis(loss + 1));
    }
    assert!(out.is_stuck());
}

/// It acknowledges everything but the packet with the event in front, so that nothing far behind that can be sent to it, while others
/// speak to all: one much, and several of whom each says little.
#[test]
fn who_holds_up_its_events_goes_alone_and_costs_nobody_an_event() {
    for (speakers, each) in [(1, 20), (5, 4)] {
        let (mut table, network) = game(speakers + 2, &Config::default());
        let (stubborn, listener) = (1, speakers + 2);
        let large = Box::new(|_, bytes: &[u8]| if bytes.len() > 700 { Fate::Drop } else { Fate::Pass });
        let link = network.links()[0];
        network.edit(link, Direction::Down, |net| net.set_filter(Some(large)));
        // so far away that it takes minutes until the one in front was lost too often
        let weather = Conditions { latency: Duration::from_millis(200), ..Conditions::default() };
        [Direction::Up, Direction::Down].into_iter().for_each(|way| network.set_conditions(link, way, weather));
        let host = table.seat(0);
        let letter = Letter { text: "x".repeat(512), more: "y".repeat(300) };
        host.peer.send_message(&host.world, To::Peer(PeerId(stubborn)), &letter).unwrap();
        let (mut said, mut frames, began) = (0, 0, table.now);
        let mut told = vec![Vec::new(); speakers + 2];
        while table.seat(usize::from(stubborn)).peer.is_in_session() && frames < 1800 {
            for seat in 2..listener {
                let guest = table.seat(seat);
                for number in said..said + each {
                    guest.peer.send_message(&guest.world, To::All, &Cheer(number)).unwrap();
                }
            }
            said += each;
            table.rest(1);
            frames += 1;
            for e in table.seat(listener).peer.events::<Cheer>().unwrap() {
                told[usize::from(e.from.0)].push(e.value.0);
            }
        }
        let took = table.now - began;
        assert!(took > limits::LANE_QUEUE_TIME, "{speakers} speakers: it went after {took:?}");
        assert!(took < limits::LANE_QUEUE_TIME + Duration::from_secs(2), "{speakers} speakers: it went after {took:?}");
        table.rest(60);
        assert_only_went(&mut table, &[usize::from(stubborn)]);
        let news = table.seat(0).take_news();
        assert!(!news.iter().any(|n| matches!(n, News::Misbehaved { .. })), "{speakers} speakers: {news:?}");
        for e in table.seat(listener).peer.events::<Cheer>().unwrap() {
            told[usize::from(e.from.0)].push(e.value.0);
        }
        for (seat, told) in told.iter().enumerate().skip(2) {
            assert!(told.iter().copied().eq(0..said), "of seat {seat}: {} of {said}", told.len());
        }
    }
}

/// What its own calls refuse, it sends all the same.
#[test]
fn who_sends_more_to_all_than_its_calls_take_goes_alone() {
    let (mut table, _network) = game(3, &Config::default());
    let event = cheer(&mut table, 5, None);
    let mut frames = 0;
    while table.seat(1).peer.is_in_session() && frames < 600 {
        let (now, peer) = (table.now, &mut table.seat(1).peer);
        let schema = peer.schema.clone();
        // as if it were a host's, which has no pace
        while peer.is_in_session() && peer.links[0].events.push(&schema, true, event.clone(), now).is_ok() {}
        table.rest(1);
        frames += 1;
    }
    table.rest(30);
    assert_only_went(&mut table, &[1]);
    let news = table.seat(0).take_news();
    let caught = |n: &News| {
        matches!(n, News::Misbehaved { error: PeerError::OverLimit { what: "the events for all in a second" }, peer: PeerId(1) })
    };
    assert!(news.iter().any(caught), "{news:?}");
}

fn timed(table: &mut Table, from: PeerId, number: u32) -> (usize, Waiting) {
    let due = Some(table.seat(0).peer.event_tick().plus(limits::EVENT_AHEAD));
    (index(table, "cheer"), Waiting { due, ..Waiting::new(from, table.now, vec![number]) })
}

#[test]
fn events_of_who_has_left_are_bounded_together() {
    let (mut table, _network) = game(3, &Config::default());
    for seat in [1, 2] {
        let from = PeerId(seat);
        for number in 0..80_000 {
            let (message, waiting) = timed(&mut table, from, number);
            table.seat(0).peer.put_in_box(message, waiting);
        }
        let host = &mut table.seat(0).peer;
        assert!(host.mailbox.held(from) <= limits::MAILBOX_BYTES && host.mailbox.held(from) > limits::MAILBOX_BYTES / 2);
        let dropped = host.stats(from).unwrap().link.dropped_messages;
        assert!(dropped > 1000, "{dropped}: those beyond are counted");
        table.leave(usize::from(seat));
        table.rest(5);
        let host = &mut table.seat(0).peer;
        assert_eq!(host.mailbox.held(from), 0, "nothing is counted for who has left");
        let orphans = host.mailbox.held(PeerId::NOBODY);
        assert!(orphans <= limits::MAILBOX_BYTES && orphans > limits::MAILBOX_BYTES / 2, "{orphans} bytes");
        assert_eq!(host.mailbox.total(), orphans, "all that is there is counted");
    }
    // who is still here loses nothing for it
    let (message, waiting) = timed(&mut table, PeerId(3), 77);
    let host = &mut table.seat(0).peer;
    host.put_in_box(message, waiting);
    assert!(host.mailbox.held(PeerId(3)) > 0);
}

/// What others have here is in the way of who looks for the oldest of one.
#[test]
fn a_flood_beside_what_others_left_is_no_look_at_all_of_it_for_each() {
    let (mut table, _network) = game(2, &Config::default());
    for number in 0..50_000 {
        let (message, waiting) = timed(&mut table, PeerId(1), number);
        table.seat(0).peer.put_in_box(message, waiting);
    }
    let (before, count) = (table.seat(0).peer.mailbox.moved, 200_000);
    for number in 0..count {
        let (message, waiting) = timed(&mut table, PeerId(2), number as u32);
        table.seat(0).peer.put_in_box(message, waiting);
    }
    let host = &mut table.seat(0).peer;
    let each = (host.mailbox.moved - before) / count;
    assert!(each < 200, "{each} messages were looked at for each that came");
    assert!(host.mailbox.held(PeerId(2)) > limits::MAILBOX_BYTES * 9 / 10, "no more go than a part");
    assert_eq!(host.stats(PeerId(1)).unwrap().link.dropped_messages, 0, "and nothing of others");
    // the oldest have gone, in a row
    let newest: Vec<u32> = host.mailbox.of(PeerId(2)).map(|words| words[0]).collect();
    assert!(newest.windows(2).all(|w| w[0] + 1 == w[1]) && newest.last() == Some(&(count as u32 - 1)));
}

#[test]
fn dropped_messages_push_no_other_news_out() {
    let (mut table, _network) = game(2, &Config::default());
    let aim = index(&mut table, "aim");
    let host = &mut table.seat(0).peer;
    host.news.push(News::Joined { peer: PeerId(99), name: "who came just before".into() });
    // more than the newsstand holds
    for _ in 0..limits::EVENTS + 100 {
        host.put_in_box(aim, Waiting::new(PeerId(1), Duration::ZERO, vec![0, 0]));
    }
    for _ in 0..limits::EVENTS + 100 {
        assert_eq!(host.take_large(PeerId(1), b"\0bad".to_vec()), Ok(()));
        if host.large_messages::<Level>().is_err() {
            break;
        }
    }
    let mut news = std::iter::from_fn(|| host.poll_news());
    assert!(matches!(news.next(), Some(News::Joined { peer: PeerId(99), .. })));
    let dropped = news.filter(|n| matches!(n, News::MessageDropped { from: PeerId(1), .. })).count();
    assert!((1..=64).contains(&dropped), "{dropped} were told");
    let counted = host.stats(PeerId(1)).unwrap().link.dropped_messages;
    assert_eq!(counted as usize, 2 * (limits::EVENTS + 100), "and all are counted");
}

#[test]
fn one_look_at_what_waits_is_one_pass() {
    let (mut table, _network) = game(2, &Config::default());
    let aim = index(&mut table, "aim");
    let host = &mut table.seat(0).peer;
    let nobody = NetId(limits::LEASE * 9 + 5).to_words();
    // two senders by turns, so that what is dropped lies all over the queue
    for _ in 0..15_000 {
        for peer in [1, 2] {
            host.put_in_box(aim, Waiting::new(PeerId(peer), host.time.now, nobody.to_vec()));
        }
    }
    let (count, before) = (30_000, host.mailbox.moved);
    host.resolve_messages();
    assert_eq!(host.stats(PeerId(1)).unwrap().link.dropped_messages as usize, 15_000 - limits::WAITING_MESSAGES);
    let moved = host.mailbox.moved - before;
    assert!(moved <= count, "{moved} messages were moved to drop of {count}");
    for peer in [1, 2] {
        let each = host.mailbox.total() / (2 * limits::WAITING_MESSAGES);
        assert_eq!(host.mailbox.held(PeerId(peer)), each * limits::WAITING_MESSAGES, "the newest are kept, and counted");
    }
}

/// The host, as if a guest had said this on the lane of large things.
fn say(table: &mut Table, seat: usize, message: &Bulk<'_>) {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    let host = table.seat(0);
    let peer = PeerId(seat as u16);
    if let Some(link) = host.peer.link_to(peer).map(|link| link.id) {
        host.peer.take_bulk(&mut host.world, link, &bytes);
    }
}

fn announce(id: u32, bytes: &[u8]) -> Bulk<'static> {
    let digest = xxhash_rust::xxh3::xxh3_64(bytes);
    Bulk::Announce(Announce { topic: QUEUE, id, length: bytes.len() as u32, digest })
}

#[test]
fn a_large_message_that_is_announced_while_another_goes_or_too_late() {
    let (mut table, _network) = game(3, &Config::default());
    let index = 0u8;
    let (first, second) = (vec![index; 3000], [&[index][..], b"the second"].concat());
    say(&mut table, 1, &announce(1, &first));
    say(&mut table, 1, &Bulk::Piece { topic: QUEUE, id: 1, offset: 0, bytes: &first[..500] });
    say(&mut table, 1, &announce(2, &second));
    let held = |table: &mut Table| table.seat(0).peer.links[0].blobs.incoming.queued_memory();
    assert_eq!(held(&mut table), 0, "what was there of the first is let go");
    say(&mut table, 1, &Bulk::Piece { topic: QUEUE, id: 2, offset: 0, bytes: &second });
    let came = table.seat(0).peer.large_messages::<Level>().unwrap();
    assert_eq!(came, [(PeerId(1), Level(b"the second".to_vec()))], "whole, and no part of the first");
    // more of the first is no piece of anything
    say(&mut table, 1, &Bulk::Piece { topic: QUEUE, id: 1, offset: 500, bytes: &first[500..1000] });
    // a piece before its announcement
    say(&mut table, 2, &Bulk::Piece { topic: QUEUE, id: 1, offset: 0, bytes: &first[..500] });
    table.rest(10);
    let news = table.seat(0).take_news();
    let caught = news.iter().filter(|n| matches!(n, News::Misbehaved { error: PeerError::OutOfOrder(_), .. })).count();
    assert_eq!(caught, 2, "{news:?}");
    assert_only_went(&mut table, &[1, 2]);
}

/// What is announced and does not come is let go: the second of two is not announced before its turn, however long the first takes.
#[test]
fn the_second_of_two_large_messages_waits_as_long_as_the_first_takes() {
    let (mut table, _network) = game(1, &Config { bandwidth: 64_000, ..Config::default() });
    let first = Level((0..150_000u32).map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect());
    let second = Level(vec![5; 100]);
    let guest = table.seat(1);
    for level in [&first, &second] {
        guest.peer.send_large(&guest.world, To::Host, level).unwrap();
    }
    let began = table.now;
    let mut came = Vec::new();
    while came.len() < 2 && table.now < began + Duration::from_secs(120) {
        table.rest(1);
        came.extend(table.seat(0).peer.large_messages::<Level>().unwrap().into_iter().map(|(_, level)| level));
    }
    assert!(table.now > began + limits::LARGE_IDLE, "the first takes longer than anything is kept without a word");
    assert!(came == [first, second], "{} came", came.len());
    let news = table.seat(1).take_news();
    assert!(!news.iter().any(|n| matches!(n, News::LargeFailed { .. })), "{news:?}");
}
