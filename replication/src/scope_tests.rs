//! Relevance against a plain model that looks at everything each time, and its promises one by one.

use crate as tidelock;
use crate::entities::Entities;
use crate::error::UsageError;
use crate::judge::square;
use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::policy::Host;
use crate::presence::Ownership;
use crate::relevance::{Detail, Limit, Relevance, Room, Sight, Unseen, Viewpoint};
use crate::schema::Schema;
use crate::scope::Scope;
use crate::viewer::{Changes, Shown, Viewer};
use hecs::{Entity, World};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod model;
mod promises;
mod random;

#[derive(Clone, Copy, tidelock::Replicate)]
struct ChildOf {
    parent: Option<Entity>,
}
#[derive(Clone, Copy, tidelock::Replicate)]
struct Secret;
/// Where it is; not networked.
struct At([f32; 3]);
/// Only guests with an odd number may see it.
struct Odd;
/// Only guests with an odd number may see its secret.
struct Shy;
#[derive(Clone, Copy, Default)]
struct Crate;
#[derive(Clone, Copy, Default)]
struct Banner;

fn schema() -> Schema {
    Schema::builder("scope")
        .component::<ChildOf>("child_of", |c| c.parent())
        .component::<Secret>("secret", |c| c)
        .kind::<Crate>("crate", Host::default())
        .kind::<Banner>("banner", Host::default())
        .build()
        .expect("the schema is in order")
}

fn is_odd(sight: &Sight<'_>) -> bool {
    sight.peer().0 % 2 == 1
}

/// A host's world with guests that look at it.
struct Stage {
    world: World,
    entities: Entities,
    schema: Schema,
    scope: Scope,
    guests: Vec<Guest>,
    send: u64,
    next: u64,
    changes: Changes,
}

/// A guest, and what it was told.
struct Guest {
    viewer: Viewer,
    got: BTreeMap<u32, Told>,
}

#[derive(Clone, Copy)]
struct Told {
    shown: Shown,
    since: u64,
}

impl Stage {
    fn new(settings: Relevance, guests: u16) -> Self {
        let schema = schema();
        let scope = Scope::new(settings.place::<At>(|at| at.0), &schema.0).expect("all types are in the schema");
        let guests = (1..=guests).map(|g| Guest { viewer: Viewer::new(PeerId(g)), got: BTreeMap::new() }).collect();
        let (world, entities) = (World::new(), Entities::default());
        Self { world, entities, schema, scope, guests, send: 0, next: 1, changes: Changes::default() }
    }

    fn spawn(&mut self, components: impl hecs::DynamicBundle, is_banner: bool) -> u32 {
        let entity = self.world.spawn(components);
        let kind = if is_banner { self.schema.0.kind_of::<Banner>() } else { self.schema.0.kind_of::<Crate>() };
        self.next += 1;
        self.entities.insert(&mut self.world, NetId(self.next), entity, kind.expect("it is registered"))
    }

    fn spawn_at(&mut self, at: [f32; 3]) -> u32 {
        self.spawn((At(at),), false)
    }

    fn entity(&self, slot: u32) -> Entity {
        self.entities.get(slot).expect("it lives").entity
    }

    fn end(&mut self, slot: u32) {
        let record = self.entities.remove(slot).expect("it lives");
        self.world.despawn(record.entity).expect("it is in the world");
        self.scope.ended(slot);
        for guest in &mut self.guests {
            guest.got.remove(&slot);
        }
    }

    fn own(&mut self, slot: u32, owner: usize, peer: u16) {
        let record = self.entities.get_mut(slot).expect("it lives");
        record.owners[owner] = Ownership { peer: PeerId(peer), epoch: record.owners[owner].epoch + 1 };
    }

    fn put(&mut self, slot: u32, at: [f32; 3]) {
        self.world.insert_one(self.entity(slot), At(at)).expect("it is in the world");
    }

    fn hang(&mut self, slot: u32, parent: Option<u32>) {
        let parent = parent.map(|p| self.entity(p));
        self.world.insert_one(self.entity(slot), ChildOf { parent }).expect("it is in the world");
    }

    /// One send: everybody looks, and takes in what it is told.
    fn look(&mut self) {
        self.send += 1;
        self.scope.refresh(&self.world, &self.entities, &self.schema.0);
        for g in 0..self.guests.len() {
            self.look_at(g);
        }
    }

    fn look_at(&mut self, g: usize) {
        let Guest { viewer, got } = &mut self.guests[g];
        self.scope.look(viewer, &self.world, self.send, &mut self.changes);
        for (slot, _) in &self.changes.hidden {
            assert!(got.remove(slot).is_some(), "{slot} was hidden, and was not seen");
        }
        for shown in &self.changes.shown {
            assert!(got.insert(shown.slot, Told { shown: *shown, since: self.send }).is_none(), "{} was shown twice", shown.slot);
            if let Some(parent) = parent(&self.world, &self.entities, shown.slot) {
                let comes_later = self.changes.shown.iter().any(|s| s.slot == parent) && !got.contains_key(&parent);
                assert!(!comes_later, "{} was shown before its parent {parent}", shown.slot);
            }
        }
        for shown in &self.changes.changed {
            let told = got.get_mut(&shown.slot).expect("what changes is seen");
            assert_ne!(told.shown, *shown, "a change that is none");
            told.shown = *shown;
        }
        assert!(got.values().map(|t| t.shown).eq(viewer.seen()), "what was told is what is seen");
        assert!(got.keys().all(|slot| viewer.sees(*slot)));
    }

    fn looks(&mut self, count: u64) {
        (0..count).for_each(|_| self.look());
    }

    fn seen(&self, g: usize) -> Vec<u32> {
        self.guests[g].got.keys().copied().collect()
    }

    fn explain(&self, g: usize, slot: u32) -> Result<(), Unseen> {
        self.scope.explain(&self.guests[g].viewer, &self.world, slot)
    }
}

/// What an entity hangs on, read anew.
fn parent(world: &World, entities: &Entities, slot: u32) -> Option<u32> {
    let entity = entities.get(slot)?.entity;
    let parent = world.get::<&ChildOf>(entity).ok()?.parent?;
    entities.slot_at(world, parent).filter(|p| *p != slot)
}
