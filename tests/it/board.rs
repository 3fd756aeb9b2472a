//! The status listener: what it counts, and whom it tells.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::support::carom::Setup;
use crate::support::load::Load;
use crate::support::origin::DeadPort;
use crate::support::tls::pem;
use crate::support::{Carom, Client, Gate, Message, Origin, poll_until, reply, request};

const TOKEN: &str = "0123456789abcdef-long";

/// With a status listener, on a port of this machine.
fn watched(routes: impl ToString) -> Setup {
    Carom::serving(routes).config("[status]\nlisten = \"127.0.0.1:0\"")
}

/// Where the status listener is.
#[track_caller]
fn board(carom: &Carom) -> SocketAddr {
    let line =
        carom.stderr(0, "where the status listener is", |line| line.starts_with("carom: status page on http://"));
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    address.expect("an address").parse().expect("an address")
}

#[track_caller]
fn ask(carom: &Carom, target: &str, fields: &[&str]) -> Message {
    let board = board(carom);
    Client::connect(board).ask(request(&format!("GET {target}"), &board.to_string(), fields))
}

/// Every sample by its name with its labels.
#[track_caller]
fn samples(carom: &Carom) -> BTreeMap<String, f64> {
    let answer = ask(carom, "/metrics", &[]);
    assert_eq!(
        (answer.status(), answer.field("content-type")),
        (200, Some("text/plain; version=0.0.4; charset=utf-8"))
    );
    let text = answer.text();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
        })
        .collect()
}

/// What is counted is handed over ten times a second.
#[track_caller]
fn wait_for(carom: &Carom, name: &str, value: f64) {
    poll_until(&format!("{name} {value}"), || samples(carom).get(name).is_some_and(|found| *found == value));
}

#[test]
fn requests_are_counted_by_site_backend_and_class_and_measured() {
    let (a, dead) = (Origin::named("a"), DeadPort::new());
    let (good, bad) = (a.port(), dead.port());
    let carom = watched(format!("\"a.test\" = {good}\n\"b.test\" = {bad}\n")).workers(2).start();
    let mut client = carom.client();
    for _ in 0..3 {
        assert_eq!(client.get("a.test", "/").status(), 200);
    }
    assert_eq!(client.get("b.test", "/").status(), 502);
    // Whatever a client asks for makes no series.
    for number in 0..20 {
        assert_eq!(client.get(&format!("evil-{number}.test"), "/").status(), 404);
    }
    wait_for(&carom, "carom_requests_total{site=\"\",backend=\"\",class=\"4xx\"}", 20.0);
    let samples = samples(&carom);
    let of = |name: &str| samples.get(name).copied();
    assert_eq!(of(&format!("carom_requests_total{{site=\"a.test\",backend=\"{good}\",class=\"2xx\"}}")), Some(3.0));
    assert_eq!(of(&format!("carom_requests_total{{site=\"b.test\",backend=\"{bad}\",class=\"5xx\"}}")), Some(1.0));
    assert_eq!(of("carom_request_duration_seconds_count{site=\"a.test\"}"), Some(3.0));
    assert_eq!(of("carom_request_duration_seconds_bucket{site=\"a.test\",le=\"+Inf\"}"), Some(3.0), "{samples:#?}");
    assert_eq!(of(&format!("carom_backend_duration_seconds_count{{site=\"a.test\",backend=\"{good}\"}}")), Some(3.0));
    assert_eq!(of("carom_refusals_total{reason=\"backend-refused\"}"), Some(1.0));
    assert_eq!(of("carom_refusals_total{reason=\"no-route\"}"), Some(20.0));
    assert!(of("carom_bytes_total{site=\"a.test\",direction=\"out\"}") > Some(100.0));
    assert_eq!(of("carom_connections"), Some(1.0));
    assert_eq!(of("carom_backend_idle_connections"), Some(1.0));
    assert_eq!(of(&format!("carom_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"))), Some(1.0));
    for name in
        ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"]
    {
        assert!(of(name) >= Some(0.0), "{name}");
    }
    assert!(!samples.keys().any(|name| name.contains("evil")), "{samples:#?}");
}

