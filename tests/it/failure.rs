//! Backends that are away, slow, wrong or gone, and clients that are gone: what the other side is told, and at once.

use std::time::Instant;

use crate::support::origin::{DeadPort, FullPort};
use crate::support::{Carom, End, Message, Origin, reply, request, with_body};

/// What a client gets from this backend, with the log's line checked against it.
#[track_caller]
fn outcome(a: &Origin, config: &str, bytes: &str) -> Message {
    let carom = Carom::to(a.port()).config(config).start();
    let response = carom.client().ask(bytes);
    let entry = carom.logged_path("/x");
    assert_eq!(entry["status"], response.status());
    assert_eq!(entry["reason"].as_str(), response.error());
    carom.assert_running();
    response
}

#[test]
fn a_port_where_nobody_listens_is_a_502_that_says_so() {
    let dead = DeadPort::new();
    let a = Origin::named("a");
    let carom = Carom::serving(format!("\"dead.test\" = {}\n\"a.test\" = {}\n", dead.port(), a.port())).start();
    let mut client = carom.client();
    for bytes in [request("GET /1", "dead.test", &[]), with_body("POST /2", "dead.test", "GET / HTTP/1.1\r\n\r\n")] {
        let response = client.ask(bytes);
        assert_eq!((response.status(), response.error()), (502, Some("backend-refused")));
        assert_ne!(response.field("connection"), Some("close"));
        // The connection goes on.
        assert_eq!(client.get("a.test", "/").status(), 200);
    }
    let entry = carom.logged_path("/1");
    assert_eq!((&entry["status"], &entry["reason"]), (&502.into(), &"backend-refused".into()));
    assert_eq!(entry["backend"].to_string().trim_matches('"'), dead.port().to_string());
}

#[test]
fn a_socket_file_that_is_not_there_is_a_502() {
    let folder = tempfile::tempdir().unwrap();
    let carom = Carom::serving(format!("\"a.test\" = \"unix:{}/none.sock\"\n", folder.path().display())).start();
    let response = carom.client().get("a.test", "/");
    assert_eq!(response.status(), 502);
    assert!(
        ["backend-refused", "backend-unreachable"].contains(&response.error().unwrap_or("")),
        "{:?}",
        response.error()
    );
}

