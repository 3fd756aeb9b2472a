//! HTTP/1 by hyper, for the few who look after a carom and not for those who visit its sites: what the control socket and the
//! status listener have in common.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Connections at once.
const MOST_CONNECTIONS: usize = 64;

/// How long a request's head may take, and how long a connection may be silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is accepted from.
pub(super) trait Listener {
    /// What is accepted.
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// The next connection.
    async fn next(&self) -> io::Result<Self::Stream>;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Serves for ever, on a thread that has a local set.
pub(super) async fn serve<B>(listener: impl Listener, answer: impl AsyncFn(Request<Incoming>) -> Response<B> + 'static)
where
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (room, answer) = (Arc::new(Semaphore::new(MOST_CONNECTIONS)), Rc::new(answer));
    loop {
        // Never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok(stream) = listener.next().await else {
            // Out of descriptors, most likely: wait for some to come back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let answer = Rc::clone(&answer);
        tokio::task::spawn_local(async move {
            let service = service_fn(|request| async { Ok::<_, Infallible>(answer(request).await) });
            let mut connection = http1::Builder::new();
            connection.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(64 * 1024);
            // Who is gone, or speaks no HTTP, gets nothing more.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

/// A part of a query as it was meant. What is no escape stays as it is.
pub(super) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let escape = (first == b'%').then(|| behind.get(..2)).flatten();
        let escape = escape.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(escape.unwrap_or(first));
        rest = if escape.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
