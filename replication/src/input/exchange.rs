//! Inputs between peers: setting and asking, packets up and feedback down, and the guest's lead.

use super::buffer::Moment;
use super::own::{self, OwnInput};
use super::{Input, InputBuffer, InputReport, InputWords, Source, fit, quantise, restore, ticks_in};
use crate::error::UsageError;
use crate::outgoing::Draft;
use crate::peer::{Peer, Role};
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::present::session_ticks;
use crate::replicate::Replicate;
use crate::schema::Inner;
use crate::step::Step;
use std::any::TypeId;
use std::time::Duration;
use tidelock_netcore::bits::{BitReader, BitWriter};
use tidelock_netcore::error::PeerError;
use tidelock_netcore::input::{EARLINESS_MICROS, Feedback, UpHead};
use tidelock_netcore::lead::Lead;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;
use tidelock_netcore::transport::Transport;

/// A host says at most so often how a guest's inputs come: often enough that little is sent twice, seldom enough to cost little.
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(50);

/// What a peer has for inputs, if its schema has one.
pub(crate) struct Inputs {
    own: OwnInput,
    /// A guest's, once its clock was measured.
    lead: Option<Lead>,
    /// Whole ticks from the session's tick to the one that is run: what samples are labelled with lags behind by so much.
    shift: u64,
    /// The last tick at which inputs were sent.
    sent: Tick,
    /// Feedback on inputs up to here is about how this program stood still, not about the way.
    deaf_until: Tick,
    /// The host's count of missed ticks as it was told last, and all that were.
    told: u16,
    missed: u64,
    /// The inputs of a packet in the reading, and a packet in the making.
    words: Vec<u32>,
    behind: Vec<u32>,
    packet: BitWriter,
    bytes: Vec<u8>,
}

impl Inputs {
    pub(crate) fn new(schema: &Inner) -> Option<Box<Self>> {
        let entry = schema.input.as_ref()?;
        Some(Box::new(Self {
            own: OwnInput::new(&entry.default),
            lead: None,
            shift: 0,
            sent: Tick::ZERO,
            deaf_until: Tick::ZERO,
            told: 0,
            missed: 0,
            words: Vec::new(),
            behind: Vec::new(),
            packet: BitWriter::new(),
            bytes: Vec::new(),
        }))
    }

    /// What this peer does in the tick that is run.
    pub(crate) fn own_words(&self) -> &[u32] {
        &self.own.value
    }

    /// What this peer did in a tick that was run lately.
    pub(crate) fn words_at(&self, tick: Tick) -> &[u32] {
        self.own.at(tick).0
    }

    /// How far the label of a sample is behind the tick that is run: the lead in whole ticks, so that a sample belongs to the moment
    /// of the session in which it was taken. It follows the lead with slack, or motion would be shifted to and fro.
    fn follow(&mut self, ahead: i64, rate: u32) {
        let ticks = ahead as f64 * f64::from(rate) / 1e9;
        let over = self.shift as f64 - ticks;
        if !(0.0..=SHIFT_SLACK).contains(&over) {
            self.shift = ticks.max(0.0).ceil() as u64;
        }
    }
}

const NO_INPUT: PeerError = PeerError::OutOfOrder("inputs, and the schema has none");

/// By how much the label may lag behind the moment of a sample, in ticks.
const SHIFT_SLACK: f64 = 1.5;

impl Peer {
    /// What this peer does: its input from the next tick on, until it is set again. Set it once per frame, before the steps.
    ///
    /// The input that steps are given is what travels: rounded as its fields say.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`] if the schema's input is not of this type, [`UsageError::Input`] for a value that cannot travel;
    /// the one that was set before goes on then.
    pub fn set_input<I: Replicate>(&mut self, input: &I) -> Result<(), UsageError> {
        self.is_input::<I>()?;
        let Some(inputs) = &mut self.inputs else { return Ok(()) };
        let mut words = std::mem::take(&mut inputs.words);
        words.clear();
        words.resize(inputs.own.latched.len(), 0);
        let quantised = quantise(input, &mut words);
        if quantised.is_ok() {
            inputs.own.latched.copy_from_slice(&words);
        }
        inputs.words = words;
        quantised.map_err(UsageError::Input)
    }

