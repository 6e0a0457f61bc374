//! The values of many rows of a component at once.
//!
//! What is written and read is what [`codec`](crate::codec) says, value by value. But most components are a few numbers or a
//! rotation, and most of their differences are small; those go here without asking each field of each value what it is. Whatever
//! is out of the ordinary takes the way of a single value.

use crate::block::bits;
use crate::codec::{put_difference, surprise};
use crate::codes::{self, Chosen, Table};
use crate::field::quat_is_canonical;
use crate::layout::{FieldCode, Layout};
use crate::turn::turn_rows_on;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};

/// What all values of a layout are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// So many numbers, 1 to [`NUMBERS`].
    Numbers(usize),
    /// One rotation, of parts of so many bits.
    Rotation(u32),
    /// Anything else.
    Mixed,
}

/// More numbers than that go value by value: the codes of so many small differences fit a word of 64 bits, and are few enough to be unrolled.
const NUMBERS: usize = 4;
const _: () = assert!(NUMBERS as u32 * codes::SMALL_BITS <= u64::BITS);

/// Where a value stands in a writer: its first bit, and how many it has.
pub(crate) type Place = (u32, u16);

impl Pattern {
    pub(crate) fn of(codes: &[FieldCode]) -> Self {
        match *codes {
            [FieldCode::Quat { bits }] => Self::Rotation(bits),
            [] => Self::Mixed,
            _ if codes.len() <= NUMBERS && codes.iter().all(|code| matches!(code, FieldCode::Number { .. })) => {
                Self::Numbers(codes.len())
            }
            _ => Self::Mixed,
        }
    }
}

/// Writes some codes, each with its number of bits: in one go if they fit a word.
#[inline]
fn put_parts(parts: &[(u64, u32)], w: &mut BitWriter) {
    let (mut code, mut len) = (0, 0);
    for &(bits, count) in parts {
        if len + count > u64::BITS {
            w.put(code, len);
            (code, len) = (0, 0);
        }
        code |= bits << len;
        len += count;
    }
    w.put(code, len);
}

impl Layout {
    /// Writes some rows of a block as [`write_with`](Layout::write_with) does, and notes where each of them stands. `values` and
    /// `guesses`: of all 64.
    pub(crate) fn write_rows(
        &self,
        rows: u64,
        values: &[u32],
        guesses: Option<&[u32]>,
        tables: Chosen<'_>,
        w: &mut BitWriter,
        places: &mut [Place],
    ) {
        match (self.pattern, guesses) {
            (Pattern::Numbers(1), Some(guesses)) => self.write_numbers::<1>(rows, values, guesses, tables, w, places),
            (Pattern::Numbers(2), Some(guesses)) => self.write_numbers::<2>(rows, values, guesses, tables, w, places),
            (Pattern::Numbers(3), Some(guesses)) => self.write_numbers::<3>(rows, values, guesses, tables, w, places),
            (Pattern::Numbers(4), Some(guesses)) => self.write_numbers::<4>(rows, values, guesses, tables, w, places),
            (Pattern::Rotation(_), Some(guesses)) => self.write_rotations(rows, values, guesses, tables, w, places),
            _ => {
                let words = self.words();
                for row in bits(rows).map(|bit| bit as usize) {
                    let (at, start) = (row * words, w.len());
                    let guess = guesses.map(|guesses| &guesses[at..at + words]);
                    self.write_with(&values[at..at + words], guess, tables, w);
                    places[row] = (start as u32, (w.len() - start) as u16);
                }
            }
        }
    }

    fn write_numbers<const N: usize>(
        &self,
        rows: u64,
        values: &[u32],
        guesses: &[u32],
        chosen: Chosen<'_>,
        w: &mut BitWriter,
        places: &mut [Place],
    ) {
        let tables: [&Table; N] = std::array::from_fn(|i| chosen.of(i));
        for row in bits(rows).map(|bit| bit as usize) {
            let (at, start) = (row * N, w.len());
            let (value, guess) = (&values[at..at + N], &guesses[at..at + N]);
            let mut parts = [(0, 0); N];
            let mut fits = true;
            for i in 0..N {
                parts[i] = tables[i].whole(surprise(self.codes[i], value[i], guess[i]));
                fits &= parts[i].1 > 0;
            }
            if fits {
                put_parts(&parts, w);
            } else {
                (0..N).for_each(|i| put_difference(self.codes[i], &value[i..=i], &guess[i..=i], tables[i], w));
            }
            places[row] = (start as u32, (w.len() - start) as u16);
        }
    }

