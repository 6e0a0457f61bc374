//! Section 2.7 of `docs/WIRE.md`: values, field by field.

pub use super::Code;
use super::bits::{Bits, bits_for};
use super::tables::{RAW, Table, has_table, numbered, read_difference, usual_of};
use super::{Fault, Field};

/// What a value is read against: its words at the baseline, and how many send ticks ago that was.
#[derive(Clone, Copy)]
pub struct Base<'a> {
    pub words: &'a [u32],
    pub age: u64,
}

impl Code {
    /// How many words a field of this code has.
    pub fn words(self) -> usize {
        match self {
            Code::Wide | Code::Entity => 2,
            Code::Quat { .. } => 4,
            Code::Text { cap } | Code::Bytes { cap } => 1 + (cap as usize).div_ceil(4),
            _ => 1,
        }
    }
}

/// The words of all `fields` together.
pub fn words_of(fields: &[Field]) -> usize {
    fields.iter().map(|field| field.code.words()).sum()
}

/// Reads one value: absolutely, or against `base` with the usual tables for its age.
pub fn read_value(bits: &mut Bits<'_>, fields: &[Field], base: Option<Base<'_>>) -> Result<Vec<u32>, Fault> {
    let numbers = usual_of(fields, base.map_or(1, |base| base.age));
    let tables: Vec<_> = numbers.into_iter().map(|number| numbered(number, &[])).collect();
    read_value_with(bits, fields, base.map(|base| base.words), &tables)
}

/// Reads one value: absolutely, or as the difference to a guess. `tables`: of the fields that have one.
pub fn read_value_with(
    bits: &mut Bits<'_>,
    fields: &[Field],
    guess: Option<&[u32]>,
    tables: &[&Table],
) -> Result<Vec<u32>, Fault> {
    let mut words = Vec::with_capacity(words_of(fields));
    // Entries before this index stand inside a Maybe that was absent in the guess.
    let mut absolute_until = 0;
    let mut index = 0;
    while let Some(field) = fields.get(index) {
        let at = words.len();
        let old = guess.filter(|_| index >= absolute_until).map(|guess| &guess[at..]);
        if let Code::Maybe { fields: inner } = field.code {
            let there = bits.bit()?;
            words.push(u32::from(there));
            let end = index + 1 + inner as usize;
            if !there {
                words.resize(words.len() + words_of(&fields[index + 1..end]), 0);
                index = end;
                continue;
            }
            if old.is_some_and(|old| old[0] == 0) {
                absolute_until = absolute_until.max(end);
            }
        } else {
            let place = fields[..index].iter().filter(|field| has_table(field.code)).count();
            let old = old.map(|old| (old, if has_table(field.code) { tables[place] } else { numbered(RAW, &[]) }));
            read_field(bits, field.code, old, &mut words)?;
        }
        index += 1;
    }
    Ok(words)
}

fn read_field(bits: &mut Bits<'_>, code: Code, old: Option<(&[u32], &Table)>, out: &mut Vec<u32>) -> Result<(), Fault> {
    let Some((old, table)) = old else { return read_absolute(bits, code, out) };
    match code {
        Code::Number { max, .. } => match read_difference(bits, table)? {
            Some(difference) => out.push(within(i64::from(old[0]) + difference, max)?),
            None => return read_absolute(bits, code, out),
        },
        Code::Wrapping { bits: width } => match read_difference(bits, table)? {
            Some(difference) => out.push((i64::from(old[0]) + difference).rem_euclid(1 << width) as u32),
            None => return read_absolute(bits, code, out),
        },
        Code::Quat { bits: width } => {
            let mut words = [old[0], 0, 0, 0];
            for place in 1..4 {
                match read_difference(bits, table)? {
                    Some(difference) => words[place] = within(i64::from(old[place]) + difference, u32::MAX)?,
                    None if place == 1 => return read_absolute(bits, code, out),
                    None => return Err(Fault::Malformed("an escape within a rotation")),
                }
            }
            check_quat(words, width)?;
            out.extend(words);
        }
        Code::Choice { count } if count <= 2 => return read_absolute(bits, code, out),
        _ => {
            if !bits.bit()? {
                return read_absolute(bits, code, out);
            }
            out.extend(&old[..code.words()]);
        }
    }
    Ok(())
}

fn read_absolute(bits: &mut Bits<'_>, code: Code, out: &mut Vec<u32>) -> Result<(), Fault> {
    match code {
        Code::Number { max, .. } => out.push(within(bits.number(bits_for(max))? as i64, max)?),
        Code::Choice { count } => out.push(within(bits.number(bits_for(count - 1))? as i64, count - 1)?),
        Code::Wrapping { bits: width } => out.push(bits.number(width)? as u32),
        Code::Wide => out.extend([bits.number(32)? as u32, bits.number(32)? as u32]),
        Code::Entity => {
            let name = bits.exp_golomb(8)?;
            out.extend([name as u32, (name >> 32) as u32]);
        }
        Code::Float => {
            let word = bits.number(32)? as u32;
            let float = f32::from_bits(word);
            if !float.is_finite() || (float == 0.0 && float.is_sign_negative()) {
                return Err(Fault::Malformed("a float that is no number, or -0.0"));
            }
            out.push(word);
        }
        Code::Quat { bits: width } => {
            let mut words = [bits.number(2)? as u32, 0, 0, 0];
            for word in &mut words[1..] {
                *word = bits.number(width)? as u32;
            }
            check_quat(words, width)?;
            out.extend(words);
        }
        Code::Text { cap } => read_bytes(bits, cap, true, out)?,
        Code::Bytes { cap } => read_bytes(bits, cap, false, out)?,
        Code::Maybe { .. } => unreachable!("read_value reads those"),
    }
    Ok(())
}

fn read_bytes(bits: &mut Bits<'_>, cap: u32, is_text: bool, out: &mut Vec<u32>) -> Result<(), Fault> {
    let length = within(bits.number(bits_for(cap))? as i64, cap)?;
    let mut bytes = Vec::new();
    for _ in 0..length {
        bytes.push(bits.number(8)? as u8);
    }
    if is_text && std::str::from_utf8(&bytes).is_err() {
        return Err(Fault::Malformed("a text that is no UTF-8"));
    }
    bytes.resize((cap as usize).div_ceil(4) * 4, 0);
    out.push(length);
    out.extend(bytes.chunks(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
    Ok(())
}

fn within(value: i64, max: u32) -> Result<u32, Fault> {
    u32::try_from(value).ok().filter(|value| *value <= max).ok_or(Fault::Malformed("a word beyond its range"))
}

/// Whether the words are those of a rotation whose largest part is the one left out.
fn check_quat(words: [u32; 4], width: u32) -> Result<(), Fault> {
    let half = (1i64 << (width - 1)) - 1;
    let mut left = 2 * half * half;
    for word in &words[1..] {
        if i64::from(*word) > 2 * half {
            return Err(Fault::Malformed("a part of a rotation beyond its range"));
        }
        left -= (i64::from(*word) - half).pow(2);
    }
    for (index, word) in words[1..].iter().enumerate() {
        let part = i64::from(*word) - half;
        // The three parts keep their order, so those below the index of the largest stand before it.
        let before = (index as u32) < words[0];
        let least = part * part + if before { part.abs() } else { 0 };
        if left < least {
            return Err(Fault::Malformed("a rotation whose left out part is not the largest"));
        }
    }
    Ok(())
}
