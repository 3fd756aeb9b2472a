//! Upgrades and the tunnels behind them: raw bytes only after a real 101, and then all of them, once, until both sides
//! have ended.

use std::sync::Arc;

use crate::support::{Carom, Client, End, Gate, Origin, pattern, poll_until, reply, request};

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n";
const ASK: [&str; 2] = ["Connection: Upgrade", "Upgrade: chat"];

/// Switches at once, and sends back what comes.
fn echoing() -> Origin {
    Origin::new(|conn| {
        if conn.request().is_some() {
            conn.send(SWITCH);
            conn.echo();
        }
    })
}

/// A client whose connection has just become a tunnel.
#[track_caller]
fn tunnel(carom: &Carom) -> Client {
    let mut client = carom.client();
    client.send(request("GET /chat", "a.test", &ASK));
    assert_eq!(client.response_head().status(), 101);
    client
}

#[test]
fn bytes_of_any_protocol_pass_both_ways_after_a_101() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /chat", "a.test", &ASK));
    let response = client.response_head();
    assert_eq!((response.status(), response.field("upgrade")), (101, Some("chat")));
    assert!(response.list("connection").contains(&"upgrade".to_owned()), "{:?}", response.fields);
    let every_byte: Vec<u8> = (0..=255).cycle().take(1024).collect();
    client.send(&every_byte);
    client.expect(&every_byte);
    // Also what would be a request.
    let bytes = request("GET /evil", "b.test", &[]);
    client.send(&bytes);
    client.expect(&bytes);
    client.half_close();
    assert_eq!(client.expect_end(), End::Fin);
}

#[test]
fn every_way_to_write_the_wish_is_understood() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let forms: [&[&str]; 7] = [
        &["Connection: keep-alive, Upgrade", "Upgrade: websocket"],
        &["Connection: Upgrade,keep-alive", "Upgrade: websocket"],
        &["connection: UPGRADE", "upgrade: WebSocket"],
        &["Connection: keep-alive", "Connection: upgrade", "Upgrade: websocket"],
        &["Connection: ,, upgrade ,", "Upgrade: websocket"],
        &["Upgrade: websocket", "Connection: Upgrade"],
        &["Connection: Upgrade", "Upgrade: chat/2, chat"],
    ];
    for (index, fields) in forms.iter().enumerate() {
        let mut client = carom.client();
        client.send(request("GET /chat", "a.test", fields));
        assert_eq!(client.response_head().status(), 101, "{fields:?}");
        client.send("ping");
        client.expect("ping");
        let seen = &a.requests()[index];
        assert!(seen.list("connection").contains(&"upgrade".to_owned()), "{fields:?}: {:?}", seen.fields);
        assert!(seen.has("upgrade"));
    }
}

#[test]
fn fields_of_a_handshake_arrive_as_sent() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let own = ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "Origin: http://a.test"];
    client.send(request("GET /chat", "a.test", &[&ASK[..], &own].concat()));
    client.response_head();
    let seen = a.request();
    assert_eq!(seen.field("sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    assert_eq!(seen.field("origin"), Some("http://a.test"));
}

#[test]
fn bytes_in_the_same_segment_as_the_101_are_not_lost() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send(format!("{SWITCH}first frame"));
        conn.echo();
    });
    let carom = Carom::to(a.port()).start();
    for _ in 0..20 {
        let mut client = tunnel(&carom);
        client.expect("first frame");
        client.send("x");
        client.expect("x");
    }
}

#[test]
fn a_101_in_pieces_is_a_101() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send("HTTP/1.1 103 Early Hints\r\n\r\n");
        conn.drip(SWITCH);
        conn.echo();
    });
    let carom = Carom::to(a.port()).start();
    let mut client = tunnel(&carom);
    client.send("x");
    client.expect("x");
}

/// Switches once its gate is open, and echoes from then on.
fn switches_when_told() -> (Origin, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let told = Arc::clone(&gate);
    let a = Origin::new(move |conn| {
        conn.head();
        told.wait();
        conn.send(SWITCH);
        conn.echo();
    });
    (a, gate)
}

