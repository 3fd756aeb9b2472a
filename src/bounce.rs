//! The decision: where a request bounces.
//!
//! [`Decide`] is the seam between carrying requests and knowing where they go. A published routing table ([`Routes`]) is
//! one implementation of it, an async closure the other: everything the table can do, a closure can do.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

use crate::http::head::Head;
use crate::http::refuse::Refusal;
use crate::http::rewrite::Changes;
use crate::net::stream::{Duplex, Stream};
use crate::table::backend::Address;
use crate::table::link::{Link, ProxyVersion};
use crate::table::secure::Secure;
use crate::table::target::{self, Scheme, Written};
use crate::table::{Answer, Redirect, Route, Table};

/// Says where each request goes. Called once a request, on the worker that carries it.
pub trait Decide: Send + Sync + 'static {
    /// Decides about one request, by its head.
    fn decide<'a>(&'a self, head: &'a Head<'a>, bounce: Bounce) -> Decision<'a>;
}

/// A decision, or one that takes its time.
pub enum Decision<'a> {
    /// Decided.
    Now(Bounce),
    /// To be awaited. Other requests go on meanwhile; how long it may take is the decider's own business.
    Later(Pin<Box<dyn Future<Output = Bounce> + 'a>>),
}

/// Where a request bounces, and what is changed on the way.
///
/// Every method gives the bounce back, so that they chain; the last word about where it goes counts. A bounce that
/// says nothing is a `404`. What can't be done (a target that is none, a field name that is no token, a body's length
/// by hand) answers `500` with the reason `bad-decision`, and nothing reaches a backend.
///
/// ```
/// use carom::{Bounce, Head};
///
/// async fn decide(head: &Head<'_>, bounce: Bounce) -> Bounce {
///     match head.host() {
///         Some(host) if host == "beep.example.com" => bounce.to(8001),
///         Some(host) if host == "boop.example.com" => bounce.to("127.0.0.1:8002").header("x-from", "carom"),
///         _ => bounce.respond(404, "no such host"),
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Bounce {
    pub(crate) to: Destination,
    pub(crate) changes: Changes,
}

/// What happens to a request.
#[derive(Debug)]
pub(crate) enum Destination {
    Route(Arc<Route>),
    Backend(Address, Link),
    Stream(Stream),
    Redirect(Redirect),
    Answer(Answer),
    Refuse(Refusal),
}

impl Bounce {
    pub(crate) fn new() -> Self {
        Self { to: Destination::Refuse(Refusal::NoRoute), changes: Changes::default() }
    }

    /// To a backend: a port of this machine (`8001`), an address (`"10.0.0.7:9000"`, a [`std::net::SocketAddr`]), a name
    /// with a port, a unix socket (`"unix:/run/app.sock"`), or a URL; an `https://` one has to have a certificate for its
    /// host that the system trusts. The path and query of a URL that has a path other
    /// than `/` take the place of the request's.
    #[must_use]
    pub fn to(mut self, target: impl Into<Target>) -> Self {
        match target.into().0 {
            Ok(Place { address, link, path }) => {
                self.to = Destination::Backend(address, link);
                match path {
                    Some(path) => self.path(path),
                    None => self,
                }
            }
            Err(why) => self.refuse(Refusal::BadDecision(why)),
        }
    }

    /// To a connection that the caller has made. It carries this one request, or the tunnel that it becomes, and is
    /// then closed: nobody else would know what it is connected to.
    #[must_use]
    pub fn stream(mut self, stream: impl Duplex) -> Self {
        self.to = Destination::Stream(Stream::Other(Box::new(stream)));
        self
    }

    /// To wherever a route of a table says.
    #[must_use]
    pub fn route(mut self, route: Arc<Route>) -> Self {
        self.to = Destination::Route(route);
        self
    }

    /// Sends the client elsewhere, with one of 301, 302, 303, 307 and 308. Without a path in `to` the request's path and
    /// query are appended.
    #[must_use]
    pub fn redirect(mut self, status: u16, to: impl Into<String>) -> Self {
        let to = to.into();
        if !matches!(status, 301 | 302 | 303 | 307 | 308) || !is_field_value(to.as_bytes()) {
            return self.refuse(Refusal::BadDecision("a redirect needs 301, 302, 303, 307 or 308, and an address"));
        }
        self.to = Destination::Redirect(Redirect { status, to: to.into() });
        self
    }

