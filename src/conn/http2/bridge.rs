//! One HTTP/2 stream, as a connection on which a client speaks HTTP/1.
//!
//! What is read from it is the request, translated; what is written to it is read as an HTTP/1 response, by the rules that
//! all responses are read by, and goes out in frames. Nothing is held but what HTTP/2 can't take yet: a frame of the
//! client's waits until it is read, and a write waits until the client has room for it.
//!
//! A bridge that is dropped before its response is whole resets its stream: a broken body never gets a clean end.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::conn::http1::Foreknown;
use crate::conn::worker::Worker;
use crate::http::body::{Body, ChunkLimits};
use crate::http::field::Kind;
use crate::http::head::Parsed;
use crate::http::response::ResponseHead;

use super::Streams;
use super::request::{self, Shape};

/// One request and its response.
pub(super) struct Bridge {
    up: Up,
    /// Text of HTTP/1 that is to be read next: the head, a chunk's border, the trailers.
    text: Vec<u8>,
    text_read: usize,
    /// What has not been read of a frame.
    data: Bytes,
    body: RecvStream,

    down: Down,
    to_head: bool,
    /// It is a WebSocket, as far as is known.
    websocket: bool,
    streams: Rc<Streams>,
    worker: Rc<Worker>,
}

/// The request's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Up {
    /// Bytes as they come: a body whose length is known, or a tunnel.
    Plain,
    Chunked,
    Ended,
}

