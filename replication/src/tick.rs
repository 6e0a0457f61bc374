//! The life of a packet, in order. Logic lives in the modules that are called here; order lives here.
//!
//! ```text
//! receive: 1 transport → packets   2 packets → values, in a temporary, all bounds checked
//!          3 policy and validation: may this peer say this   4 into history and world   5 time: which ticks are due
//! step:    the game executes the requested ticks
//! send:    6 capture columns, note what changed   7 what is pending per peer, the oldest first
//!          8 delta against what that peer acknowledged, within its allowance   9 hand to the transport, remember what was in it
//! ```

use crate::authority::subscribe_row;
use crate::block::bits;
use crate::capture::{Findings, Scene};
use crate::entities::NO_ROW;
use crate::error::UsageError;
use crate::incoming::Reception;
use crate::link::Link;
use crate::messages::Way;
use crate::news::News;
use crate::outgoing::{Assembler, Builder, Draft};
use crate::peer::{Peer, Role};
use crate::pick::Picker;
use crate::present::session_ticks;
use crate::trace;
use crate::why::Scarce;
use hecs::World;
use std::time::Duration;
use tidelock_netcore::bits::BitReader;
use tidelock_netcore::bits::BitWriter;
use tidelock_netcore::clock::{Sample, round_trip};
use tidelock_netcore::control::Control;
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::limits;
use tidelock_netcore::packet::{PacketKind, Stamp};
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::{Arrival, Delivery, Lane, LinkId, Transport};

/// A host tells every guest at least this often that nothing has changed.
const HOST_MARK: Duration = Duration::from_millis(200);
/// A guest tells its host at least this often that it is there.
const GUEST_MARK: Duration = Duration::from_millis(500);
/// More than any header takes, in bits, beside acknowledgements: see `netcore::packet`.
const HEADER_SLACK: usize = 64;

impl Peer {
    /// Network in. `now` counts from the program's own start and never goes back.
    ///
    /// # Errors
    /// [`UsageError::Config`] if `now` goes back.
    pub fn receive(&mut self, now: Duration, world: &mut World) -> Result<(), UsageError> {
        self.end_step(world);
        let _span = trace::receive(self.local);
        self.end_preview(world);
        self.pass_time(now)?;
        self.check_strays(world);
        self.keep_shared(world);
        self.preview.renew();
        self.time.note_receive();
        let mut payload = std::mem::take(&mut self.payload);
        while let Some(arrival) = self.transport.as_mut().and_then(|t| t.poll(now, &mut payload)) {
            match arrival {
                Arrival::Opened { link, address } => self.link_opened(link, address),
                Arrival::Datagram { link } => self.take_datagram(world, link, &payload), // 1, 2
                Arrival::Message { link, lane } if lane == Lane::CONTROL => self.control_message(world, link, &payload),
                Arrival::Message { link, lane } => self.take_lane(world, link, lane, &payload),
                Arrival::Closed { link, reason } => self.link_closed(world, link, reason),
            }
        }
        self.payload = payload;
        if self.is_host() {
            self.accept_rows(world); // 3, 4
        } else {
            self.take_definitions(world);
            self.take_large_growing(world);
            self.apply_rows(world); // 4
            self.reconcile(world);
            self.load_states(world);
            self.check_guesses(world);
            self.digest_confirmed();
            self.tell_forks();
        }
        self.resolve_messages();
        self.settle_requests();
        self.settle_larges();
        self.settle_claims();
        self.settle_pace();
        self.settle_forks(world);
        self.pass_deadlines(world);
        self.watch_foreign(world);
        self.plan_ticks(); // 5
        Ok(())
    }

