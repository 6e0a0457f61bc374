//! The codec over random layouts, values, baselines and ages.

#![allow(missing_docs)]

mod spec;

use proptest::prelude::*;
use tidelock::field::{self, Step};
use tidelock::layout::{FieldCode, Layout, LayoutBuilder, Meaning};
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};

fn leaf() -> impl Strategy<Value = FieldCode> {
    prop_oneof![
        (any::<u32>(), 0u32..32, 0u32..=24).prop_map(|(max, cut, order)| FieldCode::Number { max: max >> cut, order }),
        Just(FieldCode::Number { max: u32::MAX, order: 2 }),
        Just(FieldCode::Number { max: 100_000, order: 4 }),
        Just(FieldCode::Wide),
        (2u32..=20).prop_map(|bits| FieldCode::Wrapping { bits }),
        (1u32..40).prop_map(|count| FieldCode::Choice { count }),
        Just(FieldCode::Choice { count: 2 }),
        Just(FieldCode::Float),
        (4u32..=16).prop_map(|bits| FieldCode::Quat { bits }),
        (1u32..=33).prop_map(|cap| FieldCode::Text { cap }),
        (1u32..=33).prop_map(|cap| FieldCode::Bytes { cap }),
        Just(FieldCode::Entity),
    ]
}

/// Leaves in a row; each option takes up to three of what follows it, other options included.
fn layout() -> impl Strategy<Value = Layout> {
    prop::collection::vec((leaf(), prop::option::weighted(0.3, 0usize..=3)), 0..12).prop_map(|parts| {
        let mut codes = Vec::new();
        for (leaf, wrap) in parts.into_iter().rev() {
            codes.insert(0, leaf);
            if let Some(depth) = wrap {
                let fields = whole(&codes, depth);
                codes.insert(0, FieldCode::Maybe { fields });
            }
        }
        let mut l = LayoutBuilder::new();
        codes.iter().enumerate().for_each(|(i, &code)| l.field(&format!("f{i}"), code, Meaning::Plain));
        l.build().unwrap()
    })
}

/// Entries of the first `parts` things, each option with all that belongs to it.
fn whole(codes: &[FieldCode], parts: usize) -> u32 {
    let mut at = 0;
    for _ in 0..parts {
        match codes.get(at) {
            Some(FieldCode::Maybe { fields }) => at += 1 + *fields as usize,
            Some(_) => at += 1,
            None => {}
        }
    }
    at as u32
}

/// A valid value, near `near` for about half of the fields if there is one.
fn value(layout: &Layout, near: Option<&[u32]>, rng: &mut impl FnMut() -> u64) -> Vec<u32> {
    let mut words = Vec::new();
    let mut absent_until = 0;
    for (i, field) in layout.fields().iter().enumerate() {
        let at = words.len();
        let n = field.code.words();
        if i < absent_until {
            words.resize(at + n, 0);
            continue;
        }
        let old = near.map(|v| &v[at..at + n]).filter(|_| !rng().is_multiple_of(3));
        if let (FieldCode::Maybe { fields }, old) = (field.code, old) {
            let present = old.map_or(rng() % 2, |old| old[0].into());
            words.push(present as u32);
            if present == 0 {
                absent_until = i + 1 + fields as usize;
            }
            continue;
        }
        match old {
            Some(old) => words.extend(nudge(field.code, old, rng)),
            None => words.extend(fresh(field.code, rng)),
        }
    }
    words
}

