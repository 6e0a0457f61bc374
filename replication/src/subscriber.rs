//! What one peer should have, was sent, and has acknowledged, of what another publishes.
//!
//! The acknowledged state is one tick, [`Subscriber::base`], and bits: a row is *stale* in a component if the peer does not hold
//! the value that was in force at the base. Everything follows from four steps, in this order in every frame: acknowledgements
//! ([`Subscriber::acknowledge`]), losses, new changes ([`Subscriber::note_changes`]), and sending, which clears what is pending.

use crate::block::bits;
use crate::history::BLOCK;
use crate::publisher::Publisher;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::ack::AckRanges;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Packets that may overtake one before it counts as lost (as in QUIC, RFC 9002, 6.1.1).
const REORDER_PACKETS: u64 = 3;

/// "Nothing is pending" in [`Subscriber::since`].
pub(crate) const NEVER: Tick = Tick(u64::MAX);

/// Rows of one block and component that a packet carried.
#[derive(Clone, Copy)]
pub(crate) struct Carried {
    pub(crate) block: u32,
    pub(crate) component: u8,
    pub(crate) mask: u64,
    /// Session tick of the oldest change among them.
    pub(crate) since: Tick,
}

/// A packet in flight.
struct Flight {
    send_tick: Tick,
    sent_at: Duration,
    acked: bool,
    lost: bool,
    carried: Vec<Carried>,
}

/// Rows of one block and component that were forced: only packets from this number on make up for it.
#[derive(Clone, Copy)]
struct Force {
    number: u64,
    block: u32,
    component: u8,
    mask: u64,
}

/// Counters of one stream, as values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// State packets sent.
    pub packets: u64,
    /// Bytes of state packets handed to the transport.
    pub bytes: u64,
    /// State packets that were given up as lost.
    pub lost: u64,
    /// Rows sent, counted per component.
    pub rows: u64,
    /// Bytes of packets with entries: without acknowledgements and marks of freshness that went alone.
    pub state_bytes: u64,
}

pub(crate) struct Subscriber {
    columns: usize,
    blocks: usize,
    /// By component, then block: what this peer is told changes of.
    wants: Vec<u64>,
    /// What must be sent: set by change and by loss, cleared by sending.
    pub(crate) pending: Vec<u64>,
    stale: Vec<u64>,
    /// By row, where a component is stale: a send tick whose values the peer does hold; zero: none.
    as_of: Vec<Tick>,
    /// By block: session tick of the oldest pending change, or [`NEVER`].
    pub(crate) since: Vec<Tick>,
    /// By block: rows that the peer was told of.
    known: Vec<u64>,
    base: Tick,
    stale_any: bool,
    next_number: u64,
    flights: VecDeque<Flight>,
    /// In ascending order of numbers; those that every open packet is younger than are let go.
    forces: VecDeque<Force>,
    pool: Vec<Vec<Carried>>,
    scratch: Vec<u64>,
    /// By component, then block, while losses are looked at: since when `scratch` is owed.
    owed_since: Vec<Tick>,
    /// Since when something was sent and nothing was acknowledged; `None` if the peer owes no answer.
    unanswered: Option<Duration>,
    pub(crate) stats: StreamStats,
}

impl Subscriber {
    /// Nothing was sent yet; packets are numbered from `first` on.
    pub(crate) fn new(publisher: &Publisher, first: u64) -> Self {
        let mut subscriber = Self {
            columns: publisher.history.components(),
            blocks: 0,
            wants: Vec::new(),
            pending: Vec::new(),
            stale: Vec::new(),
            as_of: Vec::new(),
            since: Vec::new(),
            known: Vec::new(),
            base: publisher.history.now().minus(1),
            stale_any: false,
            next_number: first,
            flights: VecDeque::new(),
            forces: VecDeque::new(),
            pool: Vec::new(),
            scratch: Vec::new(),
            owed_since: Vec::new(),
            unanswered: None,
            stats: StreamStats::default(),
        };
        subscriber.grow(publisher.history.blocks());
        subscriber
    }

    fn grow(&mut self, blocks: usize) {
        if blocks <= self.blocks {
            return;
        }
        for table in [&mut self.wants, &mut self.pending, &mut self.stale] {
            let mut new = vec![0; self.columns * blocks];
            for c in 0..self.columns {
                new[c * blocks..c * blocks + self.blocks].copy_from_slice(&table[c * self.blocks..(c + 1) * self.blocks]);
            }
            *table = new;
        }
        self.scratch = vec![0; self.columns * blocks];
        self.owed_since = vec![NEVER; self.columns * blocks];
        self.as_of.resize(blocks * BLOCK, Tick::ZERO);
        self.since.resize(blocks, NEVER);
        self.known.resize(blocks, 0);
        self.blocks = blocks;
    }

