//! A response's head: what it says of the body behind it and of the connection it came on.

use std::mem::MaybeUninit;

use crate::http::body::Framing;
use crate::http::field::{self, Field, Fields, Kind};
use crate::http::head::{self, Parsed};
use crate::http::refuse::Refusal;
use crate::settings::{Limits, MOST_FIELDS};

/// A response's head as offsets. The value is used again for the next response.
#[derive(Debug, Default)]
pub(crate) struct ResponseHead {
    /// Of the whole head, with its empty line.
    pub(crate) length: usize,
    pub(crate) fields: Fields,
    pub(crate) minor: u8,
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    /// The backend lets its connection go on, as far as the head says.
    pub(crate) keep_alive: bool,
    /// The `Connection` field allows an `Upgrade` one.
    pub(crate) upgrade: bool,
    /// For how many seconds the backend says that it keeps the connection (`Keep-Alive: timeout=`).
    pub(crate) kept_for: Option<u32>,
}

impl ResponseHead {
    /// Reads a head at the front of `bytes`; `to_head` says that the request was a HEAD.
    pub(crate) fn parse(&mut self, bytes: &[u8], to_head: bool, limits: &Limits) -> Result<Parsed, Refusal> {
        let mut storage = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let room = &mut storage[..limits.fields.min(MOST_FIELDS)];
        let config = httparse::ParserConfig::default();
        let length = match config.parse_response_with_uninit_headers(&mut response, bytes, room) {
            Ok(httparse::Status::Complete(length)) if length <= limits.response_head => length,
            Ok(httparse::Status::Partial) if bytes.len() < limits.response_head => return Ok(Parsed::Partial),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::BackendHeadTooLarge),
            Err(httparse::Error::Token) => {
                return Err(Refusal::BackendGarbled("the site's server did not speak HTTP/1"));
            }
            Err(error) => return Err(Refusal::BackendGarbled(garbled(error))),
        };
        let head = &bytes[..length];
        let bare = Refusal::BackendGarbled("the site's server sent a line that does not end with CR LF");
        self.fields.assign(head, response.headers).ok_or(bare)?;
        let (Some(status), Some(minor)) = (response.code, response.version) else {
            return Err(Refusal::BackendGarbled("the site's server sent a malformed status line"));
        };
        if !head.starts_with(b"HTTP/") || status < 100 {
            return Err(Refusal::BackendGarbled("the site's server sent a malformed status line"));
        }
        (self.length, self.status, self.minor) = (length, status, minor);
        self.judge(head, to_head)?;
        Ok(Parsed::Whole)
    }

    fn judge(&mut self, head: &[u8], to_head: bool) -> Result<(), Refusal> {
        let too_many = Refusal::BackendGarbled("the site's server sent a Connection field that names too many fields");
        let connection = field::connection(head, &mut self.fields).ok_or(too_many)?;
        let lengths = field::lengths(head, &self.fields).map_err(|_| {
            Refusal::BackendGarbled("the site's server sent an ambiguous Content-Length or Transfer-Encoding")
        })?;
        if lengths.chunked && self.minor == 0 {
            return Err(Refusal::BackendGarbled("the site's server sent Transfer-Encoding in HTTP/1.0"));
        }
        self.framing = match lengths.length {
            // RFC 9112 section 6.3: these end with their head, whatever it says.
            _ if to_head || self.status < 200 || matches!(self.status, 204 | 304) => Framing::None,
            Some(length) => Framing::Length(length),
            None if lengths.chunked => Framing::Chunked,
            None => Framing::UntilClose,
        };
        self.keep_alive =
            !connection.close && (self.minor == 1 || connection.keep_alive) && self.framing != Framing::UntilClose;
        self.kept_for = self.kept_for(head);
        self.upgrade = connection.upgrade && self.fields.kinds.any_of(&[Kind::Upgrade]);
        Ok(())
    }

    /// What it says to a WebSocket's key (RFC 6455 section 4.2.2); `bytes` are those it was read from.
    pub(crate) fn websocket_accept<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let named = |field: &&Field| field.name(bytes).eq_ignore_ascii_case(b"sec-websocket-accept");
        self.fields.iter().find(named).map(|field| field.value(bytes))
    }

    fn kept_for(&self, head: &[u8]) -> Option<u32> {
        if !self.fields.kinds.any_of(&[Kind::KeepAlive]) {
            return None;
        }
        let said = self.fields.iter().filter(|field| field.kind == Kind::KeepAlive);
        let mut parameters = said.flat_map(|field| field::list(field.value(head)));
        let timeout = parameters.find_map(|parameter| {
            let (name, value) = parameter.split_at_checked(b"timeout=".len())?;
            name.eq_ignore_ascii_case(b"timeout=").then_some(value)
        })?;
        str::from_utf8(timeout).ok()?.trim().parse().ok()
    }

    /// 1xx but for the switch of protocols: more is to come (RFC 9110 section 15.2).
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

