//! Does a simulation depend on nothing but its world and its inputs? Lockstep and rollback need that, and a prediction is as good as
//! it is true.
//!
//! [`Check::run`] runs a simulation straight, and beside it once more in each of several [ways](Way) that must make no
//! difference, and compares the two after every tick: all entities, all components with `.checkpoint()`, all resources.
//! What it finds first is told by tick, entity, component and field, with both values.
//!
//! ```
//! use tidelock::policy::Host;
//! use tidelock::testing::determinism::{Check, Way};
//! use tidelock::{Checkpoint, Peer, Replicate, Schema, Step};
//! # use hecs::World;
//!
//! #[derive(Clone, Replicate, Checkpoint)]
//! struct Height {
//!     #[net(step = 0.01, range = -500.0..=500.0)]
//!     y: f32,
//! }
//! #[derive(Clone, Copy, Default)]
//! struct Ball;
//! let schema = Schema::builder("game")
//!     .component::<Height>("height", |c| c.checkpoint())
//!     .kind::<Ball>("ball", Host::default())
//!     .build()?;
//!
//! let build = |peer: &mut Peer, world: &mut World| {
//!     for i in 0..10 {
//!         peer.spawn(world, Ball, (Height { y: i as f32 },)).unwrap();
//!     }
//! };
//! let good = || |world: &mut World, step: &mut Step<'_>, push: &f32| {
//!     step.query::<&mut Height>(world).iter().for_each(|h| h.y += push);
//! };
//! let check = Check::new(&schema, build, |tick| (tick.0 % 3) as f32);
//! assert_eq!(check.run(good), Ok(()));
//!
//! let bad = || {
//!     let mut wind = 0.0; // lives outside of the world
//!     move |world: &mut World, step: &mut Step<'_>, push: &f32| {
//!         wind += push;
//!         step.query::<&mut Height>(world).iter().for_each(|h| h.y += wind);
//!     }
//! };
//! let leak = check.run(bad).unwrap_err();
//! assert_eq!((leak.way, leak.component.as_deref(), leak.field.as_str()), (Way::Loaded, Some("height"), "y"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it can find, and what not
//!
//! * State outside of the world, in the simulation's closure: found by [`Way::Loaded`] and [`Way::RolledBack`].
//! * Components that are read and not registered with `.checkpoint()`: by the same two.
//! * The order of rows, or of archetypes, or handles: by [`Way::Shuffled`]. Sums of floats in the order of a query are the usual
//!   case; [`Step::ordered`] is the cure.
//! * The order of the standard library's hash maps, clocks, addresses and random numbers of the operating system: by
//!   [`Way::Again`], since each map has keys of its own. A hasher with fixed keys, such as that of `rustc-hash`, has the same
//!   order again where keys and insertions are the same; it is found only where another way changes what was inserted when.
//! * Not found: what differs between two machines or builds and not between two runs of one (the standard library's sines,
//!   fused multiplications), and what no input of the run leads to.

use crate::config::Config;
use crate::netid::NetId;
use crate::peer::Peer;
use crate::policy::Timeline;
use crate::rewind::Rewound;
use crate::rewind::digest::{Difference, Reading};
use crate::rewind::resources_of;
use crate::rewind::saves::Save;
use crate::rng::mix;
use crate::schema::Schema;
use crate::step::Step;
use hecs::{Entity, World};
use std::fmt;
use tidelock_netcore::tick::Tick;

/// How a simulation is run beside the straight run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Straight, once more.
    Again,
    /// Saved before each tick, and loaded into a fresh world with a fresh simulation, which runs that tick.
    Loaded,
    /// With rows in a random order before each tick, with local components on some entities, and with other handles.
    Shuffled,
    /// Run ahead with wrong inputs by a random number of ticks and taken back, over and over.
    RolledBack,
    /// Straight, with a look before and after each step at what the step does not simulate: kinds of other timelines, and those whose time
    /// stands still. Between peers such a write is lost, or they come apart.
    Confined,
}

/// All of them, in the order in which [`Check::run`] goes through them.
pub const WAYS: [Way; 5] = [Way::Again, Way::Loaded, Way::Shuffled, Way::RolledBack, Way::Confined];

