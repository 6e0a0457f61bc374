//! Prefix codes for what a guess was off by: a family of fixed tables, of which the sender names the one that fits.
//!
//! A difference becomes a number z (zigzag: 0, −1, 1, −2, 2 … are 0, 1, 2, 3, 4 …), and z a **token** and some bits of its own:
//!
//! | token | stands for | followed by |
//! |---|---|---|
//! | 0 to 15 | z itself | nothing |
//! | 16 + 2(n − 4) + b, n from 4 to 31 | z with n + 1 bits, the second highest of which is b | the n − 1 lower bits |
//! | 72 | none of these: what follows is the value itself | the absolute form of the field |
//!
//! A **table** is a canonical prefix code of these tokens, none longer than 10 bits. A token that is worth no code has none; where it
//! would be needed, token 72 is written and the value itself. Lengths follow from weights, which are those of a distribution of z with
//! a wider one mixed in, for what comes as a surprise: tables 0 to 41 of an exponential one with mean 0.15 · 1.6ⁱ and a twentieth of
//! one four times as wide; tables 42 to 47 of the positive half of a normal one with deviation 1.5 · 1.6ⁱ and a hundredth of an
//! exponential one four times as wide; tables 48 to 57 of a normal one with deviation 1.2 · 1.5ⁱ, a fifth of an exponential one 2.5
//! times and a twentieth of one 20 times as wide, i counted from the first of each. Tables 58 to 61 are for what is nearly right or
//! else anything: six tenths of an exponential one with mean 0.5, and the rest on all tokens below 26, 32, 40 or 52 alike. Table 62
//! has nothing but token 72, of no bits: every value is absolute. The lengths of all tables stand in `docs/codes.txt`, which is part
//! of the format. A session may have [trained](crate::trained) ones beside them.
//!
//! Codes are given out in ascending order of length, then token, counting up, as in RFC 1951, 3.2.2; they are written from their
//! *first* bit on, so that the reader finds them by looking a fixed number of bits ahead.

use std::sync::LazyLock;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter, unzigzag, zigzag};
use tidelock_netcore::limits;

/// Tokens of a table.
pub(crate) const TOKENS: usize = 73;
/// The token that the value itself follows.
pub(crate) const ESCAPE: usize = TOKENS - 1;
/// The longest code, in bits.
pub(crate) const LONGEST: u32 = 10;
/// Tables after an exponential distribution, the first ones.
const EXPONENTIAL: usize = 42;
/// Tables after a normal one, with a narrow and with a wide tail.
const NORMAL: usize = 6;
const TAILED: usize = 10;
/// Tables for what is either nearly right or off by anything: all tokens below these are as likely as each other, beside a spike.
const TOPS: [usize; 4] = [26, 32, 40, 52];
const SPIKE_MEAN: f64 = 0.5;
/// How much the spike has of all.
const SPIKE: f64 = 0.6;
/// The table in which every value is absolute.
pub(crate) const RAW: u8 = (EXPONENTIAL + NORMAL + TAILED + TOPS.len()) as u8;
/// How many tables there are.
pub(crate) const TABLES: usize = RAW as usize + 1;

const RATIO: f64 = 1.6;
const FIRST_MEAN: f64 = 0.15;

/// Tables after one kind of distribution, of rising width.
struct Family {
    tables: usize,
    normal: bool,
    /// Mean or deviation of the first, and of each next one as so many times that.
    first: f64,
    ratio: f64,
    /// Wider exponential distributions that are mixed in: how much of each, and how many times as wide it is.
    tails: &'static [(f64, f64)],
}

const FAMILIES: [Family; 3] = [
    Family { tables: EXPONENTIAL, normal: false, first: FIRST_MEAN, ratio: RATIO, tails: &[(0.05, 4.0)] },
    Family { tables: NORMAL, normal: true, first: 1.5, ratio: 1.6, tails: &[(0.01, 4.0)] },
    Family { tables: TAILED, normal: true, first: 1.2, ratio: 1.5, tails: &[(0.2, 2.5), (0.05, 20.0)] },
];
/// A token that is rarer has no code.
const RARE: f64 = 1e-4;
/// How often the escape is taken to come, and 0 at least.
const ESCAPES: f64 = 2e-3;
/// What stands for 1 in weights.
const ONE: f64 = 1e9;

/// Small numbers have their code and their own bits in one look.
const SMALL: usize = 256;
/// The most bits of one of them: the two highest bits of a number are in its token.
pub(crate) const SMALL_BITS: u32 = LONGEST + SMALL.ilog2() - 2;

