//! Events at a peer: how they get into packets of state and out of them, and when they go off.

use super::events::Event as Leaving;
use super::{Peer, Seen, To, Waiting};
use crate::error::UsageError;
use crate::outgoing::{Body, Draft};
use crate::peer_id::PeerId;
use crate::replicate::Replicate;
use crate::schema::Promise;
use hecs::World;
use tidelock_netcore::error::PeerError;
use tidelock_netcore::limits;
use tidelock_netcore::packet::PacketKind;
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::{Delivery, Transport};

/// An event as it is told: see [`Peer::events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<E> {
    /// Who sent it.
    pub from: PeerId,
    /// The session tick at which it goes off; `None` for one that is told when it comes.
    pub at: Option<Tick>,
    /// How many ticks after that it is told: 0 if it came in time and is fetched in every step.
    pub late: u64,
    /// What it is.
    pub value: E,
}

impl Peer {
    /// Sends an event that goes off at a tick of the session: every peer that gets it in time is told it in the step of that tick, and
    /// so is this one; where it comes too late it is told at once, and by how much. See [`event_tick`](Self::event_tick) for what
    /// tick it is.
    ///
    /// # Errors
    /// Those of [`send_message`](Self::send_message); [`UsageError::NotAllowed`] for what is no event, and for a tick that is further
    /// ahead than [`limits::EVENT_AHEAD`].
    pub fn send_event_at<E: Replicate>(&mut self, world: &World, to: To<'_>, tick: Tick, event: &E) -> Result<(), UsageError> {
        let index = self.message_index::<E>()?;
        if !self.schema.messages[index].promise.is_event() {
            return Err(UsageError::NotAllowed("send at a tick what is not registered as an event"));
        }
        if tick.since(self.event_tick()) > limits::EVENT_AHEAD {
            return Err(UsageError::NotAllowed("send an event for a tick so far ahead"));
        }
        let words = self.message_words(world, index, event)?;
        let sent = match self.send_words(world, to, index, &words, Some(tick)) {
            // the others have it
            sent @ (Ok(()) | Err(UsageError::Backlog)) => sent,
            Err(error) => return Err(error),
        };
        let waiting = Waiting { due: Some(tick), ..Waiting::new(self.local, self.time.now, words) };
        self.put_in_box(index, waiting);
        sent
    }

    /// The session's tick here, by which events go off: the tick of the last step; at a guest whose ticks run ahead, of the session
    /// as it is there without that.
    #[must_use]
    pub fn event_tick(&self) -> Tick {
        self.time.tick
    }

    /// The events of one type that are to be told now, each once: those that came, in the order of their senders, then those that go
    /// off now, by tick and sender. Ask in every step: then what came in time is told in the step of its tick on every peer. Those that
    /// name an entity which is not here yet wait, and hold back later ones of the same type and sender.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`]; [`UsageError::NotAllowed`] for what is no event.
    pub fn events<E: Replicate>(&mut self) -> Result<Vec<Event<E>>, UsageError> {
        let index = self.message_index::<E>()?;
        if !self.schema.messages[index].promise.is_event() {
            return Err(UsageError::NotAllowed("ask for events of what is not registered as one"));
        }
        let now = self.event_tick();
        let taken = self.mailbox.fetch::<E>(index, true, now, &self.entities);
        let told = |(w, value): (Waiting, E)| {
            let late = w.due.map_or(0, |due| now.since(due));
            Event { from: w.from, at: w.due, late, value }
        };
        let mut events: Vec<_> = taken.into_iter().map(told).collect();
        // in the order of arrival, what goes off in one tick would not be in the same order everywhere
        events.sort_by_key(|event| event.at.map(|at| (at, event.from)));
        Ok(events)
    }

    /// Queues an event for one peer.
    pub(super) fn post_event(
        &mut self,
        at: usize,
        message: usize,
        words: &[u32],
        due: Option<Tick>,
        relay: Option<PeerId>,
    ) -> Result<(), UsageError> {
        let (host, now) = (self.is_host(), self.time.now);
        let event = Leaving { message, relay, at: due, words: words.to_vec() };
        let taken = self.links[at].events.push(&self.schema, host, event, now);
        if taken { Ok(()) } else { Err(UsageError::Backlog) }
    }

    /// Takes the events that have come from a peer, each in its turn.
    pub(crate) fn take_events(&mut self, world: &mut World, index: usize) {
        while let Some(event) = self.links[index].incoming.events.pop() {
            let Leaving { message, relay, at, words } = event;
            let peer = self.links[index].peer;
            // the tick of its packet was the sender's to say, and others read the event against ours
            if self.is_host() && at.is_some_and(|at| at.since(self.time.tick) > 2 * limits::EVENT_AHEAD) {
                return self.misbehaved(world, index, PeerError::OverLimit { what: "the tick of an event" });
            }
            let from = if self.is_host() { peer } else { relay.unwrap_or(peer) };
            if self.is_host()
                && relay.is_some()
                && let Err(error) = self.relay_event(world, index, message, &words, at)
            {
                return self.misbehaved(world, index, error);
            }
            self.put_in_box(message, Waiting { due: at, ..Waiting::new(from, self.time.now, words) });
        }
    }

