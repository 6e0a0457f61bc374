//! Definitions: large values that rarely change, named by revision from the state (cases 11 and 12 of the faults); and what grows.

#![allow(missing_docs)]

mod common;
mod growing;

use common::{Chat, Crate, Player, Position, assert_clean, assert_settles, config, seeds, table_of, weather};
use tidelock::netcore::limits;
use tidelock::policy::{Host, Owner};
use tidelock::testing::Table;
use tidelock::{Config, Defined, DefinitionRef, News, PeerId, Relevance, Replicate, Schema, To, UsageError};

#[derive(Clone, Debug, PartialEq, bitcode::Encode, bitcode::Decode)]
struct Outfit {
    of: u32,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, bitcode::Encode, bitcode::Decode)]
struct Recipe(String);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Wears {
    outfit: DefinitionRef<Outfit>,
}

fn schema() -> Schema {
    Schema::builder("test")
        .component::<Position>("position", |c| c)
        .component::<Wears>("wears", |c| c)
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .message::<Chat>("chat")
        .definition::<Outfit>("outfit")
        .definition::<Recipe>("recipe")
        .build()
        .unwrap()
}

fn table(seed: u64, guests: usize, latency: u64, loss: f64) -> (Table, tidelock_loopback::Network) {
    table_of(seed, &schema(), guests, weather(latency, loss), &wide())
}

/// Enough for a mebibyte in a few seconds.
fn wide() -> Config {
    Config { bandwidth: 8_000_000, ..config() }
}

/// Bytes that nothing makes shorter.
fn outfit(of: u32, len: usize) -> Outfit {
    let mut state = u64::from(of) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    Outfit { of, bytes: (0..len).map(|_| next()).collect() }
}

/// How long an outfit is as it travels, less its bytes.
fn beside(of: &Outfit) -> usize {
    bitcode::encode(of).len() - of.bytes.len()
}

/// What a seat has of what the only one who wears something wears.
fn worn(table: &mut Table, seat: usize) -> Option<(DefinitionRef<Outfit>, Defined<Outfit>)> {
    let place = table.seat(seat);
    let wears = *place.world.query_mut::<&Wears>().into_iter().next()?;
    Some((wears.outfit, place.peer.definition(wears.outfit).unwrap()))
}

/// Rests until it holds.
fn until(table: &mut Table, seconds: u32, what: &str, mut holds: impl FnMut(&mut Table) -> bool) {
    for _ in 0..seconds * 60 {
        if holds(table) {
            return;
        }
        table.rest(1);
    }
    panic!("SEED={}: {what}", table.seed);
}

#[test]
fn a_guest_shows_what_it_has_until_the_new_one_is_whole() {
    for seed in seeds(5) {
        let (mut table, network) = table(seed, 1, 60, 0.1);
        let host = table.seat(0);
        let first = host.peer.define(7, outfit(1, 30_000)).unwrap();
        let entity = host.peer.spawn(&mut host.world, Crate, (Wears { outfit: first },)).unwrap();
        until(&mut table, 20, "the first one", |t| matches!(worn(t, 1), Some((_, Defined::Exact(_)))));
        let host = table.seat(0);
        let second = host.peer.define(7, outfit(2, 200_000)).unwrap();
        assert!(second.revision > first.revision);
        host.world.get::<&mut Wears>(entity).unwrap().outfit = second;
        let mut stale = 0;
        until(&mut table, 60, "the second one", |t| {
            let (named, found) = worn(t, 1).unwrap();
            let value = found.value().unwrap_or_else(|| panic!("SEED={seed}: it had one")).clone();
            // always whole, and one that was
            assert!([outfit(1, 30_000), outfit(2, 200_000)].contains(&value), "SEED={seed}");
            stale += u32::from(named == second && matches!(found, Defined::Stale { revision, .. } if revision == first.revision));
            matches!(found, Defined::Exact(_)) && named == second
        });
        assert!(stale > 10, "SEED={seed}: the state was there long before");
        // the one before is kept, for states that come late
        let guest = table.seat(1);
        assert_eq!(guest.peer.definition(first).unwrap(), Defined::Exact(outfit(1, 30_000).into()), "SEED={seed}");
        let defined =
            guest.news.iter().filter(|n| matches!(n, News::Defined { definition, key: 7, .. } if definition == "outfit"));
        assert_eq!(defined.count(), 2, "SEED={seed}: once per revision");
        // who joins late gets what is current, and only that
        let late = table.join(wide(), network.join(weather(60, 0.1), weather(60, 0.1))).unwrap();
        until(&mut table, 60, "the second one, late", |t| matches!(worn(t, late), Some((_, Defined::Exact(_)))));
        assert!(matches!(table.seat(late).peer.definition(first).unwrap(), Defined::Stale { .. }), "SEED={seed}");
        assert_settles(&mut table, 10);
        assert_clean(&mut table);
    }
}

