//! What a guest may see and should get, worked out from nothing but the world.

use super::*;

/// Rooms and sets as the test has set them; the engine keeps its own.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) rooms: BTreeMap<u32, BTreeMap<Room, u32>>,
    /// By guest.
    pub(super) inside: Vec<BTreeMap<Room, u32>>,
    pub(super) viewpoints: Vec<Viewpoint>,
    pub(super) tiers: Vec<Option<usize>>,
    pub(super) sets: Vec<BTreeSet<u32>>,
    pub(super) is_ruled: bool,
    /// A component is shown to some only.
    pub(super) is_shown: bool,
    pub(super) limit: Option<Limit>,
}

pub(super) struct Group {
    pub(super) members: BTreeSet<u32>,
    pub(super) permitted: BTreeSet<u32>,
    /// Interest is not limited.
    pub(super) is_given: bool,
    pub(super) square: f64,
    /// Of several at one distance, the lowest comes first; which one stands for a group is the engine's choice.
    pub(super) lead: u32,
}

impl Facts {
    pub(super) fn ended(&mut self, slot: u32) {
        self.rooms.remove(&slot);
        for set in &mut self.sets {
            set.remove(&slot);
        }
    }

    pub(super) fn together(&mut self, slots: &[u32]) {
        let mut all: BTreeSet<u32> = slots.iter().copied().collect();
        self.sets.retain(|set| {
            let meets = set.iter().any(|s| slots.contains(s));
            if meets {
                all.extend(set);
            }
            !meets
        });
        self.sets.push(all);
    }

    pub(super) fn owns(&self, stage: &Stage, g: usize, slot: u32) -> bool {
        let peer = stage.guests[g].viewer.who.peer;
        stage.entities.get(slot).is_some_and(|r| r.owners.iter().any(|o| o.peer == peer))
    }

    /// What is against it, its ancestors aside.
    fn against(&self, stage: &Stage, g: usize, slot: u32) -> Option<Unseen> {
        let rooms = self.rooms.get(&slot).filter(|r| !r.is_empty());
        if rooms.is_some_and(|rooms| !rooms.keys().any(|room| self.inside[g].contains_key(room))) {
            return Some(Unseen::OtherRoom);
        }
        let is_odd = stage.guests[g].viewer.who.peer.0 % 2 == 1;
        let is_refused = self.is_ruled && !is_odd && stage.world.satisfies::<&Odd>(stage.entity(slot));
        is_refused.then_some(Unseen::Rule)
    }

    pub(super) fn ancestors(&self, stage: &Stage, slot: u32) -> Vec<u32> {
        let mut line: Vec<u32> = Vec::new();
        let mut at = slot;
        while let Some(parent) = parent(&stage.world, &stage.entities, at).filter(|p| !line.contains(p)) {
            line.push(parent);
            at = parent;
        }
        line
    }

    pub(super) fn permission(&self, stage: &Stage, g: usize, slot: u32) -> Result<(), Unseen> {
        if self.owns(stage, g, slot) {
            return Ok(());
        }
        self.against(stage, g, slot).map_or(Ok(()), Err)?;
        let may = |a: &u32| self.permission(stage, g, *a).is_ok();
        if self.ancestors(stage, slot).iter().all(may) { Ok(()) } else { Err(Unseen::Parent) }
    }

    pub(super) fn mask(&self, stage: &Stage, g: usize, slot: u32) -> u64 {
        let is_odd = stage.guests[g].viewer.who.peer.0 % 2 == 1;
        let is_shy = self.is_shown && stage.world.satisfies::<&Shy>(stage.entity(slot));
        let secret = stage.schema.0.component_of::<Secret>().expect("it is registered");
        if is_shy && !is_odd && !self.owns(stage, g, slot) { 1 << secret } else { 0 }
    }

    fn at(&self, stage: &Stage, slot: u32) -> Option<[f32; 3]> {
        stage.world.get::<&At>(stage.entity(slot)).ok().map(|at| at.0)
    }

