//! What the tests of inputs run: a program at its own frame rate, and a transport that is not to be trusted.
#![allow(dead_code, unreachable_pub, reason = "a module of tests, which use parts of it")]

use hecs::World;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidelock::netcore::error::TransportError;
use tidelock::netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};
use tidelock::{Peer, Step};
use tidelock_loopback::Loopback;

/// A guest's transport that sends datagrams of others' making besides its own.
pub struct Forger {
    pub inner: Loopback,
    pub forged: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Transport for Forger {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        self.inner.poll(now, payload)
    }
    fn facts(&self, link: LinkId) -> Option<Facts> {
        self.inner.facts(link)
    }
    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        for forged in self.forged.lock().unwrap().drain(..) {
            let _ = self.inner.send_datagram(now, link, &forged)?;
        }
        self.inner.send_datagram(now, link, bytes)
    }
    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.inner.send_message(now, link, lane, bytes)
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

/// One program: it calls its peer once per frame.
pub struct Program {
    pub peer: Peer,
    pub world: World,
    pub frame: Duration,
    pub next: Duration,
}

impl Program {
    pub fn run(&mut self, now: Duration, mut simulate: impl FnMut(&mut World, &mut Step<'_>)) {
        self.peer.receive(now, &mut self.world).unwrap();
        while let Some(mut step) = self.peer.next_step(&mut self.world) {
            simulate(&mut self.world, &mut step);
        }
        self.peer.send(now, &mut self.world).unwrap();
    }
}
