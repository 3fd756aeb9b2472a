//! The library with a closure that decides: what node's bouncy promised its users, and what a closure may change.

use std::time::Duration;

use carom::{Bounce, Head};

use crate::support::inside::Inside;
use crate::support::{Origin, reply, request};

#[test]
fn a_closure_decides_by_the_host() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let (to_a, to_b) = (a.port(), b.port());
    let proxy = Inside::deciding(async move |head: &Head<'_>, bounce: Bounce| match head.host() {
        Some(host) if host == "a.test" => bounce.to(to_a),
        Some(host) if host == "b.test" => bounce.to(format!("127.0.0.1:{to_b}")),
        _ => bounce.respond(404, "no such host"),
    });
    let mut client = proxy.client();
    assert_eq!(client.get("a.test", "/1").text(), "a GET /1");
    assert_eq!(client.get("B.test:80", "/2").text(), "b GET /2");
    let unknown = client.get("c.test", "/");
    assert_eq!((unknown.status(), unknown.text().as_str()), (404, "no such host"));
}

#[test]
fn a_plain_closure_may_give_a_future() {
    let a = Origin::named("a");
    let port = a.port();
    let proxy = Inside::deciding(move |_: &Head<'_>, bounce: Bounce| std::future::ready(bounce.to(port)));
    assert_eq!(proxy.client().get("x.test", "/").text(), "a GET /");
}

#[test]
fn a_target_is_a_port_an_address_or_a_url_with_a_path() {
    let a = Origin::named("a");
    let port = a.port();
    let proxy = Inside::deciding(async move |head: &Head<'_>, bounce: Bounce| match head.path() {
        b"/port" => bounce.to(port),
        b"/address" => bounce.to(std::net::SocketAddr::from(([127, 0, 0, 1], port))),
        b"/text" => bounce.to(format!("localhost:{port}")),
        b"/url" => bounce.to(format!("http://127.0.0.1:{port}")),
        _ => bounce.to(format!("http://127.0.0.1:{port}/other?q=1")),
    });
    let mut client = proxy.client();
    for path in ["/port", "/address", "/text", "/url"] {
        assert_eq!(client.get("x.test", path).text(), format!("a GET {path}"));
    }
    assert_eq!(client.get("x.test", "/x").text(), "a GET /other?q=1");
}

#[test]
fn fields_are_set_however_the_head_is_split() {
    let a = Origin::named("a");
    let port = a.port();
    let proxy = Inside::deciding(async move |_: &Head<'_>, bounce: Bounce| {
        bounce.to(port).header("x-from", "carom").header("X-Twice", "1").header("x-twice", "2")
    });
    let bytes = "GET /x HTTP/1.1\r\nHost: a.test\r\nX-From: client\r\nx-other: 1\r\nX-FROM: again\r\n\r\n";
    for at in 1..bytes.len() {
        let mut client = proxy.client();
        client.send(&bytes[..at]);
        client.pause(2);
        client.send(&bytes[at..]);
        assert_eq!(client.response().status(), 200);
    }
    for request in a.requests() {
        assert_eq!(request.all("x-from"), ["carom"]);
        assert_eq!(request.all("x-twice"), ["2"]);
        assert_eq!(request.all("x-other"), ["1"]);
    }
    assert_eq!(a.requests().len(), bytes.len() - 1);
}

#[test]
fn method_path_and_host_are_changed() {
    let a = Origin::named("a");
    let port = a.port();
    let proxy = Inside::deciding(async move |_: &Head<'_>, bounce: Bounce| {
        bounce.to(port).method("PATCH").path("/changed?y").header("Host", "inner.test")
    });
    let mut client = proxy.client();
    client.send("POST /x?z HTTP/1.1\r\nHost: outer.test\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response_to("POST").text(), "a PATCH /changed?y");
    let request = a.request();
    assert_eq!(request.all("host"), ["inner.test"]);
    assert_eq!(request.all("x-forwarded-host"), ["outer.test"]);
    assert_eq!(request.body, b"hello");
}

#[test]
fn a_decision_may_wait_and_others_go_on_meanwhile() {
    let a = Origin::named("a");
    let port = a.port();
    let proxy = Inside::deciding(async move |head: &Head<'_>, bounce: Bounce| {
        if head.path() == b"/slow" {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bounce.to(port)
    });
    let mut slow: Vec<_> = (0..20).map(|_| proxy.client()).collect();
    for client in &mut slow {
        client.send(request("GET /slow", "a.test", &[]));
    }
    assert_eq!(proxy.client().get("a.test", "/fast").text(), "a GET /fast");
    for client in &mut slow {
        assert_eq!(client.response().text(), "a GET /slow");
    }
}

#[test]
fn an_answer_of_its_own_reaches_no_backend_and_keeps_the_connection() {
    let proxy = Inside::deciding(async |head: &Head<'_>, bounce: Bounce| match head.method() {
        "POST" => bounce.redirect(303, "https://n.test/done"),
        _ => bounce.respond(200, format!("{} {}", head.method(), head.path().escape_ascii())),
    });
    let mut client = proxy.client();
    client.send("POST /form HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello");
    let response = client.response_to("POST");
    assert_eq!((response.status(), response.all("location")), (303, vec!["https://n.test/done"]));
    assert_eq!(client.get("a.test", "/x").text(), "GET /x");
    client.send(request("HEAD /x", "a.test", &[]));
    assert_eq!(client.response_to("HEAD").all("content-length"), ["7"]);
    assert_eq!(client.get("a.test", "/y").text(), "GET /y");
}

