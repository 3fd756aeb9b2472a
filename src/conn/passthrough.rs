//! A TLS connection that is somebody else's: its bytes go to a backend as they came, and its answers come back. Only the
//! name that the client asks for has been looked at.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::conn::arrival::Arrival;
use crate::conn::choosing::Choosing;
use crate::conn::tunnel;
use crate::conn::worker::Worker;
use crate::http::refuse::{Cut, Fault, Refusal};
use crate::net::buffer::Buffer;
use crate::net::deadline::{Elapsed, Ticket};
use crate::net::stream::Stream;
use crate::record::{Record, Side};
use crate::table::backend::{Backend, Claim};
use crate::table::site::Site;
use crate::table::tally::Ending;
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
    connect: Option<Duration>,
    closed: Option<Side>,
    reason: Option<Why>,
}

/// Carries it to its end.
pub(super) async fn carry(passage: Passage, arrival: &Arrival, worker: &Worker, ticket: &Ticket) {
    let started = Instant::now();
    let Passage { mut stream, mut hello, name, mut route } = passage;
    let mut outcome = Outcome { received: hello.len() as u64, ..Outcome::default() };
    let stood_by = stand_by(&mut route, &mut stream, &mut hello, name.as_deref(), worker, ticket).await;
    let Action::PassThrough(site) = &route.action else { return };
    let (client, hello_so_far) = (&mut stream, &mut hello);
    let reach = Reach { site, client, hello: hello_so_far, arrival, worker, ticket, outcome: &mut outcome };
    let reached = match stood_by {
        Ok(()) => reach.run().await,
        Err(why) => Err(why),
    };
    match reached {
        Ok((mut backend, claim)) => {
            let early = (hello, worker.spare.buffer());
            let timeouts = &worker.shared.settings.timeouts;
            let _counted = worker.shared.doors.tunnel();
            let over = tunnel::run(&mut stream, &mut backend, early, &worker.spare, ticket, timeouts).await;
            outcome.received = over.to_backend;
            outcome.sent = over.to_client;
            outcome.reason = over.why.map(|why| (why.code(), why.fault()));
            outcome.closed = over.first;
            drop(claim);
        }
        Err(why) => {
            outcome.reason = Some(why);
            outcome.closed = Some(Side::Proxy);
        }
    }
    let ending = match outcome.reason {
        None => Ending::Tunnel,
        reason => Ending::of(if outcome.sent > 0 { 101 } else { 0 }, reason),
    };
    site.lasting().tally().count(ending);
    if let (Some(backend), false) = (&outcome.backend, ending == Ending::Failed) {
        backend.tally().count(ending);
    }
    if !worker.told.of_one(0, outcome.reason.is_some()) {
        return;
    }
    let total = started.elapsed();
    worker.told.tell(&Record {
        time: SystemTime::now() - total,
        client: arrival.client,
        scheme: "https",
        protocol: "",
        method: METHOD,
        host: name.as_deref().unwrap_or_default(),
        target: b"",
        fields: &[],
        id: "",
        status: 0,
        received: outcome.received,
        sent: outcome.sent,
        sent_head: 0,
        route: Some(&route.name),
        is_logged: route.is_logged,
        backend: outcome.backend.as_deref(),
        tries: outcome.tries,
        head: Duration::ZERO,
        connect: outcome.connect,
        first_byte: None,
        total,
        closed: outcome.closed,
        reason: outcome.reason,
    });
}

