//! How many writes were refused, by reason.

use super::Refusal;
use crate::peer::Peer;

/// How many writes of guests a host has refused, by [`Refusal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusalCounts {
    /// [`Refusal::NotOwner`].
    pub not_owner: u64,
    /// [`Refusal::StaleEpoch`]: a race, nobody's fault.
    pub stale_epoch: u64,
    /// [`Refusal::NotShared`].
    pub not_shared: u64,
    /// [`Refusal::Policy`], for whatever reason.
    pub policy: u64,
    /// [`Refusal::Invalid`], for whatever reason.
    pub invalid: u64,
    /// [`Refusal::Lifetime`].
    pub lifetime: u64,
    /// [`Refusal::NotLeased`].
    pub not_leased: u64,
    /// [`Refusal::TooMany`].
    pub too_many: u64,
    /// [`Refusal::Unknown`]: a race, nobody's fault.
    pub unknown: u64,
}

impl RefusalCounts {
    pub(crate) fn add(&mut self, refusal: Refusal) {
        let count = match refusal {
            Refusal::NotOwner => &mut self.not_owner,
            Refusal::StaleEpoch => &mut self.stale_epoch,
            Refusal::NotShared => &mut self.not_shared,
            Refusal::Policy(_) => &mut self.policy,
            Refusal::Invalid(_) => &mut self.invalid,
            Refusal::Lifetime => &mut self.lifetime,
            Refusal::NotLeased => &mut self.not_leased,
            Refusal::TooMany => &mut self.too_many,
            Refusal::Unknown => &mut self.unknown,
        };
        *count += 1;
    }

    /// Each count with a short name of its reason, as logs and metrics have it.
    #[must_use]
    pub fn by_cause(&self) -> [(&'static str, u64); 9] {
        [
            ("not_owner", self.not_owner),
            ("stale_epoch", self.stale_epoch),
            ("not_shared", self.not_shared),
            ("policy", self.policy),
            ("invalid", self.invalid),
            ("lifetime", self.lifetime),
            ("not_leased", self.not_leased),
            ("too_many", self.too_many),
            ("unknown", self.unknown),
        ]
    }
}

impl Peer {
    /// How many writes of guests this host has refused, by reason, those of guests that have left included. The same by guest, in
    /// one number, is [`LinkCounters::refused`](crate::LinkCounters::refused).
    #[must_use]
    pub fn refusal_counts(&self) -> RefusalCounts {
        self.refused.1
    }
}
