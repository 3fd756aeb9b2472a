//! `carom tap SITE`: the heads of a site's requests and responses, as they are forwarded.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::process::ExitCode;

use serde_json::Value;

use super::To;
use super::serve::{Failure, REFUSED};
use super::talk::{Talk, Watched, percent_encoded};

/// What is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) site: String,
    pub(super) errors: bool,
    /// After so many requests it ends.
    pub(super) count: Option<u64>,
    pub(super) secrets: bool,
    pub(super) json: bool,
}

/// Why it ends.
enum End {
    /// As many have been shown as were asked for, or nobody reads any more.
    Enough,
    /// The site is gone.
    Gone,
}

/// Shows them until there have been enough, the site is gone, or somebody presses Ctrl-C: 0.
pub(super) fn run(asked: &Asked, to: To) -> ExitCode {
    match watch(asked, to) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

fn watch(asked: &Asked, to: To) -> Result<(), Failure> {
    let mut path = format!("/v1/tap?site={}", percent_encoded(&asked.site));
    for (flag, is_set) in [("errors", asked.errors), ("secrets", asked.secrets)] {
        if is_set {
            let _ = write!(path, "&{flag}=1");
        }
    }
    let carom = Talk::with(to)?;
    let mut left = asked.count;
    let begun = || say!("carom: watching {}; Ctrl-C ends", asked.site);
    let ended = carom.watch(&path, begun, |line| {
        let told: Value = serde_json::from_str(line).unwrap_or_default();
        let is_gone = told["kind"] == "gone";
        let text = match asked.json {
            true => line.to_owned(),
            false if is_gone => String::new(),
            false => written(&told),
        };
        if !text.is_empty() && writeln!(io::stdout(), "{text}").is_err() {
            return ControlFlow::Break(End::Enough);
        }
        if is_gone {
            return ControlFlow::Break(End::Gone);
        }
        if is_last_of_one(&told) && left.is_some() {
            left = left.map(|left| left.saturating_sub(1));
            if left == Some(0) {
                return ControlFlow::Break(End::Enough);
            }
        }
        ControlFlow::Continue(())
    })?;
    match ended {
        Watched::Enough(End::Enough) | Watched::Interrupted => Ok(()),
        Watched::Enough(End::Gone) => {
            say!("carom: {} is not in the routes any more", asked.site);
            Ok(())
        }
        Watched::Ended => {
            Err(Failure { text: "carom: the carom that was watched has ended".to_owned(), code: REFUSED })
        }
    }
}

/// Whether no more is to be expected of its request, but that it breaks off behind its response.
fn is_last_of_one(told: &Value) -> bool {
    told["kind"] == "response" || told["kind"] == "broken" && told["answered"] == false
}

/// For people.
fn written(told: &Value) -> String {
    let mut text = String::new();
    let number = &told["number"];
    if let Some(request) = told.get("request") {
        text = written(request);
        text.push('\n');
    }
    // Writing to a String can't fail.
    match told["kind"].as_str() {
        Some("request") => {
            let time = told["time"].as_str().and_then(|time| time.get(11..)).unwrap_or_default();
            let client = told["client"].as_str().unwrap_or_default();
            let backend = told["backend"].as_str().unwrap_or("carom itself");
            let again = told["tries"].as_u64().filter(|tries| *tries > 1).map(|tries| format!(" (try {tries})"));
            let _ = writeln!(text, "#{number} {time} {client} → {backend}{}", again.unwrap_or_default());
            text.push_str(&head(told, '>'));
        }
        Some("response") => {
            let reason = told["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let backend = told["backend"].as_str().unwrap_or("carom itself");
            let _ = writeln!(text, "#{number} {}{reason} by {backend} after {} ms", told["status"], told["ms"]);
            text.push_str(&head(told, '<'));
        }
        Some("broken") => {
            let reason = told["reason"].as_str().unwrap_or_default();
            let _ = writeln!(text, "#{number} broke off after {} ms: {reason}", told["ms"]);
        }
        Some("missed") => {
            let _ = writeln!(text, "… {} more were not shown: they came faster than they were read", told["count"]);
        }
        // Of a newer carom.
        _ => {
            let _ = writeln!(text, "{}", harmless(&told.to_string()));
        }
    }
    text
}

/// The lines of a head.
fn head(told: &Value, sign: char) -> String {
    let lines = told["head"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut text: String = lines.map(|line| format!("{sign} {}\n", harmless(line))).collect();
    if let Some(more) = told["left_out"].as_u64().filter(|more| *more > 0) {
        let _ = writeln!(text, "… {more} more bytes of this head");
    }
    text
}

/// What a peer has sent must not speak to the terminal, nor turn the direction in which it writes.
fn harmless(text: &str) -> String {
    let is_harmful =
        |char: char| char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = text.chars().map(|char| match is_harmful(char) {
        true => char.escape_default().to_string(),
        false => char.to_string(),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_head_says_nothing_to_the_terminal() {
        let told = json!({
            "kind": "response", "number": 3, "status": 200, "ms": 1.5, "backend": "8001", "left_out": 7,
            "head": ["HTTP/1.1 200 \u{1b}[2J", "X: \u{9b}1m\u{202e}é"],
        });
        assert_eq!(
            written(&told),
            "#3 200 by 8001 after 1.5 ms\n< HTTP/1.1 200 \\u{1b}[2J\n< X: \\u{9b}1m\\u{202e}é\n… 7 more bytes of this head\n"
        );
    }

    #[test]
    fn a_request_counts_once() {
        for (told, counts) in [
            (json!({ "kind": "request" }), false),
            (json!({ "kind": "response" }), true),
            (json!({ "kind": "broken", "answered": true }), false),
            (json!({ "kind": "broken", "answered": false }), true),
            (json!({ "kind": "missed", "count": 3 }), false),
        ] {
            assert_eq!(is_last_of_one(&told), counts, "{told}");
        }
    }
}
