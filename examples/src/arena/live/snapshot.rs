//! What one picture shows: plain values, so that drawing needs no session.

use crate::report::Conditions;
use std::time::Duration;

/// How far the game is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not all guests are in.
    #[default]
    Gathering,
    /// It runs.
    Playing,
    /// Changes have stopped, and the worlds are compared.
    Comparing,
}

/// What something on a map is. Later ones are painted over earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// The host's.
    Crate,
    /// A guest's.
    Drone,
    /// Of the crowd, in lockstep.
    Unit,
    /// Of the ball game, by rollback.
    Ball,
    /// Steered by a guest, decided by the host.
    Player,
    /// What goes from hand to hand.
    Relic,
}

impl Sort {
    /// All, in the order of painting.
    pub(crate) const ALL: [Sort; 6] = [Sort::Crate, Sort::Drone, Sort::Unit, Sort::Ball, Sort::Player, Sort::Relic];
}

/// Something on a map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dot {
    pub(crate) sort: Sort,
    pub(crate) x: f32,
    pub(crate) y: f32,
}

/// The world of one peer, as it draws it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Map {
    pub(crate) name: String,
    pub(crate) entities: usize,
    pub(crate) dots: Vec<Dot>,
}

/// How the link of one guest does. Rates are of the last second or so.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// The round trip as Tidelock measures it.
    pub(crate) rtt_ms: f64,
    /// How much single round trips differ from it.
    pub(crate) jitter_ms: f64,
    /// Packets that QUIC lost, both ways, of all that were sent.
    pub(crate) loss_pct: f64,
    /// Kilobits a second with everything that UDP, QUIC and IP add.
    pub(crate) down_kbps: f64,
    pub(crate) up_kbps: f64,
    /// How far in the past others are drawn.
    pub(crate) buffer_ms: f64,
    /// How long ago the host told about what is in the worst state.
    pub(crate) oldest_ms: f64,
    /// Predictions and writes of its own that were corrected, a second.
    pub(crate) corrections: f64,
    /// Ticks that were run again, a second.
    pub(crate) reruns: f64,
    /// The round trip in milliseconds, every half second, the newest last.
    pub(crate) trips: Vec<f64>,
    /// The traffic down in kilobits a second, likewise.
    pub(crate) downs: Vec<f64>,
}

/// One picture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) stage: Stage,
    /// Since the game began.
    pub(crate) time: Duration,
    /// Until it ends by itself.
    pub(crate) left: Option<Duration>,
    pub(crate) conditions: Conditions,
    /// The host's, then each guest's.
    pub(crate) maps: Vec<Map>,
    pub(crate) lines: Vec<Line>,
    /// What goes to guests, all together, in kilobits a second by what it is for, the most first.
    pub(crate) traffic: Vec<(String, f64)>,
    /// What was said last, the newest at the end.
    pub(crate) remarks: Vec<String>,
    /// How many of the guests' worlds are left out at the left.
    pub(crate) skipped: usize,
    /// The explanation of everything is asked for.
    pub(crate) help: bool,
}
