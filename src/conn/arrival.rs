//! How a client has come to us.

use std::net::SocketAddr;

use crate::net::proxy_protocol::Ends;
use crate::net::stream::Stream;

/// What is known of a client from before its first request.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The client's address: the peer's, or what a trusted proxy in front has said by the PROXY protocol. It is the
    /// client's address everywhere: for backends, in the log, and when forwarding fields are asked for their trust.
    pub(crate) client: SocketAddr,
    /// The address that it connected to, where that is not this connection's own. Boxed: few have one, and every connection
    /// holds room for it.
    pub(crate) server: Option<Box<SocketAddr>>,
}

impl Arrival {
    /// Of a client that has connected to us itself.
    pub(crate) fn directly(peer: SocketAddr) -> Self {
        Self { client: peer, server: None }
    }

    /// What a backend is told of it that wants to know. `stream` is its connection to us.
    pub(super) fn ends(&self, stream: &Stream) -> Ends {
        let server = self.server.as_deref().copied().or_else(|| stream.local_address());
        Ends { client: self.client, server: server.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0))) }
    }

    /// Of one that came through a proxy.
    pub(super) fn proxied(ends: Ends) -> Self {
        Self { client: ends.client, server: Some(Box::new(ends.server)) }
    }
}
