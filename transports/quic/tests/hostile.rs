//! Peers that do not keep to the mapping, and games that do not poll: what it costs, and whom.

mod common;

use common::{End, GUEST, NOW, host, join, listen_config, localhost, open, pair, until};
use quinn::{Connection, ConnectionError, Endpoint, TransportConfig, VarInt};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidelock_netcore::error::LinkError;
use tidelock_netcore::limits;
use tidelock_netcore::transport::{Delivery, Lane, Transport};
use tidelock_quic::{Identity, ListenConfig};
use tokio::runtime::Runtime;

/// A QUIC client that does what it is told, on a runtime of its own.
struct Raw {
    runtime: Runtime,
    endpoint: Endpoint,
}

impl Raw {
    fn new(identity: &Identity, alpn: &[u8], transport: TransportConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(identity.certificate_der().to_vec().into()).unwrap();
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![alpn.to_vec()];
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let _inside = runtime.enter();
        let mut endpoint = Endpoint::client(localhost()).unwrap();
        endpoint.set_default_client_config(config);
        drop(_inside);
        Self { runtime, endpoint }
    }

    fn connect(&self, host: &End) -> Result<Connection, ConnectionError> {
        let to = host.transport.local_addr().unwrap();
        self.runtime.block_on(async { self.endpoint.connect(to, "tidelock").unwrap().await })
    }

    fn send_stream(&self, connection: &Connection, bytes: &[u8], finish: bool) {
        self.runtime.block_on(async {
            let mut stream = connection.open_uni().await.unwrap();
            // The host may have ended the link already.
            let _ = stream.write_all(bytes).await;
            if finish {
                let _ = stream.finish();
            } else {
                // Dropping it would finish it.
                std::mem::forget(stream);
            }
        });
    }
}

fn rigged_host() -> (End, Identity) {
    let identity = Identity::generate().unwrap();
    (host(ListenConfig::new(localhost(), identity.clone())), identity)
}

#[test]
fn a_peer_that_breaks_the_mapping_loses_its_link_and_nobody_else_does() {
    let (mut host, identity) = rigged_host();
    let mut guest = join(&host.transport.address());
    let good = open(&mut host, &mut guest);
    let oversize = [&[1][..], &(limits::MESSAGE_BYTES as u32 + 1).to_le_bytes()].concat();
    let cases: [(&str, &[&[u8]], bool); 13] = [
        ("there is no lane 4", &[&[Lane::COUNT]], false),
        ("there is no lane 254", &[&[254, 0, 0, 0, 0]], false),
        ("16385 bytes", &[&oversize], false),
        ("4294967295 bytes", &[&[0, 255, 255, 255, 255]], false),
        ("second stream", &[&[1, 0, 0, 0, 0], &[1, 0, 0, 0, 0]], false),
        ("more than one message", &[&[3, 1, 0, 0, 0, 7, 1, 0, 0, 0, 8]], true),
        ("more than one message", &[&[3, 0, 0, 0, 0, 0]], false),
        ("within a message", &[&[3, 5, 0, 0, 0, 1, 2]], true),
        ("names no lane", &[&[]], true),
        ("within a message", &[&[0, 5, 0, 0, 0, 1, 2]], true),
        ("within a message", &[&[0, 5, 0]], true),
        ("without a code", &[&[255, 1, 2]], true),
        ("too long", &[&[255; 600]], true),
    ];
    for (number, (words, streams, finish)) in cases.into_iter().enumerate() {
        let raw = Raw::new(&identity, b"tidelock/1", TransportConfig::default());
        let connection = raw.connect(&host).unwrap();
        for bytes in streams {
            raw.send_stream(&connection, bytes, finish);
        }
        until(words, &mut [&mut host, &mut guest], |ends| ends[0].closed().len() > number);
        let (link, reason) = host.closed().pop().unwrap();
        assert_ne!(link, good);
        assert!(matches!(&reason, LinkError::Failed(text) if text.contains(words)), "{reason:?} is not {words:?}");
        match raw.runtime.block_on(connection.closed()) {
            ConnectionError::ApplicationClosed(close) => {
                assert_eq!(close.error_code, VarInt::from_u64((1 << 32) + 2).unwrap());
                assert!(String::from_utf8_lossy(&close.reason).contains(words));
            }
            other => panic!("{other:?}"),
        }
    }
    guest.say(GUEST, Lane::CONTROL, b"unharmed");
    until("the good guest", &mut [&mut host, &mut guest], |ends| ends[0].messages(good, Lane::CONTROL) == [b"unharmed"]);
}

