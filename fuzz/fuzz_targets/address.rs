//! See [`tidelock_fuzz::address`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::address::run(data));
