//! The stadium: guests who walk among many others and get the nearest of them, over the loopback on virtual time. In every frame
//! exactly one tick is due, and one send.

pub mod audit;
pub mod walkers;

use crate::alloc;
use crate::meter::{Reading, timed};
use crate::tap::{Counts, Tap};
use audit::{Ages, Trail};
use hecs::{Entity, World};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tidelock::netcore::transport::LinkId;
use tidelock::{Config, Peer, PeerId, Relevance, Viewpoint};
use tidelock_loopback::{Conditions, Network};
use walkers::{Avatar, Place, RATE, Walker, Walkers, schema};

/// One frame.
pub const FRAME: Duration = Duration::from_millis(1000 / RATE as u64);
/// Guests that come in a frame.
const JOINERS: usize = 20;
/// Frames of the first guest alone: longer than the history remembers.
const ALONE_FRAMES: u64 = 80;
/// Frames within which everybody must be in and hold the first state.
const JOIN_FRAMES: u64 = 1200;
/// Delays are from 10 ms on, up to so many more.
const DELAYS_MS: u64 = 140;

/// What each guest gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// How many of the nearest.
    pub rows: usize,
    /// Kilobits per second, overheads included.
    pub kbps: u32,
}

impl Tier {
    /// A classroom.
    pub const CLASS: Self = Self { rows: 32, kbps: 32 };
    /// A stadium.
    pub const STADIUM: Self = Self { rows: 256, kbps: 256 };
}

/// What a session is made from.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Walkers, those of the guests included.
    pub entities: usize,
    /// Guests.
    pub guests: usize,
    /// What they get.
    pub tier: Tier,
    /// The part of the datagrams that is lost, in both directions.
    pub loss: f64,
    /// Decides all that is left to chance.
    pub seed: u64,
    /// Guests' walkers are moved by the host; otherwise each guest moves its own.
    pub host_avatars: bool,
    /// Threads that the guests run on.
    pub threads: usize,
}

/// One guest.
pub struct Guest {
    /// The guest.
    pub peer: Peer,
    /// Its world.
    pub world: World,
    /// How old what it sees is.
    pub ages: Ages,
    link: LinkId,
    /// Frames that what it is sent is under way.
    lag: u64,
    avatar: Option<Entity>,
    /// Totals of its last frames, for sliding seconds.
    sent: VecDeque<u64>,
    /// Bytes of its worst second so far.
    worst_second: u64,
}

/// What one frame took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame {
    /// The host's `receive` and `send`.
    pub host: Reading,
    /// The `receive` alone.
    pub receive: Reading,
}

/// The session.
pub struct Stadium {
    /// The host.
    pub host: Peer,
    /// Its world.
    pub world: World,
    /// All guests, in the order of their walkers.
    pub guests: Vec<Guest>,
    setup: Setup,
    walkers: Walkers,
    /// By walker: the host's own.
    entities: Vec<Option<Entity>>,
    network: Network,
    counts: Arc<Counts>,
    trail: Trail,
    frame: u64,
    moving: bool,
    /// Bytes that the host holds, its world included, its transport not.
    host_bytes: i64,
    /// Those with one guest.
    alone_bytes: i64,
    /// Bytes that everything else holds.
    other_bytes: i64,
}

fn config(tier: Tier) -> Config {
    let bandwidth = u64::from(tier.kbps) * 1000;
    Config { tick_rate: RATE, bandwidth, guests: 1000, session: Some(1), ..Config::default() }
}

