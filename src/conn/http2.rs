//! The story of an HTTP/2 connection (RFC 9113).
//!
//! [`serve`] takes requests as they come, each in a task of its own, until the connection ends. A request is served by
//! [`http1::Connection`] like any other: [`Bridge`] is to it a client that speaks HTTP/1, so that deciding, forwarding, refusing
//! and logging are the same for both, and what the translation writes is judged like what a client writes.
//!
//! Frames, header compression and flow control are h2's. It is used without hyper around it, whose server can't send
//! interim responses.

mod bridge;
mod lingering;
mod request;
mod websocket;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::task::spawn_local;

use crate::conn::arrival::Arrival;
use crate::conn::http1;
use crate::conn::worker::{Guest, Worker};
use crate::http::response::ResponseHead;
use crate::net::deadline::Ticket;
use crate::net::stream::Stream;
use crate::settings::{Limits, Settings};

use bridge::Bridge;
use lingering::Lingering;

/// How long a client that has been told to leave may take to do so, once it has its answers; and how long it is listened to
/// when the connection has ended.
const GOODBYE: Duration = Duration::from_secs(2);

/// What h2 counts for one field beside its bytes (RFC 9113 section 10.5.1).
const FIELD_OVERHEAD: usize = 32;

/// A client's connection.
struct Client<'a> {
    connection: Connection<Lingering, Bytes>,
    streams: Rc<Streams>,
    ticket: &'a Ticket,
    settings: &'a Settings,
    state: State,
    /// It has been told that nothing new is taken.
    leaving: bool,
    /// The connection has ended, and what the client still sends is thrown away.
    ending: Rc<Cell<bool>>,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its requests, each of which has deadlines of its own.
    Busy,
    /// The client, which has not taken all of its answers.
    Flushing,
    /// The next request.
    Idle,
}

/// What a connection and its requests know of each other.
#[derive(Debug, Default)]
pub(super) struct Streams {
    open: Cell<usize>,
    /// How many more requests were taken back than answered.
    taken_back: Cell<usize>,
    /// Of the connection's task, for the last request's end.
    waker: RefCell<Option<Waker>>,
    /// A response's head, as it is being read: never over an await, so one serves all.
    response: RefCell<ResponseHead>,
}

/// One open request.
struct Open(Rc<Streams>);

/// Serves a connection to its end.
pub(crate) async fn serve(stream: Stream, arrival: Arrival, worker: &Rc<Worker>, ticket: &Ticket) {
    ticket.attend().await;
    let settings = &*worker.shared.settings;
    let ending = Rc::<Cell<bool>>::default();
    let handshake = builder(settings).handshake(Lingering::new(stream, Rc::clone(&ending)));
    let Ok(Ok(connection)) = ticket.within(settings.timeouts.head, handshake).await else {
        return;
    };
    let mut client =
        Client { connection, streams: Rc::default(), ticket, settings, state: State::Busy, leaving: false, ending };
    while let Some((request, mut respond)) = poll_fn(|cx| client.poll_request(cx)).await {
        // The first one has its connection's place. Each further one may need one more connection to a backend: where there is
        // no room for that, the client may ask again (RFC 9113 section 8.7).
        let place = match client.streams.open.get() {
            0 => None,
            _ => match Guest::enter_if_there_is_room(&worker.shared) {
                Some(guest) => Some(guest),
                None => {
                    respond.send_reset(Reason::REFUSED_STREAM);
                    continue;
                }
            },
        };
        let open = Open::new(&client.streams);
        let (bridge, foreknown) = Bridge::new(request, respond, Rc::clone(&client.streams), Rc::clone(worker));
        let stream = Stream::Other(Box::new(bridge));
        let mut connection = http1::Connection::new(stream, arrival.clone(), Rc::clone(worker), worker.ticket());
        // Boxed: the runtime moves what it runs several times, and this is large.
        spawn_local(Box::pin(async move {
            connection.serve_one(foreknown).await;
            drop((open, place));
        }));
    }
}

fn builder(settings: &Settings) -> Builder {
    let (limits, http2) = (&settings.limits, &settings.http2);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(http2.streams)
        .initial_window_size(http2.stream_window)
        .initial_connection_window_size(http2.connection_window)
        .max_send_buffer_size(http2.send_buffer)
        .max_header_list_size(header_list(limits))
        .enable_connect_protocol();
    builder
}

/// How much h2 takes of a head: all that is allowed, and a little more, so that the refusal is ours.
fn header_list(limits: &Limits) -> u32 {
    let fields = limits.fields.saturating_mul(FIELD_OVERHEAD);
    u32::try_from(limits.head.saturating_add(fields).saturating_mul(2)).unwrap_or(u32::MAX)
}

impl Client<'_> {
    /// Carries the connection on until the next request, or its end.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Request<RecvStream>, SendResponse<Bytes>)>> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(request))) => return Poll::Ready(Some(request)),
                Poll::Ready(None | Some(Err(_))) => return Poll::Ready(None),
                Poll::Pending => {}
            }
            self.streams.attend(cx);
            self.watch();
            let due = self.state != State::Busy && self.ticket.is_due();
            if due && self.ticket.is_over() {
                return Poll::Ready(None);
            }
            if !self.leaving && self.ending.get() {
                self.leaving = true;
                self.ticket.arm(GOODBYE);
            }
            if !self.leaving && self.streams.taken_back.get() > self.settings.http2.resets {
                self.leaving = true;
                self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                self.ticket.arm(GOODBYE);
                continue;
            }
            if !self.leaving && (self.ticket.is_draining() || self.state == State::Idle && due) {
                self.leaving = true;
                self.connection.graceful_shutdown();
                if self.state == State::Idle {
                    self.ticket.arm(GOODBYE);
                }
                continue;
            }
            if due || self.state == State::Idle && self.ticket.is_evicted() {
                return Poll::Ready(None);
            }
            return Poll::Pending;
        }
    }

    /// Sets the deadline of what is waited for now.
    fn watch(&mut self) {
        let state = match self.streams.open.get() {
            0 if !self.connection.has_streams() => State::Idle,
            0 => State::Flushing,
            _ => State::Busy,
        };
        if state == self.state {
            return;
        }
        self.state = state;
        self.ticket.end_idling();
        match state {
            State::Busy => self.ticket.disarm(),
            State::Flushing => self.ticket.arm(self.settings.timeouts.send),
            State::Idle => {
                // As in HTTP/1, it is one that waits for a request.
                self.ticket.begin_idling();
                self.ticket.arm(if self.leaving { GOODBYE } else { self.settings.timeouts.idle });
            }
        }
    }
}

impl Streams {
    fn attend(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }

    /// The client has its answer.
    fn answered(&self) {
        self.taken_back.set(self.taken_back.get().saturating_sub(1));
    }

    /// The client does not want it any more.
    fn taken_back(&self) {
        self.taken_back.set(self.taken_back.get().saturating_add(1));
        self.wake();
    }

    /// Lets the connection look at what has changed.
    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Open {
    fn new(streams: &Rc<Streams>) -> Self {
        streams.open.set(streams.open.get() + 1);
        Self(Rc::clone(streams))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let left = self.0.open.get() - 1;
        self.0.open.set(left);
        if left == 0 {
            self.0.wake();
        }
    }
}
