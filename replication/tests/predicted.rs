//! `Host::predicted()`: what an owner does is seen by it at once, the host decides, and a prediction that did not come true is taken
//! back to the tick in which it went wrong.

mod common;

use common::{config, weather};
use hecs::{Entity, World};
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::netcore::tick::Tick;
use tidelock::policy::Host;
use tidelock::testing::Table;
use tidelock::{Cause, Checkpoint, Config, Interpolate, NetId, News, PeerId, Press, Replicate, Schema, Step};
use tidelock_loopback::{Conditions, Network};

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Interpolate, Checkpoint)]
struct Place {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    y: f32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
struct Speed {
    #[net(step = 0.01, range = -50.0..=50.0)]
    x: f32,
    #[net(step = 0.01, range = -50.0..=50.0)]
    y: f32,
}

/// Ticks that a shot still lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
struct Fuse(u16);

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    x: f32,
    #[net(step = 0.01, range = -1.0..=1.0)]
    y: f32,
    fire: Press,
}

#[derive(Clone, Copy, Default)]
struct Runner;
#[derive(Clone, Copy, Default)]
struct Shot;

fn schema() -> Schema {
    Schema::builder("predicted")
        .component::<Place>("place", |c| c.interpolate().checkpoint())
        .component::<Speed>("speed", |c| c.checkpoint())
        .component::<Fuse>("fuse", |c| c.checkpoint())
        .kind::<Runner>("runner", Host::predicted())
        .kind::<Shot>("shot", Host::predicted())
        .input::<Stick>("stick")
        .build()
        .unwrap()
}

/// What a scene does beside the common rules.
#[derive(Clone, Copy, Default)]
struct Rules {
    /// The host refuses shots of ticks that this divides.
    refuses: Option<u64>,
    /// Shots live so long.
    fuse: u16,
}

/// The game's rules, the same for host and guests.
fn simulate(rules: Rules, seat: usize, world: &mut World, step: &mut Step<'_>) -> Vec<(NetId, u64)> {
    let dt = step.seconds();
    let mut bodies: Vec<(NetId, Entity)> = Vec::new();
    for (entity, networked) in step.query::<(Entity, &tidelock::Networked)>(world).with::<&Runner>().iter() {
        bodies.push((networked.id(), entity));
    }
    bodies.sort_unstable();
    let mut shots = Vec::new();
    for (_, entity) in bodies {
        let Some(owner) = step.owner(world, entity).filter(|o| *o != PeerId::HOST) else { continue };
        let Ok(input) = step.input::<Stick>(owner) else { continue };
        {
            let (place, speed) = world.query_one_mut::<(&mut Place, &mut Speed)>(entity).unwrap();
            // an awkward function of floats, as games have them
            let turn = (place.x * 0.1).sin() * 0.2;
            speed.x = (speed.x + (input.value.x + turn) * dt * 30.0) * 0.98;
            speed.y = (speed.y + input.value.y * dt * 30.0) * 0.98;
            place.x = (place.x + speed.x * dt).clamp(-490.0, 490.0);
            place.y = (place.y + speed.y * dt).clamp(-490.0, 490.0);
        }
        let place = *world.get::<&Place>(entity).unwrap();
        for _ in 0..input.pressed(|i| i.fire) {
            if seat == 0 && rules.refuses.is_some_and(|n| step.tick().0.is_multiple_of(n)) {
                continue;
            }
            let parts = (place, Speed { x: 20.0, y: 0.0 }, Fuse(rules.fuse));
            step.spawn_for(world, owner, 0, Shot, parts).unwrap();
        }
    }
    let flying: Vec<Entity> = step.query::<Entity>(world).with::<&Shot>().iter().collect();
    for entity in flying {
        let (place, speed, fuse) = world.query_one_mut::<(&mut Place, &Speed, &mut Fuse)>(entity).unwrap();
        place.x = (place.x + speed.x * dt).min(490.0);
        fuse.0 = fuse.0.saturating_sub(1);
        let over = fuse.0 == 0;
        let net = step.peer().name_of(world, entity).unwrap();
        if step.once(net.0) {
            shots.push((net, step.tick().0));
        }
        if over {
            step.despawn(world, entity).unwrap();
        }
    }
    shots
}

struct Scene {
    table: Table,
    network: Network,
    rules: Rules,
    sticks: Vec<Stick>,
    /// Effects of shots, by seat.
    heard: Vec<BTreeMap<NetId, u32>>,
}

