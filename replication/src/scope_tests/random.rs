//! Random worlds, walks, rooms, rules, parents, sets, births, ends and tiers, checked after every look.

use super::model::{Facts, Group};
use super::*;

const GUESTS: usize = 4;
const REFRESH: u32 = 4;
const FULL: f32 = 20.0;
const SLOWEST: u8 = 8;

struct Run {
    stage: Stage,
    facts: Facts,
    rng: Pcg64Mcg,
    margin: f32,
    /// Of each guest, what it should have got at the last looks.
    answers: Vec<VecDeque<BTreeSet<u32>>>,
    /// Looks since anything changed.
    quiet: u32,
    name: String,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let margin = if rng.next_u64() % 2 == 0 { 0.0 } else { 0.15 };
        let (is_ruled, is_shown) = (rng.next_u64() % 2 == 0, rng.next_u64() % 2 == 0);
        let (settings, limit) = match rng.next_u64() % 5 {
            0 => (Relevance::everything(), Limit::Everything),
            1 | 2 => (Relevance::nearest(12), Limit::Nearest(12)),
            _ => (Relevance::within(30.0), Limit::Within(30.0)),
        };
        let settings = settings.margin(margin).refresh(REFRESH).cell(8.0).always::<Banner>();
        let settings = settings.detail(Detail { full: FULL, slowest: SLOWEST });
        let odd = |s: &Sight<'_>| is_odd(s) || s.get::<Odd>().is_none();
        let settings = if is_ruled { settings.rule(odd) } else { settings };
        let shy = |s: &Sight<'_>| is_odd(s) || s.get::<Shy>().is_none();
        let settings = if is_shown { settings.show_only::<Secret>(shy) } else { settings };
        // who has no eye has no distances, and is looked at in another way
        let are_blind = limit == Limit::Everything && rng.next_u64() % 2 == 0;
        let mut facts = Facts { is_ruled, is_shown, limit: Some(limit), ..Facts::default() };
        facts.inside.resize(GUESTS, BTreeMap::new());
        facts.viewpoints.resize(GUESTS, Viewpoint::Own);
        facts.tiers.resize(GUESTS, None);
        let stage = Stage::new(settings, GUESTS as u16);
        let name = format!("SEED={seed} {limit:?} margin {margin} rules {is_ruled} shown {is_shown} blind {are_blind}");
        let mut run = Self { stage, facts, rng, margin, answers: vec![VecDeque::new(); GUESTS], quiet: 0, name };
        (0..60).for_each(|_| run.spawn());
        if !are_blind {
            (0..GUESTS as u32).for_each(|g| run.stage.own(g, 0, g as u16 + 1));
        }
        run
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }

    fn place(&mut self) -> [f32; 3] {
        let mut axis = |size: f32| ((self.rng.next_u64() >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * size;
        [axis(200.0), axis(20.0), axis(200.0)]
    }

    fn any(&mut self) -> Option<u32> {
        let at = self.below(self.stage.entities.len().max(1) as u64) as usize;
        self.stage.entities.iter().nth(at).map(|(slot, _)| slot)
    }

    fn spawn(&mut self) {
        let at = self.place();
        let is_banner = self.below(20) == 0;
        let slot = if self.below(10) == 0 {
            self.stage.spawn((Secret,), is_banner)
        } else {
            self.stage.spawn((At(at), Secret), is_banner)
        };
        if self.below(3) == 0 {
            self.join(slot);
        }
        if self.below(4) == 0 {
            self.hang(slot);
        }
    }

    fn join(&mut self, slot: u32) {
        let room = Room(self.below(4));
        *self.facts.rooms.entry(slot).or_default().entry(room).or_default() += 1;
        self.stage.scope.join_room(slot, room);
    }

    fn leave(&mut self, slot: u32) {
        let room = Room(self.below(4));
        let rooms = self.facts.rooms.entry(slot).or_default();
        let was_in = leave(rooms, room);
        assert_eq!(self.stage.scope.leave_room(slot, room), was_in, "{}", self.name);
    }

    fn hang(&mut self, slot: u32) {
        let Some(parent) = self.any() else { return };
        if parent != slot && !self.facts.ancestors(&self.stage, parent).contains(&slot) {
            self.stage.hang(slot, Some(parent));
        }
    }

    /// Something about one entity.
    fn change_entity(&mut self) {
        let Some(slot) = self.any() else { return };
        let entity = self.stage.entity(slot);
        match self.below(16) {
            0 => self.spawn(),
            1 if self.stage.entities.len() > 30 => {
                self.stage.end(slot);
                self.facts.ended(slot);
                self.answers.iter_mut().flatten().for_each(|answer| {
                    answer.remove(&slot);
                });
                self.spawn();
            }
            2 | 3 => self.hang(slot),
            4 => self.stage.hang(slot, None),
            5 => drop(self.stage.world.remove_one::<ChildOf>(entity)),
            6 => self.join(slot),
            7 => self.leave(slot),
            8 => {
                let (owner, peer) = (self.below(2) as usize, self.below(GUESTS as u64 + 2) as u16);
                self.stage.own(slot, owner, peer);
            }
            9 => self.stage.world.insert_one(entity, Odd).expect("it lives"),
            10 => drop(self.stage.world.remove_one::<Odd>(entity)),
            11 => {
                let is_shy = self.stage.world.remove_one::<Shy>(entity).is_ok();
                if !is_shy {
                    self.stage.world.insert_one(entity, Shy).expect("it lives");
                }
            }
            12 => {
                let Some(other) = self.any() else { return };
                self.stage.scope.see_together(&[slot, other]);
                self.facts.together(&[slot, other]);
            }
            13 => {
                self.stage.scope.part(slot);
                self.facts.sets.iter_mut().for_each(|s| {
                    s.remove(&slot);
                });
            }
            14 => drop(self.stage.world.remove_one::<At>(entity)),
            _ => {
                let odd = [[f32::NAN, 0.0, 0.0], [1e30, 1.0, -1e30], [0.0, f32::INFINITY, 0.0], [f32::MAX; 3]];
                let at = self.place();
                // no two at the same distance: which of them is nearer is nobody's business
                let part = 0.75 + at[0] / 1000.0;
                let at = if self.below(4) == 0 { odd[self.below(4) as usize].map(|x| x * part) } else { at };
                self.stage.put(slot, at);
            }
        }
    }

    /// Something about one guest.
    fn change_guest(&mut self) {
        let g = self.below(GUESTS as u64) as usize;
        let room = Room(self.below(4));
        match self.below(4) {
            0 => {
                *self.facts.inside[g].entry(room).or_default() += 1;
                self.stage.guests[g].viewer.join_room(room);
            }
            1 => {
                let was_in = leave(&mut self.facts.inside[g], room);
                assert_eq!(self.stage.guests[g].viewer.leave_room(room), was_in, "{}", self.name);
            }
            2 => {
                let tier = [None, Some(0), Some(3), Some(20)][self.below(4) as usize];
                self.facts.tiers[g] = tier;
                self.stage.guests[g].viewer.set_tier(tier);
            }
            _ => {
                let viewpoint = match self.below(6) {
                    0 => Viewpoint::Point(self.place()),
                    1 => Viewpoint::Point([f32::NAN; 3]),
                    2 => self.any().map_or(Viewpoint::Own, |slot| Viewpoint::Entity(self.stage.entity(slot))),
                    _ => Viewpoint::Own,
                };
                self.facts.viewpoints[g] = viewpoint;
                self.stage.guests[g].viewer.set_viewpoint(viewpoint);
            }
        }
    }

    fn walk(&mut self) {
        for at in self.stage.world.query::<&mut At>().iter() {
            let step = self.rng.next_u64();
            at.0[0] += (step % 5) as f32 * 0.5 - 1.0;
            at.0[2] += (step / 5 % 5) as f32 * 0.5 - 1.0;
        }
    }

    fn look(&mut self) {
        self.stage.look();
        for g in 0..GUESTS {
            let groups = self.facts.groups(&self.stage, g);
            let answer = self.facts.answer(&groups, g);
            self.check_permission(g, &groups);
            self.check_interest(g, &groups, answer);
            self.check_reasons(g);
        }
    }

    /// Exact at every look.
    fn check_permission(&self, g: usize, groups: &[Group]) {
        let (got, name, send) = (&self.stage.guests[g].got, &self.name, self.stage.send);
        for group in groups {
            let seen: BTreeSet<u32> = group.members.iter().copied().filter(|m| got.contains_key(m)).collect();
            assert!(
                seen.is_empty() || seen == group.permitted,
                "{name}: send {send}, guest {g}: {seen:?} of {:?}",
                group.permitted
            );
            // what a rule allows again is found when everything is looked at
            let is_exact =
                group.is_given && (!self.facts.is_ruled || group.members.iter().any(|m| self.facts.owns(&self.stage, g, *m)));
            assert!(
                !is_exact || seen == group.permitted,
                "{name}: send {send}, guest {g}: {seen:?}, given {:?}",
                group.permitted
            );
        }
        for (slot, told) in got {
            assert!(self.stage.entities.get(*slot).is_some(), "{name}: {slot} is gone");
            assert_eq!(told.shown.hidden, self.facts.mask(&self.stage, g, *slot), "{name}: send {send}, guest {g}, slot {slot}");
            for ancestor in self.facts.ancestors(&self.stage, *slot) {
                let may = self.facts.permission(&self.stage, g, ancestor).is_ok();
                let is_own = self.facts.owns(&self.stage, g, *slot);
                assert!(got.contains_key(&ancestor) || is_own && !may, "{name}: {slot} is seen without {ancestor}");
            }
        }
    }

    fn check_interest(&mut self, g: usize, groups: &[Group], answer: BTreeSet<u32>) {
        let (got, name, send) = (&self.stage.guests[g].got, &self.name, self.stage.send);
        let past = &mut self.answers[g];
        past.push_back(answer);
        if past.len() > REFRESH as usize {
            past.pop_front();
        }
        let is_settled = self.quiet > REFRESH;
        let answer = past.back().expect("it was just added");
        let is_sure = |slot: &u32| self.margin == 0.0 || groups.iter().any(|g| g.is_given && g.members.contains(slot));
        let is_old = |slot: &u32| past.len() == REFRESH as usize && past.iter().all(|a| a.contains(slot));
        let missed: Vec<_> = answer.iter().filter(|s| !got.contains_key(s) && is_sure(s) && is_old(s)).collect();
        let eye = self.facts.eye(&self.stage, g);
        assert!(missed.is_empty(), "{name}: send {send}, guest {g} at {eye:?} misses {missed:?}");
        if self.margin == 0.0 {
            let is_new = |told: &Told| told.since + u64::from(REFRESH) > send;
            let mut kept = got.iter().filter(|(slot, told)| !is_new(told) && !past.iter().any(|a| a.contains(slot)));
            assert!(kept.next().is_none(), "{name}: send {send}, guest {g} keeps what is too far");
            let seen: BTreeSet<u32> = got.keys().copied().collect();
            assert!(!is_settled || seen == *answer, "{name}: send {send}, guest {g}: {seen:?} instead of {answer:?}");
        }
        if !is_settled {
            return;
        }
        let stay = (1.0 - f64::from(self.margin)).powi(2);
        let limited = groups.iter().filter(|g| !g.is_given && !g.permitted.is_empty());
        let (seen, unseen): (Vec<_>, Vec<_>) = limited.partition(|g| g.permitted.iter().all(|m| got.contains_key(m)));
        let counts = seen.iter().map(|g| g.square * stay).fold(0.0, f64::max);
        let next = unseen.iter().map(|g| g.square).fold(f64::INFINITY, f64::min);
        assert!(
            seen.is_empty() || counts <= next && counts.is_finite(),
            "{name}: send {send}, guest {g}: {counts} before {next}"
        );
        let members: usize = seen.iter().map(|g| g.permitted.len()).sum();
        match self.facts.limit {
            Some(Limit::Nearest(n)) => {
                let n = self.facts.tiers[g].unwrap_or(n);
                let most = seen.iter().map(|g| g.permitted.len()).max().unwrap_or(0);
                assert!(members >= n || next.is_infinite(), "{name}: guest {g} has {members} of {n}");
                assert!(members < n + most.max(1), "{name}: guest {g} has {members} for {n}");
            }
            Some(Limit::Within(radius)) => {
                let radius = f64::from(radius).powi(2);
                assert!(counts <= radius && next > radius, "{name}: guest {g}: {counts}, {next}");
            }
            _ => assert!(unseen.is_empty(), "{name}"),
        }
    }

    fn check_reasons(&self, g: usize) {
        let (name, send) = (&self.name, self.stage.send);
        for (slot, _) in self.stage.entities.iter() {
            let reason = self.stage.explain(g, slot);
            let is_seen = self.stage.guests[g].got.contains_key(&slot);
            match self.facts.permission(&self.stage, g, slot) {
                Err(why) => assert_eq!(reason, Err(why), "{name}: send {send}, guest {g}, slot {slot}"),
                Ok(()) if is_seen => assert_eq!(reason, Ok(()), "{name}: send {send}, guest {g}, slot {slot}"),
                Ok(()) => {
                    let has_eye = self.facts.eye(&self.stage, g).is_some();
                    let distant = if has_eye { Unseen::TooFar } else { Unseen::NoViewpoint };
                    let is_soon = self.quiet <= REFRESH && reason == Err(Unseen::Soon);
                    assert!(is_soon || reason == Err(distant), "{name}: send {send}, guest {g}, slot {slot}: {reason:?}");
                }
            }
        }
        assert_eq!(self.stage.explain(g, 1 << 20), Err(Unseen::Gone));
    }

    fn check_periods(&self, g: usize, groups: &[Group]) {
        for group in groups {
            let is_own = group.members.iter().any(|m| self.facts.owns(&self.stage, g, *m));
            let is_placed = group.members.iter().any(|m| self.stage.world.satisfies::<&At>(self.stage.entity(*m)));
            let distance =
                if is_own || !is_placed || self.facts.eye(&self.stage, g).is_none() { 0.0 } else { group.square.sqrt() };
            let doublings = (distance / f64::from(FULL)).log2().ceil().clamp(0.0, 3.0);
            for told in group.permitted.iter().filter_map(|m| self.stage.guests[g].got.get(m)) {
                assert_eq!(f64::from(told.shown.period), doublings.exp2(), "{}: {} at {distance}", self.name, told.shown.slot);
                assert!(told.shown.weight > 0.0 && told.shown.weight.is_finite());
            }
        }
    }
}

fn leave(rooms: &mut BTreeMap<Room, u32>, room: Room) -> bool {
    let Some(count) = rooms.get_mut(&room) else { return false };
    *count -= 1;
    if *count == 0 {
        rooms.remove(&room);
    }
    true
}

fn run(seed: u64, phases: u32) {
    let mut run = Run::new(seed);
    for _ in 0..phases {
        run.quiet = 0;
        for _ in 0..run.below(12) + 1 {
            for _ in 0..run.below(6) {
                run.change_entity();
            }
            if run.below(4) == 0 {
                run.change_guest();
            }
            if run.below(3) > 0 {
                run.walk();
            }
            run.look();
        }
        for _ in 0..=REFRESH + 1 {
            run.quiet += 1;
            run.look();
        }
        if run.margin == 0.0 {
            for g in 0..GUESTS {
                run.check_periods(g, &run.facts.groups(&run.stage, g));
            }
        }
    }
}

#[test]
fn what_is_seen_is_what_the_model_says() {
    (0..60).for_each(|seed| run(seed, 12));
}
