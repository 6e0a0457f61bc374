//! One-off events: they ride along in packets of state, and go again only when the packet that carried them is lost.
//!
//! A packet that carries some says so in its header, and holds them after its state:
//!
//! ```text
//! EG 1   how many, less one; for each, in ascending order of numbers:
//!   the first: 16 bits of its number; each other one: its number − the one before − 1, Exp-Golomb 0
//!   8 bits of index
//!   if its type goes on to all: 1 bit; 1 from a guest: for all; 1 from a host: 10 bits of the peer follow who sent it
//!   1 bit: does it go off at a tick? Then zigzag of the tick − the packet's session tick, Exp-Golomb 4
//!   the fields, absolute
//! ```
//!
//! Numbers count the events of one direction of a link. An event is settled when a packet that carried it is acknowledged; until
//! then it waits, or is on its way in one packet, and waits again as soon as that one counts as lost. The receiver hands them on in
//! the order of their numbers, each once.

use crate::peer_id::PeerId;
use crate::schema::{Inner, Promise};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tidelock_netcore::ack::AckRanges;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter, unzigzag, zigzag};
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;
use tidelock_netcore::tick::{Tick, widen};

/// An acknowledged packet of so much higher a number makes a packet a lost one, as it does for state.
const REORDER_PACKETS: u64 = 3;
/// Bits of a peer.
const PEER_BITS: u32 = limits::PEERS.ilog2();
/// An event that waits so long goes before state.
const PATIENCE: Duration = Duration::from_millis(100);
/// Who has not acknowledged a packet of so many with the same event, whatever else it acknowledges, never will.
const LOSSES: u32 = 200;
/// Bits of an event that never rides along with state: it would take most of the packet.
const RIDER_BITS: usize = limits::DATAGRAM_MIN_BYTES * 8 / 2;
/// What is handed on for guests finds so many times the room of a peer's own.
const HANDED_ON: usize = 2;
/// Shared events that a host takes of one guest at once: what an honest one may have had on its way while its link was held up, and
/// then some.
const TAKEN_AT_ONCE: u32 = 2 * limits::SHARED_EVENTS_RATE + limits::EVENTS_IN_FLIGHT as u32;

/// An event on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(super) message: usize,
    /// From a guest: for all. From a host: who sent it, if not the host.
    pub(super) relay: Option<PeerId>,
    pub(super) at: Option<Tick>,
    pub(super) words: Vec<u32>,
}

impl Event {
    fn write(&self, schema: &Inner, from_host: bool, tick: Tick, w: &mut BitWriter) {
        let entry = &schema.messages[self.message];
        w.put(self.message as u64, 8);
        if entry.promise == Promise::SharedEvent {
            w.flag(self.relay.is_some());
            if let Some(peer) = self.relay.filter(|_| from_host) {
                w.put(u64::from(peer.0), PEER_BITS);
            }
        }
        w.flag(self.at.is_some());
        if let Some(at) = self.at {
            w.golomb(zigzag(at.0.wrapping_sub(tick.0) as i64), 4);
        }
        entry.layout.write(&self.words, None, 0, w);
    }

    fn read(schema: &Inner, from_host: bool, tick: Tick, r: &mut BitReader<'_>) -> Result<Self, BitError> {
        let message = r.get(8)? as usize;
        let entry = schema.messages.get(message).filter(|m| m.promise.is_event()).ok_or(BitError::OutOfRange)?;
        let relayed = entry.promise == Promise::SharedEvent && r.flag()?;
        let relay = match (relayed, from_host) {
            (false, _) => None,
            (true, false) => Some(PeerId::HOST),
            (true, true) => Some(PeerId(r.get(PEER_BITS)? as u16)),
        };
        let at = if r.flag()? {
            let at = tick.0.checked_add_signed(unzigzag(r.golomb(4)?)).ok_or(BitError::OutOfRange)?;
            // who is behind or ahead in time is so by much less
            if at > tick.0 + 2 * limits::EVENT_AHEAD {
                return Err(BitError::OutOfRange);
            }
            Some(Tick(at))
        } else {
            None
        };
        let mut words = vec![0; entry.layout.words()];
        entry.layout.read(None, 0, r, &mut words)?;
        Ok(Self { message, relay, at, words })
    }
}

