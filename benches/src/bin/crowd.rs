//! The crowd through a host, its guests and the loopback, with the floor beside it. See the crate's README.

use clap::{Parser, ValueEnum};
use std::error::Error;
use std::process::ExitCode;
use tidelock_benches::alloc::{self, Counting, Side};
use tidelock_benches::cast::{Cast, Full, Points};
use tidelock_benches::crowd::{Crowd, Motion};
use tidelock_benches::floor::Floor;
use tidelock_benches::meter::{Reading, Series, peak_rss_mb, quantile};
use tidelock_benches::session::{Seen, Session, Shape, Weather};
use tidelock_benches::training::Training;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Ticks that are run and not measured.
const WARM_UP: u32 = 30;
/// Frames that everything may take to arrive when nothing changes any more.
const SETTLE: u64 = 600;
const MB: f64 = 1_048_576.0;

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
    /// Movers are drawn from so many neighbours instead of from all.
    #[arg(long)]
    within: Option<usize>,
    /// No two guests are alike: --delays and --halves.
    #[arg(long)]
    unlike: bool,
    /// Every guest's acknowledgements are under way for a time of its own, 1 to 12 ticks.
    #[arg(long, conflicts_with = "ack_delay")]
    delays: bool,
    /// Every guest sees a random half of its own, by a rule.
    #[arg(long)]
    halves: bool,
    /// Halves are made by rooms instead, one for each guest.
    #[arg(long)]
    rooms: bool,
    /// Per cent of the entities that end in each tick; as many begin.
    #[arg(long, default_value_t = 0.0)]
    churn: f32,
    /// Tells in which sizes of blocks the host and the guests hold their memory.
    #[arg(long)]
    memory: bool,
    /// Do velocities change?
    #[arg(long, value_enum, default_value_t = Velocity::Steady)]
    velocity: Velocity,
    /// Which components travel.
    #[arg(long, value_enum, default_value_t = Components::Full)]
    schema: Components,
    /// Decides what is lost, each guest's delay and half, and who ends when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Another crowd of the same law: tables are to be trained on one and measured on another.
    #[arg(long, default_value_t = 0)]
    world: u64,
    #[command(flatten)]
    training: Training,
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
    churn: Series,
    client: Series,
    client_send: Series,
    floor: Series,
    floor_client: Series,
    bytes: Vec<u64>,
    equal: bool,
    seconds: f64,
    /// Bytes that the host, and one guest, held at most while it was measured.
    held: [i64; 2],
    /// What they held then, by size of block.
    blocks: [Vec<(u64, i64)>; 2],
}

impl Options {
    fn weather(&self) -> Weather {
        let delays = self.delays || self.unlike;
        Weather { ack_delay: self.ack_delay, loss: self.loss, seed: self.seed, delays }
    }

    fn shape(&self) -> Shape {
        let seen = match self.rooms {
            true => Seen::HalfByRooms,
            false if self.halves || self.unlike => Seen::HalfByRule,
            false => Seen::All,
        };
        Shape { seen, churn: self.churn / 100.0, tables: None }
    }

    fn motion(&self) -> Motion {
        match self.velocity {
            Velocity::Steady => Motion::Steady,
            Velocity::Changing => Motion::Turning,
        }
    }
}

fn run<C: Cast>(options: &Options) -> Result<Results, Box<dyn Error>> {
    let started = std::time::Instant::now();
    let crowd = Crowd::another(options.world, options.entities, options.changed, options.motion());
    let crowd = crowd.within(options.within.unwrap_or(usize::MAX));
    let shape = Shape { tables: options.training.tables()?, ..options.shape() };
    let mut session = Session::<C>::shaped(crowd, options.guests, options.weather(), shape);
    options.training.begin(&mut session.host.peer);
    let mut floor = Floor::new(C::columns(), options.guests, &session.host.world);
    let mut results = Results::default();
    for n in 0..WARM_UP + options.ticks {
        let frame = session.tick();
        let (floor_host, floor_guest) = floor.tick(&session.host.world);
        if n < WARM_UP {
            alloc::forget_most();
            continue;
        }
        let mut server = Reading::default();
        server += frame.host_receive;
        server += frame.host_send;
        results.server.push(server);
        results.server_receive.push(frame.host_receive);
        results.server_send.push(frame.host_send);
        results.churn.push(frame.churn);
        frame.guest_receive.iter().for_each(|r| results.client.push(*r));
        frame.guest_send.iter().for_each(|r| results.client_send.push(*r));
        results.floor.push(floor_host);
        results.floor_client.push(floor_guest);
        results.bytes.extend(&frame.bytes);
    }
    results.held = [alloc::most_held(Side::Host), alloc::most_held(Side::Guest) / options.guests.max(1) as i64];
    results.blocks = [alloc::blocks(Side::Host), alloc::blocks(Side::Guest)];
    options.training.end(&mut session.host.peer)?;
    let floor_equal = floor.is_equal(&session.host.world);
    session.settle(SETTLE);
    results.equal = floor_equal && session.is_equal();
    results.seconds = started.elapsed().as_secs_f64();
    Ok(results)
}

/// Median and mean.
fn bytes(results: &Results) -> (u64, f64) {
    let sum = results.bytes.iter().sum::<u64>() as f64;
    (quantile(results.bytes.iter().copied(), 0.5), sum / results.bytes.len().max(1) as f64)
}

