//! One access line a request, whatever became of it, and what it says.

use crate::support::origin::DeadPort;
use crate::support::{Carom, Client, Origin, poll_until, reply, request, with_body};

#[test]
fn a_line_says_who_asked_for_what_and_what_became_of_it() {
    let a = Origin::new(|conn| {
        while conn.request().is_some() {
            conn.pause(50);
            conn.send(reply("201 Created", &[], "0123456789"));
        }
    });
    let carom = Carom::serving(format!("\"a.test/api/\" = {}\n", a.port())).start();
    let mut client = carom.client();
    let bytes = with_body("POST /api/x", "A.test:80", "hello");
    let response = client.ask(&bytes);
    let entry = carom.logged_path("/api/x");
    assert_eq!(entry["client"].as_str().unwrap().split(':').next(), Some("127.0.0.1"));
    assert_eq!(entry["method"], "POST");
    assert_eq!(entry["host"], "a.test");
    assert_eq!(entry["status"], 201);
    assert_eq!(entry["received"], bytes.len());
    assert_eq!(entry["sent"], response.raw.len() + 10);
    assert_eq!(entry["route"], "a.test/api/");
    assert_eq!(entry["backend"].to_string().trim_matches('"'), a.port().to_string());
    assert_eq!(entry["tries"], 1);
    let (first, total) = (entry["first_byte_ms"].as_f64().unwrap(), entry["total_ms"].as_f64().unwrap());
    assert!((45.0..5000.0).contains(&first) && total >= first && total < 5000.0, "{entry}");
    assert!(entry["reason"].is_null(), "{entry}");
    // RFC 3339, in UTC.
    let time = entry["time"].as_str().unwrap();
    assert!(time.len() >= 20 && time.as_bytes()[10] == b'T' && time.ends_with('Z'), "{time}");
}

#[test]
fn every_request_is_one_line() {
    let a = Origin::named("a");
    let dead = DeadPort::new();
    let carom = Carom::serving(format!(
        "\"a.test\" = {}\n\"dead.test\" = {}\n[\"to.test\"]\nredirect = \"https://a.test\"\n",
        a.port(),
        dead.port()
    ))
    .start();
    let mut client = carom.client();
    for (host, path) in [
        ("a.test", "/1"),
        ("nobody.test", "/2"),
        ("dead.test", "/3"),
        ("to.test", "/4"),
        ("a.test", "/5"),
        ("a.test", "/6"),
    ] {
        client.get(host, path);
    }
    let mut bad = carom.client();
    bad.send("BAD\r\n\r\n");
    bad.response();
    // A client that comes and goes is no request.
    drop(carom.client());
    client.get("a.test", "/last");
    carom.logged_path("/last");
    carom.logged("the refused one", |entry| entry["reason"] == "malformed-head");
    let lines = carom.log();
    assert_eq!(lines.len(), 8, "{lines:#?}");
    let got = |path: &str| {
        let entry = lines.iter().find(|entry| entry["path"] == path).unwrap();
        (entry["status"].as_u64().unwrap(), entry["reason"].as_str().map(str::to_owned))
    };
    assert_eq!(got("/1"), (200, None));
    assert_eq!(got("/2"), (404, Some("no-route".into())));
    assert_eq!(got("/3"), (502, Some("backend-refused".into())));
    assert!((300..400).contains(&got("/4").0));
    assert_eq!(got("/4").1, None);
    let bad = lines.iter().find(|entry| entry["reason"] == "malformed-head").unwrap();
    assert_eq!(bad["status"], 400);
}

#[test]
fn pipelined_requests_are_a_line_each() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send((0..20).map(|n| request(&format!("GET /{n}"), "a.test", &[])).collect::<String>());
    for _ in 0..20 {
        client.response();
    }
    carom.logged_path("/19");
    let paths: Vec<_> = carom.log().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(paths, (0..20).map(|n| format!("/{n}")).collect::<Vec<_>>());
}

#[test]
fn a_request_can_not_write_lines_of_its_own() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    let path = "/\"},{\"status\":1,\\n<\u{e4}%0a";
    client.get("a.test", path);
    client.get("a.test", "/last");
    carom.logged_path("/last");
    let lines = carom.log();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert_eq!(lines[0]["status"], 200);
    assert!(lines[0]["path"].as_str().unwrap().starts_with("/\"},{\"status\":1,\\n<"));
}

