//! Ownership on request: a guest asks for it, gives it up, and its host answers.
//!
//! Requests and answers are messages of the control lane, so each arrives once and in order; ownership itself is part of the state
//! stream, as ever. A request has exactly one outcome for the game that made it: [`News::Owned`] or [`News::OwnershipRefused`].

use crate::entities::NO_ROW;
use crate::error::UsageError;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::{Peer, Role};
use crate::peer_id::PeerId;
use crate::presence::Ownership;
use hecs::{Entity, World};
use std::time::Duration;
use thiserror::Error;
use tidelock_netcore::control::{Control, OwnershipAnswer, OwnershipRelease, OwnershipRequest, OwnershipVerdict};
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::limits;

/// What a host does with requests for the ownership of a kind's entities: see
/// [`KindOptions::requests`](crate::KindOptions::requests).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requests {
    /// Refuses them. What is given up goes to the host.
    #[default]
    Refuse,
    /// Grants what the host or nobody owns. What is given up for another guest goes there.
    WhenFree,
    /// Grants, whoever owns it. What is given up for another guest goes there.
    Always,
    /// Leaves it to the host's game: [`News::OwnershipRequested`], to be answered with [`Peer::grant`] or
    /// [`Peer::refuse_ownership`]. What is given up for another guest goes to the host, with [`News::OwnershipOffered`].
    Ask,
}

/// Why a guest did not get the ownership that it asked for.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Denial {
    /// The entity is gone, or out of the guest's sight; the host does not say which.
    #[error("the entity is gone, or out of sight")]
    Unknown,
    /// The kind's rule is [`Requests::Refuse`].
    #[error("entities of that kind cannot be asked for")]
    Closed,
    /// Somebody else owns it.
    #[error("somebody else owns it")]
    Taken,
    /// The host's game has refused.
    #[error("the host has refused")]
    Declined,
    /// Too many requests at a time.
    #[error("too many requests at a time")]
    TooMany,
    /// The host's game has not answered within [`limits::OWNERSHIP_TIME`].
    #[error("the host has not answered")]
    Unanswered,
    /// It was granted, and ended or was handed on before word of that had come.
    #[error("it was lost again at once")]
    Lost,
}

/// A guest's request without an outcome.
struct Claim {
    number: u32,
    net: NetId,
    entity: Entity,
    slot: usize,
    /// The epoch under which it was granted, and when the answer came.
    granted: Option<(u16, Duration)>,
    /// Since it was made, the game was told that it owns what it asked for.
    told: bool,
}

/// A request that the host's game has not answered.
struct Asked {
    by: PeerId,
    number: u32,
    net: NetId,
    slot: usize,
    since: Duration,
}

/// What this peer asks for, and what it is asked for.
#[derive(Default)]
pub(crate) struct Claims {
    number: u32,
    mine: Vec<Claim>,
    /// What the game has given up while the host may not know of the entity yet.
    releases: Vec<OwnershipRelease>,
    asked: Vec<Asked>,
}

/// So many at once, and so many in a second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throttle {
    /// When all that was taken will have been earned.
    earned: Duration,
}

impl Throttle {
    fn take(&mut self, now: Duration, burst: u32, rate: u32) -> bool {
        let each = Duration::from_secs(1) / rate;
        let earned = self.earned.max(now);
        if earned > now + each * (burst - 1) {
            return false;
        }
        self.earned = earned + each;
        true
    }
}

impl Claims {
    /// The game was told who owns what.
    pub(crate) fn note_owned(&mut self, net: NetId, slot: usize, mine: bool) {
        for claim in self.mine.iter_mut().filter(|c| c.net == net && c.slot == slot) {
            claim.told |= mine;
        }
    }
}

