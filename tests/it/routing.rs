//! Which site a request goes to, and which instance of it: by every spelling of a host, on every request of a
//! connection, whatever else the request says.

use std::collections::BTreeMap;

use crate::support::origin::DeadPort;
use crate::support::{Carom, Origin, request};

/// Two sites, `a.test` and `b.test`.
fn two() -> (Origin, Origin, Carom) {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), b.port())).start();
    (a, b, carom)
}

#[test]
fn a_request_reaches_the_site_that_its_host_names() {
    let (a, b, carom) = two();
    let response = carom.client().get("b.test", "/x");
    assert_eq!((response.status(), response.text().as_str()), (200, "b GET /x"));
    assert_eq!(b.request().field("host"), Some("b.test"));
    a.assert_untouched();
}

#[test]
fn every_spelling_of_a_host_is_the_same_site_and_is_forwarded_as_sent() {
    let a = Origin::named("a");
    let carom = Carom::serving(format!("\"Shop.A.test\" = {}\n", a.port())).start();
    let spellings =
        ["shop.a.test", "SHOP.A.TEST", "shop.a.test.", "sHop.a.test.:8080", "shop.a.test:80", "shop.a.test:"];
    let mut client = carom.client();
    for spelling in spellings {
        assert_eq!(client.get(spelling, "/").status(), 200, "{spelling}");
    }
    let hosts: Vec<_> = a.requests().iter().map(|r| r.field("host").unwrap_or("").to_owned()).collect();
    assert_eq!(hosts, spellings);
}

#[test]
fn an_ipv6_literal_is_the_same_host_with_and_without_a_port() {
    let six = Origin::named("six");
    let carom = Carom::serving(format!("\"[2001:db8::1]\" = {}\n", six.port())).start();
    let mut client = carom.client();
    for host in ["[2001:db8::1]", "[2001:db8::1]:8080", "[2001:DB8:0:0::1]"] {
        assert_eq!(client.get(host, "/").text(), "six GET /", "{host}");
    }
    assert_eq!(client.get("[2001:db8::2]", "/").status(), 404);
}

#[test]
fn a_unicode_key_is_asked_for_by_its_a_label() {
    let books = Origin::named("books");
    let carom = Carom::serving(format!("\"Bücher.test\" = {}\n", books.port())).start();
    assert_eq!(carom.client().get("xn--bcher-kva.test", "/").text(), "books GET /");
}

#[test]
fn only_ascii_letters_fold() {
    let k = Origin::named("k");
    let carom = Carom::serving(format!("\"k.test\" = {}\n", k.port())).start();
    assert_eq!(carom.client().get("K.test", "/").status(), 200);
    // U+212A folds to `k` in Unicode.
    for host in ["\u{212a}.test", "k.te\u{17f}t"] {
        let response = carom.client().get(host, "/");
        assert_eq!((response.status(), response.error()), (400, Some("bad-host")), "{host}");
    }
    assert_eq!(k.lines().len(), 1);
}

#[test]
fn the_most_specific_line_wins_in_every_order() {
    let (any, exact, deep) = (Origin::named("any"), Origin::named("exact"), Origin::named("deep"));
    let lines = [
        format!("\"*.w.test\" = {}\n", any.port()),
        format!("\"x.w.test\" = {}\n", exact.port()),
        format!("\"*.x.w.test\" = {}\n", deep.port()),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let carom = Carom::serving(order.map(|i: usize| lines[i].as_str()).concat()).start();
        let mut client = carom.client();
        for (host, site) in [
            ("x.w.test", "exact"),
            ("q.x.w.test", "deep"),
            ("a.q.x.w.test", "deep"),
            ("q.w.test", "any"),
            ("a.b.w.test", "any"),
        ] {
            assert_eq!(client.get(host, "/").text(), format!("{site} GET /"), "{host} in order {order:?}");
        }
        assert_eq!(client.get("w.test", "/").status(), 404, "a wildcard does not cover its own name");
        assert_eq!(client.get("xw.test", "/").status(), 404);
    }
}

#[test]
fn what_no_line_names_goes_to_the_star_or_is_not_found() {
    let (a, star) = (Origin::named("a"), Origin::named("star"));
    for key in ["*", ""] {
        let carom = Carom::serving(format!("\"a.test\" = {}\n\"{key}\" = {}\n", a.port(), star.port())).start();
        assert_eq!(carom.client().get("nobody.test", "/").text(), "star GET /");
        assert_eq!(carom.client().get("a.test", "/").text(), "a GET /");
    }
    let carom = Carom::to(a.port()).start();
    let response = carom.client().get("nobody.test", "/");
    assert_eq!((response.status(), response.error()), (404, Some("no-route")));
}

