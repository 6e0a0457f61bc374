//! How single values become words and come back: steps, angles, rotations, text.
//!
//! Every pair here has one law: what was restored quantises to the same words again. A value that was sent, shown and captured
//! once more is therefore no change. Values outside their range are errors, never clamped: a clamped position is a bug that
//! nobody sees.

mod normal;

pub use normal::{NORMAL_BITS, normal_is_canonical, normal_value, normal_words};

use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2, TAU};
use thiserror::Error;

/// Least and most bits of an angle: beyond 20 an `f32` could not tell two neighbours apart.
pub const ANGLE_BITS: std::ops::RangeInclusive<u32> = 2..=20;
/// Least and most bits of each part of a rotation.
pub const QUAT_BITS: std::ops::RangeInclusive<u32> = 4..=16;
/// Most bits of a fraction of one.
pub const UNIT_BITS: u32 = 22;
/// Largest order of the code for differences.
pub const MAX_ORDER: u32 = 24;
/// Order of the code for differences of stepped numbers, if the field names none.
pub const STEP_ORDER: u32 = 4;
/// Order of the code for differences of integers, if the field names none.
pub const INTEGER_ORDER: u32 = 2;

/// The simulation grid: what predicted components are rounded to after each step, in units of the field. See
/// [`Host::predicted`](crate::policy::Host::predicted).
pub const GRID: f64 = 1.0 / 4096.0;
/// So many steps from zero an `f32` tells two neighbours apart.
const F32_REACH: f64 = 8e6;

/// Why a value cannot be quantised.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// The value lies outside the range that its field states.
    #[error("{value} lies outside {min}..={max}")]
    OutOfRange {
        /// What the game wrote.
        value: f64,
        /// The least value allowed.
        min: f64,
        /// The largest value allowed.
        max: f64,
    },
    /// NaN or infinite.
    #[error("not a finite number")]
    NotFinite,
    /// More bytes, of text or of others, than the field allows.
    #[error("{len} bytes where {cap} are allowed")]
    TooLong {
        /// Bytes that there are.
        len: usize,
        /// Bytes allowed.
        cap: u32,
    },
    /// A quaternion of length zero is no rotation.
    #[error("a quaternion of length zero is no rotation")]
    ZeroRotation,
    /// A vector of length zero has no direction.
    #[error("a vector of length zero has no direction")]
    ZeroNormal,
    /// A list or map of more items than its field allows.
    #[error("{len} items where {max} are allowed")]
    TooMany {
        /// Items that there are.
        len: usize,
        /// Items allowed.
        max: u32,
    },
}

/// A range divided into equal steps: a float travels as the index of the nearest one.
///
/// ```
/// # use tidelock::field::Step;
/// const METRES: Step = Step::f32(0.01, -500.0, 500.0);
/// assert_eq!(METRES.last(), 100_000);
/// assert_eq!(METRES.index(1.234), Ok(50_123));
/// assert!(METRES.index(500.01).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    min: f64,
    step: f64,
    per_unit: f64,
    last: u32,
}

impl Step {
    /// Steps for an `f32`. No value may lie further than 8 million steps from zero, where an `f32` is too coarse.
    ///
    /// # Panics
    /// If the step is not positive, the range empty or not finite, the steps too fine or more than 2³²: use it in a `const`,
    /// and the program does not compile then.
    #[must_use]
    pub const fn f32(step: f64, min: f64, max: f64) -> Self {
        Self::new(step, min, max, F32_REACH)
    }

    /// Steps for an `f64`. No value may lie further than 10¹⁵ steps from zero.
    ///
    /// # Panics
    /// Like [`f32`](Self::f32).
    #[must_use]
    pub const fn f64(step: f64, min: f64, max: f64) -> Self {
        Self::new(step, min, max, 1e15)
    }

    /// Fixed point for an `f32`: steps of 2^−`bits`. Every multiple of the step in the range, 0 among them if it lies there, comes
    /// back as it was.
    ///
    /// # Panics
    /// Like [`f32`](Self::f32), and if an end of the range is no multiple of the step or there are more than 30 bits.
    #[must_use]
    pub const fn fixed_f32(bits: u32, min: f64, max: f64) -> Self {
        Self::f32(fraction(bits, min, max), min, max)
    }

