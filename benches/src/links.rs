//! Links over 127.0.0.1 whose far end echoes what is small and counts what is large: raw UDP, plain quinn, and the QUIC transport.

use bytes::Bytes;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidelock::netcore::transport::{Arrival, Delivery, Lane, LinkId, Transport};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};
use tokio::runtime::{Builder, Runtime};

/// Bytes of what is echoed.
pub const PING: usize = 200;
/// Bytes of a datagram that is counted.
const DATAGRAM: usize = 1000;
/// Bytes of a message that is counted.
const MESSAGE: usize = 8000;
/// No wait takes longer.
const DEADLINE: Duration = Duration::from_secs(20);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One link.
pub trait Link {
    /// What it is.
    fn name(&self) -> &'static str;
    /// Does it carry messages (`reliable`), or only datagrams?
    fn carries(&self, reliable: bool) -> bool;
    /// Sends [`PING`] bytes and waits until they are back.
    ///
    /// # Errors
    /// If they do not come.
    fn ping(&mut self, reliable: bool) -> Result<()>;
    /// Sends as much as goes for so long; gives the bytes that arrived.
    ///
    /// # Errors
    /// If the link breaks.
    fn pour(&mut self, reliable: bool, time: Duration) -> Result<u64>;
}

fn here() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Raw UDP, blocking, a thread at the far end.
pub struct Raw {
    socket: UdpSocket,
    arrived: Arc<AtomicU64>,
    far: Option<JoinHandle<()>>,
}

impl Raw {
    /// Opens one.
    ///
    /// # Errors
    /// From the system.
    pub fn open() -> Result<Self> {
        let (socket, other) = (UdpSocket::bind(here())?, UdpSocket::bind(here())?);
        socket.connect(other.local_addr()?)?;
        other.connect(socket.local_addr()?)?;
        socket.set_read_timeout(Some(DEADLINE))?;
        let arrived = Arc::new(AtomicU64::new(0));
        let counter = arrived.clone();
        let far = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            // an empty datagram ends it
            while let Ok(size @ 1..) = other.recv(&mut buffer) {
                if size == PING {
                    let _ = other.send(&buffer[..size]);
                } else {
                    counter.fetch_add(size as u64, Relaxed);
                }
            }
        });
        Ok(Self { socket, arrived, far: Some(far) })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.socket.send(&[]);
        if let Some(far) = self.far.take() {
            let _ = far.join();
        }
    }
}

impl Link for Raw {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn carries(&self, reliable: bool) -> bool {
        !reliable
    }

    fn ping(&mut self, _reliable: bool) -> Result<()> {
        self.socket.send(&[7; PING])?;
        self.socket.recv(&mut [0; 2048])?;
        Ok(())
    }

    fn pour(&mut self, _reliable: bool, time: Duration) -> Result<u64> {
        let (start, before) = (Instant::now(), self.arrived.load(Relaxed));
        while start.elapsed() < time {
            self.socket.send(&[1; DATAGRAM])?;
        }
        Ok(self.arrived.load(Relaxed) - before)
    }
}

/// Plain quinn with its own defaults, a runtime and a thread for each end.
pub struct Plain {
    runtime: Runtime,
    connection: quinn::Connection,
    send: quinn::SendStream,
    receive: quinn::RecvStream,
    arrived: Arc<AtomicU64>,
    _endpoint: quinn::Endpoint,
    _far: Runtime,
}

async fn echo_datagrams(connection: quinn::Connection, arrived: Arc<AtomicU64>) {
    while let Ok(datagram) = connection.read_datagram().await {
        if datagram.len() == PING {
            let _ = connection.send_datagram(datagram);
        } else {
            arrived.fetch_add(datagram.len() as u64, Relaxed);
        }
    }
}

