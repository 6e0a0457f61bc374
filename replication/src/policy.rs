//! Policies: who writes, who may refuse, how it is applied, and whether time may go on.
//!
//! A policy answers pure questions over a few copied facts. It sees no world, no socket and no clock, so each is a truth table
//! and is tested as one. Answers are asked for once per change of ownership or kind, never per entity per tick, but for
//! [`Policy::accept`], which is asked once per row that arrives.

mod computed;
mod refusals;

pub use computed::{Lockstep, Rollback};
pub use refusals::RefusalCounts;

use crate::peer_id::PeerId;
use std::fmt;
use thiserror::Error;
use tidelock_netcore::tick::Tick;

/// What a policy is asked about: one component of one entity, seen from one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The peer that asks.
    pub local: PeerId,
    /// Who owns the entity (the owner of the policy's own [`Policy::slot`]).
    pub owner: PeerId,
    /// The session's host.
    pub host: PeerId,
}

/// What a peer tells the others about a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// Its value: this peer has authority.
    State,
    /// Nothing: another peer has authority.
    Nothing,
    /// Nothing of its value, which every peer computes from the same inputs; only those travel.
    Inputs,
}

/// A count of ticks that a kind's entities live by. A step belongs to one of them: see [`Step::timeline`](crate::Step::timeline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timeline {
    /// The session's own, which always runs.
    #[default]
    Session,
    /// Runs with the session on inputs that are guessed where they are not known, and goes back when they were others.
    Rollback,
    /// Runs on sealed inputs and orders alone, and waits for them.
    Lockstep,
}

impl Timeline {
    /// All of them.
    pub const ALL: [Timeline; 3] = [Timeline::Session, Timeline::Rollback, Timeline::Lockstep];
}

/// How an accepted value enters the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Apply {
    /// The world holds the newest value, and that is what is drawn.
    Set,
    /// The world holds the newest value; what is drawn lies between two samples, a little behind the session's clock.
    Interpolate,
    /// This peer runs the entity's steps itself, ahead of what it is told, and goes back when they come out otherwise.
    Reconcile,
}

/// May a timeline run its next tick?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gate {
    /// Yes.
    Run,
    /// Not yet: its entities are left out of this step.
    Wait,
}

/// What [`Policy::gate`] is asked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateFacts {
    /// The tick that would run.
    pub tick: Tick,
    /// The peer that asks.
    pub local: PeerId,
    /// The session's host.
    pub host: PeerId,
    /// Peers in the session, this one included.
    pub peers: u32,
    /// The newest tick that the host is known to have told everything about; on the host the tick itself.
    pub heard: Tick,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The sender is not who may write this.
    #[error("the sender does not own it")]
    NotOwner,
    /// The sender was the owner until a moment ago: nobody's fault, and not counted against it.
    #[error("written under an earlier ownership")]
    StaleEpoch,
    /// The component is not the sender's to write, whoever owns the entity.
    #[error("the component is not the sender's to write")]
    NotShared,
    /// The policy's own reason.
    #[error("the policy refuses: {0}")]
    Policy(&'static str),
    /// A `validate` closure of the component refused the value.
    #[error("the value is not valid: {0}")]
    Invalid(&'static str),
    /// The sender may not spawn or despawn that kind, or that entity.
    #[error("the sender may not spawn or despawn it")]
    Lifetime,
    /// A spawn whose name is not from a range that the sender leased, or was used before.
    #[error("the name is not the sender's to give")]
    NotLeased,
    /// As many entities as a guest may have spawned are alive already: [`limits::GUEST_ROWS`](crate::netcore::limits::GUEST_ROWS).
    #[error("the sender has spawned too many entities")]
    TooMany,
    /// The entity is not known, or gone for longer than a race can explain.
    #[error("no such entity")]
    Unknown,
}

impl Refusal {
    /// Can it be explained by messages that crossed? Then it does not count against the sender.
    #[must_use]
    pub fn is_race(self) -> bool {
        matches!(self, Self::StaleEpoch | Self::Unknown)
    }
}

/// The strategy for a kind or a component. See the [module](self).
pub trait Policy: Send + Sync + fmt::Debug + 'static {
    /// A short stable name; part of the schema's digest, and what `explain` prints.
    fn name(&self) -> &'static str;

    /// Does the asking peer publish this component?
    fn share(&self, facts: Facts) -> Share;

    /// May `sender` say what this component's value is? Asked by who receives; the security check. Epochs were compared before.
    ///
    /// # Errors
    /// The reason to refuse.
    fn accept(&self, facts: Facts, sender: PeerId) -> Result<(), Refusal>;

    /// May `who` spawn and despawn entities of a kind with this policy? `facts.owner` is who owns, or would own, the entity.
    fn lifetime(&self, facts: Facts, who: PeerId) -> bool;

    /// How an accepted value enters the world of the asking peer.
    fn apply(&self, facts: Facts) -> Apply;

    /// May entities of a kind with this policy run the next tick? The session's own timeline always runs.
    fn gate(&self, facts: GateFacts) -> Gate {
        let _ = facts;
        Gate::Run
    }

    /// Whose ticks do entities of a kind with this policy live by? On other timelines than the session's every peer computes them;
    /// nothing of them is published, and they are spawned and despawned in steps of that timeline alone.
    fn timeline(&self) -> Timeline {
        Timeline::Session
    }

    /// Which of an entity's owners the policy speaks of: 0 is the owner, 1 and up are co-owners
    /// (see [`Owner::co`]). Below [`OWNER_SLOTS`].
    fn slot(&self) -> usize {
        0
    }
}

