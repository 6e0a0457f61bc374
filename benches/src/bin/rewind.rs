//! What going back costs: a save per tick, a restore, and a whole correction, which is a restore and a save for each tick that is
//! run again, without the game's own step. See the crate's README.

use clap::Parser;
use hecs::{Archetype, Entity, World};
use std::process::ExitCode;
use std::time::Duration;
use tidelock::policy::Host;
use tidelock::{Checkpoint, Config, NetId, Peer, Replicate, Rewound, Schema, Simulated, Step};
use tidelock_benches::alloc::Counting;
use tidelock_benches::meter::{Reading, Series, timed};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A world that is saved every tick and taken back.
#[derive(Parser)]
struct Options {
    /// Entities.
    #[arg(long, default_value_t = 10_000)]
    entities: usize,
    /// Ticks that are taken back at once.
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Births, and as many deaths, in every tick.
    #[arg(long, default_value_t = 0)]
    churn: usize,
    /// Corrections that are counted.
    #[arg(long, default_value_t = 400)]
    runs: usize,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Turns before anything is counted: until every buffer has its size.
const WARM_UP: usize = 3;

/// How often each thing is measured in a turn.
const TURN: usize = 20;

/// The grid that predicted values are rounded to: steps in a unit.
const GRID: f32 = 4096.0;

#[derive(Clone, Copy, Default, Replicate, Checkpoint)]
struct Position {
    #[net(exact)]
    x: f32,
    #[net(exact)]
    y: f32,
    #[net(exact)]
    z: f32,
}

#[derive(Clone, Copy, Default, Replicate, Checkpoint)]
struct Rotation {
    #[net(exact)]
    x: f32,
    #[net(exact)]
    y: f32,
    #[net(exact)]
    z: f32,
    #[net(exact)]
    w: f32,
}

#[derive(Clone, Copy, Default, Replicate, Checkpoint)]
struct Velocity {
    #[net(exact)]
    x: f32,
    #[net(exact)]
    y: f32,
    #[net(exact)]
    z: f32,
}

#[derive(Clone, Copy, Default, Replicate, Checkpoint)]
struct Health(u16);

#[derive(Clone, Copy, Default)]
struct Unit;

type Values = (Position, Rotation, Velocity, Health);

fn values(seed: u64) -> Values {
    let f = |k: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left((k * 7) as u32) >> 40) as f32 / 1000.0;
    let position = Position { x: f(0), y: f(1), z: f(2) };
    let rotation = Rotation { x: f(3), y: f(4), z: f(5), w: f(6) };
    (position, rotation, Velocity { x: f(7), y: f(8), z: f(9) }, Health(100))
}

type Columns = (Vec<Position>, Vec<Rotation>, Vec<Velocity>, Vec<Health>);

/// The plain copy that a save is measured against: the four columns into reused buffers, as many deep as there are saves.
#[derive(Default)]
struct Copies {
    slots: Vec<Columns>,
    next: usize,
}

impl Copies {
    fn copy(&mut self, archetype: &Archetype) {
        fn copy<C: hecs::Component + Copy>(archetype: &Archetype, into: &mut Vec<C>) {
            into.clear();
            into.extend_from_slice(&archetype.get::<&C>().expect("the archetype was chosen by its components"));
        }
        self.next = (self.next + 1) % self.slots.len();
        let slot = &mut self.slots[self.next];
        copy(archetype, &mut slot.0);
        copy(archetype, &mut slot.1);
        copy(archetype, &mut slot.2);
        copy(archetype, &mut slot.3);
    }
}

struct Bench {
    peer: Peer,
    world: World,
    now: Duration,
    /// Who dies in this step.
    victims: Vec<Entity>,
    churn: usize,
}

impl Bench {
    fn new(options: &Options) -> Self {
        let schema = Schema::builder("rewind")
            .component::<Position>("position", |c| c.checkpoint())
            .component::<Rotation>("rotation", |c| c.checkpoint())
            .component::<Velocity>("velocity", |c| c.checkpoint())
            .component::<Health>("health", |c| c.checkpoint())
            .kind_with::<Unit>("unit", Host::default(), |k| k.rewound());
        let schema = schema.build().expect("the schema has no mistakes");
        let mut peer = Peer::alone(schema, Config::default()).expect("the settings are good");
        let mut world = World::new();
        peer.keep_saves(&mut world, options.depth).expect("it is alone");
        for i in 0..options.entities {
            peer.spawn(&mut world, Unit, values(i as u64)).expect("a host may spawn");
        }
        let mut bench = Self { peer, world, now: Duration::ZERO, victims: Vec::new(), churn: options.churn };
        bench.peer.receive(bench.now, &mut bench.world).expect("time goes on");
        bench
    }

    /// Time goes on by a tick.
    fn pass(&mut self) {
        self.now += self.peer.tick_length() + Duration::from_nanos(1);
        self.peer.receive(self.now, &mut self.world).expect("time goes on");
    }

    /// Births and deaths: the same whenever the step is run. Who dies is chosen among all, outside of what is timed.
    fn churn(world: &mut World, step: &mut Step<'_>, victims: &[Entity]) {
        for (i, victim) in (0..).zip(victims) {
            step.despawn(world, *victim).expect("it was found alive");
            let seed = step.rng(NetId(0), i).next_u64();
            step.spawn(world, Unit, values(seed)).expect("there are names");
        }
    }

