//! A peer's own input, and at a guest those that the host has not confirmed.

use super::{InputEntry, drawn};
use std::collections::VecDeque;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};
use tidelock_netcore::input::{InputHead, UpHead};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// What this peer does, and did.
pub(crate) struct OwnInput {
    /// What was set last.
    pub(crate) latched: Vec<u32>,
    /// Ticks after which what is set takes effect.
    pub(crate) delay: usize,
    /// That of the tick that is run, and of the one before.
    pub(crate) value: Vec<u32>,
    pub(crate) before: Vec<u32>,
    log: VecDeque<Logged>,
    /// Inputs by tick, the oldest first: of ticks that were run, for when they are run again, and of those within the delay.
    past: VecDeque<(Tick, Vec<u32>)>,
    /// How many of them the tick that is run has added.
    fresh: usize,
    /// The tick of the last in `log`.
    newest: Tick,
}

/// Inputs that are remembered.
const KEPT: usize = limits::SAVES + limits::INPUT_WINDOW + 1;

/// The input of one tick, not confirmed yet.
struct Logged {
    words: Vec<u32>,
    /// By how many nanoseconds the tick was run ahead of the session.
    ahead: i64,
    /// How far behind the tick is what was drawn then: see [`drawn`].
    behind: u32,
}

impl OwnInput {
    pub(crate) fn new(default: &[u32]) -> Self {
        let words = || default.to_vec();
        Self {
            latched: words(),
            fresh: 0,
            delay: 0,
            value: words(),
            before: words(),
            log: VecDeque::new(),
            past: VecDeque::new(),
            newest: Tick::ZERO,
        }
    }

    /// A tick is run: what is set now is the input of the first tick after the delay, and of those on the way there that have none.
    /// Where the delay has shrunk, they have.
    pub(crate) fn fold(&mut self, tick: Tick) {
        let first = self.past.back().map_or(tick, |last| last.0.plus(1)).max(tick);
        self.fresh = 0;
        for i in first.0..=tick.0 + self.delay as u64 {
            let spare = if self.past.len() > KEPT { self.past.pop_front() } else { None };
            let mut words = spare.map(|past| past.1).unwrap_or_default();
            words.clone_from(&self.latched);
            self.past.push_back((Tick(i), words));
            self.fresh += 1;
        }
        std::mem::swap(&mut self.before, &mut self.value);
        let due = self.past.iter().rev().find(|past| past.0 <= tick);
        self.value.copy_from_slice(due.map_or(&self.latched, |due| &due.1));
    }

    /// The input of a tick that was run lately, and the one before it; of one that was left out, what held then.
    pub(crate) fn at(&self, tick: Tick) -> (&[u32], &[u32]) {
        let after = self.past.partition_point(|past| past.0 <= tick);
        let of = |i: Option<usize>| i.and_then(|i| self.past.get(i)).map_or(&self.before[..], |past| &past.1);
        (of(after.checked_sub(1)), of(after.checked_sub(2)))
    }

    /// Notes the inputs that the tick which is run has added, to be sent; it is run `ahead` of the session. Ticks that were skipped
    /// had none, and neither have those before them any more that are not sent yet: a packet holds ticks in a row.
    pub(crate) fn log(&mut self, ahead: i64, behind: u32) {
        let (past, log) = (&self.past, &mut self.log);
        for (i, (tick, input)) in past.iter().skip(past.len() - self.fresh).enumerate() {
            if *tick != self.newest.plus(1) {
                log.clear();
            }
            let used = if log.len() == limits::INPUT_WINDOW { log.pop_front() } else { None };
            let mut words = used.map(|logged| logged.words).unwrap_or_default();
            words.clone_from(input);
            // what the input answers was drawn when it was set
            let since = drawn::UNITS * (self.delay + 1 + i - self.fresh) as u32;
            let behind = if behind == drawn::UNTOLD { behind } else { (behind + since).min(limits::BEHIND_UNITS) };
            log.push_back(Logged { words, ahead, behind });
            self.newest = *tick;
        }
    }

    /// The newest tick whose input was noted.
    pub(crate) fn newest(&self) -> Tick {
        self.newest
    }

    /// Is there nothing that the host has not confirmed?
    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// The host has all up to `tick`; says how far ahead that one was run, if it was not confirmed before.
    pub(crate) fn confirm(&mut self, tick: Tick) -> Option<i64> {
        let waiting = self.newest.since(tick) as usize;
        let mut ahead = None;
        while self.log.len() > waiting {
            ahead = self.log.pop_front().map(|logged| logged.ahead);
        }
        ahead
    }

    /// Writes a packet of at most `limit` bits: all that is not confirmed, or the newer part of it, and a confirmation of frames.
    pub(crate) fn write(&self, entry: &InputEntry, frames: Option<Tick>, limit: usize, w: &mut BitWriter) {
        let mut count = self.log.len();
        loop {
            w.clear();
            self.write_newest(entry, frames, count, w);
            // one always fits: see `limits::COMPONENT_BITS`
            if w.len() <= limit || count <= 1 {
                return;
            }
            count /= 2;
        }
    }

    fn write_newest(&self, entry: &InputEntry, frames: Option<Tick>, count: usize, w: &mut BitWriter) {
        let mut inputs = self.log.iter().skip(self.log.len() - count).map(|logged| &logged.words[..]);
        let Some(mut before) = inputs.next() else { return };
        UpHead { frames, inputs: Some(InputHead { newest: self.newest, before: count as u64 - 1 }) }.write(w);
        entry.layout.write(before, None, 0, w);
        for input in inputs {
            w.flag(input == before);
            if input != before {
                entry.layout.write(input, Some(before), 1, w);
            }
            before = input;
        }
        drawn::write(self.log.iter().skip(self.log.len() - count).map(|logged| logged.behind), w);
    }
}

/// Reads the inputs of a packet after its head into `words`, and what was drawn in their ticks into `behind`, the oldest first; the
/// whole packet, or nothing of it is of use.
pub(crate) fn read(
    entry: &InputEntry,
    head: InputHead,
    r: &mut BitReader<'_>,
    words: &mut Vec<u32>,
    behind: &mut Vec<u32>,
) -> Result<(), BitError> {
    let stride = entry.layout.words();
    words.clear();
    words.resize(stride * (head.before as usize + 1), 0);
    let (mut before, mut rest) = words.split_at_mut(stride);
    entry.layout.read(None, 0, r, before)?;
    let valid = |input: &[u32]| if (entry.is_valid)(input) { Ok(()) } else { Err(BitError::OutOfRange) };
    valid(before)?;
    for _ in 0..head.before {
        let (input, after) = rest.split_at_mut(stride);
        if r.flag()? {
            input.copy_from_slice(before);
        } else {
            entry.layout.read(Some(before), 1, r, input)?;
            valid(input)?;
        }
        (before, rest) = (input, after);
    }
    drawn::read(head.before as usize + 1, r, behind)?;
    r.clone().finish()
}

#[cfg(test)]
#[path = "own_tests.rs"]
mod tests;
