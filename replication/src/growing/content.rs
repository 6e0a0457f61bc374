//! What a list or map holds, as bytes, with a digest that is kept up as it changes.

use super::wire::{self, Bytes, Op, Sort};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use tidelock_netcore::limits;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The digest of a list is the sum of its items' hashes, each times this to the power of its place (mod 2⁶⁴): whatever happens at one
/// of its ends, or in a place, changes one of them. Odd, so that it can be divided by.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = inverse(BASE);

/// What gives 1 times an odd number: each step doubles the bits that are right, of which there are 3 to begin with.
const fn inverse(odd: u64) -> u64 {
    let (mut found, mut step) = (odd, 0);
    while step < 5 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        step += 1;
    }
    found
}

fn power(place: usize) -> u64 {
    BASE.wrapping_pow(place as u32)
}

#[derive(Clone, Debug)]
struct Held {
    bytes: Bytes,
    hash: u64,
}

#[derive(Clone, Debug)]
enum Items {
    List(VecDeque<Held>),
    Map(BTreeMap<Bytes, Held>),
}

/// Why an operation cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// There is no such place or key.
    NoSuch,
    /// There would be too many items.
    Count,
    /// They would take too many bytes as they travel.
    Bytes,
    /// They would take too much memory.
    Memory,
}

#[derive(Clone, Debug)]
pub(super) struct Content {
    items: Items,
    /// Bytes of the items, as a snapshot has them.
    size: usize,
    /// Bytes that are charged for an item beside those.
    each: usize,
    sum: u64,
}

impl Content {
    pub(super) fn new(sort: Sort) -> Self {
        let items = match sort {
            Sort::List => Items::List(VecDeque::new()),
            Sort::Map => Items::Map(BTreeMap::new()),
        };
        Self { items, size: 0, each: 0, sum: 0 }
    }

    /// The same, where for an item so many bytes are charged beside those that travel.
    pub(super) fn charging(self, each: usize) -> Self {
        Self { each, ..self }
    }

    pub(super) fn each(&self) -> usize {
        self.each
    }

    pub(super) fn len(&self) -> usize {
        match &self.items {
            Items::List(list) => list.len(),
            Items::Map(map) => map.len(),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are charged for all of it.
    pub(super) fn weight(&self) -> usize {
        self.size + self.len() * self.each
    }

    pub(super) fn digest(&self) -> u32 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.sum.to_le_bytes());
        bytes[8..].copy_from_slice(&(self.len() as u64).to_le_bytes());
        xxh3_64(&bytes) as u32
    }

    pub(super) fn in_list(&self, at: usize) -> Option<&Bytes> {
        match &self.items {
            Items::List(list) => list.get(at).map(|held| &held.bytes),
            Items::Map(_) => None,
        }
    }

    pub(super) fn in_map(&self, key: &[u8]) -> Option<&Bytes> {
        match &self.items {
            Items::List(_) => None,
            Items::Map(map) => map.get(key).map(|held| &held.bytes),
        }
    }

