//! What comes and goes for a guest: flapping, overlapping rooms, re-parenting through loss and a small budget, removal notices, sets
//! that are seen together, and what becomes of references and ownership.

mod audience_game;
mod common;
mod second_decoder;

use audience_game::{Furled, Veil, admit, assert_resolved, closes_circle, pick, ruled, table};
use common::record::{Log, Passed, Recorder, Way};
use common::{Banner, ChildOf, Crate, Link, Player, Position, Rng, assert_clean, assert_settles, config, schema, seeds, weather};
use hecs::{Entity, World};
use second_decoder::Presence;
use second_decoder::of_common::described;
use second_decoder::stream::Stream;
use std::time::Duration;
use tidelock::testing::{Seat, Table};
use tidelock::{Config, NetId, News, PeerId, Relevance, Room, Viewpoint};
use tidelock_loopback::Network;

/// Rests until the host has looked, and then until all is equal.
fn calm(table: &mut Table, seconds: u64) {
    table.rest(30);
    assert_settles(table, seconds);
}

/// A place on a line.
fn at(x: f32) -> Position {
    Position { x, y: 0.0 }
}

fn spawn_crates(table: &mut Table, count: usize) -> Vec<Entity> {
    let Seat { peer, world, .. } = table.seat(0);
    (0..count).map(|i| peer.spawn(world, Crate, (at(i as f32 * 0.05),)).unwrap()).collect()
}

fn name(table: &mut Table, entity: Entity) -> NetId {
    let Seat { peer, world, .. } = table.seat(0);
    peer.name_of(world, entity).unwrap()
}

/// How often a guest was told that an entity came, went out of sight, and ended.
fn told(news: &[News], of: NetId) -> (usize, usize, usize) {
    let count = |is: &dyn Fn(&News) -> bool| news.iter().filter(|n| is(n)).count();
    let spawned = count(&|n| matches!(n, News::Spawned { net, .. } if *net == of));
    let hidden = count(&|n| matches!(n, News::Hidden { net, .. } if *net == of));
    (spawned, hidden, count(&|n| matches!(n, News::Despawned { net, .. } if *net == of)))
}

/// Everything that the host sends over its first link, read by the second reader.
struct Wire {
    log: Log,
    reader: Stream,
}

/// What went over the wire.
#[derive(Default)]
struct Sent {
    ends: Vec<NetId>,
    /// Presence, of whoever.
    lifecycle: usize,
    names: Vec<u64>,
}

impl Wire {
    fn table(seed: u64, relevance: Relevance, loss: f64, config: &Config) -> (Table, Self) {
        let (log, network) = (Log::default(), Network::new(seed));
        let host = Recorder::new(network.host(), &log, 0);
        let mut table = Table::new(seed, &schema(), config.clone(), host).unwrap();
        table.seat(0).peer.set_relevance(relevance).unwrap();
        table.join(config.clone(), network.join(weather(50, loss), weather(50, loss))).unwrap();
        admit(&mut table);
        let mut wire = Self { log, reader: Stream::new(described(), 262_144) };
        wire.take(&mut table);
        (table, wire)
    }

    /// What was sent since the last call.
    fn take(&mut self, table: &mut Table) -> Sent {
        let (schema, tick, mut sent) = (described(), table.seat(0).peer.tick().0, Sent::default());
        let is_state = |p: &Passed| p.way == Way::Sent && p.lane.is_none() && matches!(p.bytes[0] & 3, 0 | 2);
        for passed in self.log.take().iter().filter(|p| is_state(p)) {
            let packet = self.reader.read(&passed.bytes, tick, tick).unwrap_or_else(|e| panic!("SEED={}: {e:?}", table.seed));
            for value in packet.values() {
                if value.component == 0 {
                    let presence = Presence::of_words(&schema, &value.words);
                    sent.lifecycle += 1;
                    sent.names.push(presence.net);
                    if presence.life != 1 {
                        sent.ends.push(NetId(presence.net));
                    }
                }
            }
        }
        sent
    }
}

