//! Peers that keep to the protocol badly, or only slowly: what they do costs them, and nobody else.

mod common;

use common::{Crate, Health, Player, Position, Relic, assert_settles, table, table_of, table_with, weather};
use hecs::{Entity, World};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidelock::netcore::control::{self, Control, Digest, Verdict};
use tidelock::netcore::emulator::Fate;
use tidelock::netcore::error::{DisconnectReason, PeerError, TransportError};
use tidelock::netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};
use tidelock::policy::Owner;
use tidelock::testing::Table;
use tidelock::{Config, News, Peer, PeerId, Replicate, Schema, To, UsageError};
use tidelock_loopback::{Direction, Loopback, Network};

#[derive(Clone, Copy, Default)]
struct Thing;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Weight(u16);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Order {
    target: Entity,
    number: u32,
}

/// The same on the wire, in a build of the game that does not mind whether there is a target.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Careless {
    target: Option<Entity>,
    number: u32,
}

fn orders<M: Replicate>() -> Schema {
    let weighed = Schema::builder("orders").component::<Weight>("weight", |c| c);
    weighed.kind::<Thing>("thing", Owner::default()).message::<M>("order").build().unwrap()
}

/// A host and guests, each with a schema of its own.
struct Room {
    nodes: Vec<(Peer, World, Vec<News>)>,
    now: Duration,
    seed: u64,
}

impl Room {
    fn new(seed: u64, host: &Schema, guests: &[&Schema]) -> Self {
        let network = Network::new(seed);
        let mut peers = vec![Peer::host(host.clone(), network.host(), Config::default()).unwrap()];
        for &schema in guests {
            let calm = weather(20, 0.0);
            peers.push(Peer::join(schema.clone(), network.join(calm, calm), Config::default()).unwrap());
        }
        let nodes = peers.into_iter().map(|peer| (peer, World::new(), Vec::new())).collect();
        let mut room = Self { nodes, now: Duration::ZERO, seed };
        while !room.nodes.iter().all(|n| n.0.is_in_session()) {
            room.run(1);
            assert!(room.now < Duration::from_secs(10), "SEED={seed}: not admitted");
        }
        room
    }

    fn run(&mut self, frames: u32) {
        for _ in 0..frames {
            self.now += Duration::from_micros(16_667);
            for (peer, world, news) in &mut self.nodes {
                peer.receive(self.now, world).unwrap();
                while peer.next_step(world).is_some() {}
                peer.send(self.now, world).unwrap();
                news.extend(std::iter::from_fn(|| peer.poll_news()));
            }
        }
    }
}

/// An entity without a name cannot be named: the sender is told, and later messages arrive.
#[test]
fn a_message_that_names_nobody_is_refused_at_the_call() {
    let mut room = Room::new(1, &orders::<Order>(), &[&orders::<Order>()]);
    let seed = room.seed;
    let (guest, world, _) = &mut room.nodes[1];
    let local = world.spawn((Thing,));
    let gone = guest.spawn(world, Thing, (Weight(1),)).unwrap();
    guest.despawn(world, gone).unwrap();
    let target = guest.spawn(world, Thing, (Weight(1),)).unwrap();
    for nobody in [local, gone] {
        let told = guest.send_message(world, To::Host, &Order { target: nobody, number: 1 });
        assert!(matches!(told, Err(UsageError::NamesNobody(_))), "SEED={seed}: {told:?}");
    }
    guest.send_message(world, To::Host, &Order { target, number: 2 }).unwrap();
    room.run(60);
    let numbers: Vec<u32> = room.nodes[0].0.messages::<Order>().unwrap().iter().map(|m| m.1.number).collect();
    assert_eq!(numbers, [2], "SEED={seed}");
}