fn fresh(code: FieldCode, rng: &mut impl FnMut() -> u64) -> Vec<u32> {
    match code {
        FieldCode::Number { max, .. } => vec![(rng() % (u64::from(max) + 1)) as u32],
        FieldCode::Wide => vec![rng() as u32, rng() as u32],
        FieldCode::Wrapping { bits } => vec![rng() as u32 & ((1 << bits) - 1)],
        FieldCode::Choice { count } => vec![(rng() % u64::from(count)) as u32],
        FieldCode::Float => {
            let v = f32::from_bits(rng() as u32);
            vec![field::float_word(if v.is_finite() { v } else { 1.5 }).unwrap()]
        }
        FieldCode::Quat { bits } => {
            let q = [rng(), rng(), rng(), rng()].map(|v| (v as i32 as f32) / 2e9 + 1e-9);
            field::quat_words(q, bits).unwrap().to_vec()
        }
        FieldCode::Text { cap } => {
            let mut text: String = "aé漢𐍈".chars().cycle().skip(rng() as usize % 4).take(rng() as usize % 20).collect();
            while text.len() > cap as usize {
                text.pop();
            }
            let mut words = vec![0; code.words()];
            field::put_text(&text, cap, &mut words).unwrap();
            words
        }
        FieldCode::Bytes { cap } => {
            let bytes: Vec<u8> = (0..rng() % (u64::from(cap) + 1)).map(|_| rng() as u8).collect();
            let mut words = vec![0; code.words()];
            field::put_blob(&bytes, cap, &mut words).unwrap();
            words
        }
        // The names at the very end have no code.
        FieldCode::Entity => {
            let name = rng() >> (rng() % 64);
            let name = name.min(u64::MAX - 256);
            vec![name as u32, (name >> 32) as u32]
        }
        FieldCode::Maybe { .. } => unreachable!(),
    }
}

fn nudge(code: FieldCode, old: &[u32], rng: &mut impl FnMut() -> u64) -> Vec<u32> {
    let by = (rng() % 64) as u32;
    match code {
        FieldCode::Number { max, .. } => vec![old[0].saturating_add(by).min(max)],
        FieldCode::Wrapping { bits } => vec![old[0].wrapping_sub(by) & ((1 << bits) - 1)],
        FieldCode::Quat { bits } => {
            // Options that were empty leave zeros, which are no rotation.
            let mut q = field::quat_value([old[0] & 3, old[1], old[2], old[3]], bits);
            q[(rng() % 4) as usize] += 0.01;
            field::quat_words(q, bits).unwrap().to_vec()
        }
        _ if by < 32 => old.to_vec(),
        _ => fresh(code, rng),
    }
}

fn rng(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn bits_of(w: &BitWriter, len: usize) -> Vec<u8> {
    let mut cut = w.clone();
    cut.truncate(len);
    cut.to_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn what_was_written_is_read(layout in layout(), seed: u64, has_base: bool, age in prop_oneof![0u64..70, any::<u64>()]) {
        let mut rng = rng(seed);
        let base = value(&layout, None, &mut rng);
        let now = value(&layout, Some(&base), &mut rng);
        let base = has_base.then_some(base.as_slice());
        let mut w = BitWriter::new();
        layout.write(&now, base, age, &mut w);
        prop_assert!(w.len() <= layout.worst_bits(), "{} bits, at most {}", w.len(), layout.worst_bits());
        let bytes = w.to_bytes();
        let mut out = vec![0xdead_beef; layout.words()];
        let mut r = BitReader::new(&bytes);
        prop_assert_eq!(layout.read(base, age, &mut r, &mut out), Ok(()));
        prop_assert_eq!(r.position(), w.len());
        prop_assert_eq!(&out, &now);
        // The decoder that was written from the docs agrees.
        let bits = (0..w.len()).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1).collect();
        let codes: Vec<_> = layout.fields().iter().map(|f| f.code).collect();
        let mut second = spec::Bits { bits, at: 0 };
        prop_assert_eq!(&spec::decode(&codes, base, age, &mut second), &now);
        prop_assert_eq!(second.at, w.len());
        // Every prefix that lacks a byte ends too early, whatever else it may be.
        for cut in 0..bytes.len() {
            let read = layout.read(base, age, &mut BitReader::new(&bytes[..cut]), &mut out);
            prop_assert_eq!(read, Err(BitError::Truncated), "cut to {} of {} bytes", cut, bytes.len());
        }
        // A prefix in bits is filled up with zeros: it may mean something else, but must not panic, and means nothing invalid.
        for cut in 0..w.len() {
            let bytes = bits_of(&w, cut);
            accepted_is_canonical(&layout, base, age, &bytes)?;
        }
    }

    #[test]
    fn random_bytes_are_refused_or_valid(
        layout in layout(), seed: u64, has_base: bool, age in 0u64..70, bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let base = value(&layout, None, &mut rng(seed));
        accepted_is_canonical(&layout, has_base.then_some(base.as_slice()), age, &bytes)?;
    }
}

