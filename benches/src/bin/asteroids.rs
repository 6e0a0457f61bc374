//! Tumbling bodies as a stream to one guest. See the crate's README.

use clap::Parser;
use std::error::Error;
use std::process::ExitCode;
use tidelock_benches::alloc::Counting;
use tidelock_benches::replay::{Rock, play};
use tidelock_benches::scenes::{ASTEROIDS, asteroids};
use tidelock_benches::training::Training;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Moments of which nothing is counted: a delay has come to rest by then.
const WARM_UP: usize = 30;

/// One recording.
#[derive(Parser)]
struct Options {
    /// The scene. Tables must be trained on another.
    #[arg(long, default_value_t = 201)]
    seed: u64,
    /// Updates, 30 a second.
    #[arg(long, default_value_t = 1800)]
    updates: usize,
    /// How old what the guest is known to have is, in ticks.
    #[arg(long, default_value_t = 2)]
    age: u32,
    #[command(flatten)]
    training: Training,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    if options.age == 0 || options.updates <= WARM_UP {
        eprintln!("--age is at least 1, and --updates more than {WARM_UP}");
        return Ok(ExitCode::FAILURE);
    }
    let recording = asteroids(options.seed, options.updates);
    let cost = play::<Rock>(&recording, options.age, WARM_UP, options.seed, &options.training)?;
    let moments = cost.moments as f64;
    let rate = |bytes: u64| bytes as f64 / moments * f64::from(recording.rate()) / 1000.0;
    let (payload, wire) = (rate(cost.payload), rate(cost.wire));
    let (update, bodies) = (cost.payload as f64 / moments, ASTEROIDS as f64);
    let each = |ns: u64| ns as f64 / moments / bodies;
    if options.json {
        println!(
            "{{\"bench\":\"asteroids\",\"kB_per_s\":{payload:.2},\"bytes_per_update\":{update:.1},\"wire_kB_per_s\":{wire:.2},\
             \"wire_bytes_per_update\":{:.1},\"bits_per_body\":{:.2},\"encode_ns\":{:.0},\"decode_ns\":{:.0},\"age\":{},\"equal\":{}}}",
            cost.wire as f64 / moments,
            update * 8.0 / bodies,
            each(cost.encode),
            each(cost.decode),
            options.age,
            cost.equal,
        );
    } else {
        println!("{ASTEROIDS} bodies, {} updates a second, known state {} ticks old", recording.rate(), options.age);
        println!("{payload:.2} kB/s of payload, {wire:.2} kB/s on the wire");
        println!("{update:.1} bytes an update, {:.2} bits a body", update * 8.0 / bodies);
        let parts: Vec<_> =
            cost.parts.iter().map(|(name, bits)| format!("{name} {:.2}", *bits as f64 / moments / bodies)).collect();
        println!("  of these {}", parts.join(", "));
        println!(
            "{:.0} ns a body at the host, {:.0} at the guest; worlds equal: {}",
            each(cost.encode),
            each(cost.decode),
            cost.equal
        );
    }
    Ok(if cost.equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