/// The same from a build that sends it all the same: it is dropped when it comes, and holds up nothing.
#[test]
fn a_message_that_names_nobody_is_dropped_when_it_comes() {
    let (strict, careless) = (orders::<Order>(), orders::<Careless>());
    let mut room = Room::new(2, &strict, &[&careless]);
    let seed = room.seed;
    let (guest, world, _) = &mut room.nodes[1];
    let target = Some(guest.spawn(world, Thing, (Weight(1),)).unwrap());
    for (target, number) in [(None, 1), (target, 2), (None, 3), (target, 4)] {
        guest.send_message(world, To::Host, &Careless { target, number }).unwrap();
    }
    room.run(60);
    let (host, _, news) = &mut room.nodes[0];
    let numbers: Vec<u32> = host.messages::<Order>().unwrap().iter().map(|m| m.1.number).collect();
    assert_eq!(numbers, [2, 4], "SEED={seed}");
    let told = news.iter().filter(|n| matches!(n, News::MessageDropped { from: PeerId(1), message } if message == "order"));
    assert_eq!(told.count(), 2, "SEED={seed}");
    assert_eq!(host.stats(PeerId(1)).unwrap().link.dropped_messages, 2, "SEED={seed}");
}

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Load {
    #[net(max = 512)]
    text: String,
}

/// What waits on the game's lane neither holds up the control lane nor takes its room, and is told at the call.
#[test]
fn a_full_lane_of_the_game_leaves_control_alone() {
    let seed = 3;
    let calm = weather(20, 0.0);
    let schema = Schema::builder("loads").component::<Weight>("weight", |c| c).kind::<Thing>("thing", Owner::default());
    let schema = schema.message::<Load>("load").build().unwrap();
    let (mut table, network) = table_of(seed, &schema, 1, calm, &Config::default());
    let link = network.links()[0];
    network.edit(link, Direction::Down, |net| net.hold_lane(table.now, Lane::RELIABLE, true)).unwrap();
    let mut sent = 0;
    // once into the transport's queue, once into the one before it
    for _ in 0..2 {
        let host = table.seat(0);
        let told = loop {
            match host.peer.send_message(&host.world, To::Peer(PeerId(1)), &Load { text: "x".repeat(500) }) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(told, UsageError::Backlog, "SEED={seed} after {sent}");
        table.rest(1);
    }
    table.seat(1).take_news();
    table.join(Config::default(), network.join(calm, calm)).unwrap();
    table.rest(30);
    let host = table.seat(0);
    host.peer.compare(&host.world).unwrap();
    table.rest(30);
    let guest = table.seat(1);
    assert!(guest.peer.is_in_session(), "SEED={seed}: {:?}", guest.peer.ended());
    let news = guest.take_news();
    assert!(news.iter().any(|n| matches!(n, News::Joined { peer: PeerId(2), .. })), "SEED={seed}: {news:?}");
    assert!(news.iter().any(|n| matches!(n, News::Compared { .. })), "SEED={seed}: {news:?}");
    assert_eq!(guest.peer.messages::<Load>().unwrap().len(), 0, "SEED={seed}: the lane is held");
    network.edit(link, Direction::Down, |net| net.hold_lane(table.now, Lane::RELIABLE, false)).unwrap();
    let mut came = 0;
    for _ in 0..120 {
        table.rest(1);
        came += table.seat(1).peer.messages::<Load>().unwrap().len();
    }
    assert_eq!(came, sent, "SEED={seed}");
}

/// A guest's end of a link that also says what nobody asked it to say.
struct Meddler {
    inner: Loopback,
    link: LinkId,
    words: Arc<Mutex<Vec<Control>>>,
}

impl Transport for Meddler {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        self.inner.poll(now, payload)
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        self.inner.facts(link)
    }

    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.inner.send_datagram(now, link, bytes)
    }

    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.inner.send_message(now, link, lane, bytes)
    }

    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        self.inner.close(now, link, code, text);
    }

    fn flush(&mut self, now: Duration) {
        for message in self.words.lock().unwrap().drain(..) {
            let mut bytes = Vec::new();
            control::encode(&message, &mut bytes);
            assert_eq!(self.inner.send_message(now, self.link, Lane::CONTROL, &bytes), Ok(Delivery::Taken));
        }
        self.inner.flush(now);
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        self.inner.stats(link)
    }
}

/// A table with an honest guest and one whose control lane says what is put into the list.
fn meddled(seed: u64) -> (Table, Arc<Mutex<Vec<Control>>>) {
    let calm = weather(20, 0.0);
    let (mut table, network) = table_of(seed, &orders::<Order>(), 1, calm, &Config::default());
    let words = Arc::new(Mutex::new(Vec::new()));
    let inner = network.join(calm, calm);
    let link = inner.link().unwrap();
    table.join(Config::default(), Meddler { inner, link, words: words.clone() }).unwrap();
    table.rest(30);
    assert!(table.seat(2).peer.is_in_session(), "SEED={seed}");
    (table, words)
}

