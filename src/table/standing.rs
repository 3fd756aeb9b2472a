//! How a backend stands with us, judged by how its requests have gone: one that keeps failing is put aside for a while, so
//! that requests try others first. When the while is over it gets one request, and the others once that has been answered:
//! if it is still away, only one client finds out. One failure puts it aside for longer; one success forgets everything.
//!
//! It is never more than a preference: where all instances of a site are aside, all serve.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// So many failures in a row, with no success between them, put a backend aside.
const FAILURES: u32 = 3;

/// For how long at first, in milliseconds; for twice as long each time.
const FIRST: u64 = 1_000;

/// And at most.
const LONGEST: u64 = 60_000;

/// After so many milliseconds a request that tries a backend out has another beside it: it may be a long one, or its client
/// has gone.
const TRIAL: u64 = 1_000;

/// Times are milliseconds since a moment that all have in common.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// In a row.
    failures: AtomicU32,
    /// How often it has been put aside since its last success.
    asides: AtomicU32,
    /// 0 for never.
    aside_until: AtomicU64,
    /// Behind that: until when others stay away, since one request tries it out.
    trial_until: AtomicU64,
    /// When it was first put aside.
    since: AtomicU64,
    /// The code of the failure that put it aside. Written and read seldom, by whoever puts it aside and by who asks.
    why: Mutex<&'static str>,
    /// When it was last put back; 0 for never.
    back: AtomicU64,
}

/// How a backend that is aside is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IsAside {
    /// The code of the last failure.
    pub(crate) why: &'static str,
    /// When it was first put aside.
    pub(crate) since: u64,
    /// When it gets requests again.
    pub(crate) until: u64,
}

/// It has been put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aside {
    /// Milliseconds.
    pub(crate) length: u64,
}

/// It has served again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Back {
    /// Milliseconds since it was first put aside.
    pub(crate) after: u64,
}

impl Standing {
    pub(crate) fn is_aside(&self, now: u64) -> bool {
        match self.aside_until.load(Ordering::Relaxed) {
            0 => false,
            until => until.max(self.trial_until.load(Ordering::Relaxed)) > now,
        }
    }

    /// Whether one that has been chosen may have the request. `false` when it has just been put back, and another request
    /// was faster to try it out: for all others it is aside a little longer.
    pub(super) fn admits(&self, now: u64) -> bool {
        let until = self.aside_until.load(Ordering::Relaxed);
        let trial = self.trial_until.load(Ordering::Relaxed);
        // Who is chosen although it is aside is so since nobody else is left.
        let as_it_is = until == 0 || until.max(trial) > now;
        let (relaxed, next) = (Ordering::Relaxed, now.saturating_add(TRIAL));
        as_it_is || self.trial_until.compare_exchange(trial, next, relaxed, relaxed).is_ok()
    }

    /// How it is aside, if it is.
    pub(crate) fn aside(&self, now: u64) -> Option<IsAside> {
        let until = match self.aside_until.load(Ordering::Relaxed) {
            0 => 0,
            until => until.max(self.trial_until.load(Ordering::Relaxed)),
        };
        let why = *self.why.lock().unwrap_or_else(PoisonError::into_inner);
        (until > now).then(|| IsAside { why, since: self.since.load(Ordering::Relaxed), until })
    }

    /// Why it has just been put aside.
    pub(crate) fn because(&self, why: &'static str) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// When it last came back from being put aside; 0 for never.
    pub(crate) fn came(&self, now: u64) -> u64 {
        match self.aside_until.load(Ordering::Relaxed) {
            until if until > 0 && until <= now => until,
            _ => self.back.load(Ordering::Relaxed),
        }
    }

    /// A request has failed by its fault.
    pub(crate) fn failed(&self, now: u64) -> Option<Aside> {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let until = self.aside_until.load(Ordering::Relaxed);
        if failures < FAILURES || until > now {
            return None;
        }
        let asides = self.asides.load(Ordering::Relaxed);
        let length = FIRST.saturating_mul(1 << asides.min(16)).min(LONGEST);
        // One of those who find out at the same time.
        self.aside_until
            .compare_exchange(until, now.saturating_add(length), Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        if self.asides.fetch_add(1, Ordering::Relaxed) == 0 {
            self.since.store(now, Ordering::Relaxed);
        }
        Some(Aside { length })
    }

    /// It has been asked, and is well.
    pub(crate) fn forget(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.asides.store(0, Ordering::Relaxed);
        self.aside_until.store(0, Ordering::Relaxed);
    }

    /// It has answered.
    pub(crate) fn served(&self, now: u64) -> Option<Back> {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Of those who find out at the same time, one tells.
        let asides = self.asides.swap(0, Ordering::Relaxed);
        if asides > 0 {
            self.back.store(self.aside_until.load(Ordering::Relaxed).min(now), Ordering::Relaxed);
        }
        self.forget();
        (asides > 0).then(|| Back { after: now.saturating_sub(self.since.load(Ordering::Relaxed)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_put_it_aside_and_one_success_forgets_them() {
        let standing = Standing::default();
        assert_eq!((standing.failed(10), standing.failed(10), standing.served(11)), (None, None, None));
        assert_eq!((standing.failed(20), standing.failed(20)), (None, None));
        assert!(!standing.is_aside(20));
        assert_eq!(standing.failed(20), Some(Aside { length: 1_000 }));
        assert!(standing.is_aside(1_019) && !standing.is_aside(1_020));
        assert_eq!(standing.served(1_030), Some(Back { after: 1_010 }));
        assert!(!standing.is_aside(1_030));
        assert_eq!((standing.failed(1_040), standing.failed(1_040)), (None, None));
    }

    #[test]
    fn when_its_time_is_over_one_request_tries_it_out_for_all() {
        let standing = Standing::default();
        assert!([(); 3].into_iter().filter_map(|()| standing.failed(20)).count() == 1 && standing.admits(1_019));
        assert!(!standing.is_aside(1_020));
        assert!(standing.admits(1_020), "the first");
        assert!(standing.is_aside(1_020) && standing.is_aside(2_019), "for all others");
        assert!(standing.admits(1_030), "who comes although it is aside has nobody else");
        // Its client has gone, or it is a long one.
        assert!(!standing.is_aside(2_020) && standing.admits(2_020));
        assert_eq!(standing.failed(2_500), Some(Aside { length: 2_000 }));
        assert!(standing.is_aside(4_499) && !standing.is_aside(4_500) && standing.admits(4_500));
        assert!(standing.served(4_510).is_some() && !standing.is_aside(4_510), "all may come");
    }

    #[test]
    fn it_stays_aside_for_longer_each_time() {
        let standing = Standing::default();
        let mut now = 5;
        let (_, _) = (standing.failed(now), standing.failed(now));
        for length in [1, 2, 4, 8, 16, 32, 60, 60] {
            let length = length * 1_000;
            assert_eq!(standing.failed(now), Some(Aside { length }));
            // Those that were under way don't count again.
            assert_eq!((standing.failed(now + 1), standing.failed(now + length - 1)), (None, None));
            now += length;
        }
    }
}
