//! Golden bytes: every shape of what peers send, pinned in `golden/*.hex`, and read by the second reader.
//!
//! The scenes are played by real peers over the loopback. What arrives is written down with what the second reader makes of it, and
//! must be, byte for byte and word for word, what the file says. `UPDATE_GOLDEN=1` writes the files anew; look at the difference.

mod common;
mod golden_scenes;
mod second_decoder;

use golden_scenes::{Seen, all_scenes, described, plain_tables};
use second_decoder::bits::Bits;
use second_decoder::codings::{Coding, Forecast, MaskGuess};
use second_decoder::messages::{CONTROL, Event, read_control};
use second_decoder::packet::{Entry, Packet};
use second_decoder::rows::{List, Row};
use second_decoder::tables::{RAW, TRAINED};
use second_decoder::values::{Base, read_value};
use second_decoder::{Code, Presence, fields};
use std::fmt::Write;
use std::path::PathBuf;
use tidelock::layout::{FieldCode, LayoutBuilder, Meaning};
use tidelock::netcore::bits::BitWriter;
use tidelock::netcore::bulk::{Announce, Bulk};
use tidelock::netcore::control::{Control, Digest, Hello, SchemaEntry, SessionTables, Verdict, Welcome, decode, encode};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares with the file, or writes it.
fn pin(name: &str, found: &str) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "golden", name].iter().collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return std::fs::write(&path, found).expect("the file can be written");
    }
    let pinned =
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}; make it with UPDATE_GOLDEN=1", path.display()));
    let mut pairs = pinned.lines().zip(found.lines()).enumerate();
    if let Some((line, (pinned, found))) = pairs.find(|(_, (pinned, found))| pinned != found) {
        panic!("{name}:{}:\n  pinned {pinned}\n  found  {found}", line + 1);
    }
    assert_eq!(pinned.lines().count(), found.lines().count(), "{name}: the one is longer");
}

#[test]
fn scenes() {
    let mut seen = Vec::new();
    for (name, scene) in all_scenes() {
        let mut text = format!("# {}\n", scene.about);
        for found in &scene.seen {
            found.comment.lines().for_each(|line| writeln!(text, "# {line}").unwrap());
            writeln!(text, "{}", hex(&found.bytes)).unwrap();
        }
        pin(&format!("{name}.hex"), &text);
        seen.extend(scene.seen);
    }
    let packets: Vec<&Packet> = seen.iter().filter_map(|seen: &Seen| seen.packet.as_ref()).collect();
    let all = shapes().into_iter().chain(shapes_of_events());
    let missing: Vec<_> = all.filter(|(_, is)| !packets.iter().any(|p| is(p))).map(|(name, _)| name).collect();
    assert!(missing.is_empty(), "no golden packet has: {missing:?}");
    assert!(turns_over(&packets), "no rotation that goes on has another largest part at last");
}

