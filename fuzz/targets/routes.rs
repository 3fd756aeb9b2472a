//! See `carom::fuzz::routes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| carom::fuzz::routes(bytes));
