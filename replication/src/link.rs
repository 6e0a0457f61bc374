//! One link to another peer: a stream in each direction, their acknowledgements, and the messages that wait to go.

use crate::incoming::Incoming;
use crate::input::InputBuffer;
use crate::peer_id::PeerId;
use crate::publisher::Publisher;
use crate::schema::Inner;
use crate::subscriber::Subscriber;
use crate::viewer::Viewer;
use crate::why::Scarce;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::clock::RttEstimator;
use tidelock_netcore::control::{self, Control};
use tidelock_netcore::error::TransportError;
use tidelock_netcore::limits;
use tidelock_netcore::packet::{Echo, Stamp, WireTime};
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::{Delivery, Lane, LinkId, Transport};

/// How often clocks ride along.
const STAMP_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) peer: PeerId,
    pub(crate) subscriber: Subscriber,
    /// The guest as one who sees, if it does not see everything.
    pub(crate) viewer: Option<Viewer>,
    pub(crate) incoming: Incoming,
    /// A guest's inputs, at the host of a schema that has some.
    pub(crate) inputs: Option<Box<InputBuffer>>,
    /// When the guest was told last how they come.
    pub(crate) fed_back: Option<Duration>,
    pub(crate) rtt: RttEstimator,
    /// The other side's last stamp, and when it came.
    heard_stamp: Option<(WireTime, Duration)>,
    stamped: Option<Duration>,
    pub(crate) last_heard: Duration,
    pub(crate) last_sent: Option<Duration>,
    /// When state was last sent.
    pub(crate) last_state: Option<Duration>,
    /// Bytes of state that may still go out until the budget is renewed.
    pub(crate) budget: usize,
    renewed: Option<Duration>,
    /// Marks that still go out at once after state, so that the other side knows what has come to rest.
    pub(crate) unsettled: u8,
    /// What the last send had too little of.
    pub(crate) scarce: Scarce,
    /// Something came that wants an acknowledgement.
    pub(crate) owes_ack: bool,
    /// By lane, so that none can take another's room or hold it up.
    outbox: [Outbox; Lane::COUNT as usize],
    overfull: bool,
    /// The round of the digest that this peer was sent and has not answered (host only).
    pub(crate) compared: Option<u32>,
    /// When refusals happened, for those within the window.
    pub(crate) refusals: VecDeque<Duration>,
    pub(crate) counters: LinkCounters,
}

/// Messages of one lane that the transport has not taken yet.
#[derive(Default)]
struct Outbox {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// What happened on one link, as values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Bytes of datagrams received.
    pub bytes_in: u64,
    /// Bytes of datagrams handed to the transport.
    pub bytes_out: u64,
    /// Bytes of messages handed to the transport.
    pub message_bytes_out: u64,
    /// State packets that arrived a second time, or too late to be of use.
    pub useless: u64,
    /// State packets taken.
    pub taken: u64,
    /// Datagrams that were no valid packet.
    pub malformed: u64,
    /// Writes refused, races included.
    pub refused: u64,
    /// Messages dropped while they waited for an entity, or because they name none where they must.
    pub dropped_messages: u64,
    /// Messages not sent because they name an entity that the peer must not know of.
    pub unseen_messages: u64,
    /// Tombstones of entities that were not here.
    pub unknown_despawns: u64,
    /// The transport had no room for a state packet.
    pub full: u64,
}

impl Link {
    #[expect(clippy::too_many_arguments, reason = "each is another part's, and there are two callers")]
    pub(crate) fn new(
        id: LinkId,
        peer: PeerId,
        schema: &Inner,
        publisher: &Publisher,
        first: u64,
        tick: Tick,
        rows: usize,
        now: Duration,
        partial: bool,
    ) -> Self {
        Self {
            id,
            peer,
            subscriber: Subscriber::new(publisher, first, partial),
            viewer: partial.then(|| Viewer::new(peer)),
            incoming: Incoming::new(schema, first, tick, rows),
            inputs: None,
            fed_back: None,
            rtt: RttEstimator::default(),
            heard_stamp: None,
            stamped: None,
            last_heard: now,
            last_sent: None,
            last_state: None,
            budget: 0,
            renewed: None,
            unsettled: 0,
            scarce: Scarce::Nothing,
            owes_ack: false,
            outbox: Default::default(),
            overfull: false,
            compared: None,
            refusals: VecDeque::new(),
            counters: LinkCounters::default(),
        }
    }

