//! Large things for one peer, in pieces that go when nothing else needs the room: see `netcore::bulk`.

use crate::error::UsageError;
use crate::link::Link;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use hecs::World;
use std::sync::Arc;
use std::time::Duration;
use tidelock_netcore::bulk::{Announce, Bulk, Incoming, Outgoing, PIECE_HEAD, PIECE_LEAST, Progress, QUEUE};
use tidelock_netcore::clock::RttEstimator;
use tidelock_netcore::error::{DisconnectReason, PeerError, TransportError};
use tidelock_netcore::limits;
use tidelock_netcore::transport::{Delivery, Lane, LinkId, Transport};

/// For how long the shortest round trip counts as the one of an empty path: it is twice as much at most.
const LATELY: Duration = Duration::from_secs(10);

/// The topic of definitions. The states of what every peer computes have those of their timelines, which leave this one.
pub(crate) const DEFINITIONS: u8 = 0;
/// The topic of lists and maps that grow.
pub(crate) const COLLECTIONS: u8 = 3;

/// The blobs of one link, in both directions.
#[derive(Default)]
pub(crate) struct Blobs {
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    message: Vec<u8>,
    /// The shortest round trip of this stretch of time and of the one before, and when this one began.
    least: (Option<Duration>, Option<Duration>, Duration),
    slowed: Duration,
    /// When something of one went last, or there was nothing to go.
    went: Duration,
}

impl Blobs {
    /// Do packets wait on the way for longer than they did lately?
    fn is_path_full(&mut self, rtt: &RttEstimator, now: Duration) -> bool {
        let trip = rtt.latest();
        if trip.is_zero() {
            return false;
        }
        if now >= self.least.2 + LATELY {
            self.least = (None, self.least.0, now);
        }
        self.least.0 = Some(self.least.0.map_or(trip, |least| least.min(trip)));
        let least = self.least.0.into_iter().chain(self.least.1).min().unwrap_or(trip);
        let is_full = trip > least + limits::BLOB_DELAY;
        if is_full && now >= self.slowed + trip {
            self.slowed = now;
            self.outgoing.slow_down();
        }
        is_full
    }
}

impl Link {
    /// Hands over pieces of blobs, and word of those that came, as far as nothing else needs the room.
    pub(crate) fn flush_blobs(
        &mut self,
        transport: &mut dyn Transport,
        now: Duration,
        interval: Duration,
    ) -> Result<(), TransportError> {
        let overhead = self.overhead();
        self.blobs.incoming.release_idle(now);
        while let Some(word) = self.blobs.incoming.word() {
            self.blobs.message.clear();
            word.write(&mut self.blobs.message);
            if transport.send_message(now, self.id, Lane::BULK, &self.blobs.message)? == Delivery::Full {
                break;
            }
            self.blobs.incoming.told(word);
            self.allowance.debit(now, self.blobs.message.len() + overhead);
            self.counters.message_bytes_out += self.blobs.message.len() as u64;
        }
        // asked all along, so that it is known what is usual
        let full = self.blobs.is_path_full(&self.rtt, now);
        if self.blobs.outgoing.is_empty() {
            self.blobs.went = now;
        }
        // what hears nothing for too long is let go over there: a little goes in any case
        let starves = now >= self.blobs.went + limits::LARGE_IDLE / 4;
        if self.blobs.outgoing.is_empty() || full && !starves {
            return Ok(());
        }
        if starves && self.draft_piece(PIECE_HEAD + PIECE_LEAST).is_some() {
            self.send_piece(transport, now, PIECE_HEAD + PIECE_LEAST)?;
        }
        if full {
            return Ok(());
        }
        loop {
            let room = self.spare_room(now, interval);
            // where the bucket never holds a whole piece, it is a smaller one
            let limit = (self.allowance.capacity() / 2).saturating_sub(overhead).min(PIECE_HEAD + limits::BLOB_PIECE);
            let Some(size) = self.draft_piece(limit) else { return Ok(()) };
            // the transport's own room is left to datagrams
            let free = transport.facts(self.id).map_or(0, |facts| facts.free);
            let fits = room >= size + overhead && free >= size + 2 * limits::DATAGRAM_MAX_BYTES;
            if !fits || !self.send_piece(transport, now, limit)? {
                return Ok(());
            }
        }
    }

