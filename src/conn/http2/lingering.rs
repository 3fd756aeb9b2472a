//! The socket below HTTP/2, closed with care: a close with something unread is a reset, which may overtake the last frames.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::stream::Stream;

/// A stream whose shutdown reads, and forgets, what the client still sends, until the client closes as well. How long that
/// may take is its user's business.
pub(super) struct Lingering {
    stream: Stream,
    /// Its shutdown has begun.
    ending: Rc<Cell<bool>>,
    ended: bool,
}

impl Lingering {
    /// The flag says when the end has begun.
    pub(super) fn new(stream: Stream, ending: Rc<Cell<bool>>) -> Self {
        Self { stream, ending, ended: false }
    }
}

impl AsyncRead for Lingering {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, room)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, ending, ended } = self.get_mut();
        ending.set(true);
        if !*ended {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            *ended = true;
        }
        let mut scratch = [0; 1024];
        loop {
            let mut room = ReadBuf::new(&mut scratch);
            if ready!(Pin::new(&mut *stream).poll_read(cx, &mut room)).is_err() || room.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
