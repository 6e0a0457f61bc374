use super::*;
use rand_pcg::rand_core::{Rng as _, SeedableRng};

/// Against a plain model: every row's full list of (tick, value), late insertions included.
#[test]
fn the_past_is_what_it_was() {
    for seed in 0..30u64 {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
        let mut below = |n: u64| rng.next_u64() % n;
        let rows = 200usize;
        let mut history = History::new(vec![1, 3], Tick(0));
        history.grow(1);
        let mut model = vec![vec![std::collections::BTreeMap::<u64, u32>::new(); rows]; 2];
        for _ in 1..150u64 {
            history.grow(4);
            let jump = if below(30) == 0 { below(80) } else { 0 };
            let tick = history.now().0 + 1 + jump;
            history.advance_to(Tick(tick));
            for _ in 0..below(120) {
                let (c, row) = (below(2) as usize, below(rows as u64) as usize);
                let v = below(1000) as u32;
                let at = if below(3) == 0 { tick - below(40).min(tick) } else { tick };
                if model[c][row].contains_key(&at) && at != tick {
                    continue;
                }
                let words = if c == 0 { vec![v] } else { vec![v, v + 1, v + 2] };
                history.insert(c, row, &words, Tick(at), Mark::at(Tick(at)));
                model[c][row].insert(at, v);
            }
            for _ in 0..200 {
                let (c, row, age) = (below(2) as usize, below(rows as u64) as usize, below(RING as u64));
                let at = tick.saturating_sub(age);
                let truth = model[c][row].range(..=at).next_back().map_or(0, |x| *x.1);
                assert_eq!(history.value_at(c, row, Tick(at))[0], truth, "SEED={seed} c {c} row {row} tick {tick} at {at}");
                let (before, after) = history.bracket(c, row, Tick(at));
                assert_eq!(before.unwrap().words[0], truth, "SEED={seed}");
                let next = model[c][row].range(at + 1..).next();
                assert_eq!(after.map(|s| s.words[0]), next.map(|x| *x.1), "SEED={seed}");
                assert_eq!(after.and_then(|s| s.tick), next.map(|x| Tick(*x.0)), "SEED={seed}");
            }
        }
    }
}
