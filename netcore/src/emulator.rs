//! A network on virtual time: one direction of one link, seeded, without I/O.
//!
//! What is sent comes out of [`Emulator::poll`] later, or twice, or never, as the [`Conditions`] say. The same seed and the same
//! calls give the same result on every machine: the generator is PCG32 (`rand_pcg::Pcg32`, seeded with `seed_from_u64`), and
//! pinned by a test. Two paths run beside each other: **datagrams**, which suffer everything, and **lanes**, on which each
//! message arrives exactly once and in order, and loss shows as the delay of its retransmission.
//!
//! Buffers are kept and used again, so that nothing is allocated per packet once as much was under way as ever will be.

use crate::limits;
use crate::transport::Lane;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// What a link does to what it carries. The default does nothing: no delay, no loss, no limit. Probabilities below 0 count as 0,
/// above 1 as 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// The time on the way, one way.
    pub latency: Duration,
    /// Up to this much more, evenly spread. Order is kept: who is slow holds up those behind.
    pub jitter: Duration,
    /// The part of the datagrams that is lost.
    pub loss: f64,
    /// Mean length of a run of losses, in datagrams (Gilbert and Elliott's two states, in the bad one of which all is lost). Up to
    /// 1, each datagram is lost on its own. `loss` is kept in the long run as long as `loss <= burst / (burst + 1)`.
    pub burst: f64,
    /// The part of the datagrams that arrives twice.
    pub duplicate: f64,
    /// The part of the datagrams that may be overtaken: they take up to [`latency`](Self::latency), [`jitter`](Self::jitter) and
    /// 20 ms more and hold up nobody.
    pub reorder: f64,
    /// Bytes per second that the link takes, [`overhead`](Self::overhead) included; lanes and datagrams share it.
    pub rate: Option<u64>,
    /// Bytes that may wait for their turn when there is a rate. Datagrams beyond are dropped; lanes always wait.
    pub queue: usize,
    /// Bytes that each packet costs beside its payload.
    pub overhead: usize,
    /// Whether the queue is the sender's own, so that its transport answers `Full` instead of letting datagrams be dropped; if not,
    /// the queue is somewhere in the network and drops without a word. The emulator itself always drops.
    pub backpressure: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: 1.0,
            duplicate: 0.0,
            reorder: 0.0,
            rate: None,
            queue: 64 * 1024,
            overhead: 28,
            backpressure: true,
        }
    }
}

/// Bytes that each message counts for beside its own in [`Emulator::queued`], so that empty ones count as well.
pub const MESSAGE_COST: usize = 32;

/// What a filter decides about a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes its way, under the conditions.
    Pass,
    /// It is lost.
    Drop,
    /// It is kept until [`Emulator::release_held`].
    Hold,
}

/// Looks at a datagram and its ordinal (the first one sent is 0) and decides about it.
pub type Filter = Box<dyn FnMut(u64, &[u8]) -> Fate + Send>;

/// Something that came out. Its payload is in the buffer that was given to [`Emulator::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived<T> {
    /// What was sent with it.
    pub tag: T,
    /// How it was sent.
    pub path: Path,
    /// When it arrived; at most the `now` of the poll.
    pub at: Duration,
}

/// How something travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// As a datagram.
    Datagram,
    /// As a message of a lane.
    Lane(Lane),
    /// As the last of all, after every message of every lane.
    Last,
}

/// What an emulator has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams given to it.
    pub sent: u64,
    /// Datagrams that came out, doubles included.
    pub delivered: u64,
    /// Datagrams lost by chance.
    pub lost: u64,
    /// Datagrams lost to a full queue.
    pub overflowed: u64,
    /// Datagrams lost to a partition.
    pub partitioned: u64,
    /// Datagrams lost on request.
    pub dropped: u64,
    /// Datagrams held on request, whether released since or not.
    pub held: u64,
    /// Datagrams that were doubled.
    pub duplicated: u64,
    /// Datagrams that were delayed so that they may be overtaken.
    pub reordered: u64,
    /// Messages given to lanes.
    pub messages_sent: u64,
    /// Messages that came out of lanes.
    pub messages_delivered: u64,
    /// Times that a message was lost and sent again.
    pub retransmissions: u64,
    /// Bytes given to both paths, overhead included.
    pub bytes_sent: u64,
    /// Bytes that came out, overhead included.
    pub bytes_delivered: u64,
    /// Buffers made; it stops rising once as much was under way as ever will be.
    pub buffers: u64,
}