#[test]
fn names_that_only_look_alike_are_not_found() {
    let (a, _b, carom) = two();
    let mut client = carom.client();
    for host in ["xa.test", "a.test.b", "test", "a.test.test", "a-test", "[::1]", "127.0.0.1", "aatest"] {
        assert_eq!(client.get(host, "/").error(), Some("no-route"), "{host}");
    }
    a.assert_untouched();
}

#[test]
fn unknown_hosts_and_noise_do_no_harm() {
    let (a, _b, carom) = two();
    for round in 0..100 {
        let response = carom.client().get("nobody.test", "/");
        assert_eq!(response.status(), 404, "round {round}");
    }
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..100 {
        let mut host = Vec::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            host.push(((state >> 40) as u8 | 0x80).max(0x81));
        }
        let mut client = carom.client();
        client.send([b"GET / HTTP/1.1\r\nHost: ", host.as_slice(), b"\r\n\r\n"].concat());
        let status = client.response().status();
        assert_eq!(status, 400, "{}", host.escape_ascii());
    }
    a.assert_untouched();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
}

#[test]
fn http_1_0_without_a_host_goes_to_the_star_or_is_not_found() {
    let (a, star) = (Origin::named("a"), Origin::named("star"));
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"*\" = {}\n", a.port(), star.port())).start();
    let mut client = carom.client();
    client.send("GET /old HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!(response.text(), "star GET /old");
    client.expect_end();
    let mut client = carom.client();
    client.send("GET /old HTTP/1.0\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response().text(), "a GET /old");

    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send("GET /old HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().error(), Some("no-route"));
}

#[test]
fn an_absolute_target_decides_and_is_the_host_that_is_forwarded() {
    let (a, b, carom) = two();
    for (target, path, host) in [
        ("http://a.test/x?y", "/x?y", "a.test"),
        ("HTTP://A.TEST/x", "/x", "A.TEST"),
        ("http://a.test:80/x", "/x", "a.test:80"),
        ("http://a.test?q=1", "/?q=1", "a.test"),
        ("http://a.test", "/", "a.test"),
    ] {
        let before = a.lines().len();
        let response = carom.client().ask(request(&format!("GET {target}"), "b.test", &[]));
        assert_eq!(response.text(), format!("a GET {path}"), "{target}");
        assert_eq!(a.requests()[before].field("host"), Some(host), "{target}");
    }
    b.assert_untouched();
}

#[test]
fn a_path_that_begins_with_two_slashes_is_a_path() {
    let (a, b, carom) = two();
    let response = carom.client().get("a.test", "//b.test/x");
    assert_eq!(response.text(), "a GET //b.test/x");
    assert_eq!(a.lines(), ["GET //b.test/x"]);
    b.assert_untouched();
}

#[test]
fn a_target_is_forwarded_to_the_byte() {
    let (a, _b, carom) = two();
    let mut client = carom.client();
    for target in ["/a%2Fb//c/./d/../e;p=1?x=%20&y=%2F+z&z=/?", "/?", "/%", "/\u{e4}", "/|[]{}^`\\\"<>"] {
        assert_eq!(client.get("a.test", target).status(), 200, "{target}");
    }
    let targets: Vec<_> = a.requests().iter().map(|r| r.raw.clone()).collect();
    assert!(targets[3].starts_with("GET /\u{e4} HTTP/1.1\r\n".as_bytes()));
    assert_eq!(a.lines()[0], "GET /a%2Fb//c/./d/../e;p=1?x=%20&y=%2F+z&z=/?");
    assert_eq!(a.lines()[4], "GET /|[]{}^`\\\"<>");
}

#[test]
fn any_method_is_forwarded_as_sent() {
    let (a, _b, carom) = two();
    let mut client = carom.client();
    for method in ["GET", "DELETE", "OPTIONS", "TRACE", "VERSION-CONTROL", "get", "M!#$%&'*+-.^_`|~9"] {
        assert_eq!(client.ask(request(&format!("{method} /x"), "a.test", &[])).status(), 200, "{method}");
    }
    assert_eq!(client.ask(request("OPTIONS *", "a.test", &[])).text(), "a OPTIONS *");
    assert_eq!(a.lines()[4], "VERSION-CONTROL /x");
    assert_eq!(a.lines()[5], "get /x");
}

#[test]
fn a_forwarding_field_of_the_client_does_not_route() {
    let (a, b, carom) = two();
    let fields = ["X-Forwarded-Host: b.test", "Forwarded: host=b.test", "X-Host: b.test"];
    assert_eq!(carom.client().ask(request("GET /", "a.test", &fields)).text(), "a GET /");
    assert_eq!(a.lines().len(), 1);
    b.assert_untouched();
}

#[test]
fn each_request_of_a_connection_is_routed_by_its_own_host() {
    let (a, b, carom) = two();
    let mut client = carom.client();
    for round in 0..10 {
        let (host, site) = if round % 2 == 0 { ("a.test", "a") } else { ("b.test", "b") };
        assert_eq!(client.get(host, &format!("/{round}")).text(), format!("{site} GET /{round}"));
    }
    assert_eq!(client.get("nobody.test", "/").status(), 404);
    assert_eq!(client.get("b.test", "/last").text(), "b GET /last");
    assert_eq!((a.lines().len(), b.lines().len()), (5, 6));
}

#[test]
fn a_path_prefix_ends_on_a_segment_border_and_the_longest_wins() {
    let (bare, api, v2) = (Origin::named("bare"), Origin::named("api"), Origin::named("v2"));
    let routes =
        format!("\"a.test\" = {}\n\"a.test/api/\" = {}\n\"a.test/api/v2\" = {}\n", bare.port(), api.port(), v2.port());
    let carom = Carom::serving(routes).start();
    let mut client = carom.client();
    for (path, site) in [
        ("/", "bare"),
        ("/api", "api"),
        ("/api/", "api"),
        ("/api/x", "api"),
        ("/api?x=/api/v2", "api"),
        ("/apix", "bare"),
        ("/API", "bare"),
        ("/api/v2", "v2"),
        ("/api/v2?x", "v2"),
        ("/api/v2/x", "v2"),
        ("/api/v20", "api"),
        ("//api", "bare"),
    ] {
        assert_eq!(client.get("a.test", path).text(), format!("{site} GET {path}"));
    }
}

#[test]
fn a_host_with_paths_only_does_not_fall_to_the_star() {
    let (path, star) = (Origin::named("path"), Origin::named("star"));
    let carom = Carom::serving(format!("\"a.test/only\" = {}\n\"*\" = {}\n", path.port(), star.port())).start();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/only/x").status(), 200);
    assert_eq!(client.get("a.test", "/else").error(), Some("no-route"));
    assert_eq!(client.get("other.test", "/else").text(), "star GET /else");
}

#[test]
fn a_redirect_keeps_the_path_and_needs_no_backend() {
    let carom = Carom::serving(
        "[\"a.test\"]\nredirect = \"https://new.test\"\n\n[\"b.test\"]\nredirect = \"https://[::1]:8443\"\n",
    )
    .start();
    let mut client = carom.client();
    let response = client.get("a.test", "/x?y=1");
    assert!((300..400).contains(&response.status()), "{}", response.start);
    assert_eq!(response.field("location"), Some("https://new.test/x?y=1"));
    let response = client.get("b.test", "/x");
    assert_eq!(response.field("location"), Some("https://[::1]:8443/x"));
    let head = client.ask(request("HEAD /x", "a.test", &[]));
    assert_eq!(head.field("location"), Some("https://new.test/x"));
    assert_eq!(client.get("a.test", "/again").field("location"), Some("https://new.test/again"));
}

#[test]
fn a_fixed_answer_is_given_as_written() {
    let carom = Carom::serving("[\"a.test\"]\nrespond = { status = 410, body = \"gone\" }\n").start();
    let mut client = carom.client();
    let response = client.get("a.test", "/x");
    assert_eq!((response.status(), response.text().as_str()), (410, "gone"));
    let head = client.ask(request("HEAD /x", "a.test", &[]));
    assert_eq!((head.status(), head.field("content-length")), (410, Some("4")));
    // A body that nobody reads is not the next request.
    client.send(request("POST /x", "a.test", &["Content-Length: 5"]) + "GET /");
    assert_eq!(client.response().status(), 410);
    assert_eq!(client.get("a.test", "/").status(), 410);
}

#[test]
fn other_names_of_a_site_are_that_site() {
    let shop = Origin::named("shop");
    let carom =
        Carom::serving(format!("[\"shop.test\"]\nto = {}\nalso = [\"www.shop.test\", \"*.shop.test\"]\n", shop.port()))
            .start();
    let mut client = carom.client();
    for host in ["shop.test", "www.shop.test", "x.y.shop.test"] {
        assert_eq!(client.get(host, "/").text(), "shop GET /", "{host}");
    }
}

/// How often each name came.
fn tally(names: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    names.into_iter().fold(BTreeMap::new(), |mut counts, name| {
        *counts.entry(name).or_default() += 1;
        counts
    })
}

#[test]
fn two_instances_take_exact_turns_whatever_the_worker() {
    let (one, two) = (Origin::named("one"), Origin::named("two"));
    let carom = Carom::serving(format!("\"a.test\" = [{}, {}]\n", one.port(), two.port())).workers(2).start();
    // One request at a time, each on a connection of its own: the kernel spreads them over the workers.
    let answers: Vec<_> = (0..40).map(|_| carom.client().get("a.test", "/").text()).collect();
    for pair in answers.chunks(2) {
        assert_ne!(pair[0], pair[1], "{answers:?}");
    }
    // And on one connection.
    let mut client = carom.client();
    let answers: Vec<_> = (0..10).map(|_| client.get("a.test", "/").text()).collect();
    for pair in answers.chunks(2) {
        assert_ne!(pair[0], pair[1], "{answers:?}");
    }
}

#[test]
fn an_instance_gets_its_weight_of_the_turns() {
    let (heavy, light) = (Origin::named("heavy"), Origin::named("light"));
    let carom =
        Carom::serving(format!("[\"a.test\"]\nto = [{{ to = {}, weight = 3 }}, {}]\n", heavy.port(), light.port()))
            .start();
    let mut client = carom.client();
    let counts = tally((0..40).map(|_| client.get("a.test", "/").text()));
    assert_eq!(counts, BTreeMap::from([("heavy GET /".to_owned(), 30), ("light GET /".to_owned(), 10)]));
}

#[test]
fn a_backup_serves_only_when_nobody_else_can() {
    let (main, backup) = (Origin::named("main"), Origin::named("backup"));
    let dead = DeadPort::new();
    let routes = |port: u16| format!("[\"a.test\"]\nto = [{port}, {{ to = {}, backup = true }}]\n", backup.port());
    let carom = Carom::serving(routes(main.port())).start();
    let mut client = carom.client();
    for _ in 0..6 {
        assert_eq!(client.get("a.test", "/").text(), "main GET /");
    }
    backup.assert_untouched();
    carom.reroute(&routes(dead.port()));
    for _ in 0..6 {
        assert_eq!(client.get("a.test", "/").text(), "backup GET /");
    }
}

#[test]
fn a_busy_instance_gets_less_under_least_connections() {
    let hanging = Origin::new(|conn| {
        if conn.request().is_some() {
            conn.wait_end();
        }
    });
    let free = Origin::named("free");
    let carom = Carom::serving(format!(
        "[\"a.test\"]\nto = [{}, {}]\nbalance = \"least-connections\"\n",
        hanging.port(),
        free.port()
    ))
    .start();
    // Takes one of the two turns; at most the second request is the one that hangs.
    let mut held = Vec::new();
    while hanging.requests().is_empty() {
        assert!(held.len() < 2, "both instances are idle, and neither request went to the first");
        let mut client = carom.client();
        client.send(request("GET /held", "a.test", &[]));
        carom_or_hang(&hanging, &free, held.len() + 1);
        held.push(client);
    }
    let mut client = carom.client();
    for _ in 0..10 {
        assert_eq!(client.get("a.test", "/").text(), "free GET /");
    }
}

#[test]
fn a_hashed_key_finds_its_instance_again_and_others_only_when_it_is_gone() {
    let origins: Vec<Origin> = ["a", "b", "c"].map(Origin::named).into();
    let ports: Vec<String> = origins.iter().map(|origin| origin.port().to_string()).collect();
    let routes = |ports: &[String]| {
        let to = ports.join(", ");
        format!(
            "[\"field.test\"]\nto = [{to}]\nbalance = {{ hash = \"header:X-User\" }}\n\
             [\"cookie.test\"]\nto = [{to}]\nbalance = {{ hash = \"cookie:uid\" }}\n\
             [\"client.test\"]\nto = [{to}]\nbalance = \"hash\"\n"
        )
    };
    let carom = Carom::serving(routes(&ports)).start();
    let asked = |host: &str, field: String| {
        let mut client = carom.client();
        client.send(request("GET /", host, &[&field]));
        client.response().text()
    };
    let users = || (0..30).map(|user| asked("field.test", format!("X-User: {user}"))).collect::<Vec<_>>();
    let before = users();
    for origin in ["a", "b", "c"] {
        assert!(before.iter().any(|text| text.starts_with(origin)), "nobody of thirty at {origin}: {before:?}");
    }
    assert_eq!(users(), before);
    let cookies: Vec<_> = (0..30).map(|user| asked("cookie.test", format!("Cookie: x=y; uid={user}"))).collect();
    assert_eq!(cookies, before, "the same key is at the same instance, wherever it comes from");
    let same = asked("client.test", "X-A: b".into());
    assert!((0..5).all(|user| asked("client.test", format!("X-User: {user}")) == same));
    // One goes: its users are spread, and nobody else moves.
    carom.reroute(&routes(&ports[..2]));
    for (before, after) in before.iter().zip(users()) {
        assert!(before.starts_with('c') || *before == after, "{before} → {after}");
    }
}

#[test]
fn of_two_at_random_the_one_that_hangs_gets_no_more() {
    let hanging = Origin::new(|conn| {
        if conn.request().is_some() {
            conn.wait_end();
        }
    });
    let free = Origin::named("free");
    let carom =
        Carom::serving(format!("[\"a.test\"]\nto = [{}, {}]\nbalance = \"random-two\"\n", hanging.port(), free.port()))
            .start();
    let mut held = Vec::new();
    while hanging.requests().is_empty() {
        let mut client = carom.client();
        client.send(request("GET /held", "a.test", &[]));
        carom_or_hang(&hanging, &free, held.len() + 1);
        held.push(client);
    }
    let mut client = carom.client();
    for _ in 0..20 {
        assert_eq!(client.get("a.test", "/").text(), "free GET /");
    }
}

/// Waits until one of the two has seen as many requests as were sent.
fn carom_or_hang(one: &Origin, two: &Origin, sent: usize) {
    crate::support::poll_until("a request at one of two backends", || one.lines().len() + two.lines().len() == sent);
}

#[test]
fn a_unix_socket_is_a_target_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let unix = Origin::unix(&path, |conn| conn.serve("unix"));
    let carom = Carom::serving(format!("\"a.test\" = \"unix:{}\"\n", path.display())).start();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/1").text(), "unix GET /1");
    assert_eq!(client.get("a.test", "/2").text(), "unix GET /2");
    assert_eq!(unix.lines(), ["GET /1", "GET /2"]);
}

#[test]
fn a_port_means_whichever_family_answers() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let origin = Origin::on(address, |conn| conn.serve("here"));
        for target in [format!("{}", origin.port()), format!("\"localhost:{}\"", origin.port())] {
            let carom = Carom::serving(format!("\"a.test\" = {target}\n")).start();
            for _ in 0..20 {
                // A connection each, so that it is dialled each time.
                let response = carom.client().ask(request("GET /", "a.test", &["Connection: close"]));
                assert_eq!(response.text(), "here GET /", "{target} at {address}");
            }
        }
    }
}

