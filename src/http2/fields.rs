//! Fields: lines in HTTP/1, names and values in HTTP/2.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::http::body::may_trail;
use crate::http::field::{Field, Kind};

/// Writes a line.
pub(crate) fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes trailers as lines. Those that only a head may have are left out: a reader of HTTP/1 would refuse them.
pub(crate) fn trailer_lines(out: &mut Vec<u8>, trailers: &HeaderMap) {
    for (name, value) in trailers {
        if may_trail(name.as_str().as_bytes()) {
            line(out, name.as_str().as_bytes(), value.as_bytes().trim_ascii());
        }
    }
}

/// Reads trailers from their lines.
pub(crate) fn trailers(lines: &[u8]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let value = Bytes::copy_from_slice(line[colon + 1..].trim_ascii());
        // What a limit has let through fits.
        let _ = append(&mut fields, &line[..colon], value);
    }
    fields
}

/// Takes over the fields of a head that was read from `bytes`, less those that are for a connection of HTTP/1. `None` for
/// what HTTP/2 can't carry.
pub(crate) fn of_head(fields: &mut HeaderMap, head: &[Field], bytes: &[u8], keep: impl Fn(Kind) -> bool) -> Option<()> {
    let end = head.last().map_or(0, |last| last.end as usize);
    // Copied once; every value is a part of the copy.
    let whole = Bytes::copy_from_slice(bytes.get(..end)?);
    fields.try_reserve(head.len()).ok()?;
    for field in head {
        if !is_for_one_hop(field.kind) && !field.nominated && keep(field.kind) {
            let value = whole.slice(field.value_start as usize..field.value_end as usize);
            append(fields, field.name(bytes), value)?;
        }
    }
    Some(())
}

fn append(fields: &mut HeaderMap, name: &[u8], value: Bytes) -> Option<()> {
    let (name, value) = (HeaderName::from_bytes(name).ok()?, HeaderValue::from_maybe_shared(value).ok()?);
    fields.try_append(name, value).ok().map(drop)
}

/// RFC 9113 section 8.2.2.
fn is_for_one_hop(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Connection
            | Kind::KeepAlive
            | Kind::ProxyConnection
            | Kind::TransferEncoding
            | Kind::Upgrade
            | Kind::Te
            | Kind::Http2Settings
    )
}
