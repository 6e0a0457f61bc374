//! What the game thread and the I/O thread have in common, per link. Every queue here has an owner at each end and a bound.

use crate::codes::Farewell;
use crate::config::{DATAGRAMS_IN, INBOX_BYTES, MESSAGE_COST, TICK};
use crate::seats::Seat;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, unbounded};
use quinn::Connection;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tidelock_netcore::error::LinkError;
use tidelock_netcore::limits;
use tidelock_netcore::packet::PacketKind;
use tidelock_netcore::transport::{Delivery, Lane, LinkId};
use tidelock_threads::{Answer, Class, ring};
use tokio::sync::{Notify, Semaphore, watch};

/// One link. Its seat (for a listener) is given back when both threads have let go of it.
pub(crate) struct Link {
    pub(crate) id: LinkId,
    /// Set by the I/O thread when the handshake is over.
    pub(crate) opened: OnceLock<Opened>,
    /// Set by the I/O thread, once everything that came in is in the queues below.
    pub(crate) end: OnceLock<LinkError>,
    /// The other side's goodbye, set by the I/O thread; the link ends when all lanes are read.
    pub(crate) goodbye: OnceLock<LinkError>,
    /// Set by the game thread, or by the I/O thread when all is ending.
    pub(crate) farewell: watch::Sender<Option<Farewell>>,
    pub(crate) out: [LaneOut; Lane::COUNT as usize],
    pub(crate) messages: Inbox,
    _seat: Option<Seat>,
}

/// What is known from the end of the handshake on.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// Free bytes of the datagram buffer when it is empty.
    pub(crate) room: usize,
    pub(crate) address: String,
}

impl Link {
    pub(crate) fn new(id: LinkId, seat: Option<Seat>) -> Self {
        Self {
            id,
            opened: OnceLock::new(),
            end: OnceLock::new(),
            goodbye: OnceLock::new(),
            farewell: watch::Sender::new(None),
            out: std::array::from_fn(|_| LaneOut::new()),
            messages: Inbox::new(),
            _seat: seat,
        }
    }

    /// Asks the I/O thread to end the link; the first farewell holds.
    pub(crate) fn say_farewell(&self, farewell: Farewell) {
        self.farewell.send_if_modified(|said| {
            let first = said.is_none();
            said.get_or_insert(farewell);
            first
        });
    }

    /// Waits until the link is to be ended.
    pub(crate) async fn farewell(&self) -> Farewell {
        let mut watch = self.farewell.subscribe();
        let said = watch.wait_for(Option::is_some).await.expect("the sender is in self");
        said.clone().expect("waited for")
    }
}

/// Messages of one lane on their way out: pushed by the game thread, popped by the lane's writing task. The channel has no bound
/// of its own, the count of bytes has.
pub(crate) struct LaneOut {
    queue: (Sender<Bytes>, Receiver<Bytes>),
    bytes: AtomicUsize,
    pub(crate) pushed: Notify,
}

impl LaneOut {
    fn new() -> Self {
        Self { queue: unbounded(), bytes: AtomicUsize::new(0), pushed: Notify::new() }
    }

    /// Takes a message with its length in front, if there is room. `message` is built only then.
    pub(crate) fn push(&self, length: usize, message: impl FnOnce() -> Bytes) -> Delivery {
        // Only this thread adds, so that the room cannot shrink between the look and the push.
        if self.bytes.load(Ordering::Acquire) + length + MESSAGE_COST > limits::LANE_QUEUE_BYTES {
            return Delivery::Full;
        }
        self.bytes.fetch_add(length + MESSAGE_COST, Ordering::AcqRel);
        let message = message();
        debug_assert_eq!(message.len(), length);
        self.queue.0.send(message).expect("the receiver is in self");
        self.pushed.notify_one();
        Delivery::Taken
    }

    /// The next message. It counts as queued until [`written`](Self::written).
    pub(crate) fn pop(&self) -> Option<Bytes> {
        self.queue.1.try_recv().ok()
    }

    pub(crate) fn written(&self, length: usize) {
        self.bytes.fetch_sub(length + MESSAGE_COST, Ordering::AcqRel);
    }
}

/// A message and the lane it came on.
type Message = (Lane, Vec<u8>);

/// Messages that came in: pushed by the lanes' reading tasks, which wait for room first, popped by the game thread. The channel
/// has no bound of its own, the room has.
pub(crate) struct Inbox {
    queue: (Sender<Message>, Receiver<Message>),
    room: Semaphore,
}

impl Inbox {
    fn new() -> Self {
        Self { queue: unbounded(), room: Semaphore::new(INBOX_BYTES) }
    }

    fn cost(length: usize) -> u32 {
        u32::try_from(length + MESSAGE_COST).expect("lengths are at most MESSAGE_BYTES")
    }

    /// Waits for room for a message of `length` bytes and takes it.
    pub(crate) async fn reserve(&self, length: usize) {
        self.room.acquire_many(Self::cost(length)).await.expect("never closed").forget();
    }

