//! Steps: ticks that the game is asked to run, in order.

use crate::entities::Simulated;
use crate::error::UsageError;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::{Gate, GateFacts};
use hecs::{Component, DynamicBundle, Entity, Query, QueryBorrow, With, World};
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// A tick to run. The game simulates what [`Step::query`] gives, and spawns and despawns through the step.
pub struct Step<'a> {
    peer: &'a mut Peer,
    tick: Tick,
}

impl Peer {
    /// The next tick that is due, if any. Ask until it gives `None`, and run each; the order is theirs.
    pub fn next_step(&mut self, world: &mut World) -> Option<Step<'_>> {
        if !self.is_in_session() || self.time.step >= self.time.due {
            return None;
        }
        self.time.step = self.time.step.plus(1);
        let label = self.fold_inputs();
        self.time.tick = self.time.tick.max(label);
        self.dirty = true;
        self.ask_gates(world);
        let tick = self.time.step;
        Some(Step { peer: self, tick })
    }

    /// Asks each kind's policy whether its entities run this tick.
    fn ask_gates(&mut self, world: &mut World) {
        let heard =
            if self.is_host() { self.time.step } else { self.links.first().map_or(Tick::ZERO, |l| l.incoming.complete()) };
        let facts =
            GateFacts { tick: self.time.step, local: self.local, host: PeerId::HOST, peers: self.roster.len() as u32, heard };
        for kind in 0..self.schema.kinds.len() {
            let runs = self.schema.kinds[kind].policy.gate(facts) == Gate::Run;
            if runs == self.running[kind] {
                continue;
            }
            self.running[kind] = runs;
            for slot in 0..self.entities.slots() {
                if self.entities.get(slot).is_some_and(|r| r.kind == kind) {
                    self.mark_simulated(world, slot);
                }
            }
        }
    }
}

impl Step<'_> {
    /// The tick that is run. At a guest whose schema has an input it is ahead of the session: see [`input`](crate::input).
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// The length of a tick.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.peer.tick_length()
    }

    /// The length of a tick in seconds.
    #[must_use]
    pub fn seconds(&self) -> f32 {
        1.0 / self.peer.config.tick_rate as f32
    }

    /// Who this peer is.
    #[must_use]
    pub fn local(&self) -> PeerId {
        self.peer.local
    }

    /// The entities that this peer simulates in this step: those that their kind's policy gives it authority over, of kinds whose
    /// time runs. Others are to be read with plain queries, and not written; components with an authority of their own are
    /// reached through [`with_authority`](Self::with_authority).
    pub fn query<'w, Q: Query>(&self, world: &'w World) -> QueryBorrow<'w, With<Q, &'static Simulated>> {
        world.query::<With<Q, &'static Simulated>>()
    }

    /// The entities in which this peer has authority over component `C`, whoever simulates the rest of them, of kinds whose time
    /// runs.
    pub fn with_authority<C: Component>(&self) -> impl Iterator<Item = Entity> + '_ {
        let c = self.peer.schema.component_of::<C>();
        let running = &self.peer.running;
        let records = self.peer.entities.iter().map(|(_, record)| record);
        records.filter(move |r| running[r.kind] && c.is_some_and(|c| r.mine >> c & 1 != 0)).map(|r| r.entity)
    }

    /// Does the time of kind `K` run in this step?
    #[must_use]
    pub fn runs<K: Component>(&self) -> bool {
        self.peer.schema.kind_of::<K>().is_some_and(|kind| self.peer.running[kind])
    }

    /// See [`Peer::spawn`].
    ///
    /// # Errors
    /// Those of [`Peer::spawn`].
    pub fn spawn<K: Component>(
        &mut self,
        world: &mut World,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        self.peer.spawn(world, kind, components)
    }

    /// See [`Peer::despawn`].
    ///
    /// # Errors
    /// Those of [`Peer::despawn`].
    pub fn despawn(&mut self, world: &mut World, entity: Entity) -> Result<(), UsageError> {
        self.peer.despawn(world, entity)
    }

    pub(crate) fn at_peer(&self) -> &Peer {
        self.peer
    }

    /// The peer that this step belongs to.
    pub fn peer(&mut self) -> &mut Peer {
        self.peer
    }
}
