//! The arena as a person or a script runs it: by its binary, over real sockets, with deadlines.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Long enough for a machine that does other things too.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running arena whose lines are read as they come. It is killed when dropped.
struct Arena {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Arena {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_arena"));
        let mut child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (to, lines) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        for pipe in [Box::new(out) as Box<dyn Read + Send>, Box::new(err)] {
            let to = to.clone();
            std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        }
        Self { child, lines, seen: Vec::new() }
    }

    /// A host and the address that it prints: alone on a line for scripts, at the end of a sentence for people. They go
    /// to two pipes, and either may be read first.
    fn host(args: &[&str]) -> (Self, String) {
        let mut host = Self::start(&[&["host", "--listen", "127.0.0.1:0", "--entities", "20"], args].concat());
        let line = host.wait_for("#");
        let address = line.split_whitespace().last().expect("a line with '#' in it is not blank");
        (host, address.to_owned())
    }

    fn join(address: &str) -> Self {
        Self::start(&["join", address, "--entities", "20", "--timeout", "2", "--json"])
    }

    /// The next line with `part` in it.
    fn wait_for(&mut self, part: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(why) => panic!("no line with {part:?} ({why}), but {:#?}", self.seen),
            }
        }
    }

    /// Its end: the status, and the lines that were not looked at yet.
    fn end(mut self) -> (ExitStatus, Vec<String>) {
        let deadline = Instant::now() + DEADLINE;
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => rest.push(line),
                Err(RecvTimeoutError::Disconnected) => break, // both pipes are closed: it has ended
                Err(RecvTimeoutError::Timeout) => panic!("it runs on: {:#?} {rest:#?}", self.seen),
            }
        }
        (self.child.wait().unwrap(), rest)
    }

    /// Ends it as SIGKILL does: without a word to anybody.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // it may have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn assert_equal((status, lines): &(ExitStatus, Vec<String>)) {
    assert!(status.success(), "{status}: {lines:#?}");
    assert!(lines.iter().any(|l| l.starts_with(r#"{"arena":true,"equal":true"#)), "{lines:#?}");
}

#[track_caller]
fn assert_fails(args: &[&str], words: &str) {
    let (status, lines) = Arena::start(args).end();
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    assert!(lines.iter().any(|l| l.contains(words)), "{words:?} is not in {lines:#?}");
}

#[test]
fn all_in_one_process_end_equal() {
    let args = ["--seconds", "3", "--guests", "2", "--entities", "60", "--loss", "0.05", "--seed", "5", "--json"];
    let end = Arena::start(&args).end();
    assert_equal(&end);
    let json = end.1.last().unwrap();
    for key in
        ["guests\":2,", "rtt_ms\":80,", "kbps_down_per_guest\":", "raw_kbps\":", "starved_pct\":", "quic_lost\":", "seed\":5}"]
    {
        assert!(json.contains(key), "{key} is not in {json}");
    }
    assert!(!json.contains("null"), "{json}");
    // three kinds of authority beside those of host and owner were at work, and all peers computed the same
    assert!(number(json, "\"rollback_compared\":") > 200 && number(json, "\"lockstep_compared\":") > 200, "{json}");
    assert!(number(json, "\"rollbacks\":") > 0 && number(json, "\"deepest\":") > 0, "{json}");
    assert_eq!(number(json, "\"ticks_differing\":"), 0, "{json}");
    let (given, sealed) = (number(json, "\"orders_given\":"), number(json, "\"orders_sealed\":"));
    assert!(given > 0 && given == sealed && number(json, "\"orders_lost\":") == 0, "{json}");
}

/// The number behind that key.
fn number(json: &str, key: &str) -> u32 {
    let rest = json.split_once(key).unwrap_or_else(|| panic!("{key} is not in {json}")).1;
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn in_a_stadium_each_guest_sees_what_is_nearest_and_all_end_equal() {
    let args =
        ["--stadium", "--nearest", "24", "--seconds", "3", "--guests", "3", "--entities", "400", "--loss", "0.05", "--json"];
    let end = Arena::start(&args).end();
    assert_equal(&end);
    let json = end.1.last().unwrap();
    // the nearest, its own player, and its own drone, which may be gone for a moment; of the relic it may have a part
    assert!((24..=28).contains(&number(json, "\"visible\":")), "{json}");
    assert!(number(json, "\"entities\":") > 300, "{json}");
}

#[test]
fn processes_end_equal_also_after_a_guest_was_killed_and_came_again() {
    let (mut host, address) = Arena::host(&["--seconds", "8", "--timeout", "2", "--json"]);
    let mut killed = Arena::join(&address);
    killed.wait_for("entities");
    let stays = Arena::join(&address);
    host.wait_for("guest 2");
    killed.kill();
    let comes_again = Arena::join(&address);
    host.wait_for("guest 3 (guest) has joined");
    host.wait_for("guest 1 has left: timed out");
    assert_equal(&stays.end());
    assert_equal(&comes_again.end());
    assert_equal(&host.end());
}

#[test]
fn a_guest_whose_host_is_killed_says_so_within_its_time_out() {
    let (mut host, address) = Arena::host(&["--seconds", "100"]);
    let mut guest = Arena::join(&address);
    guest.wait_for("entities");
    host.kill();
    let start = Instant::now();
    let (status, lines) = guest.end();
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    assert!(lines.iter().any(|l| l.contains("lost the host: timed out")), "{lines:#?}");
    // two seconds are its time-out; the rest is for a busy machine
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn what_cannot_work_is_said_clearly() {
    let print = "a".repeat(64);
    assert_fails(&["join", "127.0.0.1:4433"], "the part from '#' on is missing");
    assert_fails(&["join", &format!("127.0.0.1#{print}")], "the port is missing");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_fails(&["host", "--listen", &taken.local_addr().unwrap().to_string()], "cannot listen: ");
    let (_host, address) = Arena::host(&["--seconds", "100"]);
    let place = address.split_once('#').unwrap().0;
    assert_fails(&["join", &format!("{place}#{print}")], "the certificate is not the one that was pinned");
}