#[test]
fn health_tunnels_reloads_and_certificates_are_told_as_they_are() {
    let a = Origin::new(|conn| {
        if conn.request().is_some() {
            conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: chat\r\nConnection: Upgrade\r\n\r\n");
            conn.echo();
        }
    });
    let dead = DeadPort::new();
    let (good, bad) = (a.port(), dead.port());
    let routes = format!(
        "\"a.test\" = {good}\n[\"b.test\"]\nto = [{bad}, {bad}]\nhealth = {{ path = \"/\", interval = \"100ms\" }}\n"
    );
    let carom = watched(&routes).tls("a.pem", pem(&["www.test"])).start();
    wait_for(&carom, &format!("carom_backend_up{{site=\"b.test\",backend=\"{bad}\"}}"), 0.0);
    wait_for(&carom, &format!("carom_backend_up{{site=\"a.test\",backend=\"{good}\"}}"), 1.0);
    wait_for(&carom, "carom_tunnels", 0.0);
    let mut client = carom.client();
    client.send(request("GET /chat", "a.test", &["Connection: Upgrade", "Upgrade: chat"]));
    assert_eq!(client.response_head().status(), 101);
    wait_for(&carom, "carom_tunnels", 1.0);
    wait_for(&carom, &format!("carom_backend_in_flight{{site=\"a.test\",backend=\"{good}\"}}"), 1.0);
    client.half_close();
    client.expect_end();
    wait_for(&carom, "carom_tunnels", 0.0);
    wait_for(&carom, &format!("carom_requests_total{{site=\"a.test\",backend=\"{good}\",class=\"tunnel\"}}"), 1.0);
    let before = samples(&carom);
    assert_eq!(before["carom_reloads_total{result=\"applied\"}"], 0.0);
    assert!(before["carom_certificate_expiry_timestamp_seconds{name=\"www.test\"}"] > 1e9, "{before:#?}");
    assert_eq!(carom.verb(&["reload"]).0, Some(0));
    std::fs::write(carom.routes_file(), "\"a.test\" = 99999\n").unwrap();
    wait_for(&carom, "carom_reloads_total{result=\"refused\"}", 1.0);
    let after = samples(&carom);
    assert_eq!((after["carom_reloads_total{result=\"applied\"}"], after["carom_routes_current"]), (1.0, 0.0));
    assert!(after["carom_reload_timestamp_seconds"] >= before["carom_reload_timestamp_seconds"]);
}

