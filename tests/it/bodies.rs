//! Bodies in both directions: framed as RFC 9112 says, passed on as they come, never ended cleanly when they are
//! broken, never kept in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Carom, End, Gate, Origin, pattern, poll_until, reply, request, with_body};

const CHUNKED: &str = "Transfer-Encoding: chunked";

/// A backend that sends these bytes to its first request and then does what is given.
fn once(bytes: impl Into<Vec<u8>>) -> Origin {
    let bytes = bytes.into();
    Origin::new(move |conn| {
        while conn.request().is_some() {
            conn.send(&bytes);
        }
    })
}

#[test]
fn a_body_with_a_length_arrives_whole_in_both_directions() {
    let a = once(reply("200 OK", &[], "the answer"));
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    assert_eq!(client.ask(with_body("POST /1", "a.test", "hello")).text(), "the answer");
    assert_eq!(client.ask(with_body("PUT /2", "a.test", "")).text(), "the answer");
    assert_eq!(client.ask(with_body("GET /3", "a.test", "a GET with a body")).text(), "the answer");
    let bodies: Vec<_> = a.requests().iter().map(|r| r.text()).collect();
    assert_eq!(bodies, ["hello", "", "a GET with a body"]);
}

#[test]
fn chunks_extensions_and_trailers_of_a_request_arrive_as_sent() {
    let a = once(reply("200 OK", &[], "ok"));
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for (body, text) in [
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5;a=b\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5;a=\"b;c\"\r\nhello\r\n0;x=y\r\n\r\n", "hello"),
        ("0005\r\nhello\r\n000\r\n\r\n", "hello"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("1\r\nh\r\n1\r\ne\r\n3\r\nllo\r\n0\r\n\r\n", "hello"),
        ("5\r\nhello\r\n0\r\nX-Sum: v\r\nX-Other: w\r\n\r\n", "hello"),
        ("0\r\n\r\n", ""),
    ] {
        let before = a.lines().len();
        let bytes = request("POST /c", "a.test", &[CHUNKED]) + body;
        assert_eq!(client.ask(bytes).text(), "ok", "{body:?}");
        let got = &a.requests()[before];
        assert_eq!(got.text(), text, "{body:?}");
        assert_eq!(got.trailers.len(), if body.contains("X-Sum") { 2 } else { 0 });
        // And the next one on this connection is found where it begins.
        assert_eq!(client.get("a.test", "/next").text(), "ok", "{body:?}");
    }
}

#[test]
fn chunks_and_trailers_of_a_response_arrive_as_sent() {
    let body = "5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: v\r\n\r\n";
    let a = once(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n{body}"));
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for _ in 0..3 {
        let response = client.ask(request("GET /", "a.test", &["TE: trailers", "Connection: TE"]));
        assert_eq!((response.text().as_str(), response.chunks.as_slice()), ("hello world", &[5, 6][..]));
        assert_eq!(response.trailers, [("X-Sum".to_owned(), "v".to_owned())]);
    }
}

#[test]
fn a_response_head_is_passed_on_to_the_byte() {
    let head = "HTTP/1.1 200 Alles  klar\r\nx-lOWER: 1\r\nX-Empty:\r\nX-Spaced:   a  b  \r\nSet-Cookie: a=1; Expires=Thu, \
                01 Jan 2099 00:00:00 GMT\r\nVary: b\r\nset-cookie: b=2, 3\r\nLocation: http://other.test/x\r\nSet-Cookie: \
                c\r\ncontent-length: 2\r\nServer: x\r\nDate: never\r\nVia: 1.1 y\r\n\r\n";
    let a = once(format!("{head}ok"));
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let response = client.get("a.test", "/");
    assert_eq!(String::from_utf8_lossy(&response.raw), head);
    let cookies = ["a=1; Expires=Thu, 01 Jan 2099 00:00:00 GMT", "b=2, 3", "c"];
    assert_eq!(response.all("set-cookie"), cookies);
}

#[test]
fn bytes_above_ascii_in_a_response_field_arrive_as_sent() {
    let a = once(b"HTTP/1.1 200 OK\r\nX-U: caf\xc3\xa9 \xff\r\nContent-Length: 0\r\n\r\n".to_vec());
    let carom = Carom::to(a.port()).start();
    assert_eq!(carom.client().get("a.test", "/").field("x-u"), Some("caf\u{c3}\u{a9} \u{ff}"));
}

#[test]
fn an_empty_reason_is_a_reason() {
    for line in ["HTTP/1.1 200 ", "HTTP/1.1 299 Odd"] {
        let a = once(format!("{line}\r\nContent-Length: 2\r\n\r\nok"));
        let carom = Carom::to(a.port()).start();
        let response = carom.client().get("a.test", "/");
        assert_eq!((response.start.as_str(), response.text().as_str()), (line, "ok"));
    }
}

#[test]
fn a_head_request_keeps_its_length_and_both_connections() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            match request.method() {
                "HEAD" => conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9757\r\n\r\n"),
                _ => conn.send(reply("200 OK", &[], "body")),
            };
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for _ in 0..3 {
        let head = client.ask(request("HEAD /", "a.test", &[]));
        assert_eq!((head.field("content-length"), head.text().as_str()), (Some("9757"), ""));
        assert_eq!(client.get("a.test", "/").text(), "body");
    }
    assert_eq!(a.connections(), 1);
}

