//! What each request to the control socket is answered with.

use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::deploy::{self, Deploy};
use super::status::{self, Status};
use super::tap::Watched;
use super::{Attempt, Command, Served, find};
use crate::ops::failures::Wanted;
use crate::ops::server::percent_decoded;
use crate::table::pause::Paused;
use crate::table::taps::What;

/// The most bytes of a request's body.
const LONGEST_BODY: usize = 64 * 1024;

/// The same where it carries routes: the largest file, and what JSON adds to it.
const LONGEST_ROUTES: usize = 80 * 1024 * 1024;

/// How long a request's body may take.
const BODY: Duration = Duration::from_secs(10);

/// How long a command may take: a large table is not read in a moment.
const COMMAND: Duration = Duration::from_secs(120);

/// As long as a request may wait for a paused site.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// A shorter trial shows nothing.
const SHORTEST_TRIAL: Duration = Duration::from_secs(1);

/// The longest message of a paused site, in bytes.
const LONGEST_MESSAGE: usize = 1000;

/// What answers.
#[derive(Debug)]
pub(super) struct Api {
    served: Served,
    started: SystemTime,
}

/// Why a request is not done.
#[derive(Debug)]
struct Failed(StatusCode, String);

/// Which site is meant.
#[derive(Debug, Deserialize)]
struct OneSite {
    site: String,
}

/// Which site, and what its new requests get.
#[derive(Debug, Deserialize)]
struct HowToPause {
    site: String,
    message: Option<String>,
    wait_seconds: f64,
}

/// Which routes are to run, and for how long.
#[derive(Debug, Deserialize)]
struct WhatToTry {
    name: String,
    routes: String,
    seconds: f64,
}

/// Which instance is meant.
#[derive(Debug, Deserialize)]
struct OneInstance {
    site: String,
    instance: String,
}

type Answer = Result<serde_json::Value, Failed>;

/// JSON as a whole, or as it comes.
type Body = Either<Full<Bytes>, Watched>;

impl Api {
    pub(super) fn new(served: Served, started: SystemTime) -> Self {
        Self { served, started }
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let answer = match (request.uri().path(), request.method()) {
            ("/v1/tap", &Method::GET) => self.tap(request.uri().query().unwrap_or_default()).map(Body::Right),
            _ => self.dispatch(request).await.map(whole),
        };
        let (status, body) = match answer {
            Ok(body) => (StatusCode::OK, body),
            Err(Failed(status, error)) => (status, whole(json!({ "error": error }))),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        fields.insert(header::SERVER, header::HeaderValue::from_static(concat!("carom/", env!("CARGO_PKG_VERSION"))));
        response
    }

    async fn dispatch(&self, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        match (path.as_str(), &method) {
            ("/v1/status", &Method::GET) => self.status(request.uri().query().unwrap_or_default()),
            ("/v1/failures", &Method::GET) => self.failures(request.uri().query().unwrap_or_default()),
            ("/v1/reload", &Method::POST) => {
                let text = self.command(Command::Reload).await?;
                Ok(json!({ "text": text }))
            }
            ("/v1/deploy/ask", &Method::POST) => self.ask(body(request, LONGEST_BODY).await?).await,
            ("/v1/deploy", &Method::POST) => {
                let deploy = body(request, LONGEST_BODY).await?;
                shown(&self.command(|reply| Command::Deploy(deploy, reply)).await?)
            }
            ("/v1/drain", &Method::POST) => self.drain(&body(request, LONGEST_BODY).await?, true),
            ("/v1/undrain", &Method::POST) => self.drain(&body(request, LONGEST_BODY).await?, false),
            ("/v1/pause", &Method::POST) => self.pause(body(request, LONGEST_BODY).await?),
            ("/v1/resume", &Method::POST) => self.resume(&body(request, LONGEST_BODY).await?),
            ("/v1/trial", &Method::GET) => self.trial(),
            ("/v1/trial", &Method::POST) => self.attempt(body(request, LONGEST_ROUTES).await?).await,
            ("/v1/trial/confirm", &Method::POST) => {
                let text = self.command(Command::Confirm).await?;
                Ok(json!({ "text": text }))
            }
            ("/v1/trial/back", &Method::POST) => {
                let text = self.command(Command::GoBack).await?;
                Ok(json!({ "text": text }))
            }
            (
                "/v1/status" | "/v1/failures" | "/v1/tap" | "/v1/reload" | "/v1/deploy" | "/v1/deploy/ask"
                | "/v1/drain" | "/v1/undrain" | "/v1/pause" | "/v1/resume" | "/v1/trial" | "/v1/trial/confirm"
                | "/v1/trial/back",
                _,
            ) => Err(Failed(StatusCode::METHOD_NOT_ALLOWED, format!("{path} is not there for {method}"))),
            _ => {
                let version = env!("CARGO_PKG_VERSION");
                Err(Failed(StatusCode::NOT_FOUND, format!("carom {version} has no {path}")))
            }
        }
    }

    fn status(&self, query: &str) -> Answer {
        let site = asked(query, "site");
        let status = Status::of(&self.served, self.started, site.as_deref()).map_err(not_found)?;
        shown(&status)
    }

    /// What happens to the requests of a site from now on.
    fn tap(&self, query: &str) -> Result<Watched, Failed> {
        let site =
            asked(query, "site").ok_or_else(|| Failed(StatusCode::BAD_REQUEST, "site=… is missing".to_owned()))?;
        let is_set = |name: &str| asked(query, name).is_some_and(|value| value == "1");
        let what = if is_set("errors") { What::Errors } else { What::All };
        Watched::of(&self.served.routes, &site, what, is_set("secrets")).map_err(not_found)
    }

    fn failures(&self, query: &str) -> Answer {
        let number = |name: &str| match asked(query, name) {
            None => Ok(None),
            Some(text) => match text.parse::<u16>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(Failed(StatusCode::BAD_REQUEST, format!("{name}={text} is no number"))),
            },
        };
        let route = match asked(query, "site") {
            None => None,
            Some(site) => {
                let table = self.served.routes.current();
                Some(find::line(&table, &site).map_err(not_found)?.route.name.to_string())
            }
        };
        let wanted = Wanted {
            status: number("status")?,
            reason: asked(query, "reason"),
            route,
            most: number("n")?.map_or(usize::MAX, usize::from),
        };
        Ok(json!({ "failures": self.served.failures.last(&wanted) }))
    }

