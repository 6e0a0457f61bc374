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

impl Freight {
    /// The same as this peer's own, to change it; `pool`: lists to make it in.
    pub(super) fn own(&mut self, pool: &mut Vec<Vec<Carried>>) -> &mut Vec<Carried> {
        if let Self::Shared(carried) = self {
            let mut own = pool.pop().unwrap_or_default();
            own.extend_from_slice(carried);
            *self = Self::Own(own);
        }
        match self {
            Self::Own(carried) => carried,
            Self::Shared(_) => unreachable!("it has just been made its own"),
        }
    }
}

impl Subscriber {
    /// An empty list for the next packet.
    pub(crate) fn carrier(&mut self) -> Vec<Carried> {
        self.pool.pop().unwrap_or_default()
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

    pub(super) fn recycle(&mut self, carried: Freight) {
        if let Freight::Own(mut carried) = carried
            && carried.capacity() > 0
        {
            carried.clear();
            self.pool.push(carried);
        }
    }
}
