//! The control socket: whose it is, what it stands, and what the verbs say that speak over it.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use rustix::process::Signal;

use crate::support::load::Load;
use crate::support::origin::DeadPort;
use crate::support::{Carom, Gate, Origin, PATIENCE, poll_until, reply, request};

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
    assert_eq!((first["ended"]["success"].as_u64(), site["ended"]["success"].as_u64()), (Some(1), Some(1)));
    assert_eq!((second["weight"].as_u64(), second["backup"].as_bool()), (Some(3), Some(true)));
    assert_eq!((checked["state"].as_str(), checked["why"].as_str()), (Some("down"), Some("backend-refused")));
    assert_eq!(checked["back"], "1 good answer to GET /up every 100ms");
}

#[test]
fn status_says_how_long_requests_took_where_somebody_hears_of_all() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let routes = format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), b.port());
    let carom = Carom::serving(&routes).start();
    for _ in 0..3 {
        assert_eq!(carom.client().get("a.test", "/").status(), 200);
    }
    // Workers hand over what they have counted ten times a second.
    poll_until("that all are counted", || carom.status()["sites"][0]["took"]["count"] == 3);
    let status = carom.status();
    for took in [&status["sites"][0]["took"], &status["sites"][0]["instances"][0]["took"]] {
        let within = took["within"].as_array().unwrap().iter().map(|bound| bound[1].as_u64().unwrap());
        assert_eq!((took["count"].as_u64(), within.sum()), (Some(3), 3), "{took}");
        assert!(took["sum_seconds"].as_f64() > Some(0.0), "{took}");
    }
    assert_eq!(status["sites"][1]["took"]["count"], 0);
    let carom = Carom::serving(&routes).log("access = \"off\"").start();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    let status = carom.status();
    assert!(status["sites"][0]["took"].is_null() && status["sites"][0]["instances"][0]["took"].is_null(), "{status}");
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
fn top_without_a_terminal_says_what_to_use_instead() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let (code, said) = carom.verb(&["top"]);
    assert!(code == Some(1) && said.contains("carom status --json"), "{said}");
    let (code, said) = carom.verb(&["top", "--interval", "1ms"]);
    assert!(code == Some(2) && said.contains("between 100ms and 1h"), "{said}");
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
    // Where the save has been noticed before it was asked for, nothing was left to change.
    assert_eq!(code, Some(0), "{said}");
    assert!(["routes.toml changed: + b.test", "no route has changed"].iter().any(|text| said.contains(text)), "{said}");
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
    let load = Load::on(&carom, 4);
    let port = b.port().to_string();
    for round in 0..5 {
        load.run(20);
        let (code, said) = carom.verb(&["drain", "a.test", &port, "--wait", "20s"]);
        assert_eq!(code, Some(0), "{said}");
        let before = b.requests().len();
        load.run(20);
        // A save leaves it as it is.
        carom.reroute(&format!("{routes}\"b{round}.test\" = 1\n"));
        load.run(20);
        assert_eq!(b.requests().len(), before, "it is idle");
        let (code, said) = carom.verb(&["undrain", "a.test", &format!("localhost:{port}")]);
        assert_eq!(code, Some(0), "{said}");
        poll_until("that it serves again", || b.requests().len() > before);
    }
    assert_eq!(load.end().failed(None), 0);
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
    assert!(said.contains("; 1 in flight") && said.contains("has 1 in flight still"), "{said}");
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

#[test]
fn each_request_is_counted_once_by_how_it_has_ended_and_over_saves() {
    let dead = DeadPort::new();
    let a = Origin::obliging();
    let routes =
        |weight: u32| format!("[\"a.test\"]\nto = [{{ to = {}, weight = {weight} }}, {}]\n", a.port(), dead.port());
    let carom = Carom::serving(routes(2)).workers(2).start();
    let mut client = carom.client();
    for (round, status) in (3..).zip([200, 201, 301, 404, 500, 503]) {
        assert_eq!(client.get("a.test", &format!("/{status}")).status(), status);
        carom.reroute(&routes(round));
    }
    client.send(request("GET /cut", "a.test", &[]));
    client.cut_response();
    poll_until("that all are counted", || carom.status()["sites"][0]["ended"]["failed"] == 1);
    let status = carom.status();
    let (site, instances) = (&status["sites"][0]["ended"], &status["sites"][0]["instances"]);
    for (key, count) in [("success", 2), ("redirect", 1), ("client_error", 1), ("server_error", 2), ("failed", 1)] {
        assert_eq!(site[key], count, "{key}: {site}");
        assert_eq!(instances[0]["ended"][key], count, "{key}: {instances}");
    }
    assert_eq!((&site["own"], &site["unanswered"], &site["tunnels"]), (&0.into(), &0.into(), &0.into()));
    // What was refused there has been served by the other.
    assert_eq!(instances[1]["ended"]["failed"], instances[1]["requests"]);
}
