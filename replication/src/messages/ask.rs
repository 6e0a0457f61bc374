//! Requests: messages that have one typed reply each, or one failure.

use super::{Peer, Seen, Waiting, encode};
use crate::error::UsageError;
use crate::news::News;
use crate::peer_id::PeerId;
use crate::replicate::Replicate;
use crate::schema::ReplyOf;
use hecs::World;
use std::any::TypeId;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::time::Duration;
use thiserror::Error;
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;
use tidelock_netcore::transport::Lane;

/// A message that is answered: see [`SchemaBuilder::request`](crate::SchemaBuilder::request).
///
/// ```
/// # use tidelock::{Replicate, Request};
/// #[derive(Replicate)]
/// struct Buy { item: u16 }
/// #[derive(Replicate)]
/// struct Bought { gold_left: u32 }
///
/// impl Request for Buy {
///     type Reply = Bought;
/// }
/// ```
pub trait Request: Replicate {
    /// What it is answered with.
    type Reply: Replicate;
}

/// A request, at who made it and at who is to answer it. It knows its type, so that the answer is of the type that belongs to it.
pub struct RequestId<Q> {
    peer: PeerId,
    number: u32,
    of: PhantomData<fn() -> Q>,
}

impl<Q> RequestId<Q> {
    fn new(peer: PeerId, number: u32) -> Self {
        Self { peer, number, of: PhantomData }
    }

    /// The other side: who is asked, or who asks.
    #[must_use]
    pub fn peer(self) -> PeerId {
        self.peer
    }

    /// Its number among the requests of who made it; it stands in [`News::RequestFailed`].
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }
}

impl<Q> Clone for RequestId<Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q> Copy for RequestId<Q> {}

impl<Q> PartialEq for RequestId<Q> {
    fn eq(&self, other: &Self) -> bool {
        (self.peer, self.number) == (other.peer, other.number)
    }
}

impl<Q> Eq for RequestId<Q> {}

impl<Q> Hash for RequestId<Q> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.peer, self.number).hash(state);
    }
}

impl<Q> fmt::Debug for RequestId<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} with {}", self.number, self.peer)
    }
}

/// Replies, with what they reply to: see [`Peer::replies`].
pub type Replies<Q> = Vec<(RequestId<Q>, <Q as Request>::Reply)>;

/// Why a request has no reply.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestFailure {
    /// None came in time. The other side may have done what was asked for all the same.
    #[error("no reply came in time")]
    Deadline,
    /// The other side has left, or this peer's session is over.
    #[error("the other side has left")]
    Left,
    /// The other side will not answer: its game has refused, or the request or the reply could not be told to who it was for,
    /// because it needs an entity that is not there or must not be known.
    #[error("the other side has refused")]
    Refused,
    /// The reply came, and needs an entity that did not come in time, or was not fetched before too much else had come.
    #[error("the reply was dropped")]
    Dropped,
}

/// A request of this peer that has no outcome yet.
struct Open {
    peer: PeerId,
    number: u32,
    /// Of the request and of its reply, in the schema.
    messages: (usize, usize),
    deadline: Duration,
}

/// Another's request that is not answered yet.
struct Asked {
    peer: PeerId,
    number: u32,
    message: usize,
}

/// Requests of this peer and of others.
#[derive(Default)]
pub(crate) struct Asking {
    next: u32,
    open: Vec<Open>,
    /// The oldest first.
    asked: Vec<Asked>,
}

impl Peer {
    /// Asks another peer for something: a guest the host ([`PeerId::HOST`]), a host any guest. There is one outcome: a reply, which
    /// [`replies`](Self::replies) tells, or [`News::RequestFailed`]; that comes [`limits::REQUEST_TIME`] from now at the latest.
    /// Requests arrive once and in order, together with ordered messages.
    ///
    /// # Errors
    /// Those of [`send_message`](Self::send_message); [`UsageError::TooManyRequests`] if [`limits::REQUESTS`] to that peer have no
    /// outcome yet.
    pub fn request<Q: Request>(&mut self, world: &World, to: PeerId, request: &Q) -> Result<RequestId<Q>, UsageError> {
        self.request_within(world, to, request, limits::REQUEST_TIME)
    }

