//! What one HTTP/2 connection may take: requests at once, heads, resets, floods, windows and time, and that one request
//! does not hold back another.

use std::time::Duration;

use crate::support::frames::{
    ACK, CONTINUATION, DATA, END_STREAM, Frames, GOAWAY, HEADERS, PING, RST_STREAM, Reaction, SETTINGS, WINDOW_UPDATE,
    block, frame, get, open, request, settings, with,
};
use crate::support::http2::{Http2, get as ask};
use crate::support::{Carom, Origin, pattern, poll_until, reply};

use Reaction::{Answer, Closed, Goaway, Reset};

const REFUSED: u32 = 7;
const CALM: u32 = 11;

/// How much a flood may cost: far less than it sends.
const LITTLE: usize = 8 << 20;

fn carom(origin: &Origin, config: &str) -> Carom {
    Carom::to(origin.port()).config(&format!("[http2]\nprior_knowledge = true\n{config}")).start()
}

/// Never answers.
fn silent() -> Origin {
    Origin::new(|conn| {
        conn.head();
        conn.wait_end();
    })
}

/// Waits until all that was sent has been read.
fn settle(client: &mut Frames) {
    assert!(client.is_alive());
}

#[test]
fn more_requests_at_once_than_allowed_are_refused() {
    let origin = silent();
    let carom = carom(&origin, "streams = 3");
    let mut client = Frames::connect(carom.address());
    for stream in [1, 3, 5, 7] {
        client.send(request(stream, get("/")));
    }
    assert_eq!(client.reaction(), Reset(7, REFUSED));
    // One that ends makes room.
    client.send(frame(RST_STREAM, 0, 3, [0, 0, 0, 8]));
    client.send(request(9, with("GET", "/", &[("host", "b.test")])));
    assert_eq!(client.reaction(), Answer(9, 400));
}

#[test]
fn requests_at_once_take_the_places_of_clients() {
    let origin = silent();
    let carom = carom(&origin, "[limits]\nconnections = 3");
    let mut client = Frames::connect(carom.address());
    // The first has its connection's place, two more have one each.
    for stream in [1, 3, 5, 7] {
        client.send(request(stream, get("/")));
    }
    assert_eq!(client.reaction(), Reset(7, REFUSED));
    client.send(frame(RST_STREAM, 0, 3, [0, 0, 0, 8]));
    let mut stream = 7;
    poll_until("that there is room again", || {
        stream += 2;
        client.send(request(stream, with("GET", "/", &[("host", "b.test")])));
        client.reaction() == Answer(stream, 400)
    });
}

#[test]
fn a_client_that_takes_back_what_it_asks_is_told_to_calm_down() {
    let origin = silent();
    // All at once: before anything has been begun.
    let carom = carom(&origin, "");
    let mut client = Frames::connect(carom.address());
    let mut flood = Vec::new();
    for stream in (1..2000).step_by(2) {
        flood.extend(request(stream, get("/")));
        flood.extend(frame(RST_STREAM, 0, stream, [0, 0, 0, 8]));
    }
    client.send(flood);
    assert_eq!(client.reaction(), Goaway(CALM));
    assert!(origin.connections() < 300);
}

#[test]
fn so_is_one_that_does_it_slowly() {
    let origin = silent();
    let carom = carom(&origin, "resets = 5");
    let mut client = Frames::connect(carom.address());
    for stream in (1..100).step_by(2) {
        client.send(request(stream, get("/")));
        client.send(frame(PING, 0, 0, [0; 8]));
        loop {
            match client.next() {
                Some(frame) if frame.kind == PING => break,
                Some(frame) if frame.kind == GOAWAY => {
                    assert_eq!(frame.payload[7], CALM as u8);
                    // After the sixth, or while the seventh is on its way.
                    assert!(matches!(stream, 13 | 15), "{stream}");
                    return;
                }
                Some(_) => {}
                None => panic!("the end without a word"),
            }
        }
        client.send(frame(RST_STREAM, 0, stream, [0, 0, 0, 8]));
    }
    panic!("nobody minded");
}

