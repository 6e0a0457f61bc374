//! Where a peer is in the session's time.

use crate::policy::Timeline;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// Where a peer is in the session's time.
#[derive(Default)]
pub(crate) struct Ticks {
    /// The program's time at the last call.
    pub(crate) now: Duration,
    /// The program's time at the last call of [`receive`](crate::Peer::receive), and from the one before it to that.
    received: (Duration, Duration),
    /// The program stood still before this call: what is there has lain there, one cannot know for how long.
    pub(crate) stood_still: bool,
    /// The session's time at `now`; `None` before there is one.
    pub(crate) session: Option<Duration>,
    /// A host's own time when its session began.
    pub(crate) began: Option<Duration>,
    /// The last tick that was run, or skipped.
    pub(crate) step: Tick,
    /// The session's tick that what was captured then belongs to: the same, but for guests whose ticks run ahead.
    pub(crate) tick: Tick,
    /// The tick of the last step that was asked for, on its own timeline: one before `step` when it was run again.
    pub(crate) ran: Tick,
    /// The game is running it, as far as is known.
    pub(crate) open: bool,
    /// Whose step that was.
    pub(crate) line: Timeline,
    /// Steps of other timelines that belong to the session's step before, where one save holds all of them.
    pub(crate) with: VecDeque<(Timeline, Tick, bool)>,
    /// The tick that is due.
    pub(crate) due: Tick,
    pub(crate) last_send: Tick,
    /// The tick of the last capture of the whole world.
    pub(crate) captured: Tick,
    /// The send ticks of the last two captures of the whole world.
    pub(crate) captures: (Tick, Tick),
    /// Ticks that a stall left out.
    pub(crate) skipped: u64,
}

/// A gap between two calls of [`receive`](crate::Peer::receive) is a stall from here on, if it is so much longer than the gap before
/// it that it is not just a slow program.
const STALL: (Duration, u32) = (Duration::from_millis(250), 2);

impl Ticks {
    /// [`receive`](crate::Peer::receive) is called.
    pub(crate) fn note_receive(&mut self) {
        let (last, usual) = self.received;
        let gap = self.now.saturating_sub(last);
        self.stood_still = gap >= STALL.0 && gap >= usual * STALL.1;
        self.received = (self.now, gap);
    }

    /// Before the tick after `start`.
    pub(crate) fn begin(start: Tick) -> Self {
        Self { step: start, ran: start, tick: start, due: start, last_send: start, captured: start, ..Self::default() }
    }
}
