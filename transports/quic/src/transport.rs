//! The game thread's side.

use crate::address::{Address, AddressError};
use crate::codes::Farewell;
use crate::config::{JoinConfig, ListenConfig};
use crate::identity::{Fingerprint, Identity};
use crate::join::Joiner;
use crate::link::PREFIX_BYTES;
use crate::listen::{Birth, Listener, bind, bind_error, server_config};
use crate::rate::Rate;
use crate::shared::{Arrived, Arriving, Link, Opened};
use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded};
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;
use tidelock_netcore::error::{DisconnectReason, TransportError};
use tidelock_netcore::limits;
use tidelock_netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};
use tidelock_threads::Popped;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A host's or a guest's end of QUIC. The crate's documentation says how it works inside.
///
/// Dropping it ends every link and tells every peer: a listener's are told [`DisconnectReason::HostLeft`], a joiner's
/// [`DisconnectReason::Left`]. That takes as long as what was already taken for the reliable lanes needs to be acknowledged, and
/// blocks for at most about a second.
pub struct QuicTransport {
    role: Role,
    links: Vec<Slot>,
    /// The link that [`poll`](Transport::poll) is at.
    at: usize,
    /// What that link may still give in this pass; `None` before its turn.
    quota: Option<Quota>,
    stop: watch::Sender<Option<Farewell>>,
    thread: Option<JoinHandle<()>>,
}

enum Role {
    Host {
        births: Receiver<Birth>,
        endpoint: Endpoint,
        transport: Arc<TransportConfig>,
        local: SocketAddr,
        fingerprint: Fingerprint,
    },
    Guest {
        address: Address,
    },
}

/// A link as the game thread knows it. Sorted by id.
struct Slot {
    link: Arc<Link>,
    datagrams: Arrived,
    /// The game was told that it is open.
    told: bool,
    /// The datagram buffer was full and has not been empty since. QUIC sends datagrams before streams, so that a buffer that is
    /// always topped up would starve the lanes; what it takes to run dry leaves them their turn.
    draining: bool,
    rate: Rate,
}

impl Slot {
    fn new(link: Arc<Link>, datagrams: Arrived) -> Self {
        Self { link, datagrams, told: false, draining: false, rate: Rate::new() }
    }

    /// Bytes of datagrams that would be taken now.
    fn free(&self, opened: &Opened) -> usize {
        let free = opened.connection.datagram_send_buffer_space();
        if self.draining && free < opened.room { 0 } else { free }
    }
}

struct Quota {
    messages: usize,
    datagrams: usize,
}

