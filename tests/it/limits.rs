//! Each limit and each deadline with a small value: what is over it is told so, what is under it passes, and the others
//! don't notice.

use std::time::{Duration, Instant};

use crate::support::{CHUNKED, Carom, Client, End, Origin, poll_until, reply, request, with_body};

/// Asserts what a carom with this configuration answers, that it then closes, and that no backend was reached.
#[track_caller]
fn assert_over(config: &str, bytes: &str, status: u16, code: &str) {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config(config).start();
    let mut client = carom.client();
    client.try_send(bytes);
    let response = client.response();
    assert_eq!((response.status(), response.error()), (status, Some(code)));
    client.drain();
    a.assert_untouched();
}

/// Asserts that a carom with this configuration serves it.
#[track_caller]
fn assert_under(config: &str, bytes: &str) {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config(config).start();
    let response = carom.client().ask(bytes);
    assert_eq!(response.status(), 200, "{:?}", response.error());
}

#[test]
fn a_head_may_have_so_many_bytes_and_no_more() {
    let head = |length: usize| {
        let short = request("GET /", "a.test", &["X: "]);
        request("GET /", "a.test", &[&format!("X: {}", "y".repeat(length - short.len()))])
    };
    let config = "[limits]\nhead = \"2KiB\"";
    assert_under(config, &head(2048));
    assert_over(config, &head(2049), 431, "head-too-large");
    assert_over(config, &head(200_000), 431, "head-too-large");
}

#[test]
fn a_head_may_have_thirty_two_kib_by_default() {
    let fields: Vec<_> = (0..30).map(|n| format!("X-{n}: {}", "y".repeat(1000))).collect();
    assert_under("", &request("GET /", "a.test", &fields.iter().map(String::as_str).collect::<Vec<_>>()));
    let fields: Vec<_> = (0..40).map(|n| format!("X-{n}: {}", "y".repeat(1000))).collect();
    let bytes = request("GET /", "a.test", &fields.iter().map(String::as_str).collect::<Vec<_>>());
    assert_over("", &bytes, 431, "head-too-large");
}

#[test]
fn a_head_may_have_so_many_fields_and_no_more() {
    let head = |count: usize| request("GET /", "a.test", &vec!["X: y"; count - 1]);
    let config = "[limits]\nfields = 10";
    assert_under(config, &head(10));
    assert_over(config, &head(11), 431, "head-too-large");
    assert_over("", &head(10_000), 431, "head-too-large");
    assert_under("", &head(128));
    assert_over("", &head(129), 431, "head-too-large");
}

#[test]
fn a_target_may_have_so_many_bytes_and_no_more() {
    let get = |length: usize| request(&format!("GET /{}", "x".repeat(length - 1)), "a.test", &[]);
    let config = "[limits]\ntarget = 1000";
    assert_under(config, &get(1000));
    assert_over(config, &get(1001), 414, "target-too-long");
    assert_over(config, &get(20_000), 414, "target-too-long");
    assert_over("", &get(100_000), 414, "target-too-long");
    // A first line without an end is one as well.
    assert_over(config, &"G".repeat(5000), 414, "target-too-long");
}

#[test]
fn a_body_may_have_so_many_bytes_and_no_more() {
    let config = "[limits]\nbody = 1000";
    assert_under(config, &with_body("POST /", "a.test", &"x".repeat(1000)));
    // Known from the head, so it is said at once and no backend hears of it.
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config(config).start();
    for bytes in [
        with_body("POST /", "a.test", &"x".repeat(1001)),
        request("POST /", "a.test", &["Content-Length: 5000", "Expect: 100-continue"]),
        request("POST /", "a.test", &["Content-Length: 10000000000000"]),
    ] {
        let mut client = carom.client();
        client.send(bytes);
        let response = client.response_to("POST");
        assert_eq!((response.status(), response.error()), (413, Some("body-too-large")));
        assert!(response.interim.is_empty());
    }
    a.assert_untouched();
}

#[test]
fn chunks_may_have_so_many_bytes_together_and_no_more() {
    let config = "[limits]\nbody = 1000";
    let body = |chunks: usize| {
        let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
        request("POST /", "a.test", &[CHUNKED]) + &chunk.repeat(chunks) + "0\r\n\r\n"
    };
    assert_under(config, &body(10));
    // How much it is shows only on the way, so the backend may have seen a part of it: never the whole.
    let a = Origin::new(|conn| while conn.some().is_some() {});
    let carom = Carom::to(a.port()).config(config).start();
    for together in [true, false] {
        let mut client = carom.client();
        if together {
            client.try_send(body(11));
        } else {
            for piece in body(11).as_bytes().chunks(106) {
                client.try_send(piece);
                client.pause(1);
            }
        }
        let response = client.response_to("POST");
        assert_eq!((response.status(), response.error()), (413, Some("body-too-large")));
        client.drain();
    }
    a.connections();
    a.wait("", |seen| {
        assert!(!seen.connections.iter().any(|c| c.bytes.ends_with(b"0\r\n\r\n")));
        Some(())
    });
}

