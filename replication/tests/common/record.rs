//! A transport that notes all that passes through it.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidelock::netcore::error::TransportError;
use tidelock::netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};

/// Which way it went, seen from the end that noted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Sent,
    Received,
}

/// One datagram, or one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The end that noted it: the number given to [`Recorder::new`].
    pub end: usize,
    pub at: Duration,
    pub way: Way,
    pub link: LinkId,
    /// `None` for a datagram.
    pub lane: Option<Lane>,
    pub bytes: Vec<u8>,
}

/// What passed at all ends, in order. Clones share it.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Passed>>>);

impl Log {
    /// Takes out what was noted since the last call.
    pub fn take(&self) -> Vec<Passed> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn note(&self, passed: Passed) {
        self.0.lock().unwrap().push(passed);
    }
}

/// Passes everything on to a transport, and notes it. What the transport did not take is not noted.
pub struct Recorder {
    inner: Box<dyn Transport>,
    log: Log,
    end: usize,
}

impl Recorder {
    pub fn new(inner: impl Transport + 'static, log: &Log, end: usize) -> Self {
        Self { inner: Box::new(inner), log: log.clone(), end }
    }

    fn note(&self, at: Duration, way: Way, link: LinkId, lane: Option<Lane>, bytes: &[u8]) {
        self.log.note(Passed { end: self.end, at, way, link, lane, bytes: bytes.to_vec() });
    }
}

impl Transport for Recorder {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        let arrival = self.inner.poll(now, payload)?;
        match arrival {
            Arrival::Datagram { link } => self.note(now, Way::Received, link, None, payload),
            Arrival::Message { link, lane } => self.note(now, Way::Received, link, Some(lane), payload),
            Arrival::Opened { .. } | Arrival::Closed { .. } => {}
        }
        Some(arrival)
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        self.inner.facts(link)
    }

    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let delivery = self.inner.send_datagram(now, link, bytes)?;
        if delivery == Delivery::Taken {
            self.note(now, Way::Sent, link, None, bytes);
        }
        Ok(delivery)
    }

    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let delivery = self.inner.send_message(now, link, lane, bytes)?;
        if delivery == Delivery::Taken {
            self.note(now, Way::Sent, link, Some(lane), bytes);
        }
        Ok(delivery)
    }

    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        self.inner.close(now, link, code, text);
    }

    fn flush(&mut self, now: Duration) {
        self.inner.flush(now);
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        self.inner.stats(link)
    }
}