type Shape = (&'static str, Box<dyn Fn(&Packet) -> bool>);

fn of_entries(is: impl Fn(&Entry, &Packet) -> bool + 'static) -> Box<dyn Fn(&Packet) -> bool> {
    Box::new(move |packet| packet.entries.iter().any(|entry| is(entry, packet)))
}

fn of_presence(is: impl Fn(&Presence) -> bool + 'static) -> Box<dyn Fn(&Packet) -> bool> {
    let schema = described();
    of_entries(move |entry, _| {
        entry.values.iter().filter(|v| v.component == 0).any(|v| is(&Presence::of_words(&schema, &v.words)))
    })
}

fn of_rows(is: impl Fn(&Row, &List, &Packet) -> bool + 'static) -> Box<dyn Fn(&Packet) -> bool> {
    Box::new(move |packet| packet.list.iter().any(|list| list.rows.iter().any(|row| is(row, list, packet))))
}

fn of_row_presence(is: impl Fn(&Presence) -> bool + 'static) -> Box<dyn Fn(&Packet) -> bool> {
    let schema = described();
    of_rows(move |row, _, _| row.values.iter().any(|v| v.component == 0 && is(&Presence::of_words(&schema, &v.words))))
}

fn of_events(is: impl Fn(&Event, &Packet) -> bool + 'static) -> Box<dyn Fn(&Packet) -> bool> {
    Box::new(move |packet| packet.events.iter().any(|event| is(event, packet)))
}

fn of_mode(mode: u64) -> Box<dyn Fn(&Packet) -> bool> {
    of_entries(move |entry, _| entry.masks.iter().any(|(.., found)| *found == Some(mode)))
}

fn of_coding(is: impl Fn(usize, &Coding) -> bool + 'static) -> Box<dyn Fn(&Packet) -> bool> {
    Box::new(move |packet| packet.codings.iter().any(|codings| codings.components.iter().any(|(c, coding)| is(*c, coding))))
}

/// A coding with which a mask was written as its difference to a guess that was right, or not.
fn of_guess(guess: MaskGuess, right: bool) -> Box<dyn Fn(&Packet) -> bool> {
    of_entries(move |entry, packet| {
        let of = |component: &usize| packet.codings.iter().any(|codings| codings.components[component].masks == guess);
        entry.masks.iter().any(|(component, _, mode)| entry.guessed && of(component) && mode.is_none() == right)
    })
}

/// A rotation that is guessed to go on, in a plain entry, and has another largest part than at the baseline.
fn turns_over(packets: &[&Packet]) -> bool {
    let turns =
        |packet: &&&Packet| packet.codings.iter().any(|c| c.components.get(&1).is_some_and(|c| c.forecast == Forecast::Motion));
    let largest = |row: u64| {
        let of = move |packet: &&Packet| packet.values().find(|v| v.component == 1 && v.row == row).map(|v| v.words[2]);
        packets.iter().filter(turns).filter_map(of).collect::<Vec<_>>()
    };
    (0..64).any(|row| largest(row).windows(2).any(|two| two[0] != two[1]))
}

fn shapes_of_events() -> Vec<Shape> {
    vec![
        ("an event beside entries", Box::new(|p| !p.entries.is_empty() && !p.events.is_empty())),
        ("events without entries", Box::new(|p| p.entries.is_empty() && p.events.len() > 1)),
        ("an event that goes off at once", of_events(|e, _| e.at.is_none())),
        ("an event of a tick to come", of_events(|e, p| e.at > Some(p.session_tick))),
        ("an event of a tick that was", of_events(|e, p| e.at.is_some_and(|at| at < p.session_tick))),
        ("a shared event that is for one alone, or the host's own", of_events(|e, _| e.index == 3 && e.shared.is_none())),
        ("a guest's event for all", of_events(|e, _| e.shared == Some(0))),
        ("a guest's event that the host hands on", of_events(|e, _| e.shared.is_some_and(|peer| peer > 0))),
        (
            "events of which one between them is through already",
            Box::new(|p| p.events.windows(2).any(|two| two[1].number > two[0].number + 1)),
        ),
    ]
}

/// What there must be a golden packet of.
fn shapes() -> Vec<Shape> {
    let ranges = |p: &Packet| p.ack.as_ref().map_or(0, Vec::len);
    let echo = |p: &Packet| p.stamp.map(|stamp| stamp.echo.is_some());
    vec![
        ("a mark without an acknowledgement", Box::new(move |p| p.entries.is_empty() && ranges(p) == 0)),
        ("a mark with one range", Box::new(move |p| p.entries.is_empty() && ranges(p) == 1)),
        ("a mark with several ranges", Box::new(move |p| p.entries.is_empty() && ranges(p) > 1)),
        ("a stamp without an echo", Box::new(move |p| echo(p) == Some(false))),
        ("a stamp with an echo", Box::new(move |p| echo(p) == Some(true))),
        ("not complete", Box::new(|p| p.complete < p.session_tick)),
        ("an absolute entry", of_entries(|e, _| e.base.is_none())),
        ("a delta", of_entries(|e, p| e.base.is_some() && e.base == p.base)),
        ("a baseline of an entry's own", of_entries(|e, p| e.own_base && e.base.is_some() && e.base != p.base)),
        ("no baseline in spite of the packet's", of_entries(|e, p| e.own_base && e.base.is_none() && p.base.is_some())),
        ("a sample age", of_entries(|e, _| e.sample_age > 0)),
        ("rows that had rested", of_entries(|e, _| e.rested.is_some())),
        (
            "rows of which one had rested, another not",
            of_entries(|e, _| e.rested.is_some_and(|rested| e.masks.iter().fold(0, |any, (_, rows, _)| any | rows) != rested)),
        ),
        ("a listed mask", of_mode(0)),
        ("a full mask", of_mode(1)),
        ("a mask by what is missing", of_mode(2)),
        ("a mask bit by bit", of_mode(3)),
        ("an entry in one bit", of_entries(|e, _| e.short)),
        ("masks that are not guessed in spite of the packet's baseline", of_entries(|e, _| !e.own_base && !e.guessed)),
        ("masks as they are", of_coding(|_, coding| coding.masks == MaskGuess::NoRows)),
        ("the rows of the baseline's send again", of_guess(MaskGuess::Baseline, true)),
        ("the rows of the baseline's send, but for some", of_guess(MaskGuess::Baseline, false)),
        ("the rows of the component before", of_guess(MaskGuess::Before, true)),
        ("numbers that go on", of_coding(|c, coding| c == 3 && coding.forecast == Forecast::Motion)),
        ("angles and rotations that go on", of_coding(|c, coding| c == 1 && coding.forecast == Forecast::Motion)),
        ("numbers that go on by a velocity", of_coding(|_, coding| coding.forecast == Forecast::Velocity)),
        ("tables, and no guess of values", of_coding(|_, c| c.forecast == Forecast::Still && c.tables.is_some())),
        ("usual tables", of_coding(|_, coding| coding.tables.is_none())),
        ("tables that differ by field", of_coding(|_, c| c.tables.iter().any(|t| t.windows(2).any(|two| two[0] != two[1])))),
        ("a trained table", of_coding(|_, c| c.tables.iter().flatten().any(|table| *table >= TRAINED))),
        ("the table in which all is absolute", of_coding(|_, c| c.tables.iter().any(|tables| tables.contains(&RAW)))),
        (
            "a baseline of an entry's own of components that go on in plain ones",
            of_entries(|e, p| {
                let goes_on = |c: &usize| p.codings.iter().any(|codings| codings.components[c].forecast != Forecast::Still);
                e.own_base && e.base.is_some() && e.masks.iter().any(|(component, ..)| goes_on(component))
            }),
        ),
        ("several entries", Box::new(|p| p.entries.len() > 1)),
        ("a far block", Box::new(|p| p.entries.windows(2).any(|two| two[1].block != two[0].block + 1))),
        ("the same block again", Box::new(|p| p.entries.windows(2).any(|two| two[1].block == two[0].block))),
        ("a list of rows", of_rows(|_, list, _| !list.rows.is_empty())),
        ("a list that is mixed", of_rows(|_, list, _| list.mixed)),
        ("a row that had rested in a list", of_rows(|row, list, _| list.rested && row.rested)),
        ("a row that had not rested among those that had", of_rows(|row, list, _| list.rested && !row.rested)),
        ("a row without a baseline", of_rows(|row, _, p| row.base.is_none() && p.base.is_some())),
        ("a row with the packet's baseline", of_rows(|row, _, p| !row.own_base && row.base.is_some() && row.base == p.base)),
        ("a row with a baseline of its own", of_rows(|row, _, p| row.own_base && row.base.is_some() && row.base != p.base)),
        ("a row with the components of the one before", of_rows(|row, _, _| !row.own_components)),
        ("an end that has only a name", of_row_presence(|p| p.life != 1 && p.owners.iter().all(|o| *o == (0, 0)))),
        ("an end of what is out of sight", of_row_presence(|p| p.life == 0)),
        ("an end of what was seen until then", of_row_presence(|p| p.life == 2)),
        ("an entity alive", of_presence(|p| p.life == 1)),
        ("an entity dead", of_presence(|p| p.life == 2)),
        ("a row that is free", of_presence(|p| p.life == 0)),
        ("an entity that jumped", of_presence(|p| p.cut > 0)),
        ("an entity that was handed over", of_presence(|p| p.owners.iter().any(|(owner, epoch)| *owner > 0 && *epoch > 0))),
        ("owners that differ by slot", of_presence(|p| p.owners[0].0 != p.owners[1].0)),
        ("presence without paint", of_presence(|p| p.life == 1 && p.components == 0b100)),
        ("presence with paint", of_presence(|p| p.life == 1 && p.components == 0b110)),
    ]
}

/// The second reader's name for a code.
fn same(code: FieldCode) -> Code {
    match code {
        FieldCode::Number { max, order } => Code::Number { max, order },
        FieldCode::Wide => Code::Wide,
        FieldCode::Wrapping { bits } => Code::Wrapping { bits },
        FieldCode::Choice { count } => Code::Choice { count },
        FieldCode::Float => Code::Float,
        FieldCode::Quat { bits } => Code::Quat { bits },
        FieldCode::Text { cap } => Code::Text { cap },
        FieldCode::Bytes { cap } => Code::Bytes { cap },
        FieldCode::Entity => Code::Entity,
        FieldCode::Maybe { fields } => Code::Maybe { fields },
    }
}

/// A table of codes, and two values; each is written absolutely, against itself, and against the other.
type Case = (&'static [FieldCode], [&'static [u32]; 2]);

