//! How the components in one packet are coded: what guesses of masks and values are made from, and with which tables the surprise is
//! written. It stands in front of the entries, so that whoever sends can choose what fits.
//!
//! ```text
//! bits  field
//!    C  components: a bit for each column that occurs in the packet, presence first
//!  1 +  1 and the session ticks between baseline and now, Exp-Golomb 3: some component goes on by its velocity; or 0
//!       then for each component that occurs:
//!    2    masks (of blocks only): 0 as they are; 1, 2 as the difference to a guess: that rows change which changed in the send that
//!         is the baseline; that rows change whose component before, of those that occur, does
//!    1    1: values are differences to the baseline, with the usual tables for its age; else 0 and
//!    2      what the guess is made from: 0 the baseline alone, 1 the last motion, 2 a velocity
//!    6 +    the table of the first field that has one: 0 to 62 a fixed one, or 63 and the number of a trained one, in as many bits as
//!         the greatest number has
//!  1 +      for each further one: 1 the same table, or 0 and its number like that
//! ```

use crate::block::bits;
use crate::codes::{self, Chosen};
use crate::forecast::Forecast;
use crate::layout::Layout;
use crate::schema::Inner;
use crate::trained::Tables;
use smallvec::SmallVec;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};
use tidelock_netcore::limits;

/// What a component's masks are differences to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MaskGuess {
    /// No rows: they are written as they are.
    #[default]
    Nothing,
    /// The rows that changed in the baseline's send.
    Base,
    /// The rows of the component before.
    Before,
}

/// How one component is coded.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Coding {
    pub(crate) mask: MaskGuess,
    pub(crate) forecast: Forecast,
    /// By field that has one; empty: the usual ones.
    pub(crate) tables: SmallVec<[u8; 8]>,
}

impl Clone for Coding {
    fn clone(&self) -> Self {
        Self { mask: self.mask, forecast: self.forecast, tables: self.tables.clone() }
    }

    // as it would be derived, a component of many fields would allocate in every send
    fn clone_from(&mut self, other: &Self) {
        (self.mask, self.forecast) = (other.mask, other.forecast);
        self.tables.clear();
        self.tables.extend_from_slice(&other.tables);
    }
}

/// How all are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Codings {
    /// By column.
    pub(crate) components: Vec<Coding>,
    /// Session ticks from the baseline to now; only told where a velocity is used.
    pub(crate) elapsed: u64,
    /// The session's trained tables.
    pub(crate) trained: Option<Tables>,
}

impl Codings {
    /// Everything as usual.
    pub(crate) fn reset(&mut self, columns: usize) {
        self.components.resize(columns, Coding::default());
        for coding in &mut self.components {
            (coding.mask, coding.forecast) = (MaskGuess::Nothing, Forecast::Still);
            coding.tables.clear();
        }
        self.elapsed = 0;
    }

    /// The components of these whose guesses are made from what was before the baseline, as bits.
    pub(crate) fn looks_back(&self, components: u64) -> u64 {
        let back = |c: &u32| self.components[*c as usize].forecast == Forecast::Motion;
        bits(components).filter(back).fold(0, |all, c| all | 1 << c)
    }

    /// The tables of a component in plain entries against a baseline of that age.
    #[inline]
    pub(crate) fn tables<'a>(&'a self, c: usize, layout: &'a Layout, age: u64) -> Chosen<'a> {
        let own = &self.components[c].tables;
        let indices = if own.is_empty() { layout.tables(age) } else { own };
        Chosen::among(indices, Tables::codes(self.trained.as_ref()))
    }

    /// Writes how these components are coded; `blocks`: they come in blocks, with masks.
    pub(crate) fn write(&self, components: u64, blocks: bool, w: &mut BitWriter) {
        let trained = Tables::codes(self.trained.as_ref()).len();
        w.put(components, self.components.len() as u32);
        let moves = bits(components).any(|c| self.components[c as usize].forecast == Forecast::Velocity);
        w.flag(moves);
        if moves {
            w.golomb(self.elapsed, 3);
        }
        for coding in bits(components).map(|c| &self.components[c as usize]) {
            if blocks {
                w.put(coding.mask as u64, 2);
            }
            w.flag(coding.tables.is_empty());
            let Some((&first, rest)) = coding.tables.split_first() else { continue };
            w.put(coding.forecast as u64, 2);
            write_table(trained, first, w);
            let mut before = first;
            for &table in rest {
                w.flag(table == before);
                if table != before {
                    write_table(trained, table, w);
                }
                before = table;
            }
        }
    }

