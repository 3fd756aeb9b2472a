//! The fields that a proxy must know by name, and the lines of a head that it has split.

use std::ops::Deref;

/// What a field means to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: it is forwarded as it is.
    Plain,
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    KeepAlive,
    ProxyConnection,
    Te,
    Upgrade,
    Http2Settings,
    Expect,
    Accept,
    Forwarded,
    XForwardedFor,
    XForwardedProto,
    XForwardedHost,
    /// Other fields that say who the client is.
    OtherForwarding,
    /// Spells one of the above with `_` or `.` for `-`: CGI-style backends can't tell them apart.
    LookAlike,
}

/// Every name that means something, by length: a name's length leaves at most two to compare with.
const NAMES: [(Kind, &[u8]); 16] = [
    (Kind::Te, b"te"),
    (Kind::Host, b"host"),
    (Kind::Expect, b"expect"),
    (Kind::Accept, b"accept"),
    (Kind::Upgrade, b"upgrade"),
    (Kind::OtherForwarding, b"x-real-ip"),
    (Kind::Forwarded, b"forwarded"),
    (Kind::Connection, b"connection"),
    (Kind::KeepAlive, b"keep-alive"),
    (Kind::ContentLength, b"content-length"),
    (Kind::Http2Settings, b"http2-settings"),
    (Kind::XForwardedFor, b"x-forwarded-for"),
    (Kind::ProxyConnection, b"proxy-connection"),
    (Kind::XForwardedHost, b"x-forwarded-host"),
    (Kind::TransferEncoding, b"transfer-encoding"),
    (Kind::XForwardedProto, b"x-forwarded-proto"),
];

/// For each length of a name, where its candidates stand in [`NAMES`].
const BY_LENGTH: [(usize, usize); 18] = {
    let mut ranges = [(0, 0); 18];
    let mut index = 0;
    while index < NAMES.len() {
        let length = NAMES[index].1.len();
        if ranges[length].1 == 0 {
            ranges[length].0 = index;
        }
        ranges[length].1 = index + 1;
        index += 1;
    }
    ranges
};

/// For each length of a name, the letters that its candidates in [`NAMES`] begin with, the first letter in the lowest bit.
const BEGINNINGS: [u32; 18] = {
    let mut letters = [0; 18];
    let mut index = 0;
    while index < NAMES.len() {
        letters[NAMES[index].1.len()] |= 1 << (NAMES[index].1[0] - b'a');
        index += 1;
    }
    letters
};

impl Kind {
    /// What a name means, letter case aside.
    pub(crate) fn of(name: &[u8]) -> Self {
        // A name that means something, or looks as if, begins with a letter, and most others are told by it.
        let letter = name.first().map_or(u8::MAX, |first| first.to_ascii_lowercase().wrapping_sub(b'a'));
        let candidates = BEGINNINGS.get(name.len()).copied().unwrap_or(0) | 1 << (b'x' - b'a');
        if letter < 26 && candidates >> letter & 1 == 1 { Self::compared(name) } else { Self::Plain }
    }

    fn compared(name: &[u8]) -> Self {
        let first = name.first().map_or(0, u8::to_ascii_lowercase);
        let (from, to) = BY_LENGTH.get(name.len()).copied().unwrap_or_default();
        for (kind, spelling) in NAMES[from..to].iter().filter(|(_, spelling)| spelling.first() == Some(&first)) {
            if is_spelt(name, spelling) {
                return *kind;
            }
            if looks_alike(name, spelling) && !matches!(kind, Self::Accept | Self::Expect) {
                return Self::LookAlike;
            }
        }
        match name.split_at_checked(X_FORWARDED.len()) {
            _ if first != b'x' => Self::Plain,
            Some((_, [])) | None => Self::Plain,
            Some((start, _)) if start.eq_ignore_ascii_case(X_FORWARDED) && !has_odd(name) => Self::OtherForwarding,
            Some((start, _)) if looks_alike(start, X_FORWARDED) => Self::LookAlike,
            Some(_) => Self::Plain,
        }
    }
}

/// Some kinds of fields: those that a head has, so that nobody looks through it for what isn't there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds(u32);

impl Kinds {
    pub(crate) const fn of(kinds: &[Kind]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < kinds.len() {
            bits |= 1 << kinds[index] as u32;
            index += 1;
        }
        Self(bits)
    }

    pub(crate) const fn any_of(self, kinds: &[Kind]) -> bool {
        self.0 & Self::of(kinds).0 != 0
    }

    /// Whether there are others than these.
    pub(crate) const fn any_but(self, kinds: &[Kind]) -> bool {
        self.0 & !Self::of(kinds).0 != 0
    }

    fn insert(&mut self, kind: Kind) {
        self.0 |= Self::of(&[kind]).0;
    }
}