#[test]
fn streams_both_ways_are_not_granted() {
    let (mut host, identity) = rigged_host();
    let raw = Raw::new(&identity, b"tidelock/1", TransportConfig::default());
    let connection = raw.connect(&host).unwrap();
    until("the link", &mut [&mut host], |ends| ends[0].opened().len() == 1);
    let granted =
        raw.runtime.block_on(async { tokio::time::timeout(Duration::from_millis(300), connection.open_bi()).await.is_ok() });
    assert!(!granted);
    let fourth = raw.runtime.block_on(async {
        let mut granted = Vec::new();
        for _ in 0..u32::from(Lane::COUNT) + 64 {
            granted.push(connection.open_uni().await.unwrap());
        }
        tokio::time::timeout(Duration::from_millis(300), connection.open_uni()).await.is_ok()
    });
    assert!(!fourth, "one stream for each ordered lane, 64 for messages without order, and one for the goodbye, no more");
}

#[test]
fn a_peer_without_datagrams_or_with_another_protocol_does_not_get_in() {
    let (mut host, identity) = rigged_host();
    let raw = Raw::new(&identity, b"something else", TransportConfig::default());
    assert!(matches!(raw.connect(&host), Err(ConnectionError::ConnectionClosed(_))));

    let mut without = TransportConfig::default();
    without.datagram_receive_buffer_size(None);
    let raw = Raw::new(&identity, b"tidelock/1", without);
    let connection = raw.connect(&host).unwrap();
    assert!(matches!(raw.runtime.block_on(connection.closed()), ConnectionError::ApplicationClosed(_)));
    host.pump();
    assert_eq!(host.log, []);
}

#[test]
fn a_guest_is_told_that_the_host_speaks_another_protocol() {
    // A host of some other kind: same certificate, another ALPN.
    let identity = Identity::generate().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![identity.certificate_der().to_vec().into()],
            rustls::pki_types::PrivatePkcs8KeyDer::from(identity.key_der().to_vec()).into(),
        )
        .unwrap();
    tls.alpn_protocols = vec![b"tidelock/999".to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let _inside = runtime.enter();
    let endpoint = Endpoint::server(quinn::ServerConfig::with_crypto(Arc::new(crypto)), localhost()).unwrap();
    let address = endpoint.local_addr().unwrap();
    runtime.spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let _ = incoming.await;
        }
    });
    let mut guest = join(&format!("{address}#{}", identity.fingerprint()));
    until("the refusal", &mut [&mut guest], |ends| !ends[0].closed().is_empty());
    assert!(matches!(&guest.closed()[0].1, LinkError::Version(text) if text.contains("tidelock/1")), "{:?}", guest.closed());
}

