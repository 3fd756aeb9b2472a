//! One end of a raw connection, and HTTP/1 as the tests read it.
//!
//! The reader is written from RFC 9112 alone, shares nothing with the program, and takes nothing that could be read in
//! two ways: whatever the program sends to either side has to get past it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::{PATIENCE, shown};

/// How the other side ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order: everything that was sent has been read.
    Fin,
    /// Torn down.
    Reset,
}

/// Why something could not be read.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The other side ended before it was whole.
    Ended(End),
    /// It did not come in time.
    Late,
    /// What came is not HTTP/1 as the RFC has it.
    Wrong(String),
}

/// A request or a response.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The first line without its line end.
    pub start: String,
    /// Names and values in order, each byte as one char, values trimmed.
    pub fields: Vec<(String, String)>,
    /// The head's bytes, blank line included.
    pub raw: Vec<u8>,
    pub body: Vec<u8>,
    /// The sizes of its chunks, where it had any.
    pub chunks: Vec<usize>,
    pub trailers: Vec<(String, String)>,
    /// Interim responses that came before it.
    pub interim: Vec<Message>,
    /// Whether its body was delimited by the end of the connection.
    pub until_end: bool,
    /// The whole message was there.
    pub whole: bool,
}

impl Message {
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or("")
    }

    pub fn target(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or("")
    }

    /// The values of every field of this name, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    /// The value of the one field of this name; two of them fail the test.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} came {} times: {all:?}", all.len());
        all.first().copied()
    }

    pub fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }

    /// The elements of a list field, over all its lines, in lower case.
    pub fn list(&self, name: &str) -> Vec<String> {
        self.all(name)
            .iter()
            .flat_map(|value| value.split(','))
            .map(|element| element.trim().to_ascii_lowercase())
            .filter(|element| !element.is_empty())
            .collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The reason code of an answer of carom's own.
    pub fn error(&self) -> Option<&str> {
        self.field("carom-error").map(|value| value.split([' ', ';']).next().unwrap_or(""))
    }

    fn reader(&self) -> Result<Framing, Fault> {
        let lengths = self.all("content-length");
        let codings = self.all("transfer-encoding");
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Ok(Framing::Unsaid),
            ([length], []) if !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) => {
                length.parse().map(Framing::Length).map_err(|_| wrong("a length that is no number", length))
            }
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
            _ => Err(wrong("framing that can be read in two ways", &format!("{lengths:?} {codings:?}"))),
        }
    }
}

enum Framing {
    Length(usize),
    Chunked,
    Unsaid,
}

/// A TCP or unix connection with what has been read from it and not yet been used.
pub struct Wire {
    stream: Stream,
    unused: Vec<u8>,
    used: usize,
    end: Option<End>,
    patience: Duration,
    tap: Option<Tap>,
}

/// Is shown every byte that arrives.
type Tap = Box<dyn FnMut(&[u8]) + Send>;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, TcpStream>>),
    TlsServer(Box<rustls::StreamOwned<rustls::ServerConnection, TcpStream>>),
}

impl Wire {
    pub fn tcp(stream: TcpStream) -> Self {
        stream.set_nodelay(true).ok();
        Self::new(Stream::Tcp(stream))
    }

    pub fn unix(stream: UnixStream) -> Self {
        Self::new(Stream::Unix(stream))
    }

    pub fn tls(stream: rustls::StreamOwned<rustls::ClientConnection, TcpStream>) -> Self {
        stream.sock.set_nodelay(true).ok();
        Self::new(Stream::Tls(Box::new(stream)))
    }

    pub fn tls_server(stream: rustls::StreamOwned<rustls::ServerConnection, TcpStream>) -> Self {
        stream.sock.set_nodelay(true).ok();
        Self::new(Stream::TlsServer(Box::new(stream)))
    }

    /// What TLS has agreed on.
    #[track_caller]
    pub fn session(&self) -> &rustls::ClientConnection {
        match &self.stream {
            Stream::Tls(stream) => &stream.conn,
            Stream::Tcp(_) | Stream::Unix(_) | Stream::TlsServer(_) => panic!("it is no client's TLS"),
        }
    }

