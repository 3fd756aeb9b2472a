//! Instances that are full, and requests that wait in line for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::http2::{self, Http2};
use crate::support::origin::DeadPort;
use crate::support::{Carom, Client, Gate, Origin, poll_until, request};

/// A backend that keeps each request until its path's gate is opened, and knows how many it had at once.
struct Slow {
    origin: Origin,
    gate: Arc<Gate>,
    most: Arc<AtomicUsize>,
}

impl Slow {
    /// Requests for `/held…` wait for the gate; others are answered after a moment.
    fn new(name: &'static str) -> Self {
        let (gate, now, most) = (Arc::new(Gate::default()), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let (shut, seen) = (Arc::clone(&gate), Arc::clone(&most));
        let origin = Origin::new(move |conn| {
            while let Some(message) = conn.request() {
                seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                match message.target().contains("/held") {
                    true => shut.wait(),
                    false => std::thread::sleep(Duration::from_millis(5)),
                }
                now.fetch_sub(1, Ordering::SeqCst);
                conn.answer(name, &message);
            }
        });
        Self { origin, gate, most }
    }

    /// Waits until it has a request for this path.
    #[track_caller]
    fn has(&self, path: &str) {
        self.origin
            .wait(path, |seen| seen.requests.iter().any(|(_, message)| message.target().contains(path)).then_some(()));
    }
}

/// A client that asks for a path and is not answered yet.
fn asking(carom: &Carom, path: &str) -> Client {
    let mut client = carom.client();
    client.send(request(&format!("GET {path}"), "a.test", &[]));
    client
}

fn routes(backends: &[&Origin], each: &str, more: &str) -> String {
    let targets: Vec<_> = backends.iter().map(|origin| format!("{{ to = {}, {each} }}", origin.port())).collect();
    format!("[\"a.test\"]\nto = [{}]\n{more}\n", targets.join(", "))
}

#[test]
fn an_instance_never_has_more_requests_than_it_may_over_all_workers() {
    let (one, two) = (Slow::new("one"), Slow::new("two"));
    let carom =
        Carom::serving(routes(&[&one.origin, &two.origin], "max_connections = 2", "wait = \"60s\"")).workers(2).start();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = carom.client();
                for index in 0..10 {
                    assert_eq!(client.get("a.test", &format!("/{index}")).status(), 200);
                }
            });
        }
    });
    let most = [&one, &two].map(|slow| slow.most.load(Ordering::SeqCst));
    assert_eq!(most, [2, 2], "as many at once as may be, and no more");
    assert_eq!(one.origin.requests().len() + two.origin.requests().len(), 160);
}

#[test]
fn who_waits_is_served_in_line_and_at_once_when_another_ends() {
    let slow = Slow::new("one");
    let carom = Carom::serving(routes(&[&slow.origin], "max_connections = 1", "wait = \"60s\"")).workers(2).start();
    let mut first = asking(&carom, "/held");
    slow.has("/held");
    let mut line = Vec::new();
    for index in 0..20 {
        line.push(asking(&carom, &format!("/{index}")));
        let stands = || carom.status()["sites"][0]["waiting"] == index + 1;
        poll_until("that it stands in line", stands);
    }
    slow.gate.open();
    assert_eq!(first.response().status(), 200);
    for (index, client) in line.iter_mut().enumerate() {
        assert_eq!(client.response().text(), format!("one GET /{index}"));
    }
    let paths: Vec<_> = slow.origin.lines().into_iter().skip(1).collect();
    let want: Vec<_> = (0..20).map(|index| format!("GET /{index}")).collect();
    assert_eq!(paths, want, "first come, first served");
    // Twenty looks at a tenth of a second each would have taken two.
    let total = carom.logged_path("/19")["total_ms"].as_f64().unwrap()
        - carom.logged_path("/held")["total_ms"].as_f64().unwrap();
    assert!(total < 1_500.0, "{total} ms for twenty of 5 ms");
}

#[test]
fn who_has_waited_in_vain_is_told_so_and_when_to_come_again() {
    let slow = Slow::new("one");
    let carom = Carom::serving(routes(&[&slow.origin], "max_connections = 1", "wait = \"300ms\"")).start();
    let mut held = asking(&carom, "/held");
    slow.has("/held");
    let mut client = carom.client();
    let response = client.ask(request("GET /late", "a.test", &["Accept: text/html"]));
    assert_eq!(
        (response.status(), response.error(), response.field("retry-after")),
        (503, Some("backend-busy"), Some("5"))
    );
    assert!(response.text().contains("http-equiv=\"refresh\""), "{}", response.text());
    assert!(carom.logged_path("/late")["total_ms"].as_f64() >= Some(300.0));
    slow.gate.open();
    assert_eq!(held.response().status(), 200);
    // The connection goes on.
    assert_eq!(client.get("a.test", "/again").text(), "one GET /again");
    assert_eq!(slow.origin.requests().len(), 2, "who was refused has reached nobody");
}