/// Why joining could not even begin. What happens on the way comes as [`Arrival::Closed`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JoinError {
    /// The address is not one.
    #[error("this is no address of a host: {0}")]
    Address(#[from] AddressError),
    /// This machine cannot do it, or the configuration is impossible.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl QuicTransport {
    /// Binds a socket and serves guests.
    ///
    /// # Errors
    /// [`TransportError::Broken`], with words that say what to do, if the port is taken, the address is not this machine's, or
    /// the configuration is impossible.
    pub fn listen(config: ListenConfig) -> Result<Self, TransportError> {
        let transport = config.timing.transport_config()?;
        let server = server_config(&config.identity, transport.clone())?;
        let socket = bind(config.addr).map_err(|e| bind_error(config.addr, &e))?;
        let local = socket.local_addr().map_err(broken)?;
        let runtime = runtime()?;
        let endpoint = {
            let _inside = runtime.enter();
            Endpoint::new(EndpointConfig::default(), Some(server), socket, Arc::new(TokioRuntime)).map_err(broken)?
        };
        // As many as there are seats, each of which is held until the game has fetched its link.
        let (born, births) = bounded(config.limits.total.clamp(1, limits::PEERS));
        let stop = watch::Sender::new(None);
        let listener = Listener::new(&config, born, stop.subscribe());
        let thread = spawn("tidelock-quic-host", runtime, listener.run(endpoint.clone()))?;
        let role = Role::Host { births, endpoint, transport, local, fingerprint: config.identity.fingerprint() };
        Ok(Self { role, links: Vec::new(), at: 0, quota: None, stop, thread: Some(thread) })
    }

    /// Goes to a host, given as it printed its address: `address:port#fingerprint`, with an IPv4 address, an IPv6 address in
    /// brackets, or a host name. Returns at once; the link, which is `LinkId(0)`, then opens or closes.
    ///
    /// # Errors
    /// [`JoinError::Address`] says what is wrong with the address; [`JoinError::Transport`] if no thread could be started or the
    /// configuration is impossible.
    pub fn join(target: &str, config: JoinConfig) -> Result<Self, JoinError> {
        let address: Address = target.parse()?;
        let transport = config.timing.transport_config()?;
        let link = Arc::new(Link::new(LinkId(0), None));
        let stop = watch::Sender::new(None);
        let (into, datagrams) = Arriving::new();
        let joiner =
            Joiner { address: address.clone(), config, transport, link: link.clone(), datagrams: into, stop: stop.subscribe() };
        let thread = spawn("tidelock-quic-guest", runtime()?, joiner.run())?;
        let links = vec![Slot::new(link, datagrams)];
        Ok(Self { role: Role::Guest { address }, links, at: 0, quota: None, stop, thread: Some(thread) })
    }

    /// The address that a listener is bound to, with its real port; `None` for a joiner.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.role {
            Role::Host { local, .. } => Some(*local),
            Role::Guest { .. } => None,
        }
    }

    /// The fingerprint of a listener's own certificate, or the one that a joiner insists on: 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        match &self.role {
            Role::Host { fingerprint, .. } => fingerprint.to_string(),
            Role::Guest { address } => address.fingerprint.to_string(),
        }
    }

    /// What a guest needs to join: `address:port#fingerprint`. A listener that is bound to a wildcard gives that wildcard; put the
    /// machine's public address or name in its place. For a joiner, where it goes.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.role {
            Role::Host { local, fingerprint, .. } => format!("{local}#{fingerprint}"),
            Role::Guest { address } => address.to_string(),
        }
    }

    /// Shows another certificate to those who join from now on; links that are open stay. Nothing for a joiner to do.
    ///
    /// # Errors
    /// [`TransportError::Broken`] if TLS does not take the certificate; the old one then stays.
    pub fn rotate(&mut self, identity: &Identity) -> Result<(), TransportError> {
        if let Role::Host { endpoint, transport, fingerprint, .. } = &mut self.role {
            endpoint.set_server_config(Some(server_config(identity, transport.clone())?));
            *fingerprint = identity.fingerprint();
        }
        Ok(())
    }

    /// Datagrams of a link that were dropped here because [`poll`](Transport::poll) was not called for too long: state, the oldest
    /// first. Inputs are dropped only beyond what comes in eight seconds.
    #[must_use]
    pub fn datagrams_dropped(&self, link: LinkId) -> u64 {
        self.slot(link).map_or(0, |slot| slot.datagrams.lost())
    }

    fn slot(&self, link: LinkId) -> Option<&Slot> {
        self.index(link).map(|at| &self.links[at])
    }

    fn index(&self, link: LinkId) -> Option<usize> {
        self.links.binary_search_by_key(&link, |slot| slot.link.id).ok()
    }

    /// A link that the game was told is open.
    fn open(&self, link: LinkId) -> Option<(&Slot, &Opened)> {
        let slot = self.slot(link).filter(|slot| slot.told)?;
        Some((slot, slot.link.opened.get()?))
    }

    /// Fetches new links. No more than were there at the beginning, so that a pass ends.
    fn fetch_births(&mut self) {
        if let Role::Host { births, .. } = &self.role {
            let new = births.try_iter().take(births.len()).map(|birth| Slot::new(birth.link, birth.datagrams));
            self.links.extend(new);
        }
    }

    fn look_at_rates(&mut self) {
        let now = Instant::now();
        for slot in self.links.iter_mut().filter(|slot| slot.told) {
            if let Some(opened) = slot.link.opened.get() {
                slot.rate.look(now, &opened.connection);
            }
        }
    }

    /// Forgets a link, and keeps the pass at its place.
    fn forget(&mut self, at: usize) {
        self.links.remove(at);
        if at < self.at {
            self.at -= 1;
        } else if at == self.at {
            self.quota = None;
        }
    }

    /// The next arrival of the link whose turn it is.
    fn next_of_link(&mut self, payload: &mut Vec<u8>) -> Option<Arrival> {
        let slot = &mut self.links[self.at];
        let link = slot.link.clone();
        // Looked at before all else: nothing opens and nothing is queued after the end.
        let end = link.end.get();
        if !slot.told {
            if let Some(opened) = link.opened.get() {
                slot.told = true;
                return Some(Arrival::Opened { link: link.id, address: opened.address.clone() });
            }
            let reason = end?.clone();
            self.forget(self.at);
            return Some(Arrival::Closed { link: link.id, reason });
        }
        let quota = self
            .quota
            .get_or_insert_with(|| Quota { messages: link.messages.len(), datagrams: slot.datagrams.waiting().packets });
        if quota.messages > 0
            && let Some((lane, message)) = link.messages.pop()
        {
            quota.messages -= 1;
            *payload = message;
            return Some(Arrival::Message { link: link.id, lane });
        }
        if quota.datagrams > 0
            && let Popped::Packet { bytes, .. } = slot.datagrams.pop()
        {
            quota.datagrams -= 1;
            payload.clear();
            payload.extend_from_slice(bytes);
            return Some(Arrival::Datagram { link: link.id });
        }
        let reason = end?;
        if link.messages.len() + slot.datagrams.waiting().packets > 0 {
            return None;
        }
        self.forget(self.at);
        Some(Arrival::Closed { link: link.id, reason: reason.clone() })
    }
}

