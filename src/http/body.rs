//! Where a body ends: by its length, by its chunks, or by the end of the connection (RFC 9112 section 6.3).
//!
//! A [`Body`] looks at bytes and says how many of them are this body's; it keeps none. Chunked framing is checked to
//! the letter, since the bytes are forwarded as received and the next reader must find the same borders.

use std::fmt;

use crate::http::field::Kind;
use crate::settings::Limits;

/// How a message's body is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    #[default]
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks and trailers (RFC 9112 section 7.1).
    Chunked,
    /// All bytes until the connection ends. Responses only.
    UntilClose,
}

/// What limits a chunked body's overhead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkLimits {
    /// Bytes of one size line, extensions included.
    pub(crate) line: usize,
    /// Bytes of all trailers.
    pub(crate) trailers: usize,
    /// Bytes of all chunks' data together; `None` for any.
    pub(crate) content: Option<u64>,
}

impl ChunkLimits {
    /// What holds for a response.
    pub(crate) fn of_response(limits: &Limits) -> Self {
        Self { line: limits.chunk_line, trailers: limits.response_head, content: None }
    }
}

/// Why bytes are no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBody(pub(crate) &'static str);

impl BadBody {
    /// It is well-formed, and more than [`ChunkLimits::content`].
    pub(crate) const TOO_LARGE: Self = Self("the body is larger than allowed");
}

/// A body that is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Body {
    /// All of it has been seen.
    #[default]
    Done,
    /// So many bytes are still due.
    Length(u64),
    /// Somewhere among the chunks.
    Chunked(Chunked),
    /// Until the connection ends.
    UntilClose,
}

impl Body {
    /// A body of which nothing has been seen.
    pub(crate) fn new(framing: Framing, limits: ChunkLimits) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunked::new(limits)),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// Whether all of it has been seen.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// How many bytes of `bytes` are this body's. Fewer than all only when the body ends among them.
    ///
    /// # Errors
    /// Chunked framing that is broken or over a limit. Nothing of `bytes` is then to be forwarded.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<usize, BadBody> {
        match self {
            Self::Done => Ok(0),
            Self::UntilClose => Ok(bytes.len()),
            Self::Length(left) => {
                let taken = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::Done;
                }
                Ok(taken)
            }
            Self::Chunked(chunked) => {
                let taken = chunked.take(bytes, &mut |_| {})?;
                if chunked.is_done() {
                    *self = Self::Done;
                }
                Ok(taken)
            }
        }
    }

    /// Like [`Body::take`], with what a chunked body carries appended to `data`: for a reader that knows no chunks.
    ///
    /// # Errors
    /// As [`Body::take`].
    pub(crate) fn decode(&mut self, bytes: &[u8], data: &mut Vec<u8>) -> Result<usize, BadBody> {
        match self {
            Self::Chunked(chunked) => {
                let taken = chunked.take(bytes, &mut |piece| {
                    if let Piece::Data(piece) = piece {
                        data.extend_from_slice(piece);
                    }
                })?;
                if chunked.is_done() {
                    *self = Self::Done;
                }
                Ok(taken)
            }
            _ => {
                let taken = self.take(bytes)?;
                data.extend_from_slice(&bytes[..taken]);
                Ok(taken)
            }
        }
    }

    /// Like [`Body::decode`], with the trailers' lines appended to `trailers`: for a reader that has another form for
    /// them.
    ///
    /// # Errors
    /// As [`Body::take`].
    pub(crate) fn decode_all(
        &mut self,
        bytes: &[u8],
        data: &mut Vec<u8>,
        trailers: &mut Vec<u8>,
    ) -> Result<usize, BadBody> {
        let Self::Chunked(chunked) = self else {
            return self.decode(bytes, data);
        };
        let taken = chunked.take(bytes, &mut |piece| match piece {
            Piece::Data(piece) => data.extend_from_slice(piece),
            Piece::Trailer(byte) => trailers.push(byte),
        })?;
        if chunked.is_done() {
            *self = Self::Done;
        }
        Ok(taken)
    }

    /// The connection has ended. Whether this body may end there.
    pub(crate) fn may_end_here(&self) -> bool {
        matches!(self, Self::Done | Self::UntilClose)
    }

    /// How many bytes are still due, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Self::Done => Some(0),
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }
}

