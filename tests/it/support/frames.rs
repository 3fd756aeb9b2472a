//! A client that speaks HTTP/2 as wrongly as it is told to: frames, byte by byte (RFC 9113 section 4).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::PATIENCE;

/// What every connection begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const WITH_PRIORITY: u8 = 32;

/// A frame that came.
#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// What a server does about something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// A response with this status.
    Answer(u32, u16),
    /// The stream is reset, with this error code.
    Reset(u32, u32),
    /// The connection ends, with this error code.
    Goaway(u32),
    /// The connection ends without a word.
    Closed,
}

/// A raw connection on which the preface and settings have been exchanged.
pub struct Frames {
    stream: TcpStream,
    unread: Vec<u8>,
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mut bytes = u32::try_from(payload.len()).expect("length").to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Fields as literals without indexing, in plain text (RFC 7541 section 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            integer(&mut bytes, 0, 7, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// A number with a prefix of so many bits (RFC 7541 section 5.1).
pub fn integer(bytes: &mut Vec<u8>, first: u8, bits: u32, number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        bytes.push(first | number as u8);
        return;
    }
    bytes.push(first | most as u8);
    let mut rest = number - most;
    while rest >= 128 {
        bytes.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    bytes.push(rest as u8);
}

/// The fields of a GET for a path of `a.test`.
pub fn get(path: &str) -> Vec<u8> {
    with("GET", path, &[])
}

/// The fields of a request for a path of `a.test`, and more of them.
pub fn with(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = vec![(":method", method), (":scheme", "http"), (":path", path), (":authority", "a.test")];
    fields.extend_from_slice(more);
    block(&fields)
}

/// A request that ends with its head.
pub fn request(stream: u32, block: impl AsRef<[u8]>) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

/// A request whose body is due.
pub fn open(stream: u32, block: impl AsRef<[u8]>) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, block)
}

/// Settings.
pub fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        settings.iter().flat_map(|(name, value)| name.to_be_bytes().into_iter().chain(value.to_be_bytes())).collect();
    frame(SETTINGS, 0, 0, payload)
}

impl Frames {
    /// Connects, and says nothing.
    pub fn silent(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        Self { stream, unread: Vec::new() }
    }

    /// Connects, and exchanges settings.
    pub fn connect(address: SocketAddr) -> Self {
        let mut frames = Self::silent(address);
        frames.send([PREFACE, &settings(&[])].concat());
        let first = frames.next().expect("the server's settings");
        assert_eq!((first.kind, first.flags), (SETTINGS, 0));
        frames.send(frame(SETTINGS, ACK, 0, []));
        frames
    }

    /// Sends; that the other side may have gone is no fault.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends this again and again, so many bytes at most, until the other side takes nothing for a while or has gone.
    /// Reads nothing meanwhile. Gives how much was sent.
    pub fn send_until_full(&mut self, bytes: &[u8], most: usize) -> usize {
        self.stream.set_write_timeout(Some(Duration::from_millis(300))).expect("timeout");
        let mut sent = 0;
        while sent < most {
            match self.stream.write(bytes) {
                Ok(count) if count == bytes.len() => sent += count,
                Ok(count) => {
                    sent += count;
                    break;
                }
                Err(_) => break,
            }
        }
        self.stream.set_write_timeout(Some(PATIENCE)).expect("timeout");
        sent
    }

    /// The next frame; `None` when the connection has ended.
    pub fn next(&mut self) -> Option<Frame> {
        let head = self.exactly(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & (u32::MAX >> 1);
        let payload = self.exactly(length as usize)?;
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.unread.len() < count {
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.unread.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}: nothing came and nothing ended"),
            }
        }
        Some(self.unread.drain(..count).collect())
    }

    /// The next frame of this kind; others are passed over.
    #[track_caller]
    pub fn find(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().unwrap_or_else(|| panic!("the end instead of a frame of kind {kind}"));
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// What the server does about what was sent. Answers to pings and settings are passed over.
    pub fn reaction(&mut self) -> Reaction {
        while let Some(frame) = self.next() {
            let code = |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().expect("four"));
            match frame.kind {
                HEADERS => return Reaction::Answer(frame.stream, status(&frame.payload)),
                RST_STREAM => return Reaction::Reset(frame.stream, code(0)),
                GOAWAY => return Reaction::Goaway(code(4)),
                _ => {}
            }
        }
        Reaction::Closed
    }

    /// Reads to the end: whether that is an end, and not a reset.
    pub fn ends_cleanly(&mut self) -> bool {
        let mut rest = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Whether the server is still there: it answers a ping.
    pub fn is_alive(&mut self) -> bool {
        self.send(frame(PING, 0, 0, b"are you?"));
        while let Some(frame) = self.next() {
            if frame.kind == PING && frame.flags == ACK && frame.payload == b"are you?" {
                return true;
            }
        }
        false
    }
}

/// The status at the front of a block: from the static table (RFC 7541 appendix A), or as three digits, plain or in the
/// Huffman code of digits (appendix B).
fn status(block: &[u8]) -> u16 {
    // The size of the table may be said first.
    let mut block = block;
    while block[0] & 0xe0 == 0x20 {
        let more = if block[0] == 0x3f { block[1..].iter().take_while(|&&byte| byte >= 0x80).count() + 1 } else { 0 };
        block = &block[1 + more..];
    }
    match block[0] {
        indexed @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)],
        _ => {
            let (huffman, length) = (block[1] & 0x80 != 0, usize::from(block[1] & 0x7f));
            let text = &block[2..2 + length];
            if huffman { digits(text) } else { std::str::from_utf8(text).expect("text").parse().expect("status") }
        }
    }
}

fn digits(code: &[u8]) -> u16 {
    let bits: Vec<u16> = code.iter().flat_map(|byte| (0..8).rev().map(move |bit| u16::from(byte >> bit & 1))).collect();
    let number = |bits: &[u16]| bits.iter().fold(0, |number, bit| number << 1 | bit);
    let (mut at, mut status) = (0, 0);
    for _ in 0..3 {
        // 0, 1 and 2 have five bits, the others six.
        let short = number(&bits[at..at + 5]);
        let (digit, length) = if short < 3 { (short, 5) } else { (number(&bits[at..at + 6]) - 0x19 + 3, 6) };
        status = status * 10 + digit;
        at += length;
    }
    status
}
