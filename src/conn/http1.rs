//! The story of an HTTP/1 connection.
//!
//! [`Connection::serve`] waits for a request, holding nothing, and [`Connection::request`] carries it: read its head,
//! decide, then answer ([`reply`]) or forward ([`forward`]). Every request is decided on its own, also behind another one
//! on the same connection.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::bounce::{Bounce, Decision, Destination};
use crate::conn::arrival::Arrival;
use crate::conn::choosing::Choosing;
use crate::conn::worker::Worker;
use crate::conn::{plain, tunnel};
use crate::http::head::{Head, LONGEST_REST_OF_LINE, Parsed};
use crate::http::refuse::Refusal;
use crate::http::rewrite::Changes;
use crate::net::buffer::Buffer;
use crate::net::deadline::{Elapsed, Ticket};
use crate::net::stream::Stream;
use crate::settings::{Limits, Settings};
use crate::table::backend::Claim;
use crate::table::{Action, Redirect, Route};
use crate::tap::Tapped;
use crate::upstream::exchange::{Counts, Exchange};

use forward::{Choice, Own};
pub(super) use notes::Kept;
use notes::Notes;

mod forward;
mod notes;
mod pause;
mod reply;

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

/// What is known of a request before it is read, where another protocol has been translated into it.
#[derive(Debug, Default)]
pub(super) struct Foreknown {
    /// It is not to be served.
    pub(super) refused: Option<Refusal>,
    /// It asks for a WebSocket, and the backend has to answer this in `Sec-WebSocket-Accept`.
    pub(super) accept: Option<Vec<u8>>,
    /// It has come over HTTP/2.
    pub(super) is_http2: bool,
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
            let mut exchange = self.worker.spare.exchange();
            match self.first_read(&mut exchange).await {
                Poll::Ready(true) => {}
                Poll::Ready(false) => {
                    self.worker.spare.give_exchange(exchange);
                    return None;
                }
                Poll::Pending => {
                    self.worker.spare.give_exchange(exchange);
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
                    self.worker.spare.give_exchange(exchange);
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
        let early = matches!(next, Next::Http2).then(|| exchange.swap_buffers(|| self.worker.spare.buffer()).0);
        self.worker.spare.give_exchange(exchange);
        if let Next::Tunnel(switched) = next {
            self.tunnel(*switched).await;
        }
        early
    }

    /// Serves one request that another protocol has been translated into.
    pub(super) async fn serve_one(&mut self, foreknown: Foreknown) {
        self.ticket.attend().await;
        let mut exchange = self.worker.spare.exchange();
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
        let is_observed = self.worker.told.of_all();
        let mut notes = Notes::new(is_observed, self.worker.now());
        notes.is_http2 = foreknown.is_http2;
        exchange.begin(is_observed);
        exchange.accept = foreknown.accept;
        let read = match foreknown.refused {
            Some(refusal) => Some(Err(refusal)),
            None => self.read_head(exchange, &mut notes).await,
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
                self.closes(&next, exchange, &mut notes);
                self.conclude(&exchange.counts, notes);
                return next;
            }
        }
        self.note_head(exchange, &mut notes);
        let mut bounce = self.decide(exchange).await;
        if pause::paused(&bounce).is_some() {
            // Boxed, since it is rare.
            bounce = match Box::pin(self.stand_by(bounce, exchange, &mut notes)).await {
                Some(bounce) => bounce,
                None => {
                    exchange.tell_end(notes.reason.map(|(code, _)| code));
                    self.conclude(&exchange.counts, notes);
                    return Next::Close;
                }
            };
        }
        let Bounce { to, changes } = bounce;
        let next = match self.follow(exchange, to, &changes, &mut notes).await {
            Ok(Followed::By(next)) => next,
            Ok(Followed::Switched(backend, claim)) => {
                let early = exchange.swap_buffers(|| self.worker.spare.buffer());
                // How a tunnel ends is not known yet, and its head will be gone.
                self.recall_surely(exchange, &mut notes);
                let counts = Counts { at_once: false, ..exchange.counts };
                return Next::Tunnel(Box::new(Switched { backend, claim, early, notes, counts }));
            }
            Err(refusal) => self.refuse(exchange, refusal, &mut notes).await,
        };
        self.closes(&next, exchange, &mut notes);
        self.recall(exchange, &mut notes);
        exchange.tell_end(notes.reason.map(|(code, _)| code));
        self.conclude(&exchange.counts, notes);
        next
    }

    /// Reads a head, whole, before the deadline that is set. `None` when the client has gone without a request.
    async fn read_head(&mut self, exchange: &mut Exchange, notes: &mut Notes) -> Option<Result<(), Refusal>> {
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
                notes.waited_for_head = true;
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
                if let Action::Forward(site) = &route.action {
                    exchange.tap = Tapped::of(site.lasting(), self.arrival.client, exchange.tap.take());
                }
                if let Some(redirect) = self.insist_on_tls(exchange, &route)? {
                    return Ok(Followed::By(self.redirect(exchange, &redirect).await));
                }
                match &route.action {
                    Action::Forward(site) => {
                        let head = Head::new(exchange.from_client.data(), &exchange.head);
                        let key = site.key(Some(&head), self.arrival.client.ip(), &self.worker.shared.sticky_key);
                        let tls = site.sticky().is_some() && self.came_over_tls(&head);
                        let choice = Choice::Site(Choosing::new(site, key).over_tls(tls));
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

    /// Whether a request came over TLS, to us or to a proxy in front that is believed.
    fn came_over_tls(&self, head: &Head<'_>) -> bool {
        let trusted = self.settings().forwarding.trusts(self.arrival.client.ip());
        self.arrival.is_tls() || trusted && plain::came_over_tls(head)
    }

    /// Carries bytes both ways until both sides have ended.
    async fn tunnel(&mut self, switched: Switched) {
        let Switched { mut backend, claim, early, mut notes, mut counts } = switched;
        let (client, spare) = (&mut self.stream, &self.worker.spare);
        let timeouts = &self.worker.shared.settings.timeouts;
        let _counted = self.worker.shared.doors.tunnel();
        let over = tunnel::run(client, &mut backend, early, spare, &self.ticket, timeouts).await;
        counts.received += over.to_backend;
        counts.sent += over.to_client;
        notes.closed = over.first;
        if let Some(why) = over.why {
            notes.cut(why);
        }
        drop(claim);
        self.tell(&counts, &notes);
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
