//! What is asked of a subscriber while its packets are made.

use super::{Carried, NEVER, Subscriber};
use crate::block::bits;
use crate::publisher::Publisher;
use tidelock_netcore::tick::Tick;

impl Subscriber {
    /// Is exactly this pending in a block, of these components?
    #[inline]
    pub(crate) fn pends(&self, block: usize, components: u64, masks: &[(u8, u64)]) -> bool {
        let mut masks = masks.iter().peekable();
        bits(components).all(|c| {
            let mask = masks.next_if(|m| u32::from(m.0) == c).map_or(0, |m| m.1);
            self.pending[self.at(c as usize, block)] == mask
        })
    }

    /// Clears all that is pending in a block, which is of these components.
    #[inline]
    pub(crate) fn take_block(&mut self, block: usize, components: u64) {
        for c in bits(components) {
            let at = self.at(c as usize, block);
            self.pending[at] = 0;
        }
        self.since[block] = NEVER;
    }

    /// Clears what a packet carries from what is pending. `emptied`: the blocks of which nothing is pending then; `all`: it is the last
    /// with anything that changed in the open send.
    pub(crate) fn take_packet(&mut self, carried: &[Carried], emptied: &[u32], all: bool) {
        if self.is_folded() {
            // until the last has gone, unfolding looks at what is on its way
            if all {
                self.end_fold(&[]);
            }
            return;
        }
        for x in carried {
            let at = self.at(usize::from(x.component), x.block as usize);
            self.pending[at] &= !x.mask;
        }
        for block in emptied {
            self.since[*block as usize] = NEVER;
        }
    }

    /// Is nothing pending of a block?
    pub(crate) fn is_empty(&self, block: u32) -> bool {
        self.since[block as usize] == NEVER
    }

    /// May a row be stale?
    #[inline]
    pub(crate) fn has_stale(&self) -> bool {
        self.stale_any
    }

    /// The session tick of the oldest pending change of a ghost.
    #[inline]
    pub(crate) fn waits_since(&self, ghost: usize) -> Tick {
        self.waits.of(ghost)
    }

    /// That of the one that waits longest of some ghosts of a block.
    #[inline]
    pub(crate) fn oldest_of(&self, block: usize, ghosts: u64) -> Tick {
        self.waits.oldest_of(block, ghosts)
    }

    /// Did the last send leave nothing behind?
    pub(crate) fn had_room(&self) -> bool {
        !self.short
    }

    /// May the presence of anything be unconfirmed?
    pub(crate) fn has_unconfirmed(&self, publisher: &Publisher) -> bool {
        let source = self.source(publisher);
        let told = (self.base.0 + 1..=publisher.history.now().0).any(|t| source.components(Tick(t)) & 1 != 0);
        told || self.stale_any && self.stale[..self.blocks].iter().any(|rows| *rows != 0)
    }

    /// The indices of a block that the peer was told of.
    pub(crate) fn known_in(&self, block: usize) -> u64 {
        self.known[block]
    }

    /// What of a block's component the peer is told.
    #[inline]
    pub(crate) fn wanted(&self, c: usize, block: usize) -> u64 {
        self.wants[self.at(c, block)]
    }

    /// The components of which something is pending, or goes along, as bits.
    pub(crate) fn pending_components(&self, publisher: &Publisher) -> u64 {
        let any = |table: &[u64], c: usize| table[c * self.blocks..(c + 1) * self.blocks].iter().any(|rows| *rows != 0);
        let source = self.source(publisher);
        let mut components = match self.fresh {
            Some((now, components)) if now == publisher.history.now() => components,
            _ => (0..self.columns).fold(0, |all, c| all | u64::from(any(&self.pending, c)) << c),
        };
        if self.is_folded() {
            components |= publisher.history.changed_components(publisher.history.now());
        }
        let ticks = self.base.0 + 1..=publisher.history.now().0;
        components |= u64::from(self.stale_any && any(&self.stale, 0) || ticks.map(Tick).any(|t| source.components(t) & 1 != 0));
        components
    }

    /// Does the peer have of a block in the send `tick`, at or before the base, exactly what changed in it?
    #[inline]
    pub(crate) fn is_exact(&self, block: usize, tick: Tick) -> bool {
        self.shared.is_exact(block, tick)
    }

    /// The rows of a block of which it may not hold the value of a component that was in force at `tick`, at or before the base, among
    /// all that it was told of then and is told of now.
    #[inline]
    pub(crate) fn unsettled(&self, c: usize, block: usize, tick: Tick) -> u64 {
        self.shared.unsettled(c, block, tick)
    }

    /// What is pending of a block's component, folded or not.
    #[inline]
    pub(crate) fn owed(&self, c: usize, block: usize, publisher: &Publisher) -> u64 {
        let pending = self.pending[self.at(c, block)];
        if self.is_folded() { pending | publisher.history.changed_in(c, block, publisher.history.now()) } else { pending }
    }

    /// Is something pending, folded or not, of a component in rows of which the peer does not hold another one?
    pub(crate) fn lacks(&self, c: usize, other: usize, publisher: &Publisher) -> bool {
        let of = |c: usize| c * self.blocks..(c + 1) * self.blocks;
        let folded: &[u64] = if self.is_folded() { publisher.history.changed(c, publisher.history.now()) } else { &[] };
        let owed = self.pending[of(c)].iter().zip(folded.iter().chain(std::iter::repeat(&0)));
        let has = self.wants[of(other)].iter().zip(&self.stale[of(other)]);
        let all = owed.zip(has).zip(publisher.ever_of(other));
        all.fold(0, |lacks, (((listed, folded), (wanted, stale)), ever)| lacks | (listed | folded) & !(wanted & !stale & ever))
            != 0
    }

    /// Is what changed in the open send all that is pending, is all of it pending, and does the peer share what guesses are made from?
    /// Who is told in blocks and can say so is told the same as everybody else who can.
    pub(crate) fn is_even(&self, publisher: &Publisher, older: Option<Tick>) -> bool {
        let guesses = older.is_none_or(|older| self.shared.is_settled_in(self.motions, older));
        let differs = |c: usize, block: usize| self.owed(c, block, publisher) & self.stale(c, block) != 0;
        let shares = || !self.stale_any || !(0..self.columns).any(|c| (0..self.blocks).any(|block| differs(c, block)));
        self.view.is_none()
            && self.fresh.is_some_and(|fresh| fresh.0 == publisher.history.now())
            && guesses
            && self.shared.is_exact_everywhere(self.base)
            && shares()
    }
}
