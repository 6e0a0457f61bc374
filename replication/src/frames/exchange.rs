//! Frames between peers: sealing at the host, packets down and confirmations up, and what a game sees of seats.

use super::Side;
use super::feed::{Behind, Pace};
use super::frame::{Origin, Seat};
use super::intake::Taken;
use super::sealer::Present;
use crate::error::UsageError;
use crate::input::Source;
use crate::link::Link;
use crate::outgoing::Draft;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::step::Step;
use hecs::World;
use smallvec::SmallVec;
use std::time::Duration;
use tidelock_netcore::bits::BitReader;
use tidelock_netcore::error::{DisconnectReason, PeerError};
use tidelock_netcore::frames::FramesHead;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::Transport;

/// The first byte of a first frame, on the lane of control messages: what goes there otherwise begins with the number of its layout. It
/// goes there because it must not come before the word that lets the guest in.
pub(crate) const FRAME_MARK: u8 = 255;
/// A confirmation that has no inputs to ride with goes out at most so often.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(50);
/// One goes out at least so often, new or not: it is a sign of life for the guest's seat.
const SIGN_INTERVAL: Duration = Duration::from_millis(200);
/// Until a link was measured, what was not confirmed for so long counts as lost.
const FIRST_TRIP: Duration = Duration::from_millis(200);
/// On what loses nothing, a guest that has not confirmed for so long had no room.
const LOSSLESS_TRIP: Duration = Duration::from_secs(2);
/// Packets of frames to one guest in one send.
const PACKETS: u32 = 4;