    #[inline]
    fn at(&self, c: usize, block: usize) -> usize {
        c * self.blocks + block
    }

    /// The number of the next packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// The oldest packet whose fate is open, or the next one.
    pub(crate) fn floor(&self) -> u64 {
        self.next_number - self.flights.len() as u64
    }

    /// The tick whose values are the baselines of all rows that are not stale.
    pub(crate) fn base(&self) -> Tick {
        self.base
    }

    /// May another packet go out?
    pub(crate) fn has_room(&self) -> bool {
        self.flights.len() < limits::PACKETS_IN_FLIGHT
    }

    /// Is the peer told changes of a row's component?
    pub(crate) fn wants(&self, c: usize, row: usize) -> bool {
        self.wants[self.at(c, row / BLOCK)] >> (row % BLOCK) & 1 != 0
    }

    /// Subscribes to a row's component, or ends it.
    pub(crate) fn want(&mut self, c: usize, row: usize, wanted: bool) {
        let (at, bit) = (self.at(c, row / BLOCK), 1u64 << (row % BLOCK));
        if wanted {
            self.wants[at] |= bit;
        } else {
            self.wants[at] &= !bit;
            self.pending[at] &= !bit;
            self.settle_since(row / BLOCK);
        }
    }

    /// The peer knows of the row's entity without having been told: it spawned it. So it must be told of its end.
    pub(crate) fn note_known(&mut self, row: usize) {
        self.known[row / BLOCK] |= 1 << (row % BLOCK);
    }

    /// Makes components of a row pending as absolute values, whatever the peer was sent of them: it starts over.
    pub(crate) fn force(&mut self, row: usize, components: u64, since: Tick) {
        for c in bits(components) {
            let (at, bit) = (self.at(c as usize, row / BLOCK), 1u64 << (row % BLOCK));
            self.pending[at] |= bit;
            self.stale[at] |= bit;
            self.note_force(c as u8, (row / BLOCK) as u32, bit);
        }
        self.stale_any = true;
        self.as_of[row] = Tick::ZERO;
        self.mark_since(row / BLOCK, since);
    }

    /// A packet that is on its way already does not make up for a force, even if it carries the same value: the peer may have
    /// written over it since.
    fn note_force(&mut self, component: u8, block: u32, mask: u64) {
        if self.flights.is_empty() {
            return;
        }
        let number = self.next_number;
        let mut same_number = self.forces.iter_mut().rev().take_while(|f| f.number == number);
        match same_number.find(|f| (f.component, f.block) == (component, block)) {
            Some(f) => f.mask |= mask,
            None => self.forces.push_back(Force { number, block, component, mask }),
        }
    }

    /// What an acknowledged packet settles of what it carried.
    fn settled(&self, number: u64, x: &Carried) -> u64 {
        let later = self.forces.iter().rev().take_while(|f| f.number > number);
        later.filter(|f| (f.block, f.component) == (x.block, x.component)).fold(x.mask, |mask, f| mask & !f.mask)
    }

    fn mark_since(&mut self, block: usize, since: Tick) {
        self.since[block] = self.since[block].min(since);
    }

    fn settle_since(&mut self, block: usize) {
        if (0..self.columns).all(|c| self.pending[self.at(c, block)] == 0) {
            self.since[block] = NEVER;
        }
    }

    /// Makes room for new rows.
    pub(crate) fn follow(&mut self, publisher: &Publisher) {
        self.grow(publisher.history.blocks());
    }

    /// Keeps the base within what both sides remember.
    pub(crate) fn keep_up(&mut self, publisher: &Publisher) {
        self.move_base(publisher.history.now().minus(limits::BASE_AGE), publisher);
    }

    /// Takes up what changed in the publisher's open tick; `tick` is the session's.
    pub(crate) fn note_changes(&mut self, publisher: &Publisher, tick: Tick) {
        self.follow(publisher);
        let history = &publisher.history;
        let now = history.now();
        self.keep_up(publisher);
        for c in bits(history.changed_components(now)) {
            let c = c as usize;
            let changed = history.changed(c, now);
            let range = c * self.blocks..c * self.blocks + changed.len();
            let (wants, pending) = (&self.wants[range.clone()], &mut self.pending[range]);
            for ((pending, (wants, changed)), since) in pending.iter_mut().zip(wants.iter().zip(changed)).zip(&mut self.since) {
                let new = changed & wants;
                if new != 0 {
                    *pending |= new;
                    *since = (*since).min(tick);
                }
            }
        }
        for init in &publisher.inits {
            let row = init.row as usize;
            for c in bits(init.components) {
                let at = self.at(c as usize, row / BLOCK);
                self.stale[at] |= 1 << (row % BLOCK);
            }
            self.as_of[row] = Tick::ZERO;
            self.stale_any = true;
        }
    }

