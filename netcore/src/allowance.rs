//! How many bytes may go to one peer now: a bucket that paces, beside a log of the last second that bounds.
//!
//! **In any sliding second, no more is taken than the rate** (while it changes: than the largest rate that was in force in that
//! second). The bucket fills at the rate and holds about two send intervals' worth, so that nothing sends a second's worth at
//! once, and what was not used is not hoarded. Two kinds of traffic share it, state and messages: each may have all of it while
//! the other has nothing to send, and gets half while both wait, so that neither starves.
//!
//! Two things go beyond: what must go at once (acknowledgements, control messages) is taken by [`Allowance::debit`] whether there
//! is room or not, and a message larger than the bucket ever gets is handed over whole and paid for over the time that follows,
//! before any other. Both are made up for, so that they cost others their bytes and never raise the rate for long.
//!
//! Who always has something to send gets all of the rate if a second is a whole number of its sends, and otherwise 1 / (n × i),
//! where i is the time between sends and n the number of sends that a second may see: at least 97 % for any i up to 30 ms.
//! More cannot be had by anyone who may not exceed the rate in any second.

use crate::limits;
use std::collections::VecDeque;
use std::time::Duration;

/// The largest packet that the bucket can be made to save up for, the transport's overhead included.
pub const LARGEST_SAVING: usize = limits::DATAGRAM_MAX_BYTES + 100;

/// What the promise is about.
const WINDOW: Duration = Duration::from_secs(1);
/// Takes so close to each other share a place in the log, which counts as the later. Bounds the log to a thousand places.
const GRAIN: Duration = Duration::from_millis(1);
/// The bucket holds so many send intervals' worth.
const INTERVALS: u64 = 2;
/// However short the interval, the bucket holds this part of a second's worth, so that a lone packet can go.
const LEAST_PART: u64 = 8;
/// The same, in bytes.
const LEAST_HELD: u64 = 128;

/// What one link may send. Pure; times must not go back, and a time that does counts as the latest one.
#[derive(Clone, Debug)]
pub struct Allowance {
    /// Bytes per second.
    rate: u64,
    /// Higher rates that were in force within the last second, and until when; the highest first.
    higher: VecDeque<(u64, Duration)>,
    /// Bytes in the bucket; below zero after debits.
    tokens: i64,
    /// Billionths of a byte that the bucket is ahead.
    rest: u64,
    at: Duration,
    /// What the bucket held at most, when it was looked at last.
    cap: u64,
    saving: usize,
    aside: u64,
    /// What was taken within the last second.
    log: VecDeque<Taken>,
    used: u64,
    /// Bytes that state has had more than messages, as far back as the bucket reaches.
    balance: i64,
    /// Bytes of a message that were handed over and are not paid for.
    owed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    first: Duration,
    last: Duration,
    bytes: u64,
}

impl Allowance {
    /// An allowance of `rate` bytes per second, at least 1. Its bucket is full.
    #[must_use]
    pub fn new(rate: u64) -> Self {
        let rate = rate.clamp(1, HIGHEST);
        Self {
            rate,
            higher: VecDeque::new(),
            tokens: rate as i64,
            rest: 0,
            at: Duration::ZERO,
            cap: rate,
            saving: 0,
            aside: 0,
            log: VecDeque::new(),
            used: 0,
            balance: 0,
            owed: 0,
        }
    }

    /// Bytes per second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Another rate from now on, at least 1. To a lower one the bucket goes empty, so do not follow every whim of an estimate.
    pub fn set_rate(&mut self, now: Duration, rate: u64) {
        let rate = rate.clamp(1, HIGHEST);
        self.pass(now);
        if rate < self.rate {
            while self.higher.back().is_some_and(|(higher, _)| *higher <= self.rate) {
                self.higher.pop_back();
            }
            // one that was in force for less than a grain counts for nothing: that bounds the list
            if self.higher.back().is_none_or(|(_, until)| self.at >= *until + GRAIN) {
                self.higher.push_back((self.rate, self.at));
            }
            // so that a second that begins now sees no more than the new rate
            self.tokens = self.tokens.min(0);
        }
        self.rate = rate;
    }

    /// Lets the bucket hold at least so many bytes (up to twice [`LARGEST_SAVING`]), for a packet that is larger than two
    /// intervals' worth. Holds until it is called again.
    pub fn save_up(&mut self, bytes: usize) {
        self.saving = bytes.min(2 * LARGEST_SAVING);
    }

    /// Sets bytes of each second aside for debits (a sixteenth of it at most), so that these do not make a full second too full.
    pub fn set_aside(&mut self, bytes: usize) {
        self.aside = bytes as u64;
    }

    /// Bytes that may be taken now, by a sender that sends every `interval`.
    pub fn room(&mut self, now: Duration, interval: Duration) -> usize {
        self.pass(now);
        let worth = u128::from(self.rate) * interval.as_nanos().min(NANOS) / NANOS;
        let least = (self.rate / LEAST_PART).clamp(LEAST_HELD, LARGEST_SAVING as u64);
        // what comes in beside the last of what is saved up for must not be lost
        let saving = if self.saving > 0 { self.saving as u64 + worth as u64 } else { 0 };
        self.cap = (INTERVALS * worth as u64).min(self.rate).max(least).max(saving);
        // what the second does not allow is not saved either: a gap that a burst has torn would be followed by the next burst
        let window = self.left();
        let most = self.cap.min(window.max(self.saving as u64));
        if self.tokens > most as i64 {
            self.tokens = most as i64;
            self.rest = 0;
        }
        window.min(self.tokens.max(0) as u64) as usize
    }

