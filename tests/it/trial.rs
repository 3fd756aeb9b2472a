//! Routes on trial: they run without being written anywhere, and go back when they do harm or when nobody keeps them.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::load::Load;
use crate::support::{Carom, Origin, PATIENCE, Watched, poll_until, reply};

/// An exit code, and what was said.
type Ended = (Option<i32>, String);

/// `carom try` at work; killed when dropped.
struct Attempt {
    ended: Arc<Watched<Option<Ended>>>,
    pid: Pid,
}

impl Attempt {
    /// Begins to try these routes, and waits until they run.
    #[track_caller]
    fn begin(carom: &Carom, routes: &str, length: &str) -> Self {
        std::fs::write(carom.folder().join("routes.new.toml"), routes).unwrap();
        let mut command = carom.command(&["try", "routes.new.toml", "--for", length]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let watched = Arc::new(Watched::new(None));
        let told = Arc::clone(&watched);
        std::thread::spawn(move || {
            let ended = outcome(child);
            told.change(|slot| *slot = Some(ended));
        });
        let attempt = Self { ended: watched, pid };
        poll_until("that it is on trial", || state(carom) == "on" || attempt.ended.look(Option::is_some));
        attempt
    }

    /// Waits for its end: its exit code, and what it said.
    #[track_caller]
    fn end(&self) -> Ended {
        self.ended.wait_for(PATIENCE, Option::clone).expect("`carom try` does not end")
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.ended.look(Option::is_none) {
            kill_process(self.pid, Signal::KILL).ok();
        }
    }
}

fn outcome(mut child: Child) -> Ended {
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).ok();
    child.stderr.take().unwrap().read_to_string(&mut said).ok();
    (child.wait().unwrap().code(), said)
}

fn state(carom: &Carom) -> String {
    carom.status()["routes"]["trial"]["state"].as_str().unwrap_or_default().to_owned()
}

fn to(port: u16) -> String {
    format!("\"a.test\" = {port}\n")
}

#[test]
fn a_trial_that_is_confirmed_is_kept_and_stands_in_the_file() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::to(a.port()).start();
    let load = Load::on(&carom, 4);
    let attempt = Attempt::begin(&carom, &format!("# tried\n{}", to(b.port())), "60s");
    load.run(20);
    assert_eq!(carom.client().get("a.test", "/").text(), "b GET /");
    assert_eq!(std::fs::read_to_string(carom.routes_file()).unwrap(), to(a.port()), "nothing is written yet");
    let (_, shown) = carom.verb(&["status"]);
    assert!(shown.contains("ON TRIAL") && shown.contains(&format!("~ a.test {} → {}", a.port(), b.port())), "{shown}");
    let mark = carom.mark();
    let (code, said) = carom.verb(&["confirm"]);
    assert!(code == Some(0) && said.contains("the trial is kept"), "{said}");
    let (code, said) = attempt.end();
    assert!(code == Some(0) && said.contains("kept"), "{said}");
    assert_eq!(std::fs::read_to_string(carom.routes_file()).unwrap(), format!("# tried\n{}", to(b.port())));
    // It is not applied once more; the next save is.
    carom.save_by_rename(&to(a.port()));
    let next =
        carom.stderr(mark, "what comes next", |line| line.contains("routes.toml") && !line.contains("the trial"));
    assert!(next.contains(&format!("changed: ~ a.test {} → {}", b.port(), a.port())), "{next}");
    assert_eq!(carom.client().get("a.test", "/").text(), "a GET /");
    assert_eq!(load.end().failed(None), 0);
    assert_eq!(carom.verb(&["confirm"]).0, Some(1), "there is none any more");
}

