//! Lists and maps that grow (case 11 of the faults): what is shown was once held, as a whole, and of a change goes what has changed.

use super::common::{Crate, Player, Position, Rng, assert_clean, config, seeds, table_of, weather};
use hecs::Entity;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tidelock::netcore::limits;
use tidelock::policy::{Host, Owner};
use tidelock::testing::Table;
use tidelock::{Config, News, Peer, PeerId, Relevance, Schema, To, UsageError};

mod hunt;

#[derive(Clone, Debug, PartialEq, bitcode::Encode, bitcode::Decode)]
struct Line {
    by: u16,
    text: String,
}

#[derive(Clone, Debug, PartialEq, bitcode::Encode, bitcode::Decode)]
struct Stack {
    what: u32,
    count: u8,
}

type Change = Box<dyn Fn(&mut Peer)>;
type Scores = BTreeMap<u16, u32>;

fn schema() -> Schema {
    Schema::builder("test")
        .component::<Position>("position", |c| c)
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .message::<super::common::Chat>("chat")
        .list::<Line>("feed", |l| l.keep_last(40))
        .list::<Stack>("bag", |l| l.max(600))
        .list::<Vec<u8>>("blobs", |l| l.max(2000))
        .map::<u16, u32>("scores", |m| m.max(30))
        .map::<String, Line>("notes", |m| m.max(20))
        .build()
        .unwrap()
}

fn wide() -> Config {
    Config { bandwidth: 8_000_000, ..config() }
}

fn line(n: u64) -> Line {
    Line { by: n as u16, text: format!("line {n}") }
}

/// Bytes that nothing makes shorter.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..length).map(|_| rng.below(256) as u8).collect()
}

fn bag(peer: &Peer) -> (u64, Vec<Stack>) {
    let list = peer.list::<Stack>().unwrap();
    (list.revision(), list.iter().cloned().collect())
}

fn until(table: &mut Table, seconds: u32, what: &str, mut holds: impl FnMut(&mut Table) -> bool) {
    for _ in 0..seconds * 60 {
        if holds(table) {
            return;
        }
        table.rest(1);
    }
    panic!("SEED={}: {what}", table.seed);
}

fn sent_to(table: &mut Table, guest: PeerId) -> u64 {
    table.seat(0).peer.stats(guest).unwrap().link.message_bytes_out
}

#[test]
fn one_push_into_a_thousand_costs_the_item() {
    let (mut table, network) = table_of(1, &schema(), 1, weather(20, 0.0), &wide());
    let guest = table.seat(1).peer.local();
    let mut list = table.seat(0).peer.list_mut::<Vec<u8>>().unwrap();
    (0..1000).for_each(|n| list.push(noise(n, 100)).unwrap());
    let len = |t: &mut Table, seat: usize| t.seat(seat).peer.list::<Vec<u8>>().unwrap().len();
    until(&mut table, 60, "all of it", |t| len(t, 1) == 1000);
    table.rest(60);
    let item = noise(5000, 100);
    let size = bitcode::encode(&item).len() as u64;
    let costs: [(&str, u64, Change); 6] = [
        ("nothing", 0, Box::new(|_| {})),
        (
            "a push",
            size + 16,
            Box::new({
                let item = item.clone();
                move |p| p.list_mut().unwrap().push(item.clone()).unwrap()
            }),
        ),
        ("a set", size + 18, Box::new(move |p| p.list_mut::<Vec<u8>>().unwrap().set(500, item.clone()).unwrap())),
        ("a removal", 18, Box::new(|p| drop(p.list_mut::<Vec<u8>>().unwrap().remove(500)))),
        ("the front", 16, Box::new(|p| drop(p.list_mut::<Vec<u8>>().unwrap().pop_front()))),
        // as it was: no byte
        (
            "the same",
            0,
            Box::new(|p| {
                let mut list = p.list_mut::<Vec<u8>>().unwrap();
                let item = list[7].clone();
                list.set(7, item).unwrap();
            }),
        ),
    ];
    for (what, most, change) in costs {
        let before = sent_to(&mut table, guest);
        change(&mut table.seat(0).peer);
        table.rest(60);
        let cost = sent_to(&mut table, guest) - before;
        assert!(cost <= most, "{what}: {cost} bytes, where {most} are enough");
        assert!(cost > 0 || most == 0, "{what} must have gone");
        let (host, here) = (table.seat(0).peer.list::<Vec<u8>>().unwrap().items().clone(), 1);
        assert_eq!(table.seat(here).peer.list::<Vec<u8>>().unwrap().items(), &host, "{what}");
    }
    // who joins gets all of it once, and no log of how it came about
    let total: u64 = table.seat(0).peer.list::<Vec<u8>>().unwrap().iter().map(|i| bitcode::encode(i).len() as u64 + 2).sum();
    let late = table.join(wide(), network.join(weather(20, 0.0), weather(20, 0.0))).unwrap();
    until(&mut table, 60, "all of it, late", |t| len(t, late) == 999);
    let late = table.seat(late).peer.local();
    let cost = sent_to(&mut table, late);
    assert!(cost < total + total / 50 + 1000, "{cost} bytes for {total}");
    assert_clean(&mut table);
}

