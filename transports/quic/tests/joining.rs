//! Who comes in, and what those are told who do not.

mod common;

use common::{End, GUEST, host, join, listen_config, localhost, open, until};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::transport::Transport;
use tidelock_quic::shim::{Direction, Shim, ShimConfig};
use tidelock_quic::{AddressError, Identity, JoinConfig, JoinError, ListenConfig, QuicTransport};

/// Waits until the guest's attempt has failed, and gives the reason.
fn failure(guest: &mut End) -> LinkError {
    until("the attempt to fail", &mut [guest], |ends| !ends[0].closed().is_empty());
    assert_eq!(guest.opened(), [], "it never was open");
    let (link, reason) = guest.closed().remove(0);
    assert_eq!(link, GUEST);
    assert_eq!(guest.transport.facts(GUEST), None);
    reason
}

#[test]
fn a_wrong_fingerprint_is_told_as_that() {
    let host = host(listen_config());
    let other = Identity::generate().unwrap().fingerprint();
    let mut guest = join(&format!("{}#{other}", host.transport.local_addr().unwrap()));
    let shown = host.transport.fingerprint();
    assert!(matches!(failure(&mut guest), LinkError::Certificate(text) if text.contains(&shown)));
}

#[test]
fn an_identity_that_was_saved_keeps_the_address_and_a_rotated_one_changes_it() {
    let identity = Identity::generate().unwrap();
    let saved = Identity::from_der(identity.certificate_der().to_vec(), identity.key_der().to_vec()).unwrap();
    let mut host = host(ListenConfig::new(localhost(), saved));
    assert_eq!(host.transport.fingerprint(), identity.fingerprint().to_string());
    let mut first = join(&host.transport.address());
    open(&mut host, &mut first);
    let old = host.transport.address();
    host.transport.rotate(&Identity::generate().unwrap()).unwrap();
    assert_ne!(host.transport.address(), old);
    assert!(matches!(failure(&mut join(&old)), LinkError::Certificate(_)));
    let mut second = join(&host.transport.address());
    open(&mut host, &mut second);
    assert_eq!(first.closed(), [], "open links stay");
}

