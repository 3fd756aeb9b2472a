//! What of a request is not written down.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::record::Record;

/// What of a request is not written down, though its line would say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redact {
    /// Query strings: of the path, and of the `Referer`.
    pub query: bool,
    /// Of the client's address, what names one machine: the last 8 bits of an IPv4 address, the last 80 of an IPv6 one.
    pub client: bool,
    /// The whole path.
    pub path: bool,
    /// Request fields, in lower case.
    pub fields: Vec<Box<str>>,
}

/// What can be redacted by a name of its own; request fields are `header:NAME`.
pub const NAMES: &[&str] = &["query", "client", "path"];

/// What stands in the place of what is not written.
const REDACTED: &[u8] = b"[redacted]";

impl Redact {
    fn is_nothing(&self) -> bool {
        !self.query && !self.client && !self.path && self.fields.is_empty()
    }

    /// Gives the record as it may be written. `names` are those of its fields.
    pub(in crate::ops) fn apply(&self, record: &Record<'_>, names: &[Box<str>], write: impl FnOnce(&Record<'_>)) {
        if self.is_nothing() {
            return write(record);
        }
        let mut record = *record;
        let target;
        if self.path && !record.target.is_empty() {
            record.target = REDACTED;
        } else if self.query
            && let Some(cut) = without_query(record.target)
        {
            target = cut;
            record.target = &target;
        }
        if self.client {
            record.client = SocketAddr::new(coarse(record.client.ip()), 0);
        }
        let fields = names.iter().zip(record.fields).map(|(name, value)| {
            let value = value.as_ref()?;
            Some(match &**name {
                _ if self.fields.contains(name) => REDACTED.into(),
                "referer" if self.query => without_query(value).map_or_else(|| value.clone(), Into::into),
                _ => value.clone(),
            })
        });
        let fields: Vec<Option<Box<[u8]>>> = fields.collect();
        record.fields = &fields;
        write(&record);
    }
}

/// `/x?[redacted]`; `None` where there is no query.
fn without_query(target: &[u8]) -> Option<Vec<u8>> {
    let at = memchr::memchr(b'?', target)?;
    Some([&target[..=at], REDACTED].concat())
}

fn coarse(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !0xff).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 80 << 80).into(),
    }
}
