//! What has come about lists and maps.

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
    /// It came in pieces, and may have overtaken what leads to its base.
    pub(super) in_pieces: bool,
}

/// Guest: steps that have overtaken what leads to their base, in the order in which they came.
#[derive(Default)]
pub(super) struct Early {
    steps: Vec<(Key, Step)>,
    /// Bytes of their operations.
    size: usize,
}

impl Early {
    /// Keeps a step; `false` if there are too many.
    fn keep(&mut self, at: Key, step: Step) -> bool {
        let size = step.size();
        let fits = self.size + size <= limits::COLLECTION_BYTES && self.steps.len() < limits::COLLECTIONS;
        if fits {
            self.size += size;
            self.steps.push((at, step));
        }
        fits
    }

    /// The next step from `revision`. What leads no further than that is let go.
    fn next(&mut self, at: Key, revision: u64) -> Option<Step> {
        self.let_go(|of, step| of == at && step.to <= revision);
        let found = self.steps.iter().position(|(of, step)| *of == at && step.base == Some(revision))?;
        let (_, step) = self.steps.remove(found);
        self.size -= step.size();
        Some(step)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.size == 0
    }

    fn let_go(&mut self, which: impl Fn(Key, &Step) -> bool) {
        self.steps.retain(|(at, step)| !which(*at, step));
        self.size = self.steps.iter().map(|(_, step)| step.size()).sum();
    }
}

impl Step {
    fn size(&self) -> usize {
        self.ops.iter().map(Op::size).sum()
    }
}

#[cfg(test)]
pub(super) fn step(base: Option<u64>, to: u64, digest: u32, ops: Vec<Op>) -> Step {
    Step { base, to, digest, ops, in_pieces: false }
}

fn malformed() -> PeerError {
    PeerError::Malformed { what: "list or map", cause: BitError::OutOfRange }
}

impl Peer {
    /// A message about a list or map has come, on the lane of reliable messages.
    pub(crate) fn take_growing(&mut self, index: usize, bytes: &[u8]) -> Result<(), PeerError> {
        self.hear_of_growing(index, bytes, false)
    }

    fn hear_of_growing(&mut self, index: usize, bytes: &[u8], in_pieces: bool) -> Result<(), PeerError> {
        self.links[index].last_heard = self.time.now;
        let sorts = |which: u8| self.schema.collections.get(usize::from(which)).map(|entry| entry.sort);
        let said = Said::read(bytes, sorts).ok_or_else(malformed)?;
        if self.is_host() {
            return self.hear_growing(index, &said);
        }
        match said {
            Said::Batch { at, base, to, digest, ops } => {
                self.take_steps(at, Step { base: Some(base), to, digest, ops, in_pieces })
            }
            Said::Snapshot { at, revision, digest, ops } => {
                self.take_steps(at, Step { base: None, to: revision, digest, ops, in_pieces })
            }
            Said::End { at, revision } => {
                self.growing.early.let_go(|of, step| of == at && step.to <= revision);
                // what came in pieces, and is of the next one, may have overtaken it
                if self.growing.held.get(&at).is_some_and(|instance| instance.revision <= revision) {
                    self.growing.forget(at);
                    self.growing.lost.retain(|lost| *lost != at);
                }
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
            let taken = index.filter(|_| fits).map(|index| self.hear_of_growing(index, &bytes, true));
            if !matches!(taken, Some(Ok(()))) {
                return self.end_session(world, DisconnectReason::Malformed, true);
            }
        }
    }

    /// Takes a step, and those that have overtaken it.
    pub(super) fn take_steps(&mut self, at: Key, step: Step) -> Result<(), PeerError> {
        self.take_step(at, step)?;
        loop {
            let revision = self.growing.held.get(&at).map_or(0, |instance| instance.revision);
            let Some(next) = self.growing.early.next(at, revision) else { return Ok(()) };
            self.take_step(at, next)?;
        }
    }

    /// Takes a step whole, or not at all.
    fn take_step(&mut self, at: Key, step: Step) -> Result<(), PeerError> {
        let entry = &self.schema.collections[usize::from(at.0)];
        let count = self.growing.held.len();
        let instance = self.growing.held.get(&at);
        if instance.is_none() && count >= limits::COLLECTIONS_HELD + 2 * limits::COLLECTIONS {
            return Err(PeerError::OverLimit { what: "the number of lists and maps" });
        }
        let is_lost = instance.is_some_and(|instance| instance.is_lost);
        let from = instance.map_or(0, |instance| instance.revision);
        match step.base {
            // what it leads to comes again
            Some(_) if is_lost => return Ok(()),
            // what came in pieces, on a lane of its own, has overtaken it
            _ if step.to < from || step.base.is_some() && step.to == from => return Ok(()),
            Some(base) if step.in_pieces && base > from => {
                return if self.growing.early.keep(at, step) { Ok(()) } else { self.lose(at) };
            }
            Some(base) if base != from => return self.lose(at),
            _ => {}
        }
        let instance = self.growing.held.entry(at).or_insert_with(|| Instance::new(entry, 0));
        if step.ops.iter().filter(|op| op.brings()).count() * entry.each > limits::COLLECTION_MEMORY {
            return Err(PeerError::OverLimit { what: "the memory of what is said of a list or map" });
        }
        if !instance.values.stage(&step.ops) {
            return Err(malformed());
        }
        let before = instance.content.weight();
        if step.base.is_none() {
            instance.content = entry.content();
        }
        // what is shown stays until all of it was found right; of what is not shown nothing is left if it is not
        let mut shifts = 0;
        let done = step.ops.iter().all(|op| {
            shifts += op.shift(instance.content.len());
            shifts <= limits::COLLECTION_SHIFTS && instance.content.apply(op, entry.max).is_ok()
        });
        let is_right = done && instance.content.digest() == step.digest;
        self.growing.size = self.growing.size - before + instance.content.weight();
        if shifts > limits::COLLECTION_SHIFTS {
            return Err(PeerError::OverLimit { what: "the items of a list that one message moves" });
        }
        if self.growing.size > limits::COLLECTIONS_BYTES + limits::COLLECTIONS_SLACK {
            return Err(PeerError::OverLimit { what: "the bytes of all lists and maps" });
        }
        if !is_right {
            return self.lose(at);
        }
        instance.values.commit(&step.ops, step.base.is_none());
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
        let instance = self.growing.held.entry(at).or_insert_with(|| Instance::new(entry, 0));
        self.growing.size -= instance.content.weight();
        instance.content = entry.content();
        instance.values.stage(&[]);
        instance.is_lost = true;
        self.growing.early.let_go(|of, _| of == at);
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
