//! What a connection to a port that speaks TLS begins with: its handshake.
//!
//! The client's first message says which name it wants. The certificate is chosen by that before anything is answered, so
//! that a name without one gets the alert that says so, and what was shown is known when requests come.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite as suites};
use rustls::server::{Accepted, Acceptor, ClientHello, NoServerSessionStorage};
use rustls::sign::SingleCertAndKey;
use rustls::{CipherSuite, ServerConfig, SupportedCipherSuite};
use tokio::io::{AsyncReadExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{StartHandshake, TlsStream, server};

use crate::certify::Certify;
use crate::conn::arrival::{Arrival, Over, Shown};
use crate::conn::http1::LAST_CALL;
use crate::conn::passthrough::Passage;
use crate::conn::worker::Worker;
use crate::http::host::Host;
use crate::net::buffer::Buffer;
use crate::net::deadline::{Elapsed, Ticket};
use crate::net::stream::Stream;
use crate::table::Route;
use crate::table::certs::Certificate;

/// What all TLS connections have in common.
pub(crate) struct Tls {
    certify: Arc<dyn Certify>,
    /// Everything but the certificate. The keys of resumption tickets are in it: they live as long as the process.
    config: ServerConfig,
    /// Where clients reach it, if that is not 443.
    port: Option<u16>,
}

/// Which HTTP a client speaks over its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Negotiated {
    Http1,
    Http2,
}

/// What a connection has become.
pub(super) enum Established {
    /// One that carries HTTP.
    Http(Stream, Arrival, Negotiated),
    /// One that is somebody else's.
    Passed(Passage, Arrival),
}

/// What is done about a client's first message.
enum Answered {
    Done(Box<server::TlsStream<TcpStream>>, Shown),
    /// Nothing: it is for a backend.
    Passed(Passage),
}

/// Why a handshake failed.
#[derive(Debug)]
enum Failure {
    /// The client went, or broke off, or its messages are wrong. Whatever there was to say has been said.
    Broken(io::Error),
    /// There is no certificate for what it asked for.
    NoCertificate(Option<Box<str>>),
}

/// What a client's first byte says.
enum First {
    Tls,
    /// A letter: the method of a request.
    Http,
    /// It went without one, or said none in time.
    Nothing,
}

/// What messages are encrypted by, what is wanted most first.
const CIPHERS: [SupportedCipherSuite; 9] = [
    suites::TLS13_AES_128_GCM_SHA256,
    suites::TLS13_AES_256_GCM_SHA384,
    CHACHA[0],
    suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suites::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    suites::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suites::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CHACHA[1],
    CHACHA[2],
];

/// Those that are quick without hardware for AES.
const CHACHA: [SupportedCipherSuite; 3] = [
    suites::TLS13_CHACHA20_POLY1305_SHA256,
    suites::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    suites::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// The port of `https://` where none is said (RFC 9110 section 4.2.2).
pub(super) const HTTPS: u16 = 443;

/// What a client says that wants HTTP/2 (RFC 9113 section 3.2).
const HTTP2: &[u8] = b"h2";

/// How much of a client's first message is read at once: most are whole then.
const BITE: usize = 4096;

/// The longest first message that is read: as long as the TLS library takes.
const LARGEST_HELLO: usize = 64 * 1024;

/// `fatal`, `unrecognized_name`, as a record of its own (RFC 8446 sections 5.1 and 6).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

impl Tls {
    pub(crate) fn new(certify: Arc<dyn Certify>, ports: &[u16]) -> io::Result<Self> {
        let provider = CryptoProvider { cipher_suites: CIPHERS.to_vec(), ..aws_lc_rs::default_provider() };
        let provider = Arc::new(provider);
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        // Each handshake gets its own in place of this one.
        let nobody = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
        let mut config = builder.with_no_client_auth().with_cert_resolver(nobody);
        config.ignore_client_order = true;
        config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        // Sessions are resumed by tickets alone: what is remembered is remembered by clients.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(io::Error::other)?;
        let port = if ports.contains(&HTTPS) { None } else { ports.first().copied() };
        Ok(Self { certify, config, port })
    }

    /// Where a connection goes as it is that asks for this name; `None` where it ends here.
    pub(super) fn pass_through(&self, name: Option<&str>) -> Option<Arc<Route>> {
        self.certify.pass_through(name)
    }

    /// The port of addresses that begin with `https://`, where it has to be said.
    pub(super) fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether a client that asks for this host is shown a certificate that is for it.
    pub(super) fn has_certificate_for(&self, host: &Host) -> bool {
        self.certify.certificate(Some(host.name())).is_some_and(|certificate| certificate.covers(host.name()))
    }

    /// How to shake hands with a client, of which this is the first message.
    fn config(&self, hello: &ClientHello<'_>, certificate: &Certificate) -> Arc<ServerConfig> {
        let mut config = self.config.clone();
        // A client that wants this one most has no AES in its hardware: there the others cost it several times as much.
        let known = |suite: &&CipherSuite| CIPHERS.iter().any(|known| known.suite() == **suite);
        let first = hello.cipher_suites().iter().find(known);
        config.ignore_client_order = !first.is_some_and(|suite| CHACHA.iter().any(|chacha| chacha.suite() == *suite));
        config.cert_resolver = Arc::new(SingleCertAndKey::from(Arc::clone(certificate.key())));
        Arc::new(config)
    }
}

/// Shakes hands. `None`: the connection has ended over it, and the log has been told.
pub(super) async fn establish(
    stream: TcpStream,
    arrival: Arrival,
    tls: &Tls,
    worker: &Worker,
    ticket: &Ticket,
) -> Option<Established> {
    ticket.attend().await;
    ticket.arm(worker.shared.settings.timeouts.handshake);
    match first_byte(&stream, ticket).await {
        First::Tls => {}
        First::Http => {
            let arrival = arrival.over(Over::Mistaken);
            return Some(Established::Http(Stream::Tcp(stream), arrival, Negotiated::Http1));
        }
        First::Nothing => return None,
    }
    match ticket.until_due(pin!(handshake(stream, tls, worker))).await {
        Ok(Ok(Answered::Passed(passage))) => Some(Established::Passed(passage, arrival)),
        Ok(Ok(Answered::Done(stream, shown))) => {
            let negotiated = match stream.get_ref().1.alpn_protocol() {
                Some(HTTP2) => Negotiated::Http2,
                _ => Negotiated::Http1,
            };
            let stream = Stream::Tls(Box::new(TlsStream::Server(*stream)));
            Some(Established::Http(stream, arrival.over(Over::Tls(shown)), negotiated))
        }
        Ok(Err(failure)) => {
            failure.tell(arrival.client, worker);
            None
        }
        Err(Elapsed) => {
            tracing::debug!(client = %arrival.client, "the TLS handshake took too long");
            None
        }
    }
}

/// Waits for the first byte, which stays where it is. Holds nothing meanwhile.
async fn first_byte(stream: &TcpStream, ticket: &Ticket) -> First {
    let mut draining = false;
    ticket.begin_idling();
    let first = poll_fn(|cx| {
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte);
        if let Poll::Ready(peeked) = stream.poll_peek(cx, &mut byte) {
            return Poll::Ready(match peeked {
                Ok(1) if byte.filled()[0].is_ascii_alphabetic() => First::Http,
                Ok(1) => First::Tls,
                _ => First::Nothing,
            });
        }
        if ticket.is_draining() && !draining {
            draining = true;
            ticket.arm(LAST_CALL);
        }
        if ticket.is_due() || ticket.is_evicted() { Poll::Ready(First::Nothing) } else { Poll::Pending }
    })
    .await;
    ticket.end_idling();
    first
}

