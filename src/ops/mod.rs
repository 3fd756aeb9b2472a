//! What keeps a proxy well and visible, off the data path.

pub mod access;
pub mod causes;
pub mod control;
pub mod failures;
pub mod health;
pub mod local;
pub mod names;
mod own_thread;
mod server;
pub mod stats;
pub mod status;