#[test]
fn responses_that_have_no_body_end_with_their_head() {
    for (method, head) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("DELETE", "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\nETag: \"x\"\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ] {
        let a = Origin::new(move |conn| {
            while let Some(request) = conn.request() {
                match request.target() {
                    "/bare" => conn.send(head),
                    _ => conn.send(reply("200 OK", &[], "next")),
                };
            }
        });
        let carom = Carom::to(a.port()).start();
        let mut client = carom.client();
        let response = client.ask(request(&format!("{method} /bare"), "a.test", &[]));
        assert_eq!(String::from_utf8_lossy(&response.raw), head);
        assert_eq!(client.get("a.test", "/").text(), "next", "after {method} {head:?}");
    }
}

#[test]
fn bytes_behind_a_bodiless_response_are_nobodys_answer() {
    for (method, head) in
        [("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"), ("GET", "HTTP/1.1 204 No Content\r\n\r\n")]
    {
        let a = Origin::new(move |conn| {
            while let Some(request) = conn.request() {
                match request.target() {
                    "/evil" => conn.send(format!("{head}EVIL")),
                    _ => conn.send(reply("200 OK", &[], "good")),
                };
            }
        });
        let carom = Carom::to(a.port()).start();
        let mut client = carom.client();
        client.ask(request(&format!("{method} /evil"), "a.test", &[]));
        assert_eq!(carom.client().get("a.test", "/").text(), "good", "{method}");
        client.send(request("GET /", "a.test", &[]));
        assert_eq!(client.response().text(), "good", "{method}");
    }
}

#[test]
fn a_body_that_ends_with_the_connection_ends_with_it_here_too() {
    for head in ["HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n"] {
        let a = Origin::new(move |conn| {
            conn.request();
            conn.send(head);
            conn.send("hello");
            conn.pause(20);
            conn.send(" world");
        });
        let carom = Carom::to(a.port()).start();
        let mut client = carom.client();
        client.send(request("GET /", "a.test", &[]));
        let response = client.response();
        assert_eq!((response.text().as_str(), response.until_end), ("hello world", true), "{head:?}");
        assert!(!response.has("transfer-encoding") && !response.has("content-length"));
        assert_eq!(response.field("connection"), Some("close"), "{head:?}");
        assert_eq!(client.expect_end(), End::Fin);
    }
}

#[test]
fn an_http_1_0_backend_may_keep_its_connection() {
    let a = once("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for _ in 0..3 {
        let response = client.get("a.test", "/");
        assert_eq!((response.start.as_str(), response.text().as_str()), ("HTTP/1.1 200 OK", "hello"));
    }
    assert_eq!(a.connections(), 1);
}

#[test]
fn an_http_1_0_client_gets_no_chunks() {
    let body = "5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: v\r\n\r\n";
    let a = once(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
    let carom = Carom::to(a.port()).start();
    for fields in [&[][..], &["Connection: keep-alive"]] {
        let mut client = carom.client();
        let head = request("GET /", "a.test", fields).replace("HTTP/1.1", "HTTP/1.0");
        client.send(head);
        let response = client.response();
        assert!(!response.has("transfer-encoding") && !response.has("content-length"), "{:?}", response.fields);
        assert_eq!((response.text().as_str(), response.until_end), ("hello world", true));
        client.expect_end();
    }
}

#[test]
fn an_http_1_0_client_may_ask_to_keep_the_connection() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let head = request("GET /", "a.test", &["Connection: Keep-Alive"]).replace("HTTP/1.1", "HTTP/1.0");
    for _ in 0..3 {
        client.send(&head);
        let response = client.response();
        assert_eq!((response.text().as_str(), response.list("connection")), ("a GET /", vec!["keep-alive".to_owned()]));
    }
    client.send(head.replace("Connection: Keep-Alive\r\n", ""));
    assert_eq!(client.response().text(), "a GET /");
    client.expect_end();
}