    fn write_rotations(
        &self,
        rows: u64,
        values: &[u32],
        guesses: &[u32],
        tables: Chosen<'_>,
        w: &mut BitWriter,
        places: &mut [Place],
    ) {
        let (code, table) = (self.codes[0], tables.of(0));
        for row in bits(rows).map(|bit| bit as usize) {
            let (at, start) = (row * 4, w.len());
            let (value, guess) = (&values[at..at + 4], &guesses[at..at + 4]);
            // spelt out: the compiler makes a call of what is mapped over an array
            let off = |i: usize| table.whole(surprise(code, value[i], guess[i]));
            let (a, b, c) = (off(1), off(2), off(3));
            if value[0] == guess[0] && a.1 > 0 && b.1 > 0 && c.1 > 0 {
                put_parts(&[a, b, c], w);
            } else {
                put_difference(code, value, guess, table, w);
            }
            places[row] = (start as u32, (w.len() - start) as u16);
        }
    }

    /// Reads some rows of a block as [`read_with`](Layout::read_with) does, into `out`, one after the other. `guesses`: of all 64.
    pub(crate) fn read_rows(
        &self,
        rows: u64,
        guesses: Option<&[u32]>,
        tables: Chosen<'_>,
        r: &mut BitReader<'_>,
        out: &mut [u32],
    ) -> Result<(), BitError> {
        match (self.pattern, guesses) {
            (Pattern::Numbers(1), Some(guesses)) => self.read_numbers::<1>(rows, guesses, tables, r, out),
            (Pattern::Numbers(2), Some(guesses)) => self.read_numbers::<2>(rows, guesses, tables, r, out),
            (Pattern::Numbers(3), Some(guesses)) => self.read_numbers::<3>(rows, guesses, tables, r, out),
            (Pattern::Numbers(4), Some(guesses)) => self.read_numbers::<4>(rows, guesses, tables, r, out),
            (Pattern::Rotation(bits), Some(guesses)) => self.read_rotations(bits, rows, guesses, tables, r, out),
            _ => {
                let words = self.words();
                for (bit, value) in bits(rows).zip(out.chunks_exact_mut(words.max(1))) {
                    let at = bit as usize * words;
                    self.read_with(guesses.map(|guesses| &guesses[at..at + words]), tables, r, value)?;
                }
                Ok(())
            }
        }
    }

    fn read_numbers<const N: usize>(
        &self,
        rows: u64,
        guesses: &[u32],
        chosen: Chosen<'_>,
        r: &mut BitReader<'_>,
        out: &mut [u32],
    ) -> Result<(), BitError> {
        let tables: [&Table; N] = std::array::from_fn(|i| chosen.of(i));
        let most: [u64; N] = std::array::from_fn(|i| match self.codes[i] {
            FieldCode::Number { max, .. } => max.into(),
            _ => 0,
        });
        let (guesses, _) = guesses.as_chunks::<N>();
        for (bit, value) in bits(rows).zip(out.as_chunks_mut::<N>().0) {
            let guess = &guesses[bit as usize];
            // whatever is wrong somewhere is seen at the end: where one field's bits end is all that the next waits for
            let (mut ahead, mut len, mut long, mut good) = (r.look(), 0, 0, true);
            for i in 0..N {
                let seen = tables[i].see(ahead);
                // what is below zero is too much as well
                value[i] = guess[i].wrapping_add_signed(seen.by());
                good &= (i64::from(guess[i]) + i64::from(seen.by())) as u64 <= most[i];
                long |= seen.long();
                ahead >>= seen.bits();
                len += seen.bits();
            }
            if long != 0 {
                (len, good) = (0, true);
                ahead = r.look();
                for i in 0..N {
                    let (by, bits) = tables[i].find(ahead);
                    let moved = (i64::from(guess[i]) + by.unwrap_or(0)) as u64;
                    good &= by.is_some() & (moved <= most[i]);
                    value[i] = moved as u32;
                    ahead >>= bits;
                    len += bits;
                }
            }
            if !good || len > BitReader::SHOWN || r.skip(len).is_err() {
                self.read_with(Some(guess), chosen, r, value)?;
            }
        }
        Ok(())
    }

