//! Listening sockets.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};

use crate::net::system;

/// Connections that wait to be accepted; the system may allow fewer (`net.core.somaxconn`).
pub(crate) const BACKLOG: i32 = 4096;

/// Binds an address for so many workers: a socket for each.
pub(crate) fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<std::net::TcpListener>> {
    // Sockets that share a port with each other would share it with another process's too. This one would not.
    let first = socket(address)?;
    first.bind(&address.into())?;
    if address.port() != 0 {
        first.listen(1)?;
    }
    let address = first.local_addr()?.as_socket().unwrap_or(address);
    drop(first);
    system::listeners(workers, || listening(address))
}

fn listening(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = socket(address)?;
    system::share_port(&socket)?;
    // What a listening socket has is what the accepted ones get, with no call for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` serves IPv4 too.
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}
