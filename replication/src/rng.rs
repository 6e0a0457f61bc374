//! Randomness as a function of where it is asked for, so that there is nothing to save and no order in which it is used up.

use crate::netid::NetId;
use tidelock_netcore::tick::Tick;

/// Random numbers for one entity, tick and purpose: the same on every peer and in every re-run. See
/// [`Step::rng`](crate::Step::rng). Not for secrets: who knows the session's id can work them all out.
#[derive(Clone, Debug)]
pub struct Rng {
    key: u64,
    count: u64,
}

impl Rng {
    pub(crate) fn at(session: u64, tick: Tick, net: NetId, purpose: u64) -> Self {
        Self { key: mix(mix(mix(session, tick.0), net.0), purpose), count: 0 }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.count += 1;
        mix(self.key, self.count)
    }

    /// From 0 up to, not including, 1, in steps of 2⁻²⁴.
    pub fn unit(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// A number below `n`, each with the same chance but for one part in 2³². Zero if `n` is zero.
    pub fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u32
    }

    /// From `low` up to `high`. Rounding can make it `high` itself.
    pub fn range(&mut self, low: f32, high: f32) -> f32 {
        low + self.unit() * (high - low)
    }

    /// `true` with that chance: never at 0, always at 1.
    pub fn chance(&mut self, chance: f32) -> bool {
        self.unit() < chance
    }

    /// One of several; none of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(u32::try_from(of.len()).unwrap_or(u32::MAX)) as usize)
    }
}

/// Two numbers into one that depends on every bit of both, by integers only.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    // the product alone loses a factor that is zero
    let mut x = (product >> 64) as u64 ^ product as u64 ^ a.rotate_left(32) ^ b.rotate_left(7);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_never_change() {
        // a peer of another build must draw the same
        let mut rng = Rng::at(1, Tick(2), NetId(3), 4);
        let drawn = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(drawn, GOLDEN);
    }

    const GOLDEN: [u64; 3] = [1_157_080_324_752_118_465, 10_514_180_277_614_798_965, 355_546_505_971_466_623];

    #[test]
    fn each_part_of_the_place_matters_and_numbers_are_spread() {
        let first = |s, t, n, p| Rng::at(s, Tick(t), NetId(n), p).next_u64();
        let mut all = Vec::new();
        for i in 0..1000 {
            all.extend([first(i + 1, 0, 0, 0), first(0, i + 1, 0, 0), first(0, 0, i + 1, 0), first(0, 0, 0, i + 1)]);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "no two places draw the same");
        for shift in [0, 17, 40, 63] {
            let ones = all.iter().filter(|x| *x >> shift & 1 == 1).count();
            assert!((1800..2200).contains(&ones), "bit {shift} is set {ones} times in {count}");
        }
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::at(7, Tick(1), NetId(0), 0);
        let mut seen = [0u32; 6];
        for _ in 0..6000 {
            seen[rng.below(6) as usize] += 1;
            let unit = rng.unit();
            assert!((0.0..1.0).contains(&unit));
            assert!((-3.0..=5.0).contains(&rng.range(-3.0, 5.0)));
        }
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert!(rng.chance(1.0) && !rng.chance(0.0));
        assert_eq!(rng.pick::<u8>(&[]), None);
        assert!([1, 2].contains(rng.pick(&[1, 2]).unwrap()));
    }
}
