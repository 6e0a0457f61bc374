//! Interpolation and checkpoints, as the derives make them.

#![allow(missing_docs)]

use hecs::Entity;
use proptest::prelude::*;
use tidelock::checkpoint::CheckpointWriter;
use tidelock::interpolate::{angle, line, quat};
use tidelock::netid::NetId;
use tidelock::{Checkpoint, Interpolate, Replicate};

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate, Checkpoint)]
enum Gait {
    Walk,
    Run,
}

#[derive(Clone, Debug, PartialEq, Replicate, Interpolate, Checkpoint)]
struct Body {
    #[net(step = 0.01, range = -500.0..=500.0)]
    at: [f32; 3],
    #[net(angle, bits = 10)]
    heading: f64,
    #[net(angle, bits = 10)]
    arms: Option<[f32; 2]>,
    #[net(quat, bits = 10)]
    turn: [f32; 4],
    #[net(exact)]
    charge: f32,
    #[net(step = 0.5, range = 0.0..=10.0, hold)]
    tier: f32,
    gait: Gait,
    #[net(max = 8)]
    name: String,
    target: Option<Entity>,
    hp: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Interpolate, Checkpoint, Replicate)]
struct Tag;

fn entity(n: u32) -> Entity {
    Entity::from_bits((7 << 32) | u64::from(n)).unwrap()
}

fn bodies() -> (Body, Body) {
    let h = std::f32::consts::FRAC_1_SQRT_2;
    (
        Body {
            at: [0.0, 1.0, 2.0],
            heading: 3.0,
            arms: Some([0.0, 3.0]),
            turn: [0.0, 0.0, 0.0, 1.0],
            charge: 0.0,
            tier: 1.0,
            gait: Gait::Walk,
            name: "a".into(),
            target: None,
            hp: 1,
        },
        Body {
            at: [2.0, 1.0, 4.0],
            heading: -3.0,
            arms: Some([1.0, -3.0]),
            turn: [0.0, 0.0, -h, -h],
            charge: 1.0,
            tier: 5.0,
            gait: Gait::Run,
            name: "b".into(),
            target: Some(entity(1)),
            hp: 9,
        },
    )
}

#[test]
fn each_field_goes_its_way() {
    let (from, to) = bodies();
    let half = Body::interpolate(&from, &to, 0.5);
    assert_eq!(half.at, [1.0, 1.0, 3.0]);
    assert!((half.heading.abs() - std::f64::consts::PI).abs() < 1e-9);
    let arms = half.arms.unwrap();
    assert!((arms[0] - 0.5).abs() < 1e-6 && arms[1].abs() > 3.1);
    // A quarter turn about z, the short way though the end was given as −q: half of it is an eighth.
    let eighth = std::f32::consts::FRAC_PI_8;
    assert!((half.turn[2] - eighth.sin()).abs() < 1e-6 && (half.turn[3] - eighth.cos()).abs() < 1e-6, "{:?}", half.turn);
    assert_eq!(
        (half.charge, half.tier, half.gait, half.name.as_str(), half.target, half.hp),
        (0.5, 1.0, Gait::Walk, "a", None, 1)
    );
    let end = Body::interpolate(&from, &to, 1.0);
    assert_eq!((end.at, end.tier, end.gait, end.name.as_str(), end.target, end.hp), (to.at, 5.0, Gait::Run, "b", to.target, 9));
    let beyond = Body::interpolate(&from, &to, 2.0);
    assert_eq!(beyond.at, [4.0, 1.0, 6.0]);
    let half_turn = std::f32::consts::FRAC_PI_2;
    assert!((beyond.turn[2] - half_turn.sin()).abs() < 1e-5 && (beyond.turn[3] - half_turn.cos()).abs() < 1e-5);
    let absent = Body { arms: None, ..to.clone() };
    assert_eq!(Body::interpolate(&from, &absent, 0.9).arms, from.arms);
    assert_eq!(Body::interpolate(&from, &absent, 1.0).arms, None);
    assert_eq!(Tag::interpolate(&Tag, &Tag, 0.3), Tag);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn nothing_infinite_comes_out(a: u64, b: u64, t: u32, q: [u32; 4], p: [u32; 4]) {
        let (from, to, t) = (f64::from_bits(a), f64::from_bits(b), f32::from_bits(t));
        prop_assert!(line(from, to, t).is_finite());
        prop_assert!(angle(from, to, t).is_finite());
        prop_assert!(f32::interpolate(&f32::from_bits(q[0]), &f32::from_bits(q[1]), t).is_finite());
        let turned = quat(q.map(f32::from_bits), p.map(f32::from_bits), t);
        let length = turned.iter().map(|v| v * v).sum::<f32>();
        prop_assert!((length - 1.0).abs() < 1e-5, "{:?}", turned);
    }

    #[test]
    fn between_lies_between(from in -1e6f32..1e6, to in -1e6f32..1e6, t in 0.0f32..=1.0) {
        let at = f32::interpolate(&from, &to, t);
        prop_assert!(at >= from.min(to) - 0.1 && at <= from.max(to) + 0.1);
        prop_assert_eq!(f32::interpolate(&from, &to, 0.0), from);
        prop_assert_eq!(f32::interpolate(&from, &to, 1.0), to);
        let (a, b) = (f64::from(from), f64::from(to));
        let whole = (angle(a, b, 1.0) - b).rem_euclid(std::f64::consts::TAU);
        prop_assert!(whole.min(std::f64::consts::TAU - whole) < 1e-6);
    }
}

