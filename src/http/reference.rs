//! A second reader of the same messages, for tests and fuzzing only: written from RFC 9110 and RFC 9112 and from what
//! carom promises to refuse, in the plainest way there is, so that it and the real one are wrong in different places.
//!
//! It reads whole messages, copies everything, has no limits, and shares no code with what it is compared with.
//! `None` means that a message is not whole or could be read in two ways: carom must not have accepted it.

use std::net::Ipv6Addr;

use crate::http::body::Framing;

/// A field: its name in lower case, its name and value as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) raw_name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: Option<u16>,
}

/// A request's head.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) length: usize,
    pub(crate) method: Vec<u8>,
    /// As it goes to the backend: in origin form, or `*`.
    pub(crate) target: Vec<u8>,
    pub(crate) absolute: bool,
    pub(crate) minor: u8,
    pub(crate) host: Option<Host>,
    /// The host as it was spelt.
    pub(crate) host_text: Option<Vec<u8>>,
    pub(crate) framing: Framing,
    pub(crate) fields: Vec<Field>,
}

/// A response's head.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) length: usize,
    pub(crate) minor: u8,
    pub(crate) status: u16,
    pub(crate) reason: Vec<u8>,
    pub(crate) framing: Framing,
    pub(crate) fields: Vec<Field>,
}

pub(crate) fn request(bytes: &[u8]) -> Option<Request> {
    let (lines, length) = lines(bytes)?;
    let (first, rest) = lines.split_first()?;
    let parts: Vec<&[u8]> = first.split(|&byte| byte == b' ').collect();
    let [method, target, version] = parts.as_slice() else {
        return None;
    };
    let minor = minor(version)?;
    if !token(method) || *method == b"CONNECT" {
        return None;
    }
    // A target is text; which text beyond ASCII is the backend's business, as long as it is UTF-8.
    let text = std::str::from_utf8(target).ok()?;
    if text.is_empty() || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'#') {
        return None;
    }
    let fields = fields(rest)?;

    let named: Vec<&Field> = fields.iter().filter(|field| field.name == "host").collect();
    let field_text = match named.as_slice() {
        [] => None,
        [one] => Some(one.value.clone()),
        _ => return None,
    };
    let field_host = match &field_text {
        Some(text) => Some(host(text)?),
        None if minor == 1 => return None,
        None => None,
    };

    let absolute = text.len() >= 7 && text.as_bytes()[..7].eq_ignore_ascii_case(b"http://");
    let (target, host_text, asked) = if text.starts_with('/') || (text == "*" && *method == b"OPTIONS") {
        (target.to_vec(), field_text, field_host)
    } else if absolute {
        let behind = &text[7..];
        let end = behind.find(['/', '?']).unwrap_or(behind.len());
        let (authority, path) = behind.split_at(end);
        let target = match path {
            "" if *method == b"OPTIONS" => "*".to_owned(),
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        (target.into_bytes(), Some(authority.as_bytes().to_vec()), Some(host(authority.as_bytes())?))
    } else {
        return None;
    };

    let framing = match lengths(&fields, minor)? {
        (Some(length), _) => Framing::Length(length),
        (None, true) => Framing::Chunked,
        (None, false) => Framing::None,
    };
    Some(Request { length, method: method.to_vec(), target, absolute, minor, host: asked, host_text, framing, fields })
}

pub(crate) fn response(bytes: &[u8], to_head: bool) -> Option<Response> {
    let (lines, length) = lines(bytes)?;
    let (first, rest) = lines.split_first()?;
    let minor = minor(first.get(..8)?)?;
    let [b' ', a, b, c, reason @ ..] = &first[8..] else {
        return None;
    };
    if ![a, b, c].iter().all(|digit| digit.is_ascii_digit()) || *a == b'0' {
        return None;
    }
    let status = [a, b, c].iter().fold(0, |n, digit| n * 10 + u16::from(**digit - b'0'));
    match reason {
        [] => {}
        [b' ', phrase @ ..] if phrase.iter().all(|&byte| visible(byte)) => {}
        _ => return None,
    }
    let fields = fields(rest)?;
    let framing = match lengths(&fields, minor)? {
        _ if to_head || status < 200 || status == 204 || status == 304 => Framing::None,
        (Some(length), _) => Framing::Length(length),
        (None, true) => Framing::Chunked,
        (None, false) => Framing::UntilClose,
    };
    Some(Response { length, minor, status, reason: reason.to_vec(), framing, fields })
}

