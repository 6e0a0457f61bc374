//! What a peer steers in a lockstep world is drawn ahead of it, and the lockstep world never learns of it; and what was foreseen
//! wrongly, there and in rollback, is drawn as a slide.

mod common;

use common::{config, weather};
use hecs::{Entity, World};
use std::collections::BTreeMap;
use tidelock::policy::{Lockstep, Rollback, Timeline};
use tidelock::testing::Table;
use tidelock::{Checkpoint, Config, Interpolate, Replicate, Schema, Step};
use tidelock_loopback::Network;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Interpolate, Checkpoint)]
struct Place {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    x: f32,
}
#[derive(Clone, Copy, Default)]
struct Unit;

/// All go where the first guest's stick says.
fn simulate(world: &mut World, step: &mut Step<'_>) {
    if step.timeline() == Timeline::Lockstep {
        let inputs: Vec<f32> =
            step.seats().filter_map(|(p, _)| (p.0 == 1).then(|| step.input::<Stick>(p).ok())?).map(|i| i.value.x).collect();
        let push: f32 = inputs.iter().sum();
        step.query::<&mut Place>(world).iter().for_each(|p| p.x += push * 0.1);
    }
}

/// The lockstep world after each of a guest's steps, and what was drawn in each frame, with the last step that was drawn.
fn play(steers: bool) -> (BTreeMap<u64, u32>, Vec<(u64, f32)>) {
    let schema = Schema::builder("steered")
        .component::<Place>("place", |c| c.interpolate().checkpoint())
        .kind::<Unit>("unit", Lockstep::sealed())
        .input::<Stick>("stick")
        .build()
        .unwrap();
    let network = Network::new(8);
    let mut table = Table::new(8, &schema, config(), network.host()).unwrap();
    let host = table.seat(0);
    host.peer.spawn(&mut host.world, Unit, (Place::default(),)).unwrap();
    table.join(config(), network.join(weather(100, 0.05), weather(100, 0.05))).unwrap();
    let (mut seen, mut drawn) = (BTreeMap::new(), Vec::new());
    for frame in 0..600u32 {
        let seat = table.seat(1);
        let stick = Stick { x: if frame >= 300 && frame / 40 % 2 == 0 { 1.0 } else { 0.0 } };
        seat.peer.set_input(&stick).unwrap();
        let mut newest = 0;
        table.run(|seat, world, step| {
            simulate(world, step);
            if seat == 1 && step.timeline() == Timeline::Lockstep {
                newest = step.tick().0;
                if !step.preview() {
                    let x = world.query::<&Place>().iter().map(|p| p.x.to_bits()).next().unwrap();
                    assert_eq!(seen.insert(step.tick().0, x), None);
                }
            }
        });
        let now = table.now;
        let seat = table.seat(1);
        let unit = seat.world.query::<Entity>().with::<&Unit>().iter().next();
        if let Some(unit) = unit {
            if frame == 200 && steers {
                seat.peer.steer(&mut seat.world, unit, true).unwrap();
            }
            let x = seat.peer.present::<Place>(&seat.world, now).unwrap().next().unwrap().1.x;
            if frame >= 260 {
                drawn.push((newest, x));
            }
        }
    }
    assert!(table.seat(1).news.iter().all(|n| !matches!(n, tidelock::News::Stray { .. } | tidelock::News::Forked { .. })));
    (seen, drawn)
}

#[test]
fn it_answers_at_once_and_is_where_the_frames_will_have_it() {
    let ((with, drawn), (without, late)) = (play(true), play(false));
    assert_eq!(with, without, "the lockstep world is as it would be without");
    let begins = |drawn: &[(u64, f32)]| drawn.iter().position(|d| d.1 > 0.0).unwrap();
    // the stick goes to the front with frame 320, the 60th that is drawn
    assert!(begins(&drawn) <= 61, "drawn in frame {}", begins(&drawn));
    assert!(begins(&late) >= 66, "without: {}", begins(&late));
    let mut compared = 0;
    for (tick, x) in drawn {
        if let Some(confirmed) = with.get(&tick) {
            let off = (f32::from_bits(*confirmed) - x).abs();
            assert!(off < 0.001, "step {tick}: drawn {x}, {off} off");
            compared += 1;
        }
    }
    assert!(compared > 200, "{compared}");
}

/// How far a unit moves in a step under a full stick.
const STRIDE: f32 = 0.1;

/// Goes where the sticks of everybody say together.
fn push(world: &mut World, step: &mut Step<'_>) {
    let all: Vec<_> = match step.timeline() {
        Timeline::Session => return,
        _ => step.seats().map(|(peer, _)| peer).collect(),
    };
    let push: f32 = all.into_iter().filter_map(|peer| step.input::<Stick>(peer).ok()).map(|input| input.value.x).sum();
    step.query::<&mut Place>(world).iter().for_each(|place| place.x += push * STRIDE);
}

/// The largest steps from one frame to the next.
#[derive(Clone, Copy, Debug, Default)]
struct Jumps {
    /// Of what is drawn.
    drawn: f32,
    /// Of how far ahead what is drawn is of the world, or of the world itself.
    told: f32,
}

/// Where everything is at one peer in each frame: drawn, and in the world.
#[derive(Default)]
struct Path {
    drawn: Vec<f32>,
    world: Vec<f32>,
}

