//! One link on loopback: the QUIC transport, plain quinn and raw UDP, in turn. See the crate's README.

use clap::Parser;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidelock_benches::links::{Link, Ours, Plain, Raw};
use tidelock_benches::meter::quantile;

/// Round trips and throughput over 127.0.0.1.
#[derive(Parser)]
struct Options {
    /// Round trips of each sort and link in a round.
    #[arg(long, default_value_t = 1000)]
    pings: u32,
    /// Rounds; in each, all links have their turn.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of throughput of each sort and link in a round.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Prints one JSON object a link instead of a table.
    #[arg(long)]
    json: bool,
}

/// What was measured of a link, in nanoseconds of a round trip, and bytes a second.
#[derive(Default)]
struct Figures {
    pings: [Vec<u64>; 2],
    rates: [Vec<u64>; 2],
}

impl Figures {
    fn p(&self, reliable: bool, part: f64) -> f64 {
        quantile(self.pings[usize::from(reliable)].iter().copied(), part) as f64 / 1000.0
    }

    fn mb(&self, reliable: bool) -> f64 {
        quantile(self.rates[usize::from(reliable)].iter().copied(), 0.5) as f64 / 1e6
    }
}

fn run(options: &Options) -> Result<Vec<(&'static str, Figures)>, Box<dyn Error>> {
    let links: [Box<dyn Link>; 3] = [Box::new(Raw::open()?), Box::new(Plain::open()?), Box::new(Ours::open()?)];
    let names = links.iter().map(|l| l.name());
    let mut all: Vec<(&str, Figures)> = names.map(|name| (name, Figures::default())).collect();
    let mut links = links;
    for round in 0..=options.rounds {
        for (link, (_, figures)) in links.iter_mut().zip(&mut all) {
            for reliable in [false, true] {
                let Figures { pings, rates } = &mut *figures;
                let (pings, rates) = (&mut pings[usize::from(reliable)], &mut rates[usize::from(reliable)]);
                if !link.carries(reliable) {
                    continue;
                }
                // the first round is not counted
                let count = if round == 0 { options.pings / 10 } else { options.pings };
                for _ in 0..count {
                    let start = Instant::now();
                    link.ping(reliable)?;
                    if round > 0 {
                        pings.push(start.elapsed().as_nanos() as u64);
                    }
                }
                if round > 0 {
                    let start = Instant::now();
                    let bytes = link.pour(reliable, Duration::from_secs_f64(options.seconds))?;
                    rates.push((bytes as f64 / start.elapsed().as_secs_f64()) as u64);
                }
            }
        }
    }
    Ok(all)
}

fn print(options: &Options, all: &[(&str, Figures)]) {
    let quinn = &all[1].1;
    for (name, figures) in all {
        let ratio = |reliable, part| figures.p(reliable, part) / quinn.p(reliable, part).max(0.001);
        let reliable = !figures.pings[1].is_empty();
        if options.json {
            println!(
                "{{\"bench\":\"wire\",\"link\":\"{name}\",\"datagram_p50_us\":{:.1},\"datagram_p99_us\":{:.1},\"message_p50_us\":{:.1},\
                 \"message_p99_us\":{:.1},\"datagram_mb_per_s\":{:.1},\"message_mb_per_s\":{:.1},\"datagram_ratio\":{:.3},\
                 \"message_ratio\":{:.3}}}",
                figures.p(false, 0.5),
                figures.p(false, 0.99),
                figures.p(true, 0.5),
                figures.p(true, 0.99),
                figures.mb(false),
                figures.mb(true),
                ratio(false, 0.5),
                ratio(true, 0.5),
            );
            continue;
        }
        let line = |sort: &str, is| {
            println!(
                "{name:>8} {sort:9} p50 {:8.1} us  p99 {:8.1} us  {:8.1} MB/s  p50 {:5.2} x quinn, p99 {:5.2} x",
                figures.p(is, 0.5),
                figures.p(is, 0.99),
                figures.mb(is),
                ratio(is, 0.5),
                ratio(is, 0.99),
            );
        };
        line("datagrams", false);
        if reliable {
            line("messages", true);
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(all) => {
            print(&options, &all);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
