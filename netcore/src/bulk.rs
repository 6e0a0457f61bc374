//! Large things on their way: how one goes to another peer in pieces, on [`Lane::BULK`](crate::transport::Lane::BULK), without
//! holding up anything else. State machines and their messages; when a piece goes is the caller's to say.
//!
//! A *blob* is of a *topic*. Per topic one is on its way at a time: a newer one replaces it, and what was there of it is let go. They
//! go from a host to its guests; but those of the topic [`QUEUE`] go both ways, wait for each other, and none is replaced.
//!
//! ```text
//! announce  u8 0, u8 topic, u32 id, u32 length, u64 digest (xxh3): a blob begins. Ids rise per topic
//! piece     u8 1, u8 topic, u32 id, u32 offset, its bytes (1 or more): of the blob announced last, each where the last one ended
//! word      u8 2, u8 topic, u32 id, u32 bytes: the other way; so much of the blob that was announced last has come
//! gone      u8 3, u8 topic, u32 id, u32 0: the other way; nothing of it has come for too long, and it is let go
//! ```
//!
//! Numbers are little endian. What is not as described ends the link: a lane loses and reorders nothing. A word on what was
//! replaced is the exception, since the two may cross.

use crate::bits::BitError;
use crate::error::PeerError;
use crate::limits;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// The topic whose blobs follow one another.
pub const QUEUE: u8 = limits::BLOB_TOPICS as u8;

/// A message of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bulk<'a> {
    /// A blob begins.
    Announce(Announce),
    /// The next bytes of the blob that was announced last.
    Piece {
        /// Its topic.
        topic: u8,
        /// Its id.
        id: u32,
        /// How many came before.
        offset: u32,
        /// They.
        bytes: &'a [u8],
    },
    /// How much of a blob has come.
    Word {
        /// Its topic.
        topic: u8,
        /// Its id.
        id: u32,
        /// Bytes.
        bytes: u32,
    },
    /// A blob was let go before it was whole.
    Gone {
        /// Its topic.
        topic: u8,
        /// Its id.
        id: u32,
    },
}

/// What is said of a blob before it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// What it is about, below [`limits::BLOB_TOPICS`], or [`QUEUE`].
    pub topic: u8,
    /// Which one: higher than that of the one before.
    pub id: u32,
    /// Its bytes, at most [`limits::BLOB_BYTES`].
    pub length: u32,
    /// Their xxh3.
    pub digest: u64,
}

/// How far a blob has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the receiver has, as far as is known here.
    pub bytes: usize,
    /// Bytes that it is long.
    pub total: usize,
}

/// Bytes of a piece beside those of the blob.
pub const PIECE_HEAD: usize = 10;
/// Blob bytes of the smallest piece that is worth its head.
pub const PIECE_LEAST: usize = 32;
/// A word goes out whenever so many bytes have come since the last.
const WORD_EVERY: usize = 4 * limits::BLOB_PIECE;

impl Bulk<'_> {
    /// Appends the message.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut head = |code: u8, topic: u8, id: u32, number: u32| {
            out.extend([code, topic]);
            out.extend(id.to_le_bytes());
            out.extend(number.to_le_bytes());
        };
        match *self {
            Self::Announce(Announce { topic, id, length, digest }) => {
                head(0, topic, id, length);
                out.extend(digest.to_le_bytes());
            }
            Self::Piece { topic, id, offset, bytes } => {
                head(1, topic, id, offset);
                out.extend(bytes);
            }
            Self::Word { topic, id, bytes } => head(2, topic, id, bytes),
            Self::Gone { topic, id } => head(3, topic, id, 0),
        }
    }
}

