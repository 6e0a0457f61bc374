//! Who has authority over what: names, ownership, and what each subscriber is therefore told.

use crate::block::bits;
use crate::definitions::Definitions;
use crate::entities::{Entities, InLockstep, InRollback, NO_ROW, Networked, Record, Simulated, mark, name_in};
use crate::error::UsageError;
use crate::growing::Growing;
use crate::link::Link;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::{Peer, Role};
use crate::peer_id::PeerId;
use crate::policy::{Absent, Apply, Facts, OWNER_SLOTS, Share, Timeline};
use crate::presence::{Life, Owners, Ownership, Presence, UNOWNED};
use crate::publisher::Publisher;
use crate::rewind::Rewound;
use crate::schema::Inner;
use crate::view::Sighting;
use hecs::{Entity, World};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use tidelock_netcore::control::Control;
use tidelock_netcore::error::DisconnectReason;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// The names that this peer may give, and on the host those that it granted to others.
pub(crate) struct Names {
    /// (next name, end) of each lease, the one in use first.
    own: Vec<(u64, u64)>,
    next_lease: u64,
    granted: FxHashMap<PeerId, Leases>,
    host: bool,
}

/// What the host remembers of a guest's leases: a guest has two at most that it gives names of, and what it gave before is on
/// its way for a moment. Names that it gave and ended before anybody saw them look like names that it hoards, so nobody counts.
const KEPT_LEASES: usize = 4;

#[derive(Default)]
struct Leases {
    /// The newest ones, the oldest first.
    kept: VecDeque<Granted>,
    /// There were others before.
    forgotten: bool,
}

struct Granted {
    first: u64,
    /// A bit for each name that was given.
    used: Vec<u64>,
}

impl Names {
    pub(crate) fn new(host: bool) -> Self {
        // name 0 means none
        let own = if host { vec![(1, limits::LEASE)] } else { Vec::new() };
        Self { own, next_lease: 1, granted: FxHashMap::default(), host }
    }

    /// A name for an entity that this peer spawns.
    pub(crate) fn next(&mut self) -> Option<NetId> {
        while let Some(lease) = self.own.first_mut() {
            if lease.0 < lease.1 {
                lease.0 += 1;
                return Some(NetId(lease.0 - 1));
            }
            self.own.remove(0);
        }
        if !self.host {
            return None;
        }
        let first = self.open_lease();
        self.own.push((first + 1, first + limits::LEASE));
        Some(NetId(first))
    }

    fn open_lease(&mut self) -> u64 {
        self.next_lease += 1;
        (self.next_lease - 1) * limits::LEASE
    }

    /// Host: a lease for a guest.
    pub(crate) fn grant(&mut self, peer: PeerId) -> u64 {
        let first = self.open_lease();
        let leases = self.granted.entry(peer).or_default();
        leases.kept.push_back(Granted { first, used: Vec::new() });
        if leases.kept.len() > KEPT_LEASES {
            leases.kept.pop_front();
            leases.forgotten = true;
        }
        first
    }

    /// Guest: a lease that the host granted.
    pub(crate) fn take(&mut self, first: u64) {
        self.own.push((first, first + limits::LEASE));
    }

    /// Guest: is it time to ask for another lease?
    pub(crate) fn runs_low(&self) -> bool {
        !self.host && self.own.iter().map(|l| l.1 - l.0).sum::<u64>() < limits::LEASE / 2
    }

    /// Host: takes a name as given by a guest; `false` if it is not the guest's to give, or was given before.
    pub(crate) fn claim(&mut self, peer: PeerId, net: NetId) -> bool {
        let Some(leases) = self.granted.get_mut(&peer) else { return false };
        let Some(lease) = leases.kept.iter_mut().find(|l| l.first <= net.0 && net.0 < l.first + limits::LEASE) else {
            return false;
        };
        let (word, bit) = (((net.0 - lease.first) / 64) as usize, 1u64 << ((net.0 - lease.first) % 64));
        if lease.used.len() <= word {
            lease.used.resize(word + 1, 0);
        }
        let new = lease.used[word] & bit == 0;
        lease.used[word] |= bit;
        new
    }

