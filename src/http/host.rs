//! A host that a request names, checked and brought into the one form that tables are keyed by.
//!
//! What it does not do: IDNA. A client sends A-labels (RFC 9110 section 4.2.3); Unicode names are turned into
//! A-labels where an operator writes them.

use std::fmt;
use std::net::Ipv6Addr;

/// The longest name in DNS (RFC 1035 section 2.3.4), without its final dot.
const LONGEST_NAME: usize = 253;

/// A host in the form in which hosts are compared: lower-case ASCII, no final dot, IPv6 in brackets and in its
/// canonical spelling. The port is kept beside it and never takes part in routing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

/// The bytes of host names, dots between labels included.
const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        byte += 1;
    }
    table
};

/// Why some bytes are no host. The text says what is wrong, for the `400` and for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHost(pub &'static str);

impl Host {
    /// Reads a `Host` field's value or a target's authority (RFC 9110 section 4.2, RFC 3986 section 3.2.2).
    ///
    /// # Errors
    /// Anything but a name, an IPv4 address or a bracketed IPv6 address with an optional port of 1 to 65535.
    /// An empty port (`a.test:`) is allowed, as RFC 3986 allows it; user information is not.
    pub fn parse(raw: &[u8]) -> Result<Self, BadHost> {
        let mut host = Self::default();
        host.assign(raw)?;
        Ok(host)
    }

    /// Like [`Host::parse`], into a value whose memory is used again.
    pub(crate) fn assign(&mut self, raw: &[u8]) -> Result<(), BadHost> {
        self.name.clear();
        self.port = None;
        let port = match raw.first() {
            None => return Err(BadHost("the host is empty")),
            Some(b'[') => self.assign_ipv6(raw)?,
            Some(_) => self.assign_name(raw)?,
        };
        self.port = match port {
            None | Some([]) => None,
            Some(digits) => Some(parse_port(digits).ok_or(BadHost("the port is not a number from 1 to 65535"))?),
        };
        Ok(())
    }

    /// Takes a bracketed address off the front; gives what stands behind its colon.
    fn assign_ipv6<'a>(&mut self, raw: &'a [u8]) -> Result<Option<&'a [u8]>, BadHost> {
        const BAD: BadHost = BadHost("not a bracketed IPv6 address");
        let close = memchr::memchr(b']', raw).ok_or(BAD)?;
        let text = std::str::from_utf8(&raw[1..close]).map_err(|_| BAD)?;
        let address: Ipv6Addr = text.parse().map_err(|_| BAD)?;
        fmt::Write::write_fmt(&mut self.name, format_args!("[{address}]")).map_err(|_| BAD)?;
        match &raw[close + 1..] {
            [] => Ok(None),
            [b':', port @ ..] => Ok(Some(port)),
            _ => Err(BAD),
        }
    }

    /// Takes a name or an IPv4 address off the front; gives what stands behind its colon.
    fn assign_name<'a>(&mut self, raw: &'a [u8]) -> Result<Option<&'a [u8]>, BadHost> {
        let (name, port) = match memchr::memchr(b':', raw) {
            Some(colon) => (&raw[..colon], Some(&raw[colon + 1..])),
            None => (raw, None),
        };
        let name = name.strip_suffix(b".").unwrap_or(name);
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(BadHost("the name is empty or longer than 253 bytes"));
        }
        let mut before = b'.';
        for &byte in name {
            match NAME_BYTES[usize::from(byte)] {
                true if before == b'.' && byte == b'.' => return Err(BadHost("the name has an empty label")),
                true => before = byte,
                false => return Err(BadHost("the name has a byte that no host name has")),
            }
        }
        if before == b'.' {
            return Err(BadHost("the name has an empty label"));
        }
        // Only ASCII is left.
        self.name.push_str(std::str::from_utf8(name).unwrap_or_default());
        self.name.make_ascii_lowercase();
        Ok(port)
    }

    /// The name alone, in compared form: `shop.example.com`, `127.0.0.1`, `[2001:db8::1]`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is an address and no name.
    pub fn is_address(&self) -> bool {
        self.name.starts_with('[') || self.name.parse::<std::net::Ipv4Addr>().is_ok()
    }

    /// The port, where one was named.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

impl PartialEq<str> for Host {
    fn eq(&self, other: &str) -> bool {
        self.name == other
    }
}

impl PartialEq<&str> for Host {
    fn eq(&self, other: &&str) -> bool {
        self.name == *other
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A port of 1 to 65535 in at most five digits.
fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0_u32, |n, d| n * 10 + u32::from(d - b'0'));
    u16::try_from(number).ok().filter(|&port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_host_are_one_host() {
        for (raw, name, port) in [
            ("a.test", "a.test", None),
            ("A.TeSt", "a.test", None),
            ("a.test.", "a.test", None),
            ("a.test.:8080", "a.test", Some(8080)),
            ("a.test:", "a.test", None),
            ("a.test:80", "a.test", Some(80)),
            ("127.0.0.1:65535", "127.0.0.1", Some(65535)),
            ("[::1]", "[::1]", None),
            ("[2001:DB8:0::1]:8080", "[2001:db8::1]", Some(8080)),
            ("xn--bcher-kva.example", "xn--bcher-kva.example", None),
            ("under_score.test", "under_score.test", None),
        ] {
            let host = Host::parse(raw.as_bytes()).unwrap_or_else(|e| panic!("{raw}: {e:?}"));
            assert_eq!((host.name(), host.port()), (name, port), "{raw}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for raw in [
            "",
            ".",
            "..",
            "a..test",
            ".a.test",
            "a.test..",
            "a.test:0",
            "a.test:99999",
            "a.test:8x",
            "a.test:80:80",
            "a.test:+80",
            "a.test:000080",
            "u@a.test",
            "a b.test",
            "a.test/x",
            "a.test?x",
            "a.test#x",
            "a.test\\b",
            "a.test, b.test",
            "[::1",
            "[::1]a.test",
            "[::1]x:80",
            "[]",
            "[::g]",
            "::1",
            "a%2etest",
            "*",
            "[::1%25eth0]",
            "a.test ",
            "\ta.test",
        ] {
            assert!(Host::parse(raw.as_bytes()).is_err(), "{raw:?} was taken");
        }
        assert!(Host::parse(b"a.test\xe9").is_err());
        assert!(Host::parse("\u{212a}.test".as_bytes()).is_err(), "U+212A folds to k only in Unicode");
        assert!(Host::parse(&[b'x'; 254]).is_err());
        assert!(Host::parse(&[b'x'; 253]).is_ok());
    }
}