/// Where a simulation came out otherwise than when it was run straight: the first tick, and in it the entity with the lowest name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// How it was run.
    pub way: Way,
    /// After this tick the worlds differ; before it they were equal.
    pub tick: Tick,
    /// The entity; none if it is a resource.
    pub entity: Option<NetId>,
    /// The component or resource; none if the entity itself is not there, or of another kind.
    pub component: Option<String>,
    /// The path of the field, such as `speed.x` or `0[3]`; empty if the whole differs.
    pub field: String,
    /// Its value in the straight run.
    pub straight: String,
    /// Its value in the other run.
    pub other: String,
    /// To run it again.
    pub seed: u64,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.way {
            Way::Again => "run again",
            Way::Loaded => "loaded from a save",
            Way::Shuffled => "with rows shuffled",
            Way::RolledBack => "after a rollback",
            Way::Confined => "after a step that does not simulate it",
        };
        let straight = if self.way == Way::Confined { "before" } else { "when run straight" };
        write!(f, "tick {}: ", self.tick.0)?;
        match self.entity {
            Some(net) => write!(f, "entity {net}")?,
            None => write!(f, "resource")?,
        }
        if let Some(component) = &self.component {
            write!(f, " {component}")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}", self.field)?;
        }
        write!(f, " is {} {straight} and {} {how} (SEED={})", self.straight, self.other, self.seed)
    }
}

impl std::error::Error for Leak {}

type Build<'a> = Box<dyn Fn(&mut Peer, &mut World) + 'a>;

/// A simulation's surroundings: its schema, its first world and its inputs.
pub struct Check<'a, I> {
    schema: Schema,
    build: Build<'a>,
    input: Box<dyn Fn(Tick) -> I + 'a>,
    ways: Vec<Way>,
    ticks: u64,
    depth: usize,
    seed: u64,
    config: Config,
}

impl<'a, I> Check<'a, I> {
    /// `build` makes the first world through a peer that is alone, always the same; `input` tells each tick's input. Entities of
    /// all kinds are compared and rewound, whatever the schema says of them.
    pub fn new(schema: &Schema, build: impl Fn(&mut Peer, &mut World) + 'a, input: impl Fn(Tick) -> I + 'a) -> Self {
        Self {
            schema: schema.clone(),
            build: Box::new(build),
            input: Box::new(input),
            ways: WAYS.to_vec(),
            ticks: 120,
            depth: 8,
            seed: 1,
            config: Config::default(),
        }
    }

    /// How many ticks are run; 120 if nothing is said.
    #[must_use]
    pub fn ticks(self, ticks: u64) -> Self {
        Self { ticks, ..self }
    }

    /// The most ticks that are taken back at once, at least one and at most [`limits::SAVES`](crate::netcore::limits::SAVES); 8 if
    /// nothing is said.
    #[must_use]
    pub fn depth(self, depth: usize) -> Self {
        Self { depth: depth.clamp(1, tidelock_netcore::limits::SAVES), ..self }
    }

    /// What shuffles and depths follow from. It is the session's id, too, so that [`Step::rng`] follows from it.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The peers' settings, for the length of a tick. They must be good ones: see [`Peer::alone`].
    #[must_use]
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Only this way.
    #[must_use]
    pub fn only(self, way: Way) -> Self {
        Self { ways: vec![way], ..self }
    }

