//! When a request is tried again with another instance, and how many may be.
//!
//! Two things bound it: what a second try could do twice, which only the request itself can say, and a budget: a share of
//! the site's requests, so that instances which fail under load don't get more of it.

use std::sync::atomic::{AtomicI64, Ordering};

/// When a request is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries {
    /// How often it is tried at most, the first time included; 2 to [`MOST_TRIES`].
    pub tries: u32,
    /// Connecting has failed. Safe for every request, since nothing of it has been sent.
    pub connect: bool,
    /// The connection has ended before the response's head had come.
    pub reset: bool,
    /// The response's head has not come in time.
    pub timeout: bool,
    /// The response has one of these statuses.
    pub statuses: Vec<u16>,
    /// Only requests with one of these methods; `None` for every idempotent one (RFC 9110 section 9.2.2).
    pub methods: Option<Vec<Box<str>>>,
    /// Second tries for each hundred requests of the site.
    pub budget: u32,
}

/// The most tries.
pub const MOST_TRIES: u32 = 10;

/// So many second tries a site has saved up at most, and to begin with: a quiet one may have some too.
const SAVED: i64 = 10;

/// How many second tries a site has left.
#[derive(Debug)]
pub struct Allowance {
    /// In hundredths.
    left: AtomicI64,
}

impl Default for Retries {
    /// One more try for what has lost its connection.
    fn default() -> Self {
        Self { tries: 2, connect: true, reset: true, timeout: false, statuses: Vec::new(), methods: None, budget: 20 }
    }
}

impl Retries {
    /// Whether requests with this method may be tried again.
    pub(crate) fn cover(&self, method: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.iter().any(|known| **known == *method))
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: AtomicI64::new(SAVED * 100) }
    }
}

impl Allowance {
    /// A request has come, and brings its share.
    pub(crate) fn earn(&self, share: u32) {
        if self.left.load(Ordering::Relaxed) < SAVED * 100 {
            self.left.fetch_add(i64::from(share), Ordering::Relaxed);
        }
    }

    /// Whether there is one left.
    pub(crate) fn has(&self) -> bool {
        self.left.load(Ordering::Relaxed) >= 100
    }

    /// Takes one. Who has asked before may take it, also when another was faster.
    pub(crate) fn take(&self) {
        self.left.fetch_sub(100, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_cut_to_its_share() {
        let allowance = Allowance::default();
        let mut again = 0;
        for _ in 0..1_000 {
            allowance.earn(20);
            if allowance.has() {
                allowance.take();
                again += 1;
            }
        }
        // What was saved, and one in five.
        assert!((200..=210).contains(&again), "{again}");
    }

    #[test]
    fn no_more_is_saved_than_a_handful() {
        let allowance = Allowance::default();
        for _ in 0..10_000 {
            allowance.earn(100);
        }
        let mut again = 0;
        while allowance.has() {
            allowance.take();
            again += 1;
        }
        assert_eq!(again, SAVED);
    }
}
