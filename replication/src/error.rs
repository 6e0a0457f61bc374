//! Errors that are the program's: fix the code.

use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::replicate::FieldError;
use thiserror::Error;

/// The program uses the library in a way that cannot work.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum UsageError {
    /// A setting that cannot be.
    #[error("configuration: {0}")]
    Config(&'static str),
    /// The type is not in the schema.
    #[error("{0} is not in the schema; register it before `build`")]
    NotInSchema(&'static str),
    /// The entity is not in the world, or not networked.
    #[error("the entity is not networked; spawn it through the peer or the step")]
    NotNetworked,
    /// The entity is networked already.
    #[error("the entity is networked already")]
    AlreadyNetworked,
    /// The entity carries no kind's marker.
    #[error("the entity has no kind: insert the kind's marker first")]
    NoKind,
    /// A guest's entity of a kind of which its owner decides no component: nothing of it would travel from there, so nobody would be
    /// told that it exists. Let the host spawn it and [grant](crate::Peer::grant) it, or give its owner authority over a component, be it
    /// one without fields.
    #[error(
        "nobody would be told of an entity of kind `{0}` that a guest spawns: its owner decides none of its components; let the host \
         spawn it, or give its owner authority over one"
    )]
    NothingOfIts(String),
    /// What the peer is, or the policy of the kind of entity, does not let it do that.
    #[error("this peer may not {0}")]
    NotAllowed(&'static str),
    /// Nothing can be spawned or sent yet, or any more.
    #[error("not in a session{0}")]
    NotInSession(&'static str),
    /// More entities were spawned within a round trip than a lease has names ([`limits::LEASE`](crate::netcore::limits::LEASE)), or
    /// more in one step than a step can name; try again in a moment. A guest comes in with a lease, and asks for the next in time.
    #[error("no name is free yet: a new lease is on its way")]
    NoNames,
    /// This peer publishes as many entities as one peer can.
    #[error("too many networked entities: at most {max} at a time", max = tidelock_netcore::limits::ROWS)]
    TooManyEntities,
    /// A value that is too large to travel.
    #[error("{what} would take {size} bytes, where at most {limit} are allowed")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Bytes that it takes.
        size: usize,
        /// Bytes that it may take.
        limit: usize,
    },
    /// A list has no such place.
    #[error("there is no item {index} in a list of {len}")]
    NoSuchItem {
        /// The place that was asked for.
        index: usize,
        /// How many items there are.
        len: usize,
    },
    /// A list or map has as many items as the schema allows.
    #[error("the list or map is full: the schema allows {max} items")]
    CollectionFull {
        /// How many.
        max: usize,
    },
    /// As many entities have a list or map as can have one.
    #[error("too many lists and maps of entities: at most {max} at a time", max = tidelock_netcore::limits::COLLECTIONS_HELD)]
    TooManyCollections,
    /// Such a peer is not in the session.
    #[error("no such peer")]
    NoSuchPeer,
    /// A message whose values cannot travel.
    #[error("the message cannot travel: {0}")]
    Message(FieldError),
    /// An input whose values cannot travel.
    #[error("the input cannot travel: {0}")]
    Input(FieldError),
    /// A guest asks what another peer does.
    #[error("the input of {0} is known to that peer and the host only")]
    NoInputOf(PeerId),
    /// A message with a field that needs an entity, but names none that has a name on the network: nobody could ever read it.
    #[error("{0} names an entity that is not networked, or is gone; nobody could read it")]
    NamesNobody(&'static str),
    /// The peer takes no more messages now.
    #[error("too many messages wait to be sent; the peer is too slow")]
    Backlog,
    /// Owner slots are below [`OWNER_SLOTS`](crate::policy::OWNER_SLOTS), and a schema has only those that its policies speak of.
    #[error("no policy of the schema speaks of owner slot {0}")]
    NoSuchSlot(usize),
    /// This peer asks to own what it owns already.
    #[error("this peer owns it already")]
    AlreadyOwner,
    /// Too many requests, to a peer or for ownership: wait for outcomes.
    #[error("too many requests at a time")]
    TooManyRequests,
    /// Nobody waits for an answer to such a request.
    #[error("no such request waits for an answer")]
    NoSuchRequest,
    /// `present` of a component that was registered without `.interpolate()`.
    #[error("the component is not interpolated; register it with `.interpolate()`")]
    NotInterpolated,
    /// Nothing was said about who gets what.
    #[error("no relevance is set; call `Peer::set_relevance` before guests join")]
    NoRelevance,
    /// An entity is unknown by that name.
    #[error("no entity is named {0}")]
    UnknownName(NetId),
}
