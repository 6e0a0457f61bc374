//! Where the values of rows go, as long as no presence of the row comes and the entity's record says the same: kept by block, so that
//! rows that need no more than being written are told from others all at once.

use crate::block::bits;
use crate::history::BLOCK;
use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::room::make_room;
use hecs::Entity;

/// What the record said of the entity that a row names.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) net: NetId,
    pub(crate) mine: u64,
    pub(crate) slot: u32,
    pub(crate) owner: PeerId,
}

impl Target {
    const NOBODY: Self = Self { net: NetId(0), mine: 0, slot: u32::MAX, owner: PeerId::HOST };
}

#[derive(Default)]
pub(crate) struct Targets {
    rows: Vec<Target>,
    /// By row.
    entities: Vec<Entity>,
    columns: usize,
    /// By block, then component: rows whose component is written as it comes.
    plain: Vec<u64>,
    /// By block: the register's [`version`](crate::entities::Entities::version), and rows whose record need not be asked again while
    /// it has that.
    sure: Vec<(u64, u64)>,
}

impl Targets {
    pub(super) fn set_columns(&mut self, columns: usize) {
        self.columns = columns;
    }

    pub(super) fn get(&self, row: usize) -> Option<&Target> {
        self.rows.get(row)
    }

    pub(super) fn entities(&self) -> &[Entity] {
        &self.entities
    }

    /// Notes where the values of a row go, and which of them need no more than being written, as the register says in `version`.
    pub(super) fn set(&mut self, row: usize, target: Target, entity: Entity, plain: u64, version: u64) {
        self.fit(row);
        (self.rows[row], self.entities[row]) = (target, entity);
        let bit = 1 << (row % BLOCK);
        for (c, rows) in self.plain[row / BLOCK * self.columns..][..self.columns].iter_mut().enumerate() {
            *rows = if plain >> c & 1 != 0 { *rows | bit } else { *rows & !bit };
        }
        self.confirm(row, version);
    }

    /// A row names an entity of this slot; what becomes of its values is not known yet.
    pub(super) fn set_slot(&mut self, row: usize, slot: u32) {
        self.fit(row);
        self.rows[row].slot = slot;
    }

    /// None of a row's values are simply written.
    pub(super) fn ask(&mut self, row: usize) {
        self.fit(row);
        let bit = 1 << (row % BLOCK);
        self.plain[row / BLOCK * self.columns..][..self.columns].iter_mut().for_each(|rows| *rows &= !bit);
    }

    pub(super) fn forget(&mut self, row: usize) {
        self.ask(row);
        self.rows[row] = Target::NOBODY;
        self.entities[row] = Entity::DANGLING;
    }

    /// Are these components of a row written as they come, if the record says what it said?
    pub(super) fn is_plain(&self, row: usize, components: u64) -> bool {
        let plain = self.plain.get(row / BLOCK * self.columns..).and_then(|plain| plain.get(..self.columns));
        plain.is_some_and(|plain| bits(components).all(|c| plain[c as usize] >> (row % BLOCK) & 1 != 0))
    }

    /// The record says what it said, in that version of the register.
    pub(super) fn confirm(&mut self, row: usize, version: u64) {
        let (as_of, rows) = &mut self.sure[row / BLOCK];
        let others = if *as_of == version { *rows } else { 0 };
        (*as_of, *rows) = (version, others | 1 << (row % BLOCK));
    }

    /// The rows of a block of which nothing has arrived that needs more than being written. `arrived`: rows by component.
    #[inline]
    pub(super) fn ready(&self, block: usize, arrived: &[u64], version: u64) -> u64 {
        let Some((_, sure)) = self.sure.get(block).filter(|(as_of, _)| *as_of == version) else { return 0 };
        let plain = &self.plain[block * self.columns..][..self.columns];
        let odd = arrived.iter().zip(plain).fold(0, |odd, (arrived, plain)| odd | arrived & !plain);
        sure & !odd
    }

    fn fit(&mut self, row: usize) {
        if row < self.rows.len() {
            return;
        }
        let blocks = row / BLOCK + 1;
        make_room(&mut self.rows, blocks * BLOCK);
        make_room(&mut self.entities, blocks * BLOCK);
        self.rows.resize(blocks * BLOCK, Target::NOBODY);
        self.entities.resize(blocks * BLOCK, Entity::DANGLING);
        self.plain.resize(blocks * self.columns, 0);
        self.sure.resize(blocks, (0, 0));
    }
}
