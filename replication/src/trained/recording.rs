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
