//! Changes of structure, those behind the framework's back included: each must be noticed, and undone as far as it can be.

use super::*;
use crate::Networked;

type Change = dyn Fn(&mut World, &[Entity]);

#[test]
fn whatever_changed_the_structure_is_noticed_and_undone() {
    let cases: [(&str, &Change); 7] = [
        ("despawned behind our back", &|w, e| w.despawn(e[50]).unwrap()),
        ("a registered component in", &|w, e| w.insert_one(e[3], Stunned(1)).unwrap()),
        ("a registered component out", &|w, e| drop(w.remove_one::<Name>(e[99]).unwrap())),
        ("a local component in", &|w, e| w.insert_one(e[7], Sprite(0)).unwrap()),
        ("the first row despawned, so that the last one moves", &|w, e| w.despawn(e[0]).unwrap()),
        ("two moved and two gone at once", &|w, e| {
            w.insert_one(e[0], Sprite(0)).unwrap();
            w.insert_one(e[98], Stunned(0)).unwrap();
            w.despawn(e[1]).unwrap();
            w.despawn(e[99]).unwrap();
        }),
        ("moved to another id, in the same row under the same name", &|w, e| {
            let mut other = World::new();
            let inside = other.spawn(w.take(e[99]).unwrap());
            w.spawn(("sits on the id",));
            assert_ne!(w.spawn(other.take(inside).unwrap()).id(), e[99].id());
        }),
    ];
    for (name, change) in cases {
        let (mut scene, units) = Scene::with_units(8, 100);
        scene.step(|_, _| {});
        let before = scene.digest();
        let tick = scene.step(|world, step| {
            scribble(world, step);
            change(world, &units);
        });
        let restored = scene.rewind(tick);
        assert!(scene.digest() == before, "{name}: {restored:?}");
        let mut xs: Vec<f32> = scene.xs().iter().map(|x| x.1).collect();
        xs.sort_by(f32::total_cmp);
        assert_eq!(xs, (0..100u16).map(f32::from).collect::<Vec<_>>(), "{name}");
        for (mark, entity) in scene.world.query::<(&Networked, Entity)>().iter() {
            assert_eq!(scene.peer.entity_of(mark.id()), Some(entity), "{name}: the register knows its handle");
        }
        assert_eq!(scene.world.query::<(&Unit, &Networked, &Simulated, &Rewound)>().iter().count(), 100, "{name}");
        assert_eq!(scene.world.query::<&Stunned>().iter().count(), 0, "{name}");
        scene.step(|world, step| {
            let (mut count, mut all) = (0, step.ordered::<&Position>(world));
            while let Some((net, position)) = all.next() {
                assert_eq!(position.x, (net.0 - 1) as f32, "{name}");
                count += 1;
            }
            assert_eq!(count, 100, "{name}");
        });
    }
}

#[test]
fn who_was_despawned_behind_our_back_never_takes_an_id_that_somebody_has() {
    let (mut scene, units) = Scene::with_units(8, 2);
    let mut particle = None;
    let tick = scene.step(|world, _| {
        world.despawn(units[0]).unwrap();
        particle = Some(world.spawn((Sprite(7),)));
    });
    let particle = particle.unwrap();
    assert_eq!(particle.id(), units[0].id(), "the case that this is about");
    assert_eq!(scene.rewind(tick), Restored { rebuilt: 1, renamed: 1, ..Restored::default() });
    assert_eq!(*scene.world.get::<&Sprite>(particle).unwrap(), Sprite(7), "a naive restore would have despawned it");
    let back = scene.peer.entity_of(NetId(1)).unwrap();
    assert_eq!(scene.world.get::<&Position>(back).unwrap().x, 0.0);
}

#[test]
fn a_placeholder_that_the_game_despawned_costs_the_handle_and_nothing_else() {
    let (mut scene, units) = Scene::with_units(8, 2);
    let before = scene.digest();
    let tick = scene.step(|world, step| {
        step.despawn(world, units[0]).unwrap();
        world.despawn(units[0]).unwrap(); // its handle is still in the world
        assert_eq!(world.spawn((Sprite(7),)).id(), units[0].id());
    });
    assert_eq!(scene.rewind(tick), Restored { revived: 1, renamed: 1, ..Restored::default() });
    assert_eq!(scene.digest(), before);
    assert_eq!(scene.world.query::<&Sprite>().iter().count(), 1);
}

#[test]
fn the_world_may_be_cleared() {
    let (mut scene, _) = Scene::with_units(8, 20);
    scene.step(|world, step| step.resource::<Score>(world).unwrap().sum = 2.0);
    let before = scene.digest();
    let tick = scene.step(|world, _| world.clear());
    scene.rewind(tick);
    assert_eq!(scene.digest(), before);
    assert_eq!(scene.peer.entity_count(), 20);
}

