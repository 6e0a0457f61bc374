//! What is told to the `metrics` facade is what the peers have counted, and what is told to `tracing` is what happened.
#![allow(missing_docs, reason = "a test")]

use hecs::Entity;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidelock::metrics::{METRICS, MetricKind, Reporter};
use tidelock::policy::{Host, Owner};
use tidelock::testing::Table;
use tidelock::{Config, Peer, PeerId, Replicate, Schema};
use tidelock_loopback::{Conditions, Network};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(Clone, Copy, Debug, PartialEq, Replicate)]
struct Place {
    #[net(range = 0..=100_000)]
    x: i32,
}
#[derive(Clone, Copy, Default)]
struct Crate;
#[derive(Clone, Copy, Default)]
struct Player;

const TOO_FAR: i32 = 50_000;

fn schema() -> Schema {
    let schema = Schema::builder("figures")
        .component::<Place>("place", |c| c.validate(|_, place, _| if place.x < TOO_FAR { Ok(()) } else { Err("too far") }));
    schema.kind::<Crate>("crate", Host::default()).kind::<Player>("player", Owner::default()).build().unwrap()
}

/// A counter or gauge by name and label, as it stands.
type Board = BTreeMap<(String, String), f64>;

/// Adds what the recorder has gathered since the last look: its counters begin anew with each snapshot.
fn look(snapshotter: &Snapshotter, board: &mut Board) {
    for (key, _unit, _what, value) in snapshotter.snapshot().into_vec() {
        let label = key.key().labels().map(|l| l.value().to_owned()).collect::<Vec<_>>().join(",");
        let entry = board.entry((key.key().name().to_owned(), label)).or_default();
        match value {
            DebugValue::Counter(n) => *entry += n as f64,
            DebugValue::Gauge(now) => *entry = now.into_inner(),
            DebugValue::Histogram(values) => *entry += values.len() as f64,
        }
    }
}

/// Is what was told of a guest what its host has counted?
fn compare(seed: u64, board: &Board, peer: &Peer, guest: PeerId) {
    let (stats, traffic) = (peer.stats(guest).unwrap(), peer.traffic(guest).unwrap());
    let link = guest.to_string();
    let at = |name: &str, label: &str| board[&(format!("tidelock_{name}"), label.to_owned())];
    assert_eq!(at("sent_bytes_total", &link), stats.link.bytes_out as f64);
    assert_eq!(at("received_bytes_total", &link), stats.link.bytes_in as f64);
    assert_eq!(at("sent_packets_total", &link), stats.sent.packets as f64);
    assert_eq!(at("received_packets_total", &link), stats.link.taken as f64);
    assert_eq!(at("lost_packets_total", &link), stats.sent.lost as f64);
    assert!(stats.sent.lost > 10, "SEED={seed}: a tenth of them is lost, and {} were", stats.sent.lost);
    assert_eq!(at("rtt_seconds", &link), stats.rtt.as_secs_f64());
    assert!((0.08..0.13).contains(&stats.rtt.as_secs_f64()), "SEED={seed}: {:?}", stats.rtt);
    for (component, bits) in traffic.components {
        assert_eq!(at("component_bytes_total", &component), (bits / 8) as f64, "{component}");
        assert!(bits > 0, "{component}");
    }
    assert_eq!(at("head_bytes_total", ""), (traffic.heads / 8) as f64);
    let refusals = peer.refusal_counts();
    assert!(refusals.invalid > 0, "SEED={seed}: the guest was too far");
    assert_eq!(at("refusals_total", "invalid"), refusals.invalid as f64);
    assert_eq!(at("refused_writes_total", &link), refusals.by_cause().iter().map(|(_, n)| *n as f64).sum::<f64>());
    assert_eq!(at("peers", ""), 2.0);
    assert_eq!(at("entities", ""), 51.0);
}