#[test]
fn who_asks_for_openmetrics_gets_it() {
    let carom = watched("\"a.test\" = 1\n").start();
    assert_eq!(carom.client().get("b.test", "/").status(), 404);
    wait_for(&carom, "carom_requests_total{site=\"\",backend=\"\",class=\"4xx\"}", 1.0);
    let answer = ask(&carom, "/metrics", &["Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5"]);
    assert_eq!(answer.field("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let text = answer.text();
    assert!(text.ends_with("# EOF\n") && text.contains("# TYPE carom_requests counter\n"), "{text}");
    assert!(text.contains("carom_requests_total{site=\"\",backend=\"\",class=\"4xx\"} 1\n"), "{text}");
}

#[test]
fn without_a_token_only_names_of_this_machine_are_answered() {
    let carom = watched("\"a.test\" = 1\n").start();
    let board = board(&carom);
    let get = |host: &str| Client::connect(board).ask(request("GET /metrics", host, &[]));
    for host in ["localhost", "127.0.0.1:9", "[::1]"] {
        assert_eq!(get(host).status(), 200, "{host}");
    }
    for host in ["evil.test", "localhost.evil.test", "192.0.2.1"] {
        let answer = get(host);
        assert!(answer.status() == 403 && !answer.text().contains("carom_"), "{host}");
    }
    let answer = Client::connect(board).ask(request("POST /metrics", "localhost", &["Content-Length: 0"]));
    assert_eq!((answer.status(), answer.field("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn with_a_token_those_are_answered_who_have_it() {
    let carom = Carom::to(1).config(&format!("[status]\nlisten = \"0.0.0.0:0\"\ntoken = \"{TOKEN}\"")).start();
    let board = SocketAddr::from(([127, 0, 0, 1], board(&carom).port()));
    let get = |target: &str, fields: &[&str]| {
        Client::connect(board).ask(request(&format!("GET {target}"), "status.example.com", fields))
    };
    let bearer = format!("Authorization: Bearer {TOKEN}");
    assert_eq!(get("/metrics", &[&bearer]).status(), 200);
    for fields in [&[][..], &["Authorization: Bearer 0123456789abcdef-lonG"], &["Cookie: carom-status=1"]] {
        let answer = get("/metrics", fields);
        assert_eq!((answer.status(), answer.field("www-authenticate")), (401, Some("Bearer")));
        assert!(!answer.text().contains("carom_"), "{}", answer.text());
    }
    let answer = get(&format!("/metrics?token={TOKEN}"), &[]);
    assert_eq!((answer.status(), answer.field("location")), (303, Some("/metrics")));
    let cookie = answer.field("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    assert!(!cookie.contains(TOKEN));
    assert_eq!(get("/metrics", &[&format!("Cookie: {cookie}")]).status(), 200);
}

#[test]
fn an_address_for_others_needs_a_token_and_one_that_is_taken_is_said_to_be() {
    let (code, said) = Carom::to(1).config("[status]\nlisten = \"[::]:0\"").fail();
    assert!(code == Some(1) && said.contains("carom.toml:2:10") && said.contains("there is no token"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("routes.toml"), "\"a.test\" = 1\n").unwrap();
    let check = |address: &str| {
        let mut command = std::process::Command::new(crate::support::carom::BINARY);
        command.args(["check", "--status", address, "--state", "state"]).current_dir(folder.path());
        crate::support::carom::run(&mut command)
    };
    assert_eq!(check("127.0.0.1:9180").0, Some(0));
    let (code, said) = check("9180");
    assert!(
        code == Some(1) && said.contains("help: --status 127.0.0.1:9180; or in carom.toml [status] token"),
        "{said}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (code, said) = Carom::to(1).config(&format!("[status]\nlisten = \"{address}\"")).fail();
    assert!(code == Some(3) && said.contains(&format!("can't listen on {address}")), "{said}");
}

#[test]
fn sites_are_served_while_somebody_hangs_on_the_status_listener() {
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    let a = Origin::new(move |conn| {
        if conn.request().is_some() {
            opened.wait();
            conn.send(reply("200 OK", &[], "late"));
        }
    });
    let carom = watched(format!("\"a.test\" = {}\n", a.port())).start();
    let board = board(&carom);
    let mut half = Client::connect(board);
    half.send("GET /metrics HT");
    let crowd: Vec<Client> = (0..80).map(|_| Client::connect(board)).collect();
    let mut client = carom.client();
    client.send(request("GET /", "a.test", &[]));
    gate.open();
    assert_eq!(client.response().text(), "late");
    drop(crowd);
    assert_eq!(ask(&carom, "/metrics", &[]).status(), 200);
}

/// The first event whose text has this in it.
#[track_caller]
fn event(client: &mut Client, wanted: &str) -> serde_json::Value {
    let mut text = String::new();
    loop {
        text.push_str(&String::from_utf8_lossy(&client.some()));
        let whole = text.split("\n\n").find(|event| event.contains(wanted) && text.contains(&format!("{event}\n\n")));
        if let Some(event) = whole {
            let data = event.split("data: ").nth(1).expect("data").lines().next().expect("a line");
            return serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
        }
    }
}

#[track_caller]
fn listen(board: SocketAddr) -> Client {
    let mut client = Client::connect(board);
    client.send(request("GET /events", &board.to_string(), &[]));
    let head = client.response_head();
    assert_eq!((head.status(), head.field("content-type")), (200, Some("text/event-stream")));
    client
}

#[test]
fn the_page_is_told_once_a_second_what_goes_on() {
    let (a, dead) = (Origin::named("a"), DeadPort::new());
    let routes = format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), dead.port());
    let carom = watched(&routes).start();
    let mut page = listen(board(&carom));
    let first = event(&mut page, "rates");
    assert!(first["rates"].is_null() && first["status"]["sites"][0]["name"] == "a.test", "{first}");
    let load = Load::on(&carom, 1);
    let told = event(&mut page, "\"a.test\":{\"requests\":");
    assert!(told["rates"]["requests"].as_f64() > Some(0.0) && told["rates"]["p50"].as_f64() > Some(0.0), "{told}");
    assert_eq!(load.end().failed(None), 0);
    assert_eq!(carom.client().get("b.test", "/x?y").status(), 502);
    let told = event(&mut page, "backend-refused");
    assert_eq!((&told["reasons"][0][0], &told["reasons"][0][1]), (&"backend-refused".into(), &1.into()));
    let failure = &told["failures"][0];
    assert_eq!((&failure["route"], &failure["status"]), (&"b.test".into(), &502.into()));
    // The next one that comes is told at once, of what is and not of what was.
    drop(page);
    carom.reroute(&format!("{routes}\"c.test\" = 1\n"));
    let told = event(&mut listen(board(&carom)), "c.test");
    assert_eq!(told["status"]["sites"].as_array().map(Vec::len), Some(3));
    let history = ask(&carom, "/history", &[]);
    let history: serde_json::Value = serde_json::from_str(&history.text()).unwrap();
    assert!(history[0]["number"] == 2 && history[0]["diff"].as_str().unwrap().contains("+ c.test"), "{history}");
}

#[test]
fn as_many_pages_are_told_as_there_is_room_for() {
    let carom = watched("\"a.test\" = 1\n").start();
    let board = board(&carom);
    let mut pages: Vec<Client> = (0..16).map(|_| listen(board)).collect();
    assert_eq!(ask(&carom, "/events", &[]).status(), 503);
    assert_eq!(event(pages.last_mut().unwrap(), "time_ms")["status"]["sites"][0]["name"], "a.test");
    drop(pages);
    poll_until("that there is room again", || {
        let mut client = Client::connect(board);
        client.send(request("GET /events", &board.to_string(), &[]));
        client.response_head().status() == 200
    });
}

#[test]
fn the_page_asks_nobody_else_for_anything() {
    let carom = watched("\"a.test\" = 1\n").start();
    let page = ask(&carom, "/", &[]);
    assert_eq!((page.status(), page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.field("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none';") && !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    let text = page.text();
    let places = ["src=\"", "href=\""].into_iter().flat_map(|before| text.split(before).skip(1));
    let places: Vec<&str> = places.map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(places.len() > 4, "{places:?}");
    for place in places.iter().filter(|place| !place.starts_with(['#']) && **place != "data:,") {
        assert!(!place.contains(':') && !place.starts_with('/'), "{place}");
        assert_eq!(ask(&carom, &format!("/{place}"), &[]).status(), 200, "{place}");
    }
    assert_eq!(ask(&carom, "/nothing", &[]).status(), 404);
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let text = include_str!("../../config/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let asked = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let asked: Vec<&str> = asked.map(|target| target["expr"].as_str().unwrap()).collect();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let asked: Vec<&str> =
        asked.into_iter().chain(variables.filter_map(|variable| variable["definition"].as_str())).collect();
    let (a, dead) = (Origin::named("a"), DeadPort::new());
    let routes = format!("\"a.test\" = {}\n\"b.test\" = {}\n", a.port(), dead.port());
    let carom = watched(routes).tls("a.pem", pem(&["www.test"])).start();
    let mut client = carom.client();
    assert_eq!((client.get("a.test", "/").status(), client.get("b.test", "/").status()), (200, 502));
    wait_for(&carom, "carom_refusals_total{reason=\"backend-refused\"}", 1.0);
    let there: Vec<String> =
        samples(&carom).into_keys().map(|name| name.split('{').next().unwrap().to_owned()).collect();
    let mut names = 0;
    for expression in &asked {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("carom_") || word.starts_with("process_")) {
            assert!(there.iter().any(|other| other == name), "{name} in {expression}: {there:#?}");
            names += 1;
        }
    }
    assert!(names > 15, "{names}");
}
