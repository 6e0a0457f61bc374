//! What a host knows about its entities for the sake of relevance: where they are, in which rooms, what belongs together, and who
//! owns what. Kept up to date once per send, at a cost that follows change; [`look`](crate::look) then asks it for each guest.

use crate::entities::{Entities, Record};
use crate::error::UsageError;
use crate::glance::Chart;
use crate::grid::Grid;
use crate::groups::Groups;
use crate::kinship::Kinship;
use crate::look::{Memo, Scratch};
use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::policy::OWNER_SLOTS;
use crate::presence::{Owners, UNOWNED};
use crate::relevance::{Detail, Limit, Names, PlaceOf, Reading, Relevance, Room, Rule, Typed};
use crate::schema::{Inner, SharedResources};
use hecs::{Entity, World};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Of positions in lists: none.
const NONE: u32 = u32::MAX;
/// Size of a cell where the settings say nothing of it.
const CELL: f32 = 16.0;
/// After so many rounds the grid's borders are drawn in, if they became too wide.
const TIGHTEN: u32 = 64;

/// Rooms, each with how many times it was entered. Sorted by room.
pub(crate) type Rooms = SmallVec<[(Room, u32); 2]>;

pub(crate) struct Scope {
    pub(crate) limit: Limit,
    /// Square of what the distance of something seen is multiplied with.
    pub(crate) stay: f64,
    pub(crate) refresh: u64,
    pub(crate) cell: f32,
    pub(crate) places: Vec<PlaceOf>,
    pub(crate) rules: Vec<Rule>,
    /// The bit of the component, and who may see it.
    pub(crate) shows: Vec<(u64, Rule)>,
    /// Bit k: kind k is seen at any distance.
    always: u64,
    /// The kind that carries the resources that travel: nothing hides it.
    pub(crate) shared: Option<u8>,
    /// By kind.
    pub(crate) weights: Vec<f32>,
    pub(crate) detail: Option<Detail>,

    pub(crate) hot: Vec<Hot>,
    /// By slot, too, each in a list of its own: what a refresh goes through for all entities has to be small.
    nets: Vec<NetId>,
    pub(crate) owners: Vec<Owners>,
    pub(crate) handles: Vec<Entity>,
    free_at: Vec<u32>,
    pub(crate) grid: Grid,
    pub(crate) groups: Groups,
    kinship: Kinship,
    pub(crate) rooms: FxHashMap<u32, Rooms>,
    /// What guests own, lowest name first.
    pub(crate) owned: FxHashMap<PeerId, Vec<(NetId, u32)>>,
    /// The leads of groups that are not limited by distance.
    pub(crate) free: Vec<u32>,
    pub(crate) log: Log,
    /// Rises whenever anything moved or was logged.
    pub(crate) version: u64,
    births: u32,
    round: u32,
    readings: Vec<Reading>,
    touched: Vec<u32>,

    pub(crate) memo: Vec<Memo>,
    pub(crate) looks: u32,
    pub(crate) scratch: Scratch,
    pub(crate) chart: Chart,
}

/// Has the entity a place?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Placed {
    /// No: it is not limited by distance.
    #[default]
    No,
    Yes,
    /// Infinitely far from everything.
    Nowhere,
}

/// What is asked of an entity all the time.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hot {
    pub(crate) at: [f32; 3],
    /// Tells this entity from others that had its slot before.
    pub(crate) born: u32,
    pub(crate) placed: Placed,
    pub(crate) kind: u8,
    pub(crate) alive: bool,
    /// It is in rooms. Rooms may be entered before the entity is known here.
    pub(crate) roomed: bool,
    pub(crate) always: bool,
    /// A guest owns it, or a part of it.
    pub(crate) owned: bool,
    /// It stands for a group that is not limited by distance.
    pub(crate) free: bool,
}

pub(crate) const NO_OWNERS: Owners = [UNOWNED; OWNER_SLOTS];

/// Slots about which something has changed that a guest that looks has to look at: births and ends, rooms, owners, groups. It
/// reaches back to the round before the last; who has not looked since then looks at everything.
#[derive(Default)]
pub(crate) struct Log {
    slots: Vec<u32>,
    /// The number of the first one.
    pub(crate) start: u64,
    /// How many there were at the last round.
    mark: usize,
}

