//! `carom pause SITE` and `carom resume SITE`.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::To;
use super::talk::Talk;

/// Lets a site's new requests wait, each for as long as `wait`, and then gives them 503 with the message.
pub(super) fn pause(site: &str, message: Option<&str>, wait: Duration, to: To) -> ExitCode {
    let how = json!({ "site": site, "message": message, "wait_seconds": wait.as_secs_f64() });
    say_what("/v1/pause", &how, to)
}

/// Lets them go on.
pub(super) fn resume(site: &str, to: To) -> ExitCode {
    say_what("/v1/resume", &json!({ "site": site }), to)
}

fn say_what(path: &str, how: &Value, to: To) -> ExitCode {
    match Talk::with(to).and_then(|carom| carom.post::<Value>(path, how)) {
        Ok(done) => {
            tell!("{}", done.get("text").and_then(Value::as_str).unwrap_or("done"));
            ExitCode::SUCCESS
        }
        Err(failure) => failure.exit(),
    }
}
