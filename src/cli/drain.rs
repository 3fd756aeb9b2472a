//! `carom drain SITE INSTANCE` and `carom undrain SITE INSTANCE`.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use carom::ops::control::Status;
use serde_json::{Value, json};

use super::serve::Failure;
use super::talk::{Talk, percent_encoded};
use super::{To, Which};

/// How often it is asked whether the instance has become idle.
const OFTEN: Duration = Duration::from_millis(100);

/// Takes an instance out: 0 at once, or when it has become idle; 1 when it has not within `wait`.
pub(super) fn drain(which: &Which, wait: Option<Duration>, to: To) -> ExitCode {
    let drained = Talk::with(to).and_then(|carom| {
        let instance = say_what(&carom, "/v1/drain", which)?;
        wait.map_or(Ok(0), |wait| still_with(&carom, &which.site, &instance, wait))
    });
    match drained {
        Ok(0) => ExitCode::SUCCESS,
        Ok(left) => {
            say!("carom: {} has {left} in flight still; that goes on, and nothing new comes to it", which.instance);
            ExitCode::FAILURE
        }
        Err(failure) => failure.exit(),
    }
}

/// Takes it back in.
pub(super) fn undrain(which: &Which, to: To) -> ExitCode {
    match Talk::with(to).and_then(|carom| say_what(&carom, "/v1/undrain", which)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

/// Has it done, says what has become of it, and gives the instance's name.
fn say_what(carom: &Talk, path: &str, which: &Which) -> Result<String, Failure> {
    let done: Value = carom.post(path, &json!({ "site": which.site, "instance": which.instance }))?;
    let text = |key: &str| done.get(key).and_then(Value::as_str).unwrap_or_default();
    tell!("{}", text("text"));
    Ok(text("instance").to_owned())
}

/// Waits until nothing is with an instance; gives how many requests still are.
fn still_with(carom: &Talk, site: &str, instance: &str, wait: Duration) -> Result<usize, Failure> {
    let (path, begun) = (format!("/v1/status?site={}", percent_encoded(site)), Instant::now());
    loop {
        let status: Status = carom.get(&path)?;
        let mut instances = status.sites.iter().flat_map(|site| &site.instances);
        match instances.find(|other| other.name == instance) {
            Some(busy) if busy.in_flight > 0 && begun.elapsed() < wait => sleep(OFTEN),
            Some(found) => return Ok(found.in_flight),
            // A save has taken it away.
            None => return Ok(0),
        }
    }
}
