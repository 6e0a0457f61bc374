//! Frames in bits: one after another as differences, and whole ones for who knows none.
//!
//! A difference is written once and copied to everybody, since all are told the same frames. See `docs/WIRE.md`, 2.9.

use super::frame::{Frame, Origin, SeatState};
use crate::peer_id::PeerId;
use crate::schema::Inner;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Steps in the coding of a tick that the host did not run.
const NOT_RUN: u64 = 15;
/// What becomes of a seat.
const VACATED: u64 = 0;
const TAKEN: u64 = 1;
const TO_CPU: u64 = 2;
const TO_PERSON: u64 = 3;
/// A repeated input that is older than this is none that a host repeats.
const AGE_MAX: u64 = 1 << 16;

impl Frame {
    /// Can it be told from `before` by its tick alone?
    pub(crate) fn is_as(&self, before: &Frame) -> bool {
        let same_seat = |i: usize| {
            let (a, b) = (&self.seats[i], &before.seats[i]);
            a.peer == b.peer && a.cpu == b.cpu && self.has_input(i, b.origin, before.last(i))
        };
        self.orders.is_empty()
            && !self.digest
            && self.run == before.run
            && self.seats.len() == before.seats.len()
            && (0..self.seats.len()).all(same_seat)
    }

    /// Is a seat's input from there, and if it arrived, this?
    fn has_input(&self, i: usize, origin: Origin, last: &[u32]) -> bool {
        self.seats[i].origin == origin && (origin != Origin::Arrived || self.last(i) == last)
    }

