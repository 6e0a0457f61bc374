//! Ends of links for tests over real sockets: they collect what arrives, and every wait has a deadline.
#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tidelock_netcore::error::LinkError;
use tidelock_netcore::transport::{Arrival, Delivery, Lane, LinkId, Transport};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};

/// No wait takes longer. Far more than anything here needs, for machines that are busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A transport and all that came in.
pub(crate) struct End {
    pub(crate) transport: QuicTransport,
    pub(crate) log: Vec<(Arrival, Vec<u8>)>,
}

impl End {
    pub(crate) fn new(transport: QuicTransport) -> Self {
        Self { transport, log: Vec::new() }
    }

    pub(crate) fn pump(&mut self) {
        let mut payload = Vec::new();
        while let Some(arrival) = self.transport.poll(Duration::ZERO, &mut payload) {
            self.log.push((arrival, payload.clone()));
        }
    }

    pub(crate) fn opened(&self) -> Vec<LinkId> {
        let opened = |arrival: &Arrival| match arrival {
            Arrival::Opened { link, .. } => Some(*link),
            _ => None,
        };
        self.log.iter().filter_map(|(arrival, _)| opened(arrival)).collect()
    }

    pub(crate) fn closed(&self) -> Vec<(LinkId, LinkError)> {
        let closed = |arrival: &Arrival| match arrival {
            Arrival::Closed { link, reason } => Some((*link, reason.clone())),
            _ => None,
        };
        self.log.iter().filter_map(|(arrival, _)| closed(arrival)).collect()
    }

    pub(crate) fn messages(&self, of: LinkId, on: Lane) -> Vec<Vec<u8>> {
        let wanted = Arrival::Message { link: of, lane: on };
        self.log.iter().filter(|(arrival, _)| *arrival == wanted).map(|(_, payload)| payload.clone()).collect()
    }

    pub(crate) fn datagrams(&self, of: LinkId) -> Vec<Vec<u8>> {
        let wanted = Arrival::Datagram { link: of };
        self.log.iter().filter(|(arrival, _)| *arrival == wanted).map(|(_, payload)| payload.clone()).collect()
    }

    /// Sends a message that must be taken.
    pub(crate) fn say(&mut self, link: LinkId, lane: Lane, bytes: &[u8]) {
        assert_eq!(self.transport.send_message(Duration::ZERO, link, lane, bytes), Ok(Delivery::Taken));
    }
}

/// Polls all ends until `done`.
pub(crate) fn until(what: &str, ends: &mut [&mut End], mut done: impl FnMut(&mut [&mut End]) -> bool) {
    let start = Instant::now();
    loop {
        ends.iter_mut().for_each(|end| end.pump());
        if done(ends) {
            return;
        }
        let logs: Vec<_> = ends.iter().map(|end| end.log.iter().map(|(a, _)| a).rev().take(5).collect::<Vec<_>>()).collect();
        assert!(start.elapsed() < DEADLINE, "waited too long for: {what}; the last arrivals: {logs:?}");
        std::thread::yield_now();
    }
}

pub(crate) fn localhost() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn listen_config() -> ListenConfig {
    ListenConfig::new(localhost(), Identity::generate().unwrap())
}

pub(crate) fn host(config: ListenConfig) -> End {
    End::new(QuicTransport::listen(config).unwrap())
}

pub(crate) fn join(target: &str) -> End {
    End::new(QuicTransport::join(target, JoinConfig::default()).unwrap())
}

/// A host and a guest whose link is open on both sides, and the host's name for it. The guest's is [`GUEST`].
pub(crate) fn pair() -> (End, End, LinkId) {
    let mut host = host(listen_config());
    let mut guest = join(&host.transport.address());
    let link = open(&mut host, &mut guest);
    (host, guest, link)
}

/// Waits until a new link is open on both sides; gives the host's name for it.
pub(crate) fn open(host: &mut End, guest: &mut End) -> LinkId {
    let before = host.opened().len();
    until("both to open", &mut [host, guest], |ends| {
        assert_eq!(ends[1].closed(), [], "the guest could not join");
        ends[0].opened().len() > before && ends[1].opened() == [GUEST]
    });
    host.opened()[before]
}

/// How a guest's transport calls its only link.
pub(crate) const GUEST: LinkId = LinkId(0);
pub(crate) const NOW: Duration = Duration::ZERO;