    /// The same for an input whose fields are known at run time only, as words of its layout.
    ///
    /// # Errors
    /// Those of [`set_input`](Self::set_input).
    pub fn set_input_words(&mut self, words: &[u32]) -> Result<(), UsageError> {
        self.is_input::<InputWords>()?;
        if let Some(entry) = &self.schema.input {
            fit(&entry.layout, words).map_err(UsageError::Input)?;
        }
        if let Some(inputs) = &mut self.inputs {
            inputs.own.latched.copy_from_slice(words);
        }
        Ok(())
    }

    /// From now on what [`set_input`](Self::set_input) says takes effect so many ticks later: 0 if nothing is said, at most
    /// [`limits::INPUT_WINDOW`] / 2. It goes out at once all the same, so a guest runs that much less ahead of the session, and on
    /// the rollback timeline guesses less and goes back less far; what it does answers the later. It can be changed at any time,
    /// and a [`Press`](crate::Press) is never lost by it.
    ///
    /// # Errors
    /// [`UsageError::Config`] beyond the limit.
    pub fn set_input_delay(&mut self, ticks: usize) -> Result<(), UsageError> {
        if ticks > limits::INPUT_WINDOW / 2 {
            return Err(UsageError::Config("an input delay must be at most half of limits::INPUT_WINDOW ticks"));
        }
        if let Some(inputs) = &mut self.inputs {
            inputs.own.delay = ticks;
        }
        Ok(())
    }

    /// Host: how a guest's inputs reach it. `None` for others, and without an input in the schema.
    #[must_use]
    pub fn input_report(&self, guest: PeerId) -> Option<InputReport> {
        self.link_to(guest)?.inputs.as_ref().map(|buffer| buffer.report())
    }

    /// Guest: how many of its ticks the host has run without their input, as far as the host has told.
    #[must_use]
    pub fn missed_inputs(&self) -> u64 {
        self.inputs.as_ref().map_or(0, |inputs| inputs.missed)
    }

    /// By how much this peer's ticks run ahead of the session. `None` for those that do not: hosts, guests without an input in their
    /// schema, and guests whose link has not been measured yet; until then those run no ticks.
    #[must_use]
    pub fn lead(&self) -> Option<Duration> {
        self.ahead().map(|nanos| Duration::from_nanos(nanos.max(0) as u64))
    }