#[derive(Clone, Debug, PartialEq, Checkpoint)]
enum State {
    Idle,
    Charging { ticks: u32, aim: Option<Entity> },
    Say(String, f32),
}

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Mind {
    state: State,
    path: Vec<[i16; 2]>,
    names: Vec<String>,
    deep: Option<Box8>,
}

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Box8([u8; 8], (), usize, char);

fn digest<T: Checkpoint>(value: &T, names: &dyn Fn(Entity) -> Option<NetId>) -> u64 {
    let mut writer = CheckpointWriter::for_digest(names);
    value.write(&mut writer);
    writer.finish(0)
}

fn minds() -> Vec<Mind> {
    let base = Mind {
        state: State::Idle,
        path: vec![[1, 2], [3, 4]],
        names: vec!["ab".into(), "c".into()],
        deep: Some(Box8([1; 8], (), 9, 'x')),
    };
    vec![
        Mind { state: State::Charging { ticks: 3, aim: None }, ..base.clone() },
        Mind { state: State::Charging { ticks: 4, aim: None }, ..base.clone() },
        Mind { state: State::Charging { ticks: 3, aim: Some(entity(1)) }, ..base.clone() },
        Mind { state: State::Charging { ticks: 3, aim: Some(entity(2)) }, ..base.clone() },
        Mind { state: State::Say("no".into(), 0.0), ..base.clone() },
        Mind { state: State::Say("no".into(), -0.0), ..base.clone() },
        Mind { path: vec![], ..base.clone() },
        Mind { path: vec![[1, 2], [3, 4], [5, 6]], ..base.clone() },
        Mind { names: vec!["a".into(), "bc".into()], ..base.clone() },
        Mind { deep: None, ..base.clone() },
        Mind { deep: Some(Box8([1; 8], (), 8, 'x')), ..base.clone() },
        Mind { deep: Some(Box8([1; 8], (), 9, 'y')), ..base.clone() },
        base,
    ]
}

#[test]
fn a_save_is_equal_from_any_state_before() {
    for from in minds() {
        for mut into in minds() {
            from.save_into(&mut into);
            assert_eq!(into, from);
        }
    }
}

