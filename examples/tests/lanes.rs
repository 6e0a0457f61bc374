//! Messages of every sort and size between two peers over QUIC, on a real socket of this machine.

use std::time::{Duration, Instant};
use tidelock::netcore::limits;
use tidelock::policy::Host;
use tidelock::{Config, Defined, LargeMessage, News, Peer, PeerId, Replicate, Request, Schema, To, UsageError};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};

macro_rules! of_every_size {
    ($($none:ident $most:ident),*) => { $(
        #[derive(Debug, PartialEq, Replicate)]
        struct $none;
        #[derive(Debug, PartialEq, Replicate)]
        struct $most {
            #[net(max = 512)]
            text: String,
            #[net(max = 340)]
            more: String,
        }
        impl $most {
            fn full() -> Self {
                Self { text: "x".repeat(512), more: "y".repeat(340) }
            }
        }
    )* };
}
of_every_size!(Ordered0 Ordered, Unordered0 Unordered, Loose0 Loose, Sequenced0 Sequenced, Event0 Event, Ask0 Ask);

#[derive(Debug, PartialEq)]
struct Large(Vec<u8>);

impl LargeMessage for Large {
    fn to_bytes(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.to_vec()))
    }
}

impl Request for Ask {
    type Reply = Ask0;
}

#[derive(Clone, Copy, Default)]
struct Pawn;

fn schema() -> Schema {
    let schema = Schema::builder("lanes").kind::<Pawn>("pawn", Host::default());
    let schema = schema.message::<Ordered0>("ordered0").message::<Ordered>("ordered");
    let schema = schema.unordered_message::<Unordered0>("unordered0").unordered_message::<Unordered>("unordered");
    let schema = schema.unreliable_message::<Loose0>("loose0").unreliable_message::<Loose>("loose");
    let schema = schema.sequenced_message::<Sequenced0>("sequenced0").sequenced_message::<Sequenced>("sequenced");
    let schema = schema.event::<Event0>("event0").event::<Event>("event").request::<Ask>("ask");
    schema.large_message::<Large>("large").definition::<Vec<u8>>("outfit").build().unwrap()
}

/// The peers and their worlds, driven frame by frame in real time.
struct Ends {
    peers: Vec<(Peer, hecs::World)>,
    start: Instant,
}

impl Ends {
    fn frame(&mut self) {
        let now = self.start.elapsed();
        for (peer, world) in &mut self.peers {
            peer.receive(now, world).unwrap();
            while peer.next_step(world).is_some() {}
            peer.send(now, world).unwrap();
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Vec<(Peer, hecs::World)>) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done(&mut self.peers) {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            self.frame();
            std::thread::yield_now();
        }
    }
}

fn ends() -> Ends {
    let listen = ListenConfig::new("127.0.0.1:0".parse().unwrap(), Identity::generate().unwrap());
    let host = QuicTransport::listen(listen).unwrap();
    let guest = QuicTransport::join(&host.address(), JoinConfig::default()).unwrap();
    let config = Config { bandwidth: 64_000_000, ..Config::default() };
    let host = Peer::host(schema(), host, config.clone()).unwrap();
    let guest = Peer::join(schema(), guest, config).unwrap();
    let peers = vec![(host, hecs::World::new()), (guest, hecs::World::new())];
    let mut ends = Ends { peers, start: Instant::now() };
    ends.until("the guest to be in", |peers| {
        let (guest, _) = &mut peers[1];
        std::iter::from_fn(|| guest.poll_news()).any(|news| matches!(news, News::Admitted { .. }))
    });
    ends
}

#[test]
fn nothing_and_the_most_on_every_lane() {
    let mut ends = ends();
    for at in 0..2 {
        let (peer, world) = &mut ends.peers[at];
        let to = if at == 0 { To::All } else { To::Host };
        for _ in 0..20 {
            peer.send_message(world, to, &Ordered0).unwrap();
            peer.send_message(world, to, &Ordered::full()).unwrap();
            peer.send_message(world, to, &Unordered0).unwrap();
            peer.send_message(world, to, &Unordered::full()).unwrap();
            peer.send_message(world, to, &Event0).unwrap();
            peer.send_message(world, to, &Event::full()).unwrap();
        }
        let other = if at == 0 { PeerId(1) } else { PeerId::HOST };
        peer.request(world, other, &Ask::full()).unwrap();
    }
    let mut came = [[0; 6]; 2];
    ends.until("all that is reliable", |peers| {
        for (came, (peer, _)) in came.iter_mut().zip(peers) {
            came[0] += peer.messages::<Ordered0>().unwrap().len();
            came[2] += peer.messages::<Unordered0>().unwrap().len();
            came[4] += peer.events::<Event0>().unwrap().len();
            let full = peer.messages::<Ordered>().unwrap();
            came[1] += full.iter().filter(|(_, m)| *m == Ordered::full()).count();
            let full = peer.messages::<Unordered>().unwrap();
            came[3] += full.iter().filter(|(_, m)| *m == Unordered::full()).count();
            let full = peer.events::<Event>().unwrap();
            came[5] += full.iter().filter(|e| e.value == Event::full()).count();
        }
        came.iter().flatten().all(|count| *count >= 20)
    });
    assert!(came.iter().flatten().all(|count| *count == 20), "{came:?}");
    let mut replies = 0;
    ends.until("both replies", |peers| {
        for (peer, world) in peers {
            for (_, id, ask) in peer.requests::<Ask>().unwrap() {
                assert_eq!(ask, Ask::full());
                peer.reply(world, id, &Ask0).unwrap();
            }
            replies += peer.replies::<Ask>().unwrap().len();
        }
        replies == 2
    });
    // those that may be lost are said until they come
    for at in 0..2 {
        let (mut none, mut most) = ([false; 2], [false; 2]);
        ends.until("one of each that may be lost", |peers| {
            let to = if at == 0 { To::All } else { To::Host };
            let (from, world) = &mut peers[at];
            from.send_message(world, to, &Loose0).unwrap();
            from.send_message(world, to, &Loose::full()).unwrap();
            from.send_message(world, to, &Sequenced0).unwrap();
            from.send_message(world, to, &Sequenced::full()).unwrap();
            let (to, _) = &mut peers[1 - at];
            none[0] |= !to.messages::<Loose0>().unwrap().is_empty();
            none[1] |= !to.messages::<Sequenced0>().unwrap().is_empty();
            most[0] |= to.messages::<Loose>().unwrap().iter().any(|(_, m)| *m == Loose::full());
            most[1] |= to.messages::<Sequenced>().unwrap().iter().any(|(_, m)| *m == Sequenced::full());
            none == [true; 2] && most == [true; 2]
        });
    }
}