fn print_json(options: &Options, results: &Results) {
    let Results { server, client, floor, floor_client, .. } = results;
    let ((bytes, mean), shape) = (bytes(results), options.shape());
    let (n, f, m) = (options.entities, options.changed, options.guests);
    println!(
        "{{\"bench\":\"crowd\",\"n\":{n},\"f\":{f},\"m\":{m},\"server_us\":{:.1},\"server_us_p95\":{:.1},\"bytes_per_client\":{bytes},\
         \"client_us\":{:.1},\"server_allocs\":{},\"client_allocs\":{},\"peak_rss_mb\":{:.1},\"floor_us\":{:.1},\
         \"floor_client_us\":{:.1},\"threads\":1,\"equal\":{},\"bytes_mean\":{mean:.0},\"server_wall_us\":{:.1},\
         \"server_receive_us\":{:.1},\"server_allocs_max\":{},\"client_send_us\":{:.1},\"schema\":\"{}\",\"ack_delay\":{},\"loss\":{},\
         \"delays\":{},\"seen\":\"{:?}\",\"churn\":{},\"churn_us\":{:.1},\"churn_allocs\":{},\"velocity_changes\":{},\
         \"host_mb\":{:.1},\"guest_mb\":{:.2}}}",
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
        options.weather().delays,
        shape.seen,
        options.churn,
        results.churn.cpu_us(0.5),
        results.churn.allocs_max(),
        options.motion() == Motion::Turning,
        results.held[0] as f64 / MB,
        results.held[1] as f64 / MB,
    );
}

fn print(options: &Options, results: &Results) {
    let Results { server, client, floor, floor_client, .. } = results;
    let (bytes, mean) = bytes(results);
    let (n, f, m) = (options.entities, options.changed, options.guests);
    let ratio = |ours: &Series, floor: &Series| ours.cpu_us(0.5) / floor.cpu_us(0.5).max(0.1);
    println!("{n} entities, {f} of them changing, {m} guests, {} ticks in {:.1} s", options.ticks, results.seconds);
    println!("host    {:9.1} µs  {:6.2} × floor  {:9.1} µs wall", server.cpu_us(0.5), ratio(server, floor), server.wall_us());
    println!("  receive {:7.1} µs   send {:9.1} µs", results.server_receive.cpu_us(0.5), results.server_send.cpu_us(0.5));
    println!("  p95   {:9.1} µs  allocations {} (at most {})", server.cpu_us(0.95), server.allocs(), server.allocs_max());
    if options.churn > 0.0 {
        println!("  ends and births {:.1} µs  allocations at most {}", results.churn.cpu_us(0.5), results.churn.allocs_max());
    }
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
    println!("the host held at most {:.1} MB, a guest {:.2} MB", results.held[0] as f64 / MB, results.held[1] as f64 / MB);
    println!("most memory {:.1} MB, guests' worlds included; worlds equal: {}", peak_rss_mb(), results.equal);
    for (side, blocks) in ["host", "all guests"].into_iter().zip(&results.blocks).filter(|_| options.memory) {
        println!("{side}, in blocks of up to so many bytes:");
        blocks.iter().for_each(|(size, bytes)| println!("  {size:>10}  {:9.2} MB", *bytes as f64 / MB));
    }
}

impl Components {
    fn name(self) -> &'static str {
        match self {
            Self::Full => Full::NAME,
            Self::Points => Points::NAME,
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    let results = match options.schema {
        Components::Full => run::<Full>(&options)?,
        Components::Points => run::<Points>(&options)?,
    };
    if options.json {
        print_json(&options, &results);
    } else {
        print(&options, &results);
    }
    Ok(if results.equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{count, held, within};

    const SIDES: [Side; 4] = [Side::Bench, Side::Host, Side::Guest, Side::Network];

    /// One test: the allocator counts for the whole process.
    #[test]
    fn each_sides_memory_is_told_from_the_others() {
        let block = within(Side::Guest, || vec![0u8; 1 << 20]);
        assert!(held(Side::Guest) >= 1 << 20 && held(Side::Host) == 0);
        assert_eq!(alloc::blocks(Side::Guest).last(), Some(&(1 << 20, 1 << 20)));
        within(Side::Guest, || drop(block));
        assert!(held(Side::Guest) < 1024);

        let weather = Weather { loss: 0.05, delays: true, seed: 9, ..Weather::default() };
        let shape = Shape { seen: Seen::HalfByRule, churn: 0.01, tables: None };
        let mut session = Session::<Full>::shaped(Crowd::new(1000, 0.5, Motion::Steady), 3, weather, shape);
        (0..60).for_each(|_| _ = session.tick());
        let (host, guests) = (held(Side::Host), held(Side::Guest));
        println!("the host holds {host} bytes, three guests {guests}");
        // 42 bytes an entity in the host's world, and at least as much of it in its history; each guest has a half
        assert!(host > 100_000 && guests > 100_000, "{host}, {guests}");
        assert_eq!(SIDES.iter().map(|side| held(*side)).sum::<i64>(), count().live);
        within(Side::Guest, || session.guests.clear());
        let left = held(Side::Guest);
        assert!(left.abs() < guests / 20, "{left} bytes of {guests} that guests took are said to be theirs after their end");
        within(Side::Host, || drop(session));
        let left = held(Side::Host);
        assert!(left.abs() < host / 4, "{left} bytes of {host} that the host took are said to be its after its end");
    }
}
