//! Who gets what: the settings of a host.
//!
//! Two notions are kept apart. **Permission** is what a guest may see: rooms, rules, and that a child is seen only by those who
//! may see all its ancestors. It holds at every send, exactly: what a guest may not see any more is taken from it at once.
//! **Interest** is what a guest should get of that: by distance. It is looked at every few sends, and has a margin, so that what
//! walks along a border does not come and go.

use crate::entities::{Entities, Networked};
use crate::netid::NetId;
use crate::peer_id::PeerId;
use crate::presence::Owners;
use crate::schema::Inner;
use hecs::{Component, Entity, World};
use std::any::type_name;
use std::fmt;
use std::sync::Arc;

/// Who gets what. Set on a host before guests join.
///
/// A guest always gets what it owns, with all components, and everything that belongs to the same group. A **group** is an
/// entity with its ancestors and descendants, and with what it was told to be seen together with; its members come and go
/// together, and its distance is that of its nearest member. Entities without any place, and of kinds that are
/// [`always`](Self::always) seen, are not limited by distance; one that hangs on something with a place goes with that.
///
/// ```
/// use tidelock::{Detail, Relevance};
/// struct Position([f32; 3]);
/// struct Invisible;
///
/// let relevance = Relevance::nearest(256)
///     .place::<Position>(|p| p.0)
///     .cell(25.0)
///     .rule(|sight| sight.get::<Invisible>().is_none())
///     .detail(Detail { full: 50.0, slowest: 8 });
/// ```
pub struct Relevance {
    pub(crate) limit: Limit,
    pub(crate) cell: Option<f32>,
    pub(crate) margin: f32,
    pub(crate) refresh: u32,
    pub(crate) places: Vec<PlaceOf>,
    pub(crate) always: Vec<Typed>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) shows: Vec<(Typed, Rule)>,
    pub(crate) weights: Vec<(Typed, f32)>,
    pub(crate) detail: Option<Detail>,
}

impl Relevance {
    /// No limit by distance. Rooms and rules count all the same.
    #[must_use]
    pub fn everything() -> Self {
        Self::limited(Limit::Everything)
    }

    /// The nearest `count` entities. Groups are taken nearest first until `count` entities are reached, so the last group may
    /// exceed it. What the guest owns and what is seen at any distance does not count. The count can be changed per guest.
    #[must_use]
    pub fn nearest(count: usize) -> Self {
        Self::limited(Limit::Nearest(count))
    }

    /// All within `radius`, in units of the world. What is not a positive number counts as 0.
    #[must_use]
    pub fn within(radius: f32) -> Self {
        Self::limited(Limit::Within(radius.max(0.0)))
    }

    fn limited(limit: Limit) -> Self {
        Self {
            limit,
            cell: None,
            margin: 0.15,
            refresh: 4,
            places: Vec::new(),
            always: Vec::new(),
            rules: Vec::new(),
            shows: Vec::new(),
            weights: Vec::new(),
            detail: None,
        }
    }

    /// Where an entity with component `C` is. `C` need not be networked. With several, the first that an entity has counts.
    /// A place that is not finite is infinitely far from everything.
    #[must_use]
    pub fn place<C: Component>(mut self, place: impl Fn(&C) -> [f32; 3] + Send + Sync + 'static) -> Self {
        self.places.push(PlaceOf::new(place));
        self
    }

    /// The size of the cells that places are sorted into, in units of the world. About a third of the distance that a guest
    /// sees is good: much smaller, and many empty cells are visited; much larger, and many entities that are too far. Default:
    /// half the radius of [`within`](Self::within), otherwise 16. What is not a positive finite number is ignored.
    #[must_use]
    pub fn cell(mut self, size: f32) -> Self {
        self.cell = (size.is_finite() && size > 0.0).then_some(size);
        self
    }

    /// What is seen counts as this part nearer than it is, so it stays until something else is clearly nearer, or until it is
    /// clearly beyond the radius. From 0 to 0.9; default 0.15.
    #[must_use]
    pub fn margin(mut self, part: f32) -> Self {
        self.margin = if part.is_nan() { 0.0 } else { part.clamp(0.0, 0.9) };
        self
    }

    /// Every how many sends a guest's surroundings are looked at anew; the guests take turns. At least 1; default 4. A guest
    /// that moves fast is looked after sooner.
    #[must_use]
    pub fn refresh(mut self, sends: u32) -> Self {
        self.refresh = sends.max(1);
        self
    }

    /// Entities of kind `K` are seen whatever their distance, and the group of each with it.
    #[must_use]
    pub fn always<K: Component>(mut self) -> Self {
        self.always.push(Typed::kind::<K>());
        self
    }

    /// A rule of who may see an entity. Of several, all must agree. Asked for everything that a guest sees or is about to see,
    /// at every send: it should be quick, and must not depend on anything but what it is given.
    #[must_use]
    pub fn rule(mut self, agrees: impl Fn(&Sight<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.rules.push(Box::new(agrees));
        self
    }

    /// Component `C` is shown only where this agrees; elsewhere the entity has no such component. Of several for one component,
    /// all must agree. Owners see all components of what they own.
    #[must_use]
    pub fn show_only<C: Component>(mut self, agrees: impl Fn(&Sight<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.shows.push((Typed::component::<C>(), Box::new(agrees)));
        self
    }

    /// How important entities of kind `K` are where not everything has room, against 1 for others. From 1/64 to 64.
    #[must_use]
    pub fn weight<K: Component>(mut self, weight: f32) -> Self {
        let weight = if weight.is_nan() { 1.0 } else { weight.clamp(1.0 / 64.0, 64.0) };
        self.weights.push((Typed::kind::<K>(), weight));
        self
    }

    /// What is far is sent less often.
    #[must_use]
    pub fn detail(mut self, detail: Detail) -> Self {
        self.detail = Some(detail);
        self
    }
}

impl fmt::Debug for Relevance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Relevance");
        out.field("limit", &self.limit).field("margin", &self.margin).field("detail", &self.detail);
        out.field("rules", &self.rules.len()).field("places", &self.places.len()).finish_non_exhaustive()
    }
}

