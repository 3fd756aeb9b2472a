//! The response's direction: backend to client.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use crate::http::body::{BadBody, Body, ChunkLimits, Framing};
use crate::http::head::Parsed;
use crate::http::refuse::{Cut, Refusal};
use crate::http::rewrite::{self, Added, Persistence};
use crate::net::haul::{Broken, Haul};
use crate::net::stream::{Stream, is_alert};
use crate::settings::Limits;

use super::{Down, Ended, Exchange, NotBegun, Up, Wait, grow_for_more};

impl Exchange {
    /// Brings the response. Ready when the exchange is over.
    pub(super) fn poll_down(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut Stream,
        client_ended: bool,
        backend: &mut Stream,
        draining: bool,
        limits: &Limits,
    ) -> Poll<Ended> {
        loop {
            match self.flush(cx, client) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(self.cut(Cut::ClientGone)),
                Poll::Pending => {
                    self.waits_for = Wait::Client;
                    return Poll::Pending;
                }
            }
            match self.down {
                Down::Head => {
                    if !self.from_backend.is_empty() {
                        match self.read_head(client_ended, draining, limits) {
                            Ok(Parsed::Whole) if self.is_declined() => return Poll::Ready(Ended::Declined),
                            Ok(Parsed::Whole) => continue,
                            Ok(Parsed::Partial) => {}
                            Err(refusal) => return Poll::Ready(Ended::Refused(refusal)),
                        }
                    }
                    if !self.from_backend.make_room(limits.response_head) {
                        return Poll::Ready(Ended::Refused(Refusal::BackendHeadTooLarge));
                    }
                    match ready!(backend.poll_read(cx, &mut self.from_backend)) {
                        Ok(0) => return Poll::Ready(self.ended_early()),
                        Err(error) if error.get_ref().is_some_and(|why| why.is::<NotBegun>()) => {
                            return Poll::Ready(Ended::Untouched);
                        }
                        Err(error) => {
                            self.alerted = is_alert(&error);
                            return Poll::Ready(self.ended_early());
                        }
                        Ok(_) => {
                            self.moved = true;
                            if self.is_timed && !self.is_answered {
                                self.counts.first_byte = Some(Instant::now());
                                self.counts.at_once = true;
                            }
                            self.is_answered = true;
                        }
                    }
                }
                Down::Body if self.response_body.is_done() => {
                    return Poll::Ready(Ended::Whole {
                        keep_client: self.keep_client,
                        keep_backend: self.response.keep_alive
                            && self.up == Up::Done
                            // What a backend sends unasked is nobody's response.
                            && self.from_backend.is_empty(),
                    });
                }
                Down::Body if self.down_haul.is_some() => match ready!(self.poll_down_haul(cx, client, backend)) {
                    Ok(()) => self.response_body = Body::Done,
                    Err(Broken::Writer) => return Poll::Ready(self.cut(Cut::ClientGone)),
                    Err(Broken::Reader | Broken::Ended) => return Poll::Ready(self.cut(Cut::BackendClosed)),
                },
                Down::Body => {
                    if self.from_backend.is_empty() {
                        self.waits_for = Wait::ResponseBody;
                        self.down_haul = Haul::of(self.response_body.left(), backend, client);
                        if self.down_haul.is_some() {
                            continue;
                        }
                        match ready!(backend.poll_read(cx, &mut self.from_backend)) {
                            Ok(0) if self.response_body.may_end_here() => {
                                self.response_body = Body::Done;
                                continue;
                            }
                            Ok(0) | Err(_) => return Poll::Ready(self.cut(Cut::BackendClosed)),
                            Ok(_) => self.moved = true,
                        }
                    }
                    if self.take_response_body().is_err() {
                        return Poll::Ready(self.cut(Cut::BackendGarbled));
                    }
                }
                Down::Switched => return Poll::Ready(Ended::Switched),
            }
        }
    }

    /// Lets the kernel carry what is left of the response body.
    fn poll_down_haul(&mut self, cx: &mut Context<'_>, client: &Stream, backend: &Stream) -> Poll<Result<(), Broken>> {
        let Some(haul) = &mut self.down_haul else {
            return Poll::Ready(Ok(()));
        };
        let (before, mut carried) = (haul.left(), 0);
        let polled = haul.poll(cx, backend, client, &mut carried);
        self.counts.sent += carried;
        self.moved |= carried > 0 || haul.left() < before;
        self.waits_for = if haul.has_more_for_writer() { Wait::Client } else { Wait::ResponseBody };
        if polled.is_ready() {
            self.down_haul = None;
        }
        polled
    }

    /// Writes to the client what is on its way there.
    fn flush(&mut self, cx: &mut Context<'_>, client: &mut Stream) -> Poll<io::Result<()>> {
        while self.made_sent < self.made.len() {
            let sent = self.wrote(ready!(client.poll_write(cx, &self.made[self.made_sent..])))?;
            self.made_sent += sent;
            self.counts.sent += sent as u64;
        }
        if self.made_sent > 0 {
            self.made.clear();
            self.made_sent = 0;
        }
        while self.response_taken > 0 {
            let rest = &self.from_backend.data()[..self.response_taken];
            let sent = self.wrote(ready!(client.poll_write(cx, rest)))?;
            self.from_backend.eat(sent);
            self.response_taken -= sent;
            self.counts.sent += sent as u64;
        }
        client.poll_flush(cx)
    }

    /// Tries to read a response head, and decides what becomes of it.
    fn read_head(&mut self, client_ended: bool, draining: bool, limits: &Limits) -> Result<Parsed, Refusal> {
        let parsed = self.response.parse(self.from_backend.data(), self.head.is_head, limits)?;
        if parsed == Parsed::Partial {
            return Ok(parsed);
        }
        self.expects_switch()?;
        if self.is_declined() {
            return Ok(parsed);
        }
        if self.response.is_interim() {
            self.pass_interim();
        } else if self.response.status == 101 {
            self.switch()?;
        } else {
            self.pass_head(client_ended, draining, limits)?;
        }
        Ok(Parsed::Whole)
    }

    /// Whether the response whose head has been read is not passed on.
    fn is_declined(&self) -> bool {
        let Some(retries) = &self.declines else { return false };
        self.down == Down::Head && retries.statuses.contains(&self.response.status) && self.may_repeat()
    }

    /// 1xx goes through to those who know it (RFC 9110 section 15.2), and the head proper is still to come.
    fn pass_interim(&mut self) {
        let length = self.response.length;
        let was_said = self.continued && self.response.status == 100;
        // Who has been told to go on has sent what a second try brings to another backend, and need not hear it again.
        if self.head.minor == 1 && !was_said {
            let head = &self.from_backend.data()[..length];
            if !rewrite::response(&mut self.made, head, &self.response, Persistence::Silent, false, Added::default()) {
                self.made.extend_from_slice(head);
            }
            self.continued |= self.response.status == 100;
        }
        self.from_backend.eat(length);
    }

    /// A 101 that was asked for, after a request that has been sent whole (RFC 9110 section 15.2.2).
    fn switch(&mut self) -> Result<(), Refusal> {
        if !self.head.upgrade || !self.response.upgrade || self.up != Up::Done {
            return Err(Refusal::BackendGarbled("the site's server switched protocols without being asked"));
        }
        let length = self.replace_head(Persistence::Upgrade, false);
        self.tell_response(length);
        self.response_taken = self.from_backend.len();
        self.counts.status = 101;
        self.down = Down::Switched;
        Ok(())
    }

    /// To a client that can't see the handshake, success is the switch that was asked for and nothing else.
    fn expects_switch(&self) -> Result<(), Refusal> {
        let Some(accept) = &self.accept else {
            return Ok(());
        };
        let response = &self.response;
        match response.status {
            101 if response.websocket_accept(self.from_backend.data()) != Some(accept) => {
                Err(Refusal::BackendGarbled("the site's server did not understand the WebSocket's key"))
            }
            200..300 => Err(Refusal::BackendGarbled("the site's server did not switch to a WebSocket")),
            _ => Ok(()),
        }
    }

    fn pass_head(&mut self, client_ended: bool, draining: bool, limits: &Limits) -> Result<(), Refusal> {
        let framing = self.response.framing;
        let dechunk = rewrite::must_dechunk(framing, self.head.minor);
        self.ends_by_close = framing == Framing::UntilClose || dechunk;
        let nothing_follows = client_ended && self.is_last();
        self.keep_client = self.head.keep_alive
            && !self.ends_by_close
            && !nothing_follows
            && !draining
            && self.rest_can_be_skipped(limits);
        let persistence = match self.keep_client {
            false => Persistence::Close,
            true if self.head.minor == 0 => Persistence::KeepAlive,
            true => Persistence::Silent,
        };
        let length = self.replace_head(persistence, dechunk);
        self.response_body = Body::new(framing, ChunkLimits::of_response(limits));
        let body = &self.from_backend.data()[length..];
        let taken = match dechunk {
            true => 0,
            false => self.response_body.take(body).map_err(|bad| Refusal::BackendGarbled(bad.0))?,
        };
        self.response_taken = length + taken;
        self.counts.status = self.response.status;
        self.counts.sent_head += length as u64;
        self.tell_response(length);
        self.down = Down::Body;
        Ok(())
    }

    /// Tells those who watch of the head that goes to the client.
    fn tell_response(&mut self, length: usize) {
        if let Some(tap) = &mut self.tap {
            tap.response(&self.from_backend.data()[..length], self.response.status);
        }
    }

    /// Puts the head as the client gets it in front of what follows it; gives its length.
    fn replace_head(&mut self, persistence: Persistence, dechunk: bool) -> usize {
        let length = self.response.length;
        let head = &self.from_backend.data()[..length];
        self.made.clear();
        let added = Added { hsts: self.hsts.as_deref(), session: self.session.as_deref() };
        if !rewrite::response(&mut self.made, head, &self.response, persistence, dechunk, added) {
            return length;
        }
        self.from_backend.replace_front(length, &self.made);
        let length = self.made.len();
        self.made.clear();
        length
    }

    /// Looks for the response's end in what has come.
    fn take_response_body(&mut self) -> Result<(), BadBody> {
        let bytes = self.from_backend.data();
        if rewrite::must_dechunk(self.response.framing, self.head.minor) {
            let taken = self.response_body.decode(bytes, &mut self.made)?;
            self.from_backend.eat(taken);
        } else {
            self.response_taken = self.response_body.take(bytes)?;
            grow_for_more(&mut self.from_backend, &self.response_body);
        }
        Ok(())
    }

    /// The backend's connection ended where its head should have been.
    fn ended_early(&self) -> Ended {
        match self.is_answered {
            false => Ended::Stale,
            true => Ended::Refused(Refusal::BackendClosedMidHead),
        }
    }
}
