//! A recording through a host, a guest and the loopback on virtual time: one tick, one send per moment. Acknowledgements come back so
//! late that in steady state the newest moment that the host knows the guest to have is exactly so many ticks old.

use crate::meter::timed;
use crate::recording::{Pose, Recording};
use crate::tap::{Counts, Tap};
use crate::training::Training;
use hecs::{Entity, World};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tidelock::netcore::transport::LinkId;
use tidelock::policy::Host;
use tidelock::trained::Tables;
use tidelock::{Config, Peer, PeerId, Replicate, Schema};
use tidelock_loopback::{Conditions, Network};

/// What the transport adds to a datagram on the wire: IPv4, UDP, and QUIC with an authentication tag.
pub const OVERHEAD: usize = 28 + 32;
/// Frames within which the guest must be in, or have everything.
const PATIENCE: u64 = 600;

/// A set of components that show a body.
pub trait Body {
    /// The schema.
    fn schema() -> Schema;
    /// Spawns a body.
    fn spawn(peer: &mut Peer, world: &mut World, pose: &Pose) -> Entity;
    /// Writes its pose where it differs.
    fn show(world: &World, entity: Entity, pose: &Pose);
}

/// The one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thing;

/// Metres, in steps of 1/512.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct CubePlace {
    #[net(step = 0.001953125, range = -256.0..=255.998046875)]
    x: f32,
    #[net(step = 0.001953125, range = -256.0..=255.998046875)]
    y: f32,
    #[net(step = 0.001953125, range = 0.0..=31.998046875)]
    z: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct CubeTurn(#[net(quat, bits = 9)] [f32; 4]);

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Touched(bool);

/// Metres, in steps of 1/100.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct RockPlace {
    #[net(step = 0.01, range = -64.0..=64.0)]
    x: f32,
    #[net(step = 0.01, range = -64.0..=64.0)]
    y: f32,
    #[net(step = 0.01, range = -64.0..=64.0)]
    z: f32,
}

/// Eleven bits: a step is 0.0007.
#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct RockTurn(#[net(quat, bits = 11)] [f32; 4]);

fn set<C: hecs::Component + PartialEq>(world: &World, entity: Entity, value: C) {
    let mut at = world.get::<&mut C>(entity).expect("the host's own entities stay");
    if *at != value {
        *at = value;
    }
}

/// A cube.
pub struct Cube;

impl Body for Cube {
    fn schema() -> Schema {
        Schema::builder("cubes")
            .component::<CubePlace>("place", |c| c)
            .component::<CubeTurn>("turn", |c| c)
            .component::<Touched>("touched", |c| c)
            .kind::<Thing>("cube", Host::default())
            .build()
            .expect("the schema is sound")
    }

    fn spawn(peer: &mut Peer, world: &mut World, pose: &Pose) -> Entity {
        let [x, y, z] = pose.position;
        let all = (CubePlace { x, y, z }, CubeTurn(pose.rotation), Touched(pose.touched));
        peer.spawn(world, Thing, all).expect("a host may spawn")
    }

    fn show(world: &World, entity: Entity, pose: &Pose) {
        let [x, y, z] = pose.position;
        set(world, entity, CubePlace { x, y, z });
        set(world, entity, CubeTurn(pose.rotation));
        set(world, entity, Touched(pose.touched));
    }
}

/// An asteroid.
pub struct Rock;

impl Body for Rock {
    fn schema() -> Schema {
        Schema::builder("asteroids")
            .component::<RockPlace>("place", |c| c)
            .component::<RockTurn>("turn", |c| c)
            .kind::<Thing>("rock", Host::default())
            .build()
            .expect("the schema is sound")
    }

    fn spawn(peer: &mut Peer, world: &mut World, pose: &Pose) -> Entity {
        let [x, y, z] = pose.position;
        peer.spawn(world, Thing, (RockPlace { x, y, z }, RockTurn(pose.rotation))).expect("a host may spawn")
    }

    fn show(world: &World, entity: Entity, pose: &Pose) {
        let [x, y, z] = pose.position;
        set(world, entity, RockPlace { x, y, z });
        set(world, entity, RockTurn(pose.rotation));
    }
}

/// What a recording took; the first moments, in which delays have not come to rest, are left out.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Moments that were counted.
    pub moments: u64,
    /// Bytes of state packets, the framework's own headers included.
    pub payload: u64,
    /// Bytes to the guest on the wire: [`OVERHEAD`] for each packet, and everything else that was sent.
    pub wire: u64,
    /// CPU nanoseconds of the host's `send`.
    pub encode: u64,
    /// CPU nanoseconds of the guest's `receive`.
    pub decode: u64,
    /// Bits of it by what they are for: each component's values under its name, heads of entries and codings, and headers.
    pub parts: Vec<(String, u64)>,
    /// Did the guest's world hold what the host's does, in the end?
    pub equal: bool,
}

