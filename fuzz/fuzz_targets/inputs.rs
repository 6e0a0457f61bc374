//! See [`tidelock_fuzz::inputs`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::inputs::run(data));
