//! One request and its response over one backend connection.
//!
//! Both directions run at once in one task: a response may begin before its request has ended. Nothing is held for its
//! own sake: what has been read is written before more is read, so a slow reader slows its writer, and memory is
//! two buffers whatever the bodies. Bytes are looked at only to know where a message ends.
//!
//! The state is one recycled value: a connection holds it from a request's first byte to its last, and nothing
//! of it while it idles.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use crate::http::body::{BadBody, Body, ChunkLimits, Framing};
use crate::http::head::{Parsed, RequestHead};
use crate::http::refuse::{Cut, Refusal};
use crate::http::response::ResponseHead;
use crate::http::rewrite::{self, Origin, Persistence};
use crate::net::buffer::Buffer;
use crate::net::deadline::Ticket;
use crate::net::stream::Stream;
use crate::settings::{Limits, Settings, Timeouts};

/// A body prefix up to this size goes out in the same write as its request head: the copy costs less than a call.
const JOINED: usize = 4 * 1024;

/// The state of one request, used again for the next.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) head: RequestHead,
    /// What the client has sent and nobody has taken yet.
    pub(crate) from_client: Buffer,
    /// How many bytes at the front of `from_client` are the head, once it has been read and until it is forwarded.
    head_in_buffer: usize,
    /// How much of the request body is still to come from the client.
    pub(crate) body: Body,
    /// The request head as it goes to the backend, with a small body prefix.
    request: Vec<u8>,
    request_sent: usize,
    /// How many bytes at the front of `from_client` are body, and on their way.
    body_taken: usize,
    /// Everything that has been sent is still in `request`.
    replayable: bool,
    up: Up,

    response: ResponseHead,
    from_backend: Buffer,
    response_body: Body,
    /// Made bytes for the client: interim heads, a body without its chunks.
    made: Vec<u8>,
    made_sent: usize,
    /// How many bytes at the front of `from_backend` are on their way.
    response_taken: usize,
    down: Down,
    /// A `100` has been passed on.
    continued: bool,
    /// The client sees the end of the body only by the end of its connection.
    ends_by_close: bool,
    keep_client: bool,

    waits_for: Wait,
    moved: bool,
    /// What is counted for the log.
    pub(crate) counts: Counts,
}

/// What an exchange has moved, and when its first answer came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Bytes from the client, head and body.
    pub(crate) received: u64,
    /// Bytes to the client, head and body.
    pub(crate) sent: u64,
    /// The final response's status; 0 before there is one.
    pub(crate) status: u16,
    pub(crate) first_byte: Option<Instant>,
}

/// The request's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Up {
    Sending,
    Done,
    /// The backend takes no more. What it has answered may still come.
    Broken,
}

/// The response's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Down {
    Head,
    Body,
    /// Behind a 101.
    Switched,
}

/// Whom an exchange waits for, and so which time-out holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    RequestBody,
    ResponseHead,
    ResponseBody,
    /// The client does not take its response.
    Client,
}

/// How an exchange ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The response has been sent whole.
    Whole {
        /// The client's connection may go on, once what is left of its request body is out of the way.
        keep_client: bool,
        /// So may the backend's.
        keep_backend: bool,
    },
    /// The backend has switched protocols; what has been read early is in the buffers.
    Switched,
    /// The backend's connection ended before a byte of a response.
    Stale,
    /// It failed, and the client has seen nothing of a final response.
    Refused(Refusal),
    /// It failed after that.
    Cut {
        why: Cut,
        /// A plain close would make the body look whole.
        reset: bool,
    },
}

/// What ends the request's direction early.
enum UpError {
    /// The backend takes no more.
    Backend,
    ClientGone,
    /// The client closed its side in the middle of the body.
    ClientEnded,
    /// What it sends is not a body, or too much of one.
    Refused(Refusal),
}

impl Exchange {
    pub(crate) fn new() -> Self {
        Self {
            head: RequestHead::default(),
            from_client: Buffer::new(),
            head_in_buffer: 0,
            body: Body::Done,
            request: Vec::with_capacity(1024),
            request_sent: 0,
            body_taken: 0,
            replayable: true,
            up: Up::Sending,
            response: ResponseHead::default(),
            from_backend: Buffer::new(),
            response_body: Body::Done,
            made: Vec::with_capacity(1024),
            made_sent: 0,
            response_taken: 0,
            down: Down::Head,
            continued: false,
            ends_by_close: false,
            keep_client: false,
            waits_for: Wait::ResponseHead,
            moved: false,
            counts: Counts::default(),
        }
    }

