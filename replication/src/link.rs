//! One link to another peer: a stream in each direction, their acknowledgements, and the messages that wait to go.

use crate::blob::Blobs;
use crate::definitions::Told;
use crate::forks::LinkForks;
use crate::frames::FrameFeed;
use crate::growing::Sent;
use crate::incoming::Incoming;
use crate::input::InputBuffer;
use crate::messages::{EventsOut, LargeOut, Sequences};
use crate::peer_id::PeerId;
use crate::publisher::Publisher;
use crate::requests::Throttle;
use crate::schema::Inner;
use crate::subscriber::Subscriber;
use crate::viewer::Viewer;
use crate::why::Scarce;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::allowance::{Allowance, LARGEST_SAVING};
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::clock::RttEstimator;
use tidelock_netcore::control::{self, Control};
use tidelock_netcore::error::{DisconnectReason, TransportError};
use tidelock_netcore::limits;
use tidelock_netcore::packet::{Echo, Header, Stamp, WireTime};
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::{Delivery, Facts, Lane, LinkId, Transport};

/// How often clocks ride along.
const STAMP_INTERVAL: Duration = Duration::from_millis(200);
/// What a mark mostly takes, at most.
const MARK_BYTES: usize = 40;
/// So many marks follow state at once. Without them, what has stopped would be drawn as going on until the next ordinary mark, and
/// jump back then; two, so that one may be lost.
const SETTLING_MARKS: u8 = 2;
/// How long an acknowledgement waits for room: well within what the other side allows beside the round trip before it takes a
/// packet for lost (`Link::loss_time`).
const ACK_WAIT: Duration = Duration::from_millis(40);
/// While state does not all fit, so many packets a second or less, as long as they are not full: each has its overhead.
const PACKETS_PER_SECOND: u64 = 30;

pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) peer: PeerId,
    pub(crate) subscriber: Subscriber,
    /// The guest as one who sees, if it does not see everything.
    pub(crate) viewer: Option<Viewer>,
    pub(crate) incoming: Incoming,
    /// A guest's inputs, at the host of a schema that has some.
    pub(crate) inputs: Option<Box<InputBuffer>>,
    /// What the guest has of the frames, at the host of a schema that has some.
    pub(crate) feed: Option<Box<FrameFeed>>,
    /// Why it has to go again, with the next send.
    pub(crate) unwelcome: Option<DisconnectReason>,
    /// Bytes of the next packet of frames, if it has found no room.
    pub(crate) frame_need: usize,
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
    pub(crate) allowance: Allowance,
    /// Bits per second that were set for this peer.
    pub(crate) bandwidth: u64,
    /// Bytes of the next state packet, overhead included, at least: what is worth its overhead while state does not all fit, or
    /// the value that found no room.
    state_need: usize,
    /// The last send left state behind for want of allowance.
    state_waits: bool,
    /// The transport's overhead per packet, as it said last.
    overhead: usize,
    /// Marks that still go out at once after state, so that the other side knows what has come to rest.
    pub(crate) unsettled: u8,
    /// What the last send had too little of.
    pub(crate) scarce: Scarce,
    /// Since when something waits for an acknowledgement.
    pub(crate) owes_ack: Option<Duration>,
    /// By lane, so that none can take another's room or hold it up.
    outbox: [Outbox; Lane::COUNT as usize],
    overfull: bool,
    pub(crate) blobs: Blobs,
    /// Host: the definitions that the guest was sent.
    pub(crate) told: Told,
    /// Host: what the guest was sent of lists and maps.
    pub(crate) growing: Sent,
    pub(crate) sequences: Sequences,
    pub(crate) events: EventsOut,
    /// Events went before state, and no state since.
    pub(crate) events_led: bool,
    pub(crate) larges: LargeOut,
    /// The round of the digest that this peer was sent and has not answered (host only).
    pub(crate) compared: Option<u32>,
    /// When refusals happened, for those within the window.
    pub(crate) refusals: VecDeque<Duration>,
    /// Requests for ownership that this peer has made, or the guest.
    pub(crate) claims: Throttle,
    /// Host: what is known of the states that the guest computes.
    pub(crate) forks: LinkForks,
    pub(crate) counters: LinkCounters,
}

/// Messages of one lane that the transport has not taken yet.
#[derive(Default)]
struct Outbox {
    messages: VecDeque<Vec<u8>>,
    /// [`limits::MESSAGE_COST`] for each included.
    bytes: usize,
    /// Since when the transport has not taken the first.
    stuck: Option<Duration>,
}

