//! What goes to a peer that does not see everything: of its ghosts with something pending the most urgent ones, as many as fit, as a
//! [list](crate::list). Urgency is weight × age, so nothing waits for ever; what appears goes before what changes, parents before
//! children, and what must appear together goes in one packet if it fits one.

use crate::block::{SAMPLE_AGE, bits};
use crate::history::BLOCK;
use crate::list::{ListHead, ListRow, gap_order};
use crate::outgoing::Body;
use crate::peer_id::PeerId;
use crate::publisher::Publisher;
use crate::receipts::{Decision, Receipt, Receipts};
use crate::schema::Inner;
use crate::subscriber::{Carried, Subscriber};
use crate::view::View;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// How much more urgent appearing and vanishing is than changing.
const APPEARING: f32 = 4.0;
/// Bits that the head of a list takes at most, and the end of the packet.
const HEAD_BITS: usize = 48;
/// Rows that are tried after one that did not fit.
const TRIES: usize = 4;
/// The deepest tree of parents that is looked at.
const DEPTH: u8 = 16;

/// The encoded values of one send, for all peers: by row, component and baseline.
pub(crate) struct ValueCache {
    slots: Vec<CacheSlot>,
    arena: BitWriter,
    stamp: u32,
}

#[derive(Clone, Copy, Default)]
struct CacheSlot {
    key: u64,
    stamp: u32,
    at: u32,
    bits: u32,
}

/// Slots of the cache: a collision only encodes again.
const CACHE: usize = 1 << 14;

impl Default for ValueCache {
    fn default() -> Self {
        Self { slots: Vec::new(), arena: BitWriter::new(), stamp: 0 }
    }
}

impl ValueCache {
    /// A new send: nothing is encoded yet.
    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.stamp += 1;
    }

    /// The bits of a value against a baseline.
    fn value(&mut self, schema: &Inner, publisher: &Publisher, c: usize, row: usize, base: Option<Tick>) -> (u32, u32) {
        self.slots.resize(CACHE, CacheSlot::default());
        let history = &publisher.history;
        let age = base.map_or(0, |b| history.now().since(b));
        let key = (row as u64) << 16 | (c as u64) << 8 | if base.is_some() { age } else { 0xff };
        let at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize % CACHE;
        let slot = self.slots[at];
        if slot.stamp == self.stamp && slot.key == key {
            return (slot.at, slot.bits);
        }
        let base = base.map(|tick| history.value_at(c, row, tick));
        let (start, bits) = self.absolute(|arena| schema.layout(c).write(history.value(c, row), base, age, arena));
        self.slots[at] = CacheSlot { key, stamp: self.stamp, at: start, bits };
        (start, bits)
    }

    /// Bits for one peer alone.
    fn absolute(&mut self, write: impl FnOnce(&mut BitWriter)) -> (u32, u32) {
        let start = self.arena.len();
        write(&mut self.arena);
        (start as u32, (self.arena.len() - start) as u32)
    }
}

/// Buffers kept between sends.
#[derive(Default)]
pub(crate) struct PickScratch {
    order: Vec<Candidate>,
    /// The next of `order`.
    next: usize,
    /// Candidates that did not fit into the last packet, though later ones did.
    waiting: Vec<Candidate>,
    chosen: Vec<Chosen>,
    /// Component, and where in the cache's arena its bits are.
    values: Vec<(u8, u32, u32)>,
    groups: FxHashMap<u32, u32>,
    words: Vec<u32>,
}

/// A ghost with something pending. The order of the fields is the order in which they go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The most urgent has the least.
    rank: u32,
    group: u32,
    depth: u8,
    appears: bool,
    ghost: u32,
}

/// A row of the packet in the making.
struct Chosen {
    ghost: u32,
    /// The most urgent first.
    place: u32,
    base: Base,
    components: u64,
    /// In [`PickScratch::values`].
    first: u32,
    bits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    /// Nothing in the row has a baseline.
    Any,
    Of(Option<Tick>),
}

