//! Dead reckoning: extrapolated things are drawn where they are by now, and what is new comes in without a jump.

mod common;

use common::{assert_clean, seeds, weather};
use hecs::{Entity, World};
use std::time::Duration;
use tidelock::policy::{Host, Owner};
use tidelock::testing::{Seat, Table};
use tidelock::{Config, Interpolate, NetId, Replicate, Schema};
use tidelock_loopback::{Conditions, Network};

const STEP: f32 = 0.01;
const TICK: f64 = 1.0 / 60.0;

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Shot {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
    #[net(angle, bits = 12)]
    heading: f32,
    #[net(quat, bits = 12)]
    turn: [f32; 4],
    burning: bool,
}

fn shot(x: f32) -> Shot {
    Shot { x, heading: 0.0, turn: [0.0, 0.0, 0.0, 1.0], burning: false }
}

#[derive(Clone, Copy, Default)]
struct Puck;
#[derive(Clone, Copy, Default)]
struct Kart;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick(bool);

fn schema(inputs: bool) -> Schema {
    let schema = Schema::builder("reckoning").component::<Shot>("shot", |c| c.extrapolate());
    let schema = schema.kind::<Puck>("puck", Host::default()).kind::<Kart>("kart", Owner::default());
    if inputs { schema.input::<Stick>("stick") } else { schema }.build().unwrap()
}

struct Game {
    table: Table,
    entity: Entity,
    net: NetId,
    /// What the guest has drawn, frame by frame, where the host had it at that time of the session, and that time in seconds; and what the
    /// guest's world holds.
    film: Vec<(Shot, Shot, f64, f32)>,
    teleport_at: Option<f64>,
    _network: Network,
}

impl Game {
    fn new(seed: u64, conditions: Conditions, send_every: u32) -> Self {
        Self::of(seed, conditions, send_every, false)
    }

    fn of(seed: u64, conditions: Conditions, send_every: u32, inputs: bool) -> Self {
        let config = Config { send_every, ..common::config() };
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(inputs), config.clone(), network.host()).unwrap();
        table.join(config, network.join(conditions, conditions)).unwrap();
        table.rest(120);
        let Seat { peer, world, .. } = table.seat(0);
        let entity = peer.spawn(world, Puck, (shot(0.0),)).unwrap();
        let net = peer.name_of(world, entity).unwrap();
        table.rest(120);
        Self { table, entity, net, film: Vec::new(), teleport_at: None, _network: network }
    }

    /// Runs so many frames; the puck's pose is a function of the session's time in seconds. What it is between two ticks is
    /// compared with, too: the guest draws between them.
    fn play(&mut self, frames: u32, pose: impl Fn(f64) -> Shot) {
        for _ in 0..frames {
            let (entity, teleport_at) = (self.entity, &mut self.teleport_at);
            self.table.run(|seat, world: &mut World, step| {
                if seat == 0 {
                    let time = step.tick().0 as f64 * TICK;
                    *world.get::<&mut Shot>(entity).unwrap() = pose(time);
                    if teleport_at.is_some_and(|at| time >= at) {
                        step.peer().teleport(world, entity).unwrap();
                        *teleport_at = None;
                    }
                }
            });
            let now = self.table.now;
            let guest = self.table.seat(1);
            let Some(copy) = guest.find(self.net) else { continue };
            let drawn = guest.peer.present::<Shot>(&guest.world, now).unwrap().find(|(e, _)| *e == copy).unwrap().1;
            let time = (guest.peer.session_time().unwrap() + guest.peer.lead().unwrap_or_default()).as_secs_f64();
            let held = guest.world.get::<&Shot>(copy).unwrap().x;
            self.film.push((drawn, pose(time), time, held));
        }
    }

    /// The session's time at the host's last tick, in seconds.
    fn now(&mut self) -> f64 {
        self.table.seat(0).peer.tick().0 as f64 * TICK
    }

    fn off(&self) -> f32 {
        self.film.iter().map(|(drawn, there, ..)| (drawn.x - there.x).abs()).fold(0.0, f32::max)
    }

    /// The largest step from frame to frame.
    fn stride(&self) -> f32 {
        self.film.windows(2).map(|w| (w[1].0.x - w[0].0.x).abs()).fold(0.0, f32::max)
    }
}

