//! What is left of corrections, for what every peer computes: like [`fade`](super::fade), with values of the world instead of words.

use super::fade::{FADE, FADES, Faded, weight};
use crate::block::bits;
use crate::netid::NetId;
use crate::peer::Peer;
use crate::policy::Timeline;
use crate::schema::Inner;
use hecs::{Entity, World};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::any::Any;
use std::time::Duration;

/// A copy of a component's value, of the component's own type.
pub(crate) type Snap = Box<dyn Any + Send + Sync>;

struct Slide {
    before: Snap,
    /// The same moment, once it has been run again.
    after: Option<Snap>,
    since: Duration,
}

/// Corrections that are still seen, by entity and component.
#[derive(Default)]
pub(crate) struct Slides(FxHashMap<(NetId, usize), SmallVec<[Slide; 2]>>);

impl Slides {
    /// What is drawn moves from `before` to `after`, both of one moment.
    pub(crate) fn add(&mut self, net: NetId, c: usize, before: Snap, after: Option<Snap>, now: Duration) {
        let slides = self.0.entry((net, c)).or_default();
        if slides.iter().any(|slide| slide.after.is_none()) {
            return; // it goes back further before it was run again
        }
        if slides.len() == FADES {
            slides.remove(0);
        }
        slides.push(Slide { before, after, since: now });
    }

    fn drop_old(&mut self, now: Duration) {
        self.0.retain(|_, slides| {
            slides.retain(|slide| now.saturating_sub(slide.since) < FADE);
            !slides.is_empty()
        });
    }

    /// What is left of them at `now`.
    pub(crate) fn of<C: Clone + 'static>(
        &self,
        net: NetId,
        c: usize,
        now: Duration,
    ) -> impl Iterator<Item = Faded<C>> + use<'_, C> {
        self.0.get(&(net, c)).into_iter().flatten().filter_map(move |slide| {
            let value = |snap: &Snap| snap.downcast_ref::<C>().cloned();
            let weight = weight(now.saturating_sub(slide.since));
            Some(Faded { before: value(&slide.before)?, after: value(slide.after.as_ref()?)?, weight }).filter(|_| weight > 0.0)
        })
    }
}

/// The drawn components of an entity, as they are in the world.
pub(crate) fn snaps<'a>(schema: &'a Inner, world: &'a World, entity: Entity) -> impl Iterator<Item = (usize, Snap)> + 'a {
    let drawn = bits(schema.interpolated & !schema.fine).map(|c| c as usize);
    drawn.filter_map(move |c| Some((c, schema.component(c).column.snap(world, entity)?)))
}

impl Peer {
    /// The rollback timeline goes back: where everything of it is drawn is remembered.
    pub(crate) fn note_rollback_drawn(&mut self, world: &World) {
        let (kinds, now) = (self.schema.kinds_of(Timeline::Rollback), self.time.now);
        if self.schema.interpolated == 0 {
            return;
        }
        self.slides.drop_old(now);
        for (_, record) in self.entities.iter().filter(|(_, r)| kinds >> r.kind & 1 != 0 && !r.parked) {
            for (c, snap) in snaps(&self.schema, world, record.entity) {
                self.slides.add(record.net, c, snap, None, now);
            }
        }
    }

    /// All that was taken back has been run again: what came out where it was needs no slide.
    pub(crate) fn settle_rollback_slides(&mut self, world: &World) {
        let replays = self.saves[Timeline::Rollback].as_ref().is_some_and(|saves| !saves.replay.is_empty());
        if replays || self.slides.0.is_empty() {
            return;
        }
        let (schema, entities) = (&self.schema, &self.entities);
        self.slides.0.retain(|(net, c), slides| {
            let column = &schema.component(*c).column;
            slides.retain(|slide| {
                if slide.after.is_none() {
                    let now = entities.entity_of(*net).and_then(|entity| column.snap(world, entity));
                    slide.after = now.filter(|now| !column.is_same(&**now, &*slide.before));
                }
                slide.after.is_some()
            });
            !slides.is_empty()
        });
    }
}