impl<'a> Bulk<'a> {
    /// The message that the bytes are.
    ///
    /// # Errors
    /// [`PeerError`] if they are none, or beyond a limit.
    pub fn read(bytes: &'a [u8]) -> Result<Self, PeerError> {
        let malformed = |cause| PeerError::Malformed { what: "bulk message", cause };
        let (head, rest) = bytes.split_first_chunk::<PIECE_HEAD>().ok_or(malformed(BitError::Truncated))?;
        let [code, topic, i0, i1, i2, i3, n0, n1, n2, n3] = *head;
        let (id, number) = (u32::from_le_bytes([i0, i1, i2, i3]), u32::from_le_bytes([n0, n1, n2, n3]));
        if topic > QUEUE {
            return Err(PeerError::OverLimit { what: "the topic of a blob" });
        }
        // a byte says what a large message is
        let most = if topic == QUEUE { limits::LARGE_BYTES + 1 } else { limits::BLOB_BYTES };
        if number as usize > most {
            return Err(PeerError::OverLimit { what: "the length of a blob" });
        }
        match code {
            0 => {
                let digest = rest.try_into().map_err(|_| malformed(BitError::OutOfRange))?;
                Ok(Self::Announce(Announce { topic, id, length: number, digest: u64::from_le_bytes(digest) }))
            }
            1 if !rest.is_empty() => Ok(Self::Piece { topic, id, offset: number, bytes: rest }),
            3 if rest.is_empty() && number == 0 => Ok(Self::Gone { topic, id }),
            2 if rest.is_empty() => Ok(Self::Word { topic, id, bytes: number }),
            _ => Err(malformed(BitError::OutOfRange)),
        }
    }
}

/// The blobs that go to one guest.
///
/// How much is on its way at a time begins small and grows with what arrives, until [`slow_down`](Self::slow_down) is called: a
/// path may carry far less than was set for it, and whatever waits in it would hold up all else.
#[derive(Debug)]
pub struct Outgoing {
    /// The oldest first.
    blobs: VecDeque<Leaving>,
    last_id: u32,
    /// Ids of those that the other side has let go.
    gone: Vec<u32>,
    /// Bytes that may be on their way now.
    window: usize,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self { blobs: VecDeque::new(), last_id: 0, gone: Vec::new(), window: limits::BLOB_FLIGHT_LEAST }
    }
}

#[derive(Debug)]
struct Leaving {
    announce: Announce,
    /// Guests who get the same share it.
    bytes: Arc<[u8]>,
    announced: bool,
    sent: usize,
    got: usize,
    /// Bytes of blobs that it replaced which the receiver may not have got yet: they go before it on the lane.
    before: usize,
}

impl Leaving {
    fn is_sent(&self) -> bool {
        self.announced && self.sent == self.bytes.len()
    }

    fn in_flight(&self) -> usize {
        self.sent - self.got + self.before
    }
}

impl Outgoing {
    /// A blob is to go; one of the same topic that is not through yet is given up for it.
    ///
    /// # Errors
    /// [`PeerError::OverLimit`] if it is longer than [`limits::BLOB_BYTES`] or its topic is not below [`limits::BLOB_TOPICS`].
    pub fn offer(&mut self, topic: u8, bytes: Arc<[u8]>) -> Result<(), PeerError> {
        if bytes.len() > limits::BLOB_BYTES || usize::from(topic) >= limits::BLOB_TOPICS {
            return Err(PeerError::OverLimit { what: "a blob" });
        }
        let mut before = 0;
        self.blobs.retain(|blob| {
            let other = blob.announce.topic != topic;
            before += if other { 0 } else { blob.in_flight() };
            other
        });
        self.push(topic, bytes, before);
        Ok(())
    }

    /// A blob of the topic [`QUEUE`] is to go after those that do already; its id.
    ///
    /// # Errors
    /// [`PeerError::OverLimit`] if it is longer than [`limits::LARGE_BYTES`] and a byte.
    pub fn queue(&mut self, bytes: Arc<[u8]>) -> Result<u32, PeerError> {
        if bytes.len() > limits::LARGE_BYTES + 1 {
            return Err(PeerError::OverLimit { what: "a large message" });
        }
        Ok(self.push(QUEUE, bytes, 0))
    }

