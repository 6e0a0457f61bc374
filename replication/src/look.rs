//! What one guest sees, brought up to date: permission at every look, interest every few ones.

use crate::grid::Sweep;
use crate::peer_id::PeerId;
use crate::relevance::{Detail, Limit, Room, Sight, Unseen, Viewpoint};
use crate::scope::{Placed, Rooms, Scope, join, leave};
use hecs::World;
use smallvec::SmallVec;

/// After so many changes, a guest looks at everything instead of at each of them.
const CHANGES: u64 = 1024;
/// The nearest part of a guest's horizon that it may move through before its surroundings are looked at anew, as a divisor.
const STRIDE: f64 = 8.0;

/// A guest, as one who sees.
pub(crate) struct Viewer {
    pub(crate) who: Who,
    viewpoint: Viewpoint,
    tier: Option<usize>,
    /// Sorted by slot.
    seen: Vec<Seen>,
    /// Number of the first change that it has not looked at.
    read: u64,
    /// Of the scope, when everything was looked at.
    version: u64,
    /// From where everything was looked at.
    eye: Option<[f32; 3]>,
    /// Square of the distance below which what appears is seen at once. Negative: nothing is.
    horizon: f64,
    /// How many came since everything was looked at.
    extra: usize,
    /// Everything must be looked at.
    stale: bool,
}

/// Who sees, apart from what it sees.
pub(crate) struct Who {
    pub(crate) peer: PeerId,
    pub(crate) rooms: Rooms,
}

/// What a viewer knows of what it sees.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    slot: u32,
    born: u32,
    hidden: u64,
    period: u8,
    /// Importance, in half octaves.
    step: i8,
}

/// What a look has changed. Parents come before their children.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) shown: Vec<Shown>,
    pub(crate) hidden: Vec<(u32, Unseen)>,
    pub(crate) changed: Vec<Shown>,
}

impl Changes {
    fn clear(&mut self) {
        self.shown.clear();
        self.hidden.clear();
        self.changed.clear();
    }
}

/// How a guest sees an entity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) slot: u32,
    /// Bit c: component c is not for this guest.
    pub(crate) hidden: u64,
    /// Every how many sends it counts.
    pub(crate) period: u8,
    /// Importance; nearer is larger. Positive.
    pub(crate) weight: f32,
}

impl Seen {
    fn shown(self) -> Shown {
        let Self { slot, hidden, period, step, .. } = self;
        Shown { slot, hidden, period, weight: (f32::from(step) / 2.0).exp2() }
    }
}

/// What was found out about a slot in the look with that number.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memo {
    judged: u32,
    listed: u32,
    /// As the lead of a group: it was considered.
    weighed: u32,
    chosen: u32,
    /// Why it may not be seen.
    why: Option<Unseen>,
    /// Nothing is against it or its ancestors, whoever owns it.
    is_open: bool,
    /// Of its group.
    distance: f32,
}

/// Memory that is used again by each look.
#[derive(Default)]
pub(crate) struct Scratch {
    found: Vec<u32>,
    fresh: Vec<u32>,
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

impl Viewer {
    pub(crate) fn new(peer: PeerId) -> Self {
        Self {
            who: Who { peer, rooms: Rooms::new() },
            viewpoint: Viewpoint::Own,
            tier: None,
            seen: Vec::new(),
            read: 0,
            version: 0,
            eye: None,
            horizon: -1.0,
            extra: 0,
            stale: true,
        }
    }

    /// Does it see the slot, after its last look? Of an entity that ended since, it still does.
    pub(crate) fn sees(&self, slot: u32) -> bool {
        self.find(slot).is_some()
    }

    fn find(&self, slot: u32) -> Option<&Seen> {
        self.seen.binary_search_by_key(&slot, |s| s.slot).ok().map(|at| &self.seen[at])
    }

    /// What it sees, by slot.
    pub(crate) fn seen(&self) -> impl ExactSizeIterator<Item = Shown> + '_ {
        self.seen.iter().map(|s| s.shown())
    }

    pub(crate) fn set_viewpoint(&mut self, viewpoint: Viewpoint) {
        self.viewpoint = viewpoint;
    }

    /// How many of the nearest it sees, instead of what the settings say.
    pub(crate) fn set_tier(&mut self, count: Option<usize>) {
        self.stale |= self.tier != count;
        self.tier = count;
    }

    pub(crate) fn join_room(&mut self, room: Room) {
        self.stale |= join(&mut self.who.rooms, room);
    }

    pub(crate) fn is_in(&self, room: Room) -> bool {
        self.who.rooms.iter().any(|r| r.0 == room)
    }

