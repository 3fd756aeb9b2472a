//! The story of an HTTP/1 connection.
//!
//! [`serve`] waits for a request, holding nothing, and [`Connection::request`] carries it: read its head, decide, then
//! answer or forward. Every request is decided on its own, also behind another one on the same connection.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use crate::bounce::{Bounce, Decision, Destination};
use crate::conn::answer::{self, Manner};
use crate::conn::arrival::Arrival;
use crate::conn::worker::Worker;
use crate::conn::{plain, tls, tunnel};
use crate::http::head::{Head, LONGEST_REST_OF_LINE, Parsed};
use crate::http::refuse::{Cut, Fault, Refusal};
use crate::http::rewrite::{Changes, Origin};
use crate::net::buffer::Buffer;
use crate::net::deadline::{Elapsed, Ticket};
use crate::net::stream::Stream;
use crate::record::Record;
use crate::settings::{Limits, Settings};
use crate::table::backend::{Backend, Claim};
use crate::table::site::{Site, Tried};
use crate::table::{Action, Answer, Redirect, Route};
use crate::upstream::connect;
use crate::upstream::exchange::{Counts, Ended, Exchange};

/// How long a connection is listened to after we have said that it ends: closing it while the client still sends would
/// reset it, and the client might never read why.
const LINGER: Duration = Duration::from_secs(2);

/// How long a request that waits for a site lets pass between two tries.
const MOMENT: Duration = Duration::from_millis(100);

/// How long a stop waits for the first request of a connection that has just been made.
pub(super) const LAST_CALL: Duration = Duration::from_millis(500);

/// The line with which HTTP/2 begins; no request of HTTP/1 does (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// A client's connection. What a connection that waits for a request costs is this, and little more: its steps borrow
/// it, and what they need besides is boxed while they run.
pub(crate) struct Connection {
    stream: Stream,
    /// The client has closed its side.
    ended: bool,
    /// It may still begin to speak HTTP/2 (RFC 9113 section 3.3).
    may_be_http2: bool,
    arrival: Arrival,
    /// A backend's connection that speaks of this client, and so serves no other.
    own: Option<Box<Own>>,
    worker: Rc<Worker>,
    ticket: Ticket,
}

// The larger part of what an idle client costs: what is needed seldom belongs into a box. (What a debug
// build adds does not count.)
const _: () = assert!(cfg!(debug_assertions) || size_of::<Connection>() <= 128);

/// A backend's connection that waits for the next request of one client.
struct Own {
    stream: Stream,
    /// The backend's.
    id: u64,
    since: Instant,
}

/// What follows a request.
enum Next {
    /// Another one may come.
    Keep,
    /// The connection ends, and nothing more is expected from the client.
    Close,
    /// The connection ends, though the client may still be sending.
    Linger,
    /// It is a tunnel now.
    Tunnel(Box<Switched>),
    /// It speaks HTTP/2.
    Http2,
}

/// A request that has become a tunnel.
struct Switched {
    backend: Stream,
    claim: Option<Claim>,
    early: (Buffer, Buffer),
    notes: Notes,
    counts: Counts,
}

/// What became of a request that was followed where it goes.
enum Followed {
    By(Next),
    Switched(Stream, Option<Claim>),
}

/// The backends that a request may go to.
enum Choice<'a> {
    /// The instances of a site, each once; with what the request is chosen by.
    Site(&'a Site, Tried, u64),
    One(Option<Arc<Backend>>),
}

impl Choice<'_> {
    /// The next one, by that time.
    fn next(&mut self, now: u64) -> Option<Arc<Backend>> {
        match self {
            Self::Site(site, tried, key) => site.pick(tried, *key, now).map(|instance| Arc::clone(&instance.backend)),
            Self::One(backend) => backend.take(),
        }
    }

    /// Forgets who has been tried.
    fn begin_again(&mut self) {
        if let Self::Site(_, tried, _) = self {
            *tried = Tried::default();
        }
    }
}

