//! A teleport is drawn as one jump, whatever is lost around it.

mod common;

use common::{ChildOf, Crate, Player, Position, assert_clean, assert_settles, seeds, table, weather};
use hecs::Entity;
use std::time::Duration;
use tidelock::testing::{Seat, Table};
use tidelock::{NetId, PeerId};
use tidelock_loopback::Direction;

/// Ticks at rest before the teleport: 5 s.
const REST: u32 = 300;
/// Ticks of motion after it.
const MOTION: u32 = 180;
const PER_TICK: f32 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Variant {
    Plain,
    /// The packet with the mark is lost.
    MarkLost,
    TwiceInOneTick,
    InTheSpawnTick,
    WithNewOwner,
    /// A guest owns it, and the host takes it back in the tick of the teleport.
    WithTakeBack,
    WithNewParent,
    /// The guest owns it and teleports it itself.
    ByItsOwner,
}

const VARIANTS: [Variant; 8] = [
    Variant::Plain,
    Variant::MarkLost,
    Variant::TwiceInOneTick,
    Variant::InTheSpawnTick,
    Variant::WithNewOwner,
    Variant::WithTakeBack,
    Variant::WithNewParent,
    Variant::ByItsOwner,
];

fn drawn(seat: &Seat, net: NetId, at: Duration) -> Option<f32> {
    let entity = seat.find(net)?;
    seat.peer.present::<Position>(&seat.world, at).unwrap().find(|(e, _)| *e == entity).map(|(_, p)| p.x)
}

/// What a seat draws, once a frame.
#[derive(Default)]
struct Film {
    frames: Vec<f32>,
    /// How many of them were drawn when it stopped.
    moving: usize,
}

impl Film {
    fn check(&self, what: &str, jumps: usize, most: f32) {
        let between = self.frames.iter().find(|x| 0.5 < **x && **x < 99.5);
        assert_eq!(between, None, "{what}: drawn on the way");
        let found = self.frames.windows(2).filter(|w| (w[1] - w[0]).abs() > 50.0).count();
        assert_eq!(found, jumps, "{what}: jumps");
        for (i, w) in self.frames.windows(2).enumerate() {
            let step = w[1] - w[0];
            // news of the stop may be lost: then motion was carried on for 50 ms, and is taken back
            let least = if i >= self.moving {
                -0.35
            } else if most > 0.15 {
                -0.05
            } else {
                -0.001
            };
            let most = if i >= self.moving { 0.35 } else { most };
            assert!(step > 50.0 || (least..=most).contains(&step), "{what}: frame {i}, from {} to {}", w[0], w[1]);
        }
    }
}

struct Scene {
    table: Table,
    entity: Entity,
    net: NetId,
    variant: Variant,
    /// Ticks in which it was moved on: a guest's clock may leave out or add one.
    moved: u32,
}

impl Scene {
    /// E at x = 0, owned as the variant has it; in the variant of the spawn tick there is none yet.
    fn new(seed: u64, variant: Variant) -> (Self, tidelock_loopback::Network) {
        let (mut table, network) = table(seed, 2, weather(100, 0.05));
        let mut scene = Entity::DANGLING;
        let at = Position { x: 0.0, y: 1.0 };
        table.run(|seat, world, step| match (variant, seat) {
            (Variant::ByItsOwner | Variant::WithTakeBack, 1) => scene = step.spawn(world, Player, (at,)).unwrap(),
            (Variant::WithNewOwner, 0) => scene = step.spawn(world, Player, (at,)).unwrap(),
            (Variant::Plain | Variant::MarkLost | Variant::TwiceInOneTick | Variant::WithNewParent, 0) => {
                scene = step.spawn(world, Crate, (at,)).unwrap();
            }
            _ => {}
        });
        table.rest(REST);
        let mut scene = Self { table, entity: scene, net: NetId::default(), variant, moved: 0 };
        if variant == Variant::WithTakeBack {
            let guest = scene.table.seat(1);
            let net = guest.peer.name_of(&guest.world, scene.entity).unwrap();
            scene.entity = scene.table.seat(0).find(net).unwrap();
        }
        if variant != Variant::InTheSpawnTick {
            scene.name();
        }
        (scene, network)
    }

    /// The seat that moves it until the teleport.
    fn mover(&self) -> usize {
        usize::from(self.variant == Variant::ByItsOwner)
    }

    fn name(&mut self) {
        let (entity, mover) = (self.entity, self.mover());
        let seat = self.table.seat(mover);
        self.net = seat.peer.name_of(&seat.world, entity).unwrap();
    }

