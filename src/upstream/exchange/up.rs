//! The request's direction: client to backend, and what is left of it when nobody wants it any more.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use crate::http::body::{BadBody, Body, ChunkLimits};
use crate::http::head;
use crate::http::refuse::Refusal;
use crate::http::rewrite::{self, Changes, Origin};
use crate::net::haul::{Broken, Haul};
use crate::net::stream::Stream;
use crate::settings::Limits;

use super::{Down, Exchange, Wait, grow_for_more};

/// A body prefix up to this size goes out in the same write as its request head: the copy costs less than a call.
const JOINED: usize = 4 * 1024;

/// What ends the request's direction early.
pub(super) enum UpError {
    /// The backend takes no more.
    Backend,
    ClientGone,
    /// The client closed its side in the middle of the body.
    ClientEnded,
    /// What it sends is not a body, or too much of one.
    Refused(Refusal),
}

impl Exchange {
    /// The head has been read: its body is due next.
    pub(crate) fn expect_body(&mut self, limits: &Limits) {
        self.body = Body::new(self.head.framing, chunk_limits(limits));
        self.head_in_buffer = self.head.length;
        self.counts.received = self.head.length as u64;
    }

    /// Writes the request that goes to the backend.
    pub(crate) fn prepare(&mut self, origin: &Origin, changes: &Changes, limits: &Limits) -> Result<(), Refusal> {
        if limits.body.is_some_and(|most| self.body.left().is_some_and(|left| left > most)) {
            return Err(Refusal::BodyTooLarge);
        }
        self.request.clear();
        rewrite::request(&mut self.request, self.from_client.data(), &self.head, origin, changes);
        if let Some(method) = changes.method() {
            if self.head.is_head {
                return Err(Refusal::BadDecision("HEAD can't become another method: its answer has no body"));
            }
            self.head.is_idempotent = head::is_idempotent(method.as_bytes());
        }
        self.from_client.eat(std::mem::take(&mut self.head_in_buffer));
        let taken = self.body.take(self.from_client.data()).map_err(refusal_of)?;
        self.counts.received += taken as u64;
        self.body_taken = taken;
        if taken <= JOINED {
            self.request.extend_from_slice(&self.from_client.data()[..taken]);
            self.from_client.eat(taken);
            self.body_taken = 0;
        }
        self.replayable = true;
        self.rewind();
        Ok(())
    }

    /// Keeps so many bytes of the request for another try, while they are sent.
    pub(crate) fn keep_for_replay(&mut self, most: usize) {
        self.replay = most;
    }

    /// What has been taken of the body goes behind what is kept for another try, as long as there is room.
    fn keep_taken(&mut self) {
        if self.replayable && self.replay > 0 && self.request.len() + self.body_taken <= self.replay {
            let taken = std::mem::take(&mut self.body_taken);
            self.request.extend_from_slice(&self.from_client.data()[..taken]);
            self.from_client.eat(taken);
        }
    }

    /// Whether all that is left of the body has room behind what is kept.
    fn fits_replay(&self) -> bool {
        let left = self.body.left().and_then(|left| usize::try_from(left).ok());
        self.replayable && left.is_some_and(|left| self.request.len().saturating_add(left) <= self.replay)
    }

    /// The request's head as the client has sent it, until it is written as the backend gets it.
    pub(crate) fn head_bytes(&self) -> Option<&[u8]> {
        (self.head_in_buffer > 0).then(|| &self.from_client.data()[..self.head_in_buffer])
    }

    /// The request as the backend gets it, its head at least.
    pub(crate) fn request_bytes(&self) -> &[u8] {
        &self.request
    }

    /// Whether it may be sent again on another connection, though this one may have brought it to the backend.
    pub(crate) fn may_repeat(&self) -> bool {
        self.replayable && (self.head.is_idempotent || self.request_sent == 0)
    }

    /// Whether it may be sent again to a backend that has not begun with it.
    pub(crate) fn may_begin_again(&self) -> bool {
        self.replayable
    }

