//! What the tests share: a small game and a table with weather.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "every test uses another part")]

pub mod record;

use hecs::{Entity, World};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::time::Duration;
use tidelock::policy::{Host, Owner};
use tidelock::testing::Table;
use tidelock::{Config, Interpolate, Replicate, Schema, SchemaBuilder};
use tidelock_loopback::{Conditions, Network};

/// Chance from a seed.
pub struct Rng(Pcg64Mcg);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
pub struct Position {
    #[net(step = 0.01, range = -500.0..=500.0)]
    pub x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    pub y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Health(pub u16);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Banner {
    #[net(range = 0..=1000)]
    pub colour: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Link {
    pub target: Entity,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct ChildOf {
    pub parent: Entity,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Tag;

#[derive(Clone, Copy, Default)]
pub struct Crate;
#[derive(Clone, Copy, Default)]
pub struct Player;
#[derive(Clone, Copy, Default)]
pub struct Relic;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
pub struct Order {
    pub target: Entity,
    pub number: u32,
}

#[derive(Clone, Debug, PartialEq, Replicate)]
pub struct Chat {
    #[net(max = 32)]
    pub text: String,
}

pub fn schema() -> Schema {
    schema_with(|schema| schema)
}

/// The same with something more.
pub fn schema_with(more: impl FnOnce(SchemaBuilder) -> SchemaBuilder) -> Schema {
    let schema = Schema::builder("test")
        .component::<Position>("position", |c| {
            c.interpolate().notify_changes().validate(|_, p, _| if p.y == 333.0 { Err("333 is forbidden") } else { Ok(()) })
        })
        .component::<Health>("health", |c| c.authority(Host::default()).notify_changes())
        .component::<Banner>("banner", |c| c)
        .component::<Link>("link", |c| c)
        .component::<ChildOf>("child_of", |c| c.parent())
        .component::<Tag>("tag", |c| c)
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .kind_with::<Relic>("relic", Owner::default(), |k| {
            k.authority::<Banner>(Owner::co(1)).when_owner_leaves(tidelock::policy::Absent::HostTakesOver)
        })
        .message::<Order>("order")
        .message::<Chat>("chat");
    more(schema).build().unwrap()
}

pub fn weather(latency_ms: u64, loss: f64) -> Conditions {
    Conditions { latency: Duration::from_millis(latency_ms), loss, ..Conditions::default() }
}

pub fn config() -> Config {
    Config { refusals: 1_000_000, ..Config::default() }
}

/// A host, `guests` guests in that weather, admitted.
pub fn table(seed: u64, guests: usize, weather: Conditions) -> (Table, Network) {
    table_with(seed, guests, weather, &config())
}

pub fn table_with(seed: u64, guests: usize, weather: Conditions, config: &Config) -> (Table, Network) {
    let network = Network::new(seed);
    let mut table = Table::new(seed, &schema(), config.clone(), network.host()).unwrap();
    for _ in 0..guests {
        table.join(config.clone(), network.join(weather, weather)).unwrap();
    }
    for _ in 0..600 {
        table.rest(1);
        if table.seats.iter().flatten().all(|s| s.peer.is_in_session()) {
            return (table, network);
        }
    }
    panic!("SEED={seed}: the guests did not get in");
}

pub fn assert_settles(table: &mut Table, seconds: u64) {
    if !table.settle(Duration::from_secs(seconds)) {
        let found = table.all_equal();
        let seats: Vec<usize> = table.taken();
        for seat in seats {
            let s = table.seat(seat);
            let last = s.take_news().pop();
            eprintln!(
                "seat {seat}: {}, in session {}, ended {:?}, tick {}, {:?}",
                s.peer.local(),
                s.peer.is_in_session(),
                s.peer.ended(),
                s.peer.tick(),
                last
            );
            for line in table.differences(seat).iter().take(8) {
                eprintln!("seat {seat}: {line}");
            }
        }
        panic!("SEED={} not equal after {seconds} s of rest: {found:?}", table.seed);
    }
}

/// Spawns, moves, changes and despawns at random, as far as the seat may.
pub fn churn(seat: usize, world: &mut World, step: &mut tidelock::Step<'_>, rng: &mut Rng) {
    let mine: Vec<Entity> = step.query::<(Entity, &Position)>(world).iter().map(|(e, _)| e).collect();
    for entity in &mine {
        if rng.chance(30)
            && let Ok(mut p) = world.get::<&mut Position>(*entity)
        {
            p.x = (p.x + rng.below(200) as f32 * 0.01).min(499.0);
            p.y = rng.below(40_000) as f32 * 0.01;
        }
    }
    if mine.len() < 40 {
        let at = Position { x: 0.0, y: rng.below(100) as f32 };
        if seat == 0 {
            let _ = step.spawn(world, Crate, (at, Health(rng.below(100) as u16)));
        } else {
            let _ = step.spawn(world, Player, (at,));
        }
    }
    if mine.len() > 20 {
        let victim = mine[rng.below(mine.len() as u64) as usize];
        let _ = step.despawn(world, victim);
    }
    if let Some(&entity) = mine.get(rng.below(mine.len().max(1) as u64) as usize)
        && world.contains(entity)
    {
        match rng.below(4) {
            0 => drop(world.insert_one(entity, Tag)),
            1 => drop(world.remove_one::<Tag>(entity)),
            2 => drop(world.insert_one(entity, Banner { colour: rng.below(1000) as i32 })),
            _ => {}
        }
    }
}

/// `SEED=n` runs one seed, `SEEDS=n` so many; otherwise `count`.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
    match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, some) => 1..1 + some.unwrap_or(count),
    }
}

/// A host with a schema and settings of its own, and `guests` guests in that weather, admitted.
pub fn table_of(seed: u64, schema: &Schema, guests: usize, weather: Conditions, config: &Config) -> (Table, Network) {
    let network = Network::new(seed);
    let mut table = Table::new(seed, schema, config.clone(), network.host()).unwrap();
    for _ in 0..guests {
        let own = Config { local_news: false, ..config.clone() };
        table.join(own, network.join(weather, weather)).unwrap();
    }
    for _ in 0..600 {
        table.rest(1);
        if table.seats.iter().flatten().all(|s| s.peer.is_in_session()) {
            return (table, network);
        }
    }
    panic!("SEED={seed}: the guests did not get in");
}

/// Nobody was thrown out, nobody sent what cannot be read.
pub fn assert_clean(table: &mut Table) {
    let seed = table.seed;
    for seat in table.taken() {
        let place = table.seat(seat);
        assert!(place.peer.ended().is_none(), "SEED={seed} seat {seat}: its session ended, {:?}", place.peer.ended());
        for info in place.peer.peers() {
            if let Some(stats) = place.peer.stats(info.peer) {
                assert_eq!(stats.link.malformed, 0, "SEED={seed} seat {seat}: malformed packets from {:?}", info.peer);
            }
        }
        let bad = place.news.iter().find(|n| {
            matches!(
                n,
                tidelock::News::Misbehaved { .. }
                    | tidelock::News::Missed { .. }
                    | tidelock::News::Unsendable { .. }
                    | tidelock::News::Stray { .. }
            )
        });
        assert!(bad.is_none(), "SEED={seed} seat {seat}: {bad:?}");
    }
}