    /// An entity has ended. If the peer was never told of it, it need not be told of its end; otherwise the tombstone is all that
    /// is still sent.
    pub(crate) fn end_row(&mut self, row: usize) {
        let (block, bit) = (row / BLOCK, 1u64 << (row % BLOCK));
        let first = usize::from(self.known[block] & bit != 0);
        for c in first..self.columns {
            let at = self.at(c, block);
            self.pending[at] &= !bit;
            self.wants[at] &= !bit;
            self.stale[at] &= !bit;
        }
        self.settle_since(block);
    }

    /// Has the peer, as far as it ever knew of it, acknowledged the end of a row that ended in `send_tick`?
    pub(crate) fn is_done_with(&self, row: usize, send_tick: Tick) -> bool {
        let (block, bit) = (row / BLOCK, 1u64 << (row % BLOCK));
        let at = self.at(0, block);
        if self.known[block] & bit == 0 {
            return self.pending[at] & bit == 0;
        }
        self.pending[at] & bit == 0 && self.stale[at] & bit == 0 && self.base >= send_tick
    }

    /// Forgets a row that is given back.
    pub(crate) fn release_row(&mut self, row: usize) {
        let (block, bit) = (row / BLOCK, 1u64 << (row % BLOCK));
        for c in 0..self.columns {
            let at = self.at(c, block);
            self.wants[at] &= !bit;
            self.pending[at] &= !bit;
            self.stale[at] &= !bit;
        }
        self.known[block] &= !bit;
        self.as_of[row] = Tick::ZERO;
    }

    fn in_flight(&self, c: usize, row: usize) -> bool {
        let (block, bit) = ((row / BLOCK) as u32, 1u64 << (row % BLOCK));
        let carries = |x: &Carried| x.block == block && usize::from(x.component) == c && x.mask & bit != 0;
        self.flights.iter().any(|f| !f.acked && !f.lost && f.carried.iter().any(carries))
    }

    /// Takes acknowledgements in, at `now`: moves the base, and gives up what was overtaken.
    pub(crate) fn acknowledge(&mut self, ranges: &AckRanges, publisher: &Publisher, now: Duration) {
        self.follow(publisher);
        let first = self.floor();
        let (mut newest, mut answered) = (None, false);
        for i in 0..self.flights.len() {
            let flight = &self.flights[i];
            if flight.acked || flight.lost || !ranges.contains(first + i as u64) {
                continue;
            }
            self.flights[i].acked = true;
            answered |= !self.flights[i].carried.is_empty();
            newest = newest.max(Some(self.flights[i].send_tick));
            if self.flights[i].send_tick <= self.base {
                self.late_acknowledgement(i, publisher);
            }
        }
        if answered {
            self.unanswered = self.awaits_answer().then_some(now);
        }
        if let Some(newest) = newest {
            self.move_base(newest, publisher);
        }
        let newest_number = ranges.newest().unwrap_or(0).min(self.next_number);
        let overtaken = (newest_number + 1).saturating_sub(first + REORDER_PACKETS);
        let overtaken = (overtaken as usize).min(self.flights.len());
        self.give_up(|i, _| i < overtaken);
    }

    /// Is something that was sent, or should be, not acknowledged?
    fn awaits_answer(&self) -> bool {
        self.flights.iter().any(|f| !f.acked && !f.lost && !f.carried.is_empty()) || self.is_pending()
    }

    /// Has nothing been acknowledged for longer than `limit`, though something was sent? Marks do not count: they carry nothing.
    pub(crate) fn is_overdue(&mut self, now: Duration, limit: Duration) -> bool {
        let Some(since) = self.unanswered else { return false };
        if !self.awaits_answer() {
            // what was lost is not wanted any more
            self.unanswered = None;
            return false;
        }
        now > since.saturating_add(limit)
    }

    /// Gives up what was sent before `before` and is still open.
    pub(crate) fn time_out(&mut self, before: Duration) {
        self.give_up(|_, sent_at| sent_at < before);
    }

