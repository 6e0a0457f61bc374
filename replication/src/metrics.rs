//! Counters, gauges and one histogram through the [`metrics`](https://docs.rs/metrics) facade: what a dashboard of a server wants to know.
//!
//! A [`Reporter`] reads the counters that a peer has anyway, once a second; between two reports it costs one comparison, and a game
//! without one pays nothing. Which program gets the figures is the business of the facade's exporters.
//!
//! ```
//! # use std::time::Duration;
//! # use tidelock::{Config, Peer, Replicate, Schema, metrics::Reporter, policy::Host};
//! # #[derive(Replicate)] struct Health(u16);
//! # #[derive(Clone, Copy, Default)] struct Crate;
//! # let schema = Schema::builder("game").component::<Health>("health", |c| c).kind::<Crate>("crate", Host::default()).build()?;
//! # let (mut world, mut peer) = (hecs::World::new(), Peer::alone(schema, Config::default())?);
//! Reporter::describe(); // once, after the exporter is installed
//! let mut reporter = Reporter::new();
//! # for frame in 0..2 {
//! # let now = Duration::from_millis(17) * frame;
//! peer.receive(now, &mut world)?;
//! while let Some(step) = peer.next_step(&mut world) {
//!     // simulate
//! }
//! peer.send(now, &mut world)?;
//! # let took = Duration::from_micros(300);
//! reporter.tick_took(took); // the core has no clock, so the game measures
//! reporter.report(&peer); // does something once a second
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All names are in [`METRICS`]. Counters count from when the reporter saw the link or the peer first; of a link that ends, what
//! happened after the last report is not told. The gauges of a link that has ended are set to zero: let the exporter drop what is
//! idle if that is not wanted.

use crate::link::Link;
use crate::peer::Peer;
use ::metrics::{Label, Unit};
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::Duration;
use tidelock_netcore::transport::{LinkId, LinkStats};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Many values, told one by one.
    Histogram,
}

/// One line of [`METRICS`].
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name. Stable: dashboards depend on it.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// What it is told apart by, beside the reporter's own labels: `peer` (the other side of a link), `component` (its name in the
    /// schema), `cause`; empty: by nothing.
    pub label: &'static str,
    /// What it says.
    pub what: &'static str,
}

/// Every metric there is.
pub const METRICS: [Metric; 30] = [
    counter("tidelock_sent_bytes_total", "peer", "bytes of datagrams handed to the transport"),
    counter("tidelock_received_bytes_total", "peer", "bytes of datagrams received"),
    counter("tidelock_sent_message_bytes_total", "peer", "bytes of reliable messages handed to the transport"),
    counter("tidelock_wire_sent_bytes_total", "peer", "bytes sent, the transport's own overhead included"),
    counter("tidelock_wire_received_bytes_total", "peer", "bytes received, the transport's own overhead included"),
    counter("tidelock_sent_packets_total", "peer", "state packets sent"),
    counter("tidelock_received_packets_total", "peer", "state packets taken"),
    counter("tidelock_lost_packets_total", "peer", "state packets given up as lost"),
    counter("tidelock_wire_lost_packets_total", "peer", "packets that the transport believes lost on their way out"),
    counter("tidelock_useless_packets_total", "peer", "state packets that came twice, or too late to be of use"),
    counter("tidelock_malformed_packets_total", "peer", "datagrams that were no valid packet"),
    counter("tidelock_full_total", "peer", "times that the transport had no room for a state packet"),
    counter("tidelock_refused_writes_total", "peer", "writes of a guest that were refused, races included"),
    counter(
        "tidelock_dropped_messages_total",
        "peer",
        "messages dropped while they waited for an entity, and shared events that others were too slow for",
    ),
    counter("tidelock_unsent_messages_total", "peer", "unreliable messages dropped for want of room"),
    counter("tidelock_missed_inputs_total", "peer", "ticks that a host ran without a guest's input"),
    counter("tidelock_late_inputs_total", "peer", "inputs of a guest that came after their tick was run"),
    gauge("tidelock_rtt_seconds", "peer", "round trip, smoothed"),
    gauge("tidelock_jitter_seconds", "peer", "variation of the round trip"),
    gauge("tidelock_backlog_bytes", "peer", "reliable messages that wait to be handed over, 64 bytes each for their overhead"),
    counter(
        COMPONENT_BYTES,
        "component",
        "bytes of a component's values sent, over all links; `presence`: which entities there are",
    ),
    counter(HEAD_BYTES, "", "bytes that say which rows and components follow, over all links"),
    counter(REFUSALS, "cause", "writes of guests refused by this host"),
    counter(CORRECTIONS, "cause", "predictions of this peer that were corrected"),
    counter(SKIPPED, "", "ticks left out after stalls"),
    gauge(PEERS, "", "peers in the session, this one included"),
    gauge(ENTITIES, "", "networked entities that this peer knows"),
    gauge(BUFFER, "", "how far behind the session's clock this peer draws what others simulate"),
    gauge(LEAD, "", "how far ahead of the session this guest's ticks run"),
    Metric {
        name: TICK,
        kind: MetricKind::Histogram,
        label: "",
        what: "seconds that a frame's ticks took, as the game measures",
    },
];

