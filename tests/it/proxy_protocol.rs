//! The PROXY protocol: a trusted proxy in front says who the client is, and nobody else may; a backend that wants to
//! know is told.

use std::time::{Duration, Instant};

use carom::bounce::Target;
use carom::proxy::Listen;
use carom::table::link::ProxyVersion;
use carom::{Bounce, Head, Proxy};

use crate::support::http2::{Http2, get as get_http2};
use crate::support::inside::Inside;
use crate::support::origin::{Conn, DeadPort};
use crate::support::{Carom, Client, Origin, reply, request};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A version 2 header: command, family and transport, and what stands behind the length.
fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    [SIGNATURE, &[command, family], &length, body].concat()
}

/// 203.0.113.7:4711 to 192.0.2.1:80.
const INET: [u8; 12] = [203, 0, 113, 7, 192, 0, 2, 1, 0x12, 0x67, 0, 80];

const V1: &[u8] = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 80\r\n";

const TRUSTED: &str = "\"127.0.0.1\"";

fn get(path: &str) -> Vec<u8> {
    request(&format!("GET {path}"), "a.test", &[]).into_bytes()
}

#[test]
fn the_client_is_whom_a_trusted_proxy_says() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).proxied(TRUSTED).start();
    let inet6 =
        [&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7][..], &[0; 16], &[0x12, 0x67, 1, 0xbb]].concat();
    let with_tlvs = [&INET[..], &[0x04, 0xff, 0x00], &vec![0; 0xff00]].concat();
    for (number, (header, address, log)) in [
        (V1.to_vec(), "203.0.113.7", "203.0.113.7:4711"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n".to_vec(), "2001:db8::7", "[2001:db8::7]:4711"),
        (v2(0x21, 0x11, &INET), "203.0.113.7", "203.0.113.7:4711"),
        (v2(0x21, 0x21, &inet6), "2001:db8::7", "[2001:db8::7]:4711"),
        (v2(0x21, 0x11, &with_tlvs), "203.0.113.7", "203.0.113.7:4711"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = carom.client();
        let (first, second) = (format!("/{number}/1"), format!("/{number}/2"));
        assert_eq!(client.ask([&header[..], &get(&first)].concat()).text(), format!("a GET {first}"));
        // It holds for the connection, not for its first request.
        assert_eq!(client.get("a.test", &second).text(), format!("a GET {second}"));
        for path in [first, second] {
            assert_eq!(carom.logged_path(&path)["client"], log);
            let seen = a.requests().into_iter().find(|request| request.target() == path).unwrap();
            assert_eq!(seen.field("x-forwarded-for"), Some(address));
        }
    }
}

#[test]
fn a_header_may_come_byte_by_byte() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).proxied(TRUSTED).start();
    for (path, header) in [("/1", V1.to_vec()), ("/2", v2(0x21, 0x11, &[&INET[..], &[0xee; 40]].concat()))] {
        let mut client = carom.client();
        for byte in [&header[..], &get(path)].concat() {
            client.send([byte]);
            client.pause(1);
        }
        assert_eq!(client.response().text(), format!("a GET {path}"));
        assert_eq!(carom.logged_path(path)["client"], "203.0.113.7:4711");
    }
}

#[test]
fn a_header_that_speaks_of_no_client_leaves_the_peer() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).proxied(TRUSTED).start();
    for (number, header) in [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN 203.0.113.7 and more\r\n".to_vec(),
        v2(0x20, 0x00, b""),
        v2(0x20, 0x11, &INET),
        v2(0x21, 0x00, b""),
        v2(0x21, 0x31, &[b'/'; 216]),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        assert_eq!(carom.client().ask([&header[..], &get(&path)].concat()).status(), 200);
        let client = carom.logged_path(&path)["client"].to_string();
        assert!(client.starts_with("\"127.0.0.1:"), "{client}");
    }
}

#[test]
fn forwarding_fields_are_believed_by_the_clients_address_and_not_by_the_proxys() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).proxied("\"127.0.0.1\", \"198.51.100.0/24\"").start();
    for (from, want) in [("203.0.113.7", "203.0.113.7"), ("198.51.100.9", "192.0.2.99, 198.51.100.9")] {
        let header = format!("PROXY TCP4 {from} 192.0.2.1 4711 80\r\n");
        let asked = request(&format!("GET /{from}"), "a.test", &["X-Forwarded-For: 192.0.2.99"]);
        assert_eq!(carom.client().ask(header + &asked).status(), 200);
        let seen = a.requests().into_iter().find(|request| request.target() == format!("/{from}")).unwrap();
        assert_eq!(seen.field("x-forwarded-for"), Some(want));
    }
}

