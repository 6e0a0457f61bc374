//! QUIC keeps the promises of a transport, near and over a bad network.

use std::time::{Duration, Instant};
use tidelock_conformance::{Bed, run_all};
use tidelock_netcore::transport::Transport;
use tidelock_quic::shim::{Shim, ShimConfig};
use tidelock_quic::{Identity, JoinConfig, ListenConfig, QuicTransport};

/// Time enough for handshakes with many losses; what is tested here is what comes after.
const PATIENT: Duration = Duration::from_secs(20);

struct Real {
    name: String,
    start: Instant,
    host: Option<QuicTransport>,
    /// Where guests go: to the host, or to the bad network before it.
    target: String,
    _shim: Option<Shim>,
}

impl Real {
    fn bed(addr: &str, weather: Option<ShimConfig>) -> Box<dyn Bed> {
        let mut config = ListenConfig::new(addr.parse().unwrap(), Identity::generate().unwrap());
        config.limits.handshake = PATIENT;
        let host = QuicTransport::listen(config).unwrap();
        let local = host.local_addr().unwrap();
        let shim = weather.map(|weather| Shim::start(local, weather).unwrap());
        let target = format!("{}#{}", shim.as_ref().map_or(local, Shim::addr), host.fingerprint());
        let name = format!("QUIC at {addr}, SEED={}, {weather:?}", weather.unwrap_or_default().seed);
        Box::new(Self { name, start: Instant::now(), host: Some(host), target, _shim: shim })
    }
}

impl Bed for Real {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn host(&mut self) -> &mut dyn Transport {
        self.host.as_mut().expect("not called after it was stopped")
    }

    fn join(&mut self) -> Box<dyn Transport> {
        let config = JoinConfig { deadline: PATIENT, ..JoinConfig::default() };
        Box::new(QuicTransport::join(&self.target, config).unwrap())
    }

    fn stop_host(&mut self) {
        self.host = None;
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&mut self) {
        // Other threads do the I/O; time goes on by itself.
        (0..50).for_each(|_| std::thread::yield_now());
    }
}

#[test]
fn on_one_machine() {
    run_all(|| Real::bed("127.0.0.1:0", None));
}

#[test]
fn over_ipv6() {
    run_all(|| Real::bed("[::1]:0", None));
}

#[test]
fn over_a_bad_network() {
    let bad = ShimConfig {
        latency: Duration::from_millis(15),
        jitter: Duration::from_millis(10),
        loss: 0.03,
        duplicate: 0.02,
        reorder: 0.02,
        seed: 11,
        ..ShimConfig::default()
    };
    run_all(|| Real::bed("127.0.0.1:0", Some(bad)));
}