    /// Network out.
    ///
    /// # Errors
    /// [`UsageError::Config`] if `now` goes back.
    pub fn send(&mut self, now: Duration, world: &mut World) -> Result<(), UsageError> {
        self.end_step(world);
        let _span = trace::send(self.local);
        self.end_preview(world);
        self.pass_time(now)?;
        self.keep_shared(world);
        if !self.links.is_empty() || (self.is_host() && self.config.local_news) {
            let sending = self.sending();
            if sending != Sending::Leftovers {
                self.capture_world(world, sending); // 6
            }
            self.start_feeds(world);
            self.send_frames(world);
            self.send_inputs();
            let used = self.send_packets(sending); // 7, 8, 9
            // a tick that was used between two sends stays open until the subscribers have taken note of it
            if used || sending != Sending::Leftovers && self.publisher.is_used() {
                self.release_rows();
                self.publisher.open();
            }
        }
        self.send_messages(world);
        if let Some(transport) = &mut self.transport {
            transport.flush(now);
        }
        Ok(())
    }

    /// What this call of [`send`](Self::send) is for.
    fn sending(&self) -> Sending {
        let due = self.time.tick.since(self.time.last_send) >= u64::from(self.config.send_every);
        match (self.dirty && due, self.forwards) {
            (true, _) => Sending::Scheduled,
            (false, true) => Sending::Forward,
            (false, false) => Sending::Leftovers,
        }
    }

    /// Moves this peer's idea of the time on.
    fn pass_time(&mut self, now: Duration) -> Result<(), UsageError> {
        if now < self.time.now {
            return Err(UsageError::Config("the time given to receive and send must not go back"));
        }
        self.time.now = now;
        if self.time.began.is_none() {
            self.time.began = Some(now);
            if let Role::Guest(guest) = &mut self.role {
                guest.generation = guest.machine.begin(now);
            }
        }
        self.time.session = self.session_at(now);
        Ok(())
    }

    /// The session's time at `now`.
    pub(crate) fn session_at(&self, now: Duration) -> Option<Duration> {
        match &self.role {
            Role::Host(_) => {
                let start = u128::from(self.config.counters_from - 1) * 1_000_000_000;
                let start = start.div_ceil(u128::from(self.config.tick_rate));
                let start = Duration::new((start / 1_000_000_000) as u64, (start % 1_000_000_000) as u32);
                self.time.began.map(|began| start + (now - began))
            }
            Role::Guest(guest) => guest.clock.as_ref().map(|clock| clock.session_time(now)),
            Role::Ended(_) => None,
        }
    }

    /// A guest has got its clock: its ticks begin where the session is.
    pub(crate) fn begin_session_time(&mut self) {
        self.time.session = self.session_at(self.time.now);
        let tick = self.time.session.map_or(Tick::ZERO, |time| session_ticks(time, self.config.tick_rate).0);
        self.time.step = tick;
        self.time.tick = tick;
        self.time.due = tick;
        self.time.last_send = tick;
    }

    /// Which ticks are due. After a stall the most are left out: the session's clock does not wait.
    fn plan_ticks(&mut self) {
        let Some(time) = self.step_time() else { return };
        let (due, _) = session_ticks(time, self.config.tick_rate);
        self.time.due = self.time.due.max(due);
        let behind = self.time.due.since(self.time.step);
        if behind > limits::CATCH_UP_TICKS {
            let skipped = behind - limits::CATCH_UP_TICKS;
            self.time.skipped += skipped;
            trace::skipped(skipped);
            self.time.step = self.time.step.plus(skipped);
            self.time.tick = self.time.tick.plus(skipped);
            self.inputs_skipped(self.time.due);
        }
    }