    /// Fixed point for an `f64`.
    ///
    /// # Panics
    /// Like [`fixed_f32`](Self::fixed_f32).
    #[must_use]
    pub const fn fixed_f64(bits: u32, min: f64, max: f64) -> Self {
        Self::f64(fraction(bits, min, max), min, max)
    }

    /// The range `0..=1` in `2^bits − 1` steps; both ends come back as they were.
    ///
    /// # Panics
    /// Unless there are 1 to 22 bits, more than which an `f32` does not tell apart.
    #[must_use]
    pub const fn unit(bits: u32) -> Self {
        assert!(bits >= 1 && bits <= UNIT_BITS, "a fraction has 1 to 22 bits");
        Self::f64(1.0 / ((1u32 << bits) - 1) as f64, 0.0, 1.0)
    }

    /// The range `-1..=1` in `2^bits − 2` steps; both ends and 0 come back as they were.
    ///
    /// # Panics
    /// Unless there are 2 to 22 bits.
    #[must_use]
    pub const fn signed_unit(bits: u32) -> Self {
        assert!(bits >= 2 && bits <= UNIT_BITS, "a fraction with a sign has 2 to 22 bits");
        Self::f64(1.0 / ((1u32 << (bits - 1)) - 1) as f64, -1.0, 1.0)
    }

    const fn new(step: f64, min: f64, max: f64, reach: f64) -> Self {
        assert!(step.is_finite() && step > 0.0, "a step must be a positive number");
        assert!(min.is_finite() && max.is_finite(), "a range must be finite");
        assert!(min < max, "the range is empty");
        let far = if -min > max { -min } else { max };
        assert!(far <= step * reach, "the step is too fine for the float at the far end of its range");
        let steps = (max - min) / step + 0.5;
        assert!(steps < 4_294_967_296.0, "the range has more than 2^32 steps");
        assert!(steps >= 1.0, "the step is wider than the range");
        Self { min, step, per_unit: 1.0 / step, last: steps as u32 }
    }

    /// The least value.
    #[must_use]
    pub const fn min(&self) -> f64 {
        self.min
    }

    /// The distance between two steps.
    #[must_use]
    pub const fn step(&self) -> f64 {
        self.step
    }

    /// The index of the last step: round((max − min) / step).
    #[must_use]
    pub const fn last(&self) -> u32 {
        self.last
    }

    /// The same range on the simulation grid: the finest power of two that an `f32` can hold all over the range, but not finer than
    /// [`GRID`]; or these steps, where they are as fine.
    #[inline]
    pub(crate) fn on_grid(&self) -> Self {
        let max = self.value(self.last);
        let far = self.min.abs().max(max.abs());
        let mut step = GRID;
        while far > step * F32_REACH {
            step *= 2.0;
        }
        if step >= self.step {
            return *self;
        }
        Self { min: self.min, step, per_unit: 1.0 / step, last: ((max - self.min) / step + 0.5) as u32 }
    }

    /// The index of the step nearest to `value`, which may lie up to half a step outside the range.
    ///
    /// # Errors
    /// [`Problem::NotFinite`] or [`Problem::OutOfRange`].
    #[inline]
    pub fn index(&self, value: f64) -> Result<u32, Problem> {
        // Adding a half and cutting off rounds numbers that are not negative, without a call into libm.
        let x = (value - self.min) * self.per_unit + 0.5;
        if x >= 0.0 && x < f64::from(self.last) + 1.0 {
            return Ok(x as u32);
        }
        Err(out_of_range(value, self.min, self.value(self.last)))
    }

    /// The value at a step.
    #[inline]
    #[must_use]
    pub fn value(&self, index: u32) -> f64 {
        self.min + f64::from(index) * self.step
    }
}

/// The step of a fixed-point number.
const fn fraction(bits: u32, min: f64, max: f64) -> f64 {
    assert!(bits <= 30, "a fixed-point number has at most 30 bits after the point");
    let per_unit = (1u32 << bits) as f64;
    let (low, high) = (min * per_unit, max * per_unit);
    assert!(low == (low as i64) as f64 && high == (high as i64) as f64, "the range ends between two fixed-point numbers");
    1.0 / per_unit
}

#[cold]
pub(crate) fn out_of_range(value: f64, min: f64, max: f64) -> Problem {
    if value.is_finite() { Problem::OutOfRange { value, min, max } } else { Problem::NotFinite }
}

