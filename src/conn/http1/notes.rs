//! What is written down about a request while it runs, and told when it is over.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::{Connection, Next};
use crate::http::head::{Head, Parsed, RequestHead};
use crate::http::refuse::{Cut, Fault};
use crate::record::{Record, Side};
use crate::settings::Limits;
use crate::table::backend::Backend;
use crate::table::tally::Ending;
use crate::table::{Action, Route};
use crate::upstream::exchange::{Counts, Exchange};

/// The longest name of a request that is taken from a trusted peer.
const LONGEST_ID: usize = 128;

/// The field that names a request, where no other is asked for.
const REQUEST_ID: &str = "x-request-id";

/// The most memory of one request's notes that is kept for another's: most targets and hosts are shorter by far.
const MOST_MEMORY: usize = 4096;

/// What is written down about a request while it runs.
pub(super) struct Notes {
    /// Only where somebody wants to know; and so is all else that takes time to find out.
    pub(super) started: Option<Instant>,
    /// The same to a tenth of a second, by the worker's time.
    began: u64,
    pub(super) is_http2: bool,
    /// Of HTTP/1; `None` before there is a head.
    minor: Option<u8>,
    kept: Kept,
    fields: Vec<Option<Box<[u8]>>>,
    pub(super) route: Option<Arc<Route>>,
    pub(super) backend: Option<Arc<Backend>>,
    pub(super) tries: u32,
    /// Its head has not come all at once.
    pub(super) waited_for_head: bool,
    head: Duration,
    pub(super) connect: Option<Duration>,
    pub(super) closed: Option<Side>,
    pub(super) reason: Option<(&'static str, Fault)>,
}

/// What is kept of a request's head. Its memory goes from one request to the next.
#[derive(Debug, Default)]
pub(in crate::conn) struct Kept {
    /// The request's own name, its method and host, one behind the other.
    words: String,
    /// Where the first two of these end.
    ends: [usize; 2],
    target: Vec<u8>,
}

impl Kept {
    /// Forgets all but its memory. `false` where that is too much to keep, or none.
    pub(in crate::conn) fn clear(&mut self) -> bool {
        self.words.clear();
        self.ends = [0; 2];
        self.target.clear();
        (1..MOST_MEMORY).contains(&self.words.capacity()) && self.target.capacity() < MOST_MEMORY
    }

    fn name(&mut self, id: &str) {
        self.words.push_str(id);
        self.ends = [self.words.len(); 2];
    }

    fn take(&mut self, head: &Head<'_>) {
        self.words.push_str(head.method());
        self.ends[1] = self.words.len();
        self.words.push_str(head.host().map_or("", |host| host.name()));
        self.target.extend_from_slice(head.target());
    }

    fn id(&self) -> &str {
        &self.words[..self.ends[0]]
    }

    fn method(&self) -> &str {
        &self.words[self.ends[0]..self.ends[1]]
    }

    fn host(&self) -> &str {
        &self.words[self.ends[1]..]
    }
}

impl Notes {
    pub(super) fn new(is_observed: bool, now: u64) -> Self {
        Self {
            started: is_observed.then(Instant::now),
            began: now,
            is_http2: false,
            minor: None,
            kept: Kept::default(),
            fields: Vec::new(),
            route: None,
            backend: None,
            tries: 0,
            waited_for_head: false,
            head: Duration::ZERO,
            connect: None,
            closed: None,
            reason: None,
        }
    }

    /// What those are told whose site is paused, where its operator has said so.
    pub(super) fn message(&self) -> Option<String> {
        let Action::Forward(site) = &self.route.as_deref()?.action else { return None };
        site.lasting().pause().now()?.message.as_deref().map(str::to_owned)
    }

    /// Counts how it has ended, where a site or a backend had to do with it.
    fn count(&self, status: u16) {
        let ending = Ending::of(status, self.reason);
        if let Some(Action::Forward(site)) = self.route.as_deref().map(|route| &route.action) {
            site.lasting().tally().count(ending);
        }
        // A failure has been counted when it was found, for whichever backend it was.
        if let (Some(backend), false) = (&self.backend, matches!(ending, Ending::Failed | Ending::Own)) {
            backend.tally().count(ending);
        }
    }

    pub(super) fn cut(&mut self, why: Cut) {
        self.reason = Some((why.code(), why.fault()));
        self.closed = Some(match why {
            Cut::ClientGone => Side::Client,
            Cut::BackendClosed | Cut::BackendGone => Side::Backend,
            Cut::BackendGarbled | Cut::BackendSilent | Cut::ClientGarbled | Cut::IdleTimeout | Cut::Draining => {
                Side::Proxy
            }
        });
    }

    fn take(&mut self, head: &Head<'_>, minor: u8) {
        self.minor = Some(minor);
        self.kept.take(head);
    }

    /// The request's own name; empty where nobody wants to know it.
    pub(super) fn id(&self) -> &str {
        self.kept.id()
    }

    fn protocol(&self) -> &'static str {
        match (self.is_http2, self.minor) {
            (_, None) => "",
            (true, _) => "HTTP/2.0",
            (false, Some(0)) => "HTTP/1.0",
            (false, Some(_)) => "HTTP/1.1",
        }
    }
}

