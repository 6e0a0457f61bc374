//! Tidelock's in-process transport: a full one, through the seeded emulator, for single-player, tests and examples.
//!
//! A [`Network`] has one host and any number of guests, each over a link of its own with [`Conditions`] per direction. Time is
//! what the callers pass as `now`; all ends of a network must count it from the same start. The ends may live on different
//! threads.
//!
//! ```
//! use std::time::Duration;
//! use tidelock_loopback::{Conditions, Network};
//! use tidelock_netcore::transport::{Arrival, Transport};
//!
//! let network = Network::new(7);
//! let mut host = network.host();
//! let mut guest = network.join(Conditions::default(), Conditions::default());
//! let (now, mut payload) = (Duration::ZERO, Vec::new());
//! assert!(guest.poll(now, &mut payload).is_none()); // knocks
//! assert!(matches!(host.poll(now, &mut payload), Some(Arrival::Opened { .. })));
//! assert!(matches!(guest.poll(now, &mut payload), Some(Arrival::Opened { .. })));
//! ```

#![forbid(unsafe_code)]

mod link;

pub use link::Signal;
use link::{Link, Side};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tidelock_netcore::emulator::Emulator;
pub use tidelock_netcore::emulator::{Conditions, Counters, Fate};
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};

/// The direction of travel on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the guest to the host.
    Up,
    /// From the host to the guest.
    Down,
}

/// One host's network and the handle to its weather. Clones are handles to the same network.
#[derive(Clone)]
pub struct Network {
    shared: Arc<Mutex<State>>,
}

/// One end of a [`Network`]: the host's, or a guest's with its one link. Dropping it tells the other side, as far as the
/// network still carries that: [`LinkError::ClosedByPeer`] with [`STOPPED_CODE`].
pub struct Loopback {
    shared: Arc<Mutex<State>>,
    end: End,
}

/// The code that the other side is told when an end is dropped without a `close`.
pub const STOPPED_CODE: u32 = 0;

#[derive(Clone, Copy)]
enum End {
    Host,
    Guest(LinkId),
}

struct State {
    seed: u64,
    links: BTreeMap<LinkId, Link>,
    next_link: u32,
    host_listens: bool,
    /// The link that the host looks at next.
    cursor: Option<LinkId>,
    /// The latest time that anybody passed, for calls that have none.
    now: Duration,
}

impl Network {
    /// A network without anybody; `seed` decides all that is left to chance.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State { seed, links: BTreeMap::new(), next_link: 0, host_listens: false, cursor: None, now: Duration::ZERO };
        Self { shared: Arc::new(Mutex::new(state)) }
    }

    /// The host's end, which takes whoever joins.
    ///
    /// # Panics
    /// If there is a host already. After the old one is dropped, there may be another.
    #[must_use]
    pub fn host(&self) -> Loopback {
        let mut state = self.shared.lock();
        assert!(!state.host_listens, "a network has one host at a time");
        state.host_listens = true;
        Loopback { shared: self.shared.clone(), end: End::Host }
    }

    /// A guest's end, with a new link that opens when the guest first polls: `up` is the weather towards the host, `down` the
    /// weather from it. If there is no host then, the link closes as unreachable.
    #[must_use]
    pub fn join(&self, up: Conditions, down: Conditions) -> Loopback {
        let mut state = self.shared.lock();
        let id = LinkId(state.next_link);
        state.next_link += 1;
        let seed = state.seed.wrapping_add(u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        state.links.insert(id, Link::new(seed, up, down));
        Loopback { shared: self.shared.clone(), end: End::Guest(id) }
    }

    /// Changes the weather in one direction of a link, for what is sent from now on. Links that have ended are ignored.
    pub fn set_conditions(&self, link: LinkId, direction: Direction, conditions: Conditions) {
        self.edit(link, direction, |net| net.set_conditions(conditions));
    }

    /// Reaches into one direction of a link: to hold, drop, release, stall, partition, filter or count, as [`Emulator`] offers.
    /// `None` if the link has ended.
    pub fn edit<R>(&self, link: LinkId, direction: Direction, f: impl FnOnce(&mut Emulator<Signal>) -> R) -> Option<R> {
        let mut state = self.shared.lock();
        state.links.get_mut(&link).map(|link| f(link.net(direction)))
    }

    /// The link dies without a word to either side: from now on nothing arrives, and nobody is told. For time-outs.
    pub fn cut(&self, link: LinkId) {
        if let Some(link) = self.shared.lock().links.get_mut(&link) {
            link.cut();
        }
    }

    /// The links that have not ended on both sides, in the order in which they were made.
    #[must_use]
    pub fn links(&self) -> Vec<LinkId> {
        self.shared.lock().links.keys().copied().collect()
    }
}

