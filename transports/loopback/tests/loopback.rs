//! What the loopback promises beyond what every transport does: virtual time, weather, and an end without a word.

use std::time::Duration;
use tidelock_loopback::{Conditions, Direction, Loopback, Network, STOPPED_CODE};
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::limits;
use tidelock_netcore::transport::{Arrival, Delivery, Lane, LinkId, Transport};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn next(end: &mut Loopback, now: Duration) -> Option<(Arrival, Vec<u8>)> {
    let mut payload = Vec::new();
    end.poll(now, &mut payload).map(|arrival| (arrival, payload))
}

fn all(end: &mut Loopback, now: Duration) -> Vec<(Arrival, Vec<u8>)> {
    std::iter::from_fn(|| next(end, now)).collect()
}

/// A host and a guest with an open link, at `now`.
fn pair(network: &Network, up: Conditions, down: Conditions) -> (Loopback, Loopback, LinkId) {
    let mut host = network.host();
    let mut guest = network.join(up, down);
    let link = guest.link().expect("a guest has a link");
    let later = ms(10_000);
    assert_eq!(next(&mut guest, Duration::ZERO), None);
    assert!(matches!(next(&mut host, later), Some((Arrival::Opened { link: l, .. }, _)) if l == link));
    assert!(matches!(next(&mut guest, later * 2), Some((Arrival::Opened { link: l, .. }, _)) if l == link));
    (host, guest, link)
}

/// When the pair of [`pair`] is open.
const START: Duration = Duration::from_secs(20);

#[test]
fn opening_takes_a_round_trip() {
    let network = Network::new(1);
    let mut host = network.host();
    let slow = Conditions { latency: ms(40), ..Default::default() };
    let mut guest = network.join(slow, slow);
    assert_eq!(next(&mut guest, ms(5)), None);
    assert_eq!(next(&mut host, ms(44)), None);
    assert!(matches!(next(&mut host, ms(45)), Some((Arrival::Opened { .. }, _))));
    assert_eq!(next(&mut guest, ms(84)), None);
    assert!(matches!(next(&mut guest, ms(85)), Some((Arrival::Opened { .. }, _))));
}

#[test]
fn what_overtakes_the_opening_comes_right_after_it() {
    let network = Network::new(1);
    let mut host = network.host();
    let mut guest = network.join(Conditions::default(), Conditions { latency: ms(40), ..Default::default() });
    let link = guest.link().expect("a guest has a link");
    assert_eq!(next(&mut guest, ms(0)), None);
    assert!(next(&mut host, ms(0)).is_some());
    network.set_conditions(link, Direction::Down, Conditions::default());
    assert_eq!(host.send_message(ms(1), link, Lane::RELIABLE, b"early"), Ok(Delivery::Taken));
    assert_eq!(host.send_message(ms(1), link, Lane::RELIABLE, b"second"), Ok(Delivery::Taken));
    let got = all(&mut guest, ms(1));
    assert!(matches!(got[0].0, Arrival::Opened { .. }));
    assert_eq!((got[1].1.as_slice(), got[2].1.as_slice(), got.len()), (&b"early"[..], &b"second"[..], 3));
    assert_eq!(all(&mut guest, ms(100)), [], "it opens once");
}

#[test]
fn a_datagram_arrives_at_the_moment_of_sending() {
    let network = Network::new(1);
    let (mut host, mut guest, link) = pair(&network, Conditions::default(), Conditions::default());
    assert_eq!(guest.send_datagram(START, link, b"ping"), Ok(Delivery::Taken));
    assert_eq!(next(&mut host, START), Some((Arrival::Datagram { link }, b"ping".to_vec())));
    assert_eq!(host.facts(link).map(|f| (f.datagram_limit, f.datagram_overhead, f.lossless)), Some((1200, 28, false)));
}

#[test]
fn without_a_host_it_is_unreachable() {
    let network = Network::new(1);
    let mut guest = network.join(Conditions::default(), Conditions::default());
    assert!(matches!(next(&mut guest, ms(0)), Some((Arrival::Closed { reason: LinkError::Unreachable(_), .. }, _))));
    assert_eq!(next(&mut guest, ms(0)), None);
    assert_eq!(network.links(), []);
}