#[test]
fn an_interrupted_download_says_how_much_was_sent() {
    let a = Origin::new(|conn| {
        conn.request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n0123456789");
        conn.pause(50);
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send(request("GET /x", "a.test", &[]));
    let (response, _) = client.cut_response();
    let entry = carom.logged_path("/x");
    assert_eq!((&entry["status"], &entry["reason"]), (&200.into(), &"backend-closed-mid-body".into()));
    assert_eq!(entry["sent"], response.raw.len() + 10);
}

#[test]
fn the_log_can_go_to_a_file_or_be_turned_off() {
    let a = Origin::named("a");
    for (access, lines) in [("access.log", 1), ("off", 0)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        let access = if access == "off" { access.to_owned() } else { file.display().to_string() };
        let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\n[log]\naccess = \"{access}\"\nformat = \"json\"\n");
        std::fs::write(folder.path().join("own.toml"), text).unwrap();
        std::fs::write(folder.path().join("routes.toml"), format!("\"a.test\" = {}\n", a.port())).unwrap();
        let carom = Carom::in_folder(folder, &["serve", "--config", "own.toml", "--workers", "1"]);
        assert_eq!(carom.client().get("a.test", "/x").status(), 200);
        carom.signal(rustix::process::Signal::TERM);
        assert_eq!(carom.exit_code(), Some(0));
        let text = std::fs::read_to_string(file).unwrap_or_default();
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(text.lines().all(|line| line.contains("\"path\":\"/x\"")), "{text}");
        assert!(carom.log().is_empty());
    }
}

#[test]
fn nobody_who_listens_to_what_it_says_is_no_reason_to_stop() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let (a, b) = (Origin::named("a"), Origin::named("b"));
    let folder = tempfile::tempdir().unwrap();
    let routes = folder.path().join("routes.toml");
    std::fs::write(&routes, format!("\"a.test\" = {}\n", a.port())).unwrap();
    let mut child = Command::new(crate::support::carom::BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--state", "state"])
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    drop((said, child.stdout.take()));
    // What it has to say about this goes nowhere, and neither do its access lines.
    for wrong_then_right in ["\"a.test\" = 0\n".to_owned(), format!("\"a.test\" = {}\n", b.port())] {
        std::fs::write(&routes, wrong_then_right).unwrap();
        let mut client = Client::connect(address);
        poll_until("that it still answers", || client.get("a.test", "/").status() == 200);
    }
    let mut client = Client::connect(address);
    poll_until("that the new routes serve", || client.get("a.test", "/").text() == "b GET /");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A carom that logs to a file, in this format.
fn logging_to_file(origin: &Origin, format: &str, more: &str) -> Carom {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log").display().to_string();
    let text =
        format!("[[listen]]\naddress = \"127.0.0.1:0\"\n[log]\naccess = \"{file}\"\nformat = '{format}'\n{more}");
    std::fs::write(folder.path().join("own.toml"), text).unwrap();
    std::fs::write(folder.path().join("routes.toml"), format!("\"a.test\" = {}\n", origin.port())).unwrap();
    Carom::in_folder(folder, &["serve", "--config", "own.toml", "--workers", "1"])
}

/// What a file in its folder holds.
fn written(carom: &Carom, file: &str) -> String {
    std::fs::read_to_string(carom.folder().join(file)).unwrap_or_default()
}

/// Waits until it has so many lines.
fn wait_lines(carom: &Carom, file: &str, lines: usize) -> String {
    poll_until("lines of the log", || written(carom, file).lines().count() >= lines);
    written(carom, file)
}

#[test]
fn the_combined_format_is_the_one_that_others_read() {
    let a = Origin::replying(reply("200 OK", &[], "0123456789"));
    let carom = logging_to_file(&a, "combined", "");
    let fields = ["User-Agent: curl/8 \"x\"", "Referer: https://b.test/?q"];
    carom.client().ask(request("GET /x?y=\"1\"", "a.test", &fields));
    let line = wait_lines(&carom, "access.log", 1);
    let (before, behind) = line.trim_end().split_once("] ").unwrap();
    assert!(before.starts_with("127.0.0.1 - - [") && before.ends_with(" +0000"), "{line}");
    let want = "\"GET /x?y=\\x221\\x22 HTTP/1.1\" 200 10 \"https://b.test/?q\" \"curl/8 \\x22x\\x22\"";
    assert_eq!(behind, want);
}

#[test]
fn a_template_writes_what_it_names_and_redaction_takes_it_out() {
    let a = Origin::replying(reply("200 OK", &[], "0123456789"));
    let template = "{scheme} {protocol} {host}{path} {status} {body_sent} {tries} {closed} {header:X-Key}";
    let carom = logging_to_file(&a, template, "redact = [\"query\", \"header:X-Key\"]\n");
    carom.client().ask(request("GET /x?secret", "a.test", &["X-Key: token", "Connection: close"]));
    let line = wait_lines(&carom, "access.log", 1);
    assert_eq!(line, "http HTTP/1.1 a.test/x?[redacted] 200 10 1 client [redacted]\n");
}

#[test]
fn a_file_that_is_renamed_away_is_opened_anew_by_itself_and_when_told() {
    let a = Origin::named("a");
    let carom = logging_to_file(&a, "{path}", "");
    let file = |name: &str| carom.folder().join(name);
    carom.client().get("a.test", "/1");
    wait_lines(&carom, "access.log", 1);
    // As logrotate does it, told: nothing that comes behind the signal goes to the old file.
    std::fs::rename(file("access.log"), file("access.log.1")).unwrap();
    carom.signal(rustix::process::Signal::USR1);
    carom.client().get("a.test", "/2");
    assert_eq!(wait_lines(&carom, "access.log", 1), "/2\n");
    assert_eq!(written(&carom, "access.log.1"), "/1\n");
    // And untold: within a second or with the next lines.
    std::fs::remove_file(file("access.log")).unwrap();
    poll_until("that it is there again", || file("access.log").exists());
    carom.client().get("a.test", "/3");
    assert_eq!(wait_lines(&carom, "access.log", 1), "/3\n");
    carom.signal(rustix::process::Signal::TERM);
    assert_eq!(carom.exit_code(), Some(0));
}

#[test]
fn lines_can_go_to_a_file_and_to_standard_output() {
    let a = Origin::named("a");
    let folder = tempfile::tempdir().unwrap();
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\n[log]\naccess = [\"stdout\", \"own.log\"]\n";
    std::fs::write(folder.path().join("own.toml"), text).unwrap();
    std::fs::write(folder.path().join("routes.toml"), format!("\"a.test\" = {}\n", a.port())).unwrap();
    let carom = Carom::in_folder(folder, &["serve", "--config", "own.toml", "--workers", "1"]);
    carom.client().get("a.test", "/both");
    carom.logged_path("/both");
    assert!(wait_lines(&carom, "own.log", 1).contains("\"path\":\"/both\""));
}

#[test]
fn a_site_that_wants_no_log_has_none() {
    let a = Origin::named("a");
    let port = a.port();
    let routes = format!("\"a.test\" = {port}\n\"quiet.test\" = {{ to = {port}, log = false }}\n");
    let carom = Carom::serving(routes).start();
    let mut client = carom.client();
    client.get("quiet.test", "/secret");
    client.get("a.test", "/said");
    carom.logged_path("/said");
    assert_eq!(carom.log().len(), 1);
}

#[test]
fn a_request_has_a_name_and_a_trusted_peer_may_give_it() {
    let a = Origin::named("a");
    let trusting = |trust: &str| {
        let config = format!("[forwarded]\nrequest_id = true\ntrust = [{trust}]\n");
        Carom::to(a.port()).config(&config).start()
    };
    let (open, strict) = (trusting("\"127.0.0.1\""), trusting(""));
    let ask = |carom: &Carom, path: &str, fields: &[&str]| {
        carom.client().ask(request(&format!("GET {path}"), "a.test", fields));
        let seen = a.requests().pop().unwrap();
        let logged = carom.logged_path(path)["id"].as_str().unwrap().to_owned();
        let sent: Vec<String> = seen.all("X-Request-Id").into_iter().map(str::to_owned).collect();
        assert_eq!(sent, std::slice::from_ref(&logged), "the backend is told the name that is logged, once");
        logged
    };
    assert_eq!(ask(&open, "/kept", &["x-request-id: abc-1"]), "abc-1");
    let made = ask(&strict, "/made", &["x-request-id: abc-1"]);
    assert!(made.len() == 32 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{made}");
    assert_ne!(ask(&strict, "/other", &[]), made);
    // One that no log could hold is not kept.
    assert_eq!(ask(&open, "/odd", &["x-request-id: a b"]).len(), 32);
}

#[test]
fn tracing_fields_pass_as_they_are() {
    let a = Origin::named("a");
    let carom = Carom::to(a.port()).start();
    let fields = ["traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Request-Id: mine"];
    carom.client().ask(request("GET /", "a.test", &fields));
    let seen = a.requests().pop().unwrap();
    assert_eq!(seen.all("traceparent"), ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]);
    assert_eq!(seen.all("X-Request-Id"), ["mine"]);
}

#[test]
fn a_line_says_how_long_each_phase_took_and_who_closed() {
    let a = Origin::new(|conn| {
        while conn.request().is_some() {
            conn.pause(30);
            conn.send(reply("200 OK", &[], "x"));
        }
    });
    let carom = Carom::to(a.port()).start();
    let mut client = carom.client();
    client.send("GET /slow HTTP/1.1\r\n");
    client.pause(400);
    client.send("Host: a.test\r\n\r\n");
    client.response();
    client.ask(request("GET /again", "a.test", &["Connection: close"]));
    let (slow, again) = (carom.logged_path("/slow"), carom.logged_path("/again"));
    let ms = |entry: &serde_json::Value, name: &str| entry[name].as_f64().unwrap_or(-1.0);
    assert!(ms(&slow, "head_ms") >= 100.0 && ms(&slow, "connect_ms") > 0.0, "{slow}");
    assert!(ms(&slow, "first_byte_ms") >= ms(&slow, "head_ms") + ms(&slow, "connect_ms") + 25.0, "{slow}");
    assert!(slow["closed"].is_null() && again["connect_ms"].is_null(), "{slow} {again}");
    assert_eq!(again["closed"], "client");
    let mut bad = carom.client();
    bad.send("BAD\r\n\r\n");
    bad.response();
    assert_eq!(carom.logged("the refused one", |entry| entry["reason"] == "malformed-head")["closed"], "carom");
}