/// Case 7. `loss` in percent.
fn removal_notices(seed: u64, loss: f64) -> usize {
    let (mut table, mut wire) = Wire::table(seed, ruled(Relevance::everything()), loss, &config());
    let crates = spawn_crates(&mut table, 2000);
    calm(&mut table, 30);
    table.rest(120);
    wire.take(&mut table);
    for entity in &crates {
        table.seat(0).world.insert_one(*entity, Veil(0)).unwrap();
    }
    // 2000 ends of about 40 bits; the budget is for each send
    table.rest(60);
    let mut ends = wire.take(&mut table).ends;
    let most = if loss > 0.0 { 240 } else { 0 };
    table.rest(most);
    ends.extend(wire.take(&mut table).ends);
    table.rest(300);
    let late = wire.take(&mut table);
    assert_eq!(late.lifecycle, 0, "SEED={seed}: the ends of {:?} are still told", late.ends);
    let mut names = ends.clone();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2000, "SEED={seed}");
    let Seat { peer, world, news, .. } = table.seat(1);
    assert_eq!((peer.entity_count(), world.query::<&Crate>().iter().count()), (0, 0), "SEED={seed}");
    assert_eq!(news.iter().filter(|n| matches!(n, News::Hidden { .. })).count(), 2000, "SEED={seed}");
    assert!(!news.iter().any(|n| matches!(n, News::Despawned { .. })), "SEED={seed}: what is hidden is not despawned");
    ends.len()
}

#[test]
fn a_removal_is_told_once() {
    for seed in seeds(3) {
        assert_eq!(removal_notices(seed, 0.0), 2000, "SEED={seed}: without loss");
        let lossy = removal_notices(seed, 0.1);
        assert!((2001..=3000).contains(&lossy), "SEED={seed}: {lossy} ends at 10 % loss");
    }
}

/// Case 6: guest 1 owns the entity, guest 2 watches it come and go.
fn flap(seed: u64, loss: f64, toggles: &mut dyn FnMut(u64, &mut Rng) -> bool, frames: u64, ends_visible: bool) {
    let mut rng = Rng::new(seed);
    let (mut table, _network) = table(seed, &schema(), ruled(Relevance::everything()), 2, weather(40, loss), &config());
    let Seat { peer, world, .. } = table.seat(1);
    let (mine, owner) = (peer.spawn(world, Player, (at(1.0),)).unwrap(), peer.local());
    let net = peer.name_of(world, mine).unwrap();
    calm(&mut table, 10);
    let mut visible = true;
    for frame in 0..frames {
        if toggles(frame, &mut rng) {
            visible = !visible;
        }
        let Seat { peer, world, .. } = table.seat(0);
        let entity = peer.entity_of(net).unwrap();
        world.insert_one(entity, Veil(if visible { !0 } else { 0 })).unwrap();
        table.rest(1);
        let Seat { peer, world, .. } = table.seat(1);
        assert_eq!(peer.entity_of(net), Some(mine), "SEED={seed} frame {frame}: what a guest owns is never hidden from it");
        assert!(peer.is_owner(world, mine) && peer.has_authority::<Position>(world, mine), "SEED={seed} frame {frame}");
    }
    let entity = table.seat(0).peer.entity_of(net).unwrap();
    table.seat(0).world.insert_one(entity, Veil(if ends_visible { !0 } else { 0 })).unwrap();
    calm(&mut table, 10);
    table.seat(1).world.get::<&mut Position>(mine).unwrap().x = 77.0;
    table.rest(90);
    calm(&mut table, 10);
    let host = table.seat(0);
    assert_eq!(host.peer.owner(&host.world, entity, 0), Some(owner), "SEED={seed}");
    assert_eq!(host.world.get::<&Position>(entity).unwrap().x, 77.0, "SEED={seed}: the owner's change arrives");
    let Seat { peer, world, news, .. } = table.seat(2);
    let copies: Vec<f32> = world.query::<&Position>().iter().map(|p| p.x).collect();
    let (spawned, hidden, despawned) = told(news, net);
    assert_eq!(copies, if ends_visible { vec![77.0] } else { vec![] }, "SEED={seed}");
    assert_eq!((despawned, spawned - hidden), (0, usize::from(ends_visible)), "SEED={seed}: {spawned} came, {hidden} went");
    if let Some(copy) = peer.entity_of(net) {
        assert_eq!(peer.owner(world, copy, 0), Some(owner), "SEED={seed}");
    }
    assert_clean(&mut table);
}