#[test]
fn the_response_may_begin_before_the_request_ends() {
    let a = Origin::new(|conn| {
        let Some(mut head) = conn.head() else { return };
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ngo\r\n");
        conn.body(&mut head);
        conn.send(format!("{:x}\r\n{}\r\n0\r\n\r\n", head.body.len(), head.text()));
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[CHUNKED]) + "5\r\nfirst\r\n");
    let head = client.response_head();
    assert_eq!(head.status(), 200);
    client.expect("2\r\ngo\r\n");
    client.send("6\r\nsecond\r\n0\r\n\r\n");
    client.expect("b\r\nfirstsecond\r\n0\r\n\r\n");
    assert_eq!(a.request().chunks, [5, 6]);
}

#[test]
fn an_early_answer_reaches_the_client_and_the_rest_of_the_body_is_no_request() {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let a = Origin::new(|conn| {
        while let Some(mut head) = conn.head() {
            conn.send(reply("403 Forbidden", &[], "no"));
            if !conn.body(&mut head) {
                return;
            }
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[&format!("Content-Length: {}", hidden.len())]));
    assert_eq!(client.response_to("POST").status(), 403);
    client.try_send(hidden);
    client.try_send(request("GET /after", "a.test", &[]));
    if let Ok(next) = client.answer_or_end("GET") {
        assert_eq!((next.status(), next.text().as_str()), (403, "no"));
        a.wait("the request behind the body", |seen| {
            seen.requests.iter().any(|(_, r)| r.target() == "/after").then_some(())
        });
    }
    assert!(!a.lines().iter().any(|line| line.contains("hidden")), "{:?}", a.lines());
}

#[test]
fn more_bytes_than_the_length_says_are_not_the_old_body() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /1", "a.test", &["Content-Length: 10"]) + "0123456789XX");
    assert_eq!(client.response_to("POST").status(), 200);
    client.send(" /2 HTTP/1.1\r\nHost: a.test\r\n\r\n");
    // The surplus is the next method.
    assert_eq!(client.response().text(), "a XX /2");
    assert_eq!(a.requests()[0].text(), "0123456789");
}

#[test]
fn a_body_that_was_waited_for_in_vain_is_no_request() {
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let a = Origin::new(|conn| {
        while let Some(request) = conn.head() {
            conn.send(reply("403 Forbidden", &[], request.target()));
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &["Expect: 100-continue", &format!("Content-Length: {}", hidden.len())]));
    assert_eq!(client.response_to("POST").status(), 403);
    // A client that sends the body all the same.
    client.try_send(hidden);
    client.half_close();
    client.drain();
    assert!(!a.lines().iter().any(|line| line.contains("hidden")), "{:?}", a.lines());
}

#[test]
fn a_backend_that_answers_early_and_closes_is_heard() {
    let a = Origin::new(|conn| {
        conn.head();
        conn.send(reply("401 Unauthorized", &["Connection: close"], "who?"));
    });
    let carom = Carom::to(a.port()).start();
    for _ in 0..10 {
        let mut client = carom.client();
        client.send(request("POST /", "a.test", &["Content-Length: 10000000"]));
        let sender = vec![b'x'; 64 * 1024];
        for _ in 0..20 {
            client.try_send(&sender);
        }
        let response = client.response_to("POST");
        assert_eq!((response.status(), response.text().as_str()), (401, "who?"));
    }
}

/// Answers as a server that asks for the body.
fn asks_for_the_body(interim: &'static str) -> Origin {
    Origin::new(move |conn| {
        while let Some(mut head) = conn.head() {
            conn.send(interim);
            if !conn.body(&mut head) {
                return;
            }
            conn.send(reply("200 OK", &[], &"x".repeat(1000)));
        }
    })
}

#[test]
fn a_client_that_waits_for_a_100_gets_the_backends_and_a_whole_answer() {
    let a = asks_for_the_body("HTTP/1.1 100 Continue\r\n\r\n");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for fields in [["Expect: 100-continue", "Content-Length: 5"], ["expect: 100-Continue", CHUNKED]] {
        client.send(request("POST /", "a.test", &fields));
        client.expect("HTTP/1.1 100 Continue\r\n\r\n");
        client.send(if fields[1] == CHUNKED { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" });
        let response = client.response_to("POST");
        assert_eq!((response.status(), response.body.len(), response.interim.len()), (200, 1000, 0));
    }
    assert!(a.requests().iter().all(|r| r.text() == "hello"));
}

#[test]
fn a_body_that_is_sent_without_waiting_for_the_100_is_taken() {
    let a = asks_for_the_body("HTTP/1.1 100 Continue\r\n\r\n");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &["Expect: 100-continue", "Content-Length: 5"]) + "hello");
    assert_eq!(client.response_to("POST").status(), 200);
    assert_eq!(a.request().text(), "hello");
}

#[test]
fn a_backend_that_knows_no_100_gets_the_body_in_the_end() {
    let a = Origin::new(|conn| {
        while conn.request().is_some() {
            conn.send(reply("200 OK", &[], "ok"));
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &["Expect: 100-continue", "Content-Length: 5"]));
    // As RFC 9110 section 10.1.1 has it: the client does not wait for ever.
    client.pause(200);
    client.send("hello");
    assert_eq!(client.response_to("POST").text(), "ok");
    assert_eq!(a.request().text(), "hello");
}

#[test]
fn a_refused_expectation_is_answered_at_once_and_without_a_100() {
    for fields in [&[][..], &["Connection: close"]] {
        let a = Origin::new(move |conn| {
            conn.head();
            conn.send(reply("401 Unauthorized", fields, "who?"));
            conn.wait_end();
        });
        let b = Origin::named("b");
        let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), b.port())).start();
        let mut client = carom.client();
        client.send(request("POST /", "a.test", &["Expect: 100-continue", "Content-Length: 10000000"]));
        let response = client.response_to("POST");
        assert_eq!((response.status(), response.text().as_str()), (401, "who?"));
        assert!(response.interim.is_empty());
        // Kept or closed, but never stuck.
        if client.try_send(request("GET /", "b.test", &["Connection: close"]))
            && response.field("connection") != Some("close")
        {
            client.answer_or_end("GET").ok();
        }
    }
}