/// Only the host may ask for a comparison: a digest costs a few bytes, and a look at the whole world to answer.
#[test]
fn a_guest_that_asks_for_comparisons_is_removed() {
    let (mut table, words) = meddled(4);
    let seed = table.seed;
    words.lock().unwrap().push(Control::Digest(Digest { round: 1, parts: vec![(0, 0)] }));
    table.seat(0).take_news();
    table.rest(30);
    let news = table.seat(0).take_news();
    let told = |n: &News| matches!(n, News::Misbehaved { peer: PeerId(2), error: PeerError::OutOfOrder(_) });
    assert!(news.iter().any(told), "SEED={seed}: {news:?}");
    assert_eq!(table.seat(2).peer.ended(), Some(&DisconnectReason::Malformed), "SEED={seed}");
    assert!(table.seat(1).peer.is_in_session(), "SEED={seed}");
}

/// One answer per peer and round is news; the rest, and answers to what was not asked, are not.
#[test]
fn a_verdict_is_told_once() {
    let (mut table, words) = meddled(5);
    let seed = table.seed;
    for round in 0..3 {
        // before anything was asked, and again after the honest answer
        words.lock().unwrap().extend((0..50).map(|_| Control::Verdict(Verdict { round, differing: vec![1] })));
        table.rest(20);
        let host = table.seat(0);
        let stray = host.take_news();
        assert!(!stray.iter().any(|n| matches!(n, News::Compared { .. })), "SEED={seed} round {round}: {stray:?}");
        host.peer.compare(&host.world).unwrap();
        table.rest(20);
        let news = table.seat(0).take_news();
        for peer in [PeerId(1), PeerId(2)] {
            let told = |n: &&News| matches!(n, News::Compared { peer: p, differing } if *p == peer && differing.is_empty());
            assert_eq!(news.iter().filter(told).count(), 1, "SEED={seed} round {round}: {news:?}");
        }
        words.lock().unwrap().extend((0..50).map(|_| Control::Verdict(Verdict { round: round + 1, differing: vec![1] })));
    }
}

/// More guests come and go than there are numbers. Those of the first ones are given again, names never.
#[test]
fn numbers_are_given_again_and_names_are_not() {
    let (mut table, network) = table(6, 1, weather(0, 0.0));
    let seed = table.seed;
    let mut given = HashSet::new();
    let mut kept = Vec::new();
    for round in 0..1_200u32 {
        let seat = table.join(Config::default(), network.join(weather(0, 0.0), weather(0, 0.0))).unwrap();
        let mut frames = 0;
        while !table.seat(seat).peer.is_in_session() {
            table.rest(1);
            frames += 1;
            assert!(frames < 60, "SEED={seed} round {round}: {:?}", table.seat(seat).peer.ended());
        }
        let guest = table.seat(seat);
        // guest 1 sits there all along; the others have come and gone
        let expected = if round < 1_022 { round + 2 } else { round - 1_022 + 2 };
        assert_eq!(guest.peer.local(), PeerId(expected as u16), "SEED={seed} round {round}");
        let at = Position { x: 1.0, y: 1.0 };
        let goes = guest.peer.spawn(&mut guest.world, Player, (at,)).unwrap();
        let mut own = vec![guest.peer.name_of(&guest.world, goes).unwrap()];
        if round % 100 == 0 {
            let stays = guest.peer.spawn(&mut guest.world, Relic, (at,)).unwrap();
            own.push(guest.peer.name_of(&guest.world, stays).unwrap());
            kept.push(own[1]);
        }
        assert!(own.iter().all(|net| given.insert(*net)), "SEED={seed} round {round}: a name was given twice");
        table.rest(3);
        assert!(own.iter().all(|net| table.seat(0).find(*net).is_some()), "SEED={seed} round {round}: {own:?}");
        table.leave(seat);
        table.rest(2);
    }
    // what the guests left behind is the host's, not of those who have their numbers now
    assert_settles(&mut table, 10);
    assert_eq!(table.seat(0).peer.entity_count(), kept.len(), "SEED={seed}");
    for net in kept {
        for seat in [0, 1] {
            let place = table.seat(seat);
            let entity = place.find(net).unwrap();
            assert_eq!(place.peer.owner(&place.world, entity, 0), Some(PeerId::HOST), "SEED={seed} seat {seat} {net}");
        }
    }
}

