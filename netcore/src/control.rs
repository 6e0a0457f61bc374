//! The messages of [`Lane::CONTROL`](crate::transport::Lane::CONTROL): greeting, roster, leases of names, digests.
//!
//! ```text
//! byte 0    the layout of the rest: 1
//! byte 1..  the message, in bitcode's encoding (its major version belongs to the layout)
//! ```
//!
//! A message is at most [`limits::MESSAGE_BYTES`] long, which is compared before it is decoded: bitcode spends at least one bit
//! per element, so that bounds what decoding can allocate. The number of elements and the bytes of every text are compared
//! after, and texts are cleaned of what could garble a screen or a log.

use crate::bits::BitError;
use crate::error::PeerError;
use crate::forks::{self, Fork};
use crate::limits;
use bitcode::{Decode, Encode};

/// The protocol versions that this build speaks, in rising order.
pub const PROTOCOL_VERSIONS: &[u16] = &[1];

/// One message of the control lane.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Control {
    /// Guest to host, first of all: who it is and what it speaks.
    Hello(Hello),
    /// Host to guest: it is in.
    Welcome(Welcome),
    /// Host to guests: somebody came (or was there before, when a [`Welcome`] could not name all).
    Joined {
        /// The newcomer's number: one that nobody has at that time.
        peer: u16,
        /// What it calls itself, at most [`limits::NAME_BYTES`].
        name: String,
    },
    /// Host to guests: somebody went.
    Left {
        /// Its number. Another guest may get it, much later: see `Joined`.
        peer: u16,
        /// The code of a [`DisconnectReason`](crate::error::DisconnectReason).
        code: u32,
        /// The words that go with it, at most [`limits::CLOSE_TEXT_BYTES`].
        text: String,
    },
    /// Guest to host: the lease of names is nearly used up.
    LeaseRequest,
    /// Host to guest: a further lease of [`limits::LEASE`] names.
    Lease {
        /// The first name of the lease.
        first: u64,
    },
    /// Host to guests: what it holds after it has settled, for comparison.
    Digest(Digest),
    /// Guest to host: the answer to a [`Digest`], one for each.
    Verdict(Verdict),
    /// Guest to host: it asks to own an entity, or a part of it. Each gets one [`OwnershipAnswer`].
    OwnershipRequest(OwnershipRequest),
    /// Guest to host: it gives up what it owns.
    OwnershipRelease(OwnershipRelease),
    /// Host to guest: what became of an [`OwnershipRequest`].
    OwnershipAnswer(OwnershipAnswer),
    /// What is computed everywhere has come apart, or is compared to see whether it has.
    Fork(Fork),
}

/// A guest asks for an owner slot of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OwnershipRequest {
    /// Which of the guest's requests this is.
    pub number: u32,
    /// The entity's name.
    pub net: u64,
    /// The owner slot.
    pub slot: u8,
}

/// A guest gives an owner slot of an entity up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OwnershipRelease {
    /// The entity's name.
    pub net: u64,
    /// The owner slot.
    pub slot: u8,
    /// The ownership that is given up: under any other it says nothing.
    pub epoch: u16,
    /// Who is to have it, if the host agrees; else the host.
    pub to: Option<u16>,
}

/// The answer to an [`OwnershipRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct OwnershipAnswer {
    /// The number of the request.
    pub number: u32,
    /// What became of it.
    pub verdict: OwnershipVerdict,
}

/// What a host says to a request for ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum OwnershipVerdict {
    /// The guest owns it, under this epoch, which the stream of state tells everybody.
    Granted {
        /// The epoch.
        epoch: u16,
    },
    /// There is no such entity, or the guest does not see it.
    Unknown,
    /// Nobody may ask for entities of that kind.
    Closed,
    /// Somebody else owns it.
    Taken,
    /// The host's game has said no.
    Declined,
    /// The guest asks for too much at a time.
    TooMany,
    /// The host's game has not said anything in time.
    Unanswered,
}

/// How a guest introduces itself. Make it with [`Hello::new`], which keeps it within one message.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// Protocol versions spoken, at most [`limits::VERSIONS`].
    pub versions: Vec<u16>,
    /// Digest of the whole schema: equal digests need no look at the list.
    pub schema_digest: u64,
    /// The schema's parts, sorted by name: only to say what differs when the digests do.
    pub schema: Vec<SchemaEntry>,
    /// Whether `schema` lists everything; if not, the names after its last were left out.
    pub complete: bool,
    /// Digest of the trained tables that the guest has, if it has any.
    pub tables: Option<u64>,
    /// What the guest calls itself, at most [`limits::NAME_BYTES`].
    pub name: String,
}

