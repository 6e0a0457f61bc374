use super::content::Content;
use super::wire::Said;
use super::*;
use crate::config::Config;
use crate::news::News;
use crate::schema::Schema;
use crate::testing::Table;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tidelock_loopback::{Conditions, Network};
use tidelock_netcore::error::{DisconnectReason, PeerError};

mod bounds;

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
    assert_eq!(host::said(&Said::End { at: (1, 7), revision: 300 }), [2, 1, 7, 0xac, 2]);
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
        ("the end of what does not end", &[2, 0, 0, 1]),
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
    guest.take_steps(LIST, step(Some(0), 1, &first, digest(Sort::List, &first))).unwrap();
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
        guest.take_steps(LIST, bad).unwrap();
        assert_eq!(shown(&guest), (1, vec!["a".into(), "b".into()]), "{why}");
        assert_eq!(guest.growing.lost, [LIST], "{why}: it asks");
        // until it has come, nothing else is taken, however right
        guest.take_steps(LIST, step(Some(1), 2, &next[2..], right)).unwrap();
        assert_eq!(shown(&guest).0, 1, "{why}");
        guest.take_steps(LIST, step(None, 1, &first, digest(Sort::List, &first))).unwrap();
        assert!(guest.growing.lost.is_empty(), "{why}");
    }
    guest.take_steps(LIST, step(Some(1), 2, &next[2..], right)).unwrap();
    assert_eq!(shown(&guest), (2, vec!["b".into(), "c".into()]));
    let told: Vec<_> = std::iter::from_fn(|| guest.poll_news()).collect();
    let news = |from, to| News::CollectionChanged { collection: "feed".into(), of: None, from, to };
    assert_eq!(told, [news(0, 1), news(1, 2)], "once per step that was taken");
    // what is no value of the type is no accident
    let junk = step(Some(2), 3, &[Op::Push(bytes(&[0xff; 9]))], 0);
    assert!(matches!(guest.take_steps(LIST, junk), Err(PeerError::Malformed { .. })));
    let junk = step(Some(0), 1, &[Op::Put(bytes(&[1, 2, 3]), bytes(&[1]))], 0);
    assert!(matches!(guest.take_steps(MAP, junk), Err(PeerError::Malformed { .. })));
    guest.take_steps(LIST, step(None, 1, &first, 0)).unwrap();
    guest.take_steps(LIST, step(Some(1), 2, &next[2..], 0)).unwrap();
    assert!(guest.growing.lost.is_empty(), "what was overtaken is nothing new");
    assert_eq!(shown(&guest).0, 2);
}

fn in_pieces(mut step: guest::Step) -> guest::Step {
    step.in_pieces = true;
    step
}

/// What goes in pieces has a lane of its own, and may overtake what leads to it.
#[test]
fn what_came_too_early_waits() {
    let all = pushes(&["a", "b", "c", "d"]);
    let step = |from: usize, to: usize, in_pieces: bool| {
        let right = digest(Sort::List, &all[..to]);
        let mut step = guest::step(Some(from as u64), to as u64, right, all[from..to].to_vec());
        step.in_pieces = in_pieces;
        step
    };
    let mut guest = peer();
    guest.take_steps(LIST, step(2, 3, true)).unwrap();
    guest.take_steps(LIST, step(3, 4, true)).unwrap();
    assert_eq!(shown(&guest).0, 0);
    guest.take_steps(LIST, step(0, 1, false)).unwrap();
    assert_eq!(shown(&guest).0, 1);
    guest.take_steps(LIST, step(1, 2, false)).unwrap();
    assert_eq!(shown(&guest), (4, ["a", "b", "c", "d"].map(str::to_owned).to_vec()));
    assert!(guest.growing.lost.is_empty() && guest.growing.early.is_empty());
    // of which a snapshot makes nothing new
    let mut guest = peer();
    guest.take_steps(LIST, step(1, 2, true)).unwrap();
    let whole = guest::step(None, 3, digest(Sort::List, &all[..3]), all[..3].to_vec());
    guest.take_steps(LIST, whole).unwrap();
    assert!(shown(&guest).0 == 3 && guest.growing.early.is_empty());
    // no more of them than may be
    for n in 10..10 + limits::COLLECTIONS as u64 {
        let early = in_pieces(guest::step(Some(n), n + 1, 0, vec![]));
        guest.take_steps(LIST, early).unwrap();
    }
    assert!(guest.growing.lost.is_empty());
    guest.take_steps(LIST, in_pieces(guest::step(Some(99), 100, 0, vec![]))).unwrap();
    assert!(guest.growing.lost == [LIST] && guest.growing.early.is_empty(), "then it asks");
    let long = vec![Op::Push(vec![0; 4000].into()); limits::COLLECTION_BYTES / 4003 + 1];
    let mut guest = peer();
    guest.take_steps(LIST, in_pieces(guest::step(Some(9), 10, 0, long))).unwrap();
    assert!(guest.growing.lost == [LIST] && guest.growing.early.is_empty());
    // and none after its end
    let mut table = table(1);
    let early = in_pieces(guest::step(Some(9), 10, 0, vec![]));
    let peer = &mut table.seat(1).peer;
    peer.take_steps((0, 7), early).unwrap();
    assert!(!peer.growing.early.is_empty());
    peer.take_growing(0, &host::said(&Said::End { at: (0, 7), revision: 20 })).unwrap();
    assert!(peer.growing.early.is_empty());
}

