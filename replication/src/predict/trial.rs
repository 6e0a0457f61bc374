//! Is it the host that came to another value, or does the tick depend on something that is not saved? Before a tick is corrected it is
//! run once more as it was, from the same saved state with the same input, and has to come to the same.

use super::track::Moment;
use super::{Cause, Correction, Wrong};
use crate::netid::NetId;
use crate::peer::Peer;
use crate::policy::Timeline;
use hecs::World;
use tidelock_netcore::limits;
use tidelock_netcore::tick::Tick;

/// A tick that is run again before it is corrected.
pub(super) struct Trial {
    tick: Tick,
    /// What is corrected afterwards, and how many ticks follow.
    wrong: Vec<Wrong>,
    depth: u64,
    /// What it came to for those entities.
    before: Vec<(NetId, Moment)>,
}

impl Peer {
    /// Has the step that begins a trial not been asked for yet? A trial whose saves were let go is none.
    pub(super) fn is_trial_on(&mut self) -> bool {
        let next = self.saves[Timeline::Session].as_ref().and_then(|saves| saves.replay.front().copied());
        self.predictions.trial.take_if(|trial| next != Some(trial.tick));
        self.predictions.trial.is_some()
    }

    /// Goes back to the beginning of the tick instead of its end, if it can be told then whether it comes out the same. Gives what is to
    /// be corrected back if not.
    pub(super) fn try_again(&mut self, world: &mut World, wrong: Vec<Wrong>, depth: u64) -> Option<Vec<Wrong>> {
        let Some(tick) = wrong.first().map(|w| w.tick) else { return Some(wrong) };
        let tracks = &self.predictions.tracks;
        // what the host had said of that very tick would be lost
        let given = tracks.values().any(|track| track.at(tick).is_some_and(|moment| moment.given));
        let moment = |w: &Wrong| Some((w.net, tracks.get(&w.net)?.at(tick)?.clone()));
        let before: Vec<_> = wrong.iter().filter_map(moment).collect();
        let too_far = depth >= self.config.rewind.min(limits::SAVES as u64);
        let off = !self.config.check_writes;
        if off || given || too_far || before.is_empty() || self.rewind_line(world, Timeline::Session, tick).is_err() {
            return Some(wrong);
        }
        self.predictions.effects[Timeline::Session as usize].rewound(tick);
        self.predictions.trial = Some(Trial { tick, wrong, depth, before });
        None
    }

    /// The tick was run again: the correction goes on.
    pub(super) fn end_trial(&mut self, world: &mut World) {
        let Some(trial) = self.predictions.trial.take_if(|trial| trial.tick == self.time.ran) else { return };
        let unsaved = trial.before.iter().find_map(|(net, before)| self.unsaved(*net, before, trial.depth));
        self.take_hosts(world, &trial.wrong, Some(trial.depth), unsaved);
    }

    /// Has an entity come out of a tick otherwise than before?
    fn unsaved(&self, net: NetId, before: &Moment, depth: u64) -> Option<Correction> {
        let tick = before.tick;
        let now = self.predictions.track(net).and_then(|track| track.at(tick));
        let of = |moment: Option<&Moment>, c| moment.and_then(|m| m.words_of(&self.schema, c)).map(<[u32]>::to_vec);
        let columns = 1..self.schema.columns();
        let c = columns.into_iter().find(|c| of(Some(before), *c) != of(now, *c))?;
        let (was, is) = (of(Some(before), c), of(now, c));
        let (component, field) = self.field_of(c, was.as_deref(), is.as_deref());
        let show = |words: &Option<Vec<u32>>| words.as_ref().map_or("not there".to_owned(), |words| format!("{words:?}"));
        let values = [show(&was), show(&is)];
        let (predicted, authoritative) = (was.unwrap_or_default(), is.unwrap_or_default());
        let (cause, snapped, at) = (Cause::Unsaved, false, self.time.now);
        Some(Correction { cause, tick, depth, snapped, net, component, field, predicted, authoritative, values, at })
    }
}
