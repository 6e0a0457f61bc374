//! What one guest sees, brought up to date: permission at every look, interest every few ones.

use crate::grid::Sweep;
use crate::judge::square;
use crate::relevance::{Limit, Unseen};
use crate::scope::Scope;
use crate::viewer::{Changes, Seen, Viewer, Who, merge, period, step};
use hecs::World;

/// After so many changes, a guest looks at everything instead of at each of them.
const CHANGES: u64 = 1024;
/// The nearest part of a guest's horizon that it may move through before its surroundings are looked at anew, as a divisor.
const STRIDE: f64 = 8.0;

/// What was found out about a slot in the look with that number.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memo {
    pub(crate) judged: u32,
    pub(crate) listed: u32,
    /// As the lead of a group: it was considered.
    pub(crate) weighed: u32,
    pub(crate) chosen: u32,
    /// Why it may not be seen.
    pub(crate) why: Option<Unseen>,
    /// Nothing is against it or its ancestors, whoever owns it.
    pub(crate) is_open: bool,
    /// Of its group; `None` if it counts as it was.
    pub(crate) distance: Option<f32>,
}

/// Memory that is used again by each look.
#[derive(Default)]
pub(crate) struct Scratch {
    found: Vec<u32>,
    fresh: Vec<u32>,
    odd: Vec<u32>,
    candidates: Vec<Candidate>,
    tail: Vec<Seen>,
}

/// A group that may be near enough.
#[derive(Clone, Copy)]
struct Candidate {
    /// Square of the distance that counts.
    counts: f64,
    /// Square of the true one.
    distance: f64,
    lead: u32,
    /// Members that may be seen.
    members: u32,
}

impl Scope {
    /// Brings a viewer up to date with the last [`refresh`](Self::refresh). `send` counts sends. Entities that ended are
    /// forgotten without a word.
    pub(crate) fn look(&mut self, viewer: &mut Viewer, world: &World, send: u64, out: &mut Changes) {
        out.clear();
        let eye = self.eye(viewer, world);
        let end = self.log.end();
        let is_behind = viewer.read < self.log.start || end - viewer.read > CHANGES;
        let is_due = is_behind || self.is_due(viewer, eye, send);
        if !is_due && viewer.read == end && !self.judges() {
            return;
        }
        if !is_behind && self.shows.is_empty() && (!is_due || self.is_same_survey(viewer, eye)) {
            return self.look_again(viewer, world, eye, is_due, out);
        }
        self.begin(viewer);
        if is_due {
            self.survey(viewer, world, eye);
        } else {
            self.catch_up(viewer, world, eye);
        }
        viewer.read = end;
        self.settle(viewer, world, eye, out);
    }

    fn is_due(&self, viewer: &Viewer, eye: Option<[f32; 3]>, send: u64) -> bool {
        let has_moved = match (viewer.eye, eye) {
            (None, None) => false,
            (Some(old), Some(new)) => {
                viewer.horizon >= 0.0 && square(old, new) * (STRIDE * STRIDE) > viewer.horizon && self.limit != Limit::Everything
            }
            _ => true,
        };
        let has_changed = self.judges() || viewer.version != self.version || viewer.eye != eye;
        // without rules and places, what has changed is in the log
        let is_plain = self.limit == Limit::Everything && self.places.is_empty() && !self.judges();
        let is_turn = (send + u64::from(viewer.who.peer.0)).is_multiple_of(self.refresh);
        viewer.stale || !is_plain && (has_moved || is_turn && has_changed)
    }

    /// Would looking at everything come to the same as before, but for permission?
    fn is_same_survey(&self, viewer: &Viewer, eye: Option<[f32; 3]>) -> bool {
        let is_flat = eye.is_none() || self.places.is_empty();
        self.limit == Limit::Everything && is_flat && viewer.eye == eye && !viewer.stale
    }

    /// Looks only at what is [found](Self::glance) to be odd, and at what has changed.
    fn look_again(&mut self, viewer: &mut Viewer, world: &World, eye: Option<[f32; 3]>, is_due: bool, out: &mut Changes) {
        let mut odd = std::mem::take(&mut self.scratch.odd);
        self.glance(viewer, world, is_due, &mut odd);
        if is_due {
            (viewer.version, viewer.extra) = (self.version, 0);
        }
        if !odd.is_empty() || viewer.read != self.log.end() {
            self.begin(viewer);
            self.read_log(viewer, world, eye);
            for &slot in &odd {
                match is_due {
                    true => self.choose_anew(&viewer.who, world, self.groups.lead(slot), eye),
                    false => self.judge_again(&viewer.who, world, slot, eye),
                }
            }
            self.count_in(viewer);
            viewer.read = self.log.end();
            self.settle(viewer, world, eye, out);
        }
        self.scratch.odd = odd;
    }