#[test]
fn flapping_ends_with_one_copy_or_none() {
    for seed in seeds(10) {
        // hidden in one send and shown in the next
        flap(seed, 0.0, &mut |frame, _| frame == 3 || frame == 4, 30, true);
        flap(seed, 0.5, &mut |frame, _| frame == 3 || frame == 4, 30, true);
        flap(seed, 0.1, &mut |_, rng| rng.chance(50), 1000, true);
        flap(seed, 0.1, &mut |_, rng| rng.chance(50), 1000, false);
    }
}

/// Case 6 (i): what is hidden and shown between two sends is nothing; (iv): what is hidden costs nothing and has no name.
#[test]
fn what_is_hidden_costs_nothing() {
    for seed in seeds(3) {
        let (mut table, mut wire) = Wire::table(seed, ruled(Relevance::everything()), 0.0, &config());
        let entity = spawn_crates(&mut table, 1)[0];
        let net = name(&mut table, entity);
        calm(&mut table, 10);
        table.rest(60);
        wire.take(&mut table);
        let world = &mut table.seat(0).world;
        world.insert_one(entity, Veil(0)).unwrap();
        world.insert_one(entity, Veil(!0)).unwrap();
        table.rest(60);
        assert_eq!(wire.take(&mut table).lifecycle, 0, "SEED={seed}: nothing has happened");
        assert_eq!(told(&table.seat(1).news, net), (1, 0, 0), "SEED={seed}");
        table.seat(0).world.insert_one(entity, Veil(0)).unwrap();
        table.rest(60);
        wire.take(&mut table);
        let guest = table.seat(1).peer.local();
        let before = table.seat(0).peer.stats(guest).unwrap().sent.state_bytes;
        for i in 0..120 {
            table.seat(0).world.get::<&mut Position>(entity).unwrap().x = i as f32;
            table.rest(1);
        }
        assert_eq!(wire.take(&mut table).names, Vec::<u64>::new(), "SEED={seed}");
        assert_eq!(table.seat(0).peer.stats(guest).unwrap().sent.state_bytes, before, "SEED={seed}: bytes for what is hidden");
    }
}

/// Case 8.
#[test]
fn one_room_of_several_is_enough() {
    const A: Room = Room(1);
    const B: Room = Room(2);
    const D: Room = Room(3);
    for seed in seeds(5) {
        let (mut table, _network) = table(seed, &schema(), Relevance::everything(), 1, weather(50, 0.1), &config());
        let guest = table.seat(1).peer.local();
        let entity = spawn_crates(&mut table, 1)[0];
        let net = name(&mut table, entity);
        let Seat { peer, world, .. } = table.seat(0);
        [A, B].into_iter().for_each(|room| peer.put_in_room(world, entity, room).unwrap());
        [A, B, D].into_iter().for_each(|room| peer.enter_room(guest, room).unwrap());
        calm(&mut table, 10);
        let Seat { peer, world, .. } = table.seat(0);
        assert!(peer.take_from_room(world, entity, A).unwrap());
        calm(&mut table, 10);
        table.rest(60);
        let Seat { peer, world, .. } = table.seat(0);
        assert!(peer.take_from_room(world, entity, B).unwrap());
        peer.put_in_room(world, entity, D).unwrap();
        table.rest(60);
        calm(&mut table, 10);
        assert_eq!(told(&table.seat(1).news, net), (1, 0, 0), "SEED={seed}: it was in sight all along");
        assert!(table.seat(0).peer.leave_room(guest, D).unwrap());
        table.rest(60);
        calm(&mut table, 10);
        assert_eq!(told(&table.seat(1).news, net), (1, 1, 0), "SEED={seed}");
        assert!(!table.seat(0).peer.leave_room(guest, D).unwrap(), "SEED={seed}: it is out already");
        // who enters twice leaves twice
        (0..2).for_each(|_| table.seat(0).peer.enter_room(guest, D).unwrap());
        assert!(table.seat(0).peer.leave_room(guest, D).unwrap());
        table.rest(60);
        assert!(table.seat(1).peer.entity_of(net).is_some(), "SEED={seed}");
        assert_clean(&mut table);
    }
}