    pub(super) fn eye(&self, stage: &Stage, g: usize) -> Option<[f32; 3]> {
        let finite = |at: &[f32; 3]| at.iter().all(|x| x.is_finite());
        let at = match self.viewpoints[g] {
            Viewpoint::Point(at) => Some(at),
            Viewpoint::Entity(entity) => stage.world.get::<&At>(entity).ok().map(|at| at.0),
            Viewpoint::Own => {
                let own = stage.entities.iter().filter(|(slot, _)| self.owns(stage, g, *slot));
                let mut placed: Vec<_> =
                    own.filter_map(|(s, r)| self.at(stage, s).filter(finite).map(|at| (r.net, at))).collect();
                placed.sort_by_key(|p| p.0);
                placed.first().map(|p| p.1)
            }
        };
        at.filter(finite)
    }

    fn members(&self, stage: &Stage, slot: u32, edges: &BTreeMap<u32, BTreeSet<u32>>) -> BTreeSet<u32> {
        let mut members = BTreeSet::from([slot]);
        let mut open = vec![slot];
        while let Some(at) = open.pop() {
            let sets = self.sets.iter().filter(|s| s.contains(&at)).flatten();
            for next in edges.get(&at).into_iter().flatten().chain(sets) {
                if stage.entities.get(*next).is_some() && members.insert(*next) {
                    open.push(*next);
                }
            }
        }
        members
    }

    pub(super) fn groups(&self, stage: &Stage, g: usize) -> Vec<Group> {
        let mut edges: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (slot, _) in stage.entities.iter() {
            if let Some(parent) = parent(&stage.world, &stage.entities, slot) {
                edges.entry(slot).or_default().insert(parent);
                edges.entry(parent).or_default().insert(slot);
            }
        }
        let eye = self.eye(stage, g);
        let mut done = BTreeSet::<u32>::new();
        let mut groups = Vec::new();
        for (slot, _) in stage.entities.iter() {
            if done.contains(&slot) {
                continue;
            }
            let members = self.members(stage, slot, &edges);
            done.extend(&members);
            let banner = stage.schema.0.kind_of::<Banner>();
            let is_always = members.iter().any(|m| stage.entities.get(*m).map(|r| r.kind) == banner);
            let is_placed = members.iter().any(|m| self.at(stage, *m).is_some());
            let is_own = members.iter().any(|m| self.owns(stage, g, *m));
            let is_given = is_always || !is_placed || is_own || self.limit == Some(Limit::Everything);
            let places = members.iter().filter_map(|m| self.at(stage, *m)).filter(|at| at.iter().all(|x| x.is_finite()));
            let square = places.filter_map(|at| eye.map(|eye| square(at, eye))).fold(f64::INFINITY, f64::min);
            let permitted = members.iter().copied().filter(|m| self.permission(stage, g, *m).is_ok()).collect();
            let lead = stage.scope.groups.lead(slot);
            groups.push(Group { members, permitted, is_given, square, lead });
        }
        groups
    }

    /// What the guest should get right now, without any margin.
    pub(super) fn answer(&self, groups: &[Group], g: usize) -> BTreeSet<u32> {
        let mut answer: BTreeSet<u32> = groups.iter().filter(|g| g.is_given).flat_map(|g| &g.permitted).copied().collect();
        let limited = groups.iter().filter(|g| !g.is_given && !g.permitted.is_empty() && g.square.is_finite());
        let mut limited: Vec<_> = limited.collect();
        limited.sort_by(|a, b| a.square.total_cmp(&b.square).then(a.lead.cmp(&b.lead)));
        let mut count = 0;
        for group in limited {
            let is_in = match self.limit {
                Some(Limit::Nearest(n)) => count < self.tiers[g].unwrap_or(n),
                Some(Limit::Within(radius)) => group.square <= f64::from(radius).powi(2),
                _ => true,
            };
            if is_in {
                count += group.permitted.len();
                answer.extend(&group.permitted);
            }
        }
        answer
    }
}