    /// Begins a look of which notes are taken.
    fn begin(&mut self, viewer: &mut Viewer) {
        self.looks = self.looks.wrapping_add(1);
        if self.looks == 0 {
            self.memo.fill(Memo::default());
            self.looks = 1;
        }
        self.scratch.fresh.clear();
        self.list(viewer);
    }

    /// Notes what the viewer sees; what ended is forgotten.
    fn list(&mut self, viewer: &mut Viewer) {
        let (hot, memo, look) = (&self.hot, &mut self.memo, self.looks);
        viewer.seen.retain(|seen| {
            let is_here = hot[seen.slot as usize].born == seen.born;
            if is_here {
                memo[seen.slot as usize].listed = look;
            }
            is_here
        });
    }

    /// Looks at everything.
    fn survey(&mut self, viewer: &mut Viewer, world: &World, eye: Option<[f32; 3]>) {
        (viewer.eye, viewer.version, viewer.extra, viewer.stale) = (eye, self.version, 0, false);
        let who = &viewer.who;
        if self.limit == Limit::Everything {
            for slot in 0..self.hot.len() as u32 {
                if self.hot[slot as usize].alive && self.groups.lead(slot) == slot {
                    self.choose_anew(who, world, slot, eye);
                }
            }
            viewer.horizon = f64::INFINITY;
            return;
        }
        for i in 0..self.owned.get(&who.peer).map_or(0, Vec::len) {
            let lead = self.groups.lead(self.owned[&who.peer][i].1);
            self.choose_anew(who, world, lead, eye);
        }
        for i in 0..self.free.len() {
            self.choose_anew(who, world, self.free[i], eye);
        }
        let mut candidates = std::mem::take(&mut self.scratch.candidates);
        candidates.clear();
        for seen in &viewer.seen {
            self.weigh(who, world, seen.slot, eye, &mut candidates);
        }
        viewer.horizon = match eye {
            None => -1.0,
            Some(eye) => {
                let horizon = self.cut(viewer, world, eye, &mut candidates);
                for candidate in &candidates {
                    self.choose(candidate.lead, Some(candidate.distance));
                }
                horizon
            }
        };
        self.scratch.candidates = candidates;
    }

    /// Finds the candidates, and leaves those that are near enough. Returns the square of the horizon.
    fn cut(&mut self, viewer: &Viewer, world: &World, eye: [f32; 3], candidates: &mut Vec<Candidate>) -> f64 {
        match self.limit {
            Limit::Everything => f64::INFINITY,
            Limit::Within(radius) => {
                // what is exactly at the radius is within
                let horizon = f64::from(radius).powi(2).next_up();
                self.sweep(&viewer.who, world, eye, candidates, |reach, _| reach > f64::from(radius));
                candidates.retain(|c| c.counts < horizon);
                horizon
            }
            Limit::Nearest(count) => {
                let count = viewer.tier.unwrap_or(count);
                if count == 0 {
                    candidates.clear();
                    return -1.0;
                }
                let enough = |reach: f64, candidates: &[Candidate]| {
                    let near = candidates.iter().filter(|c| c.counts < reach * reach);
                    near.map(|c| c.members as usize).sum::<usize>() >= count
                };
                self.sweep(&viewer.who, world, eye, candidates, enough);
                nearest(candidates, count)
            }
        }
    }

    /// Adds candidates from the nearest cells on, until there are enough of them.
    fn sweep(
        &mut self,
        who: &Who,
        world: &World,
        eye: [f32; 3],
        candidates: &mut Vec<Candidate>,
        enough: impl Fn(f64, &[Candidate]) -> bool,
    ) {
        let mut found = std::mem::take(&mut self.scratch.found);
        let mut sweep = Sweep::new(&self.grid, eye);
        found.clear();
        while let Some(reach) = sweep.next(&self.grid, &mut found) {
            for slot in found.drain(..) {
                self.weigh(who, world, slot, Some(eye), candidates);
            }
            if enough(reach, candidates) {
                break;
            }
        }
        self.scratch.found = found;
    }

