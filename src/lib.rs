//! Carom bounces each HTTP request to the right backend.
pub mod bounce;
pub mod config;
mod conn;
pub mod http;
mod net;
pub mod ops;
pub mod proxy;
pub mod record;
pub mod settings;
pub mod table;
mod upstream;

pub use http::refuse::Refusal;