    fn is_input<I: 'static>(&self) -> Result<(), UsageError> {
        let known = self.schema.input.as_ref().is_some_and(|entry| entry.type_id == TypeId::of::<I>());
        if known { Ok(()) } else { Err(UsageError::NotInSchema(std::any::type_name::<I>())) }
    }

    /// What a peer does in a tick of a timeline, and what it did before; none stands for [`Default`].
    #[expect(clippy::type_complexity, reason = "told to two callers, who name its parts at once")]
    fn words_of_input(
        &self,
        line: Timeline,
        tick: Tick,
        peer: PeerId,
    ) -> Result<(Option<&[u32]>, Option<&[u32]>, Source), UsageError> {
        if line != Timeline::Session {
            return self.computed_input(peer).ok_or(UsageError::NoSuchPeer);
        }
        if peer == self.local {
            let own = self.inputs.as_ref().map(|inputs| &inputs.own).ok_or(UsageError::NoSuchPeer)?;
            let (value, before) = own.at(tick);
            return Ok((Some(value), Some(before), Source::Own));
        }
        if !self.is_host() {
            return Err(UsageError::NoInputOf(peer));
        }
        let buffer = self.link_to(peer).ok_or(UsageError::NoSuchPeer)?.inputs.as_ref();
        // a guest that has just come has none yet
        let Some((value, before, source)) = buffer.map(|buffer| buffer.current()) else {
            return Ok((None, None, Source::Absent));
        };
        Ok((value, Some(before), source))
    }

    fn ahead(&self) -> Option<i64> {
        let Role::Guest(guest) = &self.role else { return None };
        let lead = self.inputs.as_ref()?.lead.as_ref()?;
        Some(lead.ahead(self.time.now, guest.clock.as_ref()?))
    }

    /// The time that decides which ticks are due: the session's, or at a guest with inputs the led one.
    pub(crate) fn step_time(&mut self) -> Option<Duration> {
        let (Role::Guest(guest), Some(inputs)) = (&self.role, &mut self.inputs) else { return self.time.session };
        let clock = guest.clock.as_ref().filter(|clock| clock.is_measured())?;
        let (now, rate) = (self.time.now, self.config.tick_rate);
        if let Some(lead) = &mut inputs.lead {
            lead.steer(now, clock);
            return Some(lead.time(now));
        }
        let tick = Duration::from_nanos(1_000_000_000 / u64::from(rate));
        let lead = Lead::start(now, clock, tick);
        let time = lead.time(now);
        self.time.step = session_ticks(time, rate).0;
        inputs.follow(lead.ahead(now, clock), rate);
        inputs.lead = Some(lead);
        Some(time)
    }

    /// Ticks were left out, up to `due`.
    pub(crate) fn inputs_skipped(&mut self, due: Tick) {
        let told = 2 * ticks_in(FEEDBACK_INTERVAL, self.config.tick_rate);
        if let Some(inputs) = &mut self.inputs {
            inputs.deaf_until = due.plus(told);
        }
    }

    /// A tick is run: whose input is what? Gives the tick of the session that samples of it belong to.
    pub(crate) fn fold_inputs(&mut self) -> Tick {
        let step = self.time.step;
        let ahead = self.ahead();
        let rate = self.config.tick_rate;
        let behind = self.behind(step);
        let (Some(inputs), Some(entry)) = (&mut self.inputs, &self.schema.input) else { return step };
        inputs.own.fold(step);
        match (&self.role, ahead) {
            (Role::Guest(_), Some(ahead)) => {
                inputs.own.log(ahead, behind);
                inputs.follow(ahead, rate);
            }
            _ => {
                let repeat = ticks_in(limits::INPUT_REPEAT, rate);
                for link in &mut self.links {
                    link.inputs.get_or_insert_with(|| Box::new(InputBuffer::new(&entry.default))).fold(step, repeat);
                }
            }
        }
        step.minus(inputs.shift)
    }

    /// A datagram of inputs and a confirmation of frames, or of what the host says about inputs.
    pub(crate) fn take_inputs(&mut self, index: usize, r: &mut BitReader<'_>) -> Result<(), PeerError> {
        if let Role::Host(_) = self.role {
            return self.take_up(index, r);
        }
        let malformed = |cause| PeerError::Malformed { what: "inputs", cause };
        let Some(inputs) = &mut self.inputs else { return Err(NO_INPUT) };
        let feedback = Feedback::read(r, inputs.own.newest()).map_err(malformed)?;
        r.clone().finish().map_err(malformed)?;
        inputs.hear(feedback, self.time.now);
        self.links[index].last_heard = self.time.now;
        Ok(())
    }

    fn take_up(&mut self, index: usize, r: &mut BitReader<'_>) -> Result<(), PeerError> {
        let malformed = |cause| PeerError::Malformed { what: "inputs", cause };
        let (now, rate) = (self.time.now, self.config.tick_rate);
        let at = Moment { ran: self.time.step, time: self.time.session.unwrap_or_default(), rate };
        // not the session's tick now: a host that stood still for minutes hears first what came meanwhile
        let head = UpHead::read(r, at.ran).map_err(malformed)?;
        match (head.inputs, &mut self.inputs, &self.schema.input) {
            (Some(inputs), Some(own), Some(entry)) => {
                own::read(entry, inputs, r, &mut own.words, &mut own.behind).map_err(malformed)?
            }
            (Some(_), ..) => return Err(NO_INPUT),
            (None, ..) => r.clone().finish().map_err(malformed)?,
        }
        if let Some(tick) = head.frames {
            self.confirm_frames(index, tick)?;
        }
        let link = &mut self.links[index];
        if let (Some(head), Some(inputs), Some(entry)) = (head.inputs, &self.inputs, &self.schema.input) {
            link.inputs.get_or_insert_with(|| Box::new(InputBuffer::new(&entry.default))).take(
                head,
                &inputs.words,
                &inputs.behind,
                at,
            );
        }
        link.last_heard = now;
        Ok(())
    }

    /// Sends what is due: a guest's inputs and confirmations of frames, a host's word on inputs of its guests.
    pub(crate) fn send_inputs(&mut self) {
        if self.inputs.is_none() && self.frames.is_none() {
            return;
        }
        let Some(mut transport) = self.transport.take() else { return };
        if self.is_host() {
            self.send_feedback(&mut *transport);
        } else {
            self.send_up(&mut *transport);
        }
        self.transport = Some(transport);
    }

    fn send_up(&mut self, transport: &mut dyn Transport) {
        let interval = self.tick_length() * self.config.send_every;
        let due =
            |inputs: &Inputs| self.time.step.since(inputs.sent) >= u64::from(self.config.send_every) && !inputs.own.is_empty();
        let due = self.inputs.as_deref().is_some_and(due);
        let frames = self.confirmation(due);
        if !due && frames.is_none() {
            return;
        }
        let Some(link) = self.links.first_mut() else { return };
        let Some(facts) = transport.facts(link.id) else { return };
        let limit = link.input_limit(&facts, self.time.now, interval);
        let Draft { packet, bytes, .. } = &mut self.draft;
        packet.clear();
        match (&self.inputs, &self.schema.input) {
            (Some(inputs), Some(entry)) if due => inputs.own.write(entry, frames, limit * 8, packet),
            _ => UpHead { frames, inputs: None }.write(packet),
        }
        let sent = link.send_input(self.time.now, packet, limit, bytes, transport);
        if let Some(inputs) = self.inputs.as_mut().filter(|_| sent && due) {
            inputs.sent = self.time.step;
        }
        if let Some(tick) = frames.filter(|_| sent) {
            self.note_confirmed(tick);
        }
    }

    fn send_feedback(&mut self, transport: &mut dyn Transport) {
        let interval = self.tick_length() * self.config.send_every;
        let Some(inputs) = &mut self.inputs else { return };
        let now = self.time.now;
        for link in &mut self.links {
            if link.fed_back.is_some_and(|at| now < at + FEEDBACK_INTERVAL) {
                continue;
            }
            let Some(facts) = transport.facts(link.id) else { continue };
            let Some(feedback) = link.inputs.as_mut().and_then(|buffer| buffer.feedback()) else { continue };
            inputs.packet.clear();
            feedback.write(&mut inputs.packet);
            link.fed_back = Some(now);
            let limit = link.input_limit(&facts, now, interval);
            // one that finds no room is as good as lost
            let _ = link.send_input(now, &inputs.packet, limit, &mut inputs.bytes, transport);
        }
    }
}