#[test]
fn whoever_is_not_trusted_is_not_served() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).proxied("\"198.51.100.0/24\"").start();
    for bytes in [[V1, &get("/")].concat(), get("/"), Vec::new()] {
        let mut client = carom.client();
        client.try_send(bytes);
        client.expect_end();
    }
    carom.stderr(0, "that a stranger came", |line| line.contains("WARN") && line.contains("forwarded.trust"));
    assert!(carom.log().is_empty(), "{:?}", carom.log());
    a.assert_untouched();
}

#[test]
fn whoever_sends_no_header_or_a_bad_one_is_not_served() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).proxied(TRUSTED).start();
    for header in [
        b"".to_vec(),
        b"PROXY TCP4 203.0.113.7 192.0.2.1 4711\r\n".to_vec(),
        b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 080\r\n".to_vec(),
        format!("PROXY UNKNOWN {}\r\n", "x".repeat(100)).into_bytes(),
        v2(0x21, 0x12, &INET),
        v2(0x21, 0x11, &INET[..8]),
        v2(0x11, 0x11, &INET),
    ] {
        let mut client = carom.client();
        client.try_send([&header[..], &get("/")].concat());
        client.expect_end();
    }
    let said = carom.stderr(0, "that there was no header", |line| line.contains("without a PROXY header"));
    assert!(said.contains("WARN") && said.contains("no PROXY header"), "{said}");
    // However often it happens, it is said once in a while.
    assert_eq!(carom.said(0).iter().filter(|line| line.contains("without a PROXY header")).count(), 1);
    a.assert_untouched();
}

#[test]
fn a_header_has_to_be_whole_in_time() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).proxied(TRUSTED).config("[timeouts]\nhead = \"500ms\"").start();
    for beginning in
        [&b""[..], b"PROXY TCP4 203", &v2(0x21, 0x11, &INET)[..20], &[&v2(0x20, 0, b"")[..14], &[9, 9, 1]].concat()]
    {
        let began = Instant::now();
        let mut client = carom.client();
        client.send(beginning);
        client.expect_end();
        assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    }
    a.assert_untouched();
}

#[test]
fn looking_whether_the_port_is_open_is_no_fault() {
    let carom = Carom::to(1).proxied(TRUSTED).start();
    let mut client = carom.client();
    client.half_close();
    client.expect_end();
    assert!(carom.said(0).iter().all(|line| !line.contains("WARN")), "{:?}", carom.said(0));
}

#[test]
fn a_librarys_user_asks_for_it_by_address() {
    let a = Origin::named("a");
    let port = a.port();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let decide = async move |_: &Head<'_>, bounce: Bounce| bounce.to(port);
        let listen = || Listen::from("127.0.0.1:0").proxy_protocol();
        let error = Proxy::builder().listen(listen()).decide(decide).bind().await.unwrap_err();
        assert!(error.to_string().contains("nobody is trusted"), "{error}");

        let mut settings = carom::settings::Settings::default();
        settings.forwarding.trust = vec!["127.0.0.1/32".parse().unwrap()];
        let proxy =
            Proxy::builder().settings(settings).workers(1).listen(listen()).decide(decide).bind().await.unwrap();
        let address = proxy.addresses()[0];
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let asking = std::thread::spawn(move || {
            let text = Client::connect(address).ask([V1, &get("/")].concat()).text();
            stop.send(()).unwrap();
            text
        });
        proxy.run_until(async { stopped.await.unwrap() }).await.unwrap();
        assert_eq!(asking.join().unwrap(), "a GET /");
    });
    assert_eq!(a.request().field("x-forwarded-for"), Some("203.0.113.7"));
}

/// A backend that takes a version 1 line, and answers each request with it.
fn told_by_line() -> Origin {
    Origin::new(|conn| {
        let line = line(conn);
        while conn.request().is_some() {
            conn.send(reply("200 OK", &[], &line));
        }
    })
}

/// Reads a version 1 line.
fn line(conn: &mut Conn) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(conn.exactly(1).expect("a line"));
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