/// Numbers of the events that a packet takes along.
pub(crate) type Riders = SmallVec<[u64; 8]>;

/// Keeps what is taken to a rate, with bursts: the time at which all that was taken has had its share of time.
#[derive(Debug, Default)]
struct Pace(Duration);

impl Pace {
    fn take(&mut self, now: Duration, rate: u32, burst: u32) -> bool {
        let each = Duration::from_secs(1) / rate;
        let next = self.0.max(now) + each;
        let within = next <= now + each * burst;
        if within {
            self.0 = next;
        }
        within
    }
}

/// The events that go to one peer.
#[derive(Debug)]
pub(crate) struct EventsOut {
    /// The number of the first in the queue.
    first: u64,
    queue: VecDeque<Leaving>,
    flights: VecDeque<Flight>,
    /// How many wait.
    waiting: usize,
    /// All in the queue: this peer's own, and those that it hands on for guests.
    loads: [Load; 2],
    /// Since when the first in the queue is the first.
    first_since: Duration,
    /// Guest: of those that go to all.
    shared: Pace,
    scratch: BitWriter,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    events: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Leaving {
    event: Event,
    handed_on: bool,
    /// More than it takes in a packet.
    bits: usize,
    state: State,
    /// How often it was lost.
    lost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Since when.
    Waits(Duration),
    Flies,
    /// Acknowledged.
    There,
}

#[derive(Debug)]
struct Flight {
    packet: u64,
    sent_at: Duration,
    riders: Riders,
}

impl EventsOut {
    /// Numbers begin with `first`.
    pub(crate) fn new(first: u64) -> Self {
        let (queue, flights) = (VecDeque::new(), VecDeque::new());
        let (loads, first_since, shared, scratch) = ([Load::default(); 2], Duration::ZERO, Pace::default(), BitWriter::new());
        Self { first, queue, flights, waiting: 0, loads, first_since, shared, scratch }
    }

    /// Takes an event; gives it back if too many are not acknowledged yet, or a guest sends more to all than it may. What is handed on
    /// for guests is counted apart, and finds room for twice as many: it takes none from the host's own.
    pub(crate) fn push(&mut self, schema: &Inner, from_host: bool, event: Event, now: Duration) -> Result<(), Event> {
        self.scratch.clear();
        // its tick may be far from that of the packet
        event.write(schema, from_host, event.at.unwrap_or_default(), &mut self.scratch);
        let bits = self.scratch.len() + 2 * 64;
        let handed_on = from_host && event.relay.is_some();
        let times = if handed_on { HANDED_ON } else { 1 };
        let load = &mut self.loads[usize::from(handed_on)];
        let many = load.events >= times * limits::EVENTS_IN_FLIGHT;
        let full = many || load.bytes + bits / 8 > times * limits::LANE_QUEUE_BYTES;
        let paced = !from_host && event.relay.is_some();
        let burst = limits::EVENTS_IN_FLIGHT as u32;
        if full || paced && !self.shared.take(now, limits::SHARED_EVENTS_RATE, burst) {
            return Err(event);
        }
        if self.queue.is_empty() {
            self.first_since = now;
        }
        self.queue.push_back(Leaving { event, handed_on, bits, state: State::Waits(now), lost: 0 });
        self.waiting += 1;
        load.events += 1;
        load.bytes += bits / 8;
        Ok(())
    }

    /// Host: takes a guest's event for another guest. Where there is no room, the newest goes of whoever has most that were never sent,
    /// be it this one: who sends much takes no room from who sends little. Gives what was dropped.
    pub(super) fn hand_on(&mut self, schema: &Inner, mut event: Event, now: Duration) -> SmallVec<[Event; 1]> {
        let mut dropped = SmallVec::new();
        while let Err(refused) = self.push(schema, true, event, now) {
            let Some(place) = self.newest_of_busiest(refused.relay) else {
                dropped.push(refused);
                break;
            };
            event = refused;
            dropped.extend(self.remove_unsent(place));
        }
        dropped
    }