/// A host whose guest 1 sends acknowledgements, but of nothing that carries state: whatever does is kept from it. Guest 2 is honest.
fn deaf(seed: u64, time_out: Duration) -> (Table, Network) {
    let patient = Config { time_out: Duration::MAX, ..Config::default() };
    let network = Network::new(seed);
    let host = Config { time_out, ..Config::default() };
    let mut table = Table::new(seed, &common::schema(), host, network.host()).unwrap();
    for _ in 0..2 {
        table.join(patient.clone(), network.join(weather(20, 0.1), weather(20, 0.1))).unwrap();
    }
    table.rest(60);
    let host = table.seat(0);
    for i in 0..20 {
        host.peer.spawn(&mut host.world, Crate, (Position { x: i as f32, y: 0.0 }, Health(1))).unwrap();
    }
    assert_settles(&mut table, 10);
    // so that what is there is acknowledged
    table.rest(120);
    // a mark is short: what is longer has entries
    let no_state = Box::new(|_: u64, bytes: &[u8]| if bytes.len() > 32 { Fate::Drop } else { Fate::Pass });
    network.edit(network.links()[0], Direction::Down, |net| net.set_filter(Some(no_state))).unwrap();
    (table, network)
}

/// The host keeps the ends of entities and their rows until everybody has acknowledged them. Who never does is removed.
#[test]
fn who_acknowledges_nothing_is_removed() {
    let (mut table, _network) = deaf(7, Duration::from_secs(3));
    let seed = table.seed;
    // at rest nothing is owed, however long that lasts
    table.rest(600);
    assert_eq!(table.seat(0).peer.peers().len(), 3, "SEED={seed}: {:?}", table.seat(0).news);
    let began = table.now;
    let host = table.seat(0);
    let all: Vec<Entity> = host.world.query::<(Entity, &Crate)>().iter().map(|(e, _)| e).collect();
    for entity in all {
        host.peer.despawn(&mut host.world, entity).unwrap();
    }
    host.take_news();
    while table.seat(0).peer.peers().len() == 3 {
        table.rest(1);
        assert!(table.now < began + Duration::from_secs(4), "SEED={seed}: it is still there");
    }
    assert!(table.now > began + Duration::from_secs(3), "SEED={seed}: too early");
    let news = table.seat(0).take_news();
    assert!(news.contains(&News::Left { peer: PeerId(1), reason: DisconnectReason::TooSlow }), "SEED={seed}: {news:?}");
    table.rest(600);
    assert!(table.seat(2).peer.is_in_session(), "SEED={seed}: {:?}", table.seat(2).peer.ended());
}

/// A limit beyond all time is none.
#[test]
fn a_peer_may_wait_for_ever() {
    let (mut table, network) = deaf(8, Duration::MAX);
    let seed = table.seed;
    network.cut(network.links()[1]);
    for i in 0..1_200 {
        let host = table.seat(0);
        let moved = host.world.query_mut::<&mut Health>().into_iter().map(|h| h.0 = i).count();
        assert_eq!(moved, 20, "SEED={seed}");
        table.rest(1);
    }
    assert_eq!(table.seat(0).peer.peers().len(), 3, "SEED={seed}: {:?}", table.seat(0).news);
    assert!(table.seat(1).peer.is_in_session() && table.seat(2).peer.is_in_session(), "SEED={seed}");
}

/// Bad weather is no silence: half of all packets are lost, in both directions, and everybody stays.
#[test]
fn who_hears_badly_stays() {
    let config = Config { time_out: Duration::from_secs(3), ..Config::default() };
    let (mut table, network) = table_with(9, 2, weather(150, 0.0), &config);
    let seed = table.seed;
    for link in network.links() {
        for direction in [Direction::Up, Direction::Down] {
            network.set_conditions(link, direction, weather(150, 0.5));
        }
    }
    let mut rng = common::Rng::new(seed);
    for _ in 0..1_200 {
        table.run(|seat, world, step| common::churn(seat, world, step, &mut rng));
    }
    assert_settles(&mut table, 20);
    common::assert_clean(&mut table);
}
