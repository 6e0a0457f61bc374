//! Large messages: in pieces, on the lane of large things, when nothing else needs the room.

use super::{Peer, To};
use crate::error::UsageError;
use crate::news::News;
use crate::peer_id::PeerId;
use crate::schema::Inner;
use hecs::World;
use rustc_hash::FxHashMap;
use std::any::TypeId;
use std::collections::VecDeque;
use std::sync::Arc;
use tidelock_netcore::bulk::Progress;
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;

/// Something large that is sent as a whole: a level, a picture, a recording. See
/// [`SchemaBuilder::large_message`](crate::SchemaBuilder::large_message).
pub trait LargeMessage: Sized + 'static {
    /// It as bytes: at most [`limits::LARGE_BYTES`].
    fn to_bytes(&self) -> Vec<u8>;

    /// What the bytes are; `None` if they are none. They come from another peer: check before you allocate.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// A large message that this peer sends: see [`Peer::large_progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LargeId(u64);

/// The large messages on their way to one peer.
#[derive(Default)]
pub(crate) struct LargeOut {
    /// The blob of each, and how many bytes it is long.
    going: VecDeque<(u32, LargeId, usize)>,
}

/// Large messages that came and were not fetched, and what was sent last.
pub(crate) struct LargeBox {
    /// By type: in the order of arrival.
    came: Vec<VecDeque<(PeerId, Vec<u8>)>>,
    held: FxHashMap<PeerId, usize>,
    next: u64,
}

/// What one counts for.
fn cost(bytes: &[u8]) -> usize {
    bytes.len() + limits::MESSAGE_COST
}

impl LargeBox {
    pub(crate) fn new(schema: &Inner) -> Self {
        Self { came: schema.larges.iter().map(|_| VecDeque::new()).collect(), held: FxHashMap::default(), next: 0 }
    }

    /// A peer has left: what came of it goes with it.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.came.iter_mut().for_each(|came| came.retain(|(from, _)| *from != peer));
        self.held.remove(&peer);
    }

    fn let_go(&mut self, from: PeerId, bytes: &[u8]) {
        if let Some(held) = self.held.get_mut(&from) {
            *held -= cost(bytes);
        }
    }
}

impl Peer {
    /// Sends a large message, in pieces that go when nothing else needs the room. A guest's go to the host. It arrives once and whole,
    /// after those that were sent to that peer before it, unless the peer leaves or lets it go, which [`News::LargeFailed`] tells.
    ///
    /// # Errors
    /// [`UsageError::TooLarge`] beyond [`limits::LARGE_BYTES`]; [`UsageError::NotInSchema`], [`UsageError::NotInSession`], and for whom
    /// it goes to those of [`send_message`](Self::send_message); [`UsageError::Backlog`] if one of them has as much on its way as
    /// [`limits::LARGE_QUEUE_BYTES`]: then nothing was sent to anybody.
    pub fn send_large<L: LargeMessage>(&mut self, world: &World, to: To<'_>, message: &L) -> Result<LargeId, UsageError> {
        let index = self.large_index::<L>()?;
        if !self.is_in_session() {
            return Err(UsageError::NotInSession(""));
        }
        let content = message.to_bytes();
        if content.len() > limits::LARGE_BYTES {
            return Err(UsageError::TooLarge { what: "a large message", size: content.len(), limit: limits::LARGE_BYTES });
        }
        let bytes: Arc<[u8]> = std::iter::once(index as u8).chain(content).collect();
        let targets = self.targets(world, to)?;
        let queued = |at: usize| self.links[at].larges.going.iter().map(|going| going.2 + limits::MESSAGE_COST).sum::<usize>();
        if targets.iter().any(|at| queued(*at) + cost(&bytes) > limits::LARGE_QUEUE_BYTES) {
            return Err(UsageError::Backlog);
        }
        let id = LargeId(self.large.next);
        self.large.next += 1;
        for at in targets {
            let link = &mut self.links[at];
            // its length was looked at above
            if let Ok(blob) = link.blobs.outgoing.queue(bytes.clone()) {
                link.larges.going.push_back((blob, id, bytes.len()));
            }
        }
        Ok(id)
    }

