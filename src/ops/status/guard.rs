//! Who may look. Without a token, whoever is on this machine; and since a page of some other site in a browser of this machine
//! must not, only by a name that is this machine's own (DNS rebinding). With one, whoever has it.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use subtle::ConstantTimeEq;

use crate::ops::server::percent_decoded;

/// Who decides.
#[derive(Debug)]
pub(super) struct Guard {
    token: Option<Box<str>>,
    /// What a browser that has shown the token once has from then on, until this process ends. It is not the token: cookies are
    /// sent to every port of a host.
    session: String,
    cookie: String,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    /// The token was right: it gets a cookie, and is sent to the address without the token.
    Enter {
        cookie: String,
    },
    /// It asks by a name that is not this machine's.
    Stranger,
    /// It has no token, or a wrong one.
    NoToken,
}

impl Guard {
    pub(super) fn new(address: SocketAddr, token: Option<Box<str>>) -> io::Result<Self> {
        let mut random = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let session = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // Several caroms of one host have cookies of their own.
        Ok(Self { token, session, cookie: format!("carom-status-{}", address.port()) })
    }

    pub(super) fn judge(&self, request: &Parts) -> Verdict {
        let Some(token) = &self.token else {
            let host = request.headers.get(header::HOST).and_then(|host| host.to_str().ok());
            let is_ours = host.is_some_and(is_this_machine) && request.uri.authority().is_none();
            return if is_ours { Verdict::Pass } else { Verdict::Stranger };
        };
        let is_token = |given: &str| bool::from(given.as_bytes().ct_eq(token.as_bytes()));
        let query = request.uri.query().unwrap_or_default();
        if let Some(given) = query.split('&').find_map(|pair| pair.strip_prefix("token=")) {
            if !is_token(&percent_decoded(given)) {
                return Verdict::NoToken;
            }
            let Self { cookie, session, .. } = self;
            return Verdict::Enter { cookie: format!("{cookie}={session}; Path=/; HttpOnly; SameSite=Strict") };
        }
        let bearer = request.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        if bearer.is_some_and(|(_, given)| is_token(given.trim())) || self.has_cookie(&request.headers) {
            return Verdict::Pass;
        }
        Verdict::NoToken
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let fields = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
        cookies.any(|(name, value)| name == self.cookie && bool::from(value.as_bytes().ct_eq(self.session.as_bytes())))
    }
}

/// Whether a `Host` is this machine's own: an address cannot be rebound.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