struct Run {
    host: (Peer, World),
    guest: (Peer, World),
    counts: Arc<Counts>,
    rate: u32,
    frame: u64,
}

impl Run {
    fn new<B: Body>(rate: u32, age: u32, seed: u64, tables: Option<Tables>) -> Self {
        let network = Network::new(seed);
        let (transport, counts) = Tap::new(network.host(), 8);
        let config =
            || Config { tick_rate: rate, bandwidth: 1 << 33, session: Some(1), tables: tables.clone(), ..Config::default() };
        let down = Conditions { overhead: OVERHEAD, ..Conditions::default() };
        // what a guest sends in a frame comes in before the frame `age` later, half a tick early
        let up = Conditions { latency: Duration::from_secs(1) / (rate * 2) * (2 * age - 1), ..down };
        let host = Peer::host(B::schema(), transport, config()).expect("the settings are sound");
        let guest = Peer::join(B::schema(), network.join(up, down), config()).expect("the settings are sound");
        Self { host: (host, World::new()), guest: (guest, World::new()), counts, rate, frame: 0 }
    }

    /// One frame; gives CPU nanoseconds of the host's `send` and the guest's `receive`.
    fn frame(&mut self, show: impl FnOnce(&World)) -> (u64, u64) {
        let now = Duration::from_nanos((self.frame * 1_000_000_000).div_ceil(u64::from(self.rate)));
        self.frame += 1;
        let (peer, world) = &mut self.host;
        peer.receive(now, world).expect("time goes on");
        while peer.next_step(world).is_some() {}
        show(world);
        let sent = timed(|| peer.send(now, world).expect("time goes on")).1;
        let (peer, world) = &mut self.guest;
        let received = timed(|| peer.receive(now, world).expect("time goes on")).1;
        while peer.next_step(world).is_some() {}
        peer.send(now, world).expect("time goes on");
        (sent.cpu, received.cpu)
    }

    fn is_equal(&self) -> bool {
        let (host, guest) = (&self.host, &self.guest);
        guest.0.is_in_session() && host.0.digests(&host.1) == guest.0.digests(&guest.1)
    }

    /// Frames without changes until the guest has everything.
    fn settle(&mut self) -> bool {
        (0..PATIENCE).any(|_| {
            self.frame(|_| ());
            self.is_equal()
        })
    }

    /// Bits sent so far by what they are for.
    fn parts(&self) -> Vec<(String, u64)> {
        let traffic = self.host.0.traffic(PeerId(1)).unwrap_or_default();
        let (bytes, _) = self.bytes();
        let known = traffic.components.iter().map(|c| c.1).sum::<u64>() + traffic.heads;
        let rest = [("heads".to_owned(), traffic.heads), ("headers".to_owned(), (bytes * 8).saturating_sub(known))];
        traffic.components.into_iter().chain(rest).collect()
    }

    fn bytes(&self) -> (u64, u64) {
        let stats = self.host.0.stats(PeerId(1)).unwrap_or_default();
        let links = (0..8).map(|n| self.counts.sent(LinkId(n))).sum();
        (stats.sent.state_bytes, links)
    }
}

/// Plays a recording; the host's baselines are `age` ticks old. The first `warm_up` moments are not counted.
///
/// # Errors
/// If files of tables or of what is recorded cannot be read or written.
///
/// # Panics
/// If the guest does not get in.
pub fn play<B: Body>(
    recording: &Recording,
    age: u32,
    warm_up: usize,
    seed: u64,
    training: &Training,
) -> Result<Cost, Box<dyn Error>> {
    let mut run = Run::new::<B>(recording.rate(), age, seed, training.tables()?);
    let (peer, world) = &mut run.host;
    peer.receive(Duration::ZERO, world).expect("time has just begun");
    let entities: Vec<Entity> = recording.moment(0).iter().map(|pose| B::spawn(peer, world, pose)).collect();
    assert!(run.settle(), "the guest did not have the first state after {PATIENCE} frames");
    training.begin(&mut run.host.0);
    let (mut cost, mut before, mut parts) = (Cost::default(), (0, 0), Vec::new());
    for n in 0..recording.moments() {
        if n == warm_up {
            (before, parts) = (run.bytes(), run.parts());
        }
        let (encode, decode) = run.frame(|world| {
            entities.iter().zip(recording.moment(n)).for_each(|(entity, pose)| B::show(world, *entity, pose));
        });
        if n >= warm_up {
            cost.moments += 1;
            cost.encode += encode;
            cost.decode += decode;
        }
    }
    let after = run.bytes();
    (cost.payload, cost.wire) = (after.0 - before.0, after.1 - before.1);
    cost.parts = run.parts().into_iter().zip(parts).map(|((name, bits), before)| (name, bits - before.1)).collect();
    training.end(&mut run.host.0)?;
    cost.equal = run.settle();
    Ok(cost)
}
