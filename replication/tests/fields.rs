//! Fields of every kind that the derive knows beyond single numbers: millimetres, fixed point, fractions, directions, lists, maps,
//! bytes and opaque values.

#![allow(missing_docs)]

mod common;

use common::{Crate, Rng, assert_clean, assert_settles, config, seeds, table_of, weather};
use hecs::{Entity, World};
use proptest::prelude::*;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidelock::collections::List;
use tidelock::field::{self, Problem, Step};
use tidelock::layout::{FieldCode, Layout};
use tidelock::netid::NetId;
use tidelock::policy::Host;
use tidelock::replicate::{FieldError, Quantiser, RestoreError, Restorer};
use tidelock::{Interpolate, Replicate, Schema};
use tidelock_netcore::bits::{BitReader, BitWriter};

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Numbers {
    #[net(mm)]
    far: f32,
    #[net(mm, range = -10.0..=10.0, order = 2)]
    near: f64,
    #[net(fixed = 8)]
    fixed: f32,
    #[net(fixed = 16, range = -1..=3)]
    fine: f64,
    #[net(unit = 8)]
    health: f32,
    #[net(unit = 10, signed)]
    stick: [f32; 2],
    #[net(octahedral, bits = 9)]
    up: [f32; 3],
    #[net(octahedral, bits = 6)]
    aims: Option<[f32; 3]>,
}

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Item {
    sort: u16,
    #[net(range = 1..=99)]
    count: u8,
    #[net(max = 3)]
    mark: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Replicate)]
enum Skill {
    Swim,
    Fly,
    Dig,
}

#[derive(Clone, Debug, PartialEq, bitcode::Encode, bitcode::Decode)]
enum Recipe {
    Plain,
    Mixed { parts: Vec<(u16, String)>, heat: f32 },
}

/// A list of the game's own, that holds three.
#[derive(Clone, Debug, PartialEq)]
struct Hand<T>(Vec<T>);

impl<T> List for Hand<T> {
    type Item = T;
    fn items(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.iter()
    }
    fn from_items(items: Vec<T>) -> Option<Self> {
        (items.len() <= 3).then_some(Self(items))
    }
}

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Lists {
    #[net(max = 4)]
    items: Vec<Item>,
    #[net(max = 3, step = 0.5, range = 0.0..=10.0)]
    times: VecDeque<f32>,
    #[net(max = 5)]
    small: SmallVec<[u8; 2]>,
    #[net(max = 4)]
    friends: Vec<Option<Entity>>,
    #[net(max = 7)]
    bytes: Vec<u8>,
    #[net(max = 3)]
    skills: BTreeSet<Skill>,
    #[net(max = 4, range = 0..=100)]
    levels: BTreeMap<u16, u8>,
    #[net(max = 2)]
    bag: BTreeMap<Skill, Item>,
    #[net(opaque, max = 40)]
    recipe: Recipe,
    #[net(list, max = 4)]
    hand: Hand<Skill>,
    #[net(max = 2)]
    rows: Option<Vec<[bool; 2]>>,
}

fn entity(n: u32) -> Entity {
    Entity::from_bits((1 << 32) | u64::from(n)).unwrap()
}
fn names(e: Entity) -> Option<NetId> {
    (e.id() < 100).then(|| NetId(u64::from(e.id()) + 1000))
}
fn entities(n: NetId) -> Option<Entity> {
    (1000..1100).contains(&n.0).then(|| entity(n.0 as u32 - 1000))
}
fn words<T: Replicate>(value: &T) -> Result<Vec<u32>, FieldError> {
    let layout = Layout::of::<T>().unwrap();
    // what was there before must not show
    let mut words = vec![7; layout.words()];
    let mut out = Quantiser::new(&mut words, &names);
    value.quantise(&mut out)?;
    assert_eq!(out.written(), layout.words());
    Ok(words)
}
fn back<T: Replicate>(words: &[u32]) -> Result<T, RestoreError> {
    T::restore(&mut Restorer::new(words, &entities))
}
/// A value, from its words through bits as a whole and as a difference, and the bits of either.
fn travel<T: Replicate>(value: &[u32], base: Option<&[u32]>) -> (Vec<u32>, usize) {
    let layout = Layout::of::<T>().unwrap();
    let mut w = BitWriter::new();
    layout.write(value, base, 1, &mut w);
    let bits = w.len();
    assert!(bits <= layout.worst_bits());
    let bytes = w.to_bytes();
    let mut out = vec![9; layout.words()];
    layout.read(base, 1, &mut BitReader::new(&bytes), &mut out).unwrap();
    for len in 0..bytes.len() {
        assert!(layout.read(base, 1, &mut BitReader::new(&bytes[..len]), &mut vec![0; layout.words()]).is_err(), "prefix {len}");
    }
    (out, bits)
}

