//! See [`tidelock_fuzz::snapshot`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::snapshot::run(data));
