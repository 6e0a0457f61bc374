//! A participant of a session.

use std::fmt;

/// A participant of a session: the host, or the guest in one seat. Not given to another guest within a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