    /// Adds a slot's group to the candidates, unless it is one already, is chosen anyway, or may not be seen.
    fn weigh(&mut self, who: &Who, world: &World, slot: u32, eye: Option<[f32; 3]>, candidates: &mut Vec<Candidate>) {
        let lead = self.groups.lead(slot);
        if self.memo[lead as usize].weighed == self.looks {
            return;
        }
        self.memo[lead as usize].weighed = self.looks;
        let members = self.judge(who, world, lead);
        let Some(eye) = eye.filter(|_| members > 0) else { return };
        let distance = self.distance(lead, eye);
        if distance.is_finite() {
            let group = self.groups.members(lead);
            let is_seen = group.iter().any(|m| self.memo[*m as usize].listed == self.looks);
            let counts = if is_seen { distance * self.stay } else { distance };
            candidates.push(Candidate { counts, distance, lead, members });
        }
    }

    /// Chooses a group that is seen at any distance.
    fn choose_anew(&mut self, who: &Who, world: &World, lead: u32, eye: Option<[f32; 3]>) {
        if std::mem::replace(&mut self.memo[lead as usize].weighed, self.looks) == self.looks {
            return;
        }
        self.judge(who, world, lead);
        self.choose(lead, Some(self.felt(who, lead, eye)));
    }

    /// Looks only at what has changed, and at what is seen if there are rules.
    fn catch_up(&mut self, viewer: &mut Viewer, world: &World, eye: Option<[f32; 3]>) {
        self.read_log(viewer, world, eye);
        if self.judges() {
            for i in 0..viewer.seen.len() {
                self.judge_again(&viewer.who, world, viewer.seen[i].slot, eye);
            }
        }
        self.count_in(viewer);
    }

    /// Looks at what has changed since the viewer's last look.
    fn read_log(&mut self, viewer: &Viewer, world: &World, eye: Option<[f32; 3]>) {
        for i in 0..(self.log.end() - viewer.read) as usize {
            let slot = self.log.since(viewer.read)[i];
            if self.hot[slot as usize].alive {
                self.reconsider(viewer, world, slot, eye);
            }
        }
    }

    /// Counts what has come into sight.
    fn count_in(&self, viewer: &mut Viewer) {
        viewer.extra += self.scratch.fresh.len();
        if let Limit::Nearest(count) = self.limit {
            // too many have come: time to choose the nearest again
            viewer.stale |= viewer.extra > viewer.tier.unwrap_or(count) / 8 + 4;
        }
    }

    /// Judges a slot's group again, and chooses it if it is seen already, or is near enough.
    fn reconsider(&mut self, viewer: &Viewer, world: &World, slot: u32, eye: Option<[f32; 3]>) {
        let lead = self.groups.lead(slot);
        if std::mem::replace(&mut self.memo[lead as usize].weighed, self.looks) == self.looks {
            return;
        }
        self.judge(&viewer.who, world, lead);
        let members = self.groups.members(lead);
        let is_seen = members.iter().any(|m| self.memo[*m as usize].listed == self.looks);
        let is_near = || eye.is_some_and(|eye| self.distance(lead, eye) < viewer.horizon);
        if is_seen || self.is_given(&viewer.who, lead) || is_near() {
            self.choose(lead, Some(self.felt(&viewer.who, lead, eye)));
        }
    }

    /// Judges the group of something seen again. Unless more of it is seen now, distances wait for the next survey.
    fn judge_again(&mut self, who: &Who, world: &World, slot: u32, eye: Option<[f32; 3]>) {
        let lead = self.groups.lead(slot);
        if std::mem::replace(&mut self.memo[lead as usize].weighed, self.looks) == self.looks {
            return;
        }
        self.judge(who, world, lead);
        let is_new = |m: &Memo| m.why.is_none() && m.listed != self.looks;
        let has_more = self.groups.members(lead).iter().any(|m| is_new(&self.memo[*m as usize]));
        let square = has_more.then(|| self.felt(who, lead, eye));
        self.choose(lead, square);
    }