/// The index of an angle (radians, any number of turns) among `2^bits` directions.
///
/// # Errors
/// [`Problem::NotFinite`].
#[inline]
pub fn angle_index(radians: f64, bits: u32) -> Result<u32, Problem> {
    if !radians.is_finite() {
        return Err(Problem::NotFinite);
    }
    // So far out that the cast saturates, a float knows no direction any more; the answer is the same on every machine.
    let x = radians * (f64::from(1u32 << bits) / TAU);
    Ok(round(x) as u32 & ((1 << bits) - 1))
}

/// The angle at an index, in radians from −π up to, not including, π.
#[inline]
#[must_use]
pub fn angle_value(index: u32, bits: u32) -> f64 {
    let directions = 1i64 << bits;
    let signed = if i64::from(index) >= directions / 2 { i64::from(index) - directions } else { i64::from(index) };
    signed as f64 * (TAU / directions as f64)
}

/// A float as the word that travels when it must be exact; −0.0 becomes 0.0.
///
/// # Errors
/// [`Problem::NotFinite`].
#[inline]
pub fn float_word(value: f32) -> Result<u32, Problem> {
    if value.is_finite() { Ok((value + 0.0).to_bits()) } else { Err(Problem::NotFinite) }
}

/// Is this the word of a finite float that is not −0.0?
#[inline]
#[must_use]
pub fn float_is_canonical(word: u32) -> bool {
    f32::from_bits(word).is_finite() && word != 0x8000_0000
}

/// A rotation (x, y, z, w; any length but zero) as four words: the index of its largest part, then the three others, scaled by
/// √2·h and moved up by h = 2^(bits−1) − 1.
///
/// The largest part is left out because the length is 1. Rounding may make it come back smaller than another part; another part
/// would then be the largest, and the words would differ the next time. So the words are **canonical** only if, in whole numbers
/// and with L = 2h² − a² − b² − c², L is at least p² for each part p after the largest, and at least p² + |p| for each before it
/// (which wins ties). Until that holds, the greatest of the three moves one step towards zero.
///
/// # Errors
/// [`Problem::NotFinite`] or [`Problem::ZeroRotation`].
pub fn quat_words(q: [f32; 4], bits: u32) -> Result<[u32; 4], Problem> {
    // spelt out: the compiler makes calls of what is mapped over an array
    let wide = [f64::from(q[0]), f64::from(q[1]), f64::from(q[2]), f64::from(q[3])];
    let square = wide[0] * wide[0] + wide[1] * wide[1] + wide[2] * wide[2] + wide[3] * wide[3];
    if !square.is_finite() {
        return Err(Problem::NotFinite);
    }
    if square == 0.0 {
        return Err(Problem::ZeroRotation);
    }
    let largest = largest_of([wide[0].abs(), wide[1].abs(), wide[2].abs(), wide[3].abs()]);
    let h = quat_half(bits);
    let sign = if q[largest] < 0.0 { -1.0 } else { 1.0 };
    let scale = sign * SQRT_2 * h as f64 / square.sqrt();
    let [i, j, k] = OTHERS[largest];
    let part = |part: f64| round(part * scale).clamp(-h, h);
    let mut parts = [part(wide[i]), part(wide[j]), part(wide[k])];
    while !quat_holds(largest, parts, h) {
        let worst = (0..3).rev().max_by_key(|&i| parts[i].abs()).unwrap_or(0);
        parts[worst] -= parts[worst].signum();
    }
    Ok([largest as u32, (parts[0] + h) as u32, (parts[1] + h) as u32, (parts[2] + h) as u32])
}

/// The rotation (x, y, z, w) of length 1 that canonical words stand for; its largest part is positive.
#[inline]
#[must_use]
pub fn quat_value(words: [u32; 4], bits: u32) -> [f32; 4] {
    let h = quat_half(bits);
    let parts = [i64::from(words[1]) - h, i64::from(words[2]) - h, i64::from(words[3]) - h];
    let rest = (2 * h * h - parts[0] * parts[0] - parts[1] * parts[1] - parts[2] * parts[2]).max(0);
    let unit = FRAC_1_SQRT_2 / h as f64;
    let largest = ((rest as f64).sqrt() * unit) as f32;
    // spelt out: the compiler makes calls of what is mapped over an array
    let (a, b, c) = ((parts[0] as f64 * unit) as f32, (parts[1] as f64 * unit) as f32, (parts[2] as f64 * unit) as f32);
    // which part is the largest is anybody's guess, a processor's too
    let at = words[0] & 3;
    let second = pick(at == 0, a, pick(at == 1, largest, b));
    let third = pick(at <= 1, b, pick(at == 2, largest, c));
    [pick(at == 0, largest, a), second, third, pick(at == 3, largest, c)]
}