#[test]
fn a_taken_port_is_told_with_words() {
    let host = host(listen_config());
    let taken = host.transport.local_addr().unwrap();
    match QuicTransport::listen(ListenConfig { addr: taken, ..listen_config() }).err() {
        Some(TransportError::Broken(text)) => {
            assert!(
                text.contains(&taken.port().to_string()) && text.contains("taken") && text.contains("choose another"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    let foreign = QuicTransport::listen(ListenConfig { addr: "192.0.2.1:0".parse().unwrap(), ..listen_config() }).err();
    assert!(matches!(&foreign, Some(TransportError::Broken(text)) if text.contains("no address of this machine")), "{foreign:?}");
}

#[test]
fn nobody_listening_is_refused_and_silence_times_out() {
    let free = UdpSocket::bind(localhost()).unwrap().local_addr().unwrap();
    let hex = Identity::generate().unwrap().fingerprint();
    let reason = failure(&mut join(&format!("{free}#{hex}")));
    // Where the system does not tell of ICMP, silence is all that is seen.
    let expected =
        if cfg!(target_os = "linux") { matches!(reason, LinkError::Refused(_)) } else { reason == LinkError::TimedOut };
    assert!(expected, "{reason:?}");

    let silent = UdpSocket::bind(localhost()).unwrap();
    let config = JoinConfig { deadline: Duration::from_millis(700), ..JoinConfig::default() };
    let target = format!("{}#{hex}", silent.local_addr().unwrap());
    assert_eq!(failure(&mut End::new(QuicTransport::join(&target, config).unwrap())), LinkError::TimedOut);
}

#[test]
fn addresses_that_are_none_are_refused_at_once_and_unknown_names_are_unreachable() {
    let parse = |text: &str| QuicTransport::join(text, JoinConfig::default()).err();
    assert_eq!(parse("127.0.0.1:1"), Some(JoinError::Address(AddressError::NoFingerprint)));
    assert_eq!(parse("127.0.0.1:1#ab"), Some(JoinError::Address(AddressError::FingerprintLength(2))));
    let hex = Identity::generate().unwrap().fingerprint();
    let reason = failure(&mut join(&format!("no-such-name.invalid:4433#{hex}")));
    assert!(matches!(&reason, LinkError::Unreachable(text) if text.contains("name")), "{reason:?}");
}

#[test]
fn a_host_name_tries_every_family_until_one_connects() {
    // "localhost" may lead to ::1 first; this host is on IPv4 only.
    let mut host = host(listen_config());
    let target = format!("localhost:{}#{}", host.transport.local_addr().unwrap().port(), host.transport.fingerprint());
    let mut guest = join(&target);
    open(&mut host, &mut guest);
}

#[test]
fn ipv6_alone_and_both_families_at_the_wildcard() {
    let ipv6 = |addr: &str| ListenConfig { addr: addr.parse().unwrap(), ..listen_config() };
    let mut alone = host(ipv6("[::1]:0"));
    let mut guest = join(&alone.transport.address());
    let link = open(&mut alone, &mut guest);
    let overhead = |end: &End, link| end.transport.facts(link).unwrap().datagram_overhead;
    assert_eq!(overhead(&alone, link), 80);

    let mut both = host(ipv6("[::]:0"));
    let (port, hex) = (both.transport.local_addr().unwrap().port(), both.transport.fingerprint());
    for ip in ["127.0.0.1", "[::1]"] {
        let mut guest = join(&format!("{ip}:{port}#{hex}"));
        let link = open(&mut both, &mut guest);
        assert_eq!(overhead(&both, link), if ip == "[::1]" { 80 } else { 60 });
        assert_eq!(overhead(&guest, GUEST), if ip == "[::1]" { 80 } else { 60 });
    }
}

#[test]
fn a_full_house_says_so_and_has_room_when_the_game_has_seen_somebody_leave() {
    for total in [true, false] {
        let mut config = listen_config();
        (config.limits.total, config.limits.per_address) = if total { (2, 64) } else { (64, 2) };
        let mut host = host(config);
        let address = host.transport.address();
        let mut first = join(&address);
        open(&mut host, &mut first);
        let mut second = join(&address);
        open(&mut host, &mut second);
        assert!(matches!(failure(&mut join(&address)), LinkError::Full(_)));
        drop(first);
        until("the end", &mut [&mut host], |ends| ends[0].closed().len() == 1);
        let mut third = join_when_there_is_room(&address);
        until("the third", &mut [&mut host, &mut third], |ends| ends[0].opened().len() == 3);
    }
}

/// The seat is free a moment after the game has seen the end.
fn join_when_there_is_room(address: &str) -> End {
    let start = Instant::now();
    loop {
        let mut guest = join(address);
        until("an answer", &mut [&mut guest], |ends| !ends[0].log.is_empty());
        if guest.closed().is_empty() {
            return guest;
        }
        assert!(start.elapsed() < common::DEADLINE, "{:?}", guest.log);
    }
}

#[test]
fn too_many_handshakes_wait_until_there_is_room() {
    let mut config = listen_config();
    (config.limits.pending, config.limits.handshake) = (1, Duration::from_secs(2));
    let mut host = host(config);
    let shim = Shim::start(host.transport.local_addr().unwrap(), ShimConfig::default()).unwrap();
    let deaf = ShimConfig { loss: 1.0, ..ShimConfig::default() };
    shim.set_direction(Direction::Down, deaf);
    let mut stuck = join(&format!("{}#{}", shim.addr(), host.transport.fingerprint()));
    until("the host to answer the first hello", &mut [&mut stuck], |_| shim.counters(Direction::Down).received > 0);
    shim.set(deaf);

    // The only place is taken: one guest gives up, another has the time to wait.
    let hasty = JoinConfig { deadline: Duration::from_millis(500), ..JoinConfig::default() };
    let mut hasty = End::new(QuicTransport::join(&host.transport.address(), hasty).unwrap());
    assert_eq!(failure(&mut hasty), LinkError::TimedOut);
    let mut patient = join(&host.transport.address());
    open(&mut host, &mut patient);
}

#[test]
fn a_guest_proves_its_address_when_asked() {
    let mut config = listen_config();
    config.limits.retry_from = 0;
    let mut host = host(config);
    let shim = Shim::start(host.transport.local_addr().unwrap(), ShimConfig::default()).unwrap();
    let mut guest = join(&format!("{}#{}", shim.addr(), host.transport.fingerprint()));
    open(&mut host, &mut guest);
}

#[test]
fn a_handshake_gets_through_losses() {
    const SEED: u64 = 7;
    let mut config = listen_config();
    config.limits.handshake = Duration::from_secs(20);
    let mut host = host(config);
    let lossy = ShimConfig { loss: 0.25, seed: SEED, ..ShimConfig::default() };
    let shim = Shim::start(host.transport.local_addr().unwrap(), lossy).unwrap();
    let target = format!("{}#{}", shim.addr(), host.transport.fingerprint());
    let patient = JoinConfig { deadline: Duration::from_secs(20), ..JoinConfig::default() };
    for _ in 0..5 {
        let mut guest = End::new(QuicTransport::join(&target, patient).unwrap());
        open(&mut host, &mut guest);
    }
    let lost = shim.counters(Direction::Up).lost + shim.counters(Direction::Down).lost;
    assert!(lost > 0, "SEED={SEED}");
}

#[test]
fn a_guest_can_give_up_before_it_is_in() {
    let silent = UdpSocket::bind(localhost()).unwrap();
    let target = format!("{}#{}", silent.local_addr().unwrap(), Identity::generate().unwrap().fingerprint());
    let mut guest = join(&target);
    guest.transport.close(Duration::ZERO, GUEST, 1, "never mind");
    guest.pump();
    assert_eq!(guest.log, []);
    let start = Instant::now();
    drop(guest);
    assert!(start.elapsed() < Duration::from_millis(1500));
}
