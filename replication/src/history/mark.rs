//! What is known of a change beside the value.

use tidelock_netcore::tick::Tick;

/// What is known of a change beside the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Session tick that the new value was sampled at.
    pub(crate) sample: Tick,
    /// It is the first value of its row's binding: what it replaces belongs to nobody.
    pub(crate) first: bool,
    /// The value before was in force until the send before.
    pub(crate) rested: bool,
}

impl Mark {
    /// An ordinary change.
    pub(crate) fn at(sample: Tick) -> Self {
        Self { sample, first: false, rested: false }
    }
}

/// A [`Mark`] in half of its size: there are as many as segments. Ticks have 62 bits, which are enough for a thousand million years.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed(u64);

impl From<Mark> for Packed {
    fn from(mark: Mark) -> Self {
        Self(mark.sample.0 << 2 | u64::from(mark.first) << 1 | u64::from(mark.rested))
    }
}

impl From<Packed> for Mark {
    fn from(Packed(bits): Packed) -> Self {
        Self { sample: Tick(bits >> 2), first: bits & 2 != 0, rested: bits & 1 != 0 }
    }
}