/// Builds the packets of one peer's send.
pub(crate) struct Picker<'a> {
    pub(crate) schema: &'a Inner,
    pub(crate) publisher: &'a Publisher,
    pub(crate) cache: &'a mut ValueCache,
    pub(crate) scratch: &'a mut PickScratch,
    /// The session's tick.
    pub(crate) tick: Tick,
    /// What this peer's own values are sampled at: the tick of the last capture.
    pub(crate) captured: Tick,
    /// The send tick of the capture before the last one.
    pub(crate) before: Tick,
    /// The packets' baseline.
    pub(crate) base: Tick,
    /// To whom.
    pub(crate) peer: PeerId,
    pub(crate) receipts: &'a mut Receipts,
}

impl Picker<'_> {
    /// Sorts the ghosts with something pending, the most urgent first: at least as many as fit into `room` bits.
    pub(crate) fn plan(&mut self, subscriber: &Subscriber, room: usize) {
        self.scratch.order.clear();
        self.scratch.next = 0;
        self.scratch.waiting.clear();
        let Some(view) = subscriber.view() else { return };
        let now = self.publisher.history.now();
        let mut grouped = false;
        for block in 0..view.blocks() {
            for bit in bits(subscriber.pending_rows(block)) {
                let i = block * BLOCK + bit as usize;
                let ghost = view.ghost(i);
                if subscriber.is_paced(view, i, now) {
                    continue;
                }
                let (alive, appears) = (view.row(i).is_some(), !subscriber.is_known(i));
                let age = now.since(ghost.sent);
                let urgency = if alive && !appears { 1.0 } else { APPEARING };
                let score = ghost.sighting.weight * age as f32 * urgency;
                let group = if appears { ghost.sighting.group } else { u32::MAX };
                grouped |= group != u32::MAX;
                // positive floats are ordered like their bits
                self.scratch.order.push(Candidate { rank: !score.to_bits(), group, depth: 0, appears, ghost: i as u32 });
            }
        }
        if grouped {
            self.gather_groups(view);
        }
        let enough = room / 16 + 64;
        let order = &mut self.scratch.order;
        if order.len() > enough * 2 && !grouped {
            order.select_nth_unstable(enough);
            order.truncate(enough);
        }
        order.sort_unstable();
    }

    /// What must appear together is as urgent as the most urgent of it, and stands together, parents first.
    fn gather_groups(&mut self, view: &View) {
        let PickScratch { order, groups, .. } = &mut *self.scratch;
        let (schema, publisher) = (self.schema, self.publisher);
        groups.clear();
        for candidate in order.iter().filter(|c| c.group != u32::MAX) {
            let best = groups.entry(candidate.group).or_insert(candidate.rank);
            *best = (*best).min(candidate.rank);
        }
        let parents: SmallVec<[usize; 4]> = (1..schema.columns()).filter(|c| schema.component(*c).parent).collect();
        for candidate in order.iter_mut().filter(|c| c.group != u32::MAX) {
            candidate.rank = groups[&candidate.group];
            let mut ghost = candidate.ghost as usize;
            while candidate.depth < DEPTH
                && let Some(parent) = parent_of(schema, publisher, view, ghost, &parents)
            {
                candidate.depth += 1;
                ghost = parent;
            }
        }
    }

    /// Notes what found no room in this send.
    pub(crate) fn note_left(&mut self, subscriber: &Subscriber) {
        let Some(view) = subscriber.view().filter(|_| self.receipts.are_kept()) else { return };
        let PickScratch { order, next, waiting, .. } = &*self.scratch;
        for candidate in waiting.iter().chain(&order[*next..]) {
            let net = view.ghost(candidate.ghost as usize).net;
            self.receipts.push(Receipt { tick: self.tick, peer: self.peer, net, decision: Decision::NoRoom });
        }
    }

    /// Fills `body` with a list of up to `limit` bits and clears what it took from what is pending.
    pub(crate) fn fill(&mut self, subscriber: &mut Subscriber, limit: usize, body: &mut BitWriter) -> Body {
        body.clear();
        self.choose(subscriber, limit);
        let mut carried = subscriber.carrier();
        loop {
            self.write(subscriber, body);
            if body.len() <= limit || self.scratch.chosen.is_empty() {
                break;
            }
            // what was reckoned was too little: the least urgent waits
            let PickScratch { order, next, waiting, chosen, .. } = &mut *self.scratch;
            let last = chosen.iter().enumerate().max_by_key(|(_, c)| c.place).map_or(0, |(i, _)| i);
            let place = chosen.remove(last).place as usize;
            // of what is not in whole, the rest is next anyway
            waiting.extend((place < *next).then(|| order[place]));
        }
        self.note(subscriber, body.len(), &mut carried);
        subscriber.clear_pending(&carried);
        let all = self.scratch.next >= self.scratch.order.len() && self.scratch.waiting.is_empty();
        Body { carried, all }
    }

    /// Takes rows in the order of urgency while they fit.
    fn choose(&mut self, subscriber: &Subscriber, limit: usize) {
        self.scratch.chosen.clear();
        self.scratch.values.clear();
        let Some(view) = subscriber.view() else { return };
        self.put_back();
        let (mut used, mut words) = (HEAD_BITS, 0);
        while let Some(candidate) = self.scratch.order.get(self.scratch.next).copied() {
            let left = limit.saturating_sub(used);
            let run = self.run_from(candidate);
            if run > 1 && !self.scratch.chosen.is_empty() && !self.fits(subscriber, view, run, left) {
                break; // it gets a packet of its own
            }
            let i = candidate.ghost as usize;
            let before = self.scratch.values.len();
            let (components, base) = self.encode(subscriber, view, i);
            let mut chosen = Chosen {
                ghost: candidate.ghost,
                place: self.scratch.next as u32,
                base,
                components,
                first: before as u32,
                bits: 0,
            };
            self.cut(&mut chosen, left);
            words += bits(chosen.components).map(|c| self.schema.layout(c as usize).words()).sum::<usize>();
            let full = words > limits::PACKET_WORDS || self.scratch.values.len() > limits::PACKET_VALUES;
            if chosen.components == 0 || full {
                self.scratch.values.truncate(before);
                if self.scratch.waiting.len() >= TRIES || full {
                    break;
                }
                // a smaller one may fit
                self.scratch.waiting.push(candidate);
                self.scratch.next += 1;
                continue;
            }
            used += chosen.bits as usize;
            let whole = chosen.components == components;
            self.scratch.chosen.push(chosen);
            if !whole {
                break;
            }
            self.scratch.next += 1;
        }
    }

    /// What did not fit into the packet before goes first in this one; its places are behind us and free.
    fn put_back(&mut self) {
        let PickScratch { order, next, waiting, .. } = &mut *self.scratch;
        *next -= waiting.len();
        order[*next..*next + waiting.len()].copy_from_slice(waiting);
        waiting.clear();
    }

    /// How many candidates from here on appear together.
    fn run_from(&self, first: Candidate) -> usize {
        if first.group == u32::MAX {
            return 1;
        }
        self.scratch.order[self.scratch.next..].iter().take_while(|c| c.group == first.group && c.appears).count()
    }

    fn fits(&mut self, subscriber: &Subscriber, view: &View, run: usize, left: usize) -> bool {
        let before = self.scratch.values.len();
        for i in self.scratch.next..self.scratch.next + run {
            self.encode(subscriber, view, self.scratch.order[i].ghost as usize);
        }
        let values: usize = self.scratch.values[before..].iter().map(|v| v.2 as usize).sum();
        self.scratch.values.truncate(before);
        values + run * self.head_bits() <= left
    }

    /// More than the head of a row takes as a rule.
    fn head_bits(&self) -> usize {
        16 + self.schema.columns()
    }

    /// Encodes what is pending of a ghost; says which components, and against what.
    fn encode(&mut self, subscriber: &Subscriber, view: &View, i: usize) -> (u64, Base) {
        let (block, bit) = (i / BLOCK, 1u64 << (i % BLOCK));
        let columns = self.schema.columns();
        let mut components = (0..columns).fold(0, |m, c| m | u64::from(subscriber.pending(c, block) & bit != 0) << c);
        let introduced = view.ghost(i).own || subscriber.is_reintroduced(i, self.publisher);
        if components & 1 == 0 && introduced && subscriber.unconfirmed_presence(block, self.publisher) & bit != 0 {
            components |= 1;
        }
        let delta = components & !self.schema.absolute;
        let stale = bits(delta).any(|c| subscriber.stale(c as usize, block) & bit != 0);
        let base = match (delta, stale) {
            (0, _) => Base::Any,
            (_, true) => Base::Of(subscriber.row_base(i, self.publisher.history.now())),
            (_, false) => Base::Of(Some(self.base)),
        };
        for c in bits(components) {
            let (at, bits) = self.encode_value(view, i, c as usize, base);
            self.scratch.values.push((c as u8, at, bits));
        }
        (components, base)
    }

    fn encode_value(&mut self, view: &View, i: usize, c: usize, base: Base) -> (u32, u32) {
        let layout = self.schema.layout(c);
        let words = &mut self.scratch.words;
        words.clear();
        match (view.row(i), base) {
            (Some(row), Base::Of(base)) if self.schema.absolute >> c & 1 == 0 => {
                return self.cache.value(self.schema, self.publisher, c, row, base);
            }
            (Some(row), _) if c > 0 => {
                words.extend_from_slice(self.publisher.history.value(c, row));
                layout.mask_entities(words, |net| view.sees(net));
            }
            _ => {
                words.resize(layout.words(), 0);
                view.presence(i, self.publisher).write(self.schema.components.len(), self.schema.slots, words);
            }
        }
        self.cache.absolute(|arena| layout.write(words, None, 0, arena))
    }

    /// Leaves components out, from the last on, until the row fits into `left` bits.
    fn cut(&mut self, chosen: &mut Chosen, left: usize) {
        let head = self.head_bits();
        let values = &mut self.scratch.values;
        let mut bits: usize = values[chosen.first as usize..].iter().map(|v| v.2 as usize).sum();
        if bits + head > left && !self.scratch.chosen.is_empty() {
            chosen.components = 0; // it goes whole, in the next packet
            return;
        }
        while bits + head > left
            && values.len() > chosen.first as usize
            && let Some((c, _, size)) = values.pop()
        {
            bits -= size as usize;
            chosen.components &= !(1 << c);
        }
        chosen.bits = (bits + head) as u32;
    }

    /// Writes the list.
    fn write(&mut self, subscriber: &Subscriber, body: &mut BitWriter) {
        body.clear();
        let Some(view) = subscriber.view() else { return };
        let mut chosen = std::mem::take(&mut self.scratch.chosen);
        chosen.sort_unstable_by_key(|c| c.ghost);
        let own_age = self.own_age();
        let ages = |c: &Chosen| -> SmallVec<[u64; 8]> {
            bits(c.components).map(|x| self.age(view, c.ghost as usize, x as usize, own_age)).collect()
        };
        let span = chosen.last().map_or(0, |c| c.ghost as usize + 1);
        let head = ListHead {
            rows: chosen.len(),
            gap_order: gap_order(chosen.len(), span),
            sample_age: own_age,
            mixed: chosen.iter().any(|c| ages(c).iter().any(|a| *a != own_age)),
            rested: chosen.iter().any(|c| self.rested(subscriber, view, c)),
        };
        head.write(body);
        let mut base = Some(self.base);
        let mut context = head.context(base);
        let now = self.publisher.history.now();
        for c in &chosen {
            if let Base::Of(own) = c.base {
                base = own;
            }
            let rested = head.rested && self.rested(subscriber, view, c);
            let ages = if head.mixed { ages(c) } else { SmallVec::new() };
            let row = ListRow { row: c.ghost as usize, base, components: c.components, ages, rested };
            row.write(&head, &mut context, self.schema.columns(), now, body);
            for (_, at, bits) in &self.scratch.values[c.first as usize..][..c.components.count_ones() as usize] {
                body.append(&self.cache.arena, *at as usize, *bits as usize);
            }
        }
        self.scratch.chosen = chosen;
    }

    fn own_age(&self) -> u64 {
        self.tick.since(self.captured).min(SAMPLE_AGE)
    }

    fn age(&self, view: &View, ghost: usize, c: usize, own_age: u64) -> u64 {
        let sample = view.row(ghost).and_then(|row| self.publisher.sample(c, row));
        sample.map_or(own_age, |sample| self.tick.since(sample).min(SAMPLE_AGE))
    }

    /// Had an interpolated component of it been at rest until the capture before, and does the change of this one go now?
    fn rested(&self, subscriber: &Subscriber, view: &View, chosen: &Chosen) -> bool {
        let Some(row) = view.row(chosen.ghost as usize) else { return false };
        if subscriber.since[chosen.ghost as usize] != self.tick {
            return false;
        }
        let history = &self.publisher.history;
        bits(chosen.components & self.schema.interpolated).any(|c| {
            let c = c as usize;
            let before = if self.publisher.sample(c, row).is_some() { history.now().minus(1) } else { self.before };
            history.has(c, row, history.now()) && !history.has(c, row, before)
        })
    }

    /// Notes what the packet carries.
    fn note(&mut self, subscriber: &mut Subscriber, bits_used: usize, carried: &mut Vec<Carried>) {
        let mut tally = std::mem::take(&mut subscriber.tally);
        tally.fit(self.schema.columns(), self.schema.kinds.len());
        let mut heads = bits_used as u64;
        for chosen in &self.scratch.chosen {
            let i = chosen.ghost as usize;
            let (block, bit, since) = ((i / BLOCK) as u32, 1u64 << (i % BLOCK), subscriber.since[i]);
            let mut total = 0;
            let values = &self.scratch.values[chosen.first as usize..][..chosen.components.count_ones() as usize];
            for (component, _, bits) in values.iter().copied() {
                tally.components[usize::from(component)] += u64::from(bits);
                total += u64::from(bits);
                let same = |x: &&mut Carried| x.block == block && x.component == component;
                match carried.iter_mut().rev().take(self.schema.columns()).find(same) {
                    Some(x) => {
                        x.mask |= bit;
                        x.since = x.since.min(since);
                    }
                    None => carried.push(Carried { block, component, mask: bit, since }),
                }
            }
            heads -= total;
            if self.receipts.are_kept()
                && let Some(view) = subscriber.view()
            {
                let decision = Decision::Sent { bits: total as u32, components: chosen.components };
                self.receipts.push(Receipt { tick: self.tick, peer: self.peer, net: view.ghost(i).net, decision });
            }
            if let Some(row) = subscriber.view().and_then(|view| view.row(i)) {
                tally.kinds[self.publisher.kind(row)] += total;
            }
        }
        tally.heads += heads;
        subscriber.tally = tally;
    }
}

/// The ghost of a ghost's parent.
fn parent_of(schema: &Inner, publisher: &Publisher, view: &View, ghost: usize, parents: &[usize]) -> Option<usize> {
    let row = view.row(ghost)?;
    let presence = publisher.presence(row);
    parents.iter().filter(|c| presence.has(**c)).find_map(|&c| {
        let named = schema.layout(c).entities(publisher.history.value(c, row)).next()?;
        view.ghost_named(named)
    })
}
