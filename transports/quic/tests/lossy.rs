//! Over a bad network, through the shim.

mod common;

use common::{End, GUEST, NOW, host, join, listen_config, open, until};
use std::time::{Duration, Instant};
use tidelock_netcore::error::LinkError;
use tidelock_netcore::transport::{Delivery, Lane, LinkId, Transport};
use tidelock_quic::shim::{Direction, Shim, ShimConfig};

const SEED: u64 = 0x71de;

fn through(config: ShimConfig) -> (Shim, End, End, LinkId) {
    let mut host = host(listen_config());
    // The handshake is not what these tests are about.
    let mild = ShimConfig { loss: 0.0, ..config };
    let shim = Shim::start(host.transport.local_addr().unwrap(), mild).unwrap();
    let mut guest = join(&format!("{}#{}", shim.addr(), host.transport.fingerprint()));
    let link = open(&mut host, &mut guest);
    shim.set(config);
    (shim, host, guest, link)
}

/// Sends `from..to` as far as there is room; gives how far it came.
fn feed(end: &mut End, link: LinkId, lane: Lane, from: u32, to: u32) -> u32 {
    for number in from..to {
        let mut message = number.to_le_bytes().to_vec();
        message.resize(4 + number as usize % 700, 0xAB);
        if end.transport.send_message(NOW, link, lane, &message).unwrap() == Delivery::Full {
            return number;
        }
    }
    to
}

fn numbers(messages: &[Vec<u8>]) -> Vec<u32> {
    messages.iter().map(|m| u32::from_le_bytes(m[..4].try_into().unwrap())).collect()
}

#[test]
fn messages_come_once_and_in_order_however_bad_the_network() {
    let bad = ShimConfig {
        latency: Duration::from_millis(10),
        jitter: Duration::from_millis(5),
        loss: 0.1,
        duplicate: 0.05,
        reorder: 0.05,
        seed: SEED,
        ..ShimConfig::default()
    };
    let (shim, mut host, mut guest, link) = through(bad);
    const COUNT: u32 = 300;
    let mut sent = [0; 4];
    until(&format!("all messages, SEED={SEED}"), &mut [&mut host, &mut guest], |ends| {
        for (at, lane) in [Lane::CONTROL, Lane::RELIABLE].into_iter().enumerate() {
            sent[at] = feed(ends[0], link, lane, sent[at], COUNT);
            sent[at + 2] = feed(ends[1], GUEST, lane, sent[at + 2], COUNT);
        }
        let count = |end: &End, of| end.messages(of, Lane::CONTROL).len() + end.messages(of, Lane::RELIABLE).len();
        count(ends[0], link) >= 2 * COUNT as usize && count(ends[1], GUEST) >= 2 * COUNT as usize
    });
    for lane in [Lane::CONTROL, Lane::RELIABLE] {
        assert_eq!(numbers(&host.messages(link, lane)), (0..COUNT).collect::<Vec<_>>(), "SEED={SEED}");
        assert_eq!(numbers(&guest.messages(GUEST, lane)), (0..COUNT).collect::<Vec<_>>(), "SEED={SEED}");
    }
    for direction in [Direction::Up, Direction::Down] {
        let counters = shim.counters(direction);
        assert!(counters.lost > 0 && counters.duplicated > 0 && counters.overflowed == 0, "{counters:?}, SEED={SEED}");
    }
    assert!(host.transport.stats(link).packets_lost > 0, "SEED={SEED}");
}

#[test]
fn a_lost_message_without_order_holds_up_no_other() {
    let bad = ShimConfig { latency: Duration::from_millis(20), loss: 0.1, seed: SEED, ..ShimConfig::default() };
    let (shim, mut host, mut guest, link) = through(bad);
    const COUNT: u32 = 300;
    let mut sent = [0; 2];
    until(&format!("all messages, SEED={SEED}"), &mut [&mut host, &mut guest], |ends| {
        sent[0] = feed(ends[0], link, Lane::UNORDERED, sent[0], COUNT);
        sent[1] = feed(ends[1], GUEST, Lane::UNORDERED, sent[1], COUNT);
        let came = [ends[0].messages(link, Lane::UNORDERED).len(), ends[1].messages(GUEST, Lane::UNORDERED).len()];
        came.iter().all(|came| *came >= COUNT as usize)
    });
    for came in [host.messages(link, Lane::UNORDERED), guest.messages(GUEST, Lane::UNORDERED)] {
        let came = numbers(&came);
        let overtaken = came.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(overtaken > 0, "of {} lost packets none was overtaken, SEED={SEED}", shim.counters(Direction::Down).lost);
        let mut sorted = came;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..COUNT).collect::<Vec<_>>(), "SEED={SEED}");
    }
}

