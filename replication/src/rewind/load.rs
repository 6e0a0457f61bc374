//! A save in another world: what a program has that has just loaded it.

use crate::block::bits;
use crate::entities::Record;
use crate::peer::Peer;
use crate::policy::Timeline;
use crate::rewind::saves::Save;
use crate::rewind::structure::{Rewound, Row};
use hecs::{Entity, EntityBuilder, World};

/// Has an id that was used in another world.
struct Burnt;

impl Peer {
    /// Puts the entities and resources of another peer's save into this peer's world, in place of all networked ones there are, and
    /// goes on from its tick. They have the handles that they have there, so that what names them still does; nobody else may
    /// have those ids. `other` is the other peer's world.
    pub(crate) fn load_save(&mut self, world: &mut World, source: &Self, other: &World, save: &Save) {
        let line = Timeline::Session;
        let (Some(from), Some(_)) = (&source.saves[line], &self.saves[line]) else { return };
        self.forget_saves(world, line);
        for slot in 0..self.entities.slots() {
            if let Some(entity) = self.entities.remove(slot).map(|r| r.entity) {
                // the level's builder may have taken it away again
                let _ = world.despawn(entity);
            }
        }
        for entity in self.entities.resources.iter_mut().filter_map(Option::take) {
            let _ = world.despawn(entity);
        }
        let mut rows: Vec<Row> = Vec::new();
        for (index, table) in save.structure.tables.iter().enumerate() {
            rows.extend(table.marks.iter().enumerate().map(|(row, mark)| Row::new(*mark, index, row)));
        }
        rows.sort_unstable();
        for row in rows {
            let watched = &from.watched()[row.table as usize];
            let mut builder = EntityBuilder::new();
            builder.add(Rewound { net: row.net });
            for column in bits(watched.mask).filter_map(|c| save.column(row.table as usize, c as usize)) {
                column.add_to(row.row as usize, &mut builder);
            }
            let Some(handle) = source.entities.handle(row.net) else { continue };
            world.spawn_at(handle, builder.build());
            match (watched.kind, source.entities.slot_of(row.net).and_then(|slot| source.entities.get(slot))) {
                (Some(kind), Some(record)) => self.load_record(world, handle, kind, record),
                _ => self.entities.set_entity(row.net, handle),
            }
        }
        // what names somebody who is dead there must never come to name somebody who is born here
        let used = other.iter().map(|e| e.entity().id()).chain(other.freelist().map(|e| e.id())).max();
        while used.is_some_and(|last| world.spawn((Burnt,)).id() <= last) {}
        (self.time.tick, self.time.step, self.time.due) = (source.time.tick, source.time.step, source.time.due);
        self.time.ran = source.time.ran;
    }

    fn load_record(&mut self, world: &mut World, entity: Entity, kind: usize, record: &Record) {
        (self.schema.kinds[kind].mark)(world, entity);
        let slot = self.entities.insert(world, record.net, entity, kind);
        if let Some(loaded) = self.entities.get_mut(slot) {
            loaded.set_tag(record.tag());
            (loaded.shown, loaded.rewound) = (true, true);
        }
        self.refresh_authority(world, slot);
    }
}