    /// Room was reserved before.
    pub(crate) fn push(&self, lane: Lane, message: Vec<u8>) {
        self.queue.0.send((lane, message)).expect("the receiver is in self");
    }

    pub(crate) fn pop(&self) -> Option<Message> {
        let (lane, message) = self.queue.1.try_recv().ok()?;
        self.room.add_permits(Self::cost(message.len()) as usize);
        Some((lane, message))
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.1.len()
    }
}

/// Datagrams that came in, on the I/O thread's side. When the game thread does not fetch them, the oldest state goes, since newer
/// state replaces it; inputs and what was sealed stay.
pub(crate) struct Arriving {
    ring: tidelock_threads::Sender,
    start: Instant,
}

/// The game thread's side of them.
pub(crate) type Arrived = tidelock_threads::Receiver;

impl Arriving {
    pub(crate) fn new() -> (Self, Arrived) {
        let (ring, out) = ring(DATAGRAMS_IN);
        (Self { ring, start: Instant::now() }, out)
    }

    /// A transport does not read the ticks of packets; what comes within [`TICK`] passes for one.
    pub(crate) fn push(&mut self, id: LinkId, datagram: &[u8]) {
        let tick = (self.start.elapsed().as_millis() / TICK.as_millis()) as u64;
        self.push_at(tick, id, datagram);
    }

    fn push_at(&mut self, tick: u64, id: LinkId, datagram: &[u8]) {
        // one that says nothing is nothing that could be lost
        let replaceable = PacketKind::of(datagram).is_none_or(PacketKind::is_replaceable);
        let class = if replaceable { Class::State } else { Class::Kept };
        let pushed = self.ring.push(tick, class, datagram);
        if let Some(gone) = pushed.discarded {
            let late = (tick - gone.first) * TICK.as_millis() as u64;
            tracing::trace!(link = id.0, packets = gone.packets, late_ms = late, "the game is late: old state was discarded");
        }
        if pushed.answer == Answer::Full {
            tracing::debug!(link = id.0, ?class, "the game is late: no room for a datagram");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_threads::Popped;

    #[test]
    fn a_lane_is_full_at_its_bytes_and_has_room_again_when_written() {
        let lane = LaneOut::new();
        let message = Bytes::from(vec![0; 1000]);
        let mut taken = 0;
        while lane.push(1000, || message.clone()) == Delivery::Taken {
            taken += 1;
        }
        assert_eq!(taken, limits::LANE_QUEUE_BYTES / (1000 + MESSAGE_COST));
        let popped = lane.pop().unwrap();
        assert_eq!(lane.push(1000, || message.clone()), Delivery::Full, "it is not written yet");
        lane.written(popped.len());
        assert_eq!(lane.push(1000, || message.clone()), Delivery::Taken);
    }

    #[test]
    fn empty_messages_are_bounded_too() {
        let lane = LaneOut::new();
        let taken = (0..limits::LANE_QUEUE_BYTES).take_while(|_| lane.push(0, Bytes::new) == Delivery::Taken).count();
        assert_eq!(taken, limits::LANE_QUEUE_BYTES / MESSAGE_COST);
    }

    /// Datagrams of state, and one of input after each.
    #[test]
    fn the_oldest_state_goes_and_is_counted_and_inputs_stay() {
        let (mut datagrams, mut out) = Arriving::new();
        let count = DATAGRAMS_IN.state_packets as u64 + 10;
        for i in 0..count {
            datagrams.push_at(i / 8, LinkId(0), &[&[0][..], &i.to_le_bytes()].concat());
            datagrams.push_at(i / 8, LinkId(0), &[&[0b011][..], &i.to_le_bytes()].concat());
        }
        let (mut state, mut inputs) = (Vec::new(), Vec::new());
        while let Popped::Packet { bytes, .. } = out.pop() {
            let list = if bytes[0] == 0 { &mut state } else { &mut inputs };
            list.push(u64::from_le_bytes(*bytes.last_chunk().unwrap()));
        }
        assert!(inputs.into_iter().eq(0..count));
        assert!(state.into_iter().eq(16..count), "ten were too many: two ticks of eight");
        assert_eq!(out.lost(), 16);
    }

    #[test]
    fn a_datagram_that_is_none_is_handed_on_too() {
        let (mut datagrams, mut out) = Arriving::new();
        datagrams.push(LinkId(0), b"");
        datagrams.push(LinkId(0), &[0xff]);
        assert!(matches!(out.pop(), Popped::Packet { class: Class::State, bytes: [], .. }));
        assert!(matches!(out.pop(), Popped::Packet { class: Class::Kept, bytes: [0xff], .. }));
    }

    #[test]
    fn the_first_farewell_holds() {
        let link = Link::new(LinkId(0), None);
        link.say_farewell(Farewell::game(1, "first"));
        link.say_farewell(Farewell::game(2, "second"));
        assert_eq!(*link.farewell.borrow(), Some(Farewell::game(1, "first")));
    }
}