#[test]
fn a_head_beyond_the_limit_is_answered_and_one_without_end_is_not_read() {
    let origin = silent();
    let carom = carom(&origin, "[limits]\nhead = 2000");
    let mut client = Http2::connect(carom.address());
    let answer = client.ask(ask("http://a.test/").header("x", "y".repeat(2500)));
    assert_eq!((answer.status, answer.field("carom-error")), (431, "head-too-large"));
    let answer = client.ask(ask("http://a.test/").header("x", "y".repeat(14_000)));
    assert_eq!(answer.status, 431);
    assert_eq!(client.ask(ask("http://b.test/")).status, 404);
    // CONTINUATION frames without end, of little and of nothing.
    for piece in [block(&[("x", "y")]), block(&[("x", &"y".repeat(1000))]), Vec::new()] {
        let mut client = Frames::connect(carom.address());
        let before = carom.memory();
        client.send(frame(HEADERS, END_STREAM, 1, get("/")));
        let flood = frame(CONTINUATION, 0, 1, &piece).repeat(1000);
        for _ in 0..1000 {
            if !client.send(&flood) {
                break;
            }
        }
        assert!(matches!(client.reaction(), Goaway(_) | Closed), "{}", piece.len());
        let grown = carom.memory().saturating_sub(before);
        assert!(grown < LITTLE, "{grown} bytes for pieces of {}", piece.len());
    }
    origin.assert_untouched();
}

#[test]
fn floods_of_frames_that_want_an_answer_cost_little() {
    let origin = silent();
    let carom = carom(&origin, "");
    for (what, flood) in [("PING", frame(PING, 0, 0, [7; 8])), ("SETTINGS", settings(&[(4, 70_000), (3, 100)]))] {
        let mut client = Frames::connect(carom.address());
        settle(&mut client);
        let before = carom.memory();
        // Until the other side does not read any more, since nobody takes its answers.
        let sent = client.send_until_full(&flood.repeat(1000), 64 << 20);
        let grown = carom.memory().saturating_sub(before);
        assert!(grown < LITTLE, "{what}: {grown} bytes for {sent}");
    }
}

#[test]
fn floods_of_frames_that_say_nothing_cost_little() {
    let origin = silent();
    let carom = carom(&origin, "");
    let priority = frame(2, 0, 1, [0, 0, 0, 0, 9]);
    for (what, flood) in [
        ("empty DATA", frame(DATA, 0, 1, "")),
        ("DATA of one byte", frame(DATA, 0, 1, "x")),
        ("windows", frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1])),
        ("PRIORITY", priority),
        ("answers", frame(SETTINGS, ACK, 0, "")),
        ("unknown", frame(99, 0, 1, "what?")),
    ] {
        let mut client = Frames::connect(carom.address());
        client.send(open(1, with("POST", "/", &[])));
        settle(&mut client);
        let before = carom.memory();
        let sent = client.send_until_full(&flood.repeat(1000), 8 << 20);
        let grown = carom.memory().saturating_sub(before);
        assert!(grown < LITTLE, "{what}: {grown} bytes for {sent}");
    }
    carom.assert_running();
    assert_eq!(Http2::connect(carom.address()).ask(ask("http://b.test/")).status, 404);
}

#[test]
fn a_response_that_nobody_takes_does_not_hold_back_others() {
    let origin = Origin::new(|conn| {
        while let Some(request) = conn.request() {
            let body = if request.target() == "/large" { 20_000_000 } else { 10 };
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n\r\n"));
            conn.send(pattern(body));
        }
    });
    let carom = carom(&origin, "");
    let mut client = Frames::connect(carom.address());
    // Each stream has room for little, the connection for much.
    client.send([settings(&[(4, 20_000)]), frame(WINDOW_UPDATE, 0, 0, 100_000_000_u32.to_be_bytes())].concat());
    let before = carom.memory();
    for stream in [1, 3, 5] {
        client.send(request(stream, get("/large")));
    }
    for stream in [7, 9, 11] {
        client.send(request(stream, get("/small")));
        loop {
            let frame = client.next().expect("an answer");
            if frame.kind == DATA && frame.stream == stream {
                assert_eq!(frame.payload, pattern(10));
                break;
            }
        }
    }
    let grown = carom.memory().saturating_sub(before);
    assert!(grown < LITTLE, "{grown} bytes");
}

#[test]
fn a_request_that_nobody_takes_does_not_hold_back_others() {
    let origin = Origin::new(|conn| {
        let head = conn.head().unwrap();
        if head.method() == "POST" {
            // Takes nothing of the body.
            conn.pause(60_000);
        } else {
            conn.send(reply("200 OK", &[], "ok"));
        }
    });
    let carom = carom(&origin, "");
    let mut client = Http2::connect(carom.address());
    let mut stuck = client.begin(http::Request::post("http://a.test/"), false);
    stuck.send.send_data(pattern(30_000_000).into(), false).unwrap();
    for _ in 0..3 {
        assert_eq!(client.ask(ask("http://a.test/")).text(), "ok");
    }
}

