//! What a guest predicted of one entity, tick by tick, on the simulation grid.

use crate::block::bits;
use crate::layout::FieldCode;
use crate::schema::Inner;
use smallvec::SmallVec;
use std::collections::VecDeque;
use tidelock_netcore::tick::Tick;

/// The state of one entity at the end of one tick.
#[derive(Clone, Default)]
pub(crate) struct Moment {
    pub(crate) tick: Tick,
    /// The components that it had and that could be put on the grid, as bits.
    pub(crate) present: u64,
    /// It is not what a step has come to: the host's values were written into it.
    pub(crate) given: bool,
    /// Their words, one after the other.
    words: Vec<u32>,
}

impl Moment {
    /// The words of a component, if it was there.
    pub(crate) fn words_of(&self, schema: &Inner, c: usize) -> Option<&[u32]> {
        if self.present >> c & 1 == 0 {
            return None;
        }
        let before = bits(self.present & ((1 << c) - 1));
        let at = before.map(|b| schema.layout(schema.on_grid(b as usize)).words()).sum::<usize>();
        self.words.get(at..at + schema.layout(schema.on_grid(c)).words())
    }

    /// Adds the words of a component; in ascending order.
    pub(crate) fn push(&mut self, c: usize, words: &[u32]) {
        self.present |= 1 << c;
        self.words.extend_from_slice(words);
    }
}

/// A correction that is still seen: what was drawn, and what would have been drawn at the same moment had it been known.
#[derive(Clone, Debug)]
pub(crate) struct Fade {
    pub(crate) component: usize,
    /// Words on the grid.
    pub(crate) before: SmallVec<[u32; 8]>,
    /// The same, once the ticks since have been run again.
    pub(crate) after: Option<SmallVec<[u32; 8]>>,
    pub(crate) since: std::time::Duration,
}

/// The predictions of one entity.
#[derive(Default)]
pub(crate) struct Track {
    /// The tick that the moments began with; the oldest ones are let go.
    first: Tick,
    moments: VecDeque<Moment>,
    /// By predicted component: the tick whose value of the host was compared last.
    compared: SmallVec<[(usize, Tick); 4]>,
    pub(crate) fades: Vec<Fade>,
}

impl Track {
    /// A moment to be filled in for `tick`, which takes the place of the one of that tick and of all later ones.
    pub(crate) fn begin(&mut self, tick: Tick, depth: usize) -> &mut Moment {
        let mut spare = self.cut_from(tick).unwrap_or_default();
        if self.moments.len() > depth {
            spare = self.moments.pop_front().unwrap_or(spare);
        }
        if self.moments.is_empty() {
            self.first = tick;
        }
        (spare.tick, spare.present, spare.given) = (tick, 0, false);
        spare.words.clear();
        self.moments.push_back(spare);
        let last = self.moments.len() - 1;
        &mut self.moments[last]
    }

    /// Forgets what was predicted for `tick` and later.
    pub(crate) fn cut_from(&mut self, tick: Tick) -> Option<Moment> {
        let mut spare = None;
        while self.moments.back().is_some_and(|m| m.tick >= tick) {
            spare = self.moments.pop_back();
        }
        spare
    }

    pub(crate) fn at(&self, tick: Tick) -> Option<&Moment> {
        let found = self.moments.binary_search_by_key(&tick, |m| m.tick);
        found.ok().map(|i| &self.moments[i])
    }

    /// Was something predicted for the tick that is not remembered any more?
    pub(crate) fn has_let_go(&self, tick: Tick) -> bool {
        tick >= self.first && self.moments.front().is_some_and(|oldest| tick < oldest.tick)
    }

    pub(crate) fn newest(&self) -> Option<&Moment> {
        self.moments.back()
    }

    pub(crate) fn compared(&self, c: usize) -> Option<Tick> {
        self.compared.iter().find(|x| x.0 == c).map(|x| x.1)
    }

    pub(crate) fn note_compared(&mut self, c: usize, tick: Tick) {
        match self.compared.iter_mut().find(|x| x.0 == c) {
            Some(entry) => entry.1 = tick,
            None => self.compared.push((c, tick)),
        }
    }
}

/// Are two values the same, or no further apart than `tolerance` steps of the grid in any field that has steps?
pub(crate) fn agree(codes: &[FieldCode], a: &[u32], b: &[u32], tolerance: u32) -> bool {
    if a == b || tolerance == 0 {
        return a == b;
    }
    let mut at = 0;
    codes.iter().all(|code| {
        let here = at..at + code.words();
        at = here.end;
        let (a, b) = (&a[here.clone()], &b[here]);
        match code {
            FieldCode::Number { .. } => a[0].abs_diff(b[0]) <= tolerance,
            FieldCode::Wrapping { bits } => {
                let off = a[0].wrapping_sub(b[0]) & ((1 << bits) - 1);
                off.min((1 << bits) - off) <= tolerance
            }
            FieldCode::Quat { .. } => a[0] == b[0] && a[1..].iter().zip(&b[1..]).all(|(a, b)| a.abs_diff(*b) <= tolerance),
            _ => a == b,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_found_by_tick_and_replaced_from_a_tick_on() {
        let mut track = Track::default();
        for tick in 10..20 {
            track.begin(Tick(tick), 5);
        }
        assert_eq!(track.moments.iter().map(|m| m.tick.0).collect::<Vec<_>>(), [14, 15, 16, 17, 18, 19]);
        assert!(track.at(Tick(13)).is_none() && track.at(Tick(20)).is_none());
        assert!(track.has_let_go(Tick(13)) && !track.has_let_go(Tick(9)) && !track.has_let_go(Tick(14)));
        assert_eq!(track.at(Tick(16)).unwrap().tick, Tick(16));
        track.begin(Tick(16), 5);
        assert_eq!(track.newest().unwrap().tick, Tick(16), "later ones were of another branch");
        // ticks that were left out are not there
        track.begin(Tick(30), 5);
        assert!(track.at(Tick(29)).is_none());
        assert_eq!(track.at(Tick(15)).unwrap().tick, Tick(15));
    }

    #[test]
    fn values_agree_within_steps_of_the_grid_and_around_a_circle() {
        let codes = [FieldCode::Number { max: 1000, order: 4 }, FieldCode::Wrapping { bits: 8 }, FieldCode::Choice { count: 9 }];
        assert!(agree(&codes, &[10, 255, 3], &[12, 1, 3], 2));
        assert!(!agree(&codes, &[10, 255, 3], &[13, 1, 3], 2));
        assert!(!agree(&codes, &[10, 255, 3], &[12, 2, 3], 2));
        assert!(!agree(&codes, &[10, 255, 3], &[10, 255, 4], 2), "choices are equal or not");
        assert!(!agree(&codes, &[10, 255, 3], &[11, 255, 3], 0));
    }
}