impl Scene {
    fn new(seed: u64, guests: usize, weather: Conditions, rules: Rules) -> Self {
        Self::with(seed, guests, weather, rules, &config())
    }

    fn with(seed: u64, guests: usize, weather: Conditions, rules: Rules, config: &Config) -> Self {
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(), config.clone(), network.host()).unwrap();
        for _ in 0..guests {
            table.join(config.clone(), network.join(weather, weather)).unwrap();
        }
        let mut scene =
            Self { table, network, rules, sticks: vec![Stick::default(); guests + 1], heard: vec![BTreeMap::new(); guests + 1] };
        scene.run(120);
        for seat in 1..=guests {
            let local = scene.table.seat(seat).peer.local();
            let host = scene.table.seat(0);
            let at = Place { x: 10.0 * seat as f32, y: 0.0 };
            let body = host.peer.spawn(&mut host.world, Runner, (at, Speed::default())).unwrap();
            host.peer.grant(&mut host.world, body, 0, local).unwrap();
        }
        scene.run(120);
        scene
    }

    fn run(&mut self, frames: u32) {
        for _ in 0..frames {
            self.frame();
        }
    }

    fn frame(&mut self) {
        let rules = self.rules;
        for (seat, stick) in self.sticks.iter().enumerate().skip(1) {
            if let Some(seat) = &mut self.table.seats[seat] {
                seat.peer.set_input(stick).unwrap();
            }
        }
        let heard = &mut self.heard;
        self.table.run(|seat, world, step| {
            for (net, _) in simulate(rules, seat, world, step) {
                *heard[seat].entry(net).or_default() += 1;
            }
        });
    }

    fn body(&mut self, seat: usize) -> Entity {
        let seat = self.table.seat(seat);
        let bodies = seat.world.query::<Entity>().with::<&Runner>().iter().collect::<Vec<_>>();
        let own: Vec<_> = bodies.into_iter().filter(|e| seat.peer.is_owner(&seat.world, *e)).collect();
        assert_eq!(own.len(), 1);
        own[0]
    }

    fn place(&mut self, seat: usize) -> Place {
        let body = self.body(seat);
        *self.table.seat(seat).world.get::<&Place>(body).unwrap()
    }

    fn corrections(&mut self, seat: usize) -> Vec<String> {
        self.table.seat(seat).peer.corrections().map(ToString::to_string).collect()
    }

    fn settle(&mut self) {
        self.sticks.iter_mut().for_each(|s| (s.x, s.y) = (0.0, 0.0));
        let seed = self.table.seed;
        for _ in 0..2000 {
            self.frame();
            if self.table.all_equal().is_ok() && self.resting() {
                return;
            }
        }
        panic!("SEED={seed}: not equal: {:?}", self.table.differences(1));
    }

    /// Is everything that a guest predicts where the host has it?
    fn resting(&mut self) -> bool {
        let guests = self.table.seats.len();
        (1..guests).all(|seat| {
            let body = self.body(seat);
            let own = self.table.seat(seat);
            let net = own.peer.name_of(&own.world, body).unwrap();
            let here = *self.table.seat(seat).world.get::<&Place>(body).unwrap();
            let host = self.table.seat(0);
            let there = host.find(net).map(|e| *host.world.get::<&Place>(e).unwrap());
            there == Some(here)
        })
    }
}

fn steer(scene: &mut Scene, chance: &mut common::Rng, seat: usize) {
    if chance.chance(10) {
        scene.sticks[seat].x = chance.below(201) as f32 / 100.0 - 1.0;
        scene.sticks[seat].y = chance.below(201) as f32 / 100.0 - 1.0;
    }
}

/// With inputs repeated in every packet, a float simulation and nobody else who touches it, there is nothing to correct: in ten
/// minutes at 200 ms and with 5 % loss.
#[test]
fn a_steady_link_needs_no_corrections() {
    let seed = 71;
    let mut scene = Scene::new(seed, 1, weather(100, 0.05), Rules::default());
    let mut chance = common::Rng::new(seed);
    scene.run(300);
    let (before, start) = (scene.table.seat(1).peer.correction_count(), scene.place(1));
    let mut far = 0.0f32;
    for _ in 0..36_000 {
        steer(&mut scene, &mut chance, 1);
        scene.frame();
        far = far.max((scene.place(1).x - start.x).abs());
    }
    assert!(far > 20.0, "SEED={seed}: it went {far} units at most");
    let corrections = scene.corrections(1);
    assert_eq!(scene.table.seat(1).peer.correction_count(), before, "SEED={seed}: {corrections:#?}");
    scene.settle();
}

