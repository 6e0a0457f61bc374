//! The timelines that every peer computes from the same sealed [frames](crate::frames): which of their steps is next.
//!
//! At the host both follow the session: it seals a tick's frame and runs the tick with it. A guest runs lockstep when the frame
//! is there, evenly, behind the session by what the frames take to come ([`Playout`]). Rollback it runs with the session, ahead
//! of the frames, with its own input and a guess of the others'; a frame that says otherwise than was guessed takes it back to
//! that tick ([`Peer::check_guesses`]).

mod guess;
mod join;
mod playout;

pub(crate) use guess::Guesses;

use crate::frames::Frame;
use crate::input::Source;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use crate::predict::{Cause, Correction};
use hecs::World;
use playout::Playout;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Steps of one timeline that a guest runs at most in a frame, when it has fallen behind: as a burst of catching up would hold up
/// its picture, and what it holds up it falls behind by.
const CATCH_UP: u32 = 16;

/// Where a peer is on the timelines that it computes.
pub(crate) struct Computed {
    lockstep: LockstepLine,
    rollback: RollbackLine,
    /// Steps of each that were run since the last call of `receive`.
    run: [u32; 2],
}

struct LockstepLine {
    /// The state is there that steps go on from.
    loaded: bool,
    /// The next step.
    next: Tick,
    /// The next frame to be looked at.
    frame: Tick,
    /// Steps still to be run of the frame before.
    left: u8,
    /// Is the step that is run the first of its frame? Then the frame's orders take effect in it.
    first: bool,
    /// The next one is.
    fresh: bool,
    /// A frame has asked for a digest, which the step that is the next last one of a frame begins.
    asked: bool,
    playout: Playout,
}

struct RollbackLine {
    loaded: bool,
    /// The next step.
    next: Tick,
    /// The frames up to here were run as they are.
    checked: Tick,
    guesses: Guesses,
    /// It is as far ahead of the frames as it may be, and waits.
    waits: bool,
    /// The tick that is run, or was last.
    ran: Tick,
}

impl Computed {
    /// Before the tick after `start`. A guest has no state to go on from yet.
    pub(crate) fn new(start: Tick, host: bool) -> Self {
        let first = start.plus(1);
        let lockstep = LockstepLine {
            loaded: host,
            next: Tick(1),
            frame: first,
            left: 0,
            first: false,
            fresh: false,
            asked: false,
            playout: Playout::default(),
        };
        let (guesses, waits) = (Guesses::default(), false);
        let rollback = RollbackLine { loaded: host, next: first, checked: start, guesses, waits, ran: start };
        Self { lockstep, rollback, run: [0; 2] }
    }
}

impl Peer {
    /// The step of a computed timeline that is next, if one is due: it, and whether it was run before.
    pub(crate) fn next_computed(&mut self) -> Option<(Timeline, Tick, bool)> {
        self.frames.as_ref()?;
        let rollback = self.schema.kinds_of(Timeline::Rollback) != 0;
        if rollback && let Some((tick, rerun)) = self.next_rollback() {
            return Some((Timeline::Rollback, tick, rerun));
        }
        let lockstep = self.schema.kinds_of(Timeline::Lockstep) != 0;
        let tick = if lockstep { self.next_lockstep() } else { None };
        tick.map(|tick| (Timeline::Lockstep, tick, false))
    }

    fn next_rollback(&mut self) -> Option<(Tick, bool)> {
        while let Some(tick) = self.saves[Timeline::Rollback].as_mut().and_then(|saves| saves.replay.pop_front()) {
            if self.take_up_rollback(tick) {
                return Some((tick, true));
            }
        }
        let host = self.is_host();
        loop {
            let line = &mut self.computed.rollback;
            let behind = !host && self.time.step.since(line.next) > u64::from(CATCH_UP);
            if !line.loaded || line.next > self.time.step || behind && self.computed.run[0] >= CATCH_UP {
                return None;
            }
            let newest = self.frames.as_ref()?.newest()?;
            if host && line.next > newest {
                return None; // a tick that was left out is sealed together with the next that is run
            }
            // a guess further ahead could not be taken back; with some slack, or it would go on and stop all the time
            let ahead = line.next.since(newest);
            let most = self.config.rewind.min(limits::SAVES as u64 - 1);
            line.waits = ahead > if line.waits { most * 3 / 4 } else { most };
            if line.waits {
                return None;
            }
            let tick = line.next;
            line.next = tick.plus(1);
            if self.take_up_rollback(tick) {
                self.computed.run[0] += 1;
                return Some((tick, false));
            }
        }
    }

