//! What rewinding promises, and what it must not be misled by.

use super::*;
use crate::config::Config;
use crate::policy::{Host, Owner};
use crate::schema::Schema;
use crate::step::Step;
use crate::{Checkpoint, Replicate, Simulated};

mod determinism;
mod pitfalls;
mod snapshots;
mod three_peers;

#[derive(Clone, Copy, Debug, PartialEq, Default, Replicate, Checkpoint)]
pub(super) struct Position {
    #[net(exact)]
    x: f32,
    #[net(exact)]
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Default, Replicate, Checkpoint)]
pub(super) struct Velocity {
    #[net(exact)]
    x: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Default, Replicate, Checkpoint)]
pub(super) struct Stunned(u8);

/// Owns memory.
#[derive(Clone, Debug, PartialEq, Default, Replicate, Checkpoint)]
pub(super) struct Name(#[net(max = 32)] String);

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Checkpoint)]
pub(super) struct Target(Entity);

#[derive(Clone, Debug, PartialEq, Default, Checkpoint)]
pub(super) struct Score {
    sum: f32,
    log: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Unit;
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Crate;
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Hat;

/// Local: neither registered nor `Clone`.
#[derive(Debug, PartialEq)]
pub(super) struct Sprite(u64);

pub(super) fn schema() -> Schema {
    Schema::builder("rewinding")
        .component::<Position>("position", |c| c.checkpoint())
        .component::<Velocity>("velocity", |c| c.checkpoint())
        .component::<Stunned>("stunned", |c| c.checkpoint())
        .component::<Name>("name", |c| c.checkpoint())
        .component::<Target>("target", |c| c.checkpoint())
        .resource::<Score>("score")
        .kind_with::<Unit>("unit", Host::default(), |k| k.rewound())
        .kind_with::<Crate>("crate", Host::default(), |k| k.rewound())
        .kind::<Hat>("hat", Owner::default())
        .build()
        .unwrap()
}

pub(super) struct Scene {
    pub(super) peer: Peer,
    pub(super) world: World,
}

impl Scene {
    pub(super) fn new(depth: usize) -> Self {
        let mut peer = Peer::alone(schema(), Config { session: Some(99), ..Config::default() }).unwrap();
        let mut world = World::new();
        peer.keep_saves(&mut world, depth).unwrap();
        Self { peer, world }
    }

    /// With units at 0, 1, 2 and so on, in their order.
    pub(super) fn with_units(depth: usize, count: u16) -> (Self, Vec<Entity>) {
        let mut scene = Self::new(depth);
        let spawn = |i: u16| {
            let x = f32::from(i);
            let components = (Position { x, y: 1.0 }, Name(format!("unit {i}")));
            scene.peer.spawn(&mut scene.world, Unit, components).unwrap()
        };
        let units = (0..count).map(spawn).collect();
        (scene, units)
    }

