//! A bad network for real sockets: a UDP relay between guests and a host that delays, loses, doubles and reorders what passes,
//! in both directions, below QUIC.
//!
//! It works like a NAT: each client address gets an upstream socket of its own, so that the host sees each as another peer. Its
//! choices come from a seed, but the order in which the system hands it packets does not: two runs are alike, not equal. For
//! exact repetition there is the emulator on virtual time.

use parking_lot::Mutex;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What the network does to packets of one direction. Probabilities go from 0 (never) to 1 (always).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShimConfig {
    /// The time of one way.
    pub latency: Duration,
    /// Added to it: evenly spread from zero to this. A packet still does not overtake an earlier one.
    pub jitter: Duration,
    /// The part of packets that is lost, in the long run.
    pub loss: f64,
    /// How many packets in a row a loss takes, on average. 0 and 1 both mean that each is lost or not on its own.
    pub burst: f64,
    /// The part of packets that arrives twice.
    pub duplicate: f64,
    /// The part of packets that is late by up to one more `latency` plus `jitter`, and may be overtaken meanwhile.
    pub reorder: f64,
    /// Where the choices come from. Read at the start only.
    pub seed: u64,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From clients to the target.
    Up,
    /// From the target to clients.
    Down,
}

/// What happened to the packets of one direction since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Came in.
    pub received: u64,
    /// Went out, doubles included.
    pub forwarded: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Doubled.
    pub duplicated: u64,
    /// Made late on purpose.
    pub reordered: u64,
    /// Dropped because a queue or the table of clients was full, or the system did not take them.
    pub overflowed: u64,
}

/// A running relay. Dropping it stops its thread; what it holds is lost then.
pub struct Shim {
    addr: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    config: [ShimConfig; 2],
    counters: [Counters; 2],
}

impl Shim {
    /// Starts a relay to `target` on a free port of this machine (of the target's family), with the same conditions both ways.
    ///
    /// # Errors
    /// What the system says when it gives no socket or thread.
    pub fn start(target: SocketAddr, config: ShimConfig) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let front = {
            let _inside = runtime.enter();
            let socket = std::net::UdpSocket::bind(local(target))?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket)?
        };
        let addr = front.local_addr()?;
        let shared = Arc::new(Mutex::new(Shared { config: [config; 2], ..Shared::default() }));
        let stop = watch::Sender::new(false);
        let relay = Relay::new(target, front, shared.clone(), config.seed);
        let stopped = stop.subscribe();
        let run = move || runtime.block_on(relay.run(stopped));
        let thread = std::thread::Builder::new().name("tidelock-shim".into()).spawn(run)?;
        Ok(Self { addr, shared, stop, thread: Some(thread) })
    }

    /// Where clients should send to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// New conditions for both ways, for packets that come in from now on.
    pub fn set(&self, config: ShimConfig) {
        self.shared.lock().config = [config; 2];
    }

    /// New conditions for one way.
    pub fn set_direction(&self, direction: Direction, config: ShimConfig) {
        self.shared.lock().config[direction as usize] = config;
    }

    /// What has happened to the packets of one way.
    #[must_use]
    pub fn counters(&self, direction: Direction) -> Counters {
        self.shared.lock().counters[direction as usize]
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there.
            let _ = thread.join();
        }
    }
}

/// A packet on its way, ordered by when it is due, then by when it came.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due: Instant,
    number: u64,
    up: bool,
    client: SocketAddr,
    bytes: Vec<u8>,
}

struct Client {
    upstream: Arc<UdpSocket>,
    /// When the last packet of each way that keeps its place is due.
    last: [Option<Instant>; 2],
    heard: Instant,
    reader: tokio::task::AbortHandle,
}

/// A packet from the target, for that client.
type Answer = (SocketAddr, Vec<u8>);

struct Relay {
    target: SocketAddr,
    front: UdpSocket,
    shared: Arc<Mutex<Shared>>,
    rng: Pcg64Mcg,
    /// Each way: is it in the middle of a burst of losses?
    losing: [bool; 2],
    held: BinaryHeap<Reverse<Held>>,
    number: u64,
    clients: HashMap<SocketAddr, Client>,
    readers: JoinSet<()>,
    back: (mpsc::Sender<Answer>, mpsc::Receiver<Answer>),
}

impl Relay {
    fn new(target: SocketAddr, front: UdpSocket, shared: Arc<Mutex<Shared>>, seed: u64) -> Self {
        Self {
            target,
            front,
            shared,
            rng: Pcg64Mcg::seed_from_u64(seed),
            losing: [false; 2],
            held: BinaryHeap::new(),
            number: 0,
            clients: HashMap::new(),
            readers: JoinSet::new(),
            back: mpsc::channel(BACKLOG),
        }
    }

