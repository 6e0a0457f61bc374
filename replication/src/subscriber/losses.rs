//! What becomes of what lost packets carried: what no later packet carries is pending again, and what one does is owed since the lost
//! one's changes, for if that is lost too, nothing since then has arrived.
//!
//! A send that came to be whole carried just what changed in it, so nobody has to go through its packets' lists: the history knows.

use super::{Carried, Flight, Lists, Subscriber};
use crate::publisher::Publisher;
use smallvec::SmallVec;
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// Rows of a block's component that a lost packet carried, and then one of this send: there they are owed since an earlier change.
pub(super) struct Handed {
    send_tick: Tick,
    /// Component and block, as in the subscriber's tables.
    at: u32,
    since: Tick,
}

impl Subscriber {
    /// Makes pending again what lost packets carried and no later packet did. Then lets go of every packet at the front whose
    /// fate is known.
    pub(super) fn give_up(&mut self, publisher: &Publisher, lost: impl Fn(usize, Duration) -> bool, lists: &mut Lists) {
        let is_lost = |i: usize, f: &Flight| !f.acked && !f.lost && lost(i, f.sent_at);
        if let Some(first) = self.flights.iter().enumerate().position(|(i, f)| is_lost(i, f)) {
            self.hand_on(first, publisher, is_lost);
            self.owe_again(first, publisher, is_lost);
        }
        while self.flights.front().is_some_and(|f| (f.acked || f.lost) && f.send_tick <= self.base) {
            let flight = self.flights.pop_front().expect("it was just looked at");
            lists.give(flight.carried);
        }
        if !self.handed.is_empty() {
            let oldest = self.flights.front().map(|f| f.send_tick);
            self.handed.retain(|h| oldest.is_some_and(|oldest| h.send_tick >= oldest));
        }
        self.forces.forget(self.oldest());
    }

    /// Did a packet carry, with the others of its send, just what the history says has changed in it?
    fn is_listed(&self, flight: &Flight, publisher: &Publisher) -> bool {
        flight.whole && self.view.is_none() && publisher.history.remembers(flight.send_tick)
    }

    /// What packets carry of rows that earlier ones have lost is owed since these: from the first that is lost on, send by send.
    fn hand_on(&mut self, first: usize, publisher: &Publisher, is_lost: impl Fn(usize, &Flight) -> bool) {
        // `scratch`: rows that lost packets carried and no later one so far; `owed`: where there are any
        self.scratch.fill(0);
        let mut owed = std::mem::take(&mut self.owed);
        owed.clear();
        let mut i = first;
        while i < self.flights.len() {
            let send_tick = self.flights[i].send_tick;
            let end = i + self.flights.range(i..).take_while(|f| f.send_tick == send_tick).count();
            let listed = self.is_listed(&self.flights[i], publisher);
            if listed {
                let is_open = self.flights.range(i..end).any(|f| !f.acked && !f.lost);
                self.hand_to_send(send_tick, is_open, &mut owed, publisher);
            }
            for n in i..end {
                if !listed {
                    self.hand_to_packet(n);
                }
                if is_lost(n, &self.flights[n]) {
                    self.gather_lost(n, &mut owed);
                }
            }
            i = end;
        }
        self.owed = owed;
    }

    /// A whole send carries what changed in it.
    fn hand_to_send(&mut self, send_tick: Tick, is_open: bool, owed: &mut Vec<u32>, publisher: &Publisher) {
        let blocks = self.blocks;
        owed.retain(|&at| {
            let (c, block) = (at as usize / blocks, at as usize % blocks);
            let rows = &mut self.scratch[at as usize];
            let taken = *rows & publisher.history.changed_in(c, block, send_tick);
            if taken != 0 && is_open {
                self.handed.push(Handed { send_tick, at, since: self.owed_since[at as usize] });
            }
            *rows &= !taken;
            *rows != 0
        });
    }

