//! A second decoder, written from the tables in the docs of `tidelock::layout` alone: slow, literal, bit by bit.

use tidelock::layout::FieldCode;

/// Bits in order, and how many were read.
pub(crate) struct Bits {
    pub(crate) bits: Vec<bool>,
    pub(crate) at: usize,
}

impl Bits {
    fn bit(&mut self) -> bool {
        self.at += 1;
        self.bits[self.at - 1]
    }

    fn number(&mut self, n: u32) -> u64 {
        (0..n).map(|i| u64::from(self.bit()) << i).sum()
    }

    /// What follows the ones: q − 2^n in n bits, v mod 2^k in k bits.
    fn golomb_after(&mut self, n: u32, k: u32) -> u64 {
        let q = (1u64 << n) + self.number(n);
        ((q - 1) << k) + self.number(k)
    }
}

/// B(m)
fn b(m: u32) -> u32 {
    if m == 0 { 0 } else { m.ilog2() + 1 }
}

/// The lengths of the codes of a table, from the page that is part of the format.
fn lengths(table: usize) -> Vec<u32> {
    let line = include_str!("../../../docs/codes.txt").lines().nth(1 + table).expect("a line for each table");
    let runs = line.split(' ').skip(1).map(|run| run.split_once('*').expect("length and times"));
    runs.flat_map(|(length, times)| vec![length.parse().unwrap(); times.parse().unwrap()]).collect()
}

/// The token that is next, found by counting codes up length by length.
fn token(r: &mut Bits, table: usize) -> usize {
    let lengths = lengths(table);
    let (mut code, mut first) = (0, 0);
    for length in 1.. {
        code = 2 * code + r.number(1);
        first *= 2;
        let tokens: Vec<usize> = (0..73).filter(|t| lengths[*t] == length).collect();
        if code - first < tokens.len() as u64 {
            return tokens[(code - first) as usize];
        }
        first += tokens.len() as u64;
    }
    unreachable!()
}

/// S: the difference, or none after the token 72.
fn s(r: &mut Bits, order: u32, age: u64) -> Option<i64> {
    let m = 1.5 * f64::from(1 << (order + age.max(1).ilog2().min(4)));
    let table = (1..42).filter(|i| m > 0.15 * 1.6f64.powf(f64::from(*i) - 0.5)).max().unwrap_or(0);
    let v = match token(r, table as usize) {
        72 => return None,
        t if t < 16 => t as i64,
        t => {
            let (n, b) = ((t - 16) / 2 + 4, (t - 16) % 2);
            (1i64 << n) + ((b as i64) << (n - 1)) + r.number(n as u32 - 1) as i64
        }
    };
    Some(if v % 2 == 0 { v / 2 } else { -(v + 1) / 2 })
}

fn split(v: u64) -> Vec<u32> {
    vec![v as u32, (v >> 32) as u32]
}

fn absolute(code: FieldCode, r: &mut Bits) -> Vec<u32> {
    match code {
        FieldCode::Number { max, .. } => vec![r.number(b(max)) as u32],
        FieldCode::Wide => split(r.number(64)),
        FieldCode::Wrapping { bits } => vec![r.number(bits) as u32],
        FieldCode::Choice { count } => vec![r.number(b(count - 1)) as u32],
        FieldCode::Float => vec![r.number(32) as u32],
        FieldCode::Quat { bits } => vec![2, bits, bits, bits].into_iter().map(|n| r.number(n) as u32).collect(),
        FieldCode::Text { cap } | FieldCode::Bytes { cap } => {
            let len = r.number(b(cap)) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| r.number(8) as u8).collect();
            bytes.resize((cap as usize).div_ceil(4) * 4, 0);
            let mut words = vec![len as u32];
            words.extend(bytes.chunks(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])));
            words
        }
        FieldCode::Entity => {
            let mut n = 0;
            while r.bit() {
                n += 1;
            }
            split(r.golomb_after(n, 8))
        }
        FieldCode::Maybe { .. } => vec![r.number(1) as u32],
    }
}

fn difference(code: FieldCode, base: &[u32], age: u64, r: &mut Bits) -> Vec<u32> {
    match code {
        FieldCode::Number { order, .. } => match s(r, order, age) {
            Some(d) => vec![(i64::from(base[0]) + d) as u32],
            None => absolute(code, r),
        },
        FieldCode::Wrapping { bits } => match s(r, 4, age) {
            Some(d) => vec![(i64::from(base[0]) + d).rem_euclid(1 << bits) as u32],
            None => absolute(code, r),
        },
        FieldCode::Choice { count: 1 | 2 } | FieldCode::Maybe { .. } => absolute(code, r),
        FieldCode::Quat { .. } => {
            let Some(first) = s(r, 3, age) else { return absolute(code, r) };
            let mut words = vec![base[0], (i64::from(base[1]) + first) as u32];
            words.extend(base[2..].iter().map(|&old| (i64::from(old) + s(r, 3, age).expect("no 72 here")) as u32));
            words
        }
        _ if r.bit() => base.to_vec(),
        _ => absolute(code, r),
    }
}

/// The words of one value.
pub(crate) fn decode(codes: &[FieldCode], base: Option<&[u32]>, age: u64, r: &mut Bits) -> Vec<u32> {
    let mut words: Vec<u32> = Vec::new();
    let mut i = 0;
    let mut without_base = 0..0;
    while i < codes.len() {
        let (code, at) = (codes[i], words.len());
        let old = base.filter(|_| !without_base.contains(&i)).map(|b| &b[at..at + code.words()]);
        words.extend(match old {
            Some(old) => difference(code, old, age, r),
            None => absolute(code, r),
        });
        i += 1;
        if let FieldCode::Maybe { fields } = code {
            let inner = i..i + fields as usize;
            if words[at] == 0 {
                words.extend(codes[inner.clone()].iter().flat_map(|c| vec![0; c.words()]));
                i = inner.end;
            } else if old.is_some_and(|old| old[0] == 0) {
                without_base = inner;
            }
        }
    }
    words
}