#[test]
fn the_weather_changes_while_it_runs_and_each_way_has_its_own() {
    let network = Network::new(1);
    let (mut host, mut guest, link) = pair(&network, Conditions::default(), Conditions::default());
    network.set_conditions(link, Direction::Up, Conditions { latency: ms(100), ..Default::default() });
    assert_eq!(guest.send_datagram(START, link, b"up"), Ok(Delivery::Taken));
    assert_eq!(host.send_datagram(START, link, b"down"), Ok(Delivery::Taken));
    assert_eq!(all(&mut guest, START).len(), 1);
    assert_eq!(all(&mut host, START + ms(99)).len(), 0);
    assert_eq!(all(&mut host, START + ms(100)).len(), 1);
    assert_eq!(guest.stats(link).rtt, ms(100));
}

#[test]
fn holds_stalls_and_partitions_are_in_reach() {
    let network = Network::new(1);
    let (mut host, mut guest, link) = pair(&network, Conditions::default(), Conditions::default());
    network.edit(link, Direction::Up, |net| net.hold_next(1));
    assert_eq!(guest.send_datagram(START, link, b"held"), Ok(Delivery::Taken));
    assert_eq!(guest.send_datagram(START, link, b"free"), Ok(Delivery::Taken));
    assert_eq!(next(&mut host, START), Some((Arrival::Datagram { link }, b"free".to_vec())));
    network.edit(link, Direction::Up, |net| net.release_held(START));
    assert_eq!(next(&mut host, START), Some((Arrival::Datagram { link }, b"held".to_vec())));

    network.edit(link, Direction::Down, |net| net.stall(START + ms(3000)));
    assert_eq!(host.send_datagram(START, link, b"late"), Ok(Delivery::Taken));
    assert_eq!(next(&mut guest, START + ms(2999)), None);
    assert!(next(&mut guest, START + ms(3000)).is_some());

    network.edit(link, Direction::Up, |net| net.partition(START, true));
    assert_eq!(guest.send_datagram(START, link, b"lost"), Ok(Delivery::Taken));
    assert_eq!(guest.send_message(START, link, Lane::RELIABLE, b"kept"), Ok(Delivery::Taken));
    assert_eq!(next(&mut host, START + ms(5000)), None);
    network.edit(link, Direction::Up, |net| net.partition(START + ms(5000), false));
    assert_eq!(all(&mut host, START + ms(5000)), [(Arrival::Message { link, lane: Lane::RELIABLE }, b"kept".to_vec())]);
    assert_eq!(guest.stats(link).packets_lost, 1);
}

#[test]
fn a_cut_link_dies_without_a_word() {
    let network = Network::new(1);
    let slow = Conditions { latency: ms(50), ..Default::default() };
    let (mut host, mut guest, link) = pair(&network, slow, slow);
    assert_eq!(guest.send_datagram(START, link, b"under way"), Ok(Delivery::Taken));
    network.cut(link);
    assert_eq!(guest.send_message(START, link, Lane::RELIABLE, b"unheard"), Ok(Delivery::Taken), "it cannot know");
    assert_eq!(all(&mut host, START + ms(100_000)), []);
    host.close(START, link, 4, "timed out");
    assert_eq!(all(&mut guest, START + ms(100_000)), []);
    assert!(guest.facts(link).is_some() && host.facts(link).is_none());
}

#[test]
fn the_end_comes_after_every_message_under_any_weather() {
    for seed in 0..50 {
        let network = Network::new(seed);
        let rough = Conditions { latency: ms(30), jitter: ms(50), loss: 0.3, ..Default::default() };
        let (mut host, mut guest, link) = pair(&network, rough, rough);
        for i in 0..40u8 {
            assert_eq!(host.send_message(START, link, Lane(i % 2), &[i]), Ok(Delivery::Taken));
        }
        host.close(START, link, 2, "enough");
        assert_eq!(host.send_datagram(START, link, b""), Err(TransportError::NotOpen));
        let got = all(&mut guest, START + ms(100_000));
        assert_eq!(got.len(), 41, "SEED={seed}");
        let reason = LinkError::ClosedByPeer { code: 2, text: "enough".into() };
        assert_eq!(got[40].0, Arrival::Closed { link, reason }, "SEED={seed}");
        assert_eq!(network.links(), [], "SEED={seed}: nothing is kept of it");
    }
}

