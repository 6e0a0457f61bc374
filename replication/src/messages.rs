//! Messages of the game: coded like components, delivered in order per sender, held back until the entities they name are here.
//!
//! ```text
//! reliable (a message of Lane 1): 8 bits of index, then the fields, absolute
//! unreliable (a datagram): 2 bits of kind = 1, 8 bits of index, then the fields, absolute
//! ```

use crate::entities::name_in;
use crate::error::UsageError;
use crate::frames::ORDER_MARK;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::relevance::Room;
use crate::replicate::{Quantiser, Replicate, Restorer};
use crate::schema::{Inner, MessageEntry};
use hecs::{Entity, World};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::any::TypeId;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::limits;
use tidelock_netcore::packet::PacketKind;
use tidelock_netcore::transport::{Lane, LinkId};

/// To whom a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The host; from a guest, the only one there is.
    Host,
    /// One peer (host only).
    Peer(PeerId),
    /// All guests (host only).
    All,
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

fn encode(entry: &MessageEntry, index: usize, words: &[u32]) -> Vec<u8> {
    let mut w = BitWriter::new();
    if !entry.reliable {
        PacketKind::Message.write(&mut w);
    }
    w.put(index as u64, 8);
    entry.layout.write(words, None, 0, &mut w);
    w.to_bytes()
}

struct Waiting {
    from: PeerId,
    at: Duration,
    words: Vec<u32>,
}

impl Waiting {
    /// The bytes that it counts for.
    fn cost(&self) -> usize {
        size_of::<Self>() + self.words.len() * size_of::<u32>()
    }
}

/// What came and was not fetched yet.
pub(crate) struct Mailbox {
    /// By message: in the order of arrival.
    waiting: Vec<VecDeque<Waiting>>,
    /// By sender: the bytes of what it sent and was not fetched.
    held: FxHashMap<PeerId, usize>,
    /// Names that were here and are gone, the latest ones.
    dead: VecDeque<NetId>,
}

impl Mailbox {
    pub(crate) fn new(schema: &Inner) -> Self {
        let waiting = schema.messages.iter().map(|_| VecDeque::new()).collect();
        Self { waiting, held: FxHashMap::default(), dead: VecDeque::new() }
    }

    pub(crate) fn note_dead(&mut self, net: NetId) {
        if self.dead.len() == limits::WAITING_MESSAGES {
            self.dead.pop_front();
        }
        self.dead.push_back(net);
    }

    /// Is it known that the name was somebody's and will be nobody's?
    pub(crate) fn is_dead(&self, net: NetId) -> bool {
        self.dead.contains(&net)
    }

    /// A peer has left: what it said and was not fetched goes with it.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.waiting.iter_mut().for_each(|q| q.retain(|w| w.from != peer));
        self.held.remove(&peer);
    }

    fn push(&mut self, message: usize, waiting: Waiting) {
        *self.held.entry(waiting.from).or_default() += waiting.cost();
        self.waiting[message].push_back(waiting);
    }

    fn remove(&mut self, message: usize, at: usize) {
        if let Some(waiting) = self.waiting[message].remove(at) {
            let_go(&mut self.held, &waiting);
        }
    }

    fn held(&self, peer: PeerId) -> usize {
        self.held.get(&peer).copied().unwrap_or(0)
    }
}

fn let_go(held: &mut FxHashMap<PeerId, usize>, waiting: &Waiting) {
    if let Some(bytes) = held.get_mut(&waiting.from) {
        *bytes -= waiting.cost();
    }
}

