//! The status listener: what is counted, for Prometheus, on an address of its own that no site is served on.
//!
//! A thread of its own, away from those who carry requests, which sees and changes nothing. On this machine's own addresses
//! whoever is here may look; on any other, whoever has the token.
//!
//! | | answers |
//! |---|---|
//! | `GET /metrics` | everything that is counted, as OpenMetrics 1.0 to who asks for that, else as Prometheus' text format 0.0.4 |

mod guard;
mod metrics;
mod process;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Instant, SystemTime};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};

use super::control::{Served, Status};
use super::own_thread::OwnThread;
use super::server;
use super::stats::Stats;
use guard::{Guard, Verdict};
use metrics::{Format, Seen};

/// The shortest token: what a machine has made at random, and nobody has to remember.
pub const SHORTEST_TOKEN: usize = 16;

/// A status listener that is served. Ends when dropped.
#[derive(Debug)]
pub struct Board {
    _thread: OwnThread,
}

/// What a status listener shows.
#[derive(Debug)]
pub struct Shown {
    /// What there is.
    pub served: Served,
    /// What is counted of requests: an observer of the same proxy.
    pub stats: Stats,
}

/// What answers.
struct Answers {
    guard: Guard,
    shown: Shown,
    started: SystemTime,
}

type Answer = Response<Full<Bytes>>;

impl Board {
    /// Serves on a socket that listens. With a token, to those who have it: [`SHORTEST_TOKEN`] characters at least, of those
    /// that [`is_token`] takes.
    ///
    /// # Errors
    /// A thread or a runtime that can't be made, and no random numbers.
    pub fn serve(listener: TcpListener, token: Option<Box<str>>, shown: Shown) -> io::Result<Self> {
        let guard = Guard::new(listener.local_addr()?, token)?;
        listener.set_nonblocking(true)?;
        let answers = Answers { guard, shown, started: SystemTime::now() };
        let thread = OwnThread::start("status", move || async move {
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
            path => text(StatusCode::NOT_FOUND, &format!("no {path} here; there is /metrics\n")),
        }
    }

    fn metrics(&self, request: &Parts) -> Answer {
        let Shown { served, stats } = &self.shown;
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
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
