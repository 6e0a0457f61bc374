//! Fields of many parts: lists, maps, bytes, opaque values, directions.
//!
//! # Lists and maps
//!
//! A field of at most `max` items always has the words of that many, so that values can be compared and told as differences like
//! all others. What is not there costs nothing on the wire: a list is its items, each behind one bit, and one more bit for its end
//! (none if it is full). Against a base each item is told as its difference to the one that was in its place, so lists that
//! grow, shrink and change at their ends are cheap, and those that lose their first item are told anew. The layout's bounds hold
//! for the longest list: [`FIELDS`](tidelock_netcore::limits::FIELDS) (256; an item has its own and one more) and
//! [`COMPONENT_BITS`](tidelock_netcore::limits::COMPONENT_BITS) (900 bytes), and at most
//! [`LIST_ITEMS`](tidelock_netcore::limits::LIST_ITEMS) (64) items. What is larger belongs into entities of their own.
//!
//! Maps and sets are those with an order, `BTreeMap` and `BTreeSet`: equal ones have equal words. A reader refuses keys that do
//! not rise.
//!
//! ```
//! use std::collections::BTreeMap;
//! use tidelock::Replicate;
//!
//! #[derive(Replicate)]
//! struct Bag {
//!     #[net(max = 8)]
//!     items: Vec<Item>,
//!     #[net(max = 4, range = 0..=100)]
//!     skills: BTreeMap<u8, u8>,
//! }
//!
//! #[derive(Replicate)]
//! struct Item { sort: u16, #[net(range = 1..=99)] count: u8 }
//!
//! assert_eq!(tidelock::layout::Layout::of::<Bag>().unwrap().words(), 8 * 3 + 4 * 3);
//! ```
//!
//! # Opaque values
//!
//! `#[net(opaque, max = 200)]` sends whatever `bitcode` makes of a value, if that is at most so many bytes: for what no other
//! code fits and rarely changes. The type derives `bitcode::Encode` and `bitcode::Decode` (version 0.6). It is encoded whenever it
//! may have changed, and when it changed it is sent whole. The bytes are compared with the bound before anything is made of them, and
//! bytes that the value they decode to would not have made are refused, like any that are not a value. Three things remain the game's:
//! floats in it are not looked at (check them with [`validate`](crate::schema::ComponentOptions::validate)), it should hold no
//! collection of something without a size, of which a few bytes make any number, and no `HashMap` or `HashSet`, whose order is another on each
//! machine, so that nobody would take it.

use crate::field::{self, NORMAL_BITS};
use crate::replicate::{FieldError, Quantised, Quantiser, RestoreError, Restorer};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tidelock_netcore::limits;

/// A list of items that a field with `#[net(max = …)]`, or `#[net(list, max = …)]`, can be.
pub trait List: Sized {
    /// What it is a list of.
    type Item;

    /// The items, in order. Equal lists give equal items in equal order.
    fn items(&self) -> impl ExactSizeIterator<Item = &Self::Item>;

    /// The list of these items; `None` if it cannot be: it has no room, or they are in an order that it never gives.
    fn from_items(items: Vec<Self::Item>) -> Option<Self>;
}

impl<T> List for Vec<T> {
    type Item = T;

    fn items(&self) -> impl ExactSizeIterator<Item = &T> {
        self.iter()
    }

    fn from_items(items: Self) -> Option<Self> {
        Some(items)
    }
}

impl<T> List for VecDeque<T> {
    type Item = T;

    fn items(&self) -> impl ExactSizeIterator<Item = &T> {
        self.iter()
    }

    fn from_items(items: Vec<T>) -> Option<Self> {
        Some(items.into())
    }
}

impl<T, const N: usize> List for SmallVec<[T; N]> {
    type Item = T;

    fn items(&self) -> impl ExactSizeIterator<Item = &T> {
        self.iter()
    }

    fn from_items(items: Vec<T>) -> Option<Self> {
        Some(items.into_iter().collect())
    }
}

impl<T: Ord> List for BTreeSet<T> {
    type Item = T;

    fn items(&self) -> impl ExactSizeIterator<Item = &T> {
        self.iter()
    }

    fn from_items(items: Vec<T>) -> Option<Self> {
        items.is_sorted_by(|a, b| a < b).then(|| items.into_iter().collect())
    }
}

/// The list of restored items; what the derive uses.
///
/// # Errors
/// [`RestoreError::Invalid`] if they are none.
pub fn list_of<L: List>(field: &'static str, items: Vec<L::Item>) -> Result<L, RestoreError> {
    L::from_items(items).ok_or(RestoreError::Invalid { field })
}

/// The map of restored keys and values; what the derive uses.
///
/// # Errors
/// [`RestoreError::Invalid`] if the keys do not rise.
pub fn map_of<K: Ord, V>(field: &'static str, items: Vec<(K, V)>) -> Result<BTreeMap<K, V>, RestoreError> {
    if items.is_sorted_by(|a, b| a.0 < b.0) { Ok(items.into_iter().collect()) } else { Err(RestoreError::Invalid { field }) }
}

/// The raw values of a list of values that have their own; what the derive uses.
#[inline]
pub fn raw_list<R: Copy, const MAX: usize>(items: impl ExactSizeIterator<Item = R>) -> (usize, [Option<R>; MAX]) {
    let len = items.len();
    let mut raws = [None; MAX];
    raws.iter_mut().zip(items).for_each(|(raw, item)| *raw = Some(item));
    (len, raws)
}

