//! The host: what goes into the next frame, and the frames that were sealed.

use super::code::WAITED_MAX;
use super::frame::{Frame, NORMAL, Origin};
use super::run::RunControl;
use crate::peer_id::PeerId;
use crate::schema::Inner;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Frames that the host keeps as they are: for its own steps, and for who joins at one of them.
const RECENT: usize = limits::SAVES;

/// What is known of a seat in the tick that is sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present<'a> {
    pub(crate) peer: PeerId,
    /// Nothing was heard of it for too long.
    pub(crate) silent: bool,
    /// Its input, unless the schema has none.
    pub(crate) input: Option<(Origin, &'a [u32])>,
}

/// An order that waits for its tick.
pub(super) struct Queued {
    /// The tick for which it is meant.
    at: Tick,
    /// The first that it could have gone into.
    open: Tick,
    pub(super) entry: u8,
    pub(super) words: Vec<u32>,
}

/// The orders of one peer.
#[derive(Default)]
pub(super) struct Queue {
    /// How many came.
    given: u64,
    pub(super) waiting: VecDeque<Queued>,
}

/// Why an order is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwanted {
    /// Not the one that follows the last.
    OutOfOrder,
    /// Too many wait already.
    TooMany,
}

/// Seals frames and keeps them.
pub(crate) struct Sealer {
    /// The last of them is the newest.
    recent: VecDeque<Frame>,
    spare: Option<Frame>,
    /// Differences, by tick in a row, the last of them the newest frame's. Empty: the same as before.
    coded: VecDeque<BitWriter>,
    spare_bits: Vec<BitWriter>,
    /// Bytes in `coded`.
    bytes: usize,
    queues: BTreeMap<PeerId, Queue>,
    run: RunControl,
    digest: bool,
    /// Seats at one time, at most.
    seats: usize,
    scratch: BitWriter,
}

impl Sealer {
    pub(crate) fn new(seats: usize) -> Self {
        Self {
            recent: VecDeque::new(),
            spare: None,
            coded: VecDeque::new(),
            spare_bits: Vec::new(),
            bytes: 0,
            queues: BTreeMap::new(),
            run: RunControl::default(),
            digest: false,
            seats,
            scratch: BitWriter::new(),
        }
    }

    pub(crate) fn control(&mut self) -> &mut RunControl {
        &mut self.run
    }

    /// The next frame asks for a digest.
    pub(crate) fn ask_digest(&mut self) {
        self.digest = true;
    }

    /// The newest frame's tick.
    pub(crate) fn newest(&self) -> Option<Tick> {
        self.recent.back().map(|frame| frame.tick)
    }

    /// A frame that was sealed not long ago.
    pub(crate) fn sealed(&self, tick: Tick) -> Option<&Frame> {
        let ago = self.newest()?.0.checked_sub(tick.0)? as usize;
        self.recent.get(self.recent.len().checked_sub(ago + 1)?)
    }

    /// The oldest tick whose frame is kept as it is.
    pub(super) fn oldest_recent(&self) -> Option<Tick> {
        self.recent.front().map(|frame| frame.tick)
    }

    /// The oldest tick whose difference from the frame before it is kept; the one after the newest if none is.
    pub(crate) fn oldest(&self) -> Option<Tick> {
        Some(self.newest()?.plus(1).minus(self.coded.len() as u64))
    }

    /// The difference of a frame that is kept.
    pub(super) fn coded(&self, tick: Tick) -> Option<&BitWriter> {
        let ago = self.newest()?.0.checked_sub(tick.0)? as usize;
        self.coded.get(self.coded.len().checked_sub(ago + 1)?)
    }

    /// An order has come, the `number`th of its peer, meant for tick `at`.
    pub(crate) fn order(&mut self, peer: PeerId, number: u64, at: Tick, entry: u8, words: Vec<u32>) -> Result<(), Unwanted> {
        let open = self.newest().map_or(Tick(1), |newest| newest.plus(1));
        let queue = self.queues.entry(peer).or_default();
        if number != queue.given + 1 {
            return Err(Unwanted::OutOfOrder);
        }
        if queue.waiting.len() >= limits::ORDERS_PENDING {
            return Err(Unwanted::TooMany);
        }
        queue.given = number;
        queue.waiting.push_back(Queued { at: at.max(open), open, entry, words });
        Ok(())
    }

    /// How many orders a peer has given.
    pub(crate) fn given(&self, peer: PeerId) -> u64 {
        self.queues.get(&peer).map_or(0, |queue| queue.given)
    }

    /// A peer's orders that wait, with their numbers.
    pub(super) fn waiting(&self, peer: PeerId) -> impl Iterator<Item = (u64, &Queued)> {
        let queue = self.queues.get(&peer);
        let first = queue.map_or(0, |q| q.given - q.waiting.len() as u64 + 1);
        queue.into_iter().flat_map(|q| &q.waiting).enumerate().map(move |(i, order)| (first + i as u64, order))
    }

    /// Is anything of a peer left: a seat, or orders?
    pub(crate) fn knows(&self, peer: PeerId) -> bool {
        self.queues.contains_key(&peer) || self.recent.back().is_some_and(|frame| frame.find(peer).is_ok())
    }