    /// Takes the permitted members of a group that was judged.
    fn choose(&mut self, lead: u32, square: Option<f64>) {
        let distance = square.map(|square| square.sqrt() as f32);
        let (memo, look, fresh) = (&mut self.memo, self.looks, &mut self.scratch.fresh);
        for &slot in self.groups.members(lead) {
            let memo = &mut memo[slot as usize];
            if memo.why.is_none() {
                (memo.chosen, memo.distance) = (look, distance);
                if memo.listed != look {
                    fresh.push(slot);
                }
            }
        }
    }

    /// Writes down what was decided: into the viewer, and what is new of it into `out`.
    fn settle(&mut self, viewer: &mut Viewer, world: &World, eye: Option<[f32; 3]>, out: &mut Changes) {
        let unit = self.unit(viewer.horizon);
        let mut seen = std::mem::take(&mut viewer.seen);
        seen.retain_mut(|seen| {
            let memo = &self.memo[seen.slot as usize];
            if memo.judged != self.looks {
                return true;
            }
            if memo.chosen != self.looks {
                let distant = if eye.is_none() { Unseen::NoViewpoint } else { Unseen::TooFar };
                out.hidden.push((seen.slot, memo.why.unwrap_or(distant)));
                return false;
            }
            let now = self.row(&viewer.who, world, seen.slot, unit, Some(seen));
            if now != *seen {
                *seen = now;
                out.changed.push(now.shown());
            }
            true
        });
        let old = seen.len();
        if seen.capacity() < old + self.scratch.fresh.len() {
            // there is one such list for each guest: little more than is needed
            seen.reserve_exact(self.scratch.fresh.len() + old / 8);
        }
        for &slot in &self.scratch.fresh {
            let row = self.row(&viewer.who, world, slot, unit, None);
            out.shown.push(row.shown());
            seen.push(row);
        }
        merge(&mut seen, old, &mut self.scratch.tail);
        viewer.seen = seen;
        viewer.chart();
    }

    /// The distance at which something is half as important as at hand.
    fn unit(&self, horizon: f64) -> f32 {
        let sane = |x: f32| x.is_finite() && x > 0.0;
        let full = self.detail.map(|d| d.full).filter(|x| sane(*x));
        let horizon = Some(horizon.sqrt() as f32 / 3.0).filter(|x| sane(*x));
        full.or(horizon).unwrap_or(self.cell * 4.0)
    }

    fn row(&self, who: &Who, world: &World, slot: u32, unit: f32, old: Option<&Seen>) -> Seen {
        let hot = &self.hot[slot as usize];
        let mut hidden = 0;
        if !self.shows.is_empty() && !self.owns(who, slot) {
            let sight = self.sight(who, world, slot);
            hidden = self.shows.iter().filter(|(_, agrees)| !agrees(&sight)).fold(0, |mask, (bit, _)| mask | bit);
        }
        let mut new = Seen { slot, born: hot.born, hidden, ..*old.unwrap_or(&Seen::default()) };
        let Some(distance) = self.memo[slot as usize].distance else { return new };
        let weight = self.weights[usize::from(hot.kind)];
        (new.period, new.step) = (period(self.detail, distance), step(weight, distance, unit));
        let Some(old) = old.filter(|old| **old != new) else { return new };
        // what is within the margin stays
        let close = distance * self.stay.sqrt() as f32;
        if (period(self.detail, close)..=new.period).contains(&old.period) {
            new.period = old.period;
        }
        if (new.step..=step(weight, close, unit) + 1).contains(&old.step) {
            new.step = old.step;
        }
        new
    }
}

/// Leaves the nearest candidates that together have `count` members. Returns the square of the distance of the last one, or
/// infinity if there are not so many.
fn nearest(candidates: &mut Vec<Candidate>, count: usize) -> f64 {
    let order = |a: &Candidate, b: &Candidate| a.counts.total_cmp(&b.counts).then(a.lead.cmp(&b.lead));
    if candidates.len() > count {
        candidates.select_nth_unstable_by(count - 1, order);
        candidates.truncate(count);
    }
    let members = |candidates: &[Candidate]| candidates.iter().map(|c| c.members as usize).sum::<usize>();
    let total = members(candidates);
    if total < count {
        return f64::INFINITY;
    }
    if total > count {
        candidates.sort_unstable_by(order);
        let mut sum = 0;
        let needed = candidates.iter().take_while(|c| {
            let is_needed = sum < count;
            sum += c.members as usize;
            is_needed
        });
        let needed = needed.count();
        candidates.truncate(needed);
    }
    candidates.iter().map(|c| c.counts).fold(0.0, f64::max)
}
