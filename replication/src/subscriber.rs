//! What one peer should have, was sent, and has acknowledged, of what another publishes.
//!
//! The acknowledged state is one tick, [`Subscriber::base`], and bits: a row is *stale* in a component if the peer does not hold
//! the value that was in force at the base. Everything follows from four steps, in this order in every frame: acknowledgements
//! ([`Subscriber::acknowledge`]), losses, new changes ([`Subscriber::note_changes`]), and sending, which clears what is pending.
//!
//! All tables are by *index*: the publisher's row, or, for a peer that does not see everything, its [ghost](crate::view). Callers
//! name rows; a row that the peer does not see is none of its business.

mod fate;
mod flights;
mod folded;
mod forces;
mod freight;
mod losses;
mod shared;
mod sight;
mod told;
mod waits;

pub(crate) use fate::Fate;
pub(crate) use freight::{Carried, Freight, Lists};

use crate::block::bits;
use crate::history::BLOCK;
use crate::presence::Life;
use crate::publisher::Publisher;
use crate::receipts::Tally;
use crate::view::View;
use forces::Forces;
use losses::Handed;
use shared::Shared;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;
use waits::Waits;

/// What is gathered after a loss is often less than this; where it is not, the lists grow once.
const LOSSES: usize = 32;

/// "Nothing is pending" in [`Subscriber::since`].
pub(crate) const NEVER: Tick = Tick(u64::MAX);

/// A packet in flight.
struct Flight {
    send_tick: Tick,
    sent_at: Duration,
    acked: bool,
    lost: bool,
    /// With the other packets of its send it carried all that changed in that send: then it can be a base.
    complete: bool,
    /// And nothing else: then the history says what it carried.
    whole: bool,
    carried: Freight,
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
    /// What the peer sees, if that is not everything.
    view: Option<Box<View>>,
    columns: usize,
    blocks: usize,
    /// By component, then block: what this peer is told changes of.
    wants: Vec<u64>,
    /// What must be sent: set by change and by loss, cleared by sending.
    pub(crate) pending: Vec<u64>,
    stale: Vec<u64>,
    /// By index, where a component is stale: a send tick whose values the peer does hold; zero: none.
    as_of: Vec<Tick>,
    /// By block: session tick of the oldest pending change, or [`NEVER`]. Not used with a view.
    pub(crate) since: Vec<Tick>,
    /// With a view: since when what is pending of each ghost waits.
    waits: Waits,
    /// A send, and the ghost whose pending change was the oldest in it; nothing older has become pending since.
    oldest_due: Option<(Tick, usize)>,
    /// By block: indices that the peer was told of.
    known: Vec<u64>,
    base: Tick,
    /// The newest send of which the peer has got something.
    answered: Tick,
    /// The base is rather a send that came whole than the newest that was answered.
    pub(crate) whole_bases: bool,
    /// Components that were guessed from their last motion in the last send, as bits.
    pub(crate) motions: u64,
    /// What of the past the peer shares.
    shared: Shared,
    stale_any: bool,
    /// The send in which what changed in it is all that is pending, and is all pending; and which components that are.
    fresh: Option<(Tick, u64)>,
    /// The send in which what changed in it is all pending, maybe beside other things.
    taken_up: Option<Tick>,
    /// The session tick of the changes of the open send, while these are pending and not listed as such: see [`folded`].
    folded: Option<Tick>,
    /// Nothing is listed as pending. Never said in error; it may be so all the same.
    quiet: bool,
    /// Not all that was pending found room in the last send.
    short: bool,
    /// The publisher's [`shape`](Publisher::shape) in which the peer was found to be told changes of everything; `None`: not known.
    wants_all: Option<u64>,
    next_number: u64,
    flights: VecDeque<Flight>,
    forces: Forces,
    scratch: Vec<u64>,
    /// By component, then block, while losses are looked at: since when `scratch` is owed.
    owed_since: Vec<Tick>,
    /// What losses have left to later packets: see [`losses`].
    handed: Vec<Handed>,
    /// While losses are looked at: what of it is of one send, and the places in `scratch` where anything is owed.
    handed_here: Vec<(u32, Tick)>,
    owed: Vec<u32>,
    /// Since when something was sent and nothing was acknowledged; `None` if the peer owes no answer.
    unanswered: Option<Duration>,
    pub(crate) stats: StreamStats,
    pub(crate) tally: Tally,
}