/// Every attached child has its parent, at every moment.
fn assert_attached(table: &mut Table, frame: u32) {
    assert_resolved(table);
    let seed = table.seed;
    let Seat { world, .. } = table.seat(1);
    for (entity, child) in world.query::<(Entity, &ChildOf)>().iter() {
        assert!(world.satisfies::<&Position>(child.parent), "SEED={seed} frame {frame}: {entity:?} hangs on nothing");
    }
}

fn rearrange(world: &mut World, parents: &mut Vec<Entity>, children: &mut Vec<Entity>, rng: &mut Rng) {
    let (Some(child), Some(parent)) = (pick(children, rng), pick(parents, rng)) else { return };
    world.insert_one(child, ChildOf { parent }).unwrap();
    if rng.chance(10) {
        // to one that the guest may never have seen, while the child itself goes out of its range
        *world.get::<&mut Position>(child).unwrap() = at(400.0);
    }
    if rng.chance(3) && parents.len() > 8 {
        let gone = parents.swap_remove(rng.below(parents.len() as u64) as usize);
        let hang = |child: &Entity| world.get::<&ChildOf>(*child).is_ok_and(|c| c.parent == gone);
        let with: Vec<Entity> = children.iter().copied().filter(hang).collect();
        children.retain(|child| !with.contains(child));
        with.into_iter().chain([gone]).for_each(|entity| world.despawn(entity).unwrap());
    }
}

/// Case 5.
#[test]
fn children_come_with_their_parents() {
    for seed in seeds(10) {
        let mut rng = Rng::new(seed);
        let config = Config { bandwidth: 480_000, ..config() };
        let relevance = ruled(Relevance::within(60.0).refresh(2));
        let (mut table, _network) = table(seed, &schema(), relevance, 1, weather(60, 0.1), &config);
        let guest = table.seat(1).peer.local();
        let Seat { peer, world, .. } = table.seat(0);
        let mut place = || at(rng.below(800) as f32 - 400.0);
        let mut parents: Vec<Entity> = (0..20).map(|_| peer.spawn(world, Crate, (place(),)).unwrap()).collect();
        let child = |i: usize| ChildOf { parent: parents[i / 5] };
        let mut children: Vec<Entity> = (0..100).map(|i| peer.spawn(world, Crate, (place(), child(i))).unwrap()).collect();
        for frame in 0..400 {
            let Seat { peer, world, .. } = table.seat(0);
            peer.look_from(guest, Viewpoint::Point([frame as f32 * 2.0 - 400.0, 0.0, 0.0])).unwrap();
            rearrange(world, &mut parents, &mut children, &mut rng);
            table.rest(1);
            assert_attached(&mut table, frame);
        }
        table.rest(120);
        calm(&mut table, 20);
        assert!(table.seat(1).news.iter().filter(|n| matches!(n, News::Hidden { .. })).count() > 20, "SEED={seed}: nothing went");
        assert_clean(&mut table);
    }
}

