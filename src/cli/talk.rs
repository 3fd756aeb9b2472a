//! Talking to a carom that runs, over its control socket.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carom::config::file::{Config, Control};
use carom::config::state::{self, default_state_path};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use super::To;
use super::serve::{Failure, REFUSED, WRONG, configuration, routes_path};

/// How long an answer may take: longer than the longest that the other side takes for a command.
const PATIENCE: Duration = Duration::from_secs(130);

/// The place of a carom that systemd has started, by `config/carom.service`.
const OF_THE_SYSTEM: &str = "/run/carom/control.sock";

/// The socket of a carom that runs.
pub(super) struct Talk {
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
}

/// Where the control socket of a carom with these routes is, when nobody has said so.
pub(super) fn usual_place(state: Option<&Path>) -> Option<PathBuf> {
    // systemd may name several, with colons between them.
    let runtime = std::env::var_os("RUNTIME_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    let folder = runtime.filter(|path| path.is_absolute()).or_else(|| state.map(Path::to_owned));
    folder.map(|folder| folder.join("control.sock"))
}

impl Talk {
    /// Finds the carom that is meant: where a flag or carom.toml says, else the one of these routes, else the system's.
    pub(super) fn with(to: To) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(format!("carom: {error}"), REFUSED))?;
        let places = places(to)?;
        let mut refused = None;
        for place in &places {
            match runtime.block_on(UnixStream::connect(place)) {
                Ok(_) => return Ok(Self { socket: place.clone(), runtime }),
                // What may not be asked is there: more to say than of one that isn't.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => refused = refused.or(Some(place)),
                Err(_) => {}
            }
        }
        Err(match refused {
            Some(place) => not_allowed(place),
            None => nobody(&places),
        })
    }

    /// Asks for something.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask(Method::GET, path, Bytes::new())
    }

    /// Asks for something to be done.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, what: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(what).map_err(|error| failed(format!("carom: {error}"), REFUSED))?;
        self.ask(Method::POST, path, body.into())
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, Failure> {
        let asked = async {
            let answering = exchange(&self.socket, method, path, body);
            tokio::time::timeout(PATIENCE, answering).await.map_err(|_| "it does not answer".to_owned())?
        };
        let (head, body) = self.runtime.block_on(asked).map_err(|why| {
            failed(format!("carom: the carom at {} does not answer: {why}", self.socket.display()), REFUSED)
        })?;
        match head.status().is_success() {
            true => serde_json::from_slice(&body)
                .map_err(|error| other(&head, &format!("its answer is not understood: {error}"))),
            false => Err(refusal(&head, &body)),
        }
    }

    /// Asks for what happens from now on, a line each, for as long as `each` wants to hear more. Ctrl-C ends it too.
    pub(super) fn watch<T>(
        &self,
        path: &str,
        begun: impl FnOnce(),
        each: impl FnMut(&str) -> ControlFlow<T>,
    ) -> Result<Watched<T>, Failure> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => Ok(Watched::Interrupted),
                watched = watch(&self.socket, path, begun, each) => watched,
            }
        })
    }
}

/// How watching has ended.
pub(super) enum Watched<T> {
    /// There has been enough.
    Enough(T),
    /// By Ctrl-C.
    Interrupted,
    /// The other side has ended it.
    Ended,
}

async fn watch<T>(
    socket: &Path,
    path: &str,
    begun: impl FnOnce(),
    mut each: impl FnMut(&str) -> ControlFlow<T>,
) -> Result<Watched<T>, Failure> {
    let silent =
        |why: String| failed(format!("carom: the carom at {} does not answer: {why}", socket.display()), REFUSED);
    let stream = UnixStream::connect(socket).await.map_err(|error| silent(error.to_string()))?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| silent(error.to_string()))?;
    let request = Request::get(path).header(header::HOST, "carom").body(Full::<Bytes>::default());
    let request = request.map_err(|error| silent(error.to_string()))?;
    let watching = async {
        let answered = tokio::time::timeout(PATIENCE, sender.send_request(request)).await;
        let answered = answered.map_err(|_| silent("it takes too long".to_owned()))?;
        let (head, mut body) = answered.map_err(|error| silent(error.to_string()))?.into_parts();
        let head = Response::from_parts(head, ());
        if !head.status().is_success() {
            let body = body.collect().await.map_err(|error| silent(error.to_string()))?;
            return Err(refusal(&head, &body.to_bytes()));
        }
        begun();
        let mut kept = Vec::new();
        // One that breaks off is one that has ended.
        while let Some(Ok(frame)) = body.frame().await {
            if let Some(data) = frame.data_ref() {
                kept.extend_from_slice(data);
            }
            while let Some(end) = memchr::memchr(b'\n', &kept) {
                let line = kept.drain(..=end).collect::<Vec<_>>();
                if let ControlFlow::Break(enough) = each(String::from_utf8_lossy(&line).trim_end()) {
                    return Ok(Watched::Enough(enough));
                }
            }
        }
        Ok(Watched::Ended)
    };
    // The connection is driven beside it, and ends with it.
    tokio::select! {
        biased;
        watched = watching => watched,
        () = async { drop(connection.await); std::future::pending::<()>().await } => Ok(Watched::Ended),
    }
}

