//! Names of networked entities.

use std::fmt;

/// An entity's name in a session: the same on every peer, unrelated to `hecs::Entity`, never reused.
///
/// 0 names nothing: it is how "no entity" travels. On the wire a name is an Exp-Golomb code that ends at `u64::MAX - 256`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, bitcode::Encode, bitcode::Decode)]
pub struct NetId(pub u64);

impl NetId {
    /// The name as two words, low one first, as the history keeps it.
    #[inline]
    #[must_use]
    pub const fn to_words(self) -> [u32; 2] {
        [self.0 as u32, (self.0 >> 32) as u32]
    }

    /// The inverse of [`to_words`](Self::to_words).
    #[inline]
    #[must_use]
    pub const fn from_words(low: u32, high: u32) -> Self {
        Self(low as u64 | (high as u64) << 32)
    }
}

impl fmt::Display for NetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
