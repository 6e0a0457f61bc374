//! Prediction: a guest runs the steps of what it owns of a [predicted](crate::policy::Host::predicted) kind ahead of the host, and
//! takes the host's word for what came of each tick.
//!
//! Host and owner round such an entity to the simulation grid at the end of each step, and the owner is sent that grid, so that
//! equal steps give equal words on both sides: [`Peer::end_step`]. What the owner came to is remembered tick by tick
//! ([`Track`]). Each value that arrives is of a tick; it is compared with what was predicted for that tick, once
//! ([`Peer::reconcile`]). If they differ, the world goes back to the end of that tick, the host's value is written into it, and
//! the ticks since are asked for again by [`Peer::next_step`]. What is drawn slides from what was drawn before to the corrected
//! world; the simulation itself is right at once.

mod corrections;
mod effects;
mod fade;
mod slides;
mod track;
mod trial;

pub use corrections::{Cause, Correction, CorrectionCounts};
pub(crate) use effects::Effects;
pub(crate) use fade::shift;
pub(crate) use slides::{Slides, Snap, snaps};
pub(crate) use track::{Fade, Track};

use crate::block::bits;
use crate::column::Rounded;
use crate::entities::Record;
use crate::incoming::Incoming;
use crate::netid::NetId;
use crate::news::News;
use crate::peer::Peer;
use crate::peer_id::PeerId;
use crate::policy::Timeline;
use corrections::Corrections;
use hecs::World;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;
use tracing::Span;
use track::agree;
use trial::Trial;

/// What a guest keeps of its predictions.
#[derive(Default)]
pub(crate) struct Predictions {
    tracks: FxHashMap<NetId, Track>,
    corrections: Corrections,
    /// By timeline.
    pub(crate) effects: [Effects; 3],
    /// Names in order, while they are gone through.
    names: Vec<NetId>,
    words: Vec<u32>,
    /// A tick that is run again before it is corrected.
    trial: Option<Trial>,
    /// Values that came before this peer had run their tick, and are to be compared when it has.
    early: bool,
}

impl Predictions {
    /// An entity is gone, or is not predicted any more.
    pub(crate) fn forget(&mut self, net: NetId) {
        self.tracks.remove(&net);
    }

    pub(crate) fn track(&self, net: NetId) -> Option<&Track> {
        self.tracks.get(&net)
    }
}

/// What the host has of a component in a form, and the tick that is known for: the newest value is that of its own tick, and of all
/// since up to which everything has come. `None` for the value: it does not have the component then. `None`: it is not known.
fn host_value(incoming: &Incoming, row: usize, c: usize, form: usize) -> Option<(Tick, Option<&[u32]>)> {
    let complete = incoming.complete();
    if incoming.components(row) << 1 >> c & 1 == 0 {
        return Some((incoming.sample(0, row).max(complete), None));
    }
    let has = incoming.have(row) >> form & 1 != 0;
    has.then(|| (incoming.sample(form, row).max(complete), Some(incoming.mirror.value(form, row))))
}

/// A prediction that did not come true.
struct Wrong {
    net: NetId,
    tick: Tick,
    cause: Cause,
    /// The component, and the host's words, if it has it there; none: that the entity is alive.
    value: Option<(usize, Option<SmallVec<[u32; 8]>>)>,
    predicted: Option<SmallVec<[u32; 8]>>,
}

impl Peer {
    /// The last 128 corrections of what this peer predicted, the oldest first: why each was needed, and what it cost. Guesses of
    /// the rollback timeline that were wrong are among them, as [`Cause::Input`], and are the most where sticks move all the time.
    pub fn corrections(&self) -> impl Iterator<Item = &Correction> {
        self.predictions.corrections.iter()
    }

    /// How many corrections there were, those of guesses included.
    #[must_use]
    pub fn correction_count(&self) -> u64 {
        self.correction_counts().total()
    }

