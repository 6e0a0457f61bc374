//! The peer in Bevy's loop: which schedule runs when, and when what is mirrored.

use crate::links::{Linked, Links, Simulated};
use crate::mirror::{Column, Draw, Kind, Mirror};
use crate::spawn::Spawn;
use bevy_app::{App, Last, PostUpdate, PreUpdate};
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::ScheduleLabel;
use bevy_ecs::system::SystemState;
use bevy_time::{Real, Time};
use bevy_transform::TransformSystems;
use hecs::EntityBuilder;
use std::time::Duration;
use tidelock::netcore::tick::Tick;
use tidelock::policy::Timeline;
use tidelock::{Networked, News, Peer, PeerId, Replicate, UsageError};

/// The schedule of a tick: runs once for each that is due, and once more for each that is run again.
#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct NetUpdate;

/// The tick that [`NetUpdate`] runs.
#[derive(Resource, Clone, Copy, Debug, PartialEq)]
pub struct CurrentStep {
    /// Its number.
    pub tick: Tick,
    /// Whose step it is.
    pub timeline: Timeline,
    /// Was it run before? Then what is heard and seen of it has been, too.
    pub rerun: bool,
    /// Its length.
    pub length: Duration,
}

/// Run condition: the tick is run for the first time.
#[must_use]
pub fn first_time(step: Res<CurrentStep>) -> bool {
    !step.rerun
}

/// What happened, with Bevy's entity where it is of one.
#[derive(Message, Clone, Debug)]
pub struct Net {
    /// What.
    pub news: News,
    /// Of whom: the twin, or what it was.
    pub entity: Option<Entity>,
}

/// The peer, its world and what it has in common with Bevy's. A `NonSend` resource.
pub struct Session(Box<Inner>);

struct Inner {
    peer: Peer,
    core: hecs::World,
    links: Links,
    columns: Vec<Box<dyn Column>>,
    kinds: Vec<Box<dyn Kind>>,
    draws: Vec<Box<dyn Draw>>,
    pass: u64,
    gone: SystemState<RemovedComponents<'static, 'static, Linked>>,
    spawns: SystemState<Query<'static, 'static, (Entity, &'static Spawn), Without<Linked>>>,
    failures: Vec<UsageError>,
}

/// Puts a peer into an app, which has a `Time<Real>` (from `TimePlugin`). `peer` is made from [`Mirror::schema`].
pub fn install(app: &mut App, mirror: Mirror, peer: Peer) {
    let Mirror { columns, kinds, draws, .. } = mirror;
    app.init_schedule(NetUpdate).add_message::<Net>();
    let world = app.world_mut();
    let (gone, spawns) = (SystemState::new(world), SystemState::new(world));
    let (core, links) = (hecs::World::new(), Links::default());
    let inner = Inner { peer, core, links, columns, kinds, draws, pass: 0, gone, spawns, failures: Vec::new() };
    world.insert_non_send(Session(Box::new(inner)));
    app.add_systems(PreUpdate, drive).add_systems(Last, finish);
    app.add_systems(PostUpdate, draw.before(TransformSystems::Propagate));
}

impl Session {
    /// The peer.
    pub fn peer(&mut self) -> &mut Peer {
        &mut self.0.peer
    }

    /// The peer and the core's world, for what needs both.
    pub fn parts(&mut self) -> (&mut Peer, &mut hecs::World) {
        (&mut self.0.peer, &mut self.0.core)
    }

    /// Which entity stands for which.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.0.links
    }

    /// Who owns an entity.
    #[must_use]
    pub fn owner(&self, entity: Entity) -> Option<PeerId> {
        self.0.peer.owner(&self.0.core, self.0.links.core(entity)?, 0)
    }

    /// Hands an entity over: see [`Peer::grant`].
    ///
    /// # Errors
    /// Those of [`Peer::grant`].
    pub fn grant(&mut self, entity: Entity, to: PeerId) -> Result<(), UsageError> {
        let core = self.0.links.core(entity).ok_or(UsageError::NotNetworked)?;
        self.0.peer.grant(&mut self.0.core, core, 0, to)
    }

