//! What keys do: first each to its meaning, then that to what is wanted. Nothing here knows a terminal.

use crate::report::Conditions;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Milliseconds of one press.
const LATENCY_STEP: u32 = 20;
const LATENCY_MOST: u32 = 2000;
const JITTER_STEP: u32 = 5;
const JITTER_MOST: u32 = 500;
/// Hundredths of one press.
const LOSS_STEP: u32 = 5;
const LOSS_MOST: u32 = 90;
/// All of them run in this one thread.
pub(crate) const GUESTS_MOST: usize = 32;

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// More, or less.
    Latency(bool),
    Jitter(bool),
    Loss(bool),
    Guests(bool),
    /// The worlds further to the right, or to the left.
    Worlds(bool),
    Help,
    /// The game ends, and the worlds are compared. The second time: without that.
    End,
    /// At once.
    Stop,
}

/// What a key means, if anything.
pub(crate) fn action(key: KeyEvent) -> Option<Action> {
    // some terminals tell of keys that are let go, too
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Stop);
    }
    Some(match key.code {
        KeyCode::Char('l') => Action::Latency(true),
        KeyCode::Char('L') => Action::Latency(false),
        KeyCode::Char('j') => Action::Jitter(true),
        KeyCode::Char('J') => Action::Jitter(false),
        KeyCode::Char('p') => Action::Loss(true),
        KeyCode::Char('P') => Action::Loss(false),
        KeyCode::Char('g' | '+') => Action::Guests(true),
        KeyCode::Char('G' | '-') => Action::Guests(false),
        KeyCode::Right | KeyCode::Tab => Action::Worlds(true),
        KeyCode::Left | KeyCode::BackTab => Action::Worlds(false),
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::Help,
        KeyCode::Char('q') | KeyCode::Esc => Action::End,
        _ => return None,
    })
}

/// What the person at the keys wants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) conditions: Conditions,
    pub(crate) guests: usize,
    pub(crate) skipped: usize,
    pub(crate) help: bool,
    /// The game is to end.
    pub(crate) end: bool,
    /// The program is to end.
    pub(crate) stop: bool,
}

impl Wishes {
    /// Those of the command line.
    pub(crate) fn new(conditions: Conditions, guests: usize) -> Self {
        Self { conditions, guests, skipped: 0, help: false, end: false, stop: false }
    }

    /// Takes one more wish into account.
    pub(crate) fn apply(&mut self, action: Action) {
        let c = &mut self.conditions;
        match action {
            Action::Latency(more) => c.latency = step(c.latency, more, LATENCY_STEP, LATENCY_MOST),
            Action::Jitter(more) => c.jitter = step(c.jitter, more, JITTER_STEP, JITTER_MOST),
            Action::Loss(more) => {
                let hundredths = (c.loss * 100.0).round() as u32;
                c.loss = f64::from(step(hundredths, more, LOSS_STEP, LOSS_MOST)) / 100.0;
            }
            // no more come in once the worlds are compared
            Action::Guests(_) if self.end => {}
            Action::Guests(true) if self.guests >= GUESTS_MOST => {}
            Action::Guests(true) => self.guests += 1,
            Action::Guests(false) => self.guests = (self.guests - 1).max(1),
            Action::Worlds(true) => self.skipped = (self.skipped + 1).min(self.guests - 1),
            Action::Worlds(false) => self.skipped = self.skipped.saturating_sub(1),
            Action::Help => self.help = !self.help,
            // the key that closes the help does nothing else
            Action::End if self.help => self.help = false,
            Action::End if self.end => self.stop = true,
            Action::End => self.end = true,
            Action::Stop => self.stop = true,
        }
        self.skipped = self.skipped.min(self.guests - 1);
    }
}

/// The next multiple of the step; what is beyond the most already stays there.
fn step(value: u32, more: bool, step: u32, most: u32) -> u32 {
    match more {
        true => ((value / step + 1) * step).min(most.max(value)),
        false => (value.div_ceil(step)).saturating_sub(1) * step,
    }
}
