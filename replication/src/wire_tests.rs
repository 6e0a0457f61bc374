//! The worked examples of `docs/WIRE.md`: entries and values, byte for byte; guesses, word for word; and values of any layout with
//! any guess and tables.

use crate::block::{Common, Context, END, Entry, EntryBase, Masks};
use crate::codes::{self, Chosen, Table};
use crate::codings::{Codings, MaskGuess};
use crate::field::{quat_words, text_words};
use crate::forecast::Velocity;
use crate::layout::{FieldCode, Layout, LayoutBuilder, Meaning};
use proptest::prelude::*;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};
use tidelock_netcore::tick::Tick;

const COLUMNS: usize = 3;
const SEND: Tick = Tick(5);

fn hex(w: &BitWriter) -> String {
    w.to_bytes().iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

fn layout(fields: &[(FieldCode, Meaning)]) -> Layout {
    let mut l = LayoutBuilder::new();
    fields.iter().enumerate().for_each(|(i, (code, meaning))| l.field(&format!("f{i}"), *code, *meaning));
    l.build().unwrap()
}

fn metres(step: f64) -> (FieldCode, Meaning) {
    (FieldCode::Number { max: 100_000, order: 4 }, Meaning::Grid { min: -500.0, step })
}

fn codings(guesses: [MaskGuess; COLUMNS]) -> Codings {
    let mut codings = Codings::default();
    codings.reset(COLUMNS);
    codings.components.iter_mut().zip(guesses).for_each(|(coding, guess)| coding.mask = guess);
    codings
}

#[test]
fn one_entry_with_a_mask() {
    // rows 3, 4 and 10 of block 0, component 2, against the packet's baseline of send 3
    let masks: Masks = [(2, 1 << 3 | 1 << 4 | 1 << 10)].into_iter().collect();
    let entry = Entry { masks, rested: 1 << 10, guessed: true, ..Entry::default() };
    let (layout, old) = (layout(&[metres(0.01), metres(0.01)]), [50_000, 50_000]);
    let values = [[50_010, 50_000], [49_990, 50_003], [50_000, 99_999]];
    let codings = codings([MaskGuess::Nothing; COLUMNS]);
    let common = Common { components: 0b100, codings: &codings, send_tick: SEND };
    let mut w = BitWriter::new();
    codings.write(0b100, true, &mut w);
    entry.write(&mut Context::default(), common, |_| 0, &mut w);
    let head = w.len();
    values.iter().for_each(|value| layout.write(value, Some(&old), 2, &mut w));
    w.put(END, 2);
    assert_eq!((head, w.len()), (34, 92), "bits of codings and head, and of all");
    assert_eq!(hex(&w), "c4 6b 35 50 82 1d b6 74 ff 3e 0d 07");
}

#[test]
fn two_entries_in_context() {
    // all of block 7 in components 0 and 1, then one row of block 8 without a baseline and sampled 2 ticks ago
    let both = |mask| [(0, mask), (1, mask)].into_iter().collect();
    let first = Entry { block: 7, masks: both(u64::MAX), guessed: true, ..Entry::default() };
    let second = Entry { block: 8, base: EntryBase::Own(None), sample_age: 2, masks: both(1), ..Entry::default() };
    let codings = codings([MaskGuess::Nothing, MaskGuess::Before, MaskGuess::Nothing]);
    let common = Common { components: 0b11, codings: &codings, send_tick: SEND };
    let (mut w, mut context) = (BitWriter::new(), Context::default());
    codings.write(0b11, true, &mut w);
    let mut bits = vec![w.len()];
    for entry in [first, second] {
        entry.write(&mut context, common, |_| 0, &mut w);
        bits.push(w.len());
    }
    assert_eq!(bits, [10, 27, 53], "bits up to the end of the codings and of each head");
    assert_eq!(hex(&w), "43 8f 93 79 20 09 00");
}

/// Code, words, those at the baseline and its age, bits and bytes.
type Case = (FieldCode, &'static [u32], Option<&'static [u32]>, u64, &'static str);

#[test]
fn values_of_every_code() {
    let bits = |code: FieldCode, now: &[u32], base: Option<&[u32]>, age: u64| {
        let mut w = BitWriter::new();
        layout(&[(code, Meaning::Plain)]).write(now, base, age, &mut w);
        format!("{}: {}", w.len(), hex(&w))
    };
    let number = FieldCode::Number { max: 100_000, order: 4 };
    let (quat, text) = (FieldCode::Quat { bits: 8 }, FieldCode::Text { cap: 12 });
    let cases: [Case; 12] = [
        (number, &[50_123], None, 0, "17: cb c3 00"),
        (number, &[50_123], Some(&[50_000]), 1, "13: 3f 1b"),
        (number, &[50_123], Some(&[50_000]), 9, "9: b6 01"),
        (number, &[99_999], Some(&[5]), 1, "26: ff 3e 0d 03"),
        (FieldCode::Wrapping { bits: 10 }, &[2], Some(&[1020]), 1, "6: 17"),
        (FieldCode::Choice { count: 3 }, &[2], Some(&[1]), 1, "3: 04"),
        (FieldCode::Choice { count: 2 }, &[1], Some(&[1]), 1, "1: 01"),
        (FieldCode::Float, &[0x3fc0_0000], None, 0, "32: 00 00 c0 3f"),
        (quat, &[3, 127, 100, 127], Some(&[3, 127, 101, 127]), 1, "12: c4 04"),
        (quat, &[0, 127, 127, 127], Some(&[3, 127, 127, 127]), 1, "35: ff f8 fb fb 03"),
        (text, &[3, 0x0074_6168, 0, 0], None, 0, "28: 83 16 46 07"),
        (FieldCode::Entity, &[65_537, 0], None, 0, "25: ff 02 02 00"),
    ];
    for (code, now, base, age, found) in cases {
        assert_eq!(bits(code, now, base, age), found, "{code:?}");
    }
}

/// Rotations about a skew axis, turned evenly, guessed from each two in a row: pinned, so that a platform or a compiler that rounds in
/// another way shows up. The inputs are whole numbers.
#[test]
fn guesses_of_rotations_are_the_same_everywhere() {
    let mut found = Vec::new();
    for (bits, older, base) in [
        (10, [3, 511, 511, 511], [3, 540, 480, 511]),
        (10, [3, 700, 300, 511], [3, 720, 280, 530]),
        (10, [0, 511, 520, 900], [3, 600, 511, 500]),
        (10, [1, 100, 511, 800], [1, 130, 500, 830]),
        (16, [2, 40_000, 20_000, 32_767], [2, 41_003, 19_007, 33_333]),
        (16, [3, 33_000, 32_000, 60_000], [2, 33_500, 32_100, 61_000]),
        (4, [3, 7, 7, 7], [3, 8, 7, 6]),
        (8, [0, 127, 127, 127], [0, 200, 100, 127]),
    ] {
        let mut guess = base;
        layout(&[(FieldCode::Quat { bits }, Meaning::Plain)]).go_on(&older, &mut guess);
        found.push(guess);
    }
    assert_eq!(found, ROTATIONS);
}

const ROTATIONS: [[u32; 4]; 8] = [
    [3, 569, 449, 511],
    [3, 739, 261, 549],
    [3, 16, 511, 488],
    [1, 161, 489, 859],
    [2, 41996, 18030, 33898],
    [2, 33940, 32255, 49434],
    [3, 9, 7, 5],
    [1, 239, 78, 127],
];

#[test]
fn guesses_by_a_velocity_are_the_same_everywhere() {
    let own = layout(&[metres(0.01), metres(0.03)]);
    let speed = |min, step| (FieldCode::Number { max: 1000, order: 4 }, Meaning::Grid { min, step });
    let velocity = Velocity::new(&own, 1, &layout(&[speed(-50.0, 0.1), speed(-33.3, 0.07)])).unwrap();
    let mut found = Vec::new();
    for (words, ticks) in
        [([500, 500], 1u32), ([777, 31], 2), ([1000, 0], 7), ([123, 456], 16), ([1, 999], 62), ([1000, 0], 16_384)]
    {
        let mut value = [50_000, 12_345];
        velocity.go_on(&words, f64::from(ticks) / 60.0, &mut value);
        found.push(value);
    }
    assert_eq!(found, VELOCITIES);
}

const VELOCITIES: [[u32; 2]; 6] = [[50000, 12346], [50092, 12310], [50583, 12216], [48995, 12333], [44844, 13607], [100000, 0]];

fn field() -> impl Strategy<Value = FieldCode> {
    prop_oneof![
        (0u32..32).prop_map(|cut| FieldCode::Number { max: u32::MAX >> cut, order: 2 }),
        (2u32..=20).prop_map(|bits| FieldCode::Wrapping { bits }),
        (4u32..=16).prop_map(|bits| FieldCode::Quat { bits }),
        (1u32..40).prop_map(|count| FieldCode::Choice { count }),
        Just(FieldCode::Wide),
        Just(FieldCode::Text { cap: 5 }),
        Just(FieldCode::Maybe { fields: 1 }),
    ]
}

/// A value from random words; within an option that is not there, zeros.
fn value(codes: &[FieldCode], random: &[u32]) -> Vec<u32> {
    let (mut words, mut absent) = (Vec::new(), false);
    for (code, x) in codes.iter().zip(random.chunks(4)) {
        let hidden = std::mem::replace(&mut absent, matches!(code, FieldCode::Maybe { .. }) && x[0] % 2 == 0);
        if hidden {
            words.resize(words.len() + code.words(), 0);
            continue;
        }
        match *code {
            FieldCode::Number { max, .. } => words.push((u64::from(x[0]) % (u64::from(max) + 1)) as u32),
            FieldCode::Wrapping { bits } => words.push(x[0] & ((1 << bits) - 1)),
            FieldCode::Choice { count } => words.push(x[0] % count),
            FieldCode::Quat { bits } => {
                let part = |i: usize| f32::from(x[i] as i16) + 0.5;
                words.extend(quat_words([part(0), part(1), part(2), part(3)], bits).unwrap());
            }
            FieldCode::Text { cap } => words.extend([1, 0x41].into_iter().chain(vec![0; text_words(cap) - 2])),
            FieldCode::Maybe { .. } => words.push(x[0] % 2),
            _ => words.extend(&x[..code.words()]),
        }
    }
    words
}

proptest! {
    #[test]
    fn any_value_is_read_with_any_guess_and_tables(mut codes in prop::collection::vec(field(), 1..9), random in prop::collection::vec(any::<u32>(), 80),
        near in any::<bool>(), tables in prop::collection::vec(0..codes::TABLES as u8 + 9, 10))
    {
        codes.push(FieldCode::Wide); // for an option at the end
        for i in 1..codes.len() {
            // what belongs to an option that belongs to another counts for both: here each has one field
            if matches!(codes[i - 1..=i], [FieldCode::Maybe { .. }, FieldCode::Maybe { .. }]) {
                codes[i] = FieldCode::Choice { count: 3 };
            }
        }
        let layout = layout(&codes.iter().map(|code| (*code, Meaning::Plain)).collect::<Vec<_>>());
        let (now, mut guess) = (value(&codes, &random[..40]), value(&codes, &random[40..]));
        if near {
            guess.clone_from(&now);
        }
        // the last ones stand for a trained table without codes for most tokens
        let mut lengths = [0; codes::TOKENS];
        (lengths[0], lengths[3], lengths[20], lengths[codes::ESCAPE]) = (1, 2, 3, 3);
        let trained = [Table::new(&lengths)];
        let tables: Vec<u8> = tables.into_iter().map(|t| if usize::from(t) < codes::TABLES { t } else { codes::TRAINED }).collect();
        let tables = Chosen::among(&tables[..layout.tables(1).len()], &trained);
        let mut w = BitWriter::new();
        layout.write_with(&now, Some(&guess), tables, &mut w);
        prop_assert!(w.len() <= layout.worst_bits());
        let bytes = w.to_bytes();
        let (mut r, mut out) = (BitReader::new(&bytes), vec![7; now.len()]);
        prop_assert_eq!(layout.read_with(Some(&guess), tables, &mut r, &mut out), Ok(()));
        prop_assert_eq!((&out, r.position()), (&now, w.len()));
        for cut in 0..bytes.len() {
            let read = layout.read_with(Some(&guess), tables, &mut BitReader::new(&bytes[..cut]), &mut out);
            prop_assert_eq!(read, Err(BitError::Truncated), "cut to {} of {} bytes", cut, bytes.len());
        }
    }
}
