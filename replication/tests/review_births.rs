//! Chains of parents, in the order that is worst for who waits for them.

mod common;

use common::{ChildOf, Crate, Position, assert_clean, assert_settles, table, weather};
use hecs::Entity;
use std::time::{Duration, Instant};

const CHAIN: usize = 12_000;

/// Children have lower rows than their parents, all come at once: each birth must be looked at once, not in every generation.
#[test]
fn a_chain_of_parents_is_born_in_one_pass() {
    let (mut table, _network) = table(1, 1, weather(10, 0.0));
    let host = table.seat(0);
    let (peer, world) = (&mut host.peer, &mut host.world);
    let at = Position { x: 1.0, y: 1.0 };
    let all: Vec<Entity> = (0..CHAIN).map(|_| peer.spawn(world, Crate, (at,)).unwrap()).collect();
    for pair in all.windows(2) {
        world.insert_one(pair[0], ChildOf { parent: pair[1] }).unwrap();
    }
    let began = Instant::now();
    assert_settles(&mut table, 10);
    assert_clean(&mut table);
    assert_eq!(table.seat(1).peer.entity_count(), CHAIN);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
