//! Bytes from one socket to the other: what a proxy would cost that did nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use crate::epoll::{Epoll, READ, WRITE, would_block};

const LISTENER: usize = usize::MAX;

/// One side of a pair. Its number is its descriptor.
struct Side {
    stream: TcpStream,
    other: usize,
    /// Came from here, and does not yet fit into the other side.
    held: Vec<u8>,
}

pub fn run(listener: TcpListener, backend: SocketAddr) -> io::Result<()> {
    let mut epoll = Epoll::new()?;
    epoll.add(&listener, LISTENER, READ)?;
    let mut sides: Vec<Option<Side>> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        for number in epoll.wait(None)? {
            if number == LISTENER {
                while let Ok((client, _)) = listener.accept() {
                    let Ok(backend) = TcpStream::connect(backend) else { continue };
                    let pair = [client.as_raw_fd() as usize, backend.as_raw_fd() as usize];
                    for (at, stream) in [client, backend].into_iter().enumerate() {
                        stream.set_nonblocking(true)?;
                        stream.set_nodelay(true)?;
                        epoll.add(&stream, pair[at], READ)?;
                        sides.resize_with(sides.len().max(pair[at] + 1), || None);
                        sides[pair[at]] = Some(Side { stream, other: pair[1 - at], held: Vec::new() });
                    }
                }
            } else if let Some(other) = sides[number].as_ref().map(|side| side.other)
                && forward(&epoll, &mut sides, number, other, &mut buffer).is_err()
            {
                sides[number] = None;
                sides[other] = None;
            }
        }
    }
}

/// Something can be done at `number`: what the other side holds for it goes first. An error ends both.
fn forward(
    epoll: &Epoll,
    sides: &mut [Option<Side>],
    number: usize,
    other: usize,
    buffer: &mut [u8],
) -> io::Result<()> {
    let [Some(here), Some(there)] = sides.get_disjoint_mut([number, other]).map_err(io::Error::other)? else {
        return Ok(());
    };
    if !here.held.is_empty() {
        return Ok(());
    }
    if !there.held.is_empty() {
        let sent = here.stream.write(&there.held);
        there.held.drain(..if would_block(&sent) { 0 } else { sent? });
        if !there.held.is_empty() {
            return Ok(());
        }
        epoll.change(&here.stream, number, READ)?;
        return epoll.change(&there.stream, other, READ);
    }
    let count = here.stream.read(buffer);
    if would_block(&count) {
        return Ok(());
    }
    let count = count?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let sent = there.stream.write(&buffer[..count]);
    let sent = if would_block(&sent) { 0 } else { sent? };
    if sent < count {
        here.held.extend_from_slice(&buffer[sent..count]);
        epoll.change(&here.stream, number, rustix::event::epoll::EventFlags::empty())?;
        epoll.change(&there.stream, other, WRITE)?;
    }
    Ok(())
}
