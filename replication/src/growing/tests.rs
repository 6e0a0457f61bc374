use super::content::Content;
use super::wire::Said;
use super::*;
use crate::config::Config;
use crate::news::News;
use crate::schema::Schema;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use tidelock_netcore::error::PeerError;

/// Which is which in the schema below.
const LIST: Key = (0, 0);
const MAP: Key = (1, 0);

fn schema() -> Schema {
    Schema::builder("test").list::<String>("feed", |l| l.max(4)).map::<u16, u8>("scores", |m| m.max(3)).build().unwrap()
}

/// A peer without a host; what it takes is as if one had sent it.
fn peer() -> Peer {
    Peer::alone(schema(), Config::default()).unwrap()
}

fn bytes(of: &[u8]) -> Arc<[u8]> {
    of.into()
}

fn item(text: &str) -> Arc<[u8]> {
    bitcode::encode(&text.to_owned()).into()
}

fn digest(sort: Sort, ops: &[Op]) -> u32 {
    let mut content = Content::new(sort);
    ops.iter().for_each(|op| content.apply(op, limits::COLLECTION_ITEMS).unwrap());
    content.digest()
}

fn pushes(texts: &[&str]) -> Vec<Op> {
    texts.iter().map(|text| Op::Push(item(text))).collect()
}

fn shown(peer: &Peer) -> (u64, Vec<String>) {
    let list = peer.list::<String>().unwrap();
    (list.revision(), list.iter().cloned().collect())
}

fn sorts(which: u8) -> Option<Sort> {
    [Sort::List, Sort::Map].get(usize::from(which)).copied()
}

#[test]
fn the_bytes_are_as_described() {
    let ops = vec![Op::Push(bytes(b"ab")), Op::Insert(300, bytes(b"")), Op::Set(1, bytes(b"c")), Op::Remove(2), Op::PopFront];
    let batch = Said::Batch { at: (0, 130), base: 5, to: 7, digest: 0x0102_0304, ops };
    let head = [0, 0, 0x82, 1, 5, 2, 4, 3, 2, 1, 5];
    assert_eq!(host::said(&batch), [&head[..], &[0, 2, b'a', b'b', 1, 0xac, 2, 0, 2, 1, 1, b'c', 3, 2, 4]].concat());
    let ops = vec![Op::Truncate(1), Op::Clear];
    let batch = Said::Batch { at: LIST, base: 0, to: 1, digest: 0, ops };
    assert_eq!(host::said(&batch), [0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 5, 1, 6]);
    let ops = vec![Op::Put(bytes(b"k"), bytes(b"v")), Op::Delete(bytes(b"k")), Op::Clear];
    let batch = Said::Batch { at: MAP, base: 0, to: 1, digest: 0, ops };
    assert_eq!(host::said(&batch), [0, 1, 0, 0, 1, 0, 0, 0, 0, 3, 7, 1, b'k', 1, b'v', 8, 1, b'k', 6]);
    let list = Said::Snapshot { at: LIST, revision: 9, digest: 1, ops: vec![Op::Push(bytes(b"a")), Op::Push(bytes(b""))] };
    assert_eq!(host::said(&list), [1, 0, 0, 9, 1, 0, 0, 0, 2, 1, b'a', 0]);
    let map = Said::Snapshot { at: MAP, revision: 9, digest: 1, ops: vec![Op::Put(bytes(b"k"), bytes(b"v"))] };
    assert_eq!(host::said(&map), [1, 1, 0, 9, 1, 0, 0, 0, 1, 1, b'k', 1, b'v']);
    assert_eq!(host::said(&Said::End { at: (1, 7) }), [2, 1, 7]);
    assert_eq!(host::said(&Said::Ask { at: LIST }), [3, 0, 0]);
}