/// Waits while the route's site is paused, and then looks where the name goes now: the routes may have changed meanwhile, and
/// often that is what the pause was for. A name that is nobody else's any more still goes where it went.
async fn stand_by(
    route: &mut Arc<Route>,
    client: &mut Stream,
    hello: &mut Buffer,
    name: Option<&str>,
    worker: &Worker,
    ticket: &Ticket,
) -> Result<(), Why> {
    let begun = Instant::now();
    loop {
        let waited_for = Arc::clone(route);
        let Action::PassThrough(site) = &waited_for.action else { return Ok(()) };
        let lasting = site.lasting();
        let Some(paused) = lasting.pause().now() else { return Ok(()) };
        let most = worker.shared.settings.limits.waiting;
        let _place = lasting.queue(most).ok_or(why(Refusal::QueueFull))?;
        let waiting = Box::pin(async {
            tokio::select! {
                () = gone(client, hello) => true,
                () = lasting.pause().over() => false,
            }
        });
        match ticket.within(paused.wait.saturating_sub(begun.elapsed()), waiting).await {
            Ok(false) => {
                let now = worker.shared.tls.as_ref().and_then(|tls| tls.pass_through(name));
                if let Some(now) = now {
                    *route = now;
                }
            }
            Ok(true) => return Err((Cut::ClientGone.code(), Cut::ClientGone.fault())),
            Err(Elapsed) if ticket.is_over() => return Err(why(Refusal::Draining)),
            Err(Elapsed) => return Err(why(Refusal::Paused)),
        }
    }
}

/// A connection on its way to a backend.
struct Reach<'a> {
    site: &'a Site,
    client: &'a mut Stream,
    /// What the client has said.
    hello: &'a mut Buffer,
    arrival: &'a Arrival,
    worker: &'a Worker,
    ticket: &'a Ticket,
    outcome: &'a mut Outcome,
}

/// Why it has not got there.
type Why = (&'static str, Fault);

impl Reach<'_> {
    /// Connects to one of the site's instances; where all are full, waits for one that is not.
    async fn run(mut self) -> Result<(Stream, Claim), Why> {
        let mut choosing =
            Choosing::new(self.site, self.site.key(None, self.arrival.client.ip(), &self.worker.shared.sticky_key));
        if !choosing.has_to_queue() {
            match self.connect(&mut choosing).await {
                Err(_) if choosing.waits() => {}
                reached => return reached.map_err(why),
            }
        }
        let wait = choosing.wait(self.worker.shared.settings.limits.waiting).map_err(why)?;
        loop {
            let patience = choosing.patience(&wait).map_err(why)?;
            let waiting = Box::pin(async {
                tokio::select! {
                    () = gone(self.client, self.hello) => true,
                    () = choosing.chance() => false,
                }
            });
            if self.ticket.within(patience, waiting).await == Ok(true) {
                return Err((Cut::ClientGone.code(), Cut::ClientGone.fault()));
            }
            if self.ticket.is_over() {
                return Err(why(Refusal::Draining));
            }
            if choosing.begin_again()
                && let Ok(reached) = self.connect(&mut choosing).await
            {
                return Ok(reached);
            }
        }
    }

    /// Connects to one of the site's instances, to the next where that fails.
    async fn connect(&mut self, choosing: &mut Choosing<'_>) -> Result<(Stream, Claim), Refusal> {
        let worker = self.worker;
        let mut last = Refusal::NoBackend;
        while let Some(claim) = choosing.next(worker.now()) {
            let backend = claim.backend();
            self.outcome.backend = Some(Arc::clone(backend));
            self.outcome.tries += 1;
            let ends = backend.link().send_proxy.map(|version| (version, self.arrival.ends(self.client)));
            let begun = Instant::now();
            match worker.connect(backend, self.ticket, async || connect::connect(backend, ends).await).await {
                Ok(stream) => {
                    self.outcome.connect = Some(begun.elapsed());
                    worker.served(backend);
                    return Ok((stream, claim));
                }
                // Nor could another one be reached.
                Err(refusal @ Refusal::NoDescriptor) => return Err(refusal),
                Err(refusal) => last = refusal,
            }
        }
        Err(choosing.why(last))
    }
}

fn why(refusal: Refusal) -> Why {
    let row = refusal.row();
    (row.code, row.fault)
}

/// Until the client has gone: it waits for an answer, and what it says besides, as far as there is room, belongs to that.
async fn gone(client: &mut Stream, hello: &mut Buffer) {
    while !hello.room().is_empty() {
        if !matches!(poll_fn(|cx| client.poll_read(cx, hello)).await, Ok(1..)) {
            return;
        }
    }
    pending().await
}
