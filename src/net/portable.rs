//! The twin of `linux.rs` for other systems.

use std::io;
use std::net::TcpListener;

use socket2::Socket;

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

/// Which process listens on a port: not known here.
pub(crate) fn holder_of(_: u16) -> Option<(u32, String)> {
    None
}