impl Quantiser<'_> {
    fn failed<T>(field: &'static str, result: Result<T, field::Problem>) -> Result<T, FieldError> {
        result.map_err(|problem| FieldError { field: Cow::Borrowed(field), problem })
    }

    /// A direction: x, y, z.
    ///
    /// # Errors
    /// Not finite, or of length zero.
    pub fn normal(&mut self, field: &'static str, bits: u32, value: [f32; 3]) -> Quantised {
        let bits = if self.fine { *NORMAL_BITS.end() } else { bits };
        let words = Self::failed(field, field::normal_words(value, bits))?;
        words.into_iter().for_each(|word| self.word(word));
        Ok(())
    }

    /// At most `cap` bytes.
    ///
    /// # Errors
    /// Too long.
    pub fn bytes(&mut self, field: &'static str, cap: u32, value: &[u8]) -> Quantised {
        let end = self.at + field::text_words(cap);
        Self::failed(field, field::put_blob(value, cap, &mut self.words[self.at..end]))?;
        self.at = end;
        Ok(())
    }

    /// What `bitcode` makes of a value, at most `cap` bytes.
    ///
    /// # Errors
    /// Too long.
    pub fn opaque<T: bitcode::Encode>(&mut self, field: &'static str, cap: u32, value: &T) -> Quantised {
        self.bytes(field, cap, &bitcode::encode(value))
    }

    /// At most `max` items, each `words` words long.
    ///
    /// # Errors
    /// Too many, and those of `inner`, with the name of this field and the index before theirs.
    pub fn list<T>(
        &mut self,
        field: &'static str,
        words: usize,
        max: u32,
        items: impl ExactSizeIterator<Item = T>,
        mut inner: impl FnMut(&mut Self, T) -> Quantised,
    ) -> Quantised {
        let len = items.len();
        if len > max as usize {
            return Self::failed(field, Err(field::Problem::TooMany { len, max }));
        }
        let end = self.at + max as usize * (1 + words);
        for (i, item) in items.enumerate() {
            self.word(1);
            inner(self, item).map_err(|e| e.within(&i.to_string()).within(field))?;
        }
        self.words[self.at..end].fill(0);
        self.at = end;
        Ok(())
    }
}

impl Restorer<'_> {
    /// A direction of length 1: x, y, z.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] if none has these words.
    pub fn normal(&mut self, field: &'static str, bits: u32) -> Result<[f32; 3], RestoreError> {
        let bits = if self.fine { *NORMAL_BITS.end() } else { bits };
        let words = [self.word(field)?, self.word(field)?];
        if field::normal_is_canonical(words, bits) {
            Ok(field::normal_value(words, bits))
        } else {
            Err(RestoreError::Invalid { field })
        }
    }

    fn with_bytes<T>(&mut self, field: &'static str, cap: u32, make: impl FnOnce(&[u8]) -> Option<T>) -> Result<T, RestoreError> {
        let end = self.at + field::text_words(cap);
        let mut buffer = [0; limits::STRING_BYTES];
        let words = self.words.get(self.at..end).ok_or(RestoreError::Invalid { field })?;
        self.at = end;
        let bytes = field::text_bytes(words, &mut buffer).filter(|bytes| bytes.len() <= cap as usize);
        bytes.and_then(make).ok_or(RestoreError::Invalid { field })
    }

    /// Text of at most `cap` bytes.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] if it is too long or not UTF-8.
    pub fn text(&mut self, field: &'static str, cap: u32) -> Result<String, RestoreError> {
        self.with_bytes(field, cap, |bytes| std::str::from_utf8(bytes).ok().map(str::to_owned))
    }

    /// At most `cap` bytes.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] if they are more.
    pub fn bytes(&mut self, field: &'static str, cap: u32) -> Result<Vec<u8>, RestoreError> {
        self.with_bytes(field, cap, |bytes| Some(bytes.to_vec()))
    }

    /// What `bitcode` made of a value, at most `cap` bytes.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] if they are more, are no such value, or are not the bytes that it has.
    pub fn opaque<T: bitcode::Encode + bitcode::DecodeOwned>(
        &mut self,
        field: &'static str,
        cap: u32,
    ) -> Result<T, RestoreError> {
        self.with_bytes(field, cap, |bytes| {
            let value = bitcode::decode(bytes).ok()?;
            (bitcode::encode(&value) == bytes).then_some(value)
        })
    }

    /// At most `max` items, each `words` words long.
    ///
    /// # Errors
    /// [`RestoreError::Invalid`] for a flag that is neither 0 nor 1, and those of `inner`.
    pub fn list<T>(
        &mut self,
        field: &'static str,
        words: usize,
        max: u32,
        mut inner: impl FnMut(&mut Self) -> Result<T, RestoreError>,
    ) -> Result<Vec<T>, RestoreError> {
        let end = self.at + max as usize * (1 + words);
        let mut items = Vec::new();
        for _ in 0..max {
            if self.up_to(field, 1)? == 0 {
                break;
            }
            items.push(inner(self)?);
        }
        self.at = end;
        Ok(items)
    }
}
