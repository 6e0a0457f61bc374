//! Despawns of what the receiver does not have: never sent, despawned early by its own game, or taken along by a time-out.

mod common;

use common::{Crate, Player, Position, Relic, Rng, assert_clean, assert_settles, config, schema, seeds, table_of};
use hecs::{Entity, World};
use std::collections::HashSet;
use std::time::Duration;
use tidelock::netcore::transport::LinkId;
use tidelock::testing::Table;
use tidelock::{Config, NetId, Networked, News, PeerId, Step};
use tidelock_loopback::{Conditions, Network};

const LASTING: u64 = 50;

fn foul() -> Conditions {
    Conditions { latency: Duration::from_millis(100), loss: 0.2, duplicate: 0.1, reorder: 0.2, ..Conditions::default() }
}

/// What the host has spawned and when it will despawn it.
#[derive(Default)]
struct Spawner {
    due: Vec<(u64, Entity)>,
    tick: u64,
}

impl Spawner {
    /// One spawn a tick, each despawned after 0 to 5 ticks; every fiftieth stays.
    fn run(&mut self, world: &mut World, step: &mut Step<'_>, rng: &mut Rng) {
        self.tick += 1;
        let entity = step.spawn(world, Crate, (Position { x: 0.0, y: self.tick as f32 * 0.5 },)).unwrap();
        if !self.tick.is_multiple_of(LASTING) {
            self.due.push((self.tick + rng.below(6), entity));
        }
        self.clear(world, step);
        for p in step.query::<&mut Position>(world).iter() {
            p.x += 0.1;
        }
    }

    fn clear(&mut self, world: &mut World, step: &mut Step<'_>) {
        let now = self.tick;
        self.due.retain(|(at, entity)| {
            if *at <= now {
                step.despawn(world, *entity).unwrap();
            }
            *at > now
        });
    }
}

/// The guest's game despawns every tenth copy that it sees, but spares those that stay.
fn despawn_tenth(world: &mut World, seen: &mut HashSet<NetId>, spared: &HashSet<NetId>) {
    let new: Vec<(Entity, NetId)> =
        world.query::<(Entity, &Networked)>().iter().map(|(e, n)| (e, n.id())).filter(|(_, n)| !seen.contains(n)).collect();
    for (entity, net) in new {
        seen.insert(net);
        if seen.len().is_multiple_of(10) && !spared.contains(&net) {
            world.despawn(entity).unwrap();
        }
    }
}

fn names(table: &mut Table, seat: usize) -> HashSet<NetId> {
    table.seat(seat).world.query::<&Networked>().iter().map(Networked::id).collect()
}

fn vanish(table: &mut Table, network: &Network, seat: usize) {
    let link: LinkId = network.links()[seat - 1];
    network.cut(link);
    table.vanish(seat);
}

fn session(seed: u64) {
    let mut rng = Rng::new(seed);
    let config = Config { time_out: Duration::from_secs(2), ..config() };
    let (mut table, network) = table_of(seed, &schema(), 2, foul(), &config);
    let absent = table.seat(2).peer.local();
    let (mut spawner, mut seen, mut spared) = (Spawner::default(), HashSet::new(), HashSet::new());
    let (mut timed_out, mut own) = (false, 0);
    for tick in 1..=600u64 {
        if tick == 300 {
            vanish(&mut table, &network, 2);
        }
        table.run(|seat, world, step| match seat {
            0 => {
                spawner.run(world, step, &mut rng);
                let gone = !step.peer().peers().iter().any(|p| p.peer == absent);
                if gone && !timed_out {
                    // the players went with their owner; the relics are the host's now, and it ends them in the same tick
                    timed_out = true;
                    let relics: Vec<Entity> = world.query::<(Entity, &Relic)>().iter().map(|(e, _)| e).collect();
                    assert!(!relics.is_empty(), "SEED={seed}: nothing was left to despawn");
                    relics.into_iter().for_each(|e| step.despawn(world, e).unwrap());
                }
            }
            1 => despawn_tenth(world, &mut seen, &spared),
            _ if own < 20 => {
                own += 1;
                let at = Position { x: own as f32, y: 1.0 };
                step.spawn(world, Player, (at,)).unwrap();
                step.spawn(world, Relic, (at,)).unwrap();
            }
            _ => {}
        });
        let due: HashSet<Entity> = spawner.due.iter().map(|d| d.1).collect();
        let host = table.seat(0);
        spared.extend(host.world.query::<(Entity, &Networked)>().iter().filter(|(e, _)| !due.contains(e)).map(|(_, n)| n.id()));
    }
    assert!(timed_out, "SEED={seed}: the guest that vanished was never missed");
    table.run(|seat, world, step| {
        if seat == 0 {
            spawner.tick += 6;
            spawner.clear(world, step);
        }
    });
    table.rest(40); // two round trips and two sends
    assert_settles(&mut table, 2);
    let (host, guest) = (names(&mut table, 0), names(&mut table, 1));
    assert_eq!(host, guest, "SEED={seed}");
    assert_eq!(host.len() as u64, 600 / LASTING, "SEED={seed}");
    let counted = table.seat(1).peer.stats(PeerId::HOST).unwrap().link.unknown_despawns;
    assert!(counted > 0, "SEED={seed}: no despawn of something unknown took place");
    assert_clean(&mut table);
}

#[test]
fn a_despawn_of_something_unknown_is_counted_and_nothing_else() {
    for seed in seeds(50) {
        session(seed);
    }
}

/// A copy that the game despawned does not come back with the entity's next change, and is told of neither as news.
#[test]
fn a_copy_that_the_game_despawned_stays_away() {
    for seed in seeds(10) {
        let (mut table, _network) = table_of(seed, &schema(), 1, foul(), &config());
        let mut entity = None;
        for tick in 0..200 {
            table.run(|seat, world, step| {
                if seat == 0 && tick == 0 {
                    entity = Some(step.spawn(world, Crate, (Position { x: 0.0, y: 0.0 },)).unwrap());
                }
                if seat == 1 && tick == 60 {
                    let copy = world.query::<(Entity, &Position)>().iter().map(|(e, _)| e).next();
                    world.despawn(copy.unwrap_or_else(|| panic!("SEED={seed}: no copy came"))).unwrap();
                }
                if seat == 1 && tick > 60 {
                    assert_eq!(world.query::<&Position>().iter().count(), 0, "SEED={seed} tick {tick}: the copy came back");
                }
                step.query::<&mut Position>(world).iter().for_each(|p| p.x += 0.1);
            });
        }
        let host = table.seat(0);
        host.peer.despawn(&mut host.world, entity.unwrap()).unwrap();
        table.rest(200);
        let news = table.seat(1).take_news();
        let count = |f: fn(&News) -> bool| news.iter().filter(|n| f(n)).count();
        assert_eq!(count(|n| matches!(n, News::Spawned { .. })), 1, "SEED={seed}");
        assert_eq!(count(|n| matches!(n, News::Despawned { .. })), 0, "SEED={seed}: it was the game's own doing");
        // a tombstone that is sent again counts again
        assert!(table.seat(1).peer.stats(PeerId::HOST).unwrap().link.unknown_despawns >= 1, "SEED={seed}");
        assert_clean(&mut table);
    }
}
