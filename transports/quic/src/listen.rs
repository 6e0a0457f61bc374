//! The I/O thread of a listener: the socket, who may come in, and the end of all.

use crate::codes::Farewell;
use crate::config::{FAREWELL_OF_ALL, HELLOS, LAST_WORDS, ListenConfig, SOCKET_BYTES};
use crate::identity::Identity;
use crate::link;
use crate::seats::{Door, Pending, Seats};
use crate::shared::{Arrived, Arriving, Link};
use crate::tls::server_crypto;
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use quinn::{Connecting, Endpoint, Incoming, TransportConfig};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tidelock_netcore::error::TransportError;
use tidelock_netcore::transport::LinkId;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A bound UDP socket. `[::]` takes IPv4 as well; every other address only its own family.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    // The system may cap them; then bursts are lost earlier, and nothing else happens.
    let _ = socket.set_recv_buffer_size(SOCKET_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BYTES);
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

/// The words for a socket that could not be bound.
pub(crate) fn bind_error(addr: SocketAddr, error: &io::Error) -> TransportError {
    TransportError::Broken(match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "UDP port {} of {} is taken, maybe by another copy of this program; stop that one, or choose another port (0 takes any free one)",
            addr.port(),
            addr.ip()
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("{} is no address of this machine; use one of its own, or 0.0.0.0 or [::] for all of them", addr.ip())
        }
        io::ErrorKind::PermissionDenied => {
            format!("UDP port {} needs privileges that this program does not have; choose one from 1024 on", addr.port())
        }
        _ => format!("no UDP socket at {addr}: {error}"),
    })
}

/// What QUIC needs to know of a listener that shows this certificate.
pub(crate) fn server_config(identity: &Identity, transport: Arc<TransportConfig>) -> Result<quinn::ServerConfig, TransportError> {
    let mut config = quinn::ServerConfig::with_crypto(server_crypto(identity)?);
    config.transport_config(transport).max_incoming(HELLOS);
    Ok(config)
}

/// A new link, for the game thread.
pub(crate) struct Birth {
    pub(crate) link: Arc<Link>,
    pub(crate) datagrams: Arrived,
}

/// What all tasks of a listener share.
#[derive(Clone)]
pub(crate) struct Listener {
    seats: Seats,
    handshake: Duration,
    /// The next link's number.
    next: Arc<Mutex<u32>>,
    births: Sender<Birth>,
    stop: watch::Receiver<Option<Farewell>>,
}

impl Listener {
    pub(crate) fn new(config: &ListenConfig, births: Sender<Birth>, stop: watch::Receiver<Option<Farewell>>) -> Self {
        Self { seats: Seats::new(config.limits), handshake: config.limits.handshake, next: Arc::default(), births, stop }
    }

    /// Serves until the transport is dropped.
    pub(crate) async fn run(mut self, endpoint: Endpoint) {
        let mut tasks = JoinSet::new();
        let farewell = loop {
            let mut stop = self.stop.clone();
            tokio::select! {
                farewell = link::stopped(&mut stop) => break farewell,
                incoming = endpoint.accept() => match incoming {
                    Some(incoming) => self.admit(incoming, &mut tasks),
                    // The socket is dead: links time out by themselves, and nobody new comes.
                    None => break link::stopped(&mut self.stop).await,
                },
                Some(_) = tasks.join_next() => {}
            }
        };
        end_all(&endpoint, tasks, &farewell).await;
    }

    fn admit(&self, incoming: Incoming, tasks: &mut JoinSet<()>) {
        match self.seats.knock(incoming.remote_address(), incoming.remote_address_validated()) {
            Door::Refuse => incoming.refuse(),
            Door::Ignore => incoming.ignore(),
            Door::Prove => {
                if let Err(e) = incoming.retry() {
                    e.into_incoming().ignore();
                }
            }
            Door::Open(pending) => match incoming.accept() {
                Ok(connecting) => drop(tasks.spawn(self.clone().welcome(connecting, pending))),
                Err(e) => tracing::debug!("a hello could not be answered: {e}"),
            },
        }
    }

    /// One connection, from its hello to its end.
    async fn welcome(mut self, connecting: Connecting, pending: Pending) {
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.handshake, connecting) => shaken,
            _ = link::stopped(&mut self.stop) => return,
        };
        drop(pending);
        let Ok(Ok(connection)) = shaken else { return };
        let refuse = |text: &str| {
            let farewell = Farewell::full(text);
            connection.close(farewell.code, farewell.text.as_bytes());
        };
        let seat = match self.seats.sit(connection.remote_address()) {
            Ok(seat) => seat,
            Err(text) => return refuse(&text),
        };
        let (link, into) = {
            // Numbers rise in the order in which the game hears of the links.
            let mut next = self.next.lock();
            let Some(after) = next.checked_add(1) else { return refuse("this session has used up its numbers for links") };
            let link = Arc::new(Link::new(LinkId(*next), Some(seat)));
            let (into, datagrams) = Arriving::new();
            if link::open(&link, &connection).is_err() {
                return;
            }
            if self.births.try_send(Birth { link: link.clone(), datagrams }).is_err() {
                return refuse("too many new connections at once");
            }
            *next = after;
            (link, into)
        };
        link::serve(link, into, connection, self.stop).await;
    }
}

/// Lets every link say its farewell, then ends what is left, and stays a moment for the closes to leave.
pub(crate) async fn end_all(endpoint: &Endpoint, mut tasks: JoinSet<()>, farewell: &Farewell) {
    let ended = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FAREWELL_OF_ALL, ended).await;
    endpoint.close(farewell.code, farewell.text.as_bytes());
    let _ = tokio::time::timeout(LAST_WORDS, endpoint.wait_idle()).await;
}
