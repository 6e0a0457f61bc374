//! See [`tidelock_fuzz::layout`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::layout::run(data));
