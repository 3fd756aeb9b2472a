//! A client that speaks HTTP/2 as it should: h2's own, which reads strictly. Whatever does not come in time fails the test.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{PATIENCE, shown};

/// A connection to the program.
pub struct Http2 {
    runtime: Runtime,
    send: SendRequest<Bytes>,
    ended: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

/// A request that has been begun.
pub struct Asked {
    pub send: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    pub body: Option<RecvStream>,
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub fields: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
    /// The interim answers before it: their status and fields.
    pub interim: Vec<(u16, HeaderMap)>,
}

impl Answer {
    /// The one value of a field.
    #[track_caller]
    pub fn field(&self, name: &str) -> &str {
        let values: Vec<_> = self.fields.get_all(name).iter().collect();
        assert_eq!(values.len(), 1, "{name}: {values:?} in {self:?}");
        values[0].to_str().expect("text")
    }

    pub fn text(&self) -> String {
        shown(&self.body)
    }
}

/// A request without a body, for this URL.
pub fn get(url: &str) -> http::request::Builder {
    Request::get(url)
}

impl Http2 {
    /// Speaks HTTP/2 at once (RFC 9113 section 3.3).
    pub fn connect(address: SocketAddr) -> Self {
        Self::with(address, &h2::client::Builder::new())
    }

    #[track_caller]
    pub fn with(address: SocketAddr, builder: &h2::client::Builder) -> Self {
        Self::over(builder, async { TcpStream::connect(address).await.expect("connect") })
    }

    /// Over TLS, for a certificate of this name.
    #[track_caller]
    pub fn tls(address: SocketAddr, name: &'static str) -> Self {
        Self::over(&h2::client::Builder::new(), async move {
            let mut config = super::tls::config(rustls::ALL_VERSIONS);
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            let stream = TcpStream::connect(address).await.expect("connect");
            let name = rustls::pki_types::ServerName::try_from(name).expect("name");
            let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            stream
        })
    }

    #[track_caller]
    fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        builder: &h2::client::Builder,
        connecting: impl Future<Output = S>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let shaking = async { builder.handshake::<_, Bytes>(connecting.await).await.expect("handshake") };
        let (send, connection) = runtime.block_on(async { timeout(PATIENCE, shaking).await.expect("a handshake") });
        let ended = runtime.spawn(connection);
        Self { runtime, send, ended }
    }

    /// Waits for something of this connection's, not for ever.
    #[track_caller]
    pub fn wait<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        match self.runtime.block_on(async { timeout(PATIENCE, future).await }) {
            Ok(value) => value,
            Err(_) => panic!("not within {PATIENCE:?}: {what}"),
        }
    }

    /// Begins a request. `ends` says that nothing follows its head.
    #[track_caller]
    pub fn begin(&mut self, request: http::request::Builder, ends: bool) -> Asked {
        let request = request.body(()).expect("request");
        let mut sender = self.send.clone();
        self.wait("room for a request", poll_fn(|cx| sender.poll_ready(cx))).expect("ready");
        let (response, send) = sender.send_request(request, ends).expect("request");
        Asked { send, response: Some(response), body: None }
    }

    /// Sends a request without a body and reads its answer.
    #[track_caller]
    pub fn ask(&mut self, request: http::request::Builder) -> Answer {
        let mut asked = self.begin(request, true);
        self.answer(&mut asked).unwrap_or_else(|error| panic!("{error} instead of an answer"))
    }

    /// Sends a request with a body and reads its answer.
    #[track_caller]
    pub fn ask_with(&mut self, request: http::request::Builder, body: impl Into<Bytes>) -> Answer {
        let mut asked = self.begin(request, false);
        asked.send.send_data(body.into(), true).expect("body");
        self.answer(&mut asked).unwrap_or_else(|error| panic!("{error} instead of an answer"))
    }

    /// Reads the head of an answer, and those before it.
    #[track_caller]
    pub fn head(&self, asked: &mut Asked) -> Result<Answer, h2::Error> {
        let mut answer = Answer::default();
        let mut future = asked.response.take().expect("not yet read");
        let reading = async {
            loop {
                let interim = poll_fn(|cx| match future.poll_informational(cx) {
                    std::task::Poll::Ready(interim) => std::task::Poll::Ready(Ok(interim)),
                    std::task::Poll::Pending => {
                        std::pin::Pin::new(&mut future).poll(cx).map(Err::<Option<Result<Response<()>, h2::Error>>, _>)
                    }
                })
                .await;
                match interim {
                    Ok(Some(interim)) => {
                        let (parts, ()) = interim?.into_parts();
                        answer.interim.push((parts.status.as_u16(), parts.headers));
                    }
                    Ok(None) => return (&mut future).await,
                    Err(response) => return response,
                }
            }
        };
        let (parts, body) = self.wait("the head of an answer", reading)?.into_parts();
        answer.status = parts.status.as_u16();
        answer.fields = parts.headers;
        asked.body = Some(body);
        Ok(answer)
    }

    /// Reads a whole answer.
    #[track_caller]
    pub fn answer(&self, asked: &mut Asked) -> Result<Answer, h2::Error> {
        let mut answer = self.head(asked)?;
        while let Some(data) = self.data(asked)? {
            answer.body.extend_from_slice(&data);
        }
        let body = asked.body.as_mut().expect("a body");
        answer.trailers = self.wait("trailers", poll_fn(|cx| body.poll_trailers(cx)))?.unwrap_or_default();
        Ok(answer)
    }

    /// The next piece of a body; `None` at its end.
    #[track_caller]
    pub fn data(&self, asked: &mut Asked) -> Result<Option<Bytes>, h2::Error> {
        let body = asked.body.as_mut().expect("a body");
        loop {
            let Some(data) = self.wait("a piece of a body", poll_fn(|cx| body.poll_data(cx))) else {
                return Ok(None);
            };
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            // The end may come in a frame of its own.
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    /// Waits for the end of the connection: `None` for a clean one.
    #[track_caller]
    pub fn end(self) -> Option<Reason> {
        let Self { runtime, send, ended } = self;
        drop(send);
        let ended = runtime.block_on(async { timeout(PATIENCE, ended).await }).expect("the connection ends");
        ended.expect("no panic").err().and_then(|error| error.reason())
    }

    /// Lets what is pending be sent and read for a moment: until everything that is there now has been seen.
    pub fn settle(&self) {
        self.runtime.block_on(async {
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
        });
    }
}
