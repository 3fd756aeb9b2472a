//! How a site's requests may come: over TLS with which certificate, and what becomes of plain ones.

use std::path::PathBuf;
use std::sync::Arc;

/// What a route says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Https {
    /// What becomes of requests that come as plain HTTP. `None`: they are redirected as soon as the site has a
    /// certificate and an address speaks TLS, and served before that.
    pub plain: Option<Plain>,
    /// The value of `Strict-Transport-Security` (RFC 6797) in responses over TLS.
    pub hsts: Option<Arc<str>>,
    /// The files of a certificate of its own.
    pub own: Option<OwnFiles>,
}

/// What becomes of requests that come as plain HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// The client is sent to the same address with `https`.
    Redirected,
    /// They are served like those over TLS.
    Allowed,
    /// They are refused.
    Refused,
}

/// The files of a site's own certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFiles {
    /// The chain, its own certificate first.
    pub cert: PathBuf,
    /// The private key; may be the same file.
    pub key: PathBuf,
}
