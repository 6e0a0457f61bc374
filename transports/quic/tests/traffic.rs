//! What an open link carries, and how it ends.

mod common;

use common::{DEADLINE, End, GUEST, NOW, host, join, listen_config, open, pair, until};
use std::time::Instant;
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::limits;
use tidelock_netcore::transport::{Delivery, Lane, LinkId, Transport};

#[test]
fn datagrams_and_messages_go_both_ways() {
    let (mut host, mut guest, link) = pair();
    for lane in [Lane::CONTROL, Lane::RELIABLE] {
        for size in [0, 1, 1000, limits::MESSAGE_BYTES] {
            host.say(link, lane, &vec![lane.0; size]);
            guest.say(GUEST, lane, &vec![lane.0 + 100; size]);
        }
    }
    let limit = host.transport.facts(link).unwrap().datagram_limit;
    for size in [0, 1, limit] {
        assert_eq!(host.transport.send_datagram(NOW, link, &vec![7; size]), Ok(Delivery::Taken));
        assert_eq!(guest.transport.send_datagram(NOW, GUEST, &vec![9; size]), Ok(Delivery::Taken));
    }
    until("all of it", &mut [&mut host, &mut guest], |ends| {
        let whole = |end: &End, of| {
            end.datagrams(of).len() == 3 && end.messages(of, Lane::CONTROL).len() + end.messages(of, Lane::RELIABLE).len() == 8
        };
        whole(ends[0], link) && whole(ends[1], GUEST)
    });
    let sizes = |all: Vec<Vec<u8>>| all.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes(host.messages(link, Lane::CONTROL)), [0, 1, 1000, limits::MESSAGE_BYTES]);
    assert_eq!(sizes(guest.messages(GUEST, Lane::RELIABLE)), [0, 1, 1000, limits::MESSAGE_BYTES]);
    assert!(guest.messages(GUEST, Lane::RELIABLE)[3].iter().all(|byte| *byte == 1));
    assert_eq!(sizes(guest.datagrams(GUEST)), [0, 1, limit]);
    let stats = host.transport.stats(link);
    assert!(stats.bytes_out > 34_000 && stats.bytes_in > 34_000 && stats.packets_out > 20, "{stats:?}");
}

#[test]
fn what_cannot_be_sent_says_so() {
    let (mut host, _guest, link) = pair();
    let facts = host.transport.facts(link).unwrap();
    assert!(facts.datagram_limit >= limits::DATAGRAM_MIN_BYTES && facts.free >= facts.datagram_limit && !facts.lossless);
    let size = 60_000;
    let refused = host.transport.send_datagram(NOW, link, &vec![0; size]);
    assert!(matches!(refused, Err(TransportError::TooLarge { size: 60_000, limit }) if limit >= facts.datagram_limit));
    let size = limits::MESSAGE_BYTES + 1;
    let refused = host.transport.send_message(NOW, link, Lane::CONTROL, &vec![0; size]);
    assert_eq!(refused, Err(TransportError::TooLarge { size, limit: limits::MESSAGE_BYTES }));
    let refused = host.transport.send_message(NOW, link, Lane(Lane::COUNT), &[]);
    assert_eq!(refused, Err(TransportError::NoSuchLane(Lane::COUNT)));
    assert_eq!(host.transport.send_message(NOW, LinkId(99), Lane::CONTROL, &[]), Err(TransportError::NotOpen));
    assert_eq!(host.transport.send_datagram(NOW, LinkId(99), &[]), Err(TransportError::NotOpen));
    assert_eq!(host.transport.facts(LinkId(99)), None);
    host.transport.close(NOW, LinkId(99), 1, "unknown links are ignored");
}

#[test]
fn a_flood_of_datagrams_is_answered_with_full_and_drops_none_here() {
    let (mut host, mut guest, link) = pair();
    let mut taken = 0;
    let start = Instant::now();
    while host.transport.send_datagram(NOW, link, &[taken as u8; 1000]).unwrap() == Delivery::Taken {
        taken += 1;
        assert!(start.elapsed() < DEADLINE, "never full after {taken}");
    }
    assert!(host.transport.facts(link).unwrap().free < 1000 + 100);
    // Room comes again, and the link still works.
    until("room", &mut [&mut host, &mut guest], |ends| {
        ends[0].transport.send_message(NOW, link, Lane::CONTROL, b"after the flood").unwrap() == Delivery::Taken
            && ends[0].transport.facts(link).unwrap().free > 30_000
    });
    until("the message", &mut [&mut host, &mut guest], |ends| !ends[1].messages(GUEST, Lane::CONTROL).is_empty());
}

#[test]
fn a_lane_that_is_not_taken_gets_full_and_loses_nothing() {
    let (mut host, mut guest, link) = pair();
    let mut sent = 0u32;
    let mut last_taken = Instant::now();
    // Nobody polls the guest. Full must come, and stay: every queue on the way is bounded.
    while last_taken.elapsed().as_millis() < 500 {
        let mut message = vec![0; 10_000];
        message[..4].copy_from_slice(&sent.to_le_bytes());
        match host.transport.send_message(NOW, link, Lane::RELIABLE, &message).unwrap() {
            Delivery::Taken => (sent, last_taken) = (sent + 1, Instant::now()),
            Delivery::Full => std::thread::yield_now(),
        }
        assert!(sent < 1000, "10 MB were taken for a peer that takes nothing");
    }
    // The other lane waits for the game too, but the link lives, and datagrams go on.
    assert_eq!(host.transport.send_datagram(NOW, link, b"still here"), Ok(Delivery::Taken));
    until("every message", &mut [&mut guest], |ends| ends[0].messages(GUEST, Lane::RELIABLE).len() == sent as usize);
    let numbers =
        guest.messages(GUEST, Lane::RELIABLE).iter().map(|m| u32::from_le_bytes(m[..4].try_into().unwrap())).collect::<Vec<_>>();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
    assert_eq!(guest.closed(), []);
    until("the datagram", &mut [&mut guest], |ends| ends[0].datagrams(GUEST) == [b"still here"]);
}

