//! Ahead of lockstep, for drawing only: what a peer steers in a lockstep world answers at once, though the step that takes its input
//! is only run when its frame is sealed and has come.
//!
//! When all steps that are due have been run, [`next_step`](Peer::next_step) gives steps that are *previews* ([`Step::preview`]): of
//! the frames that are not run yet, with this peer's own input and its pending orders in them, up to the tick that it gives
//! inputs for. They visit nothing but what is steered, in the world as it is. After the last one the steered entities, and the
//! timeline's resources, are what they were before, and what they had come to is drawn. So the lockstep world never learns of it.

use crate::checkpoint::{CheckpointReader, CheckpointWriter};
use crate::computed::Guesses;
use crate::entities::Steered;
use crate::error::UsageError;
use crate::frames::Frame;
use crate::netid::NetId;
use crate::peer::Peer;
use crate::policy::Timeline;
use crate::predict::{Snap, snaps};
use crate::step::Step;
use hecs::{Component, DynamicBundle, Entity, World};
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// What this peer steers, and how far ahead it has looked.
#[derive(Default)]
pub(crate) struct Preview {
    steered: Vec<NetId>,
    /// There were no previews since the last call of `receive`.
    due: bool,
    run: Option<Run>,
    guesses: Guesses,
    /// What is drawn, and the step that it is of.
    drawn: Vec<Drawn>,
    tick: Tick,
}

struct Drawn {
    net: NetId,
    c: usize,
    snap: Snap,
}

/// Previews that are being run.
struct Run {
    /// The step, and the frame that it is run with.
    tick: Tick,
    frame: Frame,
    left: u8,
    first: bool,
    fresh: bool,
    steps: usize,
    /// By name.
    list: Vec<(NetId, Entity)>,
    /// Kept values as they were: entity, which of them it had, and their bytes.
    saved: Vec<(Entity, u64, Vec<u8>)>,
    /// What previews have spawned.
    scratch: Vec<Entity>,
    /// What is drawn now, in the step that was drawn last.
    again: Vec<Drawn>,
    before: (Timeline, Tick, bool),
}

impl Preview {
    /// A new frame of the program.
    pub(crate) fn renew(&mut self) {
        self.due = true;
    }

    pub(crate) fn is_on(&self) -> bool {
        self.run.is_some()
    }

    /// The frame of the preview that is run, and whether its orders take effect in it.
    pub(crate) fn frame(&self) -> Option<(&Frame, bool)> {
        self.run.as_ref().map(|run| (&run.frame, run.fresh))
    }

    pub(crate) fn list(&self) -> &[(NetId, Entity)] {
        self.run.as_ref().map_or(&[], |run| &run.list)
    }

    /// What is drawn of a steered entity.
    pub(crate) fn value<C: 'static>(&self, net: NetId, c: usize) -> Option<&C> {
        self.drawn.iter().find(|d| d.net == net && d.c == c)?.snap.downcast_ref()
    }
}

/// A writer's names, and a reader's: handles as they are, for bytes that stay here.
fn handle_name(entity: Entity) -> Option<NetId> {
    Some(NetId(entity.to_bits().get()))
}

fn named_handle(net: NetId) -> Option<Entity> {
    Entity::from_bits(net.0)
}