#[test]
fn each_push_comes_once_and_the_front_goes() {
    for seed in seeds(3) {
        let (mut table, network) = table_of(seed, &schema(), 2, weather(60, 0.1), &wide());
        for n in 0..300 {
            if n == 150 {
                table.join(wide(), network.join(weather(60, 0.1), weather(60, 0.1))).unwrap();
            }
            table.seat(0).peer.list_mut::<Line>().unwrap().push(line(n)).unwrap();
            table.rest(1);
        }
        let expected: Vec<Line> = (260..300).map(line).collect();
        for seat in 1..4 {
            let shows = |t: &mut Table| t.seat(seat).peer.list::<Line>().unwrap().into_iter().eq(&expected);
            until(&mut table, 20, "the last forty", shows);
            // as many steps as were told, one after the other
            let mut at = 0;
            for news in table.seat(seat).take_news() {
                if let News::CollectionChanged { collection, of, from, to } = news {
                    assert_eq!((collection.as_str(), of, from), ("feed", None, at), "SEED={seed}");
                    assert!(to > from, "SEED={seed}");
                    at = to;
                }
            }
            assert_eq!(at, table.seat(0).peer.list::<Line>().unwrap().revision(), "SEED={seed}");
        }
        assert_clean(&mut table);
    }
}

#[test]
fn what_belongs_to_an_entity_is_for_who_sees_it() {
    for seed in seeds(3) {
        let (mut table, network) = table_of(seed, &schema(), 0, weather(30, 0.0), &wide());
        let within = Relevance::within(10.0).place(|p: &Position| [p.x, p.y, 0.0]);
        table.seat(0).peer.set_relevance(within).unwrap();
        let guest = table.join(wide(), network.join(weather(30, 0.05), weather(30, 0.05))).unwrap();
        until(&mut table, 10, "admission", |t| t.seat(guest).peer.is_in_session());
        let seat = table.seat(guest);
        seat.peer.spawn(&mut seat.world, Player, (Position { x: 0.0, y: 0.0 },)).unwrap();
        let host = table.seat(0);
        let entity = host.peer.spawn(&mut host.world, Crate, (Position { x: 300.0, y: 0.0 },)).unwrap();
        let net = host.peer.name_of(&host.world, entity).unwrap();
        let put = |t: &mut Table, n: u32| {
            let host = t.seat(0);
            let mut bag = host.peer.list_mut_for(&host.world, entity).unwrap();
            bag.push(Stack { what: n, count: 1 }).unwrap();
        };
        let has = |t: &mut Table| {
            let seat = t.seat(guest);
            let there = seat.find(net)?;
            Some(seat.peer.list_for::<Stack>(&seat.world, there).unwrap().len())
        };
        let walk = |t: &mut Table, x: f32| t.seat(0).world.get::<&mut Position>(entity).unwrap().x = x;
        (0..100).for_each(|n| put(&mut table, n));
        table.rest(120);
        assert!(table.seat(guest).news.iter().all(|n| !matches!(n, News::CollectionChanged { .. })), "SEED={seed}");
        walk(&mut table, 3.0);
        until(&mut table, 10, "it is near", |t| has(t) == Some(100));
        walk(&mut table, 300.0);
        until(&mut table, 10, "it is far", |t| has(t).is_none());
        let told = |t: &mut Table| t.seat(guest).news.iter().filter(|n| matches!(n, News::CollectionChanged { .. })).count();
        let before = told(&mut table);
        put(&mut table, 100);
        table.rest(120);
        assert_eq!(told(&mut table), before, "SEED={seed}: what is out of sight changes unheard");
        walk(&mut table, 3.0);
        until(&mut table, 10, "it is near again", |t| has(t) == Some(101));
        // its end, and the one beside it goes on
        table.seat(0).peer.list_mut::<Stack>().unwrap().push(Stack { what: 1, count: 2 }).unwrap();
        let host = table.seat(0);
        host.peer.despawn(&mut host.world, entity).unwrap();
        until(&mut table, 10, "its end", |t| has(t).is_none() && t.seat(guest).peer.list::<Stack>().unwrap().len() == 1);
        let host = table.seat(0);
        assert_eq!(host.peer.list_for::<Stack>(&host.world, entity).unwrap_err(), UsageError::NotNetworked);
        assert_clean(&mut table);
    }
}

