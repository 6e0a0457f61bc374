//! One link: two emulators, and how far each side has come with it.

use crate::{Conditions, Direction};
use std::time::Duration;
use tidelock_netcore::emulator::{Emulator, Path};
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::limits;
use tidelock_netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats};

/// What goes with each packet: whether it is the caller's, or opens or ends the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Open,
    Data,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Guest,
}

/// One side's view of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A guest that has not polled yet.
    Idle,
    /// Nothing has come from the other side.
    Waiting,
    Open,
    Closed,
}

pub(crate) struct Link {
    up: Emulator<Signal>,
    down: Emulator<Signal>,
    host: Stage,
    guest: Stage,
    /// What overtook the host's answer to the knock, and comes right after the opening that it implies.
    early: Option<Arrival>,
    early_payload: Vec<u8>,
    cut: bool,
}

impl Link {
    pub(crate) fn new(seed: u64, up: Conditions, down: Conditions) -> Self {
        Self {
            up: Emulator::new(seed, up),
            down: Emulator::new(!seed, down),
            host: Stage::Waiting,
            guest: Stage::Idle,
            early: None,
            early_payload: Vec::new(),
            cut: false,
        }
    }

    pub(crate) fn net(&mut self, direction: Direction) -> &mut Emulator<Signal> {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    pub(crate) fn cut(&mut self) {
        self.cut = true;
    }

    pub(crate) fn is_open(&self, side: Side) -> bool {
        self.stage(side) == Stage::Open
    }

    pub(crate) fn is_over(&self) -> bool {
        self.host == Stage::Closed && self.guest == Stage::Closed
    }

    /// Asks the host in, once. `false` if there is none.
    pub(crate) fn knock(&mut self, now: Duration, host_listens: bool) -> bool {
        if self.guest == Stage::Idle {
            if !host_listens {
                return false;
            }
            self.guest = Stage::Waiting;
            self.up.send_message(now, Lane::CONTROL, &[], Signal(Kind::Open));
        }
        true
    }

    pub(crate) fn receive(&mut self, side: Side, id: LinkId, now: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        if self.cut || self.stage(side) == Stage::Closed {
            return None;
        }
        if side == Side::Guest
            && let Some(early) = self.early.take()
        {
            std::mem::swap(payload, &mut self.early_payload);
            return Some(early);
        }
        loop {
            let arrived = self.net(incoming(side)).poll(now, payload)?;
            let waiting = self.stage(side) == Stage::Waiting;
            match arrived.tag.0 {
                Kind::End => {
                    self.set(side, Stage::Closed);
                    return Some(Arrival::Closed { link: id, reason: read_end(payload) });
                }
                Kind::Open if waiting => return Some(self.opened(side, id, now, payload)),
                Kind::Open => {}
                Kind::Data => {
                    let arrival = match arrived.path {
                        Path::Lane(lane) => Arrival::Message { link: id, lane },
                        _ => Arrival::Datagram { link: id },
                    };
                    if !waiting {
                        return Some(arrival);
                    }
                    self.early = Some(arrival);
                    std::mem::swap(payload, &mut self.early_payload);
                    return Some(self.opened(side, id, now, payload));
                }
            }
        }
    }

    pub(crate) fn facts(&self, side: Side, now: Duration) -> Facts {
        let net = self.outgoing(side);
        let conditions = net.conditions();
        // A datagram of this size would be taken; the ones after it cost their overhead as well.
        let free = if conditions.backpressure { net.free(now).saturating_sub(conditions.overhead) } else { usize::MAX / 2 };
        Facts {
            lossless: false,
            independent_lanes: true,
            datagram_limit: limits::DATAGRAM_MAX_BYTES,
            datagram_overhead: conditions.overhead,
            free,
            rate: None,
        }
    }

    pub(crate) fn send_datagram(&mut self, side: Side, now: Duration, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let (size, limit) = (bytes.len(), limits::DATAGRAM_MAX_BYTES);
        if size > limit {
            return Err(TransportError::TooLarge { size, limit });
        }
        let net = self.outgoing_mut(side);
        let conditions = net.conditions();
        if conditions.backpressure && size + conditions.overhead > net.free(now) {
            return Ok(Delivery::Full);
        }
        net.send(now, bytes, Signal(Kind::Data));
        Ok(Delivery::Taken)
    }

    pub(crate) fn send_message(
        &mut self,
        side: Side,
        now: Duration,
        lane: Lane,
        bytes: &[u8],
    ) -> Result<Delivery, TransportError> {
        let (size, limit) = (bytes.len(), limits::MESSAGE_BYTES);
        if lane.0 >= Lane::COUNT {
            return Err(TransportError::NoSuchLane(lane.0));
        }
        if size > limit {
            return Err(TransportError::TooLarge { size, limit });
        }
        let net = self.outgoing_mut(side);
        if net.queued(lane) + size > limits::LANE_QUEUE_BYTES {
            return Ok(Delivery::Full);
        }
        net.send_message(now, lane, bytes, Signal(Kind::Data));
        Ok(Delivery::Taken)
    }

    pub(crate) fn close(&mut self, side: Side, now: Duration, code: u32, text: &str) {
        match self.stage(side) {
            Stage::Closed => return,
            // Nobody ever heard of this link.
            Stage::Idle => self.host = Stage::Closed,
            Stage::Waiting | Stage::Open => {
                let mut bytes = code.to_le_bytes().to_vec();
                let end = (0..=text.len().min(limits::CLOSE_TEXT_BYTES)).rev().find(|&i| text.is_char_boundary(i));
                bytes.extend_from_slice(&text.as_bytes()[..end.unwrap_or(0)]);
                self.outgoing_mut(side).send_last(now, &bytes, Signal(Kind::End));
            }
        }
        self.set(side, Stage::Closed);
    }

    pub(crate) fn stats(&self, side: Side) -> LinkStats {
        let (out, back) = match side {
            Side::Host => (&self.down, &self.up),
            Side::Guest => (&self.up, &self.down),
        };
        let (sent, received) = (out.counters(), back.counters());
        LinkStats {
            rtt: out.conditions().latency + back.conditions().latency,
            bytes_out: sent.bytes_sent,
            bytes_in: received.bytes_delivered,
            packets_out: sent.sent + sent.messages_sent,
            packets_lost: sent.lost + sent.overflowed + sent.partitioned + sent.dropped,
        }
    }

    fn opened(&mut self, side: Side, id: LinkId, now: Duration, payload: &mut Vec<u8>) -> Arrival {
        payload.clear();
        self.set(side, Stage::Open);
        if side == Side::Host {
            self.down.send_message(now, Lane::CONTROL, &[], Signal(Kind::Open));
        }
        let address = match side {
            Side::Host => format!("loopback guest {}", id.0),
            Side::Guest => "loopback host".into(),
        };
        Arrival::Opened { link: id, address }
    }

    fn stage(&self, side: Side) -> Stage {
        match side {
            Side::Host => self.host,
            Side::Guest => self.guest,
        }
    }

    fn set(&mut self, side: Side, stage: Stage) {
        match side {
            Side::Host => self.host = stage,
            Side::Guest => self.guest = stage,
        }
    }

    fn outgoing(&self, side: Side) -> &Emulator<Signal> {
        match side {
            Side::Host => &self.down,
            Side::Guest => &self.up,
        }
    }

    fn outgoing_mut(&mut self, side: Side) -> &mut Emulator<Signal> {
        match side {
            Side::Host => &mut self.down,
            Side::Guest => &mut self.up,
        }
    }
}

fn incoming(side: Side) -> Direction {
    match side {
        Side::Host => Direction::Up,
        Side::Guest => Direction::Down,
    }
}

/// Only this module writes the bytes of an end, and the emulator keeps them whole.
fn read_end(payload: &mut Vec<u8>) -> LinkError {
    let (code, text) = payload.split_first_chunk().expect("an end begins with its code");
    let reason = LinkError::ClosedByPeer { code: u32::from_le_bytes(*code), text: String::from_utf8_lossy(text).into_owned() };
    payload.clear();
    reason
}
