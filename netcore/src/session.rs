//! Admission: how a link becomes a peer. State machines without I/O, drawn in `docs/STATES.md`.
//!
//! One struct per state; a transition consumes it. The guest's attempts carry a [`Generation`], so that the late answer to one
//! that was given up cannot revive it. The caller moves the messages (see [`control`](crate::control)), calls the machines at
//! their deadlines, and closes the link with [`DisconnectReason::to_wire`] when one ends in a reason that the other side has not
//! been told.

use crate::control::{Control, Hello, SchemaEntry, Welcome, clean};
use crate::error::{DisconnectReason, LinkError, PeerError};
use crate::forks;
use crate::limits;
use std::fmt::Write;
use std::time::Duration;

/// What one side speaks: compared with the other's before anything else happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    versions: Vec<u16>,
    digest: u64,
    schema: Vec<SchemaEntry>,
    tables: Option<u64>,
}

impl Terms {
    /// Protocol versions (usually [`PROTOCOL_VERSIONS`](crate::control::PROTOCOL_VERSIONS)), the digest of the whole schema, and
    /// the digests of its parts, in any order.
    #[must_use]
    pub fn new(versions: &[u16], schema_digest: u64, schema: &[SchemaEntry]) -> Self {
        let mut versions = versions.to_vec();
        versions.sort_unstable();
        versions.dedup();
        let mut schema = schema.to_vec();
        schema.iter_mut().for_each(|e| e.name = clean(&e.name, limits::NAME_BYTES));
        schema.sort();
        Self { versions, digest: schema_digest, schema, tables: None }
    }

    /// A guest's that has trained tables of this digest. A host may have others: they are no matter of agreement.
    #[must_use]
    pub fn with_tables(self, tables: Option<u64>) -> Self {
        Self { tables, ..self }
    }

    /// The digest of the whole schema.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The greeting of a guest on these terms.
    #[must_use]
    pub fn hello(&self, name: &str) -> Hello {
        Hello { tables: self.tables, ..Hello::new(&self.versions, self.digest, &self.schema, name) }
    }

    /// Compares a guest's greeting with the host's terms, and chooses the highest version in common.
    ///
    /// # Errors
    /// [`DisconnectReason::Version`] with the host's versions, or [`DisconnectReason::Schema`] with the names that differ.
    pub fn agree(&self, hello: &Hello) -> Result<u16, DisconnectReason> {
        let common = self.versions.iter().rev().find(|v| hello.versions.contains(v));
        let &version = common.ok_or_else(|| DisconnectReason::Version(self.list_versions()))?;
        if hello.schema_digest != self.digest {
            return Err(DisconnectReason::Schema(differences(&self.schema, hello)));
        }
        Ok(version)
    }

    fn list_versions(&self) -> String {
        let list: Vec<String> = self.versions.iter().map(u16::to_string).collect();
        clean(&list.join(", "), limits::CLOSE_TEXT_BYTES)
    }
}

/// What differs between two schemas, by name, in words that are true on both ends: at most
/// [`limits::CLOSE_TEXT_BYTES`] of them.
fn differences(host: &[SchemaEntry], hello: &Hello) -> String {
    let mut guest = hello.schema.clone();
    guest.sort();
    let listed_to = (!hello.complete).then(|| guest.last().map_or(String::new(), |e| e.name.clone()));
    let mut found = Found::default();
    let (mut h, mut g) = (host.iter().peekable(), guest.iter().peekable());
    loop {
        match (h.peek(), g.peek()) {
            (Some(a), Some(b)) if a.name == b.name => {
                if a.digest != b.digest {
                    found.add(&a.name, "other layout");
                }
                h.next();
                g.next();
            }
            (Some(a), b) if b.is_none_or(|b| a.name < b.name) => {
                // What lies after the end of a list that was cut is not known to be missing.
                if listed_to.as_ref().is_none_or(|last| a.name < *last) {
                    found.add(&a.name, "only the host has it");
                }
                h.next();
            }
            (_, Some(b)) => {
                found.add(&b.name, "only the guest has it");
                g.next();
            }
            (_, None) => break,
        }
    }
    found.text(hello.complete)
}

