//! A newcomer to a world of many entities over a thin link: how long it takes, and what the others notice. See the crate's README.

use clap::Parser;
use hecs::{Entity, World};
use std::process::ExitCode;
use std::time::Duration;
use tidelock::{Config, NetId, News, Peer, PeerId, Relevance, Viewpoint};
use tidelock_benches::stadium::walkers::{Place, Walker, Walkers, schema};
use tidelock_loopback::{Conditions, Network};

/// Ticks, sends and frames per second.
const RATE: u32 = 60;
/// Guests that are in already.
const OTHERS: usize = 4;
/// Who comes in after them.
const NEWCOMER: PeerId = PeerId(OTHERS as u16 + 1);
/// Seconds for them to come in and get everything.
const BEFORE: u32 = 10;
/// How many of the nearest are looked for first.
const NEAREST: usize = 100;
/// One way.
const LATENCY: Duration = Duration::from_millis(50);
/// What all may take, as a multiple of bytes ÷ rate.
const BAR: f64 = 1.15;

/// One host, four guests, and one that comes in.
#[derive(Parser)]
struct Options {
    /// Entities.
    #[arg(long, default_value_t = 10_000)]
    entities: usize,
    /// How many of them move; the rest is at rest.
    #[arg(long, default_value_t = 100)]
    moving: usize,
    /// The newcomer's link and bandwidth, in megabits per second.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    mbit: Vec<u32>,
    /// Seconds from the newcomer's coming in that are looked at.
    #[arg(long, default_value_t = 8)]
    seconds: u32,
    /// Decides all that is left to chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

struct Node {
    peer: Peer,
    world: World,
}

struct Room {
    host: Node,
    guests: Vec<Node>,
    walkers: Walkers,
    entities: Vec<Entity>,
    moving: usize,
    /// Of who comes in now, in bits per second.
    bandwidth: Option<u64>,
    frame: u32,
}

/// What a newcomer's coming in took.
#[derive(Default)]
struct Joined {
    /// From the first state that left the host to when the last of the nearest, or of all, was in its world; the way there not
    /// counted.
    nearest: Option<Duration>,
    all: Option<Duration>,
    /// Bytes until then, overheads included.
    bytes: u64,
    equal: bool,
}

fn config(mbit: u32) -> Config {
    Config { tick_rate: RATE, bandwidth: u64::from(mbit) * 1_000_000, session: Some(1), ..Config::default() }
}

impl Room {
    /// A host and its guests, everything in every guest's world.
    fn new(options: &Options, network: &Network) -> Self {
        let mut host = Peer::host(schema(), network.host(), config(100)).expect("the settings are sound");
        let relevance = Relevance::everything().place::<Place>(|p| [p.x, p.y, 0.0]);
        host.set_relevance(relevance).expect("nobody is in yet");
        let mut world = World::new();
        host.receive(Duration::ZERO, &mut world).expect("time has just begun");
        let walkers = Walkers::new(options.entities, options.seed);
        let spawn = |i| host.spawn(&mut world, Walker, walkers.show(i)).expect("a host may spawn");
        let entities = (0..options.entities).map(spawn).collect();
        let host = Node { peer: host, world };
        let mut room = Self { host, guests: Vec::new(), walkers, entities, moving: options.moving, bandwidth: None, frame: 0 };
        let perfect = Conditions { latency: LATENCY, ..Conditions::default() };
        (0..OTHERS).for_each(|_| room.join(network, perfect, 100));
        (0..BEFORE * RATE).for_each(|_| room.tick());
        room
    }

    fn join(&mut self, network: &Network, conditions: Conditions, mbit: u32) {
        let peer = Peer::join(schema(), network.join(conditions, conditions), config(mbit)).expect("the settings are sound");
        self.guests.push(Node { peer, world: World::new() });
    }

    fn now(&self) -> Duration {
        Duration::from_nanos((u64::from(self.frame) * 1_000_000_000).div_ceil(u64::from(RATE)))
    }

    fn tick(&mut self) {
        let now = self.now();
        self.frame += 1;
        self.walkers.step();
        let Node { peer, world } = &mut self.host;
        peer.receive(now, world).expect("time goes on");
        while let Some(news) = peer.poll_news() {
            // before its first state goes out
            if let (News::Joined { peer: newcomer, .. }, Some(bandwidth)) = (news, self.bandwidth) {
                peer.set_bandwidth(newcomer, bandwidth).expect("it has just joined");
                peer.look_from(newcomer, Viewpoint::Point([0.0; 3])).expect("it has just joined");
            }
        }
        while peer.next_step(world).is_some() {}
        (0..self.moving.min(self.entities.len())).for_each(|i| self.walkers.write(i, world, self.entities[i]));
        peer.send(now, world).expect("time goes on");
        for Node { peer, world } in &mut self.guests {
            peer.receive(now, world).expect("time goes on");
            while peer.next_step(world).is_some() {}
            while peer.poll_news().is_some() {}
            peer.send(now, world).expect("time goes on");
        }
    }

