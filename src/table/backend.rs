//! One address that requests are forwarded to, with what is counted for it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::link::Link;
use super::named::Named;
use super::patience::Patience;
use super::queue::Listeners;
use super::standing::Standing;
use super::tally::Tally;
use crate::net::seldom::Seldom;

/// Where a backend is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A port on this machine, whichever of 127.0.0.1 and ::1 answers.
    Port(u16),
    /// An IP address and a port.
    Socket(SocketAddr),
    /// A name, and a port. It is looked up again and again, where somebody does ([`ops::names`](crate::ops::names)), else
    /// whenever it is connected to.
    Name(Box<str>, u16),
    /// A unix socket's path.
    Unix(PathBuf),
}

/// A backend. Lives as long as a table or a connection names it: a table that replaces another
/// takes over the backends whose address is unchanged, and with them their counts and idle connections.
#[derive(Debug)]
pub struct Backend {
    id: u64,
    /// As its target is written in the routes.
    name: Box<str>,
    address: Address,
    link: Link,
    in_flight: AtomicUsize,
    /// Told of each claim that is given back.
    listeners: Listeners,
    requests: AtomicU64,
    /// For [`Address::Port`]: ::1 answered last, so it is tried first.
    prefers_v6: AtomicBool,
    /// For [`Address::Name`].
    named: Option<Box<Named>>,
    standing: Standing,
    tally: Tally,
    patience: Patience,
    /// When something was last said about it that requests without end can cause.
    trouble: Seldom,
}

impl Backend {
    /// A backend that nothing is known of, for plain HTTP/1.
    pub fn new(address: Address) -> Arc<Self> {
        Self::linked(address, Link::default())
    }

    /// A backend that nothing is known of.
    pub fn linked(address: Address, link: Link) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let named = matches!(address, Address::Name(..)).then(|| Box::new(Named::new()));
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name: name(&address, &link),
            address,
            link,
            in_flight: AtomicUsize::new(0),
            listeners: Listeners::default(),
            requests: AtomicU64::new(0),
            prefers_v6: AtomicBool::new(false),
            named,
            standing: Standing::default(),
            tally: Tally::default(),
            patience: Patience::default(),
            trouble: Seldom::new(),
        })
    }

    /// Its own number in this process: what idle connections are kept by.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its target, as it is written in the routes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How it is spoken to.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Requests and tunnels that are with it now, over all workers.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether so many are with it. In one order with claims that are given back, for those who listen first and look then.
    pub(super) fn has(&self, most: usize) -> bool {
        self.in_flight.load(Ordering::SeqCst) >= most
    }

    /// Requests that it has been given since it is known.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts a request as with this backend until the claim is dropped.
    pub fn claim(self: &Arc<Self>) -> Claim {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        Claim(Arc::clone(self))
    }

    /// The same, where fewer than so many are with it.
    pub(super) fn claim_within(self: &Arc<Self>, most: usize) -> Option<Claim> {
        let one_more = |count: usize| (count < most).then_some(count + 1);
        self.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).ok()?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        Some(Claim(Arc::clone(self)))
    }

    /// Who wants to hear when it has room.
    pub(super) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// How its requests have ended, tries that went on elsewhere included.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How its requests have gone.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// How long it keeps idle connections.
    pub(crate) fn patience(&self) -> &Patience {
        &self.patience
    }

    pub(crate) fn trouble(&self) -> &Seldom {
        &self.trouble
    }

    /// What is known of its name, where it has one.
    pub(crate) fn named(&self) -> Option<&Named> {
        self.named.as_deref()
    }

    /// All that its name is known to be; `None` where it has no name, or nobody looks it up.
    pub fn addresses(&self) -> Option<Vec<IpAddr>> {
        self.named.as_ref().and_then(|named| named.addresses())
    }

    /// Which of its addresses, one after the other, it has now: a connection that was made to it before may lead elsewhere.
    pub(crate) fn generation(&self) -> u64 {
        self.named.as_ref().map_or(0, |named| named.generation())
    }

    /// Whether a connection to there leads to it: not where its name has moved since.
    pub(crate) fn is_at(&self, peer: Option<SocketAddr>) -> bool {
        self.named.as_ref().is_none_or(|named| peer.is_some_and(|peer| named.has(peer.ip())))
    }

    pub(crate) fn prefers_v6(&self) -> bool {
        self.prefers_v6.load(Ordering::Relaxed)
    }

    pub(crate) fn prefer_v6(&self, yes: bool) {
        self.prefers_v6.store(yes, Ordering::Relaxed);
    }
}

/// A request that is with a backend; undoes its count when dropped.
#[derive(Debug)]
pub struct Claim(Arc<Backend>);

impl Claim {
    /// The backend that it is with.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.0
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // In one order with those who listen first and look afterwards: either they see the room, or it sees them.
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.0.listeners.tell();
    }
}

impl fmt::Display for Backend {
    /// As its target is written in the routes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A target as it is written in the routes.
fn name(address: &Address, link: &Link) -> Box<str> {
    let scheme = match (&link.tls, link.http2, address) {
        (None, false, _) | (None, true, Address::Unix(_)) => return address.to_string().into(),
        (Some(_), ..) => "https",
        (None, true, _) => "h2c",
    };
    match address {
        Address::Port(port) => format!("{scheme}://localhost:{port}").into(),
        address => format!("{scheme}://{address}").into(),
    }
}

impl fmt::Display for Address {
    /// As a target is written in the routes: `8001`, `10.0.0.7:9000`, `unix:/run/app.sock`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "{port}"),
            Self::Socket(address) => write!(f, "{address}"),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
