//! See [`tidelock_fuzz::bits`].

#![forbid(unsafe_code)]
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidelock_fuzz::bits::run(data));