#[test]
fn a_backend_is_told_who_the_client_is() {
    let text = told_by_line();
    let binary = Origin::new(|conn| {
        let mut header = conn.exactly(16).expect("a header");
        assert_eq!(&header[..14], [SIGNATURE, &[0x21, 0x11]].concat());
        header.extend(conn.exactly(usize::from(header[15])).expect("addresses"));
        while conn.request().is_some() {
            conn.send(reply("200 OK", &[], &header.escape_ascii().to_string()));
        }
    });
    let routes = format!(
        "\"a.test\" = {{ to = {}, send_proxy = \"v1\" }}\n\"b.test\" = {{ to = [{{ to = {}, send_proxy = \"v2\" }}] }}\n",
        text.port(),
        binary.port()
    );
    // Clients that say themselves who they are to the proxy in front of carom.
    let carom = Carom::serving(&routes).proxied(TRUSTED).start();
    let header = b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n";
    let said = carom.client().ask([&header[..], &get("/")].concat()).text();
    assert_eq!(said, "PROXY TCP6 2001:db8::7 2001:db8::1 4711 443");
    let said = carom.client().ask([V1, request("GET /", "b.test", &[]).as_bytes()].concat()).text();
    assert_eq!(said, v2(0x21, 0x11, &INET).escape_ascii().to_string());
    // And clients that come directly: the address that they came to is carom's own.
    let carom = Carom::serving(&routes).start();
    let said = carom.client().get("a.test", "/direct").text();
    let client = carom.logged_path("/direct")["client"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    assert_eq!(said, format!("PROXY TCP4 127.0.0.1 127.0.0.1 {client} {}", carom.address().port()));
}

#[test]
fn a_told_backends_connections_are_not_shared_between_clients() {
    let a = told_by_line();
    let carom = Carom::serving(format!("\"a.test\" = {{ to = {}, send_proxy = \"v1\" }}\n", a.port())).start();
    let (mut one, mut two) = (carom.client(), carom.client());
    let firsts = [one.get("a.test", "/").text(), two.get("a.test", "/").text()];
    assert_ne!(firsts[0], firsts[1]);
    for _ in 0..3 {
        // Each goes on with its own.
        assert_eq!([one.get("a.test", "/").text(), two.get("a.test", "/").text()], firsts);
    }
    assert_eq!(a.connections(), 2);
    // A client that has gone leaves none behind.
    drop(one);
    a.wait_end(0);
    assert_eq!(two.get("a.test", "/").text(), firsts[1]);
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    assert_eq!(a.connections(), 3);
}

#[test]
fn a_told_backends_connection_that_ended_is_made_anew() {
    let a = Origin::new(|conn| {
        let line = line(conn);
        if conn.request().is_some() {
            conn.send(reply("200 OK", &[], &line));
        }
    });
    let dead = DeadPort::new();
    let routes = format!("\"a.test\" = {{ to = [{}, {}], send_proxy = \"v1\" }}\n", dead.port(), a.port());
    let carom = Carom::serving(routes).start();
    let mut client = carom.client();
    for connection in 0..4 {
        assert_eq!(client.ask(crate::support::with_body("POST /", "a.test", "x")).status(), 200);
        a.wait_over(connection);
    }
}

#[test]
fn a_closure_tells_a_backend_too() {
    let a = told_by_line();
    let port = a.port();
    let proxy = Inside::deciding(async move |_: &Head<'_>, bounce: Bounce| {
        bounce.to(Target::from(port).send_proxy(ProxyVersion::V1))
    });
    let mut client = proxy.client();
    let first = client.get("a.test", "/").text();
    assert!(first.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{first}");
    assert_eq!(client.get("a.test", "/").text(), first);
    assert_eq!(a.connections(), 1);
}

#[test]
fn a_backend_is_told_of_http2_clients_too() {
    let a = told_by_line();
    let routes = format!("\"a.test\" = {{ to = {}, send_proxy = \"v1\" }}\n", a.port());
    let carom = Carom::serving(routes).config("[http2]\nprior_knowledge = true").start();
    let mut client = Http2::connect(carom.address());
    for path in ["1", "2"] {
        let said = client.ask(get_http2(&format!("http://a.test/{path}"))).text();
        let port =
            carom.logged_path(&format!("/{path}"))["client"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        assert_eq!(said, format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}", carom.address().port()));
    }
}
