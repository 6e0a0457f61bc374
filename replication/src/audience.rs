//! Who sees what, on a host: what the [settings](crate::Relevance) and the guests' viewpoints come to, carried over into what each
//! link is told.

use crate::authority::{share_mask, subscribe_row};
use crate::block::bits;
use crate::entities::NO_ROW;
use crate::error::UsageError;
use crate::link::Link;
use crate::netid::NetId;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::receipts::{Decision, Receipt};
use crate::relevance::{Relevance, Room, Viewpoint};
use crate::schema::Inner;
use crate::scope::Scope;
use crate::view::Sighting;
use crate::viewer::{Changes, Shown, Viewer};
use hecs::{Entity, World};

/// A host's idea of who sees what, with buffers for what a look finds.
pub(crate) struct Audience {
    pub(crate) scope: Scope,
    changes: Changes,
    /// Names that a guest has begun or ceased to see in a look, sorted.
    names: Vec<NetId>,
    /// Looks are counted in sends.
    sends: u64,
}

impl Peer {
    /// Sets who gets what (host only, before the first guest is in). Without it everybody gets everything.
    ///
    /// # Errors
    /// [`UsageError::NotAllowed`] on a guest, or when guests are in already; [`UsageError::NotInSchema`] for kinds and components that
    /// the schema does not know.
    pub fn set_relevance(&mut self, relevance: Relevance) -> Result<(), UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("decide who gets what"));
        }
        if !self.links.is_empty() {
            return Err(UsageError::NotAllowed("change who gets what while guests are in"));
        }
        let scope = Scope::new(relevance, &self.schema)?;
        self.publisher.packed = true;
        self.audience = Some(Box::new(Audience { scope, changes: Changes::default(), names: Vec::new(), sends: 0 }));
        Ok(())
    }

    /// From where a guest sees (host only). At first from what it owns.
    ///
    /// # Errors
    /// [`UsageError::NoSuchPeer`], [`UsageError::NoRelevance`].
    pub fn look_from(&mut self, guest: PeerId, viewpoint: Viewpoint) -> Result<(), UsageError> {
        self.viewer(guest)?.set_viewpoint(viewpoint);
        Ok(())
    }

    /// How many of the nearest entities a guest gets, instead of what [`Relevance::nearest`] says (host only); `None`: what it says.
    ///
    /// # Errors
    /// [`UsageError::NoSuchPeer`], [`UsageError::NoRelevance`].
    pub fn set_tier(&mut self, guest: PeerId, nearest: Option<usize>) -> Result<(), UsageError> {
        self.viewer(guest)?.set_tier(nearest);
        Ok(())
    }

    /// Lets a guest into a room (host only). Counted: who is let in twice has to leave twice.
    ///
    /// # Errors
    /// [`UsageError::NoSuchPeer`], [`UsageError::NoRelevance`].
    pub fn enter_room(&mut self, guest: PeerId, room: Room) -> Result<(), UsageError> {
        self.viewer(guest)?.join_room(room);
        Ok(())
    }

    /// Takes a guest out of a room (host only); says whether it was in.
    ///
    /// # Errors
    /// [`UsageError::NoSuchPeer`], [`UsageError::NoRelevance`].
    pub fn leave_room(&mut self, guest: PeerId, room: Room) -> Result<bool, UsageError> {
        Ok(self.viewer(guest)?.leave_room(room))
    }

    /// Puts an entity into a room (host only): from the next send on only guests who are in one of its rooms see it. Counted.
    ///
    /// # Errors
    /// [`UsageError::NotNetworked`], [`UsageError::NoRelevance`].
    pub fn put_in_room(&mut self, world: &World, entity: Entity, room: Room) -> Result<(), UsageError> {
        let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        self.scope()?.join_room(slot, room);
        Ok(())
    }

    /// Takes an entity out of a room (host only); says whether it was in.
    ///
    /// # Errors
    /// [`UsageError::NotNetworked`], [`UsageError::NoRelevance`].
    pub fn take_from_room(&mut self, world: &World, entity: Entity, room: Room) -> Result<bool, UsageError> {
        let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        Ok(self.scope()?.leave_room(slot, room))
    }

    /// Lets entities, and whatever each of them is seen together with already, come and go together (host only).
    ///
    /// # Errors
    /// [`UsageError::NotNetworked`], [`UsageError::NoRelevance`].
    pub fn see_together(&mut self, world: &World, entities: &[Entity]) -> Result<(), UsageError> {
        let slot = |entity: &Entity| self.entities.slot_at(world, *entity).ok_or(UsageError::NotNetworked);
        let slots = entities.iter().map(slot).collect::<Result<Vec<_>, _>>()?;
        self.scope()?.see_together(&slots);
        Ok(())
    }

    /// Takes an entity out of what it was to be [seen together](Self::see_together) with (host only).
    ///
    /// # Errors
    /// [`UsageError::NotNetworked`], [`UsageError::NoRelevance`].
    pub fn see_apart(&mut self, world: &World, entity: Entity) -> Result<(), UsageError> {
        let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        self.scope()?.part(slot);
        Ok(())
    }

    /// Does a guest see an entity, as of the last send?
    #[must_use]
    pub fn sees(&self, world: &World, guest: PeerId, entity: Entity) -> bool {
        let record = self.entities.slot_at(world, entity).and_then(|slot| self.entities.get(slot));
        let (Some(record), Some(link)) = (record, self.link_to(guest)) else { return false };
        record.out_row != NO_ROW && link.subscriber.is_shown(record.out_row as usize)
    }

    /// How many entities a guest sees, as of the last send; `None` for who is no guest.
    #[must_use]
    pub fn seen_count(&self, guest: PeerId) -> Option<usize> {
        let link = self.link_to(guest)?;
        Some(link.subscriber.view().map_or(self.entities.len(), |view| view.alive().count()))
    }

    /// May a peer be told of an entity: does it see it, and may it still?
    pub(crate) fn may_know(&self, world: &World, index: usize, slot: u32) -> bool {
        let link = &self.links[index];
        let (Some(audience), Some(viewer)) = (&self.audience, &link.viewer) else { return true };
        let shown = self.entities.get(slot).is_some_and(|r| r.out_row != NO_ROW && link.subscriber.is_shown(r.out_row as usize));
        shown && audience.scope.explain(viewer, world, slot).is_ok()
    }

    /// Is an entity one that a peer is not shown, and will be told of when it is?
    pub(crate) fn is_out_of_sight(&self, index: usize, slot: u32) -> bool {
        let link = &self.links[index];
        if self.audience.is_none() || link.viewer.is_none() {
            return false;
        }
        self.entities.get(slot).is_some_and(|r| r.out_row != NO_ROW && !link.subscriber.is_shown(r.out_row as usize))
    }

    fn scope(&mut self) -> Result<&mut Scope, UsageError> {
        self.audience.as_mut().map(|a| &mut a.scope).ok_or(UsageError::NoRelevance)
    }

    fn viewer(&mut self, guest: PeerId) -> Result<&mut Viewer, UsageError> {
        if self.audience.is_none() {
            return Err(UsageError::NoRelevance);
        }
        let link = self.links.iter_mut().find(|l| l.peer == guest).ok_or(UsageError::NoSuchPeer)?;
        link.viewer.as_mut().ok_or(UsageError::NoSuchPeer)
    }

    /// Works out what each guest may and should see now, before anything of this send goes out.
    pub(crate) fn look(&mut self, world: &World, scheduled: bool) {
        let Some(mut audience) = self.audience.take() else { return };
        if scheduled || audience.scope.is_touched() {
            audience.scope.refresh(world, &self.entities, &self.schema);
            audience.sends += u64::from(scheduled);
            for index in 0..self.links.len() {
                self.look_for(index, &mut audience, world);
            }
        }
        self.audience = Some(audience);
    }

    fn look_for(&mut self, index: usize, audience: &mut Audience, world: &World) {
        let link = &mut self.links[index];
        let Some(viewer) = &mut link.viewer else { return };
        let Audience { scope, changes, names, sends } = audience;
        scope.look(viewer, world, *sends, changes);
        names.clear();
        for (slot, why) in &changes.hidden {
            let Some(record) = self.entities.get(*slot).filter(|r| r.out_row != NO_ROW) else { continue };
            names.push(record.net);
            let decision = Decision::Hidden(*why);
            self.receipts.push(Receipt { tick: self.time.tick, peer: link.peer, net: record.net, decision });
            link.subscriber.hide(record.out_row as usize, &self.publisher);
        }
        for shown in &changes.shown {
            let net = self.entities.get(shown.slot).map(|r| r.net);
            names.extend(net);
            net.into_iter().for_each(|net| self.links[index].growing.show(net));
            self.show_to(index, shown, scope);
        }
        for shown in &changes.changed {
            self.show_to(index, shown, scope);
        }
        if !names.is_empty() && self.schema.absolute != 1 {
            names.sort_unstable();
            self.tell_references(index, names);
        }
    }

    fn show_to(&mut self, index: usize, shown: &Shown, scope: &Scope) {
        let Some(record) = self.entities.get(shown.slot).filter(|r| r.out_row != NO_ROW) else { return };
        let (link, row, tick) = (&mut self.links[index], record.out_row as usize, self.time.tick);
        let sighting = sighting(&self.schema, scope, shown);
        let own = share_mask(&self.schema, link.peer, record.kind, &record.owners);
        if link.subscriber.is_shown(row) {
            let other = self.schema.other_forms(link.peer, record.kind, record.owners[0].peer);
            return link.subscriber.sight(row, sighting, own | other, self.publisher.ever(row) & !other, tick);
        }
        link.subscriber.show(row, record.net, sighting, &self.publisher);
        self.receipts.push(Receipt { tick, peer: link.peer, net: record.net, decision: Decision::Shown });
        subscribe_row(&self.schema, &self.publisher, link, row, record, false, false, tick);
    }

    /// What names somebody that a guest has begun or ceased to see is told to it anew: the name is part of it, or is not.
    fn tell_references(&mut self, index: usize, changed: &[NetId]) {
        let (schema, publisher, tick) = (&self.schema, &self.publisher, self.time.tick);
        let Link { subscriber, .. } = &mut self.links[index];
        let Some(view) = subscriber.view() else { return };
        let mut stale = Vec::new();
        for (_, row) in view.alive() {
            for c in bits(schema.absolute & !1 & publisher.ever(row)) {
                let mut names = schema.layout(c as usize).entities(publisher.history.value(c as usize, row));
                if names.any(|net| changed.binary_search(&net).is_ok()) {
                    stale.push((row, c));
                }
            }
        }
        for (row, c) in stale {
            if subscriber.wants(c as usize, row) {
                subscriber.force(row, 1 << c, tick);
            }
        }
    }

    /// An entity's record has ended.
    pub(crate) fn note_ended(&mut self, slot: u32) {
        if let Some(audience) = &mut self.audience {
            audience.scope.ended(slot);
        }
    }
}

fn sighting(schema: &Inner, scope: &Scope, shown: &Shown) -> Sighting {
    let alone = scope.groups.is_alone(shown.slot);
    let group = if alone { Sighting::default().group } else { scope.groups.lead(shown.slot) };
    Sighting { hidden: schema.in_all_forms(shown.hidden), period: shown.period.max(1), weight: shown.weight, group }
}
