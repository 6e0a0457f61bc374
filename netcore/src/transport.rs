//! What a transport is: it moves bytes and says who came and went; nothing else.
//!
//! A transport that does I/O owns its thread; this trait is the game thread's side of it, and never blocks. Caller's contract:
//! call [`Transport::poll`] until it gives `None`, then send, then [`Transport::flush`]; once per frame is enough.

use crate::error::{LinkError, TransportError};
use std::time::Duration;

/// One connection of a transport. Never used again by the same transport after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A stream of reliable messages, in order but for [`Lane::UNORDERED`]. Lanes do not hold each other up where
/// [`Facts::independent_lanes`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u8);

impl Lane {
    /// Handshake, roster, digests: Tidelock's own.
    pub const CONTROL: Lane = Lane(0);
    /// The game's reliable ordered messages.
    pub const RELIABLE: Lane = Lane(1);
    /// Large things in pieces: Tidelock's own. Where the network is narrow, a transport that can sends it last.
    pub const BULK: Lane = Lane(2);
    /// The game's reliable messages that are each on their own: exactly once, in whatever order they come. A transport that can lets
    /// a lost one hold up no other; one that has only ordered streams gives them one of its own, in order.
    pub const UNORDERED: Lane = Lane(3);
    /// Lanes that every transport must offer: `Lane(0)` up to this, exclusive.
    pub const COUNT: u8 = 4;
}

/// What a transport knows about one link. The figures may change from call to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Datagrams travel on something lossless and ordered (WebSocket): no loss timer is needed.
    pub lossless: bool,
    /// A message lost on one lane does not delay another lane.
    pub independent_lanes: bool,
    /// Largest datagram, in bytes, that can be sent now.
    pub datagram_limit: usize,
    /// Bytes that the transport adds to each datagram on its way (an estimate).
    pub datagram_overhead: usize,
    /// Bytes of datagrams that it would take now before it answers [`Delivery::Full`].
    pub free: usize,
    /// Bytes per second, overhead included, that the transport's own congestion control believes the path carries now; never less
    /// than what is being sent without loss. `None` where it has no congestion control, or knows nothing yet.
    pub rate: Option<u64>,
}

/// The answer to a send. Both are normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a full transport took nothing"]
pub enum Delivery {
    /// Taken; for datagrams no promise beyond that.
    Taken,
    /// No room now; nothing was taken. Try again after a while.
    Full,
}

/// What came in. The payload of `Datagram` and `Message` is in the buffer that was given to [`Transport::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A link is open: one that we asked for, or one that came in.
    Opened {
        /// Its name from now on.
        link: LinkId,
        /// Where it leads, for logs and people.
        address: String,
    },
    /// A datagram.
    Datagram {
        /// From where.
        link: LinkId,
    },
    /// A whole message of a reliable lane.
    Message {
        /// From where.
        link: LinkId,
        /// On which lane.
        lane: Lane,
    },
    /// A link has ended, or could not be opened; nothing more comes from it.
    Closed {
        /// Which one.
        link: LinkId,
        /// Why.
        reason: LinkError,
    },
}

/// Traffic and state of one link, as the transport counts it. Zero where a transport cannot know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Round trip as the transport measures it.
    pub rtt: Duration,
    /// Bytes sent, the transport's own overhead included.
    pub bytes_out: u64,
    /// Bytes received, the transport's own overhead included.
    pub bytes_in: u64,
    /// Packets that the transport sent.
    pub packets_out: u64,
    /// Packets that the transport believes lost on their way out.
    pub packets_lost: u64,
}

/// Moves bytes between this peer and others.
pub trait Transport: Send {
    /// The next thing that came in, if any; its payload replaces what is in `payload`. `now` counts from the program's own
    /// start; transports over real sockets do not need it.
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival>;

    /// What is known of an open link; `None` if it is not open.
    fn facts(&self, link: LinkId) -> Option<Facts>;

    /// Sends one datagram: it may be lost, doubled or overtaken, but arrives whole or not at all.
    ///
    /// # Errors
    /// [`TransportError::TooLarge`] beyond [`Facts::datagram_limit`], [`TransportError::NotOpen`] for a link that is not open.
    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError>;

    /// Sends one message on a reliable lane: it arrives exactly once, and in order but on [`Lane::UNORDERED`], unless the link ends.
    ///
    /// # Errors
    /// [`TransportError::TooLarge`] beyond [`limits::MESSAGE_BYTES`](crate::limits::MESSAGE_BYTES),
    /// [`TransportError::NotOpen`] for a link that is not open, [`TransportError::NoSuchLane`] from [`Lane::COUNT`] on.
    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError>;

    /// Ends a link. The other side is told `code` and `text` (at most [`limits::CLOSE_TEXT_BYTES`](crate::limits::CLOSE_TEXT_BYTES))
    /// after whatever was already taken for its reliable lanes, as far as possible within a second. No
    /// [`Arrival::Closed`] follows on this side. Unknown links are ignored.
    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str);

    /// Hands over to the network what was taken since the last call.
    fn flush(&mut self, now: Duration) {
        let _ = now;
    }

    /// The transport's own figures for a link.
    fn stats(&self, link: LinkId) -> LinkStats;
}
