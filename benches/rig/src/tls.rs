//! The same as [`crate::load`] over TLS: by tokio and rustls, since what a client spends is not what is measured.
//!
//! `tls-get`, `tls-1m`: kept alive. `tls-full` and `tls-resumed`: a connection for each answer, with a whole handshake or a
//! resumed one. `h2-get`: over HTTP/2, eight clients a connection. `tls-idle` and `h2-idle`: each client asks once on a
//! connection of its own; then a line, and nothing until standard input ends.
//!
//! Every client offers X25519 alone, so that all proxies do the same work, and trusts any certificate.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use h2::client::SendRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, HandshakeKind, SignatureScheme};

const HOST: &str = "beep.example.com";

/// Clients that share a connection of HTTP/2.
const SHARING: usize = 8;

/// Writes a certificate for the host and its key, as files that nginx and haproxy read.
pub fn certificate(folder: &Path) -> io::Result<()> {
    // ECDSA with P-256.
    let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).map_err(io::Error::other)?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    fs::create_dir_all(folder)?;
    fs::write(folder.join("beep.crt"), &certificate)?;
    fs::write(folder.join("beep.key"), &key)?;
    fs::write(folder.join("beep.pem"), certificate + &key)
}

/// What has been answered so far.
#[derive(Default)]
struct Told {
    asked: usize,
    micros: Vec<u32>,
    wrong: usize,
    resumed: usize,
}

struct Load {
    to: SocketAddr,
    connector: TlsConnector,
    resumes: bool,
    request: Vec<u8>,
    length: usize,
    until: Instant,
    most: usize,
    told: RefCell<Told>,
}

