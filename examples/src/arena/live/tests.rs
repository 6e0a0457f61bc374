//! Pictures of made-up snapshots, and keys without a keyboard.

use super::draw::draw;
use super::keys::{Action, GUESTS_MOST, Wishes, action};
use super::snapshot::{Dot, Line, Map, Snapshot, Sort, Stage};
use crate::report::Conditions;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

const CONDITIONS: Conditions = Conditions { latency: 80, jitter: 10, loss: 0.2, seed: 1 };

fn sample(guests: usize) -> Snapshot {
    let dots = vec![
        Dot { sort: Sort::Crate, x: -500.0, y: 500.0 },
        Dot { sort: Sort::Drone, x: 500.0, y: -500.0 },
        Dot { sort: Sort::Player, x: 0.0, y: 0.0 },
        Dot { sort: Sort::Unit, x: 0.0, y: 0.0 },
    ];
    let map = |name: String| Map { name, entities: 312, dots: dots.clone() };
    let line = |i: usize| Line {
        name: format!("bot {i}"),
        rtt_ms: 81.4,
        jitter_ms: 3.25,
        loss_pct: 19.96,
        down_kbps: 1234.0,
        up_kbps: 77.0,
        buffer_ms: 120.0,
        oldest_ms: 1130.0,
        corrections: 12.5,
        reruns: 180.0,
        trips: (0..200).map(|i| f64::from(i % 8)).collect(),
        downs: vec![5.0; 3],
    };
    Snapshot {
        stage: Stage::Playing,
        time: Duration::from_secs(83),
        left: Some(Duration::from_secs(7)),
        conditions: CONDITIONS,
        maps: std::iter::once("host".to_owned()).chain((1..=guests).map(|i| format!("bot {i}"))).map(map).collect(),
        lines: (1..=guests).map(line).collect(),
        traffic: vec![("pose".into(), 300.0), ("rest".into(), 150.0), ("health".into(), 0.0)],
        remarks: (1..=40).map(|i| format!("remark {i}")).collect(),
        skipped: 0,
        help: false,
    }
}

/// The rows of a picture.
fn picture(width: u16, height: u16, snapshot: &Snapshot) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, snapshot)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(row).collect()
}

#[track_caller]
fn row<'a>(picture: &'a [String], part: &str) -> &'a str {
    picture.iter().find(|row| row.contains(part)).unwrap_or_else(|| panic!("{part:?} is not in\n{}", picture.join("\n")))
}

#[test]
fn everything_has_its_place_at_80_by_24() {
    let picture = picture(80, 24, &sample(3));
    assert_eq!(picture[0].trim_end(), " arena  playing 1:23, 0:07 left  net: rtt 80 ms, jitter 10 ms, loss 20 %",);
    let top = &picture[1];
    for name in ["host", "bot 1", "bot 2", "bot 3"] {
        assert!(top.contains(&format!("┌ {name} ─")), "{top}");
    }
    assert!(row(&picture, "312 entities").matches("312 entities").count() == 4);
    assert_eq!(row(&picture, "guest "), "│guest    rtt ms jit ms loss % down kb  up kb buf ms old ms fix/s again/s      │");
    assert_eq!(row(&picture, "│bot 2 "), "│bot 2        81    3.2   20.0    1234     77    120   1130  12.5     180      │");
    assert!(row(&picture, "to all guests").contains(" to all guests: 450 kbit/s "));
    // the longest bar fills what there is, the next is half as long
    let bars = |part| row(&picture, part).matches('█').count();
    assert_eq!((bars("│pose"), bars("│rest"), bars("│health")), (16, 8, 0));
    // the newest remarks
    row(&picture, "remark 40");
    row(&picture, "remark 37");
    assert!(!picture.iter().any(|row| row.contains("remark 36")), "{}", picture.join("\n"));
    for width in [40, 79, 80, 129, 130] {
        let picture = self::picture(width, 24, &sample(3));
        assert!(width < 80 || picture[23].contains("q end"), "{}", picture[23]);
        assert!(width < 130 || picture[23].trim_end().ends_with("compare the worlds"), "{}", picture[23]);
    }
}