    /// Behind the window, where nothing was ever sent: the place of the newest event of the guest that has most there, if those are
    /// more than those of `but` with one more.
    fn newest_of_busiest(&self, but: Option<PeerId>) -> Option<usize> {
        let mut counts = vec![0u32; limits::PEERS];
        let slot = |relay: Option<PeerId>| relay.map(|peer| usize::from(peer.0) % limits::PEERS);
        let places = limits::EVENTS_IN_FLIGHT.min(self.queue.len())..self.queue.len();
        for at in self.queue.range(places.clone()).filter_map(|leaving| slot(leaving.event.relay)) {
            counts[at] += 1;
        }
        let own = slot(but).map_or(0, |at| counts[at] + 1);
        let (busiest, _) = counts.iter().enumerate().filter(|(_, count)| **count > own).max_by_key(|(_, count)| **count)?;
        places.rev().find(|place| slot(self.queue[*place].event.relay) == Some(busiest))
    }

    /// Takes out one behind the window. It has no number yet that anybody knows.
    fn remove_unsent(&mut self, place: usize) -> Option<Event> {
        let leaving = self.queue.remove(place)?;
        let load = &mut self.loads[usize::from(leaving.handed_on)];
        load.events -= 1;
        load.bytes -= leaving.bits / 8;
        self.waiting -= 1;
        Some(leaving.event)
    }

    /// Has the oldest one, which was sent, not been acknowledged for so long that whatever waits behind it is the peer's own fault?
    pub(super) fn is_held_up(&self, now: Duration) -> bool {
        self.queue.front().is_some_and(|leaving| leaving.lost > 0) && now > self.first_since + limits::LANE_QUEUE_TIME
    }

    /// Bits of what waits or is on its way.
    #[cfg(test)]
    pub(super) fn waiting_bits(&self) -> usize {
        self.queue.iter().map(|leaving| leaving.bits).sum()
    }

    /// Does the peer not acknowledge what it must get?
    pub(crate) fn is_stuck(&self) -> bool {
        self.queue.front().is_some_and(|leaving| leaving.lost >= LOSSES)
    }

    /// Is there something to send?
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Is there one that does not wait for state to ride along with?
    pub(crate) fn is_urgent(&self, now: Duration) -> bool {
        self.waiting > 0
            && self.queue.iter().take(limits::EVENTS_IN_FLIGHT).any(|leaving| match leaving.state {
                State::Waits(since) => now >= since + PATIENCE || leaving.bits > RIDER_BITS,
                _ => false,
            })
    }

    /// Writes what waits into `w`, as far as it fits so many bits, and gives the numbers. They count as sent once [`sent`](Self::sent)
    /// is called.
    pub(crate) fn draft(&mut self, schema: &Inner, from_host: bool, tick: Tick, room: usize, w: &mut BitWriter) -> Riders {
        w.clear();
        let mut riders = Riders::new();
        if self.waiting == 0 {
            return riders;
        }
        // the count and the first number
        let (mut used, mut words) = (16 + 24, 0);
        // the receiver takes none further ahead of what it lacks
        for (number, leaving) in (self.first..).zip(&self.queue).take(limits::EVENTS_IN_FLIGHT) {
            if !matches!(leaving.state, State::Waits(_)) {
                continue;
            }
            words += leaving.event.words.len();
            if used + leaving.bits > room || words > limits::PACKET_WORDS {
                break;
            }
            used += leaving.bits;
            riders.push(number);
        }
        let Some(first) = riders.first() else { return riders };
        w.golomb(riders.len() as u64 - 1, 1);
        w.put(first & 0xffff, 16);
        let mut before = None;
        for number in &riders {
            if let Some(before) = before {
                w.golomb(number - before - 1, 0);
            }
            before = Some(*number);
            self.queue[(number - self.first) as usize].event.write(schema, from_host, tick, w);
        }
        riders
    }

    /// A packet went out with them.
    pub(crate) fn sent(&mut self, packet: u64, sent_at: Duration, riders: Riders) {
        if riders.is_empty() {
            return;
        }
        for number in &riders {
            self.queue[(number - self.first) as usize].state = State::Flies;
        }
        self.waiting -= riders.len();
        self.flights.push_back(Flight { packet, sent_at, riders });
    }