/// One direction of a link. `T` is whatever the user wants back with each packet.
pub struct Emulator<T> {
    conditions: Conditions,
    rng: Pcg32,
    flying: BinaryHeap<Reverse<Packet<T>>>,
    held: VecDeque<Packet<T>>,
    /// One per lane, and one more for what comes last of all.
    lanes: [LaneQueue<T>; LANES + 1],
    spare: Vec<Vec<u8>>,
    filter: Option<Filter>,
    hold_next: u64,
    drop_next: u64,
    /// The state of the chain of losses.
    losing: bool,
    partitioned: bool,
    stalled_until: Duration,
    /// When the last byte that waits has left.
    busy_until: Duration,
    /// Datagrams that keep the order arrive no earlier.
    last_due: Duration,
    order: u64,
    counters: Counters,
}

struct Packet<T> {
    due: Duration,
    order: u64,
    bytes: Vec<u8>,
    tag: T,
}

struct LaneQueue<T> {
    /// In order; those that are `parked`, the last ones, have no time of arrival yet.
    waiting: VecDeque<Packet<T>>,
    parked: usize,
    bytes: usize,
    last_due: Duration,
    held: bool,
}

impl<T: Copy> Emulator<T> {
    /// A link under `conditions`; `seed` decides all that is left to chance.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions) -> Self {
        Self {
            conditions,
            rng: Pcg32::seed_from_u64(seed),
            flying: BinaryHeap::new(),
            held: VecDeque::new(),
            lanes: std::array::from_fn(|_| LaneQueue::new()),
            spare: Vec::new(),
            filter: None,
            hold_next: 0,
            drop_next: 0,
            losing: false,
            partitioned: false,
            stalled_until: Duration::ZERO,
            busy_until: Duration::ZERO,
            last_due: Duration::ZERO,
            order: 0,
            counters: Counters::default(),
        }
    }

    /// Sends a datagram.
    pub fn send(&mut self, now: Duration, bytes: &[u8], tag: T) {
        let ordinal = self.counters.sent;
        self.counters.sent += 1;
        self.counters.bytes_sent += (bytes.len() + self.conditions.overhead) as u64;
        match self.fate(ordinal, bytes) {
            Fate::Drop => self.counters.dropped += 1,
            Fate::Hold => {
                self.counters.held += 1;
                let packet = self.packet(Duration::ZERO, bytes, tag);
                self.held.push_back(packet);
            }
            Fate::Pass if self.partitioned => self.counters.partitioned += 1,
            Fate::Pass => self.launch(now, bytes, tag),
        }
    }

    /// Sends a message on a lane. The caller bounds what may wait there, by [`queued`](Self::queued).
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn send_message(&mut self, now: Duration, lane: Lane, bytes: &[u8], tag: T) {
        assert!(lane.0 < Lane::COUNT, "there is no lane {}", lane.0);
        self.enqueue(now, lane.0 as usize, bytes, tag);
    }

    /// Sends what comes after every message that was sent on any lane: the end of the link.
    pub fn send_last(&mut self, now: Duration, bytes: &[u8], tag: T) {
        self.enqueue(now, LANES, bytes, tag);
    }

    /// The next thing that has arrived by `now`, in order of arrival; its payload replaces what is in `payload`.
    #[must_use]
    pub fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrived<T>> {
        let (due, path) = self.earliest()?;
        if now < due {
            return None;
        }
        let packet = match path {
            Path::Datagram => self.flying.pop().map(|Reverse(p)| p),
            Path::Lane(lane) => self.lanes[lane.0 as usize].pop(),
            Path::Last => self.lanes[LANES].pop(),
        }?;
        if path == Path::Datagram {
            self.counters.delivered += 1;
        } else {
            self.counters.messages_delivered += 1;
        }
        self.counters.bytes_delivered += (packet.bytes.len() + self.conditions.overhead) as u64;
        payload.clear();
        payload.extend_from_slice(&packet.bytes);
        self.spare.push(packet.bytes);
        Some(Arrived { tag: packet.tag, path, at: due })
    }

    /// When there will be something to [`poll`](Self::poll), if nothing else happens.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Duration> {
        self.earliest().map(|(due, _)| due)
    }

    /// The conditions now.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// Changes the conditions for what is sent from now on.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// Bytes that the queue would still take at `now`; without a rate, more than anybody has.
    #[must_use]
    pub fn free(&self, now: Duration) -> usize {
        match self.conditions.rate {
            None => usize::MAX / 2,
            Some(rate) => self.conditions.queue.saturating_sub(bytes_in(self.busy_until.saturating_sub(now), rate)),
        }
    }

    /// Bytes that are under way or wait on a lane, [`MESSAGE_COST`] for each message included; 0 for a lane that does not exist.
    #[must_use]
    pub fn queued(&self, lane: Lane) -> usize {
        self.lanes.get(lane.0 as usize).map_or(0, |l| l.bytes)
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Loses the next `n` datagrams. Goes before [`hold_next`](Self::hold_next) and the filter.
    pub fn drop_next(&mut self, n: u64) {
        self.drop_next = n;
    }

    /// Keeps the next `n` datagrams until [`release_held`](Self::release_held). Goes before the filter.
    pub fn hold_next(&mut self, n: u64) {
        self.hold_next = n;
    }

    /// Lets a function decide about each datagram; `None` lets all pass.
    pub fn set_filter(&mut self, filter: Option<Filter>) {
        self.filter = filter;
    }

    /// Lets all held datagrams arrive at `now`, in the order in which they were sent. Returns how many.
    pub fn release_held(&mut self, now: Duration) -> usize {
        let count = self.held.len();
        while let Some(mut packet) = self.held.pop_front() {
            packet.due = now;
            packet.order = self.next_order();
            self.flying.push(Reverse(packet));
        }
        count
    }

    /// Keeps (`true`) what is sent on a lane from now on, or lets all of it go its way (`false`). Unknown lanes are ignored.
    pub fn hold_lane(&mut self, now: Duration, lane: Lane, on: bool) {
        if lane.0 < Lane::COUNT {
            self.lanes[lane.0 as usize].held = on;
            self.unpark(now);
        }
    }

    /// Lets nothing arrive before `until`; what was due earlier arrives then, all at once.
    pub fn stall(&mut self, until: Duration) {
        self.stalled_until = until;
    }

    /// Cuts the link (`true`) or joins it again (`false`). While it is cut, datagrams are lost and messages wait; what was under way
    /// before still arrives.
    pub fn partition(&mut self, now: Duration, on: bool) {
        self.partitioned = on;
        self.unpark(now);
    }

    fn fate(&mut self, ordinal: u64, bytes: &[u8]) -> Fate {
        if self.drop_next > 0 {
            self.drop_next -= 1;
            return Fate::Drop;
        }
        if self.hold_next > 0 {
            self.hold_next -= 1;
            return Fate::Hold;
        }
        self.filter.as_mut().map_or(Fate::Pass, |filter| filter(ordinal, bytes))
    }

    fn launch(&mut self, now: Duration, bytes: &[u8], tag: T) {
        let size = bytes.len() + self.conditions.overhead;
        if size > self.free(now) {
            self.counters.overflowed += 1;
            return;
        }
        let departed = self.depart(now, size);
        if self.lose() {
            self.counters.lost += 1;
            return;
        }
        self.fly(departed, bytes, tag);
        if self.chance(self.conditions.duplicate) {
            self.counters.duplicated += 1;
            self.fly(departed, bytes, tag);
        }
    }

    fn fly(&mut self, departed: Duration, bytes: &[u8], tag: T) {
        let Conditions { latency, jitter, reorder, .. } = self.conditions;
        let mut due = departed + latency + self.uniform(jitter);
        if self.chance(reorder) {
            self.counters.reordered += 1;
            due += self.uniform(latency + jitter + OVERTAKE);
        } else {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        let packet = self.packet(due, bytes, tag);
        self.flying.push(Reverse(packet));
    }

    fn enqueue(&mut self, now: Duration, lane: usize, bytes: &[u8], tag: T) {
        self.counters.messages_sent += 1;
        self.counters.bytes_sent += (bytes.len() + self.conditions.overhead) as u64;
        let packet = self.packet(Duration::ZERO, bytes, tag);
        let queue = &mut self.lanes[lane];
        queue.bytes += bytes.len() + MESSAGE_COST;
        queue.waiting.push_back(packet);
        queue.parked += 1;
        self.unpark(now);
    }

    /// Gives a time of arrival to the messages that wait for nothing any more.
    fn unpark(&mut self, now: Duration) {
        for lane in 0..=LANES {
            while !self.partitioned && !self.lanes[lane].held && self.lanes[lane].parked > 0 {
                let at = self.lanes[lane].waiting.len() - self.lanes[lane].parked;
                let size = self.lanes[lane].waiting[at].bytes.len() + self.conditions.overhead;
                let departed = self.depart(now, size);
                let due = departed + self.conditions.latency + self.uniform(self.conditions.jitter) + self.retransmit();
                let queue = &mut self.lanes[lane];
                queue.parked -= 1;
                if lane == usize::from(Lane::UNORDERED.0) {
                    queue.overtake(at, due);
                    continue;
                }
                queue.last_due = queue.last_due.max(due);
                queue.waiting[at].due = queue.last_due;
            }
        }
    }

    /// The delay of a message by being lost and sent again, each time after a longer wait.
    fn retransmit(&mut self) -> Duration {
        let Conditions { latency, jitter, loss, .. } = self.conditions;
        let mut delay = Duration::ZERO;
        let mut wait = latency * 2 + jitter * 4 + RETRANSMIT_LEAST;
        for _ in 0..RETRANSMISSIONS {
            if !self.chance(loss) {
                break;
            }
            self.counters.retransmissions += 1;
            delay += wait;
            wait = (wait * 2).min(RETRANSMIT_MOST);
        }
        delay
    }

    fn earliest(&self) -> Option<(Duration, Path)> {
        let datagram = self.flying.peek().map(|Reverse(p)| (p.due, p.order, Path::Datagram));
        let lanes = (0..LANES).filter_map(|i| self.lanes[i].head().map(|p| (p.due, p.order, Path::Lane(Lane(i as u8)))));
        let lanes_empty = self.lanes[..LANES].iter().all(|l| l.waiting.is_empty());
        let last = self.lanes[LANES].head().filter(|_| lanes_empty).map(|p| (p.due, p.order, Path::Last));
        let (due, _, path) = datagram.into_iter().chain(lanes).chain(last).min_by_key(|&(due, order, _)| (due, order))?;
        Some((due.max(self.stalled_until), path))
    }

    fn packet(&mut self, due: Duration, bytes: &[u8], tag: T) -> Packet<T> {
        let mut buffer = self.spare.pop().unwrap_or_else(|| {
            self.counters.buffers += 1;
            Vec::with_capacity(limits::DATAGRAM_MAX_BYTES)
        });
        buffer.clear();
        buffer.extend_from_slice(bytes);
        Packet { due, order: self.next_order(), bytes: buffer, tag }
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// When `size` bytes have left, after those that wait before them.
    fn depart(&mut self, now: Duration, size: usize) -> Duration {
        let Some(rate) = self.conditions.rate else { return now };
        self.busy_until = self.busy_until.max(now) + time_for(size, rate);
        self.busy_until
    }

    fn lose(&mut self) -> bool {
        let Conditions { loss, burst, .. } = self.conditions;
        if loss <= 0.0 || loss >= 1.0 || burst <= 1.0 {
            return self.chance(loss);
        }
        let change = if self.losing { 1.0 / burst } else { loss / (burst * (1.0 - loss)) };
        if self.chance(change) {
            self.losing = !self.losing;
        }
        self.losing
    }

    /// Draws nothing where nothing is left to chance.
    fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        probability >= 1.0 || f64::from(self.rng.next_u32()) < probability * f64::from(u32::MAX)
    }

    fn uniform(&mut self, most: Duration) -> Duration {
        if most.is_zero() {
            return most;
        }
        let nanos = (most.as_nanos() * u128::from(self.rng.next_u32())) >> 32;
        Duration::from_nanos(nanos as u64)
    }
}

impl<T> LaneQueue<T> {
    fn new() -> Self {
        Self { waiting: VecDeque::new(), parked: 0, bytes: 0, last_due: Duration::ZERO, held: false }
    }

    fn head(&self) -> Option<&Packet<T>> {
        if self.waiting.len() > self.parked { self.waiting.front() } else { None }
    }

    /// The message at `at`, the last of those that travel, arrives at `due`, before whatever arrives later.
    fn overtake(&mut self, at: usize, due: Duration) {
        let Some(mut packet) = self.waiting.remove(at) else { return };
        packet.due = due;
        let place = (0..at).find(|i| self.waiting[*i] > packet).unwrap_or(at);
        self.waiting.insert(place, packet);
    }

    fn pop(&mut self) -> Option<Packet<T>> {
        let packet = self.waiting.pop_front()?;
        self.bytes -= packet.bytes.len() + MESSAGE_COST;
        Some(packet)
    }
}

impl<T> Ord for Packet<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl<T> PartialOrd for Packet<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Packet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Packet<T> {}

fn time_for(bytes: usize, rate: u64) -> Duration {
    let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)
}

fn bytes_in(time: Duration, rate: u64) -> usize {
    let bytes = (time.as_nanos() * u128::from(rate)) / 1_000_000_000;
    bytes.min(usize::MAX as u128) as usize
}

const LANES: usize = Lane::COUNT as usize;
const OVERTAKE: Duration = Duration::from_millis(20);
const RETRANSMIT_LEAST: Duration = Duration::from_millis(25);
const RETRANSMIT_MOST: Duration = Duration::from_secs(2);
/// After this many losses in a row a message gets through, or a loss of 1 would never end.
const RETRANSMISSIONS: usize = 12;

#[cfg(test)]
#[path = "emulator_tests.rs"]
mod tests;