#[test]
fn a_full_lane_costs_nobody_else_and_what_is_shorter_follows() {
    let (mut table, _network) = table_of(4, &schema(), 2, weather(20, 0.0), &Config { bandwidth: 400_000, ..config() });
    let (slow, quick) = (table.seat(1).peer.local(), table.seat(2).peer.local());
    let chat = super::common::Chat { text: "x".repeat(32) };
    // some 240 kB: five seconds of the bandwidth
    for _ in 0..6000 {
        let host = table.seat(0);
        host.peer.send_message(&host.world, To::Peer(slow), &chat).unwrap();
    }
    let before = sent_to(&mut table, quick);
    let mut behind = 0;
    for n in 0..120u64 {
        let mut map = table.seat(0).peer.map_mut::<u16, u32>().unwrap();
        (0..20).for_each(|key| {
            map.insert(key, (n * 20) as u32 + u32::from(key)).unwrap();
        });
        table.rest(1);
        let revision = |t: &mut Table, seat: usize| t.seat(seat).peer.map::<u16, u32>().unwrap().revision();
        let (host, first, second) = (revision(&mut table, 0), revision(&mut table, 1), revision(&mut table, 2));
        assert!(host - second <= 4, "the quick one is at {second} of {host}");
        behind = behind.max(host - first);
    }
    assert!(behind >= 100, "the lane was not full: {behind}");
    assert!(sent_to(&mut table, quick) - before < 120 * 200);
    let own = table.seat(0).peer.map::<u16, u32>().unwrap().items().clone();
    until(&mut table, 30, "the last of it", |t| *t.seat(1).peer.map::<u16, u32>().unwrap() == own);
    // not all the steps between: one
    let changes = table.seat(1).news.iter().filter(|n| matches!(n, News::CollectionChanged { .. })).count();
    assert!(changes < 30, "{changes} steps");
    assert_clean(&mut table);
}

#[test]
fn what_is_large_goes_in_pieces_and_holds_nothing_up() {
    for seed in seeds(2) {
        let (mut table, network) = table_of(seed, &schema(), 1, weather(30, 0.02), &Config { bandwidth: 2_000_000, ..config() });
        let mut list = table.seat(0).peer.list_mut::<Vec<u8>>().unwrap();
        let fit = (0..2000).take_while(|n| list.push(noise(*n, 4000)).is_ok()).count();
        assert_eq!(fit, limits::COLLECTION_BYTES / 4004, "a list up to its limit of bytes");
        // while it is on its way another goes at once
        let late = table.join(wide(), network.join(weather(30, 0.02), weather(30, 0.02))).unwrap();
        until(&mut table, 10, "admission", |t| t.seat(late).peer.is_in_session());
        table.seat(0).peer.list_mut::<Line>().unwrap().push(line(1)).unwrap();
        table.rest(60);
        for seat in [1, late] {
            let peer = &table.seat(seat).peer;
            assert_eq!(peer.list::<Line>().unwrap().len(), 1, "SEED={seed}");
            assert!(peer.list::<Vec<u8>>().unwrap().is_empty(), "SEED={seed}: a part of it is never shown");
        }
        // and it changes while it is on its way
        let mut list = table.seat(0).peer.list_mut::<Vec<u8>>().unwrap();
        list.remove(3).unwrap();
        list.set(0, vec![1, 2, 3]).unwrap();
        let own = list.clone();
        for seat in [1, late] {
            until(&mut table, 60, "all of it", |t| *t.seat(seat).peer.list::<Vec<u8>>().unwrap() == own);
        }
        assert_clean(&mut table);
    }
}

