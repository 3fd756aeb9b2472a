//! Bodies that break off or break their framing: they never end cleanly.

use std::sync::Arc;

use crate::support::{CHUNKED, Carom, End, Gate, Origin, reply, request};

#[test]
fn a_body_that_breaks_off_at_the_backend_breaks_off_at_the_client() {
    let chunked = "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    for (name, good, bad) in [
        ("chunks without an end", chunked, ""),
        ("half a chunk", "Transfer-Encoding: chunked\r\n\r\nff\r\nhello", ""),
        ("half an end", chunked, "0\r\n"),
        ("half a length", "Content-Length: 100\r\n\r\nhello", ""),
        ("only a head", "Content-Length: 123\r\n\r\n", ""),
        ("chunks that are none", chunked, "zz\r\n"),
        ("a chunk that is too long", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello", "XX\r\n0\r\n\r\n"),
        ("LF in a chunk line", chunked, "0\n\r\n"),
    ] {
        for reset in [false, true] {
            let gate = Arc::new(Gate::default());
            let told = Arc::clone(&gate);
            let a = Origin::new(move |conn| {
                conn.request();
                conn.send(format!("HTTP/1.1 200 OK\r\n{good}"));
                told.wait();
                conn.send(bad);
                if reset {
                    conn.reset();
                }
            });
            let carom = Carom::to(a.port()).start();
            let mut client = carom.client();
            client.send(request("GET /broken", "a.test", &[]));
            let head = client.response_head();
            assert_eq!(head.status(), 200, "{name}");
            let body = good.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            client.expect(body);
            gate.open();
            // Of what is broken as much may come as is not: never all that a whole body has.
            let (rest, _) = client.rest();
            assert!(bad.as_bytes().starts_with(&rest), "{name}: something was added: {}", rest.escape_ascii());
            assert!(!rest.ends_with(b"0\r\n\r\n"), "{name}: it looks whole");
            let entry = carom.logged_path("/broken");
            assert_eq!(entry["status"], 200, "{name}");
            let garbled = ["chunks that are none", "a chunk that is too long", "LF in a chunk line"].contains(&name);
            let reason = entry["reason"].as_str();
            // A reset may overtake what was sent before it.
            let closed = reason == Some("backend-closed-mid-body") && (!garbled || reset);
            assert!(closed || garbled && reason == Some("backend-garbled"), "{name}: {entry}");
        }
    }
}

#[test]
fn chunks_that_are_broken_from_the_start_never_look_whole() {
    let a = Origin::replying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &[]));
    let head = client.response_head();
    if head.status() == 200 {
        let (rest, _) = client.rest();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{}", rest.escape_ascii());
    } else {
        assert_eq!((head.status(), head.error()), (502, Some("backend-garbled")));
    }
}

#[test]
fn a_dechunked_body_that_breaks_off_does_not_end_in_order() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        conn.pause(20);
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response_head().status(), 200);
    let (_, end) = client.rest();
    assert_eq!(end, End::Reset, "a close is how such a body ends when it is whole");
}

#[test]
fn a_body_of_known_end_is_cut_as_a_reset_when_the_connection_ends_it() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send("HTTP/1.1 200 OK\r\n\r\nhello");
        conn.pause(20);
        conn.reset();
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &[]));
    assert_eq!(client.response_head().status(), 200);
    assert_eq!(client.rest().1, End::Reset, "a reset backend is no whole answer");
}

#[test]
fn a_request_body_that_breaks_off_is_never_completed() {
    for fields in [["Content-Length: 10"], [CHUNKED]] {
        for reset in [false, true] {
            let a = Origin::new(|conn| {
                if conn.request().is_some() {
                    conn.send(reply("200 OK", &[], "whole"));
                }
            });
            let carom = Carom::to(a.port()).start();
            let mut client = carom.client();
            client.send(request("POST /", "a.test", &fields) + "5\r\nhe");
            a.wait("the head", |seen| seen.requests.first().map(|_| ()));
            if reset {
                client.reset();
            } else {
                client.half_close();
                if let Ok(answer) = client.answer_or_end("POST") {
                    assert!(answer.status() >= 400, "{}", answer.start);
                }
            }
            a.wait_end(0);
            assert!(!a.request().whole, "{fields:?}");
        }
    }
}