/// Where changes are looked up: in the publisher's history, or in what of it the peer sees.
#[derive(Clone, Copy)]
enum Source<'a> {
    Rows(&'a Publisher),
    Ghosts(&'a View),
}

impl<'a> Source<'a> {
    fn new(view: &'a Option<Box<View>>, publisher: &'a Publisher) -> Self {
        view.as_ref().map_or(Self::Rows(publisher), |view| Self::Ghosts(view))
    }

    fn blocks(self) -> usize {
        match self {
            Self::Rows(publisher) => publisher.block_count(),
            Self::Ghosts(view) => view.blocks(),
        }
    }

    fn components(self, tick: Tick) -> u64 {
        match self {
            Self::Rows(publisher) => publisher.history.changed_components(tick),
            Self::Ghosts(view) => view.changed_components(tick),
        }
    }

    fn changed(self, c: usize, tick: Tick) -> &'a [u64] {
        match self {
            Self::Rows(publisher) => publisher.history.changed(c, tick),
            Self::Ghosts(view) => view.changed(c, tick),
        }
    }

    fn changed_in(self, c: usize, block: usize, tick: Tick) -> u64 {
        self.changed(c, tick).get(block).copied().unwrap_or(0)
    }
}

impl Subscriber {
    /// Nothing was sent yet; packets are numbered from `first` on. `partial`: the peer sees only what it is [shown](Self::show).
    pub(crate) fn new(publisher: &Publisher, first: u64, partial: bool) -> Self {
        let columns = publisher.history.components();
        let mut subscriber = Self {
            view: partial.then(|| Box::new(View::new())),
            columns,
            blocks: 0,
            wants: Vec::new(),
            pending: Vec::new(),
            stale: Vec::new(),
            as_of: Vec::new(),
            since: Vec::new(),
            waits: Waits::default(),
            oldest_due: None,
            known: Vec::new(),
            base: publisher.history.now().minus(1),
            answered: publisher.history.now().minus(1),
            whole_bases: true,
            motions: 0,
            shared: Shared::new(publisher.history.now(), !partial, columns),
            stale_any: false,
            fresh: None,
            taken_up: None,
            folded: None,
            quiet: false,
            short: false,
            wants_all: None,
            next_number: first,
            flights: VecDeque::new(),
            forces: Forces::default(),
            scratch: Vec::new(),
            owed_since: Vec::new(),
            // losses are rare: they must not find each of these too small for a long time
            handed: Vec::with_capacity(LOSSES),
            handed_here: Vec::with_capacity(LOSSES),
            owed: Vec::with_capacity(LOSSES),
            unanswered: None,
            stats: StreamStats::default(),
            tally: Tally::default(),
        };
        subscriber.follow(publisher);
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
        match self.view {
            Some(_) => self.waits.grow(blocks),
            None => self.since.resize(blocks, NEVER),
        }
        self.known.resize(blocks, 0);
        self.shared.grow(blocks);
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
        let decided = self.flights.iter().take_while(|f| f.acked || f.lost).count();
        self.oldest() + decided as u64
    }