#[test]
fn asking_is_bounded() {
    let mut guest = peer();
    for n in 0..limits::COLLECTION_ASKS {
        let bad = guest::step(None, u64::from(n) + 1, 0, pushes(&["a"]));
        guest.take_steps(LIST, bad).unwrap();
    }
    assert!(guest.take_steps(LIST, guest::step(None, 99, 0, pushes(&["a"]))).is_err());
    assert_eq!(shown(&guest), (0, vec![]));
}

#[test]
fn what_a_host_makes_its_guests_keep_is_bounded() {
    let mut guest = peer();
    let empty = digest(Sort::List, &[]);
    let most = (limits::COLLECTIONS_HELD + 2 * limits::COLLECTIONS) as u64;
    for of in 0..most {
        guest.take_steps((0, of), guest::step(None, 1, empty, vec![])).unwrap();
    }
    let one_more = guest::step(None, 1, empty, vec![]);
    assert!(matches!(guest.take_steps((0, most), one_more), Err(PeerError::OverLimit { .. })));
    guest.take_steps((0, 0), guest::step(None, 2, empty, vec![])).unwrap();
    let schema = Schema::builder("test").list::<Vec<u8>>("feed", |l| l.max(1000)).build().unwrap();
    let mut guest = Peer::alone(schema, Config::default()).unwrap();
    let item: Vec<u8> = (0..4000u32).map(|n| ((n * n * 31) >> 3) as u8).collect();
    let ops = vec![Op::Push(bitcode::encode(&item).into()); 260];
    let (right, each) = (digest(Sort::List, &ops), ops[0].size() - 1);
    assert!(each > 4000, "{each}: it was made shorter");
    let fit = (0..60).take_while(|of| guest.take_steps((0, *of), guest::step(None, 1, right, ops.clone())).is_ok()).count();
    let weight = 260 * (each + size_of::<Vec<u8>>() + limits::COLLECTION_ITEM_MEMORY);
    assert_eq!(fit, (limits::COLLECTIONS_BYTES + limits::COLLECTIONS_SLACK) / weight);
    // and one alone
    let ops = vec![ops[0].clone(); limits::COLLECTION_BYTES / each + 1];
    guest.growing = Growing::default();
    guest.take_steps(LIST, guest::step(None, 1, 0, ops)).unwrap();
    assert_eq!((guest.growing.size, guest.growing.lost.len()), (0, 1));
}

/// A host with a list of three, and guests who have it.
fn table(guests: usize) -> Table {
    let network = Network::new(7);
    let mut table = Table::new(7, &schema(), Config::default(), network.host()).unwrap();
    let weather = Conditions { latency: Duration::from_millis(20), ..Conditions::default() };
    for _ in 0..guests {
        table.join(Config::default(), network.join(weather, weather)).unwrap();
    }
    let mut list = table.seat(0).peer.list_mut::<String>().unwrap();
    ["a", "b", "c"].iter().for_each(|text| list.push((*text).to_owned()).unwrap());
    table.rest(60);
    assert!((0..=guests).all(|seat| shown(&table.seat(seat).peer).1 == ["a", "b", "c"]));
    table
}

