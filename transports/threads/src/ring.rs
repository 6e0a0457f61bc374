//! A bounded ring of datagrams from one thread to another, in buffers that are used again.
//!
//! Newer state replaces older, so a reader that is late does not want all of it: when there is no room, what waits of the **oldest
//! tick** is discarded as a whole, and the pushing side is told how much of which ticks. Inputs, confirmations and the like are never
//! discarded: they wait beside the state under a bound of their own, at which the pushing side is told that there is no room.
//! Acknowledgements travel in the headers of state packets, as ranges that say again whatever the ones before said; since the newest
//! tick is never discarded, neither are they.
//!
//! One lock guards it all, and nothing but a few moves happens under it: bytes are copied before, into a buffer that the sender
//! holds, and read after, from one that the receiver holds. A push or a pop exchanges its buffer for one of the ring's, so that no
//! more are ever made than were in use at the same time.

use crate::sync::{Arc, Mutex};
use std::collections::VecDeque;

/// What becomes of a packet when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// State of a tick, which state of later ticks replaces. May be discarded.
    State,
    /// Inputs, confirmations, frames that were sealed: whatever must not be lost on this way. Taken, or not taken.
    Kept,
}

/// How much may wait in a ring. Bytes of a packet are its own and [`Bounds::PACKET_COST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of state.
    pub state_bytes: usize,
    /// Packets of state.
    pub state_packets: usize,
    /// State is discarded when it is so many ticks older than the newest packet; at least 1.
    pub state_ticks: u64,
    /// Bytes of what is kept.
    pub kept_bytes: usize,
    /// Packets of what is kept.
    pub kept_packets: usize,
}

impl Bounds {
    /// What a packet costs beside its own bytes, so that many empty ones are bounded too.
    pub const PACKET_COST: usize = 64;
}

impl Default for Bounds {
    /// 256 KiB and 256 packets of state within 64 ticks; 64 KiB and 512 packets of what is kept.
    fn default() -> Self {
        Self { state_bytes: 256 << 10, state_packets: 256, state_ticks: 64, kept_bytes: 64 << 10, kept_packets: 512 }
    }
}

/// The answer to a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It waits for the receiver.
    Taken,
    /// There is no room for it, and nothing that may be discarded for it. It was not taken.
    Full,
    /// One of both sides has closed the ring. It was not taken.
    Closed,
}

/// State that was discarded to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// How many packets: all that still waited of those ticks.
    pub packets: usize,
    /// The oldest tick among them.
    pub first: u64,
    /// The newest tick among them.
    pub last: u64,
}

/// What came of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it may not have been taken, and others may have been discarded for it"]
pub struct Pushed {
    /// Was it taken?
    pub answer: Answer,
    /// What is gone, if anything. Never of the tick of the packet that was pushed.
    pub discarded: Option<Discarded>,
}

/// What a pop gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped<'a> {
    /// The oldest packet, in the order in which they were pushed.
    Packet {
        /// The tick it was pushed under.
        tick: u64,
        /// How it was pushed.
        class: Class,
        /// It. Until the next pop.
        bytes: &'a [u8],
    },
    /// Nothing waits now.
    Empty,
    /// Nothing waits, and nothing will come: the ring is closed.
    Ended,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Packets of both classes.
    pub packets: usize,
    /// Their bytes, [`Bounds::PACKET_COST`] each included.
    pub bytes: usize,
}

/// Makes a ring: the end of the thread that pushes, and the end of the one that pops.
#[must_use]
pub fn ring(bounds: Bounds) -> (Sender, Receiver) {
    let ring = Arc::new(Mutex::new(Ring { bounds, ..Ring::default() }));
    (Sender { ring: ring.clone(), buffer: Vec::new() }, Receiver { ring, buffer: Vec::new() })
}

/// The pushing end. Dropping it closes the ring; what waits can still be popped.
#[derive(Debug)]
pub struct Sender {
    ring: Arc<Mutex<Ring>>,
    /// For the next packet.
    buffer: Vec<u8>,
}

impl Sender {
    /// Pushes a packet that belongs to `tick`. Ticks do not go back: an older one counts as the newest so far.
    pub fn push(&mut self, tick: u64, class: Class, bytes: &[u8]) -> Pushed {
        self.buffer.clear();
        self.buffer.extend_from_slice(bytes);
        let mut ring = self.ring.lock();
        if ring.closed {
            return Pushed { answer: Answer::Closed, discarded: None };
        }
        let tick = tick.max(ring.newest);
        ring.newest = tick;
        let cost = bytes.len() + Bounds::PACKET_COST;
        let discarded = ring.make_room(class, cost);
        let fits = ring.fits(class, cost);
        if fits {
            let next = ring.spare.pop().unwrap_or_default();
            let bytes = std::mem::replace(&mut self.buffer, next);
            let number = ring.pushed;
            ring.pushed += 1;
            let line = ring.line(class);
            line.bytes += cost;
            line.packets.push_back(Packet { number, tick, bytes });
        } else {
            ring.lost += 1;
        }
        Pushed { answer: if fits { Answer::Taken } else { Answer::Full }, discarded }
    }

