//! What was sent, counted: the histograms from which tables are trained.

use super::TablesError;
use super::code::Histogram;
use crate::block::bits;
use crate::codec::{surprise, words_of};
use crate::codes::{ESCAPE, TABLES, TOKENS, token};
use crate::forecast::Forecast;
use crate::layout::{AGE_ORDERS, FieldCode, Layout};
use std::collections::BTreeMap;
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::limits;

/// How often each token came in what a peer sent: by field, guess, age of the baseline and the fixed table that fitted at the time.
///
/// ```text
/// byte 0       the layout of the rest: 1
/// bytes 1..9   the digest of the schema, the lowest byte first
/// then bits, from the lowest of each byte up:
///    16        how many histograms; then for each, in ascending order of what stands in front:
///     6        the column: 0 presence, n the nth component
///     8        which of its fields that have a table
///     2        the guess: 0 the baseline, 1 the last motion, 2 a velocity
///     3        the power of two of the baseline's age
///     6        the fixed table that was in use
///     7        bits of the field's absolute form
///   G(n, 4)    for each of the 73 tokens: how often it came, at most 2⁴⁸
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Of the schema.
    digest: u64,
    counts: BTreeMap<Place, Histogram>,
    /// By field of the values that are counted.
    now: Vec<[u32; TOKENS]>,
}

/// Where values that are counted come from.
#[derive(Clone, Copy)]
pub(crate) struct Occasion {
    column: usize,
    forecast: Forecast,
    age: u64,
}

impl Occasion {
    pub(crate) fn new(column: usize, forecast: Forecast, age: u64) -> Self {
        Self { column, forecast, age }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    column: u8,
    field: u8,
    forecast: u8,
    age_order: u8,
    table: u8,
}

/// Nothing is counted beyond.
const MOST: u64 = 1 << 48;
const FORMAT: u8 = 1;
/// Order of the code of counts.
const ORDER: u32 = 4;

impl Recording {
    pub(super) fn new(digest: u64) -> Self {
        Self { digest, counts: BTreeMap::new(), now: Vec::new() }
    }

    /// Counts the values of some rows of a block. `all`: the rows, the values of all 64, and what was guessed of them; `tables`: by
    /// field, fixed ones.
    pub(crate) fn count(&mut self, occasion: Occasion, layout: &Layout, all: (u64, &[u32], &[u32]), tables: &[u8]) {
        let (rows, values, guesses) = all;
        self.now.clear();
        self.now.resize(tables.len(), [0; TOKENS]);
        let words = layout.words();
        for at in bits(rows).map(|bit| bit as usize * words) {
            count_value(layout, &values[at..at + words], &guesses[at..at + words], &mut self.now);
        }
        let fields = layout.codes.iter().filter(|code| code.has_table());
        for (field, (counts, (code, table))) in self.now.drain(..).zip(fields.zip(tables)).enumerate() {
            let place = Place {
                column: occasion.column as u8,
                field: field as u8,
                forecast: occasion.forecast as u8,
                age_order: occasion.age.max(1).ilog2().min(AGE_ORDERS as u32 - 1) as u8,
                table: *table,
            };
            if self.counts.len() >= limits::HISTOGRAMS && !self.counts.contains_key(&place) {
                continue;
            }
            let histogram = self.counts.entry(place).or_insert(Histogram { tokens: [0; TOKENS], absolute: code.absolute_bits() });
            histogram.tokens.iter_mut().zip(counts).for_each(|(all, n)| *all = (*all + u64::from(n)).min(MOST));
        }
    }

    /// Adds what another run counted. Where together there would be more than [`limits::HISTOGRAMS`], those that come last are left
    /// out.
    ///
    /// # Errors
    /// [`TablesError::Schema`] if that was of another schema.
    pub fn merge(&mut self, other: &Self) -> Result<(), TablesError> {
        if self.digest != other.digest {
            return Err(TablesError::Schema);
        }
        for (place, histogram) in &other.counts {
            if self.counts.len() >= limits::HISTOGRAMS && !self.counts.contains_key(place) {
                continue;
            }
            let own = self.counts.entry(*place).or_insert(Histogram { tokens: [0; TOKENS], absolute: histogram.absolute });
            own.tokens.iter_mut().zip(&histogram.tokens).for_each(|(all, n)| *all = (*all + n).min(MOST));
        }
        Ok(())
    }

    /// How many numbers were counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().fold(0, |all, histogram| all.saturating_add(histogram.total()))
    }

