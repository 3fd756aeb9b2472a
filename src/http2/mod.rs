//! Between the frames of HTTP/2 and the bytes of HTTP/1 (RFC 9113 section 8), for clients and backends alike.
//!
//! [`incoming`] reads what comes in frames as HTTP/1 has it, [`outgoing`] sends what HTTP/1 has written in frames, and
//! [`fields`] has the lines of heads and trailers. Both ways nothing is held but what the other side can't take yet.
//! h2 does frames, header compression and flow control; its types hold no line break, so that a field stays one line.

pub(crate) mod fields;
pub(crate) mod incoming;
pub(crate) mod outgoing;

use std::io;

/// A stream, or its connection, that has broken.
pub(crate) fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

/// One that was given up before.
pub(crate) fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
