//! One kind of value that is saved and restored, behind a common face. Erasure is done per column, like that of what travels:
//! going row by row through a query costs six times as much.

use crate::checkpoint::{Checkpoint, CheckpointError, CheckpointReader, CheckpointWriter, Differ};
use crate::netid::NetId;
use crate::policy::Timeline;
use crate::rewind::structure::Rewound;
use hecs::{Archetype, Component, Entity, EntityBuilder, EntityRef, World};
use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::ops::Range;

/// A component or a resource that is saved and restored.
pub(crate) struct KeptEntry {
    pub(crate) name: String,
    pub(crate) type_id: TypeId,
    pub(crate) kept: Box<dyn Kept>,
    /// Of a resource: puts its first value on the entity that carries all of them.
    pub(crate) first: Option<fn(&mut EntityBuilder)>,
    /// It does not travel: it has no other entry in the schema.
    pub(crate) only: bool,
    /// Of a resource: whose steps reach it.
    pub(crate) line: Timeline,
}

/// The typed operations on a component that is kept.
pub(crate) trait Kept: Send + Sync {
    fn is_in(&self, archetype: &Archetype) -> bool;
    fn is_on(&self, entity: &EntityRef<'_>) -> bool;
    fn column(&self) -> Box<dyn Values>;
    fn insert(&self, world: &mut World, entity: Entity, values: &dyn Values, row: usize);
    fn remove(&self, world: &mut World, entity: Entity);
    /// Writes the values of entities as they are now; of each is told whether it has one, and where the bytes end.
    fn write_live(&self, world: &World, of: &[Entity], w: &mut CheckpointWriter<'_>, each: &mut dyn FnMut(usize, bool, usize));
    /// Writes saved rows to entities, wherever they live now.
    fn scatter(&self, world: &World, values: &dyn Values, to: &[(Entity, u32)]);
}

/// The saved values of one component in one archetype.
pub(crate) trait Values: Send + Sync {
    fn save(&mut self, archetype: &Archetype);
    /// Writes a stretch of rows back to where they were saved from.
    fn restore(&self, archetype: &Archetype, rows: Range<usize>);
    fn add_to(&self, row: usize, builder: &mut EntityBuilder);
    /// Hashes each row under the key that `key` gives it.
    fn digest(
        &self,
        marks: &[Rewound],
        key: &dyn Fn(NetId) -> u64,
        writer: &mut CheckpointWriter<'_>,
        each: &mut dyn FnMut(usize, u64),
    );
    fn differ(&self, row: usize, other: &dyn Values, other_row: usize, at: &mut Differ<'_>) -> bool;
    fn write(&self, row: usize, w: &mut CheckpointWriter<'_>);
    /// Reads so many rows, in place of those that there are.
    fn read(&mut self, rows: usize, r: &mut CheckpointReader<'_>) -> Result<(), CheckpointError>;
    fn as_any(&self) -> &dyn Any;
}

pub(crate) struct Keeper<C>(pub(crate) PhantomData<fn() -> C>);

impl<C: Component + Checkpoint> Kept for Keeper<C> {
    fn is_in(&self, archetype: &Archetype) -> bool {
        archetype.has::<C>()
    }

    fn is_on(&self, entity: &EntityRef<'_>) -> bool {
        entity.has::<C>()
    }

    fn column(&self) -> Box<dyn Values> {
        Box::new(Column::<C>(Vec::new()))
    }

    fn insert(&self, world: &mut World, entity: Entity, values: &dyn Values, row: usize) {
        // the caller has just seen it alive
        let _ = world.insert_one(entity, typed::<C>(values)[row].clone());
    }

    fn remove(&self, world: &mut World, entity: Entity) {
        // what is not there needs not be removed
        let _ = world.remove_one::<C>(entity);
    }

    fn write_live(&self, world: &World, of: &[Entity], w: &mut CheckpointWriter<'_>, each: &mut dyn FnMut(usize, bool, usize)) {
        for (i, entity) in of.iter().enumerate() {
            let value = world.get::<&C>(*entity);
            if let Ok(value) = &value {
                value.write(w);
            }
            each(i, value.is_ok(), w.as_bytes().len());
        }
    }

    fn scatter(&self, world: &World, values: &dyn Values, to: &[(Entity, u32)]) {
        let values = typed::<C>(values);
        for &(entity, row) in to {
            if let Ok(mut value) = world.get::<&mut C>(entity) {
                values[row as usize].save_into(&mut value);
            }
        }
    }
}

struct Column<C>(Vec<C>);

impl<C: Component + Checkpoint> Values for Column<C> {
    fn save(&mut self, archetype: &Archetype) {
        let saved = &mut self.0;
        let Some(column) = archetype.get::<&C>() else { return saved.clear() };
        if C::PLAIN {
            // one `memcpy` for what is `Copy`
            saved.clear();
            saved.extend_from_slice(&column);
            return;
        }
        saved.truncate(column.len());
        let (old, new) = column.split_at(saved.len());
        for (from, into) in old.iter().zip(saved.iter_mut()) {
            from.save_into(into);
        }
        saved.extend_from_slice(new);
    }

    fn restore(&self, archetype: &Archetype, rows: Range<usize>) {
        let Some(mut column) = archetype.get::<&mut C>() else { return };
        let (Some(from), Some(into)) = (self.0.get(rows.clone()), column.get_mut(rows)) else { return };
        if C::PLAIN {
            return into.clone_from_slice(from);
        }
        for (from, into) in from.iter().zip(into) {
            from.save_into(into);
        }
    }

    fn add_to(&self, row: usize, builder: &mut EntityBuilder) {
        builder.add(self.0[row].clone());
    }

    fn digest(
        &self,
        marks: &[Rewound],
        key: &dyn Fn(NetId) -> u64,
        writer: &mut CheckpointWriter<'_>,
        each: &mut dyn FnMut(usize, u64),
    ) {
        for (row, (mark, value)) in marks.iter().zip(&self.0).enumerate() {
            value.write(writer);
            each(row, writer.finish(key(mark.net)));
        }
    }

    fn differ(&self, row: usize, other: &dyn Values, other_row: usize, at: &mut Differ<'_>) -> bool {
        self.0[row].differ(&typed::<C>(other)[other_row], at)
    }

    fn write(&self, row: usize, w: &mut CheckpointWriter<'_>) {
        self.0[row].write(w);
    }

    fn read(&mut self, rows: usize, r: &mut CheckpointReader<'_>) -> Result<(), CheckpointError> {
        r.allocate(rows, size_of::<C>())?;
        self.0.clear();
        for _ in 0..rows {
            self.0.push(C::read(r)?);
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn typed<C: 'static>(values: &dyn Values) -> &[C] {
    &values.as_any().downcast_ref::<Column<C>>().expect("a column is used with the entry that made it").0
}
