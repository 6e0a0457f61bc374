//! Ticks: 64 bits inside, 16 bits on the wire, widened against a recent reference.

use std::fmt;

/// One fixed step of a timeline, counted from the start of the session.
///
/// 64 bits never wrap in practice. On the wire a tick is the low 16 bits ([`Tick::narrow`]); the reader widens them against a
/// tick it heard of recently ([`Tick::widen`]), never against a stored value that may be older than half the range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The tick before the first one.
    pub const ZERO: Tick = Tick(0);

    /// The low 16 bits.
    #[must_use]
    pub const fn narrow(self) -> u16 {
        self.0 as u16
    }

    /// The number nearest to `self` whose low 16 bits are `wire`; `self` is the reference and must be at most 32 767 away
    /// from the truth. Never below zero.
    #[must_use]
    pub const fn widen(self, wire: u16) -> Tick {
        Tick(widen(self.0, wire))
    }

    /// `self - earlier`, or zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The tick `n` later.
    #[must_use]
    pub const fn plus(self, n: u64) -> Tick {
        Tick(self.0 + n)
    }

    /// The tick `n` earlier, at least [`Tick::ZERO`].
    #[must_use]
    pub const fn minus(self, n: u64) -> Tick {
        Tick(self.0.saturating_sub(n))
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Widens the low 16 bits of a counter to the value nearest to `reference` (ties go up). The one place where a narrow
/// number of the wire becomes a wide one: ticks, packet numbers and times all pass here.
#[must_use]
pub const fn widen(reference: u64, wire: u16) -> u64 {
    let ahead = wire.wrapping_sub(reference as u16);
    if ahead <= 0x8000 {
        return reference + ahead as u64;
    }
    let behind = 0x1_0000 - ahead as u64;
    if behind <= reference { reference - behind } else { reference + ahead as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_is_the_inverse_of_narrowing_within_half_the_range() {
        for reference in [0u64, 1, 32_700, 65_500, 65_536, 1 << 20, (1 << 32) - 100, u64::MAX / 2] {
            for d in [0i64, 1, -1, 32_767, -32_767, 40, -40] {
                let Some(t) = reference.checked_add_signed(d) else { continue };
                assert_eq!(widen(reference, t as u16), t, "reference {reference}, distance {d}");
            }
        }
    }
}