    /// Runs the simulations that `make` makes, each of which starts from nothing.
    ///
    /// # Errors
    /// The first [`Leak`] of the first way that has one.
    ///
    /// # Panics
    /// If the settings given to [`config`](Self::config) cannot be.
    pub fn run<S>(&self, make: impl Fn() -> S) -> Result<(), Box<Leak>>
    where
        S: FnMut(&mut World, &mut Step<'_>, &I),
    {
        for way in &self.ways {
            let run = |shuffled| Run::new(self, make(), shuffled);
            let straight = run(false);
            match way {
                Way::Again => self.side_by_side(*way, straight, run(false)),
                Way::Shuffled => self.side_by_side(*way, straight, run(true)),
                Way::Loaded => self.loaded(straight, &make),
                Way::RolledBack => self.rolled_back(straight, run(false)),
                Way::Confined => self.confined(straight),
            }?;
        }
        Ok(())
    }

    fn side_by_side<S>(&self, way: Way, mut straight: Run<S>, mut other: Run<S>) -> Result<(), Box<Leak>>
    where
        S: FnMut(&mut World, &mut Step<'_>, &I),
    {
        for i in 0..self.ticks {
            if way == Way::Shuffled {
                shuffle(&mut other.world, mix(self.seed, i));
            }
            straight.step(&self.input);
            other.step(&self.input);
            self.compare(way, &mut straight, &mut other)?;
        }
        Ok(())
    }

    fn loaded<S>(&self, mut straight: Run<S>, make: &impl Fn() -> S) -> Result<(), Box<Leak>>
    where
        S: FnMut(&mut World, &mut Step<'_>, &I),
    {
        for _ in 0..self.ticks {
            straight.look();
            let mut other = Run::new(self, make(), false);
            other.peer.load_save(&mut other.world, &straight.peer, &straight.world, &straight.state);
            straight.step(&self.input);
            other.step(&self.input);
            self.compare(Way::Loaded, &mut straight, &mut other)?;
        }
        Ok(())
    }

    fn rolled_back<S>(&self, mut straight: Run<S>, mut other: Run<S>) -> Result<(), Box<Leak>>
    where
        S: FnMut(&mut World, &mut Step<'_>, &I),
    {
        let (mut done, mut round) = (0, 0);
        while done < self.ticks {
            let chance = mix(self.seed ^ 1, round);
            let depth = 1 + chance % self.depth as u64;
            let from = straight.peer.time.ran.plus(1);
            for attempt in 0..=(chance >> 8) % 2 {
                for i in 0..depth {
                    // what was predicted: the input of some other tick, or for once the right one
                    let off = mix(chance, attempt << 32 | i) % 8;
                    other.step(&|tick: Tick| (self.input)(tick.plus(off)));
                }
                let back = other.peer.rewind(&mut other.world, from);
                debug_assert!(back.is_ok(), "it was run just now: {back:?}");
            }
            for _ in 0..depth {
                straight.step(&self.input);
                other.step(&self.input);
                self.compare(Way::RolledBack, &mut straight, &mut other)?;
            }
            done += depth;
            round += 1;
        }
        Ok(())
    }

    fn confined<S>(&self, mut run: Run<S>) -> Result<(), Box<Leak>>
    where
        S: FnMut(&mut World, &mut Step<'_>, &I),
    {
        run.strays = Some((Save::default(), None));
        for _ in 0..self.ticks {
            run.step(&self.input);
            if let Some((tick, found)) = run.strays.as_mut().and_then(|strays| strays.1.take()) {
                return Err(self.leak(Way::Confined, tick, found));
            }
        }
        Ok(())
    }

    fn leak(&self, way: Way, tick: Tick, found: Difference) -> Box<Leak> {
        let Difference { net, component, field, values } = found;
        let entity = Some(net).filter(|net| resources_of(*net).is_none());
        Box::new(Leak { way, tick, entity, component, field, straight: values.0, other: values.1, seed: self.seed })
    }

    fn compare<S>(&self, way: Way, straight: &mut Run<S>, other: &mut Run<S>) -> Result<(), Box<Leak>> {
        straight.look();
        other.look();
        let Some(found) = straight.difference(other) else { return Ok(()) };
        Err(self.leak(way, straight.peer.time.ran, found))
    }
}

/// One run of the simulation.
struct Run<S> {
    peer: Peer,
    world: World,
    simulate: S,
    /// The world after the last tick that was looked at.
    state: Save,
    /// The world before the last step, and what a step has written first that it does not simulate, if that is looked for.
    strays: Option<(Save, Option<(Tick, Difference)>)>,
}

impl<S> Run<S> {
    fn new<I>(check: &Check<'_, I>, simulate: S, shuffled: bool) -> Self {
        let config = Config { session: Some(check.seed), ..check.config.clone() };
        let mut peer = Peer::alone(check.schema.clone(), config).expect("the settings of a check must be good");
        let mut world = World::new();
        if shuffled {
            // handles differ
            let locals: Vec<Entity> = (0..7).map(|i| world.spawn((Noise(i),))).collect();
            let _ = world.despawn(locals[3]);
        }
        // everybody is marked when it is built, and saves begin with the first step
        peer.start_saves(&mut world, Timeline::Session, check.depth + 1, u64::MAX);
        (check.build)(&mut peer, &mut world);
        Self { peer, world, simulate, state: Save::default(), strays: None }
    }

    /// Runs the next tick, or runs one again.
    fn step<I>(&mut self, input: &dyn Fn(Tick) -> I)
    where
        S: FnMut(&mut World, &mut Step<'_>, &I),
    {
        if self.peer.saves[Timeline::Session].as_ref().is_some_and(|s| s.replay.is_empty()) {
            self.peer.time.due = self.peer.time.tick.plus(1);
        }
        loop {
            let Some(mut step) = self.peer.next_step(&mut self.world) else { return };
            let input = input(step.tick());
            let (line, tick) = (step.timeline(), step.tick());
            if let (Some((before, _)), Some(saves)) = (&mut self.strays, &mut step.peer().saves[Timeline::Session]) {
                saves.copy(&self.world, before);
            }
            (self.simulate)(&mut self.world, &mut step, &input);
            self.look_for_strays(line, tick);
            if self.peer.time.with.is_empty() {
                return;
            }
        }
    }

    /// Has the step written to what it does not simulate?
    fn look_for_strays(&mut self, line: Timeline, tick: Tick) {
        let Some((before, None)) = &self.strays else { return };
        let schema = self.peer.schema.clone();
        let visits = |i: usize| schema.kinds[i].policy.timeline() == line && self.peer.running[i];
        let others = (0..schema.kinds.len()).filter(|i| !visits(*i)).fold(0u64, |mask, i| mask | 1 << i);
        let mut after = Save::default();
        if let Some(saves) = &mut self.peer.saves[Timeline::Session] {
            saves.copy(&self.world, &mut after);
        }
        let read = |mine: Reading<'_>| {
            let compare = |now: Reading<'_>| Reading { kinds: others, ..mine }.difference(&Reading { kinds: others, ..now });
            self.peer.read_save(&self.world, Timeline::Session, &after, compare)
        };
        let found = self.peer.read_save(&self.world, Timeline::Session, before, read).flatten().flatten();
        // what the step may write of resources, it was given
        let found = found.filter(|d| resources_of(d.net) != Some(line));
        if let Some((_, first)) = &mut self.strays {
            *first = found.map(|d| (tick, d));
        }
    }

    fn look(&mut self) {
        if let Some(saves) = &mut self.peer.saves[Timeline::Session] {
            saves.copy(&self.world, &mut self.state);
        }
    }

    fn difference(&self, other: &Self) -> Option<Difference> {
        let compare = |mine: Reading<'_>| {
            other.peer.read_save(&other.world, Timeline::Session, &other.state, |others| mine.difference(&others))
        };
        self.peer.read_save(&self.world, Timeline::Session, &self.state, compare)??
    }
}

/// A local component, of which the simulation knows nothing.
struct Noise(#[expect(dead_code, reason = "it only has to be there")] u64);

struct Moving;

/// Puts all rows into another order, and local components on and off.
fn shuffle(world: &mut World, seed: u64) {
    let mut all: Vec<(u64, Entity)> =
        world.query::<(&Rewound, Entity)>().iter().map(|(mark, entity)| (mix(mark.net.0, seed), entity)).collect();
    all.sort_unstable();
    for (chance, entity) in &all {
        // they were all found alive, and nobody is despawned here
        let _ = match chance % 8 {
            0 => world.insert_one(*entity, Noise(*chance)).is_ok(),
            1 => world.remove_one::<Noise>(*entity).is_ok(),
            _ => true,
        };
        let _ = world.insert_one(*entity, Moving);
    }
    for (_, entity) in all.iter().rev() {
        let _ = world.remove_one::<Moving>(*entity);
    }
}
