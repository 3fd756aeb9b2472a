//! How many clients are in, and how many may be.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the clients of a proxy, over all its workers.
#[derive(Debug)]
pub struct Doors {
    open: AtomicUsize,
    most: usize,
}

impl Doors {
    pub(crate) fn new(most: usize) -> Self {
        Self { open: AtomicUsize::new(0), most }
    }

    /// Clients that are connected now, and requests beyond the first of each HTTP/2 connection.
    pub fn inside(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// As many as may be.
    pub fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn are_full(&self) -> bool {
        self.inside() >= self.most
    }

    pub(crate) fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
