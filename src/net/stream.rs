//! A connection, whatever it is made of.
//!
//! An `enum` and not a trait object: a call costs a branch, and what the data path needs beyond reading and writing
//! (readiness without a buffer, a reset) is here by name.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

use crate::net::buffer::Buffer;

/// A connection to a client or to a backend.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// A client's or a backend's, established. Boxed: it is large, and the others are not.
    Tls(Box<TlsStream<TcpStream>>),
    /// One that a library's user has made.
    Other(Box<dyn Duplex>),
}

/// Any connection that can be read from and written to: a TCP or unix stream, TLS, an in-memory pipe.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + fmt::Debug + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + fmt::Debug + 'static> Duplex for T {}

impl Stream {
    /// The same connection, of which some bytes have been read already.
    pub(crate) fn behind(self, early: Buffer) -> Self {
        if early.is_empty() { self } else { Self::Other(Box::new(Behind { early, stream: self })) }
    }

    /// Reads into the room that the buffer has, which must not be empty. 0 is the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(buffer.room());
        ready!(match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut room),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, &mut room),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, &mut room),
            Self::Other(stream) => Pin::new(stream).poll_read(cx, &mut room),
        })?;
        let count = room.filled().len();
        buffer.filled(count);
        Poll::Ready(Ok(count))
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Other(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// Ready when what has been written has left: a layer above the socket may hold some of it until it is asked.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Other(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// Ready when there is something to read, the end included. Asks the reactor, not the kernel: it may be a guess, which
    /// a read then finds out.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
            Self::Tls(stream) => match stream.get_ref() {
                // What has been decrypted already, or the end.
                (_, tls) if !tls.wants_read() => Poll::Ready(Ok(())),
                (stream, _) => stream.poll_read_ready(cx),
            },
            Self::Other(_) => Poll::Ready(Ok(())),
        }
    }

    /// Tells the peer that nothing more will come.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Other(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    /// Tells a TLS peer that the end which follows is meant; others see that by the end itself.
    pub(crate) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tcp(_) | Self::Unix(_) | Self::Other(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether the reactor knows of nothing to read: an idle connection of which that is not so has ended, or its peer
    /// has said something that nobody asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.poll_readable(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Like [`Stream::is_quiet`], but asks the kernel, for those who must be sure.
    pub(crate) fn is_surely_quiet(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let peeked = match self {
            Self::Tcp(stream) => SockRef::from(stream).peek(&mut byte),
            Self::Unix(stream) => SockRef::from(stream).peek(&mut byte),
            Self::Tls(stream) => match stream.get_ref() {
                (_, tls) if !tls.wants_read() => return false,
                (stream, _) => SockRef::from(stream).peek(&mut byte),
            },
            Self::Other(_) => return false,
        };
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Whether there is really nothing to read where the reactor believes that there is: a read that was not short leaves
    /// it so. If there is not, the reactor believes it from then on.
    pub(crate) fn settles(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let peeked = match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, || SockRef::from(stream).peek(&mut byte)),
            Self::Unix(stream) => stream.try_io(Interest::READABLE, || SockRef::from(stream).peek(&mut byte)),
            Self::Tls(stream) => match stream.get_ref() {
                (_, tls) if !tls.wants_read() => return false,
                (stream, _) => stream.try_io(Interest::READABLE, || SockRef::from(stream).peek(&mut byte)),
            },
            Self::Other(_) => return false,
        };
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Our own end of it, where it has one. Asks the kernel.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Tls(stream) => stream.get_ref().0.local_addr().ok(),
            Self::Unix(_) | Self::Other(_) => None,
        }
    }

    /// The other end of it, where it has an address and is still there. Asks the kernel.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Tls(stream) => stream.get_ref().0.peer_addr().ok(),
            Self::Unix(_) | Self::Other(_) => None,
        }
    }

    /// Makes the close that follows a reset: what the peer has may not look whole.
    pub(crate) fn reset_on_close(&self) {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
            Self::Unix(_) | Self::Other(_) => return,
        };
        // A socket that is already gone needs no reset.
        let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    }
}

/// Whether a peer has said, by TLS, why it breaks off.
pub(crate) fn is_alert(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::AlertReceived(_)))
}

/// For those who speak their own protocol over it, with their own buffers.
impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, room),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, room),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, room),
            Self::Other(stream) => Pin::new(stream).poll_read(cx, room),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self.get_mut(), cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Other(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Other(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self.get_mut(), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_shutdown(self.get_mut(), cx)
    }
}

/// A connection of which some bytes have been read already.
#[derive(Debug)]
struct Behind {
    early: Buffer,
    stream: Stream,
}

impl AsyncRead for Behind {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { early, stream } = self.get_mut();
        if early.is_empty() {
            return Pin::new(stream).poll_read(cx, room);
        }
        let count = early.len().min(room.remaining());
        room.put_slice(&early.data()[..count]);
        early.eat(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Behind {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Stream::poll_write(&mut self.get_mut().stream, cx, bytes)
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
        Stream::poll_shutdown(&mut self.get_mut().stream, cx)
    }
}
