//! What digests of a large lockstep world cost a tick: a host and one guest in one process, 100 000 units of four components, a slice
//! of the world in every tick, against the same session without digests. The game's own step is left out; what is measured are the
//! host's calls that take the digest. See the crate's README.

use clap::Parser;
use hecs::World;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidelock::policy::{Lockstep, Timeline};
use tidelock::{Checkpoint, Config, News, Peer, Schema};
use tidelock_benches::alloc::{Counting, count};
use tidelock_loopback::{Conditions, Network};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A world that every peer computes, and that is compared.
#[derive(Parser)]
struct Options {
    /// Units.
    #[arg(long, default_value_t = 100_000)]
    units: usize,
    /// Ticks that are counted.
    #[arg(long, default_value_t = 600)]
    ticks: usize,
}

/// Ticks before anything is counted: until every buffer has its size.
const WARM_UP: usize = 400;

#[derive(Clone, Copy, Default, Checkpoint)]
struct Position {
    x: f32,
    y: f32,
    z: f32,
}

#[derive(Clone, Copy, Default, Checkpoint)]
struct Velocity {
    x: f32,
    y: f32,
    z: f32,
}

#[derive(Clone, Copy, Default, Checkpoint)]
struct Health(u32);

#[derive(Clone, Copy, Default, Checkpoint)]
struct Command {
    x: f32,
    y: f32,
    kind: u8,
}

#[derive(Clone, Copy, Default)]
struct Unit;

struct Seat {
    peer: Peer,
    world: World,
}

impl Seat {
    /// One frame; gives the time that the calls of `next_step` took, and how often they allocated.
    fn frame(&mut self, now: Duration) -> Result<(Duration, u64), String> {
        self.peer.receive(now, &mut self.world).map_err(|e| e.to_string())?;
        let (mut time, mut calls) = (Duration::ZERO, 0);
        loop {
            let (began, before) = (Instant::now(), count().calls);
            let step = self.peer.next_step(&mut self.world).map(|step| step.timeline());
            time += began.elapsed();
            calls += count().calls - before;
            match step {
                None => break,
                Some(Timeline::Lockstep) => self.world.query_mut::<&mut Health>().into_iter().for_each(|h| h.0 += 1),
                Some(_) => {}
            }
        }
        self.peer.send(now, &mut self.world).map_err(|e| e.to_string())?;
        while let Some(news) = self.peer.poll_news() {
            if let News::Forked { .. } | News::Disconnected { .. } = news {
                return Err(format!("{news:?}"));
            }
        }
        Ok((time, calls))
    }
}

/// Times of the ticks, rising, and allocations in all of them.
fn run(options: &Options, digest_every: u64) -> Result<(Vec<Duration>, u64), String> {
    let schema = Schema::builder("forks")
        .checkpoint::<Position>("position")
        .checkpoint::<Velocity>("velocity")
        .checkpoint::<Health>("health")
        .checkpoint::<Command>("command")
        .kind::<Unit>("unit", Lockstep::sealed())
        .build()
        .map_err(|e| format!("{e:?}"))?;
    let network = Network::new(1);
    let config = Config { digest_every, bandwidth: 2_000_000_000, session: Some(1), ..Config::default() };
    let host = Peer::host(schema.clone(), network.host(), config.clone()).map_err(|e| e.to_string())?;
    let mut host = Seat { peer: host, world: World::new() };
    for i in 0..options.units {
        let parts = (Position { x: i as f32, ..Position::default() }, Velocity::default(), Health(1), Command::default());
        host.peer.spawn(&mut host.world, Unit, parts).map_err(|e| e.to_string())?;
    }
    let link = network.join(Conditions::default(), Conditions::default());
    let mut guest = Seat { peer: Peer::join(schema, link, config).map_err(|e| e.to_string())?, world: World::new() };
    let frame = Duration::from_nanos(1_000_000_000 / 60 + 1);
    let mut now = Duration::ZERO;
    let mut both = |host: &mut Seat, guest: &mut Seat| {
        now += frame;
        let cost = host.frame(now)?;
        guest.frame(now)?;
        Ok::<_, String>(cost)
    };
    for _ in 0..6000 {
        if guest.peer.confirmed(Timeline::Lockstep).is_some() {
            break;
        }
        both(&mut host, &mut guest)?;
    }
    guest.peer.confirmed(Timeline::Lockstep).ok_or("the guest did not get the state")?;
    for _ in 0..WARM_UP {
        both(&mut host, &mut guest)?;
    }
    let (mut times, mut calls) = (Vec::new(), 0);
    for _ in 0..options.ticks {
        let cost = both(&mut host, &mut guest)?;
        times.push(cost.0);
        calls += cost.1;
    }
    times.sort_unstable();
    Ok((times, calls))
}

fn main() -> ExitCode {
    let options = Options::parse();
    for digest_every in [0, 1] {
        match run(&options, digest_every) {
            Ok((times, calls)) => {
                let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
                let what = if digest_every == 0 { "no digests" } else { "a slice a tick" };
                println!("{what:<15} median {:>7.1} us, p99 {:>7.1} us a tick; {calls} allocations", at(50), at(99));
            }
            Err(error) => {
                eprintln!("forks: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
