//! The examples, each run as a reader would run it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::tls::{connect, pem};
use crate::support::{Client, Origin, request};

/// An example that runs until it is dropped.
struct Example {
    child: Child,
    address: std::net::SocketAddr,
}

impl Example {
    /// Runs one that listens on a free port and has these backends.
    fn run(name: &str, backends: &[String]) -> Self {
        // `cargo test` has built it beside the tests; `cargo test --test it` has not.
        let tests = std::env::current_exe().unwrap();
        let program: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(name);
        if !program.exists() {
            let build = Command::new(env!("CARGO")).args(["build", "--quiet", "--example", name]).status();
            assert!(build.unwrap().success());
        }
        let mut child = Command::new(&program)
            .arg("127.0.0.1:0")
            .args(backends)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("it said {line:?}"));
        Self { address: address.parse().unwrap(), child }
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn by_host_routes_by_host() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let example = Example::run("by_host", &[a.port().to_string(), b.port().to_string()]);
    let mut client = example.client();
    assert_eq!(client.get("beep.example.com", "/1").text(), "a GET /1");
    assert_eq!(client.get("boop.example.com", "/2").text(), "b GET /2");
    assert_eq!(b.request().field("x-from"), Some("carom"));
    assert_eq!(client.get("bop.example.com", "/").status(), 404);
}

#[test]
fn stream_uses_the_connection_that_it_opened() {
    let a = Origin::named("a");
    let example = Example::run("stream", &[format!("127.0.0.1:{}", a.port())]);
    let mut client = example.client();
    assert_eq!(client.get("x.test", "/1").text(), "a GET /1");
    assert_eq!(client.get("x.test", "/2").text(), "a GET /2");
}

#[test]
fn socket_io_sends_polling_and_sockets_to_the_same_server() {
    let pages = Origin::named("pages");
    let sockets = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            if request.has("upgrade") {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
                return conn.echo();
            }
            conn.answer("sockets", &request);
        }
    });
    let example = Example::run("socket_io", &[pages.port().to_string(), sockets.port().to_string()]);
    let mut client = example.client();
    assert_eq!(client.get("x.test", "/").text(), "pages GET /");
    let poll = "/socket.io/?EIO=4&transport=polling";
    assert_eq!(client.get("x.test", poll).text(), format!("sockets GET {poll}"));
    let upgrade = ["Connection: Upgrade", "Upgrade: websocket"];
    client.send(request("GET /socket.io/?EIO=4&transport=websocket", "x.test", &upgrade));
    assert_eq!(client.response_head().status(), 101);
    client.send("2probe");
    client.expect("2probe");
}

#[test]
fn tls_shows_each_name_its_certificate() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, pem(&[name])).unwrap();
        file.display().to_string()
    };
    let arguments = [file("a.test"), a.port().to_string(), file("b.test"), b.port().to_string()];
    let example = Example::run("tls", &arguments);
    assert_eq!(connect(example.address, "a.test").get("a.test", "/1").text(), "a GET /1");
    assert_eq!(connect(example.address, "b.test").get("b.test", "/2").text(), "b GET /2");
}
