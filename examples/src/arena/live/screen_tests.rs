//! What is done to a terminal is undone, in whatever way the view ends.

use super::{Screen, Tty};
use crate::live::Viewer;
use crate::live::snapshot::Snapshot;
use ratatui::Viewport;
use ratatui::layout::Rect;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex};

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const HIDE: &str = "\x1b[?25l";
const SHOW: &str = "\x1b[?25h";
/// Not written, but done between what is.
const RAW: &str = "<raw>";
const COOKED: &str = "<cooked>";
const TOLD: &str = "<the panic is told>";

/// Notes what is written and done, in order.
#[derive(Clone, Default)]
struct Paper {
    text: Arc<Mutex<Vec<u8>>>,
    /// Keys cannot come raw; or nothing can be written.
    fails: (bool, bool),
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).unwrap()
    }

    fn note(&self, what: &str) {
        self.text.lock().unwrap().extend(what.bytes());
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.fails.1 {
            return Err(io::Error::other("it is gone"));
        }
        self.text.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tty for Paper {
    type Out = Self;

    fn out(&self) -> Self {
        self.clone()
    }

    fn set_raw(&self, raw: bool) -> io::Result<()> {
        if self.fails.0 {
            return Err(io::Error::other("no terminal"));
        }
        self.note(if raw { RAW } else { COOKED });
        Ok(())
    }

    fn viewport(&self) -> Viewport {
        Viewport::Fixed(Rect::new(0, 0, 80, 24))
    }
}

/// The hook of panics is one for all threads, so that these tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Runs it with a hook that says on the paper when a panic of this thread is told.
fn told_on(paper: &Paper, run: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (usual, here, me) = (take_hook(), paper.clone(), std::thread::current().id());
    let usual = Arc::new(usual);
    let others = usual.clone();
    set_hook(Box::new(move |info| if std::thread::current().id() == me { here.note(TOLD) } else { others(info) }));
    run();
    drop(take_hook());
    set_hook(Box::new(move |info| usual(info)));
}

/// Where each is, in this order, each once.
fn assert_once_in_order(text: &str, parts: &[&str]) {
    let places: Vec<usize> = parts.iter().filter_map(|part| text.find(part)).collect();
    assert!(places.len() == parts.len() && places.is_sorted(), "{parts:?} are at {places:?} of {text:?}");
    for part in parts {
        assert_eq!(text.matches(part).count(), 1, "{part:?} in {text:?}");
    }
}

#[test]
fn what_is_set_up_is_undone_the_other_way_round() {
    let paper = Paper::default();
    told_on(&paper, || {
        let mut screen = Screen::on(paper.clone()).unwrap();
        assert_eq!(paper.text(), format!("{RAW}{ENTER}"), "nothing else is done to it");
        screen.draw(&Snapshot::default()).unwrap();
        drop(screen);
    });
    let text = paper.text();
    assert_once_in_order(&text, &[RAW, ENTER, LEAVE, COOKED]);
    assert!(text.ends_with(&format!("{LEAVE}{SHOW}{COOKED}")), "{text:?}");
    assert!(text.contains(HIDE) && text.rfind(HIDE) < text.rfind(SHOW), "the cursor is there again");
}

#[test]
fn a_panic_gives_it_back_before_it_is_told_and_only_once() {
    let paper = Paper::default();
    told_on(&paper, || {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let mut screen = Screen::on(paper.clone()).unwrap();
            screen.draw(&Snapshot::default()).unwrap();
            panic!("in the middle of a game");
        }));
        assert!(ended.is_err());
        // a panic after that does nothing to a terminal that is not ours
        let again = catch_unwind(|| panic!("much later"));
        assert!(again.is_err());
    });
    let text = paper.text();
    let told = text.find(TOLD).unwrap();
    assert_once_in_order(&text[..told], &[RAW, ENTER, LEAVE, COOKED]);
    let after = &text[told..];
    assert_eq!(after.matches(TOLD).count(), 2, "{text:?}");
    assert!(!after.contains(LEAVE) && !after.contains(COOKED) && !after.contains(HIDE), "{text:?}");
}

#[test]
fn what_cannot_be_taken_is_left_as_it_was() {
    // keys cannot come raw: nothing is written
    let paper = Paper { fails: (true, false), ..Paper::default() };
    told_on(&paper, || assert!(Screen::on(paper.clone()).is_err()));
    assert_eq!(paper.text(), "");
    // nothing can be written: the keys come as before
    let paper = Paper { fails: (false, true), ..Paper::default() };
    told_on(&paper, || assert!(Screen::on(paper.clone()).is_err()));
    assert_eq!(paper.text(), format!("{RAW}{COOKED}"));
}