    fn read_rotations(
        &self,
        parts: u32,
        rows: u64,
        guesses: &[u32],
        tables: Chosen<'_>,
        r: &mut BitReader<'_>,
        out: &mut [u32],
    ) -> Result<(), BitError> {
        let table = tables.of(0);
        let (guesses, _) = guesses.as_chunks::<4>();
        for (bit, value) in bits(rows).zip(out.as_chunks_mut::<4>().0) {
            let guess = &guesses[bit as usize];
            let (mut ahead, mut len, mut long, mut good) = (r.look(), 0, 0, true);
            value[0] = guess[0];
            for i in 1..4 {
                let seen = table.see(ahead);
                // what is below zero is no part of a rotation either
                value[i] = guess[i].wrapping_add_signed(seen.by());
                long |= seen.long();
                ahead >>= seen.bits();
                len += seen.bits();
            }
            if long != 0 {
                len = 0;
                ahead = r.look();
                for i in 1..4 {
                    let (by, bits) = table.find(ahead);
                    value[i] = u32::try_from(i64::from(guess[i]) + by.unwrap_or(0)).unwrap_or(u32::MAX);
                    good &= by.is_some();
                    ahead >>= bits;
                    len += bits;
                }
            }
            good &= quat_is_canonical(*value, parts);
            if !good || len > BitReader::SHOWN || r.skip(len).is_err() {
                self.read_with(Some(guess), tables, r, value)?;
            }
        }
        Ok(())
    }