impl Inputs {
    /// The host has said how inputs come.
    fn hear(&mut self, feedback: Feedback, now: Duration) {
        let Feedback { newest, earliness, missed } = feedback;
        let more = missed.wrapping_sub(self.told);
        // an older word that was overtaken says nothing new
        if more < 1 << 15 {
            self.told = missed;
            self.missed += u64::from(more);
        }
        let ahead = self.own.confirm(newest);
        if let (Some(ahead), Some(units), Some(lead)) = (ahead, earliness, &mut self.lead)
            && newest >= self.deaf_until
        {
            lead.note(now, ahead, i64::from(units) * EARLINESS_MICROS * 1000);
        }
    }
}

impl Step<'_> {
    /// What a peer does in this tick: this peer's own, or at the host that of any guest, as it came, was repeated, or is absent. In a
    /// step of a timeline that every peer computes, that of any peer that has a seat, as the host has sealed it: the same everywhere, but for
    /// [`Source::Own`], which others know as [`Source::Arrived`].
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`] if the schema's input is not of this type, [`UsageError::NoSuchPeer`],
    /// [`UsageError::NoInputOf`] at a guest for another peer: guests are not told what others do, but what comes of it.
    pub fn input<I: Replicate + Default>(&self, peer: PeerId) -> Result<Input<I>, UsageError> {
        self.at_peer().is_input::<I>()?;
        let of = |words: &[u32]| restore::<I>(words).unwrap_or_default();
        let (value, before, source) = self.at_peer().words_of_input(self.timeline(), self.tick(), peer)?;
        Ok(Input { value: value.map(of).unwrap_or_default(), before: before.map(of).unwrap_or_default(), source })
    }

    /// The same for an input that was registered with [`input_words`](crate::SchemaBuilder::input_words).
    ///
    /// # Errors
    /// Those of [`input`](Self::input).
    pub fn input_words(&self, peer: PeerId) -> Result<Input<&[u32]>, UsageError> {
        let at = self.at_peer();
        at.is_input::<InputWords>()?;
        let (value, before, source) = at.words_of_input(self.timeline(), self.tick(), peer)?;
        let default = at.schema.input.as_ref().map_or(&[][..], |entry| &entry.default);
        Ok(Input { value: value.unwrap_or(default), before: before.unwrap_or(default), source })
    }
}
