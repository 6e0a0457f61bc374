//! Errors, by who is at fault: the other peer, the transport, or the program.

use crate::bits::BitError;
use thiserror::Error;

/// Why a link ended or never opened, as a transport tells it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LinkError {
    /// The other side ended it, with a code (see [`DisconnectReason`]) and a text.
    #[error("closed by the other side: {text} (code {code})")]
    ClosedByPeer {
        /// The number of a [`DisconnectReason`], or of something newer.
        code: u32,
        /// Words for a person; from the other side, so not to be trusted.
        text: String,
    },
    /// Nothing was heard for the time-out.
    #[error("timed out: nothing was heard from the other side")]
    TimedOut,
    /// Somebody is there and does not want us (no listener, a full house, a closed door).
    #[error("refused: {0}")]
    Refused(String),
    /// No way leads to that address.
    #[error("unreachable: {0}; check the address and the network")]
    Unreachable(String),
    /// The host's certificate is not the pinned one.
    #[error("the certificate is not the one that was pinned: {0}; ask the host for its current address#fingerprint")]
    Certificate(String),
    /// The transports speak different versions.
    #[error("no transport version in common: {0}; update the older side")]
    Version(String),
    /// The host takes no more connections.
    #[error("the host is full: {0}")]
    Full(String),
    /// Anything else, with the transport's own words.
    #[error("the link failed: {0}")]
    Failed(String),
}

/// A send that a transport cannot do. [`Delivery::Full`](crate::transport::Delivery::Full) is not among them: it is a normal answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TransportError {
    /// More bytes than fit one datagram or message. Nothing was sent.
    #[error("{size} bytes are too many: the limit is {limit}")]
    TooLarge {
        /// What was asked for.
        size: usize,
        /// What fits now.
        limit: usize,
    },
    /// The link was never open, or has ended.
    #[error("the link is not open")]
    NotOpen,
    /// Lanes are numbered from 0 to [`Lane::COUNT`](crate::transport::Lane::COUNT) - 1.
    #[error("there is no lane {0}")]
    NoSuchLane(u8),
    /// The endpoint could not be made or has died, with the system's words.
    #[error("the transport cannot work: {0}")]
    Broken(String),
}

/// Something that the other peer did wrong. It costs that peer its packet or its link, and nobody else anything.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PeerError {
    /// Bytes that do not follow the wire format.
    #[error("malformed {what}: {cause}")]
    Malformed {
        /// Which part of which packet or message.
        what: &'static str,
        /// How.
        cause: BitError,
    },
    /// Well formed, but beyond a limit of [`limits`](crate::limits).
    #[error("{what} is beyond its limit")]
    OverLimit {
        /// Which limit.
        what: &'static str,
    },
    /// Something that may not be said in this state.
    #[error("{0} is out of order here")]
    OutOfOrder(&'static str),
}

/// Why a peer left or was removed: told to it, to the others, and to the game.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DisconnectReason {
    /// It said goodbye.
    #[error("left")]
    Left,
    /// The host removed it, with the host's words.
    #[error("kicked: {0}")]
    Kicked(String),
    /// The host ended the session.
    #[error("the host ended the session")]
    HostLeft,
    /// Nothing was heard for the time-out.
    #[error("timed out")]
    TimedOut,
    /// It sent bytes that do not follow the protocol.
    #[error("sent malformed data")]
    Malformed,
    /// Too many of its writes were refused.
    #[error("too many of its writes were refused")]
    TooManyRefusals,
    /// It could not take its reliable messages as fast as they came.
    #[error("too slow for its reliable messages")]
    TooSlow,
    /// No protocol version in common; the host's are listed.
    #[error("no protocol version in common (the host speaks {0}); update the older side")]
    Version(String),
    /// The schemas differ; what differs is listed, worst first.
    #[error("the schemas differ: {0}")]
    Schema(String),
    /// No seat was free.
    #[error("the session is full")]
    Full,
    /// The link ended without a word, or in the transport's.
    #[error("{0}")]
    Link(LinkError),
}

impl DisconnectReason {
    /// The code and the words for the wire.
    #[must_use]
    pub fn to_wire(&self) -> (u32, String) {
        match self {
            Self::Left => (1, String::new()),
            Self::Kicked(t) => (2, t.clone()),
            Self::HostLeft => (3, String::new()),
            Self::TimedOut => (4, String::new()),
            Self::Malformed => (5, String::new()),
            Self::TooManyRefusals => (6, String::new()),
            Self::TooSlow => (7, String::new()),
            Self::Version(t) => (8, t.clone()),
            Self::Schema(t) => (9, t.clone()),
            Self::Full => (10, String::new()),
            Self::Link(e) => (11, e.to_string()),
        }
    }

    /// The inverse of [`to_wire`](Self::to_wire); unknown codes come back as [`DisconnectReason::Link`].
    #[must_use]
    pub fn from_wire(code: u32, text: &str) -> Self {
        match code {
            1 => Self::Left,
            2 => Self::Kicked(text.into()),
            3 => Self::HostLeft,
            4 => Self::TimedOut,
            5 => Self::Malformed,
            6 => Self::TooManyRefusals,
            7 => Self::TooSlow,
            8 => Self::Version(text.into()),
            9 => Self::Schema(text.into()),
            10 => Self::Full,
            _ => Self::Link(LinkError::ClosedByPeer { code, text: text.into() }),
        }
    }
}
