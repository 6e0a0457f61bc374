//! Section 2.6 of `docs/WIRE.md`: how the components in one packet are coded.

use super::bits::Bits;
use super::tables::{TABLES, TRAINED, has_table};
use super::{Fault, Schema};
use std::collections::BTreeMap;

/// What a component's masks are differences to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskGuess {
    NoRows,
    Baseline,
    Before,
}

/// What a component's values are differences to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forecast {
    Still,
    Motion,
    Velocity,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coding {
    pub masks: MaskGuess,
    pub forecast: Forecast,
    /// Named tables; none: the usual ones.
    pub tables: Option<Vec<usize>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codings {
    /// By component, of those that occur.
    pub components: BTreeMap<usize, Coding>,
    /// Session ticks from the baseline to now, where a velocity is used.
    pub elapsed: Option<u64>,
}

/// Reads what stands in front of the entries.
pub fn read_codings(bits: &mut Bits<'_>, schema: &Schema) -> Result<Codings, Fault> {
    let set = bits.number(1 + schema.components.len() as u32)?;
    let elapsed = if bits.bit()? { Some(bits.exp_golomb(3)?) } else { None };
    if elapsed.is_some_and(|elapsed| elapsed > 16_384) {
        return Err(Fault::Malformed("a baseline that is too long ago"));
    }
    let mut codings = Codings { elapsed, ..Codings::default() };
    for component in (0..64).filter(|component| set >> component & 1 == 1) {
        let coding = read_coding(bits, schema, component, elapsed.is_some())?;
        codings.components.insert(component, coding);
    }
    Ok(codings)
}

fn read_coding(bits: &mut Bits<'_>, schema: &Schema, component: usize, moves: bool) -> Result<Coding, Fault> {
    let masks = match bits.number(2)? {
        0 => MaskGuess::NoRows,
        1 => MaskGuess::Baseline,
        2 => MaskGuess::Before,
        _ => return Err(Fault::Malformed("a guess of masks that there is not")),
    };
    if bits.bit()? {
        return Ok(Coding { masks, forecast: Forecast::Still, tables: None });
    }
    let fields = schema.fields(component).iter().filter(|field| has_table(field.code)).count();
    if fields == 0 {
        return Err(Fault::Malformed("tables of a component without a field that has one"));
    }
    let forecast = match bits.number(2)? {
        0 => Forecast::Still,
        1 => Forecast::Motion,
        2 if moves && schema.velocity(component).is_some() => Forecast::Velocity,
        _ => return Err(Fault::Malformed("a guess that there is not, or not of this component")),
    };
    let mut tables = vec![read_table(bits, schema)?];
    for _ in 1..fields {
        let table = if bits.bit()? { tables[tables.len() - 1] } else { read_table(bits, schema)? };
        tables.push(table);
    }
    Ok(Coding { masks, forecast, tables: Some(tables) })
}

fn read_table(bits: &mut Bits<'_>, schema: &Schema) -> Result<usize, Fault> {
    let table = bits.number(6)? as usize;
    if table < TABLES {
        return Ok(table);
    }
    let width = usize::BITS - schema.trained.len().saturating_sub(1).leading_zeros();
    let number = bits.number(width)? as usize;
    if number < schema.trained.len() { Ok(TRAINED + number) } else { Err(Fault::Malformed("a table that there is not")) }
}