#[test]
fn limits_are_errors_at_the_call_and_change_nothing() {
    let mut peer = Peer::alone(schema(), Config::default()).unwrap();
    let mut bag = peer.list_mut::<Stack>().unwrap();
    let stack = |what| Stack { what, count: 0 };
    for n in 0..600 {
        bag.push(stack(n)).unwrap();
    }
    assert_eq!(bag.push(stack(600)), Err(UsageError::CollectionFull { max: 600 }));
    assert_eq!(bag.insert(0, stack(600)), Err(UsageError::CollectionFull { max: 600 }));
    assert_eq!((bag.len(), bag[0].what), (600, 0));
    assert_eq!(bag.set(600, stack(0)), Err(UsageError::NoSuchItem { index: 600, len: 600 }));
    assert_eq!(bag.update(600, |_| ()), Err(UsageError::NoSuchItem { index: 600, len: 600 }));
    assert_eq!(bag.remove(600), None);
    bag.truncate(700);
    assert_eq!(bag.pop_back(), Some(stack(599)));
    assert_eq!(bag.insert(600, stack(0)), Err(UsageError::NoSuchItem { index: 600, len: 599 }));
    bag.insert(599, stack(7)).unwrap();
    assert_eq!(bag.update(599, |s| std::mem::replace(&mut s.count, 9)), Ok(0));
    assert_eq!(bag.back(), Some(&Stack { what: 7, count: 9 }));
    bag.clear();
    assert_eq!((bag.pop_front(), bag.pop_back(), bag.len()), (None, None, 0));

    let mut scores = peer.map_mut::<u16, u32>().unwrap();
    (0..30).for_each(|key| assert_eq!(scores.insert(key, 1), Ok(None)));
    assert_eq!(scores.insert(30, 1), Err(UsageError::CollectionFull { max: 30 }));
    assert_eq!((scores.insert(3, 2), scores.remove(&99)), (Ok(Some(1)), None));
    assert_eq!(scores.update(&3, |n| *n += 1), Ok(Some(())));
    assert_eq!((scores.update(&99, |n| *n += 1), scores.remove(&3), scores.len()), (Ok(None), Some(3), 29));

    // bytes of one item
    let beside = bitcode::encode(&noise(1, 3000)).len() - 3000;
    let most = limits::COLLECTION_ITEM_BYTES;
    let mut list = peer.list_mut::<Vec<u8>>().unwrap();
    list.push(noise(1, most - beside)).unwrap();
    let over = UsageError::TooLarge { what: "an item with its key", size: most + 1, limit: most };
    assert_eq!(list.push(noise(1, most - beside + 1)), Err(over.clone()));
    assert_eq!(list.set(0, noise(1, most - beside + 1)), Err(over.clone()));
    assert_eq!(list.update(0, |item| item.push(7)), Err(over));
    assert_eq!(*list, [noise(1, most - beside)]);
    // bytes of all of one, to the byte
    list.clear();
    let each = limits::COLLECTION_BYTES / 256; // with the two bytes of its length
    (0..255).for_each(|n| list.push(noise(n, each - 2 - beside)).unwrap());
    assert!(
        matches!(list.push(noise(1, each - 1 - beside)), Err(UsageError::TooLarge { size, .. }) if size == limits::COLLECTION_BYTES + 2)
    );
    list.push(noise(1, each - 2 - beside)).unwrap();
    assert!(matches!(list.set(0, noise(1, each - 1 - beside)), Err(UsageError::TooLarge { .. })));
    list.set(0, noise(2, each - 2 - beside)).unwrap();
    assert_eq!(list.len(), 256);
}

