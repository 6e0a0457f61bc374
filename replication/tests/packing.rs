//! Every way of packing, alone and with others, on and off: receivers understand them all.

#![allow(missing_docs)]

mod common;

use common::{Rng, assert_clean, assert_settles, config, seeds, table_of, weather};
use hecs::World;
use tidelock::policy::Host;
use tidelock::{Config, Packing, PeerId, Replicate, Schema, Step};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Spot {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Speed {
    #[net(step = 0.01, range = -100.0..=100.0)]
    x: f32,
    #[net(step = 0.01, range = -100.0..=100.0)]
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Heading(#[net(quat, bits = 10)] [f32; 4]);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Health(u16);

#[derive(Clone, Copy, Debug, Default)]
struct Body;

/// More than a block of rows.
const BODIES: usize = 150;

fn schema() -> Schema {
    Schema::builder("packing")
        .component::<Spot>("spot", |c| c.velocity::<Speed>())
        .component::<Speed>("speed", |c| c)
        .component::<Heading>("heading", |c| c)
        .component::<Health>("health", |c| c)
        .kind::<Body>("body", Host::default())
        .build()
        .unwrap()
}

fn live(world: &mut World, step: &mut Step<'_>, rng: &mut Rng) {
    let here = world.query_mut::<&Spot>().into_iter().count();
    let missing = if here == 0 { BODIES } else { usize::from(rng.below(20) == 0) };
    for _ in 0..missing {
        let mut unit = |most: f32| (rng.below(2001) as f32 / 1000.0 - 1.0) * most;
        let parts = (Spot { x: unit(400.0), y: unit(400.0) }, Speed { x: unit(5.0), y: unit(5.0) });
        let angle: f32 = unit(3.0);
        let _ = step.spawn(world, Body, (parts.0, parts.1, Heading([0.0, 0.0, angle.sin(), angle.cos()]), Health(100)));
    }
    let time = step.tick().0 as f32;
    let (mut dead, mut turn) = (None, rng.below(BODIES as u64) as usize);
    for (entity, spot, speed, heading, health) in
        step.query::<(hecs::Entity, &mut Spot, &mut Speed, &mut Heading, &mut Health)>(world).iter()
    {
        turn = turn.wrapping_sub(1);
        if entity.id() % 3 == 0 {
            continue; // at rest
        }
        spot.x = (spot.x + speed.x / 60.0).clamp(-500.0, 500.0);
        spot.y = (spot.y + speed.y / 60.0).clamp(-500.0, 500.0);
        let angle = time * 0.02 + entity.id() as f32;
        heading.0 = [0.0, 0.0, (angle / 2.0).sin(), (angle / 2.0).cos()];
        if turn == 0 {
            (speed.x, speed.y) = (-speed.y, speed.x);
            health.0 = health.0.wrapping_sub(1);
            dead = (health.0 % 5 == 0).then_some(entity);
        }
    }
    if let Some(entity) = dead {
        let _ = step.despawn(world, entity);
    }
}

/// 240 ticks with loss and delay, a guest that joins in the middle; gives the bytes of state that the first guest was sent.
fn session(seed: u64, packing: Packing) -> u64 {
    let (mut rng, config) = (Rng::new(seed), Config { packing, bandwidth: 8_000_000, ..config() });
    let bad = weather(50, 0.05);
    let (mut table, network) = table_of(seed, &schema(), 3, bad, &config);
    for frame in 0..240 {
        if frame == 100 {
            table.join(config.clone(), network.join(bad, bad)).unwrap();
        }
        table.run(|seat, world, step| {
            if seat == 0 {
                live(world, step, &mut rng);
            }
        });
    }
    assert_settles(&mut table, 20);
    assert_clean(&mut table);
    let first = table.seat(1).peer.local();
    assert_ne!(first, PeerId::HOST);
    table.seat(0).peer.stats(first).unwrap().sent.state_bytes
}

#[test]
fn every_way_of_packing_is_understood() {
    for seed in seeds(2) {
        let all = session(seed, Packing::ALL);
        let none = session(seed, Packing::NONE);
        assert!(all * 10 < none * 8, "SEED={seed}: {all} bytes with everything on, {none} with nothing");
        for name in ["packets", "blocks", "values", "forecasts", "masks", "tables", "bases"] {
            println!("SEED={seed} without {name}");
            let bytes = session(seed, Packing::without(name).unwrap());
            assert!(bytes <= none * 11 / 10, "SEED={seed} without {name}: {bytes} bytes, {none} with nothing on");
        }
        let mut rng = Rng::new(seed);
        for _ in 0..4 {
            let mut on = || rng.below(2) == 0;
            let packing =
                Packing { packets: on(), blocks: on(), values: on(), forecasts: on(), masks: on(), tables: on(), bases: on() };
            println!("SEED={seed} {packing:?}");
            session(seed, packing);
        }
    }
}
