//! `carom explain --last [STATUS or REASON]`: the requests that have failed lately, each with what is known of it, what its
//! reason means, and what cures it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use carom::ops::causes;
use carom::ops::control::Status;
use carom::ops::control::status::Word;
use carom::ops::failures::Failure;
use serde::Deserialize;
use serde_json::Value;

use super::To;
use super::serve::{Failure as Failed, WRONG};
use super::talk::{Talk, percent_encoded};

/// What is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    /// A status, a reason code, or empty for any.
    pub(super) what: String,
    pub(super) count: u16,
    pub(super) json: bool,
}

#[derive(Deserialize)]
struct Answer {
    failures: Vec<Failure>,
}

/// Shows them: 0 when there are some, 1 when there are none.
pub(super) fn run(asked: &Asked, to: To) -> ExitCode {
    match show(asked, to) {
        Ok((text, some)) => {
            tell!("{}", text.trim_end());
            if some { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => failure.exit(),
    }
}

fn show(asked: &Asked, to: To) -> Result<(String, bool), Failed> {
    let which = match asked.what.as_str() {
        "" => String::new(),
        what if what.bytes().all(|byte| byte.is_ascii_digit()) => format!("&status={what}"),
        what if causes::of(what).is_some() => format!("&reason={}", percent_encoded(what)),
        what => {
            let text = format!("carom: {what} is neither a status nor a reason code\nhelp: the README lists the codes");
            return Err(Failed { text, code: WRONG });
        }
    };
    let path = format!("/v1/failures?n={}{which}", asked.count);
    let carom = Talk::with(to)?;
    if asked.json {
        let answer: Value = carom.get(&path)?;
        let some = answer.get("failures").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        return Ok((format!("{answer:#}"), some));
    }
    let Answer { failures } = carom.get(&path)?;
    if failures.is_empty() {
        let what = if asked.what.is_empty() { "request" } else { &asked.what };
        return Ok((format!("no {what} has failed since this carom was started"), false));
    }
    let states = states(&carom.get("/v1/status")?);
    let all: Vec<String> = failures.iter().map(|failure| written(failure, &states)).collect();
    Ok((all.join("\n\n"), true))
}

/// How instances are now, by site and name.
fn states(status: &Status) -> HashMap<(String, String), String> {
    let mut states = HashMap::new();
    for site in &status.sites {
        for instance in &site.instances {
            if instance.state == Word::Up && instance.check.is_none() {
                let text = "not known to be down; `health = \"tcp\"` in its line would say";
                states.insert((site.name.clone(), instance.name.clone()), text.to_owned());
                continue;
            }
            let mut now = serde_json::to_value(instance.state).ok().and_then(|word| Some(word.as_str()?.to_owned()));
            if let (Some(now), Some(why)) = (&mut now, &instance.why) {
                let _ = write!(now, ": {why}");
            }
            states.insert((site.name.clone(), instance.name.clone()), now.unwrap_or_default());
        }
    }
    states
}

/// For people: one line that says it, and what is known besides below.
fn written(failure: &Failure, states: &HashMap<(String, String), String>) -> String {
    let mut text = format!("{}  ", ago(&failure.time));
    // Writing to a String can't fail.
    let _ = match failure.status {
        0 => write!(text, "no answer"),
        status => write!(text, "{status}"),
    };
    let reason = failure.reason.as_deref().unwrap_or("the backend's own answer");
    let _ = write!(text, " ({reason})  ");
    let _ = match failure.method.as_str() {
        "" => write!(text, "a request whose head could not be read"),
        method => write!(text, "{} {}{}", shown(method), shown(&failure.host), shown(&failure.path)),
    };
    if let Some(backend) = &failure.backend {
        let _ = write!(text, " → {backend}");
    }
    let mut line = |name: &str, value: &str| {
        let _ = write!(text, "\n  {name:5} {value}");
    };
    match failure.reason.as_deref().and_then(causes::of) {
        Some(cause) => {
            line("what", cause.what);
            line("cure", cause.cure);
        }
        None => {
            line("what", "the backend has answered so, and carom has passed it on");
            line("cure", "look into its log at this time; `retries = { on = [502, 503] }` tries another instance");
        }
    }
    if let Some(route) = &failure.route {
        let instance = failure.backend.as_ref().and_then(|backend| states.get(&(route.clone(), backend.clone())));
        let now = match (instance, &failure.backend) {
            (Some(now), _) => format!("; the instance is now {now}"),
            (None, Some(_)) => "; the instance is in the routes no more".to_owned(),
            (None, None) => String::new(),
        };
        line("site", &format!("{}{now}", if route.is_empty() { "\"\"" } else { route }));
    }
    let closed = failure.closed.as_ref().map(|side| format!(", closed by {side}")).unwrap_or_default();
    let tries = match failure.tries {
        0 => "no instance was tried".to_owned(),
        1 => "1 try".to_owned(),
        tries => format!("{tries} tries"),
    };
    let took = Duration::try_from_secs_f64(failure.total_ms / 1e3).unwrap_or_default();
    let took = humantime::format_duration(Duration::from_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)));
    let taken = format!("{} bytes in, {} out, {tries}, within {took}{closed}", failure.received, failure.sent);
    line("took", &taken);
    let id = if failure.id.is_empty() { "" } else { ", id " };
    line("who", &format!("{} ({}){id}{}", failure.client, failure.scheme, failure.id));
    text
}

/// What a peer has sent, without what could move a terminal's cursor.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// `12s ago`
fn ago(time: &str) -> String {
    let since = humantime::parse_rfc3339(time).ok().and_then(|time| SystemTime::now().duration_since(time).ok());
    match since {
        Some(since) => format!("{} ago", humantime::format_duration(Duration::from_secs(since.as_secs()))),
        None => time.to_owned(),
    }
}
