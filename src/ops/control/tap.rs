//! `GET /v1/tap`: what becomes of the requests of one site, as it happens: a line of JSON each.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{find, secrets};
use crate::bounce::Routes;
use crate::table::Action;
use crate::table::taps::{Event, Head, Request, Tap, What};

/// How often it is looked whether the site is still there.
const OFTEN: Duration = Duration::from_secs(1);

/// What somebody watches, as a body without an end.
pub(super) struct Watched {
    tap: Tap,
    routes: Routes,
    site: String,
    what: What,
    shows_secrets: bool,
    look: Interval,
    is_over: bool,
}

impl Watched {
    /// Watches a site.
    pub(super) fn of(routes: &Routes, site: &str, what: What, shows_secrets: bool) -> Result<Self, String> {
        let table = routes.current();
        let line = find::line(&table, site)?;
        if let Action::PassThrough(_) = line.route.action {
            return Err(format!("{} is passed through: only its server can read its requests", line.route.name));
        }
        let mut look = interval(OFTEN);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            tap: line.site.lasting().taps().watch(what),
            routes: routes.clone(),
            site: site.to_owned(),
            what,
            shows_secrets,
            look,
            is_over: false,
        })
    }

    /// Whether the site that is watched is the one that the routes have.
    fn is_there(&self) -> bool {
        let table = self.routes.current();
        find::line(&table, &self.site).is_ok_and(|line| line.site.lasting().taps().has(&self.tap))
    }

    fn missed(&self) -> Option<Value> {
        let missed = self.tap.missed();
        (missed > 0).then(|| json!({ "kind": "missed", "count": missed }))
    }

    fn told(&self, event: &Event) -> Value {
        // Who sees errors only has not seen the request.
        let with = |request: &Request, mut told: Value| {
            if let (What::Errors, Some(told)) = (self.what, told.as_object_mut()) {
                told.insert("request".to_owned(), self.request(request));
            }
            told
        };
        match event {
            Event::Request(request) => self.request(request),
            Event::Response(request, response) => with(
                request,
                json!({
                    "kind": "response", "number": request.number, "status": response.status,
                    "ms": milliseconds(response.after),
                    "backend": request.backend.as_ref().filter(|_| !response.is_own), "reason": response.reason,
                    "head": self.head(&response.head), "left_out": response.head.left_out,
                }),
            ),
            Event::Broken(request, broken) => with(
                request,
                json!({
                    "kind": "broken", "number": request.number, "reason": broken.reason,
                    "ms": milliseconds(broken.after), "answered": broken.was_answered,
                }),
            ),
        }
    }

    fn request(&self, request: &Request) -> Value {
        json!({
            "kind": "request", "number": request.number,
            "time": humantime::format_rfc3339_millis(request.time).to_string(), "client": request.client.to_string(),
            "backend": request.backend, "tries": request.tries, "head": self.head(&request.head),
            "left_out": request.head.left_out,
        })
    }

    /// The lines of a head.
    fn head(&self, head: &Head) -> Vec<String> {
        let text = String::from_utf8_lossy(&head.bytes);
        let lines = text.trim_end_matches("\r\n").split("\r\n");
        lines.map(|line| if self.shows_secrets { line.to_owned() } else { secrets::hidden(line) }).collect()
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        let mut lines: VecDeque<Value> = VecDeque::new();
        match this.tap.poll_next(cx) {
            Poll::Ready(Some(event)) => lines.push_back(this.told(&event)),
            Poll::Ready(None) => this.is_over = true,
            Poll::Pending => {
                // Once more after a tick, to be woken by the next.
                while this.look.poll_tick(cx).is_ready() {
                    this.is_over |= !this.is_there();
                }
            }
        }
        if let Some(missed) = this.missed() {
            lines.push_front(missed);
        }
        if this.is_over {
            lines.push_back(json!({ "kind": "gone" }));
        }
        if lines.is_empty() {
            return Poll::Pending;
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        Poll::Ready(Some(Ok(Frame::data(text.into()))))
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}
