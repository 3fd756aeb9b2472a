//! The PROXY protocol, versions 1 (text) and 2 (binary): who a proxy in front of us says that the client is, and what we
//! say to a backend that wants to know. Pure: bytes in, verdicts out.
//!
//! Knows addresses and nothing else: what stands behind them in a version 2 header (TLVs) is skipped by its length.
//! Whom to believe is not its business.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The two ends of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Where it comes from.
    pub(crate) client: SocketAddr,
    /// Where it was made to.
    pub(crate) server: SocketAddr,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its bytes; with what is skipped, which need not have come yet.
    pub(crate) length: usize,
    /// `None` where it speaks of no client's TCP connection: a health check of the proxy itself (LOCAL), an address of
    /// another kind (UNKNOWN, UNSPEC, UNIX). The connection's own ends are then meant.
    pub(crate) ends: Option<Ends>,
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// Possibly the beginning of a header.
    Partial,
    Whole(Header),
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad(pub(crate) &'static str);

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// A line of text.
    V1,
    /// A binary block.
    V2,
}

/// No verdict needs more bytes than these: a version 2 header up to the end of two unix paths.
pub(crate) const LONGEST: usize = FIXED + UNIX;

/// The longest line of version 1, line end included.
const LONGEST_LINE: usize = 107;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and transport, length.
const FIXED: usize = SIGNATURE.len() + 4;

/// Two addresses and two ports, or two paths.
const INET: usize = 4 + 4 + 2 + 2;
const INET6: usize = 16 + 16 + 2 + 2;
const UNIX: usize = 108 + 108;

const NONE: Bad = Bad("no PROXY header");

/// Reads a header of either version. What is bad is bad whatever follows.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Bad> {
    match bytes.first() {
        None => Ok(Parsed::Partial),
        Some(b'P') => line(bytes),
        Some(_) => block(bytes),
    }
}

/// Version 1: `PROXY TCP4 192.0.2.7 192.0.2.1 4711 80`.
fn line(bytes: &[u8]) -> Result<Parsed, Bad> {
    const BEGIN: &[u8] = b"PROXY ";
    let begun = bytes.len().min(BEGIN.len());
    if bytes[..begun] != BEGIN[..begun] {
        return Err(NONE);
    }
    let front = &bytes[..bytes.len().min(LONGEST_LINE)];
    let end = memchr::memchr2(b'\r', b'\n', front).unwrap_or(front.len());
    match &front[end..] {
        [b'\r', b'\n', ..] => {}
        [] | [b'\r'] if front.len() < LONGEST_LINE => return Ok(Parsed::Partial),
        [] | [b'\r'] => return Err(Bad("a line longer than 107 bytes")),
        _ => return Err(Bad("a line end that is not CRLF")),
    }
    let text = std::str::from_utf8(&front[BEGIN.len()..end]).map_err(|_| Bad("a line that is not ASCII"))?;
    let (family, addresses) = text.split_once(' ').unwrap_or((text, ""));
    let ends = match family {
        "UNKNOWN" => None,
        "TCP4" => Some(text_ends::<Ipv4Addr>(addresses)?),
        "TCP6" => Some(text_ends::<Ipv6Addr>(addresses)?),
        _ => return Err(Bad("a family that is none of TCP4, TCP6 and UNKNOWN")),
    };
    Ok(Parsed::Whole(Header { length: end + 2, ends }))
}

fn text_ends<A: std::str::FromStr + Into<IpAddr>>(text: &str) -> Result<Ends, Bad> {
    let mut words = text.split(' ');
    let mut word = || words.next().unwrap_or("");
    let (client, server) = (address::<A>(word())?, address::<A>(word())?);
    let (from, to) = (port(word())?, port(word())?);
    match words.next() {
        None => Ok(Ends { client: SocketAddr::new(client, from), server: SocketAddr::new(server, to) }),
        Some(_) => Err(Bad("more than two addresses and two ports")),
    }
}

fn address<A: std::str::FromStr + Into<IpAddr>>(text: &str) -> Result<IpAddr, Bad> {
    text.parse::<A>().map(Into::into).map_err(|_| Bad("an address that is none of its family"))
}

/// Digits only, and none in vain: what two readers could take for two numbers is none.
fn port(text: &str) -> Result<u16, Bad> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain).ok_or(Bad("a port that is no number from 0 to 65535"))
}

