//! Sections 2.6 and 2.7 of `docs/WIRE.md`: the tables of the codes for differences, from `docs/codes.txt`.

use super::bits::{Bits, unzigzag};
use super::{Code, Fault, Field};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// In place of the 73rd token: the absolute form follows.
const ESCAPE: usize = 72;
/// The table that has nothing but the escape, of no bits.
pub const RAW: usize = 62;
/// How many tables there are.
pub const TABLES: usize = 63;
/// Tables of the first kind, of which the usual ones are taken.
const EXPONENTIAL: i32 = 42;

/// The number of the first trained table, of as many as the session has.
pub const TRAINED: usize = 64;

/// By length and code: the token. The raw table is empty.
pub type Table = BTreeMap<(u32, u32), usize>;

static PAGE: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let lines = include_str!("../../../docs/codes.txt").lines().skip(1);
    lines.map(|line| canonical(&lengths(line))).collect()
});

fn lengths(line: &str) -> Vec<u32> {
    let (_, runs) = line.split_once(':').expect("a table's number and its lengths");
    let mut lengths = Vec::new();
    for run in runs.split_whitespace() {
        let (length, times) = run.split_once('*').expect("a length and how often");
        lengths.extend(vec![length.parse::<u32>().expect("a number"); times.parse().expect("a number")]);
    }
    assert_eq!(lengths.len(), ESCAPE + 1, "{line}");
    lengths
}

fn canonical(lengths: &[u32]) -> Table {
    let mut table = Table::new();
    let (mut code, mut before) = (0, 0);
    for length in 1..=10 {
        for (token, _) in lengths.iter().enumerate().filter(|(_, found)| **found == length) {
            code <<= length - before;
            before = length;
            table.insert((length, code), token);
            code += 1;
        }
    }
    table
}

/// Section 2.8: the trained tables in a welcome.
pub fn trained(bytes: &[u8]) -> Vec<Table> {
    assert_eq!((bytes[0], bytes.len()), (1, 2 + 37 * usize::from(bytes[1])), "format and length");
    let table = |bytes: &[u8]| {
        let halves = bytes.iter().flat_map(|byte| [u32::from(byte & 15), u32::from(byte >> 4)]);
        canonical(&halves.take(ESCAPE + 1).collect::<Vec<_>>())
    };
    bytes[2..].chunks(37).map(table).collect()
}

/// A table by its number; `trained`: those of the session.
pub fn numbered(number: usize, trained: &[Table]) -> &Table {
    if number < TRAINED { &PAGE[number] } else { &trained[number - TRAINED] }
}

/// The difference that is next, or none where the absolute form follows.
pub fn read_difference(bits: &mut Bits<'_>, table: &Table) -> Result<Option<i64>, Fault> {
    if table.is_empty() {
        return Ok(None);
    }
    let (mut length, mut code) = (0, 0);
    let token = loop {
        code = code << 1 | u32::from(bits.bit()?);
        length += 1;
        if let Some(token) = table.get(&(length, code)) {
            break *token;
        }
        assert!(length < 10, "every ten bits begin with a code");
    };
    let z = match token {
        ESCAPE => return Ok(None),
        0..16 => token as u64,
        _ => {
            let n = 4 + (token as u32 - 16) / 2;
            1 << n | (token as u64 & 1) << (n - 1) | bits.number(n - 1)?
        }
    };
    Ok(Some(unzigzag(z)))
}

/// Whether differences of the code are written with a table.
pub fn has_table(code: Code) -> bool {
    matches!(code, Code::Number { .. } | Code::Wrapping { .. } | Code::Quat { .. })
}

/// The usual table of a field for a baseline of that age.
pub fn usual(code: Code, age: u64) -> usize {
    let order = match code {
        Code::Number { order, .. } => order,
        Code::Wrapping { .. } => 4,
        _ => 3,
    };
    let mean = 1.5 * 2f64.powi((order + age.max(1).ilog2().min(4)) as i32);
    (1..EXPONENTIAL).rev().find(|i| mean > 0.15 * 1.6f64.powf(f64::from(*i) - 0.5)).unwrap_or(0) as usize
}

/// The usual tables of the fields that have one.
pub fn usual_of(fields: &[Field], age: u64) -> Vec<usize> {
    fields.iter().filter(|field| has_table(field.code)).map(|field| usual(field.code, age)).collect()
}
