//! A long stall is over when it is over: no endless catching up, no burst of errors, and nobody is dropped for less than the
//! time-out. All policies are in the world.

mod common;
mod mixed_game;

use common::{Rng, assert_clean, weather};
use mixed_game::{Has, Place, Runner, Seen, Speed, Stick, simulate};
use std::time::Duration;
use tidelock::netcore::error::DisconnectReason;
use tidelock::netcore::limits;
use tidelock::policy::Timeline;
use tidelock::testing::Table;
use tidelock::{Config, News, PeerId};
use tidelock_loopback::Network;

const LATENCY: u64 = 50;

struct Scene {
    table: Table,
    network: Network,
    config: Config,
    seen: Vec<Seen>,
    chance: Rng,
    /// Ticks of the session that each seat ran, one after the other, and those of the last frame.
    ran: Vec<(u64, u64)>,
    /// How often each seat left ticks out.
    jumps: Vec<u32>,
}

impl Scene {
    fn new(seed: u64, time_out: u64) -> Self {
        let network = Network::new(seed);
        let config = Config { time_out: Duration::from_secs(time_out), ..common::config() };
        let table = Table::new(seed, &Has::all().schema(), config.clone(), network.host()).unwrap();
        let (seen, ran, jumps) = (vec![Seen::default()], vec![(0, 0)], vec![0]);
        let mut scene = Self { table, network, config, seen, chance: Rng::new(seed), ran, jumps };
        scene.join();
        scene.join();
        scene.run(180);
        for guest in 1..=2 {
            let host = scene.table.seat(0);
            let body = host.peer.spawn(&mut host.world, Runner, (Place::default(), Speed::default())).unwrap();
            host.peer.grant(&mut host.world, body, 0, PeerId(guest)).unwrap();
        }
        scene.run(120);
        scene.jumps.fill(0);
        scene
    }

    fn join(&mut self) {
        let weather = weather(LATENCY, 0.0);
        self.table.join(self.config.clone(), self.network.join(weather, weather)).unwrap();
        self.seen.push(Seen::default());
        self.ran.push((0, 0));
        self.jumps.push(0);
    }

    fn frame(&mut self) {
        for seat in self.table.taken() {
            let x = self.chance.below(201) as f32 / 100.0 - 1.0;
            let peer = &mut self.table.seat(seat).peer;
            if peer.is_in_session() {
                peer.set_input(&Stick { x, ..Stick::default() }).unwrap();
            }
        }
        let Self { table, seen, chance, ran, jumps, .. } = self;
        ran.iter_mut().for_each(|r| r.1 = 0);
        table.run(|seat, world, step| {
            if step.timeline() == Timeline::Session && !step.rerun() {
                let (last, frame) = &mut ran[seat];
                let tick = step.tick().0;
                assert!(tick > *last, "seat {seat}: tick {tick} after {last}");
                jumps[seat] += u32::from(*last != 0 && tick > *last + 1);
                (*last, *frame) = (tick, *frame + 1);
                assert!(*frame <= limits::CATCH_UP_TICKS, "seat {seat}: more than are run in one frame after a stall");
            }
            simulate(Has::all(), seat, world, step, &mut seen[seat], Some(chance));
        });
    }

    fn run(&mut self, frames: u64) {
        (0..frames).for_each(|_| self.frame());
    }

    fn stall(&mut self, seat: usize, seconds: u64) {
        self.table.stall(seat, Duration::from_secs(seconds));
        self.run(seconds * 60);
    }

    /// A second after the cause has ended, ticks pass at the pace of time on every timeline, at every seat.
    fn assert_in_step(&mut self, what: &str, grace: u64) {
        self.run(grace);
        let at = |scene: &mut Self, seat| {
            let peer = &scene.table.seat(seat).peer;
            [Some(peer.tick()), peer.confirmed(Timeline::Rollback), peer.confirmed(Timeline::Lockstep)].map(Option::unwrap)
        };
        let seats = self.table.taken();
        let before: Vec<_> = seats.iter().map(|seat| at(self, *seat)).collect();
        self.run(60);
        let host = at(self, 0);
        for (seat, before) in seats.into_iter().zip(before) {
            let after = at(self, seat);
            for (i, (after, before)) in after.into_iter().zip(before).enumerate() {
                let ran = after.since(before);
                assert!((50..=70).contains(&ran), "{what}: seat {seat} ran {ran} ticks of timeline {i} in 60 frames");
                assert!(host[i].0.abs_diff(after.0) < 40, "{what}: seat {seat} is at {after:?} of {i}, the host at {host:?}");
            }
        }
    }

    fn trips(&mut self) -> Vec<Duration> {
        (1..=2).map(|peer| self.table.seat(0).peer.stats(PeerId(peer)).unwrap().rtt).collect()
    }

