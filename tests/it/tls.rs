//! TLS in front: handshakes, and which certificate is shown.

use rustls::version::{TLS12, TLS13};

use crate::support::tls::{self, leaf, pem};
use crate::support::{Carom, Client, End, Origin, pattern, reply, request, with_body};

#[test]
fn requests_over_tls_reach_the_backend_and_say_so() {
    for versions in [&[&TLS12], &[&TLS13]] {
        let a = Origin::named("a");
        let carom = Carom::to(a.port()).tls("a.pem", pem(&["a.test"])).start();
        let mut client = tls::try_connect(carom.tls_address(), "a.test", tls::config(versions)).unwrap();
        assert_eq!(client.get("a.test", "/1").text(), "a GET /1");
        assert_eq!(a.request().field("x-forwarded-proto"), Some("https"));
        assert_eq!(client.get("a.test:443", "/2").text(), "a GET /2");
    }
}

#[test]
fn a_name_without_a_certificate_is_refused_as_unrecognized() {
    let carom = Carom::to(1).tls("a.pem", pem(&["a.test"])).start();
    let mark = carom.mark();
    let error = tls::try_connect(carom.tls_address(), "b.test", tls::config(rustls::ALL_VERSIONS)).err().unwrap();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    let said = carom.stderr(mark, "whom it has refused", |line| line.contains("has no certificate"));
    assert!(said.contains("b.test") && said.contains("127.0.0.1:"), "{said}");
    let error = tls::try_connect(carom.tls_address(), "127.0.0.1", tls::config(rustls::ALL_VERSIONS)).err().unwrap();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
}

#[test]
fn a_host_that_the_certificate_is_not_for_is_misdirected() {
    let a = Origin::named("a");
    let routes = format!("\"*\" = {}", a.port());
    let carom = Carom::serving(routes).tls("a.pem", pem(&["a.test", "*.w.test"])).start();
    let mut client = carom.tls_client("a.test");
    assert_eq!(client.get("b.test", "/1").error(), Some("misdirected"));
    assert_eq!(client.get("x.y.w.test", "/2").status(), 421);
    assert_eq!(client.get("x.w.test", "/3").text(), "a GET /3");
    assert_eq!(a.request().target(), "/3");
}

#[test]
fn every_kind_of_key_is_served_however_it_is_written() {
    let a = Origin::named("a");
    let p256 = leaf(&["p256.test"]).make();
    let rsa = leaf(&["rsa.test"]).algorithm(&rcgen::PKCS_RSA_SHA256).make();
    let carom = [
        ("sec1.test", leaf(&["sec1.test"]).algorithm(&rcgen::PKCS_ECDSA_P384_SHA384).make(), Some("EC PRIVATE KEY")),
        ("p256.test", p256, None),
        ("ed25519.test", leaf(&["ed25519.test"]).algorithm(&rcgen::PKCS_ED25519).make(), None),
        ("pkcs1.test", leaf(&["pkcs1.test"]).algorithm(&rcgen::PKCS_RSA_SHA256).make(), Some("RSA PRIVATE KEY")),
        ("rsa.test", rsa, None),
    ]
    .into_iter()
    .fold(Carom::serving(format!("\"*\" = {}", a.port())), |setup, (name, made, bare)| {
        let key = bare.map_or_else(|| made.key.clone(), |label| made.bare_key(label));
        setup.tls(&format!("x/{name}.chain"), made.fullchain()).tls(&format!("y/{name}.key"), key)
    })
    .start();
    for name in ["p256.test", "sec1.test", "ed25519.test", "rsa.test", "pkcs1.test"] {
        for versions in [&[&TLS12], &[&TLS13]] {
            let mut client = tls::try_connect(carom.tls_address(), name, tls::config(versions)).unwrap();
            assert_eq!(client.get(name, "/1").text(), "a GET /1", "{name}");
        }
    }
    assert_eq!(carom.said(0).len(), 1, "{:?}", carom.said(0));
}

#[test]
fn the_key_exchange_is_safe_from_quantum_computers() {
    let carom = Carom::to(1).tls("a.pem", pem(&["a.test"])).start();
    let client = carom.tls_client("a.test");
    let group = client.session().negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
}