#[test]
fn all_of_a_host_together_are_bounded() {
    let mut world = hecs::World::new();
    let mut peer = Peer::alone(schema(), Config::default()).unwrap();
    let full = |peer: &mut Peer, world: &hecs::World, entity: Entity| {
        let mut list = peer.list_mut_for::<Vec<u8>>(world, entity)?;
        (0..261).try_for_each(|n| list.push(noise(n, 4000)))
    };
    let mut feed = peer.list_mut::<Line>().unwrap();
    (0..2).for_each(|n| feed.push(line(n)).unwrap());
    let mut fit = Vec::new();
    loop {
        let entity = peer.spawn(&mut world, Crate, (Position { x: 0.0, y: 0.0 },)).unwrap();
        match full(&mut peer, &world, entity) {
            Ok(()) => fit.push(entity),
            Err(error) => {
                assert!(matches!(error, UsageError::TooLarge { what: "all lists and maps together", .. }), "{error}");
                break;
            }
        }
    }
    assert_eq!(fit.len(), limits::COLLECTIONS_BYTES / (261 * (4004 + size_of::<Vec<u8>>() + limits::COLLECTION_ITEM_MEMORY)));
    // a feed that rolls has no place to roll in
    let long = Line { by: 1, text: "x".repeat(4000) };
    let mut feed = peer.list_mut::<Line>().unwrap();
    while feed.push(long.clone()).is_ok() {
        assert!(feed.len() < 20, "there is no room for so many");
    }
    let before = feed.len();
    assert!(before > 1 && feed.push(long.clone()).is_err());
    assert_eq!(feed.len(), before, "what others have empties no feed");
    // what ends makes room for others
    peer.despawn(&mut world, fit[0]).unwrap();
    peer.send(Duration::ZERO, &mut world).unwrap();
    full(&mut peer, &world, fit[1]).unwrap_err();
    peer.list_mut::<Line>().unwrap().push(long).unwrap();
    // and how many entities have one
    let mut peer = Peer::alone(schema(), Config::default()).unwrap();
    let mut world = hecs::World::new();
    for n in 0..=limits::COLLECTIONS_HELD {
        let entity = peer.spawn(&mut world, Crate, (Position { x: 0.0, y: 0.0 },)).unwrap();
        let made = peer.map_mut_for::<u16, u32>(&world, entity).map(drop);
        let expected = if n < limits::COLLECTIONS_HELD { Ok(()) } else { Err(UsageError::TooManyCollections) };
        assert_eq!(made, expected);
    }
}

/// A guest keeps what was hidden from it, and the host has long let it go: that must not count against the guest.
#[test]
fn what_a_guest_keeps_of_hidden_entities_makes_room() {
    type Wide = [u64; 512];
    for seed in seeds(2) {
        let schema = Schema::builder("test")
            .component::<Position>("position", |c| c)
            .kind::<Crate>("crate", Host::default())
            .kind::<Player>("player", Owner::default())
            .list::<Wide>("wide", |l| l.max(2000))
            .build()
            .unwrap();
        let (mut table, network) = table_of(seed, &schema, 0, weather(30, 0.0), &wide());
        table.seat(0).peer.set_relevance(Relevance::within(10.0).place(|p: &Position| [p.x, p.y, 0.0])).unwrap();
        let guest = table.join(wide(), network.join(weather(30, 0.02), weather(30, 0.02))).unwrap();
        until(&mut table, 10, "admission", |t| t.seat(guest).peer.is_in_session());
        let seat = table.seat(guest);
        seat.peer.spawn(&mut seat.world, Player, (Position { x: 0.0, y: 0.0 },)).unwrap();
        let host = table.seat(0);
        let near = |host: &mut tidelock::testing::Seat| {
            let entity = host.peer.spawn(&mut host.world, Crate, (Position { x: 1.0, y: 0.0 },)).unwrap();
            let mut list = host.peer.list_mut_for::<Wide>(&host.world, entity).unwrap();
            (0..1900).for_each(|n| list.push([n % 2; 512]).unwrap());
            entity
        };
        let first: Vec<Entity> = (0..4).map(|_| near(host)).collect();
        let lens = |t: &mut Table, of: &[Entity]| -> Vec<usize> {
            let host = t.seat(0);
            let nets: Vec<_> = of.iter().map(|entity| host.peer.name_of(&host.world, *entity).unwrap()).collect();
            let seat = t.seat(guest);
            let len = |there| seat.peer.list_for::<Wide>(&seat.world, there).unwrap().len();
            nets.iter().map(|net| seat.find(*net).map_or(0, len)).collect()
        };
        until(&mut table, 60, "the first", |t| lens(t, &first) == [1900; 4]);
        // far away they become short, of which the guest hears nothing
        for entity in &first {
            let host = table.seat(0);
            host.world.get::<&mut Position>(*entity).unwrap().x = 300.0;
        }
        table.rest(60);
        let host = table.seat(0);
        for entity in &first {
            host.peer.list_mut_for::<Wide>(&host.world, *entity).unwrap().truncate(1);
        }
        let second: Vec<Entity> = (0..4).map(|_| near(host)).collect();
        until(&mut table, 60, "the second", |t| lens(t, &second) == [1900; 4]);
        for entity in &first {
            table.seat(0).world.get::<&mut Position>(*entity).unwrap().x = 2.0;
        }
        until(&mut table, 20, "the first again", |t| lens(t, &first) == [1; 4]);
        assert_eq!(lens(&mut table, &second), [1900; 4], "SEED={seed}");
        assert_clean(&mut table);
    }
}

