//! Behaviour, one binary: the real program as a child process, between scripted raw clients and scripted raw backends.
//!
//! Every test owns what it needs (a folder, a port that the kernel chose, its own carom) and ends what it started, so
//! all of them run side by side. A test is named as the sentence that would be false if it failed. Nothing sleeps to
//! wait for something: waits are on the thing itself, with a deadline that says what did not come. A pause in a script
//! is part of what the peer does ("answers after 300 ms").
//!
//! | where | what |
//! |---|---|
//! | [`support::carom`] | the program: its files, its signals, its log, its weight |
//! | [`support::inside`] | the library, in this process |
//! | [`support::origin`] | a backend that does as it is told and keeps what it saw |
//! | [`support::dns`] | a DNS server that does as it is told |
//! | [`support::client`] | a client that does as it is told and reads strictly |
//! | [`support::load`] | many clients at once, and what became of each request |
//! | [`support::http2`] | a client of HTTP/2 that does as it should |
//! | [`support::tls`] | certificates, and clients that speak TLS |
//! | [`support::frames`] | a client of HTTP/2 that does as wrongly as it is told |
//! | [`support::http2_origin`] | a backend that speaks HTTP/2 |
//! | [`support::wire`] | HTTP/1 as both of them read it: an own reader that takes nothing odd |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    unreachable_pub,
    reason = "a test may panic, its numbers are its own, and it has no users"
)]

mod support;

/// Which site a request goes to, and which instance of it.
mod routing;

/// What is refused before a backend hears of it.
mod refused;

/// Bodies in both directions, as they were framed.
mod bodies;

/// Bodies that break off, or break their framing.
mod broken;

/// Answers and interim responses that come before a request has ended.
mod early;

/// Bodies that are large, slow, or in pieces.
mod flow;

/// Bodies that are large enough for the kernel to carry.
mod large;

/// Which fields are taken out of a head, which are put in, and that all others stay as they are.
mod fields;

/// Backend connections that are used again, and requests that come before their turn.
mod reuse;

/// Upgrades and the tunnels behind them.
mod upgrade;

/// Backends that are away, slow, wrong or gone; clients that are gone.
mod failure;

/// Instances that keep failing, and who serves in their place.
mod standing;

/// Requests that are tried again with another instance.
mod retries;

/// Instances that are full, and requests that wait in line for one.
mod queue;

/// What goes wrong with instances under load, and how many requests that costs.
mod chaos;

/// Who gets how many, by each policy.
mod shares;

/// Sessions that stay with their instance.
mod sticky;

/// Instances that are asked whether they are up.
mod health;

/// Instances that are given by a name, which moves.
mod names;

/// The control socket, and the verbs that speak over it.
mod control;

/// The status listener: what it counts, and whom it tells.
mod board;

/// Requests that somebody watches.
mod tap;

/// Sites that are paused.
mod pause;

/// Routes on trial.
mod trial;

/// Each limit and each deadline, and what it protects.
mod limits;

/// Every way to save the routes, while requests run.
mod reload;

/// The tables that were live: what is kept of them, and how a broken file at the start is survived.
mod history;

/// The verbs that write the routes file.
mod edit;

/// Sites that go over to new instances by command, while requests run.
mod deploy;

/// The PROXY protocol, from a proxy in front and to a backend behind.
mod proxy_protocol;

/// TLS connections that are passed through.
mod passthrough;

/// Backends behind TLS.
mod tls_behind;

/// The end: signals, what is in flight, exit codes, and a start that can't be.
mod stop;

/// HTTP/2 in front: what each stream becomes, what is refused, limits and floods.
mod http2;

/// Frames that are wrong, and those that are right: RFC 9113 section by section.
mod http2_frames;

/// What one HTTP/2 connection may take, and that one request does not hold back another.
mod http2_limits;

/// HTTP/2 behind: gRPC's four kinds of calls, one connection for many, and its end.
mod http2_behind;

/// One access line a request, and what it says.
mod log;

/// Why requests have failed, as `carom explain --last` says it.
mod why;

/// Certificates: which one a name gets, and what becomes of files that change.
mod certs;

/// TLS in front: handshakes, and which certificate is shown.
mod tls;

/// The library inside this process, with a closure that decides.
mod library;

/// The examples, each run as a reader would run it.
mod examples;

/// The repository's own example files, and what `check` and `explain` say.
mod files;

/// What the README and the pages in `docs/` say of the program.
mod pages;
