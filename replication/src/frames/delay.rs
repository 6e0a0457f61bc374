//! How far ahead of the session a guest's orders are meant, so that they are at the host when their tick is sealed.
//!
//! Each order tells, once it is sealed, whether it came too late for its tick, and if not for how long it lay at the host. Too late
//! is an order that takes effect later than it could have been known: the delay is raised at once, by as much. Waiting is mere
//! delay: what all of the last [`LOOK_BACK`] orders waited more than a tick is taken off, a tick at a time.

/// Orders that must all have waited before the delay is lowered.
const LOOK_BACK: u32 = 12;
/// Ticks that an order may wait: what jitter needs.
const SLACK: u64 = 1;

/// A guest's delay, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderDelay {
    ticks: u64,
    most: u64,
    /// Orders since the delay was changed, and the least that one of them waited.
    seen: u32,
    least: u64,
    /// Orders up to this number were given under an older delay, and say nothing about this one.
    deaf: u64,
}

impl OrderDelay {
    /// `way`: ticks of half a round trip. `most`: the largest delay.
    pub(crate) fn new(way: u64, most: u64) -> Self {
        let most = most.max(1);
        Self { ticks: (way + 1 + SLACK).clamp(1, most), most, seen: 0, least: u64::MAX, deaf: 0 }
    }

    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Order `number` was sealed `late` ticks after the one that it was meant for, or lay at the host for `waited` ticks. `given`: the
    /// number of the last order that was given.
    pub(crate) fn sealed(&mut self, number: u64, late: u64, waited: u64, given: u64) {
        if number <= self.deaf {
            return;
        }
        // one that lay there and was late came in time, and found no room
        if late > 0 && waited == 0 {
            return self.change(self.ticks + late, given);
        }
        self.seen += 1;
        self.least = self.least.min(waited);
        if self.seen >= LOOK_BACK {
            if self.least > SLACK {
                return self.change(self.ticks - 1, given);
            }
            (self.seen, self.least) = (0, u64::MAX);
        }
    }

    fn change(&mut self, ticks: u64, given: u64) {
        self.ticks = ticks.clamp(1, self.most);
        (self.seen, self.least, self.deaf) = (0, u64::MAX, given);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Orders one after the other, whose way takes `way` ticks; the delay in the end, and how many came late.
    fn settle(delay: &mut OrderDelay, orders: u64, from: u64, way: impl Fn(u64) -> u64) -> u64 {
        let mut late = 0;
        for number in from..from + orders {
            let (ticks, way) = (delay.ticks(), way(number));
            late += u64::from(way > ticks);
            delay.sealed(number, way.saturating_sub(ticks), ticks.saturating_sub(way), number);
        }
        late
    }

    #[test]
    fn it_begins_with_what_half_a_round_trip_takes() {
        assert_eq!(OrderDelay::new(9, 120).ticks(), 11);
        assert_eq!(OrderDelay::new(500, 120).ticks(), 120, "bounded");
        assert_eq!(OrderDelay::new(0, 0).ticks(), 1);
    }

    #[test]
    fn a_late_order_raises_it_at_once() {
        let mut delay = OrderDelay::new(0, 120);
        delay.sealed(1, 7, 0, 1);
        assert_eq!(delay.ticks(), 9);
        delay.sealed(2, 7, 0, 3);
        assert_eq!(delay.ticks(), 16);
        delay.sealed(3, 7, 0, 3);
        assert_eq!(delay.ticks(), 16, "given before the change was known");
        delay.sealed(4, 1000, 0, 4);
        assert_eq!(delay.ticks(), 120, "bounded");
    }

    #[test]
    fn one_that_found_no_room_changes_nothing() {
        let mut delay = OrderDelay::new(3, 120);
        (1..100).for_each(|n| delay.sealed(n, 5, 1, n));
        assert_eq!(delay.ticks(), 5);
    }

    #[test]
    fn it_is_lowered_slowly_and_stays_a_tick_above_the_way() {
        let mut delay = OrderDelay::new(30, 120);
        settle(&mut delay, 23, 1, |_| 4);
        assert_eq!(delay.ticks(), 31, "a tick for twelve orders");
        assert_eq!(settle(&mut delay, 2000, 24, |_| 4), 0);
        assert_eq!(delay.ticks(), 5);
    }

    #[test]
    fn jitter_keeps_it_up() {
        let mut delay = OrderDelay::new(4, 120);
        let jitter = |n: u64| 4 + (n * 7 + n / 3) % 5;
        settle(&mut delay, 500, 1, jitter);
        assert_eq!(settle(&mut delay, 2000, 501, jitter), 0, "the worst of every dozen decides");
        assert!((8..=9).contains(&delay.ticks()), "{}", delay.ticks());
    }
}
