//! How an instance is checked, and what that has found.
//!
//! Who asks is `ops::health`; here is only what is remembered. Without a check an instance is up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;

/// A check, as an operator has asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// What is asked.
    pub probe: Probe,
    /// From one answer to the next question, give or take a tenth.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// So many good answers in a row bring an instance back that was down.
    pub rise: u32,
    /// So many bad ones in a row take it out.
    pub fall: u32,
}

/// What is asked of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// To accept a connection; over TLS, to shake hands.
    Tcp,
    /// To answer a request.
    Http {
        /// The method.
        method: Box<str>,
        /// Path and query.
        path: Box<str>,
        /// The `Host`; the target's, where none is named.
        host: Option<Box<str>>,
        /// The statuses that are good; none named: 200 to 399.
        status: Vec<u16>,
    },
}

/// What checks have found of an instance. One for all that have the same address and the same check.
#[derive(Debug)]
pub struct Health {
    check: Check,
    state: AtomicU8,
    /// Answers in a row that speak against the state.
    against: AtomicU32,
    /// When the state was last another, in milliseconds since a moment that all have in common.
    since: AtomicU64,
    /// Why it is down, where it is.
    why: ArcSwapOption<String>,
    /// When it last came up after it had been down, in milliseconds since a moment that all have in common; 0 for never.
    came: AtomicU64,
}

/// Whether an instance is fit to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has asked yet: it gets requests only where nobody else can.
    Unknown,
    /// It serves.
    Up,
    /// It does not.
    Down,
}

impl Health {
    pub(crate) fn new(check: Check) -> Self {
        Self {
            check,
            state: AtomicU8::new(State::Unknown as u8),
            against: AtomicU32::new(0),
            since: AtomicU64::new(0),
            came: AtomicU64::new(0),
            why: ArcSwapOption::empty(),
        }
    }

    /// How it is checked.
    pub fn check(&self) -> &Check {
        &self.check
    }

    /// What is known.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            state if state == State::Up as u8 => State::Up,
            state if state == State::Down as u8 => State::Down,
            _ => State::Unknown,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state.load(Ordering::Relaxed) == State::Up as u8
    }

    /// When the state was last another; 0 where it has always been the same.
    pub(crate) fn since(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    /// Why it is down, where it is.
    pub fn why(&self) -> Option<Arc<String>> {
        self.why.load_full()
    }

    /// Notes down when the state has changed, and why where it is down.
    pub(crate) fn remember(&self, now: u64, why: Option<String>) {
        // 0 is for never.
        self.since.store(now.max(1), Ordering::Relaxed);
        self.why.store(why.map(Arc::new));
    }

    /// When it last came up after it had been down; 0 for never.
    pub(super) fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    /// Takes it to be up, since somebody else has asked just now.
    pub(crate) fn believe(&self, now: u64) {
        if self.state() == State::Down {
            self.remember(now, None);
            self.came.store(now.max(1), Ordering::Relaxed);
        }
        self.against.store(0, Ordering::Relaxed);
        self.state.store(State::Up as u8, Ordering::Relaxed);
    }

    /// Takes an answer, at this time; there is one asker. Gives the new state where that changes it.
    pub(crate) fn take(&self, good: bool, now: u64) -> Option<State> {
        let before = self.state();
        let (becomes, after) = match (before, good) {
            (State::Unknown, true) => (State::Up, 1),
            (State::Unknown, false) => (State::Down, 1),
            (State::Up, false) => (State::Down, self.check.fall),
            (State::Down, true) => (State::Up, self.check.rise),
            (State::Up, true) | (State::Down, false) => {
                self.against.store(0, Ordering::Relaxed);
                return None;
            }
        };
        if self.against.fetch_add(1, Ordering::Relaxed) + 1 < after {
            return None;
        }
        self.against.store(0, Ordering::Relaxed);
        if (before, becomes) == (State::Down, State::Up) {
            self.came.store(now.max(1), Ordering::Relaxed);
        }
        self.state.store(becomes as u8, Ordering::Relaxed);
        Some(becomes)
    }
}

impl fmt::Display for Check {
    /// What is asked, and how often: `GET /up every 10s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} every {}", self.probe, humantime::format_duration(self.interval))
    }
}

impl fmt::Display for Probe {
    /// What is asked: `GET /up`, `a connection`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("a connection"),
            Self::Http { method, path, .. } => write!(f, "{method} {path}"),
        }
    }
}

impl Probe {
    /// Whether a response with this status is a good one.
    pub(crate) fn accepts(&self, answered: u16) -> bool {
        match self {
            Self::Tcp => true,
            Self::Http { status, .. } if status.is_empty() => (200..400).contains(&answered),
            Self::Http { status, .. } => status.contains(&answered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_as_many_answers_as_were_asked_for_to_change_a_mind_and_one_to_make_it_up() {
        let second = Duration::from_secs(1);
        let check = |rise, fall| Check { probe: Probe::Tcp, interval: second, timeout: second, rise, fall };
        let health = Health::new(check(2, 3));
        assert_eq!((health.state(), health.is_up()), (State::Unknown, false));
        assert_eq!(health.take(true, 7), Some(State::Up));
        assert_eq!([false, false, true, false, false].map(|good| health.take(good, 6)), [None; 5], "not in a row");
        assert_eq!(health.take(false, 5), Some(State::Down));
        assert_eq!([true, false, true].map(|good| health.take(good, 6)), [None; 3]);
        assert_eq!(health.take(true, 7), Some(State::Up));
        assert!(health.is_up());
        assert_eq!(health.came(), 7);
        assert_eq!(Health::new(check(2, 3)).take(false, 5), Some(State::Down));
    }
}
