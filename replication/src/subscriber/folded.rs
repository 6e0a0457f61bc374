//! Who is told all that changes needs no list of what has just become pending: it is the changes of the open send, the same for all
//! such peers. It stays *folded*, until all of it went in packets that others were sent too, or something asks for the list, in which
//! until then stands only what was pending before. It is never folded from one call of `send` to the next.

use super::{Carried, NEVER, Subscriber};
use crate::block::bits;
use crate::publisher::Publisher;
use tidelock_netcore::tick::Tick;

impl Subscriber {
    /// Leaves the changes of the open send folded, if that can be. `tick` is the session's.
    pub(super) fn fold(&mut self, publisher: &Publisher, tick: Tick) -> bool {
        let now = publisher.history.now();
        let components = publisher.history.changed_components(now);
        // presence goes along with other things, and is asked for by itself
        let simple = self.view.is_none() && publisher.inits.is_empty() && components & 1 == 0;
        if !simple || !self.wants_all(publisher) {
            return false;
        }
        self.quiet = !self.is_pending();
        self.taken_up = Some(now);
        self.fresh = self.quiet.then_some((now, components));
        self.folded = (components != 0).then_some(tick);
        true
    }

    /// Are the changes of the open send folded, while other things are pending, or may have to be told in another way?
    pub(crate) fn is_uneven(&self) -> bool {
        self.is_folded() && (!self.quiet || self.stale_any)
    }

    /// Gathers, by block, the rows that the peer cannot be told of as all others are: those of which something was pending before, and
    /// those that have changed while it lacks the baseline, or what guesses that go back to `older` are made from. `touched`: bits of
    /// the blocks that have any, or of which it does not know the rows that changed in the baseline's send. `false`: all of them.
    pub(crate) fn odd_rows(
        &self,
        publisher: &Publisher,
        older: Option<Tick>,
        odd: &mut Vec<u64>,
        touched: &mut Vec<u64>,
    ) -> bool {
        // who lacked room before is told the oldest first, and not what is the same for all
        if !self.is_folded() || self.short || !self.shared.begins_by(self.base) {
            return false;
        }
        odd.clear();
        odd.resize(self.blocks, 0);
        let now = publisher.history.now();
        for c in 0..self.columns {
            let (from, changed) = (c * self.blocks, publisher.history.changed(c, now));
            if !self.quiet {
                odd.iter_mut().zip(&self.pending[from..]).for_each(|(odd, pending)| *odd |= pending);
            }
            if self.stale_any {
                let stale = self.stale[from..].iter().zip(changed);
                odd.iter_mut().zip(stale).for_each(|(odd, (stale, changed))| *odd |= stale & changed);
            }
            if let Some(older) = older.filter(|_| self.motions >> c & 1 != 0) {
                let changed = odd.iter_mut().zip(changed).enumerate().filter(|(_, (_, changed))| **changed != 0);
                changed.for_each(|(block, (odd, changed))| *odd |= changed & self.shared.unsettled(c, block, older));
            }
        }
        touched.clear();
        touched.resize(self.blocks.div_ceil(64), 0);
        touched.iter_mut().zip(self.shared.inexact(self.base)).for_each(|(touched, inexact)| *touched = *inexact);
        for (block, _) in odd.iter().enumerate().filter(|(_, odd)| **odd != 0) {
            touched[block / 64] |= 1 << (block % 64);
        }
        true
    }

    /// Is the peer told changes of everything that the publisher has?
    fn wants_all(&mut self, publisher: &Publisher) -> bool {
        if self.wants_all == Some(publisher.shape()) {
            return true;
        }
        let wants = |c: usize, block: usize| publisher.ever_rows(c, block) & !self.wants[self.at(c, block)] == 0;
        let all = (0..publisher.block_count()).all(|block| (0..self.columns).all(|c| wants(c, block)));
        self.wants_all = all.then(|| publisher.shape());
        all
    }

    /// Is what is pending still folded?
    pub(crate) fn is_folded(&self) -> bool {
        self.folded.is_some()
    }

    /// A send is over: what did not go waits in its list.
    pub(crate) fn end_send(&mut self, publisher: &Publisher) {
        self.unfold(publisher);
        self.short = self.is_pending();
    }

    /// Lists what is pending.
    pub(crate) fn unfold(&mut self, publisher: &Publisher) {
        let Some(tick) = self.folded.take() else { return };
        self.quiet = false;
        let now = publisher.history.now();
        for c in bits(publisher.history.changed_components(now)) {
            for (block, changed) in publisher.history.changed(c as usize, now).iter().enumerate() {
                let at = self.at(c as usize, block);
                // what is not wanted any more is not pending either
                let new = changed & self.wants[at];
                if new != 0 {
                    self.pending[at] |= new;
                    self.since[block] = self.since[block].min(tick);
                }
            }
        }
        // the first packets of the send may be on their way
        for i in (0..self.flights.len()).rev() {
            if self.flights[i].send_tick != now {
                break;
            }
            let carried = std::mem::take(&mut self.flights[i].carried);
            self.clear_pending(&carried);
            self.flights[i].carried = carried;
        }
    }

    /// All of it has gone but for this, which goes to the list.
    pub(crate) fn end_fold(&mut self, left: &[Carried]) {
        self.folded = None;
        for x in left {
            let at = self.at(usize::from(x.component), x.block as usize);
            self.pending[at] |= x.mask;
            self.mark_since(x.block as usize, x.mask, x.since);
        }
    }

    /// Is anything pending?
    pub(crate) fn is_pending(&self) -> bool {
        self.folded.is_some() || !self.quiet && (self.since.iter().any(|s| *s != NEVER) || !self.waits.is_empty())
    }

    /// The session tick of the oldest pending change, for a peer that is told in blocks.
    pub(super) fn oldest_in_blocks(&self) -> Option<Tick> {
        let listed = if self.quiet { None } else { self.since.iter().min().copied().filter(|s| *s != NEVER) };
        self.folded.into_iter().chain(listed).min()
    }
}
