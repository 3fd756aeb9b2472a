//! Instances that keep failing: others are tried first, and who serves again is in turn again; and requests that wait while
//! there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::origin::DeadPort;
use crate::support::{Carom, Gate, Origin, poll_until, reply, request, with_body};
use rustix::process::Signal;

/// A backend that answers with its name, or closes without a word while it is told to.
fn switchable(name: &'static str) -> (Origin, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&broken);
    let origin = Origin::new(move |conn| {
        while conn.request().is_some() && !told.load(Ordering::SeqCst) {
            conn.send(reply("200 OK", &[], name));
        }
    });
    (origin, broken)
}

#[test]
fn an_instance_that_keeps_refusing_is_not_tried_first_any_more() {
    let dead = DeadPort::new();
    let alive = Origin::named("alive");
    let carom = Carom::serving(format!("\"a.test\" = [{}, {}]\n", dead.port(), alive.port())).start();
    let mark = carom.mark();
    let mut client = carom.client();
    for index in 0..20 {
        assert_eq!(client.get("a.test", &format!("/{index}")).status(), 200);
    }
    carom.logged_path("/19");
    let tries: Vec<_> = carom.log().iter().filter_map(|entry| entry["tries"].as_u64()).collect();
    // Three find out; the while that it is aside may end and begin again before the last.
    let twice = tries.iter().filter(|&&tries| tries == 2).count();
    assert!((3..=6).contains(&twice) && tries.len() == 20, "{tries:?}");
    let said = carom.stderr(mark, "a word about the backend", |text| text.contains("keeps failing"));
    assert!(said.contains("backend-refused") && said.contains(&dead.port().to_string()), "{said}");
}

#[test]
fn an_instance_that_answers_again_is_in_turn_again() {
    let (flaky, broken) = switchable("flaky");
    let steady = Origin::named("steady");
    let carom = Carom::serving(format!("\"a.test\" = [{}, {}]\n", flaky.port(), steady.port())).start();
    let get = || carom.client().get("a.test", "/");
    broken.store(true, Ordering::SeqCst);
    let mark = carom.mark();
    let mut failed = 0;
    poll_until("that it is put aside", || {
        failed += usize::from(get().status() == 502);
        carom.said(mark).iter().any(|line| line.contains("keeps failing"))
    });
    assert_eq!(failed, 3, "a request that has reached it is not sent again, and nobody else is hurt");
    broken.store(false, Ordering::SeqCst);
    poll_until("that it serves again", || {
        get();
        carom.said(mark).iter().any(|line| line.contains("serves again"))
    });
    let texts: Vec<_> = (0..6).map(|_| get().text()).collect();
    assert_eq!(texts.iter().filter(|text| text.starts_with("flaky")).count(), 3, "{texts:?}");
}

#[test]
fn the_last_instance_is_always_tried() {
    let (only, broken) = switchable("only");
    let carom = Carom::serving(format!(
        "\"a.test\" = {}\n\"b.test\" = [{}, {}]\n",
        only.port(),
        only.port(),
        DeadPort::new().port()
    ))
    .start();
    broken.store(true, Ordering::SeqCst);
    for _ in 0..8 {
        assert_eq!(carom.client().get("a.test", "/").error(), Some("backend-closed"));
    }
    broken.store(false, Ordering::SeqCst);
    // At once, however long it would have been aside.
    assert_eq!(carom.client().get("a.test", "/").text(), "only");
}

#[test]
fn one_request_tries_out_an_instance_for_all_when_its_time_aside_is_over() {
    let (broken, gate) = (Arc::new(AtomicBool::new(true)), Arc::new(Gate::default()));
    let (told, shut) = (Arc::clone(&broken), Arc::clone(&gate));
    let flaky = Origin::new(move |conn| {
        while let Some(message) = conn.request() {
            if told.load(Ordering::SeqCst) {
                return;
            }
            shut.wait();
            conn.answer("flaky", &message);
        }
    });
    let steady = Origin::named("steady");
    let carom = Carom::serving(format!("\"a.test\" = [{}, {}]\n", flaky.port(), steady.port())).start();
    let mark = carom.mark();
    poll_until("that it is put aside", || {
        carom.client().get("a.test", "/");
        carom.said(mark).iter().any(|line| line.contains("keeps failing"))
    });
    broken.store(false, Ordering::SeqCst);
    let before = flaky.requests().len();
    let tried_out = || flaky.requests().len() - before;
    let mut clients = Vec::new();
    let mut ask = || {
        let mut client = carom.client();
        client.send(request("GET /", "a.test", &[]));
        clients.push(client);
    };
    poll_until("that one tries it out", || {
        ask();
        tried_out() > 0
    });
    // In turn, every second of these would go there. One more does for each second that the first takes.
    let begun = Instant::now();
    for answered in steady.requests().len()..steady.requests().len() + 20 {
        ask();
        poll_until("that somebody has it", || steady.requests().len() + tried_out() > answered);
    }
    let most = 3 + usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!((1..=most).contains(&tried_out()), "{} of twenty, at most {most}", tried_out());
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    let told = tried_out();
    poll_until("that it is in turn again", || {
        carom.client().get("a.test", "/");
        tried_out() > told + 5
    });
}

