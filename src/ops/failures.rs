//! The requests that have failed lately, with everything that is known of them: what `carom explain --last` shows.
//!
//! Of each reason a few are kept, so that a flood of one kind hides no other. Costs nothing for requests that go well.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::access::Redact;
use crate::http::refuse::Fault;
use crate::record::{Log, Observe, Record, Side};

/// So many are kept of each reason.
const KEPT: usize = 20;

/// The longest path of which all is kept, in bytes.
const LONGEST_PATH: usize = 1_000;

/// Keeps them. Each clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    kept: Arc<Mutex<Kept>>,
    redact: Redact,
}

#[derive(Debug, Default)]
struct Kept {
    /// By reason code; a backend's own 5xx have its status.
    by_reason: HashMap<String, VecDeque<Failure>>,
    /// How many there have been.
    count: u64,
}

/// A request that has failed, as JSON. Only grows.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Failure {
    /// Its place among all that have failed since the start, from 1.
    pub number: u64,
    /// When its first byte came: RFC 3339.
    pub time: String,
    /// The request's own name, as in the log.
    pub id: String,
    /// Who asked.
    pub client: String,
    /// `http` or `https`.
    pub scheme: String,
    /// `HTTP/1.1`; empty where the head could not be read.
    pub protocol: String,
    /// Empty where the head could not be read.
    pub method: String,
    /// In compared form.
    pub host: String,
    /// With its query; what is longer than 1,000 bytes is cut.
    pub path: String,
    /// What the client was sent; 0 for nothing.
    pub status: u16,
    /// The reason code; absent for a backend's own 5xx.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Whose fault it is: `client`, `operator`, `backend`.
    pub fault: String,
    /// The line that covered it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub route: Option<String>,
    /// The instance that it was with last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backend: Option<String>,
    /// How often an instance was tried.
    pub tries: u32,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
    /// How long it took, at least to a tenth of a second.
    pub total_ms: f64,
    /// Who ended the connection, if it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub closed: Option<String>,
}

/// Which ones are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// With this status.
    pub status: Option<u16>,
    /// With this reason.
    pub reason: Option<String>,
    /// Of this line of the routes.
    pub route: Option<String>,
    /// At most so many.
    pub most: usize,
}

impl Failures {
    /// Keeps nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, which keeps as little of each as the access log writes down.
    #[must_use]
    pub fn redacting(redact: Redact) -> Self {
        Self { redact, ..Self::default() }
    }

    /// The last ones, the newest first.
    pub fn last(&self, wanted: &Wanted) -> Vec<Failure> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = |failure: &&Failure| {
            wanted.status.is_none_or(|status| failure.status == status)
                && wanted.reason.as_ref().is_none_or(|reason| failure.reason.as_ref() == Some(reason))
                && wanted.route.as_ref().is_none_or(|route| failure.route.as_ref() == Some(route))
        };
        let mut found: Vec<Failure> = kept.by_reason.values().flatten().filter(is_wanted).cloned().collect();
        found.sort_by_key(|failure| std::cmp::Reverse(failure.number));
        found.truncate(wanted.most);
        found
    }

    fn keep(&self, record: &Record<'_>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.count += 1;
        let number = kept.count;
        let kind = record.reason.map_or_else(|| record.status.to_string(), |(code, _)| code.to_owned());
        let of_kind = kept.by_reason.entry(kind).or_default();
        if of_kind.len() == KEPT {
            of_kind.pop_front();
        }
        self.redact.apply(record, &[], |record| of_kind.push_back(Failure::of(record, number)));
    }
}

impl Failure {
    fn of(record: &Record<'_>, number: u64) -> Self {
        let path = &record.target[..record.target.len().min(LONGEST_PATH)];
        Self {
            number,
            time: humantime::format_rfc3339_millis(record.time).to_string(),
            id: record.id.to_owned(),
            client: record.client.to_string(),
            scheme: record.scheme.to_owned(),
            protocol: record.protocol.to_owned(),
            method: String::from_utf8_lossy(record.method).into_owned(),
            host: record.host.to_owned(),
            path: String::from_utf8_lossy(path).into_owned(),
            status: record.status,
            reason: record.reason.map(|(code, _)| code.to_owned()),
            fault: match record.reason.map_or(Fault::Backend, |(_, fault)| fault) {
                Fault::Client => "client",
                Fault::Operator => "operator",
                Fault::Backend => "backend",
            }
            .to_owned(),
            route: record.route.map(str::to_owned),
            backend: record.backend.map(ToString::to_string),
            tries: record.tries,
            received: record.received,
            sent: record.sent,
            total_ms: record.total.as_secs_f64() * 1e3,
            closed: record.closed.map(|side: Side| side.name().to_owned()),
        }
    }
}

impl Observe for Failures {
    fn for_worker(&self) -> Box<dyn Log> {
        Box::new(self.clone())
    }

    fn only_failures(&self) -> bool {
        true
    }
}

impl Log for Failures {
    fn request(&mut self, record: &Record<'_>) {
        self.keep(record);
    }

    fn flush(&mut self) {}
}
