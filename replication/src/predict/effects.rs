//! Effects of predicted steps: each is to be heard and seen once, however often its step is run, and undone if it did not happen.

use tidelock_netcore::tick::Tick;

/// Ticks for which an effect is remembered: longer than anything is taken back.
const MEMORY: u64 = 2 * tidelock_netcore::limits::SAVES as u64;

struct Effect {
    key: u64,
    tick: Tick,
    /// Its tick was taken back, and it has not happened again.
    doubtful: bool,
}

/// Effects that happened lately.
#[derive(Default)]
pub(crate) struct Effects {
    seen: Vec<Effect>,
    /// The first tick that was taken back and is not run again yet.
    from: Option<Tick>,
}

impl Effects {
    /// An effect happens in a step; `true` the first time.
    pub(crate) fn happens(&mut self, key: u64, tick: Tick) -> bool {
        if let Some(effect) = self.seen.iter_mut().find(|e| e.key == key) {
            (effect.tick, effect.doubtful) = (tick, false);
            return false;
        }
        self.seen.push(Effect { key, tick, doubtful: false });
        true
    }

    /// Everything from `tick` on is run again.
    pub(crate) fn rewound(&mut self, tick: Tick) {
        self.from = Some(self.from.map_or(tick, |from| from.min(tick)));
        self.seen.iter_mut().filter(|e| e.tick >= tick).for_each(|e| e.doubtful = true);
    }

    /// A step has ended.
    pub(crate) fn end_step(&mut self, tick: Tick) {
        if !self.seen.is_empty() {
            self.seen.retain(|e| tick.since(e.tick) < MEMORY);
        }
    }

    /// All has been run again: what did not happen again, and is forgotten.
    pub(crate) fn undone(&mut self) -> Vec<u64> {
        if self.from.take().is_none() {
            return Vec::new();
        }
        let undone = self.seen.iter().filter(|e| e.doubtful).map(|e| e.key).collect();
        self.seen.retain(|e| !e.doubtful);
        undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_happens_once_and_is_undone_if_it_does_not_happen_again() {
        let mut effects = Effects::default();
        assert!(effects.happens(7, Tick(10)));
        assert!(effects.happens(8, Tick(12)));
        assert!(!effects.happens(7, Tick(10)));
        effects.rewound(Tick(10));
        assert!(!effects.happens(7, Tick(11)), "a tick later, and the same effect");
        assert_eq!(effects.undone(), [8]);
        assert_eq!(effects.undone(), []);
        assert!(effects.happens(8, Tick(20)), "it was undone, so it is another one");
    }
}
