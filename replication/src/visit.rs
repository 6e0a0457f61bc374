//! Which entities a step visits: those with the mark of its timeline, and in a step that is run again only those of them that went
//! back. Marks stay on an entity whatever step is run, so that steps of different timelines move nothing in the world.

use crate::entities::{InLockstep, InRollback, Simulated, Steered};
use crate::policy::Timeline;
use crate::rewind::Rewound;
use hecs::{Entity, Query, QueryBorrow, QueryIter, View, With, Without, World};

type New<Q> = With<Q, &'static Simulated>;
type Again<Q> = With<Q, (&'static Simulated, &'static Rewound)>;
type Guessed<Q> = With<Q, &'static InRollback>;
type Sealed<Q> = With<Q, &'static InLockstep>;
type Ahead<Q> = With<Q, (&'static InLockstep, &'static Steered)>;

/// What a step visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// All that this peer simulates of the session's own timeline.
    New,
    /// The same, as far as it went back.
    Again,
    /// All of the rollback timeline: whenever it is run.
    Rollback,
    /// All of the lockstep timeline.
    Lockstep,
    /// What this peer steers of it.
    Preview,
}

impl Visit {
    pub(crate) fn of(line: Timeline, rerun: bool) -> Self {
        match (line, rerun) {
            (Timeline::Session, false) => Self::New,
            (Timeline::Session, true) => Self::Again,
            (Timeline::Rollback, _) => Self::Rollback,
            (Timeline::Lockstep, _) => Self::Lockstep,
        }
    }
}

/// The entities of a step that a query fits: what [`Step::query`](crate::Step::query) gives. In no order that peers share.
pub struct Visited<'w, Q: Query> {
    world: &'w World,
    visit: Visit,
    borrowed: Borrowed<'w, Q>,
}

enum Borrowed<'w, Q: Query> {
    New(QueryBorrow<'w, New<Q>>),
    Again(QueryBorrow<'w, Again<Q>>),
    Rollback(QueryBorrow<'w, Guessed<Q>>),
    Lockstep(QueryBorrow<'w, Sealed<Q>>),
    Preview(QueryBorrow<'w, Ahead<Q>>),
}

impl<'w, Q: Query> Visited<'w, Q> {
    pub(crate) fn new(world: &'w World, visit: Visit) -> Self {
        let borrowed = match visit {
            Visit::New => Borrowed::New(world.query()),
            Visit::Again => Borrowed::Again(world.query()),
            Visit::Rollback => Borrowed::Rollback(world.query()),
            Visit::Lockstep => Borrowed::Lockstep(world.query()),
            Visit::Preview => Borrowed::Preview(world.query()),
        };
        Self { world, visit, borrowed }
    }

    /// Goes through them.
    pub fn iter(&mut self) -> VisitedIter<'_, Q> {
        VisitedIter(match &mut self.borrowed {
            Borrowed::New(borrow) => Iter::New(borrow.iter()),
            Borrowed::Again(borrow) => Iter::Again(borrow.iter()),
            Borrowed::Rollback(borrow) => Iter::Rollback(borrow.iter()),
            Borrowed::Lockstep(borrow) => Iter::Lockstep(borrow.iter()),
            Borrowed::Preview(borrow) => Iter::Preview(borrow.iter()),
        })
    }

    /// Only those that have what `R` asks for as well.
    #[must_use]
    pub fn with<R: Query>(self) -> Visited<'w, With<Q, R>> {
        Visited::new(self.world, self.visit)
    }

    /// Only those that do not have what `R` asks for.
    #[must_use]
    pub fn without<R: Query>(self) -> Visited<'w, Without<Q, R>> {
        Visited::new(self.world, self.visit)
    }
}

impl<'q, Q: Query> IntoIterator for &'q mut Visited<'_, Q> {
    type Item = Q::Item<'q>;
    type IntoIter = VisitedIter<'q, Q>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator over what a step visits.
pub struct VisitedIter<'q, Q: Query>(Iter<'q, Q>);

enum Iter<'q, Q: Query> {
    New(QueryIter<'q, New<Q>>),
    Again(QueryIter<'q, Again<Q>>),
    Rollback(QueryIter<'q, Guessed<Q>>),
    Lockstep(QueryIter<'q, Sealed<Q>>),
    Preview(QueryIter<'q, Ahead<Q>>),
}

impl<'q, Q: Query> Iterator for VisitedIter<'q, Q> {
    type Item = Q::Item<'q>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Iter::New(iter) => iter.next(),
            Iter::Again(iter) => iter.next(),
            Iter::Rollback(iter) => iter.next(),
            Iter::Lockstep(iter) => iter.next(),
            Iter::Preview(iter) => iter.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Iter::New(iter) => iter.size_hint(),
            Iter::Again(iter) => iter.size_hint(),
            Iter::Rollback(iter) => iter.size_hint(),
            Iter::Lockstep(iter) => iter.size_hint(),
            Iter::Preview(iter) => iter.size_hint(),
        }
    }

    /// The sort of step is asked for once, not once per entity.
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, f: F) -> B {
        match self.0 {
            Iter::New(iter) => iter.fold(init, f),
            Iter::Again(iter) => iter.fold(init, f),
            Iter::Rollback(iter) => iter.fold(init, f),
            Iter::Lockstep(iter) => iter.fold(init, f),
            Iter::Preview(iter) => iter.fold(init, f),
        }
    }
}

/// The same with access by handle, for an order of its own.
pub(crate) enum Views<'w, Q: Query> {
    New(View<'w, New<Q>>),
    Again(View<'w, Again<Q>>),
    Rollback(View<'w, Guessed<Q>>),
    Lockstep(View<'w, Sealed<Q>>),
    Preview(View<'w, Ahead<Q>>),
}

impl<'w, Q: Query> Views<'w, Q> {
    pub(crate) fn new(world: &'w mut World, visit: Visit) -> Self {
        match visit {
            Visit::New => Self::New(world.view_mut()),
            Visit::Again => Self::Again(world.view_mut()),
            Visit::Rollback => Self::Rollback(world.view_mut()),
            Visit::Lockstep => Self::Lockstep(world.view_mut()),
            Visit::Preview => Self::Preview(world.view_mut()),
        }
    }

    pub(crate) fn contains(&self, entity: Entity) -> bool {
        match self {
            Self::New(view) => view.contains(entity),
            Self::Again(view) => view.contains(entity),
            Self::Rollback(view) => view.contains(entity),
            Self::Lockstep(view) => view.contains(entity),
            Self::Preview(view) => view.contains(entity),
        }
    }

    pub(crate) fn get_mut(&mut self, entity: Entity) -> Option<Q::Item<'_>> {
        match self {
            Self::New(view) => view.get_mut(entity),
            Self::Again(view) => view.get_mut(entity),
            Self::Rollback(view) => view.get_mut(entity),
            Self::Lockstep(view) => view.get_mut(entity),
            Self::Preview(view) => view.get_mut(entity),
        }
    }
}