impl Loopback {
    /// A guest's link, for [`Network::edit`]; both ends call it by the same name. `None` for the host, which has many.
    #[must_use]
    pub fn link(&self) -> Option<LinkId> {
        match self.end {
            End::Host => None,
            End::Guest(link) => Some(link),
        }
    }

    fn side(&self) -> Side {
        match self.end {
            End::Host => Side::Host,
            End::Guest(_) => Side::Guest,
        }
    }

    fn owns(&self, link: LinkId) -> bool {
        self.link().is_none_or(|own| own == link)
    }

    /// Runs `f` on a link that is open on this side.
    fn open<R>(
        &self,
        now: Duration,
        link: LinkId,
        f: impl FnOnce(&mut Link) -> Result<R, TransportError>,
    ) -> Result<R, TransportError> {
        let mut state = self.shared.lock();
        state.pass(now);
        let side = self.side();
        let link = state.links.get_mut(&link).filter(|l| self.owns(link) && l.is_open(side)).ok_or(TransportError::NotOpen)?;
        f(link)
    }
}

impl Transport for Loopback {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        let mut state = self.shared.lock();
        state.pass(now);
        match self.end {
            End::Host => state.poll_host(now, payload),
            End::Guest(id) => state.poll_guest(id, now, payload),
        }
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        let state = self.shared.lock();
        let now = state.now;
        state.links.get(&link).filter(|l| self.owns(link) && l.is_open(self.side())).map(|l| l.facts(self.side(), now))
    }

    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let side = self.side();
        self.open(now, link, |link| link.send_datagram(side, now, bytes))
    }

    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let side = self.side();
        self.open(now, link, |link| link.send_message(side, now, lane, bytes))
    }

    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        if self.owns(link) {
            let mut state = self.shared.lock();
            state.pass(now);
            state.close(link, self.side(), code, text);
        }
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        let state = self.shared.lock();
        state.links.get(&link).filter(|_| self.owns(link)).map(|l| l.stats(self.side())).unwrap_or_default()
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        match self.end {
            End::Guest(link) => state.close(link, Side::Guest, STOPPED_CODE, STOPPED_TEXT),
            End::Host => {
                state.host_listens = false;
                let links: Vec<LinkId> = state.links.keys().copied().collect();
                for link in links {
                    state.close(link, Side::Host, STOPPED_CODE, STOPPED_TEXT);
                }
            }
        }
    }
}

impl State {
    fn pass(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    /// Goes through the links in order, each until it has no more; `None` after the last.
    fn poll_host(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        loop {
            let from = self.cursor.map_or(Bound::Unbounded, Bound::Included);
            let Some((&id, link)) = self.links.range_mut((from, Bound::Unbounded)).next() else {
                self.cursor = None;
                return None;
            };
            self.cursor = Some(id);
            if let Some(arrival) = link.receive(Side::Host, id, now, payload) {
                self.forget_if_over(id);
                return Some(arrival);
            }
            self.cursor = Some(LinkId(id.0 + 1));
        }
    }

    fn poll_guest(&mut self, id: LinkId, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        let link = self.links.get_mut(&id)?;
        if !link.knock(now, self.host_listens) {
            self.links.remove(&id);
            payload.clear();
            return Some(Arrival::Closed { link: id, reason: LinkError::Unreachable("nobody hosts this network".into()) });
        }
        let arrival = link.receive(Side::Guest, id, now, payload);
        self.forget_if_over(id);
        arrival
    }

    fn close(&mut self, id: LinkId, side: Side, code: u32, text: &str) {
        let now = self.now;
        if let Some(link) = self.links.get_mut(&id) {
            link.close(side, now, code, text);
            self.forget_if_over(id);
        }
    }

    fn forget_if_over(&mut self, id: LinkId) {
        if self.links.get(&id).is_some_and(Link::is_over) {
            self.links.remove(&id);
        }
    }
}

const STOPPED_TEXT: &str = "the other side stopped";
