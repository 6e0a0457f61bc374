//! Section 2.6 of `docs/WIRE.md`: the list of rows, which stands in place of entries for who does not see everything.

use std::fmt::{self, Display, Formatter};

use super::bits::Bits;
use super::packet::{Known, Packet, Value, or_none, read_base};
use super::values::{Base, read_value};
use super::{Fault, Schema};

/// The list of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    pub order: u32,
    pub sample_age: u64,
    pub mixed: bool,
    pub rested: bool,
    pub rows: Vec<Row>,
}

/// What a list says of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub row: u64,
    pub base: Option<u64>,
    /// It names its baseline, instead of taking that of the row before.
    pub own_base: bool,
    /// It names its components, instead of taking those of the row before.
    pub own_components: bool,
    /// By component, ascending.
    pub ages: Vec<u64>,
    pub rested: bool,
    pub values: Vec<Value>,
}

/// What the row before left behind.
struct Before {
    next: u64,
    base: Option<u64>,
    components: Vec<usize>,
    age: u64,
}

/// Reads what follows the header, up to the end.
pub fn read_list_of_rows(bits: &mut Bits<'_>, packet: &Packet, known: Known<'_>) -> Result<List, Fault> {
    let count = bits.exp_golomb(4)?;
    if count > 8192 {
        return Err(Fault::Malformed("a list of too many rows"));
    }
    let order = bits.number(3)? as u32;
    let sample_age = read_age(bits)?;
    let (mixed, rested) = (bits.bit()?, bits.bit()?);
    let mut list = List { order, sample_age, mixed, rested, rows: Vec::new() };
    let mut before = Before { next: 0, base: packet.base, components: Vec::new(), age: sample_age };
    for _ in 0..count {
        let row = read_row(bits, packet, known, &list, &mut before)?;
        list.rows.push(row);
    }
    Ok(list)
}

fn read_age(bits: &mut Bits<'_>) -> Result<u64, Fault> {
    let age = bits.exp_golomb(3)?;
    if age > 255 { Err(Fault::Malformed("a sample that is too old")) } else { Ok(age) }
}

fn read_row(bits: &mut Bits<'_>, packet: &Packet, known: Known<'_>, list: &List, before: &mut Before) -> Result<Row, Fault> {
    let row = before.next.saturating_add(bits.exp_golomb(list.order)?);
    if row >= known.blocks * 64 {
        return Err(Fault::Malformed("a row beyond those of the publisher"));
    }
    let own_base = !bits.bit()?;
    if own_base {
        before.base = read_base(bits, packet.send_tick)?;
    }
    let own_components = !bits.bit()?;
    if own_components {
        let set = bits.number(1 + known.schema.components.len() as u32)?;
        before.components = (0..64).filter(|component| set >> component & 1 == 1).collect();
    }
    if before.components.is_empty() {
        return Err(Fault::Malformed("a row without components"));
    }
    let mut ages = Vec::new();
    for _ in &before.components {
        if list.mixed && !bits.bit()? {
            before.age = read_age(bits)?;
        }
        ages.push(before.age);
    }
    let rested = list.rested && bits.bit()?;
    before.next = row + 1;
    let newest = packet.send_tick.max(known.greatest_send_tick);
    if before.base.is_some_and(|base| base + 64 <= newest) {
        return Err(Fault::Useless("a row's baseline is no longer kept"));
    }
    let mut values = Vec::new();
    for component in &before.components {
        values.push(read_one(bits, packet, known, row, *component, before.base)?);
    }
    Ok(Row { row, base: before.base, own_base, own_components, ages, rested, values })
}

/// Presence and what names entities is absolute whatever the baseline is.
fn is_absolute(schema: &Schema, component: usize) -> bool {
    component == 0 || schema.names_entities(component)
}

fn read_one(
    bits: &mut Bits<'_>,
    packet: &Packet,
    known: Known<'_>,
    row: u64,
    component: usize,
    base: Option<u64>,
) -> Result<Value, Fault> {
    let base = base.filter(|_| !is_absolute(known.schema, component));
    let old = base.map(|base| (known.mirror.in_force(known.schema, component, row, base), packet.send_tick - base));
    let base = old.as_ref().map(|(words, age)| Base { words, age: *age });
    let words = read_value(bits, known.schema.fields(component), base)?;
    Ok(Value { component, row, words })
}

impl Display for List {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mixed = if self.mixed { " mixed" } else { "" };
        let rested = if self.rested { " some rested" } else { "" };
        writeln!(f, "  list of {} order {} sample age {}{mixed}{rested}", self.rows.len(), self.order, self.sample_age)?;
        for row in &self.rows {
            let own = if row.own_base { "own base" } else { "base" };
            let named = if row.own_components { "" } else { " same components" };
            let rested = if row.rested { " rested" } else { "" };
            writeln!(f, "    row {} {own} {} ages {:?}{named}{rested}", row.row, or_none(row.base), row.ages)?;
            for value in &row.values {
                writeln!(f, "      component {} {:?}", value.component, value.words)?;
            }
        }
        Ok(())
    }
}