    pub(super) fn histograms(&self) -> impl Iterator<Item = Histogram> + '_ {
        self.counts.values().cloned()
    }

    /// As it is kept.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = BitWriter::new();
        w.put(self.counts.len() as u64, 16);
        for (place, histogram) in &self.counts {
            w.put(place.column.into(), 6);
            w.put(place.field.into(), 8);
            w.put(place.forecast.into(), 2);
            w.put(place.age_order.into(), 3);
            w.put(place.table.into(), 6);
            w.put(histogram.absolute.into(), 7);
            histogram.tokens.iter().for_each(|n| w.golomb(*n, ORDER));
        }
        let mut bytes = vec![FORMAT];
        bytes.extend(self.digest.to_le_bytes());
        bytes.extend(w.to_bytes());
        bytes
    }

    /// The inverse of [`to_bytes`](Self::to_bytes), for bytes from anywhere.
    ///
    /// # Errors
    /// [`TablesError`] for whatever `to_bytes` does not make.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TablesError> {
        let (&format, rest) = bytes.split_first().ok_or(TablesError::Length(0))?;
        if format != FORMAT {
            return Err(TablesError::Format);
        }
        let (digest, rest) = rest.split_first_chunk().ok_or(TablesError::Length(bytes.len()))?;
        let mut recording = Self::new(u64::from_le_bytes(*digest));
        let mut r = BitReader::new(rest);
        recording.read(&mut r).and_then(|()| r.finish().map_err(|_| TablesError::Length(bytes.len())))?;
        Ok(recording)
    }

    fn read(&mut self, r: &mut BitReader<'_>) -> Result<(), TablesError> {
        let histograms = get(r, 16)?;
        if histograms > limits::HISTOGRAMS as u64 {
            return Err(TablesError::Recording);
        }
        for _ in 0..histograms {
            let place = Place {
                column: get(r, 6)? as u8,
                field: get(r, 8)? as u8,
                forecast: get(r, 2)? as u8,
                age_order: get(r, 3)? as u8,
                table: get(r, 6)? as u8,
            };
            let mut histogram = Histogram { tokens: [0; TOKENS], absolute: get(r, 7)? as u32 };
            for n in &mut histogram.tokens {
                *n = r.golomb(ORDER).map_err(|_| TablesError::Recording)?;
            }
            let known = usize::from(place.forecast) < Forecast::ALL.len()
                && usize::from(place.age_order) < AGE_ORDERS
                && usize::from(place.table) < TABLES;
            let ascends = self.counts.last_key_value().is_none_or(|(last, _)| *last < place);
            if !known || !ascends || histogram.tokens.iter().any(|n| *n > MOST) {
                return Err(TablesError::Recording);
            }
            self.counts.insert(place, histogram);
        }
        Ok(())
    }
}

fn get(r: &mut BitReader<'_>, count: u32) -> Result<u64, TablesError> {
    r.get(count).map_err(|_| TablesError::Recording)
}

/// Counts what one value is off by, where it is written as a difference.
fn count_value(layout: &Layout, value: &[u32], guess: &[u32], counts: &mut [[u32; TOKENS]]) {
    let codes = &layout.codes;
    let (mut i, mut at, mut field, mut fresh) = (0, 0, 0, 0);
    while let Some(&code) = codes.get(i) {
        let known = i >= fresh;
        let (now, old) = (&value[at..at + code.words()], &guess[at..at + code.words()]);
        i += 1;
        at += code.words();
        match code {
            FieldCode::Maybe { fields } => {
                let end = i + fields as usize;
                if now[0] == 0 {
                    let inner = &codes[i..end];
                    at += words_of(inner);
                    field += inner.iter().filter(|code| code.has_table()).count();
                    i = end;
                } else if known && old[0] == 0 {
                    fresh = end;
                }
            }
            code if code.has_table() => {
                if known {
                    count_field(code, now, old, &mut counts[field]);
                }
                field += 1;
            }
            _ => {}
        }
    }
}

