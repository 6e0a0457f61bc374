//! Tidelock's in-process transport, through the seeded emulator.