    /// Host: a guest's event goes on to the other guests. A guest of whose events as many wait for one of them as that one may lack
    /// at a time sends too many. Where there is no room at all, it goes who filled it.
    fn relay_event(
        &mut self,
        world: &World,
        index: usize,
        message: usize,
        words: &[u32],
        due: Option<Tick>,
    ) -> Result<(), PeerError> {
        let from = self.links[index].peer;
        let mut masked = Vec::new();
        for at in (0..self.links.len()).filter(|at| *at != index) {
            let words = match self.hide_names(world, at, message, words, &mut masked) {
                Seen::All => words,
                Seen::Part => &masked,
                Seen::Nothing => {
                    self.links[at].counters.unseen_messages += 1;
                    continue;
                }
            };
            if self.links[at].events.count_of(from) * 2 > limits::EVENTS_IN_FLIGHT {
                return Err(PeerError::OverLimit { what: "the events that others can take" });
            }
            if self.post_event(at, message, words, due, Some(from)).is_err() {
                let most = self.links[at].events.most_of();
                match self.links.iter_mut().find(|link| Some(link.peer) == most) {
                    Some(link) => link.give_up(),
                    None => self.links[at].give_up(),
                }
            }
        }
        Ok(())
    }

    /// Sends what finds no state to ride along with, in packets without state; `urgent`: only if it must not wait for some.
    pub(crate) fn send_events(&mut self, index: usize, transport: &mut dyn Transport, urgent: bool) {
        let (now, interval) = (self.time.now, self.send_interval());
        loop {
            let link = &mut self.links[index];
            let due = if urgent { link.events.is_urgent(now) } else { link.events.is_waiting() };
            // they take turns with state, which would starve else
            if urgent && link.events_led && link.subscriber.is_pending() {
                return;
            }
            if !due || !link.subscriber.has_room() {
                return;
            }
            let Some(facts) = transport.facts(link.id) else { return };
            let Some(limit) = link.state_limit(&facts, now, interval).filter(|limit| facts.free >= *limit) else { return };
            let Some(size) = self.send_mark(index, transport, limit) else { return };
            let link = &mut self.links[index];
            link.allowance.take_state(now, size + link.overhead());
            link.events_led |= urgent;
        }
    }

    /// Sends a packet without entries if there is nothing else to say: acknowledgements, and that nothing has changed.
    pub(crate) fn send_plain_mark(&mut self, index: usize, transport: &mut dyn Transport) {
        let link = &self.links[index];
        if link.subscriber.has_room() && transport.facts(link.id).is_some_and(|f| f.free >= limits::DATAGRAM_MIN_BYTES) {
            let now = self.time.now;
            if let Some(size) = self.send_mark(index, transport, 0) {
                self.links[index].mark_sent(size, now);
            }
        }
    }

    /// Sends a packet without entries. With a limit in bytes, events ride on it: if none fits, nothing is sent, and room is saved up.
    /// Gives its size.
    fn send_mark(&mut self, index: usize, transport: &mut dyn Transport, limit: usize) -> Option<usize> {
        let (tick, known, host) = (self.time.tick, self.known_tick(), self.is_host());
        let (now, clock) = (self.time.now, self.stamp_clock());
        // not the open tick: what will still change in it is not in this packet
        let send_tick = self.publisher.history.now().minus(1);
        let link = &mut self.links[index];
        let stamp = link.next_stamp(clock, now);
        let mut header = link.header(tick, known, send_tick, None, stamp);
        header.complete = link.complete(known, send_tick);
        header.events = limit > 0;
        let Draft { packet, bytes, section, .. } = &mut self.draft;
        packet.clear();
        header.write(PacketKind::State, Some(link.incoming.received()), packet);
        packet.flag(false);
        let riders = link.events.draft(&self.schema, host, tick, (limit * 8).saturating_sub(packet.len()), section);
        if limit > 0 && riders.is_empty() {
            link.state_did_not_fit(limit);
            return None;
        }
        packet.append(section, 0, section.len());
        bytes.clear();
        packet.bytes_into(bytes);
        if transport.send_datagram(now, link.id, bytes) != Ok(Delivery::Taken) {
            return None;
        }
        let size = bytes.len();
        link.events.sent(header.number, now, riders);
        link.note_sent(size, now, false);
        link.subscriber.sent(send_tick, now, Body::default());
        Some(size)
    }
}

impl Promise {
    pub(super) fn is_shared(self) -> bool {
        self == Self::SharedEvent
    }
}