const NUMBER: FieldCode = FieldCode::Number { max: 100_000, order: 4 };
const HAT: u32 = u32::from_le_bytes(*b"hat\0");
const CAFE: u32 = u32::from_le_bytes(*b"caf\xc3");

const CASES: &[Case] = &[
    (&[NUMBER], [&[50_000], &[50_123]]),
    (&[NUMBER], [&[0], &[100_000]]),
    (&[FieldCode::Number { max: u32::MAX, order: 0 }], [&[u32::MAX], &[u32::MAX - 4000]]),
    (&[FieldCode::Number { max: u32::MAX, order: 24 }], [&[0], &[u32::MAX]]),
    (&[FieldCode::Number { max: 0, order: 2 }], [&[0], &[0]]),
    (&[FieldCode::Wide], [&[1, 0], &[u32::MAX, 0x8000_0000]]),
    (&[FieldCode::Wrapping { bits: 10 }], [&[1020], &[2]]),
    (&[FieldCode::Wrapping { bits: 20 }], [&[0], &[1 << 19]]),
    (&[FieldCode::Choice { count: 1 }], [&[0], &[0]]),
    (&[FieldCode::Choice { count: 2 }], [&[0], &[1]]),
    (&[FieldCode::Choice { count: 3 }], [&[1], &[2]]),
    (&[FieldCode::Choice { count: 1025 }], [&[0], &[1024]]),
    (&[FieldCode::Float], [&[0], &[0x3fc0_0000]]),
    (&[FieldCode::Quat { bits: 8 }], [&[3, 127, 101, 127], &[3, 127, 100, 127]]),
    (&[FieldCode::Quat { bits: 8 }], [&[3, 127, 127, 127], &[0, 127, 127, 127]]),
    (&[FieldCode::Quat { bits: 16 }], [&[3, 32_767, 32_767, 32_767], &[3, 200, 32_767, 32_767]]),
    (&[FieldCode::Text { cap: 12 }], [&[0, 0, 0, 0], &[3, HAT, 0, 0]]),
    (&[FieldCode::Text { cap: 5 }], [&[5, CAFE, 0xa9], &[3, HAT, 0]]),
    (&[FieldCode::Bytes { cap: 5 }], [&[5, CAFE, 0xa9], &[2, 0xfffe, 0]]),
    (&[FieldCode::Entity], [&[0, 0], &[65_537, 0]]),
    (&[FieldCode::Entity], [&[255, 0], &[1, 0x8000_0000]]),
    (&[FieldCode::Maybe { fields: 1 }, NUMBER, NUMBER], [&[0, 0, 7], &[1, 50_000, 8]]),
    (&[FieldCode::Maybe { fields: 2 }, FieldCode::Maybe { fields: 1 }, NUMBER], [&[1, 0, 0], &[1, 1, 99_999]]),
    (&[FieldCode::Maybe { fields: 2 }, FieldCode::Maybe { fields: 1 }, FieldCode::Wide], [&[0, 0, 0, 0], &[1, 1, 5, 6]]),
];

