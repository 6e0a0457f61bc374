//! What a peer steers in a lockstep world is drawn ahead of it, and the lockstep world never learns of it.

mod common;

use common::{config, weather};
use hecs::{Entity, World};
use std::collections::BTreeMap;
use tidelock::policy::{Lockstep, Timeline};
use tidelock::testing::Table;
use tidelock::{Checkpoint, Interpolate, Replicate, Schema, Step};
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
