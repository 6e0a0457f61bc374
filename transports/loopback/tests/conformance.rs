//! The loopback keeps the promises of a transport, in fair weather and in foul.

use std::time::Duration;
use tidelock_conformance::{Bed, run_all};
use tidelock_loopback::{Conditions, Loopback, Network};
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};

struct Virtual {
    seed: u64,
    conditions: Conditions,
    network: Network,
    host: Option<Loopback>,
    now: Duration,
}

impl Virtual {
    fn with(seed: u64, conditions: Conditions) -> Self {
        let network = Network::new(seed);
        let host = Some(network.host());
        Self { seed, conditions, network, host, now: Duration::ZERO }
    }

    fn boxed(seed: u64, conditions: Conditions) -> Box<dyn Bed> {
        Box::new(Self::with(seed, conditions))
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
    run_all(|| Virtual::boxed(1, Conditions::default()));
}

#[test]
fn far_away() {
    run_all(|| Virtual::boxed(2, Conditions { latency: ms(120), jitter: ms(40), ..Default::default() }));
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
        run_all(|| Virtual::boxed(seed, foul));
    }
}

#[test]
fn through_a_narrow_link() {
    run_all(|| Virtual::boxed(3, Conditions { latency: ms(20), rate: Some(400_000), ..Default::default() }));
}

/// A fault that the suite must find, so that passing it means something.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    LosesMessages,
    DoublesMessages,
    SwapsLanes,
    CutsDatagrams,
    TakesAnySize,
    IsNeverFull,
    ForgetsTheText,
    TellsTheCloser,
    KeepsFacts,
}

/// The loopback with a fault at one end.
struct Faulty {
    inner: Loopback,
    fault: Fault,
    sent: usize,
    closed: Option<LinkId>,
}

impl Transport for Faulty {
    fn poll(&mut self, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        if self.fault == Fault::TellsTheCloser
            && let Some(link) = self.closed.take()
        {
            return Some(Arrival::Closed { link, reason: LinkError::TimedOut });
        }
        let mut arrival = self.inner.poll(now, payload)?;
        match &mut arrival {
            Arrival::Datagram { .. } if self.fault == Fault::CutsDatagrams => payload.truncate(900),
            Arrival::Message { lane, .. } if self.fault == Fault::SwapsLanes => lane.0 = 1 - lane.0,
            Arrival::Closed { link, .. } => self.closed = Some(*link),
            _ => {}
        }
        Some(arrival)
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        if self.fault == Fault::KeepsFacts && self.closed == Some(link) {
            return Some(Facts {
                lossless: false,
                independent_lanes: true,
                datagram_limit: 1200,
                datagram_overhead: 0,
                free: 1,
                rate: None,
            });
        }
        self.inner.facts(link)
    }

    fn send_datagram(&mut self, now: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let end = if self.fault == Fault::TakesAnySize { bytes.len().min(1200) } else { bytes.len() };
        self.inner.send_datagram(now, link, &bytes[..end])
    }

    fn send_message(&mut self, now: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        self.sent += 1;
        match self.fault {
            Fault::LosesMessages if self.sent.is_multiple_of(97) => Ok(Delivery::Taken),
            Fault::DoublesMessages if self.sent.is_multiple_of(97) => {
                let _ = self.inner.send_message(now, link, lane, bytes)?;
                self.inner.send_message(now, link, lane, bytes)
            }
            Fault::IsNeverFull => self.inner.send_message(now, link, lane, bytes).map(|_| Delivery::Taken),
            _ => self.inner.send_message(now, link, lane, bytes),
        }
    }

    fn close(&mut self, now: Duration, link: LinkId, code: u32, text: &str) {
        self.closed = Some(link);
        self.inner.close(now, link, code, if self.fault == Fault::ForgetsTheText { "" } else { text });
    }

    fn stats(&self, link: LinkId) -> LinkStats {
        self.inner.stats(link)
    }
}

struct FaultyBed {
    inner: Virtual,
    host: Option<Faulty>,
}

impl Bed for FaultyBed {
    fn name(&self) -> String {
        format!("loopback with a fault: {:?}", self.host.as_ref().map(|h| h.fault))
    }

    fn host(&mut self) -> &mut dyn Transport {
        self.host.as_mut().expect("not called after it was stopped")
    }

    fn join(&mut self) -> Box<dyn Transport> {
        self.inner.join()
    }

    fn stop_host(&mut self) {
        self.host = None;
    }

    fn now(&self) -> Duration {
        self.inner.now
    }

    fn wait(&mut self) {
        self.inner.wait();
    }
}

#[test]
fn the_suite_finds_faults() {
    use Fault::*;
    for fault in [
        LosesMessages,
        DoublesMessages,
        SwapsLanes,
        CutsDatagrams,
        TakesAnySize,
        IsNeverFull,
        ForgetsTheText,
        TellsTheCloser,
        KeepsFacts,
    ] {
        let found = std::panic::catch_unwind(|| {
            run_all(|| {
                let mut inner = Virtual::with(1, Conditions::default());
                let host = inner.host.take().map(|inner| Faulty { inner, fault, sent: 0, closed: None });
                Box::new(FaultyBed { inner, host })
            });
        });
        assert!(found.is_err(), "{fault:?} passed");
    }
}
