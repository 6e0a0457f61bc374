//! The terminal: taken over while there is a [`Screen`], and given back however that ends.

use super::Viewer;
use super::draw::draw;
use super::keys::{Action, action};
use super::snapshot::Snapshot;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io::{self, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A terminal, or what a test takes for one.
pub(super) trait Tty: Clone + Send + Sync + 'static {
    type Out: Write;

    /// What is written there is shown.
    fn out(&self) -> Self::Out;

    /// Do keys come one by one, unseen and without a meaning to the system, or as usual?
    ///
    /// # Errors
    /// If it is no terminal, or gone.
    fn set_raw(&self, raw: bool) -> io::Result<()>;

    /// What of it is drawn on.
    fn viewport(&self) -> Viewport;
}

/// The terminal that the program runs in.
#[derive(Clone, Copy)]
pub(super) struct Stdio;

impl Tty for Stdio {
    type Out = Stdout;

    fn out(&self) -> Stdout {
        io::stdout()
    }

    fn set_raw(&self, raw: bool) -> io::Result<()> {
        if raw { enable_raw_mode() } else { disable_raw_mode() }
    }

    fn viewport(&self) -> Viewport {
        Viewport::Fullscreen
    }
}

/// A terminal in our hands, until this is dropped.
struct Hold<T: Tty> {
    tty: T,
    /// It was not given back yet.
    held: Arc<AtomicBool>,
}

impl<T: Tty> Hold<T> {
    /// Takes it: keys come raw, and another screen is shown in place of the one with the shell's lines.
    fn take(tty: T) -> io::Result<Self> {
        let held = Arc::new(AtomicBool::new(false));
        // from here on a panic gives it back before it is told: what is told on the other screen is gone with it
        let before = std::panic::take_hook();
        let (here, still) = (tty.clone(), held.clone());
        std::panic::set_hook(Box::new(move |info| {
            give_back(&here, &still);
            before(info);
        }));
        let hold = Self { tty, held };
        hold.tty.set_raw(true)?;
        // if something fails from here on, it is given back as this is dropped
        hold.held.store(true, Ordering::SeqCst);
        execute!(hold.tty.out(), EnterAlternateScreen)?;
        Ok(hold)
    }
}

impl<T: Tty> Drop for Hold<T> {
    fn drop(&mut self) {
        give_back(&self.tty, &self.held);
    }
}

/// Once: a second time would put the cursor above what was told since.
fn give_back(tty: &impl Tty, held: &AtomicBool) {
    if held.swap(false, Ordering::SeqCst) {
        // a terminal that is gone needs nothing, and if one thing fails the others are done all the same
        let _ = execute!(tty.out(), LeaveAlternateScreen, Show);
        let _ = tty.set_raw(false);
    }
}

/// The terminal in our hands.
pub(super) struct Screen<T: Tty = Stdio> {
    terminal: Terminal<CrosstermBackend<T::Out>>,
    _hold: Hold<T>,
}

impl Screen {
    /// Takes the terminal over. A panic gives it back, too, before it is told.
    ///
    /// # Errors
    /// If this is no terminal after all.
    pub(super) fn open() -> io::Result<Self> {
        Self::on(Stdio)
    }
}

impl<T: Tty> Screen<T> {
    pub(super) fn on(tty: T) -> io::Result<Self> {
        let (out, viewport) = (tty.out(), tty.viewport());
        let hold = Hold::take(tty)?;
        let terminal = Terminal::with_options(CrosstermBackend::new(out), TerminalOptions { viewport })?;
        Ok(Self { terminal, _hold: hold })
    }
}

impl<T: Tty> Viewer for Screen<T> {
    fn actions(&mut self) -> io::Result<Vec<Action>> {
        let mut actions = Vec::new();
        while event::poll(Duration::ZERO)? {
            // another size needs nothing: the next picture asks for it
            if let Event::Key(key) = event::read()? {
                actions.extend(action(key));
            }
        }
        Ok(actions)
    }

    fn draw(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, snapshot)).map(drop)
    }
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
