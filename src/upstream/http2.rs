//! The HTTP/2 connections of one worker to backends: one for each backend, shared by all its requests, and more when the
//! backend's or our own number of requests for one is reached.
//!
//! To [`Exchange`](super::exchange::Exchange) a request's stream is a connection to a backend that speaks HTTP/1: see
//! [`Crossing`].

mod crossing;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Weak as ArcWeak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use hashbrown::HashMap;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::http::refuse::Refusal;
use crate::net::stream::Stream;
use crate::settings::Settings;
use crate::table::backend::{Address, Backend};

use crossing::Crossing;

/// How long a request may have waited in vain before its connection is asked whether it is still there.
const SUSPICIOUS: Duration = Duration::from_secs(5);

/// How long a connection has to answer that.
const ANSWER: Duration = Duration::from_secs(3);

/// The connections of one worker.
pub(crate) struct Lines {
    /// By the backend's id.
    kept: RefCell<HashMap<u64, Kept>>,
    settings: Arc<Settings>,
}

struct Kept {
    /// Gone once no table and no request names the backend.
    backend: ArcWeak<Backend>,
    connections: Vec<Rc<Line>>,
    /// The backend's, when they were last known to lead to it.
    generation: u64,
    /// A connection that is being made: others wait for it.
    attempt: Option<Rc<Attempt>>,
}

/// A connection, and what is known of it.
struct Line {
    send: RefCell<SendRequest<Bytes>>,
    https: bool,
    peer: Option<SocketAddr>,
    /// For requests that name no host.
    authority: Box<str>,
    settings: Arc<Settings>,
    open: Cell<usize>,
    last_used: Cell<Instant>,
    closed: Cell<bool>,
    /// A request got no answer on it: it is being asked whether it is still there, and gets no other meanwhile.
    suspect: Cell<bool>,
    asked: Rc<Notify>,
}

/// A connection that is being made.
#[derive(Default)]
struct Attempt {
    over: Cell<bool>,
    failure: Cell<Option<Refusal>>,
    done: Notify,
}

impl Kept {
    /// Uses those no more that lead to addresses which the backend's name has no more: each closes when its last request
    /// has ended.
    fn forget_moved(&mut self, backend: &Backend) {
        let generation = backend.generation();
        if generation != self.generation {
            self.connections.retain(|line| backend.is_at(line.peer));
            self.generation = generation;
        }
    }
}

impl Lines {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self { kept: RefCell::default(), settings }
    }

    /// A stream for one request, over a connection that there is.
    pub(crate) fn take(&self, backend: &Backend) -> Option<Stream> {
        let mut kept = self.kept.borrow_mut();
        let kept = kept.get_mut(&backend.id())?;
        kept.forget_moved(backend);
        kept.connections.retain(|line| !line.is_over());
        kept.connections.iter().find(|line| line.has_room()).map(Line::stream)
    }

    /// A stream for one request, over a connection that `reach` makes, or that another request is making already.
    pub(crate) async fn connect(
        &self,
        backend: &Arc<Backend>,
        reach: impl Future<Output = Result<Stream, Refusal>>,
    ) -> Result<Stream, Refusal> {
        loop {
            let attempt = match self.attempt(backend) {
                Ok(own) => {
                    let line = self.shake_hands(backend, reach).await;
                    return own.end(line);
                }
                Err(others) => others,
            };
            while !attempt.over.get() {
                attempt.done.notified().await;
            }
            if let Some(refusal) = attempt.failure.get() {
                return Err(refusal);
            }
            if let Some(stream) = self.take(backend) {
                return Ok(stream);
            }
        }
    }

    /// Begins an attempt, or gives the one that has begun.
    fn attempt(&self, backend: &Arc<Backend>) -> Result<Own<'_>, Rc<Attempt>> {
        let mut kept = self.kept.borrow_mut();
        let kept = kept.entry(backend.id()).or_insert_with(|| Kept {
            backend: Arc::downgrade(backend),
            connections: Vec::new(),
            generation: backend.generation(),
            attempt: None,
        });
        if let Some(attempt) = &kept.attempt {
            return Err(Rc::clone(attempt));
        }
        let attempt = Rc::<Attempt>::default();
        kept.attempt = Some(Rc::clone(&attempt));
        Ok(Own { lines: self, id: backend.id(), generation: backend.generation(), attempt })
    }

    async fn shake_hands(
        &self,
        backend: &Backend,
        reach: impl Future<Output = Result<Stream, Refusal>>,
    ) -> Result<Rc<Line>, Refusal> {
        let stream = reach.await?;
        let peer = stream.peer_address();
        let (send, mut connection) = self.builder().handshake(stream).await.map_err(|_| Refusal::BackendClosed)?;
        let line = Rc::new(Line {
            send: RefCell::new(send),
            https: backend.link().tls.is_some(),
            peer,
            authority: authority(backend.address()).into(),
            settings: Arc::clone(&self.settings),
            open: Cell::new(0),
            last_used: Cell::new(Instant::now()),
            closed: Cell::new(false),
            suspect: Cell::new(false),
            asked: Rc::default(),
        });
        let pings = connection.ping_pong();
        let asked = Rc::clone(&line.asked);
        spawn_local(carry(connection, pings, asked, Rc::downgrade(&line)));
        Ok(line)
    }

    fn builder(&self) -> Builder {
        let http2 = &self.settings.http2;
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(http2.stream_window)
            // One client that takes nothing must not hold back the others that share the connection.
            .initial_connection_window_size(http2.stream_window.saturating_mul(http2.streams).min((1 << 31) - 1))
            .max_send_buffer_size(http2.send_buffer)
            // A little more than is allowed, so that it is ours to say so.
            .max_header_list_size(
                u32::try_from(self.settings.limits.response_head.saturating_mul(2)).unwrap_or(u32::MAX),
            );
        builder
    }

    /// Closes what has been unused for too long, or has no backend any more.
    pub(crate) fn sweep(&self) {
        let mut kept = self.kept.borrow_mut();
        if kept.is_empty() {
            return;
        }
        let longest = self.settings.timeouts.backend_idle;
        kept.retain(|_, kept| {
            if let Some(backend) = kept.backend.upgrade() {
                kept.forget_moved(&backend);
            }
            kept.connections
                .retain(|line| !line.is_over() && (line.open.get() > 0 || line.last_used.get().elapsed() < longest));
            kept.attempt.is_some() || kept.backend.strong_count() > 0 && !kept.connections.is_empty()
        });
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.borrow().is_empty()
    }

    /// Closes all, each as soon as its last request has ended.
    pub(crate) fn clear(&self) {
        self.kept.borrow_mut().clear();
    }
}

