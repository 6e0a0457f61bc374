//! Links that open and close, and the control lane: greeting, roster, leases, digests.

use crate::authority::subscribe_row;
use crate::frames::FRAME_MARK;
use crate::link::Link;
use crate::messages::Way;
use crate::news::News;
use crate::peer::{GuestSide, Knock, Peer, Role};
use crate::peer_id::PeerId;
use crate::presence::Owners;
use crate::trained::{Tables, TablesError};
use hecs::World;
use std::time::Duration;
use tidelock_netcore::clock::SessionClock;
use tidelock_netcore::control::{self, Control, Welcome};
use tidelock_netcore::error::{DisconnectReason, LinkError, PeerError};
use tidelock_netcore::limits;
use tidelock_netcore::session::{Admitted, GuestState, HostAdmitted, HostGreeting, Refused, reason_of};
use tidelock_netcore::transport::{Lane, LinkId};

/// Refused greetings that are told one by one in one frame: who knocks in a flood shall not wash away other news.
const REJECTIONS_TOLD: usize = 16;

impl Peer {
    /// A link has opened.
    pub(crate) fn link_opened(&mut self, link: LinkId, address: String) {
        let now = self.time.now;
        match &mut self.role {
            Role::Host(host) => host.greeting.push(Knock { link, address, greeting: HostGreeting::start(now) }),
            Role::Guest(guest) => {
                let hello = if guest.link.is_none() { guest.machine.handle_opened(guest.generation) } else { None };
                match hello {
                    Some(hello) => {
                        guest.link = Some(link);
                        self.post_now(link, &hello);
                    }
                    None => self.close_link(link, &DisconnectReason::Left),
                }
            }
            Role::Ended(_) => self.close_link(link, &DisconnectReason::Left),
        }
    }

    /// A link has ended, or could not be opened.
    pub(crate) fn link_closed(&mut self, world: &mut World, link: LinkId, reason: LinkError) {
        match &mut self.role {
            Role::Host(host) => {
                host.greeting.retain(|k| k.link != link);
                if let Some(index) = self.links.iter().position(|l| l.id == link) {
                    self.remove_guest(world, index, reason_of(reason), false);
                }
            }
            Role::Guest(guest) => {
                if guest.link.is_none_or(|l| l == link) {
                    guest.machine.handle_closed(guest.generation, reason.clone());
                    self.end_session(world, reason_of(reason), false);
                }
            }
            Role::Ended(_) => {}
        }
    }

    /// A message of the control lane.
    pub(crate) fn control_message(&mut self, world: &mut World, link: LinkId, bytes: &[u8]) {
        if let Role::Guest(GuestSide { clock: Some(_), .. }) = &self.role
            && bytes.first() == Some(&FRAME_MARK)
        {
            if self.take_first_frame(bytes).is_err() {
                self.end_session(world, DisconnectReason::Malformed, true);
            }
            return;
        }
        let message = control::decode(bytes);
        match &mut self.role {
            Role::Host(host) => {
                if let Some(at) = host.greeting.iter().position(|k| k.link == link) {
                    let knock = host.greeting.swap_remove(at);
                    self.greeted(knock, message);
                } else if let Some(index) = self.links.iter().position(|l| l.id == link) {
                    let checked = message.and_then(|m| HostAdmitted::check(&m).map(|()| m));
                    match checked {
                        Ok(message) => self.guest_says(world, index, &message),
                        Err(error) => self.misbehaved(world, index, error),
                    }
                }
            }
            Role::Guest(guest) => {
                let result = if guest.clock.is_some() {
                    message.and_then(|m| Admitted::check(&m).map(|()| m)).map(Some)
                } else {
                    message.and_then(|m| guest.machine.handle_message(guest.generation, m)).map(|()| None)
                };
                match result {
                    Ok(Some(message)) => self.host_says(world, &message),
                    Ok(None) => {
                        if self.admitted(link).is_err() {
                            return self.end_session(world, DisconnectReason::Malformed, true);
                        }
                        if self.is_in_session() {
                            self.take_early(world, link);
                        }
                    }
                    Err(_) => self.end_session(world, DisconnectReason::Malformed, true),
                }
            }
            Role::Ended(_) => {}
        }
    }