#[test]
fn plain_http_is_redirected_once_there_is_a_certificate() {
    let a = Origin::named("a");
    let routes = format!(
        "\"a.test\" = {0}\n\"b.test\" = {0}\n\"*.w.test\" = {0}\n\"127.0.0.1\" = {0}\n\"[::1]\" = {0}\n",
        a.port()
    );
    let carom = Carom::serving(routes).tls("a.pem", pem(&["a.test", "*.w.test", "127.0.0.1", "::1"])).start();
    let port = carom.tls_address().port();
    let mut client = carom.client();
    for (host, to) in [
        ("a.test", "a.test"),
        ("A.Test:8080", "a.test"),
        ("x.w.test", "x.w.test"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:80", "[::1]"),
    ] {
        let answer = client.ask(request("POST /x?y=/z", host, &["Content-Length: 0"]));
        assert_eq!(answer.status(), 308, "{host}");
        assert_eq!(answer.field("location"), Some(&*format!("https://{to}:{port}/x?y=/z")), "{host}");
    }
    for (host, path) in [("b.test", "/1"), ("y.x.w.test", "/2"), ("a.test", "/.well-known/acme-challenge/token")] {
        assert_eq!(client.get(host, path).text(), format!("a GET {path}"), "{host}");
    }
    assert_eq!(client.get("a.test", "/.well-known/acme").status(), 308);
    let mark = carom.mark();
    carom.save_cert("b.pem", pem(&["b.test"]));
    carom.wait_certs(mark);
    assert_eq!(client.get("b.test", "/3").status(), 308);
}

#[test]
fn a_site_says_what_becomes_of_plain_http() {
    let a = Origin::named("a");
    let line = |host: &str, said: &str| format!("\"{host}\" = {{ to = {}, {said} }}\n", a.port());
    let routes = line("allow.test", "https = \"allow\"")
        + &line("only.test", "https = \"only\"")
        + &line("redirect.test", "https = \"redirect\"");
    let carom = Carom::serving(&routes).tls("a.pem", pem(&["allow.test", "only.test"])).start();
    let port = carom.tls_address().port();
    let mut client = carom.client();
    assert_eq!(client.get("allow.test", "/1").text(), "a GET /1");
    let refused = client.get("only.test", "/2");
    assert_eq!((refused.status(), refused.error()), (403, Some("https-only")));
    assert_eq!(client.get("only.test", "/.well-known/acme-challenge/x").status(), 200);
    let location = client.get("redirect.test", "/3").field("location").map(str::to_owned);
    assert_eq!(location, Some(format!("https://redirect.test:{port}/3")));
    assert_eq!(carom.tls_client("only.test").get("only.test", "/4").text(), "a GET /4");

    // Behind somebody else's TLS, whose word is taken only if it is trusted.
    let plain = Carom::serving(&routes).config("[forwarded]\ntrust = [\"127.0.0.1\"]").start();
    let mut client = plain.client();
    assert_eq!(client.get("redirect.test", "/5").field("location"), Some("https://redirect.test/5"));
    for said in ["X-Forwarded-Proto: https", "Forwarded: for=192.0.2.1;proto=https"] {
        assert_eq!(client.ask(request("GET /6", "redirect.test", &[said])).text(), "a GET /6", "{said}");
    }
    let stranger = Carom::serving(&routes).start();
    let answer = stranger.client().ask(request("GET /7", "redirect.test", &["X-Forwarded-Proto: https"]));
    assert_eq!(answer.status(), 308);
}

#[test]
fn hsts_is_said_over_tls_only_and_in_place_of_the_backends() {
    let a = Origin::replying(reply("200 OK", &["strict-transport-security: max-age=1", "X-A: b"], "hello"));
    let routes = format!("\"a.test\" = {{ to = {0}, https = \"allow\", hsts = \"1d\" }}\n", a.port())
        + "\"b.test\" = { respond = { status = 200 }, hsts = { max_age = \"365d\", include_subdomains = true } }\n";
    let carom = Carom::serving(routes).tls("a.pem", pem(&["a.test", "b.test"])).start();
    let answer = carom.tls_client("a.test").get("a.test", "/");
    assert_eq!(answer.field("strict-transport-security"), Some("max-age=86400"));
    assert_eq!((answer.field("x-a"), answer.text()), (Some("b"), "hello".to_owned()));
    let answer = carom.tls_client("b.test").get("b.test", "/");
    assert_eq!(answer.field("strict-transport-security"), Some("max-age=31536000; includeSubDomains"));
    assert_eq!(carom.client().get("a.test", "/").field("strict-transport-security"), Some("max-age=1"));
}

#[test]
fn plain_http_on_the_tls_port_is_told_so() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).tls("a.pem", pem(&["a.test"])).start();
    let port = carom.tls_address().port();
    let mut client = Client::connect(carom.tls_address());
    let answer = client.get("a.test", "/x");
    assert_eq!((answer.status(), answer.error()), (400, Some("plain-http")));
    assert!(answer.text().contains(&format!("https://a.test:{port}/")), "{}", answer.text());
    client.expect_end();
    let mut client = Client::connect(carom.tls_address());
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(client.response().status(), 400);
    assert_eq!(carom.logged_path("/x")["reason"], "plain-http");
    assert_eq!(a.connections(), 0);
}

