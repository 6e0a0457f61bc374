//! The bodies of the fuzz targets, so that tests on stable Rust can run the seeds through them.
//!
//! One module per target (`attack`, `forge`, `game` and `wire` are what some of them share): `run` takes any bytes and panics if a promise of the reader is broken; `seeds` makes a few inputs that
//! lead deep into it.

#![forbid(unsafe_code)]

pub mod address;
pub mod attack;
pub mod bits;
pub mod control;
pub mod definitions;
pub mod forge;
pub mod frames;
pub mod game;
pub mod header;
pub mod inputs;
pub mod layout;
pub mod operations;
pub mod session_host;
pub mod session_owner;
pub mod snapshot;
pub mod wire;

use peak_alloc::PeakAlloc;

/// Counts what is allocated, for targets that promise a bound.
#[global_allocator]
pub static ALLOCATED: PeakAlloc = PeakAlloc;

/// A target: its name, its body, its seeds.
pub struct Target {
    /// The name of the binary and of the folder below `seeds`.
    pub name: &'static str,
    /// The body.
    pub run: fn(&[u8]),
    /// The seeds.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target there is.
pub const TARGETS: &[Target] = &[
    Target { name: "address", run: address::run, seeds: address::seeds },
    Target { name: "bits", run: bits::run, seeds: bits::seeds },
    Target { name: "control", run: control::run, seeds: control::seeds },
    Target { name: "definitions", run: definitions::run, seeds: definitions::seeds },
    Target { name: "frames", run: frames::run, seeds: frames::seeds },
    Target { name: "header", run: header::run, seeds: header::seeds },
    Target { name: "inputs", run: inputs::run, seeds: inputs::seeds },
    Target { name: "layout", run: layout::run, seeds: layout::seeds },
    Target { name: "operations", run: operations::run, seeds: operations::seeds },
    Target { name: "session_host", run: session_host::run, seeds: session_host::seeds },
    Target { name: "session_owner", run: session_owner::run, seeds: session_owner::seeds },
    Target { name: "snapshot", run: snapshot::run, seeds: snapshot::seeds },
];
