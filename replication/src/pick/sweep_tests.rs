//! Games in which a great deal changes at once for guests who are not shown everything.

use crate::policy::{Host, Owner};
use crate::relevance::Relevance;
use crate::testing::Table;
use crate::{Config, Replicate, Schema};
use hecs::{Entity, World};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::time::Duration;
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Place(#[net(step = 0.01, range = -1000.0..=1000.0)] [f32; 2]);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Speed(#[net(step = 0.01, range = -50.0..=50.0)] [f32; 2]);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Health(u16);

/// Whoever wears it is hidden.
struct Veil;

#[derive(Clone, Copy, Default)]
struct Thing;
#[derive(Clone, Copy, Default)]
struct Avatar;

fn schema() -> Schema {
    let schema = Schema::builder("sweep").component::<Speed>("speed", |c| c).component::<Health>("health", |c| c);
    let schema = schema.component::<Place>("place", |c| c.velocity::<Speed>());
    schema.kind::<Thing>("thing", Host::default()).kind::<Avatar>("avatar", Owner::default()).build().unwrap()
}

fn relevance() -> Relevance {
    Relevance::everything()
        .rule(|s| s.get::<Veil>().is_none())
        .show_only::<Health>(|s| s.get::<Health>().is_some_and(|h| h.0 != 7))
}

/// How a game is played.
#[derive(Clone, Copy, Default)]
struct Game {
    bandwidth: Option<u64>,
    births: bool,
    veils: bool,
    avatars: bool,
    receipts: bool,
    jams: bool,
}

const THINGS: usize = 900;
const GUESTS: usize = 3;

fn spawn(world: &mut World, x: f32, peer: &mut crate::Peer) -> Entity {
    peer.spawn(world, Thing, (Place([x, 0.0]), Speed([3.0, -2.0]), Health(100))).unwrap()
}

/// Plays in foul weather; how many packets were filled by sweeping.
fn play(seed: u64, game: Game) -> u64 {
    let (schema, network) = (schema(), Network::new(seed));
    let queue = if game.jams { 6000 } else { 64 * 1024 };
    let rate = game.jams.then_some(90_000);
    let weather = Conditions { latency: Duration::from_millis(40), loss: 0.2, rate, queue, ..Conditions::default() };
    let bandwidth = game.bandwidth.unwrap_or(1 << 30);
    let config = Config { bandwidth, ..Config::default() };
    let mut table = Table::new(seed, &schema, config.clone(), network.host()).unwrap();
    table.seat(0).peer.set_relevance(relevance()).unwrap();
    table.seat(0).peer.keep_receipts(usize::from(game.receipts));
    (0..GUESTS).for_each(|_| _ = table.join(config.clone(), network.join(weather, weather)).unwrap());
    table.rest(100);
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut below = move |n: usize| (rng.next_u64() % n as u64) as usize;
    let host = table.seat(0);
    let mut things: Vec<Entity> = (0..THINGS).map(|i| spawn(&mut host.world, i as f32, &mut host.peer)).collect();
    let mut avatars = Vec::new();
    for seat in (1..=GUESTS).filter(|_| game.avatars) {
        let guest = table.seat(seat);
        let parts = (Place([1.0, 1.0]), Speed([0.0; 2]), Health(seat as u16));
        avatars.push((seat, guest.peer.spawn(&mut guest.world, Avatar, parts).unwrap()));
    }
    for round in 0..4 {
        for _ in 0..50 {
            let host = table.seat(0);
            for (i, thing) in things.iter().enumerate().filter(|(i, _)| i % 3 != round % 3) {
                let mut place = host.world.get::<&mut Place>(*thing).unwrap();
                place.0 = [(place.0[0] + 0.05) % 900.0, (place.0[1] - 0.03 - i as f32 * 0.001) % 900.0];
            }
            for _ in 0..6 {
                let mut health = host.world.get::<&mut Health>(things[below(THINGS)]).unwrap();
                health.0 = [health.0 + 1, 7][usize::from(game.veils && below(3) == 0)];
            }
            if game.births && below(3) == 0 {
                let i = below(THINGS);
                host.peer.despawn(&mut host.world, things[i]).unwrap();
                things[i] = spawn(&mut host.world, 1.0, &mut host.peer);
            }
            if game.veils && below(3) == 0 {
                let thing = things[below(THINGS)];
                if host.world.remove_one::<Veil>(thing).is_err() {
                    host.world.insert_one(thing, Veil).unwrap();
                }
            }
            for (seat, avatar) in &avatars {
                table.seat(*seat).world.get::<&mut Place>(*avatar).unwrap().0[0] += 0.02;
            }
            table.rest(1);
        }
        // what was told wrongly would stay so: nothing changes any more
        let settled = table.settle(Duration::from_secs(30));
        assert!(settled, "SEED={seed} round {round}: {:?}", table.all_equal());
    }
    table.seat(0).peer.picks.sweep.swept
}

#[test]
fn what_is_swept_into_packets_ends_equal() {
    let all = Game { births: true, veils: true, avatars: true, ..Game::default() };
    for seed in 0..2 {
        let swept = [
            Game::default(),
            Game { births: true, ..Game::default() },
            all,
            Game { veils: true, jams: true, ..Game::default() },
            Game { receipts: true, ..all },
        ]
        .map(|game| play(seed, game));
        assert!(swept[..4].iter().all(|n| *n > 50) && swept[4] == 0, "SEED={seed}: {swept:?}");
    }
}

#[test]
fn little_room_ends_equal_too() {
    for seed in 5..7 {
        play(seed, Game { bandwidth: Some(30_000), births: true, veils: true, ..Game::default() });
    }
}