#[test]
fn a_feed_never_refuses() {
    let schema = Schema::builder("test").list::<Vec<u8>>("feed", |l| l.keep_last(1000)).build().unwrap();
    let mut peer = Peer::alone(schema, Config::default()).unwrap();
    let mut feed = peer.list_mut::<Vec<u8>>().unwrap();
    for n in 0..1500u32 {
        feed.push(n.to_le_bytes().to_vec()).unwrap();
    }
    assert_eq!((feed.len(), &feed[0][..]), (1000, &500u32.to_le_bytes()[..]));
    assert_eq!(feed.insert(0, vec![]), Err(UsageError::CollectionFull { max: 1000 }));
    // nor for bytes
    for n in 0..1000 {
        feed.push(noise(n, 4000)).unwrap();
    }
    assert_eq!(feed.len(), limits::COLLECTION_BYTES / 4004);
}

#[test]
fn what_a_program_must_not_do_is_an_error_at_the_call() {
    let (mut table, _network) = table_of(1, &schema(), 1, weather(10, 0.0), &wide());
    let guest = table.seat(1);
    assert!(matches!(guest.peer.list_mut::<Line>().err(), Some(UsageError::NotAllowed(_))));
    assert!(matches!(guest.peer.map_mut::<u16, u32>().err(), Some(UsageError::NotAllowed(_))));
    assert_eq!((guest.peer.list::<Line>().unwrap().len(), guest.peer.map::<u16, u32>().unwrap().revision()), (0, 0));
    let host = table.seat(0);
    assert!(matches!(host.peer.list_mut::<u8>().err(), Some(UsageError::NotInSchema(_))));
    assert!(matches!(host.peer.list::<u8>().err(), Some(UsageError::NotInSchema(_))));
    assert!(matches!(host.peer.map_mut::<u16, u64>().err(), Some(UsageError::NotInSchema(_))));
    let local = host.world.spawn(());
    assert!(matches!(host.peer.list_mut_for::<Line>(&host.world, local).err(), Some(UsageError::NotNetworked)));

    let build = |max: usize| Schema::builder("test").list::<Line>("feed", |l| l.max(max)).build();
    assert!(build(0).is_err() && build(1).is_ok());
    assert!(build(limits::COLLECTION_ITEMS).is_ok() && build(limits::COLLECTION_ITEMS + 1).is_err());
    assert_ne!(build(1).unwrap().digest(), build(2).unwrap().digest());
    let map = Schema::builder("test").map::<u8, Line>("feed", |m| m.max(1)).build().unwrap();
    assert_ne!(build(1).unwrap().digest(), map.digest());
    assert!(map.entries().iter().any(|entry| entry.name == "map feed") && map.explain().contains("map `feed`"));
    let twice = Schema::builder("test").list::<Line>("a", |l| l).list::<Line>("b", |l| l).build();
    let names = Schema::builder("test").list::<Line>("a", |l| l).map::<u8, Line>("a", |l| l).build();
    assert!(twice.is_err() && names.is_err());
    // the order of calls says nothing
    let one = Schema::builder("test").list::<Line>("a", |l| l).list::<u8>("b", |l| l).build().unwrap();
    let other = Schema::builder("test").list::<u8>("b", |l| l).list::<Line>("a", |l| l).build().unwrap();
    assert_eq!(one.digest(), other.digest());
}

#[test]
fn a_session_that_ends_leaves_nothing() {
    let (mut table, network) = table_of(1, &schema(), 1, weather(10, 0.0), &wide());
    table.seat(0).peer.list_mut::<Line>().unwrap().push(line(1)).unwrap();
    until(&mut table, 10, "it", |t| t.seat(1).peer.list::<Line>().unwrap().len() == 1);
    let guest = table.seat(1).peer.local();
    let host = table.seat(0);
    host.peer.kick(&mut host.world, guest, "go").unwrap();
    table.rest(60);
    assert_eq!((table.seat(1).peer.list::<Line>().unwrap().len(), bag(&table.seat(1).peer).0), (0, 0));
    // who comes back is new, and gets all of it
    let again = table.join(wide(), network.join(weather(10, 0.0), weather(10, 0.0))).unwrap();
    until(&mut table, 10, "it, again", |t| t.seat(again).peer.list::<Line>().unwrap().len() == 1);
}
