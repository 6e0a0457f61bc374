//! Forks: what every peer computes by itself has come apart.
//!
//! A frame that asks for it begins a round of digests on each computed timeline: the entities of that timeline by name, a slice of at
//! most [`limits::DIGEST_ROWS`] per step, each of the state after that very step, until all have had their turn. On a timeline
//! that is taken back, only steps that are certain count. Since frames are the same everywhere, so are rounds and slices. A guest
//! tells the host each digest; the host compares, tells everybody who differs, and asks the guest the way down to a value.
//!
//! ```text
//! frame.digest ──► Round ──► State (a slice, as bytes) ──► digest ──► host: Case ──► News::Forked
//!                              kept for a while          questions ──► Descent ──► News::ForkLocated
//! ```

mod guest;
mod host;
mod locate;
mod state;

pub(crate) use host::LinkForks;

use crate::entities::Networked;
use crate::netid::NetId;
use crate::peer::Peer;
use crate::policy::Timeline;
use crate::rewind::saves::Save;
use crate::rewind::structure::{Row, Structure};
use crate::rewind::{names_by_id, resources_name};
use guest::GuestForks;
use hecs::{Entity, World};
use host::HostForks;
use state::{Found, State};
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;
use tidelock_netcore::control::Control;
use tidelock_netcore::error::PeerError;
use tidelock_netcore::forks::{Fork, StateDigest};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

#[cfg(test)]
mod tests;

/// Ticks of the session without a step of lockstep after which nobody waits for one.
const STILL: u64 = 60;

/// What a peer has of digests, as host or as guest.
pub(crate) struct Forks {
    lines: [Line; 2],
    /// Host: the tick whose frame asked last.
    asked: Tick,
    /// Host: the next step of lockstep, and since which tick of the session it has been that.
    moved: (Tick, Tick),
    entities: Vec<Entity>,
    rows: Vec<Row>,
    found: Vec<Found>,
    host: HostForks,
    guest: GuestForks,
}

/// The digests of one timeline.
#[derive(Default)]
struct Line {
    /// A round is on, and has come to this name.
    next: Option<NetId>,
    /// A guest's rollback: the ticks up to here were looked at.
    done: Tick,
    states: VecDeque<Arc<State>>,
    bytes: usize,
    /// Those that were let go: their memory is used again.
    spare: Vec<Arc<State>>,
    /// The rows of a structure, by name: it rarely changes.
    sorted: (Arc<Structure>, Vec<Row>),
}

impl Line {
    /// A state that nobody else holds, to be taken anew.
    fn room(&mut self) -> Arc<State> {
        self.spare.pop().unwrap_or_default()
    }

    fn keep(&mut self, state: Arc<State>) {
        self.bytes += state.cost();
        self.states.push_back(state);
        while self.states.len() > limits::DIGEST_STATES || self.bytes > limits::DIGEST_BYTES && self.states.len() > 1 {
            let Some(oldest) = self.states.pop_front() else { return };
            self.bytes -= oldest.cost();
            if Arc::strong_count(&oldest) == 1 {
                self.spare.push(oldest);
            }
        }
    }

    fn state(&self, tick: Tick) -> Option<&Arc<State>> {
        self.states.iter().rfind(|state| state.tick == tick)
    }
}

impl Forks {
    pub(crate) fn new(start: Tick) -> Self {
        Self {
            lines: Default::default(),
            asked: start,
            moved: (Tick::ZERO, start),
            entities: Vec::new(),
            rows: Vec::new(),
            found: Vec::new(),
            host: HostForks::default(),
            guest: GuestForks::default(),
        }
    }

    /// A guest's timeline goes on after `before`.
    pub(crate) fn begin(&mut self, line: Timeline, before: Tick) {
        let line = self.line_mut(line);
        (line.next, line.done) = (None, before);
    }

    /// A guest needs no frame up to here for digests.
    pub(crate) fn digested(&self) -> Tick {
        self.line(Timeline::Rollback).done
    }

    fn line(&self, line: Timeline) -> &Line {
        &self.lines[usize::from(line == Timeline::Lockstep)]
    }

    fn line_mut(&mut self, line: Timeline) -> &mut Line {
        &mut self.lines[usize::from(line == Timeline::Lockstep)]
    }
}

/// Which timeline a message is about.
fn line_of(number: u8) -> Result<Timeline, PeerError> {
    let line = [Timeline::Rollback, Timeline::Lockstep].into_iter().find(|line| *line as u8 == number);
    line.ok_or(PeerError::OutOfOrder("a digest of no timeline"))
}

