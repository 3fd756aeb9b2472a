//! The backend side: connecting, keeping idle connections, and one exchange over one of them.

pub(crate) mod connect;
pub(crate) mod exchange;
pub(crate) mod http2;
pub(crate) mod idle;
pub(crate) mod tls;
