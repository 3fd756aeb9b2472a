//! What is known of a request when it is over, for those who log and count.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use crate::http::refuse::Fault;
use crate::table::backend::Backend;

/// One request, from its first byte to its last.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When its first byte was read.
    pub time: SystemTime,
    /// The peer of the connection that it came on.
    pub client: SocketAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`; empty where the head could not be read, and for what was passed through.
    pub protocol: &'static str,
    /// As sent; empty where the head could not be read, `-` for a TLS connection that was passed through.
    pub method: &'a [u8],
    /// In compared form; empty where there is none.
    pub host: &'a str,
    /// In origin form, with its query; empty where the head could not be read.
    pub target: &'a [u8],
    /// The fields of its head that the observer wants to know ([`Observe::fields`]), in that order; `None` where it has
    /// none of the name. Empty where the head could not be read.
    pub fields: &'a [Option<Box<[u8]>>],
    /// Its own name, from a trusted peer or made here; empty for what was passed through.
    pub id: &'a str,
    /// What the client was sent; 0 for nothing.
    pub status: u16,
    /// Bytes from the client, head and body.
    pub received: u64,
    /// Bytes to the client, head and body.
    pub sent: u64,
    /// How many of those were the response's head.
    pub sent_head: u64,
    /// The route that covered it.
    pub route: Option<&'a str>,
    /// That route wants it to be logged.
    pub is_logged: bool,
    /// The last backend that was tried.
    pub backend: Option<&'a Backend>,
    /// How often a backend was tried.
    pub tries: u32,
    /// From its first byte to the end of its head; zero where that came all at once.
    pub head: Duration,
    /// What connecting to the last backend took, TLS included; `None` where a kept connection served.
    pub connect: Option<Duration>,
    /// From its first byte to the backend's.
    pub first_byte: Option<Duration>,
    /// From its first byte to the response's last: the same as `first_byte` where all of it came and went in one moment.
    pub total: Duration,
    /// Who has ended the connection; `None` where it goes on.
    pub closed: Option<Side>,
    /// Why it failed, and whose fault that is.
    pub reason: Option<(&'static str, Fault)>,
}

impl Record<'_> {
    /// Whether it has failed, or a backend has answered it with 5xx.
    pub fn has_failed(&self) -> bool {
        has_failed(self.status, self.reason.is_some())
    }
}

/// Whether a request with this end is one that has failed.
pub(crate) fn has_failed(status: u16, has_reason: bool) -> bool {
    has_reason || status >= 500
}

/// One of those who have a part in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who has asked.
    Client,
    /// Who was to answer.
    Backend,
    /// Between them.
    Proxy,
}

impl Side {
    /// `client`, `backend` or `carom`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Backend => "backend",
            Self::Proxy => "carom",
        }
    }
}

/// Is told of every request.
pub trait Observe: Send + Sync + 'static {
    /// What one worker tells: workers share nothing on the way.
    fn for_worker(&self) -> Box<dyn Log>;

    /// The names of request fields that it wants to know, in lower case.
    fn fields(&self) -> &[Box<str>] {
        &[]
    }

    /// Whether it only wants to hear of requests that have failed: those with a reason, and those that a backend has
    /// answered with 5xx. Where all are like that, requests that go well cost nothing: of those that don't, times are
    /// known to a tenth of a second, and of `fields`, `head`, `connect` and `first_byte` nothing.
    fn only_failures(&self) -> bool {
        false
    }
}

/// One worker's view of an observer. Called on the worker's thread, so it may not wait.
pub trait Log {
    /// A request is over.
    fn request(&mut self, record: &Record<'_>);

    /// Called about ten times a second while there are connections, and once at the end: what was held back goes out.
    fn flush(&mut self);
}
