//! Those who are told of a worker's requests, and what they want to know.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use crate::record::{Log, Observe, Record, has_failed};

/// All of one worker's.
pub(crate) struct Told {
    all: RefCell<Vec<One>>,
    of_all: bool,
    of_failures: bool,
    /// The request fields that they want to know, those of one behind those of the other.
    wanted: Vec<Box<str>>,
}

struct One {
    log: Box<dyn Log>,
    /// Which of the wanted fields are its.
    fields: Range<usize>,
    only_failures: bool,
}

impl Told {
    pub(super) fn of(observe: &[Arc<dyn Observe>]) -> Self {
        let mut begin = 0;
        let one = |observe: &Arc<dyn Observe>| {
            let fields = begin..begin + observe.fields().len();
            begin = fields.end;
            One { log: observe.for_worker(), fields, only_failures: observe.only_failures() }
        };
        Self {
            all: RefCell::new(observe.iter().map(one).collect()),
            of_all: observe.iter().any(|observe| !observe.only_failures()),
            of_failures: !observe.is_empty(),
            wanted: observe.iter().flat_map(|observe| observe.fields()).cloned().collect(),
        }
    }

    /// Whether anybody wants to know about every request.
    pub(super) fn of_all(&self) -> bool {
        self.of_all
    }

    /// Whether anybody wants to know about requests that have failed.
    pub(super) fn of_failures(&self) -> bool {
        self.of_failures
    }

    /// Whether anybody wants to know about a request with this end.
    pub(super) fn of_one(&self, status: u16, has_reason: bool) -> bool {
        self.of_all || self.of_failures && has_failed(status, has_reason)
    }

    /// The request fields that somebody wants to know, in lower case.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &str> {
        self.wanted.iter().map(AsRef::as_ref)
    }

    /// Tells those who want to know.
    pub(super) fn tell(&self, record: &Record<'_>) {
        let failed = record.has_failed();
        for told in self.all.borrow_mut().iter_mut().filter(|told| failed || !told.only_failures) {
            match record.fields.get(told.fields.clone()) {
                Some(fields) if fields.len() < record.fields.len() => {
                    told.log.request(&Record { fields, ..*record });
                }
                _ => told.log.request(record),
            }
        }
    }

    /// What was held back goes out.
    pub(super) fn flush(&self) {
        for told in self.all.borrow_mut().iter_mut() {
            told.log.flush();
        }
    }
}
