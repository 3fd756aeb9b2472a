//! The control socket: whose it is, what it stands, and what the verbs say that speak over it.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rustix::process::Signal;

use crate::support::origin::DeadPort;
use crate::support::{Carom, Client, Gate, Origin, PATIENCE, poll_until, reply, request, with_body};

/// Clients that ask `a.test` again and again, with GETs and POSTs, and fail over anything but a 200.
struct Load {
    over: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn on(carom: &Carom) -> Self {
        let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let address = carom.address();
        let threads = (0..4)
            .map(|number| {
                let (over, served) = (Arc::clone(&over), Arc::clone(&served));
                std::thread::spawn(move || {
                    let mut client = Client::connect(address);
                    while !over.load(Ordering::SeqCst) {
                        let answer = match number % 2 {
                            0 => client.get("a.test", "/"),
                            _ => client.ask(with_body("POST /", "a.test", "some body")),
                        };
                        assert_eq!(answer.status(), 200, "{:?}", answer.error());
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        Self { over, served, threads }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }

    /// Waits until some more have been served.
    fn goes_on(&self) {
        let before = self.served();
        poll_until("that requests are served", || self.served() > before + 20);
    }

    /// None has failed.
    fn end(self) {
        self.over.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("a request failed");
        }
    }
}

/// Bytes to the control socket, and all that comes back before it closes.
fn raw(socket: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    // It may have closed before all was written.
    let _ = stream.write_all(bytes).and_then(|()| stream.read_to_string(&mut text).map(drop));
    text
}

#[test]
fn status_says_what_there_is_as_json() {
    let (a, dead) = (Origin::named("a"), DeadPort::new());
    let routes = format!(
        "[\"a.test\"]\nto = [{}, {{ to = {}, weight = 3, backup = true }}]\nalso = [\"WWW.a.test\"]\n\
         [\"b.test\"]\nto = {}\nhealth = {{ path = \"/up\", interval = \"100ms\" }}\n\
         [\"c.test\"]\nrespond = {{ status = 200 }}\n",
        a.port(),
        dead.port(),
        dead.port()
    );
    let carom = Carom::serving(routes).start();
    carom.stderr(0, "that it is down", |line| line.contains("a backend is down"));
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").status(), 200);
    // A line is logged before what is said of it is to be seen.
    poll_until("that it is known to be down", || carom.status()["sites"][1]["instances"][0]["since"].is_string());
    let status = carom.status();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["connections"], 1);
    assert_eq!(status["listening"][0], format!("http://{}", carom.address()));
    assert!(status["routes"]["path"].as_str().unwrap().ends_with("routes.toml"), "{status}");
    assert!(status["routes"]["broken"].is_null() && status["routes"]["applied"].is_string(), "{status}");
    let sites = status["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 2, "those that have instances: {status}");
    let (site, checked) = (&sites[0], &sites[1]["instances"][0]);
    assert_eq!((site["name"].as_str(), site["line"].as_u64()), (Some("a.test"), Some(1)));
    assert_eq!(site["also"][0], "www.a.test");
    let (first, second) = (&site["instances"][0], &site["instances"][1]);
    assert_eq!((first["name"].as_str(), first["state"].as_str()), (Some(&*a.port().to_string()), Some("up")));
    assert_eq!((first["requests"].as_u64(), first["in_flight"].as_u64()), (Some(1), Some(0)));
    assert_eq!((second["weight"].as_u64(), second["backup"].as_bool()), (Some(3), Some(true)));
    assert_eq!((checked["state"].as_str(), checked["why"].as_str()), (Some("down"), Some("backend-refused")));
    assert_eq!(checked["back"], "1 good answer to GET /up every 100ms");
}

#[test]
fn status_for_people_fits_a_terminal_and_shows_one_site_where_one_is_asked_for() {
    let (a, dead) = (Origin::named("a"), DeadPort::new());
    let routes = format!(
        "\"a.test\" = {}\n[\"{}test\"]\nto = {}\nhealth = {{ path = \"/up\", interval = \"100ms\" }}\n",
        a.port(),
        "very-long-name.".repeat(12),
        dead.port()
    );
    let carom = Carom::serving(routes).start();
    carom.stderr(0, "that it is down", |line| line.contains("a backend is down"));
    let (code, said) = carom.verb(&["status"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("a.test, line 1") && said.contains(" up ") && said.contains(" DOWN "), "{said}");
    assert!(said.contains("backend-refused") && said.contains("back by 1 good answer to GET /up"), "{said}");
    // The name of a temporary folder is as long as it is.
    let mut lines = said.lines().filter(|line| !line.contains("routes.toml"));
    assert!(lines.all(|line| line.chars().count() <= 100 && !line.contains('\u{1b}')), "{said}");
    let (code, said) = carom.verb(&["status", "A.test."]);
    assert!(code == Some(0) && said.contains("a.test, line 1") && !said.contains("very-long-name"), "{said}");
    let (code, said) = carom.verb(&["status", "c.test"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("no site c.test; there are a.test, very-long-name"), "{said}");
}

#[test]
fn a_file_that_is_broken_is_said_loudly_while_the_last_table_runs() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mark = carom.mark();
    carom.save_by_rename("\"a.test\" = 99999\n");
    carom.stderr(mark, "that it was not applied", |line| line.contains("was not applied"));
    let (_, said) = carom.verb(&["status"]);
    assert!(said.contains("OLDER THAN THE FILE") && said.contains("routes.toml:1:12"), "{said}");
    assert!(carom.status()["routes"]["broken"].as_str().unwrap().contains("99999"));
    let (code, said) = carom.verb(&["reload"]);
    assert!(code == Some(1) && said.contains("routes.toml:1:12"), "{said}");
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    std::fs::write(carom.routes_file(), format!("\"b.test\" = {}\n", a.port())).unwrap();
    let (code, said) = carom.verb(&["reload"]);
    assert!(code == Some(0) && said.contains("routes.toml changed: + b.test"), "{said}");
    assert_eq!(carom.client().get("b.test", "/").status(), 200, "it is live before the verb ends");
    assert!(carom.status()["routes"]["broken"].is_null());
    let (code, said) = carom.verb(&["reload"]);
    assert!(code == Some(0) && said.contains("no route has changed"), "{said}");
}

#[test]
fn the_socket_is_its_users_alone_and_goes_away_at_the_end() {
    let carom = Carom::to(1).start();
    let socket = carom.control();
    assert_eq!(socket.metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(socket.parent().unwrap().metadata().unwrap().mode() & 0o777, 0o700);
    carom.signal(Signal::TERM);
    assert_eq!(carom.exit_code(), Some(0));
    assert!(!socket.exists());
    let (code, said) = carom.verb(&["status"]);
    assert_eq!(code, Some(3));
    assert!(said.contains("no carom runs here") && said.contains("control.sock"), "{said}");
}

#[test]
fn a_dead_ones_socket_is_replaced_and_a_living_ones_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.sock");
    drop(UnixListener::bind(&path).unwrap());
    let here = format!("control = {:?}", path.display().to_string());
    let carom = Carom::to(1).config(&here).start();
    let (code, said) = carom.verb(&["status", "--control", path.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    // Who asks for a socket by name has to get it.
    let (code, said) = Carom::to(1).config(&here).fail();
    assert!(code == Some(3) && said.contains("another carom answers there"), "{said}");
    let (code, said) = carom.verb(&["status", "--control", path.to_str().unwrap()]);
    assert_eq!(code, Some(0), "the second has not taken it: {said}");
}

#[test]
fn it_serves_without_the_usual_socket_and_without_any_where_none_is_wanted() {
    let a = Origin::named("a");
    let long = "x".repeat(150);
    let routes = format!("\"a.test\" = {}\n", a.port());
    let carom = Carom::serving(&routes).environment("RUNTIME_DIRECTORY", &format!("/tmp/{long}")).start();
    assert!(carom.said(0).iter().any(|line| line.contains("it serves without")), "{:?}", carom.said(0));
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    let carom = Carom::serving(&routes).config("control = \"off\"").start();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    assert_eq!(carom.verb(&["status"]).0, Some(3));
    let (code, said) = carom.verb(&["status", "--config", "carom.toml"]);
    assert!(code == Some(1) && said.contains("the control socket is off"), "{said}");
}

#[test]
fn hostile_bytes_on_the_socket_hurt_nobody() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let socket = carom.control();
    let half = UnixStream::connect(&socket).unwrap();
    (&half).write_all(b"GET /v1/status HT").unwrap();
    let long = format!("POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 10 << 20);
    let large = [long.as_bytes(), &vec![b'x'; 1 << 20]].concat();
    for (bytes, want) in [
        (&b"\0\xff\xfe garbage \r\n\r\n"[..], ""),
        (b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", " 404 "),
        (b"DELETE /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", " 405 "),
        (b"POST /v1/drain HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\n[1,2]", " 400 "),
        (b"POST /v1/drain HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", " 400 "),
        (b"GET /v1/status?site=%zz%f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", " 404 "),
        (&large, ""),
    ] {
        let got = raw(&socket, bytes);
        assert!(got.contains(want), "{want}: {got}");
    }
    let crowd: Vec<_> = (0..100).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
    drop(crowd);
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    assert_eq!(carom.verb(&["status"]).0, Some(0));
    drop(half);
}

#[test]
fn an_instance_is_drained_under_load_and_no_request_fails() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let routes = format!("\"a.test\" = [{}, {}]\n", a.port(), b.port());
    let carom = Carom::serving(&routes).workers(2).start();
    let load = Load::on(&carom);
    let port = b.port().to_string();
    for round in 0..5 {
        load.goes_on();
        let (code, said) = carom.verb(&["drain", "a.test", &port, "--wait", "20s"]);
        assert_eq!(code, Some(0), "{said}");
        let before = b.requests().len();
        load.goes_on();
        // A save leaves it as it is.
        carom.reroute(&format!("{routes}\"b{round}.test\" = 1\n"));
        load.goes_on();
        assert_eq!(b.requests().len(), before, "it is idle");
        let (code, said) = carom.verb(&["undrain", "a.test", &format!("localhost:{port}")]);
        assert_eq!(code, Some(0), "{said}");
        poll_until("that it serves again", || b.requests().len() > before);
    }
    load.end();
    let said = carom.said(0).join("\n");
    assert!(said.contains("an instance is drained: it gets no new requests"), "{said}");
}

#[test]
fn a_drain_that_lasts_too_long_says_how_many_are_left_and_lets_them_go_on() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let a = Origin::new(move |conn| {
        while conn.request().is_some() {
            opened.wait();
            conn.send(reply("200 OK", &[], "late"));
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &[]));
    poll_until("that it is with the backend", || !a.requests().is_empty());
    let port = a.port().to_string();
    let (code, said) = carom.verb(&["drain", "a.test", &port, "--wait", "200ms"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 are with it") && said.contains("1 requests are still with"), "{said}");
    assert!(said.contains("nobody is left to serve it"), "{said}");
    assert_eq!(carom.status()["sites"][0]["instances"][0]["state"], "draining");
    assert_eq!(carom.client().get("a.test", "/").error(), Some("no-backend"), "the last one too, if it has to be");
    gate.open();
    assert_eq!(client.response().text(), "late");
    poll_until("that it is idle", || carom.status()["sites"][0]["instances"][0]["state"] == "drained");
    for (arguments, why) in [
        (["drain", "b.test", &*port], "no site b.test; there is a.test"),
        (["drain", "a.test", "9"], "a.test has no instance 9; there is "),
    ] {
        let (code, said) = carom.verb(&arguments);
        assert!(code == Some(1) && said.contains(why), "{said}");
    }
    assert_eq!(carom.verb(&["undrain", "a.test", &port]).0, Some(0));
    assert_eq!(carom.client().get("a.test", "/").text(), "late");
}