#[test]
fn interim_responses_pass_in_order() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </1>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </2>\r\n\r\n";
    let a = Origin::new(move |conn| {
        while conn.request().is_some() {
            conn.send(hints);
            conn.pause(20);
            conn.send(reply("200 OK", &[], "ok"));
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for _ in 0..2 {
        let response = client.get("a.test", "/");
        let links: Vec<_> = response.interim.iter().map(|i| (i.status(), i.field("link"))).collect();
        assert_eq!(links, [(103, Some("</1>")), (103, Some("</2>"))]);
        assert_eq!((response.status(), response.text().as_str()), (200, "ok"));
    }
}

#[test]
fn an_http_1_0_client_gets_no_interim_response() {
    let a = once(format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n{}", reply("200 OK", &[], "ok")));
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    let response = client.response();
    assert!(response.interim.is_empty());
    assert_eq!(response.text(), "ok");
}

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
    let a = once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n");
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

const MANY: usize = 50 << 20;

#[test]
fn fifty_megabytes_arrive_unchanged_in_both_directions() {
    let body = Arc::new(pattern(MANY));
    let sent = Arc::clone(&body);
    let a = Origin::new(move |conn| {
        while let Some(request) = conn.request() {
            assert!(request.body == *sent, "the upload arrived changed");
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {MANY}\r\n\r\n"));
            conn.send(&*sent);
        }
    });
    let carom = Carom::to(a.port()).start();
    let idle = carom.memory();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[&format!("Content-Length: {MANY}")]));
    client.send(&*body);
    let response = client.response_to("POST");
    assert!(response.body == *body, "the download arrived changed");
    let grown = carom.memory().saturating_sub(idle);
    assert!(grown < 8 << 20, "memory grew by {grown} bytes");
}

#[test]
fn fifty_megabytes_of_chunks_arrive_unchanged() {
    let block = Arc::new(pattern(100_003));
    let sent = Arc::clone(&block);
    let a = Origin::new(move |conn| {
        while let Some(request) = conn.request() {
            assert!(request.body.chunks(sent.len()).all(|piece| piece == &sent[..]), "the upload arrived changed");
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in request.body.chunks(sent.len()) {
                conn.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
            }
            conn.send("0\r\n\r\n");
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[CHUNKED]));
    for _ in 0..100 {
        client.send([format!("{:x}\r\n", block.len()).as_bytes(), &block, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    let response = client.response_to("POST");
    assert_eq!(response.body.len(), 100 * block.len());
    assert!(response.body.chunks(block.len()).all(|piece| piece == &block[..]), "the download arrived changed");
}

#[test]
fn a_reader_that_does_not_read_costs_little_and_slows_the_backend() {
    let sent = Arc::new(crate::support::Watched::new(0_usize));
    let counted = Arc::clone(&sent);
    let a = Origin::new(move |conn| {
        conn.request();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 500 << 20));
        let block = pattern(64 * 1024);
        while conn.send(&block) {
            counted.change(|sent| *sent += block.len());
        }
    });
    let carom = Carom::to(a.port()).start();
    let idle = carom.memory();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = carom.client();
            client.send(request("GET /", "a.test", &[]));
            assert_eq!(client.response_head().status(), 200);
            client
        })
        .collect();
    // Until nothing moves any more: the queues of the kernel are full.
    let (mut before, mut still) = (0, 0);
    poll_until("that the backend is slowed down", || {
        let now = sent.look(|sent| *sent);
        still = if now == before { still + 1 } else { 0 };
        before = now;
        still > 40
    });
    let grown = carom.memory().saturating_sub(idle);
    assert!(grown < 20 * 400 * 1024, "20 slow readers cost {grown} bytes");
    drop(clients);
}

#[test]
fn an_upload_reaches_the_backend_as_it_is_sent() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &["Content-Length: 100000000"]));
    a.wait("the head before the body", |seen| seen.requests.first().map(|_| ()));
    let mut expected = b"".to_vec();
    for byte in 0..20_u8 {
        client.send([byte; 10]);
        expected.extend([byte; 10]);
        let tail = expected.clone();
        a.wait("ten bytes more", |seen| seen.connections[0].bytes.ends_with(&tail).then_some(()));
    }
}