impl Peer {
    /// Host: a tick of the session is run, and its frame sealed.
    pub(crate) fn seal_frame(&mut self, tick: Tick) {
        let timeout = self.config.seat_timeout;
        let Some(sealer) = self.frames.as_mut().and_then(|frames| frames.sealer()) else { return };
        let now = self.time.now;
        let own = self.inputs.as_ref().map(|inputs| (Origin::Arrived, inputs.own_words()));
        let mut present: SmallVec<[Present<'_>; 16]> = SmallVec::new();
        present.push(Present { peer: PeerId::HOST, silent: false, input: own });
        present.extend(self.links.iter().map(|link| {
            let input = self.schema.input.as_ref().map(|_| input_of(link));
            Present { peer: link.peer, silent: link.is_silent(now, timeout), input }
        }));
        present.sort_unstable_by_key(|p| p.peer);
        sealer.seal(tick, &present, &self.schema);
        if self.links.is_empty() {
            sealer.drop_before(tick.plus(1));
        }
    }

    /// Host: is anything of a peer left in frames?
    pub(crate) fn is_in_frames(&self, peer: PeerId) -> bool {
        let side = self.frames.as_ref().map(|frames| &frames.side);
        matches!(side, Some(Side::Host(sealer)) if sealer.knows(peer))
    }

    /// Host: sends guests the frames that they have not confirmed. Who is too far behind is removed.
    pub(crate) fn send_frames(&mut self, world: &mut World) {
        if self.frames.is_none() || !self.is_host() {
            return;
        }
        let Some(mut transport) = self.transport.take() else { return };
        let mut behind: SmallVec<[PeerId; 4]> = SmallVec::new();
        for index in 0..self.links.len() {
            if self.feed_guest(index, &mut *transport) == Err(Behind) {
                self.links[index].unwelcome = Some(DisconnectReason::TooSlow);
            }
            if self.links[index].unwelcome.is_some() {
                behind.push(self.links[index].peer);
            }
        }
        self.transport = Some(transport);
        for peer in behind {
            if let Some(index) = self.links.iter().position(|link| link.peer == peer) {
                let reason = self.links[index].unwelcome.take().unwrap_or(DisconnectReason::TooSlow);
                self.remove_guest(world, index, reason, true);
            }
        }
        let needed = self.links.iter().filter_map(|link| link.feed.as_ref().map(|feed| feed.next())).min();
        if let Some(sealer) = self.frames.as_mut().and_then(|frames| frames.sealer()) {
            let next = sealer.newest().map_or(Tick::ZERO, |newest| newest.plus(1));
            sealer.drop_before(needed.unwrap_or(next));
        }
    }

    fn feed_guest(&mut self, index: usize, transport: &mut dyn Transport) -> Result<(), Behind> {
        let (now, interval) = (self.time.now, self.send_interval());
        let link = &mut self.links[index];
        let Some(Side::Host(sealer)) = self.frames.as_ref().map(|frames| &frames.side) else { return Ok(()) };
        let Draft { packet, bytes, .. } = &mut self.draft;
        let Some(facts) = transport.facts(link.id) else { return Ok(()) };
        let Some(mut feed) = link.feed.take() else { return Ok(()) };
        let first = feed.begin(sealer);
        let mut outcome = first.map(|frame| {
            let Some(frame) = frame else { return };
            packet.clear();
            packet.put(u64::from(FRAME_MARK), 8);
            packet.put(frame.tick.0, 64);
            frame.write_whole(&self.schema, packet);
            link.post_first_frame(&packet.to_bytes());
        });
        let measured = link.rtt.smoothed() + 4 * link.rtt.variation() + interval + CONFIRM_INTERVAL;
        let trip = if link.rtt.smoothed().is_zero() { FIRST_TRIP.max(measured) } else { measured };
        let trip = if facts.lossless { LOSSLESS_TRIP } else { trip };
        let repeats = if facts.lossless { 0 } else { limits::FRAME_REPEATS };
        for _ in 0..PACKETS {
            let limit = link.input_limit(&facts, now, interval);
            let written = outcome.and_then(|()| feed.write(sealer, Pace { now, trip, repeats }, limit * 8, packet));
            outcome = written.map(|_| ());
            if written != Ok(true) || !link.send_input(now, packet, limit, bytes, transport) {
                break;
            }
        }
        link.frame_need = feed.need();
        link.feed = Some(feed);
        outcome
    }

    /// Host: a guest says up to where it has the frames.
    pub(crate) fn confirm_frames(&mut self, index: usize, tick: Tick) -> Result<(), PeerError> {
        let newest = self.frames.as_ref().and_then(|frames| frames.newest());
        let feed = self.links[index].feed.as_mut();
        let feed = feed.ok_or(PeerError::OutOfOrder("a confirmation of frames, and there are none"))?;
        feed.confirm(tick, newest).map_err(|cause| PeerError::Malformed { what: "confirmation of frames", cause })
    }

    /// Guest: a packet of frames.
    pub(crate) fn take_frames(&mut self, index: usize, r: &mut BitReader<'_>) -> Result<(), PeerError> {
        let malformed = |cause| PeerError::Malformed { what: "frames", cause };
        let near = self.session_tick();
        let Some(taking) = self.frames.as_mut().and_then(|frames| frames.taking()) else {
            return Err(PeerError::OutOfOrder("frames, and there should be none"));
        };
        // the session's tick may be a guess still
        let near = taking.intake.newest().unwrap_or(near);
        let head = FramesHead::read(r, near).map_err(malformed)?;
        match taking.intake.take(head, &self.schema, r).map_err(malformed)? {
            Taken::New(1..) => self.frames_came(),
            Taken::New(0) => taking.asked = true,
            Taken::Useless => self.links[index].counters.useless += 1,
        }
        self.links[index].last_heard = self.time.now;
        Ok(())
    }

    /// Guest: the first frame, whole.
    pub(crate) fn take_first_frame(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
        let malformed = |cause| PeerError::Malformed { what: "first frame", cause };
        let Some(taking) = self.frames.as_mut().and_then(|frames| frames.taking()) else {
            return Err(PeerError::OutOfOrder("a frame, and there should be none"));
        };
        let mut r = BitReader::new(bytes);
        r.get(8).map_err(malformed)?;
        let tick = Tick(r.get(64).map_err(malformed)?);
        if tick.0 >= u64::MAX / 2 {
            return Err(PeerError::OutOfOrder("a frame of the end of time"));
        }
        taking.intake.begin(tick, &self.schema, &mut r).map_err(malformed)?;
        taking.searched = None;
        taking.confirmed = None;
        self.frames_came();
        Ok(())
    }

    fn frames_came(&mut self) {
        let (local, step) = (self.local, self.time.step);
        // where timelines run by them, all are kept until those have: their state may come long after the frames
        let kept = self.schema.has_computed();
        let Some(frames) = &mut self.frames else { return };
        frames.find_own(local);
        if let Some(taking) = frames.taking().filter(|taking| !kept && !taking.is_kept) {
            taking.intake.drop_before(step.minus(limits::SAVES as u64));
        }
    }

    /// Guest: what it has to confirm, if that is due now. `rides`: it goes along with inputs.
    pub(crate) fn confirmation(&mut self, rides: bool) -> Option<Tick> {
        let now = self.time.now;
        let taking = self.frames.as_mut()?.taking()?;
        let newest = taking.intake.newest()?;
        let is_new = |(tick, at)| tick != newest || now >= at + SIGN_INTERVAL;
        let is_new = taking.asked || taking.confirmed.is_none_or(is_new);
        let is_due = rides || taking.confirmed.is_none_or(|(_, at)| now >= at + CONFIRM_INTERVAL);
        (is_new && is_due).then_some(newest)
    }

    /// Guest: a confirmation was sent.
    pub(crate) fn note_confirmed(&mut self, tick: Tick) {
        let now = self.time.now;
        if let Some(taking) = self.frames.as_mut().and_then(|frames| frames.taking()) {
            taking.confirmed = Some((tick, now));
            taking.asked = false;
        }
    }

    /// Stops the lockstep timeline for everybody, from the next frame on (host only). The session's time goes on, and so does
    /// rollback. A guest asks its host with an order or a message of the game's.
    ///
    /// # Errors
    /// [`UsageError::NotAllowed`] on a guest, [`UsageError::NotInSession`] if the schema has no computed kinds and no orders.
    pub fn pause_lockstep(&mut self) -> Result<(), UsageError> {
        self.sealing()?.control().pause();
        Ok(())
    }

    /// Lets the lockstep timeline go on at its speed.
    ///
    /// # Errors
    /// Those of [`pause_lockstep`](Self::pause_lockstep).
    pub fn resume_lockstep(&mut self) -> Result<(), UsageError> {
        self.sealing()?.control().resume();
        Ok(())
    }

    /// Makes `steps` steps more while lockstep is paused, one in a tick. Does nothing while it is not.
    ///
    /// # Errors
    /// Those of [`pause_lockstep`](Self::pause_lockstep).
    pub fn step_lockstep(&mut self, steps: u32) -> Result<(), UsageError> {
        self.sealing()?.control().step(steps);
        Ok(())
    }

    /// Sets the speed of the lockstep timeline: `steps` steps in `ticks` ticks of the session, evenly spread.
    ///
    /// # Errors
    /// Those of [`pause_lockstep`](Self::pause_lockstep); [`UsageError::Config`] for a zero, for more than
    /// [`limits::LOCKSTEP_STEPS`] steps a tick, and for more than 65 536 ticks.
    pub fn set_lockstep_speed(&mut self, steps: u32, ticks: u32) -> Result<(), UsageError> {
        let good = self.sealing()?.control().set_speed(steps, ticks);
        if good { Ok(()) } else { Err(UsageError::Config("lockstep makes more than 0 and at most 8 steps a tick")) }
    }

    fn sealing(&mut self) -> Result<&mut super::Sealer, UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("change the pace of lockstep"));
        }
        let sealer = self.frames.as_mut().and_then(|frames| frames.sealer());
        sealer.ok_or(UsageError::NotInSession(": the schema has no computed kinds and no orders"))
    }
}

