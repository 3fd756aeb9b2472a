//! See `carom::fuzz::host`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| carom::fuzz::host(bytes));