    /// Host: the first message of a link.
    fn greeted(&mut self, knock: Knock, message: Result<Control, PeerError>) {
        let free = self.free_peer();
        let Knock { link, address, greeting } = knock;
        let outcome = match message {
            Ok(message) => greeting.handle_message(message, &self.terms, free),
            Err(fault) => Err(greeting.handle_fault(fault)),
        };
        match outcome {
            Ok(admitted) => self.admit(link, admitted),
            Err(Refused { reason, .. }) => self.reject(link, address, reason),
        }
    }

    /// Host: a link does not become a peer.
    fn reject(&mut self, link: LinkId, address: String, reason: DisconnectReason) {
        self.close_link(link, &reason);
        let Role::Host(host) = &mut self.role else { return };
        host.rejections += 1;
        if host.rejections <= REJECTIONS_TOLD {
            self.news.push(News::Rejected { address, reason });
        }
    }

    /// The number that the next guest gets. Those of guests that left are given again only when there are no new ones any more,
    /// the one that left first before the others, and not while anything names it.
    fn free_peer(&self) -> Option<u16> {
        let Role::Host(host) = &self.role else { return None };
        if self.links.len() >= usize::from(self.config.guests) {
            return None;
        }
        if usize::from(host.next_peer) < limits::PEERS {
            return Some(host.next_peer);
        }
        host.left.iter().copied().find(|n| !self.is_named(PeerId(*n)))
    }

    /// Is anything left of a peer: its seat, its names, what it owns, or a tombstone of that which is not known everywhere yet?
    fn is_named(&self, peer: PeerId) -> bool {
        let owns = |owners: &Owners| owners.iter().take(self.schema.slots).any(|o| o.peer == peer);
        self.roster.contains_key(&peer)
            || self.link_to(peer).is_some()
            || self.names.has_leases(peer)
            || self.is_in_frames(peer)
            || self.entities.iter().any(|(_, record)| owns(&record.owners))
            || self.publisher.dying.iter().any(|(row, _)| owns(&self.publisher.presence(*row as usize).owners))
    }

    /// Host: a link becomes a peer.
    fn admit(&mut self, id: LinkId, admitted: HostAdmitted) {
        let Role::Host(host) = &mut self.role else { return };
        if admitted.peer == host.next_peer {
            host.next_peer += 1;
        } else {
            host.left.retain(|n| *n != admitted.peer);
        }
        let session = host.session;
        let peer = PeerId(admitted.peer);
        let mut welcome = Welcome {
            version: admitted.version,
            session,
            epoch: 0,
            peer: peer.0,
            tick_rate: self.config.tick_rate,
            time_us: self.time.session.unwrap_or_default().as_micros() as u64,
            lease: self.names.grant(peer),
            peers: self.roster.iter().map(|(p, name)| (p.0, name.clone())).collect(),
            tables: self.tables().map(|tables| tables.to_wire(admitted.tables)),
        };
        let unnamed = welcome.cut_to_fit();
        let (first, tick, now) = (self.config.counters_from, self.time.tick, self.time.now);
        let mut link = Link::new(
            id,
            peer,
            &self.schema,
            &self.publisher,
            first,
            tick,
            limits::GUEST_ROWS,
            self.config.bandwidth,
            now,
            self.audience.is_some(),
        );
        link.incoming.set_rate(self.config.tick_rate);
        link.incoming.set_tables(self.tuner.trained.clone());
        link.subscriber.whole_bases = self.config.packing.bases;
        self.tuner.set_rate(self.config.tick_rate);
        let mut fits = link.post_control(&Control::Welcome(welcome));
        for (peer, name) in unnamed {
            fits &= link.post_control(&Control::Joined { peer, name });
        }
        debug_assert!(fits, "a new link's queue holds a roster");
        for row in 0..self.publisher.row_count() {
            let record = self.publisher.slot(row).and_then(|slot| self.entities.get(slot));
            if let Some(record) = record {
                subscribe_row(&self.schema, &self.publisher, &mut link, row, record, false, false, tick);
            }
        }
        for other in &mut self.links {
            // a peer that cannot take it is found out at the next send
            let _ = other.post_control(&Control::Joined { peer: peer.0, name: admitted.name.clone() });
        }
        self.links.push(link);
        self.roster.insert(peer, admitted.name.clone());
        self.dirty = true;
        self.news.push(News::Joined { peer, name: admitted.name });
    }

