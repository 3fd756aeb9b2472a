//! One HTTP/2 stream, as a connection on which a client speaks HTTP/1.
//!
//! What is read from it is the request, translated; what is written to it is read as an HTTP/1 response, by the rules that
//! all responses are read by, and goes out in frames.
//!
//! A bridge that is dropped before its response is whole resets its stream: a broken body never gets a clean end.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::conn::http1::Foreknown;
use crate::conn::worker::Worker;
use crate::http::body::{Body, ChunkLimits};
use crate::http::head::Parsed;
use crate::http::response::ResponseHead;
use crate::http2::incoming::{Form, Incoming};
use crate::http2::outgoing::Outgoing;
use crate::http2::{broken, fields, gone};

use super::Streams;
use super::request::{self, Shape};

/// One request and its response.
pub(super) struct Bridge {
    request: Incoming,
    response: Down,
    to_head: bool,
    /// It is a WebSocket, as far as is known.
    websocket: bool,
    streams: Rc<Streams>,
    worker: Rc<Worker>,
}

/// The response's direction.
enum Down {
    /// No final head yet; what has been written of it.
    Head(SendResponse<Bytes>, Vec<u8>),
    Body(Outgoing),
    /// What was written is no response, or the client did not take it.
    Broken,
}

impl Bridge {
    pub(super) fn new(
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        streams: Rc<Streams>,
        worker: Rc<Worker>,
    ) -> (Self, Foreknown) {
        let (parts, body) = request.into_parts();
        let mut request = Incoming::new();
        let mut foreknown = Foreknown { is_http2: true, ..Foreknown::default() };
        let form = match request::write(request.say(), &parts, body.is_end_stream()) {
            Ok(Shape::Bare) => Form::Ended,
            Ok(Shape::Sized) => Form::Plain,
            Ok(Shape::Chunked) => Form::Chunked,
            Ok(Shape::WebSocket(accept)) => {
                foreknown.accept = Some(accept);
                Form::Plain
            }
            Err(refusal) => {
                foreknown.refused = Some(refusal);
                Form::Ended
            }
        };
        request.begin(body, form);
        let bridge = Self {
            request,
            response: Down::Head(respond, Vec::new()),
            to_head: parts.method == Method::HEAD,
            websocket: foreknown.accept.is_some(),
            streams,
            worker,
        };
        (bridge, foreknown)
    }

    /// Whether the response has been sent whole.
    fn is_answered(&self) -> bool {
        matches!(&self.response, Down::Body(out) if out.is_ended())
    }

    /// Ready when the client has taken its request back, or its connection is gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.response {
            Down::Head(respond, _) => respond.poll_reset(cx).map(drop),
            Down::Body(out) => out.poll_reset(cx),
            Down::Broken => Poll::Ready(()),
        }
    }

    /// Takes some of a response. Gives how much.
    fn poll_response(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.response {
            Down::Head(_, partial) if partial.is_empty() => Poll::Ready(self.take_head(bytes)),
            Down::Head(_, partial) => {
                partial.extend_from_slice(bytes);
                let whole = std::mem::take(partial);
                let mut rest = &whole[..];
                while !rest.is_empty() {
                    let taken = match &mut self.response {
                        Down::Body(out) => out.take(rest)?,
                        _ => self.take_head(rest)?,
                    };
                    rest = &rest[taken..];
                }
                Poll::Ready(Ok(bytes.len()))
            }
            Down::Body(out) => out.poll_take(cx, bytes),
            Down::Broken => Poll::Ready(Err(gone())),
        }
    }

    /// Reads a head at the front of `bytes`, sends it, and gives its length. What is not whole is kept.
    fn take_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Down::Head(respond, partial) = &mut self.response else {
            return Err(gone());
        };
        let limits = &self.worker.shared.settings.limits;
        let head = &mut *self.streams.response.borrow_mut();
        match head.parse(bytes, self.to_head, limits) {
            Ok(Parsed::Whole) => {}
            Ok(Parsed::Partial) => {
                partial.extend_from_slice(bytes);
                return Ok(bytes.len());
            }
            Err(_) => return Err(garbled()),
        }
        let mut response = response(head, bytes).ok_or_else(garbled)?;
        if head.is_interim() {
            respond.send_informational(response).map_err(broken)?;
            return Ok(head.length);
        }
        self.websocket &= head.status == 101;
        if self.websocket {
            // RFC 8441 section 5: the answer to an extended CONNECT is 200, and HTTP/2 knows no switch.
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().remove(http::header::SEC_WEBSOCKET_ACCEPT);
            self.response = Down::Body(Outgoing::tunnel(respond.send_response(response, false).map_err(broken)?));
        } else {
            let body = Body::new(head.framing, ChunkLimits::of_response(limits));
            let send = respond.send_response(response, body.is_done()).map_err(broken)?;
            self.response = Down::Body(Outgoing::new(send, body));
        }
        Ok(head.length)
    }
}

impl AsyncRead for Bridge {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let bridge = self.get_mut();
        // Nobody needs the rest of a request that has been answered.
        if bridge.is_answered() && !bridge.websocket {
            return Poll::Ready(Ok(()));
        }
        match ready!(bridge.request.poll_read(cx, room))? {
            // The client waits for its answer. All that it can do is to go away, which is no end of HTTP/1's kind.
            false if !bridge.websocket => bridge.poll_gone(cx).map(|()| Err(gone())),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Bridge {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let bridge = self.get_mut();
        let polled = bridge.poll_response(cx, bytes);
        if let Poll::Ready(Err(_)) = polled {
            bridge.break_off();
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().response {
            Down::Body(out) => Poll::Ready(out.finish()),
            Down::Head(..) | Down::Broken => Poll::Ready(Ok(())),
        }
    }
}

impl Bridge {
    /// Lets the client know that no whole response will come.
    fn break_off(&mut self) {
        match std::mem::replace(&mut self.response, Down::Broken) {
            Down::Head(mut respond, _) => respond.send_reset(Reason::INTERNAL_ERROR),
            Down::Body(mut out) => out.reset(Reason::INTERNAL_ERROR),
            Down::Broken => {}
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        match self.is_answered() {
            true => self.streams.answered(),
            false if self.poll_gone(&mut Context::from_waker(Waker::noop())).is_ready() => self.streams.taken_back(),
            false => {}
        }
        self.break_off();
    }
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bridge").finish_non_exhaustive()
    }
}

/// A response's head as HTTP/2 has it.
fn response(head: &ResponseHead, bytes: &[u8]) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status).ok()?;
    fields::of_head(response.headers_mut(), &head.fields, bytes, |_| true)?;
    Some(response)
}

/// Those who write have looked at it, so this does not happen.
fn garbled() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a response that HTTP/2 can carry")
}
