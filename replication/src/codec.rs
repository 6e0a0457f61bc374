//! Values to bits and back. [`Layout::write`] trusts its caller, [`Layout::read`] trusts nobody and allocates nothing. The bits
//! are specified in [`layout`](crate::layout).

use crate::codes::{self, Chosen, Table};
use crate::field::{float_is_canonical, quat_is_canonical, text_bytes};
use crate::layout::{AGE_ORDERS, FieldCode, Layout};
use crate::netid::NetId;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter, unzigzag, zigzag};
use tidelock_netcore::limits;

const WRAPPING_ORDER: u32 = 4;
const QUAT_ORDER: u32 = 3;
const ENTITY_ORDER: u32 = 8;

impl Layout {
    /// Writes the value `now`: as a difference to `base`, the value that the receiver had `age` ticks before, or whole. The tables of
    /// the code follow from the orders of the fields and the age.
    pub fn write(&self, now: &[u32], base: Option<&[u32]>, age: u64, w: &mut BitWriter) {
        self.write_with(now, base, Chosen::fixed(self.tables(age)), w);
    }

    /// Reads what [`write`](Self::write) wrote, with the same base and age, into `out`, whose content after an error is
    /// unspecified.
    ///
    /// # Errors
    /// [`BitError`] if the input ends too early or holds what no value of this layout could have made.
    pub fn read(&self, base: Option<&[u32]>, age: u64, r: &mut BitReader<'_>, out: &mut [u32]) -> Result<(), BitError> {
        self.read_with(base, Chosen::fixed(self.tables(age)), r, out)
    }

    /// The tables for a base of that age, one for each field that has one.
    pub(crate) fn tables(&self, age: u64) -> &[u8] {
        &self.tables[age.max(1).ilog2().min(AGE_ORDERS as u32 - 1) as usize]
    }

    /// Writes a value as its difference to a guess, with these tables.
    pub(crate) fn write_with(&self, now: &[u32], guess: Option<&[u32]>, tables: Chosen<'_>, w: &mut BitWriter) {
        debug_assert_eq!(now.len(), self.words());
        debug_assert!(guess.is_none_or(|g| g.len() == now.len()));
        // Entries before this one have no base: an option that was empty then.
        let mut fresh = 0;
        let (mut i, mut at, mut tables) = (0, 0, tables);
        while let Some(&code) = self.codes.get(i) {
            let value = &now[at..at + code.words()];
            let old = if i < fresh { None } else { guess.map(|g| &g[at..at + value.len()]) };
            i += 1;
            at += value.len();
            let FieldCode::Maybe { fields } = code else {
                let table = next_table(code, &mut tables);
                match old {
                    Some(old) => put_difference(code, value, old, table, w),
                    None => put_absolute(code, value, w),
                }
                continue;
            };
            let end = i + fields as usize;
            w.flag(value[0] != 0);
            if value[0] == 0 {
                let inner = &self.codes[i..end];
                at += words_of(inner);
                inner.iter().for_each(|code| _ = next_table(*code, &mut tables));
                i = end;
            } else if old.is_some_and(|old| old[0] == 0) {
                fresh = end;
            }
        }
    }

    /// Reads what [`write_with`](Self::write_with) wrote.
    pub(crate) fn read_with(
        &self,
        guess: Option<&[u32]>,
        tables: Chosen<'_>,
        r: &mut BitReader<'_>,
        out: &mut [u32],
    ) -> Result<(), BitError> {
        debug_assert_eq!(out.len(), self.words());
        debug_assert!(guess.is_none_or(|g| g.len() == out.len()));
        let mut fresh = 0;
        let (mut i, mut at, mut tables) = (0, 0, tables);
        while let Some(&code) = self.codes.get(i) {
            let words = code.words();
            let value = &mut out[at..at + words];
            let old = if i < fresh { None } else { guess.map(|g| &g[at..at + words]) };
            i += 1;
            at += words;
            let FieldCode::Maybe { fields } = code else {
                let table = next_table(code, &mut tables);
                match old {
                    Some(old) => get_difference(code, old, table, r, value)?,
                    None => get_absolute(code, r, value)?,
                }
                continue;
            };
            let end = i + fields as usize;
            let present = r.flag()?;
            value[0] = u32::from(present);
            if !present {
                let inner = &self.codes[i..end];
                let skip = words_of(inner);
                out[at..at + skip].fill(0);
                at += skip;
                inner.iter().for_each(|code| _ = next_table(*code, &mut tables));
                i = end;
            } else if old.is_some_and(|old| old[0] == 0) {
                fresh = end;
            }
        }
        Ok(())
    }
}

/// The table of the next field, if it has one.
#[inline]
fn next_table<'a>(code: FieldCode, tables: &mut Chosen<'a>) -> &'a Table {
    if !code.has_table() {
        return codes::table(codes::RAW);
    }
    let (first, rest) = tables.next().expect("there is a table for each field that has one");
    *tables = rest;
    first
}