    /// How far a large message to a peer has come: what that peer has said that it has. `None` once it is through, or if it was let
    /// go.
    #[must_use]
    pub fn large_progress(&self, to: PeerId, id: LargeId) -> Option<Progress> {
        let link = self.link_to(to)?;
        let (blob, ..) = link.larges.going.iter().find(|going| going.1 == id)?;
        link.blobs.outgoing.queued().find(|(queued, _)| queued == blob).map(|(_, progress)| progress)
    }

    /// How far the large message has come that is on its way from a peer, if there is one. A byte beside it is counted.
    #[must_use]
    pub fn large_incoming(&self, from: PeerId) -> Option<Progress> {
        self.link_to(from)?.blobs.incoming.progress(tidelock_netcore::bulk::QUEUE)
    }

    /// The large messages of one type that have come, oldest first, with who sent them.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn large_messages<L: LargeMessage>(&mut self) -> Result<Vec<(PeerId, L)>, UsageError> {
        let index = self.large_index::<L>()?;
        let mut out = Vec::new();
        while let Some((from, bytes)) = self.large.came[index].pop_front() {
            self.large.let_go(from, &bytes);
            match L::from_bytes(&bytes[1..]) {
                Some(message) => out.push((from, message)),
                None => self.note_large_dropped(from, index),
            }
        }
        Ok(out)
    }

    fn large_index<L: LargeMessage>(&self) -> Result<usize, UsageError> {
        let found = self.schema.larges.iter().position(|l| l.type_id == TypeId::of::<L>());
        found.ok_or(UsageError::NotInSchema(std::any::type_name::<L>()))
    }

    /// One has come whole.
    pub(crate) fn take_large(&mut self, from: PeerId, bytes: Vec<u8>) -> Result<(), PeerError> {
        let index = bytes.first().map(|first| usize::from(*first)).filter(|index| *index < self.large.came.len());
        let index = index.ok_or(PeerError::OutOfOrder("a large message of an unknown number"))?;
        let held = |large: &LargeBox| large.held.get(&from).copied().unwrap_or(0);
        while held(&self.large) + cost(&bytes) > limits::LARGE_QUEUE_BYTES {
            let of_sender = |came: &VecDeque<(PeerId, Vec<u8>)>| came.iter().position(|(peer, _)| *peer == from);
            let Some((at, place)) = self.large.came.iter().enumerate().find_map(|(i, came)| Some((i, of_sender(came)?))) else {
                break;
            };
            if let Some((_, dropped)) = self.large.came[at].remove(place) {
                self.large.let_go(from, &dropped);
                self.note_large_dropped(from, at);
            }
        }
        *self.large.held.entry(from).or_default() += cost(&bytes);
        self.large.came[index].push_back((from, bytes));
        Ok(())
    }

    fn note_large_dropped(&mut self, from: PeerId, index: usize) {
        if let Some(link) = self.links.iter_mut().find(|l| l.peer == from) {
            link.counters.dropped_messages += 1;
        }
        self.tell_dropped(from, &self.schema.larges[index].name.clone());
    }

    /// Forgets those that are through, and tells of those that were let go.
    pub(crate) fn settle_larges(&mut self) {
        for link in &mut self.links {
            if link.larges.going.is_empty() {
                continue;
            }
            for gone in link.blobs.outgoing.take_gone() {
                if let Some((_, id, _)) = link.larges.going.iter().find(|going| going.0 == gone) {
                    self.news.push(News::LargeFailed { to: link.peer, id: *id });
                }
            }
            let first = link.blobs.outgoing.queued().next().map(|(id, _)| id);
            while link.larges.going.front().is_some_and(|going| first.is_none_or(|first| going.0 < first)) {
                link.larges.going.pop_front();
            }
        }
    }
}
