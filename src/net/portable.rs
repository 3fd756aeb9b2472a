//! The twin of `linux.rs` for other systems.

use std::io;
use std::net::TcpListener;

use socket2::Socket;
use tokio::net::TcpStream;

/// One listening socket that all workers accept from: elsewhere, sockets that share a port don't share its load.
pub(crate) fn listeners(workers: usize, bind: impl Fn() -> io::Result<TcpListener>) -> io::Result<Vec<TcpListener>> {
    let first = bind()?;
    let mut all = (1..workers).map(|_| first.try_clone()).collect::<io::Result<Vec<_>>>()?;
    all.push(first);
    Ok(all)
}

/// Nothing to do for one socket.
pub(crate) fn share_port(_: &Socket) -> io::Result<()> {
    Ok(())
}

/// Elsewhere it would be the whole process that gives way.
pub(crate) fn give_way() {}

/// Bytes held by the kernel between two sockets: not here, so that they are copied.
#[derive(Debug)]
pub(crate) enum Pipe {}

impl Pipe {
    pub(crate) fn new() -> Option<Self> {
        None
    }

    pub(crate) fn held(&self) -> usize {
        match *self {}
    }

    pub(crate) fn fill(&mut self, _: &TcpStream, _: u64) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn drain(&mut self, _: &TcpStream) -> io::Result<usize> {
        match *self {}
    }
}

/// Which process listens on a port: not known here.
pub(crate) fn holder_of(_: u16) -> Option<(u32, String)> {
    None
}