/// Frames until what has changed is on its new track: the way, and two times the tenth of a second of easing; and then some.
const SETTLED: u32 = 40;

#[test]
fn what_moves_evenly_is_drawn_where_it_is() {
    for seed in seeds(3) {
        for speed in [0.3, 0.77, 3.0, 6.11, 9.7, 17.3] {
            for (every, loss) in [(1, 0.0), (1, 0.1), (3, 0.0)] {
                let jitter = if loss > 0.0 { Duration::from_millis(10) } else { Duration::ZERO };
                let mut game = Game::new(seed, Conditions { jitter, ..weather(150, loss) }, every);
                let begin = game.now();
                let pose = |t: f64| shot(((t - begin) * speed) as f32);
                game.play(SETTLED + 20, pose);
                game.film.clear();
                game.play(600, pose);
                let what = format!("SEED={seed} at {speed} a second, every {every}, loss {loss}");
                // it is told in steps: what moves less than one per tick, or lacks samples, is known less exactly
                let exact = every == 1 && loss == 0.0 && speed > 0.6;
                let slow = loss > 0.0 && speed < 0.6;
                assert!(
                    game.off()
                        <= if exact {
                            STEP
                        } else if slow {
                            8.0 * STEP
                        } else {
                            2.5 * STEP
                        },
                    "{what}: off by {}",
                    game.off()
                );
                // a clock that is corrected goes up to a twentieth faster
                let faster = if loss > 0.0 { 1.05 } else { 1.0 };
                let stride = (speed * TICK * faster) as f32 + if slow { 3.0 } else { 1.2 } * STEP;
                assert!(game.stride() <= stride, "{what}: a stride of {}", game.stride());
                assert_clean(&mut game.table);
            }
        }
    }
}

#[test]
fn a_change_of_direction_is_no_jump() {
    const SPEED: f32 = 6.0;
    for seed in seeds(5) {
        for loss in [0.0, 0.1] {
            let mut game = Game::new(seed, weather(150, loss), 1);
            let begin = game.now();
            // there and back, a second each way
            let pose = |t: f64| {
                let phase = (t - begin).rem_euclid(2.0);
                shot((if phase < 1.0 { phase } else { 2.0 - phase }) as f32 * SPEED)
            };
            game.play(SETTLED, pose);
            game.film.clear();
            game.play(900, pose);
            let what = format!("SEED={seed} loss {loss}");
            let stride = SPEED * TICK as f32 * 7.0;
            assert!(game.stride() <= stride, "{what}: a stride of {}", game.stride());
            // it goes on for as long as the news take, and then some
            let (least, most) = game.film.iter().fold((0.0f32, 0.0f32), |(l, m), f| (l.min(f.0.x), m.max(f.0.x)));
            let further = SPEED * if loss > 0.0 { 0.25 } else { 0.2 };
            assert!(most <= SPEED + further && least >= -further, "{what}: from {least} to {most}");
            // and is on its new track two times the easing after the first sample of it
            let on_track = |t: f64| (t - begin).rem_euclid(1.0) > 0.15 + 0.2 + 4.0 * TICK;
            let off = game.film.iter().filter(|f| on_track(f.2)).map(|f| (f.0.x - f.1.x).abs()).fold(0.0, f32::max);
            assert!(loss > 0.0 || off <= 2.0 * STEP, "{what}: off by {off}");
        }
    }
}

