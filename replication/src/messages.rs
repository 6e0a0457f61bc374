//! Messages of the game: coded like components, each with the promise that the schema gives it, held back until the entities
//! they name are here.
//!
//! ```text
//! ordered (a message of Lane 1), unordered (of Lane 3): 8 bits of index, then the fields, absolute
//! unreliable (a datagram): 2 bits of kind = 1, 8 bits of index, then the fields, absolute
//! a request (of Lane 1): 8 bits of index, 32 bits of number, then the fields, absolute
//! a reply (of Lane 1): 8 bits of index, the 32 bits of the request's number, 1 bit: is it answered? Then the fields, absolute
//! an event (in a packet of state): see `events`
//! sequenced (a datagram): 2 bits of kind = 1, 8 bits of index, 32 bits of number, then the fields, absolute
//! ```

mod ask;
mod events;
mod large;
mod mailbox;
mod ride;

pub(crate) use ask::Asking;
pub use ask::{Replies, Request, RequestFailure, RequestId};
pub(crate) use events::{Event as Rider, EventsIn, EventsOut};
pub(crate) use large::{LargeBox, LargeOut};
pub use large::{LargeId, LargeMessage};
pub(crate) use mailbox::Mailbox;
pub use ride::Event;

use crate::entities::name_in;
use crate::error::UsageError;
use crate::frames::ORDER_MARK;
use crate::growing::MARK as GROWING_MARK;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::relevance::Room;
use crate::replicate::{Quantiser, Replicate};
use crate::schema::{Inner, MessageEntry, Promise};
use hecs::{Entity, World};
use mailbox::Waiting;
use smallvec::SmallVec;
use std::any::TypeId;
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::packet::PacketKind;
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::{Lane, LinkId};

/// To whom a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To<'a> {
    /// The host; from a guest, the only one there is.
    Host,
    /// One peer (host only).
    Peer(PeerId),
    /// Some guests, each of them once (host only).
    Some(&'a [PeerId]),
    /// All guests (host only).
    All,
    /// All guests but one (host only).
    AllBut(PeerId),
    /// The guests who see an entity (host only): what happens to it is no secret from them, and a secret from the others.
    Seeing(Entity),
    /// The guests who are in a room (host only).
    Room(Room),
}

/// How much of a message a peer may be told.
enum Seen {
    All,
    Part,
    Nothing,
}

/// Where a link is with its sequenced messages, by message.
#[derive(Default)]
pub(crate) struct Sequences {
    /// The number of the next one.
    next: Vec<u32>,
    /// The number of the newest that came.
    newest: Vec<Option<u32>>,
}

impl Sequences {
    /// Numbers begin after `first`, on both sides.
    pub(crate) fn new(schema: &Inner, first: u64) -> Self {
        let count = schema.messages.len();
        Self { next: vec![first as u32; count], newest: vec![None; count] }
    }

    fn take_next(&mut self, message: usize) -> u32 {
        let number = self.next[message];
        self.next[message] = number.wrapping_add(1);
        number
    }

    /// Is it newer than all that came? Of two numbers less than 2³¹ apart, whatever has wrapped between them.
    fn is_newest(&mut self, message: usize, number: u32) -> bool {
        let newest = &mut self.newest[message];
        let is = newest.is_none_or(|newest| number.wrapping_sub(newest) as i32 > 0);
        if is {
            *newest = Some(number);
        }
        is
    }
}

/// How a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Datagram,
    Lane(Lane),
}

impl Way {
    fn is_of(self, promise: Promise) -> bool {
        match self {
            Self::Datagram => promise.is_loose(),
            Self::Lane(lane) => promise.lane() == Some(lane),
        }
    }
}

impl Promise {
    fn lane(self) -> Option<Lane> {
        match self {
            Self::Ordered | Self::Request | Self::Reply => Some(Lane::RELIABLE),
            Self::Unordered => Some(Lane::UNORDERED),
            Self::Unreliable | Self::Sequenced | Self::Event | Self::SharedEvent => None,
        }
    }
}

/// What is read of a message.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    message: usize,
    number: Option<u32>,
    /// `None` for a request that is refused.
    words: Option<Vec<u32>>,
}

fn encode(entry: &MessageEntry, index: usize, number: Option<u32>, words: Option<&[u32]>) -> Vec<u8> {
    let mut w = BitWriter::new();
    if entry.promise.is_loose() {
        PacketKind::Message.write(&mut w);
    }
    w.put(index as u64, 8);
    if let Some(number) = number {
        w.put(u64::from(number), 32);
    }
    if entry.promise == Promise::Reply {
        w.flag(words.is_some());
    }
    if let Some(words) = words {
        entry.layout.write(words, None, 0, &mut w);
    }
    w.to_bytes()
}

