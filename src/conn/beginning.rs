//! What comes before HTTP on a connection: who the client is where a proxy in front says it, and TLS.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;

use tokio::net::TcpStream;

use super::arrival::Arrival;
use super::http1::Connection;
use super::tls::{self, Established, Negotiated};
use super::worker::{Speaks, Worker};
use super::{http2, passthrough, proxied};
use crate::net::buffer::Buffer;
use crate::net::deadline::Ticket;
use crate::net::stream::Stream;

/// What a connection has become.
pub(super) enum Begun {
    Http(Connection, Negotiated),
    /// It is somebody else's, and is carried by this.
    Passed(Pin<Box<dyn Future<Output = ()>>>),
}

/// Does what comes before HTTP. `None`: the connection has ended over it.
pub(super) async fn begin(
    stream: TcpStream,
    peer: SocketAddr,
    speaks: Speaks,
    worker: Rc<Worker>,
    ticket: Ticket,
) -> Option<Begun> {
    let arrival = match speaks.proxy_protocol {
        false => Arrival::directly(peer),
        true => proxied::arrival(&stream, peer, &worker, &ticket).await?,
    };
    let established = match &worker.shared.tls {
        Some(tls) if speaks.tls => tls::establish(stream, arrival, tls, &worker, &ticket).await?,
        _ => Established::Http(Stream::Tcp(stream), arrival, Negotiated::Http1),
    };
    Some(match established {
        Established::Http(stream, arrival, negotiated) => {
            Begun::Http(Connection::new(stream, arrival, worker, ticket), negotiated)
        }
        Established::Passed(passage, arrival) => {
            Begun::Passed(Box::pin(async move { passthrough::carry(passage, &arrival, &worker, &ticket).await }))
        }
    })
}

/// Serves a connection that speaks HTTP/2. `early` is what has been read of it.
pub(super) async fn serve_http2(connection: Connection, early: Option<Buffer>) {
    let (stream, arrival, worker, ticket) = connection.into_parts();
    // Where it has come to is not known to what stands for it from here on.
    let arrival = Arrival { server: arrival.server.or_else(|| stream.local_address().map(Box::new)), ..arrival };
    let stream = match early {
        Some(early) => stream.behind(early),
        None => stream,
    };
    http2::serve(stream, arrival, &worker, &ticket).await;
}
