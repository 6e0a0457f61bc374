//! The register of networked entities: name, local handle, kind, owners, and the rows that carry them.

use crate::few::Few;
use crate::netid::NetId;
use crate::order::Order;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::presence::{Owners, UNOWNED};
use crate::rewind::resources_of;
use crate::room::make_room;
use hecs::{Entity, World};
use rustc_hash::FxHashMap;
use tidelock_netcore::tick::Tick;

pub(crate) const NO_ROW: u32 = u32::MAX;

/// Marks a networked entity in the world, and is its name there. Put on and taken off by the framework alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Networked {
    /// Two words of the name, and the index into the register: without a gap, so that columns of marks compare as plain memory.
    pub(crate) words: [u32; 3],
}

impl Networked {
    pub(crate) fn new(net: NetId, slot: u32) -> Self {
        let [low, high] = net.to_words();
        Self { words: [low, high, slot] }
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.words[2]
    }

    /// The entity's name in the session.
    #[must_use]
    pub fn id(&self) -> NetId {
        NetId::from_words(self.words[0], self.words[1])
    }
}

/// Marks the entities of the session's own timeline that this peer simulates now: by their kind's policy it has authority over
/// them or predicts them, and their kind's time runs. Put on and taken off by the framework alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simulated;

/// Marks the entities of the [rollback timeline](crate::policy::Timeline). Put on by the framework alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InRollback;

/// Marks the entities of the [lockstep timeline](crate::policy::Timeline). Put on by the framework alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InLockstep;

/// Marks what this peer steers ahead of lockstep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steered;

/// Puts a timeline's mark on an entity, or takes it off. One that the game has despawned needs none.
pub(crate) fn mark(world: &mut World, entity: Entity, line: Timeline, on: bool) {
    let _ = match (line, on) {
        (Timeline::Session, true) => world.insert_one(entity, Simulated).is_ok(),
        (Timeline::Rollback, true) => world.insert_one(entity, InRollback).is_ok(),
        (Timeline::Lockstep, true) => world.insert_one(entity, InLockstep).is_ok(),
        (Timeline::Session, false) => world.remove_one::<Simulated>(entity).is_ok(),
        (Timeline::Rollback, false) => world.remove_one::<InRollback>(entity).is_ok(),
        (Timeline::Lockstep, false) => world.remove_one::<InLockstep>(entity).is_ok(),
    };
}

pub(crate) struct Record {
    pub(crate) net: NetId,
    pub(crate) entity: Entity,
    pub(crate) kind: usize,
    pub(crate) owners: Owners,
    pub(crate) cut: u8,
    /// Row in what this peer publishes, or [`NO_ROW`]. Set by [`Entities::set_row`].
    pub(crate) out_row: u32,
    /// Rows in what others publish.
    pub(crate) in_rows: Few<(PeerId, u32)>,
    /// Bit c: this peer has authority over component c. Set by [`Entities::set_mine`].
    pub(crate) mine: u64,
    pub(crate) simulated: bool,
    /// It is saved and can be rewound.
    pub(crate) rewound: bool,
    /// It was despawned, which may be taken back.
    pub(crate) parked: bool,
    /// The step that spawned it here, if a step did.
    pub(crate) born: Tick,
    /// What its spawner told it by.
    pub(crate) key: u64,
    /// The game was told of it.
    pub(crate) shown: bool,
    /// Guest: the host's send whose presence showed it in the row that it is in.
    pub(crate) began: Tick,
    /// Host: the guest that spawned it. Set by [`Entities::set_spawner`].
    spawner: PeerId,
    /// Host: who owned it, or a part of it, under an earlier epoch.
    pub(crate) former: Few<PeerId>,
}

/// What is known of an entity beside its components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) owners: Owners,
    pub(crate) cut: u8,
    pub(crate) key: u64,
}

impl Record {
    pub(crate) fn tag(&self) -> Tag {
        Tag { owners: self.owners, cut: self.cut, key: self.key }
    }

    pub(crate) fn set_tag(&mut self, tag: Tag) {
        (self.owners, self.cut, self.key) = (tag.owners, tag.cut, tag.key);
    }

    pub(crate) fn in_row(&self, peer: PeerId) -> Option<usize> {
        self.in_rows.iter().find(|r| r.0 == peer).map(|r| r.1 as usize)
    }

