//! Host: what each guest is sent of lists and maps.

use super::wire::{HEAD, Key, Said};
use super::{MARK, TOPIC};
use crate::netid::NetId;
use crate::peer::Peer;
use hecs::World;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Bound;
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;
use tidelock_netcore::transport::Lane;

/// Host: what one guest was sent, and what it lacks.
#[derive(Default)]
pub(crate) struct Sent {
    /// All that there was when the guest came was looked at.
    begun: bool,
    /// The revision that it has, or will have when all that is on its way has come.
    revisions: FxHashMap<Key, u64>,
    /// Those that have changed since, or that it was not shown.
    due: BTreeSet<Key>,
    /// Those of which it needs a snapshot.
    lost: BTreeSet<Key>,
    /// Those that have ended, which it does not know yet.
    ended: Vec<Key>,
    /// What goes in pieces: nothing else may be said of it until it has come.
    large: Option<Key>,
    /// Where the last turn ended, so that the next begins behind it.
    last: Key,
    asks: u32,
}

impl Peer {
    /// Hands each guest what it lacks, as far as its lane has room.
    pub(crate) fn send_growing(&mut self, world: &World) {
        if self.schema.collections.is_empty() {
            return;
        }
        if !self.is_host() {
            return self.ask_for_lost();
        }
        self.end_growing_of_gone();
        for at in std::mem::take(&mut self.growing.changed) {
            let Some(instance) = self.growing.held.get_mut(&at) else { continue };
            instance.revision += 1;
            instance.is_changed = false;
            instance.log.settle();
            for link in &mut self.links {
                link.growing.due.insert(at);
            }
        }
        for index in 0..self.links.len() {
            let mut sent = std::mem::take(&mut self.links[index].growing);
            if !std::mem::replace(&mut sent.begun, true) {
                sent.due.extend(self.growing.held.keys());
            }
            if sent.large.is_some() && self.links[index].blobs.outgoing.progress(TOPIC).is_none() {
                sent.large = None;
            }
            if !sent.ended.is_empty() || !sent.due.is_empty() {
                self.tell_growing(world, index, &mut sent);
            }
            self.links[index].growing = sent;
        }
    }

    /// What was of an entity that has ended ends.
    fn end_growing_of_gone(&mut self) {
        let (entities, mut gone) = (&self.entities, Vec::new());
        self.growing.bound.retain(|at| {
            let lives = entities.slot_of(NetId(at.1)).is_some();
            gone.extend((!lives).then_some(*at));
            lives
        });
        for at in gone {
            if let Some(instance) = self.growing.held.remove(&at) {
                self.growing.size -= instance.content.size();
            }
            for link in &mut self.links {
                let sent = &mut link.growing;
                sent.due.remove(&at);
                sent.lost.remove(&at);
                if sent.revisions.remove(&at).is_some() {
                    sent.ended.push(at);
                }
            }
        }
    }

    fn tell_growing(&mut self, world: &World, index: usize, sent: &mut Sent) {
        let mut ended = std::mem::take(&mut sent.ended);
        ended.retain(|at| sent.large == Some(*at) || !self.post_growing(index, &said(&Said::End { at: *at })));
        sent.ended = ended;
        let behind = sent.due.range((Bound::Excluded(sent.last), Bound::Unbounded));
        let turn: Vec<Key> = behind.chain(sent.due.range(..=sent.last)).copied().collect();
        for at in turn {
            if self.tell_one(world, index, sent, at) {
                sent.due.remove(&at);
                sent.last = at;
            }
        }
    }

    /// Sends what a guest lacks of one list or map; `false` if that is not possible now.
    fn tell_one(&mut self, world: &World, index: usize, sent: &mut Sent, at: Key) -> bool {
        if sent.large == Some(at) {
            return false;
        }
        let net = NetId(at.1);
        let is_shown = at.1 == 0 || self.entities.slot_of(net).is_some_and(|slot| self.may_know(world, index, slot));
        if !is_shown {
            return false;
        }
        let Some(instance) = self.growing.held.get_mut(&at) else { return true };
        let base = (!sent.lost.contains(&at)).then(|| sent.revisions.get(&at).copied().unwrap_or(0));
        if base == Some(instance.revision) {
            return true;
        }
        let plan = instance.log.plan(base, &instance.content);
        let is_large = plan.size + HEAD > limits::COLLECTION_MESSAGE_BYTES;
        if is_large && sent.large.is_some() {
            return false;
        }
        if !is_large && self.links[index].backlog().bytes > limits::COLLECTION_MESSAGE_BYTES {
            return false;
        }
        let revision = instance.revision;
        let bytes = instance.log.message(plan, at, revision, &instance.content);
        if is_large {
            let peer = self.links[index].peer;
            // it is far below what a blob may be, and its topic is one
            let _ = self.send_blob(peer, TOPIC, bytes);
            sent.large = Some(at);
        } else if !self.post_growing(index, &bytes) {
            return false;
        }
        sent.revisions.insert(at, revision);
        sent.lost.remove(&at);
        true
    }

    /// Queues a message about a list or map; `false` if the lane has no room for it.
    pub(super) fn post_growing(&mut self, index: usize, bytes: &[u8]) -> bool {
        let message: Vec<u8> = std::iter::once(MARK).chain(bytes.iter().copied()).collect();
        self.links[index].post(Lane::RELIABLE, &message)
    }

    /// Host: a guest has said something about a list or map. All it may do is ask.
    pub(super) fn hear_growing(&mut self, index: usize, said: &Said) -> Result<(), PeerError> {
        let Said::Ask { at } = *said else {
            return Err(PeerError::OutOfOrder("a list or map of a guest"));
        };
        let sent = &mut self.links[index].growing;
        if sent.ended.contains(&at) || !self.growing.held.contains_key(&at) && at.1 != 0 {
            return Ok(()); // the question and the end have crossed
        }
        sent.asks += 1;
        if sent.asks > limits::COLLECTION_ASKS {
            return Err(PeerError::OverLimit { what: "the questions for lists and maps" });
        }
        if !sent.revisions.contains_key(&at) {
            return Err(PeerError::OutOfOrder("a question for a list or map that was not sent"));
        }
        sent.lost.insert(at);
        sent.due.insert(at);
        self.links[index].counters.lists_asked += 1;
        Ok(())
    }
}

/// A message as bytes.
pub(super) fn said(what: &Said) -> Vec<u8> {
    let mut bytes = Vec::new();
    what.write(&mut bytes);
    bytes
}
