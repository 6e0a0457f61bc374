use super::*;
use crate::config::Config;
use crate::schema::Schema;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, bitcode::Encode, bitcode::Decode)]
struct Name(String);

/// A peer without a host; what it reads is as if one had sent it.
fn peer() -> Peer {
    let schema = Schema::builder("test").definition::<Name>("name").definition::<u64>("number").build().unwrap();
    Peer::alone(schema, Config::default()).unwrap()
}

fn value(index: u8, key: u64, revision: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Change { index, key, what: What::Value { revision, bytes } }.write(&mut out);
    out
}

fn named(text: &str) -> Vec<u8> {
    bitcode::encode(&Name(text.into()))
}

fn shown(peer: &Peer, key: u64) -> Option<(u32, Name)> {
    let newest = peer.newest_definition::<Name>(key).unwrap()?;
    peer.definition(newest).unwrap().value().map(|name| (newest.revision, Name::clone(name)))
}

#[test]
fn a_batch_is_taken_whole_or_not_at_all() {
    let mut guest = peer();
    guest.read_definitions(&value(0, 1, 5, &named("a"))).unwrap();
    let good = value(0, 2, 6, &named("b"));
    let mut end = Vec::new();
    Change { index: 0, key: 1, what: What::End }.write(&mut end);
    for bad in [
        value(0, 3, 7, b"no name, and far too long for one"),
        value(2, 3, 7, &named("of no type")),
        value(0, 1, 5, &named("no newer")),
        vec![9; 10],
        good[..good.len() - 1].to_vec(),
    ] {
        let before = shown(&guest, 1);
        let batch = [&value(1, 3, 7, &bitcode::encode(&5u64))[..], &bad].concat();
        assert_eq!(guest.read_definitions(&batch), None);
        assert_eq!(shown(&guest, 1), before);
        assert!(guest.newest_definition::<u64>(3).unwrap().is_none(), "{bad:?}");
    }
    guest.read_definitions(&[good, end.clone(), end].concat()).unwrap();
    assert_eq!((shown(&guest, 1), shown(&guest, 2)), (None, Some((6, Name("b".into())))));
}

#[test]
fn what_a_host_makes_its_guests_keep_is_bounded() {
    let mut guest = peer();
    let most = limits::DEFINITIONS as u64;
    let many: Vec<u8> = (0..most).flat_map(|key| value(0, key, 1, &named(""))).collect();
    guest.read_definitions(&many).unwrap();
    assert_eq!(guest.read_definitions(&value(0, most, 1, &named(""))), None);
    guest.read_definitions(&value(0, 0, 2, &named("in the place of one"))).unwrap();
    let mut guest = peer();
    let long = "x".repeat(limits::DEFINITION_BYTES - 100);
    let fit = (0..40).take_while(|key| guest.read_definitions(&value(0, *key, 1, &named(&long))).is_some()).count();
    assert_eq!(fit, 32);
    assert!(guest.definitions.size <= limits::DEFINITIONS_BYTES);
}

#[test]
fn a_batch_of_more_changes_than_go_together_is_no_batch() {
    let ends = |count: usize| -> Vec<u8> {
        let mut out = Vec::new();
        (0..count as u64).for_each(|key| Change { index: 0, key, what: What::End }.write(&mut out));
        out
    };
    let mut guest = peer();
    guest.read_definitions(&value(0, 1, 1, &named("a"))).unwrap();
    assert_eq!(guest.read_definitions(&ends(limits::DEFINITION_CHANGES + 1)), None);
    assert!(shown(&guest, 1).is_some(), "nothing of it was taken");
    guest.read_definitions(&ends(limits::DEFINITION_CHANGES)).unwrap();
    assert_eq!(shown(&guest, 1), None);
    // ends of what there never was are not told and not kept
    assert!(guest.poll_news().is_some_and(|news| matches!(news, News::Defined { key: 1, .. })));
    assert_eq!(guest.poll_news(), None);
    assert_eq!((guest.definitions.held.len(), guest.definitions.size), (0, 0));
}

#[test]
fn two_revisions_are_kept() {
    let mut guest = peer();
    for revision in [3, 5, 9] {
        guest.read_definitions(&value(0, 1, revision, &named(&revision.to_string()))).unwrap();
    }
    let ask = |revision| guest.definition(DefinitionRef::<Name>::new(1, revision)).unwrap();
    let exact = |text: &str| Defined::Exact(Arc::new(Name(text.into())));
    let stale = || Defined::Stale { value: Arc::new(Name("9".into())), revision: 9 };
    assert_eq!((ask(9), ask(5)), (exact("9"), exact("5")));
    assert_eq!((ask(3), ask(10)), (stale(), stale()));
}

proptest! {
    /// Batches of changes that are possible one by one: what is kept is what a plain list of them says, and never beyond the limits.
    #[test]
    fn whatever_is_taken_is_as_a_list_says(
        batches in prop::collection::vec(prop::collection::vec((0u64..6, prop::option::of((1u32..9, "[a-z]{0,6}"))), 0..8), 0..12)
    ) {
        let mut guest = peer();
        let mut list: BTreeMap<u64, (u32, String)> = BTreeMap::new();
        for batch in batches {
            let mut next = list.clone();
            let mut is_good = true;
            let mut bytes = Vec::new();
            for (key, change) in &batch {
                match change {
                    None => {
                        Change { index: 0, key: *key, what: What::End }.write(&mut bytes);
                        next.remove(key);
                    }
                    Some((revision, text)) => {
                        bytes.extend(value(0, *key, *revision, &named(text)));
                        is_good &= next.get(key).is_none_or(|old| old.0 < *revision);
                        next.insert(*key, (*revision, text.clone()));
                    }
                }
            }
            prop_assert_eq!(guest.read_definitions(&bytes).is_some(), is_good);
            if is_good {
                list = next;
            }
            for key in 0..6 {
                let expected = list.get(&key).map(|(revision, text)| (*revision, Name(text.clone())));
                prop_assert_eq!(shown(&guest, key), expected);
            }
            let size: usize = list.values().map(|(_, text)| named(text).len()).sum();
            prop_assert_eq!((guest.definitions.held.len(), guest.definitions.size), (list.len(), size));
        }
    }

    #[test]
    fn random_batches_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), key in 0u64..3) {
        let mut guest = peer();
        let _ = guest.read_definitions(&bytes);
        let _ = guest.read_definitions(&value(0, key, 1, &bytes));
        let _ = guest.read_definitions(&value(1, key, 1, &bytes));
    }
}
