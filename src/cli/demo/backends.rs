//! The demo's backends: `beep`, and `boop` in two instances. Each tells what it was asked and echoes WebSockets.
//!
//! They live on a thread of their own and know nothing of the proxy in front of them.

use std::convert::Infallible;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::{io, thread};

use fastwebsockets::upgrade::{UpgradeFut, is_upgrade_request, upgrade};
use fastwebsockets::{FragmentCollector, Frame, OpCode, Payload, WebSocketError};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use super::page;

/// The ports where the backends answer, on 127.0.0.1, for as long as the program runs.
pub(super) struct Backends {
    pub(super) beep: u16,
    pub(super) boop: [u16; 2],
}

impl Backends {
    /// `routes` is the file that the pages tell their reader to edit.
    pub(super) fn start(routes: &Path) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let start = |name| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            let port = listener.local_addr()?.port();
            let _entered = runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let instance = Arc::new(Instance { name, port, served: AtomicU64::new(0), routes: routes.to_owned() });
            runtime.spawn(instance.listen(listener));
            Ok::<_, io::Error>(port)
        };
        let backends = Self { beep: start("beep")?, boop: [start("boop-1")?, start("boop-2")?] };
        thread::Builder::new().name("demo".into()).spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        Ok(backends)
    }
}

/// One backend.
struct Instance {
    name: &'static str,
    port: u16,
    served: AtomicU64,
    routes: PathBuf,
}

impl Instance {
    async fn listen(self: Arc<Self>, listener: tokio::net::TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, most likely: wait for some to come back.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let instance = self.clone();
            let service = service_fn(move |request| {
                let response = instance.answer(request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
            tokio::spawn(connection);
        }
    }

    fn answer(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let count = self.served.fetch_add(1, Relaxed) + 1;
        if is_upgrade_request(&request) {
            return match upgrade(&mut request) {
                Ok((response, upgraded)) => {
                    tokio::spawn(echo(upgraded, self.name));
                    response.map(|_empty| Full::default())
                }
                Err(why) => bad_request(&why),
            };
        }
        let seen = page::Seen {
            instance: self.name,
            port: self.port,
            count,
            method: request.method().as_str(),
            target: request.uri().to_string(),
            fields: request.headers(),
            routes: &self.routes,
        };
        let html = request.uri().path() != "/plain" && wants_html(request.headers());
        let (kind, text) = match html {
            true => ("text/html; charset=utf-8", page::html(&seen)),
            false => ("text/plain; charset=utf-8", page::plain(&seen)),
        };
        let mut response = Response::new(Full::from(text));
        set(&mut response, header::CONTENT_TYPE, kind);
        set(&mut response, header::CACHE_CONTROL, "no-store");
        set(&mut response, header::VARY, "accept");
        response
    }
}

fn wants_html(fields: &HeaderMap) -> bool {
    let accept = fields.get(header::ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    String::from_utf8_lossy(accept).to_ascii_lowercase().contains("text/html")
}

fn set(response: &mut Response<Full<Bytes>>, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

fn bad_request(why: &WebSocketError) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{why}\n")));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

/// Greets, then sends back each message until the client leaves. Pings and the close are answered by the socket.
async fn echo(upgraded: UpgradeFut, name: &'static str) -> Result<(), WebSocketError> {
    let mut socket = FragmentCollector::new(upgraded.await?);
    let greeting = format!("{name} echoes what you send");
    socket.write_frame(Frame::text(Payload::Owned(greeting.into_bytes()))).await?;
    loop {
        let message = socket.read_frame().await?;
        match message.opcode {
            OpCode::Text | OpCode::Binary => socket.write_frame(message).await?,
            OpCode::Close => return Ok(()),
            OpCode::Continuation | OpCode::Ping | OpCode::Pong => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use fastwebsockets::handshake;
    use hyper_util::rt::TokioExecutor;

    use super::*;

    fn backends() -> Backends {
        Backends::start(Path::new("/tmp/demo/routes.toml")).unwrap()
    }

    fn get(port: u16, target: &str, accept: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let head =
            format!("GET {target} HTTP/1.1\r\nHost: boop.localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn each_instance_names_itself_and_counts() {
        let Backends { beep, boop: [one, two] } = backends();
        for (port, name) in [(beep, "beep"), (one, "boop-1"), (two, "boop-2")] {
            assert!(get(port, "/", "*/*").contains(&format!("{name} answered, its request 1")));
            assert!(get(port, "/", "*/*").contains(&format!("{name} answered, its request 2")));
        }
    }

    #[test]
    fn a_browser_gets_a_page_and_all_others_text() {
        let port = backends().beep;
        assert!(get(port, "/", "text/html,*/*").contains("content-type: text/html"));
        assert!(get(port, "/", "*/*").contains("content-type: text/plain"));
        assert!(get(port, "/plain", "text/html,*/*").contains("content-type: text/plain"));
    }

    #[tokio::test]
    async fn a_websocket_is_greeted_and_echoed() {
        let stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, backends().beep)).await.unwrap();
        let request = Request::get("/echo")
            .header("host", "beep.localhost")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-key", handshake::generate_key())
            .header("sec-websocket-version", "13")
            .body(http_body_util::Empty::<Bytes>::new())
            .unwrap();
        let (socket, _) = handshake::client(&TokioExecutor::new(), request, stream).await.unwrap();
        let mut socket = FragmentCollector::new(socket);
        assert_eq!(&*socket.read_frame().await.unwrap().payload, b"beep echoes what you send");
        socket.write_frame(Frame::text(Payload::Borrowed(b"hello"))).await.unwrap();
        assert_eq!(&*socket.read_frame().await.unwrap().payload, b"hello");
    }

    #[test]
    fn a_handshake_that_lacks_its_key_is_refused() {
        let port = backends().beep;
        let response = get(port, "/echo", "*/*\r\nUpgrade: websocket\r\nConnection: upgrade");
        assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    }
}
