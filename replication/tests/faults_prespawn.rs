//! What a player spawns for itself and the host spawns a moment later: one entity for each shot, whatever is rolled back meanwhile,
//! whoever else shoots, and whether the host agrees at once, later or never. See also `predicted.rs`.

mod common;

use common::{config, weather};
use hecs::{Entity, World};
use std::collections::BTreeMap;
use tidelock::policy::Host;
use tidelock::testing::Table;
use tidelock::{Cause, Checkpoint, Interpolate, NetId, PeerId, Press, Replicate, Schema, Step};
use tidelock_loopback::Network;

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Interpolate, Checkpoint)]
struct Place {
    #[net(step = 0.25, range = -4000.0..=4000.0)]
    x: f32,
}

/// The tick in which a shot was fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate, Checkpoint)]
struct Fired(u32);

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    fire: Press,
}

#[derive(Clone, Copy, Default)]
struct Body;
#[derive(Clone, Copy, Default)]
struct Shot;

/// How much later the host fires a shot than its owner.
type Delay = u64;

struct Scene {
    table: Table,
    sticks: Vec<Stick>,
    delay: Delay,
    /// Shots that the host has yet to fire: when, and for whom.
    waiting: Vec<(u64, PeerId)>,
}

fn schema() -> Schema {
    Schema::builder("prespawn")
        .component::<Place>("place", |c| c.interpolate().checkpoint())
        .component::<Fired>("fired", |c| c.checkpoint())
        .kind::<Body>("body", Host::predicted())
        .kind::<Shot>("shot", Host::predicted())
        .input::<Stick>("stick")
        .build()
        .unwrap()
}

fn fire(world: &mut World, step: &mut Step<'_>, owner: PeerId) {
    let fired = Fired(step.tick().0 as u32);
    // the same key for all: names must do
    step.spawn_for(world, owner, 7, Shot, (Place { x: 0.0 }, fired)).unwrap();
}

impl Scene {
    fn new(seed: u64, guests: u16, latency: u64, delay: Delay) -> Self {
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(), config(), network.host()).unwrap();
        for _ in 0..guests {
            table.join(config(), network.join(weather(latency, 0.0), weather(latency, 0.0))).unwrap();
        }
        table.rest(180);
        for guest in 1..=guests {
            let host = table.seat(0);
            let body = host.peer.spawn(&mut host.world, Body, (Place::default(),)).unwrap();
            host.peer.grant(&mut host.world, body, 0, PeerId(guest)).unwrap();
        }
        let mut scene = Self { table, sticks: vec![Stick::default(); usize::from(guests) + 1], delay, waiting: Vec::new() };
        scene.run(180);
        scene
    }

    fn frame(&mut self) {
        for (seat, stick) in self.sticks.iter().enumerate().skip(1) {
            self.table.seat(seat).peer.set_input(stick).unwrap();
        }
        let Self { table, delay, waiting, .. } = self;
        table.run(|seat, world, step| {
            step.query::<&mut Place>(world).with::<&Shot>().iter().for_each(|p| p.x += 1.0);
            let bodies: Vec<Entity> = step.query::<Entity>(world).with::<&Body>().iter().collect();
            for body in bodies {
                let owner = step.owner(world, body).unwrap();
                let presses = step.input::<Stick>(owner).map_or(0, |i| i.pressed(|s| s.fire));
                for _ in 0..presses {
                    if seat == 0 && *delay > 0 {
                        waiting.push((step.tick().0 + *delay, owner));
                    } else {
                        fire(world, step, owner);
                    }
                }
            }
            if seat == 0 {
                let due: Vec<PeerId> = waiting.extract_if(.., |w| w.0 == step.tick().0).map(|w| w.1).collect();
                due.into_iter().for_each(|owner| fire(world, step, owner));
            }
        });
    }

    fn run(&mut self, frames: u32) {
        (0..frames).for_each(|_| self.frame());
    }

    /// The shots that a seat has, by name: the tick of firing, the place, and the owner.
    fn shots(&mut self, seat: usize) -> BTreeMap<NetId, (u32, f32, PeerId)> {
        let seat = self.table.seat(seat);
        let mut shots = BTreeMap::new();
        for (entity, place, fired) in seat.world.query::<(Entity, &Place, &Fired)>().with::<&Shot>().iter() {
            if let Some(net) = seat.peer.name_of(&seat.world, entity) {
                shots.insert(net, (fired.0, place.x, seat.peer.owner(&seat.world, entity, 0).unwrap()));
            }
        }
        shots
    }

    /// Each shot of a guest's own is where it was fired and what it has flown since.
    fn assert_on_course(&mut self, seat: usize) {
        let (tick, local) = (self.table.seat(seat).peer.tick().0, PeerId(seat as u16));
        for (net, (fired, x, _)) in self.shots(seat).into_iter().filter(|(_, s)| s.2 == local) {
            assert_eq!(x, (tick - u64::from(fired)) as f32, "seat {seat}, tick {tick}: shot {net} of tick {fired}");
        }
    }
}

