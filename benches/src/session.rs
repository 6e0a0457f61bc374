//! A whole session in one process on virtual time: a host, its guests, and the loopback between them. In every frame exactly one
//! tick is due.

use crate::alloc::{Side, within};
use crate::cast::Cast;
use crate::crowd::{Crowd, Generator};
use crate::meter::{Reading, timed};
use crate::tap::Aside;
use hecs::{Entity, World};
use std::collections::BTreeSet;
use std::time::Duration;
use tidelock::trained::Tables;
use tidelock::{Config, NetId, Networked, News, Peer, PeerId, Relevance, Room};
use tidelock_loopback::{Conditions, Network};

/// Ticks, and sends, per second.
pub const RATE: u32 = 60;
/// Frames within which everybody must have joined and hold the first state.
const JOIN_FRAMES: u64 = 1200;

/// What the network does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// How many ticks acknowledgements are under way, beyond the next tick.
    pub ack_delay: u32,
    /// The part of the datagrams that is lost, in both directions.
    pub loss: f64,
    /// Decides which.
    pub seed: u64,
    /// Every guest's acknowledgements are under way for a time of its own, 1 to [`DELAYS`] ticks, instead of
    /// [`ack_delay`](Self::ack_delay).
    pub delays: bool,
}

/// The longest of the guests' own delays, in ticks.
pub const DELAYS: usize = 12;

/// What of the crowd each guest sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// Everything.
    #[default]
    All,
    /// A random half of its own, by a rule that is asked of each guest and entity.
    HalfByRule,
    /// The same half, by rooms: one for each guest.
    HalfByRooms,
}

/// What else is unlike a crowd that everybody sees all of, and that nobody enters or leaves.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// What each guest sees.
    pub seen: Seen,
    /// The part of the entities that ends in each tick, and is replaced by as many new ones.
    pub churn: f32,
    /// The host's trained tables.
    pub tables: Option<Tables>,
}

/// A peer and its world.
pub struct Node {
    /// The peer.
    pub peer: Peer,
    /// Its world.
    pub world: World,
}

/// What one frame took.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The host's `receive`: acknowledgements.
    pub host_receive: Reading,
    /// The host's `send`: from the end of the simulation to bytes in the transport.
    pub host_send: Reading,
    /// The host's calls of `spawn` and `despawn`.
    pub churn: Reading,
    /// Each guest's `receive`: decoding and applying.
    pub guest_receive: Vec<Reading>,
    /// Each guest's `send`.
    pub guest_send: Vec<Reading>,
    /// Bytes that the host handed to the transport for each guest.
    pub bytes: Vec<u64>,
}

/// The session.
pub struct Session<C> {
    /// The host.
    pub host: Node,
    /// The guests.
    pub guests: Vec<Node>,
    /// What the host simulates.
    pub crowd: Crowd,
    entities: Vec<Entity>,
    shape: Shape,
    seed: u64,
    /// All members in the order in which they are replaced, and how many were.
    ends: (Vec<u32>, usize),
    sent: Vec<u64>,
    frame: u64,
    cast: std::marker::PhantomData<C>,
}

fn config() -> Config {
    Config { tick_rate: RATE, send_every: 1, bandwidth: 1 << 33, guests: 1000, session: Some(1), ..Config::default() }
}

/// When frame `n` begins: the first nanosecond in which tick `n` is due.
fn time_of(n: u64) -> Duration {
    Duration::from_nanos((n * 1_000_000_000).div_ceil(u64::from(RATE)))
}

/// Does the guest see the entity, where it sees a half? Says the same of both at any time.
fn in_half(seed: u64, guest: PeerId, entity: Entity) -> bool {
    let mixed = Generator::new(seed ^ entity.to_bits().get().rotate_left(16) ^ u64::from(guest.0)).below(2);
    mixed == 0
}

fn half_by_rule(seed: u64) -> Relevance {
    Relevance::everything().rule(move |sight| in_half(seed, sight.peer(), sight.entity()))
}

/// A guest's room.
fn room_of(guest: PeerId) -> Room {
    Room(u64::from(guest.0))
}

/// One that joins; `ticks`: how long its acknowledgements are under way beyond the next tick.
fn guest<C: Cast>(network: &Network, ticks: u32, loss: f64) -> Node {
    // half a tick more: they arrive between two frames
    let halves = if ticks == 0 { 0 } else { ticks * 2 + 1 };
    let down = Conditions { loss, ..Conditions::default() };
    let up = Conditions { latency: Duration::from_secs(1) / (RATE * 2) * halves, ..down };
    let transport = within(Side::Network, || Aside(network.join(up, down)));
    within(Side::Guest, || Node {
        peer: Peer::join(C::schema(), transport, config()).expect("the settings are sound"),
        world: World::new(),
    })
}

impl<C: Cast> Session<C> {
    /// A session whose guests are all in and hold the first state of the crowd.
    ///
    /// # Panics
    /// If they do not get there within 20 s of virtual time.
    #[must_use]
    pub fn new(crowd: Crowd, guests: usize, weather: Weather) -> Self {
        Self::shaped(crowd, guests, weather, Shape::default())
    }

