//! What a guest that does not keep to the rules can do to its host and to others: a raw guest over the loopback beside an honest
//! one, and what a game may do at a bad moment. Each case was a fault, found by the fuzz targets of whole sessions or while they
//! were written.

mod common;

use common::{Crate, Health, Player, Position, assert_settles, config, schema, table, weather};
use hecs::World;
use std::collections::BTreeSet;
use std::time::Duration;
use tidelock::netcore::control::{self, Control, Digest, Verdict};
use tidelock::netcore::session::Terms;
use tidelock::netcore::transport::{Arrival, Lane, LinkId, Transport};
use tidelock::policy::Owner;
use tidelock::testing::Table;
use tidelock::{News, Peer, Replicate, Schema};
use tidelock_loopback::{Conditions, Loopback, Network};

/// A guest of which only the greeting is true.
struct Raw {
    transport: Loopback,
    link: LinkId,
    closed: bool,
}

impl Raw {
    /// Joins the table, whose host lets it in.
    fn join(table: &mut Table, network: &Network) -> Self {
        let transport = network.join(Conditions::default(), Conditions::default());
        let link = transport.link().unwrap();
        let mut raw = Self { transport, link, closed: false };
        raw.poll(table);
        let terms = Terms::new(control::PROTOCOL_VERSIONS, schema().digest(), &schema().entries());
        table.rest(1);
        raw.poll(table);
        raw.say(table, &Control::Hello(terms.hello("raw")));
        table.rest(2);
        raw.poll(table);
        assert!(!raw.closed, "SEED={}", table.seed);
        raw
    }

    fn poll(&mut self, table: &Table) {
        let mut payload = Vec::new();
        while let Some(arrival) = self.transport.poll(table.now, &mut payload) {
            self.closed |= matches!(arrival, Arrival::Closed { .. });
        }
    }

    fn say(&mut self, table: &Table, message: &Control) {
        let mut bytes = Vec::new();
        control::encode(message, &mut bytes);
        let _ = self.transport.send_message(table.now, self.link, Lane::CONTROL, &bytes).unwrap();
    }
}

fn told(news: &[News]) -> usize {
    news.iter().filter(|n| matches!(n, News::Compared { .. })).count()
}

/// The host's game despawned a guest's entity in the very frame in which it came: the guest had not been told of its own entity
/// yet, and was never told of its end.
#[test]
fn an_end_before_the_first_word_reaches_the_owner() {
    let (mut table, _network) = table(1, 2, weather(20, 0.0));
    let guest = table.seat(1);
    let own = guest.peer.spawn(&mut guest.world, Player, (Position { x: 1.0, y: 2.0 },)).unwrap();
    let net = guest.peer.name_of(&guest.world, own).unwrap();
    // the host by hand, so that its game acts between receive and send
    while table.seat(0).find(net).is_none() {
        table.seat(0).stalled_until = Duration::MAX;
        table.rest(1);
        let now = table.now;
        let host = table.seat(0);
        host.peer.receive(now, &mut host.world).unwrap();
        if let Some(entity) = host.find(net) {
            host.world.despawn(entity).unwrap();
            break;
        }
        while host.peer.next_step(&mut host.world).is_some() {}
        host.peer.send(now, &mut host.world).unwrap();
    }
    table.seat(0).stalled_until = Duration::ZERO;
    table.rest(30);
    assert_settles(&mut table, 3);
    assert!(table.seat(1).find(net).is_none(), "the guest keeps what its host has ended");
}

/// A comparison of digests looks at the whole world. A guest that asks for one breaks the protocol; others lose nothing.
#[test]
fn a_guest_does_not_make_its_host_compare() {
    let (mut table, network) = table(2, 1, weather(0, 0.0));
    let mut raw = Raw::join(&mut table, &network);
    let host = table.seat(0);
    host.peer.spawn(&mut host.world, Crate, (Position { x: 1.0, y: 2.0 }, Health(3))).unwrap();
    host.take_news();
    raw.say(&table, &Control::Digest(Digest { round: 1, parts: vec![(0, 1); 63] }));
    table.rest(2);
    raw.poll(&table);
    let news = table.seat(0).take_news();
    assert!(raw.closed && news.iter().any(|n| matches!(n, News::Misbehaved { .. })), "{news:?}");
    assert_eq!(told(&news), 0);
    assert_settles(&mut table, 2);
    assert!(table.seat(1).peer.is_in_session());
}

