//! Tidelock keeps the worlds of many machines in step: multiplayer over a [`hecs`] world.
//!
//! In this order it is: correct under loss and malice, simple to read, small on the wire, fast, comfortable.
//!
//! ```
//! use std::time::Duration;
//! use tidelock::{Config, Interpolate, Peer, Replicate, Schema, policy::Host};
//!
//! #[derive(Clone, Copy, Replicate, Interpolate)]
//! struct Position {
//!     #[net(step = 0.01, range = -500.0..=500.0)]
//!     x: f32,
//! }
//! #[derive(Clone, Copy, Default)]
//! struct Crate;
//!
//! let schema = Schema::builder("game")
//!     .component::<Position>("position", |c| c.interpolate())
//!     .kind::<Crate>("crate", Host::default())
//!     .build()?;
//! let mut world = hecs::World::new();
//! let mut peer = Peer::alone(schema, Config::default())?; // or `host`, or `join`, with a transport
//! peer.spawn(&mut world, Crate, (Position { x: 0.0 },))?;
//! for frame in 0..60 {
//!     let now = Duration::from_millis(17) * frame; // since the program's start
//!     peer.receive(now, &mut world)?; // network in
//!     while let Some(step) = peer.next_step(&mut world) {
//!         step.query::<&mut Position>(&world).iter().for_each(|p| p.x += 1.0 * step.seconds());
//!     }
//!     peer.send(now, &mut world)?; // network out
//!     for (_entity, _position) in peer.present::<Position>(&world, now)? {
//!         // draw
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The contract
//!
//! Once per frame: [`Peer::receive`], then every [`Peer::next_step`] until there is none, then [`Peer::send`], all with the time
//! since the program's own start. Steps are **requests**, to be run in order; what happened is told as [`News`], to which nobody
//! has to listen. Networked entities are spawned and despawned through the [`Step`], or through the [`Peer`] outside of one. The
//! world holds simulation values; what to draw comes from [`Peer::present`]. There are no callbacks into the game but
//! implementations of traits and `validate` closures, and nothing is registered but in the one [`Schema`].
//!
//! # Where to read on
//!
//! [`policy`] says who decides, [`replicate`] and [`layout`] how components travel, [`testing`] how whole sessions are tested
//! without a network or a clock.

#![forbid(unsafe_code)]

// The derives name the crate `::tidelock`, in here too.
extern crate self as tidelock;

mod accept;
mod admission;
mod apply;
mod audience;
mod authority;
mod blob;
mod block;
mod capture;
pub mod checkpoint;
mod codec;
mod codes;
mod codings;
pub mod collections;
mod column;
mod computed;
mod config;
pub mod definitions;
mod entities;
mod error;
mod few;
pub mod field;
mod forecast;
mod forks;
mod frames;
mod glance;
mod grid;
mod groups;
pub mod growing;
mod guesses;
mod history;
mod incoming;
pub mod input;
pub mod interpolate;
mod judge;
mod kinship;
mod lag;
pub mod layout;
mod lifetimes;
mod link;
mod list;
mod look;
mod messages;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod netid;
mod news;
mod order;
mod outgoing;
mod packing;
mod peer;
mod peer_id;
mod pick;
pub mod policy;
mod predict;
mod presence;
mod present;
mod preview;
mod publisher;
mod receipts;
mod reckon;
mod relevance;
pub mod replicate;
mod requests;
mod resources;
mod rewind;
mod rng;
mod room;
mod rows;
mod schema;
mod scope;
mod settle;
mod step;
mod strays;
mod subscriber;
pub mod testing;
mod tick;
mod ticks;
mod trace;
pub mod trained;
mod tuner;
mod turn;
mod values;
mod view;
mod viewer;
mod visit;
mod waiting;
mod why;

pub use checkpoint::Checkpoint;
pub use column::{Form, Write};
pub use config::{Config, Interpolation, OnFork};
pub use definitions::{Defined, DefinitionRef};
pub use entities::{InLockstep, InRollback, Networked, Simulated};
pub use error::UsageError;
pub use frames::{OrderId, Seat};
pub use input::{Input, InputReport, Press, Source};
pub use interpolate::Interpolate;
pub use lag::{Past, SeenAt};
pub use link::{Backlog, LinkCounters};
pub use messages::{Event, LargeId, LargeMessage, Replies, Request, RequestFailure, RequestId, To};
pub use netid::NetId;
pub use news::News;
pub use order::Ordered;
pub use packing::Packing;
pub use peer::{Peer, PeerInfo, PeerStats};
pub use peer_id::PeerId;
pub use predict::{Cause, Correction, CorrectionCounts};
pub use receipts::{Decision, Receipt, Traffic};
pub use relevance::{Detail, Relevance, Room, Sight, Unseen, Viewpoint};
pub use replicate::Replicate;
pub use requests::{Denial, Requests};
pub use rewind::{Restored, RewindError, Rewound, SnapshotError};
pub use rng::Rng;
pub use schema::{ComponentOptions, KindOptions, Schema, SchemaBuilder, SchemaError, SchemaMistake, SharedResources};
pub use step::Step;
pub use subscriber::StreamStats;
pub use tidelock_derive::{Checkpoint, Interpolate, Replicate};
pub use tidelock_netcore as netcore;
pub use visit::{Visited, VisitedIter};
pub use why::{Scarce, Why};

#[cfg(test)]
mod churn_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod scope_tests;
#[cfg(test)]
mod wire_tests;

/// The code of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
