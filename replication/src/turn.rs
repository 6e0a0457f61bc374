//! A rotation that turns on as it has turned: many at a time, since each alone waits most of its time for square roots.
//!
//! The words of so many rotations lie side by side ([`Words`]), and every step is taken for all of them before the next, without a
//! branch: the compiler makes instructions of it that work on several. Each lane computes what one alone would, in the same order,
//! so how many there are shows nowhere but in the time.

#![expect(clippy::needless_range_loop, reason = "what is done with each lane is one line for all of its words")]

use crate::block::bits as ones;

/// So many at a time: a block of 64 rows in which a tenth moves has six or seven.
const LANES: usize = 8;

/// One of the four words of `L` rotations.
type Words<const L: usize> = [[u32; L]; 4];
type Parts<const L: usize> = [[f64; L]; 4];

/// All ones or all zeros.
#[inline(always)]
fn mask(is: bool) -> u64 {
    u64::from(is).wrapping_neg()
}

/// One of two numbers, without a branch.
#[inline(always)]
fn pick(mask: u64, a: f64, b: f64) -> f64 {
    f64::from_bits(a.to_bits() & mask | b.to_bits() & !mask)
}

/// With the other sign where the highest bit says so.
#[inline(always)]
fn flip(sign: u64, value: f64) -> f64 {
    f64::from_bits(value.to_bits() ^ sign)
}

/// The four parts in units of 1 ÷ (√2·h): those that are sent, and the largest where it stands.
#[inline(always)]
fn parts<const L: usize>(words: &Words<L>, h: f64) -> Parts<L> {
    let mut parts = [[0.0; L]; 4];
    for n in 0..L {
        // words are far below 2³¹, and to `f64` from `i32` is an instruction
        let [l, a, b, c] = [0, 1, 2, 3].map(|i| f64::from(words[i][n] as i32));
        let (a, b, c) = (a - h, b - h, c - h);
        let largest = (2.0 * h * h - a * a - b * b - c * c).max(0.0).sqrt();
        let (first, second, third) = (mask(l < 0.5), mask(l < 1.5), mask(l < 2.5));
        parts[0][n] = pick(first, largest, a);
        parts[1][n] = pick(first, a, pick(second, largest, b));
        parts[2][n] = pick(second, b, pick(third, largest, c));
        parts[3][n] = pick(third, c, largest);
    }
    parts
}

/// Where each goes on to: 2(b·o)b − o, with the sign of o that makes b·o positive.
#[inline(always)]
fn ahead<const L: usize>(o: &Parts<L>, b: &Parts<L>, h: f64) -> Parts<L> {
    let mut next = [[0.0; L]; 4];
    for n in 0..L {
        let dot = o[0][n] * b[0][n] + o[1][n] * b[1][n] + o[2][n] * b[2][n] + o[3][n] * b[3][n];
        let (factor, sign) = (dot.abs() / (h * h), mask(dot < 0.0) << 63);
        for i in 0..4 {
            next[i][n] = factor * b[i][n] - flip(sign, o[i][n]);
        }
    }
    next
}

/// The words of what has those parts: the first of the largest is left out, and made positive.
#[inline(always)]
fn words<const L: usize>(parts: &Parts<L>, h: f64, words: &mut Words<L>) {
    let most = 2.0 * h;
    for n in 0..L {
        let (mut largest, mut at) = (parts[0][n], 0.0);
        for i in 1..4 {
            let larger = mask(parts[i][n].abs() > largest.abs());
            (largest, at) = (pick(larger, parts[i][n], largest), pick(larger, i as f64, at));
        }
        let (first, second, third) = (mask(at < 0.5), mask(at < 1.5), mask(at < 2.5));
        let sign = mask(largest < 0.0) << 63;
        let word = |part: f64| {
            let near = flip(sign, part) + h + 0.5;
            let low = pick(mask(near > 0.0), near, 0.0);
            // a cast rounds towards zero
            pick(mask(low < most), low, most) as i32 as u32
        };
        words[0][n] = at as i32 as u32;
        words[1][n] = word(pick(first, parts[1][n], parts[0][n]));
        words[2][n] = word(pick(second, parts[2][n], parts[1][n]));
        words[3][n] = word(pick(third, parts[3][n], parts[2][n]));
    }
}

#[inline]
fn turn<const L: usize>(older: &Words<L>, value: &mut Words<L>, bits: u32) {
    let h = f64::from((1u32 << (bits - 1)) - 1);
    let (o, b) = (parts(older, h), parts(value, h));
    words(&ahead(&o, &b, h), h, value);
}

/// Goes on turning as between two rotations' words: `value` is the later one, and becomes the next.
pub(crate) fn turn_on(older: &[u32], value: &mut [u32], bits: u32) {
    let mut next = [0, 1, 2, 3].map(|i| [value[i]]);
    turn(&[0, 1, 2, 3].map(|i| [older[i]]), &mut next, bits);
    value[..4].copy_from_slice(next.as_flattened());
}