#[test]
fn large_ones_up_to_the_limit_arrive_and_hold_nothing_up() {
    for seed in seeds(2) {
        let (mut table, _network) = table(seed, 1, 30, 0.05);
        let guest = table.seat(1).peer.local();
        let most = limits::DEFINITION_BYTES;
        let exact = most - beside(&outfit(3, most - 100));
        let over = table.seat(0).peer.define(3, outfit(3, exact + 1)).unwrap_err();
        assert_eq!(over, UsageError::TooLarge { what: "a definition", size: most + 1, limit: most });
        assert!(over.to_string().contains(&(most + 1).to_string()) && over.to_string().contains(&most.to_string()));
        for (key, len) in [(1, 30_000), (2, most / 2), (3, exact)] {
            let host = table.seat(0);
            let named = host.peer.define(key, outfit(key as u32, len)).unwrap();
            for i in 0..100 {
                let text = format!("{key} {i}");
                host.peer.send_message(&host.world, To::Peer(guest), &Chat { text }).unwrap();
            }
            table.rest(120);
            let here = table.seat(1);
            let got = here.peer.messages::<Chat>().unwrap().len();
            assert_eq!(got, 100, "SEED={seed}: small ones do not wait for {len} bytes");
            until(&mut table, 120, "all of it", |t| matches!(t.seat(1).peer.definition(named).unwrap(), Defined::Exact(_)));
            let found = table.seat(1).peer.definition(named).unwrap();
            assert_eq!(found.value().map(|v| v.bytes.len()), Some(len), "SEED={seed}");
            assert_eq!(found, Defined::Exact(outfit(key as u32, len).into()), "SEED={seed}");
        }
        assert!(matches!(table.seat(1).peer.definition(DefinitionRef::<Outfit>::new(4, 1)).unwrap(), Defined::Missing));
        assert_clean(&mut table);
    }
}

#[test]
fn many_arrive_and_what_is_forgotten_is_forgotten() {
    for seed in seeds(3) {
        let (mut table, _network) = table(seed, 2, 40, 0.1);
        let host = table.seat(0);
        for key in 0..500 {
            host.peer.define(key, outfit(key as u32, (key as usize * 7) % 900)).unwrap();
            host.peer.define(key, Recipe(format!("{key}"))).unwrap();
        }
        let has = |t: &mut Table, seat: usize| {
            let peer = &t.seat(seat).peer;
            let outfits = (0..500).filter(|key| peer.newest_definition::<Outfit>(*key).unwrap().is_some()).count();
            let recipes = (0..500).filter(|key| peer.newest_definition::<Recipe>(*key).unwrap().is_some()).count();
            (outfits, recipes)
        };
        until(&mut table, 60, "all of them", |t| has(t, 1) == (500, 500) && has(t, 2) == (500, 500));
        let host = table.seat(0);
        for key in 0..400 {
            assert!(host.peer.forget_definition::<Outfit>(key).unwrap());
            assert!(!host.peer.forget_definition::<Outfit>(key).unwrap());
        }
        // and some begin again before the end of the last was told
        let again = host.peer.define(3, outfit(9, 9)).unwrap();
        until(&mut table, 60, "only those", |t| has(t, 1) == (101, 500) && has(t, 2) == (101, 500));
        assert_eq!(table.seat(2).peer.definition(again).unwrap(), Defined::Exact(outfit(9, 9).into()), "SEED={seed}");
        assert_clean(&mut table);
    }
}

#[test]
fn what_belongs_to_an_entity_is_for_who_sees_it() {
    for seed in seeds(3) {
        let (mut table, network) = table(seed, 0, 30, 0.0);
        let within = Relevance::within(10.0).place(|p: &Position| [p.x, p.y, 0.0]);
        table.seat(0).peer.set_relevance(within).unwrap();
        let guest = table.join(wide(), network.join(weather(30, 0.05), weather(30, 0.05))).unwrap();
        until(&mut table, 10, "admission", |t| t.seat(guest).peer.is_in_session());
        // the guest sees from its own player
        let seat = table.seat(guest);
        seat.peer.spawn(&mut seat.world, Player, (Position { x: 0.0, y: 0.0 },)).unwrap();
        table.rest(60);
        let host = table.seat(0);
        let far = Position { x: 300.0, y: 0.0 };
        let entity = host.peer.spawn(&mut host.world, Crate, (far,)).unwrap();
        let named = host.peer.define_for(&host.world, entity, outfit(5, 5_000)).unwrap();
        assert_eq!(host.peer.define_for(&host.world, entity, outfit(5, 5_000)).unwrap(), named, "the same is no news");
        table.rest(300);
        assert_eq!(table.seat(guest).peer.definition(named).unwrap(), Defined::Missing, "SEED={seed}: nothing of it was told");
        table.seat(0).world.get::<&mut Position>(entity).unwrap().x = 3.0;
        until(&mut table, 10, "it is near", |t| matches!(t.seat(guest).peer.definition(named).unwrap(), Defined::Exact(_)));
        // away, another revision that is not told, and back
        table.seat(0).world.get::<&mut Position>(entity).unwrap().x = 300.0;
        table.rest(120);
        let host = table.seat(0);
        let other = host.peer.define_for(&host.world, entity, outfit(6, 100)).unwrap();
        table.rest(120);
        let found = table.seat(guest).peer.definition(other).unwrap();
        assert!(matches!(found, Defined::Stale { revision, .. } if revision == named.revision), "SEED={seed} {found:?}");
        table.seat(0).world.get::<&mut Position>(entity).unwrap().x = 3.0;
        until(&mut table, 10, "the other", |t| matches!(t.seat(guest).peer.definition(other).unwrap(), Defined::Exact(_)));
        let host = table.seat(0);
        host.peer.despawn(&mut host.world, entity).unwrap();
        until(&mut table, 10, "its end", |t| t.seat(guest).peer.definition(other).unwrap() == Defined::Missing);
        assert_eq!(table.seat(0).peer.definition(other).unwrap(), Defined::Missing, "SEED={seed}");
        assert_clean(&mut table);
    }
}

