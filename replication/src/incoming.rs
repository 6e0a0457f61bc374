//! What one peer receives of what another publishes: a mirror of its rows. Packets are decoded into a temporary; only a packet
//! that is valid as a whole gets into the mirror, and only such a one is acknowledged.

mod arrived;

pub(crate) use arrived::{Touched, TouchedBlocks};

use crate::block::{Common, Context, Entry, EntryBase, bits};
use crate::codes::Chosen;
use crate::codings::Codings;
use crate::forecast::Forecast;
use crate::guesses::{Guesses, Since};
use crate::history::{BLOCK, History, Mark};
use crate::list::{ListHead, ListRow};
use crate::messages::{EventsIn, Rider};
use crate::netid::NetId;
use crate::presence::{self, Life, Presence};
use crate::reckon::Arrivals;
use crate::schema::Inner;
use crate::trained::Tables;
use arrived::Arrived;
use tidelock_netcore::ack::{AckRanges, Received};
use tidelock_netcore::bits::BitReader;
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;
use tidelock_netcore::packet::{Header, PacketKind, References, Stamp};
use tidelock_netcore::tick::Tick;

/// What became of a packet.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack, and boxing it would allocate for every packet")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reception {
    /// It is in the mirror, and will be acknowledged.
    Taken {
        ack: Option<AckRanges>,
        stamp: Option<Stamp>,
        tick: Tick,
        /// It had entries, so it wants an acknowledgement soon.
        eliciting: bool,
        /// The greatest sample age in it.
        oldest_age: u64,
    },
    /// It came a second time, or so late that what it refers to is forgotten: its sender will take it for lost.
    Useless,
}

/// What is kept of an entry that was decoded.
struct Taken {
    block: u32,
    /// Where its masks end.
    end: u32,
    sample_age: u64,
    rested: u64,
}

#[derive(Default)]
struct Decoded {
    entries: Vec<Taken>,
    /// The components of all entries, with their rows.
    masks: Vec<(u8, u64)>,
    /// The values of all entries, one after the other, and how many words of them these are: what is behind that is left over.
    words: Vec<u32>,
    used: usize,
    /// How many they are.
    values: usize,
    codings: Codings,
    guesses: Guesses,
    /// Events that ride along, with their numbers.
    events: Vec<(u64, Rider)>,
}

pub(crate) struct Incoming {
    pub(crate) mirror: History,
    /// A packet has arrived, so there is a send tick to widen others against.
    started: bool,
    /// Which values of rows have arrived.
    rows: Arrived,
    received: Received,
    /// The newest session tick that a packet spoke of.
    newest_tick: Tick,
    /// Number and `complete` of the packet with the highest number.
    newest: (u64, Tick),
    complete: Tick,
    interval: u64,
    /// A list has come: rows may be told less often than sends go out.
    paced: bool,
    decoded: Decoded,
    columns: usize,
    components: usize,
    slots: usize,
    /// So many rows the publisher may have.
    most_rows: usize,
    /// Session ticks a second.
    rate: f64,
    /// By send tick modulo the ring's length: the send tick, and the session's when something of it was sent first.
    sent_at: Vec<(Tick, Tick)>,
    pub(crate) arrivals: Arrivals,
    pub(crate) events: EventsIn,
}

impl Incoming {
    /// `first`: the number of the first packet; `tick`: the session's now; `rows`: how many the
    /// publisher may have.
    pub(crate) fn new(schema: &Inner, first: u64, tick: Tick, rows: usize) -> Self {
        Self {
            mirror: History::new(schema.strides(), Tick::ZERO),
            started: false,
            rows: Arrived::new(schema.columns()),
            received: Received::new(first),
            newest_tick: tick,
            newest: (0, Tick::ZERO),
            complete: Tick::ZERO,
            interval: 1,
            paced: false,
            decoded: Decoded::default(),
            columns: schema.columns(),
            components: schema.components.len(),
            slots: schema.slots,
            most_rows: rows,
            rate: 1.0,
            sent_at: vec![(Tick::ZERO, Tick::ZERO); limits::RING],
            arrivals: Arrivals::default(),
            // a host may publish more than a guest
            events: EventsIn::new(first, rows == limits::ROWS),
        }
    }

