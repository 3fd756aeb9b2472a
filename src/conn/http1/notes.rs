//! What is written down about a request while it runs, and told when it is over.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::Connection;
use crate::http::head::Head;
use crate::http::refuse::{Cut, Fault};
use crate::record::Record;
use crate::table::Route;
use crate::table::backend::Backend;
use crate::upstream::exchange::{Counts, Exchange};

/// What is written down about a request while it runs.
pub(super) struct Notes {
    /// Only where somebody wants to know.
    pub(super) started: Option<Instant>,
    pub(super) method: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) host: String,
    pub(super) route: Option<Arc<Route>>,
    pub(super) backend: Option<Arc<Backend>>,
    pub(super) tries: u32,
    pub(super) reason: Option<(&'static str, Fault)>,
}

impl Notes {
    pub(super) fn new(is_observed: bool) -> Self {
        Self {
            started: is_observed.then(Instant::now),
            method: Vec::new(),
            target: Vec::new(),
            host: String::new(),
            route: None,
            backend: None,
            tries: 0,
            reason: None,
        }
    }

    /// Keeps of the head what will be told: its bytes make room for others soon.
    pub(super) fn head(&mut self, exchange: &Exchange) {
        let head = Head::new(exchange.from_client.data(), &exchange.head);
        self.method.extend_from_slice(head.method().as_bytes());
        self.target.extend_from_slice(head.target());
        self.host.push_str(head.host().map_or("", |host| host.name()));
    }

    pub(super) fn cut(&mut self, why: Cut) {
        self.reason = Some((why.code(), why.fault()));
    }
}

impl Connection {
    /// Tells those who log and count.
    pub(super) fn tell(&self, counts: &Counts, notes: &Notes) {
        let Some(started) = notes.started else { return };
        let total = started.elapsed();
        self.worker.tell(&Record {
            time: SystemTime::now() - total,
            client: self.arrival.client,
            method: &notes.method,
            host: &notes.host,
            target: &notes.target,
            status: counts.status,
            received: counts.received,
            sent: counts.sent,
            route: notes.route.as_deref().map(|route| &*route.name),
            backend: notes.backend.as_deref(),
            tries: notes.tries,
            first_byte: counts.first_byte.map(|at| at - started),
            total,
            reason: notes.reason,
        });
    }
}
