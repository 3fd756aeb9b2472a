//! Sites that go over to new instances by command, while requests run.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::carom::{BINARY, run};
use crate::support::load::Load;
use crate::support::origin::DeadPort;
use crate::support::{Carom, Gate, Origin, poll_until, reply, request};

/// An origin that says its name, and whether it is up when it is asked for `/up`.
fn asked(name: &'static str) -> (Origin, Arc<AtomicBool>) {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let origin = Origin::new(move |conn| {
        while let Some(request) = conn.request() {
            match request.target() {
                "/up" if is_up.load(Ordering::SeqCst) => conn.send(reply("200 OK", &[], "up")),
                "/up" => conn.send(reply("503 Service Unavailable", &[], "not yet")),
                _ => conn.send(reply("200 OK", &[], name)),
            };
        }
    });
    (origin, up)
}

/// An origin that answers once the gate is open.
fn held() -> (Origin, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let origin = Origin::new(move |conn| {
        while conn.request().is_some() {
            held.wait();
            conn.send(reply("200 OK", &[], "held"));
        }
    });
    (origin, gate)
}

fn deploy(carom: &Carom, to: u16, more: &[&str]) -> Command {
    let mut command = carom.command(&["deploy", "a.test", "--to", &to.to_string()]);
    command.args(more).stdin(Stdio::null());
    command
}

fn in_the_background(mut command: Command) -> JoinHandle<(Option<i32>, String)> {
    std::thread::spawn(move || run(&mut command))
}

fn leaving(carom: &Carom) -> Vec<(String, u64)> {
    let status = carom.status();
    let leaving = status["leaving"].as_array().unwrap().iter();
    leaving.map(|one| (one["name"].as_str().unwrap().to_owned(), one["in_flight"].as_u64().unwrap())).collect()
}

#[test]
fn a_deploy_waits_for_the_new_instance_and_then_for_the_old_one() {
    let (one, gate) = held();
    let (two, up) = asked("two");
    let text = format!("# the site\n\"a.test\" = {} # one\n", one.port());
    let carom = Carom::serving(&text).start();
    let mut slow = carom.client();
    slow.send(request("GET /slow", "a.test", &[]));
    one.wait("the slow request", |seen| (seen.requests.len() == 1).then_some(()));
    let deploying = in_the_background(deploy(&carom, two.port(), &["--health", "/up"]));
    two.wait("that it is asked twice", |seen| (seen.requests.len() >= 2).then_some(()));
    assert_eq!(std::fs::read_to_string(carom.routes_file()).unwrap(), text, "it is not healthy yet");
    let mark = carom.mark();
    up.store(true, Ordering::SeqCst);
    carom.wait_changed(mark);
    assert_eq!(carom.client().get("a.test", "/").text(), "two");
    let now = std::fs::read_to_string(carom.routes_file()).unwrap();
    assert_eq!(now, text.replace(&one.port().to_string(), &two.port().to_string()));
    assert_eq!(leaving(&carom), [(one.port().to_string(), 1)]);
    let (_, said) = carom.verb(&["status"]);
    assert!(said.contains(&format!("{} leaves a.test: 1 in flight", one.port())), "{said}");
    assert!(!deploying.is_finished(), "a request is with the old one");
    gate.open();
    assert_eq!(slow.response().text(), "held");
    let (code, said) = deploying.join().unwrap();
    assert_eq!(code, Some(0), "{said}");
    for word in ["is not healthy yet: GET /up answered 503", "is healthy (GET /up)", "→", "deployed"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    assert_eq!(leaving(&carom), []);
}

#[test]
fn a_deploy_that_can_not_be_changes_nothing_and_says_why() {
    let (one, dead) = (Origin::named("one"), DeadPort::new());
    let (two, _) = asked("two");
    let text = format!("\"a.test\" = {}\n\"old.test\" = {{ redirect = \"https://a.test\" }}\n", one.port());
    let carom = Carom::serving(&text).start();
    let (dead, two, own) = (dead.port().to_string(), two.port().to_string(), carom.address().port().to_string());
    for (arguments, words) in [
        (&["a.test", "--to", &dead, "--timeout", "300ms"][..], &["backend-refused", "within 300ms", &dead][..]),
        (&["a.test", "--to", &two, "--health", "/up", "--timeout", "300ms"], &["GET /up answered 503"]),
        (&["a.test", "--to", &two, "--health", "up"], &["is no path"]),
        (&["a.test", "--to", "99999"], &["65535"]),
        (&["a.test", "--to", &own], &["carom itself listens on"]),
        (&["a b", "--to", "1"], &["not a site"]),
        (&["old.test", "--to", "1"], &["`redirect`"]),
    ] {
        let (code, said) = carom.verb(&[&["deploy"], arguments].concat());
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        for word in words.iter().chain(&["nothing has changed"]) {
            assert!(said.contains(word), "{word} for {arguments:?} in {said}");
        }
        assert_eq!(std::fs::read_to_string(carom.routes_file()).unwrap(), text);
    }
    assert_eq!(carom.client().get("a.test", "/").text(), "one GET /");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("routes.toml"), "\"a.test\" = 1\n").unwrap();
    let mut alone = Command::new(BINARY);
    alone.args(["deploy", "a.test", "--to", "2", "--state", "state"]).current_dir(folder.path());
    let (code, said) = run(alone.env_remove("RUNTIME_DIRECTORY"));
    assert!(code == Some(3) && said.contains("no carom runs"), "{said}");
}