    /// Session ticks a second, known once the session is joined.
    pub(crate) fn set_rate(&mut self, rate: u32) {
        self.rate = rate.into();
    }

    /// The session's trained tables.
    pub(crate) fn set_tables(&mut self, tables: Option<Tables>) {
        self.decoded.codings.trained = tables;
    }

    /// What arrived, for acknowledging.
    pub(crate) fn received(&self) -> &Received {
        &self.received
    }

    /// The newest session tick that a packet spoke of.
    pub(crate) fn newest_tick(&self) -> Tick {
        self.newest_tick
    }

    /// Everything that the publisher changed up to this session tick has arrived.
    pub(crate) fn complete(&self) -> Tick {
        self.complete
    }

    /// Everything that the publisher changed up to this session tick was sent, by its newest packet that has arrived. Of that, some
    /// may have been lost.
    pub(crate) fn sent_up_to(&self) -> Tick {
        self.newest.1
    }

    /// Session ticks between two sends, as seen lately.
    pub(crate) fn interval(&self) -> u64 {
        self.interval
    }

    /// How many ticks old a sample of session tick `at` was when it was sent.
    pub(crate) fn age(&self, send: Tick, at: Tick) -> u64 {
        self.sent_at[send.0 as usize % limits::RING].1.since(at)
    }

    /// How many session ticks more than usual are between two samples of a row's component, lately.
    pub(crate) fn lag(&self, c: usize, row: usize) -> u64 {
        const SAMPLES: usize = 4;
        if !self.paced {
            return 0;
        }
        self.mirror.widest_gap(c, row, SAMPLES).saturating_sub(self.interval)
    }

