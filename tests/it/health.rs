//! Checks of instances: who is down gets nothing while another is up, and serves again when its checks say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::origin::Secure;
use crate::support::tls::{leaf, root};
use crate::support::{Carom, Origin, poll_until, reply};

/// A backend whose `/up` answers with a status that can be changed, and 0 for a close without a word.
struct Site {
    origin: Origin,
    status: Arc<AtomicUsize>,
}

impl Site {
    fn new(name: &'static str) -> Self {
        let status = Arc::new(AtomicUsize::new(200));
        let told = Arc::clone(&status);
        let origin = Origin::new(move |conn| {
            while let Some(request) = conn.request() {
                let sent = match (request.start.contains(" /up"), told.load(Ordering::SeqCst)) {
                    (true, 0) => return,
                    (true, status) => conn.send(reply(&format!("{status} X"), &[], "")),
                    (false, _) => conn.send(reply("200 OK", &[], name)),
                };
                if !sent {
                    return;
                }
            }
        });
        Self { origin, status }
    }

    fn answers(&self, status: usize) {
        self.status.store(status, Ordering::SeqCst);
    }

    fn is_asked(&self) -> usize {
        self.origin.lines().iter().filter(|line| line.contains(" /up")).count()
    }
}

fn checked(to: &str) -> String {
    format!("[\"a.test\"]\nto = [{to}]\nhealth = {{ path = \"/up\", interval = \"100ms\" }}\n")
}

fn texts(carom: &Carom, count: usize) -> Vec<String> {
    (0..count).map(|_| carom.client().get("a.test", "/").text()).collect()
}

fn wait_said(carom: &Carom, mark: usize, what: &str) {
    carom.stderr(mark, what, |text| text.contains(what));
}

#[test]
fn an_instance_that_is_down_gets_nothing_until_it_is_up() {
    let (a, b) = (Site::new("a"), Site::new("b"));
    let carom = Carom::serving(checked(&format!("{}, {}", a.origin.port(), b.origin.port()))).start();
    poll_until("that both are asked", || a.is_asked() > 0 && b.is_asked() > 0);
    for (status, why) in [(503, "GET /up answered 503"), (0, "closed without an answer")] {
        let mark = carom.mark();
        a.answers(status);
        wait_said(&carom, mark, "a backend is down");
        let said = carom.said(mark).join("\n");
        assert!(said.contains(why) && said.contains(&a.origin.port().to_string()), "{said}");
        assert_eq!(texts(&carom, 6), ["b"; 6]);
        let mark = carom.mark();
        a.answers(200);
        wait_said(&carom, mark, "is up");
        let texts = texts(&carom, 6);
        assert_eq!(texts.iter().filter(|text| *text == "a").count(), 3, "{texts:?}");
    }
}

#[test]
fn a_new_instance_serves_after_its_first_good_answer() {
    let (a, b) = (Site::new("a"), Site::new("b"));
    let carom = Carom::serving(checked(&a.origin.port().to_string())).start();
    poll_until("that it is asked", || a.is_asked() > 0);
    b.answers(500);
    let mark = carom.mark();
    carom.reroute(&checked(&format!("{}, {}", a.origin.port(), b.origin.port())));
    assert_eq!(texts(&carom, 6), ["a"; 6]);
    wait_said(&carom, mark, "a backend is down");
    let mark = carom.mark();
    b.answers(204);
    wait_said(&carom, mark, "is up");
    assert!(texts(&carom, 2).contains(&"b".to_owned()));
}

#[test]
fn where_all_are_down_all_serve_and_backups_before_them() {
    let (a, b, backup) = (Site::new("a"), Site::new("b"), Site::new("backup"));
    for site in [&a, &b] {
        site.answers(500);
    }
    let to = format!("{}, {}, {{ to = {}, backup = true }}", a.origin.port(), b.origin.port(), backup.origin.port());
    let carom = Carom::serving(checked(&to)).start();
    poll_until("that all are asked", || [&a, &b, &backup].iter().all(|site| site.is_asked() > 1));
    assert_eq!(texts(&carom, 4), ["backup"; 4]);
    let mark = carom.mark();
    backup.answers(500);
    wait_said(&carom, mark, "a backend is down");
    let texts = texts(&carom, 4);
    assert!(texts.iter().all(|text| text == "a" || text == "b"), "{texts:?}");
}

#[test]
fn one_address_is_asked_once_and_remembered_over_a_reload() {
    let (a, b) = (Site::new("a"), Site::new("b"));
    a.answers(500);
    let to = format!("{}, {}", a.origin.port(), b.origin.port());
    let twice =
        format!("{}[\"b.test\"]\nto = [{to}]\nhealth = {{ path = \"/up\", interval = \"100ms\" }}\n", checked(&to));
    let carom = Carom::serving(&twice).start();
    poll_until("that it is down", || a.is_asked() > 2);
    carom.reroute(&checked(&to));
    assert_eq!(texts(&carom, 4), ["b"; 4], "it was down before, and nobody has said otherwise");
}