#[test]
fn a_full_queue_is_said_and_who_goes_makes_room_in_it() {
    let slow = Slow::new("one");
    let carom = Carom::serving(routes(&[&slow.origin], "max_connections = 1", "wait = \"60s\""))
        .config("[limits]\nwaiting = 1")
        .start();
    let mut held = asking(&carom, "/held");
    slow.has("/held");
    let mut waits = asking(&carom, "/waits");
    waits.expect_silence(200);
    assert_eq!(carom.client().get("a.test", "/third").error(), Some("queue-full"));
    waits.reset();
    assert_eq!(carom.logged_path("/waits")["reason"], "client-gone");
    let mut fourth = asking(&carom, "/fourth");
    fourth.expect_silence(200);
    slow.gate.open();
    assert_eq!((held.response().status(), fourth.response().status()), (200, 200));
    assert!(!slow.origin.lines().iter().any(|line| line.contains("/waits")), "nobody waited for that any more");
}

#[test]
fn who_has_waited_and_is_served_now_keeps_no_place_in_line() {
    let gates = Arc::new([Gate::default(), Gate::default()]);
    let shut = Arc::clone(&gates);
    let origin = Origin::new(move |conn| {
        while let Some(message) = conn.request() {
            shut[usize::from(message.target().contains("/second"))].wait();
            conn.answer("one", &message);
        }
    });
    let has = |path: &str| {
        origin
            .wait(path, |seen| seen.requests.iter().any(|(_, message)| message.target().contains(path)).then_some(()));
    };
    let carom = Carom::serving(routes(&[&origin], "max_connections = 1", "wait = \"60s\""))
        .config("[limits]\nwaiting = 1")
        .start();
    let mut first = asking(&carom, "/first");
    has("/first");
    let mut second = asking(&carom, "/second");
    poll_until("that it stands in line", || carom.status()["sites"][0]["waiting"] == 1);
    gates[0].open();
    has("/second");
    assert_eq!(carom.status()["sites"][0]["waiting"], 0);
    let mut third = asking(&carom, "/third");
    poll_until("that the next has its place", || carom.status()["sites"][0]["waiting"] == 1);
    gates[1].open();
    for client in [&mut first, &mut second, &mut third] {
        assert_eq!(client.response().status(), 200);
    }
}

#[test]
fn a_backup_does_not_serve_for_a_full_instance_but_for_one_that_is_away() {
    let (slow, spare, dead) = (Slow::new("one"), Origin::named("spare"), DeadPort::new());
    let targets = |first: u16| {
        format!(
            "[\"a.test\"]\nto = [{{ to = {first}, max_connections = 1 }}, {{ to = {}, backup = true }}]\nwait = \"60s\"\n",
            spare.port()
        )
    };
    let carom = Carom::serving(targets(slow.origin.port())).start();
    let mut held = asking(&carom, "/held");
    slow.has("/held");
    let mut waits = asking(&carom, "/waits");
    waits.expect_silence(300);
    spare.assert_untouched();
    slow.gate.open();
    assert_eq!((held.response().status(), waits.response().text()), (200, "one GET /waits".into()));
    carom.reroute(&targets(dead.port()));
    assert_eq!(carom.client().get("a.test", "/x").text(), "spare GET /x");
}

#[test]
fn a_backend_of_two_sites_has_one_count_and_each_sites_own_bound() {
    let slow = Slow::new("one");
    let port = slow.origin.port();
    let site =
        |host: &str, most: u32| format!("\"{host}\" = {{ to = {port}, max_connections = {most}, wait = \"60s\" }}\n");
    let carom = Carom::serving(site("a.test", 1) + &site("b.test", 2)).start();
    let mut held = asking(&carom, "/held");
    slow.has("/held");
    assert_eq!(carom.client().get("b.test", "/b").status(), 200, "there is room for one more of this site");
    let mut waits = asking(&carom, "/waits");
    waits.expect_silence(200);
    let mut other = carom.client();
    other.send(request("GET /held-by-b", "b.test", &[]));
    slow.has("/held-by-b");
    slow.gate.open();
    assert_eq!((held.response().status(), other.response().status(), waits.response().status()), (200, 200, 200));
}

