//! A snapshot is the world again, wherever it is loaded, and bytes that are none change nothing.

use super::*;
use crate::Networked;
use crate::checkpoint::CheckpointError;
use crate::peer_id::PeerId;
use crate::rng::mix;
use std::time::Duration;

const ALL: u64 = u64::MAX;

/// A step of a game in which everything that is kept comes, changes and goes, decided by the tick alone.
fn play(world: &mut World, step: &mut Step<'_>) {
    let mut rng = step.rng(NetId(0), 1);
    for i in 0..rng.below(4) {
        let position = Position { x: rng.range(-9.0, 9.0), y: f32::from_bits(0x7fc0_0000 | rng.below(9)) };
        match rng.below(3) {
            0 => step.spawn(world, Crate, (position,)),
            _ => step.spawn_as(world, u64::from(i) << 40, Unit, (position, Name(format!("unit {}", rng.below(1 << 30))))),
        }
        .unwrap();
    }
    let (mut all, mut list) = (Vec::new(), step.ordered::<Entity>(world));
    while let Some((_, entity)) = list.next() {
        all.push(entity);
    }
    for _ in 0..rng.below(6) {
        let Some(entity) = rng.pick(&all).copied().filter(|e| step.alive(world, *e)) else { continue };
        match rng.below(5) {
            0 if all.len() > 20 => step.despawn(world, entity).unwrap(),
            1 => world.insert(entity, (Stunned(rng.below(200) as u8), Velocity { x: -0.0 })).unwrap(),
            2 => drop(world.remove_one::<Stunned>(entity)),
            // in any direction, to itself, in circles, and to who is dead
            _ => world.insert_one(entity, Target(*rng.pick(&all).unwrap())).unwrap(),
        }
    }
    let mut movers = step.ordered::<&mut Position>(world);
    let mut sum = 0.0;
    while let Some((_, position)) = movers.next() {
        position.x = position.x * 0.75 + 1.0;
        sum = sum * 0.5 + position.x;
    }
    let score = step.resource::<Score>(world).unwrap();
    score.sum = sum;
    score.log.push(all.len() as u32);
}

fn played(steps: u64) -> Scene {
    let mut scene = Scene::new(10);
    for _ in 0..steps {
        scene.step(play);
    }
    scene
}

/// Everything that a program could see of the networked entities, handles aside.
fn look(scene: &Scene) -> Vec<String> {
    let mut seen = Vec::new();
    for (_, record) in scene.peer.entities.iter().filter(|(_, r)| !r.parked) {
        let (world, e) = (&scene.world, record.entity);
        let target = world.get::<&Target>(e).ok().map(|t| scene.peer.name_of(world, t.0));
        let position = world.get::<&Position>(e).ok().map(|p| (p.x.to_bits(), p.y.to_bits()));
        let name = world.get::<&Name>(e).ok().map(|n| n.0.clone());
        let stunned = world.get::<&Stunned>(e).ok().map(|s| s.0);
        let velocity = world.get::<&Velocity>(e).ok().map(|v| v.x.to_bits());
        let marks = (world.satisfies::<&Unit>(e), world.satisfies::<&Simulated>(e), world.satisfies::<&Rewound>(e));
        let tag = record.tag();
        seen.push(format!("{} {position:?} {name:?} {stunned:?} {velocity:?} {target:?} {marks:?} {tag:?}", record.net));
    }
    seen.sort();
    let score = scene.peer.entities.resources[0].map(|e| format!("{:?}", *scene.world.get::<&Score>(e).unwrap()));
    seen.extend(score);
    seen
}

fn load(scene: &mut Scene, bytes: &[u8], kinds: u64) -> Result<Tick, SnapshotError> {
    scene.peer.load_snapshot(&mut scene.world, Timeline::Session, bytes, kinds)
}