/// Owners that one entity can have at a time: the owner, and co-owners of some of its components.
pub const OWNER_SLOTS: usize = 4;

/// The host simulates and publishes, everybody else shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    cut: bool,
    predicted: bool,
}

impl Host {
    /// Values are shown as they come, not interpolated.
    #[must_use]
    pub fn uninterpolated() -> Self {
        Self { cut: true, predicted: false }
    }

    /// The owner runs the entity's steps as well, with its own inputs and ahead of the host by its [lead](crate::Peer::lead), so
    /// that it sees at once what it does. What the host says of each tick is compared with what was predicted for it; where they
    /// differ, the owner takes the host's value, and runs its ticks since once more. Everybody else shows.
    ///
    /// The schema must have an [input](crate::SchemaBuilder::input). Only components that are registered with
    /// [`.checkpoint()`](crate::ComponentOptions::checkpoint) are predicted; the owner's steps are not to write the others. At the
    /// end of each step both sides round fields with a `step` to the simulation grid, which is finer than what the others are sent;
    /// by how many of its steps they may differ, [`tolerance`](crate::ComponentOptions::tolerance) says. What an owner's input
    /// brings about is spawned with [`Step::spawn_for`](crate::Step::spawn_for).
    #[must_use]
    pub fn predicted() -> Self {
        Self { cut: false, predicted: true }
    }
}

impl Policy for Host {
    fn name(&self) -> &'static str {
        if self.predicted { "host, predicted" } else { "host" }
    }

    fn share(&self, facts: Facts) -> Share {
        if facts.local == facts.host { Share::State } else { Share::Nothing }
    }

    fn accept(&self, facts: Facts, sender: PeerId) -> Result<(), Refusal> {
        if sender == facts.host { Ok(()) } else { Err(Refusal::NotShared) }
    }

    fn lifetime(&self, facts: Facts, who: PeerId) -> bool {
        who == facts.host
    }

    fn apply(&self, facts: Facts) -> Apply {
        match self {
            Self { predicted: true, .. } if facts.local == facts.owner && facts.local != facts.host => Apply::Reconcile,
            Self { cut: true, .. } => Apply::Set,
            _ => Apply::Interpolate,
        }
    }
}

