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

/// S: the value, from its base.
fn s(r: &mut Bits, order: u32, age: u64, bits: u32, base: u32) -> i64 {
    let k = order + age.max(1).ilog2().min(4);
    let mut n = 0;
    while n < 12 && r.bit() {
        n += 1;
    }
    if n == 12 {
        return r.number(bits) as i64;
    }
    let v = r.golomb_after(n, k) as i64;
    i64::from(base) + if v % 2 == 0 { v / 2 } else { -(v + 1) / 2 }
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
        FieldCode::Text { cap } => {
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
        FieldCode::Number { max, order } => vec![s(r, order, age, b(max), base[0]) as u32],
        FieldCode::Wrapping { bits } => vec![s(r, 4, age, bits, base[0]).rem_euclid(1 << bits) as u32],
        FieldCode::Choice { count: 1 | 2 } | FieldCode::Maybe { .. } => absolute(code, r),
        FieldCode::Quat { bits } => {
            if !r.bit() {
                return absolute(code, r);
            }
            let mut words = vec![base[0]];
            words.extend(base[1..].iter().map(|&old| s(r, 3, age, bits, old) as u32));
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
