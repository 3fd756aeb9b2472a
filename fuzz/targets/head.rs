//! See `carom::fuzz::head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| carom::fuzz::head(bytes));
