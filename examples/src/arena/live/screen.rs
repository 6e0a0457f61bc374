//! The terminal: taken over while there is a [`Screen`], and given back however that ends.

use super::Viewer;
use super::draw::draw;
use super::keys::{Action, action};
use super::snapshot::Snapshot;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use std::io;
use std::time::Duration;

/// The terminal in our hands.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Takes the terminal over. A panic gives it back, too, before it is told.
    ///
    /// # Errors
    /// If this is no terminal after all.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { terminal: ratatui::try_init()? })
    }
}

impl Viewer for Screen {
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

impl Drop for Screen {
    fn drop(&mut self) {
        // a panic has given it back already; a second time would put the cursor above what was told
        if !std::thread::panicking() {
            // a terminal that is gone needs nothing
            let _ = ratatui::try_restore();
        }
    }
}
