//! See `carom::fuzz::chunked`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| carom::fuzz::chunked(bytes));
