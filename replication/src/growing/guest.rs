//! What has come about lists and maps.

use super::content::Content;
use super::host::said;
use super::wire::{HEAD, Key, Op, Said};
use super::{Instance, TOPIC};
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use hecs::World;
use tidelock_netcore::bits::BitError;
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::limits;

/// A step from one revision to another, as a message says it.
pub(super) struct Step {
    /// `None` for a snapshot.
    base: Option<u64>,
    to: u64,
    digest: u32,
    ops: Vec<Op>,
}

#[cfg(test)]
pub(super) fn step(base: Option<u64>, to: u64, digest: u32, ops: Vec<Op>) -> Step {
    Step { base, to, digest, ops }
}

fn malformed() -> PeerError {
    PeerError::Malformed { what: "list or map", cause: BitError::OutOfRange }
}

impl Peer {
    /// A message about a list or map has come, on the lane of reliable messages.
    pub(crate) fn take_growing(&mut self, index: usize, bytes: &[u8]) -> Result<(), PeerError> {
        self.links[index].last_heard = self.time.now;
        let sorts = |which: u8| self.schema.collections.get(usize::from(which)).map(|entry| entry.sort);
        let said = Said::read(bytes, sorts).ok_or_else(malformed)?;
        if self.is_host() {
            return self.hear_growing(index, &said);
        }
        match said {
            Said::Batch { at, base, to, digest, ops } => self.take_step(at, Step { base: Some(base), to, digest, ops }),
            Said::Snapshot { at, revision, digest, ops } => self.take_step(at, Step { base: None, to: revision, digest, ops }),
            Said::End { at } => {
                if let Some(instance) = self.growing.held.remove(&at) {
                    self.growing.size -= instance.content.size();
                }
                self.growing.lost.retain(|lost| *lost != at);
                Ok(())
            }
            Said::Ask { .. } => Err(PeerError::OutOfOrder("a question of the host for a list or map")),
        }
    }

    /// Guest: takes in those that have come in pieces.
    pub(crate) fn take_large_growing(&mut self, world: &mut World) {
        if self.schema.collections.is_empty() {
            return;
        }
        while let Some((peer, bytes)) = self.take_blob(TOPIC) {
            let index = self.links.iter().position(|link| link.peer == peer);
            let fits = bytes.len() <= limits::COLLECTION_BYTES + HEAD;
            let taken = index.filter(|_| fits).map(|index| self.take_growing(index, &bytes));
            if !matches!(taken, Some(Ok(()))) {
                return self.end_session(world, DisconnectReason::Malformed, true);
            }
        }
    }

    /// Takes a step whole, or not at all.
    pub(super) fn take_step(&mut self, at: Key, step: Step) -> Result<(), PeerError> {
        let entry = &self.schema.collections[usize::from(at.0)];
        let count = self.growing.held.len();
        let instance = self.growing.held.get(&at);
        if instance.is_none() && count >= limits::COLLECTIONS_HELD + limits::COLLECTIONS {
            return Err(PeerError::OverLimit { what: "the number of lists and maps" });
        }
        let is_lost = instance.is_some_and(|instance| instance.is_lost);
        let from = instance.map_or(0, |instance| instance.revision);
        match step.base {
            // what it leads to comes again
            Some(_) if is_lost => return Ok(()),
            Some(base) if base != from => return self.lose(at),
            None if step.to < from => return Err(PeerError::OutOfOrder("an older list or map")),
            _ => {}
        }
        let instance = self.growing.held.entry(at).or_insert_with(|| Instance::new(entry));
        if !instance.values.stage(&step.ops) {
            return Err(malformed());
        }
        let before = instance.content.size();
        if step.base.is_none() {
            instance.content = Content::new(entry.sort);
        }
        // what is shown stays until all of it was found right; of what is not shown nothing is left if it is not
        let done = step.ops.iter().all(|op| instance.content.apply(op, entry.max).is_ok());
        let is_right = done && instance.content.digest() == step.digest;
        let size = self.growing.size - before + instance.content.size();
        if size > limits::COLLECTIONS_BYTES {
            return Err(PeerError::OverLimit { what: "the bytes of all lists and maps" });
        }
        self.growing.size = size;
        if !is_right {
            return self.lose(at);
        }
        instance.values.commit(step.base.is_none());
        let was_lost = std::mem::replace(&mut instance.is_lost, false);
        instance.revision = step.to;
        if was_lost {
            self.growing.lost.retain(|lost| *lost != at);
        }
        if step.to != from {
            let of = (at.1 != 0).then_some(NetId(at.1));
            self.news.push(News::CollectionChanged { collection: entry.name.clone(), of, from, to: step.to });
        }
        Ok(())
    }

    /// What is here is not what the host says it is: what is shown stays as it is until a snapshot has come.
    fn lose(&mut self, at: Key) -> Result<(), PeerError> {
        let entry = &self.schema.collections[usize::from(at.0)];
        self.growing.asked += 1;
        if self.growing.asked > limits::COLLECTION_ASKS {
            return Err(PeerError::OutOfOrder("a list or map that does not go with the one before, again and again,"));
        }
        let instance = self.growing.held.entry(at).or_insert_with(|| Instance::new(entry));
        self.growing.size -= instance.content.size();
        instance.content = Content::new(entry.sort);
        instance.values.stage(&[]);
        instance.is_lost = true;
        if !self.growing.lost.contains(&at) {
            self.growing.lost.push(at);
        }
        Ok(())
    }

    /// Guest: asks for snapshots, as far as the lane has room.
    pub(super) fn ask_for_lost(&mut self) {
        if self.links.is_empty() {
            return;
        }
        let mut lost = std::mem::take(&mut self.growing.lost);
        lost.retain(|at| {
            let asked = self.post_growing(0, &said(&Said::Ask { at: *at }));
            self.links[0].counters.lists_asked += u64::from(asked);
            !asked
        });
        self.growing.lost = lost;
    }
}