/// One named part of a schema: a component, a kind or a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct SchemaEntry {
    /// Its stable name.
    pub name: String,
    /// Digest of its layout.
    pub digest: u64,
}

/// What an admitted guest needs to know at once.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Welcome {
    /// The protocol version that is spoken from here on.
    pub version: u16,
    /// The session's id.
    pub session: u64,
    /// Rises with every change of host.
    pub epoch: u32,
    /// The guest's own number.
    pub peer: u16,
    /// Ticks per second, from 1 to [`limits::TICK_RATE`].
    pub tick_rate: u32,
    /// Session time at sending, in microseconds, below [`limits::SESSION_MICROS`].
    pub time_us: u64,
    /// The first name of a lease of [`limits::LEASE`].
    pub lease: u64,
    /// Who else is there. Those for whom [`Welcome::cut_to_fit`] found no room follow as [`Control::Joined`].
    pub peers: Vec<(u16, String)>,
    /// The trained tables of the session, if it has any.
    pub tables: Option<SessionTables>,
}

/// The trained tables of a session.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SessionTables {
    /// Their digest.
    pub digest: u64,
    /// The tables, at most [`limits::TABLES_BYTES`]; nothing if the guest has said the same digest.
    pub bytes: Vec<u8>,
}

/// Digests of the quantised values, by component: equal sums mean equal states.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Digest {
    /// Which comparison this belongs to.
    pub round: u32,
    /// Index of the component in the schema, and the digest of all its values.
    pub parts: Vec<(u16, u64)>,
}

/// What a comparison of digests found.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Verdict {
    /// The round of the [`Digest`] that it answers.
    pub round: u32,
    /// The components that differ; empty if none do.
    pub differing: Vec<u16>,
}

impl Hello {
    /// A greeting that fits one message: cleans the names, sorts the parts, and leaves out the last ones if they are too many.
    #[must_use]
    pub fn new(versions: &[u16], schema_digest: u64, schema: &[SchemaEntry], name: &str) -> Self {
        let mut listed: Vec<SchemaEntry> =
            schema.iter().map(|e| SchemaEntry { name: clean(&e.name, limits::NAME_BYTES), digest: e.digest }).collect();
        listed.sort();
        let fits = count_that_fit(0, listed.iter().map(|e| e.name.len())).min(SCHEMA_ENTRIES);
        let complete = fits == listed.len();
        listed.truncate(fits);
        let versions = versions.iter().copied().take(limits::VERSIONS).collect();
        Self { versions, schema_digest, schema: listed, complete, tables: None, name: clean(name, limits::NAME_BYTES) }
    }
}

impl Welcome {
    /// Takes out the peers that do not fit the message; the host tells of them with [`Control::Joined`], right after this.
    #[must_use = "the guest must still be told of these"]
    pub fn cut_to_fit(&mut self) -> Vec<(u16, String)> {
        for (_, name) in &mut self.peers {
            clean_in_place(name, limits::NAME_BYTES);
        }
        let tables = self.tables.as_ref().map_or(0, |tables| tables.bytes.len());
        let fits = count_that_fit(tables, self.peers.iter().map(|(_, name)| name.len()));
        self.peers.split_off(fits)
    }
}

/// Appends a message to `out`. It is below [`limits::MESSAGE_BYTES`] if its lists and texts keep the bounds of their fields, and
/// `Hello` and `Welcome` were made as their types say.
pub fn encode(message: &Control, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(FORMAT);
    out.extend_from_slice(&bitcode::encode(message));
    debug_assert!(out.len() - start <= limits::MESSAGE_BYTES, "a control message beyond its limit: {message:?}");
}

/// The inverse of [`encode`], for bytes from anywhere.
///
/// # Errors
/// [`PeerError::OverLimit`] for what is too long, [`PeerError::Malformed`] for anything else that is not a message.
pub fn decode(bytes: &[u8]) -> Result<Control, PeerError> {
    if bytes.len() > limits::MESSAGE_BYTES {
        return Err(PeerError::OverLimit { what: "the length of a control message" });
    }
    let (&format, rest) = bytes.split_first().ok_or(malformed("control message", BitError::Truncated))?;
    if format != FORMAT {
        return Err(malformed("format of a control message", BitError::OutOfRange));
    }
    // bitcode does not say whether the input was short or wrong; for the peer it comes to the same.
    let mut message: Control = bitcode::decode(rest).map_err(|_| malformed("control message", BitError::OutOfRange))?;
    check(&mut message)?;
    Ok(message)
}

