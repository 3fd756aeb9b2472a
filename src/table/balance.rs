//! How a site chooses the instance for a request.
//!
//! Who is in turn is the site's to know; here is what else a choice may look at, and how keys are spread.

use std::fmt;
use std::net::IpAddr;

use twox_hash::XxHash3_64;

use super::sticky::Sticky;
use crate::http::head::Head;

/// How the next instance is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in flight for its weight; in turn among equals.
    LeastConnections,
    /// Of two taken at random, by weight, the one with fewer requests in flight for its weight. Several proxies in front of
    /// the same instances do not all run after the same free one.
    RandomTwo,
    /// Always the same one for the same key, as long as it is there: an instance that comes or goes takes or leaves its own
    /// share of the keys and moves no other (rendezvous hashing).
    Hash(By),
    /// The instance that the session's cookie names; a new session's is chosen in another way.
    Sticky(Box<Sticky>),
}

/// What is hashed. A request without it goes by the client's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// The client's address, without its port.
    Client,
    /// The first field of this name.
    Header(Box<str>),
    /// The cookie of this name.
    Cookie(Box<str>),
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("the client's address"),
            Self::Header(name) => write!(f, "the field {name}"),
            Self::Cookie(name) => write!(f, "the cookie {name}"),
        }
    }
}

impl Balance {
    /// What a request is chosen by; 0 where it doesn't matter. A connection that is passed through has no head.
    pub(crate) fn key(&self, head: Option<&Head<'_>>, client: IpAddr) -> u64 {
        let Self::Hash(by) = self else { return 0 };
        let said = match by {
            By::Client => None,
            By::Header(name) => head.and_then(|head| head.field(name)),
            By::Cookie(name) => head.and_then(|head| cookies(head, name.as_bytes()).next()),
        };
        match (said, client.to_canonical()) {
            (Some(value), _) => hash(value),
            (None, IpAddr::V4(address)) => hash(&address.octets()),
            (None, IpAddr::V6(address)) => hash(&address.octets()),
        }
    }
}

/// The values of the cookies of this name (RFC 6265 section 4.2).
pub(super) fn cookies<'a>(head: &Head<'a>, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
    head.fields()
        .filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"))
        .flat_map(|(_, value)| value.split(|&byte| byte == b';'))
        .filter_map(move |pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
}

/// The same in every process, on every machine and in every version: who comes back after a restart finds what he left.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// How far an instance is from a key: the nearest is chosen. With twice the weight it is nearest twice as often (weighted
/// rendezvous hashing, by the logarithm of a number from 0 to 1 that key and instance make).
pub(super) fn distance(key: u64, instance: u64, weight: u16) -> f64 {
    let hash = XxHash3_64::oneshot_with_seed(key, &instance.to_le_bytes());
    // The upper 53 bits, which a float holds exactly.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are left")]
    let unit = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -unit.ln() / f64::from(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::{Parsed, RequestHead};
    use crate::settings::Limits;

    fn key(balance: &Balance, fields: &str, client: &str) -> u64 {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n").into_bytes();
        let mut head = RequestHead::default();
        assert_eq!(head.parse(&bytes, &Limits::default()), Ok(Parsed::Whole));
        balance.key(Some(&Head::new(&bytes, &head)), client.parse().unwrap())
    }

    #[test]
    fn a_key_is_what_the_request_says_or_the_clients_address() {
        let client = Balance::Hash(By::Client);
        assert_eq!(key(&client, "", "192.0.2.1"), key(&client, "X: y\r\n", "::ffff:192.0.2.1"));
        assert_ne!(key(&client, "", "192.0.2.1"), key(&client, "", "192.0.2.2"));
        let header = Balance::Hash(By::Header("X-User".into()));
        assert_eq!(key(&header, "x-user: 7\r\nX-User: 8\r\n", "192.0.2.1"), key(&header, "X-User: 7\r\n", "192.0.2.2"));
        assert_eq!(key(&header, "", "192.0.2.1"), key(&client, "", "192.0.2.1"));
        let cookie = Balance::Hash(By::Cookie("uid".into()));
        for fields in ["Cookie: uid=7\r\n", "Cookie: a=b; uid=7\r\n", "Cookie: xuid=1\r\nCookie: uid=7; uid=8\r\n"] {
            assert_eq!(key(&cookie, fields, "192.0.2.1"), hash(b"7"), "{fields}");
        }
        for fields in ["Cookie: uidx=7\r\n", "Cookie: uid\r\n", ""] {
            assert_eq!(key(&cookie, fields, "192.0.2.1"), key(&client, "", "192.0.2.1"), "{fields}");
        }
    }

    #[test]
    fn hashes_stay_what_they_are() {
        // XXH3's own value for nothing: another function would send everybody elsewhere.
        assert_eq!(hash(b""), 0x2d06_8005_38d3_94c2);
    }
}
