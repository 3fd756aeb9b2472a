//! What the frames of a client may not say, and what it gets for it: RFC 9113 sections 3 to 8, and RFC 7541.
//!
//! Each case has a connection of its own, on which preface and settings have been exchanged unless it says otherwise. A
//! connection that got no connection error serves another request afterwards.
//!
//! Three things are h2's way and not the letter of the RFC, and harm nobody: a broken frame or block is a PROTOCOL_ERROR
//! where there is a code of its own; what makes one request malformed may end the connection (which section 5.4.2 allows);
//! pseudo fields in trailers are left out, and the first frame may be another one than SETTINGS.

use crate::support::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PADDED, PING, PREFACE, PRIORITY,
    PUSH_PROMISE, RST_STREAM, Reaction, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY, block, frame, get, integer, open,
    request, settings, with,
};
use crate::support::{Carom, Origin, reply};

use Reaction::{Answer, Closed, Goaway, Reset};

/// Error codes (RFC 9113 section 7).
const PROTOCOL: u32 = 1;
const FLOW_CONTROL: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE: u32 = 6;
const COMPRESSION: u32 = 9;

/// The section, what is sent, and which reactions are right. None at all: it is ignored.
type Case = (&'static str, &'static str, Vec<u8>, &'static [Reaction]);

fn carom(origin: &Origin) -> Carom {
    Carom::to(origin.port()).config("[http2]\nprior_knowledge = true\nstreams = 10").start()
}

/// Answers every request once it has been read whole.
fn answering() -> Origin {
    Origin::new(|conn| {
        while let Some(request) = conn.request() {
            let whole = reply("200 OK", &[], "ok");
            let head = whole.len() - 2;
            conn.send(if request.method() == "HEAD" { &whole[..head] } else { &whole });
        }
    })
}

#[track_caller]
fn run(cases: Vec<Case>) {
    let origin = answering();
    let carom = carom(&origin);
    assert!(!cases.is_empty());
    let mut wrong = Vec::new();
    for (section, what, bytes, right) in cases {
        let mut client = Frames::connect(carom.address());
        client.send(bytes);
        if right.is_empty() {
            if !client.is_alive() {
                wrong.push(format!("{section} {what}: the connection ended"));
            }
            continue;
        }
        let reaction = client.reaction();
        if !right.contains(&reaction) {
            wrong.push(format!("{section} {what}: {reaction:?} instead of {right:?}"));
        } else if matches!(reaction, Answer(..) | Reset(..)) {
            client.send(request(101, get("/afterwards")));
            let mut afterwards = client.reaction();
            // What else the case has led to may come first.
            while !matches!(afterwards, Answer(101, _) | Goaway(_) | Closed) {
                afterwards = client.reaction();
            }
            if afterwards != Answer(101, 200) {
                wrong.push(format!("{section} {what}: {afterwards:?} afterwards"));
            }
        } else if matches!(reaction, Goaway(_)) {
            while client.next().is_some() {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Many of the shapes that frames may have, and that must be taken.
#[test]
fn what_is_right_is_taken() {
    let padded = |padding: usize, payload: &[u8]| {
        let mut bytes = vec![padding as u8];
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len() + padding, 0);
        bytes
    };
    let priority = |on: u32, weight: u8| [&on.to_be_bytes()[..], &[weight]].concat();
    let post = with("POST", "/", &[]);
    let (first, rest) = post.split_at(10);
    let (second, third) = rest.split_at(5);
    run(vec![
        ("4.1", "a type that nobody knows", frame(200, 0xff, 0, "?"), &[]),
        ("4.1", "a flag that means nothing", frame(PING, 0xfe, 0, [0; 8]), &[]),
        ("4.1", "the reserved bit", frame(PING, 0, 1 << 31, [0; 8]), &[]),
        ("5.1", "a priority for a stream that is idle", frame(PRIORITY, 0, 1, priority(0, 16)), &[]),
        ("5.1", "GET", request(1, get("/")), &[Answer(1, 200)]),
        ("5.1", "HEAD", request(1, with("HEAD", "/", &[])), &[Answer(1, 200)]),
        (
            "5.1",
            "a priority for a stream that is half closed",
            [request(1, get("/")), frame(PRIORITY, 0, 1, priority(0, 1))].concat(),
            &[Answer(1, 200)],
        ),
        (
            "5.1",
            "a window for a stream that is half closed",
            [request(1, get("/")), frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1])].concat(),
            &[Answer(1, 200)],
        ),
        (
            "5.1",
            "a reset of a stream that is half closed",
            [request(1, get("/")), frame(RST_STREAM, 0, 1, [0, 0, 0, 8])].concat(),
            &[],
        ),
        ("5.5", "an extension", [frame(0x16, 0, 0, [0; 8]), request(1, get("/"))].concat(), &[Answer(1, 200)]),
        ("6.1", "a body", [open(1, &post), frame(DATA, END_STREAM, 1, "body")].concat(), &[Answer(1, 200)]),
        (
            "6.1",
            "a body in pieces",
            [open(1, &post), frame(DATA, 0, 1, "bo"), frame(DATA, 0, 1, ""), frame(DATA, END_STREAM, 1, "dy")].concat(),
            &[Answer(1, 200)],
        ),
        (
            "6.1",
            "a padded body",
            [open(1, &post), frame(DATA, END_STREAM | PADDED, 1, padded(5, b"body"))].concat(),
            &[Answer(1, 200)],
        ),
        (
            "4.2",
            "a frame of the largest size",
            [open(1, &post), frame(DATA, END_STREAM, 1, vec![b'x'; 1 << 14])].concat(),
            &[Answer(1, 200)],
        ),
        (
            "6.2",
            "a padded head",
            frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, padded(9, &get("/"))),
            &[Answer(1, 200)],
        ),
        (
            "6.2",
            "a head with a priority",
            frame(HEADERS, END_HEADERS | END_STREAM | WITH_PRIORITY, 1, [priority(0, 255), get("/")].concat()),
            &[Answer(1, 200)],
        ),
        (
            "6.3",
            "an exclusive priority",
            [frame(PRIORITY, 0, 1, priority(1 << 31, 255)), request(1, get("/"))].concat(),
            &[Answer(1, 200)],
        ),
        (
            "6.3",
            "a priority for a later stream",
            [frame(PRIORITY, 0, 5, priority(0, 255)), request(1, get("/"))].concat(),
            &[Answer(1, 200)],
        ),
        (
            "6.5",
            "every setting there is",
            [settings(&[(1, 100), (2, 0), (3, 7), (4, 70_000), (5, 20_000), (6, 9000)]), request(1, get("/"))].concat(),
            &[Answer(1, 200)],
        ),
        (
            "6.5.2",
            "a setting that nobody knows",
            [settings(&[(0xff, 1)]), request(1, get("/"))].concat(),
            &[Answer(1, 200)],
        ),
        (
            "6.9",
            "windows",
            [frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1]), request(1, get("/"))].concat(),
            &[Answer(1, 200)],
        ),
        (
            "6.10",
            "a head in three frames",
            [
                frame(HEADERS, END_STREAM, 1, first),
                frame(CONTINUATION, 0, 1, second),
                frame(CONTINUATION, END_HEADERS, 1, third),
            ]
            .concat(),
            &[Answer(1, 200)],
        ),
        (
            "6.10",
            "a head whose last frame is empty",
            [frame(HEADERS, END_STREAM, 1, &post), frame(CONTINUATION, END_HEADERS, 1, "")].concat(),
            &[Answer(1, 200)],
        ),
        (
            "7",
            "a reset for a reason that nobody knows",
            [open(1, &post), frame(RST_STREAM, 0, 1, [0, 0, 0, 0xff])].concat(),
            &[],
        ),
        (
            "8.1",
            "trailers",
            [open(1, &post), frame(DATA, 0, 1, "body"), request(1, block(&[("x-sum", "1")]))].concat(),
            &[Answer(1, 200)],
        ),
        (
            "8.1",
            "a length that is right",
            [open(1, with("POST", "/", &[("content-length", "4")])), frame(DATA, END_STREAM, 1, "body")].concat(),
            &[Answer(1, 200)],
        ),
        ("8.2.2", "te: trailers", request(1, with("GET", "/", &[("te", "trailers")])), &[Answer(1, 200)]),
        (
            "8.3.1",
            "a Host instead of an :authority",
            request(1, block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), ("host", "a.test")])),
            &[Answer(1, 200)],
        ),
        ("8.3.1", "OPTIONS *", request(1, with("OPTIONS", "*", &[])), &[Answer(1, 200)]),
    ]);
}

