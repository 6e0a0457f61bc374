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

#[cfg(test)]
mod tests {
    use super::super::{Freight, Lists};
    use super::*;
    use crate::outgoing::Body;
    use crate::policy::Host;
    use crate::presence::{Life, Presence};
    use crate::{PeerId, Replicate, Schema};
    use tidelock_netcore::ack::{AckRanges, Received};
    use tidelock_netcore::bits::{BitReader, BitWriter};

    #[derive(Clone, Copy, Debug, PartialEq, Replicate)]
    struct Count(u16);

    #[derive(Clone, Copy, Default)]
    struct Thing;

    /// A publisher of two rows and one who is told of them, in ticks that are sends; nothing is acknowledged unless it is said.
    struct Stream {
        publisher: Publisher,
        subscriber: Subscriber,
        tick: Tick,
        value: u32,
    }

    const R: usize = 0;
    const S: usize = 1;

    impl Stream {
        fn new() -> Self {
            let schema = Schema::builder("losses").component::<Count>("count", |c| c);
            let schema = schema.kind::<Thing>("thing", Host::default()).build().unwrap();
            let mut publisher = Publisher::new(&schema.0, Tick(1), true);
            let subscriber = Subscriber::new(&publisher, 1, false);
            for row in [R, S] {
                assert_eq!(publisher.bind(0, PeerId::HOST, row as u32), Some(row));
                let presence = Presence { life: Life::Alive, ..Presence::read(publisher.history.value(0, row), 1, 1) };
                publisher.set_presence(row, &presence, Tick(1));
            }
            let mut stream = Self { publisher, subscriber, tick: Tick(1), value: 0 };
            stream.subscriber.follow(&stream.publisher);
            for (c, row) in [(0, R), (0, S), (1, R), (1, S)] {
                stream.subscriber.want(c, row, true);
            }
            stream.change(&[R, S]);
            stream.send();
            stream.acknowledge(1);
            stream
        }

        fn change(&mut self, rows: &[usize]) {
            self.value += 1;
            for row in rows {
                assert!(self.publisher.set(1, *row, &[self.value], self.tick, false));
            }
            self.subscriber.note_changes(&self.publisher, self.tick);
        }

        /// Another tick, in which these rows change.
        fn next(&mut self, tick: u64, rows: &[usize]) {
            while self.tick.0 < tick {
                self.publisher.open();
                self.tick = self.tick.plus(1);
            }
            self.change(rows);
        }

        /// All that is pending goes out.
        fn send(&mut self) {
            self.subscriber.unfold(&self.publisher);
            let since = self.subscriber.since[0];
            let all = [0u8, 1].map(|c| Carried { block: 0, component: c, mask: self.subscriber.pending(c.into(), 0), since });
            let carried: Vec<Carried> = all.into_iter().filter(|x| x.mask != 0).collect();
            self.subscriber.clear_pending(&carried);
            let body = Body { carried: Freight::Own(carried), may_introduce: true, all: true, whole: true, ..Body::default() };
            self.subscriber.sent(self.tick, Duration::from_millis(self.tick.0), body);
        }

        fn acknowledge(&mut self, packet: u64) {
            let (mut received, mut w) = (Received::new(1), BitWriter::new());
            received.insert(packet);
            received.write(&mut w);
            let ranges = AckRanges::read(&mut BitReader::new(&w.to_bytes()), packet).unwrap();
            self.subscriber.acknowledge(&ranges, &self.publisher, Duration::ZERO, &mut Lists::default());
        }

        /// What went out before that tick is lost.
        fn lose(&mut self, before: u64) {
            self.subscriber.time_out(Duration::from_millis(before), &self.publisher, &mut Lists::default());
        }

        /// Rows that are pending, and since when.
        fn pending(&mut self) -> (u64, Option<Tick>) {
            (self.subscriber.pending(1, 0), self.subscriber.oldest_pending(self.tick))
        }
    }

    /// Others' packets, which hold the newest, are nothing for who waits for what is older.
    #[test]
    fn who_left_something_behind_is_told_by_itself() {
        let mut stream = Stream::new();
        let mut is_told_as_others = |tick: u64, sends: bool| {
            stream.next(tick, &[R]);
            let told = stream.subscriber.odd_rows(&stream.publisher, None, &mut Vec::new(), &mut Vec::new());
            if sends {
                stream.send();
            }
            stream.subscriber.end_send(&stream.publisher);
            told
        };
        assert!(is_told_as_others(5, false));
        assert!(!is_told_as_others(6, true), "what changed in tick 5 waits");
        assert!(is_told_as_others(7, true));
    }

    /// R goes out, changes again and finds no room, and goes with S: packets 2 and 3.
    fn waited() -> Stream {
        let mut stream = Stream::new();
        stream.next(5, &[R]);
        stream.send();
        stream.next(8, &[R]);
        stream.subscriber.end_send(&stream.publisher);
        stream.next(10, &[S]);
        stream.send();
        stream
    }

    #[test]
    fn what_is_lost_with_what_it_waited_for_is_owed_since_the_first() {
        let mut stream = waited();
        stream.lose(11);
        assert_eq!(stream.pending(), (0b11, Some(Tick(5))));
    }

    #[test]
    fn what_a_later_packet_carries_is_not_sent_again_though_it_only_went_along() {
        let mut stream = waited();
        stream.lose(6);
        assert_eq!(stream.pending(), (0, None));
        // that one is lost too: with what the first has left to it
        stream.lose(11);
        assert_eq!(stream.pending(), (0b11, Some(Tick(5))));
    }

    #[test]
    fn a_whole_send_takes_over_what_was_lost_before_it() {
        let mut stream = Stream::new();
        stream.next(5, &[R]);
        stream.send();
        stream.next(6, &[R, S]);
        stream.send();
        stream.lose(6);
        assert_eq!(stream.pending(), (0, None), "R is on its way again");
        stream.lose(7);
        assert_eq!(stream.pending(), (0b11, Some(Tick(5))));
    }
}
