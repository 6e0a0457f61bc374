//! Criterion suites and workload benches of Tidelock: what they share. How to run them and what the figures mean is in this
//! crate's README.

#![deny(unsafe_code)]

pub mod alloc;
pub mod cast;
pub mod crowd;
pub mod floor;
#[cfg(feature = "sockets")]
pub mod links;
pub mod meter;
pub mod packer;
pub mod recording;
pub mod replay;
#[cfg(feature = "physics")]
pub mod scenes;
pub mod session;
pub mod stadium;
pub mod tap;
pub mod training;
