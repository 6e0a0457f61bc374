//! What packets carry: noted when they go out, until their fate is known.

use super::{Flight, Subscriber};
use crate::block::bits;
use crate::history::BLOCK;
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
/// what one peer's packets leave another's take: so after a while none is made, and none is larger than twice what it holds.
#[derive(Default)]
pub(crate) struct Lists {
    draft: Vec<Carried>,
    /// By the logarithm of their room.
    idle: Vec<Vec<Vec<Carried>>>,
}

/// The least room that a list has.
const LEAST: usize = 8;

impl Lists {
    /// An empty list to note in it what the next packet carries.
    pub(crate) fn draft(&mut self) -> Vec<Carried> {
        std::mem::take(&mut self.draft)
    }

    /// What was noted in a draft, to be kept; the draft goes back.
    pub(crate) fn keep(&mut self, mut draft: Vec<Carried>) -> Freight {
        let mut kept = Vec::new();
        if !draft.is_empty() {
            let size = room_for(draft.len());
            let idle = self.idle.get_mut(size.ilog2() as usize).and_then(Vec::pop);
            kept = idle.unwrap_or_else(|| Vec::with_capacity(size));
            kept.extend_from_slice(&draft);
        }
        draft.clear();
        self.draft = draft;
        Freight::Own(kept)
    }

    /// Takes a list back.
    pub(crate) fn give(&mut self, mut list: Vec<Carried>) {
        let Some(size) = list.capacity().checked_ilog2().map(|size| size as usize) else { return };
        if self.idle.len() <= size {
            self.idle.resize_with(size + 1, Vec::new);
        }
        list.clear();
        self.idle[size].push(list);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.idle.iter().map(Vec::len).sum()
    }
}

fn room_for(count: usize) -> usize {
    count.next_power_of_two().max(LEAST)
}

impl Subscriber {
    /// Gives back lists that are free again.
    pub(crate) fn lend(&mut self, lists: &mut Lists) {
        self.idle.drain(..).for_each(|list| lists.give(list));
    }

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
        if let Some(view) = &mut self.view {
            for x in carried.iter() {
                bits(x.mask).for_each(|bit| view.ghost_mut(x.block as usize * BLOCK + bit as usize).sent = send_tick);
            }
        }
        self.next_number += 1;
        self.flights.push_back(Flight { send_tick, sent_at: now, acked: false, lost: false, whole: false, carried });
        if whole && self.fresh.is_some_and(|fresh| fresh.0 == send_tick) {
            self.flights.iter_mut().rev().take_while(|f| f.send_tick == send_tick).for_each(|f| f.whole = true);
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

    /// Makes pending again what a packet would have carried that the transport did not take.
    pub(crate) fn return_pending(&mut self, carried: Freight) {
        // what is folded has never been taken
        let listed = if self.is_folded() { &[] } else { &*carried };
        for x in listed {
            let at = self.at(usize::from(x.component), x.block as usize);
            self.pending[at] |= x.mask;
            self.mark_since(x.block as usize, x.mask, x.since);
        }
        self.recycle(carried);
    }

    pub(crate) fn recycle(&mut self, carried: Freight) {
        if let Freight::Own(mut carried) = carried
            && carried.capacity() > 0
        {
            carried.clear();
            self.idle.push(carried);
        }
    }
}
