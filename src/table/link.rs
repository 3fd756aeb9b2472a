//! How a backend is spoken to, whatever its address.

use std::sync::Arc;

use super::secure::Secure;

pub use crate::net::proxy_protocol::Version as ProxyVersion;

/// What a connection to a backend is made of. The default is plain HTTP/1.
///
/// Part of what a backend is: two lines that name one address with different links name two backends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// Over TLS, and with whom. Default: in the clear.
    pub tls: Option<Arc<Secure>>,
    /// It begins with a PROXY header that says who the client is, and so carries one client only. Default: none.
    pub send_proxy: Option<ProxyVersion>,
    /// It speaks HTTP/2, and carries many requests at once. Default: no.
    pub http2: bool,
}