/// Version 2.
fn block(bytes: &[u8]) -> Result<Parsed, Bad> {
    let begun = bytes.len().min(SIGNATURE.len());
    if bytes[..begun] != SIGNATURE[..begun] {
        return Err(NONE);
    }
    let local = match bytes.get(SIGNATURE.len()) {
        None => return Ok(Parsed::Partial),
        Some(0x20) => true,
        Some(0x21) => false,
        Some(_) => return Err(Bad("a version that is not 2, or a command that is neither LOCAL nor PROXY")),
    };
    let Some(&[family, high, low]) = bytes.get(SIGNATURE.len() + 1..FIXED) else {
        return Ok(Parsed::Partial);
    };
    let rest = usize::from(u16::from_be_bytes([high, low]));
    let length = FIXED + rest;
    let needed = match family {
        // What a health check says of addresses is to be ignored, whatever it is.
        _ if local => 0,
        0x00 => 0,
        0x11 => INET,
        0x21 => INET6,
        0x31 => UNIX,
        0x12 | 0x22 | 0x32 => return Err(Bad("datagrams over a stream")),
        _ => return Err(Bad("a family or transport that is not known")),
    };
    if rest < needed {
        return Err(Bad("a length too short for its addresses"));
    }
    let Some(addresses) = bytes.get(FIXED..FIXED + needed) else {
        return Ok(Parsed::Partial);
    };
    let ends = match needed {
        INET => binary_ends::<4>(addresses),
        INET6 => binary_ends::<16>(addresses),
        _ => None,
    };
    Ok(Parsed::Whole(Header { length, ends }))
}

fn binary_ends<const N: usize>(bytes: &[u8]) -> Option<Ends>
where
    [u8; N]: Into<IpAddr>,
{
    let (client, rest) = bytes.split_first_chunk::<N>()?;
    let (server, rest) = rest.split_first_chunk::<N>()?;
    let &[a, b, c, d] = rest else { return None };
    Some(Ends {
        client: SocketAddr::new((*client).into(), u16::from_be_bytes([a, b])),
        server: SocketAddr::new((*server).into(), u16::from_be_bytes([c, d])),
    })
}

/// Writes a header.
pub(crate) fn write(out: &mut Vec<u8>, version: Version, ends: &Ends) {
    let (client, server) = match (ends.client.ip().to_canonical(), ends.server.ip().to_canonical()) {
        // A header has one family.
        (IpAddr::V4(v4), v6 @ IpAddr::V6(_)) => (v4.to_ipv6_mapped().into(), v6),
        (v6 @ IpAddr::V6(_), IpAddr::V4(v4)) => (v6, v4.to_ipv6_mapped().into()),
        same => same,
    };
    let (from, to) = (ends.client.port(), ends.server.port());
    // Writing into a Vec can't fail.
    let _ = match (version, client) {
        (Version::V1, IpAddr::V4(_)) => write!(out, "PROXY TCP4 {client} {server} {from} {to}\r\n"),
        (Version::V1, IpAddr::V6(_)) => write!(out, "PROXY TCP6 {client} {server} {from} {to}\r\n"),
        (Version::V2, IpAddr::V4(_)) => out.write_all(&[SIGNATURE, &[0x21, 0x11, 0, 12]].concat()),
        (Version::V2, IpAddr::V6(_)) => out.write_all(&[SIGNATURE, &[0x21, 0x21, 0, 36]].concat()),
    };
    if version == Version::V2 {
        for ip in [client, server] {
            match ip {
                IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
            }
        }
        out.extend_from_slice(&from.to_be_bytes());
        out.extend_from_slice(&to.to_be_bytes());
    }
}