static TABLE: LazyLock<Vec<Table>> = LazyLock::new(|| (0..TABLES).map(|i| Table::new(&lengths(i))).collect());

/// A fixed table by its number, below [`TABLES`].
#[inline]
pub(crate) fn table(index: u8) -> &'static Table {
    &TABLE[usize::from(index)]
}

/// The number of the first trained table of a session: it has up to [`limits::TABLES`] of them beside the fixed ones.
pub(crate) const TRAINED: u8 = 64;
const _: () = assert!(TABLES < TRAINED as usize && limits::TABLES <= 64);

/// Bits of the number of a trained table, of so many.
pub(crate) fn number_bits(trained: usize) -> u32 {
    usize::BITS - trained.saturating_sub(1).leading_zeros()
}

/// The tables of the fields of a component that have one, by number, and the session's trained ones.
#[derive(Clone, Copy)]
pub(crate) struct Chosen<'a> {
    pub(crate) indices: &'a [u8],
    trained: &'a [Table],
}

impl<'a> Chosen<'a> {
    /// All of these are fixed ones.
    #[inline]
    pub(crate) fn fixed(indices: &'a [u8]) -> Self {
        Self { indices, trained: &[] }
    }

    #[inline]
    pub(crate) fn among(indices: &'a [u8], trained: &'a [Table]) -> Self {
        Self { indices, trained }
    }

    /// That of the first field, if there is one left, and those of the fields after it.
    #[inline]
    pub(crate) fn next(self) -> Option<(&'a Table, Self)> {
        let (first, rest) = self.indices.split_first()?;
        Some((self.look_up(*first), Self { indices: rest, trained: self.trained }))
    }

    /// That of a field.
    #[inline]
    pub(crate) fn of(self, field: usize) -> &'a Table {
        self.look_up(self.indices[field])
    }

    #[inline]
    fn look_up(self, index: u8) -> &'a Table {
        // whoever reads a number compares it with how many there are
        if index < TRAINED { table(index) } else { &self.trained[usize::from(index - TRAINED)] }
    }
}

/// The exponential table for differences whose z is about `mean`.
pub(crate) fn for_mean(mean: f64) -> u8 {
    let (mut index, mut next) = (0u8, FIRST_MEAN * RATIO);
    // half way to the next, in ratio: √1.6
    while usize::from(index) + 1 < EXPONENTIAL && mean > next / 1.264_911_064 {
        index += 1;
        next *= RATIO;
    }
    index
}

/// One code.
pub(crate) struct Table {
    /// By z: code and own bits in the low 24 bits, their number above.
    small: [u32; SMALL],
    /// By token: code, and its length.
    codes: [(u16, u8); TOKENS],
    /// By the next [`LONGEST`] bits.
    look: Box<[Seen; 1 << LONGEST]>,
    /// By token: code length and own bits; of one without a code those of the escape.
    pub(crate) cost: [u8; TOKENS],
    /// Bit t: of token t the value itself follows.
    pub(crate) absolute: u128,
}

/// What stands at the front of some bits, in half a word, so that tables stay near at hand. A difference that is all within the bits that
/// are looked at: from bit 0 up, how many it takes; from bit 5, itself. Of others, bit 4, and from bit 5 up the token.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen(u16);

impl Seen {
    /// The difference is not all in what was looked at, or it is the escape.
    const LONG: u16 = 1 << 4;

    /// A token with a code of `len` bits; `behind`: as many bits behind that as are looked at.
    fn new(token: usize, len: u8, behind: u64) -> Self {
        let long = Self((token as u16) << 5 | Self::LONG);
        if token == ESCAPE {
            return long;
        }
        let ((low, own), len) = (meaning(token), u32::from(len));
        if len + own > LONGEST {
            return long;
        }
        let by = unzigzag(low + (behind & ((1 << own) - 1)));
        Self((by as u16) << 5 | (len + own) as u16)
    }

    /// Zero if all of these are short differences, as most are.
    #[inline]
    pub(crate) fn long(self) -> u16 {
        self.0 & Self::LONG
    }

    /// How many bits a short difference takes.
    #[inline]
    pub(crate) fn bits(self) -> u32 {
        u32::from(self.0 & 15)
    }

    /// A short difference.
    #[inline]
    pub(crate) fn by(self) -> i32 {
        i32::from(self.0 as i16 >> 5)
    }
}
// a short one has fewer than 10 bits of its own, so that z has 11, and a bit of them is the sign
const _: () = assert!(LONGEST < 16 && LONGEST < u16::BITS - 5 && TOKENS < 1 << 11);

