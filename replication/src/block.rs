//! One entry of a state packet: some rows of one block of 64, with the same baseline and sample tick. Writer and reader side by
//! side.
//!
//! ```text
//! bits  field
//!    1  0: the next block, with the packet's baseline, guessed masks, the sample age of the entry before (at first 0), and no row
//!       that had been at rest: the masks follow
//!    1  else: 1: an entry follows, and what is said above in one bit is said field by field; 0 ends the packet
//!  1 +  block: 1 = the one after the entry before; 01 = the same one; 00 = its number, Exp-Golomb 4
//!  1 +  baseline: 0 = the packet's, and a bit, 1: masks are guessed; 1 and 6 bits of age in send ticks, 0 = none, the values are
//!       absolute
//!  1 +  sample age in ticks: 0 = as in the entry before; 1 and the age, Exp-Golomb 3
//!    1  rested: some rows had been at rest until the send before
//!    *  for each component that occurs in the packet, a mask of rows
//!    *  if rested: a bit for each row of any mask, ascending: had it been at rest?
//!    *  the values: component by component, row by row, each as its layout says
//! ```
//!
//! A mask is written as its difference to a guess, where its component is coded so ([codings](crate::codings)) and, for the guess
//! from the baseline, the entry says that masks are guessed: the guess is no rows otherwise. The difference is 0: none; or 1 and then
//! 0: some rows; 10: all 64; 110: all but some rows; 111: the 64 bits. Rows are listed as their number − 1 (Exp-Golomb 0), and
//! then a single one in 6 bits, several by the gaps between them (Exp-Golomb of order ⌊log₂(64 ÷ number)⌋ − 1, at least 0).
//!
//! In an entry with a baseline of its own, values are differences to that baseline, with the usual tables for its age.

use crate::codings::{Codings, MaskGuess};
use smallvec::SmallVec;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// What ends a packet's entries, in two bits.
pub(crate) const END: u64 = 0b01;
/// The largest sample age that is told, in ticks; older samples are told as this old.
pub(crate) const SAMPLE_AGE: u64 = 255;

/// What an entry's fields are coded against: the entry before in the same packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// The entry before's block + 1.
    next_block: u32,
    sample_age: u64,
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
    /// Both sides know which rows of the block were sent in the baseline's send: masks are guessed from it.
    pub(crate) guessed: bool,
}