    /// Reads the rest of a state packet, after its `kind`. `sent`: the newest packet number of the other direction; `now`: the
    /// session's tick.
    pub(crate) fn receive(
        &mut self,
        schema: &Inner,
        kind: PacketKind,
        r: &mut BitReader<'_>,
        sent: u64,
        now: Tick,
    ) -> Result<Reception, PeerError> {
        // send ticks only matter relative to each other: before the first, any reference does that leaves room below it
        let send_tick = if self.started { self.mirror.now() } else { Tick(1 << 17) };
        let near = References { number: self.received.reference(), send_tick, tick: now, sent };
        let header = Header::read(r, near).map_err(malformed("packet header"))?;
        if !self.received.is_new(header.number) || !self.in_time(&header) {
            return Ok(Reception::Useless);
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        let result = self.decode(schema, kind, &header, r, &mut decoded);
        if let Ok(true) = result {
            self.paced |= kind == PacketKind::List;
            self.publish(&header, &decoded);
        }
        let eliciting = !decoded.entries.is_empty() || !decoded.events.is_empty();
        if let Ok(true) = result {
            self.events.take(&mut decoded.events);
        }
        let oldest_age = decoded.entries.iter().map(|e| e.sample_age).max().unwrap_or(0);
        self.decoded = decoded;
        if !result? {
            return Ok(Reception::Useless);
        }
        Ok(Reception::Taken { ack: header.ack, stamp: header.stamp, tick: header.tick, eliciting, oldest_age })
    }

    /// Can the ring still take a packet of that tick?
    fn in_time(&self, header: &Header) -> bool {
        header.send_tick > self.mirror.now() || self.mirror.remembers(header.send_tick)
    }

    /// Is a send tick that a packet refers to further back than the ring reaches?
    fn has_forgotten(&self, tick: Tick, header: &Header) -> bool {
        header.send_tick.max(self.mirror.now()).since(tick) >= limits::RING as u64
    }

    /// Decodes all entries; `false` if a baseline is older than what is remembered here.
    fn decode(
        &self,
        schema: &Inner,
        kind: PacketKind,
        header: &Header,
        r: &mut BitReader<'_>,
        into: &mut Decoded,
    ) -> Result<bool, PeerError> {
        into.entries.clear();
        into.masks.clear();
        (into.used, into.values) = (0, 0);
        into.events.clear();
        let all = match kind {
            PacketKind::List => self.decode_list(schema, header, r, into)?,
            _ => self.decode_blocks(schema, header, r, into)?,
        };
        if all {
            if header.events {
                self.events.read(schema, header.tick, r, &mut into.events)?;
            }
            r.clone().finish().map_err(malformed("end of packet"))?;
        }
        Ok(all)
    }

    fn decode_blocks(
        &self,
        schema: &Inner,
        header: &Header,
        r: &mut BitReader<'_>,
        into: &mut Decoded,
    ) -> Result<bool, PeerError> {
        if !r.flag().map_err(malformed("entries"))? {
            return Ok(true);
        }
        let mut codings = std::mem::take(&mut into.codings);
        let result = self.decode_entries(schema, header, &mut codings, r, into);
        into.codings = codings;
        result
    }

    fn decode_entries(
        &self,
        schema: &Inner,
        header: &Header,
        codings: &mut Codings,
        r: &mut BitReader<'_>,
        into: &mut Decoded,
    ) -> Result<bool, PeerError> {
        let components = codings.read(schema, true, r).map_err(malformed("codings"))?;
        // masks are read against it as well
        if header.base.is_some_and(|base| self.has_forgotten(base, header)) {
            return Ok(false);
        }
        let common = Common { components, codings, send_tick: header.send_tick };
        let then = |c: usize, block: u32| {
            let changed = header.base.map_or(&[][..], |base| self.mirror.changed(c, base));
            changed.get(block as usize).copied().unwrap_or(0)
        };
        let mut context = Context::default();
        while let Some(entry) = Entry::read(&mut context, common, then, r).map_err(malformed("entry"))? {
            let plain = (entry.base == EntryBase::Packet).then_some(&*codings);
            if !self.decode_values(schema, header, 0, plain, &entry, r, into)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn decode_list(&self, schema: &Inner, header: &Header, r: &mut BitReader<'_>, into: &mut Decoded) -> Result<bool, PeerError> {
        let head = ListHead::read(r).map_err(malformed("list"))?;
        let mut context = head.context(header.base);
        for _ in 0..head.rows {
            let row = ListRow::read(&head, &mut context, self.columns, header.send_tick, r).map_err(malformed("row"))?;
            let mut known = Ok(true);
            row.entries(|entry| {
                if known == Ok(true) {
                    known = self.decode_values(schema, header, schema.absolute, None, &entry, r, into);
                }
            });
            if !known? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decodes the values of one entry; those of the components in `absolute` have no baseline. `plain`: how a plain entry is coded.
    #[expect(clippy::too_many_arguments, reason = "an entry, where it comes from, and where it goes")]
    fn decode_values(
        &self,
        schema: &Inner,
        header: &Header,
        absolute: u64,
        plain: Option<&Codings>,
        entry: &Entry,
        r: &mut BitReader<'_>,
        into: &mut Decoded,
    ) -> Result<bool, PeerError> {
        let base = match entry.base {
            EntryBase::Packet => header.base,
            EntryBase::Own(base) => base,
        };
        let components = entry.masks.iter().fold(0, |all, m| all | 1 << m.0);
        let seconds = plain.map_or(0.0, |codings| codings.elapsed as f64 / self.rate);
        let since = base.map(|base| Since { base, send_tick: header.send_tick, seconds });
        let looks_back = plain.is_some_and(|codings| codings.looks_back(components) != 0);
        let oldest = since.map(|since| if looks_back { since.older() } else { since.base });
        if oldest.is_some_and(|oldest| self.has_forgotten(oldest, header)) {
            return Ok(false);
        }
        let block = entry.block as usize;
        if (block + 1) * BLOCK > self.most_rows {
            return Err(PeerError::OverLimit { what: "the number of rows" });
        }
        for &(c, mask) in &entry.masks {
            let c = usize::from(c);
            let (layout, count) = (schema.layout(c), mask.count_ones() as usize);
            let start = into.used;
            let end = start + count * layout.words();
            into.values += count;
            if into.values > limits::PACKET_VALUES || end > limits::PACKET_WORDS {
                return Err(PeerError::OverLimit { what: "what one packet may hold" });
            }
            into.used = end;
            if into.words.len() < end {
                into.words.resize(end, 0);
            }
            let since = since.filter(|_| absolute >> c & 1 == 0);
            let age = since.map_or(0, |since| header.send_tick.since(since.base));
            let tables = plain.map_or_else(|| Chosen::fixed(layout.tables(age)), |codings| codings.tables(c, layout, age));
            if let Some(since) = since {
                let forecast = plain.map_or(Forecast::Still, |codings| codings.components[c].forecast);
                self.guess(&mut into.guesses, schema, c, block, mask, since, forecast);
            }
            let guesses = since.map(|_| into.guesses.values());
            layout.read_rows(mask, guesses, tables, r, &mut into.words[start..end]).map_err(malformed("value"))?;
        }
        into.masks.extend_from_slice(&entry.masks);
        let &Entry { block, sample_age, rested, .. } = entry;
        into.entries.push(Taken { block, end: into.masks.len() as u32, sample_age, rested });
        Ok(true)
    }

    /// The guesses that differences are added to. Rows that never arrived have zeros; an honest sender does not refer to them.
    #[expect(clippy::too_many_arguments, reason = "which values, and how they are guessed")]
    fn guess(&self, into: &mut Guesses, schema: &Inner, c: usize, block: usize, rows: u64, since: Since, forecast: Forecast) {
        if block >= self.rows.blocks() {
            return into.make_of_nothing(schema.layout(c).words());
        }
        into.make(schema, &self.mirror, c, block, rows, since, forecast);
    }

    /// Takes a valid packet over.
    fn publish(&mut self, header: &Header, decoded: &Decoded) {
        self.started = true;
        self.received.insert(header.number);
        self.received.forget_below(header.floor.min(header.number));
        if header.send_tick > self.mirror.now() {
            let sends = header.send_tick.since(self.mirror.now()).max(1);
            self.interval = (header.tick.since(self.newest_tick) / sends).clamp(1, 64);
            self.mirror.advance_to(header.send_tick);
        }
        let sent_at = &mut self.sent_at[header.send_tick.0 as usize % limits::RING];
        // a mark names the last send that there was
        if sent_at.0 != header.send_tick && !decoded.entries.is_empty() {
            *sent_at = (header.send_tick, header.tick);
        }
        self.newest_tick = self.newest_tick.max(header.tick);
        if header.number >= self.newest.0 {
            self.newest = (header.number, header.complete);
        }
        if self.received.first_missing() > self.newest.0 {
            self.complete = self.complete.max(self.newest.1);
        }
        let (mut at, mut first) = (0, 0);
        for entry in &decoded.entries {
            let block = entry.block as usize;
            self.grow(block + 1);
            let sample = header.tick.minus(entry.sample_age);
            let masks = &decoded.masks[first..entry.end as usize];
            first = entry.end as usize;
            for &(c, mask) in masks {
                let c = usize::from(c);
                let count = mask.count_ones() as usize * self.mirror.value(c, block * BLOCK).len();
                let words = &decoded.words[at..at + count];
                at += count;
                self.put_rows(c, block, mask, words, (header.send_tick, sample), entry.rested);
            }
        }
    }

    /// Takes the values of some rows of a block, mostly all at once.
    fn put_rows(&mut self, c: usize, block: usize, mask: u64, words: &[u32], (send, sample): (Tick, Tick), rested: u64) {
        let quick = match send == self.mirror.now() {
            true => mask & !self.mirror.changed_in(c, block, send) & self.rows.known(c, block, send),
            false => 0,
        };
        for (rows, rested) in [(quick & !rested, false), (quick & rested, true)] {
            if rows != 0 {
                self.mirror.put_rows(c, block, (rows, mask), words, Mark { sample, first: false, rested }, true);
            }
        }
        if quick != 0 {
            self.rows.touch(c, block, quick);
        }
        if quick != mask {
            let stride = words.len() / mask.count_ones() as usize;
            for (i, bit) in bits(mask).enumerate().filter(|(_, bit)| quick >> bit & 1 == 0) {
                let row = block * BLOCK + bit as usize;
                self.put(c, row, &words[i * stride..][..stride], send, sample, rested >> bit & 1 != 0);
            }
        }
    }

    fn grow(&mut self, blocks: usize) {
        if blocks > self.rows.blocks() {
            self.mirror.grow(blocks);
            self.rows.grow(blocks);
        }
    }

    fn put(&mut self, c: usize, row: usize, words: &[u32], send_tick: Tick, sample: Tick, rested: bool) {
        let first = !self.rows.has(c, row);
        let newest = self.mirror.insert(c, row, words, send_tick, Mark { sample, first, rested });
        if self.rows.has_ended(row, send_tick) {
            return; // of the binding before: good for a baseline, and for nothing else
        }
        self.rows.note(c, row);
        if newest {
            self.rows.touch(c, row / BLOCK, 1 << (row % BLOCK));
        }
    }

    /// The rows touched since the last call, by block.
    pub(crate) fn take_touched(&mut self, into: &mut TouchedBlocks) {
        self.rows.take_blocks(into);
    }

    /// The newest presence of a row.
    pub(crate) fn presence(&self, row: usize) -> Presence {
        if !self.rows.has(0, row) {
            return Presence {
                life: Life::Free,
                net: NetId(0),
                kind: 0,
                cut: 0,
                components: 0,
                owners: [presence::UNOWNED; crate::policy::OWNER_SLOTS],
            };
        }
        Presence::read(self.mirror.value(0, row), self.components, self.slots)
    }

    /// The name in the row's newest presence, once one has arrived.
    pub(crate) fn net(&self, row: usize) -> Option<NetId> {
        self.rows.has(0, row).then(|| presence::net_in(self.mirror.value(0, row)))
    }

    /// The components in the row's newest presence, as [`Presence::components`].
    pub(crate) fn components(&self, row: usize) -> u64 {
        if !self.rows.has(0, row) { 0 } else { presence::components_in(self.mirror.value(0, row), self.components) }
    }

    /// Bit c: component c of the row has arrived under its binding.
    pub(crate) fn have(&self, row: usize) -> u64 {
        self.rows.have(row)
    }

    /// Was the newest value of a component sent under the ownership that the row's newest presence names? Presence travels along
    /// while it is not acknowledged, so what was in force at the value's own send is known here, in whatever order packets came.
    pub(crate) fn is_of_epoch(&self, c: usize, row: usize) -> bool {
        let oldest = self.mirror.now().minus(limits::RING as u64 - 1);
        let sent = self.mirror.newest_change(c, row).unwrap_or(oldest);
        let then = Presence::read(self.mirror.value_at(0, row, sent), self.components, self.slots);
        let now = self.presence(row);
        then.life == now.life && then.owners.map(|o| o.epoch) == now.owners.map(|o| o.epoch)
    }

    /// When the newest value of a component was sampled.
    pub(crate) fn sample(&self, c: usize, row: usize) -> Tick {
        let (newest, _) = self.mirror.bracket(c, row, Tick(u64::MAX));
        newest.and_then(|s| s.tick).unwrap_or(self.newest_tick)
    }

    /// The session tick of the newest sample of any component of a row; zero if the ring has forgotten it.
    pub(crate) fn last_sample(&self, row: usize) -> Tick {
        let sample = |c: usize| self.mirror.newest_change(c, row).map(|_| self.sample(c, row));
        (0..self.columns).filter_map(sample).max().unwrap_or(Tick::ZERO)
    }

    /// A row says that it is alive under a name. `false`: it was so under another, and never ended. An honest sender gives a row
    /// to another entity when the end of the one before was acknowledged, so what was lost in between is no excuse.
    pub(crate) fn bind(&mut self, row: usize, net: NetId) -> bool {
        let before = self.rows.bind(row, net);
        before == NetId(0) || before == net
    }

    /// A row's binding has ended: what was received for it counts no more.
    pub(crate) fn unbind(&mut self, row: usize) {
        self.rows.unbind(row, self.mirror.newest_change(0, row).unwrap_or(self.mirror.now()));
    }
}

fn malformed(what: &'static str) -> impl Fn(tidelock_netcore::bits::BitError) -> PeerError {
    move |cause| PeerError::Malformed { what, cause }
}
