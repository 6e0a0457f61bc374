//! One game, three times: as plain Rust over the core, as a Bevy app, and (in `adapters/capi/c/guest.c`) in C. Its world is the same
//! on all of them.

#![forbid(unsafe_code)]

use bevy_app::App;
use bevy_ecs::prelude::*;
use bevy_time::TimePlugin;
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::netcore::transport::Transport;
use tidelock::policy::{Host, Owner};
use tidelock::{Checkpoint, Config, Interpolate, Networked, News, Peer, PeerId, Replicate, Schema};
use tidelock_bevy::{Linked, MirrorBuilder, NetUpdate, Session, Simulated, Spawn, install};

/// Where something is.
#[derive(Component, Clone, Copy, Replicate, Interpolate, Checkpoint)]
pub struct Position(#[net(step = 0.01, range = -500.0..=500.0)] pub [f32; 2]);
/// The host decides it, whoever owns the rest.
#[derive(Component, Clone, Copy, Replicate)]
pub struct Health(pub u16);
/// Names an entity of the core.
#[derive(Clone, Replicate)]
pub struct Label {
    /// Words.
    #[net(max = 12)]
    pub text: String,
    /// Whom it follows.
    pub leader: Option<hecs::Entity>,
}
/// The same, naming an entity of Bevy.
#[derive(Component, Clone)]
pub struct BevyLabel {
    text: String,
    leader: Option<Entity>,
}
/// Where a guest steers.
#[derive(Clone, Copy, Default, Replicate)]
pub struct Stick(#[net(step = 0.01, range = -1.0..=1.0)] pub [f32; 2]);
/// The host's.
#[derive(Component, Clone, Copy, Default)]
pub struct Crate;
/// A guest's own.
#[derive(Component, Clone, Copy, Default)]
pub struct Player;
/// Steered by a guest, who predicts it; decided by the host.
#[derive(Component, Clone, Copy, Default)]
pub struct Rover;

/// The schema as a plain program has it.
#[must_use]
pub fn schema() -> Schema {
    let schema = Schema::builder("three ends")
        .component::<Position>("position", |c| c.interpolate().checkpoint())
        .component::<Health>("health", |c| c.authority(Host::default()))
        .component::<Label>("label", |c| c)
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .kind::<Rover>("rover", Host::predicted())
        .input::<Stick>("stick");
    schema.build().expect("a schema without mistakes")
}

/// What a peer does in the first steps, then nothing.
const STEPS: u32 = 90;

/// How a line shows a position.
fn cells(at: &Position) -> [i64; 2] {
    at.0.map(|v| (v * 100.0).round() as i64)
}

/// A peer of plain Rust with its world.
pub struct Plain {
    /// The peer.
    pub peer: Peer,
    /// Its world.
    pub world: hecs::World,
    player: Option<hecs::Entity>,
    steps: u32,
}

impl Plain {
    /// From a peer.
    #[must_use]
    pub fn new(peer: Peer) -> Self {
        Self { peer, world: hecs::World::new(), player: None, steps: 0 }
    }

    /// One frame; gives the news.
    pub fn frame(&mut self, now: Duration) -> Vec<News> {
        let (peer, world) = (&mut self.peer, &mut self.world);
        peer.receive(now, world).expect("receive");
        let news = std::iter::from_fn(|| peer.poll_news()).collect();
        let goes = self.steps < STEPS;
        peer.set_input(&Stick([if goes { 1.0 } else { 0.0 }, 0.0])).expect("an input");
        let host = peer.is_host();
        while let Some(step) = peer.next_step(world) {
            for (entity, at) in step.query::<(hecs::Entity, &mut Position)>(world).iter() {
                let owner = step.owner(world, entity).unwrap_or_default();
                if world.satisfies::<&Rover>(entity) {
                    let Stick(stick) = step.input::<Stick>(owner).expect("an input").value;
                    (0..2).for_each(|i| at.0[i] += 0.25 * stick[i]);
                } else if goes || host && step.tick().0 < 400 {
                    at.0[1] += 0.25;
                }
            }
            self.steps += u32::from(!step.rerun());
        }
        if !host && self.player.is_none() && peer.is_in_session() && self.steps > 0 {
            let label = Label { text: "from Rust".into(), leader: None };
            let player = peer.spawn(world, Player, (Position([-50.0, 0.0]), label)).expect("a player");
            world.get::<&mut Label>(player).expect("a label").leader = Some(player);
            self.player = Some(player);
        }
        peer.send(now, world).expect("send");
        news
    }

    /// Everything that it holds, a line for each component of each entity, as the program in C prints it.
    #[must_use]
    pub fn held(&self) -> Vec<String> {
        let world = &self.world;
        let name = |entity| world.get::<&Networked>(entity).map_or(0, |networked| networked.id().0);
        let mut entities: Vec<_> = world.query::<(hecs::Entity, &Networked)>().iter().map(|(e, n)| (n.id().0, e)).collect();
        entities.sort_unstable();
        let mut lines = Vec::new();
        for (net, entity) in entities {
            let label = world.get::<&Label>(entity).ok();
            let label = label.map(|l| (l.text.clone(), l.leader.map_or(0, name)));
            let position = world.get::<&Position>(entity).ok().map(|at| cells(&at));
            lines.extend(lines_of(net, position, world.get::<&Health>(entity).ok().map(|h| h.0), label));
        }
        lines
    }
}

fn lines_of(net: u64, position: Option<[i64; 2]>, health: Option<u16>, label: Option<(String, u64)>) -> Vec<String> {
    let position = position.map(|[x, y]| format!("{net} position {x} {y}"));
    let health = health.map(|health| format!("{net} health {health}"));
    let label = label.map(|(text, leader)| format!("{net} label {text} {leader}"));
    [position, health, label].into_iter().flatten().collect()
}

#[derive(Resource, Default)]
struct Steps(u32);

/// The game as a Bevy app, the guest at the other end of `transport`.
#[must_use]
pub fn app(transport: impl Transport + 'static, config: Config) -> App {
    let mirror = MirrorBuilder::new("three ends")
        .component::<Position>("position", |c| c.interpolate().checkpoint())
        .component::<Health>("health", |c| c.authority(Host::default()))
        .component_as::<BevyLabel, Label>(
            "label",
            |l, links| Some(Label { text: l.text.clone(), leader: l.leader.and_then(|e| links.core(e)) }),
            |l, links| Some(BevyLabel { text: l.text.clone(), leader: l.leader.and_then(|e| links.bevy(e)) }),
            |c| c,
        )
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .kind::<Rover>("rover", Host::predicted())
        .schema(|s| s.input::<Stick>("stick"));
    let mirror = mirror.build().expect("a schema without mistakes");
    let peer = Peer::join(mirror.schema(), transport, config).expect("a guest");
    let mut app = App::new();
    app.add_plugins(TimePlugin).init_resource::<Steps>();
    install(&mut app, mirror, peer);
    app.add_systems(bevy_app::Update, choose)
        .add_systems(NetUpdate, (steer, walk, count.run_if(tidelock_bevy::first_time)).chain());
    app
}

fn choose(mut session: NonSendMut<Session>, steps: Res<Steps>, mut commands: Commands, own: Query<(), With<Player>>) {
    let stick = Stick([if steps.0 < STEPS { 1.0 } else { 0.0 }, 0.0]);
    session.peer().set_input(&stick).expect("an input");
    let is_mine = |world: &mut Session| world.peer().local() != PeerId::NOBODY;
    if steps.0 > 0 && steps.0 < STEPS && own.iter().next().is_none() && is_mine(&mut session) {
        let label = BevyLabel { text: "from Bevy".into(), leader: None };
        commands.spawn((Spawn::default(), Player, Mine, Position([50.0, 0.0]), label));
    }
}

/// Marks the player that this app has spawned.
#[derive(Component)]
struct Mine;

fn steer(mut session: NonSendMut<Session>, mut rovers: Query<(Entity, &mut Position), (With<Rover>, With<Simulated>)>) {
    for (entity, mut at) in &mut rovers {
        let Stick(stick) = session.input(entity);
        (0..2).for_each(|i| at.0[i] += 0.25 * stick[i]);
    }
}

fn walk(mut players: Query<(Entity, &mut Position, &mut BevyLabel), (With<Mine>, With<Simulated>)>, steps: Res<Steps>) {
    for (entity, mut at, mut label) in players.iter_mut().filter(|_| steps.0 < STEPS) {
        at.0[1] += 0.25;
        label.leader = Some(entity);
    }
}

fn count(mut steps: ResMut<Steps>) {
    steps.0 += 1;
}

/// What the app holds, as [`Plain::held`] tells it.
#[must_use]
pub fn held(app: &mut App) -> Vec<String> {
    let world = app.world_mut();
    let mut all = world.query::<(EntityRef, &Linked)>();
    let name = |entity| world.get::<Linked>(entity).map_or(0, |linked| linked.net().0);
    let mut lines = BTreeMap::new();
    for (entity, linked) in all.iter(world) {
        let label = entity.get::<BevyLabel>().map(|l| (l.text.clone(), l.leader.map_or(0, name)));
        let (position, health) = (entity.get::<Position>().map(cells), entity.get::<Health>().map(|h| h.0));
        lines.insert(linked.net().0, lines_of(linked.net().0, position, health, label));
    }
    lines.into_values().flatten().collect()
}