#[test]
fn a_chunk_line_may_have_so_many_bytes_and_no_more() {
    let body = |length: usize| {
        request("POST /", "a.test", &[CHUNKED]) + &format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(length))
    };
    assert_under("[limits]\nchunk_line = 200", &body(150));
    for (config, length) in [("[limits]\nchunk_line = 200", 300), ("", 20_000)] {
        let a = Origin::new(|conn| while conn.some().is_some() {});
        let carom = Carom::to(a.port()).config(config).start();
        let mut client = carom.client();
        client.try_send(body(length));
        assert_eq!(client.response_to("POST").error(), Some("malformed-body"));
        client.drain();
    }
}

#[test]
fn trailers_are_no_way_around_the_limit_of_a_head() {
    let a = Origin::new(|conn| while conn.some().is_some() {});
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[CHUNKED]) + "5\r\nhello\r\n0\r\n");
    for _ in 0..2000 {
        if !client.try_send(format!("X: {}\r\n", "y".repeat(1000))) {
            break;
        }
    }
    if let Ok(response) = client.answer_or_end("POST") {
        assert_eq!((response.status(), response.error()), (400, Some("malformed-body")));
    }
    a.wait_end(0);
}

#[test]
fn a_head_has_to_be_whole_in_time_however_it_trickles() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nhead = \"500ms\"").start();
    let began = Instant::now();
    let mut client = carom.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n");
    let mut sent = 0;
    // A byte each 50 ms: each of them is in time, all of them together are not.
    while client.try_send("X") && sent < 200 {
        sent += 1;
        client.pause(50);
        if began.elapsed() > Duration::from_millis(1500) {
            break;
        }
    }
    let response = client.response();
    assert_eq!((response.status(), response.error()), (408, Some("head-timeout")));
    assert_eq!(response.field("connection"), Some("close"));
    client.drain();
    a.assert_untouched();
    assert_eq!(carom.logged("the 408", |entry| entry["status"] == 408)["reason"], "head-timeout");
}

#[test]
fn a_later_head_on_a_connection_has_its_own_deadline() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nhead = \"400ms\"\nidle = \"10s\"").start();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/1").status(), 200);
    // Idle for longer than a head may take: that is another clock.
    client.pause(800);
    assert_eq!(client.get("a.test", "/2").status(), 200);
    client.send("GET / HT");
    assert_eq!(client.response().error(), Some("head-timeout"));
    client.expect_end();
}

#[test]
fn a_client_that_says_nothing_is_closed() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nhead = \"300ms\"").start();
    let before = carom.descriptors_at_rest();
    let mut clients: Vec<_> = (0..200).map(|_| carom.client()).collect();
    for client in &mut clients {
        client.expect_end();
    }
    poll_until("that the descriptors are back", || carom.descriptors() <= before);
    a.assert_untouched();
}

#[test]
fn an_idle_connection_is_closed_in_the_end() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nidle = \"300ms\"").start();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").status(), 200);
    let began = Instant::now();
    assert_eq!(client.expect_end(), End::Fin);
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    assert_eq!(carom.log().len(), 1, "an idle connection is no request");
}

#[test]
fn a_body_that_goes_silent_is_a_408() {
    for bytes in [
        request("POST /x", "a.test", &["Content-Length: 100"]) + "part",
        request("POST /x", "a.test", &[CHUNKED]) + "5\r\nhel",
        request("POST /x", "a.test", &["Content-Length: 100"]),
    ] {
        let a = Origin::new(|conn| {
            conn.request();
        });
        let carom = Carom::to(a.port()).config("[timeouts]\nbody = \"300ms\"").start();
        let mut client = carom.client();
        client.send(&bytes);
        let response = client.response_to("POST");
        assert_eq!((response.status(), response.error()), (408, Some("body-timeout")), "{bytes:?}");
        client.expect_end();
        a.wait_end(0);
        assert!(!a.request().whole);
        assert_eq!(carom.logged_path("/x")["reason"], "body-timeout");
    }
}

#[test]
fn a_body_that_moves_is_never_late() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nbody = \"400ms\"\nhead = \"400ms\"").start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &["Content-Length: 15"]));
    for _ in 0..15 {
        client.pause(80);
        client.send("x");
    }
    assert_eq!(client.response_to("POST").status(), 200);
    assert_eq!(a.request().body.len(), 15);
}