#[test]
fn a_parent_that_goes_out_of_sight_takes_its_children_along() {
    let (mut table, _network) = table(1, &schema(), ruled(Relevance::everything()), 1, weather(30, 0.0), &config());
    let crates = spawn_crates(&mut table, 3);
    let (child, parent, other) = (crates[0], crates[1], crates[2]);
    assert!(!closes_circle(&table.seat(0).world, child, parent));
    table.seat(0).world.insert_one(child, ChildOf { parent }).unwrap();
    calm(&mut table, 5);
    assert_eq!(table.seat(1).peer.entity_count(), 3);
    table.seat(0).world.insert_one(parent, Veil(0)).unwrap();
    table.rest(30);
    calm(&mut table, 5);
    assert_eq!(table.seat(1).peer.entity_count(), 1);
    table.seat(0).world.insert_one(child, ChildOf { parent: other }).unwrap();
    table.rest(30);
    calm(&mut table, 5);
    assert_eq!(table.seat(1).peer.entity_count(), 2, "on another parent it is in sight again");
}

#[test]
fn what_is_seen_together_appears_in_one_frame() {
    for seed in seeds(10) {
        let config = Config { bandwidth: 576_000, ..config() };
        let (mut table, _network) = table(seed, &schema(), ruled(Relevance::within(20.0)), 1, weather(40, 0.1), &config);
        let guest = table.seat(1).peer.local();
        // more than one send takes, sorted into sets of ten
        let crates = spawn_crates(&mut table, 400);
        let Seat { peer, world, .. } = table.seat(0);
        crates.chunks(10).for_each(|set| peer.see_together(world, set).unwrap());
        peer.look_from(guest, Viewpoint::Point([0.0; 3])).unwrap();
        let sets: Vec<Vec<NetId>> =
            crates.chunks(10).map(|set| set.iter().map(|e| peer.name_of(world, *e).unwrap()).collect()).collect();
        let mut partial = 0;
        for frame in 0..300 {
            table.rest(1);
            let here = &table.seat(1).peer;
            let all = sets.iter().filter(|set| here.entity_of(set[0]).is_some()).count();
            partial += usize::from((1..40).contains(&all));
            for set in &sets {
                let count = set.iter().filter(|net| here.entity_of(**net).is_some()).count();
                assert!(count == 0 || count == 10, "SEED={seed} frame {frame}: {count} of a set");
            }
        }
        assert!(partial > 1, "SEED={seed}: all came at once, so nothing was tested");
        assert_eq!(table.seat(1).peer.entity_count(), 400, "SEED={seed}");
        assert_clean(&mut table);
    }
}

/// A hidden entity's copy is gone, comes back as another local entity, and what names it waits.
#[test]
fn references_wait_while_their_target_is_hidden() {
    let (mut table, _network) = table(1, &schema(), ruled(Relevance::everything()), 1, weather(30, 0.1), &config());
    let crates = spawn_crates(&mut table, 2);
    let (namer, target) = (crates[0], crates[1]);
    table.seat(0).world.insert_one(namer, Link { target }).unwrap();
    let names = [name(&mut table, namer), name(&mut table, target)];
    calm(&mut table, 5);
    let linked = |table: &mut Table| {
        let Seat { peer, world, .. } = table.seat(1);
        let entity = peer.entity_of(names[0]).unwrap();
        world.get::<&Link>(entity).ok().map(|link| link.target)
    };
    let before = table.seat(1).find(names[1]).unwrap();
    assert_eq!(linked(&mut table), Some(before));
    table.seat(1).take_news();
    table.seat(0).world.insert_one(target, Veil(0)).unwrap();
    table.rest(60);
    let Seat { peer, world, news, .. } = table.seat(1);
    assert!(peer.entity_of(names[1]).is_none() && !world.contains(before));
    assert_eq!(told(news, names[1]), (0, 1, 0));
    assert_eq!(peer.waiting_references(), 0, "it does not know what it would wait for");
    assert_eq!(linked(&mut table), None);
    table.seat(0).world.insert_one(target, Veil(!0)).unwrap();
    table.rest(60);
    calm(&mut table, 5);
    let after = table.seat(1).find(names[1]).unwrap();
    assert_ne!(after, before, "another local entity");
    assert_eq!(linked(&mut table), Some(after));
    // one that ends while it is hidden: the guest is told nothing, and nothing waits
    table.seat(0).world.insert_one(target, Veil(0)).unwrap();
    table.rest(60);
    table.seat(1).take_news();
    table.seat(0).world.despawn(target).unwrap();
    table.rest(60);
    calm(&mut table, 5);
    let Seat { peer, news, .. } = table.seat(1);
    assert_eq!((told(news, names[1]), peer.waiting_references()), ((0, 0, 0), 0));
    assert_clean(&mut table);
}

