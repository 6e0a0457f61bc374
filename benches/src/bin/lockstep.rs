//! Many peers that compute a large crowd in lockstep: what travels, what a tick costs the framework, and what it takes to come in.
//! See the crate's README.

use clap::Parser;
use hecs::World;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tidelock::netcore::transport::LinkId;
use tidelock::policy::{Lockstep, Timeline};
use tidelock::{Checkpoint, Config, Networked, Peer, Replicate, Schema, Step};
use tidelock_benches::alloc::{self, Counting};
use tidelock_benches::meter::{Reading, Series, peak_rss_mb, timed};
use tidelock_benches::tap::{Counts, Tap};
use tidelock_loopback::{Conditions, Network};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sealed ticks, and frames, per second.
const RATE: u32 = 20;
/// One way.
const LATENCY: Duration = Duration::from_millis(40);
/// Ticks after which a peer gives its next order.
const ORDER_EVERY: u64 = RATE as u64;
/// Ticks for everybody to come in, and again for the newcomer.
const JOIN_TICKS: u64 = 60 * RATE as u64;
/// Ticks without orders at the end, in which all of them take effect.
const SETTLE_TICKS: u64 = 3 * RATE as u64;

/// A host and guests who compute the same units from sealed orders.
#[derive(Parser)]
struct Options {
    /// Peers, the host included.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=256))]
    peers: u16,
    /// Units.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    units: u32,
    /// Seconds of virtual time that are measured.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// The part of the datagrams that is lost, in both directions.
    #[arg(long, default_value_t = 0.02)]
    loss: f64,
    /// Decides which, and the orders.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Checkpoint)]
struct Spot {
    x: f32,
    y: f32,
}

#[derive(Clone, Copy, Checkpoint)]
struct Aim {
    x: f32,
    y: f32,
}

/// Whose orders it follows.
#[derive(Clone, Copy, Checkpoint)]
struct Of(u16);

#[derive(Clone, Copy, Default)]
struct Unit;

/// All units of the peer who gives it go there.
#[derive(Clone, Copy, Replicate)]
struct Rally {
    #[net(step = 0.01, range = -500.0..=500.0)]
    x: f32,
    #[net(step = 0.01, range = -500.0..=500.0)]
    y: f32,
}

fn schema() -> Schema {
    let schema = Schema::builder("lockstep").checkpoint::<Spot>("spot").checkpoint::<Aim>("aim").checkpoint::<Of>("of");
    schema.kind::<Unit>("unit", Lockstep::sealed()).order::<Rally>("rally").build().expect("the schema has no mistakes")
}

fn config() -> Config {
    Config { tick_rate: RATE, guests: 255, session: Some(1), time_out: Duration::from_secs(60), ..Config::default() }
}

/// The game's own step: orders, then everybody walks.
fn simulate(world: &mut World, step: &Step<'_>, peers: u16) -> u64 {
    let orders: Vec<_> = step.orders::<Rally>(world).expect("it is in the schema").collect();
    for (peer, rally) in &orders {
        let mut units = step.query::<(&mut Aim, &Of)>(world);
        units.iter().filter(|(_, of)| of.0 == peer.0 % peers).for_each(|(aim, _)| *aim = Aim { x: rally.x, y: rally.y });
    }
    let way = 3.0 * step.seconds();
    for (spot, aim) in step.query::<(&mut Spot, &Aim)>(world).iter() {
        let (x, y) = (aim.x - spot.x, aim.y - spot.y);
        let far = (x * x + y * y).sqrt();
        if far > way {
            (spot.x, spot.y) = (spot.x + x / far * way, spot.y + y / far * way);
        }
    }
    orders.len() as u64
}

/// A hash of all units, in no order.
fn state(world: &World, step: &Step<'_>) -> u64 {
    let mix = |x: u64| (x ^ x >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    let hash = |id: u64, words: [f32; 4]| words.into_iter().fold(id, |h, w| mix(h ^ u64::from(w.to_bits())));
    let mut all = step.query::<(&Networked, &Spot, &Aim)>(world);
    all.iter().fold(0, |sum, (n, s, a)| u64::wrapping_add(sum, hash(n.id().0, [s.x, s.y, a.x, a.y])))
}

struct Node {
    peer: Peer,
    world: World,
    counts: Arc<Counts>,
    /// A hash of the world after each tick.
    seen: BTreeMap<u64, u64>,
    orders: u64,
    /// What the framework took in each frame; what the game's own step took.
    frames: Series,
    steps: Series,
    /// The longest frame of all, in microseconds.
    longest_us: u64,
}

impl Node {
    fn new(peer: Peer, counts: Arc<Counts>) -> Self {
        let (frames, steps) = (Series::default(), Series::default());
        Self { peer, world: World::new(), counts, seen: BTreeMap::new(), orders: 0, frames, steps, longest_us: 0 }
    }

    fn frame(&mut self, now: Duration, peers: u16) {
        let Self { peer, world, .. } = self;
        let ((), mut took) = timed(|| peer.receive(now, world).expect("time goes on"));
        let mut game = Reading::default();
        loop {
            let (step, next) = timed(|| peer.next_step(world));
            took += next;
            let Some(step) = step else { break };
            if step.timeline() != Timeline::Lockstep {
                continue;
            }
            let (orders, own) = timed(|| simulate(world, &step, peers));
            game += own;
            self.orders += orders;
            self.seen.insert(step.tick().0, state(world, &step));
        }
        let ((), send) = timed(|| peer.send(now, world).expect("time goes on"));
        took += send;
        while peer.poll_news().is_some() {}
        self.frames.push(took);
        self.steps.push(game);
        self.longest_us = self.longest_us.max(took.cpu / 1000);
    }

    fn is_in(&self) -> bool {
        self.peer.confirmed(Timeline::Lockstep).is_some()
    }

    fn forget_figures(&mut self) {
        (self.frames, self.steps, self.longest_us) = (Series::default(), Series::default(), 0);
    }
}

struct Session {
    nodes: Vec<Node>,
    network: Network,
    conditions: Conditions,
    tick: u64,
    peers: u16,
    given: u64,
    seed: u64,
}

impl Session {
    fn new(options: &Options) -> Self {
        let network = Network::new(options.seed);
        let (transport, counts) = Tap::new(network.host(), usize::from(options.peers) + 1);
        let mut host = Node::new(Peer::host(schema(), transport, config()).expect("the settings are sound"), counts);
        for i in 0..options.units {
            let (x, y) = ((i % 400) as f32 - 200.0, (i / 400) as f32 - 200.0);
            let parts = (Spot { x, y }, Aim { x, y }, Of((i % u32::from(options.peers)) as u16));
            host.peer.spawn(&mut host.world, Unit, parts).expect("a host may spawn");
        }
        let conditions = Conditions { latency: LATENCY, loss: options.loss, ..Conditions::default() };
        Self { nodes: vec![host], network, conditions, tick: 0, peers: options.peers, given: 0, seed: options.seed }
    }

    fn join(&mut self) {
        let (transport, counts) = Tap::new(self.network.join(self.conditions, self.conditions), 64);
        let peer = Peer::join(schema(), transport, config()).expect("the settings are sound");
        self.nodes.push(Node::new(peer, counts));
    }

    /// A frame, in which a tick is due. Peers give their orders in turn.
    fn frame(&mut self, orders: bool) {
        self.tick += 1;
        let now = Duration::from_nanos((self.tick * 1_000_000_000).div_ceil(u64::from(RATE)));
        for (i, node) in self.nodes.iter_mut().enumerate() {
            if orders && (self.tick + i as u64).is_multiple_of(ORDER_EVERY) {
                let chance = (self.seed ^ self.tick << 8 ^ i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let part = |shift: u32| (chance >> shift & 0x3ff) as f32 / 1024.0 * 800.0 - 400.0;
                node.peer.order(&node.world, &Rally { x: part(20), y: part(40) }).expect("few orders wait");
                self.given += 1;
            }
            node.frame(now, self.peers);
        }
    }

    /// Runs until everybody is in, or as long as that may take.
    fn gather(&mut self) -> bool {
        (0..JOIN_TICKS).any(|_| {
            self.frame(false);
            self.nodes.iter().all(Node::is_in)
        })
    }

    /// Bytes from the host to each guest, and from each guest to the host, so far; overheads included.
    fn bytes(&self) -> Vec<(u64, u64)> {
        let sent = |node: &Node| (0..64).map(|link| node.counts.sent(LinkId(link))).sum();
        let down = |guest: usize| self.nodes[0].counts.sent(self.network.links()[guest]);
        self.nodes.iter().skip(1).enumerate().map(|(guest, node)| (down(guest), sent(node))).collect()
    }

    /// Ticks that guests ran and that came out as at the host, and others.
    fn compare(&self) -> (u64, u64) {
        let (host, guests) = (&self.nodes[0].seen, self.nodes.iter().skip(1));
        let ticks = guests.flat_map(|guest| &guest.seen);
        let same = ticks.clone().filter(|(tick, hash)| host.get(tick) == Some(hash)).count() as u64;
        (same, ticks.count() as u64 - same)
    }
}

/// What was found out.
struct Found {
    /// Mean over guests, bytes per second.
    down: f64,
    up: f64,
    /// Of the guest with the most, both directions.
    most: f64,
    join_ms: f64,
    join_bytes: u64,
    join_host_us: u64,
    join_guest_us: u64,
    mb_per_peer: f64,
    same: u64,
    differing: u64,
    all_in: bool,
}

fn measure(options: &Options) -> (Session, Found) {
    let before = alloc::count().live;
    let mut session = Session::new(options);
    (2..options.peers).for_each(|_| session.join());
    let mut all_in = session.gather();
    (0..2 * RATE).for_each(|_| session.frame(false));
    // the newcomer
    session.nodes.iter_mut().for_each(Node::forget_figures);
    session.join();
    let start = session.tick;
    all_in &= session.gather();
    let join_ms = (session.tick - start) as f64 * 1000.0 / f64::from(RATE);
    let join_bytes = session.bytes().last().map_or(0, |(down, _)| *down);
    let longest = |node: Option<&Node>| node.map_or(0, |node| node.longest_us);
    let (join_host_us, join_guest_us) = (longest(session.nodes.first()), longest(session.nodes.last()));
    (0..2 * RATE).for_each(|_| session.frame(true));
    // all of them
    session.nodes.iter_mut().for_each(Node::forget_figures);
    let bytes = session.bytes();
    (0..options.seconds * RATE).for_each(|_| session.frame(true));
    let seconds = f64::from(options.seconds.max(1));
    let took: Vec<(u64, u64)> = session.bytes().iter().zip(&bytes).map(|(now, then)| (now.0 - then.0, now.1 - then.1)).collect();
    let mean = |sum: u64| sum as f64 / took.len() as f64 / seconds;
    let (down, up) = (mean(took.iter().map(|t| t.0).sum()), mean(took.iter().map(|t| t.1).sum()));
    let most = took.iter().map(|t| t.0 + t.1).max().unwrap_or(0) as f64 / seconds;
    let mb_per_peer = (alloc::count().live - before) as f64 / f64::from(1 << 20) / session.nodes.len() as f64;
    (0..SETTLE_TICKS).for_each(|_| session.frame(false));
    let (same, differing) = session.compare();
    let found = Found { down, up, most, join_ms, join_bytes, join_host_us, join_guest_us, mb_per_peer, same, differing, all_in };
    (session, found)
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (session, f) = measure(&options);
    let (host, guests) = (&session.nodes[0], &session.nodes[1..]);
    // a guest that runs two ticks in a frame now and then, and none in another, has its median all the same
    let guest = &guests[0];
    // the last guest has come later and has not seen the first ones
    let lost = session.given.abs_diff(host.orders)
        + guests[..guests.len() - 1].iter().map(|g| g.orders.abs_diff(host.orders)).sum::<u64>();
    let wanted = u64::from(options.seconds * RATE) * guests.len() as u64;
    let equal = f.all_in && f.differing == 0 && f.same >= wanted && lost == 0;
    let us = |series: &Series, part: f64| series.cpu_us(part);
    if options.json {
        println!(
            "{{\"bench\":\"lockstep\",\"peers\":{},\"units\":{},\"seconds\":{},\"bytes_per_second\":{:.0},\"down_per_second\":{:.0},\
             \"up_per_second\":{:.0},\"bytes_per_second_most\":{:.0},\"host_us\":{:.1},\"host_us_p95\":{:.1},\"guest_us\":{:.1},\
             \"guest_us_p95\":{:.1},\"step_us\":{:.1},\"join_ms\":{:.0},\"join_bytes\":{},\"join_host_us\":{},\"join_guest_us\":{},\
             \"orders\":{},\"orders_lost\":{lost},\"ticks_compared\":{},\"ticks_differing\":{},\"mb_per_peer\":{:.1},\
             \"peak_rss_mb\":{:.0},\"equal\":{equal}}}",
            options.peers,
            options.units,
            options.seconds,
            f.down + f.up,
            f.down,
            f.up,
            f.most,
            us(&host.frames, 0.5),
            us(&host.frames, 0.95),
            us(&guest.frames, 0.5),
            us(&guest.frames, 0.95),
            us(&host.steps, 0.5),
            f.join_ms,
            f.join_bytes,
            f.join_host_us,
            f.join_guest_us,
            session.given,
            f.same,
            f.differing,
            f.mb_per_peer,
            peak_rss_mb(),
        );
    } else {
        println!("{} peers, {} units, {RATE} ticks a second, one order per peer and second", options.peers, options.units);
        println!("traffic per guest    {:9.0} bytes/s: {:.0} down, {:.0} up; at most {:.0}", f.down + f.up, f.down, f.up, f.most);
        println!("tick at the host     {:9.1} us, 95 %: {:.1}", us(&host.frames, 0.5), us(&host.frames, 0.95));
        println!("tick at a guest      {:9.1} us, 95 %: {:.1}", us(&guest.frames, 0.5), us(&guest.frames, 0.95));
        println!("the game's own step  {:9.1} us beside", us(&host.steps, 0.5));
        println!("coming in            {:9.0} ms, {} bytes", f.join_ms, f.join_bytes);
        println!("  the longest frame  {:9} us at the host, {} at who comes in", f.join_host_us, f.join_guest_us);
        println!("orders               {:9} given, {lost} lost", session.given);
        println!("ticks compared       {:9} of guests with the host's, {} of them differ", f.same + f.differing, f.differing);
        println!("memory               {:9.1} MB a peer, {:.0} in all at most", f.mb_per_peer, peak_rss_mb());
    }
    if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
