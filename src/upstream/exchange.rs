//! One request and its response over one backend connection.
//!
//! Both directions run at once in one task: a response may begin before its request has ended. Nothing is held for its
//! own sake: what has been read is written before more is read, so a slow reader slows its writer, and memory is
//! two buffers whatever the bodies. Bytes are looked at only to know where a message ends.
//!
//! The state is one recycled value: a connection holds it from a request's first byte to its last, and nothing
//! of it while it idles.

mod down;
mod up;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::http::body::Body;
use crate::http::head::RequestHead;
use crate::http::refuse::{Cut, Refusal};
use crate::http::response::ResponseHead;
use crate::net::buffer::Buffer;
use crate::net::deadline::Ticket;
use crate::net::haul::Haul;
use crate::net::stream::Stream;
use crate::settings::{Limits, Settings, Timeouts};
use crate::table::backend::Backend;
use crate::table::retries::Retries;
use crate::tap::Tapped;

use up::UpError;

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

    /// The request asks for a WebSocket for a client that does not see the handshake: what the backend has to answer.
    pub(crate) accept: Option<Vec<u8>>,
    /// What the site says to browsers of coming over TLS.
    pub(crate) hsts: Option<Arc<str>>,
    /// The cookie that the response sets, so that the session stays with its instance.
    pub(crate) session: Option<Box<str>>,
    /// What makes a response one that is not passed on, since another try may bring a better one.
    pub(crate) declines: Option<Arc<Retries>>,
    /// Where somebody watches it.
    pub(crate) tap: Option<Box<Tapped>>,
    /// How much of the request is kept for another try.
    replay: usize,
    response: ResponseHead,
    from_backend: Buffer,
    response_body: Body,
    /// Made bytes for the client: interim heads, a body without its chunks.
    made: Vec<u8>,
    made_sent: usize,
    /// How many bytes at the front of `from_backend` are on their way.
    response_taken: usize,
    down: Down,
    /// The rest of the request body, and of the response body, where the kernel carries them.
    up_haul: Option<Haul>,
    down_haul: Option<Haul>,
    /// A `100` has been passed on.
    continued: bool,
    /// The backend has broken off by a TLS alert, instead of a response.
    alerted: bool,
    /// The client sees the end of the body only by the end of its connection.
    ends_by_close: bool,
    keep_client: bool,

    waits_for: Wait,
    moved: bool,
    /// Of the response, a byte has come.
    is_answered: bool,
    is_timed: bool,
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
    /// How many of those were the final response's head.
    pub(crate) sent_head: u64,
    /// The final response's status; 0 before there is one.
    pub(crate) status: u16,
    /// When the first byte of a response came.
    pub(crate) first_byte: Option<Instant>,
    /// All the rest of it came and went in the same moment.
    pub(crate) at_once: bool,
}

/// The error of a connection whose backend says that it has not begun with the request (RFC 9113 sections 6.8, 8.7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotBegun;

impl std::error::Error for NotBegun {}

