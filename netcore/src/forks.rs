//! What peers say to each other when the states that all of them compute have come apart: see [`Control::Fork`].
//!
//! [`Control::Fork`]: crate::control::Control::Fork

use crate::control::clean;
use crate::error::PeerError;
use crate::limits;
use bitcode::{Decode, Encode};

/// A word about forks. `line` is 1 for rollback and 2 for lockstep, `tick` one of that timeline's own.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Fork {
    /// Guest to host: what its state, or the part of it whose turn it was, was after a tick.
    Digest(StateDigest),
    /// Host to guests: some have computed something else than it has.
    Found(ForkFound),
    /// Host to a guest that has: what did it have in that tick? Each gets one [`ForkAnswer`], in order.
    Question(ForkQuestion),
    /// Guest to host: the answer.
    Answer(ForkAnswer),
    /// Host to guests: the first value that differs.
    Located(ForkLocated),
}

/// The digest of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StateDigest {
    /// The timeline.
    pub line: u8,
    /// After this tick.
    pub tick: u64,
    /// The digest.
    pub digest: u64,
}

/// A fork: who differs from the host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ForkFound {
    /// The timeline.
    pub line: u8,
    /// After this tick.
    pub tick: u64,
    /// The host's digest.
    pub digest: u64,
    /// Peers whose digest is another, and theirs; at most [`limits::PEERS`].
    pub peers: Vec<(u16, u64)>,
}

/// One step of the way down from a digest to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ForkQuestion {
    /// The timeline.
    pub line: u8,
    /// After this tick.
    pub tick: u64,
    /// What is asked.
    pub ask: ForkAsk,
}

/// What is asked of a state. Part 0 is who is there, of which kind and with which components; the others are components and
/// resources, in the schema's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ForkAsk {
    /// A sum of hashes for each part.
    Sums,
    /// Of one part, a sum for each class of names.
    Classes {
        /// The part.
        part: u8,
    },
    /// The rows of one part and class, with their hashes.
    Rows {
        /// The part.
        part: u8,
        /// The class.
        class: u8,
    },
    /// One value.
    Value {
        /// The part.
        part: u8,
        /// Whose.
        net: u64,
    },
}

/// The answer to a [`ForkQuestion`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ForkAnswer {
    /// The state is not kept any more, or the question means nothing here.
    Gone,
    /// At most [`limits::COMPONENTS`] + 1.
    Sums(Vec<u64>),
    /// [`limits::FORK_CLASSES`].
    Classes(Vec<u64>),
    /// Names and hashes, by name; the first [`limits::FORK_ROWS`].
    Rows(Vec<(u64, u64)>),
    /// The bytes of the value, if there is one, at most [`limits::FORK_VALUE_BYTES`].
    Value(Option<Vec<u8>>),
    /// The value has more.
    TooLong,
}

/// Where two states differ.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ForkLocated {
    /// The timeline.
    pub line: u8,
    /// After this tick.
    pub tick: u64,
    /// Who differs from the host.
    pub peer: u16,
    /// The entity.
    pub net: u64,
    /// The part, as in [`ForkAsk`].
    pub part: u8,
    /// The field, at most [`limits::FORK_TEXT_BYTES`], like both values.
    pub field: String,
    /// The host's value.
    pub host: String,
    /// The guest's.
    pub guest: String,
}

/// Compares what came with its limits.
pub(crate) fn check(fork: &mut Fork) -> Result<(), PeerError> {
    let at_most = |count: usize, limit: usize, what: &'static str| {
        if count > limit { Err(PeerError::OverLimit { what }) } else { Ok(()) }
    };
    match fork {
        Fork::Digest(_) | Fork::Question(_) => Ok(()),
        Fork::Found(found) => at_most(found.peers.len(), limits::PEERS, "the peers of a fork"),
        Fork::Answer(ForkAnswer::Sums(sums)) => at_most(sums.len(), limits::COMPONENTS + 1, "the sums of a state"),
        Fork::Answer(ForkAnswer::Classes(sums)) => at_most(sums.len(), limits::FORK_CLASSES, "the classes of a state"),
        Fork::Answer(ForkAnswer::Rows(rows)) => at_most(rows.len(), limits::FORK_ROWS, "the rows of a state"),
        Fork::Answer(ForkAnswer::Value(bytes)) => {
            at_most(bytes.as_ref().map_or(0, Vec::len), limits::FORK_VALUE_BYTES, "a value of a state")
        }
        Fork::Answer(ForkAnswer::Gone | ForkAnswer::TooLong) => Ok(()),
        Fork::Located(located) => [&mut located.field, &mut located.host, &mut located.guest].into_iter().try_for_each(|text| {
            at_most(text.len(), limits::FORK_TEXT_BYTES, "a text of a fork")?;
            *text = clean(text, limits::FORK_TEXT_BYTES);
            Ok(())
        }),
    }
}

/// Is it a guest's to say?
pub(crate) fn is_guests(fork: &Fork) -> bool {
    matches!(fork, Fork::Digest(_) | Fork::Answer(_))
}