    /// Forgets the last request, but not what the client has sent behind it.
    pub(crate) fn begin(&mut self) {
        self.counts = Counts::default();
        self.body = Body::Done;
        self.body_taken = 0;
        self.continued = false;
        self.head.length = 0;
        self.head_in_buffer = 0;
    }

    /// Gives up large memory before it waits for its next user.
    pub(crate) fn tidy(&mut self) {
        for buffer in [&mut self.from_client, &mut self.from_backend] {
            if !buffer.is_small() {
                *buffer = Buffer::new();
            }
            buffer.clear();
        }
        for made in [&mut self.request, &mut self.made] {
            made.clear();
            made.shrink_to(64 * 1024);
        }
    }

    /// The two buffers, for a tunnel: what the client sent early, and what the backend did.
    pub(crate) fn swap_buffers(&mut self, fresh: impl Fn() -> Buffer) -> (Buffer, Buffer) {
        let client = std::mem::replace(&mut self.from_client, fresh());
        (client, std::mem::replace(&mut self.from_backend, fresh()))
    }

    /// The head has been read: its body is due next.
    pub(crate) fn expect_body(&mut self, limits: &Limits) {
        self.body = Body::new(self.head.framing, request_chunks(limits));
        self.head_in_buffer = self.head.length;
        self.counts.received = self.head.length as u64;
    }

    /// Writes the request that goes to the backend.
    pub(crate) fn prepare(&mut self, origin: &Origin, limits: &Limits) -> Result<(), Refusal> {
        if limits.body.is_some_and(|most| self.body.left().is_some_and(|left| left > most)) {
            return Err(Refusal::BodyTooLarge);
        }
        self.request.clear();
        rewrite::request(&mut self.request, self.from_client.data(), &self.head, origin);
        self.from_client.eat(std::mem::take(&mut self.head_in_buffer));
        let taken = self.body.take(self.from_client.data()).map_err(refusal_of)?;
        self.counts.received += taken as u64;
        self.body_taken = taken;
        if taken <= JOINED {
            self.request.extend_from_slice(&self.from_client.data()[..taken]);
            self.from_client.eat(taken);
            self.body_taken = 0;
        }
        self.replayable = true;
        self.rewind();
        Ok(())
    }

    /// Goes back to before the first byte was sent.
    pub(crate) fn rewind(&mut self) {
        self.request_sent = 0;
        self.up = Up::Sending;
        self.from_backend.clear();
        self.response_taken = 0;
        self.made.clear();
        self.made_sent = 0;
        self.down = Down::Head;
    }

    /// Whether it may be sent again on another connection, though this one may have brought it to the backend.
    pub(crate) fn may_repeat(&self) -> bool {
        self.replayable && (self.head.is_idempotent || self.request_sent == 0)
    }

    /// Runs it to its end.
    pub(crate) async fn run(
        &mut self,
        client: &mut Stream,
        client_ended: &mut bool,
        backend: &mut Stream,
        ticket: &Ticket,
        settings: &Settings,
    ) -> Ended {
        let mut waited_for = None;
        let ended = poll_fn(|cx| {
            self.moved = false;
            let draining = ticket.is_draining();
            if let Poll::Ready(ended) = self.poll(cx, client, client_ended, backend, draining, &settings.limits) {
                return Poll::Ready(ended);
            }
            if self.moved || waited_for != Some(self.waits_for) {
                waited_for = Some(self.waits_for);
                ticket.arm(self.waits_for.patience(&settings.timeouts));
            } else if ticket.is_due() {
                return Poll::Ready(match ticket.is_over() {
                    true => self.fail(Refusal::Draining, Cut::Draining),
                    false => self.too_slow(),
                });
            }
            Poll::Pending
        })
        .await;
        ticket.disarm();
        ended
    }

    /// Whether the request has been read, and taken, to its end.
    pub(crate) fn is_received(&self) -> bool {
        self.body.is_done() && self.head_in_buffer == 0 && self.body_taken == 0
    }

    /// Whether nothing has come behind this request, as far as that is known.
    pub(crate) fn is_last(&self) -> bool {
        self.from_client.len() <= self.head_in_buffer + self.body_taken
    }

