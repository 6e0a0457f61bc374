//! The worked examples of `docs/WIRE.md`: entries and values, byte for byte.

use crate::block::{Context, Entry, EntryBase, Masks};
use crate::layout::{FieldCode, Layout, LayoutBuilder, Meaning};
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::tick::Tick;

const COLUMNS: usize = 3;
const SEND: Tick = Tick(5);

fn hex(w: &BitWriter) -> String {
    w.to_bytes().iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

/// A position in centimetres: two numbers of 0 to 100 000, of order 4.
fn position() -> Layout {
    let mut l = LayoutBuilder::new();
    for name in ["x", "y"] {
        l.field(name, FieldCode::Number { max: 100_000, order: 4 }, Meaning::Grid { min: -500.0, step: 0.01 });
    }
    l.build().unwrap()
}

#[test]
fn one_entry_with_a_mask() {
    // rows 3, 4 and 10 of block 0, component 2, against the packet's baseline of send 3
    let masks: Masks = [(2, 1 << 3 | 1 << 4 | 1 << 10)].into_iter().collect();
    let entry = Entry { block: 0, base: EntryBase::Packet, sample_age: 0, masks, rested: 1 << 10 };
    let (layout, old) = (position(), [50_000, 50_000]);
    let values = [[50_010, 50_000], [49_990, 50_003], [50_000, 99_999]];
    let mut w = BitWriter::new();
    entry.write(&mut Context::default(), COLUMNS, SEND, &mut w);
    let head = w.len();
    for value in &values {
        layout.write(value, Some(&old), 2, &mut w);
    }
    w.flag(false);
    assert_eq!((head, w.len()), (30, 89), "bits of the head, and of all");
    assert_eq!(hex(&w), "13 21 03 25 0a 98 0c f0 7f 35 f4 00");

    let bytes = w.to_bytes();
    let (mut r, mut context) = (BitReader::new(&bytes), Context::default());
    assert_eq!(Entry::read(&mut context, COLUMNS, SEND, &mut r), Ok(Some(entry)));
    for value in &values {
        let mut words = [0; 2];
        layout.read(Some(&old), 2, &mut r, &mut words).unwrap();
        assert_eq!(words, *value);
    }
    assert_eq!(Entry::read(&mut context, COLUMNS, SEND, &mut r), Ok(None));
    r.finish().unwrap();
}

#[test]
fn two_entries_in_context() {
    // all of block 7 in components 0 and 1, then one row of block 8 on a baseline of its own and sampled 2 ticks ago
    let first = Entry {
        block: 7,
        base: EntryBase::Packet,
        sample_age: 0,
        masks: [(0, u64::MAX), (1, u64::MAX)].into_iter().collect(),
        rested: 0,
    };
    let base = EntryBase::Own(None);
    let second = Entry { block: 8, base, sample_age: 2, masks: [(0, 1), (1, 1)].into_iter().collect(), rested: 0 };
    let (mut w, mut context) = (BitWriter::new(), Context::default());
    first.write(&mut context, COLUMNS, SEND, &mut w);
    let between = w.len();
    second.write(&mut context, COLUMNS, SEND, &mut w);
    assert_eq!((between, w.len()), (18, 47), "bits of the first head, and of both");
    assert_eq!(hex(&w), "71 b0 1e 48 02 40");
}

#[test]
fn values_of_every_code() {
    let of = |code: FieldCode| {
        let mut l = LayoutBuilder::new();
        l.field("value", code, Meaning::Plain);
        l.build().unwrap()
    };
    let bits = |code: FieldCode, now: &[u32], base: Option<&[u32]>, age: u64| {
        let mut w = BitWriter::new();
        of(code).write(now, base, age, &mut w);
        format!("{}: {}", w.len(), hex(&w))
    };
    let number = FieldCode::Number { max: 100_000, order: 4 };
    let found = [
        bits(number, &[50_123], None, 0),
        bits(number, &[50_123], Some(&[50_000]), 1),
        bits(number, &[50_123], Some(&[50_000]), 9),
        bits(number, &[99_999], Some(&[5]), 1),
        bits(FieldCode::Wrapping { bits: 10 }, &[2], Some(&[1020]), 1),
        bits(FieldCode::Choice { count: 3 }, &[2], Some(&[1]), 1),
        bits(FieldCode::Choice { count: 2 }, &[1], Some(&[1]), 1),
        bits(FieldCode::Float, &[1.5f32.to_bits()], None, 0),
        bits(FieldCode::Quat { bits: 8 }, &[3, 127, 100, 127], Some(&[3, 127, 101, 127]), 1),
        bits(FieldCode::Text { cap: 12 }, &[3, u32::from_le_bytes(*b"hat\0"), 0, 0], None, 0),
        bits(FieldCode::Entity, &[65_537, 0], None, 0),
    ];
    assert_eq!(found, GOLDEN);
}

const GOLDEN: [&str; 11] = [
    "17: cb c3 00",
    "13: 0f 0c",
    "10: b1 03",
    "29: ff ff 69 18",
    "5: 18",
    "3: 04",
    "1: 01",
    "32: 00 00 c0 3f",
    "13: 41 00",
    "28: 83 16 46 07",
    "25: ff 02 02 00",
];