#[test]
fn bytes_that_a_client_sends_before_the_101_arrive_behind_it_and_once() {
    let (a, gate) = switches_when_told();
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /chat", "a.test", &ASK) + "early");
    a.wait("the request", |seen| seen.requests.first().map(|_| ()));
    gate.open();
    assert_eq!(client.response_head().status(), 101);
    client.expect("early");
    client.send("late");
    client.expect("late");
    client.half_close();
    assert_eq!(client.expect_end(), End::Fin);
    let heads_end = |bytes: &[u8]| bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(0, |at| at + 4);
    a.wait("each byte once", |seen| {
        let bytes = &seen.connections[0].bytes;
        (&bytes[heads_end(bytes)..] == b"earlylate").then_some(())
    });
}

#[test]
fn many_early_bytes_arrive_as_well() {
    let (a, gate) = switches_when_told();
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let early = pattern(1 << 20);
    client.send(request("GET /chat", "a.test", &ASK));
    let mut sender = client.second_hand();
    let sent = early.clone();
    let sending = std::thread::spawn(move || sender.send(&sent));
    a.wait("the request", |seen| seen.requests.first().map(|_| ()));
    client.expect_silence(100);
    gate.open();
    assert_eq!(client.response_head().status(), 101);
    assert!(client.exactly(early.len()) == early, "what came back is not what was sent");
    sending.join().unwrap();
}

#[test]
fn early_bytes_of_a_refused_upgrade_are_routed_as_what_they_are() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            match request.target() {
                "/chat" => conn.send(reply("426 Upgrade Required", &["Upgrade: other"], "no")),
                _ => conn.send(reply("200 OK", &[], "a")),
            };
        }
    });
    let b = Origin::named("b");
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), b.port())).start();
    // A second request behind the wish: no tunnel, so it is a request like any other, for its own host.
    let mut client = carom.client();
    client.send(request("GET /chat", "a.test", &ASK) + &request("GET /2", "b.test", &[]));
    assert_eq!(client.response().status(), 426);
    assert_eq!(client.response().text(), "b GET /2");
    assert_eq!(a.lines(), ["GET /chat"]);
    // And what is no request is none, rather than a tunnel.
    let mut client = carom.client();
    client.send(request("GET /chat", "a.test", &ASK) + "\x00\x01frame\r\n\r\n");
    assert_eq!(client.response().status(), 426);
    assert_eq!(client.response().error(), Some("malformed-head"));
    client.expect_end();
}

#[test]
fn a_wish_without_a_101_is_no_tunnel() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), b.port())).start();
    let mut client = carom.client();
    client
        .send(request("GET /1", "a.test", &["Connection: upgrade", "Upgrade: x"]) + &request("GET /2", "b.test", &[]));
    assert_eq!(client.response().text(), "a GET /1");
    assert_eq!(client.response().text(), "b GET /2");
    assert_eq!((a.lines().len(), b.lines().len()), (1, 1));
}

#[test]
fn a_refused_upgrade_is_passed_on_and_the_connection_kept() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            match request.target() {
                "/chat" => conn.send(reply("404 Not Found", &["X-A: b"], "no chat here")),
                _ => conn.send(reply("200 OK", &[], "ok")),
            };
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let response = client.ask(request("GET /chat", "a.test", &ASK));
    assert_eq!((response.status(), response.text().as_str(), response.field("x-a")), (404, "no chat here", Some("b")));
    assert_eq!(client.get("a.test", "/").text(), "ok");
    assert_eq!(a.connections(), 1);
}

#[test]
fn a_backend_that_answers_an_upgrade_with_a_reset_is_a_502() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.reset();
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let response = client.ask(request("GET /chat", "a.test", &ASK));
    assert_eq!((response.status(), response.error()), (502, Some("backend-closed")));
    carom.assert_running();
}

#[test]
fn a_101_that_nobody_asked_for_is_a_502() {
    for fields in [&[][..], &["Upgrade: chat"], &["Connection: upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMA"]] {
        let a = Origin::new(|conn| {
            conn.request();
            conn.send(format!("{SWITCH}junk"));
            conn.wait_end();
        });
        let carom = Carom::to(a.port()).start();
        let response = carom.client().ask(request("GET /", "a.test", fields));
        assert_eq!((response.status(), response.error()), (502, Some("backend-garbled")), "{fields:?}");
        a.wait_end(0);
    }
}

