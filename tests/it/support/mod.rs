//! What the tests are written with.

pub mod carom;
pub mod client;
pub mod dns;
pub mod frames;
pub mod http2;
pub mod http2_origin;
pub mod inside;
pub mod load;
pub mod origin;
pub mod tls;
pub mod wire;

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

pub use carom::Carom;
pub use client::Client;
pub use origin::Origin;
pub use wire::{End, Message};

/// How long anything may take before a test gives up. Far more than a loaded machine needs, since no test that passes
/// waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The field of a body that comes in chunks.
pub const CHUNKED: &str = "Transfer-Encoding: chunked";

/// A value that threads wait for: the only way in which tests synchronise.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Condvar::new() }
    }

    /// Changes the value and wakes whoever waits for it.
    pub fn change<R>(&self, how: impl FnOnce(&mut T) -> R) -> R {
        let result = how(&mut self.value.lock().unwrap_or_else(|e| e.into_inner()));
        self.changed.notify_all();
        result
    }

    pub fn look<R>(&self, at: impl FnOnce(&T) -> R) -> R {
        at(&self.value.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Waits until `find` finds something; `None` when the patience is over.
    pub fn wait_for<R>(&self, patience: Duration, mut find: impl FnMut(&T) -> Option<R>) -> Option<R> {
        let deadline = Instant::now() + patience;
        let mut value = self.value.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            if let Some(found) = find(&value) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            value = self.changed.wait_timeout(value, left).unwrap_or_else(|e| e.into_inner()).0;
        }
    }
}

/// Something that a script waits for until the test opens it.
#[derive(Debug, Default)]
pub struct Gate(Watched<bool>);

impl Gate {
    pub fn open(&self) {
        self.0.change(|open| *open = true);
    }

    /// Waits until it is open. A test that fails never opens it, so a script goes on by itself in the end.
    pub fn wait(&self) {
        self.0.wait_for(PATIENCE, |open| open.then_some(()));
    }
}

/// Asks again and again until it is so: for what the kernel knows and does not tell (descriptors, memory).
#[track_caller]
pub fn poll_until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes that are the same in every run and repeat with no power of two.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..251_u8).cycle().take(251 * 64).collect::<Vec<_>>().into_iter().cycle().take(length).collect()
}

/// A request of this line for this host: `request("GET /x", "a.test", &["X-A: b"])`.
pub fn request(line: &str, host: &str, fields: &[&str]) -> String {
    let mut head = format!("{line} HTTP/1.1\r\nHost: {host}\r\n");
    for field in fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    head + "\r\n"
}

/// A request with a body of a known length.
pub fn with_body(line: &str, host: &str, body: &str) -> String {
    request(line, host, &[&format!("Content-Length: {}", body.len())]) + body
}

/// A response with a body of a known length.
pub fn reply(status: &str, fields: &[&str], body: &str) -> String {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for field in fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    head + "\r\n" + body
}

/// Bytes as a test's failure shows them: the first of them, escaped.
pub fn shown(bytes: &[u8]) -> String {
    let start = bytes[..bytes.len().min(600)].escape_ascii().to_string();
    if bytes.len() > 600 { format!("{start}… ({} bytes)", bytes.len()) } else { start }
}
