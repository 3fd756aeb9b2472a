//! See `carom::fuzz::response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| carom::fuzz::response(bytes));