#[test]
fn what_a_connection_holds_is_bounded() {
    let origin = Origin::new(|conn| {
        while conn.head().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
            while conn.send(pattern(1_000_000)) {}
        }
    });
    let carom = carom(&origin, "streams = 40\nsend_buffer = \"64KiB\"");
    let mut client = Frames::connect(carom.address());
    let most = 0x7fff_ffff - 65_535_u32;
    client.send([settings(&[(4, most)]), frame(WINDOW_UPDATE, 0, 0, most.to_be_bytes())].concat());
    settle(&mut client);
    let before = carom.memory();
    // Forty responses of 100 MB each, for which there is room, and which nobody reads.
    for stream in (1..80).step_by(2) {
        client.send(request(stream, get("/")));
    }
    origin.wait("all requests", |seen| (seen.requests.len() == 40).then_some(()));
    let mut last = 0;
    poll_until("it takes nothing more", || {
        std::thread::sleep(Duration::from_millis(50));
        std::mem::replace(&mut last, carom.memory()) == last
    });
    let grown = last.saturating_sub(before);
    // Of each: what waits in the connection, two buffers, and one write more than there was room for.
    let bound = 40 * (64 + 2 * 64 + 64) * 1024 + LITTLE;
    assert!(grown < bound, "{grown} of {bound} bytes");
}

#[test]
fn slow_clients_have_deadlines_here_too() {
    let origin = Origin::new(|conn| {
        while let Some(head) = conn.head() {
            if head.method() == "GET" {
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
                while conn.send(pattern(1_000_000)) {}
            } else {
                conn.wait_end();
            }
        }
    });
    let carom = carom(&origin, "[timeouts]\nbody = \"200ms\"\nsend = \"200ms\"\nidle = \"300ms\"\nhead = \"300ms\"");
    // A body that does not come.
    let mut client = Frames::connect(carom.address());
    client.send(open(1, with("POST", "/", &[("content-length", "5")])));
    assert_eq!(client.reaction(), Answer(1, 408));
    // A response that is not taken.
    let mut client = Frames::connect(carom.address());
    client.send(request(1, get("/slow")));
    assert_eq!(client.reaction(), Answer(1, 200));
    assert_eq!(carom.logged_path("/slow")["reason"], "idle-timeout");
    while client.find(DATA).payload.len() > 1 << 20 {}
    assert!(matches!(client.reaction(), Reset(1, _)));
    // A client that has nothing to say, and one that does not even say the preface.
    assert!(matches!(client.reaction(), Goaway(0)));
    let mut client = Frames::silent(carom.address());
    client.send(b"PRI * HTTP/2.0\r\n\r\n");
    while client.next().is_some() {}
    // A head that never ends is a connection without a request.
    let mut client = Frames::connect(carom.address());
    client.send(frame(HEADERS, END_STREAM, 1, get("/")));
    assert!(matches!(client.reaction(), Goaway(0)));
}

#[test]
fn the_last_word_is_heard_though_more_was_sent() {
    let origin = silent();
    let carom = carom(&origin, "");
    for _ in 0..5 {
        let mut client = Frames::connect(carom.address());
        // A mistake, and much behind it that nobody will take.
        client.send(frame(PING, 0, 1, [0; 8]));
        client.send(frame(DATA, 0, 1, [0; 9999]).repeat(200));
        assert_eq!(client.reaction(), Goaway(1));
        assert!(client.ends_cleanly());
    }
}

#[test]
fn a_slow_client_gets_the_rest_of_its_answer_though_carom_stops() {
    let origin =
        Origin::replying([reply("200 OK", &[], "").replace("h: 0", "h: 45001").as_bytes(), &pattern(45_001)].concat());
    let carom = carom(&origin, "");
    let mut client = Frames::connect(carom.address());
    client.send([settings(&[(4, 45_000)]), request(1, get("/"))].concat());
    assert_eq!(client.reaction(), Answer(1, 200));
    // All of it has left the backend, and one byte waits here.
    carom.logged_path("/");
    carom.signal(rustix::process::Signal::TERM);
    // Longer than a connection without anything to do would be waited for.
    std::thread::sleep(Duration::from_millis(2500));
    let mut got = 0;
    while got < 45_001 {
        let data = client.find(DATA);
        got += data.payload.len();
        client.send(frame(WINDOW_UPDATE, 0, 1, u32::try_from(data.payload.len()).unwrap().to_be_bytes()));
    }
    assert!(client.ends_cleanly());
    assert_eq!(carom.exit_code(), Some(0));
}
