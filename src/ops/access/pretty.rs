//! A line for people.

use std::io::{self, Write};
use std::time::Duration;

use crate::http::refuse::Fault;
use crate::record::Record;

/// `17:33:42.123 192.0.2.7 GET shop.example.com/cart 200 1.9 kB 3.2 ms → 8011`
pub(super) fn write(out: &mut Vec<u8>, record: &Record<'_>, color: bool) -> io::Result<()> {
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
        0..10 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        10..10_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
