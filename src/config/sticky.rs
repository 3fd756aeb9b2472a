//! How sessions stay with an instance, as an operator writes it: a name for the cookie, or a table.

use super::keys::{Keys, noted};
use super::node::{Node, Value};
use super::report::Problem;
use super::{balance, quantity};
use crate::http::body::is_token;
use crate::table::balance::Balance;
use crate::table::pattern::Pattern;
use crate::table::sticky::{COOKIE, SameSite, Sticky};

const TABLE: Keys = Keys { of: "`sticky`", known: &["cookie", "then", "max_age", "same_site", "secure"], later: &[] };

const HELP: &str = "sticky = \"NAME\", or { cookie = \"NAME\", then = \"least-connections\", max_age = \"1h\" }";

const SAME_SITE: &str = "\"lax\", \"strict\" or \"none\"";

/// Those that say nothing more.
pub(super) fn plain() -> Sticky {
    Sticky {
        cookie: COOKIE.into(),
        then: Balance::RoundRobin,
        max_age: None,
        same_site: SameSite::Lax,
        secure: None,
        site: Box::default(),
        path: "/".into(),
    }
}

/// Reads it. Problems are noted, and defaults stand in their place.
pub(super) fn read<'a>(node: &'a Node<'a>, problems: &mut Vec<Problem>) -> Sticky {
    let mut sticky = plain();
    let Value::Table(entries) = &node.value else {
        sticky.cookie = noted(cookie(node), problems).unwrap_or(sticky.cookie);
        return sticky;
    };
    let mut secure = None;
    TABLE.read(
        entries,
        problems,
        |_| None,
        |key, entry, problems| match key {
            "cookie" => sticky.cookie = noted(cookie(&entry.node), problems).unwrap_or_else(|| COOKIE.into()),
            "then" => {
                let then = noted(balance::named(&entry.node), problems).unwrap_or_default();
                if matches!(then, Balance::Hash(_) | Balance::Sticky(_)) {
                    let problem =
                        Problem::at(&entry.node.span, "a new session has nothing yet that would be looked at");
                    problems.push(problem.help("then = \"round-robin\", \"least-connections\" or \"random-two\""));
                    return;
                }
                sticky.then = then;
            }
            "max_age" => sticky.max_age = noted(quantity::duration(&entry.node), problems),
            "same_site" => sticky.same_site = noted(same_site(&entry.node), problems).unwrap_or_default(),
            _ => {
                sticky.secure = noted(entry.node.flag("true or false"), problems);
                secure = Some(entry);
            }
        },
    );
    if let (Some(entry), SameSite::None, Some(false)) = (secure, sticky.same_site, sticky.secure) {
        let problem =
            Problem::at(&entry.node.span, "browsers drop a cookie with same_site = \"none\" that is not secure");
        problems.push(problem.help("take `secure` out"));
    }
    sticky
}

/// Says to whose site it belongs. `alone`: it has no other hosts and paths than this pattern.
pub(super) fn of_site(sticky: &mut Sticky, pattern: &Pattern, alone: bool) {
    sticky.site = pattern.to_string().into();
    let is_plain = |path: &&str| path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
    if let Some(path) = pattern.path.as_deref().filter(is_plain).filter(|_| alone) {
        sticky.path = path.into();
    }
}

fn cookie(node: &Node<'_>) -> Result<Box<str>, Problem> {
    let text = node.text("the name of a cookie").map_err(|problem| problem.help(HELP))?;
    match !text.is_empty() && text.bytes().all(is_token) {
        true => Ok(text.into()),
        false => Err(Problem::at(&node.span, format!("\"{text}\" is no name of a cookie")).help(HELP)),
    }
}

fn same_site(node: &Node<'_>) -> Result<SameSite, Problem> {
    match node.text(SAME_SITE)?.to_ascii_lowercase().as_str() {
        "lax" => Ok(SameSite::Lax),
        "strict" => Ok(SameSite::Strict),
        "none" => Ok(SameSite::None),
        other => Err(Problem::at(&node.span, format!("no SameSite is called \"{other}\"")).help(SAME_SITE)),
    }
}
