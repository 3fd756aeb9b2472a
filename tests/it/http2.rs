//! HTTP/2 in front: one connection, many requests, each to HTTP/1 what an HTTP/1 client's is.

use bytes::Bytes;
use h2::Reason;
use http::Request;

use rustix::process::Signal;

use crate::support::carom::Setup;
use crate::support::http2::{Http2, get};
use crate::support::tls::pem;
use crate::support::{Carom, Gate, Origin, pattern, reply};

use std::sync::Arc;

/// Where HTTP/2 may begin at once.
fn plain(setup: Setup) -> Carom {
    setup.config("[http2]\nprior_knowledge = true").start()
}

fn serving(origin: &Origin) -> (Carom, Http2) {
    let carom = plain(Carom::to(origin.port()));
    let client = Http2::connect(carom.address());
    (carom, client)
}

#[test]
fn every_stream_is_routed_by_its_own_authority() {
    let (beep, boop) = (Origin::named("beep"), Origin::named("boop"));
    let carom = plain(Carom::serving(format!("\"beep.test\" = {}\n\"boop.test\" = {}\n", beep.port(), boop.port())));
    let mut client = Http2::connect(carom.address());
    let mut asked: Vec<_> = ["beep", "boop", "beep", "nobody"]
        .iter()
        .map(|name| client.begin(get(&format!("http://{name}.test/x")), true))
        .collect();
    let answers: Vec<_> = asked.iter_mut().map(|asked| client.answer(asked).unwrap()).collect();
    assert_eq!(answers[0].text(), "beep GET /x");
    assert_eq!(answers[1].text(), "boop GET /x");
    assert_eq!(answers[2].text(), "beep GET /x");
    assert_eq!((answers[3].status, answers[3].field("carom-error")), (404, "no-route"));
}

#[test]
fn the_backend_sees_a_request_of_http_1() {
    let origin = Origin::named("a");
    let (_carom, mut client) = serving(&origin);
    let request = Request::get("http://a.test/x?y")
        .header("cookie", "a=1")
        .header("accept", "*/*")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .header("x-forwarded-for", "6.6.6.6")
        .header("content_length", "5");
    assert_eq!(client.ask(request).status, 200);
    let seen = origin.requests().remove(0);
    assert_eq!(seen.start, "GET /x?y HTTP/1.1");
    let lines: Vec<_> = seen.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(
        lines,
        [
            "host: a.test",
            "cookie: a=1; b=2",
            "accept: */*",
            "TE: trailers",
            "Connection: TE",
            "X-Forwarded-For: 127.0.0.1",
            "X-Forwarded-Proto: http",
            "X-Forwarded-Host: a.test",
        ]
    );
}

#[test]
fn bodies_go_both_ways_with_their_length_or_without() {
    let origin = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            conn.send(reply("200 OK", &[], &"x".repeat(request.body.len())));
        }
    });
    let (_carom, mut client) = serving(&origin);
    for length in [0, 1, 16_384, 16_385, 1_000_000] {
        for sized in [true, false] {
            let mut request = Request::post("http://a.test/");
            if sized {
                request = request.header("content-length", length);
            }
            let answer = client.ask_with(request, pattern(length));
            assert_eq!((answer.status, answer.body.len()), (200, length), "sized: {sized}");
            assert_eq!(answer.field("content-length"), length.to_string());
            let seen = origin.requests().pop().unwrap();
            assert_eq!(seen.body, pattern(length));
            assert_eq!(seen.has("content-length"), sized);
        }
    }
}

#[test]
fn trailers_go_both_ways() {
    let origin = Origin::new(|conn| {
        while conn.request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n");
        }
    });
    let (_carom, mut client) = serving(&origin);
    let mut asked = client.begin(Request::post("http://a.test/"), false);
    asked.send.send_data(Bytes::from_static(b"body"), false).unwrap();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("x-check", "5".parse().unwrap());
    trailers.insert("content-length", "99".parse().unwrap());
    asked.send.send_trailers(trailers).unwrap();
    let answer = client.answer(&mut asked).unwrap();
    assert_eq!((answer.text().as_str(), answer.trailers["x-sum"].to_str().unwrap()), ("hi", "7"));
    assert!(!answer.fields.contains_key("transfer-encoding"));
    let seen = origin.requests().remove(0);
    assert_eq!(seen.body, b"body");
    assert_eq!(seen.trailers, [("x-check".to_owned(), "5".to_owned())]);
}

