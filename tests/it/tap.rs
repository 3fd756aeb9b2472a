//! `carom tap`: what is seen of requests and responses, what is not, and that nobody waits for who watches.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::http2::{self, Http2};
use crate::support::origin::DeadPort;
use crate::support::tls::pem;
use crate::support::{Carom, Origin, PATIENCE, Watched, poll_until, reply, request};

/// `carom tap`, and what it has said. Dropped, it is killed and waited for.
struct Tap {
    child: Child,
    lines: Arc<Watched<Vec<String>>>,
    said: Arc<Watched<Vec<String>>>,
}

impl Tap {
    /// Begins to watch.
    #[track_caller]
    fn on(carom: &Carom, arguments: &[&str]) -> Self {
        let mut command = carom.command(&[&["tap"], arguments].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("carom tap");
        let lines = kept(child.stdout.take().expect("piped"));
        let said = kept(child.stderr.take().expect("piped"));
        let tap = Self { child, lines, said };
        let begun = |said: &Vec<String>| said.iter().any(|line| line.contains("watching")).then_some(());
        assert!(tap.said.wait_for(PATIENCE, begun).is_some(), "{:?}", tap.said.look(Vec::clone));
        tap
    }

    /// Waits for a line with this in it, as `--json` says it.
    #[track_caller]
    fn json(&self, what: &str) -> Value {
        let found = self.lines.wait_for(PATIENCE, |lines| lines.iter().find(|line| line.contains(what)).cloned());
        let found = found.unwrap_or_else(|| panic!("no {what} in {:#?}", self.all()));
        serde_json::from_str(&found).expect("JSON")
    }

    fn all(&self) -> Vec<String> {
        self.lines.look(Vec::clone)
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    fn end(&mut self) -> Option<i32> {
        let mut code = None;
        poll_until("that the tap ends", || {
            code = self.child.try_wait().expect("wait");
            code.is_some()
        });
        code.and_then(|status| status.code())
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kept(stream: impl Read + Send + 'static) -> Arc<Watched<Vec<String>>> {
    let lines = Arc::new(Watched::new(Vec::new()));
    let keeps = Arc::clone(&lines);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            keeps.change(|lines| lines.push(line));
        }
    });
    lines
}

fn secretive() -> Origin {
    Origin::replying(reply("200 OK", &["Set-Cookie: session=open-sesame", "X-Plain: yes"], "body"))
}

const SECRETS: &[&str] = &["Authorization: Basic open-sesame", "X-Api-Key: open-sesame", "User-Agent: me"];

#[test]
fn heads_are_seen_as_the_backend_and_the_client_get_them_and_secrets_only_where_asked_for() {
    let a = secretive();
    let carom = Carom::to(a.port()).start();
    let (tap, open) = (Tap::on(&carom, &["A.test"]), Tap::on(&carom, &["a.test", "--json", "--show-secrets"]));
    let mut client = carom.client();
    client.ask(request("GET /x?token=open-sesame&y=1", "a.test", SECRETS));
    let lines =
        tap.lines.wait_for(PATIENCE, |lines| lines.iter().any(|line| line == "< X-Plain: yes").then(|| lines.clone()));
    let lines = lines.unwrap_or_else(|| panic!("{:#?}", tap.all()));
    assert!(lines[0].starts_with("#1 ") && lines[0].contains(&format!(" → {}", a.port())), "{lines:#?}");
    for line in [
        "> GET /x?token=[redacted]&y=1 HTTP/1.1",
        "> Authorization: [redacted]",
        "> X-Api-Key: [redacted]",
        "> User-Agent: me",
        // What the backend gets, and the client didn't send.
        "> X-Forwarded-Host: a.test",
        "< HTTP/1.1 200 OK",
        "< Set-Cookie: [redacted]",
    ] {
        assert!(lines.iter().any(|seen| seen == line), "{line}: {lines:#?}");
    }
    assert!(lines.iter().any(|line| line.starts_with(&format!("#1 200 by {} after ", a.port()))), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("open-sesame") || line.contains("body")), "{lines:#?}");
    let (asked, answered) = (open.json("\"request\""), open.json("\"response\""));
    assert!(asked["head"].as_array().unwrap().contains(&"Authorization: Basic open-sesame".into()), "{asked}");
    assert!(answered["head"].as_array().unwrap().contains(&"Set-Cookie: session=open-sesame".into()), "{answered}");
    assert!(asked["client"].as_str().unwrap().parse::<SocketAddr>().is_ok(), "{asked}");
}

#[test]
fn only_what_goes_wrong_is_shown_where_only_errors_are_asked_for() {
    let (dead, a) = (DeadPort::new(), Origin::obliging());
    let carom = Carom::serving(format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), dead.port())).start();
    let mut tap = Tap::on(&carom, &["a.test", "--errors", "-n", "2", "--json"]);
    let own = Tap::on(&carom, &["b.test", "--json"]);
    let mut client = carom.client();
    for status in [200, 301, 404] {
        assert_eq!(client.get("a.test", &format!("/{status}")).status(), status);
    }
    client.send(request("GET /cut", "a.test", &[]));
    client.cut_response();
    carom.client().get("a.test", "/503");
    assert_eq!(tap.end(), Some(0));
    let lines: Vec<Value> = tap.all().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["response", "broken", "response"]);
    assert_eq!((&lines[0]["status"], &lines[2]["status"]), (&404.into(), &503.into()));
    assert_eq!(lines[1]["reason"], "backend-closed-mid-body");
    assert_eq!(lines[1]["request"]["head"][0], "GET /cut HTTP/1.1", "the request with it");
    // What nobody answers, carom does: as the client gets it, with the reason.
    assert_eq!(carom.client().get("b.test", "/").error(), Some("backend-refused"));
    let answer = own.json("\"response\"");
    assert_eq!((&answer["status"], &answer["reason"]), (&502.into(), &"backend-refused".into()));
    assert!(answer["backend"].is_null() && answer["head"][0] == "HTTP/1.1 502 Bad Gateway", "{answer}");
}

