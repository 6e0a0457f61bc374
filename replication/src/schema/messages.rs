//! Messages in the schema: what each is promised on its way, and how they are registered.

use super::{Inner, SchemaBuilder, SchemaMistake};
use crate::layout::Layout;
use crate::messages::{LargeMessage, Request};
use crate::replicate::{Replicate, Restorer};
use hecs::Entity;
use std::any::TypeId;
use std::marker::PhantomData;
use tidelock_netcore::limits;

/// What a message is promised on its way. The number stands in the digest of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// May be lost, doubled or overtaken.
    Unreliable = 0,
    /// Exactly once, in the order in which its sender sent it.
    Ordered = 1,
    /// Exactly once, each as soon as it can.
    Unordered = 2,
    /// May be lost; what is older than the newest that came is not told.
    Sequenced = 3,
    /// Exactly once and in order, in packets of state.
    Event = 4,
    /// The same, and a guest's goes on to the other guests if it wants.
    SharedEvent = 5,
    /// Exactly once and in order, and it has one reply.
    Request = 6,
    /// That.
    Reply = 7,
}

impl Promise {
    /// Does it travel as a datagram of its own?
    pub(crate) fn is_loose(self) -> bool {
        matches!(self, Self::Unreliable | Self::Sequenced)
    }

    /// Does it ride along with state?
    pub(crate) fn is_event(self) -> bool {
        matches!(self, Self::Event | Self::SharedEvent)
    }

    /// For [`Schema::explain`](crate::Schema::explain).
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Unreliable => "unreliable",
            Self::Ordered => "reliable, ordered",
            Self::Unordered => "reliable, unordered",
            Self::Sequenced => "unreliable, sequenced",
            Self::Event => "event",
            Self::SharedEvent => "event, handed on to all",
            Self::Request => "request",
            Self::Reply => "its reply",
        }
    }
}

/// A message's or an order's entry.
pub(crate) struct MessageEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
    pub(crate) layout: Layout,
    pub(crate) promise: Promise,
    /// Can the words be a message at all, once every entity that they name is here?
    pub(crate) is_complete: fn(&[u32]) -> bool,
}

impl MessageEntry {
    pub(super) fn new<M: Replicate>(sort: &'static str, name: &str, promise: Promise) -> Result<Self, SchemaMistake> {
        let name = name.to_owned();
        match Layout::of::<M>() {
            Ok(layout) => {
                let is_complete = |words: &[u32]| M::restore(&mut Restorer::new(words, &|_| Some(Entity::DANGLING))).is_ok();
                Ok(Self { name, type_id: TypeId::of::<M>(), layout, promise, is_complete })
            }
            Err(error) => Err(SchemaMistake::Layout { sort, name, error }),
        }
    }
}

/// A large message's entry.
pub(crate) struct LargeEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
}

/// Stands for the type of a request's reply, which may be that of other requests too.
pub(crate) struct ReplyOf<Q>(PhantomData<Q>);

/// What a reply's name ends with.
const REPLY: &str = ".reply";

impl Inner {
    /// Where the reply to a request is.
    pub(crate) fn reply_to(&self, request: usize) -> usize {
        let name = format!("{}{REPLY}", self.messages[request].name);
        self.messages.iter().position(|m| m.promise == Promise::Reply && m.name == name).unwrap_or(request)
    }

    /// What a reply answers; `None` for what is no reply.
    pub(crate) fn request_of(&self, reply: usize) -> Option<usize> {
        let name = self.messages[reply].name.strip_suffix(REPLY).filter(|_| self.messages[reply].promise == Promise::Reply)?;
        self.messages.iter().position(|m| m.name == name)
    }
}

impl SchemaBuilder {
    /// Registers a message that arrives exactly once and in order. Its fields are coded like a component's; it waits at the
    /// receiver until the entities it names are there.
    #[must_use]
    pub fn message<M: Replicate>(self, name: &str) -> Self {
        self.message_form::<M>(name, Promise::Ordered)
    }