    /// The same with guests or a crowd that are unlike.
    ///
    /// # Panics
    /// If they do not get there within 20 s of virtual time.
    #[must_use]
    pub fn shaped(crowd: Crowd, guests: usize, weather: Weather, shape: Shape) -> Self {
        let network = within(Side::Network, || Network::new(weather.seed));
        let mut delays = Generator::new(weather.seed);
        let mut delay = || if weather.delays { 1 + delays.below(DELAYS) as u32 } else { weather.ack_delay };
        let transport = within(Side::Network, || Aside(network.host()));
        let host = within(Side::Host, || {
            let config = Config { tables: shape.tables.clone(), ..config() };
            let mut peer = Peer::host(C::schema(), transport, config).expect("the settings are sound");
            let relevance = match shape.seen {
                Seen::All => None,
                Seen::HalfByRule => Some(half_by_rule(weather.seed)),
                Seen::HalfByRooms => Some(Relevance::everything()),
            };
            relevance.into_iter().for_each(|r| peer.set_relevance(r).expect("nobody is in yet"));
            Node { peer, world: World::new() }
        });
        let guests: Vec<_> = (0..guests).map(|_| guest::<C>(&network, delay(), weather.loss)).collect();
        let sent = vec![0; guests.len()];
        let (entities, ends) = (Vec::with_capacity(crowd.len()), (shuffled(crowd.len(), weather.seed), 0));
        let (seed, cast) = (weather.seed, std::marker::PhantomData);
        let mut session = Self { host, guests, crowd, entities, shape, seed, ends, sent, frame: 0, cast };
        session.populate();
        session.settle(JOIN_FRAMES);
        assert!(session.is_equal(), "SEED={}: not everybody had the first state after 20 s", weather.seed);
        session
    }

    fn populate(&mut self) {
        let Node { peer, world } = &mut self.host;
        within(Side::Host, || peer.receive(Duration::ZERO, world).expect("time has just begun"));
        for i in 0..self.crowd.len() {
            let entity = self.spawn(i);
            self.entities.push(entity);
        }
    }

    fn spawn(&mut self, i: usize) -> Entity {
        let (Node { peer, world }, crowd, seed) = (&mut self.host, &self.crowd, self.seed);
        within(Side::Host, || {
            let entity = C::spawn(peer, world, crowd, i);
            if self.shape.seen == Seen::HalfByRooms {
                let guests = (1..=self.guests.len() as u16).map(PeerId).filter(|g| in_half(seed, *g, entity));
                // what is in no room would be for everybody
                let guests = guests.chain([PeerId::HOST]);
                guests.for_each(|g| peer.put_in_room(world, entity, room_of(g)).expect("it was just spawned"));
            }
            entity
        })
    }

    /// The time of the next frame.
    #[must_use]
    pub fn now(&self) -> Duration {
        time_of(self.frame)
    }

    /// Lets the crowd take a step and runs a frame.
    pub fn tick(&mut self) -> Frame {
        self.crowd.step();
        self.frame(true)
    }

    /// Runs a frame; `moving`: the host's world takes over what the crowd's last step changed.
    pub fn frame(&mut self, moving: bool) -> Frame {
        let now = self.now();
        self.frame += 1;
        let mut frame = Frame::default();
        self.host_frame(now, moving, &mut frame);
        self.guest_frames(now, &mut frame);
        for (guest, sent) in self.guests.iter().zip(&mut self.sent) {
            let total = self.host.peer.stats(guest.peer.local()).map_or(0, |s| s.sent.bytes);
            frame.bytes.push(total - *sent);
            *sent = total;
        }
        frame
    }

    /// The host's part. A function of its own, by whose name instructions are counted: `benches/instructions`.
    #[inline(never)]
    fn host_frame(&mut self, now: Duration, moving: bool, frame: &mut Frame) {
        let Node { peer, world } = &mut self.host;
        within(Side::Host, || {
            frame.host_receive = timed(|| peer.receive(now, world).expect("time goes on")).1;
            while peer.next_step(world).is_some() {}
        });
        self.let_in();
        if moving {
            frame.churn = timed(|| self.replace()).1;
            C::show(&mut self.host.world, &self.entities, &self.crowd);
        }
        let Node { peer, world } = &mut self.host;
        within(Side::Host, || frame.host_send = timed(|| peer.send(now, world).expect("time goes on")).1);
    }

    /// The guests' part; see [`host_frame`](Self::host_frame).
    #[inline(never)]
    fn guest_frames(&mut self, now: Duration, frame: &mut Frame) {
        for Node { peer, world } in &mut self.guests {
            let (receive, send) = within(Side::Guest, || {
                let receive = timed(|| peer.receive(now, world).expect("time goes on")).1;
                while peer.poll_news().is_some() {}
                while peer.next_step(world).is_some() {}
                (receive, timed(|| peer.send(now, world).expect("time goes on")).1)
            });
            frame.guest_receive.push(receive);
            frame.guest_send.push(send);
        }
    }