#[test]
fn what_a_program_must_not_do_is_an_error_at_the_call() {
    let (mut table, _network) = table(1, 1, 10, 0.0);
    let guest = table.seat(1);
    assert!(matches!(guest.peer.define(1, Recipe("x".into())), Err(UsageError::NotAllowed(_))));
    assert!(matches!(guest.peer.forget_definition::<Recipe>(1), Err(UsageError::NotAllowed(_))));
    let host = table.seat(0);
    assert!(matches!(host.peer.define(1, 5u8), Err(UsageError::NotInSchema(_))));
    let local = host.world.spawn(());
    assert!(matches!(host.peer.define_for(&host.world, local, Recipe("x".into())), Err(UsageError::NotNetworked)));
    for key in 0..limits::DEFINITIONS as u64 {
        host.peer.define(key, Recipe(String::new())).unwrap();
    }
    assert!(matches!(host.peer.define(1 << 40, Recipe(String::new())), Err(UsageError::TooLarge { .. })));
    host.peer.define(0, Recipe("another revision takes no more places".into())).unwrap();
    // 32 MiB in all
    let mut peer = tidelock::Peer::alone(schema(), Config::default()).unwrap();
    let len = limits::DEFINITION_BYTES - 100;
    let fit = (0..40).take_while(|key| peer.define(*key, outfit(0, len)).is_ok()).count();
    assert_eq!(fit, 32);
    assert!(peer.forget_definition::<Outfit>(0).unwrap());
    peer.define(50, outfit(0, len)).unwrap();
    let twice = Schema::builder("test").definition::<Recipe>("a").definition::<Recipe>("b").build();
    assert!(twice.is_err());
    assert_ne!(schema().digest(), Schema::builder("test").definition::<Recipe>("recipe").build().unwrap().digest());
}

#[test]
fn a_session_that_ends_leaves_nothing() {
    let (mut table, _network) = table(1, 1, 10, 0.0);
    let named = table.seat(0).peer.define(1, Recipe("x".into())).unwrap();
    until(&mut table, 10, "it", |t| matches!(t.seat(1).peer.definition(named).unwrap(), Defined::Exact(_)));
    let guest = table.seat(1).peer.local();
    assert_ne!(guest, PeerId::HOST);
    let host = table.seat(0);
    host.peer.kick(&mut host.world, guest, "go").unwrap();
    table.rest(60);
    assert!(!table.seat(1).peer.is_in_session());
    assert_eq!(table.seat(1).peer.definition(named).unwrap(), Defined::Missing);
}

/// As many as there may be end in one frame, and as many others begin: more than go together.
#[test]
fn all_end_and_others_begin_at_once() {
    let (mut table, _network) = table(4, 1, 20, 0.02);
    let most = limits::DEFINITIONS as u64;
    let has = |table: &mut Table, keys: std::ops::Range<u64>| {
        let peer = &table.seat(1).peer;
        keys.filter(|key| peer.newest_definition::<Recipe>(*key).unwrap().is_some()).count() as u64
    };
    let define = |table: &mut Table, keys: std::ops::Range<u64>| {
        for key in keys {
            table.seat(0).peer.define(key, Recipe(format!("{key}"))).unwrap();
        }
    };
    define(&mut table, 0..most);
    until(&mut table, 60, "all of them", |t| has(t, 0..most) == most);
    for key in 0..most {
        assert!(table.seat(0).peer.forget_definition::<Recipe>(key).unwrap());
    }
    define(&mut table, most..2 * most);
    until(&mut table, 60, "all others, and none of the first", |t| has(t, most..2 * most) == most && has(t, 0..most) == 0);
    assert_clean(&mut table);
}