#[test]
fn a_backend_that_closes_before_its_head_is_whole_is_a_502() {
    for (name, sent) in [
        ("nothing", ""),
        ("half a status line", "HTTP/1.1 20"),
        ("half a head", "HTTP/1.1 200 OK\r\nContent-Len"),
        ("a head without its end", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"),
        ("an interim response", "HTTP/1.1 103 Early Hints\r\n\r\n"),
    ] {
        for reset in [false, true] {
            let a = Origin::new(move |conn| {
                conn.request();
                conn.send(sent);
                if reset {
                    conn.pause(20);
                    conn.reset();
                }
            });
            let response = outcome(&a, "", &request("GET /x", "a.test", &[]));
            let why = if sent.is_empty() { "backend-closed" } else { "backend-closed-mid-head" };
            assert_eq!((response.status(), response.error()), (502, Some(why)), "{name}, reset: {reset}");
        }
    }
}

#[test]
fn a_backend_that_talks_nonsense_is_a_502() {
    for head in [
        "HELLO WORLD\r\n\r\n",
        "<html>hi</html>\r\n\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A : b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\njunk\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: a\x01b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: a\rX-B: b\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nX-A: b\nContent-Length: 0\r\n\r\n",
    ] {
        let a = Origin::replying_once(head);
        let response = outcome(&a, "", &request("GET /x", "a.test", &[]));
        assert_eq!((response.status(), response.error()), (502, Some("backend-garbled")), "{head:?}");
    }
}

#[test]
fn a_silent_backend_is_a_504() {
    let config = "[timeouts]\nresponse_head = \"300ms\"";
    for sent in ["", "HTTP/1.1 200 OK\r\nX"] {
        let a = Origin::new(move |conn| {
            conn.request();
            conn.send(sent);
            conn.wait_end();
        });
        let began = Instant::now();
        let response = outcome(&a, config, &request("GET /x", "a.test", &[]));
        assert_eq!((response.status(), response.error()), (504, Some("response-timeout")), "after {sent:?}");
        assert!(began.elapsed().as_secs() < 5);
        a.wait_end(0);
    }
}

#[test]
fn a_backend_that_can_not_be_connected_to_is_a_504() {
    let full = FullPort::new();
    let a = Origin::named("a");
    let routes =
        format!("\"full.test\" = \"127.0.0.1:{0}\"\n\"both.test\" = [\"127.0.0.1:{0}\", {1}]\n", full.port(), a.port());
    let carom = Carom::serving(routes).config("[timeouts]\nconnect = \"300ms\"").start();
    let response = carom.client().get("full.test", "/");
    assert_eq!((response.status(), response.error()), (504, Some("connect-timeout")));
    // With another instance, that one answers.
    let mut client = carom.client();
    for _ in 0..2 {
        assert_eq!(client.get("both.test", "/").text(), "a GET /");
    }
}

#[test]
fn where_one_instance_refuses_the_next_one_answers() {
    let (dead, b) = (DeadPort::new(), Origin::named("b"));
    let carom = Carom::serving(format!("\"a.test\" = [{}, {}]\n", dead.port(), b.port())).start();
    let mut client = carom.client();
    for _ in 0..4 {
        assert_eq!(client.get("a.test", "/get").text(), "b GET /get");
        assert_eq!(client.ask(with_body("POST /post", "a.test", "hello")).text(), "b POST /post");
    }
    // Nothing of a request had been sent: a POST may go on as well.
    assert!(b.requests().iter().filter(|r| r.method() == "POST").all(|r| r.text() == "hello"));
    assert_eq!(b.lines().len(), 8);
    let dead_too = DeadPort::new();
    carom.reroute(&format!("\"a.test\" = [{}, {}]\n", dead.port(), dead_too.port()));
    let response = client.get("a.test", "/none");
    assert_eq!((response.status(), response.error()), (502, Some("backend-refused")));
    assert_eq!(carom.logged_path("/none")["tries"], 2);
}

#[test]
fn a_post_that_a_backend_took_and_dropped_is_not_sent_to_another() {
    let taking = || {
        Origin::new(|conn| {
            conn.request();
        })
    };
    let (a, b) = (taking(), taking());
    let carom = Carom::serving(format!("\"a.test\" = [{}, {}]\n", a.port(), b.port())).start();
    let response = carom.client().ask(with_body("POST /", "a.test", "hello"));
    assert_eq!((response.status(), response.error()), (502, Some("backend-closed")));
    assert_eq!(a.lines().len() + b.lines().len(), 1);
}

#[test]
fn a_backend_that_closes_before_it_has_the_body_is_an_answer_and_no_hang() {
    let a = Origin::new(|conn| {
        conn.head();
    });
    let carom = Carom::to(a.port()).start();
    for _ in 0..10 {
        let mut client = carom.client();
        client.send(request("POST /", "a.test", &["Content-Length: 3000000"]));
        let body = vec![b'x'; 100_000];
        for _ in 0..30 {
            client.try_send(&body);
        }
        let response = client.response_to("POST");
        assert_eq!((response.status(), response.error()), (502, Some("backend-closed")));
    }
}

#[test]
fn a_connection_is_kept_behind_a_404_and_a_502() {
    let (dead, a) = (DeadPort::new(), Origin::named("a"));
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"dead.test\" = {}\n", a.port(), dead.port())).start();
    let mut client = carom.client();
    for _ in 0..3 {
        assert_eq!(client.get("nobody.test", "/").status(), 404);
        assert_eq!(client.get("dead.test", "/").status(), 502);
        // Also with a body that nobody took.
        assert_eq!(client.ask(with_body("POST /", "nobody.test", "GET /hidden HTTP/1.1\r\n\r\n")).status(), 404);
        let chunks = request("POST /", "dead.test", &["Transfer-Encoding: chunked"]) + "5\r\nhello\r\n0\r\n\r\n";
        assert_eq!(client.ask(chunks).status(), 502);
        assert_eq!(client.get("a.test", "/").status(), 200);
    }
    assert_eq!(a.lines().len(), 3);
}