/// What the owner sees follows its stick at once, not after a round trip.
#[test]
fn the_owner_sees_at_once_what_it_does() {
    let mut scene = Scene::new(5, 1, weather(100, 0.0), Rules::default());
    scene.run(120);
    let start = scene.place(1);
    scene.sticks[1].x = 1.0;
    scene.run(3);
    let moved = scene.place(1).x - start.x;
    assert!(moved > 0.005, "after three frames it has moved by {moved}");
}

/// A hundredth of a unit a second, far below the step of the wire at 60 ticks a second.
#[test]
fn slow_motion_does_not_freeze() {
    #[derive(Clone, Copy, Default)]
    struct Crawler;
    let schema = Schema::builder("slow")
        .component::<Place>("place", |c| c.interpolate().checkpoint())
        .kind::<Crawler>("crawler", Host::predicted())
        .input::<Stick>("stick")
        .build()
        .unwrap();
    let network = Network::new(9);
    let mut table = Table::new(9, &schema, config(), network.host()).unwrap();
    table.join(config(), network.join(weather(50, 0.0), weather(50, 0.0))).unwrap();
    table.join(config(), network.join(weather(50, 0.0), weather(50, 0.0))).unwrap();
    table.rest(100);
    let local = table.seat(1).peer.local();
    let host = table.seat(0);
    let body = host.peer.spawn(&mut host.world, Crawler, (Place::default(),)).unwrap();
    host.peer.grant(&mut host.world, body, 0, local).unwrap();
    let net = host.peer.name_of(&host.world, body).unwrap();
    let creep = |_: usize, world: &mut World, step: &mut Step<'_>| {
        let way = 0.01 * step.seconds();
        step.query::<&mut Place>(world).iter().for_each(|p| p.x += way);
    };
    (0..200).for_each(|_| table.run(creep));
    let x_of = |table: &mut Table, i: usize| {
        let seat = table.seat(i);
        seat.world.get::<&Place>(seat.find(net).unwrap()).unwrap().x
    };
    let start: Vec<f32> = (0..3).map(|i| x_of(&mut table, i)).collect();
    let before = table.seat(1).peer.correction_count();
    (0..6000).for_each(|_| table.run(creep));
    for (i, start) in start.iter().enumerate() {
        let x = x_of(&mut table, i);
        // two thirds of a step of the grid in a tick, which is rounded to one
        assert!((0.9..1.6).contains(&(x - start)), "seat {i} went {} in 100 s", x - start);
    }
    assert_eq!(table.seat(1).peer.correction_count(), before);
}

/// The host pushes the body, which its owner cannot foresee: it goes back to that tick and runs the ticks since again.
#[test]
fn what_others_do_is_corrected_in_its_tick() {
    for seed in 1..=8 {
        let mut scene =
            Scene::new(seed, 2, Conditions { jitter: Duration::from_millis(8), ..weather(80, 0.03) }, Rules::default());
        let mut chance = common::Rng::new(seed);
        scene.run(200);
        let before = scene.table.seat(1).peer.correction_count();
        let mut pushes = 0;
        for frame in 0..1200 {
            (1..=2).for_each(|seat| steer(&mut scene, &mut chance, seat));
            if frame % 100 == 50 {
                let local = scene.table.seat(1).peer.local();
                let host = scene.table.seat(0);
                for (entity, speed) in host.world.query::<(Entity, &mut Speed)>().with::<&Runner>().iter() {
                    if host.peer.owner(&host.world, entity, 0) == Some(local) {
                        speed.y += 5.0;
                    }
                }
                pushes += 1;
            }
            scene.frame();
        }
        let count = scene.table.seat(1).peer.correction_count() - before;
        let all = scene.corrections(1);
        assert!(count >= pushes && count <= pushes * 3, "SEED={seed}: {count} corrections of {pushes} pushes: {all:#?}");
        let pushed = scene.table.seat(1).peer.corrections().filter(|c| c.component == "speed" && c.field == "y").count();
        assert!(pushed as u64 >= pushes / 2, "SEED={seed}: {all:#?}");
        let deep = scene.table.seat(1).peer.corrections().filter(|c| !c.snapped && c.depth > 5).count();
        assert!(deep as u64 >= pushes / 2, "SEED={seed}: {all:#?}");
        scene.settle();
    }
}

