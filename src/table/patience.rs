//! How long a backend keeps a connection that nobody uses, learned from when it closes them.
//!
//! A request that goes out just as the backend closes is lost, and one that may not be sent twice is a 502. So connections
//! are used a little less long than the backend keeps them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// So many closes in a row at about the same age are a time-out and no accident.
const TIMES: u32 = 3;

/// After so long what was learned has to be learned again: the backend may have been told otherwise. In milliseconds.
const MEMORY: u64 = 600_000;

/// By how much less than a backend keeps a connection we use it, at most. In milliseconds.
const MARGIN: u64 = 1_000;

/// Times are milliseconds since a moment that all have in common.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    age: AtomicU64,
    times: AtomicU32,
    learned: AtomicU64,
}

impl Patience {
    /// The backend has closed a connection that had been idle for so long.
    pub(crate) fn closed(&self, age: u64, now: u64) {
        let before = self.age.swap(age, Ordering::Relaxed);
        if age.abs_diff(before) > 250 + age / 20 {
            self.times.store(1, Ordering::Relaxed);
        } else if self.times.fetch_add(1, Ordering::Relaxed) + 1 >= TIMES {
            self.learned.store(now, Ordering::Relaxed);
        }
    }

    /// How long its connections may be used; `None` where nothing is known.
    pub(crate) fn limit(&self, now: u64) -> Option<u64> {
        let known = self.times.load(Ordering::Relaxed) >= TIMES
            && now.saturating_sub(self.learned.load(Ordering::Relaxed)) < MEMORY;
        known.then(|| usable(self.age.load(Ordering::Relaxed)))
    }
}

/// For how long a connection may be used that is kept for so many milliseconds.
pub(crate) fn usable(kept: u64) -> u64 {
    kept.saturating_sub(MARGIN).max(kept / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_at_one_age_are_a_time_out_and_others_are_not() {
        let patience = Patience::default();
        for age in [5_000, 100, 9_000, 5_000, 5_100] {
            patience.closed(age, 10);
            assert_eq!(patience.limit(10), None, "{age}");
        }
        patience.closed(5_050, 10);
        assert_eq!(patience.limit(10), Some(4_050));
        assert_eq!(patience.limit(MEMORY + 9), Some(4_050));
        assert_eq!(patience.limit(MEMORY + 10), None);
        // Once more is enough then, and something else is something new.
        patience.closed(5_000, MEMORY + 20);
        assert_eq!(patience.limit(MEMORY + 20), Some(4_000));
        patience.closed(30_000, MEMORY + 30);
        assert_eq!(patience.limit(MEMORY + 30), None);
    }

    #[test]
    fn a_little_less_is_used_than_is_kept() {
        assert_eq!([60_000, 5_000, 2_000, 1_000, 0].map(usable), [59_000, 4_000, 1_000, 500, 0]);
    }
}