    fn take_datagram(&mut self, world: &mut World, id: LinkId, bytes: &[u8]) {
        // before admission there is nothing to say in datagrams
        let Some(index) = self.index_of(id) else { return };
        let (now, tick) = (self.time.now, self.time.tick);
        let link = &mut self.links[index];
        link.counters.bytes_in += bytes.len() as u64;
        let mut r = BitReader::new(bytes);
        let result = match PacketKind::read(&mut r) {
            Ok(kind @ (PacketKind::State | PacketKind::List)) => {
                let sent = link.subscriber.next_number().saturating_sub(1);
                link.incoming.receive(&self.schema, kind, &mut r, sent, tick)
            }
            Ok(PacketKind::Message) => return self.take_message(world, id, bytes, Way::Datagram),
            Ok(kind @ (PacketKind::Input | PacketKind::Frames)) => {
                let taken =
                    if kind == PacketKind::Input { self.take_inputs(index, &mut r) } else { self.take_frames(index, &mut r) };
                let Err(error) = taken else { return };
                Err(error)
            }
            Err(cause) => Err(PeerError::Malformed { what: "datagram", cause }),
        };
        let link = &mut self.links[index];
        match result {
            Ok(Reception::Taken { ack, stamp, tick, eliciting, oldest_age }) => {
                link.last_heard = now;
                if eliciting {
                    link.owes_ack.get_or_insert(now);
                }
                link.counters.taken += 1;
                if let Some(ack) = ack {
                    link.subscriber.acknowledge(&ack, &self.publisher, now, &mut self.lists);
                    link.events.acknowledge(&ack, now);
                }
                // after a stall the way did not take so long: it has lain here
                if let Some(stamp) = stamp.filter(|_| !self.time.stood_still) {
                    self.take_stamp(index, stamp);
                }
                if let Some(time) = self.time.session {
                    self.pace.note(time, tick.minus(oldest_age), self.config.tick_rate);
                }
                self.take_events(world, index);
            }
            Ok(Reception::Useless) => link.counters.useless += 1,
            Err(error) => {
                link.counters.malformed += 1;
                trace::malformed(link.peer, &error);
                if link.counters.malformed < limits::MALFORMED {
                    return;
                }
                if self.is_host() {
                    self.misbehaved(world, index, error);
                } else {
                    self.end_session(world, DisconnectReason::Malformed, true);
                }
            }
        }
    }

    fn take_stamp(&mut self, index: usize, stamp: Stamp) {
        let (now, session) = (self.time.now, self.time.session.unwrap_or_default());
        let link = &mut self.links[index];
        let (mine, theirs) = if matches!(self.role, Role::Host(_)) { (session, now) } else { (now, session) };
        let Some((sent, held)) = link.hear_stamp(stamp, mine, now) else { return };
        let Some(trip) = round_trip(sent, mine, held) else { return };
        link.rtt.observe(trip);
        if let Role::Guest(guest) = &mut self.role
            && let Some(clock) = &mut guest.clock
        {
            clock.observe(Sample { sent, host: stamp.sent.widen(theirs), received: now, held });
        }
    }

    /// Brings the published columns up to date with the world, and lets every subscriber know of it.
    fn capture_world(&mut self, world: &mut World, sending: Sending) {
        self.forwards = false;
        if sending == Sending::Scheduled {
            self.dirty = false;
            self.time.last_send = self.time.tick;
            self.time.captured = self.time.tick;
            self.time.captures = (self.time.captures.1, self.publisher.history.now());
            self.publisher.note_capture(self.time.tick);
        }
        self.captures.note(self.publisher.history.now(), self.time.tick, sending == Sending::Scheduled);
        let mut findings = std::mem::take(&mut self.capture.findings);
        findings.clear();
        let everything = matches!(self.role, Role::Host(_));
        let notify = if self.config.local_news && everything { self.notified() } else { 0 };
        let mut scene = Scene {
            schema: &self.schema,
            world,
            entities: &mut self.entities,
            publisher: &mut self.publisher,
            everything,
            tick: self.time.tick,
        };
        match sending {
            Sending::Scheduled => self.capture.run(&mut scene, notify, &mut findings),
            _ => self.capture.run_fresh(&mut scene, notify, &mut findings),
        }
        self.take_findings(world, &findings, everything);
        self.capture.findings = findings;
        self.look(world, sending == Sending::Scheduled);
        for link in &mut self.links {
            link.subscriber.note_changes(&self.publisher, self.time.tick);
        }
    }