#[test]
fn a_snapshot_is_the_same_world_whatever_was_there_before() {
    for seed in 0..40u64 {
        let mut source = played(8 + seed);
        let tick = source.step(|_, _| {});
        let bytes = source.peer.snapshot(&source.world, Timeline::Session, tick, ALL).unwrap();
        let digest = source.peer.saved_digest(&source.world, tick);
        // one who was there, went other ways from some tick on, and has things of its own
        let mut other = played(mix(seed, 1) % (8 + seed));
        for _ in 0..mix(seed, 2) % 5 {
            other.step(|world, step| other_ways(world, step, seed));
        }
        let handles: Vec<(NetId, Entity, usize)> =
            other.peer.entities.iter().filter(|r| !r.1.parked).map(|(_, r)| (r.net, r.entity, r.kind)).collect();
        for (i, (_, entity, _)) in handles.iter().enumerate().filter(|(i, _)| i % 3 == 0) {
            other.world.insert_one(*entity, Sprite(i as u64)).unwrap();
        }
        let sprites = other.world.spawn((Sprite(u64::MAX),));
        assert_eq!(load(&mut other, &bytes, ALL), Ok(tick), "SEED={seed}");
        assert_eq!(look(&other), look(&source), "SEED={seed}");
        assert_eq!(Some(other.digest()), digest, "SEED={seed}");
        assert!(other.world.satisfies::<&Sprite>(sprites));
        for (i, (net, entity, kind)) in handles.iter().enumerate() {
            let there = source.peer.entities.slot_of(*net).and_then(|slot| source.peer.entities.get(slot));
            // in a wrong branch somebody else may have got the name
            if there.is_none_or(|r| r.parked || r.kind != *kind) {
                assert!(!other.world.contains(*entity), "SEED={seed}: {net} is another one in the snapshot, or not there");
                continue;
            }
            let now = other.peer.entity_of(*net).unwrap();
            assert_eq!(now, *entity, "SEED={seed}: {net} keeps its handle");
            let sprite = other.world.get::<&Sprite>(now).ok().map(|s| s.0);
            assert_eq!(sprite, (i % 3 == 0).then_some(i as u64), "SEED={seed}: what is local stays");
        }
        // and it goes on alike, rewinding included
        other.peer.time.step = source.peer.time.step;
        other.peer.time.tick = source.peer.time.tick;
        for _ in 0..6 {
            let at = source.step(play);
            assert_eq!(other.step(play), at);
            assert_eq!(other.digest(), source.digest(), "SEED={seed}: after {at}");
        }
        let back = source.peer.tick().minus(2);
        source.rewind(back);
        other.rewind(back);
        (0..3).for_each(|_| assert_eq!(source.step(play), other.step(play)));
        assert_eq!(other.digest(), source.digest(), "SEED={seed}: after a rewind");
    }
}

fn other_ways(world: &mut World, step: &mut Step<'_>, seed: u64) {
    step.spawn(world, Crate, (Position { x: seed as f32, y: 1.0 }, Stunned(3))).unwrap();
    let (mut all, mut list) = (Vec::new(), step.ordered::<Entity>(world));
    while let Some((_, entity)) = list.next() {
        all.push(entity);
    }
    if let Some(victim) = all.get(seed as usize % (all.len() + 1)) {
        step.despawn(world, *victim).unwrap();
    }
    world.query_mut::<&mut Position>().into_iter().for_each(|p| p.x = -1.0);
}

#[test]
fn the_same_world_is_the_same_bytes_whatever_its_rows_and_what_is_local_there() {
    let mut source = played(30);
    let tick = source.step(|_, _| {});
    let bytes = source.peer.save_bytes(&source.world, tick).unwrap();
    let mut other = Scene::new(10);
    for i in 0..50 {
        other.world.spawn((Sprite(i),));
    }
    assert_eq!(load(&mut other, &bytes, ALL), Ok(tick));
    let all: Vec<Entity> = other.world.query::<Entity>().with::<&Networked>().iter().collect();
    for entity in all.iter().step_by(2).chain(all.iter().step_by(5)) {
        let _ = other.world.insert_one(*entity, Sprite(1));
    }
    other.peer.time.step = tick.minus(1);
    other.peer.time.tick = tick.minus(1);
    assert_eq!(other.step(|_, _| {}), tick);
    assert_eq!(other.peer.save_bytes(&other.world, tick).unwrap(), bytes);
}