impl Peer {
    /// Host, before a tick is sealed: the frame asks for digests if it is time, and the last round is over. A round is never cut short,
    /// but for one that waits for lockstep while that stands still.
    pub(crate) fn ask_digest(&mut self) {
        let every = self.config.digest_every;
        if !self.is_host() || every == 0 || !self.schema.has_computed() || self.links.iter().all(|link| link.feed.is_none()) {
            return;
        }
        let (step, next) = (self.time.step, self.next_of(Timeline::Lockstep));
        if self.forks.moved.0 != next {
            self.forks.moved = (next, step);
        }
        let stands = step.since(self.forks.moved.1) > STILL;
        let is_on = |line: Timeline| self.forks.line(line).next.is_some();
        let lockstep = is_on(Timeline::Lockstep) || self.is_digest_open();
        let busy = is_on(Timeline::Rollback) || lockstep && !stands;
        if step.since(self.forks.asked) < every || busy || !self.is_computed_done() {
            return;
        }
        if let Some(sealer) = self.frames.as_mut().and_then(|frames| frames.sealer()) {
            sealer.ask_digest();
            self.forks.asked = step;
        }
    }

    /// A step has been run: its digest, if it has one and is certain.
    pub(crate) fn digest_step(&mut self, world: &mut World) {
        let (line, tick) = (self.time.line, self.time.ran);
        let begins = match line {
            Timeline::Session => return,
            Timeline::Lockstep => self.is_digest_asked(),
            Timeline::Rollback if self.is_host() => self.frame_of_step().is_some_and(|frame| frame.digest),
            Timeline::Rollback => return,
        };
        if begins {
            self.forks.line_mut(line).next = Some(NetId(0));
        }
        if self.forks.line(line).next.is_some() {
            self.digest_live(world, line, tick);
        }
    }

    /// The digest of a slice of the world as it is.
    fn digest_live(&mut self, world: &mut World, line: Timeline, tick: Tick) {
        self.ensure_resources(world, line);
        let Some(from) = self.forks.line(line).next else { return };
        let mut state = self.forks.line_mut(line).room();
        let (mut found, mut entities) = (std::mem::take(&mut self.forks.found), std::mem::take(&mut self.forks.entities));
        let mut order = std::mem::take(&mut self.entities.order);
        order.begin_step(self.entities.iter().filter(|(_, r)| !r.parked).map(|(_, r)| (r.net, r.entity)));
        let list = order.get(self.entities.iter().filter(|(_, r)| !r.parked).map(|(_, r)| (r.net, r.entity, false)));
        let next = self.find_live(world, line, list, from, &mut found, &mut entities);
        self.entities.order = order;
        let kinds = self.schema.kinds_of(line);
        // whoever lives by another timeline may be gone here and not there: in a digest it has no name
        let names = |entity: Entity| {
            let slot = self.entities.slot_at(world, entity)?;
            self.entities.get(slot).filter(|r| kinds >> r.kind & 1 != 0 && !r.parked).map(|r| r.net)
        };
        if let Some(state) = Arc::get_mut(&mut state) {
            state.take_live(&self.schema, line, world, &found, &entities, &names);
        }
        (self.forks.found, self.forks.entities) = (found, entities);
        self.digest_taken(line, tick, from, next, state);
    }

    /// The entities of a timeline from a name on, at most as many as a slice has, and the resources if all have had their turn. Gives
    /// the name that the next slice begins with.
    fn find_live(
        &self,
        world: &World,
        line: Timeline,
        list: &[(NetId, Entity)],
        from: NetId,
        found: &mut Vec<Found>,
        entities: &mut Vec<Entity>,
    ) -> Option<NetId> {
        let kinds = self.schema.kinds_of(line);
        found.clear();
        entities.clear();
        for &(net, entity) in &list[list.partition_point(|x| x.0 < from)..] {
            let Ok(networked) = world.get::<&Networked>(entity) else { continue };
            let Some(record) = self.entities.get(networked.slot()).filter(|r| r.net == net) else { continue };
            if kinds >> record.kind & 1 == 0 {
                continue;
            }
            if found.len() == limits::DIGEST_ROWS {
                return Some(net);
            }
            found.push(Found::entity(net, record.kind));
            entities.push(entity);
        }
        if let Some(entity) = self.entities.resources[line as usize] {
            found.push(Found::resources(resources_name(line)));
            entities.push(entity);
        }
        None
    }

    /// Guest: the digests of rollback, of steps that are certain by now.
    pub(crate) fn digest_confirmed(&mut self) {
        let line = Timeline::Rollback;
        if self.is_host() || self.schema.kinds_of(line) == 0 {
            return;
        }
        let Some(confirmed) = self.confirmed(line) else { return };
        loop {
            let tick = self.forks.digested().plus(1);
            if tick > confirmed {
                return;
            }
            let Some(frame) = self.frames.as_ref().and_then(|frames| frames.sealed(tick)) else {
                return self.forks.begin(line, confirmed);
            };
            let (is_run, begins) = (frame.run.is_some(), frame.digest);
            let goes_on = self.forks.line(line).next.is_some();
            if is_run && (begins || goes_on) {
                match self.save_after(tick) {
                    After::Waits => return,
                    After::Gone => self.forks.line_mut(line).next = None,
                    After::Save(at) => {
                        let start = if begins { Some(NetId(0)) } else { self.forks.line(line).next };
                        self.digest_saved(tick, at, start.unwrap_or_default());
                    }
                }
            }
            self.forks.line_mut(line).done = tick;
        }
    }

