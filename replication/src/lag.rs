//! Lag compensation: the world as an actor saw it when it acted.
//!
//! A guest draws others a little behind the session's clock, and what it does reaches its host later still. With its inputs it says
//! how far behind each tick the moment was that it drew (see [`crate::input::drawn`]). The host finds that moment in its history,
//! between the same two samples and with the component's own blend.

use crate::column::Reader;
use crate::error::UsageError;
use crate::history::{BLOCK, Sample};
use crate::input::drawn::UNITS;
use crate::netid::NetId;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::presence::{Life, Presence, net_in};
use crate::present::Moment;
use crate::replicate::Restorer;
use hecs::{Component, Entity, World};
use std::collections::VecDeque;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// A moment that an actor saw: see [`Peer::seen_by`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeenAt {
    actor: PeerId,
    tick: Tick,
    part: f32,
    clamped: bool,
    /// The tick in which it was asked.
    asked: Tick,
}

impl SeenAt {
    /// Whose moment it is.
    #[must_use]
    pub fn actor(&self) -> PeerId {
        self.actor
    }

    /// The session's tick that was on the actor's screen.
    #[must_use]
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// How much of the next tick had passed, from 0 to below 1.
    #[must_use]
    pub fn part(&self) -> f32 {
        self.part
    }

    /// The actor claims to have seen an earlier moment than the host goes back to: this is the earliest.
    #[must_use]
    pub fn is_clamped(&self) -> bool {
        self.clamped
    }

    /// How far behind the tick that was run when it was asked for, in ticks.
    #[must_use]
    pub fn ticks_behind(&self) -> f32 {
        self.asked.since(self.tick) as f32 - self.part
    }
}

/// What an entity was like at a moment of the past.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Past<C> {
    /// Its name.
    pub net: NetId,
    /// Its local handle, if it still lives.
    pub entity: Option<Entity>,
    /// The component as it was.
    pub value: C,
}

/// One capture of the world.
#[derive(Clone, Copy)]
struct Captured {
    send: Tick,
    /// The session's tick.
    at: Tick,
    /// That of the capture of the whole world before it.
    before: Tick,
}

/// Which session tick each send that the ring remembers belongs to, the oldest first.
#[derive(Default)]
pub(crate) struct Captures {
    log: VecDeque<Captured>,
    /// The last capture of the whole world.
    whole: Tick,
}

impl Captures {
    /// The world was captured, all of it if `whole`. A send tick in which nothing has changed is captured again.
    pub(crate) fn note(&mut self, send: Tick, at: Tick, whole: bool) {
        let new = Captured { send, at, before: self.whole };
        match self.log.back_mut().filter(|last| last.send == send) {
            Some(last) => *last = new,
            None => self.log.push_back(new),
        }
        if whole {
            self.whole = at;
        }
        while self.log.front().is_some_and(|first| send.since(first.send) >= limits::RING as u64) {
            self.log.pop_front();
        }
    }

    /// The earliest session tick of which everything is remembered.
    fn oldest(&self) -> Option<Tick> {
        self.log.front().map(|first| first.at)
    }

    /// The newest send tick by whose end nothing had been sampled after `tick`; else the oldest.
    fn send_at(&self, tick: Tick) -> Tick {
        let after = self.log.partition_point(|c| c.at <= tick);
        self.log.get(after.saturating_sub(1)).map_or(Tick::ZERO, |c| c.send)
    }

    /// The session tick of the capture before the one at `tick`.
    fn before(&self, tick: Tick) -> Option<Tick> {
        let found = self.log.binary_search_by_key(&tick, |c| c.at).ok()?;
        Some(self.log[found].before)
    }
}

/// What is asked of the history about one component.
struct Question<'a, C> {
    peer: &'a Peer,
    reader: &'a Reader<C>,
    c: usize,
    moment: Moment,
    /// Who acted.
    actor: PeerId,
    /// Sends before this one need not be looked at.
    from: Tick,
}

impl<C> Clone for Question<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Question<'_, C> {}