#[test]
fn a_browser_gets_a_page_and_a_program_a_line_of_text() {
    let carom = Carom::serving("\"a.test\" = 1\n").start();
    let mut client = carom.client();
    for accept in ["text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json, text/html;q=0.9"] {
        let response = client.ask(request("GET /", "nobody.test", &[&format!("Accept: {accept}")]));
        let kind = response.field("content-type").unwrap_or("");
        assert!(kind.starts_with("text/html"), "{accept}: {kind}");
        assert!(response.text().contains("<title>") && response.text().contains("no-route"));
    }
    for accept in [&[][..], &["Accept: */*"], &["Accept: application/json"]] {
        let response = client.ask(request("GET /", "nobody.test", accept));
        let kind = response.field("content-type").unwrap_or("");
        assert!(kind.starts_with("text/plain"), "{accept:?}: {kind}");
        assert!(response.text().contains("no-route") && response.text().lines().count() == 1);
    }
}

#[test]
fn an_answer_to_head_is_a_head() {
    let carom = Carom::serving("\"a.test\" = 1\n").start();
    let mut client = carom.client();
    let get = client.get("nobody.test", "/");
    let head = client.ask(request("HEAD /", "nobody.test", &[]));
    assert_eq!((head.status(), head.error()), (404, Some("no-route")));
    assert_eq!(head.field("content-length"), get.field("content-length"));
    assert_eq!(client.get("nobody.test", "/").status(), 404);
}

#[test]
fn a_page_shows_nothing_that_the_request_said() {
    let carom = Carom::serving("\"a.test\" = 1\n").start();
    let mut client = carom.client();
    let bytes = request("GET /<script>alert(1)</script>", "nobody.test", &["Accept: text/html"]);
    let text = client.ask(bytes).text();
    assert!(!text.contains("<script>") && !text.contains("alert"), "{text}");
}

#[test]
fn a_client_that_resets_ends_the_backends_work_at_once() {
    for bytes in [
        request("GET /x", "a.test", &[]),
        with_body("POST /x", "a.test", "hello"),
        request("POST /x", "a.test", &["Content-Length: 100"]) + "part",
    ] {
        let a = Origin::new(|conn| {
            conn.head();
            conn.wait_end();
        });
        let carom = Carom::to(a.port()).start();
        let mut client = carom.client();
        client.send(&bytes);
        a.wait("the request", |seen| seen.requests.first().map(|_| ()));
        let began = Instant::now();
        client.reset();
        a.wait_end(0);
        assert!(began.elapsed().as_millis() < 1000, "it took {:?}", began.elapsed());
        assert_eq!(carom.logged_path("/x")["reason"], "client-gone");
    }
}

#[test]
fn a_client_that_leaves_a_download_ends_it() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while conn.send("4\r\ntick\r\n") {
            conn.pause(1);
        }
        conn.wait_end();
    });
    let carom = Carom::to(a.port()).start();
    for (index, reset) in [false, true].into_iter().enumerate() {
        let mut client = carom.client();
        client.send(request("GET /endless", "a.test", &[]));
        assert_eq!(client.response_head().status(), 200);
        client.expect("4\r\ntick\r\n");
        if reset {
            client.reset();
        } else {
            drop(client);
        }
        a.wait_end(index);
    }
    assert_eq!(carom.logged_path("/endless")["reason"], "client-gone");
}

