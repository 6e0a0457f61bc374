//! The best code for what was counted.

use super::Lengths;
use crate::codes::{ESCAPE, TOKENS, Table, own_bits, shortest};

/// How often each token came, and the bits of the value itself where the escape stands for it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    pub(super) tokens: [u64; TOKENS],
    pub(super) absolute: u32,
}

/// So many more tokens are left out without gain before no more are tried.
const PATIENCE: usize = 4;

impl Histogram {
    pub(super) fn total(&self) -> u64 {
        self.tokens.iter().sum()
    }

    /// What it takes with a table, in bits.
    pub(super) fn bits_with(&self, table: &Table) -> u64 {
        let bits = |(token, count): (usize, &u64)| {
            let absolute = if table.absolute >> token & 1 != 0 { self.absolute } else { 0 };
            count * u64::from(u32::from(table.cost[token]) + absolute)
        };
        self.tokens.iter().enumerate().map(bits).sum()
    }

    /// The lengths with which it takes the fewest bits. Tokens that are worth no code have none.
    pub(super) fn best_code(&self) -> Lengths {
        let weights = self.smoothed();
        let mut kept: Vec<usize> = (0..ESCAPE).filter(|token| weights[*token] > 0).collect();
        kept.sort_by_key(|token| (std::cmp::Reverse(weights[*token]), *token));
        if kept.is_empty() {
            kept.push(0);
        }
        let mut best: Option<(u64, Lengths)> = None;
        let mut worse = 0;
        loop {
            let mut code = [0; TOKENS];
            let mut symbols = vec![(weights[ESCAPE].max(1), ESCAPE)];
            symbols.extend(kept.iter().map(|token| (weights[*token].max(1), *token)));
            let left_out = (0..ESCAPE).filter(|token| !kept.contains(token)).map(|token| weights[token]).sum::<u64>();
            symbols[0].0 += left_out;
            shortest(&symbols, &mut code);
            let bits = cost(&weights, &code, self.absolute);
            if best.is_none_or(|(least, _)| bits < least) {
                (best, worse) = (Some((bits, code)), 0);
            } else {
                worse += 1;
            }
            if kept.len() == 1 || worse > PATIENCE {
                return best.map_or(code, |(_, code)| code);
            }
            kept.pop();
        }
    }

    /// What did not come, but is no larger than what did, or stands beside it, may come next time.
    fn smoothed(&self) -> [u64; TOKENS] {
        let top = (0..ESCAPE).rev().find(|token| self.tokens[*token] > 0).map_or(0, |top| top + BEYOND);
        let seldom = self.total() * OWN / SELDOM;
        std::array::from_fn(|token| {
            let beside = |at: usize| if at < ESCAPE { self.tokens[at] } else { 0 };
            let own = self.tokens[token] * OWN;
            match token {
                ESCAPE => own + seldom,
                _ if token > top => own,
                _ => own + beside(token.wrapping_sub(1)) + beside(token + 1) + seldom,
            }
        })
    }
}

/// Tokens so much larger than the largest that came may come.
const BEYOND: usize = 2;
/// Whatever may come is taken to come once among so many.
const SELDOM: u64 = 4096;
/// How much more a token's own count says than its neighbours'.
const OWN: u64 = 64;

fn cost(weights: &[u64; TOKENS], code: &Lengths, absolute: u32) -> u64 {
    let bits = |token: usize| match code[token] {
        length if length > 0 && token != ESCAPE => u32::from(length) + own_bits(token),
        _ => u32::from(code[ESCAPE]) + absolute,
    };
    weights.iter().enumerate().map(|(token, weight)| weight * u64::from(bits(token))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trained::is_complete;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng as _, SeedableRng};

    fn drawn(rng: &mut Pcg64Mcg) -> Histogram {
        let skew = rng.next_u64() % 40;
        let mut tokens = [0; TOKENS];
        for (token, count) in tokens.iter_mut().enumerate() {
            let scale = 1 << (40u64.saturating_sub(token as u64 * skew / 8)).min(40);
            *count = if rng.next_u64().is_multiple_of(3) { 0 } else { rng.next_u64() % scale };
        }
        Histogram { tokens, absolute: (rng.next_u64() % 40) as u32 }
    }

    /// Whatever is counted, the code is complete, and nothing is shorter than what entropy allows or longer than a flat code.
    #[test]
    fn codes_are_complete_and_near_the_entropy() {
        for seed in 0..200 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let histogram = drawn(&mut rng);
            let code = histogram.best_code();
            assert!(is_complete(&code), "SEED={seed}: {code:?}");
            let table = Table::new(&code);
            let total = histogram.total() as f64;
            let own: u64 = (0..ESCAPE).map(|t| histogram.tokens[t] * u64::from(own_bits(t))).sum();
            let own = own + histogram.tokens[ESCAPE] * u64::from(histogram.absolute);
            let entropy: f64 = histogram.tokens.iter().filter(|n| **n > 0).map(|n| *n as f64 * (total / *n as f64).log2()).sum();
            // what has no code says its value itself; where that is shorter than a token's own bits, entropy is no bound
            if histogram.absolute >= 31 {
                let bits = histogram.bits_with(&table) as f64;
                assert!(bits >= entropy + own as f64 - 1.0, "SEED={seed}: {bits} bits, entropy {entropy}, own {own}");
                assert!(bits <= entropy * 1.1 + own as f64 + total, "SEED={seed}: {bits} bits, entropy {entropy}, own {own}");
            }
        }
    }

    /// The lengths are the best there are: compared with all codes of five symbols, by brute force.
    #[test]
    fn no_other_lengths_take_fewer_bits() {
        for seed in 0..300u64 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let symbols: Vec<(u64, usize)> = (0..5).map(|t| (1 + rng.next_u64() % (1 << (rng.next_u64() % 16)), t * 7)).collect();
            let mut lengths = [0; TOKENS];
            shortest(&symbols, &mut lengths);
            let bits: u64 = symbols.iter().map(|(weight, token)| weight * u64::from(lengths[*token])).sum();
            let mut least = u64::MAX;
            for tried in 0..4u32.pow(5) {
                let of = |i: u32| 1 + (tried >> (2 * i) & 3);
                if (0..5).map(|i| 1 << (10 - of(i))).sum::<u32>() <= 1 << 10 {
                    least = least.min(symbols.iter().zip(0..).map(|((weight, _), i)| weight * u64::from(of(i))).sum());
                }
            }
            assert_eq!(bits, least, "SEED={seed} {symbols:?}");
        }
    }

    #[test]
    fn what_never_came_has_no_code_and_what_came_seldom_only_if_it_pays() {
        let mut tokens = [0; TOKENS];
        tokens[..13].fill(100_000);
        tokens[20] = 1;
        let code = Histogram { tokens, absolute: 14 }.best_code();
        assert!(code[..13].iter().all(|length| (3..=4).contains(length)), "{code:?}");
        assert!(code[20] > 0 && code[24..ESCAPE].iter().all(|length| *length == 0), "{code:?}");
        let code = Histogram { tokens, absolute: 2 }.best_code();
        assert_eq!(code[20], 0, "the value itself is shorter: {code:?}");
        tokens[20] = 100_000;
        assert!(Histogram { tokens, absolute: 14 }.best_code()[20] > 0);
    }
}