    /// Registers a message that arrives exactly once, but not in order: one that was lost and has to be sent again holds up no
    /// other, where the transport can do that ([`Lane::UNORDERED`](crate::netcore::transport::Lane::UNORDERED)).
    #[must_use]
    pub fn unordered_message<M: Replicate>(self, name: &str) -> Self {
        self.message_form::<M>(name, Promise::Unordered)
    }

    /// Registers a message that may be lost, doubled or overtaken.
    #[must_use]
    pub fn unreliable_message<M: Replicate>(self, name: &str) -> Self {
        self.message_form::<M>(name, Promise::Unreliable)
    }

    /// Registers a message that may be lost, and that only the newest counts of: what was overtaken by a newer one of its type and
    /// sender is dropped, and none comes twice.
    #[must_use]
    pub fn sequenced_message<M: Replicate>(self, name: &str) -> Self {
        self.message_form::<M>(name, Promise::Sequenced)
    }

    /// Registers an event: a message that rides along with state instead of travelling by itself, exactly once and in order for each
    /// sender, and sent again only when the packet that carried it is lost. It is sent like any other message, or for a tick with
    /// [`Peer::send_event_at`](crate::Peer::send_event_at), and told by [`Peer::events`](crate::Peer::events). At most
    /// [`limits::EVENT_BITS`] long.
    #[must_use]
    pub fn event<E: Replicate>(self, name: &str) -> Self {
        self.message_form::<E>(name, Promise::Event)
    }

    /// The same, and a guest can send it to [`To::All`](crate::To::All): the host, which is told it too, hands it on to the other
    /// guests as that guest's. Nobody checks what it says before it is handed on.
    ///
    /// A guest may send [`limits::SHARED_EVENTS_RATE`] of them in a second to all; beyond, the call says
    /// [`UsageError::Backlog`](crate::UsageError::Backlog). The host has each of them exactly once. Another guest that takes them more
    /// slowly than they come, so that twice [`limits::EVENTS_IN_FLIGHT`] of all guests' wait for it, lacks some: of who has most there,
    /// the newest are dropped, which the host is told ([`News::MessageDropped`](crate::News::MessageDropped), and
    /// [`LinkCounters::dropped_messages`](crate::LinkCounters::dropped_messages) of the sender). What it gets is in order all the same.
    #[must_use]
    pub fn shared_event<E: Replicate>(self, name: &str) -> Self {
        self.message_form::<E>(name, Promise::SharedEvent)
    }

    /// Registers a request and its reply, which stands in the schema under the same name with `.reply` after it. See
    /// [`Peer::request`](crate::Peer::request).
    #[must_use]
    pub fn request<Q: Request>(self, name: &str) -> Self {
        let mut builder = self.message_form::<Q>(name, Promise::Request);
        match MessageEntry::new::<Q::Reply>("message", &format!("{name}{REPLY}"), Promise::Reply) {
            Ok(entry) => builder.messages.push(MessageEntry { type_id: TypeId::of::<ReplyOf<Q>>(), ..entry }),
            Err(mistake) => builder.mistakes.push(mistake),
        }
        builder
    }

    /// Registers a large message: see [`Peer::send_large`](crate::Peer::send_large).
    #[must_use]
    pub fn large_message<L: LargeMessage>(mut self, name: &str) -> Self {
        self.larges.push(LargeEntry { name: name.to_owned(), type_id: TypeId::of::<L>() });
        self
    }

    fn message_form<M: Replicate>(mut self, name: &str, promise: Promise) -> Self {
        match MessageEntry::new::<M>("message", name, promise) {
            Ok(entry) if promise.is_event() && entry.layout.worst_bits() > limits::EVENT_BITS => {
                let (bits, max) = (entry.layout.worst_bits(), limits::EVENT_BITS);
                self.mistakes.push(SchemaMistake::TooLarge { sort: "event", name: name.to_owned(), bits, max });
            }
            Ok(entry) => self.messages.push(entry),
            Err(mistake) => self.mistakes.push(mistake),
        }
        self
    }
}