    /// Makes sure that the tick has inputs, sealed or guessed; `false`: nobody runs it.
    fn take_up_rollback(&mut self, tick: Tick) -> bool {
        let (Some(frames), line) = (&self.frames, &mut self.computed.rollback) else { return false };
        line.ran = tick;
        if let Some(frame) = frames.sealed(tick) {
            line.guesses.forget(tick);
            return frame.run.is_some();
        }
        let before = tick.minus(1);
        let own = self.inputs.as_ref().map(|inputs| inputs.words_at(tick));
        let guessed = line.guesses.get(before).cloned();
        let Some(before) = frames.sealed(before).or(guessed.as_ref()) else { return false };
        line.guesses.guess(before, self.local, own, self.schema.input.as_ref());
        true
    }

    fn next_lockstep(&mut self) -> Option<Tick> {
        let host = self.is_host();
        let (frames, line) = (self.frames.as_ref()?, &mut self.computed.lockstep);
        if !line.loaded {
            return None;
        }
        // a host that stood still has left out more ticks than it keeps frames
        line.frame = line.frame.max(frames.oldest_of_host().unwrap_or_default());
        while line.left == 0 {
            let frame = frames.sealed(line.frame)?;
            let due = host || line.playout.is_due(frame.tick, self.time.session.unwrap_or_default(), self.config.tick_rate);
            if !due || !host && self.computed.run[1] >= CATCH_UP {
                return None;
            }
            (line.left, line.fresh) = (frame.steps(), true);
            line.asked |= frame.digest;
            line.frame = frame.tick.plus(1);
        }
        line.first = std::mem::take(&mut line.fresh);
        line.left -= 1;
        self.computed.run[1] += 1;
        let tick = line.next;
        line.next = tick.plus(1);
        Some(tick)
    }

    /// Guest, once per frame: have the frames that came said otherwise than was guessed? Then back to the first that did.
    pub(crate) fn check_guesses(&mut self, world: &mut World) {
        self.computed.run = [0; 2];
        if self.is_host() {
            return;
        }
        let (Some(frames), Some(session)) = (&self.frames, self.time.session) else { return };
        let Some(newest) = frames.newest() else { return };
        self.computed.lockstep.playout.note(newest, session, self.config.tick_rate);
        let line = &self.computed.rollback;
        let replays = self.saves[Timeline::Rollback].as_ref().is_some_and(|saves| !saves.replay.is_empty());
        if line.loaded && !replays {
            let last = newest.min(line.next.minus(1));
            let mut ticks = (line.checked.0 + 1..=last.0).map(Tick);
            let wrong = ticks.find_map(|tick| Some((tick, line.guesses.differs(frames.sealed(tick)?)?)));
            match wrong {
                Some((tick, peer)) => self.take_guess_back(world, tick, peer),
                None => self.confirm_line(world, Timeline::Rollback, last),
            }
            let line = &mut self.computed.rollback;
            line.checked = line.checked.max(last);
            line.guesses.drop_through(line.checked);
        }
        let needed = self.needed_from();
        if let Some(frames) = &mut self.frames {
            frames.drop_before(needed);
        }
    }

    /// No step needs a frame before this one.
    fn needed_from(&self) -> Tick {
        let Computed { lockstep, rollback, .. } = &self.computed;
        let of = |line: Timeline, loaded: bool, tick: Tick| {
            if self.schema.kinds_of(line) == 0 {
                self.time.step
            } else if loaded {
                tick
            } else {
                Tick::ZERO
            }
        };
        let lockstep = of(Timeline::Lockstep, lockstep.loaded, lockstep.frame.minus(1));
        let digested = self.forks.digested();
        let rollback = of(Timeline::Rollback, rollback.loaded, rollback.checked.min(digested));
        lockstep.min(rollback).minus(1)
    }

    fn take_guess_back(&mut self, world: &mut World, tick: Tick, peer: PeerId) {
        let words = |frame: Option<&Frame>| {
            let words = frame.and_then(|frame| frame.input_words(peer));
            words.map(<[u32]>::to_vec).unwrap_or_default()
        };
        let (predicted, authoritative) =
            (words(self.computed.rollback.guesses.get(tick)), words(self.frames.as_ref().and_then(|frames| frames.sealed(tick))));
        self.note_rollback_drawn(world);
        let back = self.rewind_line(world, Timeline::Rollback, tick);
        self.predictions.effects[Timeline::Rollback as usize].rewound(tick);
        debug_assert!(back.is_ok(), "the line waits before it gets out of reach: {back:?}");
        self.note_correction(Correction {
            cause: Cause::Input(peer),
            tick,
            depth: self.computed.rollback.next.since(tick),
            snapped: back.is_err(),
            net: crate::NetId(0),
            component: String::new(),
            field: String::new(),
            predicted,
            authoritative,
            values: Default::default(),
            at: self.time.now,
        });
    }

    /// The next step of lockstep, and the frame that it is run with or after, once the state is there to go on from.
    pub(crate) fn lockstep_next(&self) -> Option<(Tick, Tick)> {
        let line = &self.computed.lockstep;
        (line.loaded && line.left == 0 && self.schema.kinds_of(Timeline::Lockstep) != 0).then_some((line.next, line.frame))
    }