#[test]
fn a_trial_goes_back_by_itself_when_requests_fail_that_did_not_fail_before() {
    let a = Origin::named("a");
    let broken = Origin::replying(reply("500 Internal Server Error", &[], ""));
    let carom = Carom::serving(format!("{}\"b.test\" = {}\n", to(a.port()), a.port())).start();
    assert_eq!(carom.client().get("a.test", "/").status(), 200);
    let attempt = Attempt::begin(&carom, &format!("{}\"b.test\" = {}\n", to(broken.port()), a.port()), "300s");
    let mut client = carom.client();
    poll_until("that it has gone back", || {
        client.get("a.test", "/");
        state(&carom) == "gone-back"
    });
    let (code, said) = attempt.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("gone back: a.test: ") && said.contains("have failed or got 5xx"), "{said}");
    assert_eq!(client.get("a.test", "/").text(), "a GET /");
    assert_eq!(std::fs::read_to_string(carom.routes_file()).unwrap().matches(&a.port().to_string()).count(), 2);
}

#[test]
fn what_fails_at_sites_that_a_trial_does_not_touch_is_no_reason_to_go_back() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let broken = Origin::replying(reply("500 Internal Server Error", &[], ""));
    let other = format!("\"b.test\" = {}\n", broken.port());
    let carom = Carom::serving(format!("{}{other}", to(a.port()))).start();
    let attempt = Attempt::begin(&carom, &format!("{}{other}", to(b.port())), "3s");
    let mut client = carom.client();
    poll_until("that it has gone back", || {
        assert_eq!(client.get("b.test", "/").status(), 500);
        state(&carom) == "gone-back"
    });
    let (code, said) = attempt.end();
    assert!(code == Some(1) && said.contains("nobody has confirmed them within 3s"), "{said}");
    assert_eq!(client.get("a.test", "/").text(), "a GET /");
}

#[test]
fn who_presses_ctrl_c_goes_back() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::to(a.port()).start();
    let attempt = Attempt::begin(&carom, &to(b.port()), "300s");
    assert_eq!(carom.client().get("a.test", "/").text(), "b GET /");
    kill_process(attempt.pid, Signal::INT).unwrap();
    let (code, said) = attempt.end();
    assert!(code == Some(1) && said.contains("gone back: that was asked for"), "{said}");
    assert_eq!(carom.client().get("a.test", "/").text(), "a GET /");
}

#[test]
fn a_save_ends_a_trial_in_its_favour() {
    let (a, b, c) = (Origin::named("a"), Origin::named("b"), Origin::named("c"));
    let carom = Carom::to(a.port()).start();
    let attempt = Attempt::begin(&carom, &to(b.port()), "300s");
    // One that is broken does not, and is not lost to a confirmation.
    let mark = carom.mark();
    carom.save_by_rename("\"a.test\" = 99999\n");
    carom.stderr(mark, "that it was not applied", |line| line.contains("was not applied"));
    assert_eq!(carom.client().get("a.test", "/").text(), "b GET /");
    let (code, said) = carom.verb(&["confirm"]);
    assert!(code == Some(1) && said.contains("has been saved since the trial began"), "{said}");
    carom.reroute(&to(c.port()));
    let (code, said) = attempt.end();
    assert!(code == Some(1) && said.contains("routes.toml has been read again"), "{said}");
    assert_eq!(carom.client().get("a.test", "/").text(), "c GET /");
}

#[test]
fn only_one_thing_is_tried_at_a_time_and_nothing_that_is_wrong_or_the_same() {
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let carom = Carom::to(a.port()).start();
    let tried = |routes: &str| {
        std::fs::write(carom.folder().join("other.toml"), routes).unwrap();
        carom.verb(&["try", "other.toml", "--for", "300s"])
    };
    for (routes, why) in [
        ("\"a.test\" = 99999\n", "other.toml:1:12"),
        (&*format!("# only this\n{}", to(a.port())), "nothing would change"),
    ] {
        let (code, said) = tried(routes);
        assert!(code == Some(1) && said.contains(why), "{said}");
    }
    let attempt = Attempt::begin(&carom, &to(b.port()), "300s");
    let (code, said) = tried(&to(1));
    assert!(code == Some(1) && said.contains("a trial is under way"), "{said}");
    assert_eq!(carom.client().get("a.test", "/").text(), "b GET /");
    // A restart starts from the file.
    carom.signal(Signal::KILL);
    carom.exit_code();
    assert_eq!(attempt.end().0, Some(3));
    assert_eq!(std::fs::read_to_string(carom.routes_file()).unwrap(), to(a.port()));
}
