//! Policies under which every peer computes an entity from the same inputs.

use super::{Apply, Facts, Policy, Refusal, Share, Timeline};
use crate::peer_id::PeerId;

/// Every peer runs the entities' steps, with the same inputs and orders in every tick, which the host seals. Nothing of their
/// state travels, so their number costs no traffic; a tick is run when its inputs are known.
///
/// What their steps read must be the same everywhere: entities of the same timeline, resources of it, inputs and orders. What an
/// owner or the host publishes is not; it comes in as input.
///
/// Their entities are spawned and despawned in steps of their timeline alone, by every peer alike; what there is from the start, in
/// the first of them, which a resource of the timeline can tell. All belong to the host: whose input steers one, a component says.
/// Who joins late gets the state.
///
/// ```
/// # use std::{mem, time::Duration};
/// # use tidelock::{Checkpoint, Config, Peer, Replicate, Schema, policy::{Lockstep, Timeline}};
/// # #[derive(Clone, Copy, Checkpoint)] struct At(i32);
/// # #[derive(Clone, Copy, Default, Checkpoint)] struct Begun(bool);
/// # #[derive(Clone, Copy, Default)] struct Walker;
/// # #[derive(Replicate)] struct Go(i32);
/// let schema = Schema::builder("crowd")
///     .checkpoint::<At>("at") // does not travel
///     .resource_of::<Begun>("begun", Timeline::Lockstep)
///     .kind::<Walker>("walker", Lockstep::sealed())
///     .order::<Go>("go")
///     .build()?;
/// # let (mut world, mut peer) = (hecs::World::new(), Peer::alone(schema, Config::default())?);
/// # for frame in 0..20 {
/// # if frame == 10 { peer.order(&world, &Go(3))?; }
/// # peer.receive(Duration::from_millis(17) * frame, &mut world)?;
/// while let Some(mut step) = peer.next_step(&mut world) {
///     if step.timeline() != Timeline::Lockstep {
///         continue;
///     }
///     if !mem::replace(&mut step.resource::<Begun>(&mut world)?.0, true) {
///         step.spawn(&mut world, Walker, (At(0),))?;
///     }
///     for (_who, Go(by)) in step.orders::<Go>(&world)? {
///         step.query::<&mut At>(&world).iter().for_each(|at| at.0 += by);
///     }
/// }
/// # }
/// # assert_eq!(world.query::<&At>().iter().map(|at| at.0).collect::<Vec<_>>(), [3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockstep {
    _sealed: (),
}

impl Lockstep {
    /// The host seals the inputs of a tick when it runs it: nobody waits for a slow peer, whose orders take the next open tick.
    #[must_use]
    pub fn sealed() -> Self {
        Self { _sealed: () }
    }
}

impl Policy for Lockstep {
    fn name(&self) -> &'static str {
        "lockstep"
    }

    fn share(&self, _: Facts) -> Share {
        Share::Inputs
    }

    fn accept(&self, _: Facts, _: PeerId) -> Result<(), Refusal> {
        Err(Refusal::NotShared)
    }

    fn lifetime(&self, _: Facts, _: PeerId) -> bool {
        false
    }

    fn apply(&self, _: Facts) -> Apply {
        Apply::Set
    }

    fn timeline(&self) -> Timeline {
        Timeline::Lockstep
    }
}

/// Every peer runs the entities' steps at once, with its own inputs and a guess of the others'. When the host has sealed a tick's
/// inputs and they are others than was guessed, the world is taken back to that tick and run again.
///
/// The same holds for what their steps read, and for how entities come and go, as in [`Lockstep`]; but there are no orders, since
/// what is not sealed yet cannot be guessed: what happens once is a [`Press`](crate::Press) in the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollback;

impl Policy for Rollback {
    fn name(&self) -> &'static str {
        "rollback"
    }

    fn share(&self, _: Facts) -> Share {
        Share::Inputs
    }

    fn accept(&self, _: Facts, _: PeerId) -> Result<(), Refusal> {
        Err(Refusal::NotShared)
    }

    fn lifetime(&self, _: Facts, _: PeerId) -> bool {
        false
    }

    fn apply(&self, _: Facts) -> Apply {
        Apply::Set
    }

    fn timeline(&self) -> Timeline {
        Timeline::Rollback
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody publishes, nobody is believed, and nobody spawns or despawns but by a step that all run.
    #[test]
    fn the_truth_tables_of_lockstep_and_rollback() {
        let policies: [(&dyn Policy, Timeline); 2] = [(&Lockstep::sealed(), Timeline::Lockstep), (&Rollback, Timeline::Rollback)];
        let peers = [PeerId::HOST, PeerId(1), PeerId(2), PeerId::NOBODY];
        for (policy, timeline) in policies {
            assert_eq!(policy.timeline(), timeline);
            for (local, owner) in peers.iter().flat_map(|l| peers.map(|o| (*l, o))) {
                let facts = Facts { local, owner, host: PeerId::HOST };
                assert_eq!(policy.share(facts), Share::Inputs);
                assert_eq!(policy.apply(facts), Apply::Set);
                for sender in peers {
                    assert_eq!(policy.accept(facts, sender), Err(Refusal::NotShared), "{policy:?} takes state from {sender}");
                    assert!(!policy.lifetime(facts, sender), "{policy:?} lets {sender} spawn from afar");
                }
            }
        }
    }
}
