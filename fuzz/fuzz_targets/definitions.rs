//! See [`tidelock_fuzz::definitions`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::definitions::run(data));