    /// Reads it; gives the components.
    pub(crate) fn read(&mut self, schema: &Inner, blocks: bool, r: &mut BitReader<'_>) -> Result<u64, BitError> {
        let columns = schema.columns();
        self.reset(columns);
        let trained = Tables::codes(self.trained.as_ref()).len();
        let components = r.get(columns as u32)?;
        let moves = r.flag()?;
        if moves {
            self.elapsed = r.golomb(3)?;
            if self.elapsed > limits::ELAPSED {
                return Err(BitError::OutOfRange);
            }
        }
        for c in bits(components) {
            let (coding, layout) = (&mut self.components[c as usize], schema.layout(c as usize));
            if blocks {
                coding.mask = match r.get(2)? {
                    0 => MaskGuess::Nothing,
                    1 => MaskGuess::Base,
                    2 => MaskGuess::Before,
                    _ => return Err(BitError::OutOfRange),
                };
            }
            if r.flag()? {
                continue;
            }
            let known = schema.velocity(c as usize).is_some() && moves;
            coding.forecast = match r.get(2)? {
                0 => Forecast::Still,
                1 => Forecast::Motion,
                2 if known => Forecast::Velocity,
                _ => return Err(BitError::OutOfRange),
            };
            let mut table = read_table(trained, r)?;
            coding.tables.push(table);
            for _ in 1..layout.tables(1).len() {
                if !r.flag()? {
                    table = read_table(trained, r)?;
                }
                coding.tables.push(table);
            }
            if layout.tables(1).is_empty() {
                return Err(BitError::OutOfRange);
            }
        }
        Ok(components)
    }
}

fn write_table(trained: usize, table: u8, w: &mut BitWriter) {
    match table.checked_sub(codes::TRAINED) {
        None => w.put(table.into(), 6),
        Some(number) => w.put(u64::from(number) << 6 | TRAINED, 6 + codes::number_bits(trained)),
    }
}

/// `trained`: how many trained tables there are.
fn read_table(trained: usize, r: &mut BitReader<'_>) -> Result<u8, BitError> {
    let table = r.get(6)?;
    if table != TRAINED {
        return Ok(table as u8);
    }
    let number = r.get(codes::number_bits(trained))? as u8;
    if usize::from(number) < trained { Ok(codes::TRAINED + number) } else { Err(BitError::OutOfRange) }
}