    /// Bytes of state that the others were sent.
    fn others_bytes(&self) -> u64 {
        self.guests[..OTHERS].iter().filter_map(|g| self.host.peer.stats(g.peer.local())).map(|s| s.link.bytes_out).sum()
    }

    /// The names of those nearest to the middle.
    fn nearest(&self) -> Vec<NetId> {
        let distance = |e: &Entity| self.host.world.get::<&Place>(*e).map_or(f32::MAX, |p| p.x.hypot(p.y));
        let mut all = self.entities.clone();
        all.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        all.iter().take(NEAREST).filter_map(|e| self.host.peer.name_of(&self.host.world, *e)).collect()
    }

    /// Lets a newcomer in, and watches.
    fn newcomer(&mut self, network: &Network, mbit: u32, seconds: u32) -> Joined {
        // what waits in the link is the network's business: it takes a fifth of a second's worth, and says nothing when it is full
        let rate = u64::from(mbit) * 125_000;
        let queue = (rate / 5) as usize;
        let link = Conditions { latency: LATENCY, rate: Some(rate), queue, backpressure: false, ..Conditions::default() };
        self.bandwidth = Some(u64::from(mbit) * 1_000_000);
        self.join(network, link, mbit);
        let (mut joined, mut nearest, mut began) = (Joined::default(), self.nearest(), None);
        for _ in 0..seconds * RATE {
            self.tick();
            let now = self.now();
            let stats = self.host.peer.stats(NEWCOMER).unwrap_or_default();
            if began.is_none() && stats.sent.state_bytes > 0 {
                began = Some(now);
            }
            let Some(began) = began else { continue };
            let guest = &self.guests[OTHERS];
            let took = (now - began).saturating_sub(LATENCY);
            nearest.retain(|net| guest.peer.entity_of(*net).is_none());
            if nearest.is_empty() {
                joined.nearest.get_or_insert(took);
            }
            if joined.all.is_none() {
                joined.bytes = stats.transport.bytes_out;
                joined.all = (guest.peer.entity_count() == self.entities.len()).then_some(took);
            }
        }
        joined
    }

    /// Stops everybody; is the newcomer's world equal after a while?
    fn settle(&mut self) -> bool {
        self.moving = 0;
        (0..RATE * 3).for_each(|_| self.tick());
        let digests = self.host.peer.digests(&self.host.world);
        self.guests.iter().all(|g| g.peer.digests(&g.world) == digests)
    }
}

/// The newcomer's figures, and the others' bytes with it and without it.
fn run(options: &Options, mbit: u32) -> (Joined, u64, u64) {
    let others = |comes: bool| {
        let network = Network::new(options.seed);
        let mut room = Room::new(options, &network);
        let before = room.others_bytes();
        let joined = if comes {
            room.newcomer(&network, mbit, options.seconds)
        } else {
            (0..options.seconds * RATE).for_each(|_| room.tick());
            Joined::default()
        };
        let bytes = room.others_bytes() - before;
        (Joined { equal: room.settle(), ..joined }, bytes)
    };
    let (_, without) = others(false);
    let (joined, with) = others(true);
    (joined, with, without)
}

fn print(options: &Options, mbit: u32, (joined, with, without): &(Joined, u64, u64)) -> bool {
    let ms = |time: Option<Duration>| time.map_or(f64::INFINITY, |t| t.as_secs_f64() * 1e3);
    let least = joined.bytes as f64 * 8.0 / (f64::from(mbit) * 1e3);
    let (nearest, all) = (ms(joined.nearest), ms(joined.all));
    let ratio = all / least;
    let others = *with as f64 / (*without).max(1) as f64;
    if options.json {
        println!(
            "{{\"bench\":\"join\",\"n\":{},\"mbit\":{mbit},\"bytes\":{},\"nearest_ms\":{nearest:.0},\"all_ms\":{all:.0},\
             \"least_ms\":{least:.0},\"ratio\":{ratio:.3},\"others_bytes\":{with},\"others_without\":{without},\
             \"others_ratio\":{others:.4},\"equal\":{}}}",
            options.entities, joined.bytes, joined.equal,
        );
    } else {
        println!("{} entities, {} moving, to a newcomer over {mbit} Mbit/s", options.entities, options.moving);
        println!("  {} bytes; the nearest {NEAREST} after {nearest:.0} ms, all after {all:.0} ms", joined.bytes);
        println!("  {ratio:.3} × bytes ÷ rate ({least:.0} ms), bar {BAR}; worlds equal: {}", joined.equal);
        println!("  the others: {with} bytes, without the newcomer {without}: {others:.4}");
    }
    joined.equal && joined.all.is_some()
}

fn main() -> ExitCode {
    let options = Options::parse();
    let fine: Vec<bool> = options.mbit.iter().map(|mbit| print(&options, *mbit, &run(&options, *mbit))).collect();
    if fine.iter().all(|fine| *fine) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
