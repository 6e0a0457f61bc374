//! What waits on its way from rows to the world: births for parents, components for those they name, own ends for the host's word.

use crate::apply::Targets;
use crate::column::WriteOver;
use crate::incoming::TouchedBlocks;
use crate::layout::Layout;
use crate::netid::NetId;
use crate::presence::Presence;
use crate::room::Room;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Buffers and waiting lists of the way from rows to the world.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) touched: TouchedBlocks,
    /// Rows whose entity cannot appear before its parent, by the parent.
    pub(crate) waiting_for: FxHashMap<NetId, BTreeSet<u32>>,
    /// The inverse of it: for each row whose entity it is of, and the parent.
    waits: FxHashMap<u32, (NetId, NetId)>,
    /// Entities that wait, and for which parent.
    parent_of: FxHashMap<NetId, NetId>,
    /// Entities that ended or went out of sight, as long as packets from before may come: the send whose presence had shown it last,
    /// and the newest one by then.
    gone: FxHashMap<NetId, (Tick, Tick)>,
    /// Entities that came and that rows wait for, or that are gone.
    pub(crate) woken: Vec<NetId>,
    /// Components that name an entity that is not here: (whose, which), each with its words.
    pub(crate) withheld: FxHashMap<(NetId, usize), Vec<u32>>,
    /// Who names an entity: (whose component, which).
    named_by: FxHashMap<NetId, FxHashSet<(NetId, usize)>>,
    /// The inverse of it.
    names: FxHashMap<(NetId, usize), SmallVec<[NetId; 1]>>,
    /// Entities that the game despawned though they live on elsewhere.
    pub(crate) forsaken: FxHashSet<NetId>,
    /// Entities that this guest has despawned itself, until their end comes back from the host.
    despawned: FxHashMap<NetId, OwnEnd>,
    /// Those of them whose tombstone the host has, with what was the newest send of the host's by then.
    agreed: VecDeque<(Tick, NetId)>,
    /// An entity came, so something may be resolved.
    pub(crate) arrived: bool,
    /// Rows that have taken an entity over from another: what arrived in them before is still to be written.
    pub(crate) takeovers: Vec<usize>,
    /// By component: what is to be written over what is there.
    pub(crate) writes: Vec<(Vec<WriteOver>, Room)>,
    /// Where the values of rows go.
    pub(crate) targets: Targets,
}

/// A despawn of this guest's own.
#[derive(Clone, Copy)]
struct OwnEnd {
    /// Of the owner under whom it was done. The host refuses it if, and only if, there is another by then.
    epoch: u16,
    /// The host speaks of the entity, so it will speak of its end.
    told: bool,
}

impl Buffers {
    /// Rows of component `c` are to be written.
    #[inline]
    pub(crate) fn note_write(&mut self, c: usize, write: WriteOver) {
        let writes = &mut self.writes[c].0;
        // what comes row by row mostly comes in order
        match writes.last_mut() {
            Some(last) if last.block == write.block => last.rows |= write.rows,
            _ => writes.push(write),
        }
    }

    /// This guest has despawned an entity.
    pub(crate) fn note_own_end(&mut self, net: NetId, epoch: u16, told: bool) {
        self.despawned.insert(net, OwnEnd { epoch, told });
    }

    /// The host has the tombstone of an entity. If it never spoke of it, it may have by now, in packets that are on their way.
    pub(crate) fn note_agreed(&mut self, net: NetId, now: Tick) {
        if self.despawned.get(&net).is_some_and(|end| !end.told) {
            self.agreed.push_back((now, net));
        }
    }

    /// Forgets what no packet can speak of any more.
    pub(crate) fn forget_old(&mut self, now: Tick) {
        self.gone.retain(|_, gone| now.since(gone.1) < limits::RING as u64);
        self.forget_agreed(now);
    }

    /// Forgets own despawns that no packet can speak of any more.
    fn forget_agreed(&mut self, now: Tick) {
        while let Some((at, net)) = self.agreed.front().copied()
            && now.since(at) >= limits::RING as u64
        {
            self.agreed.pop_front();
            if self.despawned.get(&net).is_some_and(|end| !end.told) {
                self.despawned.remove(&net);
            }
        }
    }

    /// Does the host still speak of an entity that this guest has ended? What was sent before it heard of that names the
    /// ownership that the end was done under; what it gives back after a refusal names another.
    pub(crate) fn is_ended(&mut self, presence: &Presence, slot: usize) -> bool {
        let Some(end) = self.despawned.get_mut(&presence.net) else { return false };
        if end.epoch == presence.owners[slot].epoch {
            end.told = true;
            return true;
        }
        self.despawned.remove(&presence.net);
        false
    }