    /// Appends the items as a snapshot has them.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match &self.items {
            Items::List(list) => list.iter().for_each(|held| wire::put_item(None, &held.bytes, out)),
            Items::Map(map) => map.iter().for_each(|(key, held)| wire::put_item(Some(key), &held.bytes, out)),
        }
    }

    /// Could it be done, with at most so many items afterwards? What is charged for all of it then, at most.
    pub(super) fn check(&self, op: &Op, max: usize) -> Result<usize, Misfit> {
        let len = self.len();
        let grown = |count: usize, size: usize| {
            let weight = size + (len + count) * self.each;
            match (len + count <= max, size <= limits::COLLECTION_BYTES, weight <= limits::COLLECTION_MEMORY) {
                (false, ..) => Err(Misfit::Count),
                (_, false, _) => Err(Misfit::Bytes),
                (.., false) => Err(Misfit::Memory),
                (true, true, true) => Ok(weight),
            }
        };
        match (&self.items, op) {
            (Items::List(_), Op::Push(item)) => grown(1, self.size + wire::size(item)),
            (Items::List(_), Op::Insert(at, item)) if *at <= len => grown(1, self.size + wire::size(item)),
            (Items::List(list), Op::Set(at, item)) => {
                let old = list.get(*at).ok_or(Misfit::NoSuch)?;
                grown(0, self.size - wire::size(&old.bytes) + wire::size(item))
            }
            (Items::Map(map), Op::Put(key, item)) => match map.get(key) {
                None => grown(1, self.size + wire::size(key) + wire::size(item)),
                Some(old) => grown(0, self.size - wire::size(&old.bytes) + wire::size(item)),
            },
            (Items::List(_), Op::Remove(at)) if *at < len => Ok(self.weight()),
            (Items::List(_), Op::PopFront) if len > 0 => Ok(self.weight()),
            (Items::List(_), Op::Truncate(length)) if *length <= len => Ok(self.weight()),
            (Items::Map(map), Op::Delete(key)) if map.contains_key(key) => Ok(self.weight()),
            (_, Op::Clear) => Ok(0),
            _ => Err(Misfit::NoSuch),
        }
    }

    /// Does it, if it can be done.
    pub(super) fn apply(&mut self, op: &Op, max: usize) -> Result<(), Misfit> {
        self.check(op, max)?;
        if *op == Op::Clear {
            (self.size, self.sum) = (0, 0);
        }
        let Self { items, size, sum, .. } = self;
        match (items, op) {
            (Items::List(list), Op::Clear) => list.clear(),
            (Items::Map(map), Op::Clear) => map.clear(),
            (Items::List(list), op) => apply_to_list(list, size, sum, op),
            (Items::Map(map), Op::Put(key, item)) => {
                let hash = xxh3_64_with_seed(item, xxh3_64(key));
                *sum = sum.wrapping_add(hash);
                *size += wire::size(item);
                match map.insert(key.clone(), Held { bytes: item.clone(), hash }) {
                    None => *size += wire::size(key),
                    Some(old) => {
                        *size -= wire::size(&old.bytes);
                        *sum = sum.wrapping_sub(old.hash);
                    }
                }
            }
            (Items::Map(map), Op::Delete(key)) => {
                if let Some(old) = map.remove(key) {
                    *size -= wire::size(key) + wire::size(&old.bytes);
                    *sum = sum.wrapping_sub(old.hash);
                }
            }
            (Items::Map(_), _) => {}
        }
        Ok(())
    }
}

/// The part of the digest that the items from a place on are, by whichever side of it is shorter.
fn tail(list: &VecDeque<Held>, from: usize, sum: u64) -> u64 {
    let part = |range: Range<usize>| {
        let begin = (0u64, power(range.start));
        let (part, _) = list
            .range(range)
            .fold(begin, |(part, power), held| (part.wrapping_add(held.hash.wrapping_mul(power)), power.wrapping_mul(BASE)));
        part
    };
    if from < list.len() - from { sum.wrapping_sub(part(0..from)) } else { part(from..list.len()) }
}

/// An operation that was found possible, and does not clear.
fn apply_to_list(list: &mut VecDeque<Held>, size: &mut usize, sum: &mut u64, op: &Op) {
    let hold = |item: &Bytes| Held { bytes: item.clone(), hash: xxh3_64(item) };
    match op {
        Op::Push(item) => {
            let held = hold(item);
            *sum = sum.wrapping_add(held.hash.wrapping_mul(power(list.len())));
            *size += wire::size(item);
            list.push_back(held);
        }
        Op::Insert(at, item) => {
            let (held, tail) = (hold(item), tail(list, *at, *sum));
            *sum = sum.wrapping_sub(tail).wrapping_add(tail.wrapping_mul(BASE));
            *sum = sum.wrapping_add(held.hash.wrapping_mul(power(*at)));
            *size += wire::size(item);
            list.insert(*at, held);
        }
        Op::Set(at, item) => {
            let held = hold(item);
            let old = std::mem::replace(&mut list[*at], held);
            *sum = sum.wrapping_add(list[*at].hash.wrapping_sub(old.hash).wrapping_mul(power(*at)));
            *size = *size + wire::size(item) - wire::size(&old.bytes);
        }
        Op::Remove(at) => {
            let tail = tail(list, *at + 1, *sum);
            if let Some(old) = list.remove(*at) {
                *sum = sum.wrapping_sub(old.hash.wrapping_mul(power(*at)));
                *sum = sum.wrapping_sub(tail).wrapping_add(tail.wrapping_mul(INVERSE));
                *size -= wire::size(&old.bytes);
            }
        }
        Op::PopFront => {
            if let Some(old) = list.pop_front() {
                *sum = sum.wrapping_sub(old.hash).wrapping_mul(INVERSE);
                *size -= wire::size(&old.bytes);
            }
        }
        Op::Truncate(length) => {
            *sum = sum.wrapping_sub(tail(list, *length, *sum));
            *size -= list.drain(*length..).map(|old| wire::size(&old.bytes)).sum::<usize>();
        }
        Op::Clear | Op::Put(..) | Op::Delete(_) => {}
    }
}