    /// Takes an instance out, or back in.
    fn drain(&self, asked: &OneInstance, out: bool) -> Answer {
        let table = self.served.routes.current();
        let line = find::line(&table, &asked.site).map_err(not_found)?;
        let instance = find::instance(line, &asked.instance).map_err(not_found)?;
        let was = instance.duty.drain(out);
        let (site, backend, in_flight) = (&*line.route.name, &*instance.backend, instance.backend.in_flight());
        let text = match (was, out) {
            (true, true) => format!("{site}: {backend} was drained already; {in_flight} in flight"),
            (false, false) => format!("{site}: {backend} was not drained"),
            (false, true) => {
                tracing::info!(site, %backend, in_flight, "an instance is drained: it gets no new requests");
                format!("{site}: {backend} gets no new requests; {in_flight} in flight")
            }
            (true, false) => {
                tracing::info!(site, %backend, "an instance is drained no more");
                format!("{site}: {backend} gets requests again")
            }
        };
        let nobody = out && line.site.instances().iter().all(|instance| instance.duty.is_drained());
        let warning = if nobody { "\nnobody is left to serve it: requests get 503 (no-backend)" } else { "" };
        Ok(json!({ "text": format!("{text}{warning}"), "instance": backend.to_string(), "in_flight": in_flight }))
    }

    /// Lets a site's new requests wait.
    fn pause(&self, asked: HowToPause) -> Answer {
        let table = self.served.routes.current();
        let line = find::line(&table, &asked.site).map_err(not_found)?;
        let wrong = |what: &str| Err(Failed(StatusCode::BAD_REQUEST, what.to_owned()));
        let wait = match Duration::try_from_secs_f64(asked.wait_seconds) {
            Ok(wait) if wait <= LONGEST_PAUSE => wait,
            _ => return wrong("a request waits for 0 seconds to a day"),
        };
        let message = asked.message.as_deref().map(str::trim).filter(|message| !message.is_empty());
        if message.is_some_and(|message| message.len() > LONGEST_MESSAGE || message.contains(char::is_control)) {
            return wrong("a message is one line of at most 1000 bytes");
        }
        let (site, shown) = (&*line.route.name, humantime::format_duration(wait));
        let before = line.site.lasting().pause().set(Some(Paused { message: message.map(Into::into), wait }));
        tracing::info!(site, wait = %shown, "a site is paused: its new requests wait");
        let already = if before.is_some() { " (it was paused already)" } else { "" };
        let text = match wait.is_zero() {
            true => format!("{site} is paused{already}: new requests get 503 (paused), until it is resumed"),
            false => format!("{site} is paused{already}: new requests wait {shown}, and then get 503 (paused)"),
        };
        Ok(json!({ "text": text }))
    }

