//! What goes to a peer that does not see everything: of its ghosts with something pending the most urgent ones, as many as fit, as a
//! [list](crate::list). Urgency is weight × age, so nothing waits for ever; what appears goes before what changes, parents before
//! children, and what must appear together goes in one packet if it fits one.

mod sweep;

use crate::block::{SAMPLE_AGE, bits};
use crate::history::BLOCK;
use crate::list::{ListHead, ListRow, gap_order};
use crate::outgoing::Body;
use crate::peer_id::PeerId;
use crate::publisher::Publisher;
use crate::receipts::{Decision, Receipt, Receipts};
use crate::schema::Inner;
use crate::subscriber::{Carried, Lists, Subscriber};
use crate::values::{Coded, ValueCache};
use crate::view::View;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use sweep::Sweep;
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

/// Buffers kept between sends.
#[derive(Default)]
pub(crate) struct PickScratch {
    order: Vec<Candidate>,
    /// The next of `order`.
    next: usize,
    /// Candidates that did not fit into the last packet, though later ones did.
    waiting: Vec<Candidate>,
    /// `order` is in order. Otherwise it is as the ghosts are: where everything fits, the order does not matter.
    ranked: bool,
    /// Some of `order` must appear together.
    grouped: bool,
    /// How many of `order` are enough.
    enough: usize,
    chosen: Vec<Chosen>,
    /// Component, and its bits.
    values: Vec<(u8, Coded)>,
    groups: FxHashMap<u32, u32>,
    words: Vec<u32>,
    /// By block of ghosts.
    sides: Vec<Sides>,
    /// By block, then column: what is pending.
    masks: Vec<u64>,
    /// By column: words of a value.
    sizes: Vec<u32>,
    /// By column: where in what is carried the block is noted.
    seats: Vec<u32>,
    /// Bits that a row has taken lately, head included.
    mean: f32,
    /// What goes without being put in order.
    sweep: Sweep,
    /// Others have the baseline of the peer whose packets are made.
    pub(crate) shared: bool,
}

/// What matters of the ghosts of one block, as masks.
#[derive(Clone, Copy, Default)]
struct Sides {
    /// A pending component with a baseline is stale.
    stale: u64,
    /// Presence is not pending, but unconfirmed.
    unconfirmed: u64,
    /// An interpolated component changes, and did not in the capture before.
    rested: u64,
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
    /// A value of it came from another peer.
    remote: bool,
    rested: bool,
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
    pub(crate) lists: &'a mut Lists,
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
    /// Gathers the ghosts with something pending. About `room` bits will be asked for.
    pub(crate) fn plan(&mut self, subscriber: &Subscriber, room: usize) {
        let PickScratch { order, next, waiting, ranked, grouped, enough, sizes, .. } = &mut *self.scratch;
        order.clear();
        waiting.clear();
        (*next, *ranked, *grouped, *enough) = (0, false, false, room / 16 + 64);
        if sizes.is_empty() {
            sizes.extend((0..self.schema.columns()).map(|c| self.schema.layout(c).words() as u32));
        }
        self.cache.fit(self.publisher);
        let Some(view) = subscriber.view() else { return };
        self.regard(subscriber);
        self.plan_sweep(subscriber, view, room);
        let PickScratch { order, grouped, sweep, .. } = &mut *self.scratch;
        let now = self.publisher.history.now();
        for block in 0..view.blocks() {
            for bit in bits(subscriber.pending_rows(block) & !sweep.rows(block)) {
                let i = block * BLOCK + bit as usize;
                let ghost = view.ghost(i);
                if subscriber.is_paced(view, i, now) {
                    continue;
                }
                let (alive, appears) = (view.row(i).is_some(), !subscriber.is_known(i));
                let age = now.since(view.sent(i));
                let urgency = if alive && !appears { 1.0 } else { APPEARING };
                let score = ghost.sighting.weight * age as f32 * urgency;
                let group = if appears { ghost.sighting.group } else { u32::MAX };
                *grouped |= group != u32::MAX;
                // positive floats are ordered like their bits
                order.push(Candidate { rank: !score.to_bits(), group, depth: 0, appears, ghost: i as u32 });
            }
        }
    }