/// The first message of a client, as it goes over the wire.
fn hello(name: &str) -> Vec<u8> {
    hello_of(name, rustls::ALL_VERSIONS)
}

fn hello_of(name: &str, versions: &[&'static rustls::SupportedProtocolVersion]) -> Vec<u8> {
    let config = std::sync::Arc::new(tls::config(versions));
    let mut session = rustls::ClientConnection::new(config, name.to_owned().try_into().unwrap()).unwrap();
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_first_message_may_come_in_any_two_pieces() {
    let carom = Carom::to(1).tls("a.pem", pem(&["a.test"])).start();
    // One that is short, at each byte; one with keys that are safe from quantum computers, here and there.
    let (short, long) = (hello_of("a.test", &[&TLS12]), hello("a.test"));
    let splits = (1..short.len()).map(|at| (&short, at));
    let splits = splits.chain((1..long.len()).step_by(61).map(|at| (&long, at)));
    for (hello, at) in splits {
        let mut client = Client::connect(carom.tls_address());
        client.send(&hello[..at]);
        client.send(&hello[at..]);
        // The record of a ServerHello.
        assert_eq!(client.exactly(3), [22, 3, 3], "{at}");
    }
}

#[test]
fn what_is_no_handshake_ends_and_harms_nobody() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nhandshake = \"300ms\"").tls("a.pem", pem(&["a.test"])).start();
    let address = carom.tls_address();
    let hello = hello("a.test");
    let mut garbled = hello.clone();
    garbled[9..40].fill(0xff);
    for bytes in [
        &b"\x00\x01\x02"[..],
        b"\x16\x03\x01\xff\xff",
        b"\x80\x2e\x01\x03\x01",
        &[0xff; 5000],
        &garbled,
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x15\x03\x03\x00\x02\x01\x00\x15\x03\x03\x00\x02\x01\x00",
        b"\x14\x03\x03\x00\x01\x01",
        b"\x16\x03\x03\x00\x00\x16\x03\x03\x00\x00",
    ] {
        let mut client = Client::connect(address);
        client.send(bytes);
        client.drain();
    }
    // Silent from the beginning, or in the middle: the deadline ends both.
    let mut silent = Client::connect(address);
    silent.drain();
    let mut half = Client::connect(address);
    half.send(&hello[..100]);
    half.drain();
    let mut answered = Client::connect(address);
    answered.send(&hello);
    answered.drain();
    // Gone in the middle.
    for at in [0, 1, 100, hello.len()] {
        let mut client = Client::connect(address);
        client.send(&hello[..at]);
        if at % 2 == 0 { client.half_close() } else { client.reset() }
    }
    assert_eq!(carom.tls_client("a.test").get("a.test", "/").text(), "a GET /");
    carom.assert_running();
}

#[test]
fn a_client_that_drips_its_handshake_meets_the_deadline() {
    let carom = Carom::to(1).config("[timeouts]\nhandshake = \"500ms\"").tls("a.pem", pem(&["a.test"])).start();
    let mut client = Client::connect(carom.tls_address());
    let begun = std::time::Instant::now();
    for byte in hello("a.test") {
        if !client.try_send([byte]) {
            break;
        }
        client.pause(20);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn sessions_are_resumed_over_reloads_and_never_for_another_name() {
    let a = Origin::named("a");
    for versions in [&[&TLS12], &[&TLS13]] {
        let routes = format!("\"*\" = {}", a.port());
        let carom = Carom::serving(&routes).tls("a.pem", pem(&["a.test", "b.test"])).start();
        let config = tls::config(versions);
        let kind = |name: &str| {
            let mut client = tls::try_connect(carom.tls_address(), name, config.clone()).unwrap();
            // Tickets come behind the handshake.
            assert_eq!(client.get(name, "/").status(), 200);
            client.session().handshake_kind().unwrap()
        };
        assert_ne!(kind("a.test"), rustls::HandshakeKind::Resumed);
        assert_eq!(kind("a.test"), rustls::HandshakeKind::Resumed);
        assert_ne!(kind("b.test"), rustls::HandshakeKind::Resumed);
        let mark = carom.mark();
        carom.save_cert("a.pem", pem(&["a.test", "b.test", "c.test"]));
        carom.wait_certs(mark);
        carom.reroute(&format!("\"*\" = {}\n\"x.test\" = 1", a.port()));
        assert_eq!(kind("a.test"), rustls::HandshakeKind::Resumed);
    }
}

#[test]
fn a_body_is_whole_over_tls_only_with_its_end() {
    let large = pattern(3 << 20);
    let sent = large.clone();
    let a = Origin::new(move |conn| {
        let request = conn.request().unwrap();
        conn.send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        conn.send(if request.target() == "/cut" { &sent[..1 << 20] } else { &sent });
        if request.target() == "/cut" {
            conn.reset();
        }
    });
    let carom = Carom::to(a.port()).tls("a.pem", pem(&["a.test"])).start();
    let mut client = carom.tls_client("a.test");
    let whole = client.get("a.test", "/whole");
    assert!(whole.until_end && whole.body == large);
    let mut client = carom.tls_client("a.test");
    client.send(request("GET /cut", "a.test", &[]));
    client.response_head();
    assert_eq!(client.drain(), End::Reset);
}

#[test]
fn uploads_and_tunnels_work_over_tls() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            if request.has("upgrade") {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
                return conn.echo();
            }
            conn.send(reply("200 OK", &[], &request.body.len().to_string()));
        }
    });
    let carom = Carom::to(a.port()).tls("a.pem", pem(&["a.test"])).start();
    let mut client = carom.tls_client("a.test");
    let body = "x".repeat(2_000_000);
    assert_eq!(client.ask(with_body("POST /up", "a.test", &body)).text(), "2000000");
    client.send(request("GET /t", "a.test", &["Connection: Upgrade", "Upgrade: echo"]));
    assert_eq!(client.response_head().status(), 101);
    for round in 0..3 {
        let bytes = pattern(70_000 + round);
        client.send(&bytes);
        client.expect(&bytes);
    }
    client.half_close();
    assert_eq!(client.drain(), End::Fin);
}

