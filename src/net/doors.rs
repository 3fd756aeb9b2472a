//! How many clients are in, and how many may be; and what else is counted of connections.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the clients of a proxy, over all its workers.
#[derive(Debug)]
pub struct Doors {
    open: AtomicUsize,
    most: usize,
    tunnels: AtomicUsize,
    /// Idle connections to backends, as the workers have last counted them.
    idle: AtomicUsize,
}

/// A client's connection that is a tunnel; is none any more when dropped.
#[derive(Debug)]
pub(crate) struct Tunnel<'a>(&'a Doors);

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        self.0.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Doors {
    pub(crate) fn new(most: usize) -> Self {
        Self { open: AtomicUsize::new(0), most, tunnels: AtomicUsize::new(0), idle: AtomicUsize::new(0) }
    }

    /// Clients that are connected now, and requests beyond the first of each HTTP/2 connection.
    pub fn inside(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// As many as may be.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Those of them that are tunnels: upgraded, or passed through.
    pub fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }

    /// Connections to backends that wait for a request, a tenth of a second ago.
    pub fn idle(&self) -> usize {
        self.idle.load(Ordering::Relaxed)
    }

    /// One of those inside is a tunnel now.
    pub(crate) fn tunnel(&self) -> Tunnel<'_> {
        self.tunnels.fetch_add(1, Ordering::Relaxed);
        Tunnel(self)
    }

    /// A worker had so many idle connections to backends, and has so many now.
    pub(crate) fn recount_idle(&self, before: usize, now: usize) {
        // Wraps around, and back: the sum of all workers is right.
        self.idle.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
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
