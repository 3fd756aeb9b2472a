//! Which certificate a client is shown, or who else shows one: the seam between handshakes and knowing whose names are
//! whose, as [`Decide`](crate::Decide) is for requests.

use std::sync::Arc;

use crate::bounce::Routes;
use crate::http::host::Host;
use crate::table::Route;
use crate::table::certs::{Certificate, Certificates};

/// Says which certificate a client is shown. Called once a handshake, on the worker that carries it, so it may not wait.
pub trait Certify: Send + Sync + 'static {
    /// The certificate for the name that a client asks for, in compared form (`shop.example.com`); `None` where it asks
    /// for none. Without one the handshake fails with `unrecognized_name` (RFC 6066 section 3).
    fn certificate(&self, name: Option<&str>) -> Option<Arc<Certificate>>;

    /// The route with [`Action::PassThrough`](crate::table::Action::PassThrough) that a connection takes as it is, before
    /// any certificate is shown. Default: none does.
    fn pass_through(&self, _name: Option<&str>) -> Option<Arc<Route>> {
        None
    }
}

impl Certify for Certificates {
    fn certificate(&self, name: Option<&str>) -> Option<Arc<Certificate>> {
        self.find(name).cloned()
    }
}

/// Those of the published table.
impl Certify for Routes {
    fn certificate(&self, name: Option<&str>) -> Option<Arc<Certificate>> {
        self.load().certificates().find(name).cloned()
    }

    fn pass_through(&self, name: Option<&str>) -> Option<Arc<Route>> {
        let host = name.map(|name| Host::parse(name.as_bytes())).transpose().ok()?;
        self.load().pass_through(host.as_ref()).cloned()
    }
}
