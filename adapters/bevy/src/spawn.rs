//! Entities of Bevy that become networked.

use bevy_ecs::prelude::*;
use tidelock::PeerId;

/// Asks that an entity with a kind's marker becomes networked. It is taken off when it has [`Linked`](crate::Linked), or cannot
/// have it: see [`Session::take_failures`](crate::Session::take_failures). While names are on their way, it waits.
#[derive(Component, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spawn {
    /// For what is predicted: whose it is. See [`Step::spawn_for`](tidelock::Step::spawn_for).
    pub owner: Option<PeerId>,
    /// A key of the game's: see [`Step::spawn_as`](tidelock::Step::spawn_as).
    pub key: u64,
}
