//! Bits to bytes and back: the writer trusts its caller, the reader trusts nobody.
//!
//! Bits fill each byte from the lowest up, and bytes follow in order, so that a string of bits can be appended to another at
//! any position without looking inside: that is what lets encoded values be cached and shared between packets.

use thiserror::Error;

/// The input ended before the value did, or held a code that means nothing.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BitError {
    /// Fewer bits were left than the value needs.
    #[error("the input ends in the middle of a value")]
    Truncated,
    /// A value outside what its field allows.
    #[error("a value lies outside what its field allows")]
    OutOfRange,
}

/// Writes bits into a buffer that is kept between uses.
#[derive(Clone, Debug, Default)]
pub struct BitWriter {
    words: Vec<u64>,
    acc: u64,
    used: u32,
}

impl BitWriter {
    /// An empty writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything written, keeps the memory.
    pub fn clear(&mut self) {
        self.words.clear();
        self.acc = 0;
        self.used = 0;
    }

    /// Bits written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() * 64 + self.used as usize
    }

    /// Nothing written yet?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the low `bits` (0 to 64) of `value`; higher bits must be zero.
    #[inline]
    pub fn put(&mut self, value: u64, bits: u32) {
        debug_assert!(bits == 64 || value >> bits == 0, "{value} does not fit {bits} bits");
        if bits == 0 {
            return;
        }
        self.acc |= value << self.used;
        let total = self.used + bits;
        if total >= 64 {
            self.words.push(self.acc);
            let taken = 64 - self.used;
            self.acc = if taken == 64 { 0 } else { value >> taken };
            self.used = total - 64;
        } else {
            self.used = total;
        }
    }

    /// One bit.
    #[inline]
    pub fn flag(&mut self, value: bool) {
        self.put(u64::from(value), 1);
    }

    /// A number of any size, small ones short: Exp-Golomb of order `k` (1 + 2·⌊log₂(v/2ᵏ + 1)⌋ + k bits).
    #[inline]
    pub fn golomb(&mut self, value: u64, k: u32) {
        let v = (value >> k) + 1;
        let n = v.ilog2();
        // n ones, a zero, then the n bits below the leading one, then the k low bits
        self.put((1u64 << n) - 1, n + 1);
        self.put(v & !(1 << n), n);
        self.put(value & ((1 << k) - 1), k);
    }

    /// Appends `len` bits of `from`, starting at bit `start`.
    #[inline]
    pub fn append(&mut self, from: &BitWriter, start: usize, len: usize) {
        debug_assert!(start + len <= from.len());
        // up to a word of our own: from there on each is a piece of the other's, whatever the one before is
        let mut at = start;
        if self.used > 0 {
            let n = (64 - self.used as usize).min(len);
            if n == 0 {
                return;
            }
            self.put(from.peek(at, n as u32), n as u32);
            at += n;
        }
        let mut left = start + len - at;
        let (first, shift) = (at >> 6, (at & 63) as u32);
        // whole words that have a word after them, so that no look needs a question
        let bulk = (left >> 6).min(from.words.len().saturating_sub(first + 1));
        if bulk > 0 {
            let (low, high) = (&from.words[first..first + bulk], &from.words[first + 1..=first + bulk]);
            // a shift by 64 in two steps
            self.words.extend(low.iter().zip(high).map(|(low, high)| low >> shift | (high << 1) << (63 - shift)));
        }
        at += bulk * 64;
        left -= bulk * 64;
        while left > 0 {
            let n = left.min(64);
            self.put(from.peek(at, n as u32), n as u32);
            at += n;
            left -= n;
        }
    }

    /// Takes back everything after the first `len` bits.
    pub fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        let word = len / 64;
        let used = (len % 64) as u32;
        let acc = if word < self.words.len() { self.words[word] } else { self.acc };
        self.words.truncate(word);
        self.used = used;
        self.acc = if used == 0 { 0 } else { acc & (u64::MAX >> (64 - used)) };
    }

    /// Copies the bits out as bytes, the last one filled up with zeros, appended to `out`.
    pub fn bytes_into(&self, out: &mut Vec<u8>) {
        let first = out.len();
        // room for all at once: then the copy has no question to ask for each word
        out.resize(first + self.words.len() * 8, 0);
        out[first..].chunks_exact_mut(8).zip(&self.words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&self.acc.to_le_bytes()[..(self.used as usize).div_ceil(8)]);
    }

    /// The bits as bytes, the last one filled up with zeros.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.bytes_into(&mut out);
        out
    }

    #[inline]
    fn word(&self, i: usize) -> u64 {
        if i < self.words.len() {
            self.words[i]
        } else if i == self.words.len() {
            self.acc
        } else {
            0
        }
    }

    /// The `n` (1 to 64) bits from bit `at` on, all of which must have been written.
    #[inline]
    #[must_use]
    pub fn peek(&self, at: usize, n: u32) -> u64 {
        let shift = (at & 63) as u32;
        let low = self.word(at >> 6) >> shift;
        let bits = if shift == 0 || shift + n <= 64 { low } else { low | (self.word((at >> 6) + 1) << (64 - shift)) };
        if n == 64 { bits } else { bits & ((1 << n) - 1) }
    }
}