    /// Leaves a room, if this was the last time that it had entered. Returns whether it was in.
    pub(crate) fn leave_room(&mut self, room: Room) -> bool {
        let left = leave(&mut self.who.rooms, room);
        self.stale |= left == Some(true);
        left.is_some()
    }
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
        self.looks = self.looks.wrapping_add(1);
        if self.looks == 0 {
            self.memo.fill(Memo::default());
            self.looks = 1;
        }
        self.scratch.fresh.clear();
        self.list(viewer);
        if is_due {
            self.survey(viewer, world, eye);
        } else {
            self.catch_up(viewer, world, eye);
        }
        viewer.read = end;
        self.settle(viewer, world, eye, out);
    }

    /// Is there anything to ask at every look?
    fn judges(&self) -> bool {
        !self.rules.is_empty() || !self.shows.is_empty()
    }

    /// Where a viewer sees from now.
    fn eye(&self, viewer: &Viewer, world: &World) -> Option<[f32; 3]> {
        let at = match viewer.viewpoint {
            Viewpoint::Point(at) => Some(at),
            Viewpoint::Entity(entity) => self.places.iter().find_map(|place| (place.one)(world, entity)),
            Viewpoint::Own => {
                let own = self.owned.get(&viewer.who.peer)?;
                own.iter().map(|o| &self.hot[o.1 as usize]).find(|h| h.placed == Placed::Yes).map(|h| h.at)
            }
        };
        at.filter(|at| at.iter().all(|x| x.is_finite()))
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
                    self.choose(candidate.lead, candidate.distance);
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
        self.choose(lead, self.felt(who, lead, eye));
    }

    /// Looks only at what has changed, and at what is seen if there are rules.
    fn catch_up(&mut self, viewer: &mut Viewer, world: &World, eye: Option<[f32; 3]>) {
        for i in 0..(self.log.end() - viewer.read) as usize {
            let slot = self.log.since(viewer.read)[i];
            if self.hot[slot as usize].alive {
                self.reconsider(viewer, world, slot, eye);
            }
        }
        if self.judges() {
            for i in 0..viewer.seen.len() {
                self.reconsider(viewer, world, viewer.seen[i].slot, eye);
            }
        }
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
            self.choose(lead, self.felt(&viewer.who, lead, eye));
        }
    }

    /// Is interest in the group not limited by distance?
    fn is_given(&self, who: &Who, lead: u32) -> bool {
        self.limit == Limit::Everything || self.hot[lead as usize].free || self.owns_one(who, lead)
    }

    fn owns_one(&self, who: &Who, lead: u32) -> bool {
        self.groups.members(lead).iter().any(|m| self.owns(who, *m))
    }

    fn owns(&self, who: &Who, slot: u32) -> bool {
        self.hot[slot as usize].owned && self.cold[slot as usize].owns(who.peer)
    }

    /// Takes the permitted members of a group that was judged.
    fn choose(&mut self, lead: u32, square: f64) {
        let (memo, look, fresh) = (&mut self.memo, self.looks, &mut self.scratch.fresh);
        for &slot in self.groups.members(lead) {
            let memo = &mut memo[slot as usize];
            if memo.why.is_none() {
                (memo.chosen, memo.distance) = (look, square.sqrt() as f32);
                if memo.listed != look {
                    fresh.push(slot);
                }
            }
        }
    }

    /// Finds out which members of a group may be seen. Returns how many.
    fn judge(&mut self, who: &Who, world: &World, lead: u32) -> u32 {
        let mut count = 0;
        for &slot in self.groups.members(lead) {
            let hot = &self.hot[slot as usize];
            let owns = hot.owned && self.cold[slot as usize].owns(who.peer);
            let refusal = match hot.alive {
                true if owns => None,
                true => self.refusal(who, world, slot),
                false => Some(Unseen::Gone),
            };
            let mut is_open = refusal.is_none();
            if !self.groups.is_alone(slot) {
                is_open &= self.groups.parents(slot).all(|p| self.memo[p as usize].is_open);
            }
            let why = if owns && hot.alive || is_open { None } else { refusal.or(Some(Unseen::Parent)) };
            let memo = &mut self.memo[slot as usize];
            (memo.judged, memo.why, memo.is_open) = (self.looks, why, is_open);
            count += u32::from(why.is_none());
        }
        count
    }

    /// What is against showing it, its ancestors aside.
    fn refusal(&self, who: &Who, world: &World, slot: u32) -> Option<Unseen> {
        if !self.shares_room(slot, &who.rooms) {
            return Some(Unseen::OtherRoom);
        }
        if self.rules.is_empty() {
            return None;
        }
        let sight = self.sight(who, world, slot);
        (!self.rules.iter().all(|rule| rule(&sight))).then_some(Unseen::Rule)
    }

    fn sight<'a>(&'a self, who: &Who, world: &'a World, slot: u32) -> Sight<'a> {
        let cold = &self.cold[slot as usize];
        Sight { peer: who.peer, world, entity: cold.entity, owners: &cold.owners }
    }

    /// The square of a group's distance: that of its nearest member.
    fn distance(&self, lead: u32, eye: [f32; 3]) -> f64 {
        let placed = |m: &u32| {
            let hot = &self.hot[*m as usize];
            (hot.placed == Placed::Yes).then(|| square(hot.at, eye))
        };
        self.groups.members(lead).iter().filter_map(placed).fold(f64::INFINITY, f64::min)
    }

    /// The same for level of detail and importance: what is the guest's own, or has no place, is at hand.
    fn felt(&self, who: &Who, lead: u32, eye: Option<[f32; 3]>) -> f64 {
        let is_placed = |m: &u32| self.hot[*m as usize].placed != Placed::No;
        match eye {
            Some(eye) if !self.owns_one(who, lead) && self.groups.members(lead).iter().any(is_placed) => self.distance(lead, eye),
            _ => 0.0,
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
        for &slot in &self.scratch.fresh {
            let row = self.row(&viewer.who, world, slot, unit, None);
            out.shown.push(row.shown());
            seen.push(row);
        }
        merge(&mut seen, old, &mut self.scratch.tail);
        viewer.seen = seen;
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
        let distance = self.memo[slot as usize].distance;
        let close = distance * self.stay.sqrt() as f32;
        let mut hidden = 0;
        if !self.shows.is_empty() && !self.owns(who, slot) {
            let sight = self.sight(who, world, slot);
            hidden = self.shows.iter().filter(|(_, agrees)| !agrees(&sight)).fold(0, |mask, (bit, _)| mask | bit);
        }
        let weight = self.weights[usize::from(hot.kind)];
        let mut new =
            Seen { slot, born: hot.born, hidden, period: period(self.detail, distance), step: step(weight, distance, unit) };
        // what is within the margin stays
        if let Some(old) = old {
            if (period(self.detail, close)..=new.period).contains(&old.period) {
                new.period = old.period;
            }
            if (new.step..=step(weight, close, unit) + 1).contains(&old.step) {
                new.step = old.step;
            }
        }
        new
    }

    /// Why a viewer does not see a slot, as things are now; `Ok` if it does.
    pub(crate) fn explain(&self, viewer: &Viewer, world: &World, slot: u32) -> Result<(), Unseen> {
        let who = &viewer.who;
        let hot = self.hot.get(slot as usize).filter(|h| h.alive).ok_or(Unseen::Gone)?;
        if !self.owns(who, slot) {
            self.refusal(who, world, slot).map_or(Ok(()), Err)?;
            let mut line: SmallVec<[u32; 8]> = self.groups.parents(slot).collect();
            let mut next = 0;
            while next < line.len() {
                if !self.owns(who, line[next]) && self.refusal(who, world, line[next]).is_some() {
                    return Err(Unseen::Parent);
                }
                let further = self.groups.parents(line[next]).filter(|p| !line.contains(p));
                let further: SmallVec<[u32; 2]> = further.collect();
                line.extend(further);
                next += 1;
            }
        }
        if viewer.find(slot).is_some_and(|seen| seen.born == hot.born) {
            return Ok(());
        }
        let lead = self.groups.lead(slot);
        if self.is_given(who, lead) {
            return Err(Unseen::Soon);
        }
        let eye = self.eye(viewer, world).ok_or(Unseen::NoViewpoint)?;
        let is_soon = self.distance(lead, eye) < viewer.horizon || viewer.stale && viewer.eye.is_none();
        Err(if is_soon { Unseen::Soon } else { Unseen::TooFar })
    }
}