/// A text fit to be shown: without control characters and without those that turn the direction of writing, at most `limit`
/// bytes, cut between characters.
#[must_use]
pub fn clean(text: &str, limit: usize) -> String {
    let mut out = String::with_capacity(text.len().min(limit));
    for c in text.chars().filter(|&c| is_plain(c)) {
        if out.len() + c.len_utf8() > limit {
            break;
        }
        out.push(c);
    }
    out
}

fn clean_in_place(text: &mut String, limit: usize) {
    if text.len() > limit || !text.chars().all(is_plain) {
        *text = clean(text, limit);
    }
}

fn is_plain(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn check(message: &mut Control) -> Result<(), PeerError> {
    match message {
        Control::Hello(hello) => check_hello(hello),
        Control::Welcome(welcome) => check_welcome(welcome),
        Control::Joined { name, .. } => checked_text(name, limits::NAME_BYTES, "the name of a peer"),
        Control::Left { text, .. } => checked_text(text, limits::CLOSE_TEXT_BYTES, "the words of a leave"),
        Control::LeaseRequest => Ok(()),
        Control::Lease { first } => checked_lease(*first),
        Control::Digest(digest) => at_most(digest.parts.len(), limits::COMPONENTS, "the parts of a digest"),
        Control::Verdict(verdict) => at_most(verdict.differing.len(), limits::COMPONENTS, "the parts of a verdict"),
        Control::Fork(fork) => forks::check(fork),
        // their numbers mean something only to who knows the schema and the entities
        Control::OwnershipRequest(_) | Control::OwnershipRelease(_) | Control::OwnershipAnswer(_) => Ok(()),
    }
}

fn check_hello(hello: &mut Hello) -> Result<(), PeerError> {
    at_most(hello.versions.len(), limits::VERSIONS, "the versions of a hello")?;
    at_most(hello.schema.len(), SCHEMA_ENTRIES, "the schema of a hello")?;
    for entry in &mut hello.schema {
        checked_text(&mut entry.name, limits::NAME_BYTES, "a name in the schema of a hello")?;
    }
    checked_text(&mut hello.name, limits::NAME_BYTES, "the name of a peer")
}

fn check_welcome(welcome: &mut Welcome) -> Result<(), PeerError> {
    at_most(welcome.peers.len(), limits::PEERS, "the peers of a welcome")?;
    for (_, name) in &mut welcome.peers {
        checked_text(name, limits::NAME_BYTES, "the name of a peer")?;
    }
    if welcome.tick_rate == 0 || welcome.tick_rate > limits::TICK_RATE {
        return Err(PeerError::OverLimit { what: "the tick rate of a welcome" });
    }
    if welcome.time_us >= limits::SESSION_MICROS {
        return Err(PeerError::OverLimit { what: "the time of a welcome" });
    }
    if let Some(tables) = &welcome.tables {
        at_most(tables.bytes.len(), limits::TABLES_BYTES, "the tables of a welcome")?;
    }
    checked_lease(welcome.lease)
}

fn checked_text(text: &mut String, limit: usize, what: &'static str) -> Result<(), PeerError> {
    at_most(text.len(), limit, what)?;
    clean_in_place(text, limit);
    Ok(())
}

fn checked_lease(first: u64) -> Result<(), PeerError> {
    if first > u64::MAX - limits::LEASE {
        return Err(PeerError::OverLimit { what: "the names of a lease" });
    }
    Ok(())
}

fn at_most(count: usize, limit: usize, what: &'static str) -> Result<(), PeerError> {
    if count > limit { Err(PeerError::OverLimit { what }) } else { Ok(()) }
}

fn malformed(what: &'static str, cause: BitError) -> PeerError {
    PeerError::Malformed { what, cause }
}

/// How many entries fit a message that holds so many bytes, and a name and a number for each, reckoned on the safe side.
fn count_that_fit(bytes: usize, names: impl Iterator<Item = usize>) -> usize {
    let mut left = (limits::MESSAGE_BYTES - HEAD_BYTES).saturating_sub(bytes);
    names.take_while(|name| left.checked_sub(name + ENTRY_BYTES).map(|rest| left = rest).is_some()).count()
}

const FORMAT: u8 = 1;
const SCHEMA_ENTRIES: usize = limits::COMPONENTS + limits::KINDS + limits::MESSAGES + limits::INPUTS + limits::ORDERS;
/// More than all fields of a `Hello` or `Welcome` outside its list, and the bytes of tables, can need.
const HEAD_BYTES: usize = 512;
/// More than a number of 64 bits, the length of a name and bitcode's marks can need.
const ENTRY_BYTES: usize = 12;

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