pub(crate) fn words_of(codes: &[FieldCode]) -> usize {
    codes.iter().map(|c| c.words()).sum()
}

/// Bits that hold every number in `0..=max`.
#[inline]
const fn bits_for(max: u32) -> u32 {
    u32::BITS - max.leading_zeros()
}

#[inline]
fn put_absolute(code: FieldCode, value: &[u32], w: &mut BitWriter) {
    match code {
        FieldCode::Number { max, .. } => w.put(value[0].into(), bits_for(max)),
        FieldCode::Wide => w.put(NetId::from_words(value[0], value[1]).0, 64),
        FieldCode::Wrapping { bits } => w.put(value[0].into(), bits),
        FieldCode::Choice { count } => w.put(value[0].into(), bits_for(count - 1)),
        FieldCode::Float => w.put(value[0].into(), 32),
        FieldCode::Quat { bits } => {
            w.put(value[0].into(), 2);
            value[1..].iter().for_each(|&part| w.put(part.into(), bits));
        }
        FieldCode::Text { cap } | FieldCode::Bytes { cap } => {
            w.put(value[0].into(), bits_for(cap));
            let (whole, rest) = (value[0] as usize / 4, value[0] % 4);
            value[1..=whole].iter().for_each(|&four| w.put(four.into(), 32));
            if rest > 0 {
                w.put(value[1 + whole].into(), rest * 8);
            }
        }
        FieldCode::Entity => w.golomb(NetId::from_words(value[0], value[1]).0, ENTITY_ORDER),
        FieldCode::Maybe { .. } => w.flag(value[0] != 0),
    }
}

#[inline]
fn get_absolute(code: FieldCode, r: &mut BitReader<'_>, value: &mut [u32]) -> Result<(), BitError> {
    match code {
        FieldCode::Number { max, .. } => value[0] = up_to(r.get(bits_for(max))?, max)?,
        FieldCode::Wide => value.copy_from_slice(&NetId(r.get(64)?).to_words()),
        FieldCode::Wrapping { bits } => value[0] = r.get(bits)? as u32,
        FieldCode::Choice { count } => value[0] = up_to(r.get(bits_for(count - 1))?, count - 1)?,
        FieldCode::Float => {
            value[0] = r.get(32)? as u32;
            check(float_is_canonical(value[0]))?;
        }
        FieldCode::Quat { bits } => {
            value[0] = r.get(2)? as u32;
            for part in &mut value[1..] {
                *part = r.get(bits)? as u32;
            }
            check(quat_is_canonical([value[0], value[1], value[2], value[3]], bits))?;
        }
        FieldCode::Text { cap } => {
            get_bytes(cap, r, value)?;
            let mut buffer = [0; limits::STRING_BYTES];
            check(text_bytes(value, &mut buffer).is_some_and(|bytes| std::str::from_utf8(bytes).is_ok()))?;
        }
        FieldCode::Bytes { cap } => get_bytes(cap, r, value)?,
        FieldCode::Entity => value.copy_from_slice(&NetId(r.golomb(ENTITY_ORDER)?).to_words()),
        FieldCode::Maybe { .. } => value[0] = r.flag()?.into(),
    }
    Ok(())
}

fn get_bytes(cap: u32, r: &mut BitReader<'_>, value: &mut [u32]) -> Result<(), BitError> {
    let len = up_to(r.get(bits_for(cap))?, cap)?;
    value.fill(0);
    value[0] = len;
    let (whole, rest) = (len as usize / 4, len % 4);
    for four in &mut value[1..=whole] {
        *four = r.get(32)? as u32;
    }
    if rest > 0 {
        value[1 + whole] = r.get(rest * 8)? as u32;
    }
    Ok(())
}

#[inline]
pub(crate) fn put_difference(code: FieldCode, value: &[u32], old: &[u32], table: &Table, w: &mut BitWriter) {
    match code {
        FieldCode::Number { .. } | FieldCode::Wrapping { .. } => {
            if !table.put(surprise(code, value[0], old[0]), w) {
                put_absolute(code, value, w);
            }
        }
        FieldCode::Choice { count: ..=2 } | FieldCode::Maybe { .. } => put_absolute(code, value, w),
        FieldCode::Quat { .. } => {
            let z = [1, 2, 3].map(|i| surprise(code, value[i], old[i]));
            if value[0] == old[0] && z.iter().all(|z| table.has(*z)) {
                z.iter().for_each(|z| _ = table.put(*z, w));
            } else {
                table.put_escape(w);
                put_absolute(code, value, w);
            }
        }
        FieldCode::Choice { .. }
        | FieldCode::Wide
        | FieldCode::Float
        | FieldCode::Text { .. }
        | FieldCode::Bytes { .. }
        | FieldCode::Entity => {
            w.flag(value == old);
            if value != old {
                put_absolute(code, value, w);
            }
        }
    }
}