    async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let due = self.held.peek().map(|Reverse(held)| held.due);
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                () = until(due) => self.send_due(),
                got = self.front.recv_from(&mut buffer) => if let Ok((length, client)) = got {
                    self.take(Direction::Up, client, &buffer[..length]);
                },
                Some((client, bytes)) = self.back.1.recv() => self.take(Direction::Down, client, &bytes),
                Some(_) = self.readers.join_next() => {}
            }
        }
    }

    /// Decides what becomes of a packet that came in.
    fn take(&mut self, direction: Direction, client: SocketAddr, bytes: &[u8]) {
        let shared = self.shared.clone();
        let mut shared = shared.lock();
        let config = shared.config[direction as usize];
        let counters = &mut shared.counters[direction as usize];
        counters.received += 1;
        if self.loses(direction, &config) {
            counters.lost += 1;
            return;
        }
        let twice = self.chance(config.duplicate);
        counters.duplicated += u64::from(twice);
        for _ in 0..1 + usize::from(twice) {
            let late = self.chance(config.reorder);
            counters.reordered += u64::from(late);
            if !self.hold(direction, client, bytes, &config, late) {
                counters.overflowed += 1;
            }
        }
    }

    /// Puts a packet into the queue; false if there is no room.
    fn hold(&mut self, direction: Direction, client: SocketAddr, bytes: &[u8], config: &ShimConfig, late: bool) -> bool {
        if self.held.len() >= HELD {
            return false;
        }
        let now = Instant::now();
        let mut due = now + config.latency + self.part(config.jitter);
        if late {
            due += self.part(config.latency + config.jitter);
        }
        let Some(entry) = self.client(client, now) else { return false };
        entry.heard = now;
        if !late {
            let last = &mut entry.last[direction as usize];
            due = last.map_or(due, |last| due.max(last));
            *last = Some(due);
        }
        self.number += 1;
        let held = Held { due, number: self.number, up: direction == Direction::Up, client, bytes: bytes.to_vec() };
        self.held.push(Reverse(held));
        true
    }

    /// The entry of a client; a new one if need be, in place of the most silent one if the table is full.
    fn client(&mut self, address: SocketAddr, now: Instant) -> Option<&mut Client> {
        if !self.clients.contains_key(&address) {
            if self.clients.len() >= CLIENTS {
                let silent = self.clients.iter().min_by_key(|(_, client)| client.heard).map(|(address, _)| *address)?;
                self.clients.remove(&silent)?.reader.abort();
            }
            let upstream = Arc::new(upstream(self.target).ok()?);
            let reader = self.readers.spawn(read_back(address, upstream.clone(), self.back.0.clone()));
            self.clients.insert(address, Client { upstream, last: [None; 2], heard: now, reader });
        }
        self.clients.get_mut(&address)
    }

    fn send_due(&mut self) {
        let now = Instant::now();
        while self.held.peek().is_some_and(|Reverse(held)| held.due <= now) {
            let Some(Reverse(held)) = self.held.pop() else { return };
            let sent = match self.clients.get(&held.client) {
                Some(client) if held.up => client.upstream.try_send(&held.bytes).is_ok(),
                Some(_) => self.front.try_send_to(&held.bytes, held.client).is_ok(),
                None => false,
            };
            let direction = if held.up { Direction::Up } else { Direction::Down };
            let counters = &mut self.shared.lock().counters[direction as usize];
            match sent {
                true => counters.forwarded += 1,
                false => counters.overflowed += 1,
            }
        }
    }

    fn loses(&mut self, direction: Direction, config: &ShimConfig) -> bool {
        let draw = self.unit();
        let losing = &mut self.losing[direction as usize];
        *losing = is_lost(*losing, config, draw);
        *losing
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    fn part(&mut self, whole: Duration) -> Duration {
        whole.mul_f64(self.unit())
    }

    /// Evenly spread in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Two states, one of which loses everything; their rates give the wished mean of losses and length of bursts. `losing` is whether
/// the packet before was lost, `draw` is evenly spread in [0, 1).
fn is_lost(losing: bool, config: &ShimConfig, draw: f64) -> bool {
    let burst = config.burst.max(1.0);
    match losing {
        _ if config.loss <= 0.0 => false,
        _ if config.loss >= 1.0 => true,
        _ if burst <= 1.0 => draw < config.loss,
        true => draw >= 1.0 / burst,
        false => draw < config.loss / (1.0 - config.loss) / burst,
    }
}

/// Hands on what the target answers to one client. Waits while the relay is behind; the system then drops.
async fn read_back(client: SocketAddr, upstream: Arc<UdpSocket>, back: mpsc::Sender<Answer>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match upstream.recv(&mut buffer).await {
            Ok(length) => {
                if back.send((client, buffer[..length].to_vec())).await.is_err() {
                    return;
                }
            }
            // Nobody listens at the target now; that may change.
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn upstream(target: SocketAddr) -> io::Result<UdpSocket> {
    let from = match target {
        _ if target.ip().is_loopback() => local(target),
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(from)?;
    socket.set_nonblocking(true)?;
    socket.connect(target)?;
    UdpSocket::from_std(socket)
}

fn local(target: SocketAddr) -> SocketAddr {
    match target {
        SocketAddr::V4(_) => (Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::LOCALHOST, 0).into(),
    }
}

/// Packets that it holds at most, both ways. At 1200 bytes each, 20 MB.
const HELD: usize = 16 * 1024;
/// Clients that it knows at most.
const CLIENTS: usize = 1024;
/// Answers of the target that wait for the relay.
const BACKLOG: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_have_the_wished_mean_and_length() {
        const SEED: u64 = 3;
        const PACKETS: u32 = 200_000;
        for (loss, burst) in [(0.05, 1.0), (0.1, 4.0), (0.3, 10.0)] {
            let mut rng = Pcg64Mcg::seed_from_u64(SEED);
            let config = ShimConfig { loss, burst, ..ShimConfig::default() };
            let (mut losing, mut lost, mut bursts) = (false, 0, 0);
            for _ in 0..PACKETS {
                let before = losing;
                losing = is_lost(losing, &config, (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64);
                lost += u32::from(losing);
                bursts += u32::from(losing && !before);
            }
            let mean = f64::from(lost) / f64::from(PACKETS);
            assert!((mean / loss - 1.0).abs() < 0.1, "{mean} is not about {loss}, SEED={SEED}");
            // Independent losses come in a row by chance, too: 1 / (1 - loss).
            let wished = if burst == 1.0 { 1.0 / (1.0 - loss) } else { burst };
            let length = f64::from(lost) / f64::from(bursts);
            assert!((length / wished - 1.0).abs() < 0.1, "{length} is not about {wished}, SEED={SEED}");
        }
    }
}
