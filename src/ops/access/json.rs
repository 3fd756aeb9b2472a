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
    text(out, b",\"id\":", record.id);
    out.extend_from_slice(b",\"client\":\"");
    values::client(out, record.client);
    out.push(b'"');
    text(out, b",\"scheme\":", record.scheme);
    text(out, b",\"protocol\":", record.protocol);
    text(out, b",\"method\":", &String::from_utf8_lossy(record.method));
    text(out, b",\"host\":", record.host);
    text(out, b",\"path\":", &String::from_utf8_lossy(record.target));
    number(out, b",\"status\":", record.status.into());
    number(out, b",\"received\":", record.received);
    number(out, b",\"sent\":", record.sent);
    text(out, b",\"route\":", record.route.unwrap_or_default());
    text(out, b",\"backend\":", record.backend.map_or("", |backend| backend.name()));
    number(out, b",\"tries\":", record.tries.into());
    time(out, b",\"head_ms\":", Some(record.head));
    time(out, b",\"connect_ms\":", record.connect);
    time(out, b",\"first_byte_ms\":", record.first_byte);
    time(out, b",\"total_ms\":", Some(record.total));
    text(out, b",\"closed\":", record.closed.map_or("", Side::name));
    text(out, b",\"reason\":", record.reason.map_or("", |(code, _)| code));
    out.extend_from_slice(b"}\n");
}

/// What is not known is left out.
fn text(out: &mut Vec<u8>, name: &[u8], text: &str) {
    if !text.is_empty() {
        out.extend_from_slice(name);
        // Writing into a Vec can't fail.
        let _ = serde_json::to_writer(out, text);
    }
}

fn number(out: &mut Vec<u8>, name: &[u8], number: u64) {
    out.extend_from_slice(name);
    values::number(out, number);
}

fn time(out: &mut Vec<u8>, name: &[u8], time: Option<Duration>) {
    if let Some(time) = time {
        out.extend_from_slice(name);
        values::write_milliseconds(out, time);
    }
}
