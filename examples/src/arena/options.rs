//! The command line.

use crate::report::Conditions;
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::time::Duration;
use tidelock_quic::Timing;
use tidelock_quic::shim::ShimConfig;

/// Worlds full of moving entities on many machines, and the proof that they end equal.
///
/// Without a command: a host and its guests in one process, over QUIC through a bad network, shown live in a terminal; in lines if the
/// output is none, or with --plain or --json. The exit status is 0 only if every guest's world ends equal to the host's.
#[derive(Parser)]
#[command(name = "arena", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// Host or join.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// For all in one process.
    #[command(flatten)]
    pub(crate) options: AllOptions,
}

/// Across processes.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Host a game and print its address. It begins when the first guest joins, and lasts until the seconds are over and a guest
    /// is there to compare worlds with. Ctrl-C ends it at any time; guests then notice by their time-out.
    Host(HostOptions),
    /// Join a game at ADDRESS:PORT#FINGERPRINT, as the host prints it.
    Join(JoinOptions),
}

/// The options of a run in one process.
#[derive(Args)]
pub(crate) struct AllOptions {
    /// How many guests.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=255))]
    pub(crate) guests: u16,
    /// About how many entities in all, the ball game and the crowd not counted; the host and each guest own the same share.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) entities: u32,
    /// How many units the crowd has that all peers compute in lockstep.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) units: u32,
    /// Seconds to play. 10 if it is not said; a live view then goes on until `q` is pressed.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: Option<u32>,
    /// Lines of figures instead of a live view, also in a terminal.
    #[arg(long)]
    pub(crate) plain: bool,
    /// The network's round trip in milliseconds.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) latency: u32,
    /// Milliseconds that a packet may take longer, each way.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) jitter: u32,
    /// The part of packets that is lost each way, 0 to 0.9.
    #[arg(long, default_value_t = 0.02, value_parser = part)]
    pub(crate) loss: f64,
    /// A stadium: the host moves nearly everything, and each guest gets only what is nearest to its one drone.
    #[arg(long)]
    pub(crate) stadium: bool,
    /// How many of the nearest a guest gets in a stadium.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000), requires = "stadium")]
    pub(crate) nearest: u32,
    /// Options of every run.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The options of a host.
#[derive(Args)]
pub(crate) struct HostOptions {
    /// The UDP address to listen at; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Entities that the host owns.
    #[arg(long, default_value_t = 75, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) entities: u32,
    /// How many units the crowd has that all peers compute in lockstep.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) units: u32,
    /// Seconds to play from when the first guest is in.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) seconds: u32,
    /// Options of every run.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The options of a guest.
#[derive(Args)]
pub(crate) struct JoinOptions {
    /// What the host prints: address:port#fingerprint.
    pub(crate) address: String,
    /// Entities that this guest owns.
    #[arg(long, default_value_t = 75, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) entities: u32,
    /// Milliseconds of round trip to add.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) latency: u32,
    /// Milliseconds that a packet may take longer, each way.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) jitter: u32,
    /// The part of packets to lose each way, 0 to 0.9.
    #[arg(long, default_value_t = 0.0, value_parser = part)]
    pub(crate) loss: f64,
    /// Options of every run.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The options of every run.
#[derive(Args)]
pub(crate) struct Common {
    /// What bots and the bad network do comes from it.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Ticks (of 60 a second) between two sends.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) send_every: u32,
    /// Seconds without a word from the other side after which it is given up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) timeout: u32,
    /// End with one line of JSON instead of a summary in words.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Common {
    /// How long silence may last.
    pub(crate) fn time_out(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// The same, for QUIC.
    pub(crate) fn timing(&self) -> Timing {
        Timing { keep_alive: self.time_out() / 5, idle: self.time_out() }
    }
}

/// The bad network of these conditions; `None` if it is perfect.
pub(crate) fn weather(conditions: &Conditions) -> Option<ShimConfig> {
    let bad = conditions.latency > 0 || conditions.jitter > 0 || conditions.loss > 0.0;
    bad.then(|| shim(conditions))
}

/// The network of these conditions, perfect or not.
pub(crate) fn shim(conditions: &Conditions) -> ShimConfig {
    let (latency, jitter) = (millis(conditions.latency) / 2, millis(conditions.jitter));
    ShimConfig { latency, jitter, loss: conditions.loss, seed: conditions.seed, ..ShimConfig::default() }
}

fn millis(millis: u32) -> Duration {
    Duration::from_millis(millis.into())
}

fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.0..=0.9).contains(&part) { Ok(part) } else { Err("it must be from 0 to 0.9".into()) }
}
