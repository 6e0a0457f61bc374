//! The order that all peers share: by name. Rows move on every despawn, insertion and removal, and archetypes are visited in the
//! order in which this very world first needed them, so that hecs' own order is private to a world.

use crate::netid::NetId;
use crate::visit::{Views, Visit};
use hecs::{Entity, Query, World};
use std::sync::OnceLock;

/// Networked entities by name. It is made when somebody first asks for it, and patched from then on; who never asks pays
/// nothing.
#[derive(Default)]
pub(crate) struct Order {
    list: OnceLock<Vec<(NetId, Entity)>>,
    /// The list has been complete once. One that was made in the middle of a step lacks what that step had spawned before.
    complete: bool,
    /// What came and went since: merged when the next step begins.
    changes: Vec<(NetId, usize, Option<Entity>)>,
    spare: Vec<(NetId, Entity)>,
}

impl Order {
    /// An entity came under that name, or went.
    pub(crate) fn note(&mut self, net: NetId, entity: Option<Entity>) {
        if self.list.get().is_some() {
            self.changes.push((net, self.changes.len(), entity));
        }
    }

    /// Who lived when the step began. `all` tells who lives now, and whether this step spawned it.
    pub(crate) fn get(&self, all: impl Iterator<Item = (NetId, Entity, bool)>) -> &[(NetId, Entity)] {
        self.list.get_or_init(|| {
            let mut list: Vec<_> = all.filter(|(.., born)| !born).map(|(net, entity, _)| (net, entity)).collect();
            list.sort_unstable();
            list
        })
    }

    /// A step begins: what changed is merged in, by stretches.
    pub(crate) fn begin_step(&mut self, all: impl Iterator<Item = (NetId, Entity)>) {
        let Some(list) = self.list.get_mut() else { return };
        if !self.complete {
            // from now on every change is noted
            self.complete = true;
            self.changes.clear();
            list.clear();
            list.extend(all);
            list.sort_unstable();
            return;
        }
        if self.changes.is_empty() {
            return;
        }
        // of several changes of one name the last one counts, so the sort must be stable; with a number it needs no memory
        let changes = &mut self.changes;
        changes.sort_unstable_by_key(|&(net, number, _)| (net, number));
        self.spare.clear();
        let mut at = 0;
        for (i, (net, _, entity)) in changes.iter().enumerate() {
            if changes.get(i + 1).is_some_and(|next| next.0 == *net) {
                continue;
            }
            let to = at + list[at..].partition_point(|x| x.0 < *net);
            self.spare.extend_from_slice(&list[at..to]);
            at = to + usize::from(list.get(to).is_some_and(|x| x.0 == *net));
            self.spare.extend(entity.map(|entity| (*net, entity)));
        }
        self.spare.extend_from_slice(&list[at..]);
        std::mem::swap(list, &mut self.spare);
        changes.clear();
    }
}

/// The entities that a step simulates, by name: what [`Step::ordered`](crate::Step::ordered) gives. A cursor rather than an
/// iterator, because each item borrows the world anew; so `break`, `continue` and `?` work.
pub struct Ordered<'w, Q: Query> {
    view: Views<'w, Q>,
    list: std::slice::Iter<'w, (NetId, Entity)>,
}

impl<'w, Q: Query> Ordered<'w, Q> {
    pub(crate) fn new(list: &'w [(NetId, Entity)], world: &'w mut World, visit: Visit) -> Self {
        Self { view: Views::new(world, visit), list: list.iter() }
    }

    /// The next entity that the query fits, with its name.
    #[expect(clippy::should_implement_trait, reason = "what it gives borrows from it")]
    pub fn next(&mut self) -> Option<(NetId, Q::Item<'_>)> {
        let view = &self.view;
        let &(net, entity) = self.list.find(|x| view.contains(x.1))?;
        self.view.get_mut(entity).map(|item| (net, item))
    }
}