#[test]
fn events_are_not_held_back_whatever_their_type() {
    for kind in ["text/event-stream", "text/event-stream; charset=utf-8", "application/json", "image/png"] {
        let told = Arc::new(Gate::default());
        let next = Arc::new(crate::support::Watched::new(0_usize));
        let (opened, wanted) = (Arc::clone(&told), Arc::clone(&next));
        let a = Origin::new(move |conn| {
            conn.request();
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"));
            opened.open();
            for event in 0..10 {
                // Each is sent only when the client has the one before.
                wanted.wait_for(crate::support::PATIENCE, |wanted| (*wanted == event).then_some(()));
                conn.send(format!("9\r\ndata: {event}\n\n\r\n"));
            }
            conn.send("0\r\n\r\n");
        });
        let carom = Carom::to(a.port()).start();
        let mut client = carom.client();
        client.send(request("GET /", "a.test", &[]));
        assert_eq!(client.response_head().status(), 200);
        told.wait();
        let began = Instant::now();
        for event in 0..10 {
            client.expect(format!("9\r\ndata: {event}\n\n\r\n"));
            next.change(|wanted| *wanted = event + 1);
        }
        client.expect("0\r\n\r\n");
        assert!(began.elapsed() < Duration::from_secs(2), "{kind}: ten events took {:?}", began.elapsed());
    }
}

#[test]
fn a_message_in_single_bytes_is_the_same_message() {
    let a = Origin::new(|conn| {
        while conn.request().is_some() {
            conn.drip(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5;x\r\nhello\r\n0\r\nX-T: v\r\n\r\n",
            );
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let bytes = request("POST /1", "a.test", &[CHUNKED, "X-A: b"]) + "5\r\nhello\r\n0\r\n\r\n";
    for byte in (bytes + &request("GET /2", "a.test", &[])).bytes() {
        client.send([byte]);
    }
    for method in ["POST", "GET"] {
        let response = client.response_to(method);
        assert_eq!((response.text().as_str(), response.trailers.len()), ("hello", 1));
    }
    assert_eq!(a.lines(), ["POST /1", "GET /2"]);
    assert_eq!(a.requests()[0].text(), "hello");
}

#[test]
fn requests_cut_anywhere_are_the_same_requests() {
    let a = Origin::named("a");
    let b = Origin::named("b");
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), b.port())).start();
    let bytes = request("GET /1", "a.test", &[])
        + &with_body("POST /2", "b.test", "hello")
        + &request("PUT /3", "a.test", &[CHUNKED])
        + "5\r\nhello\r\n0\r\n\r\n";
    for size in [1, 2, 3, 5, 7, 11, 23, 64] {
        let mut client = carom.client();
        for piece in bytes.as_bytes().chunks(size) {
            client.send(piece);
            std::thread::yield_now();
        }
        for answer in ["a GET /1", "b POST /2", "a PUT /3"] {
            assert_eq!(client.response().text(), answer, "in pieces of {size}");
        }
    }
}

