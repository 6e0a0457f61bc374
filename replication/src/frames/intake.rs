//! A guest: the frames that came, in a row.

use super::frame::Frame;
use crate::schema::Inner;
use std::collections::VecDeque;
use tidelock_netcore::bits::{BitError, BitReader};
use tidelock_netcore::frames::FramesHead;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// Frames that are kept though nobody asks for them any more: packets that were on their way repeat them, and what follows is told
/// as a difference.
const HISTORY: u64 = 256;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many frames are new.
    New(u64),
    /// It begins after a frame that has not come, or before all that are known, or there is no room.
    Useless,
}

/// Takes frames in a row, each once.
#[derive(Default)]
pub(crate) struct FrameIntake {
    /// The last is the newest.
    ring: VecDeque<Frame>,
    spare: Vec<Frame>,
    scratch: Frame,
    /// Bytes in `ring`.
    held: usize,
    /// Nobody needs what is before.
    wanted: Tick,
}

impl FrameIntake {
    /// A whole frame has come: lets go everything, and begins with it.
    ///
    /// # Errors
    /// [`BitError`]; then nothing has changed.
    pub(crate) fn begin(&mut self, tick: Tick, schema: &Inner, r: &mut BitReader<'_>) -> Result<(), BitError> {
        let mut frame = Frame::default();
        frame.read_whole(tick, schema, r)?;
        r.clone().finish()?;
        self.spare.extend(self.ring.drain(..));
        self.spare.truncate(HISTORY as usize);
        self.held = frame.cost();
        self.ring.push_back(frame);
        self.wanted = tick;
        Ok(())
    }

    /// The newest frame up to which all have come.
    pub(crate) fn newest(&self) -> Option<Tick> {
        self.ring.back().map(|frame| frame.tick)
    }

    /// A frame that has come and is still kept.
    pub(crate) fn sealed(&self, tick: Tick) -> Option<&Frame> {
        let ago = self.newest()?.0.checked_sub(tick.0)? as usize;
        self.ring.get(self.ring.len().checked_sub(ago + 1)?)
    }

    /// Nobody needs frames before `tick` any more.
    pub(crate) fn drop_before(&mut self, tick: Tick) {
        self.wanted = self.wanted.max(tick);
        let Some(newest) = self.newest() else { return };
        let keep = self.wanted.min(newest.minus(HISTORY - 1));
        while self.ring.front().is_some_and(|frame| frame.tick < keep) {
            if let Some(frame) = self.ring.pop_front() {
                self.held -= frame.cost();
                self.spare.push(frame);
            }
        }
        self.spare.truncate(HISTORY as usize);
    }

    fn is_full(&self) -> bool {
        self.ring.len() >= limits::FRAMES || self.held >= limits::FRAMES_HELD_BYTES
    }

    /// Takes what follows a packet's head: all of it, or nothing if it is malformed. What is not taken comes
    /// again until it is confirmed.
    ///
    /// # Errors
    /// [`BitError`].
    pub(crate) fn take(&mut self, head: FramesHead, schema: &Inner, r: &mut BitReader<'_>) -> Result<Taken, BitError> {
        let follows = self.newest().is_some_and(|newest| head.first <= newest.plus(1));
        if !follows || self.sealed(head.first.minus(1)).is_none() || self.is_full() {
            return Ok(Taken::Useless);
        }
        let before = self.ring.len();
        let result = self.take_all(head, schema, r).and_then(|()| r.clone().finish());
        if let Err(error) = result {
            while self.ring.len() > before {
                if let Some(frame) = self.ring.pop_back() {
                    self.held -= frame.cost();
                    self.spare.push(frame);
                }
            }
            return Err(error);
        }
        Ok(Taken::New((self.ring.len() - before) as u64))
    }

    fn take_all(&mut self, head: FramesHead, schema: &Inner, r: &mut BitReader<'_>) -> Result<(), BitError> {
        let (mut tick, mut left) = (head.first, head.count);
        while left > 0 {
            let same = r.golomb(0)?;
            if same > left {
                return Err(BitError::OutOfRange);
            }
            for _ in 0..same {
                self.put(tick, |frame, before| {
                    frame.follow(before);
                    Ok(())
                })?;
                tick = tick.plus(1);
            }
            left -= same;
            if left > 0 {
                self.put(tick, |frame, before| frame.read(before, schema, r))?;
                (tick, left) = (tick.plus(1), left - 1);
            }
        }
        Ok(())
    }

    /// Makes the frame of `tick` from the one before it. One that is known is made for the sake of what follows it, and let go: the
    /// first word counts.
    fn put(&mut self, tick: Tick, make: impl FnOnce(&mut Frame, &Frame) -> Result<(), BitError>) -> Result<(), BitError> {
        let is_new = self.newest().is_some_and(|newest| tick > newest);
        let mut frame = if is_new { self.spare.pop().unwrap_or_default() } else { std::mem::take(&mut self.scratch) };
        let made = self.sealed(tick.minus(1)).ok_or(BitError::OutOfRange).and_then(|before| make(&mut frame, before));
        let cost = frame.cost();
        match made {
            Ok(()) if is_new => {
                self.held += cost;
                self.ring.push_back(frame);
            }
            _ => self.scratch = frame,
        }
        // what one packet can make of itself is bounded, too
        let fits = self.held <= 2 * limits::FRAMES_HELD_BYTES;
        made.and(if fits { Ok(()) } else { Err(BitError::OutOfRange) })
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
