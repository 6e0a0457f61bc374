//! What predicting costs the owner under `Host::predicted()`: a tick, and a correction, which goes back and runs the ticks since
//! again. The rounding to the simulation grid is told apart from the saves. See the crate's README.

use clap::Parser;
use hecs::World;
use std::process::ExitCode;
use std::time::Duration;
use tidelock::policy::Host;
use tidelock::{Checkpoint, Config, News, Peer, Replicate, Schema, SchemaBuilder, Simulated};
use tidelock_benches::alloc::Counting;
use tidelock_benches::meter::{Reading, Series, timed};
use tidelock_loopback::{Conditions, Network};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A host, and a guest that predicts everything that there is.
#[derive(Parser)]
struct Options {
    /// Entities.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    entities: u32,
    /// Corrections that are counted.
    #[arg(long, default_value_t = 60)]
    runs: usize,
    /// Nobody moves but by corrections.
    #[arg(long)]
    still: bool,
    /// The way between host and guest, in milliseconds.
    #[arg(long, default_value_t = 40)]
    latency: u64,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Ticks from one push by the host to the next.
const EVERY: u64 = 30;
/// Frames until everybody is in and everything has arrived.
const WARM_UP: u64 = 600;
/// Frames within which all corrections must have come.
const PATIENCE: u64 = 100_000;
/// Saves that the peer alone keeps.
const SAVES: usize = 64;

#[derive(Clone, Copy, Default, Replicate, Checkpoint)]
struct Position(#[net(step = 0.002, range = -512.0..=512.0)] [f32; 3]);

#[derive(Clone, Copy, Replicate, Checkpoint)]
struct Rotation(#[net(quat, bits = 10)] [f32; 4]);

#[derive(Clone, Copy, Default, Replicate, Checkpoint)]
struct Velocity(#[net(step = 0.01, range = -50.0..=50.0)] [f32; 3]);

#[derive(Clone, Copy, Default, Replicate, Checkpoint)]
struct Health(u16);

/// A session's input is what lets a guest's ticks run ahead.
#[derive(Clone, Copy, Default, Replicate)]
struct Stick(bool);

#[derive(Clone, Copy, Default)]
struct Unit;

fn parts() -> SchemaBuilder {
    Schema::builder("predict")
        .component::<Position>("position", |c| c.checkpoint())
        .component::<Rotation>("rotation", |c| c.checkpoint())
        .component::<Velocity>("velocity", |c| c.checkpoint())
        .component::<Health>("health", |c| c.checkpoint())
        .input::<Stick>("stick")
}

fn values(i: u32, still: bool) -> (Position, Rotation, Velocity, Health) {
    let part = |k: u32| ((i.wrapping_mul(2_654_435_761) >> k) & 0xff) as f32 / 256.0;
    let velocity = if still { [0.0; 3] } else { [part(0) - 0.5, part(8) - 0.5, 0.0] };
    (Position([part(0) * 400.0, part(8) * 400.0, part(16)]), Rotation([0.0, 0.0, 0.0, 1.0]), Velocity(velocity), Health(100))
}

/// The game's own step. Everybody stands still until all is known of everybody.
fn simulate(world: &World, tick: u64, seconds: f32) {
    if tick < WARM_UP / 2 {
        return;
    }
    world.query::<(&mut Position, &Velocity)>().with::<&Simulated>().iter().for_each(|(p, v)| {
        for (p, v) in p.0.iter_mut().zip(v.0) {
            *p += v * seconds;
        }
    });
}

/// What the framework took in a frame.
#[derive(Clone, Copy, Default)]
struct Frame {
    receive: Reading,
    /// All calls of `next_step`.
    steps: Reading,
    ticks: u64,
}

fn frame(peer: &mut Peer, world: &mut World, now: Duration) -> Frame {
    let mut out = Frame::default();
    ((), out.receive) = timed(|| peer.receive(now, world).expect("time goes on"));
    loop {
        let (step, reading) = timed(|| peer.next_step(world));
        out.steps += reading;
        let Some(step) = step else { break };
        out.ticks += 1;
        simulate(world, step.tick().0, step.seconds());
    }
    peer.send(now, world).expect("time goes on");
    out
}

#[derive(Default)]
struct Measured {
    /// `receive` and `next_step` in a frame with one tick and no correction.
    receive: Series,
    step: Series,
    /// The same in a frame with a correction.
    correct: Series,
    depths: Vec<u64>,
    /// `next_step` of a peer that keeps saves of the same world and rounds nothing.
    save: Series,
}

/// A host and a guest that owns everything.
fn predict(options: &Options, out: &mut Measured) {
    let network = Network::new(1);
    let way = Conditions { latency: Duration::from_millis(options.latency), ..Conditions::default() };
    let config = || Config { bandwidth: 1 << 33, session: Some(1), ..Config::default() };
    let schema = || parts().kind::<Unit>("unit", Host::predicted()).build().expect("the schema has no mistakes");
    let (mut host, mut there) = (Peer::host(schema(), network.host(), config()).expect("the settings are good"), World::new());
    let (mut guest, mut here) =
        (Peer::join(schema(), network.join(way, way), config()).expect("the settings are good"), World::new());
    let mut pushed = None;
    for i in 0.. {
        let now = host.tick_length() * i as u32 + Duration::from_nanos(i);
        while let Some(news) = host.poll_news() {
            let News::Joined { peer, .. } = news else { continue };
            for i in 0..options.entities {
                let unit = host.spawn(&mut there, Unit, values(i, options.still)).expect("a host may spawn");
                host.grant(&mut there, unit, 0, peer).expect("it has just joined");
                pushed = Some(unit);
            }
        }
        if let Some(unit) = pushed.filter(|_| i > WARM_UP && i % EVERY == 0)
            && let Ok(mut position) = there.get::<&mut Position>(unit)
        {
            position.0[2] = if position.0[2] > 1.0 { 0.0 } else { 2.0 };
        }
        frame(&mut host, &mut there, now);
        let before = guest.correction_count();
        let took = frame(&mut guest, &mut here, now);
        while guest.poll_news().is_some() {}
        if i <= WARM_UP {
            continue;
        }
        if guest.correction_count() > before {
            let mut sum = took.receive;
            sum += took.steps;
            out.correct.push(sum);
            out.depths.extend(guest.corrections().last().map(|c| c.depth));
        } else if took.ticks == 1 {
            out.receive.push(took.receive);
            out.step.push(took.steps);
        }
        if out.depths.len() >= options.runs || i > PATIENCE {
            break;
        }
    }
}

/// A peer alone with the same world, which keeps saves and does not round.
fn save(options: &Options, out: &mut Measured) {
    let schema = parts().kind_with::<Unit>("unit", Host::default(), |k| k.rewound()).build();
    let schema = schema.expect("the schema has no mistakes");
    let (mut peer, mut world) = (Peer::alone(schema, Config::default()).expect("the settings are good"), World::new());
    peer.keep_saves(&mut world, SAVES).expect("it is alone");
    for i in 0..options.entities {
        peer.spawn(&mut world, Unit, values(i, options.still)).expect("a host may spawn");
    }
    for i in 0..600u32 {
        let took = frame(&mut peer, &mut world, peer_time(i));
        if i > 200 && took.ticks == 1 {
            out.save.push(took.steps);
        }
    }
}

fn peer_time(frame: u32) -> Duration {
    Duration::from_nanos(u64::from(frame) * 16_666_667)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut m = Measured::default();
    predict(&options, &mut m);
    save(&options, &mut m);
    m.depths.sort_unstable();
    let Some(depth) = m.depths.get(m.depths.len() / 2).copied() else {
        eprintln!("nothing was corrected");
        return ExitCode::FAILURE;
    };
    let of = |series: &Series| series.cpu_us(0.5);
    let (receive, step, save, frame) = (of(&m.receive), of(&m.step), of(&m.save), of(&m.correct));
    // of each tick that is run again, and of the whole
    let (grid, correct) = (step - save, frame - receive - step);
    let rest = correct - (save + grid) * depth as f64;
    if options.json {
        println!(
            "{{\"bench\":\"predict\",\"n\":{},\"still\":{},\"corrections\":{},\"depth\":{depth},\"receive_us\":{receive:.1},\
             \"step_us\":{step:.1},\"save_us\":{save:.1},\"grid_us\":{grid:.1},\"correct_us\":{correct:.1},\"rest_us\":{rest:.1},\
             \"allocs\":{},\"step_allocs\":{}}}",
            options.entities,
            options.still,
            m.depths.len(),
            m.correct.allocs(),
            m.step.allocs(),
        );
    } else {
        println!("{} entities predicted by one guest; medians of {} corrections", options.entities, m.depths.len());
        println!("receive              {receive:9.1} us: reading and comparing, in a frame without a correction");
        println!("next_step            {step:9.1} us, {} allocations", m.step.allocs());
        println!("  of it the save     {save:9.1} us");
        println!("  and the grid       {grid:9.1} us: rounding, and remembering what was predicted");
        println!(
            "a correction         {correct:9.1} us beside, {depth} ticks deep, {} allocations in that frame",
            m.correct.allocs()
        );
        println!("  of it saves        {:9.1} us", save * depth as f64);
        println!("  and the grid       {:9.1} us", grid * depth as f64);
        println!("  and the rest       {rest:9.1} us: going back, and what is drawn fading");
    }
    ExitCode::SUCCESS
}
