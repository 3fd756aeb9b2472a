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
    assert_eq!((&entry["status"], &entry["reason"]), (&200.into(), &"backend-cut".into()));
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