#[test]
fn a_half_closed_client_still_gets_its_answer() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            conn.pause(300);
            conn.answer("a", &request);
        }
    });
    let carom = Carom::to(a.port()).start();
    for bytes in [
        request("GET /1", "a.test", &[]),
        request("GET /1", "a.test", &["Connection: close"]),
        with_body("POST /1", "a.test", "hello"),
        request("GET /1", "a.test", &[]) + &request("GET /2", "a.test", &[]),
    ] {
        let mut client = carom.client();
        client.send(&bytes);
        client.half_close();
        let requests = bytes.matches(" HTTP/1.1").count();
        for _ in 0..requests {
            assert_eq!(client.response().status(), 200, "{bytes:?}");
        }
        assert_eq!(client.expect_end(), End::Fin);
    }
}

#[test]
fn a_large_response_head_passes_and_one_over_the_limit_says_so() {
    let cookie = format!("Set-Cookie: a={}", "x".repeat(32 * 1024));
    let a = Origin::replying(reply("200 OK", &[&cookie], "ok"));
    let carom = Carom::to(a.port()).start();
    let response = carom.client().get("a.test", "/");
    assert_eq!(response.text(), "ok");
    assert_eq!(response.field("set-cookie").map(str::len), Some(32 * 1024 + 2));

    let a = Origin::replying_once(reply("200 OK", &[&cookie], "ok"));
    let response = outcome(&a, "[limits]\nresponse_head = \"16KiB\"", &request("GET /x", "a.test", &[]));
    assert_eq!((response.status(), response.error()), (502, Some("backend-head-too-large")));
}

#[test]
fn one_broken_site_does_not_slow_the_others() {
    let hanging = Origin::new(|conn| {
        conn.request();
        conn.wait_end();
    });
    let a = Origin::named("a");
    let carom = Carom::serving(format!("\"hang.test\" = {}\n\"a.test\" = {}\n", hanging.port(), a.port())).start();
    let held: Vec<_> = (0..50)
        .map(|_| {
            let mut client = carom.client();
            client.send(request("GET /", "hang.test", &[]));
            client
        })
        .collect();
    hanging.wait("fifty requests", |seen| (seen.requests.len() == 50).then_some(()));
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(carom.client().get("a.test", "/").status(), 200);
    }
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    drop(held);
}

/// CPU time that is spent on waiting, over half a second.
#[track_caller]
fn assert_waits_quietly(what: &str, carom: &Carom) {
    let before = carom.cpu_time();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let spent = carom.cpu_time() - before;
    assert!(spent.as_millis() < 120, "{what} costs {spent:?} of half a second");
}

#[test]
fn waiting_costs_nothing() {
    let a = Origin::new(|conn| {
        let Some(request) = conn.request() else { return };
        match request.target() {
            "/half" => {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
                conn.half_close();
                conn.wait_end();
            }
            "/large" => {
                conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1 << 30));
                let block = vec![b'x'; 64 * 1024];
                while conn.send(&block) {}
            }
            _ => conn.wait_end(),
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut half_closed = carom.client();
    half_closed.send(request("GET /never", "a.test", &[]));
    half_closed.half_close();
    let mut tunnel = carom.client();
    tunnel.send(request("GET /half", "a.test", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(tunnel.response_head().status(), 101);
    let mut upload = carom.client();
    upload.send(request("POST /never", "a.test", &["Content-Length: 10"]) + "half");
    let mut ahead = carom.client();
    ahead.send(request("GET /never", "a.test", &[]) + &request("GET /next", "a.test", &[]).repeat(3000));
    a.wait("four requests", |seen| (seen.requests.len() == 4).then_some(()));
    assert_waits_quietly("what waits", &carom);
    let mut stuck = carom.client();
    stuck.send(request("GET /large", "a.test", &[]));
    assert_eq!(stuck.response_head().status(), 200);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_waits_quietly("a reader that does not read", &carom);
}