    pub(crate) fn forget(&mut self, net: NetId) {
        for c in 1..=limits::COMPONENTS {
            if self.withheld.is_empty() && self.names.is_empty() {
                break;
            }
            self.withheld.remove(&(net, c));
            self.name_none((net, c));
        }
        self.forsaken.remove(&net);
        self.despawned.remove(&net);
    }

    /// An entity has ended, or went out of sight: who owns what waits for it as a parent waits no more. `began`: the send whose
    /// presence had shown it last; `now`: the newest send.
    pub(crate) fn note_gone(&mut self, net: NetId, began: Tick, now: Tick) {
        let gone = self.gone.entry(net).or_default();
        *gone = (began.max(gone.0), now);
        if self.waiting_for.contains_key(&net) {
            self.woken.push(net);
        }
    }

    /// If it is known to have ended or gone out of sight, and not to be back, and packets from before may still come: the send whose
    /// presence had shown it last.
    pub(crate) fn gone_from(&self, net: NetId) -> Option<Tick> {
        self.gone.get(&net).map(|gone| gone.0)
    }

    /// An entity came: something may be resolved.
    pub(crate) fn arrived(&mut self, net: NetId) {
        self.arrived = true;
        self.gone.remove(&net);
        if self.waiting_for.contains_key(&net) {
            self.woken.push(net);
        }
    }

    /// How many components are remembered as naming others, counted per name.
    #[cfg(test)]
    pub(crate) fn namings(&self) -> usize {
        self.named_by.values().map(FxHashSet::len).sum()
    }

    /// A row's entity cannot appear before its parent.
    pub(crate) fn wait_for(&mut self, row: u32, net: NetId, parent: NetId) {
        self.wait_no_more(row);
        self.waits.insert(row, (net, parent));
        self.parent_of.insert(net, parent);
        self.waiting_for.entry(parent).or_default().insert(row);
    }

    pub(crate) fn wait_no_more(&mut self, row: u32) {
        let Some((net, parent)) = self.waits.remove(&row) else { return };
        self.parent_of.remove(&net);
        if let Some(rows) = self.waiting_for.get_mut(&parent) {
            rows.remove(&row);
            if rows.is_empty() {
                self.waiting_for.remove(&parent);
            }
        }
    }

    /// Does `parent` itself wait, over any number of others, for `net`? Peers that hang things on one another at the same time can
    /// close such a circle.
    pub(crate) fn is_circle(&self, net: NetId, parent: NetId) -> bool {
        let mut at = parent;
        // others' circles, that this one does not belong to, end too
        for _ in 0..=self.parent_of.len() {
            if at == net {
                return true;
            }
            let Some(next) = self.parent_of.get(&at) else { return false };
            at = *next;
        }
        false
    }

    pub(crate) fn stop_waiting(&mut self, net: NetId, c: usize) {
        self.withheld.remove(&(net, c));
    }

    /// Component `who` names `named`, and nothing else any more.
    pub(crate) fn note_naming(&mut self, who: (NetId, usize), named: impl Iterator<Item = NetId>) {
        let named: SmallVec<[NetId; 1]> = named.filter(|net| *net != NetId(0)).collect();
        if self.names.get(&who).is_some_and(|before| *before == named) {
            return;
        }
        self.name_none(who);
        if named.is_empty() {
            return;
        }
        for net in &named {
            self.named_by.entry(*net).or_default().insert(who);
        }
        self.names.insert(who, named);
    }

    fn name_none(&mut self, who: (NetId, usize)) {
        for net in self.names.remove(&who).unwrap_or_default() {
            if let Some(list) = self.named_by.get_mut(&net) {
                list.remove(&who);
                if list.is_empty() {
                    self.named_by.remove(&net);
                }
            }
        }
    }

    /// An entity is gone for good; what else its namers name, they still do.
    pub(crate) fn nobody_names(&mut self, gone: NetId) {
        for who in self.named_by.remove(&gone).into_iter().flatten() {
            if let Some(named) = self.names.get_mut(&who) {
                named.retain(|net| *net != gone);
                if named.is_empty() {
                    self.names.remove(&who);
                }
            }
        }
    }

    /// What a component waits for is gone for good.
    pub(crate) fn forget_waiting(&mut self, who: (NetId, usize), gone: NetId, layout: &Layout) {
        if self.withheld.get(&who).is_some_and(|words| layout.entities(words).any(|net| net == gone)) {
            self.withheld.remove(&who);
        }
    }

    /// The components that name an entity.
    pub(crate) fn naming(&self, gone: NetId) -> Vec<(NetId, usize)> {
        let mut list: Vec<_> = self.named_by.get(&gone).into_iter().flatten().copied().collect();
        list.sort_unstable();
        list
    }

    /// Components that wait for what they name: whose, which, and their words.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = (&(NetId, usize), &Vec<u32>)> {
        self.withheld.iter()
    }

    pub(crate) fn is_waiting(&self, net: NetId, c: usize) -> bool {
        self.withheld.contains_key(&(net, c))
    }
}
