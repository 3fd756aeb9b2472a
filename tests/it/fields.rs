//! Which fields are taken out of a request's head, which are put in, and that all others stay as they are.

use crate::support::{Carom, Client, Message, Origin, poll_until, reply, request};

/// Sends one request with these fields through a carom with this configuration; gives what the backend saw.
fn seen(config: &str, fields: &[&str]) -> Message {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config(config).start();
    let response = carom.client().ask(request("GET /x", "a.test", fields));
    assert_eq!(response.status(), 200, "{fields:?}");
    a.request()
}

const NONE: &str = "[forwarded]\nsend = \"none\"";
const TRUSTING: &str = "trust = [\"127.0.0.0/8\"]";

#[test]
fn a_head_is_forwarded_to_the_byte() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config(NONE).start();
    let head =
        b"GET /a%2Fb//c?x=%20 HTTP/1.1\r\nx-lOWER:1\r\nhOST:a.test\r\nX-R: 1\r\nX-Spaced: \t  a  b \t \r\nX-R: 2\r\n\
                 X-Empty:\r\nCookie: a=b; c=d\r\nAccept: text/html, */*;q=0.1\r\nX-U: caf\xc3\xa9 \xff\r\n\
                 X!#$%&'*+-.^`|~9: v\r\nAuthorization: Basic eDp5\r\nVia: 1.1 x\r\nX_Under_Score: v\r\n\r\n";
    assert_eq!(carom.client().ask(head).status(), 200);
    assert_eq!(a.request().raw.escape_ascii().to_string(), head.escape_ascii().to_string());
}

#[test]
fn what_is_put_in_changes_nothing_else() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let head =
        "GET /x HTTP/1.1\r\nx-one:  1 \r\nHost: a.test\r\nX-Two: 2\r\nConnection: keep-alive\r\nX-Three: 3\r\n\r\n";
    carom.client().ask(head);
    let raw = String::from_utf8(a.request().raw).unwrap();
    let kept: Vec<_> = raw.split_inclusive("\r\n").filter(|line| !line.starts_with("X-Forwarded-")).collect();
    assert_eq!(kept.concat(), head.replace("Connection: keep-alive\r\n", ""));
}

#[test]
fn what_is_for_one_hop_stays_on_it() {
    let request = seen(
        NONE,
        &[
            "Connection: close, X-Foo ,x-BAZ,,",
            "X-Foo: 1",
            "X-Bar: 2",
            "X-Baz: 3",
            "Keep-Alive: timeout=5",
            "Proxy-Connection: keep-alive",
            "TE: gzip",
        ],
    );
    for gone in ["connection", "x-foo", "x-baz", "keep-alive", "proxy-connection", "te"] {
        assert!(!request.has(gone), "{gone}: {:?}", request.fields);
    }
    assert_eq!(request.field("x-bar"), Some("2"));
}

#[test]
fn connection_can_not_take_away_what_the_message_depends_on() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let names = "close, X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Real-Ip, Host, Content-Length";
    let bytes = request("POST /", "a.test", &[&format!("Connection: {names}"), "Content-Length: 5"]) + "hello";
    assert_eq!(carom.client().ask(bytes).status(), 200);
    let seen = a.request();
    assert_eq!((seen.field("host"), seen.text().as_str()), (Some("a.test"), "hello"));
    assert_eq!(seen.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.field("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.field("x-forwarded-host"), Some("a.test"));
    let bytes = request("POST /", "a.test", &["Connection: Transfer-Encoding, close", "Transfer-Encoding: chunked"]);
    assert_eq!(carom.client().ask(bytes + "5\r\nhello\r\n0\r\n\r\n").status(), 200);
    assert_eq!(a.requests()[1].text(), "hello");
}

#[test]
fn a_name_that_only_spells_a_field_with_underscores_is_dropped() {
    let request = seen(
        "",
        &[
            "Content_Length: 5",
            "Transfer_Encoding: chunked",
            "X_Forwarded_For: 6.6.6.6",
            "X-Forwarded_For: 6.6.6.6",
            "X_FORWARDED_PROTO: https",
            "X_Forwarded-Host: evil.test",
            "X_Own_Field: kept",
        ],
    );
    let names: Vec<_> =
        request.fields.iter().map(|(name, _)| name.as_str()).filter(|name| name.contains('_')).collect();
    assert_eq!(names, ["X_Own_Field"]);
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
}

#[test]
fn a_backend_is_told_who_asks_and_for_what() {
    let request = seen("", &[]);
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("http"));
    assert_eq!(request.field("x-forwarded-host"), Some("a.test"));
    assert!(!request.has("forwarded"));
}

