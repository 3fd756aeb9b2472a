//! Sockets, buffers, deadlines and rates; knows no HTTP.
//!
//! What only one system has is in `linux.rs`, with a portable twin that does the same less well.

pub(crate) mod buffer;
pub(crate) mod deadline;
pub(crate) mod doors;
pub(crate) mod haul;
pub(crate) mod listen;
pub(crate) mod proxy_protocol;
pub(crate) mod seldom;
pub(crate) mod stream;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
pub(crate) mod system;
#[cfg(not(target_os = "linux"))]
#[path = "portable.rs"]
pub(crate) mod system;

/// The twin is built and run where it is not needed too: it must not rot.
#[cfg(all(test, target_os = "linux"))]
#[path = "portable.rs"]
#[allow(dead_code, reason = "not all of it can be tried here")]
mod portable;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn both_twins_give_each_worker_a_socket_of_the_same_port() {
        type Listeners = fn(usize, &dyn Fn() -> std::io::Result<TcpListener>) -> std::io::Result<Vec<TcpListener>>;
        let twins: [Listeners; 2] =
            [|n, bind| super::system::listeners(n, bind), |n, bind| super::portable::listeners(n, bind)];
        for (twin, listeners) in twins.iter().enumerate() {
            let port = std::sync::OnceLock::new();
            let bind = || {
                let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
                match twin {
                    0 => super::system::share_port(&socket)?,
                    _ => super::portable::share_port(&socket)?,
                }
                let address = std::net::SocketAddr::from(([127, 0, 0, 1], port.get().copied().unwrap_or(0)));
                socket.bind(&address.into())?;
                socket.listen(8)?;
                let listener = TcpListener::from(socket);
                port.get_or_init(|| listener.local_addr().map_or(0, |address| address.port()));
                Ok(listener)
            };
            let sockets = listeners(3, &bind).unwrap();
            let ports: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
            assert_eq!(ports, [ports[0]; 3]);
            assert!(TcpStream::connect(("127.0.0.1", ports[0])).is_ok());
        }
        assert_eq!(super::portable::holder_of(1), None);
    }
}
