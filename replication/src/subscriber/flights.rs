//! What becomes of packets on their way: acknowledged, they move the base; lost, what they carried is pending again.

use super::{Flight, Lists, Source, Subscriber};
use crate::block::bits;
use crate::history::BLOCK;
use crate::publisher::Publisher;
use crate::tuner::older;
use smallvec::SmallVec;
use std::time::Duration;
use tidelock_netcore::ack::AckRanges;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Packets that may overtake one before it counts as lost (as in QUIC, RFC 9002, 6.1.1).
const REORDER_PACKETS: u64 = 3;
/// So many sends the base may stay behind the newest that was answered.
const BASE_SLACK: u64 = 2;

impl Subscriber {
    /// Takes acknowledgements in, at `now`: moves the base, and gives up what was overtaken.
    pub(crate) fn acknowledge(&mut self, ranges: &AckRanges, publisher: &Publisher, now: Duration, lists: &mut Lists) {
        self.follow(publisher);
        let first = self.oldest();
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
            self.answered = self.answered.max(newest);
            self.move_base(self.next_base(publisher), publisher);
        }
        let newest_number = ranges.newest().unwrap_or(0).min(self.next_number);
        let overtaken = (newest_number + 1).saturating_sub(first + REORDER_PACKETS);
        let overtaken = (overtaken as usize).min(self.flights.len());
        self.give_up(publisher, |i, _| i < overtaken, lists);
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
    pub(crate) fn time_out(&mut self, before: Duration, publisher: &Publisher, lists: &mut Lists) {
        self.give_up(publisher, |_, sent_at| sent_at < before, lists);
    }

    /// Where the base should be. Who got everything that was sent in a tick shares it with all others who did, and the older the
    /// base the more surprising what has come since: so rather a send a little older than the newest answered one that came whole,
    /// and that leads back to one of which everything is known too.
    fn next_base(&self, publisher: &Publisher) -> Tick {
        if self.view.is_some() || !self.whole_bases {
            return self.answered;
        }
        let now = publisher.history.now();
        let settled = |older: Tick| older <= self.base && self.shared.is_settled_in(self.motions, older);
        let good = |t: &Tick| {
            let back = if self.motions == 0 { None } else { older(now, *t) };
            self.came_whole(*t, publisher) && back.is_none_or(settled)
        };
        let best = (self.base.0 + 1..=self.answered.0).rev().map(Tick).find(good);
        // where nothing more is on its way, nothing better comes
        let comes = |f: &Flight| f.send_tick > self.answered && f.whole && !f.acked && !f.lost;
        let waits = || self.answered.since(self.base) <= BASE_SLACK && self.flights.iter().any(comes);
        best.unwrap_or_else(|| if waits() { self.base } else { self.answered })
    }

    /// Has the peer got all that changed in a send, or was there nothing?
    fn came_whole(&self, tick: Tick, publisher: &Publisher) -> bool {
        let mut carriers = self.flights.iter().filter(|f| f.send_tick == tick && !f.carried.is_empty()).peekable();
        match carriers.peek() {
            Some(_) => carriers.all(|f| f.acked && f.whole),
            None => self.source(publisher).components(tick) == 0,
        }
    }

    /// Moves the base up to `to`, tick by tick. A tick's changes make rows stale, but for those that an acknowledged packet of
    /// that tick carried.
    pub(super) fn move_base(&mut self, to: Tick, publisher: &Publisher) {
        while self.base < to {
            let tick = self.base.plus(1);
            self.base = tick;
            if self.came_whole(tick, publisher) && self.forces.is_empty() {
                self.step_whole(tick, publisher);
                continue;
            }
            self.scratch.fill(0);
            let first = self.oldest();
            for (i, flight) in self.flights.iter().enumerate().filter(|(_, f)| f.send_tick == tick) {
                for x in flight.carried.iter() {
                    if !flight.acked {
                        // it may arrive yet
                        self.shared.mark_inexact(x.block as usize, tick);
                        continue;
                    }
                    let at = usize::from(x.component) * self.blocks + x.block as usize;
                    let settled = self.settled(first + i as u64, x);
                    self.scratch[at] |= settled;
                    if settled != x.mask {
                        // it arrived all the same
                        self.shared.mark_inexact(x.block as usize, tick);
                    }
                }
            }
            self.step(tick, publisher);
        }
    }

    /// One step of the base past a tick of which the peer has everything.
    fn step_whole(&mut self, tick: Tick, publisher: &Publisher) {
        if !self.stale_any {
            return;
        }
        let source = Source::new(&self.view, publisher);
        self.stale_any = false;
        for c in 0..self.columns {
            let changed = source.changed(c, tick);
            for (block, stale) in self.stale[c * self.blocks..(c + 1) * self.blocks].iter_mut().enumerate() {
                if *stale == 0 {
                    continue;
                }
                *stale &= !changed.get(block).copied().unwrap_or(0);
                if *stale != 0 {
                    self.shared.mark_unsettled(c, block, *stale, tick, self.motions);
                    self.stale_any = true;
                }
            }
        }
    }

    /// One step of the base; `scratch` holds what acknowledged packets of this tick carried.
    fn step(&mut self, tick: Tick, publisher: &Publisher) {
        let source = Source::new(&self.view, publisher);
        let changes: SmallVec<[&[u64]; limits::COMPONENTS + 1]> = (0..self.columns).map(|c| source.changed(c, tick)).collect();
        let mut any = 0;
        for block in 0..source.blocks() {
            let (mut before, mut after, mut other) = (0, 0, 0);
            for (c, changes) in changes.iter().enumerate() {
                let at = c * self.blocks + block;
                let changed = changes.get(block).copied().unwrap_or(0);
                other |= changed ^ self.scratch[at];
                let changed = changed & self.wants[at];
                let stale = self.stale[at];
                before |= stale;
                let left = (stale | changed) & !self.scratch[at];
                self.stale[at] = left;
                if left != 0 {
                    self.shared.mark_unsettled(c, block, left, tick, self.motions);
                }
                after |= left;
            }
            for row in bits(after & !before) {
                self.as_of[block * BLOCK + row as usize] = tick.minus(1);
            }
            if other != 0 {
                self.shared.mark_inexact(block, tick);
            }
            any |= after;
        }
        self.stale_any = any != 0;
    }

    /// A packet of a tick that the base has passed did arrive: rows that did not change since are not stale after all.
    fn late_acknowledgement(&mut self, flight: usize, publisher: &Publisher) {
        let source = Source::new(&self.view, publisher);
        let sent = self.flights[flight].send_tick;
        if !publisher.history.remembers(sent) {
            return;
        }
        let number = self.oldest() + flight as u64;
        for x in self.flights[flight].carried.iter() {
            let (c, block) = (usize::from(x.component), x.block as usize);
            let at = c * self.blocks + block;
            let later = (sent.0 + 1..=self.base.0).fold(0, |m, t| m | source.changed_in(c, block, Tick(t)));
            self.stale[at] &= !(self.settled(number, x) & !later);
        }
    }
}