    /// The same with another deadline, from now on.
    ///
    /// # Errors
    /// Those of [`request`](Self::request).
    pub fn request_within<Q: Request>(
        &mut self,
        world: &World,
        to: PeerId,
        request: &Q,
        time: Duration,
    ) -> Result<RequestId<Q>, UsageError> {
        let messages = self.request_index::<Q>()?;
        let words = self.message_words(world, messages.0, request)?;
        let at = self.links.iter().position(|link| link.peer == to).ok_or(UsageError::NoSuchPeer)?;
        if self.asking.open.iter().filter(|open| open.peer == to).count() >= limits::REQUESTS {
            return Err(UsageError::TooManyRequests);
        }
        let number = self.asking.next;
        let mut masked = Vec::new();
        let words = match self.hide_names(world, at, messages.0, &words, &mut masked) {
            Seen::All => Some(words.as_slice()),
            Seen::Part => Some(masked.as_slice()),
            Seen::Nothing => None,
        };
        match words {
            Some(words) => {
                let bytes = encode(&self.schema.messages[messages.0], messages.0, Some(number), Some(words));
                if !self.links[at].post(Lane::RELIABLE, &bytes) {
                    return Err(UsageError::Backlog);
                }
                let deadline = self.time.now.saturating_add(time);
                self.asking.open.push(Open { peer: to, number, messages, deadline });
            }
            None => self.tell_failed(to, number, messages.0, RequestFailure::Refused),
        }
        self.asking.next = number.wrapping_add(1);
        Ok(RequestId::new(to, number))
    }