/// Collects differences up to the limit of the text, and counts the rest.
#[derive(Default)]
struct Found {
    text: String,
    more: usize,
}

impl Found {
    fn add(&mut self, name: &str, how: &str) {
        let separator = if self.text.is_empty() { "" } else { "; " };
        let len = separator.len() + name.len() + 2 + how.len();
        if self.more > 0 || self.text.len() + len > limits::CLOSE_TEXT_BYTES - MORE_BYTES {
            self.more += 1;
        } else {
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{separator}{name}: {how}");
        }
    }

    fn text(mut self, complete: bool) -> String {
        if self.more > 0 {
            let _ = write!(self.text, "; and {} more", self.more);
        } else if self.text.is_empty() && complete {
            self.text.push_str("the parts are alike, their settings are not");
        } else if self.text.is_empty() {
            self.text.push_str("in parts beyond those that fit the greeting");
        }
        self.text
    }
}

/// The number of a guest's attempt to be admitted; later attempts have higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

/// A guest on its way in: the current attempt, and what it takes to make another.
///
/// Everything that happens to a link is passed on with the generation for which the link was opened; what belongs to an older
/// one is ignored.
#[derive(Clone, Debug)]
pub struct Guest {
    terms: Terms,
    name: String,
    generation: Generation,
    state: GuestState,
}

/// How far a guest's attempt has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestState {
    /// The link is being opened.
    Connecting(Connecting),
    /// The greeting is sent, the answer awaited.
    Greeting(Greeting),
    /// In.
    Admitted(Admitted),
    /// Over.
    Ended(Ended),
}

/// The link is being opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connecting {
    deadline: Duration,
    hello: Hello,
}

/// The greeting is sent, the answer awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    deadline: Duration,
    versions: Vec<u16>,
}

/// The host has let us in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// What it said.
    pub welcome: Welcome,
}

/// The attempt is over; only a new one leads on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Why.
    pub reason: DisconnectReason,
}

impl Connecting {
    fn opened(self) -> (Greeting, Control) {
        let versions = self.hello.versions.clone();
        (Greeting { deadline: self.deadline, versions }, Control::Hello(self.hello))
    }
}

impl Greeting {
    fn answered(self, message: Control) -> Result<Admitted, PeerError> {
        match message {
            Control::Welcome(welcome) if self.versions.contains(&welcome.version) => Ok(Admitted { welcome }),
            Control::Welcome(_) => Err(PeerError::OutOfOrder("a version that was not offered")),
            _ => Err(PeerError::OutOfOrder("anything but a welcome")),
        }
    }
}

impl Admitted {
    /// Whether a host may say this to a guest that is in.
    ///
    /// # Errors
    /// [`PeerError::OutOfOrder`] if not.
    pub fn check(message: &Control) -> Result<(), PeerError> {
        match message {
            Control::Joined { .. }
            | Control::Left { .. }
            | Control::Lease { .. }
            | Control::Digest(_)
            | Control::OwnershipAnswer(_) => Ok(()),
            Control::Fork(fork) if !forks::is_guests(fork) => Ok(()),
            Control::Hello(_) | Control::Welcome(_) => Err(PeerError::OutOfOrder("a greeting after admission")),
            Control::LeaseRequest
            | Control::Verdict(_)
            | Control::OwnershipRequest(_)
            | Control::OwnershipRelease(_)
            | Control::Fork(_) => Err(PeerError::OutOfOrder("a message that is a guest's")),
        }
    }
}

impl Guest {
    /// A guest that calls itself `name`, with its first attempt begun at `now`.
    #[must_use]
    pub fn new(terms: Terms, name: &str, now: Duration) -> Self {
        let state = connecting(&terms, name, now);
        Self { terms, name: name.into(), generation: Generation(1), state }
    }

