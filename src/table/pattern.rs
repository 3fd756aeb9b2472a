//! The left side of a route line: which hosts, and which paths under them.

use std::fmt;

use crate::http::host::Host;

/// Which requests a line covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Which hosts.
    pub host: HostPattern,
    /// The path prefix, beginning with `/` and without a final one; `None` covers every path.
    pub path: Option<Box<str>>,
}

/// Which hosts a line covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// One host, in [`Host`]'s compared form.
    Exact(Box<str>),
    /// Every name below this one, at any depth: `*.apps.example.com`.
    Below(Box<str>),
    /// Whatever no other line covers: `*`, or bouncy's `""`.
    Any,
}

/// Why a key is no pattern, and what would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPattern {
    /// What is wrong.
    pub what: String,
    /// What would be right, where that can be guessed.
    pub help: Option<String>,
}

impl Pattern {
    /// Reads `host` or `host/path-prefix`.
    ///
    /// Names may be Unicode: they are compared as A-labels (IDNA, UTS #46).
    ///
    /// # Errors
    /// A key that names no host, or a host that no request can ever name.
    pub fn parse(key: &str) -> Result<Self, BadPattern> {
        if let Some((scheme, rest)) = key.split_once("://") {
            return Err(bad(
                format!("a key is a host, without `{scheme}://`"),
                Some(rest.trim_end_matches('/').to_owned()),
            ));
        }
        let (host, path) = match key.find('/') {
            Some(slash) => (&key[..slash], Some(&key[slash..])),
            None => (key, None),
        };
        if path.is_some() && host.is_empty() {
            return Err(bad("a path needs a host in front of it", Some(format!("*{key}"))));
        }
        Ok(Self { host: parse_host(host)?, path: path.map(parse_path).transpose()?.flatten() })
    }
}

fn parse_host(host: &str) -> Result<HostPattern, BadPattern> {
    if host.is_empty() || host == "*" {
        return Ok(HostPattern::Any);
    }
    if let Some(suffix) = host.strip_prefix("*.") {
        let Some(name) = normal(suffix)? else {
            return Err(bad("a wildcard stands before a name, not before an address", None));
        };
        return Ok(HostPattern::Below(name));
    }
    if host.contains('*') {
        return Err(bad(
            "`*` stands for whole labels, and only in front",
            host.rfind('*')
                .map(|at| format!("*.{}", host[at + 1..].trim_start_matches(|c| c != '.').trim_start_matches('.'))),
        ));
    }
    if host.starts_with('[') {
        let address = Host::parse(host.as_bytes()).map_err(|e| bad(e.0, None))?;
        return match address.port() {
            None => Ok(HostPattern::Exact(address.name().into())),
            Some(_) => {
                Err(bad("a key has no port: every listener serves every route", Some(address.name().to_owned())))
            }
        };
    }
    if let Some((name, port)) = host.split_once(':') {
        if !name.is_empty() && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad("a key has no port: every listener serves every route", Some(name.to_owned())));
        }
        let help = host.parse::<std::net::Ipv6Addr>().ok().map(|ip| format!("[{ip}]"));
        return Err(bad("a host has no colon", help));
    }
    let name = normal(host)?.unwrap_or_else(|| host.into());
    Ok(HostPattern::Exact(name))
}

/// A name in compared form; `None` for an IPv4 address.
fn normal(name: &str) -> Result<Option<Box<str>>, BadPattern> {
    if name.parse::<std::net::Ipv4Addr>().is_ok() {
        return Ok(None);
    }
    let ascii = if name.is_ascii() {
        name.to_owned()
    } else {
        idna::domain_to_ascii_strict(name).map_err(|_| bad("not a name that IDNA allows", None))?
    };
    let host = Host::parse(ascii.as_bytes()).map_err(|e| bad(e.0, None))?;
    match host.port() {
        None => Ok(Some(host.name().into())),
        Some(_) => Err(bad("a key has no port: every listener serves every route", Some(host.name().to_owned()))),
    }
}

/// A prefix without its final slash; `/` alone covers every path.
fn parse_path(path: &str) -> Result<Option<Box<str>>, BadPattern> {
    if let Some(byte) = path.bytes().find(|b| matches!(b, b'?' | b'#' | b'*' | 0..=b' ' | 0x7f)) {
        return Err(bad(
            format!("a path prefix has no `{}`: it covers everything below it", char::from(byte).escape_default()),
            path.split(['?', '#', '*', ' ']).next().filter(|p| p.len() > 1).map(str::to_owned),
        ));
    }
    let path = path.trim_end_matches('/');
    Ok(if path.is_empty() { None } else { Some(path.into()) })
}

fn bad(what: impl Into<String>, help: Option<String>) -> BadPattern {
    BadPattern { what: what.into(), help }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)?;
        self.path.as_deref().map_or(Ok(()), |path| f.write_str(path))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(suffix) => write!(f, "*.{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_into_one_form() {
        for (key, want) in [
            ("beep.example.com", "beep.example.com"),
            ("Beep.Example.COM.", "beep.example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("*.Bücher.example", "*.xn--bcher-kva.example"),
            ("*", "*"),
            ("", "*"),
            ("*/.well-known/", "*/.well-known"),
            ("a.test/", "a.test"),
            ("a.test/api/", "a.test/api"),
            ("a.test/Api//", "a.test/Api"),
            ("127.0.0.1", "127.0.0.1"),
            ("[2001:DB8::0:1]", "[2001:db8::1]"),
        ] {
            assert_eq!(Pattern::parse(key).map(|p| p.to_string()).as_deref(), Ok(want), "{key}");
        }
    }

    #[test]
    fn a_wrong_key_says_what_would_be_right() {
        for (key, help) in [
            ("http://a.test/", Some("a.test")),
            ("a.test:8080", Some("a.test")),
            ("[::1]:80", Some("[::1]")),
            ("::1", Some("[::1]")),
            ("/api", Some("*/api")),
            ("a.*.test", Some("*.test")),
            ("*a.test", Some("*.test")),
            ("a.test/x?y", Some("/x")),
            ("a.test/x/*", Some("/x/")),
            ("a b.test", None),
            ("a..test", None),
            ("*.127.0.0.1", None),
        ] {
            let error = Pattern::parse(key).expect_err(key);
            assert_eq!(error.help.as_deref(), help, "{key}: {}", error.what);
        }
    }
}