    /// Host: was this name given before by that guest? Those of forgotten leases count as given.
    pub(crate) fn was_claimed(&self, peer: PeerId, net: NetId) -> bool {
        let Some(leases) = self.granted.get(&peer) else { return false };
        if leases.forgotten && leases.kept.front().is_some_and(|l| net.0 < l.first) {
            return true;
        }
        leases.kept.iter().filter(|l| l.first <= net.0 && net.0 < l.first + limits::LEASE).any(|l| {
            let at = net.0 - l.first;
            l.used.get((at / 64) as usize).is_some_and(|w| w >> (at % 64) & 1 != 0)
        })
    }

    /// Host: does a guest have leases?
    pub(crate) fn has_leases(&self, peer: PeerId) -> bool {
        self.granted.contains_key(&peer)
    }

    /// Host: a name is somebody's that this peer has not given in this session. It is not given again.
    pub(crate) fn avoid(&mut self, net: NetId) {
        let lease = net.0 / limits::LEASE;
        self.next_lease = self.next_lease.max(lease + 1);
        for own in self.own.iter_mut().filter(|own| own.0 <= net.0 && net.0 < own.1) {
            own.0 = net.0 + 1;
        }
    }

    /// Host: a guest's leases end with its seat. The names in them are never given again.
    pub(crate) fn end(&mut self, peer: PeerId) {
        self.granted.remove(&peer);
    }
}

/// The components that `peer` publishes of an entity of that kind and those owners, as bits.
pub(crate) fn share_mask(schema: &Inner, peer: PeerId, kind: usize, owners: &Owners) -> u64 {
    (1..schema.columns()).fold(0, |mask, c| {
        let policy = schema.policy(kind, c);
        let facts = Facts { local: peer, owner: owners[policy.slot()].peer, host: PeerId::HOST };
        mask | u64::from(policy.share(facts) == Share::State) << c
    })
}

/// Subscribes a link to a row: to all that its peer does not publish itself. `known`: the peer has the entity already, since it
/// spawned it; otherwise it is also told once what it will publish itself. `born`: the row was bound in the open tick, of which the
/// subscriber has not taken note yet. A peer that does not see everything is told of what it sees, and of what it owns.
#[expect(clippy::too_many_arguments, reason = "a row, whose it is, and who is told of it")]
pub(crate) fn subscribe_row(
    schema: &Inner,
    publisher: &Publisher,
    link: &mut Link,
    row: usize,
    record: &Record,
    known: bool,
    born: bool,
    tick: Tick,
) {
    let owns = record.owners.iter().any(|o| o.peer == link.peer);
    if known || owns {
        link.subscriber.show(row, record.net, Sighting::default(), publisher);
    }
    if !link.subscriber.is_shown(row) {
        return; // the next look decides
    }
    link.subscriber.follow(publisher);
    let own = share_mask(schema, link.peer, record.kind, &record.owners);
    let other = schema.other_forms(link.peer, record.kind, record.owners[0].peer);
    link.subscriber.set_own(row, own != 0);
    link.subscriber.want(0, row, true);
    if known {
        link.subscriber.note_known(row);
    }
    for c in 1..schema.columns() {
        link.subscriber.want(c, row, (own | other) >> c & 1 == 0);
    }
    let ever = publisher.ever(row) & !other;
    // the first values of a birth are changes of its tick, which whoever wants them is told like any others
    let forced = match known || born && link.subscriber.view().is_none() {
        true if known => ever & !own,
        true => ever & own,
        false => ever,
    };
    link.subscriber.force(row, forced, tick);
}

impl Peer {
    pub(crate) fn facts(&self, owner: PeerId) -> Facts {
        Facts { local: self.local, owner, host: PeerId::HOST }
    }

    /// May this peer spawn entities of that kind, to own them?
    pub(crate) fn may_spawn(&self, kind: usize) -> Result<(), UsageError> {
        if !self.is_in_session() {
            return Err(UsageError::NotInSession(match self.role {
                Role::Ended(_) => " any more",
                _ => " yet: wait for `News::Admitted`",
            }));
        }
        let entry = &self.schema.kinds[kind];
        if entry.is_computed() {
            return self.may_change_computed();
        }
        if !entry.policy.lifetime(self.facts(self.local), self.local) {
            return Err(UsageError::NotAllowed("spawn it"));
        }
        let own = [Ownership { peer: self.local, epoch: 0 }; OWNER_SLOTS];
        if !self.is_host() && share_mask(&self.schema, self.local, kind, &own) == 0 {
            return Err(UsageError::NothingOfIts(entry.name.clone()));
        }
        // a host publishes every entity; a guest those that it has authority over in part
        let (published, rows) = match self.role {
            Role::Host(_) => (self.entities.len(), limits::ROWS),
            _ => (self.entities.own(), limits::GUEST_ROWS),
        };
        // blocks that are not full leave some rows unused, so a quarter is kept free
        if published + self.publisher.dying.len() >= rows / 4 * 3 {
            return Err(UsageError::TooManyEntities);
        }
        Ok(())
    }

