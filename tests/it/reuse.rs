//! Backend connections that are used again: never a false error, never a request sent twice that may not be, never an
//! answer to somebody else's question. And requests of one client that come before their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Carom, End, Gate, Origin, poll_until, reply, request, with_body};

#[test]
fn a_backend_connection_is_used_again_by_the_next_client() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    for round in 0..10 {
        assert_eq!(carom.client().get("a.test", &format!("/{round}")).text(), format!("a GET /{round}"));
    }
    assert_eq!(a.connections(), 1);
}

/// Answers the first request of a connection, and ends it when the test says so.
fn closes_when_told(reset: bool) -> (Origin, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let told = Arc::clone(&gate);
    let a = Origin::new(move |conn| {
        if conn.index > 0 {
            return conn.serve("again");
        }
        if let Some(request) = conn.request() {
            conn.answer("first", &request);
        }
        told.wait();
        if reset {
            conn.reset();
        }
    });
    (a, gate)
}

#[test]
fn a_connection_that_ended_while_it_was_idle_costs_no_request() {
    for reset in [false, true] {
        for line in ["GET /2", "PUT /2", "DELETE /2", "POST /2"] {
            let (a, gate) = closes_when_told(reset);
            let carom = Carom::to(a.port()).start();
            let mut client = carom.client();
            assert_eq!(client.get("a.test", "/1").text(), "first GET /1");
            gate.open();
            a.wait_over(0);
            let response = client.ask(with_body(line, "a.test", "x"));
            assert_eq!((response.status(), response.text()), (200, format!("again {line}")), "reset: {reset}");
            assert_eq!(a.lines().len(), 2);
        }
    }
}