#[test]
fn each_try_is_seen_and_what_came_by_http2() {
    let (dead, a) = (DeadPort::new(), Origin::named("a"));
    let carom = Carom::serving(format!("\"a.test\" = [{}, {{ to = {}, backup = true }}]\n", dead.port(), a.port()))
        .config("[http2]\nprior_knowledge = true")
        .start();
    let tap = Tap::on(&carom, &["a.test", "--json"]);
    let mut client = Http2::connect(carom.address());
    assert_eq!(client.ask(http2::get("http://a.test/h2")).text(), "a GET /h2");
    tap.json("\"response\"");
    let tries: Vec<Value> = tap.all().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tries: Vec<_> = tries.iter().filter(|line| line["kind"] == "request").collect();
    assert_eq!((&tries[0]["tries"], &tries[0]["backend"]), (&1.into(), &dead.port().to_string().into()));
    assert_eq!((&tries[1]["tries"], &tries[1]["backend"]), (&2.into(), &a.port().to_string().into()));
    assert_eq!((&tries[1]["number"], &tries[1]["head"][0]), (&1.into(), &"GET /h2 HTTP/1.1".into()));
}

#[test]
fn who_reads_slowly_misses_some_and_holds_nobody_up_and_costs_nothing_once_gone() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let tap = Tap::on(&carom, &["a.test", "--json"]);
    let pid = Pid::from_child(&tap.child);
    kill_process(pid, Signal::STOP).unwrap();
    let mut client = carom.client();
    // What has no room in the socket and in the line, at a good thirty kilobytes a request.
    let long = format!("X-Long: {}", "x".repeat(16_000));
    for _ in 0..600 {
        assert_eq!(client.ask(request("GET /", "a.test", &[&long])).status(), 200);
    }
    kill_process(pid, Signal::CONT).unwrap();
    let missed = tap.json("\"missed\"");
    assert!(missed["count"].as_u64().unwrap() > 0, "{missed}");
    // Whoever comes afterwards begins anew, and sees what comes then.
    assert_eq!(carom.status()["sites"][0]["watchers"], 1);
    drop(tap);
    poll_until("that nobody watches", || carom.status()["sites"][0]["watchers"] == 0);
    let mut tap = Tap::on(&carom, &["a.test", "--json", "-n", "1"]);
    assert_eq!(client.get("a.test", "/after").status(), 200);
    assert_eq!(tap.end(), Some(0));
    assert!(tap.all()[0].contains("GET /after"), "{:#?}", tap.all());
}

#[test]
fn it_ends_with_the_site_with_ctrl_c_and_with_the_carom_and_says_so() {
    let a = Origin::named("a");
    let routes = format!("\"a.test\" = {0}\n\"b.test\" = {0}\n", a.port());
    let carom = Carom::serving(&routes).start();
    let mut taps = [Tap::on(&carom, &["a.test"]), Tap::on(&carom, &["b.test"]), Tap::on(&carom, &["b.test"])];
    carom.reroute(&format!("\"b.test\" = {}\n", a.port()));
    assert_eq!(taps[0].end(), Some(0));
    let gone = |said: &Vec<String>| {
        said.iter().any(|line| line == "carom: a.test is not in the routes any more").then_some(())
    };
    assert!(taps[0].said.wait_for(PATIENCE, gone).is_some());
    kill_process(Pid::from_child(&taps[1].child), Signal::INT).unwrap();
    assert_eq!(taps[1].end(), Some(0));
    // A save that leaves the site does not end it.
    carom.client().get("b.test", "/still");
    let still = |lines: &Vec<String>| lines.iter().any(|line| line.contains("/still")).then_some(());
    assert!(taps[2].lines.wait_for(PATIENCE, still).is_some());
    carom.signal(Signal::TERM);
    assert_eq!(taps[2].end(), Some(3));
}

#[test]
fn what_can_not_be_watched_is_said() {
    let a = Origin::named("a");
    let carom = Carom::serving(format!(
        "\"a.test\" = {}\n[\"b.test\"]\npassthrough = \"127.0.0.1:{}\"\n[\"c.test\"]\nrespond = {{ status = 200 }}\n",
        a.port(),
        a.port()
    ))
    .tls("a.pem", pem(&["a.test"]))
    .start();
    for (site, why) in [
        ("b.test", "b.test is passed through: only its server can read its requests"),
        ("c.test", "c.test has no instances"),
        ("d.test", "no site d.test"),
    ] {
        let (code, said) = carom.verb(&["tap", site]);
        assert!(code == Some(1) && said.contains(why), "{said}");
    }
}
