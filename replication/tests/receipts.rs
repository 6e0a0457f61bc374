//! Receipts: the true reason in each of many planted situations, and sums that add up.

use hecs::Entity;
use std::time::Duration;
use tidelock::policy::{Host, Owner, Refusal};
use tidelock::testing::Table;
use tidelock::{
    Config, Decision, Detail, Interpolate, PeerId, Relevance, Replicate, Room, Scarce, Schema, Unseen, Viewpoint, Why,
};
use tidelock_loopback::{Conditions, Direction, Network};

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Position {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
}
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Speed {
    #[net(step = 0.01, range = -10.0..=10.0)]
    speed: f32,
}
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Secret(u32);
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct On(Entity);
struct Cloaked;
#[derive(Clone, Copy, Default)]
struct Thing;
#[derive(Clone, Copy, Default)]
struct Avatar;

const GUEST: PeerId = PeerId(1);

fn schema() -> Schema {
    Schema::builder("receipts")
        .component::<Position>("position", |c| {
            c.interpolate().validate(|_, p: &Position, _| if p.x < 400.0 { Ok(()) } else { Err("beyond the wall") })
        })
        .component::<Speed>("speed", |c| c)
        .component::<Secret>("secret", |c| c)
        .component::<On>("on", |c| c.parent())
        .kind::<Thing>("thing", Host::default())
        .kind::<Avatar>("avatar", Owner::default())
        .build()
        .unwrap()
}

fn relevance() -> Relevance {
    Relevance::within(100.0)
        .place::<Position>(|p| [p.x, 0.0, 0.0])
        .detail(Detail { full: 20.0, slowest: 16 })
        .rule(|sight| sight.get::<Cloaked>().is_none())
        .show_only::<Secret>(|sight| sight.owns())
}

struct Scene {
    table: Table,
    network: Network,
}

impl Scene {
    fn new() -> Self {
        let network = Network::new(3);
        let mut table = Table::new(3, &schema(), Config::default(), network.host()).unwrap();
        table.seat(0).peer.set_relevance(relevance()).unwrap();
        let weather = Conditions { latency: Duration::from_millis(40), ..Conditions::default() };
        table.join(Config::default(), network.join(weather, weather)).unwrap();
        table.rest(40);
        table.seat(0).peer.look_from(GUEST, Viewpoint::Point([0.0; 3])).unwrap();
        Self { table, network }
    }

    fn spawn(&mut self, x: f32) -> Entity {
        let host = self.table.seat(0);
        host.peer.spawn(&mut host.world, Thing, (Position { x }, Speed { speed: 0.0 }, Secret(1))).unwrap()
    }

    /// Spawned, and acknowledged.
    fn settled(&mut self, x: f32) -> Entity {
        let entity = self.spawn(x);
        self.table.rest(60);
        entity
    }

    fn why(&mut self, entity: Entity) -> Why {
        let host = self.table.seat(0);
        host.peer.why(&host.world, entity, GUEST)
    }

    fn shift(&mut self, entity: Entity, by: f32) {
        self.table.seat(0).world.get::<&mut Position>(entity).unwrap().x += by;
    }

    fn down(&self, edit: impl FnOnce(&mut Conditions)) {
        let link = self.network.links()[0];
        let mut conditions = self.network.edit(link, Direction::Down, |e| e.conditions()).unwrap();
        edit(&mut conditions);
        self.network.set_conditions(link, Direction::Down, conditions);
    }
}

#[test]
fn who_is_not_there() {
    let mut scene = Scene::new();
    let local = scene.table.seat(0).world.spawn((Position { x: 0.0 },));
    assert_eq!(scene.why(local), Why::NotNetworked);
    let entity = scene.settled(0.0);
    let host = scene.table.seat(0);
    assert_eq!(host.peer.why(&host.world, entity, PeerId(9)), Why::NoLink);
    let guest = scene.table.seat(1);
    let copy = guest.world.query::<(Entity, &Thing)>().iter().next().unwrap().0;
    assert_eq!(guest.peer.why(&guest.world, copy, PeerId::HOST), Why::NotPublished);
}

