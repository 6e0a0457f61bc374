//! The encoded values of one send, shared by all peers that are told in blocks.

use crate::block::{Context, Entry, bits};
use crate::codes::Chosen;
use crate::codings::Codings;
use crate::forecast::Forecast;
use crate::guesses::{Guesses, Since};
use crate::history::BLOCK;
use crate::publisher::Publisher;
use crate::receipts::Tally;
use crate::schema::Inner;
use crate::subscriber::Carried;
use crate::trained::{Occasion, Recording};
use crate::tuner::Tuner;
use smallvec::SmallVec;
use std::sync::Arc;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::tick::Tick;

/// The encoded values of one tick, by baseline. Bits depend on (component, row, baseline, now) alone, and on whether the value is in a
/// plain entry, so they are the same for every peer with that baseline.
#[derive(Default)]
pub(crate) struct BitCache {
    pub(super) sets: Vec<Set>,
    live: usize,
    pub(super) arena: BitWriter,
    guesses: Guesses,
    pub(super) cohorts: Vec<Cohort>,
    live_cohorts: usize,
    nothing: Arc<Vec<Carried>>,
    /// Counts what is encoded, if asked to.
    pub(crate) recording: Option<Box<Recording>>,
    /// Of all sets.
    wholes: Vec<Whole>,
    live_wholes: usize,
}

/// The packets of a send to all who are told the same from the same baseline, one after the other, without their headers.
#[derive(Default)]
pub(super) struct Cohort {
    /// Whose: baseline and components that occur.
    of: (Tick, u64),
    packets: Vec<Shared>,
    live: usize,
}

/// One of them.
#[derive(Default)]
pub(super) struct Shared {
    /// Where in the arena, and how many bits.
    pub(super) at: (usize, usize),
    pub(super) carried: Arc<Vec<Carried>>,
    /// Blocks of which nothing is pending any more once it is sent.
    pub(super) emptied: Vec<u32>,
    pub(super) tally: Tally,
    pub(super) values: usize,
    /// It is the last.
    pub(super) all: bool,
    /// Its entries.
    pub(super) marks: Vec<Mark>,
}

/// Where an entry of a packet begins.
pub(super) struct Mark {
    pub(super) block: u32,
    /// In the packet's body, in bits.
    pub(super) start: usize,
    pub(super) before: Context,
    /// Bits of its values, by component in the order of its masks.
    pub(super) bits: SmallVec<[u32; 8]>,
}

impl Cohort {
    pub(super) fn packet(&self, index: usize) -> Option<&Shared> {
        self.packets[..self.live].get(index)
    }

    /// One of those that there are.
    pub(super) fn packet_mut(&mut self, index: usize) -> &mut Shared {
        &mut self.packets[..self.live][index]
    }

    /// A place for the next packet.
    pub(super) fn push(&mut self) -> &mut Shared {
        if self.live == self.packets.len() {
            self.packets.push(Shared::default());
        }
        self.live += 1;
        &mut self.packets[self.live - 1]
    }
}

/// So many entries of a block are kept against one baseline: what nearly everybody is told, and what those are who lost the same.
const VARIANTS: usize = 6;

/// The entries of one block: the first, and how many.
#[derive(Clone, Copy, Default)]
struct Variants {
    first: u32,
    count: usize,
}

/// An entry as it was written, its values included.
#[derive(Clone, Default)]
pub(super) struct Whole {
    pub(super) entry: Entry,
    /// Which components occurred in the packet.
    pub(super) components: u64,
    pub(super) before: Context,
    pub(super) after: Context,
    /// Where in the arena, and how many bits; the values begin after so many of them.
    pub(super) at: (usize, usize),
    pub(super) head: usize,
    /// Bits of its values by component, in the order of the masks.
    pub(super) bits: SmallVec<[u32; 8]>,
    /// What its receiver keeps for a moment: words and values.
    pub(super) weight: (usize, usize),
    /// Of its first row.
    pub(super) kind: usize,
    /// Nothing of it was pending for longer than since this tick.
    pub(super) fresh: bool,
    /// Where the block's next one is.
    next: u32,
}

/// What was encoded against one baseline.
pub(super) struct Set {
    pub(super) base: Option<Tick>,
    /// For plain entries: with these codings. Else with the usual ones.
    pub(super) plain: bool,
    pub(super) codings: Codings,
    /// Seconds from the baseline to now.
    seconds: f64,
    /// By component, then block.
    have: Vec<u64>,
    /// By component, then row: where in the arena, and how many bits.
    at: Vec<Vec<(u32, u16)>>,
    /// By block: the entries of packets with this baseline that were written, whole. Peers alike are sent the same entries in the
    /// same order.
    entries: Vec<Variants>,
}

impl BitCache {
    /// A new tick: nothing is encoded yet.
    pub(crate) fn clear(&mut self) {
        self.live = 0;
        let old = self.cohorts[..self.live_cohorts].iter_mut().flat_map(|cohort| &mut cohort.packets);
        // they would keep the lists in use
        old.for_each(|packet| packet.carried = self.nothing.clone());
        self.live_cohorts = 0;
        self.arena.clear();
        self.live_wholes = 0;
    }

    /// The entries of a block that were written in this tick.
    #[inline]
    pub(super) fn wholes(&self, set: usize, block: usize) -> impl Iterator<Item = &Whole> {
        let Variants { first, count } = self.sets[set].entries.get(block).copied().unwrap_or_default();
        let mut next = first;
        (0..count).map(move |_| {
            let whole = &self.wholes[next as usize];
            next = whole.next;
            whole
        })
    }

