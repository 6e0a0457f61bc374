//! Going back to a save: in place where every entity is still where it was saved, else in three passes: who was there is there
//! again, in the shape that it had, and then with the values that it had.

use crate::block::bits;
use crate::entities::Entities;
use crate::netid::NetId;
use crate::rewind::limbo::{is_free, mask_of};
use crate::rewind::saves::{Save, Saves, archetypes};
use crate::rewind::structure::{Rewound, Row};
use crate::rewind::{RewindError, resources_of};
use hecs::{Entity, EntityBuilder, World};
use tidelock_netcore::tick::Tick;

/// What a [`Peer::rewind`](crate::Peer::rewind) had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Entities that had not been born yet. They come back under their handles if the steps that are run again spawn them again.
    pub parked: usize,
    /// Entities that had been despawned since, and are back under their handles.
    pub revived: usize,
    /// Entities that got or lost components again.
    pub reshaped: usize,
    /// Entities that the game had despawned without the step, so that what is not registered of them is lost.
    pub rebuilt: usize,
    /// Of those, the ones that are back under another handle, because somebody else has got theirs.
    pub renamed: usize,
}

impl Restored {
    /// Every entity was where it had been saved, so that only values were copied.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        *self == Self::default()
    }
}

impl Saves {
    /// Brings what is kept back to what it was when `tick` began. Everything else is left alone. Records that had to be made or
    /// found again are pushed to `readopted`.
    pub(crate) fn restore(
        &mut self,
        world: &mut World,
        entities: &mut Entities,
        tick: Tick,
        readopted: &mut Vec<u32>,
    ) -> Result<Restored, RewindError> {
        self.check(tick)?;
        let newest = self.ring.back().map_or(tick, |s| s.tick);
        // the ticks that were run since are to be run again, before those that wait for it already
        let saved = loop {
            let Some(save) = self.ring.pop_back() else { return Err(RewindError::NotSaved(tick)) };
            self.replay.push_front(save.tick);
            if save.tick == tick {
                break save;
            }
            self.spare.push(save);
        };
        let newest = self.replay.back().map_or(newest, |last| newest.max(*last));
        let restored = if self.is_structure(world, &saved.structure) {
            for (index, (watched, archetype)) in archetypes(&self.watched, world).enumerate() {
                let rows = saved.structure.table(index).marks.len();
                for column in bits(watched.mask).filter_map(|i| saved.column(index, i as usize)).filter(|_| rows > 0) {
                    column.restore(archetype, 0..rows);
                }
            }
            Restored::default()
        } else {
            let restored = self.restore_structure(world, entities, &saved, newest, readopted);
            self.restore_values(world, entities, &saved);
            restored
        };
        self.ring.push_back(saved);
        Ok(restored)
    }

    fn restore_structure(
        &mut self,
        world: &mut World,
        entities: &mut Entities,
        saved: &Save,
        newest: Tick,
        readopted: &mut Vec<u32>,
    ) -> Restored {
        self.look(world);
        let (mut here, mut there) = std::mem::take(&mut self.rows);
        self.known.compare(&saved.structure, &mut here, &mut there);
        let mut restored = Restored::default();
        // first those who leave, so that their ids and names are free
        let mut wanted = there.iter().peekable();
        for row in &here {
            while wanted.next_if(|w| w.net < row.net).is_some() {}
            if wanted.peek().is_some_and(|w| w.net == row.net) {
                continue;
            }
            let Some(entity) = find(world, entities, row.net) else { continue };
            if self.limbo.park(world, entity, row.net, newest) {
                entities.set_parked(row.net, true);
                restored.parked += 1;
            }
        }
        let mut present = here.iter().peekable();
        for row in &there {
            while present.next_if(|p| p.net < row.net).is_some() {}
            let known = present.next_if(|p| p.net == row.net).and_then(|_| find(world, entities, row.net));
            if known.is_none() && self.ended.iter().any(|ended| ended.0 == row.net) {
                continue;
            }
            let Some(entity) = known.or_else(|| self.revive(world, entities, row.net, &mut restored)) else {
                self.rebuild(world, entities, saved, *row, &mut restored, readopted);
                continue;
            };
            self.reshape(world, entity, saved, *row, &mut restored);
        }
        self.rows = (here, there);
        restored
    }