impl Table {
    /// From code lengths that make a complete code, in which the escape has its part.
    pub(crate) fn new(lengths: &[u8; TOKENS]) -> Self {
        let codes = canonical(lengths);
        let (cost, absolute) = ([lengths[ESCAPE]; TOKENS], 0);
        let mut table = Self { small: [0; SMALL], codes, look: Box::new([Seen::default(); 1 << LONGEST]), cost, absolute };
        for (token, &(code, len)) in codes.iter().enumerate() {
            if len == 0 || token == ESCAPE {
                table.absolute |= 1 << token;
            }
            if len == 0 && token != ESCAPE {
                continue; // the escape stands for it
            }
            table.cost[token] = len + own_bits(token) as u8;
            let step = 1usize << len;
            for at in (usize::from(code)..1 << LONGEST).step_by(step) {
                table.look[at] = Seen::new(token, len, at as u64 >> len);
            }
        }
        for z in 0..SMALL {
            let (token, own, bits) = token(z as u64);
            let (code, len) = codes[token];
            if len == 0 {
                continue;
            }
            table.small[z] = u32::from(code) | (bits as u32) << len | (u32::from(len) + own) << 24;
        }
        table
    }

    /// Writes z. `false`: it has no token here, and the escape was written instead.
    #[inline]
    pub(crate) fn put(&self, z: u64, w: &mut BitWriter) -> bool {
        if z < SMALL as u64 {
            let entry = self.small[z as usize];
            // where a token has no code there is nothing
            if entry != 0 {
                w.put(u64::from(entry & 0xff_ffff), entry >> 24);
                return true;
            }
        }
        let (token, own, bits) = token(z);
        let (code, len) = self.codes[token];
        if token == ESCAPE || len == 0 {
            self.put_escape(w);
            return false;
        }
        w.put(u64::from(code) | bits << len, u32::from(len) + own);
        true
    }

    /// Code and own bits of a small z, and how many these are, at most 16; none at all where there is more to it.
    #[inline]
    pub(crate) fn small(&self, z: u64) -> (u64, u32) {
        let entry = if z < SMALL as u64 { self.small[z as usize] } else { 0 };
        ((entry & 0xff_ffff).into(), entry >> 24)
    }

    /// Code and own bits of any z, and how many these are; none at all if it has no token here but the escape.
    #[inline]
    pub(crate) fn whole(&self, z: u64) -> (u64, u32) {
        let small = self.small(z);
        if small.1 > 0 {
            return small;
        }
        let (token, own, bits) = token(z);
        let (code, len) = self.codes[token];
        if token == ESCAPE || len == 0 { (0, 0) } else { (u64::from(code) | bits << len, u32::from(len) + own) }
    }

    /// What stands at the front of some bits, at least [`LONGEST`] of them.
    #[inline]
    pub(crate) fn see(&self, ahead: u64) -> Seen {
        self.look[(ahead & ((1 << LONGEST) - 1)) as usize]
    }

    /// The difference at the front of some bits, and how many it takes; `None` in its place: the escape.
    #[inline]
    pub(crate) fn find(&self, ahead: u64) -> (Option<i64>, u32) {
        let seen = self.see(ahead);
        if seen.long() == 0 {
            return (Some(seen.by().into()), seen.bits());
        }
        let token = usize::from(seen.0 >> 5);
        let len = u32::from(self.codes[token].1);
        if token == ESCAPE {
            return (None, len);
        }
        let (low, own) = meaning(token);
        (Some(unzigzag(low + (ahead >> len & ((1 << own) - 1)))), len + own)
    }

    /// Has z a token here, but for the escape?
    #[inline]
    pub(crate) fn has(&self, z: u64) -> bool {
        self.codes[token(z).0].1 > 0 && z < 1 << 32
    }

    /// Writes the escape.
    #[inline]
    pub(crate) fn put_escape(&self, w: &mut BitWriter) {
        let (code, len) = self.codes[ESCAPE];
        w.put(u64::from(code), u32::from(len));
    }

    /// Reads z; `None`: the value itself follows.
    #[inline]
    pub(crate) fn get(&self, r: &mut BitReader<'_>) -> Result<Option<u64>, BitError> {
        let ahead = r.look();
        let (by, bits) = self.find(ahead);
        r.skip(bits)?;
        Ok(by.map(zigzag))
    }
}