    /// The tick of the teleport.
    fn jump(&mut self) {
        let (variant, mover, heir) = (self.variant, self.mover(), self.table.seat(1).peer.local());
        let mut entity = self.entity;
        self.table.run(|seat, world, step| {
            if seat != mover {
                return;
            }
            if variant == Variant::WithTakeBack {
                step.peer().grant(world, entity, 0, PeerId::HOST).unwrap();
            }
            if variant == Variant::InTheSpawnTick {
                entity = step.spawn(world, Crate, (Position { x: 0.0, y: 1.0 },)).unwrap();
            }
            let leaps: &[f32] = if variant == Variant::TwiceInOneTick { &[50.0, 100.0] } else { &[100.0] };
            for x in leaps {
                world.get::<&mut Position>(entity).unwrap().x = *x;
                step.peer().teleport(world, entity).unwrap();
            }
            if variant == Variant::WithNewParent {
                let parent = step.spawn(world, Crate, ()).unwrap();
                world.insert_one(entity, ChildOf { parent }).unwrap();
            }
            if variant == Variant::WithNewOwner {
                step.peer().grant(world, entity, 0, heir).unwrap();
            }
        });
        self.entity = entity;
        self.name();
    }

    /// Whoever simulates it moves it on.
    fn frame(&mut self, moving: bool) {
        let net = self.net;
        let moved = &mut self.moved;
        self.table.run(|_, world, step| {
            let entity = step.peer().entity_of(net);
            for (e, p) in step.query::<(Entity, &mut Position)>(world).iter() {
                if moving && Some(e) == entity && p.x > 50.0 {
                    p.x += PER_TICK;
                    *moved += 1;
                }
            }
        });
    }

    fn film(&mut self, films: &mut [Film]) {
        let now = self.table.now;
        for (i, film) in films.iter_mut().enumerate() {
            let seat = self.table.seat(i);
            film.frames.extend(drawn(seat, self.net, now));
        }
    }
}

fn play(seed: u64, variant: Variant) {
    let (mut scene, network) = Scene::new(seed, variant);
    let mut films: Vec<Film> = (0..3).map(|_| Film::default()).collect();
    if variant != Variant::InTheSpawnTick {
        for _ in 0..30 {
            scene.frame(false);
            scene.film(&mut films);
        }
    }
    if variant == Variant::MarkLost {
        for link in network.links() {
            network.edit(link, Direction::Down, |net| net.drop_next(1));
        }
    }
    scene.jump();
    scene.film(&mut films);
    for _ in 0..MOTION {
        scene.frame(true);
        scene.film(&mut films);
    }
    films.iter_mut().for_each(|f| f.moving = f.frames.len());
    for _ in 0..90 {
        scene.frame(false);
        scene.film(&mut films);
    }
    for (i, film) in films.iter().enumerate() {
        let jumps = usize::from(variant != Variant::InTheSpawnTick);
        // what a guest simulates has two hops: a watcher is not told of what is lost on the first, and carries nothing on
        let handed_over = matches!(variant, Variant::WithNewOwner | Variant::WithTakeBack | Variant::ByItsOwner);
        film.check(&format!("SEED={seed} {variant:?} seat {i}"), jumps, if handed_over { 0.35 } else { 0.15 });
    }
    assert_settles(&mut scene.table, 2);
    let owner = usize::from(matches!(variant, Variant::ByItsOwner | Variant::WithNewOwner));
    let now = scene.table.now;
    let last = drawn(scene.table.seat(owner), scene.net, now).unwrap();
    let moved = scene.moved;
    assert!(MOTION - moved.min(MOTION) < 40, "SEED={seed} {variant:?}: moved {moved} times");
    assert!((last - 100.0 - PER_TICK * moved as f32).abs() < 0.01, "SEED={seed} {variant:?}: ends at {last}");
    for seat in 0..3 {
        let shown = drawn(scene.table.seat(seat), scene.net, now).unwrap();
        assert!((shown - last).abs() <= 0.005, "SEED={seed} {variant:?} seat {seat}: ends at {shown} instead of {last}");
    }
    let heir = scene.table.seat(1).peer.local();
    let host = scene.table.seat(0);
    let copy = host.find(scene.net).unwrap();
    let expected = if owner == 1 { heir } else { PeerId::HOST };
    assert_eq!(host.peer.owner(&host.world, copy, 0), Some(expected), "SEED={seed} {variant:?}");
    assert_clean(&mut scene.table);
}

/// What stops is drawn as stopping: not further, and not back.
#[test]
fn a_stop_is_drawn_where_it_is() {
    for seed in seeds(10) {
        let (mut table, _network) = table(seed, 1, weather(100, 0.0));
        let mut entity = Entity::DANGLING;
        table.run(|seat, world, step| {
            if seat == 0 {
                entity = step.spawn(world, Crate, (Position { x: 0.0, y: 1.0 },)).unwrap();
            }
        });
        let host = table.seat(0);
        let net = host.peer.name_of(&host.world, entity).unwrap();
        let mut last = 0.0;
        for frame in 0..600 {
            let moving = frame % 150 > 50;
            table.run(|_, world, step| {
                step.query::<&mut Position>(world).iter().for_each(|p| p.x += if moving { PER_TICK } else { 0.0 });
            });
            let now = table.now;
            let Some(x) = drawn(table.seat(1), net, now) else { continue };
            assert!((-0.001..=0.15).contains(&(x - last)), "SEED={seed} frame {frame}: from {last} to {x}");
            last = x;
        }
    }
}

#[test]
fn a_teleport_is_one_jump() {
    for seed in seeds(10) {
        for variant in VARIANTS {
            play(seed, variant);
        }
    }
}
