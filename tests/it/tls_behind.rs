//! Backends behind TLS: who they have to be, and that everything else is as without it.

use std::process::Command;
use std::sync::Arc;

use crate::support::carom::{BINARY, run};
use crate::support::inside::Inside;
use crate::support::origin::Secure;
use crate::support::tls::{self, leaf};
use crate::support::{Carom, End, Gate, Origin, pattern, reply, request, with_body};

/// A carom in whose folder the test's authority is `ca.pem`, with one route to this port by TLS.
fn to(port: u16) -> crate::support::carom::Setup {
    Carom::serving(format!("\"a.test\" = {{ to = \"https://localhost:{port}\", ca = \"ca.pem\" }}\n"))
        .file("ca.pem", &tls::root())
}

fn localhost() -> Secure {
    Secure::with(&leaf(&["localhost"]).make())
}

#[test]
fn requests_go_over_tls_and_its_connections_are_used_again() {
    let a = Origin::secure(localhost(), |conn| conn.serve("a"));
    let carom = to(a.port()).start();
    for path in ["/1", "/2", "/3"] {
        assert_eq!(carom.client().get("a.test", path).text(), format!("a GET {path}"));
    }
    assert_eq!(a.connections(), 1);
    assert_eq!(carom.logged_path("/1")["backend"], format!("https://localhost:{}", a.port()));
    let session = a.session(0);
    assert_eq!(session.server_name.as_deref(), Some("localhost"));
    assert_eq!(session.protocol.as_deref(), Some(&b"http/1.1"[..]));
}

#[test]
fn bodies_are_whole_in_both_directions() {
    let body = pattern(3 << 20);
    let answer = body.clone();
    let a = Origin::secure(localhost(), move |conn| {
        while let Some(request) = conn.request() {
            assert_eq!(request.body, answer);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
            conn.send([head.as_bytes(), &answer].concat());
        }
    });
    let carom = to(a.port()).start();
    let mut client = carom.client();
    for _ in 0..2 {
        let mut writer = client.second_hand();
        let head = request("POST /", "a.test", &[&format!("Content-Length: {}", body.len())]);
        let bytes = [head.as_bytes(), &body].concat();
        let sending = std::thread::spawn(move || writer.send(bytes));
        assert!(client.response_to("POST").body == body, "another body");
        sending.join().unwrap();
    }
}

#[test]
fn a_backend_is_looked_for_by_the_name_that_its_certificate_has() {
    let named = Origin::secure(Secure::with(&leaf(&["app.internal"]).make()), |conn| conn.serve("named"));
    let address = Origin::secure(Secure::with(&leaf(&["127.0.0.1"]).make()), |conn| conn.serve("address"));
    let routes = format!(
        "\"a.test\" = {{ to = \"https://127.0.0.1:{0}\", ca = \"ca.pem\", server_name = \"app.internal\" }}\n\
         \"b.test\" = {{ to = \"https://127.0.0.1:{1}\", ca = \"ca.pem\" }}\n\
         \"c.test\" = {{ to = [{{ to = \"https://127.0.0.1:{0}\", server_name = \"app.internal\" }}, \
         {{ to = \"https://127.0.0.1:{1}\", backup = true }}], ca = \"ca.pem\" }}\n",
        named.port(),
        address.port()
    );
    let carom = Carom::serving(routes).file("ca.pem", &tls::root()).start();
    for (host, name) in [("a.test", "named"), ("b.test", "address"), ("c.test", "named")] {
        assert_eq!(carom.client().get(host, "/").text(), format!("{name} GET /"));
    }
    assert_eq!(named.session(0).server_name.as_deref(), Some("app.internal"));
    // An address is not a name to ask for (RFC 6066 section 3).
    assert_eq!(address.session(0).server_name, None);
}