#[test]
fn an_http_1_0_wish_to_upgrade_is_ignored() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &ASK).replace("HTTP/1.1", "HTTP/1.0"));
    assert_eq!(client.response().status(), 200);
    assert!(!a.request().has("upgrade"));
}

#[test]
fn an_upgrade_behind_other_requests_works() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            if request.has("upgrade") {
                conn.send(SWITCH);
                return conn.echo();
            }
            conn.answer("a", &request);
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for _ in 0..3 {
        assert_eq!(client.get("a.test", "/").status(), 200);
    }
    client.send(request("GET /chat", "a.test", &ASK));
    assert_eq!(client.response_head().status(), 101);
    client.send("ping");
    client.expect("ping");
}

#[test]
fn an_upgrade_with_a_body_sends_the_body_first() {
    let a = Origin::new(|conn| {
        if conn.request().is_some() {
            conn.send(SWITCH);
            conn.echo();
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /chat", "a.test", &[&ASK[..], &["Content-Length: 5"]].concat()) + "hello");
    assert_eq!(client.response_head().status(), 101);
    client.send("ping");
    client.expect("ping");
    assert_eq!(a.request().text(), "hello");
}

#[test]
fn a_half_close_passes_and_the_other_direction_goes_on() {
    // The client ends first: the backend reads to the end and answers then.
    let a = Origin::new(|conn| {
        conn.request();
        conn.send(SWITCH);
        let mut count = 0;
        while let Some(bytes) = conn.some() {
            count += bytes.len();
        }
        conn.send(format!("{count} bytes"));
    });
    let carom = Carom::to(a.port()).start();
    let mut client = tunnel(&carom);
    client.send([b'x'; 1000]);
    client.half_close();
    let (bytes, end) = client.rest();
    assert_eq!((String::from_utf8_lossy(&bytes).as_ref(), end), ("1000 bytes", End::Fin));

    // The backend ends first.
    let a = Origin::new(|conn| {
        conn.request();
        conn.send(format!("{SWITCH}bye"));
        conn.half_close();
        conn.exactly(5);
        conn.wait_end();
    });
    let carom = Carom::to(a.port()).start();
    let mut client = tunnel(&carom);
    let (bytes, end) = client.rest();
    assert_eq!((bytes.as_slice(), end), (&b"bye"[..], End::Fin));
    client.send("still");
    client.half_close();
    assert_eq!(a.wait_end(0), End::Fin);
    a.wait("what came behind its own end", |seen| seen.connections[0].bytes.ends_with(b"still").then_some(()));
}

#[test]
fn a_backend_that_dies_ends_its_tunnels_at_once() {
    for reset in [false, true] {
        let gate = Arc::new(Gate::default());
        let told = Arc::clone(&gate);
        let a = Origin::new(move |conn| {
            conn.request();
            conn.send(SWITCH);
            told.wait();
            if reset {
                conn.reset();
            }
        });
        let carom = Carom::to(a.port()).start();
        let empty = carom.descriptors_at_rest();
        let mut clients: Vec<_> = (0..10).map(|_| tunnel(&carom)).collect();
        gate.open();
        let began = std::time::Instant::now();
        for client in &mut clients {
            client.expect_end();
        }
        assert!(began.elapsed().as_millis() < 1000, "it took {:?}", began.elapsed());
        drop(clients);
        poll_until("that the descriptors are back", || carom.descriptors() <= empty);
    }
}

#[test]
fn a_client_that_is_gone_ends_the_backends_side_at_once() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let mut ends = Vec::new();
    let before = carom.descriptors_at_rest();
    for index in 0..100 {
        let client = tunnel(&carom);
        client.reset();
        ends.push(a.wait_end(index));
    }
    assert!(ends.iter().all(|end| *end == End::Reset || *end == End::Fin));
    poll_until("that the descriptors are back", || carom.descriptors() <= before);
}

#[test]
fn opening_and_closing_tunnels_leaks_nothing() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let round = || {
        let mut clients: Vec<_> = (0..50).map(|_| tunnel(&carom)).collect();
        for client in &mut clients {
            client.send("ping");
        }
        for (index, mut client) in clients.into_iter().enumerate() {
            client.expect("ping");
            match index % 3 {
                0 => client.reset(),
                1 => drop(client),
                _ => {
                    client.half_close();
                    client.expect_end();
                }
            }
        }
    };
    let empty = carom.descriptors_at_rest();
    round();
    poll_until("that the descriptors are back", || carom.descriptors() <= empty);
    let memory = carom.memory();
    for _ in 0..6 {
        round();
    }
    poll_until("that the descriptors are back", || carom.descriptors() <= empty);
    let grown = carom.memory().saturating_sub(memory);
    assert!(grown < 2 << 20, "300 tunnels left {grown} bytes behind");
}

#[test]
fn a_tunnel_outlives_the_time_limits_of_requests() {
    let a = echoing();
    let carom = Carom::to(a.port())
        .config("[timeouts]\nhead = \"200ms\"\nbody = \"200ms\"\nidle = \"200ms\"\nresponse_head = \"200ms\"\nresponse_body = \"200ms\"\nsend = \"200ms\"")
        .start();
    let mut client = tunnel(&carom);
    client.expect_silence(1000);
    client.send("ping");
    client.expect("ping");
}

#[test]
fn a_silent_tunnel_ends_when_it_is_told_to() {
    let a = echoing();
    let carom = Carom::to(a.port()).config("[timeouts]\ntunnel = \"300ms\"").start();
    let mut client = tunnel(&carom);
    for _ in 0..5 {
        client.pause(100);
        client.send("ping");
        client.expect("ping");
    }
    client.expect_end();
    a.wait_end(0);
    let entry = carom.logged_path("/chat");
    assert_eq!(entry["reason"], "idle-timeout");
    // It has lasted longer than its response.
    assert!(entry["total_ms"].as_f64() >= Some(800.0), "{entry}");
}

#[test]
fn a_tunnel_carries_megabytes_both_ways_at_once() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let idle = carom.memory();
    let mut client = tunnel(&carom);
    let bytes = pattern(64 * 1024);
    for _ in 0..320 {
        client.send(&bytes);
        client.expect(&bytes);
    }
    client.half_close();
    assert_eq!(client.expect_end(), End::Fin);
    let grown = carom.memory().saturating_sub(idle);
    assert!(grown < 4 << 20, "memory grew by {grown} bytes");
}

