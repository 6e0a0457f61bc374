//! Values by layouts that the input describes: whatever is accepted, with or without a baseline, can be written again within
//! the layout's worst size, and is read back the same.
//!
//! Input: a byte with the number of fields; 3 bytes for each (code, and two that its parameters are made of); a byte that
//! says which baseline; a byte of age; then the bits.

use tidelock::layout::{FieldCode, Layout, LayoutBuilder, Meaning};
use tidelock_netcore::bits::{BitReader, BitWriter};

const FIELDS: u8 = 24;

/// Reads a first value absolutely, and then others against none, zeros (a row that never arrived) or the one before.
pub fn run(data: &[u8]) {
    let Some((layout, rest)) = describe(data) else { return };
    let [base, age, bytes @ ..] = rest else { return };
    let age = u64::from(*age) % 64;
    let mut r = BitReader::new(bytes);
    let mut before: Option<Vec<u32>> = (base % 3 == 1).then(|| vec![0; layout.words()]);
    for _ in 0..8 {
        let age = if before.is_some() { age } else { 0 };
        let mut value = vec![0xdead_beef; layout.words()];
        if layout.read(before.as_deref(), age, &mut r, &mut value).is_err() {
            return;
        }
        check(&layout, before.as_deref(), age, &value);
        if base % 3 == 2 {
            before = Some(value);
        }
    }
}

fn check(layout: &Layout, base: Option<&[u32]>, age: u64, value: &[u32]) {
    for (base, age) in [(base, age), (None, 0)] {
        let mut w = BitWriter::new();
        layout.write(value, base, age, &mut w);
        assert!(w.len() <= layout.worst_bits(), "{} bits, at most {} were promised", w.len(), layout.worst_bits());
        let bytes = w.to_bytes();
        let mut again = vec![0xdead_beef; layout.words()];
        let mut r = BitReader::new(&bytes);
        layout.read(base, age, &mut r, &mut again).expect("what was read can be written and read again");
        assert_eq!(again, value);
        assert!(r.finish().is_ok());
    }
}

fn describe(data: &[u8]) -> Option<(Layout, &[u8])> {
    let (&count, rest) = data.split_first()?;
    let (fields, rest) = rest.split_at_checked(usize::from(count % FIELDS) * 3)?;
    let mut builder = LayoutBuilder::new();
    for (i, field) in fields.chunks_exact(3).enumerate() {
        builder.field(&format!("f{i}"), code(field[0], field[1].into(), field[2].into()), Meaning::Plain);
    }
    Some((builder.build().ok()?, rest))
}

fn code(code: u8, a: u32, b: u32) -> FieldCode {
    match code % 10 {
        0 => FieldCode::Number { max: ((a << 24) | 0x00ff_ffff) >> (b % 32), order: a % 26 },
        1 => FieldCode::Wide,
        2 => FieldCode::Wrapping { bits: a % 22 },
        3 => FieldCode::Choice { count: a | (b << 8) },
        4 => FieldCode::Float,
        5 => FieldCode::Quat { bits: a % 18 },
        6 => FieldCode::Text { cap: a | (b << 8) },
        7 => FieldCode::Entity,
        9 => FieldCode::Bytes { cap: a | (b << 8) },
        _ => FieldCode::Maybe { fields: a % 6 },
    }
}

/// Position and heading; a rotation and a name; options in options.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let quat = tidelock::field::quat_words([0.1, 0.2, 0.3, 0.9], 9).expect("a rotation");
    let text = [3, u32::from_le_bytes(*b"hat\0"), 0];
    let seed = |fields: &[[u8; 3]], base: u8, age: u8, values: &[Vec<u32>]| {
        let head = [&[fields.len() as u8][..], fields.as_flattened()].concat();
        let (layout, _) = describe(&head).expect("a layout");
        let mut w = BitWriter::new();
        let zeros = vec![0; layout.words()];
        let mut before = (base == 1).then_some(&zeros);
        for value in values {
            layout.write(value, before.map(Vec::as_slice), if before.is_some() { age.into() } else { 0 }, &mut w);
            if base == 2 {
                before = Some(value);
            }
        }
        [&head[..], &[base, age], &w.to_bytes()].concat()
    };
    let pose = [[0, 4, 8], [0, 4, 8], [2, 10, 0]];
    let poses = [vec![50_000, 50_000, 5], vec![50_010, 49_990, 1020], vec![50_010, 0, 1020]];
    let body = [[5, 9, 0], [6, 8, 0], [3, 3, 0], [4, 0, 0], [1, 0, 0]];
    let whole: Vec<u32> = [&quat[..], &text[..], &[2, 1.5f32.to_bits(), 7, 8]].concat();
    let options = [[8, 3, 0], [8, 1, 0], [7, 0, 0], [2, 6, 0], [3, 2, 0]];
    let chosen = [vec![1, 1, 65_537, 0, 9, 1], vec![0, 0, 0, 0, 0, 1], vec![1, 0, 0, 0, 3, 0]];
    vec![
        seed(&pose, 0, 0, &poses),
        seed(&pose, 1, 3, &poses[..1]),
        seed(&pose, 2, 17, &poses),
        seed(&body, 0, 0, std::slice::from_ref(&whole)),
        seed(&body, 2, 2, &[whole.clone(), whole]),
        seed(&options, 2, 1, &chosen),
    ]
}
