//! Directions as points of an octahedron.

use super::{Problem, round};

/// Least and most bits of each of the two words of a direction.
pub const NORMAL_BITS: std::ops::RangeInclusive<u32> = 4..=16;

/// A direction (x, y, z; any length but zero) as two words: the nearest point of whole numbers on the octahedron
/// |x| + |y| + |z| = h, h = 2^(bits−1) − 1, unfolded into a square, and both moved up by h.
///
/// The upper half (z ≥ 0) is (x, y). The lower one is folded out over its four edges: (±(h − |y|), ±(h − |x|)) with the signs of x
/// and y, where 0 counts as positive. So each point has one pair of words. What comes back is off by at most 2.2 / h radians: 0.25
/// degrees with 10 bits, 0.98 with 8.
///
/// # Errors
/// [`Problem::NotFinite`] or [`Problem::ZeroNormal`].
pub fn normal_words(direction: [f32; 3], bits: u32) -> Result<[u32; 2], Problem> {
    let [x, y, z] = direction.map(f64::from);
    let sum = x.abs() + y.abs() + z.abs();
    if !sum.is_finite() {
        return Err(Problem::NotFinite);
    }
    if sum == 0.0 {
        return Err(Problem::ZeroNormal);
    }
    let h = half(bits);
    let scale = h as f64 / sum;
    let (mut u, mut v) = (round(x * scale), round(y * scale));
    // two halves that were both rounded up
    while u.abs() + v.abs() > h {
        if u.abs() >= v.abs() { u -= u.signum() } else { v -= v.signum() }
    }
    if z < 0.0 && u.abs() + v.abs() < h {
        (u, v) = fold(u, v, h);
    }
    Ok([(u + h) as u32, (v + h) as u32])
}

/// The direction of length 1 that canonical words stand for.
#[must_use]
pub fn normal_value(words: [u32; 2], bits: u32) -> [f32; 3] {
    let h = half(bits);
    let [mut x, mut y] = words.map(|word| i64::from(word) - h);
    let z = h - x.abs() - y.abs();
    if z < 0 {
        (x, y) = fold(x, y, h);
    }
    let length = ((x * x + y * y + z * z) as f64).sqrt();
    [x, y, z].map(|part| (part as f64 / length) as f32)
}

/// Could [`normal_words`] have made these words?
#[inline]
#[must_use]
pub fn normal_is_canonical(words: [u32; 2], bits: u32) -> bool {
    let h = half(bits);
    if words.iter().any(|word| i64::from(*word) > 2 * h) {
        return false;
    }
    let [u, v] = words.map(|word| i64::from(word) - h);
    // in the lower half, where a part is 0 its sign is positive
    u.abs() + v.abs() <= h || !(v.abs() == h && u < 0 || u.abs() == h && v < 0)
}

const fn half(bits: u32) -> i64 {
    (1 << (bits - 1)) - 1
}

/// Between the inner and the outer part of the square, either way.
#[inline]
fn fold(u: i64, v: i64, h: i64) -> (i64, i64) {
    let sign = |of: i64| if of < 0 { -1 } else { 1 };
    (sign(u) * (h - v.abs()), sign(v) * (h - u.abs()))
}