    /// Takes the other side's stamp; gives our echoed time and how long it was held, if it echoes one.
    pub(crate) fn hear_stamp(&mut self, stamp: Stamp, clock: Duration, now: Duration) -> Option<(Duration, Duration)> {
        self.heard_stamp = Some((stamp.sent, now));
        stamp.echo.map(|echo| (echo.time.widen(clock), echo.held))
    }

    /// The stamp for a packet that goes out now, if one is due. `clock` is this side's clock.
    pub(crate) fn next_stamp(&mut self, clock: Duration, now: Duration) -> Option<Stamp> {
        if self.stamped.is_some_and(|at| now < at + STAMP_INTERVAL) {
            return None;
        }
        self.stamped = Some(now);
        // an echo held for longer than the clock's range would be misread
        let fresh = self.heard_stamp.filter(|(_, at)| now - *at < Duration::from_secs(8));
        let echo = fresh.map(|(time, at)| Echo { time, held: now - at });
        Some(Stamp { sent: WireTime::of(clock), echo })
    }

    /// Queues a reliable message; `false` if its lane has no room for it.
    pub(crate) fn post(&mut self, lane: Lane, bytes: &[u8]) -> bool {
        let outbox = &mut self.outbox[usize::from(lane.0)];
        if outbox.bytes + bytes.len() > limits::LANE_QUEUE_BYTES {
            return false;
        }
        outbox.bytes += bytes.len();
        outbox.messages.push_back(bytes.to_vec());
        true
    }

    /// Queues a message of the control lane. A peer without room for one is too slow, and is removed at the next send.
    pub(crate) fn post_control(&mut self, message: &Control) -> bool {
        let mut bytes = Vec::new();
        control::encode(message, &mut bytes);
        let fits = self.post(Lane::CONTROL, &bytes);
        self.overfull |= !fits;
        fits
    }

    /// Was nothing heard for longer than `limit`?
    pub(crate) fn is_silent(&self, now: Duration, limit: Duration) -> bool {
        now > self.last_heard.saturating_add(limit)
    }

    /// Was there no room for something that must arrive?
    pub(crate) fn is_overfull(&self) -> bool {
        self.overfull
    }

    /// Sends a datagram that is of no use later: if it finds no room, it is as good as lost. Says whether it was taken.
    pub(crate) fn send_small(
        &mut self,
        now: Duration,
        packet: &BitWriter,
        bytes: &mut Vec<u8>,
        transport: &mut dyn Transport,
    ) -> bool {
        bytes.clear();
        packet.bytes_into(bytes);
        if transport.send_datagram(now, self.id, bytes) != Ok(Delivery::Taken) {
            return false;
        }
        self.counters.bytes_out += bytes.len() as u64;
        self.budget = self.budget.saturating_sub(bytes.len());
        true
    }

    /// Hands queued messages to the transport, lane by lane, each until the transport has no more room for it.
    pub(crate) fn flush_messages(&mut self, transport: &mut dyn Transport, now: Duration) -> Result<(), TransportError> {
        for (lane, outbox) in self.outbox.iter_mut().enumerate() {
            while let Some(bytes) = outbox.messages.front() {
                match transport.send_message(now, self.id, Lane(lane as u8), bytes)? {
                    Delivery::Full => break,
                    Delivery::Taken => {
                        self.counters.message_bytes_out += bytes.len() as u64;
                        outbox.bytes -= bytes.len();
                        outbox.messages.pop_front();
                    }
                }
            }
        }
        Ok(())
    }

    /// Renews the budget: with every scheduled send, and when the time of one has passed.
    pub(crate) fn refill(&mut self, budget: usize, scheduled: bool, interval: Duration, now: Duration) {
        if scheduled || self.renewed.is_none_or(|at| now >= at + interval) {
            self.budget = budget;
            self.renewed = Some(now);
        }
    }

    /// How long a packet may stay without an answer until it counts as lost.
    pub(crate) fn loss_time(&self, send_interval: Duration) -> Duration {
        self.rtt.timeout(Duration::from_millis(50)) + send_interval * 2 + Duration::from_millis(25)
    }
}
