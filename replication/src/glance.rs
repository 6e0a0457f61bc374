//! What has most likely not changed for a viewer, looked at 64 slots at a time: only of what is found to be otherwise does a
//! [look](crate::look) take notes.

use crate::block::bits;
use crate::history::BLOCK;
use crate::relevance::Sight;
use crate::scope::{NO_OWNERS, Scope};
use crate::viewer::Viewer;
use hecs::World;

/// What is known of slots as bits, by 64 of them.
#[derive(Default)]
pub(crate) struct Chart {
    alive: Vec<u64>,
    /// Of those: rules alone decide who may see it. It is in no room, in no group, and no guest's.
    plain: Vec<u64>,
    /// The end of the log as of which it was drawn.
    drawn: Option<u64>,
}

impl Scope {
    /// Brings the chart up to date: whatever it shows changes only where the log says so.
    pub(crate) fn draw_chart(&mut self) {
        let end = self.log.end();
        if self.chart.drawn.replace(end) == Some(end) {
            return;
        }
        let words = self.hot.len().div_ceil(BLOCK);
        let Chart { alive, plain, .. } = &mut self.chart;
        for table in [&mut *alive, &mut *plain] {
            table.clear();
            table.resize(words, 0);
        }
        for (slot, hot) in self.hot.iter().enumerate() {
            let is_plain = !hot.roomed && !hot.owned && self.shared != Some(hot.kind) && self.groups.is_alone(slot as u32);
            alive[slot / BLOCK] |= u64::from(hot.alive) << (slot % BLOCK);
            plain[slot / BLOCK] |= u64::from(hot.alive && is_plain) << (slot % BLOCK);
        }
    }

    /// Finds the slots that the viewer sees and may not see, or, with `all`, does not see and may; and what it sees, or all, of what
    /// is in groups: what is to become of these is more than a question of yes and no.
    pub(crate) fn glance(&self, viewer: &Viewer, world: &World, all: bool, odd: &mut Vec<u32>) {
        odd.clear();
        let (who, Chart { alive, plain, .. }) = (&viewer.who, &self.chart);
        // one for all: as a rule there is little more to a question than asking it
        let mut sight = Sight { peer: who.peer, world, entity: hecs::Entity::DANGLING, owners: &NO_OWNERS };
        for (word, (&alive, &plain)) in alive.iter().zip(plain).enumerate() {
            let seen = viewer.seen_bits.get(word).copied().unwrap_or(0);
            let asked = if all { alive } else { alive & seen };
            let (first, plain_ones) = (word * BLOCK, asked & plain);
            let mut other = if self.rules.is_empty() { plain_ones & !seen } else { 0 };
            for bit in bits(if self.rules.is_empty() { 0 } else { plain_ones }) {
                let slot = first + bit as usize;
                (sight.entity, sight.owners) = (self.handles[slot], &self.owners[slot]);
                let may = self.rules.iter().all(|rule| rule(&sight));
                other |= (u64::from(may) ^ seen >> bit & 1) << bit;
            }
            for bit in bits(asked & !plain) {
                let slot = first as u32 + bit;
                let is_seen = seen >> bit & 1 != 0;
                let may = self.owns(who, slot) || self.refusal(who, world, slot).is_none();
                other |= u64::from(!self.groups.is_alone(slot) || may != is_seen) << bit;
            }
            odd.extend(bits(other).map(|bit| first as u32 + bit));
        }
    }
}
