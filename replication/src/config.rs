//! What a peer can be set to.

use crate::error::UsageError;
use crate::packing::Packing;
use crate::trained::Tables;
use std::time::Duration;
use tidelock_netcore::limits;

/// Settings of a [`Peer`](crate::Peer). Start from [`Config::default`].
#[derive(Clone, Debug)]
pub struct Config {
    /// What this peer calls itself, at most [`limits::NAME_BYTES`].
    pub name: String,
    /// Ticks per second of the session, 1 to 1000. The host's counts; a guest takes it over.
    pub tick_rate: u32,
    /// Ticks between two sends of this peer, 1 to 60.
    pub send_every: u32,
    /// Bits per second of everything that goes to one peer, the transport's overhead counted: at least
    /// [`limits::BANDWIDTH_LEAST`]. No second sees more, and less where the transport believes that the path carries less. State
    /// that does not fit waits; it and reliable messages get half each while both wait. A host can set it for one guest:
    /// [`Peer::set_bandwidth`](crate::Peer::set_bandwidth).
    pub bandwidth: u64,
    /// Guests that a host takes, at most [`limits::PEERS`] − 1.
    pub guests: u16,
    /// Refusals (races not counted) within [`Config::refusal_window`] after which a guest is removed.
    pub refusals: u32,
    /// See [`Config::refusals`].
    pub refusal_window: Duration,
    /// How long nothing may be heard of a peer, and how long a guest may leave everything that it is sent unacknowledged.
    /// [`Duration::MAX`]: for ever.
    pub time_out: Duration,
    /// Host: how long nothing may be heard of a guest until a CPU plays in its seat, for kinds that every peer computes. It gets
    /// the seat back when its inputs come again.
    pub seat_timeout: Duration,
    /// How far behind the session's clock things are drawn.
    pub interpolation: Interpolation,
    /// Ticks that this peer may run again at once when what it predicted turns out wrong, at most [`limits::SAVES`]. It bounds the
    /// work of a frame to so many steps beside the new ones; what the host says of an older tick is taken as it is.
    pub rewind: u64,
    /// Host: after every so many ticks all peers compare what they compute ([`Lockstep`](crate::policy::Lockstep) and
    /// [`Rollback`](crate::policy::Rollback) kinds) by digest; 0: never. A state of more than [`limits::DIGEST_ROWS`] entities is
    /// compared a slice per step; then the next comparison begins when that one is over.
    pub digest_every: u64,
    /// Host: what becomes of a guest whose computed state is another than the host's.
    pub on_fork: OnFork,
    /// How what this peer publishes is packed.
    pub packing: Packing,
    /// Trained tables, with which what is published takes fewer bytes: see [`trained`](crate::trained). The host's are those of the
    /// session, for both directions; a guest that has others, or none, gets them as it joins.
    pub tables: Option<Tables>,
    /// Looks for writes to what this peer does not simulate, and tells them as [`News::Stray`](crate::News::Stray): to entities that
    /// every peer computes, outside of steps of their timeline, and at a guest to what another peer has authority over. A sample of 256
    /// entities is looked at between two steps, and they take turns. On in debug builds.
    pub check_writes: bool,
    /// A host tells itself news of the entities that it simulates, like a guest gets them. Costs a capture per tick even when
    /// nobody has joined.
    pub local_news: bool,
    /// The session's id; never to be used twice. `None` (the default): made up from the operating system's randomness.
    pub session: Option<u64>,
    /// For tests: the tick that a host's session starts at, and the number of the first packet and send of every peer. All peers
    /// of a session must have the same.
    pub counters_from: u64,
}

/// What a host does about a guest whose computed state has come apart from its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFork {
    /// Everybody is told, and the session goes on.
    #[default]
    Report,
    /// Everybody is told, and then the guest is removed, as soon as what differs is found, and after seconds in any case.
    Remove,
}

/// How far behind the session's clock things are drawn, and for how long without news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpolation {
    /// The least delay.
    pub least: Duration,
    /// The largest delay.
    pub most: Duration,
    /// How far past the newest sample motion goes on when news are overdue.
    pub extrapolate: Duration,
    /// How far past the newest sample an [extrapolated](crate::ComponentOptions::extrapolate) component is carried on.
    pub reckon: Duration,
    /// Over what time what is new comes into an extrapolated component, and from what time of samples its motion is taken.
    pub ease: Duration,
    /// How long news may be overdue until an entity counts as stale.
    pub stale: Duration,
}

impl Default for Interpolation {
    fn default() -> Self {
        Self {
            least: Duration::ZERO,
            most: Duration::from_millis(500),
            extrapolate: Duration::from_millis(50),
            reckon: Duration::from_millis(250),
            ease: Duration::from_millis(100),
            stale: Duration::from_millis(250),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: String::new(),
            tick_rate: 60,
            send_every: 1,
            bandwidth: 16_000_000,
            guests: 64,
            refusals: 100,
            refusal_window: Duration::from_secs(10),
            time_out: Duration::from_secs(5),
            seat_timeout: Duration::from_secs(1),
            interpolation: Interpolation::default(),
            rewind: 64,
            digest_every: 60,
            on_fork: OnFork::Report,
            packing: Packing::default(),
            tables: None,
            check_writes: cfg!(debug_assertions),
            local_news: false,
            session: None,
            counters_from: 1,
        }
    }
}

/// What is said of a bandwidth that is too small.
pub(crate) const BANDWIDTH: &str = "bandwidth must be at least 16 000 bits per second";

impl Config {
    pub(crate) fn check(&self) -> Result<(), UsageError> {
        let bad = |what: &'static str| Err(UsageError::Config(what));
        if self.tick_rate == 0 || self.tick_rate > 1000 {
            return bad("tick_rate must be 1 to 1000");
        }
        if self.send_every == 0 || self.send_every > 60 {
            return bad("send_every must be 1 to 60");
        }
        if self.bandwidth < limits::BANDWIDTH_LEAST {
            return bad(BANDWIDTH);
        }
        if self.guests as usize >= limits::PEERS {
            return bad("guests must be below 1024");
        }
        if self.name.len() > limits::NAME_BYTES {
            return bad("name must be at most 64 bytes");
        }
        if self.rewind == 0 || self.rewind > limits::SAVES as u64 {
            return bad("rewind must be 1 to limits::SAVES");
        }
        if self.counters_from == 0 {
            return bad("counters_from must be at least 1");
        }
        if self.interpolation.least > self.interpolation.most {
            return bad("interpolation.least must not be above interpolation.most");
        }
        if self.interpolation.ease < Duration::from_millis(1) || self.interpolation.ease > Duration::from_secs(1) {
            return bad("interpolation.ease must be 1 ms to 1 s");
        }
        Ok(())
    }
}