    /// Guest: the host has let us in, if what it sends of the session's tables is some.
    fn admitted(&mut self, link: LinkId) -> Result<(), TablesError> {
        let Role::Guest(guest) = &mut self.role else { return Ok(()) };
        let GuestState::Admitted(Admitted { welcome }) = guest.machine.state() else { return Ok(()) };
        self.tuner.trained = Tables::of_session(self.config.tables.as_ref(), welcome.tables.as_ref())?;
        let now = self.time.now;
        let time = Duration::from_micros(welcome.time_us);
        let clock = SessionClock::start(time, now, Duration::ZERO);
        self.local = PeerId(welcome.peer);
        self.config.tick_rate = welcome.tick_rate;
        self.names.take(welcome.lease);
        self.roster = welcome.peers.iter().map(|(p, name)| (PeerId(*p), name.clone())).collect();
        self.roster.insert(self.local, self.config.name.clone());
        guest.session = welcome.session;
        guest.clock = Some(clock);
        let others: Vec<_> = self.roster.iter().filter(|p| *p.0 != self.local).map(|p| (*p.0, p.1.clone())).collect();
        self.begin_session_time();
        let (first, tick) = (self.config.counters_from, self.time.tick);
        let mut link = Link::new(
            link,
            PeerId::HOST,
            &self.schema,
            &self.publisher,
            first,
            tick,
            limits::ROWS,
            self.config.bandwidth,
            now,
            false,
        );
        link.incoming.set_rate(self.config.tick_rate);
        link.incoming.set_tables(self.tuner.trained.clone());
        link.subscriber.whole_bases = self.config.packing.bases;
        self.tuner.set_rate(self.config.tick_rate);
        self.links.push(link);
        self.news.push(News::Admitted { local: self.local });
        for (peer, name) in others {
            self.news.push(News::Joined { peer, name });
        }
        Ok(())
    }

    /// A message of another lane than that of control. Lanes are independent of each other, so it may come before the welcome.
    pub(crate) fn take_lane(&mut self, world: &mut World, link: LinkId, lane: Lane, bytes: &[u8]) {
        if let Role::Guest(guest) = &mut self.role
            && guest.clock.is_none()
        {
            let (early, held) = &mut guest.early;
            *held += bytes.len() + limits::MESSAGE_COST;
            if *held > limits::LANE_QUEUE_BYTES {
                return self.end_session(world, DisconnectReason::Malformed, true);
            }
            return early.push((lane, bytes.to_vec()));
        }
        match lane {
            Lane::BULK => self.take_bulk(world, link, bytes),
            lane => self.take_message(world, link, bytes, Way::Lane(lane)),
        }
    }

    /// Guest: the welcome has come, and with it the turn of what had overtaken it.
    fn take_early(&mut self, world: &mut World, link: LinkId) {
        let Role::Guest(guest) = &mut self.role else { return };
        for (lane, bytes) in std::mem::take(&mut guest.early).0 {
            self.take_lane(world, link, lane, &bytes);
        }
    }

    /// The place of a link in the list. It is remembered, and looked for only when it has changed.
    pub(crate) fn index_of(&mut self, id: LinkId) -> Option<usize> {
        let is_there = |at: &usize| self.links.get(*at).is_some_and(|l| l.id == id);
        if let Some(at) = self.seats.get(&id).copied().filter(is_there) {
            return Some(at);
        }
        let at = self.links.iter().position(|l| l.id == id)?;
        if self.seats.len() > self.links.len() * 2 {
            self.seats.clear(); // links that have ended are among them
        }
        self.seats.insert(id, at);
        Some(at)
    }

