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
    /// As sent; empty where the head could not be read, `-` for a TLS connection that was passed through.
    pub method: &'a [u8],
    /// In compared form; empty where there is none.
    pub host: &'a str,
    /// In origin form, with its query; empty where the head could not be read.
    pub target: &'a [u8],
    /// What the client was sent; 0 for nothing.
    pub status: u16,
    /// Bytes from the client, head and body.
    pub received: u64,
    /// Bytes to the client, head and body.
    pub sent: u64,
    /// The route that covered it.
    pub route: Option<&'a str>,
    /// The last backend that was tried.
    pub backend: Option<&'a Backend>,
    /// How often a backend was tried.
    pub tries: u32,
    /// From its first byte to the backend's.
    pub first_byte: Option<Duration>,
    /// From its first byte to the response's last.
    pub total: Duration,
    /// Why it failed, and whose fault that is.
    pub reason: Option<(&'static str, Fault)>,
}

/// Is told of every request.
pub trait Observe: Send + Sync + 'static {
    /// What one worker tells: workers share nothing on the way.
    fn for_worker(&self) -> Box<dyn Log>;
}

/// One worker's view of an observer. Called on the worker's thread, so it may not wait.
pub trait Log {
    /// A request is over.
    fn request(&mut self, record: &Record<'_>);

    /// Called about ten times a second while there are connections, and once at the end: what was held back goes out.
    fn flush(&mut self);
}
