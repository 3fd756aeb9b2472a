//! Many bytes from one connection to another without a look at them: in the kernel, where both are plain TCP and the
//! system can (splice(2)). A body of a known length needs no look, nor does a tunnel, and a copy into this process and out
//! again is most of what moving them costs.

use std::io;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;

use crate::net::stream::Stream;
use crate::net::system::Pipe;

/// From how many bytes on it pays: below, one more pair of descriptors costs more than the copies.
pub(crate) const WORTH_IT: u64 = 256 * 1024;

/// So many bytes on their way.
#[derive(Debug)]
pub(crate) struct Haul {
    pipe: Pipe,
    left: u64,
}

/// Why a haul did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The side that is read has ended before all had come.
    Ended,
    /// That side has broken off.
    Reader,
    /// The side that is written to has.
    Writer,
}

impl Haul {
    /// Of so many bytes, where it is worth it and can be done.
    pub(crate) fn of(left: Option<u64>, from: &Stream, to: &Stream) -> Option<Self> {
        let left = left.filter(|&left| left >= WORTH_IT)?;
        match (from, to) {
            (Stream::Tcp(_), Stream::Tcp(_)) => Some(Self { pipe: Pipe::new()?, left }),
            _ => None,
        }
    }

    /// Of all that comes until its end, through an empty pipe, where that can be done. Gives the pipe back where it can't.
    pub(crate) fn endless(pipe: Pipe, from: &Stream, to: &Stream) -> Result<Self, Pipe> {
        match (from, to) {
            (Stream::Tcp(_), Stream::Tcp(_)) => Ok(Self { pipe, left: u64::MAX }),
            _ => Err(pipe),
        }
    }

    pub(crate) fn into_pipe(self) -> Pipe {
        self.pipe
    }

    /// How many bytes have not been taken from the side that is read.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Whether there are bytes for the side that is written to.
    pub(crate) fn has_more_for_writer(&self) -> bool {
        self.pipe.held() > 0
    }

    /// Goes on; adds to `carried` what has arrived. Ready when all has.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &Stream,
        to: &Stream,
        carried: &mut u64,
    ) -> Poll<Result<(), Broken>> {
        let (Stream::Tcp(from), Stream::Tcp(to)) = (from, to) else {
            return Poll::Ready(Err(Broken::Reader));
        };
        loop {
            while self.pipe.held() > 0 {
                ready!(to.poll_write_ready(cx)).map_err(|_| Broken::Writer)?;
                match to.try_io(Interest::WRITABLE, || self.pipe.drain(to)) {
                    Ok(0) => return Poll::Ready(Err(Broken::Writer)),
                    Ok(count) => *carried += count as u64,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return Poll::Ready(Err(Broken::Writer)),
                }
            }
            if self.left == 0 {
                return Poll::Ready(Ok(()));
            }
            ready!(from.poll_read_ready(cx)).map_err(|_| Broken::Reader)?;
            match from.try_io(Interest::READABLE, || self.pipe.fill(from, self.left)) {
                Ok(0) => return Poll::Ready(Err(Broken::Ended)),
                Ok(count) => self.left -= count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(Err(Broken::Reader)),
            }
        }
    }
}