#[test]
fn what_is_no_snapshot_changes_nothing() {
    let mut source = played(12);
    let tick = source.step(|_, _| {});
    let bytes = source.peer.save_bytes(&source.world, tick).unwrap();
    let mut other = played(7);
    let (before, count, digest) = (look(&other), other.world.len(), other.digest());
    let mut unchanged = |bytes: &[u8], what: &dyn Fn() -> String| {
        let result = load(&mut other, bytes, ALL);
        assert!(result.is_err(), "{}", what());
        assert_eq!(
            (other.world.len(), other.peer.saves[Timeline::Session].as_ref().unwrap().ring.len()),
            (count, 7),
            "{}",
            what()
        );
        result.unwrap_err()
    };
    for end in 0..bytes.len() {
        unchanged(&bytes[..end], &|| format!("the first {end} of {} bytes", bytes.len()));
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(unchanged(&longer, &|| "one more".into()), SnapshotError::Malformed(CheckpointError::Trailing(1)));
    assert_eq!(unchanged(&[2], &|| "layout".into()), SnapshotError::Layout(2));
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] ^= byte;
        bytes
    };
    assert_eq!(unchanged(&with(1, 1), &|| "schema".into()), SnapshotError::OtherSchema);
    assert_eq!(unchanged(&with(9, 1), &|| "session".into()), SnapshotError::Digest);
    assert_eq!(unchanged(&with(bytes.len() - 1, 1), &|| "digest".into()), SnapshotError::Digest);
    assert_eq!((look(&other), other.digest()), (before, digest));
}

#[test]
fn bytes_that_were_changed_never_panic_and_are_refused_or_whole() {
    let mut source = played(12);
    let tick = source.step(|_, _| {});
    let bytes = source.peer.save_bytes(&source.world, tick).unwrap();
    let mut accepted = 0;
    for seed in 0..6000u64 {
        let mut changed = bytes.clone();
        for i in 0..=mix(seed, 0) % 3 {
            let at = mix(seed, 1 + i) as usize % (changed.len() - 17) + 17;
            changed[at] = mix(seed, 9 + i) as u8;
        }
        let mut other = Scene::new(2);
        let result = load(&mut other, &changed, ALL);
        if result.is_err() {
            assert_eq!((other.world.len(), other.peer.entity_count()), (1, 0), "SEED={seed}: {result:?}");
        } else {
            accepted += 1; // owners, cuts and keys are in no digest
            assert!(other.world.query::<&Networked>().iter().count() == source.peer.entity_count(), "SEED={seed}");
        }
    }
    assert!((1..2000).contains(&accepted), "{accepted} of 6000 were taken");
}