#[test]
fn messages_of_all_sizes_in_turn_arrive_whole() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let mut client = tunnel(&carom);
    for size in [1, 100, 20_000, 100_000, 7, 8_191, 8_193, 16_320, 300_000, 300_000, 1, 65_536, 65_536, 2] {
        let message = pattern(size);
        client.send(&message);
        client.expect(&message);
    }
    client.half_close();
    assert_eq!(client.expect_end(), End::Fin);
}

#[test]
fn a_tunnel_that_has_carried_much_holds_no_more_than_another() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let empty = carom.descriptors_at_rest();
    let message = pattern(200_000);
    let clients: Vec<_> = (0..60)
        .map(|_| {
            let mut client = tunnel(&carom);
            client.send(&message);
            client.expect(&message);
            client
        })
        .collect();
    // Two connections each; a few pipes are kept for the next who needs one.
    poll_until("that nothing is held", || carom.descriptors() <= empty + 2 * clients.len() + 32);
}

#[test]
fn a_tunnel_is_one_line_in_the_log() {
    let a = echoing();
    let carom = Carom::to(a.port()).start();
    let mut client = tunnel(&carom);
    client.send("ping");
    client.expect("ping");
    client.half_close();
    client.expect_end();
    let entry = carom.logged_path("/chat");
    assert_eq!((&entry["status"], &entry["method"]), (&101.into(), &"GET".into()));
    assert!(entry["reason"].is_null(), "{entry}");
    assert_eq!(carom.log().len(), 1);
}
