//! Both ends of a bed and what came in at each, so that the checks can say what they wait for.

use crate::Bed;
use std::time::Duration;
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, Transport};

/// Where something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Host,
    /// The guest of that number, counted from 0.
    Guest(usize),
}

pub(crate) struct Ends<'a> {
    bed: &'a mut dyn Bed,
    host_log: Vec<Event>,
    host_stopped: bool,
    guests: Vec<Guest>,
}

struct Guest {
    /// `None` once it was dropped.
    transport: Option<Box<dyn Transport>>,
    log: Vec<Event>,
    /// Its own name of its link, and the host's.
    link: LinkId,
    host_link: LinkId,
}

pub(crate) struct Event {
    pub(crate) arrival: Arrival,
    pub(crate) payload: Vec<u8>,
}

/// By the bed's clock.
const DEADLINE: Duration = Duration::from_secs(30);
/// For beds whose clock does not move as it should.
const STEPS: u32 = 10_000_000;

impl<'a> Ends<'a> {
    pub(crate) fn new(bed: &'a mut dyn Bed) -> Self {
        Self { bed, host_log: Vec::new(), host_stopped: false, guests: Vec::new() }
    }

    /// Lets a guest join and waits until its link is open at both ends.
    pub(crate) fn join(&mut self) -> usize {
        let transport = Some(self.bed.join());
        let unknown = LinkId(u32::MAX);
        self.guests.push(Guest { transport, log: Vec::new(), link: unknown, host_link: unknown });
        let at = self.guests.len() - 1;
        let known = self.host_log.len();
        self.until("a link to open at both ends", |ends| {
            opened(&ends.host_log[known..]).is_some() && opened(&ends.guests[at].log).is_some()
        });
        self.guests[at].host_link = opened(&self.host_log[known..]).expect("it was waited for");
        self.guests[at].link = opened(&self.guests[at].log).expect("it was waited for");
        at
    }

    /// The link between a guest and the host, as it is called at `at`.
    pub(crate) fn link(&self, at: At, guest: usize) -> LinkId {
        if at == At::Host { self.guests[guest].host_link } else { self.guests[guest].link }
    }

    /// Polls every end until it has no more, and flushes it.
    pub(crate) fn receive(&mut self) {
        let now = self.bed.now();
        if !self.host_stopped {
            drain(self.bed.host(), now, &mut self.host_log);
        }
        for guest in &mut self.guests {
            if let Some(transport) = &mut guest.transport {
                drain(transport.as_mut(), now, &mut guest.log);
            }
        }
    }

    /// Receives and lets time pass until `done`.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = self.bed.now() + DEADLINE;
        for _ in 0..STEPS {
            self.receive();
            if done(self) {
                return;
            }
            assert!(self.bed.now() < deadline, "{}: waited {DEADLINE:?} in vain for {what}", self.bed.name());
            self.bed.wait();
        }
        panic!("{}: waited {STEPS} times in vain for {what}; the clock of the bed hardly moves", self.bed.name());
    }

    /// Receives for `time`, to see that nothing more comes.
    pub(crate) fn idle(&mut self, time: Duration) {
        let end = self.bed.now() + time;
        self.until("time to pass", |ends| ends.bed.now() >= end);
    }

    pub(crate) fn transport(&mut self, at: At) -> &mut dyn Transport {
        match at {
            At::Host => self.bed.host(),
            At::Guest(guest) => self.guests[guest].transport.as_deref_mut().expect("a check uses guests that are there"),
        }
    }

    pub(crate) fn facts(&mut self, at: At, link: LinkId) -> Option<Facts> {
        self.transport(at).facts(link)
    }

    pub(crate) fn try_message(&mut self, at: At, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let now = self.bed.now();
        self.transport(at).send_message(now, link, lane, bytes)
    }

    pub(crate) fn try_datagram(&mut self, at: At, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let now = self.bed.now();
        self.transport(at).send_datagram(now, link, bytes)
    }

    pub(crate) fn flush(&mut self, at: At) {
        let now = self.bed.now();
        self.transport(at).flush(now);
    }

    /// Sends a message, waiting while the transport is full.
    pub(crate) fn message(&mut self, at: At, link: LinkId, lane: Lane, bytes: &[u8]) {
        if self.try_message(at, link, lane, bytes) == Ok(Delivery::Taken) {
            return;
        }
        self.until("room for a message", |ends| {
            let answer = ends.try_message(at, link, lane, bytes);
            answer.expect("an open link takes messages within the limit") == Delivery::Taken
        });
    }

    pub(crate) fn close(&mut self, at: At, link: LinkId, code: u32, text: &str) {
        let now = self.bed.now();
        self.transport(at).close(now, link, code, text);
        self.transport(at).flush(now);
    }

    pub(crate) fn drop_guest(&mut self, guest: usize) {
        self.guests[guest].transport = None;
    }

    pub(crate) fn stop_host(&mut self) {
        self.host_stopped = true;
        self.bed.stop_host();
    }

    pub(crate) fn log(&self, at: At) -> &[Event] {
        match at {
            At::Host => &self.host_log,
            At::Guest(guest) => &self.guests[guest].log,
        }
    }

    /// The messages that came in from a link on a lane.
    pub(crate) fn messages(&self, at: At, link: LinkId, lane: Lane) -> Vec<&[u8]> {
        self.payloads(at, &Arrival::Message { link, lane })
    }

    /// The datagrams that came in from a link.
    pub(crate) fn datagrams(&self, at: At, link: LinkId) -> Vec<&[u8]> {
        self.payloads(at, &Arrival::Datagram { link })
    }

    /// The place in the log and the reason of a link's end.
    pub(crate) fn closed(&self, at: At, link: LinkId) -> Option<(usize, &LinkError)> {
        self.log(at).iter().enumerate().find_map(|(i, event)| match &event.arrival {
            Arrival::Closed { link: l, reason } if *l == link => Some((i, reason)),
            _ => None,
        })
    }

    fn payloads(&self, at: At, like: &Arrival) -> Vec<&[u8]> {
        self.log(at).iter().filter(|e| e.arrival == *like).map(|e| e.payload.as_slice()).collect()
    }
}

fn drain(transport: &mut dyn Transport, now: Duration, log: &mut Vec<Event>) {
    let mut payload = Vec::new();
    while let Some(arrival) = transport.poll(now, &mut payload) {
        log.push(Event { arrival, payload: std::mem::take(&mut payload) });
    }
    transport.flush(now);
}

fn opened(log: &[Event]) -> Option<LinkId> {
    log.iter().find_map(|e| if let Arrival::Opened { link, .. } = e.arrival { Some(link) } else { None })
}