    /// The components whose changes are told, as bits.
    fn notified(&self) -> u64 {
        self.schema.components.iter().enumerate().fold(0, |mask, (i, c)| mask | u64::from(c.notify) << (i + 1))
    }

    fn take_findings(&mut self, world: &mut World, findings: &Findings, everything: bool) {
        for &slot in &findings.gone {
            let Some(record) = self.entities.get(slot) else { continue };
            let (entity, net, was_told) = (record.entity, record.net, record.out_row != NO_ROW);
            self.miss(world, slot);
            if was_told && everything && self.config.local_news {
                self.news.push(News::Despawned { entity, net });
            }
        }
        for &(slot, row) in &findings.bound {
            let Some(record) = self.entities.get(slot) else { continue };
            for link in &mut self.links {
                if everything {
                    subscribe_row(&self.schema, &self.publisher, link, row, record, false, true, self.time.tick);
                } else {
                    link.subscriber.follow(&self.publisher);
                    (0..self.schema.columns()).for_each(|c| link.subscriber.want(c, row, true));
                }
            }
        }
        if everything && self.config.local_news {
            self.tell_findings(findings);
        }
        for (slot, c, error) in &findings.unsendable {
            let Some(record) = self.entities.get(*slot) else { continue };
            let component = self.schema.component(*c).name.clone();
            self.news.push(News::Unsendable { entity: record.entity, component, error: error.clone() });
        }
    }

    /// News of what the host itself did.
    fn tell_findings(&mut self, findings: &Findings) {
        for &(slot, _) in &findings.bound {
            if let Some(record) = self.entities.get(slot) {
                let kind = self.schema.kinds[record.kind].name.clone();
                self.news.push(News::Spawned { entity: record.entity, net: record.net, kind });
            }
        }
        // row by row, as a guest is told
        let mut told: Vec<(u32, Told, u32)> = Vec::new();
        for &(slot, before, after) in &findings.reshaped {
            told.extend(bits(before & !after).map(|c| (slot, Told::Removed, c)));
            told.extend(bits(after & !before).map(|c| (slot, Told::Added, c)));
        }
        told.extend(findings.changed.iter().map(|(slot, c)| (*slot, Told::Changed, *c as u32)));
        told.sort_unstable_by_key(|&(slot, what, c)| (slot, what != Told::Removed, c));
        for (slot, what, c) in told {
            let Some(entity) = self.entities.get(slot).map(|r| r.entity) else { continue };
            let component = self.schema.component(c as usize).name.clone();
            self.news.push(match what {
                Told::Removed => News::Removed { entity, component },
                Told::Added => News::Added { entity, component },
                Told::Changed => News::Changed { entity, component },
            });
        }
    }