    /// The same by cause.
    #[must_use]
    pub fn correction_counts(&self) -> CorrectionCounts {
        self.predictions.corrections.counts()
    }

    /// One more for [`corrections`](Self::corrections).
    pub(crate) fn note_correction(&mut self, correction: Correction) {
        self.predictions.corrections.push(correction);
    }

    /// A guest whose schema has something to predict keeps saves of it.
    pub(crate) fn keep_predictions(&mut self, world: &mut World) {
        if self.is_host() || self.saves[Timeline::Session].is_some() || !self.schema.predicts_some() {
            return;
        }
        let kinds = self.schema.predicted.iter().enumerate();
        let kinds = kinds.fold(0, |mask, (i, p)| mask | u64::from(*p != 0) << i);
        self.start_saves(world, Timeline::Session, self.config.rewind as usize, kinds);
    }

    /// Does this peer predict the entity's components that are predicted at all?
    pub(crate) fn predicts(&self, record: &Record) -> bool {
        self.schema.predicts(self.local, record.kind, record.owners[0].peer)
    }

    /// Predictions that are kept of entities that are gone, or are not predicted here.
    pub(crate) fn stray_tracks(&self) -> usize {
        let is_kept =
            |net: &&NetId| self.entities.slot_of(**net).and_then(|s| self.entities.get(s)).is_some_and(|r| self.predicts(r));
        self.predictions.tracks.keys().filter(|net| !is_kept(net)).count()
    }

    /// The forms in which components of an entity come to this peer: on the simulation grid, if it predicts them.
    pub(crate) fn forms(&self, components: u64, kind: usize, owner: PeerId) -> u64 {
        if self.schema.fine == 0 || !self.schema.predicts(self.local, kind, owner) {
            return components;
        }
        bits(components).fold(0, |mask, c| mask | 1 << self.form(c as usize, kind))
    }

    /// The form of one component of a predicted kind.
    fn form(&self, c: usize, kind: usize) -> usize {
        if self.schema.predicted[kind] >> c & 1 != 0 { self.schema.on_grid(c) } else { c }
    }

    /// A step has ended: what it predicted, or what others predict of it, is put on the simulation grid, and a guest takes note.
    pub(crate) fn end_step(&mut self, world: &mut World) {
        if !std::mem::take(&mut self.time.open) {
            return;
        }
        let _step = std::mem::replace(&mut self.span, Span::none()).entered();
        if self.preview.is_on() {
            return self.preview_step_over(world);
        }
        self.digest_step(world);
        self.note_step_over(self.time.line, self.time.ran);
        self.predictions.effects[self.time.line as usize].end_step(self.time.ran);
        self.tell_undone(self.time.line);
        if self.time.line == Timeline::Rollback {
            self.settle_rollback_slides(world);
        }
        if self.time.line != Timeline::Session || !self.schema.predicts_some() {
            return;
        }
        let (tick, depth, host) = (self.time.ran, limits::SAVES, self.is_host());
        let mut predictions = std::mem::take(&mut self.predictions);
        for (_, record) in self.entities.iter() {
            let mask = self.schema.predicted[record.kind];
            if mask == 0 || !record.simulated || record.parked || !(host || self.predicts(record)) {
                continue;
            }
            let words = &mut predictions.words;
            let mut moment = (!host).then(|| predictions.tracks.entry(record.net).or_default().begin(tick, depth));
            for c in bits(mask) {
                let c = c as usize;
                let column = &self.schema.component(self.schema.on_grid(c)).column;
                words.clear();
                words.resize(column.layout().words(), 0);
                if column.round(world, record.entity, words, &|n| self.entities.entity_of(n)) == Rounded::Yes
                    && let Some(moment) = &mut moment
                {
                    moment.push(c, words);
                }
            }
        }
        self.predictions = predictions;
        self.end_trial(world);
        self.end_rerun();
        if self.predictions.early && !self.rerunning {
            self.reconcile(world);
        }
    }