fn say(table: &mut Table, said: &Said) {
    assert!(table.seat(1).peer.post_growing(0, &host::said(said)));
}

#[test]
fn a_guest_has_nothing_to_say_of_lists() {
    let ops = pushes(&["mine"]);
    for said in [
        Said::Batch { at: LIST, base: 1, to: 2, digest: 0, ops: ops.clone() },
        Said::Snapshot { at: LIST, revision: 9, digest: digest(Sort::List, &ops), ops },
        Said::End { at: (0, 7), revision: 20 },
        Said::Ask { at: MAP },
    ] {
        let mut table = table(2);
        say(&mut table, &said);
        table.rest(30);
        let news = table.seat(0).take_news();
        let caught = |n: &News| matches!(n, News::Misbehaved { error: PeerError::OutOfOrder(_), .. });
        assert!(news.iter().any(caught), "{said:?}: {news:?}");
        assert_eq!(table.seat(1).peer.ended(), Some(&DisconnectReason::Malformed));
        assert_eq!(shown(&table.seat(0).peer).1, ["a", "b", "c"]);
        assert_eq!(shown(&table.seat(2).peer).1, ["a", "b", "c"], "somebody else paid for it");
    }
}

#[test]
fn who_asks_too_often_is_removed() {
    let mut table = table(1);
    for _ in 0..limits::COLLECTION_ASKS / 2 {
        say(&mut table, &Said::Ask { at: LIST });
        // of an entity that is gone: the question may have crossed its end, but counts
        say(&mut table, &Said::Ask { at: (0, 99) });
    }
    table.rest(30);
    assert!(table.seat(1).peer.is_in_session());
    let told =
        |table: &mut Table| table.seat(1).take_news().iter().filter(|n| matches!(n, News::CollectionChanged { .. })).count();
    assert_eq!(told(&mut table), 1, "all of it again is no change");
    say(&mut table, &Said::Ask { at: LIST });
    table.rest(30);
    assert_eq!(table.seat(1).peer.ended(), Some(&DisconnectReason::Malformed));
}

