//! How an instance is checked, as an operator writes it.

use std::time::Duration;

use super::keys::{Keys, noted};
use super::node::{Entry, Node, Value};
use super::quantity;
use super::report::Problem;
use crate::http::body::is_token;
use crate::http::host::Host;
use crate::table::health::{Check, Probe};

const TABLE: Keys = Keys {
    of: "`health`",
    known: &["path", "interval", "timeout", "rise", "fall", "status", "host", "method"],
    later: &[],
};

const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(3);

/// Fewer than this would be load and not a question.
const SHORTEST: Duration = Duration::from_millis(100);

const HELP: &str = "\"tcp\", a path such as \"/up\", or { path = \"/up\", interval = \"5s\" }";

/// Reads it; `None` when it is wrong, which is noted.
pub(super) fn read<'a>(node: &'a Node<'a>, problems: &mut Vec<Problem>) -> Option<Check> {
    let plain = |probe| Check { probe, interval: INTERVAL, timeout: TIMEOUT, rise: 1, fall: 2 };
    match &node.value {
        Value::Table(entries) => table(node, entries, problems),
        Value::String(text) if text == "tcp" => Some(plain(Probe::Tcp)),
        Value::String(_) => noted(path(node), problems).map(|path| plain(get(path))),
        other => {
            let problem = Problem::at(&node.span, format!("expected a check, found {}", other.kind()));
            problems.push(problem.help(HELP));
            None
        }
    }
}

/// Why this can't be asked of an instance that does not speak HTTP/1 with us.
pub(super) fn fits(check: &Check, speaks_otherwise: bool) -> Option<&'static str> {
    match check.probe {
        Probe::Http { .. } if speaks_otherwise => {
            Some("only instances that speak HTTP/1 with carom can be asked for a path")
        }
        _ => None,
    }
}

fn get(path: Box<str>) -> Probe {
    Probe::Http { method: "GET".into(), path, host: None, status: Vec::new() }
}

fn table<'a>(node: &'a Node<'a>, entries: &'a [Entry<'a>], problems: &mut Vec<Problem>) -> Option<Check> {
    let before = problems.len();
    let mut asked = None;
    let (mut interval, mut timeout, mut rise, mut fall) = (INTERVAL, None, 1, 2);
    let (mut named, mut statuses, mut verb) = (None, Vec::new(), None);
    TABLE.read(
        entries,
        problems,
        |_| None,
        |key, entry, problems| {
            let node = &entry.node;
            match key {
                "path" => asked = noted(path(node), problems),
                "interval" => interval = noted(pause(node), problems).unwrap_or(INTERVAL),
                "timeout" => timeout = noted(pause(node), problems).map(|timeout| (timeout, node)),
                "rise" => rise = noted(node.number("a number of answers", 1..=1000), problems).unwrap_or(1),
                "fall" => fall = noted(node.number("a number of answers", 1..=1000), problems).unwrap_or(2),
                "status" => statuses = node.items().iter().filter_map(|item| noted(status(item), problems)).collect(),
                "host" => named = noted(host(node), problems),
                _ => verb = noted(method(node), problems),
            }
        },
    );
    if let Some((_, node)) = timeout.filter(|(timeout, _)| *timeout > interval) {
        problems.push(Problem::at(&node.span, "`timeout` is longer than `interval`"));
    }
    if problems.len() > before {
        return None;
    }
    let Some(path) = asked else {
        problems.push(Problem::at(&node.span, "a check by table needs `path`").help(HELP));
        return None;
    };
    let probe = Probe::Http { method: verb.unwrap_or_else(|| "GET".into()), path, host: named, status: statuses };
    let timeout = timeout.map_or(TIMEOUT.min(interval), |(timeout, _)| timeout);
    let count = |number: i64| u32::try_from(number).unwrap_or(1);
    Some(Check { probe, interval, timeout, rise: count(rise), fall: count(fall) })
}

fn path(node: &Node<'_>) -> Result<Box<str>, Problem> {
    let text = node.text("a path").map_err(|problem| problem.help(HELP))?;
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    match text.starts_with('/') && plain {
        true => Ok(text.into()),
        false => Err(Problem::at(&node.span, "a path begins with / and has neither spaces nor #").help(HELP)),
    }
}

fn pause(node: &Node<'_>) -> Result<Duration, Problem> {
    let pause = quantity::duration(node)?;
    match pause >= SHORTEST {
        true => Ok(pause),
        false => Err(Problem::at(&node.span, "at least 100ms")),
    }
}

fn status(node: &Node<'_>) -> Result<u16, Problem> {
    let number = node.number("a status", 200..=599).map_err(|p| p.help("status = 204, or [200, 204]"))?;
    Ok(u16::try_from(number).unwrap_or(200))
}

fn host(node: &Node<'_>) -> Result<Box<str>, Problem> {
    let text = node.text("a host")?;
    match Host::parse(text.as_bytes()) {
        Ok(_) => Ok(text.into()),
        Err(bad) => Err(Problem::at(&node.span, bad.0)),
    }
}

fn method(node: &Node<'_>) -> Result<Box<str>, Problem> {
    let text = node.text("a method")?;
    match !text.is_empty() && text.bytes().all(is_token) && text != "CONNECT" {
        true => Ok(text.into()),
        false => Err(Problem::at(&node.span, "a method is a token, and not CONNECT").help("\"GET\" or \"HEAD\"")),
    }
}
