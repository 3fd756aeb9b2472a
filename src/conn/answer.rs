//! Answers of our own: refusals, redirects, fixed responses.

use std::io::Write;

use crate::http::refuse::Refusal;
use crate::table::{Answer, Redirect};

/// After how many seconds it is worth asking again.
const RETRY_AFTER: u32 = 5;

/// How an answer goes out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner<'a> {
    /// The connection ends after it.
    pub(super) close: bool,
    /// The client is HTTP/1.0 and has to be told that the connection goes on.
    pub(super) http10: bool,
    /// The request was a HEAD: the same head, no body (RFC 9110 section 9.3.2).
    pub(super) to_head: bool,
    /// The client would rather see a page.
    pub(super) html: bool,
    /// Say the reason in a field.
    pub(super) error_field: bool,
    /// What the site says to browsers of coming over TLS.
    pub(super) hsts: Option<&'a str>,
}

/// A refusal, as a line of text or a small page. `text` stands in place of its usual sentence.
pub(super) fn refusal(out: &mut Vec<u8>, refusal: Refusal, text: Option<&str>, manner: Manner<'_>) {
    let row = refusal.row();
    let text = text.unwrap_or(row.text);
    let body = match manner.html {
        true => {
            let again =
                matches!(refusal, Refusal::NoBackend | Refusal::BackendBusy | Refusal::QueueFull | Refusal::Paused);
            page(row.status, row.phrase, text.trim_end_matches('.'), row.code, again)
        }
        false => format!("{} {}: {text} ({})\n", row.status, row.phrase, row.code),
    };
    let kind = if manner.html { "text/html; charset=utf-8" } else { "text/plain; charset=utf-8" };
    begin(out, row.status, row.phrase, manner);
    if manner.error_field {
        let _ = write!(out, "Carom-Error: {}\r\n", row.code);
    }
    if row.status == 503 {
        let _ = write!(out, "Retry-After: {RETRY_AFTER}\r\n");
    }
    // What is wrong now may be right at the next try.
    out.extend_from_slice(b"Cache-Control: no-store\r\n");
    finish(out, kind, body.as_bytes(), manner);
}

/// A redirect of the request's target.
pub(super) fn redirect(out: &mut Vec<u8>, redirect: &Redirect, target: &[u8], manner: Manner<'_>) {
    begin(out, redirect.status, phrase(redirect.status), manner);
    out.extend_from_slice(b"Location: ");
    out.extend_from_slice(&redirect.location(target));
    out.extend_from_slice(b"\r\n");
    finish(out, "text/plain; charset=utf-8", b"", manner);
}

/// A fixed answer.
pub(super) fn fixed(out: &mut Vec<u8>, answer: &Answer, manner: Manner<'_>) {
    begin(out, answer.status, phrase(answer.status), manner);
    match answer.status {
        // RFC 9110 sections 8.6 and 15: these have no body, and no length of one.
        204 | 304 => out.extend_from_slice(b"\r\n"),
        _ => finish(out, &answer.content_type, &answer.body, manner),
    }
}

fn begin(out: &mut Vec<u8>, status: u16, phrase: &str, manner: Manner<'_>) {
    // Writing into a Vec can't fail.
    let _ = write!(out, "HTTP/1.1 {status} {phrase}\r\n");
    if manner.close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if manner.http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    let _ = write!(out, "Date: {}\r\n", httpdate::fmt_http_date(std::time::SystemTime::now()));
    if let Some(value) = manner.hsts {
        let _ = write!(out, "Strict-Transport-Security: {value}\r\n");
    }
}

fn finish(out: &mut Vec<u8>, content_type: &str, body: &[u8], manner: Manner<'_>) {
    if !body.is_empty() {
        let _ = write!(out, "Content-Type: {content_type}\r\n");
    }
    let _ = write!(out, "Content-Length: {}\r\n\r\n", body.len());
    if !manner.to_head {
        out.extend_from_slice(body);
    }
}

/// `again`: the page is looked at again by itself, as soon as [`RETRY_AFTER`] says.
fn page(status: u16, phrase: &str, text: &str, code: &str, again: bool) -> String {
    // An operator's own words are in it.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let refresh =
        if again { format!("<meta http-equiv=\"refresh\" content=\"{RETRY_AFTER}\">\n") } else { String::new() };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n{refresh}\
         <meta name=\"viewport\" content=\"width=device-width\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{status} {phrase}</title>\n\
         <body style=\"font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; padding: 0 1rem\">\n\
         <h1 style=\"font-size: 1.5rem\">{status} {phrase}</h1>\n<p>{text}.</p>\n\
         <p><small><code>{code}</code></small></p>\n</body>\n</html>\n"
    )
}

/// The reason phrases of RFC 9110 section 15 for what routes may answer; empty, which is allowed, for the rest.
fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        410 => "Gone",
        418 => "I'm a teapot",
        429 => "Too Many Requests",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}
