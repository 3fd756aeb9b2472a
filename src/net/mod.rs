//! Sockets, buffers and deadlines; knows no HTTP.
//!
//! What only one system has is in `linux.rs`, with a portable twin that does the same less well.

pub(crate) mod buffer;
pub(crate) mod deadline;
pub(crate) mod listen;
pub(crate) mod stream;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
pub(crate) mod system;
#[cfg(not(target_os = "linux"))]
#[path = "portable.rs"]
pub(crate) mod system;