impl Peer {
    /// Draws an entity of the lockstep timeline ahead of it, as far as this peer has given inputs and orders, or does so no more: for
    /// the few that its player steers, at most [`limits::STEERED`](crate::netcore::limits::STEERED). After the steps of a frame,
    /// [`next_step`](Self::next_step) then gives the same steps for them alone, with [`Step::preview`]; what comes out is what
    /// [`present`](Self::present) yields, for components that are interpolated. The lockstep world is as it would be without. What
    /// comes out otherwise when the frames are there is drawn as a slide. At a host nothing is ahead.
    ///
    /// # Errors
    /// [`UsageError::NotNetworked`], [`UsageError::NotAllowed`] for an entity of another timeline, [`UsageError::Config`] for too many.
    pub fn steer(&mut self, world: &mut World, entity: Entity, on: bool) -> Result<(), UsageError> {
        self.end_preview(world);
        let slot = self.entities.slot_at(world, entity).ok_or(UsageError::NotNetworked)?;
        let record = self.entities.get(slot).ok_or(UsageError::NotNetworked)?;
        if self.schema.kinds[record.kind].policy.timeline() != Timeline::Lockstep {
            return Err(UsageError::NotAllowed("steer it ahead: it is not of the lockstep timeline"));
        }
        let net = record.net;
        let known = self.preview.steered.iter().position(|known| *known == net);
        match (known, on) {
            (None, true) if self.preview.steered.len() >= limits::STEERED => {
                return Err(UsageError::Config("more entities are steered ahead than limits::STEERED"));
            }
            (None, true) => self.preview.steered.push(net),
            (Some(at), false) => {
                self.preview.steered.swap_remove(at);
                let _ = world.remove_one::<Steered>(entity); // it has it unless it was loaded anew
                let (out, kept) = std::mem::take(&mut self.preview.drawn).into_iter().partition(|d| d.net == net);
                self.preview.drawn = kept;
                self.slide_back(world, out);
            }
            _ => {}
        }
        Ok(())
    }

    /// What is not steered any more goes to where it is.
    fn slide_back(&mut self, world: &World, drawn: Vec<Drawn>) {
        for Drawn { net, c, snap } in drawn {
            let now = self.entities.entity_of(net).and_then(|entity| self.schema.component(c).column.snap(world, entity));
            if now.is_some() {
                self.slides.add(net, c, snap, now, self.time.now);
            }
        }
    }

    /// The next preview, if one is to be run.
    pub(crate) fn next_preview(&mut self, world: &mut World) -> Option<Tick> {
        if self.preview.run.is_none() && !self.begin_preview(world) {
            return None;
        }
        let (end, local) = (self.time.step, self.local);
        let (Some(run), Some(frames)) = (&mut self.preview.run, &self.frames) else { return None };
        while run.left == 0 && run.frame.tick < end && run.steps < limits::SAVES {
            let tick = run.frame.tick.plus(1);
            if let Some(sealed) = frames.sealed(tick) {
                run.frame.clone_from(sealed);
            } else {
                let own = self.inputs.as_ref().map(|inputs| inputs.words_at(tick));
                let guesses = &mut self.preview.guesses;
                guesses.guess(&run.frame, local, own, self.schema.input.as_ref());
                let Some(guess) = guesses.get(tick) else { break };
                run.frame.clone_from(guess);
                frames.add_pending(local, &mut run.frame);
            }
            (run.left, run.first) = (run.frame.steps(), true);
        }
        if run.left == 0 || run.steps >= limits::SAVES {
            self.end_preview(world);
            return None;
        }
        run.left -= 1;
        run.steps += 1;
        run.fresh = std::mem::take(&mut run.first);
        run.tick = run.tick.plus(1);
        (self.time.line, self.time.ran, self.rerunning) = (Timeline::Lockstep, run.tick, false);
        self.time.open = true;
        Some(run.tick)
    }

    fn begin_preview(&mut self, world: &mut World) -> bool {
        let due = std::mem::take(&mut self.preview.due) && !self.is_host();
        let Some((next, frame)) = self.lockstep_next().filter(|_| due && !self.preview.steered.is_empty()) else { return false };
        let Some(before) = self.frames.as_ref().and_then(|frames| frames.sealed(frame.minus(1))).cloned() else { return false };
        let entities = &self.entities;
        self.preview.steered.retain(|net| entities.slot_of(*net).is_some());
        let mut list: Vec<_> = self.preview.steered.iter().filter_map(|net| Some((*net, entities.entity_of(*net)?))).collect();
        list.retain(|(_, entity)| world.satisfies::<&Steered>(*entity) || world.insert_one(*entity, Steered).is_ok());
        list.sort_unstable();
        let resources = entities.resources[Timeline::Lockstep as usize];
        let saved = list.iter().map(|(_, entity)| *entity).chain(resources).map(|entity| self.save_one(world, entity)).collect();
        let before_step = (self.time.line, self.time.ran, self.rerunning);
        self.preview.run = Some(Run {
            tick: next.minus(1),
            frame: before,
            left: 0,
            first: false,
            fresh: false,
            steps: 0,
            list,
            saved,
            scratch: Vec::new(),
            again: Vec::new(),
            before: before_step,
        });
        self.preview.guesses = Guesses::default();
        self.note_again(world);
        true
    }

