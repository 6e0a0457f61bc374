//! From counts to a few tables that fit most of them.

use super::Lengths;
use super::code::Histogram;
use super::recording::Recording;
use crate::codes::{self, TABLES, TOKENS, Table};
use std::cmp::Reverse;

/// What a table must save at least of all that is recorded, in bits: else it is not worth its place.
const WORTH: u64 = 2048;
/// Counts beyond so many bits in all are made smaller together.
const COUNTED_BITS: u32 = 44;
/// Rounds in which tables and what they are for are fitted to each other.
const ROUNDS: usize = 12;

/// At most so many tables. The fixed ones are there anyway: tables are made for what gains most against those, and then fitted to
/// all that they are the best for.
pub(super) fn tables(recording: &Recording, most: usize) -> Vec<Lengths> {
    let mut counted: Vec<Histogram> = recording.histograms().filter(|h| h.total() > 0).collect();
    // a recording can come from anywhere: sums of weights stay within 64 bits
    let most_counted = counted.iter().fold(0u64, |sum, h| sum.saturating_add(h.total()));
    let shift = (u64::BITS - most_counted.leading_zeros()).saturating_sub(COUNTED_BITS);
    counted.iter_mut().flat_map(|h| &mut h.tokens).for_each(|n| *n = (*n >> shift).max(u64::from(*n > 0)));
    let fixed: Vec<u64> = counted.iter().map(fixed_bits).collect();
    let mut tables = first(&counted, &fixed, most);
    let mut before: Vec<Option<usize>> = Vec::new();
    for _ in 0..ROUNDS {
        let built: Vec<Table> = tables.iter().map(Table::new).collect();
        let assigned: Vec<Option<usize>> = counted.iter().zip(&fixed).map(|(h, fixed)| best(h, *fixed, &built)).collect();
        if assigned == before {
            break;
        }
        let fitted = (0..tables.len()).filter_map(|i| {
            let own = counted.iter().zip(&assigned).filter(|(_, to)| **to == Some(i)).map(|(h, _)| h);
            sum(own).map(|sum| sum.best_code())
        });
        let fitted: Vec<Lengths> = fitted.collect();
        // where one was given up, places have moved
        before = if fitted.len() == tables.len() { assigned } else { Vec::new() };
        tables = fitted;
    }
    by_use(&counted, &fixed, tables)
}

/// The best code of what gains most by one, again and again.
fn first(counted: &[Histogram], fixed: &[u64], most: usize) -> Vec<Lengths> {
    let own: Vec<(Lengths, u64)> = counted
        .iter()
        .map(|h| {
            let code = h.best_code();
            (code, h.bits_with(&Table::new(&code)))
        })
        .collect();
    let (mut bits, mut tables) = (fixed.to_vec(), Vec::new());
    while tables.len() < most {
        let gain = |i: &usize| bits[*i].saturating_sub(own[*i].1);
        let Some(i) = (0..counted.len()).max_by_key(|i| (gain(i), Reverse(*i))).filter(|i| gain(i) >= WORTH) else { break };
        let table = Table::new(&own[i].0);
        bits.iter_mut().zip(counted).for_each(|(bits, h)| *bits = (*bits).min(h.bits_with(&table)));
        tables.push(own[i].0);
    }
    tables
}

/// The bits with the best fixed table.
fn fixed_bits(h: &Histogram) -> u64 {
    (0..TABLES as u8).map(|i| h.bits_with(codes::table(i))).min().unwrap_or(0)
}

/// The table with which it takes the fewest bits; `None`: a fixed one.
fn best(h: &Histogram, fixed: u64, tables: &[Table]) -> Option<usize> {
    let bits = |i: &usize| h.bits_with(&tables[*i]);
    (0..tables.len()).min_by_key(|i| (bits(i), *i)).filter(|i| bits(i) < fixed)
}

/// All of it together; `None` of nothing.
fn sum<'a>(all: impl Iterator<Item = &'a Histogram>) -> Option<Histogram> {
    let (mut tokens, mut absolute, mut total) = ([0u64; TOKENS], 0u64, 0u64);
    for h in all {
        tokens.iter_mut().zip(&h.tokens).for_each(|(sum, n)| *sum += n);
        absolute += u64::from(h.absolute) * (h.total() >> 8).max(1);
        total += (h.total() >> 8).max(1);
    }
    (total > 0).then(|| Histogram { tokens, absolute: (absolute / total) as u32 })
}

/// Those that are of use, the most used one first, each once.
fn by_use(counted: &[Histogram], fixed: &[u64], tables: Vec<Lengths>) -> Vec<Lengths> {
    let built: Vec<Table> = tables.iter().map(Table::new).collect();
    let mut gain = vec![0u64; tables.len()];
    for (h, fixed) in counted.iter().zip(fixed) {
        if let Some(i) = best(h, *fixed, &built) {
            gain[i] += fixed - h.bits_with(&built[i]);
        }
    }
    let mut used: Vec<(u64, Lengths)> = gain.into_iter().zip(tables).filter(|(gain, _)| *gain >= WORTH).collect();
    used.sort_by_key(|(gain, lengths)| (Reverse(*gain), *lengths));
    used.into_iter().map(|(_, lengths)| lengths).collect()
}
