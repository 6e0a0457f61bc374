//! One entry of a state packet: some rows of one block of 64, with the same baseline and sample tick. Writer and reader side by
//! side.
//!
//! ```text
//! bits  field
//!    1  1: an entry follows (0 ends the packet)
//!  1 +  block: 1 = the one after the entry before; 01 = the same one; 00 = its number, Exp-Golomb 4
//!  1 +  baseline: 0 = the packet's; 1 and 6 bits of age in send ticks, 0 = none, the values are absolute
//!  1 +  sample age in ticks: 0 = as in the entry before (at first 0); 1 and the age, Exp-Golomb 3
//!    1  rested: some rows had been at rest until the send before
//!  1 +  components: 1 = as in the entry before; 0 and a bit for each column, presence first
//!    *  for each component a mask of rows; from the second on after a bit: 1 = as the one before, 0 = its own
//!    *  if rested: a bit for each row of any mask, ascending: had it been at rest?
//!    *  the values: component by component, row by row, each as its layout says
//! ```
//!
//! A mask is 2 bits of mode, then: 0 the rows that are in it, 1 nothing (all 64), 2 the rows that are not in it, 3 the 64 bits.
//! Rows are listed as their number − 1 (Exp-Golomb 3) and the gaps between them (Exp-Golomb of order
//! ⌊log₂(64 ÷ number)⌋ − 1, at least 0).

use smallvec::SmallVec;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// The largest sample age that is told, in ticks; older samples are told as this old.
pub(crate) const SAMPLE_AGE: u64 = 255;

/// What an entry's fields are coded against: the entry before in the same packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// The entry before's block + 1.
    next_block: u32,
    sample_age: u64,
    components: u64,
}

/// A component's rows in an entry.
pub(crate) type Masks = SmallVec<[(u8, u64); 8]>;

/// The head of an entry, without the values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) block: u32,
    pub(crate) base: EntryBase,
    pub(crate) sample_age: u64,
    /// Components in ascending order, none empty.
    pub(crate) masks: Masks,
    /// Rows that had been at rest.
    pub(crate) rested: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EntryBase {
    /// The packet's.
    #[default]
    Packet,
    /// This one; `None`: absolute values.
    Own(Option<Tick>),
}

impl Entry {
    fn components(&self) -> u64 {
        self.masks.iter().fold(0, |set, m| set | 1 << m.0)
    }

    fn rows(&self) -> u64 {
        self.masks.iter().fold(0, |rows, m| rows | m.1)
    }

    /// Writes the head, the leading 1 bit included.
    pub(crate) fn write(&self, context: &mut Context, columns: usize, send_tick: Tick, w: &mut BitWriter) {
        debug_assert!(!self.masks.is_empty() && self.masks.iter().all(|m| m.1 != 0));
        w.flag(true);
        if self.block == context.next_block {
            w.flag(true);
        } else if self.block + 1 == context.next_block {
            w.put(0b10, 2);
        } else {
            w.put(0, 2);
            w.golomb(u64::from(self.block), 4);
        }
        match self.base {
            EntryBase::Packet => w.flag(false),
            EntryBase::Own(base) => {
                w.flag(true);
                w.put(base.map_or(0, |b| send_tick.since(b)), 6);
            }
        }
        w.flag(self.sample_age != context.sample_age);
        if self.sample_age != context.sample_age {
            w.golomb(self.sample_age, 3);
        }
        w.flag(self.rested != 0);
        let components = self.components();
        w.flag(components == context.components);
        if components != context.components {
            w.put(components, columns as u32);
        }
        let mut before = None;
        for &(_, mask) in &self.masks {
            if before.is_some() {
                w.flag(before == Some(mask));
            }
            if before != Some(mask) {
                write_mask(mask, w);
            }
            before = Some(mask);
        }
        if self.rested != 0 {
            for row in bits(self.rows()) {
                w.flag(self.rested >> row & 1 != 0);
            }
        }
        *context = Context { next_block: self.block + 1, sample_age: self.sample_age, components };
    }

    /// Reads the next head; `None` at the end of the packet.
    pub(crate) fn read(
        context: &mut Context,
        columns: usize,
        send_tick: Tick,
        r: &mut BitReader<'_>,
    ) -> Result<Option<Self>, BitError> {
        if !r.flag()? {
            return Ok(None);
        }
        let block = if r.flag()? {
            u64::from(context.next_block)
        } else if r.flag()? {
            u64::from(context.next_block).checked_sub(1).ok_or(BitError::OutOfRange)?
        } else {
            r.golomb(4)?
        };
        if block >= (limits::ROWS / 64) as u64 {
            return Err(BitError::OutOfRange);
        }
        let block = block as u32;
        let base = if r.flag()? { EntryBase::Own(read_base(send_tick, r)?) } else { EntryBase::Packet };
        let sample_age = if r.flag()? { r.golomb(3)? } else { context.sample_age };
        if sample_age > SAMPLE_AGE {
            return Err(BitError::OutOfRange);
        }
        let any_rested = r.flag()?;
        let components = if r.flag()? { context.components } else { r.get(columns as u32)? };
        if components == 0 {
            return Err(BitError::OutOfRange);
        }
        let mut masks = Masks::new();
        let mut before = None;
        for c in bits(components) {
            let mask = match before {
                Some(mask) if r.flag()? => mask,
                _ => read_mask(r)?,
            };
            before = Some(mask);
            masks.push((c as u8, mask));
        }
        let mut entry = Self { block, base, sample_age, masks, rested: 0 };
        if any_rested {
            for row in bits(entry.rows()) {
                entry.rested |= u64::from(r.flag()?) << row;
            }
        }
        *context = Context { next_block: block + 1, sample_age, components };
        Ok(Some(entry))
    }
}