/// The same for some rows of 64 rotations.
pub(crate) fn turn_rows_on(rows: u64, older: &[u32], values: &mut [u32], bits: u32) {
    let (mut left, mut places) = (rows, [0; LANES]);
    let (mut o, mut b) = ([[0; LANES]; 4], [[0; LANES]; 4]);
    while left != 0 {
        let mut count = 0;
        for bit in ones(left).take(LANES) {
            let at = bit as usize * 4;
            let (from, to): (&[u32; 4], &[u32; 4]) = (four(older, at), four(values, at));
            for i in 0..4 {
                (o[i][count], b[i][count]) = (from[i], to[i]);
            }
            places[count] = at;
            count += 1;
            left &= left - 1;
        }
        // what is in the lanes beyond is of the time before, and nobody asks
        turn(&o, &mut b, bits);
        for (n, at) in places[..count].iter().enumerate() {
            values[*at..*at + 4].copy_from_slice(&[b[0][n], b[1][n], b[2][n], b[3][n]]);
        }
    }
}

#[inline]
fn four(words: &[u32], at: usize) -> &[u32; 4] {
    words[at..].first_chunk().expect("a rotation has four words")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::quat_words;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng as _, SeedableRng};

    fn drawn(bits: u32, rng: &mut Pcg64Mcg) -> [u32; 4] {
        quat_words([0; 4].map(|_| (rng.next_u64() % 2001) as f32 - 1000.5), bits).unwrap()
    }

    /// The formula of `forecast`, one number after the other.
    fn spelt_out(older: [u32; 4], value: [u32; 4], bits: u32) -> [u32; 4] {
        let h = f64::from((1u32 << (bits - 1)) - 1);
        let parts = |words: [u32; 4]| {
            let sent = [f64::from(words[1]) - h, f64::from(words[2]) - h, f64::from(words[3]) - h];
            let rest = 2.0 * h * h - sent[0] * sent[0] - sent[1] * sent[1] - sent[2] * sent[2];
            let mut parts = sent.to_vec();
            parts.insert(words[0] as usize, if rest > 0.0 { rest.sqrt() } else { 0.0 });
            parts
        };
        let (o, b) = (parts(older), parts(value));
        let dot = o[0] * b[0] + o[1] * b[1] + o[2] * b[2] + o[3] * b[3];
        let sign = if dot < 0.0 { -1.0 } else { 1.0 };
        let mut next: Vec<f64> = (0..4).map(|i| dot.abs() / (h * h) * b[i] - sign * o[i]).collect();
        let largest = (1..4).fold(0, |at, i| if next[i].abs() > next[at].abs() { i } else { at });
        let sign = if next.remove(largest) < 0.0 { -1.0 } else { 1.0 };
        let word = |part: f64| (part * sign + h + 0.5).clamp(0.0, 2.0 * h) as u32;
        [largest as u32, word(next[0]), word(next[1]), word(next[2])]
    }

    /// Two versions that guessed differently would drift apart, and nobody would notice where both ends have the same.
    #[test]
    fn each_turns_on_as_the_formula_says() {
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        let (mut largest, mut backwards) = ([0; 4], 0);
        for bits in [2, 3, 9, 10, 12, 16] {
            for round in 0..4000 {
                let value = if round % 50 == 0 { [0; 4] } else { drawn(bits, &mut rng) };
                let mut older = if round % 70 == 0 { [0; 4] } else { drawn(bits, &mut rng) };
                if round % 2 == 0 && round % 50 != 0 {
                    // not far from it, as most are
                    older = value;
                    older[1 + round % 3] ^= 1;
                }
                let (expected, mut next) = (spelt_out(older, value, bits), value);
                turn_on(&older, &mut next, bits);
                assert_eq!(next, expected, "{bits} bits: from {older:?} over {value:?}");
                largest[expected[0] as usize] += 1;
                backwards += u32::from(expected[0] != value[0]);
            }
        }
        assert!(largest.iter().all(|n| *n > 1000) && backwards > 1000, "{largest:?} {backwards}");
    }

    /// Whichever rows, and however many: each is what it would be alone, and the others stay.
    #[test]
    fn many_turn_on_as_each_alone() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for bits in [2, 9, 10, 16] {
            for round in 0..200 {
                let older: Vec<u32> = (0..64).flat_map(|_| drawn(bits, &mut rng)).collect();
                let values: Vec<u32> = (0..64).flat_map(|_| drawn(bits, &mut rng)).collect();
                let rows = if round == 0 { u64::MAX } else { rng.next_u64() & rng.next_u64() };
                let mut many = values.clone();
                turn_rows_on(rows, &older, &mut many, bits);
                for row in 0..64 {
                    let (at, mut single) = (row * 4, values[row * 4..row * 4 + 4].to_vec());
                    if rows >> row & 1 != 0 {
                        turn_on(&older[at..], &mut single, bits);
                    }
                    assert_eq!(many[at..at + 4], single, "{bits} bits, round {round}, row {row}");
                }
            }
        }
    }
}
