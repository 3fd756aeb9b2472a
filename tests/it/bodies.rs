//! Bodies in both directions, framed as RFC 9112 says, and passed on as they were sent.

use crate::support::{CHUNKED, Carom, End, Origin, reply, request, with_body};

#[test]
fn a_body_with_a_length_arrives_whole_in_both_directions() {
    let a = Origin::replying(reply("200 OK", &[], "the answer"));
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
    let a = Origin::replying(reply("200 OK", &[], "ok"));
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
    let a = Origin::replying(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n{body}"));
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
    let a = Origin::replying(format!("{head}ok"));
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let response = client.get("a.test", "/");
    assert_eq!(String::from_utf8_lossy(&response.raw), head);
    let cookies = ["a=1; Expires=Thu, 01 Jan 2099 00:00:00 GMT", "b=2, 3", "c"];
    assert_eq!(response.all("set-cookie"), cookies);
}

#[test]
fn bytes_above_ascii_in_a_response_field_arrive_as_sent() {
    let a = Origin::replying(b"HTTP/1.1 200 OK\r\nX-U: caf\xc3\xa9 \xff\r\nContent-Length: 0\r\n\r\n".to_vec());
    let carom = Carom::to(a.port()).start();
    assert_eq!(carom.client().get("a.test", "/").field("x-u"), Some("caf\u{c3}\u{a9} \u{ff}"));
}

#[test]
fn an_empty_reason_is_a_reason() {
    for line in ["HTTP/1.1 200 ", "HTTP/1.1 299 Odd"] {
        let a = Origin::replying(format!("{line}\r\nContent-Length: 2\r\n\r\nok"));
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
    let a = Origin::replying("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello");
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
    let a = Origin::replying(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
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
