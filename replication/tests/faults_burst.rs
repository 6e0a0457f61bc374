//! More than a slow link carries at once: nobody is thrown out for it, nothing starves, every queue stays within its cap, and no
//! second sees more than was allowed.

mod common;

use common::{Crate, Health, Position, assert_clean, config, seeds, weather};
use hecs::Entity;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock::netcore::error::DisconnectReason;
use tidelock::netcore::limits;
use tidelock::netcore::transport::Lane;
use tidelock::policy::Host;
use tidelock::testing::Table;
use tidelock::{Config, News, PeerId, Replicate, Schema, To, UsageError};
use tidelock_loopback::{Conditions, Direction, Network};

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Note {
    number: u32,
    #[net(max = 500)]
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Murmur {
    number: u32,
    filling: [u32; 24],
}

fn schema() -> Schema {
    Schema::builder("burst")
        .component::<Position>("position", |c| c)
        .component::<Health>("health", |c| c)
        .kind::<Crate>("crate", Host::default())
        .message::<Note>("note")
        .unreliable_message::<Murmur>("murmur")
        .build()
        .unwrap()
}

/// A message of 200 bytes: 1 of index, 4 of number, 2 of length, the text.
fn note(number: u32) -> Note {
    Note { number, text: "x".repeat(193) }
}

/// 150 ms there and back, so many bytes per second, and a queue of 64 KiB somewhere in the network, which drops without a word.
fn thin(rate: u64) -> Conditions {
    Conditions { rate: Some(rate), queue: 64 * 1024, backpressure: false, ..weather(75, 0.0) }
}

/// A host with guests that are each reached through `down`, all in, at `bandwidth` bits per second.
fn room(seed: u64, down: &[Conditions], bandwidth: u64) -> (Table, Network) {
    let network = Network::new(seed);
    let mut table = Table::new(seed, &schema(), config(), network.host()).unwrap();
    for down in down {
        table.join(config(), network.join(weather(75, 0.0), *down)).unwrap();
    }
    for _ in 0..60 {
        table.rest(1);
    }
    assert!(table.seats.iter().flatten().all(|s| s.peer.is_in_session()), "SEED={seed}");
    for guest in 1..=down.len() as u16 {
        table.seat(0).peer.set_bandwidth(PeerId(guest), bandwidth).unwrap();
    }
    // what the old bandwidth let through is a second old then
    table.rest(90);
    (table, network)
}

fn spawn(table: &mut Table, count: usize) -> Vec<Entity> {
    let host = table.seat(0);
    let at = |i: usize| Position { x: (i % 100) as f32, y: (i / 100) as f32 };
    (0..count).map(|i| host.peer.spawn(&mut host.world, Crate, (at(i), Health(i as u16))).unwrap()).collect()
}

fn tell(table: &mut Table, to: PeerId, message: &Note) -> Result<(), UsageError> {
    let host = table.seat(0);
    host.peer.send_message(&host.world, To::Peer(to), message)
}

/// Bytes that went towards a guest, overhead included, as the network counts them.
fn bytes_down(network: &Network, guest: usize) -> u64 {
    network.edit(network.links()[guest - 1], Direction::Down, |net| net.counters().bytes_sent).unwrap()
}

fn numbers(table: &mut Table, seat: usize) -> Vec<u32> {
    table.seat(seat).peer.messages::<Note>().unwrap().into_iter().map(|(_, note)| note.number).collect()
}

/// Case 10: what comes at once at a join is paced, and kicks nobody.
#[test]
fn a_burst_after_the_join_kicks_nobody() {
    for seed in seeds(2) {
        let rate = 32_000;
        let (mut table, network) = room(seed, &[thin(rate)], 8 * rate);
        let before = bytes_down(&network, 1);
        spawn(&mut table, 5000);
        for number in 0..1000 {
            tell(&mut table, PeerId(1), &note(number)).unwrap();
        }
        let (began, mut got, mut heard, mut taken) = (table.now, Vec::new(), table.now, 0);
        while got.len() < 1000 || table.all_equal().is_err() {
            table.rest(1);
            got.extend(numbers(&mut table, 1));
            let backlog = table.seat(0).peer.backlog(PeerId(1)).unwrap_or_else(|| panic!("SEED={seed}: it was thrown out"));
            assert!(backlog.bytes <= backlog.limit, "SEED={seed}: {backlog:?}");
            let packets = table.seat(1).peer.stats(PeerId::HOST).unwrap().link.taken;
            if packets > taken {
                (taken, heard) = (packets, table.now);
            }
            assert!(table.now < heard + Duration::from_millis(500), "SEED={seed}: the host has fallen silent at {:?}", table.now);
            assert!(table.now < began + Duration::from_secs(60), "SEED={seed}: {} of 1000", got.len());
        }
        let (time, bytes) = ((table.now - began).as_secs_f64(), bytes_down(&network, 1) - before);
        let best = bytes as f64 / rate as f64;
        assert!(time <= 1.5 * best, "SEED={seed}: {time} s for {bytes} bytes, which take {best} s");
        assert!(got.iter().copied().eq(0..1000), "SEED={seed}: out of order");
        let lost = network.edit(network.links()[0], Direction::Down, |net| net.counters().overflowed).unwrap();
        assert_eq!(lost, 0, "SEED={seed}: the link's queue ran over");
        table.rest(60);
        assert_eq!(numbers(&mut table, 1), [0; 0], "SEED={seed}: nothing comes twice");
        assert_clean(&mut table);
    }
}

/// State and messages of all sorts, for a minute, at the least bandwidth and at two tiers.
#[test]
fn no_second_sees_more_than_the_bandwidth() {
    for (seed, bandwidth, least) in [(1, 16_000, 80), (2, 32_000, 85), (3, 256_000, 95)] {
        let (mut table, network) = room(seed, &[weather(75, 0.02)], bandwidth);
        let entities = spawn(&mut table, 300);
        let (mut second, mut total, mut got, mut number) = (VecDeque::new(), 0, Vec::new(), 0);
        let mut last = bytes_down(&network, 1);
        for frame in 0..3600u32 {
            let host = table.seat(0);
            for (i, entity) in entities.iter().enumerate() {
                // no motion that could be guessed
                let anywhere = (frame.wrapping_add(i as u32 * 7919)).wrapping_mul(2_654_435_761) >> 8;
                host.world.get::<&mut Position>(*entity).unwrap().x = (anywhere % 400) as f32;
            }
            let murmur = Murmur { number: frame, filling: [frame; 24] };
            host.peer.send_message(&host.world, To::All, &murmur).unwrap();
            if frame < 3000 && host.peer.backlog(PeerId(1)).unwrap().messages < 3 {
                tell(&mut table, PeerId(1), &note(number)).unwrap();
                number += 1;
            }
            table.run(|_, _, _| {});
            let sent = bytes_down(&network, 1);
            second.push_back((table.now, sent - last));
            last = sent;
            while second.front().is_some_and(|(at, _)| *at + Duration::from_secs(1) <= table.now) {
                second.pop_front();
            }
            let sum: u64 = second.iter().map(|s| s.1).sum();
            assert!(sum <= bandwidth / 8, "SEED={seed} frame {frame}: {sum} bytes in a second of {bandwidth} bits");
            total += second.back().map_or(0, |s| s.1);
            got.extend(numbers(&mut table, 1));
        }
        let used = total * 8 * 100 / 60 / bandwidth;
        assert!(used >= least, "SEED={seed}: only {used} % of {bandwidth} were used");
        assert!(got.iter().copied().eq(0..number), "SEED={seed}: {} of {number}", got.len());
        let share = u64::from(number) * 228 * 8 / 50;
        assert!(share > bandwidth / 4, "SEED={seed}: messages had {share} bits a second of {bandwidth}");
        let stats = table.seat(0).peer.stats(PeerId(1)).unwrap();
        let state = stats.sent.state_bytes * 8 / 60;
        assert!(state > bandwidth / 5, "SEED={seed}: state had {state} bits a second of {bandwidth}");
        assert!(stats.link.unsent_messages > 100, "SEED={seed}: {stats:?}");
        assert_clean(&mut table);
    }
}

#[test]
fn a_full_queue_is_an_error_at_the_call_and_loses_nothing_else() {
    let (mut table, _network) = room(4, &[weather(20, 0.0), weather(20, 0.0)], 256_000);
    let mut number = 0;
    while tell(&mut table, PeerId(1), &note(number)) == Ok(()) {
        number += 1;
        assert!(number < 1 << 20, "it is never full");
    }
    assert_eq!(tell(&mut table, PeerId(1), &note(number)), Err(UsageError::Backlog));
    let backlog = table.seat(0).peer.backlog(PeerId(1)).unwrap();
    assert_eq!(backlog.messages, number as usize);
    assert_eq!(backlog.bytes, number as usize * (200 + limits::MESSAGE_COST), "what a message costs beside its bytes counts");
    assert!(backlog.bytes <= backlog.limit && backlog.bytes + 300 > backlog.limit, "{backlog:?}");
    // the other one is told as before
    tell(&mut table, PeerId(2), &note(7)).unwrap();
    table.rest(30);
    assert_eq!(numbers(&mut table, 2), [7]);
    // the game's own bandwidth is no reason to call a peer slow, however long it takes
    let mut got = Vec::new();
    for _ in 0..60 * 40 {
        table.rest(1);
        got.extend(numbers(&mut table, 1));
    }
    assert!(got.iter().copied().eq(0..number), "{} of {number}", got.len());
    assert_eq!(table.seat(0).peer.backlog(PeerId(1)).unwrap().messages, 0);
    assert_clean(&mut table);
}

#[test]
fn who_takes_no_messages_is_too_slow_and_nobody_else_minds() {
    let (mut table, network) = room(5, &[weather(20, 0.0), weather(20, 0.0)], 16_000_000);
    let now = table.now;
    network.edit(network.links()[0], Direction::Down, |net| net.hold_lane(now, Lane::RELIABLE, true)).unwrap();
    let (mut refused, mut full, mut number, mut got) = (0, None, 0, Vec::new());
    while table.seat(0).peer.backlog(PeerId(1)).is_some() {
        for _ in 0..20 {
            match tell(&mut table, PeerId(1), &note(number)) {
                Ok(()) | Err(UsageError::NoSuchPeer) => {}
                Err(UsageError::Backlog) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        tell(&mut table, PeerId(2), &note(number)).unwrap();
        number += 1;
        table.rest(1);
        got.extend(numbers(&mut table, 2));
        if let Some(backlog) = table.seat(0).peer.backlog(PeerId(1)) {
            assert!(backlog.bytes <= backlog.limit, "{backlog:?}");
            if backlog.messages > 100 {
                full.get_or_insert(table.now);
            }
        }
        assert!(table.now < Duration::from_secs(60), "it is still there");
    }
    let waited = table.now - full.expect("something waited");
    assert!(refused > 0 && waited < limits::LANE_QUEUE_TIME + Duration::from_millis(500), "{waited:?}");
    assert!(waited + Duration::from_millis(500) > limits::LANE_QUEUE_TIME, "{waited:?}: too early");
    let left = News::Left { peer: PeerId(1), reason: DisconnectReason::TooSlow };
    assert!(table.seat(0).take_news().contains(&left));
    table.rest(60);
    got.extend(numbers(&mut table, 2));
    assert!(got.into_iter().eq(0..number), "the other guest has missed something");
    assert!(table.seat(2).peer.is_in_session());
}

/// A lane that the transport takes again goes on, though state would use all of a small bandwidth.
#[test]
fn who_takes_messages_again_is_not_too_slow() {
    let (mut table, network) = room(8, &[weather(20, 0.0)], 16_000_000);
    let entities = spawn(&mut table, 300);
    let hold = |table: &Table, on| {
        let now = table.now;
        network.edit(network.links()[0], Direction::Down, |net| net.hold_lane(now, Lane::RELIABLE, on)).unwrap();
    };
    hold(&table, true);
    let mut number = 0;
    while table.seat(0).peer.backlog(PeerId(1)).unwrap().messages < 20 {
        for _ in 0..100 {
            tell(&mut table, PeerId(1), &note(number)).unwrap();
            number += 1;
        }
        table.rest(2);
    }
    table.seat(0).peer.set_bandwidth(PeerId(1), 32_000).unwrap();
    for frame in 0..60 * 40 {
        if frame == 300 {
            hold(&table, false);
        }
        let host = table.seat(0);
        for entity in &entities {
            host.world.get::<&mut Position>(*entity).unwrap().x = (frame % 400) as f32;
        }
        table.run(|_, _, _| {});
    }
    assert_eq!(table.seat(0).peer.backlog(PeerId(1)).map(|b| b.messages), Some(0));
    assert!(numbers(&mut table, 1).into_iter().eq(0..number));
    assert_clean(&mut table);
}

#[test]
fn a_value_larger_than_the_usual_packet_gets_through_a_thin_link() {
    #[derive(Clone, Debug, PartialEq, Replicate)]
    struct Page {
        #[net(max = 500)]
        text: String,
    }
    let schema =
        Schema::builder("page").component::<Page>("page", |c| c).kind::<Crate>("crate", Host::default()).build().unwrap();
    let thin = Config { bandwidth: limits::BANDWIDTH_LEAST, ..config() };
    let (mut table, _network) = common::table_of(6, &schema, 1, weather(20, 0.0), &thin);
    let host = table.seat(0);
    host.peer.spawn(&mut host.world, Crate, (Page { text: "y".repeat(500) },)).unwrap();
    common::assert_settles(&mut table, 3);
}

#[test]
fn a_bandwidth_that_cannot_be_is_refused() {
    let (mut table, _network) = room(7, &[weather(20, 0.0)], 256_000);
    let host = &mut table.seat(0).peer;
    assert!(matches!(host.set_bandwidth(PeerId(1), limits::BANDWIDTH_LEAST - 1), Err(UsageError::Config(_))));
    assert_eq!(host.set_bandwidth(PeerId(9), 1_000_000), Err(UsageError::NoSuchPeer));
    assert_eq!(host.backlog(PeerId(9)), None);
    let network = Network::new(7);
    let low = Config { bandwidth: limits::BANDWIDTH_LEAST - 1, ..config() };
    assert!(matches!(Table::new(7, &schema(), low, network.host()), Err(UsageError::Config(_))));
}
