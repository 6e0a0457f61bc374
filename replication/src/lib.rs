//! A Rust framework that keeps the worlds of many machines in step.

#![forbid(unsafe_code)]

// The derives name the crate `::tidelock`, in here too.
extern crate self as tidelock;

mod accept;
mod admission;
mod apply;
mod authority;
mod block;
mod capture;
pub mod checkpoint;
mod codec;
mod column;
mod config;
mod entities;
mod error;
pub mod field;
mod history;
mod incoming;
pub mod interpolate;
pub mod layout;
mod link;
mod messages;
pub mod netid;
mod news;
mod outgoing;
mod peer;
mod peer_id;
pub mod policy;
mod presence;
mod present;
mod publisher;
pub mod replicate;
mod schema;
mod settle;
mod step;
mod subscriber;
pub mod testing;
mod tick;
mod why;

pub use checkpoint::Checkpoint;
pub use column::Write;
pub use config::{Config, Interpolation};
pub use entities::{Networked, Simulated};
pub use error::UsageError;
pub use interpolate::Interpolate;
pub use link::LinkCounters;
pub use messages::To;
pub use netid::NetId;
pub use news::News;
pub use peer::{Peer, PeerInfo, PeerStats};
pub use peer_id::PeerId;
pub use replicate::Replicate;
pub use schema::{ComponentOptions, KindOptions, Schema, SchemaBuilder, SchemaError, SchemaMistake};
pub use step::Step;
pub use subscriber::StreamStats;
pub use tidelock_derive::{Checkpoint, Interpolate, Replicate};
pub use tidelock_netcore as netcore;
pub use why::Why;

#[cfg(test)]
mod wire_tests;
