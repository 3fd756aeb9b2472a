//! `[status]` of carom.toml: where the status page and metrics are, and for whom.

use std::net::SocketAddr;

use crate::ops::status::{SHORTEST_TOKEN, is_token, needs_token};

use super::file::listen_address;
use super::keys::{Keys, noted};
use super::node::{Entry, Node, Value};
use super::report::Problem;

/// Where the status listener is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its address; nowhere when nothing is said. Default: nowhere.
    pub listen: Option<SocketAddr>,
    /// What those have to know who may look; on an address that is only this machine's, nobody has to.
    pub token: Option<Box<str>>,
}

pub(super) const KEYS: Keys = Keys { of: "[status]", known: &["listen", "token"], later: &[] };

/// How a token is made.
pub const HOW_TO_TOKEN: &str = "[status] token = \"…\", such as `openssl rand -hex 16` makes";

impl Status {
    /// Takes one key.
    pub(super) fn take(&mut self, key: &str, node: &Node<'_>, problems: &mut Vec<Problem>) {
        match key {
            "listen" => self.listen = noted(listen(node), problems),
            _ => self.token = noted(token(node), problems),
        }
    }

    /// What only the whole section shows.
    pub(super) fn doubts(&self, entries: &[Entry<'_>], problems: &mut Vec<Problem>) {
        let Some(address) = self.listen.filter(|address| self.token.is_none() && needs_token(*address)) else { return };
        let section = entries.iter().filter(|entry| entry.key == "status");
        let keys = section.filter_map(|entry| entry.node.entries("a table").ok()).flatten();
        // A token that is wrong has been said to be.
        let (mut listen, mut token) = (None, None);
        for entry in keys {
            match &*entry.key {
                "listen" => listen = Some(entry),
                "token" => token = Some(entry),
                _ => {}
            }
        }
        let (Some(listen), None) = (listen, token) else { return };
        let port = address.port();
        problems.push(
            Problem::at(&listen.node.span, format!("{address} is not only this machine's, and there is no token"))
                .help(format!("\"127.0.0.1:{port}\"; or {HOW_TO_TOKEN}")),
        );
    }
}

fn listen(node: &Node<'_>) -> Result<SocketAddr, Problem> {
    if let Value::Integer(Some(port)) = node.value {
        return Err(Problem::at(&node.span, "an address stands in quotes").help(format!("\"127.0.0.1:{port}\"")));
    }
    let text = node.text("an address such as \"127.0.0.1:9180\"")?;
    listen_address(text).map_err(|help| Problem::at(&node.span, "not an address to listen on").help(help))
}

fn token(node: &Node<'_>) -> Result<Box<str>, Problem> {
    let text = node.text("a token")?;
    match is_token(text) {
        true => Ok(text.into()),
        false => {
            let what = format!("a token is at least {SHORTEST_TOKEN} of letters, digits and -._~+/=");
            Err(Problem::at(&node.span, what).help("`openssl rand -hex 16` makes one"))
        }
    }
}
