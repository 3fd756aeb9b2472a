//! The proxy: bound addresses, a thread for each worker, and their end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime::{Builder as RuntimeBuilder, LocalOptions};
use tokio::sync::{mpsc, watch};

use crate::bounce::{Decide, Routes};
use crate::certify::Certify;
use crate::config::file::listen_address;
use crate::conn::tls::Tls;
use crate::conn::worker::{Listening, Said, Shared, Speaks, Stage, Worker};
pub use crate::net::doors::Doors;
use crate::net::{listen, system};
use crate::record::Observe;
use crate::settings::{Settings, StickyKey};
use crate::table::Table;

/// What a proxy is made of.
#[derive(Default)]
pub struct Builder {
    addresses: Vec<Listen>,
    workers: usize,
    settings: Settings,
    decide: Option<Arc<dyn Decide>>,
    certify: Option<Arc<dyn Certify>>,
    observe: Vec<Arc<dyn Observe>>,
}

/// A proxy whose addresses are bound. Nothing is accepted before it runs.
pub struct Proxy {
    shared: Arc<Shared>,
    /// For each worker, one socket for each address.
    listeners: Vec<Vec<Listening>>,
    addresses: Vec<SocketAddr>,
}

/// An address to listen on: a [`SocketAddr`], or text such as `"127.0.0.1:8000"`, `"[::]:80"`, `":8080"`, `"8080"`.
#[derive(Clone, Debug)]
pub struct Listen {
    address: Result<SocketAddr, String>,
    speaks: Speaks,
}

impl Listen {
    /// Every connection to it begins with a PROXY header (version 1 or 2), which says who the client is. Only peers in
    /// [`Forwarding::trust`](crate::settings::Forwarding::trust) are served there.
    #[must_use]
    pub fn proxy_protocol(mut self) -> Self {
        self.speaks.proxy_protocol = true;
        self
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self { address: Ok(address), speaks: Speaks { proxy_protocol: false, tls: false } }
    }
}

impl From<&str> for Listen {
    fn from(text: &str) -> Self {
        let address = listen_address(text).map_err(|help| format!("{text:?} is no address to listen on: {help}"));
        Self { address, speaks: Speaks { proxy_protocol: false, tls: false } }
    }
}

/// An address that could not be bound.
#[derive(Debug)]
pub struct BindError {
    /// Which one.
    pub address: SocketAddr,
    /// Why not.
    pub source: io::Error,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy when the drain deadline passed, and were cut off; of HTTP/2, each request as well.
    pub cut: usize,
}

impl Builder {
    /// Adds an address to listen on. Port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: impl Into<Listen>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Adds an address that speaks TLS. Needs [`Builder::certify`].
    #[must_use]
    pub fn listen_tls(mut self, address: impl Into<Listen>) -> Self {
        let mut listen = address.into();
        listen.speaks.tls = true;
        self.addresses.push(listen);
        self
    }

    /// Who says which certificate a client is shown: [`Certificates`](crate::table::certs::Certificates), or the
    /// [`Routes`] that have some in their table.
    #[must_use]
    pub fn certify(mut self, certify: impl Certify) -> Self {
        self.certify = Some(Arc::new(certify));
        self
    }

    /// How many workers, a thread each. Default: one for each core.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Times and limits.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Who decides where requests go. Without it, every one is answered with `404`.
    #[must_use]
    pub fn decide(mut self, decide: impl Decide) -> Self {
        self.decide = Some(Arc::new(decide));
        self
    }

    /// Who is told of every request; there may be several.
    #[must_use]
    pub fn observe(mut self, observe: impl Observe) -> Self {
        self.observe.push(Arc::new(observe));
        self
    }

    /// Binds every address.
    ///
    /// # Errors
    /// The first address that can't be bound, or that speaks TLS where nobody certifies. Then none is.
    pub async fn bind(self) -> Result<Proxy, BindError> {
        let workers = match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        };
        let mut listeners: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let (mut addresses, mut tls_ports) = (Vec::new(), Vec::new());
        for Listen { address, speaks } in self.addresses {
            let impossible =
                |address, why: String| BindError { address, source: io::Error::new(io::ErrorKind::InvalidInput, why) };
            let address = address.map_err(|why| impossible(SocketAddr::from(([0, 0, 0, 0], 0)), why))?;
            if speaks.tls && self.certify.is_none() {
                return Err(impossible(address, format!("{address} speaks TLS, and nothing certifies")));
            }
            if speaks.proxy_protocol && self.settings.forwarding.trust.is_empty() {
                return Err(impossible(address, format!("{address} has the PROXY protocol, and nobody is trusted")));
            }
            let sockets = listen::bind(address, workers).map_err(|source| BindError { address, source })?;
            let bound = sockets.first().map_or(Ok(address), std::net::TcpListener::local_addr);
            let bound = bound.map_err(|source| BindError { address, source })?;
            addresses.push(bound);
            if speaks.tls {
                tls_ports.push(bound.port());
            }
            for (worker, socket) in listeners.iter_mut().zip(sockets) {
                worker.push(Listening { socket, speaks });
            }
        }
        let most = match self.settings.limits.connections {
            0 => room_for_connections(workers),
            most => most,
        };
        let certify = self.certify.filter(|_| !tls_ports.is_empty());
        let of_none = |source| BindError {
            address: addresses.first().copied().unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0))),
            source,
        };
        let tls = certify.map(|certify| Tls::new(certify, &tls_ports)).transpose().map_err(of_none)?;
        let sticky_key = self.settings.sticky_key.clone().map_or_else(StickyKey::random, Ok).map_err(of_none)?;
        let shared = Arc::new(Shared {
            decide: self.decide.unwrap_or_else(|| Arc::new(Routes::new(Table::new()))),
            observe: self.observe,
            settings: Arc::new(self.settings),
            sticky_key,
            doors: Arc::new(Doors::new(most)),
            seldom: Said::new(),
            tls,
        });
        Ok(Proxy { shared, listeners, addresses })
    }
}