#[test]
fn a_stream_that_the_caller_opened_is_used() {
    let a = Origin::named("a");
    let port = a.port();
    let proxy = Inside::deciding(async move |_: &Head<'_>, bounce: Bounce| {
        match tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
            Ok(stream) => bounce.stream(stream),
            Err(_) => bounce.respond(502, "away"),
        }
    });
    let mut client = proxy.client();
    assert_eq!(client.get("a.test", "/1").text(), "a GET /1");
    assert_eq!(client.get("a.test", "/2").text(), "a GET /2");
    a.wait_over(0);
    assert_eq!(a.connections(), 2, "it carries one request each");
}

#[test]
fn a_stream_made_in_memory_carries_a_request_and_a_tunnel() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let proxy = Inside::deciding(async |head: &Head<'_>, bounce: Bounce| {
        let (near, mut far) = tokio::io::duplex(64);
        let upgrade = head.field("upgrade").is_some();
        tokio::task::spawn_local(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(far.read_u8().await?);
            }
            if !upgrade {
                return far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nin memory").await;
            }
            far.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n").await?;
            let mut some = [0; 16];
            loop {
                let count = far.read(&mut some).await?;
                if count == 0 {
                    return Ok(());
                }
                far.write_all(&some[..count]).await?;
            }
        });
        bounce.stream(near)
    });
    let mut client = proxy.client();
    assert_eq!(client.get("a.test", "/").text(), "in memory");
    client.send(request("GET /", "a.test", &["Connection: Upgrade", "Upgrade: x"]));
    assert_eq!(client.response_head().status(), 101);
    for message in ["ping", "a longer message than the pipe holds, and then some more of it, to the end"] {
        client.send(message);
        client.expect(message);
    }
    client.half_close();
    client.expect_end();
}

#[test]
fn ten_megabytes_are_echoed() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()));
            conn.send(&request.body);
        }
    });
    let port = a.port();
    let proxy = Inside::deciding(async move |_: &Head<'_>, bounce: Bounce| bounce.to(port));
    let body: Vec<u8> = (0..10 << 20).map(|n: u32| n.to_le_bytes()[n as usize % 3]).collect();
    let mut client = proxy.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert!(client.response_to("POST").body == body, "other bytes came back");
}

#[test]
fn a_backend_that_destroys_its_socket_is_a_502_and_the_proxy_lives() {
    let a = Origin::new(|conn| {
        if conn.request().is_some() {
            conn.reset();
        }
    });
    let port = a.port();
    let proxy = Inside::deciding(async move |_: &Head<'_>, bounce: Bounce| bounce.to(port));
    let mut client = proxy.client();
    for _ in 0..3 {
        let response = client.get("a.test", "/");
        assert_eq!((response.status(), response.error()), (502, Some("backend-closed")));
    }
}

#[test]
fn the_backend_is_told_who_asks() {
    let a = Origin::named("a");
    let port = a.port();
    let proxy = Inside::deciding(async move |_: &Head<'_>, bounce: Bounce| bounce.to(port));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test:81\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n");
    client.response();
    let request = a.request();
    assert_eq!(request.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.all("x-forwarded-proto"), ["http"]);
    assert_eq!(request.all("x-forwarded-host"), ["a.test:81"]);
}

#[test]
fn fifty_at_once_over_two_hosts_are_never_mixed() {
    let script = |name: &'static str| {
        Origin::new(move |conn| {
            while let Some(request) = conn.request() {
                conn.pause(10);
                conn.send(reply("200 OK", &[], &format!("{name} {}", request.target())));
            }
        })
    };
    let (a, b) = (script("a"), script("b"));
    let (to_a, to_b) = (a.port(), b.port());
    let proxy = Inside::deciding(async move |head: &Head<'_>, bounce: Bounce| match head.host() {
        Some(host) if host == "a.test" => bounce.to(to_a),
        _ => bounce.to(to_b),
    });
    std::thread::scope(|scope| {
        for number in 0..50 {
            let proxy = &proxy;
            scope.spawn(move || {
                let name = if number % 2 == 0 { "a" } else { "b" };
                let mut client = proxy.client();
                for round in 0..5 {
                    let path = format!("/{number}/{round}");
                    assert_eq!(client.get(&format!("{name}.test"), &path).text(), format!("{name} {path}"));
                }
            });
        }
    });
}

#[test]
fn what_a_closure_can_not_decide_is_a_500_that_says_so() {
    let a = Origin::named("a");
    let port = a.port();
    let proxy = Inside::deciding(async move |head: &Head<'_>, bounce: Bounce| match head.path() {
        b"/target" => bounce.to("nowhere"),
        b"/port" => bounce.to(0),
        b"/name" => bounce.to(port).header("x y", "1"),
        b"/value" => bounce.to(port).header("x", "1\r\nHost: evil"),
        b"/length" => bounce.to(port).header("Content-Length", "5"),
        b"/hop" => bounce.to(port).header("connection", "close"),
        b"/method" => bounce.to(port).method("HEAD"),
        b"/path" => bounce.to(port).path("/x y"),
        b"/status" => bounce.respond(99, ""),
        _ => bounce.to(port).method("PUT"),
    });
    let mut client = proxy.client();
    for path in ["/target", "/port", "/name", "/value", "/length", "/hop", "/method", "/path", "/status"] {
        let response = client.get("a.test", path);
        assert_eq!((response.status(), response.error()), (500, Some("bad-decision")), "{path}");
    }
    client.send(request("HEAD /", "a.test", &[]));
    assert_eq!(client.response_to("HEAD").status(), 500);
    a.assert_untouched();
}