impl Peer {
    /// Sends a message, in the way that the schema says. A guest's go to the host, and shared events to all if it wants.
    ///
    /// A guest that does not see an entity is not told its name: where a field names one that it must not know, it gets none, and if
    /// the field cannot be without, it does not get the message (counted in
    /// [`LinkCounters::unseen_messages`](crate::LinkCounters::unseen_messages)).
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotInSession`], [`UsageError::NotAllowed`] for a request, and for a guest that addresses others,
    /// [`UsageError::NoSuchPeer`], [`UsageError::NotNetworked`] for a [`To::Seeing`] of no networked entity,
    /// [`UsageError::NoRelevance`] for a [`To::Room`] without rooms, [`UsageError::Message`] for values that cannot travel,
    /// [`UsageError::NamesNobody`] if a field needs an entity and names one that is not networked or gone,
    /// [`UsageError::Backlog`] when a peer's queue is full, or has too many events on their way: all others it was sent to.
    pub fn send_message<M: Replicate>(&mut self, world: &World, to: To<'_>, message: &M) -> Result<(), UsageError> {
        let index = self.message_index::<M>()?;
        if self.schema.messages[index].promise == Promise::Request {
            return Err(UsageError::NotAllowed("send a request as a message: use `request`"));
        }
        let words = self.message_words(world, index, message)?;
        self.send_words(world, to, index, &words, None)
    }

    /// Sends a message to each of those that it goes to; `due`: the tick at which it goes off.
    fn send_words(
        &mut self,
        world: &World,
        to: To<'_>,
        index: usize,
        words: &[u32],
        due: Option<Tick>,
    ) -> Result<(), UsageError> {
        let promise = self.schema.messages[index].promise;
        if promise.is_shared() && to == To::All && !self.is_host() && !self.links.is_empty() {
            return self.post_event(0, index, words, due, Some(PeerId::HOST));
        }
        let targets = self.targets(world, to)?;
        let (mut masked, mut result) = (Vec::new(), Ok(()));
        for at in targets {
            let words = match self.hide_names(world, at, index, words, &mut masked) {
                Seen::All => words,
                Seen::Part => &masked,
                Seen::Nothing => {
                    self.links[at].counters.unseen_messages += 1;
                    continue;
                }
            };
            let sent = match promise.is_event() {
                true => self.post_event(at, index, words, due, None),
                false => self.post_message(at, index, words),
            };
            // who has no room takes nothing from the others
            result = result.and(sent);
        }
        result
    }

    /// What a message is on its way, but for what a peer must not know.
    fn message_words<M: Replicate>(&self, world: &World, index: usize, message: &M) -> Result<Vec<u32>, UsageError> {
        if !self.is_in_session() {
            return Err(UsageError::NotInSession(""));
        }
        let entry = &self.schema.messages[index];
        let mut words = vec![0; entry.layout.words()];
        message.quantise(&mut Quantiser::new(&mut words, &name_in(world))).map_err(UsageError::Message)?;
        if !(entry.is_complete)(&words) {
            return Err(UsageError::NamesNobody(std::any::type_name::<M>()));
        }
        Ok(words)
    }

    /// The links that a message goes to.
    fn targets(&self, world: &World, to: To<'_>) -> Result<SmallVec<[usize; 8]>, UsageError> {
        let all = 0..self.links.len();
        let link_of = |peer| self.links.iter().position(|l| l.peer == peer).ok_or(UsageError::NoSuchPeer);
        Ok(match (to, self.is_host()) {
            (To::Host, false) => all.collect(),
            (To::Host, true) => return Err(UsageError::NotAllowed("send a message to itself")),
            (_, false) => return Err(UsageError::NotAllowed("send messages to other guests")),
            (To::All, true) => all.collect(),
            (To::AllBut(peer), true) => {
                let but = link_of(peer)?;
                all.filter(|at| *at != but).collect()
            }
            (To::Peer(peer), true) => SmallVec::from_slice(&[link_of(peer)?]),
            (To::Some(peers), true) => {
                let mut links = peers.iter().map(|peer| link_of(*peer)).collect::<Result<SmallVec<[usize; 8]>, _>>()?;
                links.sort_unstable();
                links.dedup();
                links
            }
            (To::Seeing(entity), true) => {
                let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
                all.filter(|at| self.may_know(world, *at, slot)).collect()
            }
            (To::Room(room), true) => {
                if self.audience.is_none() {
                    return Err(UsageError::NoRelevance);
                }
                let is_in = |at: &usize| self.links[*at].viewer.as_ref().is_some_and(|v| v.is_in(room));
                all.filter(is_in).collect()
            }
        })
    }

    /// Leaves out of a message's words what a peer must not know.
    fn hide_names(&self, world: &World, at: usize, message: usize, words: &[u32], masked: &mut Vec<u32>) -> Seen {
        let entry = &self.schema.messages[message];
        if !entry.layout.has_entities() || self.audience.is_none() {
            return Seen::All;
        }
        masked.clear();
        masked.extend_from_slice(words);
        let knows = |net| self.entities.slot_of(net).is_some_and(|slot| self.may_know(world, at, slot));
        entry.layout.mask_entities(masked, knows);
        match masked == words {
            true => Seen::All,
            false if (entry.is_complete)(masked) => Seen::Part,
            false => Seen::Nothing,
        }
    }

    fn post_message(&mut self, at: usize, message: usize, words: &[u32]) -> Result<(), UsageError> {
        let interval = self.send_interval();
        let link = &mut self.links[at];
        let entry = &self.schema.messages[message];
        if let Some(lane) = entry.promise.lane() {
            let taken = link.post(lane, &encode(entry, message, None, Some(words)));
            return if taken { Ok(()) } else { Err(UsageError::Backlog) };
        }
        let number = (entry.promise == Promise::Sequenced).then(|| link.sequences.take_next(message));
        if let Some(transport) = &mut self.transport {
            let bytes = encode(entry, message, number, Some(words));
            link.send_loose(&mut **transport, self.time.now, interval, &bytes);
        }
        Ok(())
    }

    fn message_index<M: Replicate>(&self) -> Result<usize, UsageError> {
        let found = self.schema.messages.iter().position(|m| m.type_id == TypeId::of::<M>());
        found.ok_or(UsageError::NotInSchema(std::any::type_name::<M>()))
    }

    /// A message has come in.
    pub(crate) fn take_message(&mut self, world: &mut World, id: LinkId, bytes: &[u8], way: Way) {
        let Some(index) = self.links.iter().position(|l| l.id == id) else { return };
        let taken = match bytes.split_first().filter(|_| way == Way::Lane(Lane::RELIABLE)) {
            Some((&ORDER_MARK, _)) => self.take_order(index, bytes),
            Some((&GROWING_MARK, rest)) => self.take_growing(index, rest),
            _ => self.hear_message(index, bytes, way),
        };
        match taken {
            Ok(()) => {}
            Err(error) if self.is_host() => self.misbehaved(world, index, error),
            Err(_) => self.end_session(world, DisconnectReason::Malformed, true),
        }
    }

    fn hear_message(&mut self, index: usize, bytes: &[u8], way: Way) -> Result<(), PeerError> {
        let Read { message, number, words } = read(&self.schema, bytes, way)?;
        let link = &mut self.links[index];
        link.last_heard = self.time.now;
        let number = number.unwrap_or_default();
        let refused = words.is_none();
        let waiting = Waiting { number, ..Waiting::new(link.peer, self.time.now, words.unwrap_or_default()) };
        match self.schema.messages[message].promise {
            Promise::Sequenced if !link.sequences.is_newest(message, number) => link.counters.overtaken_messages += 1,
            Promise::Request => return self.take_request(message, waiting),
            Promise::Reply => return self.take_reply(message, refused, waiting),
            _ => self.put_in_box(message, waiting),
        }
        Ok(())
    }
}

fn read(schema: &Inner, bytes: &[u8], way: Way) -> Result<Read, PeerError> {
    let malformed = |cause| PeerError::Malformed { what: "message", cause };
    let mut r = BitReader::new(bytes);
    if way == Way::Datagram {
        PacketKind::read(&mut r).map_err(malformed)?;
    }
    let message = r.get(8).map_err(malformed)? as usize;
    let entry = schema.messages.get(message).filter(|m| way.is_of(m.promise));
    let entry = entry.ok_or(PeerError::OutOfOrder("a message of an unknown number"))?;
    let sequenced = matches!(entry.promise, Promise::Sequenced | Promise::Request | Promise::Reply);
    let number = if sequenced { Some(r.get(32).map_err(malformed)? as u32) } else { None };
    let answered = entry.promise != Promise::Reply || r.flag().map_err(malformed)?;
    let words = if answered {
        let mut words = vec![0; entry.layout.words()];
        entry.layout.read(None, 0, &mut r, &mut words).map_err(malformed)?;
        Some(words)
    } else {
        None
    };
    r.finish().map_err(malformed)?;
    Ok(Read { message, number, words })
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod wire_tests;
