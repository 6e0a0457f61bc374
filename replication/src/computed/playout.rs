//! When a guest runs a frame of lockstep: at the frame's own time and what frames usually take to come, so that steps go by as
//! evenly as they were sealed, however unevenly frames arrive.

use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// How fast a delay that is longer than needed shrinks, in parts of a second per second.
const SHRINK: f64 = 0.02;
/// Beyond this a frame is run as soon as it comes.
const MOST: Duration = Duration::from_secs(1);
/// Without a new frame for so long, this program or the host stood still, or the way was cut. What comes then says nothing of what
/// frames usually take.
const OUTAGE: Duration = Duration::from_millis(250);
/// It comes in several packets, but by then it is here.
const CAUGHT_UP: Duration = Duration::from_secs(2);
/// A frame that is no later than this, in seconds beyond the delay, is not one of those.
const CLOSE: f64 = 0.1;

/// The delay, as it is learned.
#[derive(Default)]
pub(crate) struct Playout {
    /// Seconds behind the session's clock.
    delay: f64,
    newest: Option<Tick>,
    at: Option<Duration>,
    /// When the newest came.
    came: Option<Duration>,
    /// Until then, at most, frames still come that an outage held up.
    behind: Option<Duration>,
}

impl Playout {
    /// The newest frame that is here, and the session's time. Once per frame of the program.
    pub(crate) fn note(&mut self, newest: Tick, session: Duration, rate: u32) {
        let passed = self.at.replace(session).map_or(Duration::ZERO, |at| session.saturating_sub(at));
        self.delay = (self.delay - passed.min(OUTAGE).as_secs_f64() * SHRINK).max(0.0);
        if self.newest.is_some_and(|known| newest <= known) {
            return;
        }
        self.newest = Some(newest);
        if self.came.replace(session).is_some_and(|at| session.saturating_sub(at) > OUTAGE) {
            self.behind = Some(session + CAUGHT_UP);
        }
        let late = session.as_secs_f64() - newest.0 as f64 / f64::from(rate);
        self.behind = self.behind.filter(|until| session < *until && late > self.delay + CLOSE);
        if self.behind.is_none() {
            self.delay = self.delay.max(late.min(MOST.as_secs_f64()));
        }
    }

    /// Is it time for a frame that is here?
    pub(crate) fn is_due(&self, frame: Tick, session: Duration, rate: u32) -> bool {
        // what a float of seconds leaves uncertain must not cost a frame of the program
        session.as_secs_f64() + 1e-6 >= frame.0 as f64 / f64::from(rate) + self.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tick: u64, millis: u64) -> Duration {
        Duration::from_nanos(tick * 1_000_000_000 / 60 + millis * 1_000_000)
    }

    #[test]
    fn the_latest_frame_of_late_decides() {
        let mut playout = Playout::default();
        for (tick, late) in [(100, 20), (101, 20), (102, 70), (103, 55), (104, 40)] {
            playout.note(Tick(tick), at(tick, late), 60);
        }
        assert!(!playout.is_due(Tick(104), at(104, 60), 60), "it would stop for the next one that is late");
        assert!(playout.is_due(Tick(104), at(104, 70), 60));
    }

    #[test]
    fn what_an_outage_held_up_does_not_count() {
        let mut playout = Playout::default();
        for tick in 1..=100 {
            playout.note(Tick(tick), at(tick, 50), 60);
        }
        // ten seconds later it is there in several packets
        for (i, newest) in [(0, 300), (1, 500), (2, 690)] {
            playout.note(Tick(newest), at(700 + i, 50), 60);
        }
        for tick in 703..=800 {
            playout.note(Tick(tick), at(tick, 50), 60);
        }
        assert!(playout.is_due(Tick(800), at(800, 55), 60), "{}", playout.delay);
        assert!(!playout.is_due(Tick(800), at(800, 40), 60), "{}", playout.delay);
    }

    #[test]
    fn a_delay_that_is_not_needed_any_more_shrinks() {
        let mut playout = Playout::default();
        playout.note(Tick(1), at(1, 200), 60);
        for tick in 2..=600 {
            playout.note(Tick(tick), at(tick, 20), 60);
        }
        assert!(playout.is_due(Tick(601), at(601, 25), 60), "{}", playout.delay);
        assert!(!playout.is_due(Tick(601), at(601, 15), 60));
    }
}