#[test]
fn what_rests_stays_put() {
    for seed in seeds(5) {
        for loss in [0.0, 0.1] {
            let mut game = Game::new(seed, weather(150, loss), 1);
            let begin = game.now();
            // a second of motion, two of rest
            let pose = |t: f64| {
                let (round, phase) = (((t - begin) / 3.0).floor(), (t - begin).rem_euclid(3.0));
                shot((round + phase.min(1.0)) as f32 * 6.0)
            };
            game.play(1800, pose);
            let what = format!("SEED={seed} loss {loss}");
            let rests = |t: f64| (t - begin).rem_euclid(3.0) > 1.0 + if loss > 0.0 { 1.0 } else { 0.15 + 0.1 + 4.0 * TICK };
            // its last steps may be lost, and come in over a tenth of a second when they are repaired
            let near = if loss > 0.0 { 2.5 * 6.0 * TICK as f32 } else { 0.1 * STEP };
            let moves = game.film.iter().filter(|f| rests(f.2) && (f.0.x - f.3).abs() > near).count();
            assert_eq!(moves, 0, "{what}: frames in which it is not where it rests");
            let off = game.film.iter().filter(|f| rests(f.2) && (f.0.x - f.1.x).abs() > STEP).count();
            assert!(off <= if loss > 0.0 { 60 } else { 0 }, "{what}: off in {off} frames");
            let pairs = game.film.windows(2).filter(|w| rests(w[0].2) && rests(w[1].2));
            let trembles = pairs.filter(|w| (w[0].0.x - w[1].0.x).abs() > 0.1 * STEP).count();
            assert!(trembles <= if loss > 0.0 { 30 } else { 0 }, "{what}: it moves in {trembles} frames");
            let back = game.film.windows(2).map(|w| w[0].0.x - w[1].0.x).fold(0.0, f32::max);
            assert!(back <= 6.0 * TICK as f32 * 7.0, "{what}: taken back by {back} in a frame");
        }
    }
}

#[test]
fn a_teleport_jumps_once() {
    for seed in seeds(5) {
        for loss in [0.0, 0.1] {
            let mut game = Game::new(seed, weather(150, loss), 1);
            let begin = game.now();
            let jump_at = begin + 2.0;
            let pose = move |t: f64| shot(((t - begin) * 3.0) as f32 + if t >= jump_at { 200.0 } else { 0.0 });
            game.teleport_at = Some(jump_at);
            game.play(SETTLED, pose);
            game.film.clear();
            game.play(300, pose);
            let what = format!("SEED={seed} loss {loss}");
            let jumps = game.film.windows(2).filter(|w| w[1].0.x - w[0].0.x > 100.0).count();
            assert_eq!(jumps, 1, "{what}");
            let between = game.film.iter().find(|f| (10.0..199.0).contains(&f.0.x));
            assert_eq!(between, None, "{what}");
            let slides = game.film.windows(2).map(|w| (w[1].0.x - w[0].0.x).abs()).filter(|d| *d < 100.0);
            let stride = slides.fold(0.0, f32::max);
            // where it has come to is known before how it moves there
            assert!(stride <= 3.0 * TICK as f32 * 7.0, "{what}: a stride of {stride}");
            let last = game.film.last().unwrap();
            assert!((last.0.x - last.1.x).abs() <= 2.0 * STEP, "{what}: {last:?}");
        }
    }
}

/// Angles and rotations go on the short way round; what is not blended is as it came last.
#[test]
fn turns_go_on_and_flags_are_the_newest() {
    for seed in seeds(3) {
        let mut game = Game::new(seed, weather(150, 0.05), 1);
        let begin = game.now();
        let turned = move |t: f64| (t - begin) * 4.0;
        let pose = move |t: f64| Shot {
            x: ((t - begin) * 3.0) as f32,
            heading: (turned(t).sin().atan2(turned(t).cos())) as f32,
            turn: [0.0, 0.0, (turned(t) / 2.0).sin() as f32, (turned(t) / 2.0).cos() as f32],
            burning: (t - begin).rem_euclid(1.0) > 0.5,
        };
        game.play(SETTLED, pose);
        game.film.clear();
        game.play(600, pose);
        for (drawn, there, t, _) in &game.film {
            let off = (drawn.heading - there.heading).rem_euclid(std::f32::consts::TAU);
            let off = off.min(std::f32::consts::TAU - off);
            assert!(off < 0.02, "SEED={seed}: {} instead of {}", drawn.heading, there.heading);
            let dot: f32 = drawn.turn.iter().zip(&there.turn).map(|(a, b)| a * b).sum();
            assert!(dot.abs() > 0.999, "SEED={seed}: {:?} instead of {:?}", drawn.turn, there.turn);
            // the way, a frame, and what may be lost
            let phase = (t - begin).rem_euclid(0.5);
            assert!(phase < 0.3 || drawn.burning == there.burning, "SEED={seed}: {drawn:?} at {t}");
        }
    }
}