    /// Bytes that state may take now. Half, in the long run, while messages wait for their turn.
    pub fn state_room(&mut self, now: Duration, interval: Duration, messages_wait: bool) -> usize {
        let room = self.room(now, interval);
        if messages_wait || self.owed > 0 { part(room, -self.balance) } else { room }
    }

    /// Bytes that messages may take now. Half, in the long run, while state waits for its turn. First pays for a message that was
    /// larger than the room there was.
    pub fn message_room(&mut self, now: Duration, interval: Duration, state_waits: bool) -> usize {
        loop {
            let room = self.room(now, interval);
            let room = if state_waits { part(room, self.balance) } else { room };
            let pays = (room as u64).min(self.owed);
            if pays == 0 {
                return if self.owed > 0 { 0 } else { room };
            }
            self.owed -= pays;
            self.spend_message(pays);
        }
    }

    /// Bytes that may be taken now by what comes before messages and counts as they do: it does not wait until a large one is paid
    /// for. While state waits for its turn it is half, in the long run.
    pub fn urgent_room(&mut self, now: Duration, interval: Duration, state_waits: bool) -> usize {
        let room = self.room(now, interval);
        if state_waits { part(room, self.balance) } else { room }
    }

    /// Bytes that may be taken now by what can always wait. Half of the bucket and an eighth of the second stay for what cannot, so
    /// that whatever comes next finds room as if this were not there.
    pub fn spare_room(&mut self, now: Duration, interval: Duration) -> usize {
        // what a large message owes is paid here too: no other message may follow it
        let room = self.message_room(now, interval, false) as u64;
        if self.owed > 0 {
            return 0;
        }
        let window = self.left().saturating_sub(self.limit() / 8);
        room.saturating_sub(self.cap / 2).min(window) as usize
    }

    /// What can always wait has been handed over.
    pub fn take_spare(&mut self, now: Duration, bytes: usize) {
        self.pass(now);
        self.spend(bytes as u64);
    }

    /// What comes before messages has been sent.
    pub fn take_urgent(&mut self, now: Duration, bytes: usize) {
        self.pass(now);
        self.spend_message(bytes as u64);
    }

    /// State has been sent.
    pub fn take_state(&mut self, now: Duration, bytes: usize) {
        self.pass(now);
        self.spend(bytes as u64);
        self.balance = (self.balance + bytes as i64).min(self.reach());
    }

    /// A message has been handed over. What of it finds no room is owed.
    pub fn take_message(&mut self, now: Duration, bytes: usize) {
        self.pass(now);
        let left = self.left().min(self.tokens.max(0) as u64);
        let paid = (bytes as u64).min(left);
        self.owed += bytes as u64 - paid;
        self.spend_message(paid);
    }

    /// Something went that could not wait, room or not. What it takes beyond the room is made up for, up to a second's worth.
    pub fn debit(&mut self, now: Duration, bytes: usize) {
        self.pass(now);
        self.spend(bytes as u64);
        self.tokens = self.tokens.max(-(self.rate as i64));
    }

    /// Bytes that the bucket holds at most, as of the last look.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.cap as usize
    }

    fn spend_message(&mut self, bytes: u64) {
        self.spend(bytes);
        self.balance = (self.balance - bytes as i64).max(-self.reach());
    }

    /// How far one kind may get ahead of the other.
    fn reach(&self) -> i64 {
        self.cap as i64
    }

    fn spend(&mut self, bytes: u64) {
        self.tokens -= bytes as i64;
        self.used += bytes;
        match self.log.back_mut() {
            Some(taken) if self.at < taken.first + GRAIN => {
                taken.last = self.at;
                taken.bytes += bytes;
            }
            _ => self.log.push_back(Taken { first: self.at, last: self.at, bytes }),
        }
    }

    /// Fills the bucket, and forgets what is a second old.
    fn pass(&mut self, now: Duration) {
        if let Some(passed) = now.checked_sub(self.at) {
            let gained = u128::from(self.rate) * passed.as_nanos() + u128::from(self.rest);
            self.rest = (gained % NANOS) as u64;
            let gained = (gained / NANOS).min(2 * u128::from(self.rate)) as i64;
            self.tokens = (self.tokens + gained).min(self.cap.max(self.rate) as i64);
            self.at = now;
        }
        let Some(before) = self.at.checked_sub(WINDOW) else { return };
        while let Some(taken) = self.log.front().filter(|taken| taken.last <= before) {
            self.used -= taken.bytes;
            self.log.pop_front();
        }
        while self.higher.front().is_some_and(|(_, until)| *until <= before) {
            self.higher.pop_front();
        }
    }

    /// What the last second leaves.
    fn left(&self) -> u64 {
        self.limit().saturating_sub(self.used + self.aside.min(self.rate / 16))
    }

    /// What the last second may see.
    fn limit(&self) -> u64 {
        self.higher.front().map_or(self.rate, |(rate, _)| self.rate.max(*rate))
    }
}

/// What a kind may have of `room` bytes that both want, if it has had `behind` bytes less than the other.
fn part(room: usize, behind: i64) -> usize {
    let room = room as i64;
    ((room + behind) / 2).clamp(0, room) as usize
}

const NANOS: u128 = 1_000_000_000;
/// Bytes per second beyond which nothing is counted: 8 Tbit/s.
const HIGHEST: u64 = 1 << 40;

#[cfg(test)]
#[path = "allowance_tests.rs"]
mod tests;
