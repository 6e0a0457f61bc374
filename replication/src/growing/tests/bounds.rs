//! What a list may cost, and that no two of its states are taken for one.

use super::*;
use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One that takes far more memory than bytes.
type Wide = [u64; 512];

fn alone(schema: Result<Schema, crate::schema::SchemaError>) -> Peer {
    Peer::alone(schema.unwrap(), Config::default()).unwrap()
}

#[test]
fn an_end_is_not_that_of_the_next_one() {
    let at = (0, 7);
    let (old, new) = (pushes(&["old"]), pushes(&["new"]));
    let snapshot = |revision, ops: &[Op]| guest::step(None, revision, digest(Sort::List, ops), ops.to_vec());
    let mut table = table(1);
    let peer = &mut table.seat(1).peer;
    peer.take_steps(at, snapshot(5, &old)).unwrap();
    // it came in pieces, and has overtaken the end
    peer.take_steps(at, in_pieces(snapshot(6, &new))).unwrap();
    let size = peer.growing.size;
    peer.take_growing(0, &host::said(&Said::End { at, revision: 5 })).unwrap();
    assert_eq!((peer.growing.held[&at].revision, peer.growing.size), (6, size));
    peer.take_growing(0, &host::said(&Said::End { at, revision: 6 })).unwrap();
    assert!(!peer.growing.held.contains_key(&at) && peer.growing.size < size);
    // what waits for what has ended goes with it, and what is later does not
    for (to, stays) in [(6, false), (9, true)] {
        peer.take_steps(at, in_pieces(guest::step(Some(5), to, 0, vec![]))).unwrap();
        peer.take_growing(0, &host::said(&Said::End { at, revision: 6 })).unwrap();
        assert_eq!(!peer.growing.early.is_empty(), stays);
    }
}

#[test]
fn no_revision_comes_twice_under_one_name() {
    let mut peer = peer();
    let at = (0, 7);
    let mut last = 0;
    for _ in 0..3 {
        let entry = &peer.schema.collections[0];
        let instance = Instance::new(entry, peer.growing.floor);
        assert_eq!((instance.revision, instance.content.len()), (last, 0));
        peer.growing.held.insert(at, instance);
        peer.growing.bound.push(at);
        last += 4;
        peer.growing.held.get_mut(&at).unwrap().revision = last;
        peer.growing.forget_entities();
        assert!(peer.growing.held.is_empty() && peer.growing.bound.is_empty() && peer.growing.size == 0);
    }
}

#[test]
fn what_waits_for_an_entity_is_not_due() {
    let mut sent = Sent::default();
    assert_eq!(sent.due_now((0, 7)), [(0, 7)]);
    sent.hide((0, 7));
    sent.hide((1, 8));
    assert_eq!(sent.due_now((0, 7)), [], "a change of it is no news");
    assert_eq!(sent.due_now((1, 7)), [(1, 7)]);
    sent.show(crate::NetId(7));
    assert_eq!(sent.due_now((1, 8)), [(0, 7), (1, 7)], "the other one is still hidden");
    sent.show(crate::NetId(8));
    assert_eq!(sent.due_now((1, 8)), [(0, 7), (1, 7), (1, 8)]);
}

/// Insertions into the middle of a long list move half of it each.
#[test]
fn what_moves_too_much_goes_as_a_snapshot() {
    let (long, half) = (60_000, 30_000);
    let one: Arc<[u8]> = bitcode::encode(&7u8).into();
    let (mut content, mut log) = (Content::new(Sort::List), Log::default());
    (0..long).for_each(|_| content.apply(&Op::Push(one.clone()), limits::COLLECTION_ITEMS).unwrap());
    let before = content.clone();
    let insert = |content: &mut Content, log: &mut Log| {
        let op = Op::Insert(half, one.clone());
        content.apply(&op, limits::COLLECTION_ITEMS).unwrap();
        log.note(op, 2, content);
    };
    let most = limits::COLLECTION_SHIFTS / half;
    (0..most).for_each(|_| insert(&mut content, &mut log));
    assert_eq!(log.plan(Some(1), &content).base, Some(1));
    let bearable = content.digest();
    insert(&mut content, &mut log);
    assert_eq!(log.plan(Some(1), &content), log::Plan { base: None, size: content.size() });
    let schema = || Schema::builder("test").list::<u8>("bytes", |l| l.max(limits::COLLECTION_ITEMS)).build();
    let mut guest = alone(schema());
    let all = vec![Op::Push(one.clone()); long];
    guest.take_steps(LIST, guest::step(None, 1, before.digest(), all)).unwrap();
    let ops = |count| vec![Op::Insert(half, one.clone()); count];
    guest.take_steps(LIST, guest::step(Some(1), 2, bearable, ops(most))).unwrap();
    assert_eq!(guest.list::<u8>().unwrap().len(), long + most);
    let over = guest.take_steps(LIST, guest::step(Some(2), 3, 0, ops(most + 1)));
    assert!(matches!(over, Err(PeerError::OverLimit { .. })), "{over:?}");
    let size: usize = guest.growing.held.values().map(|instance| instance.content.weight()).sum();
    assert_eq!(guest.growing.size, size);
    // at either end nothing is moved
    assert_eq!((Op::Insert(0, one.clone()).shift(9), Op::Insert(9, one.clone()).shift(9)), (0, 0));
    assert_eq!((Op::Remove(0).shift(9), Op::Remove(8).shift(9), Op::Remove(6).shift(9)), (0, 0, 2));
}

