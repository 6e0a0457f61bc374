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
    /// What it has, or will have when all that is on its way has come.
    had: FxHashMap<Key, Had>,
    /// What is charged for that.
    weight: usize,
    /// Those that have changed since, and may be told.
    due: BTreeSet<Key>,
    /// The same of entities that it is not shown, the entity first: they wait until it is.
    hidden: BTreeSet<(u64, u8)>,
    /// Those of which it needs a snapshot.
    lost: BTreeSet<Key>,
    /// Those that have ended, and up to which revision, which it does not know yet.
    ended: Vec<(Key, u64)>,
    /// What goes in pieces: nothing else may be said of it until it has come.
    large: Option<Key>,
    /// Where the last turn ended, so that the next begins behind it.
    last: Key,
    asks: u32,
}

struct Had {
    revision: u64,
    weight: usize,
}

/// What has come of telling a guest of a list or map.
enum Told {
    /// There is nothing more to say of it.
    Done,
    /// Not before the guest is shown its entity.
    Hidden,
    /// Not now.
    Waits,
    /// Nor of any other: the lane has no room.
    Full,
}

impl Sent {
    fn note(&mut self, at: Key, revision: u64, weight: usize) {
        let before = self.had.insert(at, Had { revision, weight });
        self.weight = self.weight + weight - before.map_or(0, |had| had.weight);
    }

    /// It is to have it no longer: says up to which revision it has.
    fn forget(&mut self, at: Key) -> Option<u64> {
        self.lost.remove(&at);
        let had = self.had.remove(&at)?;
        self.weight -= had.weight;
        Some(had.revision)
    }

    fn owe(&mut self, at: Key) {
        if self.hidden.is_empty() || !self.hidden.contains(&(at.1, at.0)) {
            self.due.insert(at);
        }
    }

    /// The guest is shown an entity: what waited for that is due.
    pub(crate) fn show(&mut self, net: NetId) {
        while let Some(&of) = self.hidden.range((net.0, 0)..=(net.0, u8::MAX)).next() {
            self.hidden.remove(&of);
            self.due.insert((of.1, of.0));
        }
    }

    #[cfg(test)]
    pub(super) fn hide(&mut self, at: Key) {
        self.due.remove(&at);
        self.hidden.insert((at.1, at.0));
    }

    #[cfg(test)]
    pub(super) fn due_now(&mut self, at: Key) -> Vec<Key> {
        self.owe(at);
        self.due.iter().copied().collect()
    }
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
            // one that has ended, and another under its name, are two in this list
            let Some(instance) = self.growing.held.get_mut(&at).filter(|instance| instance.is_changed) else { continue };
            instance.revision += 1;
            instance.is_changed = false;
            for link in &mut self.links {
                link.growing.owe(at);
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
        while let Some(at) = self.growing.made.pop() {
            if let Some(instance) = self.growing.held.get_mut(&at) {
                instance.log.settle();
            }
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
            self.growing.forget(at);
            for link in &mut self.links {
                let sent = &mut link.growing;
                sent.due.remove(&at);
                sent.hidden.remove(&(at.1, at.0));
                sent.lost.remove(&at);
                if let Some(revision) = sent.forget(at) {
                    sent.ended.push((at, revision));
                }
            }
        }
    }

    fn tell_growing(&mut self, world: &World, index: usize, sent: &mut Sent) {
        if !self.tell_ends(index, sent) {
            return;
        }
        let mut at = sent.last;
        for _ in 0..sent.due.len() {
            let behind = sent.due.range((Bound::Excluded(at), Bound::Unbounded)).next();
            let Some(next) = behind.or_else(|| sent.due.first()).copied() else { return };
            at = next;
            match self.tell_one(world, index, sent, at) {
                Told::Done => sent.last = at,
                Told::Hidden => drop(sent.hidden.insert((at.1, at.0))),
                Told::Waits => continue,
                Told::Full => return,
            }
            sent.due.remove(&at);
        }
    }

    /// Tells of what has ended; `false` if the lane has no room for all of that.
    fn tell_ends(&mut self, index: usize, sent: &mut Sent) -> bool {
        let mut has_room = true;
        let mut ended = std::mem::take(&mut sent.ended);
        ended.retain(|&(at, revision)| {
            let may_go = has_room && sent.large != Some(at);
            let gone = may_go && self.post_growing(index, &said(&Said::End { at, revision }));
            has_room &= gone || !may_go;
            !gone
        });
        sent.ended = ended;
        has_room
    }

