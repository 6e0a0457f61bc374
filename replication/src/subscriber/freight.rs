//! What packets carry: noted when they go out, until their fate is known.

use super::{Flight, Subscriber};
use crate::outgoing::Body;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// Rows of one block and component that a packet carried.
#[derive(Clone, Copy)]
pub(crate) struct Carried {
    pub(crate) block: u32,
    pub(crate) component: u8,
    pub(crate) mask: u64,
    /// Session tick of the oldest change among them.
    pub(crate) since: Tick,
}

/// All that one packet carried. What many peers are sent alike is noted once for all of them.
pub(crate) enum Freight {
    Own(Vec<Carried>),
    Shared(Arc<Vec<Carried>>),
}

impl Default for Freight {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Deref for Freight {
    type Target = [Carried];

    #[inline]
    fn deref(&self) -> &[Carried] {
        match self {
            Self::Own(carried) => carried,
            Self::Shared(carried) => carried,
        }
    }
}

/// Lists of what packets carry, to be used again, and one to make them in. There are as many in all as packets on their way, and
/// what one peer's packets leave another's take: so after a while none is made.
#[derive(Default)]
pub(crate) struct Lists {
    draft: Vec<Carried>,
    own: Rooms<Vec<Carried>>,
    shared: Rooms<Arc<Vec<Carried>>>,
    /// Those of the shared ones that somebody may need.
    lent: Vec<Arc<Vec<Carried>>>,
}

/// Lists by the logarithm of their room.
struct Rooms<T>(Vec<Vec<T>>);

impl<T> Default for Rooms<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// The least room that a list has.
const LEAST: usize = 8;
/// Rather a list with so many times the room, as a logarithm, is taken than a new one made.
const ROOMIER: usize = 2;

/// So many lists are made when one is wanted and there is none.
const MADE_AT_ONCE: usize = 8;

impl<T> Rooms<T> {
    fn size(count: usize) -> usize {
        count.next_power_of_two().max(LEAST)
    }

    /// A list with room for so many.
    fn take(&mut self, count: usize) -> Option<T> {
        let least = Self::size(count).ilog2() as usize;
        self.0.iter_mut().skip(least).take(1 + ROOMIER).find_map(Vec::pop)
    }

    fn put(&mut self, room: usize, list: T) {
        let Some(size) = room.checked_ilog2().map(|size| size as usize) else { return };
        if self.0.len() <= size {
            self.0.resize_with(size + 1, Vec::new);
        }
        self.0[size].push(list);
    }
}

impl Lists {
    /// An empty list to note in it what the next packet carries.
    pub(crate) fn draft(&mut self) -> Vec<Carried> {
        std::mem::take(&mut self.draft)
    }

    /// What was noted in a draft, to be kept; the draft goes back.
    pub(crate) fn keep(&mut self, mut draft: Vec<Carried>) -> Freight {
        let kept = if draft.is_empty() { Vec::new() } else { self.copy(&draft) };
        draft.clear();
        self.draft = draft;
        Freight::Own(kept)
    }

    fn copy(&mut self, carried: &[Carried]) -> Vec<Carried> {
        let mut list = self.own.take(carried.len()).unwrap_or_else(|| {
            // several at a time: where one is missing, others will be
            let make = || Vec::with_capacity(Rooms::<Vec<Carried>>::size(carried.len()));
            (1..MADE_AT_ONCE).map(|_| make()).for_each(|list| self.own.put(list.capacity(), list));
            make()
        });
        list.extend_from_slice(carried);
        list
    }

    /// A copy for all who are sent the same.
    pub(crate) fn share(&mut self, carried: &[Carried]) -> Arc<Vec<Carried>> {
        let size = Rooms::<Vec<Carried>>::size(carried.len());
        let mut list = self.shared.take(carried.len()).unwrap_or_else(|| Arc::new(Vec::with_capacity(size)));
        let own = Arc::get_mut(&mut list).expect("nobody else has it");
        own.clear();
        own.extend_from_slice(carried);
        self.lent.push(list.clone());
        list
    }

    /// Takes back what was shared and nobody needs any more.
    pub(crate) fn collect(&mut self) {
        for i in (0..self.lent.len()).rev() {
            if Arc::strong_count(&self.lent[i]) == 1 {
                let list = self.lent.swap_remove(i);
                self.shared.put(list.capacity(), list);
            }
        }
    }

    /// Takes a list back.
    pub(crate) fn give(&mut self, carried: Freight) {
        if let Freight::Own(mut list) = carried {
            list.clear();
            self.own.put(list.capacity(), list);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lent.len() + self.own.0.iter().map(Vec::len).sum::<usize>() + self.shared.0.iter().map(Vec::len).sum::<usize>()
    }
}

impl Subscriber {
    /// Notes that a packet went out.
    pub(crate) fn sent(&mut self, send_tick: Tick, now: Duration, body: Body) {
        let Body { carried, values, may_introduce, whole, .. } = body;
        if !carried.is_empty() && self.unanswered.is_none() {
            self.unanswered = Some(now);
        }
        self.stats.rows += values as u64;
        if may_introduce {
            carried.iter().filter(|x| x.component == 0).for_each(|x| self.known[x.block as usize] |= x.mask);
        }
        if let Some(view) = self.view.as_mut().filter(|_| !carried.is_empty()) {
            view.last_sent = send_tick;
            let mut noted = (0, 0);
            for x in carried.iter() {
                // as a rule all components of a row go together
                let done = if noted.0 == x.block { noted.1 } else { 0 };
                view.note_sent(x.block as usize, x.mask & !done, send_tick);
                noted = (x.block, done | x.mask);
            }
        }
        self.next_number += 1;
        self.flights.push_back(Flight {
            send_tick,
            sent_at: now,
            acked: false,
            lost: false,
            complete: false,
            whole: false,
            carried,
        });
        if whole && self.taken_up == Some(send_tick) {
            let whole = self.fresh.is_some_and(|fresh| fresh.0 == send_tick);
            let these = self.flights.iter_mut().rev().take_while(|f| f.send_tick == send_tick);
            these.for_each(|f| (f.complete, f.whole) = (true, whole));
        }
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

    /// Clears all that is pending of some ghosts of a block.
    pub(crate) fn take_ghosts(&mut self, block: usize, ghosts: u64) {
        for c in 0..self.columns {
            let at = self.at(c, block);
            self.pending[at] &= !ghosts;
        }
        self.waits.keep(block, !ghosts);
    }

    /// Makes pending again what a packet would have carried that the transport did not take.
    pub(crate) fn return_pending(&mut self, carried: Freight, lists: &mut Lists) {
        // what is folded has never been taken
        let listed = if self.is_folded() { &[] } else { &*carried };
        for x in listed {
            let at = self.at(usize::from(x.component), x.block as usize);
            self.pending[at] |= x.mask;
            self.mark_since(x.block as usize, x.mask, x.since);
        }
        lists.give(carried);
    }
}