    /// The oldest packet of which there is a record, or the next one: records are kept until the base has passed them.
    fn oldest(&self) -> u64 {
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

    /// What the peer sees, if that is not everything.
    pub(crate) fn view(&self) -> Option<&View> {
        self.view.as_deref()
    }

    /// The index of a row; `None` if the peer does not see it.
    #[inline]
    fn index(&self, row: usize) -> Option<usize> {
        self.view.as_ref().map_or(Some(row), |view| view.ghost_of(row))
    }

    /// Is the peer told changes of a row's component?
    pub(crate) fn wants(&self, c: usize, row: usize) -> bool {
        self.index(row).is_some_and(|i| self.wants[self.at(c, i / BLOCK)] >> (i % BLOCK) & 1 != 0)
    }

    /// Subscribes to a row's component, or ends it.
    pub(crate) fn want(&mut self, c: usize, row: usize, wanted: bool) {
        let Some(i) = self.index(row) else { return };
        let hidden = self.hidden_at(i) >> c & 1 != 0;
        let (at, bit) = (self.at(c, i / BLOCK), 1u64 << (i % BLOCK));
        if wanted && !hidden {
            if self.known[i / BLOCK] & bit != 0 && self.wants[at] & bit == 0 {
                self.shared.begin(i / BLOCK);
            }
            self.wants[at] |= bit;
        } else {
            self.wants[at] &= !bit;
            self.pending[at] &= !bit;
            (self.fresh, self.taken_up, self.wants_all) = (None, None, None);
            self.settle_since(i / BLOCK);
        }
    }

    /// The peer knows of the row's entity without having been told: it spawned it. So it must be told of its end.
    pub(crate) fn note_known(&mut self, row: usize) {
        if let Some(i) = self.index(row) {
            self.known[i / BLOCK] |= 1 << (i % BLOCK);
        }
    }

    /// Makes components of a row pending as absolute values, whatever the peer was sent of them: it starts over.
    pub(crate) fn force(&mut self, row: usize, components: u64, since: Tick) {
        let Some(i) = self.index(row) else { return };
        let components = components & !self.hidden_at(i);
        if components == 0 {
            return;
        }
        let (block, bit) = (i / BLOCK, 1u64 << (i % BLOCK));
        for c in bits(components) {
            let at = self.at(c as usize, block);
            self.pending[at] |= bit;
            self.stale[at] |= bit;
            self.note_force(c as u8, block as u32, bit);
        }
        (self.stale_any, self.fresh, self.taken_up) = (true, None, None);
        self.as_of[i] = Tick::ZERO;
        self.shared.begin(block);
        self.mark_since(block, bit, since);
    }

    /// A packet that is on its way already does not make up for a force, even if it carries the same value: the peer may have
    /// written over it since.
    fn note_force(&mut self, component: u8, block: u32, mask: u64) {
        if self.flights.is_empty() {
            return;
        }
        self.forces.note(self.next_number, (block, component), mask);
    }

    /// What an acknowledged packet settles of what it carried.
    fn settled(&self, number: u64, x: &Carried) -> u64 {
        self.forces.settled(number, (x.block, x.component), x.mask)
    }

    fn mark_since(&mut self, block: usize, mask: u64, since: Tick) {
        (self.oldest_due, self.quiet) = (None, false);
        if self.view.is_none() {
            self.since[block] = self.since[block].min(since);
            return;
        }
        self.waits.mark(block, mask, since);
    }

    fn settle_since(&mut self, block: usize) {
        let pending = self.pending_rows(block);
        if self.view.is_none() {
            if pending == 0 {
                self.since[block] = NEVER;
            }
            return;
        }
        self.waits.keep(block, pending);
    }

    /// The indices of a block with anything pending.
    #[inline]
    pub(crate) fn pending_rows(&self, block: usize) -> u64 {
        (0..self.columns).fold(0, |rows, c| rows | self.pending[self.at(c, block)])
    }

    /// Makes room for new rows.
    pub(crate) fn follow(&mut self, publisher: &Publisher) {
        self.grow(self.view.as_ref().map_or(publisher.history.blocks(), |view| view.blocks()));
    }

    fn source<'a>(&'a self, publisher: &'a Publisher) -> Source<'a> {
        Source::new(&self.view, publisher)
    }

    /// Keeps the base within what both sides remember.
    pub(crate) fn keep_up(&mut self, publisher: &Publisher) {
        self.oldest_due = None;
        self.shared.note_send(publisher.history.now());
        self.move_base(publisher.history.now().minus(limits::BASE_AGE), publisher);
    }

    /// Takes up what changed in the publisher's open tick; `tick` is the session's.
    pub(crate) fn note_changes(&mut self, publisher: &Publisher, tick: Tick) {
        if let Some(view) = &mut self.view {
            view.take_up(publisher);
        }
        self.follow(publisher);
        let now = publisher.history.now();
        self.keep_up(publisher);
        if self.fold(publisher, tick) {
            return;
        }
        let source = Source::new(&self.view, publisher);
        let components = source.components(now);
        let (quiet, by_block) = (!self.is_pending(), self.view.is_none());
        if !by_block {
            self.waits.begin(tick);
        }
        let (mut unwanted, mut fresh) = (0, 0);
        self.quiet = false;
        for c in bits(components) {
            let changes = source.changed(c as usize, now);
            let at = c as usize * self.blocks;
            let (wants, pending) = (&self.wants[at..at + self.blocks], &mut self.pending[at..at + self.blocks]);
            for (block, changed) in changes.iter().enumerate().filter(|(_, changed)| **changed != 0) {
                let new = changed & wants[block];
                unwanted |= changed ^ new;
                if new == 0 {
                    continue;
                }
                fresh |= 1 << c;
                pending[block] |= new;
                if by_block {
                    self.since[block] = self.since[block].min(tick);
                } else {
                    self.waits.add(block, new);
                }
            }
        }
        self.taken_up = (unwanted == 0).then_some(now);
        self.fresh = (quiet && unwanted == 0).then_some((now, fresh));
        for init in &publisher.inits {
            let Some(i) = self.index(init.row as usize) else { continue };
            for c in bits(init.components) {
                let at = self.at(c as usize, i / BLOCK);
                self.stale[at] |= 1 << (i % BLOCK);
            }
            self.as_of[i] = Tick::ZERO;
            self.stale_any = true;
        }
        self.release_ghosts(now);
    }

    /// An entity has ended. If the peer was never told of it, it need not be told of its end; otherwise the tombstone is all that
    /// is still sent.
    pub(crate) fn end_row(&mut self, row: usize, publisher: &Publisher) {
        if self.view.is_some() {
            return self.end_ghost(row, Life::Dead, publisher);
        }
        let (block, bit) = (row / BLOCK, 1u64 << (row % BLOCK));
        (self.fresh, self.taken_up, self.wants_all) = (None, None, None);
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
        // a ghost loses its row when the row ends
        if self.view.is_some() { self.index(row).is_none() } else { self.is_done(row, send_tick) }
    }

    fn is_done(&self, index: usize, send_tick: Tick) -> bool {
        let (block, bit) = (index / BLOCK, 1u64 << (index % BLOCK));
        let at = self.at(0, block);
        if self.known[block] & bit == 0 {
            return self.pending[at] & bit == 0;
        }
        self.pending[at] & bit == 0 && self.stale[at] & bit == 0 && self.base >= send_tick
    }

    /// Forgets a row that is given back.
    pub(crate) fn release_row(&mut self, row: usize) {
        if self.view.is_none() {
            self.forget(row);
        }
    }

    fn forget(&mut self, index: usize) {
        (self.fresh, self.taken_up, self.wants_all) = (None, None, None);
        let (block, bit) = (index / BLOCK, 1u64 << (index % BLOCK));
        for c in 0..self.columns {
            let at = self.at(c, block);
            self.wants[at] &= !bit;
            self.pending[at] &= !bit;
            self.stale[at] &= !bit;
        }
        self.known[block] &= !bit;
        self.as_of[index] = Tick::ZERO;
    }

    fn in_flight(&self, c: usize, index: usize) -> bool {
        let (block, bit) = ((index / BLOCK) as u32, 1u64 << (index % BLOCK));
        let carries = |x: &Carried| x.block == block && usize::from(x.component) == c && x.mask & bit != 0;
        self.flights.iter().any(|f| !f.acked && !f.lost && f.carried.iter().any(carries))
    }

    /// Forces that packets on their way do not make up for.
    #[cfg(test)]
    pub(crate) fn open_forces(&self) -> usize {
        self.forces.len()
    }

    /// The session tick of the oldest change that is pending in the send `now`. What is told less often is not due before its time.
    pub(crate) fn oldest_pending(&mut self, now: Tick) -> Option<Tick> {
        let Some(view) = self.view.as_deref() else { return self.oldest_in_blocks() };
        let due = |i: usize| self.waits.of(i) != NEVER && !self.is_paced(view, i, now);
        // while packets are made less and less is pending: who was the oldest still is
        if let Some((_, oldest)) = self.oldest_due.filter(|(send, i)| *send == now && due(*i)) {
            return Some(self.waits.of(oldest));
        }
        // the last of several: equals go in their order
        let oldest = self.waits.oldest(|i| !self.is_paced(view, i, now))?;
        self.oldest_due = Some((now, oldest));
        Some(self.waits.of(oldest))
    }

    /// Is a ghost told of changes less often, and was it told of one so lately that the next has to wait? What appears and what
    /// ends never waits.
    pub(crate) fn is_paced(&self, view: &View, ghost: usize, now: Tick) -> bool {
        let of = view.ghost(ghost);
        view.row(ghost).is_some() && self.is_known(ghost) && now.since(view.sent(ghost)) < u64::from(of.sighting.period)
    }

    /// Is something pending only because it is told less often? Its turn is counted in sends, so there has to be one.
    pub(crate) fn holds_back(&self, now: Tick) -> bool {
        let Some(view) = &self.view else { return false };
        self.waits.any(|i| self.is_paced(view, i, now))
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

    /// The baseline of an index with a stale component, if there is one that both sides remember at `now`.
    pub(crate) fn row_base(&self, index: usize, now: Tick) -> Option<Tick> {
        let tick = self.as_of[index];
        (tick != Tick::ZERO && now.since(tick) <= limits::BASE_AGE).then_some(tick)
    }

    /// Indices of a block whose presence is on its way or lost: it goes along with whatever else is sent of them.
    pub(crate) fn unconfirmed_presence(&self, block: usize, publisher: &Publisher) -> u64 {
        let (source, at) = (self.source(publisher), self.at(0, block));
        let ticks = self.base.0 + 1..=publisher.history.now().0;
        ticks.fold(self.stale[at], |m, t| m | source.changed_in(0, block, Tick(t))) & self.wants[at]
    }

    /// Has the peer acknowledged that a row's entity is there?
    pub(crate) fn has_told(&self, row: usize) -> bool {
        let Some(i) = self.index(row) else { return false };
        let (at, bit) = (self.at(0, i / BLOCK), 1u64 << (i % BLOCK));
        self.is_known(i) && (self.pending[at] | self.stale[at]) & bit == 0 && !self.in_flight(0, i)
    }

    /// Was the index ever told to the peer?
    #[inline]
    pub(crate) fn is_known(&self, index: usize) -> bool {
        self.known[index / BLOCK] >> (index % BLOCK) & 1 != 0
    }

    /// Has presence changed since the peer was first told of the ghost, and is that unconfirmed?
    pub(crate) fn is_reintroduced(&self, index: usize, publisher: &Publisher) -> bool {
        let Some(view) = &self.view else { return true };
        // the base has passed the first telling, and presence is not what the peer holds: a loss, or a change since
        if self.stale(0, index / BLOCK) >> (index % BLOCK) & 1 != 0 && self.base > view.ghost(index).bound {
            return true;
        }
        let (first, now) = (view.ghost(index).bound.max(self.base), publisher.history.now());
        (first.0 + 1..=now.0).any(|t| view.changed(0, Tick(t)).get(index / BLOCK).is_some_and(|w| w >> (index % BLOCK) & 1 != 0))
    }
}
