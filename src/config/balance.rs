//! How an instance is chosen, as an operator writes it.

use super::keys::{Keys, noted};
use super::names;
use super::node::{Node, Value};
use super::report::Problem;
use crate::http::body::is_token;
use crate::table::balance::{Balance, By};

/// The ways to choose.
const NAMES: &[&str] = &["round-robin", "least-connections", "random-two", "hash"];

/// Those that will come.
const LATER: &[&str] = &["sticky", "least-time", "first"];

const TABLE: Keys = Keys { of: "`balance`", known: &["hash"], later: &["sticky"] };

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
];

/// Reads it. Problems are noted, and the default stands in their place.
pub(super) fn read<'a>(node: &'a Node<'a>, problems: &mut Vec<Problem>) -> Balance {
    if let Value::Table(entries) = &node.value {
        let mut by = None;
        TABLE.read(entries, problems, |_| None, |_, entry, problems| by = noted(hashed(&entry.node), problems));
        return by.map_or_else(Balance::default, Balance::Hash);
    }
    noted(named(node), problems).unwrap_or_default()
}

fn named(node: &Node<'_>) -> Result<Balance, Problem> {
    let what = "a way to choose";
    match node.text(what).map_err(|problem| problem.help(names::did_you_mean("", NAMES)))? {
        "round-robin" => Ok(Balance::RoundRobin),
        "least-connections" => Ok(Balance::LeastConnections),
        "random-two" => Ok(Balance::RandomTwo),
        "hash" => Ok(Balance::Hash(By::Client)),
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
