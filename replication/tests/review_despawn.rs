//! A guest's own despawn, while the host still speaks of what it ended.

mod common;

use common::{Health, Player, Position, assert_clean, assert_settles, seeds, table_with, weather};
use hecs::Entity;
use tidelock::{Config, News, PeerId};

const LIVES: u64 = 40;

/// The host writes to a component of its own in every tick, so that its packets cross the guest's despawns.
fn session(seed: u64, loss: f64) {
    let (mut table, _network) = table_with(seed, 1, weather(60, loss), &Config { refusals: 1, ..Config::default() });
    let (mut mine, mut tick): (Vec<(u64, Entity)>, u64) = (Vec::new(), 0);
    for _ in 0..LIVES * 5 + 120 {
        tick += 1;
        table.run(|seat, world, step| {
            if seat == 0 {
                let all: Vec<Entity> = world.query::<(Entity, &Position)>().iter().map(|(e, _)| e).collect();
                all.into_iter().for_each(|e| world.insert_one(e, Health(tick as u16)).unwrap());
                return;
            }
            if tick.is_multiple_of(5) && tick <= LIVES * 5 {
                let at = Position { x: tick as f32, y: 0.0 };
                // some end before the host can have answered, some long after
                mine.push((tick + tick % 37, step.spawn(world, Player, (at,)).unwrap()));
            }
            mine.retain(|(at, entity)| {
                if *at == tick {
                    step.despawn(world, *entity).unwrap();
                }
                *at > tick
            });
        });
    }
    table.rest(60);
    assert_settles(&mut table, 4);
    assert_clean(&mut table);
    let guest = table.seat(1).take_news();
    let back = guest.iter().find(|n| matches!(n, News::Spawned { .. } | News::Despawned { .. }));
    assert!(back.is_none(), "SEED={seed} loss {loss}: {back:?}");
    let host = &mut table.seat(0).peer;
    assert_eq!(host.stats(PeerId(1)).unwrap().link.refused, 0, "SEED={seed} loss {loss}");
    assert_eq!(host.entity_count(), 0, "SEED={seed} loss {loss}");
}

#[test]
fn what_a_guest_ended_does_not_come_back() {
    for seed in seeds(8) {
        session(seed, 0.0);
        session(seed, 0.1);
    }
}