#[test]
fn a_backend_that_is_not_whom_it_has_to_be_gets_nothing() {
    let stranger = tls::stranger(&["localhost"]);
    for (certificate, words, page) in [
        (leaf(&["localhost"]).valid(-30, -1).make(), "expired", "has expired"),
        (leaf(&["localhost"]).valid(1, 30).make(), "not valid yet", "not valid yet"),
        (leaf(&["other.test"]).make(), "not valid for name", "for another name"),
        (stranger, "UnknownIssuer", "signed by nobody who is trusted"),
    ] {
        let a = Origin::secure(Secure::with(&certificate), |conn| conn.serve("a"));
        let carom = to(a.port()).start();
        let response = carom.client().get("a.test", "/");
        assert_eq!((response.status(), response.error()), (502, Some("backend-tls")));
        assert!(response.text().contains(page), "{}", response.text());
        assert_eq!(carom.logged_path("/")["reason"], "backend-tls");
        let said = carom.stderr(0, "why there is no TLS", |line| line.contains("no TLS to this backend"));
        assert!(said.contains("WARN") && said.contains(words), "{words} in {said}");
        assert!(a.requests().is_empty());
    }
}

#[test]
fn a_backend_that_has_signed_for_itself_may_be_named() {
    for (made, reason) in [
        (tls::stranger(&["localhost"]), None),
        (tls::self_signed(&["localhost"], -1, 1), None),
        (tls::self_signed(&["other.test"], -1, 1), Some("backend-tls")),
        (tls::self_signed(&["localhost"], -3, -1), Some("backend-tls")),
        (tls::self_signed(&["localhost"], 1, 3), Some("backend-tls")),
    ] {
        let a = Origin::secure(Secure::with(&made), |conn| conn.serve("a"));
        let routes = format!("\"a.test\" = {{ to = \"https://localhost:{}\", ca = \"its.pem\" }}\n", a.port());
        let carom = Carom::serving(routes).file("its.pem", &made.cert).start();
        assert_eq!(carom.client().get("a.test", "/").error(), reason);
    }
}

#[test]
fn a_file_that_has_changed_is_read_again_with_the_routes() {
    let a = Origin::secure(localhost(), |conn| conn.serve("a"));
    let carom = to(a.port()).start();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    std::fs::write(carom.folder().join("ca.pem"), tls::stranger(&["x.test"]).cert).unwrap();
    let mark = carom.mark();
    carom.signal(rustix::process::Signal::HUP);
    let said = carom.stderr(mark, "that it has changed", |line| line.contains("a.test"));
    assert!(said.contains("changed within"), "{said}");
    assert_eq!(carom.client().get("a.test", "/").error(), Some("backend-tls"));
    // One that can't be used changes nothing.
    std::fs::write(carom.folder().join("ca.pem"), "").unwrap();
    carom.signal(rustix::process::Signal::HUP);
    carom.stderr(mark, "that it was not applied", |line| line.contains("was not applied"));
    assert_eq!(carom.client().get("a.test", "/").error(), Some("backend-tls"));
}

#[test]
fn a_backend_that_speaks_no_tls_or_breaks_off_is_said_to() {
    let plain = Origin::new(|conn| {
        conn.some();
        conn.send(reply("400 Bad Request", &[], "no TLS here"));
        while conn.some().is_some() {}
    });
    let rude = Origin::new(|conn| {
        conn.some();
    });
    for (origin, page) in [(&plain, "does not speak TLS"), (&rude, "ended the connection within the TLS handshake")] {
        let response = to(origin.port()).start().client().get("a.test", "/");
        assert_eq!((response.status(), response.error()), (502, Some("backend-tls")));
        assert!(response.text().contains(page), "{}", response.text());
    }
}

#[test]
fn connecting_is_over_when_the_handshake_is() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let silent = Origin::new(move |_| opened.wait());
    let response = to(silent.port()).config("[timeouts]\nconnect = \"400ms\"").start().client().get("a.test", "/");
    assert_eq!((response.status(), response.error()), (504, Some("connect-timeout")));
    gate.open();
}

#[test]
fn the_next_instance_is_tried_where_the_handshake_fails() {
    let bad = Origin::secure(Secure::with(&leaf(&["other.test"]).make()), |conn| conn.serve("bad"));
    let good = Origin::secure(localhost(), |conn| conn.serve("good"));
    let target = |origin: &Origin| format!("\"https://localhost:{}\"", origin.port());
    let routes = format!("\"a.test\" = {{ to = [{}, {}], ca = \"ca.pem\" }}\n", target(&bad), target(&good));
    let carom = Carom::serving(routes).file("ca.pem", &tls::root()).start();
    for _ in 0..4 {
        assert_eq!(carom.client().ask(with_body("POST /", "a.test", "x")).text(), "good POST /");
    }
    assert!(bad.requests().is_empty());
}

