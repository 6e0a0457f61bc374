//! The visible part of a correction: what is drawn slides from where it was drawn to where it is now.
//!
//! A correction moves a value from `before` to `after`, both of the same moment. What is drawn since is the world's value moved by
//! the same difference, which shrinks: v + w · (before − after). A component only has a blend, so the sum is made of blends: with
//! m = after + w · (before − after), the parallelogram v + m − after is the point twice as far from `after` as the middle of v
//! and m. On a straight line that is exact, on a circle or a sphere it is so for small differences.

use super::Fade;
use super::track::Track;
use crate::block::bits;
use crate::column::Reader;
use crate::entities::Record;
use crate::peer::Peer;
use crate::replicate::Restorer;
use crate::schema::Inner;
use smallvec::SmallVec;
use std::time::Duration;

/// How long a correction is seen.
pub(super) const FADE: Duration = Duration::from_millis(200);
/// Corrections of one component that are seen at a time; the oldest ends when one more comes.
pub(super) const FADES: usize = 4;

/// A correction as it is drawn now.
pub(crate) struct Faded<C> {
    pub(super) before: C,
    pub(super) after: C,
    pub(super) weight: f32,
}

/// Moves a value by what is left of corrections.
pub(crate) fn shift<C>(value: C, fades: impl Iterator<Item = Faded<C>>, blend: &dyn Fn(&C, &C, f32) -> C) -> C {
    fades.fold(value, |value, fade| {
        let moved = blend(&fade.after, &fade.before, fade.weight);
        blend(&fade.after, &blend(&value, &moved, 0.5), 2.0)
    })
}

/// How much of a correction is left: all of it at first, nothing at the end, and no edge there.
pub(super) fn weight(passed: Duration) -> f32 {
    let left = 1.0 - passed.as_secs_f32() / FADE.as_secs_f32();
    left.max(0.0).powi(2)
}

impl Track {
    /// The ticks have been run again: where fading values come out is known now. Those that came out where they were need none.
    pub(super) fn settle_fades(&mut self, schema: &Inner, now: Duration) {
        let Some(newest) = self.newest() else { return self.fades.clear() };
        let words = |c: usize| newest.words_of(schema, c).map(SmallVec::<[u32; 8]>::from_slice);
        let after: SmallVec<[_; 4]> = self.fades.iter().map(|f| f.after.clone().or_else(|| words(f.component))).collect();
        for (fade, after) in self.fades.iter_mut().zip(after) {
            fade.after = after;
        }
        self.fades.retain(|f| now.saturating_sub(f.since) < FADE && f.after.as_ref().is_some_and(|a| *a != f.before));
    }
}

impl Peer {
    /// Remembers where everything is that is predicted and drawn, before it is corrected.
    pub(super) fn note_drawn(&mut self) {
        let now = self.time.now;
        for (net, track) in &mut self.predictions.tracks {
            let record = self.entities.slot_of(*net).and_then(|slot| self.entities.get(slot));
            let Some(record) = record.filter(|r| !r.parked) else { continue };
            for c in bits(self.schema.predicted[record.kind] & self.schema.interpolated) {
                let c = c as usize;
                if track.fades.iter().any(|f| f.component == c && f.after.is_none()) {
                    continue; // it goes back further before it was run again
                }
                let Some(before) = track.newest().and_then(|m| m.words_of(&self.schema, c)).map(SmallVec::from_slice) else {
                    continue;
                };
                if track.fades.iter().filter(|f| f.component == c).count() >= FADES
                    && let Some(oldest) = track.fades.iter().position(|f| f.component == c)
                {
                    track.fades.remove(oldest);
                }
                track.fades.push(Fade { component: c, before, after: None, since: now });
            }
        }
    }

    /// What is left of an entity's corrections, for drawing component `c` at `now`.
    pub(crate) fn fades<'a, C>(&'a self, record: &Record, c: usize, now: Duration) -> impl Iterator<Item = Faded<C>> + use<'a, C>
    where
        C: 'static,
    {
        let fades = self.predictions.track(record.net).map_or(&[][..], |t| &t.fades[..]);
        let reader = self.schema.component(self.schema.on_grid(c)).column.reader().downcast_ref::<Reader<C>>();
        let value = move |words: &[u32]| {
            let entities = |net| self.entities.entity_of(net);
            let fine = self.schema.on_grid(c) != c;
            (reader?.restore)(&mut Restorer::new(words, &entities).on_grid(fine)).ok()
        };
        fades.iter().filter(move |f| f.component == c).filter_map(move |f| {
            let weight = weight(now.saturating_sub(f.since));
            Some(Faded { before: value(&f.before)?, after: value(f.after.as_ref()?)?, weight }).filter(|_| weight > 0.0)
        })
    }
}
