//! Idle connections to backends, of one worker.
//!
//! Last in, first out: the one used most recently is the one least likely to have been closed by the other side, and
//! those that are too many for the load grow old and go.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::HashMap;

use crate::net::stream::Stream;
use crate::table::backend::Backend;

/// The idle connections of one worker.
#[derive(Debug)]
pub(crate) struct Idle {
    /// By the backend's id.
    kept: RefCell<HashMap<u64, Kept>>,
    most: usize,
    /// In milliseconds.
    longest: u64,
}

#[derive(Debug)]
struct Kept {
    /// Gone once no table and no request names the backend: then nobody will ask for its connections.
    backend: Weak<Backend>,
    /// Each with when it was put here, in milliseconds of the sweep's time.
    connections: Vec<(Stream, u64)>,
}

impl Idle {
    /// Keeps at most so many connections for each backend, each at most for so long.
    pub(crate) fn new(most: usize, longest: Duration) -> Self {
        Self { kept: RefCell::default(), most, longest: u64::try_from(longest.as_millis()).unwrap_or(u64::MAX) }
    }

    /// A connection that has not ended as far as the reactor knows. With `surely` the kernel is asked too:
    /// for a request that may not be sent twice.
    pub(crate) fn take(&self, backend: &Backend, surely: bool) -> Option<Stream> {
        let mut kept = self.kept.borrow_mut();
        let connections = &mut kept.get_mut(&backend.id())?.connections;
        while let Some((stream, _)) = connections.pop() {
            let alive = if surely { stream.is_surely_quiet() } else { stream.is_quiet() || stream.settles() };
            if alive {
                return Some(stream);
            }
        }
        None
    }

    /// Keeps a connection whose last response has ended where its framing said. Whether more came behind it is found out
    /// when it is taken. `now` is the sweep's: nobody needs to know an idle connection's age any better.
    pub(crate) fn put(&self, backend: &Arc<Backend>, stream: Stream, now: u64) {
        if self.most == 0 {
            return;
        }
        let mut kept = self.kept.borrow_mut();
        let kept = kept
            .entry(backend.id())
            .or_insert_with(|| Kept { backend: Arc::downgrade(backend), connections: Vec::new() });
        if kept.connections.len() >= self.most {
            kept.connections.remove(0);
        }
        kept.connections.push((stream, now));
    }

    /// Closes what has ended, grown old, or has no backend any more.
    pub(crate) fn sweep(&self, now: u64) {
        let mut kept = self.kept.borrow_mut();
        if kept.is_empty() {
            return;
        }
        kept.retain(|_, kept| {
            kept.connections.retain(|(stream, since)| {
                now.saturating_sub(*since) < self.longest && (stream.is_quiet() || stream.settles())
            });
            kept.backend.strong_count() > 0 && !kept.connections.is_empty()
        });
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.borrow().is_empty()
    }

    /// Closes all.
    pub(crate) fn clear(&self) {
        self.kept.borrow_mut().clear();
    }
}