const COMPONENT_BYTES: &str = "tidelock_component_bytes_total";
const HEAD_BYTES: &str = "tidelock_head_bytes_total";
const REFUSALS: &str = "tidelock_refusals_total";
const CORRECTIONS: &str = "tidelock_corrections_total";
const SKIPPED: &str = "tidelock_skipped_ticks_total";
const PEERS: &str = "tidelock_peers";
const ENTITIES: &str = "tidelock_entities";
const BUFFER: &str = "tidelock_interpolation_delay_seconds";
const LEAD: &str = "tidelock_lead_seconds";
const TICK: &str = "tidelock_tick_seconds";
/// Lines of [`METRICS`] that are read from a link, counters before gauges.
const OF_LINKS: usize = 20;
const LINK_COUNTERS: usize = 17;

const fn counter(name: &'static str, label: &'static str, what: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, label, what }
}

const fn gauge(name: &'static str, label: &'static str, what: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, label, what }
}

impl Metric {
    fn unit(&self) -> Unit {
        match self.name {
            name if name.contains("_bytes") => Unit::Bytes,
            name if name.ends_with("_seconds") => Unit::Seconds,
            _ => Unit::Count,
        }
    }
}

/// Reads a peer's counters and tells the facade. One per [`Peer`]; see the [module](self).
#[derive(Debug)]
pub struct Reporter {
    every: Duration,
    labels: Vec<Label>,
    due: Option<Duration>,
    links: FxHashMap<LinkId, Known>,
    /// Bits by column, presence first, and of heads: added up over all links, those that have ended included.
    columns: Vec<u64>,
    heads: u64,
    /// What a counter of the peer was when it was told last.
    told: FxHashMap<(&'static str, &'static str), u64>,
    /// The same, of the columns, in bytes.
    told_columns: Vec<u64>,
}

/// A link at the last report.
#[derive(Debug, Default)]
struct Known {
    label: String,
    counters: [u64; LINK_COUNTERS],
    columns: Vec<u64>,
    heads: u64,
}

impl Default for Reporter {
    fn default() -> Self {
        Self::new()
    }
}