    /// Packets that were discarded or not taken for want of room, since the beginning.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.ring.lock().lost
    }

    /// Nothing more comes. What waits can still be popped.
    pub fn close(&self) {
        self.ring.lock().closed = true;
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.close();
    }
}

/// The popping end. Dropping it closes the ring, and what waits is gone.
#[derive(Debug)]
pub struct Receiver {
    ring: Arc<Mutex<Ring>>,
    /// The packet that was popped last.
    buffer: Vec<u8>,
}

impl Receiver {
    /// The oldest packet.
    pub fn pop(&mut self) -> Popped<'_> {
        let mut ring = self.ring.lock();
        let (tick, class) = match ring.take() {
            Some((class, packet)) => {
                let old = std::mem::replace(&mut self.buffer, packet.bytes);
                ring.spare.push(old);
                (packet.tick, class)
            }
            None if ring.closed => return Popped::Ended,
            None => return Popped::Empty,
        };
        drop(ring);
        Popped::Packet { tick, class, bytes: &self.buffer }
    }

    /// How much waits now.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        let ring = self.ring.lock();
        Waiting { packets: ring.state.packets.len() + ring.kept.packets.len(), bytes: ring.state.bytes + ring.kept.bytes }
    }

    /// Packets that were discarded or not taken for want of room, since the beginning.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.ring.lock().lost
    }

    /// Nothing more is taken. What waits can still be popped.
    pub fn close(&self) {
        self.ring.lock().closed = true;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.close();
    }
}

#[derive(Debug)]
struct Packet {
    /// Counts all packets, in the order of pushing.
    number: u64,
    tick: u64,
    bytes: Vec<u8>,
}

/// The packets of one class, oldest first.
#[derive(Debug, Default)]
struct Line {
    packets: VecDeque<Packet>,
    /// Costs of all of them.
    bytes: usize,
}

impl Line {
    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.bytes.len() + Bounds::PACKET_COST;
        Some(packet)
    }

    fn first(&self) -> Option<&Packet> {
        self.packets.front()
    }
}

/// What is under the lock.
#[derive(Debug, Default)]
struct Ring {
    bounds: Bounds,
    state: Line,
    kept: Line,
    /// Buffers of packets that were popped or discarded.
    spare: Vec<Vec<u8>>,
    /// Packets that were taken so far.
    pushed: u64,
    /// The newest tick so far.
    newest: u64,
    lost: u64,
    closed: bool,
}

impl Ring {
    fn line(&mut self, class: Class) -> &mut Line {
        match class {
            Class::State => &mut self.state,
            Class::Kept => &mut self.kept,
        }
    }

    fn fits(&self, class: Class, cost: usize) -> bool {
        let (line, bytes, packets) = match class {
            Class::State => (&self.state, self.bounds.state_bytes, self.bounds.state_packets),
            Class::Kept => (&self.kept, self.bounds.kept_bytes, self.bounds.kept_packets),
        };
        line.packets.len() < packets && line.bytes + cost <= bytes
    }

    /// Discards state that is too old, and then whole ticks, the oldest first and never the newest, until a packet of state fits.
    fn make_room(&mut self, class: Class, cost: usize) -> Option<Discarded> {
        let mut discarded: Option<Discarded> = None;
        while let Some(tick) = self.state.first().map(|packet| packet.tick) {
            let old = self.newest - tick >= self.bounds.state_ticks.max(1);
            let in_the_way = class == Class::State
                && cost <= self.bounds.state_bytes // else nothing would help
                && tick < self.newest
                && !self.fits(class, cost);
            if !old && !in_the_way {
                break;
            }
            let gone = discarded.get_or_insert(Discarded { packets: 0, first: tick, last: tick });
            gone.last = tick;
            while self.state.first().is_some_and(|packet| packet.tick == tick)
                && let Some(packet) = self.state.pop()
            {
                gone.packets += 1;
                self.lost += 1;
                self.spare.push(packet.bytes);
            }
        }
        discarded
    }

    /// The oldest packet of both lines.
    fn take(&mut self) -> Option<(Class, Packet)> {
        let class = match (self.state.first(), self.kept.first()) {
            (Some(state), Some(kept)) if kept.number < state.number => Class::Kept,
            (None, _) => Class::Kept,
            _ => Class::State,
        };
        Some((class, self.line(class).pop()?))
    }
}

#[cfg(test)]
impl Ring {
    /// Where each buffer of the ring is; `None` for one that was never written to. Those of both ends are beside them.
    fn places(&self) -> Vec<Option<*const u8>> {
        let waiting = self.state.packets.iter().chain(&self.kept.packets).map(|packet| &packet.bytes);
        self.spare.iter().chain(waiting).map(|buffer| (buffer.capacity() > 0).then_some(buffer.as_ptr())).collect()
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