#[test]
fn both_directions_flow_at_once() {
    // Sends back each piece as it comes, so that neither side ends before the other.
    let a = Origin::new(|conn| {
        if conn.head().is_none() {
            return;
        }
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 20 << 20));
        let mut left: usize = 20 << 20;
        while let Some(bytes) = (left > 0).then(|| conn.some()).flatten() {
            left -= bytes.len();
            conn.send(bytes);
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("POST /", "a.test", &[&format!("Content-Length: {}", 20 << 20)]));
    let bytes = pattern(20 << 20);
    let mut sender = client.second_hand();
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || sender.send(&sent));
    let response = client.response_to("POST");
    assert!(response.body == bytes, "the body came back changed");
    sending.join().unwrap();
}

#[test]
fn heads_of_every_length_around_a_buffers_end_are_the_same_heads() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            let size = request.field("x-answer").map_or(0, |size| size.parse().unwrap());
            conn.send(reply("200 OK", &[&format!("X-Pad: {}", "p".repeat(size))], &request.text()));
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for power in [2048, 4096, 8192, 16384, 32768] {
        for length in power - 3..=power + 3_usize {
            let fields = |pad: usize| ["Content-Length: 5".to_owned(), format!("X-Pad: {}", "p".repeat(pad))];
            let bare = request("PUT /", "a.test", &fields(0).each_ref().map(String::as_str)).len();
            let answer = format!("X-Answer: {}", length - 60);
            if length < 32760 {
                let fields = fields(length - bare);
                let bytes = request("PUT /", "a.test", &fields.each_ref().map(String::as_str)) + "hello";
                assert_eq!(client.ask(bytes).text(), "hello", "a request head of {length}");
            }
            let bytes = request("PUT /", "a.test", &["Content-Length: 5", &answer]) + "hello";
            let response = client.ask(bytes);
            assert_eq!(response.text(), "hello", "a response head of about {length}");
            assert_eq!(response.field("x-pad").map(str::len), Some(length - 60));
        }
    }
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// A body in some framing: its field and its bytes.
    fn framed(&mut self, body: &[u8]) -> (String, Vec<u8>) {
        if self.below(2) == 0 {
            return (format!("Content-Length: {}", body.len()), body.to_vec());
        }
        let mut bytes = Vec::new();
        let mut rest = body;
        while !rest.is_empty() {
            let size = (1 + self.below(rest.len().min(9000))).min(rest.len());
            let extension = ["", ";x", ";name=\"value\""][self.below(3)];
            let zeros = "0".repeat(self.below(3));
            bytes.extend(format!("{zeros}{size:x}{extension}\r\n").bytes());
            bytes.extend(&rest[..size]);
            bytes.extend(b"\r\n");
            rest = &rest[size..];
        }
        bytes.extend(["0\r\n\r\n", "000\r\nX-T: v\r\n\r\n", "0;x\r\n\r\n"][self.below(3)].bytes());
        (CHUNKED.to_owned(), bytes)
    }

    fn size(&mut self) -> usize {
        let limit = [1, 20, 5000, 70_000][self.below(4)];
        self.below(limit)
    }
}

#[test]
fn random_messages_in_random_pieces_arrive_unchanged() {
    let a = Origin::new(|conn| {
        let mut dice = Dice(conn.index as u64 + 99);
        while let Some(request) = conn.request() {
            let (field, body) = dice.framed(&request.body);
            let bytes = [format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n").as_bytes(), &body].concat();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let size = (1 + dice.size()).min(rest.len());
                conn.send(&rest[..size]);
                rest = &rest[size..];
            }
        }
    });
    let carom = Carom::to(a.port()).start();
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut client = carom.client();
        for round in 0..20 {
            let size = dice.size();
            let body = pattern(size + round)[round..].to_vec();
            let (field, framed) = dice.framed(&body);
            let bytes = [request("PUT /", "a.test", &[&field]).as_bytes(), &framed].concat();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let size = (1 + dice.size()).min(rest.len());
                client.send(&rest[..size]);
                rest = &rest[size..];
            }
            let response = client.response_to("PUT");
            assert_eq!(response.body.len(), body.len(), "seed {seed}, round {round}");
            assert!(response.body == body, "seed {seed}, round {round}: changed");
        }
    }
}