fn lists() -> Lists {
    Lists {
        items: vec![Item { sort: 3, count: 99, mark: "é".into() }, Item { sort: 4, count: 1, mark: String::new() }],
        times: [0.5, 10.0].into(),
        small: [1, 2, 3].into_iter().collect(),
        friends: vec![Some(entity(4)), None],
        bytes: vec![0, 255, 0xc3],
        skills: [Skill::Dig, Skill::Swim].into(),
        levels: [(7, 100), (3, 0)].into(),
        bag: [(Skill::Fly, Item { sort: 1, count: 1, mark: "abc".into() })].into(),
        recipe: Recipe::Mixed { parts: vec![(1, "salt".into()), (900, "é".into())], heat: 1.5 },
        hand: Hand(vec![Skill::Fly, Skill::Fly, Skill::Swim]),
        rows: Some(vec![[true, false]]),
    }
}

#[test]
fn lists_come_back() {
    let value = lists();
    let w = words(&value).unwrap();
    assert_eq!(back::<Lists>(&w).unwrap(), value);
    assert_eq!(travel::<Lists>(&w, None).0, w);
    let empty = Lists {
        items: Vec::new(),
        times: VecDeque::new(),
        small: SmallVec::new(),
        friends: Vec::new(),
        bytes: Vec::new(),
        skills: BTreeSet::new(),
        levels: BTreeMap::new(),
        bag: BTreeMap::new(),
        recipe: Recipe::Plain,
        hand: Hand(Vec::new()),
        rows: None,
    };
    let e = words(&empty).unwrap();
    assert_eq!(back::<Lists>(&e).unwrap(), empty);
    assert_eq!(travel::<Lists>(&w, Some(&e)).0, w);
    assert_eq!(travel::<Lists>(&e, Some(&w)).0, e);
    let names: Vec<_> = Layout::of::<Lists>().unwrap().fields().iter().map(|f| f.name.clone()).collect();
    for name in
        ["items.0", "items.3.some.mark", "times.2.some", "levels.1.some.key", "bag.1.some.value.count", "rows.some.1.some.0"]
    {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }
}

#[test]
fn what_is_not_there_costs_next_to_nothing() {
    #[derive(Replicate)]
    struct Long {
        #[net(max = 32)]
        of: Vec<u32>,
    }
    let of = |n: u32| words(&Long { of: (0..n).collect() }).unwrap();
    assert_eq!(travel::<Long>(&of(0), None).1, 1);
    assert_eq!(travel::<Long>(&of(5), None).1, 5 * 33 + 1);
    assert_eq!(travel::<Long>(&of(32), None).1, 32 * 33, "a full list needs no end");
    let more = travel::<Long>(&of(6), Some(&of(5))).1;
    assert!(more <= 6 + 33 + 1 + 5 * 3, "one more item takes {more} bits");
}

#[test]
fn equal_maps_have_equal_words() {
    let mut other = lists();
    other.levels = BTreeMap::new();
    other.levels.insert(3, 0);
    other.levels.insert(7, 100);
    assert_eq!(words(&other).unwrap(), words(&lists()).unwrap());
    assert!(other.raw() == lists().raw());
}

#[test]
fn raw_sees_every_item() {
    let base = lists();
    let edits: [fn(&mut Lists); 14] = [
        |v| v.items[1].count = 2,
        |v| _ = v.items.pop(),
        |v| v.items.push(v.items[0].clone()),
        |v| v.times[0] = 0.6,
        |v| v.small[2] = 9,
        |v| v.friends[1] = Some(entity(5)),
        |v| v.bytes[1] = 0,
        |v| v.bytes.push(0),
        |v| _ = v.skills.insert(Skill::Fly),
        |v| _ = v.levels.insert(7, 99),
        |v| v.bag.values_mut().for_each(|item| item.count = 2),
        |v| v.recipe = Recipe::Plain,
        |v| v.hand.0[0] = Skill::Dig,
        |v| v.rows = Some(Vec::new()),
    ];
    for (i, edit) in edits.iter().enumerate() {
        let mut changed = base.clone();
        assert!(changed.raw() == base.raw());
        edit(&mut changed);
        assert!(changed.raw() != base.raw(), "edit {i}");
    }
    // what is too long is a change as well, so that the error is told
    let mut long = base.clone();
    long.items = vec![base.items[0].clone(); 4];
    let full = long.raw();
    long.items.push(base.items[0].clone());
    assert!(long.raw() != full);
}