impl Log {
    fn push(&mut self, slot: u32) {
        self.slots.push(slot);
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.slots.len() as u64
    }

    /// What was logged since number `from`, which is at least `start`.
    pub(crate) fn since(&self, from: u64) -> &[u32] {
        &self.slots[(from - self.start) as usize..]
    }

    /// Was anything logged since the last round?
    fn is_fresh(&self) -> bool {
        self.slots.len() > self.mark
    }

    fn turn(&mut self) {
        self.slots.drain(..self.mark);
        self.start += self.mark as u64;
        self.mark = self.slots.len();
    }
}

impl Scope {
    /// # Errors
    /// [`UsageError::NotInSchema`] for a kind or component that the settings name.
    pub(crate) fn new(settings: Relevance, schema: &Inner) -> Result<Self, UsageError> {
        let index = |typed: &Typed| (typed.index)(schema).ok_or(UsageError::NotInSchema(typed.name));
        let mut always = 0;
        for kind in &settings.always {
            always |= 1 << index(kind)?;
        }
        let shared = schema.kind_of::<SharedResources>();
        always |= shared.map_or(0, |kind| 1 << kind);
        let mut weights = vec![1.0; schema.kinds.len()];
        for (kind, weight) in &settings.weights {
            weights[index(kind)?] = *weight;
        }
        let mut shows = Vec::new();
        for (component, rule) in settings.shows {
            shows.push((1 << index(&component)?, rule));
        }
        let half = match settings.limit {
            Limit::Within(radius) if radius.is_finite() && radius > 0.0 => (radius / 2.0).max(f32::MIN_POSITIVE),
            _ => CELL,
        };
        let cell = settings.cell.unwrap_or(half);
        Ok(Self {
            limit: settings.limit,
            stay: (1.0 - f64::from(settings.margin)).powi(2),
            refresh: u64::from(settings.refresh),
            cell,
            places: settings.places,
            rules: settings.rules,
            shows,
            always,
            shared: shared.map(|kind| kind as u8),
            weights,
            detail: settings.detail,
            hot: Vec::new(),
            nets: Vec::new(),
            owners: Vec::new(),
            handles: Vec::new(),
            free_at: Vec::new(),
            grid: Grid::new(cell),
            groups: Groups::default(),
            kinship: Kinship::new(schema),
            rooms: FxHashMap::default(),
            owned: FxHashMap::default(),
            free: Vec::new(),
            log: Log::default(),
            version: 0,
            births: 0,
            round: 0,
            readings: Vec::new(),
            touched: Vec::new(),
            memo: Vec::new(),
            looks: 0,
            scratch: Scratch::default(),
            chart: Chart::default(),
        })
    }

    fn grow(&mut self, slots: u32) {
        let len = slots as usize;
        if self.hot.len() < len {
            self.hot.resize(len, Hot::default());
            self.nets.resize(len, NetId(0));
            self.owners.resize(len, NO_OWNERS);
            self.handles.resize(len, Entity::DANGLING);
            self.free_at.resize(len, NONE);
            self.readings.resize(len, Reading::default());
            self.memo.resize(len, Memo::default());
            self.groups.grow(slots);
        }
    }

    /// A record ended. Must be called for every one, before its slot is used again: rooms and sets of the next entity in the
    /// slot may be told before [`refresh`](Self::refresh) comes to know it.
    pub(crate) fn ended(&mut self, slot: u32) {
        if self.hot.len() <= slot as usize {
            return;
        }
        self.rooms.remove(&slot);
        self.hot[slot as usize].roomed = false;
        if self.hot[slot as usize].alive {
            self.set_free(self.groups.lead(slot), false);
        }
        for i in 0..self.groups.children(slot).len() {
            self.kinship.suspect(self.groups.children(slot)[i]);
        }
        let other = self.groups.members(slot).iter().copied().find(|m| *m != slot);
        self.groups.ended(slot);
        if let Some(other) = other {
            self.assess(self.groups.lead(other));
        }
        if self.hot[slot as usize].alive {
            self.set_owners(slot, NO_OWNERS);
            self.grid.take(slot);
            self.hot[slot as usize] = Hot::default();
            self.nets[slot as usize] = NetId(0);
            self.log.push(slot);
            self.version += 1;
        }
    }