#[test]
fn what_items_take_in_memory_counts() {
    let schema = || Schema::builder("test").list::<Wide>("wide", |l| l.max(9999)).build();
    let mut host = alone(schema());
    let mut list = host.list_mut::<Wide>().unwrap();
    let fit = (0..9999).take_while(|_| list.push([0; 512]).is_ok()).count();
    let each = bitcode::encode(&[0u64; 512]).len() + 1 + 4096 + limits::COLLECTION_ITEM_MEMORY;
    assert!(each < 4300, "{each}: what travels is to be short");
    assert_eq!(fit, limits::COLLECTION_MEMORY / each);
    let refused = list.push([0; 512]);
    assert!(matches!(refused, Err(UsageError::TooLarge { limit: limits::COLLECTION_MEMORY, .. })), "{refused:?}");
    // a guest reads no more at a time than could be there
    let item: Arc<[u8]> = bitcode::encode(&[0u64; 512]).into();
    let mut guest = alone(schema());
    let ops = vec![Op::Push(item.clone()); fit];
    guest.take_steps(LIST, guest::step(None, 1, digest(Sort::List, &ops), ops)).unwrap();
    assert_eq!(guest.growing.size, fit * each);
    let sets = vec![Op::Set(0, item); limits::COLLECTION_MEMORY / 4096];
    let over = guest.take_steps(LIST, guest::step(Some(1), 2, 0, sets));
    assert!(matches!(over, Err(PeerError::OverLimit { .. })), "{over:?}");
    // and the host makes no such message
    let mut list = host.list_mut::<Wide>().unwrap();
    for n in 0..limits::COLLECTION_MEMORY / 4096 {
        list.set(0, [n as u64 % 2; 512]).unwrap();
    }
    let instance = &host.growing.held[&LIST];
    assert_eq!(instance.log.plan(Some(0), &instance.content).base, None);
}

#[derive(Clone, Debug, bitcode::Encode, bitcode::Decode)]
struct Name {
    id: u8,
    spelling: u8,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.id.cmp(&other.id)
    }
}

#[test]
fn a_key_is_found_however_it_is_spelt() {
    let mut peer = alone(Schema::builder("test").map::<Name, u8>("names", |m| m).build());
    let mut map = peer.map_mut::<Name, u8>().unwrap();
    let name = |spelling| Name { id: 1, spelling };
    map.insert(name(1), 5).unwrap();
    assert!(map.insert(name(2), 6).is_err(), "it would be another one for a guest");
    assert_eq!(map.update(&name(2), |value| *value += 1), Ok(Some(())));
    assert_eq!(map.remove(&name(3)), Some(6));
    assert!(map.is_empty() && peer.growing.size == 0);
}

/// A closure that does not come to its end leaves nothing that guests are not told of.
#[test]
fn a_change_that_panics_is_none() {
    let mut peer = peer();
    peer.list_mut::<String>().unwrap().push("a".into()).unwrap();
    peer.map_mut::<u16, u8>().unwrap().insert(1, 2).unwrap();
    let gone = catch_unwind(AssertUnwindSafe(|| {
        let _ = peer.list_mut::<String>().unwrap().update(0, |text| {
            text.push('b');
            std::panic::resume_unwind(Box::new(()))
        });
    }));
    assert!(gone.is_err());
    let gone = catch_unwind(AssertUnwindSafe(|| {
        let _ = peer.map_mut::<u16, u8>().unwrap().update(&1, |value| {
            *value = 9;
            std::panic::resume_unwind(Box::new(()))
        });
    }));
    assert!(gone.is_err());
    assert_eq!(shown(&peer).1, ["a"]);
    assert_eq!(peer.map::<u16, u8>().unwrap().get(&1), Some(&2));
}

#[test]
fn messages_are_kept_for_one_send_only() {
    let mut table = table(2);
    for n in 0..5 {
        let mut list = table.seat(0).peer.list_mut::<String>().unwrap();
        list.set(0, format!("{n}")).unwrap();
        table.rest(2);
        assert_eq!(table.seat(0).peer.growing.held[&LIST].log.made(), 0);
    }
    assert!(table.seat(0).peer.growing.made.is_empty());
}
