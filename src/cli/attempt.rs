//! `carom try FILE --for TIME` and `carom confirm`: other routes run on trial, and go back by themselves.

use std::io::{BufRead, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use carom::config::routes;
use carom::ops::control::TrialState;
use carom::ops::control::status::Trial;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::To;
use super::serve::{Failure, WRONG, file_name};
use super::talk::Talk;

/// How often it is asked how the trial goes.
const OFTEN: Duration = Duration::from_millis(200);

/// What whoever sits in front of it wants.
enum Wish {
    Keep,
    Back,
}

/// Has routes run on trial: 0 when they are kept in the end, 1 when they have gone back.
pub(super) fn attempt(file: &Path, length: Duration, to: To) -> ExitCode {
    match attempted(file, length, to) {
        Ok(Trial { state: TrialState::Kept, .. }) => {
            tell!("kept: the routes file says so now");
            ExitCode::SUCCESS
        }
        Ok(trial) => {
            say!("carom: gone back: {}", trial.why);
            ExitCode::FAILURE
        }
        Err(failure) => failure.exit(),
    }
}

/// Keeps what is on trial.
pub(super) fn confirm(to: To) -> ExitCode {
    match Talk::with(to).and_then(|carom| carom.post::<Value>("/v1/trial/confirm", &json!({}))) {
        Ok(done) => {
            tell!("{}", done.get("text").and_then(Value::as_str).unwrap_or("done"));
            ExitCode::SUCCESS
        }
        Err(failure) => failure.exit(),
    }
}

fn attempted(file: &Path, length: Duration, to: To) -> Result<Trial, Failure> {
    let wrong = |text: String| Failure { text, code: WRONG };
    let bytes = routes::read(file).map_err(|report| wrong(report.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong(format!("carom: {} is not UTF-8", file.display())))?;
    let carom = Talk::with(to)?;
    // Before the trial begins: from then on a signal means to go back.
    let wishes = wishes();
    let what = json!({ "name": file_name(file), "routes": text, "seconds": length.as_secs_f64() });
    let done: Value = carom.post("/v1/trial", &what)?;
    tell!("{}", done.get("text").and_then(Value::as_str).unwrap_or_default());
    let length = humantime::format_duration(length);
    match std::io::stdin().is_terminal() {
        true => say!("on trial for {length}: Enter keeps it, Ctrl-C goes back"),
        false => say!("on trial for {length}: `carom confirm` keeps it, Ctrl-C goes back"),
    }
    let number = carom.get::<Trial>("/v1/trial")?.number;
    loop {
        match wishes.recv_timeout(OFTEN) {
            Ok(Wish::Keep) => {
                if let Err(failure) = carom.post::<Value>("/v1/trial/confirm", &json!({})) {
                    say!("{}", failure.text);
                }
            }
            // Where it is over already, the next look shows that.
            Ok(Wish::Back) => drop(carom.post::<Value>("/v1/trial/back", &json!({}))),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody is left who could wish for something.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(OFTEN),
        }
        let trial = carom.get::<Trial>("/v1/trial")?;
        if trial.number != number || trial.state != TrialState::On {
            return Ok(trial);
        }
    }
}

/// Hears what the terminal and signals say.
fn wishes() -> mpsc::Receiver<Wish> {
    let (wish, wishes) = mpsc::channel();
    let signals = wish.clone();
    std::thread::spawn(move || hear_signals(&signals));
    if std::io::stdin().is_terminal() {
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                let wanted = match line.trim() {
                    "" | "y" | "yes" => Wish::Keep,
                    "n" | "no" => Wish::Back,
                    _ => continue,
                };
                if wish.send(wanted).is_err() {
                    return;
                }
            }
        });
    }
    wishes
}

fn hear_signals(wish: &Sender<Wish>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async {
        let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()));
        let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = signals else { return };
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            if wish.send(Wish::Back).is_err() {
                return;
            }
        }
    });
}