#[test]
fn only_the_kinds_that_are_asked_for_are_told_and_touched() {
    let kind = |name: &str| schema().0.kinds.iter().position(|k| k.name == name).unwrap();
    let (units, crates) = (1u64 << kind("unit"), 1u64 << kind("crate"));
    let mut source = played(25);
    let tick = source.step(|world, _| {
        // references across kinds would need the others there
        let targets: Vec<Entity> = world.query::<(Entity, &Target)>().iter().map(|(e, _)| e).collect();
        targets.iter().for_each(|e| drop(world.remove_one::<Target>(*e)));
    });
    let tick = source.step(|_, _| {}).max(tick);
    let all = source.peer.snapshot(&source.world, Timeline::Session, tick, ALL).unwrap();
    let part = source.peer.snapshot(&source.world, Timeline::Session, tick, units).unwrap();
    assert!(part.len() < all.len());
    let mut other = Scene::new(4);
    let own = other.peer.spawn(&mut other.world, Crate, (Position { x: 5.0, y: 0.0 },)).unwrap();
    assert_eq!(load(&mut other, &all, units), Err(SnapshotError::Kind));
    assert_eq!(load(&mut other, &part, crates), Err(SnapshotError::Kind));
    assert_eq!(load(&mut other, &part, units), Ok(tick));
    assert_eq!(other.world.get::<&Position>(own).unwrap().x, 5.0);
    assert_eq!(other.world.query::<&Crate>().iter().count(), 1, "crates are not touched");
    let count = |scene: &Scene| scene.world.query::<(&Unit, &Networked)>().iter().count();
    assert_eq!(count(&other), count(&source));
    assert!(count(&source) > 5);
    // nobody of a kind that is not asked for gives way
    let net = source.peer.entities.iter().find(|(_, r)| r.kind == kind("unit") && !r.parked).map(|(_, r)| r.net).unwrap();
    let mut taken = Scene::new(4);
    let squatter = taken.world.spawn((Crate,));
    taken.peer.register_own(&mut taken.world, squatter, kind("crate"), net, PeerId::HOST);
    assert_eq!(load(&mut taken, &part, units), Err(SnapshotError::Taken(net)));
    assert_eq!(load(&mut taken, &all, ALL), Ok(tick));
    assert!(!taken.world.contains(squatter));
    assert!(taken.world.satisfies::<&Unit>(taken.peer.entity_of(net).unwrap()));
}

#[test]
fn what_names_somebody_who_is_not_there_waits_for_them() {
    let mut source = Scene::new(4);
    let hat = source.peer.spawn(&mut source.world, Hat, ()).unwrap();
    source.peer.spawn(&mut source.world, Unit, (Target(hat),)).unwrap();
    let tick = source.step(|_, _| {});
    let bytes = source.peer.save_bytes(&source.world, tick).unwrap();
    let net = source.peer.name_of(&source.world, hat).unwrap();
    let mut other = Scene::new(4);
    let unknown = SnapshotError::Values { component: "target".into(), error: CheckpointError::UnknownName(net) };
    assert_eq!(load(&mut other, &bytes, ALL & !(1 << hat_kind())), Err(unknown));
    other.world.spawn((Sprite(0),));
    let here = other.peer.spawn(&mut other.world, Hat, ()).unwrap();
    assert_eq!(other.peer.name_of(&other.world, here), Some(net));
    assert_eq!(load(&mut other, &bytes, ALL & !(1 << hat_kind())), Ok(tick));
    assert_eq!(other.world.query::<&Target>().iter().map(|t| t.0).collect::<Vec<_>>(), [here]);
}

fn hat_kind() -> usize {
    schema().0.kinds.iter().position(|k| k.name == "hat").unwrap()
}

#[test]
fn owners_and_keys_of_who_died_since_are_told_as_well() {
    let mut source = Scene::new(8);
    source.step(|world, step| {
        step.spawn_as(world, 77, Unit, (Stunned(1),)).unwrap();
    });
    let tick = source.step(|world, step| {
        let unit = world.query::<(Entity, &Unit)>().iter().next().unwrap().0;
        step.despawn(world, unit).unwrap();
    });
    let parked = source.peer.save_bytes(&source.world, tick).unwrap();
    source.peer.confirm(&mut source.world, tick);
    assert_eq!(source.peer.save_bytes(&source.world, tick).unwrap(), parked, "for good or not");
    let mut other = Scene::new(8);
    load(&mut other, &parked, ALL).unwrap();
    let record = other.peer.entities.iter().next().unwrap().1;
    assert_eq!((record.key, record.owners[0].peer, record.kind), (77, PeerId::HOST, 2));
}

