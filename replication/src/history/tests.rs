use super::*;
use rand_pcg::rand_core::{Rng as _, SeedableRng};

/// One for each way in which values of that length go.
const STRIDES: [usize; 4] = [1, 2, 3, 4];

type Model = Vec<Vec<std::collections::BTreeMap<u64, u32>>>;

/// Sets many rows of a block at once, in the history and in the model.
fn put_some_rows(history: &mut History, model: &mut Model, below: &mut impl FnMut(u64) -> u64) {
    let (c, block, now) = (below(STRIDES.len() as u64) as usize, below(3) as usize, history.now());
    let all = if below(4) == 0 { u64::MAX } else { below(u64::MAX) };
    let rows = all & !history.changed_in(c, block, now) & if below(2) == 0 { u64::MAX } else { below(u64::MAX) };
    let renew = below(4) == 0;
    let (mut words, mut expected) = (Vec::new(), 0);
    for bit in crate::block::bits(all) {
        let row = block * BLOCK + bit as usize;
        let present = history.value(c, row)[0];
        let v = if below(3) == 0 { present } else { below(1000) as u32 };
        // what was never set is zeros, and not one more each
        let words_of: Vec<u32> = if v == present { history.value(c, row).to_vec() } else { (v..).take(STRIDES[c]).collect() };
        if rows >> bit & 1 != 0 && (renew || v != present) {
            model[c][row].insert(now.0, v);
            expected |= 1 << bit;
        }
        words.extend(words_of);
    }
    assert_eq!(history.put_rows(c, block, (rows, all), &words, Mark::at(now), renew), expected);
}

/// Many rows of a block at once are what each of them is.
fn gathered_is_each(history: &History, (c, block, rows, at): (usize, usize, u64, Tick)) {
    let (stride, mut gathered, mut moved) = (STRIDES[c], Vec::new(), false);
    history.gather(c, block, rows, at, &mut gathered);
    let still = history.still(c, block, rows, at);
    for bit in crate::block::bits(rows).map(|bit| bit as usize) {
        let value = history.value_at(c, block * BLOCK + bit, at);
        assert_eq!(&gathered[bit * stride..][..stride], value, "c {c} block {block} bit {bit} at {at:?}");
        assert!(still.is_none_or(|still| &still[bit * stride..][..stride] == value), "c {c} block {block} bit {bit} at {at:?}");
        moved |= (at.0 + 1..=history.now().0).any(|t| history.changed_in(c, block, Tick(t)) >> bit & 1 != 0);
    }
    assert_eq!(still.is_none(), moved, "c {c} block {block} rows {rows:x} at {at:?}");
}

/// However many rows are looked at without being changed: no room is taken for what may be.
#[test]
fn rows_that_stay_as_they_are_take_no_room() {
    let mut history = History::new(vec![3, 4], Tick(0));
    history.grow(2);
    for tick in 1..3 * RING as u64 {
        history.advance_to(Tick(tick));
        for c in 0..2 {
            history.put_rows(c, 0, (u64::MAX, u64::MAX), &[0; BLOCK * 4][..BLOCK * (3 + c)], Mark::at(Tick(tick)), false);
        }
        assert!(history.slots.iter().all(|slot| slot.log.capacity() == 0), "tick {tick}");
    }
}

/// Against a plain model: every row's full list of (tick, value), late insertions included.
#[test]
fn the_past_is_what_it_was() {
    for seed in 0..30u64 {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
        let mut below = |n: u64| rng.next_u64() % n;
        let rows = 200usize;
        let mut history = History::new(STRIDES.to_vec(), Tick(0));
        history.grow(1);
        let mut model = vec![vec![std::collections::BTreeMap::<u64, u32>::new(); rows]; STRIDES.len()];
        for _ in 1..150u64 {
            history.grow(4);
            let jump = if below(30) == 0 { below(80) } else { 0 };
            let tick = history.now().0 + 1 + jump;
            history.advance_to(Tick(tick));
            for _ in 0..below(6) {
                put_some_rows(&mut history, &mut model, &mut below);
            }
            for _ in 0..below(120) {
                let (c, row) = (below(STRIDES.len() as u64) as usize, below(rows as u64) as usize);
                let v = below(1000) as u32;
                let at = if below(3) == 0 { tick - below(40).min(tick) } else { tick };
                if model[c][row].contains_key(&at) && at != tick {
                    continue;
                }
                let words: Vec<u32> = (v..).take(STRIDES[c]).collect();
                history.insert(c, row, &words, Tick(at), Mark::at(Tick(at)));
                model[c][row].insert(at, v);
            }
            for _ in 0..200 {
                let (c, row, age) = (below(STRIDES.len() as u64) as usize, below(rows as u64) as usize, below(RING as u64));
                let at = tick.saturating_sub(age);
                let truth = model[c][row].range(..=at).next_back().map_or(0, |x| *x.1);
                assert_eq!(history.value_at(c, row, Tick(at))[0], truth, "SEED={seed} c {c} row {row} tick {tick} at {at}");
                let (before, after) = history.bracket(c, row, Tick(at));
                assert_eq!(before.unwrap().words[0], truth, "SEED={seed}");
                let next = model[c][row].range(at + 1..).next();
                assert_eq!(after.map(|s| s.words[0]), next.map(|x| *x.1), "SEED={seed}");
                assert_eq!(after.and_then(|s| s.tick), next.map(|x| Tick(*x.0)), "SEED={seed}");
            }
            for round in 0..12 {
                let (c, block, age) = (below(STRIDES.len() as u64) as usize, below(3) as usize, below(RING as u64 / 2));
                let rows = [u64::MAX, below(u64::MAX), 1 << below(64), below(u64::MAX) & below(u64::MAX)][round % 4];
                gathered_is_each(&history, (c, block, rows, Tick(tick.saturating_sub(age))));
            }
        }
    }
}