impl Reporter {
    /// One that reports once a second of the program's time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            every: Duration::from_secs(1),
            labels: Vec::new(),
            due: None,
            links: FxHashMap::default(),
            columns: Vec::new(),
            heads: 0,
            told: FxHashMap::default(),
            told_columns: Vec::new(),
        }
    }

    /// Sets how often it reports. Zero: at every call.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Adds a label to all that it tells, such as the session's name where one program has several peers.
    #[must_use]
    pub fn label(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.labels.push(Label::new(key, value.into()));
        self
    }

    /// Tells the facade what every metric says and in what unit. Call it once, after the exporter is installed.
    pub fn describe() {
        for metric in METRICS {
            match metric.kind {
                MetricKind::Counter => ::metrics::describe_counter!(metric.name, metric.unit(), metric.what),
                MetricKind::Gauge => ::metrics::describe_gauge!(metric.name, metric.unit(), metric.what),
                MetricKind::Histogram => ::metrics::describe_histogram!(metric.name, metric.unit(), metric.what),
            }
        }
    }

    /// How long a frame's ticks took. The core has no clock: the game measures.
    pub fn tick_took(&self, time: Duration) {
        ::metrics::histogram!(TICK, self.labels.clone()).record(time.as_secs_f64());
    }

    /// Tells the facade what has happened since the last report, if one is due by the time that the peer was last given. Says
    /// whether it was.
    pub fn report(&mut self, peer: &Peer) -> bool {
        let now = peer.time.now;
        if self.due.is_some_and(|due| now < due) {
            return false;
        }
        self.due = Some(now + self.every);
        self.report_links(peer);
        self.report_columns(peer);
        for (cause, count) in peer.refusal_counts().by_cause() {
            self.tell(REFUSALS, cause, count);
        }
        for (cause, count) in peer.correction_counts().by_cause() {
            self.tell(CORRECTIONS, cause, count);
        }
        self.tell(SKIPPED, "", peer.skipped_ticks());
        self.set(PEERS, peer.roster.len() as f64, None);
        self.set(ENTITIES, peer.entity_count() as f64, None);
        self.set(BUFFER, peer.interpolation_delay().as_secs_f64(), None);
        self.set(LEAD, peer.lead().unwrap_or_default().as_secs_f64(), None);
        true
    }

    fn report_links(&mut self, peer: &Peer) {
        let open: FxHashSet<LinkId> = peer.links.iter().map(|link| link.id).collect();
        for (id, ended) in std::mem::take(&mut self.links) {
            if open.contains(&id) {
                self.links.insert(id, ended);
                continue;
            }
            for metric in &METRICS[LINK_COUNTERS..OF_LINKS] {
                self.set(metric.name, 0.0, Some(Label::new("peer", ended.label.clone())));
            }
        }
        for link in &peer.links {
            let stats = peer.transport.as_ref().map(|t| t.stats(link.id)).unwrap_or_default();
            let mut known = self.links.remove(&link.id).unwrap_or_default();
            known.label = link.peer.to_string();
            let label = || Some(Label::new("peer", known.label.clone()));
            let counters = counters(link, stats);
            for (metric, (now, before)) in METRICS.iter().zip(counters.into_iter().zip(known.counters)) {
                ::metrics::counter!(metric.name, self.labelled(label())).increment(now.saturating_sub(before));
            }
            for (metric, value) in METRICS[LINK_COUNTERS..OF_LINKS].iter().zip(gauges(link)) {
                self.set(metric.name, value, label());
            }
            known.counters = counters;
            self.add_columns(link, &mut known);
            self.links.insert(link.id, known);
        }
    }

    fn add_columns(&mut self, link: &Link, known: &mut Known) {
        let tally = &link.subscriber.tally;
        let columns = tally.components.len();
        self.columns.resize(columns.max(self.columns.len()), 0);
        known.columns.resize(columns, 0);
        for ((sum, before), now) in self.columns.iter_mut().zip(&mut known.columns).zip(&tally.components) {
            *sum += now.saturating_sub(std::mem::replace(before, *now));
        }
        self.heads += tally.heads.saturating_sub(std::mem::replace(&mut known.heads, tally.heads));
    }

    fn report_columns(&mut self, peer: &Peer) {
        self.told_columns.resize(self.columns.len(), 0);
        for c in 0..self.columns.len() {
            let bytes = self.columns[c] / 8;
            let more = bytes - std::mem::replace(&mut self.told_columns[c], bytes);
            let name = if c == 0 { "presence".to_owned() } else { peer.schema.component(c).name.clone() };
            let labels = self.labelled(Some(Label::new("component", name)));
            ::metrics::counter!(COMPONENT_BYTES, labels).increment(more);
        }
        self.tell(HEAD_BYTES, "", self.heads / 8);
    }

    /// A counter of the peer is at `now`.
    fn tell(&mut self, name: &'static str, cause: &'static str, now: u64) {
        // a correction can get another cause while it is young: then one count falls, and what was told of it stands until it rises
        let told = self.told.entry((name, cause)).or_default();
        let more = now.saturating_sub(*told);
        *told += more;
        let label = (!cause.is_empty()).then(|| Label::from_static_parts("cause", cause));
        ::metrics::counter!(name, self.labelled(label)).increment(more);
    }

    fn set(&self, name: &'static str, value: f64, label: Option<Label>) {
        ::metrics::gauge!(name, self.labelled(label)).set(value);
    }

    fn labelled(&self, label: Option<Label>) -> Vec<Label> {
        self.labels.iter().cloned().chain(label).collect()
    }
}

/// In the order of [`METRICS`].
fn counters(link: &Link, transport: LinkStats) -> [u64; LINK_COUNTERS] {
    let (counters, sent) = (link.counters, link.subscriber.stats);
    let inputs = link.inputs.as_ref().map(|buffer| buffer.report()).unwrap_or_default();
    [
        counters.bytes_out,
        counters.bytes_in,
        counters.message_bytes_out,
        transport.bytes_out,
        transport.bytes_in,
        sent.packets,
        counters.taken,
        sent.lost,
        transport.packets_lost,
        counters.useless,
        counters.malformed,
        counters.full,
        counters.refused,
        counters.dropped_messages,
        counters.unsent_messages,
        inputs.missed,
        inputs.late,
    ]
}

/// In the order of [`METRICS`].
fn gauges(link: &Link) -> [f64; OF_LINKS - LINK_COUNTERS] {
    [link.rtt.smoothed().as_secs_f64(), link.rtt.variation().as_secs_f64(), link.backlog().bytes as f64]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read by position stands at its position.
    #[test]
    fn the_table_is_in_order() {
        for (i, metric) in METRICS.iter().enumerate() {
            assert_eq!(metric.label == "peer", i < OF_LINKS, "{}", metric.name);
            assert!(i >= OF_LINKS || (metric.kind == MetricKind::Counter) == (i < LINK_COUNTERS), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter, "{}", metric.name);
            assert!(METRICS[..i].iter().all(|other| other.name != metric.name), "{} is there twice", metric.name);
        }
    }
}