impl Proxy {
    /// Begins one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The addresses that it is bound to, in the order they were given, with their real ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How many clients are connected, for as long as somebody wants to know.
    pub fn doors(&self) -> Arc<Doors> {
        Arc::clone(&self.shared.doors)
    }

    /// Serves until `shutdown` is ready, then takes nothing new, answers what is in flight and ends: at the latest when
    /// the drain time-out has passed. Dropping the future ends everything at once.
    ///
    /// # Errors
    /// A worker's thread or runtime that can't be made.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> io::Result<Drained> {
        let (stage, watched) = watch::channel(Stage::Running);
        let (goodbyes, mut gone) = mpsc::unbounded_channel();
        let mut workers = Vec::new();
        for (number, listeners) in self.listeners.into_iter().enumerate() {
            let goodbye = Goodbye(goodbyes.clone());
            workers.push(spawn(number, Arc::clone(&self.shared), listeners, watched.clone(), goodbye)?);
        }
        drop(goodbyes);
        tokio::select! {
            () = shutdown => {}
            // A worker that could not begin: nobody would answer on its sockets.
            _ = gone.recv() => {}
        }
        // The workers may all have ended by themselves: then nobody listens.
        let _ = stage.send(Stage::Draining);
        let deadline = tokio::time::sleep(self.shared.settings.timeouts.drain);
        tokio::select! {
            () = async { while gone.recv().await.is_some() {} } => {}
            () = deadline => {}
        }
        let _ = stage.send(Stage::Over);
        let mut cut = 0;
        for worker in workers {
            cut += worker.join().map_err(|_| io::Error::other("a worker panicked"))??;
        }
        Ok(Drained { cut })
    }
}

/// Descriptors that are needed whatever the load, and for each worker: standard streams, listeners, logs, files.
const RESERVED: (u64, u64) = (32, 4);

/// How many clients the descriptor limit has room for, with a backend each.
fn room_for_connections(workers: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let reserved = RESERVED.0 + RESERVED.1.saturating_mul(workers as u64);
    usize::try_from(limit.saturating_sub(reserved) / 2).unwrap_or(usize::MAX).max(4)
}

/// Tells that a worker has ended, however it did.
struct Goodbye(mpsc::UnboundedSender<()>);

impl Drop for Goodbye {
    fn drop(&mut self) {
        // Nobody waits for it once the proxy is over.
        let _ = self.0.send(());
    }
}

fn spawn(
    number: usize,
    shared: Arc<Shared>,
    listeners: Vec<Listening>,
    stage: watch::Receiver<Stage>,
    goodbye: Goodbye,
) -> io::Result<JoinHandle<io::Result<usize>>> {
    std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        let _goodbye = goodbye;
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(Worker::new(shared).run(listeners, stage))
    })
}

impl BindError {
    /// What to do about it.
    pub fn help(&self) -> String {
        let port = self.address.port();
        match self.source.kind() {
            io::ErrorKind::PermissionDenied => format!(
                "ports below 1024 need a privilege: `sudo setcap cap_net_bind_service=+ep $(command -v carom)`,\n\
                 or AmbientCapabilities=CAP_NET_BIND_SERVICE in its systemd unit,\n\
                 or for everybody `sudo sysctl net.ipv4.ip_unprivileged_port_start={port}`"
            ),
            io::ErrorKind::AddrInUse => match system::holder_of(port) {
                Some((id, name)) => {
                    format!("process {id} ({name}) listens on port {port}: stop it, or name another port")
                }
                None => {
                    format!("another process listens on port {port}; `sudo ss -ltnp 'sport = :{port}'` shows which")
                }
            },
            io::ErrorKind::AddrNotAvailable => {
                "no interface of this machine has that address; `ip address` lists them".into()
            }
            _ if self.address.is_ipv6() => {
                "does this machine have IPv6? `0.0.0.0` instead of `[::]` does without".into()
            }
            _ => "is it an address of this machine?".into(),
        }
    }
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.source.kind() {
            io::ErrorKind::InvalidInput => write!(f, "can't listen: {}", self.source),
            _ => write!(f, "can't listen on {}: {}", self.address, self.source),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("addresses", &self.addresses).field("workers", &self.listeners.len()).finish()
    }
}