    fn choose(world: &mut World, step: &Step<'_>, count: usize, victims: &mut Vec<Entity>) {
        victims.clear();
        let mut rng = step.rng(NetId(1), 0);
        let all = world.query::<&Rewound>().iter().count() as u32;
        let mut chosen: Vec<u32> = (0..count).map(|_| rng.below(all)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let (mut ordered, mut at) = (step.ordered::<Entity>(world), 0);
        while let Some((_, entity)) = ordered.next() {
            if chosen.binary_search(&at).is_ok() {
                victims.push(entity);
            }
            at += 1;
        }
    }

    fn archetype(&self) -> &Archetype {
        let archetypes = self.world.archetypes().filter(|a| a.has::<Rewound>() && a.has::<Health>());
        archetypes.max_by_key(|a| a.len()).expect("everybody is in it")
    }

    /// The restore, the restore with all saves, and the births and deaths beside.
    fn correct(&mut self, depth: usize) -> (Reading, Reading, Reading) {
        self.advance();
        let back = self.peer.tick().minus(depth as u64 - 1);
        let (restored, restore) = timed(|| self.peer.rewind(&mut self.world, back));
        let restored = restored.expect("it was saved");
        assert_eq!(restored.is_in_place(), self.churn == 0, "the path that this is about: {restored:?}");
        let (mut correct, mut churned) = (restore, Reading::default());
        for _ in 0..depth {
            let (save, churn) = self.step();
            self.advance();
            correct += save;
            churned += churn;
        }
        (restore, correct, churned)
    }

    /// Moves everybody, without being timed: the saves of two ticks are never the same.
    fn advance(&self) {
        self.world.query::<(&mut Position, &Velocity)>().with::<&Simulated>().iter().for_each(|(p, v)| {
            p.x = (p.x + v.x / 60.0) % 400.0;
            p.y = (p.y + v.y / 60.0) % 400.0;
        });
    }

    /// Runs a step; what the framework did is timed, and so are births and deaths.
    fn step(&mut self) -> (Reading, Reading) {
        let Self { peer, world, victims, churn, .. } = self;
        let (step, save) = timed(|| peer.next_step(world));
        let mut step = step.expect("a step is due");
        if *churn > 0 {
            Self::choose(world, &step, *churn, victims);
        }
        let ((), churned) = timed(|| Self::churn(world, &mut step, victims));
        (save, churned)
    }
}

/// What was measured.
#[derive(Default)]
struct Measured {
    copy: Series,
    save: Series,
    restore: Series,
    correct: Series,
    churn: Series,
    round: Series,
}

fn measure(options: &Options) -> Measured {
    let mut bench = Bench::new(options);
    let mut copies = Copies::default();
    copies.slots.resize_with(options.depth + 1, Default::default);
    let mut out = Measured::default();
    // in turns, so that what else the machine does meets all of them; the first ones of a turn find the caches cold
    let cold = options.depth + 1;
    for turn in 0..options.runs.div_ceil(TURN) + WARM_UP {
        for i in 0..cold + TURN {
            bench.advance();
            let (_, copy) = timed(|| copies.copy(bench.archetype()));
            if turn >= WARM_UP && i >= cold {
                out.copy.push(copy);
            }
        }
        for i in 0..cold + TURN {
            bench.advance();
            bench.pass();
            let (save, _) = bench.step();
            if turn >= WARM_UP && i >= cold {
                out.save.push(save);
            }
        }
        for _ in 0..TURN {
            let (restore, correct, churn) = bench.correct(options.depth);
            if turn >= WARM_UP {
                out.restore.push(restore);
                out.correct.push(correct);
                out.churn.push(churn);
            }
        }
        let (_, round) = timed(|| round(&bench.world));
        out.round.push(round);
    }
    out
}

/// What a predicted kind pays beside: position and velocity to the grid of the simulation.
fn round(world: &World) {
    let to_grid = |x: &mut f32| *x = (*x * GRID).round_ties_even() / GRID;
    world.query::<(&mut Position, &mut Velocity)>().with::<&Simulated>().iter().for_each(|(p, v)| {
        for x in [&mut p.x, &mut p.y, &mut p.z, &mut v.x, &mut v.y, &mut v.z] {
            to_grid(x);
        }
    });
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.depth == 0 || options.entities == 0 {
        eprintln!("there must be entities, and a depth");
        return ExitCode::FAILURE;
    }
    let m = measure(&options);
    let of = |s: &Series| s.cpu_us(0.5);
    let (copy, save, restore, correct) = (of(&m.copy), of(&m.save), of(&m.restore), of(&m.correct));
    let allocs = m.save.allocs().max(m.restore.allocs()).max(m.correct.allocs());
    if options.json {
        println!(
            "{{\"bench\":\"rewind\",\"n\":{},\"depth\":{},\"churn\":{},\"copy_us\":{copy:.2},\"save_us\":{save:.2},\
             \"restore_us\":{restore:.2},\"correct_us\":{correct:.2},\"churn_us\":{:.2},\"round_us\":{:.2},\"allocs\":{allocs},\"allocs_max\":{}}}",
            options.entities,
            options.depth,
            options.churn,
            of(&m.churn),
            of(&m.round),
            m.correct.allocs_max(),
        );
    } else {
        println!(
            "{} entities, {} ticks back, {} births and deaths a tick; medians",
            options.entities, options.depth, options.churn
        );
        println!("copy of four columns {copy:9.2} us");
        println!("save                 {save:9.2} us, {:.2} copies", save / copy);
        println!("restore              {restore:9.2} us");
        println!("correction           {correct:9.2} us, {allocs} allocations, at most {}", m.correct.allocs_max());
        println!("births and deaths    {:9.2} us beside, in all", of(&m.churn));
        println!("rounding to the grid {:9.2} us beside, a tick", of(&m.round));
    }
    ExitCode::SUCCESS
}