#[test]
fn heads_without_a_body_stay_without() {
    let origin = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            match request.start.split(' ').nth(1).unwrap() {
                "/none" => conn.send("HTTP/1.1 204 No Content\r\n\r\n"),
                "/same" => conn.send("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 5\r\n\r\n"),
                _ => conn.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
            };
        }
    });
    let (_carom, mut client) = serving(&origin);
    for (request, status) in [
        (Request::get("http://a.test/none"), 204),
        (Request::get("http://a.test/same"), 304),
        (Request::head("http://a.test/"), 200),
    ] {
        let answer = client.ask(request);
        assert_eq!((answer.status, answer.body.len()), (status, 0));
        if status == 200 {
            assert_eq!(answer.field("content-length"), "5");
        }
    }
}

#[test]
fn interim_answers_pass() {
    let origin = Origin::new(|conn| {
        let head = conn.head().unwrap();
        assert_eq!(head.field("expect"), Some("100-continue"));
        conn.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(conn.exactly(2).as_deref(), Some(&b"hi"[..]));
        conn.send(reply("200 OK", &[], "done"));
    });
    let (_carom, mut client) = serving(&origin);
    let request = Request::post("http://a.test/").header("expect", "100-continue").header("content-length", 2);
    let mut asked = client.begin(request, false);
    client.settle();
    // The body is sent once the 100 has come, which the script waits for.
    asked.send.send_data(Bytes::from_static(b"hi"), true).unwrap();
    let answer = client.answer(&mut asked).unwrap();
    assert_eq!(answer.text(), "done");
    let interim: Vec<_> = answer.interim.iter().map(|(status, _)| *status).collect();
    assert_eq!(interim, [103, 100]);
    assert_eq!(answer.interim[0].1["link"], "</a.css>");
}

#[test]
fn a_body_that_breaks_off_behind_has_no_clean_end_in_front() {
    for framing in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let body = if framing.starts_with('C') { "half" } else { "4\r\nhalf\r\n" };
        let origin = Origin::replying_once(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{body}"));
        let (carom, mut client) = serving(&origin);
        let mut asked = client.begin(get("http://a.test/cut"), true);
        // How much of it still comes before the reset is a matter of chance.
        let end = client.answer(&mut asked).expect_err("a clean end");
        assert_eq!(end.reason(), Some(Reason::INTERNAL_ERROR));
        assert_eq!(carom.logged_path("/cut")["reason"], "backend-closed-mid-body");
        // The connection is as good as before.
        assert_eq!(client.ask(get("http://nobody.test/")).status, 404);
    }
}

#[test]
fn a_body_that_ends_with_its_connection_ends() {
    let origin = Origin::replying_once("HTTP/1.0 200 OK\r\nX: y\r\n\r\nall of it");
    let (_carom, mut client) = serving(&origin);
    let answer = client.ask(get("http://a.test/"));
    assert_eq!((answer.text().as_str(), answer.field("x")), ("all of it", "y"));
    assert!(!answer.fields.contains_key("connection"));
}

#[test]
fn a_request_taken_back_ends_the_backends_work_at_once() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Origin::new(move |conn| {
        conn.head();
        opened.open();
        conn.wait_end();
    });
    let (carom, mut client) = serving(&origin);
    let mut asked = client.begin(get("http://a.test/slow"), true);
    client.settle();
    gate.wait();
    asked.send.send_reset(Reason::CANCEL);
    client.settle();
    origin.wait_over(0);
    assert_eq!(carom.logged_path("/slow")["reason"], "client-gone");
    assert_eq!(client.ask(get("http://nobody.test/")).status, 404);
}

#[test]
fn a_stop_lets_open_requests_end_and_says_goodbye() {
    let gate = Arc::new(Gate::default());
    let (begun, opened) = (Arc::new(Gate::default()), Arc::clone(&gate));
    let told = Arc::clone(&begun);
    let origin = Origin::new(move |conn| {
        conn.request();
        told.open();
        opened.wait();
        conn.send(reply("200 OK", &[], "late"));
    });
    let (carom, mut client) = serving(&origin);
    let mut asked = client.begin(get("http://a.test/"), true);
    client.settle();
    begun.wait();
    let mark = carom.mark();
    carom.signal(Signal::TERM);
    carom.stderr(mark, "that it stops", |line| line.contains("in flight"));
    gate.open();
    assert_eq!(client.answer(&mut asked).unwrap().text(), "late");
    assert_eq!(client.end(), None);
    assert_eq!(carom.exit_code(), Some(0));
}

