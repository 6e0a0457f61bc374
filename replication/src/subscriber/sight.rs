//! What a peer that does not see everything is shown, and how.

use super::Subscriber;
use crate::block::bits;
use crate::history::BLOCK;
use crate::netid::NetId;
use crate::presence::Life;
use crate::publisher::Publisher;
use crate::view::Sighting;
use tidelock_netcore::tick::Tick;

impl Subscriber {
    /// Does the peer see the row?
    pub(crate) fn is_shown(&self, row: usize) -> bool {
        self.index(row).is_some()
    }

    /// Lets a peer that does not see everything see a row.
    pub(crate) fn show(&mut self, row: usize, net: NetId, sighting: Sighting, publisher: &Publisher) {
        let Some(view) = &mut self.view else { return };
        if view.ghost_of(row).is_none() {
            let ghost = view.bind(row, net, publisher.kind(row), publisher.history.now());
            view.see(ghost, sighting);
            self.follow(publisher);
        }
    }

    /// Tells the peer of the end of an entity that it has made up a row for, and nobody ever showed it.
    pub(crate) fn tell_end(&mut self, row: usize, net: NetId, publisher: &Publisher, tick: Tick) {
        self.follow(publisher);
        if self.view.is_some() {
            self.show(row, net, Sighting::default(), publisher);
            self.note_known(row);
            return self.end_row(row, publisher);
        }
        self.want(0, row, true);
        self.force(row, 1, tick);
    }

    /// Does the peer publish a part of a row itself?
    pub(crate) fn set_own(&mut self, row: usize, own: bool) {
        if let Some(ghost) = self.index(row)
            && let Some(view) = &mut self.view
        {
            view.ghost_mut(ghost).own = own;
        }
    }

    /// Ends that a peer sees a row: it is told so if it was told of it, and of nothing else any more.
    pub(crate) fn hide(&mut self, row: usize, publisher: &Publisher) {
        self.end_ghost(row, Life::Free, publisher);
    }

    pub(super) fn end_ghost(&mut self, row: usize, life: Life, publisher: &Publisher) {
        let Some(view) = &mut self.view else { return };
        let Some(ghost) = view.ghost_of(row) else { return };
        let (block, bit) = (ghost / BLOCK, 1u64 << (ghost % BLOCK));
        let told = self.known[block] & bit != 0;
        view.end(ghost, life, told, publisher.history.now());
        for c in 0..self.columns {
            let at = self.at(c, block);
            self.pending[at] &= !bit;
            self.wants[at] &= !bit;
            self.stale[at] &= !bit;
        }
        self.settle_since(block);
        if told {
            let at = self.at(0, block);
            self.wants[at] |= bit;
        } else {
            self.as_of[ghost] = Tick::ZERO;
        }
    }

    /// How the peer sees a row. What it publishes itself (`own`) it is not told; what is hidden it is not told either, presence
    /// included; what is hidden no more it is told anew.
    pub(crate) fn sight(&mut self, row: usize, sighting: Sighting, own: u64, ever: u64, tick: Tick) {
        let Some(ghost) = self.index(row) else { return };
        let Some(view) = &mut self.view else { return };
        let before = view.see(ghost, sighting).hidden;
        if before == sighting.hidden {
            return;
        }
        for c in bits((before ^ sighting.hidden) & !1) {
            if sighting.hidden >> c & 1 != 0 {
                // nobody is owed it any more, not even by packets that get lost
                let at = self.at(c as usize, ghost / BLOCK);
                self.stale[at] &= !(1 << (ghost % BLOCK));
            }
            self.want(c as usize, row, (sighting.hidden | own) >> c & 1 == 0);
        }
        // who sees it because it has authority over it from now on begins with what the host holds
        self.force(row, (before & !sighting.hidden & ever) | 1, tick);
    }

    /// The components of an index that are hidden from the peer, as bits.
    pub(super) fn hidden_at(&self, index: usize) -> u64 {
        self.view.as_ref().map_or(0, |view| view.ghost(index).sighting.hidden)
    }

    /// The indices of a block of which a component is hidden from the peer.
    pub(super) fn hidden_in(&self, c: usize, block: usize) -> u64 {
        let Some(view) = &self.view else { return 0 };
        let hides = |i: usize| view.ghost(block * BLOCK + i).sighting.hidden >> c & 1;
        (0..BLOCK).fold(0, |mask, i| mask | hides(i) << i)
    }

    /// Is a component of a row hidden from the peer?
    pub(crate) fn hides(&self, c: usize, row: usize) -> bool {
        self.index(row).is_some_and(|i| self.hidden_at(i) >> c & 1 != 0)
    }

    pub(super) fn release_ghosts(&mut self, now: Tick) {
        let Some(mut view) = self.view.take() else { return };
        view.release(now, |ghost, ended| {
            let done = self.is_done(ghost, ended);
            if done {
                self.forget(ghost);
            }
            done
        });
        self.view = Some(view);
    }

    /// The components of a row that are hidden from the peer, as bits.
    pub(crate) fn hidden(&self, row: usize) -> u64 {
        let ghost = self.view.as_ref().and_then(|view| Some(view.ghost(view.ghost_of(row)?)));
        ghost.map_or(0, |ghost| ghost.sighting.hidden)
    }
}
