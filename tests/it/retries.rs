//! Requests that are tried again with another instance, and those that must not be.

use crate::support::{Carom, Origin, pattern, reply, request, with_body};

/// Answers every request with this status and its name.
fn answering(status: &'static str, name: &'static str) -> Origin {
    Origin::new(move |conn| {
        while conn.request().is_some() {
            conn.send(reply(status, &[], name));
        }
    })
}

/// Reads each request whole, and closes without a word.
fn closing() -> Origin {
    Origin::new(|conn| {
        conn.request();
    })
}

fn serving(bad: &Origin, good: &Origin, retries: &str) -> Carom {
    Carom::serving(format!("\"a.test\" = {{ to = [{}, {}], retries = {retries} }}\n", bad.port(), good.port())).start()
}

#[test]
fn a_get_that_meets_a_503_is_answered_by_another_instance_and_a_post_is_not_sent_twice() {
    let (bad, good) = (answering("503 Service Unavailable", "bad"), answering("200 OK", "good"));
    let carom = serving(&bad, &good, "{ on = [503] }");
    let mut client = carom.client();
    // In turn: the first of two goes to the bad one first.
    for path in ["/1", "/2", "/3", "/4"] {
        assert_eq!(client.get("a.test", path).text(), "good", "{path}");
    }
    assert_eq!(carom.logged_path("/1")["tries"], 2);
    let before = bad.requests().len();
    let posts: Vec<_> = (0..4).map(|_| client.ask(with_body("POST /p", "a.test", "x")).status()).collect();
    assert_eq!(posts.iter().filter(|&&status| status == 503).count(), 2, "{posts:?}");
    let arrived = bad.requests().len() - before + good.lines().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(arrived, 4, "each once");
}

#[test]
fn the_response_to_the_last_try_is_passed_on_as_it_is() {
    let (one, other) = (answering("503 Gone Fishing", "one"), answering("502 Gone Too", "other"));
    let carom = serving(&one, &other, "{ tries = 3, on = [502, \"503\"] }");
    let response = carom.client().get("a.test", "/");
    // The third begins again with the first.
    assert_eq!((response.status(), response.text().as_str()), (503, "one"));
    assert_eq!(response.error(), None, "it is the backend's own");
    assert_eq!((one.requests().len(), other.requests().len()), (2, 1));
    assert_eq!(carom.logged_path("/")["tries"], 3);
}

#[test]
fn a_status_that_is_not_named_is_passed_on() {
    let (bad, good) = (answering("500 Oops", "bad"), answering("200 OK", "good"));
    let carom = serving(&bad, &good, "{ on = [503] }");
    assert_eq!(carom.client().get("a.test", "/").status(), 500);
}

#[test]
fn a_connection_that_ends_before_a_response_is_a_reset_and_only_idempotent_requests_go_on() {
    let (bad, good) = (closing(), answering("200 OK", "good"));
    let carom = serving(&bad, &good, "2");
    // In turn: the first goes to the bad one.
    let post = carom.client().ask(with_body("POST /", "a.test", "body"));
    assert_eq!(post.error(), Some("backend-closed"));
    good.assert_untouched();
    for method in ["GET", "PUT", "GET", "DELETE"] {
        let response = carom.client().ask(with_body(&format!("{method} /"), "a.test", "body"));
        assert_eq!(response.text(), "good", "{method}");
    }
    assert_eq!(bad.requests().len(), 3, "the post, and every other of these");
}

#[test]
fn a_head_that_breaks_off_is_a_reset_too() {
    let bad = Origin::new(|conn| {
        if conn.request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nX-Half:");
        }
    });
    let good = answering("200 OK", "good");
    let carom = serving(&bad, &good, "2");
    assert_eq!(carom.client().get("a.test", "/").text(), "good");
    assert_eq!(bad.requests().len(), 1);
}

#[test]
fn a_response_that_does_not_come_in_time_is_tried_again_where_that_is_asked_for() {
    let silent = Origin::new(|conn| {
        conn.request();
        conn.some();
    });
    let good = answering("200 OK", "good");
    let routes =
        |on: &str| format!("\"a.test\" = {{ to = [{}, {}], retries = {{ on = {on} }} }}\n", silent.port(), good.port());
    let setup = Carom::serving(routes("[\"timeout\"]")).config("[timeouts]\nresponse_head = \"300ms\"\n");
    let carom = setup.start();
    assert_eq!(carom.client().get("a.test", "/").text(), "good");
    assert_eq!(silent.requests().len(), 1);
    carom.reroute(&routes("[\"reset\"]"));
    let texts: Vec<_> = (0..2).map(|_| carom.client().get("a.test", "/").status()).collect();
    assert!(texts.contains(&504), "{texts:?}");
}