    fn push(&mut self, topic: u8, bytes: Arc<[u8]>, before: usize) -> u32 {
        self.last_id += 1;
        let announce = Announce { topic, id: self.last_id, length: bytes.len() as u32, digest: xxh3_64(&bytes) };
        self.blobs.push_back(Leaving { announce, bytes, announced: false, sent: 0, got: 0, before });
        self.last_id
    }

    /// The message that is next, of at most `limit` bytes; `None` if nothing waits, if as much is on its way as may be, or if
    /// `limit` is too small. It counts as sent once [`taken`](Self::taken) is called.
    #[must_use]
    pub fn next(&self, limit: usize) -> Option<Bulk<'_>> {
        let blob = self.next_blob()?;
        if !blob.announced {
            return (limit >= PIECE_HEAD + 8).then_some(Bulk::Announce(blob.announce));
        }
        let flight: usize = self.blobs.iter().map(Leaving::in_flight).sum();
        let left = (blob.bytes.len() - blob.sent).min(limits::BLOB_PIECE);
        let size = limit.saturating_sub(PIECE_HEAD).min(left);
        if size < left.min(PIECE_LEAST) || flight + size > self.window {
            return None;
        }
        let Announce { topic, id, .. } = blob.announce;
        Some(Bulk::Piece { topic, id, offset: blob.sent as u32, bytes: &blob.bytes[blob.sent..blob.sent + size] })
    }

    /// The message that [`next`](Self::next) gave for the same limit was handed over.
    pub fn taken(&mut self, limit: usize) {
        let size = match self.next(limit) {
            Some(Bulk::Piece { bytes, .. }) => bytes.len(),
            _ => 0,
        };
        if let Some(at) = self.next_place() {
            let blob = &mut self.blobs[at];
            blob.announced = true;
            blob.sent += size;
        }
    }

    /// One after the other, so that the first is through soonest; but announced at once, because the word on what one replaced
    /// comes only with the word on itself. Those that replace nothing are announced when their pieces are next, since what is
    /// announced and does not come is let go.
    fn next_place(&self) -> Option<usize> {
        // of those that follow one another, the first that is not all sent
        let turn = self.blobs.iter().position(|blob| blob.announce.topic == QUEUE && !blob.is_sent());
        let new = self.blobs.iter().position(|blob| !blob.announced && blob.announce.topic != QUEUE);
        let goes = |at: usize| !self.blobs[at].is_sent() && (self.blobs[at].announced || turn == Some(at));
        new.or_else(|| (0..self.blobs.len()).find(|at| goes(*at)))
    }

    fn next_blob(&self) -> Option<&Leaving> {
        self.next_place().map(|at| &self.blobs[at])
    }

    /// The receiver says how much it has, or that it has let one go.
    ///
    /// # Errors
    /// [`PeerError`] if it cannot have that much, or had more.
    pub fn hear(&mut self, message: Bulk<'_>) -> Result<(), PeerError> {
        let (topic, id, bytes) = match message {
            Bulk::Word { topic, id, bytes } => (topic, id, Some(bytes as usize)),
            Bulk::Gone { topic, id } => (topic, id, None),
            _ => return Err(PeerError::OutOfOrder("a blob from a guest")),
        };
        if id == 0 || id > self.last_id {
            return Err(PeerError::OutOfOrder("a word on a blob that there never was"));
        }
        let Some(at) = self.blobs.iter().position(|b| b.announce.topic == topic && b.announce.id == id) else {
            return Ok(()); // it was replaced meanwhile
        };
        let at = if topic == QUEUE { self.settle_before(at) } else { at };
        let blob = &mut self.blobs[at];
        let Some(bytes) = bytes.filter(|bytes| blob.announced && (blob.got..=blob.sent).contains(bytes)) else {
            if bytes.is_some() || !blob.announced || topic != QUEUE {
                return Err(PeerError::OutOfOrder("a word on bytes that were not sent"));
            }
            self.blobs.remove(at);
            self.gone.push(id);
            return Ok(());
        };
        self.window = (self.window + (bytes - blob.got) / 4).min(limits::BLOB_FLIGHT);
        (blob.got, blob.before) = (bytes, 0);
        if bytes == blob.bytes.len() {
            self.blobs.remove(at);
        }
        Ok(())
    }

    /// Of those that follow one another, what is said of one says that those before it have come. Gives its place after that.
    fn settle_before(&mut self, at: usize) -> usize {
        let mut at = at;
        // one that was never announced cannot be spoken of, and says nothing of others
        while self.blobs[at].announced
            && let Some(before) = self.blobs.iter().take(at).position(|blob| blob.announce.topic == QUEUE)
        {
            let came = self.blobs.remove(before).map_or(0, |blob| blob.bytes.len() - blob.got);
            self.window = (self.window + came / 4).min(limits::BLOB_FLIGHT);
            at -= 1;
        }
        at
    }

    /// The ids of those that the other side has let go, once.
    pub fn take_gone(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.gone)
    }

    /// Those of the topic [`QUEUE`] that are not through, in order: their ids, and how far each has come.
    pub fn queued(&self) -> impl Iterator<Item = (u32, Progress)> {
        let queued = self.blobs.iter().filter(|blob| blob.announce.topic == QUEUE);
        queued.map(|blob| (blob.announce.id, Progress { bytes: blob.got, total: blob.bytes.len() }))
    }

    /// Queues are filling up on the way: half as much at a time from now on.
    pub fn slow_down(&mut self) {
        self.window = (self.window / 2).max(limits::BLOB_FLIGHT_LEAST);
    }

    /// How far a topic's blob has come, if one is on its way.
    #[must_use]
    pub fn progress(&self, topic: u8) -> Option<Progress> {
        let blob = self.blobs.iter().find(|b| b.announce.topic == topic)?;
        Some(Progress { bytes: blob.got, total: blob.bytes.len() })
    }

    /// Is nothing on its way?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }
}

