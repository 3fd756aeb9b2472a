//! What the operator wrote, and when it changes.
//!
//! [`routes::parse`] turns the routes file into a table or into a [`report::Report`]; [`watch::Watch`] says when the
//! file has new content; [`diff::Diff`] says what that changes; [`history::History`] keeps what was live;
//! [`edit`] changes a line of it, and [`save`] writes it; [`file::Config`] is `carom.toml`.
//! Serving is not its business: it publishes nothing.

mod answer;
mod balance;
pub mod caution;
pub mod certs;
pub mod diff;
mod dotted;
pub mod edit;
pub mod file;
mod folders;
mod from_json;
mod from_toml;
mod health;
pub mod history;
mod https;
mod keys;
mod link;
mod list;
mod log;
mod look;
mod names;
mod node;
mod quantity;
pub mod report;
mod retries;
mod reuse;
pub mod routes;
mod rules;
pub mod save;
mod settle;
pub mod state;
pub mod status;
mod sticky;
pub mod sticky_key;
mod text;
pub mod watch;

use std::path::{Path, PathBuf};

pub use text::LARGEST_FILE;

/// The routes file when none is named: the first that exists of `routes.toml`, `config/routes.toml` and
/// `/etc/carom/routes.toml`.
pub fn default_routes_path() -> Option<PathBuf> {
    ["routes.toml", "config/routes.toml", "/etc/carom/routes.toml"].iter().map(PathBuf::from).find(|path| path.exists())
}

/// The folder of certificates when none is named: `certs` beside the routes file.
pub fn default_certs_path(routes: &Path) -> PathBuf {
    routes.with_file_name("certs")
}