#[test]
fn the_figures_are_the_peers_own() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        Reporter::describe();
        let seed = 11;
        let network = Network::new(seed);
        let weather = Conditions { latency: Duration::from_millis(40), loss: 0.1, ..Conditions::default() };
        let mut table = Table::new(seed, &schema(), Config::default(), network.host()).unwrap();
        let guest = table.join(Config::default(), network.join(weather, weather)).unwrap();
        let (mut reporter, mut board, mut reports, mut players) = (Reporter::new(), Board::new(), 0, 0);
        for i in 0..50 {
            let host = table.seat(0);
            host.peer.spawn(&mut host.world, Crate, (Place { x: i },)).unwrap();
        }
        for frame in 0..600 {
            table.run(|seat, world, step| {
                if seat == guest && players == 0 {
                    players += 1;
                    step.spawn(world, Player, (Place { x: 1 },)).unwrap();
                }
                for (_, place) in step.query::<(Entity, &mut Place)>(world).iter() {
                    // for a while the guest's player is where it must not be
                    place.x = if seat == guest && (300..320).contains(&frame) { TOO_FAR + frame } else { 1 + frame };
                }
            });
            let peer = &table.seat(0).peer;
            reporter.tick_took(Duration::from_micros(5));
            if reporter.report(peer) {
                reports += 1;
                look(&snapshotter, &mut board);
            }
        }
        assert!((9..=11).contains(&reports), "SEED={seed}: once a second, and there were {reports} in ten");
        // one report more, at the same moment as what it is compared with
        while !reporter.report(&table.seat(0).peer) {
            table.rest(1);
        }
        look(&snapshotter, &mut board);
        let local = table.seat(guest).peer.local();
        let peer = &table.seat(0).peer;
        compare(seed, &board, peer, local);
        assert_eq!(board[&("tidelock_tick_seconds".to_owned(), String::new())], 600.0, "each frame's time was told");
        for metric in METRICS {
            assert!(board.keys().any(|(name, _)| name == metric.name), "{} is never told", metric.name);
        }

        table.leave(guest);
        table.rest(90);
        assert!(reporter.report(&table.seat(0).peer));
        look(&snapshotter, &mut board);
        assert_eq!(board[&("tidelock_rtt_seconds".to_owned(), local.to_string())], 0.0, "there is no link any more");
        assert_eq!(board[&("tidelock_peers".to_owned(), String::new())], 1.0);
    });
}

#[test]
fn every_metric_is_described() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        Reporter::describe();
        for metric in METRICS {
            match metric.kind {
                MetricKind::Counter => metrics::counter!(metric.name).increment(1),
                MetricKind::Gauge => metrics::gauge!(metric.name).set(1.0),
                MetricKind::Histogram => metrics::histogram!(metric.name).record(1.0),
            }
        }
    });
    let told = snapshotter.snapshot().into_vec();
    assert_eq!(told.len(), METRICS.len());
    for (key, unit, what, _) in told {
        assert!(unit.is_some() && what.is_some_and(|what| !what.is_empty()), "{} is not described", key.key().name());
    }
}

#[test]
fn labels_of_the_reporter_go_with_everything() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let host = Peer::alone(schema(), Config::default()).unwrap();
        let mut reporter = Reporter::new().label("session", "seven").every(Duration::ZERO);
        reporter.tick_took(Duration::ZERO);
        assert!(reporter.report(&host) && reporter.report(&host), "at every call");
    });
    let told = snapshotter.snapshot().into_vec();
    assert!(told.len() > 10);
    for (key, ..) in told {
        assert!(key.key().labels().any(|l| l.key() == "session" && l.value() == "seven"), "{:?}", key.key());
    }
}

/// Writes down which spans are opened and entered, and which events come.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

struct News(String);

impl tracing::field::Visit for News {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidelock::")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = News(format!("span {}", span.metadata().name()));
        span.record(&mut fields);
        let mut lines = self.0.lock().unwrap();
        lines.push(fields.0);
        Id::from_u64(lines.len() as u64)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut fields = News(format!("{} {}", event.metadata().level(), event.metadata().target()));
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn spans_and_events_are_told() {
    let listener = Listener::default();
    let seed = 3;
    tracing::subscriber::with_default(listener.clone(), || {
        let network = Network::new(seed);
        let mut table = Table::new(seed, &schema(), Config::default(), network.host()).unwrap();
        let guest = table.join(Config::default(), network.join(Conditions::default(), Conditions::default())).unwrap();
        table.rest(60);
        let host = table.seat(0);
        for _ in 0..40 {
            host.peer.spawn(&mut host.world, Crate, (Place { x: 1 },)).unwrap();
        }
        table.run(|_, _, step| {
            let _inside = step.span().entered();
        });
        table.rest(30);
        table.stall(guest, Duration::from_secs(1));
        table.rest(70);
        table.seat(0).peer.kick(&mut hecs::World::new(), PeerId(1), "enough").unwrap();
        table.rest(30);
    });
    let lines = listener.0.lock().unwrap();
    let has = |what: &[&str]| lines.iter().any(|line| what.iter().all(|w| line.contains(w)));
    for span in ["span receive", "span step", "span send"] {
        assert!(has(&[span, "host"]) && has(&[span, "guest 1"]), "SEED={seed}: no {span}");
    }
    assert!(has(&["INFO tidelock::session", "Joined"]));
    assert!(has(&["INFO tidelock::session", "Admitted"]));
    assert!(has(&["INFO tidelock::session", "Left", "enough"]) || has(&["INFO tidelock::session", "Left", "Kicked"]));
    assert!(has(&["DEBUG tidelock::session", "ticks=", "stall"]), "SEED={seed}: the stall is not told");
    let events = lines.iter().filter(|line| !line.starts_with("span"));
    assert!(events.clone().count() < 20, "nothing is told entity by entity: {:?}", events.collect::<Vec<_>>());
}
