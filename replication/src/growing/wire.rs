//! What is said of a list or map, as bytes. Numbers (`v`) are LEB128: seven bits a byte, the low ones first, as short as they can be.
//!
//! ```text
//! batch     u8 0, u8 which, v of, v revision it starts from, v revisions on (1 or more), u32 digest after it, v count, operations
//! snapshot  u8 1, u8 which, v of, v revision, u32 digest, v count, items
//! end       u8 2, u8 which, v of (not 0), v revision: what is no later than that is to be forgotten
//! ask       u8 3, u8 which, v of: the other way; a snapshot, please
//! ```
//!
//! Of a list: `0` push, item; `1` insert, v at, item; `2` set, v at, item; `3` remove, v at; `4` pop the front; `5` truncate, v length;
//! `6` clear. Of a map: `6` clear; `7` put, key, item; `8` delete, key. A key and an item are v length and their bytes; an item of
//! a snapshot of a map has its key before it.

use std::sync::Arc;
use tidelock_netcore::limits;

/// Which list or map: its place among them by name, and the number of the entity that it is of, or 0.
pub(crate) type Key = (u8, u64);
pub(super) type Bytes = Arc<[u8]>;

/// More than a message takes beside its operations or items.
pub(super) const HEAD: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    List,
    Map,
}

impl Sort {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Map => "map",
        }
    }
}

/// One step from what a list or map was to what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Push(Bytes),
    Insert(usize, Bytes),
    Set(usize, Bytes),
    Remove(usize),
    PopFront,
    Truncate(usize),
    Clear,
    Put(Bytes, Bytes),
    Delete(Bytes),
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Batch { at: Key, base: u64, to: u64, digest: u32, ops: Vec<Op> },
    Snapshot { at: Key, revision: u64, digest: u32, ops: Vec<Op> },
    End { at: Key, revision: u64 },
    Ask { at: Key },
}

pub(super) fn number_size(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for place in 0.. {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        let is_last = byte & 0x80 == 0;
        // nothing beyond 64 bits, and no number has two forms
        if place == 9 && *byte > 1 || is_last && *byte == 0 && place > 0 {
            return None;
        }
        number |= bits << (7 * place);
        if is_last {
            break;
        }
    }
    Some(number)
}

/// Bytes that a key or an item takes, its length included.
pub(super) fn size(bytes: &[u8]) -> usize {
    number_size(bytes.len() as u64) + bytes.len()
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn take_bytes(bytes: &mut &[u8]) -> Option<Bytes> {
    let length = usize::try_from(take_number(bytes)?).ok().filter(|length| *length <= limits::COLLECTION_ITEM_BYTES)?;
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken.into())
}

/// A place, or a length: no larger than any list.
fn take_place(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(take_number(bytes)?).ok().filter(|place| *place <= limits::COLLECTION_ITEMS)
}

impl Op {
    /// Bytes that it takes.
    pub(super) fn size(&self) -> usize {
        let place = |at: &usize| number_size(*at as u64);
        1 + match self {
            Self::Push(item) => size(item),
            Self::Insert(at, item) | Self::Set(at, item) => place(at) + size(item),
            Self::Remove(at) | Self::Truncate(at) => place(at),
            Self::PopFront | Self::Clear => 0,
            Self::Put(key, item) => size(key) + size(item),
            Self::Delete(key) => size(key),
        }
    }

    /// How many items of a list it moves, of which there are `len` before it.
    pub(super) fn shift(&self, len: usize) -> usize {
        match self {
            Self::Insert(at, _) => (*at).min(len.saturating_sub(*at)),
            Self::Remove(at) => (*at).min(len.saturating_sub(*at + 1)),
            _ => 0,
        }
    }

    /// Is there a key or an item to be read?
    pub(super) fn brings(&self) -> bool {
        !matches!(self, Self::Remove(_) | Self::PopFront | Self::Truncate(_) | Self::Clear)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (code, place) = match self {
            Self::Push(_) => (0, None),
            Self::Insert(at, _) => (1, Some(at)),
            Self::Set(at, _) => (2, Some(at)),
            Self::Remove(at) => (3, Some(at)),
            Self::PopFront => (4, None),
            Self::Truncate(length) => (5, Some(length)),
            Self::Clear => (6, None),
            Self::Put(..) => (7, None),
            Self::Delete(_) => (8, None),
        };
        out.push(code);
        if let Some(place) = place {
            put_number(*place as u64, out);
        }
        match self {
            Self::Push(item) | Self::Insert(_, item) | Self::Set(_, item) | Self::Delete(item) => put_bytes(item, out),
            Self::Put(key, item) => {
                put_bytes(key, out);
                put_bytes(item, out);
            }
            Self::Remove(_) | Self::PopFront | Self::Truncate(_) | Self::Clear => {}
        }
    }