    /// Moves the base up to `to`, tick by tick. A tick's changes make rows stale, but for those that an acknowledged packet of
    /// that tick carried.
    fn move_base(&mut self, to: Tick, publisher: &Publisher) {
        let history = &publisher.history;
        while self.base < to {
            let tick = self.base.plus(1);
            self.base = tick;
            let changed = history.changed_components(tick);
            let clean = !self.stale_any && changed == 0;
            if clean {
                continue;
            }
            self.scratch.fill(0);
            let first = self.floor();
            for (i, flight) in self.flights.iter().enumerate().filter(|(_, f)| f.acked && f.send_tick == tick) {
                for x in &flight.carried {
                    let at = usize::from(x.component) * self.blocks + x.block as usize;
                    self.scratch[at] |= self.settled(first + i as u64, x);
                }
            }
            self.step(tick, publisher);
        }
    }

    /// One step of the base; `scratch` holds what acknowledged packets of this tick carried.
    fn step(&mut self, tick: Tick, publisher: &Publisher) {
        let history = &publisher.history;
        let changes: SmallVec<[&[u64]; limits::COMPONENTS + 1]> = (0..self.columns).map(|c| history.changed(c, tick)).collect();
        let mut any = 0;
        for block in 0..publisher.block_count() {
            let (mut before, mut after) = (0, 0);
            for (c, changes) in changes.iter().enumerate() {
                let at = c * self.blocks + block;
                let changed = changes.get(block).map_or(0, |changed| changed & self.wants[at]);
                let stale = self.stale[at];
                before |= stale;
                let left = (stale | changed) & !self.scratch[at];
                self.stale[at] = left;
                after |= left;
            }
            for row in bits(after & !before) {
                self.as_of[block * BLOCK + row as usize] = tick.minus(1);
            }
            any |= after;
        }
        self.stale_any = any != 0;
    }

    /// A packet of a tick that the base has passed did arrive: rows that did not change since are not stale after all.
    fn late_acknowledgement(&mut self, flight: usize, publisher: &Publisher) {
        let history = &publisher.history;
        let sent = self.flights[flight].send_tick;
        if !history.remembers(sent) {
            return;
        }
        let number = self.floor() + flight as u64;
        for x in &self.flights[flight].carried {
            let (c, block) = (usize::from(x.component), x.block as usize);
            let at = c * self.blocks + block;
            let later =
                (sent.0 + 1..=self.base.0).fold(0, |m, t| m | history.changed(c, Tick(t)).get(block).copied().unwrap_or(0));
            self.stale[at] &= !(self.settled(number, x) & !later);
        }
    }

    /// Makes pending again what lost packets carried and no later packet did. Then lets go of every packet at the front whose
    /// fate is known.
    fn give_up(&mut self, lost: impl Fn(usize, Duration) -> bool) {
        let is_lost = |i: usize, f: &Flight| !f.acked && !f.lost && lost(i, f.sent_at);
        if self.flights.iter().enumerate().any(|(i, f)| is_lost(i, f)) {
            self.hand_on_since(is_lost);
            // from the newest back: `scratch` gathers what later packets carried
            self.scratch.fill(0);
            for i in (0..self.flights.len()).rev() {
                let flight = &mut self.flights[i];
                let losing = !flight.acked && !flight.lost && lost(i, flight.sent_at);
                flight.lost |= losing;
                // marks want no acknowledgement, and take nothing with them
                self.stats.lost += u64::from(losing && !flight.carried.is_empty());
                for x in &self.flights[i].carried {
                    let (c, block) = (usize::from(x.component), x.block as usize);
                    let at = c * self.blocks + block;
                    // what is not wanted any more is sent again only if it was forced: then it is stale
                    let again = x.mask & !self.scratch[at] & (self.wants[at] | self.stale[at]);
                    if losing && again != 0 {
                        self.pending[at] |= again;
                        self.since[block] = self.since[block].min(x.since);
                    }
                    self.scratch[at] |= x.mask;
                }
            }
        }
        while self.flights.front().is_some_and(|f| f.acked || f.lost) {
            let flight = self.flights.pop_front().expect("it was just looked at");
            self.recycle(flight.carried);
        }
        let floor = self.floor();
        while self.forces.front().is_some_and(|f| f.number <= floor) {
            self.forces.pop_front();
        }
    }

    /// What a later packet carries of a lost one's rows is owed since the lost one's changes: if it is lost too, nothing since then
    /// has arrived.
    fn hand_on_since(&mut self, is_lost: impl Fn(usize, &Flight) -> bool) {
        // `scratch`: rows that lost packets carried and no later one so far
        self.scratch.fill(0);
        for (i, flight) in self.flights.iter_mut().enumerate() {
            let losing = is_lost(i, flight);
            for x in &mut flight.carried {
                let at = usize::from(x.component) * self.blocks + x.block as usize;
                let (owed, since) = (&mut self.scratch[at], &mut self.owed_since[at]);
                if *owed & x.mask != 0 {
                    x.since = x.since.min(*since);
                    *owed &= !x.mask;
                }
                if losing {
                    *since = if *owed == 0 { x.since } else { x.since.min(*since) };
                    *owed |= x.mask;
                }
            }
        }
    }

