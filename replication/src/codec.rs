//! Values to bits and back. [`Layout::write`] trusts its caller, [`Layout::read`] trusts nobody and allocates nothing. The bits
//! are specified in [`layout`](crate::layout).

use crate::field::{float_is_canonical, quat_is_canonical, text_bytes};
use crate::layout::{FieldCode, Layout};
use crate::netid::NetId;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter, unzigzag, zigzag};
use tidelock_netcore::limits;

/// A difference whose unary prefix would reach this many ones is replaced by the value itself.
const ESCAPE: u32 = 12;
/// The age of a baseline widens the code for differences by at most this much.
const AGE_ORDER: u32 = 4;
const WRAPPING_ORDER: u32 = 4;
const QUAT_ORDER: u32 = 3;
const ENTITY_ORDER: u32 = 8;

impl Layout {
    /// Writes the value `now`: as a difference to `base`, the value that the receiver had `age` ticks before, or whole.
    pub fn write(&self, now: &[u32], base: Option<&[u32]>, age: u64, w: &mut BitWriter) {
        debug_assert_eq!(now.len(), self.words());
        debug_assert!(base.is_none_or(|b| b.len() == now.len()));
        let grow = age_order(age);
        // Entries before this one have no base: an option that was empty then.
        let mut fresh = 0;
        let (mut i, mut at) = (0, 0);
        while let Some(&code) = self.codes.get(i) {
            let value = &now[at..at + code.words()];
            let old = if i < fresh { None } else { base.map(|b| &b[at..at + value.len()]) };
            i += 1;
            at += value.len();
            let FieldCode::Maybe { fields } = code else {
                match old {
                    Some(old) => put_difference(code, value, old, grow, w),
                    None => put_absolute(code, value, w),
                }
                continue;
            };
            let end = i + fields as usize;
            w.flag(value[0] != 0);
            if value[0] == 0 {
                at += words_of(&self.codes[i..end]);
                i = end;
            } else if old.is_some_and(|old| old[0] == 0) {
                fresh = end;
            }
        }
    }

    /// Reads what [`write`](Self::write) wrote, with the same base and age, into `out`, whose content after an error is
    /// unspecified.
    ///
    /// # Errors
    /// [`BitError`] if the input ends too early or holds what no value of this layout could have made.
    pub fn read(&self, base: Option<&[u32]>, age: u64, r: &mut BitReader<'_>, out: &mut [u32]) -> Result<(), BitError> {
        debug_assert_eq!(out.len(), self.words());
        debug_assert!(base.is_none_or(|b| b.len() == out.len()));
        let grow = age_order(age);
        let mut fresh = 0;
        let (mut i, mut at) = (0, 0);
        while let Some(&code) = self.codes.get(i) {
            let words = code.words();
            let value = &mut out[at..at + words];
            let old = if i < fresh { None } else { base.map(|b| &b[at..at + words]) };
            i += 1;
            at += words;
            let FieldCode::Maybe { fields } = code else {
                match old {
                    Some(old) => get_difference(code, old, grow, r, value)?,
                    None => get_absolute(code, r, value)?,
                }
                continue;
            };
            let end = i + fields as usize;
            let present = r.flag()?;
            value[0] = u32::from(present);
            if !present {
                let skip = words_of(&self.codes[i..end]);
                out[at..at + skip].fill(0);
                at += skip;
                i = end;
            } else if old.is_some_and(|old| old[0] == 0) {
                fresh = end;
            }
        }
        Ok(())
    }
}

fn words_of(codes: &[FieldCode]) -> usize {
    codes.iter().map(|c| c.words()).sum()
}

#[inline]
fn age_order(age: u64) -> u32 {
    age.max(1).ilog2().min(AGE_ORDER)
}

/// Bits that hold every number in `0..=max`.
#[inline]
const fn bits_for(max: u32) -> u32 {
    u32::BITS - max.leading_zeros()
}

#[inline]
fn put_absolute(code: FieldCode, value: &[u32], w: &mut BitWriter) {
    match code {
        FieldCode::Number { max, .. } => w.put(value[0].into(), bits_for(max)),
        FieldCode::Wide => w.put(NetId::from_words(value[0], value[1]).0, 64),
        FieldCode::Wrapping { bits } => w.put(value[0].into(), bits),
        FieldCode::Choice { count } => w.put(value[0].into(), bits_for(count - 1)),
        FieldCode::Float => w.put(value[0].into(), 32),
        FieldCode::Quat { bits } => {
            w.put(value[0].into(), 2);
            value[1..].iter().for_each(|&part| w.put(part.into(), bits));
        }
        FieldCode::Text { cap } => {
            w.put(value[0].into(), bits_for(cap));
            let (whole, rest) = (value[0] as usize / 4, value[0] % 4);
            value[1..=whole].iter().for_each(|&four| w.put(four.into(), 32));
            if rest > 0 {
                w.put(value[1 + whole].into(), rest * 8);
            }
        }
        FieldCode::Entity => w.golomb(NetId::from_words(value[0], value[1]).0, ENTITY_ORDER),
        FieldCode::Maybe { .. } => w.flag(value[0] != 0),
    }
}

