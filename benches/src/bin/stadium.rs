//! Guests who walk among many others and get the nearest of them under a budget. See the crate's README.

use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use tidelock_benches::alloc::Counting;
use tidelock_benches::meter::{Series, peak_rss_mb};
use tidelock_benches::stadium::walkers::RATE;
use tidelock_benches::stadium::{FRAME, Setup, Stadium, Tier};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Seconds that are run and not measured.
const WARM_UP: u32 = 2;
/// Seconds that everything may take to arrive when all stand still.
const SETTLE: u64 = 30;
const MB: f64 = 1024.0 * 1024.0;

/// One host and its guests, all in this process.
#[derive(Parser)]
struct Options {
    /// Walkers, those of the guests included.
    #[arg(long, default_value_t = 10_000)]
    entities: usize,
    /// Guests, at most 1000.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=1000))]
    guests: u16,
    /// What each guest gets.
    #[arg(long, value_enum, default_value_t = TierName::Class)]
    tier: TierName,
    /// Seconds of virtual time that are measured.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Minutes instead of seconds.
    #[arg(long)]
    minutes: Option<u32>,
    /// The part of the datagrams that is lost, in both directions.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Decides all that is left to chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The host moves the guests' walkers; otherwise each guest moves its own.
    #[arg(long)]
    host_avatars: bool,
    /// Threads that the guests run on; the host runs on one, while they wait.
    #[arg(long, default_value_t = 2)]
    guest_threads: usize,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum TierName {
    /// The nearest 32 in 32 kbit/s.
    Class,
    /// The nearest 256 in 256 kbit/s.
    Stadium,
}

#[derive(Default)]
struct Results {
    ticks: Series,
    receives: Series,
    /// The host's live bytes, first and last.
    live: (i64, i64),
    most_live: i64,
    most_other: i64,
    kbps: f64,
    state_bits: f64,
    age_ms: [u64; 2],
    absent_pct: f64,
    per_guest: f64,
    equal: usize,
}

fn run(options: &Options, setup: Setup) -> Results {
    let mut stadium = Stadium::new(setup);
    for _ in 0..WARM_UP * RATE {
        stadium.tick();
    }
    stadium.begin();
    let mut results = Results::default();
    let before = stadium.state_sent();
    let frames = options.minutes.map_or(options.seconds, |m| m * 60).max(1) * RATE;
    results.live.0 = stadium.host_bytes();
    for _ in 0..frames {
        let frame = stadium.tick();
        results.ticks.push(frame.host);
        results.receives.push(frame.receive);
        results.most_live = results.most_live.max(stadium.host_bytes());
        results.most_other = results.most_other.max(stadium.other_bytes());
    }
    results.live.1 = stadium.host_bytes();
    results.state_bits = (stadium.state_sent().0 - before.0) as f64 * 8.0 / f64::from(frames) / f64::from(options.guests);
    results.kbps = stadium.worst_kbps();
    let ages = stadium.ages();
    results.age_ms = [0.99, 1.0].map(|part| ages.quantile(part) as u64 * FRAME.as_millis() as u64);
    results.absent_pct = ages.absent.1 as f64 * 100.0 / ages.absent.0.max(1) as f64;
    results.per_guest = stadium.bytes_per_guest();
    results.equal = stadium.settle(SETTLE * u64::from(RATE));
    results
}

/// Every row, each as large as on average, in ⌈rows × bits ÷ payload⌉ sends, and one more.
fn age_bound_ms(tier: Tier, state_bits: f64) -> u64 {
    const HEADERS: f64 = (28 + 16) as f64 * 8.0;
    let payload = f64::from(tier.kbps) * 1000.0 / f64::from(RATE) - HEADERS;
    ((state_bits / payload).ceil() as u64 + 1) * FRAME.as_millis() as u64
}

fn print(options: &Options, setup: &Setup, r: &Results) {
    let (ticks, tier) = (&r.ticks, setup.tier);
    let bound = age_bound_ms(tier, r.state_bits);
    let equal = r.equal == setup.guests;
    let rss = peak_rss_mb() - r.most_other as f64 / MB;
    let wall = [0.5, 0.99].map(|part| ticks.wall_us_of(part));
    let cpu = [0.5, 0.99].map(|part| ticks.cpu_us(part));
    if options.json {
        println!(
            "{{\"bench\":\"stadium\",\"tier\":{},\"n\":{},\"m\":{},\"loss\":{},\"tick_us\":{:.0},\"tick_us_p99\":{:.0},\
             \"tick_cpu_us\":{:.0},\"tick_cpu_us_p99\":{:.0},\"receive_cpu_us\":{:.0},\"kbps_max_second\":{:.2},\"age_ms_p99\":{},\
             \"age_ms_max\":{},\"age_bound_ms\":{bound},\"absent_pct\":{:.3},\"state_bits_per_send\":{:.0},\"mb_per_guest\":{:.4},\
             \"host_mb\":{:.1},\"host_mb_first\":{:.2},\"host_mb_last\":{:.2},\"peak_rss_mb\":{rss:.1},\"allocs\":{},\"threads\":1,\
             \"equal\":{equal},\"seed\":{}}}",
            tier.rows,
            setup.entities,
            setup.guests,
            setup.loss,
            wall[0],
            wall[1],
            cpu[0],
            cpu[1],
            r.receives.cpu_us(0.5),
            r.kbps,
            r.age_ms[0],
            r.age_ms[1],
            r.absent_pct,
            r.state_bits,
            r.per_guest / MB,
            r.most_live as f64 / MB,
            r.live.0 as f64 / MB,
            r.live.1 as f64 / MB,
            ticks.allocs(),
            setup.seed,
        );
        return;
    }
    println!("{} walkers, {} guests, nearest {}, {} kbit/s", setup.entities, setup.guests, tier.rows, tier.kbps);
    println!("host    {:9.0} µs wall, p99 {:.0}; {:.0} µs CPU, p99 {:.0}", wall[0], wall[1], cpu[0], cpu[1]);
    println!("  receive {:7.0} µs CPU   allocations {}", r.receives.cpu_us(0.5), ticks.allocs());
    println!("traffic {:9.2} kbit in the worst second of any guest, all included", r.kbps);
    println!("ages    {:9} ms p99, {} ms at most, bound {bound} ms; absent {:.3} %", r.age_ms[0], r.age_ms[1], r.absent_pct);
    println!("        {:9.0} bits of state per guest and send", r.state_bits);
    println!("memory  {:9.1} kB for each guest; host {:.1} MB", r.per_guest / 1024.0, r.most_live as f64 / MB);
    println!(
        "        {:9.2} MB live at first, {:.2} at last; {rss:.1} MB resident at most",
        r.live.0 as f64 / MB,
        r.live.1 as f64 / MB
    );
    println!("equal   {:9} of {} guests' worlds", r.equal, setup.guests);
}

fn main() -> ExitCode {
    let options = Options::parse();
    let tier = match options.tier {
        TierName::Class => Tier::CLASS,
        TierName::Stadium => Tier::STADIUM,
    };
    let setup = Setup {
        entities: options.entities.max(usize::from(options.guests)),
        guests: options.guests.into(),
        tier,
        loss: options.loss,
        seed: options.seed,
        host_avatars: options.host_avatars,
        threads: options.guest_threads.max(1),
    };
    let results = run(&options, setup);
    print(&options, &setup, &results);
    if results.equal == setup.guests { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