#[test]
fn not_relevant_and_why() {
    let mut scene = Scene::new();
    let (near, far) = (scene.spawn(10.0), scene.spawn(300.0));
    let (roomed, cloaked, child) = (scene.spawn(10.0), scene.spawn(10.0), scene.spawn(10.0));
    let host = scene.table.seat(0);
    host.peer.put_in_room(&host.world, roomed, Room(7)).unwrap();
    host.world.insert_one(cloaked, Cloaked).unwrap();
    host.world.insert_one(child, On(cloaked)).unwrap();
    scene.table.rest(60);
    assert_eq!(scene.why(near), Why::Acknowledged);
    assert_eq!(scene.why(far), Why::Unseen(Unseen::TooFar));
    assert_eq!(scene.why(roomed), Why::Unseen(Unseen::OtherRoom));
    assert_eq!(scene.why(cloaked), Why::Unseen(Unseen::Rule));
    assert_eq!(scene.why(child), Why::Unseen(Unseen::Parent));
    let host = scene.table.seat(0);
    assert_eq!(host.peer.why_component::<Secret>(&host.world, near, GUEST), Why::HiddenComponent);
    assert_eq!(host.peer.why_component::<Speed>(&host.world, near, GUEST), Why::Acknowledged);
    host.peer.look_from(GUEST, Viewpoint::Own).unwrap();
    scene.table.rest(60);
    assert_eq!(scene.why(near), Why::Unseen(Unseen::NoViewpoint));
}

#[test]
fn sent_and_paced() {
    let mut scene = Scene::new();
    let (near, far) = (scene.settled(5.0), scene.settled(90.0));
    scene.shift(near, 1.0);
    scene.shift(far, 1.0);
    scene.table.rest(1);
    assert_eq!(scene.why(near), Why::InFlight);
    scene.table.rest(30);
    assert_eq!(scene.why(near), Why::Acknowledged);
    // the far one changes all the time, and is told of it every few sends
    let mut paced = 0;
    for _ in 0..40 {
        scene.shift(far, 0.01);
        scene.table.rest(1);
        paced += u32::from(matches!(scene.why(far), Why::Paced { period: 8, .. }));
    }
    assert!((30..40).contains(&paced), "{paced} of 40");
}

#[test]
fn no_room() {
    let mut scene = Scene::new();
    let crowd: Vec<_> = (0..200).map(|i| scene.spawn(i as f32 / 20.0)).collect();
    scene.table.rest(120);
    scene.down(|c| (c.rate, c.queue) = (Some(1000), 1100));
    for _ in 0..20 {
        for entity in &crowd {
            scene.shift(*entity, 0.5);
        }
        scene.table.rest(1);
    }
    let reasons: Vec<_> = crowd.iter().map(|e| scene.why(*e)).collect();
    let full = |w: &&Why| matches!(w, Why::NoRoom { scarce: Scarce::Transport, .. });
    assert!(reasons.iter().filter(full).count() > 20, "{reasons:?}");

    let mut scene = Scene::new();
    let crowd: Vec<_> = (0..200).map(|i| scene.spawn(i as f32 / 20.0)).collect();
    scene.table.rest(120);
    scene.table.seat(0).peer.set_bandwidth(GUEST, 32_000).unwrap();
    scene.table.seat(0).peer.keep_receipts(1000);
    for _ in 0..20 {
        for entity in &crowd {
            scene.shift(*entity, 0.5);
        }
        scene.table.rest(1);
    }
    let reasons: Vec<_> = crowd.iter().map(|e| scene.why(*e)).collect();
    let scarce = |w: &&Why| matches!(w, Why::NoRoom { scarce: Scarce::Bandwidth, .. });
    assert!(reasons.iter().filter(scarce).count() > 20, "{reasons:?}");
    assert!(scene.table.seat(0).peer.receipts().any(|r| r.decision == Decision::NoRoom));
}