#[test]
fn an_address_that_two_sites_name_is_asked_by_one() {
    let a = Site::new("a");
    let port = a.origin.port().to_string();
    let carom = Carom::serving(format!("{}{}", checked(&port), checked(&port).replace("a.test", "b.test"))).start();
    poll_until("that it is asked", || a.is_asked() > 0);
    let (before, begun) = (a.is_asked(), Instant::now());
    poll_until("ten more questions", || a.is_asked() >= before + 10);
    // 90 ms lie between two at the least; two who ask would be through in half of that.
    assert!(begun.elapsed() > Duration::from_millis(9 * 90 - 50), "{:?}", begun.elapsed());
    carom.assert_running();
}

#[test]
fn an_instance_behind_tls_is_asked_over_tls() {
    let secure = Secure::with(&leaf(&["localhost"]).make());
    let a = Origin::secure(secure, |conn| conn.serve("a"));
    let routes = |ca: &str| {
        format!(
            "[\"a.test\"]\nto = \"https://localhost:{}\"{ca}\nhealth = {{ path = \"/up\", interval = \"100ms\" }}\n",
            a.port()
        )
    };
    let carom = Carom::serving(routes("\nca = \"ca.pem\"")).file("ca.pem", &root()).start();
    poll_until("that it is asked", || a.lines().contains(&"GET /up".to_owned()));
    let mark = carom.mark();
    carom.reroute(&routes(""));
    wait_said(&carom, mark, "backend-tls");
}

#[test]
fn a_check_says_what_it_was_told_to_say() {
    let unix = tempfile::tempdir().unwrap();
    let path = unix.path().join("app.sock");
    let seen = Origin::unix(&path, |conn| {
        while conn.request().is_some() {
            conn.send(reply("418 X", &[], ""));
        }
    });
    let health = "{ path = \"/healthz?deep\", method = \"HEAD\", host = \"app.internal\", status = [418, 204], interval = \"100ms\" }";
    let carom = Carom::serving(format!("[\"a.test\"]\nto = \"unix:{}\"\nhealth = {health}\n", path.display())).start();
    poll_until("that it is asked", || seen.requests().len() > 1);
    let asked = &seen.requests()[0];
    assert_eq!(asked.start, "HEAD /healthz?deep HTTP/1.1");
    assert_eq!((asked.field("host"), asked.field("connection")), (Some("app.internal"), Some("close")));
    assert!(!carom.said(0).iter().any(|line| line.contains("down")));
}

#[test]
fn a_connection_is_enough_where_that_is_asked_for() {
    let silent = Origin::new(|conn| conn.wait_end());
    let dead = crate::support::origin::DeadPort::new();
    let mark = 0;
    let carom =
        Carom::serving(format!("[\"a.test\"]\nto = [{}, {}]\nhealth = \"tcp\"\n", silent.port(), dead.port())).start();
    wait_said(&carom, mark, "a backend is down");
    let said = carom.said(mark).join("\n");
    assert!(said.contains(&dead.port().to_string()) && said.contains("backend-refused"), "{said}");
    assert!(!said.contains(&format!("backend={}", silent.port())), "{said}");
}

#[test]
fn an_instance_that_has_just_come_gets_little_at_first() {
    let (a, b, c) = (Site::new("a"), Site::new("b"), Site::new("c"));
    let [a_port, b_port, c_port] = [&a, &b, &c].map(|site| site.origin.port());
    let slow = |to: String| checked(&to) + "slow_start = \"5h\"\n";
    b.answers(503);
    let carom = Carom::serving(slow(format!("{a_port}, {b_port}"))).start();
    wait_said(&carom, 0, "a backend is down");
    poll_until("that the other is asked", || a.is_asked() > 0 && texts(&carom, 1) == ["a"]);
    let mark = carom.mark();
    b.answers(200);
    wait_said(&carom, mark, "is up");
    let count = |texts: &[String], name: &str| texts.iter().filter(|text| *text == name).count();
    let up_again = texts(&carom, 110);
    assert!((9..=11).contains(&count(&up_again, "b")), "{up_again:?}");
    let instances = &carom.status()["sites"][0]["instances"];
    assert!(instances[0]["share_percent"].is_null(), "{instances}");
    assert_eq!(instances[1]["share_percent"], 9, "{instances}");
    let (_, said) = carom.verb(&["status"]);
    assert_eq!(said.matches("starts slowly: 9 % of its share so far").count(), 1, "{said}");
    // And one that a save adds.
    carom.reroute(&slow(format!("{a_port}, {c_port}")));
    poll_until("that the new one is asked", || c.is_asked() > 0 && texts(&carom, 30).contains(&"c".to_owned()));
    let added = texts(&carom, 110);
    assert!((9..=11).contains(&count(&added, "c")), "{added:?}");
}