    /// Sends what a guest lacks of one list or map.
    fn tell_one(&mut self, world: &World, index: usize, sent: &mut Sent, at: Key) -> Told {
        if self.links[index].backlog().bytes > limits::COLLECTION_MESSAGE_BYTES {
            return Told::Full;
        }
        if sent.large == Some(at) {
            return Told::Waits;
        }
        if at.1 != 0 {
            let Some(slot) = self.entities.slot_of(NetId(at.1)) else { return Told::Waits };
            if !self.may_know(world, index, slot) {
                return if self.is_out_of_sight(index, slot) { Told::Hidden } else { Told::Waits };
            }
        }
        let Some(instance) = self.growing.held.get(&at) else { return Told::Done };
        let had = sent.had.get(&at).map(|had| had.revision);
        let is_lost = sent.lost.contains(&at);
        if !is_lost && had.unwrap_or(instance.born) == instance.revision {
            return Told::Done;
        }
        let mut plan = instance.log.plan((!is_lost).then_some(had.unwrap_or(0)), &instance.content);
        let is_large = plan.size + HEAD > limits::COLLECTION_MESSAGE_BYTES;
        if is_large && sent.large.is_some() {
            return Told::Waits;
        }
        if is_large && had.is_none() {
            // it may overtake the end of what the guest had under this name, and is to go with that too
            plan = instance.log.plan(None, &instance.content);
        }
        let (revision, weight) = (instance.revision, instance.content.weight());
        if !self.make_list_room(index, sent, at, weight) {
            return Told::Waits;
        }
        let Some(instance) = self.growing.held.get_mut(&at) else { return Told::Done };
        let bytes = instance.log.message(plan, at, revision, &instance.content);
        self.growing.made.push(at);
        if is_large {
            let peer = self.links[index].peer;
            // it is far below what a blob may be, and its topic is one
            let _ = self.send_blob(peer, TOPIC, bytes);
            sent.large = Some(at);
        } else if !self.post_growing(index, &bytes) {
            return Told::Full;
        }
        sent.note(at, revision, weight);
        sent.lost.remove(&at);
        Told::Done
    }

    /// A guest keeps what it had of entities that are hidden from it. Where that leaves no room for what it is to have now, that ends for
    /// it. `false` if there is no room yet: others have become shorter, and it is to be told that first.
    fn make_list_room(&mut self, index: usize, sent: &mut Sent, at: Key, weight: usize) -> bool {
        let before = sent.had.get(&at).map_or(0, |had| had.weight);
        let fits = |sent: &Sent| sent.weight - before + weight <= limits::COLLECTIONS_BYTES;
        if fits(sent) {
            return true;
        }
        let may_go = |of: &Key| of.1 != 0 && *of != at && sent.large != Some(*of);
        let is_hidden = |of: &Key| {
            let slot = self.entities.slot_of(NetId(of.1));
            slot.is_some_and(|slot| self.is_out_of_sight(index, slot))
        };
        let mut hidden: Vec<Key> = sent.had.keys().filter(|of| may_go(of) && is_hidden(of)).copied().collect();
        hidden.sort_unstable();
        for of in hidden {
            if fits(sent) {
                break;
            }
            let Some(revision) = sent.forget(of) else { continue };
            sent.ended.push((of, revision));
            sent.due.remove(&of);
            sent.hidden.insert((of.1, of.0));
            // what goes of it later is later than its end
            if let Some(instance) = self.growing.held.get_mut(&of).filter(|instance| instance.revision == revision) {
                instance.revision += 1;
            }
        }
        self.tell_ends(index, sent) && fits(sent)
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
        sent.asks += 1;
        if sent.asks > limits::COLLECTION_ASKS {
            return Err(PeerError::OverLimit { what: "the questions for lists and maps" });
        }
        if !sent.had.contains_key(&at) {
            // of an entity: the question and the end have crossed
            let crossed = at.1 != 0;
            return if crossed { Ok(()) } else { Err(PeerError::OutOfOrder("a question for a list or map that was not sent")) };
        }
        sent.lost.insert(at);
        sent.owe(at);
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
