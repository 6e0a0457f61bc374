//! Steps belong to timelines: each visits its own entities, spawns and despawns them, and nobody else's.

use hecs::World;
use std::time::Duration;
use tidelock::policy::{Host, Lockstep, Owner, Rollback, Timeline};
use tidelock::{Checkpoint, Config, NetId, Peer, Replicate, Schema, SchemaMistake, Step, UsageError};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
struct Count(u32);
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick(u8);
#[derive(Clone, Copy, Default)]
struct Crate;
#[derive(Clone, Copy, Default)]
struct Ball;
#[derive(Clone, Copy, Default)]
struct Unit;
#[derive(Clone, Default, Checkpoint)]
struct Score(u32);

fn schema() -> Schema {
    Schema::builder("timelines")
        .component::<Count>("count", |c| c.checkpoint())
        .kind::<Crate>("crate", Host::default())
        .kind::<Ball>("ball", Rollback)
        .kind::<Unit>("unit", Lockstep::sealed())
        .resource_of::<Score>("score", Timeline::Lockstep)
        .input::<Stick>("stick")
        .build()
        .unwrap()
}

fn run(peer: &mut Peer, world: &mut World, ticks: u32, mut each: impl FnMut(&mut World, &mut Step<'_>)) {
    let start = peer.session_time().unwrap_or_default();
    for i in 1..=ticks {
        let now = start + Duration::from_nanos(16_666_667) * i;
        peer.receive(now, world).unwrap();
        while let Some(mut step) = peer.next_step(world) {
            each(world, &mut step);
        }
        peer.send(now, world).unwrap();
    }
}

fn names(peer: &Peer, world: &World) -> Vec<(NetId, u32)> {
    let mut all: Vec<_> =
        world.query::<(hecs::Entity, &Count)>().iter().filter_map(|(e, c)| Some((peer.name_of(world, e)?, c.0))).collect();
    all.sort_unstable();
    all
}

#[test]
fn each_step_visits_the_entities_of_its_timeline() {
    let (mut world, mut peer) = (World::new(), Peer::alone(schema(), Config::default()).unwrap());
    peer.receive(Duration::ZERO, &mut world).unwrap();
    let crate_ = peer.spawn(&mut world, Crate, (Count(0),)).unwrap();
    let ball = peer.spawn(&mut world, Ball, (Count(0),)).unwrap();
    let unit = peer.spawn(&mut world, Unit, (Count(0),)).unwrap();
    let mut lines = Vec::new();
    run(&mut peer, &mut world, 10, |world, step| {
        lines.push((step.tick(), step.timeline()));
        let weight = [1, 100, 10_000][step.timeline() as usize];
        step.query::<&mut Count>(world).iter().for_each(|c| c.0 += weight);
        let mut ordered = step.ordered::<&mut Count>(world);
        while let Some((_, c)) = ordered.next() {
            c.0 += weight;
        }
        if step.timeline() == Timeline::Lockstep {
            step.resource::<Score>(world).unwrap().0 += 1;
        }
    });
    let ticks = lines.iter().filter(|l| l.1 == Timeline::Session).count() as u32;
    assert!(ticks >= 9, "{lines:?}");
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(line.1, Timeline::ALL[i % 3], "the others follow each of the session's steps: {lines:?}");
    }
    let count = |e| world.get::<&Count>(e).unwrap().0;
    assert_eq!((count(crate_), count(ball), count(unit)), (2 * ticks, 200 * ticks, 20_000 * ticks));
    assert_eq!(world.query::<&Score>().iter().map(|s| s.0).collect::<Vec<_>>(), [ticks]);
}

#[test]
fn what_is_computed_comes_and_goes_in_steps_of_its_timeline_alone() {
    let (mut world, mut peer) = (World::new(), Peer::alone(schema(), Config::default()).unwrap());
    let mut spawned = [0; 3];
    run(&mut peer, &mut world, 5, |world, step| {
        let line = step.timeline();
        for (i, refused) in [
            step.spawn(world, Crate, (Count(0),)).map(|_| ()),
            step.spawn(world, Ball, (Count(1),)).map(|_| ()),
            step.spawn(world, Unit, (Count(2),)).map(|_| ()),
        ]
        .into_iter()
        .enumerate()
        {
            spawned[i] += u32::from(refused.is_ok());
            let expected = i == line as usize;
            assert!(refused.is_ok() == expected, "{i} in a step of {line:?}: {refused:?}");
        }
        let units: Vec<_> = world.query::<hecs::Entity>().with::<&Unit>().iter().collect();
        let gone = units.first().map(|unit| step.despawn(world, *unit));
        match (line, gone) {
            (Timeline::Lockstep, Some(gone)) => gone.unwrap(),
            (_, Some(gone)) => assert!(matches!(gone, Err(UsageError::NotAllowed(_))), "{gone:?}"),
            (_, None) => {}
        }
    });
    assert!(spawned.iter().all(|n| *n >= 4 && *n == spawned[0]), "{spawned:?}");
}

/// Every peer gives what it computes the same names, whoever it is and whatever else it has spawned.
#[test]
fn names_of_what_is_computed_follow_from_the_step() {
    let names_of = |others: u32| {
        let (mut world, mut peer) = (World::new(), Peer::alone(schema(), Config::default()).unwrap());
        run(&mut peer, &mut world, 5, |world, step| {
            match step.timeline() {
                Timeline::Session => {
                    (0..others).for_each(|_| assert!(step.spawn(world, Crate, (Count(0),)).is_ok()));
                }
                Timeline::Rollback => assert!(step.spawn(world, Ball, (Count(1),)).is_ok()),
                Timeline::Lockstep => {
                    (0..3).for_each(|i| assert!(step.spawn(world, Unit, (Count(2 + i),)).is_ok()));
                }
            };
        });
        let mut names = names(&peer, &world);
        names.retain(|n| n.1 > 0);
        names
    };
    assert_eq!(names_of(0), names_of(4));
    assert!(names_of(0).len() >= 16);
}

#[test]
fn combinations_that_cannot_work_are_refused() {
    let mistakes = |build: tidelock::SchemaBuilder| match build.build() {
        Ok(schema) => panic!("it was built: {schema:?}"),
        Err(error) => error.0,
    };
    let base = || Schema::builder("x").component::<Count>("count", |c| c.checkpoint());
    let found = mistakes(base().kind_with::<Unit>("unit", Lockstep::sealed(), |k| k.authority::<Count>(Owner::default())));
    assert_eq!(found, [SchemaMistake::Mixed("unit".into())]);
    let found = mistakes(base().kind_with::<Unit>("unit", Lockstep::sealed(), |k| k.rewound()));
    assert_eq!(found, [SchemaMistake::Mixed("unit".into())]);
    let for_kinds = |policy| SchemaMistake::ForKinds { component: "count".into(), policy };
    let found = mistakes(base().kind_with::<Unit>("unit", Owner::default(), |k| k.authority::<Count>(Rollback)));
    assert_eq!(found, [for_kinds("rollback")]);
    let found = mistakes(Schema::builder("x").component::<Count>("count", |c| c.authority(Host::predicted())));
    assert_eq!(found, [for_kinds("host, predicted")]);
    let found = mistakes(base().kind::<Ball>("ball", Rollback).kind::<Unit>("unit", Host::predicted()));
    let no_input = |kind: &str, policy| SchemaMistake::NoInput { kind: kind.into(), policy };
    assert_eq!(found, [no_input("ball", "rollback"), no_input("unit", "host, predicted")]);
    base().kind::<Unit>("unit", Lockstep::sealed()).build().expect("orders and seeds are enough for lockstep");
}