#[test]
fn a_tunnel_counts_for_as_long_as_it_lasts() {
    let origin = Origin::new(|conn| {
        while let Some(message) = conn.request() {
            match message.target().contains("/tunnel") {
                false => conn.answer("one", &message),
                true => {
                    conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
                    conn.echo();
                    return;
                }
            };
        }
    });
    let carom = Carom::serving(routes(&[&origin], "max_connections = 1", "wait = \"60s\"")).start();
    let mut tunnel = carom.client();
    tunnel.send(request("GET /tunnel", "a.test", &["Connection: upgrade", "Upgrade: x"]));
    assert_eq!(tunnel.response_head().status(), 101);
    let mut waits = asking(&carom, "/waits");
    waits.expect_silence(300);
    drop(tunnel);
    assert_eq!(waits.response().text(), "one GET /waits");
}

#[test]
fn requests_of_http2_wait_in_the_same_line_and_leave_it_when_taken_back() {
    let slow = Slow::new("one");
    let carom = Carom::serving(routes(&[&slow.origin], "max_connections = 1", "wait = \"60s\""))
        .config("[limits]\nwaiting = 2\n[http2]\nprior_knowledge = true")
        .start();
    let mut client = Http2::connect(carom.address());
    let mut held = client.begin(http2::get("http://a.test/held"), true);
    client.settle();
    slow.has("/held");
    let mut taken_back = client.begin(http2::get("http://a.test/taken-back"), true);
    let mut waits = client.begin(http2::get("http://a.test/waits"), true);
    client.settle();
    taken_back.send.send_reset(h2::Reason::CANCEL);
    client.settle();
    assert_eq!(carom.logged_path("/taken-back")["reason"], "client-gone");
    slow.gate.open();
    assert_eq!(client.answer(&mut held).unwrap().status, 200);
    assert_eq!(client.answer(&mut waits).unwrap().text(), "one GET /waits");
    assert!(!slow.origin.lines().iter().any(|line| line.contains("/taken-back")));
}

#[test]
fn a_save_that_gives_a_full_site_another_instance_is_felt_by_newcomers_at_once() {
    let (slow, other) = (Slow::new("one"), Origin::named("other"));
    let carom = Carom::serving(routes(&[&slow.origin], "max_connections = 1", "wait = \"60s\"")).start();
    let mut held = asking(&carom, "/held");
    slow.has("/held");
    let mut waits = asking(&carom, "/waits");
    waits.expect_silence(200);
    carom.reroute(&routes(&[&slow.origin, &other], "max_connections = 1", "wait = \"60s\""));
    assert_eq!(carom.client().get("a.test", "/new").text(), "other GET /new");
    slow.gate.open();
    assert_eq!((held.response().status(), waits.response().status()), (200, 200));
}

#[test]
fn an_instance_that_comes_up_is_found_by_those_who_wait_for_a_full_one() {
    let slow = Slow::new("one");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let targets = format!("[{}, \"unix:{}\"]", slow.origin.port(), path.display());
    let carom = Carom::serving(format!("[\"a.test\"]\nto = {targets}\nmax_connections = 1\nwait = \"60s\"\n")).start();
    let mut held = asking(&carom, "/held");
    slow.has("/held");
    let mut waits = asking(&carom, "/waits");
    waits.expect_silence(300);
    let _alive = Origin::unix(&path, |conn| conn.serve("back"));
    assert_eq!(waits.response().text(), "back GET /waits");
    slow.gate.open();
    assert_eq!(held.response().status(), 200);
}

#[test]
fn a_client_that_dawdles_behind_its_answer_keeps_nobody_from_the_instance() {
    let origin = Origin::new(|conn| {
        while let Some(head) = conn.head() {
            conn.answer("one", &head);
        }
    });
    let carom = Carom::serving(routes(&[&origin], "max_connections = 1", "wait = \"60s\"")).start();
    let mut slow = carom.client();
    slow.send(request("POST /slow", "a.test", &["Content-Length: 10"]) + "half ");
    assert_eq!(slow.response().text(), "one POST /slow");
    assert_eq!(carom.client().get("a.test", "/next").text(), "one GET /next");
    slow.send("done.");
    assert_eq!(slow.get("a.test", "/again").text(), "one GET /again");
}