/// What is known of a request before it is read, where another protocol has been translated into it.
#[derive(Debug, Default)]
pub(super) struct Foreknown {
    /// It is not to be served.
    pub(super) refused: Option<Refusal>,
    /// It asks for a WebSocket, and the backend has to answer this in `Sec-WebSocket-Accept`.
    pub(super) accept: Option<Vec<u8>>,
}

/// What is written down about a request while it runs.
struct Notes {
    /// Only where somebody wants to know.
    started: Option<Instant>,
    method: Vec<u8>,
    target: Vec<u8>,
    host: String,
    route: Option<Arc<Route>>,
    backend: Option<Arc<Backend>>,
    tries: u32,
    reason: Option<(&'static str, Fault)>,
}

impl Connection {
    pub(crate) fn new(stream: Stream, arrival: Arrival, worker: Rc<Worker>, ticket: Ticket) -> Self {
        Self { stream, ended: false, may_be_http2: false, arrival, own: None, worker, ticket }
    }

    /// What is left of it for another protocol.
    pub(crate) fn into_parts(self) -> (Stream, Arrival, Rc<Worker>, Ticket) {
        (self.stream, self.arrival, self.worker, self.ticket)
    }

    /// Serves it to its end. Where the client has turned out to speak HTTP/2 without having been asked: gives what it has
    /// sent.
    pub(crate) async fn serve(&mut self) -> Option<Buffer> {
        self.ticket.attend().await;
        let mut first = true;
        // Once for each wait: what comes and is no byte of a request, half a record of TLS, does not prolong it.
        self.ticket.arm(self.settings().timeouts.head);
        while self.awaits_request(first).await {
            let mut exchange = self.worker.exchange();
            match self.first_read(&mut exchange).await {
                Poll::Ready(true) => {}
                Poll::Ready(false) => {
                    self.worker.recycle(exchange);
                    return None;
                }
                Poll::Pending => {
                    self.worker.recycle(exchange);
                    continue;
                }
            }
            // The first head is due from accept on, any other from its first byte.
            if !first {
                self.ticket.arm(self.settings().timeouts.head);
            }
            self.may_be_http2 = first && self.settings().http2.prior_knowledge;
            first = false;
            // Boxed for as long as it runs: what a request needs, a connection that waits for one need not hold.
            match Box::pin(self.requests(&mut exchange)).await {
                Next::Keep => {
                    self.worker.recycle(exchange);
                    self.ticket.arm(self.settings().timeouts.idle);
                }
                next => return Box::pin(self.end(next, exchange)).await,
            }
        }
        Box::pin(self.part()).await;
        None
    }

    /// Does what is left to do behind the last request. Gives what the client has sent where that is not HTTP/1.
    async fn end(&mut self, next: Next, mut exchange: Box<Exchange>) -> Option<Buffer> {
        if let Next::Linger = next {
            self.linger(&mut exchange).await;
        }
        let early = matches!(next, Next::Http2).then(|| exchange.swap_buffers(|| self.worker.buffers.get()).0);
        self.worker.recycle(exchange);
        if let Next::Tunnel(switched) = next {
            self.tunnel(*switched).await;
        }
        early
    }

    /// Serves one request that another protocol has been translated into.
    pub(super) async fn serve_one(&mut self, foreknown: Foreknown) {
        self.ticket.attend().await;
        let mut exchange = self.worker.exchange();
        self.ticket.arm(self.settings().timeouts.head);
        let next = self.request(&mut exchange, foreknown).await;
        Box::pin(self.end(next, exchange)).await;
    }

    fn settings(&self) -> &Settings {
        &self.worker.shared.settings
    }

    /// Waits for the first byte of a request. Holds no buffer meanwhile.
    async fn awaits_request(&mut self, first: bool) -> bool {
        let mut draining = false;
        self.ticket.begin_idling();
        let comes = poll_fn(|cx| {
            if let Poll::Ready(readable) = self.stream.poll_readable(cx) {
                return Poll::Ready(readable.is_ok());
            }
            if self.ticket.is_draining() && !draining {
                if !first {
                    return Poll::Ready(false);
                }
                draining = true;
                self.ticket.arm(LAST_CALL);
            }
            if self.ticket.is_due() || self.ticket.is_evicted() { Poll::Ready(false) } else { Poll::Pending }
        })
        .await;
        self.ticket.end_idling();
        comes
    }

