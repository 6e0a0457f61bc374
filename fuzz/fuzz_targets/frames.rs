//! See [`tidelock_fuzz::frames`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::frames::run(data));
