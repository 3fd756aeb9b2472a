//! One request over a shared HTTP/2 connection, as a backend's connection on which HTTP/1 is spoken.
//!
//! What is written to it is our own request, read by the rules that all requests are read by; what is read from it is the
//! response, translated, which is then judged like any backend's. Dropped early, it resets its stream: a client that has
//! gone ends the backend's work at once.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::header::{self, HeaderValue};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::body::{Body, ChunkLimits};
use crate::http::field::Kind;
use crate::http::head::{Parsed, RequestHead};
use crate::http2::incoming::{Form, Incoming};
use crate::http2::outgoing::Outgoing;
use crate::http2::{broken, fields, gone};
use crate::settings::{Limits, MOST_FIELDS};
use crate::upstream::exchange::NotBegun;

use super::{Line, SUSPICIOUS};

/// One request and its response.
pub(super) struct Crossing {
    up: Up,
    down: Down,
    response: Incoming,
    to_head: bool,
    line: Rc<Line>,
    since: Instant,
}

/// The request's direction.
enum Up {
    /// Not begun; what has been written of its head.
    Head(SendRequest<Bytes>, Vec<u8>),
    Body(Outgoing),
}

/// The response's direction.
enum Down {
    Nothing,
    Head(ResponseFuture),
    Body,
}

impl Crossing {
    pub(super) fn new(line: Rc<Line>) -> Self {
        line.begins();
        let send = line.send.borrow().clone();
        Self {
            up: Up::Head(send, Vec::new()),
            down: Down::Nothing,
            response: Incoming::new(),
            to_head: false,
            line,
            since: Instant::now(),
        }
    }

    fn poll_request(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let (send, partial) = match &mut self.up {
            Up::Body(out) => return out.poll_take(cx, bytes),
            Up::Head(send, partial) => (send, partial),
        };
        ready!(send.poll_ready(cx)).map_err(broken)?;
        partial.extend_from_slice(bytes);
        let whole = std::mem::take(partial);
        let mut head = RequestHead::default();
        match head.parse(&whole, &unlimited()) {
            Ok(Parsed::Whole) => {}
            Ok(Parsed::Partial) => {
                *partial = whole;
                return Poll::Ready(Ok(bytes.len()));
            }
            Err(refusal) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal.to_string()))),
        }
        let scheme = if self.line.https { Scheme::HTTPS } else { Scheme::HTTP };
        let request = request(&head, &whole, scheme, &self.line.authority).ok_or_else(gone)?;
        let body = Body::new(head.framing, ChunkLimits::of_response(&unlimited()));
        let (response, send) = send.send_request(request, body.is_done()).map_err(broken)?;
        let mut out = Outgoing::new(send, body);
        let mut rest = &whole[head.length..];
        while !rest.is_empty() {
            rest = &rest[out.take(rest)?..];
        }
        self.to_head = head.is_head;
        self.up = Up::Body(out);
        self.down = Down::Head(response);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_response(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        loop {
            match self.response.poll_read(cx, room) {
                Poll::Ready(Ok(_)) if room.filled().len() > before => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
            match &mut self.down {
                // Whoever sends the request is woken when there is room for it.
                Down::Nothing => return Poll::Pending,
                Down::Body => return Poll::Ready(Ok(())),
                Down::Head(future) => {
                    if let Poll::Ready(Some(interim)) = future.poll_informational(cx) {
                        say(self.response.say(), &interim.map_err(explained)?);
                        self.response.say().extend_from_slice(b"\r\n");
                        continue;
                    }
                    let response = ready!(Pin::new(future).poll(cx)).map_err(explained)?;
                    self.begin(response)?;
                }
            }
        }
    }

    /// Reads on with a response whose head has come.
    fn begin(&mut self, response: Response<RecvStream>) -> io::Result<()> {
        let (status, ends) = (response.status(), response.body().is_end_stream());
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "HTTP/2 has no 101"));
        }
        let sized = response.headers().contains_key(header::CONTENT_LENGTH);
        let bare = self.to_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let text = self.response.say();
        say(text, &response);
        let form = match (bare, ends, sized) {
            (true, ..) => Form::Ended,
            (false, _, true) => Form::Plain,
            (false, true, false) => {
                fields::line(text, b"content-length", b"0");
                Form::Ended
            }
            (false, false, false) => {
                fields::line(text, b"transfer-encoding", b"chunked");
                Form::Chunked
            }
        };
        text.extend_from_slice(b"\r\n");
        self.response.begin(response.into_body(), form);
        self.down = Down::Body;
        Ok(())
    }
}

impl AsyncRead for Crossing {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_response(cx, room)
    }
}

impl AsyncWrite for Crossing {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_request(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        if let Up::Body(out) = &mut self.up {
            out.reset(Reason::CANCEL);
        }
        let suspicious = SUSPICIOUS.min(self.line.settings.timeouts.response_head);
        self.line.ends(matches!(self.down, Down::Head(_)) && self.since.elapsed() >= suspicious);
    }
}

impl fmt::Debug for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crossing").finish_non_exhaustive()
    }
}

/// Our request as HTTP/2 has it; `bytes` are those that the head was read from.
fn request(head: &RequestHead, bytes: &[u8], scheme: Scheme, default: &str) -> Option<Request<()>> {
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(head.host_text(bytes).unwrap_or(default.as_bytes()))
        .path_and_query(PathAndQuery::try_from(head.target(bytes)).ok()?);
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method(bytes)).ok()?;
    *request.uri_mut() = uri.build().ok()?;
    fields::of_head(request.headers_mut(), &head.fields, bytes, |kind| kind != Kind::Host)?;
    // We do take them, whether or not the client does; servers of gRPC insist on it.
    request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    Some(request)
}

/// Writes the lines of a head, without the empty one.
fn say<T>(out: &mut Vec<u8>, response: &Response<T>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(response.status().as_str().as_bytes());
    out.extend_from_slice(b" \r\n");
    for (name, value) in response.headers() {
        fields::line(out, name.as_str().as_bytes(), value.as_bytes());
    }
}

/// The error of a response that does not come. What the backend has not begun with may be sent again, whatever it asks.
fn explained(error: h2::Error) -> io::Error {
    let reason = error.reason();
    let refused = error.is_reset() && reason == Some(Reason::REFUSED_STREAM);
    let leaving = error.is_go_away() && reason == Some(Reason::NO_ERROR);
    match error.is_remote() && (refused || leaving) {
        true => io::Error::new(io::ErrorKind::ConnectionReset, NotBegun),
        false => broken(error),
    }
}

/// For our own request, which has been within limits before fields of ours were added.
fn unlimited() -> Limits {
    Limits {
        head: usize::MAX >> 1,
        target: usize::MAX >> 1,
        fields: MOST_FIELDS,
        response_head: usize::MAX >> 1,
        chunk_line: usize::MAX >> 1,
        ..Limits::default()
    }
}
