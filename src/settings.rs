//! What can be tuned: plain data with defaults, filled by `carom.toml`, by flags, or by a library's user.
//!
//! Every wait for a peer has a time here, and whatever a peer can grow has a number.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// Everything that a connection asks for while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long to wait, for what.
    pub timeouts: Timeouts,
    /// How much to take, of what.
    pub limits: Limits,
    /// What a client's HTTP/2 connection may take.
    pub http2: Http2,
    /// What backends are told about the client.
    pub forwarding: Forwarding,
    /// What the cookies of sticky sessions are signed with; `None` for a key that is made at each start, and then they don't
    /// outlive it. Default: `None`.
    pub sticky_key: Option<StickyKey>,
    /// Whether answers of carom's own carry their reason code in a `Carom-Error` field. Default: yes.
    pub error_field: bool,
}

/// A key for the cookies of sticky sessions. Who knows it can choose his instance, and no more.
#[derive(Clone, PartialEq, Eq)]
pub struct StickyKey([u8; 32]);

impl StickyKey {
    /// These bytes, which nobody else knows.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for StickyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It is a secret, and settings are shown.
        f.write_str("StickyKey(…)")
    }
}

/// How long to wait for a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A TLS handshake, whole, from accept on. Default: 10 s.
    pub handshake: Duration,
    /// A request head, whole: from its first byte, or from accept for the first of a connection. Default: 10 s.
    pub head: Duration,
    /// Silence while a request body is due. Default: 60 s.
    pub body: Duration,
    /// Connecting to one backend. Default: 3 s.
    pub connect: Duration,
    /// From the request's last byte to the end of the response head. Default: 60 s.
    pub response_head: Duration,
    /// Silence of the backend while a response body is due. Default: 60 s.
    pub response_body: Duration,
    /// Silence of a client that does not take the response that waits for it. Default: 60 s.
    pub send: Duration,
    /// A kept-alive client connection without a request. Default: 75 s.
    pub idle: Duration,
    /// A kept-alive backend connection without a request. Default: 30 s.
    pub backend_idle: Duration,
    /// Silence in both directions of a tunnel; `None` for as long as both sides like. Default: `None`.
    pub tunnel: Option<Duration>,
    /// Silence of a tunnel of which one side has ended. Default: 60 s.
    pub half_closed: Duration,
    /// How long a stop waits for what is in flight. Default: 30 s.
    pub drain: Duration,
}

/// How much of something a peer may make us hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request head. Default: 32 KiB.
    pub head: usize,
    /// Bytes of one request target. Default: 16 KiB.
    pub target: usize,
    /// Fields of one head, request or response; at most [`MOST_FIELDS`]. Default: 128.
    pub fields: usize,
    /// Bytes of one request body; `None` for any. Default: `None`.
    pub body: Option<u64>,
    /// Bytes of one response head. Default: 64 KiB.
    pub response_head: usize,
    /// Bytes of one chunk's size line with its extensions (RFC 9112 section 7.1.1). Default: 4 KiB.
    pub chunk_line: usize,
    /// Bytes of a request body that are read and thrown away when the response came before it, so that the
    /// connection can be kept. Default: 64 KiB.
    pub leftover: u64,
    /// Bytes of one request, head and body, that are kept while another try may need them (`retries`). Default: 64 KiB.
    pub replay: usize,
    /// Requests that wait for one site (`wait`, `max_connections`). Default: 1024.
    pub waiting: usize,
    /// Client connections at once; 0 for as many as the descriptor limit has room for. Default: 0.
    pub connections: usize,
    /// Idle connections kept for one backend, for each worker. Default: 256.
    pub backend_idle: usize,
}

/// How much one HTTP/2 connection of a client may take. What `limits` says of a request holds as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2 {
    /// Requests at once. Default: 128.
    pub streams: u32,
    /// Bytes of one request body that are taken before the backend takes them; at least 65,535. Default: 256 KiB.
    pub stream_window: u32,
    /// The same of all request bodies together; at least 65,535. Default: 2 MiB.
    pub connection_window: u32,
    /// Bytes of one response that wait for the client to take them, and then no more is read from the backend.
    /// Default: 128 KiB.
    pub send_buffer: usize,
    /// How many more requests a client may take back than it lets be answered. Default: 256.
    pub resets: usize,
    /// Plain connections may begin with HTTP/2 at once (RFC 9113 section 3.3), as gRPC without TLS does. Default: no.
    pub prior_knowledge: bool,
}

/// No head has more fields than this, whatever `limits.fields` says.
pub const MOST_FIELDS: usize = 1024;

/// What backends are told about the client, and whom we believe about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// Which fields are sent. Default: `X-Forwarded-*`.
    pub send: ForwardedFields,
    /// Peers whose own forwarding fields are kept and added to. Default: nobody.
    pub trust: Vec<IpNet>,
    /// The field in which backends are given the request's name, as it is in the log: `x-request-id`. A trusted peer's is
    /// kept, every other client's is replaced. Default: none is sent.
    pub request_id: Option<Box<str>>,
}

/// The fields that carry the client's address, scheme and host to the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedFields {
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// All four.
    Both,
    /// None of them.
    None,
}

impl Forwarding {
    /// Whether this peer's own forwarding fields are believed.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.trust.iter().any(|net| net.contains(&peer))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            http2: Http2::default(),
            forwarding: Forwarding::default(),
            sticky_key: None,
            error_field: true,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            body: Duration::from_secs(60),
            connect: Duration::from_secs(3),
            response_head: Duration::from_secs(60),
            response_body: Duration::from_secs(60),
            send: Duration::from_secs(60),
            idle: Duration::from_secs(75),
            backend_idle: Duration::from_secs(30),
            tunnel: None,
            half_closed: Duration::from_secs(60),
            drain: Duration::from_secs(30),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: 32 * 1024,
            target: 16 * 1024,
            fields: 128,
            body: None,
            response_head: 64 * 1024,
            chunk_line: 4 * 1024,
            leftover: 64 * 1024,
            replay: 64 * 1024,
            waiting: 1024,
            connections: 0,
            backend_idle: 256,
        }
    }
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            streams: 128,
            stream_window: 256 * 1024,
            connection_window: 2 * 1024 * 1024,
            send_buffer: 128 * 1024,
            resets: 256,
            prior_knowledge: false,
        }
    }
}
