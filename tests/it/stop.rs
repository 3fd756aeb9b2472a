//! The end: what a signal lets finish and what it does not, exit codes, and a start that can't be.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::carom::{BINARY, run};
use crate::support::{Carom, End, Gate, Origin, poll_until, reply, request};

/// A backend that answers when the test says so.
fn held() -> (Origin, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let told = Arc::clone(&gate);
    let a = Origin::new(move |conn| {
        while let Some(request) = conn.request() {
            if request.has("upgrade") {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n");
                return conn.echo();
            }
            told.wait();
            conn.answer("a", &request);
        }
    });
    (a, gate)
}

#[test]
fn a_stop_answers_what_is_in_flight_and_ends() {
    for signal in [Signal::TERM, Signal::INT] {
        let (a, gate) = held();
        let carom = Carom::to(a.port()).workers(2).start();
        let mut busy: Vec<_> = (0..5)
            .map(|_| {
                let mut client = carom.client();
                client.send(request("GET /x", "a.test", &[]));
                client
            })
            .collect();
        a.wait("five requests", |seen| (seen.requests.len() == 5).then_some(()));
        carom.signal(signal);
        poll_until("that it stops listening", || TcpStream::connect(carom.address()).is_err());
        carom.assert_running();
        gate.open();
        for client in &mut busy {
            let response = client.response();
            assert_eq!((response.text().as_str(), response.field("connection")), ("a GET /x", Some("close")));
            assert_eq!(client.expect_end(), End::Fin);
        }
        drop(busy);
        assert_eq!(carom.exit_code(), Some(0));
        let lines = carom.log().iter().filter(|entry| entry["path"] == "/x").count();
        assert_eq!(lines, 5, "the log was not written to its end");
    }
}

#[test]
fn a_stop_closes_idle_connections_at_once() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut idle: Vec<_> = (0..5)
        .map(|_| {
            let mut client = carom.client();
            assert_eq!(client.get("a.test", "/").status(), 200);
            client
        })
        .collect();
    let began = Instant::now();
    carom.signal(Signal::TERM);
    for client in &mut idle {
        assert_eq!(client.expect_end(), End::Fin);
    }
    assert_eq!(carom.exit_code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
fn a_stop_without_anything_to_do_is_quick() {
    let carom = Carom::serving("\"a.test\" = 1\n").start();
    let began = Instant::now();
    carom.signal(Signal::TERM);
    assert_eq!(carom.exit_code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn a_connection_that_came_before_the_stop_is_served() {
    let a = Origin::named("a");
    for _ in 0..5 {
        let carom = Carom::to(a.port()).start();
        let mut client = carom.client();
        client.send(request("GET /x", "a.test", &[]));
        carom.signal(Signal::TERM);
        let response = client.response();
        assert_eq!(response.text(), "a GET /x");
        assert_eq!(carom.exit_code(), Some(0));
    }
}

#[test]
fn a_download_in_flight_is_finished() {
    let gate = Arc::new(Gate::default());
    let told = Arc::clone(&gate);
    let a = Origin::new(move |conn| {
        conn.request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        told.wait();
        conn.send("world");
        conn.wait_end();
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &[]));
    client.response_head();
    client.expect("hello");
    carom.signal(Signal::TERM);
    poll_until("that it stops listening", || TcpStream::connect(carom.address()).is_err());
    gate.open();
    client.expect("world");
    assert_eq!(client.expect_end(), End::Fin);
    assert_eq!(carom.exit_code(), Some(0));
}

#[test]
fn an_upload_in_flight_is_finished() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            conn.send(reply("200 OK", &[], &request.text()));
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &["Content-Length: 10"]) + "hello");
    a.wait("the head", |seen| seen.requests.first().map(|_| ()));
    carom.signal(Signal::TERM);
    poll_until("that it stops listening", || TcpStream::connect(carom.address()).is_err());
    client.send("world");
    assert_eq!(client.response_to("POST").text(), "helloworld");
    drop(client);
    assert_eq!(carom.exit_code(), Some(0));
}

#[test]
fn the_drain_deadline_ends_what_does_not_end() {
    let (a, gate) = held();
    let carom = Carom::to(a.port()).config("[timeouts]\ndrain = \"500ms\"").start();
    let mut request_in_flight = carom.client();
    request_in_flight.send(request("GET /x", "a.test", &[]));
    let mut tunnel = carom.client();
    tunnel.send(request("GET /chat", "a.test", &["Connection: Upgrade", "Upgrade: chat"]));
    assert_eq!(tunnel.response_head().status(), 101);
    a.wait("both requests", |seen| (seen.requests.len() == 2).then_some(()));
    let began = Instant::now();
    carom.signal(Signal::TERM);
    // Until then the tunnel goes on.
    tunnel.send("ping");
    tunnel.expect("ping");
    tunnel.drain();
    // Who still waits is told, and both are in the log.
    let response = request_in_flight.response();
    assert_eq!((response.status(), response.error()), (503, Some("draining")));
    request_in_flight.drain();
    assert_eq!(carom.logged_path("/chat")["reason"], "draining");
    assert_eq!(carom.exit_code(), Some(0));
    let took = began.elapsed();
    assert!(took > Duration::from_millis(400) && took < Duration::from_secs(5), "{took:?}");
    gate.open();
}