    fn new(stream: Stream) -> Self {
        let wire = Self { stream, unused: Vec::new(), used: 0, end: None, patience: PATIENCE, tap: None };
        wire.set_write_timeout();
        wire
    }

    fn set_write_timeout(&self) {
        match &self.stream {
            Stream::Tcp(s) => s.set_write_timeout(Some(PATIENCE)),
            Stream::Tls(s) => s.sock.set_write_timeout(Some(PATIENCE)),
            Stream::TlsServer(s) => s.sock.set_write_timeout(Some(PATIENCE)),
            Stream::Unix(s) => s.set_write_timeout(Some(PATIENCE)),
        }
        .ok();
    }

    /// The same connection once more, with nothing of what has been read.
    pub fn second_hand(&self) -> Self {
        match &self.stream {
            Stream::Tcp(stream) => Self::tcp(stream.try_clone().expect("clone")),
            Stream::Unix(stream) => Self::unix(stream.try_clone().expect("clone")),
            Stream::Tls(_) | Stream::TlsServer(_) => panic!("TLS has one reader and one writer"),
        }
    }

    /// How long each read may take in all.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Shows every byte that arrives to somebody.
    pub fn set_tap(&mut self, tap: impl FnMut(&[u8]) + Send + 'static) {
        self.tap = Some(Box::new(tap));
    }