    /// All comes to rest, and is equal.
    fn assert_equal(&mut self) {
        for seat in self.table.taken() {
            let peer = &mut self.table.seat(seat).peer;
            if peer.is_in_session() {
                peer.set_input(&Stick::default()).unwrap();
            }
        }
        let seen = &mut self.seen;
        let settled = (0..600).any(|_| {
            self.table.run(|seat, world, step| simulate(Has::all(), seat, world, step, &mut seen[seat], None));
            self.table.all_equal().is_ok()
        });
        assert!(settled, "SEED={}: {:?}", self.table.seed, self.table.all_equal());
    }
}

fn close(before: Duration, after: Duration) -> bool {
    after > before.mul_f64(0.8) && after < before.mul_f64(1.2)
}

#[test]
fn a_host_that_stands_still_for_less_than_the_time_out_loses_nobody() {
    for (stall, time_out) in [(2, 10), (2, 30), (20, 30)] {
        let what = format!("{stall} s of {time_out}");
        let mut scene = Scene::new(1, time_out);
        let before = scene.trips();
        scene.stall(0, stall);
        scene.assert_in_step(&what, 60);
        for (before, after) in before.into_iter().zip(scene.trips()) {
            assert!(close(before, after), "{what}: a round trip of {before:?} is measured as {after:?}");
        }
        assert_eq!(scene.jumps[0], 1, "{what}: the host leaves out what it missed, once");
        assert!(scene.jumps[1] <= 1 && scene.jumps[2] <= 1, "{what}: guests jump {:?} times", scene.jumps);
        scene.assert_equal();
        assert_clean(&mut scene.table);
    }
}

#[test]
fn a_guest_that_loads_for_less_than_the_time_out_stays() {
    let mut scene = Scene::new(2, 30);
    let before = scene.trips();
    scene.stall(1, 15);
    // 900 sealed ticks are run one after the other, 16 in a frame
    scene.assert_in_step("15 s of 30", 90);
    for (before, after) in before.into_iter().zip(scene.trips()) {
        assert!(close(before, after), "a round trip of {before:?} is measured as {after:?}");
    }
    assert_eq!(scene.jumps, [0, 1, 0], "it leaves out what it missed, once, and nobody else does");
    scene.assert_equal();
    assert_clean(&mut scene.table);
}

#[test]
fn who_stands_still_for_longer_than_the_time_out_is_told_cleanly() {
    for (seat, stall, time_out) in [(1, 15, 10), (0, 20, 10), (0, 600, 10), (0, 600, 30)] {
        let what = format!("seat {seat}: {stall} s of {time_out}");
        let mut scene = Scene::new(3, time_out);
        scene.table.seats.iter_mut().flatten().for_each(|s| s.news.clear());
        scene.stall(seat, stall);
        scene.run(60);
        let lost: Vec<usize> = if seat == 0 { vec![1, 2] } else { vec![1] };
        for guest in &lost {
            let ended = scene.table.seat(*guest).peer.ended().cloned();
            assert!(matches!(ended, Some(DisconnectReason::TimedOut)), "{what}: guest {guest} ended with {ended:?}");
            let news = scene.table.seat(*guest).take_news();
            let told = news.iter().filter(|n| matches!(n, News::Disconnected { .. })).count();
            assert_eq!(told, 1, "{what}: {news:?}");
        }
        let news = scene.table.seat(0).take_news();
        let left = news.iter().filter(|n| matches!(n, News::Left { .. })).count();
        let bad = news.iter().find(|n| matches!(n, News::Misbehaved { .. } | News::Rejected { .. } | News::Missed { .. }));
        assert_eq!((left, bad), (lost.len(), None), "{what}");
        // they come again, and all goes on
        lost.iter().for_each(|guest| drop(scene.table.vanish(*guest)));
        lost.iter().for_each(|_| scene.join());
        scene.run(120);
        scene.assert_in_step(&what, 60);
        scene.assert_equal();
    }
}

/// Each tick takes half as long again as there is time for it, for five seconds.
#[test]
fn ticks_that_take_too_long_are_left_out_and_not_run_later() {
    let mut scene = Scene::new(4, 10);
    let before = scene.trips();
    let end = scene.table.now + Duration::from_secs(5);
    let start = scene.ran[0].0;
    while scene.table.now < end {
        scene.frame();
        scene.table.stall(0, Duration::from_millis(25) * scene.ran[0].1 as u32);
        while scene.table.now + scene.table.frame < scene.table.seat(0).stalled_until {
            scene.frame();
        }
    }
    let missed = 300 - (scene.ran[0].0 - start).min(300);
    assert!(missed < 30, "the session's clock goes on: it is {missed} ticks behind after five seconds");
    assert!(scene.jumps[0] > 5, "SEED=4: {} times ticks were left out", scene.jumps[0]);
    scene.assert_in_step("slow ticks", 60);
    for (before, after) in before.into_iter().zip(scene.trips()) {
        assert!(close(before, after), "a round trip of {before:?} is measured as {after:?}");
    }
    scene.assert_equal();
    assert_clean(&mut scene.table);
}
