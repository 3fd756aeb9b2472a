//! When a request is tried again, as an operator writes it.

use super::keys::{Keys, noted};
use super::names;
use super::node::{Node, Value};
use super::report::Problem;
use crate::http::body::is_token;
use crate::http::head::is_idempotent;
use crate::table::retries::{MOST_TRIES, Retries};

const TABLE: Keys = Keys { of: "`retries`", known: &["tries", "on", "methods", "budget"], later: &[] };

const HELP: &str = "retries = 2, or retries = { tries = 3, on = [\"connect\", \"reset\", \"503\"] }";

/// What a try may fail of, besides statuses.
const FAILURES: &[&str] = &["connect", "reset", "timeout"];

/// Reads it: a number of tries, or a table. `None` when something is wrong, which is noted.
pub(super) fn read<'a>(node: &'a Node<'a>, problems: &mut Vec<Problem>) -> Option<Retries> {
    let Value::Table(entries) = &node.value else {
        let tries = noted(tries(node).map_err(|problem| problem.help(HELP)), problems)?;
        return Some(Retries { tries, ..Retries::default() });
    };
    let before = problems.len();
    let mut retries = Retries::default();
    TABLE.read(
        entries,
        problems,
        |_| None,
        |key, entry, problems| match key {
            "tries" => retries.tries = noted(tries(&entry.node), problems).unwrap_or(retries.tries),
            "on" => on(&entry.node, &mut retries, problems),
            "methods" => {
                let items = entry.node.items().iter();
                retries.methods = Some(items.filter_map(|item| noted(method(item), problems)).collect());
            }
            _ => retries.budget = noted(budget(&entry.node), problems).unwrap_or(retries.budget),
        },
    );
    (problems.len() == before).then_some(retries)
}

fn tries(node: &Node<'_>) -> Result<u32, Problem> {
    let number = node.number("how often a request is tried, the first time included", 2..=i64::from(MOST_TRIES))?;
    Ok(u32::try_from(number).unwrap_or(2))
}

/// `["connect", "reset", "timeout", "502", 503]`
fn on(node: &Node<'_>, retries: &mut Retries, problems: &mut Vec<Problem>) {
    (retries.connect, retries.reset, retries.timeout) = (false, false, false);
    if node.items().is_empty() {
        problems.push(Problem::at(&node.span, "nothing to try again after").help(HELP));
    }
    for item in node.items() {
        let status = match &item.value {
            Value::Integer(Some(number)) => Some(*number),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let text = match status {
            Some(status @ 400..=599) => {
                retries.statuses.extend(u16::try_from(status));
                continue;
            }
            Some(other) => {
                let what = format!("{other} is no status to try again after");
                problems.push(Problem::at(&item.span, what).help("400 to 599"));
                continue;
            }
            None => noted(item.text("what a try may fail of").map_err(|problem| problem.help(HELP)), problems),
        };
        match text {
            Some("connect") => retries.connect = true,
            Some("reset") => retries.reset = true,
            Some("timeout") => retries.timeout = true,
            Some(other) => {
                let problem = Problem::at(&item.span, format!("no failure is called \"{other}\""));
                problems.push(problem.help(names::did_you_mean(other, FAILURES)));
            }
            None => {}
        }
    }
}

fn method(node: &Node<'_>) -> Result<Box<str>, Problem> {
    let text = node.text("a method")?;
    if is_idempotent(text.as_bytes()) {
        return Ok(text.into());
    }
    let help = match text.to_ascii_uppercase() {
        upper if is_idempotent(upper.as_bytes()) => format!("\"{upper}\": methods are written in capitals"),
        _ if text.bytes().all(is_token) => {
            "what may have arrived is only sent again when doing it twice is the same as doing it once (RFC 9110 section \
             9.2.2): GET, HEAD, OPTIONS, PUT, DELETE, TRACE"
                .into()
        }
        _ => "such as \"GET\"".into(),
    };
    Err(Problem::at(&node.span, format!("{text} is never tried again once it may have arrived")).help(help))
}

/// `"20%"`
fn budget(node: &Node<'_>) -> Result<u32, Problem> {
    let problem = |what: &str| Problem::at(&node.span, what).help("budget = \"20%\" of the site's requests");
    let text = node.text("a share").map_err(|_| problem("expected a share"))?;
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<u32>().ok());
    number.filter(|number| (1..=100).contains(number)).ok_or_else(|| problem("a share is \"1%\" to \"100%\""))
}
