//! The access log: a line a request.
//!
//! Workers make lines in memory of their own and hand them over ten times a second, or when there are many; a thread
//! writes them. When the disk can't follow, lines are dropped and counted: requests are not slowed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use crate::http::refuse::Fault;
use crate::record::{Log, Observe, Record};

/// Bytes of lines that one worker holds back at most.
const BATCH: usize = 32 * 1024;

/// Batches that wait for the writer at most.
const QUEUE: usize = 64;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people. `color` says whether the terminal has any.
    Pretty {
        /// Status in color.
        color: bool,
    },
    /// A JSON object: `time` (RFC 3339), `client`, `method`, `host`, `path`, `status`, `received` and `sent` (bytes),
    /// `route`, `backend`, `tries`, `first_byte_ms`, `total_ms`, `reason`. What is not known is left out.
    #[default]
    Json,
}

/// Where the lines of all workers come together.
#[derive(Clone, Debug)]
pub struct Access {
    format: Format,
    batches: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

/// The thread that writes. It ends when the last [`Access`] and all that it has made are gone.
#[derive(Debug)]
pub struct Writer(JoinHandle<()>);

/// One worker's lines.
struct Lines {
    to: Access,
    lines: Vec<u8>,
    count: u64,
}

impl Access {
    /// Writes to standard output.
    ///
    /// # Errors
    /// The thread that writes can't be made.
    pub fn to_stdout(format: Format) -> io::Result<(Self, Writer)> {
        Self::to(Box::new(io::stdout()), format)
    }

    /// Appends to a file.
    ///
    /// # Errors
    /// The file can't be opened.
    pub fn to_file(path: &Path, format: Format) -> io::Result<(Self, Writer)> {
        let file: File = OpenOptions::new().append(true).create(true).open(path)?;
        Self::to(Box::new(file), format)
    }

    fn to(out: Box<dyn Write + Send>, format: Format) -> io::Result<(Self, Writer)> {
        let (batches, written) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let thread =
            std::thread::Builder::new().name("access-log".into()).spawn(move || write(out, &written, &counted))?;
        Ok((Self { format, batches, dropped }, Writer(thread)))
    }
}

impl Writer {
    /// Waits until everything has been written.
    pub fn finish(self) {
        // A writer that panicked has nothing more to say.
        let _ = self.0.join();
    }
}

fn write(mut out: Box<dyn Write + Send>, batches: &Receiver<Vec<u8>>, dropped: &AtomicU64) {
    let mut broken = false;
    while let Ok(batch) = batches.recv() {
        match out.write_all(&batch).and_then(|()| out.flush()) {
            Ok(()) => broken = false,
            Err(error) if !broken => {
                broken = true;
                tracing::error!(%error, "the access log can't be written; lines are lost until it can");
            }
            Err(_) => {}
        }
        match dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => tracing::warn!(lines, "the access log could not be written fast enough; lines were dropped"),
        }
    }
}

impl Observe for Access {
    fn for_worker(&self) -> Box<dyn Log> {
        Box::new(Lines { to: self.clone(), lines: Vec::new(), count: 0 })
    }
}

impl Log for Lines {
    fn request(&mut self, record: &Record<'_>) {
        // Writing into a Vec can't fail.
        let _ = match self.to.format {
            Format::Json => json(&mut self.lines, record),
            Format::Pretty { color } => pretty(&mut self.lines, record, color),
        };
        self.count += 1;
        if self.lines.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let room = self.lines.len();
        let batch = std::mem::replace(&mut self.lines, Vec::with_capacity(room));
        if let Err(TrySendError::Full(_)) = self.to.batches.try_send(batch) {
            self.to.dropped.fetch_add(self.count, Ordering::Relaxed);
        }
        self.count = 0;
    }
}

/// A JSON line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    client: String,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ms: Option<f64>,
    total_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

