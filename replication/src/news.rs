//! News: what happened, told once. Nobody has to listen.
//!
//! In one call of [`Peer::receive`](crate::Peer::receive) they come in this order: people and session in the order of arrival,
//! then entities that went, entities that came, and then, row by row, components removed, added and changed. A host with
//! [`Config::local_news`](crate::Config::local_news) is told of its own entities in the same order, at the next
//! [`Peer::send`](crate::Peer::send). News are about states, not about calls: what is removed and inserted again between two
//! sends is a change, what is inserted and removed is nothing, at home and everywhere else. For a component that notifies
//! changes, in numbers (removed, added, changed):
//!
//! | between two sends | told |
//! |---|---|
//! | removed and inserted with another value | 0, 0, 1 |
//! | removed and inserted with the same value | 0, 0, 0 |
//! | inserted and removed | 0, 0, 0 |
//! | an entity spawned and despawned | nothing at all |
//! | removed; inserted after the next send | 1, 1, 0 |
//!
//! At home and at a guest the numbers are the same as long as no packet is lost. A state that was lost and replaced meanwhile
//! was never there for the guest: it is told how the next one that arrives differs from the last (in the last line 0, 0, 1, or
//! nothing if the value is the same). What a guest does to its own entities the host is told once, when it accepts it.

