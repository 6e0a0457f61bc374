//! Why a run of the arena fails.

use thiserror::Error;
use tidelock::netcore::error::{DisconnectReason, TransportError};
use tidelock::{SchemaError, UsageError};
use tidelock_quic::{IdentityError, JoinError};

/// Told to the person who started it; the exit status is 1.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The host's address cannot be used.
    #[error("cannot listen: {0}")]
    Listen(TransportError),
    /// No certificate.
    #[error("cannot listen: {0}")]
    Identity(#[from] IdentityError),
    /// The address is wrong, or this machine has no socket left.
    #[error("cannot join: {0}")]
    Join(#[from] JoinError),
    /// The bad network stands between numeric addresses only.
    #[error("cannot join: {0:?} is a name; latency, jitter and loss need a numeric address:port#fingerprint")]
    NeedsNumbers(String),
    /// The bad network has no socket or thread.
    #[error("cannot simulate a bad network: {0}")]
    Shim(std::io::Error),
    /// The host did not let this guest in.
    #[error("could not join: {0}")]
    NotAdmitted(DisconnectReason),
    /// The session ended before its time.
    #[error("lost the host: {0}")]
    Lost(DisconnectReason),
    /// Not all guests of this process came in.
    #[error("only {0} of {1} guests came in")]
    Missing(usize, usize),
    /// The worlds were not equal at the end.
    #[error("this world is not equal to the host's; what differs: {0}")]
    Differs(String),
    /// What every peer computes was not the same everywhere.
    #[error("{0} ticks did not come out as they did at the host")]
    Diverged(u32),
    /// The game is not over, or the host has not asked.
    #[error("this world was not compared with the host's")]
    NotCompared,
    /// The same as [`Failure::Differs`], seen from the host.
    #[error("the worlds did not end equal: {0}")]
    NotEqual(String),
    /// The terminal does not do what a live view needs.
    #[error("cannot show it here, try --plain: {0}")]
    Terminal(std::io::Error),
    /// Somebody did not want to wait.
    #[error("stopped before the worlds were compared")]
    Stopped,
    /// This program misuses the library.
    #[error("a mistake in this program: {0}")]
    Usage(#[from] UsageError),
    /// The same.
    #[error("a mistake in this program: {0}")]
    Schema(#[from] SchemaError),
}