    /// Lets them go on.
    fn resume(&self, asked: &OneSite) -> Answer {
        let table = self.served.routes.current();
        let line = find::line(&table, &asked.site).map_err(not_found)?;
        let (site, waiting) = (&*line.route.name, line.site.lasting().waiting());
        let text = match line.site.lasting().pause().set(None) {
            Some(_) => {
                tracing::info!(site, waiting, "a site is resumed");
                format!("{site} is resumed; {waiting} waiting")
            }
            None => format!("{site} was not paused"),
        };
        Ok(json!({ "text": text }))
    }

    /// Asks the targets of a deploy.
    async fn ask(&self, deploy: Deploy) -> Answer {
        let within = deploy.within_ms.map(Duration::from_millis);
        let plan = self.command(|reply| Command::Plan(deploy, reply)).await?;
        shown(&deploy::ask(plan, within).await)
    }

    /// The trial that runs, or the last one.
    fn trial(&self) -> Answer {
        let file = self.served.file.borrow();
        let trial = file.trial.as_ref().ok_or_else(|| not_found("nothing has been tried".to_owned()))?;
        shown(&status::Trial::of(trial))
    }

    /// Has routes run on trial.
    async fn attempt(&self, asked: WhatToTry) -> Answer {
        let length = match Duration::try_from_secs_f64(asked.seconds) {
            Ok(length) if (SHORTEST_TRIAL..=LONGEST_PAUSE).contains(&length) => length,
            _ => return Err(Failed(StatusCode::BAD_REQUEST, "a trial lasts for a second to a day".to_owned())),
        };
        let attempt = Attempt { name: asked.name, routes: asked.routes.into_bytes(), length };
        let text = self.command(|reply| Command::Try(attempt, reply)).await?;
        Ok(json!({ "text": text }))
    }

    /// Has something done by the one who publishes tables.
    async fn command<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, String>>) -> Command,
    ) -> Result<T, Failed> {
        let (reply, outcome) = oneshot::channel();
        let gone = || Failed(StatusCode::SERVICE_UNAVAILABLE, "this carom is stopping".to_owned());
        let asked = async {
            self.served.commands.send(command(reply)).await.map_err(|_| gone())?;
            outcome.await.map_err(|_| gone())
        };
        match timeout(COMMAND, asked).await {
            Ok(done) => done?.map_err(impossible),
            Err(_) => Err(Failed(StatusCode::GATEWAY_TIMEOUT, "it takes longer than two minutes".to_owned())),
        }
    }
}

fn whole(body: serde_json::Value) -> Body {
    Body::Left(Full::from(format!("{body}\n")))
}

fn shown(value: &impl Serialize) -> Answer {
    serde_json::to_value(value).map_err(|error| Failed(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn not_found(what: String) -> Failed {
    Failed(StatusCode::NOT_FOUND, what)
}

fn impossible(what: String) -> Failed {
    Failed(StatusCode::UNPROCESSABLE_ENTITY, what)
}

/// Reads a body, whole, bounded in length and time.
async fn body<T: DeserializeOwned>(request: Request<Incoming>, longest: usize) -> Result<T, Failed> {
    let read = timeout(BODY, Limited::new(request.into_body(), longest).collect()).await;
    let bytes = match read {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return Err(Failed(StatusCode::BAD_REQUEST, format!("the body can't be read: {error}"))),
        Err(_) => return Err(Failed(StatusCode::REQUEST_TIMEOUT, "the body does not come".to_owned())),
    };
    serde_json::from_slice(&bytes)
        .map_err(|error| Failed(StatusCode::BAD_REQUEST, format!("the body is not what is asked for: {error}")))
}

/// What a query says by this name.
fn asked(query: &str, name: &str) -> Option<String> {
    let values = query.split('&').filter_map(|pair| pair.split_once('='));
    values.filter(|(key, _)| *key == name).map(|(_, value)| percent_decoded(value)).next()
}