/// Counts the tokens of a field's difference.
fn count_field(code: FieldCode, now: &[u32], old: &[u32], counts: &mut [u32; TOKENS]) {
    match code {
        FieldCode::Quat { .. } if now[0] != old[0] => counts[ESCAPE] += 1,
        FieldCode::Quat { .. } => (1..4).for_each(|i| counts[token(surprise(code, now[i], old[i])).0] += 1),
        _ => counts[token(surprise(code, now[0], old[0])).0] += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::LayoutBuilder;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng as _, SeedableRng};

    fn drawn(seed: u64, histograms: usize) -> Recording {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut recording = Recording::new(7);
        for _ in 0..histograms {
            let mut below = |most: u64| (rng.next_u64() % most) as u8;
            let place = Place { column: below(64), field: below(256), forecast: below(3), age_order: below(5), table: below(63) };
            let mut tokens = [0; TOKENS];
            tokens.iter_mut().for_each(|n| *n = rng.next_u64() >> (20 + rng.next_u64() % 44));
            recording.counts.insert(place, Histogram { tokens, absolute: 17 });
        }
        recording
    }

    /// Whatever a recording says: what is made of it is what every peer takes.
    #[test]
    fn tables_of_counts_beyond_all_measure_are_tables() {
        let mut recording = drawn(1, limits::HISTOGRAMS);
        for histogram in recording.counts.values_mut() {
            histogram.tokens = [MOST; TOKENS];
            histogram.tokens[usize::from(histogram.tokens[0] % 2 == 0)] = 1;
        }
        for most in [1, 16] {
            if let Ok(tables) = crate::trained::Tables::train(&recording, most) {
                assert_eq!(crate::trained::Tables::from_bytes(&tables.to_bytes()).unwrap().digest(), tables.digest());
            }
        }
        let mut seldom = Recording::new(7);
        let place = Place { column: 1, field: 0, forecast: 0, age_order: 0, table: 5 };
        let mut tokens = [0; TOKENS];
        (tokens[3], tokens[40]) = (MOST, MOST / 3);
        seldom.counts.insert(place, Histogram { tokens, absolute: 17 });
        let tables = crate::trained::Tables::train(&seldom, 4).unwrap();
        assert_eq!(crate::trained::Tables::from_bytes(&tables.to_bytes()).unwrap().digest(), tables.digest());
    }

    #[test]
    fn recordings_come_back_and_no_part_of_them_does() {
        for seed in 0..20 {
            let recording = drawn(seed, seed as usize);
            let bytes = recording.to_bytes();
            assert_eq!(Recording::from_bytes(&bytes), Ok(recording), "SEED={seed}");
            for end in 0..bytes.len() {
                assert!(Recording::from_bytes(&bytes[..end]).is_err(), "SEED={seed}: {end} bytes of {}", bytes.len());
            }
            let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
            assert!(Recording::from_bytes(&longer).is_err(), "SEED={seed}: a byte more");
            // other bits: refused, or another recording
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            for _ in 0..200 {
                let mut wrong = bytes.clone();
                let at = rng.next_u64() as usize % wrong.len();
                wrong[at] ^= 1 << (rng.next_u64() % 8);
                if let Ok(read) = Recording::from_bytes(&wrong) {
                    assert_eq!(Recording::from_bytes(&read.to_bytes()), Ok(read), "SEED={seed}");
                }
            }
        }
    }

    /// What is merged is as if it had been counted in one run, in whatever order; another schema's is refused.
    #[test]
    fn runs_add_up() {
        let (a, b) = (drawn(1, 30), drawn(2, 30));
        let (mut ab, mut ba, mut aa) = (a.clone(), b.clone(), a.clone());
        ab.merge(&b).unwrap();
        ba.merge(&a).unwrap();
        assert_eq!(ab, ba);
        assert_eq!(ab.total(), a.total() + b.total());
        aa.merge(&a).unwrap();
        assert!(
            aa.counts.iter().zip(&a.counts).all(|(two, one)| two.1.tokens.iter().zip(&one.1.tokens).all(|(t, o)| *t == 2 * o))
        );
        assert_eq!(ab.merge(&Recording::new(8)), Err(TablesError::Schema));
    }

    /// What stands in an option that is not there, or was not, is not written as a difference, and is not counted.
    #[test]
    fn what_is_written_as_a_difference_is_counted() {
        let mut builder = LayoutBuilder::new();
        builder.field("there", FieldCode::Maybe { fields: 1 }, crate::layout::Meaning::Plain);
        builder.integer("n", 0, 1000, 2);
        builder.quat("q", 10);
        let layout = builder.build().unwrap();
        let counted = |now: [u32; 6], old: [u32; 6]| {
            let mut recording = Recording::new(0);
            recording.count(Occasion::new(1, Forecast::Still, 1), &layout, (1, &now, &old), &[3, 4]);
            let found = |field: u8| {
                let mut of_field = recording.counts.iter().filter(|(place, _)| place.field == field);
                let tokens = of_field.next().expect("there is one for each field").1.tokens;
                (0..TOKENS).filter(|t| tokens[*t] > 0).map(|t| (t, tokens[t])).collect::<Vec<_>>()
            };
            (found(0), found(1))
        };
        let turn = [0, 500, 510, 520];
        let with = |there: u32, n: u32, q: [u32; 4]| [there, n, q[0], q[1], q[2], q[3]];
        assert_eq!(counted(with(1, 5, turn), with(1, 7, [0, 500, 511, 520])), (vec![(3, 1)], vec![(0, 2), (1, 1)]));
        assert_eq!(counted(with(1, 5, turn), with(0, 0, turn)), (vec![], vec![(0, 3)]));
        assert_eq!(counted(with(0, 0, turn), with(1, 7, [1, 500, 510, 520])), (vec![], vec![(ESCAPE, 1)]));
    }
}
