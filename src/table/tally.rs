//! How requests have ended, counted for a site or for a backend.
//!
//! Workers count at once, and each request counts twice: so there are several places for each number, a cache line each, and
//! a worker always takes the same one. They are made when something is first counted: of a million sites few are asked for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::http::refuse::Fault;

/// Places for each number. More workers than that share some.
const PLACES: usize = 8;

/// The numbers of one place.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place([AtomicU64; 8]);

/// How requests have ended.
#[derive(Debug, Default)]
pub struct Tally(OnceLock<Box<[Place; PLACES]>>);

/// How one request has ended; each has one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client went before there was an answer.
    Unanswered,
    /// It became a tunnel, or was one from the beginning.
    Tunnel,
    /// The backend's 2xx.
    Success,
    /// The backend's 3xx.
    Redirect,
    /// The backend's 4xx.
    ClientError,
    /// The backend's 5xx.
    ServerError,
    /// The backend failed it: it refused, reset, was late, or broke off.
    Failed,
    /// We answered by ourselves, by the client's fault or because the operator wants it so.
    Own,
}

/// How many requests have ended in which way.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct Counts {
    /// The client went before there was an answer.
    pub unanswered: u64,
    /// Became a tunnel, or were one from the beginning.
    pub tunnels: u64,
    /// Answered by the backend with 2xx.
    pub success: u64,
    /// With 3xx.
    pub redirect: u64,
    /// With 4xx.
    pub client_error: u64,
    /// With 5xx.
    pub server_error: u64,
    /// Failed by the backend: it refused, reset, was late, or broke off.
    pub failed: u64,
    /// Answered by carom itself, by the client's fault or because the operator wants it so.
    pub own: u64,
}

impl Tally {
    /// Counts one.
    pub(crate) fn count(&self, ending: Ending) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static OURS: usize = NEXT.fetch_add(1, Ordering::Relaxed) % PLACES;
        }
        let places = self.0.get_or_init(Box::default);
        OURS.with(|&ours| places[ours].0[ending as usize].fetch_add(1, Ordering::Relaxed));
    }

    /// All that has been counted.
    pub fn counts(&self) -> Counts {
        let places = self.0.get();
        let sum = |ending: Ending| {
            places.map_or(0, |places| places.iter().map(|p| p.0[ending as usize].load(Ordering::Relaxed)).sum())
        };
        Counts {
            unanswered: sum(Ending::Unanswered),
            tunnels: sum(Ending::Tunnel),
            success: sum(Ending::Success),
            redirect: sum(Ending::Redirect),
            client_error: sum(Ending::ClientError),
            server_error: sum(Ending::ServerError),
            failed: sum(Ending::Failed),
            own: sum(Ending::Own),
        }
    }
}

impl Ending {
    /// The end of a request that was answered with this status, 0 for nothing, and what has gone wrong with it.
    pub(crate) fn of(status: u16, reason: Option<(&'static str, Fault)>) -> Self {
        match (reason, status) {
            (Some((_, Fault::Backend)), _) => Self::Failed,
            (Some(_), 400..) => Self::Own,
            (_, 0) => Self::Unanswered,
            (_, 1..200) => Self::Tunnel,
            (_, 200..300) => Self::Success,
            (_, 300..400) => Self::Redirect,
            (None, 400..500) => Self::ClientError,
            (None, _) => Self::ServerError,
        }
    }
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> u64 {
        let answered = self.success + self.redirect + self.client_error + self.server_error;
        answered + self.unanswered + self.tunnels + self.failed + self.own
    }

    /// Those that a backend is to blame for.
    pub fn bad(&self) -> u64 {
        self.server_error + self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_one_end() {
        let tally = Tally::default();
        assert_eq!(tally.counts(), Counts::default());
        let (backend, client) = (Some(("backend-refused", Fault::Backend)), Some(("client-gone", Fault::Client)));
        for (status, reason) in [
            (0, None),
            (101, None),
            (204, None),
            (200, client),
            (304, None),
            (404, None),
            (500, None),
            (502, backend),
            (200, backend),
            (413, client),
        ] {
            tally.count(Ending::of(status, reason));
        }
        let counts = tally.counts();
        assert_eq!((counts.success, counts.failed, counts.bad(), counts.own), (2, 2, 3, 1));
        assert_eq!((counts.unanswered, counts.tunnels, counts.redirect, counts.client_error), (1, 1, 1, 1));
        assert_eq!(counts.total(), 10);
    }

    #[test]
    fn workers_count_together() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| (0..1000).for_each(|_| tally.count(Ending::Success)));
            }
        });
        assert_eq!(tally.counts().success, 12_000);
    }
}