    /// The next step: one that is to be run again, or else a new one.
    pub(super) fn step(&mut self, run: impl FnOnce(&mut World, &mut Step<'_>)) -> Tick {
        if self.peer.saves[Timeline::Session].as_ref().is_none_or(|s| s.replay.is_empty()) {
            self.peer.time.due = self.peer.time.tick.plus(1);
        }
        let mut step = self.peer.next_step(&mut self.world).expect("a step is due");
        let tick = step.tick();
        run(&mut self.world, &mut step);
        tick
    }

    pub(super) fn rewind(&mut self, tick: Tick) -> Restored {
        self.peer.rewind(&mut self.world, tick).unwrap()
    }

    /// The digest of the world as it is.
    pub(super) fn digest(&mut self) -> u64 {
        let mut save = Save::default();
        self.peer.saves[Timeline::Session].as_mut().unwrap().copy(&self.world, &mut save);
        self.peer.read_save(&self.world, Timeline::Session, &save, |reading| reading.digest()).unwrap()
    }

    /// The first difference from another world.
    pub(super) fn difference(&mut self, other: &mut Self) -> Option<digest::Difference> {
        let (mut mine, mut others) = (Save::default(), Save::default());
        self.peer.saves[Timeline::Session].as_mut().unwrap().copy(&self.world, &mut mine);
        other.peer.saves[Timeline::Session].as_mut().unwrap().copy(&other.world, &mut others);
        let compare = |a: Reading<'_>| other.peer.read_save(&other.world, Timeline::Session, &others, |b| a.difference(&b));
        self.peer.read_save(&self.world, Timeline::Session, &mine, compare).unwrap().unwrap()
    }

    pub(super) fn xs(&self) -> Vec<(Entity, f32)> {
        let mut xs: Vec<_> = self.world.query::<(Entity, &Position)>().iter().map(|(e, p)| (e, p.x)).collect();
        xs.sort_by_key(|x| x.0);
        xs
    }
}

fn scribble(world: &mut World, _: &mut Step<'_>) {
    world.query_mut::<(&mut Position, Option<&mut Name>)>().into_iter().for_each(|(p, name)| {
        p.x = -1.0;
        if let Some(name) = name {
            name.0 = "scribbled all over".to_owned();
        }
    });
}

#[test]
fn a_quiet_world_is_restored_in_place() {
    let (mut scene, units) = Scene::with_units(8, 100);
    scene.step(|_, _| {});
    let before = scene.digest();
    let tick = scene.step(|world, step| {
        scribble(world, step);
        step.resource::<Score>(world).unwrap().log.push(7);
        // local entities and what they do are no change of structure
        world.spawn((Sprite(1),));
    });
    assert_ne!(scene.digest(), before);
    assert!(scene.rewind(tick).is_in_place());
    assert_eq!(scene.digest(), before);
    assert_eq!(scene.xs(), units.iter().zip(0u16..).map(|(e, x)| (*e, f32::from(x))).collect::<Vec<_>>());
    assert_eq!(scene.world.get::<&Name>(units[99]).unwrap().0, "unit 99");
    assert_eq!(scene.world.query::<&Sprite>().iter().count(), 1, "what is not registered is left alone");
    // the step that was taken back is asked for again, and told apart
    let again = scene.step(|_, step| assert!(step.rerun()));
    assert_eq!(again, tick);
    assert_eq!(scene.step(|_, step| assert!(!step.rerun())), tick.plus(1));
}

#[test]
fn ticks_that_cannot_be_gone_back_to_are_told_apart() {
    let mut scene = Scene::new(3);
    let error = |scene: &mut Scene, tick| scene.peer.rewind(&mut scene.world, Tick(tick)).unwrap_err();
    assert_eq!(error(&mut scene, 1), RewindError::NotSaved(Tick(1)));
    for _ in 0..10 {
        scene.step(|_, _| {});
    }
    assert_eq!(error(&mut scene, 6), RewindError::TooOld { tick: Tick(6), oldest: Tick(7) });
    assert_eq!(error(&mut scene, 11), RewindError::NotSaved(Tick(11)));
    scene.peer.confirm(&mut scene.world, Tick(8));
    assert_eq!(error(&mut scene, 8), RewindError::Confirmed(Tick(8)));
    assert!(scene.peer.saved_digest(&scene.world, Tick(8)).is_some(), "it can still be compared");
    scene.rewind(Tick(9));
    assert!(scene.peer.saved_digest(&scene.world, Tick(10)).is_none(), "after a restore there is no later save");
    scene.peer.keep_saves(&mut scene.world, 0).unwrap();
    assert_eq!(error(&mut scene, 9), RewindError::NoSaves);
    assert!(matches!(scene.peer.keep_saves(&mut scene.world, limits::SAVES + 1), Err(UsageError::Config(_))));
}

#[test]
fn a_despawn_is_taken_back_with_handle_and_local_components() {
    let (mut scene, units) = Scene::with_units(8, 3);
    scene.world.insert_one(units[1], Sprite(5)).unwrap();
    scene.step(|_, _| {});
    let before = scene.digest();
    let tick = scene.step(|world, step| {
        step.despawn(world, units[1]).unwrap();
        assert!(!step.alive(world, units[1]) && step.alive(world, units[0]));
        assert!(step.despawn(world, units[1]).is_err(), "nobody dies twice");
        assert_eq!(world.query::<&Position>().iter().count() + world.query::<&Sprite>().iter().count(), 2);
        // somebody else is given its id, if it is free
        assert_ne!(world.spawn((Sprite(9),)).id(), units[1].id());
    });
    assert_eq!((scene.peer.entity_count(), scene.peer.entity_of(NetId(2))), (2, None));
    assert_eq!(scene.rewind(tick), Restored { revived: 1, ..Restored::default() });
    assert_eq!(scene.digest(), before);
    assert_eq!(scene.world.get::<&Sprite>(units[1]).unwrap().0, 5);
    assert_eq!((scene.peer.entity_count(), scene.peer.entity_of(NetId(2))), (3, Some(units[1])));
}

#[test]
fn a_death_is_final_when_it_is_confirmed_or_too_old_to_be_taken_back() {
    for confirm in [true, false] {
        let (mut scene, units) = Scene::with_units(4, 3);
        let tick = scene.step(|world, step| step.despawn(world, units[0]).unwrap());
        scene.step(|_, _| {});
        scene.peer.confirm(&mut scene.world, tick.minus(1));
        assert!(scene.world.contains(units[0]), "its id is not free before");
        if confirm {
            scene.peer.confirm(&mut scene.world, tick);
        } else {
            for _ in 0..5 {
                scene.step(|_, _| {});
            }
        }
        assert!(!scene.world.contains(units[0]));
        assert_eq!(scene.peer.saves[Timeline::Session].as_ref().unwrap().limbo.len(), 0);
        assert_eq!(scene.peer.entities.slot_of(NetId(1)), None);
    }
}

#[test]
fn a_death_is_told_and_published_when_it_is_certain() {
    let config = Config { local_news: true, ..Config::default() };
    let (mut peer, mut world) = (Peer::alone(schema(), config).unwrap(), World::new());
    peer.keep_saves(&mut world, 3).unwrap();
    let unit = peer.spawn(&mut world, Unit, (Stunned(1),)).unwrap();
    let mut told = Vec::new();
    for frame in 0..12u32 {
        let now = (peer.tick_length() + std::time::Duration::from_nanos(1)) * frame;
        peer.receive(now, &mut world).unwrap();
        while let Some(mut step) = peer.next_step(&mut world) {
            if step.tick() == Tick(4) {
                step.despawn(&mut world, unit).unwrap();
            }
        }
        peer.send(now, &mut world).unwrap();
        while let Some(news) = peer.poll_news() {
            if let News::Despawned { entity, .. } = news {
                told.push((peer.tick(), entity));
            }
        }
    }
    // the saves of tick 8 and of the three before it cannot bring it back
    assert_eq!(told, [(Tick(8), unit)]);
}

#[test]
fn a_birth_is_taken_back_and_given_again_to_the_same_kind_and_key_only() {
    for (case, same) in [("the same", true), ("another kind", false), ("another key", false)] {
        let mut scene = Scene::new(8);
        let mut first = None;
        let tick = scene.step(|world, step| {
            let shot = step.spawn_as(world, 7, Unit, (Position { x: 1.0, y: 0.0 }, Stunned(1))).unwrap();
            world.insert_one(shot, Sprite(3)).unwrap();
            first = Some(shot);
        });
        let first = first.unwrap();
        let net = scene.peer.name_of(&scene.world, first).unwrap();
        scene.step(|_, _| {});
        assert_eq!(scene.rewind(tick), Restored { parked: 1, ..Restored::default() });
        assert_eq!(scene.xs(), []);
        scene.step(|world, step| {
            let components = (Position { x: 2.0, y: 0.0 },);
            let shot = match case {
                "the same" => step.spawn_as(world, 7, Unit, components),
                "another kind" => step.spawn_as(world, 7, Crate, components),
                _ => step.spawn_as(world, 8, Unit, components),
            };
            let shot = shot.unwrap();
            assert_eq!(shot == first, same, "{case}");
            assert_eq!(world.satisfies::<&Sprite>(shot), same, "{case}: what is local comes back with the handle");
            assert!(!world.satisfies::<&Stunned>(shot), "{case}: what the first branch registered does not");
            assert_eq!(world.get::<&Position>(shot).unwrap().x, 2.0);
            assert_eq!(world.satisfies::<&Crate>(shot), case == "another kind");
            assert!(world.satisfies::<&Simulated>(shot));
        });
        assert_eq!(scene.peer.entity_of(net).is_some_and(|e| e == first), same, "{case}: one name, one entity");
        assert_eq!(scene.xs().len(), 1);
    }
}

#[test]
fn an_orphan_of_a_wrong_branch_ends_when_that_branch_is_too_old() {
    let mut scene = Scene::new(3);
    let mut orphan = None;
    let tick = scene.step(|world, step| orphan = step.spawn(world, Unit, (Position::default(),)).ok());
    scene.rewind(tick);
    for _ in 0..5 {
        scene.step(|_, _| {});
    }
    assert!(!scene.world.contains(orphan.unwrap()));
    assert_eq!(scene.peer.saves[Timeline::Session].as_ref().unwrap().limbo.len(), 0);
}

#[test]
fn only_kinds_that_are_rewound_go_back_and_are_simulated_again() {
    let (mut scene, units) = Scene::with_units(8, 1);
    let hat = scene.peer.spawn(&mut scene.world, Hat, (Position { x: 50.0, y: 0.0 },)).unwrap();
    let advance = |world: &mut World, step: &mut Step<'_>| {
        step.query::<&mut Position>(world).iter().for_each(|p| p.x += 1.0);
    };
    let tick = scene.step(advance);
    scene.step(advance);
    scene.rewind(tick);
    assert_eq!(scene.xs(), [(units[0], 0.0), (hat, 52.0)]);
    scene.step(|world, step| {
        advance(world, step);
        assert_eq!(step.with_authority::<Position>().collect::<Vec<_>>(), [units[0]]);
        assert!(matches!(step.spawn(world, Hat, ()), Err(UsageError::NotAllowed(_))), "it would be there twice");
    });
    scene.step(advance);
    assert_eq!(scene.xs(), [(units[0], 2.0), (hat, 52.0)]);
    scene.step(advance);
    assert_eq!(scene.xs(), [(units[0], 3.0), (hat, 53.0)], "in a new tick all are simulated");
}

#[test]
fn resources_are_kept_by_one_entity_that_nobody_meets() {
    let mut scene = Scene::new(8);
    let first = scene.step(|world, step| step.resource::<Score>(world).unwrap().log.push(1));
    scene.step(|world, step| {
        step.resource::<Score>(world).unwrap().log.push(2);
        assert!(matches!(step.resource::<Position>(world), Err(UsageError::NotInSchema(_))));
    });
    let digest = scene.digest();
    scene.rewind(first);
    scene.step(|world, step| {
        assert_eq!(step.resource::<Score>(world).unwrap().log, []);
        step.resource::<Score>(world).unwrap().log.push(1);
    });
    scene.step(|world, step| {
        assert_eq!(step.resource::<Score>(world).unwrap().log, [1]);
        step.resource::<Score>(world).unwrap().log.push(2);
        assert!(step.ordered::<Entity>(world).next().is_none());
    });
    assert_eq!(scene.digest(), digest);
    assert_eq!(scene.peer.entity_count(), 0);
}

#[test]
fn a_peer_without_saves_has_resources_and_order_too() {
    let mut peer = Peer::alone(schema(), Config::default()).unwrap();
    let mut world = World::new();
    let units: Vec<_> = (0..5).map(|_| peer.spawn(&mut world, Unit, (Stunned(1),)).unwrap()).collect();
    let names = |peer: &mut Peer, world: &mut World, run: &dyn Fn(&mut World, &mut Step<'_>)| {
        peer.time.due = peer.time.tick.plus(1);
        let mut step = peer.next_step(world).unwrap();
        run(world, &mut step);
        let (mut seen, mut all) = (Vec::new(), step.ordered::<&Stunned>(world));
        while let Some((net, _)) = all.next() {
            seen.push(net.0);
        }
        seen
    };
    let spawn = |world: &mut World, step: &mut Step<'_>| {
        step.spawn(world, Unit, (Stunned(2),)).unwrap();
        step.resource::<Score>(world).unwrap().sum += 1.0;
    };
    assert_eq!(names(&mut peer, &mut world, &spawn), [1, 2, 3, 4, 5], "new ones are visited from the next step on");
    let despawn = |world: &mut World, step: &mut Step<'_>| {
        step.despawn(world, units[2]).unwrap();
        world.despawn(units[3]).unwrap(); // behind the peer's back
        assert_eq!(step.resource::<Score>(world).unwrap().sum, 1.0);
    };
    assert_eq!(names(&mut peer, &mut world, &despawn), [1, 2, 5, 6]);
    assert_eq!(names(&mut peer, &mut world, &spawn), [1, 2, 5, 6]);
    assert_eq!(names(&mut peer, &mut world, &|_, _| {}), [1, 2, 5, 6, 7]);
    assert_eq!(world.query::<&Rewound>().iter().count(), 0, "nobody is marked where nothing is kept");
}

