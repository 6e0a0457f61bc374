//! Which entities come and go together: parents with children, and what was told to be seen together.

use smallvec::SmallVec;

/// No group, or no set.
const NONE: u32 = u32::MAX;

#[derive(Default)]
pub(crate) struct Groups {
    /// By slot: its group, or none if it is alone. Apart from the links because it is asked for most often.
    of: Vec<u32>,
    /// By slot: itself, so that one alone can be had as a slice.
    selves: Vec<u32>,
    links: Vec<Links>,
    /// Members in an order in which parents come before their children.
    groups: Vec<Vec<u32>>,
    vacant: Vec<u32>,
    /// What is seen together. Empty ones are used again.
    sets: Vec<Vec<u32>>,
    vacant_sets: Vec<u32>,
    /// Slots whose links have changed.
    dirty: Vec<u32>,
    pool: Vec<u32>,
    found: Vec<u32>,
}

#[derive(Clone, Default)]
struct Links {
    parents: SmallVec<[u32; 2]>,
    children: SmallVec<[u32; 4]>,
    /// The set it is in, counted from 1; 0 is none.
    set: u32,
    /// Place within its group.
    order: u32,
    /// Parents that are not in order yet, while a group is put in order.
    waiting: u32,
    dirty: bool,
    pooled: bool,
}

impl Groups {
    /// Makes room for slots below `slots`.
    pub(crate) fn grow(&mut self, slots: u32) {
        if self.of.len() < slots as usize {
            self.selves.extend(self.of.len() as u32..slots);
            self.of.resize(slots as usize, NONE);
            self.links.resize(slots as usize, Links::default());
        }
    }

    /// All members of the slot's group, parents first; itself alone if it has none.
    pub(crate) fn members(&self, slot: u32) -> &[u32] {
        match self.of[slot as usize] {
            NONE => std::slice::from_ref(&self.selves[slot as usize]),
            group => &self.groups[group as usize],
        }
    }

    /// The member that stands for the slot's group.
    #[inline]
    pub(crate) fn lead(&self, slot: u32) -> u32 {
        match self.of[slot as usize] {
            NONE => slot,
            group => self.groups[group as usize][0],
        }
    }

    #[inline]
    pub(crate) fn is_alone(&self, slot: u32) -> bool {
        self.of[slot as usize] == NONE
    }

