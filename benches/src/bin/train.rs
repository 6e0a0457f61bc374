//! Makes trained tables of recordings. See the crate's README.

use clap::Parser;
use std::error::Error;
use std::path::PathBuf;
use tidelock::trained::Tables;
use tidelock_benches::training::read;

/// Recordings in, tables out.
#[derive(Parser)]
struct Options {
    /// Recordings of one schema.
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
    /// Where the tables go.
    #[arg(long, short)]
    out: PathBuf,
    /// So many tables at most.
    #[arg(long, default_value_t = 64)]
    most: usize,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let mut all = read(&options.recordings[0])?;
    for path in &options.recordings[1..] {
        all.merge(&read(path)?)?;
    }
    let tables = Tables::train(&all, options.most)?;
    std::fs::write(&options.out, tables.to_bytes())?;
    println!(
        "{} tables from {} numbers, {} bytes, digest {:016x}",
        tables.count(),
        all.total(),
        tables.to_bytes().len(),
        tables.digest()
    );
    Ok(())
}