#[test]
fn what_cannot_be_is_not_read() {
    let read = |bytes: &[u8]| Said::read(bytes, sorts);
    assert!(read(&[3, 0, 0]).is_some());
    for (why, bad) in [
        ("no such list", &[3, 2, 0][..]),
        ("no such message", &[4, 0, 0]),
        ("something behind it", &[3, 0, 0, 0]),
        ("the end of what does not end", &[2, 0, 0]),
        ("a number in two forms", &[3, 0, 0x80, 0]),
        ("a batch that leads nowhere", &[0, 0, 0, 5, 0, 0, 0, 0, 0, 0]),
        ("an operation of a map on a list", &[0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 8, 0]),
        ("an operation of a list on a map", &[0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 4]),
        ("fewer than it says", &[0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 4]),
        ("a count of nothing that came", &[1, 0, 0, 9, 1, 0, 0, 0, 0xff, 0xff, 3]),
    ] {
        assert_eq!(read(bad), None, "{why}");
    }
    let long = |number: &[u8]| [&[3, 0][..], number].concat();
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    assert_eq!(read(&long(&most)), Some(Said::Ask { at: (0, u64::MAX) }));
    assert_eq!(read(&long(&[&most[..9], &[2]].concat())), None, "65 bits");
    assert_eq!(read(&long(&[&most[..9], &[0x81, 1]].concat())), None, "eleven bytes");
    // an item up to its limit
    for (length, fits) in [(limits::COLLECTION_ITEM_BYTES, true), (limits::COLLECTION_ITEM_BYTES + 1, false)] {
        let ops = vec![Op::Push(vec![7; length].into())];
        assert_eq!(read(&host::said(&Said::Snapshot { at: LIST, revision: 1, digest: 0, ops })).is_some(), fits);
    }
    for (at, fits) in [(limits::COLLECTION_ITEMS, true), (limits::COLLECTION_ITEMS + 1, false)] {
        let ops = vec![Op::Remove(at)];
        assert_eq!(read(&host::said(&Said::Batch { at: LIST, base: 0, to: 1, digest: 0, ops })).is_some(), fits);
    }
}

#[test]
fn a_batch_is_taken_whole_or_not_at_all() {
    let mut guest = peer();
    let first = pushes(&["a", "b"]);
    let step = |base, to, ops: &[Op], digest| guest::step(base, to, digest, ops.to_vec());
    guest.take_step(LIST, step(Some(0), 1, &first, digest(Sort::List, &first))).unwrap();
    assert_eq!(shown(&guest), (1, vec!["a".into(), "b".into()]));
    let next = [&first[..], &[Op::Remove(0)], &pushes(&["c"])].concat();
    let right = digest(Sort::List, &next);
    for (why, bad) in [
        ("another base", step(Some(2), 3, &next[2..], right)),
        ("another result", step(Some(1), 2, &next[2..], right ^ 1)),
        ("a place that is not there", step(Some(1), 2, &[Op::Remove(2)], right)),
        ("more than there may be", step(Some(1), 2, &pushes(&["c", "d", "e"]), right)),
        ("a snapshot that is another", step(None, 2, &first, right)),
    ] {
        guest.take_step(LIST, bad).unwrap();
        assert_eq!(shown(&guest), (1, vec!["a".into(), "b".into()]), "{why}");
        assert_eq!(guest.growing.lost, [LIST], "{why}: it asks");
        // until it has come, nothing else is taken, however right
        guest.take_step(LIST, step(Some(1), 2, &next[2..], right)).unwrap();
        assert_eq!(shown(&guest).0, 1, "{why}");
        guest.take_step(LIST, step(None, 1, &first, digest(Sort::List, &first))).unwrap();
        assert!(guest.growing.lost.is_empty(), "{why}");
    }
    guest.take_step(LIST, step(Some(1), 2, &next[2..], right)).unwrap();
    assert_eq!(shown(&guest), (2, vec!["b".into(), "c".into()]));
    let told: Vec<_> = std::iter::from_fn(|| guest.poll_news()).collect();
    let news = |from, to| News::CollectionChanged { collection: "feed".into(), of: None, from, to };
    assert_eq!(told, [news(0, 1), news(1, 2)], "once per step that was taken");
    // what is no value of the type is no accident
    let junk = step(Some(2), 3, &[Op::Push(bytes(&[0xff; 9]))], 0);
    assert!(matches!(guest.take_step(LIST, junk), Err(PeerError::Malformed { .. })));
    let junk = step(Some(0), 1, &[Op::Put(bytes(&[1, 2, 3]), bytes(&[1]))], 0);
    assert!(matches!(guest.take_step(MAP, junk), Err(PeerError::Malformed { .. })));
    assert!(matches!(guest.take_step(LIST, step(None, 1, &first, 0)), Err(PeerError::OutOfOrder(_))), "an older one");
    assert_eq!(shown(&guest).0, 2);
}