#[test]
fn what_is_too_long_is_an_error_with_its_name() {
    let wrong = |edit: &dyn Fn(&mut Lists)| {
        let mut value = lists();
        edit(&mut value);
        let error = words(&value).unwrap_err();
        (error.field.into_owned(), error.problem)
    };
    let many = |len, max| Problem::TooMany { len, max };
    assert_eq!(wrong(&|v| v.items = vec![v.items[0].clone(); 5]), ("items".into(), many(5, 4)));
    assert_eq!(wrong(&|v| v.levels = (0..5).map(|i| (i, 0)).collect()), ("levels".into(), many(5, 4)));
    assert_eq!(wrong(&|v| v.bytes = vec![0; 8]), ("bytes".into(), Problem::TooLong { len: 8, cap: 7 }));
    assert_eq!(wrong(&|v| v.items[1].count = 0).0, "items.1.count");
    assert_eq!(wrong(&|v| v.times[1] = f32::NAN), ("times.1".into(), Problem::NotFinite));
    assert_eq!(wrong(&|v| _ = v.levels.insert(9, 101)).0, "levels.2.value");
    let (name, problem) = wrong(&|v| v.recipe = Recipe::Mixed { parts: vec![(0, "x".repeat(50))], heat: 0.0 });
    assert_eq!(name, "recipe");
    assert!(matches!(problem, Problem::TooLong { len: 50.., cap: 40 }), "{problem}");
}

#[test]
fn what_no_value_has_is_refused() {
    #[derive(Clone, Debug, PartialEq, Replicate)]
    struct Sorted {
        #[net(max = 3)]
        keys: BTreeSet<u8>,
        #[net(max = 2)]
        map: BTreeMap<u8, u8>,
    }
    let good = Sorted { keys: [1, 2].into(), map: [(1, 5), (2, 5)].into() };
    let w = words(&good).unwrap();
    assert_eq!(w, [1, 1, 1, 2, 0, 0, 1, 1, 5, 1, 2, 5]);
    let swap = |at: usize, to: u32| {
        let mut w = w.clone();
        w[at] = to;
        back::<Sorted>(&w)
    };
    for (at, to) in [(3, 1), (3, 0), (10, 1), (10, 0), (0, 2)] {
        assert!(matches!(swap(at, to), Err(RestoreError::Invalid { .. })), "word {at} as {to}");
    }
    // more than the list of the game holds
    #[derive(Debug, PartialEq, Replicate)]
    struct Held {
        #[net(list, max = 4)]
        hand: Hand<bool>,
    }
    assert!(back::<Held>(&[1, 1, 1, 1, 1, 1, 0, 0]).is_ok());
    assert_eq!(back::<Held>(&[1; 8]), Err(RestoreError::Invalid { field: "hand" }));
}

#[test]
fn opaque_bytes_are_taken_only_as_their_own_value() {
    #[derive(Clone, Debug, PartialEq, Replicate)]
    struct Cook {
        #[net(opaque, max = 40)]
        recipe: Recipe,
    }
    let of = |bytes: &[u8]| {
        let mut words = vec![0; field::text_words(40)];
        field::put_blob(bytes, 40, &mut words).unwrap();
        back::<Cook>(&words)
    };
    let good = bitcode::encode(&lists().recipe);
    assert_eq!(of(&good).unwrap().recipe, lists().recipe);
    let refused = Err(RestoreError::Invalid { field: "recipe" });
    for len in 0..good.len() {
        assert_eq!(of(&good[..len]), refused, "prefix {len}");
    }
    assert_eq!(of(&[&good[..], &[0]].concat()), refused, "more than the value");
    // of bytes that bitcode takes for a value which it would write otherwise, none is taken here
    let mut loose = 0;
    for bytes in (0..good.len() * 8).map(|bit| {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    }) {
        let value = bitcode::decode::<Recipe>(&bytes);
        let is_its_own = value.as_ref().is_ok_and(|value| bitcode::encode(value) == bytes);
        loose += u32::from(value.is_ok() && !is_its_own);
        assert_eq!(of(&bytes).is_ok(), is_its_own, "{bytes:?}");
    }
    assert!(loose > 0, "there are such bytes");
    let mut too_long = vec![0; field::text_words(40)];
    too_long[0] = 41;
    assert_eq!(back::<Cook>(&too_long), refused);
}

