//! A worker: one thread, one runtime, its own listening sockets, its own idle connections to backends. Workers share
//! nothing on the data path but the decision, and what backends count.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hashbrown::HashMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::{sleep, timeout};

use crate::bounce::Decide;
use crate::conn::arrival::Arrival;
use crate::conn::beginning::{Begun, begin, serve_http2};
use crate::conn::http1::Connection;
use crate::conn::spare::Spare;
use crate::conn::tls::{Negotiated, Tls};
use crate::conn::told::Told;
use crate::http::refuse::Refusal;
use crate::net::deadline::{Elapsed, Sweep, TICK, Ticket};
use crate::net::doors::Doors;
use crate::net::listen::BACKLOG;
use crate::net::seldom::Seldom;
use crate::net::stream::Stream;
use crate::record::Observe;
use crate::settings::{Settings, StickyKey};
use crate::table::backend::{Address, Backend};
use crate::table::link::Link;
use crate::table::standing::{Aside, Back};
use crate::table::tally::Ending;
use crate::upstream::http2::Lines;
use crate::upstream::idle::Idle;

/// How long a worker that can't accept waits before it tries again.
const BREATH: Duration = Duration::from_millis(50);

/// Backends named by decisions that are remembered: a decision that names ever new ones is not remembered for ever.
const MOST_NAMED: usize = 4096;

/// How long those that are cut off may take to say so, to their client and to the log.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What all workers have in common.
pub(crate) struct Shared {
    pub(crate) decide: Arc<dyn Decide>,
    pub(crate) observe: Vec<Arc<dyn Observe>>,
    pub(crate) settings: Arc<Settings>,
    /// What the cookies of sticky sessions are signed with.
    pub(crate) sticky_key: StickyKey,
    pub(crate) doors: Arc<Doors>,
    pub(crate) seldom: Said,
    /// There where an address speaks TLS.
    pub(crate) tls: Option<Tls>,
}

/// What clients can cause to be said, each seldom.
#[derive(Debug)]
pub(crate) struct Said {
    no_room: Seldom,
    no_descriptor: Seldom,
    /// Peers on a port with the PROXY protocol that are not trusted.
    pub(super) strangers: Seldom,
    /// Trusted ones that send no header.
    pub(super) without_header: Seldom,
    /// TLS clients that ask for a name which has no certificate.
    pub(super) unrecognized: Seldom,
}

/// A socket to accept from.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) socket: std::net::TcpListener,
    pub(crate) speaks: Speaks,
}

/// What every connection to an address begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speaks {
    /// A PROXY header, before anything else.
    pub(crate) proxy_protocol: bool,
    /// A TLS handshake, before HTTP.
    pub(crate) tls: bool,
}

/// Where a stop has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Running,
    /// Nothing new is taken; what runs is finished.
    Draining,
    /// Everything ends.
    Over,
}

/// One worker.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) idle: Idle,
    /// Connections to backends that speak HTTP/2.
    pub(crate) lines: Lines,
    /// Memory that nobody uses now.
    pub(crate) spare: Spare,
    /// Those who log and count.
    pub(crate) told: Told,
    sweep: Rc<Sweep>,
    /// Backends that no table knows, by what decisions call them.
    named: RefCell<HashMap<(Address, Link), Arc<Backend>>>,
}