#[test]
fn the_digest_sees_a_bit_a_swap_presence_and_kind_and_the_way_down_finds_them() {
    let build = |change: &dyn Fn(&mut Scene, &[Entity])| {
        let (mut scene, units) = Scene::with_units(2, 300);
        change(&mut scene, &units);
        scene
    };
    let set = |scene: &mut Scene, e: Entity, x: f32| scene.world.get::<&mut Position>(e).unwrap().x = x;
    let found = |change: &dyn Fn(&mut Scene, &[Entity])| {
        let (mut straight, mut other) = (build(&|_, _| {}), build(change));
        assert_ne!(straight.digest(), other.digest());
        let d = straight.difference(&mut other).unwrap();
        (d.net.0, d.component, d.field, d.values.0, d.values.1)
    };
    let text = |s: &str| s.to_owned();
    let position = Some(text("position"));
    let bit = found(&|s, e| set(s, e[77], 77.00001));
    assert_eq!(bit, (78, position.clone(), text("x"), text("77.0"), text("77.00001")));
    let swap = found(&|s, e| {
        set(s, e[10], 20.0);
        set(s, e[20], 10.0);
    });
    assert_eq!(swap, (11, position.clone(), text("x"), text("10.0"), text("20.0")), "the same values on others");
    let zero = found(&|s, e| set(s, e[0], -0.0));
    assert_eq!(zero, (1, position, text("x"), text("0.0"), text("-0.0")));
    let there = found(&|s, e| s.world.insert_one(e[150], Stunned(0)).unwrap());
    assert_eq!(there, (151, Some(text("stunned")), text(""), text("not there"), text("there")));
    let gone = found(&|s, e| s.world.despawn(e[299]).unwrap());
    assert_eq!(gone, (300, None, text(""), text("a unit"), text("not there")));
    let named = found(&|s, e| s.world.get::<&mut Name>(e[5]).unwrap().0.push('x'));
    assert_eq!(named, (6, Some(text("name")), text("0"), text("\"unit 5\""), text("\"unit 5x\"")));
    let scored = found(&|s, _| s.peer.step_resource::<Score>(&mut s.world).unwrap().log.push(3));
    assert_eq!(scored, (resources_name(Timeline::Session).0, Some(text("score")), text("log.len()"), text("0"), text("1")));
}

#[test]
fn what_names_an_entity_is_digested_by_name_and_not_by_handle() {
    let mut scenes = [Scene::new(4), Scene::new(4)];
    scenes[1].world.spawn((Sprite(0),)); // so that handles differ
    let digests = scenes.each_mut().map(|scene| {
        let [a, b] = [0, 1].map(|i| scene.peer.spawn(&mut scene.world, Unit, (Stunned(i),)).unwrap());
        scene.world.insert_one(b, Target(a)).unwrap();
        let alive = scene.digest();
        scene.step(|world, step| step.despawn(world, a).unwrap());
        let saved = scene.peer.saved_digest(&scene.world, Tick(1));
        assert_eq!(saved, Some(alive), "one who is dead since had a name then");
        scene.peer.confirm(&mut scene.world, Tick(1));
        assert_eq!(scene.peer.saved_digest(&scene.world, Tick(1)), saved, "for good or not");
        (a, alive, scene.digest())
    });
    assert_ne!(digests[0].0, digests[1].0);
    assert_eq!((digests[0].1, digests[0].2), (digests[1].1, digests[1].2));
}