#[test]
fn old_instances_that_stay_busy_are_named_and_their_requests_go_on() {
    let (one, gate) = held();
    let two = Origin::named("two");
    let carom = Carom::to(one.port()).start();
    let mut slow = carom.client();
    slow.send(request("GET /slow", "a.test", &[]));
    one.wait("the slow request", |seen| (seen.requests.len() == 1).then_some(()));
    let (code, said) = run(&mut deploy(&carom, two.port(), &["--drain", "200ms"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{} with 1 request", one.port())) && said.contains("go on"), "{said}");
    assert_eq!(carom.client().get("a.test", "/").text(), "two GET /");
    // Back again before it is idle: it is the same instance still, and leaves no more.
    let (code, said) = run(&mut deploy(&carom, one.port(), &[]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(leaving(&carom), []);
    let instance = carom.status()["sites"][0]["instances"][0].clone();
    assert_eq!(instance["in_flight"], 1, "{instance}");
    gate.open();
    assert_eq!(slow.response().text(), "held");
}

#[test]
fn an_instance_that_a_deploy_has_seen_healthy_serves_at_once() {
    let backup = Origin::named("backup");
    // It says once that it is up, and then keeps its own check waiting.
    let told = AtomicBool::new(false);
    let two = Origin::new(move |conn| {
        while let Some(request) = conn.request() {
            if request.target() == "/up" && told.swap(true, Ordering::SeqCst) {
                return conn.wait_end();
            }
            conn.send(reply("200 OK", &[], "two"));
        }
    });
    let (one, up) = asked("one");
    up.store(true, Ordering::SeqCst);
    let text = format!(
        "[\"a.test\"]\nto = [{}, {{ to = {}, backup = true, health = \"tcp\" }}]\nhealth = \"/up\"\n",
        one.port(),
        backup.port()
    );
    let carom = Carom::serving(&text).start();
    let instance = |index: usize| carom.status()["sites"][0]["instances"][index].clone();
    poll_until("that the backup is up", || instance(1)["state"] == "up" && instance(0)["state"] == "up");
    let to = format!("{},{}", two.port(), backup.port());
    let (code, said) = carom.verb(&["deploy", "a.test", "--to", &to]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(instance(0)["state"], "up", "nobody has answered its own check");
    assert_eq!(carom.client().get("a.test", "/").text(), "two");
}

#[test]
fn a_hundred_deploys_under_load_fail_no_request() {
    let mut serving = Origin::named("first");
    let carom = Carom::to(serving.port()).workers(2).start();
    let load = Load::on(&carom, 4);
    for round in 0..100 {
        let next = Origin::named("next");
        let (code, said) = run(&mut deploy(&carom, next.port(), &[]));
        assert_eq!(code, Some(0), "round {round}: {said}");
        // It is idle: it may go at once.
        drop(std::mem::replace(&mut serving, next));
    }
    load.run(20);
    load.end().hold("a hundred deploys", 0..=0, 0..=0);
    let refused: Vec<_> = carom.log().into_iter().filter(|entry| entry["status"] != 200).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(leaving(&carom).is_empty());
}

#[test]
fn a_folder_that_somebody_has_locked_keeps_no_signal_from_being_heard() {
    let (old, new) = (Origin::named("old"), Origin::named("new"));
    let carom = Carom::to(old.port()).start();
    let folder = std::fs::File::open(carom.folder()).unwrap();
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut control = UnixStream::connect(carom.control()).unwrap();
    let body = format!("{{\"site\": \"a.test\", \"to\": [\"{}\"]}}", new.port());
    let head = format!("POST /v1/deploy HTTP/1.1\r\nHost: carom\r\nContent-Length: {}\r\n\r\n", body.len());
    control.write_all((head + &body).as_bytes()).unwrap();
    // It is asked behind that, and answers although whoever publishes tables waits for the folder, for ten seconds.
    assert_eq!(carom.status()["sites"][0]["name"], "a.test");
    let begun = Instant::now();
    carom.signal(Signal::TERM);
    assert_eq!(carom.exit_code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    drop(folder);
}