    fn hand_to_packet(&mut self, n: usize) {
        let flight = &self.flights[n];
        for x in flight.carried.iter() {
            let at = usize::from(x.component) * self.blocks + x.block as usize;
            if self.scratch[at] & x.mask != 0 {
                if self.owed_since[at] < x.since {
                    self.handed.push(Handed { send_tick: flight.send_tick, at: at as u32, since: self.owed_since[at] });
                }
                self.scratch[at] &= !x.mask;
            }
        }
    }

    /// Gathers what is handed to the packets of one send.
    fn look_up(&mut self, send_tick: Tick) {
        self.handed_here.clear();
        self.handed_here.extend(self.handed.iter().filter(|h| h.send_tick == send_tick).map(|h| (h.at, h.since)));
        self.handed_here.sort_unstable();
    }

    /// Since when rows are owed of which the packet itself says `since`.
    fn handed_since(&self, at: usize, since: Tick) -> Tick {
        let first = self.handed_here.partition_point(|h| (h.0 as usize) < at);
        self.handed_here.get(first).filter(|h| h.0 as usize == at).map_or(since, |h| h.1.min(since))
    }

    fn gather_lost(&mut self, n: usize, owed: &mut Vec<u32>) {
        self.look_up(self.flights[n].send_tick);
        let flight = &self.flights[n];
        for x in flight.carried.iter() {
            let at = usize::from(x.component) * self.blocks + x.block as usize;
            let since = self.handed_since(at, x.since);
            let (rows, of) = (&mut self.scratch[at], &mut self.owed_since[at]);
            if *rows == 0 {
                *of = since;
                owed.push(at as u32);
            }
            *of = since.min(*of);
            *rows |= x.mask;
        }
    }

    /// What lost packets carried and no later one is pending again.
    fn owe_again(&mut self, first: usize, publisher: &Publisher, is_lost: impl Fn(usize, &Flight) -> bool) {
        // from the newest back: `scratch` and these sends are what later packets carried
        self.scratch.fill(0);
        let mut sends = SmallVec::<[Tick; 32]>::new();
        for i in (first..self.flights.len()).rev() {
            let losing = is_lost(i, &self.flights[i]);
            let listed = self.is_listed(&self.flights[i], publisher);
            if losing {
                self.look_up(self.flights[i].send_tick);
            }
            let flight = &mut self.flights[i];
            let send_tick = flight.send_tick;
            flight.lost |= losing;
            // marks want no acknowledgement, and take nothing with them
            self.stats.lost += u64::from(losing && !flight.carried.is_empty());
            if losing || !listed {
                for n in 0..self.flights[i].carried.len() {
                    let x = self.flights[i].carried[n];
                    if losing {
                        self.owe(&x, send_tick, &sends, publisher);
                    }
                    self.scratch[usize::from(x.component) * self.blocks + x.block as usize] |= x.mask;
                }
            }
            if listed && sends.last() != Some(&send_tick) {
                sends.push(send_tick);
            }
        }
    }

    /// What a packet of that send carried is lost; `sends`: whole ones from then on.
    fn owe(&mut self, x: &Carried, send_tick: Tick, sends: &[Tick], publisher: &Publisher) {
        // it may arrive yet
        self.shared.mark_inexact(x.block as usize, send_tick);
        let (c, block) = (usize::from(x.component), x.block as usize);
        let at = c * self.blocks + block;
        // what is not wanted any more is sent again only if it was forced: then it is stale
        let mut again = x.mask & !self.scratch[at] & (self.wants[at] | self.stale[at]);
        for send in sends.iter().filter(|send| **send > send_tick) {
            if again == 0 {
                return;
            }
            again &= !publisher.history.changed_in(c, block, *send);
        }
        again &= !if again == 0 { 0 } else { self.hidden_in(c, block) };
        if again != 0 {
            let since = self.handed_since(at, x.since);
            self.fresh = None;
            self.pending[at] |= again;
            self.mark_since(block, again, since);
        }
    }
}
