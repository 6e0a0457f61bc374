//! What the derives generate, used as a game uses it.

#![allow(missing_docs)]

use hecs::Entity;
use tidelock::Replicate;
use tidelock::layout::{FieldCode, Layout};
use tidelock::netid::NetId;
use tidelock::replicate::{FieldError, Quantiser, RestoreError, Restorer};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
enum Mood {
    Calm,
    Angry,
    r#Fn,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Tag;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Health(#[net(range = 0..=100)] u8);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Place {
    #[net(step = 0.01, range = -500..=500, order = 6)]
    at: [f32; 2],
    #[net(step = 0.5, range = LOW..=1e6)]
    high: f64,
}
const LOW: f64 = -2.0;

#[derive(Clone, Debug, PartialEq, Replicate)]
struct Everything {
    place: Place,
    #[net(angle, bits = 10)]
    heading: f32,
    #[net(quat, bits = 10)]
    turn: [f32; 4],
    #[net(exact)]
    charge: f32,
    a: u8,
    b: i8,
    c: u16,
    d: i16,
    e: u32,
    f: i32,
    g: u64,
    h: i64,
    #[net(range = -5..=5)]
    small: i64,
    yes: bool,
    #[net(max = 10)]
    name: String,
    #[net(max = 5)]
    nick: Option<String>,
    mood: Mood,
    moods: [Option<Mood>; 2],
    other: Option<Place>,
    #[net(step = 0.1, range = 0.0..=1.0)]
    maybe: Option<[f32; 2]>,
    friend: Option<Entity>,
    owner: Entity,
    tag: Tag,
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
    let mut words = vec![7; layout.words()];
    let mut out = Quantiser::new(&mut words, &names);
    value.quantise(&mut out)?;
    assert_eq!(out.written(), layout.words());
    Ok(words)
}

fn back<T: Replicate>(words: &[u32]) -> Result<T, RestoreError> {
    T::restore(&mut Restorer::new(words, &entities))
}

fn everything() -> Everything {
    Everything {
        place: Place { at: [1.0, -2.5], high: 3.5 },
        heading: 0.0,
        turn: [0.0, 0.0, 0.0, 1.0],
        charge: 0.1,
        a: 255,
        b: -128,
        c: 65535,
        d: -1,
        e: u32::MAX,
        f: i32::MIN,
        g: u64::MAX,
        h: i64::MIN,
        small: -5,
        yes: true,
        name: "häschen".into(),
        nick: Some("é".into()),
        mood: Mood::Angry,
        moods: [None, Some(Mood::r#Fn)],
        other: None,
        maybe: Some([0.0, 1.0]),
        friend: None,
        owner: entity(5),
        tag: Tag,
    }
}

#[test]
fn everything_comes_back() {
    let value = everything();
    let w = words(&value).unwrap();
    assert_eq!(back::<Everything>(&w).unwrap(), value);
    assert_eq!(words(&back::<Everything>(&w).unwrap()).unwrap(), w);
    let layout = Layout::of::<Everything>().unwrap();
    assert!(layout.has_entities());
    let names: Vec<_> = layout.fields().iter().map(|f| f.name.as_str()).collect();
    assert!(names.contains(&"place.at.1") && names.contains(&"moods.1.some") && names.contains(&"other.some.at.0"), "{names:?}");
    assert_eq!(layout.fields()[0].code, FieldCode::Number { max: 100_000, order: 6 });
}

#[test]
fn raw_sees_every_field() {
    let base = everything();
    let edits: [fn(&mut Everything); 21] = [
        |v| v.place.at[1] += 0.001,
        |v| v.place.high += 1e-9,
        |v| v.heading = 1e-6,
        |v| v.turn[0] = 1e-9,
        |v| v.charge = 0.2,
        |v| v.a = 0,
        |v| v.b = 0,
        |v| v.c = 0,
        |v| v.d = 0,
        |v| v.e = 0,
        |v| v.f = 0,
        |v| v.g = 1 << 40,
        |v| v.h = 0,
        |v| v.small = 5,
        |v| v.yes = false,
        |v| v.name.push('x'),
        |v| v.nick = None,
        |v| v.moods[0] = Some(Mood::Calm),
        |v| v.other = Some(v.place),
        |v| v.maybe = Some([0.0, 0.5]),
        |v| v.friend = Some(entity(1)),
    ];
    for (i, edit) in edits.iter().enumerate() {
        let mut changed = base.clone();
        assert!(changed.raw() == base.raw());
        edit(&mut changed);
        assert!(changed.raw() != base.raw(), "edit {i}");
    }
}

#[test]
fn errors_name_the_field() {
    let wrong = |edit: fn(&mut Everything)| {
        let mut value = everything();
        edit(&mut value);
        words(&value).unwrap_err().field.into_owned()
    };
    assert_eq!(wrong(|v| v.place.at[1] = 501.0), "place.at.1");
    assert_eq!(wrong(|v| v.maybe = Some([0.0, f32::NAN])), "maybe.1");
    assert_eq!(wrong(|v| v.small = 6), "small");
    assert_eq!(wrong(|v| v.turn = [0.0; 4]), "turn");
    assert_eq!(wrong(|v| v.name = "eleven byte".into()), "name");
    assert!(words(&Health(101)).is_err());
    assert_eq!(words(&Health(100)).unwrap(), [100]);
    assert_eq!(words(&Tag).unwrap(), [0u32; 0]);
}

#[test]
fn entities_without_names_are_none_and_withhold() {
    let mut value = everything();
    value.friend = Some(entity(200));
    let w = words(&value).unwrap();
    assert_eq!(back::<Everything>(&w).unwrap().friend, None);
    value.owner = entity(200);
    assert_eq!(back::<Everything>(&words(&value).unwrap()), Err(RestoreError::Unresolved(NetId(0))));
}
