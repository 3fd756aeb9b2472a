//! A backend that speaks HTTP/2: a script for each request, in a task of its own.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio::task::{LocalSet, spawn_local};

use carom::Duplex;
use tokio_rustls::TlsAcceptor;

use super::tls::Made;
use super::{PATIENCE, Watched};

/// A scripted backend.
pub struct Http2Origin {
    address: SocketAddr,
    seen: Arc<Watched<Seen>>,
    goodbye: broadcast::Sender<()>,
}

/// What reached it.
#[derive(Default)]
pub struct Seen {
    /// How many connections were made, and how many of them have ended.
    pub connections: usize,
    pub ended: usize,
    pub requests: Vec<Request<()>>,
    /// The bodies that were read to their end.
    pub bodies: Vec<Vec<u8>>,
    /// Why requests were taken back.
    pub resets: Vec<Option<Reason>>,
}

/// One request, for its script.
pub struct Call {
    pub index: usize,
    pub path: String,
    pub body: RecvStream,
    pub respond: SendResponse<Bytes>,
    pub seen: Arc<Watched<Seen>>,
}

impl Http2Origin {
    pub fn new<F: Future<Output = ()> + 'static>(script: impl Fn(Call) -> F + Send + 'static) -> Self {
        Self::with(Builder::new(), script)
    }

    pub fn with<F: Future<Output = ()> + 'static>(
        builder: Builder,
        script: impl Fn(Call) -> F + Send + 'static,
    ) -> Self {
        Self::over(builder, None, script)
    }

    /// Over TLS, with this certificate, speaking these protocols.
    pub fn tls<F: Future<Output = ()> + 'static>(
        certificate: &Made,
        protocols: &[&[u8]],
        script: impl Fn(Call) -> F + Send + 'static,
    ) -> Self {
        let mut config = (*super::tls::server(certificate, false)).clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Self::over(Builder::new(), Some(TlsAcceptor::from(Arc::new(config))), script)
    }

    fn over<F: Future<Output = ()> + 'static>(
        builder: Builder,
        tls: Option<TlsAcceptor>,
        script: impl Fn(Call) -> F + Send + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.set_nonblocking(true).expect("nonblocking");
        let address = listener.local_addr().expect("address");
        let seen = Arc::new(Watched::new(Seen::default()));
        let (goodbye, _) = broadcast::channel(8);
        let (all, leave) = (Arc::clone(&seen), goodbye.clone());
        // It ends with the tests: what it holds is little.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            LocalSet::new().block_on(&runtime, listen(listener, builder, tls, Arc::new(script), all, leave));
        });
        Self { address, seen, goodbye }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Tells all connections that nothing new is taken.
    pub fn leave(&self) {
        self.goodbye.send(()).ok();
    }

    pub fn look<R>(&self, at: impl FnOnce(&Seen) -> R) -> R {
        self.seen.look(at)
    }

    #[track_caller]
    pub fn wait<R>(&self, what: &str, find: impl FnMut(&Seen) -> Option<R>) -> R {
        self.seen.wait_for(PATIENCE, find).unwrap_or_else(|| panic!("a backend did not see {what}"))
    }
}

async fn listen<F: Future<Output = ()> + 'static>(
    listener: std::net::TcpListener,
    builder: Builder,
    tls: Option<TlsAcceptor>,
    script: Arc<impl Fn(Call) -> F + 'static>,
    seen: Arc<Watched<Seen>>,
    goodbye: broadcast::Sender<()>,
) {
    let listener = TcpListener::from_std(listener).expect("listener");
    while let Ok((stream, _)) = listener.accept().await {
        seen.change(|seen| seen.connections += 1);
        let (builder, script, seen) = (builder.clone(), Arc::clone(&script), Arc::clone(&seen));
        let (mut leave, tls) = (goodbye.subscribe(), tls.clone());
        spawn_local(async move {
            let stream: Box<dyn Duplex> = match tls {
                None => Box::new(stream),
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => Box::new(stream),
                    Err(_) => return,
                },
            };
            if let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await {
                let mut left = false;
                loop {
                    let accepted = tokio::select! {
                        accepted = connection.accept() => accepted,
                        _ = leave.recv(), if !left => {
                            left = true;
                            connection.graceful_shutdown();
                            continue;
                        }
                    };
                    let Some(Ok((request, respond))) = accepted else { break };
                    let (parts, body) = request.into_parts();
                    let path = parts.uri.path().to_owned();
                    let index = seen.change(|seen| {
                        seen.requests.push(Request::from_parts(parts, ()));
                        seen.requests.len() - 1
                    });
                    spawn_local(script(Call { index, path, body, respond, seen: Arc::clone(&seen) }));
                }
            }
            seen.change(|seen| seen.ended += 1);
        });
    }
}

impl Call {
    /// The next piece of the body; `None` at its end, or when the request was taken back, which is noted.
    pub async fn data(&mut self) -> Option<Bytes> {
        match poll_fn(|cx| self.body.poll_data(cx)).await? {
            Ok(data) => {
                self.body.flow_control().release_capacity(data.len()).ok();
                Some(data)
            }
            Err(error) => {
                self.seen.change(|seen| seen.resets.push(error.reason()));
                None
            }
        }
    }

    /// The whole body.
    pub async fn whole(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while let Some(data) = self.data().await {
            body.extend_from_slice(&data);
        }
        self.seen.change(|seen| seen.bodies.push(body.clone()));
        body
    }

    pub async fn trailers(&mut self) -> HeaderMap {
        poll_fn(|cx| self.body.poll_trailers(cx)).await.ok().flatten().unwrap_or_default()
    }

    /// Sends a head.
    pub fn head(&mut self, response: http::response::Builder, ends: bool) -> SendStream<Bytes> {
        self.respond.send_response(response.body(()).expect("response"), ends).expect("send")
    }

    /// Answers in one go.
    pub fn reply(&mut self, body: impl Into<Bytes>) {
        self.head(Response::builder(), false).send_data(body.into(), true).expect("send");
    }

    /// Waits until the request is taken back, and notes how.
    pub async fn taken_back(&mut self) {
        let reason = poll_fn(|cx| self.respond.poll_reset(cx)).await;
        self.seen.change(|seen| seen.resets.push(reason.ok()));
    }
}

/// Trailers as gRPC has them.
pub fn grpc_status(status: &'static str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static(status));
    trailers
}