#[test]
fn connections_begin_with_the_preface() {
    let origin = answering();
    let carom = carom(&origin);
    // RFC 9113 section 3.4: what begins differently is no HTTP/2; here it may still be HTTP/1.
    for (bytes, head) in
        [(&b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..], None), (b"PRI / HTTP/2.0\r\n\r\n", Some("HTTP/1.1 400 "))]
    {
        let mut client = carom.client();
        client.send(bytes);
        let (rest, _) = client.rest();
        let text = String::from_utf8_lossy(&rest);
        match head {
            Some(head) => assert!(text.starts_with(head), "{text}"),
            None => assert!(!text.starts_with("HTTP/"), "{text}"),
        }
    }
    // The preface may come byte by byte, and its settings together with a request.
    for split in 1..PREFACE.len() {
        let mut client = Frames::silent(carom.address());
        client.send(&PREFACE[..split]);
        std::thread::yield_now();
        for byte in &PREFACE[split..] {
            client.send([*byte]);
        }
        client.send([settings(&[]), request(1, get("/"))].concat());
        assert_eq!(client.find(SETTINGS).flags, 0, "split at {split}");
        assert_eq!(client.reaction(), Answer(1, 200), "split at {split}");
    }
}

#[test]
fn pings_and_settings_are_answered_once() {
    let origin = answering();
    let carom = carom(&origin);
    let mut client = Frames::connect(carom.address());
    // 6.7: an answer is not answered.
    client.send(frame(PING, ACK, 0, b"not mine"));
    client.send(frame(PING, 0, 0, b"12345678"));
    let pong = client.find(PING);
    assert_eq!((pong.flags, pong.payload.as_slice()), (ACK, &b"12345678"[..]));
    // 6.5.3
    client.send(settings(&[(4, 100), (4, 1000)]));
    assert_eq!(client.find(SETTINGS).flags, ACK);
}