    /// The frame that the step is run with, on a timeline that every peer computes; of several, the last.
    pub(crate) fn frame_of_step(&self) -> Option<&Frame> {
        if let Some((frame, _)) = self.preview.frame() {
            return Some(frame);
        }
        let frames = self.frames.as_ref()?;
        match self.time.line {
            Timeline::Session => frames.sealed(self.time.ran),
            Timeline::Rollback => {
                let tick = self.computed.rollback.ran;
                frames.sealed(tick).or_else(|| self.computed.rollback.guesses.get(tick))
            }
            Timeline::Lockstep => frames.sealed(self.computed.lockstep.frame.minus(1)),
        }
    }

    /// The frame whose orders take effect in the step. Rollback knows of none: what is not sealed yet cannot be guessed.
    pub(crate) fn orders_of_step(&self) -> Option<&Frame> {
        if let Some((frame, fresh)) = self.preview.frame() {
            return Some(frame).filter(|_| fresh);
        }
        let here = match self.time.line {
            Timeline::Session => true,
            Timeline::Rollback => false,
            Timeline::Lockstep => self.computed.lockstep.first,
        };
        self.frame_of_step().filter(|_| here)
    }

    /// A seat's input on a timeline that every peer computes, the same everywhere: whether it arrived or was repeated is not told,
    /// for a guess cannot know it.
    #[expect(clippy::type_complexity, reason = "told to one caller, who names its parts at once")]
    pub(crate) fn computed_input(&self, peer: PeerId) -> Option<(Option<&[u32]>, Option<&[u32]>, Source)> {
        let frame = self.frame_of_step()?;
        let effect = frame.effect(frame.find(peer).ok()?);
        Some(match effect.words {
            Some((value, before)) => (Some(value), Some(before), Source::Arrived),
            None => (None, None, Source::Absent),
        })
    }

    /// A guest has the state that a timeline goes on from: its next step is `next`, which runs with the frame of `frame` or, of
    /// lockstep, with the first from there on that stands for a step.
    pub(crate) fn computed_loaded(&mut self, line: Timeline, next: Tick, frame: Tick) {
        self.strays.disarm(line, false);
        let Computed { lockstep, rollback, .. } = &mut self.computed;
        match line {
            Timeline::Session => {}
            Timeline::Rollback => {
                (rollback.loaded, rollback.next, rollback.checked) = (true, next, frame.minus(1));
                (rollback.waits, rollback.guesses) = (false, Guesses::default());
                self.forks.begin(line, frame.minus(1));
            }
            Timeline::Lockstep => {
                (lockstep.loaded, lockstep.next, lockstep.frame, lockstep.left) = (true, next, frame, 0);
                lockstep.asked = false;
                self.forks.begin(line, next.minus(1));
            }
        }
    }

    /// The last tick of a timeline that this peer has run with what every peer runs it with: on the session's own, the last it ran;
    /// on the rollback timeline, ticks after it may be taken back. `None` for a guest that has not got the timeline's state yet.
    #[must_use]
    pub fn confirmed(&self, line: Timeline) -> Option<Tick> {
        let Computed { lockstep, rollback, .. } = &self.computed;
        match line {
            Timeline::Session => Some(self.time.step),
            Timeline::Lockstep => lockstep.loaded.then(|| lockstep.next.minus(1)),
            Timeline::Rollback if self.is_host() => Some(rollback.next.minus(1)),
            Timeline::Rollback => {
                let replay = self.saves[line].as_ref().and_then(|saves| saves.replay.front());
                rollback.loaded.then(|| replay.map_or(rollback.checked, |next| rollback.checked.min(next.minus(1))))
            }
        }
    }

    /// Is a digest of lockstep due after the step that was run? Asks once.
    pub(crate) fn is_digest_asked(&mut self) -> bool {
        let line = &mut self.computed.lockstep;
        line.left == 0 && std::mem::take(&mut line.asked)
    }

    /// Is one asked for that no step has come for?
    pub(crate) fn is_digest_open(&self) -> bool {
        self.computed.lockstep.asked
    }

    /// The next step of a computed timeline.
    pub(crate) fn next_of(&self, line: Timeline) -> Tick {
        if line == Timeline::Lockstep { self.computed.lockstep.next } else { self.computed.rollback.next }
    }

    /// Is every step of the computed timelines run that belongs to the ticks which this host has run?
    pub(crate) fn is_computed_done(&self) -> bool {
        let Some(newest) = self.frames.as_ref().and_then(|frames| frames.newest()) else { return true };
        let of = |line: Timeline| self.schema.kinds_of(line) != 0;
        let Computed { lockstep, rollback, .. } = &self.computed;
        let lockstep = !of(Timeline::Lockstep) || lockstep.left == 0 && lockstep.frame > newest;
        lockstep && (!of(Timeline::Rollback) || rollback.next > newest)
    }
}