/// Why something is not done.
fn refusal(head: &Response<()>, body: &[u8]) -> Failure {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let why = said.get("error").and_then(Value::as_str).unwrap_or("it gives no reason");
    match version(head) == concat!("carom/", env!("CARGO_PKG_VERSION")) {
        false if matches!(head.status().as_u16(), 404 | 405) => other(head, why),
        _ => failed(why.to_owned(), WRONG),
    }
}

/// Who answers is of another version.
fn other(head: &Response<()>, what: &str) -> Failure {
    let (version, ours) = (version(head), env!("CARGO_PKG_VERSION"));
    failed(format!("carom: {version} runs, and this is carom {ours}: {what}"), REFUSED)
}

fn version(head: &Response<()>) -> &str {
    head.headers().get(header::SERVER).and_then(|value| value.to_str().ok()).unwrap_or("a carom")
}

async fn exchange(socket: &Path, method: Method, path: &str, body: Bytes) -> Result<(Response<()>, Bytes), String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = Request::builder().method(method).uri(path).header(header::HOST, "carom");
    let request =
        request.header(header::CONNECTION, "close").body(Full::new(body)).map_err(|error| error.to_string())?;
    let answered = async {
        let response: Response<Incoming> = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        Ok::<_, hyper::Error>((Response::from_parts(head, ()), body.collect().await?.to_bytes()))
    };
    // Driven beside the request, on the same task; it ends with the answer.
    let (answered, _) = tokio::join!(answered, connection);
    answered.map_err(|error| error.to_string())
}

/// Part of a path or a query.
pub(super) fn percent_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            // Writing to a String can't fail.
            byte => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

/// Where a carom may be found, the likeliest first.
fn places(to: To) -> Result<Vec<PathBuf>, Failure> {
    let config = configuration(to.config.as_deref())?;
    match to.control.or_else(|| config.control.clone()) {
        Some(Control::At(path)) => return Ok(vec![path]),
        Some(Control::Off) => {
            return Err(failed("carom: the control socket is off, so nobody can be asked".to_owned(), WRONG));
        }
        None => {}
    }
    let mut places: Vec<PathBuf> =
        usual_place(of_routes(to.routes, to.state, &config).as_deref()).into_iter().collect();
    places.push(OF_THE_SYSTEM.into());
    Ok(places)
}

/// The state folder of the routes that are meant, where there are any.
fn of_routes(routes: Option<PathBuf>, state: Option<PathBuf>, config: &Config) -> Option<PathBuf> {
    let routes = routes_path(routes, config).ok()?;
    let state = state.or_else(|| config.state.clone()).or_else(default_state_path)?;
    Some(state::of_routes(&state, &routes))
}

fn failed(text: String, code: u8) -> Failure {
    Failure { text, code }
}

fn nobody(places: &[PathBuf]) -> Failure {
    let tried: Vec<String> = places.iter().map(|place| format!("\n  {}", place.display())).collect();
    failed(
        format!(
            "carom: no carom runs here; nobody answers at{}\nhelp: name its routes (--routes FILE), the carom.toml that \
             it was started with (--config FILE) or its socket (--control FILE)",
            tried.concat()
        ),
        REFUSED,
    )
}

fn not_allowed(place: &Path) -> Failure {
    // Of a folder that is closed, not even that is known.
    let owner = place.metadata().ok().map(|found| format!(" it belongs to user {},", found.uid()));
    failed(
        format!(
            "carom: {} may not be used:{} and only its user may\nhelp: sudo carom …",
            place.display(),
            owner.unwrap_or_default()
        ),
        REFUSED,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_survives_a_query() {
        assert_eq!(percent_encoded("*.büro.test/a b&c"), "%2A.b%C3%BCro.test%2Fa%20b%26c");
    }
}
