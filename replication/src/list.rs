//! The sparse form of a state packet: a list of rows, each with a baseline of its own. Writer and reader side by side.
//!
//! ```text
//! bits  field
//!   EG  number of rows, Exp-Golomb 4
//!    3  k: order of the code for gaps
//!   EG  sample age in ticks, Exp-Golomb 3
//!    1  mixed: values of other ages are among them
//!    1  rested: some rows had been at rest until the send before
//!       then each row, ascending:
//!   EG    row − (the row before + 1), Exp-Golomb k; the first: its number
//!  1 +    baseline: 1 = as in the row before (at first the packet's); 0 and 6 bits of age in send ticks, 0 = none
//!  1 +    components: 1 = as in the row before; 0 and a bit for each column, presence first
//!    *    if mixed, for each component: 1 = the age of the value before; 0 and its age, Exp-Golomb 3
//!    1    if rested: had it been at rest?
//!    *    the values, each as its layout says
//! ```
//!
//! Presence and components that name entities are absolute whatever the baseline is: what a peer was told of them depends on what it
//! may see.

use crate::block::{Entry, EntryBase, SAMPLE_AGE, bits};
use crate::history::BLOCK;
use smallvec::SmallVec;
use tidelock_netcore::bits::{BitError, BitReader, BitWriter};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// What stands before the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListHead {
    pub(crate) rows: usize,
    pub(crate) gap_order: u32,
    pub(crate) sample_age: u64,
    pub(crate) mixed: bool,
    pub(crate) rested: bool,
}

/// What stands before a row's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListRow {
    pub(crate) row: usize,
    pub(crate) base: Option<Tick>,
    /// Bit c: column c; never 0.
    pub(crate) components: u64,
    /// By component, ascending; all [`ListHead::sample_age`] unless the list is mixed.
    pub(crate) ages: SmallVec<[u64; 8]>,
    pub(crate) rested: bool,
}

/// What a row's fields are coded against: the row before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListContext {
    next: usize,
    base: Option<Tick>,
    components: u64,
    age: u64,
}

/// The best order for the gaps of `rows` rows among the first `span`.
pub(crate) fn gap_order(rows: usize, span: usize) -> u32 {
    (span / rows.max(1)).max(1).ilog2().saturating_sub(1).min(7)
}

impl ListHead {
    pub(crate) fn write(&self, w: &mut BitWriter) {
        w.golomb(self.rows as u64, 4);
        w.put(u64::from(self.gap_order), 3);
        w.golomb(self.sample_age, 3);
        w.flag(self.mixed);
        w.flag(self.rested);
    }

    pub(crate) fn read(r: &mut BitReader<'_>) -> Result<Self, BitError> {
        let rows = r.golomb(4)?;
        if rows > limits::PACKET_VALUES as u64 {
            return Err(BitError::OutOfRange);
        }
        let gap_order = r.get(3)? as u32;
        let sample_age = read_age(r)?;
        Ok(Self { rows: rows as usize, gap_order, sample_age, mixed: r.flag()?, rested: r.flag()? })
    }

    /// The context of the first row.
    pub(crate) fn context(&self, base: Option<Tick>) -> ListContext {
        ListContext { next: 0, base, components: 0, age: self.sample_age }
    }
}

fn read_age(r: &mut BitReader<'_>) -> Result<u64, BitError> {
    let age = r.golomb(3)?;
    if age > SAMPLE_AGE { Err(BitError::OutOfRange) } else { Ok(age) }
}

impl ListRow {
    pub(crate) fn write(&self, head: &ListHead, context: &mut ListContext, columns: usize, send_tick: Tick, w: &mut BitWriter) {
        w.golomb((self.row - context.next) as u64, head.gap_order);
        w.flag(self.base == context.base);
        if self.base != context.base {
            w.put(self.base.map_or(0, |b| send_tick.since(b)), 6);
        }
        w.flag(self.components == context.components);
        if self.components != context.components {
            w.put(self.components, columns as u32);
        }
        let mut age = context.age;
        for own in self.ages.iter().filter(|_| head.mixed) {
            w.flag(*own == age);
            if *own != age {
                w.golomb(*own, 3);
            }
            age = *own;
        }
        if head.rested {
            w.flag(self.rested);
        }
        *context = ListContext { next: self.row + 1, base: self.base, components: self.components, age };
    }

