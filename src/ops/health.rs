//! Asks instances whether they are up, as the routes say ([`Check`]).
//!
//! One thread for all, away from those who carry requests. It follows the published table: what a save adds is asked at
//! once, what it takes away is asked no more, and what stays keeps what is known of it.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use hashbrown::HashMap;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::own_thread::OwnThread;
use crate::bounce::Routes;
use crate::http::head::Parsed;
use crate::http::refuse::Refusal;
use crate::http::response::ResponseHead;
use crate::net::buffer::Buffer;
use crate::net::deadline;
use crate::net::proxy_protocol::Ends;
use crate::net::stream::Stream;
use crate::settings::Limits;
use crate::table::backend::{Address, Backend};
use crate::table::health::{Check, Health, Probe, State};
use crate::table::site::Site;
use crate::table::{Action, Table};
use crate::upstream::connect;

/// Who asks. Stops when dropped.
///
/// ```
/// use carom::{Routes, config, ops::health::Checks, table::Action, table::health::State};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = br#""beep.example.com" = { to = 8001, health = { path = "/up", interval = "2s" } }"#;
/// let routes = Routes::new(config::routes::parse("routes.toml".as_ref(), file, &[], None)?);
/// let checks = Checks::follow(routes.clone())?; // for as long as it is held
///
/// let table = routes.current();
/// let Action::Forward(site) = &table.routes()[0].action else { unreachable!() };
/// let health = site.instances()[0].health.as_ref().expect("it is checked");
/// assert_ne!(health.state(), State::Up, "nobody listens there");
/// # drop(checks);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Checks {
    _thread: OwnThread,
}

impl Checks {
    /// Begins to ask what these routes want to have asked.
    ///
    /// # Errors
    /// A thread or a runtime that can't be made.
    pub fn follow(routes: Routes) -> io::Result<Self> {
        Ok(Self { _thread: OwnThread::start("health", move || follow(routes))? })
    }
}

async fn follow(routes: Routes) {
    let mut changes = routes.changes();
    let mut asking: HashMap<usize, AbortHandle> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let wanted = wanted(&routes.current());
        asking.retain(|place, task| {
            wanted.contains_key(place) || {
                task.abort();
                false
            }
        });
        for (place, (backend, health)) in wanted {
            asking
                .entry(place)
                .or_insert_with(|| tokio::task::spawn_local(ask_for_ever(backend, health)).abort_handle());
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// What a table wants to have asked, each once.
fn wanted(table: &Table) -> HashMap<usize, (Arc<Backend>, Arc<Health>)> {
    let mut wanted = HashMap::new();
    for route in table.routes() {
        let (Action::Forward(site) | Action::PassThrough(site)) = &route.action else { continue };
        for instance in site.instances() {
            if let Some(health) = &instance.health {
                let place = Arc::as_ptr(health).addr();
                wanted.entry(place).or_insert_with(|| (Arc::clone(&instance.backend), Arc::clone(health)));
            }
        }
    }
    wanted
}

async fn ask_for_ever(backend: Arc<Backend>, health: Arc<Health>) {
    let check = health.check();
    let mut down_since = None;
    loop {
        let answer = match timeout(check.timeout, ask(&backend, &check.probe)).await {
            Ok(Err(Unwell::Unknown)) => {
                sleep(jittered(check.interval)).await;
                continue;
            }
            Ok(answer) => answer.map_err(|unwell| unwell.to_string()),
            Err(_) => Err(format!("no answer within {}", humantime::format_duration(check.timeout))),
        };
        match (health.take(answer.is_ok(), deadline::now()), answer) {
            (Some(State::Down), Err(why)) => {
                down_since = Some(Instant::now());
                tracing::warn!(%backend, why, back = returns(check), "a backend is down");
                health.remember(deadline::now(), Some(why));
            }
            (Some(_), Ok(())) => {
                health.remember(deadline::now(), None);
                // What requests have found out before is of the past.
                backend.standing().forget();
                match down_since.take() {
                    Some(since) => {
                        let seconds = since.elapsed().as_secs();
                        tracing::info!(%backend, seconds, "a backend that was down is up");
                    }
                    None => tracing::debug!(%backend, "a backend is up"),
                }
            }
            _ => {}
        }
        sleep(jittered(check.interval)).await;
    }
}

/// What brings an instance back that is down.
pub(super) fn returns(check: &Check) -> String {
    let s = if check.rise == 1 { "" } else { "s in a row" };
    format!("{} good answer{s} to {check}", check.rise)
}

/// A tenth more or less, so that many checks don't come at the same moment for ever.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(fastrand::f64().mul_add(0.2, 0.9))
}

/// Takes the instances of a site to be up, whatever was known of them: somebody has asked them just now. They serve without
/// waiting for the first answer to their own check.
pub fn believe(site: &Site) {
    for health in site.instances().iter().filter_map(|instance| instance.health.as_ref()) {
        health.believe(deadline::now());
    }
}

/// Why somebody who was asked is not known to be up.
#[derive(Debug)]
pub(super) enum Unwell {
    /// What was wrong.
    Because(String),
    /// They could not be asked: this process has no descriptor left.
    Unknown,
}

impl fmt::Display for Unwell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Because(why) => f.write_str(why),
            Self::Unknown => f.write_str(Refusal::NoDescriptor.row().code),
        }
    }
}

/// Asks once.
pub(super) async fn ask(backend: &Backend, probe: &Probe) -> Result<(), Unwell> {
    // To those who want to hear who the client is: it is ourselves.
    let ourselves = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let ends = backend.link().send_proxy.map(|version| (version, Ends { client: ourselves, server: ourselves }));
    let mut stream = connect::connect(backend, ends).await.map_err(|refusal| match refusal {
        Refusal::NoDescriptor => Unwell::Unknown,
        other => Unwell::Because(other.row().code.to_owned()),
    })?;
    let Probe::Http { method, path, host, .. } = probe else {
        return Ok(());
    };
    let host = host.as_deref().map_or_else(|| host_of(backend.address()), str::to_owned);
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: carom/{}\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    );
    let answered = answer(&mut stream, request.as_bytes(), method.as_ref() == "HEAD").await;
    match answered {
        Ok(status) if probe.accepts(status) => Ok(()),
        Ok(status) => Err(Unwell::Because(format!("{method} {path} answered {status}"))),
        Err(error) => Err(Unwell::Because(format!("{method} {path}: {error}"))),
    }
}

fn host_of(address: &Address) -> String {
    match address {
        Address::Port(_) | Address::Unix(_) => "localhost".into(),
        other => other.to_string(),
    }
}

/// The status of the response.
async fn answer(stream: &mut Stream, request: &[u8], to_head: bool) -> io::Result<u16> {
    let mut sent = 0;
    while sent < request.len() {
        match poll_fn(|cx| stream.poll_write(cx, &request[sent..])).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => sent += count,
        }
    }
    let (limits, mut buffer, mut head) = (Limits::default(), Buffer::new(), ResponseHead::default());
    loop {
        match head.parse(buffer.data(), to_head, &limits) {
            Ok(Parsed::Whole) if head.is_interim() => buffer.eat(head.length),
            Ok(Parsed::Whole) => return Ok(head.status),
            Ok(Parsed::Partial) if buffer.make_room(limits.response_head) => {
                if poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await? == 0 {
                    return Err(io::Error::other("closed without an answer"));
                }
            }
            Ok(Parsed::Partial) | Err(_) => return Err(io::Error::other("no answer of HTTP/1")),
        }
    }
}