    /// What the owner of an entity does in the step that is run; [`Default`] if nobody is known to do anything.
    #[must_use]
    pub fn input<I: Replicate + Default>(&mut self, entity: Entity) -> I {
        let owner = self.owner(entity);
        let input = self.0.peer.step().zip(owner).and_then(|(step, owner)| step.input::<I>(owner).ok());
        input.map(|input| input.value).unwrap_or_default()
    }

    /// What could not be done since this was asked last: spawns and despawns that are not this peer's to do, and what
    /// [`Peer::receive`] and [`Peer::send`] say.
    pub fn take_failures(&mut self) -> Vec<UsageError> {
        std::mem::take(&mut self.0.failures)
    }
}

/// Takes the session out for a while; a system that asks for it meanwhile does not find it.
fn with<R>(world: &mut World, call: impl FnOnce(&mut Inner, &mut World) -> R) -> Option<R> {
    let mut session = world.remove_non_send::<Session>()?;
    let result = call(&mut session.0, world);
    world.insert_non_send(session);
    Some(result)
}

fn now(world: &World) -> Duration {
    world.get_resource::<Time<Real>>().map(Time::elapsed).unwrap_or_default()
}

/// Takes in what has come, and runs the ticks that are due.
fn drive(world: &mut World) {
    let now = now(world);
    let told = with(world, |s, world| {
        s.to_core(world);
        let received = s.peer.receive(now, &mut s.core);
        s.failures.extend(received.err());
        let news = std::iter::from_fn(|| s.peer.poll_news());
        news.map(|news| (subject(&news).and_then(|core| s.links.bevy(core)), news)).collect::<Vec<_>>()
    });
    let time = world.get_resource::<Time>().copied();
    let mut ticks = time.unwrap_or_default();
    while let Some(Some(step)) = with(world, Inner::begin_step) {
        if time.is_some() {
            ticks.advance_by(step.length);
            world.insert_resource(ticks);
        }
        world.insert_resource(step);
        world.run_schedule(NetUpdate);
        with(world, Inner::to_core);
    }
    if let Some(time) = time {
        world.insert_resource(time);
    }
    with(world, |s, world| {
        s.to_bevy(world);
        for (entity, news) in told.into_iter().flatten() {
            let entity = entity.or_else(|| subject(&news).and_then(|core| s.links.bevy(core)));
            world.write_message(Net { news, entity });
        }
    });
}

/// Of whom a piece of news is.
fn subject(news: &News) -> Option<hecs::Entity> {
    match news {
        News::Spawned { entity, .. }
        | News::Despawned { entity, .. }
        | News::Hidden { entity, .. }
        | News::Added { entity, .. }
        | News::Changed { entity, .. }
        | News::Removed { entity, .. }
        | News::Owned { entity, .. }
        | News::OwnershipRequested { entity, .. }
        | News::OwnershipOffered { entity, .. }
        | News::OwnershipRefused { entity, .. }
        | News::Unsendable { entity, .. } => Some(*entity),
        _ => None,
    }
}

/// Sends what has changed.
fn finish(world: &mut World) {
    let now = now(world);
    with(world, |s, world| {
        s.to_core(world);
        let sent = s.peer.send(now, &mut s.core);
        s.failures.extend(sent.err());
    });
}

/// Sets what is drawn.
fn draw(world: &mut World) {
    let now = now(world);
    with(world, |s, world| s.draws.iter().for_each(|d| d.draw(&s.peer, &s.core, &s.links, now, world)));
}

impl Inner {
    /// The next tick that is due, with Bevy's world as it begins.
    fn begin_step(&mut self, bevy: &mut World) -> Option<CurrentStep> {
        let step = self.peer.next_step(&mut self.core)?;
        let (tick, timeline, rerun) = (step.tick(), step.timeline(), step.rerun());
        let current = CurrentStep { tick, timeline, rerun, length: step.length() };
        self.to_bevy(bevy);
        self.mark(bevy);
        Some(current)
    }