/// A guest's input in the tick that was folded.
fn input_of(link: &Link) -> (Origin, &[u32]) {
    let Some(buffer) = &link.inputs else { return (Origin::Absent, &[]) };
    match buffer.current() {
        (Some(words), _, Source::Arrived | Source::Own) => (Origin::Arrived, words),
        (_, _, Source::Repeated(_)) => (Origin::Repeated, &[]),
        _ => (Origin::Absent, &[]),
    }
}

impl Step<'_> {
    /// Who plays in a peer's seat in this step, the same at every peer: a person, or a CPU while nothing is heard of the peer for
    /// [`Config::seat_timeout`](crate::Config::seat_timeout), or since it has left. `None` if the peer has no seat, or the step's
    /// frame is not known yet.
    #[must_use]
    pub fn seat(&self, peer: PeerId) -> Option<Seat> {
        self.at_peer().frame_of_step()?.seat(peer)
    }

    /// All seats in this step, by peer. The seat of somebody who has left stays, with a CPU, until another needs the place.
    pub fn seats(&self) -> impl Iterator<Item = (PeerId, Seat)> {
        let frame = self.at_peer().frame_of_step();
        let seats = frame.into_iter().flat_map(|frame| &frame.seats);
        seats.map(|seat| (seat.peer, if seat.cpu { Seat::Cpu } else { Seat::Person }))
    }
}