    fn guest_says(&mut self, world: &mut World, index: usize, message: &Control) {
        let peer = self.links[index].peer;
        let heard = match message {
            Control::OwnershipRequest(request) => self.hear_request(world, index, *request),
            Control::OwnershipRelease(release) => self.hear_release(world, index, *release),
            Control::Fork(fork) => self.guest_says_of_fork(index, fork),
            _ => Ok(()),
        };
        if let Err(error) = heard {
            return self.misbehaved(world, index, error);
        }
        match message {
            Control::LeaseRequest => {
                let first = self.names.grant(peer);
                let _ = self.links[index].post_control(&Control::Lease { first });
            }
            Control::Verdict(verdict) => self.hear_verdict(index, verdict),
            _ => {}
        }
    }

    fn host_says(&mut self, world: &mut World, message: &Control) {
        match message {
            Control::Joined { peer, name } => {
                let peer = PeerId(*peer);
                if peer != self.local && self.roster.insert(peer, name.clone()).is_none() {
                    self.news.push(News::Joined { peer, name: name.clone() });
                }
            }
            Control::Left { peer, code, text } => {
                let peer = PeerId(*peer);
                if self.roster.remove(&peer).is_some() {
                    self.keep_events_of(peer);
                    self.news.push(News::Left { peer, reason: DisconnectReason::from_wire(*code, text) });
                }
            }
            Control::Lease { first } => {
                self.names.take(*first);
                if let Role::Guest(guest) = &mut self.role {
                    guest.lease_requested = false;
                }
            }
            Control::Digest(digest) => self.compare_digest(world, digest),
            Control::OwnershipAnswer(answer) => self.hear_answer(*answer),
            Control::Fork(fork) if self.host_says_of_fork(fork).is_err() => {
                self.end_session(world, DisconnectReason::Malformed, true);
            }
            _ => {}
        }
    }

    /// Host: a guest broke the protocol. It is removed, and nobody else loses anything.
    pub(crate) fn misbehaved(&mut self, world: &mut World, index: usize, error: PeerError) {
        let peer = self.links[index].peer;
        self.news.push(News::Misbehaved { peer, error });
        self.remove_guest(world, index, DisconnectReason::Malformed, true);
    }

    /// Ends what has waited too long.
    pub(crate) fn pass_deadlines(&mut self, world: &mut World) {
        let now = self.time.now;
        match &mut self.role {
            Role::Host(host) => {
                let mut refused = Vec::new();
                for Knock { link, address, greeting } in std::mem::take(&mut host.greeting) {
                    match greeting.handle_deadline(now) {
                        Ok(greeting) => host.greeting.push(Knock { link, address, greeting }),
                        Err(Refused { reason, .. }) => refused.push((link, address, reason)),
                    }
                }
                refused.into_iter().for_each(|(link, address, reason)| self.reject(link, address, reason));
                if let Role::Host(host) = &mut self.role {
                    host.rejections = 0;
                }
                let limit = self.config.time_out;
                while let Some(index) = self.links.iter().position(|l| l.is_silent(now, limit)) {
                    self.remove_guest(world, index, DisconnectReason::TimedOut, true);
                }
                // until it acknowledges them, ends of entities and their rows are kept for it
                while let Some(index) = self.links.iter_mut().position(|l| l.subscriber.is_overdue(now, limit)) {
                    self.remove_guest(world, index, DisconnectReason::TooSlow, true);
                }
            }
            Role::Guest(guest) => {
                let late = guest.machine.handle_deadline(now);
                let silent = self.links.first().is_some_and(|l| l.is_silent(now, self.config.time_out));
                if late || silent {
                    self.end_session(world, DisconnectReason::TimedOut, true);
                }
            }
            Role::Ended(_) => {}
        }
    }

    fn post_now(&mut self, link: LinkId, message: &Control) {
        let mut bytes = Vec::new();
        control::encode(message, &mut bytes);
        if let Some(transport) = &mut self.transport {
            // the first message of a link always has room; if the link is gone already, its end is reported
            let _ = transport.send_message(self.time.now, link, Lane::CONTROL, &bytes);
        }
    }

    pub(crate) fn close_link(&mut self, link: LinkId, reason: &DisconnectReason) {
        let (code, text) = reason.to_wire();
        if let Some(transport) = &mut self.transport {
            transport.close(self.time.now, link, code, &text);
        }
    }
}
