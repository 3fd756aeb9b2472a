//! Carom bounces each HTTP request to the right backend.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
pub mod http;
pub mod settings;
pub mod table;