    /// A place to keep one more entry of a block, if there is one.
    pub(super) fn place(&mut self, set: usize, block: usize) -> Option<&mut Whole> {
        let Variants { first, count } = *self.sets[set].entries.get(block)?;
        if count == VARIANTS {
            return None;
        }
        let new = self.live_wholes as u32;
        if count == 0 {
            self.sets[set].entries[block].first = new;
        } else {
            let last = (1..count).fold(first, |at, _| self.wholes[at as usize].next);
            self.wholes[last as usize].next = new;
        }
        self.sets[set].entries[block].count += 1;
        if self.live_wholes == self.wholes.len() {
            self.wholes.push(Whole::default());
        }
        self.live_wholes += 1;
        Some(&mut self.wholes[new as usize])
    }

    /// The place of such packets, if there are any.
    pub(super) fn find_cohort(&self, of: (Tick, u64)) -> Option<usize> {
        self.cohorts[..self.live_cohorts].iter().position(|cohort| cohort.of == of)
    }

    /// The place of the packets to all who are told the same from a baseline, of these components.
    pub(super) fn cohort(&mut self, of: (Tick, u64)) -> usize {
        if let Some(i) = self.find_cohort(of) {
            return i;
        }
        if self.live_cohorts == self.cohorts.len() {
            self.cohorts.push(Cohort::default());
        }
        (self.cohorts[self.live_cohorts].of, self.cohorts[self.live_cohorts].live) = (of, 0);
        self.live_cohorts += 1;
        self.live_cohorts - 1
    }

    /// The place of what is encoded against a baseline; `fresh`: it was made just now, and has to be told its codings.
    pub(super) fn set(&mut self, base: Option<Tick>, plain: bool, publisher: &Publisher) -> (usize, bool) {
        if let Some(i) = self.sets[..self.live].iter().position(|s| s.base == base && s.plain == plain) {
            return (i, false);
        }
        let (columns, blocks) = (publisher.history.components(), publisher.block_count());
        if self.live == self.sets.len() {
            let (at, have) = (vec![Vec::new(); columns], Vec::new());
            self.sets.push(Set { base, plain, codings: Codings::default(), seconds: 0.0, have, at, entries: Vec::new() });
        }
        let set = &mut self.sets[self.live];
        (set.base, set.plain) = (base, plain);
        set.have.clear();
        set.have.resize(columns * blocks, 0);
        set.entries.clear();
        set.entries.resize(blocks, Variants::default());
        self.live += 1;
        (self.live - 1, true)
    }

    /// The place of what is encoded for plain entries against a baseline. `elapsed`: session ticks since.
    pub(super) fn plain_set(
        &mut self,
        base: Tick,
        elapsed: u64,
        schema: &Inner,
        publisher: &Publisher,
        tuner: &mut Tuner,
    ) -> usize {
        let (i, fresh) = self.set(Some(base), true, publisher);
        if fresh {
            let set = &mut self.sets[i];
            tuner.choose(schema, publisher, base, elapsed, &mut set.codings);
            set.seconds = tuner.seconds(set.codings.elapsed);
        }
        i
    }

    /// Encodes what is missing of some rows of a component.
    pub(super) fn encode(&mut self, set: usize, schema: &Inner, publisher: &Publisher, c: usize, block: usize, mask: u64) {
        let history = &publisher.history;
        let set = &mut self.sets[set];
        let have = &mut set.have[c * publisher.block_count() + block];
        let missing = mask & !*have;
        *have |= mask;
        if missing == 0 {
            return;
        }
        let at = &mut set.at[c];
        if at.len() < publisher.row_count() {
            at.resize(publisher.row_count(), (0, 0));
        }
        let layout = schema.layout(c);
        let age = set.base.map_or(0, |b| history.now().since(b));
        let tables = if set.plain { set.codings.tables(c, layout, age) } else { Chosen::fixed(layout.tables(age)) };
        if let Some(base) = set.base {
            let forecast = if set.plain { set.codings.components[c].forecast } else { Forecast::Still };
            let since = Since { base, send_tick: history.now(), seconds: set.seconds };
            self.guesses.make(schema, history, c, block, missing, since, forecast);
        }
        let guesses = set.base.map(|_| self.guesses.values());
        let places = &mut at[block * BLOCK..][..BLOCK];
        let values = history.block_values(c, block);
        if let (Some(recording), Some(guesses), true) = (&mut self.recording, guesses, set.plain) {
            let forecast = set.codings.components[c].forecast;
            recording.count(Occasion::new(c, forecast, age), layout, (missing, values, guesses), tables.indices);
        }
        layout.write_rows(missing, values, guesses, tables, &mut self.arena, places);
    }

    /// Says how many bits that were.
    pub(super) fn copy(&self, set: usize, c: usize, block: usize, mask: u64, w: &mut BitWriter) -> u32 {
        let (at, first) = (&self.sets[set].at[c][block * BLOCK..][..BLOCK], w.len());
        // those that were encoded together stand together
        let (mut start, mut end) = (0, 0);
        for (from, len) in bits(mask).map(|row| at[row as usize]) {
            if from != end {
                w.append(&self.arena, start as usize, (end - start) as usize);
                start = from;
            }
            end = from + u32::from(len);
        }
        w.append(&self.arena, start as usize, (end - start) as usize);
        (w.len() - first) as u32
    }
}
