//! What comes before its turn: answers to requests that have not ended, interim responses, `Expect: 100-continue`.

use crate::support::{CHUNKED, Carom, Origin, reply, request};

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
    let a = Origin::replying(format!(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n{}",
        reply("200 OK", &[], "ok")
    ));
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n");
    let response = client.response();
    assert!(response.interim.is_empty());
    assert_eq!(response.text(), "ok");
}
