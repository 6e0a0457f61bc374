//! The guesses for some rows of a block, made from a history that sender and receiver share as far as it is asked here.

use crate::block::bits;
use crate::forecast::Forecast;
use crate::history::{BLOCK, History, copy_words};
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
        if let (Forecast::Velocity, Some(velocity)) = (forecast, schema.velocity(c)) {
            let stride = schema.layout(velocity.source).words();
            // mostly nothing has changed since, and what would be gathered stands in the history already
            let now = history.still(c, block, rows, since.base);
            if now.is_none() {
                history.gather(c, block, rows, since.base, &mut self.older);
            }
            let speeds = history.still(velocity.source, block, rows, since.base);
            if speeds.is_none() {
                history.gather(velocity.source, block, rows, since.base, &mut self.velocities);
            }
            let (bases, speeds) = (now.unwrap_or(&self.older), speeds.unwrap_or(&self.velocities));
            if self.values.len() < BLOCK * words {
                self.values.resize(BLOCK * words, 0);
            }
            for bit in bits(rows).map(|bit| bit as usize) {
                let (at, from) = (bit * words, bit * stride);
                let value = &mut self.values[at..at + words];
                copy_words(value, &bases[at..at + words]);
                velocity.go_on(&speeds[from..from + stride], since.seconds, value);
            }
            return;
        }
        history.gather(c, block, rows, since.base, &mut self.values);
        if forecast == Forecast::Motion {
            history.gather(c, block, rows, since.older(), &mut self.older);
            layout.go_on_rows(rows, &self.older, &mut self.values);
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
