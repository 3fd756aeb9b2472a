//! A request's head: read once, judged once, kept as offsets into the bytes it came in.
//!
//! httparse splits the lines and checks the characters; everything that two parsers could read differently is refused
//! here (RFC 9112 sections 3, 5 and 6). What comes out has one host, one length and one meaning.

use std::mem::MaybeUninit;

use crate::http::body::Framing;
use crate::http::field::{self, Field, Fields, Kind};
use crate::http::host::{BadHost, Host};
use crate::http::refuse::Refusal;
use crate::settings::{Limits, MOST_FIELDS};

/// A request's head, for whoever decides where it goes.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    bytes: &'a [u8],
    parsed: &'a RequestHead,
}

impl<'a> Head<'a> {
    pub(crate) fn new(bytes: &'a [u8], parsed: &'a RequestHead) -> Self {
        Self { bytes, parsed }
    }

    /// The host that is asked for; `None` only for HTTP/1.0 without one.
    pub fn host(&self) -> Option<&'a Host> {
        self.parsed.host()
    }

    /// The method, as sent: methods are case-sensitive (RFC 9110 section 9.1).
    pub fn method(&self) -> &'a str {
        // A token is ASCII.
        std::str::from_utf8(self.parsed.method(self.bytes)).unwrap_or_default()
    }

    /// The target in origin form, `/path?query`, or `*`. It begins with `?` where an absolute form had no path.
    pub fn target(&self) -> &'a [u8] {
        self.parsed.target(self.bytes)
    }

    /// The target without its query.
    pub fn path(&self) -> &'a [u8] {
        let target = self.target();
        memchr::memchr(b'?', target).map_or(target, |query| &target[..query])
    }

    /// Every field, in the order sent, with its name as spelt.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.parsed.fields.iter().map(move |field| (field.name(bytes), field.value(bytes)))
    }

    /// The first field of this name, letter case aside.
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        let named = |field: &&Field| field.name(self.bytes).eq_ignore_ascii_case(name.as_bytes());
        self.parsed.fields.iter().find(named).map(|field| field.value(self.bytes))
    }
}

/// A request's head as offsets. The value is used again for the next request.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    /// Of the whole head, with its empty line.
    pub(crate) length: usize,
    method_end: usize,
    target_start: usize,
    target_end: usize,
    /// Absolute form: where the authority stands, whose host decides and is forwarded (RFC 9112 section 3.2.2).
    pub(crate) authority: Option<(usize, usize)>,
    pub(crate) fields: Fields,
    pub(crate) minor: u8,
    host: Host,
    has_host: bool,
    pub(crate) framing: Framing,
    /// The client wants this connection to go on.
    pub(crate) keep_alive: bool,
    /// The client asks for a switch of protocols that we pass on (RFC 9110 section 7.8).
    pub(crate) upgrade: bool,
    /// The client accepts trailers (RFC 9110 section 10.1.4).
    pub(crate) te_trailers: bool,
    /// The client waits for a `100` before it sends the body (RFC 9110 section 10.1.1).
    pub(crate) expects_continue: bool,
    /// The method is HEAD: the response has no body.
    pub(crate) is_head: bool,
    /// Doing it twice is the same as doing it once (RFC 9110 section 9.2.2).
    pub(crate) is_idempotent: bool,
    /// The client would rather see a page than a line of text.
    pub(crate) wants_html: bool,
}

/// Whether a head is all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    Whole,
    Partial,
}