#[test]
fn a_connection_that_dies_at_the_moment_of_reuse_costs_no_idempotent_request() {
    // Each connection answers once, and ends on the next request's first byte, having read it or not.
    let dying = Arc::new(AtomicUsize::new(0));
    let died = Arc::clone(&dying);
    let a = Origin::new(move |conn| {
        if let Some(request) = conn.request() {
            conn.answer("a", &request);
        }
        if conn.some().is_some() {
            died.fetch_add(1, Ordering::SeqCst);
            if conn.index % 2 == 0 {
                conn.reset();
            }
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for round in 0..300 {
        let line = ["GET", "HEAD", "PUT", "DELETE"][round % 4];
        let response = client.ask(with_body(&format!("{line} /{round}"), "a.test", "hello"));
        assert_eq!(response.status(), 200, "{line} in round {round}: {:?}", response.error());
    }
    // What was sent again was sent whole.
    for request in a.requests().iter().filter(|request| request.whole) {
        assert_eq!(request.text(), "hello", "{}", request.start);
    }
    assert!(dying.load(Ordering::SeqCst) > 50, "no connection was used again");
}

#[test]
fn a_backend_that_closes_right_behind_its_answer_gives_no_error() {
    // Says nothing about closing, and closes: the end and the next request cross each other.
    let a = Origin::new(|conn| {
        if let Some(request) = conn.request() {
            conn.answer("a", &request);
            if conn.index % 2 == 0 {
                conn.reset();
            }
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for round in 0..300 {
        let response = client.get("a.test", &format!("/{round}"));
        assert_eq!(response.text(), format!("a GET /{round}"), "{:?}", response.error());
    }
}

#[test]
fn a_post_that_may_have_arrived_is_never_sent_twice() {
    for reset in [false, true] {
        let a = Origin::new(move |conn| {
            if let Some(request) = conn.request() {
                conn.answer("a", &request);
            }
            // Takes the second one whole and goes away without a word.
            conn.request();
            if reset {
                conn.reset();
            }
        });
        let b = Origin::named("b");
        let carom = Carom::serving(format!("\"a.test\" = [{}, {}]\n", a.port(), b.port())).start();
        let mut posts = 0;
        let mut client = carom.client();
        while a.connections() == 0 || b.connections() == 0 {
            client.get("a.test", "/warm");
        }
        for _ in 0..2 {
            let response = client.ask(with_body("POST /once", "a.test", "hello"));
            match response.status() {
                200 => assert_eq!(response.text(), "b POST /once"),
                _ => assert_eq!((response.status(), response.error()), (502, Some("backend-closed-idle"))),
            }
            posts += 1;
        }
        let count = |origin: &Origin| origin.lines().iter().filter(|line| *line == "POST /once").count();
        assert_eq!(count(&a) + count(&b), posts, "reset: {reset}");
        assert_eq!((count(&a), count(&b)), (1, 1));
    }
}

#[test]
fn a_get_is_tried_again_once_and_no_more() {
    let a = Origin::new(|conn| {
        if conn.index == 0 {
            let request = conn.request().unwrap();
            conn.answer("a", &request);
        }
        conn.request();
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/1").status(), 200);
    let response = client.get("a.test", "/2");
    assert_eq!((response.status(), response.error()), (502, Some("backend-closed")));
    assert_eq!(a.lines(), ["GET /1", "GET /2", "GET /2"]);
}

#[test]
fn a_fresh_connection_that_dies_is_an_error_at_once() {
    let a = Origin::new(|conn| {
        conn.request();
    });
    let carom = Carom::to(a.port()).start();
    let response = carom.client().get("a.test", "/");
    assert_eq!((response.status(), response.error()), (502, Some("backend-closed")));
    assert_eq!(a.lines(), ["GET /"]);
}

#[test]
fn pipelined_requests_are_answered_in_order_and_one_at_a_time() {
    let busy = Arc::new(AtomicUsize::new(0));
    let site = |name: &'static str| {
        let busy = Arc::clone(&busy);
        Origin::new(move |conn| {
            while let Some(request) = conn.request() {
                assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "two requests of one connection at once");
                if request.target().contains("slow") {
                    conn.pause(100);
                }
                busy.fetch_sub(1, Ordering::SeqCst);
                conn.answer(name, &request);
            }
        })
    };
    let (a, b, c) = (site("a"), site("b"), site("c"));
    let carom =
        Carom::serving(format!("\"a.test\" = [{}, {}]\n\"c.test\" = {}\n", a.port(), b.port(), c.port())).start();
    let mut client = carom.client();
    client.send(
        request("GET /0", "a.test", &[])
            + &with_body("POST /1-slow", "a.test", "hello")
            + &request("GET /2", "a.test", &[])
            + &request("GET /3-slow", "c.test", &[])
            + &request("GET /4", "nobody.test", &[])
            + &request("GET /5", "a.test", &["Connection: close"])
            + &request("GET /6", "a.test", &[]),
    );
    for (index, method) in ["GET", "POST", "GET", "GET"].into_iter().enumerate() {
        let text = client.response_to(method).text();
        assert!(text.contains(&format!("{method} /{index}")), "answer {index} is {text:?}");
    }
    assert_eq!(client.response().status(), 404);
    assert!(client.response().text().ends_with("GET /5"));
    client.expect_end();
    let all = [a.lines(), b.lines(), c.lines()].concat();
    assert!(!all.iter().any(|line| line == "GET /6"), "what stands behind a last request is served");
}

#[test]
fn a_hundred_pipelined_requests_are_answered() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let all: String = (0..100).map(|n| request(&format!("GET /{n}"), "a.test", &[])).collect();
    client.send(all);
    for n in 0..100 {
        assert_eq!(client.response().text(), format!("a GET /{n}"));
    }
}

#[test]
fn surplus_bytes_behind_a_response_end_the_backend_connection() {
    let evil = reply("200 OK", &["X-Evil: 1"], "evil");
    let a = Origin::new(move |conn| {
        while let Some(request) = conn.request() {
            match request.target() {
                "/evil" => conn.send(reply("200 OK", &[], "good") + &evil),
                _ => conn.send(reply("200 OK", &[], "good")),
            };
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for _ in 0..5 {
        assert_eq!(client.get("a.test", "/evil").text(), "good");
        let next = client.get("a.test", "/next");
        assert_eq!((next.text().as_str(), next.has("x-evil")), ("good", false));
    }
    a.wait_end(0);
}

#[test]
fn bytes_that_come_while_a_connection_is_idle_are_nobodys_answer() {
    let sent = Arc::new(Gate::default());
    let told = Arc::clone(&sent);
    let a = Origin::new(move |conn| {
        if let Some(request) = conn.request() {
            conn.answer("a", &request);
        }
        if conn.index == 0 {
            told.wait();
            conn.send(reply("200 OK", &[], "evil"));
        }
        conn.serve("a");
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    assert_eq!(client.get("a.test", "/1").text(), "a GET /1");
    sent.open();
    a.wait_end(0);
    assert_eq!(client.get("a.test", "/2").text(), "a GET /2");
    assert_eq!(carom.client().get("a.test", "/3").text(), "a GET /3");
}

#[test]
fn idle_backend_connections_are_given_up_in_the_end() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).config("[timeouts]\nbackend_idle = \"300ms\"").start();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    a.wait_end(0);
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
}

#[test]
fn a_client_does_not_notice_that_the_backend_closes_between_its_requests() {
    let a = Origin::new(|conn| {
        if let Some(request) = conn.request() {
            conn.answer("a", &request);
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    for round in 0..5 {
        assert_eq!(client.get("a.test", "/").status(), 200);
        a.wait_over(round);
    }
}

#[test]
fn a_connection_is_not_used_for_as_long_as_the_backend_says_that_it_keeps_it() {
    let says = |fields: &'static [&'static str]| {
        Origin::new(move |conn| {
            while conn.request().is_some() {
                conn.send(reply("200 OK", fields, ""));
            }
        })
    };
    let (short, long) = (says(&["Keep-Alive: max=100, Timeout=1"]), says(&["Keep-Alive: max=100, timeouts=1"]));
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = {}\n", short.port(), long.port())).start();
    let mut client = carom.client();
    for host in ["a.test", "b.test"] {
        assert_eq!(client.get(host, "/").status(), 200);
    }
    assert_eq!(short.wait_end(0), End::Fin, "it is closed by us, before the backend does");
    client.get("b.test", "/");
    assert_eq!((short.connections(), long.connections()), (1, 1));
}

#[test]
fn how_long_a_backend_keeps_its_connections_is_learned_from_when_it_closes_them() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send(reply("200 OK", &[], ""));
        conn.pause(700);
    });
    let carom = Carom::to(a.port()).workers(1).start();
    let mut client = carom.client();
    let mut round = 0;
    // Three closes at one age: on a machine that is too busy to tell the time, some are at another.
    poll_until("that a connection is not trusted for as long as it stands", || {
        round += 1;
        client.get("a.test", "/");
        client.pause(1000);
        client.get("a.test", "/");
        client.pause(500);
        let late = format!("/late-{round}");
        assert_eq!(client.get("a.test", &late).status(), 200);
        client.pause(1000);
        // One that is trusted is asked in vain, and then another.
        carom.logged_path(&late)["tries"] == 1
    });
    assert!(round > 1, "nobody can have learned it so soon");
}

#[test]
fn an_empty_line_behind_a_body_does_not_shorten_the_idle_time() {
    let a = Origin::named("a");
    let config = "[timeouts]\nhead = \"300ms\"\nidle = \"20s\"";
    let carom = Carom::to(a.port()).config(config).start();
    let mut client = carom.client();
    // Old clients send one that no length counts (RFC 9112 section 2.2).
    client.send("POST /1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi\r\n");
    assert_eq!(client.response_to("POST").text(), "a POST /1");
    client.expect_silence(800);
    assert_eq!(client.get("a.test", "/2").text(), "a GET /2");
}