#[test]
fn saving_reuses_memory() {
    let from = Mind { state: State::Idle, path: vec![[1, 2]; 3], names: vec!["four".into(); 2], deep: None };
    let mut into = Mind { state: State::Idle, path: vec![[0, 0]; 9], names: vec!["something long".into(); 3], deep: None };
    let before = (into.path.as_ptr(), into.names.as_ptr(), into.names[0].as_ptr());
    from.save_into(&mut into);
    assert_eq!(before, (into.path.as_ptr(), into.names.as_ptr(), into.names[0].as_ptr()));
}

#[test]
fn digests_tell_states_apart_and_forget_handles() {
    let named = |e: Entity| Some(NetId(u64::from(e.id()) + 10));
    let all: Vec<_> = minds().iter().map(|m| digest(m, &named)).collect();
    for (i, a) in all.iter().enumerate() {
        assert!(!all[..i].contains(a), "state {i} has the digest of another");
    }
    // Another handle with the same name is the same entity on another peer.
    let there = |e: Entity| Some(NetId(u64::from(e.id()) + 9));
    assert_eq!(digest(&entity(1), &named), digest(&entity(2), &there));
    assert_eq!(digest(&f32::NAN, &named), digest(&f32::from_bits(0xffc0_0001), &named));
    assert_ne!(digest(&Gait::Walk, &named), digest(&Gait::Run, &named));
}

/// Where two values differ, as text.
fn differ<T: Checkpoint>(mine: &T, others: &T) -> Option<(String, String, String)> {
    let names = |_: Entity| None;
    let mut at = tidelock::checkpoint::Differ::new(&names, &names);
    mine.differ(others, &mut at).then(|| at.into_parts())
}

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Pack {
    gold: u32,
    pockets: [Option<u8>; 2],
    notes: Vec<Note>,
    mood: Mood,
}

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Note(String, f32);

#[derive(Clone, Debug, PartialEq, Checkpoint)]
enum Mood {
    Calm,
    Angry { at: u8 },
}

/// The field, its value before and after a change, and the change.
type Case = (&'static str, &'static str, &'static str, fn(&mut Pack));

#[test]
fn the_first_field_that_differs_is_named_with_both_values() {
    let pack = Pack { gold: 1, pockets: [None, Some(2)], notes: vec![Note("a".into(), 1.0)], mood: Mood::Angry { at: 3 } };
    assert_eq!(differ(&pack, &pack.clone()), None);
    let cases: [Case; 9] = [
        ("gold", "1", "9", |p| p.gold = 9),
        ("pockets[0]", "None", "Some", |p| p.pockets[0] = Some(0)),
        ("pockets[1]", "2", "3", |p| p.pockets[1] = Some(3)),
        ("notes[0].0", "\"a\"", "\"b\"", |p| p.notes[0].0 = "b".into()),
        ("notes[0].1", "1.0", "-1.0", |p| p.notes[0].1 = -1.0),
        ("notes.len()", "1", "2", |p| p.notes.push(Note("a".into(), 1.0))),
        ("mood", "Angry", "Calm", |p| p.mood = Mood::Calm),
        ("mood.Angry.at", "3", "4", |p| p.mood = Mood::Angry { at: 4 }),
        // the first one counts
        ("gold", "1", "2", |p| (p.gold, p.mood) = (2, Mood::Calm)),
    ];
    for (field, mine, others, change) in cases {
        let mut other = pack.clone();
        change(&mut other);
        assert_eq!(differ(&pack, &other), Some((field.into(), mine.into(), others.into())));
    }
    assert_eq!(differ(&f32::NAN, &-f32::NAN), None, "machines make different ones");
}

/// What owns memory is not plain: checked by the compiler.
const _: () = {
    assert!(<[Option<u32>; 3]>::PLAIN && <Mood as Checkpoint>::PLAIN && Entity::PLAIN);
    assert!(!Pack::PLAIN && !Note::PLAIN && !String::PLAIN && !<[Vec<u8>; 1]>::PLAIN);
};