fn json(out: &mut Vec<u8>, record: &Record<'_>) -> io::Result<()> {
    let (method, path) = (String::from_utf8_lossy(record.method), String::from_utf8_lossy(record.target));
    let line = Line {
        time: humantime::format_rfc3339_millis(record.time).to_string(),
        client: record.client.to_string(),
        method: &method,
        host: record.host,
        path: &path,
        status: record.status,
        received: record.received,
        sent: record.sent,
        route: record.route,
        backend: record.backend.map(ToString::to_string),
        tries: record.tries,
        first_byte_ms: record.first_byte.map(milliseconds),
        total_ms: milliseconds(record.total),
        reason: record.reason.map(|(code, _)| code),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.push(b'\n');
    Ok(())
}

/// To the microsecond, and no further.
fn milliseconds(time: Duration) -> f64 {
    // A duration that does not fit into 52 bits of microseconds is longer than a century.
    time.as_micros() as f64 / 1000.0
}

/// `17:33:42.123 192.0.2.7 GET shop.example.com/cart 200 1.9 kB 3.2 ms → 8011`
fn pretty(out: &mut Vec<u8>, record: &Record<'_>, color: bool) -> io::Result<()> {
    let time = humantime::format_rfc3339_millis(record.time).to_string();
    let time = time.get(11..23).unwrap_or(&time);
    write!(out, "{time} {} ", record.client.ip())?;
    match record.method {
        [] => out.push(b'-'),
        method => write!(out, "{} {}{}", shown(method), record.host, shown(record.target))?,
    }
    let style = if color { style(record) } else { anstyle::Style::new() };
    match record.status {
        0 if record.reason.is_none() => write!(out, " {style}passed through{style:#}")?,
        0 => write!(out, " {style}no answer{style:#}")?,
        status => write!(out, " {style}{status}{style:#}")?,
    }
    write!(out, " {} {}", size(record.sent), duration(record.total))?;
    if let Some(backend) = record.backend {
        write!(out, " → {backend}")?;
    }
    if record.tries > 1 {
        write!(out, " (try {})", record.tries)?;
    }
    if let Some((code, _)) = record.reason {
        write!(out, " {style}{code}{style:#}")?;
    }
    out.push(b'\n');
    Ok(())
}

/// What a peer sent, without what could move a terminal's cursor.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn style(record: &Record<'_>) -> anstyle::Style {
    let color = match (record.status, record.reason) {
        (_, Some((_, Fault::Backend))) | (500.., _) => anstyle::AnsiColor::Red,
        (400..500, _) | (0, Some(_)) => anstyle::AnsiColor::Yellow,
        (300..400, _) => anstyle::AnsiColor::Cyan,
        _ => anstyle::AnsiColor::Green,
    };
    color.on_default()
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} B"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn duration(time: Duration) -> String {
    match time.as_millis() {
        0..10 => format!("{:.1} ms", milliseconds(time)),
        10..10_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::backend::{Address, Backend};
    use std::time::SystemTime;

    fn record<'a>(backend: &'a Backend) -> Record<'a> {
        Record {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567),
            client: "192.0.2.7:4711".parse().unwrap(),
            method: b"GET",
            host: "a.test",
            target: b"/x\"\x1b[2J\xff?y",
            status: 502,
            received: 100,
            sent: 2_345,
            route: Some("*.test"),
            backend: Some(backend),
            tries: 2,
            first_byte: None,
            total: Duration::from_micros(3_210),
            reason: Some(("backend-closed", Fault::Backend)),
        }
    }

    #[test]
    fn a_json_line_is_one_object_whatever_a_peer_sends() {
        let mut out = Vec::new();
        json(&mut out, &record(&Backend::new(Address::Port(8001)))).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"time\":\"1970-01-01T00:20:34.567Z\",\"client\":\"192.0.2.7:4711\",\"method\":\"GET\",\"host\":\"a.test\",\
             \"path\":\"/x\\\"\\u001b[2J\u{fffd}?y\",\"status\":502,\"received\":100,\"sent\":2345,\"route\":\"*.test\",\
             \"backend\":\"8001\",\"tries\":2,\"total_ms\":3.21,\"reason\":\"backend-closed\"}\n"
        );
    }

    #[test]
    fn a_pretty_line_says_it_in_a_line_and_moves_no_cursor() {
        let mut out = Vec::new();
        pretty(&mut out, &record(&Backend::new(Address::Port(8001))), false).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "00:20:34.567 192.0.2.7 GET a.test/x\"\u{fffd}[2J\u{fffd}?y 502 2.3 kB 3.2 ms → 8001 (try 2) backend-closed\n"
        );
    }

    #[test]
    fn a_connection_that_was_passed_through_has_a_line_too() {
        let backend = Backend::new(Address::Port(8001));
        let passed = Record { method: b"-", target: b"", status: 0, tries: 1, reason: None, ..record(&backend) };
        let mut out = Vec::new();
        pretty(&mut out, &passed, false).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "00:20:34.567 192.0.2.7 - a.test passed through 2.3 kB 3.2 ms → 8001\n"
        );
    }

    #[test]
    fn lines_are_dropped_and_counted_when_the_writer_is_stuck() {
        let (batches, _kept) = sync_channel(1);
        let access = Access { format: Format::Json, batches, dropped: Arc::default() };
        let mut lines = access.for_worker();
        for _ in 0..3 {
            lines.request(&record(&Backend::new(Address::Port(8001))));
            lines.flush();
        }
        assert_eq!(access.dropped.load(Ordering::Relaxed), 2);
    }
}
