//! Where all that is pending finds room, its order matters little. Then what has nothing about it but changed values goes in the order
//! of ghosts, block by block, right into packets: it is not reckoned how urgent each row is, nor is a row looked at twice.

use super::{Candidate, HEAD_BITS, PickScratch, Picker, Sides};
use crate::block::bits;
use crate::history::BLOCK;
use crate::list::{ListHead, gap_order};
use crate::outgoing::Body;
use crate::receipts::Tally;
use crate::subscriber::{Carried, Subscriber};
use crate::values::Coded;
use crate::view::View;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Columns of a schema at most.
const COLUMNS: usize = limits::COMPONENTS + 1;
/// Fewer rows are not worth it.
const LEAST: usize = 32;
/// Rows are taken to need at least so many bits, whatever they needed lately.
const LEAST_BITS: f32 = 32.0;
/// How much more than was reckoned there has to be room for.
const RESERVE: f32 = 1.25;
/// Bits of a packet.
const PACKET: f32 = (limits::DATAGRAM_MAX_BYTES * 8) as f32;

/// The rows that go like that in this send, and the packet in the making.
#[derive(Default)]
pub(super) struct Sweep {
    /// By block of ghosts: those that have not gone yet.
    rows: Vec<u64>,
    left: usize,
    /// The first block with any.
    block: usize,
    /// Packets that were filled like that.
    #[cfg(test)]
    swept: u64,
    gap_order: u32,
    /// Some of them had been at rest.
    rested: bool,
    /// Of the block in the making: what is pending of each component.
    some: Vec<(usize, u64)>,
    /// The rows of the packet, without the head.
    body: BitWriter,
    count: usize,
    words: usize,
    values: usize,
    /// What the next row is coded against.
    next: usize,
    base: Option<Tick>,
    components: u64,
    /// Words of a value of each of `components`.
    width: usize,
}

/// A row to be put in: what its values are coded against, which components, and their bits.
struct Row {
    ghost: usize,
    base: Option<Tick>,
    components: u64,
    rested: bool,
    size: usize,
}

impl Sweep {
    /// The rows of a block that are left to it.
    pub(super) fn rows(&self, block: usize) -> u64 {
        self.rows.get(block).copied().unwrap_or(0)
    }

    pub(super) fn left(&self) -> usize {
        self.left
    }

    fn begin(&mut self, base: Tick) {
        self.body.clear();
        (self.count, self.words, self.values) = (0, 0, 0);
        (self.next, self.base, self.components, self.width) = (0, Some(base), 0, 0);
    }
}