/// A correction is right at once in the world, and drawn sliding.
#[test]
fn a_correction_is_drawn_as_a_slide() {
    let mut scene = Scene::new(3, 1, weather(80, 0.0), Rules::default());
    scene.run(200);
    let mut last: Option<Place> = None;
    let (mut most_drawn, mut most_true) = (0.0f32, 0.0f32);
    let mut last_true = scene.place(1);
    for frame in 0..240 {
        if frame == 60 {
            let host = scene.table.seat(0);
            host.world.query::<&mut Place>().with::<&Runner>().iter().for_each(|p| p.x += 3.0);
        }
        scene.frame();
        let body = scene.body(1);
        let now = scene.table.now;
        let seat = scene.table.seat(1);
        let drawn = seat.peer.present::<Place>(&seat.world, now).unwrap().find(|d| d.0 == body).unwrap().1;
        let place = *seat.world.get::<&Place>(body).unwrap();
        most_true = most_true.max((place.x - last_true.x).abs());
        last_true = place;
        if let Some(last) = last {
            most_drawn = most_drawn.max((drawn.x - last.x).abs());
        }
        last = Some(drawn);
    }
    assert!(most_true > 2.9, "the world jumps: {most_true}");
    assert!(most_drawn < 0.6, "what is drawn does not: {most_drawn} in one frame");
    let (drawn, place) = (last.unwrap(), scene.place(1));
    assert!((drawn.x - place.x).abs() < 1e-3, "and it arrives: {drawn:?}, {place:?}");
}

/// The host runs ticks without the guest's inputs when those are held up: that is said as the cause.
#[test]
fn late_inputs_are_named_as_the_cause() {
    let mut scene = Scene::new(11, 1, weather(40, 0.0), Rules::default());
    scene.run(300);
    let before = scene.table.seat(1).peer.correction_count();
    let link = scene.network.links()[0];
    for _ in 0..4 {
        scene.sticks[1].x = if scene.sticks[1].x > 0.0 { -1.0 } else { 1.0 };
        scene.network.set_conditions(link, tidelock_loopback::Direction::Up, weather(120, 0.0));
        scene.run(20);
        scene.network.set_conditions(link, tidelock_loopback::Direction::Up, weather(40, 0.0));
        scene.run(120);
    }
    assert!(scene.table.seat(1).peer.correction_count() > before);
    let late = scene.table.seat(1).peer.corrections().filter(|c| c.cause == Cause::LateInput).count();
    let all = scene.corrections(1);
    assert!(late >= 3, "{all:#?}");
    scene.settle();
}

fn shots_of(scene: &mut Scene, seat: usize) -> BTreeMap<NetId, Place> {
    let seat = scene.table.seat(seat);
    let all = seat.world.query::<(Entity, &Place)>().with::<&Shot>().iter().map(|(e, p)| (e, *p)).collect::<Vec<_>>();
    all.into_iter().filter_map(|(e, p)| Some((seat.peer.name_of(&seat.world, e)?, p))).collect()
}

/// A shot is there in the tick in which it was fired, under the name that the host gives it; there is one of each, its effect is
/// heard once, and none of it needs a correction.
#[test]
fn predicted_shots_are_confirmed_under_their_names() {
    for seed in 1..=6 {
        let rules = Rules { refuses: None, fuse: 90 };
        let mut scene = Scene::new(seed, 2, weather(60, 0.05), rules);
        scene.run(300);
        let before = scene.table.seat(1).peer.correction_count();
        let mut fired = 0;
        for round in 0..20 {
            for _ in 0..1 + round % 3 {
                scene.sticks[1].fire.press();
                fired += 1;
            }
            scene.run(2);
            assert_eq!(scene.heard[1].len(), fired, "SEED={seed}: not there at once");
            scene.run(8 + round as u32);
            scene.sticks[1].x = 0.5;
        }
        let (host, guest) = (shots_of(&mut scene, 0), shots_of(&mut scene, 1));
        assert!(!host.is_empty() && host.keys().all(|net| guest.contains_key(net)), "SEED={seed}: {host:?} {guest:?}");
        scene.run(300);
        assert!(shots_of(&mut scene, 1).is_empty() && shots_of(&mut scene, 0).is_empty(), "SEED={seed}: all have burnt out");
        let (on_host, at_owner) = (&scene.heard[0], &scene.heard[1]);
        assert_eq!(on_host.len(), fired, "SEED={seed}");
        assert_eq!(on_host, at_owner, "SEED={seed}: each heard once, by the same names");
        let corrections = scene.corrections(1);
        assert_eq!(scene.table.seat(1).peer.correction_count(), before, "SEED={seed}: {corrections:#?}");
        scene.settle();
    }
}