#[test]
fn a_response_body_that_goes_silent_is_cut() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello");
        conn.wait_end();
    });
    let carom = Carom::to(a.port()).config("[timeouts]\nresponse_body = \"300ms\"").start();
    let mut client = carom.client();
    client.send(request("GET /x", "a.test", &[]));
    let (response, _) = client.cut_response();
    assert_eq!(response.text(), "hello");
    a.wait_end(0);
    assert_eq!(carom.logged_path("/x")["status"], 200);
}

#[test]
fn a_response_that_moves_is_never_late() {
    let a = Origin::new(|conn| {
        while conn.request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n");
            for _ in 0..15 {
                conn.pause(80);
                conn.send("x");
            }
        }
    });
    let config = "[timeouts]\nresponse_body = \"400ms\"\nresponse_head = \"400ms\"\nidle = \"400ms\"\nhead = \"400ms\"";
    let carom = Carom::to(a.port()).config(config).start();
    assert_eq!(carom.client().get("a.test", "/").text(), "x".repeat(15));
}

#[test]
fn a_client_that_does_not_take_its_answer_is_given_up() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1 << 30));
        let block = vec![b'x'; 64 * 1024];
        while conn.send(&block) {}
        conn.wait_end();
    });
    let carom = Carom::to(a.port()).config("[timeouts]\nsend = \"500ms\"").start();
    let mut client = carom.client();
    client.send(request("GET /x", "a.test", &[]));
    a.wait_end(0);
    let entry = carom.logged_path("/x");
    assert!(!entry["reason"].is_null(), "{entry}");
}

/// Answers requests, and echoes behind an upgrade.
fn chatty() -> Origin {
    Origin::new(|conn| {
        while let Some(request) = conn.request() {
            if request.has("upgrade") {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n");
                return conn.echo();
            }
            conn.answer("a", &request);
        }
    })
}

fn chat(carom: &Carom) -> Client {
    let mut tunnel = carom.client();
    tunnel.send(request("GET /chat", "a.test", &["Connection: Upgrade", "Upgrade: chat"]));
    assert_eq!(tunnel.response_head().status(), 101);
    tunnel
}

#[test]
fn more_busy_connections_than_allowed_wait_for_their_turn() {
    let a = chatty();
    let carom = Carom::to(a.port()).config("[limits]\nconnections = 4").start();
    let mut busy: Vec<_> = (0..4).map(|_| chat(&carom)).collect();
    let mut waiting = carom.client();
    waiting.send(request("GET /waiting", "a.test", &[]));
    waiting.expect_silence(300);
    // Those that are in don't notice.
    busy[0].send("ping");
    busy[0].expect("ping");
    busy.pop();
    assert_eq!(waiting.response().text(), "a GET /waiting");
}

#[test]
fn an_idle_connection_makes_room_for_a_new_one() {
    let a = chatty();
    let carom = Carom::to(a.port()).config("[limits]\nconnections = 4").start();
    let mut tunnel = chat(&carom);
    let mut idle: Vec<_> = (0..3)
        .map(|_| {
            let mut client = carom.client();
            assert_eq!(client.get("a.test", "/").status(), 200);
            client
        })
        .collect();
    assert_eq!(carom.client().get("a.test", "/new").text(), "a GET /new");
    // One of those that waited went; whoever is busy stays.
    let mut is_gone = |client: &mut Client| {
        client.try_send(request("GET /", "a.test", &[]));
        client.answer_or_end("GET").is_err()
    };
    let gone = idle.iter_mut().map(&mut is_gone).filter(|&gone| gone).count();
    assert!((1..=2).contains(&gone), "{gone} of 3 went");
    tunnel.send("ping");
    tunnel.expect("ping");
}

#[test]
fn out_of_descriptors_it_waits_quietly_and_comes_back() {
    let a = chatty();
    // The configured limit is above what there is: the kernel is who says no.
    let carom = Carom::to(a.port()).config("[limits]\nconnections = 100000").descriptors(64).start();
    let mut tunnel = chat(&carom);
    let mark = carom.mark();
    let clients: Vec<_> = (0..200).map(|_| carom.client()).collect();
    poll_until("that it has no descriptor left", || carom.descriptors() >= 63);
    // What it does while nothing can be done, over a second.
    let before = carom.cpu_time();
    std::thread::sleep(Duration::from_secs(1));
    let spent = carom.cpu_time() - before;
    assert!(spent < Duration::from_millis(250), "it used {spent:?} of a second to do nothing");
    let said = carom.said(mark);
    assert!(said.len() <= 2, "it said {said:#?}");
    tunnel.send("ping");
    tunnel.expect("ping");
    drop(clients);
    let mut client = carom.client();
    client.send(request("GET /after", "a.test", &["Connection: close"]));
    assert_eq!(client.response().text(), "a GET /after");
    tunnel.send("pong");
    tunnel.expect("pong");
    carom.assert_running();
}