    fn recycle(&mut self, mut carried: Vec<Carried>) {
        carried.clear();
        self.pool.push(carried);
    }

    /// An empty list for the next packet.
    pub(crate) fn carrier(&mut self) -> Vec<Carried> {
        self.pool.pop().unwrap_or_default()
    }

    /// Notes that a packet went out with `carried` in it.
    pub(crate) fn sent(&mut self, send_tick: Tick, now: Duration, carried: Vec<Carried>) {
        if !carried.is_empty() && self.unanswered.is_none() {
            self.unanswered = Some(now);
        }
        for x in &carried {
            self.stats.rows += u64::from(x.mask.count_ones());
            if x.component == 0 {
                self.known[x.block as usize] |= x.mask;
            }
        }
        self.next_number += 1;
        self.flights.push_back(Flight { send_tick, sent_at: now, acked: false, lost: false, carried });
    }

    /// Clears what a packet carries from what is pending.
    pub(crate) fn clear_pending(&mut self, carried: &[Carried]) {
        for x in carried {
            let at = self.at(usize::from(x.component), x.block as usize);
            self.pending[at] &= !x.mask;
        }
        for x in carried {
            self.settle_since(x.block as usize);
        }
    }

    /// Makes pending again what a packet would have carried that the transport did not take.
    pub(crate) fn return_pending(&mut self, carried: Vec<Carried>) {
        for x in &carried {
            let at = self.at(usize::from(x.component), x.block as usize);
            self.pending[at] |= x.mask;
            self.mark_since(x.block as usize, x.since);
        }
        self.recycle(carried);
    }

    /// Forces that packets on their way do not make up for.
    #[cfg(test)]
    pub(crate) fn open_forces(&self) -> usize {
        self.forces.len()
    }

    /// Is anything pending?
    pub(crate) fn is_pending(&self) -> bool {
        self.since.iter().any(|s| *s != NEVER)
    }

    /// The session tick of the oldest change that is pending.
    pub(crate) fn oldest_pending(&self) -> Option<Tick> {
        self.since.iter().min().copied().filter(|s| *s != NEVER)
    }

    /// Pending rows of a component in a block.
    #[inline]
    pub(crate) fn pending(&self, c: usize, block: usize) -> u64 {
        self.pending[self.at(c, block)]
    }

    /// Stale rows of a component in a block.
    #[inline]
    pub(crate) fn stale(&self, c: usize, block: usize) -> u64 {
        self.stale[self.at(c, block)]
    }

    /// The baseline of a row with a stale component, if there is one that both sides remember at `now`.
    pub(crate) fn row_base(&self, row: usize, now: Tick) -> Option<Tick> {
        let tick = self.as_of[row];
        (tick != Tick::ZERO && now.since(tick) <= limits::BASE_AGE).then_some(tick)
    }

    /// Rows of a block whose presence is on its way or lost: it goes along with whatever else is sent of them.
    pub(crate) fn unconfirmed_presence(&self, block: usize, publisher: &Publisher) -> u64 {
        let history = &publisher.history;
        let changed = |t: u64| history.changed(0, Tick(t)).get(block).copied().unwrap_or(0);
        let at = self.at(0, block);
        (self.base.0 + 1..=history.now().0).fold(self.stale[at], |m, t| m | changed(t)) & self.wants[at]
    }

    /// What is known of one row, for [`why`](crate::Peer::why).
    pub(crate) fn fate(&self, row: usize) -> Fate {
        let (block, bit) = (row / BLOCK, 1u64 << (row % BLOCK));
        let any = |table: &Vec<u64>| (0..self.columns).any(|c| table[c * self.blocks + block] & bit != 0);
        Fate {
            wanted: any(&self.wants),
            pending_since: any(&self.pending).then_some(self.since[block]),
            in_flight: (0..self.columns).any(|c| self.in_flight(c, row)),
            told: self.known[block] & bit != 0,
        }
    }
}

/// See [`Subscriber::fate`].
pub(crate) struct Fate {
    pub(crate) wanted: bool,
    pub(crate) pending_since: Option<Tick>,
    pub(crate) in_flight: bool,
    pub(crate) told: bool,
}
