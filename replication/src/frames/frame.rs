//! A frame: what a tick of the session is simulated from, on every peer that simulates it.

use crate::input::InputEntry;
use crate::peer_id::PeerId;
use std::ops::Range;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Who plays in a seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// The person at the peer: its inputs count, or what is repeated of them.
    Person,
    /// Nobody is there, or nothing is heard of the peer: a CPU plays, its input is absent.
    Cpu,
}

/// Where a seat's input comes from, as everybody is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is what the peer had in that tick.
    Arrived,
    /// It did not come in time, and is the last one that did.
    Repeated,
    /// Nothing is known: it is the default.
    #[default]
    Absent,
}

/// A seat in one tick. Its words stand in [`Frame::words`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatState {
    pub(crate) peer: PeerId,
    pub(crate) cpu: bool,
    pub(crate) origin: Origin,
    /// For how many ticks the last input was repeated; 0 unless it is.
    pub(crate) age: u32,
    /// Orders of this peer that are sealed, those in this frame included.
    pub(crate) orders: u64,
}

impl SeatState {
    /// A person takes a seat.
    pub(crate) fn fresh(peer: PeerId) -> Self {
        Self { peer, cpu: false, origin: Origin::Absent, age: 0, orders: 0 }
    }
}

/// What a seat comes to for a step that every peer computes: who plays, and its input with the one before it, unless it is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect<'a> {
    pub(crate) peer: PeerId,
    pub(crate) cpu: bool,
    pub(crate) words: Option<(&'a [u32], &'a [u32])>,
}

/// An order in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedOrder {
    /// Index among the seats.
    pub(crate) seat: u16,
    /// Counted per peer, from 1.
    pub(crate) number: u64,
    /// Which order of the schema.
    pub(crate) entry: u8,
    /// For how many ticks it lay at the host.
    pub(crate) waited: u32,
    /// Where its words begin in [`Frame::order_words`].
    at: u32,
}

/// How many steps of lockstep a frame stands for if nobody has said otherwise.
pub(crate) const NORMAL: u8 = 1;

/// One tick's frame. Flat: writing over one that was used allocates nothing.
///
/// By seat, two inputs are kept: the last that arrived, and if it arrived in this very tick the one that had before it. So what a
/// press needs is in the frame, and the same for who joins in the middle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) tick: Tick,
    /// Steps of lockstep; `None`: the host did not run the tick, and nobody does.
    pub(crate) run: Option<u8>,
    /// The host asks for a digest of the state after this tick.
    pub(crate) digest: bool,
    /// By peer, rising.
    pub(crate) seats: Vec<SeatState>,
    /// By seat: last, before.
    words: Vec<u32>,
    pub(crate) orders: Vec<SealedOrder>,
    order_words: Vec<u32>,
    stride: usize,
}

impl Frame {
    pub(crate) fn clear(&mut self, tick: Tick, stride: usize) {
        self.tick = tick;
        self.run = Some(NORMAL);
        self.digest = false;
        self.seats.clear();
        self.words.clear();
        self.clear_orders();
        self.stride = stride;
    }

    pub(crate) fn clear_orders(&mut self) {
        self.orders.clear();
        self.order_words.clear();
    }

    /// Makes this the frame after `before` in which nothing has changed.
    pub(crate) fn follow(&mut self, before: &Frame) {
        self.clear(before.tick.plus(1), before.stride);
        self.run = before.run;
        self.seats.extend_from_slice(&before.seats);
        self.words.extend_from_slice(&before.words);
        for i in 0..self.seats.len() {
            self.carry(i);
        }
    }

    /// A tick has passed for a seat's input.
    fn carry(&mut self, seat: usize) {
        let state = &mut self.seats[seat];
        state.age = if state.origin == Origin::Repeated { state.age.saturating_add(1) } else { 0 };
        let words = self.words_of(seat);
        self.words.copy_within(words.start..words.start + self.stride, words.start + self.stride);
    }

    fn words_of(&self, seat: usize) -> Range<usize> {
        seat * 2 * self.stride..(seat + 1) * 2 * self.stride
    }

    pub(crate) fn find(&self, peer: PeerId) -> Result<usize, usize> {
        self.seats.binary_search_by_key(&peer, |seat| seat.peer)
    }

    /// The last input of a seat that arrived.
    pub(crate) fn last(&self, seat: usize) -> &[u32] {
        let words = self.words_of(seat);
        &self.words[words.start..words.start + self.stride]
    }

    /// The one that had arrived before it, if it arrived in this tick; else the same.
    pub(crate) fn before(&self, seat: usize) -> &[u32] {
        let words = self.words_of(seat);
        &self.words[words.start + self.stride..words.end]
    }

    pub(crate) fn last_mut(&mut self, seat: usize) -> &mut [u32] {
        let words = self.words_of(seat);
        &mut self.words[words.start..words.start + self.stride]
    }

    /// [`last`](Self::last) and [`before`](Self::before).
    pub(crate) fn both_mut(&mut self, seat: usize) -> (&mut [u32], &mut [u32]) {
        let words = self.words_of(seat);
        self.words[words].split_at_mut(self.stride)
    }

