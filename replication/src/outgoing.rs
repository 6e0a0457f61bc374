//! From what is pending to packets: rows in blocks, each value encoded once per tick and baseline and copied into every packet
//! that needs it.

mod cache;
mod splice;

pub(crate) use cache::BitCache;
use cache::Mark;

use crate::block::{Common, Context, END, Entry, EntryBase, Masks, SAMPLE_AGE, bits, cut};
use crate::forecast::Forecast;
use crate::history::BLOCK;
use crate::packing::Packing;
use crate::pick::Picker;
use crate::publisher::Publisher;
use crate::receipts::Tally;
use crate::schema::Inner;
use crate::subscriber::{Carried, Freight, Lists, NEVER, Subscriber};
use crate::tuner::{Tuner, older};
use smallvec::SmallVec;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::limits;
use tidelock_netcore::packet::PacketKind;
use tidelock_netcore::tick::Tick;

/// Builds the packets of one peer's send.
pub(crate) struct Assembler<'a> {
    pub(crate) schema: &'a Inner,
    pub(crate) publisher: &'a Publisher,
    pub(crate) cache: &'a mut BitCache,
    pub(crate) tuner: &'a mut Tuner,
    /// The session's tick: what the values are sampled at.
    pub(crate) tick: Tick,
    /// What this peer's own values are sampled at: the tick of the last capture.
    pub(crate) captured: Tick,
    /// The send tick of the capture before the last one.
    pub(crate) before: Tick,
    /// The packets' baseline.
    pub(crate) base: Tick,
    /// There is nobody else who might be sent the same.
    pub(crate) alone: bool,
    pub(crate) packing: Packing,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) lists: &'a mut Lists,
}

/// Buffers kept between sends.
#[derive(Default)]
pub(crate) struct Scratch {
    order: Vec<(Tick, u32)>,
    /// It is made for this send.
    sorted: bool,
    /// Entries of one block.
    groups: Vec<Entry>,
    /// The entries of the packet in the making.
    body: BitWriter,
    /// What the packet in the making holds so far.
    words: usize,
    values: usize,
    interpolated: Vec<usize>,
    /// Bits of the last entry's values by component, in the order of its masks.
    bits: SmallVec<[u32; 8]>,
    /// Which components occur in the packets, and where what is encoded for plain entries is.
    components: u64,
    set: usize,
    /// The peer has the presence of all that it knows of.
    confirmed: bool,
    /// The peer is told the same as others of its baseline: their cohort, and which of its packets is next; `None` once it is not.
    cohort: Option<(usize, usize)>,
    /// It is told the same but for some rows: these, by block; bits of the blocks that cannot be copied as they are; and what was left
    /// out of the packets for it.
    spliced: bool,
    /// Packets of others that were copied without some rows.
    #[cfg(test)]
    pub(crate) copies: u64,
    odd: Vec<u64>,
    touched: Vec<u64>,
    left: Vec<Carried>,
    /// The entries of the packet in the making.
    marks: Vec<Mark>,
    /// Of the block that is grouped: rows that the peer cannot guess.
    blind: u64,
    /// The send that guesses from the last motion go back to, if any does.
    older: Option<Tick>,
    /// What was sent to the peer whose packets are made.
    tally: Tally,
    /// What is in a packet that was made of another's.
    spliced_tally: Tally,
    /// The same before the packet in the making.
    before: Tally,
}

/// So many bits headers of one send may differ by.
const HEADERS_DIFFER: usize = 64;

/// The packet in the making: what follows its header, the whole, and the whole as bytes.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) body: BitWriter,
    pub(crate) packet: BitWriter,
    pub(crate) bytes: Vec<u8>,
    /// The events that ride along.
    pub(crate) section: BitWriter,
}

/// Builds packets in the form that suits the peer: blocks for one that sees everything, a list for one that does not.
pub(crate) enum Builder<'a> {
    Blocks(Assembler<'a>),
    List(Picker<'a>),
}

impl<'a> From<Assembler<'a>> for Builder<'a> {
    fn from(assembler: Assembler<'a>) -> Self {
        Self::Blocks(assembler)
    }
}

