//! HTTP/2 behind: one connection for many requests, gRPC as it is, and every way in which it ends.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use carom::settings::Settings;
use carom::{Bounce, Head};
use h2::Reason;
use http::{Request, Response};

use crate::support::http2::{Http2, get};
use crate::support::http2_origin::{Call, Http2Origin, grpc_status};
use crate::support::inside::Inside;
use crate::support::{Carom, Gate, Origin, pattern, request, tls, with_body};

/// A proxy before this backend that takes HTTP/2 from plain clients too.
fn before(origin: &Http2Origin) -> Inside {
    let port = origin.port();
    let mut settings = Settings::default();
    settings.http2.prior_knowledge = true;
    Inside::with(settings, async move |_: &Head<'_>, bounce: Bounce| {
        bounce.to(carom::bounce::Target::from(port).http2())
    })
}

fn grpc(path: &str) -> http::request::Builder {
    Request::post(format!("http://a.test/{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", "5S")
}

#[test]
fn requests_share_a_connection() {
    let origin = Http2Origin::new(async |mut call: Call| {
        let body = call.whole().await;
        call.reply(body);
    });
    let proxy = before(&origin);
    let mut client = proxy.client();
    for turn in 0..3 {
        assert_eq!(client.get("a.test", "/").status(), 200, "{turn}");
    }
    let answer = client.ask(with_body("POST /x?y", "a.test", "hello"));
    assert_eq!(answer.text(), "hello");
    let chunked = request("PUT /z", "a.test", &["Transfer-Encoding: chunked"]) + "5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(client.ask(chunked).text(), "hello");
    origin.look(|seen| {
        assert_eq!(seen.connections, 1);
        let last = &seen.requests[3];
        assert_eq!(last.uri(), "http://a.test/x?y");
        assert_eq!(last.headers()["te"], "trailers");
        assert_eq!(last.headers()["content-length"], "5");
        assert_eq!(last.headers()["x-forwarded-for"], "127.0.0.1");
        assert!(!last.headers().contains_key("host"));
        assert!(!seen.requests[4].headers().contains_key("transfer-encoding"));
    });
}

#[test]
fn bodies_of_every_size_pass() {
    let origin = Http2Origin::new(async |mut call: Call| {
        let body = call.whole().await;
        let mut send = call.head(Response::builder(), false);
        send.send_data(body.into(), true).unwrap();
        // Until all of it has been taken.
        call.taken_back().await;
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    for length in [0, 1, 65_535, 65_536, 3_000_000] {
        let answer = client.ask_with(Request::post("http://a.test/"), pattern(length));
        assert_eq!(answer.body.len(), length);
        assert!(answer.body == pattern(length), "{length}");
    }
}

#[test]
fn a_unary_call_keeps_its_status_and_trailers() {
    let origin = Http2Origin::new(async |mut call: Call| {
        call.whole().await;
        let mut send = call.head(Response::builder().header("content-type", "application/grpc"), false);
        send.send_data(Bytes::from_static(b"\0\0\0\0\x02ok"), false).unwrap();
        let mut trailers = grpc_status("5");
        trailers.insert("grpc-message", "not%20found".parse().unwrap());
        send.send_trailers(trailers).unwrap();
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    let answer = client.ask_with(grpc("unary"), &b"\0\0\0\0\x02hi"[..]);
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"\0\0\0\0\x02ok"[..]));
    assert_eq!(answer.trailers["grpc-status"], "5");
    assert_eq!(answer.trailers["grpc-message"], "not%20found");
    origin.look(|seen| {
        assert_eq!(seen.requests[0].headers()["te"], "trailers");
        assert_eq!(seen.requests[0].headers()["grpc-timeout"], "5S");
    });
}

#[test]
fn trailers_of_a_request_reach_the_backend() {
    let origin = Http2Origin::new(async |mut call: Call| {
        call.whole().await;
        let sum = call.trailers().await.get("x-sum").map(|sum| sum.as_bytes().to_vec());
        call.reply(sum.unwrap_or_default());
    });
    let proxy = before(&origin);
    let chunked = request("PUT /z", "a.test", &["Transfer-Encoding: chunked"]) + "5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n";
    assert_eq!(proxy.client().ask(chunked).text(), "7");
}

#[test]
fn an_answer_of_trailers_only_stays_one() {
    let origin = Http2Origin::new(async |mut call: Call| {
        let response = Response::builder().header("content-type", "application/grpc").header("grpc-status", "12");
        call.head(response, true);
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    let mut asked = client.begin(grpc("nothing"), false);
    asked.send.send_data(Bytes::from_static(b"\0\0\0\0\0"), true).unwrap();
    let head = client.head(&mut asked).unwrap();
    assert_eq!((head.status, head.field("grpc-status")), (200, "12"));
    assert!(asked.body.as_ref().unwrap().is_end_stream(), "the head ended the stream");
}

#[test]
fn both_sides_of_a_call_stream_at_once() {
    let origin = Http2Origin::new(async |mut call: Call| {
        let mut send = call.head(Response::builder().header("content-type", "application/grpc"), false);
        while let Some(data) = call.data().await {
            send.send_data(data, false).unwrap();
        }
        send.send_trailers(grpc_status("0")).unwrap();
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    let mut asked = client.begin(grpc("talk"), false);
    let head = client.head(&mut asked).unwrap();
    assert_eq!(head.status, 200);
    for word in ["one", "two", "three"] {
        asked.send.send_data(Bytes::from_static(word.as_bytes()), false).unwrap();
        assert_eq!(client.data(&mut asked).unwrap().unwrap(), word);
    }
    asked.send.send_data(Bytes::new(), true).unwrap();
    assert_eq!(client.data(&mut asked).unwrap(), None);
}

#[test]
fn a_call_taken_back_is_taken_back_behind_at_once() {
    let origin = Http2Origin::new(async |mut call: Call| {
        let mut send = call.head(Response::builder(), false);
        send.send_data(Bytes::from_static(b"begun"), false).unwrap();
        let reason = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
        call.seen.change(|seen| seen.resets.push(reason.ok()));
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    let mut asked = client.begin(grpc("watch"), false);
    client.head(&mut asked).unwrap();
    assert_eq!(client.data(&mut asked).unwrap().unwrap(), "begun");
    asked.send.send_reset(Reason::CANCEL);
    client.settle();
    let reason = origin.wait("the reset", |seen| seen.resets.first().copied());
    assert_eq!(reason, Some(Reason::CANCEL));
    // The connection behind is as good as before.
    origin.look(|seen| assert_eq!((seen.connections, seen.ended), (1, 0)));
}

#[test]
fn a_call_that_breaks_off_behind_breaks_off_in_front() {
    let origin = Http2Origin::new(async |mut call: Call| {
        let mut send = call.head(Response::builder(), false);
        send.send_data(Bytes::from_static(b"begun"), false).unwrap();
        call.data().await;
        send.send_reset(Reason::INTERNAL_ERROR);
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    let mut asked = client.begin(grpc("watch"), false);
    client.head(&mut asked).unwrap();
    assert_eq!(client.data(&mut asked).unwrap().unwrap(), "begun");
    asked.send.send_data(Bytes::from_static(b"now"), false).unwrap();
    assert!(client.data(&mut asked).is_err());
}

#[test]
fn what_the_backend_has_not_begun_with_is_sent_again() {
    let origin = Http2Origin::new(async |mut call: Call| {
        if call.index == 0 {
            call.respond.send_reset(Reason::REFUSED_STREAM);
        } else {
            let body = call.whole().await;
            call.reply(body);
        }
    });
    let proxy = before(&origin);
    // A POST, which is never sent twice otherwise.
    assert_eq!(proxy.client().ask(with_body("POST /", "a.test", "once")).text(), "once");
    assert_eq!(origin.look(|seen| seen.requests.len()), 2);
}

#[test]
fn what_the_backend_refuses_for_ever_is_not_sent_for_ever() {
    let origin = Http2Origin::new(async |mut call: Call| call.respond.send_reset(Reason::REFUSED_STREAM));
    let proxy = before(&origin);
    let answer = proxy.client().ask(with_body("POST /", "a.test", "once"));
    assert_eq!((answer.status(), answer.error()), (502, Some("backend-closed")));
    assert_eq!(origin.look(|seen| seen.requests.len()), 2);
}

#[test]
fn a_backend_that_leaves_gets_nothing_new_and_ends_what_it_has() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Http2Origin::new(move |mut call: Call| {
        let gate = Arc::clone(&opened);
        async move {
            if call.index == 0 {
                let mut send = call.head(Response::builder(), false);
                send.send_data(Bytes::from_static(b"begun "), false).unwrap();
                tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
                send.send_data(Bytes::from_static(b"ended"), true).unwrap();
            } else {
                call.reply("other");
            }
        }
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    let mut asked = client.begin(get("http://a.test/"), true);
    client.head(&mut asked).unwrap();
    assert_eq!(client.data(&mut asked).unwrap().unwrap(), "begun ");
    origin.leave();
    // Until the news has arrived, requests may still go to the first connection; they are sent again then.
    let mut connections = 1;
    while connections == 1 {
        assert_eq!(client.ask(get("http://a.test/")).text(), "other");
        connections = origin.look(|seen| seen.connections);
    }
    gate.open();
    assert_eq!(client.data(&mut asked).unwrap().unwrap(), "ended");
    assert_eq!(client.data(&mut asked).unwrap(), None);
    origin.wait("the end of the first connection", |seen| (seen.ended == 1).then_some(()));
}

#[test]
fn a_full_connection_gets_a_second_one() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(2);
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let origin = Http2Origin::with(builder, move |mut call: Call| {
        let gate = Arc::clone(&opened);
        async move {
            // The settings have arrived with the first answer.
            if call.index > 0 {
                tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
            }
            call.reply("done");
        }
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    assert_eq!(client.ask(get("http://a.test/")).text(), "done");
    let mut asked: Vec<_> = (0..5).map(|_| client.begin(get("http://a.test/"), true)).collect();
    client.settle();
    origin.wait("all requests", |seen| (seen.requests.len() == 6).then_some(()));
    gate.open();
    for asked in &mut asked {
        assert_eq!(client.answer(asked).unwrap().text(), "done");
    }
    assert_eq!(origin.look(|seen| seen.connections), 3);
}

#[test]
fn interim_answers_pass_from_behind() {
    let origin = Http2Origin::new(async |mut call: Call| {
        let hints = Response::builder().status(103).header("link", "</a.css>").body(()).unwrap();
        call.respond.send_informational(hints).unwrap();
        call.reply("done");
    });
    let proxy = before(&origin);
    let mut client = Http2::connect(proxy.address());
    let answer = client.ask(get("http://a.test/"));
    assert_eq!(answer.interim.len(), 1);
    assert_eq!((answer.interim[0].0, &answer.interim[0].1["link"]), (103, &"</a.css>".parse().unwrap()));
    assert_eq!(answer.text(), "done");
}

#[test]
fn a_backend_that_speaks_http_1_only_is_a_bad_gateway() {
    let origin = Origin::new(|conn| {
        conn.some();
        conn.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let port = origin.port();
    let proxy = Inside::deciding(async move |_: &Head<'_>, bounce: Bounce| {
        bounce.to(carom::bounce::Target::from(SocketAddr::from(([127, 0, 0, 1], port))).http2())
    });
    assert_eq!(proxy.client().get("a.test", "/").status(), 502);
}

#[test]
fn a_target_of_h2c_is_spoken_to_in_http_2() {
    let origin = Http2Origin::new(async |mut call: Call| call.reply("hello"));
    let carom = Carom::serving(format!("\"a.test\" = \"h2c://localhost:{}\"\n", origin.port())).start();
    assert_eq!(carom.client().get("a.test", "/").text(), "hello");
    assert_eq!(carom.logged_path("/")["backend"], format!("h2c://localhost:{}", origin.port()));
    // Saved anew, it is still the same backend, over the same connection.
    let said = carom.reroute(&format!("\"*.test\" = {{ to = {}, http2 = true }}\n", origin.port()));
    assert!(said.contains(&format!("+ *.test → h2c://localhost:{}", origin.port())), "{said}");
    assert_eq!(carom.client().get("a.test", "/").text(), "hello");
    assert_eq!(origin.look(|seen| seen.connections), 1);
}

#[test]
fn http_2_over_tls_is_spoken_where_it_is_asked_for_and_agreed_on() {
    let made = tls::leaf(&["localhost"]).make();
    let answering = async |mut call: Call| call.reply("hello");
    let able = Http2Origin::tls(&made, &[b"h2"], answering);
    let unable = Http2Origin::tls(&made, &[b"http/1.1"], answering);
    let routes = format!(
        "\"a.test\" = {{ to = \"https://localhost:{}\", ca = \"ca.pem\", http2 = true }}\n\
         \"b.test\" = {{ to = \"https://localhost:{}\", ca = \"ca.pem\", http2 = true }}\n",
        able.port(),
        unable.port()
    );
    let carom = Carom::serving(routes).file("ca.pem", &tls::root()).start();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/").text(), "hello");
    able.look(|seen| assert_eq!(seen.requests[0].uri(), "https://a.test/"));
    let answer = client.get("b.test", "/");
    assert_eq!((answer.status(), answer.error()), (502, Some("backend-tls")));
    assert!(answer.text().contains("does not speak HTTP/2"), "{}", answer.text());
}

#[test]
fn requests_that_come_while_it_is_connected_to_wait_for_that() {
    let origin = Http2Origin::new(async |mut call: Call| call.reply("hello"));
    let carom = Carom::serving(format!("\"a.test\" = \"h2c://localhost:{}\"\n", origin.port()))
        .config("[http2]\nprior_knowledge = true")
        .start();
    let mut client = Http2::connect(carom.address());
    let mut asked: Vec<_> = (0..20).map(|_| client.begin(get("http://a.test/"), true)).collect();
    for asked in &mut asked {
        assert_eq!(client.answer(asked).unwrap().text(), "hello");
    }
    assert_eq!(origin.look(|seen| seen.connections), 1);
}

#[test]
fn a_connection_behind_that_nobody_uses_is_closed() {
    let origin = Http2Origin::new(async |mut call: Call| call.reply("hello"));
    let carom = Carom::serving(format!("\"a.test\" = \"h2c://localhost:{}\"\n", origin.port()))
        .config("[timeouts]\nbackend_idle = \"200ms\"")
        .start();
    assert_eq!(carom.client().get("a.test", "/").text(), "hello");
    origin.wait("the end of the connection", |seen| (seen.ended == 1).then_some(()));
    assert_eq!(carom.client().get("a.test", "/").text(), "hello");
}

#[test]
fn a_connection_that_has_gone_dead_gets_nothing_more() {
    // Takes everything and says nothing, not even to a ping.
    let origin = Origin::new(|conn| conn.wait_end());
    let carom = Carom::serving(format!("\"a.test\" = \"h2c://localhost:{}\"\n", origin.port()))
        .config("[timeouts]\nresponse_head = \"300ms\"")
        .start();
    for connections in 1..3 {
        let answer = carom.client().get("a.test", "/");
        assert_eq!((answer.status(), answer.error()), (504, Some("response-timeout")));
        assert_eq!(origin.connections(), connections);
    }
    origin.wait_end(0);
}

#[test]
fn a_response_head_beyond_the_limit_is_said_to_be_one() {
    let origin = Http2Origin::new(async |mut call: Call| {
        call.head(Response::builder().header("x", "y".repeat(2500)), true);
    });
    let carom = Carom::serving(format!("\"a.test\" = \"h2c://localhost:{}\"\n", origin.port()))
        .config("[limits]\nresponse_head = 2000")
        .start();
    let answer = carom.client().get("a.test", "/");
    assert_eq!((answer.status(), answer.error()), (502, Some("backend-head-too-large")));
}

#[test]
fn a_client_that_takes_nothing_does_not_hold_back_others_of_the_same_backend() {
    let large = Bytes::from(vec![b'x'; 20_000_000]);
    let origin = Http2Origin::new(move |mut call: Call| {
        let large = large.clone();
        async move {
            if call.path == "/large" {
                let mut send = call.head(Response::builder(), false);
                send.send_data(large, true).unwrap();
                std::future::poll_fn(|cx| send.poll_reset(cx)).await.ok();
            } else {
                call.reply("small");
            }
        }
    });
    let carom = Carom::serving(format!("\"a.test\" = \"h2c://localhost:{}\"\n", origin.port())).start();
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut client = carom.client();
        client.send(request("GET /large", "a.test", &[]));
        assert_eq!(client.response_head().status(), 200);
        slow.push(client);
    }
    for _ in 0..5 {
        assert_eq!(carom.client().get("a.test", "/").text(), "small");
    }
    assert_eq!(origin.look(|seen| seen.connections), 1);
}
