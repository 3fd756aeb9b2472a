//! A line for programs: one JSON object.

use std::io;

use serde::Serialize;

use super::values::to_milliseconds;
use crate::record::{Record, Side};

/// A JSON line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    client: String,
    scheme: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    protocol: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    method: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    host: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'a str,
    status: u16,
    received: u64,
    sent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<String>,
    tries: u32,
    head_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ms: Option<f64>,
    total_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

pub(super) fn write(out: &mut Vec<u8>, record: &Record<'_>) -> io::Result<()> {
    let (method, path) = (String::from_utf8_lossy(record.method), String::from_utf8_lossy(record.target));
    let line = Line {
        time: humantime::format_rfc3339_millis(record.time).to_string(),
        id: record.id,
        client: record.client.to_string(),
        scheme: record.scheme,
        protocol: record.protocol,
        method: &method,
        host: record.host,
        path: &path,
        status: record.status,
        received: record.received,
        sent: record.sent,
        route: record.route,
        backend: record.backend.map(ToString::to_string),
        tries: record.tries,
        head_ms: to_milliseconds(record.head),
        connect_ms: record.connect.map(to_milliseconds),
        first_byte_ms: record.first_byte.map(to_milliseconds),
        total_ms: to_milliseconds(record.total),
        closed: record.closed.map(Side::name),
        reason: record.reason.map(|(code, _)| code),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.push(b'\n');
    Ok(())
}