    /// Reads what is said to be there: `false` for the end. Pending when there was nothing after all. Of a connection that
    /// has just been accepted the runtime only guesses, and one that says nothing must not hold a buffer meanwhile.
    async fn first_read(&mut self, exchange: &mut Exchange) -> Poll<bool> {
        let stream = &mut self.stream;
        poll_fn(|cx| Poll::Ready(stream.poll_read(cx, &mut exchange.from_client)))
            .await
            .map(|read| matches!(read, Ok(1..)))
    }

    /// Carries a request, and those that have come with it.
    async fn requests(&mut self, exchange: &mut Exchange) -> Next {
        loop {
            let next = self.request(exchange, Foreknown::default()).await;
            skip_empty_lines(&mut exchange.from_client);
            match next {
                // What came before the client closed its side is still answered.
                Next::Keep if !exchange.from_client.is_empty() => self.ticket.arm(self.settings().timeouts.head),
                Next::Keep if self.ended => return Next::Close,
                next => return next,
            }
        }
    }

    /// Carries one request from its first byte to its last.
    async fn request(&mut self, exchange: &mut Exchange, foreknown: Foreknown) -> Next {
        let is_observed = self.worker.is_observed();
        let mut notes = Notes::new(is_observed);
        exchange.begin(is_observed);
        exchange.accept = foreknown.accept;
        let read = match foreknown.refused {
            Some(refusal) => Some(Err(refusal)),
            None => self.read_head(exchange).await,
        };
        let may_be_http2 = std::mem::take(&mut self.may_be_http2);
        match read {
            None => return Next::Close,
            Some(Err(_)) if may_be_http2 && exchange.from_client.data().starts_with(HTTP2_PREFACE) => {
                return Next::Http2;
            }
            Some(Ok(())) => exchange.expect_body(&self.settings().limits),
            Some(Err(refusal)) => {
                let next = self.refuse(exchange, refusal, &mut notes).await;
                self.tell(&exchange.counts, &notes);
                return next;
            }
        }
        if is_observed {
            notes.head(exchange);
        }
        let Bounce { to, changes } = self.decide(exchange).await;
        let next = match self.follow(exchange, to, &changes, &mut notes).await {
            Ok(Followed::By(next)) => next,
            Ok(Followed::Switched(backend, claim)) => {
                let early = exchange.swap_buffers(|| self.worker.buffers.get());
                let counts = exchange.counts;
                return Next::Tunnel(Box::new(Switched { backend, claim, early, notes, counts }));
            }
            Err(refusal) => self.refuse(exchange, refusal, &mut notes).await,
        };
        self.tell(&exchange.counts, &notes);
        next
    }

