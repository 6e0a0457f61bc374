//! An in-memory transport without weather: two queues per cable. What lies in them can be taken out, changed, and put in by hand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tidelock_netcore::error::{LinkError, TransportError};
use tidelock_netcore::limits;
use tidelock_netcore::transport::{Arrival, Delivery, Facts, Lane, LinkId, LinkStats, Transport};

/// Something on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parcel {
    /// A datagram.
    Datagram(Vec<u8>),
    /// A message of a lane.
    Message(Lane, Vec<u8>),
}

impl Parcel {
    /// What it carries.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Datagram(bytes) | Self::Message(_, bytes) => bytes,
        }
    }
}

/// An end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host's.
    Host,
    /// The guest's.
    Guest,
}

#[derive(Default)]
struct End {
    /// What lies here for this end.
    inbox: VecDeque<Parcel>,
    opened: bool,
    /// The code and words with which the other end closed.
    told: Option<(u32, String)>,
    /// This end takes no part any more.
    over: bool,
}

/// One link. Clones are handles to the same one.
#[derive(Clone, Default)]
pub struct Cable(Arc<Mutex<[End; 2]>>);

impl Cable {
    fn ends(&self) -> MutexGuard<'_, [End; 2]> {
        self.0.lock().expect("nobody panics while holding it")
    }

    /// Puts something down for an end.
    pub fn push(&self, to: Side, parcel: Parcel) {
        let end = &mut self.ends()[to as usize];
        if !end.over {
            end.inbox.push_back(parcel);
        }
    }

    /// Takes the oldest of what lies for an end.
    #[must_use]
    pub fn pop(&self, to: Side) -> Option<Parcel> {
        self.ends()[to as usize].inbox.pop_front()
    }

    /// Has that end closed the link?
    #[must_use]
    pub fn is_closed_by(&self, side: Side) -> bool {
        self.ends()[1 - side as usize].told.is_some()
    }

    fn poll(&self, side: Side, link: LinkId, payload: &mut Vec<u8>) -> Option<Arrival> {
        let end = &mut self.ends()[side as usize];
        if end.over {
            return None;
        }
        if !end.opened {
            end.opened = true;
            return Some(Arrival::Opened { link, address: String::new() });
        }
        match end.inbox.pop_front() {
            Some(Parcel::Datagram(bytes)) => {
                *payload = bytes;
                Some(Arrival::Datagram { link })
            }
            Some(Parcel::Message(lane, bytes)) => {
                *payload = bytes;
                Some(Arrival::Message { link, lane })
            }
            None => {
                let (code, text) = end.told.clone()?;
                end.over = true;
                Some(Arrival::Closed { link, reason: LinkError::ClosedByPeer { code, text } })
            }
        }
    }

    fn send(&self, from: Side, parcel: Parcel) -> Result<Delivery, TransportError> {
        let mut ends = self.ends();
        let end = &ends[from as usize];
        if !end.opened || end.over {
            return Err(TransportError::NotOpen);
        }
        let other = &mut ends[1 - from as usize];
        if !other.over {
            other.inbox.push_back(parcel);
        }
        Ok(Delivery::Taken)
    }
}

/// A peer's view of its cables: a host's of many, a guest's of one. `LinkId` is the place in the list.
pub struct Plug {
    cables: Vec<Cable>,
    side: Side,
}

impl Plug {
    /// The host's ends of these cables.
    #[must_use]
    pub fn host(cables: &[Cable]) -> Self {
        Self { cables: cables.to_vec(), side: Side::Host }
    }

    /// The guest's end of one.
    #[must_use]
    pub fn guest(cable: &Cable) -> Self {
        Self { cables: vec![cable.clone()], side: Side::Guest }
    }

    fn cable(&self, link: LinkId) -> Result<&Cable, TransportError> {
        self.cables.get(link.0 as usize).ok_or(TransportError::NotOpen)
    }
}

impl Transport for Plug {
    fn poll(&mut self, _: Duration, payload: &mut Vec<u8>) -> Option<Arrival> {
        self.cables.iter().enumerate().find_map(|(i, cable)| cable.poll(self.side, LinkId(i as u32), payload))
    }

    fn facts(&self, link: LinkId) -> Option<Facts> {
        let cable = self.cable(link).ok()?;
        let end = &cable.ends()[self.side as usize];
        (end.opened && !end.over).then_some(Facts {
            lossless: false,
            independent_lanes: true,
            datagram_limit: limits::DATAGRAM_MAX_BYTES,
            datagram_overhead: 0,
            free: 1 << 20,
            rate: None,
        })
    }

    fn send_datagram(&mut self, _: Duration, link: LinkId, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let limit = limits::DATAGRAM_MAX_BYTES;
        if bytes.len() > limit {
            return Err(TransportError::TooLarge { size: bytes.len(), limit });
        }
        self.cable(link)?.send(self.side, Parcel::Datagram(bytes.to_vec()))
    }

    fn send_message(&mut self, _: Duration, link: LinkId, lane: Lane, bytes: &[u8]) -> Result<Delivery, TransportError> {
        let limit = limits::MESSAGE_BYTES;
        if bytes.len() > limit {
            return Err(TransportError::TooLarge { size: bytes.len(), limit });
        }
        self.cable(link)?.send(self.side, Parcel::Message(lane, bytes.to_vec()))
    }

    fn close(&mut self, _: Duration, link: LinkId, code: u32, text: &str) {
        let Ok(cable) = self.cable(link) else { return };
        let mut ends = cable.ends();
        ends[self.side as usize].over = true;
        ends[self.side as usize].inbox.clear();
        ends[1 - self.side as usize].told = Some((code, text.to_owned()));
    }

    fn stats(&self, _: LinkId) -> LinkStats {
        LinkStats::default()
    }
}