    /// Answers the client, with text; a status is 200 to 599.
    #[must_use]
    pub fn respond(mut self, status: u16, body: impl Into<Vec<u8>>) -> Self {
        if !(200..600).contains(&status) {
            return self.refuse(Refusal::BadDecision("an answer's status is 200 to 599"));
        }
        let content_type = "text/plain; charset=utf-8".into();
        self.to = Destination::Answer(Answer { status, content_type, body: body.into().into() });
        self
    }

    /// Answers with a failure.
    #[must_use]
    pub fn refuse(mut self, refusal: Refusal) -> Self {
        self.to = Destination::Refuse(refusal);
        self
    }

    /// Sets a field of the request: those of this name that the client sent make way for it. Not the fields that frame
    /// a message or belong to one hop.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        match self.changes.set_field(name, value.as_ref()) {
            Ok(()) => self,
            Err(why) => self.refuse(Refusal::BadDecision(why)),
        }
    }

    /// Sets the method. Not to or from HEAD, whose answers have no body, nor CONNECT.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        match self.changes.set_method(method) {
            Ok(()) => self,
            Err(why) => self.refuse(Refusal::BadDecision(why)),
        }
    }

    /// Sets path and query, in origin form (RFC 9112 section 3.2.1): `/path?query`.
    #[must_use]
    pub fn path(mut self, target: impl AsRef<[u8]>) -> Self {
        match self.changes.set_target(target.as_ref()) {
            Ok(()) => self,
            Err(why) => self.refuse(Refusal::BadDecision(why)),
        }
    }
}

/// A backend as [`Bounce::to`] takes it: made of a port, an address, or text.
#[derive(Debug)]
pub struct Target(Result<Place, &'static str>);

/// Where a target is, how it is spoken to, and what takes the place of the request's path and query.
#[derive(Debug)]
struct Place {
    address: Address,
    link: Link,
    path: Option<String>,
}

impl Target {
    /// Tells the backend who the client is, by a PROXY header in front of everything else. Its connections are then
    /// not shared between clients.
    #[must_use]
    pub fn send_proxy(mut self, version: ProxyVersion) -> Self {
        match &mut self.0 {
            Ok(place) if place.link.http2 => Self(Err("a PROXY header speaks of one client, and HTTP/2 carries many")),
            Ok(place) => {
                place.link.send_proxy = Some(version);
                self
            }
            Err(_) => self,
        }
    }
}

impl Target {
    /// Speaks HTTP/2 with the backend, as gRPC wants it: one connection carries many requests.
    #[must_use]
    pub fn http2(mut self) -> Self {
        if let Ok(place) = &mut self.0 {
            place.link.http2 = true;
            if let Some(tls) = &mut place.link.tls {
                *tls = Arc::new(Secure::by_system_roots(tls.server_name(), true));
            }
        }
        self
    }
}

impl From<u16> for Target {
    fn from(port: u16) -> Self {
        match port {
            0 => Self(Err("a backend's port is 1 to 65535")),
            port => Address::Port(port).into(),
        }
    }
}

impl From<std::net::SocketAddr> for Target {
    fn from(address: std::net::SocketAddr) -> Self {
        Address::Socket(address).into()
    }
}

impl From<Address> for Target {
    fn from(address: Address) -> Self {
        Self(Ok(Place { address, link: Link::default(), path: None }))
    }
}

impl From<&str> for Target {
    fn from(text: &str) -> Self {
        // Only a URL has a path behind its address.
        let address_ends = text.find("://").and_then(|at| text[at + 3..].find(['/', '?']).map(|end| at + 3 + end));
        let (address, path) = text.split_at(address_ends.unwrap_or(text.len()));
        let path = match path {
            "" | "/" => None,
            query if query.starts_with('?') => Some(format!("/{query}")),
            path => Some(path.to_owned()),
        };
        match target::parse(address) {
            Ok(Written { address, scheme }) => {
                let http2 = scheme == Scheme::H2c;
                let tls = match scheme {
                    Scheme::Http | Scheme::H2c => None,
                    Scheme::Https(name) => Some(Arc::new(Secure::by_system_roots(&name, false))),
                };
                Self(Ok(Place { address, link: Link { tls, http2, ..Link::default() }, path }))
            }
            Err(bad) => {
                tracing::error!(target = text, why = bad.what, "a decision names no target");
                Self(Err("a target is a port, host:port, unix:/path or an http://, https:// or h2c:// URL"))
            }
        }
    }
}

impl From<String> for Target {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

fn is_field_value(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// An async closure, or one that gives a future.
impl<F> Decide for F
where
    F: for<'h, 'b> AsyncFn(&'h Head<'b>, Bounce) -> Bounce + Send + Sync + 'static,
{
    fn decide<'a>(&'a self, head: &'a Head<'a>, bounce: Bounce) -> Decision<'a> {
        Decision::Later(Box::pin(async move { self(head, bounce).await }))
    }
}

/// The published routing table. Publishing another one takes effect at every connection's next request.
///
/// ```
/// use carom::{Proxy, Routes, table::Table};
///
/// let routes = Routes::new(Table::new());
/// let builder = Proxy::builder().decide(routes.clone()); // clones share what is published
/// let last = routes.publish(Table::new());
/// assert!(last.routes().is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Routes(Arc<Published>);

#[derive(Debug)]
struct Published {
    table: ArcSwap<Table>,
    /// Told of each new one.
    changes: watch::Sender<()>,
    /// Somebody looks up the names in it.
    names_are_asked: AtomicBool,
}

impl Routes {
    /// Publishes a first table.
    pub fn new(table: Table) -> Self {
        Self(Arc::new(Published {
            table: ArcSwap::from_pointee(table),
            changes: watch::Sender::new(()),
            names_are_asked: AtomicBool::new(false),
        }))
    }

    /// Publishes a table in place of the last one, which is given back: dropping a large one takes a while.
    pub fn publish(&self, table: Table) -> Arc<Table> {
        // Before a request can come to one of them.
        if self.0.names_are_asked.load(Ordering::Acquire) {
            ask_names(&table);
        }
        let last = self.0.table.swap(Arc::new(table));
        self.0.changes.send_replace(());
        last
    }

    /// The same, for a moment: cheaper, since nobody else is told.
    pub(crate) fn load(&self) -> Guard<Arc<Table>> {
        self.0.table.load()
    }

    /// The table that requests are routed by now.
    pub fn current(&self) -> Arc<Table> {
        self.0.table.load_full()
    }

    /// Somebody looks up the names in this table and in those that follow: who connects to one waits for that.
    pub(crate) fn names_are_asked(&self) {
        self.0.names_are_asked.store(true, Ordering::Release);
        ask_names(&self.current());
    }

    /// For those who want to know when there is another one.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }
}

fn ask_names(table: &Table) {
    for named in table.named_backends().filter_map(|backend| backend.named()) {
        named.ask();
    }
}

impl Decide for Routes {
    fn decide<'a>(&'a self, head: &'a Head<'a>, bounce: Bounce) -> Decision<'a> {
        let table = self.0.table.load();
        Decision::Now(match table.find(head.host(), head.target()) {
            Some(route) => bounce.route(Arc::clone(route)),
            None => bounce,
        })
    }
}