    pub(crate) fn set_in_row(&mut self, peer: PeerId, row: usize) {
        self.in_rows.retain(|r| r.0 != peer);
        self.in_rows.push((peer, row as u32));
    }
}

/// What capture asks of entities whose values changed, apart from the rest of a record so that it is near at hand.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) net: NetId,
    /// As [`Record::out_row`] and [`Record::mine`].
    pub(crate) row: u32,
    pub(crate) mine: u64,
}

#[derive(Default)]
pub(crate) struct Entities {
    records: Vec<Option<Record>>,
    /// By slot.
    routes: Vec<Route>,
    /// Counts the marks that were put on entities.
    marked: u64,
    /// Goes up with whatever may have changed in a record.
    version: u64,
    /// Goes up with whatever may have changed in a route.
    routed: u64,
    free: Vec<u32>,
    by_net: FxHashMap<NetId, u32>,
    /// Records of which this peer has authority over a part.
    own: usize,
    /// Host: how many entities of each guest's spawning live.
    spawned: FxHashMap<PeerId, usize>,
    /// Records whose entities are parked.
    parked: usize,
    /// All by name, for who asks for it.
    pub(crate) order: Order,
    /// By timeline: the entity that carries its resources, if somebody has asked for one.
    pub(crate) resources: [Option<Entity>; 3],
    /// Host: the entity that carries the resources that travel, once there is one.
    pub(crate) shared: Option<Entity>,
}