    /// What every peer computes comes and goes in steps, but for the level that a host loads before anybody joins.
    pub(crate) fn may_change_computed(&self) -> Result<(), UsageError> {
        let alone = self.is_host() && self.links.is_empty();
        let error = UsageError::NotAllowed("spawn or despawn it outside of a step of its timeline: every peer must do it alike");
        if alone { Ok(()) } else { Err(error) }
    }

    /// Registers an entity that this peer has spawned, for its owner.
    pub(crate) fn register_own(&mut self, world: &mut World, entity: Entity, kind: usize, net: NetId, owner: PeerId) {
        let slot = self.entities.insert(world, net, entity, kind);
        // what every peer computes is nobody's
        let computed = self.schema.kinds[kind].is_computed();
        let owner = if computed { UNOWNED } else { Ownership { peer: owner, epoch: 0 } };
        if let Some(record) = self.entities.get_mut(slot) {
            record.owners = [owner; OWNER_SLOTS];
            record.shown = true;
            record.born = self.time.ran;
            // a step puts the mark on at once, so that it changes nothing about the saves
            record.rewound = world.satisfies::<&Rewound>(entity);
        }
        self.apply.arrived(net);
        self.refresh_authority(world, slot);
    }

    /// Works out anew what this peer has authority over in an entity, and what its subscribers are told of it.
    pub(crate) fn refresh_authority(&mut self, world: &mut World, slot: u32) {
        let Some(record) = self.entities.get(slot) else { return };
        let mine = share_mask(&self.schema, self.local, record.kind, &record.owners);
        let lost = record.mine & !mine;
        if lost != 0 && self.is_host() {
            self.publish_last(world, slot, lost);
        }
        self.entities.set_mine(slot, mine);
        self.capture.renew(slot);
        self.dirty = true;
        self.mark_simulated(world, slot);
        self.mark_rewound(world, slot);
        let Some(record) = self.entities.get(slot) else { return };
        if record.out_row == NO_ROW || !matches!(self.role, Role::Host(_)) {
            return;
        }
        let (row, tick) = (record.out_row as usize, self.time.tick);
        for link in &mut self.links {
            link.subscriber.follow(&self.publisher);
            let own = share_mask(&self.schema, link.peer, record.kind, &record.owners);
            link.subscriber.set_own(row, own != 0);
            let kept = own | self.schema.other_forms(link.peer, record.kind, record.owners[0].peer);
            for c in 1..self.schema.columns() {
                let wanted = kept >> c & 1 == 0;
                // what is hidden is told when it is shown
                if wanted == link.subscriber.wants(c, row) || link.subscriber.hides(c, row) {
                    continue;
                }
                link.subscriber.want(c, row, wanted);
                if self.publisher.ever(row) >> c & 1 != 0 {
                    // who has lost authority starts over from what the host holds, and who has got it begins there
                    link.subscriber.force(row, 1 << c, tick);
                }
            }
        }
    }

    /// Host: its authority over `components` of an entity ends. What it wrote since the last send is its last word; what cannot
    /// travel gives way to what the others have.
    fn publish_last(&mut self, world: &mut World, slot: u32, components: u64) {
        let Some(record) = self.entities.get(slot).filter(|r| r.out_row != NO_ROW) else { return };
        let (entity, row) = (record.entity, record.out_row as usize);
        for c in bits(components) {
            let c = c as usize;
            let column = &self.schema.component(c).column;
            let mut words = vec![0; column.layout().words()];
            let quantised = column.quantise_one(world, entity, &name_in(world), &mut words);
            match quantised {
                Some(Ok(())) => {
                    self.publisher.set(c, row, &words, self.time.tick, false);
                }
                Some(Err(_)) if self.publisher.ever(row) >> c & 1 != 0 => {
                    let words = self.publisher.history.value(c, row).to_vec();
                    self.write_component(world, slot, c, &words);
                }
                _ => {}
            }
        }
    }