    /// Sends every peer what is pending for it, or at least a sign of life; says whether the open tick was used.
    fn send_packets(&mut self, sending: Sending) -> bool {
        let Some(mut transport) = self.transport.take() else { return false };
        let host = self.is_host();
        let interval = self.send_interval();
        self.cache.clear();
        self.values.clear();
        self.lists.collect();
        let mut used = false;
        // peers of one baseline are served one after the other, and among them neighbours: what is encoded for one is at hand for
        // the next
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        let cell = self.audience.as_ref().map_or(1.0, |a| a.scope.cell);
        let place = |link: &Link| link.viewer.as_ref().map_or(0, |viewer| viewer.neighbourhood(cell));
        // who is told as nearly all are, after these
        let key = |link: &Link| (link.subscriber.base(), link.subscriber.is_uneven(), place(link));
        order.extend(self.links.iter().enumerate().map(|(i, link)| (key(link), i as u32)));
        order.sort_unstable();
        for n in 0..order.len() {
            let index = order[n].1 as usize;
            let base = |n: usize| order.get(n).map(|o| o.0.0);
            self.picks.shared = n > 0 && base(n - 1) == base(n) || base(n + 1) == base(n);
            let now = self.time.now;
            let link = &mut self.links[index];
            let facts = transport.facts(link.id);
            if !facts.is_some_and(|f| f.lossless) {
                let loss_time = link.loss_time(interval);
                if let Some(before) = now.checked_sub(loss_time) {
                    link.subscriber.time_out(before, &self.publisher, &mut self.lists);
                    link.events.time_out(before, now);
                }
            }
            if let Some(facts) = facts {
                link.renew(&facts, now);
            }
            // what the open tick holds is not known to the subscribers yet, unless this call has captured; and a value that goes to
            // who has just lost or got authority must not arrive before word of that
            let settled = !self.publisher.is_used() && !self.capture.has_fresh();
            let known = sending != Sending::Leftovers || settled;
            self.send_events(index, &mut *transport, true);
            let link = &self.links[index];
            if link.subscriber.is_pending() && known {
                used = self.send_state(index, &mut *transport) || used;
                // a turn counts sends: while somebody waits for one, ticks of sending pass
                let waits = || self.links[index].subscriber.holds_back(self.publisher.history.now());
                used = used || sending == Sending::Scheduled && waits();
            }
            self.links[index].subscriber.end_send(&self.publisher);
            self.send_events(index, &mut *transport, false);
            let link = &mut self.links[index];
            let mark = if host { HOST_MARK } else { GUEST_MARK };
            let quiet = link.last_sent.is_none_or(|at| now >= at + mark);
            let settles = sending != Sending::Leftovers && link.unsettled > 0 && link.last_state.is_some_and(|at| now > at);
            link.unsettled -= u8::from(settles);
            if link.is_ack_due(now, interval) || quiet || settles && link.last_sent.is_some_and(|at| now > at) {
                self.send_plain_mark(index, &mut *transport);
            }
        }
        self.order = order;
        self.transport = Some(transport);
        used
    }

    /// Sends one peer what is pending for it, in as many packets as its allowance and the transport take.
    fn send_state(&mut self, index: usize, transport: &mut dyn Transport) -> bool {
        let (tick, send_tick) = (self.time.tick, self.publisher.history.now());
        let (now, clock, host) = (self.time.now, self.stamp_clock(), self.is_host());
        let (schema, interval) = (self.schema.clone(), self.send_interval());
        let (packing, alone) = (self.config.packing, self.links.len() == 1);
        let (captured, before, known) = (self.time.captured, self.time.captures.0, self.known_tick());
        let link = &mut self.links[index];
        // leftovers go out in ticks of their own, which no capture has moved the base along with
        link.subscriber.keep_up(&self.publisher);
        let base = link.subscriber.base();
        let (schema, publisher, lists) = (&*schema, &self.publisher, &mut self.lists);
        let mut builder = if link.subscriber.view().is_some() {
            let (cache, scratch, receipts, peer) = (&mut self.values, &mut self.picks, &mut self.receipts, link.peer);
            Builder::List(Picker { schema, publisher, cache, scratch, lists, tick, captured, before, base, peer, receipts })
        } else {
            let (cache, tuner, scratch) = (&mut self.cache, &mut self.tuner, &mut self.scratch);
            if !packing.values {
                cache.clear();
            }
            Assembler { schema, publisher, cache, tuner, scratch, lists, tick, captured, before, base, alone, packing }.into()
        };
        builder.plan(&mut link.subscriber, link.allowance.room(now, interval));
        let (mut used, mut crowded) = (false, false);
        loop {
            let Some(facts) = transport.facts(link.id) else { return used };
            let Some(limit) = link.state_room(&facts, now, interval) else {
                builder.note_left(&link.subscriber);
                return used;
            };
            let stamp = link.next_stamp(clock, now);
            let mut header = link.header(tick, known, send_tick, Some(base), stamp);
            let Draft { body, packet, section, .. } = &mut self.draft;
            let riders = link.events.draft(schema, host, tick, if crowded { 0 } else { limit * 4 }, section);
            header.events = !riders.is_empty();
            packet.clear();
            header.write(builder.kind(), Some(link.incoming.received()), packet);
            let room = (limit * 8).saturating_sub(packet.len() + HEADER_SLACK + section.len());
            let body = builder.fill(&mut link.subscriber, room, body);
            let all = body.all;
            if body.carried.is_empty() {
                builder.take_back(&mut link.subscriber, body.carried);
                // not even the first value fits beside the events
                if !all && !riders.is_empty() {
                    crowded = true;
                    continue;
                }
                if !all {
                    link.state_did_not_fit(limit);
                }
                return used;
            }
            header.complete = link.complete(known, send_tick);
            packet.clear();
            header.write(builder.kind(), Some(link.incoming.received()), packet);
            let size = self.draft.close(body.copy.zip(builder.shared()));
            match transport.send_datagram(now, link.id, &self.draft.bytes) {
                Ok(Delivery::Taken) => {}
                Ok(Delivery::Full) | Err(_) => {
                    link.counters.full += 1;
                    link.scarce = Scarce::Transport;
                    builder.take_back(&mut link.subscriber, body.carried);
                    return used;
                }
            }
            used = true;
            link.state_sent(size, all, now);
            link.note_sent(size, now, true);
            link.events.sent(header.number, now, riders);
            link.subscriber.sent(send_tick, now, body);
            if all {
                return true;
            }
        }
    }

