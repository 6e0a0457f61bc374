//! The I/O thread of a guest: the way to the host, and the one link.

use crate::address::{Address, Place};
use crate::codes::{Farewell, link_error};
use crate::config::JoinConfig;
use crate::identity::SERVER_NAME;
use crate::link::{self, End};
use crate::listen::{bind, end_all};
use crate::shared::{Arriving, Link};
use crate::tls::{Pinned, client_crypto};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, TokioRuntime, TransportConfig};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tidelock_netcore::error::{LinkError, TransportError};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A guest's way in.
pub(crate) struct Joiner {
    pub(crate) address: Address,
    pub(crate) config: JoinConfig,
    pub(crate) transport: Arc<TransportConfig>,
    pub(crate) link: Arc<Link>,
    pub(crate) datagrams: Arriving,
    pub(crate) stop: watch::Receiver<Option<Farewell>>,
}

impl Joiner {
    /// Connects, then serves the link until it ends or the transport is dropped.
    pub(crate) async fn run(mut self) {
        let end = End(self.link.clone());
        let deadline = Instant::now() + self.config.deadline;
        let mut stop = self.stop.clone();
        let connected = tokio::select! {
            connected = self.connect(deadline) => connected,
            _ = self.link.farewell() => return,
            _ = link::stopped(&mut stop) => return,
        };
        let connected = connected.and_then(|(endpoint, connection)| {
            link::open(&self.link, &connection)?;
            Ok((endpoint, connection))
        });
        match connected {
            Ok((endpoint, connection)) => {
                let mut tasks = JoinSet::new();
                tasks.spawn(link::serve(self.link.clone(), self.datagrams, connection, self.stop.clone()));
                // The link's own end comes first, or the end of all.
                let farewell = tokio::select! {
                    farewell = link::stopped(&mut self.stop) => farewell,
                    Some(_) = tasks.join_next() => Farewell::game(0, ""),
                };
                end_all(&endpoint, tasks, &farewell).await;
            }
            Err(reason) => drop(self.link.end.set(reason)),
        }
        drop(end);
    }

    /// Tries every address of the host in turn, each for its share of what is left of the time.
    async fn connect(&self, deadline: Instant) -> Result<(Endpoint, Connection), LinkError> {
        let look_up = tokio::time::timeout_at(deadline, resolve(&self.address.place));
        let addresses = look_up.await.map_err(|_| LinkError::Unreachable("looking up its name took too long".into()))??;
        let mut why = LinkError::Unreachable("its name leads to no address".into());
        for (at, address) in addresses.iter().enumerate() {
            let left = u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
            let now = Instant::now();
            let until = now + deadline.saturating_duration_since(now) / left;
            match self.try_address(*address, until).await {
                Ok(connected) => return Ok(connected),
                Err(e @ (LinkError::TimedOut | LinkError::Refused(_) | LinkError::Unreachable(_))) => {
                    tracing::debug!(%address, "no way in: {e}");
                    // A host that exists but refuses says more than an address family without a network.
                    if rank(&e) >= rank(&why) {
                        why = e;
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Err(why)
    }

    async fn try_address(&self, address: SocketAddr, until: Instant) -> Result<(Endpoint, Connection), LinkError> {
        let failed = |e: TransportError| LinkError::Failed(e.to_string());
        let pinned = Pinned::new(self.address.fingerprint);
        let mut config = ClientConfig::new(client_crypto(pinned.clone()).map_err(failed)?);
        config.transport_config(self.transport.clone());
        let socket = bind(any(address)).map_err(|e| no_way(&e))?;
        let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime)).map_err(|e| no_way(&e))?;
        let connecting =
            endpoint.connect_with(config, address, SERVER_NAME).map_err(|e| LinkError::Unreachable(e.to_string()))?;
        let connected = tokio::select! {
            connected = tokio::time::timeout_at(until, connecting) => connected,
            error = knock(address) => return Err(error),
        };
        match connected {
            Ok(Ok(connection)) => Ok((endpoint, connection)),
            Err(_) => Err(LinkError::TimedOut),
            Ok(Err(error)) => Err(handshake_error(&error, &pinned)),
        }
    }
}

fn handshake_error(error: &ConnectionError, pinned: &Pinned) -> LinkError {
    match pinned.mismatch() {
        Some(shown) => LinkError::Certificate(format!("it shows {shown}")),
        None => link_error(error),
    }
}

async fn resolve(place: &Place) -> Result<Vec<SocketAddr>, LinkError> {
    match place {
        Place::Numeric(address) => Ok(vec![*address]),
        Place::Named(name, port) => match tokio::net::lookup_host((name.as_str(), *port)).await {
            Ok(addresses) => Ok(addresses.take(ADDRESSES_OF_A_NAME).collect()),
            Err(e) => Err(LinkError::Unreachable(format!("the name {name} could not be looked up ({e})"))),
        },
    }
}

/// QUIC's own socket is not connected, so that the system does not tell it of ICMP errors. This one is: one byte that QUIC
/// ignores, and if nobody listens there, or no way leads there, the system says so. Silent otherwise, for ever.
async fn knock(address: SocketAddr) -> LinkError {
    let knocked = async {
        let socket = UdpSocket::bind(any(address)).await?;
        socket.connect(address).await?;
        socket.send(&[0]).await?;
        loop {
            socket.recv(&mut [0]).await?;
        }
    };
    let result: Result<(), io::Error> = knocked.await;
    match result {
        Err(e) => no_way(&e),
        Ok(()) => std::future::pending().await,
    }
}

fn no_way(error: &io::Error) -> LinkError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            LinkError::Refused("no program listens at that address and port; is the host running?".into())
        }
        _ => LinkError::Unreachable(error.to_string()),
    }
}

/// Any port of the same family.
fn any(target: SocketAddr) -> SocketAddr {
    match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// How much a failure tells, for the choice between those of several addresses.
fn rank(error: &LinkError) -> u8 {
    match error {
        LinkError::Unreachable(_) => 0,
        LinkError::TimedOut => 1,
        _ => 2,
    }
}

/// Addresses of one name that are tried. More would leave none of them enough time.
const ADDRESSES_OF_A_NAME: usize = 8;
