//! Builds that register other things, or the same in another order. Case 17 (iv), registering late, does not compile: see the
//! documentation of `Schema`.

mod common;

use common::{Rng, weather};
use hecs::World;
use std::time::Duration;
use tidelock::netcore::error::DisconnectReason;
use tidelock::policy::{Host, Owner};
use tidelock::{Config, News, Peer, Replicate, Schema, SchemaMistake, To};
use tidelock_loopback::Network;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Place {
    x: i16,
    y: i16,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Wealth(u32);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Extra(u8);

#[derive(Clone, Copy, Default)]
struct Ship;
#[derive(Clone, Copy, Default)]
struct Port;

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Hail(u8);
#[derive(Clone, Debug, PartialEq, Replicate)]
struct Trade(u16);

fn in_order() -> Schema {
    Schema::builder("trade")
        .component::<Place>("place", |c| c)
        .component::<Wealth>("wealth", |c| c.authority(Host::default()))
        .kind::<Port>("port", Host::default())
        .kind::<Ship>("ship", Owner::default())
        .message::<Hail>("hail")
        .message::<Trade>("trade")
        .build()
        .unwrap()
}

fn reversed() -> Schema {
    Schema::builder("trade")
        .message::<Trade>("trade")
        .message::<Hail>("hail")
        .kind::<Ship>("ship", Owner::default())
        .kind::<Port>("port", Host::default())
        .component::<Wealth>("wealth", |c| c.authority(Host::default()))
        .component::<Place>("place", |c| c)
        .build()
        .unwrap()
}

struct Pair {
    nodes: [(Peer, World, Vec<News>); 2],
    now: Duration,
    seed: u64,
}

/// A host and a guest, each with a build of its own.
fn pair(seed: u64, host: &Schema, guest: &Schema) -> Pair {
    let network = Network::new(seed);
    let host = Peer::host(host.clone(), network.host(), Config::default()).unwrap();
    let guest = Peer::join(guest.clone(), network.join(weather(30, 0.1), weather(30, 0.1)), Config::default()).unwrap();
    Pair { nodes: [host, guest].map(|p| (p, World::new(), Vec::new())), now: Duration::ZERO, seed }
}

impl Pair {
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

    /// Both ends are told the same, and it is never "connected" first. Gives the words.
    fn assert_refused(&mut self) -> String {
        self.run(120);
        let seed = self.seed;
        let [(host, _, at_host), (guest, _, at_guest)] = &self.nodes;
        assert_eq!(host.peers().len(), 1, "SEED={seed}: it was let in");
        assert!(!at_host.iter().any(|n| matches!(n, News::Joined { .. })), "SEED={seed}: {at_host:?}");
        assert!(!at_guest.iter().any(|n| matches!(n, News::Admitted { .. })), "SEED={seed}: {at_guest:?}");
        let Some(DisconnectReason::Schema(words)) = guest.ended() else {
            panic!("SEED={seed}: {:?} instead of a refusal for the schema", guest.ended());
        };
        let told: Vec<_> = at_guest.iter().filter(|n| matches!(n, News::Disconnected { .. })).collect();
        assert_eq!(told, [&News::Disconnected { reason: DisconnectReason::Schema(words.clone()) }], "SEED={seed}");
        let rejected: Vec<_> = at_host
            .iter()
            .filter_map(|n| match n {
                News::Rejected { address, reason } => Some((address, reason)),
                _ => None,
            })
            .collect();
        assert_eq!(rejected.len(), 1, "SEED={seed}: the host is told once: {at_host:?}");
        assert!(!rejected[0].0.is_empty(), "SEED={seed}: it is told where the guest came from");
        assert_eq!(rejected[0].1, &DisconnectReason::Schema(words.clone()), "SEED={seed}");
        words.clone()
    }
}

/// Case 17 (i).
#[test]
fn the_order_of_registration_does_not_matter() {
    for (seed, host, guest) in [(1, in_order(), reversed()), (2, reversed(), in_order())] {
        assert_eq!(host.digest(), guest.digest(), "SEED={seed}");
        let mut pair = pair(seed, &host, &guest);
        pair.run(60);
        let mut rng = Rng::new(seed);
        let [(host, at_host, _), (guest, at_guest, _)] = &mut pair.nodes;
        assert!(guest.is_in_session(), "SEED={seed}: {:?}", guest.ended());
        for i in 0..50 {
            let place = Place { x: i, y: rng.below(1000) as i16 };
            host.spawn(at_host, Port, (place, Wealth(rng.below(1 << 30) as u32))).unwrap();
            guest.spawn(at_guest, Ship, (place,)).unwrap();
        }
        guest.send_message(at_guest, To::Host, &Trade(700)).unwrap();
        guest.send_message(at_guest, To::Host, &Hail(7)).unwrap();
        pair.run(240);
        let [(host, at_host, _), (guest, at_guest, _)] = &mut pair.nodes;
        assert_eq!(host.entity_count(), 100, "SEED={seed}");
        assert_eq!(host.digests(at_host), guest.digests(at_guest), "SEED={seed}");
        for kind in [at_host.query::<&Port>().iter().count(), at_guest.query::<&Port>().iter().count()] {
            assert_eq!(kind, 50, "SEED={seed}: a kind was taken for another");
        }
        assert_eq!(host.messages::<Trade>().unwrap(), [(guest.local(), Trade(700))], "SEED={seed}");
        assert_eq!(host.messages::<Hail>().unwrap(), [(guest.local(), Hail(7))], "SEED={seed}");
    }
}

/// Case 17 (ii): each side in turn has a type, a kind, a message more.
#[test]
fn an_extra_entry_is_refused_by_name_on_both_ends() {
    let with = |edit: fn(tidelock::SchemaBuilder) -> tidelock::SchemaBuilder| {
        let base = Schema::builder("trade")
            .component::<Place>("place", |c| c)
            .component::<Wealth>("wealth", |c| c.authority(Host::default()))
            .kind::<Port>("port", Host::default())
            .kind::<Ship>("ship", Owner::default())
            .message::<Hail>("hail")
            .message::<Trade>("trade");
        edit(base).build().unwrap()
    };
    #[derive(Clone, Copy, Default)]
    struct Buoy;
    let extras = [
        ("component extra", with(|b| b.component::<Extra>("extra", |c| c))),
        ("kind buoy", with(|b| b.kind::<Buoy>("buoy", Host::default()))),
        ("message extra", with(|b| b.message::<Extra>("extra"))),
    ];
    for (seed, (name, larger)) in extras.iter().enumerate() {
        let words = pair(seed as u64, larger, &in_order()).assert_refused();
        assert!(words.contains(&format!("{name}: only the host has it")), "SEED={seed}: {words}");
        let words = pair(seed as u64, &in_order(), larger).assert_refused();
        assert!(words.contains(&format!("{name}: only the guest has it")), "SEED={seed}: {words}");
    }
}

/// Case 17 (iii): the same name with other fields, another range, another policy, another delivery.
#[test]
fn another_layout_under_the_same_name_is_refused_by_name_on_both_ends() {
    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct WidePlace {
        x: i32,
        y: i16,
    }
    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct Swapped {
        y: i16,
        x: i16,
    }
    fn other<P: hecs::Component + Replicate>(ship: impl tidelock::policy::Policy, reliable: bool) -> Schema {
        let b = Schema::builder("trade")
            .component::<P>("place", |c| c)
            .component::<Wealth>("wealth", |c| c.authority(Host::default()))
            .kind::<Port>("port", Host::default())
            .kind_with::<Ship>("ship", ship, |k| k)
            .message::<Hail>("hail");
        let b = if reliable { b.message::<Trade>("trade") } else { b.unreliable_message::<Trade>("trade") };
        b.build().unwrap()
    }
    assert_eq!(other::<Place>(Owner::default(), true).digest(), in_order().digest());
    let builds = [
        ("component place", other::<WidePlace>(Owner::default(), true)),
        ("component place", other::<Swapped>(Owner::default(), true)),
        ("kind ship", other::<Place>(Host::default(), true)),
        ("message trade", other::<Place>(Owner::default(), false)),
    ];
    for (seed, (name, build)) in builds.iter().enumerate() {
        for (host, guest) in [(build, &in_order()), (&in_order(), build)] {
            let words = pair(seed as u64, host, guest).assert_refused();
            assert_eq!(words, format!("{name}: other layout"), "SEED={seed}");
        }
    }
}

/// Two games with the same parts are two games.
#[test]
fn another_game_is_refused() {
    let other = Schema::builder("piracy")
        .component::<Place>("place", |c| c)
        .component::<Wealth>("wealth", |c| c.authority(Host::default()))
        .kind::<Port>("port", Host::default())
        .kind::<Ship>("ship", Owner::default())
        .message::<Hail>("hail")
        .message::<Trade>("trade")
        .build()
        .unwrap();
    let words = pair(1, &in_order(), &other).assert_refused();
    assert!(!words.is_empty());
}

/// Case 17 (v), and all other mistakes with it: told at `build`, all at once, by name.
#[test]
fn the_same_type_twice_is_an_error_at_build() {
    let built = Schema::builder("trade")
        .component::<Place>("place", |c| c)
        .component::<Place>("place2", |c| c)
        .component::<Extra>("wealth", |c| c)
        .component::<Wealth>("wealth", |c| c)
        .kind::<Port>("port", Host::default())
        .kind::<Port>("port2", Host::default())
        .message::<Hail>("hail")
        .message::<Hail>("hail2")
        .build();
    let mistakes = built.unwrap_err().0;
    for (sort, name) in [("component", "place2"), ("kind", "port2"), ("message", "hail2")] {
        let twice = SchemaMistake::TypeTwice { sort, name: name.into() };
        assert!(mistakes.contains(&twice), "{sort} {name}: {mistakes:?}");
    }
    assert!(mistakes.contains(&SchemaMistake::NameTwice { sort: "component", name: "wealth".into() }), "{mistakes:?}");
    assert_eq!(mistakes.len(), 4, "{mistakes:?}");
}

/// Who is not let in for another reason is told of as well, and a flood of knocks does not wash away other news.
#[test]
fn a_host_is_told_of_everybody_it_did_not_let_in() {
    let network = Network::new(3);
    let mut host = Peer::host(in_order(), network.host(), Config { guests: 0, ..Config::default() }).unwrap();
    let mut guests: Vec<_> = (0..40)
        .map(|_| Peer::join(in_order(), network.join(weather(0, 0.0), weather(0, 0.0)), Config::default()).unwrap())
        .collect();
    let (mut world, mut worlds) = (World::new(), (0..40).map(|_| World::new()).collect::<Vec<_>>());
    for n in 0..20u64 {
        let now = Duration::from_millis(16 * n);
        for (guest, world) in guests.iter_mut().zip(&mut worlds) {
            guest.receive(now, world).unwrap();
            guest.send(now, world).unwrap();
        }
        host.receive(now, &mut world).unwrap();
        host.send(now, &mut world).unwrap();
    }
    let news: Vec<_> = std::iter::from_fn(|| host.poll_news()).collect();
    let rejected = |n: &&News| matches!(n, News::Rejected { reason: DisconnectReason::Full, .. });
    assert_eq!(news.iter().filter(rejected).count(), news.len(), "{news:?}");
    assert_eq!(news.len(), 16, "all knocked in one frame");
    assert!(guests.iter().all(|g| g.ended() == Some(&DisconnectReason::Full)));
}
