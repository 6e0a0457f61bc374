//! How many steps of lockstep each tick of the session stands for: pause, single steps, speed.

use tidelock_netcore::limits;

/// The host's setting. Nobody else computes with it: what comes of it is told in each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunControl {
    paused: bool,
    /// Steps that are still made in spite of the pause, one in a tick.
    single: u32,
    num: u32,
    den: u32,
    /// What is due of the next step, in parts of `den`.
    due: u32,
}

impl Default for RunControl {
    fn default() -> Self {
        Self { paused: false, single: 0, num: 1, den: 1, due: 0 }
    }
}

impl RunControl {
    pub(crate) fn pause(&mut self) {
        self.paused = true;
        self.single = 0;
    }

    pub(crate) fn resume(&mut self) {
        self.paused = false;
        self.single = 0;
    }

    /// So many steps more, if it is paused.
    pub(crate) fn step(&mut self, steps: u32) {
        if self.paused {
            self.single = self.single.saturating_add(steps);
        }
    }

    /// `num` steps in `den` ticks; `false` if that is no speed, or beyond [`limits::LOCKSTEP_STEPS`] a tick.
    pub(crate) fn set_speed(&mut self, num: u32, den: u32) -> bool {
        let good = num > 0 && den > 0 && den <= 1 << 16 && u64::from(num) <= u64::from(den) * u64::from(limits::LOCKSTEP_STEPS);
        if good {
            (self.num, self.den, self.due) = (num, den, 0);
        }
        good
    }

    /// A tick passes: how many steps does it stand for?
    pub(crate) fn next(&mut self) -> u8 {
        if self.paused {
            let step = self.single.min(1);
            self.single -= step;
            return step as u8;
        }
        self.due += self.num;
        let steps = self.due / self.den;
        self.due %= self.den;
        steps as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(control: &mut RunControl, ticks: usize) -> Vec<u8> {
        (0..ticks).map(|_| control.next()).collect()
    }

    #[test]
    fn normal_is_one_step_a_tick() {
        assert_eq!(run(&mut RunControl::default(), 5), [1; 5]);
    }

    #[test]
    fn paused_it_makes_single_steps_only() {
        let mut control = RunControl::default();
        control.step(3); // not paused: it runs anyway
        control.pause();
        assert_eq!(run(&mut control, 2), [0, 0]);
        control.step(2);
        assert_eq!(run(&mut control, 4), [1, 1, 0, 0]);
        control.step(5);
        control.resume();
        assert_eq!(run(&mut control, 3), [1, 1, 1]);
        control.pause();
        assert_eq!(run(&mut control, 2), [0, 0], "steps that were asked for before are no longer wanted");
    }

    #[test]
    fn speeds_are_met_on_the_whole() {
        for (num, den) in [(1, 2), (2, 1), (3, 2), (1, 7), (8, 1), (7, 3), (65_536, 65_536)] {
            let mut control = RunControl::default();
            assert!(control.set_speed(num, den));
            let steps = run(&mut control, 4 * den as usize);
            assert_eq!(steps.iter().map(|s| u32::from(*s)).sum::<u32>(), 4 * num, "{num}/{den}");
            assert!(steps.iter().all(|s| u32::from(*s) == num / den || u32::from(*s) == num.div_ceil(den)), "evenly");
        }
    }

    #[test]
    fn what_is_no_speed_changes_nothing() {
        let mut control = RunControl::default();
        for (num, den) in [(0, 1), (1, 0), (9, 1), (u32::MAX, 1), (1, u32::MAX)] {
            assert!(!control.set_speed(num, den), "{num}/{den}");
        }
        assert_eq!(control, RunControl::default());
    }
}
