//! A head on its way through: the same bytes in the same order, less what is for one hop only, plus who the client is.

use std::io::Write;
use std::net::IpAddr;

use crate::http::body::{Framing, is_token};
use crate::http::field::{Field, Fields, Kind};
use crate::http::head::RequestHead;
use crate::http::host::Host;
use crate::http::response::ResponseHead;
use crate::settings::ForwardedFields;

/// What the backend is told about the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// The address of the client, or of the proxy in front of us.
    pub(crate) peer: IpAddr,
    /// Its own forwarding fields are kept and added to.
    pub(crate) trusted: bool,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Which fields tell it.
    pub(crate) fields: ForwardedFields,
    /// The field that gives the request its name, and that name.
    pub(crate) id: Option<(&'a str, &'a str)>,
}

/// What a decision changes of a head on its way.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    method: Option<Box<str>>,
    target: Option<Box<[u8]>>,
    fields: Vec<(Box<str>, Box<[u8]>)>,
}

impl Changes {
    /// Takes the place of all fields of this name.
    pub(crate) fn set_field(&mut self, name: &str, value: &[u8]) -> Result<(), &'static str> {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("a field's name is not a token");
        }
        if value.iter().any(|&byte| matches!(byte, 0..=8 | 10..=31 | 127)) {
            return Err("a field's value has a control byte");
        }
        match Kind::of(name.as_bytes()) {
            Kind::Host if Host::parse(value).is_err() => return Err("Host is not a host"),
            Kind::ContentLength | Kind::TransferEncoding => return Err("a body's length can't be set"),
            Kind::Connection | Kind::KeepAlive | Kind::ProxyConnection | Kind::Te | Kind::Upgrade => {
                return Err("a field that is for one hop can't be set");
            }
            Kind::Http2Settings | Kind::LookAlike => {
                return Err("a field that backends may take for another can't be set");
            }
            _ => {}
        }
        self.fields.retain(|(set, _)| !set.eq_ignore_ascii_case(name));
        self.fields.push((name.into(), value.trim_ascii().into()));
        Ok(())
    }

    pub(crate) fn set_method(&mut self, method: &str) -> Result<(), &'static str> {
        if method.is_empty() || !method.bytes().all(is_token) || matches!(method, "HEAD" | "CONNECT") {
            return Err("a method is a token, and neither HEAD nor CONNECT");
        }
        self.method = Some(method.into());
        Ok(())
    }

    pub(crate) fn set_target(&mut self, target: &[u8]) -> Result<(), &'static str> {
        let odd = |&byte: &u8| byte <= b' ' || byte == b'#' || byte == 0x7f;
        if target.first() != Some(&b'/') || target.iter().any(odd) {
            return Err("a path begins with / and has neither spaces nor #");
        }
        self.target = Some(target.into());
        Ok(())
    }

    pub(crate) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    fn sets(&self, name: &[u8]) -> bool {
        self.fields.iter().any(|(set, _)| set.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// What goes on to the backend as it is, unless a `Connection` field or a decision says otherwise.
const ALWAYS_KEPT: [Kind; 5] = [Kind::Plain, Kind::Host, Kind::ContentLength, Kind::TransferEncoding, Kind::Accept];

/// Writes the request head that goes to the backend behind what `out` has.
pub(crate) fn request(out: &mut Vec<u8>, bytes: &[u8], head: &RequestHead, origin: &Origin<'_>, changes: &Changes) {
    request_line(out, bytes, head, changes);
    if let Some((start, end)) = head.authority.filter(|_| !changes.sets(b"host")) {
        field(out, b"Host", &bytes[start..end]);
    }
    let keep = |kept: &Field| match kept.kind {
        _ if changes.sets(kept.name(bytes)) => false,
        _ if origin.id.is_some_and(|(name, _)| kept.name(bytes).eq_ignore_ascii_case(name.as_bytes())) => false,
        Kind::Host => head.authority.is_none(),
        Kind::Connection | Kind::KeepAlive | Kind::ProxyConnection | Kind::Te => false,
        Kind::Http2Settings | Kind::LookAlike => false,
        Kind::Upgrade => head.upgrade,
        // It must be ignored in HTTP/1.0 (RFC 9110 section 10.1.1), which knows no 100; in our 1.1 it would count.
        Kind::Expect if head.minor == 0 => false,
        _ if kept.nominated => false,
        // Ours take the place of these: what a trusted peer said is in them.
        Kind::XForwardedFor if sends_x(origin) => false,
        Kind::Forwarded if sends_forwarded(origin) => false,
        Kind::Forwarded => origin.trusted && is_forwarded(kept.value(bytes)),
        Kind::XForwardedFor | Kind::XForwardedProto | Kind::XForwardedHost | Kind::OtherForwarding => origin.trusted,
        _ => true,
    };
    match changes.fields.is_empty()
        && origin.id.is_none()
        && head.authority.is_none()
        && !head.fields.kinds.any_but(&ALWAYS_KEPT)
    {
        true => out.extend_from_slice(head.fields.bytes(bytes)),
        false => copy_kept(out, bytes, &head.fields, keep),
    }
    match (head.upgrade, head.te_trailers) {
        (true, true) => out.extend_from_slice(b"TE: trailers\r\nConnection: upgrade, TE\r\n"),
        (true, false) => out.extend_from_slice(b"Connection: upgrade\r\n"),
        (false, true) => out.extend_from_slice(b"TE: trailers\r\nConnection: TE\r\n"),
        (false, false) => {}
    }
    if sends_x(origin) {
        x_forwarded(out, bytes, head, origin, changes);
    }
    if sends_forwarded(origin) && !changes.sets(b"forwarded") {
        forwarded(out, bytes, head, origin);
    }
    if let Some((name, id)) = origin.id.filter(|(name, _)| !changes.sets(name.as_bytes())) {
        field(out, name.as_bytes(), id.as_bytes());
    }
    for (name, value) in &changes.fields {
        field(out, name.as_bytes(), value);
    }
    out.extend_from_slice(b"\r\n");
}

/// The line itself, in origin form. The version is the hop's (RFC 9110 section 2.5): ours, unless there is no host,
/// which an HTTP/1.1 request must have.
fn request_line(out: &mut Vec<u8>, bytes: &[u8], head: &RequestHead, changes: &Changes) {
    let hostless = head.host().is_none() && !changes.sets(b"host");
    let changed = changes.method.is_some() || changes.target.is_some();
    if head.authority.is_none() && !changed && (head.minor == 1 || hostless) {
        out.extend_from_slice(&bytes[..head.fields.start]);
        return;
    }
    let target = changes.target.as_deref().unwrap_or_else(|| head.target(bytes));
    out.extend_from_slice(changes.method.as_deref().map_or(head.method(bytes), str::as_bytes));
    out.push(b' ');
    if target.first() == Some(&b'?') {
        out.push(b'/');
    }
    out.extend_from_slice(target);
    out.extend_from_slice(if hostless { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
}

/// Copies the lines that `keep` keeps, in runs.
fn copy_kept(out: &mut Vec<u8>, bytes: &[u8], fields: &Fields, keep: impl Fn(&Field) -> bool) {
    let mut run = fields.start;
    for dropped in fields.iter().filter(|field| !keep(field)) {
        out.extend_from_slice(&bytes[run..dropped.start as usize]);
        run = dropped.end as usize;
    }
    let end = fields.start + fields.bytes(bytes).len();
    out.extend_from_slice(&bytes[run..end]);
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn sends_x(origin: &Origin<'_>) -> bool {
    matches!(origin.fields, ForwardedFields::XForwarded | ForwardedFields::Both)
}

fn sends_forwarded(origin: &Origin<'_>) -> bool {
    matches!(origin.fields, ForwardedFields::Forwarded | ForwardedFields::Both)
}

fn values<'a>(bytes: &'a [u8], head: &'a RequestHead, kind: Kind) -> impl Iterator<Item = &'a [u8]> {
    head.fields.iter().filter(move |field| field.kind == kind && !field.nominated).map(|field| field.value(bytes))
}

fn x_forwarded(out: &mut Vec<u8>, bytes: &[u8], head: &RequestHead, origin: &Origin<'_>, changes: &Changes) {
    let said = |name: &[u8], kind| changes.sets(name) || (origin.trusted && values(bytes, head, kind).next().is_some());
    if !changes.sets(b"x-forwarded-for") {
        x_forwarded_for(out, bytes, head, origin);
    }
    if !said(b"x-forwarded-proto", Kind::XForwardedProto) {
        field(out, b"X-Forwarded-Proto", origin.scheme.as_bytes());
    }
    if let Some(host) = head.host_text(bytes).filter(|_| !said(b"x-forwarded-host", Kind::XForwardedHost)) {
        field(out, b"X-Forwarded-Host", host);
    }
}

fn x_forwarded_for(out: &mut Vec<u8>, bytes: &[u8], head: &RequestHead, origin: &Origin<'_>) {
    out.extend_from_slice(b"X-Forwarded-For: ");
    if origin.trusted {
        for earlier in values(bytes, head, Kind::XForwardedFor).filter(|value| !value.is_empty()) {
            out.extend_from_slice(earlier);
            out.extend_from_slice(b", ");
        }
    }
    address(out, origin.peer);
    out.extend_from_slice(b"\r\n");
}

/// Writes an address, IPv4 without the machinery of formatting: it is written for every request.
pub(crate) fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let (mut text, mut length) = (*b"255.255.255.255", 0);
            for (index, octet) in address.octets().into_iter().enumerate() {
                let mut put = |byte| {
                    text[length] = byte;
                    length += 1;
                };
                if index > 0 {
                    put(b'.');
                }
                if octet >= 100 {
                    put(b'0' + octet / 100);
                }
                if octet >= 10 {
                    put(b'0' + octet / 10 % 10);
                }
                put(b'0' + octet % 10);
            }
            out.extend_from_slice(&text[..length]);
        }
        // Writing into a Vec can't fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// RFC 7239 section 4: IPv6 addresses in brackets and quotes, and a host with a port in quotes.
fn forwarded(out: &mut Vec<u8>, bytes: &[u8], head: &RequestHead, origin: &Origin<'_>) {
    out.extend_from_slice(b"Forwarded: ");
    if origin.trusted {
        for earlier in values(bytes, head, Kind::Forwarded).filter(|value| is_forwarded(value)) {
            out.extend_from_slice(earlier);
            out.extend_from_slice(b", ");
        }
    }
    let (before, behind): (&[u8], &[u8]) = match origin.peer.to_canonical() {
        IpAddr::V4(_) => (b"for=", b""),
        IpAddr::V6(_) => (b"for=\"[", b"]\""),
    };
    out.extend_from_slice(before);
    address(out, origin.peer);
    out.extend_from_slice(behind);
    let _ = write!(out, ";proto={}", origin.scheme);
    if let Some(host) = head.host_text(bytes) {
        let quote: &[u8] = if host.iter().all(|&byte| is_token(byte)) { b"" } else { b"\"" };
        for part in [b";host=", quote, host, quote] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Whether a value is a list of `token=token` and `token="…"` pairs (RFC 7239 section 4). Anything else is dropped as a
/// whole: an open quote would swallow what we add.
fn is_forwarded(value: &[u8]) -> bool {
    let mut rest = value;
    loop {
        let name = rest.iter().take_while(|&&byte| is_token(byte)).count();
        let Some((b'=', behind)) = rest[name..].split_first().map(|(byte, behind)| (*byte, behind)) else {
            return false;
        };
        let length = match behind.first() {
            Some(b'"') => quoted_length(behind),
            _ => Some(behind.iter().take_while(|&&byte| is_token(byte)).count()).filter(|&length| length > 0),
        };
        let (Some(length), true) = (length, name > 0) else {
            return false;
        };
        match behind[length..].trim_ascii_start() {
            [] => return true,
            [b';' | b',', next @ ..] => rest = next.trim_ascii_start(),
            _ => return false,
        }
    }
}

/// The length of a quoted string with its quotes (RFC 9110 section 5.6.4).
fn quoted_length(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (index, &byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(index + 1),
            _ => {}
        }
    }
    None
}

/// What the client is told about its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Nothing: an HTTP/1.1 connection goes on.
    Silent,
    /// It goes on, which an HTTP/1.0 client has to be told.
    KeepAlive,
    /// It ends after this response.
    Close,
    /// It has become another protocol.
    Upgrade,
}

/// What a response says beside what its backend does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added<'a> {
    /// The value of [`HSTS`], in place of the backend's.
    pub(crate) hsts: Option<&'a str>,
    /// A cookie, beside the backend's.
    pub(crate) session: Option<&'a str>,
}

/// Writes the response head that goes to the client behind what `out` has. `dechunk` says that the body is sent
/// without its chunks. Gives `false`, and leaves `out` alone, where the bytes can go as they came.
pub(crate) fn response(
    out: &mut Vec<u8>,
    bytes: &[u8],
    head: &ResponseHead,
    persistence: Persistence,
    dechunk: bool,
    added: Added<'_>,
) -> bool {
    let Added { hsts, session } = added;
    let upgrades = persistence == Persistence::Upgrade;
    // RFC 9110 section 8.6 and RFC 9112 section 6.1: not in these, and some readers would believe them.
    let bodiless = head.status < 200 || head.status == 204;
    let keep = |kept: &Field| match kept.kind {
        Kind::Connection | Kind::KeepAlive | Kind::ProxyConnection => false,
        Kind::Upgrade => upgrades || head.status == 426,
        Kind::ContentLength => !bodiless,
        Kind::TransferEncoding => !bodiless && !dechunk,
        _ if hsts.is_some() && kept.name(bytes).eq_ignore_ascii_case(HSTS) => false,
        _ => !kept.nominated,
    };
    // What `keep` comes to when the connection silently goes on, without a look at each field.
    let kinds = head.fields.kinds;
    let drops = kinds.any_of(&[Kind::Connection, Kind::KeepAlive, Kind::ProxyConnection, Kind::Upgrade])
        || bodiless && kinds.any_of(&[Kind::ContentLength])
        || (bodiless || dechunk) && kinds.any_of(&[Kind::TransferEncoding]);
    if persistence == Persistence::Silent
        && head.minor == 1
        && head.status != 426
        && !drops
        && hsts.or(session).is_none()
    {
        return false;
    }
    out.extend_from_slice(b"HTTP/1.1");
    out.extend_from_slice(&bytes[8..head.fields.start]);
    copy_kept(out, bytes, &head.fields, keep);
    let connection: &[u8] = match persistence {
        _ if head.status == 426 && persistence == Persistence::Close => b"Connection: close, upgrade\r\n",
        _ if head.status == 426 && persistence == Persistence::KeepAlive => b"Connection: keep-alive, upgrade\r\n",
        _ if head.status == 426 => b"Connection: upgrade\r\n",
        Persistence::Silent => b"",
        Persistence::KeepAlive => b"Connection: keep-alive\r\n",
        Persistence::Close => b"Connection: close\r\n",
        Persistence::Upgrade => b"Connection: upgrade\r\n",
    };
    out.extend_from_slice(connection);
    if let Some(value) = hsts {
        field(out, HSTS, value.as_bytes());
    }
    if let Some(value) = session {
        field(out, b"Set-Cookie", value.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    true
}

/// The field by which a site asks browsers to come over TLS from now on (RFC 6797).
pub(crate) const HSTS: &[u8] = b"Strict-Transport-Security";

/// Whether the client needs the body without its chunks: HTTP/1.0 knows none (RFC 9112 section 6.1).
pub(crate) fn must_dechunk(framing: Framing, client_minor: u8) -> bool {
    framing == Framing::Chunked && client_minor == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::Parsed;
    use crate::settings::Limits;

    const LOCAL: Origin<'static> = Origin {
        id: None,
        peer: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
        trusted: false,
        scheme: "http",
        fields: ForwardedFields::None,
    };

    fn through(request: &str, origin: &Origin<'_>) -> String {
        let mut head = RequestHead::default();
        assert_eq!(head.parse(request.as_bytes(), &Limits::default()), Ok(Parsed::Whole), "{request}");
        let mut out = Vec::new();
        super::request(&mut out, request.as_bytes(), &head, origin, &Changes::default());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_head_without_hop_fields_is_forwarded_to_the_byte() {
        let head = "GET /a%2Fb//c?x=%20 HTTP/1.1\r\nhOST:A.test\r\nX-One:  1 \r\nx-one: 2\r\nCookie: a=b; c=d\r\n\r\n";
        assert_eq!(through(head, &LOCAL), head);
        assert_eq!(through("GET / HTTP/1.0\r\nX: y\r\n\r\n", &LOCAL), "GET / HTTP/1.0\r\nX: y\r\n\r\n");
    }

    #[test]
    fn what_is_for_one_hop_stays_on_it() {
        let head = "GET / HTTP/1.1\r\nConnection: close, X-Foo, Host, Content-Length, X-Forwarded-For\r\nX-Foo: 1\r\n\
                    Host: a.test\r\nKeep-Alive: 5\r\nX-Bar: 2\r\nProxy-Connection: x\r\nTE: gzip\r\nUpgrade: x\r\n\
                    HTTP2-Settings: x\r\nContent-Length: 0\r\nContent_Length: 5\r\nX_Forwarded_For: 6.6.6.6\r\n\r\n";
        let want = "GET / HTTP/1.1\r\nHost: a.test\r\nX-Bar: 2\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(through(head, &LOCAL), want);
        let x = Origin { fields: ForwardedFields::XForwarded, ..LOCAL };
        assert!(through(head, &x).contains("X-Forwarded-For: 192.0.2.7\r\n"));
    }

    #[test]
    fn upgrade_and_te_trailers_are_said_anew() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let want = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
        assert_eq!(through(head, &LOCAL), want);
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: TE\r\nTE: gzip, trailers\r\n\r\n";
        assert_eq!(through(head, &LOCAL), "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    }

    #[test]
    fn absolute_form_becomes_origin_form_with_its_own_host() {
        let head = "GET http://A.test:81?q=1 HTTP/1.1\r\nHost: b.test\r\nX: y\r\n\r\n";
        assert_eq!(through(head, &LOCAL), "GET /?q=1 HTTP/1.1\r\nHost: A.test:81\r\nX: y\r\n\r\n");
        let head = "GET /x HTTP/1.0\r\nHost: b.test\r\n\r\n";
        assert_eq!(through(head, &LOCAL), "GET /x HTTP/1.1\r\nHost: b.test\r\n\r\n");
    }

    #[test]
    fn an_expectation_that_http_1_0_does_not_know_is_not_made_one() {
        let head = "PUT / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        assert_eq!(through(head, &LOCAL), "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
        let head = head.replace("1.0", "1.1");
        assert_eq!(through(&head, &LOCAL), head);
    }

    #[test]
    fn an_untrusted_client_can_not_say_who_it_is() {
        let head = "GET / HTTP/1.1\r\nHost: a:8\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\
                    X-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\nX-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\r\n";
        let x = Origin { fields: ForwardedFields::XForwarded, ..LOCAL };
        assert_eq!(
            through(head, &x),
            "GET / HTTP/1.1\r\nHost: a:8\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n\
             X-Forwarded-Host: a:8\r\n\r\n"
        );
        assert_eq!(through(head, &LOCAL), "GET / HTTP/1.1\r\nHost: a:8\r\n\r\n");
    }

    #[test]
    fn a_trusted_peer_is_believed_and_added_to() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\n\
                    X-Forwarded-For: 2.2.2.2\r\nX-Real-IP: 1.1.1.1\r\n\r\n";
        let trusted = Origin { trusted: true, fields: ForwardedFields::XForwarded, ..LOCAL };
        assert_eq!(
            through(head, &trusted),
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nX-Real-IP: 1.1.1.1\r\n\
             X-Forwarded-For: 1.1.1.1, 2.2.2.2, 192.0.2.7\r\nX-Forwarded-Host: a\r\n\r\n"
        );
    }

    #[test]
    fn forwarded_quotes_what_needs_it_and_drops_what_is_broken() {
        let six =
            Origin { peer: "2001:db8::1".parse().unwrap(), trusted: true, fields: ForwardedFields::Forwarded, ..LOCAL };
        let head = |value: &str| format!("GET / HTTP/1.1\r\nHost: a:80\r\nForwarded: {value}\r\n\r\n");
        let ours = "for=\"[2001:db8::1]\";proto=http;host=\"a:80\"\r\n";
        for good in ["for=1.1.1.1", "for=\"[2001:db8::1]:_p\";proto=https, for=x", "for=unknown"] {
            assert!(through(&head(good), &six).ends_with(&format!("Forwarded: {good}, {ours}\r\n")), "{good}");
        }
        for bad in ["for=\"[2001", "for=unknown:abc", "for", "for=;proto=http", "=x", "for=a b", ""] {
            assert!(through(&head(bad), &six).ends_with(&format!("80\r\nForwarded: {ours}\r\n")), "{bad}");
        }
        let mapped = Origin { peer: "::ffff:192.0.2.9".parse().unwrap(), fields: ForwardedFields::Forwarded, ..LOCAL };
        assert!(through(&head(""), &mapped).contains("Forwarded: for=192.0.2.9;"));
    }

    #[test]
    fn addresses_are_written_as_everybody_writes_them() {
        for text in ["0.0.0.0", "1.20.100.255", "10.0.99.101", "255.255.255.255", "::1", "2001:db8::1"] {
            let mut out = Vec::new();
            address(&mut out, text.parse().unwrap());
            assert_eq!(out, text.as_bytes());
        }
    }

    fn back(head: &str, persistence: Persistence, dechunk: bool) -> Option<String> {
        let mut parsed = ResponseHead::default();
        assert_eq!(parsed.parse(head.as_bytes(), false, &Limits::default()), Ok(Parsed::Whole), "{head}");
        let mut out = Vec::new();
        response(&mut out, head.as_bytes(), &parsed, persistence, dechunk, Added::default())
            .then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_response_head_goes_as_it_came_or_less_its_hop_fields() {
        use Persistence::{Close, KeepAlive, Silent, Upgrade};
        assert_eq!(back("HTTP/1.1 200 OK\r\nSET-cookie: a\r\nContent-Length: 0\r\n\r\n", Silent, false), None);
        for (head, persistence, dechunk, want) in [
            (
                "200 OK\r\nConnection: keep-alive\r\nX: 1\r\nKeep-Alive: timeout=5\r\n",
                Silent,
                false,
                "200 OK\r\nX: 1\r\n",
            ),
            ("200\r\nX: 1\r\n", Close, false, "200\r\nX: 1\r\nConnection: close\r\n"),
            (
                "200 OK\r\nContent-Length: 1\r\n",
                KeepAlive,
                false,
                "200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n",
            ),
            ("200 OK\r\nTransfer-Encoding: chunked\r\n", Close, true, "200 OK\r\nConnection: close\r\n"),
            ("204 No\r\nContent-Length: 4\r\n", Silent, false, "204 No\r\n"),
            (
                "101 S\r\nConnection: Upgrade\r\nUpgrade: x\r\n",
                Upgrade,
                false,
                "101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n",
            ),
            (
                "426 U\r\nConnection: Upgrade\r\nUpgrade: x\r\n",
                Silent,
                false,
                "426 U\r\nUpgrade: x\r\nConnection: upgrade\r\n",
            ),
            ("200 OK\r\nUpgrade: h2,h2c\r\nConnection: Upgrade, X-Hop\r\nX-Hop: 1\r\n", Silent, false, "200 OK\r\n"),
        ] {
            assert_eq!(
                back(&format!("HTTP/1.1 {head}\r\n"), persistence, dechunk),
                Some(format!("HTTP/1.1 {want}\r\n"))
            );
        }
        assert_eq!(
            back("HTTP/1.0 200 OK\r\nX: 1\r\n\r\n", Close, false).as_deref(),
            Some("HTTP/1.1 200 OK\r\nX: 1\r\nConnection: close\r\n\r\n")
        );
    }
}
