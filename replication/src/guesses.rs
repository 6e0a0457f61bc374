//! The guesses for some rows of a block, made from a history that sender and receiver share as far as it is asked here.

use crate::block::bits;
use crate::forecast::Forecast;
use crate::history::{BLOCK, History};
use crate::schema::Inner;
use tidelock_netcore::tick::Tick;

/// From when to when is guessed.
#[derive(Clone, Copy)]
pub(crate) struct Since {
    pub(crate) base: Tick,
    pub(crate) send_tick: Tick,
    /// The same in seconds of the session; 0 where no velocity is used.
    pub(crate) seconds: f64,
}

impl Since {
    /// As long before the baseline as that is before the send.
    pub(crate) fn older(self) -> Tick {
        self.base.minus(self.send_tick.since(self.base))
    }
}

/// Buffers of 64 rows.
#[derive(Default)]
pub(crate) struct Guesses {
    values: Vec<u32>,
    older: Vec<u32>,
    velocities: Vec<u32>,
}

impl Guesses {
    /// Makes guesses of some rows' component.
    #[expect(clippy::too_many_arguments, reason = "which values, and how they are guessed")]
    pub(crate) fn make(
        &mut self,
        schema: &Inner,
        history: &History,
        c: usize,
        block: usize,
        rows: u64,
        since: Since,
        forecast: Forecast,
    ) {
        let (layout, words) = (schema.layout(c), schema.layout(c).words());
        history.gather(c, block, rows, since.base, &mut self.values);
        match (forecast, schema.velocity(c)) {
            (Forecast::Motion, _) => {
                history.gather(c, block, rows, since.older(), &mut self.older);
                layout.go_on_rows(rows, &self.older, &mut self.values);
            }
            (Forecast::Velocity, Some(velocity)) => {
                let stride = schema.layout(velocity.source).words();
                history.gather(velocity.source, block, rows, since.base, &mut self.velocities);
                for bit in bits(rows).map(|bit| bit as usize) {
                    let (at, from) = (bit * words, bit * stride);
                    velocity.go_on(&self.velocities[from..from + stride], since.seconds, &mut self.values[at..at + words]);
                }
            }
            _ => {}
        }
    }

    /// Guesses for rows that nothing is known of: zeros.
    pub(crate) fn make_of_nothing(&mut self, words: usize) {
        self.values.clear();
        self.values.resize(BLOCK * words, 0);
    }

    /// The guesses, each where the row has its place among 64.
    #[inline]
    pub(crate) fn values(&self) -> &[u32] {
        &self.values
    }
}
