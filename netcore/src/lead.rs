//! How far a guest's ticks run ahead of the session, so that its inputs are at the host when their tick is run there.
//!
//! For each tick the guest knows by how much it was ahead when the tick was run, and the host tells by how much the inputs of a
//! moment came early. The difference is what the way took: the network, the repair of losses, and the frames of both programs.
//! The lead is the worst of that over the last ten seconds and a little more. It is raised at once, by running ticks up to 5 %
//! faster, and lowered slowly, by up to 2 %: to be too early costs a little delay, to be too late costs inputs.
//!
//! No sum is kept of anything, so nothing builds up while a change is on its way, and the lead does not swing.

use crate::clock::{Line, SLEW, SessionClock, duration, nanos};
use crate::limits;
use std::collections::VecDeque;
use std::time::Duration;

/// For how long the worst moment decides.
pub const LEAD_MEMORY: Duration = Duration::from_secs(10);

/// A guest's led time: the session's, and a lead.
///
/// Once per frame, [`steer`](Self::steer); with every word of the host about inputs, [`note`](Self::note). The led time never
/// goes back, and its speed differs by at most 5 % from that of the guest's own clock, unless the session's clock jumps.
#[derive(Clone, Debug)]
pub struct Lead {
    line: Line,
    tick: i128,
    /// What the lead is to be, in nanoseconds.
    want: i128,
    /// What it is, but for what the session's clock still makes good.
    lead: i128,
    /// When it was steered last.
    steered: Duration,
    /// The worst way of each second that had any, the oldest first: the second, and nanoseconds.
    ways: VecDeque<(u64, i128)>,
}

impl Lead {
    /// A lead for a link whose round trip `clock` has just measured, with ticks of length `tick`: half the round trip, its
    /// variation as far as that is believable yet, a tick for the host's steps and one for the own.
    #[must_use]
    pub fn start(now: Duration, clock: &SessionClock, tick: Duration) -> Self {
        // of a first sample the variation is a mere guess: half the sample
        let jitter = clock.jitter().min(clock.rtt() / 8);
        let way = nanos(clock.rtt() / 2 + jitter) + nanos(tick);
        let mut lead = Self {
            line: Line::start(now, Duration::ZERO),
            tick: nanos(tick),
            want: 0,
            lead: 0,
            steered: now,
            ways: VecDeque::with_capacity(WAYS),
        };
        lead.ways.push_back((now.as_secs(), way));
        lead.want = lead.wanted();
        lead.lead = lead.want;
        lead.line = Line::start(now, duration(nanos(now) + clock.offset() + lead.want));
        lead
    }

    /// The led time at `now`: the tick that is due is the one that it has reached.
    #[must_use]
    pub fn time(&self, now: Duration) -> Duration {
        self.line.at(now)
    }

    /// By how much the led time is ahead of the session's best estimate, in nanoseconds.
    #[must_use]
    pub fn ahead(&self, now: Duration, clock: &SessionClock) -> i64 {
        let ahead = nanos(self.time(now)) - (nanos(now) + clock.offset());
        // centuries do not occur
        ahead.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// The host's word: inputs of a tick that was run `ahead` nanoseconds ahead of the session came `earliness` nanoseconds before
    /// it was too late.
    pub fn note(&mut self, now: Duration, ahead: i64, earliness: i64) {
        let way = i128::from(ahead) - i128::from(earliness);
        let second = now.as_secs();
        match self.ways.back_mut() {
            Some((last, worst)) if *last == second => *worst = way.max(*worst),
            _ => {
                if self.ways.len() == WAYS {
                    self.ways.pop_front();
                }
                self.ways.push_back((second, way));
            }
        }
        while self.ways.len() > 1 && self.ways[0].0 + LEAD_MEMORY.as_secs() < second {
            self.ways.pop_front();
        }
        self.want = self.wanted();
    }

    /// Moves the lead towards what it is to be, and follows the session's clock.
    pub fn steer(&mut self, now: Duration, clock: &SessionClock) {
        let passed = nanos(now.saturating_sub(self.steered));
        self.steered = self.steered.max(now);
        self.lead += (self.want - self.lead).clamp(-passed / LOWERING, passed / SLEW);
        self.line.aim(now, clock.offset() + self.lead);
    }

    fn wanted(&self) -> i128 {
        let worst = self.ways.iter().map(|(_, way)| *way).max().unwrap_or_default();
        let most = nanos(limits::LEAD_MAX).min(self.tick * limits::INPUT_WINDOW as i128);
        (worst + self.tick / 2).clamp(self.tick, most)
    }
}

/// A lead is lowered by at most this part of the time in which it is: 2 %.
const LOWERING: i128 = 50;
/// A second for each of [`LEAD_MEMORY`], and the one that is going on.
const WAYS: usize = LEAD_MEMORY.as_secs() as usize + 1;

#[cfg(test)]
#[path = "lead_tests.rs"]
mod tests;