#[test]
fn values() {
    let mut text = String::from("# single values: words <- the words at the baseline and its age: bits\n");
    for (codes, pair) in CASES {
        let mut builder = LayoutBuilder::new();
        let names: Vec<String> = (0..codes.len()).map(|i| format!("f{i}")).collect();
        codes.iter().zip(&names).for_each(|(code, name)| builder.field(name, *code, Meaning::Plain));
        let layout = builder.build().expect("a layout within the limits");
        let table: Vec<_> = names.iter().zip(*codes).map(|(name, code)| (name.as_str(), same(*code))).collect();
        let table = fields(&table);
        writeln!(text, "# {codes:?}").unwrap();
        for now in pair {
            let bases = pair.iter().flat_map(|base| [1, 2, 9, 62].map(|age| Some((*base, age))));
            for base in [None].into_iter().chain(bases) {
                let mut w = BitWriter::new();
                layout.write(now, base.map(|b| b.0), base.map_or(0, |b| b.1), &mut w);
                let (bytes, length) = (w.to_bytes(), w.len());
                let mut bits = Bits::new(&bytes);
                let read = read_value(&mut bits, &table, base.map(|(words, age)| Base { words, age }));
                assert_eq!((read.as_deref(), bits.position()), (Ok(*now), length), "{codes:?} {now:?} on {base:?}");
                let base = base.map_or("absolute".into(), |(words, age)| format!("{words:?} of age {age}"));
                writeln!(text, "# {now:?} <- {base}: {length}\n{}", hex(&bytes)).unwrap();
            }
        }
    }
    pin("values.hex", &text);
}

