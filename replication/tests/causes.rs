//! Why a prediction was wrong: what is told of it, and what is not a reason at all.

mod common;

use common::{config, weather};
use hecs::{Entity, World};
use tidelock::policy::{Host, Rollback, Timeline};
use tidelock::testing::Table;
use tidelock::{Cause, Checkpoint, Config, Interpolate, Networked, News, PeerId, Replicate, Schema, Seat, Step};
use tidelock_loopback::Network;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Interpolate, Checkpoint)]
struct Place {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
struct Cap(u8);
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
struct Hat(u8);
/// What a player of the rollback game has come to, and whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
struct Mark {
    sum: u32,
    of: u16,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    /// One of those below, or nothing.
    act: u8,
}
const GO: u8 = 1;
const CAP: u8 = 2;
const HAT: u8 = 3;
const END: u8 = 4;

#[derive(Clone, Copy, Default)]
struct Runner;
#[derive(Clone, Copy, Default)]
struct Player;

fn schema(tolerance: u32) -> Schema {
    Schema::builder("causes")
        .component::<Place>("place", |c| c.interpolate().checkpoint().tolerance(tolerance))
        .component::<Cap>("cap", |c| c.checkpoint())
        .component::<Hat>("hat", |c| c.checkpoint())
        .checkpoint::<Mark>("mark")
        .kind::<Runner>("runner", Host::predicted())
        .kind::<Player>("player", Rollback)
        .input::<Stick>("stick")
        .build()
        .unwrap()
}

/// What is wrong with the game.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// A counter outside of the world has a part in it.
    counts: bool,
    /// The host does not end what its owner ends.
    keeps: bool,
}

fn simulate(faults: Faults, seat: usize, calls: &mut u32, world: &mut World, step: &mut Step<'_>) {
    *calls += 1;
    let extra = if faults.counts { *calls % 5 } else { 0 };
    match step.timeline() {
        Timeline::Session => {
            let all: Vec<Entity> = step.query::<Entity>(world).with::<&Runner>().iter().collect();
            for entity in all {
                let owner = step.owner(world, entity).unwrap_or(PeerId::HOST);
                let Ok(input) = step.input::<Stick>(owner) else { continue };
                match input.value.act {
                    GO => world.get::<&mut Place>(entity).unwrap().x += 0.125 + 0.25 * extra as f32,
                    CAP => drop(world.insert_one(entity, Cap(1))),
                    HAT => drop(world.insert_one(entity, Hat(1))),
                    END if seat != 0 || !faults.keeps => step.despawn(world, entity).unwrap(),
                    _ => {}
                }
            }
        }
        _ => {
            let seats: Vec<(PeerId, Seat)> = step.seats().collect();
            for (peer, _) in seats {
                let own = step.query::<(Entity, &Mark)>(world).iter().find(|(_, m)| m.of == peer.0).map(|(e, _)| e);
                let entity = own.unwrap_or_else(|| step.spawn(world, Player, (Mark { sum: 0, of: peer.0 },)).unwrap());
                let Ok(input) = step.input::<Stick>(peer) else { continue };
                world.get::<&mut Mark>(entity).unwrap().sum += u32::from(input.value.act) + extra;
            }
        }
    }
}

struct Scene {
    table: Table,
    _network: Network,
    faults: Faults,
    calls: Vec<u32>,
    acts: Vec<u8>,
}

impl Scene {
    /// Two guests 60 ms away, each with a body.
    fn new(seed: u64, tolerance: u32, faults: Faults) -> Self {
        let config = Config { check_writes: true, ..config() };
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(tolerance), config.clone(), network.host()).unwrap();
        for _ in 0..2 {
            table.join(config.clone(), network.join(weather(60, 0.0), weather(60, 0.0))).unwrap();
        }
        let mut scene = Self { table, _network: network, faults, calls: vec![0; 3], acts: vec![0; 3] };
        scene.run(120);
        for seat in 1..=2 {
            let local = scene.table.seat(seat).peer.local();
            let host = scene.table.seat(0);
            let body = host.peer.spawn(&mut host.world, Runner, (Place::default(),)).unwrap();
            host.peer.grant(&mut host.world, body, 0, local).unwrap();
        }
        scene.run(120);
        scene
    }

    fn run(&mut self, frames: u32) {
        for _ in 0..frames {
            for (seat, act) in self.acts.iter().enumerate() {
                self.table.seat(seat).peer.set_input(&Stick { act: *act }).unwrap();
            }
            let (faults, calls) = (self.faults, &mut self.calls);
            self.table.run(|seat, world, step| simulate(faults, seat, &mut calls[seat], world, step));
        }
    }

    /// Both move and rest in turn.
    fn play(&mut self, frames: u32) {
        for frame in 0..frames {
            (1..3).for_each(|seat| self.acts[seat] = u8::from((frame / (5 + seat as u32 * 2)).is_multiple_of(2)));
            self.run(1);
        }
    }

    fn body(&mut self, seat: usize) -> Option<Entity> {
        let seat = self.table.seat(seat);
        let all: Vec<Entity> = seat.world.query::<(Entity, &Networked)>().with::<&Runner>().iter().map(|(e, _)| e).collect();
        all.into_iter().find(|e| seat.peer.is_owner(&seat.world, *e))
    }

    /// The host's copy of a guest's body is moved behind everybody's back.
    fn push(&mut self, seat: usize, by: f32) {
        let body = self.body(seat).unwrap();
        let own = self.table.seat(seat);
        let net = own.peer.name_of(&own.world, body).unwrap();
        let host = self.table.seat(0);
        host.world.get::<&mut Place>(host.find(net).unwrap()).unwrap().x += by;
    }
}