#[test]
fn a_body_is_sent_again_whole_as_long_as_it_fits_into_what_is_kept() {
    // Hears the whole request first: what it was sent is known.
    let (bad, good) = (answering("503 Busy", "bad"), answering("200 OK", "good"));
    let routes = format!("\"a.test\" = {{ to = [{}, {}], retries = {{ on = [503] }} }}\n", bad.port(), good.port());
    let carom = Carom::serving(routes).config("[limits]\nreplay = \"64KiB\"\n").start();
    let mut client = carom.client();
    let body = pattern(50_000);
    let head = request("PUT /known", "a.test", &["Content-Length: 50000"]);
    client.send([head.as_bytes(), &body[..100]].concat());
    bad.wait("the head", |seen| seen.requests.iter().any(|(_, request)| request.target() == "/known").then_some(()));
    client.send(&body[100..]);
    assert_eq!(client.response().text(), "good");
    let heard = good.requests().pop().unwrap();
    assert!(heard.body == body, "as it was sent");

    // A turn for the good one, so that the next begins with the bad one again.
    client.get("a.test", "/turn");
    let mut chunked = request("PUT /chunked", "a.test", &["Transfer-Encoding: chunked"]).into_bytes();
    for part in body[..30_000].chunks(7_000) {
        chunked.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        chunked.extend_from_slice(part);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(client.ask(chunked).text(), "good");
    assert!(good.requests().pop().unwrap().body == body[..30_000]);
}

#[test]
fn a_body_that_has_outgrown_what_is_kept_is_not_sent_again() {
    let (bad, good) = (answering("503 Busy", "bad"), answering("200 OK", "good"));
    let routes = format!("\"a.test\" = {{ to = [{}, {}], retries = {{ on = [503] }} }}\n", bad.port(), good.port());
    let carom = Carom::serving(routes).config("[limits]\nreplay = \"8KiB\"\n").start();
    let head = request("PUT /large", "a.test", &["Content-Length: 200000"]);
    let response = carom.client().ask([head.as_bytes(), &pattern(200_000)].concat());
    assert_eq!((response.status(), response.text().as_str()), (503, "bad"));
    good.assert_untouched();
}

#[test]
fn second_tries_are_no_more_than_their_share() {
    let (one, other) = (answering("503 Busy", "one"), answering("503 Busy", "other"));
    let carom = serving(&one, &other, "{ on = [503], budget = \"10%\" }");
    let mut client = carom.client();
    for _ in 0..200 {
        assert_eq!(client.get("a.test", "/").status(), 503);
    }
    let again = one.requests().len() + other.requests().len() - 200;
    // Ten that are saved up, and one for each ten requests.
    assert!((28..=30).contains(&again), "{again} of 200");
}

#[test]
fn only_the_methods_that_are_named_are_tried_again() {
    let (bad, good) = (answering("503 Busy", "bad"), answering("200 OK", "good"));
    let carom = serving(&bad, &good, "{ on = [503], methods = [\"GET\"] }");
    let statuses = |line: &str| {
        let mut statuses = [0, 0].map(|_| carom.client().ask(request(line, "a.test", &[])).status());
        statuses.sort_unstable();
        statuses
    };
    assert_eq!(statuses("DELETE /"), [200, 503]);
    assert_eq!(statuses("GET /"), [200, 200]);
}

#[test]
fn an_upgrade_that_is_refused_by_one_instance_is_taken_by_another() {
    let bad = answering("503 Busy", "bad");
    let good = Origin::new(|conn| {
        if conn.request().is_some() {
            conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
            while let Some(bytes) = conn.some() {
                conn.send(bytes);
            }
        }
    });
    let carom = serving(&bad, &good, "{ on = [503] }");
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &["Connection: upgrade", "Upgrade: echo"]));
    assert_eq!(client.response_head().status(), 101);
    client.send("over");
    client.expect("over");
}

#[test]
fn a_client_is_told_once_to_go_on_also_when_the_body_that_it_sends_then_is_sent_twice() {
    let going_on = |answers: bool| {
        Origin::new(move |conn| {
            let Some(mut message) = conn.head() else { return };
            conn.send("HTTP/1.1 100 Continue\r\n\r\n");
            if conn.body(&mut message) && answers {
                conn.answer("good", &message);
            }
        })
    };
    let (bad, good) = (going_on(false), going_on(true));
    let carom = serving(&bad, &good, "2");
    let mut client = carom.client();
    client.send(request("PUT /x", "a.test", &["Content-Length: 4", "Expect: 100-continue"]));
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("body");
    assert_eq!(client.response().text(), "good PUT /x");
    assert_eq!(good.request().body, b"body");
    assert_eq!(carom.logged_path("/x")["tries"], 2);
}