/// Reads bits that came from anywhere: every read is checked, none allocates.
#[derive(Clone, Debug)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Reads from the first bit of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bits read so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bits left, the filling of the last byte included.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() * 8 - self.at
    }

    /// The next `bits` (0 to 64) as a number.
    ///
    /// # Errors
    /// [`BitError::Truncated`] if fewer are left; nothing is consumed then.
    #[inline]
    pub fn get(&mut self, bits: u32) -> Result<u64, BitError> {
        debug_assert!(bits <= 64);
        if bits as usize > self.remaining() {
            return Err(BitError::Truncated);
        }
        if bits == 0 {
            return Ok(0);
        }
        let byte = self.at >> 3;
        let shift = (self.at & 7) as u32;
        let low = self.load(byte);
        let mut v = low >> shift;
        if shift + bits > 64 {
            v |= u64::from(self.bytes[byte + 8]) << (64 - shift);
        }
        self.at += bits as usize;
        Ok(if bits == 64 { v } else { v & ((1 << bits) - 1) })
    }

    /// So many bits are always in what [`look`](Self::look) shows.
    pub const SHOWN: u32 = u64::BITS - 7;

    /// The bits to come, at least [`SHOWN`](Self::SHOWN) of them from the lowest up, zeros behind the end of the input. Consumes
    /// nothing.
    #[inline]
    #[must_use]
    pub fn look(&self) -> u64 {
        self.load(self.at >> 3) >> (self.at & 7)
    }

    /// Passes over some bits, most likely those that [`look`](Self::look) has shown.
    ///
    /// # Errors
    /// [`BitError::Truncated`] if fewer are left; nothing is consumed then.
    #[inline]
    pub fn skip(&mut self, bits: u32) -> Result<(), BitError> {
        if bits as usize > self.remaining() {
            return Err(BitError::Truncated);
        }
        self.at += bits as usize;
        Ok(())
    }

    /// One bit.
    ///
    /// # Errors
    /// [`BitError::Truncated`] at the end of the input.
    #[inline]
    pub fn flag(&mut self) -> Result<bool, BitError> {
        Ok(self.get(1)? != 0)
    }

    /// The inverse of [`BitWriter::golomb`].
    ///
    /// # Errors
    /// [`BitError::Truncated`], or [`BitError::OutOfRange`] for a number of more than 64 bits.
    #[inline]
    pub fn golomb(&mut self, k: u32) -> Result<u64, BitError> {
        let mut n = 0;
        while self.flag()? {
            n += 1;
            if n + k >= 64 {
                return Err(BitError::OutOfRange);
            }
        }
        let v = (1u64 << n) | self.get(n)?;
        let low = self.get(k)?;
        Ok(((v - 1) << k) | low)
    }

    /// Is nothing left but the zero bits that fill up the last byte?
    ///
    /// # Errors
    /// [`BitError::OutOfRange`] if there is more.
    pub fn finish(mut self) -> Result<(), BitError> {
        let left = self.remaining();
        if left >= 8 || self.get(left as u32)? != 0 {
            return Err(BitError::OutOfRange);
        }
        Ok(())
    }

    #[inline]
    fn load(&self, byte: usize) -> u64 {
        if let Some(chunk) = self.bytes[byte..].first_chunk::<8>() {
            return u64::from_le_bytes(*chunk);
        }
        let mut b = [0; 8];
        let rest = &self.bytes[byte..];
        b[..rest.len()].copy_from_slice(rest);
        u64::from_le_bytes(b)
    }
}

/// Maps signed to unsigned so that small magnitudes are small: 0, −1, 1, −2 … become 0, 1, 2, 3 …
#[inline]
#[must_use]
pub const fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
#[must_use]
pub const fn unzigzag(z: u64) -> i64 {
    (z >> 1) as i64 ^ -((z & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(values in prop::collection::vec((any::<u64>(), 0u32..=64, 0u32..12), 0..60)) {
            let mut w = BitWriter::new();
            for (v, n, k) in &values {
                w.put(if *n == 64 { *v } else { v & ((1 << n) - 1) }, *n);
                w.golomb(v >> 20, *k);
                w.golomb(zigzag(*v as i32 as i64), *k);
            }
            let bytes = w.to_bytes();
            let mut r = BitReader::new(&bytes);
            for (v, n, k) in &values {
                prop_assert_eq!(r.get(*n).unwrap(), if *n == 64 { *v } else { v & ((1 << n) - 1) });
                prop_assert_eq!(r.golomb(*k).unwrap(), v >> 20);
                prop_assert_eq!(unzigzag(r.golomb(*k).unwrap()), *v as i32 as i64);
            }
            prop_assert!(r.finish().is_ok());
        }

        #[test]
        fn appended_bits_are_the_same_bits(a in prop::collection::vec(any::<u64>(), 0..9), skip in 0usize..64, lead in 0u32..64, cut in 0usize..70) {
            let mut from = BitWriter::new();
            for v in &a { from.put(*v, 64); }
            from.put(5, 3);
            let skip = skip.min(from.len());
            let len = from.len() - skip;
            let mut w = BitWriter::new();
            w.put(0, lead);
            w.append(&from, skip, len);
            w.put(1, 1);
            let keep = w.len() - cut.min(w.len());
            let all = w.to_bytes();
            let src = from.to_bytes();
            let (mut x, mut y) = (BitReader::new(&all), BitReader::new(&src));
            x.get(lead).unwrap();
            for _ in 0..skip { y.get(1).unwrap(); }
            for _ in 0..len { prop_assert_eq!(x.get(1).unwrap(), y.get(1).unwrap()); }
            w.truncate(keep);
            prop_assert_eq!(w.len(), keep);
            w.put(u64::MAX, 64);
            let again = w.to_bytes();
            let (mut x, mut y) = (BitReader::new(&all), BitReader::new(&again));
            for _ in 0..keep { prop_assert_eq!(x.get(1).unwrap(), y.get(1).unwrap()); }
            prop_assert_eq!(y.get(64).unwrap(), u64::MAX);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), ks in prop::collection::vec(0u32..64, 0..60)) {
            let mut r = BitReader::new(&bytes);
            for k in ks { let _ = r.golomb(k.min(31)); let _ = r.get(k); }
        }
    }
}
