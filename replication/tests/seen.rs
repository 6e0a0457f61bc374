//! What an actor saw: the host finds in its history what a guest had on its screen when it acted.

mod common;
mod input_rig;

use common::{seeds, weather};
use hecs::{Entity, World};
use input_rig::Program;
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::netcore::tick::Tick;
use tidelock::policy::{Host, Owner};
use tidelock::{Config, Interpolate, NetId, Past, Peer, PeerId, Replicate, Schema, SeenAt, Source, UsageError};
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Trigger {
    #[net(range = 0..=3)]
    finger: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Place {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
}

#[derive(Clone, Copy, Default)]
struct Target;
/// Moved by the second guest.
#[derive(Clone, Copy, Default)]
struct Runner;

/// Where targets are, at a time of the session in seconds: at most 20 units a second.
fn curve(seconds: f64, number: u32) -> f32 {
    let (swing, speed) = [(40.0, 0.5), (100.0, 0.2)][number as usize % 2];
    (swing * (seconds * speed).sin()) as f32
}
const FASTEST: f32 = 20.0;

fn schema() -> Schema {
    Schema::builder("seen")
        .component::<Place>("place", |c| c.interpolate())
        .kind::<Target>("target", Host::default())
        .kind::<Runner>("runner", Owner::default())
        .input::<Trigger>("trigger")
        .build()
        .unwrap()
}

/// A host, a guest that watches, a guest that runs.
struct Stage {
    seed: u64,
    programs: Vec<Program>,
    now: Duration,
    /// By the watcher's tick: what it had on its screen.
    screens: BTreeMap<Tick, BTreeMap<NetId, f32>>,
    /// How far the host's answers were from that, by who moves the thing: the host, or a guest.
    off: [Vec<f32>; 2],
    targets: Vec<(Entity, NetId)>,
    runner: Option<(Entity, NetId)>,
    teleports: bool,
    seen: Vec<SeenAt>,
    _network: Network,
}

impl Stage {
    fn new(seed: u64, fps: u64, send_every: u32, weather: Conditions) -> Self {
        let network = Network::new(seed);
        let config = || Config { session: Some(seed), send_every, ..Config::default() };
        let peers = [
            Peer::host(schema(), network.host(), config()).unwrap(),
            Peer::join(schema(), network.join(weather, weather), config()).unwrap(),
            Peer::join(schema(), network.join(weather, weather), config()).unwrap(),
        ];
        let rates = [60, fps, 60];
        let program = |(i, peer): (usize, Peer)| Program {
            peer,
            world: World::new(),
            frame: Duration::from_nanos(1_000_000_000 / rates[i]),
            next: Duration::from_micros(1 + 3_700 * i as u64),
        };
        Self {
            seed,
            programs: peers.into_iter().enumerate().map(program).collect(),
            now: Duration::ZERO,
            screens: BTreeMap::new(),
            off: Default::default(),
            targets: Vec::new(),
            runner: None,
            teleports: false,
            seen: Vec::new(),
            _network: network,
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let next = (0..3).min_by_key(|i| self.programs[*i].next).unwrap();
            if self.programs[next].next > until {
                self.now = until;
                return;
            }
            let program = &mut self.programs[next];
            self.now = program.next;
            program.next += program.frame;
            match next {
                0 => self.host_frame(),
                1 => self.watch(),
                _ => self.run_about(),
            }
        }
    }

    fn spawn(&mut self, count: u32) {
        let Program { peer, world, .. } = &mut self.programs[0];
        for i in 0..count {
            let entity = peer.spawn(world, Target, (Place { x: curve(0.0, i) },)).unwrap();
            self.targets.push((entity, peer.name_of(world, entity).unwrap()));
        }
    }

    fn host_frame(&mut self) {
        let Self { seed, programs, now, screens, off, targets, runner, teleports, seen, .. } = self;
        let guest = programs[1].peer.local();
        programs[0].run(*now, |world, step| {
            let tick = step.tick();
            for (i, (target, _)) in targets.iter().enumerate() {
                let Ok(mut place) = world.get::<&mut Place>(*target) else { continue };
                let jump = if *teleports && tick.0 / 97 % 2 == 0 { 300.0 } else { 0.0 };
                place.x = curve(tick.0 as f64 / 60.0, i as u32) + jump;
                if *teleports && tick.0 % 97 == 0 {
                    step.peer().teleport(world, *target).unwrap();
                }
            }
            let arrived = step.input::<Trigger>(guest).is_ok_and(|i| i.source == Source::Arrived);
            let Some(screen) = screens.get(&tick).filter(|_| arrived) else { return };
            let Some(moment) = step.peer().seen_by(guest) else { panic!("SEED={seed} {tick}: it told nothing") };
            assert!(moment.tick() < tick && moment.actor() == guest, "SEED={seed}: {moment:?}");
            assert!(moment.ticks_behind() <= 30.0, "SEED={seed}: {moment:?}");
            seen.push(moment);
            if moment.is_clamped() {
                return;
            }
            let all: Vec<Past<Place>> = step.peer().at_time::<Place>(moment).unwrap().collect();
            for (net, drawn) in screen {
                let past = all.iter().find(|p| p.net == *net);
                // what has just come is drawn at its first place at once, though the moment on the screen is before its birth
                let Some(past) = past else {
                    assert!(now.as_secs() < 4, "SEED={seed} {tick}: {net} was there");
                    continue;
                };
                let one = step.peer().at_time_named::<Place>(*net, moment).unwrap().unwrap();
                assert_eq!(one, past.value, "SEED={seed}: one and all");
                if let Some(entity) = past.entity {
                    assert_eq!(step.peer().at_time_of::<Place>(world, entity, moment).unwrap(), Some(one), "SEED={seed}");
                }
                let remote = runner.is_some_and(|(_, runner)| runner == *net);
                off[usize::from(remote)].push((one.x - drawn).abs());
            }
        });
    }

    fn watch(&mut self) {
        let Self { programs, now, screens, .. } = self;
        let Program { peer, world, .. } = &mut programs[1];
        peer.receive(*now, world).unwrap();
        let drawn = peer.present::<Place>(world, *now).unwrap().collect::<Vec<_>>();
        let screen: BTreeMap<NetId, f32> = drawn.into_iter().map(|(e, p)| (peer.name_of(world, e).unwrap(), p.x)).collect();
        peer.set_input(&Trigger { finger: 1 }).unwrap();
        while let Some(step) = peer.next_step(world) {
            screens.insert(step.tick(), screen.clone());
        }
        peer.send(*now, world).unwrap();
    }

    fn run_about(&mut self) {
        let Self { programs, now, runner, .. } = self;
        if programs[2].peer.is_in_session() && runner.is_none() && !self.teleports && now.as_secs() > 1 {
            let Program { peer, world, .. } = &mut programs[2];
            let entity = peer.spawn(world, Runner, (Place { x: 0.0 },)).unwrap();
            *runner = Some((entity, peer.name_of(world, entity).unwrap()));
        }
        programs[2].run(*now, |world, step| {
            if let Some((runner, _)) = runner
                && let Ok(mut place) = world.get::<&mut Place>(*runner)
            {
                place.x = curve(step.tick().0 as f64 / 60.0, 0);
            }
        });
    }

    /// The largest of all but a part of the errors.
    fn error(&mut self, of: usize, part: f64) -> f32 {
        let off = &mut self.off[of];
        assert!(off.len() > 300, "SEED={}: {} answers", self.seed, off.len());
        off.sort_unstable_by(f32::total_cmp);
        off[((off.len() - 1) as f64 * part) as usize]
    }
}

/// A step of the quantisation, and what a thing moves in a thirty-second of a tick, by which what the guest tells is rounded.
const CLOSE: f32 = 0.01 + FASTEST / 60.0 / 32.0;

#[test]
fn the_host_sees_what_the_guest_drew() {
    for seed in seeds(2) {
        for (fps, send_every) in [(60, 1), (144, 1), (60, 3), (144, 3), (20, 1)] {
            let mut stage = Stage::new(seed, fps, send_every, weather(75, 0.0));
            stage.spawn(3);
            stage.run(Duration::from_secs(6));
            stage.off = Default::default();
            stage.run(Duration::from_secs(20));
            let (mine, others) = (stage.error(0, 1.0), stage.error(1, 1.0));
            let clamped = stage.seen.iter().filter(|m| m.is_clamped()).count();
            assert_eq!(clamped, 0, "SEED={seed}");
            assert!(mine <= CLOSE, "SEED={seed} {fps} fps, every {send_every}: {mine}");
            // what another guest moves is drawn from samples whose rests the host has guessed: at most a tick's motion off
            assert!(others <= FASTEST / 60.0, "SEED={seed} {fps} fps, every {send_every}: {others}");
            let most = stage.error(1, 0.98);
            assert!(send_every > 1 || most <= CLOSE, "SEED={seed} {fps} fps: {most}");
        }
    }
}

#[test]
fn through_loss_and_jitter() {
    for seed in seeds(2) {
        for (fps, send_every, latency) in [(60, 1, 75), (144, 1, 75), (60, 3, 40)] {
            let foul = Conditions { jitter: Duration::from_millis(20), ..weather(latency, 0.05) };
            let mut stage = Stage::new(seed, fps, send_every, foul);
            stage.spawn(3);
            stage.run(Duration::from_secs(6));
            stage.off = Default::default();
            stage.run(Duration::from_secs(40));
            let mine = stage.error(0, 1.0);
            assert!(mine <= 1.5 * CLOSE, "SEED={seed} {fps} fps, every {send_every}: {mine}");
            // two hops, and what is lost on the first the watcher does not hear of
            let (most, worst) = (stage.error(1, 0.9), stage.error(1, 1.0));
            assert!(send_every > 1 || most <= FASTEST / 60.0 / 4.0, "SEED={seed} {fps} fps: {most}");
            assert!(worst <= 4.0, "SEED={seed} {fps} fps, every {send_every}: {worst}");
            let clamped = stage.seen.iter().filter(|m| m.is_clamped()).count();
            assert!(clamped * 20 <= stage.seen.len(), "SEED={seed}: {clamped} beyond the bound");
        }
    }
}

#[test]
fn a_teleport_is_not_blended() {
    for seed in seeds(2) {
        let mut stage = Stage::new(seed, 144, 3, weather(75, 0.0));
        stage.spawn(1);
        stage.teleports = true;
        stage.run(Duration::from_secs(4));
        stage.off = Default::default();
        stage.run(Duration::from_secs(20));
        let most = stage.error(0, 0.98);
        assert!(most <= CLOSE, "SEED={seed}: {most}");
        // rounded by a thirty-second of a tick a moment may fall on the other side of the jump, but never between
        let between = stage.off[0].iter().find(|off| **off > CLOSE && (**off - 300.0).abs() > 2.0);
        assert_eq!(between, None, "SEED={seed}");
    }
}

#[test]
fn who_has_ended_is_found_by_its_name() {
    let mut stage = Stage::new(1, 60, 1, weather(75, 0.0));
    stage.spawn(2);
    stage.run(Duration::from_secs(3));
    let (entity, net) = stage.targets[0];
    let guest = PeerId(1);
    let before = stage.programs[0].peer.seen_by(guest).unwrap();
    let Program { peer, world, .. } = &mut stage.programs[0];
    let value = peer.at_time_of::<Place>(world, entity, before).unwrap().unwrap();
    peer.despawn(world, entity).unwrap();
    stage.run(Duration::from_millis(50));
    let Program { peer, world, .. } = &mut stage.programs[0];
    let moment = peer.seen_by(guest).unwrap();
    assert_eq!(peer.at_time_of::<Place>(world, entity, moment), Err(UsageError::NotNetworked));
    let past: Vec<Past<Place>> = peer.at_time(moment).unwrap().filter(|p: &Past<Place>| p.net == net).collect();
    assert_eq!((past.len(), past[0].entity), (1, None), "it was still on the screen");
    assert!((past[0].value.x - value.x).abs() < 3.0);
    assert_eq!(peer.at_time_named::<Place>(net, before).unwrap(), Some(value), "the past does not change");
    // the guest has seen it go
    stage.run(Duration::from_millis(500));
    let peer = &stage.programs[0].peer;
    let moment = peer.seen_by(guest).unwrap();
    assert_eq!(peer.at_time_named::<Place>(net, moment).unwrap(), None);
    assert_eq!(peer.at_time::<Place>(moment).unwrap().count(), 2, "the other one, and the runner");
    // the history has forgotten it, and says so in the same way
    stage.run(Duration::from_secs(3));
    let peer = &stage.programs[0].peer;
    assert_eq!(peer.at_time_named::<Place>(net, before).unwrap(), None);
}

#[test]
fn who_came_later_was_not_there() {
    let mut stage = Stage::new(1, 60, 1, weather(75, 0.0));
    stage.spawn(1);
    stage.run(Duration::from_secs(3));
    stage.spawn(1);
    stage.run(Duration::from_millis(50));
    let Program { peer, world, .. } = &mut stage.programs[0];
    let moment = peer.seen_by(PeerId(1)).unwrap();
    let (entity, net) = stage.targets[1];
    assert_eq!(peer.at_time_of::<Place>(world, entity, moment).unwrap(), None);
    assert!(peer.at_time::<Place>(moment).unwrap().all(|p| p.net != net));
    let now = peer.seen_by(PeerId::HOST).unwrap();
    assert!(peer.at_time_of::<Place>(world, entity, now).unwrap().is_some(), "the host's moment is now");
    assert!(stage.programs[1].peer.seen_by(PeerId::HOST).is_none(), "a guest has no history");
}