#[test]
fn an_idle_client_over_tls_costs_little() {
    let a = Origin::named("a");
    // The first of five hundred waits for its turn to ask until the last has shaken hands.
    let times = "[timeouts]\nhead = \"60s\"\nidle = \"60s\"";
    let carom = Carom::to(a.port()).config(times).tls("a.pem", pem(&["a.test"])).start();
    let mut warm: Vec<_> = (0..100).map(|_| carom.tls_client("a.test")).collect();
    for client in &mut warm {
        assert_eq!(client.get("a.test", "/").status(), 200);
    }
    let before = carom.memory();
    let mut idle: Vec<_> = (0..500).map(|_| carom.tls_client("a.test")).collect();
    for client in &mut idle {
        assert_eq!(client.get("a.test", "/").status(), 200);
    }
    let each = carom.memory().saturating_sub(before) / idle.len();
    assert!(each < 12_000, "an idle client costs {each} bytes");
}

#[test]
fn half_a_record_does_not_prolong_a_wait() {
    let a = Origin::named("a");
    let times = "[timeouts]\nhead = \"400ms\"\nidle = \"400ms\"";
    let carom = Carom::to(a.port()).config(times).tls("a.pem", pem(&["a.test"])).start();
    for requests in [0, 1] {
        let mut client = carom.tls_client("a.test");
        for _ in 0..requests {
            assert_eq!(client.get("a.test", "/").status(), 200);
        }
        let begun = std::time::Instant::now();
        // A record of 1,000 bytes, which comes a byte at a time.
        let record = [&[23, 3, 3, 3, 232][..], &[0; 1000]].concat();
        for byte in record {
            if !client.try_send_below([byte]) {
                break;
            }
            client.pause(25);
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}

/// The first message for a name that no client of ours would ask for, as long as another that it takes.
fn hello_with(name: &str) -> Vec<u8> {
    let stand_in = format!("{}.test", "s".repeat(name.len() - 5));
    let mut bytes = hello(&stand_in);
    let at = bytes.windows(stand_in.len()).position(|window| window == stand_in.as_bytes()).unwrap();
    bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

#[test]
fn odd_names_are_one_name_or_none() {
    let carom = Carom::to(1).tls("a.pem", pem(&["long.a.test"])).start();
    let answer = |name: &str| {
        let mut client = Client::connect(carom.tls_address());
        client.send(hello_with(name));
        client.exactly(7)
    };
    for name in ["long.a.test", "LONG.A.Test", "long.a.test."] {
        assert_eq!(answer(name)[..3], [22, 3, 3], "{name}");
    }
    // An address is no name (RFC 6066 section 3): as if none had been asked for.
    for name in ["127.0.0.1", "long_b.test", "xn--bcher-kva.test"] {
        assert_eq!(answer(name), [21, 3, 3, 0, 2, 2, 112], "{name}");
    }
    // illegal_parameter
    assert_eq!(answer("..........."), [21, 3, 3, 0, 2, 2, 47]);
}