impl Peer {
    /// Host: what did `actor` see when it did what its input of this tick says? Ask in the step, and read the world at that moment
    /// with [`at_time`](Self::at_time) and its like. The guest says itself what it drew last before it ran the tick, so the answer
    /// is bounded: at most [`limits::LAG_COMPENSATION`] back, and no further than the history remembers (64 sends); never after the
    /// tick that is run. [`SeenAt::is_clamped`] tells.
    ///
    /// `None` at a guest, for who has no input in this tick (not even a repeated one), and for who has not drawn anything with
    /// [`present`](Self::present). The schema must have an input. The host's own moment is now.
    #[must_use]
    pub fn seen_by(&self, actor: PeerId) -> Option<SeenAt> {
        if !self.is_host() {
            return None;
        }
        let asked = self.time.step;
        if actor == self.local {
            return Some(SeenAt { actor, tick: asked, part: 0.0, clamped: false, asked });
        }
        let behind = u64::from(self.link_to(actor)?.inputs.as_ref()?.behind()?);
        let units = u64::from(UNITS);
        let bound = (limits::LAG_COMPENSATION.as_nanos() * u128::from(self.config.tick_rate) / 1_000_000_000) as u64;
        let remembered = self.captures.oldest().map_or(0, |oldest| asked.since(oldest));
        let most = bound.min(remembered) * units;
        let back = behind.min(most);
        let (tick, part) = (asked.minus(back.div_ceil(units)), (units - back % units) % units);
        Some(SeenAt { actor, tick, part: part as f32 / UNITS as f32, clamped: behind > most, asked })
    }

    /// Host: component `C` of every entity that had it at a moment, as the actor drew it then: between the same two samples, with the
    /// component's blend, and not over a teleport. Entities that were not there yet, or any more, are left out. Those that ended
    /// since are told by their name; the history remembers them for 64 sends, beyond which [`seen_by`](Self::seen_by) does not go.
    /// A component that is extrapolated is drawn at now, so it is told as of the tick that was run.
    ///
    /// It looks at everything that this peer publishes, whether the actor saw it or not. Where packets were lost or late, the actor
    /// has drawn a straight line past what did not come, or carried on for a moment; the host cannot know, and answers with what
    /// was. What an actor simulates itself it sees as it is in its own world.
    ///
    /// # Errors
    /// [`UsageError::NotInSchema`]; [`UsageError::NotAllowed`] on a guest.
    pub fn at_time<C: Component>(&self, seen: SeenAt) -> Result<impl Iterator<Item = Past<C>> + '_, UsageError> {
        let question = self.question::<C>(seen)?;
        Ok((0..self.publisher.block_count()).flat_map(move |block| {
            let moved = question.moved(block);
            (0..BLOCK).filter_map(move |i| question.past(block * BLOCK + i, moved))
        }))
    }

    /// The same for one entity. `None` if it did not have the component then.
    ///
    /// # Errors
    /// Those of [`at_time`](Self::at_time), and [`UsageError::NotNetworked`].
    pub fn at_time_of<C: Component>(&self, world: &World, entity: Entity, seen: SeenAt) -> Result<Option<C>, UsageError> {
        let question = self.question::<C>(seen)?;
        let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        Ok(self.is_published(slot).and_then(|row| question.past_of(row)))
    }

    /// The same for one name, which may be that of an entity that has ended since.
    ///
    /// # Errors
    /// Those of [`at_time`](Self::at_time).
    pub fn at_time_named<C: Component>(&self, net: NetId, seen: SeenAt) -> Result<Option<C>, UsageError> {
        let question = self.question::<C>(seen)?;
        let alive = self.entities.slot_of(net).and_then(|slot| self.is_published(slot));
        let is_its = |(row, _): &&(u32, Tick)| net_in(self.publisher.history.value(0, *row as usize)) == net;
        let row = alive.or_else(|| self.publisher.dying.iter().find(is_its).map(|(row, _)| *row as usize));
        Ok(row.and_then(|row| question.past_of(row)))
    }

    fn question<C: Component>(&self, seen: SeenAt) -> Result<Question<'_, C>, UsageError> {
        if !self.is_host() {
            return Err(UsageError::NotAllowed("look back: a guest has no history"));
        }
        let c = self.schema.component_of::<C>().ok_or(UsageError::NotInSchema(std::any::type_name::<C>()))?;
        let entry = self.schema.component(c);
        let reader = entry.column.reader().downcast_ref::<Reader<C>>();
        let reader = reader.ok_or(UsageError::NotInSchema(std::any::type_name::<C>()))?;
        let (tick, part) = if entry.reckoned { (seen.asked, 0.0) } else { (seen.tick, seen.part) };
        let moment = Moment { tick, part };
        let widest = self.links.iter().map(|l| l.incoming.interval()).max().unwrap_or(1);
        let from = self.captures.send_at(tick.minus(widest.max(self.config.send_every.into())));
        Ok(Question { peer: self, reader, c, moment, actor: seen.actor, from })
    }
}