    /// Puts the mark of its timeline on or takes it off.
    pub(crate) fn mark_simulated(&mut self, world: &mut World, slot: u32) {
        let local = self.local;
        // who is parked is marked when it comes back
        let Some(record) = self.entities.get_mut(slot).filter(|r| !r.parked) else { return };
        let policy = &self.schema.kinds[record.kind].policy;
        let facts = Facts { local, owner: record.owners[policy.slot()].peer, host: PeerId::HOST };
        let line = policy.timeline();
        let here = || policy.share(facts) == Share::State || policy.apply(facts) == Apply::Reconcile;
        let simulated = self.running[record.kind] && (line != Timeline::Session || here());
        if simulated == record.simulated {
            return;
        }
        record.simulated = simulated;
        mark(world, record.entity, line, simulated);
    }

    /// Host: gives an entity's owner slot to a peer, under a new epoch.
    pub(crate) fn set_owner(&mut self, world: &mut World, index: u32, slot: usize, to: PeerId) {
        let Some(record) = self.entities.get_mut(index) else { return };
        let epoch = record.owners[slot].epoch.wrapping_add(1);
        let before = std::mem::replace(&mut record.owners[slot], Ownership { peer: to, epoch }).peer;
        if before != PeerId::HOST && before != PeerId::NOBODY && !record.former.contains(&before) {
            record.former.push(before);
        }
        let (entity, net) = (record.entity, record.net);
        self.refresh_authority(world, index);
        self.news.push(News::Owned { entity, slot, owner: to });
        self.answer_granted(net, slot, Ownership { peer: to, epoch });
    }

    /// Ends an entity that this peer publishes or knows: its row gets a tombstone, its record goes. The world is the caller's.
    pub(crate) fn end_entity(&mut self, slot: u32) {
        let Some(record) = self.entities.remove(slot) else { return };
        self.note_ended(slot);
        self.dirty = true;
        let policy = &self.schema.kinds[record.kind].policy;
        let owner = record.owners[policy.slot()];
        let may_end = policy.lifetime(self.facts(owner.peer), self.local);
        let handed = record.in_row(PeerId::HOST).is_some();
        if may_end && !self.is_host() && (handed || record.out_row != NO_ROW) {
            self.apply.note_own_end(record.net, owner.epoch, handed);
        }
        if may_end && !self.is_host() && handed {
            return self.end_handed(&record);
        }
        if record.out_row != NO_ROW {
            self.end_row(record.out_row as usize, if may_end { Life::Dead } else { Life::Free });
        }
    }

    /// A guest ends what it has from the host. It may not have published a word of it yet, and the host must hear of the end all
    /// the same.
    fn end_handed(&mut self, record: &Record) {
        let mut presence = Presence {
            life: Life::Dead,
            net: record.net,
            kind: record.kind,
            cut: record.cut,
            components: 0,
            owners: record.owners,
        };
        let row = if record.out_row == NO_ROW {
            let Some(row) = self.publisher.bind_tombstone(record.kind, self.local) else { return };
            row
        } else {
            let row = record.out_row as usize;
            presence.components = self.publisher.presence(row).components;
            row
        };
        for link in &mut self.links {
            link.subscriber.follow(&self.publisher);
            link.subscriber.end_row(row, &self.publisher);
            link.subscriber.want(0, row, true);
        }
        self.publisher.set_presence(row, &presence, self.time.tick);
    }

    /// Publishes the end of a row.
    pub(crate) fn end_row(&mut self, row: usize, life: Life) {
        let mut presence = self.publisher.presence(row);
        presence.life = life;
        for link in &mut self.links {
            link.subscriber.follow(&self.publisher);
            link.subscriber.end_row(row, &self.publisher);
        }
        self.publisher.set_presence(row, &presence, self.time.tick);
    }

    /// Gives back rows whose end everybody has acknowledged and the ring has passed.
    pub(crate) fn release_rows(&mut self) {
        let now = self.publisher.history.now();
        let mut i = 0;
        while i < self.publisher.dying.len() {
            let (row, ended) = self.publisher.dying[i];
            let row = row as usize;
            let passed = now.since(ended) >= limits::RING as u64;
            if passed && self.links.iter().all(|l| l.subscriber.is_done_with(row, ended)) {
                if let (Role::Guest(_), Some(link)) = (&self.role, self.links.first()) {
                    self.apply.note_agreed(self.publisher.presence(row).net, link.incoming.mirror.now());
                }
                self.links.iter_mut().for_each(|l| l.subscriber.release_row(row));
                self.publisher.release(row);
                self.publisher.dying.swap_remove(i);
            } else {
                i += 1;
            }
        }
    }