#[test]
fn asking_is_bounded() {
    let mut guest = peer();
    for n in 0..limits::COLLECTION_ASKS {
        let bad = guest::step(None, u64::from(n), 0, pushes(&["a"]));
        guest.take_step(LIST, bad).unwrap();
    }
    assert!(guest.take_step(LIST, guest::step(None, 99, 0, pushes(&["a"]))).is_err());
    assert_eq!(shown(&guest), (0, vec![]));
}

#[test]
fn what_a_host_makes_its_guests_keep_is_bounded() {
    let mut guest = peer();
    let empty = digest(Sort::List, &[]);
    let most = (limits::COLLECTIONS_HELD + limits::COLLECTIONS) as u64;
    for of in 0..most {
        guest.take_step((0, of), guest::step(None, 1, empty, vec![])).unwrap();
    }
    let one_more = guest::step(None, 1, empty, vec![]);
    assert!(matches!(guest.take_step((0, most), one_more), Err(PeerError::OverLimit { .. })));
    guest.take_step((0, 0), guest::step(None, 2, empty, vec![])).unwrap();
    let schema = Schema::builder("test").list::<Vec<u8>>("feed", |l| l.max(1000)).build().unwrap();
    let mut guest = Peer::alone(schema, Config::default()).unwrap();
    let item: Vec<u8> = (0..4000u32).map(|n| (n * n * 31 >> 3) as u8).collect();
    let ops = vec![Op::Push(bitcode::encode(&item).into()); 260];
    let (right, each) = (digest(Sort::List, &ops), ops[0].size() - 1);
    assert!(each > 4000, "{each}: it was made shorter");
    let fit = (0..40).take_while(|of| guest.take_step((0, *of), guest::step(None, 1, right, ops.clone())).is_ok()).count();
    assert_eq!(fit, limits::COLLECTIONS_BYTES / (260 * each));
    // and one alone
    let ops = vec![ops[0].clone(); limits::COLLECTION_BYTES / each + 1];
    guest.growing = Growing::default();
    guest.take_step(LIST, guest::step(None, 1, 0, ops)).unwrap();
    assert_eq!((guest.growing.size, guest.growing.lost.len()), (0, 1));
}

/// Operations for a list and for a map; places are far beyond what is there now and then.
fn op() -> impl Strategy<Value = Op> {
    let item = || prop::collection::vec(any::<u8>(), 0..6).prop_map(Arc::from);
    let key = || prop::collection::vec(0u8..3, 0..2).prop_map(Arc::from);
    prop_oneof![
        4 => item().prop_map(Op::Push),
        1 => (0usize..9, item()).prop_map(|(at, item)| Op::Insert(at, item)),
        1 => (0usize..9, item()).prop_map(|(at, item)| Op::Set(at, item)),
        1 => (0usize..9).prop_map(Op::Remove),
        1 => Just(Op::PopFront),
        1 => (0usize..9).prop_map(Op::Truncate),
        1 => Just(Op::Clear),
        4 => (key(), item()).prop_map(|(key, item)| Op::Put(key, item)),
        1 => key().prop_map(Op::Delete),
    ]
}

fn is_of(op: &Op, sort: Sort) -> bool {
    match op {
        Op::Clear => true,
        Op::Put(..) | Op::Delete(_) => sort == Sort::Map,
        _ => sort == Sort::List,
    }
}

