//! "Why 502" in one line: what `carom explain --last` says of requests that have failed.

use crate::support::origin::DeadPort;
use crate::support::{Carom, Origin, poll_until, reply, request};
use serde_json::Value;

/// The last failures, as JSON: those that are asked for.
fn last(carom: &Carom, what: &str) -> Vec<Value> {
    let (_, text) = carom.verb(&["explain", "--last", what, "-n", "100", "--json"]);
    let answer: Value = serde_json::from_str(&text).expect(&text);
    answer["failures"].as_array().unwrap().clone()
}

/// The last one, once it is known: it is told after the client has its answer.
fn wait_last(carom: &Carom, what: &str) -> Value {
    poll_until("a failure", || !last(carom, what).is_empty());
    last(carom, what).remove(0)
}

#[test]
fn a_502_says_which_backend_why_and_what_cures_it() {
    let dead = DeadPort::new();
    let carom = Carom::serving(format!("\"*.test\" = {}\n", dead.port())).start();
    carom.client().get("Shop.test", "/cart?x=1");
    wait_last(&carom, "502");
    let (code, text) = carom.verb(&["explain", "--last", "502"]);
    assert_eq!(code, Some(0), "{text}");
    let first = text.lines().next().unwrap();
    let want = format!("502 (backend-refused)  GET shop.test/cart?x=1 → {}", dead.port());
    assert!(first.ends_with(&want), "{text}");
    for words in [
        "nothing listens at",
        "start it",
        "*.test; the instance is now not known to be down",
        "1 try",
        "127.0.0.1:",
        "id ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn what_is_redacted_in_the_log_is_not_kept_with_failures_either() {
    let dead = DeadPort::new();
    let carom = Carom::to(dead.port()).log("access = \"off\"\nredact = [\"query\", \"client\"]").start();
    carom.client().get("a.test", "/cart?token=sesame");
    let failure = wait_last(&carom, "502");
    assert_eq!((failure["path"].as_str(), failure["client"].as_str()), (Some("/cart?[redacted]"), Some("127.0.0.0:0")));
    let (_, text) = carom.verb(&["explain", "--last", "502"]);
    assert!(text.contains("/cart?[redacted]") && !text.contains("sesame"), "{text}");
}

#[test]
fn every_kind_of_failure_is_known_with_its_request_also_without_an_access_log() {
    let (dead, whole) = (DeadPort::new(), Origin::replying(reply("500 Oops", &[], "x")));
    let cut = Origin::new(|conn| {
        conn.request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    let closing = Origin::new(|conn| {
        conn.request();
    });
    let tunnel = Origin::new(|conn| {
        conn.request();
        conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
        conn.some();
        conn.reset();
    });
    let routes = format!(
        "\"dead.test\" = {}\n\"own.test\" = {}\n\"cut.test\" = {}\n\"closing.test\" = {}\n\"tunnel.test\" = {}\n",
        dead.port(),
        whole.port(),
        cut.port(),
        closing.port(),
        tunnel.port()
    );
    let folder = tempfile::tempdir().unwrap();
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\n[log]\naccess = \"off\"\n";
    std::fs::write(folder.path().join("own.toml"), text).unwrap();
    std::fs::write(folder.path().join("routes.toml"), routes).unwrap();
    let carom = Carom::in_folder(folder, &["serve", "--config", "own.toml", "--state", "state"]);
    let known = |what: &str, host: &str, status: u16, fault: &str| {
        let failure = wait_last(&carom, what);
        assert_eq!(failure["host"], host, "{failure}");
        assert_eq!((&failure["method"], &failure["path"]), (&"PUT".into(), &"/x?y".into()), "{failure}");
        assert_eq!((&failure["status"], &failure["fault"]), (&status.into(), &fault.into()), "{failure}");
        assert_eq!(failure["id"].as_str().map(str::len), Some(32), "{failure}");
    };
    for host in ["dead.test", "own.test", "cut.test", "closing.test", "nobody.test"] {
        let mut client = carom.client();
        client.send(request("PUT /x?y", host, &["Content-Length: 0", "Connection: close"]));
        client.drain();
    }
    known("backend-refused", "dead.test", 502, "backend");
    known("500", "own.test", 500, "backend");
    known("backend-closed-mid-body", "cut.test", 200, "backend");
    known("backend-closed", "closing.test", 502, "backend");
    known("no-route", "nobody.test", 404, "operator");
    let mut client = carom.client();
    client.send(request("PUT /x?y", "tunnel.test", &["Connection: upgrade", "Upgrade: x", "Content-Length: 0"]));
    assert_eq!(client.response_head().status(), 101);
    client.send("over");
    client.drain();
    known("backend-gone", "tunnel.test", 101, "backend");
    let mut bad = carom.client();
    bad.send("BAD\r\n\r\n");
    bad.drain();
    let failure = wait_last(&carom, "malformed-head");
    assert_eq!((&failure["method"], &failure["status"]), (&"".into(), &400.into()), "{failure}");
    // What goes well is none.
    let all = last(&carom, "");
    assert_eq!(all.len(), 7, "{all:#?}");
}

#[test]
fn a_flood_of_one_kind_hides_no_other() {
    let dead = DeadPort::new();
    let carom = Carom::serving(format!("\"a.test\" = {}\n", dead.port())).start();
    let mut client = carom.client();
    client.get("a.test", "/once");
    for index in 0..200 {
        client.get("nobody.test", &format!("/{index}"));
    }
    poll_until("the last one", || last(&carom, "404").first().is_some_and(|failure| failure["path"] == "/199"));
    assert_eq!(last(&carom, "404").len(), 20);
    assert_eq!(last(&carom, "502")[0]["path"], "/once");
}

#[test]
fn where_nothing_has_failed_that_is_said() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    carom.client().get("a.test", "/");
    let (code, text) = carom.verb(&["explain", "--last"]);
    assert!(code == Some(1) && text.contains("no request has failed"), "{text}");
    let (code, text) = carom.verb(&["explain", "--last", "backend-refuse"]);
    assert!(code == Some(1) && text.contains("neither a status nor a reason code"), "{text}");
}

#[test]
fn what_a_peer_has_sent_moves_no_cursor() {
    let carom = Carom::serving("\"a.test\" = 1\n").start();
    let mut client = carom.client();
    client.get("a.test", "/\u{9b}2J");
    wait_last(&carom, "502");
    let (_, text) = carom.verb(&["explain", "--last"]);
    assert!(text.contains("a.test/\u{fffd}2J"), "{text}");
}
