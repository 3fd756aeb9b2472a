//! A TLS connection that is somebody else's: its bytes go to a backend as they came, and its answers come back. Only the
//! name that the client asks for has been looked at.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::conn::arrival::Arrival;
use crate::conn::tunnel;
use crate::conn::worker::Worker;
use crate::http::refuse::{Fault, Refusal};
use crate::net::buffer::Buffer;
use crate::net::deadline::{Elapsed, Ticket};
use crate::net::stream::Stream;
use crate::record::Record;
use crate::table::backend::{Backend, Claim};
use crate::table::site::{Site, Tried};
use crate::table::{Action, Route};
use crate::upstream::connect;

/// What stands in the log where a request has a method.
const METHOD: &[u8] = b"-";

/// A connection that is to be passed through.
pub(super) struct Passage {
    /// The client's.
    pub(super) stream: Stream,
    /// What it has said so far: its first message, whole.
    pub(super) hello: Buffer,
    /// The name that it asks for, in compared form.
    pub(super) name: Option<Box<str>>,
    pub(super) route: Arc<Route>,
}

/// What is known at the end.
#[derive(Default)]
struct Outcome {
    backend: Option<Arc<Backend>>,
    tries: u32,
    received: u64,
    sent: u64,
    reason: Option<(&'static str, Fault)>,
}

/// Carries it to its end.
pub(super) async fn carry(passage: Passage, arrival: &Arrival, worker: &Worker, ticket: &Ticket) {
    let started = Instant::now();
    let Passage { mut stream, hello, name, route } = passage;
    let Action::PassThrough(site) = &route.action else { return };
    let mut outcome = Outcome { received: hello.len() as u64, ..Outcome::default() };
    match reach(site, &stream, arrival, worker, ticket, &mut outcome).await {
        Ok((mut backend, claim)) => {
            let early = (hello, worker.buffers.get());
            let timeouts = &worker.shared.settings.timeouts;
            let over = tunnel::run(&mut stream, &mut backend, early, &worker.buffers, ticket, timeouts).await;
            outcome.received = over.to_backend;
            outcome.sent = over.to_client;
            outcome.reason = over.why.map(|why| (why.code(), why.fault()));
            drop(claim);
        }
        Err(refusal) => {
            let row = refusal.row();
            outcome.reason = Some((row.code, row.fault));
        }
    }
    if !worker.is_observed() {
        return;
    }
    let total = started.elapsed();
    worker.tell(&Record {
        time: SystemTime::now() - total,
        client: arrival.client,
        method: METHOD,
        host: name.as_deref().unwrap_or_default(),
        target: b"",
        status: 0,
        received: outcome.received,
        sent: outcome.sent,
        route: Some(&route.name),
        backend: outcome.backend.as_deref(),
        tries: outcome.tries,
        first_byte: None,
        total,
        reason: outcome.reason,
    });
}

/// Connects to one of a site's instances, to the next where that fails.
async fn reach(
    site: &Site,
    client: &Stream,
    arrival: &Arrival,
    worker: &Worker,
    ticket: &Ticket,
    outcome: &mut Outcome,
) -> Result<(Stream, Claim), Refusal> {
    let mut tried = Tried::default();
    let key = site.balance().key(None, arrival.client.ip());
    let mut last = Refusal::NoBackend;
    while let Some(instance) = site.pick(&mut tried, key, worker.now()) {
        let backend = &instance.backend;
        let claim = backend.claim();
        outcome.backend = Some(Arc::clone(backend));
        outcome.tries += 1;
        let ends = backend.link().send_proxy.map(|version| (version, arrival.ends(client)));
        let connecting = Box::pin(connect::connect(backend, ends));
        match ticket.within(worker.shared.settings.timeouts.connect, connecting).await {
            Ok(Ok(stream)) => {
                worker.served(backend);
                return Ok((stream, claim));
            }
            Ok(Err(refusal)) => last = refusal,
            Err(Elapsed) => last = Refusal::ConnectTimeout,
        }
        worker.failed(backend, last.row().code);
    }
    Err(last)
}