impl Path {
    fn note(&mut self, table: &mut Table, at: usize) {
        let now = table.now;
        let seat = table.seat(at);
        let drawn = seat.peer.present::<Place>(&seat.world, now).unwrap().next().map(|(_, place)| place.x);
        let there = seat.world.query::<&Place>().iter().map(|place| place.x).next();
        self.drawn.extend(drawn);
        self.world.extend(there);
    }

    fn jumps(&self, frames: std::ops::Range<usize>) -> Jumps {
        let most = |path: &[f32]| path.windows(2).map(|w| (w[1] - w[0]).abs()).fold(0.0, f32::max);
        Jumps { drawn: most(&self.drawn[frames.clone()]), told: most(&self.world[frames]) }
    }
}

fn pushed(schema: Schema, latency: u64) -> Table {
    let network = Network::new(9);
    let config = Config { bandwidth: 8_000_000, ..config() };
    let mut table = Table::new(9, &schema, config.clone(), network.host()).unwrap();
    let host = table.seat(0);
    host.peer.spawn(&mut host.world, Unit, (Place::default(),)).unwrap();
    table.join(config, network.join(weather(latency, 0.0), weather(latency, 0.0))).unwrap();
    table.rest(240);
    assert!(table.seat(1).peer.is_in_session());
    table
}

/// One frame in which the two sticks are so.
fn frame(table: &mut Table, sticks: [f32; 2]) {
    for (seat, x) in sticks.into_iter().enumerate() {
        table.seat(seat).peer.set_input(&Stick { x }).unwrap();
    }
    table.run(|_, world, step| push(world, step));
}

/// The guest draws its unit ahead, with the host's stick as it was last; the host's frames have it otherwise.
#[test]
fn what_a_frame_has_otherwise_is_drawn_as_a_slide() {
    let schema = Schema::builder("ahead").component::<Place>("place", |c| c.interpolate().checkpoint());
    let schema = schema.kind::<Unit>("unit", Lockstep::sealed()).input::<Stick>("stick").build().unwrap();
    let mut table = pushed(schema, 100);
    let guest = table.seat(1);
    let unit = guest.world.query::<Entity>().with::<&Unit>().iter().next().unwrap();
    guest.peer.steer(&mut guest.world, unit, true).unwrap();
    let mut path = Path::default();
    for number in 0..240 {
        // unforeseen, at 60 and at 150
        frame(&mut table, [if (60..150).contains(&number) { 1.0 } else { 0.0 }, 0.0]);
        path.note(&mut table, 1);
    }
    let ahead = |number: usize| path.drawn[number] - path.world[number];
    // in the middle it is drawn as far ahead as its steps are
    let steps = ahead(120) / STRIDE;
    assert!((6.0..30.0).contains(&steps), "{steps} steps ahead");
    // when the first frame came that has it otherwise, all of them were to be drawn otherwise at once
    let jumps = path.jumps(55..200);
    assert!(jumps.drawn < 0.5 * ahead(120), "drawn in jumps of {}, where {} steps came out otherwise", jumps.drawn, steps);
    assert!(jumps.drawn > STRIDE, "nothing came out otherwise: {jumps:?}");
    // after the slide it is where it will be
    let end = path.world.len() - 1;
    assert!((path.drawn[end] - path.world[end]).abs() < 0.02, "{} and {}", path.drawn[end], path.world[end]);
    assert!((path.world[end] - 90.0 * STRIDE).abs() < 0.02, "90 frames of the host's stick: {}", path.world[end]);
}

/// The host's stick moves, and a guest hears of it only later: it goes back and runs the steps since again. A guest's own input
/// is there in time, because its ticks run ahead, so that the host goes back for nothing.
#[test]
fn what_rollback_takes_back_is_drawn_as_a_slide() {
    let schema = Schema::builder("back").component::<Place>("place", |c| c.interpolate().checkpoint());
    let schema = schema.kind::<Unit>("unit", Rollback).input::<Stick>("stick").build().unwrap();
    let mut table = pushed(schema, 100);
    let mut paths = [Path::default(), Path::default()];
    for number in 0..240 {
        let on = |begin: usize| if (begin..begin + 60).contains(&number) { 1.0 } else { 0.0 };
        frame(&mut table, [on(60), on(90)]);
        (0..2).for_each(|at| paths[at].note(&mut table, at));
    }
    for (at, path) in paths.iter().enumerate() {
        let jumps = path.jumps(55..200);
        if at == 0 {
            assert!(jumps.told < 2.1 * STRIDE && jumps.drawn < 2.1 * STRIDE, "at the host: {jumps:?}");
        } else {
            assert!(jumps.told > 5.0 * STRIDE, "nothing was taken back: {jumps:?}");
            assert!(jumps.drawn < 0.5 * jumps.told, "drawn in jumps: {jumps:?}");
        }
        let end = path.world.len() - 1;
        assert!((path.drawn[end] - path.world[end]).abs() < 0.02, "seat {at}: {} and {}", path.drawn[end], path.world[end]);
        assert!((path.world[end] - 120.0 * STRIDE).abs() < 0.02, "seat {at}: {}", path.world[end]);
    }
}
