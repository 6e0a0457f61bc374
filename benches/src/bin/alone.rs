//! What a session alone costs: frames of a world with a [`Peer`] around them, against the same frames without. See the crate's
//! README.

use clap::Parser;
use hecs::{Entity, World};
use std::process::ExitCode;
use std::time::Duration;
use tidelock::policy::Host;
use tidelock::{Config, Peer, Replicate, Schema, Simulated};
use tidelock_benches::alloc::Counting;
use tidelock_benches::meter::{Series, timed};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A world that moves, played alone.
#[derive(Parser)]
struct Options {
    /// Entities, all of which move.
    #[arg(long, default_value_t = 10_000)]
    entities: usize,
    /// Frames that are counted.
    #[arg(long, default_value_t = 600)]
    frames: u32,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Replicate)]
struct Position {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
}

#[derive(Clone, Copy, Default)]
struct Body;

fn advance(world: &World) {
    world.query::<&mut Position>().with::<&Simulated>().iter().for_each(|p| p.x = (p.x + 0.01) % 400.0);
}

fn main() -> ExitCode {
    let options = Options::parse();
    let schema = Schema::builder("alone").component::<Position>("position", |c| c).kind::<Body>("body", Host::default());
    let schema = schema.build().expect("the schema has no mistakes");
    let mut peer = Peer::alone(schema, Config::default()).expect("the settings are good");
    let (mut world, mut plain) = (World::new(), World::new());
    let mut entities: Vec<Entity> = Vec::new();
    for i in 0..options.entities {
        let position = Position { x: i as f32 % 400.0 };
        entities.push(peer.spawn(&mut world, Body, (position,)).expect("a host may spawn"));
        plain.spawn((position, Body, Simulated));
    }
    let tick = peer.tick_length() + Duration::from_nanos(1);
    let (mut with, mut without) = (Series::default(), Series::default());
    for frame in 0..options.frames + 60 {
        let now = tick * frame;
        let (_, framed) = timed(|| {
            peer.receive(now, &mut world).expect("time goes on");
            while let Some(_step) = peer.next_step(&mut world) {
                advance(&world);
            }
            peer.send(now, &mut world).expect("time goes on");
        });
        let (_, bare) = timed(|| advance(&plain));
        if frame >= 60 {
            with.push(framed);
            without.push(bare);
        }
    }
    let (framed, bare) = (with.cpu_us(0.5), without.cpu_us(0.5));
    let allocs = with.allocs_max();
    if options.json {
        println!(
            "{{\"bench\":\"alone\",\"n\":{},\"frame_us\":{framed:.2},\"bare_us\":{bare:.2},\"cost_us\":{:.2},\"allocs\":{allocs}}}",
            options.entities,
            framed - bare
        );
    } else {
        println!("{} entities, a frame: {framed:.2} us with a peer, {bare:.2} us without; {allocs} allocations", entities.len());
    }
    ExitCode::SUCCESS
}
