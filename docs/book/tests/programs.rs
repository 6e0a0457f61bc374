//! The programs that the book shows do what it says.
#![allow(missing_docs, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Long enough for a machine that does other things too.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running program whose lines are read as they come. It is killed when dropped.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_first_steps"));
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().expect("it starts");
        let (to, lines) = channel();
        let out = child.stdout.take().expect("its output");
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("it prints on")
    }

    /// Waits until it has told two places of a rover.
    fn draws(&mut self, words: &str) {
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
}

impl Drop for Running {
    fn drop(&mut self) {
        // it may have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn both_see_both_rovers_move() {
    let mut host = Running::start(&[]);
    let address = host.line();
    let mut guest = Running::start(&[&address]);
    for program in [&mut guest, &mut host] {
        program.draws("another's rover is at ");
        program.draws("my rover is at ");
    }
}

#[test]
fn the_page_shows_the_program() {
    let program = include_str!("../programs/first_steps.rs");
    let page = include_str!("../src/getting-started.md");
    assert!(
        page.contains(&format!("```rust,no_run\n{program}```")),
        "getting-started.md shows another program than programs/first_steps.rs"
    );
    let lines = format!("in one file of {} lines", program.lines().count());
    assert!(page.contains(&lines), "getting-started.md should say {lines:?}");
}