impl Peer {
    /// Guest: asks the host for an owner slot of an entity (0: the entity itself). What the host does is its kind's rule
    /// ([`KindOptions::requests`](crate::KindOptions::requests)). The outcome comes as news, once: [`News::Owned`], or
    /// [`News::OwnershipRefused`]. To ask again before it has come changes nothing.
    ///
    /// # Errors
    /// [`UsageError::NotAllowed`] on a host, which grants; [`UsageError::NotInSession`], [`UsageError::NoSuchSlot`],
    /// [`UsageError::NotNetworked`]; [`UsageError::AlreadyOwner`]; [`UsageError::TooManyRequests`] for more than
    /// [`limits::OWNERSHIP_REQUESTS`] without an outcome, half as many at once, or a quarter of [`limits::OWNERSHIP_RATE`] in a
    /// second;
    /// [`UsageError::Backlog`].
    pub fn request_ownership(&mut self, world: &World, entity: Entity, slot: usize) -> Result<(), UsageError> {
        let (net, owner) = self.slot_to_ask_for(world, entity, slot)?;
        if owner.peer == self.local {
            return Err(UsageError::AlreadyOwner);
        }
        // one whose outcome was told already may still wait for its answer
        if self.claims.mine.iter().any(|c| c.net == net && c.slot == slot && !c.told) {
            return Ok(());
        }
        self.may_claim(self.claims.mine.len())?;
        let number = self.claims.number;
        let message = Control::OwnershipRequest(OwnershipRequest { number, net: net.0, slot: slot as u8 });
        if !self.links.first_mut().is_some_and(|link| link.post_control(&message)) {
            return Err(UsageError::Backlog);
        }
        self.claims.number = number.wrapping_add(1);
        self.claims.mine.push(Claim { number, net, entity, slot, granted: None, told: false });
        Ok(())
    }

    /// Guest: gives an owner slot of an entity up. The host has it then, or `to`, if the kind's rule lets it
    /// ([`KindOptions::requests`](crate::KindOptions::requests)) and that guest sees the entity. Until [`News::Owned`] comes
    /// this peer owns it, and goes on to simulate it; what it writes last may come too late, and is then not taken.
    ///
    /// # Errors
    /// Those of [`request_ownership`](Self::request_ownership), but [`UsageError::NotAllowed`] for who does not own it;
    /// [`UsageError::NoSuchPeer`] if `to` is not in the session.
    pub fn release_ownership(
        &mut self,
        world: &World,
        entity: Entity,
        slot: usize,
        to: Option<PeerId>,
    ) -> Result<(), UsageError> {
        let (net, owner) = self.slot_to_ask_for(world, entity, slot)?;
        if owner.peer != self.local {
            return Err(UsageError::NotAllowed("give it up: it does not own it"));
        }
        if to.is_some_and(|to| !self.roster.contains_key(&to)) {
            return Err(UsageError::NoSuchPeer);
        }
        let release = OwnershipRelease { net: net.0, slot: slot as u8, epoch: owner.epoch, to: to.map(|p| p.0) };
        if self.claims.releases.iter().any(|r| (r.net, r.slot, r.epoch) == (release.net, release.slot, release.epoch)) {
            return Ok(());
        }
        self.may_claim(self.claims.releases.len())?;
        self.claims.releases.push(release);
        Ok(())
    }