impl Connection {
    /// Keeps of the head what will be told: its bytes make room for others soon.
    pub(super) fn note_head(&self, exchange: &Exchange, notes: &mut Notes) {
        let forwarding = &self.settings().forwarding;
        if notes.started.is_none() && forwarding.request_id.is_none() {
            return;
        }
        let head = Head::new(exchange.from_client.data(), &exchange.head);
        notes.kept = self.worker.spare.notes();
        self.name(&head, notes);
        let Some(started) = notes.started else { return };
        notes.take(&head, exchange.head.minor);
        notes.fields.extend(self.worker.told.wanted().map(|name| head.field(name).map(Box::from)));
        if notes.waited_for_head {
            notes.head = started.elapsed();
        }
    }

    /// Gives the request its name.
    fn name(&self, head: &Head<'_>, notes: &mut Notes) {
        let forwarding = &self.settings().forwarding;
        let theirs = forwarding
            .trusts(self.arrival.client.ip())
            .then(|| head.field(forwarding.request_id.as_deref().unwrap_or(REQUEST_ID)))
            .flatten();
        match theirs.and_then(readable) {
            Some(id) => notes.kept.name(id),
            None => notes.kept.name(made_id(&mut [0; 32])),
        }
    }

    /// Of a request that somebody wants to know of only now that it has failed: keeps what will be told, before the answer
    /// makes room for others.
    pub(super) fn recall(&self, exchange: &Exchange, notes: &mut Notes) {
        if self.worker.told.of_one(exchange.counts.status, notes.reason.is_some()) {
            self.recall_surely(exchange, notes);
        }
    }

    /// The same, whatever will become of it.
    pub(super) fn recall_surely(&self, exchange: &Exchange, notes: &mut Notes) {
        if notes.minor.is_some() || exchange.head.length == 0 || !self.worker.told.of_failures() {
            return;
        }
        let minor = exchange.head.minor;
        if let Some(bytes) = exchange.head_bytes() {
            return self.take_head(&Head::new(bytes, &exchange.head), minor, notes);
        }
        // What has been sent of it is a head too: without what is for one hop only.
        let (mut sent, limits) = (RequestHead::default(), Limits { head: usize::MAX, ..Limits::default() });
        if sent.parse(exchange.request_bytes(), &limits) == Ok(Parsed::Whole) {
            self.take_head(&Head::new(exchange.request_bytes(), &sent), minor, notes);
        }
    }

    fn take_head(&self, head: &Head<'_>, minor: u8, notes: &mut Notes) {
        if notes.id().is_empty() {
            self.name(head, notes);
        }
        notes.take(head, minor);
    }

    /// Notes who has ended the connection, if it ends here.
    pub(super) fn closes(&self, next: &Next, exchange: &Exchange, notes: &mut Notes) {
        let ends = matches!(next, Next::Close | Next::Linger) && !notes.is_http2;
        if ends && notes.closed.is_none() {
            let by_client = self.ended || exchange.head.length > 0 && !exchange.head.keep_alive;
            notes.closed = Some(if by_client { Side::Client } else { Side::Proxy });
        }
    }

    /// Tells those who log and count, and leaves its memory to the next one.
    pub(super) fn conclude(&self, counts: &Counts, notes: Notes) {
        self.tell(counts, &notes);
        self.worker.spare.give_notes(notes.kept);
    }

    /// Tells those who log and count.
    pub(super) fn tell(&self, counts: &Counts, notes: &Notes) {
        notes.count(counts.status);
        if !self.worker.told.of_one(counts.status, notes.reason.is_some()) {
            return;
        }
        let (time, first_byte, total) = match notes.started {
            Some(started) => {
                let first_byte = counts.first_byte.map(|at| at - started);
                // Reading the clock is not free.
                let total = first_byte.filter(|_| counts.at_once).unwrap_or_else(|| started.elapsed());
                (self.worker.wall(started), first_byte, total)
            }
            None => {
                let coarse = Duration::from_millis(self.worker.now().saturating_sub(notes.began));
                (SystemTime::now() - coarse, None, coarse)
            }
        };
        self.worker.told.tell(&Record {
            time,
            client: self.arrival.client,
            scheme: self.arrival.scheme(),
            protocol: notes.protocol(),
            method: notes.kept.method().as_bytes(),
            host: notes.kept.host(),
            target: &notes.kept.target,
            fields: &notes.fields,
            id: notes.id(),
            status: counts.status,
            received: counts.received,
            sent: counts.sent,
            sent_head: counts.sent_head,
            route: notes.route.as_deref().map(|route| &*route.name),
            is_logged: notes.route.as_deref().is_none_or(|route| route.is_logged),
            backend: notes.backend.as_deref(),
            tries: notes.tries,
            head: notes.head,
            connect: notes.connect,
            first_byte,
            total,
            closed: notes.closed,
            reason: notes.reason,
        });
    }
}

/// A name that a line of the log can hold, and a field.
fn readable(id: &[u8]) -> Option<&str> {
    let fits = !id.is_empty() && id.len() <= LONGEST_ID && id.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(id).ok().filter(|_| fits)
}

/// Makes a name: 32 hex digits, at random.
fn made_id(out: &mut [u8; 32]) -> &str {
    for (pair, byte) in out.chunks_exact_mut(2).zip(fastrand::u128(..).to_be_bytes()) {
        pair.copy_from_slice(&HEX[usize::from(byte)]);
    }
    std::str::from_utf8(out).unwrap_or_default()
}

/// How each byte is written.
const HEX: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut all = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        all[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    all
};
