//! TLS connections that are somebody else's: found by the name that they ask for, and carried as they are.

use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ALL_VERSIONS, ClientConnection};
use serde_json::Value;

use crate::support::carom::{BINARY, Setup, run};
use crate::support::origin::{DeadPort, Secure};
use crate::support::tls::{self, leaf, pem};
use crate::support::{Carom, Client, End, Origin, pattern, poll_until, reply, request};

/// A carom that speaks TLS with a certificate for `a.test` of its own.
fn serving(routes: impl ToString) -> Setup {
    Carom::serving(routes).tls("a.pem", pem(&["a.test"]))
}

/// A backend that has a certificate for these names itself, and says its name.
fn mail(names: &[&str], name: &'static str) -> Origin {
    Origin::secure(Secure::with(&leaf(names).make()), move |conn| conn.serve(name))
}

/// A backend that keeps what comes and answers when it has come whole.
fn keeping(length: usize) -> Origin {
    Origin::new(move |conn| {
        if conn.exactly(length).is_some() {
            conn.send("\x15\x03\x03\x00\x02\x02\x28");
        }
    })
}

/// The first message of a client that asks for this name: one record.
fn hello(name: &str) -> Vec<u8> {
    let mut config = tls::config(ALL_VERSIONS);
    config.alpn_protocols = vec![b"imap".to_vec()];
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut bytes = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut bytes).unwrap();
    assert_eq!(usize::from(bytes[3]) << 8 | usize::from(bytes[4]), bytes.len() - 5);
    bytes
}

/// The same message in records of so many bytes each.
fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
    let record = |piece: &[u8]| [&hello[..3], &(piece.len() as u16).to_be_bytes(), piece].concat();
    hello[5..].chunks(size).flat_map(record).collect()
}

fn passed(carom: &Carom, host: &str) -> Value {
    carom.logged(host, |entry| entry["method"] == "-" && entry["host"] == host)
}

#[test]
fn a_connection_goes_to_the_backend_that_has_its_name() {
    let a = Origin::named("a");
    let b = mail(&["mail.test"], "b");
    let routes = format!("\"a.test\" = {}\n\"mail.test\" = {{ passthrough = {} }}\n", a.port(), b.port());
    let carom = serving(routes).start();
    let mut through = carom.tls_client("mail.test");
    // The other hosts of the port end here as ever.
    assert_eq!(carom.tls_client("a.test").get("a.test", "/").text(), "a GET /");
    for path in ["/1", "/2"] {
        assert_eq!(through.get("whatever.host", path).text(), format!("b GET {path}"));
    }
    assert_eq!(b.session(0).server_name.as_deref(), Some("mail.test"));
    assert!(!b.requests()[0].has("x-forwarded-for"), "nobody has seen the request");
    drop(through);
    let entry = passed(&carom, "mail.test");
    assert_eq!(entry["backend"], b.port().to_string());
    assert_eq!(entry["route"], "mail.test");
    assert!(entry["received"].as_u64().unwrap() > 300 && entry["sent"].as_u64().unwrap() > 500, "{entry}");
    assert_eq!((&entry["status"], &entry["tries"]), (&Value::from(0), &Value::from(1)));
}

#[test]
fn the_first_message_arrives_as_it_was_sent_however_it_is_split() {
    let hello = hello("mail.test");
    for (bytes, pieces) in [
        (hello.clone(), hello.len()),
        (hello.clone(), 1),
        (hello.clone(), 7),
        (in_records(&hello, 1), 64),
        (in_records(&hello, 50), 13),
        (in_records(&hello, 300), hello.len() * 2),
        // And what comes with it.
        ([&hello[..], b"\x14\x03\x03\x00\x01\x01\x17\x03\x03\x00\x05early"].concat(), hello.len() + 3),
    ] {
        let b = keeping(bytes.len());
        let carom = serving(format!("\"mail.test\" = {{ passthrough = {} }}\n", b.port())).start();
        let mut client = Client::connect(carom.tls_address());
        for piece in bytes.chunks(pieces) {
            client.send(piece);
        }
        client.expect("\x15\x03\x03\x00\x02\x02\x28");
        client.half_close();
        client.drain();
        b.wait("the whole message", |seen| (seen.connections.first()?.bytes == bytes).then_some(()));
    }
}