/// What is accepted can be written again, and is then read as the same.
fn accepted_is_canonical(layout: &Layout, base: Option<&[u32]>, age: u64, bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut out = vec![0xdead_beef; layout.words()];
    if layout.read(base, age, &mut BitReader::new(bytes), &mut out).is_ok() {
        for base in [base, None] {
            let mut w = BitWriter::new();
            layout.write(&out, base, age, &mut w);
            prop_assert!(w.len() <= layout.worst_bits());
            let mut again = vec![0; layout.words()];
            prop_assert_eq!(layout.read(base, age, &mut BitReader::new(&w.to_bytes()), &mut again), Ok(()));
            prop_assert_eq!(&again, &out);
        }
    }
    Ok(())
}

#[test]
fn rotations_are_stable_over_millions() {
    let seed = 0x7141_0001;
    let mut rng = rng(seed);
    let mut worst = 0f64;
    for i in 0..3_000_000u32 {
        let bits = 4 + i % 13;
        let mut q = [rng(), rng(), rng(), rng()].map(|v| v as i32 as f32 / 2_147_483_648.0);
        // Half of them near a tie of two, three or four parts, where the choice of the largest is in danger.
        if i % 2 == 0 {
            let size = q[0].abs().max(0.1);
            for (k, part) in q.iter_mut().enumerate() {
                if k == 0 || !rng().is_multiple_of(4) {
                    *part = size.copysign(*part) * (1.0 + (rng() as i32 as f32) * 2f32.powi(-31 - (rng() % 24) as i32));
                }
            }
        }
        let words = field::quat_words(q, bits).unwrap();
        assert!(field::quat_is_canonical(words, bits), "seed {seed:#x} i {i}: {q:?} gives {words:?} of {bits} bits");
        let back = field::quat_value(words, bits);
        assert_eq!(field::quat_words(back, bits), Ok(words), "seed {seed:#x} i {i}: {q:?} comes back as {back:?} of {bits} bits");
        assert_eq!(
            field::quat_words(q.map(|v| -v), bits),
            Ok(words),
            "seed {seed:#x} i {i}: the opposite quaternion is the same rotation"
        );
        if bits == 10 {
            let len = q.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            let dot = q.iter().zip(&back).map(|(a, b)| f64::from(*a) / len * f64::from(*b)).sum::<f64>().abs();
            worst = worst.max(2.0 * dot.min(1.0).acos());
        }
    }
    // Half a step is 0.0007 in each of three parts; an angle is twice as much, and ties cost a step more.
    assert!(worst < 0.008, "{worst} radians off");
}

