//! `carom reload`: has the routes file read now, and says what that has changed.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::To;
use super::talk::Talk;

/// 0 when the file was good, 1 when it was not and nothing has changed.
pub(super) fn run(to: To) -> ExitCode {
    let done = Talk::with(to).and_then(|carom| carom.post::<Value>("/v1/reload", &json!({})));
    match done {
        Ok(done) => {
            tell!("{}", done.get("text").and_then(Value::as_str).unwrap_or("done"));
            ExitCode::SUCCESS
        }
        Err(failure) => failure.exit(),
    }
}
