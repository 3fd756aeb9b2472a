//! `rig backend`: answers much faster than any proxy can ask. `rig floor BACKEND`: a TCP forwarder that knows no HTTP,
//! below which no proxy can get. `rig certificate FOLDER`: writes one for TLS. `rig load ADDRESS KIND CLIENTS AMOUNT`: asks,
//! and counts what comes back.
//!
//! Each is one thread over one epoll; the first two print the port that they listen on.

mod backend;
mod epoll;
mod floor;
mod load;
mod tls;

use std::io;
use std::net::{SocketAddr, TcpListener};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["backend"] => listen().and_then(backend::run),
        ["floor", backend] => listen().and_then(|listener| floor::run(listener, address(backend))),
        ["certificate", folder] => tls::certificate(folder.as_ref()),
        ["load", to, kind, clients, amount] if kind.starts_with("tls-") || kind.starts_with("h2-") => {
            tls::run(address(to), kind, number(clients), amount)
        }
        ["load", to, kind, clients, amount] => load::run(address(to), kind, number(clients), amount),
        _ => usage("which of the four?"),
    };
    if let Err(error) = result {
        eprintln!("rig: {error}");
        std::process::exit(1);
    }
}

fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    rustix::net::listen(&listener, 4096)?; // thousands of clients come at once
    listener.set_nonblocking(true)?;
    println!("{}", listener.local_addr()?.port());
    Ok(listener)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap_or_else(|_| usage(text))
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| usage(text))
}

fn usage(why: &str) -> ! {
    eprintln!("rig: {why}\nrig backend | floor BACKEND | certificate FOLDER | load ADDRESS KIND CLIENTS AMOUNT");
    std::process::exit(2)
}