#[test]
fn an_http_url_is_a_target() {
    let a = Origin::named("a");
    let carom = Carom::serving(format!("\"a.test\" = \"http://127.0.0.1:{}\"\n", a.port())).start();
    assert_eq!(carom.client().get("a.test", "/x").text(), "a GET /x");
    assert_eq!(a.request().field("host"), Some("a.test"), "the host is the client's, not the target's");
}

#[test]
fn a_name_that_does_not_resolve_fails_its_own_route_only() {
    let a = Origin::named("a");
    let routes = format!("\"a.test\" = {}\n\"gone.test\" = \"nosuch.invalid:80\"\n", a.port());
    let carom = Carom::serving(&routes).start();
    let mut client = carom.client();
    let response = client.get("gone.test", "/");
    assert_eq!((response.status(), response.error()), (502, Some("backend-name")));
    assert_eq!(client.get("a.test", "/").status(), 200);
    carom.reroute(&format!("{routes}\"b.test\" = {}\n", a.port()));
    assert_eq!(client.get("b.test", "/").status(), 200);
}

#[test]
fn the_same_routes_serve_on_every_address() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).listen(&["127.0.0.1:0", "[::1]:0"]).start();
    for address in carom.addresses() {
        assert_eq!(crate::support::Client::connect(*address).get("a.test", "/").status(), 200, "{address}");
    }
}

#[test]
fn a_routes_json_of_plain_hosts_and_ports_is_taken_as_it_is() {
    let (a, rest) = (Origin::named("a"), Origin::named("rest"));
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("routes.json");
    std::fs::write(&json, format!("{{ \"a.test\": {}, \"\": {} }}", a.port(), rest.port())).unwrap();
    let (code, said) =
        crate::support::carom::run(std::process::Command::new(crate::support::carom::BINARY).arg("check").arg(&json));
    assert_eq!(code, Some(0), "{said}");
}
