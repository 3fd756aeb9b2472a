//! What is said seldom, however often it happens: a line of the log that clients can cause must not fill it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long it is silent after it has said something.
const SILENCE: Duration = Duration::from_secs(10);

/// When something was last said, in seconds since the first time that anything was, and one; 0 for never. Shared by all
/// workers.
#[derive(Debug)]
pub(crate) struct Seldom(AtomicU64);

impl Seldom {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether it is time to say it again: once in ten seconds.
    pub(crate) fn may_say(&self) -> bool {
        static EPOCH: OnceLock<Instant> = OnceLock::new();
        let now = EPOCH.get_or_init(Instant::now).elapsed().as_secs() + 1;
        let said = self.0.load(Ordering::Relaxed);
        (said == 0 || now >= said + SILENCE.as_secs())
            && self.0.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_and_not_at_once_again() {
        let seldom = Seldom::new();
        assert!(seldom.may_say());
        assert!(!seldom.may_say());
    }
}
