//! One address, as an operator or a library's user writes it.
//!
//! Nothing is resolved here: a name is looked up when it is connected to, so a dead one stops neither start nor reload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::http::host::Host;
use crate::table::backend::Address;

/// Why a target is none, and what would be right.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadTarget {
    pub(crate) what: String,
    pub(crate) help: Option<String>,
}

/// The longest path that a unix socket can have: `sun_path` with its final NUL.
const LONGEST_SOCKET_PATH: usize = 107;

/// A target as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) address: Address,
    pub(crate) scheme: Scheme,
}

/// What is spoken there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    /// HTTP/2 from the first byte on (RFC 9113 section 3.3).
    H2c,
    /// HTTP over TLS, with a server of this name.
    Https(Box<str>),
}

impl From<Address> for Written {
    fn from(address: Address) -> Self {
        Self { address, scheme: Scheme::Http }
    }
}

/// Reads a port.
pub(crate) fn port(number: Option<i64>) -> Result<Written, BadTarget> {
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|&port| port > 0)
        .map(|port| Address::Port(port).into())
        .ok_or_else(|| bad("a port is a number from 1 to 65535", None))
}

/// Reads `host:port`, `http://host[:port]`, `https://host[:port]`, `h2c://host[:port]`, `unix:/path`, or a port in quotes.
pub(crate) fn parse(text: &str) -> Result<Written, BadTarget> {
    if let Some(path) = text.strip_prefix("unix:") {
        return unix(path).map(Written::from);
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return url(&scheme.to_ascii_lowercase(), rest);
    }
    if text.starts_with('/') {
        return Err(bad("a path alone is no target", Some(format!("for a unix socket write \"unix:{text}\""))));
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return port(text.parse().ok());
    }
    Ok(authority(text, None)?.1.into())
}

fn url(scheme: &str, rest: &str) -> Result<Written, BadTarget> {
    let (place, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    match scheme {
        "http" | "https" | "h2c" if !matches!(path, "" | "/") => Err(bad(
            format!("a target has no path: `{path}` would not be added to what the client asks for"),
            Some(format!("write \"{scheme}://{place}\"; requests keep their own path")),
        )),
        "http" => Ok(authority(place, Some(80))?.1.into()),
        "https" => {
            let (name, address) = authority(place, Some(443))?;
            Ok(Written { address, scheme: Scheme::Https(name) })
        }
        "h2c" => Ok(Written { scheme: Scheme::H2c, ..authority(place, Some(80))?.1.into() }),
        "grpc" => Err(bad("gRPC comes over h2c://", Some(format!("write \"h2c://{place}\"")))),
        "grpcs" => Err(bad(
            "gRPC over TLS comes over https://, with `http2`",
            Some(format!("write {{ to = \"https://{place}\", http2 = true }}")),
        )),
        "wss" => Err(bad(
            "a WebSocket comes over https://",
            Some(format!("write \"https://{place}\"; upgrades pass by themselves")),
        )),
        "ws" => Err(bad(
            "a WebSocket comes over http://",
            Some(format!("write \"http://{place}\"; upgrades pass by themselves")),
        )),
        "unix" => Err(bad("a unix socket is written unix:/path", Some(format!("write \"unix:/{place}{path}\"")))),
        _ => Err(bad(
            format!("`{scheme}://` is not a scheme that can be forwarded to"),
            Some("one of `http://`, `https://`, `h2c://` and `unix:`".to_owned()),
        )),
    }
}

/// Reads `host[:port]`: the host's name, and where that is.
fn authority(text: &str, default: Option<u16>) -> Result<(Box<str>, Address), BadTarget> {
    if text.is_empty() {
        return Err(bad("a target is not empty", Some("a port such as 8001, or \"10.0.0.7:9000\"".into())));
    }
    if text.contains('@') {
        return Err(bad("a target has no user name or password", text.rsplit('@').next().map(quoted)));
    }
    if let Ok(ip) = text.parse::<Ipv6Addr>() {
        return Err(bad("an IPv6 address is written in brackets, with a port", Some(format!("\"[{ip}]:8001\""))));
    }
    if let Some((place, path)) = text.split_once('/') {
        return Err(bad(format!("a target has no path: `/{path}`"), Some(quoted(place))));
    }
    let ascii = if text.is_ascii() {
        text.to_owned()
    } else {
        let (name, port) = text.rsplit_once(':').unwrap_or((text, ""));
        let name = idna::domain_to_ascii_strict(name).map_err(|_| bad("not a name that IDNA allows", None))?;
        if port.is_empty() { name } else { format!("{name}:{port}") }
    };
    let host = Host::parse(ascii.as_bytes())
        .map_err(|e| bad(format!("not a target: {}", e.0), Some("a port such as 8001, or \"10.0.0.7:9000\"".into())))?;
    let port = match host.port().or(default) {
        Some(port) => port,
        None => return Err(bad("a target needs a port", Some(format!("such as \"{}:8001\"", host.name())))),
    };
    Ok((host.name().into(), place(host.name(), port)?))
}

fn place(name: &str, port: u16) -> Result<Address, BadTarget> {
    if name == "localhost" || name.ends_with(".localhost") {
        return Ok(Address::Port(port));
    }
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        if ip.is_unspecified() || ip.is_multicast() {
            let what = format!("{ip} is not one machine's address");
            return Err(bad(what, Some(format!("{port} is the port on this machine"))));
        }
        return Ok(Address::Socket(SocketAddr::new(ip, port)));
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if last.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad(format!("{name} is neither a name nor an IPv4 address"), None));
    }
    Ok(Address::Name(name.into(), port))
}