#[test]
fn large_ones_of_no_byte_and_of_the_most_and_none_of_more() {
    let mut ends = ends();
    let content = |size: usize| Large((0..size).map(|i| (i as u32).wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect());
    let sizes: Vec<usize> = [0, 30_000, limits::LARGE_BYTES].into_iter().chain(std::iter::repeat_n(10, 100)).collect();
    for at in 0..2 {
        let (peer, world) = &mut ends.peers[at];
        let to = if at == 0 { To::All } else { To::Host };
        let size = limits::LARGE_BYTES + 1;
        let refused = peer.send_large(world, to, &content(size));
        assert_eq!(refused, Err(UsageError::TooLarge { what: "a large message", size, limit: limits::LARGE_BYTES }));
        for size in &sizes {
            peer.send_large(world, to, &content(*size)).unwrap();
        }
        for _ in 0..100 {
            peer.send_message(world, to, &Ordered0).unwrap();
        }
    }
    let (mut came, mut small) = ([Vec::new(), Vec::new()], [0; 2]);
    ends.until("all large ones and the small ones", |peers| {
        for (at, (peer, _)) in peers.iter_mut().enumerate() {
            came[at].extend(peer.large_messages::<Large>().unwrap().into_iter().map(|(_, large)| large));
            small[at] += peer.messages::<Ordered0>().unwrap().len();
        }
        came.iter().all(|came| came.len() >= sizes.len()) && small == [100; 2]
    });
    for came in came {
        assert!(came.iter().eq(sizes.iter().map(|size| content(*size)).collect::<Vec<_>>().iter()), "whole and in order");
    }
}

/// Case 12 of the faults: definitions of 30 kB and of exactly the limit come whole, each with small messages behind it; one byte
/// more is an error at the call.
#[test]
fn definitions_up_to_the_limit_and_none_beyond() {
    let mut ends = ends();
    let content = |size: usize, seed: u32| -> Vec<u8> {
        (0..size as u32).map(|i| (i ^ seed).wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect()
    };
    let (host, _) = &mut ends.peers[0];
    // what goes with it as it travels is told by the error
    let most = limits::DEFINITION_BYTES;
    let beside = match host.define(9, content(most, 9)) {
        Err(UsageError::TooLarge { what: "a definition", size, limit }) if limit == most => size - most,
        other => panic!("{other:?}"),
    };
    assert!((1..100).contains(&beside));
    let refused = host.define(9, content(most - beside + 1, 9));
    assert_eq!(refused, Err(UsageError::TooLarge { what: "a definition", size: most + 1, limit: most }));
    for (key, size) in [(1, 30_000), (2, most - beside), (3, 0)] {
        let (host, world) = &mut ends.peers[0];
        let named = host.define(u64::from(key), content(size, key)).unwrap();
        for _ in 0..100 {
            host.send_message(world, To::All, &Ordered0).unwrap();
        }
        let mut small = 0;
        ends.until("a definition, and the small ones behind it", |peers| {
            let guest = &mut peers[1].0;
            small += guest.messages::<Ordered0>().unwrap().len();
            small >= 100 && matches!(guest.definition(named).unwrap(), Defined::Exact(_))
        });
        let found = ends.peers[1].0.definition(named).unwrap();
        assert!(found.value().is_some_and(|value| **value == content(size, key)), "{size} bytes, whole");
        assert_eq!(small, 100);
    }
    assert_eq!(ends.peers[1].0.newest_definition::<Vec<u8>>(9), Ok(None), "nothing of what was refused has come");
    assert!(ends.peers.iter().all(|(peer, _)| peer.is_in_session()));
}
