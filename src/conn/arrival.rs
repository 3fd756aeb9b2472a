//! How a client has come to us: from where, and over what.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::http::host::Host;
use crate::http::refuse::Refusal;
use crate::net::proxy_protocol::Ends;
use crate::net::stream::Stream;
use crate::table::certs::Certificate;

/// What is known of a client from before its first request.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The client's address: the peer's, or what a trusted proxy in front has said by the PROXY protocol. It is the
    /// client's address everywhere: for backends, in the log, and when forwarding fields are asked for their trust.
    pub(crate) client: SocketAddr,
    /// The address that it connected to, where that is not this connection's own. Boxed: few have one, and every connection
    /// holds room for it.
    pub(crate) server: Option<Box<SocketAddr>>,
    /// Behind a pointer: every connection holds room for it.
    pub(super) over: Option<Arc<Over>>,
}

/// What a client's connection is made of, where it is not plain HTTP that is meant so.
#[derive(Debug)]
pub(crate) enum Over {
    /// Plain HTTP on a port that speaks TLS: nothing is served over it.
    Mistaken,
    Tls(Shown),
}

/// What a TLS client asked for, and what it was shown.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(super) certificate: Arc<Certificate>,
    /// The name that it asked for, in compared form.
    pub(super) name: Option<Box<str>>,
}

impl Arrival {
    /// Of a client that has connected to us itself. An IPv4 one that has come to an address of IPv6 is an IPv4 one: so people
    /// write it, and so its forwarding fields and its line of the log do.
    pub(crate) fn directly(peer: SocketAddr) -> Self {
        let client = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        Self { client, server: None, over: None }
    }

    /// What a backend is told of it that wants to know. `stream` is its connection to us.
    pub(super) fn ends(&self, stream: &Stream) -> Ends {
        let server = self.server.as_deref().copied().or_else(|| stream.local_address());
        Ends { client: self.client, server: server.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0))) }
    }

    /// Of one that came through a proxy.
    pub(super) fn proxied(ends: Ends) -> Self {
        Self { client: ends.client, server: Some(Box::new(ends.server)), over: None }
    }

    /// The same client, over this.
    pub(super) fn over(self, over: Over) -> Self {
        Self { over: Some(Arc::new(over)), ..self }
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.over.as_deref(), Some(Over::Tls(_)))
    }

    /// `http` or `https`.
    pub(super) fn scheme(&self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }

    /// Why a request for this host may not come this way, if it may not.
    pub(super) fn refusal(&self, host: Option<&Host>) -> Option<Refusal> {
        match (self.over.as_deref()?, host) {
            (Over::Mistaken, _) => Some(Refusal::PlainHttp),
            (Over::Tls(shown), Some(host)) if !shown.is_for(host) => Some(Refusal::Misdirected),
            (Over::Tls(_), _) => None,
        }
    }
}

impl Shown {
    /// Whether requests for this host may come over the connection (RFC 9110 section 7.4): those for the name that was
    /// asked for, and those for others that the same certificate is for. An address can't be asked for (RFC 6066 section 3).
    fn is_for(&self, host: &Host) -> bool {
        match &self.name {
            Some(name) if **name == *host.name() => true,
            None if host.is_address() => true,
            _ => self.certificate.covers(host.name()),
        }
    }
}