fn control_messages() -> Vec<Control> {
    let entry = |name: &str, digest| SchemaEntry { name: name.into(), digest };
    let parts = [entry("component spot", 0x0102_0304_0506_0708), entry("kind crate", u64::MAX)];
    let welcome = Welcome {
        version: 1,
        session: 0x0102_0304_0506_0708,
        epoch: 0,
        peer: 2,
        tick_rate: 60,
        time_us: 1_234_567,
        lease: 131_072,
        peers: vec![(0, "host".into()), (1, "iris".into())],
        tables: None,
    };
    let known = SessionTables { digest: 0x1122_3344_5566_7788, bytes: Vec::new() };
    let new = SessionTables { digest: plain_tables().digest(), bytes: plain_tables().to_bytes() };
    vec![
        Control::Hello(Hello::new(&[1], 0x1122_3344_5566_7788, &parts, "iris")),
        Control::Hello(Hello::new(&[1, 2, 300], 0, &[], "")),
        Control::Hello(Hello { tables: Some(0x1122_3344_5566_7788), ..Hello::new(&[1], 5, &[], "iris") }),
        Control::Welcome(Welcome { tables: Some(known), ..welcome.clone() }),
        Control::Welcome(Welcome { tables: Some(new), ..welcome.clone() }),
        Control::Welcome(welcome),
        Control::Joined { peer: 9, name: "iris".into() },
        Control::Left { peer: 9, code: 2, text: "be good".into() },
        Control::LeaseRequest,
        Control::Lease { first: 0x0102_0304_0506_0708 },
        Control::Digest(Digest { round: 4, parts: vec![(0, 1), (1, u64::MAX)] }),
        Control::Verdict(Verdict { round: 4, differing: vec![1, 63] }),
        Control::Verdict(Verdict { round: 5, differing: Vec::new() }),
    ]
}

#[test]
fn bulk() {
    let messages = [
        Bulk::Announce(Announce { topic: 3, id: 258, length: 16 << 20, digest: 0x1122_3344_5566_7788 }),
        Bulk::Announce(Announce { topic: 0, id: 1, length: 0, digest: 0x2d06_8005_38d3_94c2 }),
        Bulk::Piece { topic: 1, id: 7, offset: 300, bytes: b"ab" },
        Bulk::Word { topic: 0, id: u32::MAX, bytes: 2 },
    ];
    let mut text = String::from("# messages of the lane of large things, one of every kind and more\n");
    for message in messages {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        assert_eq!(Bulk::read(&bytes), Ok(message));
        writeln!(text, "# {message:?}\n{}", hex(&bytes)).unwrap();
    }
    pin("bulk.hex", &text);
}

#[test]
fn control() {
    let mut text = String::from("# control messages, one of every kind and more\n");
    let mut kinds = Vec::new();
    for message in control_messages() {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        assert_eq!(decode(&bytes), Ok(message.clone()));
        let (kind, _) = read_control(&bytes).expect("a control message");
        assert!(format!("{message:?}").starts_with(kind), "{kind} for {message:?}");
        kinds.push(kind);
        writeln!(text, "# {message:?}\n{}", hex(&bytes)).unwrap();
    }
    kinds.dedup();
    assert_eq!(kinds, CONTROL, "one of every kind");
    pin("control.hex", &text);
}