#[test]
fn without_a_named_file_the_system_is_trusted() {
    let a = Origin::secure(localhost(), |conn| conn.serve("a"));
    let routes = format!("\"a.test\" = \"https://localhost:{}\"\n", a.port());
    let response = Carom::serving(&routes).start().client().get("a.test", "/");
    assert_eq!(response.error(), Some("backend-tls"), "nobody has told the system of this authority");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system.pem");
    std::fs::write(&file, tls::root()).unwrap();
    let carom = Carom::serving(&routes).environment("SSL_CERT_FILE", file.to_str().unwrap()).start();
    assert_eq!(carom.client().get("a.test", "/").text(), "a GET /");
}

#[test]
fn insecure_takes_whoever_comes_and_says_so_each_time() {
    let a = Origin::secure(Secure::with(&tls::stranger(&["other.test"])), |conn| conn.serve("a"));
    let routes = format!("# by hand\n\"a.test\" = {{ to = \"https://localhost:{}\", insecure = true }}\n", a.port());
    let carom = Carom::serving(&routes).start();
    assert_eq!(carom.client().get("a.test", "/").text(), "a GET /");
    let is_warning = |line: &str| line.starts_with("warning: routes.toml:2: ") && line.contains("is not verified");
    carom.stderr(0, "that it does not verify", is_warning);
    let mark = carom.mark();
    carom.reroute(&format!("{routes}\"b.test\" = 1\n"));
    carom.stderr(mark, "that it still does not verify", is_warning);
    let (code, said) = run(Command::new(BINARY).arg("check").arg(carom.routes_file()));
    assert_eq!(code, Some(0));
    assert!(said.contains("is not verified (insecure = true)"), "{said}");
}

#[test]
fn a_backend_that_asks_who_we_are_is_told() {
    let a = Origin::secure(localhost().asking_who_comes(), |conn| conn.serve("a"));
    let me = leaf(&["carom.internal"]).make();
    let target = format!("to = \"https://localhost:{}\", ca = \"ca.pem\"", a.port());
    let routes = format!(
        "\"two.test\" = {{ {target}, client_cert = \"me.pem\", client_key = \"me.key\" }}\n\
         \"one.test\" = {{ {target}, client_cert = \"whole.pem\" }}\n\"none.test\" = {{ {target} }}\n"
    );
    let carom = Carom::serving(routes)
        .file("ca.pem", &tls::root())
        .file("me.pem", &me.fullchain())
        .file("me.key", &me.key)
        .file("whole.pem", &me.whole())
        .start();
    for host in ["two.test", "one.test"] {
        assert_eq!(carom.client().get(host, "/").text(), "a GET /");
    }
    let response = carom.client().get("none.test", "/");
    assert_eq!((response.status(), response.error()), (502, Some("backend-tls")));
    assert_eq!(a.lines(), ["GET /", "GET /"]);
}

#[test]
fn files_that_can_not_be_used_are_said_with_the_line_that_names_them() {
    let (one, other) = (leaf(&["a.test"]).make(), leaf(&["b.test"]).make());
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("one.pem", one.fullchain()), ("other.key", other.key), ("ca.pem", tls::root())] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::write(folder.path().join("broken.pem"), "-----BEGIN CERTIFICATE-----\nMII").unwrap();
    for (said, place, words) in [
        ("ca = \"ca.pem\"", "", "is fine"),
        ("ca = \"gone.pem\"", "1:50", "gone.pem can't be read"),
        ("ca = \"broken.pem\"", "1:50", "broken.pem"),
        ("ca = \"other.key\"", "1:50", "no certificate in"),
        ("client_cert = \"one.pem\"", "1:59", "no private key in"),
        ("client_cert = \"one.pem\", client_key = \"other.key\"", "1:59", "can't be used"),
    ] {
        let routes = format!("\"a.test\" = {{ to = \"https://localhost:8443\", {said} }}\n");
        std::fs::write(folder.path().join("routes.toml"), routes).unwrap();
        // From another folder: what the file names is beside the file.
        let (_, out) = run(Command::new(BINARY).arg("check").arg(folder.path().join("routes.toml")).current_dir("/"));
        assert!(out.contains(words) && out.contains(place), "{said}: {out}");
    }
}

