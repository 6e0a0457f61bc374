//! Why does a peer (not) show an entity as it is?

use crate::netid::NetId;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::{Refusal, RefusalCounts};
use crate::relevance::Unseen;
use crate::subscriber::Fate;
use hecs::{Component, Entity, World};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// How long a refusal explains that nothing has changed.
const RECENT: Duration = Duration::from_secs(1);
/// Refusals that are remembered for it.
const REFUSALS: usize = 256;

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
    /// The peer does not see it.
    Unseen(Unseen),
    /// The peer sees the entity without that component.
    HiddenComponent,
    /// Everything of it is that peer's own, so it is told nothing.
    ItsOwn,
    /// A change since that tick is held back: the peer is told of this entity only every so many sends.
    Paced {
        /// The session tick of the change.
        since: Tick,
        /// Every how many sends.
        period: u8,
    },
    /// A change since that tick has found no room yet.
    NoRoom {
        /// The session tick of the change.
        since: Tick,
        /// What there was too little of.
        scarce: Scarce,
    },
    /// A change since that tick goes out with the next send.
    Due(Tick),
    /// The peer has it, or will have it in a moment, and cannot show it before its parent has come.
    WaitingForParent(NetId),
    /// Sent, neither acknowledged nor lost yet.
    InFlight,
    /// Nothing has changed: what somebody wrote within the last second was refused.
    Refused(Refusal),
    /// Nothing has changed that can travel: a value of it cannot (see [`News::Unsendable`](crate::News::Unsendable)).
    Unsendable,
    /// Nothing has changed: the peer has acknowledged everything there is.
    Acknowledged,
}

/// What kept something from being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scarce {
    /// Nothing.
    #[default]
    Nothing,
    /// The bandwidth that the peer is given.
    Bandwidth,
    /// The transport took no more.
    Transport,
    /// Too many packets are on their way without an answer.
    Answers,
}

impl fmt::Display for Scarce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Bandwidth => "the bandwidth that the peer is given",
            Self::Transport => "room in the transport",
            Self::Answers => "acknowledgements of what is on its way",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNetworked => f.write_str("the entity is not networked"),
            Self::NoLink => f.write_str("there is no link to that peer"),
            Self::NotPublished => f.write_str("this peer has authority over nothing of it"),
            Self::Unseen(why) => write!(f, "that peer does not see it: {why}"),
            Self::HiddenComponent => f.write_str("the component is hidden from that peer"),
            Self::ItsOwn => f.write_str("that peer has authority over all of it"),
            Self::Paced { since, period } => {
                write!(f, "a change of tick {since} is held back: it is told every {period} sends")
            }
            Self::NoRoom { since, scarce } => write!(f, "a change of tick {since} waits for {scarce}"),
            Self::Due(since) => write!(f, "a change of tick {since} goes out with the next send"),
            Self::WaitingForParent(parent) => write!(f, "it cannot be shown before its parent {parent} has come"),
            Self::InFlight => f.write_str("sent and not acknowledged yet"),
            Self::Refused(why) => write!(f, "nothing has changed; a write was refused: {why}"),
            Self::Unsendable => f.write_str("it has a value that cannot travel"),
            Self::Acknowledged => f.write_str("that peer has acknowledged all of it"),
        }
    }
}

/// Refusals of the last second, for [`Why::Refused`], and how many there were ever.
#[derive(Default)]
pub(crate) struct Refused(VecDeque<(Duration, NetId, Refusal)>, pub(crate) RefusalCounts);

impl Refused {
    pub(crate) fn note(&mut self, now: Duration, net: NetId, refusal: Refusal) {
        if self.0.len() == REFUSALS {
            self.0.pop_front();
        }
        self.0.push_back((now, net, refusal));
    }

    fn last(&self, now: Duration, net: NetId) -> Option<Refusal> {
        let recent = self.0.iter().rev().take_while(|(at, ..)| now <= *at + RECENT);
        recent.filter(|r| r.1 == net).map(|r| r.2).next()
    }
}

impl Peer {
    /// Where `entity` stands with `peer`: why it may not have changed there within the last second.
    #[must_use]
    pub fn why(&self, world: &World, entity: Entity, peer: PeerId) -> Why {
        let Some(slot) = self.entities.slot_at(world, entity) else { return Why::NotNetworked };
        let Some(link) = self.link_to(peer) else { return Why::NoLink };
        let Some(row) = self.is_published(slot) else { return Why::NotPublished };
        let Some(fate) = link.subscriber.fate(row) else {
            let scope = self.audience.as_ref().map(|a| &a.scope).zip(link.viewer.as_ref());
            let why = scope.map_or(Ok(()), |(scope, viewer)| scope.explain(viewer, world, slot));
            return Why::Unseen(why.err().unwrap_or(Unseen::Soon));
        };
        if let Some(since) = fate.pending_since {
            return self.why_pending(&fate, since, link.scarce);
        }
        if let Some(parent) = self.missing_at(slot, row, peer) {
            return Why::WaitingForParent(parent);
        }
        let net = self.entities.get(slot).map(|r| r.net).unwrap_or_default();
        match self.refused.last(self.time.now, net) {
            _ if fate.in_flight => Why::InFlight,
            _ if !fate.wanted => Why::ItsOwn,
            Some(refusal) => Why::Refused(refusal),
            None if self.capture.is_unsendable(slot) => Why::Unsendable,
            None if fate.told => Why::Acknowledged,
            None => Why::Due(self.time.tick),
        }
    }

    /// The same for one component.
    #[must_use]
    pub fn why_component<C: Component>(&self, world: &World, entity: Entity, peer: PeerId) -> Why {
        let row = self.entities.slot_at(world, entity).and_then(|slot| self.is_published(slot));
        let hidden = row.zip(self.link_to(peer)).map_or(0, |(row, link)| link.subscriber.hidden(row));
        match self.schema.component_of::<C>() {
            Some(c) if hidden >> c & 1 != 0 => Why::HiddenComponent,
            _ => self.why(world, entity, peer),
        }
    }

    fn why_pending(&self, fate: &Fate, since: Tick, scarce: Scarce) -> Why {
        let age = self.publisher.history.now().since(fate.sent);
        match fate.period {
            period if fate.told && age < u64::from(period) => Why::Paced { since, period },
            _ if self.dirty || scarce == Scarce::Nothing => Why::Due(since),
            _ => Why::NoRoom { since, scarce },
        }
    }

    /// The parent without which a peer cannot show an entity, if it has not acknowledged that.
    fn missing_at(&self, slot: u32, row: usize, peer: PeerId) -> Option<NetId> {
        let link = self.link_to(peer)?;
        let presence = self.publisher.presence(row);
        let parents = (1..self.schema.columns()).filter(|c| self.schema.component(*c).parent && presence.has(*c));
        let mut named = parents.filter_map(|c| {
            let words = self.publisher.history.value(c, row);
            self.schema.layout(c).entities(words).next()
        });
        let parent = named.find(|net| self.entities.slot_of(*net).is_some_and(|s| s != slot))?;
        let row = self.is_published(self.entities.slot_of(parent)?)?;
        (!link.subscriber.is_confirmed(row, &self.publisher)).then_some(parent)
    }
}
