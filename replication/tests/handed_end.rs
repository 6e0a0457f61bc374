//! What a guest was handed it may end at once, before it has published a word of it.

mod common;

use common::{Health, Position, Relic, assert_settles, table, weather};
use hecs::Entity;
use tidelock::testing::Seat;

/// A guest ends a relic in the first step in which it is its own.
fn ends_at_once(seed: u64, loss: f64) {
    let (mut table, _network) = table(seed, 2, weather(30, loss));
    let relics: Vec<Entity> = {
        let Seat { peer, world, .. } = table.seat(0);
        (0..20)
            .map(|i| peer.spawn(world, Relic, (Position { x: i as f32, y: 0.0 }, Health(9))).expect("the host may spawn"))
            .collect()
    };
    table.rest(60);
    let to = table.seat(1).peer.local();
    let Seat { peer, world, .. } = table.seat(0);
    relics.iter().for_each(|relic| (0..2).for_each(|slot| peer.grant(world, *relic, slot, to).expect("the host may grant")));
    for _ in 0..60 {
        table.run(|seat, world, step| {
            let mine: Vec<Entity> = step.query::<(Entity, &Relic)>(world).iter().map(|(e, _)| e).collect();
            for relic in mine.into_iter().filter(|_| seat == 1) {
                step.despawn(world, relic).expect("its owner may end it");
            }
        });
    }
    assert_settles(&mut table, 5);
    for seat in 0..3 {
        assert_eq!(table.seat(seat).peer.entity_count(), 0, "SEED={seed}: at seat {seat}");
    }
}

#[test]
fn the_host_hears_of_it() {
    ends_at_once(1, 0.0);
}

#[test]
fn the_host_hears_of_it_in_spite_of_loss() {
    for seed in 1..=5 {
        ends_at_once(seed, 0.2);
    }
}