#[test]
fn who_is_given_an_entity_sees_it_with_all_it_has() {
    for seed in seeds(20) {
        let (mut table, _network) = table(seed, &schema(), ruled(Relevance::everything()), 2, weather(30, 0.1), &config());
        let guest: PeerId = table.seat(1).peer.local();
        let Seat { peer, world, .. } = table.seat(0);
        let parts = (at(3.0), Banner { colour: 7 }, Veil(0), Furled(0));
        let entity = peer.spawn(world, Player, parts).unwrap();
        let net = peer.name_of(world, entity).unwrap();
        calm(&mut table, 5);
        assert!(table.seat(1).peer.entity_of(net).is_none() && table.seat(2).peer.entity_of(net).is_none(), "SEED={seed}");
        // first in sight without its banner, then its own; or its own at once
        if seed % 2 == 0 {
            table.seat(0).world.insert_one(entity, Veil(!0)).unwrap();
            calm(&mut table, 5);
            let Seat { peer, world, .. } = table.seat(1);
            assert!(!world.satisfies::<&Banner>(peer.entity_of(net).unwrap()), "SEED={seed}");
        }
        let Seat { peer, world, .. } = table.seat(0);
        peer.grant(world, entity, 0, guest).unwrap();
        table.rest(60);
        calm(&mut table, 5);
        let Seat { peer, world, .. } = table.seat(1);
        let own = peer.entity_of(net).unwrap();
        assert!(peer.is_owner(world, own), "SEED={seed}");
        assert_eq!(world.get::<&Banner>(own).map(|b| b.colour).ok(), Some(7), "SEED={seed}: what it owns is not hidden from it");
        assert_eq!(table.seat(0).world.get::<&Banner>(entity).unwrap().colour, 7, "SEED={seed}: nor lost by that");
        let Seat { peer, world, .. } = table.seat(0);
        peer.grant(world, entity, 0, PeerId::HOST).unwrap();
        world.insert_one(entity, Veil(0)).unwrap();
        table.rest(60);
        calm(&mut table, 5);
        assert!(table.seat(1).peer.entity_of(net).is_none(), "SEED={seed}: it is not its own any more");
        assert_clean(&mut table);
    }
}

/// A guest that is told of changes every few sends is told of the last one, though nothing else happens.
#[test]
fn what_is_told_less_often_is_told_in_the_end() {
    let detail = tidelock::Detail { full: 10.0, slowest: 8 };
    let (mut table, _network) =
        table(1, &schema(), ruled(Relevance::everything()).detail(detail), 1, weather(30, 0.0), &config());
    let guest = table.seat(1).peer.local();
    let far = {
        let Seat { peer, world, .. } = table.seat(0);
        peer.spawn(world, Crate, (at(400.0),)).unwrap()
    };
    table.seat(0).peer.look_from(guest, Viewpoint::Point([0.0; 3])).unwrap();
    table.rest(60);
    for y in [1.0, 2.0] {
        // the second is too soon after the first, and the last that happens
        table.seat(0).world.get::<&mut Position>(far).unwrap().y = y;
        table.rest(1);
    }
    assert!(table.settle(Duration::from_millis(500)), "{:?}", table.all_equal());
    table.rest(600);
    assert_clean(&mut table);
}