    /// Gives up what is under way and begins another attempt, whose generation it returns. The caller closes the old link.
    pub fn begin(&mut self, now: Duration) -> Generation {
        self.generation.0 += 1;
        self.state = connecting(&self.terms, &self.name, now);
        self.generation
    }

    /// The current attempt.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// How far it has come.
    #[must_use]
    pub fn state(&self) -> &GuestState {
        &self.state
    }

    /// When [`handle_deadline`](Self::handle_deadline) is to be called: the end of [`limits::HANDSHAKE_TIME`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.state {
            GuestState::Connecting(c) => Some(c.deadline),
            GuestState::Greeting(g) => Some(g.deadline),
            GuestState::Admitted(_) | GuestState::Ended(_) => None,
        }
    }

    /// The link of an attempt is open. Returns the greeting to send, or `None` if that attempt does not wait for a link: then
    /// the link is to be closed.
    #[must_use]
    pub fn handle_opened(&mut self, generation: Generation) -> Option<Control> {
        if !self.is_current(generation) {
            return None;
        }
        match self.take() {
            GuestState::Connecting(connecting) => {
                let (greeting, hello) = connecting.opened();
                self.state = GuestState::Greeting(greeting);
                Some(hello)
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The host has said something before this guest was in. Once [`GuestState::Admitted`], messages are no longer for this
    /// machine, and [`Admitted::check`] says which are in order.
    ///
    /// # Errors
    /// [`PeerError::OutOfOrder`] for anything but a fitting welcome; the attempt has ended as [`DisconnectReason::Malformed`].
    pub fn handle_message(&mut self, generation: Generation, message: Control) -> Result<(), PeerError> {
        if !self.is_current(generation) {
            return Ok(());
        }
        match self.take() {
            GuestState::Greeting(greeting) => match greeting.answered(message) {
                Ok(admitted) => self.state = GuestState::Admitted(admitted),
                Err(error) => return Err(self.broken(error)),
            },
            GuestState::Connecting(_) => return Err(self.broken(PeerError::OutOfOrder("a message before the link is open"))),
            other => self.state = other,
        }
        Ok(())
    }

    /// The link of an attempt has ended, or could not be opened.
    pub fn handle_closed(&mut self, generation: Generation, error: LinkError) {
        if self.is_current(generation) && !matches!(self.state, GuestState::Ended(_)) {
            self.state = GuestState::Ended(Ended { reason: reason_of(error) });
        }
    }

    /// Ends the attempt as [`DisconnectReason::TimedOut`] if its deadline has come. Returns whether it has.
    pub fn handle_deadline(&mut self, now: Duration) -> bool {
        let over = self.next_deadline().is_some_and(|deadline| now >= deadline);
        if over {
            self.state = GuestState::Ended(Ended { reason: DisconnectReason::TimedOut });
        }
        over
    }

    /// The program gives up, or leaves.
    pub fn cancel(&mut self) {
        if !matches!(self.state, GuestState::Ended(_)) {
            self.state = GuestState::Ended(Ended { reason: DisconnectReason::Left });
        }
    }

    fn is_current(&self, generation: Generation) -> bool {
        self.generation == generation
    }

    /// Takes the state out, to be consumed by its transition.
    fn take(&mut self) -> GuestState {
        std::mem::replace(&mut self.state, GuestState::Ended(Ended { reason: DisconnectReason::Left }))
    }

    fn broken(&mut self, error: PeerError) -> PeerError {
        self.state = GuestState::Ended(Ended { reason: DisconnectReason::Malformed });
        error
    }
}

fn connecting(terms: &Terms, name: &str, now: Duration) -> GuestState {
    GuestState::Connecting(Connecting { deadline: now + limits::HANDSHAKE_TIME, hello: terms.hello(name) })
}

/// What the end of a link means; the words of the other side are cleaned and cut.
#[must_use]
pub fn reason_of(error: LinkError) -> DisconnectReason {
    match error {
        LinkError::ClosedByPeer { code, text } => DisconnectReason::from_wire(code, &clean(&text, limits::CLOSE_TEXT_BYTES)),
        LinkError::TimedOut => DisconnectReason::TimedOut,
        other => DisconnectReason::Link(other),
    }
}

/// The host's side of a link that has opened and has not said who it is. Links are never used again, so the link is the
/// attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGreeting {
    deadline: Duration,
}

/// The host's side of a link that is a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAdmitted {
    /// Its number in the session.
    pub peer: u16,
    /// The protocol version that is spoken with it.
    pub version: u16,
    /// What it calls itself, cleaned.
    pub name: String,
    /// The digest of the trained tables that it has.
    pub tables: Option<u64>,
}

