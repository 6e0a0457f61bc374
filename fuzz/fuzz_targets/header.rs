//! See [`tidelock_fuzz::header`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::header::run(data));
