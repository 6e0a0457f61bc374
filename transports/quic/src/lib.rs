//! Tidelock over QUIC.
#![forbid(unsafe_code)]

mod address;
mod codes;
mod config;
mod identity;
mod join;
mod link;
mod listen;
mod seats;
mod shared;
pub mod shim;
mod tls;
mod transport;

pub use address::{Address, AddressError};
pub use config::{ConnectionLimits, JoinConfig, ListenConfig, Timing};
pub use identity::{Fingerprint, Identity, IdentityError};
pub use transport::{JoinError, QuicTransport};