fn garbled(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "the site's server sent a malformed field name",
        httparse::Error::HeaderValue => "the site's server sent a field value with a control byte",
        httparse::Error::NewLine => "the site's server sent a line that does not end with CR LF",
        httparse::Error::Status => "the site's server sent a malformed status",
        httparse::Error::Version => "the site's server did not answer in HTTP/1",
        other => head::why(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], to_head: bool) -> Result<ResponseHead, Refusal> {
        let mut head = ResponseHead::default();
        match head.parse(bytes, to_head, &Limits::default()) {
            Ok(Parsed::Whole) => Ok(head),
            Ok(Parsed::Partial) => panic!("partial: {}", bytes.escape_ascii()),
            Err(refusal) => Err(refusal),
        }
    }

    #[test]
    fn the_framing_follows_from_status_method_and_fields() {
        for (head, framing, keep_alive) in [
            ("200 OK\r\nContent-Length: 5\r\n", Framing::Length(5), true),
            ("200 \r\nTransfer-Encoding: chunked\r\n", Framing::Chunked, true),
            ("200\r\nContent-Length: 0\r\n", Framing::Length(0), true),
            ("200 OK\r\n", Framing::UntilClose, false),
            ("204 No Content\r\nContent-Length: 5\r\n", Framing::None, true),
            ("304 Not Modified\r\nContent-Length: 5\r\n", Framing::None, true),
            ("100 Continue\r\n", Framing::None, true),
            ("200 OK\r\nConnection: close\r\nContent-Length: 5\r\n", Framing::Length(5), false),
        ] {
            let parsed = parse(format!("HTTP/1.1 {head}\r\n").as_bytes(), false).unwrap();
            assert_eq!((parsed.framing, parsed.keep_alive), (framing, keep_alive), "{head}");
        }
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true).unwrap().framing, Framing::None);
        let old = parse(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", false).unwrap();
        assert!(!old.keep_alive, "HTTP/1.0 closes unless it says keep-alive");
    }

    #[test]
    fn how_long_a_backend_keeps_its_connection_is_what_it_says() {
        for (said, seconds) in [
            ("timeout=5", Some(5)),
            ("max=1000, Timeout=72", Some(72)),
            ("timeout=5, timeout=6", Some(5)),
            ("timeout", None),
            ("timeout=-1", None),
            ("timeout=99999999999", None),
            ("xtimeout=5", None),
            ("max=5", None),
        ] {
            let head = format!("HTTP/1.1 204 X\r\nKeep-Alive: {said}\r\n\r\n");
            assert_eq!(parse(head.as_bytes(), false).unwrap().kept_for, seconds, "{said}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_not_passed_on() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-A : v\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX-A: a\rX-B: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\njunk\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 2\n\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HELLO WORLD\r\n\r\n",
            "<html>hi</html>",
        ] {
            assert!(matches!(parse(head.as_bytes(), false), Err(Refusal::BackendGarbled(_))), "{head:?}");
        }
    }
}
