//! The status listener: what is counted, for Prometheus, and what goes on, for people, on an address of its own that no site
//! is served on.
//!
//! A thread of its own, away from those who carry requests, which sees and changes nothing. On this machine's own addresses
//! whoever is here may look; on any other, whoever has the token.
//!
//! | | answers |
//! |---|---|
//! | `GET /` | the live page, which asks for the next two by itself |
//! | `GET /events` | server-sent events: one JSON object a second, while somebody listens |
//! | `GET /history` | the tables that were live, the newest first: `[{"number": 7, "time": "…", "diff": "…"}]` |
//! | `GET /metrics` | everything that is counted, as OpenMetrics 1.0 to who asks for that, else as Prometheus' text format 0.0.4 |

mod guard;
mod live;
mod metrics;
mod page;
mod process;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Instant, SystemTime};

use http_body_util::{Channel, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

use super::control::{Served, Status};
use super::own_thread::OwnThread;
use super::server;
use super::stats::Stats;
use guard::{Guard, Verdict};
use live::Live;
use metrics::{Format, Seen};

/// The shortest token: what a machine has made at random, and nobody has to remember.
pub const SHORTEST_TOKEN: usize = 16;

/// A status listener that is served. Ends when dropped.
#[derive(Debug)]
pub struct Board {
    _thread: OwnThread,
}

/// What a status listener shows.
pub struct Shown {
    /// What there is.
    pub served: Served,
    /// What is counted of requests: an observer of the same proxy.
    pub stats: Stats,
    /// The tables that were live, the newest first. It may read files: it is asked on a thread that may wait.
    pub history: Box<dyn Fn() -> Vec<WasLive> + Send>,
}

/// A table that was live.
#[derive(Clone, Debug, Serialize)]
pub struct WasLive {
    /// Its number.
    pub number: u64,
    /// When it went live: RFC 3339.
    pub time: String,
    /// What it changed.
    pub diff: String,
}

/// What answers.
struct Answers {
    guard: Guard,
    shown: Shown,
    live: Live,
    started: SystemTime,
}

/// Events have no end; everything else is there at once.
type Answer = Response<Either<Full<Bytes>, Channel<Bytes>>>;

impl Board {
    /// Serves on a socket that listens. With a token, to those who have it: [`SHORTEST_TOKEN`] characters at least, of those
    /// that [`is_token`] takes.
    ///
    /// # Errors
    /// A thread or a runtime that can't be made, and no random numbers.
    pub fn serve(listener: TcpListener, token: Option<Box<str>>, shown: Shown) -> io::Result<Self> {
        let guard = Guard::new(listener.local_addr()?, token)?;
        listener.set_nonblocking(true)?;
        let answers = Answers { guard, shown, live: Live::default(), started: SystemTime::now() };
        let thread = OwnThread::start("status", move || async move {
            let answers = Rc::new(answers);
            let telling = Rc::clone(&answers);
            tokio::task::spawn_local(async move { telling.live.tell(&telling.shown, telling.started).await });
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => server::serve(listener, async move |request| answers.answer(request)).await,
                Err(error) => tracing::error!(%error, "the status listener can't be served"),
            }
        })?;
        Ok(Self { _thread: thread })
    }
}

/// Whether a text can be a token: long enough, and as `Authorization: Bearer` can carry it (RFC 6750 section 2.1).
pub fn is_token(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    text.len() >= SHORTEST_TOKEN && text.bytes().all(is_plain)
}

/// Whether an address may be listened on without a token.
pub fn needs_token(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

impl Answers {
    fn answer(&self, request: Request<Incoming>) -> Answer {
        let (request, _) = request.into_parts();
        let mut answer = match self.guard.judge(&request) {
            _ if request.method != Method::GET && request.method != Method::HEAD => {
                let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "nothing can be changed here: GET only\n");
                answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
                answer
            }
            Verdict::Pass => self.dispatch(&request),
            Verdict::Enter { cookie } => enter(&request, &cookie),
            Verdict::Stranger => text(
                StatusCode::FORBIDDEN,
                "this is for this machine alone, by the names localhost, 127.0.0.1 and [::1]\n\
                 from elsewhere: a token in carom.toml, [status] token = \"...\"\n",
            ),
            Verdict::NoToken => {
                let what = "a token is needed: Authorization: Bearer TOKEN, or once in a browser ?token=TOKEN\n";
                let mut answer = text(StatusCode::UNAUTHORIZED, what);
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                answer
            }
        };
        let fields = answer.headers_mut();
        fields.insert(header::SERVER, HeaderValue::from_static(concat!("carom/", env!("CARGO_PKG_VERSION"))));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        fields.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        answer
    }

    fn dispatch(&self, request: &Parts) -> Answer {
        match request.uri.path() {
            "/metrics" => self.metrics(request),
            "/events" => self.events(),
            "/history" => match serde_json::to_vec(&(self.shown.history)()) {
                Ok(history) => content(StatusCode::OK, "application/json", history.into()),
                Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
            },
            path => page::file(path)
                .unwrap_or_else(|| text(StatusCode::NOT_FOUND, &format!("no {path} here; there are / and /metrics\n"))),
        }
    }

    fn events(&self) -> Answer {
        let Some(events) = self.live.listen() else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "too many have this page open\n");
        };
        let mut answer = Response::new(Either::Right(events));
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        answer
    }

    fn metrics(&self, request: &Parts) -> Answer {
        let Shown { served, stats, .. } = &self.shown;
        stats.forget(&served.routes.current(), Instant::now());
        let accept = request.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let format = Format::of(accept.unwrap_or_default());
        let written = Status::of(served, self.started, None)
            .and_then(|status| Seen::now(served, status, stats.totals(), self.started).written(format).map_err(failed));
        match written {
            Ok(written) => content(StatusCode::OK, format.content_type(), written.into()),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        }
    }
}

/// Sends who has shown the token to where it is not in the address.
fn enter(request: &Parts, cookie: &str) -> Answer {
    let mut answer = text(StatusCode::SEE_OTHER, "");
    for (name, value) in [(header::LOCATION, request.uri.path()), (header::SET_COOKIE, cookie)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

fn failed(error: fmt::Error) -> String {
    error.to_string()
}

fn text(status: StatusCode, text: &str) -> Answer {
    content(status, "text/plain; charset=utf-8", text.to_owned().into())
}

fn content(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Either::Left(Full::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