/// The host refuses some shots: they go again within a round trip or so, and nothing else is touched.
#[test]
fn refused_shots_vanish_in_time() {
    for seed in 1..=6 {
        let mut scene = Scene::new(seed, 1, weather(60, 0.0), Rules { refuses: Some(2), fuse: 600 });
        scene.run(200);
        let mut fired = 0;
        for _ in 0..12 {
            scene.sticks[1].fire.press();
            fired += 1;
            scene.run(7);
        }
        // half a round trip there, the tick, half a round trip back, and what the lead and the sends add
        scene.run(30);
        let (host, guest) = (shots_of(&mut scene, 0), shots_of(&mut scene, 1));
        assert_eq!(host.keys().collect::<Vec<_>>(), guest.keys().collect::<Vec<_>>(), "SEED={seed}");
        assert!(host.len() < fired && !host.is_empty(), "SEED={seed}: {} of {fired}", host.len());
        let refused = scene.table.seat(1).peer.corrections().filter(|c| c.cause == Cause::Refused).count();
        assert_eq!(refused, fired - host.len(), "SEED={seed}");
        let gone = scene.table.seat(1).take_news().into_iter().filter(|n| matches!(n, News::Despawned { .. })).count();
        assert_eq!(gone, refused, "SEED={seed}");
    }
}

/// A shot that dies in the owner's world before the host's word of it comes is not brought back by that.
#[test]
fn an_early_death_is_not_undone() {
    let mut scene = Scene::new(4, 1, weather(100, 0.0), Rules { refuses: None, fuse: 3 });
    scene.run(200);
    let before = scene.table.seat(1).peer.correction_count();
    for _ in 0..10 {
        scene.sticks[1].fire.press();
        scene.run(6);
        for _ in 0..40 {
            scene.frame();
            assert!(shots_of(&mut scene, 1).is_empty(), "a dead shot is back");
        }
    }
    assert_eq!(scene.heard[1].len(), 10);
    assert!(scene.heard[1].values().all(|n| *n == 1));
    let all = scene.corrections(1);
    assert_eq!(scene.table.seat(1).peer.correction_count(), before, "{all:#?}");
}

/// A rollback for another entity does not move a shot twice: it is always where its flight began plus its ticks.
#[test]
fn a_rollback_does_not_disturb_what_was_predicted_rightly() {
    let mut scene = Scene::new(8, 1, weather(100, 0.0), Rules { refuses: None, fuse: 600 });
    scene.run(200);
    scene.sticks[1].fire.press();
    scene.run(4);
    let (net, start) = shots_of(&mut scene, 1).into_iter().next().unwrap();
    let began = scene.table.seat(1).peer.tick();
    for frame in 0..120 {
        if frame % 20 == 3 {
            let host = scene.table.seat(0);
            host.world.query::<&mut Speed>().with::<&Runner>().iter().for_each(|s| s.y += 2.0);
        }
        scene.frame();
        let now = scene.table.seat(1).peer.tick();
        let x = shots_of(&mut scene, 1)[&net].x;
        let expected = start.x + 20.0 / 60.0 * Tick::since(now, began) as f32;
        assert!((x - expected).abs() < 0.05, "frame {frame}: at {x}, not at {expected}");
    }
    assert!(scene.table.seat(1).peer.correction_count() >= 5);
}

/// What the host says of a tick that is further back than `Config::rewind` is taken as it is, without running anything again, and is
/// named so; the worlds are equal in the end all the same. Settings beyond the bounds are refused.
#[test]
fn beyond_the_bound_the_host_is_taken_at_its_word() {
    let config = Config { rewind: 3, ..config() };
    let mut scene = Scene::with(6, 1, weather(100, 0.0), Rules::default(), &config);
    scene.run(200);
    for _ in 0..5 {
        let host = scene.table.seat(0);
        host.world.query::<&mut Speed>().with::<&Runner>().iter().for_each(|s| s.y += 5.0);
        scene.run(100);
    }
    let all = scene.corrections(1);
    let snapped = scene.table.seat(1).peer.corrections().filter(|c| c.snapped).count();
    let deep = scene.table.seat(1).peer.corrections().filter(|c| c.depth > 3).count();
    assert!(snapped >= 5 && deep == 0, "{all:#?}");
    scene.settle();
    for rewind in [0, tidelock::netcore::limits::SAVES as u64 + 1] {
        let config = Config { rewind, ..Config::default() };
        assert!(tidelock::Peer::alone(schema(), config).is_err(), "{rewind} ticks");
    }
}
