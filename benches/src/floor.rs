//! The floor: what any way of keeping worlds in step must do at least. The columns of a hecs world are compared with a shadow,
//! what differs is copied once into a buffer, and the buffer is handed to every guest; a guest writes it into its own columns.
//! No entities, no acknowledgements, no state per guest, no coding.

use crate::meter::{Reading, timed};
use hecs::{Component, World};

/// One component's column, shadow and buffers.
pub trait Column {
    /// Compares a world's column with the shadow; what differs goes into the buffer.
    fn collect(&mut self, world: &World);
    /// Hands the buffer to `guests` guests.
    fn hand_over(&mut self, guests: usize);
    /// Writes the first guest's buffer into a world's column.
    fn apply(&self, world: &World);
    /// Gives a copy of the column to new entities of a world: the guest's.
    fn copy_world(&self, from: &World, into: &mut World);
    /// Do two worlds' columns hold the same?
    fn is_equal(&self, a: &World, b: &World) -> bool;
}

/// A value as plain bytes.
pub trait Flat: Component + Copy + PartialEq {
    /// Appends them.
    fn put(&self, into: &mut Vec<u8>);
    /// Takes them off the front.
    fn take(from: &mut &[u8]) -> Self;
}

/// Takes an array off the front of a buffer.
///
/// # Panics
/// If it is not there.
pub fn bytes<const N: usize>(from: &mut &[u8]) -> [u8; N] {
    let (head, rest) = from.split_first_chunk().expect("the buffer was filled by the same columns");
    *from = rest;
    *head
}

/// Takes floats off the front of a buffer.
pub fn floats<const N: usize>(from: &mut &[u8]) -> [f32; N] {
    std::array::from_fn(|_| f32::from_le_bytes(bytes(from)))
}

/// A column of plain values.
pub struct Plain<C> {
    shadow: Vec<C>,
    /// A bit for each value that differs, then those values.
    changed: Vec<u64>,
    values: Vec<u8>,
    guests: Vec<(Vec<u64>, Vec<u8>)>,
}

impl<C: Flat> Plain<C> {
    /// An empty one.
    #[must_use]
    pub fn boxed() -> Box<dyn Column> {
        Box::new(Self { shadow: Vec::new(), changed: Vec::new(), values: Vec::new(), guests: Vec::new() })
    }
}

/// Calls `f` with each archetype's column.
fn each_column<C: Component>(world: &World, mut f: impl FnMut(&[C])) {
    for archetype in world.archetypes() {
        if let Some(column) = archetype.get::<&C>() {
            f(&column);
        }
    }
}

impl<C: Flat> Column for Plain<C> {
    fn collect(&mut self, world: &World) {
        self.changed.clear();
        self.values.clear();
        let mut first = 0;
        each_column::<C>(world, |column| {
            if self.shadow.len() < first + column.len() {
                self.shadow.extend_from_slice(&column[self.shadow.len() - first..]);
            }
            let shadow = &mut self.shadow[first..first + column.len()];
            for (new, old) in column.chunks(64).zip(shadow.chunks_mut(64)) {
                let mut mask = 0u64;
                for (i, (new, old)) in new.iter().zip(&*old).enumerate() {
                    mask |= u64::from(new != old) << i;
                }
                self.changed.push(mask);
                while mask != 0 {
                    let i = mask.trailing_zeros() as usize;
                    old[i] = new[i];
                    new[i].put(&mut self.values);
                    mask &= mask - 1;
                }
            }
            first += column.len();
        });
    }

    fn hand_over(&mut self, guests: usize) {
        self.guests.resize_with(guests, Default::default);
        for (changed, values) in &mut self.guests {
            changed.clear();
            changed.extend_from_slice(&self.changed);
            values.clear();
            values.extend_from_slice(&self.values);
        }
    }

    fn apply(&self, world: &World) {
        let Some((changed, values)) = self.guests.first() else { return };
        let (mut block, mut values) = (0, &values[..]);
        for archetype in world.archetypes() {
            let Some(mut column) = archetype.get::<&mut C>() else { continue };
            for chunk in column.chunks_mut(64) {
                let mut mask = changed[block];
                block += 1;
                while mask != 0 {
                    chunk[mask.trailing_zeros() as usize] = C::take(&mut values);
                    mask &= mask - 1;
                }
            }
        }
    }

    fn copy_world(&self, from: &World, into: &mut World) {
        let mut values = Vec::new();
        each_column::<C>(from, |column| values.extend_from_slice(column));
        let mut entities: Vec<_> = into.iter().map(|e| e.entity()).collect();
        entities.sort_unstable();
        while entities.len() < values.len() {
            entities.push(into.spawn(()));
        }
        for (entity, value) in entities.into_iter().zip(values) {
            into.insert_one(entity, value).expect("it was listed just now");
        }
    }

    fn is_equal(&self, a: &World, b: &World) -> bool {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        each_column::<C>(a, |column| left.extend_from_slice(column));
        each_column::<C>(b, |column| right.extend_from_slice(column));
        left == right
    }
}

/// The floor of a world's columns, for some guests, of whom one has a world.
pub struct Floor {
    columns: Vec<Box<dyn Column>>,
    guests: usize,
    world: World,
}

impl Floor {
    /// Starts with a guest's world that equals `world`.
    #[must_use]
    pub fn new(columns: Vec<Box<dyn Column>>, guests: usize, world: &World) -> Self {
        let mut floor = Self { columns, guests, world: World::new() };
        for column in &mut floor.columns {
            column.collect(world);
            column.copy_world(world, &mut floor.world);
        }
        floor
    }

    /// One tick: the host's part and one guest's.
    pub fn tick(&mut self, world: &World) -> (Reading, Reading) {
        let ((), host) = timed(|| {
            for column in &mut self.columns {
                column.collect(world);
                column.hand_over(self.guests);
            }
        });
        let ((), guest) = timed(|| self.columns.iter().for_each(|column| column.apply(&self.world)));
        (host, guest)
    }

    /// Does the guest's world equal the host's?
    #[must_use]
    pub fn is_equal(&self, world: &World) -> bool {
        self.columns.iter().all(|column| column.is_equal(world, &self.world))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::{Cast, Full};
    use crate::crowd::{Crowd, Motion};
    use tidelock::{Config, Peer};

    #[test]
    fn the_floor_keeps_its_guest_equal() {
        let mut crowd = Crowd::new(700, 0.2, Motion::Turning);
        let mut peer = Peer::alone(Full::schema(), Config::default()).unwrap();
        let mut world = World::new();
        let entities: Vec<_> = (0..crowd.len()).map(|i| Full::spawn(&mut peer, &mut world, &crowd, i)).collect();
        let mut floor = Floor::new(Full::columns(), 3, &world);
        for _ in 0..70 {
            crowd.step();
            Full::show(&mut world, &entities, &crowd);
            assert!(!floor.is_equal(&world));
            floor.tick(&world);
            assert!(floor.is_equal(&world));
        }
    }
}
