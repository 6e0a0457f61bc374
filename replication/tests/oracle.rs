//! Whole sessions under foul weather: the oracle holds all along, and all ends equal.

mod common;

use common::{Rng, assert_settles, churn, config, seeds, table, weather};
use std::time::Duration;
use tidelock::netcore::error::DisconnectReason;
use tidelock::netcore::transport::LinkId;
use tidelock_loopback::Conditions;

fn foul() -> Conditions {
    Conditions {
        latency: Duration::from_millis(60),
        jitter: Duration::from_millis(20),
        loss: 0.2,
        burst: 4.0,
        duplicate: 0.1,
        reorder: 0.1,
        ..Conditions::default()
    }
}

/// 600 ticks with joins, leaves, people who vanish and stalls of 3 s; spawning and despawning in every tick.
fn session(seed: u64) {
    let mut rng = Rng::new(seed);
    let (mut table, network) = table(seed, 2, foul());
    let mut stalls = 0;
    let mut links = network.links();
    links.insert(0, LinkId(u32::MAX)); // the host's seat has none
    for _ in 0..600 {
        let mut chance = Rng::new(rng.below(u64::MAX));
        table.run(|seat, world, step| churn(seat, world, step, &mut chance));
        let guests: Vec<usize> = table.taken().into_iter().skip(1).collect();
        let any = guests.get(rng.below(guests.len().max(1) as u64) as usize).copied();
        match rng.below(400) {
            0..=3 if guests.len() < 5 => {
                let transport = network.join(foul(), foul());
                links.push(transport.link().unwrap());
                table.join(config(), transport).unwrap();
            }
            4 => any.into_iter().for_each(|g| table.leave(g)),
            5 => {
                if let Some(guest) = any {
                    // the cable first, so that nobody says goodbye
                    network.cut(links[guest]);
                    table.vanish(guest);
                }
            }
            6 if stalls == 0 => {
                stalls += 1;
                any.into_iter().for_each(|g| table.stall(g, Duration::from_secs(3)));
            }
            7 if stalls == 0 => {
                stalls += 1;
                table.stall(0, Duration::from_secs(3));
            }
            _ => {}
        }
    }
    assert_settles(&mut table, 30);
    // a storm can keep a newcomer out for longer than it waits, and nothing else ends a session
    for seat in table.taken().into_iter().skip(1) {
        let ended = table.seat(seat).peer.ended();
        assert!(matches!(ended, None | Some(DisconnectReason::TimedOut)), "SEED={seed}: seat {seat} ended: {ended:?}");
    }
}

#[test]
fn the_oracle_holds_in_foul_weather() {
    for seed in seeds(20) {
        session(seed);
    }
}

#[test]
fn nothing_is_lost_in_fair_weather() {
    let (mut table, _network) = table(5, 3, weather(30, 0.0));
    let mut rng = Rng::new(5);
    for _ in 0..300 {
        table.run(|seat, world, step| churn(seat, world, step, &mut rng));
    }
    assert_settles(&mut table, 2);
    for seat in table.taken() {
        let peer = &table.seat(seat).peer;
        for info in peer.peers() {
            if let Some(stats) = peer.stats(info.peer) {
                assert_eq!(stats.sent.lost, 0, "SEED=5: nothing was lost, so nothing may be taken for lost");
                assert_eq!(stats.link.useless, 0);
            }
        }
    }
}
