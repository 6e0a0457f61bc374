//! The rows that carry an archetype's entities, in the archetype's order. The register has a route for each entity, but by slot, and six
//! times as long: who asks it for many in a row waits for memory.

use crate::block::bits;
use crate::entities::{Entities, NO_ROW, Networked};

/// Of one archetype.
pub(super) struct Routes {
    /// [`Entities::routed`] at the last capture, and when `rows` were looked up.
    seen: u64,
    known: u64,
    /// By index; [`NO_ROW`] if nothing of the entity is published.
    rows: Vec<u32>,
    /// The components of all of them that this peer has authority over.
    mine: u64,
}

/// Of no register.
const NEVER: u64 = u64::MAX;

impl Routes {
    pub(super) fn new() -> Self {
        Self { seen: NEVER, known: NEVER, rows: Vec::new(), mine: 0 }
    }

    /// The archetype's marks have changed.
    pub(super) fn forget(&mut self) {
        (self.seen, self.known) = (NEVER, NEVER);
    }

    /// Looks all rows up, once they have stayed as they are for a while: in a crowd that comes and goes that is never.
    pub(super) fn follow(&mut self, marks: &[Networked], entities: &Entities) {
        let now = entities.routed();
        let settled = std::mem::replace(&mut self.seen, now) == now;
        if !settled || self.known == now {
            return;
        }
        (self.known, self.mine) = (now, u64::MAX);
        self.rows.clear();
        for mark in marks {
            let route = entities.route(*mark);
            self.rows.push(route.map_or(NO_ROW, |route| route.row));
            self.mine &= route.map_or(u64::MAX, |route| route.mine);
        }
    }

    /// The indices at which a component differs that this peer has authority over, and their rows.
    pub(super) fn gather(
        &self,
        c: usize,
        (differs, marks): (&[u64], &[Networked]),
        entities: &Entities,
        (indices, rows): (&mut Vec<u32>, &mut Vec<u32>),
    ) {
        let known = self.known == entities.routed() && self.mine >> c & 1 != 0;
        for (block, mask) in differs.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            for i in bits(*mask).map(|bit| block * 64 + bit as usize) {
                let row = if known {
                    self.rows.get(i).copied()
                } else {
                    let route = marks.get(i).and_then(|mark| entities.route(*mark));
                    route.filter(|route| route.mine >> c & 1 != 0).map(|route| route.row)
                };
                if let Some(row) = row.filter(|row| *row != NO_ROW) {
                    indices.push(i as u32);
                    rows.push(row);
                }
            }
        }
    }
}