#[test]
fn a_stop_cuts_off_what_takes_too_long() {
    let origin = Origin::new(|conn| {
        conn.head();
        conn.wait_end();
    });
    let carom = plain(Carom::to(origin.port()).config("[timeouts]\ndrain = \"300ms\""));
    let mut client = Http2::connect(carom.address());
    let mut asked = client.begin(get("http://a.test/slow"), true);
    client.settle();
    origin.wait("the request", |seen| seen.requests.first().map(|_| ()));
    carom.signal(Signal::TERM);
    let answer = client.answer(&mut asked).unwrap();
    assert_eq!((answer.status, answer.field("carom-error")), (503, "draining"));
    assert_eq!(carom.exit_code(), Some(0));
}

#[test]
fn a_connection_without_requests_is_idle() {
    let carom = plain(Carom::to(1).config("[timeouts]\nidle = \"200ms\""));
    let mut client = Http2::connect(carom.address());
    assert_eq!(client.ask(get("http://nobody.test/")).status, 404);
    assert_eq!(client.end(), None);
}

#[test]
fn an_idle_connection_makes_room_for_another() {
    let carom = plain(Carom::to(1).config("[limits]\nconnections = 1"));
    let mut first = Http2::connect(carom.address());
    assert_eq!(first.ask(get("http://nobody.test/")).status, 404);
    let mut second = Http2::connect(carom.address());
    assert_eq!(second.ask(get("http://nobody.test/")).status, 404);
    assert_eq!(first.end(), None);
}

#[test]
fn over_tls_one_certificate_carries_all_its_hosts_and_no_other() {
    let (beep, boop) = (Origin::named("beep"), Origin::named("boop"));
    let routes = format!("\"beep.w.test\" = {}\n\"boop.w.test\" = {}\n\"a.test\" = 1\n", beep.port(), boop.port());
    let carom = Carom::serving(routes).tls("w.pem", pem(&["*.w.test"])).tls("a.pem", pem(&["a.test"])).start();
    let mut client = Http2::tls(carom.tls_address(), "beep.w.test");
    assert_eq!(client.ask(get("https://beep.w.test/1")).text(), "beep GET /1");
    assert_eq!(client.ask(get("https://boop.w.test/2")).text(), "boop GET /2");
    assert_eq!(beep.request().field("x-forwarded-proto"), Some("https"));
    let answer = client.ask(get("https://a.test/"));
    assert_eq!((answer.status, answer.field("carom-error")), (421, "misdirected"));
    assert_eq!(client.ask(get("https://beep.w.test/3")).text(), "beep GET /3");
}

#[test]
fn a_websocket_is_an_upgrade_to_its_backend() {
    let origin = Origin::new(|conn| {
        let head = conn.head().unwrap();
        assert_eq!(head.start, "GET /chat HTTP/1.1");
        assert_eq!((head.field("upgrade"), head.field("connection")), (Some("websocket"), Some("upgrade")));
        assert_eq!((head.field("sec-websocket-version"), head.field("origin")), (Some("13"), Some("https://a.test")));
        let key = head.field("sec-websocket-key").unwrap();
        let accept = accept(key);
        conn.send(format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\nearly"
        ));
        conn.echo();
    });
    let (carom, mut client) = serving(&origin);
    let request = websocket("websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        .header("origin", "https://a.test");
    let mut asked = client.begin(request, false);
    let head = client.head(&mut asked).unwrap();
    assert_eq!((head.status, head.field("sec-websocket-protocol")), (200, "chat"));
    for gone in ["sec-websocket-accept", "upgrade", "connection"] {
        assert!(!head.fields.contains_key(gone), "{gone}");
    }
    assert_eq!(client.data(&mut asked).unwrap().unwrap(), "early");
    for word in ["one", "two"] {
        asked.send.send_data(Bytes::from_static(word.as_bytes()), false).unwrap();
        assert_eq!(client.data(&mut asked).unwrap().unwrap(), word);
    }
    // A half-close is passed on, in both directions.
    asked.send.send_data(Bytes::new(), true).unwrap();
    assert_eq!(client.data(&mut asked).unwrap(), None);
    let entry = carom.logged_path("/chat");
    assert_eq!((&entry["status"], &entry["method"], entry.get("reason")), (&101.into(), &"GET".into(), None));
}

