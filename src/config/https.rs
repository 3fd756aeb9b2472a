//! What a route says about TLS: `https`, `hsts` and `tls`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::table::https::{OwnFiles, Plain};

use super::keys::{Keys, noted};
use super::names;
use super::node::{Node, Value};
use super::report::Problem;

/// Reads what becomes of plain HTTP.
pub(super) fn plain(node: &Node<'_>) -> Result<Plain, Problem> {
    match node.text("what becomes of plain HTTP").map_err(|problem| problem.help(names::listed(HTTPS)))? {
        "redirect" => Ok(Plain::Redirected),
        "allow" => Ok(Plain::Allowed),
        "only" => Ok(Plain::Refused),
        other => Err(Problem::at(&node.span, format!("plain HTTP can't be treated as \"{other}\""))
            .help(names::did_you_mean(other, HTTPS))),
    }
}

/// Reads how long browsers are to remember that the site is served over TLS, as its field says it.
pub(super) fn hsts(node: &Node<'_>, problems: &mut Vec<Problem>) -> Option<Arc<str>> {
    let Value::Table(entries) = &node.value else {
        return noted(days(node), problems).map(|seconds| format!("max-age={seconds}").into());
    };
    let (mut seconds, mut subdomains, mut preload) = (None, false, false);
    let before = problems.len();
    HSTS.read(
        entries,
        problems,
        |_| None,
        |key, entry, problems| match key {
            "max_age" => seconds = noted(days(&entry.node), problems),
            "include_subdomains" => {
                subdomains = noted(entry.node.flag("true or false"), problems).unwrap_or_default();
            }
            _ => preload = noted(entry.node.flag("true or false"), problems).unwrap_or_default(),
        },
    );
    if seconds.is_none() && problems.len() == before {
        problems.push(Problem::at(&node.span, "`hsts` needs `max_age`").help("hsts = { max_age = \"180d\" }"));
    }
    let seconds = seconds?;
    if preload && !(subdomains && seconds >= YEAR) {
        problems.push(
            Problem::at(&node.span, "browsers preload only what is for a year or more and for all subdomains")
                .help("hsts = { max_age = \"365d\", include_subdomains = true, preload = true }"),
        );
    }
    let mut value = format!("max-age={seconds}");
    for (said, directive) in [(subdomains, "; includeSubDomains"), (preload, "; preload")] {
        if said {
            value.push_str(directive);
        }
    }
    Some(value.into())
}

/// A number of days, in seconds; `"0d"` makes browsers forget it.
fn days(node: &Node<'_>) -> Result<u64, Problem> {
    let text = node.text("a time in days").map_err(|problem| problem.help("\"180d\""))?;
    let days = text.strip_suffix('d').and_then(|number| number.parse::<u64>().ok()).filter(|&days| days <= MOST_DAYS);
    let Some(days) = days else {
        return Err(Problem::at(&node.span, "expected a time in days, such as \"180d\""));
    };
    Ok(days * DAY)
}

/// Reads the files of a certificate. A relative path is from the folder that the routes file is in.
pub(super) fn own(node: &Node<'_>, routes: &Path, problems: &mut Vec<Problem>) -> Option<OwnFiles> {
    let example = "tls = { cert = \"/etc/ssl/example.pem\", key = \"/etc/ssl/example.key\" }";
    let entries = noted(node.entries("a table").map_err(|problem| problem.help(example)), problems)?;
    let (mut cert, mut key) = (None, None);
    let before = problems.len();
    OWN.read(
        entries,
        problems,
        |_| None,
        |name, entry, problems| {
            let file = noted(file(&entry.node, routes), problems);
            match name {
                "cert" => cert = file,
                _ => key = file,
            }
        },
    );
    if cert.is_none() && problems.len() == before {
        problems.push(Problem::at(&node.span, "`tls` needs `cert`").help(example));
    }
    let cert = cert?;
    Some(OwnFiles { key: key.unwrap_or_else(|| cert.clone()), cert })
}

fn file(node: &Node<'_>, routes: &Path) -> Result<PathBuf, Problem> {
    match node.text("the path of a PEM file")? {
        text if text.is_empty() || text.contains('\0') => Err(Problem::at(&node.span, "not a path")),
        text => Ok(routes.with_file_name("").join(text)),
    }
}

const DAY: u64 = 24 * 60 * 60;

const YEAR: u64 = 365 * DAY;

/// Ten years.
const MOST_DAYS: u64 = 3650;

/// What `https` may be.
const HTTPS: &[&str] = &["redirect", "allow", "only"];

const HSTS: Keys = Keys { of: "`hsts`", known: &["max_age", "include_subdomains", "preload"], later: &[] };

const OWN: Keys = Keys { of: "`tls`", known: &["cert", "key"], later: &[] };