impl RequestHead {
    /// Reads a head at the front of `bytes`, which do not begin with an empty line.
    pub(crate) fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Parsed, Refusal> {
        self.length = 0;
        let mut storage = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut []);
        let room = &mut storage[..limits.fields.min(MOST_FIELDS)];
        let length = match request.parse_with_uninit_headers(bytes, room) {
            Ok(httparse::Status::Complete(length)) if length <= limits.head => length,
            Ok(httparse::Status::Partial) if bytes.len() < limits.head => return too_long_target(bytes, limits),
            Ok(_) if memchr::memchr(b'\n', bytes).is_none() => return Err(Refusal::TargetTooLong),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
            Err(error) => return Err(Refusal::MalformedHead(why(error))),
        };
        let head = &bytes[..length];
        let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
            return Err(Refusal::MalformedHead("the request line is malformed"));
        };
        let bare = Refusal::MalformedHead("a line does not end with CR LF");
        self.fields.assign(head, request.headers).ok_or(bare)?;
        if !head.starts_with(method.as_bytes()) {
            return Err(Refusal::MalformedHead("bytes in front of the request line"));
        }
        if target.len() > limits.target || is_long_line(self.fields.start - 1, limits) {
            return Err(Refusal::TargetTooLong);
        }
        self.length = length;
        self.minor = minor;
        self.method_end = method.len();
        self.target_start = method.len() + 1;
        self.target_end = self.target_start + target.len();
        self.judge(head)?;
        Ok(Parsed::Whole)
    }

    /// What the lines mean together.
    fn judge(&mut self, head: &[u8]) -> Result<(), Refusal> {
        let named = field::connection(head, &mut self.fields);
        let connection = named.ok_or(Refusal::MalformedHead("Connection names too many fields"))?;
        let lengths = field::lengths(head, &self.fields).map_err(Refusal::MalformedHead)?;
        if lengths.chunked && self.minor == 0 {
            return Err(Refusal::MalformedHead("Transfer-Encoding in HTTP/1.0"));
        }
        self.framing = match lengths.length {
            Some(length) => Framing::Length(length),
            None if lengths.chunked => Framing::Chunked,
            None => Framing::None,
        };
        self.keep_alive = !connection.close && (self.minor == 1 || connection.keep_alive);
        self.judge_target(head)?;
        self.judge_host(head)?;
        self.upgrade = false;
        let mut h2c = false;
        self.te_trailers = false;
        self.expects_continue = false;
        self.wants_html = false;
        let method = self.method(head);
        (self.is_head, self.is_idempotent) =
            (method == b"HEAD", matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE" | b"TRACE"));
        if !self.fields.kinds.any_of(&[Kind::Upgrade, Kind::Te, Kind::Accept, Kind::Expect]) {
            return Ok(());
        }
        for field in self.fields.iter() {
            let value = field.value(head);
            match field.kind {
                Kind::Upgrade => {
                    self.upgrade = connection.upgrade && self.minor == 1 && !value.is_empty();
                    h2c |= field::list(value).any(is_http2);
                }
                Kind::Te => self.te_trailers |= field::list(value).any(|te| te.eq_ignore_ascii_case(b"trailers")),
                Kind::Accept => self.wants_html |= field::list(value).any(|range| range.starts_with(b"text/html")),
                Kind::Expect if self.minor == 1 && !field.nominated => {
                    self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue")
                }
                _ => {}
            }
        }
        // A backend that switches to HTTP/2 would take requests that nobody routes.
        self.upgrade &= !h2c;
        Ok(())
    }

    /// Brings the target into origin form (RFC 9112 section 3.2).
    fn judge_target(&mut self, head: &[u8]) -> Result<(), Refusal> {
        self.authority = None;
        let target = &head[self.target_start..self.target_end];
        let method = &head[..self.method_end];
        if method == b"CONNECT" {
            return Err(Refusal::MalformedHead("CONNECT is not served"));
        }
        // No early end: so it is done for many bytes at once.
        if target.iter().fold(false, |odd, &byte| odd | (byte <= b' ') | (byte == b'#') | (byte == 0x7f)) {
            return Err(Refusal::MalformedHead("the target has a byte that no target has"));
        }
        match target {
            [b'/', ..] => Ok(()),
            b"*" if method == b"OPTIONS" => Ok(()),
            _ => {
                let scheme = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case(b"http://"));
                scheme.ok_or(Refusal::MalformedHead("the target is neither a path nor an http:// address"))?;
                let start = self.target_start + 7;
                let authority = target[7..].iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(target.len() - 7);
                self.authority = Some((start, start + authority));
                self.target_start = start + authority;
                Ok(())
            }
        }
    }

    fn judge_host(&mut self, head: &[u8]) -> Result<(), Refusal> {
        let mut hosts = self.fields.iter().filter(|field| field.kind == Kind::Host);
        let host = hosts.next().map(|field| field.value(head));
        if hosts.next().is_some() {
            return Err(Refusal::BadHost("Host is repeated"));
        }
        self.has_host = host.is_some();
        let bad = |BadHost(why): BadHost| Refusal::BadHost(why);
        match host {
            Some(host) => self.host.assign(host).map_err(bad)?,
            None if self.minor == 1 => return Err(Refusal::BadHost("HTTP/1.1 without Host")),
            None => {}
        }
        if let Some((start, end)) = self.authority {
            self.host.assign(&head[start..end]).map_err(bad)?;
            self.has_host = true;
        }
        Ok(())
    }

    pub(crate) fn host(&self) -> Option<&Host> {
        self.has_host.then_some(&self.host)
    }

    pub(crate) fn method<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[..self.method_end]
    }

    /// In origin form, or `*`.
    pub(crate) fn target<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        match &head[self.target_start..self.target_end] {
            [] if self.method(head) == b"OPTIONS" => b"*",
            [] => b"/",
            target => target,
        }
    }

    /// The host as the client spelt it, with its port: what is forwarded.
    pub(crate) fn host_text<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        match self.authority {
            Some((start, end)) => Some(&head[start..end]),
            None => self.fields.iter().find(|field| field.kind == Kind::Host).map(|field| field.value(head)),
        }
    }
}

