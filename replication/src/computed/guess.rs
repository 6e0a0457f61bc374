//! Guesses of frames that are not sealed yet.

use crate::frames::{Frame, Origin};
use crate::input::InputEntry;
use crate::peer_id::PeerId;
use std::collections::VecDeque;
use tidelock_netcore::tick::Tick;

/// What was guessed for each tick that was run before its frame was there, the oldest first.
#[derive(Default)]
pub(crate) struct Guesses {
    frames: VecDeque<Frame>,
    spare: Vec<Frame>,
}

impl Guesses {
    pub(crate) fn get(&self, tick: Tick) -> Option<&Frame> {
        let found = self.frames.binary_search_by_key(&tick, |frame| frame.tick);
        found.ok().map(|at| &self.frames[at])
    }

    /// Guesses the frame after `before`: everybody is still there, does what it did, and presses nothing; of this peer's own input,
    /// `own` is known: what it is, and the one before it.
    pub(crate) fn guess(&mut self, before: &Frame, local: PeerId, own: Option<&[u32]>, entry: Option<&InputEntry>) {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.follow(before);
        for at in 0..frame.seats.len() {
            let seat = frame.seats[at];
            match own.filter(|_| seat.peer == local && !seat.cpu) {
                Some(words) => frame.arrive(at).copy_from_slice(words),
                None if seat.origin == Origin::Arrived => frame.set_origin(at, Origin::Repeated),
                None => {}
            }
            let guess = entry.and_then(|entry| entry.guess.as_ref()).filter(|_| seat.peer != local);
            if let Some(guess) = guess.filter(|_| frame.seats[at].origin == Origin::Repeated) {
                let (value, before) = frame.both_mut(at);
                guess(value);
                before.copy_from_slice(value);
            }
        }
        let tick = frame.tick;
        while self.frames.back().is_some_and(|known| known.tick >= tick) {
            self.spare.extend(self.frames.pop_back());
        }
        self.frames.push_back(frame);
    }

    /// Whose input the frame has otherwise than it was guessed, if anybody's. A tick that was run with its frame was not guessed;
    /// one that nobody runs should not have been.
    pub(crate) fn differs(&self, sealed: &Frame) -> Option<PeerId> {
        let guess = self.get(sealed.tick)?;
        if sealed.run.is_none() {
            return Some(PeerId::HOST);
        }
        let effects = |frame: &Frame, at: usize| (at < frame.seats.len()).then(|| frame.effect(at).peer);
        let differs = |at: &usize| match (effects(guess, *at), effects(sealed, *at)) {
            (Some(_), Some(_)) => guess.effect(*at) != sealed.effect(*at),
            _ => true,
        };
        let at = (0..guess.seats.len().max(sealed.seats.len())).find(differs)?;
        effects(sealed, at).or(effects(guess, at))
    }

    /// The frame of a tick is there.
    pub(crate) fn forget(&mut self, tick: Tick) {
        if let Ok(at) = self.frames.binary_search_by_key(&tick, |frame| frame.tick) {
            self.spare.extend(self.frames.remove(at));
        }
    }

    /// Nobody asks for guesses up to `tick` any more.
    pub(crate) fn drop_through(&mut self, tick: Tick) {
        while self.frames.front().is_some_and(|frame| frame.tick <= tick) {
            self.spare.extend(self.frames.pop_front());
        }
    }
}
