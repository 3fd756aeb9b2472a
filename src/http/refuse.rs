//! The one table of failures: what carom answers when it, and not a backend, has to answer.
//!
//! A [`Refusal`] exists only before a byte of a response has gone to the client. Afterwards there is nothing left
//! to say: both sides are closed, and the reason is logged as a [`Cut`].

use std::fmt;

/// Whose fault a failure is. Decides the level at which it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client sent something wrong, or nothing in time.
    Client,
    /// The routes name no place for it, or the operator asked for it.
    Operator,
    /// A backend is away, slow or wrong.
    Backend,
}

/// Why a request is answered by carom itself. The texts say what exactly was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The head breaks RFC 9112, or could be read in two ways.
    MalformedHead(&'static str),
    /// The body's framing breaks RFC 9112 section 7.
    MalformedBody(&'static str),
    /// The host is missing, repeated or malformed (RFC 9112 section 3.2).
    BadHost(&'static str),
    /// It came as plain HTTP to a port that speaks TLS.
    PlainHttp,
    /// It came as plain HTTP, and its site is served over TLS only.
    HttpsOnly,
    /// No line of the routes covers the host, or the path under it.
    NoRoute,
    /// The head was not whole in time.
    HeadTimeout,
    /// The body went silent.
    BodyTimeout,
    /// The client asks for a protocol inside HTTP/2 that is none of ours (RFC 8441).
    UnknownProtocol,
    /// What a closure decided can't be done.
    BadDecision(&'static str),
    /// The body is longer than `limits.body`.
    BodyTooLarge,
    /// The target is longer than `limits.target`.
    TargetTooLong,
    /// It came over TLS, and the connection's certificate is not for its host.
    Misdirected,
    /// The head has more bytes or fields than `limits.head` and `limits.fields`.
    HeadTooLarge,
    /// Nothing listens at the backend's address.
    BackendRefused,
    /// The backend's address can't be reached.
    BackendUnreachable,
    /// The backend's name has no address.
    BackendName,
    /// No TLS connection to the backend: it is not whom it has to be, or it breaks off the handshake.
    BackendTls(&'static str),
    /// The backend closed before it had answered anything.
    BackendClosed,
    /// A kept connection ended as the request was sent on it, and the request may not be sent twice.
    BackendClosedIdle,
    /// The backend closed in the middle of its response head.
    BackendClosedMidHead,
    /// The backend's response breaks RFC 9112, or could be read in two ways.
    BackendGarbled(&'static str),
    /// The backend's response head is larger than `limits.response_head`.
    BackendHeadTooLarge,
    /// The route has no instance left to try.
    NoBackend,
    /// Every instance that is up has as many requests as it may have.
    BackendBusy,
    /// As many requests as allowed wait for the site already.
    QueueFull,
    /// The site is paused by its operator.
    Paused,
    /// The process has as many files and connections open as it may have, and none ended in time.
    NoDescriptor,
    /// The proxy is stopping.
    Draining,
    /// Connecting to the backend took too long.
    ConnectTimeout,
    /// The backend gave no response head in time.
    ResponseTimeout,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The status that the client gets (RFC 9110 section 15).
    pub status: u16,
    /// The status's reason phrase.
    pub phrase: &'static str,
    /// The stable code: in the log, in `Carom-Error`, in metrics.
    pub code: &'static str,
    /// Whose fault it is.
    pub fault: Fault,
    /// One sentence for the person who sees the page.
    pub text: &'static str,
}

impl Refusal {
    /// This failure's row.
    #[rustfmt::skip] // one row a line
    pub fn row(self) -> Row {
        use Fault::{Backend, Client, Operator};
        let (status, phrase, code, fault, text) = match self {
            Self::MalformedHead(why)   => (400, "Bad Request", "malformed-head", Client, why),
            Self::MalformedBody(why)   => (400, "Bad Request", "malformed-body", Client, why),
            Self::BadHost(why)         => (400, "Bad Request", "bad-host", Client, why),
            Self::PlainHttp            => (400, "Bad Request", "plain-http", Client, "this port speaks TLS: its addresses begin with https://"),
            Self::HttpsOnly            => (403, "Forbidden", "https-only", Client, "this site is served over https:// only"),
            Self::NoRoute              => (404, "Not Found", "no-route", Operator, "no site is configured for this address"),
            Self::HeadTimeout          => (408, "Request Timeout", "head-timeout", Client, "the request head did not arrive in time"),
            Self::BodyTimeout          => (408, "Request Timeout", "body-timeout", Client, "the request body did not arrive in time"),
            Self::BodyTooLarge         => (413, "Content Too Large", "body-too-large", Client, "the request body is larger than this server allows"),
            Self::TargetTooLong        => (414, "URI Too Long", "target-too-long", Client, "the address is longer than this server allows"),
            Self::Misdirected          => (421, "Misdirected Request", "misdirected", Client, "requests for this host need a connection of their own"),
            Self::HeadTooLarge         => (431, "Request Header Fields Too Large", "head-too-large", Client, "the request head is larger than this server allows"),
            Self::BadDecision(why)     => (500, "Internal Server Error", "bad-decision", Operator, why),
            Self::UnknownProtocol      => (501, "Not Implemented", "unknown-protocol", Client, "this server carries no such protocol over HTTP/2"),
            Self::BackendRefused       => (502, "Bad Gateway", "backend-refused", Backend, "the site's server refused the connection"),
            Self::BackendUnreachable   => (502, "Bad Gateway", "backend-unreachable", Backend, "the site's server can't be reached"),
            Self::BackendName          => (502, "Bad Gateway", "backend-name", Backend, "the site's server has no known address"),
            Self::BackendTls(why)      => (502, "Bad Gateway", "backend-tls", Backend, why),
            Self::BackendClosed        => (502, "Bad Gateway", "backend-closed", Backend, "the site's server closed the connection before it answered"),
            Self::BackendClosedIdle    => (502, "Bad Gateway", "backend-closed-idle", Backend, "the site's server closed its connection just as the request was sent"),
            Self::BackendClosedMidHead => (502, "Bad Gateway", "backend-closed-mid-head", Backend, "the site's server closed the connection in the middle of its answer"),
            Self::BackendGarbled(why)  => (502, "Bad Gateway", "backend-garbled", Backend, why),
            Self::BackendHeadTooLarge  => (502, "Bad Gateway", "backend-head-too-large", Backend, "the site's server sent a response head larger than this proxy allows"),
            Self::NoBackend            => (503, "Service Unavailable", "no-backend", Backend, "no server of this site is available"),
            Self::BackendBusy          => (503, "Service Unavailable", "backend-busy", Backend, "every server of this site is busy"),
            Self::QueueFull            => (503, "Service Unavailable", "queue-full", Backend, "too many requests wait for this site's server already"),
            Self::Paused               => (503, "Service Unavailable", "paused", Operator, "this site is paused for a moment"),
            Self::NoDescriptor         => (503, "Service Unavailable", "no-descriptor", Operator, "this server has no connection left to ask the site's server by"),
            Self::Draining             => (503, "Service Unavailable", "draining", Operator, "this server is stopping"),
            Self::ConnectTimeout       => (504, "Gateway Timeout", "connect-timeout", Backend, "connecting to the site's server took too long"),
            Self::ResponseTimeout      => (504, "Gateway Timeout", "response-timeout", Backend, "the site's server did not answer in time"),
        };
        Row { status, phrase, code, fault, text }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.row();
        write!(f, "{} ({}): {}", row.status, row.code, row.text)
    }
}

/// Why an exchange ended after its response had begun, or without one: logged, never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The backend broke off in the middle of its body.
    BackendClosed,
    /// The backend broke its body's framing.
    BackendGarbled,
    /// The backend was silent in the middle of its body.
    BackendSilent,
    /// The backend's side of a tunnel broke off.
    BackendGone,
    /// The client went away.
    ClientGone,
    /// The client's body broke its framing after the response had begun.
    ClientGarbled,
    /// One side was silent for too long.
    IdleTimeout,
    /// The drain deadline passed.
    Draining,
}

impl Cut {
    /// The stable code of the log.
    pub fn code(self) -> &'static str {
        match self {
            Self::BackendClosed => "backend-closed-mid-body",
            Self::BackendGarbled => "backend-garbled",
            Self::BackendSilent => "response-timeout",
            Self::BackendGone => "backend-gone",
            Self::ClientGone => "client-gone",
            Self::ClientGarbled => "malformed-body",
            Self::IdleTimeout => "idle-timeout",
            Self::Draining => "draining",
        }
    }

    /// Whose fault it is.
    pub fn fault(self) -> Fault {
        match self {
            Self::BackendClosed | Self::BackendGarbled | Self::BackendSilent | Self::BackendGone => Fault::Backend,
            Self::ClientGone | Self::ClientGarbled | Self::IdleTimeout => Fault::Client,
            Self::Draining => Fault::Operator,
        }
    }
}

/// Every code that there is.
#[cfg(test)]
pub(crate) fn every_code() -> Vec<&'static str> {
    use Refusal::*;
    let refusals = [
        MalformedHead("x"),
        MalformedBody("x"),
        BadHost("x"),
        PlainHttp,
        HttpsOnly,
        NoRoute,
        HeadTimeout,
        BodyTimeout,
        BodyTooLarge,
        BadDecision("x"),
        TargetTooLong,
        Misdirected,
        HeadTooLarge,
        UnknownProtocol,
        BackendRefused,
        BackendUnreachable,
        BackendName,
        BackendTls("x"),
        BackendClosed,
        BackendClosedIdle,
        BackendClosedMidHead,
        BackendGarbled("x"),
        BackendHeadTooLarge,
        NoBackend,
        BackendBusy,
        QueueFull,
        Paused,
        NoDescriptor,
        Draining,
        ConnectTimeout,
        ResponseTimeout,
    ];
    let cuts = [
        Cut::BackendClosed,
        Cut::BackendGarbled,
        Cut::BackendSilent,
        Cut::BackendGone,
        Cut::ClientGone,
        Cut::ClientGarbled,
        Cut::IdleTimeout,
        Cut::Draining,
    ];
    refusals.map(|refusal| refusal.row().code).into_iter().chain(cuts.map(Cut::code)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained_in_the_readme() {
        let readme = include_str!("../../README.md");
        for code in every_code() {
            assert!(readme.contains(&format!("`{code}`")), "{code}");
        }
    }
}