    /// A person takes the seat of `peer`, which nobody has; `at` is where [`find`](Self::find) has not found it.
    pub(crate) fn take(&mut self, at: usize, peer: PeerId, default: &[u32]) {
        self.seats.insert(at, SeatState::fresh(peer));
        let start = at * 2 * self.stride;
        self.words.splice(start..start, default.iter().chain(default).copied());
    }

    /// Adds a seat after all others; its words are zero.
    pub(crate) fn add_seat(&mut self, state: SeatState) {
        self.seats.push(state);
        self.words.resize(self.seats.len() * 2 * self.stride, 0);
    }

    /// A seat is there no more.
    pub(crate) fn vacate(&mut self, at: usize) {
        self.seats.remove(at);
        let words = at * 2 * self.stride..(at + 1) * 2 * self.stride;
        self.words.drain(words);
    }

    /// Who plays in a seat from this tick on; a CPU's input is absent.
    pub(crate) fn set_cpu(&mut self, at: usize, cpu: bool) {
        self.seats[at].cpu = cpu;
        self.set_origin(at, Origin::Absent);
    }

    /// This tick's input of a seat is not its own.
    pub(crate) fn set_origin(&mut self, at: usize, origin: Origin) {
        let state = &mut self.seats[at];
        if state.origin != origin {
            state.age = u32::from(origin == Origin::Repeated);
            state.origin = origin;
        }
    }

    /// This tick's input of a seat has arrived: [`last_mut`](Self::last_mut) is to be set.
    pub(crate) fn arrive(&mut self, at: usize) -> &mut [u32] {
        self.set_origin(at, Origin::Arrived);
        self.last_mut(at)
    }

    /// Adds an order, the next one of its peer; `None` if there is no such seat. Gives the place of its words, all zero.
    pub(crate) fn add_order(&mut self, seat: usize, entry: u8, waited: u32, words: usize) -> Option<&mut [u32]> {
        let state = self.seats.get_mut(seat)?;
        state.orders += 1;
        let at = self.order_words.len();
        self.orders.push(SealedOrder { seat: seat as u16, number: state.orders, entry, waited, at: at as u32 });
        self.order_words.resize(at + words, 0);
        Some(&mut self.order_words[at..])
    }

    /// Orders with their peer and their words, in the order in which they take effect.
    pub(crate) fn orders(&self) -> impl Iterator<Item = (PeerId, &SealedOrder, &[u32])> {
        let ends = self.orders.iter().skip(1).map(|o| o.at as usize).chain([self.order_words.len()]);
        self.orders
            .iter()
            .zip(ends)
            .map(|(order, end)| (self.seats[usize::from(order.seat)].peer, order, &self.order_words[order.at as usize..end]))
    }

    /// Who plays in a peer's seat; `None` if it has none.
    pub(crate) fn seat(&self, peer: PeerId) -> Option<Seat> {
        let at = self.find(peer).ok()?;
        Some(if self.seats[at].cpu { Seat::Cpu } else { Seat::Person })
    }

    /// What counts as a peer's input in this tick; `None` if it has no seat, or its input is absent.
    #[allow(dead_code, reason = "for the timelines that run by frames")]
    pub(crate) fn input_words(&self, peer: PeerId) -> Option<&[u32]> {
        let at = self.find(peer).ok()?;
        (self.seats[at].origin != Origin::Absent).then(|| self.last(at))
    }

    /// What a seat comes to for a step.
    pub(crate) fn effect(&self, at: usize) -> Effect<'_> {
        let seat = &self.seats[at];
        let words = match seat.origin {
            Origin::Arrived => Some((self.last(at), self.before(at))),
            Origin::Repeated => Some((self.last(at), self.last(at))),
            Origin::Absent => None,
        };
        Effect { peer: seat.peer, cpu: seat.cpu, words }
    }

    /// Steps of lockstep in this tick.
    #[allow(dead_code, reason = "for the timelines that run by frames")]
    pub(crate) fn steps(&self) -> u8 {
        self.run.unwrap_or(0)
    }

    /// Bytes that it takes in memory.
    pub(crate) fn cost(&self) -> usize {
        size_of::<Self>()
            + self.seats.len() * size_of::<SeatState>()
            + self.orders.len() * size_of::<SealedOrder>()
            + (self.words.len() + self.order_words.len()) * size_of::<u32>()
    }

    /// What [`write_whole`](Self::write_whole) of a frame without orders takes at most, in bits.
    pub(crate) fn worst_state_bits(seats: usize, input: Option<&InputEntry>) -> usize {
        let input = input.map_or(0, |entry| 2 + 30 + 2 * entry.layout.worst_bits());
        // a count, steps, digest; by seat its peer, who plays, and its orders
        32 + seats * (10 + 1 + 40 + input)
    }
}

const _: () = assert!(limits::PEERS <= 1 << 10, "a seat's peer is written in 10 bits");