#[test]
fn a_body_that_ends_with_its_connection_has_to_end_by_tls() {
    // Whoever is on the way can end a connection, but can't say that this was meant.
    for meant in [true, false] {
        let a = Origin::secure(localhost(), move |conn| {
            if conn.request().is_some() {
                conn.send("HTTP/1.1 200 OK\r\n\r\nas far as it goes");
                if meant {
                    conn.half_close();
                }
            }
        });
        let carom = to(a.port()).start();
        let mut client = carom.client();
        client.send(request("GET /", "a.test", &[]));
        if meant {
            assert_eq!(client.response().text(), "as far as it goes");
            assert!(carom.logged_path("/")["reason"].is_null());
        } else {
            client.response_head();
            assert_eq!(client.drain(), End::Reset, "a broken body must not look whole");
            assert_eq!(carom.logged_path("/")["reason"], "backend-closed-mid-body");
        }
    }
}

#[test]
fn an_idle_connection_that_the_backend_ends_is_nobodys_failure() {
    let a = Origin::secure(localhost(), |conn| {
        if let Some(request) = conn.request() {
            conn.answer("a", &request);
            conn.half_close();
        }
    });
    let carom = to(a.port()).start();
    let mut client = carom.client();
    for connection in 0..4 {
        assert_eq!(client.ask(with_body("POST /", "a.test", "x")).text(), "a POST /");
        a.wait_over(connection);
    }
    // Each but the first is shorter: what was agreed on is remembered.
    assert!(!a.session(0).resumed);
    assert!((1..4).all(|connection| a.session(connection).resumed));
}

#[test]
fn websockets_go_through_it() {
    let a = Origin::secure(localhost(), |conn| {
        if conn.request().is_some() {
            conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello");
            conn.echo();
        }
    });
    let carom = to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &["Connection: Upgrade", "Upgrade: websocket"]));
    assert_eq!(client.response_head().status(), 101);
    client.expect("hello");
    for _ in 0..3 {
        client.send(pattern(10_000));
        client.expect(pattern(10_000));
    }
    // The end of one side is passed on, and so is the other's answer to it.
    client.half_close();
    assert_eq!(client.expect_end(), End::Fin);
    assert_eq!(a.wait_end(0), End::Fin);
}

#[test]
fn a_proxy_header_comes_before_the_handshake() {
    let a = Origin::secure(localhost().behind_a_line(), |conn| conn.serve("a"));
    let routes =
        format!("\"a.test\" = {{ to = \"https://localhost:{}\", ca = \"ca.pem\", send_proxy = \"v1\" }}\n", a.port());
    let carom = Carom::serving(routes).file("ca.pem", &tls::root()).start();
    let mut client = carom.client();
    for _ in 0..2 {
        assert_eq!(client.get("a.test", "/").text(), "a GET /");
    }
    assert_eq!(a.connections(), 1);
    assert!(a.session(0).line.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{}", a.session(0).line);
}

#[test]
fn a_save_that_changes_whom_to_trust_makes_new_connections() {
    let a = Origin::secure(localhost(), |conn| conn.serve("a"));
    let carom = to(a.port()).file("other.pem", &tls::stranger(&["x.test"]).cert).start();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    let said =
        carom.reroute(&format!("\"a.test\" = {{ to = \"https://localhost:{}\", ca = \"other.pem\" }}\n", a.port()));
    let url = format!("https://localhost:{}", a.port());
    assert!(said.ends_with(&format!("~ a.test {url} (ca ca.pem) → {url} (ca other.pem)")), "{said}");
    assert_eq!(carom.client().get("a.test", "/").error(), Some("backend-tls"));
}

#[test]
fn a_closure_may_name_an_https_url() {
    let a = Origin::secure(localhost(), |conn| conn.serve("a"));
    let port = a.port();
    let proxy = Inside::deciding(async move |_: &carom::Head<'_>, bounce: carom::Bounce| {
        bounce.to(format!("https://localhost:{port}"))
    });
    // The system does not trust this test's authority, and so the closure does not either.
    assert_eq!(proxy.client().get("a.test", "/").error(), Some("backend-tls"));
    assert!(a.requests().is_empty());
}