    /// Packets have arrived; others count as lost by that.
    pub(crate) fn acknowledge(&mut self, ranges: &AckRanges, now: Duration) {
        let newest = ranges.newest().unwrap_or(0);
        self.settle(now, |flight| {
            if ranges.contains(flight.packet) { Some(true) } else { (flight.packet + REORDER_PACKETS <= newest).then_some(false) }
        });
    }

    /// What was sent before `before` and is still open counts as lost.
    pub(crate) fn time_out(&mut self, before: Duration, now: Duration) {
        self.settle(now, |flight| (flight.sent_at < before).then_some(false));
    }

    /// Decides on flights: `Some(true)` has arrived, `Some(false)` is lost.
    fn settle(&mut self, now: Duration, decide: impl Fn(&Flight) -> Option<bool>) {
        let Self { flights, queue, first, waiting, .. } = self;
        flights.retain(|flight| {
            let Some(arrived) = decide(flight) else { return true };
            for number in &flight.riders {
                let leaving = &mut queue[(number - *first) as usize];
                leaving.state = if arrived { State::There } else { State::Waits(now) };
                leaving.lost += u32::from(!arrived);
                *waiting += usize::from(!arrived);
            }
            false
        });
        while self.queue.front().is_some_and(|leaving| leaving.state == State::There) {
            let Some(leaving) = self.queue.pop_front() else { break };
            let load = &mut self.loads[usize::from(leaving.handed_on)];
            load.events -= 1;
            load.bytes -= leaving.bits / 8;
            self.first += 1;
            self.first_since = now;
        }
    }
}

/// The events that come from one peer.
#[derive(Debug)]
pub(crate) struct EventsIn {
    from_host: bool,
    /// The number of the next one to be handed on.
    next: u64,
    /// Those that came before others that are missing.
    early: BTreeMap<u64, Event>,
    ready: VecDeque<Event>,
    /// Host: of those for all.
    shared: Pace,
}

impl EventsIn {
    pub(crate) fn new(first: u64, from_host: bool) -> Self {
        Self { from_host, next: first, early: BTreeMap::new(), ready: VecDeque::new(), shared: Pace::default() }
    }

    /// Reads what rides on a packet of that session tick, with their numbers.
    pub(crate) fn read(
        &self,
        schema: &Inner,
        tick: Tick,
        r: &mut BitReader<'_>,
        into: &mut Vec<(u64, Event)>,
    ) -> Result<(), PeerError> {
        let malformed = |cause| PeerError::Malformed { what: "event", cause };
        let count = r.golomb(1).map_err(malformed)?;
        let (mut number, mut words) = (0, 0);
        for i in 0..=count {
            number = match i {
                0 => widen(self.next, r.get(16).map_err(malformed)? as u16),
                _ => r.golomb(0).ok().and_then(|gap| gap.checked_add(number + 1)).ok_or(malformed(BitError::OutOfRange))?,
            };
            // the sender does not go on while its oldest one is missing here
            if number >= self.next + limits::EVENTS_IN_FLIGHT as u64 {
                return Err(PeerError::OverLimit { what: "the number of an event" });
            }
            let event = Event::read(schema, self.from_host, tick, r).map_err(malformed)?;
            words += event.words.len();
            if words > limits::PACKET_WORDS {
                return Err(PeerError::OverLimit { what: "what one packet may hold" });
            }
            into.push((number, event));
        }
        Ok(())
    }

    /// Takes what was read of a valid packet.
    pub(crate) fn take(&mut self, events: &mut Vec<(u64, Event)>) {
        for (number, event) in events.drain(..) {
            if number >= self.next {
                self.early.entry(number).or_insert(event);
            }
        }
        while let Some(event) = self.early.remove(&self.next) {
            self.next += 1;
            self.ready.push_back(event);
        }
    }

    /// How many wait for others.
    #[cfg(test)]
    pub(super) fn early(&self) -> usize {
        self.early.len()
    }

    /// The next one in order.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }
    /// Host: is an event for all, which comes now, one of no more than a guest may send? With room for what two clocks, and a link that
    /// was held up, make of it.
    pub(super) fn is_within_pace(&mut self, now: Duration) -> bool {
        self.shared.take(now, 2 * limits::SHARED_EVENTS_RATE, TAKEN_AT_ONCE)
    }
}