    /// Puts an entity into a room.
    pub(crate) fn join_room(&mut self, slot: u32, room: Room) {
        self.grow(slot + 1);
        if join(self.rooms.entry(slot).or_default(), room) {
            self.hot[slot as usize].roomed = true;
            self.log.push(slot);
            self.version += 1;
        }
    }

    /// Takes it out of a room, if this was the last time that it had entered. Returns whether it was in.
    pub(crate) fn leave_room(&mut self, slot: u32, room: Room) -> bool {
        let Some(rooms) = self.rooms.get_mut(&slot) else { return false };
        let Some(is_out) = leave(rooms, room) else { return false };
        if is_out {
            if rooms.is_empty() {
                self.rooms.remove(&slot);
                self.hot[slot as usize].roomed = false;
            }
            self.log.push(slot);
            self.version += 1;
        }
        true
    }

    /// Lets these, and whatever is seen together with one of them already, come and go together from the next send on.
    pub(crate) fn see_together(&mut self, slots: &[u32]) {
        if let Some(most) = slots.iter().max() {
            self.grow(most + 1);
            self.groups.together(slots);
        }
    }

    /// Takes an entity out of what it is seen together with, from the next send on.
    pub(crate) fn part(&mut self, slot: u32) {
        self.groups.part(slot);
    }

    /// Is there anything that must not wait for the next scheduled send: rules, or changes in rooms and sets?
    pub(crate) fn is_touched(&self) -> bool {
        !self.rules.is_empty() || !self.shows.is_empty() || self.log.is_fresh()
    }

    /// Takes in what has changed since the last time. Once per send, before anybody looks.
    pub(crate) fn refresh(&mut self, world: &World, entities: &Entities, schema: &Inner) {
        self.grow(entities.slots());
        self.log.turn();
        let logged = self.log.end();
        self.round = self.round.wrapping_add(1).max(1);
        // the first one counts, so it is read last
        for place in self.places.iter().rev() {
            (place.all)(world, Names { known: &self.nets, entities }, self.round, &mut self.readings);
        }
        let mut moved = false;
        for slot in 0..entities.slots() {
            let Some(record) = entities.get(slot) else {
                debug_assert!(!self.hot[slot as usize].alive, "the end of slot {slot} was not told");
                continue;
            };
            if !self.hot[slot as usize].alive {
                self.born(slot, record);
            }
            debug_assert_eq!(self.nets[slot as usize], record.net, "the end of slot {slot} was not told");
            if self.owners[slot as usize] != record.owners {
                self.set_owners(slot, record.owners);
                self.log.push(slot);
            }
            moved |= self.place(slot);
        }
        self.kinship.refresh(world, entities, schema, &mut self.groups);
        if !self.groups.is_clean() {
            self.regroup();
        }
        if self.round.is_multiple_of(TIGHTEN) {
            self.grid.tighten();
        }
        self.version += u64::from(moved || self.log.end() != logged);
        self.draw_chart();
    }

    fn born(&mut self, slot: u32, record: &Record) {
        self.births += 1;
        let hot = &mut self.hot[slot as usize];
        let always = self.always >> record.kind & 1 != 0;
        *hot = Hot { born: self.births, kind: record.kind as u8, alive: true, roomed: hot.roomed, always, ..Hot::default() };
        (self.nets[slot as usize], self.handles[slot as usize]) = (record.net, record.entity);
        self.log.push(slot);
        self.assess(self.groups.lead(slot));
    }