use crate::messages::{LargeId, RequestFailure};
use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::policy::{Refusal, Timeline};
use crate::replicate::FieldError;
use crate::requests::Denial;
use crate::room::Room;
use hecs::Entity;
use std::collections::VecDeque;
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum News {
    /// This peer is in the session.
    Admitted {
        /// Who it is.
        local: PeerId,
    },
    /// This peer's session is over. Copies of others' entities are gone from the world; its own are local entities again.
    Disconnected {
        /// Why.
        reason: DisconnectReason,
    },
    /// Somebody knocked and was not let in (host only): other protocol versions or another schema, no free seat, no greeting in
    /// time, or one that does not follow the protocol. The other side is told the same reason. Of many in one frame only the
    /// first 16 are told.
    Rejected {
        /// Where it came from, as the transport names it.
        address: String,
        /// Why.
        reason: DisconnectReason,
    },
    /// Somebody joined.
    Joined {
        /// Who.
        peer: PeerId,
        /// What it calls itself.
        name: String,
    },
    /// Somebody left.
    Left {
        /// Who.
        peer: PeerId,
        /// Why.
        reason: DisconnectReason,
    },
    /// An entity appeared, with all its components. Now is the time to give it what is local: a mesh, a collider, a sound.
    Spawned {
        /// Its local handle.
        entity: Entity,
        /// Its name.
        net: NetId,
        /// The name of its kind.
        kind: String,
    },
    /// An entity is gone, its local parts with it.
    Despawned {
        /// What its local handle was.
        entity: Entity,
        /// Its name.
        net: NetId,
    },
    /// An entity went out of sight: the host does not show it to this peer any more. It may live on, and appear again, as a new
    /// local entity with the same name.
    Hidden {
        /// What its local handle was.
        entity: Entity,
        /// Its name.
        net: NetId,
    },
    /// A component was added to an entity that had been there.
    Added {
        /// The entity.
        entity: Entity,
        /// The component's name in the schema.
        component: String,
    },
    /// A component has another value than before; told for those registered with `.notify_changes()`. A value that is sent again
    /// is no change, nor are the first values, which come with [`Spawned`](Self::Spawned) or [`Added`](Self::Added).
    Changed {
        /// The entity.
        entity: Entity,
        /// The component's name in the schema.
        component: String,
    },
    /// A component was removed, or is withheld until an entity that it names is here.
    Removed {
        /// The entity.
        entity: Entity,
        /// The component's name in the schema.
        component: String,
    },
    /// A revision of a definition has come whole (guest only): see [`definitions`](crate::definitions).
    Defined {
        /// The name of its type in the schema.
        definition: String,
        /// Its key.
        key: u64,
        /// Its revision.
        revision: u32,
    },
    /// A list or map is another one than before (guest only): see [`growing`](crate::growing).
    CollectionChanged {
        /// Its name in the schema.
        collection: String,
        /// The entity that it is of, if it is of one.
        of: Option<NetId>,
        /// Its revision before; 0 if nothing had come.
        from: u64,
        /// Its revision now.
        to: u64,
    },
    /// An effect that [`Step::once`](crate::Step::once) let happen did not happen after all: the ticks were run again, and without
    /// it. Take it back, if it can still be seen or heard.
    EffectUndone {
        /// Its key.
        key: u64,
    },
    /// An entity (or some of its components) has another owner.
    Owned {
        /// The entity.
        entity: Entity,
        /// Owner slot, 0 is the owner.
        slot: usize,
        /// The new owner.
        owner: PeerId,
    },
    /// A guest asks to own an entity, or a part of it (host only; kinds with [`Requests::Ask`](crate::Requests::Ask)). Answer with
    /// [`Peer::grant`](crate::Peer::grant) or [`Peer::refuse_ownership`](crate::Peer::refuse_ownership) within 10 seconds.
    OwnershipRequested {
        /// The entity.
        entity: Entity,
        /// Owner slot, 0 is the owner.
        slot: usize,
        /// Who asks.
        by: PeerId,
    },
    /// A guest has given up what it owned, and wishes another to have it (host only; kinds with
    /// [`Requests::Ask`](crate::Requests::Ask)). The host owns it now.
    OwnershipOffered {
        /// The entity.
        entity: Entity,
        /// Owner slot, 0 is the owner.
        slot: usize,
        /// Who has given it up.
        by: PeerId,
        /// Who is to have it.
        to: PeerId,
    },
    /// This guest does not get the ownership that it asked for with
    /// [`Peer::request_ownership`](crate::Peer::request_ownership).
    OwnershipRefused {
        /// What its local handle was when it was asked for. The entity may be gone.
        entity: Entity,
        /// Its name.
        net: NetId,
        /// Owner slot, 0 is the owner.
        slot: usize,
        /// Why.
        why: Denial,
    },
    /// A guest's write was refused (host only). Further ones of one guest in the same frame are only counted.
    Refused {
        /// Who wrote.
        peer: PeerId,
        /// The entity's name.
        net: NetId,
        /// The component's name in the schema; empty for spawns and despawns.
        component: String,
        /// Why.
        refusal: Refusal,
    },
    /// A guest sent something that does not follow the protocol (host only). It is removed.
    Misbehaved {
        /// Who.
        peer: PeerId,
        /// What.
        error: PeerError,
    },
    /// A value that cannot travel: the others keep seeing the last one that could. Told once until it is mended.
    Unsendable {
        /// The entity.
        entity: Entity,
        /// The component's name in the schema.
        component: String,
        /// The field and what is wrong with it.
        error: FieldError,
    },
    /// A message was dropped because an entity that it names did not come in time, or is gone, because it names none where it
    /// must, or because too many of its sender wait, here or, as shared events, for another guest. Of many of one sender in one frame the first 64 are told; all are counted in
    /// [`LinkCounters::dropped_messages`](crate::LinkCounters::dropped_messages).
    MessageDropped {
        /// Who sent it.
        from: PeerId,
        /// The message's name in the schema.
        message: String,
    },
    /// A request of this peer has no reply (see [`Peer::request`](crate::Peer::request)), and will have none.
    RequestFailed {
        /// Who was asked.
        to: PeerId,
        /// The request's name in the schema.
        request: String,
        /// Its number: see [`RequestId::number`](crate::RequestId::number).
        number: u32,
        /// Why.
        why: RequestFailure,
    },
    /// A large message was let go by the peer that it went to, because nothing of it had come for
    /// [`limits::LARGE_IDLE`](tidelock_netcore::limits::LARGE_IDLE).
    LargeFailed {
        /// That peer.
        to: PeerId,
        /// Which one.
        id: LargeId,
    },
    /// The digests of two worlds were compared (see [`Peer::compare`](crate::Peer::compare)).
    Compared {
        /// With whom.
        peer: PeerId,
        /// The names of the components that differ; empty if the worlds are equal. `presence` stands for which entities there
        /// are and what they have.
        differing: Vec<String>,
    },
    /// What some peers computed is not what the host did. Every peer is told it, for the same tick, when it has run that tick
    /// itself, and before anybody is removed for it. Told once for each of them; again only when its state had been the host's
    /// again meanwhile, and after [`limits::FORK_COOLDOWN`](tidelock_netcore::limits::FORK_COOLDOWN).
    Forked {
        /// The timeline.
        line: Timeline,
        /// The timeline's tick after which the digests differed; the ticks that were compared before were equal.
        tick: Tick,
        /// Who differs from the host, and its digest. If that is everybody, the host may be the one that is wrong.
        peers: Vec<(PeerId, u64)>,
        /// The host's digest.
        host_digest: u64,
    },
    /// What differs in a [fork](Self::Forked), as far as it could be found: one value that is not the same. Follows the fork, on every
    /// peer, a few round trips later; not if the guest has left or does not keep the state of that tick any more.
    ForkLocated {
        /// The timeline.
        line: Timeline,
        /// The tick of the fork.
        tick: Tick,
        /// Whose state differs from the host's.
        peer: PeerId,
        /// The entity's name.
        entity: NetId,
        /// The component's or resource's name in the schema; empty if the entity itself is there on one side only, or of another
        /// kind or with other components.
        component: String,
        /// The path of the field; empty for the whole value.
        field: String,
        /// The host's value.
        host: String,
        /// The other's.
        guest: String,
    },
    /// The game has written to what this peer does not simulate: it is not kept, or others never see it, or what every peer
    /// computes comes apart. Told once for each entity and component, while [`Config::check_writes`](crate::Config::check_writes) is on.
    Stray {
        /// The timeline that the entity lives by.
        line: Timeline,
        /// The last step that was run before the write was found: of that timeline, on which nothing else may have written to it since.
        tick: Tick,
        /// The entity's name.
        net: NetId,
        /// The component's or resource's name in the schema; empty if the entity itself is gone.
        component: String,
        /// The path of the field; empty for the whole value.
        field: String,
        /// What it was: of what is published, the numbers of steps that would travel.
        before: String,
        /// What the game has made of it.
        after: String,
    },
    /// The game did not fetch its news: so many of the oldest are lost.
    Missed {
        /// How many.
        count: u64,
    },
}

