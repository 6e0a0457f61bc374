//! Tidelock in Bevy: components of Bevy's world replicate under the schema and the policies of the core.
//!
//! ```
//! use bevy_app::{App, Update};
//! use bevy_ecs::prelude::*;
//! use tidelock::policy::Host;
//! use tidelock::{Config, Interpolate, Peer, Replicate};
//! use tidelock_bevy::{MirrorBuilder, NetUpdate, Simulated, Spawn, install};
//!
//! #[derive(Component, Clone, Copy, Replicate, Interpolate)]
//! struct Position(#[net(step = 0.01, range = -500.0..=500.0)] f32);
//! #[derive(Component, Clone, Copy, Default)]
//! struct Crate;
//!
//! let mirror = MirrorBuilder::new("game")
//!     .component::<Position>("position", |c| c.interpolate())
//!     .kind::<Crate>("crate", Host::default())
//!     .build()?;
//! let peer = Peer::alone(mirror.schema(), Config::default())?; // or `host`, or `join`, with a transport
//! let mut app = App::new();
//! app.add_plugins(bevy_time::TimePlugin);
//! install(&mut app, mirror, peer);
//! app.add_systems(NetUpdate, |mut all: Query<&mut Position, With<Simulated>>| all.iter_mut().for_each(|mut p| p.0 += 0.1));
//! app.world_mut().spawn((Spawn::default(), Crate, Position(0.0)));
//! app.update();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! The core runs over a `hecs` world of its own, within [`Session`]. Components are *mirrored*: what Bevy's change detection finds
//! changed goes to the core, and what the core has changed (by what came, by going back, by rounding) goes to Bevy, where it is a
//! change like others. What was just written to Bevy is known by its bits, so it does not go back as a change: there is no echo.
//!
//! * [`NetUpdate`] is the schedule of a tick. It runs once for each tick that is due and once more for each that is run again, in
//!   `PreUpdate`; `Res<`[`CurrentStep`]`>` says which it is, `Time` is that of ticks, and [`first_time`] is the run condition for what
//!   is heard and seen. Simulate there what has [`Simulated`], and nothing else.
//! * An entity with [`Spawn`] and a kind becomes networked after the system that spawned it; it has [`Linked`] then. What others
//!   spawn appears with its kind, its components and `Linked`. Despawning it in Bevy despawns it everywhere, where the policy allows it.
//! * Entities in components are mapped between the worlds: [`ChildOf`] by [`MirrorBuilder::parents`], others by
//!   [`MirrorBuilder::component_as`].
//! * What comes of ticks is sent in `Last`, with what `Update` has changed.
//!
//! A [`Peer`](tidelock::Peer) stays on one thread, so [`Session`] is `NonSend`.

#![forbid(unsafe_code)]

mod drive;
mod links;
mod mirror;
mod spawn;

pub use drive::{CurrentStep, Net, NetUpdate, Session, first_time, install};
pub use links::{Linked, Links, Simulated};
pub use mirror::{Mirror, MirrorBuilder, Parent};
pub use spawn::Spawn;

#[cfg(doc)]
use bevy_ecs::hierarchy::ChildOf;

/// The program of the book's page compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/bevy.md")]
struct Page;
