//! Who joins gets the state of the computed timelines, whole, as it was before a certain frame, and all frames from that one on.

use super::Peer;
use crate::frames::FrameFeed;
use crate::policy::Timeline;
use crate::rewind::saves::Save;
use hecs::World;
use tidelock_netcore::error::DisconnectReason;
use tidelock_netcore::tick::Tick;

/// The timelines that are computed.
const LINES: [Timeline; 2] = [Timeline::Rollback, Timeline::Lockstep];

impl Peer {
    /// Host: guests that have come get their frames from the next one on, and the state that it is run from.
    pub(crate) fn start_feeds(&mut self, world: &mut World) {
        if !self.is_host() || self.frames.is_none() || self.links.iter().all(|link| link.feed.is_some()) {
            return;
        }
        // between two ticks, all of which are run: where the game has left some steps, a little later
        if !self.is_computed_done() {
            return;
        }
        let first = self.frames.as_ref().and_then(|frames| frames.newest()).unwrap_or(self.time.step).plus(1);
        let states: Vec<_> = LINES.into_iter().filter_map(|line| Some((line, self.state_of(world, line, first)?))).collect();
        for index in 0..self.links.len() {
            if self.links[index].feed.is_some() {
                continue;
            }
            let peer = self.links[index].peer;
            let fits = states.iter().all(|(line, bytes)| self.send_blob(peer, *line as u8, bytes.clone()).is_ok());
            if !fits {
                // a state of more than `limits::BLOB_BYTES` can be told to nobody
                let why = DisconnectReason::Kicked("the state of this session is too large to be sent".into());
                self.links[index].feed = Some(Box::new(FrameFeed::from(first)));
                self.links[index].unwelcome = Some(why);
                continue;
            }
            self.links[index].feed = Some(Box::new(FrameFeed::from(first)));
        }
    }

    /// The state of a timeline before the frame of `first`, if the schema has something that lives by it.
    fn state_of(&mut self, world: &mut World, line: Timeline, first: Tick) -> Option<std::sync::Arc<[u8]>> {
        let kinds = self.schema.kinds_of(line);
        if kinds == 0 {
            return None;
        }
        self.watch_line(world, line);
        let tick = self.next_of(line);
        let saves = self.saves[line].as_mut()?;
        let mut save = Save::default();
        saves.copy(world, &mut save);
        save.tick = tick;
        let mut bytes = first.0.to_le_bytes().to_vec();
        bytes.extend(self.snapshot_of(world, line, &save, kinds)?);
        Some(bytes.into())
    }

    /// Looks after a timeline's entities, so that its state can be read at any time. Nothing is copied until then.
    pub(crate) fn watch_line(&mut self, world: &mut World, line: Timeline) {
        if self.saves[line].is_none() {
            let kinds = self.schema.kinds_of(line);
            self.start_saves(world, line, 1, kinds);
            if let Some(saves) = &mut self.saves[line] {
                saves.on_request = true;
            }
        }
    }

    /// Guest: takes over the states that have come.
    pub(crate) fn load_states(&mut self, world: &mut World) {
        if self.is_host() || self.frames.is_none() {
            return;
        }
        for line in LINES {
            let Some((_, bytes)) = self.take_blob(line as u8) else { continue };
            if self.load_state(world, line, &bytes).is_none() {
                return self.end_session(world, DisconnectReason::Malformed, true);
            }
        }
    }

    fn load_state(&mut self, world: &mut World, line: Timeline, bytes: &[u8]) -> Option<()> {
        let (first, bytes) = bytes.split_first_chunk::<8>()?;
        let first = Tick(u64::from_le_bytes(*first));
        let kinds = self.schema.kinds_of(line);
        if first.0 == 0 || first.0 > u64::MAX / 2 || kinds == 0 {
            return None;
        }
        match line {
            Timeline::Rollback if self.saves[line].is_none() => {
                self.start_saves(world, line, self.config.rewind as usize, kinds);
            }
            _ => self.watch_line(world, line),
        }
        let next = self.load_snapshot(world, line, bytes, kinds).ok()?;
        if line == Timeline::Rollback && next != first {
            return None;
        }
        self.computed_loaded(line, next, first);
        Some(())
    }
}
