//! The crowd through a host, its guests and the loopback, with the floor beside it. See the crate's README.

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use tidelock_benches::alloc::Counting;
use tidelock_benches::cast::{Cast, Full, Points};
use tidelock_benches::crowd::{Crowd, Motion};
use tidelock_benches::floor::Floor;
use tidelock_benches::meter::{Reading, Series, peak_rss_mb, quantile};
use tidelock_benches::session::{Session, Weather};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Ticks that are run and not measured.
const WARM_UP: u32 = 30;

/// One host and its guests, all in this process.
#[derive(Parser)]
struct Options {
    /// Entities.
    #[arg(long, default_value_t = 10_000)]
    entities: usize,
    /// The part of them that moves in each tick; 0: nothing changes at all.
    #[arg(long, default_value_t = 0.1)]
    changed: f32,
    /// Guests, all with a world of their own.
    #[arg(long, default_value_t = 1)]
    guests: usize,
    /// Ticks that are measured.
    #[arg(long, default_value_t = 120)]
    ticks: u32,
    /// Ticks that acknowledgements are under way beyond the next one.
    #[arg(long, default_value_t = 0)]
    ack_delay: u32,
    /// The part of the datagrams that is lost, in both directions.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Do velocities change?
    #[arg(long, value_enum, default_value_t = Velocity::Steady)]
    velocity: Velocity,
    /// Which components travel.
    #[arg(long, value_enum, default_value_t = Components::Full)]
    schema: Components,
    /// Decides which datagrams are lost.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Velocity {
    /// Never.
    Steady,
    /// Each mover's is drawn anew every 30 ticks.
    Changing,
}

#[derive(Clone, Copy, ValueEnum)]
enum Components {
    /// Position, rotation, velocity, health.
    Full,
    /// Position alone.
    Points,
}

#[derive(Default)]
struct Results {
    server: Series,
    server_receive: Series,
    server_send: Series,
    client: Series,
    client_send: Series,
    floor: Series,
    floor_client: Series,
    bytes: Vec<u64>,
    equal: bool,
    seconds: f64,
}

fn run<C: Cast>(options: &Options) -> Results {
    let started = std::time::Instant::now();
    let motion = match options.velocity {
        Velocity::Steady => Motion::Steady,
        Velocity::Changing => Motion::Turning,
    };
    let crowd = Crowd::new(options.entities, options.changed, motion);
    let weather = Weather { ack_delay: options.ack_delay, loss: options.loss, seed: options.seed };
    let mut session = Session::<C>::new(crowd, options.guests, weather);
    let mut floor = Floor::new(C::columns(), options.guests, &session.host.world);
    let mut results = Results::default();
    for n in 0..WARM_UP + options.ticks {
        let frame = session.tick();
        let (floor_host, floor_guest) = floor.tick(&session.host.world);
        if n < WARM_UP {
            continue;
        }
        let mut server = Reading::default();
        server += frame.host_receive;
        server += frame.host_send;
        results.server.push(server);
        results.server_receive.push(frame.host_receive);
        results.server_send.push(frame.host_send);
        frame.guest_receive.iter().for_each(|r| results.client.push(*r));
        frame.guest_send.iter().for_each(|r| results.client_send.push(*r));
        results.floor.push(floor_host);
        results.floor_client.push(floor_guest);
        results.bytes.extend(&frame.bytes);
    }
    let floor_equal = floor.is_equal(&session.host.world);
    session.settle(600);
    results.equal = floor_equal && session.is_equal();
    results.seconds = started.elapsed().as_secs_f64();
    results
}

fn print(options: &Options, results: &Results) {
    let Results { server, client, floor, floor_client, .. } = results;
    let bytes = quantile(results.bytes.iter().copied(), 0.5);
    let mean = results.bytes.iter().sum::<u64>() as f64 / results.bytes.len().max(1) as f64;
    let (n, f, m) = (options.entities, options.changed, options.guests);
    if options.json {
        println!(
            "{{\"bench\":\"crowd\",\"n\":{n},\"f\":{f},\"m\":{m},\"server_us\":{:.1},\"server_us_p95\":{:.1},\"bytes_per_client\":{bytes},\
             \"client_us\":{:.1},\"server_allocs\":{},\"client_allocs\":{},\"peak_rss_mb\":{:.1},\"floor_us\":{:.1},\
             \"floor_client_us\":{:.1},\"threads\":1,\"equal\":{},\"bytes_mean\":{mean:.0},\"server_wall_us\":{:.1},\
             \"server_receive_us\":{:.1},\"server_allocs_max\":{},\"client_send_us\":{:.1},\"schema\":\"{}\",\"ack_delay\":{},\"loss\":{}}}",
            server.cpu_us(0.5),
            server.cpu_us(0.95),
            client.cpu_us(0.5),
            server.allocs(),
            client.allocs(),
            peak_rss_mb(),
            floor.cpu_us(0.5),
            floor_client.cpu_us(0.5),
            results.equal,
            server.wall_us(),
            results.server_receive.cpu_us(0.5),
            server.allocs_max(),
            results.client_send.cpu_us(0.5),
            options.schema.name(),
            options.ack_delay,
            options.loss,
        );
        return;
    }
    let ratio = |ours: &Series, floor: &Series| ours.cpu_us(0.5) / floor.cpu_us(0.5).max(0.1);
    println!("{n} entities, {f} of them changing, {m} guests, {} ticks in {:.1} s", options.ticks, results.seconds);
    println!("host    {:9.1} µs  {:6.2} × floor  {:9.1} µs wall", server.cpu_us(0.5), ratio(server, floor), server.wall_us());
    println!("  receive {:7.1} µs   send {:9.1} µs", results.server_receive.cpu_us(0.5), results.server_send.cpu_us(0.5));
    println!("  p95   {:9.1} µs  allocations {} (at most {})", server.cpu_us(0.95), server.allocs(), server.allocs_max());
    println!(
        "guest   {:9.1} µs  {:6.2} × floor  {:9.1} µs wall",
        client.cpu_us(0.5),
        ratio(client, floor_client),
        client.wall_us()
    );
    println!(
        "  send  {:9.1} µs  allocations {} and {}",
        results.client_send.cpu_us(0.5),
        client.allocs(),
        results.client_send.allocs()
    );
    println!("floor   {:9.1} µs  guest {:.1} µs", floor.cpu_us(0.5), floor_client.cpu_us(0.5));
    println!("bytes per guest and tick: median {bytes}, mean {mean:.0}");
    println!("most memory {:.1} MB, guests' worlds included; worlds equal: {}", peak_rss_mb(), results.equal);
}

impl Components {
    fn name(self) -> &'static str {
        match self {
            Self::Full => Full::NAME,
            Self::Points => Points::NAME,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let results = match options.schema {
        Components::Full => run::<Full>(&options),
        Components::Points => run::<Points>(&options),
    };
    print(&options, &results);
    if results.equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
