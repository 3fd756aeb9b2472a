//! Sites that are paused: new requests wait, and go on at once when they may.

use std::time::{Duration, Instant};

use crate::support::load::Load;
use crate::support::{Carom, Origin, poll_until, reply, request, with_body};

/// Waits until so many requests wait for the first site.
#[track_caller]
fn wait_waiting(carom: &Carom, count: usize) {
    poll_until("that they wait", || carom.status()["sites"][0]["waiting"] == count);
}

#[track_caller]
fn verb(carom: &Carom, arguments: &[&str]) -> String {
    let (code, said) = carom.verb(arguments);
    assert_eq!(code, Some(0), "{said}");
    said
}

#[test]
fn requests_of_a_paused_site_wait_and_go_on_at_once_to_where_the_routes_send_them_by_then() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::to(a.port()).start();
    let said = verb(&carom, &["pause", "A.test", "--wait", "60s"]);
    assert!(said.contains("a.test is paused: new requests wait 1m"), "{said}");
    let mut clients: Vec<_> = (0..3).map(|_| carom.client()).collect();
    for client in &mut clients[..2] {
        client.send(request("GET /", "a.test", &[]));
    }
    clients[2].send(with_body("POST /", "a.test", "a body"));
    wait_waiting(&carom, 3);
    // A save leaves it paused, and is what many a pause is for.
    carom.reroute(&format!("\"a.test\" = {}\n", b.port()));
    assert_eq!(carom.status()["sites"][0]["paused"]["wait_seconds"], 60.0);
    assert!(a.requests().is_empty() && b.requests().is_empty());
    let (_, shown) = carom.verb(&["status"]);
    assert!(shown.contains("PAUSED: requests wait 1m") && shown.contains("3 waiting"), "{shown}");
    let said = verb(&carom, &["resume", "a.test"]);
    assert!(said.contains("; 3 waiting"), "{said}");
    for (client, want) in clients.iter_mut().zip(["b GET /", "b GET /", "b POST /"]) {
        assert_eq!(client.response().text(), want);
    }
    assert!(carom.status()["sites"][0]["paused"].is_null());
    assert!(verb(&carom, &["resume", "a.test"]).contains("was not paused"));
}

#[test]
fn a_site_is_paused_and_resumed_under_load_and_no_request_fails() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::serving(format!("\"a.test\" = [{}, {}]\n", a.port(), b.port())).workers(2).start();
    let load = Load::on(&carom, 4);
    for _ in 0..10 {
        load.run(20);
        verb(&carom, &["pause", "a.test"]);
        wait_waiting(&carom, 4);
        let before = load.answered();
        assert_eq!(carom.client().get("nobody.test", "/").error(), Some("no-route"));
        assert_eq!(load.answered(), before);
        verb(&carom, &["resume", "a.test"]);
    }
    load.run(20);
    assert_eq!(load.end().failed(None), 0);
}

#[test]
fn who_has_waited_in_vain_gets_503_and_the_operators_words() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    verb(&carom, &["pause", "a.test", "--wait", "200ms", "--message", "Back at <9> & well."]);
    let begun = Instant::now();
    let mut client = carom.client();
    let answer = client.get("a.test", "/");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!((answer.status(), answer.error()), (503, Some("paused")));
    assert_eq!(answer.text(), "503 Service Unavailable: Back at <9> & well. (paused)\n");
    assert!(answer.field("retry-after").is_some());
    let page = client.ask(request("GET /", "a.test", &["Accept: text/html"])).text();
    assert!(page.contains("Back at &lt;9&gt; &amp; well.</p>") && page.contains("http-equiv=\"refresh\""), "{page}");
    assert_eq!(carom.logged_path("/")["reason"], "paused");
    // At once, and in our own words, where that is wanted.
    verb(&carom, &["pause", "a.test", "--wait", "0s"]);
    assert!(client.get("a.test", "/").text().contains("this site is paused"));
    a.assert_untouched();
    for (arguments, code, why) in [
        (&["pause", "a.test", "--message", "two\nlines"][..], 1, "one line"),
        (&["pause", "a.test", "--wait", "3days"], 1, "to a day"),
        (&["pause", "b.test"], 1, "no site b.test; there is a.test"),
        (&["pause", "a.test", "--wait", "soon"], 2, "soon"),
    ] {
        let (got, said) = carom.verb(arguments);
        assert!(got == Some(code) && said.contains(why), "{got:?} {said}");
    }
}

#[test]
fn what_is_under_way_goes_on_and_who_goes_leaves_the_queue() {
    let a = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            if request.has("upgrade") {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n");
                return conn.echo();
            }
            conn.send(reply("200 OK", &[], "a"));
        }
    });
    let carom = Carom::to(a.port()).config("[limits]\nwaiting = 2").start();
    let mut tunnel = carom.client();
    tunnel.send(request("GET /chat", "a.test", &["Connection: Upgrade", "Upgrade: chat"]));
    assert_eq!(tunnel.response_head().status(), 101);
    verb(&carom, &["pause", "a.test", "--wait", "60s"]);
    tunnel.send("still here");
    tunnel.expect("still here");
    let mut gone = carom.client();
    gone.send(request("GET /", "a.test", &[]));
    let mut waits = carom.client();
    waits.send(request("GET /", "a.test", &[]));
    wait_waiting(&carom, 2);
    assert_eq!(carom.client().get("a.test", "/").error(), Some("queue-full"));
    gone.reset();
    wait_waiting(&carom, 1);
    verb(&carom, &["resume", "a.test"]);
    assert_eq!(waits.response().text(), "a");
}