    fn save_one(&self, world: &World, entity: Entity) -> (Entity, u64, Vec<u8>) {
        let mut writer = CheckpointWriter::new(&handle_name);
        let mut had = 0;
        for (i, entry) in self.schema.kept.iter().enumerate() {
            entry.kept.write_live(world, &[entity], &mut writer, &mut |_, has, _| had |= u64::from(has) << i);
        }
        (entity, had, writer.into_bytes())
    }

    fn restore_one(&self, world: &mut World, entity: Entity, had: u64, bytes: &[u8]) {
        let mut reader = CheckpointReader::new(bytes, &named_handle);
        for (i, entry) in self.schema.kept.iter().enumerate() {
            let has = world.entity(entity).is_ok_and(|e| entry.kept.is_on(&e));
            if had >> i & 1 == 0 {
                if has {
                    entry.kept.remove(world, entity);
                }
                continue;
            }
            let mut column = entry.kept.column();
            let read = column.read(1, &mut reader);
            debug_assert!(read.is_ok(), "{} does not read what it writes: {read:?}", entry.name);
            match (read.is_ok(), has) {
                (true, true) => entry.kept.scatter(world, &*column, &[(entity, 0)]),
                (true, false) => entry.kept.insert(world, entity, &*column, 0),
                (false, _) => return,
            }
        }
    }

    /// A preview is over.
    pub(crate) fn preview_step_over(&mut self, world: &World) {
        self.note_again(world);
    }

    /// The step that was drawn last comes out again: to be compared with what was drawn of it.
    fn note_again(&mut self, world: &World) {
        let Some(run) = &mut self.preview.run else { return };
        if run.tick == self.preview.tick {
            run.again = drawn(&self.schema, world, &run.list);
        }
    }

    /// All previews are over, or the game runs no more of them: the world is as it was before.
    pub(crate) fn end_preview(&mut self, world: &mut World) {
        let Some(run) = self.preview.run.take() else { return };
        self.time.open = false;
        let new = drawn(&self.schema, world, &run.list);
        for entity in run.scratch {
            let _ = world.despawn(entity); // a later preview may have taken it away
        }
        for (entity, had, bytes) in &run.saved {
            self.restore_one(world, *entity, *had, bytes);
        }
        (self.time.line, self.time.ran, self.rerunning) = run.before;
        let old = std::mem::replace(&mut self.preview.drawn, new);
        self.preview.tick = run.tick;
        for Drawn { net, c, snap } in old {
            let after = run.again.iter().position(|d| d.net == net && d.c == c);
            let column = &self.schema.component(c).column;
            if let Some(Drawn { snap: after, .. }) = after.map(|at| &run.again[at])
                && !column.is_same(&**after, &*snap)
                && let Some(after) = column.copy(&**after)
            {
                self.slides.add(net, c, snap, Some(after), self.time.now);
            }
        }
    }

    /// What a preview spawns is there until the previews are over, and known to nobody.
    pub(crate) fn spawn_in_preview<K: Component>(
        &mut self,
        world: &mut World,
        kind: K,
        components: impl DynamicBundle,
    ) -> Entity {
        let entity = world.spawn(components);
        let _ = world.insert_one(entity, kind); // it was spawned on the line above
        if let Some(run) = &mut self.preview.run {
            run.scratch.push(entity);
        }
        entity
    }
}

fn drawn(schema: &crate::schema::Inner, world: &World, list: &[(NetId, Entity)]) -> Vec<Drawn> {
    let of = |(net, entity): &(NetId, Entity)| {
        let net = *net;
        snaps(schema, world, *entity).map(move |(c, snap)| Drawn { net, c, snap }).collect::<Vec<_>>()
    };
    list.iter().flat_map(of).collect()
}

impl Step<'_> {
    /// Is the step run ahead, for what this peer [steers](Peer::steer), and only to be drawn? It comes again when its frame is there. What
    /// it spawns is gone after the last of them, what it despawns is still there, and no effect of it [happens](Self::once).
    #[must_use]
    pub fn preview(&self) -> bool {
        self.at_peer().preview.is_on()
    }
}
