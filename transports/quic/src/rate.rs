//! What the path of one link carries, as congestion control believes, looked at ten times a second.

use quinn::Connection;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Between two looks. Each copies the state of congestion control.
const LOOK: Duration = Duration::from_millis(100);
/// The largest estimate of so many looks holds: BBR goes through gains from 0.75 to 1.25 in eight round trips.
const LOOKS: usize = 10;
/// What was sent without loss may at least be doubled. An estimate that has seen no more than the program had to say would
/// otherwise keep it there.
const GROWTH: u64 = 2;

/// The estimate, kept up to date by [`Rate::look`].
pub(crate) struct Rate {
    last: Option<(Instant, Sample)>,
    estimates: VecDeque<u64>,
    /// Bytes per second sent since the look before the last one, if nothing was lost.
    carried: u64,
}

/// What a connection says of itself.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// Bytes per second; 0 before the first round trip.
    estimate: u64,
    bytes_out: u64,
    lost: u64,
}

impl Rate {
    pub(crate) fn new() -> Self {
        Self { last: None, estimates: VecDeque::with_capacity(LOOKS), carried: 0 }
    }

    /// Bytes per second; `None` before anything is known.
    pub(crate) fn get(&self) -> Option<u64> {
        let estimate = self.estimates.iter().copied().max().filter(|estimate| *estimate > 0)?;
        Some(estimate.max(self.carried * GROWTH))
    }

    /// Looks at the connection, if it is time to.
    pub(crate) fn look(&mut self, now: Instant, connection: &Connection) {
        if self.last.is_some_and(|(at, _)| now < at + LOOK) {
            return;
        }
        let stats = connection.stats();
        // BBR has no estimate before the path was filled once; its window over the round trip says more than nothing
        let paced = connection.congestion_state().metrics().pacing_rate.filter(|bits| *bits >= 8).map(|bits| bits / 8);
        let window = (stats.path.cwnd as u128 * 1_000_000_000 / stats.path.rtt.as_nanos().max(1)).min(u64::MAX.into()) as u64;
        let sample = Sample { estimate: paced.unwrap_or(window), bytes_out: stats.udp_tx.bytes, lost: stats.path.lost_packets };
        self.take(now, sample);
    }

    fn take(&mut self, now: Instant, sample: Sample) {
        if let Some((at, before)) = self.last {
            let passed = (now - at).as_nanos().max(1);
            let sent = u128::from(sample.bytes_out - before.bytes_out) * 1_000_000_000 / passed;
            self.carried = if sample.lost > before.lost { 0 } else { sent as u64 };
        }
        if self.estimates.len() == LOOKS {
            self.estimates.pop_front();
        }
        self.estimates.push_back(sample.estimate);
        self.last = Some((now, sample));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every tenth of a second, with what was sent and lost in between and the estimate.
    fn after(looks: &[(u64, u64, u64)]) -> Option<u64> {
        let (mut rate, mut now, mut sample) = (Rate::new(), Instant::now(), Sample::default());
        for &(sent, lost, estimate) in looks {
            now += LOOK;
            sample = Sample { estimate, bytes_out: sample.bytes_out + sent, lost: sample.lost + lost };
            rate.take(now, sample);
        }
        rate.get()
    }

    #[test]
    fn nothing_is_said_before_anything_is_known() {
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[(1000, 0, 0), (1000, 0, 0)]), None);
    }

    #[test]
    fn the_largest_of_the_last_second_holds() {
        assert_eq!(after(&[(0, 0, 125_000), (0, 0, 75_000), (0, 0, 100_000)]), Some(125_000));
        let mut looks = vec![(0, 0, 500_000)];
        looks.extend([(0, 0, 75_000); LOOKS]);
        assert_eq!(after(&looks), Some(75_000));
    }

    #[test]
    fn what_is_sent_without_loss_is_never_strangled() {
        // 10 kB in a tenth of a second, while the estimate has stayed behind
        assert_eq!(after(&[(0, 0, 20_000), (10_000, 0, 20_000)]), Some(200_000));
        assert_eq!(after(&[(0, 0, 20_000), (10_000, 3, 20_000)]), Some(20_000), "with loss, the estimate counts");
    }
}