/// A number's token, how many bits follow it, and these.
#[inline]
pub(crate) fn token(z: u64) -> (usize, u32, u64) {
    if z < 16 {
        return (z as usize, 0, 0);
    }
    let n = z.ilog2();
    if n > 31 {
        return (ESCAPE, 0, 0);
    }
    (16 + 2 * (n as usize - 4) + (z >> (n - 1) & 1) as usize, n - 1, z & ((1 << (n - 1)) - 1))
}

/// The least number of a token but the escape, and how many bits follow it.
#[inline]
fn meaning(token: usize) -> (u64, u32) {
    if token < 16 {
        return (token as u64, 0);
    }
    let n = ((token - 16) / 2 + 4) as u32;
    (1 << n | ((token as u64 - 16) & 1) << (n - 1), n - 1)
}

/// How many bits follow a token.
pub(crate) fn own_bits(token: usize) -> u32 {
    if token == ESCAPE { 0 } else { meaning(token).1 }
}

/// The code lengths of a table, by token.
pub(crate) fn lengths(index: usize) -> [u8; TOKENS] {
    let mut lengths = [0; TOKENS];
    let mut step = index;
    for family in &FAMILIES {
        if step < family.tables {
            shortest(&symbols(&family.shares(step)), &mut lengths);
            return lengths;
        }
        step -= family.tables;
    }
    // the raw one has none
    if let Some(top) = TOPS.get(step) {
        let mut all = shares(|token| exponential(token, SPIKE_MEAN));
        for (token, share) in all.iter_mut().enumerate() {
            let even = if token < *top { 1.0 / *top as f64 } else { 0.0 };
            *share = *share * SPIKE + even * (1.0 - SPIKE);
        }
        shortest(&symbols(&all), &mut lengths);
    }
    lengths
}

/// The tokens that are common enough for a code, and the escape, with their weights.
fn symbols(shares: &[f64; ESCAPE]) -> Vec<(u64, usize)> {
    let weight = |share: f64| (share * ONE) as u64;
    let mut symbols = vec![(weight(ESCAPES), ESCAPE)];
    // what has not changed at all is common whatever the others do
    symbols.push((weight(shares[0].max(ESCAPES)), 0));
    let others = shares.iter().enumerate().skip(1).filter(|(_, share)| **share > RARE);
    symbols.extend(others.map(|(token, share)| (weight(*share), token)));
    symbols
}

impl Family {
    /// How much each token but the escape has of all in one of its tables.
    fn shares(&self, step: usize) -> [f64; ESCAPE] {
        let mut scale = self.first;
        (0..step).for_each(|_| scale *= self.ratio);
        let mut all = shares(|token| if self.normal { normal(token, scale) } else { exponential(token, scale) });
        let tails: f64 = self.tails.iter().map(|tail| tail.0).sum();
        all.iter_mut().for_each(|share| *share *= 1.0 - tails);
        for (part, reach) in self.tails {
            let tail = shares(|token| exponential(token, scale * reach));
            all.iter_mut().zip(tail).for_each(|(share, tail)| *share += part * tail);
        }
        all
    }
}

/// What is given of each token but the escape, as shares of all of it.
fn shares(of: impl Fn(usize) -> f64) -> [f64; ESCAPE] {
    let weights: [f64; ESCAPE] = std::array::from_fn(of);
    let sum: f64 = weights.iter().sum();
    weights.map(|weight| weight / sum)
}

/// The part of the numbers of a token in the positive half of a normal distribution, taken in their middle.
fn normal(token: usize, deviation: f64) -> f64 {
    let (low, own) = meaning(token);
    let width = (1u64 << own) as f64;
    let middle = (low as f64 + (width - 1.0) / 2.0) / deviation;
    width / deviation * decay(middle * middle / 2.0)
}

/// The part of the numbers of a token in a geometric distribution on whole numbers: q to the power of the lowest, less that of what
/// comes after.
fn exponential(token: usize, mean: f64) -> f64 {
    let (low, own) = meaning(token);
    let q = mean / (1.0 + mean);
    power(q, low) - power(q, low + (1 << own))
}

/// e to the power of −x, close enough, with operations that come out the same on every machine.
fn decay(x: f64) -> f64 {
    const HALVINGS: u32 = 12;
    let part = x / f64::from(1u32 << HALVINGS);
    let mut y = 1.0 / (1.0 + part + part * part / 2.0);
    (0..HALVINGS).for_each(|_| y *= y);
    y
}

