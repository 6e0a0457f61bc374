//! Clocks, and what is made of many readings.

use crate::alloc;
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// CPU time of the whole process in nanoseconds: other processes do not count.
#[must_use]
pub fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The most memory that the process ever had resident, in MB (2²⁰ bytes); zero where the system does not tell.
#[must_use]
pub fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kb = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}

/// One timed stretch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// CPU time in nanoseconds.
    pub cpu: u64,
    /// Wall time in nanoseconds.
    pub wall: u64,
    /// Allocations.
    pub allocs: u64,
    /// By how many bytes the memory held has grown.
    pub grown: i64,
}

impl std::ops::AddAssign for Reading {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.wall += other.wall;
        self.allocs += other.allocs;
        self.grown += other.grown;
    }
}

/// Runs `f` and says what it took.
pub fn timed<R>(f: impl FnOnce() -> R) -> (R, Reading) {
    let (before, start, cpu) = (alloc::count(), Instant::now(), cpu_ns());
    let result = f();
    let (cpu, wall, after) = (cpu_ns() - cpu, start.elapsed().as_nanos() as u64, alloc::count());
    (result, Reading { cpu, wall, allocs: after.calls - before.calls, grown: after.live - before.live })
}

/// Many readings of the same thing.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<Reading>);

impl Series {
    /// Adds one.
    pub fn push(&mut self, reading: Reading) {
        self.0.push(reading);
    }

    /// CPU time in microseconds: the value that `part` (0 to 1) of the readings do not exceed.
    #[must_use]
    pub fn cpu_us(&self, part: f64) -> f64 {
        quantile(self.0.iter().map(|r| r.cpu), part) as f64 / 1000.0
    }

    /// Median wall time in microseconds.
    #[must_use]
    pub fn wall_us(&self) -> f64 {
        self.wall_us_of(0.5)
    }

    /// Wall time in microseconds: the value that `part` (0 to 1) of the readings do not exceed.
    #[must_use]
    pub fn wall_us_of(&self, part: f64) -> f64 {
        quantile(self.0.iter().map(|r| r.wall), part) as f64 / 1000.0
    }

    /// Allocations: the median.
    #[must_use]
    pub fn allocs(&self) -> u64 {
        quantile(self.0.iter().map(|r| r.allocs), 0.5)
    }

    /// Allocations: the most in one reading.
    #[must_use]
    pub fn allocs_max(&self) -> u64 {
        self.0.iter().map(|r| r.allocs).max().unwrap_or(0)
    }
}

/// The value that `part` (0 to 1) of the values do not exceed; zero of none.
pub fn quantile(values: impl Iterator<Item = u64>, part: f64) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let last = values.len().saturating_sub(1) as f64;
    values.get((last * part).round() as usize).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        assert_eq!(quantile([5, 1, 9].into_iter(), 0.5), 5);
        assert_eq!(quantile([5, 1, 9].into_iter(), 1.0), 9);
        assert_eq!(quantile([5, 1, 9].into_iter(), 0.0), 1);
        assert_eq!(quantile([].into_iter(), 0.5), 0);
    }

    #[test]
    fn the_process_clock_runs_while_work_is_done() {
        let (sum, reading) = timed(|| (0..2_000_000u64).fold(0, |a, x| std::hint::black_box(a ^ x)));
        assert!(reading.cpu > 0 && sum != 1);
    }
}
