//! What is told to `tracing`: a span around each of the three calls of a frame and around each step, and what happens to links and
//! people. Nothing per entity, and nothing but one comparison where nobody listens (`docs/cost.md`).
//!
//! | target | level | what |
//! |---|---|---|
//! | `tidelock::frame` | trace | spans `receive`, `step`, `send` |
//! | `tidelock::session` | info | admitted, disconnected, joined, left, refused at the door |
//! | `tidelock::session` | warn | who breaks the protocol, forks, stray writes, what cannot travel, news that nobody fetched |
//! | `tidelock::session` | debug | refused writes, ownership, dropped messages, datagrams that are no packets, skipped ticks |
//! | `tidelock::session` | trace | corrections of predictions |

use crate::news::News;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::predict::Correction;
use tidelock_netcore::error::PeerError;
use tidelock_netcore::tick::Tick;
use tracing::span::EnteredSpan;
use tracing::{Span, debug, info, trace, trace_span, warn};

const FRAME: &str = "tidelock::frame";
const SESSION: &str = "tidelock::session";

pub(crate) fn receive(local: PeerId) -> EnteredSpan {
    trace_span!(target: FRAME, "receive", %local).entered()
}

pub(crate) fn send(local: PeerId) -> EnteredSpan {
    trace_span!(target: FRAME, "send", %local).entered()
}

pub(crate) fn step(local: PeerId, line: Timeline, tick: Tick, rerun: bool) -> Span {
    trace_span!(target: FRAME, "step", %local, ?line, tick = tick.0, rerun)
}

pub(crate) fn malformed(peer: PeerId, error: &PeerError) {
    debug!(target: SESSION, %peer, %error, "a datagram that is no packet");
}

pub(crate) fn skipped(ticks: u64) {
    debug!(target: SESSION, ticks, "ticks were left out after a stall");
}

pub(crate) fn correction(correction: &Correction) {
    trace!(target: SESSION, %correction, "a prediction was wrong");
}

/// News about links and people. Those about single entities are left out: there can be ten thousand of them in a frame.
pub(crate) fn news(news: &News) {
    match news {
        News::Admitted { .. } | News::Disconnected { .. } | News::Rejected { .. } => info!(target: SESSION, ?news),
        News::Joined { .. } | News::Left { .. } => info!(target: SESSION, ?news),
        News::Misbehaved { .. } | News::Forked { .. } | News::ForkLocated { .. } => warn!(target: SESSION, ?news),
        News::Stray { .. } | News::Unsendable { .. } | News::Missed { .. } => warn!(target: SESSION, ?news),
        News::Refused { .. } | News::MessageDropped { .. } | News::Compared { .. } => debug!(target: SESSION, ?news),
        News::OwnershipRequested { .. } | News::OwnershipOffered { .. } | News::OwnershipRefused { .. } => {
            debug!(target: SESSION, ?news);
        }
        _ => {}
    }
}