#[test]
fn a_backup_takes_over_from_an_instance_that_is_aside_without_a_second_try() {
    let dead = DeadPort::new();
    let backup = Origin::named("backup");
    let carom =
        Carom::serving(format!("\"a.test\" = [{}, {{ to = {}, backup = true }}]\n", dead.port(), backup.port()))
            .start();
    let mut client = carom.client();
    for index in 0..6 {
        assert_eq!(client.get("a.test", &format!("/{index}")).text(), format!("backup GET /{index}"));
    }
    carom.logged_path("/5");
    assert!(carom.log().iter().any(|entry| entry["tries"] == 1), "{:?}", carom.log());
}

#[test]
fn what_is_known_of_an_instance_outlives_a_reload() {
    let (flaky, broken) = switchable("flaky");
    let steady = Origin::named("steady");
    let routes = |more: &str| format!("\"a.test\" = [{}, {}]\n{more}", flaky.port(), steady.port());
    let carom = Carom::serving(routes("")).start();
    broken.store(true, Ordering::SeqCst);
    let mark = carom.mark();
    poll_until("that it is put aside", || {
        carom.client().get("a.test", "/");
        carom.said(mark).iter().any(|line| line.contains("keeps failing"))
    });
    carom.reroute(&routes("\"b.test\" = 1\n"));
    let failed = (0..10).filter(|_| carom.client().get("a.test", "/").status() == 502).count();
    // One each time that a while is over, which grows; three, if it had been forgotten.
    assert!(failed < 3, "{failed} of 10 requests found out anew");
}

/// A unix socket where nobody listens, until somebody does.
fn absent() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    (folder, path)
}

fn waiting(path: &std::path::Path, wait: &str) -> String {
    format!("[\"a.test\"]\nto = \"unix:{}\"\nwait = \"{wait}\"\n", path.display())
}

#[test]
fn requests_wait_for_an_instance_that_is_being_started_and_arrive_once() {
    let (_folder, path) = absent();
    let carom = Carom::serving(waiting(&path, "60s")).start();
    let asks = [
        request("GET /get", "a.test", &[]),
        with_body("POST /post", "a.test", "a body"),
        request("DELETE /delete", "a.test", &[]),
    ];
    let mut clients: Vec<_> = asks
        .iter()
        .map(|bytes| {
            let mut client = carom.client();
            client.send(bytes);
            client
        })
        .collect();
    clients[0].expect_silence(300);
    let origin = Origin::unix(&path, |conn| conn.serve("back"));
    for (client, method) in clients.iter_mut().zip(["GET", "POST", "DELETE"]) {
        let response = client.response_to(method);
        assert_eq!((response.status(), response.text()), (200, format!("back {method} /{}", method.to_lowercase())));
    }
    assert_eq!(origin.requests().len(), 3);
    assert!(carom.logged_path("/post")["tries"].as_u64() > Some(1));
}

#[test]
fn who_has_waited_in_vain_is_told_when_to_come_again() {
    let (_folder, path) = absent();
    let carom = Carom::serving(waiting(&path, "300ms")).start();
    let mut client = carom.client();
    let response = client.ask(request("GET /x", "a.test", &["Accept: text/html"]));
    assert_eq!((response.status(), response.error()), (503, Some("no-backend")));
    assert_eq!(response.field("retry-after"), Some("5"));
    assert!(response.text().contains("http-equiv=\"refresh\" content=\"5\""), "{}", response.text());
    let entry = carom.logged_path("/x");
    assert!(entry["total_ms"].as_f64() >= Some(300.0), "{entry}");
    // The connection goes on.
    assert_eq!(client.ask(request("GET /y", "a.test", &[])).error(), Some("no-backend"));
}

#[test]
fn no_more_wait_than_may() {
    let (_folder, path) = absent();
    let carom = Carom::serving(waiting(&path, "60s")).config("[limits]\nwaiting = 2").start();
    let waits: Vec<_> = (0..2)
        .map(|index| {
            let mut client = carom.client();
            client.send(request(&format!("GET /{index}"), "a.test", &[]));
            client.expect_silence(300);
            client
        })
        .collect();
    let response = carom.client().get("a.test", "/third");
    assert_eq!(
        (response.status(), response.error(), response.field("retry-after")),
        (503, Some("queue-full"), Some("5"))
    );
    // Who goes makes room, and is noticed to have gone.
    for client in waits {
        client.reset();
    }
    assert_eq!(carom.logged_path("/0")["reason"], "client-gone");
    assert_eq!(carom.logged_path("/1")["reason"], "client-gone");
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &[]));
    client.expect_silence(300);
}

#[test]
fn a_stop_does_not_wait_for_those_who_wait() {
    let (_folder, path) = absent();
    let carom = Carom::serving(waiting(&path, "60s")).config("[timeouts]\ndrain = \"300ms\"").start();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &[]));
    client.expect_silence(300);
    carom.signal(Signal::TERM);
    assert_eq!(client.response().error(), Some("draining"));
    poll_until("that it has ended", || carom.exit_code().is_some());
}