/// A place in a chunked body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunked {
    limits: ChunkLimits,
    at: At,
    /// Bytes of this size line, or of all trailers, so far.
    overhead: usize,
    /// Bytes of all chunks so far, the one at hand whole.
    content: u64,
    /// How many bytes of the trailer line's name have been seen, and what they were.
    name: TrailerName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the digits of a size; the flag is whether one has been seen.
    Size {
        size: u64,
        digits: u8,
    },
    /// In a chunk extension; its quoted strings are not read, since they may not hold CR or LF anyway.
    Extension {
        size: u64,
    },
    /// Behind the CR of a size line.
    SizeLf {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// Behind a chunk's data.
    DataCr,
    DataLf,
    /// At the first byte of a trailer line.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// Behind the CR of the empty line.
    EndLf,
    Done,
}

/// What a chunked body carries.
#[derive(Clone, Copy, Debug)]
enum Piece<'a> {
    Data(&'a [u8]),
    /// A byte of a trailer line, its line end included.
    Trailer(u8),
}

/// Sizes have at most 16 hex digits, leading zeros included: more would be more than 64 bits.
const MOST_DIGITS: u8 = 16;

impl Chunked {
    fn new(limits: ChunkLimits) -> Self {
        Self { limits, at: At::Size { size: 0, digits: 0 }, overhead: 0, content: 0, name: TrailerName::default() }
    }

    fn is_done(&self) -> bool {
        self.at == At::Done
    }

