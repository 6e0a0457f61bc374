//! Programs that a test runs beside each other, and reads the lines of: the examples', the book's, and those in C.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long a line is waited for: long enough for a machine that does other things too.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A running program whose lines are read as they come. It is killed when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts a program.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (to, lines) = channel();
        let out = child.stdout.take().expect("it has just been asked for");
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Self { child, lines }
    }

    /// The next line that it prints.
    ///
    /// # Panics
    /// If it ends, or prints none for [`DEADLINE`].
    pub fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("it prints on")
    }

    /// The lines that it has printed by now; waits for the first of them for at most so long.
    pub fn lines(&self, wait: Duration) -> Vec<String> {
        self.lines.recv_timeout(wait).into_iter().chain(self.lines.try_iter()).collect()
    }

    /// Waits until it has told two places of what it begins with these words: until that moves.
    ///
    /// # Panics
    /// If it does not within [`DEADLINE`].
    pub fn draws(&self, words: &str) {
        let until = Instant::now() + DEADLINE;
        let mut first: Option<String> = None;
        while Instant::now() < until {
            let line = self.line();
            let Some(place) = line.strip_prefix(words) else { continue };
            match &first {
                Some(first) if first != place => return,
                _ => first = Some(place.to_owned()),
            }
        }
        panic!("{words:?} is not drawn moving");
    }

    /// Waits until it has ended, and says how.
    ///
    /// # Panics
    /// If the system cannot say.
    pub fn end(mut self) -> ExitStatus {
        self.child.wait().expect("a child is waited for")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // it may have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