/// Whoever owns the entity simulates and publishes; the host checks and passes on; everybody else shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    slot: usize,
}

impl Owner {
    /// The same for a co-owner: `slot` from 1 to [`OWNER_SLOTS`] − 1. An entity whose pose belongs to one guest and whose
    /// banner belongs to another has an owner and a co-owner.
    #[must_use]
    pub const fn co(slot: usize) -> Self {
        Self { slot }
    }
}

impl Policy for Owner {
    fn name(&self) -> &'static str {
        ["owner", "co-owner 1", "co-owner 2", "co-owner 3"].get(self.slot).copied().unwrap_or("co-owner")
    }

    fn share(&self, facts: Facts) -> Share {
        if facts.local == facts.owner { Share::State } else { Share::Nothing }
    }

    fn accept(&self, facts: Facts, sender: PeerId) -> Result<(), Refusal> {
        // the host passes on what the owner said, and what it corrects
        if sender == facts.owner || sender == facts.host { Ok(()) } else { Err(Refusal::NotOwner) }
    }

    fn lifetime(&self, facts: Facts, who: PeerId) -> bool {
        who == facts.owner || who == facts.host
    }

    fn apply(&self, _: Facts) -> Apply {
        Apply::Interpolate
    }

    fn slot(&self) -> usize {
        self.slot
    }
}

/// What becomes of a kind's entities when their owner leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absent {
    /// They go too.
    #[default]
    Despawn,
    /// The host owns them from then on.
    HostTakesOver,
    /// They stay as they are, without anybody who writes, until the host grants them.
    Wait,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: PeerId = PeerId::HOST;
    const A: PeerId = PeerId(1);
    const B: PeerId = PeerId(2);

    fn facts(local: PeerId, owner: PeerId) -> Facts {
        Facts { local, owner, host: HOST }
    }

    #[test]
    fn the_truth_table_of_host() {
        let p = Host::default();
        for owner in [HOST, A, B] {
            for local in [HOST, A, B] {
                assert_eq!(p.share(facts(local, owner)) == Share::State, local == HOST);
                for sender in [HOST, A, B] {
                    assert_eq!(p.accept(facts(local, owner), sender).is_ok(), sender == HOST);
                    assert_eq!(p.lifetime(facts(local, owner), sender), sender == HOST);
                }
            }
        }
        assert_eq!(p.apply(facts(A, HOST)), Apply::Interpolate);
        assert_eq!(p.apply(facts(A, A)), Apply::Interpolate);
        assert_eq!(p.timeline(), Timeline::Session);
        assert_eq!(Host::uninterpolated().apply(facts(A, HOST)), Apply::Set);
    }

    #[test]
    fn the_truth_table_of_host_predicted() {
        let p = Host::predicted();
        for owner in [HOST, A, B] {
            for local in [HOST, A, B] {
                assert_eq!(p.share(facts(local, owner)) == Share::State, local == HOST);
                let predicts = p.apply(facts(local, owner)) == Apply::Reconcile;
                assert_eq!(predicts, local == owner && local != HOST, "{local} of {owner}'s");
                for sender in [HOST, A, B] {
                    assert_eq!(
                        p.accept(facts(local, owner), sender).is_ok(),
                        sender == HOST,
                        "nobody takes a prediction for true"
                    );
                    assert_eq!(p.lifetime(facts(local, owner), sender), sender == HOST);
                }
            }
        }
    }

    #[test]
    fn the_truth_table_of_owner() {
        let p = Owner::default();
        for owner in [HOST, A, B] {
            for local in [HOST, A, B] {
                assert_eq!(p.share(facts(local, owner)) == Share::State, local == owner);
                for sender in [HOST, A, B] {
                    let may = sender == owner || sender == HOST;
                    assert_eq!(p.accept(facts(local, owner), sender).is_ok(), may);
                    assert_eq!(p.lifetime(facts(local, owner), sender), may);
                }
            }
        }
        assert_eq!(Owner::co(2).slot(), 2);
    }
}
