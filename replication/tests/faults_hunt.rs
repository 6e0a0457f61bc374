//! Everything at once, at random: references and parents to whatever is alive, teleports, births and deaths by hand and by step, in
//! foul weather; all ends equal, and no copy ever names what is gone.

mod common;

use common::{Banner, ChildOf, Crate, Link, Player, Position, Rng, Tag, assert_clean, assert_settles, seeds, table};
use hecs::{Entity, World};
use std::time::Duration;
use tidelock::testing::Table;
use tidelock::{Networked, PeerId, Step};
use tidelock_loopback::Conditions;

fn foul() -> Conditions {
    let latency = Duration::from_millis(60);
    let jitter = Duration::from_millis(20);
    Conditions { latency, jitter, loss: 0.1, burst: 3.0, duplicate: 0.1, reorder: 0.1, ..Conditions::default() }
}

fn meddle(seat: usize, world: &mut World, step: &mut Step<'_>, rng: &mut Rng) {
    let mine: Vec<Entity> = step.query::<(Entity, &Position)>(world).iter().map(|(e, _)| e).collect();
    let all: Vec<Entity> = world.query::<(Entity, &Networked)>().iter().map(|(e, _)| e).collect();
    if mine.len() < 12 {
        let at = Position { x: 0.0, y: rng.below(100) as f32 };
        let _ = if seat == 0 { step.spawn(world, Crate, (at,)) } else { step.spawn(world, Player, (at,)) };
    }
    for _ in 0..1 + rng.below(4) {
        let (Some(&entity), Some(&other)) = (pick(&mine, rng), pick(&all, rng)) else { return };
        if !world.contains(entity) || !world.contains(other) {
            continue;
        }
        match rng.below(14) {
            0 => drop(world.insert_one(entity, Link { target: other })),
            1 => drop(world.remove_one::<Link>(entity)),
            // the host's things hang on the host's things: never in a circle
            2 if seat == 0 && other.id() < entity.id() => drop(world.insert_one(entity, ChildOf { parent: other })),
            3 => drop(world.remove_one::<ChildOf>(entity)),
            4 => {
                world.get::<&mut Position>(entity).unwrap().x = rng.below(400) as f32;
                let _ = step.peer().teleport(world, entity);
            }
            5 if seat == 0 => {
                let peers = step.peer().peers();
                let to = peers[rng.below(peers.len() as u64) as usize].peer;
                step.peer().grant(world, other, 0, to).unwrap();
            }
            6 => drop(world.insert_one(entity, Tag)),
            7 => drop(world.remove_one::<Tag>(entity)),
            8 => drop(world.insert_one(entity, Banner { colour: rng.below(1000) as i32 })),
            9 if rng.chance(50) => drop(step.despawn(world, entity)),
            10 if rng.chance(20) && step.peer().is_host() => drop(world.despawn(entity)),
            _ => world.get::<&mut Position>(entity).unwrap().y = rng.below(400) as f32,
        }
    }
}

fn pick<'a>(from: &'a [Entity], rng: &mut Rng) -> Option<&'a Entity> {
    from.get(rng.below(from.len().max(1) as u64) as usize)
}

/// What a copy names is there: a reference that is shown is a reference that resolves.
fn assert_resolved(table: &mut Table) {
    let seed = table.seed;
    for seat in table.taken().into_iter().skip(1) {
        let place = table.seat(seat);
        for (entity, link, child) in place.world.query::<(Entity, Option<&Link>, Option<&ChildOf>)>().iter() {
            if place.peer.owner(&place.world, entity, 0) == Some(place.peer.local()) {
                continue; // the guest's own to mend
            }
            let named = [link.map(|l| l.target), child.map(|c| c.parent)];
            for target in named.into_iter().flatten() {
                assert!(place.world.contains(target), "SEED={seed} seat {seat}: {entity:?} names {target:?}, which is gone");
            }
        }
    }
}

#[test]
fn all_at_once_ends_equal() {
    for seed in seeds(20) {
        let mut rng = Rng::new(seed);
        let (mut table, _network) = table(seed, 2, foul());
        for _ in 0..300 {
            table.run(|seat, world, step| meddle(seat, world, step, &mut rng));
            assert_resolved(&mut table);
        }
        assert_settles(&mut table, 10);
        for seat in table.taken() {
            let place = table.seat(seat);
            assert_eq!(place.peer.waiting_references(), 0, "SEED={seed} seat {seat}");
            assert_ne!(place.peer.local(), PeerId::NOBODY, "SEED={seed}");
        }
        assert_clean(&mut table);
    }
}