/// A guest whose bytes are not the host's, for whatever reason, finds it out with the next change and gets all of it.
#[test]
fn what_has_come_apart_is_mended() {
    for twist in [
        |instance: &mut Instance| instance.content.apply(&Op::PopFront, 4).unwrap(),
        |instance: &mut Instance| instance.content.apply(&Op::Set(1, item("x")), 4).unwrap(),
        |instance: &mut Instance| instance.revision -= 1,
    ] {
        let mut table = table(2);
        let guest = &mut table.seat(1).peer.growing;
        let instance = guest.held.get_mut(&LIST).unwrap();
        let before = instance.content.weight();
        twist(instance);
        guest.size = guest.size - before + instance.content.weight();
        table.seat(0).peer.list_mut::<String>().unwrap().push("d".into()).unwrap();
        table.rest(6);
        assert_eq!(shown(&table.seat(1).peer).1, ["a", "b", "c"], "what it shows is what it had");
        assert_eq!(shown(&table.seat(2).peer).1.len(), 4);
        table.rest(30);
        assert_eq!(shown(&table.seat(1).peer), shown(&table.seat(0).peer));
        let guest = table.seat(1).peer.local();
        let asked = |table: &mut Table, seat: usize, of| table.seat(seat).peer.stats(of).unwrap().link.lists_asked;
        assert_eq!((asked(&mut table, 1, crate::PeerId::HOST), asked(&mut table, 0, guest)), (1, 1));
        assert!(table.seat(1).peer.is_in_session());
        // and goes on
        table.seat(0).peer.list_mut::<String>().unwrap().pop_front().unwrap();
        table.rest(30);
        assert_eq!(shown(&table.seat(1).peer).1, ["b", "c", "d"]);
    }
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
            Said::End { at: (at.0, of.max(1)), revision: base },
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
            let _ = guest.take_steps(at, guest::step((!whole).then_some(base), base + 1, 0, ops));
            let size: usize = guest.growing.held.values().map(|instance| instance.content.weight()).sum();
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

/// The examples of `docs/WIRE.md`, whose digests are worked out as that page says.
#[test]
fn a_batch_and_a_snapshot_are_as_the_page_has_them() {
    let mut content = Content::new(Sort::List);
    let mut log = Log::default();
    for (revision, text) in [(1, &b"ab"[..]), (2, b"c")] {
        let op = Op::Push(bytes(text));
        content.apply(&op, 4).unwrap();
        log.note(op, revision, &content);
    }
    let hash = |bytes: &[u8]| xxhash_rust::xxh3::xxh3_64(bytes);
    let sum = hash(b"ab").wrapping_add(hash(b"c").wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let right = hash(&[sum.to_le_bytes(), 2u64.to_le_bytes()].concat()) as u32;
    assert_eq!(content.digest(), right);
    let [a, b, c, d] = right.to_le_bytes();
    assert_eq!([a, b, c, d], [0x05, 0x84, 0xe0, 0x9a]);
    let batch = log.message(log.plan(Some(1), &content), LIST, 2, &content);
    assert_eq!(*batch, [0, 0, 0, 1, 1, a, b, c, d, 1, 0, 1, b'c']);
    let snapshot = log.message(log.plan(None, &content), LIST, 2, &content);
    assert_eq!(*snapshot, [1, 0, 0, 2, a, b, c, d, 2, 2, b'a', b'b', 1, b'c']);
    assert_eq!(host::said(&Said::End { at: (0, 130), revision: 7 }), [2, 0, 0x82, 1, 7]);
    let map = [Op::Put(bytes(b"k"), bytes(b"v")), Op::Put(bytes(b"l"), bytes(b"w"))];
    let pair = |key: &[u8], value: &[u8]| xxhash_rust::xxh3::xxh3_64_with_seed(value, hash(key));
    let sum = pair(b"k", b"v").wrapping_add(pair(b"l", b"w"));
    assert_eq!(digest(Sort::Map, &map), hash(&[sum.to_le_bytes(), 2u64.to_le_bytes()].concat()) as u32);
}

/// Whoever has missed more than a snapshot is long gets that, and the log is no longer.
#[test]
fn a_log_is_no_longer_than_what_it_is_of() {
    let mut content = Content::new(Sort::List);
    let mut log = Log::default();
    let mut do_it = |op: Op, revision: u64, log: &mut Log| {
        content.apply(&op, 100).unwrap();
        log.note(op, revision, &content);
        content.clone()
    };
    let mut now = Content::new(Sort::List);
    for n in 0..50u64 {
        now = do_it(Op::Push(vec![n as u8; 100].into()), n + 1, &mut log);
    }
    assert_eq!(log.plan(Some(0), &now).base, None, "an item is a byte longer as an operation");
    assert_eq!(log.plan(Some(1), &now), log::Plan { base: Some(1), size: 49 * 102 });
    assert_eq!(log.plan(Some(50), &now), log::Plan { base: Some(50), size: 0 });
    for n in 50..2000u64 {
        let item = vec![n as u8; 100].into();
        now = do_it(Op::Set((n % 50) as usize, item), n + 1, &mut log);
        let since = n - 49;
        let plan = log.plan(Some(50), &now);
        assert_eq!(plan.base.is_some(), since * 103 <= 50 * 101 + 1, "after {since}");
        assert_eq!(plan.size, if plan.base.is_some() { since as usize * 103 } else { 50 * 101 });
        assert!(log.bytes() <= now.size() + 1024);
    }
    now = do_it(Op::Clear, 2001, &mut log);
    assert!(log.bytes() <= 1024);
    assert_eq!(log.plan(Some(2000), &now), log::Plan { base: Some(2000), size: 1 });
    // however many there are between two sends
    for _ in 0..100_000 {
        do_it(Op::Push(bytes(b"")), 2002, &mut log);
        now = do_it(Op::PopFront, 2002, &mut log);
        assert!(log.bytes() <= now.size() + 1024);
    }
    assert_eq!(log.plan(Some(2001), &now), log::Plan { base: None, size: 0 });
    // one that is too long to be kept takes with it what was before it, and the way from there
    for n in 0..10 {
        do_it(Op::Push(vec![n; 10].into()), 2003, &mut log);
    }
    do_it(Op::Push(vec![1; 3000].into()), 2004, &mut log);
    now = do_it(Op::Truncate(10), 2005, &mut log);
    assert_eq!(log.plan(Some(2004), &now), log::Plan { base: Some(2004), size: 2 });
    assert_eq!(log.plan(Some(2003), &now), log::Plan { base: None, size: 110 });
}