impl Outbox {
    /// Hands over the first message; `false` if the transport has no room for it.
    fn hand_over(
        &mut self,
        transport: &mut dyn Transport,
        now: Duration,
        to: LinkId,
        lane: Lane,
    ) -> Result<bool, TransportError> {
        let Some(bytes) = self.messages.front() else { return Ok(false) };
        match transport.send_message(now, to, lane, bytes)? {
            Delivery::Full => {
                self.stuck.get_or_insert(now);
                Ok(false)
            }
            Delivery::Taken => {
                self.bytes -= bytes.len() + limits::MESSAGE_COST;
                self.messages.pop_front();
                self.stuck = None;
                Ok(true)
            }
        }
    }
}

/// What waits to be handed over to one peer: its reliable messages, see [`Peer::backlog`](crate::Peer::backlog).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How many.
    pub messages: usize,
    /// What they count for: their bytes, and [`limits::MESSAGE_COST`] each.
    pub bytes: usize,
    /// What they may count for. A message beyond is refused with [`UsageError::Backlog`](crate::UsageError::Backlog).
    pub limit: usize,
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
    /// Messages dropped while they waited for an entity, or because they name none where they must; and the peer's shared events that
    /// were dropped for another guest, which takes too few, once for each such guest.
    pub dropped_messages: u64,
    /// Messages not sent because they name an entity that the peer must not know of.
    pub unseen_messages: u64,
    /// Sequenced messages that were dropped because a newer one had come, or came a second time.
    pub overtaken_messages: u64,
    /// Tombstones of entities that were not here.
    pub unknown_despawns: u64,
    /// The transport had no room for a state packet.
    pub full: u64,
    /// Unreliable messages that were dropped here because there was no room for them.
    pub unsent_messages: u64,
    /// Requests for ownership that were refused (host only).
    pub denied: u64,
    /// Datagrams of inputs, or of word on them, that found no room: their successors carry what they would have.
    pub unsent_inputs: u64,
    /// Lists and maps of which all was asked for again, because what came of them did not go with what was here: the guest counts what
    /// it asked, the host what it was asked. None, as long as every build makes the same of the same bytes.
    pub lists_asked: u64,
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
        bandwidth: u64,
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
            feed: None,
            unwelcome: None,
            frame_need: 0,
            fed_back: None,
            rtt: RttEstimator::default(),
            heard_stamp: None,
            stamped: None,
            last_heard: now,
            last_sent: None,
            last_state: None,
            allowance: Allowance::new(bandwidth / 8),
            bandwidth,
            state_need: 0,
            state_waits: false,
            overhead: 0,
            unsettled: 0,
            scarce: Scarce::Nothing,
            owes_ack: None,
            outbox: Default::default(),
            overfull: false,
            blobs: Blobs::default(),
            told: Told::default(),
            growing: Sent::default(),
            sequences: Sequences::new(schema, first),
            events: EventsOut::new(first),
            events_led: false,
            larges: LargeOut::default(),
            compared: None,
            refusals: VecDeque::new(),
            claims: Throttle::default(),
            forks: LinkForks::default(),
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
        let cost = bytes.len() + limits::MESSAGE_COST;
        if outbox.bytes + cost > limits::LANE_QUEUE_BYTES {
            return false;
        }
        outbox.bytes += cost;
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

    /// Queues the first frame. A peer without room for it is too slow, and is removed at the next send.
    pub(crate) fn post_first_frame(&mut self, bytes: &[u8]) {
        self.overfull |= !self.post(Lane::CONTROL, bytes);
    }

    /// A peer that does not take what it must get is too slow, and is removed at the next send.
    pub(crate) fn give_up(&mut self) {
        self.overfull = true;
    }

    /// Was nothing heard for longer than `limit`?
    pub(crate) fn is_silent(&self, now: Duration, limit: Duration) -> bool {
        now > self.last_heard.saturating_add(limit)
    }

    /// Was there no room for something that must arrive, has the transport not taken a message for too long, or does the peer not
    /// acknowledge an event?
    pub(crate) fn is_too_slow(&self, now: Duration) -> bool {
        let stuck = |outbox: &Outbox| outbox.stuck.is_some_and(|since| now > since + limits::LANE_QUEUE_TIME);
        self.overfull || self.events.is_stuck() || self.outbox.iter().any(stuck)
    }

    /// Bytes that a datagram of inputs may have now, without the transport's overhead: they go before other traffic, but while
    /// state waits for room they leave it half of it.
    pub(crate) fn input_limit(&mut self, facts: &Facts, now: Duration, interval: Duration) -> usize {
        let room = self.allowance.urgent_room(now, interval, self.state_waits).saturating_sub(facts.datagram_overhead);
        room.min(facts.datagram_limit).min(limits::DATAGRAM_MAX_BYTES)
    }

    /// Sends a datagram of inputs, or of word on them; says whether it was taken. What finds no room is as good as lost.
    pub(crate) fn send_input(
        &mut self,
        now: Duration,
        packet: &BitWriter,
        limit: usize,
        bytes: &mut Vec<u8>,
        transport: &mut dyn Transport,
    ) -> bool {
        bytes.clear();
        packet.bytes_into(bytes);
        if bytes.len() > limit || transport.send_datagram(now, self.id, bytes) != Ok(Delivery::Taken) {
            self.counters.unsent_inputs += 1;
            return false;
        }
        self.counters.bytes_out += bytes.len() as u64;
        self.allowance.take_urgent(now, bytes.len() + self.overhead);
        true
    }

    /// The game's ordered messages that wait.
    pub(crate) fn backlog(&self) -> Backlog {
        let outbox = &self.outbox[usize::from(Lane::RELIABLE.0)];
        Backlog { messages: outbox.messages.len(), bytes: outbox.bytes, limit: limits::LANE_QUEUE_BYTES }
    }

    /// Hands queued messages to the transport, lane by lane in order, each until the transport has no more room for it. Control
    /// messages go in any case; the game's have their share of the allowance.
    pub(crate) fn flush_messages(
        &mut self,
        transport: &mut dyn Transport,
        now: Duration,
        interval: Duration,
    ) -> Result<(), TransportError> {
        for (lane, outbox) in (0..).map(Lane).zip(&mut self.outbox) {
            while let Some(size) = outbox.messages.front().map(Vec::len) {
                let cost = message_cost(size, self.overhead);
                let room = self.allowance.message_room(now, interval, self.state_waits);
                // one that the transport did not take is tried again in any case, and paid for afterwards: nothing is kept for it
                // meanwhile, and what state takes must not make its peer look slow
                let may_go = lane == Lane::CONTROL || outbox.stuck.is_some() || room >= cost.min(LARGEST_SAVING);
                if !may_go || !outbox.hand_over(transport, now, self.id, lane)? {
                    break;
                }
                self.counters.message_bytes_out += size as u64;
                match lane {
                    Lane::CONTROL => self.allowance.debit(now, cost),
                    _ => self.allowance.take_message(now, cost),
                }
            }
        }
        Ok(())
    }

    /// Sends an unreliable message, or drops it if what the reliable ones that wait leave of the allowance is too little. No room
    /// in the transport is as good as lost.
    pub(crate) fn send_loose(&mut self, transport: &mut dyn Transport, now: Duration, interval: Duration, bytes: &[u8]) {
        let cost = bytes.len() + self.overhead;
        let waits = self.message_need();
        let room = self.allowance.message_room(now, interval, self.state_waits).saturating_sub(waits);
        // one that is larger than the bucket is paid for afterwards
        let fits = room >= cost.min(self.allowance.capacity() / 2);
        if fits && transport.send_datagram(now, self.id, bytes) == Ok(Delivery::Taken) {
            self.allowance.take_message(now, cost);
            self.counters.bytes_out += bytes.len() as u64;
        } else {
            self.counters.unsent_messages += 1;
        }
    }

    /// A send begins: the rate is what was set, and no more than the transport believes the path carries.
    pub(crate) fn renew(&mut self, facts: &Facts, now: Duration) {
        self.overhead = facts.datagram_overhead;
        let ceiling = self.bandwidth / 8;
        let rate = facts.rate.map_or(ceiling, |rate| rate.clamp(limits::BANDWIDTH_LEAST / 8, ceiling));
        // an estimate that wavers is not followed at every turn
        let old = self.allowance.rate();
        if rate == ceiling || old > ceiling || rate.abs_diff(old) > old / 8 {
            self.allowance.set_rate(now, rate);
        }
        self.state_waits = false;
        self.allowance.set_aside(2 * (MARK_BYTES + self.overhead));
        let frames = if self.frame_need > 0 { self.frame_need + self.overhead } else { 0 };
        self.allowance.save_up(self.state_need + self.message_need() + frames);
    }

    /// Bytes of the next state packet, without the transport's overhead, at most; `None` if there is too little for one.
    pub(crate) fn state_limit(&mut self, facts: &Facts, now: Duration, interval: Duration) -> Option<usize> {
        let most = facts.datagram_limit.min(limits::DATAGRAM_MAX_BYTES);
        if most < limits::PACKET_LEAST_BYTES {
            return None;
        }
        let need = self.state_need.max(limits::PACKET_LEAST_BYTES + self.overhead).min(most + self.overhead);
        let room = self.allowance.state_room(now, interval, self.message_need() > 0);
        self.state_waits = room < need;
        (room >= need).then(|| (room - self.overhead).min(most))
    }

    /// Bytes that the next packet of state may have, if one may go; notes what there is too little of.
    pub(crate) fn state_room(&mut self, facts: &Facts, now: Duration, interval: Duration) -> Option<usize> {
        // what is left of the allowance may be less than the transport takes
        let limit = self.state_limit(facts, now, interval);
        self.scarce = match limit {
            None => Scarce::Bandwidth,
            Some(limit) if facts.free < limit => Scarce::Transport,
            Some(_) if !self.subscriber.has_room() => Scarce::Answers,
            Some(_) => Scarce::Nothing,
        };
        self.counters.full += u64::from(self.scarce == Scarce::Transport);
        limit.filter(|_| self.scarce == Scarce::Nothing)
    }

    /// State has gone out in a packet of so many bytes, and `all` of it was in there. Else the next packets are worth their
    /// overhead: some milliseconds' worth.
    pub(crate) fn state_sent(&mut self, bytes: usize, all: bool, now: Duration) {
        self.events_led = false;
        self.allowance.take_state(now, bytes + self.overhead);
        let worth = (self.allowance.rate() / PACKETS_PER_SECOND) as usize;
        self.state_need = if all { 0 } else { worth.min(limits::DATAGRAM_MIN_BYTES) };
    }

    /// What comes first does not fit a packet of so many bytes: a larger one is saved up for.
    pub(crate) fn state_did_not_fit(&mut self, limit: usize) {
        self.state_need = (2 * limit + self.overhead).min(LARGEST_SAVING);
        self.state_waits = true;
    }

    /// Bytes for what can always wait: none while state or a message does not find room.
    pub(crate) fn spare_room(&mut self, now: Duration, interval: Duration) -> usize {
        let waits = self.state_waits || self.outbox.iter().any(|outbox| !outbox.messages.is_empty());
        if waits { 0 } else { self.allowance.spare_room(now, interval) }
    }

    /// The transport's overhead per packet, as it said last.
    pub(crate) fn overhead(&self) -> usize {
        self.overhead
    }

    /// A packet without state has gone out, room or not.
    pub(crate) fn mark_sent(&mut self, bytes: usize, now: Duration) {
        self.allowance.debit(now, bytes + self.overhead);
    }

    /// Must an acknowledgement go by itself now? Where there is little room it waits a while for state to ride along with.
    pub(crate) fn is_ack_due(&mut self, now: Duration, interval: Duration) -> bool {
        let Some(since) = self.owes_ack else { return false };
        now >= since + ACK_WAIT || self.allowance.room(now, interval) >= limits::PACKET_LEAST_BYTES + self.overhead
    }

    /// What the next of the game's reliable messages costs, as far as it is saved up for; 0 if none waits, or the transport takes
    /// none.
    fn message_need(&self) -> usize {
        let lanes = [Lane::RELIABLE, Lane::UNORDERED].map(|lane| &self.outbox[usize::from(lane.0)]);
        let next = lanes.into_iter().find_map(|outbox| outbox.messages.front().filter(|_| outbox.stuck.is_none()));
        next.map_or(0, |next| message_cost(next.len(), self.overhead).min(LARGEST_SAVING))
    }

    /// How long a packet may stay without an answer until it counts as lost.
    pub(crate) fn loss_time(&self, send_interval: Duration) -> Duration {
        self.rtt.timeout(Duration::from_millis(50)) + send_interval * 2 + Duration::from_millis(25)
    }

    /// But for what is complete, which depends on what the packet takes along.
    pub(crate) fn header(&self, tick: Tick, known: Tick, send_tick: Tick, base: Option<Tick>, stamp: Option<Stamp>) -> Header {
        Header {
            number: self.subscriber.next_number(),
            send_tick,
            tick,
            base,
            events: false,
            complete: known,
            floor: self.subscriber.floor(),
            ack: None,
            stamp,
        }
    }

    /// No change up to this tick is unsent, if all up to `known` are captured.
    pub(crate) fn complete(&mut self, known: Tick, send_tick: Tick) -> Tick {
        self.subscriber.oldest_pending(send_tick).map_or(known, |since| since.minus(1).min(known))
    }

    pub(crate) fn note_sent(&mut self, bytes: usize, now: Duration, state: bool) {
        self.owes_ack = None;
        self.last_sent = Some(now);
        self.counters.bytes_out += bytes as u64;
        self.subscriber.stats.packets += 1;
        self.subscriber.stats.bytes += bytes as u64;
        if state {
            self.last_state = Some(now);
            self.unsettled = SETTLING_MARKS;
            self.subscriber.stats.state_bytes += bytes as u64;
        }
    }
}

/// What a message takes of the allowance: its bytes, and the overhead of the packets that it fills.
fn message_cost(size: usize, overhead: usize) -> usize {
    size + overhead * size.div_ceil(limits::DATAGRAM_MIN_BYTES).max(1)
}