#[test]
fn windows_hold_back_what_is_sent() {
    let origin = answering();
    let carom = carom(&origin);
    // 6.9.1: no more is sent than there is room for.
    let mut client = Frames::connect(carom.address());
    client.send([settings(&[(4, 1)]), request(1, get("/"))].concat());
    let data = client.find(DATA);
    assert_eq!((data.payload.as_slice(), data.flags & END_STREAM), (&b"o"[..], 0));
    client.send(frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 5]));
    assert_eq!(client.find(DATA).payload, b"k");
    // 6.9.2: a change of the first window holds for streams that are open, and may make it negative.
    let mut client = Frames::connect(carom.address());
    client.send([settings(&[(4, 0)]), request(1, get("/"))].concat());
    assert_eq!(client.reaction(), Answer(1, 200));
    client.send(settings(&[(4, 1)]));
    assert_eq!(client.find(DATA).payload, b"o");
    client.send(settings(&[(4, 0)]));
    client.send(frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 2]));
    assert_eq!(client.find(DATA).payload, b"k");
}

#[test]
fn a_broken_frame_ends_the_connection() {
    let post = with("POST", "/", &[]);
    let goaway = |stream: u32| frame(GOAWAY, 0, stream, [0; 8]);
    run(vec![
        (
            "4.2",
            "DATA beyond the largest size",
            [open(1, &post), frame(DATA, END_STREAM, 1, vec![0; (1 << 14) + 1])].concat(),
            &[Goaway(FRAME_SIZE), Goaway(PROTOCOL)],
        ),
        (
            "4.2",
            "HEADERS beyond the largest size",
            request(1, with("GET", "/", &[("x", &"y".repeat(1 << 14))])),
            &[Goaway(FRAME_SIZE), Goaway(PROTOCOL)],
        ),
        (
            "4.3",
            "a block that is none",
            request(1, [0x3f, 0xff, 0xff, 0xff, 0xff, 0xff]),
            &[Goaway(COMPRESSION), Goaway(PROTOCOL)],
        ),
        (
            "4.3",
            "PRIORITY within a head",
            [frame(HEADERS, END_STREAM, 1, get("/")), frame(PRIORITY, 0, 1, [0, 0, 0, 0, 1])].concat(),
            &[Goaway(PROTOCOL)],
        ),
        (
            "4.3",
            "another stream's HEADERS within a head",
            [frame(HEADERS, END_STREAM, 1, get("/")), request(3, get("/"))].concat(),
            &[Goaway(PROTOCOL)],
        ),
        ("5.1", "idle: DATA", frame(DATA, END_STREAM, 1, "body"), &[Goaway(PROTOCOL)]),
        ("5.1", "idle: RST_STREAM", frame(RST_STREAM, 0, 1, [0, 0, 0, 8]), &[Goaway(PROTOCOL)]),
        ("5.1", "idle: WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1]), &[Goaway(PROTOCOL)]),
        ("5.1", "idle: CONTINUATION", frame(CONTINUATION, END_HEADERS, 1, get("/")), &[Goaway(PROTOCOL)]),
        ("5.1.1", "a stream of the server's numbers", request(2, get("/")), &[Goaway(PROTOCOL)]),
        (
            "5.1.1",
            "a number lower than the last",
            [open(5, &post), request(3, get("/"))].concat(),
            &[Goaway(PROTOCOL), Goaway(STREAM_CLOSED)],
        ),
        (
            "5.5",
            "an extension within a head",
            [frame(HEADERS, END_STREAM, 1, get("/")), frame(0x16, 0, 1, "?")].concat(),
            &[Goaway(PROTOCOL)],
        ),
        ("6.1", "DATA of stream 0", frame(DATA, END_STREAM, 0, "body"), &[Goaway(PROTOCOL)]),
        (
            "6.1",
            "DATA with more padding than it has",
            [open(1, &post), frame(DATA, END_STREAM | PADDED, 1, [9, 0])].concat(),
            &[Goaway(PROTOCOL)],
        ),
        ("6.2", "HEADERS of stream 0", request(0, get("/")), &[Goaway(PROTOCOL)]),
        (
            "6.2",
            "HEADERS with more padding than they have",
            frame(HEADERS, END_HEADERS | END_STREAM | PADDED, 1, [9, 0]),
            &[Goaway(PROTOCOL)],
        ),
        ("6.3", "PRIORITY of stream 0", frame(PRIORITY, 0, 0, [0, 0, 0, 0, 1]), &[Goaway(PROTOCOL)]),
        (
            "6.3",
            "PRIORITY of the wrong size",
            [open(1, &post), frame(PRIORITY, 0, 1, [0, 0, 0, 0])].concat(),
            &[Reset(1, FRAME_SIZE), Goaway(FRAME_SIZE), Goaway(PROTOCOL)],
        ),
        ("6.4", "RST_STREAM of stream 0", frame(RST_STREAM, 0, 0, [0, 0, 0, 8]), &[Goaway(PROTOCOL)]),
        (
            "6.4",
            "RST_STREAM of the wrong size",
            [open(1, &post), frame(RST_STREAM, 0, 1, [0, 0, 8])].concat(),
            &[Goaway(FRAME_SIZE), Goaway(PROTOCOL)],
        ),
        ("6.5", "SETTINGS of a stream", frame(SETTINGS, 0, 1, []), &[Goaway(PROTOCOL)]),
        (
            "6.5",
            "SETTINGS of the wrong size",
            frame(SETTINGS, 0, 0, [0, 3, 0]),
            &[Goaway(FRAME_SIZE), Goaway(PROTOCOL)],
        ),
        (
            "6.5",
            "an answer to SETTINGS with settings",
            frame(SETTINGS, ACK, 0, [0, 3, 0, 0, 0, 1]),
            &[Goaway(FRAME_SIZE), Goaway(PROTOCOL)],
        ),
        ("6.5.2", "SETTINGS_ENABLE_PUSH of 2", settings(&[(2, 2)]), &[Goaway(PROTOCOL)]),
        (
            "6.5.2",
            "SETTINGS_INITIAL_WINDOW_SIZE beyond 31 bits",
            settings(&[(4, 1 << 31)]),
            &[Goaway(FLOW_CONTROL), Goaway(PROTOCOL)],
        ),
        ("6.5.2", "SETTINGS_MAX_FRAME_SIZE below the least", settings(&[(5, (1 << 14) - 1)]), &[Goaway(PROTOCOL)]),
        ("6.5.2", "SETTINGS_MAX_FRAME_SIZE beyond the most", settings(&[(5, 1 << 24)]), &[Goaway(PROTOCOL)]),
        (
            "6.6",
            "PUSH_PROMISE from a client",
            frame(PUSH_PROMISE, END_HEADERS, 1, [&[0, 0, 0, 2][..], &get("/")].concat()),
            &[Goaway(PROTOCOL)],
        ),
        ("6.7", "PING of a stream", frame(PING, 0, 1, [0; 8]), &[Goaway(PROTOCOL)]),
        ("6.7", "PING of the wrong size", frame(PING, 0, 0, [0; 6]), &[Goaway(FRAME_SIZE), Goaway(PROTOCOL)]),
        ("6.8", "GOAWAY of a stream", goaway(1), &[Goaway(PROTOCOL)]),
        ("6.9", "a window of 0 for the connection", frame(WINDOW_UPDATE, 0, 0, [0; 4]), &[Goaway(PROTOCOL)]),
        (
            "6.9",
            "WINDOW_UPDATE of the wrong size",
            frame(WINDOW_UPDATE, 0, 0, [0, 0, 1]),
            &[Goaway(FRAME_SIZE), Goaway(PROTOCOL)],
        ),
        (
            "6.9.1",
            "a window of the connection beyond 31 bits",
            [
                frame(WINDOW_UPDATE, 0, 0, [0x7f, 0xff, 0xff, 0xff]),
                frame(WINDOW_UPDATE, 0, 0, [0x7f, 0xff, 0xff, 0xff]),
            ]
            .concat(),
            &[Goaway(FLOW_CONTROL), Goaway(PROTOCOL)],
        ),
        (
            "6.9.2",
            "settings that move a window beyond 31 bits",
            [
                settings(&[(4, 1)]),
                open(1, &post),
                frame(WINDOW_UPDATE, 0, 1, [0x7f, 0xff, 0xff, 0xfe]),
                settings(&[(4, 0x7fff_ffff)]),
            ]
            .concat(),
            &[Goaway(FLOW_CONTROL), Reset(1, FLOW_CONTROL)],
        ),
        (
            "6.10",
            "PING between CONTINUATIONs",
            [
                frame(HEADERS, END_STREAM, 1, get("/")),
                frame(CONTINUATION, 0, 1, block(&[("x", "y")])),
                frame(PING, 0, 0, [0; 8]),
            ]
            .concat(),
            &[Goaway(PROTOCOL)],
        ),
        (
            "6.10",
            "CONTINUATION of stream 0",
            [frame(HEADERS, END_STREAM, 1, get("/")), frame(CONTINUATION, END_HEADERS, 0, block(&[("x", "y")]))]
                .concat(),
            &[Goaway(PROTOCOL)],
        ),
        (
            "6.10",
            "CONTINUATION behind a whole head",
            [open(1, &post), frame(CONTINUATION, END_HEADERS, 1, block(&[("x", "y")]))].concat(),
            &[Goaway(PROTOCOL)],
        ),
        (
            "6.10",
            "CONTINUATION behind the last one",
            [
                frame(HEADERS, 0, 1, &post),
                frame(CONTINUATION, END_HEADERS, 1, block(&[("x", "y")])),
                frame(CONTINUATION, END_HEADERS, 1, block(&[("x", "y")])),
            ]
            .concat(),
            &[Goaway(PROTOCOL)],
        ),
        (
            "6.10",
            "CONTINUATION behind DATA",
            [open(1, &post), frame(DATA, 0, 1, "body"), frame(CONTINUATION, END_HEADERS, 1, block(&[("x", "y")]))]
                .concat(),
            &[Goaway(PROTOCOL)],
        ),
    ]);
}

#[test]
fn a_stream_that_has_ended_takes_nothing_more() {
    let post = with("POST", "/", &[]);
    let reset = frame(RST_STREAM, 0, 1, [0, 0, 0, 8]);
    run(vec![
        (
            "5.1",
            "half closed: DATA",
            [request(1, get("/")), frame(DATA, END_STREAM, 1, "body")].concat(),
            &[Reset(1, STREAM_CLOSED), Goaway(STREAM_CLOSED), Goaway(PROTOCOL)],
        ),
        (
            "5.1",
            "half closed: HEADERS",
            [request(1, get("/")), request(1, get("/"))].concat(),
            &[Reset(1, STREAM_CLOSED), Goaway(STREAM_CLOSED), Goaway(PROTOCOL)],
        ),
        (
            "5.1",
            "half closed: CONTINUATION",
            [request(1, get("/")), frame(CONTINUATION, END_HEADERS, 1, get("/"))].concat(),
            &[Goaway(PROTOCOL), Goaway(STREAM_CLOSED)],
        ),
        (
            "5.1",
            "closed by a reset: DATA",
            [open(1, &post), reset.clone(), frame(DATA, END_STREAM, 1, "body")].concat(),
            &[Reset(1, STREAM_CLOSED), Goaway(STREAM_CLOSED), Goaway(PROTOCOL)],
        ),
        (
            "5.1",
            "closed by a reset: HEADERS",
            [open(1, &post), reset.clone(), request(1, get("/"))].concat(),
            &[Reset(1, STREAM_CLOSED), Goaway(STREAM_CLOSED), Goaway(PROTOCOL)],
        ),
        (
            "5.1",
            "closed by a reset: CONTINUATION",
            [open(1, &post), reset.clone(), frame(CONTINUATION, END_HEADERS, 1, get("/"))].concat(),
            &[Goaway(PROTOCOL), Goaway(STREAM_CLOSED)],
        ),
    ]);
    // The same, once the answer has come.
    let origin = answering();
    let carom = carom(&origin);
    for (what, bytes) in [
        ("DATA", frame(DATA, END_STREAM, 1, "body")),
        ("HEADERS", request(1, get("/"))),
        ("CONTINUATION", frame(CONTINUATION, END_HEADERS, 1, get("/"))),
    ] {
        let mut client = Frames::connect(carom.address());
        client.send(request(1, get("/")));
        while client.find(DATA).flags & END_STREAM == 0 {}
        client.send(bytes);
        let reaction = client.reaction();
        let right = matches!(reaction, Goaway(STREAM_CLOSED | PROTOCOL) | Reset(1, STREAM_CLOSED));
        assert!(right, "{what} after the answer: {reaction:?}");
    }
}

#[test]
fn a_malformed_request_is_refused_and_its_connection_goes_on() {
    let malformed: &[Reaction] = &[Reset(1, PROTOCOL)];
    let ending: &[Reaction] = &[Reset(1, PROTOCOL), Goaway(PROTOCOL)];
    let refused: &[Reaction] = &[Answer(1, 400)];
    let fields = |fields: &[(&str, &str)]| request(1, block(fields));
    let (method, scheme, path, host) =
        ((":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test"));
    let more = |more: (&str, &str)| request(1, with("GET", "/", &[more]));
    let post = with("POST", "/", &[]);
    run(vec![
        (
            "5.3.1",
            "a head that depends on itself",
            frame(HEADERS, END_HEADERS | END_STREAM | WITH_PRIORITY, 1, [&[0, 0, 0, 1, 9][..], &get("/")].concat()),
            &[Reset(1, PROTOCOL), Goaway(PROTOCOL)],
        ),
        (
            "6.9",
            "a window of 0 for a stream",
            [open(1, &post), frame(WINDOW_UPDATE, 0, 1, [0; 4])].concat(),
            &[Reset(1, PROTOCOL), Goaway(PROTOCOL)],
        ),
        (
            "6.9.1",
            "a window of a stream beyond 31 bits",
            [
                open(1, &post),
                frame(WINDOW_UPDATE, 0, 1, [0x7f, 0xff, 0xff, 0xff]),
                frame(WINDOW_UPDATE, 0, 1, [0x7f, 0xff, 0xff, 0xff]),
            ]
            .concat(),
            &[Reset(1, FLOW_CONTROL)],
        ),
        (
            "8.1",
            "trailers that don't end the stream",
            [open(1, &post), open(1, block(&[("x", "y")]))].concat(),
            malformed,
        ),
        (
            "8.1.1",
            "a length longer than the body",
            [open(1, with("POST", "/", &[("content-length", "5")])), frame(DATA, END_STREAM, 1, "body")].concat(),
            malformed,
        ),
        (
            "8.1.1",
            "a length shorter than the body",
            [open(1, with("POST", "/", &[("content-length", "3")])), frame(DATA, END_STREAM, 1, "body")].concat(),
            malformed,
        ),
        (
            "8.1.1",
            "a length shorter than all pieces",
            [
                open(1, with("POST", "/", &[("content-length", "3")])),
                frame(DATA, 0, 1, "bo"),
                frame(DATA, END_STREAM, 1, "dy"),
            ]
            .concat(),
            malformed,
        ),
        ("8.1.1", "a length without a body", request(1, with("POST", "/", &[("content-length", "3")])), malformed),
        ("8.1.1", "a length that is none", request(1, with("POST", "/", &[("content-length", "+0")])), malformed),
        (
            "8.1.1",
            "two lengths",
            [
                open(1, with("POST", "/", &[("content-length", "4"), ("content-length", "5")])),
                frame(DATA, END_STREAM, 1, "body"),
            ]
            .concat(),
            malformed,
        ),
        ("8.2", "a name in upper case", more(("X-A", "v")), ending),
        ("8.2.1", "a name with a space", more(("x a", "v")), ending),
        ("8.2.1", "a name with a colon", more(("x:a", "v")), ending),
        ("8.2.1", "an empty name", more(("", "v")), ending),
        ("8.2.1", "a value with a line feed", more(("x", "v\nhost: b.test")), ending),
        ("8.2.1", "a value with a carriage return", more(("x", "v\rw")), ending),
        ("8.2.1", "a value with a NUL", more(("x", "v\0w")), ending),
        ("8.2.1", "a value that begins with a space", more(("x", " v")), refused),
        ("8.2.1", "a value that ends with a tab", more(("x", "v\t")), refused),
        ("8.2.2", "connection", more(("connection", "keep-alive")), malformed),
        ("8.2.2", "keep-alive", more(("keep-alive", "timeout=5")), malformed),
        ("8.2.2", "proxy-connection", more(("proxy-connection", "keep-alive")), malformed),
        ("8.2.2", "transfer-encoding", more(("transfer-encoding", "chunked")), malformed),
        ("8.2.2", "upgrade", more(("upgrade", "websocket")), malformed),
        ("8.2.2", "te of another kind", more(("te", "gzip, trailers")), malformed),
        ("8.3", "a pseudo field that nobody knows", fields(&[method, scheme, path, host, (":test", "v")]), ending),
        ("8.3", "a response's pseudo field", fields(&[method, scheme, path, host, (":status", "200")]), malformed),
        ("8.3", "a pseudo field behind others", fields(&[method, scheme, path, ("x", "y"), host]), malformed),
        (
            "8.1",
            "a pseudo field in trailers",
            [open(1, &post), request(1, block(&[(":method", "GET")]))].concat(),
            &[Answer(1, 200), Reset(1, PROTOCOL)],
        ),
        ("8.3.1", "no :method", fields(&[scheme, path, host]), malformed),
        ("8.3.1", "no :scheme", fields(&[method, path, host]), malformed),
        ("8.3.1", "no :path", fields(&[method, scheme, host]), malformed),
        ("8.3.1", "an empty :path", fields(&[method, scheme, (":path", ""), host]), malformed),
        ("8.3.1", "two of :method", fields(&[method, method, scheme, path, host]), malformed),
        ("8.3.1", "two of :scheme", fields(&[method, scheme, scheme, path, host]), malformed),
        ("8.3.1", "two of :path", fields(&[method, scheme, path, path, host]), malformed),
        ("8.3.1", "two of :authority", fields(&[method, scheme, path, host, host]), malformed),
        ("8.3.1", "a :method that is no token", fields(&[(":method", "GET /"), scheme, path, host]), ending),
        ("8.3.1", "a :path with a space", fields(&[method, scheme, (":path", "/x HTTP/1.1"), host]), malformed),
        (
            "8.3.1",
            "a :path that is another host's",
            fields(&[method, scheme, (":path", "http://b.test/"), host]),
            &[Answer(1, 400), Reset(1, PROTOCOL)],
        ),
        (
            "8.3.1",
            "a :path without a slash",
            fields(&[method, scheme, (":path", "x"), host]),
            &[Answer(1, 400), Reset(1, PROTOCOL)],
        ),
        ("8.3.1", "* without OPTIONS", fields(&[method, scheme, (":path", "*"), host]), refused),
        ("8.3.1", "a :scheme that is not HTTP's", fields(&[method, (":scheme", "ftp"), path, host]), refused),
        ("8.3.1", "no host at all", fields(&[method, scheme, path]), refused),
        (
            "8.3.1",
            "an :authority with a user",
            fields(&[method, scheme, path, (":authority", "u@a.test")]),
            &[Answer(1, 400), Reset(1, PROTOCOL)],
        ),
        ("8.3.1", "a Host that is another", more(("host", "b.test")), refused),
        ("8.3.1", "two Hosts", fields(&[method, scheme, path, ("host", "a.test"), ("host", "a.test")]), refused),
        ("8.5", "CONNECT", fields(&[(":method", "CONNECT"), (":authority", "b.test:443")]), refused),
        ("8.5", "CONNECT with a :path", fields(&[(":method", "CONNECT"), scheme, path, host]), malformed),
        (
            "8441 4",
            ":protocol without CONNECT",
            fields(&[method, scheme, path, host, (":protocol", "websocket")]),
            malformed,
        ),
        (
            "8441 4",
            ":protocol without :path",
            fields(&[(":method", "CONNECT"), scheme, host, (":protocol", "websocket")]),
            malformed,
        ),
        (
            "8441 4",
            "another :protocol",
            open(1, block(&[(":method", "CONNECT"), scheme, path, host, (":protocol", "x")])),
            &[Answer(1, 501)],
        ),
    ]);
}

#[test]
fn compression_is_taken_apart_with_care() {
    // RFC 7541: the pseudo fields of `GET / http` from the static table, and an authority.
    let base = [&[0x82, 0x86, 0x84, 0x41, 6][..], b"a.test"].concat();
    let and = |more: &[u8]| request(1, [&base[..], more].concat());
    let literal = |first: u8, name: &[u8], value: &[u8]| {
        let mut bytes = vec![first];
        for text in [name, value] {
            integer(&mut bytes, 0, 7, text.len());
            bytes.extend_from_slice(text);
        }
        bytes
    };
    let indexed_then_used = [literal(0x40, b"x-a", b"b"), vec![0x80 | 62]].concat();
    run(vec![
        ("7541 6.1", "indexed fields", and(&[]), &[Answer(1, 200)]),
        ("7541 6.2.1", "a literal that is indexed, and its index", and(&indexed_then_used), &[Answer(1, 200)]),
        ("7541 6.2.2", "a literal that is not", and(&literal(0, b"x-a", b"b")), &[Answer(1, 200)]),
        ("7541 6.2.3", "a literal that never is", and(&literal(0x10, b"x-a", b"b")), &[Answer(1, 200)]),
        (
            "7541 5.2",
            "a name in the Huffman code",
            and(&[0x00, 0x83, 0xf2, 0xb1, 0x0f, 0x01, b'v']),
            &[Answer(1, 200), Reset(1, PROTOCOL)],
        ),
        (
            "7541 6.3",
            "a table of another size",
            request(1, [&[0x20, 0x3f, 0xe1, 0x1f][..], &base].concat()),
            &[Answer(1, 200)],
        ),
        ("7541 6.1", "index 0", and(&[0x80]), &[Goaway(COMPRESSION), Goaway(PROTOCOL)]),
        ("7541 2.3.3", "an index that nothing has", and(&[0x80 | 70]), &[Goaway(COMPRESSION), Goaway(PROTOCOL)]),
        ("7541 4.2", "a table's size behind fields", and(&[0x20]), &[Goaway(COMPRESSION), Goaway(PROTOCOL)]),
        (
            "7541 6.3",
            "a table larger than the setting",
            request(1, [&[0x3f, 0xe2, 0xff, 0x7f][..], &base].concat()),
            &[Goaway(COMPRESSION), Goaway(PROTOCOL)],
        ),
        (
            "7541 5.2",
            "padding of a whole byte",
            and(&[0x00, 1, b'x', 0x82, 0x1f, 0xff]),
            &[Goaway(COMPRESSION), Goaway(PROTOCOL)],
        ),
        ("7541 5.2", "padding of zeros", and(&[0x00, 1, b'x', 0x81, 0x18]), &[Goaway(COMPRESSION), Goaway(PROTOCOL)]),
        (
            "7541 5.2",
            "the end of a string within it",
            and(&[0x00, 1, b'x', 0x84, 0xff, 0xff, 0xff, 0xff]),
            &[Goaway(COMPRESSION), Goaway(PROTOCOL)],
        ),
        (
            "7541 5.1",
            "a number without end",
            and(&[0x00, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            &[Goaway(COMPRESSION), Goaway(PROTOCOL)],
        ),
        (
            "7541 5.2",
            "a string longer than its block",
            and(&[0x00, 0x7f, 0x00]),
            &[Goaway(COMPRESSION), Goaway(PROTOCOL)],
        ),
    ]);
}
