//! Good files and what they come to; bad files and what is said of them.

use super::*;
use crate::config::diff::describe;
use crate::http::host::Host;
use crate::table::https::{OwnFiles, Plain};

fn parse_next(text: &str, previous: Option<&Table>) -> Table {
    parse(Path::new("routes.toml"), text.as_bytes(), &[], previous).unwrap_or_else(|report| panic!("{report}"))
}

fn table(text: &str) -> Table {
    parse_next(text, None)
}

fn refused(name: &str, text: &str) -> String {
    let listeners = ["[::]:80".parse().unwrap()];
    parse(Path::new(name), text.as_bytes(), &listeners, None).expect_err(text).to_string()
}

/// Each route as `line name: what it does`.
fn shown(table: &Table) -> Vec<String> {
    let route = |route: &Arc<Route>| format!("{} {}: {}", route.line, route.name, describe(&route.action));
    table.routes().iter().map(route).collect()
}

#[test]
fn no_key_is_listed_twice() {
    for keys in [ROUTE.known, instances::TARGET.known] {
        let mut once = keys.to_vec();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), keys.len(), "{keys:?}");
    }
}

#[test]
fn the_whole_grammar() {
    let text = r#"
"beep.example.com" = 8001
"boop.example.com" = [8002, 8003]
"*.apps.example.com" = "10.0.0.7:9000"
"beep.example.com/api/" = 8010
'bücher.example' = "http://books.internal"
local = "unix:/run/app.sock"
"" = 0x1F40

["shop.example.com"]
to = [8011, { to = "10.0.0.8:8011", weight = 2 }, { to = 8013, backup = true }]
also = ["www.shop.example.com", "*.shop.example.com/x/"]
balance = "least-connections"

[old]
redirect = "https://new.example.com"
[older]
redirect = { to = "HTTP://Bücher.example:8080/x?y", status = 301 }
[gone]
respond = { status = 410, body = "gone", content_type = "text/html" }
"#;
    let table = table(text);
    assert_eq!(
        shown(&table),
        [
            "2 beep.example.com: 8001",
            "3 boop.example.com: 8002, 8003",
            "4 *.apps.example.com: 10.0.0.7:9000",
            "5 beep.example.com/api/: 8010",
            "6 bücher.example: books.internal:80",
            "7 local: unix:/run/app.sock",
            "8 : 8000",
            "10 shop.example.com: 8011, 10.0.0.8:8011 (weight 2), 8013 (backup) by least-connections",
            "15 old: redirect 308 https://new.example.com",
            "17 older: redirect 301 http://xn--bcher-kva.example:8080/x?y",
            "19 gone: respond 410 \"gone\" as text/html",
        ]
    );
    for (host, path, name) in [
        ("www.shop.example.com", "/", "shop.example.com"),
        ("a.b.shop.example.com", "/x", "shop.example.com"),
        ("xn--bcher-kva.example", "/", "bücher.example"),
        ("nobody.test", "/", ""),
    ] {
        let host = Host::parse(host.as_bytes()).unwrap();
        assert_eq!(table.find(Some(&host), path.as_bytes()).map(|route| &*route.name), Some(name));
    }
}

#[test]
fn a_bouncy_file_is_taken_as_it_is() {
    let text =
        "{\n  \"beep.example.com\" : 8000,\n  \"boop.example.com\" : [ 8001, \"10.0.0.1:8002\" ],\n  \"\" : 5000\n}\n";
    let want = ["2 beep.example.com: 8000", "3 boop.example.com: 8001, 10.0.0.1:8002", "4 : 5000"];
    assert_eq!(shown(&table(text)), want, "by its first byte");
    let by_name = parse(Path::new("routes.json"), text.as_bytes(), &[], None).unwrap();
    assert_eq!(shown(&by_name), want);
    assert_eq!(shown(&table("{\"a\": {\"to\": [{\"to\": 1, \"weight\": 3}]}}")), ["1 a: 1 (weight 3)"]);
    assert_eq!(shown(&table("\u{feff}a = 1")), ["1 a: 1"], "with a byte order mark");
}

#[test]
fn a_quoted_host_may_go_on_with_dots() {
    let text = "\"a.test\".to = 1\n\"a.test\".also = [\"b.test\"]\n'c.test' . respond.status = 404\n";
    assert_eq!(shown(&table(text)), ["1 a.test: 1", "3 c.test: respond 404"]);
}