#[test]
fn a_close_comes_after_what_was_sent_and_with_its_code_and_text() {
    for host_closes in [true, false] {
        let (mut host, mut guest, link) = pair();
        let (closer, closer_link, other, other_link) =
            if host_closes { (&mut host, link, &mut guest, GUEST) } else { (&mut guest, GUEST, &mut host, link) };
        for i in 0..20u8 {
            closer.say(closer_link, Lane::RELIABLE, &[i; 10_000]);
        }
        closer.say(closer_link, Lane::CONTROL, b"and now");
        closer.transport.close(NOW, closer_link, 4_000_000_000, "enough of ü");
        assert_eq!(closer.transport.facts(closer_link), None);
        assert_eq!(closer.transport.send_datagram(NOW, closer_link, &[]), Err(TransportError::NotOpen));
        until("the end", &mut [closer, other], |ends| !ends[1].closed().is_empty());
        let reason = LinkError::ClosedByPeer { code: 4_000_000_000, text: "enough of ü".into() };
        assert_eq!(other.closed(), [(other_link, reason)]);
        assert_eq!(other.messages(other_link, Lane::RELIABLE).len(), 20);
        assert_eq!(other.messages(other_link, Lane::CONTROL), [b"and now"]);
        assert_eq!(closer.closed(), [], "who closes is not told");
    }
}

#[test]
fn dropping_a_host_tells_every_guest_within_a_second() {
    let mut host = host(listen_config());
    let mut guests = Vec::new();
    for _ in 0..3 {
        let mut guest = join(&host.transport.address());
        let link = open(&mut host, &mut guest);
        host.say(link, Lane::CONTROL, b"goodbye");
        guests.push(guest);
    }
    let start = Instant::now();
    drop(host);
    assert!(start.elapsed().as_millis() < 1500, "{:?}", start.elapsed());
    for guest in &mut guests {
        until("the end", &mut [guest], |ends| !ends[0].closed().is_empty());
        assert_eq!(guest.closed(), [(GUEST, LinkError::ClosedByPeer { code: 3, text: String::new() })]);
        assert_eq!(guest.messages(GUEST, Lane::CONTROL), [b"goodbye"]);
    }
    assert!(start.elapsed().as_secs() < 4, "they were told, and did not time out");
}

#[test]
fn dropping_a_guest_tells_the_host_and_a_new_guest_gets_a_new_link() {
    let (mut host, guest, link) = pair();
    drop(guest);
    until("the end", &mut [&mut host], |ends| !ends[0].closed().is_empty());
    assert_eq!(host.closed(), [(link, LinkError::ClosedByPeer { code: 1, text: String::new() })]);
    let mut again = join(&host.transport.address());
    let new = open(&mut host, &mut again);
    assert_ne!(new, link);
    host.say(new, Lane::CONTROL, b"welcome back");
    until("the welcome", &mut [&mut host, &mut again], |ends| ends[1].messages(GUEST, Lane::CONTROL) == [b"welcome back"]);
    assert_eq!(host.transport.send_datagram(NOW, link, &[]), Err(TransportError::NotOpen));
}

#[test]
fn a_peer_that_vanishes_times_out() {
    let mut config = listen_config();
    config.timing.idle = std::time::Duration::from_millis(1500);
    let mut host = host(config);
    let shim = tidelock_quic::shim::Shim::start(host.transport.local_addr().unwrap(), Default::default()).unwrap();
    let mut guest = join(&format!("{}#{}", shim.addr(), host.transport.fingerprint()));
    let link = open(&mut host, &mut guest);
    drop(shim);
    until("both to notice", &mut [&mut host, &mut guest], |ends| ends.iter().all(|end| !end.closed().is_empty()));
    assert_eq!(host.closed(), [(link, LinkError::TimedOut)]);
    assert_eq!(guest.closed(), [(GUEST, LinkError::TimedOut)]);
}

#[test]
fn the_rate_is_known_and_is_no_less_than_what_goes_through() {
    let (mut host, mut guest, link) = pair();
    let start = Instant::now();
    let mut sent = 0;
    // a little all the time, much less than the path carries
    until("the rate, and a second of traffic", &mut [&mut host, &mut guest], |ends| {
        if start.elapsed().as_millis() / 10 > sent {
            sent += 1;
            assert!(ends[0].transport.send_datagram(NOW, link, &[1; 500]).is_ok());
        }
        sent >= 100 && ends[0].transport.facts(link).unwrap().rate.is_some()
    });
    let rate = host.transport.facts(link).unwrap().rate.unwrap();
    assert!(rate > 100_000, "{rate} bytes per second, where 50 000 went through with ease");
}
