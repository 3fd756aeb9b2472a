//! How a client has come to us.

use std::net::SocketAddr;

use crate::net::proxy_protocol::Ends;

/// What is known of a client from before its first request.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The client's address: the peer's, or what a trusted proxy in front has said by the PROXY protocol. It is the
    /// client's address everywhere: for backends, in the log, and when forwarding fields are asked for their trust.
    pub(crate) client: SocketAddr,
    /// The address that it connected to, where that is not this connection's own.
    #[allow(dead_code, reason = "until backends are told too")]
    pub(crate) server: Option<SocketAddr>,
}

impl Arrival {
    /// Of a client that has connected to us itself.
    pub(crate) fn directly(peer: SocketAddr) -> Self {
        Self { client: peer, server: None }
    }

    /// Of one that came through a proxy.
    pub(super) fn proxied(ends: Ends) -> Self {
        Self { client: ends.client, server: Some(ends.server) }
    }
}
