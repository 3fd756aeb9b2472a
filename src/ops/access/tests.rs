use super::*;
use crate::http::refuse::Fault;
use crate::record::Side;
use crate::table::backend::{Address, Backend};
use std::time::{Duration, SystemTime};

fn record<'a>(backend: &'a Backend) -> Record<'a> {
    Record {
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567),
        client: "192.0.2.7:4711".parse().unwrap(),
        scheme: "https",
        protocol: "HTTP/1.1",
        method: b"GET",
        host: "a.test",
        target: b"/x\"\x1b[2J\xff?y",
        fields: &[],
        id: "af01",
        status: 502,
        received: 100,
        sent: 2_345,
        sent_head: 345,
        route: Some("*.test"),
        is_logged: true,
        backend: Some(backend),
        tries: 2,
        head: Duration::from_micros(120),
        connect: Some(Duration::from_micros(80)),
        first_byte: None,
        total: Duration::from_micros(3_210),
        closed: Some(Side::Client),
        reason: Some(("backend-closed", Fault::Backend)),
    }
}

#[test]
fn a_json_line_is_one_object_whatever_a_peer_sends() {
    let mut out = Vec::new();
    json::write(&mut out, &record(&Backend::new(Address::Port(8001))), &mut Stamp::default());
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"time\":\"1970-01-01T00:20:34.567Z\",\"id\":\"af01\",\"client\":\"192.0.2.7:4711\",\"scheme\":\"https\",\
             \"protocol\":\"HTTP/1.1\",\"method\":\"GET\",\"host\":\"a.test\",\
         \"path\":\"/x\\\"\\u001b[2J\u{fffd}?y\",\"status\":502,\"received\":100,\"sent\":2345,\"route\":\"*.test\",\
         \"backend\":\"8001\",\"tries\":2,\"head_ms\":0.12,\"connect_ms\":0.08,\"total_ms\":3.21,\
         \"closed\":\"client\",\"reason\":\"backend-closed\"}\n"
    );
}

#[test]
fn a_pretty_line_says_it_in_a_line_and_moves_no_cursor() {
    let mut out = Vec::new();
    pretty::write(&mut out, &record(&Backend::new(Address::Port(8001))), false).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "00:20:34.567 192.0.2.7 GET a.test/x\"\u{fffd}[2J\u{fffd}?y 502 2.3 kB 3.2 ms → 8001 (try 2) backend-closed\n"
    );
}

#[test]
fn a_connection_that_was_passed_through_has_a_line_too() {
    let backend = Backend::new(Address::Port(8001));
    let passed = Record { method: b"-", target: b"", status: 0, tries: 1, reason: None, ..record(&backend) };
    let mut out = Vec::new();
    pretty::write(&mut out, &passed, false).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "00:20:34.567 192.0.2.7 - a.test passed through 2.3 kB 3.2 ms → 8001\n"
    );
}

#[test]
fn lines_are_dropped_and_counted_when_the_writer_is_stuck() {
    let (batches, _kept) = sync_channel(1);
    let access = Access { format: Format::Json, redact: Redact::default(), batches, signs: Arc::default() };
    let mut lines = access.for_worker();
    for _ in 0..3 {
        lines.request(&record(&Backend::new(Address::Port(8001))));
        lines.flush();
    }
    assert_eq!(access.signs.dropped.load(Ordering::Relaxed), 2);
}

fn templated(template: &str, record: &Record<'_>) -> String {
    let mut out = Vec::new();
    Template::parse(template).unwrap().write(&mut out, record);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_combined_format_is_as_log_readers_expect_it() {
    let backend = Backend::new(Address::Port(8001));
    let fields = [None, Some(Box::from(*b"curl \"8\"\n"))];
    let mut out = Vec::new();
    Template::combined().write(&mut out, &Record { fields: &fields, ..record(&backend) });
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "192.0.2.7 - - [01/Jan/1970:00:20:34 +0000] \"GET /x\\x22\\x1B[2J\\xFF?y HTTP/1.1\" 502 2000 \"-\" \
         \"curl \\x228\\x22\\x0A\"\n"
    );
    assert_eq!(*Template::combined().fields(), [Box::from("referer"), Box::from("user-agent")]);
}

#[test]
fn a_template_names_what_it_wants() {
    let backend = Backend::new(Address::Port(8001));
    let line = templated("{{{id}}} {host} {backend} {connect_ms}/{first_byte_ms} {closed} {reason}", &record(&backend));
    assert_eq!(line, "{af01} a.test 8001 0.08/- client backend-closed\n");
    let every: String = values::Value::names().map(|name| format!("{{{name}}} ")).collect();
    assert_eq!(templated(&every, &record(&backend)).split(' ').count(), values::Value::names().count() + 4);
}

#[test]
fn a_template_that_can_not_be_says_where_and_what_would_be_right() {
    for (text, at, what) in [
        ("{client} {stats}", 9, "nothing is called {stats}: time,"),
        ("{client} {status", 9, "not closed"),
        ("a } b", 2, "closes nothing"),
        ("{header:}", 0, "no name of a field"),
        ("{header:a b}", 0, "no name of a field"),
        ("a\nb", 0, "line break"),
    ] {
        let bad = Template::parse(text).unwrap_err();
        assert!(bad.at == at && bad.what.contains(what), "{text}: {bad:?}");
    }
}

#[test]
fn what_is_redacted_is_not_in_the_line() {
    let backend = Backend::new(Address::Port(8001));
    let fields = [Some(Box::from(*b"https://b.test/?secret")), Some(Box::from(*b"token"))];
    let names = [Box::from("referer"), Box::from("x-key")];
    let whole = Record { fields: &fields, target: b"/x?secret", ..record(&backend) };
    let redact = |redact: Redact| {
        let mut line = String::new();
        redact.apply(&whole, &names, |record| {
            line = templated("{client} {path} {header:referer} {header:x-key}", record)
        });
        line
    };
    assert_eq!(redact(Redact::default()), "192.0.2.7 /x?secret https://b.test/?secret token\n");
    let query = Redact { query: true, client: true, ..Redact::default() };
    assert_eq!(redact(query), "192.0.2.0 /x?[redacted] https://b.test/?[redacted] token\n");
    let fields = Redact { path: true, fields: vec!["x-key".into()], ..Redact::default() };
    assert_eq!(redact(fields), "192.0.2.7 [redacted] https://b.test/?secret [redacted]\n");
}