/// How the names begin of all other fields that say who the client is: `X-Forwarded-Port`, `X-Forwarded-Prefix`.
const X_FORWARDED: &[u8] = b"x-forwarded-";

/// Whether a name, letter case aside, is `spelling`, which is lower-case and as long. A token has no byte that the bit for
/// lower case would turn into a hyphen or a digit. By words, which overlap: it is done for most fields of a head.
fn is_spelt(name: &[u8], spelling: &[u8]) -> bool {
    let differs = |a: &[u8; 8], b: &[u8; 8]| (u64::from_ne_bytes(*a) | LOWER) ^ u64::from_ne_bytes(*b);
    let words = |bytes: &'_ [u8]| Some((*bytes.first_chunk::<8>()?, *bytes.last_chunk::<8>()?));
    match (words(name), words(spelling)) {
        (Some(name_words), Some(words)) if name.len() <= 16 => {
            differs(&name_words.0, &words.0) | differs(&name_words.1, &words.1) == 0
        }
        _ => name.eq_ignore_ascii_case(spelling),
    }
}

/// In each byte, the bit that makes a letter lower-case.
const LOWER: u64 = 0x2020_2020_2020_2020;

fn looks_alike(name: &[u8], spelling: &[u8]) -> bool {
    let alike = |(&a, &b): (&u8, &u8)| a.eq_ignore_ascii_case(&b) || (b == b'-' && !a.is_ascii_alphanumeric());
    name.iter().zip(spelling).all(alike)
}

fn has_odd(name: &[u8]) -> bool {
    name.iter().any(|&byte| byte != b'-' && !byte.is_ascii_alphanumeric())
}

/// One line of a head, as offsets into the bytes it was read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Where the line, and so its name, begins.
    pub(crate) start: u32,
    pub(crate) name_end: u32,
    pub(crate) value_start: u32,
    /// Where the value ends, white space around it left out.
    pub(crate) value_end: u32,
    /// Behind the line's CRLF.
    pub(crate) end: u32,
    pub(crate) kind: Kind,
    /// The `Connection` field names it, so that it is for this hop only (RFC 9110 section 7.6.1).
    pub(crate) nominated: bool,
}

impl Field {
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..self.name_end as usize]
    }

    pub(crate) fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.value_start as usize..self.value_end as usize]
    }
}

/// The field lines of a head, in order.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    lines: Vec<Field>,
    /// Which kinds there are among them.
    pub(crate) kinds: Kinds,
    /// Where the first begins.
    pub(crate) start: usize,
}

impl Deref for Fields {
    type Target = [Field];

    fn deref(&self) -> &[Field] {
        &self.lines
    }
}

impl Fields {
    /// Takes the lines that httparse has found in `head` (which ends with its empty line). `None` when one does not end
    /// with CRLF: httparse takes a bare LF, and the next reader may not.
    pub(crate) fn assign(&mut self, head: &[u8], parsed: &[httparse::Header<'_>]) -> Option<()> {
        self.lines.clear();
        self.kinds = Kinds::default();
        let base = head.as_ptr() as usize;
        let last = u32::try_from(head.len().checked_sub(2)?).ok()?;
        let mut whole = head.ends_with(b"\r\n");
        self.start = last as usize;
        for header in parsed {
            let start = offset(header.name.as_ptr() as usize, base)?;
            whole &= head[..start as usize].ends_with(b"\r\n");
            match self.lines.last_mut() {
                Some(before) => before.end = start,
                None => self.start = start as usize,
            }
            let value_start = if header.value.is_empty() { 0 } else { offset(header.value.as_ptr() as usize, base)? };
            let kind = Kind::of(header.name.as_bytes());
            self.kinds.insert(kind);
            self.lines.push(Field {
                start,
                name_end: start + u32::try_from(header.name.len()).ok()?,
                value_start,
                value_end: value_start + u32::try_from(header.value.len()).ok()?,
                end: last,
                kind,
                nominated: false,
            });
        }
        whole &= head[..last as usize].ends_with(b"\r\n");
        whole.then_some(())
    }

    /// All lines as they came.
    pub(crate) fn bytes<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[self.start..self.last().map_or(self.start, |last| last.end as usize)]
    }
}

fn offset(pointer: usize, base: usize) -> Option<u32> {
    u32::try_from(pointer.checked_sub(base)?).ok()
}

/// The members of a comma-separated list, white space and empty ones left out (RFC 9110 section 5.6.1).
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(|item| item.trim_ascii()).filter(|item| !item.is_empty())
}

/// What the `Connection` fields say (RFC 9110 section 7.6.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
}

/// More names than this in `Connection` fields are an attack on the loop that looks for them.
const MOST_NOMINATED: usize = 64;

