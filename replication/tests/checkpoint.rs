//! `Checkpoint` as bytes: what is read is what was written, and nothing else is read.

use hecs::Entity;
use proptest::prelude::*;
use tidelock::checkpoint::{CheckpointError, CheckpointReader, CheckpointWriter};
use tidelock::{Checkpoint, NetId};
use tidelock_netcore::limits;

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
    notes: Vec<(String, char)>,
    deep: Option<Deep>,
    flags: (bool, Nothing, u128),
    nothings: Vec<Nothing>,
    next: NetId,
}

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Deep([u8; 3], (), usize, isize, f64);

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Nothing;

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Tree(Vec<Tree>);

#[derive(Clone, Debug, PartialEq, Checkpoint)]
struct Large(Option<[[u64; 32]; 32]>);

/// As if every handle's number were its name.
fn name(entity: Entity) -> Option<NetId> {
    (entity != Entity::DANGLING).then(|| NetId(entity.to_bits().get()))
}

fn entity(net: NetId) -> Option<Entity> {
    Entity::from_bits(net.0)
}

fn bytes<T: Checkpoint>(value: &T) -> Vec<u8> {
    let mut w = CheckpointWriter::new(&name);
    value.write(&mut w);
    w.as_bytes().to_vec()
}

fn read<T: Checkpoint>(bytes: &[u8]) -> Result<T, CheckpointError> {
    let mut r = CheckpointReader::new(bytes, &entity);
    let value = T::read(&mut r)?;
    r.finish()?;
    Ok(value)
}

fn any_entity() -> impl Strategy<Value = Entity> {
    prop_oneof![
        Just(Entity::DANGLING),
        (0..u32::MAX, 1..u32::MAX)
            .prop_filter_map("a handle", |(id, generation)| { Entity::from_bits(u64::from(generation) << 32 | u64::from(id)) })
    ]
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Idle),
        (any::<u32>(), proptest::option::of(any_entity())).prop_map(|(ticks, aim)| State::Charging { ticks, aim }),
        (".{0,20}", any::<f32>()).prop_map(|(words, loudness)| State::Say(words, loudness)),
    ]
}