impl Builder<'_> {
    /// Decides the order in which things go; about `room` bytes will be asked for.
    pub(crate) fn plan(&mut self, subscriber: &mut Subscriber, room: usize) {
        match self {
            Self::Blocks(assembler) => assembler.plan(subscriber),
            Self::List(picker) => picker.plan(subscriber, room * 8),
        }
    }

    /// Fills `body` with up to `limit` bits of what is pending, and clears that.
    pub(crate) fn fill(&mut self, subscriber: &mut Subscriber, limit: usize, body: &mut BitWriter) -> Body {
        match self {
            Self::Blocks(assembler) => {
                std::mem::swap(body, &mut assembler.scratch.body);
                let filled = assembler.fill(subscriber, limit);
                std::mem::swap(body, &mut assembler.scratch.body);
                filled
            }
            Self::List(picker) => picker.fill(subscriber, limit, body),
        }
    }

    /// Makes pending again what a packet would have carried.
    pub(crate) fn take_back(&mut self, subscriber: &mut Subscriber, carried: Freight) {
        let lists = match self {
            Self::Blocks(assembler) => &mut *assembler.lists,
            Self::List(picker) => &mut *picker.lists,
        };
        subscriber.return_pending(carried, lists);
    }

    /// Notes what found no room in this send.
    pub(crate) fn note_left(&mut self, subscriber: &Subscriber) {
        if let Self::List(picker) = self {
            picker.note_left(subscriber);
        }
    }

    /// What was made for several peers.
    pub(crate) fn shared(&self) -> Option<&BitWriter> {
        match self {
            Self::Blocks(assembler) => Some(&assembler.cache.arena),
            Self::List(_) => None,
        }
    }

    pub(crate) fn kind(&self) -> PacketKind {
        match self {
            Self::Blocks(_) => PacketKind::State,
            Self::List(_) => PacketKind::List,
        }
    }
}

/// What one packet's body holds.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) carried: Freight,
    /// It is not in the draft, but was made for others before: in [`Builder::shared`] from a bit on, so many bits.
    pub(crate) copy: Option<(usize, usize)>,
    /// Values in it.
    pub(crate) values: usize,
    /// There may be presence among them.
    pub(crate) may_introduce: bool,
    /// Nothing that is pending was left out.
    pub(crate) all: bool,
    /// And nothing beside it was put in, here or in an earlier packet of the send.
    pub(crate) whole: bool,
}

