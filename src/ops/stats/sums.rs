//! The numbers that are added up.

use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::record::Record;

/// What those are counted as that are too many to be told apart.
pub(super) const OTHER: &str = "other";

/// The upper bounds of a histogram's buckets in microseconds; one more is for what takes longer.
pub const BOUNDS: [u64; 15] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000, 60_000_000,
];

/// How requests end: by the class of the status that the client got.
pub const CLASSES: [&str; 6] = ["none", "2xx", "3xx", "4xx", "5xx", "tunnel"];

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Without an answer: the client was gone before.
    None,
    Success,
    Redirect,
    ClientError,
    ServerError,
    /// It has become a tunnel, or was passed through.
    Tunnel,
}

/// How long things took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many are in each bucket: not more than its bound, and more than the one before.
    pub counts: [u64; BOUNDS.len() + 1],
    /// All of them together.
    pub sum: Duration,
}

/// Of one site.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// From a request's first byte to the response's last, of those that were answered.
    pub durations: Histogram,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
    /// Tries beyond a request's first.
    pub retries: u64,
    /// By the backend's name; empty for what has reached none.
    pub pairs: HashMap<String, Pair>,
    /// Since when no table names it.
    pub(super) gone: Option<Instant>,
}

/// Of one instance of a site.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// By [`CLASSES`].
    pub requests: [u64; CLASSES.len()],
    /// From the end of a request's head to the first byte of the backend's answer.
    pub durations: Histogram,
    /// Since when no table names it.
    pub(super) gone: Option<Instant>,
}

impl Class {
    pub(super) fn of(record: &Record<'_>) -> Self {
        // What is passed through has no protocol of its own, and says so by its method.
        let passed = record.protocol.is_empty() && record.method == b"-";
        match record.status {
            0 if passed && record.connect.is_some() => Self::Tunnel,
            0 => Self::None,
            1..200 => Self::Tunnel,
            200..300 => Self::Success,
            300..400 => Self::Redirect,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }

    /// Whether it has a duration that means something: a tunnel lasts as long as its two sides like.
    pub(super) fn is_answered(self) -> bool {
        !matches!(self, Self::None | Self::Tunnel)
    }
}

/// A bound, in seconds.
#[expect(clippy::cast_precision_loss, reason = "a minute of microseconds at most")]
pub(in crate::ops) fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        let micros = time.as_micros();
        let bucket = BOUNDS.iter().position(|&bound| micros <= u128::from(bound)).unwrap_or(BOUNDS.len());
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What is in it more than in an earlier one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut more = self.clone();
        for (count, before) in more.counts.iter_mut().zip(&before.counts) {
            *count = count.saturating_sub(*before);
        }
        more.sum = self.sum.saturating_sub(before.sum);
        more
    }

    /// About how many seconds that part of them took at most, as if those of a bucket were spread evenly in it; `None`
    /// where there are none.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let mut left = self.count() as f64 * part;
        if self.count() == 0 {
            return None;
        }
        let mut lower = 0;
        for (&upper, &count) in BOUNDS.iter().zip(&self.counts) {
            if left <= count as f64 && count > 0 {
                return Some(seconds(lower) + seconds(upper - lower) * left / count as f64);
            }
            left -= count as f64;
            lower = upper;
        }
        Some(seconds(lower))
    }

    /// Adds another one up to this.
    pub fn absorb(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }
}

impl Site {
    /// Takes the numbers of the other, but for those of its instances.
    pub(super) fn absorb(&mut self, other: &mut Self) {
        self.durations.absorb(&other.durations);
        self.received += other.received;
        self.sent += other.sent;
        self.retries += other.retries;
        *other = Self::default();
    }
}

impl Pair {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.iter().all(|count| *count == 0)
    }

    /// Takes the numbers of the other.
    pub(super) fn absorb(&mut self, other: &mut Self) {
        for (count, more) in self.requests.iter_mut().zip(&other.requests) {
            *count += more;
        }
        self.durations.absorb(&other.durations);
        *other = Self::default();
    }
}