/// What entries of one packet have in common.
#[derive(Clone, Copy)]
pub(crate) struct Common<'a> {
    /// The components that occur, as bits.
    pub(crate) components: u64,
    pub(crate) codings: &'a Codings,
    pub(crate) send_tick: Tick,
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
    fn rows(&self) -> u64 {
        self.masks.iter().fold(0, |rows, m| rows | m.1)
    }

    /// Writes the head. `then`: the rows whose component changed in the baseline's send.
    pub(crate) fn write(&self, context: &mut Context, common: Common<'_>, then: impl Fn(usize) -> u64, w: &mut BitWriter) {
        debug_assert!(!self.masks.is_empty() && self.masks.iter().all(|m| m.1 != 0 && common.components >> m.0 & 1 != 0));
        let plain = self.base == EntryBase::Packet;
        let ages = self.sample_age == context.sample_age;
        if plain && self.guessed && ages && self.rested == 0 && self.block == context.next_block {
            w.flag(false);
        } else {
            w.put(0b11, 2);
            if self.block == context.next_block {
                w.flag(true);
            } else if self.block + 1 == context.next_block {
                w.put(0b10, 2);
            } else {
                w.put(0, 2);
                w.golomb(u64::from(self.block), 4);
            }
            match self.base {
                EntryBase::Packet => w.put(u64::from(self.guessed) << 1, 2),
                EntryBase::Own(base) => {
                    w.flag(true);
                    w.put(base.map_or(0, |b| common.send_tick.since(b)), 6);
                }
            }
            w.flag(!ages);
            if !ages {
                w.golomb(self.sample_age, 3);
            }
            w.flag(self.rested != 0);
        }
        let (mut masks, mut before) = (self.masks.iter().peekable(), 0);
        for c in bits(common.components) {
            let mask = masks.next_if(|m| u32::from(m.0) == c).map_or(0, |m| m.1);
            let guess = common.codings.components[c as usize].mask.rows(plain && self.guessed, before, || then(c as usize));
            write_mask(mask ^ guess, w);
            before = mask;
        }
        if self.rested != 0 {
            for row in bits(self.rows()) {
                w.flag(self.rested >> row & 1 != 0);
            }
        }
        *context = Context { next_block: self.block + 1, sample_age: self.sample_age };
    }

    /// Reads the next head; `None` at the end of the packet. `then`: the rows of a block whose component changed in the baseline's
    /// send.
    pub(crate) fn read(
        context: &mut Context,
        common: Common<'_>,
        then: impl Fn(usize, u32) -> u64,
        r: &mut BitReader<'_>,
    ) -> Result<Option<Self>, BitError> {
        let mut entry = Self { block: context.next_block, sample_age: context.sample_age, guessed: true, ..Self::default() };
        let mut any_rested = false;
        if r.flag()? {
            if !r.flag()? {
                return Ok(None);
            }
            any_rested = entry.read_head(common.send_tick, r)?;
        }
        if entry.block as usize >= limits::ROWS / 64 {
            return Err(BitError::OutOfRange);
        }
        let mut before = 0;
        for c in bits(common.components) {
            let guess = common.codings.components[c as usize].mask.rows(entry.guessed, before, || then(c as usize, entry.block));
            let mask = read_mask(r)? ^ guess;
            if mask != 0 {
                entry.masks.push((c as u8, mask));
            }
            before = mask;
        }
        if entry.masks.is_empty() {
            return Err(BitError::OutOfRange);
        }
        if any_rested {
            for row in bits(entry.rows()) {
                entry.rested |= u64::from(r.flag()?) << row;
            }
        }
        *context = Context { next_block: entry.block + 1, sample_age: entry.sample_age };
        Ok(Some(entry))
    }

    /// What a plain entry leaves out; says whether some rows had been at rest.
    fn read_head(&mut self, send_tick: Tick, r: &mut BitReader<'_>) -> Result<bool, BitError> {
        if !r.flag()? {
            let block = if r.flag()? { u64::from(self.block).checked_sub(1).ok_or(BitError::OutOfRange)? } else { r.golomb(4)? };
            if block >= (limits::ROWS / 64) as u64 {
                return Err(BitError::OutOfRange);
            }
            self.block = block as u32;
        }
        if r.flag()? {
            (self.base, self.guessed) = (EntryBase::Own(read_base(send_tick, r)?), false);
        } else {
            self.guessed = r.flag()?;
        }
        if r.flag()? {
            self.sample_age = r.golomb(3)?;
            if self.sample_age > SAMPLE_AGE {
                return Err(BitError::OutOfRange);
            }
        }
        r.flag()
    }
}

impl MaskGuess {
    /// The guess: `then` are the rows that changed in the baseline's send.
    #[inline]
    fn rows(self, guessed: bool, before: u64, then: impl FnOnce() -> u64) -> u64 {
        match self {
            Self::Base if guessed => then(),
            Self::Before => before,
            _ => 0,
        }
    }
}

pub(crate) fn read_base(send_tick: Tick, r: &mut BitReader<'_>) -> Result<Option<Tick>, BitError> {
    match r.get(6)? {
        0 => Ok(None),
        age if age > limits::BASE_AGE => Err(BitError::OutOfRange),
        age => Ok(Some(Tick(send_tick.0.checked_sub(age).ok_or(BitError::OutOfRange)?))),
    }
}

#[inline]
fn write_mask(mask: u64, w: &mut BitWriter) {
    if mask == 0 {
        return w.flag(false);
    }
    match mask.count_ones() {
        64 => w.put(0b011, 3),
        1 => w.put(u64::from(mask.trailing_zeros()) << 3 | 0b001, 9),
        2..=24 => {
            w.put(0b01, 2);
            write_rows(mask, w);
        }
        40..=63 => {
            w.put(0b0111, 4);
            write_rows(!mask, w);
        }
        _ => {
            w.put(0b1111, 4);
            w.put(mask, 64);
        }
    }
}

fn read_mask(r: &mut BitReader<'_>) -> Result<u64, BitError> {
    if !r.flag()? {
        Ok(0)
    } else if !r.flag()? {
        read_rows(r)
    } else if !r.flag()? {
        Ok(u64::MAX)
    } else if !r.flag()? {
        Ok(!read_rows(r)?)
    } else {
        r.get(64)
    }
}