    /// Makes guesses of some rows of a block from their last motion, as [`go_on`](Layout::go_on) does: `values` hold the baseline's
    /// words, `older` those from before.
    pub(crate) fn go_on_rows(&self, rows: u64, older: &[u32], values: &mut [u32]) {
        if let Pattern::Rotation(parts) = self.pattern {
            return turn_rows_on(rows, older, values, parts);
        }
        let words = self.words();
        for at in bits(rows).map(|bit| bit as usize * words) {
            self.go_on(&older[at..at + words], &mut values[at..at + words]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::quat_words;
    use crate::history::BLOCK;
    use crate::layout::LayoutBuilder;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng as _, SeedableRng};

    /// A trained table in which most tokens have no code: 0, 1, 2 and 20 have one.
    const SPARSE: [u8; codes::TOKENS] = {
        let mut lengths = [0; codes::TOKENS];
        (lengths[0], lengths[1], lengths[2], lengths[20], lengths[codes::ESCAPE]) = (1, 2, 3, 4, 4);
        lengths
    };

    /// A fixed one, or that one.
    fn drawn_table(rng: &mut Pcg64Mcg) -> u8 {
        match rng.next_u64() % (codes::TABLES as u64 + 8) {
            fixed if fixed < codes::TABLES as u64 => fixed as u8,
            _ => codes::TRAINED,
        }
    }

    fn layouts() -> Vec<Layout> {
        let build = |with: &dyn Fn(&mut LayoutBuilder)| {
            let mut builder = LayoutBuilder::new();
            with(&mut builder);
            builder.build().unwrap()
        };
        let mut layouts: Vec<_> = (1..=5)
            .map(|n| {
                build(&|l| (0..n).for_each(|i| l.integer(&i.to_string(), 0, [9, 300, 70_000, i64::from(u32::MAX), 5][i], 3)))
            })
            .collect();
        layouts.push(build(&|l| l.quat("q", 10)));
        layouts.push(build(&|l| l.angle("a", 12)));
        layouts
    }

    fn value(layout: &Layout, near: Option<&[u32]>, rng: &mut Pcg64Mcg, out: &mut Vec<u32>) {
        if let Pattern::Rotation(bits) = layout.pattern {
            let turned = near.filter(|_| !rng.next_u64().is_multiple_of(8)).map(|near| {
                let mut words = [near[0], near[1], near[2], near[3]];
                words[1 + (rng.next_u64() % 3) as usize] ^= (rng.next_u64() % 4) as u32;
                words
            });
            let any = [0; 4].map(|_| (rng.next_u64() % 2001) as f32 - 1000.5);
            out.extend(turned.filter(|q| quat_is_canonical(*q, bits)).unwrap_or_else(|| quat_words(any, bits).unwrap()));
            return;
        }
        for (i, code) in layout.codes.iter().enumerate() {
            let max = match *code {
                FieldCode::Number { max, .. } => u64::from(max),
                FieldCode::Wrapping { bits } => (1 << bits) - 1,
                _ => unreachable!(),
            };
            let reach = [0, 1, 100, 1000, u64::from(u32::MAX)][(rng.next_u64() % 5) as usize];
            let from = near.map_or(0, |near| u64::from(near[i]));
            out.push(((from + rng.next_u64() % (reach + 1)).saturating_sub(reach / 2)).min(max) as u32);
        }
    }

    /// Many rows at once are what single values are, bit for bit, with every table, in both directions; and what one reader
    /// refuses the other does.
    #[test]
    fn many_rows_are_as_single_values() {
        for seed in 0..300u64 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            for layout in layouts() {
                let words = layout.words();
                let (mut guesses, mut values) = (Vec::new(), Vec::new());
                for row in 0..BLOCK {
                    value(&layout, None, &mut rng, &mut guesses);
                    value(&layout, Some(&guesses[row * words..][..words]), &mut rng, &mut values);
                }
                let rows = rng.next_u64() & rng.next_u64() | 1 << (rng.next_u64() % 64);
                let guesses = (!rng.next_u64().is_multiple_of(8)).then_some(&guesses[..]);
                let trained = [Table::new(&SPARSE)];
                let numbers: Vec<u8> = (0..words).map(|_| drawn_table(&mut rng)).collect();
                let tables = Chosen::among(&numbers, &trained);
                let (mut single, mut many) = (BitWriter::new(), BitWriter::new());
                let mut places = [(0, 0); BLOCK];
                layout.write_rows(rows, &values, guesses, tables, &mut many, &mut places);
                for row in bits(rows).map(|bit| bit as usize) {
                    let (at, start) = (row * words, single.len());
                    let guess = guesses.map(|guesses| &guesses[at..at + words]);
                    layout.write_with(&values[at..at + words], guess, tables, &mut single);
                    assert_eq!(places[row], (start as u32, (single.len() - start) as u16), "SEED={seed} {layout:?}");
                }
                let bytes = many.to_bytes();
                assert_eq!(bytes, single.to_bytes(), "SEED={seed} {layout:?}");
                let mut out = vec![0; rows.count_ones() as usize * words];
                layout.read_rows(rows, guesses, tables, &mut BitReader::new(&bytes), &mut out).unwrap();
                for (bit, value) in bits(rows).zip(out.chunks(words)) {
                    assert_eq!(value, &values[bit as usize * words..][..words], "SEED={seed} {layout:?}");
                }
                // cut short, or with other bits in it
                let mut wrong = bytes[..(rng.next_u64() % (bytes.len() as u64 + 1)) as usize].to_vec();
                if rng.next_u64().is_multiple_of(2) {
                    wrong.iter_mut().for_each(|byte| *byte ^= (rng.next_u64() & rng.next_u64()) as u8);
                }
                let mut reader = BitReader::new(&wrong);
                let mut one = vec![0; out.len()];
                let expected = bits(rows).zip(one.chunks_mut(words)).try_for_each(|(bit, value)| {
                    let at = bit as usize * words;
                    layout.read_with(guesses.map(|guesses| &guesses[at..at + words]), tables, &mut reader, value)
                });
                let mut other = BitReader::new(&wrong);
                assert_eq!(layout.read_rows(rows, guesses, tables, &mut other, &mut out), expected, "SEED={seed} {layout:?}");
                if expected.is_ok() {
                    assert_eq!((other.position(), &out), (reader.position(), &one), "SEED={seed} {layout:?}");
                }
            }
        }
    }
}
