//! Saved games, which are snapshots: what is refused leaves the world as it was; what is accepted is written again, and that is
//! accepted too and written as the same bytes. Memory keeps its bound either way.
//!
//! Input: a byte whose lowest bit says whether the world that it is loaded into is empty, and whose next one says whether the rest is
//! a snapshot as it is, or changes to a true one (a place and a byte each); then that.

use crate::ALLOCATED;
use hecs::{Entity, World};
use std::time::Duration;
use tidelock::policy::Host;
use tidelock::{Checkpoint, Config, Networked, Peer, Replicate, Schema, SnapshotError};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Checkpoint)]
struct Place {
    #[net(exact)]
    x: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Checkpoint)]
struct Target(Entity);

#[derive(Clone, Debug, Default, PartialEq, Checkpoint)]
struct Board {
    turn: Option<Turn>,
    names: Vec<String>,
    piles: Vec<Pile>,
}

#[derive(Clone, Debug, PartialEq, Checkpoint)]
enum Turn {
    Nobody,
    Of { who: Entity, left: (u8, bool) },
}

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Pile(Vec<Pile>, Option<[u64; 40]>);

#[derive(Clone, Copy, Debug, Default)]
struct Unit;
#[derive(Clone, Copy, Debug, Default)]
struct Rock;

struct Scene {
    peer: Peer,
    world: World,
    now: Duration,
}

impl Scene {
    fn new() -> Self {
        let schema = Schema::builder("saved")
            .component::<Place>("place", |c| c.checkpoint())
            .component::<Target>("target", |c| c.checkpoint())
            .resource::<Board>("board")
            .kind_with::<Unit>("unit", Host::default(), |k| k.rewound())
            .kind_with::<Rock>("rock", Host::default(), |k| k.rewound());
        let mut peer =
            Peer::alone(schema.build().expect("a schema"), Config { session: Some(7), ..Config::default() }).expect("a peer");
        let mut world = World::new();
        peer.receive(Duration::ZERO, &mut world).expect("time goes on");
        peer.keep_saves(&mut world, 4).expect("it is alone");
        Self { peer, world, now: Duration::ZERO }
    }

    /// Units that name each other in a circle, rocks, a board.
    fn filled(count: u16) -> Self {
        let mut scene = Self::new();
        scene.step(|world, step| {
            let mut units = Vec::new();
            for i in 0..count {
                let place = Place { x: f32::from(i) };
                step.spawn(world, Rock, (place,)).expect("it may");
                units.push(step.spawn_as(world, i.into(), Unit, (place,)).expect("it may"));
            }
            for (i, unit) in units.iter().enumerate() {
                world.insert_one(*unit, Target(units[(i + 1) % units.len()])).expect("it lives");
            }
            let board = step.resource::<Board>(world).expect("it is in the schema");
            board.turn = units.first().map(|who| Turn::Of { who: *who, left: (3, true) });
            board.names = vec!["north".into(), String::new()];
            board.piles = vec![Pile(vec![Pile(Vec::new(), Some([1; 40]))], None)];
        });
        scene.step(|_, _| {});
        scene
    }

    fn step(&mut self, run: impl FnOnce(&mut World, &mut tidelock::Step<'_>)) {
        let mut run = Some(run);
        while run.is_some() {
            self.now += self.peer.tick_length();
            self.peer.receive(self.now, &mut self.world).expect("time goes on");
            while let Some(mut step) = self.peer.next_step(&mut self.world) {
                if let Some(run) = run.take() {
                    run(&mut self.world, &mut step);
                }
            }
        }
    }

    fn saved(&mut self) -> Vec<u8> {
        self.peer.save_bytes(&self.world, self.peer.tick()).expect("the last step was saved")
    }
}

/// Loads what the input says.
///
/// # Panics
/// If a promise is broken.
pub fn run(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else { return };
    let bytes = if how & 2 == 0 { rest.to_vec() } else { changed(rest) };
    let mut scene = if how & 1 == 0 { Scene::new() } else { Scene::filled(5) };
    let (count, tick) = (scene.world.len(), scene.peer.tick());
    ALLOCATED.reset_peak_usage();
    let held = ALLOCATED.current_usage();
    let result = scene.peer.load_bytes(&mut scene.world, &bytes);
    let peak = ALLOCATED.peak_usage().saturating_sub(held);
    let limit = 2 * limits::CHECKPOINT_MEMORY + bytes.len() * 1024 + (1 << 20);
    assert!(peak <= limit, "{} bytes took {peak}, at most {limit} were promised", bytes.len());
    match result {
        Ok(tick) => check(&mut scene, tick),
        Err(error) => {
            assert_eq!((scene.world.len(), scene.peer.tick()), (count, tick), "{error}");
            assert_ne!(error, SnapshotError::NotAlone);
        }
    }
}

fn check(scene: &mut Scene, tick: Tick) {
    assert_eq!(scene.peer.tick().plus(1), tick);
    assert_eq!(scene.world.query::<&Networked>().iter().count(), scene.peer.entity_count());
    scene.step(|_, step| assert_eq!(step.tick(), tick));
    let Ok(again) = scene.peer.save_bytes(&scene.world, tick) else { panic!("tick {tick} was run and not saved") };
    let mut other = Scene::new();
    other.peer.load_bytes(&mut other.world, &again).expect("what was saved can be loaded");
    other.step(|_, _| {});
    assert_eq!(other.peer.save_bytes(&other.world, tick).as_ref(), Ok(&again));
}

fn changed(rest: &[u8]) -> Vec<u8> {
    let mut bytes = Scene::filled(3).saved();
    for change in rest.chunks_exact(3).take(16) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        match at.checked_rem(bytes.len()) {
            Some(at) if change[1] & 0x80 == 0 => bytes[at] = change[2],
            Some(at) => bytes.truncate(at),
            None => {}
        }
    }
    bytes
}

/// A saved game, into an empty world and a filled one; an empty one; some with changes.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |how: u8, rest: &[u8]| [&[how], rest].concat();
    vec![
        seed(0, &Scene::filled(4).saved()),
        seed(1, &Scene::filled(9).saved()),
        seed(1, &Scene::filled(0).saved()),
        seed(2, &[]),
        seed(3, &[40, 0, 1, 50, 0, 0]),
        seed(3, &[60, 0x80, 0]),
    ]
}