/// In place of a fixed table's number: that of a trained one follows.
const TRAINED: u64 = codes::TABLES as u64;
const _: () = assert!(TRAINED == 63);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Host;
    use crate::{Replicate, Schema, SchemaMistake};

    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct Place(#[net(step = 0.01, range = -100.0..=100.0)] f32);

    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct Speed(#[net(step = 0.1, range = -50.0..=50.0)] f32);

    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct Flag(bool);

    #[derive(Clone, Copy, Default)]
    struct Thing;

    /// Columns: presence, flag, place, speed.
    fn schema() -> Schema {
        let builder = Schema::builder("codings").component::<Place>("place", |c| c.velocity::<Speed>());
        let builder = builder.component::<Speed>("speed", |c| c).component::<Flag>("flag", |c| c);
        builder.kind::<Thing>("thing", Host::default()).build().unwrap()
    }

    fn read(write: impl FnOnce(&mut BitWriter)) -> Result<u64, BitError> {
        let mut w = BitWriter::new();
        write(&mut w);
        Codings::default().read(&schema().0, true, &mut BitReader::new(&w.to_bytes()))
    }

    /// Column 2 goes on by its velocity, `elapsed` ticks, with this table.
    fn moves(elapsed: u64, forecast: u64, table: u64) -> impl FnOnce(&mut BitWriter) {
        move |w| {
            w.put(0b100, 4);
            w.flag(true);
            w.golomb(elapsed, 3);
            w.put(0, 2);
            w.flag(false);
            w.put(forecast, 2);
            w.put(table, 6);
            w.put(0, 6); // the number of a trained one, where there is one to be
        }
    }

    #[test]
    fn what_no_honest_sender_says_is_refused() {
        assert_eq!(read(moves(limits::ELAPSED, 2, 62)), Ok(0b100));
        assert_eq!(read(moves(limits::ELAPSED + 1, 2, 62)), Err(BitError::OutOfRange), "further than a packet may speak of");
        assert_eq!(read(moves(3, 2, 63)), Err(BitError::OutOfRange), "there are no trained tables");
        assert_eq!(read(moves(3, 3, 0)), Err(BitError::OutOfRange), "there is no fourth guess");
        let other = |column: u64| {
            move |w: &mut BitWriter| {
                w.put(column, 4);
                w.flag(true);
                w.golomb(3, 3);
                w.put(0, 2);
                w.flag(false);
                w.put(2, 2);
                w.put(0, 6);
            }
        };
        assert_eq!(read(other(0b1000)), Err(BitError::OutOfRange), "nothing says how a speed changes");
        assert_eq!(read(other(0b10)), Err(BitError::OutOfRange), "a flag has no table");
    }

    /// Which trained tables there are is known from elsewhere: what names another is refused, and so is every part of it.
    #[test]
    fn a_trained_table_is_named_by_its_number() {
        // one whose only codes are those of 0 and of the escape, and one of 0, 1 and the escape
        let mut bytes = vec![1, 2];
        bytes.extend([[1, 0], [1, 2]].iter().flat_map(|first| first.iter().copied().chain([0; 34]).chain([1])));
        (bytes[2], bytes[39], bytes[75]) = (1, 1 | 2 << 4, 2);
        bytes[40] = 0;
        let tables = Tables::from_bytes(&bytes).unwrap();
        let mut said = Codings { trained: Some(tables.clone()), ..Codings::default() };
        said.reset(4);
        said.components[2].tables.push(codes::TRAINED + 1);
        said.components[3].tables.push(7);
        let mut w = BitWriter::new();
        said.write(0b1100, true, &mut w);
        let bytes = w.to_bytes();
        let schema = schema();
        let read = |bytes: &[u8], trained: Option<Tables>| {
            let mut codings = Codings { trained, ..Codings::default() };
            codings.read(&schema.0, true, &mut BitReader::new(bytes)).map(|components| (components, codings))
        };
        assert_eq!(read(&bytes, Some(tables.clone())), Ok((0b1100, said.clone())));
        assert_eq!(read(&bytes, None), Err(BitError::OutOfRange), "the session has no trained tables");
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], Some(tables.clone())), Err(BitError::Truncated), "{cut} bytes");
        }
        // of three tables the number has two bits, of which the last is more than there are
        let mut three = tables.to_bytes();
        three[1] = 3;
        three.extend_from_within(2..39);
        said.trained = Some(Tables::from_bytes(&three).unwrap());
        for (table, read_as) in [(2, Ok(())), (3, Err(BitError::OutOfRange))] {
            said.components[2].tables[0] = codes::TRAINED + table;
            w.clear();
            said.write(0b1100, true, &mut w);
            assert_eq!(read(&w.to_bytes(), said.trained.clone()).map(|_| ()), read_as, "table {table} of three");
        }
    }

    #[test]
    fn a_velocity_must_be_a_component_with_as_many_numbers() {
        let unknown =
            Schema::builder("v").component::<Place>("place", |c| c.velocity::<Speed>()).kind::<Thing>("thing", Host::default());
        let unlike = Schema::builder("v").component::<Place>("place", |c| c.velocity::<Flag>());
        let unlike = unlike.component::<Flag>("flag", |c| c).kind::<Thing>("thing", Host::default());
        for builder in [unknown, unlike] {
            let mistakes = builder.build().unwrap_err().0;
            assert_eq!(mistakes, [SchemaMistake::Velocity("place".into())]);
        }
    }
}