    /// Reads what is left of the request body and throws it away. `false` when that is more than `limits.leftover`,
    /// or not a body, or nothing comes any more.
    pub(crate) async fn skip_body(&mut self, client: &mut Stream, limits: &Limits) -> bool {
        self.from_client.eat(std::mem::take(&mut self.head_in_buffer) + std::mem::take(&mut self.body_taken));
        let mut left = limits.leftover;
        loop {
            let Ok(taken) = self.body.take(self.from_client.data()) else {
                return false;
            };
            self.from_client.eat(taken);
            self.counts.received += taken as u64;
            let Some(rest) = left.checked_sub(taken as u64) else {
                return false;
            };
            left = rest;
            if self.body.is_done() {
                return true;
            }
            if !matches!(poll_fn(|cx| client.poll_read(cx, &mut self.from_client)).await, Ok(1..)) {
                return false;
            }
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        client_ended: &mut bool,
        backend: &mut Stream,
        draining: bool,
        limits: &Limits,
    ) -> Poll<Ended> {
        self.waits_for = if self.down == Down::Body { Wait::ResponseBody } else { Wait::ResponseHead };
        if self.up == Up::Sending {
            match self.poll_up(cx, client, backend) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.up = Up::Done,
                Poll::Ready(Err(UpError::Backend)) => self.up = Up::Broken,
                Poll::Ready(Err(UpError::ClientGone)) => return Poll::Ready(self.cut(Cut::ClientGone)),
                Poll::Ready(Err(UpError::ClientEnded)) => {
                    *client_ended = true;
                    return Poll::Ready(self.fail(Refusal::MalformedBody("the body ended early"), Cut::ClientGone));
                }
                Poll::Ready(Err(UpError::Refused(refusal))) => {
                    return Poll::Ready(self.fail(refusal, Cut::ClientGarbled));
                }
            }
        }
        if self.up == Up::Done && !*client_ended {
            match self.watch_client(cx, client) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => *client_ended = true,
                Poll::Ready(Err(_)) => return Poll::Ready(self.cut(Cut::ClientGone)),
            }
        }
        self.poll_down(cx, client, *client_ended, backend, draining, limits)
    }

    /// Sends the request. Ready when all of it has been sent.
    fn poll_up(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        backend: &mut Stream,
    ) -> Poll<Result<(), UpError>> {
        loop {
            while self.request_sent < self.request.len() {
                let rest = &self.request[self.request_sent..];
                self.request_sent += self.wrote(ready!(backend.poll_write(cx, rest))).map_err(|_| UpError::Backend)?;
            }
            while self.body_taken > 0 {
                let rest = &self.from_client.data()[..self.body_taken];
                let sent = self.wrote(ready!(backend.poll_write(cx, rest))).map_err(|_| UpError::Backend)?;
                self.from_client.eat(sent);
                self.body_taken -= sent;
                self.replayable = false;
            }
            if self.body.is_done() {
                return Poll::Ready(Ok(()));
            }
            if self.from_client.is_empty() {
                let Poll::Ready(read) = client.poll_read(cx, &mut self.from_client) else {
                    if self.down == Down::Head {
                        self.waits_for = Wait::RequestBody;
                    }
                    return Poll::Pending;
                };
                match read {
                    Ok(0) => return Poll::Ready(Err(UpError::ClientEnded)),
                    Ok(_) => self.moved = true,
                    Err(_) => return Poll::Ready(Err(UpError::ClientGone)),
                }
            }
            let taken = self.body.take(self.from_client.data()).map_err(|bad| UpError::Refused(refusal_of(bad)))?;
            self.counts.received += taken as u64;
            self.body_taken = taken;
            grow_for_more(&mut self.from_client, &self.body);
        }
    }

    /// While the response is awaited: takes what the client sends ahead, as far as there is room, and notices that it
    /// has gone. Ready when it has closed its side, which is not the same: it still gets its answer.
    fn watch_client(&mut self, cx: &mut Context<'_>, client: &mut Stream) -> Poll<io::Result<()>> {
        while !self.from_client.room().is_empty() {
            if ready!(client.poll_read(cx, &mut self.from_client))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Brings the response. Ready when the exchange is over.
    fn poll_down(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        client_ended: bool,
        backend: &mut Stream,
        draining: bool,
        limits: &Limits,
    ) -> Poll<Ended> {
        loop {
            match self.flush(cx, client) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(self.cut(Cut::ClientGone)),
                Poll::Pending => {
                    self.waits_for = Wait::Client;
                    return Poll::Pending;
                }
            }
            match self.down {
                Down::Head => {
                    if !self.from_backend.is_empty() {
                        match self.read_head(client_ended, draining, limits) {
                            Ok(Parsed::Whole) => continue,
                            Ok(Parsed::Partial) => {}
                            Err(refusal) => return Poll::Ready(Ended::Refused(refusal)),
                        }
                    }
                    if !self.from_backend.make_room(limits.response_head) {
                        return Poll::Ready(Ended::Refused(Refusal::BackendHeadTooLarge));
                    }
                    match ready!(backend.poll_read(cx, &mut self.from_backend)) {
                        Ok(0) | Err(_) => return Poll::Ready(self.ended_early()),
                        Ok(_) => {
                            self.moved = true;
                            self.counts.first_byte.get_or_insert_with(Instant::now);
                        }
                    }
                }
                Down::Body if self.response_body.is_done() => {
                    return Poll::Ready(Ended::Whole {
                        keep_client: self.keep_client,
                        keep_backend: self.response.keep_alive
                            && self.up == Up::Done
                            // What a backend sends unasked is nobody's response.
                            && self.from_backend.is_empty(),
                    });
                }
                Down::Body => {
                    if self.from_backend.is_empty() {
                        self.waits_for = Wait::ResponseBody;
                        match ready!(backend.poll_read(cx, &mut self.from_backend)) {
                            Ok(0) if self.response_body.may_end_here() => {
                                self.response_body = Body::Done;
                                continue;
                            }
                            Ok(0) | Err(_) => return Poll::Ready(self.cut(Cut::Backend)),
                            Ok(_) => self.moved = true,
                        }
                    }
                    if self.take_response_body().is_err() {
                        return Poll::Ready(self.cut(Cut::Backend));
                    }
                }
                Down::Switched => return Poll::Ready(Ended::Switched),
            }
        }
    }

    /// Writes to the client what is on its way there.
    fn flush(&mut self, cx: &mut Context<'_>, client: &mut Stream) -> Poll<io::Result<()>> {
        while self.made_sent < self.made.len() {
            let sent = self.wrote(ready!(client.poll_write(cx, &self.made[self.made_sent..])))?;
            self.made_sent += sent;
            self.counts.sent += sent as u64;
        }
        if self.made_sent > 0 {
            self.made.clear();
            self.made_sent = 0;
        }
        while self.response_taken > 0 {
            let rest = &self.from_backend.data()[..self.response_taken];
            let sent = self.wrote(ready!(client.poll_write(cx, rest)))?;
            self.from_backend.eat(sent);
            self.response_taken -= sent;
            self.counts.sent += sent as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Tries to read a response head, and decides what becomes of it.
    fn read_head(&mut self, client_ended: bool, draining: bool, limits: &Limits) -> Result<Parsed, Refusal> {
        let parsed = self.response.parse(self.from_backend.data(), self.head.is_head, limits)?;
        if parsed == Parsed::Partial {
            return Ok(parsed);
        }
        if self.response.is_interim() {
            self.pass_interim();
        } else if self.response.status == 101 {
            self.switch()?;
        } else {
            self.pass_head(client_ended, draining, limits)?;
        }
        Ok(Parsed::Whole)
    }

    /// 1xx goes through to those who know it (RFC 9110 section 15.2), and the head proper is still to come.
    fn pass_interim(&mut self) {
        let length = self.response.length;
        if self.head.minor == 1 {
            let head = &self.from_backend.data()[..length];
            if !rewrite::response(&mut self.made, head, &self.response, Persistence::Silent, false) {
                self.made.extend_from_slice(head);
            }
            self.continued |= self.response.status == 100;
        }
        self.from_backend.eat(length);
    }

    /// A 101 that was asked for, after a request that has been sent whole (RFC 9110 section 15.2.2).
    fn switch(&mut self) -> Result<(), Refusal> {
        if !self.head.upgrade || !self.response.upgrade || self.up != Up::Done {
            return Err(Refusal::BackendGarbled("the site's server switched protocols without being asked"));
        }
        self.replace_head(Persistence::Upgrade, false);
        self.response_taken = self.from_backend.len();
        self.counts.status = 101;
        self.down = Down::Switched;
        Ok(())
    }

    fn pass_head(&mut self, client_ended: bool, draining: bool, limits: &Limits) -> Result<(), Refusal> {
        let framing = self.response.framing;
        let dechunk = rewrite::must_dechunk(framing, self.head.minor);
        self.ends_by_close = framing == Framing::UntilClose || dechunk;
        let nothing_follows = client_ended && self.is_last();
        self.keep_client = self.head.keep_alive
            && !self.ends_by_close
            && !nothing_follows
            && !draining
            && self.rest_can_be_skipped(limits);
        let persistence = match self.keep_client {
            false => Persistence::Close,
            true if self.head.minor == 0 => Persistence::KeepAlive,
            true => Persistence::Silent,
        };
        let length = self.replace_head(persistence, dechunk);
        self.response_body = Body::new(framing, response_chunks(limits));
        let body = &self.from_backend.data()[length..];
        let taken = match dechunk {
            true => 0,
            false => self.response_body.take(body).map_err(|bad| Refusal::BackendGarbled(bad.0))?,
        };
        self.response_taken = length + taken;
        self.counts.status = self.response.status;
        self.down = Down::Body;
        Ok(())
    }

    /// Whether what is left of the request body is so little that it can be read and thrown away. A client that waits
    /// for a `100` may never send it, and nobody could tell its body from its next request.
    pub(crate) fn rest_can_be_skipped(&self, limits: &Limits) -> bool {
        let waits = self.head.expects_continue && !self.continued && !self.body.is_done();
        !waits && self.body.left().is_some_and(|left| left <= limits.leftover)
    }

    /// Puts the head as the client gets it in front of what follows it; gives its length.
    fn replace_head(&mut self, persistence: Persistence, dechunk: bool) -> usize {
        let length = self.response.length;
        let head = &self.from_backend.data()[..length];
        self.made.clear();
        if !rewrite::response(&mut self.made, head, &self.response, persistence, dechunk) {
            return length;
        }
        self.from_backend.replace_front(length, &self.made);
        let length = self.made.len();
        self.made.clear();
        length
    }

    /// Looks for the response's end in what has come.
    fn take_response_body(&mut self) -> Result<(), BadBody> {
        let bytes = self.from_backend.data();
        if rewrite::must_dechunk(self.response.framing, self.head.minor) {
            let taken = self.response_body.decode(bytes, &mut self.made)?;
            self.from_backend.eat(taken);
        } else {
            self.response_taken = self.response_body.take(bytes)?;
            grow_for_more(&mut self.from_backend, &self.response_body);
        }
        Ok(())
    }

    fn wrote(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                self.moved = true;
                Ok(count)
            }
            Err(error) => Err(error),
        }
    }

    /// The backend's connection ended where its head should have been.
    fn ended_early(&self) -> Ended {
        match self.counts.first_byte {
            None => Ended::Stale,
            Some(_) => Ended::Refused(Refusal::BackendClosed),
        }
    }

    fn fail(&self, refusal: Refusal, cut: Cut) -> Ended {
        match self.down {
            Down::Head => Ended::Refused(refusal),
            Down::Body | Down::Switched => self.cut(cut),
        }
    }

    fn cut(&self, why: Cut) -> Ended {
        Ended::Cut { why, reset: self.ends_by_close && self.down == Down::Body }
    }

    fn too_slow(&self) -> Ended {
        match self.waits_for {
            Wait::RequestBody => self.fail(Refusal::BodyTimeout, Cut::IdleTimeout),
            Wait::ResponseHead => self.fail(Refusal::ResponseTimeout, Cut::IdleTimeout),
            Wait::ResponseBody | Wait::Client => self.cut(Cut::IdleTimeout),
        }
    }
}

impl Wait {
    fn patience(self, timeouts: &Timeouts) -> std::time::Duration {
        match self {
            Self::RequestBody => timeouts.body,
            Self::ResponseHead => timeouts.response_head,
            Self::ResponseBody => timeouts.response_body,
            Self::Client => timeouts.send,
        }
    }
}

/// A body that fills a buffer in one read and has more to come is worth a larger one.
fn grow_for_more(buffer: &mut Buffer, body: &Body) {
    if !body.is_done() && buffer.is_full() {
        buffer.enlarge();
    }
}

fn refusal_of(bad: BadBody) -> Refusal {
    match bad {
        BadBody::TOO_LARGE => Refusal::BodyTooLarge,
        BadBody(why) => Refusal::MalformedBody(why),
    }
}

pub(crate) fn request_chunks(limits: &Limits) -> ChunkLimits {
    ChunkLimits { line: limits.chunk_line, trailers: limits.head, content: limits.body }
}

fn response_chunks(limits: &Limits) -> ChunkLimits {
    ChunkLimits { line: limits.chunk_line, trailers: limits.response_head, content: None }
}