fn gap_order(count: u32) -> u32 {
    (64 / count).ilog2().saturating_sub(1)
}

fn write_rows(mask: u64, w: &mut BitWriter) {
    let count = mask.count_ones();
    w.golomb(u64::from(count - 1), 0);
    if count == 1 {
        return w.put(mask.trailing_zeros().into(), 6);
    }
    let mut next = 0;
    for row in bits(mask) {
        w.golomb(u64::from(row - next), gap_order(count));
        next = row + 1;
    }
}

fn read_rows(r: &mut BitReader<'_>) -> Result<u64, BitError> {
    let count = r.golomb(0)?.saturating_add(1);
    if count > 64 {
        return Err(BitError::OutOfRange);
    }
    if count == 1 {
        return Ok(1 << r.get(6)?);
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

/// Leaves out rows until about `room` of `size` bits remain; of a single row, components. `false` if nothing can stay.
pub(crate) fn cut(masks: &mut Masks, room: usize, size: usize) -> bool {
    let rows = masks.iter().fold(0, |rows, m| rows | m.1);
    let count = rows.count_ones() as usize;
    if count > 1 {
        let keep = (count * room / size).min(count - 1);
        let kept = bits(rows).take(keep).fold(0u64, |kept, row| kept | 1 << row);
        masks.iter_mut().for_each(|m| m.1 &= kept);
        masks.retain(|m| m.1 != 0);
        return keep > 0;
    }
    let keep = (masks.len() * room / size).min(masks.len() - 1);
    masks.truncate(keep);
    keep > 0
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
            components in prop::collection::btree_set(0u8..COLUMNS as u8, 1..5), masks in prop::collection::vec(mask(), 5), same in any::<bool>(),
            rested in prop_oneof![Just(0u64), any::<u64>()], guessed in any::<bool>()) -> Entry
        {
            let masks: Masks = components.iter().enumerate().map(|(i, c)| (*c, masks[if same { 0 } else { i }])).collect();
            let base = base.map_or(EntryBase::Packet, |age| EntryBase::Own(age.map(|a| TICK.minus(a))));
            let rows = masks.iter().fold(0, |a, m| a | m.1);
            Entry { block, base, sample_age, masks, rested: rested & rows, guessed: guessed && base == EntryBase::Packet }
        }
    }

    fn codings(guesses: &[u8]) -> Codings {
        let mut codings = Codings::default();
        codings.reset(COLUMNS);
        for (coding, guess) in codings.components.iter_mut().zip(guesses) {
            coding.mask = [MaskGuess::Nothing, MaskGuess::Base, MaskGuess::Before][usize::from(*guess)];
        }
        codings
    }

    proptest! {
        #[test]
        fn entries_are_read_as_written(entries in prop::collection::vec(entry(), 0..12), guesses in prop::collection::vec(0u8..3, COLUMNS), then in mask()) {
            let codings = codings(&guesses);
            let components = entries.iter().flat_map(|e| &e.masks).fold(0, |set, m| set | 1 << m.0);
            let common = Common { components, codings: &codings, send_tick: TICK };
            let mut w = BitWriter::new();
            let mut context = Context::default();
            for e in &entries { e.write(&mut context, common, |c| then.rotate_left(c as u32), &mut w); }
            w.put(END, 2);
            let bytes = w.to_bytes();
            let mut r = BitReader::new(&bytes);
            let mut context = Context::default();
            let then = |c: usize, _: u32| then.rotate_left(c as u32);
            for e in &entries { prop_assert_eq!(Entry::read(&mut context, common, then, &mut r).unwrap(), Some(e.clone())); }
            prop_assert_eq!(Entry::read(&mut context, common, then, &mut r), Ok(None));
            prop_assert!(r.finish().is_ok());
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), guesses in prop::collection::vec(0u8..3, COLUMNS)) {
            let codings = codings(&guesses);
            let common = Common { components: 0b1_0110_1101, codings: &codings, send_tick: TICK };
            let mut r = BitReader::new(&bytes);
            let mut context = Context::default();
            while let Ok(Some(e)) = Entry::read(&mut context, common, |c, b| (c as u64).wrapping_shl(b), &mut r) { prop_assert!(e.masks.iter().all(|m| m.1 != 0)); }
        }
    }
}