#[test]
fn a_dropped_guest_is_told_to_the_host_and_a_host_can_come_again() {
    let network = Network::new(1);
    let (mut host, guest, link) = pair(&network, Conditions::default(), Conditions::default());
    drop(guest);
    assert!(matches!(next(&mut host, START),
        Some((Arrival::Closed { link: l, reason: LinkError::ClosedByPeer { code: STOPPED_CODE, .. } }, _)) if l == link));
    drop(host);
    let (_host, _guest, again) = pair(&network, Conditions::default(), Conditions::default());
    assert_ne!(again, link);
}

#[test]
fn with_a_rate_it_says_full_and_what_is_free() {
    let network = Network::new(1);
    let narrow = Conditions { rate: Some(10_000), queue: 5_000, ..Default::default() };
    let (mut host, mut guest, link) = pair(&network, narrow, Conditions::default());
    let mut taken = 0;
    while guest.send_datagram(START, link, &[0; 972]) == Ok(Delivery::Taken) {
        taken += 1;
    }
    assert_eq!((taken, guest.facts(link).map(|f| f.free)), (5, Some(0)));
    assert_eq!(all(&mut host, START + ms(100)).len(), 1);
    assert_eq!(guest.send_datagram(START + ms(100), link, &[0; 972]), Ok(Delivery::Taken), "a thousand bytes have left");
    let silent = Conditions { backpressure: false, ..narrow };
    network.set_conditions(link, Direction::Up, silent);
    assert_eq!(guest.send_datagram(START + ms(100), link, &[0; 972]), Ok(Delivery::Taken), "and is dropped on the way");
    assert_eq!(all(&mut host, START + ms(60_000)).len(), 5);
    assert_eq!(guest.stats(link).packets_lost, 1);
}

#[test]
fn nothing_is_allocated_per_packet_after_warm_up() {
    let network = Network::new(3);
    let rough = Conditions { latency: ms(40), jitter: ms(20), loss: 0.02, duplicate: 0.02, ..Default::default() };
    let (mut host, mut guest, link) = pair(&network, rough, rough);
    let mut payload = Vec::with_capacity(limits::MESSAGE_BYTES);
    let mut run = |from: u64, to: u64| {
        for i in from..to {
            let now = START + ms(16 * i);
            for end in [&mut host, &mut guest] {
                while end.poll(now, &mut payload).is_some() {}
                assert_eq!(end.send_datagram(now, link, &[7; 1200]), Ok(Delivery::Taken));
                assert_eq!(end.send_message(now, link, Lane::RELIABLE, &[7; 300]), Ok(Delivery::Taken));
            }
        }
        network.edit(link, Direction::Up, |net| net.counters().buffers)
    };
    let warm = run(0, 10_000);
    assert_eq!(run(10_000, 12_000), warm);
    assert!(warm < Some(400), "{warm:?} buffers for 24 000 packets");
}

#[test]
fn ends_may_sit_on_different_threads() {
    let network = Network::new(1);
    let (mut host, mut guest, link) = pair(&network, Conditions::default(), Conditions::default());
    let sender = std::thread::spawn(move || {
        for i in 0..5000u32 {
            while guest.send_message(START, link, Lane::RELIABLE, &i.to_le_bytes()) == Ok(Delivery::Full) {
                std::thread::yield_now();
            }
        }
        guest.close(START, link, 1, "");
    });
    let (mut expected, mut payload, mut ended) = (0u32, Vec::new(), false);
    while !ended {
        match host.poll(START, &mut payload) {
            Some(Arrival::Message { .. }) => {
                assert_eq!(payload, expected.to_le_bytes());
                expected += 1;
            }
            Some(Arrival::Closed { .. }) => ended = true,
            Some(other) => panic!("unexpected: {other:?}"),
            None => std::thread::yield_now(),
        }
    }
    sender.join().expect("the sender finished");
    assert_eq!(expected, 5000);
}
