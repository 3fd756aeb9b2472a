//! A request's head, from HTTP/2 to HTTP/1 (RFC 9113 section 8.3.1, RFC 9112 section 3).
//!
//! h2 has refused what breaks HTTP/2 by itself: names in upper case, fields of HTTP/1's connections, missing or repeated
//! pseudo fields. Its types hold no line break, so what is written has the lines it is meant to have; that it means one
//! thing only is judged by [`crate::http::head`], as with every client.

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Uri};

use crate::http::host::Host;
use crate::http::refuse::Refusal;
use crate::http2::fields::line;

use super::websocket;

/// What a request is, to HTTP/1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// It ends with its head.
    Bare,
    /// Its body is as long as its head says.
    Sized,
    /// Its body is sent in chunks.
    Chunked,
    /// A WebSocket (RFC 8441): bytes both ways, once the backend has switched, and said this in `Sec-WebSocket-Accept`.
    WebSocket(Vec<u8>),
}

/// Writes a head. `ends` says that nothing follows it.
pub(super) fn write(out: &mut Vec<u8>, parts: &Parts, ends: bool) -> Result<Shape, Refusal> {
    let mut shape = shape(parts, ends)?;
    let method = if let Shape::WebSocket(_) = shape { &Method::GET } else { &parts.method };
    request_line(out, method.as_str().as_bytes(), &parts.uri)?;
    if let Some(authority) = parts.uri.authority() {
        line(out, b"host", authority.as_str().as_bytes());
    }
    let mut cookies = false;
    for (name, value) in &parts.headers {
        let value = value.as_bytes();
        if value.first().is_some_and(is_blank) || value.last().is_some_and(is_blank) {
            return Err(Refusal::MalformedHead("a field value begins or ends with white space"));
        }
        match *name {
            header::HOST if parts.uri.authority().is_some() => same_host(&parts.uri, value)?,
            // One line for all of them (RFC 9113 section 8.2.3).
            header::COOKIE if cookies => {}
            header::COOKIE => {
                cookies = true;
                cookie(out, parts.headers.get_all(name).iter());
            }
            // A chunked body has no other length, and HTTP/2 has said what this one is.
            _ => line(out, name.as_str().as_bytes(), value),
        }
    }
    match &mut shape {
        Shape::Chunked => line(out, b"transfer-encoding", b"chunked"),
        Shape::Bare if may_have_a_body(&parts.method) && !parts.headers.contains_key(header::CONTENT_LENGTH) => {
            line(out, b"content-length", b"0");
        }
        Shape::WebSocket(accept) => *accept = websocket::ask(out),
        Shape::Bare | Shape::Sized => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(shape)
}

fn shape(parts: &Parts, ends: bool) -> Result<Shape, Refusal> {
    if let Some(scheme) = parts.uri.scheme_str()
        && !matches!(scheme, "http" | "https")
    {
        return Err(Refusal::MalformedHead(":scheme is neither http nor https"));
    }
    match parts.extensions.get::<h2::ext::Protocol>() {
        Some(protocol) if protocol.as_str() == "websocket" => {
            let framed = [header::CONTENT_LENGTH, header::SEC_WEBSOCKET_KEY];
            match framed.iter().any(|name| parts.headers.contains_key(name)) {
                true => Err(Refusal::MalformedHead("a WebSocket over HTTP/2 has neither a length nor a key")),
                false => Ok(Shape::WebSocket(Vec::new())),
            }
        }
        Some(_) => Err(Refusal::UnknownProtocol),
        None if ends => Ok(Shape::Bare),
        None if parts.headers.contains_key(header::CONTENT_LENGTH) => Ok(Shape::Sized),
        None => Ok(Shape::Chunked),
    }
}

/// The request line. A target that is not in origin form must not become absolute form on the way: that would name
/// another host than the one that has been judged.
fn request_line(out: &mut Vec<u8>, method: &[u8], uri: &Uri) -> Result<(), Refusal> {
    let target = match uri.path_and_query() {
        Some(target) => target.as_str(),
        // Only CONNECT has none, and it is refused by its name.
        None => uri.authority().map_or("*", |authority| authority.as_str()),
    };
    if !target.starts_with('/') && target != "*" && method != b"CONNECT" {
        return Err(Refusal::MalformedHead(":path is no path"));
    }
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    Ok(())
}

fn cookie<'a>(out: &mut Vec<u8>, crumbs: impl Iterator<Item = &'a HeaderValue>) {
    out.extend_from_slice(b"cookie: ");
    for (index, crumb) in crumbs.enumerate() {
        if index > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(crumb.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

/// `Host` beside `:authority` must name the same (RFC 9113 section 8.3.1).
fn same_host(uri: &Uri, host: &[u8]) -> Result<(), Refusal> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if authority.as_bytes() == host {
        return Ok(());
    }
    let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    let place = |text: &[u8]| {
        let host = Host::parse(text).ok()?;
        Some((host.name().to_owned(), host.port().unwrap_or(default)))
    };
    match place(authority.as_bytes()) == place(host) {
        true => Ok(()),
        false => Err(Refusal::BadHost(":authority and Host differ")),
    }
}

/// Without a body these have a length of 0, and servers of HTTP/1 like to be told (RFC 9110 section 8.6).
fn may_have_a_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str, fields: &[(&str, &str)], ends: bool) -> Result<(String, Shape), Refusal> {
        let mut builder = http::Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        let (parts, ()) = builder.body(()).unwrap().into_parts();
        let mut out = Vec::new();
        let shape = write(&mut out, &parts, ends)?;
        Ok((String::from_utf8(out).unwrap(), shape))
    }

    #[test]
    fn a_head_has_one_host_one_cookie_and_one_length() {
        for (method, fields, ends, lines, shape) in [
            ("GET", &[("x-a", "1"), ("x-b", ""), ("x-a", "2")][..], true, "x-a: 1\r\nx-a: 2\r\nx-b: \r\n", Shape::Bare),
            ("GET", &[("host", "A.test:443")], true, "", Shape::Bare),
            (
                "GET",
                &[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")],
                true,
                "cookie: a=1; b=2\r\nx: y\r\n",
                Shape::Bare,
            ),
            ("POST", &[], true, "content-length: 0\r\n", Shape::Bare),
            ("POST", &[("content-length", "5")], false, "content-length: 5\r\n", Shape::Sized),
            ("POST", &[("te", "trailers")], false, "te: trailers\r\ntransfer-encoding: chunked\r\n", Shape::Chunked),
        ] {
            let (head, got) = request(method, "https://a.test/x?y", fields, ends).unwrap();
            assert_eq!(head, format!("{method} /x?y HTTP/1.1\r\nhost: a.test\r\n{lines}\r\n"));
            assert_eq!(got, shape);
        }
        let (head, _) = request("GET", "/", &[("host", "b.test")], true).unwrap();
        assert_eq!(head, "GET / HTTP/1.1\r\nhost: b.test\r\n\r\n");
    }

    #[test]
    fn what_http_1_would_read_as_something_else_is_refused() {
        for (uri, field) in [
            ("https://a.test/", ("host", "b.test")),
            ("https://a.test/", ("host", "a.test:80")),
            ("https://a.test/", ("x", " v")),
            ("https://a.test/", ("x", "v\t")),
            ("ftp://a.test/", ("x", "v")),
        ] {
            assert!(request("GET", uri, &[field], true).is_err(), "{uri} {field:?}");
        }
    }

    /// Whatever comes through h2's types: what is written is read as the request that it was, or refused.
    #[test]
    fn nothing_is_smuggled_by_the_translation() {
        use proptest::prelude::*;
        let bytes = |bytes: std::ops::Range<usize>| proptest::collection::vec(any::<u8>(), bytes);
        let field = ("[a-z][a-z_-]{0,12}|te|host|cookie|content-length|expect", bytes(0..12));
        let request = (bytes(0..16), "[A-Z]{1,7}", proptest::collection::vec(field, 0..6), any::<bool>());
        proptest!(ProptestConfig::with_cases(2000), |((path, method, fields, ends) in request)| {
            let target = [b"/", &path[..]].concat();
            let Ok(target) = http::uri::PathAndQuery::from_maybe_shared(bytes::Bytes::from(target)) else {
                return Ok(());
            };
            let uri = Uri::builder().scheme("https").authority("a.test").path_and_query(target).build().unwrap();
            let mut builder = http::Request::builder().method(method.as_str()).uri(uri);
            for (name, value) in &fields {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    builder = builder.header(name.as_str(), value);
                }
            }
            let (parts, ()) = builder.body(()).unwrap().into_parts();
            let mut out = Vec::new();
            let Ok(_) = write(&mut out, &parts, ends) else {
                return Ok(());
            };
            let mut parsed = crate::http::head::RequestHead::default();
            let Ok(whole) = parsed.parse(&out, &crate::settings::Limits::default()) else {
                return Ok(());
            };
            prop_assert_eq!((whole, parsed.length), (crate::http::head::Parsed::Whole, out.len()));
            prop_assert_eq!(parsed.method(&out), method.as_bytes());
            prop_assert_eq!(Some(parsed.target(&out)), parts.uri.path_and_query().map(|target| target.as_str().as_bytes()));
            prop_assert_eq!(parsed.host().map(Host::name), Some("a.test"));
            let head = crate::http::head::Head::new(&out, &parsed);
            for (name, value) in head.fields() {
                let name = std::str::from_utf8(name).unwrap();
                let ours = matches!(name, "host" | "cookie" | "content-length" | "transfer-encoding");
                prop_assert!(ours || parts.headers.get_all(name).iter().any(|sent| sent.as_bytes() == value), "{}", name);
            }
        });
    }
}