    /// Host: a guest is gone. Its entities follow their kind's rule, its names and its link end, the others are told.
    pub(crate) fn remove_guest(&mut self, world: &mut World, index: usize, reason: DisconnectReason, close: bool) {
        let link = self.links.remove(index);
        let peer = link.peer;
        if close && let Some(transport) = &mut self.transport {
            let (code, text) = reason.to_wire();
            transport.close(self.time.now, link.id, code, &text);
        }
        self.roster.remove(&peer);
        self.names.end(peer);
        self.mailbox.forget(peer, &self.schema);
        self.keep_events_of(peer);
        self.large.forget(peer);
        self.fail_requests(peer);
        let (code, text) = reason.to_wire();
        for other in &mut self.links {
            // a peer that cannot take it is found out at the next send
            let _ = other.post_control(&Control::Left { peer: peer.0, code, text: text.clone() });
        }
        self.abandon(world, peer);
        if let Role::Host(host) = &mut self.role {
            host.left.push_back(peer.0);
        }
        self.news.push(News::Left { peer, reason });
    }

    /// Host: what becomes of what a guest owned.
    fn abandon(&mut self, world: &mut World, peer: PeerId) {
        for slot in 0..self.entities.slots() {
            let Some(record) = self.entities.get_mut(slot) else { continue };
            record.in_rows.retain(|r| r.0 != peer);
            let (owners, entity) = (record.owners, record.entity);
            let absent = self.schema.kinds[record.kind].absent;
            if owners[0].peer == peer && absent == Absent::Despawn {
                let net = record.net;
                self.end_entity(slot);
                // the game may have despawned it itself
                let _ = world.despawn(entity);
                self.let_go(world, net);
                self.news.push(News::Despawned { entity, net });
                continue;
            }
            let heir = if absent == Absent::Wait { PeerId::NOBODY } else { PeerId::HOST };
            for (i, owner) in owners.iter().enumerate().take(self.schema.slots) {
                if owner.peer == peer {
                    self.set_owner(world, slot, i, heir);
                }
            }
            if let Some(record) = self.entities.get_mut(slot) {
                record.former.retain(|p| *p != peer);
            }
        }
    }

    /// The session is over for this peer: the copies of others' entities leave the world, its own become local.
    pub(crate) fn end_session(&mut self, world: &mut World, reason: DisconnectReason, close: bool) {
        if matches!(self.role, Role::Ended(_)) {
            return;
        }
        self.end_preview(world);
        self.close_links(&reason, close);
        for slot in 0..self.entities.slots() {
            let Some(record) = self.entities.get(slot) else { continue };
            let computed = self.schema.kinds[record.kind].is_computed();
            let (entity, own) = (record.entity, record.owners[0].peer == self.local || computed && self.is_host());
            if own {
                // entities that the game took away itself have no marks left
                let _ = world.remove_one::<Networked>(entity);
                let _ = world.remove_one::<Simulated>(entity);
                let _ = world.remove_one::<InRollback>(entity);
                let _ = world.remove_one::<InLockstep>(entity);
            } else {
                let _ = world.despawn(entity);
            }
        }
        self.entities = Entities::default();
        self.definitions = Definitions::default();
        self.growing = Growing::default();
        self.links.iter().map(|link| link.peer).collect::<Vec<_>>().into_iter().for_each(|peer| self.fail_requests(peer));
        self.links.clear();
        self.roster.clear();
        self.local = PeerId::NOBODY;
        self.time.session = None;
        self.role = Role::Ended(reason.clone());
        self.news.push(News::Disconnected { reason });
    }

    fn close_links(&mut self, reason: &DisconnectReason, close: bool) {
        let Some(transport) = self.transport.as_mut().filter(|_| close) else { return };
        let (code, text) = reason.to_wire();
        let greeting: Vec<_> = match &self.role {
            Role::Host(host) => host.greeting.iter().map(|k| k.link).collect(),
            Role::Guest(guest) => guest.link.into_iter().collect(),
            Role::Ended(_) => Vec::new(),
        };
        let links: Vec<_> = self.links.iter().map(|l| l.id).chain(greeting).collect();
        for link in links {
            transport.close(self.time.now, link, code, &text);
        }
        transport.flush(self.time.now);
    }
}