fn unix(path: &str) -> Result<Address, BadTarget> {
    if !path.starts_with('/') {
        return Err(bad(
            "the path of a unix socket begins with /",
            Some(format!("such as \"unix:/run/{}\"", if path.is_empty() { "app.sock" } else { path })),
        ));
    }
    let path = format!("/{}", path.trim_start_matches('/'));
    if path.len() > LONGEST_SOCKET_PATH {
        return Err(bad(format!("the path of a unix socket has at most {LONGEST_SOCKET_PATH} bytes"), None));
    }
    if path.len() == 1 || path.contains('\0') {
        return Err(bad("not the path of a socket", Some("such as \"unix:/run/app.sock\"".into())));
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

/// Whether requests to this address would come back to one of our own listeners.
pub(crate) fn is_ours(address: &Address, listeners: &[SocketAddr]) -> bool {
    listeners.iter().any(|listener| {
        let ours = listener.ip().to_canonical();
        match address {
            Address::Port(port) => *port == listener.port() && (ours.is_loopback() || ours.is_unspecified()),
            Address::Socket(to) => {
                let ip = to.ip().to_canonical();
                to.port() == listener.port() && (ip == ours || (ip.is_loopback() && covers(listener.ip(), ip)))
            }
            Address::Name(..) | Address::Unix(_) => false,
        }
    })
}

/// Whether a listener on the wildcard address takes connections to this one; `[::]` takes IPv4 too.
fn covers(listener: IpAddr, ip: IpAddr) -> bool {
    match listener {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => ip.is_ipv4(),
        listener => listener.is_unspecified(),
    }
}

fn bad(what: impl Into<String>, help: Option<String>) -> BadTarget {
    BadTarget { what: what.into(), help }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_target_comes_into_one_form() {
        for (text, want) in [
            ("8001", "8001"),
            ("localhost:8001", "8001"),
            ("LocalHost.:8001", "8001"),
            ("http://localhost:8001", "8001"),
            ("http://localhost", "80"),
            ("127.0.0.1:8001", "127.0.0.1:8001"),
            ("10.0.0.7:9000", "10.0.0.7:9000"),
            ("[::1]:9000", "[::1]:9000"),
            ("[2001:DB8::0:1]:9000", "[2001:db8::1]:9000"),
            ("App.Internal:9000", "app.internal:9000"),
            ("bücher.example:80", "xn--bcher-kva.example:80"),
            ("http://app.internal", "app.internal:80"),
            ("HTTP://app.internal:81/", "app.internal:81"),
            ("unix:/run/app.sock", "unix:/run/app.sock"),
            ("unix:///run/app.sock", "unix:/run/app.sock"),
        ] {
            assert_eq!(parse(text).map(|target| target.address.to_string()).as_deref(), Ok(want), "{text}");
        }
        for (text, address, name) in [
            ("https://app.internal", "app.internal:443", "app.internal"),
            ("HTTPS://App.Internal.:8443/", "app.internal:8443", "app.internal"),
            ("https://10.0.0.7:8443", "10.0.0.7:8443", "10.0.0.7"),
            ("https://[2001:DB8::1]", "[2001:db8::1]:443", "[2001:db8::1]"),
            ("https://localhost:8443", "8443", "localhost"),
            ("https://bücher.example", "xn--bcher-kva.example:443", "xn--bcher-kva.example"),
        ] {
            let target = parse(text).unwrap();
            assert_eq!(target.address.to_string(), address, "{text}");
            assert_eq!(target.scheme, Scheme::Https(name.into()), "{text}");
        }
        for (text, address) in [("h2c://app.internal:50051", "app.internal:50051"), ("h2c://localhost:50051/", "50051")]
        {
            let target = parse(text).unwrap();
            assert_eq!((target.address.to_string().as_str(), target.scheme), (address, Scheme::H2c), "{text}");
        }
    }

    #[test]
    fn an_impossible_target_says_what_would_be_right() {
        for (text, what, help) in [
            ("0", "from 1 to 65535", ""),
            ("65536", "from 1 to 65535", ""),
            ("app.internal", "needs a port", "app.internal:8001"),
            ("10.0.0.7", "needs a port", "10.0.0.7:8001"),
            ("::1", "in brackets", "\"[::1]:8001\""),
            ("10.0.0.256:80", "neither a name nor an IPv4", ""),
            ("0.0.0.0:8001", "not one machine's", "8001"),
            ("[::]:8001", "not one machine's", "8001"),
            ("app:99999", "1 to 65535", ""),
            ("http://app/v1", "has no path", "\"http://app\""),
            ("app:80/v1", "has no path", "\"app:80\""),
            ("http://u:p@app", "user name", "\"app\""),
            ("https://app/v1", "has no path", "\"https://app\""),
            ("wss://app", "WebSocket", "https://app"),
            ("h2c://app:50051/x", "has no path", "\"h2c://app:50051\""),
            ("grpc://app:50051", "gRPC", "\"h2c://app:50051\""),
            ("grpcs://app:50051", "gRPC", "http2 = true"),
            ("ws://app", "WebSocket", "http://app"),
            ("htp://app", "not a scheme", "`http://`"),
            ("unix:app.sock", "begins with /", "unix:/run/app.sock"),
            ("/run/app.sock", "no target", "unix:/run/app.sock"),
            ("unix:/", "not the path", ""),
            ("", "not empty", "8001"),
            ("a b:80", "not a target", ""),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.what.contains(what), "{text}: {}", error.what);
            assert!(error.help.as_deref().unwrap_or_default().contains(help), "{text}: {:?}", error.help);
        }
        assert!(parse(&format!("unix:/{}", "x".repeat(107))).is_err());
    }

    #[test]
    fn our_own_listeners_are_recognised() {
        for (target, listener, ours) in [
            ("80", "[::]:80", true),
            ("80", "0.0.0.0:80", true),
            ("80", "127.0.0.1:80", true),
            ("81", "[::]:80", false),
            ("80", "203.0.113.1:80", false),
            ("127.0.0.1:80", "[::]:80", true),
            ("127.0.0.1:80", "[::1]:80", false),
            ("[::1]:80", "0.0.0.0:80", false),
            ("127.0.0.2:80", "127.0.0.1:80", false),
            ("203.0.113.1:80", "203.0.113.1:80", true),
            ("app:80", "[::]:80", false),
        ] {
            let listener: SocketAddr = listener.parse().unwrap();
            assert_eq!(is_ours(&parse(target).unwrap().address, &[listener]), ours, "{target} and {listener}");
        }
    }
}
