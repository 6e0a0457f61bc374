//! Why does a peer (not) show an entity as it is?

use crate::peer::Peer;
use crate::peer_id::PeerId;
use hecs::{Entity, World};
use std::fmt;
use tidelock_netcore::tick::Tick;

/// Where an entity stands with a peer, for [`Peer::why`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The entity is not networked here.
    NotNetworked,
    /// There is no link to that peer.
    NoLink,
    /// This peer does not publish the entity: it has authority over nothing of it.
    NotPublished,
    /// Everything of it is that peer's own, so it is told nothing.
    ItsOwn,
    /// A change waits to be sent, since this tick.
    Waiting(Tick),
    /// Sent, neither acknowledged nor lost yet.
    InFlight,
    /// The peer has acknowledged everything there is.
    Acknowledged,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNetworked => f.write_str("the entity is not networked"),
            Self::NoLink => f.write_str("there is no link to that peer"),
            Self::NotPublished => f.write_str("this peer has authority over nothing of it"),
            Self::ItsOwn => f.write_str("that peer has authority over all of it"),
            Self::Waiting(tick) => write!(f, "a change waits to be sent since tick {tick}"),
            Self::InFlight => f.write_str("sent and not acknowledged yet"),
            Self::Acknowledged => f.write_str("that peer has acknowledged all of it"),
        }
    }
}

impl Peer {
    /// Where `entity` stands with `peer`: what this peer would have to send, has sent, and knows to have arrived.
    #[must_use]
    pub fn why(&self, world: &World, entity: Entity, peer: PeerId) -> Why {
        let Some(slot) = self.entities.slot_at(world, entity) else { return Why::NotNetworked };
        let Some(link) = self.link_to(peer) else { return Why::NoLink };
        let Some(row) = self.is_published(slot) else { return Why::NotPublished };
        let Some(fate) = link.subscriber.fate(row) else { return Why::NoLink };
        match fate {
            _ if fate.pending_since.is_some() => Why::Waiting(fate.pending_since.unwrap_or_default()),
            _ if fate.in_flight => Why::InFlight,
            _ if !fate.wanted => Why::ItsOwn,
            _ if fate.told => Why::Acknowledged,
            _ => Why::Waiting(self.time.tick),
        }
    }
}
