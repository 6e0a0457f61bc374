//! So many ticks of a small crowd, for counting instructions: `benches/instructions` runs it. Nothing is printed.

use clap::Parser;
use std::process::ExitCode;
use tidelock_benches::cast::Full;
use tidelock_benches::crowd::{Crowd, Motion};
use tidelock_benches::session::{Session, Weather};

/// 1 000 entities, a tenth of them moving, and four guests.
#[derive(Parser)]
struct Options {
    /// Ticks after everybody is in.
    #[arg(long, default_value_t = 120)]
    ticks: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut session = Session::<Full>::new(Crowd::new(1000, 0.1, Motion::Steady), 4, Weather::default());
    let bytes: u64 = (0..options.ticks).flat_map(|_| session.tick().bytes).sum();
    if options.ticks == 0 || bytes > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