fn model(list: &mut VecDeque<Vec<u8>>, op: &Op) -> bool {
    let len = list.len();
    match op {
        Op::Push(item) => list.push_back(item.to_vec()),
        Op::Insert(at, item) if *at <= len => list.insert(*at, item.to_vec()),
        Op::Set(at, item) if *at < len => list[*at] = item.to_vec(),
        Op::Remove(at) if *at < len => drop(list.remove(*at)),
        Op::PopFront if len > 0 => drop(list.pop_front()),
        Op::Truncate(length) if *length <= len => list.truncate(*length),
        Op::Clear => list.clear(),
        _ => return false,
    }
    true
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        list in any::<bool>(), of in any::<u64>(), base in 0..u64::MAX / 2, on in 1..u64::MAX / 2, sum in any::<u32>(),
        ops in prop::collection::vec(op(), 0..8)
    ) {
        let (sort, at) = if list { (Sort::List, (0, of)) } else { (Sort::Map, (1, of)) };
        let ops: Vec<Op> = ops.into_iter().filter(|op| is_of(op, sort)).collect();
        let items: Vec<Op> = ops.iter().filter(|op| matches!(op, Op::Push(_) | Op::Put(..))).cloned().collect();
        for said in [
            Said::Batch { at, base, to: base + on, digest: sum, ops: ops.clone() },
            Said::Snapshot { at, revision: base, digest: sum, ops: items },
            Said::End { at: (at.0, of.max(1)) },
            Said::Ask { at },
        ] {
            let bytes = host::said(&said);
            for len in 0..bytes.len() {
                prop_assert_eq!(Said::read(&bytes[..len], sorts), None, "a prefix of {} bytes", len);
            }
            prop_assert_eq!(Said::read(&bytes, sorts), Some(said));
        }
        ops.iter().for_each(|op| {
            let mut bytes = Vec::new();
            op.write(&mut bytes);
            assert_eq!(bytes.len(), op.size());
        });
    }

    #[test]
    fn random_bytes_are_refused_or_read(mut bytes in prop::collection::vec(any::<u8>(), 0..60), code in 0u8..5, which in 0u8..3) {
        for begun in [false, true] {
            if begun && bytes.len() > 1 {
                bytes[..2].copy_from_slice(&[code, which]);
            }
            if let Some(said) = Said::read(&bytes, sorts) {
                prop_assert_eq!(&host::said(&said), &bytes);
            }
        }
    }

    #[test]
    fn random_steps_never_panic(steps in prop::collection::vec((any::<bool>(), 0u64..3, prop::collection::vec(op(), 0..6), any::<bool>()), 0..12)) {
        let mut guest = peer();
        for (list, base, ops, whole) in steps {
            let (sort, at) = if list { (Sort::List, LIST) } else { (Sort::Map, MAP) };
            let ops: Vec<Op> = ops.into_iter().filter(|op| is_of(op, sort)).collect();
            let _ = guest.take_step(at, guest::step((!whole).then_some(base), base + 1, 0, ops));
            let size: usize = guest.growing.held.values().map(|instance| instance.content.size()).sum();
            prop_assert_eq!(guest.growing.size, size);
        }
    }

    /// The digest is that of what is there, however it came about, and of nothing else.
    #[test]
    fn a_digest_does_not_depend_on_the_way(ops in prop::collection::vec(op(), 0..40)) {
        let (mut content, mut list) = (Content::new(Sort::List), VecDeque::new());
        for op in &ops {
            let before = (content.digest(), content.len(), content.size());
            let can = list.len() < 6 || !matches!(op, Op::Push(_) | Op::Insert(..));
            let done = can && model(&mut list, op);
            prop_assert_eq!(content.apply(op, 6).is_ok(), done, "{:?}", op);
            if !done {
                prop_assert_eq!(before, (content.digest(), content.len(), content.size()));
            }
            let afresh: Vec<Op> = list.iter().map(|item| Op::Push(item.as_slice().into())).collect();
            prop_assert_eq!(content.digest(), digest(Sort::List, &afresh));
            prop_assert_eq!(content.len(), list.len());
            prop_assert_eq!(content.size(), list.iter().map(|item| wire::size(item)).sum::<usize>());
            if let Some(last) = list.back().filter(|_| list.len() > 1) {
                let mut turned = list.clone();
                turned.rotate_right(1);
                let turned_ops: Vec<Op> = turned.iter().map(|item| Op::Push(item.as_slice().into())).collect();
                let same = turned == list;
                prop_assert_eq!(digest(Sort::List, &turned_ops) == content.digest(), same, "{:?}", last);
            }
        }
    }

    #[test]
    fn so_it_is_of_a_map(ops in prop::collection::vec(op(), 0..40)) {
        let (mut content, mut map) = (Content::new(Sort::Map), std::collections::BTreeMap::new());
        for op in &ops {
            let done = match op {
                Op::Put(key, item) if map.len() < 3 || map.contains_key(key) => {
                    map.insert(key.clone(), item.clone());
                    true
                }
                Op::Delete(key) => map.remove(key).is_some(),
                Op::Clear => {
                    map.clear();
                    true
                }
                _ => false,
            };
            prop_assert_eq!(content.apply(op, 3).is_ok(), done, "{:?}", op);
            let afresh: Vec<Op> = map.iter().rev().map(|(key, item)| Op::Put(key.clone(), item.clone())).collect();
            prop_assert_eq!(content.digest(), digest(Sort::Map, &afresh));
            prop_assert_eq!(content.size(), map.iter().map(|(key, item)| wire::size(key) + wire::size(item)).sum::<usize>());
        }
    }
}
