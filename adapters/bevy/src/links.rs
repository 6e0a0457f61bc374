//! Which entity of Bevy stands for which of the core.

use bevy_ecs::prelude::*;
use std::collections::HashMap;
use tidelock::NetId;

/// Marks an entity of Bevy that is networked.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    pub(crate) core: hecs::Entity,
    pub(crate) net: NetId,
}

impl Linked {
    /// The entity in the core's world, for questions to the [`Peer`](tidelock::Peer).
    #[must_use]
    pub fn core(&self) -> hecs::Entity {
        self.core
    }

    /// The name that it has on all peers.
    #[must_use]
    pub fn net(&self) -> NetId {
        self.net
    }
}

/// Marks what this peer simulates in the step that is run, or would in the next: what it has authority over or predicts; in a step
/// that is run again, what went back.
#[derive(Component, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Simulated;

#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) core: hecs::Entity,
    pub(crate) bevy: Entity,
    /// The pass in which it was seen last.
    pub(crate) seen: u64,
    pub(crate) simulated: bool,
}

/// The pairs of entities, both ways.
#[derive(Default)]
pub struct Links {
    /// By `hecs::Entity::id`.
    pub(crate) list: Vec<Option<Link>>,
    by_bevy: HashMap<Entity, hecs::Entity, bevy_ecs::entity::EntityHash>,
}

impl Links {
    /// The entity of Bevy that stands for one of the core's.
    #[must_use]
    pub fn bevy(&self, core: hecs::Entity) -> Option<Entity> {
        let link = self.list.get(core.id() as usize)?.as_ref()?;
        (link.core == core).then_some(link.bevy)
    }

    /// The core's entity behind one of Bevy's.
    #[must_use]
    pub fn core(&self, bevy: Entity) -> Option<hecs::Entity> {
        self.by_bevy.get(&bevy).copied()
    }

    pub(crate) fn insert(&mut self, core: hecs::Entity, bevy: Entity, pass: u64) {
        let at = core.id() as usize;
        if at >= self.list.len() {
            self.list.resize(at + 1, None);
        }
        if let Some(old) = self.list[at].replace(Link { core, bevy, seen: pass, simulated: false }) {
            self.by_bevy.remove(&old.bevy);
        }
        self.by_bevy.insert(bevy, core);
    }

    pub(crate) fn remove(&mut self, core: hecs::Entity) -> Option<Entity> {
        let bevy = self.bevy(core)?;
        self.list[core.id() as usize] = None;
        self.by_bevy.remove(&bevy);
        Some(bevy)
    }
}