prop_compose! {
    fn mind()(
        state in state(),
        path in proptest::collection::vec(any::<[i16; 2]>(), 0..200),
        notes in proptest::collection::vec((".{0,5}", any::<char>()), 0..4),
        deep in proptest::option::of((any::<[u8; 3]>(), any::<usize>(), any::<isize>(), any::<f64>())),
        flags in (any::<bool>(), any::<u128>()),
        nothings in 0usize..300,
        next in any::<u64>(),
    ) -> Mind {
        let deep = deep.map(|(a, b, c, d)| Deep(a, (), b, c, d));
        let flags = (flags.0, Nothing, flags.1);
        Mind { state, path, notes, deep, flags, nothings: vec![Nothing; nothings], next: NetId(next) }
    }
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(mind in mind()) {
        let written = bytes(&mind);
        let back: Mind = read(&written).unwrap();
        // NaN is unlike itself: the bytes tell
        prop_assert_eq!(bytes(&back), written);
    }

    #[test]
    fn every_prefix_is_refused(mind in mind(), longer in any::<u8>()) {
        let mut written = bytes(&mind);
        for end in 0..written.len() {
            prop_assert!(read::<Mind>(&written[..end]).is_err(), "the first {} of {} bytes", end, written.len());
        }
        written.push(longer);
        prop_assert_eq!(read::<Mind>(&written), Err(CheckpointError::Trailing(1)));
    }

    #[test]
    fn a_value_has_one_encoding(random in proptest::collection::vec(0u8..12, 0..120)) {
        if let Ok(mind) = read::<Mind>(&random) {
            prop_assert_eq!(bytes(&mind), random);
        }
    }

    #[test]
    fn bytes_that_were_changed_never_panic(mind in mind(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut changed = bytes(&mind);
        let at = at.index(changed.len());
        changed[at] = to;
        if let Ok(mind) = read::<Mind>(&changed) {
            prop_assert_eq!(bytes(&mind), changed);
        }
    }
}

#[test]
fn the_layout_is_what_the_page_says() {
    assert_eq!(bytes(&State::Say("hé".into(), 1.5)), [2, 3, b'h', 0xc3, 0xa9, 0, 0, 0xc0, 0x3f]);
    assert_eq!(bytes(&vec![(true, 0x1234u16); 2]), [2, 1, 0x34, 0x12, 1, 0x34, 0x12]);
    assert_eq!(bytes(&vec![0u8; 300])[..2], [0xac, 2]);
    assert_eq!(bytes(&vec![Nothing; 2]), [2, 0, 0]);
    assert_eq!(bytes(&Some(NetId(7))), [1, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes(&(-1isize, 'a')), [255, 255, 255, 255, 255, 255, 255, 255, 97, 0, 0, 0]);
    assert_eq!(bytes(&Entity::DANGLING), [0; 8]);
}

#[test]
fn nans_are_kept_and_are_one_in_digests() {
    let nans = [f32::from_bits(0x7fc0_0001), f32::from_bits(0xffc1_2345), f32::from_bits(0x7f80_0001)];
    for nan in nans {
        assert_eq!(read::<f32>(&bytes(&nan)).unwrap().to_bits(), nan.to_bits());
        let wide = f64::from_bits(0x7ff0_0000_0000_0001 | u64::from(nan.to_bits()) << 20);
        assert_eq!(read::<f64>(&bytes(&wide)).unwrap().to_bits(), wide.to_bits());
    }
    let digest = |value: f32| {
        let mut w = CheckpointWriter::for_digest(&name);
        value.write(&mut w);
        w.finish(1)
    };
    assert!(nans.iter().all(|nan| digest(*nan) == digest(f32::NAN)));
    assert_ne!(digest(0.0), digest(-0.0));
}

#[test]
fn what_stands_for_nothing_is_refused() {
    assert_eq!(read::<bool>(&[2]), Err(CheckpointError::OutOfRange("bool")));
    assert_eq!(read::<char>(&0xd800u32.to_le_bytes()), Err(CheckpointError::OutOfRange("character")));
    assert_eq!(read::<State>(&[3]), Err(CheckpointError::OutOfRange("State")));
    assert_eq!(read::<Option<u8>>(&[2, 0]), Err(CheckpointError::OutOfRange("option")));
    assert_eq!(read::<String>(&[1, 0xff]), Err(CheckpointError::OutOfRange("text")));
    assert_eq!(read::<Vec<Nothing>>(&[1, 1]), Err(CheckpointError::OutOfRange("element")));
    assert_eq!(read::<Option<u8>>(&[0x80, 0]), Err(CheckpointError::OutOfRange("number")), "none, in one byte too many");
    let mut r = CheckpointReader::new(&[255; 16], &|_| None);
    assert_eq!(r.length(), Err(CheckpointError::OutOfRange("number")));
    assert_eq!(
        CheckpointReader::new(&[9; 8], &|_| None).entity(),
        Err(CheckpointError::UnknownName(NetId(0x0909_0909_0909_0909)))
    );
}

#[test]
fn no_list_is_longer_than_its_bytes() {
    for length in [3, 1 << 40, u64::MAX] {
        let mut bytes = Vec::new();
        let mut rest = length;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.extend([rest as u8, 0, 0]);
        assert_eq!(read::<Vec<u8>>(&bytes), Err(CheckpointError::Truncated));
        assert_eq!(read::<Vec<Nothing>>(&bytes), Err(CheckpointError::Truncated));
        assert_eq!(read::<String>(&bytes), Err(CheckpointError::Truncated));
    }
}

#[test]
fn neither_depth_nor_memory_is_without_end() {
    let tree = |depth: usize| (1..depth).fold(Tree(Vec::new()), |tree, _| Tree(vec![tree]));
    assert_eq!(read::<Tree>(&bytes(&tree(limits::CHECKPOINT_DEPTH))), Ok(tree(limits::CHECKPOINT_DEPTH)));
    assert_eq!(read::<Tree>(&bytes(&tree(limits::CHECKPOINT_DEPTH + 1))), Err(CheckpointError::TooDeep));
    assert_eq!(read::<Tree>(&vec![1; 1 << 20]), Err(CheckpointError::TooDeep));
    // 8 kB each, of a byte
    let few = vec![Large(None); 1000];
    assert_eq!(read::<Vec<Large>>(&bytes(&few)), Ok(few));
    let mut many = vec![0xff, 0xff, 3];
    many.resize(3 + 0xffff, 0);
    assert_eq!(read::<Vec<Large>>(&many), Err(CheckpointError::TooLarge));
}
