//! Which entity hangs on which, read from the world: only what has changed is read anew.

use crate::block::bits;
use crate::column::Shadow;
use crate::entities::{Entities, Networked, name_in};
use crate::groups::Groups;
use crate::netid::NetId;
use crate::schema::Inner;
use hecs::{Archetype, World};
use std::cell::Cell;

pub(crate) struct Kinship {
    /// Components that name a parent.
    components: Vec<usize>,
    /// By component and archetype.
    views: Vec<Vec<View>>,
    /// Slots whose parents may have changed.
    suspects: Vec<u32>,
    /// Slots with such a component that points to an entity without a name: it may get one any time.
    unresolved: Vec<u32>,
    changed: Vec<u64>,
    words: Vec<u32>,
}

/// What was known of one component in one archetype.
#[derive(Default)]
struct View {
    shadow: Option<Box<dyn Shadow>>,
    rows: Vec<(NetId, u32)>,
}

impl Kinship {
    pub(crate) fn new(schema: &Inner) -> Self {
        let components: Vec<_> = (1..schema.columns()).filter(|c| schema.component(*c).parent).collect();
        let views = components.iter().map(|_| Vec::new()).collect();
        Self { components, views, suspects: Vec::new(), unresolved: Vec::new(), changed: Vec::new(), words: Vec::new() }
    }

    /// Has a slot read again.
    pub(crate) fn suspect(&mut self, slot: u32) {
        self.suspects.push(slot);
    }

    /// Tells the groups whose parents have changed.
    pub(crate) fn refresh(&mut self, world: &World, entities: &Entities, schema: &Inner, groups: &mut Groups) {
        for i in 0..self.components.len() {
            let column = &*schema.component(self.components[i]).column;
            for (a, archetype) in world.archetypes().enumerate() {
                if self.views[i].len() <= a {
                    self.views[i].push(View::default());
                }
                if column.is_in(archetype) {
                    let view = &mut self.views[i][a];
                    let shadow = view.shadow.get_or_insert_with(|| column.shadow());
                    self.changed.clear();
                    self.changed.resize(archetype.len().div_ceil(64) as usize, 0);
                    shadow.compare(archetype, &mut self.changed);
                    compare(&mut view.rows, archetype, &self.changed, &mut self.suspects);
                }
            }
        }
        self.suspects.append(&mut self.unresolved);
        self.suspects.sort_unstable();
        self.suspects.dedup();
        let mut suspects = std::mem::take(&mut self.suspects);
        for slot in suspects.drain(..) {
            self.read(slot, world, entities, schema, groups);
        }
        self.suspects = suspects;
    }

    fn read(&mut self, slot: u32, world: &World, entities: &Entities, schema: &Inner, groups: &mut Groups) {
        let Some(record) = entities.get(slot) else { return };
        let mut parents = smallvec::SmallVec::<[u32; 4]>::new();
        let nameless = Cell::new(false);
        let name = name_in(world);
        let name = |entity| {
            let net = name(entity);
            nameless.set(nameless.get() || net.is_none() && world.contains(entity));
            net
        };
        for &c in &self.components {
            let column = &*schema.component(c).column;
            let layout = column.layout();
            self.words.clear();
            self.words.resize(layout.words(), 0);
            match column.quantise_one(world, record.entity, &name, &mut self.words) {
                None => {}
                Some(Err(_)) => {
                    // a value that cannot travel: the last one counts, until there is another
                    self.unresolved.push(slot);
                    return;
                }
                // somebody who ended is nobody, as at the guests
                Some(Ok(())) => parents.extend(layout.entities(&self.words).next().and_then(|net| entities.slot_of(net))),
            }
        }
        if nameless.get() {
            self.unresolved.push(slot);
        }
        groups.set_parents(slot, &parents);
    }
}

/// Adds what is not as it was to `suspects`: rows that others are in now, and rows with another value.
fn compare(rows: &mut Vec<(NetId, u32)>, archetype: &Archetype, changed: &[u64], suspects: &mut Vec<u32>) {
    let marks = archetype.get::<&Networked>();
    let len = if marks.is_some() { archetype.len() as usize } else { 0 };
    suspects.extend(rows.iter().skip(len).map(|r| r.1));
    rows.truncate(len);
    let Some(marks) = marks else { return };
    for (i, mark) in marks.iter().enumerate() {
        let now = (mark.id(), mark.slot());
        match rows.get_mut(i) {
            Some(row) if *row == now => {}
            Some(row) => {
                suspects.extend([row.1, now.1]);
                *row = now;
            }
            None => {
                suspects.push(now.1);
                rows.push(now);
            }
        }
    }
    for (block, word) in changed.iter().enumerate() {
        suspects.extend(bits(*word).filter_map(|bit| rows.get(block * 64 + bit as usize)).map(|r| r.1));
    }
}
