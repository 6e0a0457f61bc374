//! Resources that travel: components of one entity that the host keeps.

use super::{ComponentOptions, SchemaBuilder};
use crate::policy::Host;
use crate::replicate::Replicate;
use hecs::{Component, EntityBuilder};
use std::any::TypeId;

/// Marks the entity that carries the [resources that travel](SchemaBuilder::shared_resource): its kind, named
/// `tidelock.resources`. Put on by the framework alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedResources;

/// The name of their kind.
const KIND: &str = "tidelock.resources";

/// A resource that travels.
pub(crate) struct SharedEntry {
    pub(crate) type_id: TypeId,
    /// Adds what it begins as.
    pub(crate) first: fn(&mut EntityBuilder),
    checkpoint: bool,
}

impl SchemaBuilder {
    /// Registers a resource that travels: a value of the session instead of an entity, such as a score or the weather. It begins as
    /// `T::default()`, the host decides it, and every guest has it, whenever it joins and whatever else it is shown.
    ///
    /// It is a component of one networked entity that the host keeps, of a kind that is named `tidelock.resources`. So it
    /// has all that components have, told as theirs: options, digests, and with
    /// [`.notify_changes()`](ComponentOptions::notify_changes) news of changes. Rooms, rules and distances do not hide that
    /// entity; [`Relevance::show_only`](crate::Relevance::show_only) hides a single resource. With
    /// [`.checkpoint()`](ComponentOptions::checkpoint) resources are in the saves and snapshots of a peer that keeps some.
    ///
    /// Read it with [`Peer::resource`](crate::Peer::resource), and change it at the host with
    /// [`Peer::resource_mut`](crate::Peer::resource_mut) or [`Step::resource`](crate::Step::resource).
    ///
    /// ```
    /// use tidelock::{Config, Peer, Replicate, Schema};
    ///
    /// #[derive(Debug, Default, PartialEq, Replicate)]
    /// struct Score { red: u16, blue: u16 }
    ///
    /// let schema = Schema::builder("game").shared_resource::<Score>("score", |c| c.notify_changes()).build().unwrap();
    /// let (mut peer, mut world) = (Peer::alone(schema, Config::default()).unwrap(), hecs::World::new());
    /// peer.resource_mut::<Score>(&mut world).unwrap().red += 1;
    /// assert_eq!(*peer.resource::<Score>(&world).unwrap(), Score { red: 1, blue: 0 });
    /// ```
    #[must_use]
    pub fn shared_resource<T: Component + Replicate + Default>(
        mut self,
        name: &str,
        options: impl FnOnce(ComponentOptions<T>) -> ComponentOptions<T>,
    ) -> Self {
        let options = options(ComponentOptions::new());
        let first: fn(&mut EntityBuilder) = |builder| {
            builder.add(T::default());
        };
        self.shared.push(SharedEntry { type_id: TypeId::of::<T>(), first, checkpoint: options.checkpoint.is_some() });
        self.component(name, |_| options)
    }

    /// With the kind of the entity that carries them, if there are any.
    pub(super) fn with_shared_kind(self) -> Self {
        if self.shared.is_empty() {
            return self;
        }
        let is_kept = self.shared.iter().any(|entry| entry.checkpoint);
        self.kind_with::<SharedResources>(KIND, Host::default(), |kind| if is_kept { kind.rewound() } else { kind })
    }
}
