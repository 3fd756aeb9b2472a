//! Carom bounces each HTTP request to the right backend: a host-based reverse proxy for HTTP/1 and HTTP/2, with TLS or
//! without, whose routing table is a file that may change while it runs.
//!
//! # The path of a request
//!
//! 1. [`proxy`] has bound the addresses and started a worker for each core: `conn::worker` accepts, and where a proxy in
//!    front says who the client is, `conn::proxied` reads it. Where an address speaks TLS, `conn::tls` shakes hands, with the
//!    certificate that [`certify::Certify`] names.
//! 2. `conn::http1` waits for a request, holding nothing, and reads its head: `http::head` says what it means, or which
//!    [`Refusal`] it gets. Each request of an HTTP/2 connection, `conn::http2`, is to it a client that speaks HTTP/1.
//! 3. [`bounce::Decide`] says where it goes. [`bounce::Routes`], the published [`table::Table`], is one who decides; a
//!    closure is another.
//! 4. [`table::site::Site`] picks an instance, of those that are up: [`ops::health`] asks them, and what becomes of requests
//!    says it too; where all are full the request waits in `table::queue`, where an operator has paused the site in
//!    `table::pause`. [`ops::names`] knows where those are now that are given by a name. `upstream::idle` has a connection
//!    to it, or `upstream::connect` makes one, by `upstream::tls` where the target is `https://`; where HTTP/2 is spoken,
//!    `upstream::http2` has one for many requests.
//! 5. `http::rewrite` writes the head as the backend gets it; `upstream::exchange` relays both ways at once, and
//!    `http::body` says where each message ends. What fails goes to the next instance, as far as `table::retries` and
//!    the request's method allow.
//! 6. The connection goes back to wait, closes, or has become a `conn::tunnel`. [`record`] tells what happened to those
//!    who log and count: `ops::access`, [`ops::failures`], and [`ops::stats`], which [`ops::status`] shows.
//!
//! A TLS connection that asks for somebody else's name is carried by `conn::passthrough` instead, as it is.
//!
//! What the operator writes becomes a table in [`config`], certificates included, which also notices each save and says
//! what it changes; a table that has been live is kept there, too. While it runs, [`ops::control`] is asked, and told; tables
//! are published by one alone, the program's `cli/follow.rs`, who gets what is to change as commands.
//!
//! # The rooms
//!
//! | | |
//! |---|---|
//! | `main.rs`, `cli/` | the program: one file a verb, and what `serve` follows; a user of this library like any other |
//! | [`proxy`] | bind, run, drain |
//! | [`bounce`], [`certify`] | the decisions: where a request goes, which certificate a client is shown |
//! | [`record`], `tap`, [`settings`] | what is told about a request when it is over, and meanwhile; what can be tuned |
//! | `conn/` | a client connection's life |
//! | `upstream/` | the backend's side: connect, idle connections, one exchange |
//! | [`http`] | HTTP/1 as we understand it: bytes in, verdicts out |
//! | `http2/` | between the frames of HTTP/2 and the bytes of HTTP/1 |
//! | [`table`] | where a host goes, and which certificate is whose: immutable snapshots |
//! | [`config`] | what the operator wrote, and when it changes |
//! | [`ops`] | what keeps it well and visible, off the data path |
//! | `net/` | sockets, buffers, deadlines; what only Linux has is in one file with a portable twin |
//!
//! Downwards only: `main → cli → proxy → {conn, config, ops} → {bounce, record, tap, upstream} → {table, http, net, settings}`.
//!
//! # What must be absent
//!
//! `table` and `http` do no IO and know no clock · `http` knows no tokio · `net` knows no HTTP · `conn` knows neither
//! `config` nor `ops` · nothing but `main` knows `cli` · toml, toml_edit, notify and annotated errors stay in `config` · rustls stays
//! in `conn::tls`, `net::stream`, `upstream::tls`, `table::{certs, secure}` and `config::{certs, link}` · rcgen
//! stays in `ops::local`, and what signs cookies in `table::sticky` · hickory, which asks the DNS, in `ops::names` · ratatui in
//! `cli::top` · hyper stays out of the HTTP/1 path: it serves the control socket, the status listener and the demo's
//! backends · prometheus-client stays in `ops::status` · h2 stays in `http2`, `conn::http2` and `upstream::http2` ·
//! `unsafe` is nowhere.
//!
//! # Example
//!
//! ```
//! use carom::{Proxy, Routes, config};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let routes = config::routes::parse("routes.toml".as_ref(), br#""beep.example.com" = 8001"#, &[], None)?;
//! let proxy = Proxy::builder()
//!     .listen("127.0.0.1:0")
//!     .workers(1)
//!     .decide(Routes::new(routes))
//!     .bind()
//!     .await?;
//! println!("listening on {:?}", proxy.addresses());
//! let shutdown = async {}; // here: at once
//! let drained = proxy.run_until(shutdown).await?;
//! assert_eq!(drained.cut, 0);
//! # Ok(())
//! # }
//! ```

pub mod bounce;
pub mod certify;
pub mod config;
mod conn;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
pub mod http;
mod http2;
mod net;
pub mod ops;
pub mod proxy;
pub mod record;
pub mod settings;
pub mod table;
mod tap;
mod upstream;

pub use bounce::{Bounce, Decide, Routes};
pub use certify::Certify;
pub use http::head::Head;
pub use http::refuse::Refusal;
pub use net::stream::Duplex;
pub use proxy::Proxy;