async fn echo_messages(connection: quinn::Connection, arrived: Arc<AtomicU64>) {
    let Ok((mut send, mut receive)) = connection.accept_bi().await else { return };
    let (mut size, mut body) = ([0; 2], vec![0; MESSAGE]);
    while receive.read_exact(&mut size).await.is_ok() {
        let body = &mut body[..usize::from(u16::from_le_bytes(size)).min(MESSAGE)];
        if receive.read_exact(body).await.is_err() {
            return;
        }
        if body.len() > PING {
            arrived.fetch_add(body.len() as u64, Relaxed);
        } else if !body.is_empty() && send.write_all(body).await.is_err() {
            return;
        }
    }
}

/// A message with its size before it.
fn framed(size: usize) -> Vec<u8> {
    let mut bytes = (size as u16).to_le_bytes().to_vec();
    bytes.resize(size + 2, 1);
    bytes
}

impl Plain {
    /// Opens one.
    ///
    /// # Errors
    /// From the system or from quinn.
    pub fn open() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let far = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let identity = Identity::generate()?;
        let certificate = CertificateDer::from(identity.certificate_der().to_vec());
        let key = PrivatePkcs8KeyDer::from(identity.key_der().to_vec());
        let config = quinn::ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
        let server = far.block_on(async { quinn::Endpoint::server(config, here()) })?;
        let address = server.local_addr()?;
        let arrived = Arc::new(AtomicU64::new(0));
        let counter = arrived.clone();
        far.spawn(async move {
            let Some(incoming) = server.accept().await else { return };
            let Ok(connection) = incoming.await else { return };
            tokio::join!(echo_datagrams(connection.clone(), counter.clone()), echo_messages(connection, counter));
        });
        let mut roots = RootCertStore::empty();
        roots.add(certificate)?;
        let mut endpoint = runtime.block_on(async { quinn::Endpoint::client(here()) })?;
        endpoint.set_default_client_config(quinn::ClientConfig::with_root_certificates(Arc::new(roots))?);
        let (connection, send, receive) = runtime.block_on(async {
            let connection = endpoint.connect(address, NAME)?.await?;
            let (mut send, receive) = connection.open_bi().await?;
            send.write_all(&framed(0)).await?;
            Ok::<_, Box<dyn Error>>((connection, send, receive))
        })?;
        Ok(Self { runtime, connection, send, receive, arrived, _endpoint: endpoint, _far: far })
    }
}

/// Whom the certificates of the transport are for.
const NAME: &str = "tidelock";

impl Link for Plain {
    fn name(&self) -> &'static str {
        "quinn"
    }

    fn carries(&self, _reliable: bool) -> bool {
        true
    }

    fn ping(&mut self, reliable: bool) -> Result<()> {
        let Self { runtime, connection, send, receive, .. } = self;
        runtime.block_on(async {
            if reliable {
                send.write_all(&framed(PING)).await?;
                receive.read_exact(&mut [0; PING]).await?;
            } else {
                connection.send_datagram(Bytes::from_static(&[7; PING]))?;
                tokio::time::timeout(DEADLINE, connection.read_datagram()).await??;
            }
            Ok(())
        })
    }

    fn pour(&mut self, reliable: bool, time: Duration) -> Result<u64> {
        let (start, before) = (Instant::now(), self.arrived.load(Relaxed));
        let Self { runtime, connection, send, .. } = self;
        runtime.block_on(async {
            let message = framed(MESSAGE);
            while start.elapsed() < time {
                if reliable {
                    send.write_all(&message).await?;
                } else {
                    connection.send_datagram_wait(Bytes::from_static(&[1; DATAGRAM])).await?;
                }
            }
            Ok::<_, Box<dyn Error>>(())
        })?;
        let bytes = self.arrived.load(Relaxed) - before;
        // what is still under way must not count for, or delay, what comes next
        self.ping(reliable)?;
        Ok(bytes)
    }
}

/// The QUIC transport, its own I/O thread at each end. Both ends are polled by this one thread.
pub struct Ours {
    host: QuicTransport,
    guest: QuicTransport,
    link: LinkId,
    arrived: u64,
    echoes: u64,
    payload: Vec<u8>,
}