    /// Host: refuses what a guest has asked for with [`News::OwnershipRequested`].
    ///
    /// # Errors
    /// [`UsageError::NotAllowed`] on a guest, [`UsageError::NotNetworked`], [`UsageError::NoSuchRequest`] if it does not wait for
    /// an answer (any more).
    pub fn refuse_ownership(&mut self, world: &World, entity: Entity, slot: usize, by: PeerId) -> Result<(), UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("refuse ownership"));
        }
        let net = self.name_of(world, entity).ok_or(UsageError::NotNetworked)?;
        let answered = self
            .answer_asked(|asked| ((asked.by, asked.net, asked.slot) == (by, net, slot)).then_some(OwnershipVerdict::Declined));
        if answered { Ok(()) } else { Err(UsageError::NoSuchRequest) }
    }

    fn slot_to_ask_for(&self, world: &World, entity: Entity, slot: usize) -> Result<(NetId, Ownership), UsageError> {
        if self.is_host() {
            return Err(UsageError::NotAllowed("ask for ownership: a host grants it"));
        }
        if !self.is_in_session() {
            return Err(UsageError::NotInSession(""));
        }
        if slot >= self.schema.slots {
            return Err(UsageError::NoSuchSlot(slot));
        }
        let record = self.entities.slot_at(world, entity).and_then(|slot| self.entities.get(slot));
        record.map(|record| (record.net, record.owners[slot])).ok_or(UsageError::NotNetworked)
    }

    fn may_claim(&mut self, open: usize) -> Result<(), UsageError> {
        let now = self.time.now;
        let link = self.links.first_mut().ok_or(UsageError::NotInSession(""))?;
        let may = open < limits::OWNERSHIP_REQUESTS && link.claims.take(now, BURST / 2, limits::OWNERSHIP_RATE / 4);
        if may { Ok(()) } else { Err(UsageError::TooManyRequests) }
    }

    /// Host: a guest asks to own something.
    pub(crate) fn hear_request(&mut self, world: &mut World, index: usize, request: OwnershipRequest) -> Result<(), PeerError> {
        let slot = self.slot_in_schema(request.slot)?;
        let verdict = if self.takes_claim(index) { self.judge_request(world, index, request, slot) } else { Some(TOO_MANY) };
        let link = &mut self.links[index];
        if let Some(verdict) = verdict {
            link.counters.denied += u64::from(!matches!(verdict, OwnershipVerdict::Granted { .. }));
            // a peer that cannot take it is found out at the next send
            let _ = link.post_control(&answer(request.number, verdict));
        }
        if self.has_too_many_refusals(index) {
            self.remove_guest(world, index, DisconnectReason::TooManyRefusals, true);
        }
        Ok(())
    }

    fn slot_in_schema(&self, slot: u8) -> Result<usize, PeerError> {
        let slot = usize::from(slot);
        if slot < self.schema.slots {
            Ok(slot)
        } else {
            Err(PeerError::OutOfOrder("an owner slot that the schema does not have"))
        }
    }

    /// Is the guest within its rate? If not, that counts like a refused write.
    fn takes_claim(&mut self, index: usize) -> bool {
        let now = self.time.now;
        let link = &mut self.links[index];
        let takes = link.claims.take(now, BURST, limits::OWNERSHIP_RATE);
        if !takes {
            link.refusals.push_back(now);
        }
        takes
    }

    /// The record of an entity that a guest knows of, and may name. What it does not see and what does not exist are the same.
    fn seen_by_guest(&self, index: usize, net: NetId) -> Option<u32> {
        let slot = self.entities.slot_of(net)?;
        let record = self.entities.get(slot).filter(|r| !r.parked && r.out_row != NO_ROW)?;
        self.links[index].subscriber.view().is_none_or(|view| view.sees(record.net)).then_some(slot)
    }

    /// The verdict, unless the game is asked for it.
    fn judge_request(
        &mut self,
        world: &mut World,
        index: usize,
        request: OwnershipRequest,
        slot: usize,
    ) -> Option<OwnershipVerdict> {
        let (net, by) = (NetId(request.net), self.links[index].peer);
        let Some(at) = self.seen_by_guest(index, net) else { return Some(OwnershipVerdict::Unknown) };
        let record = self.entities.get(at)?;
        let (owner, entity) = (record.owners[slot], record.entity);
        if owner.peer == by {
            return Some(OwnershipVerdict::Granted { epoch: owner.epoch });
        }
        let is_free = owner.peer == PeerId::HOST || owner.peer == PeerId::NOBODY;
        match self.schema.kinds[record.kind].requests {
            Requests::Refuse => Some(OwnershipVerdict::Closed),
            Requests::WhenFree if !is_free => Some(OwnershipVerdict::Taken),
            Requests::WhenFree | Requests::Always => {
                self.set_owner(world, at, slot, by);
                let epoch = self.entities.get(at)?.owners[slot].epoch;
                Some(OwnershipVerdict::Granted { epoch })
            }
            Requests::Ask => self.ask_the_game(by, request.number, net, entity, slot),
        }
    }

    fn ask_the_game(&mut self, by: PeerId, number: u32, net: NetId, entity: Entity, slot: usize) -> Option<OwnershipVerdict> {
        let asked = &mut self.claims.asked;
        if let Some(again) = asked.iter_mut().find(|a| (a.by, a.net, a.slot) == (by, net, slot)) {
            again.number = number; // an honest guest waits for the answer to the first
            return None;
        }
        if asked.iter().filter(|a| a.by == by).count() >= limits::OWNERSHIP_REQUESTS {
            return Some(TOO_MANY);
        }
        asked.push(Asked { by, number, net, slot, since: self.time.now });
        self.news.push(News::OwnershipRequested { entity, slot, by });
        None
    }

    /// Host: a guest gives up what it owns.
    pub(crate) fn hear_release(&mut self, world: &mut World, index: usize, release: OwnershipRelease) -> Result<(), PeerError> {
        let slot = self.slot_in_schema(release.slot)?;
        if self.takes_claim(index) {
            self.take_back(world, index, release, slot);
        } else if self.has_too_many_refusals(index) {
            self.remove_guest(world, index, DisconnectReason::TooManyRefusals, true);
        }
        Ok(())
    }

    fn take_back(&mut self, world: &mut World, index: usize, release: OwnershipRelease, slot: usize) {
        let by = self.links[index].peer;
        let Some(at) = self.seen_by_guest(index, NetId(release.net)) else { return };
        let Some(record) = self.entities.get(at) else { return };
        let (entity, net) = (record.entity, record.net);
        if record.owners[slot] != (Ownership { peer: by, epoch: release.epoch }) {
            return; // it has changed hands meanwhile
        }
        let rule = self.schema.kinds[record.kind].requests;
        // who does not see it is not shown it for a guest's wish
        let sees = |to: &PeerId| {
            let heir = self.links.iter().position(|l| l.peer == *to);
            *to != by && heir.is_some_and(|heir| self.seen_by_guest(heir, net).is_some())
        };
        let wish = release.to.map(PeerId).filter(sees);
        let heir = wish.filter(|_| matches!(rule, Requests::WhenFree | Requests::Always)).unwrap_or(PeerId::HOST);
        self.set_owner(world, at, slot, heir);
        if let Some(to) = wish.filter(|_| rule == Requests::Ask) {
            self.news.push(News::OwnershipOffered { entity, slot, by, to });
        }
    }

    /// Answers those of the requests that wait for the game, asked in order, for which there is a verdict; says whether there was one.
    fn answer_asked(&mut self, mut verdict: impl FnMut(&Asked) -> Option<OwnershipVerdict>) -> bool {
        let links = &mut self.links;
        let before = self.claims.asked.len();
        self.claims.asked.retain(|asked| {
            let Some(verdict) = verdict(asked) else { return true };
            if let Some(link) = links.iter_mut().find(|l| l.peer == asked.by) {
                link.counters.denied += u64::from(!matches!(verdict, OwnershipVerdict::Granted { .. }));
                // a peer that cannot take it is found out at the next send
                let _ = link.post_control(&answer(asked.number, verdict));
            }
            false
        });
        self.claims.asked.len() != before
    }

    /// Host: somebody owns something now. If it had asked for it, that is the answer.
    pub(crate) fn answer_granted(&mut self, net: NetId, slot: usize, owner: Ownership) {
        if !self.claims.asked.is_empty() {
            let granted = OwnershipVerdict::Granted { epoch: owner.epoch };
            self.answer_asked(|a| ((a.by, a.net, a.slot) == (owner.peer, net, slot)).then_some(granted));
        }
    }

    /// Guest: what became of a request.
    pub(crate) fn hear_answer(&mut self, answer: OwnershipAnswer) {
        let Some(at) = self.claims.mine.iter().position(|c| c.number == answer.number) else { return };
        let why = match answer.verdict {
            OwnershipVerdict::Granted { epoch } => {
                self.claims.mine[at].granted = Some((epoch, self.time.now));
                return;
            }
            OwnershipVerdict::Unknown => Denial::Unknown,
            OwnershipVerdict::Closed => Denial::Closed,
            OwnershipVerdict::Taken => Denial::Taken,
            OwnershipVerdict::Declined => Denial::Declined,
            OwnershipVerdict::TooMany => Denial::TooMany,
            OwnershipVerdict::Unanswered => Denial::Unanswered,
        };
        self.deny(at, why);
    }

    fn deny(&mut self, at: usize, why: Denial) {
        let Claim { entity, net, slot, told, .. } = self.claims.mine.remove(at);
        // who was told that it owns it has had its outcome, whatever came of that
        if !told {
            self.news.push(News::OwnershipRefused { entity, net, slot, why });
        }
    }

    /// Once per frame, when all that has come is applied.
    pub(crate) fn settle_claims(&mut self) {
        match self.role {
            Role::Host(_) if !self.claims.asked.is_empty() => self.review_asked(),
            Role::Guest(_) if !self.claims.mine.is_empty() => self.review_claims(),
            _ => {}
        }
    }

    /// Host: what was asked for may be gone, or out of sight, or was left unanswered for too long.
    fn review_asked(&mut self) {
        let (now, asked) = (self.time.now, std::mem::take(&mut self.claims.asked));
        let review = |asked: &Asked| {
            let index = self.links.iter().position(|l| l.peer == asked.by);
            if index.is_none_or(|index| self.seen_by_guest(index, asked.net).is_none()) {
                return Some(OwnershipVerdict::Unknown);
            }
            (now > asked.since + limits::OWNERSHIP_TIME).then_some(OwnershipVerdict::Unanswered)
        };
        let verdicts: Vec<_> = asked.iter().map(review).collect();
        self.claims.asked = asked;
        if verdicts.iter().any(Option::is_some) {
            let mut verdicts = verdicts.into_iter();
            self.answer_asked(|_| verdicts.next().flatten());
        }
    }

    /// Guest: has word of what was granted come with the stream of state?
    fn review_claims(&mut self) {
        for at in (0..self.claims.mine.len()).rev() {
            let Claim { net, slot, granted, told, .. } = self.claims.mine[at];
            let Some((epoch, since)) = granted else { continue };
            let record = self.entities.slot_of(net).and_then(|slot| self.entities.get(slot));
            let owner = record.map(|record| (record.entity, record.owners[slot]));
            let is_here = |owner: &Ownership| owner.epoch.wrapping_sub(epoch) <= u16::MAX / 2;
            match owner.filter(|(_, owner)| is_here(owner)) {
                _ if told => drop(self.claims.mine.remove(at)),
                Some((entity, owner)) if owner.peer == self.local => {
                    // it went out of sight meanwhile and came back as this peer's
                    self.claims.mine.remove(at);
                    self.news.push(News::Owned { entity, slot, owner: owner.peer });
                }
                Some(_) => self.deny(at, Denial::Lost),
                None if self.mailbox.is_dead(net) || self.time.now > since + limits::WAITING_TIME => self.deny(at, Denial::Lost),
                None => {}
            }
        }
    }

    /// Guest: sends what was given up, as soon as the host knows of the entity.
    pub(crate) fn send_releases(&mut self) {
        if self.claims.releases.is_empty() {
            return;
        }
        let (entities, local) = (&self.entities, self.local);
        let Some(link) = self.links.first_mut() else { return };
        self.claims.releases.retain(|release| {
            let record = entities.slot_of(NetId(release.net)).and_then(|slot| entities.get(slot));
            let owner = Ownership { peer: local, epoch: release.epoch };
            let Some(record) = record.filter(|r| r.owners[usize::from(release.slot)] == owner) else { return false };
            let from_host = record.in_row(PeerId::HOST).is_some();
            let known = record.out_row != NO_ROW && link.subscriber.has_told(record.out_row as usize);
            if !from_host && !known {
                return true;
            }
            // a host that cannot take it is found out at the next send
            let _ = link.post_control(&Control::OwnershipRelease(*release));
            false
        });
    }
}

/// Claims that a host takes at once. A guest makes half as many, and a quarter as many in a second: what its line has held up for
/// some seconds may come at once.
const BURST: u32 = limits::OWNERSHIP_REQUESTS as u32;
const TOO_MANY: OwnershipVerdict = OwnershipVerdict::TooMany;

fn answer(number: u32, verdict: OwnershipVerdict) -> Control {
    Control::OwnershipAnswer(OwnershipAnswer { number, verdict })
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
