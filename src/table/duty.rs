//! What of a site, and of each of its instances, outlives a save: what an operator has asked of them while they run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::arrival::Arrival;
use super::pause::Pause;
use super::retries::Allowance;
use super::tally::Tally;
use super::taps::Taps;

/// Of one instance of one site.
#[derive(Debug, Default)]
pub struct Duty {
    drained: AtomicBool,
    arrival: Arrival,
}

impl Duty {
    /// Whether it gets no requests, whoever else is there.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    /// When it came to its site.
    pub(super) fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// From now on it gets no requests, or gets some again; those that are with it go on. Gives what was before.
    pub fn drain(&self, yes: bool) -> bool {
        let before = self.drained.swap(yes, Ordering::Relaxed);
        if before && !yes {
            self.arrival.comes();
        }
        before
    }
}

/// Of one site.
#[derive(Debug, Default)]
pub struct Lasting {
    waiting: AtomicUsize,
    allowance: Allowance,
    pause: Pause,
    tally: Tally,
    taps: Taps,
}

impl Lasting {
    /// How many second tries are left.
    pub(crate) fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Whether it is paused.
    pub fn pause(&self) -> &Pause {
        &self.pause
    }

    /// How its requests have ended.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Who watches its requests.
    pub fn taps(&self) -> &Taps {
        &self.taps
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A place among those who wait; `None` when that many do already.
    pub(crate) fn queue(&self, most: usize) -> Option<Waiting<'_>> {
        let place = Waiting(self);
        (self.waiting.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

/// A request that waits; leaves the queue when dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Lasting);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