fn power(q: f64, mut exponent: u64) -> f64 {
    let (mut y, mut square) = (1.0, q);
    while exponent > 0 {
        if exponent & 1 == 1 {
            y *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    y
}

/// The lengths of the best prefix code of at most [`LONGEST`] bits, by merging packages: in each of so many rounds, what there is
/// (lightest first) is paired, and the pairs join the symbols. A symbol's length is how often it is in the lightest 2n − 2 packages
/// of the last round. At least two symbols, at most [`TOKENS`].
pub(crate) fn shortest(symbols: &[(u64, usize)], lengths: &mut [u8; TOKENS]) {
    let mut singles: Vec<Package> = symbols.iter().map(|&(weight, token)| Package::of(weight, token)).collect();
    singles.sort_by_key(|package| package.weight); // stable: of equals the first
    let mut packages = singles.clone();
    for _ in 1..LONGEST {
        let pairs = packages.chunks_exact(2).map(|pair| pair[0].with(&pair[1]));
        let mut next: Vec<Package> = singles.iter().cloned().chain(pairs).collect();
        next.sort_by_key(|package| package.weight);
        packages = next;
    }
    for package in &packages[..2 * symbols.len() - 2] {
        lengths.iter_mut().zip(&package.times).for_each(|(length, times)| *length += times);
    }
}

#[derive(Clone)]
struct Package {
    weight: u64,
    times: [u8; TOKENS],
}

impl Package {
    fn of(weight: u64, token: usize) -> Self {
        let mut times = [0; TOKENS];
        times[token] = 1;
        Self { weight, times }
    }

    fn with(&self, other: &Self) -> Self {
        Self { weight: self.weight + other.weight, times: std::array::from_fn(|i| self.times[i] + other.times[i]) }
    }
}

/// Codes by length, then token; turned round, so that the first bit is the lowest.
fn canonical(lengths: &[u8; TOKENS]) -> [(u16, u8); TOKENS] {
    let mut order: Vec<usize> = (0..TOKENS).filter(|t| lengths[*t] > 0).collect();
    order.sort_by_key(|t| (lengths[*t], *t));
    let mut codes = [(0, 0); TOKENS];
    let (mut code, mut before) = (0u16, 0);
    for token in order {
        let len = lengths[token];
        code <<= len - before;
        before = len;
        codes[token] = (code.reverse_bits() >> (16 - len), len);
        code += 1;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn every_number_comes_back_from_every_table() {
        let edges = (0..40u32).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + 1, 3 << n]);
        for z in (0..600).chain(edges) {
            for index in 0..TABLES as u8 {
                let mut w = BitWriter::new();
                let said = table(index).put(z, &mut w);
                let cost = table(index).cost[if said { token(z).0 } else { ESCAPE }];
                assert_eq!(w.len(), usize::from(cost), "z {z} table {index}");
                let bytes = w.to_bytes();
                let read = table(index).get(&mut BitReader::new(&bytes)).unwrap();
                assert_eq!(read, said.then_some(z), "table {index}");
                let has = lengths(index.into())[token(z).0] > 0;
                assert_eq!(said, has && token(z).0 != ESCAPE, "z {z} table {index}");
            }
        }
    }

    #[test]
    fn codes_use_every_bit_and_none_twice() {
        for index in 0..usize::from(RAW) {
            let lengths = lengths(index);
            let sum: u32 = lengths.iter().filter(|l| **l > 0).map(|l| 1 << (LONGEST - u32::from(*l))).sum();
            assert_eq!(sum, 1 << LONGEST, "table {index}");
            assert!(lengths[0] > 0 && lengths[ESCAPE] > 0, "table {index}");
        }
        assert_eq!(lengths(RAW.into()), [0; TOKENS]);
    }

    #[test]
    fn a_table_fits_its_mean() {
        for (mean, index) in [(0.0, 0), (0.15, 0), (0.24, 1), (1e12, EXPONENTIAL as u8 - 1)] {
            assert_eq!(for_mean(mean), index, "mean {mean}");
        }
    }

    /// The format, in words that a second implementation can take from the page. What the page should say is printed where it says
    /// something else.
    #[test]
    fn the_lengths_are_those_of_the_page() {
        let mut page = String::from("Code lengths of the 73 tokens, one table a line: `length*times` one after the other.\n");
        for index in 0..TABLES {
            let mut line = format!("{index}:");
            for run in lengths(index).chunk_by(|a, b| a == b) {
                write!(line, " {}*{}", run[0], run.len()).unwrap();
            }
            page.push_str(&line);
            page.push('\n');
        }
        assert_eq!(include_str!("../../docs/codes.txt").replace('\r', ""), page);
    }
}