/// An attempt of one's own; over when dropped, however that comes.
struct Own<'a> {
    lines: &'a Lines,
    id: u64,
    /// The backend's generation when it began.
    generation: u64,
    attempt: Rc<Attempt>,
}

impl Own<'_> {
    fn end(self, line: Result<Rc<Line>, Refusal>) -> Result<Stream, Refusal> {
        match line {
            Ok(line) => {
                let stream = Line::stream(&line);
                if let Some(kept) = self.lines.kept.borrow_mut().get_mut(&self.id) {
                    // Its name may have moved meanwhile.
                    kept.generation = kept.generation.min(self.generation);
                    kept.connections.push(line);
                }
                Ok(stream)
            }
            Err(refusal) => {
                self.attempt.failure.set(Some(refusal));
                Err(refusal)
            }
        }
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        if let Some(kept) = self.lines.kept.borrow_mut().get_mut(&self.id) {
            kept.attempt = None;
        }
        self.attempt.over.set(true);
        self.attempt.done.notify_waiters();
    }
}

impl Line {
    fn stream(self: &Rc<Self>) -> Stream {
        Stream::Other(Box::new(Crossing::new(Rc::clone(self))))
    }

    /// Whether it takes no request any more.
    fn is_over(&self) -> bool {
        // It is never pending here: this handle has sent no request.
        let cx = &mut Context::from_waker(Waker::noop());
        self.closed.get() || matches!(self.send.borrow_mut().poll_ready(cx), Poll::Ready(Err(_)))
    }

    fn has_room(&self) -> bool {
        let ours = usize::try_from(self.settings.http2.streams).unwrap_or(usize::MAX);
        !self.suspect.get() && self.open.get() < self.send.borrow().current_max_send_streams().min(ours)
    }

    fn begins(&self) {
        self.open.set(self.open.get() + 1);
    }

    /// A request is over; `in_vain` says that nothing came back, though it was waited for.
    fn ends(&self, in_vain: bool) {
        self.open.set(self.open.get() - 1);
        self.last_used.set(Instant::now());
        if in_vain {
            self.suspect.set(true);
            self.asked.notify_one();
        }
    }
}

/// Carries a connection to its end, or until it does not answer. Holds it weakly: the last one who uses it closes it.
async fn carry(connection: Connection<Stream, Bytes>, pings: Option<PingPong>, asked: Rc<Notify>, line: Weak<Line>) {
    {
        let mut connection = pin!(connection);
        let mut silent = pin!(falls_silent(pings, asked, Weak::clone(&line)));
        poll_fn(|cx| match connection.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => silent.as_mut().poll(cx),
        })
        .await;
    }
    if let Some(line) = line.upgrade() {
        line.closed.set(true);
    }
}

/// Ready when a connection that is asked does not answer.
async fn falls_silent(pings: Option<PingPong>, asked: Rc<Notify>, line: Weak<Line>) {
    let Some(mut pings) = pings else {
        return std::future::pending().await;
    };
    loop {
        asked.notified().await;
        if pings.send_ping(Ping::opaque()).is_err() {
            return;
        }
        if !matches!(timeout(ANSWER, poll_fn(|cx| pings.poll_pong(cx))).await, Ok(Ok(_))) {
            return;
        }
        if let Some(line) = line.upgrade() {
            line.suspect.set(false);
        }
    }
}

fn authority(address: &Address) -> String {
    match address {
        Address::Port(port) => format!("localhost:{port}"),
        Address::Unix(_) => "localhost".to_owned(),
        address => address.to_string(),
    }
}