#[test]
fn a_game_that_stalls_costs_neither_its_links_nor_anyone_elses() {
    let mut config = listen_config();
    config.timing = tidelock_quic::Timing { keep_alive: Duration::from_millis(200), idle: Duration::from_millis(1000) };
    let mut host = host(config);
    let (mut stalled, mut lively) = (join(&host.transport.address()), join(&host.transport.address()));
    until("both", &mut [&mut host, &mut stalled, &mut lively], |ends| {
        ends[0].opened().len() == 2 && ends[1].opened().len() == 1 && ends[2].opened().len() == 1
    });
    stalled.say(GUEST, Lane::CONTROL, b"me");
    until("the name", &mut [&mut host, &mut stalled], |ends| {
        let links = ends[0].opened();
        links.iter().any(|link| !ends[0].messages(*link, Lane::CONTROL).is_empty())
    });
    let links = host.opened();
    let (slow, quick) = match host.messages(links[0], Lane::CONTROL).is_empty() {
        true => (links[1], links[0]),
        false => (links[0], links[1]),
    };
    // From here on the stalled guest does not poll, for twice the idle time; both are flooded.
    let start = Instant::now();
    let mut datagrams = 0u64;
    while start.elapsed() < Duration::from_millis(2000) {
        let _ = host.transport.send_message(NOW, slow, Lane::RELIABLE, &[1; 10_000]).unwrap();
        if host.transport.send_datagram(NOW, slow, &[&[0][..], datagrams.to_string().as_bytes()].concat()).unwrap()
            == Delivery::Taken
        {
            datagrams += 1;
        }
        let _ = host.transport.send_message(NOW, quick, Lane::RELIABLE, &[2; 1000]).unwrap();
        host.pump();
        lively.pump();
        std::thread::yield_now();
    }
    let got = lively.messages(GUEST, Lane::RELIABLE).len();
    assert!(got > 500, "the other link came to a halt: {got}");
    assert_eq!(host.closed(), [], "keep-alive does not need the game");
    let dropped = stalled.transport.datagrams_dropped(GUEST);
    assert!(dropped > 0, "of {datagrams}");
    // What is left are datagrams of the last moment, and not of the first, and all messages in order. How many came in that moment and
    // found no room is for the machine to say: a thread that did not run for a while reads a great many at once.
    stalled.pump();
    let first: u64 = String::from_utf8(stalled.datagrams(GUEST)[0][1..].to_vec()).unwrap().parse().unwrap();
    assert!(first * 2 > datagrams, "{first} is of long ago: there were {datagrams}, of which {dropped} were dropped");
    host.say(quick, Lane::CONTROL, b"done");
    until("the rest", &mut [&mut host, &mut lively], |ends| ends[1].messages(GUEST, Lane::CONTROL) == [b"done"]);
    assert_eq!(stalled.closed(), []);
}

#[test]
fn a_host_that_stalls_keeps_its_guests_and_hears_of_all_of_them_later() {
    let mut config = listen_config();
    config.limits.total = 3;
    let mut host = host(config);
    // They come and go while the host does not poll: each keeps its seat until the game has heard of it.
    for _ in 0..3 {
        let mut guest = join(&host.transport.address());
        until("it to open", &mut [&mut guest], |ends| !ends[0].opened().is_empty());
        guest.say(GUEST, Lane::RELIABLE, b"hello and goodbye");
    }
    let mut fourth = join(&host.transport.address());
    until("the refusal", &mut [&mut fourth], |ends| !ends[0].closed().is_empty());
    assert!(matches!(fourth.closed()[0].1, LinkError::Full(_)));
    until("all three", &mut [&mut host], |ends| ends[0].closed().len() == 3);
    for link in host.opened() {
        assert_eq!(host.messages(link, Lane::RELIABLE), [b"hello and goodbye"]);
    }
}

#[test]
fn one_pass_of_polling_ends_while_a_peer_floods() {
    let (mut host, mut guest, link) = pair();
    let running = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while running.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = guest.transport.send_datagram(NOW, GUEST, &[3; 100]).unwrap();
            }
        });
        let mut payload = Vec::new();
        let mut passes = 0;
        let start = Instant::now();
        while passes < 50 {
            let mut arrivals = 0;
            while host.transport.poll(NOW, &mut payload).is_some() {
                arrivals += 1;
                // A slow game, so that more always comes meanwhile.
                let busy = Instant::now();
                while busy.elapsed() < Duration::from_micros(50) {}
                assert!(arrivals <= 1000, "this pass does not end");
            }
            passes += 1;
            assert!(start.elapsed() < common::DEADLINE);
        }
        running.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(host.transport.facts(link).is_some());
}