/// News that wait to be fetched; bounded.
#[derive(Default)]
pub(crate) struct Newsstand {
    queue: VecDeque<News>,
    missed: u64,
    /// News since the queue was empty, and how many that are mostly.
    since_empty: usize,
    room: Room,
}

impl Newsstand {
    pub(crate) fn push(&mut self, news: News) {
        crate::trace::news(&news);
        if self.queue.len() == limits::EVENTS {
            self.queue.pop_front();
            self.missed += 1;
        }
        self.queue.push_back(news);
        self.since_empty += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<News> {
        if self.missed > 0 {
            let count = std::mem::take(&mut self.missed);
            return Some(News::Missed { count });
        }
        let news = self.queue.pop_front();
        // the end of a queue, and not of a look into an empty one
        if news.is_some() && self.queue.is_empty() {
            // what a burst took is given back at once if nothing like it came lately: few sessions see another like the join
            let worth = self.room.excess(self.queue.capacity());
            self.room.note(std::mem::take(&mut self.since_empty));
            if let Some(worth) = worth {
                self.queue.shrink_to(worth);
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bursts_room_is_given_back_at_once_and_kept_when_such_come_again() {
        let mut stand = Newsstand::default();
        let mut tell = |count: u64| {
            (0..count).for_each(|count| stand.push(News::Missed { count }));
            let told = std::iter::from_fn(|| stand.pop()).count();
            assert_eq!(told as u64, count);
            stand.queue.capacity()
        };
        let few = tell(10);
        assert!(tell(10_000) <= 64.max(few), "the first join is over");
        let kept = tell(10_000);
        assert!(kept >= 10_000, "{kept}");
        assert_eq!(tell(10), kept);
        assert_eq!(tell(10_000), kept, "room was given back that was needed again");
        let after = (0..400).map(|_| tell(10)).last().unwrap();
        assert!(after < 1000, "{after}");
    }
}
