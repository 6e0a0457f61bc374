//! Messages of the game, over the emulator: lanes, addresses, events, requests, large ones.

mod events;
mod large;
mod numbers;
mod promises;
mod requests;

use std::time::Duration;
use tidelock::testing::Table;
use tidelock::{Config, Schema};
use tidelock_loopback::{Conditions, Direction, Network};

/// A host and guests who are in; from now on the weather between them is `weather`.
fn table(seed: u64, schema: &Schema, config: &Config, guests: usize, weather: Conditions) -> (Table, Network) {
    let network = Network::new(seed);
    let mut table = Table::new(seed, schema, config.clone(), network.host()).unwrap();
    for _ in 0..guests {
        table.join(config.clone(), network.join(Conditions::default(), Conditions::default())).unwrap();
        table.rest(20);
    }
    for link in network.links() {
        network.set_conditions(link, Direction::Up, weather);
        network.set_conditions(link, Direction::Down, weather);
    }
    assert!((1..=guests).all(|seat| table.seat(seat).peer.is_in_session()), "SEED={seed}");
    (table, network)
}

fn foul() -> Conditions {
    let (latency, jitter) = (Duration::from_millis(40), Duration::from_millis(10));
    Conditions { latency, jitter, loss: 0.2, duplicate: 0.1, reorder: 0.2, ..Conditions::default() }
}

/// So many seeds, or as many as the environment's `SEEDS` says.
fn seeds(usual: u64) -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}