#[test]
fn datagrams_arrive_whole_or_not_at_all_and_at_most_once() {
    let bad = ShimConfig { loss: 0.2, burst: 3.0, duplicate: 0.2, seed: SEED, ..ShimConfig::default() };
    let (shim, mut host, mut guest, link) = through(bad);
    let mut sent = 0u32;
    let start = Instant::now();
    let mut last = start;
    until(&format!("datagrams, SEED={SEED}"), &mut [&mut host, &mut guest], |ends| {
        // One a millisecond, so that congestion control takes most of them.
        if last.elapsed().as_millis() >= 1 {
            last = Instant::now();
            let datagram = [&sent.to_le_bytes()[..], &[0xCD; 500]].concat();
            if ends[0].transport.send_datagram(NOW, link, &datagram).unwrap() == Delivery::Taken {
                sent += 1;
            }
        }
        ends[1].datagrams(GUEST).len() >= 200
    });
    let arrived = guest.datagrams(GUEST);
    let mut seen = numbers(&arrived);
    seen.sort_unstable();
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]) && *seen.last().unwrap() < sent, "SEED={SEED}");
    assert!(arrived.iter().all(|datagram| datagram.len() == 504 && datagram[4..].iter().all(|byte| *byte == 0xCD)));
    assert!(shim.counters(Direction::Down).lost > 0 && (arrived.len() as u32) < sent, "SEED={SEED}");
}

#[test]
fn the_round_trip_is_measured_and_conditions_change_while_it_runs() {
    let near = ShimConfig { latency: Duration::from_millis(20), seed: SEED, ..ShimConfig::default() };
    let (shim, mut host, mut guest, link) = through(near);
    assert!(host.transport.stats(link).rtt >= Duration::from_millis(40), "{:?}", host.transport.stats(link));
    shim.set(ShimConfig { latency: Duration::from_millis(100), ..near });
    let start = Instant::now();
    guest.say(GUEST, Lane::CONTROL, b"far away");
    until("the message", &mut [&mut host, &mut guest], |ends| ends[0].messages(link, Lane::CONTROL).len() == 1);
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
}

#[test]
fn every_guest_is_another_address_behind_the_shim() {
    let (shim, mut host, mut first, one) = through(ShimConfig::default());
    let mut second = join(&format!("{}#{}", shim.addr(), host.transport.fingerprint()));
    let two = open(&mut host, &mut second);
    host.say(one, Lane::CONTROL, b"one");
    host.say(two, Lane::CONTROL, b"two");
    until("both", &mut [&mut host, &mut first, &mut second], |ends| {
        !ends[1].messages(GUEST, Lane::CONTROL).is_empty() && !ends[2].messages(GUEST, Lane::CONTROL).is_empty()
    });
    assert_eq!(first.messages(GUEST, Lane::CONTROL), [b"one"]);
    assert_eq!(second.messages(GUEST, Lane::CONTROL), [b"two"]);
}

#[test]
fn a_close_gets_through_losses_with_its_code_and_all_messages() {
    let bad = ShimConfig { latency: Duration::from_millis(5), loss: 0.2, seed: SEED, ..ShimConfig::default() };
    for round in 0..10u32 {
        let (_shim, mut host, mut guest, link) = through(ShimConfig { seed: SEED + u64::from(round), ..bad });
        host.say(link, Lane::RELIABLE, b"last words");
        host.transport.close(NOW, link, round, "over");
        let start = Instant::now();
        until(&format!("the close, SEED={SEED}+{round}"), &mut [&mut host, &mut guest], |ends| !ends[1].closed().is_empty());
        // Beyond the second that a close may take, the last packets may have been lost for good.
        if start.elapsed() < Duration::from_millis(900) {
            let reason = LinkError::ClosedByPeer { code: round, text: "over".into() };
            assert_eq!(guest.closed(), [(GUEST, reason)], "SEED={SEED}+{round}");
            assert_eq!(guest.messages(GUEST, Lane::RELIABLE), [b"last words"], "SEED={SEED}+{round}");
        }
    }
}

#[test]
fn messages_get_through_while_datagrams_fill_the_line() {
    let far = ShimConfig { latency: Duration::from_millis(20), loss: 0.02, seed: SEED, ..ShimConfig::default() };
    let (_shim, mut host, mut guest, link) = through(far);
    let start = Instant::now();
    let mut said = 0u32;
    until(&format!("20 messages, SEED={SEED}"), &mut [&mut host, &mut guest], |ends| {
        let limit = ends[0].transport.facts(link).unwrap().datagram_limit;
        // The limit may shrink meanwhile; then it is asked again.
        while ends[0].transport.send_datagram(NOW, link, &vec![5; limit]) == Ok(Delivery::Taken) {}
        if ends[1].messages(GUEST, Lane::CONTROL).len() as u32 == said {
            said = feed(ends[0], link, Lane::CONTROL, said, said + 1);
        }
        ends[1].messages(GUEST, Lane::CONTROL).len() >= 20
    });
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}, SEED={SEED}", start.elapsed());
}