impl Transport for QuicTransport {
    /// One pass gives what was there when its link's turn came, and then `None`: a peer that sends without end cannot hold the
    /// game in its loop.
    fn poll(&mut self, _now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        if self.at == 0 && self.quota.is_none() {
            self.fetch_births();
            self.look_at_rates();
        }
        while self.at < self.links.len() {
            if let Some(arrival) = self.next_of_link(payload) {
                return Some(arrival);
            }
            self.at += 1;
            self.quota = None;
        }
        self.at = 0;
        None
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        let (slot, opened) = self.open(link)?;
        Some(Facts {
            lossless: false,
            independent_lanes: true,
            datagram_limit: opened.connection.max_datagram_size().unwrap_or(0),
            datagram_overhead: ip_overhead(&opened.connection) + QUIC_OVERHEAD,
            free: slot.free(opened),
            rate: slot.rate.get(),
        })
    }

    fn send_datagram(&mut self, _now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let (slot, opened) = self.open(link).ok_or(TransportError::NotOpen)?;
        let limit = opened.connection.max_datagram_size().unwrap_or(0);
        if bytes.len() > limit {
            return Err(TransportError::TooLarge { size: bytes.len(), limit });
        }
        // QUIC would drop the oldest to make room. Only this thread fills the buffer, so that the room does not shrink meanwhile.
        // An empty datagram needs room too.
        let full = slot.free(opened) < bytes.len().max(1);
        let connection = opened.connection.clone();
        if let Some(at) = self.index(link) {
            self.links[at].draining = full;
        }
        if full {
            return Ok(Delivery::Full);
        }
        match connection.send_datagram(Bytes::copy_from_slice(bytes)) {
            Ok(()) => Ok(Delivery::Taken),
            // The path has just become narrower.
            Err(quinn::SendDatagramError::TooLarge) => {
                let limit = connection.max_datagram_size().unwrap_or(0);
                Err(TransportError::TooLarge { size: bytes.len(), limit })
            }
            // It has ended, and the game will hear of it from `poll`; until then it is like a datagram that was lost.
            Err(_) => Ok(Delivery::Taken),
        }
    }

    fn send_message(&mut self, _now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let (slot, _) = self.open(link).ok_or(TransportError::NotOpen)?;
        let out = slot.link.out.get(usize::from(lane.0)).ok_or(TransportError::NoSuchLane(lane.0))?;
        if bytes.len() > limits::MESSAGE_BYTES {
            return Err(TransportError::TooLarge { size: bytes.len(), limit: limits::MESSAGE_BYTES });
        }
        let length = u32::try_from(bytes.len()).expect("at most MESSAGE_BYTES");
        Ok(out.push(PREFIX_BYTES + bytes.len(), || {
            let mut message = Vec::with_capacity(PREFIX_BYTES + bytes.len());
            message.extend_from_slice(&length.to_le_bytes());
            message.extend_from_slice(bytes);
            message.into()
        }))
    }

    fn close(&mut self, _now: Duration, link: LinkId, code: u32, text: &str) {
        if let Some(at) = self.index(link) {
            self.links[at].link.say_farewell(Farewell::game(code, text));
            self.forget(at);
        }
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        let Some((_, opened)) = self.open(link) else { return LinkStats::default() };
        let stats = opened.connection.stats();
        let ip = ip_overhead(&opened.connection) as u64;
        LinkStats {
            rtt: stats.path.rtt,
            bytes_out: stats.udp_tx.bytes + stats.udp_tx.datagrams * ip,
            bytes_in: stats.udp_rx.bytes + stats.udp_rx.datagrams * ip,
            packets_out: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
        }
    }
}

impl Drop for QuicTransport {
    fn drop(&mut self) {
        let reason = match self.role {
            Role::Host { .. } => DisconnectReason::HostLeft,
            Role::Guest { .. } => DisconnectReason::Left,
        };
        let (code, text) = reason.to_wire();
        self.stop.send_replace(Some(Farewell::game(code, &text)));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the I/O thread of a QUIC transport panicked");
        }
    }
}

fn runtime() -> Result<Runtime, TransportError> {
    tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(broken)
}

/// Runs a task to its end on a thread of its own.
fn spawn(
    name: &str,
    runtime: Runtime,
    task: impl Future<Output = ()> + Send + 'static,
) -> Result<JoinHandle<()>, TransportError> {
    let run = move || {
        runtime.block_on(task);
        // A look-up of a name may still hang in the system; it is not waited for.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name(name.into()).spawn(run).map_err(broken)
}

fn broken(error: std::io::Error) -> TransportError {
    TransportError::Broken(error.to_string())
}

fn ip_overhead(connection: &Connection) -> usize {
    match connection.remote_address().ip().to_canonical().is_ipv4() {
        true => 20 + UDP_OVERHEAD,
        false => 40 + UDP_OVERHEAD,
    }
}

const UDP_OVERHEAD: usize = 8;
/// First byte, connection id, packet number (at its longest), AEAD tag; type and length of the DATAGRAM frame.
const QUIC_OVERHEAD: usize = 1 + 8 + 4 + 16 + 3;
