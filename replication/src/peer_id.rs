//! A participant of a session.

use std::fmt;

/// A participant of a session: the host, or the guest in one seat.
///
/// A guest that leaves and comes back is another participant. Its old number goes to another guest only after all 1 023 numbers
/// have been in use, the one that was left first before the others, and never while the host has anything left of its former
/// holder: a link, names, something it owns, or the tombstone of such a thing that somebody has not acknowledged. What a program
/// keeps under a number, it lets go at [`News::Left`](crate::News::Left). [`NetId`](crate::NetId)s are never given again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, bitcode::Encode, bitcode::Decode)]
pub struct PeerId(pub u16);

impl PeerId {
    /// The host is always this one.
    pub const HOST: PeerId = PeerId(0);
    /// Nobody: the owner of what waits for one.
    pub const NOBODY: PeerId = PeerId(u16::MAX);
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HOST => f.write_str("host"),
            Self::NOBODY => f.write_str("nobody"),
            Self(n) => write!(f, "guest {n}"),
        }
    }
}
