//! See [`tidelock_fuzz::session_host`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::session_host::run(data));