impl Peer {
    /// Sends a message. A guest's go to the host.
    ///
    /// A guest that does not see an entity is not told its name: where a field names one that it must not know, it gets none, and if
    /// the field cannot be without, it does not get the message (counted in
    /// [`LinkCounters::unseen_messages`](crate::LinkCounters::unseen_messages)).
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`], [`UsageError::NotInSession`], [`UsageError::NotAllowed`] for a guest that addresses others,
    /// [`UsageError::NoSuchPeer`], [`UsageError::NotNetworked`] for a [`To::Seeing`] of no networked entity,
    /// [`UsageError::NoRelevance`] for a [`To::Room`] without rooms, [`UsageError::Message`] for values that cannot travel,
    /// [`UsageError::NamesNobody`] if a field needs an entity and names one that is not networked or gone,
    /// [`UsageError::Backlog`] when a peer's queue is full: then nothing was sent to that peer or any after it.
    pub fn send_message<M: Replicate>(&mut self, world: &World, to: To, message: &M) -> Result<(), UsageError> {
        let index = self.message_index::<M>()?;
        if !self.is_in_session() {
            return Err(UsageError::NotInSession(""));
        }
        let targets = self.targets(world, to)?;
        let entry = &self.schema.messages[index];
        let mut words = vec![0; entry.layout.words()];
        message.quantise(&mut Quantiser::new(&mut words, &name_in(world))).map_err(UsageError::Message)?;
        if !(entry.is_complete)(&words) {
            return Err(UsageError::NamesNobody(std::any::type_name::<M>()));
        }
        let bytes = encode(entry, index, &words);
        let mut masked = Vec::new();
        for at in targets {
            let bytes = match self.hide_names(world, at, index, &words, &mut masked) {
                Seen::All => bytes.clone(),
                Seen::Part => encode(&self.schema.messages[index], index, &masked),
                Seen::Nothing => {
                    self.links[at].counters.unseen_messages += 1;
                    continue;
                }
            };
            self.post_message(at, index, &bytes)?;
        }
        Ok(())
    }

    /// The links that a message goes to.
    fn targets(&self, world: &World, to: To) -> Result<SmallVec<[usize; 8]>, UsageError> {
        let all = 0..self.links.len();
        Ok(match (to, self.is_host()) {
            (To::Host, false) => all.collect(),
            (To::Host, true) => return Err(UsageError::NotAllowed("send a message to itself")),
            (_, false) => return Err(UsageError::NotAllowed("send messages to other guests")),
            (To::All, true) => all.collect(),
            (To::Peer(peer), true) => {
                let found = self.links.iter().position(|l| l.peer == peer);
                SmallVec::from_slice(&[found.ok_or(UsageError::NoSuchPeer)?])
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

    fn post_message(&mut self, at: usize, message: usize, bytes: &[u8]) -> Result<(), UsageError> {
        let interval = self.send_interval();
        let link = &mut self.links[at];
        if self.schema.messages[message].reliable {
            return if link.post(Lane::RELIABLE, bytes) { Ok(()) } else { Err(UsageError::Backlog) };
        }
        if let Some(transport) = &mut self.transport {
            link.send_loose(&mut **transport, self.time.now, interval, bytes);
        }
        Ok(())
    }

    /// The messages of one type that have come, oldest first, with who sent them. Those that name an entity which is not here
    /// yet wait, and hold back later ones of the same type and sender.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn messages<M: Replicate>(&mut self) -> Result<Vec<(PeerId, M)>, UsageError> {
        let index = self.message_index::<M>()?;
        let entities = &self.entities;
        let mut out = Vec::new();
        let mut blocked: Vec<PeerId> = Vec::new();
        let Mailbox { waiting, held, .. } = &mut self.mailbox;
        waiting[index].retain(|w| {
            if blocked.contains(&w.from) {
                return true;
            }
            match M::restore(&mut Restorer::new(&w.words, &|net| entities.entity_of(net))) {
                Ok(message) => {
                    let_go(held, w);
                    out.push((w.from, message));
                    false
                }
                Err(_) => {
                    blocked.push(w.from);
                    true
                }
            }
        });
        Ok(out)
    }

    fn message_index<M: Replicate>(&self) -> Result<usize, UsageError> {
        let found = self.schema.messages.iter().position(|m| m.type_id == TypeId::of::<M>());
        found.ok_or(UsageError::NotInSchema(std::any::type_name::<M>()))
    }

    /// A message has come in.
    pub(crate) fn take_message(&mut self, world: &mut World, id: LinkId, bytes: &[u8], reliable: bool) {
        let Some(index) = self.links.iter().position(|l| l.id == id) else { return };
        if reliable && bytes.first() == Some(&ORDER_MARK) {
            return match self.take_order(index, bytes) {
                Ok(()) => {}
                Err(error) if self.is_host() => self.misbehaved(world, index, error),
                Err(_) => self.end_session(world, DisconnectReason::Malformed, true),
            };
        }
        match self.read_message(bytes, reliable) {
            Ok((message, words)) => {
                let from = self.links[index].peer;
                self.links[index].last_heard = self.time.now;
                if !(self.schema.messages[message].is_complete)(&words) {
                    // no arrival could ever complete it, and it would hold up all that follow
                    return self.note_dropped(from, message);
                }
                let waiting = Waiting { from, at: self.time.now, words };
                while self.mailbox.held(from) + waiting.cost() > limits::MAILBOX_BYTES {
                    self.drop_oldest(from);
                }
                self.mailbox.push(message, waiting);
            }
            Err(error) if self.is_host() => self.misbehaved(world, index, error),
            Err(_) => self.end_session(world, DisconnectReason::Malformed, true),
        }
    }

    fn read_message(&self, bytes: &[u8], reliable: bool) -> Result<(usize, Vec<u32>), PeerError> {
        let malformed = |cause| PeerError::Malformed { what: "message", cause };
        let mut r = BitReader::new(bytes);
        if !reliable {
            PacketKind::read(&mut r).map_err(malformed)?;
        }
        let index = r.get(8).map_err(malformed)? as usize;
        let entry = self.schema.messages.get(index).filter(|m| m.reliable == reliable);
        let entry = entry.ok_or(PeerError::OutOfOrder("a message of an unknown number"))?;
        let mut words = vec![0; entry.layout.words()];
        entry.layout.read(None, 0, &mut r, &mut words).map_err(malformed)?;
        r.finish().map_err(malformed)?;
        Ok((index, words))
    }

    /// Drops messages whose entities did not come in time, or are known to be gone, and the oldest of those that wait if a sender
    /// has too many.
    pub(crate) fn resolve_messages(&mut self) {
        let now = self.time.now;
        for index in 0..self.mailbox.waiting.len() {
            let layout = &self.schema.messages[index].layout;
            if !layout.has_entities() {
                continue;
            }
            let (entities, dead) = (&self.entities, &self.mailbox.dead);
            let missing = |n: &NetId| n.0 != 0 && entities.entity_of(*n).is_none();
            let mut waiting: FxHashMap<PeerId, usize> = FxHashMap::default();
            let mut dropped = Vec::new();
            // the newest first: those beyond the limit are the oldest
            for (i, w) in self.mailbox.waiting[index].iter().enumerate().rev() {
                let mut names = layout.entities(&w.words).filter(missing).peekable();
                if names.peek().is_none() {
                    continue;
                }
                let count = waiting.entry(w.from).or_default();
                *count += 1;
                let hopeless = now > w.at + limits::WAITING_TIME || names.any(|n| dead.contains(&n));
                if hopeless || *count > limits::WAITING_MESSAGES {
                    dropped.push((i, w.from));
                }
            }
            for (i, from) in dropped {
                self.mailbox.remove(index, i);
                self.note_dropped(from, index);
            }
        }
    }

    fn drop_oldest(&mut self, from: PeerId) {
        let oldest = self.mailbox.waiting.iter().enumerate().filter_map(|(i, q)| {
            let at = q.iter().position(|w| w.from == from)?;
            Some((q[at].at, i, at))
        });
        if let Some((_, index, at)) = oldest.min() {
            self.mailbox.remove(index, at);
            self.note_dropped(from, index);
        }
    }

    fn note_dropped(&mut self, from: PeerId, index: usize) {
        if let Some(link) = self.links.iter_mut().find(|l| l.peer == from) {
            link.counters.dropped_messages += 1;
        }
        self.news.push(News::MessageDropped { from, message: self.schema.messages[index].name.clone() });
    }
}
