//! What the operator wrote, and when it changes.
//!
//! [`routes::parse`] turns the routes file into a table or into a [`report::Report`]; [`watch::Watch`] says when the
//! file has new content; [`diff::Diff`] says what that changes; [`file::Config`] is `carom.toml`.
//! Serving is not its business: it publishes nothing.

mod answer;
pub mod diff;
mod from_json;
mod from_toml;
mod keys;
mod names;
mod node;
pub mod report;
mod reuse;
pub mod routes;
mod target;
mod text;

pub use text::LARGEST_FILE;