pub(crate) fn read_base(send_tick: Tick, r: &mut BitReader<'_>) -> Result<Option<Tick>, BitError> {
    match r.get(6)? {
        0 => Ok(None),
        age if age > limits::BASE_AGE => Err(BitError::OutOfRange),
        age => Ok(Some(Tick(send_tick.0.checked_sub(age).ok_or(BitError::OutOfRange)?))),
    }
}

fn write_mask(mask: u64, w: &mut BitWriter) {
    match mask.count_ones() {
        64 => w.put(1, 2),
        1..=24 => {
            w.put(0, 2);
            write_rows(mask, w);
        }
        40..=63 => {
            w.put(2, 2);
            write_rows(!mask, w);
        }
        _ => {
            w.put(3, 2);
            w.put(mask, 64);
        }
    }
}

/// Never gives an empty mask.
fn read_mask(r: &mut BitReader<'_>) -> Result<u64, BitError> {
    let mask = match r.get(2)? {
        0 => read_rows(r)?,
        1 => u64::MAX,
        2 => !read_rows(r)?,
        _ => r.get(64)?,
    };
    if mask == 0 { Err(BitError::OutOfRange) } else { Ok(mask) }
}

fn gap_order(count: u32) -> u32 {
    (64 / count).ilog2().saturating_sub(1)
}

fn write_rows(mask: u64, w: &mut BitWriter) {
    let count = mask.count_ones();
    w.golomb(u64::from(count - 1), 3);
    let mut next = 0;
    for row in bits(mask) {
        w.golomb(u64::from(row - next), gap_order(count));
        next = row + 1;
    }
}

fn read_rows(r: &mut BitReader<'_>) -> Result<u64, BitError> {
    let count = r.golomb(3)? + 1;
    if count > 64 {
        return Err(BitError::OutOfRange);
    }
    let mut mask = 0u64;
    let mut next = 0;
    for _ in 0..count {
        let row = r.golomb(gap_order(count as u32))?.checked_add(next).filter(|row| *row < 64).ok_or(BitError::OutOfRange)?;
        mask |= 1 << row;
        next = row + 1;
    }
    Ok(mask)
}

/// The numbers of the bits that are set, ascending.
#[inline]
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let bit = mask.trailing_zeros();
        mask &= mask - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: usize = 9;
    const TICK: Tick = Tick(1000);

    fn mask() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(u64::MAX),
            any::<u64>(),
            (0u32..64).prop_map(|b| 1 << b),
            any::<u64>().prop_map(|x| x & x >> 1 & x >> 2),
            any::<u64>().prop_map(|x| x | x >> 1 | x << 2)
        ]
        .prop_map(|m| if m == 0 { 1 } else { m })
    }

    prop_compose! {
        fn entry()(block in 0u32..20, base in prop::option::of(prop::option::of(1u64..=62)), sample_age in prop_oneof![Just(0u64), 0u64..=255],
            components in prop::collection::btree_set(0u8..COLUMNS as u8, 1..5), masks in prop::collection::vec(mask(), 5), same in any::<bool>(), rested in prop_oneof![Just(0u64), any::<u64>()]) -> Entry
        {
            let masks: Masks = components.iter().enumerate().map(|(i, c)| (*c, masks[if same { 0 } else { i }])).collect();
            let base = base.map_or(EntryBase::Packet, |age| EntryBase::Own(age.map(|a| TICK.minus(a))));
            let rows = masks.iter().fold(0, |a, m| a | m.1);
            Entry { block, base, sample_age, masks, rested: rested & rows }
        }
    }

    proptest! {
        #[test]
        fn entries_are_read_as_written(entries in prop::collection::vec(entry(), 0..12)) {
            let mut w = BitWriter::new();
            let mut context = Context::default();
            for e in &entries { e.write(&mut context, COLUMNS, TICK, &mut w); }
            w.flag(false);
            let bytes = w.to_bytes();
            let mut r = BitReader::new(&bytes);
            let mut context = Context::default();
            for e in &entries { prop_assert_eq!(Entry::read(&mut context, COLUMNS, TICK, &mut r).unwrap(), Some(e.clone())); }
            prop_assert_eq!(Entry::read(&mut context, COLUMNS, TICK, &mut r), Ok(None));
            prop_assert!(r.finish().is_ok());
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut r = BitReader::new(&bytes);
            let mut context = Context::default();
            while let Ok(Some(e)) = Entry::read(&mut context, COLUMNS, TICK, &mut r) { prop_assert!(e.masks.iter().all(|m| m.1 != 0)); }
        }
    }
}
