//! The session's time as a guest knows it, and round trips as both sides measure them.
//!
//! The host's clock is the session's. A guest asks now and then, and each answer is a [`Sample`]: the session's time was `host`
//! at some moment of a round trip, most likely its middle, certainly within it. The tighter the round trip, the less room for
//! error, so the tightest recent one decides. What the guest shows never goes back, and runs between 0.95 and 1.05 times as
//! fast as its own clock while it closes in on the estimate; only an error past [`JUMP_BOUND`] is made good at once, and counted.

use crate::limits;
use std::collections::VecDeque;
use std::time::Duration;

/// An error of the shown time up to this is slewed away; beyond, it is made good at once.
pub const JUMP_BOUND: Duration = Duration::from_millis(250);
/// How many samples the tightest is chosen from.
pub const WINDOW_SAMPLES: usize = 16;
/// How old a sample may be that still decides.
pub const WINDOW_TIME: Duration = Duration::from_secs(5);
/// The longest round trip that is believed; what is longer is a stall and says nothing.
pub const ROUND_TRIP_MAX: Duration = Duration::from_secs(60);

/// One question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Our own time when we asked.
    pub sent: Duration,
    /// The session's time when the host answered, by the host's word.
    pub host: Duration,
    /// Our own time when the answer came.
    pub received: Duration,
    /// How long the question lay at the host before the answer left, by the host's word.
    pub held: Duration,
}

impl Sample {
    /// The time on the way, both ways together; `None` if the sample is impossible: received before it was sent, or held for
    /// longer than it was away, or beyond [`ROUND_TRIP_MAX`], or past the longest session.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        if self.host.as_micros() >= u128::from(limits::SESSION_MICROS) {
            return None;
        }
        round_trip(self.sent, self.received, self.held)
    }

    fn offset(&self, round_trip: Duration) -> i128 {
        nanos(self.host) + nanos(round_trip) / 2 - nanos(self.received)
    }
}

/// The time on the way of a question sent at `sent` and answered at `received` (both by our own clock), of which the other
/// side claims to have held it for `held`. `None` if that cannot be. The claim can only make the result smaller, never below
/// zero, and answering late is open to any peer: so it buys nothing that waiting would not.
#[must_use]
pub fn round_trip(sent: Duration, received: Duration, held: Duration) -> Option<Duration> {
    let trip = received.checked_sub(sent)?.checked_sub(held)?;
    (trip <= ROUND_TRIP_MAX).then_some(trip)
}

/// A guest's estimate of the session's time.
///
/// Feed it every answer with [`observe`](Self::observe), ask it with [`session_time`](Self::session_time). It is monotonic as
/// long as the times that it is given do not go back.
#[derive(Clone, Debug)]
pub struct SessionClock {
    line: Line,
    /// When each sample came, its round trip and its offset.
    window: VecDeque<(Duration, Duration, i128)>,
    rtt: RttEstimator,
    refused: u32,
}

impl SessionClock {
    /// A clock that was told `session_time` by a message that came at `now` and was `rtt_guess / 2` on its way.
    #[must_use]
    pub fn start(session_time: Duration, now: Duration, rtt_guess: Duration) -> Self {
        let shown = session_time + rtt_guess.min(ROUND_TRIP_MAX) / 2;
        Self {
            line: Line::start(now, shown),
            window: VecDeque::with_capacity(WINDOW_SAMPLES),
            rtt: RttEstimator::default(),
            refused: 0,
        }
    }

    /// Takes an answer into account. Returns whether it was believed; impossible samples change nothing but a counter.
    pub fn observe(&mut self, sample: Sample) -> bool {
        let Some(trip) = sample.round_trip() else {
            self.refused = self.refused.saturating_add(1);
            return false;
        };
        self.rtt.observe(trip);
        if self.window.len() == WINDOW_SAMPLES {
            self.window.pop_front();
        }
        self.window.push_back((sample.received, trip, sample.offset(trip)));
        while self.window.len() > 1 && self.window[0].0 + WINDOW_TIME < sample.received {
            self.window.pop_front();
        }
        // Of equally tight ones the youngest: it has drifted least.
        if let Some(&(_, _, offset)) = self.window.iter().rev().min_by_key(|(_, trip, _)| *trip) {
            self.line.aim(sample.received, offset);
        }
        true
    }

    /// The session's time at `now`, our own time. Never less than it said before, for a `now` that is not earlier; for an earlier
    /// one than the last answer's, what it said then.
    #[must_use]
    pub fn session_time(&self, now: Duration) -> Duration {
        self.line.at(now)
    }