    fn revive(&mut self, world: &mut World, entities: &mut Entities, net: NetId, restored: &mut Restored) -> Option<Entity> {
        let entity = self.limbo.revive(world, net)?;
        restored.revived += 1;
        restored.renamed += usize::from(entities.handle(net) != Some(entity));
        entities.set_entity(net, entity);
        entities.set_parked(net, false);
        Some(entity)
    }

    fn reshape(&mut self, world: &mut World, entity: Entity, saved: &Save, row: Row, restored: &mut Restored) {
        let entries = &self.schema.kept;
        let table = row.table as usize;
        let want = self.watched[table].mask;
        let have = world.entity(entity).map_or(want, |e| mask_of(entries, &e));
        for i in bits(have & !want) {
            entries[i as usize].kept.remove(world, entity);
        }
        for i in bits(want & !have) {
            if let Some(column) = saved.column(table, i as usize) {
                entries[i as usize].kept.insert(world, entity, column, row.row as usize);
            }
        }
        restored.reshaped += usize::from(have != want);
    }

    /// The game has despawned it behind our back: it is made anew from what was saved, under its handle if nobody has the id.
    fn rebuild(
        &mut self,
        world: &mut World,
        entities: &mut Entities,
        saved: &Save,
        row: Row,
        restored: &mut Restored,
        readopted: &mut Vec<u32>,
    ) {
        let watched = &self.watched[row.table as usize];
        let mut builder = EntityBuilder::new();
        for column in bits(watched.mask).filter_map(|i| saved.column(row.table as usize, i as usize)) {
            column.add_to(row.row as usize, &mut builder);
        }
        builder.add(Rewound { net: row.net });
        let grave = self.graves.iter().rfind(|g| g.net == row.net).map(|g| g.entity);
        let handle = entities.handle(row.net).or(grave).filter(|e| is_free(world, *e));
        let entity = match handle {
            Some(entity) => {
                world.spawn_at(entity, builder.build());
                entity
            }
            None => {
                restored.renamed += 1;
                world.spawn(builder.build())
            }
        };
        restored.rebuilt += 1;
        if let Some(line) = resources_of(row.net) {
            entities.resources[line as usize] = Some(entity);
        } else if let Some(kind) = watched.kind {
            (self.schema.kinds[kind].mark)(world, entity);
            readopted.push(entities.adopt(world, row.net, entity, kind));
        }
    }

    /// Writes the values of all rows: stretches that are where they were saved as they are, the others one by one. No value is
    /// written to a row that belongs to somebody else, so the order does not matter.
    fn restore_values(&mut self, world: &World, entities: &Entities, saved: &Save) {
        self.look(world);
        let known = self.known.clone();
        let mut elsewhere = std::mem::take(&mut self.elsewhere);
        for (index, (watched, archetype)) in archetypes(&self.watched, world).enumerate() {
            let (then, now) = (saved.structure.table(index), known.table(index));
            elsewhere.clear();
            let mut start = 0;
            let end = then.marks.len();
            for same in then.parts(now).chain(std::iter::once(end..end)) {
                let moved = then.marks[start..same.start].iter().zip(start as u32..);
                elsewhere.extend(moved.filter_map(|(mark, row)| Some((entities.handle(mark.net)?, row))));
                start = same.end;
                for column in bits(watched.mask).filter_map(|i| saved.column(index, i as usize)) {
                    column.restore(archetype, same.clone());
                }
            }
            for i in bits(watched.mask).filter(|_| !elsewhere.is_empty()) {
                if let Some(column) = saved.column(index, i as usize) {
                    self.schema.kept[i as usize].kept.scatter(world, column, &elsewhere);
                }
            }
        }
        self.elsewhere = elsewhere;
    }
}

/// The handle behind a name, as the world has it. The register is right but for entities that the game took out and spawned
/// again.
fn find(world: &World, entities: &mut Entities, net: NetId) -> Option<Entity> {
    let is_it = |e: &Entity| world.get::<&Rewound>(*e).is_ok_and(|mark| mark.net == net);
    if let Some(entity) = entities.handle(net).filter(is_it) {
        return Some(entity);
    }
    let found = world.query::<(Entity, &Rewound)>().iter().find(|(_, mark)| mark.net == net).map(|(entity, _)| entity)?;
    entities.set_entity(net, found);
    Some(found)
}