async fn handshake(mut stream: TcpStream, tls: &Tls, worker: &Worker) -> Result<Answered, Failure> {
    let mut raw = worker.spare.buffer();
    let accepted = hello(&mut stream, &mut raw).await;
    let asked = accepted.as_ref().ok().map(|accepted| accepted.client_hello().server_name().map(compared));
    if let Some(route) = asked.as_ref().and_then(|name| tls.pass_through(name.as_deref())) {
        let name = asked.flatten();
        return Ok(Answered::Passed(Passage { stream: Stream::Tcp(stream), hello: raw, name, route }));
    }
    worker.spare.give_buffer(raw);
    let (accepted, name) = (accepted?, asked.flatten());
    let Some(certificate) = tls.certify.certificate(name.as_deref()) else {
        // It goes into an empty socket; one that does not take it has nobody behind it.
        let _ = stream.try_write(&UNRECOGNIZED_NAME);
        return Err(Failure::NoCertificate(name));
    };
    let config = tls.config(&accepted.client_hello(), &certificate);
    let stream = StartHandshake::from_parts(accepted, stream).into_stream(config).await.map_err(Failure::Broken)?;
    Ok(Answered::Done(Box::new(stream), Shown { certificate, name }))
}

/// Reads the client's first message, however it is split. The bytes stay in `raw` as they came.
async fn hello(stream: &mut TcpStream, raw: &mut Buffer) -> Result<Accepted, Failure> {
    let mut acceptor = Acceptor::default();
    loop {
        if !raw.make_room(LARGEST_HELLO) {
            return Err(broken("the first message is too long"));
        }
        let room = raw.room();
        let bite = BITE.min(room.len());
        let count = stream.read(&mut room[..bite]).await.map_err(Failure::Broken)?;
        if count == 0 {
            return Err(Failure::Broken(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut fresh = &room[..count];
        while !fresh.is_empty() {
            // It takes nothing more behind a goodbye.
            if acceptor.read_tls(&mut fresh).map_err(Failure::Broken)? == 0 {
                return Err(broken("there is something behind the end"));
            }
        }
        raw.filled(count);
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted),
            Ok(None) => {}
            Err((error, mut alert)) => {
                let mut said = Vec::new();
                let _ = alert.write_all(&mut said);
                let _ = stream.try_write(&said);
                return Err(broken(error));
            }
        }
    }
}

fn broken(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::Broken(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// A name as hosts are compared.
fn compared(name: &str) -> Box<str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.to_ascii_lowercase().into()
}

impl Failure {
    /// Tells who reads the log.
    fn tell(self, client: SocketAddr, worker: &Worker) {
        match self {
            Self::Broken(error) => tracing::debug!(%client, %error, "TLS handshake failed"),
            Self::NoCertificate(name) => {
                let name = name.as_deref().unwrap_or("none");
                tracing::debug!(%client, name, "TLS handshake failed: no certificate for the name that was asked for");
                if worker.shared.seldom.unrecognized.may_say() {
                    tracing::warn!(%client, name, "a TLS client asks for a name that has no certificate, and is turned away");
                }
            }
        }
    }
}