#[test]
fn numbers_come_back() {
    let value = Numbers {
        far: -8000.0,
        near: Step::f64(0.001, -10.0, 10.0).value(19_999),
        fixed: -257.0 / 256.0,
        fine: 3.0 - 1.0 / 65536.0,
        health: 1.0,
        stick: [0.0, -1.0],
        up: [0.0, 0.0, -1.0],
        aims: None,
    };
    let w = words(&value).unwrap();
    assert_eq!(w[..7], [0, 19_999, (1 << 22) - 257, 4 * 65536 - 1, 255, 511, 0]);
    assert_eq!(back::<Numbers>(&w).unwrap(), value);
    let layout = Layout::of::<Numbers>().unwrap();
    assert_eq!(layout.fields()[0].code, FieldCode::Number { max: 16_000_000, order: 4 });
    assert_eq!(layout.fields()[1].code, FieldCode::Number { max: 20_000, order: 2 });
    let wrong = |edit: fn(&mut Numbers)| {
        let mut value = value.clone();
        edit(&mut value);
        words(&value).unwrap_err().field.into_owned()
    };
    assert_eq!(wrong(|v| v.far = 8000.1), "far");
    assert_eq!(wrong(|v| v.near = f64::INFINITY), "near");
    assert_eq!(wrong(|v| v.fixed = f32::NAN), "fixed");
    assert_eq!(wrong(|v| v.health = 1.01), "health");
    assert_eq!(wrong(|v| v.stick[1] = -1.01), "stick.1");
    assert_eq!(wrong(|v| v.up[1] = f32::NAN), "up");
    assert_eq!(wrong(|v| v.aims = Some([0.0; 3])), "aims");
}

#[test]
fn ends_and_middle_of_fractions_are_exact() {
    for bits in 1..=field::UNIT_BITS {
        let unit = Step::unit(bits);
        assert_eq!((unit.value(0), unit.value(unit.last())), (0.0, 1.0), "{bits} bits");
        assert_eq!(unit.last(), (1 << bits) - 1);
        for index in (0..=unit.last()).step_by(1 + unit.last() as usize / 1000) {
            assert_eq!(unit.index(f64::from(unit.value(index) as f32)), Ok(index));
        }
    }
    for bits in 2..=field::UNIT_BITS {
        let signed = Step::signed_unit(bits);
        let half = signed.last() / 2;
        assert_eq!([0, half, 2 * half].map(|i| signed.value(i)), [-1.0, 0.0, 1.0], "{bits} bits");
    }
}

#[test]
fn fixed_point_knows_its_multiples() {
    let fixed = Step::fixed_f32(10, -4.0, 4.0);
    for i in -4096..=4096 {
        let value = f64::from(i) / 1024.0;
        assert_eq!(fixed.value(fixed.index(value).unwrap()), value);
    }
    for range in [(0.0001, 1.0), (0.0, 0.7)] {
        assert!(std::panic::catch_unwind(|| Step::fixed_f32(8, range.0, range.1)).is_err(), "{range:?}");
    }
}

/// The angle between two directions.
fn angle(a: [f32; 3], b: [f32; 3]) -> f64 {
    let (a, b) = (a.map(f64::from), b.map(f64::from));
    let cross = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    let length = |v: [f64; 3]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
    length(cross).atan2(a.iter().zip(&b).map(|(a, b)| a * b).sum())
}

