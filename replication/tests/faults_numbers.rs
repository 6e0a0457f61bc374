//! Numbers that are none: infinities, NaN in several patterns, −0.0, subnormals, 1e38, rotations of length zero. In the world of
//! an owner, whose peer must refuse to send them, and as words from a hostile build of the game, which the host must refuse to
//! read.

mod common;

use common::weather;
use hecs::{Entity, World};
use std::time::Duration;
use tidelock::field::{STEP_ORDER, Step};
use tidelock::layout::LayoutBuilder;
use tidelock::netcore::bits::BitError;
use tidelock::netcore::error::{DisconnectReason, PeerError};
use tidelock::policy::Owner;
use tidelock::replicate::{FieldError, Quantiser, RestoreError, Restorer};
use tidelock::{Config, Interpolate, News, Peer, PeerId, Replicate, Schema};
use tidelock_loopback::Network;

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Exact {
    #[net(exact)]
    x: f32,
    #[net(exact)]
    y: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Stepped {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Turned {
    #[net(quat, bits = 12)]
    turn: [f32; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate, Interpolate)]
struct Heading {
    #[net(angle, bits = 12)]
    radians: f32,
}

#[derive(Clone, Copy, Default)]
struct Thing;

fn schema() -> Schema {
    Schema::builder("numbers")
        .component::<Exact>("exact", |c| c.interpolate())
        .component::<Stepped>("stepped", |c| c.interpolate())
        .component::<Turned>("turned", |c| c.interpolate())
        .component::<Heading>("heading", |c| c.interpolate())
        .kind::<Thing>("thing", Owner::default())
        .build()
        .unwrap()
}

const ID: [f32; 4] = [0.0, 0.0, 0.0, 1.0];

fn good(x: f32) -> (Exact, Stepped, Turned, Heading) {
    (Exact { x, y: 0.5 }, Stepped { x }, Turned { turn: ID }, Heading { radians: 0.0 })
}

/// NaN: the usual one, negative, signalling, with all bits set, with one.
const NANS: [u32; 5] = [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff, 0x7f80_dead];

fn not_finite() -> Vec<f32> {
    NANS.iter().map(|n| f32::from_bits(*n)).chain([f32::INFINITY, f32::NEG_INFINITY]).collect()
}

const HOST: usize = 0;
const OWNER: usize = 1;
const WATCHER: usize = 2;

struct Node {
    peer: Peer,
    world: World,
    news: Vec<News>,
}

/// A host, the owner of all things, and a guest that watches.
struct Three {
    nodes: Vec<Node>,
    now: Duration,
    seed: u64,
}

impl Three {
    fn new(seed: u64, owner: &Schema) -> Self {
        let network = Network::new(seed);
        let weather = weather(30, 0.05);
        let mut peers = vec![Peer::host(schema(), network.host(), Config::default()).unwrap()];
        for schema in [owner, &schema()] {
            peers.push(Peer::join(schema.clone(), network.join(weather, weather), Config::default()).unwrap());
        }
        let nodes = peers.into_iter().map(|peer| Node { peer, world: World::new(), news: Vec::new() }).collect();
        let mut three = Self { nodes, now: Duration::ZERO, seed };
        while !three.nodes.iter().all(|n| n.peer.is_in_session()) {
            three.run(1);
            assert!(three.now < Duration::from_secs(10), "SEED={seed}: not admitted");
        }
        three
    }

    /// Frames; in each, everything that is drawn anywhere but at the owner is looked at.
    fn run(&mut self, frames: u32) {
        for _ in 0..frames {
            self.now += Duration::from_micros(16_667);
            for Node { peer, world, news } in &mut self.nodes {
                peer.receive(self.now, world).unwrap();
                while peer.next_step(world).is_some() {}
                peer.send(self.now, world).unwrap();
                news.extend(std::iter::from_fn(|| peer.poll_news()));
            }
            self.assert_all_finite();
        }
    }

    fn assert_all_finite(&self) {
        let seed = self.seed;
        for i in [HOST, WATCHER] {
            let Node { peer, world, .. } = &self.nodes[i];
            let mut numbers: Vec<f32> = Vec::new();
            for ahead in [Duration::ZERO, Duration::from_millis(40), Duration::from_secs(2)] {
                let at = self.now + ahead;
                numbers.extend(peer.present::<Exact>(world, at).unwrap().flat_map(|(_, v)| [v.x, v.y]));
                numbers.extend(peer.present::<Stepped>(world, at).unwrap().map(|(_, v)| v.x));
                numbers.extend(peer.present::<Turned>(world, at).unwrap().flat_map(|(_, v)| v.turn));
                numbers.extend(peer.present::<Heading>(world, at).unwrap().map(|(_, v)| v.radians));
            }
            numbers.extend(world.query::<&Exact>().iter().flat_map(|v| [v.x, v.y]));
            numbers.extend(world.query::<&Stepped>().iter().map(|v| v.x));
            numbers.extend(world.query::<&Turned>().iter().flat_map(|v| v.turn));
            numbers.extend(world.query::<&Heading>().iter().map(|v| v.radians));
            assert!(numbers.iter().all(|n| n.is_finite()), "SEED={seed} node {i}: {numbers:?}");
        }
    }

    fn digests(&self, i: usize) -> Vec<u64> {
        self.nodes[i].peer.digests(&self.nodes[i].world)
    }

    fn copies<C: hecs::Component + Copy>(&self) -> [C; 2] {
        [HOST, WATCHER].map(|i| *self.nodes[i].world.query::<&C>().iter().next().expect("the thing is known"))
    }

    fn malformed(&self) -> u64 {
        self.nodes[HOST].peer.stats(PeerId(1)).map_or(0, |s| s.link.malformed)
    }
}

/// Writes a value in the owner's world that cannot travel. It is told once, nobody else sees anything of it, and the next good
/// value arrives.
fn assert_unsendable<C: hecs::Component + Copy + PartialEq + std::fmt::Debug>(
    three: &mut Three,
    entity: Entity,
    bad: C,
    mended: C,
    component: &str,
) {
    let seed = three.seed;
    let (before, digests) = (three.copies::<C>(), three.digests(HOST));
    three.nodes[OWNER].news.clear();
    *three.nodes[OWNER].world.get::<&mut C>(entity).unwrap() = bad;
    three.run(20);
    let told = |n: &&News| matches!(n, News::Unsendable { entity: e, component: c, .. } if *e == entity && c == component);
    let owner = &three.nodes[OWNER];
    assert_eq!(owner.news.iter().filter(told).count(), 1, "SEED={seed} {bad:?}: {:?}", owner.news);
    assert_eq!(three.copies::<C>(), before, "SEED={seed} {bad:?} was seen by others");
    for i in [HOST, WATCHER] {
        assert_eq!(three.digests(i), digests, "SEED={seed} {bad:?}: the digest of a state that did not change");
    }
    assert_eq!(three.malformed(), 0, "SEED={seed}: {bad:?} was sent");
    *three.nodes[OWNER].world.get::<&mut C>(entity).unwrap() = mended;
    three.run(60);
    assert_eq!(three.copies::<C>(), [mended; 2], "SEED={seed}: what came after {bad:?} does not arrive");
    for i in [OWNER, WATCHER] {
        assert_eq!(three.digests(i), three.digests(HOST), "SEED={seed} {bad:?}");
    }
}

fn spawn_good(three: &mut Three) -> Entity {
    let owner = &mut three.nodes[OWNER];
    let entity = owner.peer.spawn(&mut owner.world, Thing, good(1.0)).unwrap();
    three.run(60);
    assert_eq!(three.copies::<Stepped>(), [Stepped { x: 1.0 }; 2], "SEED={}", three.seed);
    entity
}

/// Case 15, from the owner's own world.
#[test]
fn an_owner_does_not_send_what_is_no_number() {
    let mut three = Three::new(1, &schema());
    let entity = spawn_good(&mut three);
    for (i, bad) in not_finite().into_iter().enumerate() {
        let i = i as f32 + 2.0;
        assert_unsendable(&mut three, entity, Exact { x: bad, y: 1.0 }, Exact { x: i, y: 1.0 }, "exact");
        assert_unsendable(&mut three, entity, Exact { x: i, y: bad }, Exact { x: i, y: 2.0 }, "exact");
        assert_unsendable(&mut three, entity, Stepped { x: bad }, Stepped { x: i }, "stepped");
        assert_unsendable(&mut three, entity, Turned { turn: [bad, 0.0, 0.0, 1.0] }, Turned { turn: ID }, "turned");
        assert_unsendable(&mut three, entity, Heading { radians: bad }, Heading { radians: 0.0 }, "heading");
    }
    assert_unsendable(&mut three, entity, Stepped { x: 1e38 }, Stepped { x: 3.0 }, "stepped");
    assert_unsendable(&mut three, entity, Stepped { x: -500.01 }, Stepped { x: 4.0 }, "stepped");
    assert_unsendable(&mut three, entity, Turned { turn: [0.0; 4] }, Turned { turn: ID }, "turned");
    assert_unsendable(&mut three, entity, Turned { turn: [-0.0; 4] }, Turned { turn: ID }, "turned");
}

/// What is odd but a number travels; −0.0 becomes 0.0 for all.
#[test]
fn odd_numbers_arrive_as_they_are() {
    let mut three = Three::new(2, &schema());
    let entity = spawn_good(&mut three);
    for odd in [f32::from_bits(1), -f32::from_bits(0x007f_ffff), f32::MIN_POSITIVE, 1e38, -1e38, f32::MAX, f32::MIN] {
        three.nodes[OWNER].world.get::<&mut Exact>(entity).unwrap().x = odd;
        three.run(40);
        assert_eq!(three.copies::<Exact>().map(|e| e.x.to_bits()), [odd.to_bits(); 2], "SEED=2: {odd:e}");
    }
    // from one end of all floats to the other, drawn between and beyond
    for i in 0..60 {
        three.nodes[OWNER].world.get::<&mut Exact>(entity).unwrap().x = if i % 2 == 0 { f32::MAX } else { f32::MIN };
        three.run(1);
    }
    three.nodes[OWNER].world.get::<&mut Exact>(entity).unwrap().x = -0.0;
    three.nodes[OWNER].world.get::<&mut Stepped>(entity).unwrap().x = -0.0;
    three.nodes[OWNER].world.get::<&mut Heading>(entity).unwrap().radians = -0.0;
    let huge = Turned { turn: [1e38, -1e38, 1e38, -1e38] };
    *three.nodes[OWNER].world.get::<&mut Turned>(entity).unwrap() = huge;
    three.run(60);
    for copy in three.copies::<Exact>() {
        assert_eq!(copy.x.to_bits(), 0, "SEED=2: −0.0 is told apart from 0.0");
    }
    for copy in three.copies::<Turned>() {
        let length: f32 = copy.turn.iter().map(|v| v * v).sum();
        assert!((length - 1.0).abs() < 1e-3, "SEED=2: {copy:?}");
    }
    for i in [OWNER, WATCHER] {
        assert_eq!(three.digests(i), three.digests(HOST), "SEED=2: equal states, node {i}");
    }
    for tiny in [Turned { turn: [f32::from_bits(1), 0.0, 0.0, 0.0] }, Turned { turn: [0.0, 1e-38, 0.0, 0.0] }] {
        *three.nodes[OWNER].world.get::<&mut Turned>(entity).unwrap() = tiny;
        three.run(40);
        assert!(three.nodes[OWNER].news.iter().all(|n| !matches!(n, News::Unsendable { .. })), "SEED=2: {tiny:?}");
    }
}

/// A thing that is spawned with a value that cannot travel appears without it, and gets it when it is mended. The next thing
/// with such a value is told of again, though it may stand in the place of the first.
#[test]
fn a_spawn_with_a_broken_value_is_whole_when_it_is_mended() {
    let mut three = Three::new(3, &schema());
    for round in 0..3 {
        let owner = &mut three.nodes[OWNER];
        owner.news.clear();
        let mut parts = good(1.0);
        parts.0.x = f32::NAN;
        let entity = owner.peer.spawn(&mut owner.world, Thing, parts).unwrap();
        three.run(60);
        let told = |n: &&News| matches!(n, News::Unsendable { component, .. } if component == "exact");
        assert_eq!(three.nodes[OWNER].news.iter().filter(told).count(), 1, "SEED=3 round {round}");
        for i in [HOST, WATCHER] {
            assert_eq!(three.nodes[i].world.query::<&Stepped>().iter().count(), 1, "SEED=3 round {round} node {i}");
            assert_eq!(three.nodes[i].world.query::<&Exact>().iter().count(), 0, "SEED=3 round {round} node {i}");
        }
        if round == 1 {
            three.nodes[OWNER].world.get::<&mut Exact>(entity).unwrap().x = 7.0;
            three.run(60);
            assert_eq!(three.copies::<Exact>(), [Exact { x: 7.0, y: 0.5 }; 2], "SEED=3");
        }
        let owner = &mut three.nodes[OWNER];
        owner.peer.despawn(&mut owner.world, entity).unwrap();
        three.run(120);
    }
}

/// A hostile build's component: the layout is that of the honest one, the words are whatever it likes.
macro_rules! hostile {
    ($name:ident, $words:literal, |$l:ident| $layout:expr) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        struct $name([u32; $words]);

        impl Replicate for $name {
            type Raw = [u32; $words];
            const WORDS: usize = $words;
            fn layout($l: &mut LayoutBuilder) {
                $layout;
            }
            fn raw(&self) -> Self::Raw {
                self.0
            }
            fn quantise(&self, out: &mut Quantiser<'_>) -> Result<(), FieldError> {
                self.0.iter().for_each(|word| out.choice(*word));
                Ok(())
            }
            fn restore(from: &mut Restorer<'_>) -> Result<Self, RestoreError> {
                let mut words = [0; $words];
                for word in &mut words {
                    *word = from.choice("word", u32::MAX)?;
                }
                Ok(Self(words))
            }
        }

        impl Interpolate for $name {
            fn interpolate(from: &Self, _: &Self, _: f32) -> Self {
                *from
            }
        }
    };
}

const STEPS: Step = Step::f32(0.01, -500.0, 500.0);
hostile!(HostileExact, 2, |l| {
    l.float("x");
    l.float("y");
});
hostile!(HostileStepped, 1, |l| l.number("x", &STEPS, STEP_ORDER));
hostile!(HostileTurned, 4, |l| l.quat("turn", 12));
hostile!(HostileHeading, 1, |l| l.angle("radians", 12));

fn hostile_schema() -> Schema {
    Schema::builder("numbers")
        .component::<HostileExact>("exact", |c| c.interpolate())
        .component::<HostileStepped>("stepped", |c| c.interpolate())
        .component::<HostileTurned>("turned", |c| c.interpolate())
        .component::<HostileHeading>("heading", |c| c.interpolate())
        .kind::<Thing>("thing", Owner::default())
        .build()
        .unwrap()
}

fn hostile_good() -> (HostileExact, HostileStepped, HostileTurned, HostileHeading) {
    let h = (1 << 11) - 1;
    let one = 1.0f32.to_bits();
    (HostileExact([one, one]), HostileStepped([50_100]), HostileTurned([3, h, h, h]), HostileHeading([0]))
}

/// The hostile owner sends `bad`. Every packet with it is refused as a whole and counted, nothing of it is seen, and the owner is
/// removed after the sixteenth.
fn assert_refused<C: hecs::Component + Copy + std::fmt::Debug>(seed: u64, bad: C) {
    let mut three = Three::new(seed, &hostile_schema());
    let owner = &mut three.nodes[OWNER];
    let entity = owner.peer.spawn(&mut owner.world, Thing, hostile_good()).unwrap();
    three.run(180); // a loss before any round trip was measured is found late
    assert_eq!(three.copies::<Stepped>(), [Stepped { x: 1.0 }; 2], "SEED={seed}: the hostile build speaks the protocol");
    let digests = three.digests(HOST);
    *three.nodes[OWNER].world.get::<&mut C>(entity).unwrap() = bad;
    let mut counted = 0;
    for _ in 0..600 {
        three.run(1);
        if three.nodes[HOST].peer.peers().len() < 3 {
            break;
        }
        counted = three.malformed();
        for i in [HOST, WATCHER] {
            let own = three.digests(i);
            assert_eq!(own, digests, "SEED={seed} {bad:?} was applied by node {i}");
        }
    }
    assert!(counted >= 1, "SEED={seed}: {bad:?} was not counted");
    let misbehaved = |n: &News| {
        let cause = BitError::OutOfRange;
        matches!(n, News::Misbehaved { peer: PeerId(1), error: PeerError::Malformed { cause: c, .. } } if *c == cause)
    };
    let host = &three.nodes[HOST].news;
    assert!(host.iter().any(misbehaved), "SEED={seed} {bad:?}: {host:?}");
    three.run(60);
    assert_eq!(three.nodes[OWNER].peer.ended(), Some(&DisconnectReason::Malformed), "SEED={seed} {bad:?}");
    assert!(three.nodes[WATCHER].peer.is_in_session(), "SEED={seed}: somebody else paid for it");
}

/// Case 15, from a hostile peer.
#[test]
fn a_host_does_not_take_what_is_no_number() {
    assert_eq!(hostile_schema().digest(), schema().digest(), "the hostile build passes for the honest one");
    let one = 1.0f32.to_bits();
    let infinities = [f32::INFINITY.to_bits(), f32::NEG_INFINITY.to_bits()];
    let negative_zero = 0x8000_0000;
    for (seed, bad) in NANS.into_iter().chain(infinities).chain([negative_zero]).enumerate() {
        assert_refused(seed as u64, HostileExact([bad, one]));
        assert_refused(seed as u64, HostileExact([one, bad]));
    }
    for word in [100_001, 131_071] {
        assert_refused(20, HostileStepped([word]));
    }
    let (h, top) = ((1 << 11) - 1, (1 << 12) - 1);
    // a part beyond its range; three parts that leave nothing for the largest; a largest that is not
    for words in [[0, top, h, h], [0, 0, 0, 0], [3, h, h, 2 * h], [1, 2 * h, h, h]] {
        assert_refused(30, HostileTurned(words));
    }
}

/// What a hostile peer may send, since it is a number: huge and tiny ones. They are shown, and whatever is drawn is finite.
#[test]
fn a_hostile_peer_may_send_numbers() {
    let mut three = Three::new(4, &hostile_schema());
    let owner = &mut three.nodes[OWNER];
    let entity = owner.peer.spawn(&mut owner.world, Thing, hostile_good()).unwrap();
    three.run(60);
    for n in 0..200u32 {
        let odd = [f32::MAX, f32::MIN, 1e38, f32::from_bits(1), -f32::from_bits(1), 0.0][n as usize % 6];
        let words = [odd.to_bits(), (-odd + 0.0).to_bits()];
        *three.nodes[OWNER].world.get::<&mut HostileExact>(entity).unwrap() = HostileExact(words);
        *three.nodes[OWNER].world.get::<&mut HostileHeading>(entity).unwrap() = HostileHeading([n * 37 % 4096]);
        three.run(1);
    }
    three.run(60);
    assert_eq!(three.malformed(), 0, "SEED=4");
    assert_eq!(three.digests(WATCHER), three.digests(HOST), "SEED=4");
}