#[test]
fn a_second_signal_ends_at_once() {
    let (a, gate) = held();
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /x", "a.test", &[]));
    a.wait("the request", |seen| seen.requests.first().map(|_| ()));
    carom.signal(Signal::TERM);
    poll_until("that it stops listening", || TcpStream::connect(carom.address()).is_err());
    carom.assert_running();
    let began = Instant::now();
    carom.signal(Signal::TERM);
    let code = carom.exit_code();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_ne!(code, Some(0), "what was in flight was cut off");
    client.drain();
    gate.open();
}

#[test]
fn a_port_that_is_taken_says_which_and_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = Carom::serving("\"a.test\" = 1\n").listen(&[&address]).fail();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    assert!(said.contains(&address), "{said}");
    assert!(said.contains("in use"), "{said}");
    // Who holds it: this test.
    assert!(said.contains(&std::process::id().to_string()), "{said}");
}

#[test]
fn two_caroms_do_not_share_a_port() {
    let first = Carom::serving("\"a.test\" = 1\n").start();
    let address = first.address().to_string();
    let (code, said) = Carom::serving("\"a.test\" = 1\n").listen(&[&address]).fail();
    assert!(code.is_some_and(|code| code != 0), "{code:?}: {said}");
    assert!(said.contains(&address) && said.contains("in use"), "{said}");
}

#[test]
fn a_start_that_is_impossible_says_why() {
    let (code, said) = Carom::serving("\"a.test\" = \n").fail();
    assert!(code.is_some_and(|code| code != 0));
    assert!(said.contains("routes.toml:1:"), "{said}");
    let (code, said) = Carom::serving("\"a.test\" = 1\n").config("[timeouts]\nhaed = \"1s\"").fail();
    assert!(code.is_some_and(|code| code != 0));
    assert!(said.contains("carom.toml:2:") && said.contains("head"), "{said}");
    let (code, said) = Carom::serving("\"a.test\" = 1\n").listen(&["nonsense"]).fail();
    assert!(code.is_some_and(|code| code != 0));
    assert!(said.contains("nonsense"), "{said}");
    let (code, said) = run(Command::new(BINARY).args(["serve", "/nonexistent/routes.toml"]));
    assert!(code.is_some_and(|code| code != 0));
    assert!(said.contains("/nonexistent/routes.toml"), "{said}");
}

#[test]
fn a_route_to_its_own_listener_is_an_error() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, said) = Carom::serving(format!("\"a.test\" = {}\n", free.port())).listen(&[&free.to_string()]).fail();
    assert!(code.is_some_and(|code| code != 0), "{code:?}: {said}");
    assert!(said.contains("routes.toml:1:"), "{said}");
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    for arguments in [&["serve", "--no-such-flag"][..], &["check", "a", "b", "c"], &["serve", "--workers", "many"]] {
        let (code, said) = run(Command::new(BINARY).args(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(!said.is_empty());
    }
}

#[test]
fn the_version_and_the_help_are_there() {
    let (code, said) = run(Command::new(BINARY).arg("--version"));
    assert_eq!(code, Some(0));
    assert!(said.contains(env!("CARGO_PKG_VERSION")), "{said}");
    let (code, said) = run(Command::new(BINARY).arg("--help"));
    assert_eq!(code, Some(0));
    for verb in ["serve", "check", "explain", "demo"] {
        assert!(said.contains(verb), "{verb} in {said}");
    }
}

#[test]
fn a_flag_wins_over_the_configuration() {
    let a = Origin::named("a");
    let folder = tempfile::tempdir().unwrap();
    let text = "routes = \"none.toml\"\n[[listen]]\naddress = \"192.0.2.1:1\"\n";
    std::fs::write(folder.path().join("carom.toml"), text).unwrap();
    std::fs::write(folder.path().join("routes.toml"), format!("\"a.test\" = {}\n", a.port())).unwrap();
    let arguments = ["serve", "routes.toml", "--config", "carom.toml", "--listen", "127.0.0.1:0"];
    let carom = Carom::in_folder(folder, &arguments);
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
}

#[test]
fn the_routes_are_found_where_they_usually_are() {
    let a = Origin::named("a");
    let routes = format!("\"a.test\" = {}\n", a.port());
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("config")).unwrap();
    std::fs::write(folder.path().join("config/routes.toml"), &routes).unwrap();
    let carom = Carom::in_folder(folder, &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
}