    /// Has an answer been believed yet? Before, the time is only what the greeting said.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        !self.window.is_empty()
    }

    /// What is to be added to our time to get the session's by the best estimate, in nanoseconds. The shown time follows it.
    pub(crate) fn offset(&self) -> i128 {
        self.line.offset
    }

    /// The round trip to the host, smoothed; zero before the first sample.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.rtt.smoothed()
    }

    /// How much round trips differ from the smoothed one, smoothed as well.
    #[must_use]
    pub fn jitter(&self) -> Duration {
        self.rtt.variation()
    }

    /// How often the error was past [`JUMP_BOUND`]: the shown time jumped ahead, or stood still until it was right again.
    #[must_use]
    pub fn jumps(&self) -> u32 {
        self.line.jumps
    }

    /// Samples that could not be.
    #[must_use]
    pub fn refused(&self) -> u32 {
        self.refused
    }
}

/// A shown time: it follows our own time and an offset, never goes back, and runs between 0.95 and 1.05 times as fast as our own
/// while it closes in; only past [`JUMP_BOUND`] it jumps ahead, or stands still until it is right again.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Where it bends: our time, and what is shown then.
    anchor: (Duration, Duration),
    /// What is to be added to our time, in nanoseconds.
    offset: i128,
    /// It stands still until what it follows has caught up.
    holding: bool,
    jumps: u32,
}

impl Line {
    /// Shows `shown` at `now`.
    pub(crate) fn start(now: Duration, shown: Duration) -> Self {
        Self { anchor: (now, shown), offset: nanos(shown) - nanos(now), holding: false, jumps: 0 }
    }

    /// What is shown at `now`; for a time before the last bend, what was shown there.
    pub(crate) fn at(&self, now: Duration) -> Duration {
        let elapsed = nanos(now.saturating_sub(self.anchor.0));
        let slow = if self.holding { elapsed } else { elapsed / SLEW };
        let correction = self.error(now.max(self.anchor.0), elapsed).clamp(-slow, elapsed / SLEW);
        duration(nanos(self.anchor.1) + elapsed + correction)
    }

    /// Bends towards another offset, from `now` on.
    pub(crate) fn aim(&mut self, now: Duration, offset: i128) {
        let now = now.max(self.anchor.0);
        self.anchor = (now, self.at(now));
        self.offset = offset;
        let error = self.error(now, 0);
        let bound = nanos(JUMP_BOUND);
        if error > bound {
            self.anchor.1 = duration(nanos(self.anchor.1) + error);
            self.holding = false;
            self.jumps = self.jumps.saturating_add(1);
        } else if error < -bound && !self.holding {
            // Ticks that have been shown cannot be taken back, so the jump back is to stand still.
            self.holding = true;
            self.jumps = self.jumps.saturating_add(1);
        } else if error >= 0 {
            self.holding = false;
        }
    }

    /// How far the line without correction would be behind, `elapsed` after the anchor.
    fn error(&self, now: Duration, elapsed: i128) -> i128 {
        nanos(now) + self.offset - (nanos(self.anchor.1) + elapsed)
    }
}

/// Smoothed round trip and its variation, by the rules of RFC 6298.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
}

impl RttEstimator {
    /// Takes one measured round trip into account, at most as [`ROUND_TRIP_MAX`].
    pub fn observe(&mut self, trip: Duration) {
        let trip = trip.min(ROUND_TRIP_MAX);
        self.latest = trip;
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(trip);
            self.variation = trip / 2;
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(trip)) / 4;
        self.smoothed = Some((smoothed * 7 + trip) / 8);
    }

    /// The smoothed round trip; zero before the first sample.
    #[must_use]
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// The smoothed deviation from it.
    #[must_use]
    pub fn variation(&self) -> Duration {
        self.variation
    }

    /// The last sample.
    #[must_use]
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// After how long without an answer a packet may be taken for lost: the smoothed round trip and four variations, at least
    /// `least`; a second before the first sample.
    #[must_use]
    pub fn timeout(&self, least: Duration) -> Duration {
        self.smoothed.map_or(UNKNOWN_TIMEOUT, |s| s + self.variation * 4).max(least)
    }
}

pub(crate) fn nanos(d: Duration) -> i128 {
    d.as_nanos() as i128
}

/// Times before the start of the session are its start: a guest may be admitted in the first instant.
pub(crate) fn duration(nanos: i128) -> Duration {
    let nanos = nanos.max(0) as u128;
    Duration::new((nanos / 1_000_000_000) as u64, (nanos % 1_000_000_000) as u32)
}

/// A correction is at most this part of the time in which it is made: 5 %.
pub(crate) const SLEW: i128 = 20;
const UNKNOWN_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