    /// Sorts them, the most urgent first: at least as many as fit into the room.
    fn rank(&mut self, view: &View) {
        if self.scratch.grouped {
            self.gather_groups(view);
        }
        let PickScratch { order, enough, grouped, ranked, .. } = &mut *self.scratch;
        if order.len() > *enough * 2 && !*grouped {
            order.select_nth_unstable(*enough);
            order.truncate(*enough);
        }
        order.sort_unstable();
        *ranked = true;
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
        if self.is_sweeping()
            && let Some(body) = self.sweep(subscriber, limit, body)
        {
            return body;
        }
        self.regard(subscriber);
        if !self.fill_whole(subscriber, limit, body) {
            self.fill_ranked(subscriber, limit, body);
        }
        let mut carried = self.lists.draft();
        self.note(subscriber, body.len(), &mut carried);
        if carried.is_empty() && self.scratch.sweep.left() > 0 {
            // what does not fit holds up nothing else
            self.lists.keep(carried);
            body.clear();
            return self.sweep(subscriber, limit, body).unwrap_or_default();
        }
        subscriber.clear_pending(&carried);
        let PickScratch { next, order, waiting, chosen, mean, sweep, .. } = &mut *self.scratch;
        if !chosen.is_empty() {
            *mean += (body.len() as f32 / chosen.len() as f32 - *mean) * 0.1;
        }
        let values = carried.iter().map(|x| x.mask.count_ones() as usize).sum();
        Body {
            carried: self.lists.keep(carried),
            copy: None,
            values,
            may_introduce: true,
            all: *next >= order.len() && waiting.is_empty() && sweep.left() == 0,
            whole: false,
        }
    }

    /// Fills `body` with all that is pending, if that fits.
    fn fill_whole(&mut self, subscriber: &Subscriber, limit: usize, body: &mut BitWriter) -> bool {
        let Some(view) = subscriber.view() else { return false };
        let PickScratch { ranked, order, mean, .. } = &*self.scratch;
        if *ranked || order.len() as f32 * *mean > limit as f32 * 1.2 {
            return false;
        }
        self.scratch.chosen.clear();
        self.scratch.values.clear();
        let (mut used, mut words) = (0, 0);
        for place in 0..self.scratch.order.len() {
            let mut chosen = self.encode(subscriber, view, place);
            chosen.bits = self.bits_from(chosen.first as usize) as u32;
            used += chosen.bits as usize;
            words += self.words_in(chosen.components);
            if used > limit || words > limits::PACKET_WORDS || self.scratch.values.len() > limits::PACKET_VALUES {
                return false;
            }
            self.scratch.chosen.push(chosen);
        }
        self.write(subscriber, body);
        let fits = body.len() <= limit;
        if fits {
            self.scratch.next = self.scratch.order.len();
        }
        fits
    }

    /// Fills `body` with the most urgent.
    fn fill_ranked(&mut self, subscriber: &Subscriber, limit: usize, body: &mut BitWriter) {
        let Some(view) = subscriber.view() else { return };
        if !self.scratch.ranked {
            self.rank(view);
        }
        self.choose(subscriber, view, limit);
        self.scratch.chosen.sort_unstable_by_key(|c| c.ghost);
        loop {
            self.write(subscriber, body);
            if body.len() <= limit || self.scratch.chosen.is_empty() {
                return;
            }
            // what was reckoned was too little: the least urgent waits
            let PickScratch { order, next, waiting, chosen, .. } = &mut *self.scratch;
            let last = chosen.iter().enumerate().max_by_key(|(_, c)| c.place).map_or(0, |(i, _)| i);
            let place = chosen.remove(last).place as usize;
            // of what is not in whole, the rest is next anyway
            waiting.extend((place < *next).then(|| order[place]));
        }
    }