/// Whether doing it twice is the same as doing it once (RFC 9110 section 9.2.2).
pub(crate) fn is_idempotent(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE" | b"TRACE")
}

/// The longest method and version that anyone uses fit into this.
pub(crate) const LONGEST_REST_OF_LINE: usize = 64;

/// A head that is not whole yet: its first line may already be too long.
fn too_long_target(bytes: &[u8], limits: &Limits) -> Result<Parsed, Refusal> {
    let line = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    if is_long_line(line, limits) { Err(Refusal::TargetTooLong) } else { Ok(Parsed::Partial) }
}

/// Whether so many bytes before a line feed are too many for a request line. Asked of whole heads too: a verdict must
/// not depend on how the bytes came in pieces.
fn is_long_line(length: usize, limits: &Limits) -> bool {
    length > limits.target.saturating_add(LONGEST_REST_OF_LINE)
}

/// Tokens of `Upgrade` that lead to HTTP/2.
fn is_http2(token: &[u8]) -> bool {
    token.eq_ignore_ascii_case(b"h2c") || token.eq_ignore_ascii_case(b"h2") || token.starts_with(b"HTTP/2")
}

pub(crate) fn why(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a field name is not a token, or no colon follows it",
        httparse::Error::HeaderValue => "a field value has a control byte",
        httparse::Error::NewLine => "a line does not end with CR LF",
        httparse::Error::Status => "the status is not three digits",
        httparse::Error::Token => "the request line is malformed",
        httparse::Error::TooManyHeaders => "too many fields",
        httparse::Error::Version => "the version is neither HTTP/1.0 nor HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<RequestHead, Refusal> {
        let mut head = RequestHead::default();
        match head.parse(bytes, &Limits::default()) {
            Ok(Parsed::Whole) => Ok(head),
            Ok(Parsed::Partial) => panic!("partial: {}", bytes.escape_ascii()),
            Err(refusal) => Err(refusal),
        }
    }

    fn get(lines: &str) -> Vec<u8> {
        format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n").into_bytes()
    }

    #[test]
    fn every_split_point_is_partial_and_the_whole_is_whole() {
        let bytes = get("X-A: b\r\nContent-Length: 5\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n");
        let mut head = RequestHead::default();
        for end in 1..bytes.len() {
            assert_eq!(head.parse(&bytes[..end], &Limits::default()), Ok(Parsed::Partial), "at {end}");
        }
        assert_eq!(head.parse(&bytes, &Limits::default()), Ok(Parsed::Whole));
        assert_eq!((head.length, head.framing), (bytes.len(), Framing::Length(5)));
        assert!(head.upgrade && head.keep_alive && !head.expects_continue);
        assert_eq!((head.method(&bytes), head.target(&bytes)), (&b"GET"[..], &b"/x"[..]));
        assert_eq!(head.host().map(Host::name), Some("a.test"));
    }

    #[test]
    fn what_two_parsers_could_read_differently_is_refused() {
        for lines in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding:\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \"chunked\"\r\n",
            "Transfer-Encoding: \u{b}chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding:\r\n chunked\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -0\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Host: b.test\r\n",
            "Host: a.test\r\n",
            "X-A: a\r\n b\r\n",
            "X-A : b\r\n",
            "X-A\r\n",
            ": b\r\n",
            "X A: b\r\n",
            "X(A: b\r\n",
            "X-A: a\0b\r\n",
            "X-A: a\x01b\r\n",
            "X-A: a\x7fb\r\n",
            "X-A: a\rX-B: b\r\n",
            "X-A: a\nX-B: b\r\n",
            "X-A: a\n",
            " X-A: a\r\n",
        ] {
            assert!(parse(&get(lines)).is_err(), "{}", lines.escape_debug());
        }
        for bytes in [
            &b"GET /x HTTP/1.1\nHost: a.test\r\n\r\n"[..],
            b"GET /x HTTP/1.1\r\nHost: a.test\r\n\n",
            b"GET /x HTTP/1.1\r\nHost: a.test\n\r\n",
            b"GET /x HTTP/1.1\r\n\r\n",
            b"GET http://a.test/x HTTP/1.1\r\n\r\n",
            b"GET /x HTTP/1.1\r\nHost:\r\n\r\n",
            b"GET  /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET /x  HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET /x HTTP/1.1 \r\nHost: a.test\r\n\r\n",
            b"GET\t/x\tHTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET /x y HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET /x#f HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET /\0 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET /\x7f HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET \\x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET * HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET http:///x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET http://u@a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET /x HTTP/2.0\r\nHost: a.test\r\n\r\n",
            b"GET /x HTTP/1.10\r\nHost: a.test\r\n\r\n",
            b"GET /x http/1.1\r\nHost: a.test\r\n\r\n",
            b"GET /x\r\nHost: a.test\r\n\r\n",
            b"GE(T /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b" /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"\nGET /x HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"POST /x HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\n",
        ] {
            assert!(parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn endless_heads_are_refused_at_their_limits() {
        let limits = Limits { head: 300, target: 100, fields: 4, ..Limits::default() };
        let mut head = RequestHead::default();
        let long_target = [b"GET /".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(head.parse(&long_target, &limits), Err(Refusal::TargetTooLong));
        let over_by_one = [b"GET /".as_slice(), &[b'x'; 100], b" HTTP/1.1\r\nHost: a.test\r\n\r\n"].concat();
        assert_eq!(head.parse(&over_by_one, &limits), Err(Refusal::TargetTooLong));
        // Whole or not, a method takes no more than its share of the line.
        for (method, verdict) in [(53, Ok(Parsed::Whole)), (54, Err(Refusal::TargetTooLong))] {
            let target = [b'x'; 99];
            let line = [&vec![b'M'; method], &b" /"[..], &target, b" HTTP/1.1\r\nHost: a.test\r\n\r\n"].concat();
            let early = verdict.map(|_| Parsed::Partial);
            assert_eq!(head.parse(&line[..100 + 65], &limits), early, "{method}");
            assert_eq!(head.parse(&line[..line.len() - 1], &limits), early, "{method}");
            assert_eq!(head.parse(&line, &limits), verdict, "{method}");
        }
        let long_field = get(&format!("X: {}\r\n", "y".repeat(300)));
        assert_eq!(head.parse(&long_field, &limits), Err(Refusal::HeadTooLarge));
        assert_eq!(head.parse(&long_field[..300], &limits), Err(Refusal::HeadTooLarge));
        assert_eq!(head.parse(&get("A: b\r\nC: d\r\nE: f\r\n"), &limits), Ok(Parsed::Whole));
        assert_eq!(head.parse(&get("A: b\r\nC: d\r\nE: f\r\nG: h\r\n"), &limits), Err(Refusal::HeadTooLarge));
    }

    #[test]
    fn absolute_form_decides_and_is_brought_into_origin_form() {
        for (target, want, host) in [
            ("http://a.test/x?y", "/x?y", "a.test"),
            ("HTTP://A.Test", "/", "a.test"),
            ("http://a.test?q=1", "?q=1", "a.test"),
            ("http://a.test:8080/", "/", "a.test"),
            ("//b.test/x", "//b.test/x", "other.test"),
        ] {
            let bytes = format!("GET {target} HTTP/1.1\r\nHost: other.test\r\n\r\n").into_bytes();
            let head = parse(&bytes).unwrap();
            assert_eq!(head.target(&bytes), want.as_bytes(), "{target}");
            assert_eq!(head.host().map(Host::name), Some(host), "{target}");
        }
        let bytes = b"OPTIONS http://a.test HTTP/1.1\r\nHost: a.test\r\n\r\n";
        assert_eq!(parse(bytes).unwrap().target(bytes), b"*");
    }

    #[test]
    fn connection_options_mean_what_they_say() {
        let keeps = |bytes: &[u8]| parse(bytes).unwrap().keep_alive;
        assert!(keeps(&get("")));
        assert!(!keeps(&get("Connection: , ,Close,,\r\n")));
        assert!(!keeps(b"GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
        let upgrades = |lines: &str| parse(&get(lines)).unwrap().upgrade;
        assert!(upgrades("Connection: keep-alive\r\nConnection: UPGRADE\r\nUpgrade: x\r\n"));
        assert!(!upgrades("Upgrade: websocket\r\n"));
        assert!(!upgrades("Connection: Upgrade\r\n"));
        assert!(!upgrades("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAA\r\n"));
        assert!(!upgrades("Connection: Upgrade\r\nUpgrade: websocket, H2C\r\n"));
        let many = (0..65).map(|n| format!("x{n}")).collect::<Vec<_>>().join(",");
        assert!(parse(&get(&format!("Connection: {many}\r\n"))).is_err());
    }
}
