//! A despawn that can be taken back. The entity's components move to a second world, local ones too, so that no query of the
//! game can see them; in the game's world a placeholder keeps the handle, so that nobody else can be given its id.

use crate::netid::NetId;
use crate::rewind::kept::KeptEntry;
use hecs::{DynamicBundle, Entity, EntityRef, World};
use tidelock_netcore::tick::Tick;

/// The only component of an entity that is dead, but not yet for good.
struct Parked;

struct Entry {
    net: NetId,
    inside: Entity,
    outside: Entity,
    /// The tick whose confirmation makes it final.
    until: Tick,
}

#[derive(Default)]
pub(crate) struct Limbo {
    world: World,
    /// By name: a hash map would free ids in another order in every run.
    entries: Vec<Entry>,
}

impl Limbo {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn find(&self, net: NetId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&net, |e| e.net)
    }

    /// The tick whose confirmation makes the despawn of a name final.
    pub(crate) fn until(&self, net: NetId) -> Option<Tick> {
        self.find(net).ok().map(|at| self.entries[at].until)
    }

    /// Despawns for now; for good when `until` is confirmed. `false` if it is not in the world, or here already.
    pub(crate) fn park(&mut self, world: &mut World, entity: Entity, net: NetId, until: Tick) -> bool {
        let Err(at) = self.find(net) else { return false };
        let Ok(taken) = world.take(entity) else { return false };
        let inside = self.world.spawn(taken);
        // `take` has freed the id: claim it back with its old generation
        world.spawn_at(entity, (Parked,));
        self.entries.insert(at, Entry { net, inside, outside: entity, until });
        true
    }

    /// Takes a despawn back: the same handle, all components. Another handle only if the game has despawned the placeholder and
    /// somebody else has got its id.
    pub(crate) fn revive(&mut self, world: &mut World, net: NetId) -> Option<Entity> {
        let entry = self.entries.remove(self.find(net).ok()?);
        let taken = self.world.take(entry.inside).ok()?;
        if !world.satisfies::<&Parked>(entry.outside) && !is_free(world, entry.outside) {
            return Some(world.spawn(taken));
        }
        // replaces the placeholder; whoever else had the id would be despawned
        world.spawn_at(entry.outside, taken);
        Some(entry.outside)
    }

    /// Puts components on an entity that has just been revived, in place of all the kept ones that it had.
    pub(crate) fn dress(&mut self, world: &mut World, entity: Entity, kept: &[KeptEntry], components: impl DynamicBundle) {
        let dressed = self.world.spawn(components);
        let new = self.world.entity(dressed).map_or(0, |e| mask_of(kept, &e));
        let old = world.entity(entity).map_or(0, |e| mask_of(kept, &e));
        for i in crate::block::bits(old & !new) {
            kept[i as usize].kept.remove(world, entity);
        }
        if let Ok(taken) = self.world.take(dressed) {
            // it was revived a moment ago
            let _ = world.insert(entity, taken);
        }
    }

    /// Gone for good: its name comes to stand for something else.
    pub(crate) fn bury(&mut self, world: &mut World, net: NetId) {
        if let Ok(at) = self.find(net) {
            let entry = self.entries.remove(at);
            self.end(world, &entry);
        }
    }

    /// Everything up to `tick` is confirmed: who died by then is gone for good, and is named to `ended`.
    pub(crate) fn confirm(&mut self, world: &mut World, tick: Tick, mut ended: impl FnMut(NetId)) {
        let mut i = 0;
        // almost always there is nothing to do, and removing keeps the order
        while i < self.entries.len() {
            if self.entries[i].until <= tick {
                let entry = self.entries.remove(i);
                self.end(world, &entry);
                ended(entry.net);
            } else {
                i += 1;
            }
        }
    }

    fn end(&mut self, world: &mut World, entry: &Entry) {
        let _ = self.world.despawn(entry.inside);
        // the game may have despawned the placeholder: its handle is an ordinary one
        if world.satisfies::<&Parked>(entry.outside) {
            let _ = world.despawn(entry.outside);
        }
    }
}

/// Which of the kept components an entity has.
pub(crate) fn mask_of(kept: &[KeptEntry], entity: &EntityRef<'_>) -> u64 {
    kept.iter().enumerate().fold(0, |mask, (i, entry)| mask | u64::from(entry.kept.is_on(entity)) << i)
}

/// Has nobody the id of that handle now? No call of hecs tells which generation lives at an id.
pub(crate) fn is_free(world: &World, entity: Entity) -> bool {
    world.freelist().any(|free| free.id() == entity.id())
}