/// An answer counts once: a flood of them made as much news, each with a list of names.
#[test]
fn an_answer_to_a_comparison_counts_once() {
    let (mut table, network) = table(3, 1, weather(0, 0.0));
    let mut raw = Raw::join(&mut table, &network);
    let host = table.seat(0);
    host.take_news();
    host.peer.compare(&host.world).unwrap();
    for _ in 0..100 {
        raw.say(&table, &Control::Verdict(Verdict { round: 1, differing: (0..63).collect() }));
    }
    table.rest(3);
    let (news, raw_id) = (table.seat(0).take_news(), 2);
    let from_raw = news.iter().filter(|n| matches!(n, News::Compared { peer, .. } if peer.0 == raw_id)).count();
    assert_eq!((from_raw, told(&news)), (1, 2), "one from each guest");
    // and a new round asks anew
    let host = table.seat(0);
    host.peer.compare(&host.world).unwrap();
    raw.say(&table, &Control::Verdict(Verdict { round: 2, differing: Vec::new() }));
    table.rest(3);
    assert_eq!(told(&table.seat(0).take_news()), 2);
}

/// An entity that the game took out of the world before anything had been captured of it stayed on the books, and others got an
/// entity without components that nobody ended.
#[test]
fn what_is_gone_before_its_first_capture_never_was() {
    let (mut table, _network) = table(4, 2, weather(20, 0.0));
    for seat in [0, 1] {
        let seat = table.seat(seat);
        let at = (Position { x: 1.0, y: 2.0 },);
        let spawned = if seat.peer.is_host() {
            seat.peer.spawn(&mut seat.world, Crate, at)
        } else {
            seat.peer.spawn(&mut seat.world, Player, at)
        };
        seat.world.despawn(spawned.unwrap()).unwrap();
    }
    table.rest(30);
    assert_settles(&mut table, 2);
    for seat in 0..3 {
        assert_eq!(table.seat(seat).peer.entity_count(), 0, "seat {seat}");
    }
}

/// A guest whose program has another type of the same layout can send words that the host's type never has.
#[test]
fn a_guest_that_sends_what_no_value_has_is_refused() {
    #[derive(Clone, Debug, PartialEq, Replicate)]
    struct Keys {
        #[net(max = 3)]
        of: BTreeSet<u16>,
    }
    #[derive(Clone, Debug, PartialEq, Replicate)]
    struct Loose {
        #[net(max = 3)]
        of: Vec<u16>,
    }
    let host =
        Schema::builder("test").component::<Keys>("keys", |c| c).kind::<Player>("player", Owner::default()).build().unwrap();
    let loose =
        Schema::builder("test").component::<Loose>("keys", |c| c).kind::<Player>("player", Owner::default()).build().unwrap();
    assert_eq!(host.digest(), loose.digest());
    let network = Network::new(1);
    let mut table = Table::new(1, &host, config(), network.host()).unwrap();
    let transport = network.join(weather(10, 0.0), weather(10, 0.0));
    let (mut guest, mut world) = (Peer::join(loose, transport, config()).unwrap(), World::new());
    let mut now = Duration::ZERO;
    let mut entity = None;
    for _ in 0..400 {
        table.rest(1);
        now += Duration::from_micros(16_667);
        guest.receive(now, &mut world).unwrap();
        while guest.next_step(&mut world).is_some() {}
        if guest.is_in_session() && entity.is_none() {
            entity = guest.spawn(&mut world, Player, (Loose { of: vec![1, 2] },)).ok();
        }
        if now.as_secs() == 3
            && let Some(entity) = entity
        {
            world.get::<&mut Loose>(entity).unwrap().of = vec![2, 1];
        }
        guest.send(now, &mut world).unwrap();
    }
    let place = table.seat(0);
    let held: Vec<_> = place.world.query_mut::<&Keys>().into_iter().map(|keys| keys.of.clone()).collect();
    assert_eq!(held, [BTreeSet::from([1, 2])], "the world keeps what was good");
    assert!(place.news.iter().any(|n| matches!(n, News::Refused { .. })), "{:?}", place.news);
}