    /// Sends the request. Ready when all of it has been sent.
    pub(super) fn poll_up(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        backend: &mut Stream,
    ) -> Poll<Result<(), UpError>> {
        loop {
            self.keep_taken();
            while self.request_sent < self.request.len() {
                let rest = &self.request[self.request_sent..];
                self.request_sent += self.wrote(ready!(backend.poll_write(cx, rest))).map_err(|_| UpError::Backend)?;
            }
            while self.body_taken > 0 {
                let rest = &self.from_client.data()[..self.body_taken];
                let sent = self.wrote(ready!(backend.poll_write(cx, rest))).map_err(|_| UpError::Backend)?;
                self.from_client.eat(sent);
                self.body_taken -= sent;
                self.replayable = false;
            }
            ready!(backend.poll_flush(cx)).map_err(|_| UpError::Backend)?;
            if self.up_haul.is_some() {
                let carried = ready!(self.poll_up_haul(cx, client, backend));
                self.up_haul = None;
                carried?;
            }
            if self.body.is_done() {
                return Poll::Ready(Ok(()));
            }
            if self.from_client.is_empty() {
                self.up_haul = match self.fits_replay() {
                    true => None,
                    false => Haul::of(self.body.left(), client, backend),
                };
                if self.up_haul.is_some() {
                    self.replayable = false;
                    continue;
                }
                let Poll::Ready(read) = client.poll_read(cx, &mut self.from_client) else {
                    if self.down == Down::Head {
                        self.waits_for = Wait::RequestBody;
                    }
                    return Poll::Pending;
                };
                match read {
                    Ok(0) => return Poll::Ready(Err(UpError::ClientEnded)),
                    Ok(_) => self.moved = true,
                    Err(_) => return Poll::Ready(Err(UpError::ClientGone)),
                }
            }
            let taken = self.body.take(self.from_client.data()).map_err(|bad| UpError::Refused(refusal_of(bad)))?;
            self.counts.received += taken as u64;
            self.body_taken = taken;
            grow_for_more(&mut self.from_client, &self.body);
        }
    }

    /// Lets the kernel carry what is left of the body.
    fn poll_up_haul(&mut self, cx: &mut Context<'_>, client: &Stream, backend: &Stream) -> Poll<Result<(), UpError>> {
        let Some(haul) = &mut self.up_haul else {
            return Poll::Ready(Ok(()));
        };
        let (before, mut carried) = (haul.left(), 0);
        let polled = haul.poll(cx, client, backend, &mut carried);
        let left = haul.left();
        self.counts.received += before - left;
        self.moved |= carried > 0 || left < before;
        self.body = if left == 0 { Body::Done } else { Body::Length(left) };
        if polled.is_pending() && !haul.has_more_for_writer() && self.down == Down::Head {
            self.waits_for = Wait::RequestBody;
        }
        polled.map_err(|broken| match broken {
            Broken::Ended => UpError::ClientEnded,
            Broken::Reader => UpError::ClientGone,
            Broken::Writer => UpError::Backend,
        })
    }

    /// While the response is awaited: takes what the client sends ahead, as far as there is room, and notices that it
    /// has gone. Ready when it has closed its side, which is not the same: it still gets its answer.
    pub(super) fn watch_client(&mut self, cx: &mut Context<'_>, client: &mut Stream) -> Poll<io::Result<()>> {
        while !self.from_client.room().is_empty() {
            if ready!(client.poll_read(cx, &mut self.from_client))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Until the client has gone, while its request waits for a backend. One that has closed its side still waits.
    pub(crate) async fn client_goes(&mut self, client: &mut Stream, client_ended: &mut bool) {
        poll_fn(|cx| {
            if !*client_ended {
                match ready!(self.watch_client(cx, client)) {
                    Ok(()) => *client_ended = true,
                    Err(_) => return Poll::Ready(()),
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Whether the request has been read, and taken, to its end.
    pub(crate) fn is_received(&self) -> bool {
        self.body.is_done() && self.head_in_buffer == 0 && self.body_taken == 0
    }

    /// Whether nothing has come behind this request, as far as that is known.
    pub(crate) fn is_last(&self) -> bool {
        self.from_client.len() <= self.head_in_buffer + self.body_taken
    }

    /// Whether what is left of the request body is so little that it can be read and thrown away. A client that waits
    /// for a `100` may never send it, and nobody could tell its body from its next request.
    pub(crate) fn rest_can_be_skipped(&self, limits: &Limits) -> bool {
        let waits = self.head.expects_continue && !self.continued && !self.body.is_done();
        !waits && self.body.left().is_some_and(|left| left <= limits.leftover)
    }

    /// Reads what is left of the request body and throws it away. `false` when that is more than `limits.leftover`,
    /// or not a body, or nothing comes any more.
    pub(crate) async fn skip_body(&mut self, client: &mut Stream, limits: &Limits) -> bool {
        self.from_client.eat(std::mem::take(&mut self.head_in_buffer) + std::mem::take(&mut self.body_taken));
        let mut left = limits.leftover;
        loop {
            let Ok(taken) = self.body.take(self.from_client.data()) else {
                return false;
            };
            self.from_client.eat(taken);
            self.counts.received += taken as u64;
            let Some(rest) = left.checked_sub(taken as u64) else {
                return false;
            };
            left = rest;
            if self.body.is_done() {
                return true;
            }
            if !matches!(poll_fn(|cx| client.poll_read(cx, &mut self.from_client)).await, Ok(1..)) {
                return false;
            }
        }
    }
}

fn refusal_of(bad: BadBody) -> Refusal {
    match bad {
        BadBody::TOO_LARGE => Refusal::BodyTooLarge,
        BadBody(why) => Refusal::MalformedBody(why),
    }
}

fn chunk_limits(limits: &Limits) -> ChunkLimits {
    ChunkLimits { line: limits.chunk_line, trailers: limits.head, content: limits.body }
}
