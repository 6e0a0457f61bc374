//! Trained tables in benches: recordings are made on one seed, and what they are worth is measured on another.

use clap::Args;
use std::error::Error;
use std::path::{Path, PathBuf};
use tidelock::Peer;
use tidelock::trained::{Recording, Tables};

/// What is recorded, and which tables are used.
#[derive(Args, Clone, Debug, Default)]
pub struct Training {
    /// Uses the trained tables in this file.
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,
    /// Records what the host sends and adds it to this file, of which `--bin train` makes tables. They are worth something on another
    /// seed only.
    #[arg(long, value_name = "FILE", conflicts_with = "tables")]
    record: Option<PathBuf>,
}

impl Training {
    /// The tables, if there are any.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn tables(&self) -> Result<Option<Tables>, Box<dyn Error>> {
        self.tables.as_ref().map(|path| Ok(Tables::from_bytes(&std::fs::read(path)?)?)).transpose()
    }

    /// Begins to record, if that is to be done.
    pub fn begin(&self, peer: &mut Peer) {
        if self.record.is_some() {
            peer.start_recording();
        }
    }

    /// Adds what was recorded to the file.
    ///
    /// # Errors
    /// If it cannot be read or written, or is a recording of something else.
    pub fn end(&self, peer: &mut Peer) -> Result<(), Box<dyn Error>> {
        let (Some(path), Some(mut recording)) = (&self.record, peer.take_recording()) else { return Ok(()) };
        if path.exists() {
            recording.merge(&read(path)?)?;
        }
        std::fs::write(path, recording.to_bytes())?;
        Ok(())
    }
}

/// Reads a recording.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> Result<Recording, Box<dyn Error>> {
    Ok(Recording::from_bytes(&std::fs::read(path)?)?)
}