    /// Reads a head, whole, before the deadline that is set. `None` when the client has gone without a request.
    async fn read_head(&mut self, exchange: &mut Exchange) -> Option<Result<(), Refusal>> {
        let (stream, limits) = (&mut self.stream, &self.worker.shared.settings.limits);
        let may_be_http2 = self.may_be_http2;
        let reading = pin!(async {
            let mut seen = 0;
            loop {
                skip_empty_lines(&mut exchange.from_client);
                let bytes = exchange.from_client.data();
                if is_worth_parsing(bytes, seen, limits) {
                    match exchange.head.parse(bytes, limits) {
                        Ok(Parsed::Whole) => return Some(Ok(())),
                        Ok(Parsed::Partial) => {}
                        // Not all of it has come.
                        Err(_) if may_be_http2 && HTTP2_PREFACE.starts_with(bytes) && bytes != HTTP2_PREFACE => {}
                        Err(refusal) => return Some(Err(refusal)),
                    }
                }
                seen = bytes.len();
                if !exchange.from_client.make_room(limits.head) {
                    return Some(Err(Refusal::HeadTooLarge));
                }
                match poll_fn(|cx| stream.poll_read(cx, &mut exchange.from_client)).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        });
        match self.ticket.until_due(reading).await {
            Ok(read) => read,
            Err(Elapsed) if exchange.from_client.is_empty() => None,
            Err(Elapsed) => Some(Err(Refusal::HeadTimeout)),
        }
    }

    async fn decide(&self, exchange: &Exchange) -> Bounce {
        let head = Head::new(exchange.from_client.data(), &exchange.head);
        if let Some(refusal) = self.arrival.refusal(head.host()) {
            return Bounce::new().refuse(refusal);
        }
        match self.worker.shared.decide.decide(&head, Bounce::new()) {
            Decision::Now(bounce) => bounce,
            Decision::Later(bounce) => bounce.await,
        }
    }

    /// Does what was decided.
    async fn follow(
        &mut self,
        exchange: &mut Exchange,
        to: Destination,
        changes: &Changes,
        notes: &mut Notes,
    ) -> Result<Followed, Refusal> {
        let next = match to {
            Destination::Refuse(refusal) => return Err(refusal),
            Destination::Stream(stream) => return self.forward_over(exchange, stream, changes, notes).await,
            Destination::Backend(address, link) => {
                let backend = self.worker.backend(address, link);
                return self.forward(exchange, Choice::One(Some(backend)), changes, notes).await;
            }
            Destination::Route(route) => {
                notes.route = Some(Arc::clone(&route));
                if let Some(redirect) = self.insist_on_tls(exchange, &route)? {
                    return Ok(Followed::By(self.redirect(exchange, &redirect).await));
                }
                match &route.action {
                    Action::Forward(site) => {
                        let head = Head::new(exchange.from_client.data(), &exchange.head);
                        let key = site.balance().key(Some(&head), self.arrival.client.ip());
                        let choice = Choice::Site(site, Tried::default(), key);
                        return self.forward(exchange, choice, changes, notes).await;
                    }
                    Action::Redirect(redirect) => self.redirect(exchange, redirect).await,
                    Action::Respond(fixed) => self.respond(exchange, fixed).await,
                    // Its backend answers on a connection that begins with its name, and we have no say in that.
                    Action::PassThrough(_) => return Err(Refusal::Misdirected),
                }
            }
            Destination::Redirect(redirect) => self.redirect(exchange, &redirect).await,
            Destination::Answer(fixed) => self.respond(exchange, &fixed).await,
        };
        Ok(Followed::By(next))
    }

    /// What the route says about TLS: where a client is sent that came without, and what one is told that came with it.
    fn insist_on_tls(&self, exchange: &mut Exchange, route: &Route) -> Result<Option<Redirect>, Refusal> {
        if self.arrival.is_tls() {
            exchange.hsts.clone_from(&route.https.hsts);
            return Ok(None);
        }
        let tls = self.worker.shared.tls.as_ref();
        if tls.is_none() && route.https.plain.is_none() {
            return Ok(None);
        }
        let head = Head::new(exchange.from_client.data(), &exchange.head);
        let trusted = self.settings().forwarding.trusts(self.arrival.client.ip());
        plain::instead(&route.https, &head, trusted, tls)
    }

    /// Forwards a request to a backend, and waits for one where the site says so and none can be reached.
    async fn forward(
        &mut self,
        exchange: &mut Exchange,
        mut choice: Choice<'_>,
        changes: &Changes,
        notes: &mut Notes,
    ) -> Result<Followed, Refusal> {
        self.prepare(exchange, changes)?;
        let last = match self.reach(exchange, &mut choice, notes).await {
            Ok(reached) => return reached,
            Err(last) => last,
        };
        match choice {
            Choice::Site(site, ..) if !site.wait().is_zero() => {
                // Boxed, since it is rare.
                Box::pin(self.wait_for(site, exchange, choice, notes)).await
            }
            _ => Err(last),
        }
    }

    /// Tries a site's instances again and again, for as long as it says. Nothing of the request has been sent.
    async fn wait_for(
        &mut self,
        site: &Site,
        exchange: &mut Exchange,
        mut choice: Choice<'_>,
        notes: &mut Notes,
    ) -> Result<Followed, Refusal> {
        let _place = site.queue(self.settings().limits.waiting).ok_or(Refusal::QueueFull)?;
        let begun = Instant::now();
        while begun.elapsed() < site.wait() {
            let gone = Box::pin(exchange.client_goes(&mut self.stream, &mut self.ended));
            if self.ticket.within(MOMENT, gone).await.is_ok() {
                notes.cut(Cut::ClientGone);
                return Ok(Followed::By(Next::Close));
            }
            if self.ticket.is_over() {
                return Err(Refusal::Draining);
            }
            choice.begin_again();
            if let Ok(reached) = self.reach(exchange, &mut choice, notes).await {
                return reached;
            }
        }
        Err(Refusal::NoBackend)
    }

    /// Forwards a request to a backend, to the next one where connecting fails. An error of its own: all have been tried,
    /// and none could be reached.
    async fn reach(
        &mut self,
        exchange: &mut Exchange,
        choice: &mut Choice<'_>,
        notes: &mut Notes,
    ) -> Result<Result<Followed, Refusal>, Refusal> {
        let mut last = Refusal::NoBackend;
        while let Some(backend) = choice.next(self.worker.now()) {
            let claim = backend.claim();
            notes.backend = Some(Arc::clone(&backend));
            let mut kept = self.kept(&backend, !exchange.head.is_idempotent);
            let mut begun_again = false;
            loop {
                notes.tries += 1;
                let reused = kept.is_some();
                let mut stream = match kept.take() {
                    Some(stream) => stream,
                    None => match self.connect(&backend).await {
                        Ok(stream) => stream,
                        Err(refusal) => {
                            self.worker.failed(&backend, refusal.row().code);
                            last = refusal;
                            break;
                        }
                    },
                };
                let ended = self.exchange(exchange, &mut stream).await;
                match verdict(&ended, reused) {
                    Verdict::Served => self.worker.served(&backend),
                    Verdict::Failed(why) => self.worker.failed(&backend, why),
                    Verdict::Neither => {}
                }
                match ended {
                    // It had ended before, or at that moment: nobody's fault, and a fresh one will tell.
                    Ended::Stale if reused && exchange.may_repeat() => exchange.rewind(),
                    // The backend has said so; once, lest it says so for ever.
                    Ended::Untouched if !begun_again && exchange.may_begin_again() => {
                        begun_again = true;
                        exchange.rewind();
                    }
                    Ended::Switched => return Ok(Ok(Followed::Switched(stream, Some(claim)))),
                    ended => {
                        if let Ended::Whole { keep_backend: true, .. } = ended {
                            self.keep(&backend, stream, exchange.kept_for());
                        }
                        return Ok(self.after(exchange, ended, notes).await);
                    }
                }
            }
        }
        Err(last)
    }

    /// Forwards a request over a connection that somebody else has made.
    async fn forward_over(
        &mut self,
        exchange: &mut Exchange,
        mut stream: Stream,
        changes: &Changes,
        notes: &mut Notes,
    ) -> Result<Followed, Refusal> {
        self.prepare(exchange, changes)?;
        notes.tries += 1;
        match self.exchange(exchange, &mut stream).await {
            Ended::Switched => Ok(Followed::Switched(stream, None)),
            ended => self.after(exchange, ended, notes).await,
        }
    }

    /// Writes the request as the backend gets it.
    fn prepare(&self, exchange: &mut Exchange, changes: &Changes) -> Result<(), Refusal> {
        let forwarding = &self.settings().forwarding;
        let origin = Origin {
            peer: self.arrival.client.ip(),
            trusted: forwarding.trusts(self.arrival.client.ip()),
            scheme: self.arrival.scheme(),
            fields: forwarding.send,
        };
        exchange.prepare(&origin, changes, &self.settings().limits)
    }

    async fn exchange(&mut self, exchange: &mut Exchange, backend: &mut Stream) -> Ended {
        let settings = &self.worker.shared.settings;
        exchange.run(&mut self.stream, &mut self.ended, backend, &self.ticket, settings).await
    }

    /// What an exchange leaves of the client's connection.
    async fn after(&mut self, exchange: &mut Exchange, ended: Ended, notes: &mut Notes) -> Result<Followed, Refusal> {
        Ok(Followed::By(match ended {
            Ended::Refused(refusal) => return Err(refusal),
            Ended::Stale => return Err(exchange.refusal_of_stale()),
            Ended::Untouched | Ended::Switched => return Err(Refusal::BackendClosed),
            Ended::Cut { why, reset } => {
                notes.cut(why);
                if reset {
                    self.stream.reset_on_close();
                }
                Next::Close
            }
            Ended::Whole { keep_client: true, .. } if self.skip_body(exchange).await => Next::Keep,
            // A close behind which something is unread is a reset, which may overtake the response.
            Ended::Whole { keep_client: false, .. }
                if !exchange.head.keep_alive && exchange.is_received() && self.stream.is_quiet() =>
            {
                self.part().await;
                Next::Close
            }
            // The client did not expect the end, or still sends.
            Ended::Whole { .. } => Next::Linger,
        }))
    }

    /// A connection to this backend that waits for a request. With `surely` the kernel is asked whether it still stands.
    fn kept(&mut self, backend: &Backend, surely: bool) -> Option<Stream> {
        if backend.link().http2 {
            return self.worker.lines.take(backend);
        }
        if backend.link().send_proxy.is_none() {
            return self.worker.idle.take(backend, surely, self.worker.now());
        }
        // A client has one such connection: to another backend, this one makes room.
        let Own { stream, id, since } = *self.own.take()?;
        let quiet = if surely { stream.is_surely_quiet() } else { stream.is_quiet() };
        let fit = id == backend.id() && since.elapsed() < self.settings().timeouts.backend_idle && quiet;
        fit.then_some(stream)
    }

    fn keep(&mut self, backend: &Arc<Backend>, stream: Stream, kept_for: Option<u32>) {
        if backend.link().http2 {
            // The stream is over; the connection is kept by all who share it.
        } else if backend.link().send_proxy.is_none() {
            self.worker.keep(backend, stream, kept_for);
        } else if stream.is_quiet() || stream.settles() {
            self.own = Some(Box::new(Own { stream, id: backend.id(), since: Instant::now() }));
        }
    }

    async fn connect(&self, backend: &Arc<Backend>) -> Result<Stream, Refusal> {
        let ends = backend.link().send_proxy.map(|version| (version, self.arrival.ends(&self.stream)));
        // Boxed, since it is rare and large, and every request would hold room for it.
        let connecting = Box::pin(async {
            match backend.link().http2 {
                false => connect::connect(backend, ends).await,
                true => self.worker.lines.connect(backend, connect::connect(backend, ends)).await,
            }
        });
        match self.ticket.within(self.settings().timeouts.connect, connecting).await {
            Ok(connected) => connected,
            Err(Elapsed) => Err(Refusal::ConnectTimeout),
        }
    }

    /// Gets what is left of the request body out of the way of the next request.
    async fn skip_body(&mut self, exchange: &mut Exchange) -> bool {
        if exchange.is_received() {
            return true;
        }
        let settings = &self.worker.shared.settings;
        let skipping = pin!(exchange.skip_body(&mut self.stream, &settings.limits));
        self.ticket.within(settings.timeouts.body, skipping).await == Ok(true)
    }

    async fn redirect(&mut self, exchange: &mut Exchange, redirect: &Redirect) -> Next {
        let target = exchange.head.target(exchange.from_client.data()).to_vec();
        let write = |out: &mut _, manner: Manner<'_>| answer::redirect(out, redirect, &target, manner);
        self.answer(exchange, redirect.status, write).await
    }

    async fn respond(&mut self, exchange: &mut Exchange, fixed: &Answer) -> Next {
        self.answer(exchange, fixed.status, |out, manner| answer::fixed(out, fixed, manner)).await
    }

    /// Answers with a failure.
    async fn refuse(&mut self, exchange: &mut Exchange, refusal: Refusal, notes: &mut Notes) -> Next {
        let row = refusal.row();
        notes.reason = Some((row.code, row.fault));
        let ambiguous = matches!(row.status, 400 | 408) || exchange.head.length == 0;
        if ambiguous || matches!(refusal, Refusal::BackendGarbled(_)) {
            // Where this request ends is not known, so neither is where the next one begins. And a client whose
            // backend breaks the framing gets the same end whether or not the broken part came with the head.
            exchange.head.keep_alive = false;
        }
        let instead = self.instead(exchange, refusal);
        let write = |out: &mut _, manner: Manner<'_>| answer::refusal(out, refusal, instead.as_deref(), manner);
        self.answer(exchange, row.status, write).await
    }

    /// The address that a client should have used, where it is known.
    fn instead(&self, exchange: &Exchange, refusal: Refusal) -> Option<String> {
        if refusal != Refusal::PlainHttp || exchange.head.length == 0 {
            return None;
        }
        let port = self.stream.local_address().map(|address| address.port()).filter(|&port| port != tls::HTTPS);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        exchange.head.host().map(|host| format!("https://{host}{port}/"))
    }

    /// Sends an answer of our own, and reads what is left of the request.
    async fn answer(
        &mut self,
        exchange: &mut Exchange,
        status: u16,
        write: impl FnOnce(&mut Vec<u8>, Manner<'_>),
    ) -> Next {
        let nothing_follows = self.ended && exchange.is_last();
        let keep = exchange.head.keep_alive
            && !nothing_follows
            && !self.ticket.is_draining()
            && exchange.rest_can_be_skipped(&self.settings().limits);
        let head = &exchange.head;
        // What is left of the last head says nothing of one that could not be read.
        let known = head.length > 0;
        let hsts = exchange.hsts.take();
        let manner = Manner {
            hsts: hsts.as_deref(),
            close: !keep,
            http10: known && head.minor == 0,
            to_head: known && head.is_head,
            html: known && head.wants_html,
            error_field: self.settings().error_field,
        };
        let mut out = Vec::with_capacity(512);
        write(&mut out, manner);
        exchange.counts.status = status;
        if !self.send(&out).await {
            return Next::Close;
        }
        exchange.counts.sent += out.len() as u64;
        match keep {
            true if self.skip_body(exchange).await => Next::Keep,
            _ => Next::Linger,
        }
    }

    /// Sends bytes of our own. `false` when the client does not take them.
    async fn send(&mut self, bytes: &[u8]) -> bool {
        let stream = &mut self.stream;
        let mut sent = 0;
        let sending = pin!(async {
            while sent < bytes.len() {
                match poll_fn(|cx| stream.poll_write(cx, &bytes[sent..])).await {
                    Ok(0) | Err(_) => return false,
                    Ok(count) => sent += count,
                }
            }
            poll_fn(|cx| stream.poll_flush(cx)).await.is_ok()
        });
        self.ticket.within(self.worker.shared.settings.timeouts.send, sending).await == Ok(true)
    }

    /// Tells a TLS client that the end is meant.
    async fn part(&mut self) {
        let stream = &mut self.stream;
        let parting = poll_fn(|cx| stream.poll_part(cx));
        let _ = self.ticket.within(LINGER, parting).await;
    }

    /// Says that nothing more will come, and reads for a moment what the client still sends.
    async fn linger(&mut self, exchange: &mut Exchange) {
        if self.ended {
            return;
        }
        let stream = &mut self.stream;
        let lingering = pin!(async {
            let _ = poll_fn(|cx| stream.poll_shutdown(cx)).await;
            loop {
                exchange.from_client.clear();
                if !matches!(poll_fn(|cx| stream.poll_read(cx, &mut exchange.from_client)).await, Ok(1..)) {
                    break;
                }
            }
        });
        let _ = self.ticket.within(LINGER, lingering).await;
    }

    /// Carries bytes both ways until both sides have ended.
    async fn tunnel(&mut self, switched: Switched) {
        let Switched { mut backend, claim, early, mut notes, mut counts } = switched;
        let (client, buffers) = (&mut self.stream, &self.worker.buffers);
        let timeouts = &self.worker.shared.settings.timeouts;
        let over = tunnel::run(client, &mut backend, early, buffers, &self.ticket, timeouts).await;
        counts.received += over.to_backend;
        counts.sent += over.to_client;
        if let Some(why) = over.why {
            notes.cut(why);
        }
        drop(claim);
        self.tell(&counts, &notes);
    }

    /// Tells those who log and count.
    fn tell(&self, counts: &Counts, notes: &Notes) {
        let Some(started) = notes.started else { return };
        let total = started.elapsed();
        self.worker.tell(&Record {
            time: SystemTime::now() - total,
            client: self.arrival.client,
            method: &notes.method,
            host: &notes.host,
            target: &notes.target,
            status: counts.status,
            received: counts.received,
            sent: counts.sent,
            route: notes.route.as_deref().map(|route| &*route.name),
            backend: notes.backend.as_deref(),
            tries: notes.tries,
            first_byte: counts.first_byte.map(|at| at - started),
            total,
            reason: notes.reason,
        });
    }
}

impl Notes {
    fn new(is_observed: bool) -> Self {
        Self {
            started: is_observed.then(Instant::now),
            method: Vec::new(),
            target: Vec::new(),
            host: String::new(),
            route: None,
            backend: None,
            tries: 0,
            reason: None,
        }
    }

    /// Keeps of the head what will be told: its bytes make room for others soon.
    fn head(&mut self, exchange: &Exchange) {
        let head = Head::new(exchange.from_client.data(), &exchange.head);
        self.method.extend_from_slice(head.method().as_bytes());
        self.target.extend_from_slice(head.target());
        self.host.push_str(head.host().map_or("", |host| host.name()));
    }

    fn cut(&mut self, why: Cut) {
        self.reason = Some((why.code(), why.fault()));
    }
}

/// What the end of an exchange says of the backend.
enum Verdict {
    Served,
    Failed(&'static str),
    /// It was the client's fault, or nobody's.
    Neither,
}

fn verdict(ended: &Ended, reused: bool) -> Verdict {
    match ended {
        Ended::Whole { .. } | Ended::Switched => Verdict::Served,
        Ended::Stale if !reused => Verdict::Failed(Refusal::BackendClosed.row().code),
        Ended::Cut { why: Cut::Backend, .. } => Verdict::Failed(Cut::Backend.code()),
        Ended::Refused(refusal) if refusal.row().fault == Fault::Backend => Verdict::Failed(refusal.row().code),
        _ => Verdict::Neither,
    }
}

/// Empty lines in front of a request are nothing (RFC 9112 section 2.2).
fn skip_empty_lines(buffer: &mut Buffer) {
    while buffer.data().starts_with(b"\r\n") {
        buffer.eat(2);
    }
}

/// Whether a head of which `seen` bytes have been parsed before can say anything new. Only the end of a line can, or a
/// first line that has grown too long: so a head that comes byte by byte is not parsed anew for each.
fn is_worth_parsing(bytes: &[u8], seen: usize, limits: &Limits) -> bool {
    let fresh = &bytes[seen.min(bytes.len())..];
    let grown = |limit: usize| seen <= limit && bytes.len() > limit;
    !fresh.is_empty()
        && (seen == 0
            || memchr::memchr(b'\n', fresh).is_some()
            || grown(limits.target + LONGEST_REST_OF_LINE)
            || bytes.len() >= limits.head)
}