/// Reads the `Connection` fields and marks the fields that they name. Never those that frame or address the message:
/// taking them away would turn it into another one. `None` when too many are named.
pub(crate) fn connection(bytes: &[u8], fields: &mut Fields) -> Option<Connection> {
    let mut connection = Connection::default();
    if !fields.kinds.any_of(&[Kind::Connection]) {
        return Some(connection);
    }
    let fields = &mut fields.lines;
    let mut nominated = 0;
    for index in 0..fields.len() {
        if fields[index].kind != Kind::Connection {
            continue;
        }
        let value = fields[index].value(bytes);
        for option in list(value) {
            match option {
                o if o.eq_ignore_ascii_case(b"close") => connection.close = true,
                o if o.eq_ignore_ascii_case(b"keep-alive") => connection.keep_alive = true,
                o if o.eq_ignore_ascii_case(b"upgrade") => connection.upgrade = true,
                name => {
                    nominated += 1;
                    if nominated > MOST_NOMINATED {
                        return None;
                    }
                    for field in fields.iter_mut() {
                        let protected = matches!(
                            field.kind,
                            Kind::Host | Kind::ContentLength | Kind::TransferEncoding | Kind::Connection
                        );
                        field.nominated |= !protected && field.name(bytes).eq_ignore_ascii_case(name);
                    }
                }
            }
        }
    }
    Some(connection)
}

/// The `Content-Length` and `Transfer-Encoding` of a head, where they can be read in one way only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lengths {
    pub(crate) length: Option<u64>,
    pub(crate) chunked: bool,
}

/// Reads the fields that say where the body ends (RFC 9112 section 6).
pub(crate) fn lengths(bytes: &[u8], fields: &Fields) -> Result<Lengths, &'static str> {
    let mut lengths = Lengths::default();
    if !fields.kinds.any_of(&[Kind::ContentLength, Kind::TransferEncoding]) {
        return Ok(lengths);
    }
    for field in fields.iter() {
        match field.kind {
            Kind::ContentLength if lengths.length.is_some() => return Err("Content-Length is repeated"),
            Kind::ContentLength => {
                let length = content_length(field.value(bytes));
                lengths.length = Some(length.ok_or("Content-Length is not a number of at most 19 digits")?);
            }
            Kind::TransferEncoding if lengths.chunked => return Err("Transfer-Encoding is repeated"),
            Kind::TransferEncoding if field.value(bytes).eq_ignore_ascii_case(b"chunked") => lengths.chunked = true,
            Kind::TransferEncoding => return Err("Transfer-Encoding is not exactly `chunked`"),
            _ => {}
        }
    }
    if lengths.chunked && lengths.length.is_some() {
        return Err("both Content-Length and Transfer-Encoding");
    }
    Ok(lengths)
}

/// A length that fits into 63 bits.
fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length = value.iter().fold(0_u64, |n, digit| n * 10 + u64::from(digit - b'0'));
    (length >> 63 == 0).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_in_any_letter_case_and_look_alikes_found_out() {
        for (name, kind) in [
            ("Host", Kind::Host),
            ("hOST", Kind::Host),
            ("TE", Kind::Te),
            ("content-LENGTH", Kind::ContentLength),
            ("Content_Length", Kind::LookAlike),
            ("TRANSFER_ENCODING", Kind::LookAlike),
            ("X_Forwarded-For", Kind::LookAlike),
            ("x_real_ip", Kind::LookAlike),
            ("X-Forwarded-Port", Kind::OtherForwarding),
            ("X-Forwarded-Host", Kind::XForwardedHost),
            ("X-Forwarded-Post", Kind::OtherForwarding),
            ("X-Forwarded-Server", Kind::OtherForwarding),
            ("X.Forwarded.Server", Kind::LookAlike),
            ("X-Forwarded-Ssl_On", Kind::LookAlike),
            ("X-Forwarded-", Kind::Plain),
            ("X-Forwarder", Kind::Plain),
            ("Content.Length", Kind::LookAlike),
            ("X~Real~IP", Kind::LookAlike),
            ("X_Under_Score", Kind::Plain),
            ("", Kind::Plain),
        ] {
            assert_eq!(Kind::of(name.as_bytes()), kind, "{name}");
        }
        for (kind, name) in NAMES {
            assert_eq!(Kind::of(name), kind);
        }
    }

    #[test]
    fn content_length_is_digits_only() {
        assert_eq!(content_length(b"0005"), Some(5));
        assert_eq!(content_length(b"9223372036854775807"), Some(i64::MAX as u64));
        for bad in ["", "+5", "-5", "0x5", "5 5", "5,5", "5;5", "9223372036854775808", "00000000000000000005"] {
            assert_eq!(content_length(bad.as_bytes()), None, "{bad}");
        }
    }
}