    /// Puts [`Simulated`] on the twins of what the step is for, and takes it from others.
    fn mark(&mut self, bevy: &mut World) {
        let Some(step) = self.peer.step() else { return };
        self.pass += 1;
        let (list, pass) = (&mut self.links.list, self.pass);
        for core in step.query::<hecs::Entity>(&self.core).iter() {
            let link = list.get_mut(core.id() as usize).and_then(Option::as_mut).filter(|link| link.core == core);
            let Some(link) = link else { continue };
            link.seen = pass;
            if !link.simulated && bevy.get_entity_mut(link.bevy).is_ok_and(|mut twin| !twin.insert(Simulated).is_despawned()) {
                link.simulated = true;
            }
        }
        for link in list.iter_mut().flatten().filter(|link| link.simulated && link.seen != pass) {
            link.simulated = false;
            if let Ok(mut twin) = bevy.get_entity_mut(link.bevy) {
                twin.remove::<Simulated>();
            }
        }
    }

    /// Takes over what the core has changed: who came and went, then values.
    fn to_bevy(&mut self, bevy: &mut World) {
        self.pass += 1;
        let (pass, links) = (self.pass, &mut self.links);
        let mut fresh = Vec::new();
        for (core, networked) in self.core.query::<(hecs::Entity, &Networked)>().iter() {
            match links.list.get_mut(core.id() as usize) {
                Some(Some(link)) if link.core == core => link.seen = pass,
                _ => fresh.push((core, networked.id())),
            }
        }
        let gone: Vec<_> = links.list.iter().flatten().filter(|link| link.seen != pass).map(|link| link.core).collect();
        for core in gone {
            if let Some(mut twin) = links.remove(core).and_then(|twin| bevy.get_entity_mut(twin).ok()) {
                // children are entities of their own: they go when the core says so
                twin.detach_all_children();
                twin.despawn();
            }
        }
        for (core, net) in fresh {
            let mut twin = bevy.spawn(Linked { core, net });
            self.kinds.iter().for_each(|kind| kind.mark(&self.core, core, &mut twin));
            links.insert(core, twin.id(), pass);
        }
        for column in &mut self.columns {
            column.to_bevy(pass, &self.core, links, bevy);
        }
    }

    /// Takes over what Bevy's world has changed: who went and came, then values.
    fn to_core(&mut self, bevy: &mut World) {
        let gone: Vec<_> = self.gone.get_mut(bevy).map(|mut gone| gone.read().collect()).unwrap_or_default();
        for twin in gone {
            let Some(core) = self.links.core(twin) else { continue };
            self.links.remove(core);
            let despawned = match self.peer.step() {
                Some(mut step) => step.despawn(&mut self.core, core),
                None => self.peer.despawn(&mut self.core, core),
            };
            // what this peer may not despawn gets another twin
            self.failures.extend(despawned.err());
        }
        let asked = self.spawns.get_mut(bevy).map(|all| all.iter().map(|(twin, spawn)| (twin, *spawn)).collect());
        let asked: Vec<_> = asked.unwrap_or_default();
        let mut born = Vec::new();
        for (twin, spawn) in asked {
            born.extend(self.spawn(bevy, twin, &spawn));
        }
        for column in &mut self.columns {
            column.to_core(bevy, &self.links, &mut self.core, &born);
        }
    }

    fn spawn(&mut self, bevy: &mut World, twin: Entity, spawn: &Spawn) -> Option<hecs::Entity> {
        let mut entity = bevy.get_entity_mut(twin).ok()?;
        let mut what = EntityBuilder::new();
        self.columns.iter().for_each(|column| column.add(entity.as_readonly(), &self.links, &mut what));
        let kind = self.kinds.iter().find(|kind| kind.is_of(entity.as_readonly()));
        let made = kind.ok_or(UsageError::NoKind).and_then(|kind| kind.spawn(&mut self.peer, &mut self.core, spawn, &mut what));
        match made {
            Ok(core) => {
                let net = self.peer.name_of(&self.core, core).unwrap_or_default();
                entity.remove::<Spawn>().insert(Linked { core, net });
                self.links.insert(core, twin, self.pass);
                Some(core)
            }
            Err(UsageError::NoNames | UsageError::NotInSession(_)) => None,
            Err(error) => {
                entity.remove::<Spawn>();
                self.failures.push(error);
                None
            }
        }
    }
}