impl Entities {
    /// Registers an entity and marks it in the world.
    pub(crate) fn insert(&mut self, world: &mut World, net: NetId, entity: Entity, kind: usize) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slots = self.records.len() + 1;
            make_room(&mut self.records, slots);
            make_room(&mut self.routes, slots);
            self.records.push(None);
            self.records.len() as u32 - 1
        });
        let owners = [UNOWNED; crate::policy::OWNER_SLOTS];
        let route = Route { net, row: NO_ROW, mine: 0 };
        self.routes.resize(self.records.len(), route);
        self.routes[slot as usize] = route;
        self.routed += 1;
        self.version += 1;
        self.records[slot as usize] = Some(Record {
            net,
            entity,
            kind,
            owners,
            cut: 0,
            out_row: NO_ROW,
            in_rows: Few::default(),
            mine: 0,
            simulated: false,
            rewound: false,
            parked: false,
            born: Tick::ZERO,
            key: 0,
            shown: false,
            began: Tick::ZERO,
            spawner: PeerId::NOBODY,
            former: Few::default(),
        });
        self.by_net.insert(net, slot);
        self.order.note(net, Some(entity));
        // the caller has just spawned it
        let _ = world.insert_one(entity, Networked::new(net, slot));
        self.marked += 1;
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Record> {
        let record = self.records.get_mut(slot as usize)?.take()?;
        self.version += 1;
        self.routes[slot as usize].row = NO_ROW;
        self.routed += 1;
        self.by_net.remove(&record.net);
        self.order.note(record.net, None);
        self.parked -= usize::from(record.parked);
        self.own -= usize::from(record.mine != 0);
        self.free.push(slot);
        if let Some(count) = self.spawned.get_mut(&record.spawner) {
            *count -= 1;
            if *count == 0 {
                self.spawned.remove(&record.spawner);
            }
        }
        Some(record)
    }

    /// Host: notes that a guest has spawned a new entity.
    pub(crate) fn set_spawner(&mut self, slot: u32, guest: PeerId) {
        if let Some(record) = self.records.get_mut(slot as usize).and_then(Option::as_mut) {
            record.spawner = guest;
            self.version += 1;
            *self.spawned.entry(guest).or_default() += 1;
        }
    }

    /// Host: how many entities that a guest has spawned live, whoever owns them now.
    pub(crate) fn spawned_by(&self, guest: PeerId) -> usize {
        self.spawned.get(&guest).copied().unwrap_or(0)
    }

    /// Sets the components that this peer has authority over.
    pub(crate) fn set_mine(&mut self, slot: u32, mine: u64) {
        if let Some(record) = self.records.get_mut(slot as usize).and_then(Option::as_mut) {
            self.own = self.own + usize::from(mine != 0) - usize::from(record.mine != 0);
            record.mine = mine;
            self.version += 1;
            self.routes[slot as usize].mine = mine;
            self.routed += 1;
        }
    }

    /// How often an entity was marked: as long as that stays the same, the same ids in an archetype have the same marks.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// As long as this stays the same, so does every [`route`](Self::route).
    pub(crate) fn routed(&self) -> u64 {
        self.routed
    }

    /// As long as this stays the same, so does every record.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Sets the row of what this peer publishes that carries an entity.
    pub(crate) fn set_row(&mut self, slot: u32, row: u32) {
        if let Some(record) = self.records.get_mut(slot as usize).and_then(Option::as_mut) {
            record.out_row = row;
            self.version += 1;
            self.routes[slot as usize].row = row;
            self.routed += 1;
        }
    }

    /// Where the values go of an entity with this mark; `None` if the mark is not ours, or nothing of it is published here.
    #[inline]
    pub(crate) fn route(&self, mark: Networked) -> Option<&Route> {
        self.routes.get(mark.slot() as usize).filter(|route| route.net == mark.id() && route.row != NO_ROW)
    }

    /// How many there are of which this peer has authority over a part.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Record> {
        self.records.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Record> {
        self.version += 1;
        self.records.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn slot_of(&self, net: NetId) -> Option<u32> {
        self.by_net.get(&net).copied()
    }

    pub(crate) fn entity_of(&self, net: NetId) -> Option<Entity> {
        self.get(self.slot_of(net)?).filter(|r| !r.parked).map(|r| r.entity)
    }

    /// The handle that belongs to a name, be its entity parked or not; resources included.
    pub(crate) fn handle(&self, net: NetId) -> Option<Entity> {
        if let Some(line) = resources_of(net) {
            return self.resources[line as usize];
        }
        self.get(self.slot_of(net)?).map(|r| r.entity)
    }

    /// A name's entity has another handle now.
    pub(crate) fn set_entity(&mut self, net: NetId, entity: Entity) {
        if let Some(line) = resources_of(net) {
            self.resources[line as usize] = Some(entity);
        } else if let Some(record) = self.slot_of(net).and_then(|slot| self.get_mut(slot)) {
            record.entity = entity;
            self.order.note(net, Some(entity));
        }
    }

    /// An entity was despawned in a way that may be taken back, or it was taken back.
    pub(crate) fn set_parked(&mut self, net: NetId, parked: bool) {
        let Some(record) = self.slot_of(net).and_then(|slot| self.get_mut(slot)) else { return };
        if record.parked != parked {
            record.parked = parked;
            let entity = record.entity;
            self.parked = self.parked + usize::from(parked) - usize::from(!parked);
            self.order.note(net, (!parked).then_some(entity));
        }
    }

    /// An entity that the game had despawned itself is back under its name: finds its record, or makes a new one.
    pub(crate) fn adopt(&mut self, world: &mut World, net: NetId, entity: Entity, kind: usize) -> u32 {
        let Some(slot) = self.slot_of(net) else { return self.insert(world, net, entity, kind) };
        self.set_parked(net, false);
        self.set_entity(net, entity);
        // the caller has just spawned it
        let _ = world.insert_one(entity, Networked::new(net, slot));
        self.marked += 1;
        // the mark of its timeline went with it, and is put on anew by who knows its policy
        if let Some(record) = self.get_mut(slot) {
            record.simulated = false;
        }
        slot
    }

    /// The record behind a local handle.
    pub(crate) fn slot_at(&self, world: &World, entity: Entity) -> Option<u32> {
        let networked = *world.get::<&Networked>(entity).ok()?;
        // a mark of another session has a name that is not ours
        (self.get(networked.slot())?.net == networked.id()).then_some(networked.slot())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Record)> {
        self.records.iter().enumerate().filter_map(|(i, r)| r.as_ref().map(|r| (i as u32, r)))
    }

    /// How many slots there are, free ones included.
    pub(crate) fn slots(&self) -> u32 {
        self.records.len() as u32
    }

    /// How many there are that are not parked.
    pub(crate) fn len(&self) -> usize {
        self.by_net.len() - self.parked
    }
}

/// Looks names up in the world itself: what the capture of references needs.
pub(crate) fn name_in(world: &World) -> impl Fn(Entity) -> Option<NetId> + '_ {
    |entity| world.get::<&Networked>(entity).ok().map(|n| n.id())
}