#[test]
fn every_canonical_direction_of_few_bits_is_stable() {
    for bits in 4..=8 {
        let (most, mut canonical) = ((1 << bits) - 2, 0u32);
        for (u, v) in (0..=most).flat_map(|u| (0..=most).map(move |v| (u, v))) {
            if field::normal_is_canonical([u, v], bits) {
                canonical += 1;
                let direction = field::normal_value([u, v], bits);
                assert_eq!(field::normal_words(direction, bits), Ok([u, v]), "{bits} bits, {direction:?}");
            }
        }
        // as many as there are points of whole numbers on the octahedron
        let h = most / 2;
        assert_eq!(canonical, 4 * h * h + 2, "{bits} bits");
        assert!(!field::normal_is_canonical([most + 1, 0], bits));
    }
    for bits in [4, 12, 16] {
        for axis in 0..6 {
            let mut direction = [0.0; 3];
            direction[axis / 2] = if axis % 2 == 0 { 1.0 } else { -1.0 };
            let words = field::normal_words(direction, bits).unwrap();
            assert_eq!(field::normal_value(words, bits), direction, "axes are exact");
        }
    }
    assert_eq!(field::normal_words([0.0; 3], 8), Err(Problem::ZeroNormal));
    assert_eq!(field::normal_words([f32::INFINITY, 0.0, 0.0], 8), Err(Problem::NotFinite));
    // of any length, the largest and the smallest
    assert_eq!(field::normal_words([f32::MAX; 3], 8), field::normal_words([f32::MIN_POSITIVE; 3], 8));
}

#[test]
fn directions_blend_on_the_arc() {
    #[derive(Clone, Debug, PartialEq, Interpolate)]
    struct Aim {
        #[net(octahedral, bits = 8)]
        at: [f32; 3],
        #[net(max = 4)]
        list: Vec<u8>,
    }
    let aim = |at, n| Aim { at, list: vec![n] };
    let half = Aim::interpolate(&aim([1.0, 0.0, 0.0], 1), &aim([0.0, 0.0, 1.0], 2), 0.5);
    assert!(angle(half.at, [1.0, 0.0, 1.0]) < 1e-6 && half.list == [1]);
    let opposite = Aim::interpolate(&aim([1.0, 0.0, 0.0], 1), &aim([-1.0, 0.0, 0.0], 2), 0.5);
    assert_eq!(opposite.at, [1.0, 0.0, 0.0]);
    for (from, to) in [([f32::NAN; 3], [0.0; 3]), ([0.0; 3], [f32::INFINITY, 0.0, 0.0]), ([1.0, 0.0, 0.0], [f32::NAN; 3])] {
        for t in [0.0, 0.5, 1.0, f32::INFINITY] {
            let at = tidelock::interpolate::normal(from, to, t);
            assert!(at.iter().all(|part| part.is_finite()), "{from:?} {to:?} {t}");
        }
    }
}

fn item() -> impl Strategy<Value = Item> {
    (any::<u16>(), 1u8..=99, "[a-c]{0,3}").prop_map(|(sort, count, mark)| Item { sort, count, mark })
}

