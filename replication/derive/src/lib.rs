//! derive(Replicate, Interpolate, Checkpoint) for Tidelock.