    /// Effects are told that did not happen again, if every step has been that was to be run again.
    fn tell_undone(&mut self, line: Timeline) {
        if self.saves[line].as_ref().is_some_and(|s| !s.replay.is_empty()) {
            return;
        }
        for key in self.predictions.effects[line as usize].undone() {
            self.news.push(News::EffectUndone { key });
        }
    }

    /// The last step that was to be run again has been: what was drawn fades from there.
    fn end_rerun(&mut self) {
        let replays = self.saves[Timeline::Session].as_ref().is_some_and(|s| !s.replay.is_empty());
        if replays || self.is_host() {
            return;
        }
        for track in self.predictions.tracks.values_mut().filter(|t| !t.fades.is_empty()) {
            track.settle_fades(&self.schema, self.time.now);
        }
    }

    /// Guest: compares what the host says with what was predicted, and goes back if they differ.
    pub(crate) fn reconcile(&mut self, world: &mut World) {
        if self.is_host() || !self.schema.predicts_some() || self.links.is_empty() || self.is_trial_on() {
            return;
        }
        let missed = self.missed_inputs();
        let mut predictions = std::mem::take(&mut self.predictions);
        predictions.corrections.note_missed(missed, self.time.now);
        predictions.early = false;
        let mut names = std::mem::take(&mut predictions.names);
        names.clear();
        names.extend(predictions.tracks.keys());
        names.sort_unstable();
        // the oldest first; of one tick, by name
        let mut first: Vec<Wrong> = Vec::new();
        let mut refused = Vec::new();
        for net in &names {
            let Some(record) = self.entities.slot_of(*net).and_then(|slot| self.entities.get(slot)) else {
                predictions.tracks.remove(net);
                continue;
            };
            if !self.predicts(record) {
                predictions.tracks.remove(net);
                continue;
            }
            if record.in_row(PeerId::HOST).is_none() {
                let complete = self.links[0].incoming.complete();
                if complete >= record.born && record.born > Tick::ZERO {
                    refused.push(*net);
                }
                continue;
            }
            let Some(wrong) = self.find_wrong(*net, &mut predictions) else { continue };
            let oldest = first.first().map_or(wrong.tick, |f| f.tick);
            if wrong.tick < oldest {
                first.clear();
            }
            if wrong.tick <= oldest {
                first.push(wrong);
            }
        }
        predictions.names = names;
        self.predictions = predictions;
        for net in refused {
            self.take_spawn_back(world, net);
        }
        if !first.is_empty() {
            self.correct(world, first);
        }
    }

    /// The oldest value of an entity that was predicted wrongly, of those that were not compared yet.
    fn find_wrong(&self, net: NetId, predictions: &mut Predictions) -> Option<Wrong> {
        let record = self.entities.get(self.entities.slot_of(net)?)?;
        let row = record.in_row(PeerId::HOST)?;
        let incoming = &self.links[0].incoming;
        let complete = incoming.complete();
        let track = predictions.tracks.get_mut(&net)?;
        if record.parked {
            // dead here, and alive there, when all is known of the tick of its death
            let died = self.saves[Timeline::Session].as_ref()?.limbo.until(net)?;
            let wrong = complete >= died && !self.is_ending(row);
            return wrong.then_some(Wrong { net, tick: complete, cause: Cause::Revived, value: None, predicted: None });
        }
        let mut first: Option<Wrong> = None;
        for c in bits(self.schema.predicted[record.kind]) {
            let c = c as usize;
            let form = self.schema.on_grid(c);
            let Some((at, words)) = host_value(incoming, row, c, form) else { continue };
            if track.compared(c).is_some_and(|last| at <= last) || first.as_ref().is_some_and(|f| f.tick < at) {
                continue;
            }
            let Some(moment) = track.at(at) else {
                predictions.early |= track.newest().is_some_and(|m| m.tick < at);
                if track.has_let_go(at) {
                    // nobody knows any more whether it was right, and nothing could be run again from there
                    let value = Some((c, words.map(SmallVec::from_slice)));
                    first = Some(Wrong { net, tick: at, cause: Cause::Other, value, predicted: None });
                }
                continue;
            };
            let predicted = moment.words_of(&self.schema, c);
            let entry = self.schema.component(form);
            let agrees = match (predicted, words) {
                (Some(predicted), Some(words)) => agree(&entry.column.layout().codes, predicted, words, entry.tolerance),
                (predicted, words) => predicted.is_none() && words.is_none(),
            };
            if agrees {
                track.note_compared(c, at);
                continue;
            }
            let predicted = predicted.map(SmallVec::from_slice);
            let value = Some((c, words.map(SmallVec::from_slice)));
            first = Some(Wrong { net, tick: at, cause: Cause::Other, value, predicted });
        }
        first
    }

