//! Steps: ticks that the game is asked to run, in order.

use crate::error::UsageError;
use crate::netid::NetId;
use crate::order::Ordered;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::{Gate, GateFacts, Timeline};
use crate::rng::Rng;
use crate::visit::{Visit, Visited};
use hecs::{Component, DynamicBundle, Entity, Query, World};
use std::time::Duration;
use tidelock_netcore::tick::Tick;

/// A tick to run. The game simulates what [`Step::query`] gives, and spawns and despawns through the step.
pub struct Step<'a> {
    peer: &'a mut Peer,
    tick: Tick,
}

impl Peer {
    /// The next tick that is due, if any: first those that are to be run again. Ask until it gives `None`, and run each; the order
    /// is theirs.
    pub fn next_step(&mut self, world: &mut World) -> Option<Step<'_>> {
        self.end_step(world);
        if !self.is_in_session() {
            self.end_preview(world);
            return None;
        }
        if self.preview.is_on() {
            return self.preview_step(world);
        }
        self.keep_predictions(world);
        let next = self.next_tick();
        self.watch_lines(world, next.map(|(line, ..)| line));
        let Some((line, tick, rerun)) = next else { return self.preview_step(world) };
        (self.time.line, self.time.ran, self.rerunning) = (line, tick, rerun);
        self.time.open = true;
        self.dirty = true;
        if line == Timeline::Session {
            self.ask_gates(world);
        }
        self.span = crate::trace::step(self.local, line, tick, rerun);
        let _step = self.span.clone().entered();
        self.begin_step(world);
        Some(Step { peer: self, tick })
    }

    fn preview_step(&mut self, world: &mut World) -> Option<Step<'_>> {
        let tick = self.next_preview(world)?;
        Some(Step { peer: self, tick })
    }

    /// The step that is run, once more: for programs that cannot hold on to what [`next_step`](Self::next_step) gave, because it
    /// borrows the peer. `None` before the first step of a frame and after the last.
    pub fn step(&mut self) -> Option<Step<'_>> {
        let tick = self.time.ran;
        self.time.open.then_some(Step { peer: self, tick })
    }

    /// Whose turn it is, which tick, and whether it was run before.
    fn next_tick(&mut self) -> Option<(Timeline, Tick, bool)> {
        if let Some(next) = self.time.with.pop_front() {
            return Some(next);
        }
        let all = self.saves[Timeline::Session].as_ref().is_some_and(|saves| saves.is_of_all());
        if !all && let Some(next) = self.next_computed() {
            return Some(next);
        }
        if let Some(tick) = self.saves[Timeline::Session].as_mut().and_then(|saves| saves.replay.pop_front()) {
            if all {
                self.take_along(tick, true);
            }
            return Some((Timeline::Session, tick, true));
        }
        if self.time.step >= self.time.due {
            return None;
        }
        self.time.step = self.time.step.plus(1);
        let label = self.fold_inputs();
        self.time.tick = self.time.tick.max(label);
        if self.is_host() {
            self.ask_digest();
            self.seal_frame(self.time.step);
        }
        if all {
            self.take_along(self.time.step, false);
        }
        Some((Timeline::Session, self.time.step, false))
    }

    /// Where everything is kept in one save, the steps of the other timelines follow those of the session, and are run again with them.
    fn take_along(&mut self, tick: Tick, rerun: bool) {
        if !self.schema.has_computed() {
            return;
        }
        for line in [Timeline::Rollback, Timeline::Lockstep] {
            if self.schema.kinds_of(line) != 0 {
                self.time.with.push_back((line, tick, rerun));
            }
        }
    }

    /// Asks each kind's policy whether its entities run this tick.
    fn ask_gates(&mut self, world: &mut World) {
        let heard = if self.is_host() { self.time.ran } else { self.links.first().map_or(Tick::ZERO, |l| l.incoming.complete()) };
        let facts =
            GateFacts { tick: self.time.ran, local: self.local, host: PeerId::HOST, peers: self.roster.len() as u32, heard };
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

    /// The step's span, for what the game tells `tracing` in it, and for profilers: `let _inside = step.span().entered();`
    #[must_use]
    pub fn span(&self) -> tracing::Span {
        self.peer.span.clone()
    }

    /// Whose step it is. The same step functions serve all timelines: [`query`](Self::query) gives each step its own entities.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.peer.time.line
    }

    /// The entities that this peer simulates in this step: those of its timeline that their kind's policy gives it authority over
    /// or lets it predict, of kinds whose time runs; in a step that is run again, those that went back. Others are to be read
    /// with plain queries, and not written; components with an authority of their own are reached through
    /// [`with_authority`](Self::with_authority).
    pub fn query<'w, Q: Query>(&self, world: &'w World) -> Visited<'w, Q> {
        Visited::new(world, self.visit())
    }

    fn visit(&self) -> Visit {
        if self.preview() { Visit::Preview } else { Visit::of(self.peer.time.line, self.peer.rerunning) }
    }

    /// The same by name, an order that all peers share, where it matters: for sums of floats, or who comes first. What a step
    /// spawns is visited from the next one on. The plain [`query`](Self::query) is faster and goes where each entity is on its own.
    ///
    /// ```
    /// # use tidelock::{Config, Peer, Replicate, Schema, policy::Host};
    /// # #[derive(Replicate)] struct Gold(u16);
    /// # #[derive(Clone, Copy, Default)] struct Purse;
    /// # let schema = Schema::builder("game").component::<Gold>("gold", |c| c).kind::<Purse>("purse", Host::default()).build()?;
    /// # let (mut world, mut peer) = (hecs::World::new(), Peer::alone(schema, Config::default())?);
    /// # for gold in [1, 5, 9] { peer.spawn(&mut world, Purse, (Gold(gold),))?; }
    /// # peer.receive(std::time::Duration::ZERO, &mut world)?;
    /// # peer.receive(std::time::Duration::from_millis(17), &mut world)?;
    /// # let step = peer.next_step(&mut world).unwrap();
    /// let mut left = 10; // coins to hand out, first come first served
    /// let mut purses = step.ordered::<&mut Gold>(&mut world);
    /// while let Some((_name, gold)) = purses.next() {
    ///     let given = (8 - gold.0.min(8)).min(left);
    ///     gold.0 += given;
    ///     left -= given;
    /// }
    /// # assert_eq!(left, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ordered<'w, Q: Query>(&'w self, world: &'w mut World) -> Ordered<'w, Q> {
        if self.preview() {
            return Ordered::new(self.peer.preview.list(), world, self.visit());
        }
        let records = self.peer.entities.iter().map(|(_, record)| record).filter(|r| !r.parked);
        let all = records.map(|r| (r.net, r.entity, r.born == self.tick));
        Ordered::new(self.peer.entities.order.get(all), world, self.visit())
    }

    /// Random numbers that depend on the session, the tick, `net` and `purpose` alone: the same on every peer and whenever the
    /// step is run again, whoever asked before. Give every use a purpose of its own. `NetId::default()` stands for no entity.
    #[must_use]
    pub fn rng(&self, net: NetId, purpose: u64) -> Rng {
        Rng::at(self.peer.session(), self.tick, net, purpose)
    }

    /// Was the tick run before, with other inputs or before something was known? Then what is heard and seen of it has been, too.
    #[must_use]
    pub fn rerun(&self) -> bool {
        self.peer.rerunning
    }

    /// Who owns an entity: whose input steers it.
    #[must_use]
    pub fn owner(&self, world: &World, entity: Entity) -> Option<PeerId> {
        self.peer.owner(world, entity, 0)
    }

    /// May an effect be heard and seen? `true` the first time that it is asked with that key, in whatever tick; `false` when the
    /// same happens again because the tick is run again. One that is not asked for again is told as
    /// [`News::EffectUndone`](crate::News::EffectUndone). Make the key of what tells two effects apart: who fired, and its how
    /// manieth shot it was.
    pub fn once(&mut self, key: u64) -> bool {
        let (tick, line) = (self.tick, self.timeline());
        !self.preview() && self.peer.predictions.effects[line as usize].happens(key, tick)
    }

    /// Is the entity networked, and alive? `World::contains` does not tell: where despawns can be taken back, a handle stays in
    /// the world until they are certain.
    #[must_use]
    pub fn alive(&self, world: &World, entity: Entity) -> bool {
        self.peer.entities.slot_at(world, entity).is_some()
    }

    /// State that belongs to no entity. See [`SchemaBuilder::resource`](crate::SchemaBuilder::resource) and, for what travels,
    /// [`SchemaBuilder::shared_resource`](crate::SchemaBuilder::shared_resource).
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`]; [`UsageError::NotAllowed`] for one of another timeline than the step's: written here, it would not
    /// be the same on all peers any more. Of what travels also the errors of [`Peer::resource_mut`].
    pub fn resource<'w, T: Component>(&mut self, world: &'w mut World) -> Result<&'w mut T, UsageError> {
        if self.peer.is_shared::<T>() {
            if self.timeline() != Timeline::Session {
                return Err(UsageError::NotAllowed("reach a resource of another timeline than the step's"));
            }
            return self.peer.resource_mut(world);
        }
        let line = self.peer.schema.resource_of::<T>().map(|entry| entry.line);
        if line.is_some_and(|line| line != self.timeline()) {
            return Err(UsageError::NotAllowed("reach a resource of another timeline than the step's"));
        }
        self.peer.step_resource(world)
    }

    /// The entities in which this peer has authority over component `C`, whoever simulates the rest of them, of kinds whose time
    /// runs.
    pub fn with_authority<C: Component>(&self) -> impl Iterator<Item = Entity> + '_ {
        let c = self.peer.schema.component_of::<C>();
        let (running, rerunning) = (&self.peer.running, self.peer.rerunning);
        let here = self.peer.time.line == Timeline::Session;
        let records = self.peer.entities.iter().map(|(_, record)| record);
        let records = records.filter(move |r| here && !r.parked && (r.rewound || !rerunning));
        records.filter(move |r| running[r.kind] && c.is_some_and(|c| r.mine >> c & 1 != 0)).map(|r| r.entity)
    }

    /// Does the time of kind `K` run in this step?
    #[must_use]
    pub fn runs<K: Component>(&self) -> bool {
        self.peer.schema.kind_of::<K>().is_some_and(|kind| self.peer.running[kind])
    }

    /// See [`Peer::spawn`]. Where the kind is rewound the spawn can be taken back: a re-run that spawns as many before it gives
    /// it the same name, and the entity with its handle and its local components. What is
    /// [predicted](crate::policy::Host::predicted) is spawned with [`spawn_for`](Self::spawn_for), or by the host alone.
    ///
    /// # Errors
    /// Those of [`Peer::spawn`]; [`UsageError::NotAllowed`] in a re-run for a kind that is not rewound, at a guest for a predicted one;
    /// [`UsageError::NoNames`] after 4096 spawns in one step.
    pub fn spawn<K: Component>(
        &mut self,
        world: &mut World,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        self.spawn_as(world, 0, kind, components)
    }

    /// The same with a key of the game's, for example who fired: a re-run gives an entity back only to a spawn with the same key,
    /// so that one player's shot never becomes another's.
    ///
    /// # Errors
    /// Those of [`spawn`](Self::spawn).
    pub fn spawn_as<K: Component>(
        &mut self,
        world: &mut World,
        key: u64,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        let local = self.peer.local;
        let kinds = &self.peer.schema.kinds;
        if !self.peer.is_host() && self.peer.schema.kind_of::<K>().is_some_and(|kind| kinds[kind].is_predicted()) {
            return Err(UsageError::NotAllowed("spawn what is predicted without its owner: use `spawn_for`, on the host alike"));
        }
        self.peer.spawn_in_step(world, local, key, kind, components)
    }

    /// The same for a kind that is [predicted](crate::policy::Host::predicted), as the owner's: what a player's input brings about.
    /// Run it on the owner and on the host alike. The owner has its copy at once, under the name that the host's will have if it
    /// spawns as many for that owner before it in this tick; if the host does not, the copy goes again when that is known, with a
    /// [correction](Peer::corrections) for [`Cause::Refused`](crate::Cause::Refused).
    ///
    /// # Errors
    /// Those of [`spawn`](Self::spawn); [`UsageError::NotAllowed`] at a guest for another peer than itself, for a peer that is not in
    /// the session, and on timelines that every peer computes, where nothing has an owner.
    pub fn spawn_for<K: Component>(
        &mut self,
        world: &mut World,
        owner: PeerId,
        key: u64,
        kind: K,
        components: impl DynamicBundle,
    ) -> Result<Entity, UsageError> {
        self.peer.spawn_in_step(world, owner, key, kind, components)
    }

    /// See [`Peer::despawn`]. Where the entity's kind is rewound it is gone at once from all queries, and for good when that is
    /// certain.
    ///
    /// # Errors
    /// Those of [`Peer::despawn`].
    pub fn despawn(&mut self, world: &mut World, entity: Entity) -> Result<(), UsageError> {
        self.peer.despawn_in_step(world, entity)
    }

    pub(crate) fn at_peer(&self) -> &Peer {
        self.peer
    }

    /// The peer that this step belongs to.
    pub fn peer(&mut self) -> &mut Peer {
        self.peer
    }
}
