//! Forks: no digest differs without cause, and a single bit is found by everybody, for the same tick, and named to the field.

mod common;

use common::{Rng, config};
use hecs::{Entity, World};
use std::collections::BTreeMap;
use std::time::Duration;
use tidelock::policy::{Lockstep, Rollback, Timeline};
use tidelock::testing::Table;
use tidelock::{Checkpoint, Config, NetId, Networked, News, OnFork, PeerId, Press, Replicate, Schema, Step};
use tidelock_loopback::{Conditions, Network};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

#[derive(Clone, Copy, Debug, Default, PartialEq, Checkpoint)]
struct Place {
    x: f32,
    y: f32,
}

/// Whose it is, and what it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Checkpoint)]
struct Mind {
    of: u16,
    target: Entity,
    anger: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Stick {
    #[net(step = 0.01, range = -1.0..=1.0)]
    x: f32,
    shot: Press,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Muster {
    #[net(exact)]
    x: f32,
}

#[derive(Clone, Default, Checkpoint)]
struct Goals {
    by: Vec<(u16, u32)>,
}

#[derive(Clone, Copy, Default)]
struct Player;
#[derive(Clone, Copy, Default)]
struct Unit;

fn schema() -> Schema {
    Schema::builder("forks")
        .checkpoint::<Place>("place")
        .checkpoint::<Mind>("mind")
        .kind::<Player>("player", Rollback)
        .kind::<Unit>("unit", Lockstep::sealed())
        .resource_of::<Goals>("goals", Timeline::Rollback)
        .input::<Stick>("stick")
        .order::<Muster>("muster")
        .build()
        .unwrap()
}

/// One bit of one peer's state is turned over at the end of a step.
#[derive(Clone, Copy, Debug)]
struct Flip {
    seat: usize,
    line: Timeline,
    tick: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// The x of the eldest's place.
    Place,
    /// The resource.
    Goals,
    /// The eldest itself goes.
    Despawn,
}

/// What a flip did: whose value, before and after.
type Done = BTreeMap<usize, (NetId, f32, f32)>;

fn simulate(seat: usize, world: &mut World, step: &mut Step<'_>, flips: &[Flip], done: &mut Done) {
    match step.timeline() {
        Timeline::Session => return,
        Timeline::Rollback => play(world, step),
        Timeline::Lockstep => command(world, step),
    }
    let due = |f: &&Flip| f.seat == seat && f.line == step.timeline() && f.tick == step.tick().0;
    let Some(flip) = flips.iter().find(due) else { return };
    let all = step.query::<(Entity, &Networked)>(world).with::<&Place>().iter().map(|(e, n)| (n.id(), e)).collect::<Vec<_>>();
    let (net, eldest) = all.into_iter().min().unwrap();
    match flip.what {
        What::Place => {
            let mut place = world.get::<&mut Place>(eldest).unwrap();
            let before = place.x;
            place.x = f32::from_bits(before.to_bits() ^ 1);
            done.insert(seat, (net, before, place.x));
        }
        What::Goals => step.resource::<Goals>(world).unwrap().by.push((77, 7)),
        What::Despawn => {
            done.insert(seat, (net, 0.0, 0.0));
            step.despawn(world, eldest).unwrap();
        }
    }
}

fn play(world: &mut World, step: &mut Step<'_>) {
    let seats: Vec<_> = step.seats().collect();
    let mut players: BTreeMap<u16, Entity> =
        step.query::<(Entity, &Mind)>(world).with::<&Player>().iter().map(|(e, mind)| (mind.of, e)).collect();
    let mut last = Entity::DANGLING;
    for (peer, _) in &seats {
        let entity = *players.entry(peer.0).or_insert_with(|| {
            let parts = (Place { x: f32::from(peer.0), y: 0.0 }, Mind { of: peer.0, target: last, anger: 0 });
            step.spawn(world, Player, parts).unwrap()
        });
        let Ok(input) = step.input::<Stick>(*peer) else { continue };
        {
            let (place, mind) = world.query_one_mut::<(&mut Place, &mut Mind)>(entity).unwrap();
            // unlike for each: where it is, is the sum of all that it ever did
            place.x += input.value.x * 0.1 * (1.0 + f32::from(peer.0));
            mind.target = last;
            last = entity;
        }
        for i in 0..input.pressed(|i| i.shot) {
            let goals = step.resource::<Goals>(world).unwrap();
            goals.by.push((peer.0, i.into()));
            goals.by.truncate(40);
            // bodies come and go on this timeline too
            let rng = step.rng(NetId(u64::from(peer.0)), u64::from(i)).next_u64();
            let mind = Mind { of: 500 + (rng % 90) as u16, target: entity, anger: rng as u32 };
            step.spawn(world, Player, (Place { x: 0.0, y: 1.0 }, mind)).unwrap();
        }
    }
    let old: Vec<(Entity, u32)> = step
        .query::<(Entity, &mut Mind)>(world)
        .iter()
        .filter(|(_, m)| m.of >= 500)
        .map(|(e, m)| {
            m.anger = m.anger.wrapping_add(1);
            (e, m.anger)
        })
        .collect();
    for (entity, _) in old.into_iter().filter(|(_, anger)| anger % 64 == 0) {
        step.despawn(world, entity).unwrap();
    }
}

fn command(world: &mut World, step: &mut Step<'_>) {
    let orders: Vec<(PeerId, Muster)> = step.orders::<Muster>(world).unwrap().collect();
    for (peer, order) in orders {
        let mind = Mind { of: peer.0, target: Entity::DANGLING, anger: 0 };
        step.spawn(world, Unit, (Place { x: order.x, y: 0.0 }, mind)).unwrap();
    }
    let mut before = Entity::DANGLING;
    let mut units = step.ordered::<(Entity, &mut Place, &mut Mind)>(world);
    while let Some((_, (entity, place, mind))) = units.next() {
        place.y += 0.01;
        mind.target = before;
        mind.anger = mind.anger.wrapping_add(1);
        before = entity;
    }
    if step.tick().0.is_multiple_of(40) {
        // a dead one is named until the next step
        let youngest = step.query::<(&Networked, Entity)>(world).iter().map(|(n, e)| (n.id(), e)).max();
        if let Some((_, youngest)) = youngest {
            step.despawn(world, youngest).unwrap();
        }
    }
}

struct Scene {
    table: Table,
    network: Network,
    sticks: Vec<Stick>,
    chance: Rng,
    flips: Vec<Flip>,
    done: Done,
}

impl Scene {
    /// All start together.
    fn new(seed: u64, host: Config, weathers: &[Conditions], units: u32) -> Self {
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(), host, network.host()).unwrap();
        let seat = table.seat(0);
        for i in 0..units {
            let parts = (Place { x: i as f32, y: 0.5 }, Mind { of: 999, target: Entity::DANGLING, anger: i });
            seat.peer.spawn(&mut seat.world, Unit, parts).unwrap();
        }
        let chance = Rng::new(seed);
        let (flips, done) = (Vec::new(), Done::new());
        let mut scene = Self { table, network, sticks: vec![Stick::default()], chance, flips, done };
        for weather in weathers {
            scene.join(*weather);
        }
        scene
    }

    fn join(&mut self, weather: Conditions) -> usize {
        self.sticks.push(Stick::default());
        self.table.join(config(), self.network.join(weather, weather)).unwrap()
    }

    fn frame(&mut self) {
        for seat in self.table.taken() {
            if !self.table.seat(seat).peer.is_in_session() {
                continue;
            }
            let stick = &mut self.sticks[seat];
            // the very first input of each is unlike the guess, which is none, and unlike the others'
            if stick.x == 0.0 || self.chance.chance(6) {
                stick.x = (seat as f32 * 0.2 + self.chance.below(20) as f32 / 100.0 + 0.01).min(1.0);
            }
            if self.chance.chance(3) {
                stick.shot.press();
            }
            let (stick, orders) = (*stick, self.chance.chance(2));
            let x = self.chance.below(1000) as f32;
            let at = self.table.seat(seat);
            at.peer.set_input(&stick).unwrap();
            if orders && at.peer.confirmed(Timeline::Lockstep).is_some() {
                at.peer.order(&at.world, &Muster { x }).unwrap();
            }
        }
        let (flips, done) = (&self.flips, &mut self.done);
        self.table.run(|seat, world, step| simulate(seat, world, step, flips, done));
    }

    fn run(&mut self, frames: u32) {
        (0..frames).for_each(|_| self.frame());
    }

    /// Until everybody takes part.
    fn begin(&mut self) {
        let seed = self.table.seed;
        for _ in 0..1200 {
            let lines = [Timeline::Rollback, Timeline::Lockstep];
            if self.table.taken().iter().all(|s| {
                let peer = &self.table.seats[*s].as_ref().unwrap().peer;
                lines.iter().all(|line| peer.confirmed(*line).is_some())
            }) {
                return self.run(60);
            }
            self.frame();
        }
        panic!("SEED={seed}: not everybody got the state");
    }

    /// The tick of a timeline that lies `after` ticks ahead at the host.
    fn ahead(&mut self, line: Timeline, after: u64) -> u64 {
        self.table.seat(0).peer.confirmed(line).unwrap().0 + after
    }

    fn forks(&self, seat: usize) -> Vec<(Timeline, Tick, Vec<PeerId>)> {
        let news = &self.table.seats[seat].as_ref().unwrap().news;
        let of = |news: &News| match news {
            News::Forked { line, tick, peers, host_digest } => {
                assert!(peers.iter().all(|p| p.1 != *host_digest), "SEED={}: {news:?}", self.table.seed);
                Some((*line, *tick, peers.iter().map(|p| p.0).collect()))
            }
            _ => None,
        };
        news.iter().filter_map(of).collect()
    }

    fn located(&self, seat: usize) -> Vec<News> {
        let news = &self.table.seats[seat].as_ref().unwrap().news;
        news.iter().filter(|n| matches!(n, News::ForkLocated { .. })).cloned().collect()
    }

    fn expect_none(&self) {
        for seat in self.table.taken() {
            assert_eq!(self.forks(seat), [], "SEED={} seat {seat}: a fork where there is none", self.table.seed);
            let ended = self.table.seats[seat].as_ref().unwrap().peer.ended();
            assert_eq!(ended, None, "SEED={} seat {seat}", self.table.seed);
        }
    }

    fn local(&mut self, seat: usize) -> PeerId {
        self.table.seat(seat).peer.local()
    }
}

fn every(digest_every: u64) -> Config {
    Config { digest_every, ..config() }
}

fn far(millis: u64, loss: f64) -> Conditions {
    Conditions { latency: Duration::from_millis(millis), loss, ..Conditions::default() }
}

const LINES: [Timeline; 2] = [Timeline::Rollback, Timeline::Lockstep];

/// Case 22 of the faults.
#[test]
fn nothing_is_reported_while_nothing_is_wrong_and_one_bit_is_by_everybody() {
    for (seed, guests) in [(1, 1), (2, 2), (3, 3)] {
        let mut scene = Scene::new(seed, every(1), &vec![far(150, 0.05); guests], 5);
        scene.begin();
        scene.run(3600);
        scene.expect_none();
        let victim = 1 + (seed as usize) % guests;
        let peer = scene.local(victim);
        for (told, line) in LINES.into_iter().enumerate() {
            let tick = scene.ahead(line, 60);
            scene.flips = vec![Flip { seat: victim, line, tick, what: What::Place }];
            // 60 ticks until then; the way there and back, losses, the rewind window and the wait for others
            scene.run(60 + 240);
            let (net, before, after) = scene.done[&victim];
            for seat in scene.table.taken() {
                let forks = scene.forks(seat);
                assert_eq!(forks.len(), told + 1, "SEED={seed} seat {seat}: {forks:?}");
                assert_eq!(forks[told], (line, Tick(tick), vec![peer]), "SEED={seed} seat {seat}");
                let located = scene.located(seat);
                assert_eq!(located.len(), told + 1, "SEED={seed} seat {seat}: {located:?}");
                let expected = News::ForkLocated {
                    line,
                    tick: Tick(tick),
                    peer,
                    entity: net,
                    component: "place".into(),
                    field: "x".into(),
                    host: format!("{before:?}"),
                    guest: format!("{after:?}"),
                };
                assert_eq!(located[told], expected, "SEED={seed} seat {seat}");
            }
        }
    }
}

/// Case 24 of the faults.
#[test]
fn every_peer_is_told_of_the_same_tick() {
    let weathers = [far(10, 0.02), far(50, 0.02), far(150, 0.02), far(300, 0.02)];
    let variants: [(&str, &[usize]); 4] = [("one", &[3]), ("two", &[2, 4]), ("host", &[0]), ("leaves", &[3])];
    for (seed, (name, victims)) in (11..).zip(variants) {
        for line in LINES {
            let mut scene = Scene::new(seed, every(20), &weathers, 5);
            scene.begin();
            let tick = scene.ahead(line, 90);
            let flip = |seat: &usize| Flip { seat: *seat, line, tick, what: What::Place };
            scene.flips = victims.iter().map(flip).collect();
            let differ: Vec<PeerId> = if victims == [0] {
                (1..5).map(|seat| scene.local(seat)).collect()
            } else {
                victims.iter().map(|seat| scene.local(*seat)).collect()
            };
            if name == "leaves" {
                let mut frames = 0;
                // its digest is on the way, or has come
                while scene.forks(0).is_empty() && frames < 600 {
                    scene.frame();
                    frames += 1;
                }
                scene.table.leave(3);
            }
            scene.run(600);
            let told = scene.forks(0);
            assert_eq!(told.len(), 1, "SEED={seed} {name} {line:?}: {told:?}");
            assert_eq!(told[0].2, differ, "SEED={seed} {name} {line:?}");
            let at = told[0].1.0;
            assert!(at >= tick && at <= tick + 22, "SEED={seed} {name} {line:?}: tick {tick} was told as {at}");
            for seat in scene.table.taken() {
                assert_eq!(scene.forks(seat), told, "SEED={seed} {name} {line:?} seat {seat}");
                let located = scene.located(seat).len();
                assert_eq!(located, if name == "leaves" { 0 } else { differ.len() }, "SEED={seed} {name} {line:?} seat {seat}");
            }
        }
    }
}

/// A resource that differs, and an entity that one side has not, are named as what they are.
#[test]
fn resources_and_who_is_gone_are_named() {
    for (seed, what) in [(21, What::Goals), (22, What::Despawn)] {
        for line in LINES {
            if what == What::Goals && line == Timeline::Lockstep {
                continue; // the resource is of the other timeline
            }
            let mut scene = Scene::new(seed, every(1), &[far(40, 0.02), far(80, 0.02)], 5);
            scene.begin();
            let tick = scene.ahead(line, 60);
            scene.flips = vec![Flip { seat: 2, line, tick, what }];
            scene.run(300);
            for seat in scene.table.taken() {
                assert_eq!(scene.forks(seat).len(), 1, "SEED={seed} {what:?} {line:?} seat {seat}");
                let located = scene.located(seat);
                let [News::ForkLocated { entity, component, field, host, guest, tick: at, .. }] = &located[..] else {
                    panic!("SEED={seed} {what:?} {line:?} seat {seat}: {located:?}");
                };
                assert_eq!(at.0, tick, "SEED={seed} {what:?} {line:?}");
                if what == What::Goals {
                    assert_eq!(component, "goals");
                    assert!(field.starts_with("by"), "{field}");
                } else {
                    assert_eq!((component.as_str(), field.as_str(), guest.as_str()), ("", "", "not there"), "{located:?}");
                    assert_eq!(*entity, scene.done[&2].0);
                    assert!(host.contains("place, mind") || host.contains("mind, place"), "{host}");
                }
            }
        }
    }
}

/// A world that does not fit one digest: each step takes a slice.
#[test]
fn a_bit_is_found_in_a_large_world() {
    let (seed, units) = (31, 20_000);
    let mut scene = Scene::new(seed, Config { bandwidth: 200_000_000, ..every(10) }, &[far(30, 0.01), far(60, 0.01)], units);
    let at = |scene: &mut Scene, seat: usize| scene.table.seat(seat).peer.confirmed(Timeline::Lockstep);
    for _ in 0..900 {
        if at(&mut scene, 1).is_some() && at(&mut scene, 2).is_some() {
            break;
        }
        scene.frame();
    }
    scene.run(120);
    scene.expect_none();
    let peer = scene.local(2);
    let tick = scene.ahead(Timeline::Lockstep, 30);
    scene.flips = vec![Flip { seat: 2, line: Timeline::Lockstep, tick, what: What::Place }];
    scene.run(180);
    let slices = u64::from(units).div_ceil(limits::DIGEST_ROWS as u64);
    let told = scene.forks(0);
    assert_eq!(told.len(), 1, "SEED={seed}: {told:?}");
    let ago = told[0].1.0 - tick;
    assert!(ago <= 10 + 2 * slices, "SEED={seed}: told {ago} ticks later");
    for seat in scene.table.taken() {
        assert_eq!(scene.forks(seat), told, "SEED={seed} seat {seat}");
        let located = scene.located(seat);
        let [News::ForkLocated { peer: who, entity, component, field, .. }] = &located[..] else {
            panic!("SEED={seed} seat {seat}: {located:?}");
        };
        assert_eq!((*who, *entity), (peer, scene.done[&2].0), "SEED={seed} seat {seat}");
        assert_eq!((component.as_str(), field.as_str()), ("place", "x"), "SEED={seed} seat {seat}");
    }
}

/// Who comes in the middle and who goes is nobody's fork, nor are stalls, pauses and other speeds.
#[test]
fn nobody_comes_or_goes_as_a_fork() {
    for seed in 41..=44 {
        let mut scene = Scene::new(seed, every(7), &[far(30, 0.05), far(80, 0.05)], 5);
        scene.begin();
        scene.run(200);
        let third = scene.join(far(60, 0.1));
        scene.run(300);
        scene.table.leave(1);
        scene.run(100);
        scene.table.stall(2, Duration::from_secs(2));
        scene.run(300);
        scene.table.seat(0).peer.pause_lockstep().unwrap();
        scene.run(30);
        scene.join(far(20, 0.0));
        scene.run(130);
        scene.table.seat(0).peer.step_lockstep(2).unwrap();
        scene.run(100);
        scene.table.seat(0).peer.resume_lockstep().unwrap();
        scene.table.seat(0).peer.set_lockstep_speed(1, 3).unwrap();
        scene.run(150);
        scene.table.seat(0).peer.set_lockstep_speed(5, 2).unwrap();
        scene.run(150);
        scene.table.stall(0, Duration::from_millis(1500));
        scene.run(300);
        scene.expect_none();
        // and they are looked after: a bit of who came late is found
        let tick = scene.ahead(Timeline::Rollback, 60);
        scene.flips = vec![Flip { seat: third, line: Timeline::Rollback, tick, what: What::Place }];
        scene.run(300);
        let peer = scene.local(third);
        for seat in scene.table.taken() {
            let told = scene.forks(seat);
            assert_eq!(told.len(), 1, "SEED={seed} seat {seat}: {told:?}");
            assert_eq!(told[0].2, [peer], "SEED={seed} seat {seat}");
        }
    }
}

/// Everybody is told, the one that goes included, before it goes.
#[test]
fn who_differs_is_removed_after_the_word_of_it() {
    for seed in 51..=53 {
        let host = Config { on_fork: OnFork::Remove, ..every(5) };
        let mut scene = Scene::new(seed, host, &[far(20, 0.02), far(150, 0.05), far(60, 0.02)], 5);
        scene.begin();
        let tick = scene.ahead(Timeline::Lockstep, 60);
        scene.flips = vec![Flip { seat: 2, line: Timeline::Lockstep, tick, what: What::Place }];
        scene.run(900);
        for seat in scene.table.taken() {
            assert_eq!(scene.forks(seat).len(), 1, "SEED={seed} seat {seat}");
            assert_eq!(scene.located(seat).len(), 1, "SEED={seed} seat {seat}");
            let ended = scene.table.seat(seat).peer.ended();
            assert_eq!(ended.is_some(), seat == 2, "SEED={seed} seat {seat}: {ended:?}");
        }
        let news = &scene.table.seat(0).news;
        let forked = news.iter().position(|n| matches!(n, News::Forked { .. }));
        let left = news.iter().position(|n| matches!(n, News::Left { .. }));
        assert!(forked.is_some() && forked < left, "SEED={seed}");
    }
}
