//! `carom demo`: two small sites behind the real proxy, and a routes file to play with.
//!
//! Nothing here imitates the proxy: the routes file is a file, and what serves it is what `carom serve` runs.

mod backends;
mod page;
mod routes;

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;

use backends::Backends;
use routes::RoutesFile;

/// What `serve` is given.
pub(crate) struct Served {
    pub(crate) routes: PathBuf,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) tls: Vec<SocketAddr>,
    /// A folder for what carom keeps, gone at the end.
    pub(crate) state: PathBuf,
}

/// Starts the backends, writes the routes file, says what to try, and hands over to `serve`.
pub(crate) fn run(port: u16, tls: Option<u16>, serve: impl FnOnce(Served) -> ExitCode) -> ExitCode {
    match start(port, tls) {
        Ok(demo) => {
            say(&introduction(&demo));
            let (routes, state) = (demo.routes.path().to_owned(), demo.routes.state());
            let code = serve(Served { routes, state, listen: demo.listen, tls: demo.tls });
            say(&demo.routes.farewell());
            code
        }
        Err(why) => {
            eprintln!("carom demo: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What runs before the proxy does.
struct Demo {
    listen: Vec<SocketAddr>,
    /// Those that speak TLS.
    tls: Vec<SocketAddr>,
    routes: RoutesFile,
}

fn start(port: u16, tls: Option<u16>) -> Result<Demo, String> {
    let free = |port| free_addresses(port).map_err(|error| port_trouble(port, &error));
    let listen = free(port)?;
    let tls = tls.map(free).transpose()?.unwrap_or_default();
    let port = listen.first().map_or(port, SocketAddr::port);
    let folder = routes::fresh_folder().map_err(|error| format!("no folder for the routes file: {error}"))?;
    let path = folder.join("routes.toml");
    let backends = Backends::start(&path).map_err(|error| format!("the demo's backends can't start: {error}"))?;
    let routes = RoutesFile::write(path, routes::text(&backends, port))
        .map_err(|error| format!("the routes file can't be written: {error}"))?;
    Ok(Demo { listen, tls, routes })
}

/// The loopback addresses of this machine on `port`, proven free; `localhost` may mean either of them.
/// Port 0 takes one that is free on all of them.
fn free_addresses(port: u16) -> io::Result<Vec<SocketAddr>> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let v4 = first.local_addr()?;
    match TcpListener::bind((Ipv6Addr::LOCALHOST, v4.port())) {
        Ok(second) => Ok(vec![v4, second.local_addr()?]),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(error),
        Err(_no_ipv6_here) => Ok(vec![v4]),
    }
}

fn port_trouble(port: u16, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => {
            let other = if port == 8081 { 8082 } else { 8081 };
            format!("port {port} is taken by another program\nhelp: name a free one, say `carom demo --port {other}`")
        }
        ErrorKind::PermissionDenied => {
            format!("port {port} needs privileges\nhelp: name one above 1023, say `carom demo --port 8080`")
        }
        _ => format!("port {port} can't be listened on: {error}"),
    }
}

fn introduction(demo: &Demo) -> String {
    let port = demo.listen.first().map_or(0, SocketAddr::port);
    let file = demo.routes.path().display();
    let tls = demo.tls.first().map(|address| over_tls(address.port())).unwrap_or_default();
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = write!(
        text,
        "
  Two sites behind one port. Open them:

    http://beep.localhost:{port}/     one instance
    http://boop.localhost:{port}/     two instances, in turn: reload to see the other

  or, without a browser:

    curl beep.localhost:{port}
    curl boop.localhost:{port} boop.localhost:{port}
    curl -H 'Host: boop.localhost' 127.0.0.1:{port}

{tls}  Now edit the routes, while all of it runs:

    {file}

  Each save shows below what it changed. Ctrl-C ends the demo.

"
    );
    text
}

fn over_tls(port: u16) -> String {
    format!(
        "  Over TLS, to which plain HTTP is redirected (a browser warns until it trusts the authority in certs/local/ca.pem):

    https://beep.localhost:{port}/
    curl --cacert certs/local/ca.pem https://boop.localhost:{port}

"
    )
}

/// To standard output, if someone still reads it.
fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_named_with_a_way_out() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let Err(why) = start(port, None) else { panic!("the port is taken") };
        assert!(why.contains(&format!("port {port} is taken")) && why.contains("--port"), "{why}");
    }

    #[test]
    fn the_introduction_names_the_sites_and_the_file() {
        let demo = start(0, None).unwrap();
        let text = introduction(&demo);
        let port = demo.listen[0].port();
        assert!(text.contains(&format!("http://beep.localhost:{port}/")), "{text}");
        assert!(text.contains(demo.routes.path().to_str().unwrap()), "{text}");
        demo.routes.farewell();
    }

    #[test]
    fn serve_gets_the_file_and_both_loopbacks() {
        let code = run(0, Some(0), |Served { routes, listen, tls, state }| {
            assert_eq!(state.parent(), routes.parent());
            assert!(routes.ends_with("routes.toml") && routes.exists());
            assert!(!tls.is_empty() && tls != listen);
            assert!(listen.iter().all(|address| address.ip().is_loopback() && address.port() != 0));
            ExitCode::from(7)
        });
        assert_eq!(code, ExitCode::from(7));
    }
}