/// A client that is in; goes out when dropped.
pub(crate) struct Guest(Arc<Shared>);

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>) -> Rc<Self> {
        let idle = Idle::new(shared.settings.limits.backend_idle, shared.settings.timeouts.backend_idle);
        Rc::new(Self {
            idle,
            lines: Lines::new(Arc::clone(&shared.settings)),
            spare: Spare::default(),
            told: Told::of(&shared.observe),
            sweep: Sweep::new(),
            named: RefCell::default(),
            shared,
        })
    }

    /// Accepts and serves until the stop is over. Gives the number of connections that it cut off.
    pub(crate) async fn run(
        self: Rc<Self>,
        listeners: Vec<Listening>,
        mut stage: watch::Receiver<Stage>,
    ) -> io::Result<usize> {
        let mut accepting: Vec<JoinHandle<()>> = Vec::new();
        for Listening { socket, speaks } in listeners {
            let listener = TcpListener::from_std(socket)?;
            accepting.push(spawn_local(Rc::clone(&self).accept_all(listener, speaks, stage.clone())));
        }
        let sweeping = spawn_local(Rc::clone(&self).sweep_for_ever());
        // A sender that is gone is a stop too.
        let _ = stage.wait_for(|stage| *stage != Stage::Running).await;
        for task in accepting {
            let _ = task.await;
        }
        self.sweep.drain();
        self.idle.clear();
        self.lines.clear();
        tokio::select! {
            () = self.sweep.none() => {}
            _ = stage.wait_for(|stage| *stage == Stage::Over) => {}
        }
        sweeping.abort();
        let cut = self.sweep.len();
        self.sweep.end();
        let _ = timeout(LAST_WORDS, self.sweep.none()).await;
        self.told.flush();
        Ok(cut)
    }

    async fn accept_all(self: Rc<Self>, listener: TcpListener, speaks: Speaks, mut stage: watch::Receiver<Stage>) {
        loop {
            let accepted = tokio::select! {
                accepted = self.accept(&listener) => accepted,
                _ = stage.wait_for(|stage| *stage != Stage::Running) => break,
            };
            match accepted {
                Ok((stream, peer)) => self.welcome(stream, peer, speaks),
                // The client gave up while it waited.
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    // Most likely out of descriptors: they come back as connections end.
                    if self.shared.seldom.no_room.may_say() {
                        tracing::warn!(%error, "can't accept connections, trying again");
                    }
                    self.make_room().await;
                }
            }
        }
        // Closing a listening socket resets whoever has been connected but not accepted.
        let Ok(listener) = listener.into_std() else { return };
        for _ in 0..BACKLOG {
            let Ok((stream, peer)) = listener.accept() else { break };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if let Ok(stream) = TcpStream::from_std(stream) {
                self.welcome(stream, peer, speaks);
            }
        }
    }

    async fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        while self.shared.doors.are_full() {
            self.shared.say_full();
            self.make_room().await;
        }
        listener.accept().await
    }

    /// Lets the connection go that has waited longest for a request, so that clients who say nothing can't keep out those
    /// who do. Where none waits, takes a breath.
    async fn make_room(&self) {
        match self.sweep.evict_longest_idle() {
            true => yield_now().await,
            false => sleep(BREATH).await,
        }
    }

    fn welcome(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, speaks: Speaks) {
        let guest = Guest::enter(&self.shared);
        let ticket = self.sweep.enter();
        let worker = Rc::clone(self);
        if speaks.proxy_protocol || speaks.tls {
            // Boxed for as long as it runs: what a beginning needs, a connection need not hold.
            let beginning = Box::pin(begin(stream, peer, speaks, worker, ticket));
            spawn_local(async move {
                match beginning.await {
                    Some(Begun::Http(mut connection, Negotiated::Http1)) => {
                        if let Some(early) = connection.serve().await {
                            Box::pin(serve_http2(connection, Some(early))).await;
                        }
                    }
                    Some(Begun::Http(connection, Negotiated::Http2)) => {
                        Box::pin(serve_http2(connection, None)).await;
                    }
                    Some(Begun::Passed(carrying)) => carrying.await,
                    None => {}
                }
                drop(guest);
            });
            return;
        }
        // Made here: what a task captures, it holds for as long as it lives.
        let mut connection = Connection::new(Stream::Tcp(stream), Arrival::directly(peer), worker, ticket);
        spawn_local(async move {
            if let Some(early) = connection.serve().await {
                Box::pin(serve_http2(connection, Some(early))).await;
            }
            drop(guest);
        });
    }

    async fn sweep_for_ever(self: Rc<Self>) {
        let mut idle = 0;
        loop {
            if self.idle.is_empty() && self.lines.is_empty() {
                self.sweep.any().await;
            }
            sleep(TICK).await;
            self.sweep.tick();
            self.idle.sweep(self.sweep.now());
            self.lines.sweep();
            let before = std::mem::replace(&mut idle, self.idle.len());
            self.shared.doors.recount_idle(before, idle);
            self.told.flush();
        }
    }

    /// A place in the sweep.
    pub(crate) fn ticket(&self) -> Ticket {
        self.sweep.enter()
    }

    /// The backend at an address that a decision has named: the same one as last time, with its idle connections.
    pub(crate) fn backend(&self, address: Address, link: Link) -> Arc<Backend> {
        let mut named = self.named.borrow_mut();
        let key = (address, link);
        if let Some(backend) = named.get(&key) {
            return Arc::clone(backend);
        }
        if named.len() >= MOST_NAMED {
            named.clear();
        }
        let backend = Backend::linked(key.0.clone(), key.1.clone());
        named.insert(key, Arc::clone(&backend));
        backend
    }

    /// The time by which backends are put aside: the sweep's.
    pub(crate) fn now(&self) -> u64 {
        self.sweep.now()
    }

    /// Connects to a backend, `timeouts.connect` at most, and holds a failure against it. Where this process has no
    /// descriptor left, that is no failure of the backend's: it waits for one to come back.
    pub(crate) async fn connect(
        &self,
        backend: &Backend,
        ticket: &Ticket,
        connect: impl AsyncFn() -> Result<Stream, Refusal>,
    ) -> Result<Stream, Refusal> {
        let is_short = Cell::new(false);
        // Boxed, since it is rare and large, and every request would hold room for it.
        let connecting = Box::pin(async {
            loop {
                match connect().await {
                    Err(Refusal::NoDescriptor) => {
                        is_short.set(true);
                        if self.shared.seldom.no_descriptor.may_say() {
                            tracing::warn!(%backend, "no descriptor is left to connect to a backend by: waiting for one");
                        }
                        self.make_room().await;
                    }
                    connected => return connected,
                }
            }
        });
        let refusal = match ticket.within(self.shared.settings.timeouts.connect, connecting).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refusal)) => refusal,
            Err(Elapsed) if is_short.get() => return Err(Refusal::NoDescriptor),
            Err(Elapsed) => Refusal::ConnectTimeout,
        };
        self.failed(backend, refusal.row().code);
        Err(refusal)
    }

    /// What people's clock said at that moment of a request.
    pub(crate) fn wall(&self, at: Instant) -> SystemTime {
        self.sweep.wall(at)
    }

    /// A backend has failed a request.
    pub(crate) fn failed(&self, backend: &Backend, why: &'static str) {
        backend.tally().count(Ending::Failed);
        if let Some(Aside { length }) = backend.standing().failed(self.sweep.now()) {
            backend.standing().because(why);
            let milliseconds = length;
            tracing::warn!(%backend, why, milliseconds, "a backend keeps failing: others are tried before it");
        }
    }

    /// A backend has served one.
    pub(crate) fn served(&self, backend: &Backend) {
        if let Some(Back { after }) = backend.standing().served(self.sweep.now()) {
            let milliseconds = after;
            tracing::info!(%backend, milliseconds, "a backend that kept failing serves again");
        }
    }

    /// Keeps a connection to a backend for the next request.
    pub(crate) fn keep(&self, backend: &Arc<Backend>, stream: Stream, generation: u64, kept_for: Option<u32>) {
        self.idle.put(backend, stream, generation, kept_for, self.sweep.now());
    }
}

impl Shared {
    fn say_full(&self) {
        if self.seldom.no_room.may_say() {
            let limit = self.doors.most();
            tracing::warn!(limit, "as many clients as allowed (limits.connections): idle connections make room");
        }
    }
}

impl Said {
    pub(crate) fn new() -> Self {
        Self {
            no_room: Seldom::new(),
            no_descriptor: Seldom::new(),
            strangers: Seldom::new(),
            without_header: Seldom::new(),
            unrecognized: Seldom::new(),
        }
    }
}

impl Guest {
    pub(crate) fn enter_if_there_is_room(shared: &Arc<Shared>) -> Option<Self> {
        if !shared.doors.are_full() {
            return Some(Self::enter(shared));
        }
        shared.say_full();
        None
    }

    fn enter(shared: &Arc<Shared>) -> Self {
        shared.doors.enter();
        Self(Arc::clone(shared))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.doors.leave();
    }
}

/// Errors of accept(2) that concern the one connection and not the socket.
fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
