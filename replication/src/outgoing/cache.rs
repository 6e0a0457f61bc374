//! The encoded values of one send, shared by all peers that are told in blocks.

use crate::block::{Context, Entry, bits};
use crate::codings::Codings;
use crate::forecast::Forecast;
use crate::guesses::{Guesses, Since};
use crate::history::BLOCK;
use crate::publisher::Publisher;
use crate::receipts::Tally;
use crate::schema::Inner;
use crate::subscriber::Carried;
use crate::tuner::Tuner;
use smallvec::SmallVec;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::tick::Tick;

/// The encoded values of one tick, by baseline. Bits depend on (component, row, baseline, now) alone, and on whether the value is in a
/// plain entry, so they are the same for every peer with that baseline.
#[derive(Default)]
pub(crate) struct BitCache {
    pub(super) sets: Vec<Set>,
    live: usize,
    pub(super) arena: BitWriter,
    /// By block: the entry that was written last, whole. Peers alike are sent the same entries in the same order.
    pub(super) entries: Vec<Whole>,
    pub(super) tick: u64,
    guesses: Guesses,
    pub(super) cohort: Cohort,
}

/// The packets of a send to all who are told the same from the same baseline, one after the other, without their headers.
#[derive(Default)]
pub(super) struct Cohort {
    /// Whose: baseline and components that occur.
    pub(super) of: Option<(Tick, u64)>,
    packets: Vec<Shared>,
    live: usize,
}

/// One of them.
#[derive(Default)]
pub(super) struct Shared {
    /// Where in the arena, and how many bits.
    pub(super) at: (usize, usize),
    pub(super) carried: Vec<Carried>,
    pub(super) tally: Tally,
    /// It is the last.
    pub(super) all: bool,
}

impl Cohort {
    /// Begins anew.
    pub(super) fn begin(&mut self, of: (Tick, u64)) {
        (self.of, self.live) = (Some(of), 0);
    }

    pub(super) fn packet(&self, index: usize) -> Option<&Shared> {
        self.packets[..self.live].get(index)
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

/// An entry as it was written, its values included.
#[derive(Clone, Default)]
pub(super) struct Whole {
    /// [`BitCache::tick`] when it was written.
    pub(super) tick: u64,
    pub(super) entry: Entry,
    /// What the packet's baseline was, and which components occurred.
    pub(super) base: Tick,
    pub(super) components: u64,
    pub(super) before: Context,
    pub(super) after: Context,
    /// Where in the arena, and how many bits.
    pub(super) at: (usize, usize),
    /// Bits of its values by component, in the order of the masks.
    pub(super) bits: SmallVec<[u32; 8]>,
    /// What its receiver keeps for a moment: words and values.
    pub(super) weight: (usize, usize),
    /// Of its first row.
    pub(super) kind: usize,
    /// Nothing of it was pending for longer than since this tick.
    pub(super) fresh: bool,
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
    pub(super) at: Vec<Vec<(u32, u16)>>,
}

impl BitCache {
    /// A new tick: nothing is encoded yet.
    pub(crate) fn clear(&mut self) {
        self.live = 0;
        self.cohort.of = None;
        self.arena.clear();
        self.tick += 1;
    }

    /// The same entry after the same one, if it was written in this tick.
    pub(super) fn whole(&self, entry: &Entry, base: Tick, components: u64, context: &Context) -> Option<&Whole> {
        let whole = self.entries.get(entry.block as usize)?;
        let alike = whole.tick == self.tick && whole.base == base && whole.components == components;
        (alike && whole.before == *context && whole.entry == *entry).then_some(whole)
    }

    /// Keeps an entry that was written to `w` from bit `start` on.
    #[expect(clippy::too_many_arguments, reason = "an entry, what it stands between, and where it was written")]
    pub(super) fn keep(
        &mut self,
        entry: &Entry,
        base: Tick,
        components: u64,
        before: Context,
        after: Context,
        bits: &[u32],
        w: &BitWriter,
        start: usize,
    ) {
        let block = entry.block as usize;
        if self.entries.len() <= block {
            self.entries.resize_with(block + 1, Whole::default);
        }
        let at = (self.arena.len(), w.len() - start);
        self.arena.append(w, start, at.1);
        let whole = &mut self.entries[block];
        whole.bits.clear();
        whole.bits.extend_from_slice(bits);
        whole.entry.clone_from(entry);
        (whole.tick, whole.base, whole.components) = (self.tick, base, components);
        (whole.before, whole.after, whole.at) = (before, after, at);
    }

    /// The place of what is encoded against a baseline; `fresh`: it was made just now, and has to be told its codings.
    pub(super) fn set(&mut self, base: Option<Tick>, plain: bool, publisher: &Publisher) -> (usize, bool) {
        if let Some(i) = self.sets[..self.live].iter().position(|s| s.base == base && s.plain == plain) {
            return (i, false);
        }
        let (columns, blocks) = (publisher.history.components(), publisher.block_count());
        if self.live == self.sets.len() {
            let (at, have) = (vec![Vec::new(); columns], Vec::new());
            self.sets.push(Set { base, plain, codings: Codings::default(), seconds: 0.0, have, at });
        }
        let set = &mut self.sets[self.live];
        (set.base, set.plain) = (base, plain);
        set.have.clear();
        set.have.resize(columns * blocks, 0);
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
        let (layout, words) = (schema.layout(c), schema.layout(c).words());
        let age = set.base.map_or(0, |b| history.now().since(b));
        let tables = if set.plain { set.codings.tables(c, layout, age) } else { layout.tables(age) };
        if let Some(base) = set.base {
            let forecast = if set.plain { set.codings.components[c].forecast } else { Forecast::Still };
            let since = Since { base, send_tick: history.now(), seconds: set.seconds };
            self.guesses.make(schema, history, c, block, missing, since, forecast);
        }
        for bit in bits(missing) {
            let (row, start) = (block * BLOCK + bit as usize, self.arena.len());
            let guess = set.base.map(|_| self.guesses.of(bit, words));
            layout.write_with(history.value(c, row), guess, tables, &mut self.arena);
            at[row] = (start as u32, (self.arena.len() - start) as u16);
        }
    }

    /// Says how many bits that were.
    pub(super) fn copy(&self, set: usize, c: usize, block: usize, mask: u64, w: &mut BitWriter) -> u32 {
        let at = &self.sets[set].at[c];
        let first = w.len();
        for row in bits(mask) {
            let (start, len) = at[block * BLOCK + row as usize];
            w.append(&self.arena, start as usize, len as usize);
        }
        (w.len() - first) as u32
    }
}