    /// What a reader takes a seat's input to be if it is told no other.
    fn expected<'a>(&self, i: usize, before: &'a Frame, default: &'a [u32]) -> (Origin, &'a [u32]) {
        match before.find(self.seats[i].peer) {
            Err(_) => (Origin::Absent, default),
            Ok(j) if before.seats[j].cpu != self.seats[i].cpu => (Origin::Absent, before.last(j)),
            Ok(j) => (before.seats[j].origin, before.last(j)),
        }
    }

    /// Writes it as a difference from the frame before it.
    pub(crate) fn write(&self, before: &Frame, schema: &Inner, w: &mut BitWriter) {
        self.write_seats(before, w);
        if let Some(entry) = &schema.input {
            let expected = |i: usize| self.expected(i, before, &entry.default);
            let same = |i: usize| {
                let (origin, last) = expected(i);
                self.has_input(i, origin, last)
            };
            let changed = (0..self.seats.len()).any(|i| !same(i));
            w.flag(changed);
            let persons = (0..self.seats.len()).filter(|i| changed && !self.seats[*i].cpu);
            for i in persons {
                w.flag(same(i));
                if same(i) {
                    continue;
                }
                write_origin(self.seats[i].origin, w);
                if self.seats[i].origin == Origin::Arrived {
                    let (_, last) = expected(i);
                    w.flag(self.last(i) == last);
                    if self.last(i) != last {
                        entry.layout.write(self.last(i), Some(last), 1, w);
                    }
                }
            }
        }
        self.write_rest(Some(before), schema, w);
    }

    fn write_seats(&self, before: &Frame, w: &mut BitWriter) {
        let mut changes = 0;
        self.seat_changes(before, |_, _| changes += 1);
        w.flag(changes > 0);
        if changes > 0 {
            w.golomb(changes - 1, 0);
            self.seat_changes(before, |peer, what| {
                w.put(u64::from(peer.0), 10);
                w.put(what, 2);
            });
        }
    }

    /// What became of which seats, by peer.
    fn seat_changes(&self, before: &Frame, mut change: impl FnMut(PeerId, u64)) {
        let (mut i, mut j) = (0, 0);
        while i < self.seats.len() || j < before.seats.len() {
            let (a, b) = (self.seats.get(i), before.seats.get(j));
            match (a, b) {
                (Some(a), Some(b)) if a.peer == b.peer => {
                    let what = match (a.cpu, b.cpu) {
                        (true, false) => Some(TO_CPU),
                        (false, true) => Some(TO_PERSON),
                        _ => None,
                    };
                    if let Some(what) = what {
                        change(a.peer, what);
                    }
                    (i, j) = (i + 1, j + 1);
                }
                (Some(a), b) if b.is_none_or(|b| a.peer < b.peer) => {
                    change(a.peer, TAKEN);
                    i += 1;
                }
                (_, b) => {
                    if let Some(b) = b {
                        change(b.peer, VACATED);
                    }
                    j += 1;
                }
            }
        }
    }

    /// Writes it by itself.
    pub(crate) fn write_whole(&self, schema: &Inner, w: &mut BitWriter) {
        w.golomb(self.seats.len() as u64, 2);
        for (i, seat) in self.seats.iter().enumerate() {
            let own = self.orders.iter().filter(|o| usize::from(o.seat) == i).count() as u64;
            w.put(u64::from(seat.peer.0), 10);
            w.flag(seat.cpu);
            w.golomb(seat.orders - own, 3);
            let Some(entry) = &schema.input else { continue };
            write_origin(seat.origin, w);
            entry.layout.write(self.last(i), None, 0, w);
            match seat.origin {
                Origin::Arrived => {
                    w.flag(self.before(i) == self.last(i));
                    if self.before(i) != self.last(i) {
                        entry.layout.write(self.before(i), None, 0, w);
                    }
                }
                Origin::Repeated => w.golomb(u64::from(seat.age), 3),
                Origin::Absent => {}
            }
        }
        self.write_rest(None, schema, w);
    }

    /// Orders, steps and digest.
    fn write_rest(&self, before: Option<&Frame>, schema: &Inner, w: &mut BitWriter) {
        if !schema.orders.is_empty() {
            w.flag(!self.orders.is_empty());
            if !self.orders.is_empty() {
                w.golomb(self.orders.len() as u64 - 1, 0);
            }
            for (_, order, words) in self.orders() {
                w.put(u64::from(order.seat), bits_for(self.seats.len()));
                w.put(u64::from(order.entry), bits_for(schema.orders.len()));
                w.golomb(u64::from(order.waited), 0);
                schema.orders[usize::from(order.entry)].layout.write(words, None, 0, w);
            }
        }
        let same = before.is_some_and(|before| before.run == self.run) && !self.digest;
        w.flag(same);
        if !same {
            w.put(self.run.map_or(NOT_RUN, u64::from), 4);
            w.flag(self.digest);
        }
    }

    /// Reads a difference from `before` over what this was.
    ///
    /// # Errors
    /// [`BitError`]; then nothing of this means anything.
    pub(crate) fn read(&mut self, before: &Frame, schema: &Inner, r: &mut BitReader<'_>) -> Result<(), BitError> {
        self.follow(before);
        if r.flag()? {
            self.read_seats(schema, r)?;
        }
        if let Some(entry) = &schema.input
            && r.flag()?
        {
            for i in 0..self.seats.len() {
                if self.seats[i].cpu || r.flag()? {
                    continue;
                }
                let origin = read_origin(r)?;
                if origin != Origin::Arrived {
                    self.set_origin(i, origin);
                    continue;
                }
                let same = r.flag()?;
                self.set_origin(i, origin);
                if !same {
                    let (last, before) = self.both_mut(i);
                    entry.layout.read(Some(before), 1, r, last)?;
                    valid(entry.is_valid, last)?;
                }
            }
        }
        self.read_rest(Some(before), schema, r)
    }

    fn read_seats(&mut self, schema: &Inner, r: &mut BitReader<'_>) -> Result<(), BitError> {
        let default = schema.input.as_ref().map_or(&[][..], |entry| &entry.default);
        let changes = r.golomb(0)?;
        let mut after = None;
        for _ in 0..=changes.min(limits::PEERS as u64) {
            let peer = PeerId(r.get(10)? as u16);
            let what = r.get(2)?;
            if after.is_some_and(|after| peer <= after) {
                return Err(BitError::OutOfRange);
            }
            after = Some(peer);
            match (what, self.find(peer)) {
                (TAKEN, Err(at)) => self.take(at, peer, default),
                (VACATED, Ok(at)) => self.vacate(at),
                (TO_CPU, Ok(at)) if !self.seats[at].cpu => self.set_cpu(at, true),
                (TO_PERSON, Ok(at)) if self.seats[at].cpu => self.set_cpu(at, false),
                _ => return Err(BitError::OutOfRange),
            }
        }
        Ok(())
    }

    /// Reads a whole frame over what this was.
    ///
    /// # Errors
    /// [`BitError`]; then nothing of this means anything.
    pub(crate) fn read_whole(&mut self, tick: Tick, schema: &Inner, r: &mut BitReader<'_>) -> Result<(), BitError> {
        self.clear(tick, schema.input.as_ref().map_or(0, |entry| entry.layout.words()));
        let seats = r.golomb(2)?;
        if seats > limits::PEERS as u64 {
            return Err(BitError::OutOfRange);
        }
        for _ in 0..seats {
            let peer = PeerId(r.get(10)? as u16);
            if self.seats.last().is_some_and(|last| last.peer >= peer) {
                return Err(BitError::OutOfRange);
            }
            let cpu = r.flag()?;
            let orders = r.golomb(3)?;
            if orders > 1 << 40 {
                return Err(BitError::OutOfRange);
            }
            self.add_seat(SeatState { cpu, orders, ..SeatState::fresh(peer) });
            let Some(entry) = &schema.input else { continue };
            let i = self.seats.len() - 1;
            let origin = read_origin(r)?;
            if cpu && origin != Origin::Absent {
                return Err(BitError::OutOfRange);
            }
            self.seats[i].origin = origin;
            entry.layout.read(None, 0, r, self.last_mut(i))?;
            valid(entry.is_valid, self.last(i))?;
            if origin == Origin::Arrived && !r.flag()? {
                entry.layout.read(None, 0, r, self.both_mut(i).1)?;
                valid(entry.is_valid, self.before(i))?;
                continue;
            }
            let (last, before) = self.both_mut(i);
            before.copy_from_slice(last);
            if origin == Origin::Repeated {
                let age = r.golomb(3)?;
                if age == 0 || age > AGE_MAX {
                    return Err(BitError::OutOfRange);
                }
                self.seats[i].age = age as u32;
            }
        }
        self.read_rest(None, schema, r)
    }

    fn read_rest(&mut self, before: Option<&Frame>, schema: &Inner, r: &mut BitReader<'_>) -> Result<(), BitError> {
        if !schema.orders.is_empty() && r.flag()? {
            let more = r.golomb(0)?;
            if more >= limits::FRAME_ORDERS as u64 {
                return Err(BitError::OutOfRange);
            }
            for _ in 0..=more {
                let seat = r.get(bits_for(self.seats.len()))? as usize;
                let entry = r.get(bits_for(schema.orders.len()))? as usize;
                let waited = r.golomb(0)?;
                let order = schema.orders.get(entry).ok_or(BitError::OutOfRange)?;
                if waited > u64::from(WAITED_MAX) {
                    return Err(BitError::OutOfRange);
                }
                let words = self.add_order(seat, entry as u8, waited as u32, order.layout.words());
                let words = words.ok_or(BitError::OutOfRange)?;
                order.layout.read(None, 0, r, words)?;
                valid(order.is_complete, words)?;
            }
        }
        match before {
            Some(_) if r.flag()? => return Ok(()),
            None if r.flag()? => return Err(BitError::OutOfRange),
            _ => {}
        }
        self.run = match r.get(4)? {
            NOT_RUN => None,
            steps if steps <= u64::from(limits::LOCKSTEP_STEPS) => Some(steps as u8),
            _ => return Err(BitError::OutOfRange),
        };
        self.digest = r.flag()?;
        Ok(())
    }
}

/// The most that is said of how long an order waited.
pub(crate) const WAITED_MAX: u32 = 1 << 12;

fn valid(is_valid: fn(&[u32]) -> bool, words: &[u32]) -> Result<(), BitError> {
    if is_valid(words) { Ok(()) } else { Err(BitError::OutOfRange) }
}

fn write_origin(origin: Origin, w: &mut BitWriter) {
    match origin {
        Origin::Arrived => w.flag(true),
        Origin::Repeated => w.put(0b00, 2),
        Origin::Absent => w.put(0b10, 2),
    }
}

fn read_origin(r: &mut BitReader<'_>) -> Result<Origin, BitError> {
    if r.flag()? {
        return Ok(Origin::Arrived);
    }
    Ok(if r.flag()? { Origin::Absent } else { Origin::Repeated })
}

/// Bits of a number below `count`.
fn bits_for(count: usize) -> u32 {
    if count <= 1 { 0 } else { (count - 1).ilog2() + 1 }
}

#[cfg(test)]
#[path = "code_tests.rs"]
mod tests;
