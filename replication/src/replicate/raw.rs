//! The component's own bits, as the derive collects them.

use crate::field;

/// Collects the bits of a component's fields for [`Replicate::raw`](super::Replicate::raw); what the derive uses.
#[derive(Debug)]
pub struct RawWords<const K: usize> {
    words: [u32; K],
    at: usize,
}

impl<const K: usize> Default for RawWords<K> {
    #[inline]
    fn default() -> Self {
        Self { words: [0; K], at: 0 }
    }
}

impl<const K: usize> RawWords<K> {
    /// One word.
    #[inline]
    pub fn one(&mut self, word: u32) {
        self.words[self.at] = word;
        self.at += 1;
    }

    /// Two words.
    #[inline]
    pub fn two(&mut self, value: u64) {
        self.one(value as u32);
        self.one((value >> 32) as u32);
    }

    /// The length of a text and its first `cap` bytes.
    #[inline]
    pub fn text(&mut self, cap: u32, text: &str) {
        self.bytes(cap, text.as_bytes());
    }

    /// The length of a list, and its first `max` items, each `words` words long.
    #[inline]
    pub fn list<T>(
        &mut self,
        words: usize,
        max: u32,
        items: impl ExactSizeIterator<Item = T>,
        mut inner: impl FnMut(&mut Self, T),
    ) {
        let end = self.at + 1 + max as usize * words;
        self.one(items.len() as u32);
        items.take(max as usize).for_each(|item| inner(self, item));
        self.at = end;
    }

    /// The number of bytes and the first `cap` of them.
    #[inline]
    pub fn bytes(&mut self, cap: u32, bytes: &[u8]) {
        let end = self.at + field::text_words(cap);
        let out = &mut self.words[self.at..end];
        field::put_bytes(&bytes[..bytes.len().min(cap as usize)], out);
        out[0] = bytes.len() as u32;
        self.at = end;
    }

    /// What `bitcode` makes of a value, like [`bytes`](Self::bytes).
    pub fn opaque<T: bitcode::Encode>(&mut self, cap: u32, value: &T) {
        self.bytes(cap, &bitcode::encode(value));
    }

    /// Something that may be absent, `words` words long without the flag.
    #[inline]
    pub fn maybe<T>(&mut self, words: usize, value: Option<T>, inner: impl FnOnce(&mut Self, T)) {
        self.one(value.is_some().into());
        let end = self.at + words;
        if let Some(value) = value {
            inner(self, value);
        }
        self.at = end;
    }

    /// All words.
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u32; K] {
        debug_assert_eq!(self.at, K);
        self.words
    }
}
