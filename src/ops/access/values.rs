//! What a line can say of a request, by name: the same in every format.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use crate::http::rewrite::address;
use crate::record::Record;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Time,
    ClfTime,
    Client,
    ClientPort,
    Scheme,
    Protocol,
    Method,
    Host,
    Path,
    Request,
    Status,
    Received,
    Sent,
    BodySent,
    Route,
    Backend,
    Tries,
    HeadMs,
    ConnectMs,
    FirstByteMs,
    TotalMs,
    Closed,
    Reason,
    Id,
}

const ALL: [(&str, Value); 24] = [
    ("time", Value::Time),
    ("clf_time", Value::ClfTime),
    ("client", Value::Client),
    ("client_port", Value::ClientPort),
    ("scheme", Value::Scheme),
    ("protocol", Value::Protocol),
    ("method", Value::Method),
    ("host", Value::Host),
    ("path", Value::Path),
    ("request", Value::Request),
    ("status", Value::Status),
    ("received", Value::Received),
    ("sent", Value::Sent),
    ("body_sent", Value::BodySent),
    ("route", Value::Route),
    ("backend", Value::Backend),
    ("tries", Value::Tries),
    ("head_ms", Value::HeadMs),
    ("connect_ms", Value::ConnectMs),
    ("first_byte_ms", Value::FirstByteMs),
    ("total_ms", Value::TotalMs),
    ("closed", Value::Closed),
    ("reason", Value::Reason),
    ("id", Value::Id),
];

impl Value {
    pub(super) fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(name, _)| *name)
    }

    /// Writes it, or `-` where there is none. What a peer has sent is escaped.
    pub(super) fn write(self, out: &mut Vec<u8>, record: &Record<'_>) {
        // Writing into a Vec can't fail.
        let _ = match self {
            Self::Time => write!(out, "{}", humantime::format_rfc3339_millis(record.time)),
            Self::ClfTime => clf_time(out, record.time),
            Self::Client => write!(out, "{}", record.client.ip().to_canonical()),
            Self::ClientPort => write!(out, "{}", record.client.port()),
            Self::Scheme => text(out, record.scheme),
            Self::Protocol => text(out, record.protocol),
            Self::Method => bytes(out, record.method),
            Self::Host => text(out, record.host),
            Self::Path => bytes(out, record.target),
            Self::Request => request(out, record),
            Self::Status => write!(out, "{}", record.status),
            Self::Received => write!(out, "{}", record.received),
            Self::Sent => write!(out, "{}", record.sent),
            Self::BodySent => write!(out, "{}", record.sent.saturating_sub(record.sent_head)),
            Self::Route => text(out, record.route.unwrap_or_default()),
            Self::Backend => match record.backend {
                Some(backend) => write!(out, "{backend}"),
                None => text(out, ""),
            },
            Self::Tries => write!(out, "{}", record.tries),
            Self::HeadMs => milliseconds(out, Some(record.head)),
            Self::ConnectMs => milliseconds(out, record.connect),
            Self::FirstByteMs => milliseconds(out, record.first_byte),
            Self::TotalMs => milliseconds(out, Some(record.total)),
            Self::Closed => text(out, record.closed.map_or("", |side| side.name())),
            Self::Reason => text(out, record.reason.map_or("", |(code, _)| code)),
            Self::Id => text(out, record.id),
        };
    }
}

fn text(out: &mut Vec<u8>, text: &str) -> std::io::Result<()> {
    bytes(out, text.as_bytes())
}

fn bytes(out: &mut Vec<u8>, text: &[u8]) -> std::io::Result<()> {
    match text {
        [] => out.push(b'-'),
        text => escaped(out, text),
    }
    Ok(())
}

/// What a peer has sent, so that it can neither end its quotes nor its line nor move a terminal's cursor: as nginx and
/// Apache write it.
pub(super) fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => drop(write!(out, "\\x{byte:02X}")),
            byte => out.push(byte),
        }
    }
}

/// The request line, in the form that log readers expect; `-` for a head that could not be read.
fn request(out: &mut Vec<u8>, record: &Record<'_>) -> std::io::Result<()> {
    if record.method.is_empty() {
        out.push(b'-');
        return Ok(());
    }
    for part in [record.method, b" ", record.target, b" ", record.protocol.as_bytes()] {
        escaped(out, part);
    }
    Ok(())
}

fn milliseconds(out: &mut Vec<u8>, time: Option<Duration>) -> std::io::Result<()> {
    match time {
        Some(time) => write_milliseconds(out, time),
        None => return text(out, ""),
    }
    Ok(())
}

/// Milliseconds, to the microsecond and no further: `0.0`, `3.21`. Without the machinery of floating point: there are
/// several in each line.
pub(super) fn write_milliseconds(out: &mut Vec<u8>, time: Duration) {
    let micros = time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros().into());
    number(out, micros / 1000);
    let digits = digits(micros % 1000);
    let [tenths, hundredths, thousandths] = digits;
    out.extend_from_slice(&[b'.', tenths]);
    if (hundredths, thousandths) != (b'0', b'0') {
        out.push(hundredths);
    }
    if thousandths != b'0' {
        out.push(thousandths);
    }
}

/// The last three.
fn digits(number: u64) -> [u8; 3] {
    [100, 10, 1].map(|unit| b'0' + u8::try_from(number / unit % 10).unwrap_or(0))
}

pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    match number {
        // Most times are short, most requests are tried once, and every status has three.
        0..10 => out.push(digits(number)[2]),
        100..1000 => out.extend_from_slice(&digits(number)),
        _ => out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    }
}

/// Writes points in time as RFC 3339 to the millisecond, and remembers the last second: most lines share it with the
/// one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Stamp {
    second: Option<u64>,
    /// Up to the second.
    text: String,
}

impl Stamp {
    pub(super) fn write(&mut self, out: &mut Vec<u8>, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if self.second != Some(since.as_secs()) {
            self.second = Some(since.as_secs());
            let text = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since).to_string();
            self.text = text.trim_end_matches('Z').to_owned();
        }
        out.extend_from_slice(self.text.as_bytes());
        out.push(b'.');
        out.extend_from_slice(&digits(since.subsec_millis().into()));
        out.push(b'Z');
    }
}

/// The client's address as people write it: an IPv4 one that has come by IPv6 is an IPv4 one.
pub(super) fn client(out: &mut Vec<u8>, client: SocketAddr) {
    match client.ip().to_canonical() {
        ip @ IpAddr::V4(_) => address(out, ip),
        ip @ IpAddr::V6(_) => drop(write!(out, "[{ip}]")),
    }
    out.push(b':');
    number(out, client.port().into());
}

/// `01/Dec/2026:00:31:59 +0000`
fn clf_time(out: &mut Vec<u8>, time: SystemTime) -> std::io::Result<()> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // 2026-12-01T00:31:59Z, whose parts only change places.
    let rfc3339 = humantime::format_rfc3339_seconds(time).to_string();
    let part = |range: std::ops::Range<usize>| rfc3339.get(range).unwrap_or("-");
    let month = part(5..7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?)).unwrap_or(&"-");
    write!(out, "{}/{month}/{}:{} +0000", part(8..10), part(0..4), part(11..19))
}