    /// Sends all of it; `false` when the other side has gone.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        match &mut self.stream {
            Stream::Tcp(s) => s.write_all(bytes),
            Stream::Unix(s) => s.write_all(bytes),
            Stream::Tls(s) => s.write_all(bytes),
            Stream::TlsServer(s) => s.write_all(bytes),
        }
        .is_ok()
    }

    /// Sends bytes below TLS; `false` when the other side has gone.
    pub fn send_below(&mut self, bytes: &[u8]) -> bool {
        match &mut self.stream {
            Stream::Tls(s) => s.sock.write_all(bytes).is_ok(),
            _ => panic!("it is not TLS of a client"),
        }
    }

    /// Says that nothing more will be sent.
    pub fn half_close(&mut self) {
        match &mut self.stream {
            Stream::Tcp(s) => s.shutdown(Shutdown::Write),
            Stream::Unix(s) => s.shutdown(Shutdown::Write),
            Stream::Tls(s) => {
                s.conn.send_close_notify();
                s.flush().and_then(|()| s.sock.shutdown(Shutdown::Write))
            }
            Stream::TlsServer(s) => {
                s.conn.send_close_notify();
                s.flush().and_then(|()| s.sock.shutdown(Shutdown::Write))
            }
        }
        .ok();
    }

    /// Makes the drop of this wire a reset instead of an orderly end.
    pub fn reset_on_drop(&mut self) {
        match &self.stream {
            Stream::Tcp(s) => socket2::SockRef::from(s).set_linger(Some(Duration::ZERO)).expect("linger"),
            Stream::Tls(s) => socket2::SockRef::from(&s.sock).set_linger(Some(Duration::ZERO)).expect("linger"),
            Stream::TlsServer(s) => socket2::SockRef::from(&s.sock).set_linger(Some(Duration::ZERO)).expect("linger"),
            Stream::Unix(_) => panic!("a unix socket has no reset"),
        }
    }

    /// What has arrived and not been used.
    fn rest(&self) -> &[u8] {
        &self.unused[self.used..]
    }

    fn use_up(&mut self, count: usize) -> Vec<u8> {
        let taken = self.unused[self.used..self.used + count].to_vec();
        self.used += count;
        if self.used == self.unused.len() {
            self.unused.clear();
            self.used = 0;
        } else if self.used > 1 << 20 {
            self.unused.drain(..self.used);
            self.used = 0;
        }
        taken
    }

    /// Waits for at least one more byte.
    fn more(&mut self, deadline: Instant) -> Result<(), Fault> {
        if let Some(end) = self.end {
            return Err(Fault::Ended(end));
        }
        let mut buffer = [0_u8; 64 * 1024];
        loop {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return Err(Fault::Late);
            };
            let read = match &mut self.stream {
                Stream::Tcp(s) => s.set_read_timeout(Some(left)).and_then(|()| s.read(&mut buffer)),
                Stream::Unix(s) => s.set_read_timeout(Some(left)).and_then(|()| s.read(&mut buffer)),
                // An end that is not announced is an error here, and so a reset.
                Stream::Tls(s) => s.sock.set_read_timeout(Some(left)).and_then(|()| s.read(&mut buffer)),
                Stream::TlsServer(s) => s.sock.set_read_timeout(Some(left)).and_then(|()| s.read(&mut buffer)),
            };
            match read {
                Ok(0) => self.end = Some(End::Fin),
                Ok(count) => {
                    if let Some(tap) = &mut self.tap {
                        tap(&buffer[..count]);
                    }
                    self.unused.extend_from_slice(&buffer[..count]);
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(Fault::Late),
                Err(_) => self.end = Some(End::Reset),
            }
            return Err(Fault::Ended(self.end.unwrap_or(End::Reset)));
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Whatever comes next, at least a byte.
    pub fn some(&mut self) -> Result<Vec<u8>, Fault> {
        let deadline = self.deadline();
        if self.rest().is_empty() {
            self.more(deadline)?;
        }
        Ok(self.use_up(self.rest().len()))
    }

    /// Exactly so many bytes.
    pub fn exactly(&mut self, count: usize) -> Result<Vec<u8>, Fault> {
        let deadline = self.deadline();
        while self.rest().len() < count {
            self.more(deadline)?;
        }
        Ok(self.use_up(count))
    }

    /// Everything until the other side ends, and how it ended.
    pub fn until_end(&mut self) -> Result<(Vec<u8>, End), Fault> {
        let deadline = self.deadline();
        loop {
            match self.more(deadline) {
                Ok(()) => {}
                Err(Fault::Ended(end)) => return Ok((self.use_up(self.rest().len()), end)),
                Err(other) => return Err(other),
            }
        }
    }

    /// Reads and forgets until the other side ends.
    pub fn drain(&mut self) -> Result<End, Fault> {
        loop {
            let deadline = self.deadline();
            self.use_up(self.rest().len());
            match self.more(deadline) {
                Ok(()) => {}
                Err(Fault::Ended(end)) => return Ok(end),
                Err(other) => return Err(other),
            }
        }
    }

    /// One line of a head, a chunk or a trailer: CR LF and no other control byte.
    fn line(&mut self, deadline: Instant, raw: &mut Vec<u8>) -> Result<String, Fault> {
        let length = loop {
            match self.rest().iter().position(|&b| b == b'\n') {
                Some(at) => break at + 1,
                None => self.more(deadline)?,
            }
        };
        let bytes = self.use_up(length);
        raw.extend_from_slice(&bytes);
        let Some(line) = bytes.strip_suffix(b"\r\n") else {
            return Err(wrong("a line that ends with LF alone", &shown(&bytes)));
        };
        match line.iter().find(|&&b| (b < b' ' && b != b'\t') || b == 0x7f) {
            Some(_) => Err(wrong("a control byte in a line", &shown(line))),
            None => Ok(line.iter().map(|&b| char::from(b)).collect()),
        }
    }

    fn fields(&mut self, deadline: Instant, raw: &mut Vec<u8>) -> Result<Vec<(String, String)>, Fault> {
        let mut fields = Vec::new();
        loop {
            let line = self.line(deadline, raw)?;
            if line.is_empty() {
                return Ok(fields);
            }
            let Some((name, value)) = line.split_once(':') else {
                return Err(wrong("a field without a colon", &line));
            };
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(wrong("a field name that is no token", &line));
            }
            fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
    }

    /// A head alone: the caller knows whether it is a request's or a response's.
    fn head(&mut self, is_start: fn(&str) -> bool) -> Result<Message, Fault> {
        let deadline = self.deadline();
        let mut raw = Vec::new();
        let start = self.line(deadline, &mut raw)?;
        if !is_start(&start) {
            return Err(wrong("a first line that is none", &start));
        }
        let fields = self.fields(deadline, &mut raw)?;
        Ok(Message { start, fields, raw, ..Message::default() })
    }

    pub fn request_head(&mut self) -> Result<Message, Fault> {
        self.head(is_request_line)
    }

    /// The body of a request whose head has been read. What came of a body that breaks off is kept.
    pub fn request_body(&mut self, message: &mut Message) -> Result<(), Fault> {
        match message.reader()? {
            Framing::Unsaid => {}
            Framing::Length(length) => self.body_of(length, message)?,
            Framing::Chunked => self.chunked(message)?,
        }
        message.whole = true;
        Ok(())
    }

    /// The head of a response, with the interim ones before it. A 101 is final.
    pub fn response_head(&mut self) -> Result<Message, Fault> {
        let mut interim = Vec::new();
        loop {
            let head = self.head(is_status_line)?;
            if (100..200).contains(&head.status()) && head.status() != 101 {
                interim.push(head);
            } else {
                return Ok(Message { interim, ..head });
            }
        }
    }

    /// The body of a response to a request of this method. What came of a body that breaks off is kept.
    pub fn response_body(&mut self, method: &str, message: &mut Message) -> Result<(), Fault> {
        let framing = message.reader()?;
        match (message.status(), framing) {
            (101 | 204 | 304, _) => {}
            _ if method == "HEAD" => {}
            (_, Framing::Length(length)) => self.body_of(length, message)?,
            (_, Framing::Chunked) => self.chunked(message)?,
            (_, Framing::Unsaid) => {
                message.until_end = true;
                match self.until_end()? {
                    (body, End::Fin) => message.body = body,
                    (body, End::Reset) => {
                        message.body = body;
                        return Err(Fault::Ended(End::Reset));
                    }
                }
            }
        }
        message.whole = true;
        Ok(())
    }

    fn body_of(&mut self, length: usize, message: &mut Message) -> Result<(), Fault> {
        while message.body.len() < length {
            if self.rest().is_empty() {
                // As long as something moves it is not late.
                self.more(self.deadline())?;
            }
            let count = self.rest().len().min(length - message.body.len());
            message.body.extend(self.use_up(count));
        }
        Ok(())
    }

    fn chunked(&mut self, message: &mut Message) -> Result<(), Fault> {
        loop {
            let mut raw = Vec::new();
            let line = self.line(self.deadline(), &mut raw)?;
            let size = line.split(';').next().unwrap_or("");
            if size.is_empty() || size.len() > 16 || !size.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong("a chunk size that is none", &line));
            }
            let size = usize::from_str_radix(size, 16).map_err(|_| wrong("a chunk size", &line))?;
            if size == 0 {
                message.trailers = self.fields(self.deadline(), &mut raw)?;
                return Ok(());
            }
            let whole = message.body.len() + size;
            self.body_of(whole, message)?;
            message.chunks.push(size);
            if self.exactly(2)? != b"\r\n" {
                return Err(wrong("a chunk that does not end where it says", &line));
            }
        }
    }
}

fn wrong(what: &str, where_: &str) -> Fault {
    Fault::Wrong(format!("{what}: {where_}"))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_request_line(line: &str) -> bool {
    let parts: Vec<_> = line.split(' ').collect();
    let [method, target, version] = parts.as_slice() else { return false };
    !method.is_empty()
        && method.bytes().all(is_token)
        && !target.is_empty()
        && target.chars().all(|c| c > ' ' && c != '#')
        && ["HTTP/1.1", "HTTP/1.0"].contains(version)
}

fn is_status_line(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("HTTP/1.1 ") else { return false };
    let code = rest.split(' ').next().unwrap_or("");
    code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit()) && rest.as_bytes().get(3).is_none_or(|&b| b == b' ')
}