#[test]
fn without_a_descriptor_for_a_backend_a_request_waits_and_no_backend_is_blamed() {
    let a = chatty();
    let health = "{ path = \"/up\", interval = \"100ms\", fall = 1 }";
    let carom = Carom::serving(format!("[\"a.test\"]\nto = {}\nhealth = {health}\n", a.port()))
        .config("[limits]\nconnections = 100000\n[timeouts]\nconnect = \"2s\"")
        .descriptors(64)
        .start();
    poll_until("that it is up", || carom.status()["sites"][0]["instances"][0]["state"] == "up");
    let mark = carom.mark();
    // They are in the middle of a request, so they are not who makes room.
    let half = || {
        let mut client = carom.client();
        client.send("GET /half HTTP/1.1\r\n");
        client
    };
    let (mut first, mut second) = (half(), half());
    let mut tunnels = Vec::new();
    while carom.descriptors() < 60 {
        tunnels.push(chat(&carom));
    }
    // Some of them wait to be accepted.
    let rest: Vec<_> = (0..8).map(|_| half()).collect();
    carom.stderr(mark, "that it has no descriptor left", |line| line.contains("can't accept"));
    first.send("Host: a.test\r\n\r\n");
    carom.stderr(mark, "that it waits for a descriptor", |line| line.contains("no descriptor is left"));
    let response = first.response();
    assert_eq!((response.status(), response.error()), (503, Some("no-descriptor")));
    let said = carom.said(mark).join("\n");
    assert!(!said.contains("is down") && !said.contains("keeps failing"), "{said}");
    second.send("Host: a.test\r\n\r\n");
    drop((first, rest, tunnels));
    assert_eq!(second.response().text(), "a GET /half");
}

#[test]
fn by_default_the_descriptors_that_there_are_are_enough_for_both_sides() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).descriptors(128).config("[timeouts]\nhead = \"1s\"").start();
    let idle: Vec<_> = (0..200).map(|_| carom.client()).collect();
    // Those that wait are closed in the end, others come in, and each request finds a descriptor for its backend.
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &[]));
    assert_eq!(client.response().text(), "a GET /");
    drop(idle);
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
}

#[test]
fn two_thousand_silent_clients_and_a_slow_one_hurt_nobody() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).workers(2).start();
    let idle = carom.memory();
    let silent: Vec<_> = (0..2000).map(|_| carom.client()).collect();
    let mut slow = carom.client();
    slow.send("GET / HTTP/1.1\r\nHost: a.te");
    let began = Instant::now();
    for round in 0..100 {
        assert_eq!(carom.client().get("a.test", &format!("/{round}")).status(), 200);
        if round % 30 == 0 {
            slow.send("s");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5), "100 requests took {:?}", began.elapsed());
    let grown = carom.memory().saturating_sub(idle);
    // Unoptimised builds keep larger tasks; what this is about is buffers, which would be larger still.
    assert!(grown < 2001 * 8 * 1024, "2,001 silent clients cost {grown} bytes");
    let before = carom.cpu_time();
    std::thread::sleep(Duration::from_millis(500));
    let spent = carom.cpu_time() - before;
    assert!(spent < Duration::from_millis(150), "silence costs {spent:?} of half a second");
    drop(silent);
}

#[test]
fn a_leftover_body_is_skipped_up_to_a_limit() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[limits]\nleftover = \"1KiB\"").start();
    // Little enough to read away.
    let mut client = carom.client();
    assert_eq!(client.ask(with_body("POST /", "nobody.test", &"x".repeat(1000))).status(), 404);
    assert_eq!(client.get("a.test", "/").status(), 200);
    // Too much.
    let mut client = carom.client();
    client.send(request("POST /", "nobody.test", &["Content-Length: 5000000"]));
    let response = client.response_to("POST");
    assert_eq!((response.status(), response.field("connection")), (404, Some("close")));
    client.drain();
    assert_eq!(a.lines().len(), 1);
}

#[test]
fn a_slow_but_steady_reader_gets_everything() {
    let body = "x".repeat(300_000);
    let a = Origin::replying(reply("200 OK", &[], &body));
    let carom = Carom::to(a.port()).start();
    let mut client = Client::connect(carom.address());
    client.send(request("GET /", "a.test", &[]));
    let head = client.response_head();
    assert_eq!(head.field("content-length"), Some("300000"));
    let mut got = 0;
    while got < 300_000 {
        got += client.exactly(10_000).len();
        client.pause(3);
    }
}
