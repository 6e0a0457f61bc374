//! A transport that counts what goes through another one: bytes by link, overheads included, and the memory that the other one
//! takes or gives back in its calls, so that it can be told from its user's.

use crate::alloc::{self, Side};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidelock::netcore::error::TransportError;
use tidelock::netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};

/// What was counted. Shared by a [`Tap`] and whoever reads it.
pub struct Counts {
    sent: Vec<AtomicU64>,
    memory: AtomicI64,
}

impl Counts {
    /// Bytes that were handed over for a link so far, the transport's overheads included.
    #[must_use]
    pub fn sent(&self, link: LinkId) -> u64 {
        self.sent.get(link.0 as usize).map_or(0, |n| n.load(Relaxed))
    }

    /// By how many bytes the memory of the transport has grown in calls through the tap.
    #[must_use]
    pub fn memory(&self) -> i64 {
        self.memory.load(Relaxed)
    }

    fn note_sent(&self, link: LinkId, bytes: usize) {
        if let Some(sent) = self.sent.get(link.0 as usize) {
            sent.fetch_add(bytes as u64, Relaxed);
        }
    }

    fn watch<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = alloc::held(Side::Network);
        let result = alloc::within(Side::Network, f);
        self.memory.fetch_add(alloc::held(Side::Network) - before, Relaxed);
        result
    }
}

/// See the [module](self).
pub struct Tap<T> {
    inner: T,
    counts: Arc<Counts>,
}

impl<T: Transport> Tap<T> {
    /// Taps a transport whose links are numbered below `links`.
    pub fn new(inner: T, links: usize) -> (Self, Arc<Counts>) {
        let sent = (0..links).map(|_| AtomicU64::new(0)).collect();
        let counts = Arc::new(Counts { sent, memory: AtomicI64::new(0) });
        (Self { inner, counts: counts.clone() }, counts)
    }
}

impl<T: Transport> Transport for Tap<T> {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        self.counts.watch(|| self.inner.poll(now, payload))
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        self.inner.facts(link)
    }

    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let result = self.counts.watch(|| self.inner.send_datagram(now, link, bytes));
        if result == Ok(Delivery::Taken) {
            let overhead = self.inner.facts(link).map_or(0, |f| f.datagram_overhead);
            self.counts.note_sent(link, bytes.len() + overhead);
        }
        result
    }

    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let result = self.counts.watch(|| self.inner.send_message(now, link, lane, bytes));
        if result == Ok(Delivery::Taken) {
            let overhead = self.inner.facts(link).map_or(0, |f| f.datagram_overhead);
            self.counts.note_sent(link, bytes.len() + overhead);
        }
        result
    }

    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        self.counts.watch(|| self.inner.close(now, link, code, text));
    }

    fn flush(&mut self, now: Duration) {
        self.counts.watch(|| self.inner.flush(now));
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        self.inner.stats(link)
    }
}

/// A transport whose memory counts as the network's, whoever calls it. It counts nothing else, so it costs next to nothing.
pub struct Aside<T>(pub T);

impl<T: Transport> Transport for Aside<T> {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        alloc::within(Side::Network, || self.0.poll(now, payload))
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        self.0.facts(link)
    }

    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        alloc::within(Side::Network, || self.0.send_datagram(now, link, bytes))
    }

    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        alloc::within(Side::Network, || self.0.send_message(now, link, lane, bytes))
    }

    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        alloc::within(Side::Network, || self.0.close(now, link, code, text));
    }

    fn flush(&mut self, now: Duration) {
        alloc::within(Side::Network, || self.0.flush(now));
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        self.0.stats(link)
    }
}
