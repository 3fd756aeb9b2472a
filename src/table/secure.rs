//! What is wanted of TLS to a backend. Does no IO: what stands in files has been read by whoever makes this, and
//! `upstream::tls` makes a configuration of it, once.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Whom a backend has to be, and who we are to it.
pub struct Secure {
    wanted: Wanted,
    config: OnceLock<Arc<ClientConfig>>,
}

/// What two of them are compared by.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The name or address that the backend's certificate has to be for.
    pub(crate) server_name: Box<str>,
    pub(crate) roots: Roots,
    /// The certificate that we show, where we show one.
    pub(crate) identity: Option<Identity>,
    /// The backend's certificate is not looked at.
    pub(crate) insecure: bool,
    /// HTTP/2 is to be spoken.
    pub(crate) http2: bool,
}

/// Who may have signed a backend's certificate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Whoever the system trusts.
    System,
    /// These, and nobody else. The path is as it is written, for people.
    File { path: Box<str>, certificates: Vec<CertificateDer<'static>> },
}

/// A certificate with its chain, and its key.
#[derive(PartialEq, Eq)]
pub(crate) struct Identity {
    /// As it is written, for people.
    pub(crate) path: Box<str>,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Secure {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self { wanted, config: OnceLock::new() }
    }

    /// A certificate for this name, signed by somebody whom the system trusts.
    pub(crate) fn by_system_roots(server_name: &str, http2: bool) -> Self {
        let server_name = server_name.into();
        Self::new(Wanted { server_name, roots: Roots::System, identity: None, insecure: false, http2 })
    }

    /// The name or address that the backend's certificate has to be for.
    pub fn server_name(&self) -> &str {
        &self.wanted.server_name
    }

    /// Whether the backend's certificate is not looked at: then whoever is on the way can read and change everything.
    pub fn is_insecure(&self) -> bool {
        self.wanted.insecure
    }

    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Where the configuration that it comes to is kept.
    pub(crate) fn config(&self) -> &OnceLock<Arc<ClientConfig>> {
        &self.config
    }
}

impl PartialEq for Secure {
    fn eq(&self, other: &Self) -> bool {
        self.wanted == other.wanted
    }
}

impl Eq for Secure {}

impl Hash for Secure {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // What differs elsewhere is found out by comparing.
        self.wanted.server_name.hash(state);
        self.wanted.insecure.hash(state);
    }
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wanted.fmt(f)
    }
}

impl fmt::Debug for Identity {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("path", &self.path).finish_non_exhaustive()
    }
}