    /// Writes the next message of a blob, of at most so many bytes; how many it has.
    fn draft_piece(&mut self, limit: usize) -> Option<usize> {
        let message = self.blobs.outgoing.next(limit)?;
        self.blobs.message.clear();
        message.write(&mut self.blobs.message);
        Some(self.blobs.message.len())
    }

    /// Hands over what was [written](Self::draft_piece) for that limit; `false` if the transport does not take it.
    fn send_piece(&mut self, transport: &mut dyn Transport, now: Duration, limit: usize) -> Result<bool, TransportError> {
        if transport.send_message(now, self.id, Lane::BULK, &self.blobs.message)? == Delivery::Full {
            return Ok(false);
        }
        let size = self.blobs.message.len();
        self.blobs.outgoing.taken(limit);
        self.blobs.went = now;
        self.allowance.take_spare(now, size + self.overhead());
        self.counters.message_bytes_out += size as u64;
        Ok(true)
    }
}

#[cfg_attr(not(test), allow(dead_code, reason = "what policies send to who joins"))]
impl Peer {
    /// Sends a guest something large (host only): at most [`limits::BLOB_BYTES`], of a topic below [`limits::BLOB_TOPICS`]. One of the
    /// same topic that is not through yet is given up for it.
    pub(crate) fn send_blob(&mut self, peer: PeerId, topic: u8, bytes: impl Into<Arc<[u8]>>) -> Result<(), UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("send what is large"));
        }
        let link = self.links.iter_mut().find(|l| l.peer == peer).ok_or(UsageError::NoSuchPeer)?;
        let refused = link.blobs.outgoing.offer(topic, bytes.into());
        refused.map_err(|_| {
            UsageError::Config("a blob is longer than limits::BLOB_BYTES, or its topic is not below limits::BLOB_TOPICS")
        })
    }

    /// The last blob of a topic that came whole, once, and who sent it.
    pub(crate) fn take_blob(&mut self, topic: u8) -> Option<(PeerId, Vec<u8>)> {
        self.links.iter_mut().find_map(|link| Some((link.peer, link.blobs.incoming.take(topic)?)))
    }

    /// How far the blob of a topic has come that is on its way to a peer, or from it. `None` if none is.
    pub(crate) fn blob_progress(&self, peer: PeerId, topic: u8) -> Option<Progress> {
        let blobs = &self.link_to(peer)?.blobs;
        blobs.outgoing.progress(topic).or_else(|| blobs.incoming.progress(topic))
    }
}

impl Peer {
    /// A message of the lane of large things has come.
    pub(crate) fn take_bulk(&mut self, world: &mut World, id: LinkId, bytes: &[u8]) {
        let Some(index) = self.links.iter().position(|l| l.id == id) else { return };
        let (host, now) = (self.is_host(), self.time.now);
        let link = &mut self.links[index];
        let heard = Bulk::read(bytes).and_then(|message| match message {
            Bulk::Word { .. } | Bulk::Gone { .. } => link.blobs.outgoing.hear(message),
            Bulk::Announce(Announce { topic, .. }) | Bulk::Piece { topic, .. } if host && topic != QUEUE => {
                Err(PeerError::OutOfOrder("a blob from a guest"))
            }
            _ => link.blobs.incoming.hear(message),
        });
        if heard.is_ok() {
            link.last_heard = now;
        }
        let (peer, whole) = (link.peer, link.blobs.incoming.take(QUEUE));
        match heard.and_then(|()| whole.map_or(Ok(()), |bytes| self.take_large(peer, bytes))) {
            Ok(()) => {}
            Err(error) if host => self.misbehaved(world, index, error),
            Err(_) => self.end_session(world, DisconnectReason::Malformed, true),
        }
    }
}

#[cfg(test)]
mod tests;