impl Stadium {
    /// A session whose guests are all in and see what they are to see.
    ///
    /// # Panics
    /// If they do not get there within a minute of virtual time.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let live = alloc::count().live;
        let network = Network::new(setup.seed);
        let (transport, counts) = Tap::new(network.host(), setup.guests);
        let mut host = Peer::host(schema(), transport, config(setup.tier)).expect("the settings are sound");
        // the nearest are within a circle of about this radius; a third of it is a good cell
        let cell = (setup.tier.rows as f32 * walkers::ROOM / std::f32::consts::PI).sqrt() / 3.0;
        let relevance = Relevance::nearest(setup.tier.rows).place::<Place>(|p| [p.x, p.y, 0.0]).cell(cell);
        // who walks gets half a metre on in half a second; whoever moves faster is looked after sooner
        let relevance = relevance.refresh(RATE / 2);
        host.set_relevance(relevance).expect("nobody is in yet");
        let mut stadium = Self {
            host,
            world: World::new(),
            guests: Vec::new(),
            setup,
            walkers: Walkers::new(setup.entities, setup.seed),
            entities: vec![None; setup.entities],
            network,
            counts,
            trail: Trail::default(),
            frame: 0,
            moving: true,
            host_bytes: alloc::count().live - live,
            alone_bytes: 0,
            other_bytes: 0,
        };
        let ((), populated) = timed(|| stadium.populate());
        stadium.host_bytes += populated.grown;
        stadium.join();
        stadium
    }

    fn populate(&mut self) {
        let Self { host, world, .. } = self;
        host.receive(Duration::ZERO, world).expect("time has just begun");
        let first = if self.setup.host_avatars { 0 } else { self.setup.guests };
        for i in first..self.walkers.len() {
            let entity = host.spawn(world, Walker, self.walkers.show(i)).expect("a host may spawn");
            self.trail.name(host.name_of(world, entity).expect("it was just spawned"), i);
            self.entities[i] = Some(entity);
        }
    }

    fn join(&mut self) {
        // the first comes alone: what the host keeps for having guests at all is not each guest's share
        self.join_one();
        (0..ALONE_FRAMES).for_each(|_| _ = self.tick());
        self.alone_bytes = self.host_bytes();
        for _ in 0..JOIN_FRAMES {
            let rest = self.setup.guests - self.guests.len();
            (0..rest.min(JOINERS)).for_each(|_| self.join_one());
            self.tick();
            if rest == 0 && self.guests.iter().all(|g| g.peer.entity_count() >= self.setup.tier.rows.min(self.setup.entities)) {
                return;
            }
        }
        panic!("SEED={}: not everybody was in and saw enough after a minute", self.setup.seed);
    }

    fn join_one(&mut self) {
        let Setup { seed, loss, guests, .. } = self.setup;
        let i = self.guests.len() as u64;
        // spread evenly, in an order that has nothing to do with who is whose neighbour
        let delay = Duration::from_micros(10_000 + (i * 7919 + seed) % guests as u64 * DELAYS_MS * 1000 / guests as u64);
        let weather = Conditions { latency: delay, loss, ..Conditions::default() };
        let transport = self.network.join(weather, weather);
        let link = transport.link().expect("it is a guest's");
        let peer = Peer::join(schema(), transport, config(self.setup.tier)).expect("the settings are sound");
        let lag = delay.as_nanos().div_ceil(FRAME.as_nanos()) as u64;
        let ages = Ages::default();
        let (world, sent) = (World::new(), VecDeque::new());
        self.guests.push(Guest { peer, world, ages, link, lag, avatar: None, sent, worst_second: 0 });
    }

    /// Lets everybody take a step and runs a frame.
    ///
    /// # Panics
    /// Only by a mistake of this bench.
    pub fn tick(&mut self) -> Frame {
        if self.moving {
            self.walkers.step();
        }
        let now = FRAME * self.frame as u32;
        let Self { host, world, walkers, entities, .. } = self;
        let ((), receive) = timed(|| host.receive(now, world).expect("time goes on"));
        while host.next_step(world).is_some() {}
        for (i, entity) in entities.iter().enumerate().filter_map(|(i, e)| e.map(|e| (i, e))) {
            walkers.write(i, world, entity);
        }
        let ((), send) = timed(|| host.send(now, world).expect("time goes on"));
        let mut frame = Frame { host: receive, receive };
        frame.host += send;
        self.greet();
        let before = alloc::count().live;
        self.trail.note(self.frame, self.walkers.len(), &self.world);
        self.run_guests(now);
        self.count_bytes();
        self.other_bytes += alloc::count().live - before;
        self.host_bytes += frame.host.grown;
        self.frame += 1;
        frame
    }

    /// Takes the host's news; shows those whose walkers are the host's from where they see.
    fn greet(&mut self) {
        let before = alloc::count().live;
        while self.host.poll_news().is_some() {}
        if self.setup.host_avatars && self.frame < JOIN_FRAMES {
            for (i, guest) in self.guests.iter_mut().enumerate().filter(|(_, g)| g.avatar.is_none()) {
                let viewpoint = self.entities[i].map(Viewpoint::Entity).unwrap_or_default();
                if self.host.look_from(guest.peer.local(), viewpoint).is_ok() {
                    guest.avatar = self.entities[i];
                }
            }
        }
        self.host_bytes += alloc::count().live - before;
    }

    fn run_guests(&mut self, now: Duration) {
        let run = Run { now, n: self.frame, walkers: &self.walkers, trail: &self.trail, host_avatars: self.setup.host_avatars };
        let part = self.guests.len().div_ceil(self.setup.threads).max(1);
        std::thread::scope(|scope| {
            for (p, guests) in self.guests.chunks_mut(part).enumerate() {
                let run = &run;
                let work = move || guests.iter_mut().enumerate().for_each(|(i, g)| run.frame(p * part + i, g));
                scope.spawn(work);
            }
        });
        if !self.setup.host_avatars && self.frame < JOIN_FRAMES {
            for (i, guest) in self.guests.iter().enumerate() {
                if let Some(net) = guest.avatar.and_then(|avatar| guest.peer.name_of(&guest.world, avatar)) {
                    self.trail.name(net, i);
                }
            }
        }
    }

    fn count_bytes(&mut self) {
        for guest in &mut self.guests {
            let total = self.counts.sent(guest.link);
            guest.sent.push_back(total);
            if guest.sent.len() > RATE as usize {
                let before = guest.sent.pop_front().unwrap_or_default();
                guest.worst_second = guest.worst_second.max(total - before);
            }
        }
    }

    /// Begins to count: ages and worst seconds from now on.
    pub fn begin(&mut self) {
        for guest in &mut self.guests {
            guest.ages.clear();
            guest.worst_second = 0;
        }
    }

    /// Kilobits in the worst sliding second of any guest, everything included.
    #[must_use]
    pub fn worst_kbps(&self) -> f64 {
        self.guests.iter().map(|g| g.worst_second).max().unwrap_or(0) as f64 * 8.0 / 1000.0
    }

    /// The ages of all guests.
    #[must_use]
    pub fn ages(&self) -> Ages {
        let mut ages = Ages::default();
        self.guests.iter().for_each(|g| ages.add(&g.ages));
        ages
    }

    /// Bytes that the host holds, its world and all guests' share of it included; the packets under way are the network's.
    #[must_use]
    pub fn host_bytes(&self) -> i64 {
        self.host_bytes - self.counts.memory()
    }

    /// Bytes that the guests, the network and this bench hold.
    #[must_use]
    pub fn other_bytes(&self) -> i64 {
        self.other_bytes + self.counts.memory()
    }

    /// Bytes that the host holds for each guest but the first.
    #[must_use]
    pub fn bytes_per_guest(&self) -> f64 {
        (self.host_bytes() - self.alone_bytes) as f64 / self.guests.len().saturating_sub(1).max(1) as f64
    }

    /// State bytes and rows (counted by component) that were sent to all guests so far.
    #[must_use]
    pub fn state_sent(&self) -> (u64, u64) {
        let stats = self.guests.iter().filter_map(|g| self.host.stats(g.peer.local()));
        stats.fold((0, 0), |sum, s| (sum.0 + s.sent.state_bytes, sum.1 + s.sent.rows))
    }

    /// Stops everybody, and waits for at most `frames` until each guest's world holds what it is to see of the host's. How many
    /// do at the end.
    pub fn settle(&mut self, frames: u64) -> usize {
        self.moving = false;
        let mut equal = 0;
        for _ in 0..frames.div_ceil(u64::from(RATE)) {
            for _ in 0..RATE {
                self.tick();
            }
            equal = self.guests.iter().filter(|g| self.is_equal(g)).count();
            if equal == self.guests.len() {
                break;
            }
        }
        equal
    }

    fn is_equal(&self, guest: &Guest) -> bool {
        let local = guest.peer.local();
        let seen = self.host.seen_count(local) == Some(guest.peer.entity_count());
        local != PeerId::NOBODY && seen && self.host.digests_for(&self.world, local) == Ok(guest.peer.digests(&guest.world))
    }
}

/// What a guest's frame needs to know.
struct Run<'a> {
    now: Duration,
    n: u64,
    walkers: &'a Walkers,
    trail: &'a Trail,
    host_avatars: bool,
}

impl Run<'_> {
    fn frame(&self, i: usize, guest: &mut Guest) {
        let Guest { peer, world, ages, lag, avatar, .. } = guest;
        peer.receive(self.now, world).expect("time goes on");
        while peer.poll_news().is_some() {}
        while peer.next_step(world).is_some() {}
        if !self.host_avatars {
            match *avatar {
                Some(entity) => self.walkers.write(i, world, entity),
                // no names yet: in a later frame
                None if peer.is_in_session() => *avatar = peer.spawn(world, Avatar, self.walkers.show(i)).ok(),
                None => {}
            }
        }
        peer.send(self.now, world).expect("time goes on");
        ages.look(self.trail, world, self.n, *lag, i);
        if (self.n + i as u64).is_multiple_of(u64::from(RATE)) {
            ages.search(self.trail, world, self.n, *lag, i);
        }
    }
}
