//! The arena as a live view in a terminal: worlds side by side, figures of each link, and keys that make the network worse, or guests
//! more, while it runs.

mod draw;
mod keys;
mod look;
mod screen;
#[cfg(test)]
mod session_tests;
mod snapshot;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use crate::report::Report;
use crate::roles::Phase;
use crate::run::{All, GATHER, Pace, let_go};
use keys::{Action, Wishes};
use look::Looker;
use screen::Screen;
use snapshot::Snapshot;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// A picture is drawn every so many frames: 20 a second.
const FRAMES: u32 = 3;

/// Is there somebody to look at it?
pub(crate) fn is_possible() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Runs a host and its guests to their end, which the keys may bring about.
///
/// # Errors
/// [`Failure`]; [`Failure::Stopped`] if somebody did not want to wait for the comparison. A guest that was lost on the way is no
/// longer there to be compared, and fails the whole as it does without a view.
pub(crate) fn play(all: &mut All<'_>) -> Result<Report, Failure> {
    play_before(Screen::open().map_err(Failure::Terminal)?, all)
}

/// Somebody who looks at pictures and presses keys: a terminal, or a test.
trait Viewer {
    /// What was pressed since the last call.
    ///
    /// # Errors
    /// If the terminal is gone.
    fn actions(&mut self) -> io::Result<Vec<Action>>;

    /// Shows a picture.
    ///
    /// # Errors
    /// If the terminal is gone.
    fn draw(&mut self, snapshot: &Snapshot) -> io::Result<()>;
}

fn play_before(mut viewer: impl Viewer, all: &mut All<'_>) -> Result<Report, Failure> {
    let mut view = View { wishes: Wishes::new(all.conditions, all.guests.len()), looker: Looker::default(), lost: None };
    let mut pace = Pace::new();
    for frame in 0u32.. {
        let now = pace.frame();
        all.frame(now)?;
        for action in viewer.actions().map_err(Failure::Terminal)? {
            view.wishes.apply(action);
        }
        if view.wishes.stop {
            return Err(Failure::Stopped);
        }
        view.fulfil(all, now)?;
        view.hear(all, now);
        if all.host.phase == Phase::Gathering && now > GATHER {
            return Err(Failure::Missing(all.host.guests().len(), all.guests.len()));
        }
        if all.host.phase == Phase::Over {
            break;
        }
        if frame.is_multiple_of(FRAMES) {
            let snapshot = view.looker.snapshot(&all.host, &all.guests, &view.wishes, now)?;
            viewer.draw(&snapshot).map_err(Failure::Terminal)?;
        }
    }
    drop(viewer);
    let report = all.end(&mut pace)?;
    view.lost.map_or(Ok(report), Err)
}

/// What somebody wants, and is told.
struct View {
    wishes: Wishes,
    looker: Looker,
    /// Why the first guest that was lost was lost.
    lost: Option<Failure>,
}

impl View {
    /// Makes it so.
    fn fulfil(&mut self, all: &mut All<'_>, now: Duration) -> Result<(), Failure> {
        all.set_conditions(self.wishes.conditions);
        if self.wishes.end {
            all.host.end_game(now);
            return Ok(());
        }
        while all.guests.len() < self.wishes.guests {
            all.add_guest()?;
        }
        while all.guests.len() > self.wishes.guests {
            all.remove_guest();
        }
        Ok(())
    }

    /// What there is to be told and counted.
    fn hear(&mut self, all: &mut All<'_>, now: Duration) {
        for remark in all.host.remarks.drain(..) {
            self.looker.remark(now, &remark);
        }
        let mut at = 0;
        while let Some(guest) = all.guests.get(at) {
            match guest.outcome() {
                Some(Err(failure)) => {
                    self.looker.remark(now, &format!("{}: {failure}", guest.name));
                    self.lost.get_or_insert(failure);
                    let_go(all.guests.remove(at));
                    // if it was the last one, another comes
                    self.wishes.guests = all.guests.len().max(1);
                }
                _ => at += 1,
            }
        }
        self.looker.look(&all.host, &mut all.guests, now);
    }
}
