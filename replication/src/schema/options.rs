//! What can be chosen for a component and for a kind.

use crate::column::{Blend, Validator, Write};
use crate::interpolate::Interpolate;
use crate::policy::{Absent, Policy};
use crate::requests::Requests;
use crate::rewind::kept::{Keeper, Kept};
use hecs::Component;
use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;

/// How one component travels, is drawn and kept.
pub struct ComponentOptions<C> {
    pub(super) policy: Option<Arc<dyn Policy>>,
    pub(super) validators: Vec<Validator<C>>,
    pub(super) blend: Option<Blend<C>>,
    pub(super) checkpoint: Option<Box<dyn Kept>>,
    pub(super) reckoned: bool,
    pub(super) parent: bool,
    pub(super) notify: bool,
    pub(super) tolerance: u32,
    pub(super) velocity: Option<TypeId>,
}

impl<C: Component> ComponentOptions<C> {
    pub(super) fn new() -> Self {
        Self {
            policy: None,
            validators: Vec::new(),
            blend: None,
            checkpoint: None,
            reckoned: false,
            parent: false,
            notify: false,
            tolerance: 0,
            velocity: None,
        }
    }

    /// Who has authority over this component, whatever the kind's policy says.
    #[must_use]
    pub fn authority(mut self, policy: impl Policy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Checks what a peer wrote before the host takes it: bounds, top speed, rate. Several are asked in order; the first `Err`
    /// refuses the value.
    #[must_use]
    pub fn validate(
        mut self,
        check: impl Fn(Option<&C>, &C, &Write) -> Result<(), &'static str> + Send + Sync + 'static,
    ) -> Self {
        self.validators.push(Box::new(check));
        self
    }

    /// Is drawn between two samples, blended with `blend`; for types that are not [`Interpolate`].
    #[must_use]
    pub fn interpolate_with(mut self, blend: impl Fn(&C, &C, f32) -> C + Send + Sync + 'static) -> Self {
        self.blend = Some(Arc::new(blend));
        self
    }

    /// The same as [`extrapolate`](Self::extrapolate), for types that are not [`Interpolate`].
    #[must_use]
    pub fn extrapolate_with(mut self, blend: impl Fn(&C, &C, f32) -> C + Send + Sync + 'static) -> Self {
        self.reckoned = true;
        self.interpolate_with(blend)
    }

    /// The component's first entity field names the parent: the entity does not appear at a guest before its parent does.
    #[must_use]
    pub fn parent(mut self) -> Self {
        self.parent = true;
        self
    }

    /// By how many steps of the simulation grid what an owner predicted may be off until it is corrected; none if nothing is said.
    /// For simulations that do not come out the same on all machines: see [`Host::predicted`](crate::policy::Host::predicted).
    #[must_use]
    pub fn tolerance(mut self, steps: u32) -> Self {
        self.tolerance = steps;
        self
    }

    /// Component `V` says how this one changes: by how many of its units a second, number by number, in the order in which the fields
    /// stand. Both have as many fields in steps or of integers. Where an entity has both, the receiver of an older value carries it on
    /// with the velocity, and only what that was off by is sent: of a position that is moved by its velocity, next to nothing.
    #[must_use]
    pub fn velocity<V: Component>(mut self) -> Self {
        self.velocity = Some(TypeId::of::<V>());
        self
    }

    /// Changes of its value are told as [`News::Changed`](crate::News::Changed). Off by default: news of insertion and removal
    /// come without it.
    #[must_use]
    pub fn notify_changes(mut self) -> Self {
        self.notify = true;
        self
    }
}

impl<C: Component + Interpolate> ComponentOptions<C> {
    /// Is drawn between two samples.
    #[must_use]
    pub fn interpolate(self) -> Self {
        self.interpolate_with(C::interpolate)
    }
}

impl<C: Component + Interpolate> ComponentOptions<C> {
    /// Is drawn where it is by now, not a little behind: the newest sample, carried on with the motion that led to it. For what one
    /// aims at or dodges. Where this peer's ticks run ahead of the session ([`Peer::lead`](crate::Peer::lead)), it is drawn at their
    /// time, so that it meets what this peer predicts.
    ///
    /// The motion is taken from the last [`Interpolation::ease`](crate::Interpolation::ease) of samples, and carried on for at most
    /// [`Interpolation::reckon`](crate::Interpolation::reckon). What a new sample says otherwise comes in over `ease`: after a
    /// change of motion what is drawn is on the new track two times `ease` after the first sample of it has come. Until then it
    /// has gone on as before, for as long as the samples take and then that: never further. Over a teleport it jumps.
    #[must_use]
    pub fn extrapolate(self) -> Self {
        self.extrapolate_with(C::interpolate)
    }
}

impl<C: Component + crate::checkpoint::Checkpoint> ComponentOptions<C> {
    /// Is kept exactly, and can be rewound.
    #[must_use]
    pub fn checkpoint(mut self) -> Self {
        self.checkpoint = Some(Box::new(Keeper::<C>(PhantomData)));
        self
    }
}

/// Options of a kind.
pub struct KindOptions {
    pub(super) overrides: Vec<(TypeId, Arc<dyn Policy>)>,
    pub(super) absent: Absent,
    pub(super) requests: Requests,
    pub(super) rewound: bool,
}

impl KindOptions {
    pub(super) fn new() -> Self {
        Self { overrides: Vec::new(), absent: Absent::default(), requests: Requests::default(), rewound: false }
    }

    /// Entities of this kind are saved every tick and can be taken back, on a peer that keeps saves: see
    /// [`Peer::keep_saves`](crate::Peer::keep_saves). Only components registered with `.checkpoint()` are.
    #[must_use]
    pub fn rewound(mut self) -> Self {
        self.rewound = true;
        self
    }

    /// Who has authority over component `C` in entities of this kind.
    #[must_use]
    pub fn authority<C: Component>(mut self, policy: impl Policy) -> Self {
        self.overrides.push((TypeId::of::<C>(), Arc::new(policy)));
        self
    }

    /// What the host does when a guest asks to own one of the entities: see
    /// [`Peer::request_ownership`](crate::Peer::request_ownership).
    #[must_use]
    pub fn requests(mut self, requests: Requests) -> Self {
        self.requests = requests;
        self
    }

    /// What becomes of the entities when their owner leaves.
    #[must_use]
    pub fn when_owner_leaves(mut self, absent: Absent) -> Self {
        self.absent = absent;
        self
    }
}
