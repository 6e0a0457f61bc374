//! A whole live session over real sockets, looked at by a test that presses keys.

use super::draw::draw;
use super::keys::Action;
use super::snapshot::{Snapshot, Stage};
use super::{Viewer, play_before};
use crate::failure::Failure;
use crate::options::Cli;
use crate::run::All;
use clap::Parser;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

/// Pictures after which a session must be over, at 20 a second: for a machine that does other things too.
const DEADLINE: usize = 1500;

/// What was seen.
#[derive(Default)]
struct Seen {
    pictures: usize,
    /// The most guests, and the least after that.
    most: usize,
    then: usize,
    loss: f64,
    stages: Vec<Stage>,
    last: Option<Snapshot>,
}

impl Seen {
    fn heard(&self, part: &str) -> bool {
        self.last.iter().flat_map(|picture| &picture.remarks).any(|remark| remark.contains(part))
    }
}

/// A key, and when it is pressed.
type Key = (fn(&Seen) -> bool, Action);

/// Presses one key after the other, each at its time.
struct Person {
    seen: Arc<Mutex<Seen>>,
    keys: VecDeque<Key>,
    terminal: Terminal<TestBackend>,
}

impl Viewer for Person {
    fn actions(&mut self) -> io::Result<Vec<Action>> {
        let seen = self.seen.lock().unwrap();
        match self.keys.front() {
            Some((when, _)) if when(&seen) => Ok(self.keys.pop_front().map(|(_, action)| action).into_iter().collect()),
            _ => Ok(Vec::new()),
        }
    }

    fn draw(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame, snapshot)).unwrap();
        let mut seen = self.seen.lock().unwrap();
        seen.pictures += 1;
        assert!(seen.pictures < DEADLINE, "what is waited for does not come: {snapshot:?}");
        let guests = snapshot.maps.len() - 1;
        if guests >= seen.most {
            (seen.most, seen.then) = (guests, guests);
        }
        seen.then = seen.then.min(guests);
        seen.loss = seen.loss.max(snapshot.conditions.loss);
        if seen.stages.last() != Some(&snapshot.stage) {
            seen.stages.push(snapshot.stage);
        }
        seen.last = Some(snapshot.clone());
        Ok(())
    }
}

fn live(keys: &[Key]) -> (Result<(), Failure>, Seen) {
    let args = ["arena", "--guests", "2", "--entities", "60", "--units", "20", "--latency", "20", "--seed", "3"];
    let cli = Cli::parse_from(args);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let terminal = Terminal::new(TestBackend::new(120, 36)).unwrap();
    let person = Person { seen: seen.clone(), keys: keys.iter().copied().collect(), terminal };
    let mut all = All::new(&cli.options, true).unwrap();
    let result = play_before(person, &mut all).and_then(|_| {
        all.guests.iter().try_for_each(|guest| guest.verdict())?;
        all.host.verdict()
    });
    (result, std::mem::take(&mut *seen.lock().unwrap()))
}

#[test]
fn guests_and_loss_come_by_key_and_the_worlds_end_equal() {
    let keys: [Key; 6] = [
        (|seen| seen.heard("(bot 1) has joined") && seen.heard("(bot 2) has joined"), Action::Guests(true)),
        (|_| true, Action::Loss(true)),
        (|_| true, Action::Loss(true)),
        (|seen| seen.heard("guest 3 (bot 3) has joined"), Action::Guests(false)),
        (|seen| seen.heard("guest 3 has left"), Action::Guests(false)),
        (|seen| seen.then == 1, Action::End),
    ];
    let (result, seen) = live(&keys);
    assert!(result.is_ok(), "{result:?}");
    assert!(seen.stages.ends_with(&[Stage::Playing, Stage::Comparing]), "{:?}", seen.stages);
    assert_eq!((seen.most, seen.then), (3, 1));
    // 2 % at first
    assert!((seen.loss - 0.1).abs() < 1e-9, "{}", seen.loss);
    let last = seen.last.unwrap();
    let names: Vec<&str> = last.maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(names, ["host", "bot 1"]);
    // at the end nothing changes any more: both see the same number of things
    assert_eq!(last.maps[0].dots.len(), last.maps[1].dots.len());
}

#[test]
fn who_does_not_wait_for_the_comparison_is_told_so() {
    let (result, seen) = live(&[(|seen| seen.pictures >= 5, Action::Stop)]);
    assert!(matches!(result, Err(Failure::Stopped)), "{result:?}");
    assert!(seen.pictures >= 5);
}
