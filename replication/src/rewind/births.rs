//! Spawns and despawns in steps, which a step that is run again makes again: under the same name, and with the same handle.

use crate::error::UsageError;
use crate::netid::NetId;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::rewind::Rewound;
use hecs::{Component, DynamicBundle, Entity, World};

/// Spawns of one peer in one step of the session's timeline.
const SPAWNS: u64 = 1 << 12;
/// Spawns in one step of another timeline, which all peers make alike.
const SPAWNS_OF_ALL: u64 = 1 << 16;

/// How many were spawned in this step, by seat.
#[derive(Default)]
pub(crate) struct Births(Vec<(PeerId, u64)>);

impl Births {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The number of the next one of a seat.
    fn next(&mut self, seat: PeerId, most: u64) -> Result<u64, UsageError> {
        let at = self.0.iter().position(|b| b.0 == seat).unwrap_or_else(|| {
            self.0.push((seat, 0));
            self.0.len() - 1
        });
        let count = &mut self.0[at].1;
        if *count >= most {
            return Err(UsageError::NoNames);
        }
        *count += 1;
        Ok(*count - 1)
    }
}

impl Peer {
    /// The name of the next entity that is spawned for a seat in this step. Bits 62 and 63 keep these names apart from leased ones,
    /// of which there are never that many.
    fn birth_name(&mut self, seat: PeerId) -> Result<NetId, UsageError> {
        let (line, tick) = (self.time.line, self.time.ran.0);
        if line == Timeline::Session {
            let ordinal = self.births.next(seat, SPAWNS)?;
            return Ok(NetId(1 << 62 | u64::from(seat.0) << 52 | (tick & ((1 << 40) - 1)) << 12 | ordinal));
        }
        let ordinal = self.births.next(PeerId::NOBODY, SPAWNS_OF_ALL)?;
        Ok(NetId(1 << 63 | (line as u64) << 60 | (tick & ((1 << 44) - 1)) << 16 | ordinal))
    }

    /// May this step spawn entities of that kind for that seat?
    fn may_bear(&self, kind: usize, seat: PeerId) -> Result<(), UsageError> {
        let entry = &self.schema.kinds[kind];
        let line = entry.policy.timeline();
        if line != self.time.line {
            return Err(UsageError::NotAllowed("spawn it in a step of another timeline than its kind's"));
        }
        if line != Timeline::Session {
            let owned = seat != self.local;
            return if owned {
                Err(UsageError::NotAllowed("spawn it for a peer: what every peer computes has no owner"))
            } else {
                Ok(())
            };
        }
        if seat != self.local && !(self.is_host() && self.roster.contains_key(&seat)) {
            return Err(UsageError::NotAllowed("spawn it for another peer"));
        }
        if entry.is_predicted() && !self.is_host() { Ok(()) } else { self.may_spawn(kind) }
    }

    /// Spawns in a step. Where the kind is rewound or predicted, under a name that a re-run, or the host, gives again: who is
    /// parked under it comes back, if it is of the same kind and key.
    pub(crate) fn spawn_in_step<K: Component>(
        &mut self,
        world: &mut World,
        seat: PeerId,
        key: u64,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        let kind_index = self.schema.kind_of::<K>().ok_or(UsageError::NotInSchema(std::any::type_name::<K>()))?;
        self.may_bear(kind_index, seat)?;
        if self.preview.is_on() {
            return Ok(self.spawn_in_preview(world, kind, components));
        }
        let (keeper, entry) = (self.keeper(kind_index), &self.schema.kinds[kind_index]);
        if keeper.is_none() && !entry.is_computed() && !entry.is_predicted() {
            if self.rerunning {
                return Err(UsageError::NotAllowed("spawn it in a re-run: its kind is not rewound, so it is here already"));
            }
            return self.spawn(world, kind, components);
        }
        let net = self.birth_name(seat)?;
        let known = self.entities.slot_of(net).and_then(|slot| Some((slot, self.entities.get(slot)?)));
        if let Some((slot, record)) = known {
            if record.parked && record.kind == kind_index && record.key == key {
                return self.respawn(world, keeper, slot, kind, components);
            }
            if !record.parked && world.get::<&Rewound>(record.entity).is_ok_and(|mark| mark.net == net) {
                return Err(UsageError::NoNames); // somebody lives under it already
            }
            // another one of a wrong branch, or one that the game despawned without the step
            if let Some(saves) = keeper.and_then(|line| self.saves[line].as_mut()) {
                saves.limbo.bury(world, net);
            }
            self.end_entity(slot);
        }
        let entity = world.spawn(components);
        // it was spawned on the line above
        let _ = match keeper {
            Some(_) => world.insert(entity, (kind, Rewound { net })),
            None => world.insert_one(entity, kind),
        };
        self.register_own(world, entity, kind_index, net, seat);
        if let Some(record) = self.entities.slot_of(net).and_then(|slot| self.entities.get_mut(slot)) {
            record.key = key;
        }
        Ok(entity)
    }

    fn respawn<K: Component>(
        &mut self,
        world: &mut World,
        keeper: Option<Timeline>,
        slot: u32,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        let net = self.entities.get(slot).map(|r| r.net).ok_or(UsageError::NoNames)?;
        let Some(saves) = keeper.and_then(|line| self.saves[line].as_mut()) else { return Err(UsageError::NoNames) };
        let entity = saves.limbo.revive(world, net).ok_or(UsageError::NoNames)?;
        saves.limbo.dress(world, entity, &self.schema.kept, components);
        // it was revived a moment ago
        let _ = world.insert_one(entity, kind);
        self.entities.set_entity(net, entity);
        self.entities.set_parked(net, false);
        if let Some(record) = self.entities.get_mut(slot) {
            record.born = self.time.ran;
        }
        self.mark_simulated(world, slot);
        self.dirty = true;
        Ok(entity)
    }

    /// Despawns in a step: for good once that is certain.
    pub(crate) fn despawn_in_step(&mut self, world: &mut World, entity: Entity) -> Result<(), UsageError> {
        if self.preview.is_on() {
            return Ok(()); // only to be drawn
        }
        let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        let record = self.entities.get(slot).ok_or(UsageError::NotNetworked)?;
        let (net, kind, rewound, simulated) = (record.net, record.kind, record.rewound, record.simulated);
        let entry = &self.schema.kinds[kind];
        let line = entry.policy.timeline();
        match (line, entry.is_predicted() && !self.is_host()) {
            (Timeline::Session, true) if simulated => {}
            (Timeline::Session, _) => drop(self.may_despawn(world, entity)?),
            _ if line == self.time.line => {}
            _ => return Err(UsageError::NotAllowed("despawn it in a step of another timeline than its kind's")),
        }
        let keeper = self.keeper(kind).filter(|_| rewound);
        let Some(saves) = keeper.and_then(|line| self.saves[line].as_mut()).filter(|saves| !saves.on_request) else {
            return self.despawn_now(world, entity, slot);
        };
        let parked = saves.limbo.park(world, entity, net, self.time.ran);
        if parked {
            self.entities.set_parked(net, true);
            self.dirty = true;
        }
        parked.then_some(()).ok_or(UsageError::NotNetworked)
    }
}