    pub(crate) fn read(
        head: &ListHead,
        context: &mut ListContext,
        columns: usize,
        send_tick: Tick,
        r: &mut BitReader<'_>,
    ) -> Result<Self, BitError> {
        let row = r.golomb(head.gap_order)?.checked_add(context.next as u64).filter(|row| *row < limits::ROWS as u64);
        let row = row.ok_or(BitError::OutOfRange)? as usize;
        let base = if r.flag()? { context.base } else { crate::block::read_base(send_tick, r)? };
        let components = if r.flag()? { context.components } else { r.get(columns as u32)? };
        if components == 0 {
            return Err(BitError::OutOfRange);
        }
        let mut ages = SmallVec::new();
        let mut age = context.age;
        for _ in 0..components.count_ones() {
            if head.mixed && !r.flag()? {
                age = read_age(r)?;
            }
            ages.push(age);
        }
        let rested = head.rested && r.flag()?;
        *context = ListContext { next: row + 1, base, components, age };
        Ok(Self { row, base, components, ages, rested })
    }

    /// The row as entries of blocks: one for each run of values of one age.
    pub(crate) fn entries(&self, mut take: impl FnMut(Entry)) {
        let (block, bit) = ((self.row / BLOCK) as u32, 1u64 << (self.row % BLOCK));
        let rested = if self.rested { bit } else { 0 };
        let mut open: Option<Entry> = None;
        for (c, age) in bits(self.components).zip(&self.ages) {
            if open.as_ref().is_some_and(|e| e.sample_age != *age)
                && let Some(done) = open.take()
            {
                take(done);
            }
            let base = EntryBase::Own(self.base);
            let entry = open.get_or_insert_with(|| Entry { block, base, sample_age: *age, rested, ..Entry::default() });
            entry.masks.push((c as u8, bit));
        }
        open.into_iter().for_each(take);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: usize = 9;
    const TICK: Tick = Tick(1000);

    prop_compose! {
        fn rows(mixed: bool, any_rested: bool)(rows in prop::collection::btree_map(0usize..700, (prop::option::of(1u64..=62), 1u64..1 << COLUMNS, prop::collection::vec(0u64..=255, COLUMNS), any::<bool>()), 0..80)) -> Vec<ListRow> {
            rows.into_iter().map(|(row, (age, components, ages, rested))| ListRow {
                row,
                base: age.map(|a| TICK.minus(a)),
                components,
                ages: ages.into_iter().take(components.count_ones() as usize).map(|a| if mixed { a } else { 7 }).collect(),
                rested: rested && any_rested,
            }).collect()
        }
    }

    fn listed() -> impl Strategy<Value = (ListHead, Vec<ListRow>)> {
        (any::<bool>(), any::<bool>()).prop_flat_map(|(mixed, rested)| {
            rows(mixed, rested).prop_map(move |rows| {
                let gap_order = gap_order(rows.len(), 700);
                (ListHead { rows: rows.len(), gap_order, sample_age: 7, mixed, rested }, rows)
            })
        })
    }

    fn write(head: &ListHead, rows: &[ListRow]) -> Vec<u8> {
        let mut w = BitWriter::new();
        head.write(&mut w);
        let mut context = head.context(Some(TICK.minus(3)));
        rows.iter().for_each(|row| row.write(head, &mut context, COLUMNS, TICK, &mut w));
        w.to_bytes()
    }

    fn read(bytes: &[u8]) -> Result<(ListHead, Vec<ListRow>), BitError> {
        let mut r = BitReader::new(bytes);
        let head = ListHead::read(&mut r)?;
        let mut context = head.context(Some(TICK.minus(3)));
        let rows = (0..head.rows).map(|_| ListRow::read(&head, &mut context, COLUMNS, TICK, &mut r)).collect::<Result<_, _>>()?;
        r.finish()?;
        Ok((head, rows))
    }

    proptest! {
        #[test]
        fn lists_are_read_as_written((head, rows) in listed()) {
            let bytes = write(&head, &rows);
            prop_assert_eq!(read(&bytes), Ok((head, rows)));
            for cut in 0..bytes.len() {
                prop_assert!(read(&bytes[..cut]).is_err(), "cut at {}", cut);
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((_, rows)) = read(&bytes) {
                for row in rows {
                    let mut values = 0;
                    row.entries(|e| values += e.masks.len() as u32);
                    prop_assert_eq!(values, row.components.count_ones());
                }
            }
        }
    }
}
