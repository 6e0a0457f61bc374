//! A top speed that is checked on arrival holds against a writer that lies about its ticks, and refuses nobody who does not.

mod common;

use common::weather;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;
use tidelock::netcore::error::TransportError;
use tidelock::netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};
use tidelock::policy::Owner;
use tidelock::testing::Table;
use tidelock::{Config, PeerId, Replicate, Schema};
use tidelock_loopback::{Conditions, Loopback, Network};

/// Metres a second.
const TOP_SPEED: f32 = 12.0;

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Place {
    #[net(step = 0.001, range = -2000.0..=2000.0)]
    x: f32,
}

#[derive(Clone, Copy, Default)]
struct Runner;

fn schema() -> Schema {
    let fast = |old: Option<&Place>, new: &Place, write: &tidelock::Write| match old {
        Some(old) if (new.x - old.x).abs() > TOP_SPEED * 1.1 * write.elapsed.as_secs_f32() + 0.01 => Err("too fast"),
        _ => Ok(()),
    };
    let schema = Schema::builder("speed").component::<Place>("place", |c| c.validate(fast));
    schema.kind::<Runner>("runner", Owner::default()).build().unwrap()
}

/// Lies about the session tick of the datagrams that it sends.
struct Liar {
    inner: Loopback,
    /// How far back the tick is moved.
    lie: Arc<AtomicU16>,
}

impl Transport for Liar {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        self.inner.poll(now, payload)
    }
    fn facts(&self, link: LinkId) -> Option<Facts> {
        self.inner.facts(link)
    }
    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let mut bytes = bytes.to_vec();
        // kind 2 bits, number 16, send tick 16, then the session tick: bits 34 to 50
        let mut bits = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let tick = (bits >> 34) as u16;
        bits = bits & !(0xffff << 34) | u64::from(tick.wrapping_sub(self.lie.load(Relaxed))) << 34;
        bytes[..8].copy_from_slice(&bits.to_le_bytes());
        self.inner.send_datagram(now, link, &bytes)
    }
    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.inner.send_message(now, link, lane, bytes)
    }
    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        self.inner.close(now, link, code, text);
    }
    fn flush(&mut self, now: Duration) {
        self.inner.flush(now);
    }
    fn stats(&self, link: LinkId) -> LinkStats {
        self.inner.stats(link)
    }
}

/// Runs at top speed for ten seconds, jumps `leap` metres once a second, and says of all but the leaps that they were sampled
/// `lie` ticks ago; how far it has come at the host, and how many of its writes were refused.
fn run(seed: u64, leap: f32, lie: u16, sky: Conditions) -> (f32, u64) {
    let told = Arc::new(AtomicU16::new(0));
    let config = Config { refusals: 1_000_000, ..Config::default() };
    let network = Network::new(seed);
    let mut table = Table::new(seed, &schema(), config.clone(), network.host()).unwrap();
    table.join(config, Liar { inner: network.join(sky, sky), lie: told.clone() }).unwrap();
    for frame in 0..700 {
        let leaps = frame % 60 == 59;
        told.store(if leaps || frame < 60 { 0 } else { lie }, Relaxed);
        table.run(|seat, world, step| {
            if seat == 0 {
                return;
            }
            if world.query::<&Place>().iter().next().is_none() {
                step.spawn(world, Runner, (Place { x: 0.0 },)).unwrap();
            }
            let seconds = step.seconds();
            let far = TOP_SPEED * seconds + if leaps { leap } else { 0.0 };
            step.query::<&mut Place>(world).iter().for_each(|p| p.x = (p.x + far).min(1990.0));
        });
    }
    let host = table.seat(0);
    let x = host.world.query::<&Place>().iter().map(|p| p.x).next().unwrap_or(0.0);
    (x, host.peer.stats(PeerId(1)).unwrap().link.refused)
}

#[test]
fn an_honest_runner_is_never_refused() {
    for seed in common::seeds(5) {
        let jitter = Conditions { jitter: Duration::from_millis(30), reorder: 0.1, ..weather(50, 0.1) };
        let (x, refused) = run(seed, 0.0, 0, jitter);
        assert_eq!(refused, 0, "SEED={seed}: nobody went too fast");
        assert!(x > 100.0, "SEED={seed}: it came as far as {x}");
    }
}

#[test]
fn forged_ticks_buy_no_speed() {
    for seed in common::seeds(3) {
        for lie in [0, 30, 250, 20_000] {
            let (x, refused) = run(seed, 30.0, lie, weather(30, 0.0));
            // ten seconds and two thirds, and the tolerance of the check itself
            assert!(x < TOP_SPEED * 1.1 * 12.0 + 5.0, "SEED={seed} lie {lie}: it came as far as {x}");
            assert!(refused > 0, "SEED={seed} lie {lie}: nothing was refused");
        }
    }
}