/// The host has refused a link; it is to be closed with the reason's code and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What the guest is told.
    pub reason: DisconnectReason,
    /// What it did wrong, if it did.
    pub fault: Option<PeerError>,
}

impl HostGreeting {
    /// A link has opened at `now`.
    #[must_use]
    pub fn start(now: Duration) -> Self {
        Self { deadline: now + limits::HANDSHAKE_TIME }
    }

    /// When [`handle_deadline`](Self::handle_deadline) is to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Duration {
        self.deadline
    }

    /// The guest's first message. `free` is the number that a new peer would get, if there is room for one.
    ///
    /// # Errors
    /// [`Refused`] for terms that do not agree, a full session, or (with [`PeerError::OutOfOrder`]) anything but a greeting.
    pub fn handle_message(self, message: Control, terms: &Terms, free: Option<u16>) -> Result<HostAdmitted, Refused> {
        let Control::Hello(hello) = message else {
            return Err(Refused::fault(PeerError::OutOfOrder("anything but a hello")));
        };
        let version = terms.agree(&hello).map_err(Refused::because)?;
        let peer = free.ok_or(Refused::because(DisconnectReason::Full))?;
        Ok(HostAdmitted { peer, version, name: hello.name, tables: hello.tables })
    }

    /// Bytes that were no message, or a state packet before admission.
    #[must_use]
    pub fn handle_fault(self, fault: PeerError) -> Refused {
        Refused::fault(fault)
    }

    /// Refuses the link as [`DisconnectReason::TimedOut`] if its deadline has come.
    ///
    /// # Errors
    /// [`Refused`] if it has.
    pub fn handle_deadline(self, now: Duration) -> Result<Self, Refused> {
        if now >= self.deadline { Err(Refused::because(DisconnectReason::TimedOut)) } else { Ok(self) }
    }
}

impl HostAdmitted {
    /// Whether a guest that is in may say this to the host.
    ///
    /// # Errors
    /// [`PeerError::OutOfOrder`] if not.
    pub fn check(message: &Control) -> Result<(), PeerError> {
        match message {
            Control::LeaseRequest | Control::Verdict(_) | Control::OwnershipRequest(_) | Control::OwnershipRelease(_) => Ok(()),
            Control::Fork(fork) if forks::is_guests(fork) => Ok(()),
            Control::Hello(_) => Err(PeerError::OutOfOrder("a second hello")),
            Control::Welcome(_)
            | Control::Joined { .. }
            | Control::Left { .. }
            | Control::Lease { .. }
            | Control::Digest(_)
            | Control::OwnershipAnswer(_)
            | Control::Fork(_) => Err(PeerError::OutOfOrder("a message that is the host's")),
        }
    }
}

impl Refused {
    fn because(reason: DisconnectReason) -> Self {
        Self { reason, fault: None }
    }

    fn fault(fault: PeerError) -> Self {
        Self { reason: DisconnectReason::Malformed, fault: Some(fault) }
    }
}

/// Room for "; and 384 more" at the end of a list of differences.
const MORE_BYTES: usize = 24;

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
