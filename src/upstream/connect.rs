//! A fresh connection to a backend.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use crate::http::refuse::Refusal;
use crate::net::deadline::now;
use crate::net::proxy_protocol::{self, Ends};
use crate::net::stream::Stream;
use crate::table::backend::{Address, Backend};
use crate::table::link::ProxyVersion;
use crate::table::named::{Addresses, Place};
use crate::upstream::tls;

/// How long one of several addresses has to answer before the next is tried.
const ONE_OF_MANY: Duration = Duration::from_secs(1);

/// Connects, by TLS where that is wanted, and says first who the client is where the backend wants to know. The caller sets the deadline.
pub(crate) async fn connect(backend: &Backend, ends: Option<(ProxyVersion, Ends)>) -> Result<Stream, Refusal> {
    let mut stream = reach(backend).await?;
    if let Some((version, ends)) = ends {
        introduce(&mut stream, version, &ends).await.map_err(|error| refusal(&error))?;
    }
    match (stream, &backend.link().tls) {
        (Stream::Tcp(stream), Some(secure)) => tls::handshake(stream, secure, backend).await,
        (stream, _) => Ok(stream),
    }
}

/// Sends a PROXY header.
async fn introduce(stream: &mut Stream, version: ProxyVersion, ends: &Ends) -> io::Result<()> {
    let mut header = Vec::with_capacity(128);
    proxy_protocol::write(&mut header, version, ends);
    let mut rest = header.as_slice();
    while !rest.is_empty() {
        match poll_fn(|cx| stream.poll_write(cx, rest)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => rest = &rest[count..],
        }
    }
    Ok(())
}

async fn reach(backend: &Backend) -> Result<Stream, Refusal> {
    match backend.address() {
        Address::Port(port) => local(backend, *port).await,
        Address::Socket(address) => tcp(*address).await.map_err(|error| refusal(&error)),
        Address::Name(name, port) => named(backend, name, *port).await,
        Address::Unix(path) => match UnixStream::connect(path).await {
            Ok(stream) => Ok(Stream::Unix(stream)),
            Err(error) => Err(refusal(&error)),
        },
    }
}

/// A port on this machine: servers that listen on `localhost` have one of its two addresses, and nobody knows which.
/// The one that answered last is tried first.
async fn local(backend: &Backend, port: u16) -> Result<Stream, Refusal> {
    let address = |v6| match v6 {
        true => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port),
        false => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
    };
    let preferred = backend.prefers_v6();
    let error = match tcp(address(preferred)).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    match tcp(address(!preferred)).await {
        Ok(stream) => {
            backend.prefer_v6(!preferred);
            Ok(stream)
        }
        // What the other family says may only be that this machine does not have it.
        Err(_) => Err(refusal(&error)),
    }
}

/// A name that somebody looks up is where they have found it. One that nobody does is asked for here.
async fn named(backend: &Backend, name: &str, port: u16) -> Result<Stream, Refusal> {
    if let Some(named) = backend.named()
        && let Some(addresses) = named.known().await
    {
        return one_of(&addresses).await;
    }
    let addresses = lookup_host((name, port)).await.map_err(|error| match is_ours(&error) {
        true => Refusal::NoDescriptor,
        false => Refusal::BackendName,
    })?;
    let mut last = Refusal::BackendName;
    for address in addresses {
        match tcp(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = refusal(&error),
        }
    }
    Err(last)
}

/// Begins with another address each time, and goes on to the next where connecting fails.
async fn one_of(addresses: &Addresses) -> Result<Stream, Refusal> {
    let mut last = Refusal::BackendName;
    let mut places = addresses.in_turn(now()).into_iter().peekable();
    while let Some(place) = places.next() {
        // One that swallows what it is sent must not take the time of all.
        let patience = if places.peek().is_some() { ONE_OF_MANY } else { Duration::MAX };
        let attempt = Attempt(place);
        match timeout(patience, tcp(place.address)).await {
            Ok(Ok(stream)) => {
                attempt.succeeded();
                return Ok(stream);
            }
            Ok(Err(error)) => last = refusal(&error),
            Err(_) => last = Refusal::ConnectTimeout,
        }
    }
    Err(last)
}

/// An attempt at one of several addresses. Dropped, it has failed: the caller's deadline may have ended it.
struct Attempt<'a>(&'a Place);

impl Attempt<'_> {
    fn succeeded(self) {
        self.0.connected();
        std::mem::forget(self);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.failed(now());
    }
}

async fn tcp(address: SocketAddr) -> io::Result<Stream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // A tunnel may be silent for days; this finds out that nobody is there any more.
    SockRef::from(&stream).set_keepalive(true)?;
    Ok(Stream::Tcp(stream))
}

fn refusal(error: &io::Error) -> Refusal {
    match error.kind() {
        _ if is_ours(error) => Refusal::NoDescriptor,
        // A unix socket that is not there is a server that is not there.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Refusal::BackendRefused,
        io::ErrorKind::TimedOut => Refusal::ConnectTimeout,
        _ => Refusal::BackendUnreachable,
    }
}

/// Whether it says nothing of the other side: there is no descriptor left here, for this process or for all.
fn is_ours(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_here_is_not_said_of_the_backend() {
        let of = |errno: Errno| refusal(&errno.into());
        assert_eq!(of(Errno::MFILE), Refusal::NoDescriptor);
        assert_eq!(of(Errno::NFILE), Refusal::NoDescriptor);
        assert_eq!(of(Errno::CONNREFUSED), Refusal::BackendRefused);
        assert_eq!(of(Errno::NOENT), Refusal::BackendRefused);
        assert_eq!(of(Errno::TIMEDOUT), Refusal::ConnectTimeout);
        assert_eq!(of(Errno::HOSTUNREACH), Refusal::BackendUnreachable);
    }
}