/// The blobs that come from another peer.
#[derive(Debug, Default)]
pub struct Incoming {
    topics: [Topic; limits::BLOB_TOPICS + 1],
    /// Of the topic [`QUEUE`]: the id and how much had come when something came last, and when that was.
    stirred: (u32, usize, Duration),
}

#[derive(Debug, Default)]
struct Topic {
    last: Option<Announce>,
    came: usize,
    /// What has come of the last one, until it is whole.
    bytes: Option<Vec<u8>>,
    /// The last one, whole.
    whole: Option<Vec<u8>>,
    /// The word that the other side has.
    told: Option<usize>,
    /// It was let go before it was whole, and whether the other side knows.
    gone: Option<bool>,
}

impl Incoming {
    /// A message has come.
    ///
    /// # Errors
    /// [`PeerError`] for what does not follow what came before. Nothing of its blob is kept then.
    pub fn hear(&mut self, message: Bulk<'_>) -> Result<(), PeerError> {
        match message {
            Bulk::Announce(announce) => {
                let topic = self.topic(announce.topic)?;
                if announce.id <= topic.last.map_or(0, |last| last.id) {
                    return Err(PeerError::OutOfOrder("a blob that is no newer"));
                }
                // its memory grows as it comes, whatever was announced
                *topic = Topic { last: Some(announce), bytes: Some(Vec::new()), ..Topic::default() };
                topic.finish()
            }
            Bulk::Piece { topic, id, offset, bytes } => {
                let topic = self.topic(topic)?;
                if topic.gone.is_some() && topic.last.is_some_and(|last| last.id == id) {
                    return Ok(()); // it was on its way already
                }
                let Some((last, came)) = topic.last.zip(topic.bytes.as_mut()).filter(|(last, _)| last.id == id) else {
                    return Err(PeerError::OutOfOrder("a piece of a blob that was not announced"));
                };
                if offset as usize != came.len() || bytes.len() > last.length as usize - came.len() {
                    topic.bytes = None;
                    return Err(PeerError::OutOfOrder("a piece where another one belongs"));
                }
                came.extend_from_slice(bytes);
                topic.came = came.len();
                topic.finish()
            }
            Bulk::Word { .. } | Bulk::Gone { .. } => Err(PeerError::OutOfOrder("a word on a blob from a host")),
        }
    }