/// What must hold whatever the bytes: a verdict does not change with what follows, and what is read is what is written.
#[cfg(any(test, fuzzing))]
pub(crate) fn properties(bytes: &[u8]) {
    let verdict = parse(bytes);
    for cut in 0..bytes.len().min(LONGEST + 1) {
        let earlier = parse(&bytes[..cut]);
        assert!(earlier == Ok(Parsed::Partial) || earlier == verdict, "{cut}: {earlier:?}, then {verdict:?}");
    }
    assert!(bytes.len() < LONGEST || verdict != Ok(Parsed::Partial), "waits for more than it needs");
    let Ok(Parsed::Whole(Header { length, ends: Some(ends) })) = verdict else {
        return;
    };
    assert!((FIXED..=FIXED + usize::from(u16::MAX)).contains(&length), "{length}");
    for version in [Version::V1, Version::V2] {
        let mut out = Vec::new();
        write(&mut out, version, &ends);
        let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
        match parse(&out) {
            Ok(Parsed::Whole(Header { length, ends: Some(read) })) => {
                assert_eq!(length, out.len());
                assert_eq!(canonical(read.client), canonical(ends.client));
                assert_eq!(canonical(read.server), canonical(ends.server));
            }
            other => panic!("{other:?} of what we wrote: {}", out.escape_ascii()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, body].concat()
    }

    fn ends(client: &str, server: &str) -> Option<Ends> {
        Some(Ends { client: client.parse().unwrap(), server: server.parse().unwrap() })
    }

    const INET_BODY: [u8; 12] = [192, 0, 2, 7, 192, 0, 2, 1, 0x12, 0x67, 0, 80];

    #[test]
    fn both_versions_say_who_the_client_is() {
        let v4 = ends("192.0.2.7:4711", "192.0.2.1:80");
        let v6 = ends("[2001:db8::7]:4711", "[2001:db8::1]:443");
        let mut inet6 = Vec::new();
        write(&mut inet6, Version::V2, &v6.unwrap());
        let longest = "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
        let full = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535";
        let with_tlvs = [&INET_BODY[..], &[0x04, 0, 1, 0], &[0xee; 500]].concat();
        for (bytes, want) in [
            (b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n".to_vec(), v4),
            (b"PROXY TCP6 2001:db8::7 2001:DB8:0::1 4711 443\r\n".to_vec(), v6),
            (longest.as_bytes().to_vec(), ends(full, full)),
            (b"PROXY TCP4 192.0.2.7 192.0.2.1 0 0\r\n".to_vec(), ends("192.0.2.7:0", "192.0.2.1:0")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 something else entirely\r\n".to_vec(), None),
            (format!("PROXY UNKNOWN {}\r\n", "x".repeat(91)).into_bytes(), None),
            (v2(0x21, 0x11, &INET_BODY), v4),
            (v2(0x21, 0x11, &with_tlvs), v4),
            (inet6, v6),
            (v2(0x21, 0x00, b""), None),
            (v2(0x21, 0x00, &[7; 20]), None),
            (v2(0x21, 0x31, &[b'/'; 216]), None),
            (v2(0x20, 0x00, b""), None),
            (v2(0x20, 0x11, &INET_BODY), None),
            (v2(0x20, 0xff, &[7; 3]), None),
        ] {
            let length = bytes.len();
            let whole = Ok(Parsed::Whole(Header { length, ends: want }));
            assert_eq!(parse(&bytes), whole, "{}", bytes.escape_ascii());
            assert_eq!(parse(&[&bytes[..], b"GET / HTTP/1.1\r\n"].concat()), whole, "{}", bytes.escape_ascii());
            properties(&bytes);
        }
    }

    #[test]
    fn what_is_no_header_is_none() {
        for (bytes, why) in [
            (&b"GET / HTTP/1.1\r\n"[..], "no PROXY header"),
            (b"\x16\x03\x01\x02\x00\x01", "no PROXY header"),
            (b"POST / HTTP/1.1\r\n", "no PROXY header"),
            (b"PROXYTCP4 1.2.3.4 1.2.3.4 1 1\r\n", "no PROXY header"),
            (b"PROXY\tTCP4 1.2.3.4 1.2.3.4 1 1\r\n", "no PROXY header"),
            (b"PROXY  TCP4 1.2.3.4 1.2.3.4 1 1\r\n", "a family"),
            (b"PROXY tcp4 1.2.3.4 1.2.3.4 1 1\r\n", "a family"),
            (b"PROXY UNKNOWNX\r\n", "a family"),
            (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n", "a family"),
            (b"PROXY \r\n", "a family"),
            (b"PROXY TCP4\r\n", "an address"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "a port"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1 \r\n", "more than two"),
            (b"PROXY TCP4 1.2.3.4  1.2.3.4 1 1\r\n", "an address"),
            (b"PROXY TCP4 01.2.3.4 1.2.3.4 1 1\r\n", "an address"),
            (b"PROXY TCP4 1.2.3.256 1.2.3.4 1 1\r\n", "an address"),
            (b"PROXY TCP4 ::1 ::1 1 1\r\n", "an address"),
            (b"PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n", "an address"),
            (b"PROXY TCP6 fe80::1%eth0 ::1 1 1\r\n", "an address"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 +1 1\r\n", "a port"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n", "a port"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n", "a port"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 1\r\n", "a port"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n", "CRLF"),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\rX", "CRLF"),
            (b"PROXY UNKNOWN \xff\r\n", "not ASCII"),
            (b"\r\n\r\n\0\r\nQUIT\r", "no PROXY header"),
        ] {
            let bad = parse(bytes).expect_err(&bytes.escape_ascii().to_string());
            assert!(bad.0.contains(why), "{}: {}", bytes.escape_ascii(), bad.0);
            properties(bytes);
        }
        for (bytes, why) in [
            (v2(0x11, 0x11, &INET_BODY), "a version"),
            (v2(0x22, 0x11, &INET_BODY), "neither LOCAL nor PROXY"),
            (v2(0x21, 0x12, &INET_BODY), "datagrams"),
            (v2(0x21, 0x01, &INET_BODY), "not known"),
            (v2(0x21, 0x41, &INET_BODY), "not known"),
            (v2(0x21, 0x11, &INET_BODY[..11]), "too short"),
            (v2(0x21, 0x21, &INET_BODY), "too short"),
            (v2(0x21, 0x31, &INET_BODY), "too short"),
            (format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)).into_bytes(), "107"),
            (format!("PROXY {}", "x".repeat(200)).into_bytes(), "107"),
        ] {
            let bad = parse(&bytes).expect_err(&bytes.escape_ascii().to_string());
            assert!(bad.0.contains(why), "{}: {}", bytes.escape_ascii(), bad.0);
            properties(&bytes);
        }
    }

    #[test]
    fn what_is_skipped_need_not_have_come() {
        let mut bytes = v2(0x21, 0x11, &INET_BODY);
        bytes[14..16].copy_from_slice(&[0xff, 0xff]);
        let Ok(Parsed::Whole(header)) = parse(&bytes) else { panic!("not whole") };
        assert_eq!((header.length, header.ends), (16 + 65535, ends("192.0.2.7:4711", "192.0.2.1:80")));
    }

    #[test]
    fn one_header_has_one_family() {
        for (client, server, line) in [
            ("192.0.2.7:1", "192.0.2.1:2", "PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\n"),
            ("[::ffff:192.0.2.7]:1", "[::ffff:192.0.2.1]:2", "PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\n"),
            ("192.0.2.7:1", "[2001:db8::1]:2", "PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 1 2\r\n"),
            ("[2001:db8::1]:2", "0.0.0.0:0", "PROXY TCP6 2001:db8::1 ::ffff:0.0.0.0 2 0\r\n"),
        ] {
            let mut out = Vec::new();
            write(&mut out, Version::V1, &ends(client, server).unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), line);
        }
    }

    /// Another reader of the same protocol, for what both must take for the same.
    fn read_by_another(bytes: &[u8]) -> Option<Ends> {
        use ppp::{HeaderResult, v1, v2};
        let ends = |client: (IpAddr, u16), server: (IpAddr, u16)| Ends { client: client.into(), server: server.into() };
        match HeaderResult::parse(bytes) {
            HeaderResult::V1(Ok(header)) => match header.addresses {
                v1::Addresses::Tcp4(a) => Some(ends(
                    (a.source_address.into(), a.source_port),
                    (a.destination_address.into(), a.destination_port),
                )),
                v1::Addresses::Tcp6(a) => Some(ends(
                    (a.source_address.into(), a.source_port),
                    (a.destination_address.into(), a.destination_port),
                )),
                v1::Addresses::Unknown => None,
            },
            HeaderResult::V2(Ok(header)) => match header.addresses {
                v2::Addresses::IPv4(a) => Some(ends(
                    (a.source_address.into(), a.source_port),
                    (a.destination_address.into(), a.destination_port),
                )),
                v2::Addresses::IPv6(a) => Some(ends(
                    (a.source_address.into(), a.source_port),
                    (a.destination_address.into(), a.destination_port),
                )),
                v2::Addresses::Unix(_) | v2::Addresses::Unspecified => None,
            },
            other => panic!("{other:?}: {}", bytes.escape_ascii()),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_by_us_and_by_another(client: SocketAddr, server: SocketAddr) {
            for version in [Version::V1, Version::V2] {
                let mut bytes = Vec::new();
                write(&mut bytes, version, &Ends { client, server });
                properties(&bytes);
                let Ok(Parsed::Whole(header)) = parse(&bytes) else { panic!("{}", bytes.escape_ascii()) };
                prop_assert_eq!(header.ends, read_by_another(&bytes));
                prop_assert_eq!(header.ends.map(|e| e.client.port()), Some(client.port()));
            }
        }

        #[test]
        fn nothing_panics_or_changes_its_verdict(
            start in prop::sample::select(vec![&b"PROXY "[..], b"PROXY TCP4 ", b"PROXY UNKNOWN", SIGNATURE, b""]),
            rest in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"0123456789.: \r\n\x20\x21\x11\x00".to_vec())], 0..260,
            ),
        ) {
            properties(&[start, &rest].concat());
        }
    }
}
