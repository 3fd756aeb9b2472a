//! Carom bounces each HTTP request to the right backend.
pub mod cli;
pub mod config;
pub mod http;
pub mod settings;
pub mod table;