#[test]
fn a_saved_game_goes_on_in_another_run_of_the_program() {
    let config = || Config { session: Some(99), ..Config::default() };
    let run = |peer: &mut Peer, world: &mut World, now: &mut Duration, ticks: u64| {
        let mut seen = Vec::new();
        while (seen.len() as u64) < ticks {
            *now += peer.tick_length() + Duration::from_nanos(1);
            peer.receive(*now, world).unwrap();
            while let Some(mut step) = peer.next_step(world) {
                seen.push(step.tick().0);
                play(world, &mut step);
            }
            peer.send(*now, world).unwrap();
        }
        seen
    };
    let mut straight = (Peer::alone(schema(), config()).unwrap(), World::new(), Duration::ZERO);
    straight.0.keep_saves(&mut straight.1, 8).unwrap();
    straight.0.receive(Duration::ZERO, &mut straight.1).unwrap();
    let first = straight.0.spawn(&mut straight.1, Unit, (Stunned(9),)).unwrap();
    let first = straight.0.name_of(&straight.1, first).unwrap();
    run(&mut straight.0, &mut straight.1, &mut straight.2, 40);
    let bytes = straight.0.save_bytes(&straight.1, Tick(36)).unwrap();
    assert_eq!(straight.0.save_bytes(&straight.1, Tick(9)), Err(RewindError::TooOld { tick: Tick(9), oldest: Tick(32) }));
    assert_eq!(straight.0.save_bytes(&straight.1, Tick(41)), Err(RewindError::NotSaved(Tick(41))));
    run(&mut straight.0, &mut straight.1, &mut straight.2, 20);
    for (began, before) in [(0u64, 0u64), (500, 3), (7, 90)] {
        let (mut peer, mut world) = (Peer::alone(schema(), config()).unwrap(), World::new());
        let mut now = Duration::from_millis(began);
        peer.receive(now, &mut world).unwrap();
        peer.keep_saves(&mut world, 8).unwrap();
        run(&mut peer, &mut world, &mut now, before);
        assert_eq!(peer.load_bytes(&mut world, &bytes), Ok(Tick(36)));
        assert_eq!(peer.tick(), Tick(35));
        let seen = run(&mut peer, &mut world, &mut now, 25);
        assert_eq!(seen, (36..61).collect::<Vec<_>>(), "no tick twice and none left out");
        assert_eq!(peer.saved_digest(&world, Tick(58)), straight.0.saved_digest(&straight.1, Tick(58)), "after {before}");
        assert!(peer.saved_digest(&world, Tick(58)).is_some());
        // a name that is in use is not given again
        let next = peer.spawn(&mut world, Unit, ()).unwrap();
        assert!(peer.name_of(&world, next).unwrap() > first);
    }
}

#[test]
fn owners_who_are_not_here_give_way_to_who_loads() {
    let mut source = Scene::new(4);
    let [mine, theirs, nobodys] = [0, 1, 2].map(|i| source.peer.spawn(&mut source.world, Unit, (Stunned(i),)).unwrap());
    for (entity, owner) in [(theirs, PeerId(7)), (nobodys, PeerId::NOBODY)] {
        let slot = source.peer.entities.slot_at(&source.world, entity).unwrap();
        source.peer.entities.get_mut(slot).unwrap().owners[0].peer = owner;
    }
    let names = [mine, theirs, nobodys].map(|e| source.peer.name_of(&source.world, e).unwrap());
    let tick = source.step(|_, _| {});
    let bytes = source.peer.save_bytes(&source.world, tick).unwrap();
    let owners = |scene: &Scene| names.map(|net| scene.peer.owner(&scene.world, scene.peer.entity_of(net).unwrap(), 0).unwrap());
    let mut other = Scene::new(4);
    load(&mut other, &bytes, ALL).unwrap();
    assert_eq!(owners(&other), [PeerId::HOST, PeerId(7), PeerId::NOBODY], "as given");
    other.peer.load_bytes(&mut other.world, &bytes).unwrap();
    assert_eq!(owners(&other), [PeerId::HOST, PeerId::HOST, PeerId::NOBODY]);
    let transport = tidelock_loopback::Network::new(1).host();
    let mut host = Peer::host(schema(), transport, Config::default()).unwrap();
    assert_eq!(host.load_bytes(&mut World::new(), &bytes), Err(SnapshotError::NotAlone));
}