    /// Has the row's entity ended, or is about to?
    fn is_ending(&self, row: usize) -> bool {
        self.links[0].incoming.presence(row).life != crate::presence::Life::Alive
    }

    /// Goes back to the end of a tick in which entities were predicted wrongly, with the host's values of it.
    fn correct(&mut self, world: &mut World, all: Vec<Wrong>) {
        let Some(wrong) = all.first() else { return };
        let (tick, depth) = (wrong.tick, self.time.step.since(wrong.tick));
        self.note_drawn();
        let in_reach = depth <= self.config.rewind.min(limits::SAVES as u64);
        let Some(all) = (if in_reach { self.try_again(world, all, depth) } else { Some(all) }) else { return };
        let back = in_reach && (depth == 0 || self.rewind_line(world, Timeline::Session, tick.plus(1)).is_ok());
        self.predictions.effects[Timeline::Session as usize].rewound(tick.plus(1));
        self.take_hosts(world, &all, back.then_some(depth), None);
    }

    /// The world is as it was after the tick, if it went back; it takes the host's values.
    fn take_hosts(&mut self, world: &mut World, all: &[Wrong], back: Option<u64>, unsaved: Option<Correction>) {
        let Some(wrong) = all.first() else { return };
        for wrong in all {
            self.write_host_values(world, wrong, back.is_some());
        }
        let (component, field) = self.place_of(wrong);
        let words = |w: &SmallVec<[u32; 8]>| w.to_vec();
        let correction = unsaved.unwrap_or_else(|| Correction {
            cause: wrong.cause,
            tick: wrong.tick,
            depth: back.unwrap_or(0),
            snapped: back.is_none(),
            net: wrong.net,
            component,
            field,
            predicted: wrong.predicted.as_ref().map(words).unwrap_or_default(),
            authoritative: wrong.value.as_ref().and_then(|v| v.1.as_ref()).map(words).unwrap_or_default(),
            values: Default::default(),
            at: self.time.now,
        });
        self.predictions.corrections.push(correction);
        self.end_rerun();
        self.tell_undone(Timeline::Session);
    }