/// How a guest's transport calls its only link.
const GUEST: LinkId = LinkId(0);

impl Ours {
    /// Opens one.
    ///
    /// # Errors
    /// From the transport, or if nobody has come in within 20 s.
    pub fn open() -> Result<Self> {
        let mut host = QuicTransport::listen(ListenConfig::new(here(), Identity::generate()?))?;
        let mut guest = QuicTransport::join(&host.address(), JoinConfig::default())?;
        let (start, mut payload, mut link, mut inside) = (Instant::now(), Vec::new(), None, false);
        loop {
            if let Some(Arrival::Opened { link: opened, .. }) = host.poll(start.elapsed(), &mut payload) {
                link = Some(opened);
            }
            if let Some(arrival) = guest.poll(start.elapsed(), &mut payload) {
                inside |= matches!(arrival, Arrival::Opened { .. });
            }
            if let (Some(link), true) = (link, inside) {
                return Ok(Self { host, guest, link, arrived: 0, echoes: 0, payload });
            }
            if start.elapsed() > DEADLINE {
                return Err("the guest did not get in".into());
            }
            std::thread::yield_now();
        }
    }

    /// Both ends look once at what has come; the host echoes and counts. Was there anything?
    fn turn(&mut self) -> Result<bool> {
        let Self { host, guest, link, arrived, echoes, payload } = self;
        let mut any = false;
        while let Some(arrival) = host.poll(Duration::ZERO, payload) {
            any = true;
            let echo = payload.len() == PING;
            let taken = match arrival {
                Arrival::Datagram { .. } if echo => host.send_datagram(Duration::ZERO, *link, payload)?,
                Arrival::Message { lane, .. } if echo => host.send_message(Duration::ZERO, *link, lane, payload)?,
                Arrival::Closed { reason, .. } => return Err(reason.into()),
                _ => {
                    *arrived += payload.len() as u64;
                    Delivery::Taken
                }
            };
            if taken == Delivery::Full {
                return Err("no room for an echo".into());
            }
        }
        host.flush(Duration::ZERO);
        while let Some(arrival) = guest.poll(Duration::ZERO, payload) {
            any = true;
            if let Arrival::Closed { reason, .. } = arrival {
                return Err(reason.into());
            }
            *echoes += 1;
        }
        Ok(any)
    }

    fn send(&mut self, reliable: bool, bytes: &[u8]) -> Result<Delivery> {
        Ok(if reliable {
            self.guest.send_message(Duration::ZERO, GUEST, Lane::RELIABLE, bytes)?
        } else {
            self.guest.send_datagram(Duration::ZERO, GUEST, bytes)?
        })
    }
}

impl Link for Ours {
    fn name(&self) -> &'static str {
        "tidelock"
    }

    fn carries(&self, _reliable: bool) -> bool {
        true
    }

    fn ping(&mut self, reliable: bool) -> Result<()> {
        let (start, before) = (Instant::now(), self.echoes);
        while self.send(reliable, &[7; PING])? == Delivery::Full {
            self.turn()?;
        }
        self.guest.flush(Duration::ZERO);
        while self.echoes == before {
            if !self.turn()? {
                std::thread::yield_now();
            }
            if start.elapsed() > DEADLINE {
                return Err("an echo did not come".into());
            }
        }
        Ok(())
    }

    fn pour(&mut self, reliable: bool, time: Duration) -> Result<u64> {
        let (start, before) = (Instant::now(), self.arrived);
        let body = vec![1; if reliable { MESSAGE } else { DATAGRAM }];
        while start.elapsed() < time {
            // a batch, as in a frame
            let taken = (0..64).take_while(|_| matches!(self.send(reliable, &body), Ok(Delivery::Taken))).count();
            self.guest.flush(Duration::ZERO);
            if !self.turn()? && taken == 0 {
                std::thread::yield_now();
            }
        }
        let bytes = self.arrived - before;
        self.ping(reliable)?;
        Ok(bytes)
    }
}
