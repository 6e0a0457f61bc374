//! The ring of saves: one copy per column and archetype into reused buffers. No allocation once the ring is full and the
//! world's archetypes are known.

use crate::block::bits;
use crate::entities::Tag;
use crate::netid::NetId;
use crate::policy::Timeline;
use crate::rewind::RewindError;
use crate::rewind::kept::{KeptEntry, Values};
use crate::rewind::limbo::Limbo;
use crate::rewind::structure::{Rewound, Row, Structure};
use crate::schema::Inner;
use hecs::{Archetype, ArchetypesGeneration, Entity, World};
use std::collections::VecDeque;
use std::sync::Arc;
use tidelock_netcore::tick::Tick;

/// One saved tick: the world as the tick begins.
#[derive(Default)]
pub(crate) struct Save {
    pub(crate) tick: Tick,
    pub(crate) structure: Arc<Structure>,
    /// By archetype that is watched, and kept component. Kept when the save is used again.
    pub(crate) columns: Vec<Vec<Option<Box<dyn Values>>>>,
}

impl Save {
    pub(crate) fn column(&self, table: usize, component: usize) -> Option<&dyn Values> {
        self.columns.get(table)?.get(component)?.as_deref()
    }
}

/// An archetype with rewound entities. They are only ever added, so that a table's index stays.
pub(crate) struct Watched {
    pub(crate) archetype: usize,
    /// Which kept components it has.
    pub(crate) mask: u64,
    /// Its entities' kind; none is the resources'.
    pub(crate) kind: Option<usize>,
}

/// Who has died for good, while a save knows them.
pub(crate) struct Grave {
    pub(crate) net: NetId,
    pub(crate) entity: Entity,
    pub(crate) tick: Tick,
    pub(crate) tag: Tag,
}

/// All that a peer needs to go back.
pub(crate) struct Saves {
    pub(crate) schema: Arc<Inner>,
    /// Ticks that can be taken back.
    pub(crate) depth: usize,
    /// Whose ticks they are.
    pub(crate) line: Timeline,
    /// No tick is saved by itself: copies are made when somebody asks for one. Then nothing can be taken back.
    pub(crate) on_request: bool,
    /// The kinds whose entities are kept, as bits; all of them, whatever timeline they live by, for a check of determinism.
    pub(crate) kinds: u64,
    pub(crate) limbo: Limbo,
    pub(crate) graves: Vec<Grave>,
    /// Names whose entities the host has ended, and that no save brings back, with the newest save when it did.
    pub(super) ended: Vec<(NetId, Tick)>,
    /// Ticks to run again before a new one.
    pub(crate) replay: VecDeque<Tick>,
    /// The structure of the world when it was last looked at.
    pub(super) known: Arc<Structure>,
    pub(super) watched: Vec<Watched>,
    pub(super) ring: VecDeque<Save>,
    pub(super) spare: Vec<Save>,
    pub(super) rows: (Vec<Row>, Vec<Row>),
    pub(super) elsewhere: Vec<(Entity, u32)>,
    pool: Vec<Arc<Structure>>,
    watched_at: Option<ArchetypesGeneration>,
    /// Archetypes that were looked at, be they watched or not.
    looked: usize,
    confirmed: Option<Tick>,
}

impl Saves {
    pub(crate) fn new(schema: Arc<Inner>, line: Timeline, depth: usize, kinds: u64) -> Self {
        Self {
            schema,
            depth,
            line,
            kinds,
            on_request: false,
            limbo: Limbo::default(),
            graves: Vec::new(),
            ended: Vec::new(),
            replay: VecDeque::new(),
            known: Arc::default(),
            watched: Vec::new(),
            ring: VecDeque::new(),
            spare: Vec::new(),
            rows: Default::default(),
            elsewhere: Vec::new(),
            pool: Vec::new(),
            watched_at: None,
            looked: 0,
            confirmed: None,
        }
    }

    /// Do they keep everything, whatever timeline it lives by?
    pub(crate) fn is_of_all(&self) -> bool {
        self.kinds == u64::MAX
    }

    pub(crate) fn watched(&self) -> &[Watched] {
        &self.watched
    }

    pub(crate) fn oldest(&self) -> Option<Tick> {
        self.ring.front().map(|s| s.tick)
    }

    /// The save of a tick, confirmed or not.
    pub(crate) fn get(&self, tick: Tick) -> Option<&Save> {
        self.ring.iter().find(|s| s.tick == tick)
    }

    /// The first save of a later tick.
    pub(crate) fn next_after(&self, tick: Tick) -> Option<Tick> {
        self.ring.iter().map(|s| s.tick).find(|saved| *saved > tick)
    }

    pub(super) fn check(&self, tick: Tick) -> Result<(), RewindError> {
        if self.confirmed.is_some_and(|confirmed| tick <= confirmed) {
            return Err(RewindError::Confirmed(tick));
        }
        match self.oldest() {
            Some(oldest) if tick < oldest => Err(RewindError::TooOld { tick, oldest }),
            _ if self.get(tick).is_none() => Err(RewindError::NotSaved(tick)),
            _ => Ok(()),
        }
    }

    /// Another history goes on from here: nothing of the one before counts.
    pub(super) fn start_over(&mut self) {
        self.forget();
        self.graves.clear();
        self.confirmed = None;
    }