#[test]
fn what_the_host_does_is_not_taken_for_state_that_is_not_saved() {
    let mut scene = Scene::new(1, 0, Faults::default());
    for _ in 0..20 {
        scene.play(30);
        scene.push(1, 3.0);
    }
    let peer = &scene.table.seat(1).peer;
    let counts = peer.correction_counts();
    assert!(counts.other >= 15 && counts.input >= 15, "{counts:?}");
    assert_eq!((counts.unsaved, counts.refused, counts.revived), (0, 0, 0), "{counts:?}");
    assert_eq!(counts.total(), peer.correction_count());
    let named = peer.corrections().filter(|c| c.cause == Cause::Other).all(|c| c.component == "place" && c.field == "x");
    assert!(named, "{:?}", peer.corrections().map(ToString::to_string).collect::<Vec<_>>());
}

#[test]
fn state_that_is_not_saved_is_named() {
    let mut scene = Scene::new(2, 0, Faults { counts: true, ..Faults::default() });
    scene.play(300);
    let peer = &scene.table.seat(1).peer;
    assert!(peer.correction_counts().unsaved >= 10, "{:?}", peer.correction_counts());
    {
        let (component, field) = ("place", "x");
        let mut all = peer.corrections().filter(|c| c.cause == Cause::Unsaved);
        let found = all.find(|c| c.component == component && c.field == field);
        let found = found.unwrap_or_else(|| panic!("{component}: {:#?}", peer.corrections().collect::<Vec<_>>()));
        assert!(found.net.0 != 0 && found.tick.0 > 0 && found.values[0] != found.values[1], "{found:?}");
        assert!(found.to_string().contains("not saved"), "{found}");
    }
}

#[test]
fn a_difference_within_the_tolerance_is_none() {
    let step = 1.0 / 4096.0;
    let mut scene = Scene::new(3, 8, Faults::default());
    scene.play(60);
    let count = |scene: &mut Scene| scene.table.seat(1).peer.correction_counts().other;
    let before = count(&mut scene);
    scene.push(1, 5.0 * step);
    scene.play(120);
    assert_eq!(count(&mut scene), before, "five steps of the grid, and eight are none");
    scene.push(1, 5.0 * step);
    scene.play(120);
    assert_eq!(count(&mut scene), before + 1, "ten");
}

#[test]
fn what_the_host_did_not_end_comes_back() {
    let mut scene = Scene::new(4, 0, Faults { keeps: true, ..Faults::default() });
    let body = scene.body(1).unwrap();
    let own = scene.table.seat(1);
    let net = own.peer.name_of(&own.world, body);
    scene.acts[1] = END;
    scene.run(1);
    scene.acts[1] = 0;
    let gone = (0..10).any(|_| {
        scene.run(1);
        scene.table.seat(1).find(net.unwrap()).is_none()
    });
    assert!(gone, "the owner ends it at once");
    scene.run(120);
    let seat = scene.table.seat(1);
    let counts = seat.peer.correction_counts();
    assert_eq!((counts.revived, counts.refused), (1, 0), "{counts:?}");
    let told = seat.peer.corrections().find(|c| c.cause == Cause::Revived).unwrap();
    assert_eq!((Some(told.net), told.component.as_str()), (net, ""));
    assert_eq!(seat.find(net.unwrap()), Some(body), "under its handle");
    assert_eq!(seat.leftovers(), tidelock::testing::Leftovers::default());
}

/// The host tells, with a cap that was put on before, that it has no hat yet: that is of an earlier tick.
#[test]
fn a_component_is_not_taken_off_because_the_host_did_not_have_it_before() {
    let mut scene = Scene::new(5, 0, Faults::default());
    let body = scene.body(1).unwrap();
    let before = scene.table.seat(1).peer.correction_count() - scene.table.seat(1).peer.correction_counts().input;
    scene.table.seat(1).take_news();
    scene.acts[1] = CAP;
    scene.run(3);
    scene.acts[1] = HAT;
    let mut had = 0;
    for frame in 0..60 {
        scene.run(1);
        let has = scene.table.seat(1).world.satisfies::<&Hat>(body);
        assert!(has || had == 0, "frame {frame}: it was taken off");
        had += u32::from(has);
    }
    assert!(had >= 55, "it was put on at once: {had}");
    let seat = scene.table.seat(1);
    let counts = seat.peer.correction_counts();
    assert_eq!(
        counts.total() - counts.input,
        before,
        "{:?}",
        seat.peer.corrections().map(ToString::to_string).collect::<Vec<_>>()
    );
    let news: Vec<News> = seat.take_news().into_iter().filter(|n| matches!(n, News::Removed { .. })).collect();
    assert_eq!(news, []);
}