#[test]
fn what_cannot_change() {
    let mut scene = Scene::new();
    let entity = scene.settled(5.0);
    scene.table.seat(0).world.get::<&mut Speed>(entity).unwrap().speed = f32::NAN;
    scene.table.rest(60);
    assert_eq!(scene.why(entity), Why::Unsendable);

    let guest = scene.table.seat(1);
    let avatar = guest.peer.spawn(&mut guest.world, Avatar, (Position { x: 1.0 },)).unwrap();
    let net = guest.peer.name_of(&guest.world, avatar).unwrap();
    let weather = Conditions::default();
    let other = scene.network.join(weather, weather);
    scene.table.join(Config::default(), other).unwrap();
    scene.table.rest(60);
    scene.table.seat(0).peer.look_from(PeerId(2), Viewpoint::Point([0.0; 3])).unwrap();
    scene.table.rest(60);
    let entity = scene.table.seat(0).find(net).unwrap();
    assert_eq!(scene.why(entity), Why::Acknowledged);
    scene.table.seat(1).world.get::<&mut Position>(avatar).unwrap().x = 450.0;
    scene.table.rest(20);
    let host = scene.table.seat(0);
    assert_eq!(host.peer.why(&host.world, entity, PeerId(2)), Why::Refused(Refusal::Invalid("beyond the wall")));
    scene.table.rest(90);
    let host = scene.table.seat(0);
    assert_eq!(host.peer.why(&host.world, entity, PeerId(2)), Why::Acknowledged, "a refusal explains a second");
}

#[test]
fn a_child_waits_for_its_parent() {
    let mut scene = Scene::new();
    let (parent, child) = (scene.spawn(5.0), scene.spawn(5.0));
    let link = scene.network.links()[0];
    scene.network.edit(link, Direction::Down, |e| e.hold_next(1));
    scene.table.rest(1);
    let host = scene.table.seat(0);
    let name = host.peer.name_of(&host.world, parent).unwrap();
    host.world.insert_one(child, On(parent)).unwrap();
    scene.table.rest(2);
    assert_eq!(scene.why(child), Why::WaitingForParent(name));
    scene.table.rest(60);
    assert_eq!(scene.why(child), Why::Acknowledged);
}

#[test]
fn receipts_and_sums() {
    let mut scene = Scene::new();
    scene.table.seat(0).peer.keep_receipts(4000);
    let entity = scene.settled(5.0);
    let host = scene.table.seat(0);
    let name = host.peer.name_of(&host.world, entity);
    scene.shift(entity, 300.0);
    scene.table.rest(30);
    let host = scene.table.seat(0);
    let mine: Vec<_> = host.peer.receipts().filter(|r| Some(r.net) == name && r.peer == GUEST).map(|r| r.decision).collect();
    assert_eq!(mine[0], Decision::Shown);
    assert!(matches!(mine[1], Decision::Sent { bits, components } if bits > 40 && components & 1 != 0), "{mine:?}");
    assert!(mine.contains(&Decision::Hidden(Unseen::TooFar)), "{mine:?}");
    let traffic = host.peer.traffic(GUEST).unwrap();
    let values: u64 = traffic.components.iter().map(|c| c.1).sum();
    assert!(traffic.components.iter().all(|(name, bits)| (name == "secret" || name == "on") == (*bits == 0)), "{traffic:?}");
    let things: u64 = traffic.kinds.iter().map(|k| k.1).sum();
    assert!(things > 0 && things <= values, "tombstones are of no kind: {traffic:?}");
    let sent = host.peer.stats(GUEST).unwrap().sent;
    let body = (values + traffic.heads) / 8;
    assert!(body > sent.state_bytes / 4 && body < sent.state_bytes, "{body} of {}", sent.state_bytes);
    assert_eq!(size_of::<tidelock::Receipt>(), 40, "what `keep_receipts` says that one takes");
    host.peer.keep_receipts(0);
    assert_eq!(host.peer.receipts().count(), 0);
}