    /// No restore may go to `tick` or before any more.
    pub(crate) fn confirm(&mut self, tick: Tick) {
        self.confirmed = self.confirmed.max(Some(tick));
    }

    /// An entity has ended for good, whatever the saves hold.
    pub(crate) fn bury(&mut self, world: &mut World, net: NetId) {
        self.limbo.bury(world, net);
        if let Some(newest) = self.ring.back() {
            self.ended.push((net, newest.tick));
        }
    }

    /// Lets all saves go: what they hold is not what there was.
    pub(crate) fn forget(&mut self) {
        self.spare.extend(self.ring.drain(..));
        self.replay.clear();
    }

    /// Saves the world as `tick` begins. Later saves are of a branch that was taken back.
    pub(crate) fn save(&mut self, world: &World, tick: Tick) {
        while self.ring.back().is_some_and(|s| s.tick >= tick) {
            self.spare.extend(self.ring.pop_back());
        }
        if self.ring.len() > self.depth {
            self.spare.extend(self.ring.pop_front());
        }
        let mut save = self.spare.pop().unwrap_or_default();
        save.tick = tick;
        self.copy(world, &mut save);
        self.ring.push_back(save);
        if let Some(oldest) = self.oldest() {
            self.graves.retain(|grave| grave.tick >= oldest);
            self.ended.retain(|ended| ended.1 >= oldest);
        }
    }

    /// Copies what is kept of the world as it is.
    pub(crate) fn copy(&mut self, world: &World, save: &mut Save) {
        self.look(world);
        save.structure = self.known.clone();
        save.columns.resize_with(self.watched.len().max(save.columns.len()), Vec::new);
        let entries = &self.schema.kept;
        for (columns, (watched, archetype)) in save.columns.iter_mut().zip(archetypes(&self.watched, world)) {
            if archetype.is_empty() {
                continue;
            }
            columns.resize_with(entries.len(), || None);
            for i in bits(watched.mask) {
                let i = i as usize;
                columns[i].get_or_insert_with(|| entries[i].kept.column()).save(archetype);
            }
        }
    }

    /// Watches archetypes that are new. Their number, which hecs calls their generation, tells of nothing else.
    fn watch(&mut self, world: &World) {
        if self.watched_at == Some(world.archetypes_generation()) {
            return;
        }
        self.watched_at = Some(world.archetypes_generation());
        let from = std::mem::replace(&mut self.looked, world.archetypes().len());
        for (index, archetype) in world.archetypes().enumerate().skip(from) {
            if archetype.has::<Rewound>() {
                let entries = self.schema.kept.iter().enumerate();
                let mask = entries.fold(0, |m, (i, e)| m | u64::from(e.kept.is_in(archetype)) << i);
                let kind = self.schema.kinds.iter().position(|k| (k.is_in)(archetype));
                let resource = |k: &KeptEntry| k.first.is_some() && k.line == self.line && k.kept.is_in(archetype);
                let ours = match kind {
                    Some(kind) => self.kinds >> kind & 1 != 0,
                    None => self.is_of_all() || self.schema.kept.iter().any(resource),
                };
                if ours {
                    self.watched.push(Watched { archetype: index, mask, kind });
                }
            }
        }
    }

    /// Is every rewound entity in the archetype and row where `structure` has it? Nobody's counter is trusted: the game may
    /// change the world as it likes.
    pub(super) fn is_structure(&mut self, world: &World, structure: &Structure) -> bool {
        self.watch(world);
        archetypes(&self.watched, world).enumerate().all(|(index, (_, archetype))| {
            let table = structure.table(index);
            match archetype.get::<&Rewound>() {
                Some(marks) => table.is(archetype.ids(), &marks),
                None => table.marks.is_empty(),
            }
        })
    }

    /// Brings `known` up to date.
    pub(super) fn look(&mut self, world: &World) {
        let known = self.known.clone();
        if self.is_structure(world, &known) {
            return;
        }
        drop(known);
        let unused = self.pool.iter().position(|s| Arc::strong_count(s) == 1);
        let mut new = unused.map(|i| self.pool.swap_remove(i)).unwrap_or_default();
        // whoever else held it would have been counted
        let Some(structure) = Arc::get_mut(&mut new) else { return };
        structure.tables.resize_with(self.watched.len(), Default::default);
        for (table, (_, archetype)) in structure.tables.iter_mut().zip(archetypes(&self.watched, world)) {
            table.ids.clear();
            table.marks.clear();
            if let Some(marks) = archetype.get::<&Rewound>() {
                table.ids.extend_from_slice(archetype.ids());
                table.marks.extend_from_slice(&marks);
            }
        }
        self.pool.push(new.clone());
        self.known = new;
    }
}

/// The archetypes that are watched, in order.
pub(super) fn archetypes<'w>(watched: &'w [Watched], world: &'w World) -> impl Iterator<Item = (&'w Watched, &'w Archetype)> {
    let (mut all, mut at) = (world.archetypes(), 0);
    watched.iter().map_while(move |watched| {
        // over a slice, `nth` jumps
        let archetype = all.nth(watched.archetype - at)?;
        at = watched.archetype + 1;
        Some((watched, archetype))
    })
}