    fn topic(&mut self, topic: u8) -> Result<&mut Topic, PeerError> {
        self.topics.get_mut(usize::from(topic)).ok_or(PeerError::OverLimit { what: "the topic of a blob" })
    }

    /// The last blob of a topic, once it is whole; once.
    pub fn take(&mut self, topic: u8) -> Option<Vec<u8>> {
        self.topics.get_mut(usize::from(topic))?.whole.take()
    }

    /// The word that is due now, if any. It counts as said once [`told`](Self::told) is called with it.
    #[must_use]
    pub fn word(&self) -> Option<Bulk<'static>> {
        (0..).zip(&self.topics).find_map(|(topic, state)| {
            let (last, came) = (state.last?, state.came);
            if let Some(told) = state.gone {
                return (!told).then_some(Bulk::Gone { topic, id: last.id });
            }
            let is_due = state.told.is_none_or(|told| came >= told + WORD_EVERY || came > told && came == last.length as usize);
            is_due.then_some(Bulk::Word { topic, id: last.id, bytes: came as u32 })
        })
    }

    /// The word was handed over.
    pub fn told(&mut self, word: Bulk<'_>) {
        if let Bulk::Word { topic, bytes, .. } = word
            && let Ok(topic) = self.topic(topic)
        {
            topic.told = Some(bytes as usize);
        }
        if let Bulk::Gone { topic, .. } = word
            && let Ok(topic) = self.topic(topic)
        {
            topic.gone = Some(true);
        }
    }

    /// Lets go what is there of a blob of the topic [`QUEUE`] of which nothing has come for [`limits::LARGE_IDLE`]. To be called now and then.
    pub fn release_idle(&mut self, now: Duration) {
        let topic = &mut self.topics[usize::from(QUEUE)];
        let at = (topic.last.map_or(0, |last| last.id), topic.came);
        if at != (self.stirred.0, self.stirred.1) || topic.bytes.is_none() {
            self.stirred = (at.0, at.1, now);
        } else if now >= self.stirred.2 + limits::LARGE_IDLE {
            topic.bytes = None;
            topic.gone = Some(false);
        }
    }

    /// Bytes of memory that blobs of the topic [`QUEUE`] take here.
    #[must_use]
    pub fn queued_memory(&self) -> usize {
        let topic = &self.topics[usize::from(QUEUE)];
        topic.bytes.iter().chain(&topic.whole).map(Vec::capacity).sum()
    }

    /// How far a topic's blob has come, while one is on its way.
    #[must_use]
    pub fn progress(&self, topic: u8) -> Option<Progress> {
        let topic = self.topics.get(usize::from(topic))?;
        let (last, bytes) = topic.last.zip(topic.bytes.as_ref())?;
        Some(Progress { bytes: bytes.len(), total: last.length as usize })
    }
}

impl Topic {
    /// Is it whole now?
    fn finish(&mut self) -> Result<(), PeerError> {
        let Some(last) = self.last else { return Ok(()) };
        let Some(bytes) = self.bytes.take_if(|bytes| bytes.len() == last.length as usize) else { return Ok(()) };
        if xxh3_64(&bytes) != last.digest {
            self.last = None;
            return Err(PeerError::Malformed { what: "digest of a blob", cause: BitError::OutOfRange });
        }
        self.whole = Some(bytes);
        Ok(())
    }
}

#[cfg(test)]
#[path = "bulk_tests.rs"]
mod tests;