#[inline]
fn get_absolute(code: FieldCode, r: &mut BitReader<'_>, value: &mut [u32]) -> Result<(), BitError> {
    match code {
        FieldCode::Number { max, .. } => value[0] = up_to(r.get(bits_for(max))?, max)?,
        FieldCode::Wide => value.copy_from_slice(&NetId(r.get(64)?).to_words()),
        FieldCode::Wrapping { bits } => value[0] = r.get(bits)? as u32,
        FieldCode::Choice { count } => value[0] = up_to(r.get(bits_for(count - 1))?, count - 1)?,
        FieldCode::Float => {
            value[0] = r.get(32)? as u32;
            check(float_is_canonical(value[0]))?;
        }
        FieldCode::Quat { bits } => {
            value[0] = r.get(2)? as u32;
            for part in &mut value[1..] {
                *part = r.get(bits)? as u32;
            }
            check(quat_is_canonical([value[0], value[1], value[2], value[3]], bits))?;
        }
        FieldCode::Text { cap } => get_text(cap, r, value)?,
        FieldCode::Entity => value.copy_from_slice(&NetId(r.golomb(ENTITY_ORDER)?).to_words()),
        FieldCode::Maybe { .. } => value[0] = r.flag()?.into(),
    }
    Ok(())
}

fn get_text(cap: u32, r: &mut BitReader<'_>, value: &mut [u32]) -> Result<(), BitError> {
    let len = up_to(r.get(bits_for(cap))?, cap)?;
    value.fill(0);
    value[0] = len;
    let (whole, rest) = (len as usize / 4, len % 4);
    for four in &mut value[1..=whole] {
        *four = r.get(32)? as u32;
    }
    if rest > 0 {
        value[1 + whole] = r.get(rest * 8)? as u32;
    }
    let mut buffer = [0; limits::STRING_BYTES];
    check(text_bytes(value, &mut buffer).is_some_and(|bytes| std::str::from_utf8(bytes).is_ok()))
}

#[inline]
fn put_difference(code: FieldCode, value: &[u32], old: &[u32], grow: u32, w: &mut BitWriter) {
    match code {
        FieldCode::Number { max, order } => put_surprise(value[0], apart(value[0], old[0]), order + grow, bits_for(max), w),
        FieldCode::Wrapping { bits } => {
            // Moved to the top of the word, the difference wraps by itself and has its sign where a word has it.
            let spare = u32::BITS - bits;
            let turn = (value[0].wrapping_sub(old[0]) << spare) as i32 >> spare;
            put_surprise(value[0], turn.into(), WRAPPING_ORDER + grow, bits, w);
        }
        FieldCode::Choice { count: ..=2 } | FieldCode::Maybe { .. } => put_absolute(code, value, w),
        FieldCode::Quat { bits } => {
            w.flag(value[0] == old[0]);
            if value[0] != old[0] {
                return put_absolute(code, value, w);
            }
            for (&part, &old) in value[1..].iter().zip(&old[1..]) {
                put_surprise(part, apart(part, old), QUAT_ORDER + grow, bits, w);
            }
        }
        FieldCode::Choice { .. } | FieldCode::Wide | FieldCode::Float | FieldCode::Text { .. } | FieldCode::Entity => {
            w.flag(value == old);
            if value != old {
                put_absolute(code, value, w);
            }
        }
    }
}