impl Picker<'_> {
    /// Looks at the blocks of ghosts, each as a whole.
    pub(super) fn regard(&mut self, subscriber: &Subscriber) {
        let PickScratch { sides, masks, .. } = &mut *self.scratch;
        sides.clear();
        masks.clear();
        let Some(view) = subscriber.view() else { return };
        let (now, columns) = (self.publisher.history.now(), self.schema.columns());
        let changed = |c: usize, block: usize, tick| view.changed(c, tick).get(block).copied().unwrap_or(0);
        let introduces = subscriber.has_unconfirmed(self.publisher);
        for block in 0..view.blocks() {
            let (mut own, mut rows) = (Sides::default(), 0);
            for c in 0..columns {
                let mask = subscriber.pending(c, block);
                masks.push(mask);
                if mask == 0 {
                    continue;
                }
                rows |= mask;
                if self.schema.absolute >> c & 1 == 0 {
                    own.stale |= mask & subscriber.stale(c, block);
                }
                if self.schema.interpolated >> c & 1 != 0 {
                    own.rested |= mask & changed(c, block, now) & !changed(c, block, self.before);
                }
            }
            let others = rows & !masks[block * columns];
            if others != 0 && introduces {
                own.unconfirmed = others & subscriber.unconfirmed_presence(block, self.publisher);
            }
            sides.push(own);
        }
    }

    /// Finds the rows that need not be put in order. Everything must have been regarded.
    pub(super) fn plan_sweep(&mut self, subscriber: &Subscriber, view: &View, room: usize) {
        let mut sweep = std::mem::take(&mut self.scratch.sweep);
        sweep.rows.clear();
        (sweep.left, sweep.block, sweep.rested) = (0, 0, false);
        let now = self.publisher.history.now();
        // who waited has to come first, and what is told less often is counted by row
        if !view.paced && view.last_sent != now && subscriber.had_room() && !self.receipts.are_kept() {
            let (mut others, has_remote) = (0, self.publisher.has_remote());
            for block in 0..view.blocks() {
                let (all, plain) = self.plain_rows(subscriber, view, block, has_remote);
                sweep.rows.push(plain);
                sweep.left += plain.count_ones() as usize;
                others += (all & !plain).count_ones() as usize;
                let begins = |bit: u32| subscriber.waits_since(block * BLOCK + bit as usize) == self.tick;
                sweep.rested |= bits(plain & self.scratch.sides[block].rested).any(begins);
            }
            let needed = (sweep.left + others) as f32 * self.scratch.mean.max(LEAST_BITS) * RESERVE;
            // what is put in order goes in packets of its own, which is worth it only where there are several
            let is_little = others > 0 && needed < PACKET;
            if sweep.left < LEAST || needed > room as f32 || is_little {
                sweep.rows.clear();
                sweep.left = 0;
            }
            sweep.gap_order = gap_order(sweep.left, view.blocks() * BLOCK);
        }
        self.scratch.sweep = sweep;
    }

    /// What is pending of a block, and the rows of which nothing but changed values is: their peer knows them, and no other peer has
    /// to do with them.
    fn plain_rows(&self, subscriber: &Subscriber, view: &View, block: usize, has_remote: bool) -> (u64, u64) {
        let columns = self.schema.columns();
        let masks = &self.scratch.masks[block * columns..][..columns];
        let absolute = |c: usize| self.schema.absolute >> c & 1 != 0;
        let all = masks.iter().fold(0, |rows, mask| rows | mask);
        let asides = masks.iter().enumerate().filter(|(c, _)| absolute(*c)).fold(0, |rows, (_, mask)| rows | mask);
        let mut plain = all & !asides & !self.scratch.sides[block].unconfirmed & subscriber.known_in(block);
        // the view does not know what changed before the ghost was bound
        if view.last_bound(block) > self.before {
            plain = 0;
        }
        if has_remote {
            let is_own = |row: usize| self.publisher.remote_rows(row / BLOCK) >> (row % BLOCK) & 1 == 0;
            let own = |bit: &u32| view.row(block * BLOCK + *bit as usize).is_some_and(is_own);
            plain = bits(plain).filter(own).fold(0, |rows, bit| rows | 1 << bit);
        }
        (all, plain)
    }

    /// Has what had to be put in order gone?
    pub(super) fn is_sweeping(&self) -> bool {
        self.scratch.sweep.left > 0 && self.is_ranked_done()
    }

    fn is_ranked_done(&self) -> bool {
        self.scratch.next >= self.scratch.order.len() && self.scratch.waiting.is_empty()
    }

    /// Fills `body` with as many rows as fit, and clears that from what is pending. `None`: not even the first one fits; it is put among
    /// those in order.
    pub(super) fn sweep(&mut self, subscriber: &mut Subscriber, limit: usize, body: &mut BitWriter) -> Option<Body> {
        let mut sweep = std::mem::take(&mut self.scratch.sweep);
        let mut tally = std::mem::take(&mut subscriber.tally);
        tally.fit(self.schema.columns(), self.schema.kinds.len());
        let counted: u64 = tally.components.iter().sum();
        let mut carried = self.lists.draft();
        sweep.begin(self.base);
        self.cache.open(self.publisher, self.base);
        let room = limit.saturating_sub(HEAD_BITS);
        while let Some(&rows) = sweep.rows.get(sweep.block) {
            if rows != 0 {
                let taken = self.put_block(&mut sweep, subscriber, room, &mut tally);
                self.note_block(subscriber, sweep.block, taken, &mut carried);
                subscriber.take_ghosts(sweep.block, taken);
                sweep.left -= taken.count_ones() as usize;
                sweep.rows[sweep.block] &= !taken;
                if taken != rows {
                    break;
                }
            }
            sweep.block += 1;
        }
        if sweep.count > 0 {
            self.write_head(&sweep, body);
            self.scratch.mean += (body.len() as f32 / sweep.count as f32 - self.scratch.mean) * 0.1;
            tally.heads += body.len() as u64 - (tally.components.iter().sum::<u64>() - counted);
        } else {
            self.put_in_order(&mut sweep);
        }
        #[cfg(test)]
        {
            sweep.swept += u64::from(sweep.count > 0);
        }
        let (count, values, all) = (sweep.count, sweep.values, sweep.left == 0 && self.is_ranked_done());
        self.scratch.sweep = sweep;
        subscriber.tally = tally;
        let carried = self.lists.keep(carried);
        (count > 0).then_some(Body { carried, copy: None, values, may_introduce: false, all, whole: false })
    }

    fn write_head(&self, sweep: &Sweep, body: &mut BitWriter) {
        let Sweep { count: rows, gap_order, rested, .. } = *sweep;
        let head = ListHead { rows, gap_order, sample_age: self.own_age(), mixed: false, rested };
        head.write(body);
        body.append(&sweep.body, 0, sweep.body.len());
    }

    /// Leaves the first row to those that are put in order.
    fn put_in_order(&mut self, sweep: &mut Sweep) {
        let Some(rows) = sweep.rows.get_mut(sweep.block) else { return };
        let ghost = (sweep.block * BLOCK) as u32 + rows.trailing_zeros();
        *rows &= *rows - 1;
        sweep.left -= 1;
        self.scratch.ranked = true;
        self.scratch.order.push(Candidate { rank: 0, group: u32::MAX, depth: 0, appears: false, ghost });
    }

    /// Puts rows of a block in while they fit; says which.
    fn put_block(&mut self, sweep: &mut Sweep, subscriber: &Subscriber, room: usize, tally: &mut Tally) -> u64 {
        let (Some(view), columns, block) = (subscriber.view(), self.schema.columns(), sweep.block) else { return 0 };
        let rows = sweep.rows[block];
        let sides = self.scratch.sides[block];
        let mut some = std::mem::take(&mut sweep.some);
        some.clear();
        let masks = self.scratch.masks[block * columns..][..columns].iter().enumerate();
        some.extend(masks.map(|(c, mask)| (c, mask & rows)).filter(|x| x.1 != 0));
        self.make_ready(view, block, rows & !sides.stale, &some);
        let mut taken = 0;
        let (mut parts, mut sums) = ([Coded::default(); COLUMNS], [0; COLUMNS]);
        for bit in bits(rows) {
            let ghost = block * BLOCK + bit as usize;
            let Some(row) = view.row(ghost) else { continue };
            let stale = sides.stale >> bit & 1 != 0;
            let base = if stale { subscriber.row_base(ghost, self.publisher.history.now()) } else { Some(self.base) };
            let (mut components, mut size) = (0, 0);
            for (&(c, mask), part) in some.iter().zip(&mut parts) {
                *part = match mask >> bit & 1 != 0 {
                    false => Coded::default(),
                    true if stale => self.cache.value(self.schema, self.publisher, c, row, base),
                    true => self.cache.at(c, row),
                };
                components |= (mask >> bit & 1) << c;
                size += part.len();
            }
            let what = Row { ghost, base, components, rested: sides.rested >> bit & 1 != 0, size };
            let parts = &parts[..some.len()];
            if !self.put_row(sweep, subscriber, &what, room, parts) {
                break;
            }
            parts.iter().zip(&mut sums).for_each(|(part, sum)| *sum += part.len() as u64);
            taken |= 1 << bit;
            tally.kinds[usize::from(view.ghost(ghost).kind)] += size as u64;
        }
        some.iter().zip(sums).for_each(|((c, _), sum)| tally.components[*c] += sum);
        sweep.some = some;
        taken
    }

    /// Sees to it that the values of a block of ghosts are encoded, those of a block of the publisher's at once.
    fn make_ready(&mut self, view: &View, block: usize, ghosts: u64, some: &[(usize, u64)]) {
        let (mut left, shared) = (ghosts, self.scratch.shared);
        while left != 0 {
            let (mut of, mut run, mut rows) = (usize::MAX, 0u64, 0u64);
            for bit in bits(left) {
                let Some(row) = view.row(block * BLOCK + bit as usize) else { continue };
                if of != usize::MAX && row / BLOCK != of {
                    break;
                }
                of = row / BLOCK;
                run |= 1 << bit;
                rows |= 1 << (row % BLOCK);
            }
            if run == 0 {
                return;
            }
            left &= !run;
            for &(c, mask) in some.iter().filter(|(_, mask)| mask & run != 0) {
                let wanted = match mask & run == run {
                    true => rows,
                    false => bits(mask & run)
                        .filter_map(|bit| view.row(block * BLOCK + bit as usize))
                        .fold(0, |rows, row| rows | 1 << (row % BLOCK)),
                };
                self.cache.ready(self.schema, self.publisher, c, of, wanted, shared);
            }
        }
    }

    /// Puts a row in, if it fits.
    fn put_row(&self, sweep: &mut Sweep, subscriber: &Subscriber, row: &Row, room: usize, parts: &[Coded]) -> bool {
        let Row { ghost, base, components, rested, size } = *row;
        if components != sweep.components {
            sweep.width = self.words_in(components);
        }
        let (words, values) = (sweep.words + sweep.width, sweep.values + components.count_ones() as usize);
        let most = 16 + self.head_bits();
        if sweep.body.len() + size + most > room || words > limits::PACKET_WORDS || values > limits::PACKET_VALUES {
            return false;
        }
        (sweep.words, sweep.values) = (words, values);
        sweep.count += 1;
        let (mut code, mut len) = (0, 0);
        if ghost == sweep.next && base == sweep.base && components == sweep.components {
            // no gap, and twice "as before"
            (code, len) = (0b11 << (1 + sweep.gap_order), 3 + sweep.gap_order);
        } else {
            self.put_head(sweep, ghost, base, components);
        }
        if sweep.rested {
            code |= u64::from(rested && subscriber.waits_since(ghost) == self.tick) << len;
            len += 1;
        }
        (sweep.next, sweep.base, sweep.components) = (ghost + 1, base, components);
        let body = &mut sweep.body;
        for coded in parts {
            match coded.near() {
                Some((value, bits)) if len + bits < u64::BITS => {
                    code |= value << len;
                    len += bits;
                }
                near => {
                    body.put(code, len);
                    (code, len) = near.unwrap_or_default();
                    if near.is_none() {
                        self.cache.put(*coded, body);
                    }
                }
            }
        }
        body.put(code, len);
        true
    }

    /// What stands before a row's values.
    fn put_head(&self, sweep: &mut Sweep, ghost: usize, base: Option<Tick>, components: u64) {
        let body = &mut sweep.body;
        body.golomb((ghost - sweep.next) as u64, sweep.gap_order);
        body.flag(base == sweep.base);
        if base != sweep.base {
            body.put(base.map_or(0, |b| self.publisher.history.now().since(b)), 6);
        }
        body.flag(components == sweep.components);
        if components != sweep.components {
            body.put(components, self.schema.columns() as u32);
        }
    }

    /// Notes what of a block the packet carries.
    fn note_block(&self, subscriber: &Subscriber, block: usize, taken: u64, carried: &mut Vec<Carried>) {
        if taken == 0 {
            return;
        }
        let columns = self.schema.columns();
        for (c, mask) in
            self.scratch.masks[block * columns..][..columns].iter().enumerate().filter(|(_, mask)| *mask & taken != 0)
        {
            let mask = mask & taken;
            let since = subscriber.oldest_of(block, mask);
            carried.push(Carried { block: block as u32, component: c as u8, mask, since });
        }
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
