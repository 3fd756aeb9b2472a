//! A request that somebody watches, from its head to its end: tells [`Taps`](crate::table::taps::Taps) what becomes of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::table::backend::Backend;
use crate::table::duty::Lasting;
use crate::table::taps::{Broken, Event, Head, Request, Response, Watchers};

/// One request that is watched.
#[derive(Debug)]
pub(crate) struct Tapped {
    watchers: Arc<Watchers>,
    number: u64,
    time: SystemTime,
    started: Instant,
    client: SocketAddr,
    /// As it was told of last.
    request: Option<Arc<Request>>,
    /// Why we answer it by ourselves.
    reason: Option<&'static str>,
    was_answered: bool,
}

impl Tapped {
    /// A request of this site, where somebody watches. `before` is what it was when it was looked at before.
    pub(crate) fn of(site: &Lasting, client: SocketAddr, before: Option<Box<Self>>) -> Option<Box<Self>> {
        let watchers = site.taps().watchers()?;
        let before = before.filter(|before| Arc::ptr_eq(&before.watchers, watchers));
        if before.is_some() {
            return before;
        }
        // Boxed: room for it is made where it is needed, and nowhere else.
        Some(Box::new(Self {
            watchers: Arc::clone(watchers),
            number: watchers.number(),
            time: SystemTime::now(),
            started: Instant::now(),
            client,
            request: None,
            reason: None,
            was_answered: false,
        }))
    }

    /// It goes to this instance. `head` is what begins with its head.
    pub(crate) fn request(&mut self, head: &[u8], backend: Option<&Backend>) {
        let tries = self.request.as_ref().map_or(0, |request| request.tries);
        let request = Arc::new(Request {
            number: self.number,
            time: self.time,
            client: self.client,
            backend: backend.map(ToString::to_string),
            tries: tries + u32::from(backend.is_some()),
            head: Head::at(head),
        });
        self.request = Some(Arc::clone(&request));
        self.watchers.tell(&Event::Request(request));
    }

    /// We will answer it by ourselves, for this reason.
    pub(crate) fn fails(&mut self, reason: &'static str) {
        self.reason = Some(reason);
    }

    /// We answer it by ourselves. `request` is its head as far as it has got.
    pub(crate) fn answer(&mut self, request: &[u8], head: &[u8], status: u16) {
        if self.request.is_none() {
            self.request(request, None);
        }
        self.respond(head, status, true);
    }

    /// The instance has answered.
    pub(crate) fn response(&mut self, head: &[u8], status: u16) {
        self.respond(head, status, false);
    }

    fn respond(&mut self, head: &[u8], status: u16, is_own: bool) {
        self.was_answered = true;
        let Some(request) = self.request.clone() else { return };
        let (after, reason) = (self.started.elapsed(), self.reason);
        let response = Response { status, after, is_own, reason, head: Head::at(head) };
        self.watchers.tell(&Event::Response(request, Arc::new(response)));
    }

    /// It is over, and this has gone wrong with it.
    pub(crate) fn end(mut self, request: &[u8], reason: Option<&'static str>) {
        // What we have answered with is known.
        let Some(reason) = reason.filter(|reason| self.reason != Some(reason)) else { return };
        if self.request.is_none() {
            self.request(request, None);
        }
        let Some(request) = self.request else { return };
        let broken = Broken { reason, after: self.started.elapsed(), was_answered: self.was_answered };
        self.watchers.tell(&Event::Broken(request, broken));
    }
}
