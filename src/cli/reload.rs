//! `carom reload`: has the routes file read now, and says what that has changed.

use std::path::Path;
use std::process::ExitCode;

use carom::ops::control::Status;
use serde_json::{Value, json};

use super::To;
use super::serve::Failure;
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

/// Has a change of a routes file applied by the carom that serves it, and says whether one does.
pub(super) fn after_change(to: To, routes: &Path) -> Result<&'static str, Failure> {
    // Who can't be asked, for whatever reason, sees the save all the same.
    let served = Talk::with(to).ok().filter(|carom| serves(carom, routes));
    let Some(carom) = served else {
        return Ok("no carom that can be asked serves it: one that does applies it as any other save");
    };
    match carom.post::<Value>("/v1/reload", &json!({})) {
        Ok(_) => Ok("it is live"),
        Err(failure) => {
            let text = format!("{}\ncarom: it is written, and the carom that runs does not take it", failure.text);
            Err(Failure { text, ..failure })
        }
    }
}

/// Whether it is this file that a carom serves: the one of the system may have another.
fn serves(carom: &Talk, routes: &Path) -> bool {
    let Ok(status) = carom.get::<Status>("/v1/status") else { return false };
    let served = Path::new(&status.routes.path);
    // From where it was started, a relative path may be anything; then its socket was found by the file.
    served.is_relative() || served.canonicalize().ok() == routes.canonicalize().ok()
}