    fn read(bytes: &mut &[u8], sort: Sort) -> Option<Self> {
        let (code, rest) = bytes.split_first()?;
        *bytes = rest;
        Some(match (sort, code) {
            (Sort::List, 0) => Self::Push(take_bytes(bytes)?),
            (Sort::List, 1) => Self::Insert(take_place(bytes)?, take_bytes(bytes)?),
            (Sort::List, 2) => Self::Set(take_place(bytes)?, take_bytes(bytes)?),
            (Sort::List, 3) => Self::Remove(take_place(bytes)?),
            (Sort::List, 4) => Self::PopFront,
            (Sort::List, 5) => Self::Truncate(take_place(bytes)?),
            (_, 6) => Self::Clear,
            (Sort::Map, 7) => Self::Put(take_bytes(bytes)?, take_bytes(bytes)?),
            (Sort::Map, 8) => Self::Delete(take_bytes(bytes)?),
            _ => return None,
        })
    }
}

fn head(code: u8, at: Key, out: &mut Vec<u8>) {
    out.extend([code, at.0]);
    put_number(at.1, out);
}

/// A batch, but for its operations, which follow.
pub(super) fn batch_head(at: Key, base: u64, to: u64, digest: u32, count: usize, out: &mut Vec<u8>) {
    head(0, at, out);
    put_number(base, out);
    put_number(to - base, out);
    out.extend(digest.to_le_bytes());
    put_number(count as u64, out);
}

/// A snapshot, but for its items, which follow, each with its key before it if it has one.
pub(super) fn snapshot_head(at: Key, revision: u64, digest: u32, count: usize, out: &mut Vec<u8>) {
    head(1, at, out);
    put_number(revision, out);
    out.extend(digest.to_le_bytes());
    put_number(count as u64, out);
}

pub(super) fn put_item(key: Option<&[u8]>, item: &[u8], out: &mut Vec<u8>) {
    if let Some(key) = key {
        put_bytes(key, out);
    }
    put_bytes(item, out);
}

impl Said {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Batch { at, base, to, digest, ops } => {
                batch_head(*at, *base, *to, *digest, ops.len(), out);
                ops.iter().for_each(|op| op.write(out));
            }
            Self::Snapshot { at, revision, digest, ops } => {
                snapshot_head(*at, *revision, *digest, ops.len(), out);
                for op in ops {
                    match op {
                        Op::Put(key, item) => put_item(Some(key), item, out),
                        Op::Push(item) => put_item(None, item, out),
                        _ => debug_assert!(false, "a snapshot has items only"),
                    }
                }
            }
            Self::End { at, revision } => {
                head(2, *at, out);
                put_number(*revision, out);
            }
            Self::Ask { at } => head(3, *at, out),
        }
    }

    /// The message that the bytes are; `None` if they are none, or beyond a limit. `sorts` by the names of the schema's lists and maps.
    pub(super) fn read(mut bytes: &[u8], sorts: impl Fn(u8) -> Option<Sort>) -> Option<Self> {
        let bytes = &mut bytes;
        let ([code, which], rest) = bytes.split_first_chunk::<2>()?;
        *bytes = rest;
        let sort = sorts(*which)?;
        let at = (*which, take_number(bytes)?);
        let said = match code {
            0 => {
                let base = take_number(bytes)?;
                let to = base.checked_add(take_number(bytes)?).filter(|to| *to > base)?;
                let (digest, count) = take_digest_and_count(bytes)?;
                let ops = (0..count).map(|_| Op::read(bytes, sort)).collect::<Option<_>>()?;
                Self::Batch { at, base, to, digest, ops }
            }
            1 => {
                let revision = take_number(bytes)?;
                let (digest, count) = take_digest_and_count(bytes)?;
                let mut item = || match sort {
                    Sort::List => Some(Op::Push(take_bytes(bytes)?)),
                    Sort::Map => Some(Op::Put(take_bytes(bytes)?, take_bytes(bytes)?)),
                };
                Self::Snapshot { at, revision, digest, ops: (0..count).map(|_| item()).collect::<Option<_>>()? }
            }
            2 if at.1 != 0 => Self::End { at, revision: take_number(bytes)? },
            3 => Self::Ask { at },
            _ => return None,
        };
        bytes.is_empty().then_some(said)
    }
}

fn take_digest_and_count(bytes: &mut &[u8]) -> Option<(u32, usize)> {
    let (digest, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    // each takes a byte at least, so that a count that is read is never worth more than the bytes that came
    let count = take_place(bytes).filter(|count| *count <= bytes.len())?;
    Some((u32::from_le_bytes(*digest), count))
}