/// What a client may claim about itself.
const CLAIMS: [&str; 8] = [
    "X-Forwarded-For: 6.6.6.6",
    "X-Forwarded-For: 7.7.7.7",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: evil.test",
    "X-Forwarded-Port: 1",
    "X-Real-IP: 6.6.6.6",
    "Forwarded: for=6.6.6.6",
    "x-forwarded-prefix: /evil",
];

#[test]
fn what_a_client_says_about_itself_is_dropped() {
    for config in ["", NONE, "[forwarded]\nsend = \"forwarded\"", "[forwarded]\ntrust = [\"10.0.0.0/8\"]"] {
        let request = seen(config, &CLAIMS);
        let raw = String::from_utf8_lossy(&request.raw).into_owned();
        for claim in ["6.6.6.6", "7.7.7.7", "https", "evil"] {
            assert!(!raw.contains(claim), "{claim} in {raw} with {config:?}");
        }
    }
}

#[test]
fn a_trusted_peer_is_believed_and_added_to() {
    let request = seen(&format!("[forwarded]\n{TRUSTING}"), &CLAIMS);
    assert_eq!(request.field("x-forwarded-for"), Some("6.6.6.6, 7.7.7.7, 127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("https"));
    assert_eq!(request.field("x-forwarded-host"), Some("evil.test"));
}

#[test]
fn a_single_address_can_be_trusted() {
    let request = seen("[forwarded]\ntrust = [\"127.0.0.1\"]", &CLAIMS[..1]);
    assert_eq!(request.field("x-forwarded-for"), Some("6.6.6.6, 127.0.0.1"));
}

#[test]
fn the_standard_field_can_be_sent_instead_or_as_well() {
    let request = seen("[forwarded]\nsend = \"forwarded\"", &[]);
    assert_eq!(request.field("forwarded"), Some("for=127.0.0.1;proto=http;host=a.test"));
    assert!(!request.has("x-forwarded-for") && !request.has("x-forwarded-proto") && !request.has("x-forwarded-host"));
    let request = seen("[forwarded]\nsend = \"both\"", &[]);
    assert_eq!(request.field("forwarded"), Some("for=127.0.0.1;proto=http;host=a.test"));
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    let request = seen(NONE, &[]);
    assert!(!request.has("forwarded") && !request.has("x-forwarded-for") && !request.has("x-forwarded-host"));
}

#[test]
fn an_ipv6_client_is_quoted_in_forwarded_and_bare_in_x_forwarded_for() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[forwarded]\nsend = \"both\"").listen(&["[::1]:0"]).start();
    carom.client().ask(request("GET /", "a.test:8080", &[]));
    let request = a.request();
    assert_eq!(request.field("forwarded"), Some("for=\"[::1]\";proto=http;host=\"a.test:8080\""));
    assert_eq!(request.field("x-forwarded-for"), Some("::1"));
}

#[test]
fn an_ipv4_client_of_a_dual_stack_listener_is_an_ipv4_client() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).listen(&["[::]:0"]).start();
    let address = (std::net::Ipv4Addr::LOCALHOST, carom.address().port()).into();
    Client::connect(address).get("a.test", "/");
    assert_eq!(a.request().field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(Client::connect(address).get("b.test", "/").status(), 404);
    let last = || carom.verb(&["explain", "--last", "404"]).1;
    poll_until("that it is known", || last().contains("no-route"));
    assert!(last().contains("127.0.0.1:") && !last().contains("ffff"), "{}", last());
}