/// One of two numbers, without a branch.
#[inline]
fn pick(first: bool, a: f32, b: f32) -> f32 {
    let mask = u32::from(first).wrapping_neg();
    f32::from_bits(a.to_bits() & mask | b.to_bits() & !mask)
}

/// The parts of a rotation beside the largest, by that, in their order.
const OTHERS: [[usize; 3]; 4] = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]];

/// The first of the largest of four numbers that are not negative, without a branch: any of them is as likely.
#[inline]
fn largest_of(sizes: [f64; 4]) -> usize {
    // such numbers are in the order of their bits
    let sizes = sizes.map(f64::to_bits);
    let later = |a: usize, b: usize| if sizes[b] > sizes[a] { b } else { a };
    later(later(0, 1), later(2, 3))
}

/// Could [`quat_words`] have made these words?
#[inline]
#[must_use]
pub fn quat_is_canonical(words: [u32; 4], bits: u32) -> bool {
    let h = quat_half(bits);
    let top = 2 * h as u32;
    words[0] < 4
        && words[1..].iter().all(|&w| w <= top)
        && quat_holds(words[0] as usize, [i64::from(words[1]) - h, i64::from(words[2]) - h, i64::from(words[3]) - h], h)
}

const fn quat_half(bits: u32) -> i64 {
    (1 << (bits - 1)) - 1
}

#[inline]
fn quat_holds(largest: usize, parts: [i64; 3], h: i64) -> bool {
    let squares = [parts[0] * parts[0], parts[1] * parts[1], parts[2] * parts[2]];
    let rest = 2 * h * h - squares[0] - squares[1] - squares[2];
    // The first `largest` of the three stand before the largest part.
    let needs = |i: usize| squares[i] + if i < largest { parts[i].abs() } else { 0 };
    rest >= needs(0).max(needs(1)).max(needs(2))
}

/// Words of a text field of at most `cap` bytes: its length, then its bytes.
#[must_use]
pub const fn text_words(cap: u32) -> usize {
    1 + (cap as usize).div_ceil(4)
}

/// Writes a string into the words of its field: the length, then the bytes, the lowest byte of each word first, the rest zero.
///
/// # Errors
/// [`Problem::TooLong`].
pub fn put_text(text: &str, cap: u32, out: &mut [u32]) -> Result<(), Problem> {
    if text.len() > cap as usize {
        return Err(Problem::TooLong { len: text.len(), cap });
    }
    put_bytes(text.as_bytes(), out);
    Ok(())
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut [u32]) {
    out.fill(0);
    out[0] = bytes.len() as u32;
    for (word, four) in out[1..].iter_mut().zip(bytes.chunks(4)) {
        let mut le = [0; 4];
        le[..four.len()].copy_from_slice(four);
        *word = u32::from_le_bytes(le);
    }
}

/// The bytes of a text field, put into `buffer`; none if the length is more than the field or the buffer holds.
pub(crate) fn text_bytes<'b>(words: &[u32], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let (&len, words) = words.split_first()?;
    let len = len as usize;
    if len > words.len() * 4 || len > buffer.len() {
        return None;
    }
    for (four, word) in buffer[..len].chunks_mut(4).zip(words) {
        four.copy_from_slice(&word.to_le_bytes()[..four.len()]);
    }
    Some(&buffer[..len])
}

/// The words of a field of at most `cap` bytes: like those of text, without being text.
///
/// # Errors
/// [`Problem::TooLong`].
pub fn put_blob(bytes: &[u8], cap: u32, out: &mut [u32]) -> Result<(), Problem> {
    if bytes.len() > cap as usize {
        return Err(Problem::TooLong { len: bytes.len(), cap });
    }
    put_bytes(bytes, out);
    Ok(())
}

/// Rounds to the nearest whole number, halves away from zero, without a call into libm.
#[inline]
fn round(x: f64) -> i64 {
    (x + if x < 0.0 { -0.5 } else { 0.5 }) as i64
}