#[inline]
fn get_difference(code: FieldCode, old: &[u32], grow: u32, r: &mut BitReader<'_>, value: &mut [u32]) -> Result<(), BitError> {
    match code {
        FieldCode::Number { max, order } => value[0] = moved(old[0], get_surprise(order + grow, bits_for(max), r)?, max)?,
        FieldCode::Wrapping { bits } => {
            value[0] = match get_surprise(WRAPPING_ORDER + grow, bits, r)? {
                Surprise::Absolute(word) => word,
                Surprise::Difference(d) => old[0].wrapping_add(d as u32) & ((1 << bits) - 1),
            }
        }
        FieldCode::Choice { count: ..=2 } | FieldCode::Maybe { .. } => get_absolute(code, r, value)?,
        FieldCode::Quat { bits } => {
            if !r.flag()? {
                return get_absolute(code, r, value);
            }
            value[0] = old[0];
            for (part, &old) in value[1..].iter_mut().zip(&old[1..]) {
                *part = moved(old, get_surprise(QUAT_ORDER + grow, bits, r)?, (1 << bits) - 2)?;
            }
            check(quat_is_canonical([value[0], value[1], value[2], value[3]], bits))?;
        }
        FieldCode::Choice { .. } | FieldCode::Wide | FieldCode::Float | FieldCode::Text { .. } | FieldCode::Entity => {
            if !r.flag()? {
                return get_absolute(code, r, value);
            }
            value.copy_from_slice(old);
        }
    }
    Ok(())
}

#[inline]
fn apart(now: u32, old: u32) -> i64 {
    i64::from(now) - i64::from(old)
}

enum Surprise {
    Difference(i64),
    Absolute(u32),
}

/// The difference as an Exp-Golomb code of order `k`, or 12 ones and the value itself in `bits` bits.
#[inline]
fn put_surprise(value: u32, difference: i64, k: u32, bits: u32, w: &mut BitWriter) {
    let z = zigzag(difference);
    let v = (z >> k) + 1;
    let n = v.ilog2();
    if n >= ESCAPE {
        return w.put(u64::from(value) << ESCAPE | ((1 << ESCAPE) - 1), ESCAPE + bits);
    }
    let ones = (1u64 << n) - 1;
    let high = (v & !(1 << n)) << (n + 1);
    let low = (z & ((1 << k) - 1)) << (2 * n + 1);
    w.put(low | high | ones, 2 * n + 1 + k);
}

#[inline]
fn get_surprise(k: u32, bits: u32, r: &mut BitReader<'_>) -> Result<Surprise, BitError> {
    let ahead = r.remaining().min(ESCAPE as usize) as u32;
    let n = r.clone().get(ahead)?.trailing_ones();
    if n == ESCAPE {
        r.get(ESCAPE)?;
        return Ok(Surprise::Absolute(r.get(bits)? as u32));
    }
    // Behind the ones comes a zero; if the input ends instead, so does this.
    r.get(n + 1)?;
    let high = (1u64 << n) | r.get(n)?;
    let low = r.get(k)?;
    Ok(Surprise::Difference(unzigzag((high - 1) << k | low)))
}

#[inline]
fn moved(old: u32, by: Surprise, max: u32) -> Result<u32, BitError> {
    match by {
        Surprise::Absolute(word) => up_to(word.into(), max),
        Surprise::Difference(d) => up_to((i64::from(old) + d) as u64, max),
    }
}

#[inline]
fn up_to(value: u64, max: u32) -> Result<u32, BitError> {
    if value <= max.into() { Ok(value as u32) } else { Err(BitError::OutOfRange) }
}

#[inline]
fn check(good: bool) -> Result<(), BitError> {
    if good { Ok(()) } else { Err(BitError::OutOfRange) }
}

impl FieldCode {
    /// The most bits that the field takes, absolute or as a difference of any age; without what belongs to an option.
    #[must_use]
    pub fn worst_bits(self) -> usize {
        let bits = match self {
            Self::Number { max, order } => worst_surprise(2 * u64::from(max), order, bits_for(max)),
            Self::Wide => 65,
            Self::Wrapping { bits } => worst_surprise((1 << bits) - 1, WRAPPING_ORDER, bits),
            Self::Choice { count: ..=2 } | Self::Maybe { .. } => 1,
            Self::Choice { count } => 1 + bits_for(count - 1),
            Self::Float => 33,
            Self::Quat { bits } => 1 + (2 + 3 * bits).max(3 * worst_surprise(4 * ((1 << (bits - 1)) - 1), QUAT_ORDER, bits)),
            Self::Text { cap } => 1 + bits_for(cap) + 8 * cap,
            // "Changed", 55 ones, a zero, 55 bits and 8 bits.
            Self::Entity => 120,
        };
        bits as usize
    }
}

/// The longest code of a difference up to `most` (zigzag), or of the escape; no shorter than the absolute form.
fn worst_surprise(most: u64, order: u32, bits: u32) -> u32 {
    let longest = |k: u32| {
        let n = ((most >> k) + 1).ilog2();
        if n < ESCAPE { 2 * n + 1 + k } else { (2 * (ESCAPE - 1) + 1 + k).max(ESCAPE + bits) }
    };
    (order..=order + AGE_ORDER).map(longest).max().unwrap_or(0).max(bits)
}
