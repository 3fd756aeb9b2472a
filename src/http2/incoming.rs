//! What comes in frames, as HTTP/1 has it.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use tokio::io::ReadBuf;

use super::{broken, fields};

/// One message of a stream, read as bytes of HTTP/1.
pub(crate) struct Incoming {
    /// What is to be read next: the head, a chunk's border, the trailers.
    text: Vec<u8>,
    text_read: usize,
    /// What has not been read of a frame.
    data: Bytes,
    body: Option<RecvStream>,
    form: Form,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it comes: its length is known, or it is a tunnel.
    Plain,
    /// In chunks, with its trailers.
    Chunked,
    /// There is none, or no more of it.
    Ended,
}

impl Incoming {
    /// A message of which nothing is known yet.
    pub(crate) fn new() -> Self {
        Self { text: Vec::with_capacity(512), text_read: 0, data: Bytes::new(), body: None, form: Form::Ended }
    }

    /// What has been said is a head, and this is the body behind it.
    pub(crate) fn begin(&mut self, body: RecvStream, form: Form) {
        self.body = Some(body);
        self.form = form;
    }

    /// Where text is added that is read next.
    pub(crate) fn say(&mut self) -> &mut Vec<u8> {
        if self.text_read == self.text.len() {
            self.text.clear();
            self.text_read = 0;
        }
        &mut self.text
    }

    /// Puts as much into the room as is there: `false` when that is nothing, since the message has ended.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = room.filled().len();
        while room.remaining() > 0 {
            if self.text_read < self.text.len() {
                self.text_read += fill(room, &self.text[self.text_read..]);
            } else if !self.data.is_empty() {
                self.read_data(room)?;
            } else {
                match self.poll_frame(cx) {
                    Poll::Ready(Ok(true)) => {}
                    _ if room.filled().len() > before => break,
                    other => return other,
                }
            }
        }
        Poll::Ready(Ok(true))
    }

    fn read_data(&mut self, room: &mut ReadBuf<'_>) -> io::Result<()> {
        let count = fill(room, &self.data);
        self.data = self.data.split_off(count);
        if let Some(body) = &mut self.body {
            // The other side may send as much again.
            body.flow_control().release_capacity(count).map_err(broken)?;
        }
        if self.data.is_empty() && self.form == Form::Chunked {
            self.say().extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Takes the next frame. `false` when the message has ended.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some(body) = self.body.as_mut().filter(|_| self.form != Form::Ended) else {
            return Poll::Ready(Ok(false));
        };
        match ready!(body.poll_data(cx)) {
            Some(data) => {
                self.data = data.map_err(broken)?;
                let length = self.data.len();
                if self.form == Form::Chunked && length > 0 {
                    self.say().extend_from_slice(format!("{length:x}\r\n").as_bytes());
                }
            }
            None => {
                let trailers = ready!(body.poll_trailers(cx)).map_err(broken)?;
                if self.form == Form::Chunked {
                    let text = self.say();
                    text.extend_from_slice(b"0\r\n");
                    fields::trailer_lines(text, &trailers.unwrap_or_default());
                    text.extend_from_slice(b"\r\n");
                }
                self.form = Form::Ended;
            }
        }
        Poll::Ready(Ok(true))
    }
}

fn fill(room: &mut ReadBuf<'_>, bytes: &[u8]) -> usize {
    let count = bytes.len().min(room.remaining());
    room.put_slice(&bytes[..count]);
    count
}