    /// Takes the host's news. Lets guests who have just come into their rooms, if there are rooms.
    fn let_in(&mut self) {
        let Node { peer, .. } = &mut self.host;
        within(Side::Host, || {
            while let Some(news) = peer.poll_news() {
                if let (News::Joined { peer: guest, .. }, Seen::HalfByRooms) = (news, self.shape.seen) {
                    peer.enter_room(guest, room_of(guest)).expect("it has just come");
                }
            }
        });
    }

    /// Ends some, and begins as many.
    fn replace(&mut self) {
        let count = (self.crowd.len() as f32 * self.shape.churn).round() as usize;
        for _ in 0..count {
            let i = self.ends.0[self.ends.1 % self.ends.0.len()] as usize;
            self.ends.1 += 1;
            let (Node { peer, world }, old) = (&mut self.host, self.entities[i]);
            within(Side::Host, || peer.despawn(world, old).expect("the host's own entities stay"));
            self.entities[i] = self.spawn(i);
        }
    }

    /// Runs frames without changes until all guests hold what they are to hold, or `most` have been run.
    pub fn settle(&mut self, most: u64) {
        for n in 0..most {
            self.frame(false);
            let all_in = self.guests.iter().all(|g| g.peer.is_in_session() && g.peer.entity_count() > 0 || self.crowd.is_empty());
            if all_in && n.is_multiple_of(30) && self.is_equal() {
                return;
            }
        }
    }

    /// Do all guests' worlds hold exactly what of the host's world they are to see, quantised?
    #[must_use]
    pub fn is_equal(&self) -> bool {
        let Node { peer, world } = &self.host;
        if self.shape.seen == Seen::All {
            let digests = peer.digests(world);
            return self.guests.iter().all(|g| g.peer.digests(&g.world) == digests);
        }
        self.guests.iter().all(|g| {
            let is_same = peer.digests_for(world, g.peer.local()).is_ok_and(|d| d == g.peer.digests(&g.world));
            is_same && names(&g.world, |_| true) == names(world, |entity| in_half(self.seed, g.peer.local(), entity))
        })
    }
}

/// The names of a world's networked entities, or of some.
fn names(world: &World, some: impl Fn(Entity) -> bool) -> BTreeSet<NetId> {
    let mut all = world.query::<(Entity, &Networked)>();
    all.iter().filter(|(entity, _)| some(*entity)).map(|(_, networked)| networked.id()).collect()
}

/// All members, in an order by chance.
fn shuffled(n: usize, seed: u64) -> Vec<u32> {
    let (mut all, mut chance): (Vec<u32>, _) = ((0..n as u32).collect(), Generator::new(seed ^ 0x5eed));
    (1..n).for_each(|i| all.swap(i, chance.below(i + 1)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::{Full, Points};
    use crate::crowd::Motion;

    #[test]
    fn guests_follow_through_loss_and_delay() {
        let weather = Weather { ack_delay: 6, loss: 0.05, seed: 3, delays: false };
        let mut session = Session::<Full>::new(Crowd::new(500, 0.2, Motion::Turning), 2, weather);
        for _ in 0..80 {
            let tick = session.host.peer.tick();
            session.tick();
            assert_eq!(session.host.peer.tick(), tick.plus(1), "SEED={}", weather.seed);
        }
        session.settle(300);
        assert!(session.is_equal(), "SEED={}", weather.seed);
    }

    #[test]
    fn each_guest_gets_its_half_with_a_delay_of_its_own_while_the_crowd_is_replaced() {
        for (seed, seen) in [(5, Seen::HalfByRule), (6, Seen::HalfByRooms), (7, Seen::All)] {
            let weather = Weather { loss: 0.05, seed, delays: true, ..Weather::default() };
            let shape = Shape { seen, churn: 0.02, tables: None };
            let mut session = Session::<Full>::shaped(Crowd::new(400, 0.5, Motion::Steady), 3, weather, shape);
            let first = names(&session.host.world, |_| true);
            (0..60).for_each(|_| _ = session.tick());
            assert!(!session.is_equal(), "SEED={seed}: it is told at once, through loss and delay");
            session.settle(300);
            assert!(session.is_equal(), "SEED={seed}");
            let here = names(&session.host.world, |_| true);
            assert!(here.len() == 400 && here.is_disjoint(&first), "SEED={seed}: 60 times 2 % replace everybody");
            let counts: Vec<_> = session.guests.iter().map(|g| g.peer.entity_count()).collect();
            let most = if seen == Seen::All { 400..=400 } else { 150..=250 };
            assert!(counts.iter().all(|n| most.contains(n)), "SEED={seed}: {counts:?}");
            let halves: BTreeSet<_> = session.guests.iter().map(|g| names(&g.world, |_| true)).collect();
            assert_eq!(halves.len(), if seen == Seen::All { 1 } else { 3 }, "SEED={seed}: halves are unlike");
        }
    }

    #[test]
    fn another_schema_runs_the_same_way() {
        let mut session = Session::<Points>::new(Crowd::new(300, 0.5, Motion::Steady), 1, Weather::default());
        let bytes: u64 = (0..20).map(|_| session.tick().bytes[0]).sum();
        session.settle(60);
        assert!(session.is_equal() && bytes > 0);
    }
}