    /// Takes rows in the order of urgency while they fit.
    fn choose(&mut self, subscriber: &Subscriber, view: &View, limit: usize) {
        self.scratch.chosen.clear();
        self.scratch.values.clear();
        self.put_back();
        let (mut used, mut words) = (HEAD_BITS, 0);
        while let Some(candidate) = self.scratch.order.get(self.scratch.next).copied() {
            let left = limit.saturating_sub(used);
            let run = self.run_from(candidate);
            if run > 1 && !self.scratch.chosen.is_empty() && !self.fits(subscriber, view, run, left) {
                break; // it gets a packet of its own
            }
            let before = self.scratch.values.len();
            let mut chosen = self.encode(subscriber, view, self.scratch.next);
            let components = chosen.components;
            self.cut(subscriber, view, &mut chosen, left);
            words += self.words_in(chosen.components);
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

    fn words_in(&self, components: u64) -> usize {
        bits(components).map(|c| self.scratch.sizes[c as usize] as usize).sum()
    }

    /// The bits of the values from one on.
    fn bits_from(&self, first: usize) -> usize {
        self.scratch.values[first..].iter().map(|v| v.1.len()).sum()
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
        for place in self.scratch.next..self.scratch.next + run {
            self.encode(subscriber, view, place);
        }
        let values = self.bits_from(before);
        self.scratch.values.truncate(before);
        values + run * self.head_bits() <= left
    }

    /// More than the head of a row takes as a rule.
    fn head_bits(&self) -> usize {
        16 + self.schema.columns()
    }

    /// Encodes what is pending of the candidate at a place of the order.
    fn encode(&mut self, subscriber: &Subscriber, view: &View, place: usize) -> Chosen {
        let i = self.scratch.order[place].ghost as usize;
        let (block, at, columns) = (i / BLOCK, i % BLOCK, self.schema.columns());
        let masks = &self.scratch.masks[block * columns..][..columns];
        let mut components = masks.iter().enumerate().fold(0, |m, (c, mask)| m | (mask >> at & 1) << c);
        let sides = self.scratch.sides[block];
        if sides.unconfirmed >> at & 1 != 0 && (view.ghost(i).own || subscriber.is_reintroduced(i, self.publisher)) {
            components |= 1;
        }
        let base = match (components & !self.schema.absolute, sides.stale >> at & 1 != 0) {
            (0, _) => Base::Any,
            (_, true) => Base::Of(subscriber.row_base(i, self.publisher.history.now())),
            (_, false) => Base::Of(Some(self.base)),
        };
        let first = self.scratch.values.len() as u32;
        let row = view.row(i);
        for c in bits(components) {
            let coded = self.encode_value(view, i, row, c as usize, base);
            self.scratch.values.push((c as u8, coded));
        }
        let remote = row.is_some_and(|row| self.publisher.remote_rows(row / BLOCK) >> (row % BLOCK) & 1 != 0);
        let mut chosen = Chosen { ghost: i as u32, place: place as u32, base, components, first, bits: 0, remote, rested: false };
        // the view knows nothing of what changed before the ghost was bound, nor of others' samples
        let is_plain = !remote && view.ghost(i).bound <= self.before;
        chosen.rested = match is_plain {
            true => sides.rested >> at & 1 != 0 && subscriber.waits_since(i) == self.tick,
            false => self.rested(subscriber, view, &chosen),
        };
        chosen
    }

    #[inline]
    fn encode_value(&mut self, view: &View, i: usize, row: Option<usize>, c: usize, base: Base) -> Coded {
        if let (Some(row), Base::Of(base)) = (row, base)
            && self.schema.absolute >> c & 1 == 0
        {
            return self.cache.value(self.schema, self.publisher, c, row, base);
        }
        let layout = self.schema.layout(c);
        let words = &mut self.scratch.words;
        words.clear();
        match row {
            Some(row) if c > 0 => {
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
    fn cut(&mut self, subscriber: &Subscriber, view: &View, chosen: &mut Chosen, left: usize) {
        let (head, components) = (self.head_bits(), chosen.components);
        let mut bits = self.bits_from(chosen.first as usize);
        let values = &mut self.scratch.values;
        if bits + head > left && !self.scratch.chosen.is_empty() {
            chosen.components = 0; // it goes whole, in the next packet
            return;
        }
        while bits + head > left
            && values.len() > chosen.first as usize
            && let Some((c, coded)) = values.pop()
        {
            bits -= coded.len();
            chosen.components &= !(1 << c);
        }
        chosen.bits = (bits + head) as u32;
        if chosen.components != components {
            chosen.rested = self.rested(subscriber, view, chosen);
        }
    }

    /// Writes the list of what was chosen, which is in ascending order.
    fn write(&self, subscriber: &Subscriber, body: &mut BitWriter) {
        body.clear();
        let Some(view) = subscriber.view() else { return };
        let chosen = &self.scratch.chosen;
        let own_age = self.own_age();
        let is_mixed = |c: &Chosen| c.remote && self.ages(view, c, own_age).iter().any(|a| *a != own_age);
        let span = chosen.last().map_or(0, |c| c.ghost as usize + 1);
        let head = ListHead {
            rows: chosen.len(),
            gap_order: gap_order(chosen.len(), span),
            sample_age: own_age,
            mixed: chosen.iter().any(is_mixed),
            rested: chosen.iter().any(|c| c.rested),
        };
        head.write(body);
        let mut base = Some(self.base);
        let mut context = head.context(base);
        let (now, columns) = (self.publisher.history.now(), self.schema.columns());
        for c in chosen {
            if let Base::Of(own) = c.base {
                base = own;
            }
            let ages = if head.mixed { self.ages(view, c, own_age) } else { SmallVec::new() };
            let row = ListRow { row: c.ghost as usize, base, components: c.components, ages, rested: c.rested };
            row.write(&head, &mut context, columns, now, body);
            for (_, coded) in &self.scratch.values[c.first as usize..][..c.components.count_ones() as usize] {
                self.cache.put(*coded, body);
            }
        }
    }

    /// The sample ages of a row's components.
    fn ages(&self, view: &View, chosen: &Chosen, own_age: u64) -> SmallVec<[u64; 8]> {
        if !chosen.remote {
            return SmallVec::from_elem(own_age, chosen.components.count_ones() as usize);
        }
        bits(chosen.components).map(|c| self.age(view, chosen.ghost as usize, c as usize, own_age)).collect()
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
        if subscriber.waits_since(chosen.ghost as usize) != self.tick {
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
        let PickScratch { chosen, values, seats, .. } = &mut *self.scratch;
        seats.clear();
        seats.resize(self.schema.columns(), u32::MAX);
        for chosen in chosen.iter() {
            let i = chosen.ghost as usize;
            let (block, bit, since) = ((i / BLOCK) as u32, 1u64 << (i % BLOCK), subscriber.waits_since(i));
            let mut total = 0;
            for (component, coded) in values[chosen.first as usize..][..chosen.components.count_ones() as usize].iter().copied() {
                tally.components[usize::from(component)] += coded.len() as u64;
                total += coded.len() as u64;
                let seat = &mut seats[usize::from(component)];
                match carried.get_mut(*seat as usize).filter(|x| x.block == block) {
                    Some(x) => {
                        x.mask |= bit;
                        x.since = x.since.min(since);
                    }
                    None => {
                        *seat = carried.len() as u32;
                        carried.push(Carried { block, component, mask: bit, since });
                    }
                }
            }
            heads -= total;
            if self.receipts.are_kept()
                && let Some(view) = subscriber.view()
            {
                let decision = Decision::Sent { bits: total as u32, components: chosen.components };
                self.receipts.push(Receipt { tick: self.tick, peer: self.peer, net: view.ghost(i).net, decision });
            }
            if let Some(kind) = subscriber.view().filter(|view| view.row(i).is_some()).map(|view| view.ghost(i).kind) {
                tally.kinds[usize::from(kind)] += total;
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
