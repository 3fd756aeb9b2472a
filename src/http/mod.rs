//! The HTTP/1 that we understand: bytes in, verdicts out.
//!
//! Pure: no sockets, no clock, no allocation that a peer can grow past a limit. So every odd message is a
//! three-line test, and the loop above can change without touching what a message means.

pub(crate) mod body;
pub(crate) mod field;
#[cfg(test)]
mod generate;
pub mod head;
pub mod host;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
#[cfg(any(test, fuzzing))]
mod reference;
pub mod refuse;
pub(crate) mod response;
pub(crate) mod rewrite;