    /// Reads on. `show` is shown every piece of the content and of the trailers.
    fn take(&mut self, bytes: &[u8], show: &mut impl FnMut(Piece<'_>)) -> Result<usize, BadBody> {
        let mut index = 0;
        while let Some(&byte) = bytes.get(index) {
            self.at = match self.at {
                At::Data { left } => {
                    let rest = &bytes[index..];
                    let taken = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                    show(Piece::Data(&rest[..taken]));
                    index += taken;
                    self.at = match left - taken as u64 {
                        0 => At::DataCr,
                        left => At::Data { left },
                    };
                    continue;
                }
                At::Size { size, digits } => match char::from(byte).to_digit(16) {
                    Some(digit) if digits < MOST_DIGITS => {
                        self.spend(self.limits.line, "a chunk's size line is too long")?;
                        At::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
                    }
                    Some(_) => return Err(BadBody("a chunk's size has too many digits")),
                    None if digits == 0 => return Err(BadBody("a chunk has no size")),
                    None if byte == b';' => At::Extension { size },
                    None if byte == b'\r' => At::SizeLf { size },
                    None => return Err(BadBody("a chunk's size is not hexadecimal")),
                },
                At::Extension { size } => match byte {
                    b'\r' => At::SizeLf { size },
                    b'\t' | b' '..=b'~' | 0x80.. => {
                        self.spend(self.limits.line, "a chunk's size line is too long")?;
                        At::Extension { size }
                    }
                    _ => return Err(BadBody("a chunk extension has a control byte")),
                },
                At::SizeLf { size } if byte == b'\n' => {
                    self.overhead = 0;
                    match size {
                        0 => At::TrailerStart,
                        // No body is longer than 2^63: sums of sizes could wrap behind us.
                        size if size >> 63 != 0 => return Err(BadBody("a chunk's size is impossible")),
                        size => {
                            self.content = self.content.saturating_add(size);
                            if self.limits.content.is_some_and(|most| self.content > most) {
                                return Err(BadBody::TOO_LARGE);
                            }
                            At::Data { left: size }
                        }
                    }
                }
                At::DataCr if byte == b'\r' => At::DataLf,
                At::DataLf if byte == b'\n' => At::Size { size: 0, digits: 0 },
                At::DataCr | At::DataLf => return Err(BadBody("a chunk is longer than its size")),
                At::TrailerStart if byte == b'\r' => At::EndLf,
                At::TrailerStart => {
                    self.name = TrailerName::default();
                    self.trailer_name(byte)?
                }
                At::TrailerName => self.trailer_name(byte)?,
                At::TrailerValue => match byte {
                    b'\r' => At::TrailerLf,
                    b'\t' | b' '..=b'~' | 0x80.. => {
                        self.spend(self.limits.trailers, "the trailers are too long")?;
                        At::TrailerValue
                    }
                    _ => return Err(BadBody("a trailer has a control byte")),
                },
                At::TrailerLf if byte == b'\n' => At::TrailerStart,
                At::EndLf if byte == b'\n' => At::Done,
                At::SizeLf { .. } | At::TrailerLf | At::EndLf => {
                    return Err(BadBody("a CR without its LF in chunked framing"));
                }
                At::Done => return Ok(index),
            };
            if matches!(self.at, At::TrailerName | At::TrailerValue | At::TrailerLf)
                || (self.at == At::TrailerStart && byte == b'\n' && self.overhead > 0)
            {
                show(Piece::Trailer(byte));
            }
            index += 1;
        }
        Ok(index)
    }

    fn trailer_name(&mut self, byte: u8) -> Result<At, BadBody> {
        self.spend(self.limits.trailers, "the trailers are too long")?;
        if byte == b':' {
            return match self.name.is_allowed() {
                true => Ok(At::TrailerValue),
                false => Err(BadBody("a trailer has a name that only a head may have")),
            };
        }
        if !is_token(byte) {
            return Err(BadBody("a trailer's name is not a token"));
        }
        self.name.push(byte);
        Ok(At::TrailerName)
    }

    fn spend(&mut self, limit: usize, why: &'static str) -> Result<(), BadBody> {
        self.overhead += 1;
        if self.overhead > limit { Err(BadBody(why)) } else { Ok(()) }
    }
}

/// The name of the trailer at hand: as much of it as shows whether it may stand there.
#[derive(Clone, Copy, Debug, Default)]
struct TrailerName {
    bytes: [u8; 20],
    length: usize,
}

impl TrailerName {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    /// Fields that say where a message ends, where it goes or whom it comes from have no meaning in a trailer
    /// (RFC 9110 section 6.5.1), but not every reader keeps them apart from the head's.
    fn is_allowed(&self) -> bool {
        may_trail(&self.bytes[..self.length])
    }
}

/// Whether a field of this name may stand behind a body.
pub(crate) fn may_trail(name: &[u8]) -> bool {
    !name.is_empty() && matches!(Kind::of(name), Kind::Plain | Kind::Accept | Kind::Expect)
}

/// Whether a byte may stand in a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl fmt::Display for BadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ChunkLimits = ChunkLimits { line: 40, trailers: 60, content: Some(50) };

