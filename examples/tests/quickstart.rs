//! The first program that a person reads does what it says, in two processes and over a real socket.

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
        let mut command = Command::new(env!("CARGO_BIN_EXE_quickstart"));
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
        let (to, lines) = channel();
        let out = child.stdout.take().unwrap();
        std::thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("it prints on")
    }

    /// Waits until it has drawn that peer's rover at two places.
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
fn two_processes_draw_a_rover_that_one_of_them_steers() {
    let mut host = Running::start(&["host"]);
    let address = host.line();
    let mut guest = Running::start(&["join", &address]);
    guest.draws("guest 1: guest 1 is at");
    host.draws("host: guest 1 is at");
}

#[test]
fn one_process_shows_both_sides() {
    let mut both = Running::start(&[]);
    both.draws("guest 1: guest 1 is at");
    both.draws("host: guest 1 is at");
}

#[test]
fn it_is_one_short_file() {
    assert!(include_str!("../src/quickstart.rs").lines().count() <= 60);
}