#[test]
fn every_canonical_rotation_of_few_bits_is_stable() {
    for bits in 4..=6 {
        let top = (1u32 << bits) - 2;
        let mut reachable = 0;
        for largest in 0..4 {
            for a in 0..=top {
                for b in 0..=top {
                    for c in 0..=top {
                        let words = [largest, a, b, c];
                        if field::quat_is_canonical(words, bits) {
                            reachable += 1;
                            assert_eq!(field::quat_words(field::quat_value(words, bits), bits), Ok(words));
                        }
                    }
                }
            }
        }
        assert!(reachable > 1000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn steps_are_stable(step in 1e-4f64..10.0, low_steps in -4_000_000i64..4_000_000, steps in 1u32..4_000_000, pick: u32, off in -0.49f64..0.49) {
        let min = low_steps as f64 * step + step * 0.3;
        let max = min + f64::from(steps) * step;
        let index = pick % (steps + 1);
        for (grid, narrow) in [(Step::f32(step, min, max), true), (Step::f64(step, min, max), false)] {
            prop_assert_eq!(grid.last(), steps);
            let value = grid.value(index);
            let value = if narrow { f64::from(value as f32) } else { value };
            prop_assert_eq!(grid.index(value), Ok(index));
            // The nearest step, for values between.
            prop_assert_eq!(grid.index(grid.value(index) + off * step), Ok(index));
            prop_assert!(grid.index(min - 0.51 * step).is_err());
            prop_assert!(grid.index(grid.value(steps) + 0.51 * step).is_err());
        }
    }

    #[test]
    fn angles_are_stable(bits in 2u32..=20, pick: u32, turns in -1000i32..1000, wild: f64) {
        let index = pick & ((1 << bits) - 1);
        let value = field::angle_value(index, bits);
        prop_assert!((-std::f64::consts::PI..std::f64::consts::PI).contains(&value));
        prop_assert_eq!(field::angle_index(value, bits), Ok(index));
        prop_assert_eq!(field::angle_index(f64::from(value as f32), bits), Ok(index));
        prop_assert_eq!(field::angle_index(value + f64::from(turns) * std::f64::consts::TAU, bits), Ok(index));
        if let Ok(index) = field::angle_index(wild, bits) {
            prop_assert!(index < 1 << bits);
        }
    }
}

#[test]
fn what_is_not_a_value_is_refused() {
    let step = Step::f32(0.01, -1.0, 1.0);
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(step.index(bad), Err(field::Problem::NotFinite));
        assert_eq!(field::angle_index(bad, 10), Err(field::Problem::NotFinite));
        assert_eq!(field::float_word(bad as f32), Err(field::Problem::NotFinite));
        assert_eq!(field::quat_words([0.0, bad as f32, 0.0, 1.0], 10), Err(field::Problem::NotFinite));
    }
    assert_eq!(field::float_word(-0.0), Ok(0));
    assert_eq!(field::quat_words([0.0, -0.0, 0.0, 0.0], 10), Err(field::Problem::ZeroRotation));
}

fn one(code: FieldCode) -> Layout {
    let mut l = LayoutBuilder::new();
    l.field("it", code, Meaning::Plain);
    l.build().unwrap()
}

fn bits(layout: &Layout, now: &[u32], base: Option<&[u32]>, age: u64) -> String {
    let mut w = BitWriter::new();
    layout.write(now, base, age, &mut w);
    let bytes = w.to_bytes();
    (0..w.len()).map(|i| if bytes[i / 8] >> (i % 8) & 1 == 1 { '1' } else { '0' }).collect()
}

#[test]
fn golden_bits() {
    let number = one(FieldCode::Number { max: 1000, order: 2 });
    assert_eq!(bits(&number, &[5], None, 0), "1010000000");
    // Difference 0, −1, 1: zigzag 0, 1, 2; the usual table of order 2 is 8.
    assert_eq!(bits(&number, &[5], Some(&[5]), 1), "000");
    assert_eq!(bits(&number, &[4], Some(&[5]), 1), "001");
    assert_eq!(bits(&number, &[6], Some(&[5]), 1), "010");
    // Difference 5: token 10, of five bits.
    assert_eq!(bits(&number, &[10], Some(&[5]), 1), "11010");
    // The same from a base four ticks old, in the table of order 4.
    assert_eq!(bits(&number, &[10], Some(&[5]), 4), "11010");
    // Zigzag 2³² has no token: eight bits say so, and the word follows.
    let large = one(FieldCode::Number { max: u32::MAX, order: 0 });
    assert_eq!(bits(&large, &[1 << 31], Some(&[0]), 1), format!("11111101{}1", "0".repeat(31)));
    // Zigzag 40: a token of nine bits, and four bits of its own. That of 4094 has no code in this table.
    assert_eq!(bits(&large, &[20], Some(&[0]), 1), "1111111110001");
    assert_eq!(bits(&large, &[2047], Some(&[0]), 1), format!("11111101{}{}", "1".repeat(11), "0".repeat(21)));
    let angle = one(FieldCode::Wrapping { bits: 10 });
    assert_eq!(bits(&angle, &[1023], Some(&[0]), 1), "10001");
    assert_eq!(bits(&angle, &[0], Some(&[1023]), 1), "10010");
    let text = one(FieldCode::Text { cap: 5 });
    assert_eq!(bits(&text, &[1, 0x41, 0], None, 0), "10010000010");
    assert_eq!(bits(&text, &[1, 0x41, 0], Some(&[1, 0x41, 0]), 9), "1");
    let entity = one(FieldCode::Entity);
    assert_eq!(bits(&entity, &[3, 0], None, 0), "011000000");
    let choice = one(FieldCode::Choice { count: 5 });
    assert_eq!(bits(&choice, &[4], Some(&[1]), 1), "0001");
    assert_eq!(bits(&one(FieldCode::Choice { count: 2 }), &[1], Some(&[1]), 1), "1");
    let quat = one(FieldCode::Quat { bits: 4 });
    assert_eq!(bits(&quat, &[3, 7, 7, 7], None, 0), "11111011101110");
    assert_eq!(bits(&quat, &[3, 8, 7, 7], Some(&[3, 7, 7, 7]), 1), "010000100010");
    // Another largest part: token 72, and the whole rotation.
    assert_eq!(bits(&quat, &[0, 7, 7, 7], Some(&[3, 7, 7, 7]), 1), "11111111000111011101110");
}

#[test]
fn hashes_tell_layouts_apart() {
    let build = |name: &str, step: Step, order: u32| {
        let mut l = LayoutBuilder::new();
        l.number(name, &step, order);
        l.build().unwrap().digest("component")
    };
    let base = build("x", Step::f32(0.1, 0.0, 1.0), 4);
    assert_eq!(base, build("x", Step::f32(0.1, 0.0, 1.0), 4));
    // Same words, another place in the world.
    assert_ne!(base, build("x", Step::f32(0.1, 1.0, 2.0), 4));
    assert_ne!(base, build("x", Step::f32(1.0, 0.0, 10.0), 4));
    assert_ne!(base, build("y", Step::f32(0.1, 0.0, 1.0), 4));
    assert_ne!(base, build("x", Step::f32(0.1, 0.0, 1.0), 5));
}

#[test]
fn what_no_value_makes_is_refused() {
    let read = |code: FieldCode, parts: &[(u64, u32)], base: Option<&[u32]>| {
        let mut w = BitWriter::new();
        parts.iter().for_each(|&(value, bits)| w.put(value, bits));
        let layout = one(code);
        let mut out = vec![0; layout.words()];
        layout.read(base, 1, &mut BitReader::new(&w.to_bytes()), &mut out).map(|()| out)
    };
    let refused = Err(BitError::OutOfRange);
    let text = FieldCode::Text { cap: 5 };
    assert_eq!(read(text, &[(2, 3), (0xa9c3, 16)], None), Ok(vec![2, 0xa9c3, 0]));
    assert_eq!(read(text, &[(1, 3), (0xc3, 8)], None), refused, "half a letter");
    assert_eq!(read(text, &[(6, 3), (0, 48)], None), refused, "longer than allowed");
    let bytes = FieldCode::Bytes { cap: 5 };
    assert_eq!(read(bytes, &[(1, 3), (0xc3, 8)], None), Ok(vec![1, 0xc3, 0]), "bytes need not be letters");
    assert_eq!(read(bytes, &[(6, 3), (0, 48)], None), refused, "longer than allowed");
    let number = FieldCode::Number { max: 100, order: 2 };
    assert_eq!(read(number, &[(101, 7)], None), refused);
    // Minus one from 0, plus one from 100, and the escape.
    assert_eq!(read(number, &[(0b100, 3)], Some(&[0])), refused);
    assert_eq!(read(number, &[(0b010, 3)], Some(&[100])), refused);
    let escape = (0b0_1111_1111, 9);
    assert_eq!(read(number, &[escape, (101, 7)], Some(&[0])), refused);
    assert_eq!(read(number, &[escape, (100, 7)], Some(&[0])), Ok(vec![100]));
    assert_eq!(read(FieldCode::Choice { count: 5 }, &[(5, 3)], None), refused);
    for bad in [f32::NAN, f32::INFINITY, -0.0] {
        assert_eq!(read(FieldCode::Float, &[(bad.to_bits().into(), 32)], None), refused);
    }
    let quat = FieldCode::Quat { bits: 4 };
    assert_eq!(read(quat, &[(3, 2), (15, 4), (7, 4), (7, 4)], None), refused, "a part beyond the last step");
    assert_eq!(read(quat, &[(3, 2), (14, 4), (14, 4), (7, 4)], None), refused, "longer than 1");
    assert_eq!(read(quat, &[(1, 2), (14, 4), (7, 4), (7, 4)], None), refused, "the tie belongs to the part before");
    assert_eq!(read(quat, &[(0, 2), (14, 4), (7, 4), (7, 4)], None), Ok(vec![0, 14, 7, 7]));
    // The same index, and a difference of seven to 14 in a place where that is a tie lost; nothing, and seven, in this table.
    let (same, seven, escape) = ((0b0100, 4), (0b1_0111, 5), (0b0_1111_1111, 9));
    assert_eq!(read(quat, &[seven, same, same], Some(&[1, 7, 7, 7])), refused);
    assert_eq!(read(quat, &[seven, same, same], Some(&[0, 7, 7, 7])), Ok(vec![0, 14, 7, 7]));
    assert_eq!(read(quat, &[same, escape, (0, 64)], Some(&[0, 7, 7, 7])), refused, "an escape within");
}

#[test]
fn layouts_that_cannot_travel_are_refused() {
    use tidelock::layout::LayoutError;
    let build = |make: &dyn Fn(&mut LayoutBuilder)| {
        let mut l = LayoutBuilder::new();
        make(&mut l);
        l.build()
    };
    let code = |code| build(&move |l| l.field("it", code, Meaning::Plain));
    for bad in [
        FieldCode::Number { max: 1, order: 25 },
        FieldCode::Wrapping { bits: 1 },
        FieldCode::Wrapping { bits: 21 },
        FieldCode::Quat { bits: 3 },
        FieldCode::Quat { bits: 17 },
        FieldCode::Choice { count: 0 },
        FieldCode::Text { cap: 0 },
        FieldCode::Text { cap: 513 },
        FieldCode::Bytes { cap: 0 },
        FieldCode::Bytes { cap: 513 },
        FieldCode::Maybe { fields: 1 },
    ] {
        assert_eq!(code(bad), Err(LayoutError::Code { name: "it".into(), code: bad }));
    }
    assert!(matches!(build(&|l| l.integer("wide", 0, 1 << 32, 2)), Err(LayoutError::Code { .. })));
    assert_eq!(build(&|l| l.array("a", 257, |l| l.choice("", &["a"]))), Err(LayoutError::TooManyFields(257)));
    assert!(build(&|l| l.array("a", 256, |l| l.choice("", &["a"]))).is_ok());
    // an item has its field and one more
    assert!(build(&|l| l.list("a", 64, |l| [0, 1, 2].iter().for_each(|i| l.choice(&i.to_string(), &["a"])))).is_ok());
    let many = build(&|l| l.list("a", 1 << 30, |l| l.choice("", &["a"])));
    assert!(matches!(many, Err(LayoutError::TooManyFields(_))));
    for bits in [3, 17] {
        assert!(matches!(build(&|l| l.normal("n", bits)), Err(LayoutError::Code { .. })));
    }
    assert!(matches!(build(&|l| l.array("a", 2, |l| l.text("", 512))), Err(LayoutError::TooLarge(_))));
    assert_eq!(build(&|l| [(), ()].iter().for_each(|()| l.wide("twice"))), Err(LayoutError::Name("twice".into())));
    assert!(matches!(build(&|l| l.wide(&"x".repeat(65))), Err(LayoutError::Name(_))));
}