/// Level of detail by distance, in rate: the period doubles with each doubling of the distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detail {
    /// The distance up to which every send counts, in units of the world. What is not a positive number means no limit.
    pub full: f32,
    /// What is farthest is sent at most so many sends apart; 0 counts as 1.
    pub slowest: u8,
}

/// A pair of a guest and an entity, for a rule to judge.
pub struct Sight<'a> {
    pub(crate) peer: PeerId,
    pub(crate) world: &'a World,
    pub(crate) entity: Entity,
    pub(crate) owners: &'a Owners,
}

impl Sight<'_> {
    /// The guest that would see it.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// Does the guest own the entity, or a part of it as co-owner?
    #[must_use]
    pub fn owns(&self) -> bool {
        self.owners.iter().any(|o| o.peer == self.peer)
    }

    /// Who owns the entity.
    #[must_use]
    pub fn owner(&self) -> PeerId {
        self.owners[0].peer
    }

    /// The entity in the host's world.
    #[must_use]
    pub fn entity(&self) -> Entity {
        self.entity
    }

    /// A component of the entity.
    #[must_use]
    pub fn get<C: Component>(&self) -> Option<hecs::Ref<'_, C>> {
        self.world.get::<&C>(self.entity).ok()
    }

    /// The host's world, to look at other entities.
    #[must_use]
    pub fn world(&self) -> &World {
        self.world
    }
}

/// A room, a team, or whatever else divides a session: an entity that is in rooms is for guests that are in one of them. What is
/// in no room is for everybody. Membership is counted: who entered twice has to leave twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Room(pub u64);

/// From where a guest sees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Viewpoint {
    /// From what it owns: of its entities with a place, the one with the lowest name. A guest that has none sees nothing that
    /// is limited by distance.
    #[default]
    Own,
    /// From an entity of the host's world, networked or not.
    Entity(Entity),
    /// From a point. One that is not finite is none.
    Point([f32; 3]),
}

/// Why a guest does not see an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unseen {
    /// There is no such entity any more, or not yet.
    Gone,
    /// It is too far, or enough others are nearer.
    TooFar,
    /// The guest has no viewpoint, and the entity is limited by distance.
    NoViewpoint,
    /// It is in rooms, and the guest is in none of them.
    OtherRoom,
    /// A rule forbids it.
    Rule,
    /// Its parent, or a parent of that, may not be seen.
    Parent,
    /// Nothing is against it: it will be shown when the guest's surroundings are looked at next, within a few sends.
    Soon,
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "there is no such entity",
            Self::TooFar => "it is too far from the guest's viewpoint, or enough others are nearer",
            Self::NoViewpoint => "the guest has no viewpoint",
            Self::OtherRoom => "the guest is in none of the entity's rooms",
            Self::Rule => "a rule forbids it",
            Self::Parent => "an entity that it hangs on may not be seen",
            Self::Soon => "it will be shown within a few sends",
        })
    }
}

/// What limits a guest's interest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    Everything,
    Nearest(usize),
    Within(f32),
}

pub(crate) type Rule = Box<dyn Fn(&Sight<'_>) -> bool + Send + Sync>;

/// A type whose index in the schema is looked up when the schema is known.
pub(crate) struct Typed {
    pub(crate) name: &'static str,
    pub(crate) index: fn(&Inner) -> Option<usize>,
}

impl Typed {
    fn kind<K: 'static>() -> Self {
        Self { name: type_name::<K>(), index: Inner::kind_of::<K> }
    }

    fn component<C: 'static>() -> Self {
        Self { name: type_name::<C>(), index: Inner::component_of::<C> }
    }
}

/// A place that was read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reading {
    pub(crate) at: [f32; 3],
    /// The round of reading it is of.
    pub(crate) round: u32,
}

/// Tells marks of this session from those of another one, whose names are not ours.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    /// By slot, as last known. Asked first: it is much smaller than the register.
    pub(crate) known: &'a [NetId],
    pub(crate) entities: &'a Entities,
}

impl Names<'_> {
    #[inline]
    fn has(self, mark: &Networked) -> bool {
        self.known.get(mark.slot() as usize) == Some(&mark.id())
            || self.entities.get(mark.slot()).is_some_and(|record| record.net == mark.id())
    }
}

type ReadAll = Box<dyn Fn(&World, Names<'_>, u32, &mut [Reading]) + Send + Sync>;
type ReadOne = Box<dyn Fn(&World, Entity) -> Option<[f32; 3]> + Send + Sync>;

/// Reads places out of one component.
pub(crate) struct PlaceOf {
    /// Of all networked entities, by slot, in the given round.
    pub(crate) all: ReadAll,
    /// Of one entity.
    pub(crate) one: ReadOne,
}

impl PlaceOf {
    fn new<C: Component>(place: impl Fn(&C) -> [f32; 3] + Send + Sync + 'static) -> Self {
        let place = Arc::new(place);
        let single = place.clone();
        let all = move |world: &World, names: Names<'_>, round, readings: &mut [Reading]| {
            for (networked, value) in world.query::<(&Networked, &C)>().iter() {
                if names.has(networked) {
                    readings[networked.slot() as usize] = Reading { at: place(value), round };
                }
            }
        };
        let one = move |world: &World, entity| world.get::<&C>(entity).ok().map(|value| single(&value));
        Self { all: Box::new(all), one: Box::new(one) }
    }
}
