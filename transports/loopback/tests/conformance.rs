//! The loopback keeps the promises of a transport, in fair weather and in foul.

use std::time::Duration;
use tidelock_conformance::{Bed, run_all};
use tidelock_loopback::{Conditions, Loopback, Network};
use tidelock_netcore::transport::Transport;

struct Virtual {
    seed: u64,
    conditions: Conditions,
    network: Network,
    host: Option<Loopback>,
    now: Duration,
}

impl Virtual {
    fn new(seed: u64, conditions: Conditions) -> Box<dyn Bed> {
        let network = Network::new(seed);
        let host = Some(network.host());
        Box::new(Self { seed, conditions, network, host, now: Duration::ZERO })
    }
}

impl Bed for Virtual {
    fn name(&self) -> String {
        format!("loopback, SEED={}, {:?}", self.seed, self.conditions)
    }

    fn host(&mut self) -> &mut dyn Transport {
        self.host.as_mut().expect("not called after it was stopped")
    }

    fn join(&mut self) -> Box<dyn Transport> {
        Box::new(self.network.join(self.conditions, self.conditions))
    }

    fn stop_host(&mut self) {
        self.host = None;
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn wait(&mut self) {
        self.now += Duration::from_millis(5);
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn in_fair_weather() {
    run_all(|| Virtual::new(1, Conditions::default()));
}

#[test]
fn far_away() {
    run_all(|| Virtual::new(2, Conditions { latency: ms(120), jitter: ms(40), ..Default::default() }));
}

#[test]
fn in_foul_weather() {
    for seed in 0..4 {
        let foul = Conditions {
            latency: ms(40),
            jitter: ms(30),
            loss: 0.1,
            burst: 3.0,
            duplicate: 0.05,
            reorder: 0.1,
            ..Default::default()
        };
        run_all(|| Virtual::new(seed, foul));
    }
}

#[test]
fn through_a_narrow_link() {
    run_all(|| Virtual::new(3, Conditions { latency: ms(20), rate: Some(400_000), ..Default::default() }));
}
