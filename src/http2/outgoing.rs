//! What HTTP/1 has written, in frames.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};

use crate::http::body::{BadBody, Body};

use super::{broken, fields, gone};

/// One message's body on its way out.
pub(crate) struct Outgoing {
    send: SendStream<Bytes>,
    /// Where it ends; `None` for a tunnel, of which every byte goes as it is.
    body: Option<Body>,
    /// The lines of its trailers, as far as they have come.
    trailers: Vec<u8>,
    ended: bool,
}

impl Outgoing {
    /// A body behind a head that has been sent. One without a byte must have been ended with its head.
    pub(crate) fn new(send: SendStream<Bytes>, body: Body) -> Self {
        Self { send, ended: body.is_done(), body: Some(body), trailers: Vec::new() }
    }

    pub(crate) fn tunnel(send: SendStream<Bytes>) -> Self {
        Self { send, body: None, trailers: Vec::new(), ended: false }
    }

    /// Whether its end has been sent.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Takes bytes once the other side has room for some: all of them then, and h2 holds those that there is no room for,
    /// but nothing behind them is taken. Gives how many are this body's.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.ended {
            ready!(self.poll_room(cx))?;
        }
        Poll::Ready(self.take(bytes))
    }

    /// Takes bytes that come with their head.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let garbled = |BadBody(why): BadBody| io::Error::new(io::ErrorKind::InvalidData, why);
        match &mut self.body {
            _ if self.ended => Err(gone()),
            None => {
                self.send.send_data(Bytes::copy_from_slice(bytes), false).map_err(broken)?;
                Ok(bytes.len())
            }
            Some(body @ Body::Chunked(_)) => {
                let mut data = Vec::new();
                let taken = body.decode_all(bytes, &mut data, &mut self.trailers).map_err(garbled)?;
                self.ended = body.is_done();
                let trails = self.ended && !self.trailers.is_empty();
                if !data.is_empty() || self.ended && !trails {
                    self.send.send_data(data.into(), self.ended && !trails).map_err(broken)?;
                }
                if trails {
                    self.send.send_trailers(fields::trailers(&self.trailers)).map_err(broken)?;
                }
                Ok(taken)
            }
            Some(body) => {
                let taken = body.take(bytes).map_err(garbled)?;
                self.ended = body.is_done();
                self.send.send_data(Bytes::copy_from_slice(&bytes[..taken]), self.ended).map_err(broken)?;
                Ok(taken)
            }
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.send.capacity() > 0 {
            return Poll::Ready(Ok(()));
        }
        self.send.reserve_capacity(1);
        loop {
            match ready!(self.send.poll_capacity(cx)) {
                Some(Ok(0)) => {}
                Some(Ok(_)) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
                None => return Poll::Ready(Err(gone())),
            }
        }
    }

    /// Nothing more will be written: the end of a tunnel, or of a body that ends with its connection.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if !self.ended && matches!(self.body, None | Some(Body::UntilClose)) {
            self.ended = true;
            self.send.send_data(Bytes::new(), true).map_err(broken)?;
        }
        Ok(())
    }

    /// Ready when the other side has reset the stream, or the connection is gone.
    pub(crate) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.send.poll_reset(cx).map(drop)
    }

    /// Gives it up: the other side sees a message that has no end.
    pub(crate) fn reset(&mut self, reason: Reason) {
        if !self.ended {
            self.ended = true;
            self.send.send_reset(reason);
        }
    }
}
