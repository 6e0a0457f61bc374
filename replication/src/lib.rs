//! A Rust framework that keeps the worlds of many machines in step.

#![forbid(unsafe_code)]

// The derives name the crate `::tidelock`, in here too.
extern crate self as tidelock;

mod block;
mod capture;
pub mod checkpoint;
mod codec;
mod column;
mod entities;
pub mod field;
mod history;
mod incoming;
pub mod interpolate;
pub mod layout;
pub mod netid;
mod outgoing;
mod peer_id;
pub mod policy;
mod presence;
mod publisher;
pub mod replicate;
mod schema;
mod subscriber;

pub use checkpoint::Checkpoint;
pub use interpolate::Interpolate;
pub use netid::NetId;
pub use peer_id::PeerId;
pub use replicate::Replicate;
pub use schema::Schema;
pub use tidelock_derive::{Checkpoint, Interpolate, Replicate};

#[cfg(test)]
mod wire_tests;
