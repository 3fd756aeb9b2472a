//! A client connection's life: accepted by a worker, served request by request, ended or turned into a tunnel.
//!
//! [`http1`] tells the story of one connection; its steps are siblings, and none calls the next. Over TLS, [`tls`] is what
//! comes before it.

mod answer;
mod arrival;
mod beginning;
mod choosing;
mod http1;
mod http2;
mod passthrough;
mod plain;
mod proxied;
mod spare;
pub(crate) mod tls;
mod told;
mod tunnel;
pub(crate) mod worker;
