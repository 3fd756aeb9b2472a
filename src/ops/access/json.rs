//! A line for programs: one JSON object.
//!
//! Written name by name: a tenth of what a request costs went into making a line by way of a description of it. Strings
//! and numbers are the library's.

use std::time::Duration;

use super::values::{self, Stamp};
use crate::record::{Record, Side};

pub(super) fn write(out: &mut Vec<u8>, record: &Record<'_>, stamp: &mut Stamp) {
    out.extend_from_slice(b"{\"time\":\"");
    stamp.write(out, record.time);
    out.push(b'"');
    text(out, b",\"id\":\"", record.id.as_bytes());
    out.extend_from_slice(b",\"client\":\"");
    values::client(out, record.client);
    out.push(b'"');
    plain(out, b",\"scheme\":\"", record.scheme.as_bytes());
    plain(out, b",\"protocol\":\"", record.protocol.as_bytes());
    text(out, b",\"method\":\"", record.method);
    text(out, b",\"host\":\"", record.host.as_bytes());
    text(out, b",\"path\":\"", record.target);
    number(out, b",\"status\":", record.status.into());
    number(out, b",\"received\":", record.received);
    number(out, b",\"sent\":", record.sent);
    text(out, b",\"route\":\"", record.route.unwrap_or_default().as_bytes());
    text(out, b",\"backend\":\"", record.backend.map_or("", |backend| backend.name()).as_bytes());
    number(out, b",\"tries\":", record.tries.into());
    time(out, b",\"head_ms\":", Some(record.head));
    time(out, b",\"connect_ms\":", record.connect);
    time(out, b",\"first_byte_ms\":", record.first_byte);
    time(out, b",\"total_ms\":", Some(record.total));
    plain(out, b",\"closed\":\"", record.closed.map_or("", Side::name).as_bytes());
    plain(out, b",\"reason\":\"", record.reason.map_or("", |(code, _)| code).as_bytes());
    out.extend_from_slice(b"}\n");
}

/// What is not known is left out. The length of a name is known beforehand, so that copying it is no call; it ends with the
/// quote that opens the string.
fn text<const N: usize>(out: &mut Vec<u8>, name: &[u8; N], text: &[u8]) {
    if is_plain(text) {
        return plain(out, name, text);
    }
    out.extend_from_slice(name.strip_suffix(b"\"").unwrap_or(name));
    // Writing into a Vec can't fail.
    drop(serde_json::to_writer(out, &String::from_utf8_lossy(text)));
}

/// A text in which nothing has to be escaped.
fn plain<const N: usize>(out: &mut Vec<u8>, name: &[u8; N], text: &[u8]) {
    if !text.is_empty() {
        out.extend_from_slice(name);
        out.extend_from_slice(text);
        out.push(b'"');
    }
}

/// Whether a string of JSON can hold this as it is. Looks at all of it, without a branch: so it is done many bytes at a time.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |plain, &byte| plain & (0x20..0x7f).contains(&byte) & (byte != b'"') & (byte != b'\\'))
}

fn number<const N: usize>(out: &mut Vec<u8>, name: &[u8; N], number: u64) {
    out.extend_from_slice(name);
    values::number(out, number);
}

fn time<const N: usize>(out: &mut Vec<u8>, name: &[u8; N], time: Option<Duration>) {
    if let Some(time) = time {
        out.extend_from_slice(name);
        values::write_milliseconds(out, time);
    }
}