/// A guest whose ticks run ahead draws at their time, and that is what the host says that it saw.
#[test]
fn who_is_ahead_draws_what_will_be() {
    for seed in seeds(3) {
        let mut game = Game::of(seed, weather(40, 0.0), 1, true);
        let begin = game.now();
        let pose = |t: f64| shot(((t - begin) * 6.0) as f32);
        game.play(SETTLED, pose);
        game.film.clear();
        game.play(300, pose);
        assert!(game.table.seat(1).peer.lead().unwrap() > Duration::from_millis(40), "SEED={seed}");
        assert!(game.off() <= 1.5 * STEP, "SEED={seed}: off by {}", game.off());
        let entity = game.entity;
        let Seat { peer, world, .. } = game.table.seat(0);
        let seen = peer.seen_by(tidelock::PeerId(1)).unwrap();
        assert!(seen.ticks_behind() > 2.0, "SEED={seed}: what is interpolated it sees later: {seen:?}");
        let past = peer.at_time_of::<Shot>(world, entity, seen).unwrap().unwrap();
        assert_eq!(past.x, world.get::<&Shot>(entity).unwrap().x, "SEED={seed}: but not this");
    }
}

/// When nothing comes any more it goes on for a quarter of a second, and stands.
#[test]
fn silence_is_not_motion() {
    for seed in seeds(3) {
        let mut game = Game::new(seed, weather(150, 0.0), 1);
        let begin = game.now();
        let pose = |t: f64| shot(((t - begin) * 6.0) as f32);
        game.play(SETTLED, pose);
        game.table.stall(0, Duration::from_secs(2));
        game.film.clear();
        game.play(100, pose);
        let (last, held) = game.film.last().map(|f| (f.0.x, f.3)).unwrap();
        assert!((last - held - 6.0 * 0.25).abs() <= 2.0 * STEP, "SEED={seed}: at {last}, and the last that came was {held}");
        let moves = game.film[60..].windows(2).filter(|w| w[0].0.x != w[1].0.x).count();
        assert_eq!(moves, 0, "SEED={seed}");
        game.play(300, pose);
        let stride = game.stride();
        assert!(stride <= 4.0, "SEED={seed}: a stride of {stride}: the two seconds come in at once");
        let end = game.film.last().unwrap();
        assert!((end.0.x - end.1.x).abs() <= 2.0 * STEP, "SEED={seed}: {end:?}");
    }
}

/// A guest's own is drawn as it is in its world; the host draws it where it is by now, though it hears of it later.
#[test]
fn a_guests_own_is_reckoned_by_the_host() {
    for seed in seeds(3) {
        let mut game = Game::new(seed, weather(150, 0.0), 1);
        let Seat { peer, world, .. } = game.table.seat(1);
        let kart = peer.spawn(world, Kart, (shot(0.0),)).unwrap();
        let net = peer.name_of(world, kart).unwrap();
        let mut off = 0.0f32;
        let begin = game.now();
        for frame in 0..300 {
            game.table.run(|seat, world, step| {
                if seat == 1 {
                    world.get::<&mut Shot>(kart).unwrap().x = ((step.tick().0 as f64 * TICK - begin) * 6.0) as f32;
                }
            });
            let now = game.table.now;
            let guest = game.table.seat(1);
            let own = guest.peer.present::<Shot>(&guest.world, now).unwrap().find(|(e, _)| *e == kart).unwrap().1;
            assert_eq!(own, *guest.world.get::<&Shot>(kart).unwrap(), "SEED={seed}");
            let host = game.table.seat(0);
            let Some(copy) = host.find(net).filter(|_| frame > 100) else { continue };
            let drawn = host.peer.present::<Shot>(&host.world, now).unwrap().find(|(e, _)| *e == copy).unwrap().1;
            let there = (host.peer.session_time().unwrap().as_secs_f64() - begin) * 6.0;
            off = off.max((drawn.x - there as f32).abs());
        }
        assert!(off <= 2.0 * STEP, "SEED={seed}: off by {off}");
    }
}