    /// The newest tick of which every change has been captured.
    pub(crate) fn known_tick(&self) -> Tick {
        if self.dirty { self.time.captured } else { self.time.tick }
    }

    /// The clock that this peer's stamps show: the session's at the host, its own at a guest.
    pub(crate) fn stamp_clock(&self) -> Duration {
        if self.is_host() { self.time.session.unwrap_or_default() } else { self.time.now }
    }

    fn send_messages(&mut self, world: &mut World) {
        if let Role::Guest(guest) = &mut self.role
            && guest.clock.is_some()
            && !guest.lease_requested
            && self.names.runs_low()
            && let Some(link) = self.links.first_mut()
        {
            guest.lease_requested = link.post_control(&Control::LeaseRequest);
        }
        self.send_releases();
        self.send_definitions(world);
        self.send_growing(world);
        let (now, interval) = (self.time.now, self.send_interval());
        let Some(transport) = &mut self.transport else { return };
        for link in &mut self.links {
            // a link that has just ended is reported by the next poll
            let _ = link.flush_messages(&mut **transport, now, interval);
            let _ = link.flush_blobs(&mut **transport, now, interval);
        }
        while let Some(index) = self.links.iter().position(|l| l.is_too_slow(now)) {
            if self.is_host() {
                self.remove_guest(world, index, DisconnectReason::TooSlow, true);
            } else {
                return self.end_session(world, DisconnectReason::TooSlow, true);
            }
        }
    }
}

impl Draft {
    /// What follows the header, and the whole as bytes; how many they are. `copy`: in place of the body, what was made for others.
    fn close(&mut self, copy: Option<((usize, usize), &BitWriter)>) -> usize {
        match copy {
            Some(((start, len), from)) => self.packet.append(from, start, len),
            None => self.packet.append(&self.body, 0, self.body.len()),
        }
        self.packet.append(&self.section, 0, self.section.len());
        self.bytes.clear();
        self.packet.bytes_into(&mut self.bytes);
        self.bytes.len()
    }
}

/// What a call of [`Peer::send`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// Only what waits already: what was lost, or found no room.
    Leftovers,
    /// Also what guests have published: it goes on at once. The host's own world waits for the schedule.
    Forward,
    /// All that has changed.
    Scheduled,
}

/// What became of a component, for news of the host's own doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Removed,
    Added,
    Changed,
}