#[test]
fn a_broken_forwarded_of_a_trusted_peer_is_dropped_as_a_whole() {
    let config = format!("[forwarded]\nsend = \"forwarded\"\n{TRUSTING}");
    let ours = "for=127.0.0.1;proto=http;host=a.test";
    for good in ["for=1.1.1.1", "for=\"[2001:db8::1]:_p\";proto=https, for=x", "for=unknown", "for=\"unknown:_abc\""] {
        let request = seen(&config, &[&format!("Forwarded: {good}")]);
        assert_eq!(request.field("forwarded"), Some(format!("{good}, {ours}").as_str()));
    }
    for bad in ["for=\"1.1.1.1", "for=", "=x", "for", "for=[2001:db8::1]", "for=unknown:abc", "for=a b"] {
        let request = seen(&config, &[&format!("Forwarded: {bad}")]);
        assert_eq!(request.field("forwarded"), Some(ours), "{bad}");
    }
}

#[test]
fn trailers_are_asked_for_when_the_client_takes_them() {
    let request = seen(NONE, &["TE: gzip, trailers;q=0.5, trailers", "Connection: TE"]);
    assert_eq!(request.field("te"), Some("trailers"));
    assert_eq!(request.list("connection"), ["te"]);
    let request = seen(NONE, &["TE: gzip", "Connection: TE"]);
    assert!(!request.has("te") && !request.has("connection"));
}

#[test]
fn an_offer_of_http_2_is_not_passed_on() {
    for upgrade in ["h2c", "H2C", "websocket, h2c", "h2c, websocket"] {
        let request = seen(
            NONE,
            &[
                "Connection: Upgrade, HTTP2-Settings",
                &format!("Upgrade: {upgrade}"),
                "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
            ],
        );
        assert!(!request.has("upgrade") && !request.has("http2-settings") && !request.has("connection"), "{upgrade}");
    }
}

#[test]
fn an_upgrade_that_connection_does_not_name_is_none() {
    let request = seen(NONE, &["Upgrade: websocket"]);
    assert!(!request.has("connection") && !request.has("upgrade"));
}

#[test]
fn a_response_loses_what_is_for_one_hop_and_nothing_else() {
    let fields =
        ["Connection: keep-alive, X-Hop", "Keep-Alive: timeout=99", "X-Hop: 1", "X-End: 2", "Proxy-Connection: x"];
    let a = Origin::replying(reply("200 OK", &fields, "x"));
    let carom = Carom::to(a.port()).start();
    let response = carom.client().get("a.test", "/");
    for gone in ["connection", "keep-alive", "x-hop", "proxy-connection"] {
        assert!(!response.has(gone), "{gone}: {:?}", response.fields);
    }
    assert_eq!(response.field("x-end"), Some("2"));
}

#[test]
fn a_backends_wish_to_close_is_not_the_clients_affair() {
    let a = Origin::replying_once(reply("200 OK", &["Connection: close"], "x"));
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for _ in 0..3 {
        let response = client.get("a.test", "/");
        assert_eq!((response.text().as_str(), response.field("connection")), ("x", None));
    }
    assert_eq!(a.connections(), 3);
}

#[test]
fn a_clients_wish_to_close_is_not_the_backends_affair() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    for _ in 0..3 {
        let mut client = carom.client();
        let response = client.ask(request("GET /", "a.test", &["Connection: Close"]));
        assert_eq!(response.field("connection"), Some("close"));
        client.expect_end();
    }
    assert_eq!(a.connections(), 1, "a connection of its own for each client");
}

#[test]
fn a_request_keeps_the_version_of_this_hop() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send("GET /old HTTP/1.0\r\nHost: a.test\r\n\r\n");
    client.response();
    assert_eq!(a.request().start, "GET /old HTTP/1.1");
}

#[test]
fn an_answer_of_caroms_own_names_its_reason() {
    let carom = Carom::serving("\"a.test\" = 1\n").start();
    assert_eq!(carom.client().get("b.test", "/").error(), Some("no-route"));
    // A backend's own field of that name is not taken for ours, nor away.
    let a = Origin::replying(reply("502 Bad Gateway", &["Carom-Error: mine"], ""));
    let carom = Carom::to(a.port()).start();
    assert_eq!(carom.client().get("a.test", "/").field("carom-error"), Some("mine"));
}
