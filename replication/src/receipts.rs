//! Receipts: what was decided and sent for whom, entity by entity and in sums.

use crate::netid::NetId;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::relevance::Unseen;
use std::collections::VecDeque;
use std::fmt;
use tidelock_netcore::tick::Tick;

/// One decision of a host about one entity and one guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The session's tick.
    pub tick: Tick,
    /// The guest.
    pub peer: PeerId,
    /// The entity.
    pub net: NetId,
    /// What was decided.
    pub decision: Decision,
}

/// See [`Receipt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// The guest is shown the entity from now on.
    Shown,
    /// It is not shown it any more, and why.
    Hidden(Unseen),
    /// Something of the entity went out.
    Sent {
        /// How many bits of values.
        bits: u32,
        /// Bit c: component c of the schema, in the order of [`Schema::explain`](crate::Schema::explain) counted from 1; bit 0 is
        /// presence.
        components: u64,
    },
    /// A change of it was due and found no room.
    NoRoom,
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tick {}: {} for {}: ", self.tick, self.net, self.peer)?;
        match self.decision {
            Decision::Shown => f.write_str("shown"),
            Decision::Hidden(why) => write!(f, "hidden: {why}"),
            Decision::Sent { bits, .. } => write!(f, "{bits} bits sent"),
            Decision::NoRoom => f.write_str("no room"),
        }
    }
}

/// A ring of receipts, or nothing.
#[derive(Default)]
pub(crate) struct Receipts {
    ring: VecDeque<Receipt>,
    capacity: usize,
}

impl Receipts {
    #[inline]
    pub(crate) fn are_kept(&self) -> bool {
        self.capacity > 0
    }

    #[inline]
    pub(crate) fn push(&mut self, receipt: Receipt) {
        if self.capacity == 0 {
            return;
        }
        if self.ring.len() == self.capacity {
            self.ring.pop_front();
        }
        self.ring.push_back(receipt);
    }
}

/// What was sent to one peer, in bits, by what it was for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By component of the schema, under its name; `presence` first.
    pub components: Vec<(String, u64)>,
    /// By kind, under its name; tombstones belong to none.
    pub kinds: Vec<(String, u64)>,
    /// What says which rows and components follow. Headers of packets, messages and the transport's overhead are not in it.
    pub heads: u64,
}

/// The same by index.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// By column, presence first.
    pub(crate) components: Vec<u64>,
    pub(crate) kinds: Vec<u64>,
    pub(crate) heads: u64,
}

impl Clone for Tally {
    fn clone(&self) -> Self {
        Self { components: self.components.clone(), kinds: self.kinds.clone(), heads: self.heads }
    }

    fn clone_from(&mut self, other: &Self) {
        self.components.clone_from(&other.components);
        self.kinds.clone_from(&other.kinds);
        self.heads = other.heads;
    }
}

impl Tally {
    pub(crate) fn fit(&mut self, columns: usize, kinds: usize) {
        self.components.resize(columns, 0);
        self.kinds.resize(kinds, 0);
    }

    /// Adds another, of as many columns and kinds.
    pub(crate) fn add(&mut self, other: &Self) {
        self.components.iter_mut().zip(&other.components).for_each(|(a, b)| *a += b);
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(a, b)| *a += b);
        self.heads += other.heads;
    }

    /// Becomes what was added from `before` on, in which what is not there counts as zero.
    pub(crate) fn set_difference(&mut self, before: &Self, after: &Self) {
        self.clone_from(after);
        self.components.iter_mut().zip(&before.components).for_each(|(a, b)| *a -= b);
        self.kinds.iter_mut().zip(&before.kinds).for_each(|(a, b)| *a -= b);
        self.heads -= before.heads;
    }
}

impl Peer {
    /// Keeps receipts of the latest `capacity` decisions about guests that do not see everything; 0 (as it is at first): none. Each
    /// takes 40 bytes, and a few nanoseconds when it is made.
    pub fn keep_receipts(&mut self, capacity: usize) {
        self.receipts.capacity = capacity;
        while self.receipts.ring.len() > capacity {
            self.receipts.ring.pop_front();
        }
        self.receipts.ring.shrink_to(capacity);
    }

    /// The receipts that are kept, the oldest first.
    pub fn receipts(&self) -> impl DoubleEndedIterator<Item = &Receipt> {
        self.receipts.ring.iter()
    }

    /// What was sent to a peer by component and kind, since it joined; `None` for who has no link.
    #[must_use]
    pub fn traffic(&self, peer: PeerId) -> Option<Traffic> {
        let tally = &self.link_to(peer)?.subscriber.tally;
        let of = |table: &Vec<u64>, i: usize| table.get(i).copied().unwrap_or(0);
        let component = |c: usize| match c {
            0 => ("presence".to_owned(), of(&tally.components, 0)),
            _ => (self.schema.component(c).name.clone(), of(&tally.components, c)),
        };
        let kinds = self.schema.kinds.iter().enumerate().map(|(k, kind)| (kind.name.clone(), of(&tally.kinds, k)));
        Some(Traffic {
            components: (0..self.schema.columns()).map(component).collect(),
            kinds: kinds.collect(),
            heads: tally.heads,
        })
    }
}
