//! How an instance is chosen, as an operator writes it.

use super::keys::{Keys, noted};
use super::node::{Node, Value};
use super::report::Problem;
use super::{names, sticky};
use crate::http::body::is_token;
use crate::table::balance::{Balance, By};

/// The ways to choose.
const NAMES: &[&str] = &["round-robin", "least-connections", "random-two", "hash", "sticky"];

/// Those that will come.
const LATER: &[&str] = &["least-time", "first"];

const TABLE: Keys = Keys { of: "`balance`", known: &["hash", "sticky"], later: &[] };

/// What other proxies call them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("roundrobin", "round-robin"),
    ("round_robin", "round-robin"),
    ("rr", "round-robin"),
    ("wrr", "round-robin"),
    ("leastconn", "least-connections"),
    ("least_conn", "least-connections"),
    ("lc", "least-connections"),
    ("random", "random-two"),
    ("p2c", "random-two"),
    ("two-choices", "random-two"),
    ("random_choose", "random-two"),
    ("ip-hash", "hash"),
    ("ip_hash", "hash"),
    ("source", "hash"),
    ("cookie", "sticky"),
    ("session", "sticky"),
];

/// Reads it. Problems are noted, and the default stands in their place.
pub(super) fn read<'a>(node: &'a Node<'a>, problems: &mut Vec<Problem>) -> Balance {
    if let Value::Table(entries) = &node.value {
        let (mut read, mut first) = (None, None);
        TABLE.read(
            entries,
            problems,
            |_| None,
            |key, entry, problems| {
                if let Some(first) = first.replace(entry) {
                    let problem = Problem::at(&entry.key_span, "`hash` and `sticky` are two ways to choose");
                    problems.push(problem.label("either this").and(&first.key_span, "or this"));
                }
                read = match key {
                    "hash" => noted(hashed(&entry.node), problems).map(Balance::Hash),
                    _ => Some(Balance::Sticky(Box::new(sticky::read(&entry.node, problems)))),
                };
            },
        );
        return read.unwrap_or_default();
    }
    noted(named(node), problems).unwrap_or_default()
}

pub(super) fn named(node: &Node<'_>) -> Result<Balance, Problem> {
    let what = "a way to choose";
    match node.text(what).map_err(|problem| problem.help(names::did_you_mean("", NAMES)))? {
        "round-robin" => Ok(Balance::RoundRobin),
        "least-connections" => Ok(Balance::LeastConnections),
        "random-two" => Ok(Balance::RandomTwo),
        "hash" => Ok(Balance::Hash(By::Client)),
        "sticky" => Ok(Balance::Sticky(Box::new(sticky::plain()))),
        later if LATER.contains(&later) => {
            Err(Problem::at(&node.span, format!("not yet: balance \"{later}\"")).help(names::did_you_mean("", NAMES)))
        }
        other => {
            let problem = Problem::at(&node.span, format!("no way to choose is called \"{other}\""));
            let known = ELSEWHERE.iter().find(|(name, _)| name.eq_ignore_ascii_case(other));
            Err(problem.help(match known {
                Some((_, ours)) => format!("here it is called \"{ours}\""),
                None => names::did_you_mean(other, NAMES),
            }))
        }
    }
}

/// `"client"`, `"header:X-User"` or `"cookie:uid"`.
fn hashed(node: &Node<'_>) -> Result<By, Problem> {
    const HELP: &str = "hash = \"client\", \"header:NAME\" or \"cookie:NAME\"";
    let text = node.text("what is hashed").map_err(|problem| problem.help(HELP))?;
    let name = |name: &str| match !name.is_empty() && name.bytes().all(is_token) {
        true => Ok(Box::from(name)),
        false => Err(Problem::at(&node.span, format!("\"{name}\" is no name of a field or a cookie")).help(HELP)),
    };
    match text.split_once(':') {
        None if text == "client" => Ok(By::Client),
        Some(("header", field)) => Ok(By::Header(name(field.trim())?)),
        Some(("cookie", cookie)) => Ok(By::Cookie(name(cookie.trim())?)),
        _ => Err(Problem::at(&node.span, format!("nothing to hash is called \"{text}\"")).help(HELP)),
    }
}