    /// What is decoded, and how many bytes are behind the body, whatever the pieces it comes in.
    fn decode(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, BadBody> {
        let whole = decode_in_pieces(bytes, bytes.len().max(1));
        for size in 1..bytes.len() {
            assert_eq!(decode_in_pieces(bytes, size), whole, "in pieces of {size}");
        }
        whole
    }

    fn decode_in_pieces(bytes: &[u8], size: usize) -> Result<Option<(Vec<u8>, usize)>, BadBody> {
        let mut body = Body::new(Framing::Chunked, LIMITS);
        let (mut data, mut taken) = (Vec::new(), 0);
        for piece in bytes.chunks(size) {
            let n = body.decode(piece, &mut data)?;
            taken += n;
            if body.is_done() {
                return Ok(Some((data, bytes.len() - taken)));
            }
            assert_eq!(n, piece.len());
        }
        Ok(None)
    }

    #[test]
    fn good_chunks_at_every_split_point() {
        for (bytes, data, behind) in [
            (&b"5\r\nhello\r\n0\r\n\r\n"[..], &b"hello"[..], 0),
            (b"5;a=b\r\nhello\r\n0\r\n\r\nGET /", b"hello", 5),
            (b"5;a=\"b;c\"\r\nhello\r\n0;x\r\n\r\n", b"hello", 0),
            (b"0005\r\nhello\r\n000\r\n\r\n", b"hello", 0),
            (b"A\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n", b"0123456789\n", 0),
            (b"5\r\nhello\r\n0\r\nX-T: v\r\nx_y:\t\r\n\r\n", b"hello", 0),
            (b"0\r\n\r\n\r\n", b"", 2),
        ] {
            assert_eq!(decode(bytes), Ok(Some((data.to_vec(), behind))), "{}", bytes.escape_ascii());
        }
        assert_eq!(decode(b"5\r\nhello\r\n0\r\n\r"), Ok(None));
    }

    #[test]
    fn broken_chunks_are_refused() {
        for bytes in [
            &b"0x5\r\nhello\r\n0\r\n\r\n"[..],
            b"+5\r\n",
            b"-5\r\n",
            b" 5\r\n",
            b"5 \r\n",
            b"5\t\r\n",
            b"5 ;a\r\n",
            b"\r\n",
            b";a\r\n",
            b"xyz\r\n",
            b"0_5\r\n",
            b"\"5\"\r\n",
            b"5,5\r\n",
            b"5\n",
            b"5;\n",
            b"5;a\rb\r\n",
            b"5;a\0b\r\n",
            b"5\0\r\n",
            b"5\rh",
            b"5\r\r\n",
            b"10000000000000005\r\n",
            b"FFFFFFFFFFFFFFFF\r\n",
            b"8000000000000000\r\n",
            b"00000000000000005\r\n",
            b"5\r\nhelloXX\r\n",
            b"5\r\nhello\n",
            b"5\r\nhello\r\r",
            b"0\n",
            b"0\r\n\n",
            b"0\r\n\rX",
            b"0\r\nbad trailer\r\n",
            b"0\r\n: v\r\n",
            b"0\r\nX: a\0\r\n",
            b"0\r\nX: a\n",
            b"0\r\nX: a\rb",
            b"0\r\n X: a\r\n",
            b"0\r\nContent-Length: 3\r\n",
            b"0\r\nTRANSFER_ENCODING: chunked\r\n",
            b"0\r\nHost: b.test\r\n",
            b"0\r\nX-Forwarded-For: 6.6.6.6\r\n",
            b"0\r\nX-Forwarded-Port: 443\r\n",
        ] {
            assert!(decode(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn endless_overhead_is_refused() {
        assert!(decode(&[b"5;".as_slice(), &[b'a'; 41]].concat()).is_err());
        assert!(decode(&[b"0\r\nX:".as_slice(), &[b'a'; 61]].concat()).is_err());
        assert!(decode(&[b"0\r\n".as_slice(), &b"X:\r\n".repeat(40)].concat()).is_err());
    }

    #[test]
    fn chunks_are_counted_without_their_framing() {
        let chunk = b"A;extension=1\r\n0123456789\r\n";
        assert!(matches!(decode(&[chunk.repeat(5).as_slice(), b"0\r\n\r\n"].concat()), Ok(Some(_))));
        assert_eq!(decode(&[chunk.repeat(5).as_slice(), b"1\r\n"].concat()), Err(BadBody::TOO_LARGE));
    }

    #[test]
    fn a_length_is_taken_to_the_byte() {
        let mut body = Body::new(Framing::Length(5), LIMITS);
        assert_eq!((body.take(b"hel"), body.left()), (Ok(3), Some(2)));
        assert_eq!((body.take(b"loGET"), body.is_done()), (Ok(2), true));
        assert_eq!(body.take(b"GET"), Ok(0));
        assert!(Body::new(Framing::Length(0), LIMITS).is_done());
        assert!(!Body::new(Framing::Length(5), LIMITS).may_end_here());
        assert!(Body::new(Framing::UntilClose, LIMITS).may_end_here());
        assert!(!Body::new(Framing::Chunked, LIMITS).may_end_here());
    }
}