#[test]
fn errors_as_they_are_printed() {
    for (text, want) in [
        (
            "\"a.test\" = 8001\n\"b.test\" = 70000\n",
            "error: a port is a number from 1 to 65535
 --> routes.toml:2:12
  |
2 | \"b.test\" = 70000
  |            ^^^^^",
        ),
        (
            "\"a.test\" = \"app.internal\"\n",
            "error: a target needs a port
 --> routes.toml:1:12
  |
1 | \"a.test\" = \"app.internal\"
  |            ^^^^^^^^^^^^^^
  |
  = help: such as \"app.internal:8001\"",
        ),
        (
            "[\"a.test\"]\nto = 8001\n[\"b.test\"]\nto = 1\nalso = [\"c.test\", \"A.test.\"]\n",
            "error: two routes for a.test
 --> routes.toml:5:19
  |
5 | also = [\"c.test\", \"A.test.\"]
  |                   ^^^^^^^^^ again
  |
 ::: routes.toml:1:2
  |
1 | [\"a.test\"]
  |  -------- first here
  |
  = help: put all targets of a host into one route, as [8001, 8002]",
        ),
        (
            "[\"a.test\"]\nto = 8001\nredirct = \"x\"\n",
            "error: a route has no key `redirct`
 --> routes.toml:3:1
  |
3 | redirct = \"x\"
  | ^^^^^^^
  |
  = help: did you mean `redirect`?",
        ),
        (
            "beep.example.com = 8001\n",
            "error: a host with dots is written in quotes
 --> routes.toml:1:1
  |
1 | beep.example.com = 8001
  | ^^^^^^^^^^^^^^^^ TOML reads this as a table in a table
  |
  = help: \"beep.example.com\"",
        ),
        (
            "\"a.test\" = 80\n",
            "error: 80 is a port that carom itself listens on
 --> routes.toml:1:12
  |
1 | \"a.test\" = 80
  |            ^^ requests would go round in a circle
  |
  = help: name the port that the application listens on",
        ),
        (
            "# nothing yet\n",
            "error: the file has no route
--> routes.toml
 = help: to serve nothing on purpose, say so: \"*\" = { respond = { status = 404 } }",
        ),
        (
            "\"a.test\" = 1\n\"b.test\" = [8001, 8002\n\"c.test\" = 1\n",
            "error: missing comma between array elements, expected `,`
 --> routes.toml:3:1
  |
3 | \"c.test\" = 1
  | ^",
        ),
    ] {
        assert_eq!(refused("routes.toml", text), want, "{text}");
    }
}

#[test]
fn every_error_has_its_place_and_says_what_would_be_right() {
    for (text, position, what, help) in [
        ("a = 1\na = 2", "2:1", "second time", "first here"),
        ("a = 1\nA = 2", "2:1", "two routes for a", "first here"),
        ("\"*\" = 1\n\"\" = 2", "2:1", "two routes for *", ""),
        ("a = 1\n\"a/\" = 2", "2:1", "two routes for a", ""),
        ("\"a/x\" = 1\n\"a/x/\" = 2", "2:1", "two routes for a/x", ""),
        ("\"bücher.example\" = 1\n\"xn--bcher-kva.example\" = 2", "2:1", "two routes for xn--bcher-kva.example", ""),
        ("a = { to = 1, also = [\"a\"] }", "1:23", "two routes for a", "first here"),
        ("a = { to = 1, also = [\"b\", \"c\", \"B\"] }", "1:33", "two routes for b", "first here"),
        ("\"a.test:80\" = 1", "1:1", "a key has no port", "did you mean \"a.test\"?"),
        ("\"http://a.test\" = 1", "1:1", "without `http://`", "\"a.test\""),
        ("\"a..test\" = 1", "1:1", "empty label", ""),
        ("\"a.test\" = { to = 1, also = [\"x y\"] }", "1:30", "not a host", ""),
        ("\"a.test\" = { to = 1, also = [7] }", "1:30", "expected a host, found a number", "also = ["),
        ("a = true", "1:5", "expected a target, found a boolean", ""),
        ("a = 1.5", "1:5", "expected a target, found a float", ""),
        ("a = [1, [2]]", "1:9", "expected a target, found an array", ""),
        ("a = []", "1:5", "without a target", "[8001, 8002]"),
        ("a = {}", "1:1", "needs one of", "to = 8001"),
        ("a = { also = [\"b\"] }", "1:1", "needs one of", ""),
        ("a = { to = 1, respond = { status = 404 } }", "1:15", "`to` and `respond` in one route", "exactly one"),
        ("a = { respond = { status = 404 }, balance = \"round-robin\" }", "1:35", "for routes with `to`", ""),
        ("a = { to = 1, balance = \"least-conn\" }", "1:25", "no way to choose", "round-robin"),
        ("a = { to = 1, send_proxy = true }", "1:28", "found a boolean", "\"v1\" is a line of text"),
        ("a = { to = 1, send_proxy = \"v3\" }", "1:28", "no version \"v3\"", "\"v2\" a binary block"),
        ("a = { to = [{ to = 1, send_proxy = 2 }] }", "1:36", "found a number", ""),
        ("a = { redirect = \"https://b\", send_proxy = \"v1\" }", "1:31", "for routes with `to`", ""),
        ("a = { to = 1, passthrough = 2 }", "1:15", "`to` and `passthrough` in one route", "exactly one"),
        ("a = { passthrough = [] }", "1:21", "without a target", ""),
        ("a = { passthrough = \"b\" }", "1:21", "needs a port", ""),
        ("a = { passthrough = \"https://b\" }", "1:21", "stays what it is", "passthrough = \"10.0.0.9:443\""),
        ("a = { passthrough = [1, \"h2c://b\"] }", "1:21", "stays what it is", ""),
        ("a = { passthrough = 1, ca = \"x\" }", "1:24", "for https:// targets", ""),
        ("a = { passthrough = 1, hsts = true }", "1:24", "`hsts` is for connections that end here", ""),
        ("a = { passthrough = 1, https = \"allow\" }", "1:24", "`https` is for connections that end here", ""),
        ("\"a/x\" = { passthrough = 1 }", "1:1", "has no path", "the bare host"),
        ("a = { passthrough = 1, also = [\"b/x\"] }", "1:32", "has no path", ""),
        ("a = { passthrough = 1 }\n\"a/x\" = 2", "2:1", "nobody sees a path", ""),
        (
            "a = { passthrough = 1, balance = { hash = \"cookie:a\" } }",
            "1:34",
            "nobody sees the cookie a",
            "hash = \"client\"",
        ),
        (
            "a = { to = 1, balance = \"leastconn\" }",
            "1:25",
            "no way to choose",
            "here it is called \"least-connections\"",
        ),
        ("a = { to = 1, balance = \"first\" }", "1:25", "not yet: balance", "random-two"),
        ("a = { to = 1, balance = \"cookie\" }", "1:25", "no way to choose", "called \"sticky\""),
        ("a = { to = 1, balance = { sticky = \"a b\" } }", "1:36", "no name of a cookie", "sticky = \"NAME\""),
        ("a = { to = 1, balance = { sticky = { then = \"hash\" } } }", "1:45", "nothing yet", "random-two"),
        ("a = { to = 1, balance = { sticky = { max_age = 5 } } }", "1:48", "found a number", "\"5s\""),
        ("a = { to = 1, balance = { sticky = { same_site = \"any\" } } }", "1:50", "no SameSite", "\"lax\""),
        (
            "a = { to = 1, balance = { sticky = { same_site = \"none\", secure = false } } }",
            "1:67",
            "browsers drop",
            "take `secure` out",
        ),
        ("a = { to = 1, balance = { hash = \"client\", sticky = \"s\" } }", "1:44", "two ways to choose", ""),
        ("a = { passthrough = 1, balance = \"sticky\" }", "1:34", "nobody sees a cookie", "hash = \"client\""),
        ("a = { to = 1, balance = 5 }", "1:25", "found a number", "round-robin"),
        ("a = { to = 1, balance = { hash = \"user\" } }", "1:34", "nothing to hash is called \"user\"", "header:NAME"),
        ("a = { to = 1, balance = { hash = \"header:\" } }", "1:34", "no name of a field", "cookie:NAME"),
        ("a = { to = 1, balance = { hash = \"cookie:a b\" } }", "1:34", "no name of a field", ""),
        ("a = { to = 1, balance = { hashes = \"client\" } }", "1:27", "no key `hashes`", "`hash`"),
        ("a = { to = 1, health = true }", "1:24", "expected a check, found a boolean", "\"tcp\", a path"),
        ("a = { to = 1, health = \"up\" }", "1:24", "a path begins with /", ""),
        ("a = { to = 1, health = { path = \"/a b\" } }", "1:33", "neither spaces nor #", ""),
        ("a = { to = 1, health = { interval = \"5s\" } }", "1:24", "needs `path`", "\"tcp\""),
        ("a = { to = 1, health = { path = \"/\", interval = \"1ms\" } }", "1:49", "at least 100ms", ""),
        ("a = { to = 1, health = { path = \"/\", interval = \"1s\", timeout = \"2s\" } }", "1:65", "longer than", ""),
        ("a = { to = 1, health = { path = \"/\", rise = 0 } }", "1:45", "1 to 1000", ""),
        ("a = { to = 1, health = { path = \"/\", status = [99] } }", "1:48", "200 to 599", "status = 204"),
        ("a = { to = 1, health = { path = \"/\", host = \"a b\" } }", "1:45", "no host name has", ""),
        ("a = { to = 1, health = { path = \"/\", method = \"G T\" } }", "1:47", "a method is a token", ""),
        ("a = { to = 1, health = { pth = \"/\" } }", "1:26", "no key `pth`", "`path`"),
        ("a = { to = \"h2c://b\", health = \"/up\" }", "1:32", "speak HTTP/1", "\"tcp\""),
        ("a = { to = [{ to = \"h2c://b\", health = \"/up\" }] }", "1:40", "speak HTTP/1", "\"tcp\""),
        ("a = { passthrough = 1, health = \"/up\" }", "1:33", "speak HTTP/1", "\"tcp\""),
        ("a = { redirect = \"https://b\", health = \"tcp\" }", "1:31", "for routes with `to`", ""),
        ("a = { to = 1, retries = 1 }", "1:25", "2 to 10", "retries = 2"),
        ("a = { to = 1, retries = { on = [\"503\", \"resett\"] } }", "1:40", "\"resett\"", "`reset`"),
        ("a = { to = 1, retries = { on = [200] } }", "1:33", "200 is no status", "400 to 599"),
        ("a = { to = 1, retries = { on = [] } }", "1:32", "nothing to try", ""),
        ("a = { to = 1, retries = { methods = [\"POST\"] } }", "1:38", "POST is never tried again", "9.2.2"),
        ("a = { to = 1, retries = { methods = [\"get\"] } }", "1:38", "get is never", "capitals"),
        ("a = { to = 1, retries = { budget = 20 } }", "1:36", "expected a share", "\"20%\""),
        ("a = { to = 1, retries = { budget = \"0%\" } }", "1:36", "\"1%\" to \"100%\"", ""),
        ("a = { passthrough = 1, retries = 2 }", "1:24", "none is tried again", "take it out"),
        ("a = { to = 1, wait = 2 }", "1:22", "found a number", ""),
        ("a = { passthrough = 1, wait = \"2s\" }", "1:24", "don't wait", ""),
        ("a = { redirect = \"https://b\", wait = \"2s\" }", "1:31", "for routes with `to`", ""),
        ("a = { to = [{ to = 1, tls = true }] }", "1:23", "no key `tls`", "`ca`, `server_name`"),
        ("a = { to = 1, ca = \"x\" }", "1:15", "`ca` is for https:// targets", "https://"),
        ("a = { to = [{ to = 1, insecure = true }, \"https://b\"] }", "1:23", "`insecure` is for https:// targets", ""),
        (
            "a = { to = \"https://b\", ca = \"none.pem\" }",
            "1:30",
            "none.pem can't be read",
            "folder of the routes file",
        ),
        ("a = { to = \"https://b\", ca = \"src\" }", "1:30", "not a file", ""),
        (
            "a = { to = \"https://b\", ca = \"Cargo.toml\" }",
            "1:30",
            "no certificate in Cargo.toml",
            "BEGIN CERTIFICATE",
        ),
        ("a = { to = \"https://b\", ca = 1 }", "1:30", "expected the path of a PEM file", "ca = \"file.pem\""),
        ("a = { to = \"https://b\", server_name = \"b:1\" }", "1:39", "neither a host's name", "without a port"),
        ("a = { to = \"https://b\", client_key = \"k\" }", "1:25", "without `client_cert`", ""),
        ("a = { to = \"https://b\", insecure = 1 }", "1:36", "found a number", ""),
        ("a = { to = \"https://b\", ca = \"x\", insecure = true }", "1:25", "contradict", ""),
        ("a = { to = 1, tls = true }", "1:21", "found a boolean", "tls = { cert = "),
        ("a = { to = 1, tls = { key = \"k\" } }", "1:21", "needs `cert`", ""),
        ("a = { to = 1, tls = { cert = \"\" } }", "1:30", "not a path", ""),
        ("a = { to = 1, https = true }", "1:23", "found a boolean", "`redirect`, `allow` and `only`"),
        ("a = { to = 1, https = \"redirct\" }", "1:23", "\"redirct\"", "did you mean `redirect`?"),
        ("a = { to = 1, hsts = 180 }", "1:22", "found a number", "\"180d\""),
        ("a = { to = 1, hsts = \"1y\" }", "1:22", "in days", ""),
        ("a = { to = 1, hsts = {} }", "1:22", "needs `max_age`", ""),
        ("a = { to = 1, hsts = { max_age = \"180d\", preload = true } }", "1:22", "for a year or more", ""),
        ("a = { to = 1, max_connections = 0 }", "1:33", "1 to 1000000", ""),
        ("a = { to = [{ to = 1, max_connections = \"5\" }] }", "1:41", "found a string", ""),
        ("a = { redirect = \"https://b.test\", max_connections = 2 }", "1:36", "is for routes with `to`", ""),
        ("a = { to = 1, headers = 2 }", "1:15", "not yet: `headers`", ""),
        ("a = { to = 1, weight = 2 }", "1:15", "no key `weight`", "belongs to one target"),
        ("a = { to = [{ to = 1, weight = 0 }] }", "1:32", "1 to 256", ""),
        ("a = { to = [{ to = 1, weight = 257 }] }", "1:32", "1 to 256", ""),
        ("a = { to = [{ to = 1, backup = 1 }] }", "1:32", "true or false", ""),
        ("a = { to = [{ weight = 1 }] }", "1:13", "needs `to`", ""),
        ("a = { to = \"h2c://b\", http2 = false }", "1:31", "h2c:// is HTTP/2", "http://"),
        ("a = { to = 1, http2 = true, send_proxy = \"v1\" }", "1:29", "carries many", "X-Forwarded-For"),
        ("a = \"http://b/v1\"", "1:5", "no path", "\"http://b\""),
        ("a = \"localhost:80\"", "1:5", "listens on", ""),
        ("a = \"127.0.0.1:80\"", "1:5", "listens on", ""),
        ("a = { redirect = \"new.example.com\" }", "1:18", "begins with http", "\"https://new.example.com\""),
        ("a = { redirect = \"https://\" }", "1:18", "needs a host", ""),
        ("a = { redirect = \"https://b/x y\" }", "1:18", "no spaces", "%20"),
        ("a = { redirect = \"https://b/\\r\\nX: y\" }", "1:18", "no spaces", "%0D"),
        ("a = { redirect = { status = 301 } }", "1:18", "needs an address", ""),
        ("a = { redirect = { to = \"https://b\", status = 300 } }", "1:47", "301, 302, 303, 307 or 308", ""),
        ("a = { respond = \"gone\" }", "1:17", "expected a table", "status = 410"),
        ("a = { respond = { body = \"x\" } }", "1:17", "needs a status", ""),
        ("a = { respond = { status = 199 } }", "1:28", "200 to 599", ""),
        ("a = { respond = { status = 204, body = \"x\" } }", "1:17", "has no body", ""),
        ("a = { respond = { status = 200, content_type = \"a/b\\r\\n\" } }", "1:48", "not a media type", ""),
        ("[a]\nto = 1\n\"b.test\" = 2", "3:1", "no key `b.test`", "above the first [header]"),
        ("*.a.test = 1", "1:1", "unquoted key", "\"*.a.test\""),
        ("a = ", "1:", "", ""),
        ("[beep.example.com]\nto = 1", "1:2", "in quotes", "\"beep.example.com\""),
        ("{\"a\": 1, \"a\": 2}", "1:10", "two routes for a", "first here"),
        ("{\"a\": 1,}", "1:8", "not JSON", ""),
        ("{\"a\": null}", "1:7", "found null", ""),
        ("{\"a\": 1 // x\n}", "1:9", "not JSON", ""),
        ("{}", "", "has no route", "status = 404"),
    ] {
        let report = refused("routes.toml", text);
        assert!(
            report.contains(&format!("routes.toml{}{position}", if position.is_empty() { "" } else { ":" })),
            "{text}:\n{report}"
        );
        assert!(report.contains(what) && report.contains(help), "{text}:\n{report}");
    }
    assert!(refused("routes.json", "[1]").contains("expected an object of hosts, found an array"));
    assert!(refused("routes.json", "").contains("has no route"));
}

#[test]
fn all_errors_of_a_file_are_said_at_once() {
    let text = "\"a.test\" = 0\n\"b.test\" = \"x\"\n\"c.test\" = { to = 1, x = 2, redirect = \"y\" }\n\"A.test\" = 3\n\"d.test\" = ]\n";
    let report = parse(Path::new("r"), text.as_bytes(), &[], None).unwrap_err();
    assert_eq!(report.count(), 7, "{report}");
    let lines: Vec<String> = beep_and_boop().lines().map(str::to_owned).collect();
    assert_eq!(lines.iter().filter(|line| line.starts_with("error: a host with dots")).count(), 3);
}

/// Three unquoted hosts, two of which TOML puts into one table.
fn beep_and_boop() -> String {
    refused("routes.toml", "beep.example.com = 8001\nboop.example.com = 8002\nbeep.example.org = 8003\n")
}

#[test]
fn too_much_is_refused() {
    let many = (1..=65).map(|port| port.to_string()).collect::<Vec<_>>().join(", ");
    assert!(refused("r", &format!("a = [{many}]")).contains("at most 64 targets, not 65"));
    let bytes = vec![b'#'; crate::config::LARGEST_FILE + 1];
    assert!(parse(Path::new("r"), &bytes, &[], None).unwrap_err().to_string().contains("larger than 64 MiB"));
    let report = parse(Path::new("r"), b"a = 1\nb = \"\xff\"", &[], None).unwrap_err();
    assert!(report.to_string().contains("not UTF-8"), "{report}");
    assert_eq!(report.position(), Some((2, 6)));
}

#[test]
fn endless_nesting_is_refused() {
    let deep = 50_000;
    for text in [
        format!("a = {}", "[".repeat(deep)),
        format!("a = {}1{}", "[".repeat(deep), "]".repeat(deep)),
        format!("a = {}", "{a=".repeat(deep)),
        format!("a{} = 1", ".a".repeat(deep)),
        format!("[a{}]\nto = 1", ".a".repeat(deep)),
        format!("{{\"a\": {}", "[".repeat(deep)),
        format!("{{\"a\": {}1{}}}", "[".repeat(deep), "]".repeat(deep)),
        "{\"a\":".repeat(deep),
    ] {
        assert!(parse(Path::new("r"), text.as_bytes(), &[], None).is_err());
    }
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let report = load(&dir.path().join("routes.toml"), &[]).unwrap_err().to_string();
    assert!(report.contains("can't be read") && report.contains("create it"), "{report}");
    let report = load(dir.path(), &[]).unwrap_err().to_string();
    assert!(report.contains("not a file"), "{report}");
}

#[test]
fn unchanged_backends_and_sites_live_on() {
    let site = |table: &Table, index: usize| match &table.routes()[index].action {
        Action::Forward(site) => Arc::clone(site),
        other => panic!("{other:?}"),
    };
    let backend =
        |table: &Table, route: usize, index: usize| Arc::clone(&site(table, route).instances()[index].backend);
    let old = table("a = [1, 2]\nb = [2, 3]\nc = 4\n");
    assert!(Arc::ptr_eq(&backend(&old, 0, 1), &backend(&old, 1, 0)), "one address is one backend");
    let new = parse_next("x = 9\nA = [\"1\", \"localhost:2\"]\nb = [{ to = 2, weight = 2 }, 3]\nd = 4\n", Some(&old));
    assert!(Arc::ptr_eq(&site(&old, 0), &site(&new, 1)), "the same site keeps its turn");
    assert!(!Arc::ptr_eq(&site(&old, 1), &site(&new, 2)), "another weight is another site");
    assert!(Arc::ptr_eq(&backend(&old, 1, 0), &backend(&new, 2, 0)), "of the same backends");
    assert!(Arc::ptr_eq(&backend(&old, 2, 0), &backend(&new, 3, 0)), "whatever host they serve");
    let proxied =
        parse_next("a = { to = [1, { to = 2, send_proxy = \"v1\" }], send_proxy = \"v2\" }\nb = 2\n", Some(&old));
    assert!(!Arc::ptr_eq(&backend(&old, 0, 0), &backend(&proxied, 0, 0)), "what is spoken differs");
    assert!(!Arc::ptr_eq(&backend(&proxied, 0, 1), &backend(&proxied, 1, 0)), "though the address does not");
    assert_eq!(shown(&proxied), ["1 a: 1 (send_proxy v2), 2 (send_proxy v1)", "2 b: 2"]);
}

#[test]
fn twenty_thousand_hosts() {
    let text: String = (0..20_000).map(|i| format!("\"host-{i}.example.com\" = {}\n", 1000 + i % 60_000)).collect();
    let first = table(&text);
    let second = parse_next(&text, Some(&first));
    assert_eq!(second.routes().len(), 20_000);
    assert_eq!(second.routes()[19_999].line, 20_000);
    assert!(crate::config::diff::Diff::between(&first, &second).is_empty());
}

#[test]
fn no_bytes_make_it_panic() {
    // A generator of our own: the same bytes on every run.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % u64::try_from(below).unwrap()).unwrap()
    };
    let pieces: &[&str] = &[
        "\"a.test\"",
        "a",
        "b.c",
        "*",
        "\"\"",
        "=",
        " = ",
        "1",
        "8001",
        "-1",
        "1.5",
        "\"x:1\"",
        "\"unix:/x\"",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "\n",
        "to",
        "also",
        "balance",
        "redirect",
        "respond",
        "status",
        "weight",
        "\"https://ü\"",
        "'",
        "\"",
        "\"\"\"",
        "#",
        "\\",
        "\u{feff}",
        "ü",
        "\r\n",
        "\0",
        "null",
        "true",
        "{ to = ",
        "[[",
        "]]",
        "\"*.b/x\"",
    ];
    for _ in 0..4_000 {
        let mut bytes = Vec::new();
        for _ in 0..next(16) {
            match next(20) {
                0 => bytes.push(u8::try_from(next(256)).unwrap()),
                _ => bytes.extend_from_slice(pieces[next(pieces.len())].as_bytes()),
            }
        }
        for name in ["r.toml", "r.json"] {
            if let Err(report) = parse(Path::new(name), &bytes, &["[::]:80".parse().unwrap()], None) {
                assert!(report.count() > 0);
                let _ = (report.render(true), report.render(false));
            }
        }
    }
}

#[test]
fn what_a_line_says_about_tls_arrives() {
    let https = |said: &str| {
        let text = format!("a = {{ to = 1, {said} }}");
        let table = parse(Path::new("conf/routes.toml"), text.as_bytes(), &[], None).unwrap_or_else(|e| panic!("{e}"));
        table.routes()[0].https.clone()
    };
    for (said, want) in [("redirect", Plain::Redirected), ("allow", Plain::Allowed), ("only", Plain::Refused)] {
        assert_eq!(https(&format!("https = \"{said}\"")).plain, Some(want));
    }
    for (said, want) in [
        ("\"180d\"", "max-age=15552000"),
        ("\"0d\"", "max-age=0"),
        ("{ max_age = \"1d\" }", "max-age=86400"),
        (
            "{ max_age = \"365d\", include_subdomains = true, preload = true }",
            "max-age=31536000; includeSubDomains; preload",
        ),
    ] {
        assert_eq!(https(&format!("hsts = {said}")).hsts.as_deref(), Some(want), "{said}");
    }
    let own = https("tls = { cert = \"a.pem\", key = \"/etc/a.key\" }").own.unwrap();
    assert_eq!(own, OwnFiles { cert: "conf/a.pem".into(), key: "/etc/a.key".into() });
    let own = https("tls = { cert = \"a.pem\" }").own.unwrap();
    assert_eq!(own.cert, own.key);
}