#[test]
fn a_first_message_has_an_end_and_a_deadline() {
    let b = Origin::named("b");
    let routes = format!("\"mail.test\" = {{ passthrough = {} }}\n", b.port());
    let carom = serving(routes).config("[timeouts]\nhandshake = \"500ms\"").start();
    let mut client = Client::connect(carom.tls_address());
    client.send(&hello("mail.test")[..100]);
    client.expect_end();
    // A message that says it has sixteen megabytes, in records that never end.
    let mut client = Client::connect(carom.tls_address());
    client.try_send(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff");
    for _ in 0..20 {
        client.try_send([&vec![0; 0x4000 - 4][..], b"\x16\x03\x01\x40\x00\0\0\0\0"].concat());
    }
    client.drain();
    b.assert_untouched();
}

#[test]
fn a_passed_connection_is_carried_until_both_sides_have_ended() {
    let b = Origin::secure(Secure::with(&leaf(&["mail.test"]).make()), |conn| {
        conn.echo();
        conn.send("and that was all");
        conn.half_close();
    });
    let carom = serving(format!("\"mail.test\" = {{ passthrough = {} }}\n", b.port())).start();
    let mut client = carom.tls_client("mail.test");
    for _ in 0..3 {
        client.send(pattern(300_000));
        client.expect(pattern(300_000));
    }
    client.half_close();
    client.expect("and that was all");
    assert_eq!(client.expect_end(), End::Fin);
    assert!(passed(&carom, "mail.test")["reason"].is_null());
}

#[test]
fn wildcards_lists_and_backups_are_as_for_requests() {
    let (one, two) = (mail(&["*.m.test", "x.test"], "one"), mail(&["*.m.test"], "two"));
    let dead = DeadPort::new();
    let routes = format!(
        "\"*.m.test\" = {{ passthrough = [{}, {}], also = [\"x.test\"] }}\n\
         \"y.m.test\" = {{ passthrough = [{}, {{ to = {}, backup = true }}] }}\n",
        one.port(),
        two.port(),
        dead.port(),
        two.port()
    );
    let carom = serving(routes).start();
    let ask = |name: &str| carom.tls_client(name).get("h", "/").text();
    assert_eq!([ask("p.m.test"), ask("q.m.test"), ask("p.m.test")], ["one GET /", "two GET /", "one GET /"]);
    for _ in 0..2 {
        assert_eq!(ask("y.m.test"), "two GET /");
    }
    assert_eq!(passed(&carom, "y.m.test")["tries"], 2);
}

#[test]
fn a_backend_that_is_away_closes_the_connection_with_a_reason() {
    let dead = DeadPort::new();
    let carom = serving(format!("\"mail.test\" = {{ passthrough = {} }}\n", dead.port())).start();
    assert!(tls::try_connect(carom.tls_address(), "mail.test", tls::config(ALL_VERSIONS)).is_err());
    let entry = passed(&carom, "mail.test");
    assert_eq!(entry["reason"], "backend-refused");
    assert_eq!(entry["backend"], dead.port().to_string());
}

#[test]
fn a_backend_that_wants_to_know_is_told_who_the_client_is() {
    let made = leaf(&["mail.test"]).make();
    let b = Origin::secure(Secure::with(&made).behind_a_line(), |conn| conn.serve("b"));
    let routes = format!("\"mail.test\" = {{ passthrough = {}, send_proxy = \"v1\" }}\n", b.port());
    let carom = serving(&routes).start();
    assert_eq!(carom.tls_client("mail.test").get("h", "/").text(), "b GET /");
    let port = passed(&carom, "mail.test")["client"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}\r\n", carom.tls_address().port());
    assert_eq!(b.session(0).line, line);
}

#[test]
fn a_proxy_in_front_may_say_who_the_client_is_before_tls() {
    let a = Origin::named("a");
    let made = leaf(&["mail.test"]).make();
    let b = Origin::secure(Secure::with(&made).behind_a_line(), |conn| conn.serve("b"));
    let routes =
        format!("\"a.test\" = {}\n\"mail.test\" = {{ passthrough = {}, send_proxy = \"v1\" }}\n", a.port(), b.port());
    let carom = Carom::serving(routes).proxied_tls("\"127.0.0.1\"", "a.pem", pem(&["a.test"])).start();
    let line = "PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n";
    let mut client = tls::connect_behind(carom.address(), line.as_bytes(), "a.test");
    assert_eq!(client.get("a.test", "/").text(), "a GET /");
    assert_eq!(a.request().field("x-forwarded-for"), Some("2001:db8::7"));
    assert_eq!(a.request().field("x-forwarded-proto"), Some("https"));
    let mut client = tls::connect_behind(carom.address(), line.as_bytes(), "mail.test");
    assert_eq!(client.get("h", "/").text(), "b GET /");
    assert_eq!(b.session(0).line, line);
    drop(client);
    assert_eq!(passed(&carom, "mail.test")["client"], "[2001:db8::7]:4711");
}

#[test]
fn requests_for_its_host_are_not_answered_by_anybody_else() {
    let b = Origin::named("b");
    let routes = format!("\"mail.w.test\" = {{ passthrough = {} }}\n", b.port());
    let carom = Carom::serving(routes).tls("w.pem", pem(&["*.w.test"])).start();
    // A connection that ends here, though its certificate is for the host as well: another one has to be made.
    let response = carom.tls_client("other.w.test").get("mail.w.test", "/");
    assert_eq!((response.status(), response.error()), (421, Some("misdirected")));
    // Plain HTTP is sent to where TLS is.
    let response = carom.client().get("mail.w.test", "/x?y");
    assert_eq!(response.status(), 308);
    let port = carom.tls_address().port();
    assert_eq!(response.field("location"), Some(format!("https://mail.w.test:{port}/x?y").as_str()));
    // But for what nobody can be sent there for.
    let response = carom.client().get("mail.w.test", "/.well-known/acme-challenge/x");
    assert_eq!((response.status(), response.error()), (421, Some("misdirected")));
    b.assert_untouched();
}

#[test]
fn a_client_that_asks_for_no_name_goes_where_every_name_goes() {
    let b = Origin::secure(Secure::with(&leaf(&["127.0.0.1"]).make()), |conn| conn.serve("b"));
    let routes = format!("\"a.test\" = 1\n\"*\" = {{ passthrough = {} }}\n", b.port());
    let carom = serving(routes).start();
    assert_eq!(carom.tls_client("127.0.0.1").get("h", "/").text(), "b GET /");
    assert_eq!(b.session(0).server_name, None);
}

#[test]
fn a_save_moves_the_next_connection_and_leaves_the_last() {
    let (one, two) = (mail(&["mail.test"], "one"), mail(&["mail.test"], "two"));
    let routes = |port: u16| format!("\"mail.test\" = {{ passthrough = {port} }}\n");
    let carom = serving(routes(one.port())).start();
    let mut first = carom.tls_client("mail.test");
    assert_eq!(first.get("h", "/1").text(), "one GET /1");
    let said = carom.reroute(&routes(two.port()));
    assert!(said.contains(&format!("passthrough {} → passthrough {}", one.port(), two.port())), "{said}");
    assert_eq!(carom.tls_client("mail.test").get("h", "/").text(), "two GET /");
    assert_eq!(first.get("h", "/2").text(), "one GET /2");
    // And to requests, once there is a certificate.
    let a = Origin::replying(reply("200 OK", &[], "seen"));
    carom.reroute(&format!("\"mail.test\" = {}\n\"a.test\" = {0}\n", a.port()));
    assert_eq!(carom.tls_client("a.test").ask(request("GET /", "a.test", &[])).text(), "seen");
    assert!(tls::try_connect(carom.tls_address(), "mail.test", tls::config(ALL_VERSIONS)).is_err());
    assert_eq!(first.get("h", "/3").text(), "one GET /3");
}

#[test]
fn check_and_explain_know_whose_connection_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let routes = "\"a.test\" = 1\n\"mail.test\" = { passthrough = [2, 3] }\n";
    std::fs::write(folder.path().join("routes.toml"), routes).unwrap();
    std::fs::create_dir(folder.path().join("certs")).unwrap();
    let carom = |arguments: &[&str]| run(Command::new(BINARY).args(arguments).current_dir(folder.path()));
    let (code, said) = carom(&["check", "--certs", "certs"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no certificate: a.test") && !said.contains("mail.test"), "{said}");
    let (code, said) = carom(&["explain", "https://mail.test/", "--certs", "certs"]);
    assert_eq!(code, Some(0), "{said}");
    for words in ["the connection is passed through", "passthrough 2, 3", "2, in turn", "routes.toml:2"] {
        assert!(said.contains(words), "{words} in {said}");
    }
}

#[test]
fn a_route_that_no_connection_can_come_to_is_said() {
    let is_warning = |line: &str| line.starts_with("warning: routes.toml:1: mail.test is passed through");
    let carom = Carom::serving("\"mail.test\" = { passthrough = 1 }\n").start();
    carom.stderr(0, "that no address speaks TLS", is_warning);
    let mark = carom.mark();
    carom.reroute("\"mail.test\" = { passthrough = 2 }\n");
    carom.stderr(mark, "that still none does", is_warning);
    let carom = serving("\"mail.test\" = { passthrough = 1 }\n").start();
    carom.reroute("\"mail.test\" = { passthrough = 2 }\n");
    assert!(!carom.said(0).iter().any(|line| line.starts_with("warning")), "{:?}", carom.said(0));
}

#[test]
fn a_connection_waits_for_a_full_backend_until_another_one_ends() {
    let backend = Origin::new(|conn| conn.echo());
    let carom =
        serving(format!("\"mail.test\" = {{ passthrough = {}, max_connections = 1 }}\n", backend.port())).start();
    let hello = hello("mail.test");
    let begin = || {
        let mut client = Client::connect(carom.tls_address());
        client.send(&hello);
        client
    };
    let mut first = begin();
    assert_eq!(first.exactly(hello.len()), hello);
    let mut second = begin();
    second.expect_silence(300);
    let mut third = begin();
    third.expect_silence(100);
    drop(third);
    assert_eq!(passed(&carom, "mail.test")["reason"], "client-gone");
    assert_eq!(backend.connections(), 1);
    drop(first);
    assert_eq!(second.exactly(hello.len()), hello);
}

#[test]
fn a_connection_that_has_waited_for_a_paused_site_goes_where_the_routes_send_it_by_then() {
    let (one, other) = (keeping(1), keeping(1));
    let to = |origin: &Origin| format!("\"mail.test\" = {{ passthrough = {} }}\n", origin.port());
    let carom = serving(to(&one)).start();
    let (code, said) = carom.verb(&["pause", "mail.test", "--wait", "60s"]);
    assert_eq!(code, Some(0), "{said}");
    let mut client = Client::connect(carom.tls_address());
    client.send(hello("mail.test"));
    poll_until("that it waits", || carom.status()["sites"][0]["waiting"] == 1);
    carom.reroute(&to(&other));
    assert_eq!(carom.verb(&["resume", "mail.test"]).0, Some(0));
    client.expect("\x15\x03\x03\x00\x02\x02\x28");
    one.assert_untouched();
}