#[test]
fn a_backend_that_does_not_understand_a_websocket_is_a_bad_gateway() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        let origin = Origin::replying_once(answer);
        let (_carom, mut client) = serving(&origin);
        let mut asked = client.begin(websocket("websocket"), false);
        let got = client.answer(&mut asked).unwrap();
        assert_eq!((got.status, got.field("carom-error")), (502, "backend-garbled"), "{answer}");
    }
}

#[test]
fn a_backend_may_refuse_a_websocket() {
    let origin = Origin::replying(reply("403 Forbidden", &[], "no"));
    let (_carom, mut client) = serving(&origin);
    let mut asked = client.begin(websocket("websocket"), false);
    let got = client.answer(&mut asked).unwrap();
    assert_eq!((got.status, got.text().as_str()), (403, "no"));
}

#[test]
fn other_protocols_inside_http2_are_not_served() {
    let origin = Origin::named("a");
    let (_carom, mut client) = serving(&origin);
    for protocol in ["connect-udp", "WebSocket", "webtransport"] {
        let mut asked = client.begin(websocket(protocol), false);
        let got = client.answer(&mut asked).unwrap();
        assert_eq!((got.status, got.field("carom-error")), (501, "unknown-protocol"), "{protocol}");
    }
    origin.assert_untouched();
}

#[test]
fn a_tunnel_ends_when_its_client_is_gone() {
    let origin = Origin::new(|conn| {
        let head = conn.head().unwrap();
        let accept = accept(head.field("sec-websocket-key").unwrap());
        conn.send(format!(
            "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        ));
        conn.wait_end();
    });
    let (carom, mut client) = serving(&origin);
    let mut asked = client.begin(websocket("websocket"), false);
    assert_eq!(client.head(&mut asked).unwrap().status, 200);
    asked.send.send_reset(Reason::CANCEL);
    client.settle();
    origin.wait_over(0);
    assert_eq!(carom.logged_path("/chat")["reason"], "client-gone");
}

/// An extended CONNECT (RFC 8441 section 4).
fn websocket(protocol: &'static str) -> http::request::Builder {
    Request::builder().method("CONNECT").uri("https://a.test/chat").extension(h2::ext::Protocol::from_static(protocol))
}

/// What a server answers to a key (RFC 6455 section 4.2.2), by an implementation that is not ours.
fn accept(key: &str) -> String {
    let request = Request::get("/").header("sec-websocket-key", key).header("sec-websocket-version", "13");
    let mut request = request.body(()).unwrap();
    let (response, _) = fastwebsockets::upgrade::upgrade(&mut request).unwrap();
    response.headers()["sec-websocket-accept"].to_str().unwrap().to_owned()
}

#[test]
fn an_answer_may_come_before_its_request_has_ended() {
    let origin = Origin::new(|conn| {
        conn.head();
        conn.send(reply("413 Content Too Large", &["Connection: close"], "no more"));
        conn.wait_end();
    });
    let (_carom, mut client) = serving(&origin);
    let mut asked = client.begin(Request::post("http://a.test/"), false);
    asked.send.send_data(pattern(30_000_000).into(), false).unwrap();
    let answer = client.answer(&mut asked).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (413, "no more"));
    // What was on its way has given its room back: others of this connection are not held up.
    for _ in 0..20 {
        let mut asked = client.begin(Request::post("http://a.test/"), false);
        asked.send.send_data(pattern(1_000_000).into(), false).unwrap();
        assert_eq!(client.answer(&mut asked).unwrap().status, 413);
    }
}

#[test]
fn a_connection_without_a_request_for_long_ends_at_a_stop() {
    let carom = plain(Carom::to(1));
    let mut client = Http2::connect(carom.address());
    assert_eq!(client.ask(get("http://nobody.test/")).status, 404);
    carom.signal(Signal::TERM);
    assert_eq!(client.end(), None);
    assert_eq!(carom.exit_code(), Some(0));
}
