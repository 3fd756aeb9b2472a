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
use crate::table::patience;

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
    connections: Vec<Connection>,
    /// The backend's, when they were last known to lead to it.
    generation: u64,
}

/// Times are in milliseconds of the sweep's.
#[derive(Debug)]
struct Connection {
    stream: Stream,
    since: u64,
    /// When it is too old, whatever else is known.
    until: u64,
}

impl Kept {
    /// Closes those to addresses that the backend's name has no more.
    fn forget_moved(&mut self, backend: &Backend) {
        let generation = backend.generation();
        if generation != self.generation {
            self.connections.retain(|connection| backend.is_at(connection.stream.peer_address()));
            self.generation = generation;
        }
    }
}

impl Connection {
    fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.since)
    }

    fn is_old(&self, limit: Option<u64>, now: u64) -> bool {
        now >= self.until || limit.is_some_and(|limit| self.age(now) >= limit)
    }
}

impl Idle {
    /// Keeps at most so many connections for each backend, each at most for so long.
    pub(crate) fn new(most: usize, longest: Duration) -> Self {
        Self { kept: RefCell::default(), most, longest: u64::try_from(longest.as_millis()).unwrap_or(u64::MAX) }
    }

    /// A connection that has not ended as far as the reactor knows. With `surely` the kernel is asked too:
    /// for a request that may not be sent twice.
    pub(crate) fn take(&self, backend: &Backend, surely: bool, now: u64) -> Option<Stream> {
        let mut kept = self.kept.borrow_mut();
        let kept = kept.get_mut(&backend.id())?;
        kept.forget_moved(backend);
        let connections = &mut kept.connections;
        let limit = backend.patience().limit(now);
        while let Some(connection) = connections.pop() {
            if connection.is_old(limit, now) {
                continue;
            }
            let stream = connection.stream;
            let alive = if surely { stream.is_surely_quiet() } else { stream.is_quiet() || stream.settles() };
            if alive {
                return Some(stream);
            }
        }
        None
    }

    /// Keeps a connection whose last response has ended where its framing said. Whether more came behind it is found out
    /// when it is taken. `generation` is the backend's from before it was made or taken; `kept_for` is for how many seconds the backend says that it keeps it. `now` is the sweep's: nobody
    /// needs to know an idle connection's age any better.
    pub(crate) fn put(&self, backend: &Arc<Backend>, stream: Stream, generation: u64, kept_for: Option<u32>, now: u64) {
        let has_moved = generation != backend.generation() && !backend.is_at(stream.peer_address());
        if self.most == 0 || has_moved {
            return;
        }
        let mut kept = self.kept.borrow_mut();
        let kept = kept.entry(backend.id()).or_insert_with(|| Kept {
            backend: Arc::downgrade(backend),
            connections: Vec::new(),
            generation,
        });
        if kept.connections.len() >= self.most {
            kept.connections.remove(0);
        }
        let announced = kept_for.map_or(u64::MAX, |seconds| patience::usable(u64::from(seconds) * 1_000));
        let until = now.saturating_add(self.longest.min(announced));
        kept.connections.push(Connection { stream, since: now, until });
    }

    /// Closes what has ended, grown old, or has no backend any more.
    pub(crate) fn sweep(&self, now: u64) {
        let mut kept = self.kept.borrow_mut();
        if kept.is_empty() {
            return;
        }
        kept.retain(|_, kept| {
            let Some(backend) = kept.backend.upgrade() else { return false };
            kept.forget_moved(&backend);
            let limit = backend.patience().limit(now);
            // Of those that the backend has closed, the oldest: a restart closes them at all ages.
            let mut closed = None;
            kept.connections.retain(|connection| {
                let stands = connection.stream.is_quiet() || connection.stream.settles();
                if !stands {
                    closed = closed.max(Some(connection.age(now)));
                }
                stands && !connection.is_old(limit, now)
            });
            if let Some(age) = closed {
                backend.patience().closed(age, now);
            }
            !kept.connections.is_empty()
        });
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept.borrow().values().map(|kept| kept.connections.len()).sum()
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