/// The square of the distance of two finite places. Twice the range of `f32` does not overflow it.
#[inline]
pub(crate) fn square(a: [f32; 3], b: [f32; 3]) -> f64 {
    let [x, y, z] = [0, 1, 2].map(|i| f64::from(a[i]) - f64::from(b[i]));
    x * x + y * y + z * z
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

fn period(detail: Option<Detail>, distance: f32) -> u8 {
    let Some(Detail { full, slowest }) = detail else { return 1 };
    if full.is_nan() || full <= 0.0 {
        return 1;
    }
    let (mut period, mut limit) = (1u8, full);
    while distance > limit && period < slowest {
        period = period.saturating_mul(2).min(slowest);
        limit *= 2.0;
    }
    period
}

/// Importance in half octaves, from −24 on.
fn step(weight: f32, distance: f32, unit: f32) -> i8 {
    // log2 of what is finite and positive, between −24 and 12
    ((weight / (1.0 + (distance / unit).min(4096.0))).log2() * 2.0).round().clamp(-48.0, 48.0) as i8
}

/// Sorts by slot what is sorted up to `old`.
fn merge(seen: &mut [Seen], old: usize, new: &mut Vec<Seen>) {
    new.clear();
    new.extend_from_slice(&seen[old..]);
    new.sort_unstable_by_key(|s| s.slot);
    let (mut from, mut to) = (old, seen.len());
    while let Some(&last) = new.last() {
        to -= 1;
        if from > 0 && seen[from - 1].slot > last.slot {
            from -= 1;
            seen[to] = seen[from];
        } else {
            seen[to] = last;
            new.pop();
        }
    }
}