/// A host as it is compared, out of a `Host` field or an authority.
pub(crate) fn host(raw: &[u8]) -> Option<Host> {
    let text = std::str::from_utf8(raw).ok()?;
    if !text.is_ascii() {
        return None;
    }
    let (name, port) = if let Some(behind) = text.strip_prefix('[') {
        let (address, port) = behind.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        (format!("[{address}]"), port)
    } else {
        let colon = text.find(':').unwrap_or(text.len());
        let (name, port) = text.split_at(colon);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.len() > 253 || name.split('.').any(|label| label.is_empty() || !label.chars().all(letter)) {
            return None;
        }
        (name, port)
    };
    let port = match port {
        "" | ":" => None,
        port => {
            let digits = port.strip_prefix(':')?;
            if digits.len() > 5 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                return None;
            }
            Some(digits.parse().ok().filter(|&port: &u16| port != 0)?)
        }
    };
    Some(Host { name, port })
}

/// What a chunked body carries, and where it ends.
pub(crate) fn chunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut data = Vec::new();
    let mut at = 0;
    loop {
        let size_line = line(bytes, &mut at)?;
        let semicolon = size_line.iter().position(|&byte| byte == b';').unwrap_or(size_line.len());
        let (digits, extension) = size_line.split_at(semicolon);
        if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        if !extension.iter().all(|&byte| visible(byte)) {
            return None;
        }
        let size = i64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        data.extend_from_slice(bytes.get(at..end)?);
        if bytes.get(end..end.checked_add(2)?)? != b"\r\n" {
            return None;
        }
        at = end + 2;
    }
    loop {
        let trailer = line(bytes, &mut at)?;
        if trailer.is_empty() {
            return Some((data, at));
        }
        let name = dashed(&field(trailer)?.name);
        let framing = ["content-length", "transfer-encoding", "host"].contains(&name.as_str());
        if framing || is_hop(&name) || is_forwarding(&name) {
            return None;
        }
    }
}

/// A name as a backend may read it that knows no character but letters, digits and one more.
pub(crate) fn dashed(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Whether a field of this name (lower case) says who the client is.
pub(crate) fn is_forwarding(name: &str) -> bool {
    name == "forwarded" || name == "x-real-ip" || (name.starts_with("x-forwarded-") && name.len() > 12)
}

/// Whether a field of this name (lower case) is for one hop, whatever `Connection` says.
pub(crate) fn is_hop(name: &str) -> bool {
    ["connection", "keep-alive", "proxy-connection", "te", "upgrade", "http2-settings"].contains(&name)
}

/// The values of all fields of this name, split at commas, in lower case.
pub(crate) fn list(fields: &[Field], name: &str) -> Vec<String> {
    let named = fields.iter().filter(|field| field.name == name);
    let items = named.flat_map(|field| field.value.split(|&byte| byte == b','));
    let items = items.map(|item| String::from_utf8_lossy(item.trim_ascii()).to_ascii_lowercase());
    items.filter(|item| !item.is_empty()).collect()
}

/// All lines up to the empty one, and how many bytes they and it have.
fn lines(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let mut lines = Vec::new();
    let mut at = 0;
    loop {
        match line(bytes, &mut at)? {
            [] => return Some((lines, at)),
            line => lines.push(line),
        }
    }
}

/// One line without its CRLF. No CR and no LF stands anywhere else.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = &bytes[*at..];
    let lf = rest.iter().position(|&byte| byte == b'\n')?;
    let line = rest[..lf].strip_suffix(b"\r")?;
    *at += lf + 1;
    (!line.contains(&b'\r')).then_some(line)
}

fn minor(version: &[u8]) -> Option<u8> {
    match version {
        b"HTTP/1.0" => Some(0),
        b"HTTP/1.1" => Some(1),
        _ => None,
    }
}

fn fields(lines: &[&[u8]]) -> Option<Vec<Field>> {
    lines.iter().map(|line| field(line)).collect()
}

fn field(line: &[u8]) -> Option<Field> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if !token(name) || !value.iter().all(|&byte| visible(byte)) {
        return None;
    }
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    Some(Field {
        name: String::from_utf8(name.to_ascii_lowercase()).ok()?,
        raw_name: name.to_vec(),
        value: value[start..end].to_vec(),
    })
}

/// The one `Content-Length`, or whether there is the one `Transfer-Encoding: chunked`.
fn lengths(fields: &[Field], minor: u8) -> Option<(Option<u64>, bool)> {
    let all = |name: &str| -> Vec<&[u8]> {
        fields.iter().filter(|field| field.name == name).map(|field| field.value.as_slice()).collect()
    };
    match (all("content-length").as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => Some((None, false)),
        ([length], []) => {
            if length.is_empty() || length.len() > 19 || !length.iter().all(u8::is_ascii_digit) {
                return None;
            }
            let length: i64 = std::str::from_utf8(length).ok()?.parse().ok()?;
            Some((Some(length.unsigned_abs()), false))
        }
        ([], [coding]) if minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => Some((None, true)),
        _ => None,
    }
}

fn token(bytes: &[u8]) -> bool {
    let allowed = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    !bytes.is_empty() && bytes.iter().all(|byte| allowed.as_bytes().contains(byte))
}

/// What a field's value may be made of.
fn visible(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