impl Assembler<'_> {
    /// Finds out how the peer is told what is pending, and whether others are told the same.
    pub(crate) fn plan(&mut self, subscriber: &mut Subscriber) {
        self.scratch.sorted = false;
        self.scratch.interpolated.clear();
        let interpolated = self.schema.components.iter().enumerate().filter(|(_, c)| c.interpolate).map(|(i, _)| i + 1);
        self.scratch.interpolated.extend(interpolated);
        self.scratch.components = subscriber.pending_components(self.publisher);
        let elapsed = self.publisher.elapsed(self.base);
        self.scratch.set = self.cache.plain_set(self.base, elapsed, self.schema, self.publisher, self.tuner);
        self.scratch.confirmed = self.scratch.components & 1 == 0;
        let motions = self.cache.sets[self.scratch.set].codings.looks_back(self.scratch.components);
        subscriber.motions = motions;
        let now = self.publisher.history.now();
        self.scratch.older = if motions == 0 { None } else { older(now, self.base) };
        self.join_cohort(subscriber);
    }

    /// Fills `scratch.body` with entries of up to `limit` bits, the closing 0 bit included, and clears what it took from what is
    /// pending.
    pub(crate) fn fill(&mut self, subscriber: &mut Subscriber, limit: usize) -> Body {
        self.scratch.body.clear();
        let alike = if self.scratch.spliced { self.splice(subscriber, limit) } else { self.fill_alike(subscriber, limit) };
        if let Some(body) = alike {
            return body;
        }
        subscriber.unfold(self.publisher);
        // headers differ by some bits; what one peer is sent should fit the others
        let limit = if self.scratch.cohort.is_some() { limit.saturating_sub(HEADERS_DIFFER) } else { limit };
        let mut before = std::mem::take(&mut self.scratch.before);
        before.clone_from(&subscriber.tally);
        let mut body = self.fill_anew(subscriber, limit);
        self.keep_alike(&mut body, &before, subscriber);
        self.scratch.before = before;
        body
    }

    /// Sorts the blocks with something pending: the oldest change first, in ascending order among equals.
    fn sort_blocks(&mut self, subscriber: &Subscriber) {
        if std::mem::replace(&mut self.scratch.sorted, true) {
            return;
        }
        let order = &mut self.scratch.order;
        order.clear();
        let pending = subscriber.since.iter().enumerate().filter(|(_, s)| **s != NEVER);
        order.extend(pending.map(|(block, since)| (*since, block as u32)));
        order.sort_unstable();
        order.reverse(); // taken from the end
    }

    fn fill_anew(&mut self, subscriber: &mut Subscriber, limit: usize) -> Body {
        self.sort_blocks(subscriber);
        self.scratch.body.flag(true);
        self.cache.sets[self.scratch.set].codings.write(self.scratch.components, true, &mut self.scratch.body);
        (self.scratch.words, self.scratch.values) = (0, 0);
        self.scratch.marks.clear();
        self.scratch.tally = std::mem::take(&mut subscriber.tally);
        self.scratch.tally.fit(self.schema.columns(), self.schema.kinds.len());
        let counted: u64 = self.scratch.tally.components.iter().sum();
        let mut context = Context::default();
        let mut carried = self.lists.draft();
        let mut full = false;
        while let Some(&(since, block)) = self.scratch.order.last() {
            let block = block as usize;
            if subscriber.since[block] == NEVER {
                // it went in a packet that others were sent
                self.scratch.order.pop();
                continue;
            }
            if self.put_whole(subscriber, since, block, limit, &mut context, &mut carried) {
                self.scratch.order.pop();
                continue;
            }
            self.group(subscriber, block);
            let from = carried.len();
            let mut groups = std::mem::take(&mut self.scratch.groups);
            for entry in &mut groups {
                full = !self.put_group(since, entry, limit, &mut context, &mut carried);
                if full {
                    break;
                }
            }
            self.scratch.groups = groups;
            subscriber.clear_pending(&carried[from..]);
            if full {
                break;
            }
            self.scratch.order.pop();
        }
        self.scratch.body.put(END, 2);
        let values = self.scratch.tally.components.iter().sum::<u64>() - counted;
        self.scratch.tally.heads += self.scratch.body.len() as u64 - values;
        subscriber.tally = std::mem::take(&mut self.scratch.tally);
        let (values, may_introduce) = (self.scratch.values, self.scratch.components & 1 != 0);
        let carried = self.lists.keep(carried);
        let whole = !full && self.scratch.confirmed;
        Body { carried, copy: None, values, may_introduce, all: !full, whole }
    }

    /// Puts a block in as it was written for another peer, if it is told the very same.
    fn put_whole(
        &mut self,
        subscriber: &mut Subscriber,
        since: Tick,
        block: usize,
        limit: usize,
        context: &mut Context,
        carried: &mut Vec<Carried>,
    ) -> bool {
        let (fresh, exact, age) = (since == self.tick, subscriber.is_exact(block, self.base), self.own_age());
        let found = self.cache.wholes(self.scratch.set, block).find(|whole| {
            let entry = &whole.entry;
            let plain = entry.base == EntryBase::Packet && entry.sample_age == age;
            let alike = whole.components == self.scratch.components && whole.before == *context;
            plain
                && alike
                && whole.fresh == fresh
                && entry.guessed == exact
                && subscriber.pends(block, whole.components, &entry.masks)
        });
        let Some(whole) = found else { return false };
        let (masks, at) = (&whole.entry.masks, whole.at);
        let rows = masks.iter().fold(0, |rows, m| rows | m.1);
        let introduced = !self.scratch.confirmed && subscriber.unconfirmed_presence(block, self.publisher) & rows != 0;
        if introduced || self.publisher.remote_rows(block) & rows != 0 {
            return false;
        }
        let stale = || masks.iter().any(|m| subscriber.stale(usize::from(m.0), block) & m.1 != 0);
        if subscriber.has_stale() && stale() || self.blind(subscriber, block, masks) != 0 {
            return false;
        }
        let (words, values) = (self.scratch.words + whole.weight.0, self.scratch.values + whole.weight.1);
        if self.scratch.body.len() + at.1 >= limit || words > limits::PACKET_WORDS || values > limits::PACKET_VALUES {
            return false;
        }
        (self.scratch.words, self.scratch.values) = (words, values);
        if self.scratch.cohort.is_some() {
            let (start, bits) = (self.scratch.body.len(), whole.bits.iter().copied().collect());
            self.scratch.marks.push(Mark { block: block as u32, start, before: *context, bits });
        }
        self.scratch.body.append(&self.cache.arena, at.0, at.1);
        *context = whole.after;
        for (&(component, mask), &bits) in masks.iter().zip(&whole.bits) {
            carried.push(Carried { block: block as u32, component, mask, since });
            self.scratch.tally.components[usize::from(component)] += u64::from(bits);
            self.scratch.tally.kinds[whole.kind] += u64::from(bits);
        }
        subscriber.take_block(block, self.scratch.components);
        true
    }

    /// Puts an entry in, or as many of its rows as fit; says whether all did.
    fn put_group(
        &mut self,
        since: Tick,
        entry: &mut Entry,
        limit: usize,
        context: &mut Context,
        carried: &mut Vec<Carried>,
    ) -> bool {
        let block = entry.block;
        let mut whole = true;
        loop {
            let (start, before) = (self.scratch.body.len(), *context);
            self.put(since, entry, context);
            let (words, values) = self.weigh(entry);
            let left = (limits::PACKET_WORDS - self.scratch.words, limits::PACKET_VALUES - self.scratch.values);
            if self.scratch.body.len() < limit && words <= left.0 && values <= left.1 {
                self.scratch.words += words;
                self.scratch.values += values;
                carried.extend(entry.masks.iter().map(|&(component, mask)| Carried { block, component, mask, since }));
                if self.scratch.cohort.is_some() {
                    let bits = self.scratch.bits.iter().copied().collect();
                    self.scratch.marks.push(Mark { block, start, before, bits });
                }
                self.count(entry);
                return whole;
            }
            let size = self.scratch.body.len() - start;
            self.scratch.body.truncate(start);
            *context = before;
            whole = false;
            // the scarcest of bits, words and values decides how many rows can stay
            let needs = [(limit.saturating_sub(start), size), (left.0, words), (left.1, values)];
            let (room, size) = needs.into_iter().min_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1))).unwrap_or((0, 1));
            if !cut(&mut entry.masks, room, size) {
                return false;
            }
        }
    }

    /// Counts what an entry that is in takes.
    fn count(&mut self, entry: &Entry) {
        let kind = self.publisher.kind_of(entry.block as usize);
        let Scratch { tally, bits, .. } = &mut *self.scratch;
        for (&(c, _), bits) in entry.masks.iter().zip(bits.iter()) {
            tally.components[usize::from(c)] += u64::from(*bits);
            tally.kinds[kind] += u64::from(*bits);
        }
    }

    /// What an entry makes its receiver keep for a moment: words and values.
    fn weigh(&self, entry: &Entry) -> (usize, usize) {
        entry.masks.iter().fold((0, 0), |(words, values), &(c, mask)| {
            let rows = mask.count_ones() as usize;
            (words + rows * self.schema.layout(usize::from(c)).words(), values + rows)
        })
    }

    /// Writes one entry.
    fn put(&mut self, since: Tick, entry: &mut Entry, context: &mut Context) {
        let plain = entry.base == EntryBase::Packet;
        entry.rested = if plain && since == self.tick { self.rested(entry.block as usize, &entry.masks) } else { 0 };
        let (start, before) = (self.scratch.body.len(), *context);
        let (components, block) = (self.scratch.components, entry.block as usize);
        let set = &self.cache.sets[self.scratch.set];
        // the same values may stand behind another head
        let kept = self
            .cache
            .wholes(self.scratch.set, block)
            .find(|whole| whole.entry.base == entry.base && whole.entry.masks == entry.masks);
        let history = &self.publisher.history;
        let common = Common { components, codings: &set.codings, send_tick: history.now() };
        let then = |c: usize| history.changed(c, self.base).get(block).copied().unwrap_or(0);
        entry.write(context, common, then, &mut self.scratch.body);
        if let Some(whole) = kept {
            self.scratch.body.append(&self.cache.arena, whole.at.0 + whole.head, whole.at.1 - whole.head);
            self.scratch.bits.clone_from(&whole.bits);
            return;
        }
        let head = self.scratch.body.len() - start;
        let set = match entry.base {
            EntryBase::Packet => self.scratch.set,
            EntryBase::Own(base) => self.cache.set(base, false, self.publisher).0,
        };
        self.scratch.bits.clear();
        for &(c, mask) in &entry.masks {
            let c = usize::from(c);
            self.cache.encode(set, self.schema, self.publisher, c, block, mask);
            let bits = self.cache.copy(set, c, block, mask, &mut self.scratch.body);
            self.scratch.bits.push(bits);
        }
        if !self.alone && self.packing.blocks {
            self.keep(entry, (before, *context), (start, head), since == self.tick);
        }
    }

    /// Keeps an entry that was written from a bit of the body on, and whose values come so many bits later, for whoever is told the
    /// same. `context`: before and after it.
    fn keep(&mut self, entry: &Entry, context: (Context, Context), (start, head): (usize, usize), fresh: bool) {
        let (weight, kind) = (self.weigh(entry), self.publisher.kind_of(entry.block as usize));
        let at = (self.cache.arena.len(), self.scratch.body.len() - start);
        let Some(whole) = self.cache.place(self.scratch.set, entry.block as usize) else { return };
        whole.entry.clone_from(entry);
        whole.bits.clone_from(&self.scratch.bits);
        (whole.components, whole.at, whole.head) = (self.scratch.components, at, head);
        (whole.before, whole.after) = context;
        (whole.weight, whole.kind, whole.fresh) = (weight, kind, fresh);
        self.cache.arena.append(&self.scratch.body, start, at.1);
    }

    /// Splits what is pending in a block into groups of one baseline and one sample age each.
    fn group(&mut self, subscriber: &Subscriber, block: usize) {
        let columns = self.schema.columns();
        let mut pending = Masks::new();
        for c in 0..columns {
            let mask = subscriber.pending(c, block);
            if mask != 0 {
                pending.push((c as u8, mask));
            }
        }
        let rows = pending.iter().fold(0, |rows, m| rows | m.1);
        let introduced = subscriber.unconfirmed_presence(block, self.publisher) & rows;
        match pending.first_mut() {
            Some(first) if first.0 == 0 => first.1 |= introduced,
            _ if introduced != 0 => pending.insert(0, (0, introduced)),
            _ => {}
        }
        let stale = pending.iter().fold(0, |rows, m| rows | subscriber.stale(usize::from(m.0), block) & m.1);
        self.scratch.blind = self.blind(subscriber, block, &pending);
        let special = (stale | self.scratch.blind | self.publisher.remote_rows(block)) & rows;
        let guessed = subscriber.is_exact(block, self.base);
        self.scratch.groups.clear();
        let (number, own_age) = (block as u32, self.own_age());
        let plain = Entry { block: number, sample_age: own_age, guessed, ..Entry::default() };
        if special == 0 {
            self.scratch.groups.push(Entry { masks: pending, ..plain });
            return;
        }
        let masks: Masks = pending.iter().map(|m| (m.0, m.1 & !special)).filter(|m| m.1 != 0).collect();
        if !masks.is_empty() {
            self.scratch.groups.push(Entry { masks, ..plain.clone() });
        }
        self.group_special(subscriber, block, special, stale, plain, &pending);
    }

    /// Rows that are stale, that the peer cannot guess, or that came from others: by baseline and sample age.
    fn group_special(&mut self, subscriber: &Subscriber, block: usize, special: u64, stale: u64, plain: Entry, pending: &Masks) {
        let (remote, now) = (self.publisher.remote_rows(block), self.publisher.history.now());
        let mut groups = SmallVec::<[(EntryBase, u64); 8]>::new();
        for bit in bits(special) {
            let row = block * BLOCK + bit as usize;
            let base = match () {
                () if stale >> bit & 1 != 0 => EntryBase::Own(subscriber.row_base(row, now)),
                () if self.scratch.blind >> bit & 1 != 0 => EntryBase::Own(Some(self.base)),
                () => EntryBase::Packet,
            };
            if remote >> bit & 1 != 0 {
                self.group_row(block, bit, base, plain.guessed, pending);
                continue;
            }
            match groups.iter_mut().find(|group| group.0 == base) {
                Some(group) => group.1 |= 1 << bit,
                None => groups.push((base, 1 << bit)),
            }
        }
        for (base, rows) in groups {
            let masks = pending.iter().map(|m| (m.0, m.1 & rows)).filter(|m| m.1 != 0).collect();
            self.scratch.groups.push(Entry { base, masks, guessed: false, ..plain.clone() });
        }
    }

    /// Rows of which the peer lacks what a guess is made from.
    fn blind(&self, subscriber: &Subscriber, block: usize, pending: &Masks) -> u64 {
        let codings = &self.cache.sets[self.scratch.set].codings;
        let mut blind = 0;
        for &(c, rows) in pending {
            let c = usize::from(c);
            match (codings.components[c].forecast, self.schema.velocity(c), self.scratch.older) {
                (Forecast::Motion, _, Some(older)) => {
                    blind |= rows & subscriber.unsettled(c, block, older) | self.publisher.fresher(block, rows, older);
                }
                (Forecast::Motion, ..) => blind |= rows,
                (Forecast::Velocity, Some(velocity), _) => {
                    let source = velocity.source;
                    let has = self.publisher.ever_rows(source, block) & subscriber.wanted(source, block);
                    blind |= rows & (!has | subscriber.stale(source, block));
                }
                _ => {}
            }
        }
        blind
    }

    fn own_age(&self) -> u64 {
        self.tick.since(self.captured).min(SAMPLE_AGE)
    }

    fn group_row(&mut self, block: usize, bit: u32, base: EntryBase, guessed: bool, pending: &Masks) {
        let (row, guessed) = (block * BLOCK + bit as usize, guessed && base == EntryBase::Packet);
        let mut presence_age = None;
        // presence goes with the first of the row's other components: a teleport and its mark share an entry
        for &(c, _) in pending.iter().rev().filter(|m| m.1 >> bit & 1 != 0) {
            let age = match self.publisher.sample(usize::from(c), row) {
                Some(sample) => self.tick.since(sample).min(SAMPLE_AGE),
                None => self.own_age(),
            };
            let age = if c == 0 { presence_age.unwrap_or(age) } else { age };
            presence_age = Some(age);
            let like = Entry { block: block as u32, base, sample_age: age, guessed, ..Entry::default() };
            self.join_group(like, c, 1 << bit);
        }
    }

    fn join_group(&mut self, like: Entry, c: u8, bit: u64) {
        let groups = &mut self.scratch.groups;
        let found = groups.iter().position(|g| g.base == like.base && g.sample_age == like.sample_age);
        let group = match found {
            Some(i) => &mut groups[i],
            None => {
                groups.push(like);
                groups.last_mut().expect("it was just pushed")
            }
        };
        match group.masks.binary_search_by_key(&c, |m| m.0) {
            Ok(i) => group.masks[i].1 |= bit,
            Err(i) => group.masks.insert(i, (c, bit)),
        }
    }

    /// Rows whose interpolated components changed in this send and not in the one before: for this peer's own values the capture
    /// before, since what goes on between captures says nothing of them.
    fn rested(&self, block: usize, masks: &Masks) -> u64 {
        let history = &self.publisher.history;
        let now = history.now();
        let changed = |c: usize, tick| history.changed(c, tick).get(block).copied().unwrap_or(0);
        let remote = self.publisher.remote_rows(block);
        let interpolated = masks.iter().filter(|m| self.scratch.interpolated.contains(&usize::from(m.0)));
        interpolated.fold(0, |rested, &(c, mask)| {
            let c = usize::from(c);
            let before = changed(c, self.before) & !remote | changed(c, now.minus(1)) & remote;
            rested | mask & changed(c, now) & !before
        })
    }
}