    /// The parents of a slot. One that comes later in the group's order is in a circle of parents, which has no end, and does
    /// not count.
    pub(crate) fn parents(&self, slot: u32) -> impl Iterator<Item = u32> + '_ {
        let links = &self.links[slot as usize];
        links.parents.iter().copied().filter(|p| self.links[*p as usize].order < links.order)
    }

    pub(crate) fn children(&self, slot: u32) -> &[u32] {
        self.links.get(slot as usize).map_or(&[], |l| &l.children)
    }

    fn soil(&mut self, slot: u32) {
        let links = &mut self.links[slot as usize];
        if !std::mem::replace(&mut links.dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// Sets what a slot hangs on.
    pub(crate) fn set_parents(&mut self, slot: u32, parents: &[u32]) {
        let mut new = SmallVec::<[u32; 2]>::new();
        for &parent in parents {
            if parent != slot && !new.contains(&parent) {
                new.push(parent);
            }
        }
        if self.links[slot as usize].parents == new {
            return;
        }
        let old = std::mem::replace(&mut self.links[slot as usize].parents, new.clone());
        for &parent in old.iter().filter(|p| !new.contains(p)) {
            self.links[parent as usize].children.retain(|c| *c != slot);
            self.soil(parent);
        }
        for &parent in new.iter().filter(|p| !old.contains(p)) {
            self.links[parent as usize].children.push(slot);
            self.soil(parent);
        }
        self.soil(slot);
    }

    /// Lets these, and whatever is seen together with one of them already, be seen together.
    pub(crate) fn together(&mut self, slots: &[u32]) {
        let Some(&most) = slots.iter().max() else { return };
        self.grow(most + 1);
        let known = slots.iter().map(|s| self.links[*s as usize].set).find(|set| *set != 0);
        let set = known.unwrap_or_else(|| {
            self.vacant_sets.pop().unwrap_or_else(|| {
                self.sets.push(Vec::new());
                self.sets.len() as u32
            })
        });
        for &slot in slots {
            let other = self.links[slot as usize].set;
            if other == set {
                continue;
            }
            let joining = if other == 0 {
                vec![slot]
            } else {
                self.vacant_sets.push(other);
                std::mem::take(&mut self.sets[other as usize - 1])
            };
            for &slot in &joining {
                self.links[slot as usize].set = set;
                self.soil(slot);
            }
            self.sets[set as usize - 1].extend(joining);
        }
        // one that was in the set before, too: what is new is linked with it
        slots.iter().for_each(|slot| self.soil(*slot));
    }

    /// Takes a slot out of what it is seen together with.
    pub(crate) fn part(&mut self, slot: u32) {
        let Some(links) = self.links.get_mut(slot as usize) else { return };
        let set = std::mem::take(&mut links.set);
        if set == 0 {
            return;
        }
        let members = &mut self.sets[set as usize - 1];
        members.retain(|m| *m != slot);
        if let Some(&other) = members.first() {
            self.soil(other);
        } else {
            self.vacant_sets.push(set);
        }
        self.soil(slot);
    }

    /// Takes a slot out of everything.
    pub(crate) fn ended(&mut self, slot: u32) {
        if self.links.len() <= slot as usize {
            return;
        }
        self.part(slot);
        self.set_parents(slot, &[]);
        for child in std::mem::take(&mut self.links[slot as usize].children) {
            self.links[child as usize].parents.retain(|p| *p != slot);
            self.soil(child);
        }
        let group = std::mem::replace(&mut self.of[slot as usize], NONE);
        if group != NONE {
            self.groups[group as usize].retain(|m| *m != slot);
            match self.groups[group as usize].first() {
                Some(&other) => self.soil(other),
                None => self.vacant.push(group),
            }
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Forms the groups anew around everything whose links have changed, and adds all members of these groups to `touched`.
    pub(crate) fn regroup(&mut self, touched: &mut Vec<u32>) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut pool = std::mem::take(&mut self.pool);
        pool.clear();
        for &slot in &dirty {
            self.links[slot as usize].dirty = false;
            self.dissolve(slot, &mut pool);
        }
        let mut found = std::mem::take(&mut self.found);
        for &slot in &pool {
            // what another one has reached is not pooled any more
            if self.links[slot as usize].pooled {
                self.gather(slot, &mut found);
                if found.len() > 1 {
                    self.form(&mut found);
                }
            }
        }
        touched.extend_from_slice(&pool);
        (self.found, self.pool, self.dirty) = (found, pool, dirty);
        self.dirty.clear();
    }

    fn dissolve(&mut self, slot: u32, pool: &mut Vec<u32>) {
        let group = self.of[slot as usize];
        if group == NONE {
            if !std::mem::replace(&mut self.links[slot as usize].pooled, true) {
                pool.push(slot);
            }
            return;
        }
        let mut members = std::mem::take(&mut self.groups[group as usize]);
        for member in members.drain(..) {
            self.of[member as usize] = NONE;
            let links = &mut self.links[member as usize];
            (links.order, links.pooled) = (0, true);
            pool.push(member);
        }
        self.groups[group as usize] = members;
        self.vacant.push(group);
    }

    /// Everything that is linked with a slot, over any number of links.
    fn gather(&mut self, slot: u32, found: &mut Vec<u32>) {
        found.clear();
        found.push(slot);
        self.links[slot as usize].pooled = false;
        let mut next = 0;
        while next < found.len() {
            let slot = found[next] as usize;
            next += 1;
            let set = match self.links[slot].set {
                0 => 0..0,
                set => 0..self.sets[set as usize - 1].len(),
            };
            for i in 0..self.links[slot].parents.len() {
                self.reach(self.links[slot].parents[i], found);
            }
            for i in 0..self.links[slot].children.len() {
                self.reach(self.links[slot].children[i], found);
            }
            for i in set {
                self.reach(self.sets[self.links[slot].set as usize - 1][i], found);
            }
        }
    }

    fn reach(&mut self, slot: u32, found: &mut Vec<u32>) {
        // both ends of every new link are dirty, so whatever can be reached is pooled until it is reached
        if std::mem::take(&mut self.links[slot as usize].pooled) {
            found.push(slot);
        }
    }

    /// Makes a group of slots, and puts parents before children.
    fn form(&mut self, found: &mut [u32]) {
        found.sort_unstable();
        let group = self.vacant.pop().unwrap_or_else(|| {
            self.groups.push(Vec::new());
            self.groups.len() as u32 - 1
        });
        let mut members = std::mem::take(&mut self.groups[group as usize]);
        for &slot in &*found {
            let links = &mut self.links[slot as usize];
            links.waiting = links.parents.len() as u32;
            if links.waiting == 0 {
                members.push(slot);
            }
        }
        let mut next = 0;
        while next < members.len() {
            for i in 0..self.links[members[next] as usize].children.len() {
                let child = self.links[members[next] as usize].children[i];
                let waiting = &mut self.links[child as usize].waiting;
                *waiting -= 1;
                if *waiting == 0 {
                    members.push(child);
                }
            }
            next += 1;
        }
        // a circle has no first one; it gets an order all the same
        members.extend(found.iter().filter(|s| self.links[**s as usize].waiting > 0));
        for (order, &slot) in members.iter().enumerate() {
            self.of[slot as usize] = group;
            self.links[slot as usize].order = order as u32;
        }
        self.groups[group as usize] = members;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(slots: u32) -> Groups {
        let mut groups = Groups::default();
        groups.grow(slots);
        groups
    }

    fn settle(groups: &mut Groups) -> Vec<u32> {
        let mut touched = Vec::new();
        groups.regroup(&mut touched);
        touched.sort_unstable();
        touched
    }

    #[test]
    fn parents_stand_before_children_and_groups_merge_and_part() {
        let mut g = groups(10);
        g.set_parents(3, &[5]);
        g.set_parents(5, &[9]);
        g.set_parents(0, &[3]);
        assert_eq!(settle(&mut g), [0, 3, 5, 9]);
        assert_eq!(g.members(0), [9, 5, 3, 0]);
        g.together(&[1, 2]);
        g.together(&[2, 9]);
        settle(&mut g);
        assert_eq!(g.members(1).len(), 6);
        g.together(&[7, 1]);
        settle(&mut g);
        assert_eq!(g.members(7).len(), 7, "the first one is new, the others are not");
        g.part(7);
        settle(&mut g);
        g.set_parents(3, &[]);
        settle(&mut g);
        assert_eq!(g.members(0), [3, 0]);
        assert_eq!(g.members(5).len(), 4);
        g.part(9);
        assert_eq!(settle(&mut g), [1, 2, 5, 9]);
        assert_eq!(g.members(9), [9, 5]);
        assert!(g.is_clean());
        assert!(settle(&mut g).is_empty());
    }

    #[test]
    fn the_end_of_a_member_parts_what_only_it_held_together() {
        let mut g = groups(6);
        g.set_parents(1, &[0]);
        g.set_parents(2, &[0]);
        g.set_parents(3, &[2, 1]);
        g.together(&[4, 5]);
        settle(&mut g);
        assert_eq!(g.members(3), [0, 1, 2, 3]);
        g.ended(0);
        assert_eq!(g.members(3), [1, 2, 3], "at once");
        g.ended(3);
        settle(&mut g);
        assert!(g.is_alone(1) && g.is_alone(2));
        g.ended(4);
        settle(&mut g);
        assert!(g.is_alone(5));
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let mut g = groups(4);
        g.set_parents(0, &[1, 0]);
        g.set_parents(1, &[2]);
        g.set_parents(2, &[0]);
        g.set_parents(3, &[2]);
        settle(&mut g);
        assert_eq!(g.members(0), [0, 1, 2, 3]);
        let mut at = 3;
        let mut steps = 0;
        while let Some(parent) = g.parents(at).next() {
            at = parent;
            steps += 1;
            assert!(steps < 5);
        }
    }
}