    /// Where the state after a tick of rollback is kept: as the next tick that is run begins.
    fn save_after(&self, tick: Tick) -> After {
        let Some(saves) = &self.saves[Timeline::Rollback] else { return After::Gone };
        let Some(next) = saves.next_after(tick) else { return After::Waits };
        let is_run = |t: u64| self.frames.as_ref().and_then(|f| f.sealed(Tick(t))).is_none_or(|frame| frame.run.is_some());
        if (tick.0 + 1..next.0).any(is_run) { After::Gone } else { After::Save(next) }
    }

    /// The digest of a slice of a save.
    fn digest_saved(&mut self, tick: Tick, at: Tick, from: NetId) {
        let line = Timeline::Rollback;
        let mut state = self.forks.line_mut(line).room();
        let (mut rows, mut sorted) =
            (std::mem::take(&mut self.forks.rows), std::mem::take(&mut self.forks.line_mut(line).sorted));
        let next = self.saves[line].as_ref().and_then(|saves| {
            let save = saves.get(at)?;
            let kinds = self.schema.kinds_of(line);
            if !Arc::ptr_eq(&sorted.0, &save.structure) {
                sorted.0 = save.structure.clone();
                sorted.1.clear();
                for (index, watched) in saves.watched().iter().enumerate() {
                    if watched.kind.is_some_and(|kind| kinds >> kind & 1 == 0) {
                        continue;
                    }
                    let marks = save.structure.table(index).marks.iter().enumerate();
                    sorted.1.extend(marks.map(|(row, mark)| Row::new(*mark, index, row)));
                }
                sorted.1.sort_unstable();
            }
            let all = &sorted.1[sorted.1.partition_point(|row| row.net < from)..];
            let resources = resources_name(line);
            let cut = all.iter().position(|row| row.net >= resources).unwrap_or(all.len()).min(limits::DIGEST_ROWS);
            let next = all.get(cut).filter(|row| row.net < resources).map(|row| row.net);
            rows.clear();
            rows.extend_from_slice(if next.is_some() { &all[..cut] } else { all });
            Arc::get_mut(&mut state)?.take_saved(&self.schema, saves.watched(), save, &rows, &self.names_in(save));
            Some(next)
        });
        self.forks.rows = rows;
        self.forks.line_mut(line).sorted = sorted;
        match next {
            Some(next) => self.digest_taken(line, tick, from, next, state),
            None => self.forks.line_mut(line).next = None,
        }
    }

    /// The names of a save's entities by the handles that they had.
    fn names_in<'a>(&'a self, save: &'a Save) -> impl Fn(Entity) -> Option<NetId> + 'a {
        let by_id = OnceCell::new();
        let graves = self.saves[Timeline::Rollback].as_ref().map(|saves| &saves.graves[..]).unwrap_or_default();
        move |entity| {
            let by_id: &Vec<(u32, NetId)> = by_id.get_or_init(|| names_by_id(save));
            let net = by_id.binary_search_by_key(&entity.id(), |x| x.0).ok().map(|i| by_id[i].1)?;
            let is_it = self.entities.handle(net) == Some(entity) || graves.iter().any(|g| g.net == net && g.entity == entity);
            is_it.then_some(net)
        }
    }

    fn digest_taken(&mut self, line: Timeline, tick: Tick, from: NetId, next: Option<NetId>, mut state: Arc<State>) {
        if let Some(state) = Arc::get_mut(&mut state) {
            state.tick = tick;
            state.seal(self.session());
        }
        let digest = state.digest;
        let of = self.forks.line_mut(line);
        of.next = next;
        of.keep(state);
        if self.is_host() {
            self.forks.host.note(line, tick, digest, from == NetId(0), next.is_none());
        } else if let Some(link) = self.links.first_mut() {
            #[cfg(test)]
            let digest = digest ^ u64::from(self.forks.guest.lies.forges && (tick.0 / 3).is_multiple_of(2));
            let word = StateDigest { line: line as u8, tick: tick.0, digest };
            // a host that cannot take it is found out at the next send
            let _ = link.post_control(&Control::Fork(Fork::Digest(word)));
        }
    }
}

enum After {
    /// The next tick has not begun.
    Waits,
    /// It is not kept any more.
    Gone,
    /// The save of this tick.
    Save(Tick),
}
