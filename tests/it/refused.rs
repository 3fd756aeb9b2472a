//! What is refused before a backend hears of it: whatever two readers could read differently.
//!
//! Each case is raw bytes, the status and reason code that they get, the end of the connection, and no connection at
//! any backend.

use crate::support::{Carom, Origin, request};

/// A second request that must never be seen, hidden where a careless reader would look for one.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a.test\r\n\r\n";

/// Sends each of these to a fresh connection, and expects this answer, the end, and an untouched backend.
#[track_caller]
fn assert_refused(status: u16, code: &str, cases: &[(&str, Vec<u8>)]) {
    let a = Origin::named("a");
    let carom = Carom::serving(format!("\"a.test\" = {0}\n\"b.test\" = {0}\n\"*\" = {0}\n", a.port()))
        .config("[timeouts]\nhead = \"3s\"\nbody = \"3s\"")
        .start();
    let mut wrong = Vec::new();
    for (name, bytes) in cases {
        let mut client = carom.client();
        client.try_send(bytes);
        match client.answer_or_end("GET") {
            Ok(response) => {
                let got = (response.status(), response.error().map(str::to_owned));
                if got != (status, Some(code.to_owned())) {
                    wrong.push(format!("{name}: {got:?}"));
                    continue;
                }
                if response.field("connection") != Some("close") {
                    wrong.push(format!("{name}: Connection is {:?}", response.field("connection")));
                }
                let (more, _) = client.rest();
                if !more.is_empty() {
                    wrong.push(format!("{name}: behind the refusal came {}", more.escape_ascii()));
                }
            }
            Err(end) => wrong.push(format!("{name}: {end:?} without an answer")),
        }
    }
    if a.connections() > 0 {
        wrong.push(format!("a backend was reached, with {:?}", a.lines()));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    carom.assert_running();
}

/// GET with these field lines, each given with its line end.
fn lines(lines: impl AsRef<[u8]>) -> Vec<u8> {
    [b"GET /x HTTP/1.1\r\nHost: a.test\r\n", lines.as_ref(), b"\r\n"].concat()
}

/// POST with these field lines and this body.
fn post(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /x HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n{body}").into_bytes()
}

/// A whole head, given raw.
fn raw(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    bytes.as_ref().to_vec()
}

#[test]
fn a_length_and_a_coding_together_are_refused() {
    let hidden_behind_chunks = format!("0\r\n\r\n{HIDDEN}");
    let length = format!("Content-Length: {}\r\n", hidden_behind_chunks.len());
    let coding = "Transfer-Encoding: chunked\r\n";
    let hidden_in_chunk = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    assert_refused(
        400,
        "malformed-head",
        &[
            ("length first", post(&format!("{length}{coding}"), &hidden_behind_chunks)),
            ("coding first", post(&format!("{coding}{length}"), &hidden_behind_chunks)),
            ("a short length", post(&format!("{coding}Content-Length: 4\r\n"), &hidden_in_chunk)),
            ("length 0", post(&format!("{coding}Content-Length: 0\r\n"), "0\r\n\r\n")),
            ("names in capitals", post("CONTENT-LENGTH: 5\r\nTRANSFER-ENCODING: CHUNKED\r\n", "0\r\n\r\n")),
            ("a field between", post(&format!("{length}X-A: b\r\n{coding}"), &hidden_behind_chunks)),
        ],
    );
}

#[test]
fn a_coding_that_is_not_exactly_chunked_is_refused() {
    let body = "5\r\nhello\r\n0\r\n\r\n";
    let values = [
        "xchunked",
        "chunkedx",
        "identity",
        "gzip",
        "",
        ",",
        "chunked, identity",
        "identity, chunked",
        "gzip, chunked",
        "chunked, chunked",
        "chunked,",
        ", chunked",
        "chunked;q=1",
        "\"chunked\"",
        "'chunked'",
        "chun ked",
        "chunked\u{a0}",
        "\u{a0}chunked",
        "chun\u{212a}ed",
    ];
    let mut cases: Vec<_> =
        values.iter().map(|value| (*value, post(&format!("Transfer-Encoding: {value}\r\n"), body))).collect();
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    cases.push(("two lines", post(twice, body)));
    cases.push(("chunked, then another", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", body)));
    cases.push(("another, then chunked", post("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", body)));
    cases.push(("a space before the colon", post("Transfer-Encoding : chunked\r\n", body)));
    cases.push(("a tab before the colon", post("Transfer-Encoding\t: chunked\r\n", body)));
    cases.push(("folded", post("Transfer-Encoding:\r\n chunked\r\n", body)));
    cases.push(("folded inside", post("Transfer-Encoding: chun\r\n ked\r\n", body)));
    cases.push(("as a continuation", post("X: y\r\n Transfer-Encoding: chunked\r\n", body)));
    cases.push(("behind a bare CR", post("X: y\rTransfer-Encoding: chunked\r\n", body)));
    cases.push(("behind a bare LF", post("X: y\nTransfer-Encoding: chunked\r\n", body)));
    cases.push(("two colons", post("Transfer-Encoding:: chunked\r\n", body)));
    cases.push(("a vertical tab", post("Transfer-Encoding: \u{b}chunked\r\n", body)));
    cases.push(("a form feed", post("Transfer-Encoding: \u{c}chunked\r\n", body)));
    cases.push(("a NUL", post("Transfer-Encoding: chunked\0\r\n", body)));
    cases.push(("a backspace in the name", post("Transfer-Encoding\u{8}: chunked\r\n", body)));
    cases.push((
        "HTTP/1.0",
        raw(format!("POST /x HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n{body}")),
    ));
    assert_refused(400, "malformed-head", &cases);
}

#[test]
fn a_length_that_is_not_one_number_is_refused() {
    let values = [
        "+5",
        "-5",
        "-0",
        "0x5",
        "5.0",
        "5e0",
        "5abc",
        "five",
        "",
        "5 5",
        "1_0",
        "\"5\"",
        "5;5",
        "5,",
        "5, 5",
        "5, 6",
        "\u{ff15}",
        "18446744073709551621",
        "99999999999999999999999999999999",
    ];
    let mut cases: Vec<_> =
        values.iter().map(|value| (*value, post(&format!("Content-Length: {value}\r\n"), "hello"))).collect();
    let hidden = format!("Content-Length: 0\r\nContent-Length: {}\r\n", HIDDEN.len());
    cases.push(("two that differ", post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")));
    cases.push(("two that hide a request", post(&hidden, HIDDEN)));
    cases.push(("one that is no number", post("Content-Length: 5\r\nContent-Length: x\r\n", "hello")));
    cases.push(("a space before the colon", post("Content-Length : 5\r\n", "hello")));
    cases.push(("folded", post("Content-Length:\r\n 5\r\n", "hello")));
    cases.push(("a bare CR inside", post("Content-Length: 1\r2\r\n", "hello")));
    cases.push(("a vertical tab", post("Content-Length: \u{b}5\r\n", "hello")));
    cases.push(("a NUL", post("Content-Length: 5\0\r\n", "hello")));
    assert_refused(400, "malformed-head", &cases);
}

#[test]
fn a_missing_repeated_or_malformed_host_is_refused() {
    let hosts = [
        "",
        ".",
        "a..test",
        ".a.test",
        "a.test:0",
        "a.test:99999",
        "a.test:8x",
        "a.test:80:80",
        "a.test:-1",
        "u@a.test",
        "u:p@a.test",
        "a b.test",
        "a.test b.test",
        "a.test, b.test",
        "a.test/x",
        "a.test?x",
        "a.test#x",
        "a.test\\b.test",
        "[::1",
        "[::1]a.test",
        "[::g]",
        "[]",
        "::1",
        "a%2etest",
        "a.test\u{e9}",
        "http://a.test",
    ];
    let mut cases: Vec<_> =
        hosts.iter().map(|host| (*host, raw(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")))).collect();
    cases.push(("missing", raw("GET / HTTP/1.1\r\nX-A: b\r\n\r\n")));
    cases.push(("missing beside an absolute target", raw("GET http://a.test/ HTTP/1.1\r\n\r\n")));
    cases.push(("two that differ", lines("Host: b.test\r\n")));
    cases.push(("two that are the same", lines("Host: a.test\r\n")));
    cases.push(("two with a field between", lines("X-A: b\r\nhOST: a.test\r\n")));
    cases.push(("a Latin-1 byte", raw(b"GET / HTTP/1.1\r\nHost: a.test\xe9\r\n\r\n")));
    cases.push(("254 bytes", raw(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(254)))));
    cases.push(("5,000 bytes", raw(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "x".repeat(5000)))));
    cases.push(("user information in the target", raw("GET http://a.test@b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")));
    cases.push(("no host in the target", raw("GET http:///x HTTP/1.1\r\nHost: a.test\r\n\r\n")));
    cases.push(("a bad port in the target", raw("GET http://a.test:99999/ HTTP/1.1\r\nHost: a.test\r\n\r\n")));
    assert_refused(400, "bad-host", &cases);
}

#[test]
fn a_field_that_is_none_is_refused() {
    let mut cases = vec![
        ("a space before the colon", lines("X-A : b\r\n")),
        ("a tab before the colon", lines("X-A\t: b\r\n")),
        ("a host with a space before the colon", lines("Host : b.test\r\n")),
        ("no colon", lines("X-A\r\n")),
        ("an empty name", lines(": b\r\n")),
        ("a space in the name", lines("User Agent: x\r\n")),
        ("folded", lines("X-A: a\r\n b\r\n")),
        ("folded with a tab", lines("X-A: a\r\n\tb\r\n")),
        ("a first line that begins with a space", raw("GET /x HTTP/1.1\r\n Host: a.test\r\n\r\n")),
        ("a bare CR in a value", lines("X-A: a\rX-B: b\r\n")),
        ("a bare CR at the end of a value", lines("X-A: a\r\r\n")),
        ("a bare LF in a value", lines("X-A: a\nX-B: b\r\n")),
        ("one line with LF alone", lines("X-A: a\n")),
        ("the last line with LF alone", raw("GET /x HTTP/1.1\r\nHost: a.test\r\n\n")),
        ("all lines with LF alone", raw("GET /x HTTP/1.1\nHost: a.test\n\n")),
        ("the request line with LF alone", raw("GET /x HTTP/1.1\nHost: a.test\r\n\r\n")),
        ("a NUL in a value", lines("X-A: a\0b\r\n")),
        ("a control byte in a value", lines("X-A: a\x01b\r\n")),
        ("a DEL in a value", lines("X-A: a\x7fb\r\n")),
        ("a NUL in a name", lines("X\0A: b\r\n")),
        ("a Latin-1 byte in a name", lines(b"X\xe9A: b\r\n")),
    ];
    for name in ["X(A", "X\"A", "X/A", "X@A", "X{A", "X=A", "X[A", "X,A", "X;A", "X\\A", "X<A"] {
        cases.push((name, lines(format!("{name}: b\r\n"))));
    }
    assert_refused(400, "malformed-head", &cases);
}

#[test]
fn a_request_line_that_is_none_is_refused() {
    let mut cases = vec![
        ("two spaces before the target", raw("GET  /x HTTP/1.1\r\nHost: a.test\r\n\r\n")),
        ("two spaces behind the target", raw("GET /x  HTTP/1.1\r\nHost: a.test\r\n\r\n")),
        ("a space at the end", raw("GET /x HTTP/1.1 \r\nHost: a.test\r\n\r\n")),
        ("a space at the front", raw(" GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n")),
        ("tabs", raw("GET\t/x\tHTTP/1.1\r\nHost: a.test\r\n\r\n")),
        ("no target", raw("GET HTTP/1.1\r\nHost: a.test\r\n\r\n")),
        ("no version", raw("GET /x\r\nHost: a.test\r\n\r\n")),
        ("no method", raw(" /x HTTP/1.1\r\nHost: a.test\r\n\r\n")),
        ("a handshake of TLS", raw(b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\x00\x01\x02\x03\x04\r\n\r\n")),
        ("HTTP/2 without being asked", raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
        ("a method with a NUL", raw("G\0T /x HTTP/1.1\r\nHost: a.test\r\n\r\n")),
        ("a Latin-1 method", raw(b"G\xc9T /x HTTP/1.1\r\nHost: a.test\r\n\r\n")),
    ];
    for method in ["GE(T", "GET:", "\"GET\"", "G,T", "G/T", "G=T"] {
        cases.push((method, raw(format!("{method} /x HTTP/1.1\r\nHost: a.test\r\n\r\n"))));
    }
    for version in [
        "HTTP/2.0",
        "HTTP/3",
        "HTTP/1",
        "http/1.1",
        "HTTQ/1.1",
        "HTTP/1.10",
        "HTTP/01.1",
        "HTTP/1.-1",
        "HTTP/1,1",
        "HTTP /1.1",
        "HTTP/1.1x",
        "HTTP/0.9",
        "HTTP/1.2",
        "HTTP/9.9",
    ] {
        cases.push((version, raw(format!("GET /x {version}\r\nHost: a.test\r\n\r\n"))));
    }
    assert_refused(400, "malformed-head", &cases);
}

#[test]
fn a_target_that_is_none_is_refused() {
    let targets = [
        "/x#frag",
        "/a b",
        "/a\tb",
        "/a\0b",
        "/a\x07b",
        "/a\x7fb",
        "/a\rb",
        "x",
        "\\x",
        "*",
        "?x",
        "a.test",
        "ftp://a.test/x",
        "https:a.test",
        "http:/a.test",
    ];
    let cases: Vec<_> =
        targets.iter().map(|target| (*target, raw(format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n")))).collect();
    assert_refused(400, "malformed-head", &cases);
}

#[test]
fn connect_is_refused_and_hides_nothing() {
    assert_refused(
        400,
        "malformed-head",
        &[
            ("alone", raw("CONNECT b.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n")),
            ("with a request behind it", raw(format!("CONNECT a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n{HIDDEN}"))),
            ("of a path", raw("CONNECT /x HTTP/1.1\r\nHost: a.test\r\n\r\n")),
        ],
    );
}

#[test]
fn connection_may_not_name_more_fields_than_anyone_sends() {
    let many = (0..200).map(|n| format!("x{n}")).collect::<Vec<_>>().join(", ");
    assert_refused(400, "malformed-head", &[("200 names", lines(format!("Connection: {many}\r\n")))]);
}

#[test]
fn what_stands_behind_a_refused_head_is_never_read_as_a_request() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /1", "a.test", &[]) + "BAD\r\n\r\n" + HIDDEN);
    assert_eq!(client.response().text(), "a GET /1");
    let refusal = client.response();
    assert_eq!((refusal.status(), refusal.error()), (400, Some("malformed-head")));
    client.expect_end();
    assert_eq!(a.lines(), ["GET /1"]);
}

#[test]
fn a_refusal_arrives_even_while_the_client_is_still_sending() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    for _ in 0..20 {
        let mut client = carom.client();
        client.try_send("POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: +5\r\n\r\n");
        for _ in 0..16 {
            client.try_send([b'x'; 16 * 1024]);
        }
        client.half_close();
        let response = client.response();
        assert_eq!((response.status(), response.error()), (400, Some("malformed-head")));
    }
    a.assert_untouched();
}

/// A chunked body that is broken: the head may have gone on, since bytes are not held back, but the request is never
/// whole at the backend, and nothing behind it is read as another.
#[test]
fn broken_chunks_are_refused_and_never_complete_a_request() {
    let bodies: &[(&str, &str)] = &[
        ("a hex prefix", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("a plus sign", "+5\r\nhello\r\n0\r\n\r\n"),
        ("a minus sign", "-5\r\nhello\r\n0\r\n\r\n"),
        ("a space in front", " 5\r\nhello\r\n0\r\n\r\n"),
        ("a space inside", "5 5\r\nhello\r\n0\r\n\r\n"),
        ("no size", "\r\nhello\r\n0\r\n\r\n"),
        ("only an extension", ";a=b\r\nhello\r\n0\r\n\r\n"),
        ("a word", "xyz\r\nhello\r\n0\r\n\r\n"),
        ("an underscore", "0_5\r\nhello\r\n0\r\n\r\n"),
        ("quotes", "\"5\"\r\nhello\r\n0\r\n\r\n"),
        ("a comma", "5,5\r\nhello\r\n0\r\n\r\n"),
        ("2^64 + 5", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("17 digits", "00000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("data that is too long", "5\r\nhelloXX\r\n0\r\n\r\n"),
        ("a NUL in the size", "5\0\r\nhello\r\n0\r\n\r\n"),
        ("a NUL in the extension", "5;a\0b\r\nhello\r\n0\r\n\r\n"),
        ("a bare CR in the extension", "5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("a bare CR behind the size", "5\rhello\r\n0\r\n\r\n"),
        ("CR CR LF", "5\r\r\nhello\r\n0\r\n\r\n"),
        ("LF behind the size", "5\nhello\r\n0\r\n\r\n"),
        ("LF behind an extension", "5;x\nhello\r\n0\r\n\r\n"),
        ("LF behind the data", "5\r\nhello\n0\r\n\r\n"),
        ("LF behind the last size", "5\r\nhello\r\n0\n\r\n"),
        ("LF at the very end", "5\r\nhello\r\n0\r\n\n"),
        ("a trailer without a colon", "5\r\nhello\r\n0\r\nbad trailer\r\n\r\n"),
        ("a trailer with a space before its colon", "5\r\nhello\r\n0\r\nX-A : b\r\n\r\n"),
        ("a folded trailer", "5\r\nhello\r\n0\r\nX-A: a\r\n b\r\n\r\n"),
        ("a trailer with a NUL", "5\r\nhello\r\n0\r\nX-A: a\0\r\n\r\n"),
        ("a trailer with a bare LF", "5\r\nhello\r\n0\r\nX-A: a\n\r\n"),
        ("a length as trailer", "5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n"),
        ("a coding as trailer", "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("a host as trailer", "5\r\nhello\r\n0\r\nHost: b.test\r\n\r\n"),
    ];
    // Waits for the end of the request before it answers; what comes instead of one is not its to judge.
    let a = Origin::new(|conn| while conn.some().is_some() {});
    let carom = Carom::to(a.port()).config("[timeouts]\nbody = \"5s\"").start();
    for together in [true, false] {
        for (name, body) in bodies {
            let mut client = carom.client();
            let head = request("POST /x", "a.test", &["Transfer-Encoding: chunked"]);
            if together {
                client.send(head + body + HIDDEN);
            } else {
                client.send(head);
                client.pause(2);
                client.try_send(format!("{body}{HIDDEN}"));
            }
            let response = client.answer_or_end("POST").unwrap_or_else(|end| panic!("{name}: {end:?}, no answer"));
            assert_eq!((response.status(), response.error()), (400, Some("malformed-body")), "{name}");
            let (more, _) = client.rest();
            assert!(more.is_empty(), "{name}: behind the refusal came {}", more.escape_ascii());
        }
    }
    a.connections();
    a.wait("the end of every connection", |seen| seen.connections.iter().all(|c| c.end.is_some()).then_some(()));
    a.wait("", |seen| {
        for connection in &seen.connections {
            let text = String::from_utf8_lossy(&connection.bytes);
            assert!(!text.contains("/hidden"), "a hidden request went through: {text}");
            assert!(!text.ends_with("0\r\n\r\n"), "a broken body was completed: {text}");
        }
        Some(())
    });
}

#[test]
fn a_lone_line_feed_in_a_chunk_extension_hides_no_request() {
    let a = Origin::new(|conn| while conn.some().is_some() {});
    let carom = Carom::to(a.port()).start();
    let hidden = format!("2;\nxx\r\n{:x}\r\n0\r\n\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len() + 5);
    let mut client = carom.client();
    client.send(request("POST /x", "a.test", &["Transfer-Encoding: chunked"]) + &hidden);
    assert_eq!(client.response_to("POST").error(), Some("malformed-body"));
    client.drain();
    a.connections();
    a.wait("", |seen| {
        let hidden = |c: &crate::support::origin::Connection| String::from_utf8_lossy(&c.bytes).contains("/hidden");
        assert!(!seen.connections.iter().any(hidden));
        Some(())
    });
}

#[test]
fn an_empty_line_before_a_request_is_skipped() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    assert_eq!(client.ask("\r\n".to_owned() + &request("GET /1", "a.test", &[])).status(), 200);
    // Some clients send one behind a body.
    client.send(request("POST /2", "a.test", &["Content-Length: 5"]) + "hello\r\n" + &request("GET /3", "a.test", &[]));
    assert_eq!(client.response_to("POST").status(), 200);
    assert_eq!(client.response().text(), "a GET /3");
}

#[test]
fn a_flood_of_empty_lines_is_no_way_to_keep_a_connection_busy() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nhead = \"500ms\"").start();
    let mut client = carom.client();
    for _ in 0..2000 {
        if !client.try_send("\r\n".repeat(100)) {
            break;
        }
    }
    client.drain();
    a.assert_untouched();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
}

#[test]
fn noise_is_refused_and_does_no_harm() {
    let noise: Vec<u8> = (0..=255_u8).cycle().take(5120).collect();
    let without_line_end = vec![b'A'; 100_000];
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nhead = \"2s\"").start();
    for bytes in [noise, without_line_end] {
        let mut client = carom.client();
        client.try_send(&bytes);
        if let Ok(response) = client.answer_or_end("GET") {
            assert!([400, 408, 414, 431].contains(&response.status()), "{}", response.start);
        }
    }
    a.assert_untouched();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
}