#[inline]
fn get_difference(code: FieldCode, old: &[u32], table: &Table, r: &mut BitReader<'_>, value: &mut [u32]) -> Result<(), BitError> {
    match code {
        FieldCode::Number { max, .. } => match table.get(r)? {
            None => get_absolute(code, r, value)?,
            Some(z) => value[0] = moved(old[0], z, max)?,
        },
        FieldCode::Wrapping { bits } => match table.get(r)? {
            None => get_absolute(code, r, value)?,
            Some(z) => value[0] = old[0].wrapping_add(unzigzag(z) as u32) & ((1 << bits) - 1),
        },
        FieldCode::Choice { count: ..=2 } | FieldCode::Maybe { .. } => get_absolute(code, r, value)?,
        FieldCode::Quat { bits } => {
            let Some(first) = table.get(r)? else { return get_absolute(code, r, value) };
            value[0] = old[0];
            let most = (1 << bits) - 2;
            value[1] = moved(old[1], first, most)?;
            for i in 2..4 {
                let z = table.get(r)?.ok_or(BitError::OutOfRange)?;
                value[i] = moved(old[i], z, most)?;
            }
            check(quat_is_canonical([value[0], value[1], value[2], value[3]], bits))?;
        }
        FieldCode::Choice { .. }
        | FieldCode::Wide
        | FieldCode::Float
        | FieldCode::Text { .. }
        | FieldCode::Bytes { .. }
        | FieldCode::Entity => {
            if !r.flag()? {
                return get_absolute(code, r, value);
            }
            value.copy_from_slice(old);
        }
    }
    Ok(())
}

/// What a guess of one word is off by, as the number that is coded.
#[inline]
pub(crate) fn surprise(code: FieldCode, value: u32, guess: u32) -> u64 {
    match code {
        FieldCode::Wrapping { bits } => {
            // Moved to the top of the word, the difference wraps by itself and has its sign where a word has it.
            let spare = u32::BITS - bits;
            zigzag(((value.wrapping_sub(guess) << spare) as i32 >> spare).into())
        }
        _ => zigzag(i64::from(value) - i64::from(guess)),
    }
}

#[inline]
fn moved(old: u32, z: u64, max: u32) -> Result<u32, BitError> {
    up_to((i64::from(old) + unzigzag(z)) as u64, max)
}

#[inline]
fn up_to(value: u64, max: u32) -> Result<u32, BitError> {
    if value <= max.into() { Ok(value as u32) } else { Err(BitError::OutOfRange) }
}

#[inline]
fn check(good: bool) -> Result<(), BitError> {
    if good { Ok(()) } else { Err(BitError::OutOfRange) }
}

impl FieldCode {
    /// Is a difference of it coded with a table?
    #[inline]
    pub(crate) fn has_table(self) -> bool {
        matches!(self, Self::Number { .. } | Self::Wrapping { .. } | Self::Quat { .. })
    }

    /// Bits of the absolute form of a field that has a table.
    pub(crate) fn absolute_bits(self) -> u32 {
        match self {
            Self::Number { max, .. } => bits_for(max),
            Self::Wrapping { bits } => bits,
            Self::Quat { bits } => 2 + 3 * bits,
            _ => 0,
        }
    }

    /// The table for differences that nothing better is known of; `grow`: how many powers of two larger than usual they may be.
    pub(crate) fn usual_table(self, grow: u32) -> u8 {
        let order = match self {
            Self::Number { order, .. } => order,
            Self::Wrapping { .. } => WRAPPING_ORDER,
            _ => QUAT_ORDER,
        };
        codes::for_mean(1.5 * (1u64 << (order + grow).min(40)) as f64)
    }

    /// The most bits that the field takes, absolute or as a difference; without what belongs to an option.
    #[must_use]
    pub fn worst_bits(self) -> usize {
        let bits = match self {
            Self::Number { max, .. } => codes::LONGEST + bits_for(max),
            Self::Wide => 65,
            Self::Wrapping { bits } => codes::LONGEST + bits,
            Self::Choice { count: ..=2 } | Self::Maybe { .. } => 1,
            Self::Choice { count } => 1 + bits_for(count - 1),
            Self::Float => 33,
            // three differences of a part: `bits` + 1 bits of z, the highest two of which are in the token
            Self::Quat { bits } => (codes::LONGEST + 2 + 3 * bits).max(3 * (codes::LONGEST + bits - 1)),
            Self::Text { cap } | Self::Bytes { cap } => 1 + bits_for(cap) + 8 * cap,
            // "Changed", 55 ones, a zero, 55 bits and 8 bits.
            Self::Entity => 120,
        };
        bits as usize
    }
}