    /// Seals the frame of `tick`, later than the newest. Ticks between them are ones that nobody runs. `present`: who is there, by
    /// peer, rising.
    pub(crate) fn seal(&mut self, tick: Tick, present: &[Present<'_>], schema: &Inner) {
        debug_assert!(self.newest().is_none_or(|newest| newest < tick));
        if let Some(newest) = self.newest() {
            let left_out = tick.since(newest) - 1;
            if left_out >= limits::FRAMES as u64 {
                self.jump(tick.minus(1));
            } else {
                (0..left_out).for_each(|_| self.pass_over(schema));
            }
        }
        let mut frame = self.open(tick, schema);
        self.set_seats(&mut frame, present, schema);
        frame.run = Some(self.run.next());
        // an order takes effect in a step, so it waits for a frame that stands for one
        if frame.steps() > 0 {
            self.seal_orders(&mut frame, schema);
        }
        frame.digest = std::mem::take(&mut self.digest);
        self.close(frame, schema);
    }

    /// The frame that follows the newest.
    fn open(&mut self, tick: Tick, schema: &Inner) -> Frame {
        let mut frame = self.spare.take().unwrap_or_default();
        match self.recent.back() {
            Some(newest) => frame.follow(newest),
            None => frame.clear(tick, schema.input.as_ref().map_or(0, |entry| entry.layout.words())),
        }
        debug_assert_eq!(frame.tick, tick);
        frame
    }

    /// A tick that the host does not run.
    fn pass_over(&mut self, schema: &Inner) {
        let Some(tick) = self.newest() else { return };
        let mut frame = self.open(tick.plus(1), schema);
        frame.run = None;
        self.close(frame, schema);
    }

    /// The host stood still for so long that nobody can follow: the frames begin anew after `tick`.
    fn jump(&mut self, tick: Tick) {
        self.trim(usize::MAX);
        if let Some(mut newest) = self.recent.pop_back() {
            self.recent.clear();
            newest.tick = tick;
            newest.run = None;
            newest.clear_orders();
            self.recent.push_back(newest);
        }
    }

    fn close(&mut self, frame: Frame, schema: &Inner) {
        let mut bits = self.spare_bits.pop().unwrap_or_default();
        bits.clear();
        if let Some(before) = self.recent.back().filter(|before| !frame.is_as(before)) {
            frame.write(before, schema, &mut bits);
        }
        // nobody has what the very first one would differ from
        if !self.recent.is_empty() {
            self.bytes += cost(&bits);
            self.coded.push_back(bits);
        }
        self.recent.push_back(frame);
        if self.recent.len() > RECENT {
            self.spare = self.recent.pop_front();
        }
        self.bound();
    }

    fn bound(&mut self) {
        while self.coded.len() > limits::FRAMES || self.bytes > limits::FRAMES_BYTES {
            self.trim(1);
        }
    }

    /// Lets go the oldest differences, `count` at most.
    fn trim(&mut self, count: usize) {
        for bits in self.coded.drain(..count.min(self.coded.len())) {
            self.bytes -= cost(&bits);
            if self.spare_bits.len() < RECENT {
                self.spare_bits.push(bits);
            }
        }
    }

    /// All guests have what was before `tick`. What is recent stays: somebody may join there.
    pub(crate) fn drop_before(&mut self, tick: Tick) {
        if let (Some(oldest), Some(newest)) = (self.oldest(), self.newest()) {
            self.trim(tick.min(newest.plus(1).minus(RECENT as u64)).since(oldest) as usize);
        }
    }

    fn set_seats(&mut self, frame: &mut Frame, present: &[Present<'_>], schema: &Inner) {
        let default = schema.input.as_ref().map_or(&[][..], |entry| &entry.default);
        let is_there = |peer: &PeerId| present.binary_search_by_key(peer, |p| p.peer).is_ok();
        let (mut changes, mut taken) = (0, SmallVec::<[PeerId; 4]>::new());
        // who has come, and who has left before it had a seat: its orders are sealed all the same
        let late = self.queues.iter().filter(|(peer, queue)| !queue.waiting.is_empty() && !is_there(peer));
        let late: SmallVec<[PeerId; 4]> = late.map(|(peer, _)| *peer).collect();
        for peer in present.iter().map(|p| p.peer).chain(late) {
            if let Err(at) = frame.find(peer)
                && changes + 1 < limits::FRAME_SEAT_CHANGES
                && let Some(at) = self.make_room(frame, at, present)
            {
                frame.take(at, peer, default);
                taken.push(peer);
                changes += 2;
            }
        }
        let (seats, start) = (frame.seats.len(), frame.tick.0 as usize);
        let mut room = limits::FRAME_STATE_BYTES * 8 - SEATS_HEAD - seats * SEAT_BITS;
        for i in 0..seats {
            let at = (start + i) % seats;
            let seat = present.binary_search_by_key(&frame.seats[at].peer, |p| p.peer).ok().map(|i| present[i]);
            let cpu = is_cpu(frame.seats[at].cpu, seat);
            let may_change = changes < limits::FRAME_SEAT_CHANGES && !taken.contains(&frame.seats[at].peer);
            if cpu != frame.seats[at].cpu && may_change {
                frame.set_cpu(at, cpu);
                changes += 1;
            }
            if frame.seats[at].cpu {
                continue;
            }
            match seat.and_then(|seat| seat.input) {
                Some((Origin::Arrived, words)) if self.fits(frame, at, words, schema, &mut room) => {
                    frame.arrive(at).copy_from_slice(words);
                }
                Some((Origin::Arrived, _)) if frame.seats[at].origin == Origin::Absent => {}
                Some((Origin::Arrived | Origin::Repeated, _)) => frame.set_origin(at, Origin::Repeated),
                Some((Origin::Absent, _)) | None => frame.set_origin(at, Origin::Absent),
            }
        }
    }

    /// Is there room for an input? One that finds none counts as late, and the next time begins with another seat.
    fn fits(&mut self, frame: &Frame, at: usize, words: &[u32], schema: &Inner, room: &mut usize) -> bool {
        let Some(entry) = schema.input.as_ref().filter(|_| words != frame.last(at)) else { return true };
        self.scratch.clear();
        entry.layout.write(words, Some(frame.last(at)), 1, &mut self.scratch);
        let fits = self.scratch.len() <= *room;
        *room -= if fits { self.scratch.len() } else { 0 };
        fits
    }

    /// If all seats are taken, that of somebody who has left goes to who has come. `at`: where it will be; `None`: there is no room.
    fn make_room(&mut self, frame: &mut Frame, at: usize, present: &[Present<'_>]) -> Option<usize> {
        if frame.seats.len() < self.seats {
            return Some(at);
        }
        let gone = |peer: &PeerId| present.binary_search_by_key(peer, |p| p.peer).is_err();
        let waits = |peer: &PeerId| self.queues.get(peer).is_some_and(|q| !q.waiting.is_empty());
        let free = frame.seats.iter().position(|s| gone(&s.peer) && !waits(&s.peer))?;
        self.queues.remove(&frame.seats[free].peer);
        frame.vacate(free);
        Some(at - usize::from(free < at))
    }

    /// Orders whose tick has come, seat by seat, each time from another seat on: where there is no room for all, everybody waits.
    fn seal_orders(&mut self, frame: &mut Frame, schema: &Inner) {
        let (mut room, mut count) = (limits::FRAME_BYTES * 8 - ORDERS_HEAD, 0);
        let seats = frame.seats.len();
        for i in 0..seats {
            let seat = (i + frame.tick.0 as usize) % seats;
            let Some(queue) = self.queues.get_mut(&frame.seats[seat].peer) else { continue };
            for _ in 0..limits::ORDERS_PER_PEER_TICK {
                let Some(order) = queue.waiting.front().filter(|o| o.at <= frame.tick) else { break };
                let bits = schema.orders[usize::from(order.entry)].layout.worst_bits() + ORDER_HEAD;
                if bits > room || count == limits::FRAME_ORDERS {
                    break;
                }
                (room, count) = (room - bits, count + 1);
                let waited = frame.tick.since(order.open).min(u64::from(WAITED_MAX)) as u32;
                if let Some(words) = frame.add_order(seat, order.entry, waited, order.words.len()) {
                    words.copy_from_slice(&order.words);
                }
                queue.waiting.pop_front();
            }
        }
    }
}

/// Does a CPU play in a seat, in which one did or did not before? With an input, what brings the person back is that one comes.
fn is_cpu(before: bool, seat: Option<Present<'_>>) -> bool {
    let Some(seat) = seat else { return true };
    match seat.input {
        Some((Origin::Arrived, _)) => false,
        Some(_) => seat.silent || before,
        None => seat.silent,
    }
}

/// Bits of the changes of seats, at most, and of flags and counts.
const SEATS_HEAD: usize = 40 + 12 * limits::FRAME_SEAT_CHANGES;
/// Bits of a seat's input beside its fields, at most.
const SEAT_BITS: usize = 4;
const _: () = assert!(
    SEATS_HEAD + SEAT_BITS * limits::FRAME_SEATS + limits::FRAME_INPUT_BITS <= limits::FRAME_STATE_BYTES * 8,
    "the largest input fits"
);
/// Bits of the count of orders in a frame, at most.
const ORDERS_HEAD: usize = 2 * limits::FRAME_ORDERS.ilog2() as usize + 2;
/// Bits of an order beside its fields, at most: seat, type, and how long it waited.
const ORDER_HEAD: usize = 10 + 6 + 2 * WAITED_MAX.ilog2() as usize + 2;
/// Bits of the largest order that a schema may have.
pub(crate) const ORDER_BITS: usize = limits::FRAME_BYTES * 8 - ORDERS_HEAD - ORDER_HEAD;

/// The bytes that a difference counts for.
fn cost(bits: &BitWriter) -> usize {
    size_of::<BitWriter>() + bits.len().div_ceil(8)
}

const _: () = assert!(NORMAL <= limits::LOCKSTEP_STEPS);

#[cfg(test)]
#[path = "sealer_tests.rs"]
mod tests;