    fn set_owners(&mut self, slot: u32, owners: Owners) {
        let (net, old) = (self.nets[slot as usize], std::mem::replace(&mut self.owners[slot as usize], owners));
        self.hot[slot as usize].owned = owners.iter().any(|o| is_guest(o.peer));
        for peer in old.iter().map(|o| o.peer).filter(|p| is_guest(*p)) {
            if let Some(list) = self.owned.get_mut(&peer) {
                if let Ok(at) = list.binary_search(&(net, slot)) {
                    list.remove(at);
                }
                if list.is_empty() {
                    self.owned.remove(&peer);
                }
            }
        }
        for peer in owners.iter().map(|o| o.peer).filter(|p| is_guest(*p)) {
            let list = self.owned.entry(peer).or_default();
            if let Err(at) = list.binary_search(&(net, slot)) {
                list.insert(at, (net, slot));
            }
        }
    }

    /// Takes over what was read of an entity's place. Returns whether it has moved.
    fn place(&mut self, slot: u32) -> bool {
        let reading = self.readings[slot as usize];
        let hot = &mut self.hot[slot as usize];
        if reading.round == self.round && hot.placed == Placed::Yes && reading.at == hot.at {
            return false;
        }
        let placed = match reading.round == self.round {
            false => Placed::No,
            true if reading.at.iter().all(|x| x.is_finite()) => Placed::Yes,
            true => Placed::Nowhere,
        };
        if placed != Placed::Yes && hot.placed == placed {
            return false;
        }
        let old = std::mem::replace(&mut hot.placed, placed);
        if placed == Placed::Yes {
            hot.at = reading.at;
            self.grid.put(slot, reading.at);
        } else {
            self.grid.take(slot);
        }
        if (old == Placed::No) != (placed == Placed::No) {
            self.assess(self.groups.lead(slot));
            self.log.push(slot);
        }
        true
    }

    fn regroup(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.clear();
        self.groups.regroup(&mut touched);
        for &slot in &touched {
            self.set_free(slot, false);
        }
        for &slot in &touched {
            if self.hot[slot as usize].alive {
                self.log.push(slot);
                if self.groups.lead(slot) == slot {
                    self.assess(slot);
                }
            }
        }
        self.touched = touched;
    }

    /// Is the group of this lead limited by distance?
    fn assess(&mut self, lead: u32) {
        let members = self.groups.members(lead);
        let hot = |m: &u32| &self.hot[*m as usize];
        let is_free = members.iter().any(|m| hot(m).always) || members.iter().all(|m| hot(m).placed == Placed::No);
        self.set_free(lead, is_free);
    }

    fn set_free(&mut self, slot: u32, is_free: bool) {
        if std::mem::replace(&mut self.hot[slot as usize].free, is_free) == is_free {
            return;
        }
        if is_free {
            self.free_at[slot as usize] = self.free.len() as u32;
            self.free.push(slot);
        } else {
            let at = std::mem::replace(&mut self.free_at[slot as usize], NONE);
            self.free.swap_remove(at as usize);
            if let Some(&moved) = self.free.get(at as usize) {
                self.free_at[moved as usize] = at;
            }
        }
    }

    /// Is one of the entity's rooms among these?
    pub(crate) fn shares_room(&self, slot: u32, rooms: &Rooms) -> bool {
        !self.hot[slot as usize].roomed
            || self.rooms.get(&slot).is_some_and(|its| its.iter().any(|r| rooms.binary_search_by_key(&r.0, |o| o.0).is_ok()))
    }
}

fn is_guest(peer: PeerId) -> bool {
    peer != PeerId::HOST && peer != PeerId::NOBODY
}

/// Enters a room. Returns whether it was not in it before.
pub(crate) fn join(rooms: &mut Rooms, room: Room) -> bool {
    match rooms.binary_search_by_key(&room, |r| r.0) {
        Ok(at) => {
            rooms[at].1 += 1;
            false
        }
        Err(at) => {
            rooms.insert(at, (room, 1));
            true
        }
    }
}

/// Leaves a room: `Some(true)` if it is out now, `Some(false)` if it had entered more than once, `None` if it was not in.
pub(crate) fn leave(rooms: &mut Rooms, room: Room) -> Option<bool> {
    let at = rooms.binary_search_by_key(&room, |r| r.0).ok()?;
    rooms[at].1 -= 1;
    if rooms[at].1 > 0 {
        return Some(false);
    }
    rooms.remove(at);
    Some(true)
}