impl fmt::Debug for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(bounce) => f.debug_tuple("Now").field(bounce).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_port_an_address_or_a_url() {
        for (text, address, path) in [
            ("8001", "8001", None),
            ("localhost:8001", "8001", None),
            ("127.0.0.1:8001", "127.0.0.1:8001", None),
            ("[::1]:8001", "[::1]:8001", None),
            ("app.internal:80", "app.internal:80", None),
            ("http://app.internal", "app.internal:80", None),
            ("HTTP://127.0.0.1:8001/", "127.0.0.1:8001", None),
            ("http://127.0.0.1:8001/x?y=/z", "127.0.0.1:8001", Some("/x?y=/z")),
            ("http://127.0.0.1:8001?y", "127.0.0.1:8001", Some("/?y")),
            ("http://[::1]:8001/x", "[::1]:8001", Some("/x")),
            ("https://app.internal/x", "app.internal:443", Some("/x")),
            ("h2c://app.internal:50051", "app.internal:50051", None),
            ("unix:/run/app.sock", "unix:/run/app.sock", None),
        ] {
            let got = Target::from(text).0.unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!((got.address.to_string().as_str(), got.path.as_deref()), (address, path), "{text}");
        }
        for text in ["", ":8001", "host", "host:0", "host:99999", "h2d://a.test", "127.0.0.1:8001/x", "unix:x", "a b:1"]
        {
            assert!(Target::from(text).0.is_err(), "{text}");
        }
        assert!(Target::from(0).0.is_err());
        assert!(Target::from("h2c://a.test").send_proxy(ProxyVersion::V1).0.is_err());
        assert!(Target::from("https://a.test").send_proxy(ProxyVersion::V1).0.is_ok());
    }
}