/// The response's direction.
enum Down {
    /// No final head yet; what has been written of it.
    Head(SendResponse<Bytes>, Vec<u8>),
    Body(SendStream<Bytes>, Body, Vec<u8>),
    Tunnel(SendStream<Bytes>),
    Ended,
    /// The client does not want it any more, or what was written is no response.
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
        let mut text = Vec::with_capacity(512);
        let mut foreknown = Foreknown::default();
        let up = match request::write(&mut text, &parts, body.is_end_stream()) {
            Ok(Shape::Bare) => Up::Ended,
            Ok(Shape::Sized) => Up::Plain,
            Ok(Shape::Chunked) => Up::Chunked,
            Ok(Shape::WebSocket(accept)) => {
                foreknown.accept = Some(accept);
                Up::Plain
            }
            Err(refusal) => {
                foreknown.refused = Some(refusal);
                Up::Ended
            }
        };
        let bridge = Self {
            up,
            text,
            text_read: 0,
            data: Bytes::new(),
            body,
            down: Down::Head(respond, Vec::new()),
            to_head: parts.method == Method::HEAD,
            websocket: foreknown.accept.is_some(),
            streams,
            worker,
        };
        (bridge, foreknown)
    }

    /// Puts as much into the room as is there. Ready when that is anything, or when nothing more will come.
    fn poll_request(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        loop {
            if self.text_read < self.text.len() {
                self.text_read += fill(room, &self.text[self.text_read..]);
            } else if !self.data.is_empty() {
                let count = fill(room, &self.data);
                self.data = self.data.split_off(count);
                // The client may send as much again.
                self.body.flow_control().release_capacity(count).map_err(broken)?;
                if self.data.is_empty() && self.up == Up::Chunked {
                    self.say(b"\r\n");
                }
            } else {
                match self.poll_frame(cx) {
                    Poll::Ready(Ok(true)) => {}
                    Poll::Ready(Ok(false)) => return Poll::Ready(Ok(())),
                    _ if room.filled().len() > before => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if room.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes the next frame of the body. `false` when nothing more will come.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.up == Up::Ended {
            return match self.websocket {
                true => Poll::Ready(Ok(false)),
                // The client waits for its answer. That is all that it can do, but for going away.
                false => self.poll_gone(cx).map(|()| Err(gone())),
            };
        }
        match ready!(self.body.poll_data(cx)) {
            Some(data) => {
                self.data = data.map_err(broken)?;
                if self.up == Up::Chunked && !self.data.is_empty() {
                    self.say(format!("{:x}\r\n", self.data.len()).as_bytes());
                }
            }
            None => {
                let trailers = ready!(self.body.poll_trailers(cx)).map_err(broken)?;
                if self.up == Up::Chunked {
                    self.say(b"0\r\n");
                    request::trailers(&mut self.text, &trailers.unwrap_or_default());
                    self.text.extend_from_slice(b"\r\n");
                }
                self.up = Up::Ended;
            }
        }
        Poll::Ready(Ok(true))
    }

    /// Ready when the client has taken its request back, or the connection is gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.down {
            Down::Head(respond, _) => respond.poll_reset(cx).map(drop),
            Down::Body(send, ..) | Down::Tunnel(send) => send.poll_reset(cx).map(drop),
            Down::Ended | Down::Broken => Poll::Ready(()),
        }
    }

    fn say(&mut self, text: &[u8]) {
        self.text.clear();
        self.text_read = 0;
        self.text.extend_from_slice(text);
    }

    /// Takes some of a response. Gives how much.
    fn poll_response(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.down {
            Down::Head(_, partial) if partial.is_empty() => Poll::Ready(self.take_head(bytes)),
            Down::Head(_, partial) => {
                partial.extend_from_slice(bytes);
                let whole = std::mem::take(partial);
                let mut rest = &whole[..];
                while !rest.is_empty() {
                    let taken = match self.down {
                        Down::Head(..) => self.take_head(rest)?,
                        _ => self.take_body(rest)?,
                    };
                    rest = &rest[taken..];
                }
                Poll::Ready(Ok(bytes.len()))
            }
            Down::Body(send, ..) | Down::Tunnel(send) => {
                ready!(poll_room(send, cx))?;
                Poll::Ready(self.take_body(bytes))
            }
            Down::Ended | Down::Broken => Poll::Ready(Err(gone())),
        }
    }

    /// Reads a head at the front of `bytes`, sends it, and gives its length. What is not whole is kept.
    fn take_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Down::Head(respond, partial) = &mut self.down else {
            return Err(gone());
        };
        let streams = Rc::clone(&self.streams);
        let head = &mut *streams.response.borrow_mut();
        match head.parse(bytes, self.to_head, &self.worker.shared.settings.limits) {
            Ok(Parsed::Whole) => {}
            Ok(Parsed::Partial) => {
                partial.extend_from_slice(bytes);
                return Ok(bytes.len());
            }
            Err(_) => return Err(self.garbled()),
        }
        let Some(mut response) = response(head, bytes) else {
            return Err(self.garbled());
        };
        if head.is_interim() {
            respond.send_informational(response).map_err(broken)?;
            return Ok(head.length);
        }
        if head.status == 101 && self.websocket {
            // RFC 8441 section 5: the answer to an extended CONNECT is 200, and HTTP/2 knows no switch.
            *response.status_mut() = StatusCode::OK;
            response.headers_mut().remove(http::header::SEC_WEBSOCKET_ACCEPT);
            let send = respond.send_response(response, false).map_err(broken)?;
            self.down = Down::Tunnel(send);
            return Ok(head.length);
        }
        // An answer like any other, though a WebSocket was asked for.
        self.websocket = false;
        let body = Body::new(head.framing, ChunkLimits::of_response(&self.worker.shared.settings.limits));
        let send = respond.send_response(response, body.is_done()).map_err(broken)?;
        match body.is_done() {
            true => self.end(),
            false => self.down = Down::Body(send, body, Vec::new()),
        }
        Ok(head.length)
    }

    /// Sends bytes of a body, all of them at once: there was room for some, and h2 holds the rest.
    fn take_body(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.down {
            Down::Tunnel(send) => {
                send.send_data(Bytes::copy_from_slice(bytes), false).map_err(broken)?;
                Ok(bytes.len())
            }
            Down::Body(send, body @ Body::Chunked(_), trailers) => {
                let mut data = Vec::new();
                let Ok(taken) = body.decode_all(bytes, &mut data, trailers) else {
                    return Err(self.garbled());
                };
                let ends = body.is_done();
                let trailing = ends && !trailers.is_empty();
                if !data.is_empty() || ends && !trailing {
                    send.send_data(data.into(), ends && !trailing).map_err(broken)?;
                }
                if trailing {
                    send.send_trailers(trailing_fields(trailers)).map_err(broken)?;
                }
                if ends {
                    self.end();
                }
                Ok(taken)
            }
            Down::Body(send, body, _) => {
                let Ok(taken) = body.take(bytes) else {
                    return Err(self.garbled());
                };
                send.send_data(Bytes::copy_from_slice(&bytes[..taken]), body.is_done()).map_err(broken)?;
                if body.is_done() {
                    self.end();
                }
                Ok(taken)
            }
            Down::Head(..) | Down::Ended | Down::Broken => Err(gone()),
        }
    }

    /// The response has been sent whole.
    fn end(&mut self) {
        self.down = Down::Ended;
        self.streams.answered();
    }

    /// What is written is no response: those who write have looked at it, so this does not happen.
    fn garbled(&self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, "not a response that HTTP/2 can carry")
    }
}