fn any_lists() -> impl Strategy<Value = Lists> {
    let skill = || prop_oneof![Just(Skill::Swim), Just(Skill::Fly), Just(Skill::Dig)];
    let many = (
        prop::collection::vec(item(), 0..=4),
        prop::collection::vec((0u8..=20).prop_map(|n| f32::from(n) * 0.5), 0..=3),
        prop::collection::vec(any::<u8>(), 0..=5),
        prop::collection::vec(prop::option::of((0u32..100).prop_map(entity)), 0..=4),
        prop::collection::vec(any::<u8>(), 0..=7),
        prop::collection::btree_set(skill(), 0..=3),
        prop::collection::btree_map(any::<u16>(), 0u8..=100, 0..=4),
    );
    let others = (
        prop::collection::btree_map(skill(), item(), 0..=2),
        prop_oneof![Just(Recipe::Plain), Just(lists().recipe)],
        prop::collection::vec(skill(), 0..=3),
        prop::option::of(prop::collection::vec(any::<[bool; 2]>(), 0..=2)),
    );
    (many, others).prop_map(|((items, times, small, friends, bytes, skills, levels), (bag, recipe, hand, rows))| Lists {
        items,
        times: times.into(),
        small: small.into_iter().collect(),
        friends,
        bytes,
        skills,
        levels,
        bag,
        recipe,
        hand: Hand(hand),
        rows,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lists_travel(value in any_lists(), base in any_lists()) {
        let (w, b) = (words(&value).unwrap(), words(&base).unwrap());
        prop_assert_eq!(back::<Lists>(&w).unwrap(), value);
        prop_assert_eq!(&travel::<Lists>(&w, None).0, &w);
        prop_assert_eq!(&travel::<Lists>(&w, Some(&b)).0, &w);
    }

    #[test]
    fn random_bytes_are_refused_or_values(bytes in prop::collection::vec(any::<u8>(), 0..200), base in any_lists()) {
        let layout = Layout::of::<Lists>().unwrap();
        let b = words(&base).unwrap();
        for base in [None, Some(&b[..])] {
            let mut out = vec![0; layout.words()];
            if layout.read(base, 3, &mut BitReader::new(&bytes), &mut out).is_ok()
                && let Ok(value) = back::<Lists>(&out)
            {
                // whatever was taken is a value that would travel as the same
                prop_assert_eq!(words(&value).unwrap(), out);
            }
        }
    }

    #[test]
    fn directions_keep_their_bound(x in -1f32..1.0, y in -1f32..1.0, z in -1f32..1.0, bits in 4u32..=16) {
        prop_assume!(x.abs() + y.abs() + z.abs() > 1e-3);
        let w = field::normal_words([x, y, z], bits).unwrap();
        prop_assert!(field::normal_is_canonical(w, bits));
        let value = field::normal_value(w, bits);
        prop_assert_eq!(field::normal_words(value, bits).unwrap(), w);
        let bound = 2.2 / f64::from((1 << (bits - 1)) - 1);
        prop_assert!(angle(value, [x, y, z]) <= bound, "{} of {bound}", angle(value, [x, y, z]));
        prop_assert!((value.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt() - 1.0).abs() < 1e-6);
    }
}

/// Something of everything, at random.
fn shuffle(lists: &mut Lists, others: &[Entity], rng: &mut Rng) {
    match rng.below(8) {
        0 if lists.items.len() < 4 => lists.items.push(Item { sort: rng.below(9) as u16, count: 1, mark: "m".into() }),
        1 => drop(lists.items.pop()),
        2 => lists.friends = others.iter().take(rng.below(5) as usize).map(|e| (rng.below(4) > 0).then_some(*e)).collect(),
        3 => drop(lists.levels.pop_first()),
        4 if lists.levels.len() < 4 => drop(lists.levels.insert(rng.below(1000) as u16, rng.below(101) as u8)),
        5 => lists.bytes = (0..rng.below(8)).map(|_| rng.below(256) as u8).collect(),
        6 => lists.recipe = Recipe::Mixed { parts: vec![(rng.below(99) as u16, "x".into())], heat: 0.5 },
        _ => lists.rows = rng.chance(50).then(|| vec![[true, false]; rng.below(3) as usize]),
    }
}

#[test]
fn lists_follow_in_a_session_that_loses_packets() {
    let schema =
        Schema::builder("test").component::<Lists>("lists", |c| c).kind::<Crate>("crate", Host::default()).build().unwrap();
    for seed in seeds(5) {
        let (mut table, network) = table_of(seed, &schema, 1, weather(50, 0.15), &config());
        let mut rng = Rng::new(seed);
        for frame in 0..300 {
            table.run(|seat, world: &mut World, step| {
                if seat != 0 {
                    return;
                }
                let all: Vec<Entity> = step.query::<(Entity, &Lists)>(world).iter().map(|(e, _)| e).collect();
                if all.len() < 12 {
                    step.spawn(world, Crate, (Lists { friends: Vec::new(), ..lists() },)).unwrap();
                } else if rng.chance(10) {
                    step.despawn(world, all[0]).unwrap();
                }
                for entity in &all {
                    if rng.chance(20)
                        && let Ok(mut lists) = world.get::<&mut Lists>(*entity)
                    {
                        shuffle(&mut lists, &all, &mut rng);
                    }
                }
            });
            if frame == 150 {
                table.join(config(), network.join(weather(80, 0.1), weather(80, 0.1))).unwrap();
            }
        }
        assert_settles(&mut table, 20);
        assert_clean(&mut table);
        // the values themselves, and not only their digests
        let of = |t: &mut tidelock::testing::Table, seat: usize| {
            let place = t.seat(seat);
            let mut all: Vec<_> = place
                .world
                .query_mut::<(&tidelock::Networked, &Lists)>()
                .into_iter()
                .map(|(n, l)| (n.id(), l.levels.clone(), l.items.clone(), l.recipe.clone()))
                .collect();
            all.sort_by_key(|entry| entry.0);
            all
        };
        let host = of(&mut table, 0);
        assert!(host.len() >= 10, "SEED={seed}");
        assert!(of(&mut table, 1) == host && of(&mut table, 2) == host, "SEED={seed}");
    }
}
