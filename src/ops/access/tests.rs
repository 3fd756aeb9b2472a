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

#[test]
fn numbers_and_times_are_as_short_as_they_can_be() {
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    };
    for number in [0, 9, 10, 99, 100, 404, 999, 1000, 65_535, u64::MAX] {
        assert_eq!(written(&|out| values::number(out, number)), number.to_string());
    }
    let milliseconds = |time| written(&|out| values::write_milliseconds(out, time));
    for (micros, text) in [(0, "0.0"), (1, "0.001"), (10, "0.01"), (100, "0.1"), (1_020, "1.02"), (3_210_000, "3210.0")]
    {
        assert_eq!(milliseconds(Duration::from_micros(micros)), text);
    }
    assert_eq!(milliseconds(Duration::from_nanos(999)), "0.0");
}

#[test]
fn what_one_line_says_of_time_another_one_does_not_inherit() {
    let mut stamp = Stamp::default();
    let mut at = |milliseconds| {
        let mut out = Vec::new();
        stamp.write(&mut out, SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds));
        String::from_utf8(out).unwrap()
    };
    assert_eq!(at(1_234_567), "1970-01-01T00:20:34.567Z");
    assert_eq!(at(1_234_999), "1970-01-01T00:20:34.999Z");
    assert_eq!(at(1_235_000), "1970-01-01T00:20:35.000Z");
    // Those that took longer began earlier.
    assert_eq!(at(1_234_001), "1970-01-01T00:20:34.001Z");
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
