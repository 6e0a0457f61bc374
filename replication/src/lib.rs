//! A Rust framework that keeps the worlds of many machines in step.

#![forbid(unsafe_code)]

// The derives name the crate `::tidelock`, in here too.
extern crate self as tidelock;

pub mod checkpoint;
mod codec;
pub mod field;
pub mod interpolate;
pub mod layout;
pub mod netid;
pub mod replicate;

pub use checkpoint::Checkpoint;
pub use interpolate::Interpolate;
pub use netid::NetId;
pub use replicate::Replicate;
pub use tidelock_derive::{Checkpoint, Interpolate, Replicate};