    /// Writes what the host has of an entity over what the world has, as of the tick of `wrong`.
    fn write_host_values(&mut self, world: &mut World, wrong: &Wrong, back: bool) {
        let net = wrong.net;
        self.revive(world, net);
        let Some(slot) = self.entities.slot_of(net) else { return };
        let Some(record) = self.entities.get(slot) else { return };
        let Some(row) = record.in_row(PeerId::HOST) else { return };
        let (entity, mask, kind) = (record.entity, self.schema.predicted[record.kind], record.kind);
        let mut predictions = std::mem::take(&mut self.predictions);
        let track = predictions.tracks.entry(net).or_default();
        // the ticks since are run again, or are lost with what is too old to be run again
        track.cut_from(if back { wrong.tick } else { Tick::ZERO });
        for c in bits(mask) {
            let c = c as usize;
            let form = self.form(c, kind);
            let Some((at, words)) = host_value(&self.links[0].incoming, row, c, form) else { continue };
            if at != wrong.tick && back && wrong.value.is_some() {
                continue; // of another tick: its turn comes
            }
            let column = &self.schema.component(form).column;
            match words {
                // one that names somebody who is not here stays as it is: its tick comes again with the next word
                Some(words) => drop(column.write(world, entity, words, &|n| self.entities.entity_of(n))),
                None => drop(column.remove(world, entity)),
            }
            track.note_compared(c, at);
        }
        let (tick, depth) = (if back { wrong.tick } else { self.time.step }, limits::SAVES);
        let moment = track.begin(tick, depth);
        moment.given = true;
        let mut words = SmallVec::<[u32; 8]>::new();
        for c in bits(mask) {
            let column = &self.schema.component(self.form(c as usize, kind)).column;
            words.clear();
            words.resize(column.layout().words(), 0);
            if column.round(world, entity, &mut words, &|n| self.entities.entity_of(n)) == Rounded::Yes {
                moment.push(c as usize, &words);
            }
        }
        self.predictions = predictions;
        self.dirty = true;
    }

    /// Brings an entity back that this peer had despawned for itself.
    fn revive(&mut self, world: &mut World, net: NetId) {
        let Some(slot) = self.entities.slot_of(net) else { return };
        if self.entities.get(slot).is_none_or(|r| !r.parked) {
            return;
        }
        let revived = self.saves[Timeline::Session].as_mut().and_then(|saves| saves.limbo.revive(world, net));
        if let Some(entity) = revived {
            self.entities.set_entity(net, entity);
            self.entities.set_parked(net, false);
            self.mark_simulated(world, slot);
        }
    }

    /// The host did not spawn what this peer had: it goes.
    fn take_spawn_back(&mut self, world: &mut World, net: NetId) {
        let Some(slot) = self.entities.slot_of(net) else { return };
        let Some(record) = self.entities.get(slot) else { return };
        let (entity, born, parked) = (record.entity, record.born, record.parked);
        self.predictions.forget(net);
        self.bury(world, net);
        self.end_entity(slot);
        // a parked one has left it to the limbo
        let _ = world.despawn(entity);
        self.set_aside(world, net);
        if parked {
            return; // it was over before the host could have shown it
        }
        self.news.push(News::Despawned { entity, net });
        self.predictions.corrections.push(Correction {
            cause: Cause::Refused,
            tick: born,
            depth: 0,
            snapped: false,
            net,
            component: String::new(),
            field: String::new(),
            predicted: Vec::new(),
            authoritative: Vec::new(),
            values: Default::default(),
            at: self.time.now,
        });
    }

    /// No save brings an entity back any more.
    pub(crate) fn bury(&mut self, world: &mut World, net: NetId) {
        self.predictions.forget(net);
        if let Some(saves) = &mut self.saves[Timeline::Session] {
            saves.bury(world, net);
        }
    }

    /// The names of the component and field in which a prediction first went wrong.
    fn place_of(&self, wrong: &Wrong) -> (String, String) {
        let Some((c, words)) = &wrong.value else { return Default::default() };
        self.field_of(*c, wrong.predicted.as_deref(), words.as_deref())
    }

    /// The names of a component and of the first field in which two values of it differ.
    fn field_of(&self, c: usize, a: Option<&[u32]>, b: Option<&[u32]>) -> (String, String) {
        let entry = self.schema.component(self.schema.on_grid(c));
        let mut at = 0;
        let differs = entry.column.layout().fields().iter().find(|field| {
            let here = at..at + field.code.words();
            at = here.end;
            a.is_none_or(|a| a.get(here.clone()) != b.unwrap_or_default().get(here.clone()))
        });
        (entry.name.clone(), differs.map(|f| f.name.clone()).unwrap_or_default())
    }
}
