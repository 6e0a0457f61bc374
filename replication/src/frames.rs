//! Sealed frames: what every peer simulates from that computes a kind of entity by itself.
//!
//! For each tick of the session the host seals one frame when it runs that tick: every seat's input as it counts, the orders that
//! take effect, who plays in which seat, and how many steps of lockstep the tick stands for. It never changes one afterwards, and
//! what comes later takes a later frame. Guests get all frames, each once and in order.
//!
//! ```text
//! orders ── Peer::order ──► Sealer ──► FrameFeed ──► packets ──► FrameIntake ──► Step::orders
//! inputs ── InputBuffer ──►   (one per guest)                     (each guest)
//! ```

mod code;
mod delay;
mod exchange;
mod feed;
mod frame;
mod intake;
mod orders;
mod run;
mod sealer;

pub use frame::Seat;
pub use orders::OrderId;

pub(crate) use exchange::FRAME_MARK;
pub(crate) use feed::FrameFeed;
pub(crate) use frame::{Frame, Origin};
pub(crate) use orders::MARK as ORDER_MARK;
pub(crate) use sealer::ORDER_BITS;

use crate::config::Config;
use crate::error::UsageError;
use crate::schema::Inner;
use delay::OrderDelay;
use intake::FrameIntake;
use orders::Pending;
use sealer::Sealer;
use std::collections::VecDeque;
use std::time::Duration;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// What a peer has of frames, if its schema has something that is computed from them.
pub(crate) struct Frames {
    side: Side,
}

enum Side {
    Host(Sealer),
    Guest(Taking),
}

/// A guest's part.
#[derive(Default)]
struct Taking {
    intake: FrameIntake,
    /// Somebody says what may be dropped; until then, what is older than any step can go back to is.
    is_kept: bool,
    /// Orders that were given and are not in a frame yet.
    pending: VecDeque<Pending>,
    /// How many were given.
    given: u64,
    delay: Option<OrderDelay>,
    /// Own orders were looked for in frames up to here.
    searched: Option<Tick>,
    /// What was confirmed last, and when.
    confirmed: Option<(Tick, Duration)>,
    /// The host has repeated what is here: it has missed a confirmation.
    asked: bool,
}

impl Frames {
    pub(crate) fn new(schema: &Inner, config: &Config, host: bool) -> Result<Option<Box<Self>>, UsageError> {
        if !schema.has_frames() {
            return Ok(None);
        }
        let seats = usize::from(config.guests) + 1;
        if host && seats > limits::FRAME_SEATS {
            return Err(UsageError::Config("guests must be below 256 where a schema has computed kinds or orders"));
        }
        if host && Frame::worst_state_bits(seats, schema.input.as_ref()) > FIRST_BYTES * 8 {
            return Err(UsageError::Config(
                "the inputs of so many guests do not fit a message; lower guests, or the input's size",
            ));
        }
        let side = if host { Side::Host(Sealer::new(seats)) } else { Side::Guest(Taking::default()) };
        Ok(Some(Box::new(Self { side })))
    }

    /// The frame of a tick, if it is known and still kept.
    pub(crate) fn sealed(&self, tick: Tick) -> Option<&Frame> {
        match &self.side {
            Side::Host(sealer) => sealer.sealed(tick),
            Side::Guest(taking) => taking.intake.sealed(tick),
        }
    }

    /// Host: the oldest tick whose frame it still has as it is. It has run all before; what it left out in a long stall, it has
    /// not kept.
    pub(crate) fn oldest_of_host(&self) -> Option<Tick> {
        match &self.side {
            Side::Host(sealer) => sealer.oldest_recent(),
            Side::Guest(_) => None,
        }
    }

    /// The newest tick up to which all frames are known.
    pub(crate) fn newest(&self) -> Option<Tick> {
        match &self.side {
            Side::Host(sealer) => sealer.newest(),
            Side::Guest(taking) => taking.intake.newest(),
        }
    }

    /// No step needs frames before `tick` any more. From the first call on, a guest keeps all others.
    #[allow(dead_code, reason = "for the timelines that run by frames")]
    pub(crate) fn drop_before(&mut self, tick: Tick) {
        if let Side::Guest(taking) = &mut self.side {
            taking.is_kept = true;
            taking.intake.drop_before(tick);
        }
    }

    pub(crate) fn sealer(&mut self) -> Option<&mut Sealer> {
        match &mut self.side {
            Side::Host(sealer) => Some(sealer),
            Side::Guest(_) => None,
        }
    }

    fn taking(&mut self) -> Option<&mut Taking> {
        match &mut self.side {
            Side::Host(_) => None,
            Side::Guest(taking) => Some(taking),
        }
    }
}

/// Bytes of a first frame's state in its message, beside orders and the head.
const FIRST_BYTES: usize = limits::MESSAGE_BYTES - limits::FRAME_BYTES - 16;

#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod test_rig;
