//! See [`tidelock_fuzz::session_owner`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::session_owner::run(data));
