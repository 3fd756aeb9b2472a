//! The PROXY protocol's header in front of a connection: who the client is, as a proxy that we trust has it.
//!
//! Read before anything else, TLS included. Whoever is not trusted, or sends no header, is not served: a client that could
//! come without one, or with its own, would choose its own address.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::conn::arrival::Arrival;
use crate::conn::worker::Worker;
use crate::net::deadline::Ticket;
use crate::net::proxy_protocol::{Bad, Header, LONGEST, Parsed, parse};

/// Why there is no header.
#[derive(Debug)]
enum Without {
    /// What came is none.
    Bad(Bad),
    /// The peer has gone.
    Gone { silent: bool },
    /// It took too long, or its place is needed.
    Late,
}

/// Reads the header. `None`: the connection is not to be served, and the log has been told.
pub(super) async fn arrival(stream: &TcpStream, peer: SocketAddr, worker: &Worker, ticket: &Ticket) -> Option<Arrival> {
    let settings = &worker.shared.settings;
    if !settings.forwarding.trusts(peer.ip()) {
        if worker.shared.seldom.strangers.may_say() {
            tracing::warn!(%peer, "not in forwarded.trust, so not served on a port with proxy_protocol");
        }
        return None;
    }
    ticket.attend().await;
    ticket.arm(settings.timeouts.head);
    ticket.begin_idling();
    let header = header(stream, ticket).await;
    ticket.end_idling();
    ticket.disarm();
    match header {
        Ok(header) => Some(header.ends.map_or_else(|| Arrival::directly(peer), Arrival::proxied)),
        // A look whether the port is open.
        Err(Without::Gone { silent: true }) => None,
        Err(why) => {
            if worker.shared.seldom.without_header.may_say() {
                tracing::warn!(%peer, %why, "a trusted proxy's connection without a PROXY header was closed");
            }
            None
        }
    }
}

async fn header(stream: &TcpStream, ticket: &Ticket) -> Result<Header, Without> {
    let mut seen = 0;
    let mut skipped = 0;
    let mut header = None;
    poll_fn(|cx| {
        let read = poll_header(cx, stream, &mut seen, &mut header, &mut skipped);
        let late = read.is_pending() && (ticket.is_due() || ticket.is_evicted());
        if late { Poll::Ready(Err(Without::Late)) } else { read }
    })
    .await
}

/// Looks at what has come until the header is whole, then takes it and not a byte more: what follows is the client's.
fn poll_header(
    cx: &mut Context<'_>,
    stream: &TcpStream,
    seen: &mut usize,
    header: &mut Option<Header>,
    skipped: &mut usize,
) -> Poll<Result<Header, Without>> {
    let mut bytes = [0; LONGEST];
    loop {
        ready!(stream.poll_read_ready(cx)).map_err(|_| Without::Gone { silent: *seen == 0 })?;
        let result = match header {
            None => stream.try_io(Interest::READABLE, || match recv(stream, &mut bytes, RecvFlags::PEEK)?.1 {
                // Nothing new: the next event tells.
                count if count == *seen && count > 0 => Err(io::ErrorKind::WouldBlock.into()),
                count => Ok(count),
            }),
            Some(header) => {
                let most = (header.length - *skipped).min(LONGEST);
                stream.try_io(Interest::READABLE, || Ok(recv(stream, &mut bytes[..most], RecvFlags::empty())?.1))
            }
        };
        let count = match result {
            Ok(0) => return Poll::Ready(Err(Without::Gone { silent: *seen == 0 })),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return Poll::Ready(Err(Without::Gone { silent: *seen == 0 })),
        };
        match header {
            None => {
                *seen = count;
                if let Parsed::Whole(whole) = parse(&bytes[..count]).map_err(Without::Bad)? {
                    *header = Some(whole);
                }
            }
            Some(header) => {
                *skipped += count;
                if *skipped >= header.length {
                    return Poll::Ready(Ok(*header));
                }
            }
        }
    }
}

impl std::fmt::Display for Without {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bad(Bad(why)) => f.write_str(why),
            Self::Gone { .. } => f.write_str("it ended within the header"),
            Self::Late => f.write_str("the header was not whole in time"),
        }
    }
}