#[test]
fn a_row_that_one_table_placed_is_not_run_over_by_the_column_of_the_next() {
    // everybody moves to another archetype and some of them back, so that rows are of others than they were saved of
    let (mut scene, units) = Scene::with_units(8, 9);
    scene.world.insert_one(units[4], Stunned(4)).unwrap();
    scene.world.insert_one(units[1], Stunned(1)).unwrap();
    scene.step(|_, _| {});
    let before = scene.digest();
    let tick = scene.step(|world, step| {
        scribble(world, step);
        for unit in &units {
            let _ = world.remove_one::<Stunned>(*unit);
        }
        for i in [8, 1, 0, 3] {
            world.insert_one(units[i], Stunned(99)).unwrap();
        }
        world.remove_one::<Stunned>(units[8]).unwrap();
    });
    let restored = scene.rewind(tick);
    assert_eq!(restored.reshaped, 3, "4 has it again, 0 and 3 do not");
    assert_eq!(scene.digest(), before);
}

#[test]
fn what_comes_and_goes_outside_of_a_step_lets_the_saves_go() {
    let (mut scene, units) = Scene::with_units(8, 2);
    let tick = scene.step(|world, step| step.despawn(world, units[0]).unwrap());
    let loaded = scene.peer.spawn(&mut scene.world, Unit, (Position::default(),)).unwrap();
    assert_eq!(scene.peer.rewind(&mut scene.world, tick), Err(RewindError::NotSaved(tick)));
    assert!(!scene.world.contains(units[0]), "a despawn that nothing can take back is final");
    let tick = scene.step(|_, _| {});
    let hat = scene.peer.spawn(&mut scene.world, Hat, ()).unwrap();
    scene.peer.despawn(&mut scene.world, hat).unwrap();
    assert!(scene.rewind(tick).is_in_place(), "those that are not rewound do no harm");
    scene.peer.despawn(&mut scene.world, loaded).unwrap();
    assert!(scene.peer.rewind(&mut scene.world, tick).is_err());
}

#[test]
fn a_rewind_within_a_rerun_runs_every_tick_again_once() {
    let (mut scene, _) = Scene::with_units(8, 1);
    let advance = |world: &mut World, step: &mut Step<'_>| {
        let tick = step.tick().0 as f32;
        step.query::<&mut Position>(world).iter().for_each(|p| p.x = p.x * 2.0 + tick);
    };
    for _ in 0..6 {
        scene.step(advance);
    }
    let digest = scene.digest();
    scene.rewind(Tick(3));
    assert_eq!(scene.step(advance), Tick(3));
    assert_eq!(scene.step(advance), Tick(4));
    scene.rewind(Tick(4));
    assert_eq!(scene.step(advance), Tick(4));
    scene.rewind(Tick(2));
    let ticks: Vec<u64> = (0..5).map(|_| scene.step(advance).0).collect();
    assert_eq!(ticks, [2, 3, 4, 5, 6]);
    assert_eq!(scene.digest(), digest);
    assert_eq!(scene.step(|_, step| assert!(!step.rerun())), Tick(7));
}

#[test]
fn kinds_lie_in_archetypes_of_their_own() {
    // a hat with the components of a unit would be rewound with it, if they shared columns
    let mut scene = Scene::new(8);
    scene.peer.spawn(&mut scene.world, Unit, (Position { x: 1.0, y: 0.0 },)).unwrap();
    scene.peer.spawn(&mut scene.world, Crate, (Position { x: 2.0, y: 0.0 },)).unwrap();
    let hat = scene.peer.spawn(&mut scene.world, Hat, (Position { x: 3.0, y: 0.0 },)).unwrap();
    let archetypes = scene.world.archetypes().filter(|a| a.has::<Networked>() && !a.is_empty());
    assert!(archetypes.map(|a| (a.has::<Unit>(), a.has::<Crate>(), a.has::<Hat>(), a.len())).all(|k| k.3 == 1));
    let tick = scene.step(scribble);
    assert!(scene.rewind(tick).is_in_place());
    assert_eq!(scene.world.get::<&Position>(hat).unwrap().x, -1.0);
    assert_eq!(scene.world.query::<(&Position, &Rewound)>().iter().map(|(p, _)| p.x).sum::<f32>(), 3.0);
}

#[test]
fn a_peer_with_a_session_of_others_keeps_no_saves_yet() {
    let transport = tidelock_loopback::Network::new(1).host();
    let mut peer = Peer::host(schema(), transport, Config::default()).unwrap();
    assert!(matches!(peer.keep_saves(&mut World::new(), 8), Err(UsageError::NotAllowed(_))));
}
