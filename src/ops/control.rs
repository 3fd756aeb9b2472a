//! The control socket: HTTP and JSON over a unix socket that only its user may open, for `carom status` and its like.
//!
//! A thread of its own, away from those who carry requests. What it can see, it answers by itself; whatever changes the table
//! or a file it does not do: that goes as a [`Command`] to the one who publishes tables, who replies. It is no way into a
//! site, and speaks no HTTP/1 of ours: that is for requests, and this is hyper's.
//!
//! # Endpoints
//!
//! All bodies are JSON; `carom` says in its `Server` field which version answers. What fails is
//! `{"error": "…"}`, with 400 for a request that is wrong, 404 for what is not there, 422 for what can't be done.
//!
//! | | answers |
//! |---|---|
//! | `GET /v1/status[?site=…]` | a [`Status`] |
//! | `GET /v1/failures[?status=…][&reason=…][&site=…][&n=…]` | `{"failures": […]}`: the last requests that have failed, the newest first: [`Failure`](super::failures::Failure) |
//! | `GET /v1/tap?site=…[&errors=1][&secrets=1]` | a line of JSON for each thing that happens to a request of the site, without an end: its `kind` is `request` or `response`, with a `head`; `broken`, with a `reason`; `missed`, with the `count` of those that came faster than they were read; `gone`, when the site is. With `errors`, only what is answered with 4xx or 5xx or breaks off, and its `request` with it; without `secrets`, what lets somebody in is `[redacted]` |
//! | `POST /v1/reload` | `{"text": "…"}`: the routes file has been read, and what that has changed; 422: what is wrong with it |
//! | `POST /v1/drain` `{"site": "…", "instance": "…"}` | `{"text": "…", "instance": "…", "in_flight": 3}`: the instance gets no new requests, also after a save |
//! | `POST /v1/deploy/ask` a [`Deploy`] | an array of [`Answer`](deploy::Answer): each target has been asked once whether it is up |
//! | `POST /v1/deploy` a [`Deploy`] | a [`Done`](deploy::Done): the routes file is changed and applied, and nobody is asked; the old targets are among `leaving` of the status |
//! | `POST /v1/undrain`, the same | the same: it gets requests again |
//! | `POST /v1/pause` `{"site": "…", "message": "…", "wait_seconds": 30}` | `{"text": "…"}`: its new requests wait for so long, then get 503 with that message; also after a save. Without a message: a sentence of our own |
//! | `POST /v1/resume` `{"site": "…"}` | `{"text": "…"}`: they go on at once |
//! | `POST /v1/trial` `{"name": "…", "routes": "…", "seconds": 60}` | `{"text": "…"}`: these routes run on trial, and what that changes; the name is for errors |
//! | `GET /v1/trial` | `{"number": 1, "state": "on", "why": "…", "ends": "…"}`: the trial, or the last one: `on`, `kept` or `gone-back` |
//! | `POST /v1/trial/confirm` | `{"text": "…"}`: what is on trial stands in the file |
//! | `POST /v1/trial/back` | `{"text": "…"}`: what ran before runs again |
//!
//! ```sh
//! curl --unix-socket control.sock http://carom/v1/status
//! ```

mod api;
pub mod deploy;
mod find;
mod secrets;
mod socket;
pub mod status;
mod tap;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::failures::Failures;
use super::own_thread::OwnThread;
use super::server;
use super::stats::Stats;
use crate::bounce::Routes;
use crate::net::doors::Doors;

use deploy::{Deploy, DoneReply, PlanReply};
pub use socket::{NoSocket, Socket};
pub use status::Status;

/// A control socket that is served. Ends when dropped, and its file with it.
#[derive(Debug)]
pub struct Control {
    _thread: OwnThread,
    _file: socket::File,
}

/// What a control socket is about.
#[derive(Clone, Debug)]
pub struct Served {
    /// What requests are routed by.
    pub routes: Routes,
    /// The addresses that are listened on, for people: `http://[::]:80`.
    pub listening: Vec<String>,
    /// The clients.
    pub doors: Arc<Doors>,
    /// The requests that have failed lately.
    pub failures: Failures,
    /// What is counted of requests, an observer of the same proxy; absent where nobody counts.
    pub stats: Option<Stats>,
    /// What is known of the routes file.
    pub file: watch::Receiver<RoutesFile>,
    /// Who publishes tables. Where the other side is gone, commands are refused.
    pub commands: mpsc::Sender<Command>,
}

/// What is known of the routes file.
#[derive(Clone, Debug)]
pub struct RoutesFile {
    /// Where it is.
    pub path: PathBuf,
    /// When what is in it was last applied.
    pub applied: SystemTime,
    /// Why what stands there now is not what runs.
    pub broken: Option<String>,
    /// How often it has been read since the start.
    pub reloads: Reloads,
    /// The trial that runs in its place, or the last one.
    pub trial: Option<Trial>,
}

/// Other routes than those of the file, on trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its number in this process.
    pub number: u64,
    /// Where it has got to.
    pub state: TrialState,
    /// What it changes; once it is over, why it has ended so.
    pub why: String,
    /// When it goes back by itself.
    pub ends: SystemTime,
}

/// Where a trial has got to.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum TrialState {
    /// What is on trial runs.
    On,
    /// It was confirmed, and stands in the file.
    Kept,
    /// What ran before runs again.
    GoneBack,
}

/// How often a routes file has been read since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reloads {
    /// And what stood there now runs.
    pub applied: u64,
    /// And could not be applied.
    pub refused: u64,
}

impl RoutesFile {
    /// What stands in it runs now.
    pub fn apply(&mut self) {
        (self.applied, self.broken) = (SystemTime::now(), None);
        self.reloads.applied += 1;
    }

    /// What stands in it can't be applied, for this reason.
    pub fn refuse(&mut self, why: String) {
        self.broken = Some(why);
        self.reloads.refused += 1;
    }
}

/// What the one who publishes tables is asked for.
#[derive(Debug)]
pub enum Command {
    /// To read the routes file now. The reply says what that has changed, or what is wrong with it.
    Reload(Reply),
    /// To say which targets a site would have.
    Plan(Deploy, PlanReply),
    /// To send a site to other targets, which are healthy: in the file and in what runs, at once.
    Deploy(Deploy, DoneReply),
    /// To have other routes run, on trial. The reply says what that changes.
    Try(Attempt, Reply),
    /// To write what is on trial into the file.
    Confirm(Reply),
    /// To go back to what ran before.
    GoBack(Reply),
}

/// Routes that are to be tried.
#[derive(Debug)]
pub struct Attempt {
    /// What their file is called, for errors.
    pub name: String,
    /// The content of the file.
    pub routes: Vec<u8>,
    /// After so long without a confirmation they go back.
    pub length: Duration,
}

/// Where the outcome of a command goes, as text for people: an error is why nothing has changed.
pub type Reply = oneshot::Sender<Result<String, String>>;

impl Control {
    /// Serves a socket.
    ///
    /// # Errors
    /// A thread or a runtime that can't be made.
    pub fn serve(socket: Socket, served: Served) -> io::Result<Self> {
        let (listener, file) = socket.into_parts();
        let started = SystemTime::now();
        let thread = OwnThread::start("control", move || async move {
            match UnixListener::from_std(listener) {
                Ok(listener) => {
                    let api = api::Api::new(served, started);
                    server::serve(listener, async move |request| api.answer(request).await).await;
                }
                Err(error) => tracing::error!(%error, "the control socket can't be served"),
            }
        })?;
        Ok(Self { _thread: thread, _file: file })
    }
}
