//! Where a row stands with a peer, for who asks.

use super::Subscriber;
use crate::history::BLOCK;
use crate::publisher::Publisher;
use tidelock_netcore::tick::Tick;

impl Subscriber {
    /// What is known of one row, for [`why`](crate::Peer::why); `None` if the peer does not see it.
    pub(crate) fn fate(&self, row: usize) -> Option<Fate> {
        let i = self.index(row)?;
        let (block, bit) = (i / BLOCK, 1u64 << (i % BLOCK));
        let any = |table: &Vec<u64>| (0..self.columns).any(|c| table[c * self.blocks + block] & bit != 0);
        let since = if self.view.is_some() { self.waits.of(i) } else { self.since[block] };
        Some(Fate {
            wanted: any(&self.wants),
            pending_since: any(&self.pending).then_some(since),
            in_flight: (0..self.columns).any(|c| self.in_flight(c, i)),
            told: self.is_known(i),
            sent: self.view.as_ref().map_or(Tick::ZERO, |view| view.sent(i)),
            period: self.view.as_ref().map_or(1, |view| view.ghost(i).sighting.period),
        })
    }

    /// Has the peer acknowledged the newest presence of a row?
    pub(crate) fn is_confirmed(&self, row: usize, publisher: &Publisher) -> bool {
        let Some(i) = self.index(row) else { return false };
        let (block, bit) = (i / BLOCK, 1u64 << (i % BLOCK));
        self.pending(0, block) & bit == 0 && self.unconfirmed_presence(block, publisher) & bit == 0
    }
}

/// See [`Subscriber::fate`].
pub(crate) struct Fate {
    pub(crate) wanted: bool,
    pub(crate) pending_since: Option<Tick>,
    pub(crate) in_flight: bool,
    pub(crate) told: bool,
    /// The last send that carried something of it, where that is kept.
    pub(crate) sent: Tick,
    pub(crate) period: u8,
}