    /// The requests of one type that have come, oldest first, with who asks. Answer each with [`reply`](Self::reply) or
    /// [`refuse_request`](Self::refuse_request), now or later.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn requests<Q: Request>(&mut self) -> Result<Vec<(PeerId, RequestId<Q>, Q)>, UsageError> {
        let (index, _) = self.request_index::<Q>()?;
        let taken = self.mailbox.fetch::<Q>(index, true, self.time.tick, &self.entities);
        Ok(taken.into_iter().map(|(w, request)| (w.from, RequestId::new(w.from, w.number), request)).collect())
    }

    /// Answers a request.
    ///
    /// # Errors
    /// Those of [`send_message`](Self::send_message), after which it can be answered again; [`UsageError::NoSuchRequest`] if it has
    /// been answered, its asker has left, or it was given up because too many of that peer's wait.
    pub fn reply<Q: Request>(&mut self, world: &World, id: RequestId<Q>, reply: &Q::Reply) -> Result<(), UsageError> {
        let messages = self.request_index::<Q>()?;
        let (place, at) = self.asked_at(id.peer, id.number, messages.0)?;
        let words = self.message_words(world, messages.1, reply)?;
        let mut masked = Vec::new();
        let words = match self.hide_names(world, at, messages.1, &words, &mut masked) {
            Seen::All => Some(words.as_slice()),
            Seen::Part => Some(masked.as_slice()),
            Seen::Nothing => None,
        };
        self.answer(place, at, words)
    }

    /// Refuses a request: its asker is told [`RequestFailure::Refused`].
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`]; [`UsageError::NoSuchRequest`] and [`UsageError::Backlog`] as for [`reply`](Self::reply).
    pub fn refuse_request<Q: Request>(&mut self, id: RequestId<Q>) -> Result<(), UsageError> {
        let (index, _) = self.request_index::<Q>()?;
        let (place, at) = self.asked_at(id.peer, id.number, index)?;
        self.answer(place, at, None)
    }

    /// The replies that have come to this peer's requests of one type, in the order in which each peer has answered.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`].
    pub fn replies<Q: Request>(&mut self) -> Result<Replies<Q>, UsageError> {
        let (_, index) = self.request_index::<Q>()?;
        let taken = self.mailbox.fetch::<Q::Reply>(index, true, self.time.tick, &self.entities);
        Ok(taken.into_iter().map(|(w, reply)| (RequestId::new(w.from, w.number), reply)).collect())
    }

    /// Where a request and its reply are in the schema.
    fn request_index<Q: Request>(&self) -> Result<(usize, usize), UsageError> {
        let find = |id: TypeId| self.schema.messages.iter().position(|m| m.type_id == id);
        let found = find(TypeId::of::<Q>()).zip(find(TypeId::of::<ReplyOf<Q>>()));
        found.ok_or(UsageError::NotInSchema(std::any::type_name::<Q>()))
    }

    /// The place of another's request in the list, and the link to who asks.
    fn asked_at(&self, peer: PeerId, number: u32, message: usize) -> Result<(usize, usize), UsageError> {
        let is_it = |asked: &Asked| (asked.peer, asked.number, asked.message) == (peer, number, message);
        let place = self.asking.asked.iter().position(is_it);
        let at = self.links.iter().position(|link| link.peer == peer);
        place.zip(at).ok_or(UsageError::NoSuchRequest)
    }

    /// Sends an answer, or a refusal. From then on nobody can answer any more.
    fn answer(&mut self, place: usize, at: usize, words: Option<&[u32]>) -> Result<(), UsageError> {
        let Asked { number, message, .. } = self.asking.asked[place];
        let reply = self.schema.reply_to(message);
        let bytes = encode(&self.schema.messages[reply], reply, Some(number), words);
        if !self.links[at].post(Lane::RELIABLE, &bytes) {
            return Err(UsageError::Backlog);
        }
        self.asking.asked.remove(place);
        Ok(())
    }

    /// A request has come.
    pub(super) fn take_request(&mut self, message: usize, waiting: Waiting) -> Result<(), PeerError> {
        let (peer, number) = (waiting.from, waiting.number);
        let asked = &mut self.asking.asked;
        if asked.iter().any(|asked| (asked.peer, asked.number) == (peer, number)) {
            return Err(PeerError::OutOfOrder("a request of a number that waits for its answer"));
        }
        // its asker has given up on the oldest, or never had so many
        if asked.iter().filter(|asked| asked.peer == peer).count() >= limits::REQUESTS
            && let Some(oldest) = asked.iter().position(|asked| asked.peer == peer)
        {
            asked.remove(oldest);
        }
        asked.push(Asked { peer, number, message });
        self.put_in_box(message, waiting);
        Ok(())
    }

    /// A reply has come, or without words a refusal. One to what has an outcome already is let go.
    pub(super) fn take_reply(&mut self, message: usize, refused: bool, waiting: Waiting) -> Result<(), PeerError> {
        let of = (waiting.from, waiting.number);
        let Some(place) = self.asking.open.iter().position(|open| (open.peer, open.number) == of) else { return Ok(()) };
        if self.asking.open[place].messages.1 != message {
            return Err(PeerError::OutOfOrder("a reply to a request of another type"));
        }
        let open = self.asking.open.remove(place);
        if refused {
            self.tell_failed(open.peer, open.number, open.messages.0, RequestFailure::Refused);
        } else {
            self.put_in_box(message, waiting);
        }
        Ok(())
    }

    /// A request or reply was dropped before it was fetched.
    pub(super) fn dropped_unanswered(&mut self, message: usize, waiting: &Waiting) {
        if let Some(request) = self.schema.request_of(message) {
            self.tell_failed(waiting.from, waiting.number, request, RequestFailure::Dropped);
        } else if let Ok((place, at)) = self.asked_at(waiting.from, waiting.number, message) {
            // without room for a refusal its asker finds out by its deadline
            let _ = self.answer(place, at, None);
        }
    }

    /// Gives up requests whose time is over.
    pub(crate) fn settle_requests(&mut self) {
        let now = self.time.now;
        while let Some(place) = self.asking.open.iter().position(|open| now >= open.deadline) {
            let open = self.asking.open.remove(place);
            self.tell_failed(open.peer, open.number, open.messages.0, RequestFailure::Deadline);
        }
    }

    /// A peer has left: nothing is asked of it any more, nor by it.
    pub(crate) fn fail_requests(&mut self, peer: PeerId) {
        self.asking.asked.retain(|asked| asked.peer != peer);
        while let Some(place) = self.asking.open.iter().position(|open| open.peer == peer) {
            let open = self.asking.open.remove(place);
            self.tell_failed(peer, open.number, open.messages.0, RequestFailure::Left);
        }
    }

    fn tell_failed(&mut self, to: PeerId, number: u32, message: usize, why: RequestFailure) {
        let request = self.schema.messages[message].name.clone();
        self.news.push(News::RequestFailed { to, request, number, why });
    }
}