impl AsyncRead for Bridge {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let bridge = self.get_mut();
        match bridge.down {
            // Nobody needs the rest of a request that has been answered.
            Down::Ended if !bridge.websocket => Poll::Ready(Ok(())),
            Down::Broken => Poll::Ready(Err(gone())),
            _ => bridge.poll_request(cx, room),
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

    /// The end of what is written: of a tunnel, or of a body that ends with its connection.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let bridge = self.get_mut();
        if let Down::Body(send, Body::UntilClose, _) | Down::Tunnel(send) = &mut bridge.down {
            let ended = send.send_data(Bytes::new(), true);
            bridge.end();
            ended.map_err(broken)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Bridge {
    /// Lets the client know that no whole response will come.
    fn break_off(&mut self) {
        match std::mem::replace(&mut self.down, Down::Broken) {
            Down::Head(mut respond, _) => respond.send_reset(Reason::INTERNAL_ERROR),
            Down::Body(mut send, ..) | Down::Tunnel(mut send) => send.send_reset(Reason::INTERNAL_ERROR),
            Down::Ended => self.down = Down::Ended,
            Down::Broken => {}
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let waker = std::task::Waker::noop();
        let gone = !matches!(self.down, Down::Ended) && self.poll_gone(&mut Context::from_waker(waker)).is_ready();
        if gone {
            self.streams.taken_back();
        }
        self.break_off();
    }
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").field("stream", &self.body.stream_id()).field("up", &self.up).finish_non_exhaustive()
    }
}

/// A response's head as HTTP/2 has it: the same fields, less those that are for a connection of HTTP/1.
fn response(head: &ResponseHead, bytes: &[u8]) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status).ok()?;
    // Copied once; every value is a part of the copy.
    let whole = Bytes::copy_from_slice(&bytes[..head.length]);
    let fields = response.headers_mut();
    fields.try_reserve(head.fields.len()).ok()?;
    for field in head.fields.iter() {
        let hop = matches!(
            field.kind,
            Kind::Connection
                | Kind::KeepAlive
                | Kind::ProxyConnection
                | Kind::TransferEncoding
                | Kind::Upgrade
                | Kind::Te
        );
        if hop || field.nominated {
            continue;
        }
        let value = whole.slice(field.value_start as usize..field.value_end as usize);
        let (name, value) = request::name_and_value(field.name(bytes), value)?;
        fields.try_append(name, value).ok()?;
    }
    Some(response)
}

/// Trailers, from their lines.
fn trailing_fields(lines: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let value = Bytes::copy_from_slice(line[colon + 1..].trim_ascii());
        if let Some((name, value)) = request::name_and_value(&line[..colon], value) {
            // No more than `limits.response_head` has bytes for.
            let _ = fields.try_append(name, value);
        }
    }
    fields
}

/// Ready when the client takes more. What is then sent may be more than that: it waits in h2, and nothing behind it is
/// taken from the backend.
fn poll_room(send: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    if send.capacity() > 0 {
        return Poll::Ready(Ok(()));
    }
    send.reserve_capacity(1);
    loop {
        match ready!(send.poll_capacity(cx)) {
            Some(Ok(0)) => {}
            Some(Ok(_)) => return Poll::Ready(Ok(())),
            Some(Err(error)) => return Poll::Ready(Err(broken(error))),
            None => return Poll::Ready(Err(gone())),
        }
    }
}

fn fill(room: &mut ReadBuf<'_>, bytes: &[u8]) -> usize {
    let count = bytes.len().min(room.remaining());
    room.put_slice(&bytes[..count]);
    count
}

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