impl<C> Question<'_, C> {
    /// The rows of a block whose presence, and whose component, has changed in the sends that matter.
    fn moved(&self, block: usize) -> [u64; 2] {
        let history = &self.peer.publisher.history;
        let changed = |c: usize| {
            let sends = (self.from.0..=history.now().0).map(Tick);
            sends.fold(0, |rows, t| rows | history.changed(c, t).get(block).copied().unwrap_or(0))
        };
        [changed(0), changed(self.c)]
    }

    fn past_of(&self, row: usize) -> Option<C> {
        self.past(row, self.moved(row / BLOCK)).map(|past| past.value)
    }

    /// What a row was like.
    fn past(&self, row: usize, moved: [u64; 2]) -> Option<Past<C>> {
        let (peer, history) = (self.peer, &self.peer.publisher.history);
        if peer.publisher.ever(row) >> self.c & 1 == 0 {
            return None;
        }
        let [reshaped, changed] = moved.map(|rows| rows >> (row % BLOCK) & 1 != 0);
        let presence =
            if reshaped { history.bracket_since(0, row, self.moment.tick, self.from).0?.words } else { history.value(0, row) };
        let presence = Presence::read(presence, peer.schema.components.len(), peer.schema.slots);
        if presence.life != Life::Alive || !presence.has(self.c) {
            return None;
        }
        let words = history.value(self.c, row);
        let value = if changed { self.between(row, reshaped)? } else { self.value(words)? };
        let record = peer.publisher.slot(row).and_then(|slot| peer.entities.get(slot));
        let entity = record.filter(|r| r.net == presence.net && !r.parked).map(|r| r.entity);
        Some(Past { net: presence.net, entity, value })
    }

    fn value(&self, words: &[u32]) -> Option<C> {
        let entities = |net| self.peer.entities.entity_of(net);
        (self.reader.restore)(&mut Restorer::new(words, &entities)).ok()
    }

    /// The blend of the samples before and after.
    fn between(&self, row: usize, reshaped: bool) -> Option<C> {
        let history = &self.peer.publisher.history;
        let moment = self.moment.earlier(self.lag(row));
        let (before, after) = history.bracket_since(self.c, row, moment.tick, self.from);
        let before = before?;
        let (Some(after), Some(blend)) = (after, &self.reader.blend) else { return self.value(before.words) };
        let end = after.tick?;
        let start = self.start(row, before, end);
        if moment.since(start) <= 0.0 || reshaped && self.peer.jumps(history, row, start, end) {
            return self.value(before.words);
        }
        let t = moment.since(start) / end.since(start).max(1) as f32;
        Some(blend(&self.value(before.words)?, &self.value(after.words)?, t.min(1.0)))
    }

    /// When the motion to the sample at `end` began: at the one before, or, after a rest, one send before it.
    fn start(&self, row: usize, before: Sample<'_>, end: Tick) -> Tick {
        let peer = self.peer;
        let remote = peer.publisher.sample(self.c, row).is_some();
        let owner = || peer.publisher.presence(row).owners[0].peer;
        let interval = match peer.link_to(owner()).filter(|_| remote) {
            Some(link) => link.incoming.interval(),
            None => peer.config.send_every.into(),
        };
        let rest = end.minus(interval);
        match before.tick {
            // captures that a stall kept apart are neighbours all the same
            Some(tick) if !remote && peer.captures.before(end).is_some_and(|capture| tick >= capture) => tick,
            Some(tick) => tick.max(rest),
            None => rest,
        }
    }

    /// By how many ticks more than usual the actor is behind with this row, because it is told of it less often.
    fn lag(&self, row: usize) -> u64 {
        let view = self.peer.link_to(self.actor).and_then(|link| link.subscriber.view());
        let period = view.and_then(|view| Some(view.ghost(view.ghost_of(row)?).sighting.period)).unwrap_or(1);
        u64::from(period - 1) * u64::from(self.peer.config.send_every)
    }
}

#[cfg(test)]
#[path = "lag_tests.rs"]
mod tests;
