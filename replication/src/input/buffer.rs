//! A host's buffer of one guest's inputs.

use super::{InputReport, Source, drawn, due_nanos};
use std::time::Duration;
use tidelock_netcore::input::{EARLINESS_MICROS, Feedback, InputHead};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Slots of the ring. One for each tick that may still be run.
const SLOTS: usize = limits::INPUT_AHEAD as usize;
/// How much later than a packet's newest input its older ones count. They are late because packets were lost, or because the
/// guest's program stood still: a lead that covers every such hole would be long for the sake of what is repeated anyway.
const HOLE: i128 = 100_000_000;

/// Where the host is when packets are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The last tick that was run.
    pub(crate) ran: Tick,
    /// The session's time.
    pub(crate) time: Duration,
    /// Ticks per second.
    pub(crate) rate: u32,
}

impl Moment {
    /// The session's tick, whether it was run or not.
    fn tick(self) -> Tick {
        crate::present::session_ticks(self.time, self.rate).0
    }

    /// The last tick that will not be run any more: after a stall, more than what was run.
    fn closed(self) -> Tick {
        self.ran.max(self.tick().minus(limits::CATCH_UP_TICKS))
    }

    /// How early an input of `tick` is that comes now, in nanoseconds. It is in time as long as its tick has not been run, however
    /// long the host's frames are.
    fn earliness(self, tick: Tick) -> i128 {
        let now = self.time.as_nanos() as i128;
        due_nanos(tick, self.rate) - now.min(due_nanos(self.ran.plus(1), self.rate))
    }
}

/// Inputs that arrived and were not used yet, and what is used now. Holds [`SLOTS`] inputs from the first packet on, whatever comes.
pub(crate) struct InputBuffer {
    words: usize,
    /// By tick modulo [`SLOTS`]: whose input it is.
    ticks: Vec<Option<Tick>>,
    /// By slot: the input.
    ring: Vec<u32>,
    /// By slot: how far behind its tick the guest drew, see [`drawn`].
    drawn: Vec<u32>,
    /// The same of the input that is used now.
    behind: u32,
    /// The newest tick whose input arrived.
    newest: Option<Tick>,
    /// The input that was folded in last, and the one before it.
    value: Vec<u32>,
    before: Vec<u32>,
    source: Source,
    report: InputReport,
    /// The least earliness since the last feedback, in nanoseconds.
    least: Option<i128>,
    /// [`InputReport::missed`] as it was told last.
    told: u64,
}

impl InputBuffer {
    /// `default`: the words of an input of which nothing is known.
    pub(crate) fn new(default: &[u32]) -> Self {
        Self {
            words: default.len(),
            ticks: Vec::new(),
            ring: Vec::new(),
            drawn: Vec::new(),
            behind: drawn::UNTOLD,
            newest: None,
            value: default.to_vec(),
            before: default.to_vec(),
            source: Source::Absent,
            report: InputReport::default(),
            least: None,
            told: 0,
        }
    }

    /// Takes a packet's inputs, the oldest first, and what was drawn then, if that is told. Those outside of what can still be used
    /// are counted and change nothing.
    pub(crate) fn take(&mut self, head: InputHead, inputs: &[u32], drawn: &[u32], at: Moment) {
        debug_assert_eq!(inputs.len(), self.words * (head.before as usize + 1));
        if head.newest > at.tick().max(at.ran).plus(limits::INPUT_AHEAD) {
            self.report.useless += 1;
            return;
        }
        if self.ticks.is_empty() {
            self.ticks = vec![None; SLOTS];
            self.ring = vec![0; SLOTS * self.words];
            self.drawn = vec![drawn::UNTOLD; SLOTS];
        }
        let known = self.newest;
        let mut oldest = None;
        for i in 0..=head.before as usize {
            let tick = head.oldest().plus(i as u64);
            if known.is_none_or(|known| tick > known) {
                oldest = oldest.or(Some(tick));
                self.report.late += u64::from(tick <= at.ran);
            }
            if tick > at.closed() && tick.since(at.closed()) <= limits::INPUT_AHEAD {
                let behind = drawn.get(i).copied().unwrap_or(drawn::UNTOLD);
                self.put(tick, &inputs[i * self.words..(i + 1) * self.words], behind);
            }
        }
        // a host that stood still cannot say what would have been in time
        if let Some(oldest) = oldest.filter(|_| at.closed() == at.ran) {
            let earliness = at.earliness(oldest).max(at.earliness(head.newest) - HOLE);
            self.least = Some(self.least.map_or(earliness, |least| least.min(earliness)));
        }
        self.newest = self.newest.max(Some(head.newest));
    }

    /// The first word counts: what a guest says of a tick cannot be changed afterwards.
    fn put(&mut self, tick: Tick, input: &[u32], behind: u32) {
        let slot = tick.0 as usize % SLOTS;
        if self.ticks[slot] != Some(tick) {
            self.ticks[slot] = Some(tick);
            self.drawn[slot] = behind;
            self.ring[slot * self.words..(slot + 1) * self.words].copy_from_slice(input);
        }
    }

    /// The host runs a tick: what is its input? `repeat`: ticks for which the last one is repeated.
    pub(crate) fn fold(&mut self, tick: Tick, repeat: u64) {
        let slot = tick.0 as usize % SLOTS;
        if self.ticks.get(slot).copied().flatten() == Some(tick) {
            std::mem::swap(&mut self.before, &mut self.value);
            self.value.copy_from_slice(&self.ring[slot * self.words..(slot + 1) * self.words]);
            self.behind = self.drawn[slot];
            self.source = Source::Arrived;
            self.report.folded = Some(tick);
            return;
        }
        self.report.missed += u64::from(self.newest.is_some());
        self.source = match self.report.folded.map(|folded| tick.since(folded)) {
            Some(age) if age <= repeat => {
                self.report.repeated += 1;
                Source::Repeated(age as u32)
            }
            _ => Source::Absent,
        };
    }

    /// The words of the input now, or none if it is absent; those before it; and where it comes from.
    pub(crate) fn current(&self) -> (Option<&[u32]>, &[u32], Source) {
        match self.source {
            Source::Absent => (None, &self.value, self.source),
            Source::Repeated(_) => (Some(&self.value), &self.value, self.source),
            Source::Arrived | Source::Own => (Some(&self.value), &self.before, self.source),
        }
    }

    /// How far behind the tick the guest draws, in units of [`drawn`]: as it said of that tick, or of the one that is repeated.
    pub(crate) fn behind(&self) -> Option<u32> {
        (self.source != Source::Absent && self.behind != drawn::UNTOLD).then_some(self.behind)
    }

    /// What is to be told to the guest, if there is anything new.
    pub(crate) fn feedback(&mut self) -> Option<Feedback> {
        let newest = self.newest?;
        if self.least.is_none() && self.told == self.report.missed {
            return None;
        }
        let micros = self.least.take().map(|nanos| (nanos / 1000).clamp(-MICROS_MAX, MICROS_MAX) as i64);
        self.report.earliness = micros.or(self.report.earliness);
        self.told = self.report.missed;
        let earliness = micros.map(|micros| micros.div_euclid(EARLINESS_MICROS) as i16);
        Some(Feedback { newest, earliness, missed: self.report.missed as u16 })
    }

    pub(crate) fn report(&self) -> InputReport {
        self.report
    }
}

/// What fits [`Feedback::earliness`], eight seconds.
const MICROS_MAX: i128 = i16::MAX as i128 * EARLINESS_MICROS as i128;

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
