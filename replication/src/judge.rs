//! Who may see what, and how far it is: the questions that a look asks about one entity or group.

use crate::relevance::{Limit, Sight, Unseen, Viewpoint};
use crate::scope::{Placed, Scope};
use crate::viewer::{Viewer, Who};
use hecs::World;
use smallvec::SmallVec;

impl Scope {
    /// Is there anything to ask at every look?
    pub(crate) fn judges(&self) -> bool {
        !self.rules.is_empty() || !self.shows.is_empty()
    }

    /// Where a viewer sees from now.
    pub(crate) fn eye(&self, viewer: &Viewer, world: &World) -> Option<[f32; 3]> {
        let at = match viewer.viewpoint {
            Viewpoint::Point(at) => Some(at),
            Viewpoint::Entity(entity) => self.places.iter().find_map(|place| (place.one)(world, entity)),
            Viewpoint::Own => {
                let own = self.owned.get(&viewer.who.peer)?;
                own.iter().map(|o| &self.hot[o.1 as usize]).find(|h| h.placed == Placed::Yes).map(|h| h.at)
            }
        };
        at.filter(|at| at.iter().all(|x| x.is_finite()))
    }

    /// Is interest in the group not limited by distance?
    pub(crate) fn is_given(&self, who: &Who, lead: u32) -> bool {
        self.limit == Limit::Everything || self.hot[lead as usize].free || self.owns_one(who, lead)
    }

    pub(crate) fn owns_one(&self, who: &Who, lead: u32) -> bool {
        self.groups.members(lead).iter().any(|m| self.owns(who, *m))
    }

    pub(crate) fn owns(&self, who: &Who, slot: u32) -> bool {
        self.hot[slot as usize].owned && self.owners[slot as usize].iter().any(|o| o.peer == who.peer)
    }

    /// Finds out which members of a group may be seen. Returns how many.
    pub(crate) fn judge(&mut self, who: &Who, world: &World, lead: u32) -> u32 {
        let mut count = 0;
        for &slot in self.groups.members(lead) {
            let hot = &self.hot[slot as usize];
            let owns = self.owns(who, slot);
            let refusal = match hot.alive {
                true if owns => None,
                true => self.refusal(who, world, slot),
                false => Some(Unseen::Gone),
            };
            let mut is_open = refusal.is_none();
            if !self.groups.is_alone(slot) {
                is_open &= self.groups.parents(slot).all(|p| self.memo[p as usize].is_open);
            }
            let why = if owns && hot.alive || is_open { None } else { refusal.or(Some(Unseen::Parent)) };
            let memo = &mut self.memo[slot as usize];
            (memo.judged, memo.why, memo.is_open) = (self.looks, why, is_open);
            count += u32::from(why.is_none());
        }
        count
    }

    /// What is against showing it, its ancestors aside.
    pub(crate) fn refusal(&self, who: &Who, world: &World, slot: u32) -> Option<Unseen> {
        if self.shared == Some(self.hot[slot as usize].kind) {
            return None;
        }
        if !self.shares_room(slot, &who.rooms) {
            return Some(Unseen::OtherRoom);
        }
        if self.rules.is_empty() {
            return None;
        }
        let sight = self.sight(who, world, slot);
        (!self.rules.iter().all(|rule| rule(&sight))).then_some(Unseen::Rule)
    }

    pub(crate) fn sight<'a>(&'a self, who: &Who, world: &'a World, slot: u32) -> Sight<'a> {
        Sight { peer: who.peer, world, entity: self.handles[slot as usize], owners: &self.owners[slot as usize] }
    }

    /// The square of a group's distance: that of its nearest member.
    pub(crate) fn distance(&self, lead: u32, eye: [f32; 3]) -> f64 {
        let placed = |m: &u32| {
            let hot = &self.hot[*m as usize];
            (hot.placed == Placed::Yes).then(|| square(hot.at, eye))
        };
        self.groups.members(lead).iter().filter_map(placed).fold(f64::INFINITY, f64::min)
    }

    /// The same for level of detail and importance: what is the guest's own, or has no place, is at hand.
    pub(crate) fn felt(&self, who: &Who, lead: u32, eye: Option<[f32; 3]>) -> f64 {
        let is_placed = |m: &u32| self.hot[*m as usize].placed != Placed::No;
        match eye {
            Some(eye) if !self.owns_one(who, lead) && self.groups.members(lead).iter().any(is_placed) => self.distance(lead, eye),
            _ => 0.0,
        }
    }

    /// Why a viewer does not see a slot, as things are now; `Ok` if it does.
    pub(crate) fn explain(&self, viewer: &Viewer, world: &World, slot: u32) -> Result<(), Unseen> {
        let who = &viewer.who;
        let hot = self.hot.get(slot as usize).filter(|h| h.alive).ok_or(Unseen::Gone)?;
        if !self.owns(who, slot) {
            self.refusal(who, world, slot).map_or(Ok(()), Err)?;
            let mut line: SmallVec<[u32; 8]> = self.groups.parents(slot).collect();
            let mut next = 0;
            while next < line.len() {
                if !self.owns(who, line[next]) && self.refusal(who, world, line[next]).is_some() {
                    return Err(Unseen::Parent);
                }
                let further = self.groups.parents(line[next]).filter(|p| !line.contains(p));
                let further: SmallVec<[u32; 2]> = further.collect();
                line.extend(further);
                next += 1;
            }
        }
        if viewer.find(slot).is_some_and(|seen| seen.born == hot.born) {
            return Ok(());
        }
        let lead = self.groups.lead(slot);
        if self.is_given(who, lead) {
            return Err(Unseen::Soon);
        }
        let eye = self.eye(viewer, world).ok_or(Unseen::NoViewpoint)?;
        let is_soon = self.distance(lead, eye) < viewer.horizon || viewer.stale && viewer.eye.is_none();
        Err(if is_soon { Unseen::Soon } else { Unseen::TooFar })
    }
}

/// The square of the distance of two finite places. Twice the range of `f32` does not overflow it.
#[inline]
pub(crate) fn square(a: [f32; 3], b: [f32; 3]) -> f64 {
    let [x, y, z] = [0, 1, 2].map(|i| f64::from(a[i]) - f64::from(b[i]));
    x * x + y * y + z * z
}