impl std::fmt::Display for NotBegun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the backend has not begun with the request")
    }
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
    /// So it did, and the backend says that it has not begun with the request.
    Untouched,
    /// Its response is one that another try may do better than; the client has seen nothing of it.
    Declined,
    /// It failed, and the client has seen nothing of a final response.
    Refused(Refusal),
    /// It failed after that.
    Cut {
        why: Cut,
        /// A plain close would make the body look whole.
        reset: bool,
    },
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
            accept: None,
            hsts: None,
            session: None,
            declines: None,
            tap: None,
            replay: 0,
            response: ResponseHead::default(),
            from_backend: Buffer::new(),
            response_body: Body::Done,
            made: Vec::with_capacity(1024),
            made_sent: 0,
            response_taken: 0,
            down: Down::Head,
            up_haul: None,
            down_haul: None,
            continued: false,
            alerted: false,
            ends_by_close: false,
            keep_client: false,
            waits_for: Wait::ResponseHead,
            moved: false,
            is_answered: false,
            is_timed: false,
            counts: Counts::default(),
        }
    }

    /// Forgets the last request, but not what the client has sent behind it. Only where somebody wants to know, time is
    /// kept: reading the clock is not free.
    pub(crate) fn begin(&mut self, is_timed: bool) {
        self.counts = Counts::default();
        self.is_timed = is_timed;
        self.is_answered = false;
        self.body = Body::Done;
        self.accept = None;
        self.hsts = None;
        self.session = None;
        self.declines = None;
        self.tap = None;
        self.replay = 0;
        self.body_taken = 0;
        self.continued = false;
        self.head.length = 0;
        self.head_in_buffer = 0;
    }

    /// Tells those who watch that it goes to this backend.
    pub(crate) fn tell_request(&mut self, backend: &Backend) {
        if let Some(tap) = &mut self.tap {
            tap.request(&self.request, Some(backend));
        }
    }

    /// Tells those who watch that we answer it ourselves.
    pub(crate) fn tell_answer(&mut self, answer: &[u8], status: u16) {
        if let Some(mut tap) = self.tap.take() {
            tap.answer(self.as_far_as_it_got(), answer, status);
            self.tap = Some(tap);
        }
    }

    /// Tells those who watch what has gone wrong with it in the end.
    pub(crate) fn tell_end(&mut self, reason: Option<&'static str>) {
        if let Some(tap) = self.tap.take() {
            tap.end(self.as_far_as_it_got(), reason);
        }
    }

    /// The head as a backend gets it, where it has been written, with what follows it there.
    fn as_far_as_it_got(&self) -> &[u8] {
        match self.head_in_buffer {
            0 => &self.request,
            length => &self.from_client.data()[..length],
        }
    }

    /// Before it waits for its next user: gives up large memory, but for the few that stay `roomy`.
    pub(crate) fn tidy(&mut self, roomy: bool) {
        for buffer in [&mut self.from_client, &mut self.from_backend] {
            if !(buffer.is_small() || roomy && buffer.is_large()) {
                *buffer = Buffer::new();
            }
            buffer.clear();
        }
        self.up_haul = None;
        self.down_haul = None;
        self.tap = None;
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

    /// Goes back to before the first byte was sent.
    pub(crate) fn rewind(&mut self) {
        self.request_sent = 0;
        self.up = Up::Sending;
        self.from_backend.clear();
        self.response_taken = 0;
        self.made.clear();
        self.made_sent = 0;
        self.down = Down::Head;
        self.is_answered = false;
        self.counts.first_byte = None;
        self.alerted = false;
        self.up_haul = None;
        self.down_haul = None;
    }

    /// Why the backend gave no response, when it ended without a byte of one.
    pub(crate) fn refusal_of_stale(&self) -> Refusal {
        match self.alerted {
            // By a server that wants a certificate of us, or another one: it says so once hands have been shaken.
            true => Refusal::BackendTls("the site's server broke off the TLS connection"),
            false => Refusal::BackendClosed,
        }
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
            self.counts.at_once = false;
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
        // The response first: where it is all there, nobody needs to watch for a client that has gone.
        if let Poll::Ready(ended) = self.poll_down(cx, client, *client_ended, backend, draining, limits) {
            return Poll::Ready(ended);
        }
        if self.up == Up::Done && !*client_ended {
            match self.watch_client(cx, client) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => *client_ended = true,
                Poll::Ready(Err(_)) => return Poll::Ready(self.cut(Cut::ClientGone)),
            }
        }
        Poll::Pending
    }

    /// For how many seconds the backend says that it keeps its connection.
    pub(crate) fn kept_for(&self) -> Option<u32> {
        self.response.kept_for
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
            Wait::ResponseHead => self.fail(Refusal::ResponseTimeout, Cut::BackendSilent),
            Wait::ResponseBody => self.cut(Cut::BackendSilent),
            Wait::Client => self.cut(Cut::IdleTimeout),
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