/// Three shots in one tick; three ticks later the host's word of something else comes and sends the world back to before they were
/// fired. They stay on course, are confirmed under their names, and none of them is corrected.
#[test]
fn a_rollback_to_before_the_shots_leaves_them_as_they_are() {
    for seed in 1..=4 {
        let mut scene = Scene::new(seed, 1, 50, 0);
        let before = scene.table.seat(1).peer.correction_count();
        // the host moves the body in a tick that lies before that of the shots: word of it comes after they were fired
        let host = scene.table.seat(0);
        host.world.query::<&mut Place>().with::<&Body>().iter().for_each(|p| p.x += 5.0);
        scene.run(2);
        (0..3).for_each(|_| scene.sticks[1].fire.press());
        scene.frame();
        let mine: Vec<NetId> = scene.shots(1).into_keys().collect();
        assert_eq!(mine.len(), 3, "SEED={seed}: they are there at once");
        let fired = scene.table.seat(1).peer.tick();
        for _ in 0..60 {
            scene.frame();
            assert_eq!(scene.shots(1).into_keys().collect::<Vec<_>>(), mine, "SEED={seed}: the same three");
            scene.assert_on_course(1);
        }
        assert_eq!(scene.shots(0).into_keys().collect::<Vec<_>>(), mine, "SEED={seed}: under the same names");
        let peer = &scene.table.seat(1).peer;
        let all: Vec<_> = peer.corrections().collect();
        assert_eq!(peer.correction_count() - before, 1, "SEED={seed}: only the body was corrected: {all:#?}");
        let last = all.last().unwrap();
        assert!(last.tick < fired && last.depth > 2, "SEED={seed}: it did go back to before the shots: {last}");
    }
}

/// The host fires a tick later than the player: that is another shot to it. The player's goes in time, the host's comes, and in
/// the end there is one for each press.
#[test]
fn a_shot_that_the_host_fires_a_tick_later_is_there_once() {
    for seed in 1..=4 {
        let mut scene = Scene::new(seed, 1, 50, 1);
        for round in 1..=5 {
            scene.sticks[1].fire.press();
            scene.frame();
            assert!(!scene.shots(1).is_empty(), "SEED={seed}: it is there at once");
            // half a round trip there, the tick, half a round trip back, and what lead and sends add
            scene.run(30);
            let (host, guest) = (scene.shots(0), scene.shots(1));
            assert_eq!(host.len(), round, "SEED={seed}");
            assert_eq!(host.keys().collect::<Vec<_>>(), guest.keys().collect::<Vec<_>>(), "SEED={seed} round {round}");
            let refused = scene.table.seat(1).peer.corrections().filter(|c| c.cause == Cause::Refused).count();
            assert_eq!(refused, round, "SEED={seed}: the player is told that its own was refused");
        }
        scene.run(60);
        scene.assert_on_course(1);
    }
}

/// Two players fire in the same ticks, with the same key: nobody's shot is taken for the other's.
#[test]
fn shots_of_two_players_are_never_mixed_up() {
    for seed in 1..=4 {
        let mut scene = Scene::new(seed, 2, 50, 0);
        let before: Vec<u64> = (1..=2).map(|seat| scene.table.seat(seat).peer.correction_count()).collect();
        for round in 1..=10usize {
            for seat in 1..=2 {
                scene.sticks[seat].fire.press();
            }
            scene.frame();
            for seat in 1..=2 {
                let mine = scene.shots(seat).values().filter(|s| s.2 == PeerId(seat as u16)).count();
                assert_eq!(mine, round, "SEED={seed} seat {seat}: its own is there at once");
            }
            for _ in 0..12 {
                scene.frame();
                (1..=2).for_each(|seat| scene.assert_on_course(seat));
            }
        }
        scene.run(60);
        let host = scene.shots(0);
        assert_eq!(host.len(), 20, "SEED={seed}");
        for seat in 1..=2 {
            let guest = scene.shots(seat);
            let owners = |shots: &BTreeMap<NetId, (u32, f32, PeerId)>| -> Vec<(NetId, u32, PeerId)> {
                shots.iter().map(|(net, s)| (*net, s.0, s.2)).collect()
            };
            assert_eq!(owners(&host), owners(&guest), "SEED={seed} seat {seat}: the same shots, of the same owners");
            let peer = &scene.table.seat(seat).peer;
            let all: Vec<_> = peer.corrections().collect();
            assert_eq!(peer.correction_count(), before[seat - 1], "SEED={seed} seat {seat}: {all:#?}");
        }
    }
}
