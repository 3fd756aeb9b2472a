//! When an instance came, and how much of its share it gets since then: its caches are cold, and what it compiles is not
//! compiled yet.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A whole share.
pub(super) const WHOLE: u32 = 1024;

/// What one begins with who has just come: a tenth.
const FIRST: u32 = WHOLE / 10;

/// It has come, and nobody has looked since.
const UNSEEN: u64 = u64::MAX;

/// What is remembered of one instance of one site. Times are milliseconds since a moment that all have in common.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    /// 0 for never: it was there from the beginning.
    at: AtomicU64,
    /// What it has earned of the next request.
    earned: AtomicU32,
}

impl Arrival {
    /// It comes. When, whoever looks next says: those who know that it comes know no clock.
    pub(super) fn comes(&self) {
        self.at.store(UNSEEN, Ordering::Relaxed);
    }

    /// When it came; 0 for never.
    pub(super) fn at(&self, now: u64) -> u64 {
        match self.at.load(Ordering::Relaxed) {
            UNSEEN => {
                let _ = self.at.compare_exchange(UNSEEN, now.max(1), Ordering::Relaxed, Ordering::Relaxed);
                now
            }
            at => at,
        }
    }

    /// Earns this part of a request; whether that makes one.
    pub(super) fn earns(&self, part: u32) -> bool {
        let part = part.min(WHOLE);
        self.earned.fetch_add(part, Ordering::Relaxed) % WHOLE + part >= WHOLE
    }
}

/// The part of its share that an instance gets who came at this time, of [`WHOLE`].
pub(super) fn part(came: u64, now: u64, slow_start: Duration) -> u32 {
    let whole = u64::try_from(slow_start.as_millis()).unwrap_or(u64::MAX).max(1);
    let age = now.saturating_sub(came);
    if came == 0 || age >= whole {
        return WHOLE;
    }
    let grown = u64::from(WHOLE - FIRST).saturating_mul(age) / whole;
    FIRST + u32::try_from(grown).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_from_a_tenth_to_the_whole() {
        let part = |now| part(1_000, now, Duration::from_secs(10));
        assert_eq!([900, 1_000, 6_000, 11_000, 99_000].map(part), [102, 102, 563, 1024, 1024]);
        assert_eq!(super::part(0, 5, Duration::from_secs(10)), WHOLE, "it was there from the beginning");
    }

    #[test]
    fn parts_add_up_to_whole_requests() {
        let arrival = Arrival::default();
        assert_eq!((0..1024).filter(|_| arrival.earns(102)).count(), 102);
        assert_eq!((0..10).filter(|_| arrival.earns(WHOLE)).count(), 10);
    }

    #[test]
    fn who_looks_first_says_when_it_came() {
        let arrival = Arrival::default();
        assert_eq!(arrival.at(5), 0);
        arrival.comes();
        assert_eq!((arrival.at(7), arrival.at(9)), (7, 7));
    }
}