#[test]
fn what_is_on_a_map_is_where_it_is() {
    let mut snapshot = sample(0);
    snapshot.maps.truncate(1);
    let picture = picture(80, 24, &snapshot);
    let inner: Vec<Vec<char>> = picture.iter().map(|row| row.chars().collect()).collect();
    let bottom = picture.iter().position(|row| row.contains("312 entities")).unwrap();
    assert_eq!(inner[2][1], '⠁', "top left: {}", picture.join("\n"));
    assert_eq!(inner[bottom - 1][78], '⢀', "bottom right: {}", picture.join("\n"));
    // a letter is put into the middle of its cell, so that it may be one off
    let at = inner.iter().enumerate().find_map(|(y, row)| row.iter().position(|c| *c == 'P').map(|x| (x, y))).unwrap();
    assert!((38..=40).contains(&at.0) && at.1.abs_diff(2 + (bottom - 2) / 2) <= 1, "{at:?}\n{}", picture.join("\n"));
}

#[test]
fn a_large_terminal_has_room_for_curves() {
    let picture = picture(160, 50, &sample(3));
    let head = row(&picture, "guest ");
    assert!(head.contains("rtt of this last minute") && head.contains("traffic down"), "{head}");
    let line = row(&picture, "│bot 1 ");
    assert!(line.contains("▁▂▃▄▅▆▇█▁▂▃▄▅▆▇█▁"), "{line}");
    assert!(line.contains(" ███ "), "{line}");
    assert!(picture[0].contains("loss 20 %"), "{}", picture[0]);
    assert!(picture[49].contains("q end, compare the worlds"), "{}", picture[49]);
}

#[test]
fn worlds_that_have_no_room_are_told_of_and_come_by_key() {
    let mut snapshot = sample(7);
    let top = |snapshot: &Snapshot| picture(80, 24, snapshot)[1].clone();
    row(&picture(80, 24, &snapshot), " 4 more: ←→ ");
    assert!(top(&snapshot).contains("bot 3") && !top(&snapshot).contains("bot 4"));
    snapshot.skipped = 2;
    assert!(top(&snapshot).contains("host") && top(&snapshot).contains("bot 3") && top(&snapshot).contains("bot 5"));
    // further than the last ones it does not go
    snapshot.skipped = 6;
    assert!(top(&snapshot).contains("bot 5") && top(&snapshot).contains("bot 7"), "{}", top(&snapshot));
    row(&picture(80, 24, &snapshot), "and 5 more");
    row(&picture(80, 24, &snapshot), "│bot 7 ");
}

#[test]
fn the_help_lies_above_all() {
    let mut snapshot = sample(3);
    snapshot.help = true;
    for (width, height) in [(80, 24), (160, 50)] {
        let picture = picture(width, height, &snapshot);
        row(&picture, " help: ? or q closes it ");
        row(&picture, "q                 end, compare the worlds; twice: leave");
    }
}

#[test]
fn any_size_can_be_drawn_with_anything() {
    for (width, height) in [(0, 0), (1, 1), (3, 2), (10, 5), (19, 60), (300, 4), (300, 100)] {
        for guests in [0, 1, 40] {
            for help in [false, true] {
                let mut snapshot = sample(guests);
                (snapshot.help, snapshot.skipped) = (help, 100);
                let picture = picture(width, height, &snapshot);
                assert!(picture.len() == usize::from(height));
            }
        }
    }
    for stage in [Stage::Gathering, Stage::Comparing] {
        picture(80, 24, &Snapshot { stage, ..Snapshot::default() });
    }
}