pub fn run(to: SocketAddr, kind: &str, clients: usize, amount: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begun = Instant::now();
    let (time, most) = match (amount.strip_suffix('s'), amount.strip_suffix('n')) {
        (Some(seconds), _) => (Duration::from_secs_f64(seconds.parse().map_err(io::Error::other)?), usize::MAX),
        (_, Some(count)) => (Duration::from_secs(3600), count.parse().map_err(io::Error::other)?),
        _ => (Duration::from_secs(3600), clients),
    };
    let closes = matches!(kind, "tls-full" | "tls-resumed");
    let (path, length) = if kind == "tls-1m" { ("/1m", 1 << 20) } else { ("/", 13) };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: rig\r\nAccept: */*\r\n{}\r\n",
        if closes { "Connection: close\r\n" } else { "" }
    );
    let load = Rc::new(Load {
        to,
        connector: connector(kind),
        resumes: kind == "tls-resumed",
        request: request.into_bytes(),
        length,
        until: begun + time,
        most,
        told: RefCell::default(),
    });
    let set = LocalSet::new();
    set.block_on(&runtime, async {
        match kind {
            "tls-idle" | "h2-idle" => return idle(&load, clients, kind == "h2-idle").await,
            "h2-get" => {
                let mut tasks = Vec::new();
                for number in 0..clients {
                    if number % SHARING == 0 {
                        let sender = load.connect_h2().await?;
                        for _ in 0..SHARING.min(clients - number) {
                            tasks.push(tokio::task::spawn_local(Rc::clone(&load).ask_h2(sender.clone())));
                        }
                    }
                }
                for task in tasks {
                    let _ = task.await;
                }
            }
            _ => {
                let tasks: Vec<_> =
                    (0..clients).map(|_| tokio::task::spawn_local(Rc::clone(&load).ask(closes))).collect();
                for task in tasks {
                    let _ = task.await;
                }
            }
        }
        load.print(begun.elapsed());
        Ok(())
    })
}

fn connector(kind: &str) -> TlsConnector {
    let provider = Arc::new(CryptoProvider { kx_groups: vec![ring::kx_group::X25519], ..ring::default_provider() });
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual suites")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![if kind.starts_with("h2") { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    if kind != "tls-resumed" {
        config.resumption = Resumption::disabled();
    }
    TlsConnector::from(Arc::new(config))
}

impl Load {
    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connect_by(&self.connector).await
    }

    async fn connect_by(&self, connector: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.to).await?;
        stream.set_nodelay(true)?;
        connector.connect(ServerName::try_from(HOST).map_err(io::Error::other)?, stream).await
    }

    async fn connect_h2(&self) -> io::Result<SendRequest<bytes::Bytes>> {
        let mut builder = h2::client::Builder::new();
        builder.initial_connection_window_size(1 << 30).enable_push(false);
        let (sender, connection) = builder.handshake(self.connect().await?).await.map_err(io::Error::other)?;
        tokio::task::spawn_local(connection);
        Ok(sender)
    }

    /// Whether there is more to be asked.
    fn may_ask(&self) -> bool {
        let mut told = self.told.borrow_mut();
        told.asked += 1;
        told.asked <= self.most && Instant::now() < self.until && told.wrong < 1000
    }

    fn answered(&self, asked: Instant, answer: &io::Result<()>) {
        let mut told = self.told.borrow_mut();
        match answer {
            Ok(()) => told.micros.push(asked.elapsed().as_micros().try_into().unwrap_or(u32::MAX)),
            Err(_) => told.wrong += 1,
        }
    }

    async fn ask(self: Rc<Self>, closes: bool) {
        let mut kept = None;
        let mut buffer = vec![0; 256 * 1024];
        // Of its own: a store of sessions keeps only a few for one server.
        let connector = connector(if self.resumes { "tls-resumed" } else { "tls-full" });
        while self.may_ask() {
            let asked = Instant::now();
            let stream = match kept.take() {
                Some(stream) => Ok(stream),
                None => self.connect_by(&connector).await,
            };
            let answer = match stream {
                Ok(mut stream) => {
                    let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
                    self.told.borrow_mut().resumed += usize::from(resumed);
                    let answer = self.exchange(&mut stream, &mut buffer, closes).await;
                    if !closes && answer.is_ok() {
                        kept = Some(stream);
                    }
                    answer
                }
                Err(error) => Err(error),
            };
            self.answered(asked, &answer);
        }
    }

    async fn exchange(&self, stream: &mut TlsStream<TcpStream>, buffer: &mut [u8], closes: bool) -> io::Result<()> {
        stream.write_all(&self.request).await?;
        let mut filled = 0;
        let end = loop {
            filled += match stream.read(&mut buffer[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => count,
            };
            if let Some(end) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = str::from_utf8(&buffer[..end]).map_err(io::Error::other)?.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if !head.starts_with("http/1.1 200 ") || length != Some(self.length) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (mut missing, mut last) = (self.length - (filled - end), buffer[filled - 1]);
        while missing > 0 {
            match stream.read(buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => (missing, last) = (missing - count, buffer[count - 1]),
            }
        }
        if last != b'x' {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Where the connection is to be closed, that belongs to the answer.
        if closes && stream.read(buffer).await? != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(())
    }

    async fn ask_h2(self: Rc<Self>, sender: SendRequest<bytes::Bytes>) {
        while self.may_ask() {
            let asked = Instant::now();
            let answer = self.exchange_h2(&sender).await;
            self.answered(asked, &answer);
        }
    }

    async fn exchange_h2(&self, sender: &SendRequest<bytes::Bytes>) -> io::Result<()> {
        let mut sender = sender.clone().ready().await.map_err(io::Error::other)?;
        let request = http::Request::get(format!("https://{HOST}/"))
            .header("user-agent", "rig")
            .header("accept", "*/*")
            .body(())
            .map_err(io::Error::other)?;
        let (response, _) = sender.send_request(request, true).map_err(io::Error::other)?;
        let response = response.await.map_err(io::Error::other)?;
        let status = response.status();
        let mut body = response.into_body();
        let (mut length, mut last) = (0, 0);
        while let Some(data) = body.data().await {
            let data = data.map_err(io::Error::other)?;
            length += data.len();
            last = data.last().copied().unwrap_or(last);
            let _ = body.flow_control().release_capacity(data.len());
        }
        match status == 200 && length == self.length && last == b'x' {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn print(&self, time: Duration) {
        let mut told = self.told.borrow_mut();
        told.micros.sort_unstable();
        let at = |part: usize| told.micros.get(told.micros.len() * part / 100).copied().unwrap_or(0);
        println!(
            r#"{{"answers": {}, "wrong": {}, "seconds": {:.4}, "p50": {}, "p95": {}, "p99": {}, "resumed": {}}}"#,
            told.micros.len(),
            told.wrong,
            time.as_secs_f64(),
            at(50),
            at(95),
            at(99),
            told.resumed
        );
    }
}

async fn idle(load: &Load, clients: usize, h2: bool) -> io::Result<()> {
    let mut held = Vec::new();
    let mut senders = Vec::new();
    let mut buffer = vec![0; 4096];
    for _ in 0..clients {
        if h2 {
            let sender = load.connect_h2().await?;
            load.exchange_h2(&sender).await?;
            senders.push(sender);
        } else {
            let mut stream = load.connect().await?;
            load.exchange(&mut stream, &mut buffer, false).await?;
            held.push(stream);
        }
    }
    println!(r#"{{"answers": {clients}, "wrong": 0}}"#);
    // Nothing else runs meanwhile: nobody asks for anything.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Takes any certificate: what is measured is the other side.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
