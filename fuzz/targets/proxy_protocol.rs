//! See `carom::fuzz::proxy_protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| carom::fuzz::proxy_protocol(bytes));