fn press(code: KeyCode) -> Option<Action> {
    action(KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(wishes: &mut Wishes, keys: &str) {
    keys.chars().for_each(|key| wishes.apply(press(KeyCode::Char(key)).unwrap()));
}

#[test]
fn keys_have_meanings() {
    assert_eq!(press(KeyCode::Char('l')), Some(Action::Latency(true)));
    assert_eq!(press(KeyCode::Char('L')), Some(Action::Latency(false)));
    assert_eq!(press(KeyCode::Char('+')), Some(Action::Guests(true)));
    assert_eq!(press(KeyCode::Tab), Some(Action::Worlds(true)));
    assert_eq!(press(KeyCode::Left), Some(Action::Worlds(false)));
    assert_eq!(press(KeyCode::Esc), Some(Action::End));
    assert_eq!(press(KeyCode::Char('z')), None);
    assert_eq!(press(KeyCode::Enter), None);
    assert_eq!(action(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Action::Stop));
    assert_eq!(action(KeyEvent::new(KeyCode::Char('l'), KeyModifiers::CONTROL)), None);
    let released = KeyEvent::new_with_kind(KeyCode::Char('l'), KeyModifiers::NONE, KeyEventKind::Release);
    assert_eq!(action(released), None);
    // as terminals tell it
    let shifted = KeyEvent::new(KeyCode::Char('P'), KeyModifiers::SHIFT);
    assert_eq!(action(shifted), Some(Action::Loss(false)));
}

#[test]
fn the_network_becomes_worse_and_better_within_bounds() {
    let mut wishes = Wishes::new(Conditions { latency: 85, jitter: 0, loss: 0.02, seed: 9 }, 3);
    typed(&mut wishes, "lljp");
    assert_eq!(wishes.conditions, Conditions { latency: 120, jitter: 5, loss: 0.05, seed: 9 });
    typed(&mut wishes, "LJJPP");
    assert_eq!(wishes.conditions, Conditions { latency: 100, jitter: 0, loss: 0.0, seed: 9 });
    typed(&mut wishes, &"ljp".repeat(300));
    assert_eq!(wishes.conditions, Conditions { latency: 2000, jitter: 500, loss: 0.9, seed: 9 });
    // what the command line asked for beyond that is not taken back by asking for more
    wishes.conditions.latency = 5000;
    typed(&mut wishes, "l");
    assert_eq!(wishes.conditions.latency, 5000);
    typed(&mut wishes, &"LJP".repeat(300));
    assert_eq!(wishes.conditions, Conditions { latency: 0, jitter: 0, loss: 0.0, seed: 9 });
}

#[test]
fn guests_come_and_go_until_the_end() {
    let mut wishes = Wishes::new(CONDITIONS, 2);
    typed(&mut wishes, "gg");
    assert_eq!(wishes.guests, 4);
    for _ in 0..10 {
        wishes.apply(Action::Worlds(true));
    }
    assert_eq!(wishes.skipped, 3, "one stays");
    typed(&mut wishes, "GG---");
    assert_eq!((wishes.guests, wishes.skipped), (1, 0));
    typed(&mut wishes, &"g".repeat(100));
    assert_eq!(wishes.guests, GUESTS_MOST);
    typed(&mut wishes, "qG");
    assert_eq!((wishes.guests, wishes.end, wishes.stop), (GUESTS_MOST, true, false));
}

#[test]
fn the_first_end_compares_the_second_leaves_and_none_ends_the_help() {
    let mut wishes = Wishes::new(CONDITIONS, 2);
    typed(&mut wishes, "?q");
    assert_eq!((wishes.help, wishes.end), (false, false));
    typed(&mut wishes, "q");
    assert_eq!((wishes.end, wishes.stop), (true, false));
    typed(&mut wishes, "q");
    assert!(wishes.stop);
    let mut wishes = Wishes::new(CONDITIONS, 2);
    wishes.apply(Action::Help);
    wishes.apply(Action::Stop);
    assert!(wishes.stop, "at once");
}
