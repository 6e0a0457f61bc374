//! Bevy apps as host and guest, without a window, over the loopback on virtual time.

use bevy_app::{App, Update};
use bevy_ecs::hierarchy::ChildOf;
use bevy_ecs::message::Messages;
use bevy_ecs::prelude::*;
use bevy_time::{TimePlugin, TimeUpdateStrategy};
use bevy_transform::components::Transform;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tidelock::netcore::tick::Tick;
use tidelock::policy::{Host, Owner};
use tidelock::{Checkpoint, Config, Interpolate, News, Peer, PeerId, Replicate};
use tidelock_bevy::{CurrentStep, Linked, Mirror, MirrorBuilder, Net, NetUpdate, Session, Simulated, Spawn, first_time, install};
use tidelock_loopback::{Conditions, Network};

#[derive(Component, Clone, Copy, Debug, PartialEq, Replicate, Interpolate, Checkpoint)]
struct Position(#[net(step = 0.01, range = -500.0..=500.0)] [f32; 2]);
#[derive(Component, Clone, Copy, Debug, PartialEq, Replicate)]
struct Health(u16);
/// Names an entity of Bevy; the core's twin of it is [`Hold`].
#[derive(Component, Clone, Copy, Debug, PartialEq)]
struct Holds(Entity);
#[derive(Clone, Copy, Replicate)]
struct Hold(hecs::Entity);
#[derive(Component, Clone, Copy, Default)]
struct Crate;
#[derive(Component, Clone, Copy, Default)]
struct Player;
#[derive(Component, Clone, Copy, Default)]
struct Rover;
#[derive(Clone, Copy, Default, Replicate)]
struct Stick(#[net(step = 0.01, range = -1.0..=1.0)] f32);

/// Ticks as they were run, and what was done once.
#[derive(Resource, Default)]
struct Ran {
    ticks: Vec<(Tick, bool)>,
    once: Vec<Tick>,
}
/// Changes of positions that a system of the game was told of.
#[derive(Resource, Default)]
struct Told(usize);

fn mirror() -> Mirror {
    let mirror = MirrorBuilder::new("sessions")
        .component::<Position>("position", |c| c.interpolate().checkpoint())
        .component::<Health>("health", |c| c.authority(Host::default()))
        .component_as::<Holds, Hold>("holds", |h, l| l.core(h.0).map(Hold), |h, l| l.bevy(h.0).map(Holds), |c| c)
        .parents("parent")
        .drawn::<Position>(|at, transform| transform.translation.x = at.0[0])
        .kind::<Crate>("crate", Host::default())
        .kind::<Player>("player", Owner::default())
        .kind::<Rover>("rover", Host::predicted())
        .schema(|s| s.input::<Stick>("stick"));
    mirror.build().expect("a schema without mistakes")
}

fn steer(mut session: NonSendMut<Session>, mut rovers: Query<(Entity, &mut Position), (With<Rover>, With<Simulated>)>) {
    for (entity, mut at) in &mut rovers {
        let Stick(stick) = session.input(entity);
        if stick != 0.0 {
            at.0[0] += 0.25 * stick;
        }
    }
}

fn app(make: impl FnOnce(&Mirror) -> Peer) -> App {
    let mut app = App::new();
    app.add_plugins(TimePlugin).insert_resource(TimeUpdateStrategy::ManualDuration(Duration::from_micros(16_667)));
    let mirror = mirror();
    let peer = make(&mirror);
    install(&mut app, mirror, peer);
    app.init_resource::<Ran>().init_resource::<Told>();
    app.add_systems(NetUpdate, |step: Res<CurrentStep>, mut ran: ResMut<Ran>| ran.ticks.push((step.tick, step.rerun)));
    app.add_systems(NetUpdate, (|step: Res<CurrentStep>, mut ran: ResMut<Ran>| ran.once.push(step.tick)).run_if(first_time));
    app.add_systems(NetUpdate, steer);
    app.add_systems(Update, |changed: Query<(), Changed<Position>>, mut told: ResMut<Told>| told.0 += changed.iter().count());
    app
}

/// A host and a guest.
fn pair(way: Conditions) -> (App, App) {
    let network = Network::new(3);
    let host = app(|m| Peer::host(m.schema(), network.host(), Config::default()).expect("a host"));
    let guest = app(|m| Peer::join(m.schema(), network.join(way, way), Config::default()).expect("a guest"));
    (host, guest)
}

fn far() -> Conditions {
    Conditions { latency: Duration::from_millis(40), loss: 0.03, ..Conditions::default() }
}

fn run(host: &mut App, guest: &mut App, frames: usize) {
    for _ in 0..frames {
        host.update();
        guest.update();
    }
    for app in [host, guest] {
        assert_eq!(app.world_mut().non_send_mut::<Session>().take_failures(), [], "nothing was refused");
    }
}

/// Everything networked by name, as words, with names in place of entities.
fn held(app: &mut App) -> BTreeMap<u64, String> {
    let world = app.world_mut();
    let mut all = world.query::<(EntityRef, &Linked)>();
    let net = |world: &World, e: Entity| world.get::<Linked>(e).map(|l| l.net().0);
    let of = |world: &World, e: EntityRef<'_>| {
        let at = e.get::<Position>().map(|at| at.0.map(|v| (v * 100.0).round() as i64));
        let kinds = (e.contains::<Crate>(), e.contains::<Player>(), e.contains::<Rover>());
        let names = (e.get::<ChildOf>().map(|c| net(world, c.0)), e.get::<Holds>().map(|h| net(world, h.0)));
        format!("{at:?} {:?} {kinds:?} {names:?}", e.get::<Health>())
    };
    all.iter(world).map(|(e, linked)| (linked.net().0, of(world, e))).collect()
}

fn twin(from: &App, entity: Entity, to: &mut App) -> Entity {
    let net = from.world().get::<Linked>(entity).expect("it is networked").net();
    let world = to.world_mut();
    let mut all = world.query::<(Entity, &Linked)>();
    all.iter(world).find(|(_, linked)| linked.net() == net).expect("it has a twin").0
}

#[test]
fn both_apps_hold_the_same_world() {
    let (mut host, mut guest) = pair(far());
    host.add_systems(NetUpdate, |mut all: Query<&mut Position, (With<Crate>, With<Simulated>)>, step: Res<CurrentStep>| {
        if step.tick.0 < 200 {
            all.iter_mut().for_each(|mut at| at.0[1] += 0.25);
        }
    });
    for i in 0..30_u16 {
        host.world_mut().spawn((Spawn::default(), Crate, Position([f32::from(i), 0.0]), Health(i)));
    }
    run(&mut host, &mut guest, 60);
    let own = guest.world_mut().spawn((Spawn::default(), Player, Position([1.0, 2.0]))).id();
    guest.add_systems(NetUpdate, |mut all: Query<&mut Position, (With<Player>, With<Simulated>)>, step: Res<CurrentStep>| {
        if step.tick.0 < 200 {
            all.iter_mut().for_each(|mut at| at.0[0] += 0.5);
        }
    });
    run(&mut host, &mut guest, 60);
    let crates: Vec<_> = host.world_mut().query_filtered::<Entity, With<Crate>>().iter(host.world()).collect();
    host.world_mut().despawn(crates[3]);
    let there = twin(&guest, own, &mut host);
    host.world_mut().entity_mut(there).insert(Health(77));
    host.world_mut().entity_mut(crates[4]).remove::<Health>();
    run(&mut host, &mut guest, 240);
    let (at_host, at_guest) = (held(&mut host), held(&mut guest));
    assert_eq!(at_host, at_guest);
    assert_eq!(at_host.len(), 30, "29 crates and a player");
    assert!(guest.world().get::<Position>(own).expect("it lives").0[0] > 20.0, "the guest's player moved");
    assert_eq!(guest.world().get::<Health>(own), Some(&Health(77)), "the host decides its health");
    assert_eq!(at_guest.values().filter(|words| words.contains("None (true")).count(), 1, "a component was removed");
}

#[test]
fn entities_in_components_are_mapped() {
    let (mut host, mut guest) = pair(far());
    let world = host.world_mut();
    // the child first: its parent has no twin yet when it is spawned
    let child = world.spawn((Spawn::default(), Crate, Position([1.0, 0.0]))).id();
    let parent = world.spawn((Spawn::default(), Crate, Position([2.0, 0.0]))).id();
    world.entity_mut(child).insert((ChildOf(parent), Holds(parent)));
    run(&mut host, &mut guest, 60);
    let (far_child, far_parent) = (twin(&host, child, &mut guest), twin(&host, parent, &mut guest));
    assert_eq!(guest.world().get::<ChildOf>(far_child).map(|c| c.0), Some(far_parent));
    assert_eq!(guest.world().get::<Holds>(far_child), Some(&Holds(far_parent)));
    // Bevy despawns children with their parent, and so it is everywhere
    host.world_mut().despawn(parent);
    run(&mut host, &mut guest, 60);
    assert_eq!((held(&mut host).len(), held(&mut guest).len()), (0, 0));
    assert!(guest.world().get_entity(far_child).is_err());
}

#[test]
fn what_came_does_not_go_back() {
    let (mut host, mut guest) = pair(Conditions::default());
    let entity = host.world_mut().spawn((Spawn::default(), Crate, Position([0.0, 0.0]))).id();
    run(&mut host, &mut guest, 60);
    for app in [&mut host, &mut guest] {
        app.world_mut().resource_mut::<Told>().0 = 0;
    }
    let sent = |app: &mut App, to| app.world_mut().non_send_mut::<Session>().peer().stats(to).expect("a link").sent.state_bytes;
    let before = (sent(&mut host, PeerId(1)), sent(&mut guest, PeerId::HOST));
    run(&mut host, &mut guest, 60);
    assert_eq!((host.world().resource::<Told>().0, guest.world().resource::<Told>().0), (0, 0), "at rest nothing is a change");
    assert_eq!((sent(&mut host, PeerId(1)), sent(&mut guest, PeerId::HOST)), before, "and nothing is sent");
    host.world_mut().get_mut::<Position>(entity).expect("it lives").0[0] = 4.0;
    // written, but not changed: Bevy's detection says so all the same
    host.world_mut().get_mut::<Position>(entity).expect("it lives").0[1] += 0.0;
    run(&mut host, &mut guest, 60);
    assert_eq!((host.world().resource::<Told>().0, guest.world().resource::<Told>().0), (1, 1), "a change is told once at each");
    assert_eq!(sent(&mut guest, PeerId::HOST), before.1, "the guest sends nothing back");
    host.world_mut().get_mut::<Position>(entity).expect("it lives").set_changed();
    let before = sent(&mut host, PeerId(1));
    run(&mut host, &mut guest, 60);
    assert_eq!(sent(&mut host, PeerId(1)), before, "the same value again is not sent");
}

#[test]
fn a_correction_runs_the_schedule_again_and_once_only_systems_once() {
    let (mut host, mut guest) = pair(far());
    run(&mut host, &mut guest, 60);
    let rover = host.world_mut().spawn((Spawn::default(), Rover, Position([0.0, 0.0]), Transform::IDENTITY)).id();
    run(&mut host, &mut guest, 2);
    host.world_mut().non_send_mut::<Session>().grant(rover, PeerId(1)).expect("it is the guest's");
    run(&mut host, &mut guest, 60);
    let own = twin(&host, rover, &mut guest);
    guest.world_mut().entity_mut(own).insert(Transform::IDENTITY);
    guest.world_mut().non_send_mut::<Session>().peer().set_input(&Stick(1.0)).expect("an input");
    run(&mut host, &mut guest, 60);
    assert!(guest.world().get::<Transform>(own).expect("it is drawn").translation.x > 5.0, "what is predicted is drawn");
    // the guest could not know it: a wind at the host
    host.world_mut().get_mut::<Position>(rover).expect("it lives").0[1] = 50.0;
    run(&mut host, &mut guest, 60);
    guest.world_mut().non_send_mut::<Session>().peer().set_input(&Stick(0.0)).expect("an input");
    run(&mut host, &mut guest, 120);
    let ran = guest.world().resource::<Ran>();
    let again = ran.ticks.iter().filter(|(_, rerun)| *rerun).count();
    assert!(again > 0, "ticks were run again");
    let first: Vec<_> = ran.ticks.iter().filter(|(_, rerun)| !*rerun).map(|(tick, _)| *tick).collect();
    assert_eq!(ran.once, first, "once-only systems run with the ticks that are new");
    assert_eq!(ran.once.iter().collect::<BTreeSet<_>>().len(), ran.once.len(), "and with each once");
    assert_eq!(held(&mut host), held(&mut guest));
    assert_eq!(guest.world().get::<Position>(own).expect("it lives").0[1], 50.0);
}

#[test]
fn news_come_as_messages_with_bevys_entities() {
    let (mut host, mut guest) = pair(Conditions::default());
    let entity = host.world_mut().spawn((Spawn::default(), Crate, Position([0.0, 0.0]))).id();
    let mut spawned = Vec::new();
    for _ in 0..60 {
        run(&mut host, &mut guest, 1);
        let messages = guest.world_mut().resource_mut::<Messages<Net>>().drain().collect::<Vec<_>>();
        spawned.extend(messages.into_iter().filter(|m| matches!(m.news, News::Spawned { .. })).map(|m| m.entity));
    }
    assert_eq!(spawned, [Some(twin(&host, entity, &mut guest))]);
}
